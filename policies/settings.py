"""Which controls judge, how strictly, and what is exempt: the `policies:` keys of a stack's configuration."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from policies.control import Control, Severity
from policies.frameworks import FRAMEWORKS
from policies.resources import Resource

NAMESPACE = "policies"
"""Of the keys in a stack's configuration."""

Level = Literal["mandatory", "advisory", "disabled", "remediate"]


class InvalidSettings(ValueError):
    """Settings that can't be meant. The message has a line for each problem: path, reason, fix."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Exemption(_Part):
    """A resource that a control doesn't hold for, for a while: somebody answers for it."""

    control: str = Field(description="Id of the control.")
    resource: str = Field(description="The resource's name or URN; `*` stands for any text.")
    owner: str = Field(min_length=1, description="Who answers for it.")
    reason: str = Field(min_length=1, description="Why.")
    expires: datetime.date = Field(description="The last day on which it holds, as YYYY-MM-DD.")

    @field_validator("expires", mode="before")
    @classmethod
    def _written_bare(cls, value: Any) -> Any:
        """The engine reads a date without quotes as a time, and passes it on in Go's form for one."""
        return value.removesuffix(" 00:00:00 +0000 UTC") if isinstance(value, str) else value

    def holds(self, control: Control, resource: Resource, today: datetime.date) -> bool:
        """Whether a breach of `control` by `resource` is exempt today."""
        return self.names(control, resource) and today <= self.expires

    def names(self, control: Control, resource: Resource) -> bool:
        """Whether it is about these."""
        return control.id == self.control and any(
            fnmatchcase(name, self.resource) for name in (resource.name, resource.urn)
        )


class Settings(_Part):
    """What a stack's configuration says of controls. Without any of it, every control is mandatory."""

    frameworks: tuple[str, ...] = Field((), description="Only controls mapped to one of these; all if empty.")
    severity: Literal["low", "medium", "high", "critical"] = Field("low", description="Only this severe or more.")
    topics: tuple[str, ...] = Field((), description="Only these topics; all if empty.")
    clouds: tuple[Literal["aws", "alicloud"], ...] = Field((), description="Only these clouds; all if empty.")
    level: Level = Field("mandatory", description="What a breach does, unless `levels` says otherwise.")
    levels: dict[str, Level] = Field(default_factory=dict, description="What a breach does, by control.")
    regions: tuple[str, ...] = Field(
        (), description="Where data may lie. Empty, residency isn't judged; else what has no known region fails."
    )
    tls: Literal["1.2", "1.3"] = Field("1.2", description="Least version of TLS; AWS itself takes none below 1.2.")
    cost_tags: tuple[str, ...] = Field((), description="Tags that whatever costs money must have.")
    tag_values: dict[str, str] = Field(
        default_factory=dict, description="What level `remediate` sets those of `cost_tags` to that are missing."
    )
    exemptions: tuple[Exemption, ...] = Field((), description="What is exempt, by whom, why and until when.")

    @field_validator("frameworks")
    @classmethod
    def _known_frameworks(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in FRAMEWORKS]:
            raise ValueError(f"{', '.join(unknown)}: no such framework. Choose from {', '.join(FRAMEWORKS)}")
        return names

    @model_validator(mode="after")
    def _values_of_cost_tags(self) -> Settings:
        if unknown := [name for name in self.tag_values if name not in self.cost_tags]:
            raise ValueError(f"tag_values: {', '.join(unknown)} isn't among policies:cost_tags. Add it there")
        return self

    @model_validator(mode="after")
    def _no_control_twice(self) -> Settings:
        seen = [(exemption.control, exemption.resource) for exemption in self.exemptions]
        if twice := {pair for pair in seen if seen.count(pair) > 1}:
            raise ValueError(f"exemptions: {', '.join(' of '.join(pair) for pair in sorted(twice))} stands twice")
        return self

    def select(self, controls: Iterable[Control]) -> list[Control]:
        """Those of the controls that are to judge. Raises `InvalidSettings` where an id or a topic names none."""
        known = list(controls)
        ids, topics = {control.id for control in known}, {control.topic for control in known}
        wrong = [
            *(f"levels.{name}: there is no such control" for name in self.levels if name not in ids),
            *(
                f"topics: there is no topic '{name}', but {', '.join(sorted(topics))}"
                for name in self.topics
                if name not in topics
            ),
            *(
                f"exemptions.{index}.control: there is no control '{exemption.control}'"
                for index, exemption in enumerate(self.exemptions)
                if exemption.control not in ids
            ),
        ]
        if wrong:
            raise InvalidSettings("\n".join(f"{NAMESPACE}:{line}" for line in wrong))
        return [control for control in known if self._wants(control)]

    def level_of(self, control: Control) -> Level:
        """What a breach of a control does."""
        return self.levels.get(control.id, self.level)

    def _wants(self, control: Control) -> bool:
        return (
            (not self.frameworks or any(control.frameworks.get(name) for name in self.frameworks))
            and control.severity >= Severity[self.severity.upper()]
            and (not self.topics or control.topic in self.topics)
            and (not self.clouds or bool(control.clouds & set(self.clouds)))
            and self.level_of(control) != "disabled"
            and bool(control.types)
        )


def from_config(config: Mapping[str, str]) -> Settings:
    """The settings in a stack's configuration, as Pulumi gives it: full keys, what is no text as JSON.

    Raises `InvalidSettings` with every problem there is.
    """
    prefix = f"{NAMESPACE}:"
    return parse({key.removeprefix(prefix): _decoded(value) for key, value in config.items() if key.startswith(prefix)})


def parse(values: Mapping[str, Any]) -> Settings:
    """The settings in values by their own names. Raises `InvalidSettings` with every problem there is."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{NAMESPACE}:{'.'.join(str(part) for part in detail['loc']) or 'settings'}: "
            f"{detail['msg'].removeprefix('Value error, ')}"
            for detail in error.errors()
        ]
        raise InvalidSettings("\n".join(lines)) from None


def _decoded(value: str) -> Any:
    try:
        return json.loads(value) if value[:1] in {"{", "["} else value
    except ValueError:
        return value
