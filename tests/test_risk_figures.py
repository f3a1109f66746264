"""Bounds of the excess risk against closed forms, figures of the literature, and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from accountants.errors import DomainError
from adaptive_dp import erm, risk
from adaptive_dp.risk import Noise, Setting


def setting(**changes: object) -> Setting:
    given = {"n": 1000, "width": 10, "lipschitz": 1.0, "radius": 1.0} | changes
    return Setting(**given)  # type: ignore[arg-type]


def test_strongly_convex_output_perturbation() -> None:
    """2 L^2 p / (mu eps n) as a mean; the Gaussian's noise is exact, below the closed form's."""
    constants = setting(strong_convexity=1.0)
    assert risk.output_perturbation(constants, 1.0).mean == pytest.approx(0.02, rel=1e-9)
    assert risk.output_perturbation(constants, 1.0).total == pytest.approx(20, rel=1e-9)
    ours = risk.output_perturbation(constants, 1.0, 1e-5).mean
    printed = 2 / 1000 * risk.printed_sigma(1.0, 1e-5) * math.sqrt(10)
    chi = math.sqrt(2) * special.gamma(5.5) / special.gamma(5)
    assert ours == pytest.approx(2 / 1000 * 3.7306316 * chi, rel=1e-7)
    assert ours < 0.8 * printed
    half = risk.output_perturbation(setting(strong_convexity=1.0, neighbors="zero_out"), 1.0)
    assert half.mean == pytest.approx(0.01, rel=1e-9)


def test_smooth_output_perturbation() -> None:
    """2 kappa (L^2/mu) p (p + 1) / (eps n)^2, and the second moment 7.20 of one instance."""
    constants = setting(strong_convexity=0.5, smoothness=2.0, stationary=True)
    expected = 2 * 4 * (1 / 0.5) * 110 / (0.3 * 1000) ** 2
    assert risk.smooth_output_perturbation(constants, 0.3).mean == pytest.approx(expected, rel=1e-9)
    assert 3 / 2 * Noise(5, 0.2 / 0.5).mean_square == pytest.approx(7.20)
    draw = np.random.default_rng(0).gamma(5, 0.4, 400_000)
    assert 1.5 * np.mean(draw**2) == pytest.approx(7.20, rel=0.02)


@pytest.mark.parametrize("width", [1, 2, 7, 300])
@pytest.mark.parametrize("gaussian", [False, True])
def test_noise_moments_and_quantiles(width: int, gaussian: bool) -> None:
    noise = Noise(width, 1.7, gaussian)
    law = stats.chi(width, scale=1.7) if gaussian else stats.gamma(width, scale=1.7)
    assert noise.mean_norm == pytest.approx(law.mean(), rel=1e-9)
    assert noise.mean_norm >= law.mean() * (1 - 1e-14)
    assert noise.mean_square == pytest.approx(law.moment(2), rel=1e-9)
    assert noise.length(1e-3) == pytest.approx(law.isf(1e-3), rel=1e-7)
    assert law.sf(noise.length(1e-3)) <= 1e-3


def test_printed_figures() -> None:
    """457.1 = E|z| at twice the sensitivity; 1547 = E|b|^2; 0.01521 by rank; the noise 4.60886."""
    assert Noise(20, 4 * 2.0 / (0.5 * 0.7)).mean_norm == pytest.approx(457.1, abs=0.1)
    assert Noise(10, 2 * 1.5 / 0.8).mean_square == pytest.approx(1547, abs=0.2)
    assert risk.printed_rank_bound(1000, 5, 1, 1, 1, 1e-5) == pytest.approx(0.01521, abs=5e-6)
    assert risk.printed_sigma(1.0, 1e-5) == pytest.approx(4.60886, abs=5e-6)
    pure = [
        risk.exponential_mechanism(setting(n=10**5, width=p), 1.0).total for p in (1, 5, 50, 200)
    ]
    assert pure == pytest.approx([4, 20, 200, 800], rel=1e-9)


def test_regularised_slopes() -> None:
    """Exponents 1/2 and 2/3 in p / (eps n), below the printed sensitivity's .509 and .674."""
    means, printed = [], []
    for epsilon in (1.0, 0.1):  # p / (eps n) is 1e-4, 1e-3 at width 1
        n = 10_000
        k = 1 / (epsilon * n)
        constants = setting(n=n, width=1, smoothness=5.0, stationary=True)
        means.append(
            (
                risk.regularized_output_perturbation(constants, epsilon).mean,
                risk.smooth_regularized_output_perturbation(constants, epsilon).mean,
            )
        )

        def first(u: float, k: float = k) -> float:
            weight = math.exp(u)
            return weight / 2 + 2 * (1 + weight) / weight * k

        def second(u: float, k: float = k) -> float:
            weight = math.exp(u)
            return weight / 2 + 2.5 * (2 * (1 + weight) / weight * k) ** 2

        printed.append(
            [
                optimize.minimize_scalar(f, bounds=(-15, 5), method="bounded").fun
                for f in (first, second)
            ]
        )
    slopes = [math.log10(a / b) for a, b in zip(printed[1], printed[0], strict=True)]
    assert slopes == pytest.approx([0.509, 0.674], abs=2e-3)
    ours = [math.log10(a / b) for a, b in zip(means[1], means[0], strict=True)]
    assert ours == pytest.approx([0.5, 2 / 3], abs=6e-3)
    for mine, theirs in zip(means, printed, strict=True):
        assert mine[0] <= theirs[0]
        assert mine[1] <= 1.5 * theirs[1]  # E|z|^2 is p (p + 1), not p^2


def test_regularised_penalty_is_the_best() -> None:
    """No penalty on a grid gives less, and every one gives a bound that is stated for it."""
    constants = setting(smoothness=3.0, stationary=True, linear=True)
    for method in (
        risk.regularized_output_perturbation,
        risk.smooth_regularized_output_perturbation,
        risk.objective_perturbation,
    ):
        for population in (False, True):
            least = method(constants, 1.0, 1e-6, population=population)
            for factor in (0.5, 0.9, 1.1, 2.0):
                weight = least.choices["lambda"] * factor
                other = method(constants, 1.0, 1e-6, penalty=weight, population=population)
                assert other.total >= least.total * (1 - 1e-9)


def test_descent_without_noise() -> None:
    """The instance |t - R| exceeds the bound that reads half the diameter, and not ours."""

    def run(distance: float, low: float, slope: float, steps: int) -> float:
        step, at, total = distance / (slope * math.sqrt(steps)), low, 0.0
        for _ in range(steps):
            total += at
            at = min(1.0, max(low, at + step * (slope if at < 1 - 1e-12 else 0.0)))
        return slope * (1 - total / steps)

    assert run(1.0, -1.0, 1.0, 25) > 2 * 1.0 / math.sqrt(25)
    for steps in (25, 100, 400):
        assert run(2.0, -1.0, 1.0, steps) <= risk.descent_gap(1.0, 2.0, steps)
    measured = run(1.0, 0.0, 0.1, 100)
    assert measured == pytest.approx(0.0055, abs=1e-4)
    assert 2 * 0.1 * 0.1 / 10 < measured <= risk.descent_gap(0.1, 1.0, 100)


def test_active_constraint() -> None:
    """At an active constraint the smooth bound is false, so it is refused."""
    z = 0.01 * np.random.default_rng(0).normal(size=100_000)
    excess = np.mean(0.5 * (np.minimum(1.0, 1 + z) - 2) ** 2 - 0.5)
    assert excess > 50 * 0.5 * 0.01**2
    with pytest.raises(DomainError, match="stationary"):
        risk.smooth_output_perturbation(setting(strong_convexity=1.0, smoothness=1.0), 1.0)


def test_objective_perturbation_is_private() -> None:
    """In one dimension the hockey-stick divergence, integrated, is within delta both ways."""
    x = np.array([1.0, -0.4, 0.7, 1.0])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    w = np.linspace(-150, 150, 150_001)

    def law(rows: list[int], noise: Noise, weight: float, flip: bool = False) -> np.ndarray:
        slope, second = weight * w, np.full_like(w, weight)
        for i in rows:
            sign = -y[i] if flip and i == rows[-1] else y[i]
            s = special.expit(-sign * x[i] * w)
            slope = slope - sign * x[i] * s
            second = second + x[i] ** 2 * s * (1 - s)
        size = np.abs(slope) / noise.scale
        log = -size if not noise.gaussian else -(size**2) / 2
        density = np.exp(log) * second
        return density / integrate.trapezoid(density, w)

    for neighbors, epsilon, delta, (share, rows) in itertools.product(
        ("replace_one", "zero_out"), (0.5, 2.0), (0.0, 1e-3), ((0.2, [0, 1, 2, 3]), (0.95, [0]))
    ):
        constants = setting(
            width=1, smoothness=0.25, linear=True, stationary=True, neighbors=neighbors
        )
        weight = 0.25 / math.expm1(share * epsilon)
        noise = risk.objective_noise(constants, epsilon, delta, weight)
        first = law(rows, noise, weight)
        other = (
            law(rows, noise, weight, flip=True)
            if neighbors == "replace_one"
            else law(rows[:-1], noise, weight)
        )
        for a, b in ((first, other), (other, first)):
            if delta == 0:
                good = (a > 1e-200) & (b > 1e-200)
                assert np.max(np.log(a[good] / b[good])) <= epsilon + 1e-6
            else:
                beyond = integrate.trapezoid(np.maximum(a - math.exp(epsilon) * b, 0), w)
                assert beyond <= delta


def test_tilted_sensitivity() -> None:
    """0.026724 below the printed 0.027183; brute force over small universes; no overflow."""
    constants = setting(n=100, width=1, strong_convexity=1.0)
    mine = risk.tilted_sensitivity(constants, tilt=1.0, span=1.0)
    assert mine / 2 == pytest.approx(0.026724, abs=5e-7)
    assert mine / 2 <= math.e / 100
    assert risk.tilted_sensitivity(constants, tilt=1e3, span=1.0) == pytest.approx(2.0)
    assert risk.tilted_sensitivity(constants, tilt=1e-9, span=1.0) == pytest.approx(0.02)
    draw = np.random.default_rng(1)
    w = np.linspace(-0.5, 0.5, 4001)
    for _ in range(40):
        n, tilt = int(draw.integers(2, 6)), float(draw.uniform(0.1, 8))
        a = draw.uniform(-1, 1, n + 1)

        def least(slopes: np.ndarray, tilt: float = tilt) -> float:
            losses = slopes[:, None] * w + w**2 / 2
            return float(w[np.argmin(special.logsumexp(tilt * losses, axis=0))])

        change = abs(least(a[:-1]) - least(np.append(a[1:-1], a[-1])))
        tried = Setting(n=n, width=1, lipschitz=1.5, radius=0.5, strong_convexity=1.0)
        assert change <= risk.tilted_sensitivity(tried, tilt=tilt, span=1.25) + 1e-3


def test_stability() -> None:
    """2 L^2 / (mu n) a record, near attained by linear records with a quadratic."""
    constants = setting(n=40, width=1, strong_convexity=1.0, radius=0.02)
    slope = 1.0 - 0.02  # L - mu R
    change = 2 * slope / (1.0 * 40)
    assert 0.95 * risk.sensitivity(constants) <= change <= risk.sensitivity(constants)
    assert risk.stability(constants, 40.0) / 40 == pytest.approx(2 / 40)


def test_a_solvers_gap_widens_the_noise() -> None:
    """Two points whose risks are within the gap are as far apart as the lemma says, at most."""
    constants = setting(n=10, width=1, strong_convexity=2.0)
    assert risk.sensitivity(constants, gap=0.1) - risk.sensitivity(constants) == pytest.approx(
        2 * math.sqrt(2 * 0.1 / 20)
    )
    out = Setting(n=10, width=1, lipschitz=1, radius=1, strong_convexity=2.0, neighbors="zero_out")
    extra = risk.sensitivity(out, gap=0.1) - risk.sensitivity(out)
    assert extra == pytest.approx(math.sqrt(0.2 / 20) + math.sqrt(0.2 / 18))


def test_the_hard_instance() -> None:
    """Gradients and curvature of |A (w - x)|^2 / 2, sampled, never exceed what is declared."""
    rng = np.random.default_rng(3)
    for shape in ((3, 3), (5, 3), (2, 3)):
        a = rng.normal(size=shape)
        constants = risk.quadratic(a, n=50, radius=0.7)
        values = np.linalg.eigvalsh(a.T @ a)
        assert constants.strong_convexity <= max(values[0], 0.0) + 1e-15
        assert constants.strong_convexity == pytest.approx(values[0], rel=1e-8, abs=1e-12)
        assert values[-1] <= constants.smoothness == pytest.approx(values[-1])
        w, x = (v / np.linalg.norm(v, axis=1)[:, None] * 0.7 for v in rng.normal(size=(2, 999, 3)))
        gradients = np.linalg.norm((w - x) @ a.T @ a, axis=1)
        assert 0.8 * constants.lipschitz < gradients.max() <= constants.lipschitz
        if shape[0] >= 3:
            assert 0 < risk.lower_bound(constants, 1.0).total <= risk.plan(constants, 1.0)[0].total


@pytest.mark.parametrize("neighbors", ["replace_one", "zero_out"])
def test_a_quadratics_minimizer_moves_as_a_mean_whatever_its_curvature(neighbors: str) -> None:
    """2R/n, attained, where 2L/(n mu) is 64 times as much; (beta/2) p (p+1) (2R/(n eps))^2."""
    a, n, radius = np.diag([1.0, 4.0, math.sqrt(32)]), 4, 0.7
    constants = risk.quadratic(a, n=n, radius=radius, neighbors=neighbors)  # type: ignore[arg-type]
    declared = risk.sensitivity(constants)
    assert declared == pytest.approx(2 * radius / n, rel=1e-8)
    by_lemma = constants.move / (n * constants.strong_convexity)
    assert by_lemma == pytest.approx((64 if neighbors == "replace_one" else 32) * declared)
    m = a.T @ a
    universe = radius * np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0.6, -0.8), (0, 0, 0)])

    def minimizer(x: np.ndarray) -> np.ndarray:
        return np.linalg.solve(len(x) * m, m @ x.sum(axis=0))

    largest = 0.0
    for rest in itertools.product(range(5), repeat=n - 1):
        others = universe[list(rest)]
        both = [minimizer(np.vstack([others, one])) for one in universe]
        pairs = (
            itertools.combinations(both, 2)
            if neighbors == "replace_one"
            else ((minimizer(others), one) for one in both)
        )
        largest = max(largest, *(float(np.linalg.norm(u - v)) for u, v in pairs))
    assert largest == pytest.approx(declared, rel=1e-6)
    assert largest <= declared
    beta, eps = constants.smoothness, 0.5
    expected = beta / 2 * 12 * (2 * radius / (n * eps)) ** 2
    assert risk.smooth_output_perturbation(constants, eps).mean == pytest.approx(expected, rel=1e-7)
    population = risk.smooth_output_perturbation(constants, eps, population=True).mean
    times = 1 if neighbors == "replace_one" else 2
    assert population - expected == pytest.approx(
        min(2 * constants.lipschitz**2 / constants.strong_convexity,
            times * constants.lipschitz * 2 * radius) / n
    )  # fmt: skip
    # the lower bound's instances stay in the class: their records are in the ball
    assert 0 < risk.lower_bound(constants, eps).total <= risk.plan(constants, eps)[0].total
    tilted = risk.adversarial(constants, lipschitz=constants.lipschitz)
    assert tilted.drift == math.inf


def best_private(costs: np.ndarray, epsilon: float, delta: float) -> float:
    """The least worst expected cost of any (epsilon, delta)-DP method, by linear programming.

    ``costs[i, j]`` of output j on data set i; neighbours are consecutive data sets. All sets of
    outputs are compared by their positive parts, so that delta is exact.
    """
    sets, outputs = costs.shape
    pairs = [(i, k) for i in range(sets) for k in (i - 1, i + 1) if 0 <= k < sets]
    law, part = sets * outputs, len(pairs) * outputs
    size = law + part + 1
    rows, limits = [], []
    for number, (i, k) in enumerate(pairs):
        for j in range(outputs):  # p_i(j) - e^eps p_k(j) <= t(j), t >= 0
            row = np.zeros(size)
            row[i * outputs + j], row[k * outputs + j] = 1.0, -math.exp(epsilon)
            row[law + number * outputs + j] = -1.0
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(size)
        row[law + number * outputs : law + (number + 1) * outputs] = 1.0
        rows.append(row)
        limits.append(delta)
    for i in range(sets):
        row = np.zeros(size)
        row[i * outputs : (i + 1) * outputs], row[-1] = costs[i], -1.0
        rows.append(row)
        limits.append(0.0)
    total = np.zeros((sets, size))
    for i in range(sets):
        total[i, i * outputs : (i + 1) * outputs] = 1.0
    aim = np.zeros(size)
    aim[-1] = 1.0
    result = optimize.linprog(aim, np.array(rows), limits, total, np.ones(sets))
    assert result.success
    return float(result.fun)


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_private_method_in_one_dimension_beats_the_lower_bound(
    n: int, epsilon: float, delta: float
) -> None:
    """All methods, by a linear program over records of -1 and 1 (one is exchanged at a time)."""
    sums = np.arange(-n, n + 1, 2.0)
    linear = setting(n=n, width=1, radius=1.0)
    ends = np.array([-1.0, 1.0])  # a point between is as good as a draw of the ends
    least = best_private(np.abs(sums)[:, None] - np.outer(sums, ends), epsilon, delta)
    assert risk.lower_bound(linear, epsilon, delta).total <= least + 1e-9
    smooth = setting(n=n, width=1, lipschitz=1.0, strong_convexity=0.5, smoothness=0.5)
    # f = w^2 / 4 - x w / 2: its slopes are at most 1, its minimizers at S / n
    w = np.linspace(-1, 1, 81)
    least = best_private(n / 4 * (w - sums[:, None] / n) ** 2, epsilon, delta)
    assert risk.lower_bound(smooth, epsilon, delta).total <= least + 1e-9


def test_the_fingerprinting_identity_and_its_bound() -> None:
    """``sum E <w, X_i - P> = 2 E <w, P>``, by exact integrals; and an LP's best is below."""
    rng = np.random.default_rng(11)
    for m in (1, 2, 3, 4):
        bits = np.array(list(itertools.product([-1.0, 1.0], repeat=m)))
        p, weights = np.polynomial.legendre.leggauss(12)
        chance = np.prod((1 + bits[:, None, :] * p[None, :, None]) / 2, axis=2) * weights / 2
        for _ in range(5):
            w = rng.normal(size=len(bits))  # any function of the bits
            left = np.sum(chance * w[:, None] * (bits.sum(axis=1)[:, None] - m * p))
            assert left == pytest.approx(2 * np.sum(chance * w[:, None] * p), abs=1e-12)
    # E|P| of a cube's uniform point, by integration in three dimensions
    x = rng.uniform(-1, 1, (200_000, 3))
    assert 1 / math.sqrt(3 / 5 + 3 * 2 / 9) <= np.linalg.norm(x, axis=1).mean()


def test_lower_bounds_grow_with_the_dimension_for_positive_delta() -> None:
    """sqrt(p) for convex losses, p for strongly convex ones; and both forms are as stated."""
    shape = {"n": 10**7, "lipschitz": 2.0, "radius": 1.0}
    for mu, power in ((0.0, 0.5), (1.0, 1.0)):
        means = [
            risk.lower_bound(
                setting(**shape, width=p, strong_convexity=mu, smoothness=1.0), 0.1, 1e-12
            ).mean
            for p in (1_000, 4_000, 16_000)
        ]
        for less, more in itertools.pairwise(means):
            assert math.log(more / less, 4) == pytest.approx(power, abs=0.02)
    convex = risk.lower_bound(setting(**shape, width=16_000), 0.1, 1e-12)
    assert convex.theorem.startswith("fingerprinting")
    stated = 2 * math.sqrt(16_000) / (6 * 0.1 * 10**7)
    assert convex.mean == pytest.approx(stated, rel=0.02)
    curved = risk.lower_bound(setting(**shape, width=16_000, strong_convexity=1.0), 0.1, 1e-12)
    # L = 2 mu R
    assert curved.mean == pytest.approx(2**2 * 16_000 / 72 / (0.1 * 10**7) ** 2, rel=0.02)
    # of records of rank 1 in many dimensions no more than one dimension is known
    thin = setting(**shape, width=16_000, linear=True, rank=1)
    assert (
        risk.lower_bound(thin, 0.1, 1e-12).mean
        <= risk.lower_bound(setting(**shape, width=2), 0.1, 1e-12).mean
    )
    out = setting(**shape, width=16_000, neighbors="zero_out")
    assert risk.lower_bound(out, 0.1, 1e-12).mean == pytest.approx(stated / 2, rel=0.05)


LOSSES = [erm.Logistic(), erm.Hinge(), erm.Squared(), erm.Huber(0.5), erm.Multinomial(3)]


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_losses_class_is_inferred_with_its_constants(loss: erm.Loss, ridge: float) -> None:
    """Sampled gradients and differences of gradients of records and of means never exceed them."""
    n, norm, radius = 8, 1.5, 2.0
    found = Setting.of(loss, n=n, features=3, row_norm=norm, radius=radius, ridge=ridge)
    smooth = not isinstance(loss, erm.Hinge)
    assert found.family == {(0.0, False): "F", (0.3, False): "G", (0.0, True): "J"}.get(
        (ridge, smooth), "H"
    )
    rng = np.random.default_rng(5)
    steepest, largest = 0.0, 0.0
    for trial in range(60):
        x = rng.normal(size=(n if trial % 2 else 1, 3))
        x *= norm * (1 - 1e-12) / np.linalg.norm(x, axis=1)[:, None]
        kind = {"sign": [-1.0, 1.0], "class": [0.0, 1.0, 2.0], "number": [-1.0, 0.2, 1.0]}
        y = rng.choice(kind[loss.labels], len(x))
        mean = erm.Mean.of(x, y, loss, row_norm=norm, radius=radius, ridge=ridge)
        a, b = (mean.project(rng.normal(size=mean.width) * 9) for _ in range(2))
        if trial % 4 == 0:  # far out along the row
            a = mean.project(np.tile(x[0], loss.outputs) * 9 * rng.choice([-1, 1]))
        ga, gb = mean.gradient(a), mean.gradient(b)
        steepest = max(steepest, float(np.linalg.norm(ga)))
        largest = max(largest, float(np.linalg.norm(ga - gb) / np.linalg.norm(a - b)))
        strong = (ga - gb) @ (a - b)
        assert strong >= found.strong_convexity * np.sum((a - b) ** 2) - 1e-9
    assert 0.5 * found.lipschitz < steepest <= found.lipschitz
    assert largest <= found.smoothness
    if found.family == "H":
        assert found.kappa == pytest.approx(found.smoothness / 0.3)
        assert risk.sensitivity(found) == pytest.approx(
            2 * (found.lipschitz - 0.3 * radius) / (n * 0.3)
        )
        # left out with its share of the ridge, a record has all of L
        out = Setting.of(
            loss, n=n, features=3, row_norm=norm, radius=radius, ridge=ridge, neighbors="zero_out"
        )
        assert risk.sensitivity(out) == pytest.approx(found.lipschitz / (n * 0.3))
    else:
        assert found.kappa == math.inf


def test_classes_are_ordered_and_bounds_follow_the_order() -> None:
    """H in G and J, both in F; a partial order, along which no upper bound falls."""
    grid = [
        setting(lipschitz=lip, strong_convexity=mu, smoothness=beta)
        for lip in (1.0, 2.0)
        for mu in (0.0, 0.25, 0.5)
        for beta in (0.5, 2.0, math.inf)
    ]
    named = {s.family: s for s in grid if s.lipschitz == 1 and s.strong_convexity in (0, 0.5)
             and s.smoothness in (0.5, math.inf)}  # fmt: skip
    order = {(a, b) for a in named for b in named if named[a].includes(named[b])}
    assert order == {(a, a) for a in "FGJH"} | set(itertools.product("F", "GJH")) | {
        ("G", "H"), ("J", "H")
    }  # fmt: skip
    least = {id(s): risk.plan(s, 1.0, 1e-6, steps=50)[0].total for s in grid}
    for a, b, c in itertools.product(grid, repeat=3):
        if a.includes(b) and b.includes(c):
            assert a.includes(c)
    for a, b in itertools.product(grid, repeat=2):
        assert (a.includes(b) and b.includes(a)) == (a == b)
        if a.includes(b):
            assert least[id(a)] >= least[id(b)] * (1 - 1e-9)
    assert not setting(n=10).includes(setting(n=11))
    assert not setting(drift=1.0).includes(setting())


def test_the_potential_of_descent_by_rank() -> None:
    """``E|g + z|_M^2 <= n^2 L^2 + r sigma^2`` where p is 40 and the rank 3, over many runs."""
    rng = np.random.default_rng(17)
    n, p, rank, steps, sigma = 12, 40, 3, 30, 8.0
    x = rng.normal(size=(n, rank)) @ np.linalg.qr(rng.normal(size=(p, rank)))[0].T
    x /= np.linalg.norm(x, axis=1)[:, None]
    y = rng.choice([-1.0, 1.0], n)
    best = optimize.minimize(lambda w: np.logaddexp(0, -y * (x @ w)).sum() + 5e-3 * w @ w,
                             np.zeros(p)).x  # fmt: skip
    eta = np.linalg.norm(best) / math.sqrt(steps * (n**2 + rank * sigma**2))
    squares = []
    for _ in range(300):
        w, points = np.zeros(p), [np.zeros(p)]
        for _ in range(steps):
            gradient = -(y / (1 + np.exp(y * (x @ w)))) @ x
            w = w - eta * (gradient + sigma * rng.normal(size=p))
            points.append(w)
        trace = risk.potential_trace(
            np.array(points), x, best, step=eta, lipschitz=1.0, sigma=sigma
        )
        assert (trace.rank, trace.bound) == (rank, n**2 + rank * sigma**2)
        # the recursion, with updates and inner products computed in all of R^p
        m = np.linalg.pinv(x) @ x
        update = -np.diff(points, axis=0) / eta
        inner = np.einsum("tp,pq,tq->t", update, m, np.array(points[:-1]) - best)
        step = -2 * eta * inner + eta**2 * trace.squares
        np.testing.assert_allclose(np.diff(trace.potentials), step, rtol=1e-7, atol=1e-9)
        squares.append(trace.squares.mean())
    error = np.std(squares) / math.sqrt(len(squares))
    # the noise alone is r sigma^2, far from p sigma^2; five and a half deviations
    assert rank * sigma**2 - 5.5 * error <= np.mean(squares) <= trace.bound + 5.5 * error
    with pytest.raises(DomainError, match="shape"):
        risk.potential_trace(x, x[:, 1:], best, step=1.0, lipschitz=1.0, sigma=1.0)
