"""Log-likelihood ratios of mechanisms whose law is known.

A mechanism of one's own may define ``log_likelihood(value, outcomes)``: for a query's value and
outcomes of shape (n, ...), the log-density (or log-mass) of each, up to a constant that does not
depend on the value; shape (n,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accountants import PrivacyLoss
from accountants.errors import DomainError
from accountants.numerics import Array, up
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.distinguishing import distinguish
from adaptive_dp.audit.neighbors import LogRatio, Neighbors, Outcomes, Sampler
from adaptive_dp.audit.result import Audit
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.mechanisms.additive import Gaussian, Laplace
from adaptive_dp.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from adaptive_dp.noise.stream import SecureStream, Stream

INDEPENDENT = (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)
"""They add independent noise to each coordinate: a release of many copies is many releases."""


def log_ratio(mechanism: Mechanism, first: Any, second: Any) -> LogRatio | None:
    """Return the log-likelihood ratio of a mechanism's outcomes; None where it is not known."""
    kind = type(mechanism)  # a subclass may release what it likes
    own = getattr(mechanism, "log_likelihood", None)
    if own is not None:
        return lambda outcomes: np.asarray(own(first, outcomes)) - np.asarray(own(second, outcomes))
    if kind in (Laplace, DiscreteLaplace):
        scale = float(mechanism.parameters()["scale"])
        return _additive_ratio(
            first, second, kind is DiscreteLaplace, lambda away: np.abs(away) / scale
        )
    if kind in (Gaussian, DiscreteGaussian):
        sigma = float(mechanism.parameters()["sigma"])
        return _additive_ratio(
            first, second, kind is DiscreteGaussian, lambda away: (away / sigma) ** 2 / 2
        )
    return None


def _additive_ratio(
    first: Any, second: Any, whole: bool, energy: Callable[[Array], Array]
) -> LogRatio:
    """Return the difference of the energies of the noise, summed over coordinates."""
    a, b = (np.ravel(np.asarray(each, dtype=np.float64)) for each in (first, second))
    if whole:
        a, b = np.round(a), np.round(b)

    def ratio(outcomes: Outcomes) -> Array:
        seen = np.asarray(outcomes, dtype=np.float64).reshape(len(outcomes), -1)
        found: Array = (energy(seen - b) - energy(seen - a)).sum(axis=1)
        return found

    return ratio


# -----------------------------------------------------------------------------
# The audit of one mechanism.


Values = tuple[Any, Any]
"""The query's value on one data set, and on a neighbour of it."""

LOOPED_SAMPLES = 100_000
"""Runs on each side where each takes a call."""

MIN_SAMPLES, MAX_SAMPLES = 1_000_000, 10_000_000
"""Runs on each side where one call makes many; as many as a claim of a large epsilon takes."""


def mechanism(
    audited: Mechanism,
    values: Values | Sequence[Values],
    claim: Claimed | Claim | None = None,
    *,
    samples: int | None = None,
    confidence: float = 0.95,
    delta: float | None = None,
    seed: int | None = None,
    given: Sequence[Any] = (),
    independent: bool | None = None,
) -> Audit:
    """Audit one mechanism on the values that a query takes on neighbouring data sets.

    Where the mechanism's law is known, the likelihood ratio is among the scores that the audit
    learns its event from: that of the library's additive noises, and of any mechanism that defines
    ``log_likelihood(value, outcomes)``. An error in one run is an outcome like any other.

    Parameters
    ----------
    audited
        The mechanism, with fixed parameters.
    values
        A pair of values (a tuple of two), or a list of pairs, each of values that neighbours
        could have.
    claim
        By default the mechanism's own loss at the largest distance of a pair, in its norm. Where
        that cannot be read from the values (a norm of 0 counts rows), one row is taken.
    samples
        Runs on each side; by default 100,000, and a million or more, for a large epsilon up to ten,
        where one call makes many.
    confidence, delta, seed
        As for `distinguish`.
    given
        The released values that `release` gets beside the stream.
    independent
        Whether coordinates get independent noise of one law, so that one call on many copies of
        the value is as many runs. By default it is, for the four additive noises of the library.
        To say so of another mechanism is an assumption of the audit.

    Raises
    ------
    DomainError
        If a parameter is free, the values' shapes differ, or as `distinguish` says.

    References
    ----------
    Clopper and Pearson 1934, of guesses on draws that chose nothing; see the docstrings of
    `adaptive_dp.audit.confidence` and `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> found = mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), claim=1.0, samples=10_000, seed=1)
    >>> found.verdict, found.epsilon_lower > 1.8
    ('violation', True)
    """
    allowed_error(confidence)
    if audited.free():
        names = ", ".join(sorted(audited.free()))
        raise DomainError(f"{type(audited).__name__} has free parameters: {names}; give numbers")
    listed = isinstance(values, Sequence) and not isinstance(values, tuple)
    pairs: list[Any] = list(values) if listed else [values]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise DomainError(
                "values must be a pair of two values as a tuple, or a list of such pairs"
            )
    proven = type(audited) in INDEPENDENT
    batched = proven if independent is None else independent
    sides = [_neighbors(audited, one, two, tuple(given), batched) for one, two in pairs]
    held = as_claim(_declared_loss(audited, pairs) if claim is None else claim, delta)
    width = max((np.size(each) for pair in pairs for each in pair), default=1)
    assumed = "coordinates get independent noise of one law" if batched and not proven else None
    return distinguish(
        sides,
        held,
        samples=_default_samples(held, batched, width) if samples is None else samples,
        confidence=confidence,
        seed=seed,
        assumptions=[assumed] if assumed else [],
    )


def _default_samples(held: Claim, batched: bool, width: int) -> int:
    if not batched:
        return LOOPED_SAMPLES
    largest = max(epsilon for epsilon, _ in held.points)
    wanted = min(MAX_SAMPLES, max(MIN_SAMPLES, 1000 * math.exp(min(largest, 20.0))))
    return max(LOOPED_SAMPLES, round(wanted / max(1, width)))


def _declared_loss(audited: Mechanism, pairs: Sequence[Values]) -> PrivacyLoss:
    """Return the loss that the mechanism declares, at the largest distance of a pair."""
    if audited.norm == 0 or not all(_is_numeric(each) for pair in pairs for each in pair):
        return audited.loss(1)
    moves = [np.ravel(np.asarray(a, float) - np.asarray(b, float)) for a, b in pairs]
    distance = max(_norm(each, audited.norm) for each in moves)
    if audited.uses_span:
        span = max(float(each.max(initial=0.0) - each.min(initial=0.0)) for each in moves)
        return audited.loss(distance, up(max(span, distance), 4))  # type: ignore[call-arg]
    whole = all(bool(np.all(np.asarray(e, float) % 1 == 0)) for pair in pairs for e in pair)
    return audited.cost(distance, max(len(each) for each in moves), 1.0 if whole else 0.0)


def _norm(move: Any, norm: float) -> float:
    size = float(np.linalg.norm(move, ord=norm)) if len(move) else 0.0
    return size if size == round(size) else up(size, 4 + 2 * len(move))


def _is_numeric(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fiub"


def _neighbors(
    audited: Mechanism, first: Any, second: Any, given: tuple[Any, ...], batched: bool
) -> Neighbors:
    if _is_numeric(first) and _is_numeric(second) and np.shape(first) != np.shape(second):
        raise DomainError(
            f"the values of a pair must have one shape, got {np.shape(first)} and "
            f"{np.shape(second)}; pad them"
        )
    words = f"{_format_value(first)} against {_format_value(second)}"
    make = _batch_sampler if batched else _loop_sampler
    if not batched:
        _check_runs(audited, first, second, given)
    return Neighbors(
        words,
        make(audited, first, given),
        make(audited, second, given),
        log_ratio(audited, first, second),
    )


def _format_value(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _batch_sampler(audited: Mechanism, value: Any, given: tuple[Any, ...]) -> Sampler:
    one = np.asarray(value, dtype=np.float64)

    def sample(count: int, stream: Stream) -> Outcomes:
        many = np.broadcast_to(one, (count, *one.shape)).copy()
        return np.asarray(audited.release(many, stream, *given))

    return sample


def _loop_sampler(audited: Mechanism, value: Any, given: tuple[Any, ...]) -> Sampler:
    plain = _is_numeric(value)
    one = np.asarray(value, dtype=np.float64) if plain else value

    def sample(count: int, stream: Stream) -> Outcomes:
        found: list[Any] = []
        for _ in range(count):
            try:
                found.append(audited.release(one.copy() if plain else one, stream, *given))
            except Exception as error:
                found.append(_Raised(type(error).__name__))
        return _stack(found)

    return sample


class _Raised:
    """An outcome: the run failed. Its message is not kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"raised {self.name}"


def _stack(found: list[Any]) -> Outcomes:
    """Return outcomes as one array where they all are numbers, or arrays of one shape."""
    shapes = {each.shape if isinstance(each, np.ndarray | np.generic) else None for each in found}
    if len(shapes) != 1 or None in shapes:
        return found
    many = np.array(found)
    return many if many.dtype.kind in "fiub" else found


def _check_runs(audited: Mechanism, first: Any, second: Any, given: tuple[Any, ...]) -> None:
    """Run once on each side; where both fail, the audit was asked for wrongly, and says why."""
    failed: list[Exception] = []
    for value in (first, second):
        one = np.array(value, dtype=np.float64) if _is_numeric(value) else value
        try:
            audited.release(one, SecureStream(), *given)
        except Exception as error:
            failed.append(error)
    if len(failed) == 2:
        raise failed[0]
