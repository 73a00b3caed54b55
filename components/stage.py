#!/usr/bin/env python3
"""User-data of a Trainwright node: fetch the bundle from the cluster's bucket, verify it, start its agent.

Runs once, as root, at first boot, with nothing but the image's Python. It holds no secret: the bucket is read with the
node's role. At later boots the service that it installs starts the agent; where there is no systemd, the agent takes
this process over.
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.parse
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener, urlopen

CONFIG = json.loads("@CONFIG@")
ROOT = Path(os.environ.get("TRAINWRIGHT_ROOT", "/"))
ALIBABA = CONFIG.get("cloud") == "alicloud"
METADATA = (
    os.environ.get("TRAINWRIGHT_ECS_METADATA", "http://100.100.100.200")
    if ALIBABA
    else os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
)
FAILED = 70
# What images upgrade by themselves, kernel and driver with it, under a running job. A node is replaced, not upgraded.
UPGRADES = ("unattended-upgrades.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dnf-automatic-install.timer")
UNIT = """[Unit]
Description=Trainwright node agent
After=network-online.target nvidia-fabricmanager.service nvidia-persistenced.service
Wants=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=5
{limit}

[Service]
ExecStart={python} -m trainer.node {config}
{stop}
Environment=PYTHONPATH={code} PYTHONUNBUFFERED=1
Environment=AWS_METADATA_SERVICE_NUM_ATTEMPTS=5 AWS_METADATA_SERVICE_TIMEOUT=2
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=71 72 73 74 76 77 78 79
KillMode=mixed
TimeoutStopSec=150
NoNewPrivileges=yes
Slice=trainwright.slice
TasksMax=infinity
LimitMEMLOCK=infinity
LimitNOFILE=1048576
OOMScoreAdjust=-250
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
"""
LIMIT = "StartLimitAction=poweroff"
STOP = """ExecStopPost=/bin/sh -c 'case "$$EXIT_STATUS" in 7[12346789]) systemctl --no-block poweroff;; esac'"""
# Instead of the two, where the node itself is to say that its boot failed, before it shuts down. Newer versions of
# systemd ask for it at each crash (systemd#33710), and then start the agent again: the service isn't "failed" yet.
ON_FAILURE = "OnFailure=trainwright-failed.service"
FAILED_UNIT = """[Service]
Type=oneshot
ExecStart=/bin/sh -c 'systemctl is-failed -q trainwright || exit 0; \
timeout -k 5 20 {python} -m trainer.node.failed {config}; systemctl --no-block poweroff'
Environment=PYTHONPATH={code}
TimeoutStartSec=30
"""
# Training comes before whatever else the image runs, for CPU time, disk and memory.
SLICE = """[Slice]
CPUWeight=1000
IOWeight=1000
MemoryLow=80%
"""
PROBE = (
    "import sys; from importlib.util import find_spec; "
    "print('.'.join(map(str, sys.version_info[:3])), *[m for m in ('torch', 'numpy') if not find_spec(m)])"
)


class Expired(Exception):
    """The deadline passed. No `OSError`, as a `TimeoutError` is: those are tried again."""


def say(message: str) -> None:
    """A line of the console's log, with the time."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} trainwright stage: {message}", flush=True)


DIRECT = build_opener(ProxyHandler({}))


def metadata(path: str) -> str:
    """A value of the instance metadata service, by token, past any proxy."""
    header = f"X-{'aliyun-ecs' if ALIBABA else 'aws-ec2'}-metadata-token"
    request = Request(f"{METADATA}/latest/api/token", method="PUT")
    request.add_header(f"{header}-ttl-seconds", "300")
    token = DIRECT.open(request, timeout=5).read().decode()
    request = Request(f"{METADATA}/latest/{path}", headers={header: token})
    answer: bytes = DIRECT.open(request, timeout=5).read()
    return answer.decode()


def credentials_of_role() -> dict[str, str]:
    """The node's role's, by AWS's names."""
    path = f"meta-data/{'ram' if ALIBABA else 'iam'}/security-credentials/"
    found: dict[str, str] = json.loads(metadata(path + metadata(path).split()[0]))
    if ALIBABA:
        found.update(SecretAccessKey=found["AccessKeySecret"], Token=found["SecurityToken"])
    return found


def signed(bucket: str, key: str, region: str, credentials: dict[str, str]) -> Request:
    """A GET of an object, signed with AWS Signature Version 4 (S3 API reference, "Authenticating requests")."""
    if endpoint := os.environ.get("TRAINWRIGHT_OSS_ENDPOINT" if ALIBABA else "AWS_ENDPOINT_URL"):
        url = f"{endpoint}/{bucket}/{key}"
    elif ALIBABA:  # OSS takes S3's signature
        url = f"https://{bucket}.s3.oss-{region}-internal.aliyuncs.com/{key}"
    else:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        url = f"https://{bucket}.s3.{region}.{suffix}/{key}"
    parts = urllib.parse.urlsplit(url)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {
        "host": parts.netloc,
        "x-amz-content-sha256": empty,
        "x-amz-date": now,
        "x-amz-security-token": credentials["Token"],
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"GET\n{urllib.parse.quote(parts.path)}\n\n{lines}\n{names}\n{empty}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    secret = f"AWS4{credentials['SecretAccessKey']}".encode()
    for part in (*scope.split("/"), text):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials['AccessKeyId']}/{scope},"
        f"SignedHeaders={names},Signature={secret.hex()}"
    )
    return Request(url, headers=headers)


def fetch(target: Path) -> None:
    """The bundle, written to `target`, its hash verified while it comes."""
    request = signed(CONFIG["bucket"], CONFIG["bundle"], CONFIG["region"], credentials_of_role())
    digest, size = hashlib.sha256(), 0
    with urlopen(request, timeout=30) as answer, target.open("wb") as file:
        while block := answer.read(1 << 20):
            digest.update(block)
            size += file.write(block)
    if size < int(answer.headers.get("Content-Length", 0)):
        raise OSError(f"the connection broke after {size} bytes")
    if digest.hexdigest() != CONFIG["sha256"]:
        raise ValueError(f"the bundle's SHA-256 is {digest.hexdigest()}, not {CONFIG['sha256']}: it was altered")


def image_python() -> str:
    """The path of the image's Python, once it is known to run the agent and to have what trains."""
    name: str = CONFIG["python"]
    python = shutil.which(name)
    if python is None:
        found = f"the image has no {name}"
    else:
        # Modules are looked for, not imported: importing PyTorch takes seconds.
        done = subprocess.run([python, "-c", PROBE], check=False, capture_output=True, text=True, cwd="/")
        version, *missing = done.stdout.split() or ["0"]
        if done.returncode:
            found = f"{python} does not work ({(done.stderr.splitlines() or ['it said nothing'])[-1]})"
        elif missing or tuple(map(int, version.split("."))) < (3, 11):
            found = f"{python} is Python {version}{' without ' if missing else ''}{' and '.join(missing)}"
        else:
            return python
    raise OSError(f"nodes.python: {found}; name the image's Python 3.11 or newer that has torch and numpy")


def install() -> Path:
    """The bundle, unpacked, as a folder named by its hash; whole or not there."""
    code: Path = ROOT / "opt/trainwright" / CONFIG["sha256"]
    if not code.is_dir():
        scratch = code.with_suffix(".part")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for attempt in range(60):
            try:
                fetch(scratch / "bundle.tar")
                break
            except (OSError, LookupError, http.client.HTTPException) as error:
                # A role takes seconds to reach a new instance, and the bucket's policy may lag behind it.
                say(f"bundle not fetched yet (try {attempt + 1}): {error}")
                time.sleep(min(5, 0.5 * 2**attempt))
        else:
            raise OSError("the bundle could not be fetched in 60 tries")
        with tarfile.open(scratch / "bundle.tar") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(scratch)
        (scratch / "bundle.tar").unlink()
        scratch.rename(code)
    return code


def tell() -> None:
    """Count this boot as failed, in the queue that the node was told of, if any (SMQ API, "Request protocol")."""
    try:
        keys = credentials_of_role()
        path = urllib.parse.urlsplit(CONFIG["failed"]).path + "/messages"
        now = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        text = f"POST\n\ntext/xml\n{now}\nx-mns-version:2015-06-06\n{path}"
        signature = hmac.new(keys["SecretAccessKey"].encode(), text.encode(), hashlib.sha1).digest()
        headers = {
            "Authorization": f"MNS {keys['AccessKeyId']}:{base64.b64encode(signature).decode()}",
            "Content-Type": "text/xml",
            "Date": now,
            "x-mns-version": "2015-06-06",
            "security-token": keys["Token"],
        }
        body = b'<Message xmlns="http://mns.aliyuncs.com/doc/v1/"><MessageBody>c3RhZ2U=</MessageBody></Message>'
        elsewhere = os.environ.get("TRAINWRIGHT_ALICLOUD_ENDPOINT")
        url = f"{elsewhere}/mns{path}" if elsewhere else CONFIG["failed"] + "/messages"
        urlopen(Request(url, body, headers), timeout=5).close()
    except Exception as error:
        say(f"that this boot failed can't be told: {error}")


def install_units(python: str, config: Path, code: Path) -> None:
    """Write the service, and what belongs to it."""
    units, paths = ROOT / "etc/systemd/system", {"python": python, "config": config, "code": code}
    (units / "trainwright.slice").write_text(SLICE)
    limit, stop = (ON_FAILURE, "") if CONFIG.get("failed") else (LIMIT, STOP)
    (units / "trainwright.service").write_text(UNIT.format(limit=limit, stop=stop, **paths))
    if CONFIG.get("failed"):
        (units / "trainwright-failed.service").write_text(FAILED_UNIT.format(**paths))


def expire(*_: object) -> None:
    """What the deadline's signal does."""
    raise Expired(f"no agent within {CONFIG['deadline_s']} s")


def main() -> None:
    """Bring the agent up, within the deadline."""
    signal.signal(signal.SIGALRM, expire)
    signal.alarm(CONFIG["deadline_s"])
    python = image_python()
    code = install()
    config = ROOT / "etc/trainwright/node.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(CONFIG))
    signal.alarm(0)
    say(f"bundle {CONFIG['sha256'][:12]} verified; starting the agent of run {CONFIG['run']}")
    if (ROOT / "run/systemd/system").is_dir():
        install_units(python, config, code)
        subprocess.run(["systemctl", "mask", "--now", "--no-block", *UPGRADES], check=False)
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        subprocess.run(["systemctl", "enable", "--now", "trainwright"], check=True)
        return
    os.chdir(code)  # `python -m` looks in the working folder first
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONUNBUFFERED": "1"}
    os.execve(python, [python, "-m", "trainer.node", str(config)], environment)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say(f"failed: {type(error).__name__}: {error}")
        if CONFIG.get("failed"):
            tell()
        if (ROOT / "run/systemd/system").is_dir():
            # A node that can't train must not bill: the template terminates instances that shut down.
            subprocess.run(["systemctl", "poweroff"], check=False)
        sys.exit(FAILED)
