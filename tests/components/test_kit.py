"""The recording kit itself: its assertions do run, and it sees what Pulumi's mocks hide."""

import pulumi
import pulumi_aws as aws
import pytest


def test_a_false_assertion_within_apply_fails_the_run(mocked):
    """Without `pulumi.runtime.test` such an assertion passes unseen (facts: pulumi.md 3, data-safe-haven#1894)."""

    def program():
        key = aws.kms.Key("k", description="d")
        key.arn.apply(lambda arn: pytest.fail("it ran"))

    with pytest.raises(BaseException, match="it ran"):
        mocked.declare(program)


def test_a_resource_registered_twice_is_noticed(mocked):
    def program():
        aws.kms.Key("k", description="one")
        aws.kms.Key("k", description="two")

    with pytest.raises(AssertionError, match="registered twice"):
        mocked.declare(program)


def test_options_and_secrets_are_recorded(mocked):
    def program():
        parent = pulumi.ComponentResource("a:b:C", "parent")
        first = aws.kms.Key("first", description=pulumi.Output.secret("hidden"))
        options = pulumi.ResourceOptions(parent=parent, protect=True, retain_on_delete=True, depends_on=[first])
        aws.kms.Key("second", key_usage="ENCRYPT_DECRYPT", opts=options)

    records = mocked.declare(program)
    first, second = records.one("Key", "first"), records.one("Key", "second")
    assert first.secrets == {"description"}
    assert first.inputs["description"] == "hidden"
    assert (second.protect, second.retain_on_delete) == (True, True)
    assert (first.protect, first.retain_on_delete) == (False, False)
    assert second.dependencies == {first.urn}
    assert second.parent == records.one("C").urn
    assert second.inputs["keyUsage"] == "ENCRYPT_DECRYPT"


def test_in_a_preview_nothing_is_known_of_a_new_resource(mocked):
    seen = []

    def program():
        key = aws.kms.Key("k")
        key.arn.apply(seen.append)
        aws.kms.Alias("a", target_key_id=key.key_id)

    records = mocked.declare(program, preview=True)
    assert seen == []
    assert records.one("Alias").inputs["targetKeyId"] == "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
