"""What answers say of the population: the theorem by enumeration, and a holdout that is reused."""

from __future__ import annotations

import importlib
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.session.generalization import gap_bound

F = Fraction


def posterior_gaps(p: Any, law: Any, queries: Any, n: int) -> list[tuple[Fraction, Fraction]]:
    """For each outcome, its probability and |q(posterior) - q(P)|, exactly, n rows of P."""
    rows = list(itertools.product(range(len(p)), repeat=n))
    found = []
    for o, q in enumerate(queries):
        joint = {s: math.prod(p[x] for x in s) * law[s][o] for s in rows}
        total = sum(joint.values())
        if not total:
            continue
        mean = sum(w * sum(q[x] for x in s) for s, w in joint.items()) / n / total
        found.append((total, abs(mean - sum(a * b for a, b in zip(p, q, strict=True)))))
    return found


def excess(law: Any, growth: Fraction) -> Fraction:
    """The delta of a mechanism at e^epsilon = growth: the worst pair of rows that differ in one."""
    return max(
        (
            sum(max(F(0), a - growth * b) for a, b in zip(law[s], law[t], strict=True))
            for s in law
            for t in law
            if sum(x != y for x, y in zip(s, t, strict=True)) == 1
        ),
        default=F(0),
    )


def test_randomized_response_attains_the_bound() -> None:
    """One row, epsilon 2 log r: the gap is tanh(epsilon / 4) where P(1) = 1 / (1 + r)."""
    for r in (F(11, 10), F(3, 2), F(4)):
        right = r * r / (1 + r * r)
        law = {(0,): [right, 1 - right], (1,): [1 - right, right]}
        p = [r / (1 + r), 1 / (1 + r)]
        gaps = dict(posterior_gaps(p, law, [[0, 0], [0, 1]], 1))
        exact = (r - 1) / (r + 1)  # tanh(epsilon / 4), e^{epsilon / 2} = r
        assert max(gaps.values()) == exact
        epsilon = 2 * math.log(r)
        assert float(exact) <= gap_bound(epsilon) <= float(exact) * (1 + 1e-9)
        # a quarter of the published bound, for small epsilon
        assert gap_bound(epsilon) < 0.3 * math.expm1(epsilon)


def random_law(draw: np.random.Generator, n: int, values: int, outcomes: int, spread: int) -> Any:
    rows = itertools.product(range(values), repeat=n)
    base = draw.integers(1, 6, outcomes)
    law = {}
    for s in rows:
        weights = [
            F(int(b) * (spread ** int(draw.integers(0, 2)))) * int(draw.random() > 0.03)
            for b in base
        ]
        total = sum(weights) or F(1)
        law[s] = [w / total for w in weights] if sum(weights) else [F(1), *[F(0)] * (outcomes - 1)]
    return law


@pytest.mark.parametrize("n", [1, 2])
def test_no_small_mechanism_exceeds_the_theorem(n: int) -> None:
    """Exact posteriors of random mechanisms, with and without a delta, for the worst queries."""
    draw = np.random.default_rng(n)
    for _ in range(60):
        values, outcomes = int(draw.integers(2, 4)), int(draw.integers(2, 6))
        law = random_law(draw, n, values, outcomes, int(draw.integers(2, 5)))
        raw = [F(int(x)) for x in draw.integers(1, 9, values)]
        p = [x / sum(raw) for x in raw]
        # each outcome's own query, chosen by it: the worst of all with values 0 and 1
        worst: list[tuple[Fraction, Fraction]] = []
        options = list(itertools.product((0, 1), repeat=values))
        for o in range(outcomes):
            one = {s: [w[o]] for s, w in law.items()}
            found = [posterior_gaps(p, one, [q], n) for q in options]
            if found[0]:
                worst.append((found[0][0][0], max(each[0][1] for each in found)))
        for growth in (F(1), F(5, 4), F(2), F(4)):
            delta = excess(law, growth)
            for eta in (F(1, 100), F(1, 10), F(1, 4)):
                gamma = gap_bound(math.log(growth), float(eta) if delta else 0.0)
                failed = sum(chance for chance, gap in worst if gap > gamma)
                assert failed <= (delta / eta if delta else 0)


def test_one_who_shows_a_row_attains_delta() -> None:
    """With probability delta the row itself: the gap is 1 - P(x) then, which eta may come up to."""
    shown, p = F(1, 50), [F(19, 20), F(1, 20)]
    law = {(x,): [shown * (x == y) for y in (0, 1)] + [1 - shown] for x in (0, 1)}
    assert excess(law, F(1)) == shown
    gaps = posterior_gaps(p, law, [[1, 0], [0, 1], [0, 1]], 1)
    assert gaps[1] == (shown * F(1, 20), F(19, 20))
    for eta in (F(1, 2), F(9, 10)):
        failed = sum(chance for chance, gap in gaps if gap > gap_bound(0.0, float(eta)))
        assert 0 < failed <= shown / eta
    assert gap_bound(0.0, 0.96) > F(19, 20)


def test_the_bound_is_a_root_and_rounded_up() -> None:
    for epsilon in (1e-12, 1e-6, 0.1, 1.0, 5.0, 60.0):
        assert math.tanh(epsilon / 4) <= gap_bound(epsilon) <= math.tanh(epsilon / 4) * (1 + 1e-7)
        t = math.tanh(epsilon / 2)
        for eta in (1e-9, 1e-3, 0.1):
            g = gap_bound(epsilon, eta)
            assert g == 1.0 or abs(g - t * (1 + g * g) / 2 - eta) < 1e-7
            assert g >= gap_bound(epsilon) * (1 - 1e-12)
    assert gap_bound(0.0) < 1e-300
    assert gap_bound(1e9) == gap_bound(0.5, 2.0) == 1.0


# --- In a session ------------------------------------------------------------------------------


def declared(size: int, **more: Any) -> dp.Table:
    relation = {"neighbors": "replace_one", "size": size} | more
    return dp.dataset("tests", columns={"right": (0, 1), "score": (-10, 30)}, **relation)


def sample(size: int, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"right": (draw.random(size) < 0.3) * 1.0, "score": draw.uniform(-10, 30, size)}


def test_bounds_by_hand() -> None:
    n, beta = 5_000, 0.1
    table = declared(n)
    with dp.Session(budget=dp.Budget(0.2), seed=1, tests=sample(n, 1)) as session:
        session.run(table["right"].fill(0).mean().release(dp.Laplace(scale=0.01)), name="mean")
        session.run(
            table.filter(table["score"] > 0).count().release(dp.Laplace(scale=30)), name="n"
        )
        session.run(table["score"].fill(0).sum().release(dp.Laplace(scale=2_000)), name="sum")
        session.run(table["right"].histogram([0, 0.5, 1]).release(dp.Laplace(scale=90)), name="h")
        found = session.generalization(beta)
        epsilon = session.epsilon
    assert [a.name for a in found.answers] == ["mean", "n", "sum"]
    assert (found.epsilon, found.delta, found.beta) == (epsilon, 0.0, beta)
    c = found.gap - math.tanh(epsilon / 4)
    assert 0 < c < 0.2
    for j, (answer, scale, width) in enumerate(
        zip(found.answers, (0.01, 30 / n, 2_000 / 40 / n), (1, 1, 40), strict=True), 1
    ):
        # Laplace noise is above b log(1 / f) with probability f
        noise = -scale * math.log(c * beta / (j * (j + 1)))
        assert answer.bound == pytest.approx((noise + found.gap) * width, rel=1e-3)
    assert found.answers[2].value == pytest.approx(10, abs=1.5)
    assert "population within" in str(found)


def test_an_exchange_of_zeroed_rows_is_two_steps() -> None:
    n = 5_000
    table = declared(n, neighbors="zero_out")
    budget = dp.Budget(0.2, 1e-8)
    with dp.Session(budget=budget, seed=1, tests=sample(n, 1)) as session:
        session.run(table["right"].fill(0).mean().release(dp.Gaussian(sigma=0.02)), name="mean")
        found = session.generalization()
        assert found.epsilon == 2 * session.epsilon
        assert found.delta == pytest.approx((1 + math.exp(0.2)) * 1e-8)
        assert found.gap > gap_bound(found.epsilon, found.delta / 0.025)


def test_what_says_nothing_of_a_population_is_refused() -> None:
    table = dp.dataset("tests", columns={"right": (0, 1)})
    with dp.Session(budget=dp.Budget(1.0), seed=1, tests={"right": [1.0] * 90}) as session:
        session.run(table.count().release(dp.Laplace(scale=9)))
        with pytest.raises(dp.DeclarationError, match="replace_one"):
            session.generalization()
        with pytest.raises(dp.DeclarationError, match="beta"):
            session.generalization(2.0)
    several = declared(90, unit="id", rows_per_unit=2)
    rows = {**sample(90, 1), "id": list(range(90))}
    with dp.Session(budget=dp.Budget(9.0), seed=1, tests=rows) as session:
        session.run(several["right"].fill(0).sum().release(dp.Laplace(scale=9)))
        with pytest.raises(dp.DeclarationError, match="its own unit"):
            session.generalization()


def test_a_holdout_confirms_and_answers() -> None:
    n = 50_000
    table, rows = declared(n), sample(n, 3)
    mean, truth = table["right"].fill(0).mean(), float(np.mean(rows["right"]))
    with dp.Session(budget=dp.Budget(0.5), seed=2, tests=rows) as session:
        holdout = session.holdout(0.05, changes=3, share=0.9)
        assert [holdout.ask(mean, truth + k / 1_000) for k in range(5)] == [
            truth + k / 1_000 for k in range(5)
        ]
        spent = session.spent.costs[0]
        assert spent == pytest.approx(0.5 * 0.45 / 3, rel=1e-3)  # one comparison's run
        answer = holdout.ask(mean, truth + 0.2)
        assert answer is not None
        assert answer == pytest.approx(truth, abs=0.01)
        assert holdout.changes == 2
        assert session.spent.costs[0] == pytest.approx(2 * spent, rel=1e-3)
        found = session.generalization(0.05)
        # the guesses that were confirmed, and the answer; not the question that was above
        assert len(found.answers) == 6
        assert all(abs(a.value - 0.3) <= a.bound for a in found.answers if a.value is not None)
        assert found.answers[0].value == pytest.approx(truth)
        assert dp.verify(session.certificate()).holds
        for k in range(2):
            assert holdout.ask(mean, truth - 0.2 - k / 100) is not None
        assert holdout.ask(mean, 0.0) is None
        assert session.spent.costs[0] <= 0.45
        with pytest.raises(dp.DeclarationError):
            session.holdout(0.05, changes=3, share=2.0)


def test_the_bounds_hold_for_an_analyst_who_follows_the_sample() -> None:
    """Fresh samples of rows of pure noise; the analyst adds up what looked good: bounds must hold.

    Of 12 samples each fails with a probability of at most 0.1: four or more with less than 0.03.
    """
    n, d, failures = 4_000, 12, 0
    columns = {f"x{i}": (0, 1) for i in range(d)}
    for seed in range(12):
        draw = np.random.default_rng(seed)
        rows = {k: (draw.random(n) < 0.5) * 1.0 for k in columns}
        table = dp.dataset("t", columns=columns, neighbors="replace_one", size=n)
        with dp.Session(budget=dp.Budget(0.5), seed=seed, t=rows) as session:
            good = []
            for k in columns:
                mean = session.run(table[k].fill(0).mean().release(dp.Laplace(scale=0.03)), name=k)
                good += [k] * (mean > 0.5)
            found = session.generalization(0.1)
            failures += any(abs(a.value - 0.5) > a.bound for a in found.answers)
    assert failures <= 3


@pytest.mark.slow
def test_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain holdout reports what is not there; the private one what fresh rows say."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    found = importlib.import_module("adaptive_data_analysis").run()
    page = (Path(__file__).parent.parent / "docs/adaptive_data_analysis.md").read_text("utf-8")
    for k, row in enumerate(
        zip(
            *(found[n] for n in ("plain", "plain, truth", "private", "private, truth")), strict=True
        )
    ):
        assert (
            f"| {(5, 15, 31, 61, 111)[k]} | " + " | ".join(f"{x:.3f}" for x in row) + " |" in page
        )
    # 2,000 fresh rows: a standard deviation of 0.011
    assert max(found["plain"]) > 0.5 + 8 * 0.011
    assert max(map(abs, np.array(found["private"][1:]) - 0.5)) < 0.011
    assert found["spent"] <= 2
    assert 0 < found["gap"] <= 1
