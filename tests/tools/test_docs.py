import pytest

from tools import docs


def test_every_page_is_one_that_is_written():
    assert {path.name for path in docs.FOLDER.glob("*.md") if docs.MARK in path.read_text()} == set(docs.PAGES)


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_page_says_what_the_code_says_now(name):
    assert (docs.FOLDER / name).read_text(encoding="utf-8") == docs.PAGES[name](), "stale: run `make docs`"
