"""Every control: what it must say of each case, that it has cases of all kinds, and that what it names exists."""

import pytest

from emulator.provider.schema import resource_type
from policies.frameworks import FRAMEWORKS


def test_each_case_is_judged_as_it_should_be(case):
    result = case.result()
    assert result.verdict == case.verdict, result.judgements
    if why := case.given.get("why"):
        assert why in " ".join(f"{judgement.path} {judgement.reason}" for judgement in result.gravest)


def test_a_control_has_a_passing_a_failing_and_an_unknown_case_on_each_cloud(control, cases):
    for cloud in control.clouds:
        own = [case for case in cases if case.control == control.id and case.type.startswith(f"{cloud}:")]
        assert {"pass", "fail"} <= {case.verdict for case in own}, f"{control.id} on {cloud} lacks cases"
        assert any("UNKNOWN" in str(case.given) for case in own), f"{control.id} on {cloud} has no unknown value"


def test_every_type_that_a_control_judges_has_a_case(control, cases):
    covered = {case.type for case in cases if case.control == control.id}
    assert control.types <= covered, f"no case of {sorted(control.types - covered)}"


def test_types_and_properties_that_a_control_names_exist_in_the_sdks(control):
    for token in control.types:
        resource_type(token)


def test_a_control_maps_to_known_frameworks_and_says_what_to_do(control):
    assert set(control.frameworks) <= set(FRAMEWORKS)
    assert control.title
    assert control.fix
    assert not control.fix.endswith(".")


def test_properties_in_cases_are_the_sdks_own(case):
    known = resource_type(case.type).state
    assert set(case.given.get("props", {})) <= {*known, "id"}
    for other in case.given.get("others", []):
        assert set(other.get("props", {})) <= {*resource_type(other["type"]).state, "id"}


def test_no_two_controls_have_one_id(cases):
    from collections import Counter

    from policies.controls import declared
    from policies.settings import Settings

    ids = Counter(control.id for control in declared(Settings()))
    assert max(ids.values()) == 1
    assert {case.control for case in cases} <= set(ids)
    with pytest.raises(LookupError):
        resource_type("aws:s3/nothing:Nothing")
