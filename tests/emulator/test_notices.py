"""Interruption notices: raised with care, shown by the metadata service, and a spot notice is kept to."""

import json
import time

import pytest

from emulator import notices


@pytest.fixture
def quiet_home(tmp_path):
    (tmp_path / "cloud" / "nodes" / "i-1").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("instance", "kind", "seconds", "error", "words"),
    [
        ("i-2", "spot", 1, LookupError, "no node 'i-2'"),
        ("i-1", "flood", 1, ValueError, "say one of spot, rebalance"),
        ("i-1", "spot", -1, ValueError, "in the past"),
    ],
)
def test_a_notice_that_cannot_be_is_refused_in_words(quiet_home, instance, kind, seconds, error, words):
    with pytest.raises(error, match=words):
        notices.raise_notice(quiet_home, instance, kind, seconds)
    assert [entry.name for entry in (quiet_home / "cloud" / "nodes").iterdir()] == ["i-1"]


def test_a_later_notice_keeps_one_of_the_other_kind_and_replaces_its_own(quiet_home):
    file = notices.path(quiet_home / "cloud" / "nodes", "i-1")
    assert notices.read(file) == {}
    notices.raise_notice(quiet_home, "i-1", "rebalance", 5)
    notices.raise_notice(quiet_home, "i-1", "spot", 500)
    notices.raise_notice(quiet_home, "i-1", "spot", 50)
    raised = notices.read(file)
    assert raised.keys() == {"rebalance", "spot"}
    assert 40 < raised["spot"] - time.time() <= 50


@pytest.mark.parametrize(("cloud", "seconds"), [("aws", 120), ("aliyun", 300)])
def test_a_notice_comes_as_long_ahead_as_the_node_s_cloud_gives(quiet_home, cloud, seconds):
    nodes = quiet_home / "cloud" / "nodes"
    file = nodes / "i-1" / notices.CLOUD
    file.parent.mkdir(parents=True)
    file.write_text(cloud)
    notices.raise_notice(quiet_home, "i-1", "spot")
    assert seconds - 10 < notices.read(notices.path(nodes, "i-1"))["spot"] - time.time() <= seconds


def test_a_spot_notice_is_shown_then_ends_the_node_which_is_replaced(world, http):
    group = world.group(world.STAY)
    (instance,) = world.booted(group, 1)
    url = world.metadata(instance)
    assert http.read(url, "meta-data/spot/instance-action")[0] == 404
    notices.raise_notice(world.cloud.home, instance, "spot", seconds=1)
    raised = time.monotonic()
    status, text = http.read(url, "meta-data/spot/instance-action")
    assert status == 200
    assert json.loads(text)["action"] == "terminate"
    time.sleep(0.4)
    assert world.state(instance) == "running"
    world.wait_for("the end of the node", lambda: world.state(instance) == "terminated")
    assert time.monotonic() - raised > 0.9
    world.booted(group, 1, besides={instance})


def test_a_rebalance_recommendation_is_shown_and_ends_nothing(world, http):
    (instance,) = world.booted(world.group(world.STAY), 1)
    notices.raise_notice(world.cloud.home, instance, "rebalance", seconds=0)
    status, text = http.read(world.metadata(instance), "meta-data/events/recommendations/rebalance")
    assert status == 200
    assert json.loads(text).keys() == {"noticeTime"}
    time.sleep(0.6)
    assert world.state(instance) == "running"
