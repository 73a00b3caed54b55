"""The variables for `pulumi` typed by hand: what is on PATH, where it writes, and which language host it finds."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tools import environment
from tools.pulumi_cli import LANGUAGE_HOST, PulumiCLI

STAND_INS = [f"resource-{name}-v{version(f'pulumi-{name}')}/pulumi-resource-{name}" for name in ("alicloud", "aws")]
OWN = PulumiCLI(Path("/usr/local/bin/pulumi"), "3.280.0", "path", needs_language_host=False)
BUILT = PulumiCLI(Path("/cache/3.274.1/bin/pulumi"), "3.274.1", "module", needs_language_host=True)
OFFICIAL = PulumiCLI(Path("/cache/3.274.1/bin/pulumi"), "3.274.1", "official", needs_language_host=False)


def plugins(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home / "pulumi" / "plugins")) for path in (home / "pulumi").rglob("pulumi-*"))


def test_an_own_cli_gets_nothing_of_ours_on_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin")
    assert environment.embedded(tmp_path, OWN)["PATH"] == "/usr/local/bin:/usr/bin"


@pytest.mark.parametrize("cli", [BUILT, OFFICIAL])
def test_an_installed_cli_comes_before_the_users_path(monkeypatch, tmp_path, cli):
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin")
    assert environment.embedded(tmp_path, cli)["PATH"] == "/cache/3.274.1/bin:/usr/local/bin:/usr/bin"


def test_applying_the_environment_twice_changes_nothing(monkeypatch, tmp_path):
    first = environment.embedded(tmp_path, BUILT)
    monkeypatch.setenv("PATH", first["PATH"])
    assert environment.embedded(tmp_path, BUILT) == first


def test_everything_written_lies_below_the_local_folder(tmp_path):
    values = environment.embedded(tmp_path, BUILT)
    assert values["PULUMI_HOME"] == str(tmp_path / "pulumi")
    assert values["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/state"
    assert values["TRAINWRIGHT_HOME"] == str(tmp_path)
    assert values["PULUMI_PYTHON_CMD"] == sys.executable


def test_a_real_cloud_keeps_the_users_login_state_and_plugins():
    assert set(environment.own(BUILT)) == {"PATH", "PULUMI_SKIP_UPDATE_CHECK", "PULUMI_PYTHON_CMD"}


def test_a_real_cloud_finds_our_language_host_where_the_cli_has_none(monkeypatch):
    """Else `up` of a real stack ends with "no language plugin": the user's own plugins are not ours to add to."""
    monkeypatch.setenv("PATH", "/usr/bin")
    folders = environment.own(BUILT)["PATH"].split(os.pathsep)
    assert Path(folders[1], LANGUAGE_HOST).is_file()
    assert (folders[0], folders[2:]) == ("/cache/3.274.1/bin", ["/usr/bin"])
    assert environment.own(OFFICIAL)["PATH"] == "/cache/3.274.1/bin:/usr/bin"


def test_the_stand_ins_are_plugins_of_the_installed_sdks_versions(tmp_path):
    environment.prepare(tmp_path, OWN)
    assert plugins(tmp_path) == STAND_INS
    assert all(os.access(tmp_path / "pulumi" / "plugins" / plugin, os.X_OK) for plugin in plugins(tmp_path))


def test_a_cli_that_lacks_a_language_host_is_given_ours(tmp_path):
    environment.prepare(tmp_path, BUILT)
    assert plugins(tmp_path) == [f"language-python-v3.274.1/{LANGUAGE_HOST}", *STAND_INS]
    assert os.access(tmp_path / "pulumi" / "plugins" / plugins(tmp_path)[0], os.X_OK)
    assert (tmp_path / "state").is_dir()
    before = plugins(tmp_path)
    environment.prepare(tmp_path, BUILT)
    assert plugins(tmp_path) == before


def test_ours_goes_when_the_cli_brings_its_own(tmp_path):
    environment.prepare(tmp_path, BUILT)
    environment.prepare(tmp_path, OFFICIAL)
    assert plugins(tmp_path) == STAND_INS


def test_a_moved_checkout_is_followed(tmp_path):
    environment.prepare(tmp_path, BUILT)
    link = tmp_path / "pulumi" / "plugins" / plugins(tmp_path)[0]
    link.unlink()
    link.symlink_to("/where/the/checkout/was")
    environment.prepare(tmp_path, BUILT)
    assert link.exists()
