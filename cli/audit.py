"""A run's audit record: who declared what, on which nodes it ran at what cost, what it saved, and how it ended.

It is put together from what the run's prefix holds anyway, and from the pages below `audit/`, each written once as the
run goes (see `trainer/layout.py`). Times are the store's own, in seconds since 1970: when each record was written; an
outcome, which another try copies, tells its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.words import counted, duration, plain, size
from trainer import layout
from trainer.node.peers import Card, Generation
from trainer.store import Entry, Store

HOUR_S = 3600.0


@dataclass(frozen=True)
class Node:
    """A node that took part. `until`: its last sign of life, so that hours and cost are the least that it took."""

    node: str
    type: str
    zone: str
    since: float
    until: float
    usd: tuple[float, float] | None
    """From the lowest to the highest price at which it may have been bought; None where none has a source."""

    @property
    def hours(self) -> float:
        """From its launch to its last sign of life."""
        return max(0.0, self.until - self.since) / HOUR_S


@dataclass
class Audit:
    """A run's record. Pages are as they were written, each with `at`."""

    run: str
    launches: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    retries: list[dict[str, Any]] = field(default_factory=list)
    safe: int = 0
    """The last step that the user's own program has said to be safe; 0 where it said none."""
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """Those before another try, and then the last, if the run has ended."""

    @property
    def hours(self) -> float:
        """Of all nodes."""
        return sum(node.hours for node in self.nodes)

    @property
    def usd(self) -> tuple[float, float] | None:
        """Of all nodes; None as soon as one's price is unknown."""
        costs = [node.usd for node in self.nodes if node.usd is not None]
        if len(costs) < len(self.nodes) or not costs:
            return None
        return sum(low for low, _ in costs), sum(high for _, high in costs)


def read(store: Store, run: str) -> Audit:
    """The record of a run as it stands. Raises `StoreError`."""
    entries = {
        entry.key: entry for prefix in (layout.AUDIT, layout.CONTROL, layout.OUTCOMES) for entry in store.list(prefix)
    }
    kept = layout.complete_checkpoints(entry.key for entry in store.list(layout.CHECKPOINTS))

    def pages(prefix: str) -> list[dict[str, Any]]:
        found = [entry for key, entry in entries.items() if key.startswith(prefix)]
        return sorted((_page(store, entry) for entry in found), key=lambda page: float(page["at"]))

    launches = pages(layout.LAUNCHES)
    rates = {kind: ways for page in launches for kind, ways in page.get("usd_per_node_hour", {}).items()}
    return Audit(
        run=run,
        launches=launches,
        nodes=[_node(page, entries, rates) for page in pages(layout.NODES)],
        generations=[_generation(page) for page in pages(layout.GENERATIONS)],
        checkpoints=[page | {"kept": page.get("step") in kept} for page in pages(layout.SAVES)],
        retries=pages(layout.RETRIES),
        safe=max((_safe(store, key) for key in entries if key.endswith("/card.json")), default=0),
        outcomes=[_ended(page) for page in (*pages(layout.OUTCOMES), *pages(layout.OUTCOME))],
    )


def as_json(audit: Audit) -> dict[str, Any]:
    """The whole record for programs."""
    return {
        **asdict(audit),
        "nodes": [asdict(node) | {"hours": round(node.hours, 4)} for node in audit.nodes],
        "node_hours": round(audit.hours, 4),
        "usd": audit.usd,
    }


def show(audit: Audit, console: Console) -> None:
    """The record for a reader: what happened, in order; then the nodes, and what they took in all."""
    console.print(Text(f"run {audit.run}", style="bold"))
    if not audit.launches:
        console.print(Text("no page says who declared it", style="dim"))
    told = [
        *((page["at"], _launch(page)) for page in audit.launches),
        *((page["at"], f"tried again by {plain(str(page.get('by')))}") for page in audit.retries),
        *((page["at"], f"generation {page['number']}: {page['told']}") for page in audit.generations),
        *((page["at"], _checkpoint(page)) for page in audit.checkpoints),
        *((page["at"], _outcome(page)) for page in audit.outcomes),
    ]
    for at, text in sorted(told, key=lambda line: line[0]):
        console.print(Text(f"{stamp(at)}  {text}"), soft_wrap=True)
    if audit.safe:
        console.print(Text(f"its program has said that step {audit.safe:,} is safe"))
    if not audit.outcomes or len(audit.outcomes) <= len(audit.retries):
        console.print(Text("it has not ended", style="dim"))
    if audit.nodes:
        console.print(Text(), _nodes(audit), sep="")
    total = f"at least {audit.hours:,.2f} node hours, {_usd(audit.usd)}; disks, storage and traffic are not counted"
    console.print(Text(total), soft_wrap=True)


def stamp(at: float) -> str:
    """A time, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"


def _page(store: Store, entry: Entry) -> dict[str, Any]:
    """A page and when it was written; one that can't be read says so in its place, and hides no other."""
    try:
        values = json.loads(store.get(entry.key))
        told = values if isinstance(values, dict) else {"unreadable": entry.key}
    except ValueError:
        told = {"unreadable": entry.key}
    return {**told, "key": entry.key, "at": entry.modified}


def _safe(store: Store, card: str) -> int:
    """How far a node's card says that the run is safe; 0 for one that can't be read."""
    try:
        return Card.parse(store.get(card)).progress
    except (TypeError, KeyError, ValueError, AttributeError):
        return 0


def _node(page: Mapping[str, Any], entries: Mapping[str, Entry], rates: Mapping[str, Mapping[str, Any]]) -> Node:
    name = page["key"].removeprefix(layout.NODES).removesuffix(".json")
    since = _seconds(str(page.get("launched", "")), page["at"])
    beat = entries.get(layout.beat(name))
    until = max(page["at"], beat.modified if beat else 0.0)
    kind = str(page.get("type", "unknown"))
    prices = [tuple(pair) for pair in rates.get(kind, {}).values()]
    hours = max(0.0, until - since) / HOUR_S
    usd = (min(low for low, _ in prices) * hours, max(high for _, high in prices) * hours) if prices else None
    return Node(name, kind, str(page.get("zone", "")), since, until, usd)


def _seconds(launched: str, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(launched).timestamp()
    except ValueError:
        return otherwise


def _generation(page: dict[str, Any]) -> dict[str, Any]:
    """A generation's record, with what it was in words."""
    try:
        record = Generation.parse(json.dumps(page).encode())
    except (TypeError, KeyError):
        return page | {"number": "?", "told": "its record can't be read"}
    nodes = counted(len(record.members), "node")
    return page | {
        "told": f"{nodes}, {counted(record.world, 'worker')}, from step {record.step:,} ({plain(record.why)})"
    }


def _launch(page: Mapping[str, Any]) -> str:
    hashes = {name: page.get(f"{name}_sha256") for name in ("spec", "bundle", "code")}
    told = ", ".join(f"{name} {str(value)[:12]}" for name, value in hashes.items() if value)
    nodes = page.get("nodes", {})
    kinds = " or ".join(nodes.get("types", ["unknown"]))
    where = f"{kinds}, {nodes.get('capacity')}, image {nodes.get('image')}, in {page.get('region')}"
    return f"declared by {plain(str(page.get('by')))}: {where}; SHA-256 of {told}"


def _checkpoint(page: Mapping[str, Any]) -> str:
    kept = "kept" if page["kept"] else "retired"
    try:
        held = size(sum(part["size"] for part in page["parts"]))
        told = f"{held} of {counted(page['world'], 'worker')}, SHA-256 {plain(page['manifest_sha256'])}"
    except (KeyError, TypeError, ValueError, AttributeError):
        told = "its page can't be read"
    return f"checkpoint {plain(str(page.get('step')))}: {told}, {kept}"


def _ended(page: dict[str, Any]) -> dict[str, Any]:
    """An outcome's page, with when the run ended."""
    told = page.get("ended")
    return page | {"at": float(told)} if isinstance(told, int | float) else page


def _outcome(page: Mapping[str, Any]) -> str:
    how = "succeeded" if page.get("succeeded") else "failed"
    return f"{how}: {plain(str(page.get('reason')))}"


def _nodes(audit: Audit) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("node", "type", "zone", "from", "for", "USD"):
        justify: Literal["left", "right"] = "right" if heading in {"for", "USD"} else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading == "node")
    for node in audit.nodes:
        life = duration(node.hours * HOUR_S)
        table.add_row(node.node, node.type, node.zone, stamp(node.since), life, _usd(node.usd).removeprefix("USD "))
    return table


def _usd(amount: tuple[float, float] | None) -> str:
    if amount is None:
        return "USD unknown"
    low, high = (f"{value:,.2f}" for value in amount)
    return f"USD {low}" if low == high else f"USD {low}-{high}"
