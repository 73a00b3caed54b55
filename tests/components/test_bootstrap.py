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
    warm = f"fs-{'0' * 17}.fsx.ap-northeast-1.amazonaws.com@tcp:/{'m' * 8}"
    queue = f"https://sqs.ap-northeast-1.amazonaws.com/{'1' * 12}/{'q' * 80}"
    config = bootstrap.node_config(_longest(stack), "b" * 63, f"bundles/{'0' * 64}.tar", "0" * 64, warm, queue)
    script = base64.b64decode(bootstrap.user_data(config))
    assert len(script) <= bootstrap.LIMIT_BYTES == 14_336


def test_b1_user_data_fits_on_alibaba_cloud_too(ali):
    """ECS takes 16 KB before base64 by its older documents; a node there is told of two queues more."""
    warm = f"nfs:{'0' * 12}-{'a' * 5}.ap-southeast-1.extreme.nas.aliyuncs.com:/share"
    account, region = "1" * 16, "ap-southeast-1-internal"
    config = bootstrap.node_config(_longest(ali), "b" * 56, f"bundles/{'0' * 64}.tar", "0" * 64, warm)
    queues = dict.fromkeys(("queue", "failed"), f"https://{account}.mns.{region}.aliyuncs.com/queues/{'q' * 120}")
    config |= {"namespace": "1" * 20, "harden": True, "tdx": True, "prometheus": 65535, "erdma": 4, "hook": "drain"}
    script = base64.b64decode(bootstrap.user_data({**config, **queues}))
    assert len(script) <= bootstrap.LIMIT_BYTES


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


P4D = {"nodes.type": "p4d.24xlarge", "network.egress": "endpoints", "job.batch": 32}


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, (0, False, "")),
        ({"nodes.capacity": "spot"}, (0, False, "")),
        ({"nodes.capacity": "spot", "network.egress": "endpoints"}, (0, False, "drain")),
        (P4D, (4, True, "drain")),
        (P4D | {"network.egress": "bucket"}, (4, True, "")),
        (P4D | {"nodes.fabric": "tcp"}, (0, True, "drain")),
        (P4D | {"nodes.nic_layout": "ip-saving"}, (4, True, "drain")),
        (P4D | {"nodes.type": "p6-b300.48xlarge", "region": "us-west-2"}, (16, True, "drain")),
        (P4D | {"nodes.type": "p5.4xlarge"}, (1, False, "drain")),
        (P4D | {"nodes.type": "g6e.48xlarge"}, (4, False, "drain")),
    ],
    ids=str,
)
def test_n11_b4_a_node_is_told_what_its_boot_is_held_to(stack, tmp_path, changes, held):
    """EFA devices, switches between GPUs, and the hook that it may complete; plain nodes are told nothing of these."""
    config = bootstrap.node_config(decide("c1", parse(stack(changes))), "b", "bundles/x.tar", "x")
    assert [name for name in ("efa", "nvswitch", "hook") if name in config] == [
        name for name, value in zip(("efa", "nvswitch", "hook"), held, strict=True) if value
    ]
    path = tmp_path / "node.json"
    path.write_text(json.dumps(config))
    read = NodeConfig.read(path)
    assert (read.efa, read.nvswitch, read.hook) == held


def test_b4_a_mixed_fleet_is_held_to_what_all_of_its_types_have(stack):
    """A type without switches has no fabric manager, and would never boot."""
    mixed = P4D | {"nodes.fabric": "tcp", "nodes.capacity": "mixed", "nodes.alternatives": ["g5.48xlarge"]}
    assert not decide("c1", parse(stack(mixed))).switched
    assert decide("c1", parse(stack(mixed | {"nodes.alternatives": ["p4de.24xlarge"]}))).switched


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
    assert {int(code) for code in listed.split("=")[1].split()} == {*exits.STEP_FAILED.values(), exits.QUARANTINED}


def test_a_node_is_told_the_port_at_which_it_shows_its_metrics_and_no_other_is(stack):
    told = bootstrap.node_config(decide("c1", parse(stack({"nodes.prometheus_port": 9100}))), "b", "bundles/x.tar", "x")
    assert told["prometheus"] == 9100
    assert "prometheus" not in bootstrap.node_config(decide("c1", parse(stack())), "b", "bundles/x.tar", "x")


def test_a_trust_domain_is_held_to_being_one(ali, tmp_path):
    changes = {"nodes.confidential": "tdx", "network.egress": "endpoints"}
    config = bootstrap.node_config(decide("c1", parse(ali(changes))), "b", "bundles/x.tar", "x")
    path = tmp_path / "node.json"
    path.write_text(json.dumps(config))
    assert NodeConfig.read(path).tdx is True
