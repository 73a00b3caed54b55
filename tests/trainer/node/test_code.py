"""The user's own code on a node: what its hash names, whole, or nothing."""

import hashlib
import io
import tarfile

import pytest

from trainer.node import code
from trainer.node.code import Altered
from trainer.store import FileStore, Missing


def packed(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def bucket(tmp_path):
    return FileStore(tmp_path / "bucket")


def put(bucket, content):
    sha256 = hashlib.sha256(content).hexdigest()
    bucket.put(f"bundles/code-{sha256}.tar", content)
    return sha256


def test_code_is_unpacked_once_into_a_folder_of_its_hash(bucket, tmp_path):
    sha256 = put(bucket, packed(**{"run.sh": b"#!/bin/sh", "pkg/a.py": b"1"}))
    found = code.fetch(bucket, sha256, tmp_path / "code")
    assert found == tmp_path / "code" / sha256
    assert (found / "pkg/a.py").read_bytes() == b"1"
    assert (found / "run.sh").stat().st_mode & 0o100
    assert [path.name for path in found.parent.iterdir()] == [sha256]
    bucket.delete(f"bundles/code-{sha256}.tar")
    assert code.fetch(bucket, sha256, tmp_path / "code") == found, "a second boot fetches nothing"


def test_what_is_not_of_that_hash_never_runs(bucket, tmp_path):
    sha256 = put(bucket, packed(a=b"1"))
    bucket.put(f"bundles/code-{sha256}.tar", packed(a=b"2"))
    with pytest.raises(Altered, match="the job names"):
        code.fetch(bucket, sha256, tmp_path / "code")
    assert not (tmp_path / "code" / sha256).exists()
    with pytest.raises(Missing):
        code.fetch(bucket, "0" * 64, tmp_path / "code")


def test_nothing_is_written_outside_the_folder(bucket, tmp_path):
    sha256 = put(bucket, packed(**{"../../evil": b"1"}))
    with pytest.raises(tarfile.FilterError):
        code.fetch(bucket, sha256, tmp_path / "code")
    assert not (tmp_path / "evil").exists()


def test_a_fetch_that_was_killed_is_begun_anew(bucket, tmp_path):
    sha256 = put(bucket, packed(a=b"1"))
    (tmp_path / "code" / f"{sha256}.part").mkdir(parents=True)
    (tmp_path / "code" / f"{sha256}.part" / "half").touch()
    assert [path.name for path in code.fetch(bucket, sha256, tmp_path / "code").iterdir()] == ["a"]
