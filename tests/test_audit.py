"""Audits of one mechanism: the broken ones are refuted, the correct ones are not."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import broken_mechanisms
import numpy as np
import pytest
from scipy import stats

import accountants
import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import audit
from adaptive_dp.audit import Audit, Neighbors
from adaptive_dp.audit.scores import table

CLASSICAL = math.sqrt(2 * math.log(1.25 / 1e-2)) / 10
"""The classical sigma for epsilon 10 at delta 1e-2, where its theorem does not hold."""

BROKEN: dict[str, Callable[[], Audit]] = {
    "half scale": lambda: audit.mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), 1.0, seed=1),
    "half scale, law unknown": lambda: audit.mechanism(
        broken_mechanisms.HalfNoise(scale=1.0), (0.0, 1.0), samples=5_000, seed=1
    ),
    "5% too small": lambda: audit.mechanism(dp.Laplace(scale=1 / 1.05), (0.0, 1.0), 1.0, seed=1),
    "5% too small, law unknown": lambda: audit.distinguish(
        broken_mechanisms.black(
            lambda v, s: broken_mechanisms.coarse(v + s.laplace(1 / 1.05, v.shape)), 0.0, 1.0
        ),
        1.0,
        samples=400_000,
        seed=1,
    ),
    "l1 taken for linf": lambda: audit.mechanism(
        dp.Laplace(scale=1.0), (np.zeros(10), np.ones(10)), 1.0, seed=1
    ),
    "sigma / sqrt 2": lambda: audit.mechanism(
        dp.Gaussian(sigma=1 / math.sqrt(2)), (0.0, 1.0), accountants.Gaussian(mu=1.0), seed=1
    ),
    "value of the noisy max": lambda: audit.mechanism(
        broken_mechanisms.NoisyLeak(scale=2.0), (np.zeros(20), np.ones(20)), samples=5_000, seed=1
    ),
    "low bits": lambda: audit.distinguish(
        broken_mechanisms.black(lambda v, s: v + s.laplace(1.0, v.shape), 0.0, 1.0), 1.0, seed=1
    ),
    "distance without noise": lambda: audit.distinguish(
        broken_mechanisms.untested(noise=False), (1.0, 1e-3), samples=10_000, seed=1
    ),
    **{
        f"sparse vector {number}": lambda number=number, samples=samples: audit.distinguish(
            broken_mechanisms.sparse_vector(number), 1.0, samples=samples, seed=1
        )
        for number, samples in ((3, 40_000), (4, 25_000), (5, 25_000), (6, 25_000))
    },
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_is_caught(name: str) -> None:
    result = BROKEN[name]()
    assert result.verdict == "violation"
    assert result.epsilon_lower > result.epsilon
    assert result.power > result.epsilon


def test_the_classical_gaussian_is_caught_beyond_its_theorem() -> None:
    """True delta at epsilon 10 is four times the claimed. By default it is ten million runs."""
    result = audit.mechanism(
        dp.Gaussian(sigma=CLASSICAL),
        (0.0, 1.0),
        (10.0, 1e-2),
        samples=3_000_000,
        confidence=0.95,
        seed=1,
    )
    assert result.verdict == "violation"
    truth = accountants.Guarantee(accountants.Spend(accountants.Gaussian(mu=1 / CLASSICAL)))
    assert result.epsilon_lower < truth.epsilon(1e-2).upper
    assert result.delta_lower < truth.delta(10.0).upper


CORRECT: dict[str, Callable[[], Audit]] = {
    "sparse vector 1": lambda: audit.distinguish(
        broken_mechanisms.sparse_vector(1), 1.0, samples=10_000, seed=1
    ),
    "sparse vector 2": lambda: audit.distinguish(
        broken_mechanisms.sparse_vector(2), 1.0, samples=10_000, seed=1
    ),
    "propose, test, release": lambda: audit.distinguish(
        broken_mechanisms.untested(noise=True), (1.0, 1e-3), samples=50_000, seed=1
    ),
    "Laplace's bits": lambda: audit.distinguish(
        broken_mechanisms.black(lambda v, s: dp.Laplace(scale=1.0).release(v, s), 0.0, 1.0),
        1.0,
        seed=1,
    ),
    "vector": lambda: audit.mechanism(
        dp.Gaussian(sigma=2.0), (np.zeros(4), np.ones(4)), samples=20_000, seed=1
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_is_not_accused(name: str) -> None:
    """Fixed seeds: what holds once holds always; the rate is tested below."""
    result = CORRECT[name]()
    assert result.verdict == "consistent"
    assert result.epsilon_lower <= result.epsilon


TIGHT: dict[str, Callable[[int], Audit]] = {
    "response": lambda i: audit.distinguish(
        broken_mechanisms.response(1.0), 1.0, samples=600, seed=i
    ),
    "Laplace": lambda i: audit.mechanism(
        dp.Laplace(scale=1.0), (0.0, 1.0), 1.0, samples=600, seed=i
    ),
    "Laplace, law unknown": lambda i: audit.distinguish(
        broken_mechanisms.black(lambda v, s: dp.Laplace(scale=1.0).release(v, s), 0.0, 1.0),
        1.0,
        samples=600,
        seed=i,
    ),
    "geometric": lambda i: audit.mechanism(
        dp.DiscreteLaplace(scale=1.0), (0.0, 1.0), 1.0, samples=300, seed=i
    ),
    "Gaussian": lambda i: audit.mechanism(
        dp.Gaussian(sigma=1.0), (0.0, 1.0), GAUSSIAN, samples=600, seed=i
    ),
}
GAUSSIAN = audit.claim(accountants.Gaussian(mu=1.0))


@pytest.mark.parametrize("name", TIGHT)
def test_false_alarms_are_as_rare_as_said(name: str) -> None:
    """At the exact truth; more alarms than allowed with a probability below 1e-6."""
    runs = 50
    result = [TIGHT[name](i) for i in range(runs)]
    alarms = sum(each.verdict == "violation" for each in result)
    allowed = stats.binom.isf(1e-7, runs, 0.05)
    assert alarms <= allowed
    if name == "Gaussian":
        assert sum(each.mu_lower > 1.0 for each in result) <= allowed


def test_power_with_a_declared_law() -> None:
    """Above 0.97 at 1e5 and 0.99 at 1e6 (by 2.5 and 3 standard errors), and the truth is not."""
    for runs, least in ((100_000, 0.97), (1_000_000, 0.99)):
        result = audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), 1.0, samples=runs, seed=2)
        assert least < result.epsilon_lower <= 1.0
        assert result.verdict == "consistent"


@pytest.mark.parametrize("mu", [1.0, 2.0, 4.0])
def test_mu_within_three_percent(mu: float) -> None:
    result = audit.mechanism(dp.Gaussian(sigma=1 / mu), (0.0, 1.0), samples=100_000, seed=3)
    assert 0.97 * mu < result.mu_lower <= mu


def test_both_directions_and_one_alone() -> None:
    """An outcome that only the second side has is found as well as one that only the first has."""

    def never(runs: int, stream: Any) -> list[str]:
        return ["no"] * runs

    def sometimes(runs: int, stream: Any) -> list[str]:
        return ["yes" if coin else "no" for coin in stream.bernoulli(0.1, runs)]

    for laws in ((never, sometimes), (sometimes, never)):
        result = audit.distinguish(Neighbors("", *laws), (1.0, 0.01), samples=5_000, seed=1)
        assert result.verdict == "violation"
        assert result.witness.wrong == 0
        assert 0.07 < result.delta_lower <= 0.1


def test_the_worst_of_many_pairs_costs_nothing_extra() -> None:
    same = [broken_mechanisms.response(0.5) for _ in range(8)]
    worse = attrs.evolve(broken_mechanisms.response(2.0), words="the bad pair")
    result = audit.distinguish([*same, worse], 1.0, samples=3_000, seed=1)
    assert result.verdict == "violation"
    assert result.witness.pair == "the bad pair"
    assert len(result.pairs) == 9


def test_too_few_runs_are_said_to_be_too_few() -> None:
    result = audit.mechanism(dp.Laplace(scale=0.1), (0.0, 1.0), samples=200, seed=1)
    assert result.verdict == "underpowered"
    assert result.power == math.inf
    assert json.loads(result.to_json())["power"] == {"float": "inf"}


def test_the_claim_is_the_loss_at_the_distance() -> None:
    laplace = audit.mechanism(dp.Laplace(scale=2.0), ([0.0, 0.0], [1.0, 2.0]), samples=500, seed=1)
    assert "Laplace(epsilon=1.5" in laplace.claim
    largest = audit.mechanism(
        dp.NoisyMax(scale=2.0), [([0.0, 1.0], [1.0, 1.0])], samples=100, seed=1
    )
    assert "0.5" in largest.claim


def test_equal_seeds_give_equal_audits() -> None:
    one, two = (
        audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=1_000, seed=7) for _ in range(2)
    )
    assert one == two
    other = audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=1_000)
    assert other.seed is None
    assert other.witness != one.witness or other.epsilon_lower != one.epsilon_lower


def test_errors_are_outcomes() -> None:
    """One that fails on one side only tells the sides apart."""

    class Fails(dp.Mechanism):
        scale: float = dp.noise_parameter("b")

        def release(self, value: Any, stream: Any) -> Any:
            if value > 0:
                raise ValueError("private")
            return value + stream.laplace(self.scale, value.shape)

        def loss(self, distance: float) -> accountants.PrivacyLoss:
            return accountants.Laplace(distance / self.scale)

    result = audit.mechanism(Fails(scale=1.0), (0.0, 1.0), samples=1_000, seed=1)
    assert result.verdict == "violation"
    assert "private" not in str(result)
    with pytest.raises(ValueError, match="private"):
        audit.mechanism(Fails(scale=1.0), (1.0, 2.0), samples=1_000)


def test_a_law_of_ones_own() -> None:
    """``log_likelihood`` is used; a wrong one costs power, never truth."""

    class WithLaw(dp.Mechanism):
        scale: float = dp.noise_parameter("b")

        def release(self, value: Any, stream: Any) -> Any:
            return broken_mechanisms.coarse(value + stream.laplace(self.scale, value.shape))

        def loss(self, distance: float) -> accountants.PrivacyLoss:
            return accountants.Pure(distance / self.scale)

        def log_likelihood(self, value: Any, outcomes: Any) -> Any:
            return -np.abs(outcomes - value) / self.scale

    class Wrong(WithLaw):
        def log_likelihood(self, value: Any, outcomes: Any) -> Any:
            return 3 * outcomes * (value - 0.5)

    def run(made: dp.Mechanism) -> Audit:
        return audit.mechanism(
            made, (0.0, 1.0), 1.0, samples=20_000, seed=1, independent=True, delta=0.0
        )

    assert run(WithLaw(scale=1.0)).epsilon_lower > 0.93
    assert "own log-likelihood" in run(WithLaw(scale=1.0)).witness.event
    assert run(Wrong(scale=1.0)).epsilon_lower <= 1.0
    assert run(WithLaw(scale=1.0)).assumptions == ("coordinates get independent noise of one law",)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"samples": 10}, "samples"),
        ({"confidence": 1.0}, "confidence"),
        ({"claim": (1.0, 1.0)}, "claim"),
        ({"claim": (1.0, 0.1), "delta": 0.2}, r"0\.1"),
        ({"claim": -1.0}, "epsilon"),
        ({"claim": math.nan}, "epsilon"),
        ({"claim": (1.0, 0.1, 0.2)}, r"\(epsilon, delta\)"),
        ({"values": (0.0, [1.0, 2.0])}, r"\(2,\)"),
        ({"values": [0.0, 1.0]}, "values"),
        ({"values": []}, "pair"),
        ({"audited": dp.Laplace(scale=dp.Free("b"))}, "Laplace.*scale"),
    ],
)
def test_bad_input_is_refused(wrong: dict[str, Any], says: str) -> None:
    good = {"audited": dp.Laplace(scale=1.0), "values": (0.0, 1.0), "claim": 1.0, "samples": 200}
    with pytest.raises(DomainError, match=says):
        audit.mechanism(**{**good, **wrong})


def test_samplers_that_miscount_are_refused() -> None:
    short = Neighbors("", lambda runs, s: [0] * (runs - 1), lambda runs, s: [0] * runs)
    with pytest.raises(DomainError, match="returned"):
        audit.distinguish(short, 1.0, samples=100)


def test_results_speak() -> None:
    result = audit.mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), 1.0, samples=2_000, seed=1)
    text = str(result)
    assert "violation" in text
    assert "private" not in text
    assert json.loads(result.to_json())["witness"]["pair"] == "0.0 against 1.0"
    assert "<table>" in result._repr_html_()
    assert repr(result).startswith("<audit violation")
    assert pickle.loads(pickle.dumps(result)) == result
    with pytest.raises(TypeError):
        bool(result)


def test_the_picture() -> None:
    pytest.importorskip("matplotlib")
    result = audit.mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), 1.0, samples=500, seed=1)
    assert result.plot().get_title(loc="left") == "violation"


def test_outcomes_of_any_kind_have_features() -> None:
    outcomes = [None, "a", True, 3, 2.5, math.nan, math.inf, -math.inf, (1, "b"), [1.0, 2.0]]
    more = [{"x": 1, "y": None}, np.array([1.0, math.nan]), b"c", 10**400, (), ValueError("x")]
    both = [*outcomes, *more]
    result = table(both)
    assert result.numbers.shape == (16, 2)
    assert np.isfinite(result.numbers).all()
    plain = {both[3]: 0, both[4]: 0}  # two numbers alike but for their value
    assert len(set(result.patterns.tolist())) == len(both) - len(plain) + 1
    again = table(both, width=1)
    assert again.numbers.shape == (16, 1)


def test_constant_outcomes_tell_nothing() -> None:
    same = Neighbors("", lambda runs, s: [None] * runs, lambda runs, s: [None] * runs)
    result = audit.distinguish(same, 1.0, samples=1_000, seed=1)
    assert result.epsilon_lower == 0
    assert result.verdict != "violation"


class NaiveLaplace(dp.Mechanism):
    """Noise as one writes it: a float plus floats (Mironov 2012)."""

    norm: ClassVar[float] = 1
    scale: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        size = (stream.words(value.size).astype(np.float64) + 0.5) * 2.0**-64
        sign = np.where(stream.words(value.size) < np.uint64(2**63), 1.0, -1.0)
        return value - sign * np.log(size) * self.scale

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


def test_noise_whose_low_bits_tell_is_named_as_that() -> None:
    found = audit.mechanism(NaiveLaplace(scale=2.0), (0.0, 1.0), samples=12_000, seed=1)
    assert found.verdict == "violation"
    assert "last bit" in found.witness.event
    assert any(note.startswith("low bits:") and "Mironov" in note for note in found.notes)
    assert "low bits" in str(found)
    # the library's own noise is on a lattice
    sound = audit.mechanism(dp.Laplace(scale=2.0), (0.0, 1.0), samples=12_000, seed=1)
    assert sound.verdict != "violation"
    assert not any("low bits" in note for note in sound.notes)
