"""Another try for a run that has failed: its outcome is put aside, and its nodes start anew."""

from __future__ import annotations

import json

from rich.console import Console
from rich.text import Text

from cli.account import Account
from cli.errors import Refused
from cli.words import counted, plain
from cli.workspace import Workspace
from components.scaling import breaker_name
from trainer import layout
from trainer.node.membership import Outcome
from trainer.store import Missing, Store, StoreError


def retry(stack: str, console: Console) -> None:
    """Have the stack's failed run go on from its newest checkpoint, on new nodes. Raises `Refused` for others.

    A fleet that may launch no nodes, or is to have none while a run waits for some, launches again, whether the run has
    failed or not: so a breaker leaves it, and others may wait in a queue. One at zero because nothing waits is left
    there. For that, its operators need not see the bucket, which their role doesn't.
    """
    workspace = Workspace(stack)
    account, group = workspace.account, workspace.group()
    who = account.caller()
    down = group.stopped or group.wanted == 0
    told = []
    try:
        run, store = workspace.run(workspace.own)
        failed = _failed(store)
        starts = group.stopped or (down and (failed or _waits(workspace)))
    except StoreError as error:
        if not down:
            raise
        failed, starts = False, True
        told.append(f"Whether its run has failed can't be seen ({plain(str(error))})")
    if starts:
        _over(stack, account)
    if failed or not starts:
        ended_at = pardon(run, store)
        page = json.dumps({"by": who, "ended": ended_at}).encode()
        store.put(layout.audit_retry(ended_at), page, if_absent=True)
        account.end_instances(str(workspace.outputs["group"]), group.instances)
        replaced = counted(len(group.instances), "node")
        told.append(f"Run {run} goes on: its failure is put aside, and {replaced} will be replaced")
    if starts:
        account.resume(str(workspace.outputs["group"]), workspace.plan()[0].fleet.desired)
        told.append("The fleet launches nodes again")
    told.append(f"Follow it with `trainwright watch --stack {stack}`")
    console.print(Text(". ".join(told)), soft_wrap=True)


def again(workspace: Workspace, run: str) -> str:
    """The command that gives a run another try once it has failed; empty where none does, as for an earlier one."""
    if run == workspace.own:
        return f"trainwright retry --stack {workspace.stack}"
    submitted = "queueUrl" in workspace.outputs and run in {place.turn.run for place in workspace.queue().places()}
    return f"trainwright queue retry {run} --stack {workspace.stack}" if submitted else ""


def _failed(store: Store) -> bool:
    """Whether the run has ended, and not well."""
    return store.exists(layout.OUTCOME) and not Outcome(**json.loads(store.get(layout.OUTCOME))).succeeded


def _waits(workspace: Workspace) -> bool:
    """Whether the run that the cluster is at has not ended."""
    return not workspace.run()[1].exists(layout.OUTCOME)


def _over(stack: str, account: Account) -> None:
    """Raises `Refused` while the fleet's breaker is on, which would stop it anew within a minute."""
    if on := account.alarms(f"{breaker_name(stack)}-"):
        raise Refused(
            f"the fleet was stopped because too many of its nodes failed to boot, and would be again: alarm {on[0]} is "
            "on for an hour after they did. Mend what `trainwright status` shows, and try again once the alarm is over"
        )


def pardon(run: str, store: Store) -> float:
    """Let a failed run go on: its outcome becomes history, and its failures count no more. Raises `Refused`.

    Returns when it had ended, in seconds since 1970.
    """
    ended = absolve(run, store)
    store.delete(layout.OUTCOME)
    return ended


def absolve(run: str, store: Store) -> float:
    """All of `pardon` but the outcome's end, until which nothing sees it. Raises `Refused`."""
    try:
        content = store.get(layout.OUTCOME)
    except Missing:
        raise Refused(f"run {run} has not ended; there is nothing to try again") from None
    outcome = Outcome(**json.loads(content))
    if outcome.succeeded:
        raise Refused(f"run {run} is done. Change the job (`job.name`, `job.seed`, …) to train anew")
    newest = max((layout.generation_number(entry.key) for entry in store.list(layout.GENERATIONS)), default=None)
    if newest:
        # Beside the record, which stays as it was written, and when.
        store.put(layout.pardon(newest), json.dumps({"ended": outcome.ended}).encode())
    store.put(layout.past_outcome(outcome.ended), content)
    return outcome.ended
