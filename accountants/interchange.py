"""Terms to and from the ``DpEvent`` of Google's dp-accounting, so that either can check the other.

An event fixes a mechanism, not who its neighbours are; there an accountant is told. Here the
relation is told to the conversion, and the term that results holds for it:

=================  ==============================  ==========================================
``neighbors``      dp-accounting                   a unit
=================  ==============================  ==========================================
``"add_remove"``   ``ADD_OR_REMOVE_ONE``           is present or absent
``"zero_out"``     ``REPLACE_SPECIAL``             is exchanged for a record that adds nothing
``"replace_one"``  ``REPLACE_ONE``                 is exchanged for any other
=================  ==============================  ==========================================

A multiplier is the noise's scale for records of norm 1. Under ``replace_one`` a record's norm
counts twice, since what it added may turn into its opposite: so dp-accounting's PLD accountant
has it for the Gaussian. (Its Renyi accountant has not: there a Gaussian or Laplace event costs
the same under each relation, which under-reports unless the multiplier's norm is that of a
change.)

Numbers are rounded outward, so a term sent there and back is the same to a few units in the
last place, and never cheaper. What has no equal on the other side is refused by name.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal, get_args

from accountants.errors import DomainError, InapplicableError, nonnegative, probability, whole
from accountants.loss import PrivacyLoss
from accountants.losses.approximate import Approximate
from accountants.losses.composite import Composite
from accountants.losses.gaussian import Gaussian
from accountants.losses.laplace import Laplace
from accountants.losses.pure import Pure
from accountants.losses.sampled import Sampled as SampledLoss
from accountants.rounding import ceiling, down, flooring, up
from accountants.terms import Grouped, Parallel, Repeated, Sampled, Sequential, Spend, Term
from accountants.worlds import worlds

Neighbors = Literal["add_remove", "zero_out", "replace_one"]

_NOTHING = Sequential(())


def from_dp_event(event: Any, *, neighbors: Neighbors = "add_remove") -> Term:
    """Return the term of an event, whose losses are exactly the event's but for rounding.

    Parameters
    ----------
    event
        A ``dp_accounting.DpEvent``; that package need not be imported for it.
    neighbors
        The relation that the term shall hold for (see the module's docstring).

    Raises
    ------
    InapplicableError
        Where an event, which the message names, has no equal term under this relation.
    DomainError
        Where the event's own numbers make no sense.
    """
    _known(neighbors)
    name = type(event).__name__
    if type(event).__module__.partition(".")[0] != "dp_accounting":
        raise DomainError(f"from_dp_event needs a DpEvent of dp_accounting, got {event!r}")
    if name not in _READERS:
        raise InapplicableError(f"{name} has no equal term")
    return _READERS[name](event, neighbors)


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
    """
    _known(neighbors)
    match term:
        case Spend(loss=loss):
            return _event(loss, neighbors)
        case Sequential(parts=parts):
            return _composed(to_dp_event(part, neighbors=neighbors) for part in parts)
        case Repeated(part=part, times=times):
            return _self_composed(to_dp_event(part, neighbors=neighbors), times)
        case Sampled(part=part, rate=rate):
            return _sampled_event(to_dp_event(part, neighbors=neighbors), rate, neighbors)
        case Parallel(choices=(only,)):
            return to_dp_event(only, neighbors=neighbors)
        case Grouped():
            return _grouped_event(term, neighbors)
    raise InapplicableError(f"{type(term).__name__} has no equal DpEvent")


def _known(neighbors: str) -> None:
    if neighbors not in get_args(Neighbors):
        raise DomainError(f"neighbors must be one of {get_args(Neighbors)}, got {neighbors!r}")


def _refuse(what: str, neighbors: str) -> InapplicableError:
    return InapplicableError(f"{what} has no equal under {neighbors} neighbours")


# --- events to terms


def _spend(loss: PrivacyLoss, times: int = 1) -> Term:
    return Repeated(Spend(loss), times) if times > 1 else Spend(loss)


def _ratio(multiplier: float, name: str, neighbors: str) -> float | None:
    """Return the shift in units of the noise, rounded up; None without noise."""
    noise = nonnegative(f"{name}'s multiplier", multiplier, finite=False)
    if noise == 0:
        return None
    return 0.0 if math.isinf(noise) else ceiling(_shift(neighbors) / Fraction(noise))


def _shift(neighbors: str) -> Fraction:
    return Fraction(2 if neighbors == "replace_one" else 1)


_OPEN = Spend(Approximate(epsilon=0.0, delta=1.0))
"""Nothing is promised."""


def _from_gaussian(event: Any, neighbors: str) -> Term:
    mu = _ratio(event.noise_multiplier, "GaussianDpEvent", neighbors)
    return _OPEN if mu is None or mu == math.inf else Spend(Gaussian(mu))


def _from_laplace(event: Any, neighbors: str) -> Term:
    eps = _ratio(event.noise_multiplier, "LaplaceDpEvent", neighbors)
    return _OPEN if eps is None or eps == math.inf else Spend(Laplace(eps))


def _from_response(event: Any, neighbors: str) -> Term:
    buckets = whole("RandomizedResponseDpEvent.num_buckets", event.num_buckets)
    noise = probability("RandomizedResponseDpEvent.noise_parameter", event.noise_parameter)
    if buckets == 1 or noise == 1:
        return _NOTHING
    if noise == 0:
        return _OPEN
    if neighbors != "replace_one" or buckets > 2:
        raise _refuse(f"RandomizedResponseDpEvent with {buckets} buckets", neighbors)
    # log((1 - p/2) / (p/2)); 1 - p is exact where the sum is close to 1
    return Spend(Pure(up(math.log1p(2 * (1 - noise) / noise), 16)))


def _from_self_composed(event: Any, neighbors: str) -> Term:
    times = whole("SelfComposedDpEvent.count", event.count, least=0)
    return Repeated(_read(event.event, neighbors), times)


def _from_composed(event: Any, neighbors: str) -> Term:
    return Sequential([_read(part, neighbors) for part in event.events])


def _from_poisson(event: Any, neighbors: str) -> Term:
    if neighbors == "replace_one":
        raise _refuse("PoissonSampledDpEvent", neighbors)
    rate = probability("PoissonSampledDpEvent.sampling_probability", event.sampling_probability)
    return Sampled(_read(event.event, neighbors), rate)


def _from_tree(event: Any, neighbors: str) -> Term:
    """Return one Gaussian: a unit enters one leaf, and with it so many sums as its tree is deep.

    Under ``add_remove`` those that come after it would change their leaves.
    """
    if neighbors != "zero_out":
        raise _refuse("SingleEpochTreeAggregationDpEvent", neighbors)
    counts = event.step_counts
    steps = counts if isinstance(counts, Iterable) else [counts]
    deepest = max((whole("step_counts", n, least=0) for n in steps), default=0).bit_length()
    noise = _ratio(event.noise_multiplier, "SingleEpochTreeAggregationDpEvent", neighbors)
    if deepest == 0:
        return _NOTHING
    return _OPEN if noise is None else _spend(Gaussian(noise), deepest)


def _from_mixture(event: Any, neighbors: str) -> Term:
    """Return the sampled Gaussian, where there is one shift beside none."""
    shifts = _mixture(event)
    (only,) = shifts if len(shifts) == 1 else (None,)
    if neighbors == "replace_one" or len(shifts) > 1:
        raise _refuse(f"MixtureOfGaussiansDpEvent with {len(shifts)} shifts", neighbors)
    if only is None or shifts[only] == 0:
        return _NOTHING
    deviation = nonnegative("MixtureOfGaussiansDpEvent's deviation", event.standard_deviation)
    inner = _OPEN if deviation == 0 else Spend(Gaussian(ceiling(only / Fraction(deviation))))
    return Sampled(inner, min(1.0, ceiling(shifts[only])))


def _mixture(event: Any) -> dict[Fraction, Fraction]:
    """Return each shift that is not 0 with its probability."""
    shifts: dict[Fraction, Fraction] = {}
    for shift, chance in zip(event.sensitivities, event.sampling_probs, strict=True):
        size = Fraction(nonnegative("MixtureOfGaussiansDpEvent's sensitivity", shift))
        rate = Fraction(probability("MixtureOfGaussiansDpEvent's probability", chance))
        if size and rate:
            shifts[size] = shifts.get(size, Fraction()) + rate
    return shifts


def _read(event: Any, neighbors: Any) -> Term:
    return from_dp_event(event, neighbors=neighbors)


_READERS: Mapping[str, Callable[[Any, str], Term]] = {
    "NoOpDpEvent": lambda event, neighbors: _NOTHING,
    "NonPrivateDpEvent": lambda event, neighbors: _OPEN,
    "GaussianDpEvent": _from_gaussian,
    "LaplaceDpEvent": _from_laplace,
    "RandomizedResponseDpEvent": _from_response,
    "SelfComposedDpEvent": _from_self_composed,
    "ComposedDpEvent": _from_composed,
    "PoissonSampledDpEvent": _from_poisson,
    "SingleEpochTreeAggregationDpEvent": _from_tree,
    "MixtureOfGaussiansDpEvent": _from_mixture,
}


# --- terms to events


def _google() -> Any:
    try:
        return importlib.import_module("dp_accounting.dp_event")
    except ImportError as missing:
        raise ImportError(
            "to_dp_event needs dp-accounting: pip install 'adaptive-dp[interchange]'"
        ) from missing


def _event(loss: PrivacyLoss, neighbors: str) -> Any:
    events = _google()
    match loss:
        case Gaussian():
            return _noisy(events.GaussianDpEvent, loss.mu(), neighbors)
        case Laplace(epsilon=eps):
            return _noisy(events.LaplaceDpEvent, eps, neighbors)
        case Pure(epsilon=eps) | Approximate(epsilon=eps, delta=0.0):
            return _response_event(eps, neighbors)
        case Approximate(delta=1.0):
            return events.NonPrivateDpEvent()
        case Composite(spends=spends):
            return _spends_event(spends, neighbors)
        case SampledLoss(body=body, rate=rate):
            return _sampled_event(_event(body, neighbors), rate, neighbors)
    raise InapplicableError(f"{loss!r} has no equal DpEvent")


def _noisy(kind: Callable[[float], Any], ratio: float, neighbors: str) -> Any:
    if ratio == 0:
        return _google().NoOpDpEvent()
    multiplier = _shift(neighbors) / Fraction(ratio)
    return kind(min(flooring(multiplier), sys.float_info.max))


def _response_event(eps: float, neighbors: str) -> Any:
    if eps == 0:
        return _google().NoOpDpEvent()
    if neighbors != "replace_one":
        raise _refuse("a pure epsilon", neighbors)
    noise = 2 * math.exp(-eps) / (1 + math.exp(-eps))
    return _google().RandomizedResponseDpEvent(max(0.0, down(noise, 16)), 2)


def _spends_event(spends: Iterable[tuple[PrivacyLoss, int]], neighbors: str) -> Any:
    return _composed(_self_composed(_event(loss, neighbors), n) for loss, n in spends)


def _composed(parts: Iterable[Any]) -> Any:
    events = _google()
    every = list(parts)
    return events.ComposedDpEvent(every) if every else events.NoOpDpEvent()


def _self_composed(event: Any, times: int) -> Any:
    events = _google()
    if times == 1:
        return event
    return events.SelfComposedDpEvent(event, times) if times else events.NoOpDpEvent()


def _sampled_event(event: Any, rate: float, neighbors: str) -> Any:
    if neighbors == "replace_one":
        raise _refuse("Poisson sampling", neighbors)
    return _google().PoissonSampledDpEvent(rate, event)


def _grouped_event(term: Term, neighbors: str) -> Any:
    every = worlds(term)
    if len(every.alternatives) > 1 or not every.exact:
        raise InapplicableError("a group's loss has no equal DpEvent, only a larger one")
    return _spends_event(next(iter(every)).spends.items(), neighbors)
