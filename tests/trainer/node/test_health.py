"""Whether a node may join, with a stand-in for the driver's tool on PATH."""

import shutil

import pytest

from trainer.node import health


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Makes `nvidia-smi` answer as a machine with so many GPUs; None: there is no driver."""

    def make(count, code=0):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("PATH", str(folder))
        if count is not None:
            tool = folder / "nvidia-smi"
            lines = "\n".join(f"echo 'GPU {n}: NVIDIA A100-SXM4-40GB (UUID: GPU-{n})'" for n in range(count))
            tool.write_text(f"#!/bin/sh\n{lines}\nexit {code}\n")
            tool.chmod(0o755)

    return make


@pytest.mark.parametrize(("answer", "has"), [(None, 0), (1, 1), (8, 8)])
def test_a_node_that_has_what_its_type_has_is_fit(gpus, tmp_path, answer, has):
    gpus(answer)
    assert health.check(tmp_path, has).startswith(f"{has} GPUs, ")


def test_gpus_of_the_machine_beneath_are_nothing_to_a_type_that_has_none(gpus, tmp_path):
    """As on the embedded cloud on a workstation: each of its nodes would claim the same GPU."""
    gpus(2)
    assert health.check(tmp_path, 0).startswith("0 GPUs, ")


@pytest.mark.parametrize(("answer", "has"), [(7, 8), (None, 8), (0, 8), (0, 1), (None, 1)])
def test_b4_a_node_with_a_lost_gpu_does_not_join(gpus, tmp_path, answer, has):
    """Also where it was the only one: the node would train on its CPUs, at the price of its GPU."""
    gpus(answer, code=9 if answer == 0 else 0)
    with pytest.raises(health.Unfit, match=f"{answer or 0} GPUs answer nvidia-smi, but the instance type has {has}"):
        health.check(tmp_path, has)


def test_a_full_disk_is_no_place_for_checkpoints(gpus, tmp_path, monkeypatch):
    gpus(None)
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: usage(10 << 30, 9 << 30, 512 << 20))
    with pytest.raises(health.Unfit, match="512 MiB free, too little for a checkpoint: 1024 MiB is the least"):
        health.check(tmp_path, 0)
