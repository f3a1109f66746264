"""Terms to and from the events of Google's dp-accounting."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal, get_args

from accountants.errors import (
    DomainError,
    InapplicableError,
    integer,
    nonnegative,
    positive,
    probability,
)
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.losses.discrete import DiscreteLaplace, RandomizedResponse
from accountants.losses.gaussian import Gaussian
from accountants.losses.given import ZeroConcentrated
from accountants.losses.laplace import Laplace
from accountants.losses.mixture import GaussianMixture, mixture_of
from accountants.losses.pure import Approximate, Pure
from accountants.losses.sampling import FixedSize
from accountants.losses.sampling import ReplacedSample as ReplacedSampleLoss
from accountants.losses.sampling import Sampled as SampledLoss
from accountants.losses.selection import PoissonSelection, PrivateSelection
from accountants.numerics import ceiling, down, flooring, up
from accountants.terms import (
    Grouped,
    Parallel,
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
        why = _UNREADABLE.get(name, "it is unknown here")
        raise InapplicableError(f"{name} has no equal term: {why}")
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
    shift = integer("DiscreteLaplaceDpEvent.sensitivity", event.sensitivity, least=0)
    if shift == 0 or noise == 0:  # an infinite scale hides everything
        return _NOTHING
    scale = flooring(1 / Fraction(noise))
    return Spend(DiscreteLaplace(scale, shift * norms(neighbors))) if scale > 0 else _OPEN


def _read_response(event: Any, neighbors: str) -> Term:
    """Return the loss of ``log((1 - p + p/k) / (p/k))``; 1 - p is exact where that is small."""
    buckets = integer("RandomizedResponseDpEvent.num_buckets", event.num_buckets)
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
    times = integer("SelfComposedDpEvent.count", event.count, least=0)
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
    deepest = max((integer("step_counts", n, least=0) for n in steps), default=0).bit_length()
    mu = _ratio(event.noise_multiplier, "SingleEpochTreeAggregationDpEvent", neighbors)
    if deepest == 0:
        return _NOTHING
    return Repeated(Spend(Gaussian(mu)), deepest) if mu < math.inf else _OPEN


def _mixture(event: Any, neighbors: str) -> Term:
    """Return the mixture; where there is one shift beside none, the sampled Gaussian."""
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
    if neighbors == "replace_one":
        raise _refused_event("MixtureOfGaussiansDpEvent", neighbors)
    if len(shifts) > 1 and deviation:
        return Spend(mixture_of({s / Fraction(deviation): p for s, p in shifts.items()}))
    size, rate = max(shifts), sum(shifts.values(), Fraction())
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


_UNREADABLE: Mapping[str, str] = {
    "DpEvent": "it is the base of all events, and says nothing",
    "UnsupportedDpEvent": "it says that no event describes the mechanism",
    "SampledWithReplacementDpEvent": "a unit may be drawn more than once, which no sampling term "
    "here allows, nor any accountant of dp-accounting",
    "TruncatedSubsampledGaussianDpEvent": "a batch that is cut off depends on the other units; "
    "without truncation it is a PoissonSampledDpEvent",
}
"""Events of dp-accounting 0.6 that are refused, and why."""

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


# -----------------------------------------------------------------------------
# What each term becomes among dp-accounting's events.


def written_term(term: Term, neighbors: str) -> Any:
    """Return the event of a term."""
    match term:
        case Spend(loss=loss):
            return _event(loss, neighbors)
        case Sequential(parts=parts):
            return _written_composition(written_term(part, neighbors) for part in parts)
        case Repeated(part=part, times=times):
            return _written_repeats(written_term(part, neighbors), times)
        case Sampled(part=part, rate=rate):
            return _sampled(written_term(part, neighbors), rate, neighbors)
        case ReplacedSample(part=part, rate=rate) if neighbors == "replace_one":
            return _events().PoissonSampledDpEvent(rate, written_term(part, "add_remove"))
        case Subset(part=part, size=size, of=of) if neighbors == "replace_one":
            return _events().SampledWithoutReplacementDpEvent(
                of, size, written_term(part, neighbors)
            )
        case Parallel(choices=(only,)):
            return written_term(only, neighbors)
        case Grouped():
            return _grouped(term, neighbors)
    raise _refused_loss(type(term).__name__, neighbors)


def _events() -> Any:
    try:
        return importlib.import_module("dp_accounting.dp_event")
    except ImportError as missing:
        raise ImportError(
            "to_dp_event needs dp-accounting: pip install 'adaptive-dp[interchange]'"
        ) from missing


def _event(loss: PrivacyLoss, neighbors: str) -> Any:
    events = _events()
    match loss:
        case Gaussian():
            return _noisy(events.GaussianDpEvent, loss.mu(), neighbors)
        case Laplace(epsilon=eps):
            return _noisy(events.LaplaceDpEvent, eps, neighbors)
        case DiscreteLaplace():
            return _discrete(loss, neighbors)
        case ZeroConcentrated():
            return events.ZCDpEvent(loss.rho())
        case Approximate(delta=1.0):
            return events.NonPrivateDpEvent()
        case Pure(epsilon=eps) | Approximate(epsilon=eps, delta=0.0):
            return _written_response(eps, 2, neighbors)
        case GaussianMixture(opposite_shifts=()) if neighbors != "replace_one":
            rest = max(0.0, 1 - math.fsum(loss.probabilities))
            return events.MixtureOfGaussiansDpEvent(
                1.0, [0.0, *loss.shifts], [rest, *loss.probabilities]
            )
        case RandomizedResponse(epsilon=eps, categories=categories):
            return _written_response(eps, categories, neighbors)
        case Composite(spends=spends):
            return _spends(spends, neighbors)
        case SampledLoss(body=body, rate=rate):
            return _sampled(_event(body, neighbors), rate, neighbors)
        case ReplacedSampleLoss() | FixedSize() if neighbors == "replace_one":
            return _exchanged(loss)
        case PrivateSelection(base=base, shape=shape) if shape >= 0:
            return events.RepeatAndSelectDpEvent(_event(base, neighbors), loss.runs(), shape)
        case PoissonSelection(base=base, mean=mean) if mean >= 1:
            return events.RepeatAndSelectDpEvent(_event(base, neighbors), mean, math.inf)
    raise _refused_loss(repr(loss), neighbors)


def _refused_loss(what: str, neighbors: str) -> InapplicableError:
    return InapplicableError(f"{what} has no equal DpEvent under {neighbors} neighbours")


def _noisy(kind: Callable[[float], Any], ratio: float, neighbors: str) -> Any:
    if ratio == 0:
        return _events().NoOpDpEvent()
    return kind(min(flooring(norms(neighbors) / Fraction(ratio)), sys.float_info.max))


def _discrete(loss: DiscreteLaplace, neighbors: str) -> Any:
    shift, odd = divmod(loss.sensitivity, norms(neighbors))
    if odd:
        raise _refused_loss(f"{loss!r}, of an odd sensitivity,", neighbors)
    return _events().DiscreteLaplaceDpEvent(ceiling(1 / Fraction(loss.scale)), shift)


def _written_response(eps: float, buckets: int, neighbors: str) -> Any:
    """Return the response with ``p = k / (e^eps - 1 + k)``."""
    if eps == 0:
        return _events().NoOpDpEvent()
    if neighbors != "replace_one":
        raise _refused_loss("randomized response", neighbors)
    less = math.exp(-eps)
    noise = buckets * less / (less * (buckets - 1) + 1)
    return _events().RandomizedResponseDpEvent(max(0.0, down(noise, 16 + 4 * eps)), buckets)


def _exchanged(loss: ReplacedSampleLoss | FixedSize) -> Any:
    events = _events()
    if isinstance(loss, ReplacedSampleLoss):  # the body's units are present or absent
        return events.PoissonSampledDpEvent(loss.rate, _event(loss.body, "add_remove"))
    body = _event(loss.body, "replace_one")
    return events.SampledWithoutReplacementDpEvent(loss.of, loss.size, body)


def _spends(spends: Iterable[tuple[PrivacyLoss, int]], neighbors: str) -> Any:
    parts = [_written_repeats(_event(loss, neighbors), n) for loss, n in spends]
    return parts[0] if len(parts) == 1 else _written_composition(parts)


def _written_composition(parts: Iterable[Any]) -> Any:
    every = list(parts)
    return _events().ComposedDpEvent(every) if every else _events().NoOpDpEvent()


def _written_repeats(event: Any, times: int) -> Any:
    if times == 1:
        return event
    return _events().SelfComposedDpEvent(event, times) if times else _events().NoOpDpEvent()


def _sampled(event: Any, rate: float, neighbors: str) -> Any:
    if neighbors == "replace_one":
        raise _refused_loss("Sampled, whose units are present or absent,", neighbors)
    return _events().PoissonSampledDpEvent(rate, event)


def _grouped(term: Term, neighbors: str) -> Any:
    every = worlds(term)
    if len(every.alternatives) > 1 or not every.exact:
        raise InapplicableError("a group's loss has no equal DpEvent, only a larger one")
    return _spends(next(iter(every)).spends.items(), neighbors)


# -----------------------------------------------------------------------------
# Terms to and from the ``DpEvent`` of Google's dp-accounting, so that either can check the other.
#
# An event fixes a mechanism, not who its neighbours are; there an accountant is told. Here the
# relation is told to the conversion, and the term that results holds for it:
#
# =================  ==============================  ==========================================
# ``neighbors``      dp-accounting                   a unit
# =================  ==============================  ==========================================
# ``"add_remove"``   ``ADD_OR_REMOVE_ONE``           is present or absent
# ``"zero_out"``     ``REPLACE_SPECIAL``             is exchanged for a record that adds nothing
# ``"replace_one"``  ``REPLACE_ONE``                 is exchanged for any other
# =================  ==============================  ==========================================
#
# A multiplier is the noise's scale for records of norm 1. Under ``replace_one`` a record's norm
# counts twice, since what it added may turn into its opposite: so dp-accounting's PLD accountant
# has it. Its Renyi accountant charges a Gaussian, Laplace or fixed-size sampled event the same
# under each relation: there a multiplier must be of the norm of a change.
#
# ==================================  ==================================================  ========
# event                               term                                                relation
# ==================================  ==================================================  ========
# NoOp, NonPrivate                    nothing; a loss with delta floor 1                      any
# Gaussian, Laplace, DiscreteLaplace  the loss of that name                               any
# RandomizedResponse                  ``Pure`` (2 buckets), ``RandomizedResponse``        replace
# ZCDp with xi = 0                    ``ZeroConcentrated``                                any
# Composed, SelfComposed              ``Sequential``, ``Repeated``                        any
# PoissonSampled                      ``Sampled``, under replace_one ``ReplacedSample``   any
# SampledWithoutReplacement           ``Subset``                                          replace
# MixtureOfGaussians                  ``Sampled`` Gaussian, ``GaussianMixture``      not replace
# SingleEpochTreeAggregation          Gaussians, one a level                              zero out
# RepeatAndSelect                     ``PrivateSelection``, ``PoissonSelection``          any
# ==================================  ==================================================  ========
#
# Numbers are rounded outward, so a term sent there and back is the same to a few units in the
# last place, and never cheaper. What has no equal on the other side is refused by name.


Neighbors = Literal["add_remove", "zero_out", "replace_one"]


def from_dp_event(event: Any, *, neighbors: Neighbors = "add_remove") -> Term:
    """Return the term of an event, whose losses are exactly the event's but for rounding.

    Parameters
    ----------
    event
        A ``dp_accounting.DpEvent``; that package need not be imported for it.
    neighbors
        The relation that the term shall hold for (see the table above).

    Raises
    ------
    InapplicableError
        Where an event, which the message names, has no equal term under this relation.
    DomainError
        Where the event's own numbers make no sense.

    Examples
    --------
    >>> import dp_accounting
    >>> event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0))
    >>> from_dp_event(dp_accounting.SelfComposedDpEvent(event, 1000))
    Repeated(part=Sampled(part=Spend(loss=Gaussian(mu=0.5), name=''), rate=0.01), times=1000)
    """
    _check_relation(neighbors)
    return read_event(event, neighbors)


def to_dp_event(term: Term, *, neighbors: Neighbors = "add_remove") -> Any:
    """Return the ``DpEvent`` of a term, exactly the same losses but for rounding.

    Parameters
    ----------
    term
        Without parallel choices: an event has one unit's losses, not the worst of several.
    neighbors
        The relation that the term's losses hold for, and that the accountant which receives
        the event must be made with.

    Raises
    ------
    InapplicableError
        Where a loss, which the message names, has no equal event under this relation.
    ImportError
        Where dp-accounting is not installed.

    Examples
    --------
    >>> from accountants import Gaussian, Repeated, Spend
    >>> to_dp_event(Repeated(Spend(Gaussian(mu=0.5)), 10))
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), count=10)
    """
    _check_relation(neighbors)
    return written_term(term, neighbors)


def _check_relation(neighbors: str) -> None:
    if neighbors not in get_args(Neighbors):
        raise DomainError(f"neighbors must be one of {get_args(Neighbors)}, got {neighbors!r}")
