"""Text that looks like a secret: the forms in which clouds and tools write their keys."""

from __future__ import annotations

import base64
import binascii
import re

FORMS = {
    "an access key of AWS": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
    "an access key of Alibaba Cloud": r"\bLTAI[A-Za-z0-9]{12,26}\b",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "a token of GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})\b",
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{30,}\b",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a password": r"(?i)\b(?:\w*passw(?:or)?d|\w*secret(?:_access_key)?|api_?key|auth_?token)\b[\"']?\s*[=:]\s*"
    r"(?:[\"'][^\s\"'${}<>]{8,}[\"']|(?=[A-Za-z+/_-]*[0-9])[A-Za-z0-9+/=_-]{8,}(?=\s|$))",
    "a URL with a password": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/:@${}]{3,}@",
}
"""Patterns by what they find. Sources: IAM user guide, "IAM identifiers" (prefixes); GitHub docs, "Token prefixes"; and
the forms that detect-secrets and prowler's `ec2_instance_secrets_user_data` look for."""


def found(text: str) -> list[str]:
    """What in a text looks like a secret, by what it is and never by its value; in base64 too."""
    whole = f"{text}\n{_decoded(text)}"
    return [what for what, form in FORMS.items() if re.search(form, whole)]


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return ""
