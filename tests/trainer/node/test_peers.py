"""Cards and generations as they are stored."""

import json

from trainer.node.peers import DRAINING, FAILED, Card, Ended, Generation, Member, Tally


def card(node, **more):
    return Card(node, f"10.0.0.{ord(node)}", "2026-01-01T00:00:00Z", f"{node}1", 2, **more)


def ended(node, how, reason):
    return card(node, ended=Ended(4, how, reason))


def generation(nodes, **more):
    members = tuple(Member(node, f"10.0.0.{ord(node)}", f"{node}1", 2) for node in nodes)
    values = {"number": 4, "port": 1, "why": "first", "graceful": False, "step": 100, **more}
    return Generation(members=members, **values)


def test_cards_and_generations_survive_the_store():
    for one in (card("a"), ended("b", FAILED, "é"), card("c", state=DRAINING)):
        assert Card.parse(one.json()) == one
    record = generation("abc", tally=Tally(fruitless=2, error="x", blamed={"b": 1}, quarantined={"c": "y"}))
    assert Generation.parse(record.json()) == record


def test_what_a_newer_trainer_writes_more_is_passed_over():
    """Nodes of two trainers share a run while one replaces the other."""
    written = json.loads(ended("a", FAILED, "no").json())
    written |= {"mood": "good", "ended": {**written["ended"], "weather": "fine"}}
    assert Card.parse(json.dumps(written).encode()) == ended("a", FAILED, "no")
    record = json.loads(generation("ab").json()) | {"more": 1}
    record["members"][0]["more"] = 1
    assert Generation.parse(json.dumps(record).encode()) == generation("ab")


def test_a_generation_knows_its_place_world_and_ranks():
    record = generation("ab")
    assert (record.address, record.world) == ("10.0.0.97", 4)
    assert (record.rank_of("b", "b1"), record.rank_of("b", "b2"), record.rank_of("x", "x1")) == (1, None, None)
