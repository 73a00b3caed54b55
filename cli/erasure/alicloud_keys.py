"""What erasing asks of Alibaba Cloud's KMS: a key's deletion, and signatures."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from cli.alicloud import Alicloud, refusals
from cli.erasure.scope import Retired
from cli.errors import Refused
from trainer.alicloud import ApiError

ALGORITHM = "ECDSA_SHA_256"
LEAVING = "PendingDeletion"


class Keys:
    """KMS of one region, through its shared gateway, with the caller's credentials; see `scope.Cloud`.

    Keys of a KMS instance are reached there only where the instance lets them be asked for over the internet (KMS user
    guide, "Access keys in a KMS instance over the Internet").
    """

    def __init__(self, account: Alicloud) -> None:
        self.region = account.region
        self._account = account

    def retired(self, key: str) -> Retired | None:
        """See `Cloud.retired`."""
        with refusals(f"the key {key}"):
            found = self._account.call("kms", "DescribeKey", KeyId=id_of(key))["KeyMetadata"]
        state = str(found["KeyState"])
        return Retired(state, str(found.get("DeleteDate") or "")) if state == LEAVING else None

    def retire(self, key: str, days: int) -> Retired:
        """See `Cloud.retire`: protection from deletion comes off first (KMS API, SetDeletionProtection).

        It is put back where KMS refuses all the same.
        """
        with refusals(f"the deletion of key {key}"):
            found = self._account.call("kms", "DescribeKey", KeyId=id_of(key))["KeyMetadata"]
            protected = found.get("DeletionProtection") == "Enabled"
            if protected:
                self._protect(key, "false")
            try:
                self._account.call("kms", "ScheduleKeyDeletion", KeyId=id_of(key), PendingWindowInDays=days)
            except ApiError:
                if protected:
                    self._protect(key, "true")
                raise
        retired = self.retired(key)
        if retired is None:
            raise Refused(f"the deletion of key {key}: KMS took it, but doesn't tell of it. Look at it in a minute")
        return retired

    def _protect(self, key: str, on: str) -> None:
        self._account.call("kms", "SetDeletionProtection", ProtectedResourceArn=key, EnableDeletionProtection=on)

    def sign(self, key: str, message: bytes) -> bytes:
        """See `Cloud.sign`: KMS signs a digest, and its answer is what openssl takes (KMS user guide, "Asymmetric
        digital signatures").
        """
        digest = base64.b64encode(hashlib.sha256(message).digest()).decode()
        with refusals(f"a signature by key {key}"):
            named = {"KeyId": id_of(key), "KeyVersionId": self._key_version(key)}
            said = self._account.call("kms", "AsymmetricSign", Algorithm=ALGORITHM, Digest=digest, **named)
            return base64.b64decode(said["Value"], validate=True)

    def public_key(self, key: str) -> bytes:
        """See `Cloud.public_key`."""
        with refusals(f"the public key of {key}"):
            named = {"KeyId": id_of(key), "KeyVersionId": self._key_version(key)}
            pem = str(self._account.call("kms", "GetPublicKey", **named)["PublicKey"])
            return load_pem_public_key(pem.encode()).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def _key_version(self, key: str) -> str:
        """Of a key that signs there is one, as it doesn't rotate; of several, the newest (KMS API, ListKeyVersions)."""
        told = self._account.call("kms", "ListKeyVersions", KeyId=id_of(key), PageSize=100)
        newest = max(told["KeyVersions"]["KeyVersion"], key=lambda version: str(version.get("CreationDate", "")))
        return str(newest["KeyVersionId"])

    def to_restore(self, key: str) -> str:
        """See `Cloud.to_restore`."""
        return f"aliyun kms CancelKeyDeletion --region {self.region} --KeyId {id_of(key)}"


def id_of(key: str) -> str:
    """A key's id: what is last in its ARN."""
    return key.rpartition("/")[2]
