"""Scratch is the node's instance-store disks, at each boot, and never another's; where they can't be had, a folder."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.node.machine import GIB, TOOLS, Machine, Recorded, by_id
from trainer.node import scratch
from trainer.node.disks import Devices
from trainer.node.scratch import Degraded, assemble

CHANGING = {"mdadm --create", "mkfs.xfs", "mkfs.ext4"}


@pytest.fixture
def machine(tmp_path):
    return lambda *disks: Machine(tmp_path / "root", [*disks])


def changes(tools):
    """What was run that loses what is on a disk."""
    return [run[0] for run in tools.ran if run[0] in CHANGING or " ".join(run[:2]) in CHANGING]


def named(tools, machine):
    """The devices that commands named."""
    return {word for run in tools.ran for word in run if word.startswith(f"{machine.root}/dev")}


def test_several_disks_become_one_array_with_a_file_system_of_ours(machine):
    node = machine("ebs", "store", "store", "store")
    tools = Recorded(node)
    assert assemble(node.paths, tools) == (None, "3 of 3 instance-store disks, 300 GiB, made anew")
    links = [str(node.root / f"dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_AWS000{n}") for n in (1, 2, 3)]
    array = str(node.root / "dev/md/trainwright")
    level = "--level=0", "--raid-devices=3", "--name=trainwright", "--homehost=any"
    assert tools.ran == [
        ("mdadm", "--assemble", array, *links),
        ("mdadm", "--create", array, *level, "--run", *links),
        ("blkid", "-p", "-o", "value", "-s", "LABEL", array),
        ("mkfs.xfs", "-f", "-q", "-K", "-L", "tw-scratch", array),
        ("mount", "-o", "noatime,nodev,nosuid", array, str(node.paths.scratch)),
    ]
    assert node.points == ["/", "/mnt/scratch"]


def test_one_disk_needs_no_array(machine):
    node = machine("ebs", "store")
    tools = Recorded(node)
    assert assemble(node.paths, tools)[1] == "1 of 1 instance-store disks, 100 GiB, made anew"
    assert [run[0] for run in tools.ran] == ["blkid", "mkfs.xfs", "mount"]


def test_s2_without_instance_store_scratch_is_a_folder_and_nothing_is_run(machine):
    """sample-OpenClaw#135: an empty list must be a no-op, and EBS volumes are no scratch, however they are numbered."""
    node = machine("ebs", "ebs", "ebs")
    tools = Recorded(node)
    assert assemble(node.paths, tools)[1].startswith("a folder of the root disk")
    assert node.paths.scratch.is_dir()
    assert tools.ran == []


def test_a_machine_without_devices_at_all_has_a_folder(tmp_path):
    paths = Machine(tmp_path / "root", []).paths
    (tmp_path / "root/proc/self/mountinfo").unlink()
    assert assemble(paths)[1].startswith("a folder of the root disk")


def test_s2_disks_are_found_by_what_they_are_wherever_the_kernel_put_them(machine):
    """sample-OpenClaw#135: `/dev/nvme0n1` is the root disk on one boot, and instance store on the next."""
    node = machine("store", "ebs", "store")
    tools = Recorded(node)
    assemble(node.paths, tools)
    assert named(tools, node) <= by_id(node)
    assert {disk.name for disk in Devices(node.root).instance_store()} == {"nvme0n1", "nvme2n1"}


def test_s2_a_disk_is_taken_once_whatever_links_lead_to_it_and_its_partitions_never(machine):
    node = machine("ebs", "store")
    node.partition("nvme1n1")
    (node.root / "dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_gone").symlink_to("../../nvme9n1")
    (disk,) = Devices(node.root).instance_store()
    assert (disk.name, disk.size) == ("nvme1n1", 100 * GIB)


def test_b12_done_once_it_is_left_as_it_is(machine):
    node = machine("ebs", "store", "store")
    assemble(node.paths, Recorded(node))
    tools = Recorded(node)
    assert assemble(node.paths, tools) == (None, "mounted already")
    assert tools.ran == []


@pytest.mark.parametrize("disks", [1, 3])
@pytest.mark.parametrize("by_udev", [False, True])
def test_s3_a_reboot_keeps_what_is_on_the_disks(machine, disks, by_udev):
    """aws-parallelcluster#195; udev may have assembled the array already, under a name of its own."""
    node = machine("ebs", *["store"] * disks)
    assemble(node.paths, Recorded(node))
    node.reboot(assembled=by_udev)
    tools = Recorded(node)
    assert assemble(node.paths, tools)[1].endswith(" GiB, kept")
    assert changes(tools) == []
    assert "/mnt/scratch" in node.points


@pytest.mark.parametrize("disks", [1, 3])
def test_s1_s3_after_a_stop_and_start_blank_disks_are_made_anew(machine, disks):
    """scylladb#2749: the machine boots, as nothing is in fstab, and has its scratch again."""
    node = machine("ebs", *["store"] * disks)
    (node.root / "etc").mkdir()
    (node.root / "etc/fstab").write_text("LABEL=/ / xfs defaults 0 1\n")
    assemble(node.paths, Recorded(node))
    node.reboot(blank=True)
    tools = Recorded(node)
    assert assemble(node.paths, tools)[1].endswith("made anew")
    assert (node.root / "etc/fstab").read_text() == "LABEL=/ / xfs defaults 0 1\n"


def test_a_file_system_that_no_longer_mounts_is_made_anew(machine):
    node = machine("ebs", "store")
    node.labels["nvme1n1"] = scratch.LABEL
    tools = Recorded(node, failing={"mount"})
    with pytest.raises(Degraded, match=r"mount failed \(1\): it was made to; scratch is a folder of the root disk"):
        assemble(node.paths, tools)
    assert changes(tools) == ["mkfs.xfs"], "once, and then given up"


def test_b7_without_mdadm_the_largest_disk_alone_is_used_and_the_report_says_why(machine):
    node = machine("ebs", "store", "store")
    (node.root / "sys/class/block/nvme2n1/size").write_text(f"{700 * GIB // 512}")
    with pytest.raises(Degraded) as degraded:
        assemble(node.paths, Recorded(node, TOOLS - {"mdadm"}))
    assert str(degraded.value) == "1 of 2 instance-store disks, 700 GiB, made anew: the image has no mdadm"
    assert node.labels == {"nvme2n1": scratch.LABEL}
    assert node.points == ["/", "/mnt/scratch"]


def test_an_array_that_fails_leaves_one_disk(machine):
    node = machine("ebs", "store", "store")
    with pytest.raises(Degraded, match=r"^1 of 2 .*: mdadm failed \(1\): it was made to"):
        assemble(node.paths, Recorded(node, failing={"mdadm"}))
    assert "/mnt/scratch" in node.points


def test_an_image_of_either_linux_has_what_makes_a_file_system(machine):
    node = machine("ebs", "store")
    tools = Recorded(node, TOOLS - {"mkfs.xfs"})
    assemble(node.paths, tools)
    assert tools.ran[1] == ("mkfs.ext4", "-F", "-q", "-E", "nodiscard", "-L", "tw-scratch", tools.ran[1][-1])


@pytest.mark.parametrize("lacking", [{"mkfs.xfs", "mkfs.ext4"}, {"blkid"}, {"mount"}])
def test_b7_without_its_tools_scratch_is_a_folder_and_the_report_says_why(machine, lacking):
    node = machine("ebs", "store")
    with pytest.raises(Degraded, match=r"the image has no .*; scratch is a folder of the root disk"):
        assemble(node.paths, Recorded(node, TOOLS - lacking))
    assert node.points == ["/"]


def test_disks_that_the_image_has_joined_and_mounted_itself_are_lent_and_not_touched(machine):
    """Deep Learning AMIs join them at each boot, as a logical volume at /opt/dlami/nvme (`dlami-nvme.service`)."""
    node = machine("ebs", "store", "store")
    node.add("dm-0", slaves=("nvme1n1", "nvme2n1"))
    node.mounted("dm-0", "/opt/dlami/nvme", "ext4")
    tools = Recorded(node)
    lent = node.root / "opt/dlami/nvme/trainwright"
    assert assemble(node.paths, tools)[1].startswith(f"a folder of {lent.parent}")
    assert tools.ran == [("mount", "--bind", str(lent), str(node.paths.scratch))]
    assert lent.is_dir()
    assert assemble(node.paths, tools) == (None, "mounted already")


def test_the_images_own_service_is_waited_for(machine, monkeypatch):
    node = machine("ebs", "store", "store")
    (node.root / scratch.IMAGE_SERVICE).parent.mkdir(parents=True)
    (node.root / scratch.IMAGE_SERVICE).touch()

    def join(seconds):
        node.add("dm-0", slaves=("nvme1n1", "nvme2n1"))
        node.mounted("dm-0", "/opt/dlami/nvme", "ext4")

    monkeypatch.setattr(scratch.time, "sleep", join)
    tools = Recorded(node)
    assemble(node.paths, tools)
    assert [run[:2] for run in tools.ran] == [("mount", "--bind")]


def test_an_image_whose_service_never_mounts_them_is_not_waited_for_forever(machine, monkeypatch):
    node = machine("ebs", "store")
    (node.root / scratch.IMAGE_SERVICE).parent.mkdir(parents=True)
    (node.root / scratch.IMAGE_SERVICE).touch()
    monkeypatch.setattr(scratch, "IMAGE_WAIT_S", 0.05)
    monkeypatch.setattr(scratch, "POLL_S", 0.01)
    assert assemble(node.paths, Recorded(node))[1].endswith("made anew")


def test_disks_that_others_hold_are_left_to_them(machine):
    node = machine("ebs", "store", "store", "store")
    node.add("dm-0", slaves=("nvme1n1",))
    with pytest.raises(Degraded, match=r"^2 of 3 .*: the others are in use by dm-0"):
        assemble(node.paths, Recorded(node))
    assert "nvme1n1" not in node.superblocks


def test_where_others_hold_all_disks_scratch_is_a_folder(machine):
    node = machine("ebs", "store", "store")
    node.add("dm-0", slaves=("nvme1n1", "nvme2n1"))
    tools = Recorded(node)
    with pytest.raises(Degraded, match="all 2 instance-store disks are in use by dm-0; scratch is a folder"):
        assemble(node.paths, tools)
    assert tools.ran == []


def test_an_array_with_a_member_that_is_no_instance_store_is_not_ours(machine):
    node = machine("ebs", "ebs", "store")
    node.add("md5", slaves=("nvme1n1", "nvme2n1"))
    tools = Recorded(node)
    with pytest.raises(Degraded, match="in use by md5"):
        assemble(node.paths, tools)
    assert tools.ran == []


def test_what_somebody_mounted_at_the_scratch_folder_is_left_there(machine):
    node = machine("ebs", "ebs", "store")
    node.mounted("nvme1n1", "/mnt/scratch")
    tools = Recorded(node)
    assert assemble(node.paths, tools) == (None, "mounted already")
    assert tools.ran == []


def test_the_label_fits_xfs():
    assert len(scratch.LABEL) <= 12


STATES = st.sampled_from(["blank", "ours", "kept", "by udev", "mounted elsewhere", "held"])
FAILING = ["mdadm", "mdadm --assemble", "mdadm --create", "blkid", "mkfs.xfs", "mount"]


@settings(max_examples=100, deadline=None)
@given(
    disks=st.lists(st.sampled_from(["ebs", "store", "store"]), max_size=7),
    has=st.sets(st.sampled_from(sorted(TOOLS))),
    failing=st.sets(st.sampled_from(FAILING), max_size=2),
    state=STATES,
)
def test_no_command_ever_names_a_device_beside_the_instance_store(disks, has, failing, state):
    """Whatever disks there are, in whatever order and state, whatever tools are missing or fail."""
    with tempfile.TemporaryDirectory() as folder:
        node = Machine(Path(folder) / "root", ["ebs", *disks] if state != "blank" else [*disks, "ebs"])
        if state in {"ours", "kept", "by udev"} and node.store:
            assemble(node.paths, Recorded(node))
            if state != "ours":
                node.reboot(assembled=state == "by udev")
        elif state in {"mounted elsewhere", "held"} and node.store:
            node.add("dm-0", slaves=tuple(node.store[:2]))
            if state == "mounted elsewhere":
                node.mounted("dm-0", "/data here")
        tools = Recorded(node, has, failing)
        for _ in range(2):
            with suppress(Degraded):
                assemble(node.paths, tools)
        assert node.paths.scratch.is_dir()
        assert named(tools, node) <= by_id(node)
        for run in tools.ran:
            assert not any("Elastic_Block_Store" in word or "fstab" in word for word in run)
        if state in {"ours", "kept", "by udev"} and has == TOOLS and not failing:
            assert changes(tools) == []
