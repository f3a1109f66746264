"""The command line: certify, run, show and verify plans, and the demo.

Exit codes: 0 done; 1 a certificate does not hold; 2 unusable arguments, plan or data;
3 a plan failed while it ran.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from accountants import AccountingError
from adaptive_dp import report
from adaptive_dp.demo import DATA
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DocumentError, PlanError, RunError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.run import Result
from adaptive_dp.graph.verify import verify
from adaptive_dp.planfile import read_plan
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.source import Source
from adaptive_dp.rows.files import read
from adaptive_dp.rows.memory import SchemaError

FAILS, UNUSABLE, BROKE = 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except RunError as error:
        return _complain(error, BROKE)
    except (PlanError, AccountingError, SchemaError, OSError) as error:
        return _complain(error, UNUSABLE)


def _complain(error: Exception, code: int) -> int:
    print(f"adaptive-dp: {error}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adaptive-dp",
        description="Differentially private analyses as graphs: certify, run, show, verify.",
        epilog="Exit codes: 0 done; 1 a certificate does not hold; 2 unusable arguments, plan or "
        "data; 3 a plan failed while it ran.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=function)
        added.add_argument("--json", action="store_true", help="print JSON")
        return added

    def plan(added: argparse.ArgumentParser) -> None:
        added.add_argument(
            "plan",
            metavar="PLAN",
            help="a Python file that defines a Pipeline (FILE.py, or FILE.py:NAME), a JSON or TOML "
            "document",
        )
        _allow(added)

    added = command("certify", _certify, "What the plan promises, under every accountant.")
    plan(added)
    added.add_argument("--delta", type=float, help="at this delta (default: the plan's own)")
    added.add_argument("--html", type=Path, metavar="FILE", help="write a report here")

    added = command("run", _run, "Release the plan's outputs.")
    plan(added)
    added.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a data set's file (.csv, .csv.gz or .parquet); once for each data set",
    )
    added.add_argument("--simulate", type=int, metavar="SEED", help="seeded, not for release")
    added.add_argument("--html", type=Path, metavar="FILE", help="write a report here")
    added.add_argument(
        "--certificate", type=Path, metavar="FILE", help="write the certificate here"
    )

    added = command("show", _show, "The plan as a table, a drawing or a document.")
    plan(added)
    added.add_argument(
        "--as",
        dest="form",
        choices=("table", "svg", "mermaid", "document"),
        default="table",
        help="table (default), svg, mermaid text, or JSON document",
    )

    added = command("verify", _verify, "Recompute a certificate from its document alone.")
    added.add_argument("certificate", type=Path, metavar="CERTIFICATE", help="a JSON file")
    _allow(added)

    added = command("demo", _demo, "A real private analysis of the RAND experiment.")
    added.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where the report goes (default: .)"
    )
    return parser


def _allow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module from which a document's own mechanisms may be imported (its code runs)",
    )


def _certify(options: argparse.Namespace) -> int:
    plan = read_plan(options.plan, options.allow)
    with _status("certifying"):
        certificate = plan.certify(options.delta)
    if options.html:
        options.html.write_text(report(certificate.document, plan.graph), encoding="utf-8")
    print(certificate.to_json() if options.json else certificate)
    return 0


def _run(options: argparse.Namespace) -> int:
    plan = read_plan(options.plan, options.allow)
    _writable(options.html, options.certificate)
    files = dict(_assignment(text) for text in options.data)
    if len(files) < len(options.data):
        raise DocumentError("--data names one data set twice")
    data = {name: _table(plan, name, path) for name, path in files.items()}
    with _status("running"):
        if options.simulate is None:
            result = plan.run(**data)
        else:
            result = plan.simulate(seed=options.simulate, **data)
    _written(result, plan, options.html, options.certificate)
    if options.json:
        values = {"values": plain(result.released), "noise": plain(result.noise)}
        print(json.dumps(values | {"certificate": result.certificate.document}))
    else:
        print(result)
        print()
        print(result.certificate)
    return 0


def _writable(*paths: Path | None) -> None:
    """Refuse a place where nothing can be written before anything is released."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise DocumentError(f"{path} cannot be written: it is no file in a folder that exists")


def _show(options: argparse.Namespace) -> int:
    plan = read_plan(options.plan, options.allow)
    if options.json or options.form == "document":
        print(plan.to_json(), end="")
    elif options.form == "table":
        print(plan)
        print(f"\nfingerprint {plan.fingerprint}")
    else:
        print(plan.svg() if options.form == "svg" else plan.mermaid())
    return 0


def _verify(options: argparse.Namespace) -> int:
    try:
        text = options.certificate.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise DocumentError(f"{options.certificate} cannot be read: {error}") from None
    verdict = verify(Certificate.from_json(text), allow=options.allow)
    if options.json:
        print(
            json.dumps(
                {
                    "holds": verdict.holds,
                    "claimed": plain(verdict.claimed),
                    "found": plain(verdict.found),
                    "reasons": list(verdict.reasons),
                }
            )
        )
    elif verdict.holds:
        print(f"holds: epsilon <= {verdict.claimed:.9g}, recomputed {verdict.found:.9g}")
    else:
        print("does not hold: " + "; ".join(verdict.reasons))
    return 0 if verdict.holds else FAILS


def _demo(options: argparse.Namespace) -> int:
    with _status("calibrating one budget over the whole graph: epsilon 2, delta 1e-6"):
        from adaptive_dp.demo.plan import plan
    with _status(f"reading {DATA.name}: person-years of the RAND Health Insurance Experiment"):
        people = _table(plan, "people", DATA)
    with _status("certifying, running, measuring the expected noise"):
        result = plan.run(people=people)
    options.out.mkdir(parents=True, exist_ok=True)
    page, paper = options.out / "demo-report.html", options.out / "demo-certificate.json"
    _written(result, plan, page, paper)
    if options.json:
        values = {"values": plain(result.released), "noise": plain(result.noise)}
        print(json.dumps(values | {"certificate": result.certificate.document}))
        return 0
    sections = {
        "The plan": plan,
        "The certificate": result.certificate,
        "What was released": result,
    }
    for title, content in sections.items():
        print(f"\n{title}\n{'=' * len(title)}\n{content}")
    print(f"\nreport       {page}\ncertificate  {paper}   (adaptive-dp verify {paper})")
    return 0


def _written(result: Result, plan: Pipeline, page: Path | None, paper: Path | None) -> None:
    if page is not None:
        values = _with_noise(result.released, result.noise)
        text = report(result.certificate.document, plan.graph, values)
        page.write_text(text, encoding="utf-8")
    if paper is not None:
        paper.write_text(result.certificate.to_json(), encoding="utf-8")


def _with_noise(values: Mapping[str, Any], noise: Mapping[str, Any]) -> dict[str, Any]:
    return {k: {"value": plain(v), "noise": plain(noise.get(k))} for k, v in values.items()}


def _assignment(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise DocumentError(f"--data needs NAME=FILE, got {text!r}")
    return name, Path(path)


def _table(plan: Pipeline, name: str, path: Path) -> Any:
    """Return a file's columns, read as what the plan declares them to be."""
    for node in plan.structure:
        source = node.handle.operation
        if isinstance(source, Source) and source.name == name:
            texts = {
                column
                for column, declared in source.columns.items()
                if isinstance(declared, Categories)
                and all(isinstance(value, str) for value in declared.values)
            }
            identity = set() if source.unit is None else {source.unit}
            return read(path, numeric=set(source.columns) - texts, text=(texts | identity))
    raise DocumentError(f"the plan has no data set {name!r}")


def plain(value: Any) -> Any:
    """Return released values as JSON: arrays as lists, what is not finite as text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


@contextmanager
def _status(text: str) -> Iterator[None]:
    """Show what is going on: a spinner where rich is there and a person watches, else a line."""
    try:
        from rich.console import Console
    except ImportError:
        print(f"{text} ...", file=sys.stderr)
        yield
        return
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        print(f"{text} ...", file=sys.stderr)
        yield
