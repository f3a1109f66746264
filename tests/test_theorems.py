"""The page of the project's own theorems names code and tests that exist, and leaves none out."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "theorems.md"
ROWS = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| **")]
CLAIMS = re.compile(r"\bown\s+proofs?\b", re.IGNORECASE)
CLAIMED_ELSEWHERE = {"adaptive_dp.risk.tables"}  # whose example prints another's source


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def resolved(name: str) -> object:
    """Return the module or the object in a module that a dotted name stands for."""
    module, rest = name, []
    while module:
        try:
            target: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            continue
        for part in rest:
            target = getattr(target, part)
        return target
    raise ModuleNotFoundError(name)


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: cells(row)[0][:40])
def test_every_row_names_a_proof_a_test_and_its_reviewers(row: str) -> None:
    _, proof, tests, checker, reviewed = cells(row)
    assert named(proof)
    for name in named(proof):
        assert resolved(name) is not None
    assert named(tests)
    for name in named(tests):
        assert (ROOT / name).is_file(), name
    assert checker
    assert reviewed


def test_every_proof_that_code_claims_as_its_own_is_on_the_page() -> None:
    listed = {name for row in ROWS for name in named(cells(row)[1])}
    missing = []
    for path in [*ROOT.glob("accountants/**/*.py"), *ROOT.glob("adaptive_dp/**/*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        if not CLAIMS.search(text):
            continue
        docstrings = (
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if module in CLAIMED_ELSEWHERE or not any(CLAIMS.search(text) for text in docstrings):
            continue
        if not any(name == module or name.startswith(f"{module}.") for name in listed):
            missing.append(module)
    assert not missing
