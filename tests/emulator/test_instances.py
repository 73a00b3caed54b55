"""What the runner reads from the API's answers."""

import pytest

from emulator.instances import launch_specification

TEMPLATE = {"LaunchTemplateId": "lt-1", "Version": "3"}


@pytest.mark.parametrize(
    ("distribution", "spot"),
    [
        ({"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 0}, True),
        ({"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 0}, False),
        ({"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 50}, False),
        ({}, False),
    ],
)
def test_a_mixed_group_is_spot_only_if_it_launches_nothing_else(distribution, spot):
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": TEMPLATE}, "InstancesDistribution": distribution}
    assert launch_specification({"MixedInstancesPolicy": policy}) == (TEMPLATE, spot)


def test_a_plain_group_names_its_template_itself():
    assert launch_specification({"LaunchTemplate": TEMPLATE}) == (TEMPLATE, False)
    assert launch_specification({"LaunchConfigurationName": "old"}) == (None, False)
