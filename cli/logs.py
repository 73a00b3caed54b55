"""Logs of a run, as its nodes ship them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console

from trainer import layout
from trainer.store import Store

POLL_S = 1.0
QUIET_AFTER_END_S = 3.0
"""How long to wait for the last lines once the run has ended."""


@dataclass
class Tail:
    """What has been printed of each stream, so that a chunk which grew is printed from where it stopped."""

    store: Store
    etags: dict[str, str] = field(default_factory=dict)
    printed: dict[str, int] = field(default_factory=dict)

    def fresh(self, node: str, stream: str) -> list[tuple[str, str]]:
        """New lines, each with the stream it is of, by node and stream."""
        lines = []
        for entry in self.store.list(f"{layout.LOGS}{node}"):
            source = "/".join(entry.key.split("/")[1:3])
            if stream not in source.split("/")[1] or self.etags.get(entry.key) == entry.etag:
                continue
            content = self.store.get(entry.key)
            begun = self.printed.get(entry.key, 0)
            whole = content.rfind(b"\n") + 1 or len(content)
            lines += [(source, line) for line in content[begun:whole].decode(errors="replace").splitlines()]
            self.etags[entry.key], self.printed[entry.key] = entry.etag, max(begun, whole)
        return lines


def show(store: Store, console: Console, *, follow: bool, node: str, stream: str) -> None:
    """Print what there is; with `follow`, go on until the run has ended and its last lines have come."""
    tail = Tail(store)
    quiet_since: float | None = None
    while True:
        lines = tail.fresh(node, stream)
        for source, line in lines:
            console.print(f"{source}  {line}", markup=False, soft_wrap=True)
        if not follow:
            if not lines:
                wanted = " of that node or stream" if node or stream else ""
                console.print(f"no logs{wanted} yet", style="dim")
            return
        if lines or not store.exists(layout.OUTCOME):
            quiet_since = None
        elif quiet_since is None:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > QUIET_AFTER_END_S:
            return
        time.sleep(POLL_S)
