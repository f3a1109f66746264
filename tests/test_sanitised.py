"""What answers lose on the votes at hand: its release, and what the published bound says."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import numpy as np
import pytest
from scipy import stats
from vote_worlds import divergence, neighbours, smooth_sensitivity, table, worlds

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.pate.aggregators import GNMax
from adaptive_dp.pate.ballots import (
    Ballots,
    BallotsDomain,
    BallotsSource,
    VoteCounts,
    spent_epsilon,
    spent_upper_bound,
)
from adaptive_dp.pate.sanitization import Sanitized
from adaptive_dp.pate.vote_divergence import Spending, Spent, fixed_questions


def ballots(teachers: int = 400, questions: int = 200, classes: int = 10) -> Ballots:
    return Ballots(BallotsSource("votes", teachers, questions, classes))


def agreed(teachers: int = 400, questions: int = 200, classes: int = 10) -> np.ndarray:
    """Nearly everybody agrees."""
    counts = np.zeros((questions, classes), dtype=np.int64)
    counts[:, 0], counts[:, 1] = teachers - 10, 10
    return counts


def spending(counts: np.ndarray, mechanism: Any, order: float) -> Spending:
    query = Spent(mechanism, order)
    value = query.run([VoteCounts(counts, int(counts[0].sum()))], SeededStream(0))
    assert isinstance(value, Spending)
    return value


def constant(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return lambda points: np.zeros(len(points))


@attrs.frozen(eq=False, repr=False)
class Revealed:
    """A private number that was computed before, for many releases of it."""

    result: tuple[float, float]
    worst: float
    least: float

    @classmethod
    def of(cls, value: Spending, beta: float) -> Any:
        return cls(value.smooth(beta), value.worst, value.least)

    def smooth(self, beta: float) -> tuple[float, float]:
        return self.result


class TestSpent:
    @pytest.mark.parametrize(("teachers", "questions"), [(5, 1), (3, 2)])
    @pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
    @pytest.mark.parametrize("order", [1.5, 4.0, 20.0])
    def test_the_value_keeps_the_definition(
        self, teachers: int, questions: int, sigma: float, order: float
    ) -> None:
        beta = 0.2 / order
        every = worlds(teachers, questions)
        result = {
            w: spending(table(w, teachers), GNMax(sigma=sigma), order).smooth(beta) for w in every
        }
        exact = smooth_sensitivity({w: f for w, (f, _) in result.items()}, teachers, beta)
        for w, (bound, scale) in result.items():
            assert scale >= exact[w] > -1
            for v in neighbours(w, teachers):
                assert bound >= divergence(w, v, teachers, sigma, order) * (1 - 1e-12)
                assert bound >= divergence(v, w, teachers, sigma, order) * (1 - 1e-12)
                assert abs(bound - result[v][0]) <= scale * (1 + 1e-12)
                assert scale <= math.exp(beta) * result[v][1] * (1 + 1e-12)

    def test_it_is_within_public_bounds(self) -> None:
        query = dp.pate.spent(ballots(3, 2, 2), GNMax(sigma=1.0), order=4.0)
        value = spending(np.array([[3, 0], [2, 1]]), GNMax(sigma=1.0), 4.0)
        worst = query.operation.worst(query.domain)  # type: ignore[attr-defined]
        assert worst == value.worst == pytest.approx(2 * 4.0)
        bound, scale = value.smooth(0.1)
        assert 0 <= bound <= worst
        assert 0 < scale <= worst + value.least

    def test_unanimous_votes_lose_little(self) -> None:
        """The published example: 240, 5 and 5 of 250 votes, at order 4."""
        mechanism, counts = GNMax(sigma=40.0), np.array([[240, 5, 5]])
        votes = mechanism.votes(250, 3)
        # Theorem 6 proves 1.24e-5. Another class wins with a probability of 2 * 1.6e-5; one vote
        # moves that by a factor of about 1.16, so that the exact law is near 1e-6
        assert votes.curve(counts, [4.0])[0] == pytest.approx(1.077e-6, rel=5e-3)
        assert mechanism.loss(1.0).renyi(np.array([4.0]))[0] == pytest.approx(2.5e-3)
        assert spending(counts, mechanism, 4.0).smooth(0.01)[0] < 1.5e-5

    def test_one_class_and_one_teacher(self) -> None:
        assert 0 <= spending(np.array([[60], [60]]), GNMax(sigma=1.0), 4.0).smooth(0.1)[0] < 1e-3
        value = spending(np.array([[1, 0, 0]]), GNMax(sigma=1.0), 4.0)
        assert value.smooth(0.1)[0] == pytest.approx(4.0)

    @pytest.mark.parametrize("order", [1, 1.0, 0.5, math.nan, math.inf, 2e6, "4", True, None])
    def test_orders_that_are_none(self, order: Any) -> None:
        with pytest.raises(dp.DeclarationError):
            dp.pate.spent(ballots(), GNMax(sigma=40.0), order=order)

    def test_what_is_no_aggregator(self) -> None:
        with pytest.raises(dp.DeclarationError):
            dp.pate.spent(ballots(), "GNMax", order=4.0)  # type: ignore[arg-type]
        with pytest.raises(dp.DeclarationError, match="Laplace"):
            dp.pate.spent(ballots(), dp.Laplace(scale=1.0), order=4.0)
        with pytest.raises(dp.DeclarationError):
            dp.pate.spent(ballots(), GNMax(sigma=dp.Free("s")), order=4.0)
        with pytest.raises(dp.DeclarationError, match=r"\bsigma\b"):
            dp.pate.spent(ballots(), GNMax(sigma=1e20), order=4.0)
        with pytest.raises(dp.DeclarationError, match="VoteCounts"):
            dp.pate.spent(ballots(), GNMax(sigma=40.0), order=4.0).release(GNMax(sigma=40.0))

    def test_several_teachers_are_refused(self) -> None:
        domain = BallotsDomain(5, 2, 2)
        with pytest.raises(dp.DeclarationError, match=r"\b3\b"):
            Spent(GNMax(sigma=4.0), 4.0).sensitivity(domain, Change(True, 3, False), 0)
        with pytest.raises(dp.DeclarationError, match=r"\b0\b"):
            Spent(GNMax(sigma=4.0), 4.0).sensitivity(domain, Change(True, 1, True), 1)

    def test_questions_that_follow_answers_are_refused(self) -> None:
        table = dp.dataset("people", columns={"x": (0, 1), "y": ["a", "b"]})
        teachers = dp.pate.teachers(table, ["x"], "y", constant, count=5)
        pool = teachers.points("pool", 3)
        early = teachers.votes(pool).release(GNMax(sigma=4.0))
        chosen = dp.post(lambda at, _: at, pool, early)
        fixed = dp.post(lambda at: at, pool)
        dp.pate.sanitized(teachers.votes(fixed, size=3), GNMax(sigma=4.0), order=4.0, sigma=9.0)
        late = dp.pate.sanitized(
            teachers.votes(chosen, size=3), GNMax(sigma=4.0), order=4.0, sigma=9.0
        )
        with pytest.raises(dp.DeclarationError):
            dp.Pipeline(late=late)


class TestSanitised:
    def test_two_normal_numbers(self) -> None:
        """Kolmogorov-Smirnov; false alarm below 1e-7 each, seeds fixed."""
        value = spending(agreed(questions=2000), GNMax(sigma=60.0), 4.0)
        mechanism = Sanitized(sigma=2.0, beta=0.05, spread=1.5)
        bound, scale = value.smooth(0.05)
        revealed = Revealed.of(value, 0.05)
        draws = [mechanism.release(revealed, SeededStream(5, i)) for i in range(1000)]
        one, two = np.array(draws).T
        inside = (bound - value.least) / (2 * scale), (value.worst - bound) / (2 * scale)
        cut = one.min() <= 0, one.max() >= value.worst - value.least
        law = stats.norm(bound, 2 * scale)
        inner = one[(one > 0) & (one < value.worst - value.least)]
        law_inside = (law.cdf(inner) - law.cdf(0)) / (law.cdf(value.worst) - law.cdf(0))
        assert inside[1] > 3
        assert not cut[1]
        assert stats.kstest(law_inside, "uniform").pvalue > 1e-7
        assert stats.kstest(two, stats.norm(math.log(scale), 0.075).cdf).pvalue > 1e-7
        assert abs(np.corrcoef(one, two)[0, 1]) < 5.5 / math.sqrt(1000)

    def test_what_is_released_lies_on_public_grids(self) -> None:
        value = spending(agreed(), GNMax(sigma=20.0), 8.0)
        for spread in (8.0, 1e-3, 1e5):
            mechanism = Sanitized(sigma=10.0, beta=0.05, spread=spread)
            one, two = mechanism.release(value, SeededStream(1))
            assert 0 <= one <= value.worst
            assert (one / value.least) == int(one / value.least)
            fine = 2.0 ** math.floor(math.log2(0.05 * spread) - 26)
            assert (two / fine) == int(two / fine)
            assert two <= math.log(value.worst + value.least) + fine

    @pytest.mark.parametrize("failure", [0.5, 0.1, 0.01])
    def test_the_bound_fails_as_seldom_as_it_says(self, failure: float) -> None:
        """Exact binomial; false alarm below 1e-7."""
        mechanism = Sanitized(sigma=1.0, beta=0.05, spread=2.0)
        value = spending(agreed(questions=300), GNMax(sigma=40.0), 4.0)
        truth, many, missed = value.smooth(0.05)[0], 1500, 0
        revealed = Revealed.of(value, 0.05)
        for i in range(many):
            released = mechanism.release(revealed, SeededStream(9, i))
            upper = spent_upper_bound(released, 1.0, 0.05, 2.0, failure=failure, worst=value.worst)
            missed += upper < truth
            assert upper <= value.worst
        assert missed <= stats.binom.ppf(1 - 1e-7, many, failure)

    def test_it_bounds_at_the_edges(self) -> None:
        worst = 4.0
        assert spent_upper_bound([4.0, 9.0], 1.0, 0.1, 1.0, failure=0.1, worst=worst) == worst
        assert spent_upper_bound([0.0, -99.0], 1.0, 0.1, 1.0, failure=0.1, worst=worst) > 0

    def test_the_loss_is_that_of_both_numbers(self) -> None:
        loss = Sanitized(sigma=10.0, beta=0.01, spread=8.0).loss(1.0)
        c = 3 * math.expm1(0.02)
        smooth = 4 / (200 * (1 - c)) - 0.01 - math.log(1 - c) / 6
        result = loss.renyi(np.array([4.0]))[0]  # type: ignore[index]
        assert result == pytest.approx(smooth + 4 / (2 * 64), rel=1e-8)
        assert result > smooth + 4 / (2 * 64)
        assert Sanitized(sigma=10.0, beta=0.01, spread=8.0).loss(0.0) == accountants.Pure(0.0)

    def test_several_teachers_cost_more(self) -> None:
        """A chain of steps, each of them a neighbour: Renyi divergence by the exact two laws."""
        orders, mechanism = np.array([2.0, 3.0]), Sanitized(sigma=20.0, beta=0.01, spread=30.0)
        curve = mechanism.loss(2.0).renyi(orders)
        for ratio in (-0.02, 0.0, 0.02):
            scale = math.exp(ratio)
            shift = min(1 + math.exp(0.01), scale * (1 + math.exp(0.01))) / 20.0
            for a, bound in zip(orders, curve, strict=True):  # type: ignore[arg-type]
                star = a * scale**2 + (1 - a)
                first = a * shift**2 / (2 * star) - math.log(star / scale ** (2 * a)) / 2 / (a - 1)
                assert first + a * (0.02 / (0.01 * 30)) ** 2 / 2 <= bound

    @pytest.mark.parametrize("beta", [0, -1, 2, math.nan, "a", True, None])
    def test_betas_that_are_none(self, beta: Any) -> None:
        with pytest.raises(dp.DeclarationError, match=r"Sanitized\.beta"):
            Sanitized(sigma=10.0, beta=beta, spread=1.0)

    def test_noise_beyond_all_bounds(self) -> None:
        with pytest.raises(dp.DeclarationError, match=r"Sanitized\.spread"):
            Sanitized(sigma=10.0, beta=0.1, spread=1e20).loss(1.0)


class TestPlans:
    def plan(self, **more: Any) -> dp.Pipeline:
        votes, mechanism = ballots(), GNMax(sigma=20.0)
        bound = dp.pate.sanitized(votes, mechanism, order=8.0, sigma=10.0, beta=0.04, **more)
        return dp.Pipeline(
            labels=votes.release(mechanism),
            bound=bound,
            epsilon=dp.pate.sanitized_epsilon(bound, delta=1e-5),
        )

    def test_the_certificate_has_both_costs(self) -> None:
        def least(*curves: Any) -> float:
            orders = 1 + np.geomspace(0.05, 20, 4000)
            with np.errstate(all="ignore"):
                total = sum(curve(orders) for curve in curves)
                proven = total + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)
            return float(np.nanmin(proven))

        def smooth(a: np.ndarray) -> np.ndarray:
            c = (a - 1) * math.expm1(0.08)
            outcome = a / (200 * (1 - c)) - 0.04 - np.log(1 - c) / (2 * (a - 1))
            return np.where(c < 1, outcome, np.inf)

        labels = self.plan().certify(1e-5)
        alone = dp.Pipeline(labels=ballots().release(GNMax(sigma=20.0))).certify(1e-5).epsilon
        by_hand = least(lambda a: 200 * a / 400, smooth, lambda a: a / 200)
        assert alone < labels.epsilon <= by_hand * (1 + 1e-3)
        assert labels.epsilon > 0.98 * by_hand
        assert "SmoothSanitization" in labels.to_json()

    def test_what_it_says(self) -> None:
        plan = self.plan(failure=1e-6)
        result = plan.simulate(seed=7, votes={"counts": agreed()})
        truth = spending(agreed(), GNMax(sigma=20.0), 8.0).smooth(0.04)[0]
        assert truth <= result["bound"] < 0.6 < 20.0
        loss = Sanitized(sigma=10.0, beta=0.04, spread=10.0).loss(1.0)
        total = result["bound"] + float(loss.renyi(np.array([8.0]))[0])  # type: ignore[index]
        by_hand = total + math.log1p(-1 / 8) - math.log(1e-5 * 8) / 7
        assert result["epsilon"] == pytest.approx(by_hand, rel=1e-9)
        assert result["epsilon"] < 0.6 * plan.certify(1e-5).epsilon

    def test_it_is_never_above_the_worst_case(self) -> None:
        """Ties cost as much as can be, and the order is a poor one: the public number is less."""
        split = np.tile([40] * 10, (len(agreed()), 1))
        plan = self.plan()
        result = plan.simulate(seed=7, votes={"counts": split})
        loss = Sanitized(sigma=10.0, beta=0.04, spread=10.0).loss(1.0)
        total = result["bound"] + float(loss.renyi(np.array([8.0]))[0])  # type: ignore[index]
        by_order = total + math.log1p(-1 / 8) - math.log(1e-5 * 8) / 7
        assert result["epsilon"] == pytest.approx(plan.certify(1e-5).epsilon, rel=1e-9)
        assert result["epsilon"] < by_order

    def test_more_spends_alongside_cost_more(self) -> None:
        handle = dict(self.plan().outputs)["bound",]
        more = dp.pate.sanitized_epsilon(handle, delta=1e-5, beside=[accountants.Gaussian(mu=0.5)])
        less = dp.pate.sanitized_epsilon(handle, delta=1e-5)
        result = dp.Pipeline(more=more, less=less).simulate(seed=2, votes={"counts": agreed()})
        assert result["more"] == pytest.approx(result["less"] + 8 * 0.125, rel=1e-9)
        assert spent_epsilon(0.0, order=1e6, delta=0.9, beside=0.0, worst=1.0) == 0.0

    @pytest.mark.parametrize("delta", [0, 1, -1, math.nan, True, "a"])
    def test_deltas_that_are_none(self, delta: Any) -> None:
        handle = dict(self.plan().outputs)["bound",]
        with pytest.raises(dp.DeclarationError, match=r"\bdelta\b.*\b0\b"):
            dp.pate.sanitized_epsilon(handle, delta=delta)

    def test_a_failure_takes_its_share_of_delta(self) -> None:
        handle = dict(self.plan().outputs)["bound",]
        others = [accountants.Approximate(0.1, 1e-5)]
        with pytest.raises(dp.DeclarationError, match=r"\bdelta\b.*\b0\b"):
            dp.pate.sanitized_epsilon(handle, delta=1e-5, beside=others)
        with pytest.raises(dp.DeclarationError, match=r"\bbeside\b"):
            dp.pate.sanitized_epsilon(handle, delta=1e-5, beside=[1.0])  # type: ignore[list-item]
        with pytest.raises(dp.DeclarationError, match="sanitized_epsilon"):
            dp.pate.sanitized_epsilon(dp.public(1.0), delta=1e-5)

    def test_another_function_of_the_two_numbers_bounds_nothing(self) -> None:
        """The least of them is below f half of the time, and would prove an epsilon too small."""
        noisy = dict(self.plan().outputs)["bound",].inputs[0]
        for other in (np.min, spent_epsilon):
            with pytest.raises(dp.DeclarationError, match="sanitized_epsilon"):
                dp.pate.sanitized_epsilon(dp.post(other, noisy), delta=1e-5)
        with pytest.raises(dp.DeclarationError, match="sanitized_epsilon"):
            dp.pate.sanitized_epsilon(noisy, delta=1e-5)

    def test_ways_that_meet_again_and_again(self) -> None:
        """2^60 ways lead from the points to their source."""
        people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
        teachers = dp.pate.teachers(people, ["x"], "y", constant, count=9)
        points = teachers.points("pool", 5)
        for _ in range(60):
            points = dp.post(np.add, points, points)
        assert fixed_questions(teachers.votes(points, size=5))

    def test_failures_that_are_none(self) -> None:
        for failure in (0, 1, -1, "a", True):
            with pytest.raises(dp.DeclarationError, match="failure"):
                self.plan(failure=failure)

    def test_the_noise_may_be_calibrated(self) -> None:
        votes, mechanism = ballots(), GNMax(sigma=40.0)
        free = dp.Free("s")
        bound = dp.pate.sanitized(votes, mechanism, order=4.0, sigma=free)
        plan = dp.Pipeline(labels=votes.release(mechanism), bound=bound)
        plan = plan.calibrate(epsilon=2.5, delta=1e-5)
        assert 2.4 < plan.certify().epsilon <= 2.5
        result = plan.simulate(seed=1, votes={"counts": agreed()})
        assert 0 < result["bound"] < 1

    def test_documents(self) -> None:
        plan = self.plan()
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        assert again.certify(1e-5).to_json() == plan.certify(1e-5).to_json()
        data = {"votes": {"counts": agreed()}}
        assert str(again.simulate(seed=3, **data)) == str(plan.simulate(seed=3, **data))

    def test_documents_cannot_get_around(self) -> None:
        document = json.loads(self.plan().to_json())
        spent = next(n for n in document["nodes"] if n["kind"] == "spent_votes")
        spent["order"] = 0.5
        with pytest.raises(dp.DocumentError):
            dp.load(document)

    def test_nothing_private_is_printed(self) -> None:
        counts = agreed()
        value = spending(counts, GNMax(sigma=20.0), 8.0)
        shown = [repr(value), str(value), repr(self.plan()), self.plan().to_json()]
        shown += [repr(dp.pate.spent(ballots(), GNMax(sigma=20.0), order=8.0))]
        assert not any("390" in text for text in shown)
        assert repr(value) == "<private spending>"

    def test_broken_counts_never_show(self) -> None:
        value = Spending(GNMax(sigma=20.0).votes(400, 10), agreed() - 7, 8.0, 4.0)
        bound, scale = value.smooth(0.05)
        assert bound <= 4.0
        assert math.isfinite(scale)


def test_no_selection_among_luckier_runs() -> None:
    """The best of several sanitised bounds is not above with the stated probability."""

    def body(_: Any, votes: Any) -> Any:
        bound = dp.pate.sanitized(votes, GNMax(sigma=40.0), order=4.0, sigma=8.0)
        return bound, dp.post(opposite, bound)

    with pytest.raises(dp.DeclarationError, match="Sanitized"):
        dp.Pipeline(best=dp.select(body, [1.0, 2.0], ballots(), stopping=0.5)).certify(1e-6)


def opposite(value: float) -> float:
    return -value
