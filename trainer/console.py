"""The agent's own lines, on the console and in its log, each with its time in UTC."""

from __future__ import annotations

import time


def say(message: str) -> None:
    """Print one line, at once."""
    now = time.time()
    print(f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d} {message}", flush=True)
