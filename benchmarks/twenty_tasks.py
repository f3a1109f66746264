"""Twenty things that statisticians ask first, by five libraries: lines, concepts, seconds, errors.

    python benchmarks/twenty_tasks.py
    python benchmarks/twenty_tasks.py --libraries opendp --python /path/to/python --repeat 3
    python benchmarks/twenty_tasks.py --page

The tasks below were written down before any of the scripts. Each is asked of the demo's data (the
RAND Health Insurance Experiment, 20,190 person-years of 5,912 persons, at most five years each) by
itself, under a total epsilon of 1 of a person (delta 1e-6 where a method needs one). A script in
``benchmarks/twenty`` has a function for each task that its library has functions for; arithmetic on
released numbers is allowed, mechanisms of one's own are not. Each library is run by an interpreter
of its own (``--python``), since they need different versions of the same packages; the results of
several calls are kept in ``--results`` and printed as one table.

*Lines* are those of a task's function; what all tasks share, imports included, is counted once, in
the first row. *Concepts* are the different names of functions and methods that are called up to the
first number: in the shared part and in task 1. *Error* is the median over the runs; *covers* the
share of the runs whose 95% interval has the true value.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DATA = HERE.parent / "adaptive_dp" / "demo" / "randhie.csv.gz"
LIBRARIES = ("adaptive_dp", "opendp", "diffprivlib", "smartnoise", "tumult")
HEALTH = ["excellent", "good", "fair", "poor"]
THRESHOLDS = [0, 50, 100, 200, 500, 1_000, 2_000]
AGES = [0, 10, 20, 30, 40, 50, 60, 70]

TASKS = (
    "the number of person-years",
    "the number of persons",
    "the mean of visits, in [0, 20]",
    "the sum of spending, in [0, 2000]",
    "person-years by health",
    "the mean of visits by health",
    "person-years by health and year",
    "the same with sums by row and by column, all consistent",
    "the median age, in [0, 70]",
    "the quartiles of income, in [0, 20000]",
    "the shares of spending below 0, 50, 100, 200, 500, 1000, 2000",
    "the standard deviation of visits",
    "the correlations of age, income and visits",
    "person-years by age in bins of ten years",
    "the number of person-years of women of 40 or more without a visit",
    "the mean spending per visit and one, spending / (visits + 1), in [0, 2000]",
    "person-years by years of education, whose values nobody lists",
    "the mean of visits with a 95% interval for the noise",
    "visits by age, income and chronic: a linear regression",
    "the mean of visits, within 0.05 with 95%: by the least budget that this takes",
)


# -----------------------------------------------------------------------------
# The truth, and errors.


def truths() -> list[Any]:
    """Return each task's answer, of clipped values."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tops = {"age": 70, "income": 20_000, "chronic": 60, "visits": 20, "spending": 2_000}
    data = {k: np.array([float(r[k]) for r in rows]).clip(0, top) for k, top in tops.items()}
    health = np.array([r["health"] for r in rows])
    year = np.array([int(r["year"]) for r in rows])
    visits, spending = data["visits"], data["spending"]
    table = np.array([[np.sum((health == h) & (year == y)) for y in range(1, 6)] for h in HEALTH])
    sides = np.block([[table, table.sum(1)[:, None]], [table.sum(0), table.sum()]])
    women = np.array([r["female"] == "1" for r in rows]) & (data["age"] >= 40) & (visits == 0)
    education: dict[str, int] = {}
    for row in rows:
        if row["education"]:
            key = f"{float(row['education']):g}"
            education[key] = education.get(key, 0) + 1
    design = np.column_stack([np.ones(len(rows)), data["age"], data["income"], data["chronic"]])
    return [
        len(rows),
        len({r["person"] for r in rows}),
        visits.mean(),
        spending.sum(),
        [np.sum(health == h) for h in HEALTH],
        [visits[health == h].mean() for h in HEALTH],
        table,
        sides,
        np.median(data["age"]),
        np.quantile(data["income"], [0.25, 0.5, 0.75]),
        [np.mean(spending < t) if t < 2_000 else 1.0 for t in THRESHOLDS],
        visits.std(),
        np.corrcoef([data["age"], data["income"], visits]),
        np.histogram(data["age"], AGES)[0],
        women.sum(),
        (spending / (visits + 1)).mean(),
        education,
        visits.mean(),
        np.linalg.lstsq(design, visits, rcond=None)[0],
        visits.mean(),
    ]


def error(task: int, value: Any, truth: Any) -> float:
    """Return how far an answer is off: the mean absolute error of its numbers.

    Of keys that nobody lists, those of 50 rows or more; one that is not released counts as 0. Of a
    regression, the root mean square between predictions in the data.
    """
    if task == 17:
        pairs = [(value.get(k, 0.0), n) for k, n in truth.items() if n >= 50]
        return float(np.mean([abs(a - b) for a, b in pairs]))
    if task == 19:
        with gzip.open(DATA, "rt", encoding="utf-8") as file:
            rows = [
                (1, *map(float, (r["age"], r["income"], r["chronic"])))
                for r in csv.DictReader(file)
            ]
        design = np.array(rows).clip(0, [1, 70, 20_000, 60])
        return float(np.sqrt(np.mean((design @ (np.array(value) - truth)) ** 2)))
    if task in (18, 20):
        return float(abs(value[0] - truth))
    return float(np.mean(np.abs(np.array(value, dtype=float) - np.array(truth, dtype=float))))


# -----------------------------------------------------------------------------
# Lines and concepts.


def source(library: str) -> tuple[ast.Module, dict[int, ast.FunctionDef]]:
    """Return a script's tree, and its functions by task."""
    tree = ast.parse((HERE / "twenty" / f"by_{library}.py").read_text("utf-8"))
    tasks = {
        int(node.name.removeprefix("task_")): node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("task_")
    }
    return tree, tasks


def lines(nodes: list[ast.stmt]) -> int:
    """Return the number of lines of statements, without docstrings, comments and blank lines."""
    covered: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        leaves = [n for n in ast.walk(node) if hasattr(n, "lineno")]
        covered |= {line for n in leaves for line in (n.lineno, n.end_lineno)}
    return len(covered)


BUILTIN = {"dict", "list", "max", "min", "float", "int", "range", "len", "zip", "sum", "tolist"}
OWN = {"np", "pd", "numpy", "pandas"}


def concepts(nodes: list[ast.stmt]) -> list[str]:
    """Return the different names of functions and methods that are called, but NumPy's, pandas'."""
    defined = {n.name for node in nodes for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
    names = set[str]()
    for call in (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Call)):
        root: Any = call.func
        name = root.attr if isinstance(root, ast.Attribute) else getattr(root, "id", "")
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        if getattr(root, "id", "") not in OWN and name not in BUILTIN | defined:
            names.add(name)
    return sorted(names)


# -----------------------------------------------------------------------------
# Runs, each in a process of the library's interpreter.

CHILD = """
import importlib.util, json, sys, time
import numpy as np
def plain(value):
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return np.asarray(value).tolist()
path, tasks, repeat, out = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
spec = importlib.util.spec_from_file_location("script", path)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
results = {}
for task in tasks:
    try:
        runs = []
        for _ in range(repeat):
            start = time.perf_counter()
            value = plain(getattr(script, f"task_{task}")())
            runs.append([time.perf_counter() - start, value])
        results[task] = runs
    except Exception as problem:
        results[task] = f"{type(problem).__name__}: {problem}"[:200]
        print(task, results[task], file=sys.stderr)
    json.dump(results, open(out, "w"))
"""


def run(library: str, python: str, repeat: int, only: list[int] | None) -> dict[str, Any]:
    """Return each task's runs: pairs of seconds and the answer, or a message."""
    _, tasks = source(library)
    wanted = [task for task in sorted(tasks) if only is None or task in only]
    with tempfile.TemporaryDirectory() as folder:
        with gzip.open(DATA, "rb") as old, open(Path(folder) / "people.csv", "wb") as new:
            shutil.copyfileobj(old, new)
        out = Path(folder) / "out.json"
        script = str(HERE / "twenty" / f"by_{library}.py")
        arguments = [script, json.dumps(wanted), str(repeat), str(out)]
        path = os.environ.get("PYTHONPATH", "") if python == sys.executable else ""
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": python}
        start = time.perf_counter()
        done = subprocess.run(
            [python, "-W", "ignore", "-c", CHILD, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        print(f"{library}: {time.perf_counter() - start:.0f} s, exit {done.returncode}")
        return dict(json.loads(out.read_text())) if out.exists() else {}


def table(results: dict[str, Any]) -> str:
    """Return the table in Markdown: for each library lines, seconds and error of each task."""
    truth = truths()
    scripts = {name: source(name) for name in LIBRARIES}
    head = "| task | " + " | ".join(LIBRARIES) + " |\n|---|" + "---|" * len(LIBRARIES)
    shared, first = [], []
    for name in LIBRARIES:
        tree, tasks = scripts[name]
        rest = [node for node in tree.body if node not in tasks.values()]
        shared.append(f"{lines(rest)} lines")
        first.append(f"{len(concepts([*rest, tasks[1]]))}" if 1 in tasks else "-")
    rows = [
        head,
        f"| shared by all tasks | {' | '.join(shared)} |",
        f"| concepts before the first number | {' | '.join(first)} |",
    ]
    fewest = dict.fromkeys(LIBRARIES, 0)
    for task, name_of_task in enumerate(TASKS, 1):
        counts = {n: lines(t[task].body) for n, (_, t) in scripts.items() if task in t}
        cells = []
        for name in LIBRARIES:
            runs = results.get(name, {}).get(str(task))
            if name not in counts:
                cells.append("-")
            elif not runs or isinstance(runs, str):
                cells.append(f"{counts[name]} lines; not run" if not runs else f"failed: {runs}")
                counts.pop(name)
            else:
                errors = [error(task, value, truth[task - 1]) for _, value in runs]
                covers = ""
                if task in (18, 20) and len(runs[0][1]) >= 3:
                    inside = [low <= truth[task - 1] <= high for _, (_, low, high) in runs]
                    covers = f"; covers {sum(inside)} of {len(runs)}"
                seconds = statistics.median(s for s, _ in runs)
                off = statistics.median(errors)
                cells.append(f"{counts[name]} lines; {seconds:.2g} s; {off:.2g}{covers}")
        for name, count in counts.items():
            fewest[name] += count == min(counts.values())
        rows.append(f"| {task}. {name_of_task} | {' | '.join(cells)} |")
    done = [
        sum(isinstance(runs, list) for runs in results.get(name, {}).values()) for name in LIBRARIES
    ]
    rows.append(f"| done, of {len(TASKS)} | {' | '.join(map(str, done))} |")
    rows.append(f"| fewest lines, ties included | {' | '.join(map(str, fewest.values()))} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", nargs="*", default=["adaptive_dp"], choices=LIBRARIES)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tasks", type=int, nargs="*")
    parser.add_argument("--results", type=Path, default=Path("twenty_tasks.json"))
    parser.add_argument("--page", action="store_true", help="put the table into docs/comparison.md")
    given = parser.parse_args()
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    for library in [] if given.page else given.libraries:
        made = run(library, given.python, given.repeat, given.tasks)
        results[library] = {**results.get(library, {}), **made}
        given.results.write_text(json.dumps(results))
    print(table(results))
    if given.page:
        page = HERE.parent / "docs" / "comparison.md"
        before, _, after = page.read_text("utf-8").partition("<!-- twenty tasks -->\n")
        _, _, after = after.partition("<!-- end of twenty tasks -->\n")
        body = f"<!-- twenty tasks -->\n\n{table(results)}\n\n<!-- end of twenty tasks -->\n"
        page.write_text(before + body + after, "utf-8")


if __name__ == "__main__":
    main()
