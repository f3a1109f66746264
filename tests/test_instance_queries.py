"""Trimmed means, variances and own functions: bounds above all brute-force sensitivities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_smooth_sensitivity import Brute, Data, neighbours

import adaptive_dp as dp
from adaptive_dp.graph.mechanism import LocalSensitivity
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.order_statistics import (
    TrimmedMeanSensitivity,
    UserSensitivity,
    VarianceSensitivity,
)


def trimmed(x: Data, share: float) -> TrimmedMeanSensitivity:
    return TrimmedMeanSensitivity(np.array(sorted(x)), 0.0, 4.0, share)


def trimmed_mean(x: Data, share: float) -> float:
    t = math.floor(round(share * 1000) * len(x) / 1000)
    middle = sorted(x)[t : len(x) - t]
    return sum(middle) / len(middle)


def spread(x: Data) -> VarianceSensitivity:
    return VarianceSensitivity(
        np.array([round(4 * v) for v in sorted(x)], dtype=np.int64), 16, 0.25
    )


def lawful(ours: Any, brute: Brute, exact_until: Any = None) -> None:
    """A_k is bounded, the bound grows, and is at most a neighbour's one step farther."""
    for x in brute.sets:
        here = ours(x)
        result = [here.local(k) for k in range(len(x) + 2)]
        assert result == sorted(result)
        assert result[-1] == result[here.max_distance] <= here.upper - here.lower
        for k, exact in enumerate(brute.locals(x, len(x))):
            assert exact <= result[k]
            if exact_until is not None and k <= exact_until(x):
                assert result[k] == pytest.approx(exact, rel=1e-9)
        for y in neighbours(x, exchange=True):
            other = ours(y)
            assert all(result[k] <= other.local(k + 1) * (1 + 1e-15) for k in range(len(x) + 1))
            assert here.smooth(0.4) <= math.exp(0.4) * other.smooth(0.4) * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.34, 0.45])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_trimmed_means_against_brute_force(share: float, n: int) -> None:
    brute = Brute(lambda x: trimmed_mean(x, share), [n], exchange=True)
    for x in brute.sets:
        assert trimmed(x, share).value == pytest.approx(trimmed_mean(x, share))
    remaining = n - 2 * math.floor(round(share * 1000) * n / 1000)
    lawful(lambda x: trimmed(x, share), brute, lambda x: remaining - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_variances_against_brute_force(n: int) -> None:
    brute = Brute(lambda x: float(np.var(x)), [n], exchange=True)
    for x in brute.sets:
        assert spread(x).value == pytest.approx(float(np.var(x)))
    lawful(spread, brute)


def test_a_trimmed_mean_is_steadier_than_a_mean() -> None:
    values = np.sort(np.random.default_rng(0).normal(50, 1, 1001).clip(0, 100))
    some, none = (TrimmedMeanSensitivity(values, 0.0, 100.0, share) for share in (0.1, 0.0))
    assert some.smooth(0.05) < none.smooth(0.05) / 10


EMPTY: list[LocalSensitivity] = [
    TrimmedMeanSensitivity(np.array([]), 1.0, 2.0, 0.1),
    VarianceSensitivity(np.array([], dtype=np.int64), 16, 0.25),
    UserSensitivity(np.array([]), 1.0, 2.0, len, lambda v, k: 0.0),
]


@pytest.mark.parametrize("sensitivity", EMPTY, ids=lambda s: type(s).__name__)
def test_no_rows(sensitivity: LocalSensitivity) -> None:
    assert sensitivity.lower <= sensitivity.value <= sensitivity.upper
    result = float(dp.SmoothStudent(epsilon=1.0).release(sensitivity, SeededStream(1)))
    assert sensitivity.lower <= result <= sensitivity.upper
    assert "1" not in repr(sensitivity)


def test_extreme_bounds() -> None:
    low, high = -9e289, 9e289
    huge = TrimmedMeanSensitivity(np.array([low, 0.0, high]), low, high, 0.1)
    assert low <= huge.value <= high
    assert 0 < huge.local(0) <= high - low
    narrow = TrimmedMeanSensitivity(np.array([1e9, 1e9 + 1]), 1e9, 1e9 + 1, 0.0)
    assert 0.5 <= narrow.local(0) <= 1
    table = dp.dataset("t", columns={"x": (0, 1e200)}, neighbors="replace_one")
    with pytest.raises(dp.DeclarationError, match="squares; rescale"):
        table["x"].fill(0).local_variance()


def top(values: np.ndarray) -> float:
    return float(values[-1]) if len(values) else 0.0


def top_moves(values: np.ndarray, k: int) -> float:
    """The largest value goes up to the bound, or down to the next one left."""
    padded = np.concatenate([np.zeros(k + 2), values])
    return float(max(4.0 - padded[-1 - k], padded[-1] - padded[-2 - k]))


def test_functions_of_ones_own_against_brute_force() -> None:
    """Of rows added or removed: from x within k, one more goes up, or down."""
    brute = Brute(top, range(7), exchange=False)
    for x in [y for y in brute.sets if len(y) <= 3]:
        ours = UserSensitivity(np.array(sorted(x)), 0.0, 4.0, top, top_moves)
        for k, exact in enumerate(brute.locals(x, 3)):
            assert exact <= ours.local(k)
        for y in neighbours(x, exchange=False):
            other = UserSensitivity(np.array(sorted(y)), 0.0, 4.0, top, top_moves)
            assert ours.smooth(0.4) <= math.exp(0.4) * other.smooth(0.4) * (1 + 1e-12)


def broken(values: np.ndarray, k: int = 0) -> float:
    raise ValueError(f"saw {values}")


@pytest.mark.parametrize(
    ("function", "local", "value"),
    [
        (broken, broken, 1.0),
        (lambda v: math.nan, lambda v, k: math.nan, 1.0),
        (lambda v: math.inf, lambda v, k: math.inf, 2.0),
        (lambda v: -1e300, lambda v, k: -1.0, 1.0),
        (lambda v: "text", lambda v, k: None, 1.0),
    ],
)
def test_functions_that_fail_tell_nothing(function: Any, local: Any, value: float) -> None:
    ours = UserSensitivity(np.array([1.5]), 1.0, 2.0, function, local)
    assert ours.value == value
    assert ours.local(0) == ours.local(9) == 1.0


def test_functions_cannot_change_the_data() -> None:
    def spoil(values: np.ndarray, k: int = 0) -> float:
        values[:] = 0
        return 1.5

    ours = UserSensitivity(np.array([1.25, 1.75]), 1.0, 2.0, spoil, spoil)
    assert (ours.value, ours.local(1), ours.values.tolist()) == (1.5, 1.0, [1.25, 1.75])


def test_in_a_plan_with_what_it_assumes() -> None:
    table = dp.dataset("t", columns={"x": (0, 4)}, neighbors="replace_one")
    x = table["x"].fill(2)
    plan = dp.Pipeline(
        trimmed=x.trimmed_mean(0.1).release(dp.SmoothStudent(epsilon=1.0)),
        variance=x.local_variance().release(dp.SmoothCauchy(epsilon=1.0)),
        top=x.instance(top, top_moves, range=(0, 4)).release(dp.SmoothCauchy(epsilon=1.0)),
    )
    paper = plan.certify()
    assert paper.epsilon == pytest.approx(3.0)
    assert any("own functions" in line for line in paper.assumptions)
    assert dp.verify(paper).holds
    frame = {"x": np.append(np.linspace(1, 3, 999), math.nan)}
    result = plan.simulate(seed=4, t=frame)
    assert result["trimmed"] == pytest.approx(2.0, abs=0.05)
    assert result["variance"] == pytest.approx(1 / 3, abs=0.1)
    again = dp.load(plan.to_json(), allow=[__name__])
    assert again.fingerprint == plan.fingerprint
    assert again.simulate(seed=4, t=frame)["top"] == result["top"]
    with pytest.raises(dp.DeclarationError, match="allow"):
        dp.load(plan.to_json()).simulate(seed=4, t=frame)


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_own_local_sensitivities_below_the_width_stay_lawful(n: int, exchange: bool) -> None:
    """The width at a large distance must not be reached two steps sooner where a row is missing."""

    def ours(rows: int) -> UserSensitivity:
        return UserSensitivity(np.full(rows, 0.5), 0.0, 1.0, lambda v: 0.5, lambda v, k: 0.001)

    here, there = ours(n), ours(n if exchange else n + 1)
    for one, other in [(here, there), (there, here)]:
        assert all(one.local(k) <= other.local(k + 1) for k in range(2 * n + 8))
        assert one.smooth(0.5) <= math.exp(0.5) * other.smooth(0.5) * (1 + 1e-12)
        assert one.linear(0.1) <= other.linear(0.1) + 0.1 + 1e-12
    assert abs(here.distance_above(0.01) - there.distance_above(0.01)) <= 1
