"""The agent's process: `python -m trainer.node CONFIG`, where CONFIG is the file that user-data wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainer import alicloud, dialects, exits
from trainer.console import say
from trainer.metadata import open_metadata
from trainer.node import failed
from trainer.node.agent import Agent
from trainer.node.config import NodeConfig, Paths


def main(arguments: list[str]) -> int:
    """Run the agent, its output in its log as well as on the console."""
    try:
        config = NodeConfig.read(Path(arguments[0]))
    except (IndexError, OSError, ValueError, KeyError, TypeError) as error:
        print(f"agent: no usable configuration: {type(error).__name__}: {error}", file=sys.stderr)
        return exits.STEP_FAILED["identify"]
    paths = Paths.here()
    paths.logs.mkdir(parents=True, exist_ok=True)
    _redirect(paths.logs / "agent.log")
    if config.cloud == "alicloud":  # for the workers as well
        os.environ.setdefault(alicloud.REGION, config.region)
        os.environ.setdefault(dialects.INTERNAL, "1")
    os.environ.setdefault("AWS_DEFAULT_REGION", config.region)
    # The agent and all workers ask for credentials at once; botocore's default is one try of one second.
    os.environ.setdefault("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "5")
    os.environ.setdefault("AWS_METADATA_SERVICE_TIMEOUT", "2")
    code = Agent(config, paths, open_metadata(config.cloud)).run()
    if code in {*exits.STEP_FAILED.values(), exits.QUARANTINED} and "INVOCATION_ID" not in os.environ:
        failed.tell(config)  # where systemd started the agent, its own unit does so
    return code


def _redirect(path: Path) -> None:
    """Send output, from here on, to the file that is shipped."""
    say(f"its log is {path}")
    log = path.open("a", buffering=1)
    os.dup2(log.fileno(), sys.stdout.fileno())
    os.dup2(log.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a fetch or an upload that still waits in a thread must not keep a node that has ended.
    os._exit(code)
