"""What a session of individual budgets reveals: integrated exactly, and attacked from outside."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import adaptive_dp as dp
from accountants.confidence import lower, upper
from adaptive_dp.session import Budget, Session

PEOPLE = dp.dataset("people", columns={"x": (0, 1)})
BUDGET = Budget(1.0, 1e-3)
MU = 0.3884  # a little below the largest mu at the budget, which is checked below


def total(sigma):
    return PEOPLE["x"].sum().release(dp.Gaussian(sigma=sigma))


def open_session(rows, seed):
    return Session(budget=BUDGET, accountant="individual", seed=seed, people={"x": rows})


def plan(first):
    """The second step's releases, by the sign of the first: one, or two that cost as much."""
    return [0.8 * MU] if first > 0 else [0.8 * MU / math.sqrt(2)] * 2


def analysed(rows, seed, centre, first=0.6 * MU):
    """Run the two steps; each mu is that of a record of norm 1."""
    with open_session(rows, seed) as session:
        value = session.run(total(1 / first)) - centre
        spent = [session.records.reveal()]
        after = []
        for t, mu in enumerate(plan(value)):
            after.append(session.run(total(1 / mu), again=t > 0) - centre)
            spent.append(session.records.reveal())
    return value, after, np.array(spent)


def hockey_stick(epsilon, first, up, down):
    """delta of two Gaussian steps for one pair, the second's mu by the sign of the first's outcome.

    The mean of the first is `first` with the record and 0 without; its deviation is 1. Conditioned
    on it the rest is the textbook profile at what is left of epsilon, which may be negative.
    """

    def profile(mu, e):
        if mu == 0:
            return max(mp.mpf(0), 1 - mp.exp(e))
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)

    def inner(y, sign):
        loss = sign * first * (y - first / 2)
        density = mp.npdf(y, first if sign > 0 else 0)
        return density * profile(up if y > 0 else down, epsilon - loss)

    points = [-12, -4, 0, 4, 12] + ([epsilon / first + first / 2] if first else [])
    points += [-epsilon / first + first / 2] if first else []
    return [mp.quad(lambda y, s=s: inner(y, s), sorted(points)) for s in (1, -1)]


@pytest.mark.parametrize(
    "norm",
    [
        0.0,
        pytest.param(0.25, marks=pytest.mark.slow),
        pytest.param(0.5, marks=pytest.mark.slow),
        0.96875,
        1.0,
    ],
)
@pytest.mark.parametrize("first", [0.6 * MU, 1.4 * MU])
def test_the_exact_hockey_stick_divergence_is_at_most_delta(norm, first):
    """Who takes part is read off the session; what that reveals is integrated without it.

    With first = 1.4 mu the largest records stay out of the first step and join the next.
    """
    rows = [norm, 0.25, 0.5, 0.75, 1.0]
    second = {}
    for seed in range(40):
        value, _, spent = analysed(rows, seed, sum(r for r in rows if r * first <= MU), first)
        took = np.diff(spent[:, 0], prepend=0.0)
        second[value > 0] = mp.sqrt(mp.mpf(float(took[1:].sum())))
        first_cost = mp.sqrt(mp.mpf(float(took[0])))
        if len(second) == 2:
            break
    assert len(second) == 2
    square = MU**2 * norm**2
    if first < MU:
        assert float(first_cost) == pytest.approx(0.6 * MU * norm, rel=1e-9, abs=1e-300)
    else:
        assert float(first_cost) == pytest.approx(first * norm if norm < 0.7 else 0.0, abs=1e-9)
    deltas = hockey_stick(mp.mpf(1), first_cost, second[True], second[False])
    assert max(deltas) <= BUDGET.delta * (1 + 1e-9)
    if first < MU:
        assert float(first_cost**2 + second[True] ** 2) == pytest.approx(
            square, rel=1e-9, abs=1e-300
        )
        if norm == 1:
            assert min(deltas) >= 0.99 * BUDGET.delta  # its budget is used up, and the bound tight
        elif norm <= 0.5:
            assert max(deltas) < 0.01 * BUDGET.delta


def test_records_drop_by_the_outcome_and_the_law_still_holds():
    """The second step is too dear for the record in one branch, and fits in the other."""
    spent = mp.mpf(0.7 * MU)
    fits, dear = mp.mpf(0.71 * MU), mp.mpf(0)  # 0.72 mu would not fit: it stays out
    assert (spent**2 + fits**2) <= MU**2 < spent**2 + (0.72 * MU) ** 2
    for up, down in ((fits, dear), (dear, fits)):
        assert max(hockey_stick(mp.mpf(1), spent, up, down)) <= BUDGET.delta


def test_the_budget_is_what_the_profile_says():
    for mu, holds in ((MU, True), (MU * 1.001, False)):
        delta = mp.ncdf(mu / 2 - 1 / mu) - mp.e * mp.ncdf(-mu / 2 - 1 / mu)
        assert (delta <= BUDGET.delta) == holds


def test_an_audit_of_complete_sessions_stays_below_the_claim():
    """Neighbours that differ in a record that the second step would show: mu 12.

    The confidence bounds fail with probability 6e-7 together. Sums that no record ever leaves
    are found out by the same attack.
    """
    crowd, tries, seeds = [0.5, 0.25, 1.0], 60, iter(range(10**6))
    first, second = 0.9 * MU, 12.0

    def lower_bound(present, absent):
        """The largest epsilon that no pair of laws below it can look like, at the thresholds."""
        bound = 0.0
        for threshold in (0.25, 0.5, 0.75):
            hits = lower(int((present > threshold).sum()), len(present), 1e-7)
            false = upper(int((absent > threshold).sum()), len(absent), 1e-7)
            if hits > BUDGET.delta:
                bound = max(bound, math.log((hits - BUDGET.delta) / false))
        return bound

    def attacked(rows):
        with open_session(rows, next(seeds)) as session:
            session.run(total(1 / first))
            return session.run(total(1 / second))  # too dear for everyone, even for 0.25

    present = np.array([attacked([1.0, *crowd]) for _ in range(tries)])
    absent = np.array([attacked(crowd) for _ in range(tries)])
    assert lower_bound(present, absent) <= BUDGET.epsilon
    noise = np.random.default_rng(4).normal(size=(2, tries)) / second
    assert lower_bound(1 + noise[0], noise[1]) > BUDGET.epsilon
