"""What the pages of the documentation say works, as they stand."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs"


ARROW = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs the arrow extra")
NEEDS = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs the sklearn extra")


@pytest.mark.parametrize(
    "name",
    [
        "auditing.md",
        "learning.md",
        "learning/objective_perturbation.md",
        "learning/output_perturbation.md",
        "ledgers.md",
        "mechanisms.md",
        pytest.param("pate.md", marks=NEEDS),
        "risk.md",
        pytest.param("scale.md", marks=ARROW),
        "sessions.md",
        "testing.md",
        pytest.param("sklearn.md", marks=NEEDS),
    ],
)
def test_every_block_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Python blocks run in order; a text block right after one is what it prints."""
    text = (PAGES / name).read_text(encoding="utf-8")
    names = {"__name__": name.removesuffix(".md")}
    found = re.findall(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", text, flags=re.DOTALL)
    printed = ""
    for i, (block, said) in enumerate(found):
        exec(compile(block, f"{name} block {i}", "exec"), names)
        out = capsys.readouterr().out
        assert not said or out == said, f"{name} block {i} prints:\n{out}"
        printed += out
    assert printed


@NEEDS
def test_the_notebook_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    file = PAGES.parent / "examples" / "data_dependent_pate.ipynb"
    names = {"__name__": "notebook"}
    book = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for i, cell in enumerate(code):
        exec(compile("".join(cell["source"]), f"cell {i}", "exec"), names)
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        assert capsys.readouterr().out == shown, f"cell {i}"
    assert len(code) > 3
