"""What the trainer asks of CUDA and NCCL, on stand-ins for both: the device `cuda:3` is main memory here."""

import os
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from trainer.train import feed, group, learner, loop, loopback, restore, sharded, step
from trainer.train.config import Job, Model
from trainer.train.errors import InvalidSetting
from trainer.train.group import Group
from trainer.train.setting import from_environment

pytestmark = pytest.mark.torch

GPU = torch.device("cuda", 3)
TINY = Job(name="j", dataset="d", batch=4, micro_batch=2, model=Model(layers=1, heads=2, width=16, context=8))


def _here(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value == GPU else value


class InMainMemory(TorchFunctionMode):
    """Has what is made on `cuda:3`, or sent there, stay in main memory; keeps what was asked for, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        devices = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.device | str)]
        if devices or "pin_memory" in kwargs:
            self.asked.append((func.__name__, kwargs | {"device": str(devices[0]) if devices else ""}))
        kwargs.pop("pin_memory", None)
        args = [_here(value) for value in args]
        kwargs = {name: _here(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def of(self, name: str) -> list[dict[str, Any]]:
        """What calls of this name asked for."""
        return [asked for called, asked in self.asked if called == name]


@pytest.fixture
def memory():
    """Stands for the GPU's memory."""
    with InMainMemory() as mode:
        yield mode


@pytest.fixture
def called(monkeypatch) -> list[tuple[str, Any]]:
    """What is asked of CUDA and of the process group, in order; there are eight GPUs."""
    calls: list[tuple[str, Any]] = []

    def note(place: Any, name: str, gives: Any = None) -> None:
        def noted(*given: Any, **more: Any) -> Any:
            calls.append((name, (*given, more) if more else given))
            return gives

        monkeypatch.setattr(place, name, noted)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    for name in ("set_device", "synchronize", "manual_seed"):
        note(torch.cuda, name)
    note(torch.cuda, "current_stream", SimpleNamespace(synchronize=lambda: calls.append(("came", ()))))
    note(torch, "use_deterministic_algorithms")
    for name in ("init_process_group", "destroy_process_group", "broadcast"):
        note(dist, name)
    monkeypatch.setattr(group, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 16)]))
    return calls


def setting(tmp_path: Path, **more: str):
    places = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_RANK": "3"} | more
    return from_environment(places, run="r", data=tmp_path, store=str(tmp_path))


def unset(monkeypatch, name: str) -> None:
    """Have a variable absent, and absent again afterwards where it was, whatever sets it meanwhile."""
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)


# --- The group


def test_ranks_with_gpus_meet_over_nccl_each_on_its_own(called, tmp_path):
    with group.joined(setting(tmp_path)) as joined:
        assert joined.device == GPU
    (_, (gpu,)), (_, (backend, given)), *_ = called
    assert [name for name, _ in called] == ["set_device", "init_process_group", "destroy_process_group"]
    assert (gpu, backend, given["device_id"]) == (3, "nccl", GPU)
    assert given["timeout"] == timedelta(seconds=60)
    assert (given["rank"], given["world_size"]) == (0, 16)


def test_ranks_without_gpus_meet_over_gloo(called, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with group.joined(setting(tmp_path), deterministic=True) as joined:
        assert joined.device == torch.device("cpu")
    ((_, (backend, given)), _) = called
    assert (backend, given["device_id"]) == ("gloo", None)


def test_more_workers_than_gpus_are_refused(called, tmp_path):
    with (
        pytest.raises(InvalidSetting, match="LOCAL_RANK: 8, but this node has 8 GPUs; start fewer workers"),
        group.joined(setting(tmp_path, LOCAL_RANK="8")),
    ):
        pass
    assert called == []


@pytest.mark.parametrize("asked", [False, True])
def test_gpus_round_alike_where_the_job_asks_for_it_and_are_told_before_they_start(
    called, tmp_path, monkeypatch, asked
):
    """PyTorch docs, "Reproducibility": cuBLAS and NCCL read their environment once, at the start."""
    from torch._inductor import config

    unset(monkeypatch, "CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    found: list[str | None] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: found.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
    with config.patch(deterministic=False):
        with group.joined(setting(tmp_path), deterministic=asked):
            pass
        assert config.deterministic == asked
    assert found == [":4096:8" if asked else None]
    assert [given for name, given in called if name == "use_deterministic_algorithms"] == [(True,)] * asked
    assert os.environ["NCCL_ALGO"] == "Ring", "what the job's environment says stands above it"


def test_nccl_sums_without_the_switches_where_the_job_asks_for_it(called, tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    unset(monkeypatch, "NCCL_ALGO")
    with group.joined(setting(tmp_path), deterministic=True):
        assert os.environ["NCCL_ALGO"] == "^NVLS,NVLSTree"
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_the_loop_passes_on_that_its_job_asks_for_it(monkeypatch, tmp_path):
    asked: list[bool] = []

    def joined(_setting: Any, *, deterministic: bool) -> Any:
        asked.append(deterministic)
        raise InterruptedError

    monkeypatch.setattr(loop, "joined", joined)
    for deterministic in (False, True):
        job = Job(name="j", dataset="d", deterministic=deterministic)
        with pytest.raises(InterruptedError):
            loop.train(job, setting(tmp_path), found=lambda: None, asked=lambda: False)
    assert asked == [False, True]


# --- What learns


class Ddp(nn.Module):
    """Stands for DistributedDataParallel."""

    def __init__(self, module: nn.Module, **given: Any) -> None:
        super().__init__()
        self.module, self.given = module, given

    def forward(self, *given: Any) -> Any:
        return self.module(*given)

    def no_sync(self) -> Any:
        return nullcontext()


def test_ddp_and_its_scaler_are_on_this_ranks_gpu_and_so_is_all_that_a_step_makes(called, memory, monkeypatch):
    scalers: list[Any] = []
    autocasts: list[Any] = []
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(learner, "DistributedDataParallel", Ddp)
    monkeypatch.setattr(
        torch.amp, "GradScaler", lambda *given, **more: scalers.append((given, more)) or scaler("cpu", **more)
    )
    monkeypatch.setattr(torch, "autocast", lambda *given, **more: autocasts.append((given, more)) or nullcontext())
    job = Job(name="j", dataset="d", batch=4, micro_batch=2, precision="fp16", model=TINY.model)
    among = Group(0, 1, GPU, None)
    built = learner.build(job, 257, among, None)
    assert built.shared.given["device_ids"] == [3]
    assert scalers == [(("cuda",), {"enabled": True})]
    assert {asked["device"] for asked in memory.of("zeros")} == {str(GPU)}
    assert [asked["device"] for asked in memory.of("_parse_to")] == [str(GPU)], "where the model moves"
    memory.asked.clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the optimizer would ask the driver
    ones = torch.ones((2, 8), dtype=torch.int64)
    step.compute(built, [(ones, ones)], 1e-3, False, 0, job, among)
    assert autocasts == [(("cuda", torch.float16), {"enabled": True})]
    assert memory.of("zeros")[0]["device"] == str(GPU), "what ranks tell each other"


def test_fsdp_cuts_over_the_gpus(called, monkeypatch):
    meshes: list[Any] = []
    cuts: list[Any] = []
    monkeypatch.setattr(sharded, "init_device_mesh", lambda *given: meshes.append(given) or "mesh")
    monkeypatch.setattr(sharded, "fully_shard", lambda part, **given: cuts.append((part, given)))
    model = learner.GPT(TINY.model, 257)
    sharded.shard(model, torch.bfloat16, Group(0, 16, GPU, None), compiled=False)
    assert meshes == [("cuda", (16,))]
    assert [part for part, _ in cuts] == [model.blocks[0], model]
    assert all(given["mesh"] == "mesh" and given["mp_policy"].param_dtype == torch.bfloat16 for _, given in cuts)


def test_dropout_is_drawn_from_the_steps_seed_on_the_gpu_too(called):
    loop.reseed(7, torch.device("cpu"))
    assert called == []
    loop.reseed(7, GPU)
    assert called == [("manual_seed", (7,))]


def test_a_copy_is_in_main_memory_and_is_nobody_elses(memory):
    weight = torch.ones(2)
    copy = learner.copied({"a": [weight]})["a"][0]
    weight += 1
    assert copy.tolist() == [1, 1]
    assert [(asked["device"], asked["copy"]) for asked in memory.of("to")] == [("cpu", True)]


# --- What is read


class Numbered:
    """A dataset whose samples hold nothing but their number."""

    vocabulary = 257

    def __len__(self) -> int:
        return 1000

    def gather(self, order: Any, into: Any) -> None:
        into[:] = order[:, None]


def test_a_buffer_is_pinned_and_not_filled_again_before_its_copy_to_the_gpu_is_done(memory, monkeypatch):
    """The copy is asked for as the step begins, and is done, at the latest, as the next is taken."""
    monkeypatch.setattr(feed, "CHUNK_BYTES", 2 * 4 * 9 * 8)
    under_way: list[tuple[torch.Tensor, torch.Tensor]] = []
    to = torch.Tensor.to

    def later(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        assert (device, non_blocking) == (GPU, True)
        under_way.append((tensor, torch.full_like(tensor, -1)))
        return under_way[-1][1]

    fed = feed.Feed(Numbered(), TINY, Group(0, 1, GPU, None))
    plain = feed.Feed(Numbered(), TINY, Group(0, 1, torch.device("cpu"), None))
    pins = [asked["pin_memory"] for name, asked in memory.asked if "pin_memory" in asked]
    assert pins == [True, True, False, False]
    for number in range(12):
        monkeypatch.setattr(torch.Tensor, "to", later)
        micro_steps = fed.take(4 * number)
        fed._ahead[1].result()  # whatever is read ahead has been read
        for source, target in under_way:
            target.copy_(source)
        under_way.clear()
        monkeypatch.setattr(torch.Tensor, "to", to)
        expected = plain.take(4 * number)
        for (tokens, targets), (these, those) in zip(micro_steps, expected, strict=True):
            assert torch.equal(tokens, these)
            assert torch.equal(targets, those)


class OnGpu(torch.Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_pieces_of_a_checkpoint_pass_the_gpu_one_after_another(called, monkeypatch, tmp_path, rank):
    """A collective's limit runs from when it is asked for: asked for at once, the last would time out."""
    sent: list[bytes] = []

    def to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        assert device == GPU
        sent.append(bytes(tensor))
        return tensor.as_subclass(OnGpu)

    monkeypatch.setattr(restore, "PIECE", 4)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: torch.tensor([*b"gpus"][: len(tensor)], dtype=torch.uint8))
    path = tmp_path / "part"
    path.write_bytes(b"0123456789")
    with path.open("wb" if rank == 1 else "rb") as file:
        restore._pass_on(file if rank < 2 else None, 10, Group(rank, 3, GPU, None))
    assert [name for name, _ in called] == ["broadcast", "current_stream", "came"] * 3
    if rank == 0:
        assert sent == [b"0123", b"4567", b"89"]
    if rank == 1:
        assert path.read_bytes() == b"gpusgpusgp"


# --- A node's own all-reduce


def test_the_loopback_check_is_nccls_on_each_ranks_own_gpu(called, memory, monkeypatch, tmp_path, capsys):
    """Without waiting for the GPU it would time how long it takes to ask for sums, not to have them."""
    monkeypatch.setattr(loopback, "BYTES", {"nccl": 4096, "gloo": 64})
    monkeypatch.setattr(loopback.signal, "alarm", lambda _: None)
    monkeypatch.setenv("NCCL_DEBUG_FILE", "")
    monkeypatch.setattr(
        dist, "all_reduce", lambda values: called.append(("all_reduce", len(values))) or values.fill_(10)
    )
    loopback.reduce(3, 4, tmp_path, 30, "nccl")
    assert [name for name, _ in called] == [
        "set_device",
        "init_process_group",
        "all_reduce",
        "synchronize",
        *["all_reduce"] * loopback.ROUNDS,
        "synchronize",
        "destroy_process_group",
    ]
    assert called[0][1] == called[3][1] == (GPU,)
    assert called[1][1] == ("nccl", f"file://{tmp_path}/store", timedelta(seconds=30), 4, 3)
    assert called[2][1] == 1024
    assert [asked["device"] for asked in memory.of("full")] == [str(GPU)]
    assert os.environ["NCCL_DEBUG_FILE"] == str(tmp_path / "rank3.log")
    assert capsys.readouterr().out == "", "rank 0 tells"
