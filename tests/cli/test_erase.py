"""Erasing: nothing outside of what was asked for goes, what stays is said, and certificates hold or are found out."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from cli.erasure import certificate, erase
from cli.erasure.cluster import Cluster
from cli.erasure.key import erase_key
from cli.erasure.scope import BATCH, LARGEST_RECORD, TAG, Hold, Mirror, Retired, Scope, Upload, Version, found, scope
from cli.errors import Refused
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.queue import ERASED, Queue, Turn
from trainer.store import FileStore

KEY = "arn:aws:kms:us-west-2:123456789012:key/evidence"
DATA_KEY = "arn:aws:kms:us-west-2:123456789012:key/data"
CLUSTER = Cluster("prod", False, "us-west-2", "data", ("nodes",), "gpt-1", DATA_KEY, KEY, "audit")


@dataclass
class Fake:
    """A cloud in memory; see `scope.Cloud`."""

    stored: dict[str, list[Version]] = field(default_factory=lambda: {"data": []})
    tags: set[tuple[str, str]] = field(default_factory=set)
    """Version ids with a subject's key."""
    locked: dict[str, Hold] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    to: dict[str, list[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    begun: dict[str, list[Upload]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    links: list[Mirror] = field(default_factory=list)
    plain: set[str] = field(default_factory=set)
    leaving: Retired | None = None
    written: dict[tuple[str, str], bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    private: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    content: dict[str, bytes] = field(default_factory=dict)
    """Of versions, by their ids."""
    deaf: str = ""
    when_deleting: Callable[[], None] = lambda: None

    def add(self, key: str, *, id: str = "", marker: bool = False, bucket: str = "data", subject: str = "") -> Version:
        versions = self.stored.setdefault(bucket, [])
        made = Version(key, id or f"v{len(versions):04d}", "" if marker else f"e-{key}", 0 if marker else 10, marker)
        versions.append(made)
        if subject:
            self.tags.add((made.id, subject))
        return made

    def submit(self, number: int, run: str, *, bucket: str = "data", size: int = 10, content: bytes = b"") -> Version:
        made = replace(self.add(layout.queued(number), bucket=bucket), size=size)
        self.stored[bucket][-1] = made
        self.content[made.id] = content or Turn(run, {"dataset": "d"}, number, "arn:ada").json()
        return made

    def keys(self, bucket: str = "data") -> list[str]:
        return sorted(version.key for version in self.stored[bucket])

    def caller(self) -> str:
        return "arn:aws:iam::123456789012:user/ada"

    def replicas(self, bucket: str) -> list[str]:
        return self.to.get(bucket, [])

    def versions(self, bucket: str, prefix: str) -> Iterator[Version]:
        if bucket in self.closed:
            raise Refused(f"what bucket {bucket} holds can't be asked for")
        ordered = sorted(self.stored[bucket], key=lambda version: version.key.encode())
        yield from [version for version in ordered if version.key.startswith(prefix)]

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        yield from [upload for upload in self.begun.get(bucket, []) if upload.key.startswith(prefix)]

    def tagged(self, bucket: str, versions: list[Version], tag: str, value: str) -> set[Version]:
        assert tag == TAG
        return {version for version in versions if (version.id, value) in self.tags}

    def reading(self, bucket: str, versions: list[Version], judge: Callable[[bytes], bool]) -> set[Version]:
        return {version for version in versions if judge(self.content[version.id])}

    def delete(self, bucket: str, versions: list[Version]) -> dict[Version, str]:
        self.calls.append("delete")
        assert len(versions) <= BATCH
        self.when_deleting()
        left = {v: self.failing.get(v.id, "protected") for v in versions if v.id in self.failing | self.locked}
        gone = set(versions) - left.keys()
        self.stored[bucket] = [version for version in self.stored[bucket] if version not in gone]
        return left

    def abort(self, bucket: str, upload: Upload) -> str:
        if upload.id in self.failing:
            return self.failing[upload.id]
        self.begun[bucket].remove(upload)
        return ""

    def hold(self, bucket: str, version: Version) -> Hold | None:
        return self.locked.get(version.id)

    def encrypted_otherwise(self, bucket: str, versions: list[Version], key: str) -> set[Version]:
        assert key == DATA_KEY
        return {version for version in versions if version.id in self.plain}

    def mirrors(self, cluster: str, bucket: str, prefix: str) -> list[Mirror]:
        return self.links

    def nodes(self, groups: Iterable[str]) -> frozenset[str]:
        return frozenset(self.live)

    def retired(self, key: str) -> Retired | None:
        return self.leaving

    def retire(self, key: str, days: int) -> Retired:
        self.calls.append(f"retire {key} {days}")
        self.leaving = Retired("PendingDeletion", "2027-01-01T00:00:00Z")
        return self.leaving

    def sign(self, key: str, message: bytes) -> bytes:
        if self.deaf:
            raise Refused(self.deaf)
        assert len(message) <= 4096
        return bytes(self.private.sign(message, ec.ECDSA(hashes.SHA256())))

    def public_key(self, key: str) -> bytes:
        if self.deaf:
            raise Refused(self.deaf)
        public = self.private.public_key()
        return bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def url(self, bucket: str, key: str) -> str:
        return f"s3://{bucket}/{key}"

    def to_end(self, group: str) -> str:
        return f"aws autoscaling set-desired-capacity --auto-scaling-group-name {group} --desired-capacity 0"

    def to_restore(self, key: str) -> str:
        return f"aws kms cancel-key-deletion --key-id {key}"

    def put(self, bucket: str, key: str, body: bytes) -> None:
        self.written[bucket, key] = body
        if key.startswith(layout.QUEUE):
            self.calls.append(f"put {key}")
            versions = self.stored[bucket]
            versions.append(Version(key, f"v{len(versions):04d}-emptied", "e", len(body)))
            self.content[versions[-1].id] = body


@pytest.fixture
def cloud() -> Fake:
    return Fake()


class Session:
    """Runs erasures and keeps what was said. `answers` are what is typed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.answers, self.count = folder, list[str](), 0
        self.console = Console(file=io.StringIO(), width=200)
        monkeypatch.setattr("builtins.input", self._answer)

    def _answer(self, _: object = "") -> str:
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    def _out(self) -> Path:
        self.count += 1
        return self.folder / f"{self.count}.json"

    def erase(self, wanted: Scope, cloud: Any, cluster: Cluster = CLUSTER, *, sure: bool = True, **more: Any) -> int:
        return erase(wanted, cluster, cloud, self.console, self._out(), sure=sure, **more)

    def erase_key(self, cloud: Any, cluster: Cluster = CLUSTER) -> int:
        return erase_key(cluster, cloud, self.console, self._out())

    @property
    def file(self) -> Path:
        return self.folder / f"{self.count}.json"

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.file.read_text())["certificate"]
        return body

    @property
    def said(self) -> str:
        return self.console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    return Session(tmp_path, monkeypatch)


# what is erased, and what isn't

NAMES = st.sampled_from(["a", "a-1", "a-10", "gpt-1", "b"])
FOLDERS = st.sampled_from(["", "subject=k", "subject=kk", "xsubject=k", "checkpoints", "control", "subject=k.bin"])
KEYS = st.builds(
    lambda top, name, folders, file: "/".join([*filter(None, [top, name, *folders]), file]),
    st.sampled_from(["runs", "datasets", "bundles", "data", "erasures", "runs-old", "", "xruns", "subject=k"]),
    NAMES,
    st.lists(FOLDERS, max_size=3),
    st.sampled_from(["x", "index.json", "subject=k", "datasets", "runs", "é.bin"]),
)
SCOPES = st.one_of(
    st.builds(Scope, st.sampled_from(["run", "dataset"]), NAMES), st.just(Scope("subject", "k"))
)  # fmt: skip


def _asked_for(wanted: Scope, key: str, tagged_keys: set[str]) -> bool:
    """What the documentation promises, said otherwise than the code does it."""
    parts = key.split("/")
    if wanted.kind == "run":
        return len(parts) > 2 and parts[:2] == ["runs", wanted.name]
    if wanted.kind == "dataset":
        return len(parts) > 2 and parts[:2] == ["datasets", wanted.name]
    within = len(parts) > 1 and parts[0] in {"runs", "datasets"}
    heard = parts[0] == "runs" and parts[2:3] == ["control"] and len(parts) > 3
    return within and (f"subject={wanted.name}" in parts[2:] or (key in tagged_keys and not heard))


@settings(max_examples=100, deadline=None)
@given(
    keys=st.lists(st.tuples(KEYS, st.booleans(), st.sampled_from(["", "", "k", "kk"])), max_size=25),
    wanted=SCOPES,
)
def test_nothing_outside_of_what_was_asked_for_is_ever_deleted_and_nothing_inside_stays(
    keys: list[tuple[str, bool, str]], wanted: Scope, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cloud = Fake()
    for key, marker, subject in keys:
        cloud.add(key, marker=marker, subject="" if marker else subject)
    before = list(cloud.stored["data"])
    tagged = {version.key for version in before if (version.id, "k") in cloud.tags}
    console = Console(file=io.StringIO())
    out = tmp_path_factory.mktemp("out") / "c.json"
    assert erase(wanted, CLUSTER, cloud, console, out, sure=True) == 0
    assert cloud.stored["data"] == [v for v in before if not _asked_for(wanted, v.key, tagged)]
    body = json.loads(out.read_text())["certificate"]
    erased = [v for v in before if _asked_for(wanted, v.key, tagged)]
    (bucket,) = body["buckets"]
    assert bucket["erased"]["versions"] + bucket["erased"]["markers"] == len(erased) == body["list"]["lines"]
    assert bucket["erased"]["bytes"] == sum(version.size for version in erased)
    lines = [
        json.dumps(["data", v.key, v.id, v.etag], ensure_ascii=False, separators=(",", ":")) + "\n"
        for v in sorted(erased, key=lambda v: (v.key.encode(), v.id))
    ]
    assert body["list"]["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_more_than_one_call_takes_is_erased_whole(cloud: Fake, session: Session) -> None:
    for number in range(2 * BATCH + 1):
        cloud.add(f"runs/gpt-1/control/members/i-{number % 3}/beat")
    cloud.add("runs/gpt-10/x")
    assert session.erase(Scope("run", "gpt-1"), cloud) == 0
    assert cloud.keys() == ["runs/gpt-10/x"]
    assert cloud.calls == ["delete"] * 3


def test_an_object_of_a_person_goes_with_its_older_versions_or_one_of_them_would_come_back(cloud: Fake) -> None:
    versions = [
        cloud.add("datasets/d/x"),
        cloud.add("datasets/d/x", subject="k"),
        cloud.add("datasets/d/x", marker=True),
    ]
    cloud.add("datasets/d/y")
    assert list(found(cloud, "data", Scope("subject", "k"))) == [versions]


def test_what_nodes_beat_through_every_second_is_not_asked_for_its_tags(cloud: Fake) -> None:
    asked: list[str] = []

    def ask(bucket: str, versions: list[Version], tag: str, value: str) -> set[Version]:
        asked.extend(version.key for version in versions)
        return set()

    keys = ["datasets/control/x", "datasets/d/control/x", "runs/r/control.txt", "runs/r/x/control/y"]
    for key in ("runs/r/control/members/i-1/beat", "runs/r/samples/subject=k/x", *keys):
        cloud.add(key)
    cloud.tagged = ask  # type: ignore[method-assign]
    assert [versions[0].key for versions in found(cloud, "data", Scope("subject", "k"))] == [
        "runs/r/samples/subject=k/x"
    ]
    assert asked == keys


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("", "", ""), "say what to erase"),
        (("a", "b", ""), "one at a time"),
        (("a/", "", ""), "--run"),
        (("../a", "", ""), "--run"),
        (("a\n", "", ""), "--run"),
        (("", "*", ""), "--dataset"),
        (("", "", "a/b"), "--subject"),
        (("", "", " "), "--subject"),
        (("", "", "k\n"), "--subject"),
    ],
)
def test_a_name_that_could_mean_more_is_refused(asked: tuple[str, str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        scope(*asked)


# before anything is deleted


def test_nothing_is_deleted_before_the_summary_was_agreed_to(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    for answers in (["no"], [""], []):
        session.answers = answers
        with pytest.raises(Refused, match="nothing was erased"):
            session.erase(Scope("run", "gpt-1"), cloud, sure=False)
    assert "data bucket data: 1 version, 10 B" in session.said
    assert not cloud.calls
    assert not session.file.exists()
    session.answers = ["yes"]
    assert session.erase(Scope("run", "gpt-1"), cloud, sure=False) == 0
    assert cloud.keys() == []


def test_the_embedded_cloud_is_not_asked_about(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    assert session.erase(Scope("run", "gpt-1"), cloud, replace(CLUSTER, local=True), sure=False) == 0
    assert cloud.keys() == []


@pytest.mark.parametrize("wanted", [Scope("run", "gpt-1"), Scope("dataset", "d"), Scope("subject", "k")])
def test_nodes_that_may_hold_copies_are_in_the_way_of_it_even_of_who_is_sure(
    cloud: Fake, session: Session, wanted: Scope
) -> None:
    cloud.add("runs/gpt-1/x")
    cloud.add("datasets/d/subject=k/x")
    cloud.live = {"i-0a"}
    with pytest.raises(Refused, match=r"1 node \(i-0a\) may hold copies.*set-desired-capacity.*nodes"):
        session.erase(wanted, cloud)
    with pytest.raises(Refused, match="may hold copies"):
        session.erase_key(cloud)
    assert not cloud.calls


def test_a_run_of_before_goes_while_nodes_train_another_unless_they_took_part_in_it(
    cloud: Fake, session: Session
) -> None:
    cloud.add("runs/old-1/control/members/i-0b/card.json")
    cloud.live = {"i-0a"}
    assert session.erase(Scope("run", "old-1"), cloud) == 0
    cloud.add("runs/old-1/boot/i-0a.json")
    with pytest.raises(Refused, match="i-0a"):
        session.erase(Scope("run", "old-1"), cloud)


def test_evidence_is_never_written_over_and_its_place_is_seen_to_first(
    cloud: Fake, session: Session, tmp_path: Path
) -> None:
    cloud.add("runs/gpt-1/x")
    there = tmp_path / "there.json"
    there.write_text("older")
    for out in (there, there / "below.json"):
        with pytest.raises(Refused):
            erase(Scope("run", "gpt-1"), CLUSTER, cloud, session.console, out, sure=True)
    assert (there.read_text(), cloud.calls) == ("older", [])


# the queue


def test_a_run_that_was_submitted_is_nobodys_turn_before_its_outcome_goes(cloud: Fake, session: Session) -> None:
    """Without its outcome it would be the next to train, by its old and low number."""
    cloud.add("runs/old-1/control/outcome.json")
    records = [cloud.submit(1, "old-1"), cloud.submit(3, "old-1", bucket="copy")]
    others = [cloud.submit(2, "old-10"), cloud.submit(4, "", content=b"no JSON"), cloud.submit(5, "", content=b"[]")]
    cloud.submit(6, "old-1", content=b'{"run": "old-1"}')
    cloud.add("queue/old-1.json")
    cloud.to = {"data": ["copy"]}
    assert session.erase(Scope("run", "old-1"), cloud) == 0
    assert cloud.calls[:3] == ["put queue/000001.json", "put queue/000006.json", "delete"]
    assert [cloud.written["data", key] for key in ("queue/000001.json", "queue/000006.json")] == [ERASED] * 2
    assert {*others} <= {*cloud.stored["data"]}
    assert not {*records} & {*cloud.stored["data"], *cloud.stored["copy"]}
    assert cloud.keys().count("queue/old-1.json") == 1
    assert [place["erased"]["versions"] for place in session.body["buckets"]] == [3, 1]
    assert session.body["kept"] == [
        "2 empty records of the queue (queue/000001.json, queue/000006.json), to keep the place: its number is not "
        "given again"
    ]
    certificate.verify(session.file, session.console)
    assert session.said.count("kept: 2 empty records") == 2


def test_no_node_that_may_remember_a_submitted_run_is_there_when_it_goes(cloud: Fake, session: Session) -> None:
    """Nodes keep what they read of the queue: an empty record would be news to none of them."""
    cloud.add("runs/old-1/x")
    cloud.submit(1, "old-1")
    cloud.live = {"i-0a"}
    with pytest.raises(Refused, match=r"i-0a.*may know it from the queue and would train it anew; nothing was erased"):
        session.erase(Scope("run", "old-1"), cloud)
    assert not cloud.calls
    cloud.live = set()
    session.answers = ["yes"]
    put = cloud.put

    def come(*call: Any) -> None:
        put(*call)
        cloud.live.add("i-0b")

    cloud.put = come  # type: ignore[method-assign]
    with pytest.raises(Refused, match="i-0b"):
        session.erase(Scope("run", "old-1"), cloud, sure=False, listing=session.folder / "list")
    assert "delete" not in cloud.calls
    assert not (session.folder / "list").exists()
    cloud.put, cloud.live = put, set()  # type: ignore[method-assign]
    assert session.erase(Scope("run", "old-1"), cloud, listing=session.folder / "list") == 0
    assert {*cloud.keys()} == {"queue/000001.json"}


def test_a_record_that_can_not_be_deleted_remains_and_is_found_again(cloud: Fake, session: Session) -> None:
    """It is nobody's turn by then, and only its older versions name the run."""
    record = cloud.submit(1, "old-1")
    cloud.failing = {record.id: "InternalError"}
    assert session.erase(Scope("run", "old-1"), cloud) == 1
    assert session.body["remains"] == [
        {"bucket": "data", "key": record.key, "version": record.id, "why": "InternalError"}
    ]
    cloud.failing = {}
    assert session.erase(Scope("run", "old-1"), cloud) == 0
    assert record not in cloud.stored["data"]


def test_a_record_too_large_to_be_read_is_in_the_way_and_not_passed_over(cloud: Fake, session: Session) -> None:
    cloud.add("runs/old-1/x")
    cloud.submit(1, "old-1", size=LARGEST_RECORD + 1)
    with pytest.raises(Refused, match=r"queue/000001\.json is larger"):
        session.erase(Scope("run", "old-1"), cloud)
    assert not cloud.calls


def test_it_is_said_before_that_the_stacks_own_run_begins_anew(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    with pytest.raises(Refused, match="not confirmed"):
        session.erase(Scope("run", "gpt-1"), cloud, sure=False)
    assert "the next node begins it anew. Then give the stack another job" in session.said
    queue = Queue(FileStore(session.folder / "bucket"), Turn("gpt-1", {}))
    assert session.erase(Scope("run", "gpt-1"), cloud, replace(CLUSTER, queue=queue)) == 0
    assert "anew, before all that waits. Then run `trainwright queue remove gpt-1 --stack prod`" in session.said
    assert session.body["kept"] == ["what the stack declares of the run, by which the next node begins it anew"]
    told = len(session.said)
    session.erase(Scope("run", "old-1"), cloud)
    assert "begins it anew" not in session.said[told:]


def test_a_dataset_stays_while_a_submitted_run_waits_for_it(cloud: Fake, session: Session) -> None:
    cloud.add("datasets/d/x")
    store = FileStore(session.folder / "bucket")
    cluster = replace(CLUSTER, queue=Queue(store, Turn("gpt-1", {})))
    for number, (run, dataset) in enumerate((("a", "d"), ("b", "e"), ("c", "d")), 1):
        store.put(layout.queued(number), Turn(run, {"dataset": dataset}, number).json())
    for run, named in (("a", r"run a \(and 1 run more\)"), ("c", "run c")):
        with pytest.raises(
            Refused, match=rf"^{named} waits.*nothing was erased.*`trainwright queue remove {run} --stack prod`"
        ):
            session.erase(Scope("dataset", "d"), cloud, cluster)
        ended = json.dumps(asdict(Outcome(succeeded=True, reason="", ended=1.0))).encode()
        store.put(f"{layout.run_prefix(run)}/{layout.OUTCOME}", ended)
    assert not cloud.calls
    assert session.erase(Scope("dataset", "d"), cloud, cluster) == 0
    assert cloud.keys() == []


# what remains


def test_what_is_locked_remains_and_is_said_with_until_when(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/a")
    locked = cloud.add("runs/gpt-1/b")
    held = cloud.add("runs/gpt-1/c")
    cloud.locked = {locked.id: Hold("locked (compliance)", "2027-01-01T00:00:00Z"), held.id: Hold("a legal hold")}
    assert session.erase(Scope("run", "gpt-1"), cloud) == 1
    assert session.body["state"] == "partial"
    assert session.body["remains"] == [
        {"bucket": "data", "key": "runs/gpt-1/b", "version": locked.id, "why": "locked (compliance)",
         "until": "2027-01-01T00:00:00Z"},
        {"bucket": "data", "key": "runs/gpt-1/c", "version": held.id, "why": "a legal hold"},
    ]  # fmt: skip
    assert "runs/gpt-1/b version v0001: locked (compliance), until 2027-01-01T00:00:00Z" in session.said
    certificate.verify(session.file, session.console)


def test_run_again_it_finishes_and_once_more_it_finds_nothing(cloud: Fake, session: Session) -> None:
    for key in "abc":
        cloud.add(f"runs/gpt-1/{key}")
    cloud.begun["data"] = [Upload("runs/gpt-1/d", "u1")]
    cloud.failing = {"v0001": "InternalError", "u1": "SlowDown"}
    assert session.erase(Scope("run", "gpt-1"), cloud) == 1
    assert {told["why"] for told in session.body["remains"]} == {"InternalError", "SlowDown"}
    cloud.failing = {}
    for versions in (1, 0):
        assert session.erase(Scope("run", "gpt-1"), cloud) == 0
        (bucket,) = session.body["buckets"]
        assert (session.body["state"], bucket["erased"]["versions"], bucket["erased"]["uploads"]) == (
            "erased",
            versions,
            versions,
        )
    assert "Nothing of it is there" in session.said


def test_what_comes_while_it_goes_remains_and_so_does_a_node(cloud: Fake, session: Session) -> None:
    def come() -> None:
        cloud.stored["data"].append(Version("runs/gpt-1/late", "late", "e", 1))
        cloud.live.add("i-0c")

    cloud.add("runs/gpt-1/x")
    cloud.when_deleting = come
    assert session.erase(Scope("run", "gpt-1"), cloud) == 1
    assert [told.get("version") or told.get("node") for told in session.body["remains"]] == ["late", "i-0c"]


def test_ctrl_c_ends_it_in_order_with_a_certificate_of_what_was_done(cloud: Fake, session: Session) -> None:
    def interrupt() -> None:
        if len(cloud.calls) > 1:
            raise KeyboardInterrupt

    for number in range(BATCH + 5):
        cloud.add(f"runs/gpt-1/{number:05d}")
    cloud.when_deleting = interrupt
    assert session.erase(Scope("run", "gpt-1"), cloud) == 1
    (bucket,) = session.body["buckets"]
    assert (bucket["erased"]["versions"], bucket["left"]["versions"], session.body["remaining"]) == (BATCH, 5, 5)


def test_replicas_of_replicas_are_erased_too_and_those_that_cant_be_remain(cloud: Fake, session: Session) -> None:
    cloud.to = {"data": ["one", "two"], "one": ["three", "data"]}
    for bucket in ("data", "one", "two", "three"):
        cloud.add("datasets/d/x", bucket=bucket)
        cloud.add("datasets/e/x", bucket=bucket)
    cloud.closed = {"two"}
    assert session.erase(Scope("dataset", "d"), cloud) == 1
    assert [cloud.keys(bucket) for bucket in ("data", "one", "three")] == [["datasets/e/x"]] * 3
    assert [told["bucket"] for told in session.body["remains"]] == ["two"]
    assert [place["name"] for place in session.body["buckets"]] == ["data", "one", "two", "three"]


def test_a_file_system_that_follows_is_not_seen_and_one_that_does_not_remains(cloud: Fake, session: Session) -> None:
    cluster = replace(CLUSTER, warm=True)
    cloud.add("datasets/d/x")
    cloud.links = [Mirror("fs-1", True, "AVAILABLE")]
    assert session.erase(Scope("dataset", "d"), cloud, cluster) == 0
    assert any("fs-1" in unseen for unseen in session.body["unseen"])
    cloud.links = [Mirror("fs-1", False, "MISCONFIGURED")]
    assert session.erase(Scope("dataset", "d"), cloud, cluster) == 1
    assert session.body["remains"][0]["fileSystem"] == "fs-1"
    assert session.erase(Scope("run", "gpt-1"), cloud, cluster) == 0


# the key


def test_the_key_goes_for_the_stacks_name_alone_however_sure_somebody_is(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    for cluster in (CLUSTER, replace(CLUSTER, local=True)):
        for answers in (["yes"], ["Prod"], []):
            session.answers = answers
            with pytest.raises(Refused, match="nothing was erased"):
                session.erase_key(cloud, cluster)
    assert not cloud.calls
    session.answers = ["prod"]
    assert session.erase_key(cloud) == 0
    assert cloud.calls == [f"retire {DATA_KEY} 7"]
    assert session.body["state"] == "scheduled"
    assert session.body["key"] == {"arn": DATA_KEY, "state": "PendingDeletion", "after": "2027-01-01T00:00:00Z"}
    assert session.body["scope"] == {"kind": "cluster", "name": "prod"}


def test_a_key_on_its_way_out_is_certified_again_without_a_question(cloud: Fake, session: Session) -> None:
    cloud.leaving = Retired("PendingDeletion", "2027-01-01T00:00:00Z")
    assert session.erase_key(cloud) == 0
    assert not cloud.calls


def test_what_the_key_does_not_encrypt_remains_after_it(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    cloud.plain = {cloud.add("datasets/d/x").id}
    session.answers = ["prod"]
    assert session.erase_key(cloud) == 1
    assert [told["key"] for told in session.body["remains"]] == ["datasets/d/x"]
    assert session.body["buckets"][0]["otherwise"]["versions"] == 1


def test_no_copy_of_the_certificate_is_left_to_the_key_that_goes(cloud: Fake, session: Session) -> None:
    session.answers = ["prod"]
    assert session.erase_key(cloud, replace(CLUSTER, audit_bucket="")) == 0
    assert not cloud.written
    assert "keep the file where it lasts" in session.said


# the certificate


@pytest.mark.parametrize(("audit", "bucket"), [("audit", "audit"), ("", "data")])
def test_a_copy_of_the_certificate_is_kept_in_the_bucket_that_lasts_longest(
    cloud: Fake, session: Session, audit: str, bucket: str
) -> None:
    session.erase(Scope("run", "gpt-1"), cloud, replace(CLUSTER, audit_bucket=audit))
    (((kept, key), content),) = cloud.written.items()
    assert (kept, key.startswith("erasures/"), content) == (bucket, True, session.file.read_bytes())


def test_a_certificate_about_a_person_names_neither_the_person_nor_objects(cloud: Fake, session: Session) -> None:
    key = "datasets/d/subject=ada@example.com/x"
    held = cloud.add(key)
    cloud.failing = {held.id: f"AccessDenied on arn:aws:s3:::data/{key}"}
    assert session.erase(Scope("subject", "ada@example.com"), cloud) == 1
    assert b"ada@example" not in session.file.read_bytes()
    assert session.body["remains"] == [
        {"bucket": "data", "version": held.id, "why": "AccessDenied on arn:aws:s3:::data/…"}
    ]
    certificate.verify(session.file, session.console, subject="ada@example.com")
    with pytest.raises(Refused, match="something else"):
        certificate.verify(session.file, session.console, subject="bob@example.com")


def test_two_certificates_about_a_person_can_not_be_told_to_be_by_their_hashes(cloud: Fake, session: Session) -> None:
    session.erase(Scope("subject", "k"), cloud)
    first = session.body["scope"]["scrypt"]["hash"]
    session.erase(Scope("subject", "k"), cloud)
    assert session.body["scope"]["scrypt"]["hash"] != first


def test_the_list_is_proved_by_the_certificate(cloud: Fake, session: Session, tmp_path: Path) -> None:
    cloud.add("runs/gpt-1/x")
    listing = tmp_path / "list"
    session.erase(Scope("run", "gpt-1"), cloud, listing=listing)
    assert [json.loads(line) for line in listing.read_text().splitlines()] == [
        ["data", "runs/gpt-1/x", "v0000", "e-runs/gpt-1/x"]
    ]
    certificate.verify(session.file, session.console, listing=listing)
    listing.write_text("")
    with pytest.raises(Refused, match="not the list"):
        certificate.verify(session.file, session.console, listing=listing)


@pytest.fixture
def signed(cloud: Fake, session: Session) -> Path:
    cloud.add("runs/gpt-1/x")
    session.erase(Scope("run", "gpt-1"), cloud)
    return session.file


def test_what_each_check_proves_is_said(cloud: Fake, session: Session, signed: Path) -> None:
    certificate.verify(signed, session.console, lambda _: cloud)
    assert "Signature: good" in session.said
    assert f"KMS has the same public key for {KEY}" in session.said
    certificate.verify(signed, session.console)
    assert "the cloud was not asked, so that nothing here proves whose key signed" in session.said
    cloud.deaf = "the public key can't be asked for"
    certificate.verify(signed, session.console, lambda _: cloud)
    assert "doesn't answer (the public key can't be asked for), so that nothing" in session.said


def test_a_certificate_by_another_key_that_claims_the_clusters_is_found_out_by_kms_alone(
    cloud: Fake, session: Session, signed: Path
) -> None:
    """Anybody can make a key and sign with it: offline, that looks as good."""
    forger = Fake()
    certificate.verify(signed, session.console, lambda _: cloud)
    with pytest.raises(Refused, match="is another key than the one in the certificate"):
        certificate.verify(signed, session.console, lambda _: forger)


def _altered(page: dict[str, Any], path: tuple[str, ...], value: Any) -> bytes:
    part = page
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return certificate.canonical(page) + b"\n"


OTHER = base64.b64encode(Fake().public_key("")).decode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("certificate", "by"), "arn:aws:iam::123456789012:user/bob"),
        (("certificate", "remaining"), 1),
        (("certificate", "remains"), [{"why": "x"}]),
        (("certificate", "list", "sha256"), "0" * 64),
        (("certificate", "scope", "name"), "gpt-2"),
        (("certificate", "signer", "key"), KEY + "2"),
        (("certificate", "signer", "public"), OTHER),
        (("certificate", "signer", "public"), "AAAA"),
        (("certificate", "new"), True),
        (("signature",), "AAAA"),
        (("signature",), None),
        (("certificate", "signer"), None),
        (("certificate", "form"), "trainwright-erasure/2"),
        (("more",), 1),
    ],
    ids=lambda given: "another key" if given == OTHER else str(given),
)
def test_a_certificate_that_was_changed_anywhere_is_not_believed(
    session: Session, signed: Path, path: tuple[str, ...], value: Any
) -> None:
    signed.write_bytes(_altered(json.loads(signed.read_bytes()), path, value))
    with pytest.raises(Refused) as raised:
        certificate.verify(signed, session.console)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b'{"certificate": 1, "signature": ""}', b"[" * 100_000]
)
def test_what_is_no_certificate_is_said_in_words(session: Session, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(Refused, match="no certificate"):
        certificate.verify(file, session.console)
    with pytest.raises(Refused, match="No such file"):
        certificate.verify(tmp_path / "absent", session.console)


def test_one_with_two_members_of_a_name_is_refused_as_readers_would_differ(session: Session, signed: Path) -> None:
    signed.write_bytes(signed.read_bytes().replace(b'"at":', b'"at":"1999-01-01T00:00:00Z","at":'))
    with pytest.raises(Refused, match="no certificate"):
        certificate.verify(signed, session.console)


def test_a_well_signed_one_of_another_content_is_said_in_words(cloud: Fake, session: Session, tmp_path: Path) -> None:
    file = tmp_path / "signed"
    signer = certificate.Signer(KEY, cloud.public_key(KEY))
    file.write_bytes(certificate.issue({"form": certificate.FORM, "at": 1}, cloud, signer))
    with pytest.raises(Refused, match="doesn't tell"):
        certificate.verify(file, session.console)


def test_without_a_key_it_is_unsigned_which_is_said_before_and_believed_by_nobody(
    cloud: Fake, session: Session
) -> None:
    assert session.erase(Scope("run", "gpt-1"), cloud, replace(CLUSTER, evidence_key="", audit_bucket="")) == 0
    assert "will not be signed" in session.said
    with pytest.raises(Refused, match="not signed: anybody"):
        certificate.verify(session.file, session.console)


def test_where_kms_signs_nothing_what_was_erased_is_still_written_down(cloud: Fake, session: Session) -> None:
    cloud.add("runs/gpt-1/x")
    cloud.deaf = "a signature can't be asked for"
    assert session.erase(Scope("run", "gpt-1"), cloud) == 1
    assert session.body["buckets"][0]["erased"]["versions"] == 1
    assert "the certificate is not signed: a signature can't be asked for" in session.said


def test_the_signature_is_what_other_tools_can_check(cloud: Fake, signed: Path) -> None:
    """As docs/erasure.md says it: ECDSA with SHA-256 over a line of the form and the SHA-256 of the certificate."""
    page = json.loads(signed.read_bytes())
    body = json.dumps(page["certificate"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    message = f"trainwright-erasure/1 {hashlib.sha256(body).hexdigest()}\n".encode()
    cloud.private.public_key().verify(base64.b64decode(page["signature"]), message, ec.ECDSA(hashes.SHA256()))
