from pathlib import Path

import pytest

from cli.workspace import stack_values
from tools import docs, resources
from tools.declared import declare

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_alicloud.*"),
]

NOTHING_OF_ITS_OWN = {
    "AWS": {"`network.vpc`", "`storage.cold` with `instant-archive`", "`audit.lock: compliance`"},
    "Alibaba Cloud": {"`network.vpc`", "`audit.budget_usd`"},
}
"""Cases that change what is there on a cloud, or that it hasn't; `clouds.md` says which."""

STACKS = sorted(docs.FOLDER.parent.joinpath("stacks").glob("Pulumi.*.yaml"))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))


def test_every_page_is_one_that_is_written():
    assert {path.name for path in docs.FOLDER.glob("*.md") if docs.MARK in path.read_text()} == set(docs.PAGES)


@pytest.mark.parametrize("name", sorted({*docs.PAGES} - {"clouds.md"}))
def test_a_page_says_what_the_code_says_now(name):
    assert (docs.FOLDER / name).read_text(encoding="utf-8") == docs.PAGES[name](), "stale: run `make docs`"


@pytest.mark.parametrize("file", STACKS, ids=[file.name for file in STACKS])
def test_whatever_a_shipped_stack_declares_is_on_the_page(file):
    """A feature that a stack uses and `resources.CASES` lacks would be missing from the reference."""
    page = (docs.FOLDER / "resources.md").read_text(encoding="utf-8")
    declared = declare(resources.CLUSTER, stack_values(file))
    missing = sorted({one.type for one in declared.resources if f"`{one.type}`" not in page})
    assert missing == [], "add what asks for them to tools/resources.CASES"
    assert [output for output in declared.outputs if f"| `{output}` |" not in page] == []


@pytest.mark.parametrize(("title", "none"), NOTHING_OF_ITS_OWN.items())
def test_every_case_of_the_reference_declares_something_of_its_own_on_each_cloud(title, none):
    page = (docs.FOLDER / "resources.md").read_text(encoding="utf-8")
    half = page.partition(f"## Resources on {title}\n")[2].partition("\n## ")[0]
    assert {case for case in resources.CASES if f"| {case} |" not in half} == none
