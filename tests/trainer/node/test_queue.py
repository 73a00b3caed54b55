"""The queue in the bucket: its order, that all see the same, that nothing gets lost or harms a node, and its signal."""

import json
import threading
from dataclasses import asdict

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer import layout
from trainer.node import backlog
from trainer.node.backlog import Backlog
from trainer.node.config import NodeConfig, Paths
from trainer.node.membership import Outcome
from trainer.node.queue import ERASED, Place, Queue, Turn, current, first, line, waiting
from trainer.node.shipping import Shipper
from trainer.node.turns import Turns, clear
from trainer.store import FileStore, Unavailable

JOB = {"name": "gpt", "dataset": "text", "steps": 3}
OWN = Turn("own", JOB)
RUNS = st.sampled_from(["own", "a", "b", "c", "d"])


def end(store, run, *, succeeded=True, at=1.0):
    outcome = Outcome(succeeded=succeeded, reason="why", ended=at)
    store.put(f"{layout.run_prefix(run)}/{layout.OUTCOME}", json.dumps(asdict(outcome)).encode())


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "bucket")


@pytest.fixture
def queue(store):
    return Queue(store, OWN)


# --- The order


@given(st.lists(RUNS), st.randoms(use_true_random=False))
def test_the_order_is_by_place_whatever_the_listings_order_and_none_is_lost_or_doubled(runs, chance):
    submitted = [Turn(run, JOB, number) for number, run in enumerate(runs, 1)]
    shuffled = chance.sample(submitted, len(submitted))
    found = line(OWN, shuffled)
    assert found == line(OWN, submitted)
    assert {turn.run for turn in found} == {"own", *runs}
    assert len(found) == len({turn.run for turn in found})
    assert [turn.number for turn in found] == sorted(turn.number for turn in found)
    assert all(turn.number == max((t.number for t in submitted if t.run == turn.run), default=0) for turn in found)


@given(st.lists(RUNS, unique=True), st.sets(RUNS))
def test_the_next_run_is_the_first_that_has_not_ended_and_ended_ones_stay_so(runs, ended):
    found = line(OWN, [Turn(run, JOB, number) for number, run in enumerate(runs, 1)])
    outcome = Outcome(succeeded=False, reason="", ended=1.0)
    places = [Place(turn, outcome if turn.run in ended else None) for turn in found]
    left = waiting(places)
    assert [turn.run for turn in left] == [turn.run for turn in found if turn.run not in ended]
    if left:
        assert current(places) == left[0]


def test_without_one_that_waits_the_run_at_hand_is_the_one_that_ended_last():
    ended = [
        Place(Turn(run, JOB, n), Outcome(True, "", at)) for n, (run, at) in enumerate([("a", 5), ("b", 9), ("c", 7)])
    ]
    assert current(ended).run == "b"


# --- The queue in the bucket


def test_runs_are_taken_in_the_order_in_which_they_were_put_in_by_all_nodes_alike(store, queue):
    assert [queue.add(run, JOB, "me").number for run in "abc"] == [1, 2, 3]
    other = Queue(store, OWN)
    for run in ("own", "a", "b", "c"):
        assert queue.next().run == other.next().run == Queue(store, OWN).next().run == run
        end(store, run, succeeded=run != "b")
    assert queue.next() is None
    queue.add("d", JOB, "me")
    assert other.next() == queue.next()
    assert other.next().job == JOB


def test_what_is_put_in_while_others_are_gets_a_place_of_its_own_after_what_was_there(store):
    """Else a node that boots a second later would begin another run than those that train already."""
    queues = [Queue(store, OWN) for _ in range(6)]
    together = threading.Barrier(len(queues))
    numbers = []

    def submit(queue, name):
        together.wait()
        for count in range(3):
            numbers.append(queue.add(f"{name}-{count}", JOB, "me").number)

    threads = [
        threading.Thread(target=submit, args=(queue, name)) for queue, name in zip(queues, "abcdef", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 19))
    places = Queue(store, OWN).places()
    for name in "abcdef":
        assert [p.turn.run for p in places if p.turn.run.startswith(name)] == [f"{name}-{count}" for count in range(3)]


def test_a_run_waits_in_one_place_alone(store, queue):
    queue.add("a", JOB, "me")
    assert queue.add("a", JOB, "me") is None
    assert queue.add("own", JOB, "me") is None


def test_a_failed_run_that_is_put_in_again_goes_to_the_end_and_never_before_one_that_trains(store, queue):
    for run in "ab":
        queue.add(run, JOB, "me")
    end(store, "own")
    end(store, "a", succeeded=False)
    assert queue.next().run == "b"
    assert queue.add("a", JOB, "me").number == 3
    store.delete(f"{layout.run_prefix('a')}/{layout.OUTCOME}")
    assert [turn.run for turn in waiting(queue.places())] == ["b", "a"]


@pytest.mark.parametrize(
    "content",
    [
        b"not JSON",
        b"[]",
        ERASED,
        Turn("../own", JOB, 1).json(),
        Turn("a", {**JOB, "dataset": "../../etc"}, 1).json(),
        Turn("a", {**JOB, "code": "/etc"}, 1).json(),
        Turn("a", {"name": "x"}, 1).json(),
        Turn("a", {**JOB, "command": [1], "launcher": "torchrun-env"}, 1).json(),
        Turn("a", {**JOB, "command": ["x"]}, 1).json(),
    ],
)
def test_what_no_node_could_take_is_passed_over_and_holds_up_nobody(store, queue, content):
    end(store, "own")
    store.put(layout.queued(1), content)
    store.put(f"{layout.QUEUE}read-me.txt", b"")
    assert queue.next() is None
    queue.add("b", JOB, "me")
    assert (queue.next().run, queue.next().number) == ("b", 2)


def test_the_first_run_is_the_buckets_and_takes_no_place_in_the_queue(store, queue):
    assert first(store, OWN) == OWN, "a cluster that was declared before there was such an object"
    store.put(layout.OWN, Turn("other", JOB).json())
    assert first(store, OWN) == Turn("other", JOB)
    assert [place.turn for place in queue.places()] == [OWN]
    assert queue.add("a", JOB, "me").number == 1
    store.put(layout.OWN, Turn("../other", JOB).json())
    with pytest.raises(ValueError, match="lead elsewhere"):
        first(store, OWN)


# --- The signal: a message for each that waits


@pytest.fixture
def sqs(s3_bucket):
    client = boto3.client("sqs")
    attributes = {"ReceiveMessageWaitTimeSeconds": "20"}
    dead = client.create_queue(QueueName=f"{s3_bucket}-dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
    client.url = client.create_queue(QueueName=f"{s3_bucket}-queue", Attributes=attributes)["QueueUrl"]
    client.dead = dead
    return client


def count(client, url=None):
    names = {"": "visible", "NotVisible": "hidden"}
    got = client.get_queue_attributes(QueueUrl=url or client.url, AttributeNames=["All"])["Attributes"]
    return {word: int(got[f"ApproximateNumberOfMessages{name}"]) for name, word in names.items()}


def kept(client, runs):
    return Backlog(client.url, "us-east-1", lambda: list(runs), lambda: True, client)


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch):
    monkeypatch.setattr(backlog, "ANSWER_S", 0)


@pytest.mark.parametrize("sent", [[], ["a"], ["a", "a", "gone"], [*"ab" * 9]])
def test_the_count_is_of_runs_that_wait_whatever_the_queue_held(sqs, sent):
    for run in sent:
        sqs.send_message(QueueUrl=sqs.url, MessageBody=run)
    keeper = kept(sqs, ["a", "b"])
    for _ in range(5):
        keeper.renew()
        assert count(sqs) == {"visible": 2, "hidden": 0}
    kept(sqs, []).renew()
    assert count(sqs) == {"visible": 0, "hidden": 0}
    assert count(sqs, sqs.dead)["visible"] == 0, "what waits long must not count as a dead letter"


def test_a_run_that_is_submitted_while_the_count_is_kept_stays_in_it(store, queue, sqs):
    """It is in the bucket before its message, which is received before the bucket is looked at."""

    receive = sqs.receive_message

    def submitted_meanwhile(**asked):
        if queue.add("late", JOB, "me"):
            sqs.send_message(QueueUrl=sqs.url, MessageBody="late")
        return receive(**asked)

    def others():
        return [turn.run for turn in waiting(Queue(store, OWN).places()) if turn.run != "own"]

    sqs.receive_message = submitted_meanwhile
    Backlog(sqs.url, "us-east-1", others, lambda: True, sqs).renew()
    assert count(sqs) == {"visible": 1, "hidden": 0}


def test_a_bucket_that_gives_no_answer_costs_no_message(sqs, monkeypatch):
    monkeypatch.setattr(backlog, "HIDDEN_S", 0)

    def away():
        raise Unavailable("away")

    sqs.send_message(QueueUrl=sqs.url, MessageBody="a")
    monkeypatch.setattr(backlog, "MOST_BATCHES", 1)
    Backlog(sqs.url, "us-east-1", away, lambda: True, sqs).renew()
    assert count(sqs)["visible"] == 1


def test_a_queue_out_of_reach_is_told_of_once_and_stops_nothing(capsys, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    keeper = Backlog("http://127.0.0.1:9/1/q", "us-east-1", lambda: ["a"], lambda: True)
    keeper.renew()
    keeper.renew()
    assert capsys.readouterr().out.count("can't be kept") == 1


# --- A node between two runs


class Idle:
    """What an idle node does between looks."""

    def __init__(self, then):
        self.then, self.active, self.waits = then, True, 0

    def attend(self, _seconds):
        self.waits += 1
        self.then(self.waits)


@pytest.fixture
def node(store, monkeypatch):
    monkeypatch.setattr(Backlog, "start", lambda _self: None)
    config = NodeConfig("aws", "us-west-2", "c1", "b", "own", 1, 0, JOB, queue="http://127.0.0.1:9/1/q")
    return Turns(store, config, lambda: False)


def test_a_node_that_idles_says_so_and_takes_what_is_submitted(store, queue, node):
    end(store, "own")
    idle = Idle(lambda waits: queue.add("a", JOB, "me") if waits == 2 else None)
    assert node.next(idle, idle).run == "a"
    assert (idle.waits, idle.active) == (2, False)
    assert not node.idle
    assert node._others() == [], "what this node is at doesn't wait"
    assert node.backlog.unended() == ["a"], "but has no end"


def test_a_node_that_goes_straight_on_never_says_that_it_idles(store, queue, node):
    """The fleet would be set to zero by that."""
    end(store, "own")
    queue.add("a", JOB, "me")
    idle = Idle(lambda _: None)
    assert node.next(idle, idle).run == "a"
    assert (idle.waits, idle.active) == (0, True)


def test_a_bucket_out_of_reach_is_waited_out_between_runs(store, queue, node, monkeypatch):
    end(store, "own")
    queue.add("a", JOB, "me")
    listing = FileStore.list
    failing = [True]

    def shut(self, prefix=""):
        if failing[0]:
            raise Unavailable("away")
        return listing(self, prefix)

    monkeypatch.setattr(FileStore, "list", shut)
    idle = Idle(lambda _: failing.__setitem__(0, False))
    assert node.next(idle, idle).run == "a"


def test_an_ended_run_leaves_nothing_on_the_disk_but_the_next_ones_dataset(tmp_path):
    """A disk that fills up would end each run after it."""
    paths = Paths(tmp_path)
    for folder in ("runs/a", "runs/b", "datasets/text", "datasets/other"):
        (paths.scratch / folder).mkdir(parents=True)
    (paths.logs / "a").mkdir(parents=True)
    (paths.logs / "agent.log").touch()
    clear(paths, "a", "text")
    assert sorted(path.name for path in paths.scratch.glob("*/*")) == ["b", "text"]
    assert [path.name for path in paths.logs.iterdir()] == ["agent.log"]


def test_logs_of_the_node_go_on_below_the_next_run_from_where_they_were(tmp_path):
    first, second = FileStore(tmp_path / "1"), FileStore(tmp_path / "2")
    log, worker = tmp_path / "agent.log", tmp_path / "rank0.log"
    log.write_text("of the first\n")
    worker.write_text("a worker of the first\n")
    shipper = Shipper(first)
    shipper.add(log, lambda chunk: f"agent/{chunk}", lasting=True)
    shipper.add(worker, lambda chunk: f"rank0/{chunk}")
    shipper.start()
    onward = shipper.onward(second)
    onward.add(log, lambda chunk: f"agent/{chunk}", lasting=True)
    with log.open("a") as file:
        file.write("of the second\n")
    onward.start()
    onward.close()
    assert {entry.key: first.get(entry.key) for entry in first.list()} == {
        "agent/0": b"of the first\n",
        "rank0/0": b"a worker of the first\n",
    }
    assert {entry.key: second.get(entry.key) for entry in second.list()} == {"agent/0": b"of the second\n"}
