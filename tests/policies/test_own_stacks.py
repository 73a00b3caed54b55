"""Our own stacks, as their files declare them, keep every control; and each way to break one is caught by it alone."""

import datetime

import pytest

from policies.control import Verdict, judge
from policies.controls import declared
from policies.resources import Stack
from policies.verdicts import settled
from tests.components.conftest import bundle, mocked  # noqa: F401  fixtures
from tests.policies import mutations_alicloud, mutations_aws
from tests.policies.own_stacks import STACKS, TODAY, VARIANTS, broken, cloud_of, declared_by, settings_of

BY_CLOUD = {"aws": mutations_aws, "alicloud": mutations_alicloud}
MUTATIONS = [
    (name, *mutation)
    for mutations in BY_CLOUD.values()
    for name, of_stack in mutations.MUTATIONS.items()
    for mutation in of_stack
]


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_a_stack_of_ours_keeps_every_control(name, preview, mocked):  # noqa: F811
    assert broken(declared_by(name, mocked, preview=preview), settings_of(name)) == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_else_our_components_declare_keeps_every_control(name, mocked):  # noqa: F811
    assert broken(declared_by(name, mocked), settings_of(name)) == {}


@pytest.mark.parametrize("name", STACKS)
def test_every_exemption_of_a_stack_of_ours_is_needed_and_ends_within_a_year(name, mocked):  # noqa: F811
    settings, stack = settings_of(name), declared_by(name, mocked)
    used = {settled(result, settings, TODAY).exemption for result in judge(declared(settings), stack)}
    assert set(settings.exemptions) <= used
    assert all(exemption.expires <= TODAY + datetime.timedelta(days=366) for exemption in settings.exemptions)


@pytest.mark.parametrize(
    ("name", "caught", "target", "change"),
    MUTATIONS,
    ids=[f"{name}-{caught}-{target[1]}" for name, caught, target, _ in MUTATIONS],
)
def test_a_broken_stack_is_caught_by_exactly_the_control_it_breaks(name, caught, target, change, mocked):  # noqa: F811
    stack = declared_by(name, mocked)
    found = [resource for resource in stack.resources if (resource.type, resource.name) == target]
    assert len(found) == 1, f"{target} isn't declared"
    after = [change(resource) if resource is found[0] else resource for resource in stack.resources]
    mutant = Stack(tuple(resource for resource in after if resource is not None))
    assert list(broken(mutant, settings_of(name))) == [caught]


@pytest.mark.parametrize("cloud", BY_CLOUD)
def test_every_control_on_what_stacks_of_ours_declare_has_a_way_to_break_it(cloud, mocked):  # noqa: F811
    ours = [name for name in (*STACKS, *VARIANTS) if cloud_of(name) == cloud]
    judged = {
        result.control.id
        for name in ours
        for result in judge(declared(settings_of(name)), declared_by(name, mocked))
        if result.verdict is Verdict.PASS
    }
    ways = {caught for name, caught, *_ in MUTATIONS if name in ours}
    assert judged - ways == set(BY_CLOUD[cloud].BROKEN_OTHERWISE)
