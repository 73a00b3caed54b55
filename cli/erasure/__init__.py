"""Erasing for good what a cluster knows of a run, a dataset or a person, and a certificate of what was done.

Nothing is deleted before a summary was shown and agreed to. Names and tags decide what is deleted (`scope`), the cloud
does it (`aws`, `alicloud`), a new listing tells what is left, and a certificate says all of that (`certificate`). The
same command goes on where something couldn't be deleted. See docs/erasure.md.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from cli.erasure.cluster import Cluster
from cli.erasure.scope import Cloud, Scope, batches, found, line, uploads
from cli.erasure.work import MOST_TOLD, REMEMBERS, Place, Work, amount, in_words, writable
from cli.errors import Refused
from cli.words import counted
from trainer import layout
from trainer.node.queue import ERASED

LATE = "it came, or was not reached, after the list was made: erase again"


class Listing:
    """The list of what was erased, in order: its hash, and itself where a file is asked for."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[bytes] | None = path.open("xb") if path else None
        self._digest = hashlib.sha256()
        self._lines = 0
        self.broken = ""
        """Why the file isn't whole; the hash is."""

    def add(self, told: bytes) -> None:
        """One line more."""
        self._digest.update(told)
        self._lines += 1
        try:
            if self._file:
                self._file.write(told)
        except OSError as error:
            self._file, self.broken = None, str(error.strerror)

    def close(self) -> dict[str, Any]:
        """End it; what a certificate says of it."""
        try:
            if self._file:
                self._file.close()
        except OSError as error:
            self.broken = str(error.strerror)
        return {"sha256": self._digest.hexdigest(), "lines": self._lines}


def erase(
    wanted: Scope,
    cluster: Cluster,
    cloud: Cloud,
    console: Console,
    out: Path,
    *,
    sure: bool = False,
    listing: Path | None = None,
) -> int:
    """Erase all that the scope holds, and certify it. Returns the exit code: 1 where something remains.

    Asks first, unless `sure` or on the embedded cloud. Raises `Refused` before anything was erased, never after.
    """
    writable(out, listing)
    work = Work(wanted, cluster, cloud, console)
    if wanted.kind != "run" or work.of_the_stack:
        work.refuse_nodes()
    work.refuse_waiting()
    work.begin()
    with console.status("looking for it"):
        _survey(work)
    _summarize(work)
    there = any(place.there for place in work.places)
    if there and not (sure or cluster.local):
        work.ask("Erase all of it for good? [yes/no]", "yes", "y")
    if work.records:
        _empty(work)
    erased = Listing(listing)
    with console.status("erasing"):
        if there:
            _remove(work, erased)
        _look_again(work)
    if work.of_the_stack:
        work.kept.append("what the stack declares of the run, by which the next node begins it anew")
    work.see_mirrors()
    if wanted.kind != "run":
        work.unseen.append("what models learned of it: their checkpoints go with their runs, by --run")
    if cluster.audit_bucket:
        work.unseen.append(
            f"the audit record in {cluster.audit_bucket}: it names objects that calls of before were about, has "
            "nothing of their content, and is locked until its days are over"
        )
    for place in work.places:
        work.say(f"{place.role} bucket {place.bucket}: erased {in_words(place.erased)}; left {in_words(place.left)}")
    work.outcome()
    buckets = [
        {"name": place.bucket, "role": place.role, "erased": amount(place.erased), "left": amount(place.left)}
        for place in work.places
    ]
    told = erased.close()
    if erased.broken:
        work.warn(f"{listing}: the list isn't whole: {erased.broken}")
    well = work.certify(out, "partial" if work.remaining else "erased", buckets=buckets, list=told)
    return 0 if well and not work.remaining and not erased.broken else 1


def _survey(work: Work) -> None:
    """Count what there is, and see that no node is there that took part in it, or may know of it. Raises `Refused`."""
    live = work.cloud.nodes(work.cluster.groups)
    took_part: set[str] = set()
    for place in work.places:
        try:
            for versions in found(work.cloud, place.bucket, work.wanted):
                took_part |= live.intersection(re.split("[/.]", versions[0].key))
                if place.ours and layout.queue_number(versions[0].key):
                    work.records.append(versions[0].key)
                for version in versions:
                    place.there.add(version)
            place.there.uploads = sum(1 for _ in uploads(work.cloud, place.bucket, work.wanted))
        except Refused as refused:
            if place.ours:
                raise
            place.unreachable = str(refused)
    work.refuse_nodes(took_part)
    if work.records:
        work.refuse_nodes(why=REMEMBERS)


def _summarize(work: Work) -> None:
    work.say(f"{work.wanted}, of stack {work.cluster.stack}:", "bold")
    for place in work.places:
        work.say(f"  {place.role} bucket {place.bucket}: {place.unreachable or in_words(place.there)}")
    if not any(place.there for place in work.places):
        work.say("  Nothing of it is there: it was erased before, or is named otherwise", "yellow")
    if work.records:
        work.say(f"  {counted(len(work.records), 'place')} in the queue too: emptied first, so that no node takes it")
    if work.of_the_stack:
        removal = f"run `trainwright queue remove {work.wanted.name} --stack {work.cluster.stack}`"
        when, act = (", before all that waits", removal) if work.cluster.queue else ("", "give the stack another job")
        work.say(
            f"  It is the stack's own run: the next node begins it anew{when}. Then {act}, or take the cluster down, "
            "to keep it from that",
            "yellow",
        )
    if not work.cluster.evidence_key:
        work.say("  The stack has no key that signs (`audit.enabled`): the certificate will not be signed", "yellow")


def _empty(work: Work) -> None:
    """Have the run's places in the queue be nobody's turn. Raises `Refused`; nothing was erased then.

    It comes before the run's outcome goes, without which it waits. A node that comes after this reads the empty
    records, and one that came before is seen now. A place without an object would be given again, if the last.
    """
    for key in work.records:
        work.cloud.put(work.cluster.bucket, key, ERASED)
    work.refuse_nodes(why=REMEMBERS)
    shown = ", ".join(work.records[:5]) + (" and more" if len(work.records) > 5 else "")
    emptied = counted(len(work.records), "empty record")
    work.kept.append(f"{emptied} of the queue ({shown}), to keep the place: its number is not given again")


def _remove(work: Work, erased: Listing) -> None:
    """Delete what the scope holds, bucket after bucket; Ctrl-C ends that in order, after the call under way."""
    try:
        for place in work.places:
            if not place.unreachable:
                _remove_from(work, place, erased)
    except KeyboardInterrupt:
        work.warn("interrupted: what was not erased yet remains")


def _remove_from(work: Work, place: Place, erased: Listing) -> None:
    try:
        for upload in uploads(work.cloud, place.bucket, work.wanted):
            if why := work.cloud.abort(place.bucket, upload):
                place.fail(upload, why)
            else:
                place.erased.uploads += 1
        for batch in batches(found(work.cloud, place.bucket, work.wanted)):
            left = work.cloud.delete(place.bucket, batch)
            for version in batch:
                if version in left:
                    place.fail(version, left[version])
                else:
                    place.erased.add(version)
                    erased.add(line(place.bucket, version))
    except Refused as refused:
        work.warn(str(refused))


def _look_again(work: Work) -> None:
    """List anew, and tell of all that is there still."""
    for place in work.places:
        try:
            for versions in found(work.cloud, place.bucket, work.wanted):
                for version in versions:
                    place.left.add(version)
                    hold = work.cloud.hold(place.bucket, version) if work.remaining < MOST_TOLD else None
                    why = hold.why if hold else place.failed.get(version, LATE)
                    told = {"bucket": place.bucket, "key": version.key, "version": version.id}
                    work.remain(**told, why=why, until=hold.until if hold else "")
            for upload in uploads(work.cloud, place.bucket, work.wanted):
                place.left.uploads += 1
                told = {"bucket": place.bucket, "key": upload.key, "upload": upload.id}
                work.remain(**told, why=place.failed.get(upload, LATE))
        except Refused as refused:
            work.remain(bucket=place.bucket, why=str(refused))
    work.late_nodes()
