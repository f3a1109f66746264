"""The event of an audit: its thresholds are the best that were foreseen, at every point alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from adaptive_dp.audit import confidence as bounds
from adaptive_dp.audit.distinguishing import Event, Rates, choose_event
from adaptive_dp.audit.scores import Scorer

POINTS = ((1.0, 0.0), (0.8, 1e-3), (0.2, 0.05), (3.0, 0.0), (0.0, 0.3))
SHARE, TRIES = 0.045, 3000
SCORER = Scorer("itself", lambda table: np.zeros(len(table)))


def rates(law: str, known_ratio: bool = False) -> Rates:
    generator = np.random.default_rng(5)
    noise = generator.laplace(size=(2, 900))
    first, second = noise[0] + 1.5, noise[1]
    if law == "integer":
        first, second = np.round(first), np.round(second)
    if law == "alike":
        first = second = np.zeros(900)
    return Rates(first, second, known_ratio=known_ratio)


def foreseen(result: Rates, event: Event) -> float:
    """Return what is foreseen of an event, from the rates at its own thresholds."""
    right = wrong = 0.0
    for (c, w), cut, used in (
        (result.high, event.high, event.high < math.inf),
        (result.low, event.low, event.low > -math.inf),
    ):
        if used:
            (at,) = np.flatnonzero(result.cuts == cut)
            right, wrong = right + c[at], wrong + w[at]
    many = 1 / (1 / TRIES + 3 / result.drawn)
    least = event.delta / (3 - event.directions)
    rate = np.array([right]), np.array([wrong])
    return float(bounds.predicted_epsilon(*rate, many, least, -float(special.ndtri(SHARE)))[0])


@pytest.mark.parametrize("known_ratio", [False, True])
@pytest.mark.parametrize("law", ["smooth", "integer", "alike"])
def test_of_several_points_each_is_looked_at_as_if_alone(law: str, known_ratio: bool) -> None:
    result = rates(law, known_ratio)
    alone = [choose_event(SCORER, result, (point,), TRIES, SHARE) for point in POINTS]
    chosen = choose_event(SCORER, result, POINTS, TRIES, SHARE)
    best = max(event.value for event in alone)
    (same,) = (e for e in alone if (e.epsilon, e.delta) == (chosen.epsilon, chosen.delta))
    assert chosen.value == best
    assert parts(chosen) == parts(same)
    for event in alone:
        if event.value > -math.inf:
            expected = event.epsilon + event.value * max(event.epsilon, 0.05)
            assert foreseen(result, event) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def parts(event: Event) -> tuple[Any, ...]:
    return event.high, event.low, event.epsilon, event.delta, event.way, event.value


@pytest.mark.parametrize("law", ["smooth", "integer"])
def test_no_pair_of_thresholds_is_better_than_the_chosen_one(law: str) -> None:
    """Nor any single threshold: the search takes each in turn while the other is held."""
    result = rates(law)
    for epsilon, delta in POINTS:
        event = choose_event(SCORER, result, ((epsilon, delta),), TRIES, SHARE)
        reached = foreseen(result, event)
        for cut in map(float, result.cuts):
            others = [(cut, -math.inf), (math.inf, cut)]
            if event.directions == 2:
                others += [
                    (high, low) for high, low in ((event.high, cut), (cut, event.low)) if low < high
                ]
            for high, low in others:
                other = Event(SCORER, high, low, epsilon, delta)
                assert foreseen(result, other) <= reached + 1e-9
