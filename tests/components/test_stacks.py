"""The stacks that are shipped: each one plans, as it stands."""

from pathlib import Path

import pytest

from cli.workspace import stack_values
from components.checks import judge
from components.cost import cost

STACKS = sorted(Path(__file__).parents[2].joinpath("stacks").glob("Pulumi.*.yaml"))

OF_ALIBABA = {"network.egress", "nodes.fabric", "nodes.type", "audit.enabled", "audit.lock"}
"""What is said of every audited cluster with eRDMA there: who else is reached, what the provider or OSS lacks, what has
no source."""

SAID = {
    "local-alicloud": {"nodes.failed_boots", "nodes.type"},
    "prod-ap-singapore": OF_ALIBABA | {"scaling", "scaling.queue", "nodes.failed_boots", "nodes.capacity"},
    "prod-cn-hangzhou": OF_ALIBABA | {"region", "security.operators", "network.zones"},
}
"""What is warned of, by path: where Alibaba Cloud, or its provider, differs from what the file asks for."""

PRODUCTION = ("prod-ap-singapore", "prod-cn-hangzhou")


@pytest.mark.parametrize("file", STACKS, ids=[file.name for file in STACKS])
def test_a_shipped_stack_plans_with_no_finding_but_those_that_it_explains(file):
    name = file.name.split(".")[1]
    plan, warnings = judge(name, stack_values(file))
    assert {finding.path for finding in warnings} == (SAID.get(name, set()) if plan.spec.cloud == "alicloud" else set())
    assert cost(plan).text()


def test_there_are_stacks_of_both_clouds():
    names = {file.name for file in STACKS}
    assert {"Pulumi.local.yaml", "Pulumi.prod-us-west.yaml", "Pulumi.prod-eu-frankfurt.yaml"} <= names
    assert {f"Pulumi.{name}.yaml" for name in SAID} <= names


@pytest.mark.parametrize("name", PRODUCTION)
def test_a_stack_of_alibaba_cloud_has_erdma_guarded_metadata_and_a_record(name):
    (file,) = (file for file in STACKS if file.name == f"Pulumi.{name}.yaml")
    plan, _ = judge(name, stack_values(file))
    assert (plan.pool.fabric, plan.pool.source, plan.checks_tokens) == ("erdma", "configuration", True)
    assert plan.spec.production
    assert plan.spec.audit.enabled


def test_hangzhou_trains_on_cpus_inside_tdx_and_singapore_on_gpus():
    plans = {name: judge(name, stack_values(file))[0] for name in PRODUCTION for file in STACKS if name in file.name}
    assert (plans["prod-cn-hangzhou"].instance.gpus, plans["prod-cn-hangzhou"].pool.confidential) == (0, "tdx")
    assert plans["prod-ap-singapore"].instance.gpus == 8
