"""User-data fits, everywhere and always."""

import ast
import base64
import json
import sys
from pathlib import Path

import pytest

from components import bootstrap
from components.findings import Invalid
from components.plan import decide
from components.spec import parse
from trainer import exits
from trainer.node.config import NodeConfig

STAGE = (Path(bootstrap.__file__).parent / "stage.py").read_text()


def _longest(stack):
    """A plan whose every text is as long as its check lets it be."""
    changes = {
        "nodes.python": "/" + "p" * 254,
        "job.name": "n" * 40,
        "job.dataset": "d" * 63,
        "job.seed": 2**63 - 1,
        "job.learning_rate": 1.2345678901234567e-101,
        "job.weight_decay": 1.2345678901234567e-101,
    }
    return decide("c" * 32, parse(stack(changes)))


def test_b1_user_data_fits_with_the_longest_inputs(stack):
    """EC2 takes 16,384 bytes before base64 (dask-cloudprovider#249, KiroCrew#2647)."""
    config = bootstrap.node_config(_longest(stack), "b" * 63, f"bundles/{'0' * 64}.tar", "0" * 64)
    script = base64.b64decode(bootstrap.user_data(config))
    assert len(script) <= bootstrap.LIMIT_BYTES == 14_336


def test_user_data_that_would_not_fit_is_refused():
    with pytest.raises(Invalid, match="user-data would be"):
        bootstrap.user_data({"run": "x" * bootstrap.LIMIT_BYTES})


def test_the_agent_finds_in_its_configuration_all_it_reads(stack, tmp_path):
    config = bootstrap.node_config(decide("c1", parse(stack())), "b", "bundles/x.tar", "x")
    path = tmp_path / "node.json"
    path.write_text(json.dumps(config))
    read = NodeConfig.read(path)
    assert (read.run, read.bucket, read.workers, read.gpus) == (config["run"], "b", 1, 0)
    assert read.job == config["job"]


@pytest.mark.parametrize("text", ['quotes " and \\ and \n', "é 😀 \u2028", "'''", "@CONFIG@"])
def test_any_text_arrives_as_it_was(text):
    script = base64.b64decode(bootstrap.user_data({"python": text})).decode()
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    scope = {"json": json}
    exec(line, scope)
    assert scope["CONFIG"] == {"python": text}


def test_the_stage_runs_on_the_oldest_python_that_images_have():
    ast.parse(STAGE, feature_version=(3, 9))


def test_the_stage_needs_nothing_but_the_standard_library():
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(STAGE))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_stage_and_agent_agree_on_exit_codes():
    assert f"FAILED = {exits.STAGE_FAILED}" in STAGE.splitlines()
    listed = next(line for line in STAGE.splitlines() if line.startswith("RestartPreventExitStatus="))
    assert {int(code) for code in listed.split("=")[1].split()} == set(exits.STEP_FAILED.values())
