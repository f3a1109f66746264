"""The data-dependent epsilon of a plan: computed as a private value, and refused elsewhere."""

from __future__ import annotations

import math
import pickle
import traceback
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

import accountants
import adaptive_dp as dp
from accountants.losses.votes import laplace_tail, normal_tail
from accountants.secret import Secret
from adaptive_dp.graph.run import private_values
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.pate.aggregators import ConfidentGNMax, GNMax, LNMax, step
from adaptive_dp.pate.ballots import Ballots, BallotsSource, VoteCounts

COUNTS = np.array([[240, 5, 5], [180, 40, 30], [100, 90, 60], [250, 0, 0]])
DATA = {"votes": {"counts": COUNTS}}


def ballots(questions: int = 4) -> Ballots:
    return Ballots(BallotsSource("votes", 250, questions, 3))


def plan() -> dp.Pipeline:
    return dp.Pipeline(labels=ballots().release(GNMax(sigma=40.0)))


def one_feature(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """A teacher that has seen only where its rows are, and some randomness."""
    shift = x[:, 0].mean() + 1e-3 * (seed % 100)
    return lambda points: (points[:, 0] > shift).astype(float)


def trained() -> tuple[dp.Pipeline, dict[str, Any]]:
    people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    teachers = dp.pate.teachers(people, ["x"], "y", one_feature, count=9)
    labels = teachers.votes(teachers.points("pool", 20)).release(GNMax(sigma=1e-3))
    x = np.linspace(0, 1, 60)
    frame = {"x": x, "y": np.where(x > 0.4, "yes", "no")}
    return dp.Pipeline(labels=labels), {"people": frame, "pool": {"x": np.linspace(0.3, 0.7, 20)}}


class TestReading:
    def test_it_is_the_sum_of_the_questions(self) -> None:
        """Against the loss of each question by itself, at orders of our own."""
        spent = dp.pate.private_epsilon(plan(), delta=1e-5, **DATA)
        orders = 1 + np.geomspace(0.05, 500, 400)
        total = np.zeros_like(orders)
        for row in COUNTS:
            loss = accountants.noisy_argmax(accountants.Secret(row.tolist()), 40.0)
            total += loss.data_dependent(orders).reveal()
        by_hand = (total + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)).min()
        # by hand it is Theorem 6, which is more than the exact law
        assert 0.7 * by_hand < spent.reveal() <= by_hand * 1.001

    def test_it_is_below_the_certificate(self) -> None:
        certified = plan().certify(1e-5).epsilon
        assert dp.pate.private_epsilon(plan(), delta=1e-5, **DATA).reveal() > 0
        agreed = {"votes": {"counts": np.tile([250, 0, 0], (4, 1))}}
        low = dp.pate.private_epsilon(plan(), delta=1e-5, **agreed).reveal()
        split = {"votes": {"counts": np.tile([90, 80, 80], (4, 1))}}
        high = dp.pate.private_epsilon(plan(), delta=1e-5, **split).reveal()
        assert low < 0.6 * high
        # where teachers disagree, an answer still tells less than all noisy counts
        assert 0.5 * certified < high < certified

    def test_all_else_is_charged_at_its_worst(self) -> None:
        noisy = dp.pate.sanitized(ballots(), GNMax(sigma=40.0), order=4.0, sigma=5.0)
        both = dp.Pipeline(labels=ballots().release(GNMax(sigma=40.0)), bound=noisy)
        alone = dp.pate.private_epsilon(plan(), delta=1e-5, **DATA).reveal()
        more = dp.pate.private_epsilon(both, delta=1e-5, **DATA).reveal()
        assert alone + 0.3 < more

    def test_the_same_seed_has_the_same_teachers(self) -> None:
        """Next to no noise: the labels are where most votes are."""
        made, data = trained()
        (name,) = [n.name for n in made.structure if n.handle.operation.kind == "vote_counts"]
        seen = set()
        for seed in (1, 2, 3):
            hidden = {k: Secret(v) for k, v in data.items()}
            votes = private_values(made, hidden, seed, {name})[name].reveal()
            labels = made.simulate(seed=seed, **data)["labels"]
            assert (votes.counts.argmax(axis=1) == labels).all()
            seen.add(tuple(votes.counts[:, 0].tolist()))
        assert len(seen) == 3
        one, two = (dp.pate.private_epsilon(made, delta=1e-5, seed=1, **data) for _ in range(2))
        assert one.reveal() == two.reveal()
        dp.pate.private_epsilon(made, delta=1e-5, **data)

    def test_it_is_private(self) -> None:
        spent = dp.pate.private_epsilon(plan(), delta=1e-5, **DATA)
        assert isinstance(spent, accountants.Secret)
        assert repr(spent) == str(spent) == f"{spent}" == "<private>"
        with pytest.raises(TypeError):
            bool(spent)
        with pytest.raises(TypeError):
            pickle.dumps(spent)


class TestRefusals:
    def test_loops(self) -> None:
        def body(state: dp.Released[Any], votes: Any) -> dp.Released[Any]:
            return dp.post(lambda s, _: s, state, votes.release(GNMax(sigma=40.0)))

        looped = dp.Pipeline(a=dp.repeat(body, 2, ballots(), start=[0.0]))
        with pytest.raises(dp.DeclarationError, match="private_epsilon"):
            dp.pate.private_epsilon(looped, delta=1e-5, **DATA)

    def test_samples_and_parts(self) -> None:
        people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
        for rows in (people.sample(0.5), people.partition("y")["no"]):
            teachers = dp.pate.teachers(rows, ["x"], "y", one_feature, count=9)
            labels = teachers.votes(teachers.points("pool", 20)).release(GNMax(sigma=1.0))
            with pytest.raises(dp.DeclarationError, match="private_epsilon"):
                dp.pate.private_epsilon(dp.Pipeline(labels=labels), delta=1e-5)

    def test_questions_that_follow_answers(self) -> None:
        people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
        teachers = dp.pate.teachers(people, ["x"], "y", one_feature, count=9)
        pool = teachers.points("pool", 20)
        early = teachers.votes(pool).release(GNMax(sigma=1.0))
        late = teachers.votes(dp.post(lambda at, _: at, pool, early), size=20)
        made = dp.Pipeline(early=early, late=late.release(GNMax(sigma=1.0)))
        with pytest.raises(dp.DeclarationError):
            dp.pate.private_epsilon(made, delta=1e-5)

    def test_noise_that_is_free(self) -> None:
        free = dp.Pipeline(labels=ballots().release(GNMax(sigma=dp.Free("s"))))
        with pytest.raises(dp.DeclarationError, match=r"plan\.calibrate"):
            dp.pate.private_epsilon(free, delta=1e-5, **DATA)

    @pytest.mark.parametrize("delta", [-1, 2, "a", None])
    def test_deltas_that_are_none(self, delta: Any) -> None:
        with pytest.raises(accountants.AccountingError, match="delta"):
            dp.pate.private_epsilon(plan(), delta=delta, **DATA)

    def test_seeds_that_are_none(self) -> None:
        for seed in (-1, 0.5, "a"):
            with pytest.raises(dp.DeclarationError, match=r"\bseed\b"):
                dp.pate.private_epsilon(plan(), delta=1e-5, seed=seed, **DATA)

    def test_data_that_does_not_fit(self) -> None:
        with pytest.raises(dp.DataError):
            dp.pate.private_epsilon(plan(), delta=1e-5, other=1)
        secret = np.full((4, 3), 98765)
        with pytest.raises(dp.DataError, match="'votes'") as caught:
            dp.pate.private_epsilon(plan(), delta=1e-5, votes={"counts": secret})
        assert "98765" not in "".join(traceback.format_exception(caught.value))

    def test_several_teachers_are_charged_at_worst(self) -> None:
        columns = {"x": (0, 1), "y": ["no", "yes"], "h": ["A", "B", "C"]}
        people = dp.dataset("people", columns=columns, unit="id", rows_per_unit=2)
        teachers = dp.pate.teachers(people, ["x"], "y", one_feature, by="h")
        labels = teachers.votes(teachers.points("pool", 2)).release(GNMax(sigma=4.0))
        x = np.linspace(0, 1, 12)
        frame = {
            "id": np.arange(12),
            "x": x,
            "y": np.where(x > 0.5, "yes", "no"),
            "h": np.array(["A", "B", "C"])[np.arange(12) % 3],
        }
        spent = dp.pate.private_epsilon(
            dp.Pipeline(labels=labels), delta=1e-5, people=frame, pool={"x": [0.0, 1.0]}
        )
        # two questions, two teachers, sigma 4: Gaussian DP of mu 1 (Balle and Wang 2018, Thm 8)
        value = spent.reveal()
        delta = stats.norm.cdf(0.5 - value) - math.exp(value) * stats.norm.cdf(-0.5 - value)
        assert delta == pytest.approx(1e-5, rel=1e-6)


class TestRoundedNoise:
    """The aggregators add noise rounded to steps, and break ties: what is proven covers that."""

    @pytest.mark.parametrize("scale", [0.01, 3.0, 40.0, 1e4])
    def test_tails_are_of_gaps_less_one_step(self, scale: float) -> None:
        """By the laws of the rounded differences, which are multiples of the step: P(D >= gap)."""
        unit = step(scale)
        for gap in (0.0, 1.0, 7.0, 100.0):
            with mpmath.workdps(60):
                near = (mpmath.mpf(gap) - unit) / scale
                normal = mpmath.erfc(near / 2) / 2
                side = (2 + abs(near)) * mpmath.exp(-abs(near)) / 4
                laplace = side if near >= 0 else 1 - side
                exact_tails = float(mpmath.log(normal)), float(mpmath.log(laplace))
            tails = normal_tail(scale), laplace_tail(scale)
            for tail, least in zip(tails, exact_tails, strict=True):
                bound = float(tail(np.array([gap]))[0])
                # what else rounds is moved outward when cells are looked up
                assert bound >= least - 1e-12 * (1 + abs(least))
                assert bound <= least + 1e-12 * (1 + abs(least)) or unit < 2.0**-26 * scale * 1.01

    def test_a_tie_is_within_the_bound(self) -> None:
        """Coarse noise, exactly: integers whose difference ties with the leader's lead."""
        sigma = 2.0**27  # steps of 2 votes would be taken, were they not to divide 1
        mechanism = GNMax(sigma=sigma)
        exact = 0.5 * mpmath.erfc((mpmath.mpf(5) - 1) / (2 * sigma))  # unit 1: P(D > gap - unit)
        assert float(normal_tail(mechanism.sigma)(np.array([5.0]))[0]) >= float(mpmath.log(exact))

    def test_the_check_passes_as_often_as_it_is_said(self) -> None:
        """A threshold between steps: exact law of rounded noise; false alarm below 1e-7."""
        mechanism = ConfidentGNMax(threshold=7.3, sigma_check=2.0, sigma=1.0)
        votes = mechanism.votes(10, 2)
        assert votes.threshold == pytest.approx(7.3, abs=2.0**-20)
        value = VoteCounts(np.tile([9, 1], (4000, 1)), 10)
        passed = ~np.isnan(mechanism.release(value, SeededStream(1)))
        chance = stats.norm.sf((votes.threshold - 9) / 2.0)
        assert stats.binomtest(int(passed.sum()), 4000, chance).pvalue > 1e-7


class TestAggregators:
    def test_confident_answers_are_cheaper_where_teachers_agree(self) -> None:
        mechanism = ConfidentGNMax(threshold=150, sigma_check=60.0, sigma=40.0)
        made = dp.Pipeline(labels=ballots().release(mechanism))
        agreed = {"votes": {"counts": np.tile([250, 0, 0], (4, 1))}}
        spent = dp.pate.private_epsilon(made, delta=1e-5, **agreed).reveal()
        assert 0 < spent < made.certify(1e-5).epsilon
        dp.Pipeline(a=dp.pate.sanitized(ballots(), mechanism, order=4.0, sigma=9.0)).certify(1e-5)

    def test_laplace_answers(self) -> None:
        made = dp.Pipeline(labels=ballots().release(LNMax(scale=20.0)))
        agreed = {"votes": {"counts": np.tile([250, 0, 0], (4, 1))}}
        spent = dp.pate.private_epsilon(made, delta=1e-5, **agreed).reveal()
        assert 0 < spent < 0.5 * made.certify(1e-5).epsilon
        with pytest.raises(dp.DeclarationError):
            dp.pate.sanitized(ballots(), LNMax(scale=20.0), order=4.0, sigma=9.0)

    def test_those_without_a_bound_are_charged_at_worst(self) -> None:
        plain = dp.pate.StableVotes(epsilon=0.5, failure=1e-7, failures=2)
        made = dp.Pipeline(labels=ballots().release(plain))
        spent = dp.pate.private_epsilon(made, delta=1e-5, **DATA).reveal()
        assert spent >= made.certify(1e-5).epsilon * (1 - 1e-9)
        with pytest.raises(dp.DeclarationError, match="StableVotes"):
            dp.pate.spent(ballots(), plain, order=4.0)
