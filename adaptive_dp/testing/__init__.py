"""Tests for a mechanism or a query of your own: two lines check its whole contract.

>>> import adaptive_dp as dp
>>> from adaptive_dp.testing import check
>>> check(dp.DiscreteLaplace(scale=2.0), samples=1000)
<examined DiscreteLaplace(scale=2): 0 finding(s)>

A mechanism that passes is not proven; one that fails is broken. The checks are

* a query's declared sensitivity, by search over adversarial neighbours;
* the loss, by its own laws and those that relate different distances;
* the release, by an audit, and what its floats reveal beside their value;
* bad and extreme parameters;
* that all noise is drawn from the stream, afresh, and that nothing is kept.
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
from adaptive_dp.graph.mechanism import Mechanism, UnitsByKey
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import deep_copy
from adaptive_dp.mechanisms.additive import Laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.table import dataset
from adaptive_dp.testing.checks import (
    Finding,
    Report,
    absorption_problems,
    audit_problems,
    bit_problems,
    calibration_problems,
    declared_sensitivities,
    freshness_problems,
    loss_of,
    loss_problems,
    nonfinite_problems,
    parameter_problems,
    retention_problems,
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
    """Raise `AssertionError` with all findings, if there are any; else return the report.

    The parameters are those of `examine`.
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
    """Return a report of all that is wrong with a mechanism, with a query, or with both together.

    Parameters
    ----------
    subject
        A mechanism with fixed parameters; or a query's handle, such as ``people["x"].sum()``.
    query
        A query's handle for the mechanism to release: its sensitivity is searched, and the audit
        takes the values of its worst neighbours. It must not depend on other releases.
    values
        Without a query, pairs of values that neighbours can have, to audit; by default numbers and
        vectors at ``distance`` in the mechanism's norm. A mechanism whose input is not an array of
        numbers needs them, or a query.
    distance
        The distance of the values in the mechanism's norm; with a query, its sensitivity is used.
    given
        The released values that `Mechanism.release` takes after the stream.
    samples
        Runs on each side of each audited pair.
    seed
        The seed of audits and searches; freshness is tested with the operating system's randomness.
        The probability that a sound subject has a finding by chance is below 1e-6.
    only
        The names of the checks to make, as reports list them; all by default.

    Returns
    -------
    Report
        ``report.findings`` is empty where every check passed.

    Raises
    ------
    DeclarationError
        If the subject is neither a mechanism nor a query, has free parameters, lacks values that it
        needs, or has no check of a name in ``only``.
    """
    # a query alone is the subject; beside a mechanism it is the second argument
    mechanism = subject if isinstance(subject, Mechanism) else None
    query = subject if isinstance(subject, Handle) else query
    if mechanism is None and query is None:
        raise DeclarationError(
            f"subject must be a mechanism or a query's handle, got {type(subject).__name__}; give "
            "values to a mechanism class's parameters first"
        )
    if mechanism is not None and mechanism.free():
        raise DeclarationError("the mechanism has free parameters; give numbers")
    examination = _Examination(mechanism, query, values, distance, tuple(given), samples, seed)
    findings: list[Finding] = []
    checked: list[str] = []
    names: list[str] = []
    # checks are generators: a problem is searched only where its check was asked for
    for name, problems in examination.checks():
        names.append(name)
        if only and name not in only:
            continue
        checked.append(name)
        try:
            findings += [Finding(name, problem) for problem in problems]
        # an exception is a finding about the subject, and the other checks go on
        except Exception as error:
            findings.append(Finding(name, f"it raises {type(error).__name__}: {error}"))
    # a `str` is a sequence of letters, each of which would be an unknown check
    unknown = [only] if isinstance(only, str) else [name for name in only if name not in checked]
    if unknown:
        raise DeclarationError(
            f"only must list checks that {examination.subject} has: {', '.join(names)}; got "
            f"{', '.join(map(repr, unknown))}"
        )
    return Report(examination.subject, tuple(findings), tuple(checked), tuple(examination.notes))


class _Examination:
    """A mechanism, a query or both, with the values that the checks release."""

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
            if mechanism is None and _output_type(query) is not np.ndarray:
                raise DeclarationError(
                    f"the output of a {query.operation.kind} is not an array; examine it with a "
                    "mechanism that reads it"
                )
            # a query alone is released by Laplace noise, so that there is a plan to search in
            releasing = mechanism or Laplace(scale=1.0)
            self.plan = Pipeline(out=query.release(releasing))  # type: ignore[attr-defined]
        names = [str(mechanism)] if mechanism is not None else []
        names += [query.operation.label()] if query is not None else []
        self.subject = " of ".join(names)
        if mechanism is not None:
            self._prepare(mechanism, values, distance)

    def _prepare(
        self, mechanism: Mechanism, values: Sequence[Values] | None, distance: float
    ) -> None:
        """Choose the pairs of values to audit, and their distance."""
        self.numeric = mechanism.input_type is np.ndarray
        # in norm 0 values differ or do not: their distance is 1
        self.distance = 1.0 if mechanism.norm == 0 else distance
        if self.plan is not None and self.query is not None:
            if self.numeric:
                # with a query the distance is its declared sensitivity in the mechanism's norm
                self.distance = declared_sensitivities(self.plan, self.query)[mechanism.norm]
            self.pairs = _query_pairs(self.plan, self.query, self.numeric)
        elif values is not None:
            self.pairs = list(values)
        else:
            if not self.numeric:
                raise DeclarationError(
                    f"{type(mechanism).__name__} reads {mechanism.input_type.__name__}; pass a "
                    "query, or values"
                )
            self.pairs = _default_pairs(mechanism, distance)
        if not self.pairs:
            raise DeclarationError("no pair of different values was found to audit")
        if len(self.given) != mechanism.released_inputs:
            raise DeclarationError(
                f"{type(mechanism).__name__} takes {mechanism.released_inputs} released values, "
                f"got {len(self.given)}; pass them as given=[...]"
            )
        # three pairs at most: each is audited with all samples on both sides
        self.pairs = self.pairs[:3]

    def checks(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield each check with its problems."""
        mechanism, query, plan = self.mechanism, self.query, self.plan
        if query is not None and plan is not None:
            if _output_type(query) in (np.ndarray, UnitsByKey):
                yield (
                    "sensitivity",
                    sensitivity_problems(plan, query, limit=200, rounds=100, seed=self.seed),
                )
            else:
                self.notes.append(
                    "the query's output is no array, nor keys: its sensitivity was not checked"
                )
        if mechanism is None:
            return
        yield "loss", loss_problems(mechanism, self.distance)
        if query is not None and not mechanism.released_inputs:
            yield "calibration", calibration_problems(mechanism, query)
        elif self.numeric and not mechanism.released_inputs:
            yield "calibration", calibration_problems(mechanism, _histogram())
        yield "parameters", parameter_problems(mechanism, self.distance, self._release_once)
        values = [pair[0] for pair in self.pairs]
        yield "shape", shape_problems(mechanism, self._release, values)
        yield "freshness", freshness_problems(mechanism, self._release_function, self.notes)
        if self.numeric:
            shape = np.shape(values[0])
            yield "forgetting", retention_problems(mechanism, self._release, shape)
            yield "large values", absorption_problems(self._release, shape, self.distance)
            yield "odd values", nonfinite_problems(self._release, shape)
        yield "audit", self._audit()
        few = min(self.samples, 4000)
        yield (
            "low bits",
            bit_problems(self._release, self.pairs, self._declared_loss(), few, self.seed),
        )

    def _declared_loss(self) -> PrivacyLoss:
        """Return the loss of releasing these values, with what rounding them adds."""
        assert self.mechanism is not None
        if self.mechanism.uses_span or not self.numeric:
            return loss_of(self.mechanism, self.distance)
        values = [np.asarray(value, dtype=np.float64) for pair in self.pairs for value in pair]
        # values known to be integers move less when the mechanism rounds them to its step
        are_integers = all(bool(np.all(value % 1 == 0)) for value in values)
        width = max(value.size for value in values)
        return self.mechanism.cost(self.distance, width, 1.0 if are_integers else 0.0)

    def _audit(self) -> Iterator[str]:
        """Yield what an audit of the release refutes."""
        assert self.mechanism is not None
        yield from audit_problems(
            self.mechanism, self.pairs, self._declared_loss(), self.given, self.samples, self.seed
        )

    def _release(self, value: Any, stream: Stream) -> Any:
        """Release a value by the examined mechanism."""
        return self._release_by(self.mechanism, value, stream)

    def _release_by(self, mechanism: Any, value: Any, stream: Stream) -> Any:
        """Release a copy of a value, and of the released inputs, by a mechanism."""
        # copies: a mechanism that changes its arguments must not change what other checks release
        given = [deep_copy(each) for each in self.given]
        if self.numeric:
            value = np.array(value, dtype=np.float64)
        return mechanism.release(value, stream, *given)

    def _release_once(self, mechanism: Mechanism, stream: Stream) -> Any:
        """Release the first value by a mechanism."""
        return self._release_by(mechanism, self.pairs[0][0], stream)

    def _release_function(self, mechanism: Mechanism) -> Callable[[Stream], Any]:
        """Return the release of the first value by a mechanism, as a function of the stream."""
        return lambda stream: self._release_once(mechanism, stream)


def _histogram() -> Handle:
    """Return a query of three counts, to calibrate a mechanism that comes without one."""
    return dataset("people", columns={"group": ["a", "b", "c"]})["group"].histogram()


def _default_pairs(mechanism: Mechanism, distance: float) -> list[Values]:
    """Return pairs of vectors, and of numbers, at a distance in the mechanism's norm."""
    # in the maximum norm every coordinate moves by the whole distance
    move = np.full(3, distance)
    if mechanism.norm == 1:
        # the distance in one coordinate
        move = np.array([distance, 0.0, 0.0])
    elif mechanism.norm == 2:
        # rounded down a little: the norm of the move may not exceed the distance
        move = np.full(3, distance / math.sqrt(3) * (1 - 1e-15))
    start = np.array([0.0, 1 / 3, 2.0])
    pairs: list[Values] = [(start, start + move)]
    if mechanism.norm != 1:
        pairs.append((start, start + np.array([distance, 0.0, 0.0])))
    if mechanism.uses_span or mechanism.is_selection or mechanism.shape((3,)) != (3,):
        # moves of both signs, for mechanisms that look at more than one coordinate at once
        return [*pairs, (start, start + move * np.array([1.0, -1.0, 1.0]))]
    # for additive noise a number, which has the most power, and one that moves by little
    return [(np.array(0.0), np.array(distance)), (np.array(0.0), np.array(distance * 1e-5)), *pairs]


def _query_pairs(plan: Pipeline, query: Handle, numeric: bool) -> list[Values]:
    """Return pairs of neighbours' values, the farthest apart first where they are arrays."""
    candidates: list[tuple[float, Values]] = []
    for pair in itertools.islice(gallery(plan), 40):
        try:
            one, two = (query_value(plan, query, data) for data in (pair.first, pair.second))
        except Exception:  # the check of the sensitivity reports it
            continue
        # the farthest apart in the l1 norm; values that are not arrays count alike
        move = float(np.abs(np.asarray(one) - np.asarray(two)).sum()) if numeric else 1.0
        if move > 0:
            candidates.append((move, (one, two)))
    return [values for _, values in sorted(candidates, key=lambda pair: -pair[0])]


def _output_type(query: Handle) -> type:
    assert isinstance(query.operation, Query)
    return query.operation.output_type
