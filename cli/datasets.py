"""Text into a dataset in the bucket."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cli.errors import Refused
from cli.words import counted
from components.spec import NAME
from trainer import layout
from trainer.pack import PackError
from trainer.pack import pack as pack_text
from trainer.store import Missing, Store

STANDARD_LIBRARY = "python-stdlib"
"""The dataset that needs no download: the sources of Python's standard library."""

NOT_PROSE = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "lib2to3")
"""Left out of it: tests and generated tables, more than half of the files and little to learn from."""

INDEX = "index.json"
UPLOADS = 8


def pack_standard_library(home: Path, name: str = STANDARD_LIBRARY) -> Path:
    """Pack the sources of the standard library of the Python that runs this. Returns the folder."""
    return pack([Path(sysconfig.get_path("stdlib"))], name, home, NOT_PROSE)


def pack(paths: Sequence[Path], name: str, home: Path, exclude: Sequence[str] = ()) -> Path:
    """Pack text into shards in the local folder. Returns the dataset's folder. Raises `Refused`."""
    if not re.match(NAME, name):
        raise Refused(f"--name: '{name}' is no dataset's name: lower-case letters, digits and hyphens")
    folder = home / "datasets" / name
    try:
        pack_text(paths, folder, name, exclude=exclude)
    except (PackError, OSError) as error:
        raise Refused(str(error)) from None
    return folder


def there(name: str, bucket: Store) -> bool:
    """Whether the bucket has a whole dataset of this name."""
    return bucket.exists(f"{layout.dataset_prefix(name)}/{INDEX}")


def upload(folder: Path, bucket: Store, console: Console, *, replace: bool = False) -> None:
    """Put a packed dataset into the bucket, its index last, since the index makes it count.

    One that is there already stays, unless `replace`: a job may be reading it. Raises `Refused` where it is another.
    """
    prefix = layout.dataset_prefix(folder.name)
    index, where = f"{prefix}/{INDEX}", bucket.url(prefix)
    present = _content(bucket, index)
    if present == (folder / INDEX).read_bytes():
        console.print(Text(f"dataset {folder.name}: there already, the same, at {where}"), soft_wrap=True)
        return
    if present is not None:
        if not replace:
            raise Refused(
                f"dataset {folder.name}: the bucket has another of that name, at {where}, which a job may be "
                "reading. Give this one a --name of its own, or put it in the other's place by --replace"
            )
        bucket.delete(index)
    shards = sorted(folder.glob("shard-*.bin"))
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(lambda shard: bucket.upload(shard, f"{prefix}/{shard.name}"), shards))
    bucket.upload(folder / INDEX, index)
    size = sum(shard.stat().st_size for shard in shards)
    told = f"dataset {folder.name}: {size / 1e6:,.1f} MB in {counted(len(shards), 'shard')} at {where}"
    console.print(Text(told), soft_wrap=True)


def _content(bucket: Store, key: str) -> bytes | None:
    try:
        return bucket.get(key)
    except Missing:
        return None
