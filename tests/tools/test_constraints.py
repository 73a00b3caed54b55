"""What is installed is pinned: what users need, and the peers for those who benchmark, at the same pins."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def pins(path: str) -> dict[str, set[str]]:
    """By package, the versions that a file of constraints pins; all must have a hash."""
    entries = re.split(r"\n(?=[a-z])", (CHECKOUT / path).read_text())
    found: dict[str, set[str]] = {}
    for entry in entries:
        if match := re.match(r"([a-z0-9.-]+)(?:\[.*\])?==([^ ;\\]+)", entry):
            assert "--hash=sha256:" in entry, f"{match[1]} has no hash"
            found.setdefault(match[1], set()).add(match[2])
    return found


def test_what_the_trainer_is_compared_with_is_installed_for_benchmarks_alone():
    setup, bench = pins("constraints.txt"), pins("benchmarks/constraints.txt")
    peers = {"accelerate", "lightning-fabric"}
    assert peers <= bench.keys()
    assert not peers & setup.keys()


def test_peers_are_measured_on_the_versions_that_users_run():
    """Two pins of one package would have each target undo what the other installed."""
    setup, bench = pins("constraints.txt"), pins("benchmarks/constraints.txt")
    assert "torch" in setup.keys() & bench.keys()
    assert {name: setup[name] for name in setup.keys() & bench.keys()} == {
        name: bench[name] for name in setup.keys() & bench.keys()
    }
