r"""The least noise for a claim: the scales of a program chosen one by one.

How noise must move does not depend on its scales, only what that costs: a move costs
:math:`\sum_k w_k / b_k`, where w adds up the moves of the draws of scale :math:`b_k`. So scales
with :math:`\sum_k w_k / b_k \le \epsilon` for the moves of a proof have a proof: in the rates
:math:`x_k = 1 / b_k` that is a polyhedron, over which the noise :math:`\sum_k c_k b_k^2` is convex.
Where one move binds, :math:`x_k` is proportional to :math:`(c_k / w_k)^{1/3}`. The worst moves of
the proof at the scales that were found are added until none costs more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.verdicts import Proved, prove

MOST_ROUNDS = 12
"""So many times worst moves are added."""


@frozen
class Calibrated:
    """Scales, and the proof of the claim with them.

    Parameters
    ----------
    scales
        By name.
    proof
        Of the program with these scales.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def make(query):
    ...     def count(answers, noise):
    ...         return answers[0] + noise.laplace(query, "query")
    ...     return count
    >>> round(prove.calibrate(make, {"query": 1}, epsilon=0.5, answers=1).scales["query"], 9)
    2.0
    """

    scales: Mapping[str, float]
    proof: Proved


def calibrate(
    make: Callable[..., Callable[..., Any]],
    names: Mapping[str, float],
    *,
    epsilon: float,
    answers: int | str,
    neighbors: str = "each",
) -> Calibrated:
    """Return the scales of the least noise with which a program is epsilon-DP.

    Parameters
    ----------
    make
        Returns the program: ``make(threshold=2.0, query=4.0)``. Its noise is drawn by these names,
        such as ``noise.laplace(query, "query")``.
    names
        For each name, what its noise counts: the sum of ``weight * scale**2`` is made least.
    epsilon, answers, neighbors
        The claim, as of `prove`.

    Returns
    -------
    Calibrated
        The scales, and the proof with them; within rounding, the claim is used up.

    Raises
    ------
    DeclarationError
        If there is no proof at scales of 1, or noise is drawn by other names.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def make(threshold, query):
    ...     def above(answers, noise):
    ...         rho = noise.laplace(threshold, "threshold")
    ...         for i, answer in enumerate(answers):
    ...             if answer + noise.laplace(query, "query") >= rho:
    ...                 return i
    ...     return above
    >>> found = prove.calibrate(make, {"threshold": 1, "query": 1}, epsilon=1, answers="every")
    >>> {name: round(scale, 4) for name, scale in found.scales.items()}
    {'threshold': 2.5874, 'query': 3.2599}
    >>> found.scales["query"] / found.scales["threshold"]  # the cube root of 2
    1.259921...
    """
    if not names or not all(math.isfinite(w) and w > 0 for w in names.values()):
        raise DeclarationError("each name of a scale needs a positive weight")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise DeclarationError(f"epsilon must be a positive number, got {epsilon!r}")
    # 0.1 is meant as a tenth
    claim = Fraction(repr(float(epsilon)) if isinstance(epsilon, float) else epsilon)
    order = list(names)
    weights = np.array([names[name] for name in order], dtype=float)
    scales = dict.fromkeys(order, 1.0)
    moves: list[tuple[float, ...]] = []
    best: Calibrated | None = None
    for _ in range(MOST_ROUNDS):
        proof = _proof(make, scales, answers, neighbors)
        # all scales times the same: the claim is met, by fractions, and used up
        factor = _up(float(proof.least / claim))
        fitting = {name: scale * factor for name, scale in scales.items()}
        if best is None or _noise(fitting, names) < _noise(best.scales, names) * (1 - 1e-12):
            fitted = _proof(make, fitting, answers, neighbors)
            while fitted.least > claim:
                fitting = {name: _up(scale) for name, scale in fitting.items()}
                fitted = _proof(make, fitting, answers, neighbors)
            best = Calibrated(fitting, fitted)
        elif moves:
            break
        new = [_weights(costs, order) for costs in proof.costs]
        if all(each in moves for each in new):
            break
        moves += [each for each in new if each not in moves]
        scales = _least(np.array(moves), weights, epsilon, order)
    assert best is not None
    return best


def _proof(
    make: Callable[..., Any], scales: Mapping[str, float], answers: int | str, neighbors: str
) -> Proved:
    verdict = prove(make(**scales), answers=answers, neighbors=neighbors)
    if not isinstance(verdict, Proved):
        raise DeclarationError(f"no proof, so no scales: {verdict}")
    return verdict


def _weights(costs: Mapping[str, Fraction], order: list[str]) -> tuple[float, ...]:
    labels = {f"b_{name}" for name in order}
    if not costs.keys() <= labels:
        raise DeclarationError(
            "noise is drawn by other names than the scales': write noise.laplace(query, 'query')"
        )
    return tuple(float(costs.get(f"b_{name}", 0)) for name in order)


def _noise(scales: Mapping[str, float], names: Mapping[str, float]) -> float:
    return sum(weight * scales[name] ** 2 for name, weight in names.items())


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def _least(moves: Any, weights: Any, epsilon: float, order: list[str]) -> dict[str, float]:
    """Return scales of the least noise at which known moves cost at most epsilon."""
    from scipy.optimize import minimize

    # in the logarithms of scales all is convex, and nothing is negative
    found: Any = minimize(  # type: ignore[call-overload]
        lambda u: float(np.log(weights @ np.exp(2 * u))),
        np.log(np.max(moves.sum(axis=1)) / epsilon) * np.ones(len(order)),
        jac=lambda u: 2 * weights * np.exp(2 * u) / (weights @ np.exp(2 * u)),
        constraints=[
            {
                "type": "ineq",
                "fun": lambda u: epsilon - moves @ np.exp(-u),
                "jac": lambda u: moves * np.exp(-u),
            }
        ],
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-15},
    )
    return dict(zip(order, np.exp(found.x).tolist(), strict=True))
