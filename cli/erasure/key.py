"""Erasing a whole cluster by its key: what is encrypted with a key that is gone can't be read by anybody."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cli.erasure.cluster import Cluster
from cli.erasure.scope import Cloud, Retired, Scope, batches, found
from cli.erasure.work import Place, Work, amount, in_words, writable
from cli.errors import Refused
from cli.words import counted


def erase_key(cluster: Cluster, cloud: Cloud, console: Console, out: Path) -> int:
    """Have the cluster's data key deleted, once its stack's name was typed, and certify that. Returns the exit code.

    Nothing but the typed name confirms it, on the embedded cloud too. Raises `Refused` before anything was done.
    """
    writable(out)
    work = Work(Scope("cluster", cluster.stack), cluster, cloud, console)
    work.refuse_nodes()
    work.begin()
    retired = cloud.retired(cluster.data_key)
    try:
        with console.status("seeing what is encrypted with the key"):
            _judge(work)
    except Refused as refused:
        if retired is None:
            raise
        work.unseen.append(f"what else is in the bucket, as the key was on its way out already: {refused}")
    if retired is None:
        retired = _retire(work)
    work.see_mirrors()
    work.late_nodes()
    gone = f"gone after {retired.after}" if retired.after else "gone once its replicas in other regions are"
    work.say(f"key {cluster.data_key}: {retired.state}, {gone}")
    work.outcome()
    buckets = [
        {"name": place.bucket, "role": place.role, "encrypted": amount(place.there), "otherwise": amount(place.left)}
        for place in work.places
    ]
    told = {"arn": cluster.data_key, "state": retired.state, "after": retired.after}
    well = work.certify(out, "partial" if work.remaining else "scheduled", buckets=buckets, key=told)
    return 0 if well and not work.remaining else 1


def _judge(work: Work) -> None:
    """Count what is encrypted with the data key, and tell of what is not. Raises `Refused`."""
    for place in work.places:
        try:
            _judge_in(work, place)
        except Refused as refused:
            if place.ours:
                raise
            place.unreachable = str(refused)
            work.remain(bucket=place.bucket, why=str(refused))


def _judge_in(work: Work, place: Place) -> None:
    for batch in batches(found(work.cloud, place.bucket, work.wanted)):
        content = [version for version in batch if not version.marker]
        others = work.cloud.encrypted_otherwise(place.bucket, content, work.cluster.data_key)
        for version in content:
            (place.left if version in others else place.there).add(version)
            if version in others:
                told = {"bucket": place.bucket, "key": version.key, "version": version.id}
                work.remain(**told, why="it is not encrypted with the key: delete it, as by --run or --dataset")


def _retire(work: Work) -> Retired:
    """Show what is lost, have the stack's name typed, and let go of the key. Raises `Refused`."""
    cluster = work.cluster
    work.say(f"{work.wanted}, by its key:", "bold")
    for place in work.places:
        work.say(f"  {place.role} bucket {place.bucket}: {place.unreachable or in_words(place.there)}")
        if place.left:
            work.say(f"    {counted(place.left.versions, 'version')} more, not encrypted with it", "yellow")
    if not cluster.evidence_key:
        work.say("  The stack has no key that signs (`audit.enabled`): the certificate will not be signed", "yellow")
    work.say(
        f"Key {cluster.data_key} serves no more at once and is gone in {cluster.window_days} days. All that it "
        "encrypts is lost with it: every run, dataset and checkpoint, disks, and the file system. Until then "
        f"`{work.cloud.to_restore(cluster.data_key)}` brings it back; after that nobody can.",
        "yellow",
    )
    work.ask(f"Type the stack's name, {cluster.stack}, to do so:", cluster.stack)
    return work.cloud.retire(cluster.data_key, cluster.window_days)
