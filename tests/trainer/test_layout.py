"""Keys: unambiguous, in an order that means something, invertible where they are read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer import layout


@given(st.integers(1, 999_999))
def test_a_generations_number_is_read_back_from_its_key(number):
    assert layout.generation_number(layout.generation(number)) == number


@given(st.integers(0, 999_998), st.integers(0, 999_998))
def test_keys_sort_as_their_numbers_do(one, other):
    for key in (
        layout.generation,
        layout.checkpoint,
        lambda n: layout.metrics_chunk(n, 0),
        lambda n: layout.metrics_chunk(1, n),
    ):
        assert (key(one) < key(other)) == (one < other)


def test_one_listing_of_control_tells_all_that_agents_agree_on():
    for key in (layout.card("i"), layout.beat("i"), layout.generation(1), layout.OUTCOME):
        assert key.startswith(layout.CONTROL)
    for key in (
        layout.boot_report("i"),
        layout.metrics_chunk(1, 0),
        layout.log_chunk("i", "agent", 0),
        layout.checkpoint(1),
    ):
        assert not key.startswith(layout.CONTROL), "a listing each second must stay short"


def test_no_key_begins_with_a_slash_or_has_two():
    for key in (
        layout.card("i"),
        layout.beat("i"),
        layout.run_prefix("r"),
        layout.dataset_prefix("d"),
        layout.log_chunk("i", "agent", 3),
        layout.checkpoint(4),
    ):
        assert not key.startswith("/")
        assert "//" not in key


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "", ".hidden", "..", "a\n"])
def test_a_name_that_leads_out_of_its_folder_is_no_file_name(name):
    assert not layout.is_file_name(name)


def test_only_checkpoints_with_their_manifest_are_complete():
    keys = [
        "checkpoints/step-000000050/manifest.json",
        "checkpoints/step-000000100/state.pt",
        "checkpoints/step-000000150/manifest.json.corrupt",
        "checkpoints/step-x/manifest.json",
    ]
    assert layout.complete_checkpoints(keys) == [50]
