"""What a trace has found: what was spent, what cannot be certified, what was not watched.

`trace` watches a block of code; `Trace` is what it found, as text, as JSON and as a page.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.metadata
import json
import linecache
import math
import re
import sys
import threading
import types
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from accountants import Approximate, Composite, PrivacyLoss, Pure, ZeroConcentrated
from accountants.numerics import shown, up
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.interop import opacus
from adaptive_dp.interop.claims import Traced, claimed
from adaptive_dp.queries.table import dataset
from adaptive_dp.tracing import libraries, recorder
from adaptive_dp.tracing.recorder import Recorder, Spent
from adaptive_dp.tracing.rewrite import Site, rewritten

TITLES = {
    "raw": "a raw value leaves",
    "plot": "a plot of private data",
    "mean": "a number without noise",
    "bounds": "a bound taken from the data",
    "filter": "a filter that was not accounted",
    "budget": "a budget made twice",
    "noise": "noise added by hand",
}
"""The kinds of findings, and their titles."""
REMEDIES = {
    "raw": "release what is needed of it by a mechanism, or remove the output",
    "plot": "plot a noisy histogram or other released values",
    "mean": "release it by a mechanism",
    "bounds": "take it from what is known without the data, or release it by a mechanism",
    "filter": "choose by constants, or by values that a mechanism has released",
    "budget": "make one budget, and pass it to every call",
    "noise": "release it by a library's mechanism",
}


@frozen
class Finding:
    """A mistake: what, where, and what to do instead.

    Parameters
    ----------
    kind
        One of `TITLES`.
    cell, line
        Where it is; the cell is 0 outside of notebooks.
    source
        The line of source.
    words
        What is wrong.
    file
        The file's name, or empty.

    Examples
    --------
    >>> print(Finding("plot", 3, 2, 'df["age"].hist()', "a plot of the data"))
    cell 3, line 2: a plot of private data: a plot of the data.
        df["age"].hist()
        Instead: plot a noisy histogram or other released values.
    """

    kind: str
    cell: int
    line: int
    source: str
    words: str
    file: str = ""

    @property
    def title(self) -> str:
        """The kind in words."""
        return TITLES[self.kind]

    @property
    def remedy(self) -> str:
        """What to do instead."""
        return REMEDIES[self.kind]

    @property
    def where(self) -> str:
        """The place in words."""
        return str(Site(self.file, self.cell, self.line, self.source))

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.title}: {self.words}.\n    {self.source}\n    "
            f"Instead: {self.remedy}."
        )


@frozen
class Release:
    """A release: the call, the data, how often, and the loss that is claimed.

    Parameters
    ----------
    call, where
        The call, and its place.
    data
        The data that it read, by name.
    times
        How often it is counted.
    loss
        The claimed loss of one, or None.
    parallel
        How parts are disjoint, where it was made in each part of a partition and is counted once.
    why
        Why it cannot be certified, if so.
    assumes
        What the claim needs.

    Examples
    --------
    >>> print(Release("diffprivlib mean", "cell 3, line 2", "people", 2, Pure(0.5)))
    cell 3, line 2: diffprivlib mean of people, 2 times: Pure(epsilon=0.5)
    """

    call: str
    where: str
    data: str
    times: int
    loss: PrivacyLoss | None
    parallel: str = ""
    why: str = ""
    assumes: tuple[str, ...] = ()

    def __str__(self) -> str:
        cost = f"cannot be certified: {self.why}" if self.loss is None else f"{self.loss}"
        often = f", {self.times} times" if self.times > 1 else ""
        each = f", in parallel over {self.parallel}" if self.parallel else ""
        return f"{self.where}: {self.call} of {self.data}{often}{each}: {cost}"


@frozen
class Trace:
    """What a traced analysis spent, and what speaks against it.

    Parameters
    ----------
    name
        The file, or empty.
    findings
        Mistakes, in the order of the source.
    releases
        What was released under a claim.
    data
        The private data, each with its place.
    touched
        Calls that data went into, each with its place and the data.
    relation
        The neighbour relation of the whole.
    watched, unwatched
        What was watched, and what was not.
    assumptions
        What the sum rests on, beside the claims' own assumptions.
    failed
        How the analysis ended, where it did not end by itself: the type of an error and its place.
    delta
        The delta of the sum; None for that of the claims.

    Examples
    --------
    >>> release = Release("diffprivlib mean", "cell 3, line 2", "people", 2, Pure(0.5))
    >>> seen = Trace("", (), (release,), ("people",), (), "replace_one", (), (), ())
    >>> seen.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> seen.clean
    True
    """

    name: str
    findings: tuple[Finding, ...]
    releases: tuple[Release, ...]
    data: tuple[str, ...]
    touched: tuple[str, ...]
    relation: str
    watched: tuple[str, ...]
    unwatched: tuple[str, ...]
    assumptions: tuple[str, ...]
    failed: str = ""
    delta: float | None = None

    @property
    def uncertified(self) -> tuple[Release, ...]:
        """Releases whose loss is not known."""
        return tuple(each for each in self.releases if each.loss is None)

    @property
    def clean(self) -> bool:
        """Whether nothing was found: then the certificate is of all that was watched."""
        return not self.findings and not self.uncertified and not self.failed

    def plan(self) -> Pipeline | None:
        """Return what was spent as a plan of claims; None where nothing was.

        It can be certified, drawn and verified, and cannot be run.
        """
        outputs: dict[str, Any] = {}
        for each in self.releases:
            if each.loss is None:
                continue
            loss = each.loss if each.times == 1 else Composite([(each.loss, each.times)])
            people = dataset(_identifier(each.data), columns={}, neighbors=self.relation)  # type: ignore[arg-type]
            call = f"{each.call}, {each.where}"
            if each.parallel:
                call += f", in each part of {each.parallel}"
            query = PrivateQuery[Any](Traced(call, ". ".join(each.assumes)), (people,))
            name = _identifier(each.call)
            number = sum(key == name or key.startswith(f"{name}_") for key in outputs)
            outputs[f"{name}_{number + 1}" if number else name] = query.release(claimed(loss))
        return Pipeline(**outputs).with_delta(self._delta()) if outputs else None

    def _delta(self) -> float:
        if self.delta is not None:
            return self.delta
        floors, needs = 0.0, False
        for each in self.releases:
            if each.loss is not None:
                floor = each.times * each.loss.delta_floor()
                floors = up(floors + floor, 2) if floor else floors
                needs |= not isinstance(each.loss, Pure | Approximate)
        return max(floors, 1e-6) if needs else floors

    def certify(self) -> Certificate | None:
        """Return the certificate of what was spent: the claims' sum; None where nothing was.

        It is of the releases alone. It holds of the analysis only where `clean` is true, and of
        what was watched.
        """
        plan = self.plan()
        return None if plan is None else plan.certify()

    @property
    def verdict(self) -> str:
        """One sentence: what holds of the analysis."""
        if self.failed:
            return f"The analysis did not end: {self.failed}. What came before it was watched."
        if self.clean:
            return "Nothing was found in what was watched: the certificate is of the whole of it."
        places = {each.where for each in self.findings}
        count = len(self.findings) + sum(each.where not in places for each in self.uncertified)
        things = "1 thing" if count == 1 else f"{count} things"
        return (
            f"The analysis is not certified: {things} found. The sum is of its releases alone, "
            "and not of what leaves beside them."
        )

    def __str__(self) -> str:
        certificate = self.certify()
        lines = [f"trace of {self.name}" if self.name else "trace", "", self.verdict, ""]
        if certificate is not None:
            epsilon = shown(certificate.epsilon, upward=True)
            spent = f"spent: epsilon {epsilon} at delta {certificate.delta:g}"
            lines += [f"{spent}, by {certificate.accountant} ({self.relation})"]
        elif not self.uncertified:
            lines += ["spent: nothing was released under a claim"]
        parts: list[tuple[str, Iterable[Any]]] = [
            ("found", self.findings),
            ("released", self.releases),
            ("private data", self.data),
            ("calls that read them", self.touched),
            ("assumed", self._assumed()),
            ("watched", self.watched),
            ("not watched", self.unwatched),
        ]
        for title, items in parts:
            listed = [str(each) for each in items]
            if listed:
                lines += ["", f"{title}:", *(f"- {each}" for each in listed)]
        return "\n".join(lines)

    def _assumed(self) -> tuple[str, ...]:
        own = (each for release in self.releases for each in release.assumes)
        return tuple(dict.fromkeys((*own, *self.assumptions)))

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        certificate = self.certify()
        return {
            "name": self.name,
            "verdict": self.verdict,
            "clean": self.clean,
            "epsilon": None if certificate is None else certificate.epsilon,
            "delta": None if certificate is None else certificate.delta,
            "found": [
                {
                    "kind": each.kind,
                    "cell": each.cell,
                    "line": each.line,
                    "source": each.source,
                    "words": each.words,
                    "instead": each.remedy,
                    "text": str(each),
                }
                for each in self.findings
            ],
            "released": [str(each) for each in self.releases],
            "data": list(self.data),
            "touched": list(self.touched),
            "assumed": list(self._assumed()),
            "watched": list(self.watched),
            "unwatched": list(self.unwatched),
            "failed": self.failed,
        }

    def to_json(self) -> str:
        """Return it as a JSON `str`."""
        return json.dumps(self.document(), allow_nan=False, indent=1)

    def html(self) -> str:
        """Return it as a page: that of a certificate, with what was found before all else.

        Raises
        ------
        DeclarationError
            If nothing was released, so that there is no certificate.
        """
        from adaptive_dp.reports.page import report

        plan = self.plan()
        if plan is None:  # a page of nothing spent
            people = dataset("data", columns={}, neighbors="add_remove")
            nothing = PrivateQuery[Any](Traced("nothing was released under a claim"), (people,))
            plan = Pipeline(nothing=nothing.release(claimed(Pure(0.0)))).with_delta(0.0)
        return report(plan.certify(), plan, trace=self.document())


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_").lower()
    return name if name and not name[0].isdigit() else f"data_{name}".rstrip("_")


# --- From a recorder to what it found ---


def found(
    watcher: Recorder, name: str = "", *, delta: float | None = None, failed: str = ""
) -> Trace:
    """Return what a recorder has seen, decided at its end."""
    private = {number for number, each in enumerate(watcher.origins) if each.private}
    findings: dict[tuple[str, Site], list[str]] = {}

    def add(kind: str, site: Site, words: str) -> None:
        known = findings.setdefault((kind, site), [])
        if words not in known:
            known.append(words)

    public = {site: reason for site in watcher.sites if (reason := _public(site.text))}
    for each in watcher.sightings:
        if not each.origins & private or each.site in public:
            continue
        if each.noised - private:
            add("noise", each.site, "no library vouches for its sensitivity, its scale, its floats")
        else:
            add(each.kind, each.site, each.words)
    for site, words in _budgets(watcher, private):
        add("budget", site, words)
    order = {site: number for number, site in reversed(list(enumerate(watcher.sites)))}
    listed = sorted(findings.items(), key=lambda item: (item[0][1].cell, item[0][1].line))
    made = [
        Finding(kind, site.cell, site.line, site.text, "; ".join(words[:3]), site.file)
        for (kind, site), words in listed
    ]
    del order
    relation, releases = _releases(watcher)
    assumptions = ["each person has one row in the data"] if watcher.spent else []
    assumptions += [f"{words} ({site})" for words, site in watcher.assumed.items()]
    assumptions += [f"{site}: public, as its owner says: {why}" for site, why in public.items()]
    if len(private) > 1:
        assumptions.append("all private data are of the same persons: their losses add up")
    touched = [
        f"{site}: {call} reads {_names(watcher, origins & private)}"
        for (call, site), origins in watcher.touched.items()
        if origins & private
    ]
    return Trace(
        name,
        tuple(made),
        releases,
        tuple(f"{_title(each)} ({each.site})" for each in watcher.origins if each.private),
        tuple(dict.fromkeys(touched)),
        relation,
        _watched(watcher),
        _unwatched(watcher),
        tuple(dict.fromkeys(assumptions)),
        failed,
        delta,
    )


_PUBLIC = re.compile(r"#\s*public:\s*(\S.*)$")


def _public(text: str) -> str:
    """Return the reason for which a line is public, where its comment says one."""
    matched = _PUBLIC.search(text)
    return matched[1] if matched else ""


def _title(origin: recorder.Origin) -> str:
    return origin.name or origin.what


def _names(watcher: Recorder, origins: Iterable[int]) -> str:
    names = dict.fromkeys(_title(watcher.origins[number]) for number in sorted(origins))
    return " and ".join(names) or "data"


def _budgets(watcher: Recorder, private: set[int]) -> Iterable[tuple[Site, str]]:
    """Yield budgets that were made anew for data that another one has paid for."""
    known = [each for each in watcher.budgets if each.used or each.name != "BudgetAccountant"]
    for index, each in enumerate(known):
        for before in known[:index]:
            same = before.name == each.name and bool(before.origins & each.origins & private)
            follows = each.continues and (
                each.name == "BudgetAccountant" or each.continues == before.continues
            )
            if same and not follows:
                yield (
                    each.site,
                    f"a new {each.name} for data that the one of {before.site} has paid for: each "
                    "bounds its own spends, and nothing bounds the sum",
                )
                break


def _doubled(loss: PrivacyLoss) -> PrivacyLoss | None:
    """Return the loss of a record that is exchanged, from that of one that appears or vanishes.

    An exchange is a removal and an addition: group privacy of two (Dwork and Roth 2014, Thm 2.2;
    Bun and Steinke 2016, Prop. 27).
    """
    if isinstance(loss, Pure):
        return Pure(2 * loss.epsilon)
    if isinstance(loss, ZeroConcentrated):
        return ZeroConcentrated(up(4 * loss.rho()))
    if isinstance(loss, Approximate) and loss.epsilon < 500:
        delta = up(loss.delta * (1 + math.exp(loss.epsilon)), 8)
        return Approximate(2 * loss.epsilon, delta) if delta < 1 else None
    return None


_PARTS = {
    "rows": "the rows",
    "groups": "the groups",
    "equal": "the values of a column",
}


def _releases(watcher: Recorder) -> tuple[str, tuple[Release, ...]]:
    """Return what was spent, parts of a partition taken together."""
    spent = list(_with_steps(watcher))
    replaced = any(each.claim.relation == "replace_one" for each in spent)
    whole: Counter[tuple[Any, ...]] = Counter()
    families: dict[Any, dict[Any, Counter[tuple[Any, ...]]]] = {}
    first: dict[tuple[Any, ...], Spent] = {}
    for each in spent:
        loss, why = each.loss, each.claim.why
        for reason, origins in each.doubts:
            if any(watcher.origins[number].private for number in origins):
                loss, why = None, reason
        if loss is not None and replaced and each.claim.relation == "add_remove":
            loss = _doubled(loss)
            why = "its claim is of records that appear or vanish, others' of records that change"
        key = (each.site, each.what, loss, "" if loss else why)
        first.setdefault(key, each)
        if each.part is None:
            whole[key] += 1
        else:
            family, part = each.part
            families.setdefault(family, {}).setdefault(part, Counter())[key] += 1
    made = [_release(watcher, key, first[key], times, "") for key, times in whole.items()]
    for family, parts in families.items():
        # a record lies in one part, so at most one of the multisets counts: their union is above
        # each. One that is exchanged may lie in two parts (rows keep their places).
        union: Counter[tuple[Any, ...]] = Counter()
        for counted in parts.values():
            union |= counted
        twice = 2 if replaced and family[0] != "rows" and len(parts) > 1 else 1
        over = _PARTS[family[0]] if len(parts) > 1 else ""
        made += [
            _release(watcher, key, first[key], times * twice, over) for key, times in union.items()
        ]
    return "replace_one" if replaced else "add_remove", tuple(made)


def _with_steps(watcher: Recorder) -> Iterable[Spent]:
    """Yield what was spent; engines and sessions say at the end what they have spent."""
    seen: set[int] = set()
    for each in watcher.spent:
        engine = each.engine
        if engine is None:
            if each.what.startswith("opendp") and each.budget >= 0:
                if each.budget in seen:  # a context is spent as a whole, with its first release
                    continue
                seen.add(each.budget)
            yield each
            continue
        if id(engine) in seen:
            continue
        seen.add(id(engine))
        if each.claim.why == "session":
            claim = libraries.of_session(engine)
        else:
            own = [other.claim.why for other in watcher.spent if other.engine is engine]
            refused = next((each for each in libraries.UNCLAIMED if each in own), "")
            loss = None if refused else opacus.steps_of(engine)
            why = "" if loss else "its engine's accountant has recorded no steps that can be read"
            why = refused or why
            claim = libraries.Claim(loss, "add_remove", each.claim.assumes, (), why)
        doubts = tuple(
            doubt for other in watcher.spent if other.engine is engine for doubt in other.doubts
        )
        yield evolve(each, claim=claim, loss=claim.loss, engine=None, doubts=doubts)


def _release(
    watcher: Recorder, key: tuple[Any, ...], spent: Spent, times: int, parallel: str
) -> Release:
    site, what, loss, why = key
    private = {n for n in spent.origins if watcher.origins[n].private}
    if loss is None:  # how often it was made may tell of the data
        times = 1
    return Release(
        what, str(site), _names(watcher, private), times, loss, parallel, why, spent.claim.assumes
    )


def _watched(watcher: Recorder) -> tuple[str, ...]:
    lines = []
    files = dict.fromkeys(site.file for site in watcher.sites if site.file)
    cells = {site.cell for site in watcher.sites if site.cell}
    if cells:
        lines.append(f"{len(cells)} cells of the notebook")
    lines += [f"the code of {file}, as it ran" for file in files]
    for library in libraries.WATCHED:
        if library in sys.modules and library != "adaptive_dp":
            try:
                version = importlib.metadata.version(library)
            except importlib.metadata.PackageNotFoundError:
                version = "of unknown version"
            lines.append(
                f"{library} {version}: its readers, outputs, mechanisms and budgets by name"
            )
    lines.append("adaptive_dp: its plans, sessions and estimators")
    return tuple(lines)


def _unwatched(watcher: Recorder) -> tuple[str, ...]:
    lines = [f"{words} ({site})" for words, site in watcher.unseen.items()]
    lines.append("branches that did not run, and other runs on other data")
    lines.append("the inside of libraries: what they return counts as private as what they read")
    lines.append("whether a library keeps what it claims, its noise, and the time that it takes")
    others = sorted(libraries.UNKNOWN & set(sys.modules))
    if others:
        lines.append(f"the claims of {', '.join(others)}")
    return tuple(lines)


# --- A block of code ---


class _Skip(BaseException):
    """Raised in place of a block's first line: the rewritten block has run instead."""


_RUNNING = threading.Lock()


class trace:
    """Watch a block of code, and find what its releases cost and what leaves beside them.

    The block runs once, rewritten so that each of its operations is seen. Its source must be at
    hand, as it is in files, notebooks and tests.

    Parameters
    ----------
    delta
        The delta of the sum; by default that of the claims.

    Attributes
    ----------
    result : Trace
        What was found, after the block.

    Raises
    ------
    DeclarationError
        If the block's source cannot be read, it leaves by ``return``, ``break``, ``continue`` or
        ``yield``, or another trace runs in this process.

    See Also
    --------
    adaptive_dp.tracing.run : trace a script or a notebook in a process of its own.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> with dp.trace() as t:
    ...     ages = t.private(np.array([31.0, 47.0, 22.0]), "ages")
    ...     print(f"{ages.mean():.0f}")
    33
    >>> [each.kind for each in t.findings], t.data
    (['mean'], ('ages (line 2)',))
    """

    def __init__(self, *, delta: float | None = None) -> None:
        self.delta = delta
        self.result: Trace | None = None
        self._recorder = Recorder()

    def private(self, value: Any, name: str = "data") -> Any:
        """Return a value, named as private data; inside of the block.

        Parameters
        ----------
        value
            A frame, an array or a list; a number is named with what it is assigned to.
        """
        watcher = self._recorder
        place = watcher.sites[watcher._calls[-1].site] if watcher._calls else Site("", 0, 0, "")
        label = watcher.data(place, name, private=True)
        for number in label.origins:
            watcher.origins[number].name = name
        return watcher.put(watcher.plain(value), label)

    def public(self, value: Any, reason: str) -> Any:
        """Return a value without what is known of it: its owner says that it is public, and why.

        Parameters
        ----------
        value
            Anything.
        reason
            Why it is public; the report says it.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise DeclarationError("say why it is public: t.public(value, 'the survey's range')")
        watcher = self._recorder
        place = watcher.sites[watcher._calls[-1].site] if watcher._calls else Site("", 0, 0, "")
        watcher.assumed.setdefault(f"a value is public, as its owner says: {reason}", place)
        watcher._labels.pop(id(value), None)
        return watcher.deep(value)

    def __getattr__(self, name: str) -> Any:
        result = self.__dict__.get("result")
        if result is None or name.startswith("__"):
            raise AttributeError(
                f"a trace has no {name!r}" + ("" if result else " before its block has ended")
            )
        return getattr(result, name)

    def __str__(self) -> str:
        return "<a trace whose block has not ended>" if self.result is None else str(self.result)

    def __repr__(self) -> str:
        known = self.result
        return "<trace>" if known is None else f"<trace: {len(known.findings)} findings>"

    def __enter__(self) -> trace:
        frame = sys._getframe(1)
        self._block = _block(frame)
        if not _RUNNING.acquire(blocking=False):
            raise DeclarationError("another trace runs in this process: traces cannot be nested")
        self._frame, self._tracers = frame, (sys.gettrace(), frame.f_trace)

        def skip(*_: Any) -> Any:
            raise _Skip

        # the first line of the block raises: `__exit__` runs the rewritten block instead of it
        frame.f_trace = skip
        sys.settrace(lambda *_: None)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        sys.settrace(self._tracers[0])
        self._frame.f_trace = self._tracers[1]
        try:
            if kind is not _Skip:
                return False
            failed = ""
            try:
                self._run()
            except BaseException as raised:
                failed = type(raised).__name__
                raise raised from None
            finally:
                self.result = found(self._recorder, delta=self.delta, failed=failed)
            return True
        finally:
            del self._frame
            _RUNNING.release()

    def _run(self) -> None:
        """Run the rewritten block in the frame of the ``with`` statement."""
        frame, (statements, text, file) = self._frame, self._block
        watcher = self._recorder
        tree = rewritten(
            ast.Module(statements, type_ignores=[]),
            text,
            watcher.sites,
            file="" if file.startswith("<") else Path(file).name,
        )
        code = compile(tree, file, "exec", dont_inherit=True)
        local = frame.f_locals
        recorder.install(watcher)
        try:
            if local is frame.f_globals:
                exec(code, local)
                return
            # inside of a function: its variables and the module's, as one
            names = {**frame.f_globals, **local}
            before = dict(names)
            try:
                exec(code, names)
            finally:
                for key, value in names.items():
                    if key not in before or before[key] is not value:
                        local[key] = watcher.deep(value)
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        finally:
            recorder.remove()
            space = frame.f_locals
            for key, value in list(space.items()):
                if isinstance(value, recorder._StandIn) or type(value) in (list, tuple, dict):
                    space[key] = watcher.deep(value)


def _block(frame: types.FrameType) -> tuple[list[ast.stmt], str, str]:
    """Return the statements of the ``with`` block that a frame has just entered.

    Raises
    ------
    DeclarationError
        If they cannot be read, or leave the block.
    """
    file = frame.f_code.co_filename
    text = "".join(linecache.getlines(file, frame.f_globals))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        text, tree = "", ast.Module([], type_ignores=[])
    line = frame.f_lineno
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and node.lineno <= line <= node.body[0].lineno
        and any("trace" in ast.unparse(item.context_expr) for item in node.items)
    ]
    if not text or not blocks:
        raise DeclarationError(
            "the source of this block is not at hand, so that it cannot be traced; write it to a "
            "file, or use adaptive-dp trace FILE"
        )
    block = max(blocks, key=lambda node: node.lineno)
    if len(block.items) > 1:
        raise DeclarationError("a trace needs a with statement of its own")
    if block.body[0].lineno <= line and block.body[0].lineno == block.lineno:
        raise DeclarationError("the traced block must begin on a line of its own")
    for statement in block.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Nonlocal) and not (
                _is_inner(statement, node)
            ):
                raise DeclarationError(
                    f"line {node.lineno}: a traced block cannot leave by "
                    f"{type(node).__name__.lower()}"
                )
    return block.body, text, file


def _is_inner(statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a node lies in a function that a statement defines."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return any(
        node in ast.walk(inner) for inner in ast.walk(statement) if isinstance(inner, functions)
    )
