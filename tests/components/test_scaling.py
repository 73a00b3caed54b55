"""What changes the fleet's size: how many nodes a backlog adds, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.checks import review
from components.findings import Invalid, Severity
from components.scaling import MOST_STEPS, cron_fault, governed, idle_minutes, resize, steps
from components.spec import parse
from trainer.node.agent import LINGER_S

GPUS = {"nodes.type": "g5.12xlarge", "job.batch": 64}
OUT = {"network.egress": "endpoints"}


def _added(most, short):
    """Nodes that are added where so many are short, as a step policy has it."""
    return max((step for step in steps(most) if step.short <= short), key=lambda step: step.short, default=None)


@given(st.integers(1, 1000), st.floats(1, 2000))
def test_every_shortage_is_met_in_one_step_and_by_no_more_than_a_third_or_so_too_many(most, short):
    added = _added(most, short).nodes
    assert added >= min(most, math.floor(short)), "a second step would cost the gang a second restart"
    assert added <= most
    assert added <= max(1, short) * most ** (1 / MOST_STEPS) * 1.5, "GPUs that nothing asked for"


@given(st.integers(1, 1000))
def test_steps_leave_no_gap_do_not_overlap_and_are_no_more_than_a_policy_may_have(most):
    found = steps(most)
    assert 1 <= len(found) <= MOST_STEPS
    assert found[0].short == 1
    assert [step.nodes + 1 for step in found[:-1]] == [step.short for step in found[1:]]
    assert found[-1].nodes == most


def test_few_nodes_are_added_to_the_node():
    assert [_added(200, short).nodes for short in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 5]


def _judged(stack, changes):
    return review("c1", parse(stack({**OUT, **changes})))[1]


def _refused(stack, changes):
    with pytest.raises(Invalid) as raised:
        _judged(stack, changes)
    return str(raised.value)


def _schedule(**given):
    return {"cron": "0 7 * * MON-FRI", "time_zone": "Europe/Berlin", "nodes": 2, **given}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"scaling.gpu_target": 0}, "scaling.gpu_target: must be at least 1, not 0"),
        ({"scaling.gpu_target": 101}, "scaling.gpu_target: must be at most 100, not 101"),
        ({"scaling.gpu_target": 80}, "scaling.gpu_target: m6a.large (nodes.type) has no NVIDIA GPUs"),
        (
            {**GPUS, "scaling.gpu_target": 80, "nodes.max": 2},
            "scaling.gpu_target: no node can be added: the fleet has 2 nodes and may have no more. Raise nodes.max",
        ),
        ({"scaling.queue": {"backlog": 0}}, "scaling.queue.backlog: must be at least 1, not 0"),
        ({"scaling.queue": {"backlg": 1}}, "scaling.queue.backlg: there is no such key. Did you mean backlog?"),
        ({"scaling.queue": 3}, "scaling.queue: must be a mapping with keys such as attempts, backlog"),
        ({"scaling.idle_minutes": 4}, "scaling.idle_minutes: must be at least 5, not 4"),
        (
            {"scaling.schedules": [_schedule(cron="0 7 * *")]},
            "scaling.schedules.0.cron: '0 7 * *': it has 4 fields, not the 5 that Auto Scaling takes. Write it as in",
        ),
        (
            {"scaling.schedules": [_schedule(time_zone="Europe/Berln")]},
            "scaling.schedules.0.time_zone: there is no time zone 'Europe/Berln'. Did you mean Europe/Berlin",
        ),
        (
            {"scaling.schedules": [_schedule(), _schedule(nodes=5)]},
            "scaling.schedules.1.nodes: 5 nodes are more than the 4 that the fleet may have. "
            "Lower it to 4 or raise nodes.max",
        ),
        (
            {"scaling.schedules": [_schedule(nodes=1)], "nodes.min": 2},
            "scaling.schedules.0.nodes: 1 nodes would be paid for and wait, as 2 are needed to train",
        ),
        ({"scaling.schedules": [{"cron": "0 7 * * *"}]}, "scaling.schedules.0.nodes: is missing. Nodes to keep"),
    ],
    ids=str,
)
def test_what_could_never_work_is_refused_with_its_path_and_its_fix(stack, changes, line):
    assert _refused(stack, changes).startswith(line)


@pytest.mark.parametrize("scaling", [{"queue": True}, {"idle_minutes": 10}, {"schedules": [_schedule()]}])
def test_c1_a_capacity_block_is_not_scaled(stack, scaling):
    block = {"nodes.type": "p5.48xlarge", "job.batch": 64, "nodes.capacity": "capacity-block"}
    named = {"nodes.reservation": "cr-0123456789abcdef0"}
    text = _refused(stack, {**block, **named, "scaling": scaling})
    assert text.startswith("scaling: a capacity block holds so many nodes for so long, all paid for ahead")


@pytest.mark.parametrize(
    ("reservation", "said"),
    [("create", "run or not."), ("cr-0123456789abcdef0", "run or not, and launches none beyond its own size.")],
)
def test_c3_a_reservation_that_is_scaled_is_warned_of_with_what_it_holds(stack, reservation, said):
    reserved = {"nodes.capacity": "reserved", "nodes.reservation": reservation, "nodes.max": 2}
    (warning,) = _judged(stack, {**reserved, "scaling.queue": True})
    assert (warning.path, warning.severity) == ("scaling", Severity.WARNING)
    assert said in str(warning)


@pytest.mark.parametrize(
    ("scaling", "command"),
    [
        ({"idle_minutes": 10}, "`pulumi up --refresh`"),
        ({"idle_minutes": 10, "gpu_target": 80}, "`aws autoscaling set-desired-capacity`"),
    ],
)
def test_a_fleet_that_nothing_brings_back_from_zero_is_warned_of_with_what_does(stack, scaling, command):
    (warning,) = _judged(stack, {**GPUS, "scaling": scaling})
    assert (warning.path, warning.severity) == ("scaling.idle_minutes", Severity.WARNING)
    assert command in str(warning)
    again = {"queue": True} if "gpu_target" in scaling else {"schedules": [_schedule()]}
    assert _judged(stack, {**GPUS, "scaling": {**scaling, **again}}) == []


@pytest.mark.parametrize("scaling", [{}, {"queue": True}])
def test_b8_metrics_without_a_way_to_cloudwatch_are_refused(stack, scaling):
    """Nodes would say nothing, and a policy that hears nothing does nothing."""
    first, *more = _refused(stack, {"network.egress": "bucket", "scaling": scaling}).splitlines()
    assert first == (
        "network.egress: nodes reach the bucket alone, but scaling needs a way for nodes' metrics to CloudWatch "
        "(monitoring). Set it to endpoints or nat"
    )
    assert ["scaling.queue needs a way for the count of what waits (sqs)" in line for line in more] == [True] * len(
        scaling
    )


@pytest.mark.parametrize(
    "cron",
    ["0 7 * * MON-FRI", "*/5 0-6/2 1,15 * *", "30 0 1 1,6,12 *", "59 23 31 DEC sun", "0 0 * * 7", "0 22 1-7 * 5"],
)
def test_what_cron_takes_is_taken(cron):
    assert cron_fault(cron) == ""


@pytest.mark.parametrize(
    ("cron", "fault"),
    [
        ("0 7 ? * MON", "'?' is no day of month"),
        ("0 7 * * MON *", "it has 6 fields"),
        ("60 7 * * *", "'60' is no minute: those are 0 to 59"),
        ("0 24 * * *", "'24' is no hour: those are 0 to 23"),
        ("0 0 0 * *", "'0' is no day of month: those are 1 to 31"),
        ("0 0 1 13 *", "'13' is no month: those are 1 to 12, or JAN to DEC"),
        ("0 0 * * 8", "'8' is no day of week: those are 0 to 7, or SUN to SAT"),
        ("0 0 * * FRI-MON", "'FRI-MON' is a range that ends before it begins"),
        ("*/0 * * * *", "'*/0' has a step that isn't 1 to 59"),
        ("@daily", "it has 1 fields"),
        ("0 0 L * *", "'L' is no day of month"),
        ("0, 0 * * *", "'' is no minute"),
        ("", "it has 0 fields"),
    ],
)
def test_what_auto_scaling_would_refuse_is_refused_here(cron, fault):
    assert cron_fault(cron).startswith(fault)


@given(st.text(alphabet="0123456789*/,-MONJA ?", max_size=30))
def test_whatever_is_written_for_a_cron_is_judged_and_raises_nothing(cron):
    assert isinstance(cron_fault(cron), str)


@pytest.mark.parametrize(
    ("scaling", "minutes", "governs"),
    [
        (None, None, False),
        ({}, None, False),
        ({"queue": False}, None, False),
        ({"queue": True}, 15, True),
        ({"queue": {}, "idle_minutes": 30}, 30, True),
        ({"idle_minutes": 30}, 30, False),
        ({"schedules": [_schedule()]}, None, True),
        ({"gpu_target": 80}, None, True),
    ],
    ids=str,
)
def test_a_fleet_rests_and_is_left_alone_where_the_file_says_so(stack, scaling, minutes, governs):
    spec = parse(stack({"scaling": scaling}))
    assert governed(spec) is governs
    assert (idle_minutes(spec.scaling) if spec.scaling else None) == minutes


def test_nodes_say_that_their_run_has_ended_for_longer_than_anybody_waits_for_it(stack):
    longest = 240
    parse(stack({"scaling.idle_minutes": longest}))
    with pytest.raises(Invalid):
        parse(stack({"scaling.idle_minutes": longest + 1}))
    assert longest * 60 + 1800 < LINGER_S


# ---- Alibaba Cloud


def _there(ali, scaling):
    changes = {"scaling": scaling, "network.egress": "endpoints", "nodes.fabric": "tcp", "nodes.min": 1}
    return [str(finding) for finding in review("c1", parse(ali(changes)))[1] if "catalog.overrides" not in finding.fix]


def test_what_ess_and_smq_do_otherwise_is_said(ali):
    lines = _there(ali, {"queue": True, "schedules": [{"cron": "0 7 * * MON-FRI", "nodes": 2}]})
    assert any(line.startswith("scaling.schedules: ESS ends a schedule after a year") for line in lines)
    assert any(line.startswith("scaling.queue: SMQ makes a queue with a key of yours only where") for line in lines)
    assert any(line.startswith("nodes.failed_boots: at zero, the group still launches") for line in lines)
    assert any(line.startswith("scaling: whoever may put custom metrics") for line in lines)
    assert not any("scaling" in line or "failed_boots" in line for line in _there(ali, {}))


@pytest.mark.parametrize(
    ("cron", "zone", "fits"),
    [
        ("0 7 * * MON-FRI", "Asia/Shanghai", True),
        ("0 7 1 * *", "Etc/UTC", True),
        ("0 7 * * MON-FRI", "Europe/Berlin", False),
        ("0 7 1 * *", "Asia/Shanghai", False),
    ],
)
def test_a_schedule_that_utc_cannot_say_is_refused(ali, cron, zone, fits):
    scaling = {"schedules": [{"cron": cron, "time_zone": zone, "nodes": 2}]}
    if fits:
        _there(ali, scaling)
        return
    with pytest.raises(Invalid) as raised:
        _there(ali, scaling)
    assert str(raised.value).startswith("scaling.schedules.0: ")
    assert "Use a zone without summer time" in str(raised.value)


def test_a_fleet_gets_its_size_back_by_its_own_clouds_command(stack, ali):
    queue = {"scaling": {"queue": True}}
    assert resize(parse(stack(queue))).startswith("aws autoscaling")
    assert resize(parse(ali(queue))).startswith("aliyun ess")
    assert resize(parse(ali())) == "pulumi up --refresh"
