"""The page `docs/controls.md`: every control of `policies/`, by topic, and the settings that choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.control import Control
from policies.controls import declared
from policies.frameworks import DISCLAIMER, FRAMEWORKS
from policies.settings import Settings

CLOUDS = {"aws": "AWS", "alicloud": "Alibaba Cloud"}

EXAMPLE = Settings(regions=("the regions allowed",), cost_tags=("those of policies:cost_tags",))
"""Settings under which no control is idle."""


def page() -> str:
    """The page, without its mark."""
    controls = declared(EXAMPLE)
    return "\n".join([*_head(controls), *_settings(), *_frameworks(controls), *_topics(controls)]) + "\n"


def _head(controls: list[Control]) -> list[str]:
    judging = ", ".join(
        f"{sum(cloud in control.clouds for control in controls)} judge {name}" for cloud, name in CLOUDS.items()
    )
    return [
        "# Controls",
        "",
        f"{len(controls)} controls: {judging}. They judge any Pulumi program that uses these clouds' providers,",
        "by `pulumi preview --policy-pack policies` and `trainwright comply`; see [compliance.md](compliance.md).",
        "",
        DISCLAIMER,
        "",
    ]


def _settings() -> Iterator[str]:
    yield "## Settings"
    yield ""
    yield "Keys of the stack's file, below `config:`."
    yield ""
    yield "| key | default | what |"
    yield "|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        yield f"| `policies:{name}` | {f'`{default}`' if default else ''} | {field.description} |"
    yield ""


def _frameworks(controls: Iterable[Control]) -> Iterator[str]:
    yield "## Frameworks"
    yield ""
    yield "| name | framework | version | controls | mapped after |"
    yield "|---|---|---|---|---|"
    for name, framework in FRAMEWORKS.items():
        count = sum(bool(control.frameworks.get(name)) for control in controls)
        yield f"| `{name}` | {framework.title} | {framework.version} | {count} | {framework.source} |"
    yield ""


def _topics(controls: list[Control]) -> Iterator[str]:
    for topic in dict.fromkeys(control.topic for control in controls):
        yield f"## {topic.capitalize()}"
        yield ""
        for control in controls:
            if control.topic == topic:
                yield from _control(control)


def _control(control: Control) -> Iterator[str]:
    yield f"### {control.id}: {control.title}"
    yield ""
    clouds = ", ".join(name for cloud, name in CLOUDS.items() if cloud in control.clouds)
    mapped = "; ".join(f"{name} {', '.join(clauses)}" for name, clauses in control.frameworks.items() if clauses)
    yield f"- severity: {control.severity.name.lower()}"
    yield f"- clouds: {clouds}"
    yield f"- clauses: {mapped or 'none'}"
    yield f"- to mend it: {control.fix}"
    if control.remedies:
        yield f"- level `remediate` mends: {', '.join(f'`{kind}`' for kind in sorted(control.remedies))}"
    yield f"- judges: {', '.join(f'`{kind}`' for kind in sorted(control.types))}"
    yield ""
