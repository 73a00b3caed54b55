"""The official download: bounded, and its failure is one line."""

import subprocess
from pathlib import Path

import pulumi.automation
import pytest

from tools import official
from tools.processes import Failed


def test_a_network_that_refuses_is_said_in_one_line(tmp_path, monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Failed, match=r"Connection refused\W*$") as failure:
        official.install(tmp_path / "root", "3.274.1", tmp_path / "home")
    assert "\n" not in str(failure.value)
    assert "Traceback" not in str(failure.value)


def test_the_wanted_version_goes_to_the_wanted_folder(monkeypatch):
    seen = {}
    monkeypatch.setattr(pulumi.automation.PulumiCommand, "install", lambda **arguments: seen.update(arguments))
    monkeypatch.setattr(official.socket, "setdefaulttimeout", lambda seconds: seen.update(seconds=seconds))
    assert official._main("/root/folder", "3.274.1") is None
    assert (seen["root"], str(seen["version"])) == ("/root/folder", "3.274.1")
    assert 0 < seen["seconds"] <= 30


def test_the_installers_last_line_is_the_reason(monkeypatch):
    def fail(**_arguments):
        raise subprocess.CalledProcessError(1, "install.sh", output=b"+ Downloading\nerror: failed to download\n\n")

    monkeypatch.setattr(pulumi.automation.PulumiCommand, "install", fail)
    monkeypatch.setattr(official.socket, "setdefaulttimeout", lambda _seconds: None)
    assert official._main("/root/folder", "3.274.1") == "error: failed to download"


def test_the_cli_that_was_downloaded_writes_into_the_given_home(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(official, "run", lambda command, **options: seen.update(options))
    official.install(tmp_path / "root", "3.274.1", tmp_path / "home")
    assert seen["environment"] == {"PULUMI_HOME": str(tmp_path / "home")}
    assert seen["limit"] == official.LIMIT
    assert Path(seen["folder"], "tools", "official.py").exists()
