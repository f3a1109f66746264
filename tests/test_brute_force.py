"""Local sensitivities by brute force: against definitions, formulas, and exact laws."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.mechanisms.propose_test_release import distance_threshold
from adaptive_dp.queries.order_statistics import QuantileSensitivity, VarianceSensitivity

VALUES = [0.0, 1.0, 4.0]


def data_sets(most: int, universe: Any = tuple(VALUES)) -> list[tuple[float, ...]]:
    return [
        x for n in range(most + 1) for x in itertools.combinations_with_replacement(universe, n)
    ]


def distances(x: Any, y: Any) -> int:
    """Rows to add and remove, from counts."""
    return sum(abs(list(x).count(v) - list(y).count(v)) for v in {*x, *y})


def median(values: Any) -> float:
    return float(values[(len(values) - 1) // 2]) if len(values) else 0.0


def released(column: Any, universe: Any, **options: Any) -> dp.Pipeline:
    query = column.brute_force(np.mean, universe, **options)
    return dp.Pipeline(x=query.release(dp.SmoothCauchy(epsilon=1.0)))


class TestDefinitions:
    def test_local_sensitivities_are_those_of_the_definition(self) -> None:
        """Every data set of up to three rows against all of up to eight, pair by pair."""
        near = dp.LocalSensitivity.brute_force(median, VALUES, range=(0, 4), radius=4)
        every = data_sets(8)
        f = {x: median(np.array(x)) for x in every}
        step = {
            x: [y for y in every if abs(len(x) - len(y)) == 1 and distances(x, y) == 1]
            for x in every
            if len(x) <= 7
        }
        for x in data_sets(3):
            for k in range(4):
                within = [y for y in step if distances(x, y) <= k]
                most = max(abs(f[y] - f[z]) for y in within for z in step[y])
                assert near.local(x, k) == most
            assert near.local(x, 4) == 4.0
            changed = [distances(x, y) for y in every if f[y] != f[x]]
            assert near.instability(x) == min(min(changed) - 1, 4)

    def test_exchanged_rows(self) -> None:
        near = dp.LocalSensitivity.brute_force(
            np.mean, VALUES, range=(0, 4), exchange=True, radius=3
        )
        every = [x for x in data_sets(4) if len(x) == 4]
        for x in every:
            one = [y for y in every if distances(x, y) == 2]
            assert near.local(x, 0) == max(abs(np.mean(x) - np.mean(y)) for y in one)

    def test_the_two_laws_and_the_distance_of_the_glossary(self) -> None:
        near = dp.LocalSensitivity.brute_force(median, VALUES, range=(0, 4), radius=4)
        objects = {x: near(x) for x in data_sets(5)}
        for x in data_sets(4):
            for v in VALUES:
                y = tuple(sorted((*x, v)))
                one, two = objects[x], objects[y]
                for k in range(5):
                    assert one.local(k) <= min(one.local(k + 1), two.local(k + 1))
                    assert two.local(k) <= one.local(k + 1)
                d, e = near.instability(x), near.instability(y)
                if near.chosen(x) == near.chosen(y):
                    assert abs(d - e) <= 1
                else:
                    assert d == e == 0

    def test_the_library_s_formulas(self) -> None:
        """The median's is exact; the variance's bound is above the truth."""
        rng = np.random.default_rng(0)
        near = dp.LocalSensitivity.brute_force(median, VALUES, range=(0, 4), radius=5)
        for _ in range(10):
            x = np.sort(rng.choice(VALUES, size=int(rng.integers(0, 9))))
            ours = QuantileSensitivity(x, 0.0, 4.0, 0.5, exchange=False)
            for k in range(5):
                assert near.local(x, k) <= ours.local(k)
        spread = dp.LocalSensitivity.brute_force(
            np.var, [0.0, 1.0, 2.0, 4.0], range=(0, 4), exchange=True, radius=4
        )
        for _ in range(10):
            x = np.sort(rng.choice([0, 1, 2, 4], size=7)).astype(np.int64)
            bound = VarianceSensitivity(x, 4, 1.0)
            near_x = spread(x.astype(float).tolist())
            for k in range(4):
                # exact but for the step, here a quarter of the width
                assert near_x.local(k) <= bound.local(k) <= 1.35 * near_x.local(k)

    def test_failures_stay_inside(self) -> None:
        def broken(values: Any) -> float:
            if len(values) == 2:
                raise ValueError(f"private: {values}")
            return math.nan if len(values) == 3 else 1e9

        near = dp.LocalSensitivity.brute_force(broken, [0, 1], range=(0, 5), radius=3)
        assert [near([0.0] * n).value for n in range(5)] == [5, 5, 0, 0, 5]
        assert near.local([0.0], 0) == 5
        odd = dp.LocalSensitivity.brute_force(broken, [0, 1], radius=3)
        assert odd.instability([0.0]) == 0
        assert repr(near([1.0])) == "<private values>"

    def test_bad_declarations(self) -> None:
        for universe, options, match in (
            ([1.0], {}, "2 to 64"),
            ([0, 1, math.inf], {}, "2 to 64"),
            ([0, 1], {"range": (1, 1)}, "range"),
            ([0, 1], {"radius": 0}, "radius"),
        ):
            with pytest.raises(dp.DeclarationError, match=match):
                dp.LocalSensitivity.brute_force(np.mean, universe, **options)  # type: ignore[arg-type]
        with pytest.raises(dp.DeclarationError, match="range"):
            dp.LocalSensitivity.brute_force(np.mean, [0, 1])([0.0]).local(0)
        people = dp.dataset("people", columns={"x": (0, 1)})
        for options, match in (
            ({}, "range"),
            ({"range": (0, 1), "candidates": [1]}, "range"),
            ({"range": (0, 1), "universe": [0, 2]}, "bounds"),
        ):
            universe = options.pop("universe", [0, 1])  # type: ignore[attr-defined]
            with pytest.raises(dp.DeclarationError, match=match):
                released(people["x"], universe, **options)


def majority(values: Any) -> str:
    return "high" if (values > 2).sum() > len(values) / 2 else "low"


class TestReleases:
    def test_the_exact_law_of_a_choice_keeps_its_promise(self) -> None:
        """Every pair of neighbours of up to six rows of two values, at every event."""
        epsilon, delta = 0.8, 0.05
        near = dp.LocalSensitivity.brute_force(majority, [0.0, 4.0], radius=8)
        r, least = math.exp(-epsilon), distance_threshold(epsilon, delta)

        def answered(x: Any) -> float:
            """P(d + N > T) of two-sided geometric noise, in closed form."""
            t = least - near.instability(x)
            return r ** (t + 1) / (1 + r) if t >= -1 else 1 - r ** (-t) / (1 + r)

        for x in data_sets(6, (0.0, 4.0)):
            for v in (0.0, 4.0):
                y = tuple(sorted((*x, v)))
                one, two = answered(x), answered(y)
                same = near.chosen(x) == near.chosen(y)
                for p, q in ((one, two), (two, one)):
                    excess = max(p - (math.exp(epsilon) * q if same else 0.0), 0.0)
                    excess += max(1 - p - math.exp(epsilon) * (1 - q), 0.0)
                    assert excess <= delta * (1 + 1e-9)

    def test_plans(self) -> None:
        people = dp.dataset("people", columns={"x": (0, 4)})
        tested = dp.ProposeTestRelease(epsilon=2.0, delta=1e-6, bound=1.0)
        share = people["x"].brute_force(
            lambda v: float((v > 2).mean()) if len(v) else 0.0, [0, 4], range=(0, 1), radius=30
        )
        choice = people["x"].brute_force(majority, [0, 4], candidates=["low", "high"], radius=40)
        plan = dp.Pipeline(
            tested=share.release(tested),
            smooth=share.release(dp.SmoothStudent(epsilon=1.0)),
            choice=choice.release(dp.DistanceToInstability(epsilon=1.0, delta=1e-7)),
        ).with_delta(1e-5)
        assert plan.certify().epsilon <= 4.0
        out = plan.simulate(seed=1, people={"x": [4.0] * 300 + [0.0] * 100})
        assert out["choice"] == "high"
        assert out["smooth"] == pytest.approx(0.75, abs=0.3)
        assert 0 <= out["tested"] <= 1
        assert "small universes" in " ".join(plan.certify().assumptions)
        tie = plan.simulate(seed=1, people={"x": [4.0] * 200 + [0.0] * 200})
        assert tie["choice"] is None
