"""The stage as a node runs it: a process of its own, against a metadata service and a bucket on loopback."""

import base64
import hashlib
import hmac
import io
import json
import os
import re
import shlex
import shutil
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
        self.vendor, self.roles, self.credentials = "aws-ec2", "iam", CREDENTIALS
        self.told: list[tuple[str, dict[str, str], bytes]] = []  # what was sent to a queue
        self.modules = root / "site"  # what the image's Python has: names are enough, nothing is imported of it
        for module in ("torch", "numpy"):
            (self.modules / module).mkdir(parents=True)
            (self.modules / module / "__init__.py").write_text("raise SystemExit('importing takes seconds')")
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

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                node.told.append((self.path, dict(self.headers.items()), body))
                self.answer(201, b"")

            def do_GET(self):
                node.requests.append(self.path)
                if self.path.startswith("/latest/"):
                    if self.headers.get(f"X-{node.vendor}-metadata-token") != "token-1":
                        return self.answer(401, b"")
                    if f"/{node.roles}/" not in self.path:
                        return self.answer(404, b"")
                    if self.path.endswith("security-credentials/"):
                        return self.answer(200, b"role-1\n")
                    return self.answer(200, json.dumps(node.credentials).encode())
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
            "TRAINWRIGHT_ECS_METADATA": self.url,
            "TRAINWRIGHT_ALICLOUD_ENDPOINT": self.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url,
            "AWS_ENDPOINT_URL": self.url,
            "TRAINWRIGHT_OSS_ENDPOINT": self.url,
            "PYTHONPATH": str(self.modules),
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


@pytest.mark.parametrize("knows_them", [True, False], ids=["ubuntu", "an image without them"])
def test_b3_no_upgrade_changes_driver_or_kernel_under_a_running_job(node, monkeypatch, knows_them):
    """NVML then says "Driver/library version mismatch", and Lustre's module no longer loads (parallelcluster#2095)."""
    for folder in ("bin", "run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    refuses = "" if knows_them else '[ "$1" = mask ] && exit 1'
    tool = node.root / "bin/systemctl"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {node.root}/called\n{refuses}\nexit 0\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert node.run().returncode == 0
    masked, *others = (node.root / "called").read_text().splitlines()
    assert masked.startswith("mask --now --no-block "), "to wait for an upgrade under way could take half an hour"
    assert {"unattended-upgrades.service", "apt-daily.timer", "apt-daily-upgrade.timer"} <= set(masked.split())
    assert others == ["daemon-reload", "enable --now trainwright"]


def test_the_service_is_put_in_the_slice_that_is_written_for_it(node, monkeypatch):
    for folder in ("bin", "run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    (node.root / "bin/systemctl").write_text("#!/bin/sh\nexit 0\n")
    (node.root / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{node.root / 'bin'}:{os.environ['PATH']}")
    assert node.run().returncode == 0
    units = node.root / "etc/systemd/system"
    assert "Slice=trainwright.slice\n" in (units / "trainwright.service").read_text()
    assert (units / "trainwright.slice").read_text() == _scope()["SLICE"]


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
    assert node.seconds < 30
    assert done.stdout.splitlines()[-1].endswith("no agent within 2 s")
    assert done.stderr == ""


def test_an_image_without_the_python_that_was_named_is_said_so(node):
    done = node.run(python="python-that-is-not-there")
    _refused(node, done, "the image has no python-that-is-not-there")


def _refused(node, done, found):
    """The node says in one line what is wrong with its Python, before it fetches anything."""
    assert done.returncode == exits.STAGE_FAILED
    (line,) = done.stdout.splitlines()
    assert line.endswith(
        f"failed: OSError: nodes.python: {found}; name the image's Python 3.11 or newer that has torch and numpy"
    )
    assert done.stderr == ""
    assert node.requests == []


def _python(node, text):
    """An executable that stands in for the image's Python."""
    path = node.root / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_is_too_old_for_the_agent_is_said_so(node):
    """Else the agent dies of a syntax error, five times, and the console shows only that."""
    old = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[2])"
    python = _python(node, f"exec {sys.executable} -c '{old}' \"$@\"")
    _refused(node, node.run(python=python), f"{python} is Python 3.9.2")


@pytest.mark.parametrize(
    ("absent", "words"), [(["torch"], "torch"), (["numpy"], "numpy"), (["torch", "numpy"], "torch and numpy")]
)
def test_a_python_that_lacks_what_trains_is_said_so(node, absent, words):
    """The system's Python of an image that has PyTorch in an environment of its own."""
    for module in absent:
        shutil.rmtree(node.modules / module)
    python = _python(node, f'exec {sys.executable} -S "$@"')
    version = ".".join(map(str, sys.version_info[:3]))
    _refused(node, node.run(python=python), f"{python} is Python {version} without {words}")


@pytest.mark.parametrize(("text", "said"), [("echo broken >&2; exit 3", "broken"), ("exit 3", "it said nothing")])
def test_a_python_that_does_not_work_is_said_so(node, text, said):
    python = _python(node, text)
    _refused(node, node.run(python=python), f"{python} does not work ({said})")


def _scope(**config):
    """What the stage defines."""
    script = base64.b64decode(bootstrap.user_data(config)).decode()
    scope = {"__name__": "stage", "__file__": "stage"}
    exec(compile(script, "stage", "exec"), scope)
    return scope


def _unit():
    """The service's unit as the stage writes it, for a Python that is on every machine."""
    scope = _scope()
    return scope["UNIT"].format(
        python="/bin/sh",
        config="/etc/trainwright/node.json",
        code="/opt/trainwright/0",
        limit=scope["LIMIT"],
        stop=scope["STOP"],
    )


def _settings(unit):
    """All values of each setting, as systemd reads them."""
    settings = {}
    for line in unit.splitlines():
        if "=" in line:
            name, value = line.split("=", 1)
            settings.setdefault(name, []).append(value)
    return settings


def test_an_agent_that_crashes_is_started_again_before_its_node_is_given_up():
    """`FailureAction` acts at the first failure, whatever `Restart` says (systemd#11419)."""
    settings = _settings(_unit())
    assert "FailureAction" not in settings
    assert settings["Restart"] == ["on-failure"]
    assert settings["StartLimitAction"] == ["poweroff"]
    restarts, within = int(settings["StartLimitBurst"][0]), int(settings["StartLimitIntervalSec"][0])
    assert restarts * int(settings["RestartSec"][0]) < within, "else the limit is never reached"


@pytest.mark.parametrize("status", [*range(69, 79), 0, 1, "KILL"])
def test_a_node_that_gives_up_shuts_down_and_no_other_does(tmp_path, status):
    """A step's exit code is not tried again, so nothing else would end the node, and it would bill on."""
    (command,) = _settings(_unit())["ExecStopPost"]
    shell = shlex.split(command.replace("$$", "$"))
    assert "$" not in command.replace("$$", ""), "a single $ is systemd's own"
    assert "%" not in command
    called = tmp_path / "called"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    (tmp_path / "systemctl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "EXIT_STATUS": str(status)}
    assert subprocess.run(shell, check=False, env=environment, timeout=60).returncode == 0
    if status in {*exits.STEP_FAILED.values(), exits.QUARANTINED}:
        assert called.read_text() == "--no-block poweroff\n"
    else:
        assert not called.exists()


def test_the_agent_waits_for_the_gpus_fabric_and_has_time_to_save():
    settings = _settings(_unit())
    after = {"network-online.target", "nvidia-fabricmanager.service", "nvidia-persistenced.service"}
    assert set(settings["After"][0].split()) == after
    assert settings["Wants"] == ["network-online.target"], "GPUs' services are ordered, not asked for: CPUs have none"
    assert settings["TimeoutStopSec"] == ["150"]
    assert settings["NoNewPrivileges"] == ["yes"]


def test_training_comes_before_the_images_own_services_and_has_no_limits_of_theirs():
    """`OOMPolicy=stop`, the default, would end the agent with the worker that the kernel killed (systemd.service)."""
    unit, own = _settings(_unit()), _settings(_scope()["SLICE"])
    assert unit["Slice"] == ["trainwright.slice"]
    assert unit["OOMPolicy"] == ["continue"]
    assert int(unit["OOMScoreAdjust"][0]) < 0
    assert unit["LimitMEMLOCK"] == unit["TasksMax"] == ["infinity"]
    assert int(own["CPUWeight"][0]) > 100 < int(own["IOWeight"][0]), (
        "100 is everything else's (systemd.resource-control)"
    )
    assert own["MemoryLow"] == ["80%"], "what is left is for the system"


def test_many_workers_that_ask_for_credentials_at_once_are_not_turned_away():
    """botocore asks the metadata service once, for a second, unless told otherwise."""
    words = " ".join(_settings(_unit())["Environment"]).split()
    assert {"AWS_METADATA_SERVICE_NUM_ATTEMPTS=5", "AWS_METADATA_SERVICE_TIMEOUT=2"} <= set(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path):
    (tmp_path / "trainwright.service").write_text(_unit())
    (tmp_path / "trainwright.slice").write_text(_scope()["SLICE"])
    failed = _scope()["FAILED_UNIT"].format(python="/bin/sh", config="/node.json", code="/opt/trainwright/0")
    (tmp_path / "trainwright-failed.service").write_text(failed)
    units = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], check=False, capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in done.stderr.splitlines() if "trainwright" in line]
    assert (done.returncode, complaints) == (0, [])


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


# --- On Alibaba Cloud

OF_ALIBABA = {
    "AccessKeyId": CREDENTIALS["AccessKeyId"],
    "AccessKeySecret": CREDENTIALS["SecretAccessKey"],
    "SecurityToken": CREDENTIALS["Token"],
    "Expiration": "2030-01-01T00:00:00Z",
}
QUEUE = "https://1234.mns.cn-hangzhou-internal.aliyuncs.com/queues/b-failed-nodes"


@pytest.fixture
def ecs(node):
    """A node of Alibaba Cloud's, whose metadata service knows no other names than that cloud's."""
    node.vendor, node.roles, node.credentials = "aliyun-ecs", "ram", OF_ALIBABA
    return node


def test_one_stage_boots_nodes_of_both_clouds(ecs):
    done = ecs.run(cloud="alicloud")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((ecs.root / "etc/trainwright/node.json").read_text())["cloud"] == "alicloud"


def test_oss_is_asked_within_the_regions_network_with_s3s_signature(monkeypatch):
    """Wherever the environment has S3: what answers there is not to get a node's token."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("TRAINWRIGHT_OSS_ENDPOINT", raising=False)
    scope = _scope(cloud="alicloud")
    request = scope["signed"]("b-1", "bundles/x.tar", "cn-hangzhou", CREDENTIALS)
    assert request.full_url == "https://b-1.s3.oss-cn-hangzhou-internal.aliyuncs.com/bundles/x.tar"
    wanted = _signature("GET", request.full_url, request.headers["X-amz-date"], "cn-hangzhou")
    assert request.headers["Authorization"].endswith(f"Signature={wanted}")


def test_a_stage_that_fails_is_counted_where_the_node_was_told_how(ecs):
    """Nothing else on that cloud counts boots that fail."""
    done = ecs.run(cloud="alicloud", failed=QUEUE, sha256="0" * 64)
    assert done.returncode == exits.STAGE_FAILED
    ((path, headers, body),) = ecs.told
    assert path == "/mns/queues/b-failed-nodes/messages"
    text = f"POST\n\ntext/xml\n{headers['Date']}\nx-mns-version:2015-06-06\n/queues/b-failed-nodes/messages"
    secret = OF_ALIBABA["AccessKeySecret"].encode()
    wanted = base64.b64encode(hmac.new(secret, text.encode(), hashlib.sha1).digest()).decode()
    assert headers["Authorization"] == f"MNS {OF_ALIBABA['AccessKeyId']}:{wanted}"
    assert {name.lower(): value for name, value in headers.items()}["security-token"] == OF_ALIBABA["SecurityToken"]
    assert b"<MessageBody>" in body
    assert OF_ALIBABA["AccessKeySecret"] not in done.stdout


def test_a_stage_that_can_not_be_counted_ends_all_the_same(ecs):
    ecs.vendor = "nobody's"
    done = ecs.run(cloud="alicloud", failed=QUEUE, deadline_s=1)
    assert done.returncode == exits.STAGE_FAILED
    assert "that this boot failed can't be told" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_without_such_a_queue_nothing_is_told(node):
    assert node.run(sha256="0" * 64).returncode == exits.STAGE_FAILED
    assert node.told == []


def test_a_service_that_fails_for_good_is_counted_before_it_shuts_down(node, monkeypatch):
    """By a unit of its own: it sees a step that failed, and an agent that crashed time and again."""
    for folder in ("bin", "run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    (node.root / "bin/systemctl").write_text("#!/bin/sh\nexit 0\n")
    (node.root / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{node.root / 'bin'}:{os.environ['PATH']}")
    units = node.root / "etc/systemd/system"
    assert node.run().returncode == 0
    assert not (units / "trainwright-failed.service").exists()
    assert node.run(failed=QUEUE).returncode == 0
    own, told = (_settings((units / f"trainwright{n}.service").read_text()) for n in ("", "-failed"))
    assert own["OnFailure"] == ["trainwright-failed.service"]
    assert "StartLimitAction" not in own, "it would shut down before anything is told"
    assert "ExecStopPost" not in own
    assert "ExecStopPost" not in told, "it would shut down a node whose agent is to be started again"
    assert told["Environment"][0].startswith("PYTHONPATH=")
    assert int(told["TimeoutStartSec"][0]) <= 60
    config = node.root / "etc/trainwright/node.json"
    assert f"timeout -k 5 20 {sys.executable} -m trainer.node.failed {config}; " in told["ExecStart"][0]


@pytest.mark.parametrize("state", ["failed", "activating"])
@pytest.mark.parametrize("python", ["/bin/true", "/bin/false"])
def test_an_agent_that_is_to_be_started_again_is_no_failed_boot(tmp_path, state, python):
    """Newer versions of systemd run `OnFailure` at each crash, before they start the agent again (systemd#33710)."""
    unit = _scope(failed=QUEUE)["FAILED_UNIT"].format(python=python, config="/node.json", code="/code")
    (command,) = _settings(unit)["ExecStart"]
    assert not {"$", "%"} & set(command), "systemd's own"
    called = tmp_path / "called"
    for tool, does in (
        ("systemctl", f'[ "$1" = is-failed ] && exit {0 if state == "failed" else 3}'),
        ("timeout", 'shift 3; exec "$@"'),
    ):
        (tmp_path / tool).write_text(f'#!/bin/sh\necho {tool} "$@" >> {called}\n{does}\nexit 0\n')
        (tmp_path / tool).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(shlex.split(command), check=False, env=environment, timeout=60)
    asked, *then = called.read_text().splitlines()
    assert (done.returncode, asked) == (0, "systemctl is-failed -q trainwright")
    told = [f"timeout -k 5 20 {python} -m trainer.node.failed /node.json", "systemctl --no-block poweroff"]
    assert then == (told if state == "failed" else []), "whether or not it could be told"
