"""The two clouds, side by side: whatever a stack's file can ask for, each declares it or says why not."""

import re
from collections.abc import Iterator

import pytest

from components.bundle import build
from components.clouds import CLOUDS
from components.findings import Severity
from components.spec import parse
from tools import asked, clouds, docs
from tools.asked import NEUTRAL, ROWS, Row, choices, leaves, neutral
from tools.resources import stack

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_alicloud.*"),
]

WHERE_NOT = {
    "aws": {
        "`nodes.spot_strategy: priority`",
        "`nodes.spot_hours`",
        "`nodes.confidential: tdx`",
        "`security.kms_instance`",
    },
    "alicloud": {
        "`nodes.nic_layout: ip-saving`",
        "`nodes.capacity: capacity-block`, `nodes.reservation`",
        "`nodes.spot_strategy: price-capacity-optimized`",
        "`nodes.spot_strategy: capacity-optimized`",
        "`nodes.spot_strategy: capacity-optimized-prioritized`",
        "`nodes.confidential: nitro-enclaves`",
        "`nodes.confidential: nitro-tpm`",
        "`nodes.confidential: sev-snp`",
        "`storage.warm.throughput`",
        "`audit.budget_usd`",
        "`scaling.schedules.time_zone`",
    },
}
"""What one cloud doesn't have, as the rows ask for it. All else, both declare."""


@pytest.fixture(scope="module", autouse=True)
def _built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The bundle is built once for all that is declared here, in a home of the tests' own."""
    bundle = build(tmp_path_factory.mktemp("bundle"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRAINWRIGHT_HOME", str(tmp_path_factory.mktemp("home")))
        for cloud in CLOUDS:
            patched.setattr(f"components.{cloud}.cluster.build", lambda _: bundle)
        yield


def _plain(path):
    """A finding's path without the numbers of entries."""
    return re.sub(r"\.\d+(?=\.|$)", "", path)


def _about(row, path):
    plain = _plain(path)
    return any(plain == key or plain.startswith(f"{key}.") or key.startswith(f"{plain}.") for key in row.keys)


def test_every_key_of_the_stacks_file_has_a_row_or_is_the_same_on_each_cloud():
    """A new key comes with a row: what it makes each cloud declare, or why it can't."""
    asked_for = {key for row in ROWS for key in row.keys}
    assert {key for key in leaves() if not neutral(key)} == asked_for
    assert not [key for key in asked_for if neutral(key)]


def test_every_word_that_a_key_may_hold_has_a_row():
    """But for the one that a stack has which says nothing of it: what is declared then is the least of all clusters."""
    spec = parse(stack({}))
    lacking = []
    for key in (key for key in leaves() if not neutral(key)):
        value = spec
        for part in key.split("."):
            value = getattr(value, part, None) if not isinstance(value, tuple) else None
        held = {given for row in ROWS if key in row.keys for given in asked._given(row.changes, key)}
        lacking += [(key, choice) for choice in choices(key) if choice != value and choice not in held]
    strategy = ("nodes.fabric", "tcp")
    assert [one for one in lacking if one != strategy] == [], "of `nodes.fabric`, both values are on both sides"


def test_keys_that_are_called_the_same_are_there():
    assert all(any(key == one or key.startswith(f"{one}.") for key in leaves()) for one in NEUTRAL)


def test_a_job_makes_no_cloud_declare_anything_but_the_run():
    """So that its keys are rightly called the same: it changes what nodes are told, and nothing else."""
    for cloud in CLOUDS:
        made = clouds.side(Row({"job.steps": 500}), cloud)
        assert (made.added, made.removed, made.findings) == ({}, {}, ())
        assert all(names == {"userData"} for names in made.changed.values())


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title.replace("`", ""))
def test_what_is_asked_for_is_declared_or_a_finding_says_why_not(row, cloud):
    """Nothing is dropped in silence: what changes nothing on a cloud is refused there, or warned of, by its key."""
    made = clouds.side(row, cloud)
    about = [finding for finding in made.findings if _about(row, finding.path)]
    assert made.declared or about or made.looked_up, (
        f"{row.title} does nothing on {CLOUDS[cloud].title}, and none says so"
    )
    assert [finding for finding in made.findings if finding.severity is Severity.ERROR and finding not in about] == []
    absent = not made.declared and not made.looked_up
    assert absent == (row.title in WHERE_NOT[cloud])


def test_each_cloud_declares_the_least_of_a_cluster_without_being_asked():
    """Key, bucket, network, identity, group and the breaker that keeps it from launching over and over."""
    least = {
        "aws": {"kms.Key", "s3.Bucket", "ec2.Vpc", "iam.Role", "autoscaling.Group", "cloudwatch.MetricAlarm"},
        "alicloud": {"kms.Key", "oss.Bucket", "vpc.Network", "ram.Role", "ess.ScalingGroup", "cms.Alarm"},
    }
    for cloud, kinds in least.items():
        assert kinds <= set(clouds.smallest(cloud).added)


def test_a_key_that_a_cloud_dropped_would_be_noticed():
    """A canary: `prices` change nothing that is declared, and no finding speaks of them."""
    row = Row({"prices": {"m6a.large": {"on_demand": 1.0}}})
    made = clouds.side(row, "aws")
    assert not made.declared
    assert not made.looked_up
    assert not any(_about(row, finding.path) for finding in made.findings)


def test_the_page_says_what_the_code_says_now():
    assert (docs.FOLDER / "clouds.md").read_text(encoding="utf-8") == docs.clouds(), "stale: run `make docs`"


def test_the_page_tells_each_difference_once_and_refers_to_it():
    page = clouds.page()
    notes = re.findall(r"^(\d+)\. (.+)$", page, re.MULTILINE)
    assert [int(number) for number, _ in notes] == list(range(1, len(notes) + 1))
    assert len({text for _, text in notes}) == len(notes)
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    referred = {int(number) for found in re.findall(r"\(([\d, ]+)\) \|", table) for number in found.split(", ")}
    assert referred == {int(number) for number, _ in notes}
