"""The metadata service: what EC2 gives is given, what EC2 refuses is refused."""

import http.client
import json
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import EndpointConnectionError

from emulator import notices
from emulator.instances import Profile
from emulator.metadata import Ec2Metadata, MetadataService, Tokens, hostname, listing

ACCOUNT = "arn:aws:iam::123456789012"
PROFILE = Profile(f"{ACCOUNT}:instance-profile/p", "AIPA1", "node", f"{ACCOUNT}:role/node")


class QuietApi:
    """The live answers, made up; `lifetime` is that of credentials."""

    def __init__(self):
        self.down = False
        self.lifetime = timedelta(hours=1)
        self.asked = 0

    def tags(self, instance):
        if self.down:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
        return {"Name": "worker", "trainwright:run": "r 1"}

    def target_state(self, instance):
        return "InService"

    def credentials(self, instance, profile):
        self.asked += 1
        expiration = datetime.now(UTC) + self.lifetime
        return {
            "AccessKeyId": f"ASIA{self.asked}",
            "SecretAccessKey": "s",
            "SessionToken": "t",
            "Expiration": expiration,
        }


@pytest.fixture
def api():
    return QuietApi()


@pytest.fixture
def serve(api, an_instance, tmp_path):
    """Starts the service of an instance that differs from a plain one in what is said; gives its address."""
    services = []

    def make(**different):
        instance = an_instance(**different)
        services.append(MetadataService(Ec2Metadata(instance, api, notices.path(tmp_path, "i-1")), instance.address))
        return services[-1].url

    yield make
    for service in services:
        service.close()


def test_nothing_is_given_without_a_token(serve, http):
    url = serve()
    for path in ("/latest/meta-data/instance-id", "/latest/", "/no/such"):
        assert http.fetch(url, path)[0] == 401
        assert http.fetch(url, path, X_aws_ec2_metadata_token="9999999999.0-00")[0] == 401
        assert http.fetch(url, path, X_aws_ec2_metadata_token="é")[0] == 401
    assert http.read(url, "meta-data/instance-id") == (200, "i-1")


@pytest.mark.parametrize("seconds", ["0", "21601", "-1", "60.5", "1e3", "", "abc", "٣٠", "999999999999"])
def test_a_token_s_time_to_live_outside_1_to_21600_seconds_is_refused(serve, http, seconds):
    connection = http_connection(serve())
    header = {"X-aws-ec2-metadata-token-ttl-seconds": seconds.encode()}
    connection.request("PUT", "/latest/api/token", headers=header)
    assert connection.getresponse().status == 400
    connection.close()


def http_connection(url):
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)


def test_a_token_request_that_was_forwarded_or_is_no_put_is_refused(serve, http):
    url = serve()
    ttl = {"X_aws_ec2_metadata_token_ttl_seconds": "60"}
    assert http.fetch(url, "/latest/api/token", "PUT", **ttl)[0] == 200
    assert http.fetch(url, "/latest/api/token", "PUT", X_Forwarded_For="10.0.0.1", **ttl)[0] == 403
    assert http.fetch(url, "/latest/api/token", "PUT")[0] == 400
    assert http.fetch(url, "/latest/meta-data/", "PUT", **ttl)[0] == 405


def test_a_token_ends_with_its_time_and_belongs_to_one_service(monkeypatch):
    tokens = Tokens()
    token = tokens.issue(60)
    assert tokens.valid(token)
    assert not Tokens().valid(token)
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert not tokens.valid(token)


def test_one_connection_serves_many_requests_even_after_a_put_with_a_body(serve):
    connection = http_connection(serve())
    header = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    connection.request("PUT", "/latest/api/token", body=b"unexpected", headers=header)
    answer = connection.getresponse()
    assert answer.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
    token = answer.read().decode()
    socket = connection.sock
    for _ in range(3):
        connection.request("GET", "/latest/meta-data/instance-id", headers={"X-aws-ec2-metadata-token": token})
        assert connection.getresponse().read() == b"i-1"
        assert connection.sock is socket
    connection.close()


def test_the_identity_document_says_what_the_api_says(serve, http):
    status, text = http.read(serve(), "dynamic/instance-identity/document")
    assert status == 200
    assert json.loads(text) == {
        "accountId": "123456789012",
        "architecture": "x86_64",
        "availabilityZone": "us-west-2b",
        "imageId": "ami-1",
        "instanceId": "i-1",
        "instanceType": "p4d.24xlarge",
        "pendingTime": "2026-11-30T10:00:00Z",
        "privateIp": "127.10.1.9",
        "region": "us-west-2",
        "version": "2017-09-30",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ami-id", "ami-1"),
        ("hostname", "ip-127-10-1-9.us-west-2.compute.internal"),
        ("instance-id", "i-1"),
        ("instance-type", "p4d.24xlarge"),
        ("instance-life-cycle", "spot"),
        ("local-hostname", "ip-127-10-1-9.us-west-2.compute.internal"),
        ("local-ipv4", "127.10.1.9"),
        ("mac", "02:00:00:00:00:01"),
        ("placement/availability-zone", "us-west-2b"),
        ("placement/region", "us-west-2"),
        ("autoscaling/target-lifecycle-state", "InService"),
        ("tags/instance/Name", "worker"),
        ("tags/instance/trainwright:run", "r 1"),
    ],
)
def test_every_item_is_served(serve, http, name, value):
    assert http.read(serve(spot=True, tags_shown=True), f"meta-data/{name}") == (200, value)


def test_what_an_instance_lacks_is_not_found(serve, http):
    url = serve(user_data=b"")
    lacking = ["user-data", "meta-data/iam/info", "meta-data/iam/security-credentials/", "meta-data/tags/instance/Name"]
    lacking += ["meta-data/spot/instance-action", "meta-data/events/recommendations/rebalance", "meta-data/none", "x"]
    assert {name: http.read(url, name)[0] for name in lacking} == dict.fromkeys(lacking, 404)


def test_user_data_is_served_as_it_is(serve, http):
    assert http.read(serve(user_data=b"#!/bin/sh\necho \xc3\xa9\n"), "user-data") == (200, "#!/bin/sh\necho é\n")


@pytest.mark.parametrize(
    ("folder", "entries"),
    [
        ("", ["dynamic", "meta-data", "user-data"]),
        ("dynamic/", ["instance-identity/"]),
        ("meta-data/placement", ["availability-zone", "region"]),
        ("meta-data/iam/", ["info", "security-credentials/"]),
        ("meta-data/iam/security-credentials/", ["node"]),
        ("meta-data/tags/", ["instance/"]),
        ("meta-data/tags/instance/", ["Name", "trainwright:run"]),
    ],
)
def test_folders_are_listed(serve, http, folder, entries):
    assert http.read(serve(profile=PROFILE, tags_shown=True), folder) == (200, "\n".join(entries))


def test_a_listing_tells_files_from_folders_of_nearly_the_same_name():
    files = ["latest/meta-data/a", "latest/meta-data/ab/c", "latest/meta-data/ab/d"]
    assert listing(files, "latest/meta-data") == ["a", "ab/"]
    assert listing(files, "latest/meta-data/ab") == ["c", "d"]
    assert listing(files, "latest/meta-data/a") == []
    assert listing(files, "") == ["latest"]


def test_role_credentials_are_kept_until_their_end_is_near(serve, http, api):
    url = serve(profile=PROFILE)
    path = "meta-data/iam/security-credentials/node"
    first, second = json.loads(http.read(url, path)[1]), json.loads(http.read(url, path)[1])
    assert first == second
    assert first["Code"] == "Success"
    assert first["Type"] == "AWS-HMAC"
    assert {"AccessKeyId", "SecretAccessKey", "Token", "Expiration", "LastUpdated"} < first.keys()
    api.lifetime = timedelta(minutes=10)
    other = serve(profile=PROFILE)
    asked = api.asked
    http.read(other, path)
    http.read(other, path)
    assert api.asked == asked + 2


def test_trouble_of_the_api_is_an_error_of_the_one_request_that_needs_it(serve, http, api):
    url = serve(tags_shown=True)
    api.down = True
    assert http.read(url, "meta-data/tags/instance/Name")[0] == 503
    assert http.read(url, "meta-data/instance-id")[0] == 200


def test_an_address_that_is_not_loopback_is_never_bound(serve):
    assert serve(address="10.0.0.7").startswith("http://127.0.0.1:")
    assert serve(address="0.0.0.0").startswith("http://127.0.0.1:")
    assert serve(address="127.10.1.9").startswith("http://127.10.1.9:")


def test_names_follow_the_region():
    assert hostname("10.0.1.2", "us-east-1") == "ip-10-0-1-2.ec2.internal"


def test_boto3_on_a_node_finds_the_role_s_credentials_by_itself(world, http):
    script = """#!/usr/bin/env python3
import boto3, os, time
caller = boto3.client("sts", region_name="us-west-2").get_caller_identity()
with open(os.environ["HOME"] + "/part", "w") as file:
    file.write(caller["Arn"] + " " + boto3.Session().get_credentials().method)
os.rename(os.environ["HOME"] + "/part", os.environ["HOME"] + "/caller")
time.sleep(1000)
"""
    (instance,) = world.booted(world.group(script, tags={"Name": "worker"}), 1)
    role = f"arn:aws:sts::123456789012:assumed-role/node/{instance}"
    assert world.file(instance, "root/caller") == f"{role} iam-role"
    url = world.metadata(instance)
    assert http.read(url, "meta-data/tags/instance/") == (200, "Name")
    assert http.read(url, "meta-data/tags/instance/Name") == (200, "worker")
    assert http.read(url, "meta-data/autoscaling/target-lifecycle-state") == (200, "InService")
    assert http.read(url, "user-data") == (200, script)
    identity = json.loads(http.read(url, "dynamic/instance-identity/document")[1])
    assert identity["instanceId"] == instance
    assert identity["privateIp"] == http.read(url, "meta-data/local-ipv4")[1]
    assert datetime.fromisoformat(identity["pendingTime"]) <= datetime.now(UTC)
