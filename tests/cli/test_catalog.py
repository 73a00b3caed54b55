"""`trainwright catalog` and the cost that `trainwright check` prints."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cli import catalog, main
from cli.errors import Refused
from components.catalog import price

STACK = """
config:
  trainwright:region: us-west-2
  trainwright:network: {zones: [us-west-2a]}
  trainwright:nodes: {type: p4d.24xlarge, image: ami-0123456789abcdef0, desired: 2, max: 4}
  trainwright:job: {name: gpt, dataset: text}
"""


def names(sort: str | None = None, **wanted: Any) -> list[str]:
    return [kind.name for kind, _ in catalog.select(catalog.Filter(**wanted), sort)]


def shown(width: int, sort: str | None = None, **wanted: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    asked = catalog.Filter(**wanted)
    console.print(catalog.show(catalog.select(asked, sort), asked))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("purchase", ["on-demand", "spot", "capacity-block"])
def test_nothing_of_the_list_is_cut_off(width: int, purchase: str) -> None:
    text = shown(width, purchase=purchase)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    heads = text.splitlines()[0].split()
    assert heads == ["type", "accelerators", "vCPUs", "GiB", "Gbit/s", "EFA", "TB", "USD/h"]


def test_filters_narrow_the_list_and_add_up() -> None:
    assert {"p5.48xlarge", "t4g.small", "trn1.32xlarge"} <= set(names())
    assert not {"t4g.small", "trn1.32xlarge"} & set(names(gpu=True))
    assert "r6i.4xlarge" not in names(fabric=True)
    assert names(region="ap-southeast-1", gpu=True) == ["p4de.24xlarge", "g4dn.12xlarge", "g4dn.metal"]
    assert names(min_gpu_memory=141, min_memory=4096) == ["p6-b300.48xlarge"]
    assert "p5.4xlarge" not in names(min_gpus=8)
    assert "g6.48xlarge" not in names(purchase="capacity-block")


def test_memory_of_a_gpu_is_not_that_of_another_accelerator() -> None:
    assert "trn2.48xlarge" not in names(min_gpu_memory=90)


@pytest.mark.parametrize("purchase", ["on-demand", "spot"])
def test_by_price_the_cheapest_comes_first_and_the_unknown_last(purchase: str) -> None:
    listed = catalog.select(catalog.Filter(region="us-west-2", purchase=purchase), "price")
    known = [found.low for _, found in listed if found]
    assert len(known) > 5
    assert known == sorted(known)
    assert all(found is None for _, found in listed[len(known) :])


def test_sorted_by_size_the_largest_comes_first() -> None:
    assert names("memory")[0] == "p6-b300.48xlarge"
    assert names("network")[0] == "p6-b300.48xlarge"
    assert names("type") == sorted(names())
    assert names("gpus")[-1] == names()[-1]


def test_a_price_that_is_not_known_is_not_shown_as_a_number() -> None:
    row = next(line for line in shown(120, region="us-west-2").splitlines() if line.startswith("m6a.large"))
    assert row.split()[-1] == "?"


def test_without_a_region_the_price_is_that_of_the_cheapest_one() -> None:
    listed = {kind.name: found for kind, found in catalog.select(catalog.Filter())}
    assert listed["p4de.24xlarge"] == price("aws", "p4de.24xlarge", "us-west-2", "on-demand")


def test_prices_are_listed_with_their_date() -> None:
    assert "undated (after 2025-11)" in " ".join(shown(80, region="us-west-2").split())


def test_programs_read_every_fact_and_price_as_json() -> None:
    done = CliRunner().invoke(main.app, ["catalog", "--region", "us-west-2", "--min-gpus", "8", "--json"])
    assert done.exit_code == 0, done.output
    read = {kind["name"]: kind for kind in json.loads(done.stdout)}
    assert read["p4d.24xlarge"]["fabric_interfaces"] == 4
    prices = {found["purchase"]: found for found in read["p4d.24xlarge"]["prices"]}
    assert prices.keys() == {"on-demand", "spot", "capacity-block"}
    assert prices["on-demand"]["date"]
    assert prices["on-demand"]["source"]


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ({"cloud": "gcp"}, "--cloud: there is no catalog of 'gcp'. Known: alicloud, aws"),
        ({"region": "us-wst-2"}, "--region: no type is offered in 'us-wst-2'. Did you mean us-west-2"),
        ({"min_gpus": 99}, "no instance type of AWS matches; list them all with `trainwright catalog --cloud aws`"),
        (
            {"cloud": "alicloud", "purchase": "capacity-block"},
            "no instance type of Alibaba Cloud matches; list them all with `trainwright catalog --cloud alicloud`",
        ),
    ],
)
def test_what_matches_nothing_is_refused_in_one_line(wanted: dict[str, Any], line: str) -> None:
    with pytest.raises(Refused) as raised:
        catalog.select(catalog.Filter(**wanted))
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def checked(folder: Path, monkeypatch: pytest.MonkeyPatch, stack: str) -> str:
    (folder / "stacks").mkdir()
    (folder / "Pulumi.yaml").write_text("name: trainwright\n")
    (folder / "stacks" / f"Pulumi.{stack}.yaml").write_text(STACK)
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main.app, ["check", "--stack", stack])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_check_prints_what_the_cluster_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = checked(tmp_path, monkeypatch, "prod")
    assert "cost of p4d.24xlarge in us-west-2, bought on-demand" in said
    assert "43.92" in said
    assert "not counted: root disks" in said


def test_check_prints_no_cost_of_what_runs_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cost" not in checked(tmp_path, monkeypatch, "local")


@pytest.mark.parametrize("width", [80, 120])
def test_alibaba_clouds_list_fits_and_calls_its_fabric_by_name(width: int) -> None:
    text = shown(width, cloud="alicloud")
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert text.splitlines()[0].split()[:6] == ["type", "accelerators", "vCPUs", "GiB", "Gbit/s", "eRDMA"]


def test_columns_that_would_be_empty_leave_their_room_to_others() -> None:
    """Alibaba Cloud's GPU types have no local disks, and none a price with a source: each takes one line."""
    text = shown(80, cloud="alicloud", gpu=True)
    listed = catalog.select(catalog.Filter(cloud="alicloud", gpu=True))
    assert text.splitlines()[0].split()[-1] == "eRDMA"
    assert sum(1 for line in text.splitlines() if line.startswith("ecs.")) == len(listed)
    assert all(line.startswith("ecs.") for line in text.splitlines()[1 : 1 + len(listed)])
    said = " ".join(text.split())
    assert "TB:" not in said
    assert "No on-demand price of these has a source. ?: no primary source." in said


def row(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"{name} "))


def test_what_has_no_primary_source_is_marked_and_what_has_is_not() -> None:
    text = shown(120, cloud="alicloud")
    assert "1?" in row(text, "ecs.g8i.24xlarge")
    assert row(text, "ecs.gn8is.2xlarge")[-1] == "1"
    said = " ".join(text.split())
    assert "?: no primary source. None states which regions offer these types." in said
    assert "or sell them so." in " ".join(shown(120, cloud="alicloud", purchase="spot").split())
    assert "primary source" not in shown(120)


def test_types_whose_regions_are_not_known_are_listed_for_each_region_that_there_is() -> None:
    assert names(cloud="alicloud", region="cn-hangzhou") == names(cloud="alicloud")
    with pytest.raises(Refused, match=r"no type is offered in 'cn-hangzou'\. Did you mean cn-hangzhou"):
        names(cloud="alicloud", region="cn-hangzou")
    assert "ecs.gn7-c13g1.26xlarge" not in names(cloud="alicloud", fabric=True)
