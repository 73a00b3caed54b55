"""What Extreme NAS is, zone by zone, as its documents say: pure, for what is refused and for what is declared.

All of it is from the NAS product overview, "Extreme NAS file systems" (performance since 19 January 2024; supported
regions and zones).
"""

from __future__ import annotations

SMALLEST_GIB = 100
LARGEST_GIB = 256 * 1024
"""Of a file system, in steps of 1 GiB."""

ADVANCED = {
    "cn-hangzhou": "ghijk",
    "cn-shanghai": "befglmn",
    "cn-qingdao": "c",
    "cn-beijing": "fghikl",
    "cn-zhangjiakou": "abc",
    "cn-huhehaote": "ab",
    "cn-wulanchabu": "abc",
    "cn-shenzhen": "cdef",
    "cn-chengdu": "ab",
    "cn-hongkong": "bcd",
    "ap-southeast-1": "abc",
    "ap-southeast-5": "bc",
    "ap-northeast-1": "c",
    "us-east-1": "ab",
    "us-west-1": "b",
    "eu-central-1": "bc",
    "eu-west-1": "ab",
}
"""Zones, by their letters, of the advanced storage class: 0.3 ms for a write of 4 KiB, against 1.2 ms."""

FAST = {
    "cn-hangzhou": "ijk",
    "cn-shanghai": "blmn",
    "cn-beijing": "hikl",
    "cn-wulanchabu": "bc",
    "cn-shenzhen": "cef",
    "cn-chengdu": "ab",
    "cn-hongkong": "bcd",
    "ap-southeast-1": "abc",
    "ap-southeast-5": "bc",
    "ap-northeast-1": "c",
    "us-east-1": "ab",
    "eu-central-1": "c",
}
"""Those of them where the advanced class gives up to 4,000 MB/s."""

STANDARD = {
    "cn-hangzhou": "bef",
    "cn-shanghai": "acd",
    "cn-qingdao": "b",
    "cn-beijing": "abcde",
    "cn-shenzhen": "ab",
    "ap-southeast-3": "ab",
    "ap-southeast-5": "a",
    "ap-northeast-1": "ab",
    "us-west-1": "a",
    "eu-central-1": "a",
}
"""Zones of the standard class alone."""

PLAIN_MBPS = ((8192, 1200), (4096, 900), (2048, 600), (500, 300), (100, 150))
FAST_MBPS = ((8192, 4000), (5120, 3000), (3072, 2000), (2048, 1500), (1024, 1000), (500, 500), (100, 250))
"""Throughput, MB/s, by the least GiB that has it."""


def kind(zone: str) -> str:
    """The storage class that a zone has, as the API calls it, the better one of two; '' where it has none."""
    if _in(zone, ADVANCED):
        return "advance"
    return "standard" if _in(zone, STANDARD) else ""


def throughput(zone: str, size_gib: int) -> int:
    """MB/s of a file system of this size in a zone, 0 where it has none: it comes with the size, and isn't chosen."""
    steps = FAST_MBPS if _in(zone, FAST) else PLAIN_MBPS
    return next((given for least, given in steps if size_gib >= least), 0) if kind(zone) else 0


def zones(region: str) -> list[str]:
    """A region's zones that have any, by their names."""
    return [zone for zone in (_name(region, letter) for letter in "abcdefghijklmnopqrstuvwxyz") if kind(zone)]


def _name(region: str, letter: str) -> str:
    """A zone's name: cn-hangzhou-i, ap-southeast-1a."""
    return f"{region}{letter}" if region[-1].isdigit() else f"{region}-{letter}"


def _in(zone: str, table: dict[str, str]) -> bool:
    return zone[-1] in table.get(zone[:-1].removesuffix("-"), "")
