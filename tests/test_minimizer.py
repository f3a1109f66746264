"""Minimizers: no row moves one further than declared, whoever searched for it."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest

import adaptive_dp as dp
from adaptive_dp import erm as pb
from adaptive_dp.data import grid, make_examples
from adaptive_dp.data.examples import Examples
from adaptive_dp.erm import NotReached
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.minimizer import Minimizer

COLUMNS = {"u": (-1.0, 1.0), "v": (-1.0, 1.0), "s": ["N", "P"], "c": ["a", "b", "d"]}
TARGETS = {"sign": "s", "class": "c", "number": "z", "count": "k"}
LOSSES = [
    pb.Logistic(),
    pb.SmoothedHinge(0.5),
    pb.HuberHinge(0.5),
    pb.Huber(0.5),
    pb.Multinomial(3),
]
BOUNDED = [*LOSSES, pb.Squared(), pb.Poisson(most=3.0)]
STREAM = SeededStream(1)


def query_and_domain(
    loss: pb.Loss, neighbors: Any = "add_remove", norm: float = 1.0, **more: Any
) -> Any:
    """A query of rows in the ball of the plane (no intercept), and its domain."""
    columns = {**COLUMNS, "z": (-1.0, 1.0), "k": (0.0, 3.0)}
    table = dp.dataset("t", columns=columns, neighbors=neighbors)
    rows = table.examples(
        ["u", "v"], TARGETS[loss.labels], labels=loss.labels, norm=norm, intercept=False
    )
    query = rows.minimizer(loss, **more)
    return query.operation, rows.domain


def made(x: Any, y: Any, radius: float = 1.0) -> Examples:
    x = np.asarray(x, float).reshape(-1, 2)
    steps, unit = grid.ball(x, radius)
    return make_examples(
        steps.astype(np.float32), unit, np.asarray(y, float), radius, np.arange(len(y))
    )


def labels(loss: pb.Loss, draw: np.random.Generator, n: int) -> Any:
    ends = {"sign": (-1, 1), "class": (0, 1, 2), "number": (-1, 1), "count": (0, 3)}
    return draw.choice(np.array(ends[loss.labels], float), n)


def cases() -> dict[str, tuple[pb.Loss, dict[str, Any]]]:
    problems: dict[str, tuple[pb.Loss, dict[str, Any]]] = {}
    for loss in LOSSES:
        problems[f"{type(loss).__name__}"] = (loss, {"ridge": 0.7})
    for loss in BOUNDED:
        problems[f"{type(loss).__name__} in a ball"] = (loss, {"ridge": 1.0, "radius": 0.5})
        tilted = {"ridge": 1.0, "radius": 0.5, "tilt": 3.0, "rows": 4}
        problems[f"tilted {type(loss).__name__}"] = (loss, tilted)
    for loss in LOSSES[:3]:
        problems[f"adversarial {type(loss).__name__}"] = (loss, {"ridge": 1.0, "adversary": 0.4})
        inside = {"ridge": 1.0, "adversary": 0.4, "radius": 0.5}
        problems[f"adversarial {type(loss).__name__} in a ball"] = (loss, inside)
    return problems


CASES = cases()
CHANGES = {
    "comes": (Change(False, 1, False), 0, 1),
    "exchanged": (Change(True, 1, False), 1, 1),
    "two for one": (Change(True, 2, False, 3), 2, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_no_unit_moves_the_minimizer_further(name: str) -> None:
    """Adversarial pairs: rows at the ball's surface, opposite labels, few other rows."""
    loss, options = CASES[name]
    query, domain = query_and_domain(loss, **options)
    draw, largest = np.random.default_rng(len(name)), 0.0
    for change, before, after in CHANGES.values():
        for norm in (1, 2, math.inf):
            assert query.sensitivity(domain, change, norm) < 50
        limit = query.sensitivity(domain, change, 2)
        l1, top = (query.sensitivity(domain, change, p) for p in (1, math.inf))
        for _ in range(8):
            n = int(draw.integers(0, 7))
            angle = draw.uniform(0, 2 * np.pi)
            towards = np.array([math.cos(angle), math.sin(angle)])
            rest = draw.choice([-1.0, 0.3, 1.0], (n, 1)) * towards
            own = np.array([1.0, -1.0])[:, None] * towards
            y, ours = labels(loss, draw, n), labels(loss, draw, 3)
            here = made(np.vstack([rest, own[:before]]), np.r_[y, ours[:before]])
            there = made(np.vstack([rest, own[:after][::-1]]), np.r_[y, ours[3 - after :]])
            apart = query.run([here], STREAM) - query.run([there], STREAM)
            far = float(np.linalg.norm(apart))
            assert far <= limit
            assert np.abs(apart).sum() <= l1
            assert np.abs(apart).max() <= top
            largest = max(largest, far / limit)
    assert largest > (0.05 if options.get("tilt") or "adversarial" in name else 0.15)


def test_the_bound_is_attained() -> None:
    """Rows S3-07, S3-30: linear losses a|z - y|, so that w* is a sum of signs over the ridge."""
    query, domain = query_and_domain(pb.Huber(0.125), ridge=100.0)
    limit = query.sensitivity(domain, Change(True, 1, True), 2)
    x, y = np.tile([1 - 1e-5, 0.0], (200, 1)), np.where(np.arange(200) % 2, 1.0, -1.0)
    other = y.copy()
    other[0] = 1.0
    w, v = query.run([made(x, y)], STREAM), query.run([made(x, other)], STREAM)
    assert 0.98 < np.linalg.norm(w - v) / limit <= 1
    assert np.linalg.norm(w - v) == pytest.approx(2 * 0.125 / 100, rel=1e-3)
    # as the seed of a mean has it, with the ridge's slope mu R in L: .980
    lipschitz = 0.125 + (100 / 200) * 0.005
    assert np.linalg.norm(w - v) / (2 * lipschitz / 100) == pytest.approx(0.980, abs=2e-3)


def test_the_mean_moves_by_its_diameter_over_n() -> None:
    """Rows S3-02, S3-03, by hand: of (w - y)^2 / 2 without a ridge's harm the argmin is a mean."""
    query, domain = query_and_domain(pb.Squared(), ridge=1e-4, radius=1.0)
    y = np.linspace(-1, 1, 50)
    x = np.tile([1.0 - 1e-5, 0.0], (50, 1))
    other = np.r_[1.0, y[1:]]
    w, v = query.run([made(x, y)], STREAM), query.run([made(x, other)], STREAM)
    assert (v - w)[0] == pytest.approx(2 / 50, rel=1e-2)
    assert (v - w)[0] < query.sensitivity(domain, Change(True, 1, True), 2)


@pytest.mark.parametrize("name", ["Logistic", "Multinomial", "tilted Squared", "Huber in a ball"])
def test_it_is_the_minimizer(name: str) -> None:
    """Against SciPy on a risk that is written out here."""
    loss, options = CASES[name]
    query, _ = query_and_domain(loss, **options)
    draw = np.random.default_rng(5)
    x, y = draw.uniform(-0.7, 0.7, (30, 2)), labels(loss, draw, 30)
    rows = made(x, y)
    x = rows.steps.astype(float) * rows.unit

    def risk(w: np.ndarray) -> float:
        z = x @ w.reshape(-1, 2).T
        if loss.labels == "class":
            e = np.log(np.exp(z).sum(axis=1)) - z[np.arange(30), y.astype(int)]
        elif isinstance(loss, pb.Logistic):
            e = np.log1p(np.exp(-y * z[:, 0]))
        else:
            r = np.abs(z[:, 0] - y)
            width = loss.width if isinstance(loss, pb.Huber) else 1e9
            e = np.where(r <= width, r**2 / 2, width * (r - width / 2))
        t = options.get("tilt")
        total = np.log(np.exp(t * e).mean()) / t if t else e.sum()
        return float(total + options["ridge"] / 2 * w @ w)

    ball = [{"type": "ineq", "fun": lambda w: 0.25 - w @ w}] if "radius" in options else []
    start = np.zeros(2 * loss.outputs)
    best = minimize(risk, start, method="SLSQP", constraints=ball, options={"ftol": 1e-14}).x
    released = query.run([rows], STREAM)
    assert np.linalg.norm(released - best) < 2e-3
    assert risk(released) <= risk(best) + 1e-5


def test_rows_of_zeros_fill_up_a_tilted_risk() -> None:
    """More of them make it less sensitive, and the bound holds for data sets smaller than N."""
    change = Change(False, 1, False)
    limits = []
    for rows in (1, 10, 1000):
        options: dict[str, Any] = {"ridge": 0.01, "radius": 1.0, "tilt": 0.5, "rows": rows}
        query, domain = query_and_domain(pb.Logistic(), **options)
        limits.append(query.sensitivity(domain, change, 2))
        empty = query.run([made(np.zeros((0, 2)), [])], STREAM)
        one = query.run([made([[1.0, 0.0]], [1.0])], STREAM)
        assert np.linalg.norm(one - empty) <= limits[-1]
        assert np.linalg.norm(one) > 0
    spread = float(np.log1p(math.e) - np.log1p(1 / math.e))  # of the loss on [-1, 1]
    for rows, limit in zip((1, 10, 1000), limits, strict=True):
        sharp = 2 * 0.7310586 / 0.01 / (1 + (rows - 1) * math.exp(-0.5 * spread))
        assert sharp <= limit * (1 + 1e-4) <= sharp * 1.01


def test_a_released_ridge() -> None:
    """The value is then in units of the ridge's inverse, and never what noise alone has made."""
    fixed, domain = query_and_domain(pb.Logistic(), ridge=3.0)
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u", "v"], "s", norm=1.0, intercept=False)
    query: Any = rows.minimizer(pb.Logistic(), ridge=dp.public(3.0)).operation
    change, draw = Change(False, 1, False), np.random.default_rng(6)
    data = made(draw.uniform(-0.7, 0.7, (50, 2)), labels(pb.Logistic(), draw, 50))
    w = fixed.run([data], STREAM)
    assert query.run([data, 3.0], STREAM) == pytest.approx(3 * w, abs=5e-3)
    assert query.sensitivity(domain, change, 2) == pytest.approx(1.002, abs=1e-3)
    for odd in (math.nan, math.inf, -math.inf, -5.0, 0.0, 1e-300):
        for less in (made(np.zeros((0, 2)), []), made([[1.0, 0.0]], [1.0])):
            released = query.run([less, odd], STREAM)
            assert np.linalg.norm(released) <= query.sensitivity(domain, change, 2)


class TestOptimizers:
    rows = made([[0.6, 0.0], [0.0, 0.7], [-0.5, 0.5]], [1.0, 1.0, -1.0])

    def value(self, optimizer: Any = None, **more: Any) -> Any:
        return query_and_domain(pb.Logistic(), **{"ridge": 1.0, "optimizer": optimizer, **more})[
            0
        ].run([self.rows], STREAM)

    def test_one_that_lies_is_refused(self) -> None:
        def spoils(objective: Any) -> Any:
            objective.x.flags.writeable = True
            objective.x[:] = 0.0
            objective.y[:] = 1.0
            return np.zeros(2)  # which minimizes what is left

        def fails(objective: Any) -> Any:
            raise RuntimeError("42")

        own = self.value()
        for lie in (
            lambda o: np.ones(2),
            lambda o: np.full(2, math.nan),
            lambda o: np.full(2, 1e300),
            lambda o: np.zeros(3),
            lambda o: "a str",
            spoils,
            fails,
        ):
            assert np.array_equal(self.value(lie), own)

    def test_one_that_is_near_is_taken(self) -> None:
        def near(objective: Any) -> Any:
            solution = minimize(objective.value, np.zeros(2), jac=objective.gradient, tol=1e-8).x
            return solution + np.array([5e-4, 0.0])

        own, theirs = self.value(), self.value(near)
        assert 4e-4 < theirs[0] - own[0] < 6e-4
        assert np.array_equal(self.value(near, tolerance=1e-5), self.value(tolerance=1e-5))

    def test_the_slack_is_attained(self) -> None:
        """Row S3-14: two answers at either end of what is accepted, on ``ridge / 2 w^2``."""
        none, change = made(np.zeros((0, 2)), []), Change(False, 1, False)
        for t in (1e-3, 0.3):
            far = 0.999 * t
            ends = []
            for sign in (-1, 1):
                query, domain = query_and_domain(
                    pb.Logistic(),
                    ridge=1.0,
                    tolerance=t,
                    optimizer=lambda o, e=sign * far: np.array([e, 0.0]),
                )
                ends.append(query.run([none], STREAM)[0])
            slack = query.sensitivity(domain, change, 2) - query.moves(domain)
            assert 0.998 * slack < ends[1] - ends[0] <= slack

    def test_what_is_never_reached_fails_without_a_number(self) -> None:
        huge = made(np.tile([[0.6, 0.2]], (3000, 1)), np.ones(3000))
        query, _ = query_and_domain(pb.Logistic(), ridge=2.0**-20, tolerance=1e-15)
        with pytest.raises(NotReached) as caught:
            query.run([huge], STREAM)
        assert "3000" not in str(caught.value)


@pytest.mark.parametrize("ridge", [2.0**-12, 1.0, 2.0**39])
@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("tilted")])
def test_it_ends_on_any_data(name: str, ridge: float) -> None:
    """Separable rows, rows of zeros, rows in one direction, labels that are none."""
    loss, options = CASES[name]
    query, _ = query_and_domain(loss, **{**options, "ridge": ridge})
    draw = np.random.default_rng(7)
    towards = draw.normal(size=(100, 2))
    for x, y in (
        (towards, labels(loss, draw, 100)),
        (towards, np.where(towards[:, 0] > 0, 1.0, -1.0)),
        (np.zeros((100, 2)), labels(loss, draw, 100)),
        (np.full((100, 2), 1e-9), np.full(100, 1e300)),
        (np.tile([1.0, 0.0], (100, 1)), np.full(100, math.nan)),
    ):
        assert np.isfinite(query.run([made(x, y)], STREAM)).all()


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (pb.Squared(), {"ridge": 1.0}, "give a radius"),
        (pb.Poisson(most=3.0), {"ridge": 1.0}, "give a radius"),
        (pb.Poisson(most=3.0), {"ridge": 1.0, "radius": 1e6}, "Poisson"),
        (pb.Hinge(), {"ridge": 1.0}, "SmoothedHinge"),
        (pb.ZeroOne(), {"ridge": 1.0}, "FiniteLearner"),
        (pb.Logistic(), {"ridge": 0.0}, r"ridge.*0\.0"),
        (pb.Logistic(), {"ridge": math.nan}, "ridge.*nan"),
        (pb.Logistic(), {"ridge": 1.0, "tolerance": 0.0}, "tolerance"),
        (pb.Logistic(), {"ridge": 1.0, "radius": -1.0}, "radius"),
        (pb.Logistic(), {"ridge": 1.0, "tilt": 1.0}, "with a radius"),
        (pb.Logistic(), {"ridge": 1.0, "tilt": -1.0, "radius": 1.0}, r"\btilt\b"),
        (pb.Logistic(), {"ridge": 1.0, "tilt": 1.0, "radius": 1.0, "rows": 0}, r"\brows\b"),
        (pb.Huber(), {"ridge": 1.0, "adversary": 0.1}, "Huber|Logistic"),
        (
            pb.Logistic(),
            {"ridge": 1.0, "adversary": 0.1, "tilt": 1.0, "radius": 1.0},
            "not both",
        ),
    ],
)
def test_what_has_no_proof_is_refused(loss: pb.Loss, options: dict[str, Any], message: str) -> None:
    """Row S4-04 among them: without strong convexity nothing is calibrated."""
    with pytest.raises(dp.DeclarationError, match=message):
        query_and_domain(loss, **options)


def plan(mechanism: Any, **more: Any) -> dp.Pipeline:
    table = dp.dataset("t", columns=COLUMNS, neighbors="replace_one")
    rows = table.examples(["u", "v"], "s", norm=1.0, intercept=False)
    return dp.Pipeline(w=rows.minimizer(pb.Logistic(), **more).release(mechanism))


DATA = {"u": [0.5, -0.5, 0.1], "v": [0.1, 0.4, 0.2], "s": ["P", "N", "P"], "c": ["a", "b", "d"]}


def test_the_noise_is_that_of_the_norm_mechanism() -> None:
    """Row S0-15: |noise| is Gamma(d, Delta / epsilon), its direction even. False alarm: 3e-6."""
    scale, ridge, n = 0.75, 2.0, 4000
    mechanism = dp.Norm(scale=scale, p=2)
    epsilon = plan(mechanism, ridge=ridge).with_delta(0.0).certify().epsilon
    assert epsilon == pytest.approx(2 / ridge / scale, rel=3e-3)
    assert epsilon >= 2 / ridge / scale
    rows = made(np.c_[DATA["u"], DATA["v"]], [1, -1, 1])
    w = Minimizer(pb.Logistic(), ridge).run([rows], STREAM)
    drawn = np.array([mechanism.release(w.copy(), SeededStream(i)) for i in range(n)]) - w
    lengths = np.linalg.norm(drawn, axis=1)
    assert kstest(lengths, "gamma", args=(2, 0, scale)).pvalue > 1e-6
    angle = np.arctan2(drawn[:, 1], drawn[:, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-6
    assert lengths.mean() == pytest.approx(2 * scale, abs=6 * math.sqrt(2 / n) * scale)  # S0-16


def test_the_density_as_it_is_sometimes_printed_is_not_private() -> None:
    """Row E10: exp(-(ridge / (4 L epsilon)) |z|) costs 1 / (2 epsilon): 5 at an epsilon of 0.1."""
    epsilon = plan(dp.Norm(scale=4 * 0.1 / 2.0, p=2), ridge=2.0).with_delta(0.0).certify().epsilon
    assert epsilon == pytest.approx(5.0, rel=3e-3)
    assert epsilon >= 5.0


def test_densities_of_the_worst_pair_are_within_epsilon() -> None:
    """A pair that nearly reaches the sensitivity, and outputs along the line through both."""
    epsilon, ridge = 0.5, 100.0
    query, domain = query_and_domain(pb.Huber(0.125), ridge=ridge, radius=1.0)
    limit = query.sensitivity(domain, Change(True, 1, True), 2)
    scale = limit / epsilon
    x = np.tile([1 - 1e-5, 0.0], (9, 1))
    w = query.run([made(x, np.r_[1.0, np.ones(8)])], STREAM)
    v = query.run([made(x, np.r_[-1.0, np.ones(8)])], STREAM)
    draw = np.random.default_rng(8)
    seen = []
    for out in [w, v, 2 * w - v, *draw.normal(size=(100, 2)) * scale]:
        seen.append((np.linalg.norm(out - v) - np.linalg.norm(out - w)) / scale)
    assert np.max(np.abs(seen)) <= epsilon
    assert np.max(np.abs(seen)) > 0.98 * epsilon


def test_noise_is_not_cut_off_at_the_ball() -> None:
    """Row E13: what is released may lie outside: cut off, it would tell where w is."""
    one = plan(dp.Norm(scale=5.0, p=2), ridge=1.0, radius=0.5)
    outside = [np.linalg.norm(one.simulate(seed=i, t=DATA)["w"]) > 0.5 for i in range(8)]
    assert any(outside)  # all inside: less than 1 in 10^6


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_what_is_returned_is_as_near_as_declared(tolerance: float) -> None:
    """The minimizer by Newton's method to forty digits, on the rows as they are."""
    query, domain = query_and_domain(pb.Logistic(), ridge=0.5, tolerance=tolerance)
    draw = np.random.default_rng(9)
    rows = made(draw.uniform(-0.7, 0.7, (40, 2)), labels(pb.Logistic(), draw, 40))
    with mpmath.workdps(40):
        x = [[mpmath.mpf(float(v)) * mpmath.mpf(rows.unit) for v in row] for row in rows.steps]
        y = [mpmath.mpf(float(v)) for v in rows.labels]
        w = mpmath.matrix([0, 0])
        for _ in range(12):
            gradient, hessian = w * mpmath.mpf(0.5), mpmath.eye(2) * mpmath.mpf(0.5)
            for row, label in zip(x, y, strict=True):
                a, s = (
                    mpmath.matrix(row),
                    1 / (1 + mpmath.exp(label * (row[0] * w[0] + row[1] * w[1]))),
                )
                gradient -= label * s * a
                hessian += s * (1 - s) * a * a.T
            w -= mpmath.lu_solve(hessian, gradient)
        released = query.run([rows], STREAM)
        off = mpmath.sqrt(
            sum((mpmath.mpf(float(a)) - b) ** 2 for a, b in zip(released, w, strict=True))
        )
    assert off <= tolerance * query.moves(domain) + query.step(domain)
