"""Depths of points among rows, and the private median: exact values, laws and moves."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, change_at, public
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.statistics import depth
from adaptive_dp.statistics.depth import TukeyDepths

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
