"""What a long step tells the person who waits: a live line on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


class Progress(Protocol):
    """Where a long step says what it is doing."""

    def phase(self, text: str, detail: str = "") -> None:
        """Says what goes on now; replaces the phase before. The detail may change many times a second."""

    def note(self, text: str) -> None:
        """Writes a line that stays."""


class _Live:
    """One line with a spinner, the phase and the time since the step began."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None)

    def phase(self, text: str, detail: str = "") -> None:
        """Shows phase and detail on the line; the clock runs on."""
        self._bars.update(self._task, description=f"{text}: {detail}" if detail else text)

    def note(self, text: str) -> None:
        """Writes a line above the live one."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Lines:
    """A line for each phase, without its details."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def phase(self, text: str, detail: str = "") -> None:  # noqa: ARG002 - a detail is for the eye only
        """Writes the phase, once."""
        if text != self._last:
            self._last = text
            self.note(text)

    def note(self, text: str) -> None:
        """Writes a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def on_stderr() -> Iterator[Progress]:
    """Progress on stderr for as long as the block runs; nothing of the live line stays behind."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Live(bars)
