"""Every system of `benchmarks/scan.py` gives the integers that Python's fractions give.

The values are those that engines read differently: NaN, infinities, -0.0, ties, nulls, integers
that floats cannot hold, keys that are not declared, and dictionary columns.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FILE = Path(__file__).parent.parent / "benchmarks" / "scan.py"
_spec = importlib.util.spec_from_file_location("scan_benchmark", FILE)
assert _spec is not None
assert _spec.loader is not None
scan = importlib.util.module_from_spec(_spec)
sys.modules["scan_benchmark"] = scan  # where dataclasses look for it
_spec.loader.exec_module(scan)

NAMES = [*scan.CATEGORIES, "unknown", ""]
KEYS = 7
SYSTEMS = ["plan", "NumPy", "DuckDB", "Polars", "pandas"]
MODULES = {"DuckDB": "duckdb", "Polars": "polars", "pandas": "pandas"}


def nasty(rows: int, seed: int) -> dict[str, list[Any]]:
    """Columns of floats, large integers, keys and categories, all with gaps."""
    generator = np.random.default_rng(seed)
    unit = 2.0**-16
    edge = [math.nan, math.inf, -math.inf, -0.0, 0.0, None, 5e-324, -5e-324, 1e308, -1e308]
    edge += [100.0, math.nextafter(100, 0), math.nextafter(100, 200), 10.0, math.nextafter(10, 0)]
    ties = [(int(k) + 0.5) * unit for k in generator.integers(-10, 100 * 2**16, 200)]
    near = [math.nextafter(tie, away) for tie in ties[:20] for away in (-1e9, 1e9)]
    plain = list(generator.normal(50, 40, rows))
    x = [*edge, *ties, *near, *plain][:rows]
    large = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, None, 0, 1, 99, 100, 101, -1]
    integers = [large[i] for i in generator.integers(0, len(large), rows)]
    key = [None if k == KEYS + 2 else int(k) - 1 for k in generator.integers(0, KEYS + 3, rows)]
    names = [*NAMES, None]
    category = [names[i] for i in generator.integers(0, len(names), rows)]
    return {
        "x": list(generator.permutation(x)),
        "integer": integers,
        "key": key,
        "category": category,
    }


def number(cell: Any) -> float:
    return math.nan if cell is None else float(cell)


def steps(question: Any, cell: Any) -> int:
    """The cell clipped to the bounds and rounded to a step, ties to even, inside of the bounds."""
    value, (lower, upper) = number(cell), map(Fraction, question.bounds)
    unit = Fraction(question.unit)
    low, high = math.ceil(lower / unit), math.floor(upper / unit)
    if math.isnan(value):  # left out of a sum
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(round(Fraction(value) / unit), low), high)


def expected(question: Any, rows: dict[str, list[Any]]) -> Any:
    result = np.zeros((question.cells, question.count + len(question.sums)), dtype=np.int64)
    seen: dict[Any, int] = {}
    for i in range(len(rows["x"])):
        x = number(rows["x"][i])
        if question.first is not None:
            key = rows["key"][i]
            seen[key] = seen.get(key, 0) + 1
            if key is None or seen[key] > question.first:
                continue
        if question.above is not None and not x >= question.above:
            continue
        cell: int | None = 0
        if question.by == "key":
            key = rows["key"][i]
            cell = key if key is not None and 0 <= key < KEYS else None
        elif question.by == "category":
            name = rows["category"][i]
            cell = scan.CATEGORIES.index(name) if name in scan.CATEGORIES else None
        elif question.by == "x":
            cell = min(int(x // 10), 9) if 0 <= x <= 100 else None
        if cell is not None:
            added = [steps(question, rows[name][i]) for name in question.sums]
            result[cell] += [*([1] if question.count else []), *added]
    return result


BOUNDS = [(0.0, 100.0), (-3.3, 100.1), (2.5, 7.1), (-50.0, -20.0)]
Question = scan.Question
QUESTIONS = [
    Question(count=True),
    *(Question(("x", "integer"), count=True, bounds=bounds) for bounds in BOUNDS),
    Question(("x",), count=True, above=60.0),
    Question(("integer",), count=True, above=math.nextafter(100, 0)),
    Question(count=True, by="category"),
    Question(count=True, by="x"),
    Question(("x", "integer"), count=True, by="category"),
    Question(("x", "integer"), count=True, by="key", keys=KEYS),
    Question(("x",), count=True, by="key", keys=KEYS, above=10.0),
    Question(("x", "integer"), count=True, first=5),
    Question(("x",), count=True, by="category", first=30),
]


@pytest.fixture(scope="module", params=[True, False], ids=["dictionary", "plain"])
def data(request: Any, tmp_path_factory: Any) -> Any:
    """The rows, and a Parquet file of them in small row groups, with a dictionary or without."""
    rows = nasty(700, seed=5)
    category = pa.array(rows["category"], pa.string())
    arrays = {
        "x": pa.array(rows["x"], pa.float64()),
        "integer": pa.array(rows["integer"], pa.int64()),
        "key": pa.array(rows["key"], pa.int64()),
        "category": category.dictionary_encode() if request.param else category,
    }
    path = tmp_path_factory.mktemp("data") / "nasty.parquet"
    pq.write_table(pa.table(arrays), path, row_group_size=101, use_dictionary=request.param)
    return rows, path


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_gives_the_same_integers(data: Any, system: str, question: Any) -> None:
    pytest.importorskip(MODULES.get(system, "numpy"))
    rows, path = data
    answer = scan.SYSTEMS[system](question, path)()
    assert np.asarray(answer).tolist() == expected(question, rows).tolist()
