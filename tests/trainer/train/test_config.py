"""The trainer's job and the stack file's are the same, and bad input is refused whole, in words."""

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from components import spec
from trainer.node.nccl import OF_THE_NODE
from trainer.train import config
from trainer.train.errors import InvalidJob

REQUIRED = {"name": "a-run", "dataset": "some-text"}


def defaults(kind: type) -> dict[str, object]:
    """Field defaults of a dataclass or a pydantic model, nested ones too; None for those without."""
    found: dict[str, object] = {}
    if dataclasses.is_dataclass(kind):
        for item in dataclasses.fields(kind):
            factory = item.default_factory
            nested = factory is not dataclasses.MISSING
            default = defaults(factory) if nested else item.default
            found[item.name] = None if default is dataclasses.MISSING else default
    else:
        for name, item in kind.model_fields.items():
            nested = item.default_factory not in {None, dict}
            default = defaults(item.default_factory) if nested else item.default
            found[name] = None if default is PydanticUndefined else default
    return found


def test_names_and_defaults_are_those_of_the_stack_file():
    """But for what the agent heeds and keeps from the trainer."""
    told = {name: default for name, default in defaults(spec.Job).items() if name not in OF_THE_NODE}
    assert defaults(config.Job) == told
    assert set(OF_THE_NODE) < set(defaults(spec.Job))


def test_every_field_given_is_kept():
    job = config.parse(REQUIRED)
    assert config.parse(json.loads(json.dumps(dataclasses.asdict(job)))) == job


BAD = [
    {"steps": 0},
    {"steps": "many"},
    {"steps": 1.5},
    {"steps": True},
    {"seed": -1},
    {"batch": 0},
    {"micro_batch": 0},
    {"learning_rate": 0},
    {"warmup_steps": -1},
    {"weight_decay": -0.1},
    {"clip": 0},
    {"precision": "fp8"},
    {"sharding": "fsdp2"},
    {"activation_checkpointing": 1},
    {"compile": "yes"},
    {"deterministic": 1},
    {"stepz": 3},
    {"model": {"layers": 0}},
    {"model": {"width": 130}},
    {"model": {"context": 4}},
    {"model": {"dropout": 1}},
    {"model": 4},
    {"checkpoint": {"every_steps": 0}},
    {"checkpoint": {"every_seconds": 0}},
    {"checkpoint": {"keep": 1}},
    {"checkpoint": {"keep_days": -1}},
]


@pytest.mark.parametrize("values", BAD, ids=json.dumps)
def test_what_is_refused_here_is_refused_by_the_stack_file(values: dict[str, object]):
    with pytest.raises(InvalidJob):
        config.parse(REQUIRED | values)
    with pytest.raises(ValidationError):
        spec.Job.model_validate(REQUIRED | values, strict=True)


def test_all_problems_are_told_at_once_by_path():
    values = {"dataset": "x", "stepz": 3, "batch": -1, "learning_rate": float("nan"), "model": {"heads": "two"}}
    with pytest.raises(InvalidJob) as caught:
        config.parse(values)
    text = str(caught.value)
    assert "stepz: there is no such key; did you mean steps?" in text
    assert "name: is missing" in text
    assert "batch: must be at least 1, not -1" in text
    assert "learning_rate: must be finite, not nan" in text
    assert "model.heads: must be a whole number, not 'two'" in text
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize("content", ["", "[1", "[]"])
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "job.json"
    path.write_text(content)
    with pytest.raises(InvalidJob):
        config.read(path)


def test_an_absent_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidJob, match=r"absent\.json: there is no such file"):
        config.read(tmp_path / "absent.json")
