"""Depths of points among rows, and the private median: exact values, laws and moves."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, change_at, public
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.statistics import depth
from adaptive_dp.statistics.depth import Levels, TukeyDepths

STREAM = SeededStream(0)
PLACE: dict[str, Any] = {"middle": [0.0, 0.0], "half": 1.0}


def depths(rows: Any, width: int, points: int, place: Any = None) -> np.ndarray:
    names = [f"x{i}" for i in range(width)]
    table = dp.dataset("t", columns=dict.fromkeys(names, (-1, 1)))
    vectors = table.vectors(names)
    handle: Any = PrivateQuery(
        TukeyDepths(vectors.domain.radius, width, points), (vectors, public(0))
    )
    data = np.asarray(rows, dtype=np.float64).reshape(-1, width)
    bound = table.operation.bind(dict(zip(names, data.T, strict=True)))
    place = {"middle": [0.0] * width, "half": 1.0} if place is None else place
    return handle.operation.run([handle.inputs[0].operation.run([bound], STREAM), place], STREAM)


class TestDepths:
    def test_of_one_column(self) -> None:
        """Against the definition: rows at least, and at most, as large; the fewer."""
        x = np.round(np.random.default_rng(1).uniform(-1, 1, 500) * 8) / 8
        found = depths(x, 1, 17)
        at = np.linspace(-1, 1, 17)
        assert found.tolist() == [min((x >= p).sum(), (x <= p).sum()) for p in at]

    @pytest.mark.parametrize("width", [2, 3])
    def test_of_several_columns(self, width: int) -> None:
        rows = np.random.default_rng(2).uniform(-0.7, 0.7, (300, width))
        found = depths(rows, width, 5)
        points = np.array(list(itertools.product(np.linspace(-1, 1, 5), repeat=width)))
        axes = depth.directions(width)
        wanted = [min(int(((rows - p) @ u >= 0).sum()) for u in axes) for p in points]
        assert np.abs(found - wanted).max() <= 1  # rows within a step of a side
        assert found.argmax() == np.argmax(wanted) == len(points) // 2

    def test_a_row_counts_the_same_beside_whatever_others(self) -> None:
        rng = np.random.default_rng(3)
        rows = rng.uniform(-1, 1, (9001, 2))
        rows[:500] = np.round(rows[:500] * 4) / 4
        assert np.array_equal(depths(rows, 2, 9), depths(rows[rng.permutation(9001)], 2, 9))
        assert not depths(np.zeros((0, 2)), 2, 9).any()

    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    def test_the_exact_loss_over_a_small_universe(self, relation: Any) -> None:
        """Depths move within the sensitivity, and the exact law of a choice within its epsilon."""
        table = dp.dataset("t", columns={"a": (-1, 1), "b": (-1, 1)}, neighbors=relation)
        change, ball = change_at(table), table.vectors(["a", "b"]).domain
        query, scale = TukeyDepths(ball.radius, 2, 3), 2.0
        universe = [(-1, -1), (1, 1), (0, 0), (0.5, -0.5), (-1, 0.3)]
        farthest = loss = 0.0
        for crowd in itertools.combinations_with_replacement(universe, 2):
            for size in (0, 3):
                others = list(crowd) * size
                own = [depths([*others, row], 2, 3) for row in universe]
                own = own if relation == "replace_one" else [*own, depths(others, 2, 3)]
                pairs = (
                    itertools.combinations(own, 2)
                    if relation == "replace_one"
                    else ((v, own[-1]) for v in own[:-1])
                )
                for first, second in pairs:
                    farthest = max(farthest, float(np.abs(first - second).max()))
                    laws = [v / scale - np.log(np.exp(v / scale).sum()) for v in (first, second)]
                    loss = max(loss, float(np.abs(laws[0] - laws[1]).max()))
        assert farthest == query.sensitivity(ball, change, np.inf) == 1
        assert 0.4 * query.span(ball, change) / scale < loss
        assert loss <= query.span(ball, change) / scale

    def test_what_is_refused(self) -> None:
        columns = {f"x{i}": (0, 1) for i in range(4)} | {"free": None}
        table = dp.dataset("t", columns=columns)
        for names in ([], list("aa"), ["x0", "x1", "x2", "x3"]):
            with pytest.raises(DeclarationError, match="one to three"):
                dp.statistics.TukeyMedian(names)
        for names, points in ((["x0"], 1), (["x0", "x1"], 129), (["x0"], 2.5)):
            with pytest.raises(DeclarationError, match="points"):
                table.solve(dp.statistics.TukeyMedian(names, points), epsilon=1.0)
        with pytest.raises(DeclarationError, match="epsilon"):
            table.solve(dp.statistics.TukeyMedian(["x0"]), epsilon=-1.0)
        with pytest.raises(DeclarationError, match="free"):
            table.solve(dp.statistics.TukeyMedian(["free"]), epsilon=1.0)


class TestMedian:
    @pytest.mark.parametrize("width", [1, 2, 3])
    def test_it_is_deep_and_does_not_follow_outliers(self, width: int) -> None:
        rng = np.random.default_rng(4)
        rows = rng.normal(30, 5, (3000, width))
        rows[:600] = 100
        names = [f"x{i}" for i in range(width)]
        table = dp.dataset("t", columns=dict.fromkeys(names, (0, 100)))
        plan = dp.Pipeline(m=table.solve(dp.statistics.TukeyMedian(names), epsilon=1.0, delta=0))
        assert 0.9999 < plan.certify(delta=0.0).epsilon <= 1.0
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
        found = plan.simulate(seed=1, t=dict(zip(names, rows.T, strict=True)))["m"]
        median = np.median(rows, axis=0)
        assert np.abs(np.array([found[n] for n in names]) - median).max() < 4

    def test_free_noise_and_no_rows(self) -> None:
        table = dp.dataset("t", columns={"x": (0, 1)}, unit="id", rows_per_unit=2)
        plan = dp.Pipeline(m=table.solve(dp.statistics.TukeyMedian(["x"]))).calibrate(epsilon=1.0)
        assert 0.9999 < plan.certify().epsilon <= 1.0
        assert 0 <= plan.simulate(seed=1, t={"x": [], "id": []})["m"]["x"] <= 1


# A mean in the rows' own ellipsoid.

Rows = tuple[tuple[int, ...], ...]


def is_good(rows: Rows, v: int) -> bool:
    """By the definition, in fractions: positive definite, and no leverage above 1 / v."""
    z = np.array([(1, *row) for row in rows], dtype=object)
    inverse, det = depth.adjugate(z.T @ z)
    return det > 0 and all(v * (r @ inverse @ r) <= det for r in z)


def largest_good(rows: Rows, v: int) -> int:
    """The size of the largest good set, among all subsets."""
    for size in range(len(rows), 0, -1):
        for own in itertools.combinations(rows, size):
            if is_good(own, v):
                return size
    return 0


def lattice(rows: Any) -> Any:
    made = np.empty(np.shape(rows), dtype=object)
    made[:] = [[int(x) for x in row] for row in rows]
    return made


def near(rows: Rows, levels: Levels, least: float) -> tuple[int, Any]:
    low = levels.outer - levels.levels + 1
    made = lattice(rows)
    sets = depth.nested_sets(depth.simpler(made), low, levels.strict, levels.room + 1)
    return depth.outside_distance(sets, len(rows), least, levels), sets


def by_definition(rows: Rows, levels: Levels, least: float) -> int:
    """d of the comment in the module, with sets that are found among all subsets."""
    room, strict = levels.room, levels.strict
    outside = [j + len(rows) - largest_good(rows, strict - j) for j in range(room + 1)]
    return max(0, room - max(min(outside), math.ceil(least) - len(rows)))


LEVELS = Levels(strict=4, room=1, levels=1, first=0.5, factor=1.0)


class TestEllipsoid:
    def test_sets_and_distances_of_every_small_data_set(self) -> None:
        """Against all subsets; and d moves by at most 1 between neighbours."""
        points = [(0,), (1,), (9,)]
        every = [
            tuple(rows)
            for size in (9, 10)
            for rows in itertools.combinations_with_replacement(points, size)
        ]
        found = {rows: near(rows, LEVELS, 9.0)[0] for rows in every}
        assert set(found.values()) == {0, 1}
        for rows in every[::20]:
            assert found[rows] == by_definition(rows, LEVELS, 9.0)
        for rows in every:
            for row in points:
                more = tuple(sorted([*rows, row]))
                assert more not in found or abs(found[more] - found[rows]) <= 1

    @pytest.mark.parametrize(("width", "room", "wide"), [(1, 2, 2), (2, 3, 1), (3, 2, 3)])
    def test_what_one_row_moves(self, width: int, room: int, wide: int) -> None:
        """Of random rows, some far off, and a row more: the three bounds, and how far d moves."""
        rng = np.random.default_rng([width, room, wide])
        levels = Levels(strict=2 * room + wide + 6, room=room, levels=wide, first=0.5, factor=1.0)
        q, h = 1 + room / wide, 1 / (levels.outer - wide - room)
        checked, moved = 0, [0.0, 0.0]
        for _ in range(12):
            n = int(rng.integers(8 * levels.strict, 12 * levels.strict)) * width
            rows = rng.normal(0, 40, (n, width)).round().astype(int)
            rows[: room + 1] *= rng.integers(1, 5, (room + 1, 1))
            beside = [rows[0] * 3, rng.normal(0, 90, width).round().astype(int), rows[-1] * 2]
            least = n - room
            d, sets = near(tuple(map(tuple, rows)), levels, least)
            for row in beside:
                more, after = np.vstack([rows, row]), []
                d_more, sets_more = near(tuple(map(tuple, more)), levels, least)
                assert abs(d_more - d) <= 1
                if not sets or sets[-1][0] < levels.outer or n - len(sets[-1][1]) > room:
                    continue
                for data, own in ((rows, sets), (more, sets_more)):
                    center, factors = depth.weighted_ellipsoid(lattice(data), own, levels)
                    root = np.array(factors, dtype=float)
                    after.append((np.array(center, dtype=float), root @ root.T))
                (m, s), (m_more, s_more) = after
                whole = np.linalg.inv(np.linalg.cholesky(s_more))
                gone = np.eye(width) - whole @ s @ whole.T
                shift = float(np.linalg.norm(whole @ (m - m_more)))
                size = least - 2 * room
                assert np.linalg.eigvalsh(gone).min() > -1e-9
                assert np.trace(gone) <= q * h * (1 + q / size) + 1e-9
                assert shift <= q * math.sqrt(h) / size + 1e-12
                moved[0] = max(moved[0], np.trace(gone) / (q * h * (1 + q / size)))
                moved[1] = max(moved[1], shift / (q * math.sqrt(h) / size))
                checked += 1
        assert checked > 8
        assert min(moved) > 0.1  # the bounds are not far above what rows attain

    @pytest.mark.parametrize(("a", "epsilon", "delta"), [(0.01, 0.5, 1e-6), (0.05, 0.7, 1e-5)])
    def test_two_normal_laws(self, a: float, epsilon: float, delta: float) -> None:
        """Both directions by integrals: one eigenvalue with the shift, or several without."""
        t = depth.largest_shift(a, epsilon, delta)
        assert t > 0.01
        x = np.linspace(-20, 20, 400_001)
        p, s = stats.norm(t, 1).pdf(x), stats.norm(0, math.sqrt(1 - a)).pdf(x)
        both = [
            np.maximum(one - math.exp(epsilon) * two, 0).sum() * (x[1] - x[0])
            for one, two in ((p, s), (s, p))
        ]
        assert delta / 20 < max(both) <= delta
        for k in (2, 5):  # k eigenvalues of 1 - a/k each: a law of the squared norm
            r = np.linspace(0, 200, 400_001)[1:]
            p, s = stats.chi2(k).pdf(r), stats.chi2(k, scale=1 - a / k).pdf(r)
            for one, two in ((p, s), (s, p)):
                assert np.maximum(one - math.exp(epsilon) * two, 0).sum() * (r[1] - r[0]) <= delta
        assert depth.largest_shift(a, epsilon, delta / 10) < t
        assert depth.largest_shift(0.4, 0.1, 1e-6) == 0

    def test_draws_have_the_law(self) -> None:
        """Whitened draws are standard normal: a false alarm below 1e-6 each."""
        rng = np.random.default_rng(5)
        rows = lattice(rng.normal(0, 3, (9_000, 2)) @ [[2**30, 2**30], [0, 2**18]])
        levels = depth.chosen_levels(8_950, 1.0, 2, 1.0, 1e-6)
        assert levels is not None
        _, sets = near(tuple(map(tuple, rows)), levels, 8_950)
        center, factors = depth.weighted_ellipsoid(rows, sets, levels)
        root = np.array(factors, dtype=float) / 2**40
        n, stream = 1_500, SeededStream(3)
        drawn = np.array([depth.with_noise(center, factors, stream) for _ in range(n)])
        middle = np.array([float(m / 2**40) for m in center])
        white = np.linalg.solve(root, (drawn - middle).T).T
        # means within 5 deviations, squares by the chi-square law of 2 n numbers
        assert np.abs(white.mean(axis=0)).max() < 5.2 / math.sqrt(n)
        low, high = stats.chi2(2 * n).ppf([2.5e-7, 1 - 2.5e-7])
        assert low < np.square(white).sum() < high

    def test_end_to_end(self) -> None:
        rng = np.random.default_rng(6)
        rows = rng.normal(0, 1, (12_000, 2))
        rows[:3] = 1e9  # few rows are far off
        learner = dp.statistics.AffineInvariantMean(["x", "y"])
        table = dp.dataset("t", columns={"x": None, "y": None})
        plan = dp.Pipeline(m=table.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
        assert 0.999 < plan.certify().epsilon <= 1.0
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
        found = []
        for matrix in ([[1, 0], [0, 1]], [[1, 1], [0, 1e-7]]):
            mapped = rows @ matrix + [5, -7]
            mean = plan.simulate(seed=1, t=dict(zip("xy", mapped.T, strict=True)))["m"]
            found.append((np.array(list(mean.values())) - [5, -7]) @ np.linalg.inv(matrix))
        assert np.abs(found[0]).max() < 0.1
        # values are rounded to 2^-40, a millionth of the thinner axis
        assert np.abs(found[1] - found[0]).max() < 1e-4
        few = {"x": rows[:900, 0], "y": rows[:900, 1]}
        assert all(math.isnan(v) for v in plan.simulate(seed=1, t=few)["m"].values())
        line = {"x": rows[:, 0], "y": rows[:, 0]}
        assert all(math.isnan(v) for v in plan.simulate(seed=1, t=line)["m"].values())

    @pytest.mark.parametrize("unit", [{}, {"unit": "id", "rows_per_unit": 2}])
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_every_unit_is_paid_for(self, unit: Any, relation: Any) -> None:
        table = dp.dataset("t", columns={"x": None}, neighbors=relation, **unit)
        learner = dp.statistics.AffineInvariantMean(["x"])
        plan = dp.Pipeline(m=table.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
        assert 0.99 < plan.certify().epsilon <= 1.0
        if unit and relation == "replace_one":  # four steps
            free = dp.Pipeline(m=table.solve(learner, delta=1e-9))
            assert 0.49 < free.calibrate(epsilon=0.5, delta=1e-6).certify().epsilon <= 0.5

    def test_what_is_refused(self) -> None:
        table = dp.dataset("t", columns={"x": None, "s": ["a", "b"]})
        for names, message in ((["x", "x"], "different"), (["s"], "numbers"), (["z"], "z")):
            with pytest.raises(DeclarationError, match=message):
                table.solve(dp.statistics.AffineInvariantMean(names), epsilon=1.0, delta=1e-6)
        one = dp.statistics.AffineInvariantMean(["x"])
        for epsilon, delta, message in ((1.0, 0.0, "delta"), (-1.0, 1e-6, "epsilon")):
            with pytest.raises(DeclarationError, match=message):
                table.solve(one, epsilon=epsilon, delta=delta)
        pairs = dp.dataset("t", columns={"x": None}, unit="id", rows_per_unit=7)
        for epsilon, delta, message in ((7e-9, 1e-6, "7.42e-09"), (200.0, 1e-6, "larger delta")):
            # the count has a part of it, and less than 1e-9 is left for each of 7 rows
            with pytest.raises(DeclarationError, match=message):
                pairs.solve(one, epsilon=epsilon, delta=delta)
        zero = dp.dataset("t", columns={"x": None}, neighbors="zero_out")
        with pytest.raises(DeclarationError, match="zero_out"):
            zero.solve(one, epsilon=1.0, delta=1e-6)
        assert Fraction(1, 2) ** 2 == depth.root(Fraction(1, 16))
