"""The same three tasks by five libraries: lines, seconds, and errors against the truth.

    python benchmarks/side_by_side/run.py --python PYTHON
    python benchmarks/side_by_side/run.py --python PYTHON --tasks session --libraries opendp

PYTHON is an interpreter that has them all (this one unless said): in an environment of its own,
``pip install adaptive-dp opendp[polars]==0.16.0 tmlt.analytics==0.21 diffprivlib==0.6.5
dp-accounting==0.6.0``; Tumult needs Java too. A missing library has a row that says so.

A script runs several times in one process, with the demo's data as ``people.csv`` in its folder:
the first run, imports included, is ``cold``; ``warm`` is the median of the others. An error is the
median over all runs. Prints a Markdown table a task.

    python benchmarks/side_by_side/run.py --page

puts the scripts as they are into ``docs/comparison.md``, and runs nothing.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "adaptive_dp" / "demo" / "randhie.csv.gz"
TASKS = ("statistics", "regression", "session")
LIBRARIES = ("adaptive_dp", "opendp", "tumult", "diffprivlib", "dp_accounting")
HEALTH = ("excellent", "good", "fair", "poor")


def lines(path: Path) -> tuple[int, int]:
    """Return a script's lines of code and of imports, without blanks, comments, docstrings."""
    text = path.read_text(encoding="utf-8")
    skip = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    skip += (tokenize.ENDMARKER, tokenize.ENCODING)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {i for t in tokens if t.type not in skip for i in range(t.start[0], t.end[0] + 1)}
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        span = set(range(node.lineno, node.end_lineno + 1)) if hasattr(node, "lineno") else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= span
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            code -= span
    return len(code - imports), len(imports)


def people() -> dict[str, Any]:
    """Return the columns that the tasks read, in their bounds."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tops = {"age": 70, "income": 20_000, "chronic": 60, "visits": 20}
    clipped = {k: np.array([float(r[k]) for r in rows]).clip(0, top) for k, top in tops.items()}
    return {**clipped, "health": np.array([r["health"] for r in rows])}


def design() -> Any:
    """Return a row (1, age, income, chronic) for each person-year."""
    data = people()
    return np.column_stack([np.ones(len(data["age"])), *list(data.values())[:3]])


def statistics(rows: float, visits: float, health: list[float]) -> dict[str, float]:
    """Return the errors of the three statistics."""
    data = people()
    bars = np.array([np.sum(data["health"] == key) for key in HEALTH])
    return {
        "error of the rows": abs(rows - len(data["age"])),
        "of the mean": abs(visits - float(np.mean(data["visits"]))),
        "of a bar": float(np.mean(np.abs(np.array(health) - bars))),
    }


def regression(model: list[float]) -> dict[str, float]:
    """Return how far predictions are from those of the fit without noise, and from visits."""
    x, visits = design(), people()["visits"]
    exact = np.linalg.lstsq(x, visits, rcond=None)[0]
    gap = x @ (np.array(model) - exact)
    left = visits - x @ np.array(model)
    return {
        "from the exact fit's predictions (rms)": float(np.sqrt(np.mean(gap**2))),
        "R^2": 1 - float(np.mean(left**2) / np.var(visits)),
    }


def session(answers: int, median: float) -> dict[str, float]:
    """Return the number of answers and the error of the median."""
    return {"answers": answers, "error in years": abs(median - float(np.median(people()["age"])))}


def numbers(task: str, library: str, names: dict[str, Any]) -> list[Any]:
    """Return a script's answers as numbers, from its names."""
    if task == "session":
        return [names["answers"], (names["low"] + names["high"]) / 2]
    if task == "regression":
        values = names["result"]["model"].values() if library == "adaptive_dp" else names["model"]
        return [[float(value) for value in values]]
    if library == "adaptive_dp":
        values = names["result"]
        rows, visits = values["count"], values["average"]["visits"]
        health = values["histogram"]["health"]
    elif library == "opendp":
        rows, total = names["totals"].row(0)
        visits, bars = total / rows, dict(names["health"].iter_rows())
        health = [bars[key] for key in HEALTH]
    elif library == "tumult":
        (rows,), (visits,), bars = names["rows"][0], names["visits"][0], dict(names["health"])
        health = [bars[key] for key in HEALTH]
    else:
        rows, visits, health = names["rows"], names["visits"], names["health"]
    return [float(rows), float(visits), [float(bar) for bar in health]]


def measure(task: str, library: str, runs: int, limit: float) -> dict[str, Any]:
    """Run a script in this process: seconds and errors, of up to so many runs and seconds."""
    score: Callable[..., dict[str, float]] = globals()[task]
    seconds, scores = [], []
    while len(seconds) < runs and sum(seconds) < limit:
        start = time.perf_counter()
        with redirect_stdout(io.StringIO()):
            names = runpy.run_path(str(HERE / f"{task}_{library}.py"), run_name="__main__")
        seconds.append(time.perf_counter() - start)
        scores.append(score(*numbers(task, library, names)))
    return {"seconds": seconds, "scores": scores}


def started(options: argparse.Namespace, task: str, library: str, folder: str) -> dict[str, Any]:
    """Measure a script in a process of its own."""
    ask = [str(Path(__file__).resolve()), "--child", f"{task} {library}"]
    ask += ["--runs", str(options.runs), "--limit", str(options.limit)]
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYSPARK_PYTHON": options.python,
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [options.python, *ask], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        return {"failed": " ".join(last)}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def line(task: str, library: str, result: dict[str, Any]) -> str:
    """Return a table's line."""
    code, imports = lines(HERE / f"{task}_{library}.py")
    cells = [library, str(code), str(imports)]
    if "failed" in result:
        return "| " + " | ".join([*cells, result["failed"]]) + " |"
    cold, *warm = result["seconds"]
    cells += [f"{cold:.1f}", f"{np.median(warm):.2f}" if warm else "-", str(len(warm) + 1)]
    for name in result["scores"][0]:
        cells.append(f"{np.median([score[name] for score in result['scores']]):.3g}")
    return "| " + " | ".join(cells) + " |"


def page() -> None:
    """Put the scripts into the page, each after its name."""
    path = HERE.parent.parent / "docs" / "comparison.md"

    def code(match: re.Match[str]) -> str:
        _, text = (HERE / match[1]).read_text(encoding="utf-8").split('"""\n\n', 1)
        return f"<!-- {match[1]} -->\n\n```python\n{text}```"

    block = r"<!-- (\w+\.py) -->\n+```python\n.*?```"
    text = re.sub(block, code, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--runs", type=int, default=25, help="runs of a script, at most")
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds, after which none starts"
    )
    parser.add_argument("--page", action="store_true", help="refresh the page's code instead")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child.split(), options.runs, options.limit)))
        return
    if options.page:
        page()
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "people.csv").write_bytes(gzip.decompress(DATA.read_bytes()))
        for task in options.tasks:
            names = list(globals()[task](*EXAMPLES[task]))
            head = ["library", "lines", "imports", "cold, s", "warm, s", "runs", *names]
            print(f"\n{task}\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
            for library in options.libraries:
                print(line(task, library, started(options, task, library, folder)), flush=True)


EXAMPLES: dict[str, list[Any]] = {
    "statistics": [0.0, 0.0, [0.0] * 4],
    "regression": [[0.0] * 4],
    "session": [0, 0.0],
}


if __name__ == "__main__":
    main()
