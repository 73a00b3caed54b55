"""What is to be erased, and what a cloud has to be able to do for it. Pure, but for what the `Cloud` is asked.

A person's objects are found by their names or tags alone, never by their content: what belongs to one person lies in
objects of its own, in a folder `subject=<KEY>` (as partitions of a data lake are named) or tagged
`trainwright:subject=<KEY>`. KEY should be a pseudonym: names and tags of objects end up in logs and listings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Protocol

from cli.errors import Refused
from components.spec import NAME
from trainer import layout
from trainer.node.queue import ERASED

SEGMENT = "subject="
"""Begins the folder that holds what is of one person."""

TAG = "trainwright:subject"
"""The tag of an object that is of one person, whatever it is named."""

SUBJECT = r"[A-Za-z0-9][A-Za-z0-9._@+=:-]{0,127}"
"""What S3 takes in a tag's value, but no blank and no slash (S3 user guide, "Categorizing your objects using tags").

OSS takes no @ there, so that what is of such a one can only be found in its folder.
"""

DATASETS, RUNS = "datasets/", "runs/"


@dataclass(frozen=True)
class Scope:
    """What is to be erased: a run, a dataset, what is of one person, or the whole cluster by its key."""

    kind: Literal["run", "dataset", "subject", "cluster"]
    name: str

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Where in a bucket all of it lies, in order."""
        match self.kind:
            case "run":
                return (f"{layout.run_prefix(self.name)}/",)
            case "dataset":
                return (f"{layout.dataset_prefix(self.name)}/",)
            case "subject":
                return (DATASETS, RUNS)
        return ("",)

    def holds(self, key: str) -> bool:
        """Whether it holds the object by the object's name."""
        if self.kind == "subject":
            return key.startswith(self.prefixes) and f"{SEGMENT}{self.name}" in key.split("/")[2:]
        return key.startswith(self.prefixes)

    def asks_tags(self, key: str) -> bool:
        """Whether the object may belong to it by a tag.

        What agents agree through has a version a second and node, and nodes may set no tags: it isn't asked.
        """
        _, _, inside = key.removeprefix(RUNS).partition("/")
        heard = key.startswith(RUNS) and inside.startswith(layout.CONTROL)
        return self.kind == "subject" and key.startswith(self.prefixes) and not heard and not self.holds(key)

    def __str__(self) -> str:
        what = {"run": "run", "dataset": "dataset", "subject": "what is of subject", "cluster": "all of cluster"}
        return f"{what[self.kind]} {self.name}"


def scope(run: str, dataset: str, subject: str) -> Scope:
    """The one that is asked for. Raises `Refused` for none, for more than one, and for names that could mean more."""
    asked = {"run": run, "dataset": dataset, "subject": subject}
    given = {kind: name for kind, name in asked.items() if name}
    if len(given) != 1:
        raise Refused("say what to erase, one at a time: --run RUN, --dataset NAME, --subject KEY, or --crypto")
    ((kind, name),) = given.items()
    if kind == "subject":
        if not re.fullmatch(SUBJECT, name):
            raise Refused(
                "--subject: no such key can be an object's tag and folder. Give 1 to 128 letters, digits or . _ @ + = "
                ": -, the first a letter or digit"
            )
        return Scope("subject", name)
    if not re.fullmatch(NAME, name):
        raise Refused(f"--{kind}: '{name}' is no name of a {kind}: lower-case letters, digits and hyphens")
    return Scope("run" if kind == "run" else "dataset", name)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object, or a marker that says it was deleted, which has no ETag and no bytes."""

    key: str
    id: str
    etag: str = ""
    size: int = 0
    marker: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload in parts that was begun and not ended: its parts are kept until it is."""

    key: str
    id: str


@dataclass(frozen=True)
class Hold:
    """Why a version can't be deleted. `until`: when that ends, as ISO 8601 in UTC; empty where nobody knows."""

    why: str
    until: str = ""


@dataclass(frozen=True)
class Mirror:
    """A file system that shows a part of the bucket. `follows`: whether it takes away what the bucket loses.

    `state`: what its link with the bucket is.
    """

    id: str
    follows: bool
    state: str


@dataclass(frozen=True)
class Retired:
    """A key on its way out: it serves no more, and is gone after `after` (ISO 8601; empty where that is unknown)."""

    state: str
    after: str


class Cloud(Protocol):
    """What erasing asks of a cloud. Every call may raise `Refused`, in words."""

    def caller(self) -> str:
        """Who asks."""

    def replicas(self, bucket: str) -> list[str]:
        """Buckets that have copies of what is in the bucket: it is, or was, replicated to them."""

    def versions(self, bucket: str, prefix: str) -> Iterator[Version]:
        """All versions and markers below a prefix, in order of their keys (by their bytes)."""

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        """All uploads below a prefix that have not ended."""

    def tagged(self, bucket: str, versions: list[Version], tag: str, value: str) -> set[Version]:
        """Those of the versions that have the tag."""

    def reading(self, bucket: str, versions: list[Version], judge: Callable[[bytes], bool]) -> set[Version]:
        """Those of the versions, all of them small, whose content is judged so."""

    def delete(self, bucket: str, versions: list[Version]) -> dict[Version, str]:
        """Delete up to `BATCH` versions for good. Those that still stand, and why."""

    def abort(self, bucket: str, upload: Upload) -> str:
        """End an upload, its parts with it. Why it still stands; empty where it doesn't."""

    def hold(self, bucket: str, version: Version) -> Hold | None:
        """What keeps the version from being deleted, if a lock does."""

    def encrypted_otherwise(self, bucket: str, versions: list[Version], key: str) -> set[Version]:
        """Those of the versions that are encrypted with another key than this, or with none of KMS's."""

    def mirrors(self, cluster: str, bucket: str, prefix: str) -> list[Mirror]:
        """File systems of the cluster that show, or hold, what is below the prefix of its bucket."""

    def nodes(self, groups: Iterable[str]) -> frozenset[str]:
        """Instances of the groups that are there, those on their way out too."""

    def retired(self, key: str) -> Retired | None:
        """How far a key is on its way out, if it is."""

    def retire(self, key: str, days: int) -> Retired:
        """Have a key deleted after so many days."""

    def sign(self, key: str, message: bytes) -> bytes:
        """The signature of a short message by a key of the cloud's."""

    def public_key(self, key: str) -> bytes:
        """The public half of a key of the cloud's, as DER."""

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """Write a small object."""

    def url(self, bucket: str, key: str) -> str:
        """An object's address, as the cloud's tools write it."""

    def to_end(self, group: str) -> str:
        """The command that has a group's nodes end."""

    def to_restore(self, key: str) -> str:
        """The command that takes a key's deletion back."""


BATCH = 1000
"""Versions that are deleted by one call (S3 API, DeleteObjects; OSS API, DeleteMultipleObjects)."""

PLAIN = re.compile(r"[^\x00-\x1f\x7f\ufffe\uffff]+")
"""Keys that a list in XML can name (XML 1.0, "Characters"); others are deleted one by one."""

LARGEST_RECORD = 1 << 20
"""Bytes of a record in the queue that is read; a job takes some thousands."""


@dataclass
class Tally:
    """How much there is."""

    versions: int = 0
    markers: int = 0
    uploads: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.versions or self.markers or self.uploads)

    def add(self, version: Version) -> None:
        """Count a version."""
        self.markers += version.marker
        self.versions += not version.marker
        self.bytes += version.size


def line(bucket: str, version: Version) -> bytes:
    """A version in the list of what was erased: a JSON array of bucket, key, version id and ETag, and a line's end."""
    told = json.dumps([bucket, version.key, version.id, version.etag], ensure_ascii=False, separators=(",", ":"))
    return f"{told}\n".encode()


def found(cloud: Cloud, bucket: str, wanted: Scope) -> Iterator[list[Version]]:
    """All versions of one object after the other that the scope holds, each object's in order of their ids.

    An object that has the tag in one version is held whole: were the others left, an older one would come back. Of the
    queue, what names a run is held, and never an emptied record. Raises `Refused`.
    """
    if wanted.kind == "run":
        yield from _records(cloud, bucket, wanted.name)
    for prefix in wanted.prefixes:
        groups = groupby(cloud.versions(bucket, prefix), lambda version: version.key)
        for window in _windows(sorted(group, key=lambda version: version.id) for _, group in groups):
            asked = [v for versions in window if wanted.asks_tags(versions[0].key) for v in versions if not v.marker]
            tagged = cloud.tagged(bucket, asked, TAG, wanted.name) if asked else set()
            for versions in window:
                if wanted.holds(versions[0].key) or not tagged.isdisjoint(versions):
                    yield versions


def _records(cloud: Cloud, bucket: str, run: str) -> Iterator[list[Version]]:
    """The versions that name the run, of one record in the queue after the other."""
    groups = groupby(cloud.versions(bucket, layout.QUEUE), lambda version: version.key)
    records = (sorted(group, key=lambda version: version.id) for key, group in groups if layout.queue_number(key))
    for window in _windows(records):
        asked = [v for versions in window for v in versions if not v.marker and v.size > len(ERASED)]
        for version in asked:
            if version.size > LARGEST_RECORD:
                raise Refused(
                    f"bucket {bucket}: {version.key} is larger than any record of the queue, so that nobody can tell "
                    f"whose it is. Delete its version {version.id}, then try again"
                )
        naming = cloud.reading(bucket, asked, lambda content: _names(content, run))
        yield from filter(None, ([v for v in versions if v in naming] for versions in window))


def _names(record: bytes, run: str) -> bool:
    """Whether a record is the run's, even one that no node could take."""
    try:
        return bool(json.loads(record)["run"] == run)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _windows(objects: Iterable[list[Version]]) -> Iterator[list[list[Version]]]:
    """The objects in order, as many at a time as have `BATCH` versions."""
    window: list[list[Version]] = []
    count = 0
    for versions in objects:
        window.append(versions)
        count += len(versions)
        if count >= BATCH:
            yield window
            window, count = [], 0
    if window:
        yield window


def uploads(cloud: Cloud, bucket: str, wanted: Scope) -> Iterator[Upload]:
    """All unfinished uploads that the scope holds, by their names: they have no tags that could be read."""
    for prefix in wanted.prefixes:
        yield from (upload for upload in cloud.uploads(bucket, prefix) if wanted.holds(upload.key))


def batches(objects: Iterable[list[Version]]) -> Iterator[list[Version]]:
    """The versions in order, `BATCH` at a time."""
    batch: list[Version] = []
    for versions in objects:
        for version in versions:
            batch.append(version)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch
