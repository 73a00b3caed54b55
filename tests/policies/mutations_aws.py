"""Each way to break our stacks on AWS, and the one control that must catch it."""

from tests.policies.own_stacks import INTERNET, Mutation, add, altered, changed, put, statement

TEMPLATE = ("aws:ec2/launchTemplate:LaunchTemplate", "c1-node")
RESERVATION = ("aws:ec2/capacityReservation:CapacityReservation", "c1-nodes")
GROUP = ("aws:autoscaling/group:Group", "c1-nodes")
KEY = ("aws:kms/key:Key", "c1-data")
DATA = ("aws:s3/bucket:Bucket", "c1-data")
TRAIL = ("aws:cloudtrail/trail:Trail", "c1-audit")
ROLE_POLICY = ("aws:iam/rolePolicy:RolePolicy", "c1-node")
ROLE = ("aws:iam/role:Role", "c1-node")
POLICY = ("aws:s3/bucketPolicy:BucketPolicy", "c1-data")
LOG = ("aws:cloudwatch/logGroup:LogGroup", "c1-trail")
LUSTRE = ("aws:fsx/lustreFileSystem:LustreFileSystem", "c1-warm")
QUEUE = ("aws:sqs/queue:Queue", "c1-queue")
TOPIC = ("aws:sns/topic:Topic", "c1-alarms")
LIFECYCLE = ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "c1-data")

MUTATIONS: dict[str, list[Mutation]] = {
    "prod-us-west": [
        ("ENC-DISK-01", TEMPLATE, put("blockDeviceMappings.0.ebs.encrypted", "false")),
        ("ENC-DISK-02", TEMPLATE, put("blockDeviceMappings.0.ebs.kmsKeyId", None)),
        (
            "ENC-BUCKET-02",
            ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "c1-data"),
            put("rules.0.applyServerSideEncryptionByDefault.kmsMasterKeyId", None),
        ),
        (
            "ENC-BUCKET-01",
            ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "c1-data"),
            put("rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES256"),
        ),
        ("ENC-FILES-02", LUSTRE, put("kmsKeyId", None)),
        ("ENC-QUEUE-01", TOPIC, put("kmsMasterKeyId", None)),
        ("ENC-LOGS-01", LOG, put("kmsKeyId", None)),
        ("KEY-ROTATE-01", KEY, put("enableKeyRotation", None)),
        ("KEY-LOCKOUT-01", KEY, put("bypassPolicyLockoutSafetyCheck", True)),
        ("KEY-DELETE-01", KEY, put("deletionWindowInDays", 7)),
        ("KEY-ENABLED-01", KEY, put("isEnabled", False)),
        (
            "KEY-PUBLIC-01",
            KEY,
            add("policy", Effect="Allow", Principal={"AWS": "*"}, Action="kms:Decrypt", Resource="*"),
        ),
        (
            "TLS-BUCKET-01",
            POLICY,
            statement("policy", "OnlyTls", Effect="Allow", Principal={"AWS": "arn:aws:iam::1:root"}),
        ),
        ("TLS-QUEUE-01", ("aws:sns/topicPolicy:TopicPolicy", "c1-alarms"), statement("policy", "OnlyTls")),
        ("NET-PUBLIC-01", TEMPLATE, put("networkInterfaces.0.associatePublicIpAddress", "true")),
        ("NET-PUBLIC-02", ("aws:ec2/subnet:Subnet", "c1-private-b"), put("mapPublicIpOnLaunch", True)),
        ("NET-METADATA-01", TEMPLATE, put("metadataOptions.httpTokens", "optional")),
        ("NET-METADATA-02", TEMPLATE, put("metadataOptions.httpPutResponseHopLimit", 3)),
        ("NET-FLOW-01", ("aws:ec2/flowLog:FlowLog", "c1-flow"), put("trafficType", "ACCEPT")),
        (
            "NET-FABRIC-01",
            ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-nodes"),
            put("ipProtocol", "tcp"),
        ),
        (
            "NET-INGRESS-02",
            ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-endpoints-from-nodes"),
            altered(lambda props: props.update(fromPort=22, toPort=22, cidrIpv4=INTERNET)),
        ),
        (
            "NET-INGRESS-03",
            ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-endpoints-from-nodes"),
            altered(lambda props: props.update(fromPort=8888, toPort=8888, cidrIpv4=INTERNET)),
        ),
        (
            "NET-EGRESS-01",
            ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-endpoints"),
            altered(lambda props: props.update(ipProtocol="-1", cidrIpv4=INTERNET)),
        ),
        (
            "NET-DESCRIBED-01",
            ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-endpoints"),
            put("description", None),
        ),
        (
            "NET-DEFAULT-01",
            ("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "c1-default"),
            put("ingress", [{"protocol": "tcp", "fromPort": 443, "toPort": 443, "self": True, "description": "x"}]),
        ),
        ("IAM-ADMIN-01", ROLE_POLICY, add("policy", Effect="Allow", Action="*", Resource="*")),
        ("IAM-ADMIN-02", ROLE, put("managedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"])),
        ("IAM-WILDCARD-01", ROLE_POLICY, add("policy", Effect="Allow", Action="ec2:*", Resource="*")),
        ("IAM-PASSROLE-01", ROLE_POLICY, add("policy", Effect="Allow", Action="iam:PassRole", Resource="*")),
        ("IAM-TRUST-01", ROLE, add("assumeRolePolicy", Effect="Allow", Principal="*", Action="sts:AssumeRole")),
        ("IAM-SECRET-01", TEMPLATE, put("userData", "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE")),
        (
            "STO-PUBLIC-01",
            ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "c1-data"),
            put("restrictPublicBuckets", False),
        ),
        ("STO-PUBLIC-02", DATA, put("acl", "public-read")),
        ("STO-PUBLIC-03", POLICY, add("policy", Effect="Allow", Principal="*", Action="s3:GetObject", Resource="*")),
        (
            "STO-VERSION-01",
            ("aws:s3/bucketVersioning:BucketVersioning", "c1-data"),
            put("versioningConfiguration.status", "Suspended"),
        ),
        (
            "STO-LOCK-01",
            ("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration", "c1-audit"),
            put("rule", None),
        ),
        (
            "STO-CLEAN-01",
            LIFECYCLE,
            altered(lambda props: [rule.pop("abortIncompleteMultipartUpload", None) for rule in props["rules"]]),
        ),
        (
            "STO-CLEAN-02",
            LIFECYCLE,
            altered(lambda props: [rule.pop("noncurrentVersionExpiration", None) for rule in props["rules"]]),
        ),
        ("AUD-TRAIL-01", TRAIL, put("isMultiRegionTrail", False)),
        ("AUD-TRAIL-02", TRAIL, put("enableLogging", False)),
        ("AUD-TRAIL-03", TRAIL, put("enableLogFileValidation", False)),
        ("AUD-TRAIL-04", TRAIL, put("includeGlobalServiceEvents", False)),
        ("AUD-TRAIL-05", TRAIL, put("cloudWatchLogsGroupArn", None)),
        ("AUD-RETENTION-01", LOG, put("retentionInDays", 30)),
        ("RES-REGION-01", DATA, changed(region="us-east-1")),
        ("RES-ZONE-01", ("aws:ec2/subnet:Subnet", "c1-private-b"), put("availabilityZone", "us-east-1b")),
        ("RES-KEY-01", KEY, put("multiRegion", True)),
        ("RSL-QUEUE-01", QUEUE, put("redrivePolicy", None)),
        ("RSL-FORCE-01", DATA, put("forceDestroy", True)),
        ("COST-BUDGET-01", ("aws:budgets/budget:Budget", "c1"), put("notifications", None)),
        ("COST-TAG-01", DATA, put("tags", {"team": "research", "trainwright:cluster": "c1"})),
        (
            "COST-SPOT-01",
            GROUP,
            put("mixedInstancesPolicy.instancesDistribution.onDemandPercentageAboveBaseCapacity", None),
        ),
        ("TRN-ZONE-01", GROUP, put("vpcZoneIdentifiers", ["subnet-1", "subnet-2"])),
        (
            "TRN-VERSION-01",
            GROUP,
            put("mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.version", "$Latest"),
        ),
        ("TRN-DRAIN-01", ("aws:autoscaling/lifecycleHook:LifecycleHook", "c1-drain"), put("heartbeatTimeout", 30)),
        ("TRN-NIC-01", TEMPLATE, put("networkInterfaces.1.deviceIndex", 2)),
        ("TRN-NIC-02", TEMPLATE, put("vpcSecurityGroupIds", ["sg-1"])),
        ("KEY-DELETE-01", KEY, changed(protect=False)),
        ("RSL-PROTECT-01", DATA, changed(protect=False)),
    ],
    # The first asks for no TLS of 1.3, and has no reservation.
    "prod-eu-frankfurt": [
        ("TLS-BUCKET-02", POLICY, statement("policy", "OnlyNewTls")),
        ("COST-RESERVED-01", RESERVATION, put("endDateType", None)),
    ],
}

BROKEN_OTHERWISE = {
    "NET-INGRESS-01": "everything is SSH and Jupyter too",
    "AUD-ACCESS-01": "what the trail records is made of the bucket, whatever it says",
    "COST-IDLE-01": "what ends a fleet that fails to boot scales it too, whatever its least size",
}
"""Controls on what our stacks declare that no change of one resource breaks alone, and why."""
