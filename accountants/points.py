"""What finitely many (epsilon, delta) claims imply together: delta at any epsilon, and test errors.

If ``P(S) <= e^eps Q(S) + delta`` for all events S and both ways, for each of some points, the
trade-off of P and Q (the least rate of misses at each rate of false alarms) is at least

``f(x) = max over points of max(0, 1 - delta - e^eps x, e^-eps (1 - delta - x))``

(Dong, Roth and Su 2022, proposition 2.5, for a point; the maximum since all hold). As each event S
has ``P(S) <= 1 - f(Q(S))``, delta at any epsilon is at most ``max over x of 1 - f(x) - e^epsilon
x``. This is concave and piecewise linear, so it is largest where two of the lines of f meet, or at
an end.
"""

from __future__ import annotations

import math

import numpy as np

from accountants.rounding import Array

Points = tuple[tuple[float, float], ...]

_UP = 1 + 1e-12


def most(points: Points, wrong: float) -> float:
    """Return at most how likely an event is on one side that has probability ``wrong`` there.

    Parameters
    ----------
    points
        Of the claim: pairs (epsilon, delta).
    wrong
        The event's probability on the other side.

    Examples
    --------
    >>> round(most(((1.0, 0.0),), 0.1), 6)
    0.271828
    """
    intercepts, slopes = _lines(points)
    # 1 - f(wrong), rounded up
    return min(1.0, (1 - max(0.0, float((intercepts - slopes * wrong).max()))) * _UP)


def implied(points: Points, epsilon: float) -> float:
    """Return delta at ``epsilon`` as it follows from the points of a claim.

    Examples
    --------
    >>> round(implied(((1.0, 1e-5),), 1.0), 9), round(implied(((1.0, 0.0),), 0.0), 6)
    (1e-05, 0.462117)
    """
    intercepts, slopes = _lines(points)
    meet = slopes[:, None] != slopes[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        places = (intercepts[:, None] - intercepts[None, :]) / (slopes[:, None] - slopes[None, :])
    x = np.clip(np.concatenate([[0.0, 1.0], places[meet]]), 0.0, 1.0)
    grows = math.exp(min(epsilon, 700.0))
    # 1 - f(x), the most that an event of probability x has on the other side
    hits = 1 - (intercepts[:, None] - slopes[:, None] * x).max(axis=0)
    return min(1.0, max(0.0, float((hits - grows * x).max())) * _UP)


def _lines(points: Points) -> tuple[Array, Array]:
    """Return the lines of f as ``intercept - slope x``."""
    lines = [(0.0, 0.0)]
    for epsilon, delta in points:
        grows = math.exp(min(epsilon, 700.0))
        lines += [(1 - delta, grows), ((1 - delta) / grows, 1 / grows)]
    intercepts, slopes = np.array(lines).T
    return intercepts, slopes
