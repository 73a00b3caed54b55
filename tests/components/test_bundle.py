"""The bundle: the same from every machine, small, and enough to run the agent from."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from components.bundle import SERVICES, TRAINER, build, default_folder


@pytest.fixture(scope="module")
def names(bundle):
    with tarfile.open(bundle.path) as archive:
        return archive.getnames()


def test_two_builds_are_equal(bundle, tmp_path):
    again = build(tmp_path)
    assert again.sha256 == bundle.sha256
    assert again.path.read_bytes() == bundle.path.read_bytes()


def test_a_bundle_that_is_there_is_kept(bundle):
    before = bundle.path.stat().st_mtime_ns
    assert build(bundle.path.parent).path.stat().st_mtime_ns == before
    assert list(bundle.path.parent.iterdir()) == [bundle.path], "no temporary file is left"


def test_it_holds_nothing_that_differs_between_machines(bundle, names):
    assert not [
        name for name in names if name.endswith((".pyc", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json"))
    ]
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    with tarfile.open(bundle.path) as archive:
        kinds = {(i.mtime, i.uid, i.gid, i.uname, i.gname, i.mode, i.isfile()) for i in archive.getmembers()}
    assert kinds == {(0, 0, 0, "", "", 0o644, True)}


def test_it_holds_the_trainer_and_what_nodes_call_and_no_more(bundle, names):
    assert {"trainer/node/__main__.py", "trainer/train/__main__.py", "boto3/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith(("components/", "emulator/", "cli/", "/", ".."))]
    services = {name.split("/")[2] for name in names if name.startswith("botocore/data/") and name.count("/") > 2}
    assert services == set(SERVICES)
    assert 1 << 20 < bundle.path.stat().st_size < 10 << 20


def test_nodes_have_the_model_of_every_service_that_they_call():
    """Without it a call fails on a node and nowhere else: here, botocore has them all."""
    called = {
        service
        for path in TRAINER.rglob("*.py")
        for service in re.findall(r"""\bclient\(\s*["']([a-z0-9-]+)["']""", path.read_text())
    }
    assert {"s3", "autoscaling"} <= called <= set(SERVICES)


def test_b2_b3_nodes_install_nothing():
    """A package manager's lock, a mirror that is down, or a newer driver would fail a node (awsome-distributed-ai#243).

    What a node needs and the bundle lacks, its image has.
    """
    installers = re.compile(r"""\b(apt|apt-get|dnf|yum|zypper|pip|pip3|conda|curl|wget)["' ]""")
    found = [
        f"{path.name}: {line.strip()}"
        for path in (*TRAINER.rglob("*.py"), TRAINER.parent / "components" / "stage.py")
        for line in path.read_text().splitlines()
        if installers.search(line) and not line.lstrip().startswith("#")
    ]
    assert found == []


def test_the_agent_runs_from_the_bundle_alone(bundle, tmp_path):
    """On an image that has nothing but Python: no site-packages, no environment (`-S -E`)."""
    with tarfile.open(bundle.path) as archive:
        archive.extractall(tmp_path, filter="data")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import boto3, trainer.node.peers, trainer.node.agent, trainer.metadata, trainer.node.__main__
client = boto3.client("s3", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
assert client.meta.endpoint_url == "https://s3.us-west-2.amazonaws.com", client.meta.endpoint_url
outside = [m.__file__ for m in sys.modules.values() if "site-packages" in (getattr(m, "__file__", "") or "")]
assert not outside, outside
"""
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-B", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_no_folder_of_a_users_own_project_is_written_to(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWRIGHT_HOME", "/home/of/it")
    assert default_folder() == Path("/home/of/it/bundle")
    monkeypatch.delenv("TRAINWRIGHT_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "trainwright/bundle"
    monkeypatch.setenv("HOME", "/home/u")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert default_folder() == Path("/home/u/.cache/trainwright/bundle")
