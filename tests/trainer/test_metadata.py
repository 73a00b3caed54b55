"""The metadata client against a small service that asks for tokens."""

import json

import pytest

from tests.trainer.conftest import Answering
from trainer import metadata
from trainer.metadata import Ec2Metadata, Identity

DOCUMENT = {
    "instanceId": "i-1",
    "privateIp": "10.0.0.5",
    "pendingTime": "2026-01-01T00:00:00Z",
    "instanceType": "m6a.large",
    "availabilityZone": "us-west-2a",
    "region": "us-west-2",
}


class Service:
    def __init__(self, serve):
        self.values = {"dynamic/instance-identity/document": json.dumps(DOCUMENT)}
        self.token = 1
        self.asked = []
        service = self

        class Handler(Answering):
            def do_PUT(self):
                service.asked.append(("PUT", self.path, self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")))
                self.answer(200, f"token-{service.token}")

            def do_GET(self):
                service.asked.append(("GET", self.path, self.headers.get("X-aws-ec2-metadata-token")))
                if self.headers.get("X-aws-ec2-metadata-token") != f"token-{service.token}":
                    return self.answer(401)
                value = service.values.get(self.path.removeprefix("/latest/"))
                return self.answer(404) if value is None else self.answer(200, value)

        self.url = serve(Handler)


@pytest.fixture
def service(serve):
    return Service(serve)


def test_a_node_learns_who_it_is(service):
    assert Ec2Metadata(service.url).identity() == Identity(
        "i-1", "10.0.0.5", "2026-01-01T00:00:00Z", "m6a.large", "us-west-2a"
    )


def test_the_endpoint_is_found_in_the_environment(service, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
    assert Ec2Metadata().identity().node == "i-1"


def test_one_token_serves_many_questions(service):
    client = Ec2Metadata(service.url)
    for _ in range(3):
        client.get("x")
    assert [method for method, *_ in service.asked] == ["PUT", "GET", "GET", "GET"]
    assert service.asked[0] == ("PUT", "/latest/api/token", "21600")


def test_what_is_not_there_is_none(service):
    assert Ec2Metadata(service.url).get("meta-data/spot/instance-action") is None
    assert Ec2Metadata(service.url).interruption() is None


def test_a_token_goes_to_no_proxy_and_to_no_other_address(service, serve, monkeypatch):
    shown = []

    class Elsewhere(Answering):
        def do_GET(self):
            shown.append(self.path)
            self.answer(200, "x")

    class Sending(Answering):
        def do_PUT(self):
            self.answer(200, "token")

        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", elsewhere)
            self.end_headers()

    elsewhere = serve(Elsewhere)
    with pytest.raises(OSError, match="302: it sends on to another address, which isn't followed"):
        Ec2Metadata(serve(Sending)).get("x")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", elsewhere)
    assert Ec2Metadata(service.url).identity().node == "i-1"
    assert not shown


def test_a_notice_says_when(service):
    service.values["meta-data/spot/instance-action"] = '{"action": "terminate", "time": "2026-01-01T00:02:00Z"}'
    assert Ec2Metadata(service.url).interruption() == "2026-01-01T00:02:00Z"


PAGE = "<html><head><title>404 - Not Found</title></head><body>404 - Not Found</body></html>"


@pytest.mark.parametrize(
    "answer",
    [PAGE, "", "[]", "null", "1", '"action"', "{}", '{"time": "soon"}', '{"time": 1}', '{"action": null}'],
)
def test_what_is_no_notice_is_said_once_and_ignored(service, capsys, answer):
    """A healthy node would drain for ever, and each that its group sends in its place."""
    service.values["meta-data/spot/instance-action"] = answer
    service.values["meta-data/events/recommendations/rebalance"] = answer
    client = Ec2Metadata(service.url)
    assert [(client.interruption(), client.at_risk()) for _ in range(2)] == [(None, None)] * 2
    assert capsys.readouterr().out.count(f"is no notice, and is ignored: {answer!r}") == 2, "once for each"


@pytest.mark.parametrize(
    ("time", "when"),
    [
        ('"2026-01-01T00:02:00+00:00"', "2026-01-01T00:02:00+00:00"),
        ("1767225720", "1767225720"),
        ("null", "an unknown time"),
    ],
)
def test_a_notice_whose_time_is_written_otherwise_is_one_all_the_same(service, time, when):
    """The node goes: its workers are given the time that most notices leave."""
    service.values["meta-data/spot/instance-action"] = f'{{"action": "stop", "time": {time}}}'
    assert Ec2Metadata(service.url).interruption() == when
    service.values["meta-data/events/recommendations/rebalance"] = f'{{"noticeTime": {time}}}'
    assert (Ec2Metadata(service.url).at_risk() or "an unknown time") == when


@pytest.mark.parametrize(
    ("state", "ends"), [(None, False), ("InService", False), ("Standby", False), ("Terminated", True)]
)
def test_a_node_learns_that_its_group_ends_it(service, state, ends):
    if state:
        service.values["meta-data/autoscaling/target-lifecycle-state"] = state
    assert Ec2Metadata(service.url).terminating() is ends


def test_advice_that_a_node_is_at_risk_says_since_when(service):
    assert Ec2Metadata(service.url).at_risk() is None
    service.values["meta-data/events/recommendations/rebalance"] = '{"noticeTime": "2026-01-01T00:00:00Z"}'
    assert Ec2Metadata(service.url).at_risk() == "2026-01-01T00:00:00Z"


def test_a_token_that_is_refused_is_renewed_by_the_next_question(service):
    """As after an instance was stopped and started."""
    client = Ec2Metadata(service.url)
    client.identity()
    service.token = 2
    with pytest.raises(OSError, match="401"):
        client.identity()
    assert client.identity().node == "i-1"


def test_a_token_is_renewed_before_it_ends(service, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(metadata.time, "monotonic", lambda: now[0])
    client = Ec2Metadata(service.url)
    client.get("x")
    now[0] += metadata.TOKEN_TTL_S * 0.6
    client.get("x")
    assert [method for method, *_ in service.asked] == ["PUT", "GET", "PUT", "GET"]


def test_a_service_that_is_not_there_is_an_os_error():
    with pytest.raises(OSError, match="refused"):
        Ec2Metadata("http://127.0.0.1:9").identity()
