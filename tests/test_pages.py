"""What the pages of the documentation say works, as they stand."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["mechanisms.md"])
def test_every_block_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (PAGES / name).read_text(encoding="utf-8")
    names = {"__name__": name.removesuffix(".md")}
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        exec(compile(block, f"{name} block {i}", "exec"), names)
    assert capsys.readouterr().out
