"""The documentation names every public name once, and all of its pages and links exist."""

import doctest
import re
import sys
from pathlib import Path
from typing import get_origin

import pytest

import accountants
import adaptive_dp as dp

PAGES = Path(__file__).parent.parent / "docs"
MODULES = {
    "audit",
    "erm",
    "instance",
    "interop",
    "jax",
    "pate",
    "plot",
    "prove",
    "risk",
    "statistics",
    "torch",
    "synthesis",
    "testing",
    "tracing",
}
FILES = sorted(file for file in PAGES.rglob("*.md") if "_build" not in file.parts)


@pytest.fixture(scope="module")
def names():
    """Return the module that reads reference.md, which needs no Sphinx."""
    sys.path.insert(0, str(PAGES / "_ext"))
    try:
        import names
    finally:
        sys.path.pop(0)
    return names


@pytest.fixture(scope="module")
def sections(names):
    pytest.importorskip("sklearn")
    return names.sections((PAGES / "reference.md").read_text(encoding="utf-8"))


def test_the_reference_documents_every_public_name_once(sections):
    paths = [name.path for _, names in sections for name in names]
    assert len(paths) == len(set(paths))
    again = {name for name in dp.__all__ if getattr(accountants, name, None) is getattr(dp, name)}
    public = {f"adaptive_dp.{name}" for name in set(dp.__all__) - MODULES - again}
    public |= {f"accountants.{name}" for name in accountants.__all__}
    assert public <= set(paths)


def test_what_the_reference_documents_has_a_docstring(sections):
    bare = [
        name.path
        for _, names in sections
        for name in names
        if callable(name.value)
        and get_origin(name.value) is None  # what a type alias is for stands below it
        and not (name.value.__doc__ or "").strip()
    ]
    assert bare == []


WITHOUT = {
    "accountants.ACCOUNTANTS",  # a tuple, which has no docstring
    "adaptive_dp.Mechanism.libraries",  # a tuple
    "adaptive_dp.audit.Score",  # a type
    "adaptive_dp.PluginError",  # needs a distribution with a broken plug-in
    "adaptive_dp.session.postgres.PostgresLedger",  # needs a server
    "adaptive_dp.interop.opendp.from_opendp",  # needs opendp
    "adaptive_dp.erm.Saddle",  # a game takes a class of thirty lines
    "adaptive_dp.erm.certify_saddle",
    "adaptive_dp.erm.minimax",
    "adaptive_dp.erm.dual_ascent",
    "adaptive_dp.erm.solve_saddle",
    "adaptive_dp.torch.shared",  # needs several processes
}
"""Names whose docstring has no example that runs."""


def test_every_public_name_has_an_example(sections):
    """Pytest runs those of all modules (``--doctest-modules``)."""
    finder = doctest.DocTestFinder(recurse=False)
    bare = set()
    for name in (name for _, names in sections for name in names):
        value = getattr(name.value, "func", name.value)  # of a cached property
        tests = finder.find(value, name.path, module=False)
        examples = [example for test in tests for example in test.examples]
        if all(example.options.get(doctest.SKIP) for example in examples):
            bare.add(name.path)
    assert bare == WITHOUT


def test_pictures_are_those_of_the_room(sections):
    """`plot.tradeoff`, which draws plans too, not the one of accountants that it calls."""
    (pictures,) = [names for title, names in sections if title == "Plots"]
    assert {name.value for name in pictures} == {getattr(dp.plot, n) for n in dp.plot.__all__}


def test_names_in_the_glossary_exist(names):
    text = (PAGES / "glossary.md").read_text(encoding="utf-8")
    for written in re.findall(r"`((?:dp|accountants|adaptive_dp|pate|instance)\.[\w.]+)`", text):
        head, _, rest = written.partition(".")
        within = {"dp": f"adaptive_dp.{rest}", "accountants": written, "adaptive_dp": written}
        assert names.reached(within.get(head, f"adaptive_dp.{written}")) is not None, written


def anchors(file: Path) -> set[str]:
    """Return the anchors that a page's headings make, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower().replace("`", "")).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PAGES).as_posix())
def test_links_lead_somewhere(file):
    text = file.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text)
    links += re.findall(r"^\[\w+\]: ([\w./-]+)(?:#([\w-]+))?$", text, flags=re.MULTILINE)
    for path, anchor in links:
        target = file.parent / path if path else file
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_has_its_place():
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for file in FILES:
        page = file.relative_to(PAGES).with_suffix("").as_posix()
        assert page == "index" or re.search(rf"^{page}$", index, flags=re.MULTILINE), page


def test_the_cookbook_answers_twenty_questions_in_under_ten_lines_each():
    """What they print is checked in `test_pages`."""
    text = (PAGES / "howto" / "cookbook.md").read_text(encoding="utf-8")
    questions = re.findall(r"^### (\d+)\. .*\?$", text, flags=re.MULTILINE)
    assert questions == [str(i) for i in range(1, 21)]
    pairs = re.findall(r"```python\n((?:(?!```).)*)```\n\n```text\n", text, flags=re.DOTALL)
    assert len(pairs) == 20
    assert all(len(code.splitlines()) < 10 for code in pairs)


def test_fifteen_names_matter_first():
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    assert len(rows) == 15
    owners = {"dp": dp, "Table": dp.Table, "Column": dp.Column}
    for owner, name in re.findall(r"`(dp|Table|Column)\.(\w+)`", "".join(rows)):
        assert hasattr(owners[owner], name), name
