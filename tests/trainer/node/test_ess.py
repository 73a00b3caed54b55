"""What a node of an ESS group learns of its end, what it tells the group, and how it looks at its metadata service."""

import pytest

from components.plan import DRAIN_S
from trainer.alicloud import ApiError
from trainer.grace import GRACE_S
from trainer.node import ess, harden, workers
from trainer.node.ess import Ess
from trainer.node.harden import Open
from trainer.node.lifecycle import Lifecycle


class Api:
    """A group of two nodes, each in a state; while one is removed, an activity waits for it at two hooks."""

    def __init__(self):
        self.states = {"i-1": "InService", "i-2": "Removing:Wait"}
        self.told, self.trouble, self.asked = [], [], []
        self.pages = [[("t-1", "ash-1", ["i-1"]), ("t-2", "ash-2", ["i-1"]), ("t-3", "ash-1", ["i-2"])]]

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

    def DescribeScalingActivities(self, ScalingGroupId, StatusCode, PageSize):
        assert (ScalingGroupId, StatusCode, PageSize) == ("asg-1", "InProgress", 50)
        return {"ScalingActivities": [{"ScalingActivityId": "asa-1"}]}

    def DescribeLifecycleActions(self, ScalingActivityId, LifecycleActionStatus, MaxResults, NextToken="0"):
        assert (ScalingActivityId, LifecycleActionStatus, MaxResults) == ("asa-1", "Pending", 50)
        keys, page = ("LifecycleActionToken", "LifecycleHookId", "InstanceIds"), int(NextToken)
        answer = {"LifecycleActions": [dict(zip(keys, one, strict=True)) for one in self.pages[page]]}
        return answer | {"NextToken": str((page + 1) % len(self.pages)) if self.goes_on(page) else ""}

    def goes_on(self, page):
        return page + 1 < len(self.pages)

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
        group._look.join(30)
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
    group._look.join(30)
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
    assert node.notice() == ("its group ends this node", GRACE_S)
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


def test_a_node_whose_end_has_no_action_yet_is_done_once_it_has(api, capsys):
    """A group says that it ends a node before the hook holds it: what is said then is heard by nobody."""
    actions, api.pages, api.states["i-2"] = api.pages, [[]], "Removing"
    group = Ess(api, "i-2", "drain")
    assert _looked(group)
    node = Lifecycle(Metadata(), "i-2", "cn-hangzhou", "drain", group)
    node.close()
    assert "no action of the hook 'drain' waits for this node yet" in capsys.readouterr().out
    api.pages = actions
    for _ in range(2):
        node.close()
    assert [told["LifecycleActionToken"] for told in api.told] == ["t-3"]


def test_among_many_nodes_that_end_at_a_time_each_finds_its_action(api):
    """ESS lists 10 of them unless asked for more, and never more than 50 at once."""
    api.pages = [[], [], *api.pages]
    Ess(api, "i-2", "drain").release("drain")
    assert [told["LifecycleActionToken"] for told in api.told] == ["t-3"]


def test_a_list_without_an_end_is_not_read_for_ever(api, monkeypatch):
    api.pages = [[]]
    monkeypatch.setattr(api, "goes_on", lambda _page: True)
    with pytest.raises(ApiError, match="waits for this node yet"):
        Ess(api, "i-2", "drain").release("drain")
    assert api.asked.count("DescribeLifecycleActions") == 20


def test_a_node_hears_of_its_end_soon_enough_to_save_within_the_hooks_time():
    """A drain may take `GRACE_S`; the group waits for `DRAIN_S` in all."""
    assert ess.EVERY_S + workers.GRACE_S <= DRAIN_S - 5


# --- The node's own metadata service


class Service:
    """One that answers anybody for so many looks."""

    def __init__(self, looks):
        self.looks = looks

    def answers_without_token(self):
        self.looks -= 1
        return self.looks >= 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(harden, "RETRY_S", 0.001)
    monkeypatch.setattr(harden, "LIMIT_S", 0.2)


@pytest.mark.parametrize("looks", [0, 3])
def test_a_node_sees_that_its_metadata_takes_tokens_alone(quick, looks):
    assert harden.check(Service(looks)) == (None, "instance metadata takes tokens alone")


def test_metadata_that_is_open_ends_the_boot(quick):
    """What was asked of the group is no proof: the service alone is."""
    with pytest.raises(Open, match="answers without a token: have the group's scaling configuration enforce tokens"):
        harden.check(Service(10**9))
