"""Commands are run by their argument lists, with nothing to read, and within their time."""

import os

import pytest

from trainer.node import tools as tools_module
from trainer.node.tools import ToolFailed, Tools


@pytest.fixture
def image(tmp_path, monkeypatch):
    """An image with the tools that a test writes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(tools_module, "SBIN", "")

    def add(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return add


def test_arguments_go_to_the_command_as_they_are_and_what_it_prints_comes_back(image, tmp_path):
    image("tw-mount", f'printf "%s\\n" "$@" > {tmp_path}/argv; echo done')
    assert Tools(10).run("tw-mount", "-o", "a b", "$(reboot)") == "done"
    assert (tmp_path / "argv").read_text().splitlines() == ["-o", "a b", "$(reboot)"]


def test_a_command_that_asks_reads_nothing(image):
    """As the agent's own input may be anything."""
    image("tw-ask", "read answer && echo $answer || echo nobody")
    reads, writes = os.pipe()
    os.write(writes, b"yes\n")
    os.close(writes)
    own = os.dup(0)
    os.dup2(reads, 0)
    try:
        assert Tools(10).run("tw-ask") == "nobody"
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reads)


def test_a_failure_names_the_command_and_its_last_words(image):
    image("tw-fails", "echo first >&2; echo why it failed >&2; exit 3")
    with pytest.raises(ToolFailed, match=r"^tw-fails failed \(3\): why it failed$"):
        Tools(10).run("tw-fails")
    assert not Tools(10).attempt("tw-fails")


def test_a_missing_command_is_a_failure_in_words(image):
    assert not Tools(10).has("tw-absent")
    with pytest.raises(ToolFailed, match=r"^the image has no tw-absent$"):
        Tools(10).run("tw-absent")
    with pytest.raises(ToolFailed, match=r"^the image has no tw-a and no tw-b$"):
        Tools(10).first(("tw-a", "tw-b"))


def test_a_command_that_hangs_is_ended_and_the_time_is_one_for_all(image):
    image("tw-hangs", "exec sleep 30")
    tools = Tools(0.2)
    with pytest.raises(ToolFailed, match="tw-hangs took longer than 0 s"):
        tools.run("tw-hangs")
    with pytest.raises(ToolFailed, match=r"no time was left for tw-hangs: 0\.2 s are over"):
        tools.run("tw-hangs")


def test_tools_of_administration_are_found_though_path_leaves_them_out(image, tmp_path, monkeypatch):
    image("tw-sbin", "echo found")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(tools_module, "SBIN", f":{tmp_path}")
    assert Tools(10).run("tw-sbin") == "found"
