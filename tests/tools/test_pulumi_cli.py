"""In which order the Pulumi CLI is looked for, what fits, and what a user is told when nothing does."""

import threading
import time
import tomllib
from pathlib import Path

import pytest

from tools import gobuild, official, pulumi_cli
from tools.processes import Failed

REPO = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_installer(monkeypatch):
    """No test reaches the network or a compiler: a way that a test doesn't replace is a way that fails."""

    def refuse(*_arguments):
        raise Failed("not in this test")

    monkeypatch.setattr(official, "install", refuse)
    monkeypatch.setattr(gobuild, "install", refuse)


def official_from(machine, answer, *, calls=None, seconds=0.0):
    def install(root, version, home):
        if calls is not None:
            calls.append(version)
        time.sleep(seconds)
        machine.pulumi(root / "bin", answer)
        machine.executable(root / "bin" / pulumi_cli.LANGUAGE_HOST, "exit 1")

    return install


def test_the_oldest_cli_is_the_sdks_lower_bound_and_the_pinned_one_fits():
    dependencies = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["dependencies"]
    minimum = ".".join(map(str, pulumi_cli.MINIMUM))
    assert f"pulumi>={minimum},<{pulumi_cli.MINIMUM[0] + 1}" in dependencies
    assert tuple(map(int, gobuild.pinned_version().split(".")[:2])) >= pulumi_cli.MINIMUM


def test_the_users_own_cli_comes_first(machine, progress, monkeypatch):
    entry = machine.cache / "trainwright" / "pulumi" / gobuild.pinned_version() / "bin"
    machine.pulumi(entry, f"v{gobuild.pinned_version()}")
    own = machine.pulumi(machine.bin, "v3.290.1")
    machine.executable(machine.bin / pulumi_cli.LANGUAGE_HOST, "exit 1")
    found = pulumi_cli.find(progress)
    assert found == pulumi_cli.PulumiCLI(own, "3.290.1", "path", needs_language_host=False)
    assert progress.notes == []


def test_an_own_cli_without_a_language_host_is_given_ours(machine, progress):
    machine.pulumi(machine.bin, "v3.272.0")
    assert pulumi_cli.find(progress).needs_language_host


def test_a_language_host_beside_the_file_that_a_link_points_to_counts(machine, progress):
    real = machine.pulumi(machine.home / "pulumi" / "bin", "v3.280.0")
    machine.executable(real.parent / pulumi_cli.LANGUAGE_HOST, "exit 1")
    (machine.bin / "pulumi").symlink_to(real)
    assert not pulumi_cli.find(progress).needs_language_host


def test_a_language_host_elsewhere_on_path_counts(machine, progress, monkeypatch):
    machine.pulumi(machine.bin, "v3.280.0")
    other = machine.executable(machine.home / "other" / pulumi_cli.LANGUAGE_HOST, "exit 1")
    monkeypatch.setenv("PATH", f"{machine.bin}:{other.parent}")
    assert not pulumi_cli.find(progress).needs_language_host


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo v3.271.9", "is version 3.271.9, and 3.272 or newer (3.x) is needed"),
        ("echo v4.0.0", "is version 4.0.0, and 3.272 or newer (3.x) is needed"),
        ("echo hello", "answers 'hello'"),
        ("echo broken >&2; exit 3", "failed: broken"),
        ("exit 3", "ended with code 3"),
    ],
)
def test_a_cli_that_does_not_fit_is_passed_over_in_one_line(machine, progress, monkeypatch, script, reason):
    machine.executable(machine.bin / "pulumi", script)
    monkeypatch.setattr(official, "install", official_from(machine, f"v{gobuild.pinned_version()}"))
    assert pulumi_cli.find(progress).source == "official"
    [note] = progress.notes
    assert reason in note
    assert "\n" not in note


def test_a_development_build_counts_by_its_numbers(machine, progress):
    machine.pulumi(machine.bin, "v3.275.0-alpha.x8db1c01")
    assert pulumi_cli.find(progress).version == "3.275.0"


def test_asking_for_the_version_leaves_the_users_pulumi_folder_alone(machine, progress):
    script = 'mkdir -p "${PULUMI_HOME:-$HOME/.pulumi}/logs"; echo v3.280.0'
    machine.executable(machine.bin / "pulumi", f"PATH=/usr/bin:/bin; {script}")
    pulumi_cli.find(progress)
    assert list(machine.home.iterdir()) == []


def test_the_official_download_comes_before_a_build_and_needs_nothing_of_ours(machine, progress, monkeypatch):
    monkeypatch.setattr(official, "install", official_from(machine, f"v{gobuild.pinned_version()}"))
    found = pulumi_cli.find(progress)
    assert (found.source, found.needs_language_host) == ("official", False)
    assert found.version == gobuild.pinned_version()


def test_a_build_follows_a_failed_download_and_is_kept(machine, progress, monkeypatch):
    def build(root, _progress):
        machine.pulumi(root / "bin", f"v{gobuild.pinned_version()}")

    monkeypatch.setattr(gobuild, "install", build)
    built = pulumi_cli.find(progress)
    assert (built.source, built.needs_language_host) == ("module", True)
    monkeypatch.setattr(gobuild, "install", None)
    assert pulumi_cli.find(progress) == built
    assert pulumi_cli.present() == built


def test_an_installed_cli_of_another_version_is_refused(machine, progress, monkeypatch):
    monkeypatch.setattr(official, "install", official_from(machine, "v3.1.0"))
    with pytest.raises(pulumi_cli.NoPulumiCLI, match=r"it says that it is version 3\.1\.0"):
        pulumi_cli.find(progress)
    left = [path.name for path in (machine.cache / "trainwright" / "pulumi").iterdir()]
    assert left == [f"{gobuild.pinned_version()}.lock"]


def test_two_checkouts_install_once(machine, progress, monkeypatch):
    calls: list[str] = []
    install = official_from(machine, f"v{gobuild.pinned_version()}", calls=calls, seconds=0.5)
    monkeypatch.setattr(official, "install", install)
    found = []
    threads = [threading.Thread(target=lambda: found.append(pulumi_cli.find(progress))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 2
    assert found[0] == found[1]
    assert calls == [gobuild.pinned_version()]
    assert any("waiting for another process" in phase for phase in progress.phases)


def test_when_nothing_works_each_way_has_its_reason_and_the_user_is_told_what_to_do(machine, progress):
    with pytest.raises(pulumi_cli.NoPulumiCLI) as refused:
        pulumi_cli.find(progress)
    message = str(refused.value)
    for line in (
        "- `pulumi` on PATH: there is none",
        f"- the official download ({gobuild.pinned_version()}): not in this test",
        f"- a build with Go ({gobuild.pinned_version()}): not in this test",
        "pulumi.com/docs/install",
        f"Go {gobuild.needed_go()} or newer",
    ):
        assert line in message


def test_a_cache_that_cannot_be_written_is_named(machine, progress):
    machine.cache.write_text("a file where the folder should be")
    with pytest.raises(pulumi_cli.NoPulumiCLI, match="can't be written"):
        pulumi_cli.find(progress)


def test_present_installs_nothing(machine, monkeypatch):
    monkeypatch.setattr(official, "install", official_from(machine, f"v{gobuild.pinned_version()}"))
    with pytest.raises(pulumi_cli.NoPulumiCLI, match="make setup"):
        pulumi_cli.present()
    assert not machine.cache.exists()
