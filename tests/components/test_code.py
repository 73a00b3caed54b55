"""A folder of the user's own code: packed the same anywhere, without what should stay, and only as large as code is."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from components import code
from components.checks import judge
from components.code import Code, pack
from components.findings import Finding, Invalid, Severity
from tests.components.conftest import STACK

OWN = {"name": "mine", "command": ["python", "train.py"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`mine`, beside a Pulumi.yaml; tests run from a folder below it."""
    (tmp_path / "Pulumi.yaml").touch()
    mine = tmp_path / "mine"
    (mine / "pkg").mkdir(parents=True)
    (mine / "train.py").write_text("import pkg")
    (mine / "pkg" / "__init__.py").touch()
    (mine / "run.sh").write_text("#!/bin/sh")
    (mine / "run.sh").chmod(0o755)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return mine


def packed(path: str = "mine") -> Code:
    found = pack(path)
    assert isinstance(found, Code), found
    return found


def names(found: Code) -> dict[str, int]:
    with tarfile.open(fileobj=io.BytesIO(found.content)) as tar:
        return {member.name: member.mode for member in tar}


def test_a_folder_is_the_same_file_whoever_packs_it(folder: Path):
    first = packed()
    assert names(first) == {"pkg/__init__.py": 0o644, "run.sh": 0o755, "train.py": 0o644}
    os.utime(folder / "train.py", (1, 1))
    (folder / "train.py").chmod(0o600)
    assert packed().sha256 == first.sha256
    assert first.key == f"bundles/code-{first.sha256}.tar"
    (folder / "train.py").write_text("import pkg as p")
    assert packed().sha256 != first.sha256


@pytest.mark.parametrize(
    "name",
    [".git/config", ".env", ".env.prod", "deploy.pem", ".aws/credentials", "pkg/__pycache__/x.pyc", ".venv/bin/python"],
)
def test_secrets_and_litter_stay_here(folder: Path, name: str):
    before = packed().sha256
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("secret")
    assert packed().sha256 == before


def refused(path: str = "mine") -> Finding:
    found = pack(path)
    assert isinstance(found, Finding)
    assert found.path == "job.code"
    return found


def test_what_is_no_folder_of_code_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "there is no folder" in refused("absent").reason
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    assert "holds no file" in refused("empty").reason
    monkeypatch.setattr(code, "MOST_BYTES", 15)
    assert "holds more than" in refused().reason
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "MOST_FILES", 2)
    assert "holds more than" in refused().reason


def test_a_link_could_lead_anywhere_and_is_refused(folder: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("s")
    (folder / "pkg" / "link").symlink_to(tmp_path / "secret")
    assert "pkg/link is a link" in refused().reason


def test_a_path_counts_from_where_pulumi_yaml_lies_or_is_absolute(folder: Path):
    assert packed("mine").sha256 == packed(str(folder)).sha256


# --- In the plan


def test_a_run_is_another_when_its_code_changes_and_nodes_are_told_its_hash_alone(folder: Path, tmp_path: Path):
    values = STACK | {"job": OWN | {"code": "mine"}}
    plan, _ = judge("c1", values)
    assert plan.code is not None
    assert plan.run.job["code"] == plan.code.sha256
    assert str(tmp_path) not in str(plan.run.job)
    (folder / "train.py").write_text("1")
    assert judge("c1", values)[0].run.id != plan.run.id


def test_code_is_put_where_nodes_look_and_before_they_boot(folder: Path, mocked: Any):
    records = mocked.cluster(STACK | {"job": OWN | {"code": "mine"}})
    put = records.one("BucketObjectv2", "c1-code")
    assert put.inputs["key"] == packed().key
    assert put.retain_on_delete, "a run that waits in the queue would find none once the folder has changed"
    assert put.urn in records.one("Group").dependencies


def findings(**changes: Any) -> list[Finding]:
    values = STACK | {"job": OWN | changes.pop("job", {})} | changes
    try:
        return judge("c1", values)[1]
    except Invalid as invalid:
        return list(invalid.findings)


def test_a_folder_that_is_not_there_is_told_with_all_else(folder: Path):
    told = findings(job={"code": "absent"}, nodes=STACK["nodes"] | {"type": "m6a.larg"})
    assert {finding.path for finding in told} == {"job.code", "nodes.type"}


def test_checks_of_the_bundled_trainer_leave_a_command_alone(folder: Path):
    """With 40 workers, the default batch of the bundled trainer could not be shared out."""
    assert [f for f in findings(nodes=STACK["nodes"] | {"max": 40}) if f.severity is Severity.ERROR] == []


def test_mpirun_on_many_nodes_needs_nothing_more(folder: Path):
    """Agents start its daemons: no node lets another in by a key."""
    assert not [finding for finding in findings(job={"launcher": "mpirun"}) if finding.path == "job.launcher"]


def test_data_nodes_without_a_dataset_have_nothing_to_serve(folder: Path):
    told = findings(data_nodes={"type": "i4i.32xlarge"})
    assert "data_nodes" in {finding.path for finding in told}
