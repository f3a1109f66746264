"""The command line: its arguments, and how errors become exit codes.

What a command prints goes to standard output, JSON with ``--json``; what is going on, and errors,
as one line of plain text each, go to standard error. Exit codes: 0 done; 1 a certificate or a
ledger does not hold, or an audit refutes a plan; 2 unusable arguments, plan, data or ledger; 3 a
plan failed while it ran, or what it released could not be written.

This module imports nothing of the library until a command is called, so that ``--help`` and a wrong
argument answer at once.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INTERRUPTED = 130
KINDS = ("mechanisms", "accountants", "losses", "queries", "solvers")
"""What ``adaptive-dp list`` lists: `adaptive_dp.plugins.KINDS`, which is not imported for it."""
LEDGER = "Show, export or verify the ledger of a session."
CODES = (
    "Exit codes: 0 done; 1 a certificate or a ledger does not hold, or an audit refutes a plan; 2 "
    "unusable arguments, plan or data; 3 a plan failed while it ran, or what it released could not "
    "be written. Errors are one line on standard error, with --json too."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # a name with letters that the terminal cannot show is not an error
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        return _called(options)
    except KeyboardInterrupt:
        print("adaptive-dp: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        return _failed(error, private=hasattr(options, "data"))


def _called(options: argparse.Namespace) -> int:
    """Import the module of the command that was asked for, and call its function."""
    match options.command:
        case "epsilon" | "delta":
            from adaptive_dp.cli import budget

            return budget.answer(options)
        case "calibrate":
            from adaptive_dp.cli import budget

            return budget.solve(options)
        case "ledger show" | "ledger export" | "ledger verify" | "verify":
            from adaptive_dp.cli import ledgers

            if options.command == "verify":
                return ledgers.verify_document(options)
            name = options.command.removeprefix("ledger ")
            return {"show": ledgers.show, "export": ledgers.export, "verify": ledgers.verify}[name](
                options
            )
        case "list":
            from adaptive_dp.cli import output as listing

            return listing.parts(options)
    from adaptive_dp.cli import commands

    functions = {
        "certify": commands.certify,
        "run": commands.run,
        "audit": commands.audit,
        "show": commands.show,
        "demo": commands.demo,
    }
    return functions[options.command](options)


def _failed(error: Exception, *, private: bool) -> int:
    """Print an error and return its exit code."""
    from accountants import AccountingError
    from adaptive_dp.cli.output import BROKE, UNUSABLE, complain
    from adaptive_dp.data import SchemaError
    from adaptive_dp.graph.errors import PlanError, RunError

    if isinstance(error, RunError):
        return complain(str(error), BROKE)
    if isinstance(error, PlanError | AccountingError | SchemaError | OSError):
        return complain(str(error), UNUSABLE)
    return complain(_unexpected(error, private=private), BROKE)


def _unexpected(error: Exception, *, private: bool) -> str:
    """Describe an error that should not occur; its message is withheld where data was read."""
    from adaptive_dp import __version__

    last = traceback.extract_tb(error.__traceback__)[-1]
    message = "" if private else f": {error}"
    return (
        f"unexpected {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
        f"{message}; this is a defect of adaptive-dp {__version__}, please report it"
    )


class _Version(argparse.Action):
    """Prints the version, which is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from adaptive_dp import __version__

        print(f"adaptive-dp {__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adaptive-dp",
        description="Differentially private analyses as graphs: certify, run, show, verify. And "
        "what noise costs: epsilon, delta, calibrate.",
        epilog=CODES,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    added = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = added.add_parser(name, help=text, description=text)
        made.set_defaults(command=name)
        made.add_argument("--json", action="store_true", help="print JSON")
        return made

    _certify(command("certify", "What the plan promises, by every accountant."))
    _run(command("run", "Release the plan's outputs."))
    _audit(command("audit", "Try to refute what the plan promises."))
    _show(command("show", "The plan as a table, a drawing or a document."))
    text = "Recompute a certificate, or a session's ledger, from its document alone."
    _verify(command("verify", text))
    _ledger(added.add_parser("ledger", help=LEDGER, description=LEDGER))
    text = "Epsilon of a mechanism at a delta, by every accountant."
    _question(command("epsilon", text), "epsilon", "--delta")
    text = "Delta of a mechanism at an epsilon, by every accountant."
    _question(command("delta", text), "delta", "--epsilon")
    text = "The least Gaussian noise, or the most steps, within a budget."
    _calibrate(command("calibrate", text))
    text = "What there is to choose from, with its theorem: the library's, and installed plug-ins."
    kinds = command("list", text)
    kinds.add_argument(
        "kind", nargs="?", choices=KINDS, metavar="KIND", help=f"{', '.join(KINDS)}; default: all"
    )
    demo = command("demo", "A real private analysis of the RAND experiment.")
    demo.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where the report goes (default: .)"
    )
    demo.set_defaults(data=[])
    return parser


def _certify(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    _budget(parser)
    _file(parser, "--html", "write a report here")


def _run(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a data set's file (.csv, .csv.gz or .parquet), or a pattern such as "
        "people=part-*.parquet; once for each data set",
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="who reads the files: threads, processes, or the Dask cluster of a scheduler, "
        "dask://HOST:PORT (default: here, by processes where there is much to read)",
    )
    _budget(parser)
    parser.add_argument("--simulate", type=int, metavar="SEED", help="seeded, not for release")
    _file(parser, "--html", "write a report here")
    _file(parser, "--certificate", "write the certificate here")


def _audit(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="data among which adversarial units are put; the audit is then as private as the data",
    )
    _budget(parser)
    parser.add_argument(
        "--samples", type=int, default=20_000, metavar="N", help="runs on each side (default 20000)"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="P",
        help="with which a plan that keeps its promise is not accused (default 0.95)",
    )
    parser.add_argument("--seed", type=int, metavar="SEED", help="for a reproducible audit")
    parser.add_argument("--static", action="store_true", help="look through the plan, run nothing")
    _file(parser, "--html", "write a report here")


def _show(parser: argparse.ArgumentParser) -> None:
    _plan(parser)
    parser.add_argument(
        "--as",
        dest="form",
        choices=("table", "svg", "mermaid", "document"),
        default="table",
        help="table (default), svg, mermaid text, or JSON document",
    )


def _verify(parser: argparse.ArgumentParser) -> None:
    text = "a certificate, or the export of a ledger: a JSON file"
    parser.add_argument("certificate", type=Path, metavar="FILE", help=text)
    _head(parser)
    _allow(parser)


def _ledger(parser: argparse.ArgumentParser) -> None:
    added = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in (
        ("show", "Its spends as a table, with the epsilon after each."),
        ("export", "An entry a line; with --json one document."),
        ("verify", "Whether its entries are what was written, and cost that."),
    ):
        made = added.add_parser(name, help=text, description=text)
        made.set_defaults(command=f"ledger {name}")
        made.add_argument("--json", action="store_true", help="print JSON")
        made.add_argument("ledger", metavar="LEDGER", help="a path, or postgresql://...")
        # an export prints entries as they are: it recomputes nothing, so it imports nothing
        if name != "export":
            _allow(made)
        if name == "verify":
            _head(made)
        if name == "show":
            made.add_argument("--all", action="store_true", help="print all spends, however many")


def _head(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--head",
        metavar="HASH",
        help="a hash that the ledger ended with once; an end that was cut off shows by it alone",
    )


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plan",
        metavar="PLAN",
        help="a Python file that defines a Pipeline (FILE.py, or FILE.py:NAME), a JSON or TOML "
        "document",
    )
    _allow(parser)


def _allow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module, installed or beside the document, from which the document's own "
        "mechanisms and functions may be imported (its code runs)",
    )


def _budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--epsilon", type=float, metavar="E", help="calibrate the plan's free noise to this total"
    )
    parser.add_argument(
        "--delta", type=float, metavar="D", help="at this delta (default: the plan's own)"
    )


def _question(parser: argparse.ArgumentParser, what: str, at: str) -> None:
    # the answer to "what": epsilon at a delta, or delta at an epsilon
    parser.set_defaults(what=what)
    # `at` is "--delta" or "--epsilon": its first letter names the value in the help
    parser.add_argument(at, type=float, required=True, metavar=at[2].upper(), help="at this value")
    _gaussian(parser)
    parser.add_argument(
        "--laplace-scale", type=float, metavar="B", help="Laplace noise, in l1 sensitivities"
    )
    parser.add_argument(
        "--term", type=Path, metavar="FILE", help="a term's JSON document, instead of a noise"
    )
    _file(parser, "--plot", "draw the answer here (.png, .svg or .pdf; needs matplotlib)")


def _calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epsilon", type=float, required=True, metavar="E", help="the budget")
    parser.add_argument("--delta", type=float, required=True, metavar="D", help="at this delta")
    _gaussian(parser)


def _gaussian(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--noise-multiplier",
        type=float,
        metavar="Z",
        help="Gaussian noise: its standard deviation, in l2 sensitivities (clipping norms)",
    )
    parser.add_argument(
        "--sampling-rate",
        type=float,
        metavar="Q",
        help="each step sees each unit with this probability (Poisson sampling)",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="how often it runs (default: 1)")


def _file(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, type=Path, metavar="FILE", help=text)
