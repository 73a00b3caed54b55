"""moto's repairs: what the cluster's bucket policy refuses on AWS, and nothing else, is refused here."""

import json

import pytest
from botocore.exceptions import ClientError

BUCKET = "policied"


def statement(action, **condition):
    resource = f"arn:aws:s3:::{BUCKET}/*"
    return {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": resource} | condition


@pytest.mark.parametrize(
    "condition",
    [
        {"Bool": {"aws:SecureTransport": "false"}},
        {"Bool": {"aws:SecureTransport": False}},
        {"NumericLessThan": {"s3:TlsVersion": "1.3"}},
    ],
)
def test_a_policy_against_plain_http_or_old_tls_refuses_nothing_while_its_neighbours_hold(world, condition):
    s3 = world.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    try:
        s3.put_object(Bucket=BUCKET, Key="key", Body=b"text")
        plain_http = statement("s3:*", Condition=condition)
        s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Statement": [plain_http]}))
        assert s3.get_object(Bucket=BUCKET, Key="key")["Body"].read() == b"text"
        both = {"Statement": [plain_http, statement("s3:GetObject")]}
        s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(both))
        with pytest.raises(ClientError, match=r"Forbidden|AccessDenied"):
            s3.get_object(Bucket=BUCKET, Key="key")
    finally:
        s3.delete_bucket_policy(Bucket=BUCKET)
        s3.delete_object(Bucket=BUCKET, Key="key")
        s3.delete_bucket(Bucket=BUCKET)
