"""What is refused or warned of before anything is declared."""

import pytest

from components import checks
from components.catalog import find, instance_types
from components.checks import LONGEST_NAME, judge, review
from components.findings import Finding, Invalid, Severity
from components.spec import parse


def _refused(stack, changes, name="c1"):
    with pytest.raises(Invalid) as raised:
        review(name, parse(stack(changes)))
    return str(raised.value)


WRONG = [
    (
        {"nodes.type": "m6a.larg"},
        "nodes.type: there is no instance type 'm6a.larg' in the catalog. Did you mean m6a.large",
    ),
    (
        {"nodes.type": "p4d.24xlarg"},
        "nodes.type: there is no instance type 'p4d.24xlarg' in the catalog. Did you mean p4d",
    ),
    (
        {"network.cidr": "10.0.0.0/28"},
        "network.cidr: 10.0.0.0/28 can't hold 1 subnet: a network is /16 to /27 here, as a subnet is /28 at the "
        "smallest. Use 10.0.0.0/16, for example",
    ),
    (
        {"network.cidr": "10.0.0.0/27", "nodes.max": 12, "nodes.desired": 12},
        "network.cidr: 10.0.0.0/27 leaves 11 addresses in us-west-2a, too few for 12 nodes. Take a larger network, "
        "such as 10.0.0.0/16, or lower nodes.max",
    ),
    (
        {"nodes.min": 3},
        "nodes.min: 3 nodes are needed to train, but 2 are desired. Lower it to 2 or raise nodes.desired",
    ),
    ({"nodes.max": 1}, "nodes.max: 1 is fewer than the 2 desired. Raise it to 2 or more"),
    (
        {"network.zones": ["eu-west-1a"]},
        "network.zones.0: eu-west-1a is not a zone of us-west-2. A zone is written us-west-2a",
    ),
    (
        {"network.zones": ["us-west-2a", "us-west-2a"]},
        "network.zones.1: us-west-2a is listed twice. List each zone once",
    ),
    (
        {"job.batch": 3},
        "job.batch: 3 samples can't be shared out to 4 workers (nodes.max 4, 1 each). Raise it to 4 or more",
    ),
]


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line.split(":")[0] for _, line in WRONG])
def test_a_wrong_input_gets_one_clear_line(stack, changes, line):
    text = _refused(stack, changes)
    assert text.startswith(line)
    assert "\n" not in text


def test_a_type_that_the_region_lacks_is_refused_with_where_it_is(stack):
    text = _refused(
        stack, {"nodes.type": "p4d.24xlarge", "region": "ap-southeast-1", "network.zones": ["ap-southeast-1a"]}
    )
    assert text.startswith("nodes.type: p4d.24xlarge is not offered in ap-southeast-1. It is in ")
    assert "us-west-2" in text


def test_accelerators_that_the_trainer_cannot_use_are_refused(stack):
    other = next(t for t in instance_types("aws").values() if t.accelerators and not t.gpus)
    region = other.regions[0]
    text = _refused(stack, {"nodes.type": other.name, "region": region, "network.zones": [f"{region}a"]})
    assert text.startswith(f"nodes.type: {other.name} has {other.accelerator}, which the trainer can't use")


def test_all_findings_come_at_once(stack):
    with pytest.raises(Invalid) as raised:
        review("Bad Name", parse(stack({"nodes.type": "x", "network.cidr": "10.0.0.0/28", "nodes.min": 5})))
    assert {f.path for f in raised.value.findings} == {"name", "nodes.type", "network.cidr", "nodes.min"}


@pytest.mark.parametrize(
    "name", ["", "Upper", "under_score", "-a", "a-", "a--b", "1a", "a" * (LONGEST_NAME + 1), "a\n"]
)
def test_names_that_some_resource_could_not_bear_are_refused(stack, name):
    with pytest.raises(Invalid, match="can't name a cluster"):
        review(name, parse(stack()))


@pytest.mark.parametrize("name", ["a", "prod-us-west", "a1-b2", "a" * LONGEST_NAME])
def test_names_that_all_can_bear_pass(stack, name):
    assert review(name, parse(stack()))[1] == []


def test_several_zones_are_warned_of_and_not_refused(stack):
    _, findings = review("c1", parse(stack({"network.zones": ["us-west-2a", "us-west-2b"]})))
    assert [(finding.path, finding.severity) for finding in findings] == [("network.zones", Severity.WARNING)]


def test_the_catalog_is_whole():
    types = instance_types("aws")
    assert {"m6a.large", "p4d.24xlarge"} <= types.keys()
    for name, kind in types.items():
        assert kind.name == name
        assert kind.vcpus > 0
        assert kind.memory_gib > 0
        assert kind.regions
        assert kind.source
        assert (kind.accelerators > 0) == bool(kind.accelerator_kind)
        assert kind.gpus in {0, kind.accelerators}
        assert kind.fabric_interfaces <= max(1, kind.network_cards) or name == "p6-b300.48xlarge"


def test_find_tells_a_type_from_the_reason_why_not():
    assert find("aws", "m6a.large", "us-west-2", "p").name == "m6a.large"
    assert isinstance(find("aws", "m6a.large", "mars-1", "p"), Finding)


def test_what_cannot_be_parsed_hides_nothing_else_that_is_wrong(stack):
    values = stack({"nodes.desired": 0, "nodes.type": "m6a.larg", "nodes.dezired": 3, "network.zones": ["us-east-1a"]})
    with pytest.raises(Invalid) as raised:
        judge("c1", values)
    paths = [finding.path for finding in raised.value.findings]
    assert sorted(paths) == ["network.zones.0", "nodes.desired", "nodes.dezired", "nodes.type"]


@pytest.mark.parametrize("path", ["nodes.desired", "job.learning_rate", "job.name"])
def test_true_is_neither_a_number_nor_text(stack, path):
    with pytest.raises(Invalid, match=f"{path}: must be (a number|text), not true"):
        judge("c1", stack({path: True}))


@pytest.mark.parametrize(
    ("tags", "line"),
    [
        ({"aliyun-team": "x"}, "tags.aliyun-team: is a key that Alibaba Cloud or Trainwright sets itself"),
        ({"acs:team": "x"}, "tags.acs:team: is a key that Alibaba Cloud or Trainwright sets itself"),
        ({"http://team": "x"}, "tags.http://team: is a key that Alibaba Cloud or Trainwright sets itself"),
        ({"team": "https://example.com"}, "tags.team: 'https://example.com' begins with what no tag of Alibaba Cloud"),
        (
            {"k" * 65: "x"},
            f"tags.{'k' * 65}: has characters that no tag may have, or too many. Use letters, digits and",
        ),
        ({"team": "x" * 129}, "tags.team: has characters that no tag may have, or too many"),
        ({f"k{index}": "x" for index in range(9)}, "tags: 9 tags are too many. Keep to 8"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_tags_that_alibaba_cloud_would_refuse_are_refused(ali, tags, line):
    assert _refused(ali, {"tags": tags}).startswith(line)


def test_tags_are_judged_by_the_limits_of_their_own_cloud(stack, ali):
    for values, tags in (
        (stack, {"aliyun-team": "x", "k" * 128: "x" * 256, **{f"k{index}": "x" for index in range(38)}}),
        (ali, {"aws:team": "x", "k" * 64: "x" * 128, **{f"k{index}": "x" for index in range(6)}}),
    ):
        assert review("c1", parse(values({"tags": tags, "nodes.fabric": "tcp"})))


def _lines(values):
    with pytest.raises(Invalid) as refused:
        judge("c1", values)
    return [str(finding) for finding in refused.value.findings]


def test_one_wrong_entry_of_a_list_hides_nothing_else(stack):
    wrong = {"audit.emails": ["nobody"], "nodes.min": 9, "tags": {"aws:a": "b"}}
    assert [line.split(": ")[0] for line in _lines(stack(wrong))] == ["audit.emails.0", "tags.aws:a", "nodes.min"]


def test_an_entry_of_the_wrong_form_is_told_what_the_list_is_of(stack):
    (line,) = _lines(stack({"audit.emails": ["nobody"]}))
    assert "Who is told of alarms" in line


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        (
            {"name": "mine", "command": "python a.py"},
            ["job.command: must be a list, not 'python a.py'. Write [python, a.py]"],
        ),
        ({"name": "mine", "command": []}, ["job.command: is empty. "]),
        ({"name": "mine", "command": ["a", ""]}, ["job.command.1: is empty"]),
        (
            {"name": "mine", "comand": ["python", "a.py"], "launcher": "mpirun"},
            ["job.command: is missing. ", "job.comand: there is no such key. Did you mean command"],
        ),
    ],
)
def test_a_job_whose_command_is_wrong_is_judged_as_no_other_kind_of_job(stack, job, lines):
    told = _lines(stack({"job": job}))
    assert len(told) == len(lines)
    assert all(line.startswith(start) for line, start in zip(told, lines, strict=True))


def test_an_unknown_cloud_is_said_alone_and_judged_as_none(stack):
    values = stack({"cloud": "alibaba", "nodes.type": "ecs.g8i.large", "nodes.image": "m-t4n0123456789abcdefgh"})
    (line,) = _lines(values)
    assert line.startswith("cloud: 'alibaba' is not one of")


def test_another_clouds_type_is_refused_once(stack):
    lines = [line for line in _lines(stack({"nodes.type": "ecs.g8i.large"})) if line.startswith("nodes.type")]
    assert len(lines) == 1
    assert "cloud is aws" in lines[0]


def test_a_path_that_only_begins_alike_is_no_part_of_another():
    assert checks._nested("nodes.type", "nodes")
    assert checks._nested("network.zones", "network.zones.0")
    assert not checks._nested("nodes.type_x", "nodes.type")
