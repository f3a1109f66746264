"""The test kit: every shipped mechanism passes it, and each way to be broken is found."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import plans
import pytest
from attrs import frozen

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.registry import MECHANISMS
from adaptive_dp.queries.groups import CountRows
from adaptive_dp.testing import check, examine

OF_NUMBERS = ("forgetting", "large values", "odd values")
"""Checks of mechanisms that read numbers."""

FAST = (
    "parameters", "shape", "freshness", "forgetting", "large values", "odd values", "audit",
    "low bits",
)  # fmt: skip
"""All but the laws of losses, which tests of their own check for the library's."""


def column() -> Any:
    return plans.people("replace_one", unit=None)["x"]


def shipped() -> dict[str, tuple[Any, ...]]:
    x = column()
    test = dp.ProposeTestRelease(epsilon=1.0, delta=1e-7, bound=2.0)
    released = dp.ReleasedSensitivity(epsilon=1.0, delta=1e-7, slope=0.1, logarithmic=False)
    mechanisms = [
        (dp.Laplace(scale=1.0),),
        (dp.DiscreteLaplace(scale=2.0),),
        (dp.statistics.Tulap(scale=2.0),),
        (dp.Gaussian(sigma=2.0),),
        (dp.DiscreteGaussian(sigma=2.0),),
        (dp.Exponential(scale=2.0),),
        (dp.PermuteAndFlip(scale=2.0),),
        (dp.TopK(scale=4.0, k=2),),
        (dp.JointTopK(scale=4.0, k=2),),
        (dp.NoisyMaxWithGap(scale=3.0),),
        (dp.NoisyMax(scale=3.0, noise="laplace"),),
        (dp.SparseVector(scale=5.0, threshold=1, count=2),),
        (dp.SparseVectorWithGap(scale=5.0, threshold=1, count=2),),
        (dp.BetweenThresholds(scale=5.0, lower=0, upper=300, failure=1e-6),),
        (dp.GaussianSparseVector(9.0, 12.0, threshold=4, queries=3),),
        (dp.Norm(scale=2.0),),
        (dp.QuantileExponential(scale=2.0), x.median()),
        (dp.InverseSensitivity(scale=2.0), x.median()),
        (dp.SmoothStudent(epsilon=1.0), x.median()),
        (dp.SmoothCauchy(epsilon=0.5), x.quantile(0.1)),
        (dp.SmoothLaplace(epsilon=1.0, delta=1e-7), x.quantile(0.9)),
        (dp.SmoothLaplaceLogNormal(epsilon=0.5), x.fill(0).trimmed_mean(0.1)),
        (released, x.fill(0).local_variance()),
        (test, x.fill(0).instance(plans.largest, plans.jump, range=(-5, 10))),
        (dp.DistanceToInstability(epsilon=1.0, delta=1e-7), x.mode([-5, 0, 10])),
    ]
    return {type(case[0]).__name__: case for case in mechanisms}


ELSEWHERE = {
    "EllipsoidMean",  # it reads all rows: tests/test_tukey_median.py
    "DeepModel",  # it reads models of batches: tests/test_tukey_em.py
    "Claimed",  # it stands for a release of another library
    "FollowTheLeader",  # it reads gradients at parameters to come
    "FollowTheLeaderRound",  # it continues a run: tests/test_training_rounds.py
    "FollowTheLeaderRun",  # it releases nothing but that a run has begun: the same
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "PassedGNMax",
    "Plurality",
    "Sanitized",
    "SparseVectorAnswer",
    "SparseVectorRun",  # a run's beginning and its answers, which are nothing without each other
    "StableVotes",
    "TestedGNMax",
    "VoteCheck",  # these read votes
    "LowerBound",
    "UpperBound",
    "PerturbedCoefficients",
    "PerturbedMinimizer",
    "PerturbedValue",
    "SensitivityBound",  # these follow released bounds
    "PosteriorSample",
    "TruncatedPosterior",
    "PerturbedObjective",
    "PurePerturbedObjective",
    "LogConcaveSample",
    "ProvedProgram",  # whose loss is proved of each program: tests/test_prove.py
    "PartitionSelection",
    "ThresholdGaussian",
    "ThresholdLaplace",
    "TopKeys",
    "WeightedGaussian",  # these release keys
}
"""Mechanisms that only their own plans can run; their tests are their own."""


def test_every_mechanism_is_shipped_or_named() -> None:
    assert (
        set(MECHANISMS) - {"OpenDP"} == set(shipped()) | ELSEWHERE
    )  # whose tests need its package


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "GaussianSparseVector" else name
        for name in shipped()
    ],
)
def test_the_librarys_own_pass(name: str) -> None:
    case = shipped()[name]
    numbers = case[0].input_type is np.ndarray
    check(*case, samples=300, only=[c for c in FAST if numbers or c not in OF_NUMBERS])


def test_the_laws_of_a_loss_are_checked_too() -> None:
    report = check(dp.Laplace(scale=2.0), samples=300)
    assert {"loss", "calibration"} < set(report.checked)


class Noisy(Mechanism):
    """Broken nowhere but in its lowest bits; the broken ones below change one thing each."""

    scale: float = dp.noise_parameter("b")
    norm = 1
    step: ClassVar[float] = 2.0**-20

    def release(self, value: Any, stream: Any) -> Any:
        noise = (
            stream.laplace(self.scale, value.shape) if value.ndim else stream.laplace(self.scale)
        )
        grid = self.step * np.round((value + noise) / self.step)
        return np.where(np.isfinite(grid), grid, 0.0)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


@pytest.mark.parametrize("only", [("audits",), ("audit", "sensitivity"), "audit"])
def test_a_check_that_there_is_not_is_refused(only: Any) -> None:
    with pytest.raises(DeclarationError):
        examine(dp.Laplace(scale=2.0), samples=100, only=only)


def found_in(mechanism: Mechanism, *only: str) -> str:
    report = examine(mechanism, samples=3000, only=only)
    assert {finding.check for finding in report.findings} <= set(report.checked)
    return str(report)


def test_a_sound_one_of_ones_own_passes() -> None:
    check(Noisy(scale=1.0), samples=1000)


def test_half_of_the_noise_is_detected() -> None:
    class Half(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            return Noisy(scale=self.scale / 2).release(value, stream)

    assert "- audit: epsilon" in found_in(Half(scale=1.0), "audit")


def test_the_lowest_bits_of_ordinary_floats_are_detected() -> None:
    class Floating(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            return value + stream.laplace(self.scale, value.shape)

    findings = found_in(Floating(scale=1.0), "low bits", "odd values")
    assert "- low bits: the lowest bits" in findings
    assert "a value of nan is released as" in findings


def test_noise_that_is_absorbed_is_detected() -> None:
    class Coarse(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            return np.asarray(value + 0.01 * np.asarray(stream.laplace(self.scale, value.shape)))

    assert "absorbed" in found_in(Coarse(scale=1.0), "large values")


def test_a_loss_that_breaks_its_laws_is_detected() -> None:
    class Falling(Noisy):
        def loss(self, distance: float) -> accountants.PrivacyLoss:
            return accountants.Laplace(1 / (distance + 1))

    class Square(Noisy):
        def loss(self, distance: float) -> accountants.PrivacyLoss:
            return accountants.Laplace(distance**2 / self.scale)

    assert "falls with the distance" in found_in(Falling(scale=1.0), "loss")
    assert "a group of 2 has at most" in found_in(Square(scale=1.0), "loss")


def test_parameters_that_are_not_checked_are_detected() -> None:
    import attrs

    class Careless(Noisy):
        scale: float = attrs.field(metadata={"symbol": "b", "role": "noise"})

    findings = found_in(Careless(scale=1.0), "parameters")
    for bad in ("nan", "inf", "0", "-1", "True", "'1'", "None"):
        assert f"scale={bad} is accepted" in findings


def test_noise_of_a_global_generator_is_detected() -> None:
    class Global(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            noise = [random.expovariate(1) - random.expovariate(1) for _ in range(value.size)]
            return value + np.reshape(noise, value.shape)

    assert "not all randomness is the stream's" in found_in(Global(scale=1.0), "freshness")


def test_a_generator_shared_between_draws_is_detected() -> None:
    generator = np.random.default_rng(3)

    class SharedGenerator(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            if type(stream).__name__ == "SeededStream":
                return super().release(value, stream)
            return value + generator.laplace(size=value.shape)

    assert "forked processes draw equal noise" in found_in(SharedGenerator(scale=1.0), "freshness")


def test_a_mechanism_that_remembers_is_detected() -> None:
    class Remembers(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            last = self.__dict__.get("last", 0.0)
            self.__dict__["last"] = float(np.ravel(value)[0])
            return super().release(value + last, stream)

    findings = found_in(Remembers(scale=1.0), "forgetting")
    assert "depends on what was released before" in findings
    assert "shows the value" in findings


def test_a_shape_that_is_not_promised_is_detected() -> None:
    class Flat(Noisy):
        def release(self, value: Any, stream: Any) -> Any:
            return [str(v) for v in np.ravel(super().release(value, stream))]

    assert "not real numbers of shape" in found_in(Flat(scale=1.0), "shape")


class WrongSum(Query):
    """A sum of squares that declares the move of a sum, unless its flaw is another."""

    kind: ClassVar[str] = "wrong_sum_of_the_kits_tests"

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw

    def parameters(self) -> dict[str, Any]:
        return {"flaw": self.flaw}

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return 10.0

    def run(self, inputs: Any, stream: Any) -> Any:
        cells = np.asarray(inputs[0].of(inputs[0].rows.columns), dtype=np.float64)
        if self.flaw == "raises" and np.isnan(cells).any():
            raise ValueError("a gap")
        if self.flaw == "nan":
            return np.array(np.sum(cells))
        inside = np.clip(np.nan_to_num(cells, nan=0.0), -5, 10)
        if self.flaw == "shape":
            return np.zeros(1 + len(inside) % 2)
        return np.array(np.sum(inside * inside if self.flaw == "squares" else inside))


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("squares", "the value moves by 100 in l1, and 10 is declared"),
        ("raises", "raises RunError on data it should read"),
        ("nan", "not finite"),
        ("shape", "shape depends on the data"),
    ],
)
def test_a_query_that_moves_too_far_is_detected(flaw: str, words: str) -> None:
    query = PrivateQuery(WrongSum(flaw), (plans.people(unit=None)["x"],))
    findings = str(examine(query))
    assert words in findings
    assert "against no rows" in findings or "raises" in flaw


def test_queries_of_the_library_pass() -> None:
    table = plans.people("replace_one", unit=None)
    check(plans.people()["x"].sum())
    check(table["region"].histogram())
    check(
        dp.Laplace(scale=20.0), plans.people()["x"].sum(), samples=300, only=("sensitivity", *FAST)
    )


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(dp.DeclarationError, match="pass a query"):
        examine(dp.SmoothCauchy(epsilon=0.5))
    with pytest.raises(dp.DeclarationError, match="free"):
        examine(dp.Laplace(scale=dp.Free("b")))
    with pytest.raises(dp.DeclarationError, match=r"\btype\b"):
        examine(dp.Laplace)  # type: ignore[arg-type]
    with pytest.raises(dp.DeclarationError):
        examine(column().median())


# --- mechanisms that release keys --------------------------------------------------------------

GROUPS = dp.dataset("people", columns={"town": str}, unit="who", rows_per_unit=2).group_by("town")


@pytest.mark.parametrize(
    ("mechanism", "query"),
    [
        (dp.ThresholdLaplace(scale=2, delta=0.05, keys=2, rows=2), GROUPS.count()),
        (dp.ThresholdGaussian(sigma=3, delta=0.05, keys=2, rows=1), GROUPS.count_distinct()),
        (dp.PartitionSelection(epsilon=0.5, delta=0.05), GROUPS.count()),
        (dp.WeightedGaussian(sigma=3, delta=0.05, keys=2), GROUPS.count()),
    ],
    ids=["laplace", "gaussian", "alone", "weighted"],
)
def test_keys_of_the_library_pass(mechanism: Mechanism, query: Any) -> None:
    report = check(
        mechanism, query, samples=300, only=["sensitivity", "shape", "freshness", "low bits"]
    )
    assert {"sensitivity", "freshness", "low bits"} <= set(report.checked)


class ShowsAll(dp.ThresholdLaplace):
    """Keys that one unit alone has show too."""

    @property
    def threshold(self) -> int:
        return 1


@frozen
class CountedOnce(CountRows):
    """Its rows are declared to count once."""

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return 1.0


def test_what_is_wrong_with_keys_is_found() -> None:
    shown = ShowsAll(scale=2, delta=0.001, keys=2, rows=2)
    found = examine(shown, GROUPS.count(), samples=2_000, only=["audit", "low bits"])
    assert {each.check for each in found.findings} == {"audit", "low bits"}
    query = PrivateQuery[Any](CountedOnce(), (GROUPS,))
    mechanism = dp.ThresholdLaplace(scale=2, delta=0.05, keys=2, rows=2)
    found = examine(mechanism, query, samples=300, only=["sensitivity"])
    assert any("moves by 2 in l1, and 1 is declared" in str(each) for each in found.findings)
