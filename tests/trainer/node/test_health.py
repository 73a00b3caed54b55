"""Whether a node may join, with stand-ins for the driver's tools on PATH."""

import shutil

import pytest

from trainer.node import health

DRIVER = "580.159.03"
LINKS = "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"


@pytest.fixture(autouse=True)
def shared_memory(tmp_path, monkeypatch):
    """As much shared memory as the disk has room: this machine's may be a container's."""
    monkeypatch.setattr(health, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(health, "KERNEL_LOG", tmp_path / "kmsg")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Makes tools that print by their first argument, each in a file of its own: `tools(name, {argument: text})`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    cat = shutil.which("cat", path="/usr/bin:/bin")

    def make(name, answers, code=0):
        cases = []
        for number, (argument, text) in enumerate(answers.items()):
            (folder / f"{name}.{number}").write_text(text)
            cases.append(f'"{argument}") {cat} "{folder}/{name}.{number}";;')
        (folder / name).write_text(f'#!/bin/sh\ncase "$1" in {" ".join(cases)} esac\nexit {code}\n')
        (folder / name).chmod(0o755)

    return make


@pytest.fixture
def gpus(tools):
    """Makes `nvidia-smi` answer as a machine with so many GPUs; None: there is no driver."""

    def make(count, code=0, rows="0, 0", links=LINKS, pages="[N/A], 0"):
        if count is not None:
            listed = "".join(f"GPU {n}: NVIDIA A100-SXM4-40GB (UUID: GPU-{n})\n" for n in range(count))
            remapped = "".join(f"00000000:{n:02}:1C.0, {rows}\n" for n in range(count))
            query = "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
            driver = f"{DRIVER}\n" * count
            ecc = "--query-gpu=gpu_bus_id,retired_pages.pending,ecc.errors.uncorrected.volatile.total"
            retired = "".join(f"00000000:{n:02}:1C.0, {pages}\n" for n in range(count))
            tools(
                "nvidia-smi",
                {"-L": listed, query: remapped, ecc: retired, "--query-gpu=driver_version": driver, "nvlink": links},
                code,
            )

    return make


@pytest.fixture
def manager(tools):
    """Makes fabric manager be of a version and in a state."""

    def make(version=DRIVER, state="active"):
        tools("systemctl", {"is-active": f"{state}\n"}, code=0 if state == "active" else 3)
        if version:
            tools("nv-fabricmanager", {"--version": f"\nFabric Manager version is : {version}\n"})

    return make


@pytest.mark.parametrize(("answer", "has"), [(None, 0), (1, 1), (8, 8)])
def test_a_node_that_has_what_its_type_has_is_fit(gpus, tmp_path, answer, has):
    gpus(answer)
    assert health.check(tmp_path, has).startswith(f"{has} GPUs, ")


def test_gpus_of_the_machine_beneath_are_nothing_to_a_type_that_has_none(gpus, tmp_path):
    """As on the embedded cloud on a workstation: each of its nodes would claim the same GPU."""
    gpus(2)
    assert health.check(tmp_path, 0).startswith("0 GPUs, ")


@pytest.mark.parametrize(("answer", "has"), [(7, 8), (None, 8), (0, 8), (0, 1), (None, 1)])
def test_b4_a_node_with_a_lost_gpu_does_not_join(gpus, tmp_path, answer, has):
    """Also where it was the only one: the node would train on its CPUs, at the price of its GPU."""
    gpus(answer, code=9 if answer == 0 else 0)
    with pytest.raises(health.Unfit, match=f"{answer or 0} GPUs answer nvidia-smi, but the instance type has {has}"):
        health.check(tmp_path, has)


@pytest.mark.parametrize("rows", ["1, 0", "0, 1", "Yes, No", "No, Yes"])
def test_a_node_with_broken_memory_does_not_join(gpus, tmp_path, rows):
    """It would train until the first uncorrectable error, and take the gang's step with it."""
    gpus(2, rows=rows)
    with pytest.raises(health.Unfit, match=r"GPU 00000000:00:1C\.0 has rows that are broken"):
        health.check(tmp_path, 2)


@pytest.mark.parametrize("rows", ["0, 0", "No, No", "[N/A], [N/A]", "[Not Supported], [Not Supported]"])
def test_memory_that_is_sound_or_does_not_tell_is_no_reason_to_stay_out(gpus, tmp_path, rows):
    gpus(2, rows=rows)
    assert health.check(tmp_path, 2).startswith("2 GPUs, ")


@pytest.mark.parametrize(
    ("pages", "said"), [("Yes, 0", "pages that wait to be retired"), ("No, 2", "had 2 ECC errors that could not be")]
)
def test_a_gpu_that_remaps_no_rows_is_judged_by_its_pages(gpus, tmp_path, pages, said):
    """T4 and V100 retire pages instead, and say nothing of rows."""
    gpus(1, rows="[N/A], [N/A]", pages=pages)
    with pytest.raises(health.Unfit, match=f"the memory of GPU 00000000:00:1C.0 has {said}"):
        health.check(tmp_path, 1)


@pytest.mark.parametrize(
    ("pages", "said"), [("No, 0", "ECC,"), ("[N/A], 3", "ECC,"), ("[N/A], [N/A]", "no ECC told,"), ("", "no ECC told,")]
)
def test_errors_that_a_gpu_has_mended_itself_are_no_reason_to_stay_out(gpus, tmp_path, pages, said):
    """One that remaps rows has done so since, or waits for it, which its rows tell."""
    gpus(1, pages=pages)
    assert health.check(tmp_path, 1).startswith(f"1 GPUs, {said}")


def test_where_no_tool_shows_the_kernels_log_its_device_does(gpus, tmp_path):
    gpus(1)
    assert "their errors unknown (neither dmesg nor" in health.check(tmp_path, 1)
    (tmp_path / "kmsg").write_text("6,1201,61100000,-;" + XID.format(79).partition("] ")[2])
    with pytest.raises(health.Unfit, match="GPU 0000:c6:00 has reported Xid 79"):
        health.check(tmp_path, 1)
    (tmp_path / "kmsg").write_text("6,1201,61100000,-;some other words\n")
    assert "unknown" not in health.check(tmp_path, 1)


XID = "[  61.1] NVRM: Xid (PCI:0000:c6:00): {}, pid=1101, name=python, some words\n"


@pytest.mark.parametrize("number", [48, 62, 64, 74, 79, 95, 119, 120, 140])
def test_a_gpu_that_has_failed_since_the_boot_does_not_join(gpus, tools, tmp_path, number):
    """The agent starts again on the node whose GPU has just failed, and would take the gang down time and again."""
    gpus(2)
    tools("dmesg", {"": XID.format(13) + XID.format(number)})
    with pytest.raises(health.Unfit, match=f"GPU 0000:c6:00 has reported Xid {number} since the node's boot"):
        health.check(tmp_path, 2)


def test_errors_of_programs_and_a_kernel_log_that_cant_be_read_keep_no_node_out(gpus, tools, tmp_path):
    gpus(2)
    tools("dmesg", {"": "".join(map(XID.format, (13, 31, 43, 45, 63, 94)))})
    assert health.check(tmp_path, 2)
    tools("dmesg", {"": ""}, code=1)
    assert health.check(tmp_path, 2)


def test_shared_memory_too_small_for_nccl_keeps_a_node_of_several_gpus_out(gpus, tmp_path, monkeypatch):
    """facts trainer.md 2, #14: /dev/shm of a container's 64 MiB ends in a bus error, in the midst of a step."""
    gpus(8)
    usage, free = type(shutil.disk_usage(tmp_path)), {tmp_path: 10 << 30, tmp_path / "shm": 64 << 20}
    monkeypatch.setattr(health.shutil, "disk_usage", lambda path: usage(10 << 30, 0, free[path]))
    monkeypatch.setattr(health, "SHARED_MEMORY", tmp_path / "shm")
    for there in (False, True):
        with pytest.raises(health.Unfit, match=f"shm has {64 if there else 0} MiB free, NCCL needs 1024 MiB"):
            health.check(tmp_path, 8)
        (tmp_path / "shm").mkdir(exist_ok=True)
    gpus(1)
    assert health.check(tmp_path, 1).startswith("1 GPUs, "), "one GPU alone exchanges nothing"


def test_nvswitch_that_is_set_up_is_told(gpus, manager, tmp_path):
    gpus(8)
    manager()
    assert ", 2 NVLinks, " in health.check(tmp_path, 8, nvswitch=True)


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [
        (DRIVER, "inactive", "nvidia-fabricmanager is inactive"),
        (DRIVER, "failed", "nvidia-fabricmanager is failed"),
        ("580.95.05", "active", r"version is 580\.95\.05, the driver's 580\.159\.03"),
        (None, "active", "version is none that it tells, the driver's"),
    ],
)
def test_b4_a_node_whose_switches_nobody_sets_up_does_not_join(gpus, manager, tmp_path, version, state, said):
    """CUDA would fail with error 802 once workers start, on this node and again on the next."""
    gpus(8)
    manager(version, state)
    with pytest.raises(health.Unfit, match=said):
        health.check(tmp_path, 8, nvswitch=True)


def test_b4_an_image_without_fabric_manager_is_said_to_be_one(gpus, tmp_path):
    gpus(8)
    with pytest.raises(health.Unfit, match="nvidia-fabricmanager is not there: use an image that has it"):
        health.check(tmp_path, 8, nvswitch=True)


def test_b4_a_manager_that_never_gets_ready_does_not_keep_the_boot_waiting(gpus, manager, tmp_path, monkeypatch):
    monkeypatch.setattr(health, "STARTING_S", 0.1)
    monkeypatch.setattr(health, "RETRY_S", 0.02)
    gpus(8)
    manager(state="activating")
    with pytest.raises(health.Unfit, match="is activating"):
        health.check(tmp_path, 8, nvswitch=True)


def test_a_node_with_a_dead_nvlink_does_not_join(gpus, manager, tmp_path):
    gpus(8, links=f"{LINKS}GPU 1: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: <inactive>\n\t Link 1: 25 GB/s\n")
    manager()
    with pytest.raises(health.Unfit, match="1 of 4 NVLinks are inactive"):
        health.check(tmp_path, 8, nvswitch=True)


def test_a_tool_that_hangs_does_not_keep_the_boot_waiting(tmp_path, monkeypatch):
    """As nvidia-smi does on a GPU that fell off the bus."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec /bin/sleep 20\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(health, "TOOL_LIMIT_S", 0.2)
    with pytest.raises(health.subprocess.TimeoutExpired):
        health.check(tmp_path, 8)


def test_a_full_disk_is_no_place_for_checkpoints(gpus, tmp_path, monkeypatch):
    gpus(None)
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: usage(10 << 30, 9 << 30, 512 << 20))
    with pytest.raises(health.Unfit, match="512 MiB free, too little for checkpoints: 1024 MiB is the least"):
        health.check(tmp_path, 0)


def test_a_disk_too_small_for_this_models_checkpoints_is_none(gpus, tmp_path, monkeypatch):
    gpus(None)
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: usage(100 << 30, 60 << 30, 40 << 30))
    assert health.check(tmp_path, 0, room=40 << 30)
    with pytest.raises(health.Unfit, match="40960 MiB free, too little for checkpoints: 51200 MiB is the least"):
        health.check(tmp_path, 0, room=50 << 30)


@pytest.mark.parametrize(
    ("flags", "fit"), [("flags\t\t: fpu tsc tdx_guest amx_tile\n", True), ("flags\t\t: fpu tsc\n", False), ("", False)]
)
def test_a_node_that_is_to_be_a_trust_domain_is_one(tmp_path, monkeypatch, flags, fit):
    """An image that can't boot as one starts all the same, its memory in clear."""
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(f"processor\t: 0\n{flags}processor\t: 1\n{flags}")
    monkeypatch.setattr(health, "CPU", cpu)
    if fit:
        assert health.check(tmp_path, 0, tdx=True).endswith(", a TDX trust domain")
    else:
        with pytest.raises(health.Unfit, match="is no TDX trust domain"):
            health.check(tmp_path, 0, tdx=True)
    assert "TDX" not in health.check(tmp_path, 0)
