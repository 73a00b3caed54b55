"""`job.environment`: names that are the cluster's, secrets, and settings that harm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.checks import judge
from components.environment import FORMS, OURS
from components.findings import Finding, Invalid, Severity
from components.spec import parse
from policies import leaks
from trainer.node.peers import Generation, Member
from trainer.node.workers import Job, environment

Stack = Callable[..., dict[str, Any]]
EFA = {"nodes.type": "p4d.24xlarge", "network.egress": "endpoints", "job.batch": 32}
SECRETS = {
    "A": "AKIAIOSFODNN7EXAMPLE",
    "B": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "C": "LTAI5tExampleExample1234",
    "D": "ghp_" + "a1" * 18,
    "E": "hf_" + "b2" * 17,
    "F": "https://me:hunter2hunter2@example.com/x",
    "G": "sk-proj-" + "c3" * 20,
    "H": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "I": "xoxb-12345678901-abc",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "opaque-value-1",
    "DB_PASSWORD": "hunter2",
    "aws_secret_access_key": "whatever1",
}
HARMLESS = {
    "NCCL_DEBUG": "WARN",
    "TOKENIZERS_PARALLELISM": "false",
    "LD_LIBRARY_PATH": "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/opt/x",
    "PAD_TOKEN": "<pad>",
    "EOS_TOKEN": "50256000",
    "COMMIT": "0123456789abcdef0123456789abcdef01234567",
    "API_KEY": "arn:aws:secretsmanager:us-west-2:123456789012:secret:mine",
    "HF_TOKEN": "/mnt/scratch/token",
    "DB_SECRET": "ssm:/mine/password",
    "EMPTY": "",
}


def refused(values: dict[str, Any]) -> list[Finding]:
    with pytest.raises(Invalid) as raised:
        judge("c1", values)
    return raised.value.findings


@pytest.mark.parametrize(("name", "value"), SECRETS.items())
def test_a_secret_is_refused_with_a_way_out_and_never_shown(stack: Stack, name: str, value: str):
    (found,) = refused(stack({"job.environment": {name: value}}))
    assert found.path == f"job.environment.{name}"
    assert "would stand in user-data" in found.reason
    assert "with the node's role" in found.fix
    assert value not in str(found)


@pytest.mark.parametrize("value", [SECRETS["A"], SECRETS["D"], f"--url={SECRETS['F']}"])
def test_a_secret_among_a_commands_words_is_refused(stack: Stack, value: str):
    values = stack() | {"job": {"name": "mine", "command": ["python", "train.py", value]}}
    (found,) = refused(values)
    assert found.path == "job.command.2"
    assert value not in str(found)


def test_what_is_no_secret_is_taken_as_it_is(stack: Stack):
    plan, _ = judge("c1", stack({"job.environment": HARMLESS}))
    assert plan.run.job["environment"] == HARMLESS


def test_secrets_are_known_by_the_forms_that_policies_know():
    """The one judges words of a job, the other user-data as a whole: what passes here is not to fail there."""
    known = {what: form for what, form in leaks.FORMS.items() if what != "a password"}
    assert known.items() <= FORMS.items()


def test_names_of_the_cluster_are_refused_and_are_those_that_a_worker_is_given(stack: Stack):
    member = Member("a", "10.0.0.1", "0", 1)
    job = Job(["x"], "r-1", {}, Path("logs"), Path("scratch"))
    given = environment(job, Generation(1, (member,), 4321, "first", graceful=False, step=0), 0, 0)
    fixed = {name for name in given if not name.startswith("TRAINWRIGHT_")} - {"OMP_NUM_THREADS"}
    assert set(OURS) == fixed | {"GPUS_PER_NODE", "PYTHONPATH"}
    names = [*OURS, "TRAINWRIGHT_STORE"]
    found = refused(stack({"job.environment": dict.fromkeys(names, "1")}))
    assert [one.path for one in found] == [f"job.environment.{name}" for name in names]


@pytest.mark.parametrize(
    "name", ["NCCL_PROTO", "FI_PROVIDER", "RDMAV_FORK_SAFE", "NCCL_IB_HCA", "FI_EFA_USE_DEVICE_RDMA"]
)
def test_what_older_guides_set_on_efa_is_warned_of(stack: Stack, name: str):
    def warned(**changes: Any) -> list[Finding]:
        _, findings = judge("c1", stack(EFA | {f"job.environment.{name}": "1"} | changes))
        return [one for one in findings if one.path == f"job.environment.{name}"]

    (found,) = warned()
    assert found.severity is Severity.WARNING
    assert warned(**{"nodes.fabric": "tcp"}) == []


def test_numbers_are_taken_as_they_would_be_typed_and_true_is_not(stack: Stack):
    spec = parse(stack({"job.environment": {"A": 0, "B": 1.5, "C": "x"}}))
    assert spec.job.environment == {"A": "0", "B": "1.5", "C": "x"}
    (found,) = refused(stack({"job.environment": {"A": True}}))
    assert str(found).startswith("job.environment.A: must be text or a number, not true: write it in quotes")


@pytest.mark.parametrize(
    ("name", "value"), [("1A", "x"), ("A-B", "x"), ("", "x"), ("A", "x\ny"), ("A", "x\0"), ("A", None)]
)
def test_what_no_process_can_be_given_is_refused(stack: Stack, name: str, value: str | None):
    values = stack()
    values["job"]["environment"] = {name: value}
    assert refused(values)


def test_a_users_own_program_has_both_keys_too_and_another_variable_is_another_run(stack: Stack):
    def run(**more: Any) -> str:
        return judge("c1", stack() | {"job": {"name": "mine", "command": ["a"], **more}})[0].run.id

    assert len({run(), run(environment={"A": "1"}), run(environment={"A": "2"}), run(nccl_debug=True)}) == 4


def test_a_run_with_another_limit_is_the_same_and_goes_on(stack: Stack):
    def plan(**more: Any) -> Any:
        return judge("c1", stack({f"job.{key}": value for key, value in more.items()}))[0]

    assert plan(hours=12).run.id == plan(hours=24.5).run.id == plan().run.id
    assert plan(hours=12).run.job["hours"] == 12
    for hours in (-1, 24 * 367, "soon"):
        assert refused(stack({"job.hours": hours}))
