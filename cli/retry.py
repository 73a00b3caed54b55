"""Another try for a run that has failed: its outcome is put aside, and its nodes start anew."""

from __future__ import annotations

import json
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from cli import aws
from cli.errors import Refused
from cli.words import counted
from cli.workspace import Workspace
from components.scaling import breaker_name
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.peers import Generation, Tally
from trainer.store import Missing, Store


def retry(stack: str, console: Console) -> None:
    """Have the stack's failed run go on from its newest checkpoint, on new nodes. Raises `Refused` for others.

    A fleet that its breaker has stopped launches again, whether the run has failed or not: others may wait in a queue.
    """
    workspace = Workspace(stack)
    run, store = workspace.run(workspace.own)
    who, group = aws.caller(), workspace.group()
    if group.stopped:
        _over(stack)
    told = []
    if not group.stopped or _failed(store):
        ended_at = pardon(run, store)
        page = json.dumps({"by": who, "ended": ended_at}).encode()
        store.put(layout.audit_retry(ended_at), page, if_absent=True)
        ended = aws.end_instances(group)
        told.append(f"Run {run} goes on: its failure is put aside, and {counted(ended, 'node')} will be replaced")
    if group.stopped:
        aws.resume(str(workspace.outputs["group"]), workspace.plan()[0].fleet.desired)
        told.append("The fleet launches nodes again")
    told.append(f"Follow it with `trainwright watch --stack {stack}`")
    console.print(Text(". ".join(told)), soft_wrap=True)


def _failed(store: Store) -> bool:
    """Whether the run has ended, and not well."""
    return store.exists(layout.OUTCOME) and not Outcome(**json.loads(store.get(layout.OUTCOME))).succeeded


def _over(stack: str) -> None:
    """Raises `Refused` while the fleet's breaker is on, which would stop it anew within a minute."""
    if on := aws.alarms(f"{breaker_name(stack)}-"):
        raise Refused(
            f"the fleet was stopped because too many of its nodes failed to boot, and would be again: alarm {on[0]} is "
            "on for an hour after they did. Mend what `trainwright status` shows, and try again once the alarm is over"
        )


def pardon(run: str, store: Store) -> float:
    """Let a failed run go on: its outcome becomes history, and its failures count no more. Raises `Refused`.

    Returns when it had ended, in seconds since 1970.
    """
    try:
        content = store.get(layout.OUTCOME)
    except Missing:
        raise Refused(f"run {run} has not ended; there is nothing to try again") from None
    outcome = Outcome(**json.loads(content))
    if outcome.succeeded:
        raise Refused(f"run {run} is done. Change the job (`job.name`, `job.seed`, …) to train anew")
    newest = max((entry.key for entry in store.list(layout.GENERATIONS)), default=None)
    if newest:
        record = Generation.parse(store.get(newest))
        store.put(newest, replace(record, tally=Tally()).json())
    store.put(layout.past_outcome(outcome.ended), content)
    store.delete(layout.OUTCOME)
    return outcome.ended
