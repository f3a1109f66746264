"""A test kit for a mechanism or a query of one's own: two lines in a test.

>>> import adaptive_dp as dp
>>> from adaptive_dp.testing import check
>>> check(dp.DiscreteLaplace(scale=2.0), samples=1000)
<examined DiscreteLaplace(scale=2): 0 finding(s)>

What passes is not proven; what fails is broken. Checked are: a query's declared sensitivity, by
search over adversarial neighbours; the loss, by its own laws and those that bind it at different
distances; the release, by an audit; what its floats let out beside their value; parameters; and
that all noise is the stream's, fresh, and forgotten.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from accountants import PrivacyLoss
from adaptive_dp.audit.mechanisms import Values
from adaptive_dp.audit.neighbors import query_value
from adaptive_dp.audit.pairs import gallery
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import fresh
from adaptive_dp.mechanisms.additive import Laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.table import dataset
from adaptive_dp.testing.checks import (
    Finding,
    Report,
    absorbed,
    audit_problems,
    bit_problems,
    calibration_problems,
    declared,
    freshness_problems,
    kept_problems,
    loss_of,
    loss_problems,
    odd_values,
    parameter_problems,
    sensitivity_problems,
    shape_problems,
)

__all__ = ["Finding", "Report", "check", "examine"]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__


def check(
    subject: Mechanism | Handle,
    query: Handle | None = None,
    *,
    values: Sequence[Values] | None = None,
    distance: float = 1.0,
    given: Sequence[Any] = (),
    samples: int = 10_000,
    seed: int = 0,
    only: Sequence[str] = (),
) -> Report:
    """Raise `AssertionError` with all findings, unless there are none; else return the report.

    See `examine`.
    """
    report = examine(
        subject,
        query,
        values=values,
        distance=distance,
        given=given,
        samples=samples,
        seed=seed,
        only=only,
    )
    if report.findings:
        raise AssertionError(str(report))
    return report


def examine(
    subject: Mechanism | Handle,
    query: Handle | None = None,
    *,
    values: Sequence[Values] | None = None,
    distance: float = 1.0,
    given: Sequence[Any] = (),
    samples: int = 10_000,
    seed: int = 0,
    only: Sequence[str] = (),
) -> Report:
    """Return all that is found wrong with a mechanism, with a query, or with both together.

    Parameters
    ----------
    subject
        A mechanism with fixed parameters; or a query's handle, such as ``people["x"].sum()``.
    query
        A query's handle for the mechanism to release: its sensitivity is searched, and the audit
        takes the values of its worst neighbours. It must not depend on other releases.
    values
        Without a query, pairs of values that neighbours can have, to audit; by default numbers and
        vectors at ``distance`` in the mechanism's norm. A mechanism that reads something else than
        numbers needs them, or a query.
    distance
        The distance of the values in the mechanism's norm; with a query it is the query's.
    given
        The released values that `Mechanism.release` gets beside the stream.
    samples
        Runs on each side of each audited pair.
    seed
        Of audits and searches; freshness is tested with the operating system's randomness. A sound
        subject is accused by chance with a probability below 1e-6.
    only
        The names of the checks to make, as reports list them; all by default.

    Raises
    ------
    DeclarationError
        If the subject is neither a mechanism nor a query, has free parameters, lacks values that it
        needs, or has no check of a name in ``only``.
    """
    mechanism = subject if isinstance(subject, Mechanism) else None
    query = subject if isinstance(subject, Handle) else query
    if mechanism is None and query is None:
        raise DeclarationError(
            f"the kit checks a mechanism or a query's handle, got {type(subject).__name__}; give "
            "values to a mechanism class's parameters first"
        )
    if mechanism is not None and mechanism.free():
        raise DeclarationError("the mechanism has free parameters; give numbers")
    found = _Examination(mechanism, query, values, distance, tuple(given), samples, seed)
    findings: list[Finding] = []
    checked: list[str] = []
    names: list[str] = []
    for name, problems in found.checks():
        names.append(name)
        if only and name not in only:
            continue
        checked.append(name)
        try:
            findings += [Finding(name, words) for words in problems]
        except Exception as error:
            findings.append(Finding(name, f"it raises {type(error).__name__}: {error}"))
    unknown = [only] if isinstance(only, str) else [name for name in only if name not in checked]
    if unknown:
        raise DeclarationError(
            f"only must list checks that {found.subject} has: {', '.join(names)}; got "
            f"{', '.join(map(repr, unknown))}"
        )
    return Report(found.subject, tuple(findings), tuple(checked), tuple(found.notes))


class _Examination:
    """One subject, with the values that its checks use."""

    def __init__(
        self,
        mechanism: Mechanism | None,
        query: Handle | None,
        values: Sequence[Values] | None,
        distance: float,
        given: tuple[Any, ...],
        samples: int,
        seed: int,
    ) -> None:
        self.mechanism, self.query, self.given = mechanism, query, given
        self.samples, self.seed, self.notes = samples, seed, list[str]()
        self.plan: Pipeline | None = None
        if query is not None:
            if not isinstance(query.operation, Query):
                raise DeclarationError("query must be a query's handle, such as people.count()")
            if mechanism is None and _gives(query) is not np.ndarray:
                raise DeclarationError(
                    f"a {query.operation.kind} gives no numbers; examine it with a mechanism that "
                    "reads it"
                )
            by = mechanism or Laplace(scale=1.0)
            self.plan = Pipeline(out=query.release(by))  # type: ignore[attr-defined]
        names = [str(mechanism)] if mechanism is not None else []
        names += [query.operation.label()] if query is not None else []
        self.subject = " of ".join(names)
        if mechanism is not None:
            self._prepare(mechanism, values, distance)

    def _prepare(
        self, mechanism: Mechanism, values: Sequence[Values] | None, distance: float
    ) -> None:
        self.numeric = mechanism.input_type is np.ndarray
        self.distance = 1.0 if mechanism.norm == 0 else distance
        if self.plan is not None and self.query is not None:
            if self.numeric:
                self.distance = declared(self.plan, self.query)[mechanism.norm]
            self.pairs = _worst(self.plan, self.query, self.numeric)
        elif values is not None:
            self.pairs = list(values)
        else:
            if not self.numeric:
                raise DeclarationError(
                    f"{type(mechanism).__name__} reads {mechanism.input_type.__name__}; pass a "
                    "query, or values"
                )
            self.pairs = _ordinary(mechanism, distance)
        if not self.pairs:
            raise DeclarationError("no pair of different values was found to audit")
        if len(self.given) != mechanism.released_inputs:
            raise DeclarationError(
                f"{type(mechanism).__name__} follows {mechanism.released_inputs} released values, "
                f"got {len(self.given)}; pass them as given=[...]"
            )
        self.pairs = self.pairs[:3]

    def checks(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield each check with its problems."""
        mechanism, query, plan = self.mechanism, self.query, self.plan
        if query is not None and plan is not None:
            if _gives(query) is np.ndarray:
                yield (
                    "sensitivity",
                    sensitivity_problems(plan, query, limit=200, rounds=100, seed=self.seed),
                )
            else:
                self.notes.append("the query gives no numbers, so no move of its was measured")
        if mechanism is None:
            return
        yield "loss", loss_problems(mechanism, self.distance)
        if query is not None and not mechanism.released_inputs:
            yield "calibration", calibration_problems(mechanism, query)
        elif self.numeric and not mechanism.released_inputs:
            yield "calibration", calibration_problems(mechanism, _counted())
        yield "parameters", parameter_problems(mechanism, self.distance, self._by)
        values = [pair[0] for pair in self.pairs]
        yield "shape", shape_problems(mechanism, self._release, values)
        yield "freshness", freshness_problems(mechanism, self._making, self.notes)
        if self.numeric:
            shape = np.shape(values[0])
            yield "forgetting", kept_problems(mechanism, self._release, shape)
            yield "large values", absorbed(self._release, shape, self.distance)
            yield "odd values", odd_values(self._release, shape)
        yield "audit", self._audited()
        few = min(self.samples, 4000)
        yield "low bits", bit_problems(self._release, self.pairs, self._claim(), few, self.seed)

    def _claim(self) -> PrivacyLoss:
        """Return what releasing these values costs, with what rounding them may add."""
        assert self.mechanism is not None
        if self.mechanism.uses_span or not self.numeric:
            return loss_of(self.mechanism, self.distance)
        ends = [np.asarray(end, dtype=np.float64) for pair in self.pairs for end in pair]
        whole = all(bool(np.all(end % 1 == 0)) for end in ends)
        width = max(end.size for end in ends)
        return self.mechanism.cost(self.distance, width, 1.0 if whole else 0.0)

    def _audited(self) -> Iterator[str]:
        assert self.mechanism is not None
        yield from audit_problems(
            self.mechanism, self.pairs, self._claim(), self.given, self.samples, self.seed
        )

    def _release(self, value: Any, stream: Stream) -> Any:
        return self._of(self.mechanism, value, stream)

    def _of(self, mechanism: Any, value: Any, stream: Stream) -> Any:
        given = [fresh(each) for each in self.given]
        if self.numeric:
            value = np.array(value, dtype=np.float64)
        return mechanism.release(value, stream, *given)

    def _by(self, mechanism: Mechanism, stream: Stream) -> Any:
        return self._of(mechanism, self.pairs[0][0], stream)

    def _making(self, mechanism: Mechanism) -> Callable[[Stream], Any]:
        return lambda stream: self._by(mechanism, stream)


def _counted() -> Handle:
    return dataset("people", columns={"group": ["a", "b", "c"]})["group"].histogram()


def _ordinary(mechanism: Mechanism, distance: float) -> list[Values]:
    """Return pairs of vectors, and of numbers, at a distance in the mechanism's norm."""
    move = np.full(3, distance)
    if mechanism.norm == 1:
        move = np.array([distance, 0.0, 0.0])
    elif mechanism.norm == 2:
        move = np.full(3, distance / math.sqrt(3) * (1 - 1e-15))
    start = np.array([0.0, 1 / 3, 2.0])
    found: list[Values] = [(start, start + move)]
    if mechanism.norm != 1:
        found.append((start, start + np.array([distance, 0.0, 0.0])))
    if mechanism.uses_span or mechanism.is_selection or mechanism.shape((3,)) != (3,):
        return [*found, (start, start + move * np.array([1.0, -1.0, 1.0]))]
    return [(np.array(0.0), np.array(distance)), (np.array(0.0), np.array(distance * 1e-5)), *found]


def _worst(plan: Pipeline, query: Handle, numeric: bool) -> list[Values]:
    """Return the values of neighbours that are the farthest apart; of other values, some."""
    found: list[tuple[float, Values]] = []
    for pair in itertools.islice(gallery(plan), 40):
        try:
            one, two = (query_value(plan, query, data) for data in (pair.first, pair.second))
        except Exception:  # it is a finding of the search
            continue
        move = float(np.abs(np.asarray(one) - np.asarray(two)).sum()) if numeric else 1.0
        if move > 0:
            found.append((move, (one, two)))
    return [values for _, values in sorted(found, key=lambda f: -f[0])]


def _gives(query: Handle) -> type:
    assert isinstance(query.operation, Query)
    return query.operation.output_type
