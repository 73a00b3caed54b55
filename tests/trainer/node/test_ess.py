"""What a node of an ESS group learns of its end, what it tells the group, and how it closes its metadata service."""

import pytest

from trainer.alicloud import ApiError
from trainer.node import harden
from trainer.node.ess import Ess
from trainer.node.harden import Open
from trainer.node.lifecycle import Lifecycle


class Api:
    """A group of two nodes, each in a state; while one is removed, an activity waits for it at two hooks."""

    def __init__(self):
        self.states = {"i-1": "InService", "i-2": "Removing:Wait"}
        self.told, self.trouble, self.asked = [], [], []

    def call(self, service, action, **asked):
        self.asked.append(action)
        if self.trouble:
            raise self.trouble.pop(0)
        return {"RequestId": "r", **getattr(self, action)(**asked)}

    def DescribeScalingInstances(self, **asked):
        node = asked["InstanceIds.1"]
        state = {"InstanceId": node, "ScalingGroupId": "asg-1", "LifecycleState": self.states.get(node)}
        return {"ScalingInstances": [state] if node in self.states else []}

    def DescribeScalingGroups(self, **asked):
        assert asked == {"ScalingGroupIds.1": "asg-1"}
        return {"ScalingGroups": [{"ScalingGroupId": "asg-1", "DesiredCapacity": 7}]}

    def DescribeLifecycleHooks(self, ScalingGroupId):
        assert ScalingGroupId == "asg-1"
        hooks = {"ash-1": "drain", "ash-2": "somebody-elses"}
        return {"LifecycleHooks": [{"LifecycleHookId": id_, "LifecycleHookName": n} for id_, n in hooks.items()]}

    def DescribeScalingActivities(self, ScalingGroupId, StatusCode):
        assert (ScalingGroupId, StatusCode) == ("asg-1", "InProgress")
        return {"ScalingActivities": [{"ScalingActivityId": "asa-1"}]}

    def DescribeLifecycleActions(self, ScalingActivityId, LifecycleActionStatus):
        assert (ScalingActivityId, LifecycleActionStatus) == ("asa-1", "Pending")
        waiting = [("t-1", "ash-1", ["i-1"]), ("t-2", "ash-2", ["i-1"]), ("t-3", "ash-1", ["i-2"])]
        keys = ("LifecycleActionToken", "LifecycleHookId", "InstanceIds")
        return {"LifecycleActions": [dict(zip(keys, one, strict=True)) for one in waiting]}

    def CompleteLifecycleAction(self, **told):
        self.told.append(told)
        return {}


@pytest.fixture
def api():
    return Api()


def _looked(group):
    """Have it look, and wait for that."""
    group._due = 0.0
    group.ends()
    if group._look:
        group._look.join(5)
    return group.ends()


@pytest.mark.parametrize(
    ("state", "ends"),
    [("InService", False), ("Protected", False), ("Standby", False), ("Removing", True), ("Removing:Wait", True)],
)
def test_a_node_learns_that_its_group_ends_it(api, state, ends):
    api.states["i-1"] = state
    assert _looked(Ess(api, "i-1", "drain")) is ends


def test_a_node_of_no_group_goes_on(api):
    assert _looked(Ess(api, "i-3", "drain")) is False


def test_looks_are_rare_and_the_last_word_stands(api):
    """A loop asks each second; an account's calls are counted."""
    group = Ess(api, "i-1", "drain")
    for _ in range(50):
        group.ends()
    group._look.join(5)
    assert api.asked == ["DescribeScalingInstances"]
    api.states["i-1"] = "Removing:Wait"
    assert _looked(group) is True
    api.states["i-1"] = "InService"
    asked = len(api.asked)
    assert _looked(group) is True
    assert len(api.asked) == asked


def test_without_a_hook_nothing_is_asked(api):
    """Nothing waits for an answer then, and the API may be out of reach."""
    group = Ess(api, "i-2", "")
    assert _looked(group) is False
    assert api.asked == []


def test_an_api_out_of_reach_is_told_of_once_and_is_no_end(api, capsys):
    group = Ess(api, "i-2", "drain")
    api.trouble = [ApiError("away")] * 2
    assert (_looked(group), _looked(group)) == (False, False)
    assert capsys.readouterr().out.count("whether its group ends this node can't be asked: away") == 1
    assert _looked(group) is True


def test_a_group_says_how_many_nodes_it_is_to_have(api):
    assert Ess(api, "i-1", "").capacity() == 7


class Metadata:
    def interruption(self):
        return None

    def terminating(self):
        return False

    def at_risk(self):
        return None


def test_a_node_that_is_done_completes_its_own_hook_for_itself_alone(api):
    api.states["i-1"] = "Removing:Wait"
    group = Ess(api, "i-1", "drain")
    assert _looked(group)
    node = Lifecycle(Metadata(), "i-1", "cn-hangzhou", "drain", group)
    assert node.notice() == "its group ends this node"
    for _ in range(2):
        node.settle()
        node.close()
    assert api.told == [
        {"LifecycleHookId": "ash-1", "LifecycleActionToken": "t-1", "LifecycleActionResult": "CONTINUE"}
    ]


def test_a_group_that_can_not_be_told_is_told_later(api, capsys):
    group = Ess(api, "i-2", "drain")
    assert _looked(group)
    node = Lifecycle(Metadata(), "i-2", "cn-hangzhou", "drain", group)
    api.trouble = [ApiError("away")]
    node.close()
    assert "the group can't be told yet that this node is done: away" in capsys.readouterr().out
    node.close()
    assert [told["LifecycleActionToken"] for told in api.told] == ["t-3"]


# --- The node's own metadata service


class Service:
    """One that is open, and closes so many looks after it was told to."""

    def __init__(self, after, api):
        self.after, self.api = after, api

    def answers_without_token(self):
        if self.after is None:
            return False
        if self.api.told:
            self.after -= 1
        return self.after > 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(harden, "RETRY_S", 0.001)
    monkeypatch.setattr(harden, "LIMIT_S", 0.2)


class Ecs:
    def __init__(self):
        self.told = []

    def call(self, service, action, **asked):
        self.told.append((service, action, asked))
        return {}


def test_a_node_has_its_metadata_take_tokens_alone_and_sees_that_it_does(quick):
    api = Ecs()
    assert harden.metadata(Service(3, api), api, "i-1")[1] == "instance metadata takes tokens alone from now on"
    asked = {"InstanceId": "i-1", "HttpEndpoint": "enabled", "HttpTokens": "required"}
    assert api.told == [("ecs", "ModifyInstanceMetadataOptions", asked)]


def test_b12_what_is_hardened_already_is_left_alone(quick):
    api = Ecs()
    assert harden.metadata(Service(None, api), api, "i-1")[1].endswith("already")
    assert api.told == []


def test_metadata_that_stays_open_ends_the_boot(quick):
    """A request for it that is answered is no proof: the service alone is."""
    api = Ecs()
    with pytest.raises(Open, match=r"still answers without a token .* ecs:ModifyInstanceMetadataOptions"):
        harden.metadata(Service(10**9, api), api, "i-1")
