"""The command line: its arguments, and how errors become exit codes.

What a command prints goes to standard output, JSON with ``--json``; what is going on, and errors,
as one line of plain text each, go to standard error. Exit codes: 0 done; 1 a certificate or a
ledger does not hold, an audit refutes a plan, epsilon is above --at-most, or two plans differ; 2
unusable arguments, plan, data or ledger; 3 a plan failed while it ran, or what it released could
not be written.

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
LEDGER_HELP = "Show, export or verify the ledger of a session."
CODES = (
    "Exit codes: 0 done; 1 a certificate or a ledger does not hold, an audit refutes a plan, "
    "epsilon is above --at-most, or two plans differ; 2 unusable arguments, plan or data; 3 a plan "
    "failed while it ran, or what it released could not be written. Errors are one line on "
    "standard error, with --json too."
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
        # a command that reads data: an error's text may quote some of it
        return _failed(error, private=hasattr(options, "data") or options.command == "demo")


def _called(options: argparse.Namespace) -> int:
    """Import the module of the command that was asked for, and call its function."""
    command = options.command
    if command in ("epsilon", "delta", "calibrate"):
        from adaptive_dp.cli import budget

        return budget.solve(options) if command == "calibrate" else budget.answer(options)
    if command == "list":
        from adaptive_dp.cli.output import parts

        return parts(options)
    if command == "verify" or command.startswith("ledger "):
        from adaptive_dp.cli import ledgers

        functions = {
            "verify": ledgers.verify_document,
            "ledger show": ledgers.show,
            "ledger export": ledgers.export,
            "ledger verify": ledgers.verify,
        }
    else:
        from adaptive_dp.cli import commands

        functions = {
            "certify": commands.certify,
            "run": commands.run,
            "synthesize": commands.synthesize,
            "audit": commands.audit,
            "diff": commands.diff,
            "show": commands.show,
            "demo": commands.demo,
        }
    return functions[command](options)


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


# --- The arguments, and which of them each command takes ---


def _argument(metavar: str, text: str, kind: Any = None, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": text, "type": kind} | more


_SWITCH = {"action": "store_true"}
_MANY = {"action": "append", "default": []}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "plan": _argument(
        "PLAN",
        "a Python file that defines a Pipeline (FILE.py, or FILE.py:NAME), a JSON or TOML document",
    ),
    "old": _argument("OLD", "a plan, as of the other commands"),
    "new": _argument("NEW", "another version of it"),
    "certificate": _argument("FILE", "a certificate, or the export of a ledger: a JSON file", Path),
    "ledger": _argument("LEDGER", "a path, or postgresql://..."),
    "kind": _argument("KIND", f"{', '.join(KINDS)}; default: all", nargs="?", choices=KINDS),
    "--json": {"help": "print JSON", **_SWITCH},
    "--verbose": {
        "help": "print the plan, the certificate and all values after the answers",
        **_SWITCH,
    },
    "--allow": _argument(
        "MODULE",
        "a module, installed or beside the document, from which the document's own mechanisms and "
        "functions may be imported (its code runs)",
        **_MANY,
    ),
    "--data": _argument(
        "NAME=FILE",
        "a data set's file (.csv, .csv.gz or .parquet), or a pattern such as "
        "people=part-*.parquet; once for each data set",
        **_MANY,
    ),
    "audit --data": _argument(
        "NAME=FILE",
        "data among which adversarial units are put; the audit is then as private as the data",
        **_MANY,
    ),
    "--engine": _argument(
        "ENGINE",
        "who reads the files: threads, processes, or the Dask cluster of a scheduler, "
        "dask://HOST:PORT (default: here, by processes where there is much to read)",
    ),
    "--epsilon": _argument("E", "calibrate the plan's free noise to this total", float),
    "--delta": _argument("D", "at this delta (default: the plan's own)", float),
    "epsilon --delta": _argument("D", "at this value", float, required=True),
    "delta --epsilon": _argument("E", "at this value", float, required=True),
    "calibrate --epsilon": _argument("E", "the budget", float, required=True),
    "calibrate --delta": _argument("D", "at this delta", float, required=True),
    "--simulate": _argument("SEED", "seeded, not for release", int),
    "--html": _argument("FILE", "write a report here", Path),
    "--rows": _argument("N", "how many rows (default: as many as were released to be there)", int),
    "--whole": _argument("COLUMN", "a column of whole numbers; once for each", **_MANY),
    "--output": _argument("NAME", "the plan's output that is a model, where it has several"),
    "-o": _argument("FILE", "write the rows here, as CSV", Path, dest="out", required=True),
    "--certificate": _argument("FILE", "write the certificate here", Path),
    "--samples": _argument("N", "runs on each side (default 20000)", int, default=20_000),
    "--confidence": _argument(
        "P",
        "with which a plan that keeps its promise is not accused (default 0.999)",
        float,
        default=0.999,
    ),
    "--seed": _argument("SEED", "for a reproducible audit", int),
    "--independent": {
        "help": "compute the claim again, in ball arithmetic and by other algorithms (needs the "
        "extra check)",
        **_SWITCH,
    },
    "--at-most": _argument("E", "exit with 1 where epsilon is above this", float),
    "--strict": {
        "help": "exit with 1 for every verdict but 'consistent', and every warning of --static",
        **_SWITCH,
    },
    "--static": {"help": "look through the plan, run nothing", **_SWITCH},
    "--as": {
        "dest": "form",
        "choices": ("table", "svg", "mermaid", "document"),
        "default": "table",
        "help": "table (default), svg, mermaid text, or JSON document",
    },
    "--head": _argument(
        "HASH",
        "a hash that the ledger ended with once; an end that was cut off shows by it alone",
    ),
    "--all": {"help": "print all spends, however many", **_SWITCH},
    "--noise-multiplier": _argument(
        "Z",
        "Gaussian noise: its standard deviation, in l2 sensitivities (clipping norms)",
        float,
    ),
    "--sampling-rate": _argument(
        "Q", "each step sees each unit with this probability (Poisson sampling)", float
    ),
    "--steps": _argument("N", "how often it runs (default: 1)", int),
    "--laplace-scale": _argument("B", "Laplace noise, in l1 sensitivities", float),
    "--term": _argument("FILE", "a term's JSON document, instead of a noise", Path),
    "--plot": _argument(
        "FILE", "draw the answer here (.png, .svg or .pdf; needs matplotlib)", Path
    ),
    "--out": _argument("DIR", "where the report goes (default: .)", Path, default=Path()),
}
"""What `argparse.add_argument` is told of each argument, by its name; with a command's name before
it where that command has another meaning of it."""

_MECHANISM = "--noise-multiplier --sampling-rate --steps --laplace-scale --term --plot"
COMMANDS = {
    "certify": (
        "What the plan promises, by every accountant.",
        "plan --allow --epsilon --delta --at-most --html",
    ),
    "diff": (
        "What differs between two versions of a plan, and in what they promise.",
        "old new --allow --epsilon --delta --at-most",
    ),
    "run": (
        "Release the plan's outputs.",
        "plan --allow --data --engine --epsilon --delta --simulate --html --certificate --verbose",
    ),
    "synthesize": (
        "Release a model of tables, and write synthetic rows of it.",
        "plan --allow --data --engine --epsilon --delta --simulate --rows --whole --output -o "
        "--certificate",
    ),
    "audit": (
        "Try to refute what the plan promises.",
        "plan --allow --data --epsilon --delta --samples --confidence --seed --static --strict "
        "--html",
    ),
    "show": ("The plan as a table, a drawing or a document.", "plan --allow --as"),
    "verify": (
        "Recompute a certificate, or a session's ledger, from its document alone.",
        "certificate --head --allow --independent",
    ),
    "ledger show": (
        "Its spends as a table, with the epsilon after each.",
        "ledger --allow --all",
    ),
    # an export prints entries as they are: it recomputes nothing, so it imports nothing
    "ledger export": ("An entry a line; with --json one document.", "ledger"),
    "ledger verify": (
        "Whether its entries are what was written, and cost that.",
        "ledger --allow --head",
    ),
    "epsilon": (
        "Epsilon of a mechanism at a delta, by every accountant.",
        f"--delta {_MECHANISM}",
    ),
    "delta": (
        "Delta of a mechanism at an epsilon, by every accountant.",
        f"--epsilon {_MECHANISM}",
    ),
    "calibrate": (
        "The least Gaussian noise, or the most steps, within a budget.",
        "--epsilon --delta --noise-multiplier --sampling-rate --steps",
    ),
    "list": (
        "What there is to choose from, with its theorem: the library's, and installed plug-ins.",
        "kind",
    ),
    "demo": ("A real private analysis of the RAND experiment.", "--out --verbose"),
}
"""Each command's line of help, and the names of its arguments."""


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
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    groups = {"": commands}
    for command, (text, names) in COMMANDS.items():
        group, _, name = command.rpartition(" ")
        if group not in groups:
            ledger = commands.add_parser(group, help=LEDGER_HELP, description=LEDGER_HELP)
            groups[group] = ledger.add_subparsers(required=True, metavar="COMMAND")
        added = groups[group].add_parser(name, help=text, description=text)
        added.set_defaults(command=command)
        for argument in ["--json", *names.split()]:
            how = ARGUMENTS.get(f"{command} {argument}") or ARGUMENTS[argument]
            added.add_argument(argument, **how)
    return parser
