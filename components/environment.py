"""What of `job.environment` is refused or warned of: names that are the cluster's, secrets, and settings that harm.

Variables stand in user-data and in the job's record, so that a secret among them is one for whoever may read either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.findings import Finding, Severity
from components.plan import Plan
from components.spec import CommandJob, Spec

OURS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK", "NODE_IPS", "MASTER_ADDR", "MASTER_PORT", "GPUS_PER_NODE"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "PYTHONPATH"),
)
"""What makes a worker the one that it is, beside all that begins with TRAINWRIGHT_."""

FORMS = {
    "an access key of AWS": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
    "a secret key of AWS": r"^(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9+/])[A-Za-z0-9+][A-Za-z0-9+/]{39}$",
    "an access key of Alibaba Cloud": r"\bLTAI[A-Za-z0-9]{12,26}\b",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "a token of GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})\b",
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{30,}\b",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a JSON Web Token": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "a URL with a password": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/:@${}]{3,}@",
}
"""How secrets look, by what they are. Sources: IAM user guide, "IAM identifiers"; GitHub docs, "Token prefixes"; and
the forms that detect-secrets and gitleaks look for."""

SECRETIVE = (
    r"(?i)(?:^|_)(?:password|passwd|passphrase|secret|token|credentials?|(?:api|access|private|secret)_?key)(?:_id)?$"
)
"""How variables are named that hold one, such as WANDB_API_KEY."""

OPAQUE = r"(?!/|[0-9]+$)[^\s:<>]{6,}"
"""How such a variable's value looks where it is the secret itself: no path, no number, no `arn:` or `ssm:` of one."""

HARMFUL = {
    "NCCL_PROTO": "aws-ofi-nccl chooses it, and its tuner is disturbed",
    "FI_PROVIDER": "aws-ofi-nccl finds it since 1.5, and with another one gradients go over TCP",
    "FI_EFA_USE_DEVICE_RDMA": "it has been without use since libfabric 1.18",
    "FI_EFA_FORK_SAFE": "aws-ofi-nccl sets it",
    "RDMAV_": "it can break the EFA driver of newer kernels",
    "NCCL_IB_": "EFA devices aren't reached over verbs",
}
"""What is better left unset on EFA, by how its name begins (aws-ofi-nccl, `doc/efa-env-var.md`)."""

KEPT = "Have the program fetch it, with the node's role, from where you keep secrets"


def variables(spec: Spec) -> Iterator[Finding]:
    """Nothing that the cluster sets itself, and nothing that looks like a secret, is in the job; no value is shown."""
    for name, value in spec.job.environment.items():
        path = f"job.environment.{name}"
        if name in OURS or name.startswith("TRAINWRIGHT_"):
            yield Finding(path, "is set for each worker by the cluster", "Choose another name, or take it away")
        elif what := _secret(value):
            yield Finding(path, f"looks like {what}, and would stand in user-data", KEPT)
        elif re.search(SECRETIVE, name) and re.fullmatch(OPAQUE, value):
            yield Finding(path, "is named like a secret, and would stand in user-data", KEPT)
    for index, word in enumerate(spec.job.command if isinstance(spec.job, CommandJob) else ()):
        if what := _secret(word):
            yield Finding(f"job.command.{index}", f"looks like {what}, and would stand in user-data", KEPT)


def harmless(plan: Plan) -> Iterator[Finding]:
    """On EFA, nothing is set that older guides set and that harms now."""
    for name in plan.spec.job.environment if plan.pool.fabric == "efa" else ():
        if why := next((reason for start, reason in HARMFUL.items() if name.startswith(start)), ""):
            path = f"job.environment.{name}"
            yield Finding(path, f"is better left unset on EFA: {why}", "Take it away", Severity.WARNING)


def _secret(text: str) -> str:
    return next((what for what, form in FORMS.items() if re.search(form, text)), "")
