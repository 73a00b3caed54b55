"""The bucket: encrypted, versioned, closed to the public, over TLS only, and all that before anything is put in."""

import json

import pulumi
import pytest

from components import layout
from components.alicloud import storage
from components.alicloud.storage import (
    CHECKPOINT_BYTES,
    CLASSES,
    COOLED_BYTES,
    HEARTBEAT_BYTES,
    ZONED,
    bucket_policy,
    data_nodes_lifecycle,
    lifecycle,
)
from components.checks import review
from components.spec import parse
from emulator.provider import schema
from tests.components.alicloud.policies import denies
from tests.components.test_declared import _typed

ARN = "acs:oss:*:*:b"
KEY = "key-1"
DATA, CLAIMS = "c1-data-1a2b3c4", "c1-data-1a2b3c4-claims"
COLD = [
    {"prefix": "runs/gpt-0a1b2c3d/", "after_days": 240, "class": "deep-archive"},
    {"prefix": "runs/gpt-0a1b2c3d/", "after_days": 30, "class": "archive"},
    {"prefix": "datasets/older/", "after_days": 30, "class": "instant-archive"},
]
PRODUCTION = {"production": True, "audit.enabled": True, "audit.emails": ["a@example.com"]}
QUEUED = {"scaling": {"queue": True}, "network.egress": "endpoints"}
DATA_NODES = {"data_nodes": {"type": "ecs.g8i.24xlarge", "count": 1}}


@pytest.fixture
def declared(mocked, ali, bundle):
    """What the bucket of a stack, and what lies in it, registers."""

    def declare(changes=None, preview=False):
        plan, _ = review("c1", parse(ali({"nodes.fabric": "tcp", **(changes or {})})))

        def program():
            child = pulumi.ResourceOptions()
            made = storage.declare_bucket(plan, pulumi.Output.from_input(KEY), child)
            storage.declare_objects(plan, made, bundle, child)

        return mocked.declare(program, preview=preview)

    return declare


def refuses_plain_http(document, arn):
    """Semantic reading of a TLS-only policy (aws-guard-rules#218, #243): denies everyone everything without TLS."""
    for statement in document["Statement"]:
        condition = statement.get("Condition", {}).get("Bool", {}).get("acs:SecureTransport")
        if (
            statement["Effect"] == "Deny"
            and statement["Principal"] == ["*"]
            and statement["Action"] == ["oss:*"]
            and [str(value).lower() for value in condition or []] == ["false"]
            and {arn, f"{arn}/*"} <= set(statement["Resource"])
        ):
            return True
    return False


def test_k4_without_tls_nothing_reaches_bucket_or_objects():
    assert refuses_plain_http(bucket_policy("b"), ARN)
    for action, resource in (("oss:GetObject", f"{ARN}/runs/r/x"), ("oss:ListObjects", ARN)):
        assert denies(bucket_policy("b"), action, resource, {"acs:SecureTransport": "false"})
        assert not denies(bucket_policy("b"), action, resource, {"acs:SecureTransport": "true"})


@pytest.mark.parametrize(
    "change",
    [
        {"Effect": "Allow", "Condition": {"Bool": {"acs:SecureTransport": ["true"]}}},
        {"Resource": [f"{ARN}/*"]},
        {"Principal": ["1234567890123456"]},
        {"Action": ["oss:GetObject"]},
        {"Condition": {}},
    ],
)
def test_k4_near_misses_do_not_count(change):
    document = bucket_policy("b")
    assert not refuses_plain_http({"Statement": [{**document["Statement"][0], **change}]}, ARN)


def test_each_buckets_own_name_is_in_its_policy(declared):
    records = declared()
    for name, bucket in (("c1-data", DATA), ("c1-claims", CLAIMS)):
        policy = records.one("BucketPolicy", name).inputs
        assert policy["bucket"] == bucket
        assert refuses_plain_http(json.loads(policy["policy"]), f"acs:oss:*:*:{bucket}")


@pytest.mark.parametrize(("tls", "versions"), [("1.2", ["TLSv1.2", "TLSv1.3"]), (1.3, ["TLSv1.3"])])
def test_tls_is_as_new_as_asked(declared, tls, versions):
    records = declared({"security.tls": tls})
    for name, bucket in (("c1-data", DATA), ("c1-claims", CLAIMS)):
        wanted = {"bucket": bucket, "enable": True, "tlsVersions": versions}
        assert records.one("BucketHttpsConfig", name).inputs == wanted


def test_buckets_are_encrypted_with_the_clusters_key_from_their_first_moment(declared):
    """By their own arguments: the provider takes away, after a refresh, what a resource of its own has set there."""
    records = declared()
    for name in ("c1-data", "c1-claims"):
        rule = records.one("Bucket", name).inputs["serverSideEncryptionRule"]
        assert rule == {"sseAlgorithm": "KMS", "kmsMasterKeyId": KEY}
    assert not [record.type for record in records.all if record.type.endswith("BucketServerSideEncryption")]
    assert not [record.type for record in records.all if record.type.endswith("BucketVersioning")]


def test_what_other_resources_set_stays_and_no_bucket_is_made_anew_for_its_zones(declared):
    """A stack that becomes one of production would else have its bucket, and all in it, replaced."""
    for record in declared().of("Bucket"):
        assert {"policy", "logging", "redundancyType"} <= set(record.ignore_changes)


def test_public_access_is_blocked_and_lists_let_nobody_in(declared):
    records = declared()
    for name, bucket in (("c1-data", DATA), ("c1-claims", CLAIMS)):
        block = records.one("BucketPublicAccessBlock", name).inputs
        assert block == {"bucket": bucket, "blockPublicAccess": True}
        assert records.one("BucketAcl", name).inputs == {"bucket": bucket, "acl": "private"}


def test_versions_are_kept_for_the_days_asked(declared):
    bucket = declared({"storage.noncurrent_days": 3}).one("Bucket", "c1-data").inputs
    assert bucket["versioning"] == {"status": "Enabled"}
    everything = bucket["lifecycleRules"][0]
    assert (everything["prefix"], everything["enabled"]) == ("", True)
    assert everything["noncurrentVersionExpirations"] == [{"days": 3}]
    assert everything["abortMultipartUploads"] == [{"days": 1}]


def test_claims_lie_beside_the_bucket_where_no_versions_are_kept(declared):
    """OSS ignores x-oss-forbid-overwrite where they are, and two nodes would both found a generation."""
    records = declared()
    claims = records.one("Bucket", "c1-claims")
    assert claims.inputs["bucket"] == CLAIMS
    assert "versioning" not in claims.inputs
    (rule,) = claims.inputs["lifecycleRules"]
    assert {*rule} == {"id", "enabled", "prefix", "abortMultipartUploads"}, "a claim that goes could be made again"
    assert "bucket" not in records.one("Bucket", "c1-data").inputs, "names are unique in all of OSS"


@pytest.mark.parametrize(
    ("region", "production", "kind"),
    [
        ("ap-southeast-1", True, "ZRS"),
        ("ap-southeast-1", False, "LRS"),
        ("us-west-1", True, "LRS"),
    ],
)
def test_production_lies_in_three_zones_where_the_region_has_such_buckets(declared, region, production, kind):
    place = {"region": region, "network.zones": [f"{region}a"]}
    assert ("us-west-1" in ZONED) is False
    records = declared({**(PRODUCTION if production else {}), **place})
    assert {record.inputs["redundancyType"] for record in records.of("Bucket")} == {kind}


def _days(key, size, noncurrent_days=7):
    """After how many days a replaced or deleted version goes: the shortest of the rules that fit it."""

    def fits(rule):
        limits = rule.get("filter", {})
        return (
            key.startswith(rule["prefix"])
            and size > limits.get("object_size_greater_than", -1)
            and size < limits.get("object_size_less_than", size + 1)
        )

    return min(rule["noncurrent_version_expirations"][0]["days"] for rule in lifecycle(noncurrent_days) if fits(rule))


@pytest.mark.parametrize(
    ("key", "size", "days"),
    [
        ("runs/r/checkpoints/step-000000050/rank0", 5 << 30, 1),
        ("runs/r/control/members/i-1/beat", 20, 1),
        ("runs/r/checkpoints/step-000000050/manifest.json", 2_000, 7),
        ("runs/r/control/outcome.json", 200, 7),
        ("datasets/text/shard-00000.bin", 5 << 30, 7),
        ("bundles/0.tar", 5 << 20, 7),
        ("fleet.json", 40, 7),
        ("queue/own.json", 40, 7),
    ],
)
def test_retired_checkpoints_are_not_paid_for_a_week_and_nothing_else_goes_early(key, size, days):
    assert HEARTBEAT_BYTES < CHECKPOINT_BYTES
    assert _days(key, size) == days


def test_nothing_current_ever_expires_but_what_data_nodes_say_of_themselves():
    for rule in lifecycle(7):
        for expiration in rule.get("expirations", []):
            assert expiration.keys() <= {"expired_object_delete_marker"}, "a checkpoint must never expire"
    (rule,) = data_nodes_lifecycle()
    assert (rule["prefix"], rule["expirations"]) == (layout.DATA_NODES, [{"days": 1}])


ACTIONS = {"expirations", "transitions", "abort_multipart_uploads", "noncurrent_version_expirations"}


def test_the_rules_are_such_as_oss_takes(ali):
    """One rule a prefix (0014-00000085), whole numbers of days, and uploads given up by one of overlapping rules."""
    cold = parse(ali({"storage.cold": [*COLD, {"prefix": "runs/", "after_days": 9, "class": "infrequent"}]})).storage
    rules = [*lifecycle(7, cold.cold), *data_nodes_lifecycle()]
    for name in ("id", "prefix"):
        assert len({rule[name] for rule in rules}) == len(rules), f"twice the same {name}"
    assert sum("abort_multipart_uploads" in rule for rule in rules) == 1
    for rule in rules:
        assert rule["enabled"] is True
        assert len(rule["id"]) <= 255
        assert ACTIONS & rule.keys()
        assert all(size >= 1 for size in rule.get("filter", {}).values())
        for expiration in rule.get("expirations", []):
            assert len(expiration) == 1, "days, or the marker"
        for move in rule.get("transitions", []):
            assert move["storage_class"] in {"IA", "Archive", "ColdArchive", "DeepColdArchive"}
            assert move["days"] >= 1


def test_overlapping_rules_are_said_to_be_meant(declared):
    """Else OSS refuses all of them: Overlap for same action type NoncurrentVersionExpiration."""
    assert declared().one("Bucket", "c1-data").inputs["lifecycleRuleAllowSameActionOverlap"] is True


def test_the_beginnings_of_runs_name_runs_alone():
    """Two rules are about `runs/`, of which OSS takes one by that prefix; `cold` may name it, too."""
    others = (layout.FLEET, layout.BUNDLES, layout.DATASETS, layout.QUEUE, layout.DATA)
    for rule in lifecycle(7)[1:]:
        assert layout.RUNS.startswith(rule["prefix"])
        assert rule["prefix"] not in {"", layout.RUNS}
        assert not [other for other in others if other.startswith(rule["prefix"])]


def _moves(key, size, days, rules):
    """The class that OSS has moved an object to after so many days: the coldest of the transitions that are due."""
    due = [
        (move["days"], move["storage_class"])
        for rule in rules
        if key.startswith(rule["prefix"]) and size > rule.get("filter", {}).get("object_size_greater_than", -1)
        for move in rule.get("transitions", [])
        if move["days"] <= days
    ]
    return max(due)[1] if due else "Standard"


@pytest.mark.parametrize(
    ("key", "days", "kind"),
    [
        ("runs/gpt-0a1b2c3d/checkpoints/x", 29, "Standard"),
        ("runs/gpt-0a1b2c3d/checkpoints/x", 30, "ColdArchive"),
        ("runs/gpt-0a1b2c3d/checkpoints/x", 240, "DeepColdArchive"),
        ("datasets/older/shard-00000.bin", 400, "Archive"),
        ("datasets/text/shard-00000.bin", 400, "Standard"),
        ("runs/gpt-ffffffff/control/outcome.json", 400, "Standard"),
        ("fleet.json", 400, "Standard"),
    ],
)
def test_objects_move_as_they_age_by_prefix_alone_and_small_ones_stay(ali, key, days, kind):
    rules = lifecycle(7, parse(ali({"storage.cold": COLD})).storage.cold)
    assert _moves(key, 5 << 20, days, rules) == kind
    assert _moves(key, COOLED_BYTES, days, rules) == "Standard", "what agents agree through stays readable"


def test_every_class_of_the_spec_is_one_of_oss():
    assert CLASSES == {
        "infrequent": "IA",
        "instant-archive": "Archive",
        "archive": "ColdArchive",
        "deep-archive": "DeepColdArchive",
    }


def test_cold_rules_come_beside_the_others_each_prefixs_in_one(declared):
    rules = declared({"storage.cold": COLD}).one("Bucket", "c1-data").inputs["lifecycleRules"]
    plain = declared().one("Bucket", "c1-data").inputs["lifecycleRules"]
    assert rules[: len(plain)] == plain
    assert {rule["prefix"]: rule["transitions"] for rule in rules[len(plain) :]} == {
        "datasets/older/": [{"days": 30, "storageClass": "Archive"}],
        "runs/gpt-0a1b2c3d/": [
            {"days": 30, "storageClass": "ColdArchive"},
            {"days": 240, "storageClass": "DeepColdArchive"},
        ],
    }


def test_what_is_archived_for_instant_reading_is_read_at_once(declared):
    direct = declared({"storage.cold": COLD}).one("BucketArchiveDirectRead").inputs
    assert direct == {"bucket": DATA, "enabled": True}
    assert not declared({"storage.cold": COLD[:2]}).of("BucketArchiveDirectRead")


def test_records_of_data_nodes_go_where_there_are_data_nodes(declared):
    def ids(changes=None):
        return [rule["id"] for rule in declared(changes).one("Bucket", "c1-data").inputs["lifecycleRules"]]

    assert "forget-data-nodes-that-are-gone" in ids(DATA_NODES)
    assert "forget-data-nodes-that-are-gone" not in ids()


GOVERNS = ("BucketPublicAccessBlock", "BucketAcl", "BucketHttpsConfig", "BucketPolicy")


def test_nothing_is_put_in_before_the_buckets_are_closed(declared):
    """An object put in earlier could be had over plain HTTP for a moment."""
    records = declared({"storage.cold": COLD})
    governs = {records.one(kind, name).urn for kind in GOVERNS for name in ("c1-data", "c1-claims")}
    governs.add(records.one("BucketArchiveDirectRead").urn)
    assert len(records.of("BucketObject")) == 3
    for record in records.of("BucketObject"):
        assert governs <= record.dependencies


def test_each_object_is_encrypted_with_the_clusters_key(declared):
    """The provider's default is AES256, which is OSS's own key, whatever the bucket says."""
    for record in declared(QUEUED).of("BucketObject"):
        assert (record.inputs["serverSideEncryption"], record.inputs["kmsKeyId"]) == ("KMS", KEY)
        assert ("source" in record.inputs) != ("content" in record.inputs), "they are mutually exclusive"
        assert record.inputs["bucket"] == DATA


def test_the_bundle_lies_at_the_key_that_user_data_names(declared, bundle):
    record = declared().one("BucketObject", "c1-bundle")
    assert record.inputs["key"] == bundle.key == f"bundles/{bundle.sha256}.tar"
    assert record.inputs["source"] == str(bundle.path)


def test_what_nodes_must_agree_on_is_written_once(declared):
    records = declared(QUEUED)
    own = records.one("BucketObject", "c1-own")
    assert own.inputs["key"] == layout.OWN
    assert own.ignore_changes == ("content",)
    assert json.loads(records.one("BucketObject", "c1-fleet").inputs["content"]) == {"min": 1, "desired": 2, "max": 4}
    assert records.one("BucketObject", "c1-fleet").ignore_changes == ()
    assert not [record.name for record in declared().of("BucketObject") if record.name == "c1-own"]


def test_who_declared_a_run_is_its_first_page_and_stays(declared):
    (launch,) = [record for record in declared().of("BucketObject") if "-launch-" in record.name]
    page = json.loads(launch.inputs["content"])
    assert page["by"] == "acs:ram::1234567890123456:user/someone"
    assert page["cloud"] == "alicloud"
    assert launch.retain_on_delete
    assert launch.ignore_changes == ("content",)


def test_the_users_own_code_stays_for_runs_that_wait(declared, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    job = {"name": "own", "command": ["python", "train.py"], "code": str(tmp_path)}
    code = declared({"job": job}).one("BucketObject", "c1-code")
    assert code.inputs["key"].startswith("bundles/code-")
    assert code.retain_on_delete


@pytest.mark.parametrize("production", [False, True])
def test_production_keeps_buckets_and_all_that_governs_them(declared, production):
    records = declared(PRODUCTION if production else {})
    for kind in ("Bucket", *GOVERNS):
        for record in records.of(kind):
            assert (bool(record.protect), bool(record.retain_on_delete)) == (production, production)
    assert {record.inputs["forceDestroy"] for record in records.of("Bucket")} == {not production}


STACKS = {
    "plain": {},
    "cold, queued, data nodes": {**QUEUED, **DATA_NODES, "storage.cold": COLD},
    "production": PRODUCTION,
}


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
@pytest.mark.parametrize("changes", STACKS.values(), ids=STACKS.keys())
def test_every_argument_is_one_that_the_provider_has_and_of_its_type(declared, changes, preview):
    for record in declared(changes, preview).all:
        assert schema.check(schema.resource_type(record.type), _typed(record.inputs)) == [], record.key


def test_no_argument_is_a_deprecated_one(declared):
    """Each is warned of at every `up`: acl, policy, logging_isenable and referer_config of `oss.Bucket`."""
    for record in declared(STACKS["cold, queued, data nodes"]).of("Bucket"):
        assert not {"acl", "policy", "loggingIsenable", "refererConfig", "logging"} & record.inputs.keys()


def test_a_preview_declares_the_same(declared):
    for changes in STACKS.values():
        assert {record.key for record in declared(changes, True).all} == {
            record.key for record in declared(changes).all
        }


def test_what_a_claim_says_is_never_written_over(mocked, ali):
    """RAM has no condition for objects that are there already: without this, a node could rewrite what was agreed."""
    config = mocked.cluster(ali()).one("BucketOverwriteConfig")
    assert config.inputs["bucket"].endswith("-claims")
    assert config.inputs["rules"] == [{"action": "forbid"}], "without a prefix: of the whole bucket"
