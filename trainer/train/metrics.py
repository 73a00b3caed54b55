"""The run's record: one JSON line for each step and event, appended by rank 0, and a short line for people on stdout.

The agent ships the file while it grows, so each line is written whole and at once.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Self

CONSOLE_EVERY_S = 1.0
"""Seconds between two steps that are shown on stdout; the first and the last are always shown."""


class Metrics:
    """Writes to `path`, or nowhere where that is None (ranks other than 0). Every line carries `common`.

    A line that can't be written, as on a disk that is full, is lost, which is said once: no run ends for its record.
    """

    def __init__(self, path: Path | None, **common: Any) -> None:
        self._path = path
        self._common = common
        self._file: FileIO | None = None
        self._torn = False
        """Whether the last line in the file was cut off."""
        self._lossy = False
        self._shown = float("-inf")

    def step(self, **values: Any) -> None:
        """Record one optimizer step: `step`, `steps`, `loss`, `lr`, `grad_norm`, `tokens_per_second`, `step_ms`, ..."""
        self._write(values)
        now = time.monotonic()
        if values["step"] in (1, values["steps"]) or now - self._shown >= CONSOLE_EVERY_S:
            self._shown = now
            self._say(
                f"step {values['step']}/{values['steps']}  loss {values['loss']:.4f}  lr {values['lr']:.2e}  "
                f"norm {values['grad_norm']:.2f}  {values['tokens_per_second']:,.0f} tokens/s  "
                f"{values['step_ms']:.0f} ms"
            )

    def event(self, event: str, **details: Any) -> None:
        """Record something that happened: start, resume, checkpoint, checkpoint-failed, drain, done."""
        self._write({"event": event, **details})
        self._say("  ".join([event, *(f"{name} {value}" for name, value in details.items())]))

    def _write(self, values: dict[str, Any]) -> None:
        if self._path is None:
            return
        line = {"time": round(time.time(), 3), **values, **self._common}
        # JSON has no word for NaN or infinity, and browsers refuse them.
        finite = {name: None if _is_endless(value) else value for name, value in line.items()}
        try:
            self._append(self._path, f"{json.dumps(finite)}\n".encode())
        except OSError as error:
            if not self._lossy:
                self._lossy = True
                self._say(f"{self._path}: {error.strerror}; steps and events that can't be written there are lost")

    def _append(self, path: Path, line: bytes) -> None:
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            self._torn = self._file.tell() > 0 and not _ends_with_newline(path)
        content = b"\n" + line if self._torn else line
        self._torn = self._file.write(content) < len(content)

    def _say(self, text: str) -> None:
        if self._path is not None:
            with suppress(OSError):  # a log that is full
                print(text, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
