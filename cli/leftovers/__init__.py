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

NO_STATE = (
    "the stack has no state here: if it is up from elsewhere, that is in use. No commands are told, for that reason: "
    "look where its state is (`pulumi whoami --verbose` names the backend that was asked)"
)
"""Why nothing is told that removes: all that the cluster has is listed."""

NAMESAKES = (
    "A cluster of this name that another backend or project has the state of would be listed too: see that there is "
    "none before anything is removed."
)

UNSEEN = "Not looked for: roles and policies, which cost nothing, what takes no tags, and other regions."


@dataclass(frozen=True)
class Left:
    """One thing that is left. `remove`: the command that removes it; empty where none is known, or none is told.

    That is so where it is `kept` on purpose, being production's, and where there is no state (`Found.known`).
    """

    what: str
    id: str
    arn: str
    of: str
    billed: str
    kept: bool
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
    production = str(values.get("production", False)).lower() != "false"

    def told(one: Tagged) -> Left:
        kind = cloud.KINDS.get(one.kind, Kind(one.kind, ""))
        price = prices(one.type) if one.type else None
        billed = f"{one.type}, {price.high:,.2f} USD an hour on demand" if price else kind.billed
        kept = production and kind.kept
        remove = "" if kept or state is None else kind.command(one, account.region)
        return Left(kind.what, one.id, one.arn, one.of, billed, kept, remove)

    known = None if state is None else len(tagged) - len(left)
    return Found(stack, account.region, known, tuple(told(one) for one in _in_order(left, cloud.KINDS)))


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
    """The same for programs, with what they are to know before they remove anything."""
    return {**asdict(found), "caution": NAMESAKES if found.known is not None else f"{NO_STATE}. {NAMESAKES}"}


def show(found: Found, console: Console) -> None:
    """The same for a console, in the order in which it can be removed."""
    where = f"tagged {TAG}={found.stack} in {found.region}"
    count = counted(len(found.left), "thing") if found.left else "nothing"
    if found.known is None:
        told = f"{count} {where}; {NO_STATE}"
    elif found.left:
        told = f"{count} {where} isn't in the stack's state, which has {found.known:,} others"
    else:
        told = f"everything that is {where} is in the stack's state ({counted(found.known, 'thing')})"
    console.print(Text(told, style="bold"), soft_wrap=True)
    for one in found.left:
        said = [f"{one.what} {one.id}", one.billed, "kept on purpose" if one.kept else ""]
        console.print(Text("  ".join(filter(None, said))), soft_wrap=True)
        if not one.kept and found.known is not None:
            how = one.remove or f"remove it in the console: {one.arn}"
            console.print(Text(f"  {how}", style="dim"), soft_wrap=True)
    console.print(Text(NAMESAKES), soft_wrap=True)
    console.print(Text(UNSEEN, style="dim"), soft_wrap=True)


def _state(workspace: Workspace) -> frozenset[str] | None:
    """What the stack's state mentions; None where there is none, or one that nothing was ever done in.

    That is what `pulumi stack init` makes, and a preview in a fresh checkout: it tells as little. Raises `Refused`.
    """
    try:
        exported = workspace.pulumi("stack", "export", capture=True)
    except Refused as refused:
        if "no stack named" in str(refused):
            return None
        raise
    state = json.loads(exported)
    if not (state.get("deployment") or {}).get("resources"):
        done = workspace.pulumi("stack", "history", "--json", "--page", "1", "--page-size", "1", capture=True)
        if not json.loads(done):
            return None
    return mentioned(state)


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
