"""Audits of any Python function, and of what other libraries claim."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import polars as pl
import pytest
from dp_accounting import pld, rdp

import accountants
import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import audit


def noisy_total(scale: float) -> Any:
    rng = np.random.default_rng(3)

    def total(rows: Any) -> Any:
        # a sum of numbers in [0, 1], whatever holds them
        column = rows["x"] if hasattr(rows, "keys") or hasattr(rows, "columns") else rows
        return float(np.round(np.clip(np.asarray(column), 0, 1).sum() + rng.laplace(0, scale), 6))

    return total


NUMBERS = [0.0, 0.25, 1.0, 0.5]
KINDS: dict[str, Any] = {
    "list": NUMBERS,
    "tuple": tuple(NUMBERS),
    "array": np.array(NUMBERS),
    "mapping": {"x": NUMBERS, "town": ["a", "b", "c", "d"]},
    "mapping of arrays": {"x": np.array(NUMBERS)},
    "pandas": pd.DataFrame({"x": NUMBERS, "town": ["a", "b", "c", "d"]}),
    "polars": pl.DataFrame({"x": NUMBERS, "town": ["a", "b", "c", "d"]}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_a_function_with_too_little_noise_is_refuted(kind: str, neighbors: Any) -> None:
    """Epsilon is 1 / scale on the row of 1, left out or exchanged for the row of 0."""
    options: dict[str, Any] = {"neighbors": neighbors, "samples": 1_500}
    broken = audit.callable(noisy_total(0.4), KINDS[kind], 1.0, **options)
    assert broken.verdict == "violation"
    assert 1.0 < broken.epsilon_lower <= 2.5
    assert (
        "'x'" in broken.witness.pair
        or "'values'" in broken.witness.pair
        or ("'column 0'" in broken.witness.pair)
    )
    assert any("as private as" in note for note in broken.notes)
    # at the exact truth: refuted with a probability of 1e-9 at most
    sound = audit.callable(noisy_total(1.0), KINDS[kind], 1.0, confidence=1 - 1e-9, **options)
    assert sound.verdict != "violation"


def test_data_are_copied_and_exceptions_are_outcomes() -> None:
    rows = [0.0, 1.0, 3.0]

    def strict(values: list[float]) -> int:
        values.clear()  # a function may change what it is given
        return 1

    audit.callable(strict, rows, 1.0, samples=100)
    assert rows == [0.0, 1.0, 3.0]

    def failing(values: list[float]) -> float:
        if max(values) > 2:
            raise ValueError(f"{max(values)} is too large")
        return 0.0

    found = audit.callable(failing, rows, 1.0, samples=500)
    assert found.verdict == "violation"


def test_pairs_of_ones_own() -> None:
    pair = ({"any": "kind"}, {"any": "other"})
    found = audit.callable(lambda data: data["any"], None, 1.0, pairs=[pair], samples=300)
    assert found.verdict == "violation"


@pytest.mark.parametrize(
    ("data", "match"),
    [(["one"], "at least two rows"), (3.0, "a float"), ({"x": [1], "y": [1, 2]}, "one length")],
)
def test_data_that_cannot_be_used(data: Any, match: str) -> None:
    with pytest.raises(dp.DataError, match=match):
        audit.callable(len, data, 1.0)


def test_a_relation_is_one_of_two() -> None:
    with pytest.raises(DomainError, match="replace_one"):
        audit.callable(len, [1, 2], 1.0, neighbors="zero_out")  # type: ignore[arg-type]


# --- what others claim


class DiffprivlibMechanism:
    """As diffprivlib's mechanisms: numbers as attributes."""

    epsilon, delta = 0.5, 1e-3


class BudgetAccountant:
    """As diffprivlib's."""

    def total(self) -> tuple[float, float]:
        return (0.75, 1e-6)


class Measurement:
    """As OpenDP's."""

    def __init__(self, measure: str, answer: Any) -> None:
        self.output_measure, self.answer = measure, answer

    def map(self, distance: int) -> Any:
        return self.answer


class Profile:
    """As OpenDP's privacy profile."""

    def epsilon(self, delta: float) -> float:
        return -math.log10(delta)


def test_claims_of_other_libraries_are_read() -> None:
    assert audit.claim(DiffprivlibMechanism()).points == ((0.5, 1e-3),)  # type: ignore[arg-type]
    assert audit.claim(BudgetAccountant()).points == ((0.75, 1e-6),)  # type: ignore[arg-type]
    assert audit.claim((Measurement("MaxDivergence", 0.5), 1)).points == ((0.5, 0.0),)
    approximate = Measurement("Approximate(MaxDivergence)", (0.5, 1e-4))
    assert audit.claim((approximate, 1)).points == ((0.5, 1e-4),)
    concentrated = audit.claim((Measurement("ZeroConcentratedDivergence", 0.125), 1), delta=1e-3)
    truth = accountants.Guarantee(accountants.Spend(accountants.ZeroConcentrated(rho=0.125)))
    assert concentrated.points == ((truth.epsilon(1e-3).upper, 1e-3),)
    smoothed = audit.claim((Measurement("SmoothedMaxDivergence", Profile()), 1), delta=1e-3)
    assert smoothed.points == ((3.0, 1e-3),)
    with pytest.raises(DomainError, match="RenyiDivergence"):
        audit.claim((Measurement("RenyiDivergence", None), 1))


def test_claims_of_dp_accounting_are_read() -> None:
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0), 4)
    exact = accountants.Guarantee(accountants.Spend(accountants.Gaussian(mu=0.5)))
    [(epsilon, _delta)] = audit.claim(event, delta=1e-3).points
    assert exact.epsilon(1e-3).lower <= epsilon <= exact.epsilon(1e-3).upper * 1.001
    for accountant in (pld.PLDAccountant(), rdp.RdpAccountant()):
        accountant.compose(event)
        points = {d: e for e, d in audit.claim(accountant).points}
        assert points[1e-3] == pytest.approx(accountant.get_epsilon(1e-3))
        assert points[1e-3] > epsilon * 0.999


def test_a_measurement_of_opendp_keeps_its_claim() -> None:
    odp = pytest.importorskip("opendp.prelude")
    odp.enable_features("contrib")
    space = odp.vector_domain(odp.atom_domain(bounds=(0, 1))), odp.symmetric_distance()
    count = space >> odp.t.then_sum() >> odp.m.then_laplace(scale=1.0)
    found = audit.callable(count, [0, 1, 1, 0], (count, 1), samples=500, confidence=1 - 1e-9)
    assert found.epsilon == pytest.approx(1.0)
    assert found.verdict != "violation"
    broken = audit.callable(count, [0, 1, 1, 0], 0.3, samples=2_000)
    assert broken.verdict == "violation"


def test_it_tells_how_many_calls_are_left():
    calls, told = [], []

    def count(rows):
        calls.append(1)
        return len(rows) + round(np.random.default_rng().laplace(0, 1.0), 3)

    audit.callable(count, [1.0, 2.0, 3.0], 1.0, samples=400, progress=lambda *e: told.append(e))
    done, totals, left = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {len(calls)} == {done[-1]}
    assert left[-1] == 0
    with pytest.raises(DomainError):  # no pair: nothing to count
        audit.callable(count, [1.0, 2.0], 1.0, pairs=[], progress=lambda *e: None)
