"""The daemon: it may run for days, and its log stays small."""

import os

from emulator.__main__ import trim_log


def test_a_log_that_grew_too_long_keeps_its_last_whole_lines_and_is_written_on(tmp_path):
    file = tmp_path / "cloud.log"
    with file.open("ab", buffering=0) as log:
        log.write(b"".join(b"line %05d\n" % number for number in range(1000)))
        before = file.read_bytes()
        trim_log(log.fileno(), limit=len(before), keep=105)
        assert file.read_bytes() == before
        trim_log(log.fileno(), limit=len(before) - 1, keep=105)
        log.write(b"next\n")
    first, *lines = file.read_text().splitlines()
    assert first == "(what came before was dropped)"
    assert lines == [f"line {number:05}" for number in range(991, 1000)] + ["next"]


def test_a_log_that_is_no_file_is_left_alone():
    reading, writing = os.pipe()
    trim_log(writing, limit=0, keep=0)
    os.close(reading)
    os.close(writing)
