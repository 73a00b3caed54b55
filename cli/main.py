"""The `trainwright` command: the list of its verbs, and how it says that something can't be done."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from cli.errors import Interrupted, Refused
from cli.verbs import catalog, checkpoints, cluster, compliance, data, erasure, queue, runs

app = typer.Typer(
    help="GPU training clusters: declared with Pulumi, checked before launch, trained on to the end.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    cluster.up,
    cluster.down,
    cluster.preview,
    cluster.check,
    cluster.env,
    cluster.leftovers,
    runs.watch,
    runs.retry,
    queue.submit,
    runs.status,
    runs.logs,
    runs.audit,
    compliance.comply,
    catalog.catalog,
)
"""As `--help` lists them, each by its name."""

TOPICS = {"data": data.app, "checkpoints": checkpoints.app, "queue": queue.app, "erase": erasure.app}
"""Below them, verbs with a topic before their own name."""

for verb in VERBS:
    app.command()(verb)
for name, topic in TOPICS.items():
    app.add_typer(topic, name=name)

errors = Console(stderr=True, highlight=False)


@app.callback(invoke_without_command=True)
def versioned(version: Annotated[bool, typer.Option("--version", help="Print the version, and end.")] = False) -> None:
    """Take the options that belong to no verb."""
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415

        print(installed("trainwright"))
        raise typer.Exit


def main() -> None:
    """The command. An error that is the user's to mend is a clear line and exit code 1."""
    from emulator.cloud import CloudError  # noqa: PLC0415
    from tools.pulumi_cli import NoPulumiCLI  # noqa: PLC0415
    from trainer.store import StoreError  # noqa: PLC0415

    try:
        app()
    except Refused as refused:
        _end(str(refused), refused.code)
    except (NoPulumiCLI, CloudError) as error:
        _end(str(error))
    except StoreError as error:
        from cli.account import advice  # noqa: PLC0415

        _end(". ".join(filter(None, [str(error), advice(error)])))
    except Interrupted as interrupted:
        errors.print(Text(str(interrupted)), soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough, as `head` does. Python's flush at exit must not fail on it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _end(message: str, code: int = 1) -> NoReturn:
    errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
