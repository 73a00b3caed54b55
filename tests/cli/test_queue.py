"""Submitting a job, the list of what waits, taking a run out: what is written, what is said, and what is refused."""

import json
from dataclasses import asdict

import pytest
import yaml
from rich.console import Console

from cli import audit, lifecycle, queue
from cli.errors import Refused
from cli.workspace import Workspace
from components.plan import run_id
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.queue import Turn
from trainer.store import FileStore, Unavailable

JOB = {"name": "gpt", "dataset": "text", "steps": 400}
STACK = {
    "region": "us-west-2",
    "network": {"zones": ["us-west-2a"], "egress": "endpoints"},
    "nodes": {"type": "m6a.large", "image": "ami-0123456789abcdef0", "desired": 2, "max": 4},
    "scaling": {"queue": True},
    "prices": {"m6a.large": {"on_demand": 0.1}},
    "job": JOB,
}


class Bench:
    """A cluster that is up, as far as the command can see: its outputs, its bucket, its stack's file."""

    def __init__(self, folder, monkeypatch):
        self.bucket = bucket = FileStore(folder / "bucket")
        self.file = file = folder / "Pulumi.c1.yaml"
        self.write(STACK)
        self.outputs = outputs = {"bucket": "b", "run": "own-00000000", "queueUrl": "https://queue"}
        self.sent = []
        self.console = Console(width=200)
        bench = self

        class Up(Workspace):
            @property
            def outputs(self):
                return outputs

            @property
            def file(self):
                return file

            def open(self, _bucket, prefix=""):
                return FileStore(bucket.root / prefix)

            @property
            def account(self):
                return bench

        monkeypatch.setattr(queue, "Workspace", Up)
        self.workspace = Up("c1")
        self.bucket.put("datasets/text/index.json", b"{}")

    def caller(self):
        return "arn:aws:iam::123456789012:user/ann"

    def send(self, url, body):
        self.sent.append((url, body))

    def folders(self, _bucket, prefix):
        return [folder.name for folder in (self.bucket.root / prefix).iterdir()]

    def write(self, values):
        self.file.write_text(yaml.safe_dump({"config": {f"trainwright:{key}": value for key, value in values.items()}}))

    def submit(self, *settings, file=None):
        queue.submit("c1", self.console, file, settings)

    def end(self, run, *, succeeded=True, at=1.0):
        outcome = Outcome(succeeded=succeeded, reason="a user's mistake", ended=at)
        self.bucket.put(f"runs/{run}/{layout.OUTCOME}", json.dumps(asdict(outcome)).encode())

    def begin(self, run):
        self.bucket.put(f"runs/{run}/{layout.generation(1)}", b"{}")

    def states(self):
        return {entry.turn.run: entry.state for entry in queue.listed("c1")}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


def submitted(bench):
    return [place.turn.run for place in bench.workspace.queue().places() if place.turn.number]


def test_a_submitted_job_waits_whole_and_checked_and_the_cluster_is_told(bench, capsys):
    bench.submit("steps=70", "model.layers=2")
    (place,) = (place for place in bench.workspace.queue().places() if place.turn.number)
    turn = place.turn
    assert turn.run == run_id(turn.job)
    assert (turn.job["steps"], turn.job["model"]["layers"], turn.job["batch"]) == (70, 2, 32)
    assert turn.by.endswith("/ann")
    assert bench.sent == [("https://queue", turn.run)]
    said = capsys.readouterr().out
    assert f"Run {turn.run} is number 1 of the queue, after 1 other, of which the first is own-00000000." in said
    assert f"trainwright watch --stack c1 --run {turn.run}" in said


def test_a_submitted_run_has_its_record_from_the_start(bench):
    """Who, what, on which nodes at what price; they have the bundle that they were launched with, not one of today."""
    launch = {"by": "arn:aws:iam::123456789012:user/bob", "bundle_sha256": "0a" * 32}
    bench.bucket.put(f"runs/own-00000000/{layout.LAUNCHES}0.json", json.dumps(launch).encode())
    bench.submit("steps=70")
    (run,) = submitted(bench)
    (page,) = audit.read(FileStore(bench.bucket.root / "runs" / run), run).launches
    assert (page["run"], page["by"], page["bundle_sha256"]) == (run, "arn:aws:iam::123456789012:user/ann", "0a" * 32)
    assert page["job"]["steps"] == 70
    assert page["usd_per_node_hour"]["m6a.large"]


def test_a_file_holds_the_keys_of_a_job(bench, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("name: other\ndataset: text\nsteps: 90\n")
    bench.submit("seed=4", file=file)
    (run,) = submitted(bench)
    assert run.startswith("other-")
    assert bench.workspace.queue().places()[1].turn.job["seed"] == 4


def test_code_goes_into_the_bucket_by_its_hash(bench, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("pass")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text("name: own\ncommand: [python, train.py]\ncode: mine\n")
    bench.submit(file=file)
    job = bench.workspace.queue().places()[1].turn.job
    assert bench.bucket.exists(layout.code(job["code"]))


def test_all_that_is_wrong_with_a_job_is_told_at_once_and_nothing_is_written(bench):
    with pytest.raises(Refused) as refused:
        bench.submit("steps=0", "learning_rat=1", "batch=2")
    paths = {finding.path for finding in refused.value.findings}
    assert paths == {"job.steps", "job.learning_rat", "job.batch"}, "batch: fewer samples than workers"
    assert not submitted(bench)
    assert not bench.sent


@pytest.mark.parametrize("setting", ["steps", "name.x=1", "=3"])
def test_a_setting_that_sets_nothing_is_refused(bench, setting):
    with pytest.raises(Refused):
        bench.submit(setting)
    assert not submitted(bench)


def test_a_dataset_that_is_not_there_is_warned_of(bench, capsys):
    bench.submit("dataset=absent")
    assert "warning: job.dataset: there is no dataset 'absent' in the bucket" in capsys.readouterr().out
    assert len(submitted(bench)) == 1


def test_a_run_is_submitted_once_and_never_again_after_it_has_ended(bench):
    bench.submit("steps=70")
    with pytest.raises(Refused, match="is in the queue already"):
        bench.submit("steps=70")
    (run,) = submitted(bench)
    bench.end(run)
    with pytest.raises(Refused, match=r"is done\. A changed job"):
        bench.submit("steps=70")
    bench.end(run, succeeded=False)
    with pytest.raises(Refused, match=f"has failed: a user's mistake.*queue retry {run}"):
        bench.submit("steps=70")
    assert submitted(bench) == [run]
    assert len(bench.sent) == 1


def test_the_stacks_own_job_is_not_submitted_beside_itself(bench):
    bench.outputs["run"] = bench.workspace.plan()[0].run.id
    with pytest.raises(Refused, match="is in the queue already"):
        bench.submit("steps=400")


def test_a_cluster_without_a_queue_says_how_to_have_one(bench):
    del bench.outputs["queueUrl"]
    for act in (lambda: bench.submit("steps=70"), lambda: queue.listed("c1")):
        with pytest.raises(Refused, match=r"has no queue\. Set `scaling.queue` to true"):
            act()


def test_a_signal_that_does_not_get_through_costs_a_warning_alone(bench, monkeypatch, capsys):
    def away(*_):
        raise Refused("the queue can't be asked for")

    monkeypatch.setattr(bench, "send", away)
    bench.submit("steps=70")
    assert len(submitted(bench)) == 1
    assert "a fleet at zero isn't told of it" in capsys.readouterr().out


def test_the_list_tells_what_trains_what_waits_and_how_others_ended(bench, capsys):
    for steps in (50, 60, 70, 80):
        bench.submit(f"steps={steps}")
    a, b, c, d = submitted(bench)
    assert bench.states() == {"own-00000000": "next", a: "waits", b: "waits", c: "waits", d: "waits"}
    bench.end("own-00000000")
    bench.end(a, succeeded=False)
    bench.begin(b)
    assert bench.states() == {"own-00000000": "done", a: "failed", b: "trains", c: "waits", d: "waits"}
    capsys.readouterr()
    bench.console.print(queue.table(queue.listed("c1")))
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if a in line).split()[2:6] == ["failed:", "a", "user's", "mistake"]
    told = queue.as_json(queue.listed("c1"))
    assert json.loads(json.dumps(told)) == told
    assert [(entry["number"], entry["state"]) for entry in told][:3] == [(0, "done"), (1, "failed"), (2, "trains")]


def test_the_run_at_hand_is_what_other_verbs_are_about(bench):
    bench.submit("steps=50")
    (run,) = submitted(bench)
    assert bench.workspace.run()[0] == "own-00000000"
    bench.end("own-00000000", at=5)
    assert bench.workspace.run()[0] == run
    bench.end(run, at=9)
    assert bench.workspace.run()[0] == run
    assert bench.workspace.run("own-00000000")[0] == "own-00000000"
    with pytest.raises(Refused, match="has no run 'gpt-typo'"):
        bench.workspace.run("gpt-typo")
    plan = bench.workspace.plan()[0]
    assert bench.workspace.job(run, plan)["steps"] == 50
    assert bench.workspace.job("own-00000000", plan)["steps"] == 400


def test_the_clusters_first_run_is_the_one_that_its_nodes_take_whatever_the_file_declares_later(bench, capsys):
    first = "gpt-11111111"
    bench.bucket.put(layout.OWN, Turn(first, {**JOB, "steps": 9}).json())
    bench.bucket.put("runs/own-00000000/audit/launch-0.json", b'{"bundle_sha256": "beef"}')
    assert bench.workspace.own == first
    assert bench.states() == {first: "next"}
    assert bench.workspace.job(first, bench.workspace.plan()[0])["steps"] == 9
    lifecycle._unlike(bench.workspace, bench.console)
    assert f"own run stays {first}. The file's job is another, own-00000000" in capsys.readouterr().out
    bench.submit()
    (run,) = submitted(bench)
    bench.outputs["run"] = run
    lifecycle._unlike(bench.workspace, bench.console)
    assert "stays" not in capsys.readouterr().out
    assert bench.states() == {first: "next", run: "waits"}
    (page,) = bench.bucket.list(f"runs/{run}/{layout.LAUNCHES}")
    assert json.loads(bench.bucket.get(page.key))["bundle_sha256"] == "beef"


def test_who_may_not_put_a_failure_aside_leaves_the_queue_as_it_was(bench, monkeypatch):
    bench.submit("steps=50")
    (run,) = submitted(bench)
    bench.end(run, succeeded=False, at=3)

    def denied(*_, **__):
        raise Unavailable("denied")

    with monkeypatch.context() as patch:
        patch.setattr(queue, "absolve", denied)
        with pytest.raises(Unavailable):
            queue.again("c1", bench.console, run)
    assert [place.turn.number for place in bench.workspace.queue().places()] == [0, 1]
    assert bench.states()[run] == "failed"


def test_a_run_is_taken_out_for_good_and_one_that_trains_only_on_purpose(bench):
    for steps in (50, 60):
        bench.submit(f"steps={steps}")
    a, b = submitted(bench)
    bench.end("own-00000000")
    bench.begin(a)
    with pytest.raises(Refused, match=r"trains now.*--yes"):
        queue.remove("c1", bench.console, a)
    queue.remove("c1", bench.console, b)
    queue.remove("c1", bench.console, a, sure=True)
    outcome = bench.workspace.queue().outcome(a)
    assert outcome is not None
    assert outcome.reason == "taken out of the queue by arn:aws:iam::123456789012:user/ann"
    assert set(bench.states().values()) == {"done", "failed"}
    with pytest.raises(Refused, match="has ended already"):
        queue.remove("c1", bench.console, a)
    with pytest.raises(Refused, match="no run 'x' in the queue"):
        queue.remove("c1", bench.console, "x")


def test_a_failed_run_goes_to_the_end_again_with_a_record_of_who_put_it_there(bench):
    for steps in (50, 60):
        bench.submit(f"steps={steps}")
    a, b = submitted(bench)
    bench.end("own-00000000")
    with pytest.raises(Refused, match="has not ended"):
        queue.again("c1", bench.console, a)
    bench.end(a, succeeded=False, at=3)
    queue.again("c1", bench.console, a)
    assert submitted(bench) == [b, a]
    assert bench.states() == {"own-00000000": "done", b: "next", a: "waits"}
    page = json.loads(bench.bucket.get(f"runs/{a}/{layout.audit_retry(3)}"))
    assert page == {"by": "arn:aws:iam::123456789012:user/ann", "ended": 3.0}
    assert [body for _, body in bench.sent] == [a, b, a]
    bench.end(b)
    with pytest.raises(Refused, match="is done"):
        queue.again("c1", bench.console, b)
