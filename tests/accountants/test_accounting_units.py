"""A guarantee in zCDP, Gaussian DP and Renyi DP, against closed forms and sums by hand."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from accountants import (
    Approximate,
    DomainError,
    Gaussian,
    Guarantee,
    InapplicableError,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sequential,
    Spend,
)

ORDERS = [1.001, 1.5, 2.0, 7.0, 64.0]


def laplace(order: float, epsilon: float) -> mpmath.mpf:
    """Renyi divergence of two Laplace laws epsilon scales apart (Mironov 2017)."""
    with mpmath.workdps(50):
        a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
        there = a / (2 * a - 1) * mpmath.exp((a - 1) * e)
        back = (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)
        return mpmath.log(there + back) / (a - 1)


def test_gaussians_add_up_in_every_accounting_unit():
    guarantee = Guarantee(
        Sequential([Spend(Gaussian(mu=0.3)), Repeated(Spend(Gaussian(mu=0.2)), 4)])
    )
    assert guarantee.mu() == pytest.approx(0.5, rel=1e-14)
    assert guarantee.mu() ** 2 * (1 + 1e-15) >= 0.25
    assert guarantee.rho() == pytest.approx(0.125, rel=1e-14)
    assert guarantee.renyi(ORDERS) == pytest.approx(0.125 * np.array(ORDERS), rel=1e-13)
    exact = (0.3**2 + 4 * 0.2**2) / 2
    assert guarantee.rho() >= exact
    assert np.all(guarantee.renyi(ORDERS) >= exact * np.array(ORDERS) * (1 - 1e-16))


def test_laplace_is_above_its_closed_form_by_rounding_alone():
    divergence = Guarantee(Repeated(Spend(Laplace(epsilon=0.7)), 3)).renyi(ORDERS)
    for order, bound in zip(ORDERS, divergence, strict=True):
        truth = 3 * laplace(order, 0.7)
        assert truth <= bound <= truth * (1 + 1e-9)


def test_rho_of_laplace_bounds_its_divergence_over_the_order():
    rho = Guarantee(Spend(Laplace(epsilon=0.7))).rho()
    slopes = [laplace(a, 0.7) / a for a in np.geomspace(1.0001, 1e4, 200)]
    assert max(slopes) <= rho <= 0.7**2 / 2


def test_mu_of_a_pure_loss_is_that_of_randomised_response():
    mu = Guarantee(Spend(Pure(1.0))).mu()
    assert mu == pytest.approx(2 * norm.ppf(math.e / (1 + math.e)), rel=1e-9)


def test_of_parallel_parts_the_largest_counts():
    parts = Parallel([Spend(Gaussian(mu=0.3)), Spend(Gaussian(mu=0.4))])
    both = Guarantee(Sequential([parts, Spend(Gaussian(mu=0.3))]))
    assert both.mu() == pytest.approx(0.5)
    assert both.rho() == pytest.approx(0.125)
    assert both.renyi(np.array([[2.0, 4.0]])) == pytest.approx(np.array([[0.25, 0.5]]))


def test_what_may_fail_has_none_of_them():
    guarantee = Guarantee(Spend(Approximate(epsilon=1.0, delta=1e-6)))
    for ask in (guarantee.rho, guarantee.mu, lambda: guarantee.renyi([2.0])):
        with pytest.raises(InapplicableError):
            ask()


@pytest.mark.parametrize("orders", [[1.0], [0.5], [math.inf], [math.nan]])
def test_orders_are_above_one(orders):
    with pytest.raises(DomainError, match="above 1"):
        Guarantee(Spend(Pure(1.0))).renyi(orders)
