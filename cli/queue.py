"""The cluster's queue from the command: submit a job, see what waits, take it out again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli import datasets
from cli.account import Account
from cli.errors import Refused
from cli.retry import absolve
from cli.words import counted, plain
from cli.workspace import Workspace, stack_values
from components import record
from components.bundle import Bundle
from components.checks import judge
from components.findings import Finding, Invalid, nearest
from components.plan import Plan
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.queue import Crowded, Place, Queue, Turn, waiting
from trainer.store import Store

TONES = {"trains": "cyan", "done": "green", "failed": "red"}


@dataclass(frozen=True)
class Entry:
    """One run in the queue, as it is told: `state` is trains, next, waits, done or failed."""

    turn: Turn
    state: str
    outcome: Outcome | None


def submit(stack: str, console: Console, file: Path | None, settings: Sequence[str]) -> None:
    """Put a job at the end of the stack's queue. Raises `Refused` with all that is wrong with it.

    The job is the file's, or else the stack's own, with `settings` (KEY=VALUE, the key dotted, the value as in YAML).
    """
    workspace = Workspace(stack)
    url = _url(workspace)
    plan, warnings = _judged(workspace, job_of(workspace, file, settings), str(file or "the job"))
    run, bucket = plan.run.id, workspace.bucket()
    queue = workspace.queue()
    _fresh(run, queue)
    if plan.spec.job.dataset and not datasets.there(plan.spec.job.dataset, bucket):
        reason = f"there is no dataset '{plan.spec.job.dataset}' in the bucket, and its run will fail without"
        warnings.append(Finding("job.dataset", reason, f"Put it there: `trainwright data pack --stack {stack}`"))
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if plan.code:
        bucket.put(plan.code.key, plan.code.content, if_absent=True)
    turn = put_in(queue, run, plan.run.job, workspace.account.caller())
    _record(workspace, plan, turn.by)
    console.print(Text(f"{placed(turn, queue)} Follow it with `{_watch(stack, run)}`"), soft_wrap=True)
    signal(workspace.account, url, run, console)


def job_of(workspace: Workspace, file: Path | None, settings: Sequence[str]) -> Any:
    """The job's values. Raises `Refused` where they can't be read."""
    try:
        job = yaml.safe_load(file.read_text(encoding="utf-8")) if file else stack_values(workspace.file).get("job")
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refused(f"{file}: can't be read: {error}") from None
    for setting in settings:
        key, given, value = setting.partition("=")
        *parents, last = key.split(".")
        place = job
        for parent in parents:
            place = place.setdefault(parent, {}) if isinstance(place, dict) else None
        if not given or not isinstance(place, dict):
            raise Refused(f"--set {setting}: it is KEY=VALUE, with a key of `job`, such as steps=500 or model.layers=2")
        try:
            place[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            place[last] = value
    return job


def put_in(queue: Queue, run: str, job: Any, by: str) -> Turn:
    """Put a run at the queue's end. Raises `Refused` where it is there already."""
    try:
        turn = queue.add(run, job, by)
    except Crowded as error:
        raise Refused(f"{error}; try again") from None
    if turn is None:
        raise Refused(f"run {run} is in the queue already. A changed job (`job.name`, `job.seed`, …) is another run")
    return turn


def placed(turn: Turn, queue: Queue) -> str:
    """Where a run stands in line, as a sentence."""
    before = [other.run for other in waiting(queue.places())]
    count = before.index(turn.run) if turn.run in before else 0
    told = f"after {counted(count, 'other')}, of which the first is {before[0]}" if count else "and the next to train"
    return f"Run {turn.run} is number {turn.number} of the queue, {told}."


def signal(account: Account, url: str, run: str, console: Console) -> None:
    """Have the cluster's alarm see that a run waits. That it can't be said costs nothing while there are nodes."""
    try:
        account.send(url, run)
    except Refused as refused:
        told = f"warning: the run is in the queue, but a fleet at zero isn't told of it: {refused}"
        console.print(Text(told, style="yellow"), soft_wrap=True)


def listed(stack: str) -> list[Entry]:
    """The stack's queue. Raises `Refused` where it has none."""
    workspace = Workspace(stack)
    _url(workspace)
    return entries(workspace.queue())


def entries(queue: Queue) -> list[Entry]:
    """The whole queue, in order."""
    places = queue.places()
    current = next(iter(waiting(places)), None)
    return [Entry(place.turn, _state(place, current, queue.bucket), place.outcome) for place in places]


def as_json(found: Sequence[Entry]) -> list[dict[str, Any]]:
    """The queue for programs; number 0 is the stack's own run, times are in seconds since 1970."""
    return [
        {
            "number": entry.turn.number,
            "run": entry.turn.run,
            "state": entry.state,
            "submitted": entry.turn.submitted or None,
            "by": entry.turn.by or None,
            "outcome": asdict(entry.outcome) if entry.outcome else None,
        }
        for entry in found
    ]


def table(found: Sequence[Entry]) -> Table:
    """The queue for a console."""
    shown = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for name in ("number", "run", "state", "submitted", "by"):
        shown.add_column(name, no_wrap=name != "state", justify="right" if name == "number" else "left")
    for entry in found:
        turn = entry.turn
        failed = entry.outcome is not None and not entry.outcome.succeeded
        state = f"failed: {plain(entry.outcome.reason)}" if failed and entry.outcome else entry.state
        at = datetime.fromtimestamp(turn.submitted, UTC).strftime("%Y-%m-%d %H:%M UTC") if turn.submitted else ""
        by = plain(turn.by.rpartition("/")[2]) if turn.number else "the stack's own"
        number = str(turn.number) if turn.number else ""
        shown.add_row(number, turn.run, Text(state, style=TONES.get(entry.state, "")), at, by)
    return shown


def remove(stack: str, console: Console, run: str, *, sure: bool = False) -> None:
    """Take a run out of the queue: it ends as failed. Raises `Refused` for one that ended, or isn't there.

    One that trains is ended only where the user is `sure`; what it has saved stays.
    """
    workspace = Workspace(stack)
    _url(workspace)
    known = {entry.turn.run: entry for entry in entries(workspace.queue())}
    entry = known.get(run)
    if entry is None:
        raise Refused(f"there is no run '{run}' in the queue. {nearest(run, known)}")
    if entry.state == "trains" and not sure:
        raise Refused(f"run {run} trains now: `trainwright queue remove {run} --stack {stack} --yes` ends it")
    reason = f"taken out of the queue by {workspace.account.caller()}"
    outcome = Outcome(succeeded=False, reason=reason, ended=time.time())
    content = json.dumps(asdict(outcome)).encode()
    if entry.outcome or not workspace.run(run)[1].put(layout.OUTCOME, content, if_absent=True):
        raise Refused(f"run {run} has ended already")
    console.print(Text(f"Run {run} is out of the queue{': its nodes end it now' * (entry.state == 'trains')}."))


def again(stack: str, console: Console, run: str) -> None:
    """Put a submitted run that has failed at the queue's end again. Raises `Refused` for others.

    It goes there before its outcome is gone: at its old place, it could come before what trains now. All else comes
    first, so that who may not do it leaves the queue as it was.
    """
    workspace = Workspace(stack)
    url, queue = _url(workspace), workspace.queue()
    submitted = {place.turn.run: place for place in queue.places() if place.turn.number}
    if run not in submitted:
        raise Refused(f"there is no run '{run}' that was submitted. {nearest(run, submitted)}")
    outcome = submitted[run].outcome
    if outcome is None or outcome.succeeded:
        raise Refused(f"run {run} {'is done' if outcome else 'has not ended'}; there is nothing to try again")
    store = workspace.run(run)[1]
    ended = absolve(run, store)
    by = workspace.account.caller()
    store.put(layout.audit_retry(ended), json.dumps({"by": by, "ended": ended}).encode(), if_absent=True)
    turn = put_in(queue, run, submitted[run].turn.job, by)
    store.delete(layout.OUTCOME)
    console.print(Text(f"{placed(turn, queue)} Follow it with `{_watch(stack, run)}`"), soft_wrap=True)
    signal(workspace.account, url, run, console)


def _url(workspace: Workspace) -> str:
    """The URL of the stack's queue. Raises `Refused` where it has none."""
    if "queueUrl" not in workspace.outputs:
        raise Refused(
            f"stack '{workspace.stack}' has no queue. Set `scaling.queue` to true in its file, then run "
            f"`trainwright up --stack {workspace.stack}`"
        )
    return str(workspace.outputs["queueUrl"])


def _judged(workspace: Workspace, job: Any, name: str) -> tuple[Plan, list[Finding]]:
    """The stack's plan as it would be with that job, and the warnings about the job. Raises `Refused`."""
    try:
        plan, warnings = judge(workspace.stack, {**stack_values(workspace.file), "job": job})
    except Invalid as invalid:
        raise Refused(f"{name}, on stack '{workspace.stack}':", invalid.findings) from None
    return plan, [warning for warning in warnings if warning.path.split(".")[0] == "job"]


def _record(workspace: Workspace, plan: Plan, by: str) -> None:
    """Begin the run's audit record, as declaring a cluster does for its own; nodes stay as they were launched."""
    declared = workspace.run(workspace.declared)[1]
    pages = sorted(declared.list(layout.LAUNCHES), key=lambda entry: entry.modified)
    launched_with = json.loads(declared.get(pages[-1].key))["bundle_sha256"] if pages else ""
    launched = record.launch(plan, Bundle(Path(), launched_with))
    page = json.dumps({"by": by, **launched}, indent=1).encode()
    workspace.bucket().put(record.key(launched), page, if_absent=True)


def _fresh(run: str, queue: Queue) -> None:
    """See that a run has not ended before. Raises `Refused`."""
    if outcome := queue.outcome(run):
        how = "is done" if outcome.succeeded else f"has failed: {plain(outcome.reason)}"
        again = "" if outcome.succeeded else f"; `trainwright queue retry {run}` gives it another try"
        raise Refused(f"run {run} {how}. A changed job (`job.name`, `job.seed`, …) is another run{again}")


def _state(place: Place, current: Turn | None, bucket: Store) -> str:
    if place.outcome:
        return "done" if place.outcome.succeeded else "failed"
    if place.turn != current:
        return "waits"
    begun = bucket.list(f"{layout.run_prefix(place.turn.run)}/{layout.GENERATIONS}")
    return "trains" if begun else "next"


def _watch(stack: str, run: str) -> str:
    return f"trainwright watch --stack {stack} --run {run}"
