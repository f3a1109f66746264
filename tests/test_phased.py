"""Phases on disjoint rows: all of them together cost what the costliest phase costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.erm import Hinge, Logistic
from adaptive_dp.learning import phased
from adaptive_dp.learning.phased import phase_shares
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.examples import draw_parts

COLUMNS = {"u": (-2.0, 2.0), "v": (-2.0, 2.0), "s": ["N", "P"]}


def table(neighbors="add_remove", **more):
    return dp.dataset("t", columns=COLUMNS, neighbors=neighbors, **more)


def plan(source, sigmas):
    """A gradient at each phase, at parameters that follow the phase before."""
    parts = source.examples(["u", "v"], "s", norm=1.0).phases(phase_shares(len(sigmas)))
    theta = dp.public([0.0, 0.0, 0.0])
    for part, sigma in zip(parts, sigmas, strict=True):
        theta = part.gradients(Logistic(), at=theta).sum(clip=1.0).release(dp.Gaussian(sigma))
    return dp.Pipeline(theta=theta).with_delta(1e-5)


@pytest.mark.parametrize("neighbors", ["add_remove", "zero_out"])
def test_all_phases_cost_what_the_costliest_one_does(neighbors):
    epsilon = plan(table(neighbors), [4.0, 3.0, 5.0]).certify().epsilon
    exact = accountants.Gaussian(1 / 3).epsilon_at(1e-5).upper
    assert exact <= epsilon <= exact * (1 + 1e-5)


def test_exchange():
    """A unit is exchanged in its phase, or (as for any partition) leaves one and enters another."""
    epsilon = plan(table("replace_one"), [4.0, 3.0, 5.0]).certify().epsilon
    exact = accountants.Gaussian(2 / 3).epsilon_at(1e-5).upper
    assert exact <= epsilon <= exact * (1 + 1e-5)


def test_units_with_several_rows_lie_in_one_phase():
    source = table(unit="id", rows_per_unit=3)
    epsilon = plan(source, [4.0, 3.0]).certify().epsilon
    exact = accountants.Gaussian(1.0).epsilon_at(1e-5).upper
    assert exact <= epsilon <= exact * (1 + 1e-5)
    node = source.examples(["u"], "s").phases([0.5, 0.25, 0.25])[0].inputs[0]
    draw = np.random.default_rng(0)
    from adaptive_dp.data import make_examples

    owners = np.repeat(np.arange(4000), 3)
    rows = make_examples(
        draw.integers(-9, 9, (12000, 2)).astype(np.float32), 1.0, np.ones(12000), 20.0, owners
    )
    parts = node.operation.run([rows], SeededStream(1))
    assert sum(len(p) for p in parts) == 12000
    assert all(len(p) == 3 * p.count for p in parts)
    # six standard deviations: false alarm below 1e-8
    for part, share in zip(parts, [0.5, 0.25, 0.25], strict=True):
        assert abs(part.count - 4000 * share) < 6 * math.sqrt(4000 * share * (1 - share))


def test_draws_have_their_shares():
    phases = draw_parts(SeededStream(4), phase_shares(4), 60_000)
    for i, share in enumerate(phase_shares(4)):
        expected = 60_000 * share
        assert abs((phases == i).sum() - expected) < 6 * math.sqrt(expected * (1 - share))
    assert (draw_parts(SeededStream(4), [1.0], 100) == 0).all()


def test_momentum_reaches_the_minimizer_at_a_condition_of_ten_thousand():
    """Of a quadratic, by linear algebra; steps without momentum are far from it."""
    draw = np.random.default_rng(3)
    n, eta, shrink = 1000, 3.2, 0.25
    basis = np.linalg.qr(draw.normal(size=(6, 6)))[0]
    # the sum's second derivatives are at most steepest n, the regulariser's 2 / (eta shrink)
    steepest, bent = 25.0, 2 / (eta * shrink)
    hessian = basis @ np.diag(n * steepest * np.geomspace(1e-6, 1, 6)) @ basis.T
    centre, goal = draw.normal(size=(2, 6))
    exact = np.linalg.solve(hessian + bent * np.eye(6), hessian @ goal + bent * centre)
    state = phased.initial_state(centre.tolist())
    plain = centre
    for _ in range(400):
        gradient = hessian @ (np.asarray(phased.parameters(state)) - goal)
        state = phased.gradient_step(
            state, gradient, centre, n, eta, steepest=steepest, shrink=shrink
        )
        slope = hessian @ (plain - goal) + bent * (plain - centre)
        plain = plain - slope / (n * steepest + bent)
    away = np.linalg.norm(np.asarray(state[1]) - exact)
    assert away < 0.03 * np.linalg.norm(centre - exact)
    assert np.linalg.norm(plain - exact) > 5 * away


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_the_learner(neighbors):
    draw = np.random.default_rng(0)
    u, v, noise = draw.normal(size=(3, 5000))
    data = {"u": u, "v": v, "s": np.where(u - v + 0.3 * noise > 0, "P", "N")}
    solver = dp.PhasedERM(["u", "v"], "s", rounds=20)
    source = table(neighbors)
    plan = dp.Pipeline(theta=source.solve(solver, epsilon=1.0, delta=1e-5)).with_delta(1e-5)
    assert 1 - 1e-4 < plan.certify().epsilon <= 1
    theta = plan.simulate(seed=2, t=data)["theta"]
    score = theta["intercept"] + theta["u"] * u + theta["v"] * v
    assert np.mean((score > 0) == (data["s"] == "P")) > 0.9


def test_refusals():
    rows = table().examples(["u"], "s")
    with pytest.raises(dp.DeclarationError, match=r"\b1\b"):
        rows.phases([0.5, 0.4])
    with pytest.raises(dp.DeclarationError, match=r"\b2\b"):
        rows.phases([1.0, 0.0])
    with pytest.raises(dp.DeclarationError, match=r"PhasedERM\.phases"):
        dp.PhasedERM(["u"], "s", phases=0)
    with pytest.raises(dp.DeclarationError, match=r"PhasedERM\.loss"):
        dp.PhasedERM(["u"], "s", Hinge())
    with pytest.raises(dp.DeclarationError, match="neither"):
        table().solve(dp.PhasedERM(["u"], "s"), epsilon=1.0)
