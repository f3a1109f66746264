"""The commands on plans, certificates and files, from certify to demo.

Each takes the parsed arguments and returns the exit code.
"""

from __future__ import annotations

import csv
import json
import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from inspect import signature
from pathlib import Path
from typing import Any

from attrs import evolve

from accountants import AccountingError, BudgetError, to_json
from accountants.numerics import declared, shown
from adaptive_dp import audit as audits
from adaptive_dp.cli.output import BROKE, FAILS, complain, counting, say, status, writable
from adaptive_dp.cli.plan_files import importable, read_function, read_plan
from adaptive_dp.data import Files
from adaptive_dp.demo import DATA
from adaptive_dp.graph.certificate import Certificate, result_text, stamp
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DataError, DocumentError, PlanError
from adaptive_dp.graph.handles import Post, unaliased
from adaptive_dp.graph.outputs import ends
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.registry import permitted
from adaptive_dp.graph.run import Result
from adaptive_dp.graph.values import LIMITS, Limits, plain, visible
from adaptive_dp.queries.source import Source
from adaptive_dp.reports.page import check_extras, report
from adaptive_dp.reports.wording import promise
from adaptive_dp.session import Session
from adaptive_dp.session import certificate as checking
from adaptive_dp.session.entries import Terms
from adaptive_dp.session.ledger import opened

UNCOUNTED = "no ledger: what this run spends is recorded nowhere, and the next one spends it again"
"""What a run without a ledger says on standard error."""


def certify(options: Namespace) -> int:
    """Print what a plan promises; exit code 1 if that is above ``--at-most``."""
    _check_writable(options.html)
    plan = _plan(options.plan, options)
    with status("certifying"):
        certificate = plan.certify()
    if options.html:
        _write_page(options.html, certificate, plan)
    say(certificate.to_json().rstrip("\n") if options.json else str(certificate))
    return _within(certificate, options)


def prove(options: Namespace) -> int:
    """Print what is shown of a function's claim; exit code 1 where that is no proof."""
    from adaptive_dp import prove as proofs  # here, as below: commands on plans do without

    writable(options.proof)
    function = read_function(options.program)
    claim, delta = (_claimed(name, getattr(options, name)) for name in ("epsilon", "delta"))
    answers: int | str = options.answers
    if answers != "every":
        try:
            answers = int(answers)
        except ValueError:
            raise DocumentError(f"--answers must be a number or every, got {answers!r}") from None
    verdict: Any
    if delta is None:
        with status("proving"):
            verdict = proofs.prove(
                function, answers=answers, epsilon=claim, neighbors=options.neighbors
            )
        said = type(verdict).__name__
    elif claim is None or isinstance(answers, str):
        raise DocumentError("--delta goes with --epsilon, and with a number of --answers")
    else:
        with status("proving"):
            verdict = proofs.largest_delta(
                function, answers=answers, epsilon=claim, delta=delta, neighbors=options.neighbors
            )
        said = {True: "Proved", False: "Refuted", None: "Undecided"}[verdict.holds]
    document: dict[str, Any] = {"verdict": said, "text": str(verdict)}
    if said == "Proved":
        document["proof"] = verdict.document
        if options.proof:
            options.proof.write_text(json.dumps(verdict.document) + "\n", encoding="utf-8")
    say(json.dumps(document) if options.json else "\n".join(map(visible, str(verdict).split("\n"))))
    return 0 if said == "Proved" else FAILS


def _claimed(name: str, text: str | None) -> Fraction | None:
    """Return the number that a claim is of, exactly as it is written."""
    try:
        return None if text is None else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise DocumentError(f"--{name} must be a number, got {text!r}") from None


def proof_in(text: str) -> dict[str, Any] | None:
    """Return the proof that a file holds; None if it holds something else."""
    from adaptive_dp.prove.checker import FORMAT

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_proof = isinstance(document, dict) and document.get("format") == FORMAT
    return document if is_proof else None


def verify_proof(document: dict[str, Any]) -> int:
    """Print whether a proof holds; exit code 1 if it does not."""
    from adaptive_dp import prove as proofs
    from adaptive_dp.prove.verdicts import claim_of

    try:
        epsilon = proofs.check(document)
    except proofs.ProofError as error:
        return complain(f"the proof does not hold: {error}", FAILS)
    name = visible(str(document.get("name")))
    say(f"holds: {name}, as the program in the proof, {claim_of(document, epsilon)}")
    return 0


def diff(options: Namespace) -> int:
    """Print what differs between two versions of a plan; exit code 1 if anything does."""
    old, new = (_plan(path, options) for path in (options.old, options.new))
    changes = old.diff(new)
    with status("certifying"):
        before, after = old.certify(), new.certify()
    same = old.fingerprint == new.fingerprint
    if options.json:
        document = {"same": same, "changes": changes.splitlines()}
        document["epsilon"] = [plain(each.epsilon) for each in (before, after)]
        document["delta"] = [each.delta for each in (before, after)]
        say(json.dumps(document, allow_nan=False))
    else:
        claims = [
            f"epsilon {shown(each.epsilon, upward=True)} at delta {each.delta:g}"
            for each in (before, after)
        ]
        say("\n".join([changes or "no node differs", "", f"{claims[0]} -> {claims[1]}"]))
    return _within(after, options) or (0 if same else FAILS)


def _within(certificate: Certificate, options: Namespace) -> int:
    """Return the exit code of a claim that may be at most as large as was asked for."""
    most = options.at_most
    # three tenths are within 0.3: the decimal is meant, and the float is a little less
    if most is None or certificate.epsilon <= (declared(most) if math.isfinite(most) else most):
        return 0
    epsilon = shown(certificate.epsilon, upward=True)
    return complain(
        f"epsilon {epsilon} at delta {certificate.delta:g} is above the {most:g} of --at-most",
        FAILS,
    )


def run(options: Namespace) -> int:
    """Release a plan's outputs: they are printed first, then written."""
    # every refusal comes before the run: what is spent cannot be taken back
    _check_writable(options.html, options.certificate)
    if options.ledger is not None:
        return _run_on_ledger(options)
    for name in ("head", "user", "name", "edition"):
        if getattr(options, name):
            argument = "as" if name == "user" else name
            raise DocumentError(f"--{argument} is for a ledger: pass --ledger LEDGER")
    plan = _plan(options.plan, options)
    result = _run(plan, options, "--ledger LEDGER counts it in a budget")
    text = _json(result) if options.json else _answers(result, plan, options)
    return _released(text, result, plan, options.html, options.certificate)


def _run(plan: Pipeline, options: Namespace, advice: str) -> Result:
    """Run or simulate a plan, of which no ledger knows."""
    data = _files(plan, options)
    if options.simulate is None:
        complain(f"{UNCOUNTED}; {advice}", 0)
    with status("running"):
        if options.simulate is None:
            return plan.run(**data)
        return plan.simulate(seed=options.simulate, **data)


def _run_on_ledger(options: Namespace) -> int:
    """Release a plan's outputs as one step of a ledger's budget; exit code 1 if it does not fit."""
    if options.simulate is not None:
        raise DocumentError("a simulation writes to no ledger: leave out --simulate or --ledger")
    plan: Pipeline = read_plan(options.plan, options.allow)
    if plan.free and options.epsilon is None:
        raise DocumentError(
            f"the noise of {options.plan} is free ({', '.join(sorted(plan.free))}); pass "
            "--epsilon E, and --delta D if you like: what the run may cost of the ledger's budget"
        )
    if not plan.free and (options.epsilon is not None or options.delta is not None):
        raise DocumentError(
            f"--epsilon and --delta solve free noise, and that of {options.plan} is fixed: the run "
            "costs what its noise costs, at the delta of the ledger's budget"
        )
    data = _files(plan, options)
    for name in sorted(signature(Session).parameters.keys() & data.keys()):
        raise DocumentError(f"a session has no place for a data set named {name!r}: rename it")
    with opened(options.ledger) as ledger:
        terms = Terms.of(ledger.entries())
    with Session(
        budget=terms.budget,
        accountant=terms.accountant,
        ledger=options.ledger,
        head=options.head,
        user=options.user,
        edition=options.edition,
        **data,
    ) as session:
        spent = session.spent
        asked = {"epsilon": options.epsilon, "delta": options.delta, "name": options.name}
        try:
            with status("running"):
                # when it returns, the values are in the ledger: what is printed is recorded
                result = session.run(plan, **asked)
        except BudgetError as error:
            return complain(f"{error}; {session.remaining}", FAILS)
        head, left, steps = session.head, session.remaining, session.pipeline
        known = "these values were recorded before, and cost nothing; "
        said = f"{known if session.spent == spent else ''}{left}; the ledger's head is {head}"
        text = _json(result, head=head) if options.json else _answers(result, steps, options)
        code = _released(text, result, steps, options.html, options.certificate)
    # on the standard error: what is printed is what was released
    complain(said, 0)
    return code


def _files(plan: Pipeline, options: Namespace) -> dict[str, Any]:
    """Return the files that a run reads, by data set, for whoever is to read them."""
    data = _tables(plan, options.data)
    # without --engine whoever opens the files chooses who reads them
    if options.engine is not None:
        data = {name: Files(path, options.engine) for name, path in data.items()}
    return data


def synthesize(options: Namespace) -> int:
    """Release a plan whose output is a model of tables, and write rows of it."""
    # every refusal comes before the run: what is spent cannot be taken back
    _check_writable(options.html, options.out, options.certificate)
    if _is_parquet(options.out):
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise DocumentError(
                f"{options.out} needs pyarrow: pip install pyarrow, or write a .csv"
            ) from None
    if options.rows is not None and options.rows < 1:
        raise DocumentError(f"--rows needs at least one row, got {options.rows}")
    plan = _plan(options.plan, options)
    name, axes = _synthetic_output(plan, options.output)
    wrong = [each for each in options.whole if not axes.get(each, False)]
    if wrong:
        raise DocumentError(f"--whole names a column of numbers of the model, got {wrong[0]!r}")
    result = _run(plan, options, "in a session of Python a ledger counts it")
    model = result.released[name]
    rows = model.rows(options.rows, seed=options.simulate, whole=options.whole)
    count = len(next(iter(rows.values())))
    certificate = result.certificate
    said = {"rows": count, "columns": list(rows), "file": str(options.out)}
    lines = [f"{count} rows of {len(rows)} columns: {options.out}", *stamp(certificate), ""]
    text = "\n".join([*lines, *promise(certificate)])
    if options.json:
        text = json.dumps(said | {"certificate": certificate.to_document()}, allow_nan=False)
    steps: list[tuple[str, Callable[[], Any]]] = [
        (str(options.out), lambda: _write_rows(options.out, rows, options.whole))
    ]
    return _released(text, result, plan, options.html, options.certificate, steps)


def _synthetic_output(plan: Pipeline, asked: str | None) -> tuple[str, dict[str, bool]]:
    """Return the name of a plan's output that is a model, and which of its columns are of numbers.

    Edges or keys may be released with it: then the output's inputs say which, in order.
    """
    found: dict[str, dict[str, bool]] = {}
    for path, handle in plan.outputs:
        operation = unaliased(handle).operation
        is_model = isinstance(operation, Post) and operation.function.name == "synthesis.model/1"
        if len(path) == 1 and isinstance(operation, Post) and is_model:
            axes: Any = operation.constants["axes"]
            cells = [unaliased(each).operation for each in unaliased(handle).inputs[1:]]
            given = (isinstance(each, Post) and "edges" in each.function.name for each in cells)
            found[path[0]] = {
                each["name"]: each["edges"] is not None
                if each["released"] is None
                else next(given, False)
                for each in axes
            }
    names = ", ".join(found) or "none"
    if asked is None and len(found) == 1:
        return next(iter(found.items()))
    if asked is None or asked not in found:
        raise DocumentError(
            f"synthesize needs a plan with a model of tables (dp.synthesize) as an output, this "
            f"one has {names}" + ("; pass --output NAME" if len(found) > 1 else "")
        )
    return asked, found[asked]


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _write_rows(path: Path, rows: Mapping[str, Any], whole: Sequence[str]) -> None:
    """Write rows as CSV, with empty cells for what is missing, or as Parquet with nulls."""
    columns: dict[str, list[Any]] = {}
    for name, values in rows.items():
        kind: Callable[[Any], Any] = int if name in whole else lambda value: value
        # a missing number is NaN, which is not equal to itself
        columns[name] = [None if v is None or v != v else kind(v) for v in list(values)]
    if _is_parquet(path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        typed = {name: _one_type(values) for name, values in columns.items()}
        pq.write_table(pa.table({name: pa.array(v) for name, v in typed.items()}), path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        # an empty cell is written of None
        writer.writerows(zip(*columns.values(), strict=True))


def _one_type(values: list[Any]) -> list[Any]:
    """Return values of one type for a column of Parquet: categories of several types as str."""
    if len({type(value) for value in values if value is not None}) < 2:
        return values
    return [None if value is None else str(value) for value in values]


def audit(options: Namespace) -> int:
    """Print the result of an audit of a plan; exit code 1 if it refutes the plan."""
    _check_writable(options.html)
    # a static audit reads the plan only, which may still have free noise
    if options.static:
        looked = audits.static(read_plan(options.plan, options.allow))
        say(looked.to_json().rstrip("\n") if options.json else str(looked))
        failing = {"error", "warning"} if options.strict else {"error"}
        return FAILS if any(each.severity in failing for each in looked) else 0
    plan = _plan(options.plan, options)
    # without data the audit makes its own neighbours
    data = _tables(plan, options.data) if options.data else None
    with counting("auditing") as progress:
        verdict = audits.pipeline(
            plan,
            data=data,
            samples=options.samples,
            confidence=options.confidence,
            seed=options.seed,
            progress=progress,
        )
    if options.html:
        _write_page(options.html, plan.certify(), plan, audit=verdict)
    say(verdict.to_json().rstrip("\n") if options.json else str(verdict))
    # a violation alone is a failure, unless asked for more: an audit that was too weak to tell is
    # none, nor is one that rests on more assumptions
    failed = verdict.verdict != "consistent" if options.strict else verdict.verdict == "violation"
    return FAILS if failed else 0


def show(options: Namespace) -> int:
    """Print a plan as a table, a drawing or a document."""
    plan = read_plan(options.plan, options.allow)
    if options.json or options.form == "document":
        say(plan.to_json().rstrip("\n"))
    elif options.form == "table":
        passes = "\n".join(f"- {each}" for each in plan.passes)
        say(f"{plan}\n\npasses over the data:\n{passes}\n\nfingerprint {plan.fingerprint}")
    else:
        say(plan.svg() if options.form == "svg" else plan.mermaid())
    return 0


def trace(options: Namespace) -> int:
    """Print what a traced file spent and what was found; exit code 1 for that where strict."""
    from adaptive_dp.tracing import run as traced

    _check_writable(options.html)
    with status("tracing"):
        seen = traced(
            options.file, delta=options.delta, shows=options.verbose, timeout=options.timeout
        )
    if options.html:
        options.html.write_text(seen.html(), encoding="utf-8")
    say(seen.to_json() if options.json else str(seen))
    if seen.failed:
        return complain(seen.verdict, BROKE)
    return FAILS if options.strict and not seen.clean else 0


def limits_of(options: Namespace) -> Limits:
    """Return the limits of what is verified: the given ones, a stranger's or the default."""
    limits = Limits.strangers() if options.stranger else LIMITS
    seconds = options.limit_seconds
    return limits if seconds is None else evolve(limits, seconds=seconds)


def verify(options: Namespace, text: str) -> int:
    """Print whether a certificate's claim follows from the plan in it."""
    path, limits = options.certificate, limits_of(options)
    importable(path, options.allow)
    try:
        certificate = Certificate.from_json(text, limits=limits)
        verdict = checking.verify(certificate, allow=options.allow, limits=limits)
        opinion = _second_opinion(certificate, options, limits) if options.independent else None
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"{path}: {error}") from None
    source = certificate.randomness.source
    if options.json:
        names = ["holds", "claimed", "recomputed", "delta"]
        names += ["protects", "release", "reasons", "notes"]
        document = {name: plain(getattr(verdict, name)) for name in names}
        say(json.dumps(document | ({"independent": opinion} if opinion else {})))
    else:
        because = "" if verdict.release or not verdict.holds else f" ({visible(source)})"
        more = f"\nin ball arithmetic: {opinion['text']}" if opinion else ""
        say(f"{verdict}{because}{more}")
    refuted = opinion is not None and opinion["verdict"] == "refuted"
    return 0 if verdict.holds and not refuted else FAILS


def independent_checker() -> Any:
    """Return the module of the second opinion, which needs an extra."""
    try:
        from accountants import independent
    except ImportError as error:
        raise DocumentError(str(error)) from None
    return independent


def _second_opinion(certificate: Certificate, options: Namespace, limits: Limits) -> dict[str, Any]:
    """Return what the independent checker says of the claim for the plan in a certificate."""
    independent = independent_checker()

    def again() -> Any:
        term = load(certificate.plan, allow=permitted(options.allow), limits=limits).term
        return independent.check(
            to_json(term), epsilon=certificate.epsilon, delta=certificate.delta
        )

    with status("computing the claim again"):
        opinion = limits.watched("certificate", again)
    ends = {"lower": opinion.lower, "upper": opinion.upper}
    return {"verdict": opinion.verdict, "text": str(opinion), **ends, "method": opinion.method}


def demo(options: Namespace) -> int:
    """Run a real private analysis, from the declaration to the report."""
    options.out.mkdir(parents=True, exist_ok=True)
    page, paper = options.out / "demo-report.html", options.out / "demo-certificate.json"
    # before anything runs: a page that cannot be written is refused now
    _check_writable(page, paper)
    with status("calibrating one budget over the whole graph: epsilon 2, delta 1e-6"):
        from adaptive_dp.demo.plan import plan
    with status(f"reading {DATA.name}: person-years of the RAND Health Insurance Experiment"):
        data = _tables(plan, [f"people={DATA}"])
    with status("certifying, running, computing intervals"):
        result = plan.run(**data)
        described = result.certificate.described(
            title="Health and visits to physicians",
            purpose="To show what adaptive-dp makes of a file of people",
            source="RAND Health Insurance Experiment, 1974 to 1982",
        )
        result = evolve(result, certificate=described)
    if options.json:
        return _released(_json(result), result, plan, page, paper)
    code = _released(_answers(result, plan, options), result, plan, page, paper)
    if not code:
        say(f"report       {page}\ncertificate  {paper}   (adaptive-dp verify {paper})")
    return code


def _plan(path: str, options: Namespace) -> Pipeline:
    """Return the plan at a path, at the total that was asked for."""
    plan: Pipeline = read_plan(path, options.allow)
    # the option, or else the plan's own
    delta = plan.delta if options.delta is None else options.delta
    if plan.free and options.epsilon is None:
        raise DocumentError(
            f"the noise of {path} is free ({', '.join(sorted(plan.free))}); pass "
            "--epsilon E, and --delta D if you like, to calibrate it"
        )
    if options.epsilon is None:
        return plan if options.delta is None else plan.with_delta(delta)
    if not plan.free:
        raise DocumentError(
            f"--epsilon calibrates free noise, and that of {path} is fixed; leave out "
            "--epsilon, or declare noise such as dp.Laplace(scale=dp.Free('b'))"
        )
    with status("calibrating"):
        return plan.calibrate(epsilon=options.epsilon, delta=delta)


def _tables(plan: Pipeline, given: list[str]) -> dict[str, Any]:
    """Return the files of ``NAME=FILE`` arguments, by the data set that each holds."""
    files: dict[str, Any] = dict(_assignment(text) for text in given)
    # a repeated name would overwrite the file before it without a word
    if len(files) < len(given):
        raise DocumentError("--data names one data set twice")
    operations = [node.handle.operation for node in plan.structure]
    # the data sets that the plan reads, by name; other operations have no file
    sources = {source.name: source for source in operations if isinstance(source, Source)}
    unknown = [name for name in files if name not in sources]
    if unknown:
        raise DataError(
            f"the plan has no data set {unknown[0]!r}; it reads {', '.join(sources) or 'none'}"
        )
    missing = [name for name in sources if name not in files]
    if missing:
        raise DataError(
            f"the plan reads {', '.join(sources)}; pass "
            + " ".join(f"--data {name}=FILE" for name in missing)
        )
    return files


def _assignment(text: str) -> tuple[str, Path]:
    # the first "=": a path may contain others
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise DocumentError(f"--data needs NAME=FILE, got {text!r}")
    return name, Path(path)


ANSWERS = 26
"""Values of the first page: with all that stands around them they fit in forty lines."""


def _answers(result: Result, plan: Pipeline, options: Namespace) -> str:
    """Return the answers, then what is promised to whom; all else where it is asked for."""
    certificate = result.certificate
    most = None if options.verbose else ANSWERS
    rest = "--verbose prints them all"
    shown = result_text(*result.shown(), most=most, rest=rest)
    lines = [shown, *stamp(certificate), "", *promise(certificate)]
    if options.verbose:
        for title, what in {"The plan": plan, "The certificate": certificate}.items():
            lines += ["", title, "=" * len(title), str(what)]
    return "\n".join(lines)


def _json(result: Result, **more: Any) -> str:
    document = result.certificate.to_document()
    low, high = map(plain, ends(result.intervals()))
    values = {"values": plain(result.released), "low": low, "high": high}
    return json.dumps(values | {"certificate": document} | more, allow_nan=False)


def _released(
    text: str,
    result: Result,
    plan: Pipeline,
    page: Path | None,
    paper: Path | None,
    first: Sequence[tuple[str, Callable[[], Any]]] = (),
) -> int:
    """Print what was released, then write it; one that fails does not keep the others."""
    steps: list[tuple[str, Callable[[], Any]]] = [*first, ("the values", lambda: say(text))]
    if paper is not None:
        written = result.certificate.to_json()
        steps.append((str(paper), lambda: paper.write_text(written, encoding="utf-8")))
    if page is not None:
        steps.append((str(page), lambda: _write_page(page, result.certificate, plan, result)))
    # The budget is spent by now. So the values are printed first, and a file that cannot be written
    # keeps nothing else from being written.
    code = 0
    for name, step in steps:
        try:
            step()
        except Exception as error:
            # the error's type or the system's reason: its text may quote what was released
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            spent = "the plan has run, and its budget is spent"
            code = complain(f"{name} could not be written ({reason}); {spent}", BROKE)
    return code


def _check_writable(page: Path | None, *others: Path | None) -> None:
    """Raise now, before anything is spent, what would keep a page or a file from being written."""
    writable(page, *others)
    if page is not None:
        check_extras()


def _write_page(path: Path, *what: Any, **more: Any) -> None:
    path.write_text(report(*what, **more), encoding="utf-8")
