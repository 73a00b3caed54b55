"""The ranks of one generation: their process group, and words passed from rank 0 to the others outside of it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainer.train.errors import InvalidSetting
from trainer.train.setting import Setting

MEET_S = 120
"""Seconds that ranks wait for each other at the start: nodes boot at their own pace."""

KNOCK_S = 0.02
"""Seconds between two tries to reach rank 0. torch's own client sleeps for 0.25 to 0.75 s after the first that is
refused, and for longer after each that follows (c10d, `Backoff.hpp`)."""

WORK_S = 60
"""Seconds that one collective may take once all ranks have met: a lost or frozen peer costs no more."""

DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "^NVLS,NVLSTree"}
"""What cuBLAS and NCCL must find to round alike each time (PyTorch docs, "Reproducibility"; NCCL docs, "NCCL_ALGO":
without NVLink SHARP, whose sums by switches Megatron-LM's `deterministic_mode` refuses too)."""


@dataclass(frozen=True)
class Group:
    """This process among its peers."""

    rank: int
    world: int
    device: torch.device
    store: Store

    def told(self, word: str, make: Callable[[], bytes], seconds: float) -> bytes:
        """What `make` gives on rank 0, on every rank; the others wait for it, for so many seconds at most.

        For what may outlast a collective's limit, such as reading or saving a checkpoint. `word` is used once. Rank 0,
        whose process may hold the rendezvous store, returns only when all have heard, so that it may end after it.
        """
        limit = timedelta(seconds=seconds)
        heard, all_heard = f"{word}/heard", f"{word}/all"
        if self.rank:
            self.store.wait([word], limit)
            value: bytes = self.store.get(word)
            if self.store.add(heard, 1) == self.world - 1:
                self.store.set(all_heard, "")
            return value
        value = make()
        self.store.set(word, value.decode())
        if self.world > 1:
            self.store.wait([all_heard], limit)
        return value

    def limit(self, seconds: float) -> None:
        """Give each collective that this rank asks for from now on so many seconds (`setTimeout` of gloo and NCCL)."""
        set_timeout = getattr(dist, "set_timeout", None) or distributed_c10d._set_pg_timeout  # its name before 2.15
        set_timeout(timedelta(seconds=seconds))


@contextmanager
def joined(setting: Setting, *, deterministic: bool = False) -> Iterator[Group]:
    """The process group that the environment describes: NCCL where there are GPUs, else gloo; alone without one.

    GPUs that are to be `deterministic` take only algorithms that give the same bits each time.
    """
    device = _device(setting, deterministic)
    address = "env://" if setting.world > 1 else "tcp://127.0.0.1:0?rank=0&world_size=1"
    if setting.rank:
        _knock(time.monotonic() + MEET_S)
    store, _, _ = next(rendezvous(address, timeout=timedelta(seconds=MEET_S)))
    store.set_timeout(timedelta(seconds=MEET_S))
    # torchrun keeps one store over its restarts: what an earlier attempt wrote must not be read by this one.
    store = PrefixStore(f"trainwright/{setting.generation}/{setting.attempt}", store)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=setting.rank,
        world_size=setting.world,
        timeout=timedelta(seconds=WORK_S),
        device_id=device if device.type == "cuda" else None,
    )
    yield Group(setting.rank, setting.world, device, store)
    # Only after success: among failed peers this could wait for them, and the process ends anyway.
    dist.destroy_process_group()


def _knock(deadline: float) -> None:
    """Return as soon as rank 0's store takes connections. Whatever is wrong with it, torch says better."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    while address and port.isdecimal() and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((address, int(port)), timeout=1.0):
            return
        time.sleep(KNOCK_S)


def _device(setting: Setting, deterministic: bool) -> torch.device:
    if not torch.cuda.is_available():
        if setting.gpus:
            # Trained on CPUs, it would be billed as a GPU's work; and peers with GPUs would wait for another backend.
            raise InvalidSetting(
                f"GPUS_PER_NODE: {setting.gpus}, but torch finds no GPU; see whether `nvidia-smi` does, and whether "
                f"torch {torch.__version__} is built for CUDA"
            )
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if setting.local_rank >= count:
        raise InvalidSetting(f"LOCAL_RANK: {setting.local_rank}, but this node has {count} GPUs; start fewer workers")
    if deterministic:
        _round_alike()
    torch.cuda.set_device(setting.local_rank)
    return torch.device("cuda", setting.local_rank)


def _round_alike() -> None:
    """Have GPUs give the same bits each time: before CUDA starts, and below what the job's environment says."""
    for name, value in DETERMINISTIC.items():
        os.environ.setdefault(name, value)
    torch.use_deterministic_algorithms(True)
    from torch._inductor import config  # noqa: PLC0415

    if hasattr(config, "deterministic"):  # not in each torch that we take; what isn't timed isn't chosen by its time
        config.deterministic = True
