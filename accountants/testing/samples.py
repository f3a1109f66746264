"""Draws of a mechanism against its promises: a lower confidence bound of its hockey-stick.

For an event E fixed before the draws, ``delta(eps) >= P(E) - e^eps Q(E)``. Both probabilities
have exact (Clopper and Pearson 1934) bounds, each wrong with a probability of at most its
share of 1e-6, so by the union bound a true promise is contradicted with one below 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from accountants.confidence import lower, upper
from accountants.numerics import Array

Sampler = Callable[[np.random.Generator, int], tuple[Any, Any]]
LogRatio = Callable[[Any], Array]

FALSE_ALARM = 1e-6
"""A sound loss is contradicted with a probability below this."""

_BINS = 400


def sample_problems(
    promises: Mapping[str, Callable[[float], float]],
    scale: float,
    sampler: Sampler,
    log_ratio: LogRatio | None,
    draws: int,
    rng: np.random.Generator,
) -> list[str]:
    """Return a sentence for each promise that the draws contradict.

    Parameters
    ----------
    promises
        By name, from an epsilon to a delta.
    scale
        The largest epsilon to look at.
    """
    score = log_ratio
    if score is None:
        score = _learned(*(np.asarray(x) for x in sampler(rng, draws)))
    # new draws: those on which the score was learned test nothing
    present, absent = (np.asarray(score(x), dtype=np.float64) for x in sampler(rng, draws))
    epsilons = [0.0, *np.geomspace(scale / 100, scale, 11).tolist()]
    # a union bound over all confidence bounds: both sides, both pairs, every epsilon
    share = FALSE_ALARM / (8 * len(epsilons))
    problems = []
    for eps in epsilons:
        # reversed, the loss changes its sign and the two sides their places
        for side, p, q in (("", present, absent), (" of the reversed pair", -absent, -present)):
            least = _floor(p, q, eps, share)
            for name, promise in promises.items():
                if least > promise(eps):
                    problems.append(
                        f"{name} promises delta {promise(eps):.6g} at epsilon {eps:.6g}, but "
                        f"{draws} draws show at least {least:.6g}{side}"
                    )
    return problems


def _floor(p: Array, q: Array, epsilon: float, share: float) -> float:
    """Return a bound below the hockey-stick, by the event that the score exceeds epsilon.

    Outcomes at epsilon itself add nothing but their noise.
    """
    hits, misses = int((p > epsilon).sum()), int((q > epsilon).sum())
    # each bound fails with at most the share
    low, high = lower(hits, len(p), share), upper(misses, len(q), share)
    # any event bounds the hockey-stick from below: P(S) - e^eps Q(S), by confidence bounds
    return low - math.exp(min(epsilon, 700.0)) * high


def _learned(present: Array, absent: Array) -> LogRatio:
    """Return log-ratios of the counts in bins: of the outcomes themselves, if they are few."""
    if present.ndim != 1 or absent.ndim != 1:
        raise ValueError("outcomes are numbers, or rows with a log_ratio that reads them")
    values = np.unique(np.concatenate([present, absent]))
    if len(values) > _BINS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, _BINS)))
    counts = [_counts(x, values) for x in (present, absent)]
    # on draws of their own, so that the event is chosen before the draws that test it
    ratio = np.log((counts[0] + 0.5) / (counts[1] + 0.5))

    def score(outcomes: Any) -> Array:
        at: Array = ratio[np.searchsorted(values, np.asarray(outcomes), side="right")]
        return at

    return score


def _counts(outcomes: Array, values: Array) -> Array:
    at = np.searchsorted(values, outcomes, side="right")
    return np.bincount(at, minlength=len(values) + 1).astype(np.float64)
