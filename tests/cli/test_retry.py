"""Another try for a failed run: what is put aside, what is kept, and whom it is refused to."""

import json

import pytest

from cli.errors import Refused
from cli.retry import pardon
from trainer import layout
from trainer.node.peers import Generation, Member
from trainer.store import FileStore


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path)


def ended(store, *, succeeded):
    outcome = {"succeeded": succeeded, "reason": "no", "ended": 12.0}
    store.put(layout.OUTCOME, json.dumps(outcome).encode())
    return outcome


def test_a_failed_run_loses_its_outcome_and_its_count_of_failures_but_no_history(store):
    members = (Member("a", "10.0.0.1", "a1", 1),)
    for number in (1, 2, 3):
        record = Generation(number, members, 1, "why", graceful=False, step=0, fruitless=number - 1)
        store.put(layout.generation(number), record.json())
    outcome = ended(store, succeeded=False)
    pardon("r-1", store)
    assert not store.exists(layout.OUTCOME)
    assert json.loads(store.get(layout.past_outcome(12.0))) == outcome
    counts = [Generation.parse(store.get(layout.generation(number))).fruitless for number in (1, 2, 3)]
    assert counts == [0, 1, 0]


def test_a_run_that_goes_on_or_is_done_is_left_alone(store):
    with pytest.raises(Refused, match="has not ended"):
        pardon("r-1", store)
    ended(store, succeeded=True)
    with pytest.raises(Refused, match="is done"):
        pardon("r-1", store)
    assert store.exists(layout.OUTCOME)
