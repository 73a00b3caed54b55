"""Runs one Pulumi program for the language host: connects the SDK to the engine, then runs the file or folder.

Started as `python program.py SETTINGS PROGRAM ARGUMENT…`, where SETTINGS is JSON with the arguments of
`pulumi.runtime.Settings`. Configuration comes in PULUMI_CONFIG and PULUMI_CONFIG_SECRET_KEYS, as the SDK defines.
Exit codes: 0; 32 if the engine has been told the error, so that the host need not; 1 if nothing could be told.
"""

import asyncio
import json
import logging
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
from pulumi import runtime

REPORTED = 32
"""Exit code for an error that the user has seen; the same as the official host's."""


def main(settings: dict[str, Any], program: str, arguments: list[str]) -> int:
    """Runs the program against the engine that `settings` names, and returns the exit code."""
    runtime.set_all_config(runtime.get_config_env(), runtime.get_config_secret_keys_env())
    runtime.configure(runtime.Settings(**settings))
    sys.argv = [program, *arguments]
    # With a task left over after a failure asyncio complains to the log; the failure itself is what matters.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=max(settings["parallel"], 1) * 4)
    loop.set_default_executor(executor)
    try:
        loop.run_until_complete(runtime.run_in_stack(lambda: _run(program)))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return REPORTED
    except Exception as error:
        pulumi.log.error(f"Program failed with an unhandled exception:\n{_trace(error)}")
        return REPORTED
    finally:
        executor.shutdown()
        loop.close()
    return 0


def _run(program: str) -> None:
    path = Path(program)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise pulumi.RunError(f"there is no Python program in {path.resolve()}: it should be in __main__.py")
    runpy.run_path(program, run_name="__main__")


def _trace(error: Exception) -> str:
    """The traceback from the user's first line on, without the machinery that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    machinery = (__file__, runpy.__file__, "<frozen runpy>")
    own = [number for number, frame in enumerate(frames) if frame.filename in machinery]
    start = own[-1] + 1 if own and own[-1] + 1 < len(frames) else 0
    lines = traceback.format_list(frames[start:]) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" + "".join(lines)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:]))
