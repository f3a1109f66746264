"""What the README and the examples say works, as they stand."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("index", range(len(blocks("python"))))
def test_readme_python_runs(index, capsys):
    exec(
        compile(blocks("python")[index], f"README.md block {index}", "exec"), {"__name__": "readme"}
    )
    capsys.readouterr()


def test_readme_example_prints_a_certificate_and_values(capsys):
    example = blocks("python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    out = capsys.readouterr().out
    assert "epsilon <= 1 at delta = 1e-06" in out
    assert "tightest" in out
    assert "regions.north" in out


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert "epsilon" in capsys.readouterr().out


def test_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"\]\(([\w./-]+?)(?:#[\w-]+)?\)", text):
        assert (ROOT / name).exists(), name
