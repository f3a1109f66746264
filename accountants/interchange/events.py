"""What each event of dp-accounting becomes; see `accountants.interchange`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from accountants.errors import (
    DomainError,
    InapplicableError,
    nonnegative,
    positive,
    probability,
    whole,
)
from accountants.losses.approximate import Approximate
from accountants.losses.composite import Composite
from accountants.losses.discrete_laplace import DiscreteLaplace
from accountants.losses.gaussian import Gaussian
from accountants.losses.given_curve import ZeroConcentrated
from accountants.losses.laplace import Laplace
from accountants.losses.private_selection import PoissonSelection, PrivateSelection
from accountants.losses.pure import Pure
from accountants.losses.randomized_response import RandomizedResponse
from accountants.rounding import ceiling, flooring, up
from accountants.terms import (
    Repeated,
    ReplacedSample,
    Sampled,
    Sequential,
    Spend,
    Subset,
    Term,
)
from accountants.world import worlds

_NOTHING = Sequential(())

_OPEN = Spend(Approximate(epsilon=0.0, delta=1.0))
"""Nothing is promised."""


def read_event(event: Any, neighbors: str) -> Term:
    """Return the term of an event."""
    name = type(event).__name__
    if type(event).__module__.partition(".")[0] != "dp_accounting":
        raise DomainError(f"from_dp_event needs a DpEvent of dp_accounting, got {event!r}")
    if name not in _READERS:
        raise InapplicableError(f"{name} has no equal term")
    return _READERS[name](event, neighbors)


def _refused_event(what: str, neighbors: str) -> InapplicableError:
    return InapplicableError(f"{what} has no equal term under {neighbors} neighbours")


def norms(neighbors: str) -> int:
    """Return how many times a record's norm counts."""
    return 2 if neighbors == "replace_one" else 1


def _ratio(multiplier: float, name: str, neighbors: str) -> float:
    """Return the shift in units of the noise, rounded up; infinite without noise."""
    noise = nonnegative(f"{name}'s noise", multiplier, finite=False)
    if noise == 0:
        return math.inf
    return 0.0 if math.isinf(noise) else ceiling(norms(neighbors) / Fraction(noise))


def _gaussian(event: Any, neighbors: str) -> Term:
    mu = _ratio(event.noise_multiplier, "GaussianDpEvent", neighbors)
    return Spend(Gaussian(mu)) if mu < math.inf else _OPEN


def _laplace(event: Any, neighbors: str) -> Term:
    eps = _ratio(event.noise_multiplier, "LaplaceDpEvent", neighbors)
    return Spend(Laplace(eps)) if eps < math.inf else _OPEN


def _discrete_laplace(event: Any, neighbors: str) -> Term:
    noise = nonnegative("DiscreteLaplaceDpEvent.noise_parameter", event.noise_parameter)
    shift = whole("DiscreteLaplaceDpEvent.sensitivity", event.sensitivity, least=0)
    if shift == 0 or noise == 0:  # an infinite scale hides everything
        return _NOTHING
    scale = flooring(1 / Fraction(noise))
    return Spend(DiscreteLaplace(scale, shift * norms(neighbors))) if scale > 0 else _OPEN


def _read_response(event: Any, neighbors: str) -> Term:
    """Return the loss of ``log((1 - p + p/k) / (p/k))``; 1 - p is exact where that is small."""
    buckets = whole("RandomizedResponseDpEvent.num_buckets", event.num_buckets)
    noise = probability("RandomizedResponseDpEvent.noise_parameter", event.noise_parameter)
    if buckets == 1 or noise == 1:
        return _NOTHING
    if neighbors != "replace_one":
        raise _refused_event("RandomizedResponseDpEvent", neighbors)
    ratio = buckets * (1 - noise) / noise if noise > 0 else math.inf
    if ratio == math.inf:
        return _OPEN
    eps = up(math.log1p(ratio), 16)
    return Spend(Pure(eps) if buckets == 2 else RandomizedResponse(eps, buckets))


def _zcdp(event: Any, neighbors: str) -> Term:
    rho = nonnegative("ZCDpEvent.rho", event.rho)
    if nonnegative("ZCDpEvent.xi", event.xi) > 0:
        raise _refused_event("ZCDpEvent with a xi", neighbors)
    return Spend(ZeroConcentrated(rho))


def _read_self_composed(event: Any, neighbors: str) -> Term:
    times = whole("SelfComposedDpEvent.count", event.count, least=0)
    return Repeated(read_event(event.event, neighbors), times)


def _read_composed(event: Any, neighbors: str) -> Term:
    return Sequential([read_event(part, neighbors) for part in event.events])


def _body(term: Term) -> Composite:
    (world,) = worlds(term)
    return Composite(world.spends)


def _poisson(event: Any, neighbors: str) -> Term:
    """Return the sample; under replace_one of a body for units that are present or absent."""
    rate = probability("PoissonSampledDpEvent.sampling_probability", event.sampling_probability)
    if neighbors != "replace_one":
        return Sampled(read_event(event.event, neighbors), rate)
    return _bounded(
        "PoissonSampledDpEvent", ReplacedSample(read_event(event.event, "add_remove"), rate)
    )


def _subset(event: Any, neighbors: str) -> Term:
    name = "SampledWithoutReplacementDpEvent"
    if neighbors != "replace_one":
        raise _refused_event(name, neighbors)
    body = read_event(event.event, neighbors)
    return _bounded(name, Subset(body, size=event.sample_size, of=event.source_dataset_size))


def _bounded(name: str, term: Term) -> Term:
    """Return the term, or refuse the event that it came from where its losses do not fit it."""
    try:
        worlds(term)
    except InapplicableError as inner:
        raise InapplicableError(f"{name} has no equal term under replace_one: {inner}") from inner
    return term


def _tree(event: Any, neighbors: str) -> Term:
    """Return one Gaussian a level: a unit enters one leaf, and with it the sums above it.

    Under ``add_remove`` those that come after it would change their leaves.
    """
    if neighbors != "zero_out":
        raise _refused_event("SingleEpochTreeAggregationDpEvent", neighbors)
    counts = event.step_counts
    steps = counts if isinstance(counts, Iterable) else [counts]
    deepest = max((whole("step_counts", n, least=0) for n in steps), default=0).bit_length()
    mu = _ratio(event.noise_multiplier, "SingleEpochTreeAggregationDpEvent", neighbors)
    if deepest == 0:
        return _NOTHING
    return Repeated(Spend(Gaussian(mu)), deepest) if mu < math.inf else _OPEN


def _mixture(event: Any, neighbors: str) -> Term:
    """Return the sampled Gaussian, where there is one shift beside none."""
    deviation = nonnegative("MixtureOfGaussiansDpEvent's deviation", event.standard_deviation)
    moves, chances = list(event.sensitivities), list(event.sampling_probs)
    whole_law = len(moves) == len(chances) and abs(math.fsum(chances) - 1) <= 1e-9
    if not whole_law:
        raise DomainError(
            "MixtureOfGaussiansDpEvent.sampling_probs must be one for each sensitivity, and add up "
            f"to 1; got {chances} for {moves}"
        )
    shifts: dict[Fraction, Fraction] = {}
    for shift, chance in zip(moves, chances, strict=True):
        size = Fraction(nonnegative("MixtureOfGaussiansDpEvent's sensitivity", shift))
        rate = Fraction(probability("MixtureOfGaussiansDpEvent's probability", chance))
        if size and rate:
            shifts[size] = shifts.get(size, Fraction()) + rate
    if not shifts:
        return _NOTHING
    if neighbors == "replace_one" or len(shifts) > 1:
        raise _refused_event(f"MixtureOfGaussiansDpEvent with {len(shifts)} shifts", neighbors)
    ((size, rate),) = shifts.items()
    mu = ceiling(size / Fraction(deviation)) if deviation else math.inf
    inner = Spend(Gaussian(mu)) if mu < math.inf else _OPEN
    return Sampled(inner, min(1.0, ceiling(rate)))


def _selection(event: Any, neighbors: str) -> Term:
    """Return the best of K runs; a mean of one run is that run."""
    mean, shape = positive("RepeatAndSelectDpEvent.mean", event.mean), event.shape
    one = read_event(event.event, neighbors)
    if shape == math.inf:
        return Spend(PoissonSelection(_body(one), mean))
    if mean < 1 or not nonnegative("RepeatAndSelectDpEvent.shape", shape) < math.inf:
        raise DomainError(f"RepeatAndSelectDpEvent.mean must be at least 1, got {mean}")
    if mean == 1:
        return one
    return Spend(PrivateSelection(_body(one), shape, _stopping(mean, shape)))


def _stopping(mean: float, shape: float) -> float:
    """Return the largest gamma, by bisection, of at least so many expected runs.

    Those are known to a relative 1e-12; fewer runs cost less.
    """
    low, high = math.log(1e-100), 0.0
    runs = PrivateSelection(Gaussian(0.0), shape, 1e-100).runs()
    if not mean * (1 + 1e-12) <= runs:
        raise InapplicableError(f"RepeatAndSelectDpEvent of {mean:g} runs has no equal term")
    for _ in range(80):
        middle = (low + high) / 2
        gamma = min(math.exp(middle), 1 - 2**-53)
        enough = PrivateSelection(Gaussian(0.0), shape, gamma).runs() >= mean * (1 + 1e-12)
        low, high = (middle, high) if enough else (low, middle)
    return max(1e-100, math.exp(low))


_READERS: Mapping[str, Callable[[Any, str], Term]] = {
    "NoOpDpEvent": lambda event, neighbors: _NOTHING,
    "NonPrivateDpEvent": lambda event, neighbors: _OPEN,
    "GaussianDpEvent": _gaussian,
    "LaplaceDpEvent": _laplace,
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "RandomizedResponseDpEvent": _read_response,
    "ZCDpEvent": _zcdp,
    "SelfComposedDpEvent": _read_self_composed,
    "ComposedDpEvent": _read_composed,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _subset,
    "SingleEpochTreeAggregationDpEvent": _tree,
    "MixtureOfGaussiansDpEvent": _mixture,
    "RepeatAndSelectDpEvent": _selection,
}
