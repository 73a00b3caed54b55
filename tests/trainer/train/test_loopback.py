"""The node's own all-reduce, for real, on gloo; torch is imported once for what is right and what isn't."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
from pathlib import Path
from trainer.train import loopback
right = loopback.main(2, Path(sys.argv[1]), 30, "gloo")
reduced = loopback.dist.all_reduce
def bent(values):
    reduced(values)
    if loopback.dist.get_rank() == 1:
        values[7] += 1
loopback.dist.all_reduce = bent
sys.exit(10 * right + loopback.main(2, Path(sys.argv[2]), 30, "gloo"))
"""


def test_ranks_reduce_and_tell_how_fast_and_a_wrong_sum_is_an_error_that_names_the_rank(tmp_path):
    """A GPU that computes wrongly ruins a run that nothing else would stop."""
    folders = [tmp_path / name for name in ("right", "wrong")]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", SCRIPT, *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["gbytes_per_s"] > 0, "told once, by the ranks that got it right"
    assert done.stderr.splitlines()[-1].startswith("rank 1: ArithmeticError: other sums than 3 came back")
