"""What the command says when it can't do what was asked."""

from __future__ import annotations

from collections.abc import Sequence

from components.findings import Finding


class Refused(Exception):
    """Ends the command with exit code 1, or `code`: one clear line, and one for each finding. Never a traceback."""

    def __init__(self, message: str, findings: Sequence[Finding] = (), *, code: int = 1) -> None:
        self.findings = tuple(findings)
        self.code = code
        super().__init__("\n".join([message, *(f"  {finding}" for finding in findings)]))


class Interrupted(Exception):
    """Ends the command with exit code 130 and one line: Ctrl-C was pressed, and what it reached has ended in order."""
