"""The page that sets libraries side by side shows the scripts as they are, and ours run."""

import gzip
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "benchmarks" / "side_by_side"


def test_the_page_shows_every_script_as_it_is() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"<!-- (\w+\.py) -->\n+```python\n(.*?)```", page, flags=re.DOTALL))
    scripts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*_*.py")}
    assert len(scripts) == 15
    for name, text in scripts.items():
        _, code = text.split('"""\n\n', 1)
        assert shown.pop(name, None) == code, (
            f"python {SCRIPTS.name}/run.py --page refreshes {name}"
        )
    assert not shown


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Return a function that runs a script of ours beside the demo's data."""
    data = gzip.decompress((ROOT / "adaptive_dp" / "demo" / "randhie.csv.gz").read_bytes())
    (tmp_path / "people.csv").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return lambda task: runpy.run_path(str(SCRIPTS / f"{task}_adaptive_dp.py"))


def test_three_statistics(run: Any) -> None:
    """Five rows a person, a third of epsilon each: scale 15; off by 450 has chance exp(-30)."""
    result = run("statistics")["result"]
    assert result.certificate.epsilon <= 1
    assert abs(result["count"] - 20_190) < 450
    assert np.all(
        np.abs(np.array(result["histogram"]["health"]) - [11_019, 7_309, 1_560, 302]) < 450
    )


def test_a_regression(run: Any) -> None:
    result = run("regression")["result"]
    assert result.certificate.epsilon <= 1
    assert result.certificate.delta == 1e-6
    assert list(result["model"]) == ["intercept", "age", "income", "chronic"]


def test_a_session_that_stops(run: Any) -> None:
    """A budget of mu = 0.2311... by bisecting delta(mu) = 1e-6 at epsilon 1; each is 1/15."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def delta(mu: float) -> float:
        return float(norm.cdf(mu / 2 - 1 / mu) - np.e * norm.cdf(-mu / 2 - 1 / mu))

    mu = brentq(lambda m: delta(m) - 1e-6, 0.05, 1)
    names = run("session")
    assert names["answers"] == int((mu * 15) ** 2) == 12
    assert names["high"] - names["low"] == 70 / 2**12


def test_lines_are_counted_without_comments_and_imports(tmp_path: Path) -> None:
    count = runpy.run_path(str(SCRIPTS / "run.py"))["lines"]
    path = tmp_path / "script.py"
    path.write_text(
        '"""Doc."""\n\nfrom a import (\n    b,\n    c,\n)\nimport d\n\n'
        "# why\nx = [\n    1,  # one\n\n]\n"
        'def f():\n    """Doc\n    doc."""\n    return "a # b"\n'
    )
    assert count(path) == (5, 5)  # x = [, 1, and ]; def, return
