"""The warm tier counts as there once it has taken a write, in bounded tries, and never keeps a node from training."""

import os

import pytest

from tests.trainer.node.machine import TOOLS, Machine, Recorded
from trainer.node import warm
from trainer.node.warm import Unready

SOURCE = "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com@tcp:/abcdefgh"
HAS = {*TOOLS, warm.CLIENT}


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "RETRY_S", 0.001)
    return Machine(tmp_path / "root", ["ebs"])


def test_it_is_mounted_as_the_guide_says_and_probed(node):
    tools = Recorded(node, HAS)
    folder, detail = warm.mount(SOURCE, node.paths, tools)
    assert folder == node.paths.warm
    assert tools.ran == [("mount", "-t", "lustre", "-o", "relatime,flock", SOURCE, str(folder))]
    assert detail == f"{SOURCE}, mounted, and written to at try 1"
    assert list(folder.iterdir()) == [], "the probe's file is taken away"


def test_b5_a_mount_that_takes_no_writes_yet_is_waited_for(node, monkeypatch):
    """awsome-distributed-ai#632: mounted, but not yet writable. `mount` had succeeded."""
    synced, refused = os.fsync, [OSError(30, "Read-only file system"), OSError(5, "Input/output error")]

    def fsync(file):
        if refused:
            raise refused.pop()
        synced(file)

    monkeypatch.setattr(warm.os, "fsync", fsync)
    tools = Recorded(node, HAS)
    assert warm.mount(SOURCE, node.paths, tools)[1].endswith("at try 3")
    assert len(tools.ran) == 1, "mounted once"
    assert list(node.paths.warm.iterdir()) == []


def test_b5_what_never_takes_a_write_is_given_up_and_unmounted(node, monkeypatch):
    def fsync(file):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(warm.os, "fsync", fsync)
    tools = Recorded(node, HAS)
    with pytest.raises(Unready, match=r"could not be used in 10 tries: .*Read-only file system"):
        warm.mount(SOURCE, node.paths, tools)
    assert tools.ran[-1] == ("umount", "-l", str(node.paths.warm))
    assert node.points == ["/"]


def test_a_name_that_is_not_known_yet_is_tried_again_so_many_times(node):
    tools = Recorded(node, HAS, failing={"mount"})
    with pytest.raises(Unready, match=r"10 tries: mount failed \(1\)"):
        warm.mount(SOURCE, node.paths, tools)
    assert [run[0] for run in tools.ran] == ["mount"] * 10 + ["umount"]


def test_b7_an_image_without_the_client_says_so_at_once(node):
    tools = Recorded(node, TOOLS)
    with pytest.raises(Unready, match=r"the image has no Lustre client \(mount\.lustre\); choose one that has it"):
        warm.mount(SOURCE, node.paths, tools)
    assert tools.ran == []


def test_b12_mounted_already_it_is_probed_only(node):
    warm.mount(SOURCE, node.paths, Recorded(node, HAS))
    tools = Recorded(node, HAS)
    warm.mount(SOURCE, node.paths, tools)
    assert tools.ran == []


def test_all_tries_fit_into_the_step():
    assert warm.TRIES * warm.RETRY_S < warm.LIMIT_S / 2


NAS = "nfs:0123abcd-x.cn-hangzhou.extreme.nas.aliyuncs.com:/share"


def test_a_source_that_names_nfs_is_mounted_as_that(node):
    tools = Recorded(node, {*TOOLS, "mount.nfs"})
    folder, detail = warm.mount(NAS, node.paths, tools)
    ((*command, options, source, target),) = [run for run in tools.ran if run[0] == "mount"]
    assert command == ["mount", "-t", "nfs", "-o"]
    assert {"vers=3", "nolock", "proto=tcp", "hard", "noresvport"} <= set(options.split(","))
    assert (source, target) == (NAS.removeprefix("nfs:"), str(folder))
    assert detail.startswith(f"{source}, mounted")


def test_an_image_without_an_nfs_client_is_said_so(node):
    with pytest.raises(Unready, match=r"no NFS client \(mount.nfs\).*nfs-common"):
        warm.mount(NAS, node.paths, Recorded(node, HAS))


def test_lustre_shows_the_bucket_and_nfs_is_filled_by_nodes():
    assert warm.shows_bucket(SOURCE) is True
    assert warm.shows_bucket(NAS) is False
