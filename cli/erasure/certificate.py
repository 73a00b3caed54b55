"""The certificate of an erasure: what it says, how it is signed, and what checking it proves.

It is JSON in the canonical form of RFC 8785: it has no numbers but whole ones, and its members' names are ASCII. A key
of the cloud's signs a line that names the form and the SHA-256 of the certificate, so that the same key can sign
evidence of another form and neither stands for the other. See docs/erasure.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key
from rich.console import Console
from rich.text import Text

from cli.erasure.scope import Cloud, Scope
from cli.errors import Refused
from cli.words import counted, plain, size

FORM = "trainwright-erasure/1"
ALGORITHM = "ECDSA_SHA_256"
ERASURES = "erasures/"
"""Where copies of certificates lie in a bucket."""

COST = {"n": 1 << 14, "r": 8, "p": 1}
"""Of hashing a subject's key once, about 50 ms: who guesses keys pays it for each (RFC 7914)."""

LARGEST = 16 << 20
"""Bytes of a certificate that is read."""

State = Literal["erased", "partial", "scheduled"]


@dataclass(frozen=True)
class Signer:
    """A cloud's key that signs, and its public half."""

    key: str
    public: bytes


def canonical(values: Mapping[str, Any]) -> bytes:
    """The one way in which these values are written."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def named(scope: Scope, salt: str = "") -> dict[str, Any]:
    """A scope as a certificate says it. A person's key is hashed, with a salt that is made unless given."""
    if scope.kind != "subject":
        return {"kind": scope.kind, "name": scope.name}
    salt = salt or secrets.token_hex(16)
    hashed = hashlib.scrypt(scope.name.encode(), salt=bytes.fromhex(salt), dklen=32, **COST)
    return {"kind": "subject", "scrypt": {**COST, "salt": salt, "hash": hashed.hex()}}


def message(body: Mapping[str, Any]) -> bytes:
    """What is signed for a certificate."""
    return f"{FORM} {hashlib.sha256(canonical(body)).hexdigest()}\n".encode()


def issue(body: Mapping[str, Any], cloud: Cloud, signer: Signer | None) -> bytes:
    """The certificate as it is written, signed where there is a signer. Raises `Refused`, also for a bad signature."""
    said = {**body, "signer": None}
    if signer is None:
        return _written(said, None)
    said["signer"] = {"key": signer.key, "algorithm": ALGORITHM, "public": base64.b64encode(signer.public).decode()}
    signature = cloud.sign(signer.key, message(said))
    check(Read(said, signature, signer))
    return _written(said, signature)


def _written(body: Mapping[str, Any], signature: bytes | None) -> bytes:
    encoded = base64.b64encode(signature).decode() if signature else None
    return canonical({"certificate": body, "signature": encoded}) + b"\n"


@dataclass(frozen=True)
class Read:
    """A certificate as it was read. Only `check` says whether what it tells can be believed."""

    body: Mapping[str, Any]
    signature: bytes
    signer: Signer | None

    def is_of(self, subject: str) -> bool:
        """Whether it is of the person of this key."""
        scope = self.body["scope"]
        if scope["kind"] != "subject":
            return False
        told = named(Scope("subject", subject), str(scope["scrypt"]["salt"]))
        return hmac.compare_digest(told["scrypt"]["hash"], str(scope["scrypt"]["hash"]))


def read(path: Path) -> Read:
    """The certificate in a file. Raises `Refused` where there is none that can be read."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    wrong = f"{path}: no certificate of an erasure, or one that was cut, changed or laid out anew"
    try:
        if len(content) > LARGEST:
            raise Refused(wrong)
        page = json.loads(content)
        body = page["certificate"]
        told = body["signer"]
        signer = Signer(str(told["key"]), base64.b64decode(told["public"], validate=True)) if told else None
        signature = base64.b64decode(page["signature"], validate=True) if page["signature"] else b""
        if body["form"] != FORM or set(page) != {"certificate", "signature"} or canonical(page) + b"\n" != content:
            raise Refused(wrong)
        return Read(body, signature, signer)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(wrong) from None


def check(found: Read) -> None:
    """See that the signature is one of the certificate by the key that it carries. Raises `Refused`."""
    if found.signer is None or not found.signature:
        raise Refused(
            "the certificate is not signed: anybody may have written or changed it. A stack with `audit.enabled` has a "
            "key that signs"
        )
    try:
        key = load_der_public_key(found.signer.public)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise Refused("the certificate carries a key of another kind than its signature has to be of (NIST P-256)")
        key.verify(found.signature, message(found.body), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        raise Refused(
            "the signature is not one of this certificate by the key that it carries: it was changed after it was "
            "signed, or never signed so. Don't believe it"
        ) from None


def same_key(found: Read, cloud: Cloud) -> bool:
    """Whether the cloud's key of the ARN in the certificate is the one that it carries. Raises `Refused`."""
    return found.signer is not None and hmac.compare_digest(cloud.public_key(found.signer.key), found.signer.public)


def verify(
    path: Path,
    console: Console,
    cloud_of: Callable[[str], Cloud] | None = None,
    *,
    subject: str = "",
    listing: Path | None = None,
) -> None:
    """Say what the certificate in a file tells, and what is proved. Raises `Refused` where it can't be.

    `cloud_of`: makes the cloud that is asked for a key by its ARN; without it, nobody is asked.
    """
    found = read(path)
    check(found)
    assert found.signer is not None
    proved = [
        "Signature: good. It proves that nothing of this was changed since it was signed by who has the private half "
        "of the key in it; not who that is.",
        _whose(found, found.signer, cloud_of),
    ]
    try:
        if subject:
            if not found.is_of(subject):
                raise Refused("the certificate is of something else than this subject")
            proved.append("Subject: the certificate is of this one.")
        if listing:
            if _sha256(listing) != found.body["list"]["sha256"]:
                raise Refused(f"{listing}: is not the list of what was erased, or was changed")
            proved.append("List: it is the one of what was erased.")
        lines = [*_content(found.body), *proved]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{path}: the certificate doesn't tell what one of its form does") from None
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _whose(found: Read, signer: Signer, cloud_of: Callable[[str], Cloud] | None) -> str:
    """What the cloud says of the key. Raises `Refused` where it says that the key is another."""
    nobody = "so that nothing here proves whose key signed"
    if cloud_of is None:
        return f"Key: the cloud was not asked, {nobody}."
    try:
        same = same_key(found, cloud_of(signer.key))
    except Refused as refused:
        return f"Key: the cloud doesn't answer ({refused}), {nobody}."
    if not same:
        raise Refused(
            f"{signer.key} is another key than the one in the certificate: who signed it only claims that it was this "
            "one. Don't believe it"
        )
    return (
        f"Key: KMS has the same public key for {signer.key}. It proves that the signature was made in KMS, by somebody "
        "whom the key's policy let sign; not that what was signed is true."
    )


def _content(body: Mapping[str, Any]) -> Iterator[str]:
    """What the certificate tells, in lines. All of it is foreign text."""
    scope = body["scope"]
    what = f"{scope['kind']} {scope.get('name', '(hashed)')}"
    yield plain(f"{body['at']}: {what} of stack {body['stack']} ({body['region']}): {body['state']}, by {body['by']}")
    for place in body["buckets"]:
        counts = {name: value for name, value in place.items() if isinstance(value, Mapping)}
        told = "; ".join(f"{name} {_counted(value)}" for name, value in counts.items())
        yield plain(f"{place['role']} bucket {place['name']}: {told}")
    if "key" in body:
        yield plain(f"key {body['key']['arn']}: {body['key']['state']}, gone after {body['key']['after']}")
    for remaining in body["remains"]:
        yield plain("remains: " + ", ".join(f"{name} {value}" for name, value in sorted(remaining.items())))
    if body["remaining"] > len(body["remains"]):
        yield f"remains: {body['remaining'] - len(body['remains']):,} more"
    for kept in body.get("kept", ()):
        yield plain(f"kept: {kept}")
    for unseen in body["unseen"]:
        yield plain(f"not seen: {unseen}")


def _counted(amount: Mapping[str, int]) -> str:
    told = (("version", "versions"), ("delete marker", "markers"), ("unfinished upload", "uploads"))
    return f"{', '.join(counted(amount[name], noun) for noun, name in told)}, {size(amount['bytes'])}"


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
