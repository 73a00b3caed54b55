"""Cases of controls: YAML files below `cases/`, one a topic, and the stacks that they describe.

    CONTROL-ID:
      - type: aws:ebs/volume:Volume         # what is judged
        pass: [{props: {encrypted: true}}]  # cases by verdict: pass, fail, unknown, not applicable
        fail: [{props: {}, why: "words that the reason must have"}]
        unknown: [{props: {encrypted: UNKNOWN}}]

A case may have `others`: resources beside the one judged, each with `type`, `props` and `links` (by property, `self`
being the one judged); and `region`, `protect`, `settings`. `UNKNOWN` stands for what a preview can't know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from policies.control import Control, Result, judge
from policies.controls import declared
from policies.resources import Resource, Stack
from policies.settings import Settings, parse
from policies.values import plain

FOLDER = Path(__file__).parent / "cases"
VERDICTS = ("pass", "fail", "unknown", "not applicable")
SETTINGS = {"regions": ["eu-central-1", "cn-hangzhou"], "cost_tags": ["team"]}
"""What cases are judged by, where they say nothing else."""


@dataclass(frozen=True)
class Case:
    """One resource, what stands beside it, and what a control must say of it."""

    control: str
    type: str
    verdict: str
    number: int
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.control} {self.type} {self.verdict} {self.number}"

    @property
    def settings(self) -> Settings:
        return parse({**SETTINGS, **self.given.get("settings", {})})

    def stack(self) -> tuple[Resource, Stack]:
        """The resource that is judged, and all that there is."""
        judged = _resource(self.type, "judged", self.given)
        others = [
            _resource(other["type"], f"other{index}", other) for index, other in enumerate(self.given.get("others", []))
        ]
        return judged, Stack((judged, *others))

    def result(self) -> Result:
        judged, stack = self.stack()
        (control,) = (control for control in declared(self.settings) if control.id == self.control)
        (found,) = (result for result in judge([control], stack) if result.resource is judged)
        return found


def _resource(kind: str, name: str, given: dict[str, Any]) -> Resource:
    """A resource as it comes from the engine: through the proxies that raise at what isn't known."""
    props = plain(unknown_checking_proxy(_sentinels(given.get("props", {}))))
    links = {
        prop: frozenset(_urn(target) for target in (targets if isinstance(targets, list) else [targets]))
        for prop, targets in given.get("links", {}).items()
    }
    return Resource(
        kind, name, _urn(name), props, links, plain(_sentinels(given.get("region"))), given.get("protect", False)
    )


def _urn(name: str) -> str:
    return f"urn:pulumi:test::test::type::{'judged' if name == 'self' else name}"


def _sentinels(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sentinels(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sentinels(item) for item in value]
    return UNKNOWN_STRING_VALUE if value == "UNKNOWN" else value


def all_cases() -> Iterator[Case]:
    """Every case of every file."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for control, entries in yaml.safe_load(path.read_text()).items():
            for entry in entries:
                for verdict in VERDICTS:
                    for number, given in enumerate(entry.get(verdict, [])):
                        yield Case(control, entry["type"], verdict, number, given)


def all_controls() -> list[Control]:
    """Every control."""
    return declared(parse(SETTINGS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`case`: each case; `control`: each control."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(all_cases()), ids=str)
    if "control" in metafunc.fixturenames:
        metafunc.parametrize("control", all_controls(), ids=lambda control: control.id)


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    """Every case."""
    return list(all_cases())
