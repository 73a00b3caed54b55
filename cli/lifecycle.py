"""A cluster's life from the command: preview, up, watch, down."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from cli import datasets, page, report
from cli import preview as previewing
from cli import retry as retrying
from cli import watch as watching
from cli.errors import Interrupted, Refused
from cli.history import History
from cli.words import counted
from cli.workspace import LOCAL, Workspace
from components.clouds import CLOUDS
from components.plan import Plan
from emulator import cloud
from trainer import layout

LONGEST_WATCH_S = 30 * 24 * 3600.0


def preview(stack: str, console: Console, *, live: bool | None = None) -> None:
    """Show what `up` would change. An embedded cloud that ran for this alone ends with it.

    A stack of a real cloud is compared with the account where `live`, and planned without one where not; unless that
    is said, as credentials are there or not. Raises `Refused`.
    """
    workspace = Workspace(stack)
    if why := _offline(workspace, live):
        previewing.offline(workspace, console, why)
        return
    _reviewed(workspace, console)
    alone = workspace.local and cloud.find(workspace.home) is None
    try:
        workspace.create()
        workspace.pulumi("preview")
    finally:
        if alone:
            cloud.stop(workspace.home)


def up(stack: str, console: Console, *, sure: bool = False) -> int:
    """Bring the cluster up, give a local one its data, and follow the run. Returns the exit code.

    A real cloud is changed once the user has seen what would change and said yes; or at once, where he is `sure`.
    """
    workspace = Workspace(stack)
    plan = _reviewed(workspace, console)
    consent = _consent(workspace, sure, "changed", f"`trainwright preview --stack {stack} --live`")
    with ThreadPoolExecutor(1) as pool:
        bundled = workspace.local and plan.spec.job.dataset == datasets.STANDARD_LIBRARY
        packing = pool.submit(datasets.pack_standard_library, workspace.home) if bundled else None
        workspace.create()
        try:
            workspace.pulumi("up", *consent, "--suppress-outputs")
            if packing and not datasets.there(datasets.STANDARD_LIBRARY, workspace.bucket()):
                datasets.upload(packing.result(), workspace.bucket(), console)
            _unlike(workspace, console)
            return _follow(workspace, plan, console, workspace.own, anew=True)
        except Refused as refused:
            raise Refused(f"{refused}. {_left(workspace)}") from None


def watch(stack: str, console: Console, run: str = "") -> int:
    """Follow a run, by default the one that the cluster is at, to its end; print and write its report.

    Returns the exit code.
    """
    workspace = Workspace(stack)
    plan, _ = workspace.plan()
    return _follow(workspace, plan, console, run)


def down(stack: str, console: Console, *, sure: bool = False) -> None:
    """Destroy the cluster; for a local stack, end the embedded cloud too, whatever became of it but Ctrl-C.

    One that another stack is up on goes on.
    """
    workspace = Workspace(stack)
    _ = workspace.file  # a stack that has none is refused by its name, before anything is fetched or started
    by_hand = f'`pulumi destroy --preview-only --stack {stack}` (`eval "$(trainwright env --stack {stack})"` first)'
    consent = _consent(workspace, sure, "destroyed", by_hand)
    if not workspace.local:
        workspace.pulumi("destroy", *consent)
        return
    if pid := workspace.engine:
        raise Refused(
            f"Pulumi is at work on this stack (process {pid}). Wait for it, or end it with Ctrl-C where it runs"
        )
    try:
        if cloud.find(workspace.home):
            workspace.create()
            workspace.pulumi("destroy", *consent)
    except Interrupted:
        raise
    except BaseException:
        _end_cloud(workspace, console)
        raise
    _end_cloud(workspace, console)


def _offline(workspace: Workspace, live: bool | None) -> str:
    """Why the stack is to be previewed without an account; empty where it isn't. Raises `Refused`."""
    if live is not None or workspace.local:
        return "as --offline asks" if live is False else ""
    signed_in = workspace.account.signed_in()  # or a shell of the embedded cloud is refused, whatever it has
    return "" if signed_in else f"there are no {CLOUDS[workspace.cloud].title} credentials here"


def _reviewed(workspace: Workspace, console: Console) -> Plan:
    """The stack's plan, once its warnings are said. Raises `Refused` with all that is wrong."""
    plan, warnings = workspace.plan()
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    return plan


def _consent(workspace: Workspace, sure: bool, done: str, look: str) -> list[str]:
    """Pulumi's options: the embedded cloud is changed at once; what costs money, after a look and a yes.

    Raises `Refused` where there is no terminal to ask on, as in CI: before the stack is `done`, `look` shows it.
    """
    if workspace.local:
        return ["--yes", "--skip-preview"]
    if not sure and not _can_ask():
        raise Refused(
            f"there is no terminal here to ask on before '{workspace.stack}' is {done}. See what would be by {look}, "
            "then give --yes"
        )
    return ["--yes"] if sure else []


def _can_ask() -> bool:
    """Whether the engine can, which wants both (pulumi/pulumi, `cmdutil.InteractiveTerminal`)."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _unlike(workspace: Workspace, console: Console) -> None:
    """Say so where the file's job is one that a cluster with a queue was not given: its first run stays what it was."""
    if "queueUrl" not in workspace.outputs:
        return
    queue, declared = workspace.queue(), workspace.declared
    if declared not in {place.turn.run for place in queue.places()}:
        told = (
            f"The cluster's own run stays {queue.own.run}. The file's job is another, {declared}, which no node takes "
            f"until `trainwright submit --stack {workspace.stack}` puts it into the queue"
        )
        console.print(Text(told, style="yellow"), soft_wrap=True)


def _follow(workspace: Workspace, plan: Plan, console: Console, run: str, *, anew: bool = False) -> int:
    """Follow the run. `anew`: the user meant to start it, and hears if it had ended before."""
    stack = workspace.stack
    run, store = workspace.run(run)
    if anew and store.exists(layout.OUTCOME):
        again = " by `trainwright submit`" if "queueUrl" in workspace.outputs else ""
        told = (
            f"Run {run} ended before, and nothing trains now; its report follows. "
            f"A changed job (`job.name`, `job.seed`, …) trains anew{again}; one that failed goes on by "
            "`trainwright retry`."
        )
        console.print(Text(told, style="yellow"), soft_wrap=True)
    history = History(store, run)
    facts = report.Facts(
        stack=stack,
        run=run,
        where="the embedded cloud on this machine" if workspace.local else f"{plan.spec.cloud} {plan.spec.region}",
        checkpoints_url=store.url(layout.CHECKPOINTS),
        report_path=workspace.home / ("report.html" if stack == LOCAL else f"report-{stack}.html"),
        group_created=workspace.group().created if run == workspace.own else None,
        retry=retrying.again(workspace, run),
        job=workspace.job(run, plan),
    )
    outcome = watching.follow(history, console, facts, limit_s=LONGEST_WATCH_S, gone=workspace.gone)
    facts = _with_page(replace(facts, afterwards=_afterwards(workspace)), history, console)
    console.print(report.terminal(history, facts))
    return 0 if outcome.succeeded else 1


def _with_page(facts: report.Facts, history: History, console: Console) -> report.Facts:
    """Write the run's page. Where that can't be, say so: the outcome stands without it."""
    path = facts.report_path
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.html(history, facts, now=time.time()), encoding="utf-8")
    except OSError as error:
        told = f"warning: the report {path} can't be written: {error.strerror}. `trainwright watch` writes it again"
        console.print(Text(told, style="yellow"), soft_wrap=True)
        return replace(facts, report_path=None)
    return facts


def _afterwards(workspace: Workspace) -> str:
    """What goes on after the run has ended, and what ends that."""
    if workspace.local:
        return f"{workspace.ending} ends the cluster"
    try:
        count = len(workspace.group().instances)
    except Refused:
        return f"Its nodes may still run and be billed: {workspace.ending}"
    still = f"{counted(count, 'node')} still {'runs and is' if count == 1 else 'run and are'} billed"
    return f"{still}: {workspace.ending}"


def _left(workspace: Workspace) -> str:
    """What to do about a cluster whose `up` failed."""
    if workspace.local:
        return f"`{workspace.ending}` ends what is there; or mend it, and `up` goes on from here"
    return f"What is there stays, and is billed: `{workspace.ending}` ends it; or mend it, and `up` goes on from here"


def _end_cloud(workspace: Workspace, console: Console) -> None:
    if beside := workspace.beside:
        console.print(f"The embedded cloud goes on, as another stack is up on it: {', '.join(beside)}.")
        return
    cloud.stop(workspace.home)
    console.print("The embedded cloud has ended; nothing of it runs any more.")
