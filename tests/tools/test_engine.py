"""The real CLI in this project's environment: up and down, failures, an interrupt, policy packs and providers."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tools import environment, pulumi_cli

pytestmark = pytest.mark.engine

REPO = Path(__file__).parents[2]

PROJECT = """
name: tools-test
runtime: python
stackConfigDir: stacks
config:
  greeting:
    type: string
    default: none
"""

PROGRAM = """
import pulumi
pulumi.export("greeting", pulumi.Config().require("greeting"))
"""

POLICY = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy

def refuse(arguments, report):
    if arguments.resource_type == "pulumi:pulumi:Stack":
        report("the pack has seen the stack")

policy = ResourceValidationPolicy(name="seen", description="Refuses the stack.", validate=refuse)
PolicyPack(name="tools-test", enforcement_level=EnforcementLevel.MANDATORY, policies=[policy])
"""

PROVIDER = """
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import main
import pulumi, sys

class Greeter(Provider):
    def __init__(self):
        super().__init__("1.0.0")
    def construct(self, name, resource_type, inputs, options=None):
        component = pulumi.ComponentResource(resource_type, name, None, options)
        return ConstructResult(component.urn, {"words": "hello " + inputs["who"]})

main(Greeter(), sys.argv[1:])
"""

SLEEPER = """
import time
print("asleep", flush=True)
time.sleep(300)
"""

USES_PROVIDER = """
import pulumi

class Greeter(pulumi.ComponentResource):
    words: pulumi.Output[str]

greeter = Greeter("greeter:index:Greeter", "one", {"who": "engine", "words": None}, remote=True)
pulumi.export("words", greeter.words)
"""


class Project:
    """A Pulumi project in a folder of its own, and the CLI in this project's environment."""

    def __init__(self, root: Path, cli: pulumi_cli.PulumiCLI) -> None:
        self.cli = cli
        self.folder = root / "project with a space"
        home = root / "home"
        self.folder.mkdir(parents=True)
        environment.prepare(home, cli)
        self.environment = {**os.environ, **environment.embedded(home, cli)}
        self.write("Pulumi.yaml", PROJECT)
        self.write("__main__.py", PROGRAM)
        self.write("stacks/Pulumi.local.yaml", "config:\n  tools-test:greeting: hello\n")
        self.pulumi("stack", "init", "local")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["pulumi", "--non-interactive", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def pulumi(self, *arguments: str, code: int = 0) -> str:
        with self.start(*arguments) as process:
            try:
                output, _ = process.communicate(timeout=60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        assert (process.returncode == 0) == (code == 0), output
        return output


@pytest.fixture(scope="session")
def cli() -> pulumi_cli.PulumiCLI:
    try:
        return pulumi_cli.present()
    except pulumi_cli.NoPulumiCLI as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
def project(tmp_path, cli):
    return Project(tmp_path, cli)


def test_an_empty_program_goes_up_changes_nothing_twice_and_comes_down(project):
    first = project.pulumi("up", "--yes", "--stack", "local")
    assert "+ 1 created" in first
    assert 'greeting: "hello"' in first
    assert "warning" not in first
    assert "1 unchanged" in project.pulumi("up", "--yes", "--stack", "local", "--expect-no-changes")
    assert "- 1 deleted" in project.pulumi("destroy", "--yes", "--stack", "local")


def test_a_refused_argument_is_one_line_and_a_failure(project):
    project.write("__main__.py", "import pulumi\nraise pulumi.RunError('nodes: must be at least 1, not 0')\n")
    output = project.pulumi("up", "--yes", "--stack", "local", code=1)
    diagnostics = output.partition("Diagnostics:")[2].partition("Resources:")[0].split("\n")
    assert [line.strip() for line in diagnostics if line.strip()] == [
        "pulumi:pulumi:Stack (tools-test-local):",
        "error: nodes: must be at least 1, not 0",
    ]


def test_a_broken_program_shows_the_users_own_lines_only(project):
    project.write("helper.py", "def look_up():\n    return {}['key']\n")
    project.write("__main__.py", "import helper\nhelper.look_up()\n")
    output = project.pulumi("preview", "--stack", "local", code=1)
    assert "KeyError: 'key'" in output
    assert "helper.py" in output
    assert "runpy" not in output


def test_a_program_that_leaves_with_a_code_is_a_failure(project):
    project.write("__main__.py", "import sys\nprint('last words')\nsys.exit(3)\n")
    output = project.pulumi("preview", "--stack", "local", code=1)
    assert "last words" in output
    assert "code 3" in output or "code: 3" in output


def test_an_interrupt_ends_everything_within_seconds(project):
    project.write("__main__.py", SLEEPER)
    with project.start("preview", "--stack", "local") as process:
        try:
            next(line for line in process.stdout if "asleep" in line)
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=60)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0
    assert "Traceback" not in output
    assert_alone(project)


def test_a_killed_cli_leaves_no_process_behind(project):
    project.write("__main__.py", SLEEPER)
    with project.start("preview", "--stack", "local") as process:
        next(line for line in process.stdout if "asleep" in line)
        process.kill()
    assert_alone(project)


def assert_alone(project: Project) -> None:
    """Waits a little for every process of the project's environment to end."""
    deadline = time.monotonic() + 30
    while left := processes_of(project):
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)


def processes_of(project: Project) -> list[str]:
    mark = f"PULUMI_HOME={project.environment['PULUMI_HOME']}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.fixture
def own_interpreter(project):
    """Runtime options by which an official host, which wants a virtual environment for plugins, finds ours."""
    if sys.prefix == sys.base_prefix:
        return "runtime: python"
    return f"runtime: {{name: python, options: {{virtualenv: '{sys.prefix}'}}}}"


def test_a_policy_pack_runs_and_can_refuse(project, own_interpreter):
    project.write("pack/PulumiPolicy.yaml", f"{own_interpreter}\nversion: 0.0.1\ndescription: test\n")
    project.write("pack/__main__.py", POLICY)
    output = project.pulumi("preview", "--stack", "local", "--policy-pack", "pack", code=1)
    assert "the pack has seen the stack" in output


def test_a_provider_written_in_python_runs(project, own_interpreter):
    plugins = "plugins:\n  providers:\n    - name: greeter\n      path: ./greeter\n"
    project.write("Pulumi.yaml", PROJECT + plugins)
    project.write("greeter/PulumiPlugin.yaml", own_interpreter)
    project.write("greeter/__main__.py", PROVIDER)
    project.write("__main__.py", USES_PROVIDER)
    assert 'words   : "hello engine"' in project.pulumi("up", "--yes", "--stack", "local").replace(
        "words:", "words   :"
    )


def test_the_language_host_is_ours_only_if_the_cli_has_none(project):
    """Guards that an official installation works with nothing of ours but the providers."""
    own = shutil.which(pulumi_cli.LANGUAGE_HOST, path=str(project.cli.path.resolve().parent))
    ours = list(Path(project.environment["PULUMI_HOME"]).glob(f"plugins/*/{pulumi_cli.LANGUAGE_HOST}"))
    assert bool(ours) == project.cli.needs_language_host
    assert not (own and ours)
