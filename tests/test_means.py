"""Means and covariances without bounds: what rows become in a frame, what it costs, and errors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import change_at, public
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.moments import Gram
from adaptive_dp.queries.sums import VectorSum
from adaptive_dp.queries.table import Vectors
from adaptive_dp.statistics import means
from adaptive_dp.statistics.clustering import ClusterSums
from adaptive_dp.statistics.means import Framed

STREAM = SeededStream(0)
NAN, INF = math.nan, math.inf
NAMES = ["a", "b"]
COLUMNS: dict[str, Any] = {"a": None, "b": None}
FRAMES: list[dict[str, Any]] = [
    {"center": [0.0, 0.0], "matrix": [1.0, 1.0]},
    {"center": [1.0, -3.0], "matrix": [[0.5, 0.1], [-0.2, 4.0]]},
    {"center": [NAN, INF], "matrix": [[NAN, INF], [1e300, -1e300]]},
]
ROWS = [(0, 0), (1, 1), (-1, 1), (9, 9), (-9, 9), (5, -3), (1e308, -1e308), (INF, 0), (-INF, INF)]


def value(kind: str, rows: Any, frame: dict[str, Any]) -> np.ndarray:
    """A query's private value of rows in a frame."""
    table = dp.dataset("t", columns=COLUMNS)
    first = 0.6 if kind == "moments of rows with a number in front" else 0.0
    handle: Any = Vectors(Framed(NAMES, 1.5, first), (table, public(0)))
    data = np.asarray(rows, dtype=np.float64).reshape(-1, 2)
    bound = table.operation.bind(dict(zip(NAMES, data.T, strict=True)))
    selected = handle.operation.run([bound, frame], STREAM)
    if kind == "sum":
        return VectorSum(1.5, 2).run([selected], STREAM)
    if kind != "clusters":
        return Gram(1.5, 3 if first else 2).run([selected], STREAM)
    state = {"centers": [[0.2, -0.1]], "radius": 0.7}
    return ClusterSums(1.5, 2, 1).run([selected, state], STREAM)


KINDS = ("sum", "gram", "moments of rows with a number in front", "clusters")


class TestFramed:
    def test_against_plain_floats(self) -> None:
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(500, 2)) * [1, 0.1] + [1, -3]
        z = (rows - FRAMES[1]["center"]) @ np.array(FRAMES[1]["matrix"]).T
        z *= np.minimum(1, 1.5 / np.linalg.norm(z, axis=1))[:, None]
        assert value("sum", rows, FRAMES[1]) == pytest.approx(z.sum(axis=0), abs=1e-2)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_row_adds_the_same_beside_whatever_others(self, kind: str) -> None:
        rng = np.random.default_rng(2)
        rows = np.concatenate([rng.normal(size=(9001, 2)) * 3, ROWS])
        for frame in FRAMES[:2]:
            if kind not in ("sum", "clusters"):  # moments are rounded once, to floats
                continue
            total = value(kind, rows, frame)
            assert np.array_equal(total, value(kind, rows[rng.permutation(len(rows))], frame))
            cuts = [0, 1, 7, 4100, len(rows)]
            parts = [value(kind, rows[i:j], frame) for i, j in itertools.pairwise(cuts)]
            assert np.array_equal(total, np.sum(parts, axis=0))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    def test_brute_force_over_all_neighbours(self, kind: str, relation: Any) -> None:
        """Whatever the frame and the rows, no unit moves a sum by more than its sensitivity."""
        table = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=2, neighbors=relation)
        first = 0.6 if kind == "moments of rows with a number in front" else 0.0
        ball = Vectors(Framed(NAMES, 1.5, first), (table, public(0))).domain
        query: Any = {
            "sum": VectorSum(1.5, 2),
            "gram": Gram(1.5, 2),
            "moments of rows with a number in front": Gram(1.5, 3),
            "clusters": ClusterSums(1.5, 2, 1),
        }[kind]
        bound = query.sensitivity(ball, change_at(table), 2)
        worst = 0.0
        for frame in FRAMES:
            own = {row: value(kind, [row], frame) for row in ROWS}
            units = [
                sum(own[row] for row in unit) + 0 * own[ROWS[0]]
                for size in range(3)
                for unit in itertools.combinations_with_replacement(ROWS, size)
            ]
            others = units if relation == "replace_one" else units[:1]
            worst = max(worst, *(float(np.linalg.norm(x - y)) for x in units for y in others))
        assert bound * 0.97 < worst <= bound * (1 + 1e-12)

    def test_what_is_refused(self) -> None:
        table = dp.dataset("t", columns={**COLUMNS, "c": ["A", "B"], "s": str}, unit="id")
        with pytest.raises(DeclarationError, match="intercept"):
            Vectors(Framed(NAMES, 1.5, 2.0), (table, public(0)))
        for names in (["c"], ["s"], ["id"], ["unknown"], ["a", "a"], []):
            with pytest.raises(DeclarationError):
                table.solve(dp.statistics.Mean(names), epsilon=1.0, delta=1e-6)
        with pytest.raises(DeclarationError, match="correlated"):
            dp.statistics.Mean(NAMES, correlated=1)
        for arguments in ({"rounds": 0}, {"rounds": 2.5}):
            with pytest.raises(DeclarationError, match="rounds"):
                dp.statistics.Covariance(NAMES, **arguments)
        with pytest.raises(DeclarationError, match="components"):
            dp.statistics.PCA(NAMES, components=3)
        for budget in ({"epsilon": 1.0}, {"epsilon": 1.0, "delta": 0.0}):
            with pytest.raises(DeclarationError, match="delta"):
                table.solve(dp.statistics.Mean(["a"]), **budget)


def solved(learner: Any, columns: dict[str, np.ndarray], epsilon: float, seed: int = 1) -> Any:
    table = dp.dataset("t", columns=dict.fromkeys(columns))
    plan = dp.Pipeline(found=table.solve(learner, epsilon=epsilon, delta=1e-6))
    return plan.with_delta(1e-6).simulate(seed=seed, t=columns)["found"]


class TestMean:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
    @pytest.mark.parametrize("shift", [0.0, 100.0, -1e4])
    def test_any_units(self, scale: float, shift: float) -> None:
        """The error is that of a sum clipped to some deviations, whatever the units."""
        x = np.random.default_rng(1).normal(shift, 1.0, 20_000) * scale
        found = solved(dp.statistics.Mean(["x"]), {"x": x}, 1.0)["x"]
        # clipped to about five deviations, of noise 4.2 / sqrt(0.7): 8 of its deviations
        assert abs(found - x.mean()) < 8 * 6 * 5.3 / 20_000 * scale

    def test_the_error_falls_with_rows_and_with_epsilon(self) -> None:
        """Ten times as many rows, or as much epsilon: a tenth of the error, nearly."""
        rng, table = np.random.default_rng(2), dp.dataset("t", columns={"x": None})

        def error(rows: int, epsilon: float) -> float:
            mean = table.solve(dp.statistics.Mean(["x"]), epsilon=epsilon, delta=1e-6)
            plan, x = dp.Pipeline(m=mean).with_delta(1e-6), rng.normal(3.0, 2.0, rows)
            found = [plan.simulate(seed=seed, t={"x": x})["m"]["x"] for seed in range(20)]
            return float(np.sqrt(np.square(np.array(found) - x.mean()).mean()))

        few, many, easy = error(3_000, 0.5), error(30_000, 0.5), error(3_000, 4.0)
        assert 5 < few / many < 20
        # mu is 0.13 and 0.77 at these
        assert 2 < few / easy < 12

    def test_several_columns(self) -> None:
        rng = np.random.default_rng(3)
        true = np.array([5.0, -2e3, 0.01, 7e6])
        rows = rng.normal(size=(20_000, 4)) * [1, 30, 0.002, 1e5] + true
        names = list("abcd")
        found = solved(dp.statistics.Mean(names), dict(zip(names, rows.T, strict=True)), 1.0)
        errors = (np.array([found[n] for n in names]) - rows.mean(axis=0)) / rows.std(axis=0)
        assert np.abs(errors).max() < 0.02

    def test_along_the_axes_of_the_rows(self) -> None:
        """Of columns whose difference varies a hundredth of what they do, it is known as well."""
        rng = np.random.default_rng(4)
        common, own = rng.normal(size=20_000) * 100, rng.normal(size=(20_000, 2))
        columns = {"a": 50 + common + own[:, 0], "b": 50 + common + own[:, 1]}
        errors = {}
        for correlated in (False, True):
            learner = dp.statistics.Mean(["a", "b"], correlated=correlated)
            found = [solved(learner, columns, 1.0, seed) for seed in range(6)]
            true = (columns["a"] - columns["b"]).mean()
            errors[correlated] = float(np.mean([abs(f["a"] - f["b"] - true) for f in found]))
        assert errors[True] < 0.01
        assert errors[True] < 0.1 * errors[False]

    def test_declared_bounds_are_where_it_begins(self) -> None:
        table = dp.dataset("t", columns={"x": (0, 1000)})
        plan = dp.Pipeline(found=table.solve(dp.statistics.Mean(["x"]), epsilon=1.0, delta=1e-6))
        assert not any("magnitudes" in name for name in plan.with_delta(1e-6).certify().shares)
        x = np.random.default_rng(4).normal(500, 1, 20_000)
        found = plan.with_delta(1e-6).simulate(seed=1, t={"x": x})["found"]["x"]
        assert abs(found - x.mean()) < 0.02

    @pytest.mark.parametrize("rows", [[], [3.0], [NAN, INF, -INF, 1e308], [0.0] * 50])
    def test_odd_data(self, rows: list[float]) -> None:
        data = np.array(rows)
        for learner, names in [
            (dp.statistics.Mean(["x"]), ["x"]),
            (dp.statistics.Mean(["x", "y"]), ["x", "y"]),
            (dp.statistics.Mean(["x", "y"], correlated=True), ["x", "y"]),
            (dp.statistics.Covariance(["x", "y"]), ["x", "y"]),
        ]:
            found = solved(learner, dict.fromkeys(names, data), 0.5)
            values = found["covariance"] if "covariance" in found else list(found.values())
            assert np.isfinite(np.asarray(values)).all()

    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    def test_they_cost_what_they_were_given(self, relation: Any) -> None:
        table = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=3, neighbors=relation)
        for learner in (
            dp.statistics.Mean(["a"]),
            dp.statistics.Mean(NAMES),
            dp.statistics.Mean(NAMES, correlated=True),
            dp.statistics.Covariance(NAMES),
            dp.statistics.PCA(NAMES),
        ):
            plan = dp.Pipeline(found=table.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
            assert 0.9999 < plan.certify().epsilon <= 1.0
            assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
        free = dp.Pipeline(found=table.solve(learner)).calibrate(epsilon=1.0, delta=1e-6)
        assert 0.9999 < free.certify().epsilon <= 1.0


class TestCovariance:
    def test_axes_of_very_different_lengths(self) -> None:
        """In Mahalanobis' norm, along directions that no column is, near a hundredth."""
        rng = np.random.default_rng(5)
        turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
        root = turn * [100.0, 1.0, 1.0, 0.1]
        rows = rng.normal(size=(100_000, 4)) @ root.T + 50
        names = list("abcd")
        data = dict(zip(names, rows.T, strict=True))
        found = solved(dp.statistics.Covariance(names), data, 4.0)["covariance"]
        back = np.linalg.inv(root)
        assert np.linalg.norm(back @ found @ back.T - np.eye(4)) < 0.2

    def test_an_axis_of_a_millionth_and_one_of_nothing(self) -> None:
        """The short axis is known as well as the others, and so is the mean along it."""
        rng = np.random.default_rng(9)
        long, short = rng.normal(size=(2, 20_000))
        data = {"a": 3 + long, "b": 5 + 2 * long + 1e-6 * short, "c": np.full(20_000, 5.1)}
        found = solved(dp.statistics.Covariance(list(data)), data, 1.0)
        along = np.array([-2.0, 1.0, 0.0]) * 1e6
        assert along @ found["covariance"] @ along == pytest.approx(short.var(), rel=0.1)
        assert along @ found["mean"] == pytest.approx(-1e6, abs=0.1)
        assert np.abs(found["covariance"][2]).max() < 1e-12
        assert found["covariance"][0, 0] == pytest.approx(1.0, rel=0.1)

    def test_components(self) -> None:
        rng = np.random.default_rng(6)
        turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
        rows = rng.normal(size=(30_000, 6)) @ (turn * [9, 5, 1, 1, 1, 1]).T - 1000
        names = list("abcdef")
        data = dict(zip(names, rows.T, strict=True))
        found = solved(dp.statistics.PCA(names, components=2), data, 1.0)
        for i in range(2):
            assert abs(found["components"][i] @ turn[:, i]) > 0.99
        assert found["variances"] == pytest.approx([81, 25], rel=0.1)


class TestPostProcessing:
    def test_clipping_leaves_about_as_many_rows_as_noise(self) -> None:
        rows = np.random.default_rng(7).exponential(1.0, 10_000)
        counts = np.histogram(rows, np.linspace(0, 16, 33))[0].astype(float)
        frame = means.clip_frame([[0.0, 16.0]], 10_000.0, counts, 10.0)
        high = frame["center"][0] + 1 / frame["matrix"][0]
        assert abs(frame["center"][0] - 1 / frame["matrix"][0]) < 1e-9
        assert 1 < (rows > high).sum() < 60

    def test_ranges_hold_in_noise(self) -> None:
        """Over 2,000 draws of noise: bins with rows are found, and no others."""
        rng = np.random.default_rng(8)
        for _ in range(2000):
            counts = 10 * rng.standard_normal(means.BINS)
            counts[[10, 12]] += 150
            assert means.inner_part(counts, 50.0, 200.0) == (10, 12)
            sizes = 10 * rng.standard_normal(67)
            sizes[40] += 150
            # the bin from 2^23 to 2^24, and twice its end
            assert means.first_ranges(sizes, 10.0, declared=[None])[0, 1] == 2.0**25

    def test_too_few_rows_leave_ranges_as_they_are(self) -> None:
        before, known = [[-3.0, 5.0]], {"declared": [None]}
        counts = np.full(means.BINS, 3.0)
        assert means.narrowed(before, 96.0, counts, 5.0, **known).tolist() == before
        # clear, but far fewer than there are rows
        counts[7] = 40.0
        assert means.narrowed(before, 400.0, counts, 5.0, **known).tolist() == before
        assert means.narrowed(before, 45.0, counts, 5.0, **known).tolist() != before
        # about 0, where larger values were seen; bounds that were declared have no such reason
        around = [[-5.0, 5.0]]
        counts[[7, 16]] = 3.0, 40.0
        assert means.narrowed(around, 45.0, counts, 5.0, **known).tolist() == around
        assert means.narrowed(around, 45.0, counts, 5.0, declared=[around[0]]).tolist() != around

    def test_columns_that_show_nothing_take_the_range_of_all(self) -> None:
        rng = np.random.default_rng(9)
        released: list[Any] = []
        for _ in range(30):
            counts = 10 * rng.standard_normal(67)
            counts[30] += 20
            released += [counts, 10.0]
        found = means.first_ranges(*released, declared=[None] * 30)
        assert found.tolist() == [[-(2.0**15), 2.0**15]] * 30
