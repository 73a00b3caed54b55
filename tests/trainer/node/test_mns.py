"""Alibaba's queues: what is sent to them, what the backlog does with them, and how a failed boot is counted."""

import base64
import hashlib
import hmac
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.trainer.conftest import Answering
from trainer import alicloud
from trainer.alicloud import ApiError, Credentials
from trainer.node import backlog, failed, mns
from trainer.node.backlog import Backlog
from trainer.node.config import NodeConfig
from trainer.store import Unavailable

URL = "https://1234.mns.cn-hangzhou-internal.aliyuncs.com/queues/c1-queue"
KEYS = Credentials("STS.1", "s3cr3t", "to/ken==")


class Role:
    def credentials(self):
        return KEYS


def _xml(name, inner):
    return f'<?xml version="1.0"?><{name} xmlns="{mns.NAMESPACE}">{inner}</{name}>'


class Service:
    """A queue that checks signatures as the vendor describes them."""

    def __init__(self, serve):
        self.messages, self.asked, self.refuse, self.number = {}, [], "", 0
        service = self

        class Handler(Answering):
            def asked(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                resource = self.path.removeprefix("/mns")
                service.asked.append((self.command, resource, body))
                text = f"{self.command}\n\ntext/xml\n{self.headers['Date']}\nx-mns-version:2015-06-06\n{resource}"
                wanted = base64.b64encode(hmac.new(b"s3cr3t", text.encode(), hashlib.sha1).digest()).decode()
                if self.headers["Authorization"] != f"MNS STS.1:{wanted}" or service.refuse:
                    self.answer(403, _xml("Error", f"<Code>{service.refuse or 'SignatureDoesNotMatch'}</Code>"))
                    return None
                assert self.headers["security-token"] == "to/ken=="
                assert self.headers["Content-Type"] == "text/xml"
                return body

            def do_POST(self):
                if (body := self.asked()) is not None:
                    service.number += 1
                    service.messages[f"{service.number}-h"] = body
                    self.answer(201, _xml("Message", "<MessageId>1</MessageId>"))

            def do_GET(self):
                if self.asked() is None:
                    return None
                most = int(parse_qs(urlsplit(self.path).query)["numOfMessages"][0])
                handles = [handle for handle in service.messages if handle not in service.hidden][:most]
                service.hidden |= set(handles)
                if not handles:
                    return self.answer(404, _xml("Error", "<Code>MessageNotExist</Code>"))
                told = "".join(f"<Message><ReceiptHandle>{handle}</ReceiptHandle></Message>" for handle in handles)
                return self.answer(200, _xml("Messages", told))

            def do_DELETE(self):
                if self.asked() is not None:
                    service.messages.pop(parse_qs(urlsplit(self.path).query)["ReceiptHandle"][0])
                    self.answer(204)

        self.hidden = set()
        self.url = serve(Handler)


@pytest.fixture
def service(serve, monkeypatch):
    service = Service(serve)
    monkeypatch.setenv(alicloud.ENDPOINT, service.url)
    monkeypatch.setattr(backlog, "ANSWER_S", 0)
    return service


@pytest.mark.parametrize(
    ("url", "is_it"),
    [(URL, True), ("https://sqs.us-west-2.amazonaws.com/1/q", False), ("http://127.0.0.1:5000/1/q", False)],
)
def test_a_queue_is_told_by_its_url(url, is_it):
    assert mns.is_queue(url) is is_it


def test_messages_are_sent_taken_out_of_sight_and_away(service):
    client = mns.Client(Role())
    client.send_message(QueueUrl=URL, MessageBody="run-1")
    body = service.asked[0][2].decode()
    assert base64.b64encode(b"run-1").decode() in body
    assert mns.NAMESPACE in body
    (message,) = client.receive_message(QueueUrl=URL, MaxNumberOfMessages=10, WaitTimeSeconds=1)["Messages"]
    assert client.receive_message(QueueUrl=URL, MaxNumberOfMessages=10, WaitTimeSeconds=1) == {}, "none is there"
    client.delete_message(QueueUrl=URL, ReceiptHandle=message["ReceiptHandle"])
    assert service.messages == {}


def test_a_queue_that_refuses_says_why(service):
    service.refuse = "AccessDenied"
    with pytest.raises(ApiError, match="mns GET: 403 AccessDenied"):
        mns.Client(Role()).receive_message(QueueUrl=URL, MaxNumberOfMessages=1, WaitTimeSeconds=0)


def test_the_backlog_takes_messages_out_and_tells_what_waits_for_each_node(service):
    """There, a message says that a run is new, and an alarm starts nodes by it; none is to be there while nodes are."""
    client = mns.Client(Role())
    for number in range(25):
        client.send_message(QueueUrl=URL, MessageBody=f"run-{number}")
    keeper = Backlog(URL, "cn-hangzhou", lambda: ["a", "b", "c"], lambda: True, client)
    assert keeper.per_node(lambda: 2) == {}, "not known yet"
    keeper.renew()
    assert service.messages == {}
    assert keeper.per_node(lambda: 2) == {"waiting": 1.5}
    assert keeper.per_node(lambda: 0) == {"waiting": 3.0}


def test_one_node_alone_tells_what_waits_and_on_aws_none(service):
    keeper = Backlog(URL, "cn-hangzhou", lambda: ["a"], lambda: False, mns.Client(Role()))
    keeper.renew()
    assert keeper.per_node(_unasked) == {}
    keeper = Backlog("https://sqs.us-west-2.amazonaws.com/1/q", "us-west-2", lambda: ["a"], lambda: True, None)
    keeper._waits = 1
    assert keeper.per_node(_unasked) == {}


def _unasked():
    pytest.fail("nobody needs to know how many nodes there are")


def test_a_group_out_of_reach_costs_one_number_and_no_sample(service, capsys):
    keeper = Backlog(URL, "cn-hangzhou", lambda: ["a"], lambda: True, mns.Client(Role()))
    keeper.renew()

    def away():
        raise ApiError("away")

    assert [keeper.per_node(away), keeper.per_node(away)] == [{}, {}]
    assert capsys.readouterr().out.count("can't be asked, which brings no more of them: away") == 1


def test_a_bucket_that_gives_no_answer_costs_no_message_here_either(service):
    client = mns.Client(Role())
    client.send_message(QueueUrl=URL, MessageBody="a")

    def away():
        raise Unavailable("away")

    Backlog(URL, "cn-hangzhou", away, lambda: True, client).renew()
    assert len(service.messages) == 1


def _keeper(service, unended):
    keeper = Backlog(URL, "cn-hangzhou", tuple, lambda: True, mns.Client(Role()), lambda: list(unended))
    keeper.client.send_message(QueueUrl=URL, MessageBody="a")
    keeper.renew()
    assert service.messages == {}
    return keeper


def test_a_node_that_leaves_puts_a_message_back_for_each_run_that_has_no_end(service):
    """The one that it is at, too: the fleet may be set to zero, and nothing else would ever ask for a node."""
    keeper = _keeper(service, ["at hand", "b"])
    for _ in range(2):
        keeper.leave()
    assert len(service.messages) == 2, "once"
    keeper.renew()
    assert len(service.messages) == 2, "who has left takes none out"
    assert keeper.per_node(_unasked) == {}


def test_a_node_that_leaves_has_no_time_for_a_message_for_each_of_many_runs(service):
    _keeper(service, map(str, range(1000))).leave()
    assert len(service.messages) == 50


def test_a_node_that_leaves_nothing_undone_asks_for_no_other(service):
    _keeper(service, []).leave()
    assert service.messages == {}


def test_a_node_that_took_nothing_out_puts_nothing_back(service):
    """It may not even have booted, and what was submitted still waits."""
    Backlog(URL, "cn-hangzhou", tuple, lambda: True, mns.Client(Role()), lambda: ["a"]).leave()
    assert service.messages == {}


def test_what_waits_is_told_at_the_next_try_where_it_could_not_be(service, capsys):
    keeper = _keeper(service, ["a"])
    service.refuse = "AccessDenied"
    keeper.leave()
    assert "that runs wait can't be told" in capsys.readouterr().out
    service.refuse = ""
    keeper.leave()
    assert len(service.messages) == 1


def test_a_look_that_is_under_way_does_not_take_out_what_is_put_back(service):
    keeper = _keeper(service, ["a"])
    looking, goes_on = threading.Event(), threading.Event()

    def waiting():
        looking.set()
        goes_on.wait(5)
        return []

    keeper.waiting = waiting
    look, leave = (threading.Thread(target=does) for does in (keeper.renew, keeper.leave))
    look.start()
    assert looking.wait(30)
    leave.start()
    leave.join(0.1)
    assert service.messages == {}, "it waits for the look"
    goes_on.set()
    for thread in (look, leave):
        thread.join(30)
    assert len(service.messages) == 1


def test_two_who_see_to_it_at_once_put_one_message_back(service):
    """The agent's end, and its group's hook."""
    keeper = _keeper(service, ["a"])
    leaves = [threading.Thread(target=keeper.leave) for _ in range(2)]
    with keeper._one:
        for leave in leaves:
            leave.start()
            leave.join(0.05)
    for leave in leaves:
        leave.join(30)
    assert len(service.messages) == 1


def test_a_look_that_hangs_keeps_no_node_from_its_end(service, monkeypatch):
    monkeypatch.setattr(backlog, "LEAVING_S", 0.05)
    keeper = _keeper(service, ["a"])
    with keeper._one:
        leave = threading.Thread(target=keeper.leave, daemon=True)
        leave.start()
        leave.join(2)
        assert len(service.messages) == 1


# --- Failed boots


def _config(**more):
    return NodeConfig("alicloud", "cn-hangzhou", "c1", "b", "r-1", 1, 0, {}, **more)


def test_a_failed_boot_is_a_message(service):
    failed.tell(_config(failed=URL), mns.Client(Role()))
    assert len(service.messages) == 1


def test_a_failed_boot_that_can_not_be_told_keeps_nothing(service, capsys):
    service.refuse = "AccessDenied"
    failed.tell(_config(failed=URL), mns.Client(Role()))
    assert "that this boot failed can't be told: mns POST: 403 AccessDenied" in capsys.readouterr().out
    failed.tell(_config())
    assert len(service.asked) == 1, "and where no queue counts them, none is asked"
