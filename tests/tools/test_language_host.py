"""The language host by itself: which interpreter it takes, how it passes output on, and that it always ends."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import language_pb2 as messages
from pulumi.runtime.proto import language_pb2_grpc as service

from tools.language_host import host, program

EXECUTABLE = Path(host.__file__).with_name("pulumi-language-python")

ECHO = """
import os, sys
print("port", flush=True)
print("trouble", file=sys.stderr, flush=True)
print(sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), flush=True)
sys.exit(7)
"""

STUBBORN = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""


class Running:
    """A language host as the CLI starts it: a process group of its own, and a pipe as stdin."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.channel = grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}")
        self.calls = service.LanguageRuntimeStub(self.channel)

    def run_plugin(self, folder: Path, *arguments: str, **environment: str):
        pairs = [f"{name}={value}" for name, value in environment.items()]
        return self.calls.RunPlugin(
            messages.RunPluginRequest(
                pwd=str(folder), args=arguments, env=pairs, info=info(folder), kind="analyzer", name="test"
            ),
            timeout=30,
        )

    def ended(self, seconds: float) -> int:
        return self.process.wait(seconds)


def info(folder: Path, **options: str) -> messages.ProgramInfo:
    struct = Struct()
    struct.update(options)
    return messages.ProgramInfo(
        root_directory=str(folder), program_directory=str(folder), entry_point=".", options=struct
    )


@pytest.fixture
def language_host(tmp_path):
    process = subprocess.Popen(
        [EXECUTABLE, "127.0.0.1:1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PULUMI_PYTHON_CMD": sys.executable},
        cwd=tmp_path,
    )
    running = Running(process)
    yield running
    running.channel.close()
    process.stdin.close()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    process.stdout.close()


def write_program(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "__main__.py").write_text(text)
    return folder


def test_a_plugins_output_and_exit_code_are_passed_on(language_host, tmp_path):
    folder = write_program(tmp_path / "plugin", ECHO)
    responses = list(language_host.run_plugin(folder, "127.0.0.1:9", GIVEN="yes"))
    stdout = b"".join(response.stdout for response in responses).decode()
    assert stdout == f"port\n['127.0.0.1:9'] {folder} yes\n"
    assert b"".join(response.stderr for response in responses) == b"trouble\n"
    assert [response.exitcode for response in responses if response.WhichOneof("output") == "exitcode"] == [7]
    assert responses[-1].exitcode == 7


@pytest.mark.parametrize("end", ["interrupt", "cancel", "parent gone"])
def test_the_host_ends_at_once_and_takes_stubborn_plugins_with_it(language_host, tmp_path, end):
    stream = language_host.run_plugin(write_program(tmp_path / "plugin", STUBBORN))
    pid = int(next(stream).stdout)
    reader = threading.Thread(target=drain, args=(stream,), daemon=True)
    reader.start()
    if end == "interrupt":
        os.killpg(language_host.process.pid, signal.SIGINT)
    elif end == "cancel":
        language_host.calls.Cancel(Empty(), timeout=30)
    else:
        language_host.process.stdin.close()
    assert language_host.ended(30) == 0
    assert not Path(f"/proc/{pid}").exists()


def drain(stream) -> None:
    try:
        for _ in stream:
            pass
    except grpc.RpcError:
        pass


def test_a_stubborn_plugin_has_less_time_than_the_cli_gives_its_host():
    """Five seconds, and then it kills the host alone."""
    assert host._GRACE < 5


def test_an_idle_host_ends_by_an_interrupt(language_host):
    os.killpg(language_host.process.pid, signal.SIGINT)
    assert language_host.ended(30) == 0


def test_no_plugin_is_asked_for_and_the_interpreter_is_named(language_host, tmp_path):
    assert not language_host.calls.GetRequiredPackages(messages.GetRequiredPackagesRequest(), timeout=30).packages
    about = language_host.calls.About(messages.AboutRequest(info=info(tmp_path)), timeout=30)
    assert about.executable == sys.executable


def test_the_virtual_environment_that_the_project_names_is_used(tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert host.interpreter(info(tmp_path, virtualenv=".venv")) == python
    assert host.interpreter(info(Path("/elsewhere"), virtualenv=str(tmp_path / ".venv"))) == python


def test_a_virtual_environment_that_is_not_there_is_said_and_ours_is_used(tmp_path, capsys):
    assert host.interpreter(info(tmp_path, virtualenv=".venv")) == Path(sys.executable)
    [line] = capsys.readouterr().err.splitlines()
    assert str(tmp_path / ".venv") in line
    assert sys.executable in line


def test_a_project_that_names_none_runs_with_the_hosts_interpreter(tmp_path, capsys):
    assert host.interpreter(info(tmp_path)) == Path(sys.executable)
    assert capsys.readouterr().err == ""


def test_a_program_finds_its_own_interpreter_first_on_path():
    assert host.activated(Path("/venv/bin/python"), {"PATH": "/usr/bin", "A": "1"}) == {
        "PATH": "/venv/bin:/usr/bin",
        "A": "1",
    }


def test_host_and_program_agree_on_the_code_for_a_reported_error():
    assert host.REPORTED == program.REPORTED
