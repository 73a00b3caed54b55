from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import engine

SLOW = """
import signal, sys, time
def end(*_):
    time.sleep(1.0)
    open("ended-in-order", "w").close()
    sys.exit(255)
signal.signal(signal.SIGINT, end)
open("running", "w").close()
time.sleep(30)
"""

DRIVER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background ignores it
from pathlib import Path
from cli import engine
ended = engine.run([sys.executable, "slow.py"], Path.cwd(), os.environ, capture={capture})
print(ended.code, ended.interrupted)
"""


@pytest.mark.parametrize("capture", [False, True])
def test_an_engine_that_ends_slowly_after_ctrl_c_is_waited_for(tmp_path: Path, capture: bool) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    variables = {**os.environ, "PYTHONPATH": str(Path(engine.__file__).parents[1])}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(capture=capture)],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "running").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
        said, _ = driver.communicate(timeout=60)
    finally:
        driver.kill()
    assert said.split() == ["255", "True"]
    assert (tmp_path / "ended-in-order").exists()


def test_output_is_captured_only_where_asked_for(tmp_path: Path) -> None:
    speak = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    assert engine.run(speak, tmp_path, os.environ, capture=True) == engine.Ended(3, "out\n", "err\n", False)
