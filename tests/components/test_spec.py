"""The stack's file: what is wrong in it is said at once, in the user's words, each in one line."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.checks import review
from components.findings import Invalid
from components.spec import Spec, from_config, parse
from trainer.node.nccl import OF_THE_NODE
from trainer.train import config as trainer_config

WRONG = [
    (
        {"region": None},
        "region: is missing. The cloud's region, such as us-west-2. There is no default. Add it to the stack's file",
    ),
    (
        {"region": "mars"},
        "region: 'mars' is not of the right form. The cloud's region, such as us-west-2. There is no default.",
    ),
    ({"regoin": "us-west-2"}, "regoin: there is no such key. Did you mean region?"),
    ({"nodes.desierd": 2}, "nodes.desierd: there is no such key. Did you mean desired?"),
    ({"job.model.layrs": 2}, "job.model.layrs: there is no such key. Did you mean layers?"),
    ({"storage.zzz": 2}, "storage.zzz: there is no such key. Known: cold, noncurrent_days, warm"),
    ({"nodes.desired": 0}, "nodes.desired: must be at least 1, not 0"),
    ({"nodes.desired": -3}, "nodes.desired: must be at least 1, not -3"),
    ({"nodes.desired": 1001}, "nodes.desired: must be at most 1000, not 1001"),
    ({"nodes.desired": "two"}, "nodes.desired: must be a whole number, not 'two'"),
    ({"nodes.desired": 1.5}, "nodes.desired: must be a whole number, not 1.5"),
    ({"nodes": []}, "nodes: must be a mapping with keys such as alternatives, capacity, confidential, containers"),
    (
        {"network.zones": []},
        "network.zones: is empty. Availability zones, one private subnet each. Gangs train best in one.",
    ),
    ({"network.zones": "us-west-2a"}, "network.zones: must be a list, not 'us-west-2a'. Write [us-west-2a]"),
    ({"network.zones": list("abcd")}, "network.zones: has 4 entries, at most 3 are possible"),
    (
        {"network.cidr": "10.0.0.1/16"},
        "network.cidr: '10.0.0.1/16' is not an IPv4 network such as 10.0.0.0/16, with no bits set past its prefix",
    ),
    (
        {"network.cidr": "ten"},
        "network.cidr: 'ten' is not an IPv4 network such as 10.0.0.0/16, with no bits set past its prefix",
    ),
    ({"production": "maybe"}, "production: must be true or false, not 'maybe'"),
    ({"cloud": "gcp"}, "cloud: 'gcp' is not one of 'aws' or 'alicloud'"),
    ({"tags": {"a": 1}}, "tags.a: must be text, not 1"),
    ({"tags": "a"}, "tags: must be a mapping, not 'a'"),
    (
        {"job.name": "My Run"},
        "job.name: 'My Run' is not of the right form. The run's name: lower-case letters, digits, hyphens.",
    ),
    ({"job.name": "a" * 41}, f"job.name: '{'a' * 41}' is longer than 40 characters"),
    ({"job.steps": 0}, "job.steps: must be at least 1, not 0"),
    ({"job.precision": "fp8"}, "job.precision: 'fp8' is not one of 'fp32', 'bf16' or 'fp16'"),
    ({"job.model.dropout": 1}, "job.model.dropout: must be less than 1.0, not 1"),
    ({"job.model.heads": 3}, "job.model: width 128 must be a multiple of twice heads (6)"),
    ({"job.checkpoint.keep": 1}, "job.checkpoint.keep: must be at least 2, not 1"),
    ({"job.learning_rate": float("nan")}, "job.learning_rate: must be a number, not nan"),
    (
        {"job": {"name": "mine", "command": ["python", "a.py"], "steps": 3}},
        "job.steps: there is no such key. It is the bundled trainer's: give the command its own settings as arguments",
    ),
    (
        {"job": {"name": "mine", "command": ["x"], "cod": "."}},
        "job.cod: there is no such key. Did you mean code or command?",
    ),
    (
        {"job": {"name": "mine", "command": "python a.py"}},
        "job.command: must be a list, not 'python a.py'. Write [python, a.py]",
    ),
    (
        {"job.launcher": "mpirun"},
        "job.launcher: there is no such key. It belongs to `job.command`, a program of your own",
    ),
    ({"job.deterministic": "yes"}, "job.deterministic: must be true or false, not 'yes'"),
    ({"job.deterministic": "on"}, "job.deterministic: must be true or false, not 'on'"),
    ({"job.deterministic": 1}, "job.deterministic: must be true or false, not 1"),
    ({"nodes.containers": "true"}, "nodes.containers: must be true or false, not 'true'"),
    ({"job": {"name": "mine", "command": ["a", ""]}}, "job.command.1: is empty"),
    (
        {"job": {"name": "mine", "command": ["a"], "launcher": "srun"}},
        "job.launcher: 'srun' is not one of 'torchrun-env', 'mpirun' or 'deepspeed'",
    ),
]


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[next(iter(changes)) for changes, _ in WRONG])
def test_a_wrong_input_gets_one_clear_line(stack, changes, line):
    with pytest.raises(Invalid) as raised:
        parse(stack(changes))
    assert str(raised.value) == line


def test_a_wrong_value_is_not_repeated_at_length(stack):
    with pytest.raises(Invalid) as raised:
        parse(stack({"nodes.python": "p" * 20_000}))
    assert len(str(raised.value)) < 200


def test_all_errors_come_at_once_in_any_order(stack):
    with pytest.raises(Invalid) as raised:
        parse(stack({"region": None, "nodes.desired": 0, "nodes.desierd": 2, "job.model.layers": "many", "x": 1}))
    assert {f.path for f in raised.value.findings} == {
        "region",
        "nodes.desired",
        "nodes.desierd",
        "job.model.layers",
        "x",
    }


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from([*Spec.model_fields, "type", "zones", "cidr", "model", "name", "desired", ""])
LIKE_A_STACK = st.dictionaries(KEYS, JSON_LIKE | st.dictionaries(KEYS, JSON_LIKE, max_size=4), max_size=8)


@settings(max_examples=150, deadline=None)
@given(LIKE_A_STACK | JSON_LIKE)
@example({"cloud": "\n"})
@example({"\x1b[2J\n": 1})
def test_whatever_is_in_the_file_only_invalid_is_raised_and_each_finding_is_one_line(values):
    findings = ()
    try:
        review("c1", parse(values))
    except Invalid as invalid:
        findings = invalid.findings or pytest.fail("refused without a finding")
    assert all(str(finding).isprintable() for finding in findings)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["trainwright:region", "trainwright:nodes", "aws:region"]), st.text(max_size=20))
)
def test_whatever_pulumi_passes_is_taken_in(config):
    assert not {key for key in from_config(config) if ":" in key and not key.startswith(":")}


def test_from_config_reads_what_pulumi_passes(stack):
    """Scalars arrive as text, all else as JSON; keys of other namespaces are others' business."""
    values = stack({"production": True, "nodes.desired": 3})
    config = {
        f"trainwright:{key}": json.dumps(value) if isinstance(value, dict) else str(value).lower()
        for key, value in values.items()
    }
    spec = parse(from_config({**config, "aws:region": "eu-west-1", "other:nodes": "{}"}))
    assert spec == parse(values)
    assert spec.production is True


@pytest.mark.parametrize(("text", "meant"), [("true", True), ("false", False)])
def test_true_and_false_at_the_top_may_be_text_as_pulumi_writes_them(stack, text, meant):
    assert parse(stack({"production": text})).production is meant


def test_text_that_only_begins_like_json_is_refused_in_words(stack):
    with pytest.raises(Invalid, match=r"region: '\[us-west-2' is not of the right form"):
        parse({**stack(), **from_config({"trainwright:region": "[us-west-2"})})


def test_a_job_is_the_same_to_the_stacks_file_and_to_the_trainer(stack):
    """Two definitions of one contract: the trainer ships alone and has no pydantic."""
    dumped = parse(stack()).job.model_dump(mode="json", exclude=set(OF_THE_NODE))
    parsed = trainer_config.parse({"name": "gpt", "dataset": "text"})

    def as_dict(value):
        fields = getattr(value, "__dataclass_fields__", None)
        return {name: as_dict(getattr(value, name)) for name in fields} if fields else value

    assert as_dict(parsed) == dumped
    assert as_dict(trainer_config.parse(dumped)) == dumped


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"seed": -1},
        {"seed": 2**63},
        {"batch": 0},
        {"micro_batch": 0},
        {"learning_rate": 0},
        {"learning_rate": float("inf")},
        {"warmup_steps": -1},
        {"weight_decay": -0.1},
        {"clip": 0},
        {"precision": "fp8"},
        {"deterministic": "perhaps"},
        {"model": {"layers": 0}},
        {"model": {"heads": 3}},
        {"model": {"width": 4, "heads": 1}},
        {"model": {"context": 7}},
        {"model": {"dropout": 1}},
        {"checkpoint": {"every_steps": 0}},
        {"checkpoint": {"every_seconds": 0}},
        {"checkpoint": {"keep": 1}},
        {"stepz": 1},
    ],
    ids=str,
)
def test_what_the_trainer_would_refuse_on_a_node_the_stacks_file_refuses_before(stack, changes):
    job = {**stack()["job"], **changes}
    with pytest.raises(trainer_config.InvalidJob):
        trainer_config.parse(job)
    with pytest.raises(Invalid):
        parse({**stack(), "job": job})
