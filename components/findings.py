"""What checks say: findings, and the one error that carries all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Severity(StrEnum):
    """An error refuses the cluster; a warning is shown and goes on."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or risky: where in the stack's file (`path`), why (`reason`), what to do (`fix`).

    Each is one line of plain text: what it repeats of a file may hold line ends, and codes that terminals obey.
    """

    path: str
    reason: str
    fix: str = ""
    severity: Severity = Severity.ERROR

    def __post_init__(self) -> None:
        for name in ("path", "reason", "fix"):
            object.__setattr__(self, name, _printable(getattr(self, name)))

    def __str__(self) -> str:
        text = f"{self.path}: {self.reason}"
        return f"{text}. {self.fix}" if self.fix else text


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class Invalid(ValueError):
    """Bad input, with every finding that it has; the message holds one line for each."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in findings))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that refuse the cluster."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that names what `word` may have meant, or else what there is (at most ten names)."""
    names = sorted(known)
    close = get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
