"""What bears a cluster's tag in its account though the stack's state doesn't know it. Nothing is removed here.

That happens where creation or destruction was cut short (skypilot#779, #4392), or where something is kept on purpose
(a production cluster's buckets and keys). What a known group launched is known: instances, their disks and interfaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.errors import Refused
from cli.leftovers.kinds import Kind, Tagged
from cli.words import counted
from cli.workspace import Workspace, stack_values
from components.catalog import Price, Rates, price

TAG = "trainwright:cluster"
"""The tag of all that a cluster declares, by its stack's name (`components/plan.py`)."""

UNSEEN = "Not looked for: roles and policies, which cost nothing, what takes no tags, and other regions."


@dataclass(frozen=True)
class Left:
    """One thing that is left. `remove`: the command that removes it; empty where none is known here."""

    what: str
    id: str
    arn: str
    of: str
    billed: str
    remove: str


@dataclass(frozen=True)
class Found:
    """What was looked for and found. `known`: how many things of the cluster its state knows; None without a state."""

    stack: str
    region: str
    known: int | None
    left: tuple[Left, ...]


def find(stack: str) -> Found:
    """Look through the stack's region. Raises `Refused`."""
    workspace = Workspace(stack)
    account = workspace.account
    values = stack_values(workspace.file)
    cloud = import_module(f"cli.leftovers.{workspace.cloud}")
    state = _state(workspace)
    tagged = cloud.tagged(account, TAG, stack, state or ())
    left = unknown(tagged, state or ())
    prices = _prices(workspace.cloud, account.region, values.get("prices"))
    told = (_left(one, cloud.KINDS, prices, account.region) for one in _in_order(left, cloud.KINDS))
    return Found(stack, account.region, None if state is None else len(tagged) - len(left), tuple(told))


def unknown(tagged: Sequence[Tagged], known: Iterable[str]) -> list[Tagged]:
    """Those of the tagged that are not known, nor belong to something that is, by way of others if need be."""
    names = {*known}
    rest = list(tagged)
    while found := [one for one in rest if names & {one.arn, one.id, one.of}]:
        names |= {name for one in found for name in (one.arn, one.id)}
        rest = [one for one in rest if one not in found]
    return rest


def mentioned(state: Mapping[str, Any]) -> frozenset[str]:
    """Every id, name and ARN that a stack's exported state has, in whatever place."""
    resources = (state.get("deployment") or {}).get("resources") or ()
    return frozenset(text for one in resources for text in _texts([one.get("id"), one.get("outputs")]) if text)


def as_json(found: Found) -> dict[str, Any]:
    """The same for programs."""
    return asdict(found)


def show(found: Found, console: Console) -> None:
    """The same for a console, in the order in which it can be removed."""
    where = f"tagged {TAG}={found.stack} in {found.region}"
    count = counted(len(found.left), "thing") if found.left else "nothing"
    if found.known is None:
        told = f"{count} {where}; the stack has no state here: if it is up from elsewhere, that is in use"
    else:
        told = f"{count} {where} is unknown to the stack's state, which knows {found.known:,} more"
    console.print(Text(told, style="bold"), soft_wrap=True)
    for one in found.left:
        console.print(Text.assemble(f"{one.what} {one.id}", (f"  {one.billed}" if one.billed else "")), soft_wrap=True)
        how = one.remove or f"remove it in the console: {one.arn}"
        console.print(Text(f"  {how}", style="dim"), soft_wrap=True)
    console.print(Text(UNSEEN, style="dim"), soft_wrap=True)


def _state(workspace: Workspace) -> frozenset[str] | None:
    """What the stack's state mentions; None where there is none. Raises `Refused`."""
    try:
        exported = workspace.pulumi("stack", "export", capture=True)
    except Refused as refused:
        if "no stack named" in str(refused):
            return None
        raise
    return mentioned(json.loads(exported))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _prices(cloud: str, region: str, own: Any) -> Any:
    """Finds the price of a type: by the stack's file, whatever else is wrong with it, or by the catalog."""
    try:
        rates = {name: Rates(**given) for name, given in (own or {}).items()}
    except (AttributeError, TypeError, ValueError):
        rates = {}

    def of(kind: str) -> Price | None:
        return price(cloud, kind, region, "on-demand", rates)

    return of


def _in_order(left: Sequence[Tagged], kinds: Mapping[str, Kind]) -> list[Tagged]:
    """As they can be removed, what is of no known kind first."""
    order = {name: number for number, name in enumerate(kinds)}
    return sorted(left, key=lambda one: (order.get(one.kind, -1), one.id))


def _left(one: Tagged, kinds: Mapping[str, Kind], prices: Any, region: str) -> Left:
    kind = kinds.get(one.kind, Kind(one.kind, ""))
    found = prices(one.type) if one.type else None
    billed = f"{one.type}, {found.high:,.2f} USD an hour on demand" if found else kind.billed
    return Left(kind.what, one.id, one.arn, one.of, billed, kind.command(one, region))
