"""Runs that no agent started, and a scratch that two of them were given."""

from pathlib import Path

import pytest

from trainer.train.alone import alone
from trainer.train.errors import InvalidSetting
from trainer.train.setting import from_environment


def setting(folder: Path, **environment: str):
    return from_environment(environment, run="r", data=folder, store=str(folder / "store"))


def test_a_second_run_is_refused_while_the_first_holds_the_folder(tmp_path: Path):
    refused = pytest.raises(InvalidSetting, match=r"store/scratch: another process trains into it")
    with alone(setting(tmp_path)), refused, alone(setting(tmp_path)):
        pass
    with alone(setting(tmp_path)):
        pass


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "2"}, {"TRAINWRIGHT_GENERATION": "2"}])
def test_a_rank_that_froze_keeps_off_none_that_takes_its_place(tmp_path: Path, environment: dict[str, str]):
    with alone(setting(tmp_path, **environment)), alone(setting(tmp_path, **environment)):
        pass
