"""The stage as a node runs it: a process of its own, against a metadata service and a bucket on loopback."""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from components import bootstrap
from trainer import exits

CREDENTIALS = {"AccessKeyId": "AKIA1", "SecretAccessKey": "s3cr3t/+", "Token": "to/ken=="}
AGENT = 'import json, os, sys; print("AGENT", json.dumps([sys.argv[1], os.environ["PYTHONUNBUFFERED"], __file__]))\n'


def _tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _signature(method, url, date, region):
    """What botocore's own signer writes for this request at this time."""
    request = AWSRequest(method, url, headers={"X-Amz-Content-SHA256": hashlib.sha256(b"").hexdigest()})
    signer = S3SigV4Auth(Credentials(*CREDENTIALS.values()), "s3", region)
    request.context["timestamp"] = date
    request.context["signing"] = {}
    request.headers["X-Amz-Date"] = date
    request.headers["X-Amz-Security-Token"] = CREDENTIALS["Token"]
    canonical = signer.canonical_request(request)
    return signer.signature(signer.string_to_sign(request, canonical), request)


class Node:
    """A metadata service and a bucket in one server, and what a stage that is run against them does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bundle = _tar(
            {"trainer/__init__.py": "", "trainer/node/__init__.py": "", "trainer/node/__main__.py": AGENT}
        )
        self.requests: list[str] = []
        self.refuse = 0  # answers of the bucket that are 403, as before a role has reached its instance
        self.cut = 0  # answers of the bucket that break off half-way
        self.hang = False
        self.released = threading.Event()
        node = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, status, body, cut=False):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)

            def do_PUT(self):
                if node.hang:
                    node.released.wait(20)
                self.answer(200, b"token-1")

            def do_GET(self):
                node.requests.append(self.path)
                if self.path.startswith("/latest/"):
                    if self.headers.get("X-aws-ec2-metadata-token") != "token-1":
                        return self.answer(401, b"")
                    if self.path.endswith("security-credentials/"):
                        return self.answer(200, b"role-1\n")
                    return self.answer(200, json.dumps(CREDENTIALS).encode())
                wanted = _signature("GET", node.url + self.path, self.headers["x-amz-date"], "us-west-2")
                given = re.search("Signature=([0-9a-f]{64})$", self.headers["Authorization"])
                if node.refuse or not given or given[1] != wanted:
                    node.refuse = max(0, node.refuse - 1)
                    return self.answer(403, b"")
                cut, node.cut = node.cut > 0, max(0, node.cut - 1)
                return self.answer(200, node.bundle, cut)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def run(self, **config):
        values = {
            "region": "us-west-2",
            "bucket": "b-1",
            "bundle": "bundles/x.tar",
            "sha256": hashlib.sha256(self.bundle).hexdigest(),
            "python": sys.executable,
            "deadline_s": 30,
            "run": "r-1",
        }
        script = self.root / "user-data"
        script.write_bytes(base64.b64decode(bootstrap.user_data({**values, **config})))
        environment = {
            "PATH": os.environ["PATH"],
            "TRAINWRIGHT_ROOT": str(self.root),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url,
            "AWS_ENDPOINT_URL": self.url,
        }
        elsewhere = self.root / "elsewhere"
        (elsewhere / "trainer").mkdir(parents=True, exist_ok=True)
        (elsewhere / "trainer/__init__.py").write_text("raise SystemExit('this trainer is not the bundle's')")
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(script)],
            check=False,
            env=environment,
            cwd=elsewhere,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.seconds = time.monotonic() - begun
        return done


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.close()


def test_the_agent_takes_over_from_the_verified_bundle(node):
    """From the bundle, also where user-data runs in a folder that has a `trainer` of its own, as a checkout has."""
    done = node.run()
    assert done.returncode == 0, done.stdout + done.stderr
    config, unbuffered, main = json.loads(done.stdout.splitlines()[-1].removeprefix("AGENT "))
    assert Path(config) == node.root / "etc/trainwright/node.json"
    assert json.loads(Path(config).read_text())["run"] == "r-1"
    assert unbuffered == "1"
    assert Path(main).is_relative_to(node.root / "opt/trainwright" / hashlib.sha256(node.bundle).hexdigest())


def test_b12_a_second_run_fetches_nothing(node):
    assert node.run().returncode == 0
    node.requests.clear()
    assert node.run().returncode == 0
    assert node.requests == []


def test_what_a_broken_first_run_left_is_replaced(node):
    part = node.root / "opt/trainwright" / f"{hashlib.sha256(node.bundle).hexdigest()}.part"
    part.mkdir(parents=True)
    (part / "rubbish").touch()
    assert node.run().returncode == 0
    assert not part.exists()
    assert not list(node.root.glob("opt/trainwright/*/rubbish"))


def test_an_altered_bundle_is_not_unpacked(node):
    done = node.run(sha256="0" * 64)
    assert done.returncode == exits.STAGE_FAILED
    (line,) = done.stdout.splitlines()
    assert "failed: ValueError: the bundle's SHA-256 is" in line
    assert line.endswith("it was altered")
    assert done.stderr == ""
    assert not (node.root / "opt/trainwright" / ("0" * 64)).exists()


def test_a_role_that_is_not_there_yet_is_waited_for(node):
    node.refuse = 2
    done = node.run()
    assert done.returncode == 0
    assert done.stdout.count("bundle not fetched yet") == 2


def test_a_connection_that_breaks_is_no_altered_bundle(node):
    """A short read must be tried again, not end the node as if someone had tampered."""
    node.cut = 1
    done = node.run()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("bundle not fetched yet") == 1


@pytest.mark.parametrize("hang", [False, True], ids=["closed", "silent"])
def test_b8_without_metadata_the_stage_gives_up_at_its_deadline(node, hang):
    """Never hangs, never bills on; also where the deadline passes inside a call that is tried again."""
    node.hang = hang
    url, node.url = node.url, node.url if hang else "http://127.0.0.1:9"
    done = node.run(deadline_s=2)
    node.url = url
    assert done.returncode == exits.STAGE_FAILED
    assert node.seconds < 5
    assert done.stdout.splitlines()[-1].endswith("no agent within 2 s")
    assert done.stderr == ""


def test_an_image_without_the_python_that_was_named_is_said_so(node):
    done = node.run(python="python-that-is-not-there")
    assert done.returncode == exits.STAGE_FAILED
    assert done.stdout.splitlines()[-1].endswith("nodes.python: the image has no python-that-is-not-there")


def test_the_signature_is_botocores_own_on_the_clouds_address(node, monkeypatch):
    """Virtual-hosted address, as on AWS; the server above checks the path-style one."""
    script = base64.b64decode(bootstrap.user_data({})).decode()
    scope = {"__name__": "stage", "__file__": "stage"}
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    exec(compile(script, "stage", "exec"), scope)
    for region, suffix in (("us-west-2", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")):
        request = scope["signed"]("b-1", "bundles/x.tar", region, CREDENTIALS)
        assert request.full_url == f"https://b-1.s3.{region}.{suffix}/bundles/x.tar"
        wanted = _signature("GET", request.full_url, request.headers["X-amz-date"], region)
        assert request.headers["Authorization"].endswith(f"Signature={wanted}")
