"""A cluster's life from the command: up, watch, down."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from rich.console import Console

from cli import datasets, page, report
from cli import watch as watching
from cli.history import History
from cli.workspace import LOCAL, Workspace
from emulator import cloud
from trainer import layout

LONGEST_WATCH_S = 30 * 24 * 3600.0


def up(stack: str, console: Console) -> int:
    """Bring the cluster up, give a local one its data, and follow the run. Returns the exit code."""
    workspace = Workspace(stack)
    plan, warnings = workspace.plan()
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    with ThreadPoolExecutor(1) as pool:
        bundled = workspace.local and plan.spec.job.dataset == datasets.STANDARD_LIBRARY
        packing = pool.submit(datasets.pack_standard_library, workspace.home) if bundled else None
        workspace.create()
        workspace.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs")
        if packing:
            bucket = workspace.bucket()
            if not bucket.exists(f"{layout.dataset_prefix(datasets.STANDARD_LIBRARY)}/index.json"):
                datasets.upload(packing.result(), bucket, console)
    return watch(stack, console)


def watch(stack: str, console: Console) -> int:
    """Follow the stack's run to its end; print and write its report. Returns the exit code."""
    workspace = Workspace(stack)
    plan, _ = workspace.plan()
    outputs = workspace.outputs()
    store = workspace.open(str(outputs["bucket"]), layout.run_prefix(outputs["run"]))
    history = History(store, outputs["run"])
    facts = report.Facts(
        stack=stack,
        run=outputs["run"],
        where="the embedded cloud on this machine" if workspace.local else f"{plan.spec.cloud} {plan.spec.region}",
        checkpoints_url=store.url(layout.CHECKPOINTS),
        report_path=workspace.home / ("report.html" if stack == LOCAL else f"report-{stack}.html"),
        group_created=_group_created(str(outputs["group"])),
        job=plan.run.job,
    )
    outcome = watching.follow(history, console, facts, limit_s=LONGEST_WATCH_S)
    assert facts.report_path is not None
    facts.report_path.parent.mkdir(parents=True, exist_ok=True)
    facts.report_path.write_text(page.html(history, facts, now=time.time()), encoding="utf-8")
    console.print(report.terminal(history, facts))
    return 0 if outcome.succeeded else 1


def down(stack: str, console: Console) -> None:
    """Destroy the cluster; for a local stack, end the embedded cloud too, whatever became of it."""
    workspace = Workspace(stack)
    if not workspace.local:
        workspace.pulumi("destroy", "--yes")
        return
    try:
        if cloud.find(workspace.home):
            workspace.create()
            workspace.pulumi("destroy", "--yes", "--skip-preview")
    finally:
        cloud.stop(workspace.home)
        console.print("The embedded cloud has ended; nothing of it runs any more.")


def _group_created(name: str) -> float | None:
    """When the group was created, in Unix seconds."""
    groups = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return groups[0]["CreatedTime"].timestamp() if groups else None
