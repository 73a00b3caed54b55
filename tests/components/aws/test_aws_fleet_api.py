"""Template, group and reservation as EC2 and Auto Scaling would be asked for them, held to the APIs' own models.

Each type of the catalog, in each way that it is sold. The translation from properties to requests is the embedded
cloud's provider's; botocore's validator checks names, kinds and what is required, `_off_the_list` the values.
"""

from types import SimpleNamespace

import botocore.session
import pulumi
import pytest
from botocore.validate import ParamValidator

from components.aws import fleet
from components.bundle import Bundle
from components.capacity import CLASSES
from components.catalog import instance_types
from components.plan import decide
from components.spec import parse
from emulator.provider.aws.api import ApiError, fit
from emulator.provider.aws.autoscaling import Group, LifecycleHook
from emulator.provider.aws.kind import OWN, without
from emulator.provider.aws.launch_template import LaunchTemplate

TYPES = instance_types("aws")
WAYS = [
    (name, capacity)
    for name, kind in TYPES.items()
    for capacity, classes in CLASSES.items()
    if set(classes) <= set(kind.usage_classes)
]
RESERVATIONS = {"reserved": "create", "capacity-block": "cr-0123456789abcdef0"}
SESSION = botocore.session.get_session()


def _request(service, operation, props, names=None):
    """The request that these properties make. Fails where the API's model says that it is none."""
    shape = SESSION.get_service_model(service).operation_model(operation).input_shape
    request = fit(shape, props, names or {})
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    assert list(_off_the_list(shape, request)) == []
    return request


def _off_the_list(shape, value):
    """Texts that the model's lists of values don't have; botocore's validator lets them pass."""
    match shape.type_name:
        case "structure":
            for name, item in value.items():
                yield from _off_the_list(shape.members[name], item)
        case "list":
            for item in value:
                yield from _off_the_list(shape.member, item)
        case "string" if shape.enum and value not in shape.enum:
            yield f"{shape.name}: {value}"


def _declared(mocked, values):
    """What a fleet of this spec registers, on a network and with an identity made up: any type, trainable or not."""
    plan = decide("c1", parse(values))
    network = SimpleNamespace(subnet_ids=["subnet-1"], security_group_id="sg-1", ready=[])
    identity = SimpleNamespace(profile_arn="arn:aws:iam::123456789012:instance-profile/c1", ready=[])

    def program():
        fleet.declare(
            plan,
            network,
            identity,
            SimpleNamespace(bucket=pulumi.Output.from_input("c1-data")),
            Bundle(path=None, sha256="0" * 64),
            pulumi.Output.from_input("arn:aws:kms:us-west-2:123456789012:key/key-1"),
            "/dev/xvda",
            [],
            pulumi.ResourceOptions(),
        )

    return mocked.declare(program)


def _values(stack, name, **nodes):
    region = TYPES[name].regions[0]
    given = {f"nodes.{key}": value for key, value in {"type": name, **nodes}.items()}
    return stack({"region": region, "network.zones": [f"{region}a"], **given})


def _template(record):
    props = LaunchTemplate().sent({**record.inputs, "name": "c1"})
    request = _request("ec2", "CreateLaunchTemplate", props, LaunchTemplate.names)
    return request["LaunchTemplateData"]


def _group(record):
    props = Group().sent({**record.inputs, "name": "c1"})
    return _request("autoscaling", "CreateAutoScalingGroup", props, Group.names)


@pytest.mark.parametrize(("name", "capacity"), WAYS)
def test_every_type_in_every_way_that_it_is_sold_makes_requests_that_ec2_knows(mocked, stack, name, capacity):
    records = _declared(mocked, _values(stack, name, capacity=capacity, reservation=RESERVATIONS.get(capacity)))
    template, group = _template(records.one("LaunchTemplate")), _group(records.one("Group"))
    assert template["InstanceType"] == name
    assert ("LaunchTemplate" in group) != ("MixedInstancesPolicy" in group)
    assert not ("InstanceMarketOptions" in template and "MixedInstancesPolicy" in group)
    assert ("CapacityReservationSpecification" in template) == (capacity in RESERVATIONS)
    for record in records.of("CapacityReservation"):
        _request("ec2", "CreateCapacityReservation", without(record.inputs, OWN))
    for record in records.of("PlacementGroup"):
        _request("ec2", "CreatePlacementGroup", without(record.inputs, OWN))
    for record in records.of("LifecycleHook"):
        _request("autoscaling", "PutLifecycleHook", {**record.inputs, "name": "c1-drain"}, LifecycleHook.names)


@pytest.mark.parametrize("name", sorted(name for name, kind in TYPES.items() if kind.fabric_interfaces))
@pytest.mark.parametrize("layout", ["guide", "ip-saving"])
def test_every_layout_of_interfaces_makes_a_request_that_ec2_knows(mocked, stack, name, layout):
    template = _template(_declared(mocked, _values(stack, name, nic_layout=layout)).one("LaunchTemplate"))
    nics = template["NetworkInterfaces"]
    assert {nic["InterfaceType"] for nic in nics} <= {"interface", "efa", "efa-only"}
    assert len({(nic["NetworkCardIndex"], nic["DeviceIndex"]) for nic in nics}) == len(nics)
    assert all(nic["Groups"] == ["sg-1"] for nic in nics)
    assert [nic["AssociatePublicIpAddress"] for nic in nics if "AssociatePublicIpAddress" in nic] == [False]


@pytest.mark.parametrize(
    ("name", "guard"),
    [("m6a.4xlarge", "nitro-enclaves"), ("m6a.4xlarge", "sev-snp"), ("p5.48xlarge", "nitro-tpm")],
)
def test_every_guard_makes_a_request_that_ec2_knows(mocked, stack, name, guard):
    template = _template(_declared(mocked, _values(stack, name, confidential=guard)).one("LaunchTemplate"))
    assert template.get("EnclaveOptions") == ({"Enabled": True} if guard == "nitro-enclaves" else None)
    assert template.get("CpuOptions") == ({"AmdSevSnp": "enabled"} if guard == "sev-snp" else None)


@pytest.mark.parametrize("strategy", ["price-capacity-optimized", "capacity-optimized-prioritized", "lowest-price"])
def test_a_mixed_fleet_of_several_types_makes_a_request_that_auto_scaling_knows(mocked, stack, strategy):
    values = _values(
        stack,
        "p4d.24xlarge",
        capacity="mixed",
        alternatives=["p4de.24xlarge"],
        on_demand_base=2,
        on_demand_share=50,
        spot_strategy=strategy,
    )
    policy = _group(_declared(mocked, values).one("Group"))["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"] == {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 2,
        "OnDemandPercentageAboveBaseCapacity": 50,
        "SpotAllocationStrategy": strategy,
    }
    assert policy["LaunchTemplate"]["LaunchTemplateSpecification"] == {"LaunchTemplateId": "c1-node-id", "Version": "7"}


MARKET = {"launchTemplateName": "c1", "launchTemplateData": {"instanceMarketOptions": {"marketType": "spots"}}}
RESERVATION = {"instanceType": "m6a.large", "instanceCount": 1}


@pytest.mark.parametrize(
    ("service", "operation", "props", "fault"),
    [
        ("ec2", "CreateLaunchTemplate", MARKET, "MarketType: spots"),
        ("ec2", "CreateCapacityReservation", RESERVATION, 'Missing required parameter in input: "InstancePlatform"'),
        ("ec2", "CreateCapacityReservation", {**RESERVATION, "instancePlatform": "Unix"}, "InstancePlatform: Unix"),
        ("autoscaling", "CreateAutoScalingGroup", {"placementGroups": "x"}, "'placementGroups' has no place"),
    ],
    ids=["a value off the list", "something missing", "another value off the list", "a name that isn't there"],
)
def test_this_files_own_guard_finds_what_is_no_request(service, operation, props, fault):
    with pytest.raises((AssertionError, ApiError), match=fault):
        _request(service, operation, props)
