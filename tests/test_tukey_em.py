"""Deep models: the bound of the private test against exact laws of all small universes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import adaptive_dp as dp
from accountants import Secret
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.run import private_values
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.statistics.batches import (
    BatchModels,
    DeepModel,
    Depths,
    Models,
    least_squares,
    split,
)

Point = tuple[int, ...]


def depths(models: tuple[Point, ...], q: int, highest: int) -> Depths:
    columns = [sorted(each) for each in zip(*models, strict=True)]
    return Depths.of(Models(columns), q, 0, highest)


def depth(models: tuple[Point, ...], point: Point) -> int:
    """The depth by its definition."""
    return min(
        min(sum(m[j] <= x for m in models), sum(m[j] >= x for m in models))
        for j, x in enumerate(point)
    )


def law(models: tuple[Point, ...], q: float, t: int, points: list[Point]) -> np.ndarray:  # type: ignore[type-arg]
    """The exponential mechanism on points of depth t or more, by enumeration."""
    of = np.array([depth(models, p) for p in points])
    weights = np.where(of >= t, q**of, 0.0)
    return np.asarray(weights / weights.sum())


def universe(values: int, width: int, m: int) -> tuple[list[Point], list[tuple[Point, ...]]]:
    points = list(itertools.product(range(values), repeat=width))
    return points, list(itertools.combinations_with_replacement(points, m))


UNIVERSES = [
    (5, 1, 10, 2, 3.0, 0.2),
    (3, 1, 24, 1, 1.5, 0.05),
    (2, 2, 10, 1, 2.0, 0.2),
    (2, 3, 6, 1, 5.0, 0.2),
    (4, 1, 14, 2, 2.0, 0.2),
]
"""Values of a coefficient, coefficients, models, the least depth, q and delta."""


@pytest.mark.parametrize(("values", "width", "m", "t", "ratio", "mass"), UNIVERSES)
def test_what_passes_is_as_private_as_it_says(
    values: int, width: int, m: int, t: int, ratio: float, mass: float
) -> None:
    """Where C_0 holds, both directions to every neighbour; and the number moves by at most 1."""
    q, r = int(ratio * 2**30), 2**30  # so that e^e_2 is q^2 (1 + 1)
    points, every = universe(values, width, m)
    laws = {x: law(x, ratio, t, points) for x in every}
    stable = {x: depths(x, q, values - 1).stable(t, Fraction(mass), r, 10**6) for x in every}
    assert min(stable.values()) == 0 < max(stable.values())
    for x in every:
        for old in set(x):
            rest = list(x)
            rest.remove(old)
            for new in points:
                y = tuple(sorted([*rest, new]))
                assert abs(stable[x] - stable[y]) <= 1
                if stable[x] > 0:
                    for p, s in ((laws[x], laws[y]), (laws[y], laws[x])):
                        assert np.maximum(p - 2 * ratio**2 * s, 0).sum() <= mass


def test_the_bound_is_needed() -> None:
    """Without a test some pair exceeds delta by far."""
    _, q, _ = split(2.0)
    points, every = universe(3, 1, 8)
    laws = {x: law(x, q / 2**30, 2, points) for x in every}
    worst = max(
        float(np.maximum(laws[x] - math.exp(1.2) * laws[tuple(sorted([*x[1:], new]))], 0).sum())
        for x in every
        for new in points
    )
    assert worst > 0.1


@pytest.mark.parametrize(("width", "t"), [(1, 2), (2, 1), (3, 1)])
def test_draws_have_the_law(width: int, t: int) -> None:
    draw, n = np.random.default_rng(width), 4_000
    models = tuple(tuple(int(v) for v in row) for row in draw.integers(0, 4, size=(9, width)))
    points = list(itertools.product(range(4), repeat=width))
    q = int(1.5 * 2**30)
    expected = law(models, 1.5, t, points)
    boxes, stream = depths(models, q, 3), SeededStream(1)
    assert [math.prod(b - a + 1 for a, b in box) for box in boxes.boxes] == [
        sum(depth(models, p) >= i for p in points) for i in range(len(boxes.boxes))
    ]
    drawn = [tuple(boxes.draw(t, stream)) for _ in range(n)]
    found = np.array([drawn.count(p) for p in points]) / n
    assert found[expected == 0].sum() == 0
    # Bernstein's inequality for each of at most 64 points: a false alarm below 1e-6
    room = np.sqrt(2 * expected * 19 / n) + 2 * 19 / (3 * n)
    assert (np.abs(found - expected) <= room).all()


def line(n: int, seed: int) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    draw = np.random.default_rng(seed)
    x, z = draw.gamma(3, 20, n), draw.normal(0, 1, n)
    return {"x": x, "z": z, "y": 7 + 0.5 * x - 4 * z + draw.standard_t(4, n)}


def test_end_to_end() -> None:
    people = dp.dataset("people", columns={"x": None, "z": (-1, 1), "y": None})
    fit = dp.statistics.TukeyEM(["x", "z"], "y", models=500)
    plan = dp.Pipeline(fit=people.solve(fit, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    assert plan.certify().epsilon == 1.0
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    data = line(10_000, 1)
    data["x"][:50] = np.nan  # missing: left out
    data["z"] = data["z"].clip(-1, 1)
    found = plan.simulate(seed=1, people=data)["fit"]
    least = np.linalg.lstsq(
        np.stack([np.ones(9_950), data["x"][50:], data["z"][50:]], axis=1), data["y"][50:]
    )[0]
    assert list(found) == ["intercept", "x", "z"]
    np.testing.assert_allclose(list(found.values()), least, atol=0.2, rtol=0.02)
    few = plan.simulate(seed=1, people={k: v[:600] for k, v in data.items()})["fit"]
    assert all(math.isnan(v) for v in few.values())
    free = dp.Pipeline(fit=people.solve(fit, delta=1e-7)).calibrate(epsilon=0.5, delta=1e-6)
    assert 0.499 < free.certify().epsilon <= 0.5


def test_one_unit_changes_one_model() -> None:
    columns = {"x": None, "y": (0, 1)}
    table = dp.dataset("t", columns=columns, unit="id", rows_per_unit=2)
    declared = {name: table.domain.find(name) for name in columns}
    query = PrivateQuery(BatchModels(("x", "y"), 8, declared), (table,))

    def models(x: list[float]) -> list[list[int]]:
        names = [str(i // 2) for i in range(60)]
        rows = {"id": names, "x": x, "y": [i % 7 / 7 for i in range(60)]}
        plan = dp.Pipeline(m=query.release(DeepModel(epsilon=1.0, delta=1e-6))).with_delta(1e-6)
        name = plan.structure.releases[0].steps[-1].name
        value = private_values(plan, {"t": Secret(rows)}, 1, [name])[name].reveal()
        assert repr(value) == "<private models>"
        return list(value.columns)

    x = [float(i * i % 11) for i in range(60)]
    other = [1e9, -1e9, *x[2:]]
    for one, two in zip(models(x), models(other), strict=True):
        # as multisets they differ in one model
        left = list(one)
        assert sum(v in left and not left.remove(v) for v in two) >= 7  # type: ignore[func-returns-value]


def test_odd_rows_and_refusals() -> None:
    assert least_squares(np.zeros((0, 3))) == [0, 0]
    assert least_squares(np.array([[1.0, np.inf, 2.0], [1.0, 0.0, 1.0]])) == [0, 0]
    assert least_squares(np.array([[1.0, 1e-300, 1e300]])) is not None
    table = dp.dataset("t", columns={"x": (0, 1), "y": (0, 1), "s": str})
    for wrong, message in (
        (dp.statistics.TukeyEM(["x"], "y", models=3), "models"),
        (dp.statistics.TukeyEM(["x"], "x"), "different"),
        (dp.statistics.TukeyEM(["s"], "y"), "numbers"),
        (dp.statistics.TukeyEM(["missing"], "y"), "missing"),
    ):
        with pytest.raises(dp.DeclarationError, match=message):
            table.solve(wrong, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.DeclarationError, match="delta"):
        table.solve(dp.statistics.TukeyEM(["x"], "y"), epsilon=1.0, delta=0.0)
