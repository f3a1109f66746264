"""The audit of one mechanism, and the log-likelihood ratios of mechanisms whose law is known.

A user's own mechanism may define ``log_likelihood(value, outcomes)``: for a query's value and
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
from adaptive_dp.graph.values import cut
from adaptive_dp.mechanisms.additive import Gaussian, Laplace
from adaptive_dp.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from adaptive_dp.noise.stream import SecureStream, Stream

INDEPENDENT = (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)
"""Mechanisms with independent noise on each coordinate: one release of many copies of a value is as
many releases."""


def log_ratio(mechanism: Mechanism, first: Any, second: Any) -> LogRatio | None:
    """Return the log-likelihood ratio of a mechanism's outcomes; None where it is not known."""
    kind = type(mechanism)  # not isinstance: a subclass may have another law
    log_likelihood = getattr(mechanism, "log_likelihood", None)
    if log_likelihood is not None:
        return lambda outcomes: (
            np.asarray(log_likelihood(first, outcomes))
            - np.asarray(log_likelihood(second, outcomes))
        )
    if kind in (Laplace, DiscreteLaplace):
        # log-densities: -|x| / b for Laplace
        scale = float(mechanism.parameters()["scale"])
        return _additive_ratio(
            first, second, kind is DiscreteLaplace, lambda distance: np.abs(distance) / scale
        )
    if kind in (Gaussian, DiscreteGaussian):
        # and -(x / sigma)^2 / 2 for the Gaussian, normalising constants cancel in the ratio
        sigma = float(mechanism.parameters()["sigma"])
        return _additive_ratio(
            first, second, kind is DiscreteGaussian, lambda distance: (distance / sigma) ** 2 / 2
        )
    return None


def _additive_ratio(
    first: Any, second: Any, integers: bool, energy: Callable[[Array], Array]
) -> LogRatio:
    """Return the log-ratio of densities proportional to ``exp(-energy(noise))`` per coordinate."""
    a, b = (np.ravel(np.asarray(each, dtype=np.float64)) for each in (first, second))
    # discrete noise lies on the integers, so its law is centred at the rounded value
    if integers:
        a, b = np.round(a), np.round(b)

    def ratio(outcomes: Outcomes) -> Array:
        numbers = np.asarray(outcomes, dtype=np.float64).reshape(len(outcomes), -1)
        # log p_a - log p_b, summed over independent coordinates
        difference: Array = (energy(numbers - b) - energy(numbers - a)).sum(axis=1)
        return difference

    return ratio


# -----------------------------------------------------------------------------
# The audit of one mechanism, on values of a query that neighbouring data sets can have.


Values = tuple[Any, Any]
"""The query's value on one data set, and on a neighbour of it."""

LOOPED_SAMPLES = 100_000
"""Runs on each data set where each takes a call."""

MIN_SAMPLES, MAX_SAMPLES = 1_000_000, 10_000_000
"""Runs on each data set where one call makes many; the more, the larger the claimed epsilon."""


def mechanism(
    audited: Mechanism,
    values: Values | Sequence[Values],
    claim: Claimed | Claim | None = None,
    *,
    samples: int | None = None,
    confidence: float = 0.999,
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
        By default the mechanism's own loss at the largest distance of a pair, in its norm; at
        distance 1 where the values have none (a norm of 0 counts rows).
    samples
        Runs on each value; by default 100,000, and where one call makes many, a million (up to ten
        million for a large claimed epsilon).
    confidence, delta, seed
        As for `distinguish`.
    given
        The released values that `release` takes after the stream.
    independent
        Whether coordinates get independent noise of one law, so that one call on many copies of
        the value is as many runs. By default True for the four additive mechanisms of the library,
        else False. For another mechanism it is an assumption, which the result states.

    Returns
    -------
    Audit
        As `distinguish` returns it.

    Raises
    ------
    DomainError
        If a parameter is free, the shapes of a pair's values differ, or as for `distinguish`.

    References
    ----------
    Clopper and Pearson 1934 (the bounds, on draws that chose nothing); the statements in terms of
    guesses are proven in `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> audit = mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), claim=1.0, samples=10_000, seed=1)
    >>> audit.verdict, audit.epsilon_lower > 1.8
    ('violation', True)
    """
    allowed_error(confidence)
    if audited.free():
        names = ", ".join(sorted(audited.free()))
        raise DomainError(f"{type(audited).__name__} has free parameters: {names}; give numbers")
    # a tuple is one pair, a list several; a list of two numbers is therefore no pair
    is_list = isinstance(values, Sequence) and not isinstance(values, tuple)
    pairs: list[Any] = list(values) if is_list else [values]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise DomainError("values must be a tuple of two values, or a list of such tuples")
    is_known = type(audited) in INDEPENDENT
    is_independent = is_known if independent is None else independent
    neighbors = [
        _neighbors(audited, first, second, tuple(given), is_independent) for first, second in pairs
    ]
    tested_claim = as_claim(_declared_loss(audited, pairs) if claim is None else claim, delta)
    if samples is None:
        width = max((np.size(each) for pair in pairs for each in pair), default=1)
        samples = _default_samples(tested_claim, is_independent, width)
    assumptions = ["coordinates get independent noise of one law"]
    return distinguish(
        neighbors,
        tested_claim,
        samples=samples,
        confidence=confidence,
        seed=seed,
        assumptions=assumptions if is_independent and not is_known else [],
    )


def _default_samples(tested_claim: Claim, is_independent: bool, width: int) -> int:
    if not is_independent:
        # each run takes a call of its own, so samples are few
        return LOOPED_SAMPLES
    largest = max(epsilon for epsilon, _ in tested_claim.points)
    # at a large epsilon wrong guesses have probability about e^-epsilon: samples grow with
    # e^epsilon
    samples = min(MAX_SAMPLES, max(MIN_SAMPLES, 1000 * math.exp(min(largest, 20.0))))
    # a run draws `width` numbers, so that wide values get fewer runs
    return max(LOOPED_SAMPLES, round(samples / max(1, width)))


def _declared_loss(audited: Mechanism, pairs: Sequence[Values]) -> PrivacyLoss:
    """Return the loss that the mechanism declares, at the largest distance of a pair."""
    if audited.norm == 0 or not all(_is_numeric(each) for pair in pairs for each in pair):
        # distance 1 stands for one row: values that are not numbers have no distance
        return audited.loss(1)
    differences = [np.ravel(np.asarray(a, float) - np.asarray(b, float)) for a, b in pairs]
    distance = max(_norm(each, audited.norm) for each in differences)
    if audited.uses_span:
        span = max(float(each.max(initial=0.0) - each.min(initial=0.0)) for each in differences)
        # the span counts as at least the distance, and is rounded up: the claim may only be too
        # weak
        return audited.loss(distance, up(max(span, distance), 4))  # type: ignore[call-arg]
    # the step of the grid on which the values lie: 1 for integers, 0 for any reals
    integers = all(bool(np.all(np.asarray(e, float) % 1 == 0)) for pair in pairs for e in pair)
    return audited.cost(distance, max(len(each) for each in differences), 1.0 if integers else 0.0)


def _norm(difference: Any, norm: float) -> float:
    length = float(np.linalg.norm(difference, ord=norm)) if len(difference) else 0.0
    # a norm that is an integer is exact; any other is rounded up
    return length if length == round(length) else up(length, 4 + 2 * len(difference))


def _is_numeric(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fiub"


def _neighbors(
    audited: Mechanism, first: Any, second: Any, given: tuple[Any, ...], is_independent: bool
) -> Neighbors:
    if _is_numeric(first) and _is_numeric(second) and np.shape(first) != np.shape(second):
        # outcomes of different shapes would tell the two apart, whatever the noise
        raise DomainError(
            f"the values of a pair must have one shape, got {np.shape(first)} and "
            f"{np.shape(second)}; pad them"
        )
    # copies in one call are as many runs only where coordinates are independent
    make_sampler = _batch_sampler if is_independent else _loop_sampler
    # a wrong call would raise in every run, and all outcomes would be equal
    if not is_independent:
        _check_runs(audited, first, second, given)
    return Neighbors(
        f"{_format_value(first)} against {_format_value(second)}",
        make_sampler(audited, first, given),
        make_sampler(audited, second, given),
        log_ratio(audited, first, second),
    )


def _format_value(value: Any) -> str:
    return cut(repr(value.tolist() if isinstance(value, np.ndarray) else value), 60)


def _batch_sampler(audited: Mechanism, value: Any, given: tuple[Any, ...]) -> Sampler:
    array = np.asarray(value, dtype=np.float64)

    def sample(count: int, stream: Stream) -> Outcomes:
        # the first axis counts runs; a copy, since a mechanism may write into its input
        copies = np.broadcast_to(array, (count, *array.shape)).copy()
        return np.asarray(audited.release(copies, stream, *given))

    return sample


def _loop_sampler(audited: Mechanism, value: Any, given: tuple[Any, ...]) -> Sampler:
    query_value = _query_value(value)

    def sample(count: int, stream: Stream) -> Outcomes:
        outcomes: list[Any] = []
        for _ in range(count):
            try:
                outcomes.append(audited.release(_query_value(query_value), stream, *given))
            # an error is an outcome that an observer sees, so it may tell the data sets apart
            except Exception as error:
                outcomes.append(_Raised(type(error).__name__))
        return _stack(outcomes)

    return sample


def _query_value(value: Any) -> Any:
    """Return a copy of a numeric value: a mechanism that changes its input must not see that."""
    return np.array(value, dtype=np.float64) if _is_numeric(value) else value


class _Raised:
    """The outcome of a run that raised: the error's class alone, since messages vary."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"raised {self.name}"


def _stack(outcomes: list[Any]) -> Outcomes:
    """Return outcomes as one array where all are numbers or arrays of one shape."""
    shapes = {
        each.shape if isinstance(each, np.ndarray | np.generic) else None for each in outcomes
    }
    # outcomes of several shapes, or not of numbers, stay a list
    if len(shapes) != 1 or None in shapes:
        return outcomes
    stacked = np.array(outcomes)
    return stacked if stacked.dtype.kind in "fiub" else outcomes


def _check_runs(audited: Mechanism, first: Any, second: Any, given: tuple[Any, ...]) -> None:
    """Run once on each value; where both runs raise, the call is wrong: raise the first error."""
    errors: list[Exception] = []
    for value in (first, second):
        try:
            audited.release(_query_value(value), SecureStream(), *given)
        except Exception as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]
