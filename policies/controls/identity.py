"""Identities: rights without limit, wildcards, who may take a role, long-lived keys, secrets in user-data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from policies import leaks
from policies.checks import both, equal, failed, passed, true, undecided, where
from policies.control import Check, Control, Judgement, Severity, Verdict
from policies.documents import SOMEBODY, Statement, lets_everybody_in, narrows, statements
from policies.resources import Resource
from policies.values import UNKNOWN, Undecided, spread

TOPIC = "identity"

LEAST_PRIVILEGE: Mapping[str, tuple[str, ...]] = {
    "cis": ("AWS 2.14", "Alibaba Cloud 1.15"),
    "hipaa": ("164.308(a)(3)(i)", "164.308(a)(4)(i)"),
    "iso27001": ("A.5.18", "A.8.2"),
    "soc2": ("CC6.3",),
    "gdpr": ("Art. 25",),
}

DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "aws:iam/policy:Policy": ("policy",),
    "aws:iam/rolePolicy:RolePolicy": ("policy",),
    "aws:iam/userPolicy:UserPolicy": ("policy",),
    "aws:iam/groupPolicy:GroupPolicy": ("policy",),
    "aws:iam/role:Role": ("inlinePolicies.*.policy",),
    "alicloud:ram/policy:Policy": ("policyDocument", "document"),
}
"""Where documents of rights stand."""

TRUSTS: Mapping[str, tuple[str, ...]] = {
    "aws:iam/role:Role": ("assumeRolePolicy",),
    "alicloud:ram/role:Role": ("assumeRolePolicyDocument", "document"),
}

ATTACHMENTS: Mapping[str, str] = {
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "policyArn",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment": "policyArn",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment": "policyArn",
    "aws:iam/policyAttachment:PolicyAttachment": "policyArn",
    "alicloud:ram/rolePolicyAttachment:RolePolicyAttachment": "policyName",
    "alicloud:ram/userPolicyAttachment:UserPolicyAttachment": "policyName",
    "alicloud:ram/groupPolicyAttachment:GroupPolicyAttachment": "policyName",
}
ADMINISTRATORS = ("AdministratorAccess", "IAMFullAccess", "PowerUserAccess", "AliyunRAMFullAccess")

NARROWING = SOMEBODY | {"sts:externalid", "acs:sourceaccount", "acs:sourcearn"}

OF_RESOURCES = frozenset(
    {
        "*:resourcetag/*",
        "aws:calledvia*",
        "cloudwatch:namespace",
        "dynamodb:leadingkeys",
        "ec2:vpc",
        "ecs:cluster",
        "kms:encryptioncontext:*",
        "kms:viaservice",
        "s3:dataaccesspointarn",
    }
)
"""Keys of conditions that leave some of a service's resources, or some ways to them (Service Authorization Reference;
RAM user guide, "Basic elements of a permission policy"). Who asks, from where, when and in which region is none."""

OF_ROLES = frozenset({"*:resourcetag/*", "iam:passedtoservice", "iam:associatedresourcearn", "acs:service"})
"""The same, of what may be done with a role (IAM user guide, "Grant a user permissions to pass a role"; policies of
Alibaba Cloud's own pass roles by `acs:Service`)."""

SOME_ROLE = (
    *(f"arn:{partition}:iam::0:role/\0" for partition in ("aws", "aws-cn", "aws-us-gov")),
    "acs:ram::0:role/\0",
)
"""A role of a name that nobody can write: what takes it in, whatever the account, takes in every role of one."""

HANDS_ON = ("iam:PassRole", "ram:PassRole", "sts:AssumeRole")
"""Actions by which an identity gets another's rights."""

USER_DATA: Mapping[str, tuple[str, ...]] = {
    "aws:ec2/launchTemplate:LaunchTemplate": ("userData",),
    "aws:ec2/instance:Instance": ("userData", "userDataBase64"),
    "aws:ec2/launchConfiguration:LaunchConfiguration": ("userData", "userDataBase64"),
    "alicloud:ecs/instance:Instance": ("userData",),
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": ("userData",),
    "alicloud:ess/scalingConfiguration:ScalingConfiguration": ("userData",),
    "aws:ssm/document:Document": ("content",),
    "alicloud:oos/template:Template": ("content",),
    "alicloud:oos/execution:Execution": ("parameters", "templateContent"),
}
"""Where stands what runs on nodes, or by itself."""


def _documents(places: Mapping[str, tuple[str, ...]], test: Callable[[Statement], str]) -> dict[str, Check]:
    """Each statement of the documents at these places: `test` gives what is wrong with it, or nothing."""

    def judged(paths: tuple[str, ...]) -> Check:
        def check(resource: Resource) -> Iterator[Judgement]:
            for place, document in (found for path in paths for found in spread(resource.props, path)):
                if document is None:
                    continue
                try:
                    wrong = [told for statement in statements(document) if (told := test(statement))]
                except Undecided:
                    yield undecided(place)
                    continue
                yield failed(place, "; ".join(wrong)) if wrong else passed(place, "is narrow")

        return check

    return {kind: judged(paths) for kind, paths in places.items()}


def _named(statement: Statement) -> str:
    return statement.sid or "a statement"


def _unlimited(statement: Statement) -> str:
    """Every action on every resource (CIS AWS 2.14), however it is written: `*`, `*:*`, or all but some."""
    everything = bool({"*", "*:*"} & set(statement.actions)) != statement.not_actions
    everywhere = "*" in statement.resources or statement.not_resources
    return f"{_named(statement)} allows everything" if statement.allow and everything and everywhere else ""


def _whole_service(statement: Statement) -> str:
    """Every action of a service on every resource, and no condition leaves some of them."""
    if not statement.allow or "*" not in statement.resources or narrows(statement, OF_RESOURCES):
        return ""
    if statement.not_actions:
        return f"{_named(statement)} allows all but some actions on everything"
    whole = sorted(action for action in statement.actions if action.endswith(":*") and action != "*:*")
    return f"{_named(statement)} allows {', '.join(whole)} on everything" if whole else ""


def _every_role(pattern: str) -> bool:
    """The pattern takes in every role, of one account or of all."""
    anywhere = re.sub(r":(\d+|\$\{[^}]*\}):", ":*:", pattern)
    return any(fnmatchcase(role, anywhere) for role in SOME_ROLE)


def _passes_any_role(statement: Statement) -> str:
    everywhere = statement.not_resources or any(_every_role(pattern) for pattern in statement.resources)
    if not statement.allow or not everywhere or narrows(statement, OF_ROLES):
        return ""
    if statement.not_actions or {"*", "*:*"} & set(statement.actions):
        return ""  # told by other controls
    handed = [action for action in HANDS_ON if statement.names_action(action)]
    return f"{_named(statement)} allows {', '.join(handed)} of any role" if handed else ""


def _trusts_everybody(statement: Statement) -> str:
    return f"{_named(statement)} lets everybody take the role" if lets_everybody_in(statement, NARROWING) else ""


def _not_administrators(path: str) -> Check:
    return where(
        path,
        lambda name: not any(str(name).rpartition("/")[2] == wide for wide in ADMINISTRATORS),
        "a policy that isn't one of an administrator",
    )


def _managed(resource: Resource) -> Iterator[Judgement]:
    yield from where(
        "managedPolicyArns.*",
        lambda name: str(name).rpartition("/")[2] not in ADMINISTRATORS,
        "a policy that isn't one of an administrator",
    )(resource)


def _no_keys(resource: Resource) -> Iterator[Judgement]:
    """A key that lives until somebody ends it."""
    status = resource.at("status")
    if status is UNKNOWN:
        yield undecided("status")
    elif status == "Inactive":
        yield passed("status", "is inactive")
    else:
        yield failed("", "is a key that lives until somebody ends it")


def _nothing_secret(paths: tuple[str, ...]) -> Check:
    def check(resource: Resource) -> Iterator[Judgement]:
        for path in paths:
            text = resource.at(path)
            if text is UNKNOWN:
                yield undecided(path)
            elif isinstance(text, str):
                what = leaks.found(text)
                yield failed(path, f"has what looks like {', '.join(what)}") if what else passed(path, "has no secret")

    return check


def _long(least: int) -> Check:
    return where("minimumPasswordLength", lambda length: int(length) >= least, f"{least} or more")


CONTROLS: tuple[Control, ...] = (
    Control(
        "IAM-ADMIN-01",
        "No identity may do everything",
        TOPIC,
        Severity.CRITICAL,
        "Name the actions and the resources that are needed",
        LEAST_PRIVILEGE,
        checks=_documents(DOCUMENTS, _unlimited),
    ),
    Control(
        "IAM-ADMIN-02",
        "No identity has an administrator's policy",
        TOPIC,
        Severity.HIGH,
        "Attach a policy of your own that names what is needed",
        LEAST_PRIVILEGE,
        checks={
            **{kind: _not_administrators(path) for kind, path in ATTACHMENTS.items()},
            "aws:iam/role:Role": _managed,
        },
    ),
    Control(
        "IAM-WILDCARD-01",
        "No identity may do all that a service can",
        TOPIC,
        Severity.MEDIUM,
        "Name the service's actions that are needed, or the resources that they are for",
        {"iso27001": ("A.5.18",), "soc2": ("CC6.3",)},
        checks=_documents(DOCUMENTS, _whole_service),
    ),
    Control(
        "IAM-PASSROLE-01",
        "No identity may take or pass any role",
        TOPIC,
        Severity.HIGH,
        "Name the roles in the statement's resources, or the service by a condition on iam:PassedToService",
        {"iso27001": ("A.8.2",), "soc2": ("CC6.3",)},
        checks=_documents(DOCUMENTS, _passes_any_role),
    ),
    Control(
        "IAM-TRUST-01",
        "No role is open to everybody",
        TOPIC,
        Severity.CRITICAL,
        "Name the accounts, roles or services that may take it",
        LEAST_PRIVILEGE,
        checks=_documents(TRUSTS, _trusts_everybody),
    ),
    Control(
        "IAM-KEY-01",
        "No access key is declared",
        TOPIC,
        Severity.HIGH,
        "Let people and machines take a role, whose credentials end by themselves",
        {"iso27001": ("A.5.18",)},
        checks={"aws:iam/accessKey:AccessKey": _no_keys, "alicloud:ram/accessKey:AccessKey": _no_keys},
    ),
    Control(
        "IAM-SECRET-01",
        "User-data and runbooks have no secret",
        TOPIC,
        Severity.HIGH,
        "Keep it in a secrets manager and let a role read it: whoever is on the node reads user-data",
        {"iso27001": ("A.8.20", "A.8.21", "A.8.22")},
        checks={kind: _nothing_secret(paths) for kind, paths in USER_DATA.items()},
    ),
    Control(
        "IAM-PASSWORD-01",
        "Passwords are long and aren't used again",
        TOPIC,
        Severity.MEDIUM,
        "Ask for 14 characters or more, and remember the last 5 passwords or more",
        {"cis": ("AWS 2.8", "AWS 2.9")},
        checks={
            kind: both(_long(14), where("passwordReusePrevention", lambda count: int(count) >= 5, "5 or more"))
            for kind in (
                "aws:iam/accountPasswordPolicy:AccountPasswordPolicy",
                "alicloud:ram/accountPasswordPolicy:AccountPasswordPolicy",
            )
        },
    ),
    Control(
        "IAM-MFA-01",
        "People log in with a second factor",
        TOPIC,
        Severity.HIGH,
        "Enforce the second factor for every login",
        {"cis": ("Alibaba Cloud 1.4",), "iso27001": ("A.8.5",)},
        checks={
            "alicloud:ram/loginProfile:LoginProfile": true("mfaBindRequired", absent=Verdict.PASS),
            "alicloud:ram/securityPreference:SecurityPreference": equal("mfaOperationForLogin", "mandatory"),
        },
    ),
)
