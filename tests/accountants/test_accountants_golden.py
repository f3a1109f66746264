"""Reference values in ``golden.json``, each with how it was obtained.

Every accountant's bracket meets the reference's, and the tightest comes within the case's goal.
Parameters are strings: for an upper bound they are rounded to the floats that cost more, for a
lower bound to those that cost less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accountants import (
    ACCOUNTANTS,
    Composite,
    Gaussian,
    GaussianDP,
    Laplace,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    measure,
)
from accountants import losses as families
from accountants.definitions import renyi_epsilon
from accountants.guarantee import Guarantee
from accountants.numerics import ceiling, flooring

CASES = json.loads(Path(__file__).with_name("golden.json").read_text())["cases"]


def cases(*scenarios: str) -> list[Any]:
    """Return the cases of some scenarios as parameters of a test."""
    some = [case for case in CASES if case["scenario"] in scenarios]
    assert some
    return [pytest.param(case, id=f"{case['id']}-{case['scenario']}") for case in some]


def distribution() -> Any:
    """Return the distribution accountant."""
    return pytest.importorskip("accountants.distribution").Distribution()


def rounded(text: str | Fraction, side: int) -> float:
    """Return the float next to a number: above it (side 1) or below."""
    return ceiling(Fraction(text)) if side > 0 else flooring(Fraction(text))


def hetero(n: int) -> Iterable[tuple[str, Fraction]]:
    """Yield the heterogeneous mix: kind, and the exact mu or epsilon."""
    for i in range(n):
        u = Fraction((i * 7919) % n, n)
        if i % 5 < 2:
            yield "gaussian", 1 / (30 + 70 * u)
        elif i % 5 < 4:
            yield "laplace", 1 / (20 + 80 * u)
        else:
            yield "response", Fraction(1, 100) + Fraction(1, 20) * u


KINDS = {"gaussian": Gaussian, "laplace": Laplace, "response": Pure}


def build(case: dict[str, Any], side: int) -> Term:
    """Return a case's term, with parameters that cost more (side 1) or less."""
    params = case["params"]
    match case["scenario"]:
        case "gaussian":
            return Repeated(
                Spend(Gaussian(rounded(1 / Fraction(params["sigma"]), side))), params["k"]
            )
        case "laplace":
            return Repeated(Spend(Laplace(rounded(params["eps0"], side))), params["k"])
        case "pure_kov":
            return Repeated(Spend(Pure(rounded(params["eps0"], side))), params["k"])
        case "pure_heterogeneous_murtagh_vadhan":
            return Sequential([Spend(Pure(rounded(eps, side))) for eps in params["eps"]])
        case "heterogeneous":
            mix = hetero(params["n"])
            return Sequential([Spend(KINDS[kind](rounded(x, side))) for kind, x in mix])
        case "poisson_gaussian_add_remove" | "poisson_gaussian_remove_only":
            body = Spend(Gaussian(rounded(1 / Fraction(params["sigma"]), side)))
            return Repeated(Sampled(body, rounded(params["q"], side)), params["T"])
    raise AssertionError(case["scenario"])


def answer(case: dict[str, Any], accountant: Any) -> tuple[float, float] | None:
    """Return an accountant's bracket, its ends at the parameters rounded to their side."""
    low = measure(build(case, -1), accountant, **_point(case, -1)).bounds
    high = measure(build(case, 1), accountant, **_point(case, 1)).bounds
    return None if low is None or high is None else (low.lower, high.upper)


def _point(case: dict[str, Any], side: int) -> dict[str, float]:
    """Return the delta or epsilon to ask at: a smaller one costs more."""
    name = "delta" if case["quantity"] == "epsilon" else "epsilon"
    return {name: rounded(case["params"][name], -side)}


CERTIFIED = cases(
    "gaussian",
    "laplace",
    "pure_kov",
    "pure_heterogeneous_murtagh_vadhan",
    "heterogeneous",
    "poisson_gaussian_add_remove",
    "poisson_gaussian_remove_only",
)


def meets(case: dict[str, Any], low: float, high: float) -> None:
    """Assert that a bracket meets the reference's."""
    assert high == math.inf or Fraction(high) >= Fraction(case["lower"]), high
    assert Fraction(low) <= Fraction(case["upper"]), low


@pytest.mark.parametrize("case", CERTIFIED)
def test_every_bracket_meets_the_truth(case):
    answers = [answer(case, a) for a in ACCOUNTANTS if a.name != "distribution"]
    assert any(answers)
    for bounds in answers:
        if bounds is not None:
            meets(case, *bounds)


@pytest.mark.parametrize("case", CERTIFIED)
def test_the_distribution_is_tight(case):
    low, high = answer(case, distribution())
    meets(case, low, high)
    least, most = float(case["lower"]), float(case["upper"])
    goal = float(case["goal"]) * (max(1.0, most) if case["quantity"] == "epsilon" else most)
    allowed = goal + (most - least) + 1e-290
    assert high - least <= allowed, (high, least)
    assert most - low <= allowed, (low, most)


def close(case: dict[str, Any], upper: float) -> None:
    """Assert that an upper bound is above the truth, within the goal."""
    assert Fraction(upper) >= Fraction(case["lower"]) * (1 - Fraction(1, 10**24))
    assert upper <= float(case["upper"]) * (1 + float(case["goal"]))


@pytest.mark.parametrize("case", cases("poisson_gaussian_rdp"))
def test_sampled_gaussian_renyi(case):
    params = case["params"]
    mu = rounded(1 / Fraction(params["sigma"]), 1)
    loss = families.Sampled(Composite({Gaussian(mu): 1}), rounded(params["q"], 1))
    close(case, float(loss.renyi(np.array([float(params["alpha"])]))[0]))


@pytest.mark.parametrize("case", cases("laplace_rdp"))
def test_laplace_renyi(case):
    params = case["params"]
    loss = Laplace(rounded(params["eps0"], 1))
    close(case, float(loss.renyi(np.array([float(params["alpha"])]))[0]))


@pytest.mark.parametrize("case", cases("zcdp_to_dp_cks20"))
def test_zcdp_conversion(case):
    """The value of the conversion itself: a search over orders cannot go below its minimum."""
    rho, delta = rounded(case["params"]["rho"], 1), rounded(case["params"]["delta"], -1)
    close(case, renyi_epsilon(lambda orders: orders * rho, delta)[0])


@pytest.mark.parametrize("case", cases("gaussian_tradeoff", "laplace_tradeoff"))
def test_tradeoffs(case):
    """A false-negative rate is promised from below."""
    params, ends = case["params"], []
    gaussian = case["scenario"] == "gaussian_tradeoff"
    accountant = GaussianDP() if gaussian else distribution()
    for side in (1, -1):
        if gaussian:
            term = Spend(Gaussian(rounded(params["mu"], side)))
        else:
            term = Spend(Laplace(rounded(params["eps0"], side)))
        rate = np.array([rounded(params["alpha"], side)])
        low, high = Guarantee(term, accountant).tradeoff(rate)
        ends.append(float(low[0] if side > 0 else high[0]))
    assert Fraction(ends[0]) <= Fraction(case["upper"])
    assert Fraction(ends[1]) >= Fraction(case["lower"])
    goal = float(case["goal"]) * float(case["upper"])
    assert ends[0] >= float(case["upper"]) - goal
    assert ends[1] <= float(case["lower"]) + goal
