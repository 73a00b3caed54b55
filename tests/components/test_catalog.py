"""The catalog says what EC2 says, and of Alibaba Cloud what has a source; a stack's file can correct both."""

import re
from dataclasses import asdict, fields, replace

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from components.catalog import Facts, clouds, find, instance_types, price, price_table
from components.catalog.overrides import described
from components.catalog.types import InstanceType, contradictions
from components.findings import Finding, Invalid
from components.plan import decide
from components.spec import parse

TYPES = instance_types("aws")

DEVIATIONS = {
    ("trn2.48xlarge", "accelerator_memory_gib"): "the dump has 512 GiB a chip, AWS's Neuron documents have 96",
    ("trn2u.48xlarge", "accelerator"): "the dump has no NeuronInfo; taken to be as trn2",
    ("trn2u.48xlarge", "accelerator_kind"): "the dump has no NeuronInfo; taken to be as trn2",
    ("trn2u.48xlarge", "accelerators"): "the dump has no NeuronInfo; taken to be as trn2",
    ("trn2u.48xlarge", "accelerator_memory_gib"): "the dump has no NeuronInfo; taken to be as trn2",
}
"""Where the table differs from DescribeInstanceTypes, and why."""


def _accelerators(said):
    groups = {
        "gpu": said.get("GpuInfo", {}).get("Gpus", []),
        "neuron": said.get("NeuronInfo", {}).get("NeuronDevices", []),
        "fpga": said.get("FpgaInfo", {}).get("Fpgas", []),
    }
    return next(((kind, devices) for kind, devices in groups.items() if devices), ("", []))


def _gbps(words):
    """The total that EC2 writes as "4x 100 Gigabit", "3200 Gigabit" or "Up to 12.5 Gigabit"."""
    count, each = re.fullmatch(r"(?:Up to )?(?:(\d+)x )?([\d.]+) Gigabit", words).groups()
    return int(count or 1) * float(each)


def _said_by_ec2(name):
    """What DescribeInstanceTypes says, by the names of our facts."""
    said = INSTANCE_TYPES[name]
    kind, devices = _accelerators(said)
    network, disks = said["NetworkInfo"], said.get("InstanceStorageInfo", {})
    efa_cards = [card["NetworkCardIndex"] for card in network["NetworkCards"] if "efa" in card["InterfaceTypes"]]
    (per_card,) = {card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]}
    return {
        "vcpus": said["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": said["MemoryInfo"]["SizeInMiB"] / 1024,
        "accelerator": devices[0]["Name"] if devices else "",
        "accelerator_kind": kind,
        "accelerators": sum(device["Count"] for device in devices),
        "accelerator_memory_gib": round(devices[0]["MemoryInfo"]["SizeInMiB"] / 1024, 2) if devices else 0,
        "network_gbps": _gbps(network["NetworkPerformance"]),
        "network_cards": network["MaximumNetworkCards"],
        "interfaces_per_card": per_card,
        "max_interfaces": network["MaximumNetworkInterfaces"],
        "fabric_interfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "fabric_first_card": min(efa_cards, default=0),
        "ipv4_per_interface": network["Ipv4AddressesPerInterface"],
        "encrypts_in_transit": network["EncryptionInTransitSupported"],
        "cluster_placement": "cluster" in said["PlacementGroupInfo"]["SupportedStrategies"],
        "usage_classes": tuple(sorted(said["SupportedUsageClasses"])),
        "boot_modes": tuple(sorted(said["SupportedBootModes"])),
        "confidential": tuple(
            word
            for word, has in {
                "nitro-enclaves": said["NitroEnclavesSupport"] == "supported",
                "nitro-tpm": said["NitroTpmSupport"] == "supported",
                "sev-snp": "amd-sev-snp" in said["ProcessorInfo"].get("SupportedFeatures", []),
            }.items()
            if has
        ),
        "unverified": (),
        "bare_metal": said["BareMetal"],
        "ebs_mbps": said["EbsInfo"]["EbsOptimizedInfo"]["MaximumBandwidthInMbps"],
        "ebs_attachments": said["EbsInfo"]["MaximumEbsAttachments"],
        "nvme_gb": disks.get("TotalSizeInGB", 0),
        "nvme_disks": sum(disk["Count"] for disk in disks.get("Disks", [])),
        "architecture": said["ProcessorInfo"]["SupportedArchitectures"][-1],
        "regions": tuple(
            sorted(
                region
                for region, offered in INSTANCE_TYPE_OFFERINGS["region"].items()
                if any(offer["InstanceType"] == name for offer in offered)
            )
        ),
    }


@pytest.mark.parametrize("name", TYPES)
def test_each_fact_is_what_ec2_states_but_for_named_deviations(name):
    ours, theirs = TYPES[name], _said_by_ec2(name)
    assert {*theirs, "name", "source"} == {*asdict(ours), "max_interfaces"}, "a fact that nothing is compared with"
    differing = {fact for fact, value in theirs.items() if getattr(ours, fact) != value}
    assert differing == {fact for kind, fact in DEVIATIONS if kind == name}


@pytest.mark.parametrize("name", TYPES)
def test_no_type_contradicts_itself(name):
    assert list(contradictions(TYPES[name])) == []


def test_every_type_has_a_region_and_a_source():
    assert all(kind.regions and kind.source for kind in TYPES.values())


def test_what_no_region_offers_any_more_is_left_out():
    assert not {"dl1.24xlarge", "f1.16xlarge", "p6e-gb200.36xlarge"} & TYPES.keys()


def test_the_table_of_prices_is_not_a_cloud():
    assert clouds() == ["alicloud", "aws"]


def test_a_p6_b300_has_its_efa_on_the_sixteen_cards_after_the_first():
    kind = TYPES["p6-b300.48xlarge"]
    assert (kind.network_cards, kind.fabric_interfaces, kind.fabric_first_card) == (17, 16, 1)


# ---- prices


@pytest.mark.parametrize("found", price_table("aws").values(), ids=lambda found: f"{found.type}-{found.region}")
def test_every_price_has_a_date_a_source_and_a_type_that_is_sold_so(found):
    kind = TYPES[found.type]
    assert found.date
    assert found.source
    assert 0 < found.low <= found.high
    assert found.purchase in kind.usage_classes
    assert found.region == "*" or found.region in kind.regions
    assert (found.low == found.high) or found.purchase == "spot"
    on_demand = price("aws", found.type, found.region, "on-demand")
    assert on_demand is None or found.high <= on_demand.high * 1.0001


def test_prices_from_before_the_cut_are_rejected():
    """Older copies of the same sources still show these."""
    before = {"p4d.24xlarge": 32.77, "p4de.24xlarge": 40.97, "p5.48xlarge": 98.32}
    for name, old in before.items():
        assert price("aws", name, "us-east-1", "on-demand").high < old * 0.7


def test_a_missing_price_is_none_and_never_zero():
    assert price("aws", "m6a.large", "us-west-2", "on-demand") is None
    assert price("aws", "p5e.48xlarge", "us-west-2", "on-demand") is None
    assert price("aws", "no.such", "us-west-2", "on-demand") is None


def test_a_price_of_most_regions_gives_way_to_one_of_the_region():
    assert price("aws", "p5en.48xlarge", "us-west-2", "capacity-block").low == 41.61
    table = price_table("aws")
    own = replace(table["p5en.48xlarge", "*", "capacity-block"], region="us-west-2", low=1, high=1)
    table["p5en.48xlarge", "us-west-2", "capacity-block"] = own
    try:
        assert price("aws", "p5en.48xlarge", "us-west-2", "capacity-block") == own
    finally:
        del table["p5en.48xlarge", "us-west-2", "capacity-block"]


def test_a_price_in_the_stacks_file_comes_first_and_says_so(stack):
    own = parse(stack({"prices": {"p5.48xlarge": {"capacity_block": 30}}})).prices
    found = price("aws", "p5.48xlarge", "us-east-1", "capacity-block", own)
    assert (found.low, found.high, found.source) == (30, 30, "the stack's file")
    assert price("aws", "p5.48xlarge", "us-east-1", "on-demand", own).source != "the stack's file"


# ---- catalog.overrides

NEW = {
    "vcpus": 64, "memory_gib": 512, "accelerator": "X100", "accelerator_kind": "gpu", "accelerators": 4,
    "accelerator_memory_gib": 200, "network_gbps": 1600, "network_cards": 4, "interfaces_per_card": 2,
    "fabric_interfaces": 4, "ipv4_per_interface": 50, "cluster_placement": True, "usage_classes": ["on-demand"],
    "boot_modes": ["uefi"], "confidential": ["nitro-tpm"], "ebs_mbps": 80000, "ebs_attachments": 64,
    "architecture": "arm64", "regions": ["us-west-2"],
}  # fmt: skip
"""A type that the table has not."""


def _overrides(stack, facts, name="p9.48xlarge"):
    return parse(stack({"catalog": {"overrides": {name: facts}}})).catalog.overrides


def test_an_override_can_state_every_fact_and_no_other():
    assert list(Facts.model_fields) == [
        f.name for f in fields(InstanceType) if f.name not in {"name", "source", "unverified"}
    ]


def test_an_override_adds_a_type(stack):
    found = find("aws", "p9.48xlarge", "us-west-2", "nodes.type", _overrides(stack, NEW))
    assert isinstance(found, InstanceType)
    assert (found.gpus, found.max_interfaces, found.regions) == (4, 8, ("us-west-2",))
    assert (found.confidential, found.nvme_gb, found.source) == (("nitro-tpm",), 0, "the stack's file")


def test_an_override_changes_what_it_names_and_nothing_else(stack):
    overrides = _overrides(stack, {"regions": ["eu-west-3"], "confidential": ["nitro-tpm"]}, "p5.48xlarge")
    found = find("aws", "p5.48xlarge", "eu-west-3", "nodes.type", overrides)
    known = TYPES["p5.48xlarge"]
    assert found == replace(known, regions=("eu-west-3",), confidential=("nitro-tpm",), source=found.source)
    assert found.source == f"{known.source}; confidential, regions from the stack's file"
    assert TYPES["p5.48xlarge"] is known


def test_a_type_that_an_override_adds_is_still_only_where_it_is_offered(stack):
    found = find("aws", "p9.48xlarge", "us-east-1", "nodes.type", _overrides(stack, NEW))
    assert str(found) == "nodes.type: p9.48xlarge is not offered in us-east-1. It is in us-west-2"


def test_a_name_near_one_that_an_override_adds_is_told_of_it(stack):
    found = find("aws", "p9.48xlarg", "us-west-2", "nodes.type", _overrides(stack, NEW))
    assert "Did you mean p9.48xlarge" in str(found)


def test_an_override_that_was_not_parsed_is_refused_where_it_is_used():
    """A program may build a `Spec` itself."""
    assert isinstance(find("aws", "p9.48xlarge", "us-west-2", "p", {"p9.48xlarge": Facts(vcpus=1)}), Finding)
    assert isinstance(described("aws", "p5.48xlarge", Facts(fabric_interfaces=33)), Finding)


AT = "catalog.overrides.p5.48xlarge"
WRONG = [
    ({"p5.48xlarge": {"vcpuz": 1}}, f"{AT}.vcpuz: there is no such key. Did you mean vcpus?"),
    ({"p5.48xlarge": {"vcpus": 0}}, f"{AT}.vcpus: must be at least 1, not 0"),
    ({"p5.48xlarge": {"vcpus": "many"}}, f"{AT}.vcpus: must be a whole number, not 'many'"),
    ({"p5.48xlarge": {"memory_gib": float("inf")}}, f"{AT}.memory_gib: must be a number, not inf"),
    ({"p5.48xlarge": {"usage_classes": []}}, f"{AT}: usage_classes must name at least one. Correct the facts"),
    ({"p5.48xlarge": {"boot_modes": ["bios"]}}, f"{AT}.boot_modes.0: 'bios' is not one of 'legacy-bios' or 'uefi'"),
    ({"p5.48xlarge": {"architecture": "riscv"}}, f"{AT}.architecture: 'riscv' is not one of 'x86_64' or 'arm64'"),
    ({"p5.48xlarge": 3}, f"{AT}: must be a mapping with keys such as accelerator"),
    ({"p5.48xlarge": {}}, f"{AT}: states nothing. Name what to change"),
    ({"p5.48xlarge": {"vcpus": None}}, f"{AT}: states nothing. Name what to change"),
    ({"p5.48xlarge": {"fabric_interfaces": 33}}, f"{AT}: 33 EFA interfaces can't lie on 32 network cards, one on each"),
    ({"p5.48xlarge": {"accelerators": 0}}, f"{AT}: accelerators, accelerator and accelerator_kind must be given"),
    ({"p5.48xlarge": {"nvme_disks": 0}}, f"{AT}: nvme_disks and nvme_gb must be given together"),
    ({"p5.48xlarge": {"boot_modes": ["legacy-bios"]}}, f"{AT}: nitro-tpm needs the boot mode uefi"),
    ({"c7g.16xlarge": {"confidential": ["sev-snp"]}}, "catalog.overrides.c7g.16xlarge: sev-snp is a feature of x86_64"),
    ({"P5": {"vcpus": 1}}, "catalog.overrides.P5: 'P5' can't be the name of a type. A type is written p5.48xlarge"),
    (
        {"p9.48xlarge": {key: value for key, value in NEW.items() if key not in {"vcpus", "regions"}}},
        "catalog.overrides.p9.48xlarge: the catalog has no type 'p9.48xlarge', and facts that it needs aren't stated: "
        "vcpus, regions. Take them from `aws ec2 describe-instance-types --instance-types p9.48xlarge`",
    ),
    (3, "catalog.overrides: must be a mapping, not 3"),
]


@pytest.mark.parametrize(("overrides", "line"), WRONG, ids=[line for _, line in WRONG])
def test_a_wrong_override_gets_one_clear_line(stack, overrides, line):
    with pytest.raises(Invalid) as raised:
        parse(stack({"catalog": {"overrides": overrides}}))
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


WRONG_PRICES = [
    ({"p5.48xlarge": {"on_demand": 0}}, "prices.p5.48xlarge.on_demand: must be greater than 0.0, not 0"),
    ({"p5.48xlarge": {"on-demand": 1}}, "prices.p5.48xlarge.on-demand: there is no such key. Did you mean on_demand?"),
    ({"p5.48xlarg": {"spot": 1}}, "prices.p5.48xlarg: there is no instance type 'p5.48xlarg' in the catalog. Did you"),
]


@pytest.mark.parametrize(("prices", "line"), WRONG_PRICES, ids=[line for _, line in WRONG_PRICES])
def test_a_wrong_price_gets_one_clear_line(stack, prices, line):
    with pytest.raises(Invalid) as raised:
        parse(stack({"prices": prices}))
    assert str(raised.value).startswith(line)


def test_all_that_is_wrong_with_overrides_and_prices_comes_at_once(stack):
    wrong = {"p5.48xlarge": {"nvme_disks": 0}, "p9.48xlarge": {"vcpus": 2}}
    with pytest.raises(Invalid) as raised:
        parse(stack({"catalog": {"overrides": wrong}, "prices": {"p8.48xlarge": {"spot": 1}}}))
    assert len(raised.value.findings) == 3


def test_a_type_that_an_override_adds_can_have_a_price(stack):
    values = stack({"catalog": {"overrides": {"p9.48xlarge": NEW}}, "prices": {"p9.48xlarge": {"on_demand": 9.5}}})
    assert parse(values).prices["p9.48xlarge"].on_demand == 9.5


# ---- Alibaba Cloud

ALIBABA = instance_types("alicloud")
SOURCED_ERI = {"ebmgn7v": 2, "ebmgn8v": 2, "ebmgn8is": 2, "gn8is": 1}
"""ERIs by family, in PAI's guide."""
NO_ERI = {"gn6v", "gn7", "gn7e", "gn7i", "ebmgn7", "ebmgn7e", "ebmgn7i"}
"""Families of which the ECS user guide mentions none."""


def _family(name):
    return name.split(".")[1].split("-")[0]


@pytest.mark.parametrize("name", ALIBABA)
def test_what_of_alibaba_clouds_types_has_no_primary_source_is_named(name):
    kind = ALIBABA[name]
    assert set(kind.unverified) <= {field.name for field in fields(InstanceType)}
    assert list(contradictions(kind, "alicloud")) == []
    assert kind.source
    assert kind.usage_classes == ("on-demand", "spot")
    unstated = {"regions": (), "ebs_mbps": 0, "ebs_attachments": 0, "ipv4_per_interface": 1, "cluster_placement": False}
    for fact, default in unstated.items():
        assert fact in kind.unverified
        assert getattr(kind, fact) == default, "no source states it"
    assert "usage_classes" in kind.unverified
    assert not {"vcpus", "memory_gib", "accelerators", "network_gbps", "architecture"} & set(kind.unverified)


@pytest.mark.parametrize("name", ALIBABA)
def test_n12_only_counts_of_eri_with_a_source_are_taken_for_certain(name):
    kind, family = ALIBABA[name], _family(name)
    if family in SOURCED_ERI:
        assert kind.fabric_interfaces == SOURCED_ERI[family]
    elif family in NO_ERI:
        assert kind.fabric_interfaces == 0
    else:
        assert kind.fabric_interfaces <= 2
    assert ("fabric_interfaces" in kind.unverified) is (family not in {*SOURCED_ERI, *NO_ERI})


def test_g8i_is_a_family_of_cpus_with_tdx_and_h_class_gpus_are_called_what_their_maker_calls_them():
    g8i = [kind for name, kind in ALIBABA.items() if _family(name) == "g8i"]
    assert len(g8i) == 12
    assert not any(kind.accelerators for kind in g8i)
    assert [kind.name for kind in g8i if "tdx" not in kind.confidential] == ["ecs.g8i.large"]
    tdx = {_family(name) for name, kind in ALIBABA.items() if kind.confidential}
    assert tdx == {"g8i", "gn8v"}
    assert all("-tee" in name for name, kind in ALIBABA.items() if kind.confidential and kind.gpus)
    assert {kind.accelerator for name, kind in ALIBABA.items() if name.startswith("ecs.gn8v")} == {"GPU H"}
    assert not any("H800" in kind.accelerator or "H20" in kind.accelerator for kind in ALIBABA.values())


def test_only_bare_metal_of_alibaba_cloud_is_held_to_nvidias_fabric_manager(ali):
    def switched(name):
        values = ali({"nodes.type": name, "job.batch": 64, "nodes.fabric": "tcp"})
        return decide("c1", parse(values)).switched

    assert switched("ecs.ebmgn7ex.32xlarge")
    assert not switched("ecs.gn7-c13g1.26xlarge")


def test_a_type_whose_regions_are_not_known_is_taken_to_be_wherever_it_is_asked_for():
    assert find("alicloud", "ecs.g8i.xlarge", "cn-heyuan", "p") is ALIBABA["ecs.g8i.xlarge"]


HERE = {
    "vcpus": 64, "memory_gib": 512, "network_gbps": 100, "interfaces_per_card": 8, "usage_classes": ["on-demand"],
    "boot_modes": ["uefi"], "architecture": "x86_64",
}  # fmt: skip
"""A type of Alibaba Cloud that the table has not, with what ECS states of it."""


def test_a_type_of_alibaba_cloud_needs_no_fact_that_ecs_does_not_state(ali):
    found = find("alicloud", "ecs.g9x.16xlarge", "cn-hangzhou", "p", _overrides(ali, HERE, "ecs.g9x.16xlarge"))
    assert isinstance(found, InstanceType)
    assert (found.regions, found.ebs_mbps, found.unverified) == ((), 0, ())


def test_a_fact_that_the_file_states_is_verified(ali):
    known = ALIBABA["ecs.g8i.xlarge"]
    facts = {"fabric_interfaces": 1, "regions": ["cn-hangzhou"]}
    found = find("alicloud", known.name, "cn-hangzhou", "p", _overrides(ali, facts, known.name))
    assert set(known.unverified) - set(found.unverified) == {"fabric_interfaces", "regions"}
    assert isinstance(find("alicloud", known.name, "cn-beijing", "p", _overrides(ali, facts, known.name)), Finding)


WRONG_THERE = [
    ({"p5.48xlarge": {"vcpus": 1}}, "'p5.48xlarge' can't be the name of a type. A type is written ecs.g8i.24xlarge"),
    (
        {"ecs.g9x.16xlarge": {"vcpus": 2}},
        "the catalog has no type 'ecs.g9x.16xlarge', and facts that it needs aren't stated: memory_gib, network_gbps, "
        "interfaces_per_card, usage_classes, boot_modes, architecture. Take them from `aliyun ecs Describe",
    ),
    ({"ecs.g8i.xlarge": {"fabric_interfaces": 9}}, "9 eRDMA interfaces are more than the 2 that it takes in all"),
    ({"ecs.g8i.xlarge": {"usage_classes": ["capacity-block"]}}, "capacity-block is how AWS sells"),
    ({"ecs.g8i.xlarge": {"confidential": ["nitro-tpm"]}}, "nitro-tpm is no word of its cloud, but tdx"),
]


@pytest.mark.parametrize(("overrides", "line"), WRONG_THERE, ids=[line[:30] for _, line in WRONG_THERE])
def test_a_wrong_override_of_alibaba_cloud_gets_one_clear_line(ali, overrides, line):
    with pytest.raises(Invalid) as raised:
        parse(ali({"catalog": {"overrides": overrides}}))
    (name,) = overrides
    assert str(raised.value).startswith(f"catalog.overrides.{name}: {line}")


def test_tdx_is_no_word_of_aws(stack):
    with pytest.raises(Invalid, match="tdx is no word of its cloud, but nitro-enclaves, nitro-tpm, sev-snp"):
        _overrides(stack, {"confidential": ["tdx"]}, "p5.48xlarge")
