"""Trainings in single rounds: their law with other releases in between, their noise, their ledger.

All rounds are one release, which the beginning of a training pays for.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import accountants
import adaptive_dp as dp
from adaptive_dp.erm import Logistic
from adaptive_dp.graph.errors import RunError
from adaptive_dp.graph.mechanism import AdaptiveSums
from adaptive_dp.mechanisms.follow_the_leader import (
    FollowTheLeader,
    FollowTheLeaderRound,
    FollowTheLeaderRun,
    Rounds,
)
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.session.entries import GENESIS, chained
from adaptive_dp.session.recompute import recomputed

# --- The law of rounds that other releases choose ----------------------------------------------
#
# Two rounds of one batch, C = [[1, 0], [c, 1]]: a unit moves the first round's sum by 1, and the
# second's by a number of size at most 1 that an adversary chooses by the first row and by a bit
# that is released in between, by randomized response of another epsilon.

C, SIGMA, EPSILON = 0.5, 1.3, 0.8
RIGHT = 1 / (1 + math.exp(-EPSILON))


def always(first: float, bit: int) -> float:
    return 1.0


def greedy(first: float, bit: int) -> float:
    """As much as the rows so far speak for the unit, and otherwise as little."""
    return 1.0 if first + bit > 1 else -1.0


def hiding(first: float, bit: int) -> float:
    return -C if bit else float(np.clip(first, -1, 1))


def outcomes(adversary: Any) -> Any:
    """The laws under P (with the unit) and Q: the first row, its chances, and the mean of the last.

    Yields for each bit: log of P over Q of row and bit, weights under Q, and the second row's move.
    """
    y = np.linspace(-14, 46, 40_001)
    weight = stats.norm.pdf(y, 0, SIGMA) * (y[1] - y[0])
    log = (2 * y - 1) / (2 * SIGMA**2)
    for bit in (0, 1):
        # under P the truth is 1, under Q 0
        p, q = (RIGHT, 1 - RIGHT) if bit else (1 - RIGHT, RIGHT)
        moves = np.array([C + adversary(each, bit) for each in y])
        yield log + math.log(p / q), weight * q, moves


@pytest.mark.parametrize("adversary", [always, greedy, hiding])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 30.0])
def test_divergences_add_up_with_what_comes_in_between(adversary: Any, order: float) -> None:
    square = 1 + (1 + C) ** 2  # the squared norm of C's columns of the batch, added up
    ours = order * square / (2 * SIGMA**2)
    response = math.log(
        RIGHT**order * (1 - RIGHT) ** (1 - order) + (1 - RIGHT) ** order * RIGHT ** (1 - order)
    ) / (order - 1)
    total = -math.inf
    for log, weight, moves in outcomes(adversary):
        # of the second row, given all before: E_Q[(P/Q)^a] = exp(a (a - 1) m^2 / (2 sigma^2))
        last = order * (order - 1) * moves**2 / (2 * SIGMA**2)
        total = float(np.logaddexp(total, special.logsumexp(order * log + last, b=weight)))
    found = total / (order - 1)
    assert found <= (ours + response) * (1 + 1e-9)
    assert (adversary is always) <= (found > (ours + response) * (1 - 1e-6))


@pytest.mark.parametrize("adversary", [always, greedy, hiding])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5, 3.0])
def test_trade_offs_compose_with_what_comes_in_between(adversary: Any, epsilon: float) -> None:
    """Hockey-sticks in both directions are at most those of one Gaussian pair and the response."""
    mu = math.sqrt(1 + (1 + C) ** 2) / SIGMA
    term = accountants.Sequential(
        [accountants.Spend(accountants.Gaussian(mu)), accountants.Spend(accountants.Pure(EPSILON))]
    )
    bound = accountants.measure(term, accountants.Distribution(), epsilon=epsilon).bounds.upper
    found = [0.0, 0.0]
    for log, weight, moves in outcomes(adversary):
        for way in (0, 1):
            # given the rest, the last row is a Gaussian pair of mu = |m| / sigma
            own = np.abs(moves) / SIGMA + 1e-300
            rest = epsilon - log if way == 0 else epsilon + log
            delta = stats.norm.cdf(own / 2 - rest / own) - np.exp(rest) * stats.norm.cdf(
                -own / 2 - rest / own
            )
            under = weight * np.exp(log) if way == 0 else weight
            found[way] += float((under * delta).sum())
    assert max(found) <= bound + 1e-6
    assert (adversary is always) <= (max(found) > bound * (1 - 1e-2) - 1e-6)


@pytest.mark.parametrize("adversary", [always, greedy, hiding])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.2, 2.5])
def test_amplified_rounds_compose_with_what_comes_in_between(
    adversary: Any, epsilon: float
) -> None:
    """Two bins of a round each: the unit is in one of them by a coin that nobody sees.

    An integral over both rows and the bit, against the bound of the whole training and a response.
    """
    encoder = accountants.Toeplitz([1.0, C], 2)
    whole = accountants.allocated_matrix_factorization(encoder, SIGMA, 2)
    response = accountants.Spend(accountants.Pure(EPSILON))
    term = accountants.Sequential([whole, response])
    bound = accountants.measure(term, accountants.Distribution(), epsilon=epsilon).bounds.upper
    y = np.linspace(-9, 10, 1_201)
    weight = stats.norm.pdf(y, 0, SIGMA) * (y[1] - y[0])
    found = np.zeros(2)
    for bit in (0, 1):
        p, q = (RIGHT, 1 - RIGHT) if bit else (1 - RIGHT, RIGHT)
        moves = np.array([adversary(each, bit) for each in y])[:, None]
        first, last = y[:, None], y[None, :]
        in_first = np.exp((first - 0.5 + C * last - C**2 / 2) / SIGMA**2)
        in_last = np.exp((moves * last - moves**2 / 2) / SIGMA**2)
        ratio = p / q * (in_first + in_last) / 2
        under = q * weight[:, None] * weight[None, :]
        found[0] += (under * np.maximum(ratio - math.exp(epsilon), 0)).sum()
        found[1] += (under * np.maximum(1 - math.exp(epsilon) * ratio, 0)).sum()
    assert found.max() <= bound + 1e-6
    # without amplification it would be more: the test can tell
    alone = accountants.Sequential([accountants.Spend(accountants.Gaussian(1 / SIGMA)), response])
    least = accountants.measure(alone, accountants.Distribution(), epsilon=epsilon).bounds.lower
    assert found.max() < least


@pytest.mark.parametrize(("coefficient", "sigma", "response"), [(0.5, 0.8, 1.5), (0.9, 1.3, 0.3)])
@pytest.mark.parametrize("epsilon", [0.0, 1.5])
def test_the_best_adversary_of_three_bins_stays_below_the_bound(
    coefficient: float, sigma: float, response: float, epsilon: float
) -> None:
    """Moves of both later rounds are chosen by dynamic programming, in view of rows and of bits.

    A bit of randomized response comes before the first round, and one before the second.
    """
    c, right = coefficient, 1 / (1 + math.exp(-response))
    whole = accountants.allocated_matrix_factorization(accountants.Toeplitz([1.0, c], 3), sigma, 3)
    bits = [accountants.Spend(accountants.Pure(response))] * 2
    term = accountants.Sequential([whole, *bits])
    bound = accountants.measure(term, accountants.Distribution(), epsilon=epsilon).bounds.upper
    edges = np.linspace(-5.2 * sigma, 5.2 * sigma + 2.2, 62)
    y = (edges[1:] + edges[:-1]) / 2
    weight = np.diff(stats.norm.cdf(edges, 0, sigma))
    moves = (-1.0, -0.5, 0.0, 0.5, 1.0)

    def ratio(move: float) -> Any:
        return np.exp((move * y - move * move / 2) / sigma**2)

    found = np.zeros(2)
    for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
        p = math.prod(right if bit else 1 - right for bit in (first, second))
        q = math.prod(1 - right if bit else right for bit in (first, second))
        best = np.full((2, len(y)), -np.inf)
        for v in moves:
            one = ratio(1.0)[:, None] * ratio(c)[None, :]
            two = np.ones_like(one) * ratio(v)
            last = np.full((2, len(y), len(y)), -np.inf)
            for w in moves:
                mean = (one[..., None] + two[..., None] * ratio(c * v) + ratio(w)) * p / q / 3
                last[0] = np.maximum(last[0], np.maximum(mean - math.exp(epsilon), 0) @ weight)
                last[1] = np.maximum(last[1], np.maximum(1 - math.exp(epsilon) * mean, 0) @ weight)
            best = np.maximum(best, last @ weight)
        found += q * (best @ weight)
    assert found.max() <= bound + 1e-4
    assert found.max() > bound * 0.6


# --- What rounds release -----------------------------------------------------------------------


class Moving(AdaptiveSums):
    """Sums that depend on parameters, by another function in each round; it keeps what they are."""

    def __init__(self, factor: float, width: int = 1) -> None:
        self.factor, self.width = factor, width
        self.seen: list[Any] = []

    shape = property(lambda self: (self.width,))
    step = 2.0**-10

    def split(self, parts: int, stream: Any) -> list[Moving]:
        stream.words(3)
        return [Moving(k + 1.0, self.width) for k in range(parts)]

    def among(self, batch: Any) -> Moving:
        self.batch = batch.factor
        return self

    def at(self, parameters: Any) -> Any:
        sums = np.rint((self.factor * self.batch * np.sin(parameters)) / self.step).astype(np.int64)
        self.seen.append(sums * self.step)
        return sums


@pytest.mark.parametrize("kind", ["tree", "banded", "buffered"])
def test_the_noise_of_prefix_sums_is_b_z_whatever_chooses_the_rounds(kind: str) -> None:
    """20,000 coordinates, each an adaptive run of six rounds: all 21 covariances of the residual.

    B is the inverse of C times the prefix sums; of a tree, that of least variance from below.
    """
    width, sigma = 20_000, 3.0
    mechanism = FollowTheLeaderRun(sigma, 3, 2, kind)
    rounds = mechanism.begin(SeededStream(5))
    theta, found, sums = np.zeros(width), [], []
    for t in range(6):
        value = Moving(1.0 + t, width)
        found.append(rounds.added(value, theta))
        sums += value.seen
        theta = theta - 0.1 * found[-1] + t  # by what was released
    residual = np.cumsum(np.array(found) - np.array(sums), axis=0)
    if kind == "tree":
        v1 = 2 / 3
        single, pair = sigma**2, v1 * sigma**2
        four = 1 / (1 + 1 / (2 * v1)) * sigma**2
        variances = [single, pair, pair + single, four, four + single, four + pair]
    else:
        matrices: Any = mechanism.matrices
        c = matrices.coefficients() / 2.0**matrices.bits
        encoder = sum(np.diag(np.full(6 - j, v), -j) for j, v in enumerate(c[:6]))
        b = np.tri(6) @ np.linalg.inv(encoder)
        variances = (sigma**2 * np.einsum("ij,ij->i", b, b)).tolist()
        expected = sigma**2 * b @ b.T
        spread = np.sqrt(np.outer(variances, variances) + expected**2) / math.sqrt(width)
        assert (np.abs(residual @ residual.T / width - expected) < 6 * spread).all()
    # a variance's relative deviation is sqrt(2 / n): six of them, six times
    np.testing.assert_allclose((residual**2).mean(axis=1), variances, rtol=6 * math.sqrt(2 / width))


@pytest.mark.parametrize("kind", ["tree", "banded", "buffered"])
def test_single_rounds_are_those_of_a_whole_training(kind: str) -> None:
    """By the same words: to the bit."""
    whole = FollowTheLeader(2.0, 4, 3, kind).release(Moving(1.0, 5), SeededStream(3), 0.25)
    rounds = FollowTheLeaderRun(2.0, 4, 3, kind).begin(SeededStream(3))
    prefix, theta, mean = np.zeros(5), np.zeros(5), np.zeros(5)
    for t in range(12):
        prefix = prefix + rounds.added(Moving(1.0, 5), theta)
        theta = -0.25 * prefix
        mean += (theta - mean) / (t + 1)
    np.testing.assert_allclose(np.stack([mean, theta]), whole, rtol=1e-12)


# --- In a session ------------------------------------------------------------------------------

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
ROWS = {"age": np.arange(60.0), "ill": ["no", "yes"] * 30}
QUERY = PEOPLE.examples(["age"], "ill", norm=1.0).stream(Logistic(), clip=1.0)
TERMS: Any = {"budget": dp.Budget(8.0, 1e-5), "people": ROWS}


def begin(sigma: float = 2.0, query: Any = QUERY, run: str = "", **more: Any) -> Any:
    options = {"batches": 2, "epochs": 2, "factorization": "buffered", **more}
    return query.release(FollowTheLeaderRun(sigma, **options, run=run))


def at(begun: Any, number: int, theta: float = 0.0, query: Any = QUERY) -> Any:
    one = FollowTheLeaderRound(round=number)
    return query.release(one, given=[begun, dp.public([theta, theta])])


def test_the_beginning_costs_what_the_whole_training_costs_and_rounds_nothing() -> None:
    whole = QUERY.release(
        FollowTheLeader(2.0, batches=2, epochs=2, factorization="buffered"), given=[dp.public(0.1)]
    )
    planned = dp.Pipeline(x=whole).with_delta(1e-5)
    begun = begin()
    plan = dp.Pipeline(a=begun, b=at(begun, 1), c=at(begun, 2)).with_delta(1e-5)
    assert plan.certify().epsilon == planned.certify().epsilon
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(begun, 1))
        spent = session.spent
        for number in (2, 3, 4):
            session.run(at(begun, number, float(number)))
        assert session.spent == spent
        certificate = session.certificate()
        assert dp.verify(certificate).holds
        assert [row.theorem for row in certificate.nodes].count(FollowTheLeaderRound.theorem) == 4
        assert str(session.remaining) == "left 77.1%"  # of rounds there are four, however much
    with dp.Session(**TERMS, seed=1) as session:
        session.run(whole)
        assert session.spent == spent


def test_any_round_but_the_next_one_is_refused_and_nothing_is_written() -> None:
    begun = begin()
    with dp.Session(**TERMS, seed=1) as session:
        with pytest.raises(RunError, match="next round of this training is 1"):
            session.run(at(begun, 2))
        assert session.spent.costs[0] == 0
        first = session.run(at(begun, 1))
        session.run(at(begun, 2, 1.0))
        head = session.head
        for number, theta in ((4, 0.0), (1, 0.5), (2, 0.0)):
            with pytest.raises(RunError, match="next round of this training is 3"):
                session.run(at(begun, number, theta))
        # what was released is shown again, as it is
        np.testing.assert_array_equal(session.run(at(begun, 1)), first)
        with pytest.raises(dp.DeclarationError, match="made once"):
            session.run(at(begun, 2, 1.0), again=True)
        with pytest.raises(dp.DeclarationError, match="made once"):
            session.run(begun, again=True)
        assert session.head == head
        session.run(at(begun, 3)), session.run(at(begun, 4))
        fifth = at(begun, 5)
        with pytest.raises(dp.DeclarationError, match="has 4 rounds"):
            session.run(fifth)


def test_no_traceback_leads_to_the_batches() -> None:
    begun = begin()
    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(begun, 1))
        with pytest.raises(RunError, match="next round") as caught:
            session.run(at(begun, 3))
    held = [value for each in caught.traceback for value in each.frame.f_locals.values()]
    assert len(held) > 20
    assert caught.value.__context__ is None
    assert not any(isinstance(value, Rounds) for value in held)


def test_rounds_of_another_training_or_of_other_rows_are_refused() -> None:
    begun = begin()
    others = dp.dataset("others", columns={"age": (0, 100), "ill": ["no", "yes"]})
    wrong = {
        "other rows": others.examples(["age"], "ill", norm=1.0).stream(Logistic(), clip=1.0),
        "a filter": PEOPLE.filter(PEOPLE["age"] > 3)
        .examples(["age"], "ill", norm=1.0)
        .stream(Logistic(), clip=1.0),
        "longer gradients": PEOPLE.examples(["age"], "ill", norm=1.0).stream(Logistic(), clip=2.0),
        "longer rows": PEOPLE.examples(["age"], "ill", norm=2.0).stream(Logistic(), clip=1.0),
    }
    for query in wrong.values():
        with pytest.raises(dp.DeclarationError, match="of the same rows"):
            dp.Pipeline(x=at(begun, 1, query=query))
    number = PEOPLE.count().release(dp.Laplace(scale=1))
    with pytest.raises(dp.DeclarationError, match="continues a training"):
        dp.Pipeline(x=at(number, 1))
    sampled = PEOPLE.sample(0.5).examples(["age"], "ill", norm=1.0).stream(Logistic(), clip=1.0)
    with pytest.raises(dp.DeclarationError, match="not a sample"):
        dp.Pipeline(x=begin(query=sampled))
    one = FollowTheLeaderRound(round=1)
    loop = dp.repeat(lambda at: QUERY.release(one, given=[begun, at]), 2, start=[0.0, 0.0])
    with pytest.raises(dp.DeclarationError, match="inside of a loop"):
        dp.Pipeline(x=loop)
    # a plan in which a round is released twice, which is paid for once
    with pytest.raises(dp.DeclarationError, match="second release in place 2"):
        dp.Pipeline(a=at(begun, 2), b=at(begun, 2, 1.0))
    equal = PEOPLE.examples(["age"], "ill", norm=1.0).stream(Logistic(), clip=1.0)
    dp.Pipeline(x=at(begun, 1, query=equal))  # another handle of the same


@pytest.mark.parametrize("given", [[0.0], [0.0] * 3, 0.0, [[0.0], [0.0]], "ab", None])
def test_parameters_of_another_shape_are_refused_before_anything_is_paid(given: Any) -> None:
    begun, one = begin(), FollowTheLeaderRound(round=1)
    wrong = QUERY.release(one, given=[begun, dp.public(given)])
    with pytest.raises(dp.DeclarationError, match="computed at 2 numbers"):
        dp.Pipeline(x=wrong)


def test_a_refusal_settles_nothing() -> None:
    begun = begin()
    dear = PEOPLE.count().release(dp.Laplace(scale=0.01))
    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(begun, 1))
        with pytest.raises(dp.BudgetError):
            session.run(dp.Pipeline(r=at(begun, 2, 0.5), n=dear))
        session.run(at(begun, 2, 0.25))
        assert recomputed(session._ledger.entries()).reasons == ()


def test_two_equal_beginnings_in_one_plan_are_two_trainings() -> None:
    """Both are paid; a step that has one of them alone goes on with the first, as the ledger."""
    one, other = begin(), begin()
    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(one, 1))
        once = session.spent.costs[1]
        both = session.run(dp.Pipeline(x=at(one, 1), y=at(other, 1)))
        assert session.spent.costs[1] == pytest.approx(2 * once)
        assert (both["x"] != both["y"]).all()
        session.run(at(one, 2))
        with pytest.raises(RunError, match="next round of this training is 3"):
            session.run(at(other, 2, 1.0))
        session.run(at(other, 3, 1.0))
        with pytest.raises(RunError, match="next round of this training is 4"):
            session.run(at(one, 3))
        session.run(dp.Pipeline(x=at(one, 2), y=at(other, 2, 2.0)))
        assert session.spent.costs[1] == pytest.approx(2 * once)
        assert recomputed(session._ledger.entries()).reasons == ()
        assert dp.verify(session.certificate()).holds


def test_two_trainings_of_one_session_do_not_meet() -> None:
    one, other = begin(run="one"), begin(run="other")
    with dp.Session(**TERMS, seed=1) as session:
        found = [session.run(at(begun, n)) for n in (1, 2) for begun in (one, other)]
        assert len({float(each[0]) for each in found}) == 4
        single = session.spent.costs[1] / 2
        # an equal request of another handle is the same training, which goes on
        again = begin(run="one")
        np.testing.assert_array_equal(session.run(at(again, 2)), found[2])
        session.run(at(again, 3, 0.5))
        with pytest.raises(RunError, match="is 4"):
            session.run(at(one, 3, 0.25))
        assert session.spent.costs[1] == pytest.approx(2 * single)
        session.run(at(other, 3))
        assert dp.verify(session.certificate()).holds


def test_another_session_shows_rounds_and_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with dp.Session(**TERMS, ledger=path, create=True) as session:
        begun = begin()
        found = [session.run(at(begun, n)) for n in (1, 2)]
        spent = session.spent
    with dp.Session(**TERMS, ledger=path) as session:
        begun = begin()
        np.testing.assert_array_equal(session.run(at(begun, 1)), found[0])
        np.testing.assert_array_equal(session.run(at(begun, 2)), found[1])
        head = session.head
        with pytest.raises(RunError, match="not in this process"):
            session.run(at(begun, 3))
        assert session.head == head
        assert session.spent == spent
        session.run(at(begin(run="new"), 1))  # which is charged
        assert session.spent.costs[1] == pytest.approx(2 * spent.costs[1])
        entries = session._ledger.entries()
    assert recomputed(entries).reasons == ()


# --- Interruptions -----------------------------------------------------------------------------


def test_a_round_that_has_drawn_nothing_goes_on_under_its_spend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from adaptive_dp.queries.gradients import ClippedGradients

    begun, real = begin(), ClippedGradients.at
    with dp.Session(**TERMS, seed=1) as session:
        session.run(begun)
        session.run(at(begun, 1))
        for failure in (KeyboardInterrupt, MemoryError):

            def failing(self: Any, parameters: Any, failure: Any = failure) -> Any:
                raise failure

            monkeypatch.setattr(ClippedGradients, "at", failing)
            with pytest.raises((KeyboardInterrupt, RunError)):
                session.run(at(begun, 2))
        monkeypatch.setattr(ClippedGradients, "at", real)
        # another round in its place would be a second release, if the first one is finished
        with pytest.raises(RunError, match="as it was"):
            session.run(at(begun, 2, 0.5))
        session.run(at(begun, 2))
        session.run(at(begun, 3))
        certificate = session.certificate()
        assert dp.verify(certificate).holds
        assert [row.theorem for row in certificate.nodes].count(FollowTheLeaderRound.theorem) == 3


def test_noise_that_was_interrupted_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_dp.mechanisms import follow_the_leader

    begun, real = begin(), follow_the_leader.rounded_gaussian
    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(begun, 1))

        def drawn(*given: Any) -> Any:
            real(*given)
            raise KeyboardInterrupt

        monkeypatch.setattr(follow_the_leader, "rounded_gaussian", drawn)
        with pytest.raises(KeyboardInterrupt):
            session.run(at(begun, 2))
        monkeypatch.setattr(follow_the_leader, "rounded_gaussian", real)
        for theta in (0.0, 1.0):
            with pytest.raises(RunError, match="was interrupted while its noise"):
                session.run(at(begun, 2, theta))
        session.run(at(begin(run="again"), 1))
        assert dp.verify(session.certificate()).holds


@pytest.mark.slow
def test_whatever_line_is_interrupted_a_place_has_one_answer() -> None:
    """Ctrl-C at each line of what pays, draws and records; then everything is asked for again."""
    names = {"_spend", "decide", "_computing", "_compute", "_record", "prefix", "added", "push"}
    names |= {"check_runs", "settle_places", "_find_runs", "_may_continue", "can_continue"}
    before, line, endings = sys.gettrace(), 0, set[tuple[int, ...]]()
    while True:
        line, begun, seen = line + 1, begin(), [0]

        def interrupt(frame: Any, event: str, _: Any, seen: Any = seen, line: int = line) -> Any:
            if frame.f_code.co_name not in names:
                return None
            seen[0] += event == "line"
            if seen[0] == line and event == "line":
                sys.settrace(before)
                raise KeyboardInterrupt
            return interrupt

        with dp.Session(**TERMS, seed=1) as session:
            session.run(at(begun, 1))
            spent = session.spent
            sys.settrace(interrupt)
            try:
                session.run(at(begun, 2))
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            if seen[0] < line:
                break
            answers: dict[int, set[bytes]] = {}
            for number in (2, 1, 2, 3, 2):
                for theta in (0.0, 0.5):
                    query = at(begun, number, theta)
                    for ask in (query, dp.Pipeline(x=query)):
                        try:
                            value: Any = session.run(ask)
                        except (RunError, dp.DeclarationError):
                            continue
                        value = value["x"] if ask is not query else value
                        answers.setdefault(number, set()).add(np.asarray(value).tobytes())
            assert all(len(each) == 1 for each in answers.values())
            endings.add(tuple(sorted(answers)))
            assert session.spent == spent
            assert recomputed(session._ledger.entries()).reasons == ()
            assert dp.verify(session.certificate()).holds
    assert line > 40
    assert {(1, 2, 3), (1, 3)} <= endings  # continued, and lost


def test_a_crash_between_payment_and_release_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "study.db", dp.Session._record
    with dp.Session(**TERMS, ledger=path, create=True) as session:
        monkeypatch.setattr(dp.Session, "_record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.run(begin())
        once = session.spent.costs[1]
        assert once > 0
    monkeypatch.setattr(dp.Session, "_record", real)
    with dp.Session(**TERMS, ledger=path) as session:
        # the other session may still be there: a training is begun once
        with pytest.raises(RunError, match="by another name"):
            session.run(begin())
        assert session.spent.costs[1] == once
        begun = begin(run="second")
        session.run(begun)
        assert session.spent.costs[1] == pytest.approx(2 * once)
        monkeypatch.setattr(dp.Session, "_record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.run(at(begun, 1))
        monkeypatch.setattr(dp.Session, "_record", real)
        with pytest.raises(RunError, match="next round of this training is 2"):
            session.run(at(begun, 1))  # drawn, and lost
        assert recomputed(session._ledger.entries()).reasons == ()
        session.run(at(begun, 2))  # without it, these are a part of what was paid for
        session.run(at(begun, 3))
        assert session.spent.costs[1] == pytest.approx(2 * once)
        assert recomputed(session._ledger.entries()).reasons == ()
        assert dp.verify(session.certificate()).holds


def test_a_round_may_be_released_after_a_later_one() -> None:
    begun, failures = begin(), [1]

    def failing(value: Any) -> float:
        if failures:
            raise ValueError(failures.pop())
        return 1.0

    with dp.Session(**TERMS, seed=1) as session:
        session.run(at(begun, 1))
        second = at(begun, 2)
        plan = dp.Pipeline(r=second, p=dp.post(failing, second))
        with pytest.raises(RunError, match="ValueError"):
            session.run(plan)  # drawn, and not released
        session.run(at(begun, 3))
        session.run(plan)
        entries = session._ledger.entries()
        assert recomputed(entries).reasons == ()
        assert dp.verify(session.certificate()).holds
    # once more, which is another draw of it
    again = [*entries, entries[-4], {**entries[-1], "of": len(entries)}]
    assert entries[-4]["kind"] == "spend"
    assert "the next one was due" in str(recomputed(rechained(again)).reasons)


def test_two_sessions_that_begin_at_once_do_not_share_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has read the ledger before the first one paid, and pays before it releases."""
    path, real = tmp_path / "study.db", dp.Session._compute
    with (
        dp.Session(**TERMS, ledger=path, create=True) as first,
        dp.Session(**TERMS, ledger=path) as second,
    ):

        def meanwhile(session: Any, step: Any) -> None:
            monkeypatch.setattr(dp.Session, "_compute", real)
            with pytest.raises(RunError, match="by another session"):
                second.run(begin())
            real(session, step)

        monkeypatch.setattr(dp.Session, "_compute", meanwhile)
        begun = begin()
        first.run(begun)
        first.run(at(begun, 1))
        assert first.spent == second.spent
        assert dp.verify(second.certificate()).holds


def test_a_child_that_was_forked_takes_no_round(tmp_path: Path) -> None:
    import os

    path = tmp_path / "study.db"
    with dp.Session(**TERMS, ledger=path, create=True) as session:
        begun = begin()
        session.run(begun)
        session.run(at(begun, 1))
        child = os.fork()
        if child == 0:
            said = 1
            try:
                session.run(at(begun, 2))
            except RunError:
                said = 0
            finally:
                os._exit(said)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        session.run(at(begun, 2))


# --- Forged ledgers ----------------------------------------------------------------------------


def rechained(entries: Any) -> Any:
    made: list[Any] = []
    for i, entry in enumerate(entries):
        content = {k: v for k, v in entry.items() if k not in ("hash", "number", "previous")}
        made.append(chained(content, i, made[-1]["hash"] if made else GENESIS))
    return made


def test_a_ledger_with_more_rounds_than_were_paid_for_does_not_hold() -> None:
    begun = begin()
    with dp.Session(**TERMS, seed=1) as session:
        session.run(begun)
        session.run(at(begun, 1))
        session.run(at(begun, 2, 2.0))
        entries = session._ledger.entries()
    assert recomputed(rechained(entries)).reasons == ()
    # a second release of round 2, with other parameters: of another session that asked for it
    with dp.Session(**TERMS, seed=2) as session:
        session.run(begun)
        session.run(at(begun, 1))
        session.run(at(begun, 2, 1.0))
        second = session._ledger.entries()[-2:]
    more = [*entries, second[0], {**second[1], "of": len(entries)}]
    assert "the next one was due" in str(recomputed(rechained(more)).reasons)
    # the same one again, which is another draw
    twice = [*entries, entries[-2], {**entries[-1], "of": len(entries)}]
    assert "the next one was due" in str(recomputed(rechained(twice)).reasons)
    # round 1 left out
    skipped = [*entries[:3], entries[5], {**entries[6], "of": 3}]
    assert "the next one was due" in str(recomputed(rechained(skipped)).reasons)
    # without the beginning that pays: not offered, and not released
    without = [entries[0], entries[3], {**entries[4], "of": 1}]
    assert "no earlier entry offers" in str(recomputed(rechained(without)).reasons)
    # paid for, and never released: then no round can follow it
    unreleased = [entries[0], entries[1], entries[3], {**entries[4], "of": 2}]
    assert "not paid for" in str(recomputed(rechained(unreleased)).reasons)
    # a beginning that claims to cost less
    cheap = {
        **entries[1],
        "costs": [
            [p, {**c, "loss": {**c["loss"], "mu": 1e-3}}] if "mu" in str(c) else [p, c]
            for p, c in entries[1]["costs"]
        ],
    }
    assert recomputed(rechained([entries[0], cheap, *entries[2:]])).reasons != ()
