"""The command line: its arguments, and how errors become exit codes.

What a command prints goes to standard output, JSON with ``--json``; what is going on, and errors,
as one line of plain text each, go to standard error. Exit codes: 0 done; 1 a certificate or a
ledger does not hold, an audit refutes a plan, a function is not proved, epsilon is above
--at-most, a ledger's budget refuses a run, two plans differ, or a strict trace found something; 2
unusable arguments, plan, data or ledger; 3 a plan or a traced file failed while it ran, or what it
released could not be written.

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
LEDGER_HELP = "Make, show, export, verify and keep the ledger of a session."
CODES = (
    "Exit codes: 0 done; 1 a certificate or a ledger does not hold, an audit refutes a plan, a "
    "function is not proved, epsilon is above --at-most, a ledger's budget refuses a run, two "
    "plans differ, or a strict trace found something; 2 unusable arguments, plan, data or ledger; "
    "3 a plan or a traced file failed while it ran, or what it released could not be written. "
    "Errors are one line on standard error, with --json too."
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
        return _failed(error, private=hasattr(options, "data") or command_reads(options))


def command_reads(options: argparse.Namespace) -> bool:
    """Whether a command reads data without being told of them."""
    return options.command in ("demo", "trace")


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
            "ledger create": ledgers.create,
            "ledger show": ledgers.show,
            "ledger export": ledgers.export,
            "ledger verify": ledgers.verify,
            "ledger backup": ledgers.backup,
            "ledger restore": ledgers.restore,
            "ledger raise": ledgers.raise_,
            "ledger close": ledgers.close,
            "ledger migrate": ledgers.migrate,
            "ledger roles": ledgers.roles,
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
            "trace": commands.trace,
            "demo": commands.demo,
            "prove": commands.prove,
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
    "file": _argument(
        "FILE", "a script (.py) or a notebook (.ipynb): its code runs, with your rights", Path
    ),
    "old": _argument("OLD", "a plan, as of the other commands"),
    "new": _argument("NEW", "another version of it"),
    "certificate": _argument("FILE", "a certificate, or the export of a ledger: a JSON file", Path),
    "ledger": _argument("LEDGER", "a path, or postgresql://..."),
    "program": _argument("FILE.py:NAME", "a function f(answers, noise) in a Python file"),
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
    "trace --verbose": {"help": "show what the file prints, on standard error", **_SWITCH},
    "trace --strict": {"help": "exit with 1 where anything was found", **_SWITCH},
    "trace --delta": _argument("D", "of the sum (default: that of the claims)", float),
    "--timeout": _argument("S", "end the file after so many seconds", float),
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
    "-o": _argument(
        "FILE", "write the rows here: .parquet, else CSV", Path, dest="out", required=True
    ),
    "--certificate": _argument("FILE", "write the certificate here", Path),
    "prove --epsilon": _argument("E", "the claim (default: the least that is found)", str),
    "prove --delta": _argument(
        "D", "the claim is (epsilon, delta): for Gaussian noise, and Gaussian beside other", str
    ),
    "--answers": _argument(
        "N", "for how many query answers; every: for each number of them", str, required=True
    ),
    "--neighbors": {
        "choices": ("each", "one", "together"),
        "default": "each",
        "help": "each answer moves by at most 1 (default), one does, or all together up or down",
    },
    "--proof": _argument("FILE", "write the proof here, as JSON", Path),
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
    "--limit-seconds": _argument(
        "S", "refuse a certificate whose recomputation takes longer (default: 600)", float
    ),
    "--stranger": {
        "help": "the file is a stranger's: refuse above a million characters, 10,000 nodes, "
        "1 GiB or 0.75 seconds",
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
    "--ledger": _argument(
        "LEDGER",
        "a path or a URL: the run is one step of its budget, recorded before anything is printed",
    ),
    "run --as": _argument("NAME", "who asks, for the ledger", dest="user"),
    "run --name": _argument("NAME", "of the step, for the ledger", default=""),
    "--edition": _argument(
        "NAME", "the state of the data, such as 2024-06: runs that name the same read the same rows"
    ),
    **{
        f"ledger {command} --as": _argument("NAME", "who does it, for the record", dest="user")
        for command in ("create", "restore", "raise", "close", "migrate")
    },
    "ledger create --epsilon": _argument("E", "its budget, in nats", float, required=True),
    "ledger create --delta": _argument("D", "its budget (default: 0)", float, default=0.0),
    "ledger create --delta-reserve": _argument(
        "F", "the part of delta for mechanisms with a delta floor (default: 0)", float, default=0.0
    ),
    "--accountant": _argument(
        "ACCOUNTANT", "in whose unit costs add up (default: best)", default="best"
    ),
    "--period": _argument("PERIOD", "what the budget is for, such as 2026"),
    "--follows": _argument(
        "LEDGER", "that of the period before, which is closed; the new one names its budget"
    ),
    "ledger raise --epsilon": _argument("E", "the new budget (default: as it is)", float),
    "ledger raise --delta": _argument("D", "the new budget (default: as it is)", float),
    "ledger raise --delta-reserve": _argument("F", "as for create (default: as it is)", float),
    "--reason": _argument("TEXT", "why, for the record", required=True),
    "ledger restore --head": _argument("HASH", "the last hash that is known of it, from elsewhere"),
    "--without-head": _argument(
        "REASON", "no hash is known: what was spent after the backup is not counted, and why so"
    ),
    **{
        f"ledger {command} file": _argument("FILE", "the backup: an entry a line", Path)
        for command in ("backup", "restore")
    },
    "--schema": _argument("SCHEMA", "where the ledger is (default: public)", default="public"),
    "--owner": _argument(
        "ROLE", "makes, raises and closes it (default: ledger_owner)", default="ledger_owner"
    ),
    "--analysts": _argument(
        "ROLE", "read and append (default: ledger_analysts)", default="ledger_analysts"
    ),
    "--readers": _argument("ROLE", "read (default: ledger_readers)", default="ledger_readers"),
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
        "plan --allow --data --engine --epsilon --delta --simulate --ledger --head --as --name "
        "--edition --html --certificate --verbose",
    ),
    "synthesize": (
        "Release a model of tables, and write synthetic rows of it.",
        "plan --allow --data --engine --epsilon --delta --simulate --rows --whole --output -o "
        "--html --certificate",
    ),
    "audit": (
        "Try to refute what the plan promises.",
        "plan --allow --data --epsilon --delta --samples --confidence --seed --static --strict "
        "--html",
    ),
    "prove": (
        "Prove or refute that a Python function is differentially private.",
        "program --answers --epsilon --delta --neighbors --proof",
    ),
    "show": ("The plan as a table, a drawing or a document.", "plan --allow --as"),
    "trace": (
        "Run a script or a notebook over any libraries, and say what it spent and what leaks.",
        "file --delta --timeout --strict --html --verbose",
    ),
    "verify": (
        "Recompute a certificate, or a session's ledger, from its document alone.",
        "certificate --head --allow --independent --limit-seconds --stranger",
    ),
    "ledger create": (
        "Make a ledger, with all of its budget; refused where there is one.",
        "ledger --epsilon --delta --delta-reserve --accountant --period --follows --as",
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
    "ledger backup": ("Write its entries to a file, all or nothing.", "ledger file"),
    "ledger restore": (
        "Make a ledger of a backup, and record that it is one.",
        "file ledger --head --without-head --as",
    ),
    "ledger raise": (
        "Raise its budget: what was promised before is promised no longer.",
        "ledger --epsilon --delta --delta-reserve --reason --as",
    ),
    "ledger close": ("Let nothing more be spent from it.", "ledger --reason --as"),
    "ledger migrate": ("Bring one of an earlier version of the library to this.", "ledger --as"),
    "ledger roles": (
        "Print SQL: roles for a ledger in PostgreSQL that may append, or read, and no more.",
        "--schema --owner --analysts --readers",
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
