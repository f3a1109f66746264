"""What each term becomes among dp-accounting's events; see `accountants.interchange`."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from accountants.errors import InapplicableError
from accountants.interchange.events import norms
from accountants.loss import PrivacyLoss
from accountants.losses.approximate import Approximate
from accountants.losses.composite import Composite
from accountants.losses.discrete_laplace import DiscreteLaplace
from accountants.losses.fixed_size import FixedSize
from accountants.losses.gaussian import Gaussian
from accountants.losses.given_curve import ZeroConcentrated
from accountants.losses.laplace import Laplace
from accountants.losses.private_selection import PoissonSelection, PrivateSelection
from accountants.losses.pure import Pure
from accountants.losses.randomized_response import RandomizedResponse
from accountants.losses.replaced_sample import ReplacedSample as ReplacedSampleLoss
from accountants.losses.sampled import Sampled as SampledLoss
from accountants.rounding import ceiling, down, flooring
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
