"""Components and trainer name the same things in the bucket by the same keys."""

from components import layout
from components.bundle import Bundle
from trainer import layout as trainers


def test_nodes_look_where_components_put_and_may_do_what_they_do_there(tmp_path):
    """A key that differs would leave each node waiting for what never comes, or refused."""
    assert layout.FLEET == trainers.FLEET
    assert trainers.dataset_prefix("d") == layout.DATASETS + "d"
    assert trainers.run_prefix("r") == layout.RUNS + "r"
    assert layout.QUEUE == trainers.QUEUE
    assert layout.OWN == trainers.OWN
    assert trainers.queue_number(trainers.OWN) == 0, "it would be a place in the queue"
    assert trainers.queued(1).startswith(layout.QUEUE)
    assert layout.OUTCOME == trainers.OUTCOME
    assert layout.DATA == trainers.DATA
    assert layout.DATA_NODES == trainers.DATA + trainers.DATA_NODES
    assert layout.CHECKPOINTS == trainers.CHECKPOINTS
    assert trainers.checkpoint(50).startswith(layout.CHECKPOINTS)
    assert Bundle(tmp_path, "0").key.startswith(layout.BUNDLES)
    assert layout.AUDIT == trainers.AUDIT
    assert layout.launch("r", "0").startswith(f"{trainers.run_prefix('r')}/{trainers.LAUNCHES}")
    assert "/checkpoints/" not in f"/{trainers.audit_checkpoint(1, '0')}", "nodes may delete there"
    assert layout.code("0") == trainers.code("0")
    assert layout.code("0").startswith(layout.BUNDLES)


def test_the_trainers_own_account_of_the_bucket_names_the_same_prefixes():
    for prefix in (layout.BUNDLES, layout.DATASETS, layout.RUNS, layout.QUEUE, layout.DATA):
        assert f"`{prefix}" in trainers.__doc__
