"""What Alibaba Cloud, or what declares it, does otherwise than AWS is said before; what it can't do is refused."""

import pytest

from components.alibaba_checks import NO_RETENTION, TDX_ZONES
from components.bootstrap import node_config
from components.catalog import instance_types
from components.checks import review
from components.findings import Invalid, Severity
from components.plan import decide
from components.spec import parse

ENDPOINTS = {"network.egress": "endpoints"}
TCP = {"nodes.fabric": "tcp"}
POOL = {"nodes.capacity": "reserved", "nodes.reservation": "crp-bp1opxu1zkhn00g5lr2ts", "nodes.max": 2}
MIXED = {"nodes.capacity": "mixed", "nodes.on_demand_base": 1}
AUDIT = {"audit.enabled": True, "audit.emails": ["a@example.com"]}


def _plan(values, changes):
    return decide("c1", parse(values(changes)))


def _said(values, changes, path):
    """Warnings of a path, as lines."""
    _, findings = review("c1", parse(values(changes)))
    assert all(finding.severity is Severity.WARNING for finding in findings)
    return [str(finding) for finding in findings if finding.path == path]


def _refused(values, changes):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(values(changes)))
    return str(raised.value).splitlines()


# ---- what a group is declared from


@pytest.mark.parametrize(
    ("changes", "source", "itself"),
    [
        (ENDPOINTS, "configuration", True),
        (ENDPOINTS | TCP, "template", False),
        (ENDPOINTS | TCP | POOL, "configuration", True),
        (ENDPOINTS | TCP | {"nodes.confidential": "tdx"}, "configuration", True),
        (ENDPOINTS | TCP | MIXED, "template", False),
        ({}, "configuration", True),
        (TCP, "template", False),
    ],
    ids=str,
)
def test_only_a_configuration_has_erdma_pools_or_tdx_and_its_nodes_see_that_tokens_are_enforced(
    ali, changes, source, itself
):
    plan = _plan(ali, changes)
    assert (plan.pool.source, plan.checks_tokens) == (source, itself)
    assert node_config(plan, "b", "k", "s").get("harden", False) is itself


def test_on_aws_all_comes_from_a_template_that_enforces_tokens(stack):
    for changes in ({}, {"nodes.type": "p4d.24xlarge", "job.batch": 32}):
        plan = _plan(stack, changes)
        assert (plan.pool.source, plan.checks_tokens, plan.pool.refreshes) == ("template", False, True)
        assert not {"harden", "tdx"} & node_config(plan, "b", "k", "s").keys()


def test_data_nodes_are_from_a_template_whatever_the_others_are_from(ali):
    plan = _plan(ali, {"data_nodes": {"type": "ecs.i4.32xlarge"}})
    assert (plan.pool.source, plan.data.source) == ("configuration", "template")


@pytest.mark.parametrize(
    ("changes", "path", "added"),
    [
        (ENDPOINTS, "nodes.fabric", "eRDMA and metadata tokens"),
        (ENDPOINTS | TCP | POOL, "nodes.reservation", "metadata tokens"),
        (ENDPOINTS | TCP | {"nodes.confidential": "tdx"}, "nodes.confidential", "TDX and metadata tokens"),
    ],
    ids=str,
)
def test_what_was_never_tried_on_a_real_account_is_said_once(ali, changes, path, added):
    (line,) = [line for line in _said(ali, changes, path) if "real account" in line]
    assert line.startswith(f"{path}: OOS adds {added} to the group before its first node")


@pytest.mark.parametrize("changes", [ENDPOINTS | TCP, TCP, TCP | MIXED], ids=str)
def test_a_template_is_declared_whole_and_nothing_is_said_of_it(ali, changes):
    assert _said(ali, changes, "nodes.fabric") == []


def test_tokens_are_enforced_wherever_nodes_reach_so_that_production_may_keep_to_the_bucket(ali):
    review("c1", parse(ali({**AUDIT, "production": True})))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (ENDPOINTS | {"nodes.disk_gb": 500}, []),
        (TCP | {"nodes.disk_gb": 2048}, []),
        (
            ENDPOINTS | {"nodes.disk_gb": 501},
            ["nodes.disk_gb: a group with eRDMA has no root disk of 501 GiB. Choose 20 to 500"],
        ),
        (
            TCP | {"nodes.disk_gb": 2049},
            ["nodes.disk_gb: Alibaba Cloud has no root disk of 2,049 GiB. Choose 20 to 2,048"],
        ),
        (TCP | {"nodes.disk_gb": 19}, ["nodes.disk_gb: Alibaba Cloud has no root disk of 19 GiB. Choose 20 to 2,048"]),
    ],
    ids=str,
)
def test_root_disks_are_such_as_a_group_takes(ali, changes, lines):
    if lines:
        assert _refused(ali, changes) == lines
    else:
        review("c1", parse(ali(changes)))


# ---- placement, refresh, order


def test_with_erdma_there_is_no_deployment_set_whatever_the_file_says_of_the_type(ali):
    facts = {"ecs.g8i.24xlarge": {"cluster_placement": True}}
    assert not _plan(ali, {"catalog.overrides": facts}).placed
    assert not _plan(ali, {"catalog.overrides": facts} | TCP).placed


@pytest.mark.parametrize(("changes", "refreshes"), [({}, True), (POOL, True), (MIXED, False)], ids=str)
def test_a_group_that_mixes_is_refreshed_by_nobody_and_that_is_said(ali, changes, refreshes):
    assert _plan(ali, changes | TCP).pool.refreshes is refreshes
    assert (_said(ali, changes | TCP, "nodes.refresh") == []) is refreshes
    assert _said(ali, {**changes, **TCP, "nodes.refresh": False}, "nodes.refresh") == []


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, True),
        ({"nodes.spot_strategy": "lowest-price"}, False),
        ({"nodes.alternatives": []}, False),
        ({"nodes.fabric": "auto"}, False),
    ],
    ids=str,
)
def test_an_order_that_the_provider_loses_is_said(ali, changes, lost):
    several = {"nodes.capacity": "spot", "nodes.alternatives": ["ecs.g8i.16xlarge"], **TCP}
    assert bool(_said(ali, several | changes, "nodes.alternatives")) is lost


def test_that_spot_nodes_are_replaced_late_is_said_and_no_room_is_kept_for_it(ali, stack):
    assert _said(ali, TCP | MIXED, "nodes.capacity")
    assert _said(ali, TCP, "nodes.capacity") == []
    assert _plan(ali, TCP | MIXED).most_nodes == 4
    assert _plan(stack, MIXED).most_nodes == 5


def test_c12_types_of_another_erdma_layout_and_several_zones_are_refused(ali):
    """A group falls back only to what its nodes are alike in; else ESS retries without end for what can't be had."""
    other = {"nodes.capacity": "spot", "nodes.alternatives": ["ecs.g8a.24xlarge"]}
    (line,) = _refused(ali, other)
    assert line.startswith("nodes.alternatives.0: ecs.g8a.24xlarge differs from ecs.g8i.24xlarge in network interfaces")
    review("c1", parse(ali(other | TCP)))
    (line,) = _refused(ali, {"network.zones": ["ap-southeast-1a", "ap-southeast-1b"]})
    assert line == "network.zones: nodes would be spread over 2 zones, which eRDMA can't span. Name one zone"


def test_a_layout_of_efa_is_refused(ali):
    assert _refused(ali, {"nodes.nic_layout": "ip-saving"}) == [
        "nodes.nic_layout: ip-saving is a layout of EFA interfaces, and eRDMA ones have a single one. Take it away"
    ]


def test_b9_nodes_that_cannot_say_that_they_failed_are_warned_of(ali):
    assert _said(ali, TCP, "nodes.failed_boots")
    assert _said(ali, TCP | ENDPOINTS, "nodes.failed_boots") == []


# ---- what guards memory


@pytest.mark.parametrize("word", ["nitro-enclaves", "nitro-tpm", "sev-snp"])
def test_aws_words_for_what_guards_memory_are_refused_with_alibabas(ali, word):
    assert _refused(ali, {"nodes.confidential": word}) == [
        f"nodes.confidential: ecs.g8i.24xlarge has no {word}. No type of Alibaba Cloud has it: choose tdx"
    ]


def test_alibabas_word_is_refused_on_aws_with_aws(stack):
    (line,) = _refused(stack, {"nodes.confidential": "tdx"})
    assert line.endswith("m6a.large has no tdx. No type of AWS has it: choose nitro-enclaves, nitro-tpm, sev-snp")


def test_a_type_without_tdx_is_refused_with_those_that_have_it(ali):
    (line,) = _refused(ali, {"nodes.type": "ecs.g8i.large", "nodes.confidential": "tdx"})
    assert line.startswith("nodes.confidential: ecs.g8i.large has no tdx. Types that have it: ecs.g8i.")


def test_tdx_is_told_to_nodes_which_fail_their_boot_outside_of_it(ali):
    changes = ENDPOINTS | {"nodes.confidential": "tdx"}
    assert node_config(_plan(ali, changes), "b", "k", "s")["tdx"] is True


def test_a_zone_that_no_document_names_for_tdx_is_said(ali):
    changes = ENDPOINTS | {"nodes.confidential": "tdx"}
    (line,) = _said(ali, changes, "network.zones")
    assert "has TDX in ap-southeast-1a, but in cn-beijing-i" in line
    known = {"region": "cn-beijing", "network.zones": ["cn-beijing-i"], "nodes.confidential": "tdx"} | ENDPOINTS
    assert _said(ali, known, "network.zones") == []


def test_every_family_with_tdx_has_zones_that_documents_name():
    families = {name.removeprefix("ecs.") for name, kind in instance_types("alicloud").items() if kind.confidential}
    assert all(any(name.startswith(family) for family in TDX_ZONES) for name in families)


# ---- what isn't what it is taken for


@pytest.mark.parametrize(
    ("kind", "said"), [("ecs.g8i.4xlarge", True), ("ecs.g8a.4xlarge", False), ("ecs.gn8is-8x.32xlarge", False)]
)
def test_g8i_is_said_to_have_no_gpu(ali, kind, said):
    lines = _said(ali, {"nodes.type": kind, "job.batch": 32, **TCP}, "nodes.type")
    assert any("has no GPU" in line for line in lines) is said


def _doubts(ali, changes):
    return [line for line in _said(ali, changes, "nodes.type") if "no primary source" in line]


def test_facts_without_a_source_are_named_once_where_the_plan_relies_on_them(ali):
    (line,) = _doubts(ali, ENDPOINTS)
    assert line.startswith(
        "nodes.type: of ecs.g8i.24xlarge (taken to have 1) no primary source states how many eRDMA interfaces it takes "
        "or in which regions it is. Compare EriQuantity of `aliyun ecs DescribeInstanceTypes` and"
    )
    (line,) = _doubts(ali, TCP)
    assert "eRDMA" not in line
    (line,) = _doubts(ali, TCP | {"nodes.capacity": "spot"})
    assert "that it is sold as spot" in line


def test_facts_that_the_file_states_are_doubted_no_longer(ali):
    facts = {"fabric_interfaces": 1, "regions": ["ap-southeast-1"]}
    assert _doubts(ali, ENDPOINTS | {"catalog.overrides": {"ecs.g8i.24xlarge": facts}}) == []


# ---- audit


def test_what_of_an_audit_differs_is_said(ali):
    (line,) = _said(ali, {**AUDIT, **TCP}, "audit.lock")
    assert line.startswith("audit.lock: OSS has no such lock")
    (line,) = _said(ali, {**AUDIT, **TCP, "audit.lock": "compliance"}, "audit.lock")
    assert line.startswith("audit.lock: nobody, Alibaba Cloud included, can delete the record")
    assert _said(ali, {**AUDIT, **TCP, "audit.budget_usd": 100}, "audit.budget_usd")
    assert _said(ali, {**AUDIT, **TCP}, "audit.enabled")


def test_a_lock_where_oss_has_none_is_refused(ali):
    assert "us-east-1" in NO_RETENTION
    there = {"region": "us-east-1", "network.zones": ["us-east-1a"], "audit.lock": "compliance", **TCP, **AUDIT}
    assert "audit.lock: OSS has no retention policies in us-east-1. Choose governance, or another region" in _refused(
        ali, there
    )


# ---- where it is


@pytest.mark.parametrize(
    ("region", "said"),
    [("cn-hangzhou", True), ("cn-beijing", True), ("cn-hongkong", False), ("ap-southeast-1", False)],
)
def test_where_oss_refuses_new_accounts_from_outside_it_is_said_what_to_do(ali, region, said):
    lines = _said(ali, TCP | {"region": region, "network.zones": [f"{region}-b"]}, "region")
    assert len(lines) == said
    assert all(line.endswith(f"on an ECS instance in {region}, with TRAINWRIGHT_OSS_INTERNAL=1") for line in lines)


def test_nothing_of_all_this_is_said_of_aws(stack):
    assert (
        review(
            "c1",
            parse(
                stack(
                    {
                        "nodes.capacity": "mixed",
                        "audit.enabled": True,
                        **{"audit.emails": ["a@example.com"], "audit.budget_usd": 100},
                    }
                )
            ),
        )[1]
        == []
    )
