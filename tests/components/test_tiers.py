"""Storage tiers: nothing that a run needs is frozen, rules go one way, and a file system is one that FSx makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.checks import review
from components.cost import cost
from components.findings import Invalid, Severity
from components.oss import ADDRESSES
from components.plan import decide
from components.spec import parse
from components.tiers import COLDER, RESTORED, live, overlap

ENDED = "runs/gpt-0a1b2c3d/"


def _cold(*rules):
    return {
        "storage.cold": [{"prefix": prefix, "after_days": days, "class": kind} for prefix, days, kind in rules],
    }


def _judged(stack, changes):
    """The warnings about a stack, and the errors that refuse it."""
    try:
        return review("c1", parse(stack(changes)))[1], []
    except Invalid as invalid:
        return [], invalid.findings


def _refused(stack, changes):
    _, errors = _judged(stack, changes)
    return [str(error) for error in errors]


def _warned(stack, changes):
    warnings, errors = _judged(stack, changes)
    assert not errors
    assert all(warning.severity is Severity.WARNING for warning in warnings)
    return [str(warning) for warning in warnings]


@pytest.mark.parametrize("kind", sorted(RESTORED))
@pytest.mark.parametrize("prefix", ["runs/", "runs/gpt", "run", "r", "datasets/", "datasets/te", "datasets/text/"])
def test_what_the_run_reads_is_never_frozen(stack, prefix, kind):
    """A node would find its checkpoint or its dataset in Glacier and fail, hours from a restore."""
    (line,) = _refused(stack, _cold((prefix, 30, kind)))
    assert line.startswith(f"storage.cold.0.prefix: '{prefix}' holds ")


def test_a_runs_own_control_and_checkpoints_are_what_the_run_reads(stack):
    run = decide("c1", parse(stack())).run.id
    for inside in ("", "/", "/control/", "/checkpoints/", "/checkpoints/step-000000050/"):
        (line,) = _refused(stack, _cold((f"runs/{run}{inside}", 30, "deep-archive")))
        assert line == (
            f"storage.cold.0.prefix: 'runs/{run}{inside}' holds the run's checkpoints and what its nodes agree "
            "through, which can't be read from deep-archive. Name what no run needs any more, such as "
            "runs/gpt-0a1b2c3d/ of a run that has ended, or set class to instant-archive, which is read at once"
        )


@pytest.mark.parametrize(
    ("prefix", "what"),
    [
        ("bundles/", "the trainer"),
        ("b", "the trainer"),
        ("fleet.json", "the fleet's sizes"),
        ("f", "the fleet's sizes"),
        ("data/nodes/", "what data nodes say of themselves"),
    ],
)
@pytest.mark.parametrize("kind", ["instant-archive", "archive"])
def test_what_every_boot_reads_stays_where_it_is(stack, prefix, what, kind):
    (line,) = _refused(stack, _cold((prefix, 30, kind)))
    assert line == f"storage.cold.0.prefix: '{prefix}' holds {what}. Name a prefix below datasets/ or runs/"


@pytest.mark.parametrize("prefix", ["checkpoints/", "/runs/"])
def test_a_prefix_that_holds_nothing_is_a_slip(stack, prefix):
    assert _refused(stack, _cold((prefix, 30, "archive"))) == [
        f"storage.cold.0.prefix: nothing lies below '{prefix}'. Name a prefix below datasets/ or runs/"
    ]


@pytest.mark.parametrize("prefix", ["", "runs/*/logs/", "runs/ü/"])
def test_a_prefix_is_plain(stack, prefix):
    """S3 takes `*` for itself; an empty prefix is the whole bucket."""
    with pytest.raises(Invalid, match=r"storage\.cold\.0\.prefix: .* is not of the right form"):
        parse(stack(_cold((prefix, 30, "archive"))))


def test_ended_runs_and_other_datasets_may_freeze(stack):
    rules = (ENDED, 30, "archive"), (ENDED, 120, "deep-archive"), ("datasets/older/", 1, "deep-archive")
    assert _warned(stack, _cold(*rules)) == []


def test_glacier_instant_retrieval_freezes_nothing_but_charges_for_reading(stack):
    (line,) = _warned(stack, _cold(("runs/", 30, "instant-archive")))
    assert line == (
        "storage.cold.0.prefix: 'runs/' holds the run's checkpoints and what its nodes agree through; each read from "
        "instant-archive is charged by size. Name what is rarely read"
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((ENDED, 30, "deep-archive"), (ENDED, 300, "archive")),
        ((ENDED, 30, "archive"), (f"{ENDED}checkpoints/", 300, "instant-archive")),
        ((ENDED, 30, "archive"), (ENDED, 30, "deep-archive")),
        ((ENDED, 30, "archive"), (ENDED, 300, "archive")),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_objects_move_to_colder_classes_only_and_later(stack, first, then, swapped):
    rules = (then, first) if swapped else (first, then)
    (line,) = _refused(stack, _cold(*rules))
    assert "S3 moves objects to colder classes only, one after another. Give the colder class more days" in line


def test_rules_that_never_meet_may_be_as_they_like(stack):
    assert _warned(stack, _cold((ENDED, 30, "deep-archive"), ("runs/other-0a1b2c3d/", 30, "archive"))) == []


def test_a_class_that_is_left_before_it_is_paid_off_is_warned_of(stack):
    rules = (ENDED, 30, "instant-archive"), (ENDED, 60, "deep-archive")
    assert _warned(stack, _cold(*rules)) == [
        "storage.cold.1.after_days: objects leave instant-archive after 30 days, but are paid for there for 90. Raise "
        "it to 120, or take storage.cold.0 away"
    ]
    assert _warned(stack, _cold(rules[0], (ENDED, 120, "deep-archive"))) == []


KEYS = ["fleet.json", "bundles/x.tar", "datasets/text/index.json", "datasets/text/shard-00000.bin"]


@given(prefix=st.text("abdefglnrsutx/.-0123456789", max_size=20), key=st.sampled_from([*KEYS, "runs/{run}/control/a"]))
def test_no_rule_that_is_let_through_matches_what_a_run_reads(prefix, key):
    plan = decide("c1", parse(VALUES))
    key = key.format(run=plan.run.id)
    if key.startswith(prefix):
        assert any(overlap(prefix, needed) for needed in live(plan))


VALUES = {
    "region": "us-west-2",
    "network": {"zones": ["us-west-2a"]},
    "nodes": {"type": "m6a.large", "image": "ami-0123456789abcdef0"},
    "job": {"name": "gpt", "dataset": "text"},
}


@pytest.mark.parametrize("size", [1200, 2400, 4800, 7200, 48_000])
def test_sizes_that_fsx_makes_pass(stack, size):
    assert _warned(stack, {"storage.warm": {"size_gib": size}}) == []


@pytest.mark.parametrize(
    ("size", "choose"),
    [(1201, "1200 or 2400"), (3600, "2400 or 4800"), (2399, "1200 or 2400"), (10_000, "9600 or 12000")],
)
def test_other_sizes_are_refused_with_those_beside_them(stack, size, choose):
    assert _refused(stack, {"storage.warm": {"size_gib": size}}) == [
        f"storage.warm.size_gib: there is no file system of {size:,} GiB. Choose {choose}"
    ]


def test_a_size_below_the_least_and_a_throughput_that_is_not_sold_are_refused(stack):
    with pytest.raises(Invalid) as raised:
        parse(stack({"storage.warm": {"size_gib": 100, "throughput": 200}}))
    assert str(raised.value).splitlines() == [
        "storage.warm.size_gib: must be at least 1200, not 100",
        "storage.warm.throughput: '200' is not one of 125, 250, 500 or 1000",
    ]


def test_a_file_system_lies_in_one_zone_and_so_do_its_nodes(stack):
    (line,) = _refused(stack, {"storage.warm": {}, "network.zones": ["us-west-2a", "us-west-2b"]})
    assert line.startswith("storage.warm: a file system lies in one zone, but nodes would be spread over 2. Name one")


@pytest.mark.parametrize("egress", ["bucket", "endpoints", "nat"])
def test_the_file_system_needs_no_way_out(stack, egress):
    assert _warned(stack, {"storage.warm": {}, "network.egress": egress}) == []


def test_that_fsx_may_not_speak_the_newest_tls_is_said(stack):
    (line,) = _warned(stack, {"storage.warm": {}, "security.tls": "1.3"})
    assert line.startswith("security.tls: no document says that FSx reads the bucket over TLS 1.3")
    assert _warned(stack, {"security.tls": "1.3"}) == []


def test_all_that_is_wrong_with_tiers_comes_in_one_run(stack):
    changes = {**_cold(("runs/", 1, "archive"), ("bundles/", 1, "archive")), "storage.warm": {"size_gib": 1300}}
    paths = [line.split(": ")[0] for line in _refused(stack, changes)]
    assert paths == ["storage.cold.0.prefix", "storage.cold.1.prefix", "storage.warm.size_gib"]


def test_what_a_file_system_costs_is_named_as_not_counted(stack):
    plan, _ = review("c1", parse(stack({"storage.warm": {"size_gib": 4800, "throughput": 250}})))
    assert any("4,800 GiB at 250 MB/s for each TiB" in unknown for unknown in cost(plan).unknown)
    assert not any("Lustre" in unknown for unknown in cost(review("c1", parse(stack()))[0]).unknown)


# ---- Alibaba Cloud

TCP = {"nodes.fabric": "tcp", "network.egress": "endpoints"}


def _nas(ali, changes):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(ali(TCP | changes)))
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("warm", "line"),
    [
        (
            {"size_gib": 262_145},
            "storage.warm.size_gib: there is no file system of 262,145 GiB. Choose 262,144 at most",
        ),
        (
            {"size_gib": 4800, "throughput": 500},
            "storage.warm.throughput: a file system of 4,800 GiB in ap-southeast-1a gives 2,000 MB/s in all, not "
            "2,343. Lower it to 250",
        ),
    ],
)
def test_a_nas_that_there_is_not_is_refused_with_one_that_there_is(ali, warm, line):
    assert _nas(ali, {"storage.warm": warm}) == [line]


def test_a_zone_without_extreme_nas_is_refused_with_those_that_have_it(ali):
    changes = {"storage.warm": {}, "region": "cn-qingdao", "network.zones": ["cn-qingdao-a"]}
    assert _nas(ali, changes) == [
        "storage.warm: no document says that cn-qingdao-a has Extreme NAS. Choose cn-qingdao-b or cn-qingdao-c in "
        "network.zones"
    ]
    none = {"storage.warm": {}, "region": "cn-guangzhou", "network.zones": ["cn-guangzhou-a"]}
    (line,) = _nas(ali, none)
    assert line.endswith("Take it away: nor has its region")


@pytest.mark.parametrize("size", [1200, 1201, 3600, 5000])
def test_sizes_and_tls_of_fsx_are_not_those_of_nas(ali, size):
    changes = TCP | {"storage.warm": {"size_gib": size}, "security.tls": "1.3"}
    paths = {finding.path for finding in review("c1", parse(ali(changes)))[1]}
    assert not paths & {"storage.warm", "storage.warm.size_gib", "storage.warm.throughput", "security.tls"}


@pytest.mark.parametrize(("kind", "days"), [("instant-archive", 60), ("archive", 180)])
def test_objects_are_paid_for_in_a_class_of_oss_as_long_as_oss_says(ali, kind, days):
    """In S3's it is 90 days for both."""

    def lines(after):
        rules = _cold(("runs/old-0a1b2c3d/", 10, kind), ("runs/old-0a1b2c3d/", 10 + after, "deep-archive"))
        return [
            str(finding) for finding in review("c1", parse(ali(TCP | rules)))[1] if "paid for there" in str(finding)
        ]

    assert lines(days) == []
    (line,) = lines(days - 1)
    assert line.endswith(f"Raise it to {10 + days}, or take storage.cold.0 away")


def test_that_only_colder_classes_follow_is_said_of_the_right_store(ali):
    rules = _cold(("runs/old-0a1b2c3d/", 10, "archive"), ("runs/old-0a1b2c3d/", 300, "infrequent"))
    (line,) = _nas(ali, rules)
    assert "; OSS moves objects to colder classes only" in line


def _where(region, zone):
    return {"region": region, "network.zones": [zone]}


@pytest.mark.parametrize(
    ("region", "zone"),
    [("eu-central-1", "eu-central-1a"), ("cn-hongkong", "cn-hongkong-b"), ("cn-heyuan", "cn-heyuan-b")],
)
def test_a_class_that_oss_does_not_have_in_the_region_is_refused_before_up_is(ali, region, zone):
    """OSS would refuse the bucket's rules: 0013-00000108."""
    rules = _cold(("datasets/older/", 10, "archive"), ("datasets/old/", 10, "deep-archive"))
    assert _nas(ali, rules | _where(region, zone)) == [
        f"storage.cold.1.class: OSS has no deep-archive in {region}. Choose archive, which costs more to keep"
    ]


@pytest.mark.parametrize(("region", "zone"), [("ap-southeast-1", "ap-southeast-1a"), ("cn-hangzhou", "cn-hangzhou-b")])
@pytest.mark.parametrize("kind", COLDER)
def test_where_oss_has_a_class_it_is_taken(ali, region, zone, kind):
    review("c1", parse(ali(TCP | _cold(("datasets/old/", 10, kind)) | _where(region, zone))))


COLD_ARCHIVE = """cn-hangzhou cn-shanghai cn-qingdao cn-beijing cn-zhangjiakou cn-huhehaote cn-wulanchabu cn-shenzhen
cn-heyuan cn-guangzhou cn-chengdu cn-hongkong us-west-1 us-east-1 ap-northeast-1 ap-southeast-1 ap-southeast-3
ap-southeast-5 ap-southeast-6 eu-central-1 eu-west-1 me-east-1"""
"""OSS error code 0013-00000105."""


def test_every_region_that_a_cluster_can_be_in_has_oss_cold_archive():
    assert set(ADDRESSES) <= set(COLD_ARCHIVE.split())


def test_s3_has_its_classes_everywhere(stack):
    changes = _cold(("datasets/old/", 10, "deep-archive")) | _where("eu-central-1", "eu-central-1a")
    assert _refused(stack, changes) == []
