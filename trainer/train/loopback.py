"""All-reduces among the GPUs of one node, checked and timed: `python -m trainer.train.loopback RANKS FOLDER LIMIT_S`.

It prints one line, `{"gbytes_per_s": …}`: the bus bandwidth (nccl-tests, `doc/PERFORMANCE.md`), 0 for a rank alone.
Ranks meet through a file, so that no port is needed. Torch is imported once, and ranks are forked before CUDA is
touched.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

BYTES = {"nccl": 256 << 20, "gloo": 1 << 20}
"""What is reduced: enough on GPUs for the bandwidth to be that of the links."""

ROUNDS = 5


def main(ranks: int, folder: Path, limit_s: float, backend: str = "nccl") -> int:
    """Run all ranks. Returns 0 where each got the right sums within the limit; else the last line says why."""
    fork = multiprocessing.get_context("fork")
    failures = fork.SimpleQueue()

    def tried(rank: int) -> None:
        try:
            reduce(rank, ranks, folder, limit_s, backend)
        except Exception as error:
            failures.put(f"rank {rank}: {type(error).__name__}: {error}")
            raise

    processes = [fork.Process(target=tried, args=(rank,), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + limit_s
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        if any(process.exitcode for process in processes):
            break  # the others would wait for it
        time.sleep(0.02)
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()
    codes = [process.exitcode for process in processes]
    if any(codes):
        # The others fail too, once it is gone: the first to tell is the cause.
        print("\n" + (f"ranks ended with {codes}" if failures.empty() else failures.get()), file=sys.stderr)
    return 1 if any(codes) else 0


def reduce(rank: int, ranks: int, folder: Path, limit_s: float, backend: str) -> None:
    """One rank's part. What NCCL has to say goes to a file of the rank's own."""
    signal.alarm(max(1, int(limit_s)))  # whatever becomes of the others
    os.environ["NCCL_DEBUG_FILE"] = str(folder / f"rank{rank}.log")
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    store = f"file://{folder}/store"
    dist.init_process_group(backend, store, timedelta(seconds=limit_s), ranks, rank)
    values = torch.full((BYTES[backend] // 4,), float(rank + 1), device=device)
    dist.all_reduce(values)
    right = ranks * (ranks + 1) / 2
    if not torch.equal(values, torch.full_like(values, right)):
        raise ArithmeticError(f"other sums than {right:g} came back: a GPU or a link computes wrongly")
    begun = _now(device)
    for _ in range(ROUNDS):
        dist.all_reduce(values)
    seconds = (_now(device) - begun) / ROUNDS
    if rank == 0:
        speed = 2 * (ranks - 1) / ranks * BYTES[backend] / seconds / 1e9
        print(json.dumps({"gbytes_per_s": float(f"{speed:.3g}")}), flush=True)
    dist.destroy_process_group()


def _now(device: torch.device) -> float:
    """The time at which all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:5]))
