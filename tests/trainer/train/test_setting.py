"""The environment of an agent, of torchrun and of nothing at all each give a complete setting, or a clear refusal."""

from pathlib import Path

import pytest

from trainer.train.errors import InvalidSetting
from trainer.train.setting import from_environment

AGENT = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "TRAINWRIGHT_RUN": "run-1",
    "TRAINWRIGHT_GENERATION": "7",
    "TRAINWRIGHT_STORE": "s3://bucket/runs/run-1",
    "TRAINWRIGHT_DATA": "/scratch/data",
    "TRAINWRIGHT_SCRATCH": "/scratch/run-1",
    "TRAINWRIGHT_METRICS": "/scratch/metrics.jsonl",
}


def test_an_agents_environment_is_taken_as_it_is():
    setting = from_environment(AGENT, run="other")
    assert (setting.generation, setting.rank, setting.world, setting.local_rank) == (7, 3, 4, 1)
    assert (setting.store, setting.data) == ("s3://bucket/runs/run-1", Path("/scratch/data"))
    assert (setting.scratch, setting.metrics) == (Path("/scratch/run-1"), Path("/scratch/metrics.jsonl"))


def test_one_process_without_an_agent_keeps_all_in_one_folder():
    setting = from_environment({}, run="mine", data=Path("data"))
    assert (setting.rank, setting.world, setting.generation) == (0, 1, 0)
    assert setting.store == "runs/mine"
    assert (setting.scratch, setting.metrics) == (Path("runs/mine/scratch"), Path("runs/mine/metrics.jsonl"))


def test_the_command_line_stands_above_the_environment():
    setting = from_environment(AGENT, run="x", data=Path("d"), store="s")
    assert (setting.data, setting.store) == (Path("d"), "s")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "4"}, "RANK: 4 is not below WORLD_SIZE"),
        ({"RANK": "x"}, "RANK: 'x' is not a whole number"),
        ({"TRAINWRIGHT_GENERATION": "-1"}, "TRAINWRIGHT_GENERATION"),
        ({"TRAINWRIGHT_DATA": ""}, "no data"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, str], message: str):
    with pytest.raises(InvalidSetting, match=message):
        from_environment(AGENT | changes, run="x")
