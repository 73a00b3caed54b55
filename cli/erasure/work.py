"""An erasure under way: its buckets, what remains, what nobody can see, and at its end the certificate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.erasure import certificate
from cli.erasure.cluster import Cluster
from cli.erasure.scope import DATASETS, Cloud, Scope, Tally, Upload, Version
from cli.errors import Refused
from cli.words import counted, size
from trainer.node.queue import waiting

MOST_BUCKETS = 16
"""That are followed, replicas of replicas among them."""

MOST_TOLD = 1000
"""Things that remain which a certificate names; it counts all."""

MOST_SHOWN = 20

COPIES = "may hold copies on disk and write more"
REMEMBERS = "may know it from the queue and would train it anew"


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class Place:
    """A bucket: what was there, what was erased, what is left, and why some of it wasn't erased."""

    bucket: str
    role: str
    there: Tally = field(default_factory=Tally)
    erased: Tally = field(default_factory=Tally)
    left: Tally = field(default_factory=Tally)
    failed: dict[Version | Upload, str] = field(default_factory=dict)
    unreachable: str = ""

    @property
    def ours(self) -> bool:
        """Whether it is the cluster's own, without which there is nothing to be done."""
        return self.role == "data"

    def fail(self, thing: Version | Upload, why: str) -> None:
        """Remember why something still stands; of the first few."""
        if len(self.failed) < MOST_TOLD:
            self.failed[thing] = why


@dataclass
class Work:
    """One erasure from its beginning to its certificate."""

    wanted: Scope
    cluster: Cluster
    cloud: Cloud
    console: Console
    began: str = field(default_factory=now)
    by: str = ""
    places: list[Place] = field(default_factory=list)
    remains: list[dict[str, str]] = field(default_factory=list)
    remaining: int = 0
    unseen: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    """Of the queue, in the cluster's bucket, that name the run."""
    kept: list[str] = field(default_factory=list)
    """What stays on purpose, in words."""

    @property
    def of_the_stack(self) -> bool:
        """Whether it is of the stack's own run, which its nodes have without anybody's submitting it."""
        return self.wanted.kind == "run" and self.wanted.name == self.cluster.run

    def say(self, text: str, style: str = "") -> None:
        """A line for the user."""
        self.console.print(Text(text, style=style), soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line about what didn't go well."""
        self.say(f"warning: {text}", "yellow")

    def ask(self, question: str, *answers: str) -> None:
        """Go on for one of the answers only. Raises `Refused`."""
        try:
            said = self.console.input(Text(f"{question} "))
        except EOFError:
            said = ""
        if said.strip() not in answers:
            raise Refused("that was not confirmed: nothing was erased")

    def begin(self) -> None:
        """See who asks, and find the cluster's bucket and all that it is replicated to. Raises `Refused`."""
        self.by = self.cloud.caller()
        ahead = [Place(self.cluster.bucket, "data")]
        known = {self.cluster.bucket}
        while ahead:
            place = ahead.pop(0)
            self.places.append(place)
            try:
                more = [name for name in self.cloud.replicas(place.bucket) if name not in known]
            except Refused as refused:
                if place.ours:
                    raise
                self.unseen.append(f"whether bucket {place.bucket} is replicated further: {refused}")
                continue
            known |= set(more)
            if len(known) > MOST_BUCKETS:
                raise Refused(f"bucket {self.cluster.bucket} is replicated to {MOST_BUCKETS} buckets or more")
            ahead += [Place(name, "replica") for name in more]

    def refuse_nodes(self, named: Iterable[str] | None = None, why: str = COPIES) -> None:
        """Raise `Refused` where a node is there that is in the way: any, or one of those `named`."""
        live = self.cloud.nodes(self.cluster.groups)
        holding = sorted(live if named is None else live & set(named))
        if not holding:
            return
        ending = "; ".join(self.cloud.to_end(group) for group in self.cluster.groups)
        shown = ", ".join(holding[:5]) + (" and more" if len(holding) > 5 else "")
        raise Refused(
            f"{counted(len(holding), 'node')} ({shown}) {why}; nothing was erased. "
            f"End them (`{ending}`), wait until they are gone, then try again; `trainwright up` brings them back"
        )

    def refuse_waiting(self) -> None:
        """Raise `Refused` where a run waits in the queue that needs the dataset."""
        if self.wanted.kind != "dataset" or self.cluster.queue is None:
            return
        needing = [
            turn.run for turn in waiting(self.cluster.queue.places()) if turn.job.get("dataset") == self.wanted.name
        ]
        if needing:
            run, stack = needing[0], self.cluster.stack
            more = f" (and {counted(len(needing) - 1, 'run')} more)" if needing[1:] else ""
            raise Refused(
                f"run {run}{more} waits in the queue and would fail for want of {self.wanted}; nothing was erased. Let "
                f"it end, or take it out (`trainwright queue remove {run} --stack {stack}`), then try again"
            )

    def late_nodes(self) -> None:
        """Tell of nodes that are there now, where none was when it began."""
        if self.wanted.kind == "run" and not self.of_the_stack:
            return
        try:
            for node in sorted(self.cloud.nodes(self.cluster.groups)):
                self.remain(node=node, why="it came meanwhile and may hold copies: end it, then erase again")
        except Refused as refused:
            self.remain(node="any", why=str(refused))

    def see_mirrors(self) -> None:
        """Tell of file systems that show the bucket's datasets."""
        if not self.cluster.warm or self.wanted.kind == "run":
            return
        try:
            mirrors = self.cloud.mirrors(self.cluster.stack, self.cluster.bucket, DATASETS)
        except Refused as refused:
            self.remain(fileSystem="any", why=str(refused))
            return
        for mirror in mirrors:
            if self.wanted.kind == "cluster":
                self.remain(fileSystem=mirror.id, why="it may serve what it holds until it is deleted: delete it")
            elif mirror.follows:
                self.unseen.append(
                    f"file system {mirror.id}: it takes away what the bucket loses some time later, which can't be "
                    "seen from here. Look on a node, or delete it: it has nothing of its own"
                )
            else:
                told = f"it doesn't take away what the bucket loses (its link is {mirror.state}): delete it"
                self.remain(fileSystem=mirror.id, why=told)

    def remain(self, **told: str) -> None:
        """Tell of something that is left."""
        self.remaining += 1
        if len(self.remains) < MOST_TOLD:
            self.remains.append({name: value for name, value in told.items() if value})

    def outcome(self) -> None:
        """Say what remains, and what nobody saw."""
        for told in self.remains[:MOST_SHOWN]:
            which = " ".join(f"{name} {value}" for name, value in told.items() if name not in {"why", "until"})
            until = f", until {told['until']}" if "until" in told else ""
            self.say(f"remains: {which}: {told['why']}{until}", "yellow")
        if self.remaining > MOST_SHOWN:
            self.say(f"remains: {self.remaining - MOST_SHOWN:,} more", "yellow")
        for what in self.kept:
            self.say(f"kept: {what}")
        for what in self.unseen:
            self.say(f"not seen: {what}")
        if self.remaining:
            self.say("Not all of it is gone: the same command goes on from here", "yellow")

    def certify(self, out: Path, state: certificate.State, **more: Any) -> bool:
        """Write the certificate to the file and to a bucket; whether all of that went well."""
        body = self._body(state, more)
        well, key = True, self.cluster.evidence_key
        try:
            signer = certificate.Signer(key, self.cloud.public_key(key)) if key else None
            content = certificate.issue(body, self.cloud, signer)
        except Refused as refused:
            content, well = certificate.issue(body, self.cloud, None), False
            self.warn(f"the certificate is not signed: {refused}")
        try:
            with out.open("xb") as file:
                file.write(content)
            self.say(f"certificate: {out}")
        except OSError as error:
            self.warn(f"the certificate can't be written to {out}: {error.strerror}")
            well = False
        return self._copy(content) and well

    def _copy(self, content: bytes) -> bool:
        bucket = self.cluster.audit_bucket or ("" if self.wanted.kind == "cluster" else self.cluster.bucket)
        if not bucket:
            self.say("No bucket has a copy that would outlive the key: keep the file where it lasts")
            return True
        name = f"{certificate.ERASURES}{re.sub('[-:]', '', now())}-{hashlib.sha256(content).hexdigest()[:12]}.json"
        try:
            self.cloud.put(bucket, name, content)
        except Refused as refused:
            self.warn(f"bucket {bucket} has no copy of the certificate: {refused}")
            return False
        self.say(f"its copy: {self.cloud.url(bucket, name)}{' (locked)' if self.cluster.audit_bucket else ''}")
        return True

    def _body(self, state: certificate.State, more: dict[str, Any]) -> dict[str, Any]:
        """The certificate's content."""
        return {
            "form": certificate.FORM,
            "began": self.began,
            "at": now(),
            "by": self.by,
            "stack": self.cluster.stack,
            "cloud": self.cluster.cloud,
            "region": self.cluster.region,
            "scope": certificate.named(self.wanted),
            "state": state,
            "remains": [self._nameless(told) for told in self.remains],
            "remaining": self.remaining,
            "kept": self.kept,
            "unseen": self.unseen,
            **more,
        }

    def _nameless(self, told: dict[str, str]) -> dict[str, str]:
        """What remains of a person, without the names of objects, which may say who it is: version ids say which."""
        if self.wanted.kind != "subject" or "key" not in told:
            return told
        rest = {name: value for name, value in told.items() if name != "key"}
        return rest | {"why": told["why"].replace(told["key"], "…")}


def amount(tally: Tally) -> dict[str, int]:
    """How much that is, as a certificate says it."""
    return asdict(tally)


def in_words(tally: Tally) -> str:
    """How much that is: `2 versions, 1 delete marker, 3.1 MB`."""
    parts = {"version": tally.versions, "delete marker": tally.markers, "unfinished upload": tally.uploads}
    told = ", ".join(counted(count, noun) for noun, count in parts.items() if count)
    return f"{told}, {size(tally.bytes)}" if told else "nothing"


def writable(*paths: Path | None) -> None:
    """See that files can be made, before anything is erased: none is written over. Raises `Refused`."""
    for path in filter(None, paths):
        if path.exists():
            raise Refused(f"{path}: there is such a file, and evidence is not written over. Name another")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            path.unlink()
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}. Nothing was erased") from None
