"""What the kernel says of processes, whatever they call themselves."""

import subprocess
import sys

from trainer.node import processes

NAMED = r"""
import ctypes
ctypes.CDLL(None).prctl(15, b"\xff) Z 1", 0, 0, 0)  # PR_SET_NAME
print(flush=True)
input()
"""


def test_a_name_that_is_no_text_and_looks_like_more_hides_no_process():
    """Linux cuts names after 15 bytes, in the midst of a letter if need be."""
    with subprocess.Popen([sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert processes.runs(process.pid)
        assert processes.state(process.pid) in "SRD"
        process.stdin.close()
        process.wait()
        assert not processes.runs(process.pid)
        assert processes.state(process.pid) == ""
