"""What can be left of a cluster: a tagged thing, and what is known of its kind."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

BY_THE_HOUR = "billed by the hour"
BY_THE_MONTH = "billed by the month"
BY_SIZE = "billed by what it holds"


@dataclass(frozen=True)
class Tagged:
    """Something that bears the tag. `kind`: service and type, as its ARN has them; `type`: an instance's.

    `of`: what it belongs to and ends with: an instance's group; the instance of a disk or an interface.
    """

    arn: str
    kind: str
    id: str
    of: str = ""
    type: str = ""


@dataclass(frozen=True)
class Kind:
    """What people call it; the command that removes it, behind a `#` what comes first.

    The command has `{id}` and `{arn}`, and `{region}` where it holds another: its own is added at its end. `kept`:
    whether a stack of production leaves it in the account on purpose (`kept` in both clouds' `security.py`).
    """

    what: str
    remove: str
    billed: str = ""
    kept: bool = False

    def command(self, one: Tagged, region: str) -> str:
        """The command for one of them."""
        if not self.remove:
            return ""
        command, mark, first = self.remove.partition("  #")
        filled = command.format(id=shlex.quote(one.id), arn=shlex.quote(one.arn), region=region)
        return f"{filled} --region {region}{mark}{first}"


def tagged(arn: str) -> Tagged:
    """What an ARN says: service and type, in lower case, and what comes last, be it behind a `/` or a `:`."""
    _, _, service, _, _, resource = arn.split(":", 5)
    parted = re.fullmatch(r"([A-Za-z-]+)(?:/(?:.*/)?|:)(.+?)(?::\*)?", resource)
    return Tagged(arn, f"{service}:{parted[1].lower()}", parted[2]) if parted else Tagged(arn, service, resource)
