"""Data nodes: what is decided and refused of them, what they are told, what they cost."""

import json

import pytest

from components.bootstrap import LIMIT_BYTES, data_config, node_config, user_data
from components.checks import review
from components.cost import cost
from components.findings import Invalid
from components.plan import decide
from components.spec import parse
from trainer.node.config import NodeConfig

DATA = {"data_nodes.type": "i4i.32xlarge", "data_nodes.count": 2}
P4D = {"nodes.type": "p4d.24xlarge", "job.batch": 64}


@pytest.fixture
def planned(stack):
    def make(changes):
        return decide("c1", parse(stack(changes)))

    return make


def _said(stack, changes):
    """Everything that is said of the stack, errors and warnings."""
    try:
        return [str(finding) for finding in review("c1", parse(stack(changes)))[1]]
    except Invalid as invalid:
        return [str(finding) for finding in invalid.findings]


def test_there_are_none_unless_asked_for(planned):
    plan = planned({})
    assert plan.data is None
    assert "data_nodes" not in node_config(plan, "b", "k", "0" * 64)


def test_they_are_plain_nodes_bought_on_demand_with_the_image_of_the_others(planned):
    data = planned(DATA).data
    assert (data.instance.name, data.fleet.desired, data.fleet.max) == ("i4i.32xlarge", 2, 2)
    assert (data.capacity.market, data.capacity.distribution, data.capacity.reservation) == (None, None, None)
    assert data.image == "ami-0123456789abcdef0"
    assert [nic.kind for nic in data.nics] == ["interface"]
    assert planned({**DATA, "data_nodes.image": "ami-01234567"}).data.image == "ami-01234567"


@pytest.mark.parametrize("type", ["i3en.24xlarge", "i4i.32xlarge"])
def test_types_for_storage_are_taken_without_a_word(stack, type):
    assert _said(stack, {"data_nodes.type": type, "data_nodes.count": 10}) == []


WRONG = [
    ({"data_nodes": {}}, "data_nodes.type: is missing"),
    ({"data_nodes.count": 0}, "data_nodes.count: must be at least 1, not 0"),
    ({"data_nodes.count": 11}, "data_nodes.count: must be at most 10, not 11"),
    ({"data_nodes.capacity": "spot"}, "data_nodes.capacity: there is no such key"),
    ({"data_nodes.type": "i4i.33xlarge"}, "data_nodes.type: there is no instance type 'i4i.33xlarge' in the catalog"),
    (
        {"data_nodes.type": "p4d.24xlarge"},
        "data_nodes.type: p4d.24xlarge has 8 A100, which data nodes leave idle. Choose a type for storage",
    ),
    (
        {"catalog.overrides": {"i4i.32xlarge": {"usage_classes": ["spot"]}}},
        "data_nodes.type: i4i.32xlarge isn't sold as on-demand, which data nodes are bought as",
    ),
    (
        {"data_nodes.type": "c7g.16xlarge"},
        "data_nodes.image: c7g.16xlarge is arm64, but m6a.large, which boots the same image, is x86_64. Name an image",
    ),
    (
        {"data_nodes.type": "r6i.4xlarge", "data_nodes.disk_gb": 2000},
        "data_nodes.type: r6i.4xlarge has no NVMe disk: the dataset will lie on the root disk, 2,000 GiB, at its speed",
    ),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_what_is_wrong_is_said_by_its_path(stack, changes, said):
    first = {**DATA, **changes}
    assert any(line.startswith(said) for line in _said(stack, first)), _said(stack, first)


def test_all_that_is_wrong_is_said_in_one_run(stack):
    said = _said(stack, {"data_nodes.type": "no.such", "nodes.type": "nor.this"})
    assert [line.split(":")[0] for line in said] == ["nodes.type", "data_nodes.type"]


OPEN = "t4g.small doesn't encrypt what travels between instances, and shards travel from data nodes without TLS"
ARM = {"data_nodes.image": "ami-01234567"}
PRODUCTION = {"production": True, "audit.enabled": True, "audit.emails": ["a@b.cd"]}


@pytest.mark.parametrize("path", ["data_nodes.type", "nodes.type"])
@pytest.mark.parametrize("production", [False, True])
def test_production_takes_no_type_that_sends_shards_in_the_clear(stack, path, production):
    """EC2 encrypts between instances only where the types at both ends do."""
    changes = {**DATA, **ARM, path: "t4g.small", **(PRODUCTION if production else {})}
    values = stack(changes)
    if not production:
        plan, warnings = review("c1", parse(values))
        assert plan.data
        assert any(str(warning).startswith(f"{path}: {OPEN}") for warning in warnings)
        return
    with pytest.raises(Invalid) as refused:
        review("c1", parse(values))
    assert [str(finding) for finding in refused.value.findings] == [f"{path}: {OPEN}. Choose another type"]


def test_a_type_of_one_s_own_is_not_thought_to_encrypt_before_that_is_stated(stack):
    changes = {**DATA, "catalog": {"overrides": {"i4i.32xlarge": {"encrypts_in_transit": False}}}}
    assert any("doesn't encrypt" in line for line in _said(stack, changes))


def test_data_nodes_beside_a_warm_tier_are_warned_of(stack):
    changes = {**DATA, **P4D, "storage.warm": {"size_gib": 1200}}
    assert any(
        line.startswith("data_nodes: nodes read the dataset from storage.warm") for line in _said(stack, changes)
    )


@pytest.mark.parametrize(("count", "fits"), [(1, True), (2, False)])
def test_addresses_of_data_nodes_count(stack, count, fits):
    """Else nodes that replace others find none left."""
    changes = {"network.cidr": "10.0.0.0/27", "nodes.max": 10, "data_nodes.type": "i4i.32xlarge"}
    said = _said(stack, {**changes, "data_nodes.count": count})
    wrong = "network.cidr: 10.0.0.0/27 leaves 11 addresses in us-west-2a, too few for 10 nodes beside 2 data nodes"
    assert any(line.startswith(wrong) for line in said) != fits


def test_endpoints_need_room_beside_them(stack):
    changes = {"network.cidr": "10.0.0.0/26", "nodes.max": 17, "network.egress": "endpoints"}
    assert not any("too few" in line for line in _said(stack, changes))
    said = _said(stack, {**changes, "data_nodes": {"type": "i4i.32xlarge", "count": 10}})
    assert any("too few for 17 nodes beside 10 data nodes and 9 endpoints" in line for line in said)


# ---- what they are told


def test_a_data_node_is_told_its_part_and_the_trainer_reads_it(planned, tmp_path):
    config = data_config(planned(DATA), "b", "bundles/0.tar", "0" * 64)
    path = tmp_path / "node.json"
    path.write_text(json.dumps(config))
    read = NodeConfig.read(path)
    assert (read.role, read.job, read.workers, read.gpus, read.data_nodes) == ("data", {"dataset": "text"}, 0, 0, False)


@pytest.mark.parametrize(
    "changes", [{"job.steps": 401}, {"nodes.type": "m6a.4xlarge"}, {"nodes.desired": 3}, {"data_nodes.count": 3}]
)
def test_data_nodes_stay_when_their_dataset_does(planned, changes):
    """A new template would replace them, and terabytes would be fetched anew."""
    before = data_config(planned(DATA), "b", "k", "0" * 64)
    assert data_config(planned({**DATA, **changes}), "b", "k", "0" * 64) == before


def test_a_new_dataset_and_a_new_trainer_make_new_data_nodes(planned):
    before = data_config(planned(DATA), "b", "k", "0" * 64)
    assert data_config(planned({**DATA, "job.dataset": "other"}), "b", "k", "0" * 64) != before
    assert data_config(planned(DATA), "b", "k", "1" * 64) != before


def test_how_many_there_are_changes_nothing_for_the_nodes_that_train(planned):
    told = [node_config(planned({**DATA, "data_nodes.count": n}), "b", "k", "0" * 64) for n in (1, 10)]
    assert told[0] == told[1]
    assert told[0]["data_nodes"] is True


def test_user_data_of_both_fits(planned):
    plan = planned(DATA)
    for config in (node_config, data_config):
        assert len(user_data(config(plan, "b" * 63, "bundles/" + "0" * 64, "0" * 64))) * 3 / 4 < LIMIT_BYTES


# ---- what they cost


@pytest.fixture
def costed(stack):
    def make(changes):
        return cost(review("c1", parse(stack(changes)))[0])

    return make


EAST = {"region": "us-east-1", "network.zones": ["us-east-1a"]}


def test_they_are_a_line_of_their_own(costed):
    found = costed({**P4D, **EAST, **DATA})
    assert found.data.nodes == 2
    assert found.data.per_hour.low == pytest.approx(2 * 10.9824)
    (line,) = [line for line in found.text().splitlines() if "data nodes" in line and "price" not in line]
    assert line.split() == ["data", "nodes", "2", "21.96", "16,034"]
    assert found.outputs()["dataNodes"] == {"perHour": [21.96, 21.96], "perMonth": [16034.3, 16034.3]}
    assert any(line.startswith("data nodes: 2026-01-19, from karpenter") for line in found.outputs()["prices"])


def test_what_has_no_price_is_named_and_not_taken_for_nothing(costed):
    found = costed({**P4D, **DATA})
    assert found.data.per_hour is None
    assert found.outputs()["dataNodes"] == {"perHour": None, "perMonth": None}
    assert any("data nodes: no price of i4i.32xlarge has a source" in unknown for unknown in found.unknown)


def test_the_users_own_price_counts(costed):
    found = costed({**P4D, **DATA, "prices": {"i4i.32xlarge": {"on_demand": 5}}})
    assert found.data.per_hour.high == 10


def test_a_cluster_without_any_says_nothing_of_them(costed):
    found = costed(P4D)
    assert found.data is None
    assert "dataNodes" not in found.outputs()
    assert "data nodes" not in found.text()


def test_on_alibaba_cloud_types_for_storage_are_its_own_and_encryption_is_not_known(ali):
    def lines(changes):
        return [str(finding) for finding in review("c1", parse(ali({"nodes.fabric": "tcp", **changes})))[1]]

    found = lines({"data_nodes": {"type": "ecs.g8a.4xlarge"}})
    assert any("Choose a type for storage, such as ecs.i4.32xlarge" in line for line in found)
    found = lines({"data_nodes": {"type": "ecs.i4.32xlarge"}})
    assert any("ecs.i4.32xlarge isn't known to encrypt what travels between instances" in line for line in found)
    production = {"production": True, "audit.enabled": True, "audit.emails": ["a@example.com"]}
    with pytest.raises(Invalid, match="isn't known to encrypt"):
        lines({"data_nodes": {"type": "ecs.i4.32xlarge"}, **production})
