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
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.peers import Generation
from trainer.store import Missing, Store


def retry(stack: str, console: Console) -> None:
    """Have the stack's failed run go on from its newest checkpoint, on new nodes. Raises `Refused` for others."""
    workspace = Workspace(stack)
    run, store = workspace.run()
    pardon(run, store)
    ended = aws.end_instances(workspace.group())
    told = f"Run {run} goes on: its failure is put aside, and {counted(ended, 'node')} will be replaced. "
    console.print(Text(f"{told}Follow it with `trainwright watch --stack {stack}`"), soft_wrap=True)


def pardon(run: str, store: Store) -> None:
    """Let a failed run go on: its outcome becomes history, and its failures count no more. Raises `Refused`."""
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
        store.put(newest, replace(record, fruitless=0).json())
    store.put(layout.past_outcome(outcome.ended), content)
    store.delete(layout.OUTCOME)
