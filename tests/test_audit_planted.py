"""Audits of plans by one run, with canaries among their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard

import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import audit
from adaptive_dp.audit import planted_canaries
from adaptive_dp.audit.canaries import one_run
from adaptive_dp.audit.planted_canaries import Planted, gradient_products
from adaptive_dp.data.examples import Examples, make_examples
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.pate import aggregators as gnmax
from adaptive_dp.queries.gradients import ClippedSum, NetworkGradients, RowGradients

SURE = 1 - 1e-7
"""The bound of an audit at this confidence errs with a chance of 1e-7: no false alarm by that."""

WIDTH = 256
NAMES = [f"x{i}" for i in range(WIDTH)]
COLUMNS: dict[str, Any] = {**dict.fromkeys(NAMES, (-1.0, 1.0)), "y": ["no", "yes"]}
PEOPLE = dp.dataset("people", columns=COLUMNS)


def frame(x: Any, y: Any) -> dict[str, Any]:
    return {**{name: x[:, i] for i, name in enumerate(NAMES)}, "y": np.asarray(y)}


def canaries() -> dict[str, Any]:
    """Canaries at right angles, whose intercepts are a sixteenth of them."""
    return frame(hadamard(WIDTH), np.where(np.arange(WIDTH) % 2, "yes", "no"))


def crowd(size: int = 400) -> dict[str, Any]:
    draw = np.random.default_rng(4)
    x = draw.uniform(-1, 1, (size, WIDTH))
    return frame(x, np.where(x[:, 0] > 0, "yes", "no"))


def learner(people: dp.Table = PEOPLE, epsilon: float = 0.5, **more: Any) -> dp.Pipeline:
    options = {"steps": 10, "sampling_rate": 1.0, **more}
    model = people.solve(
        dp.NoisySGD(features=NAMES, target="y", **options), epsilon=epsilon, delta=1e-6
    )
    return dp.Pipeline(model=model).with_delta(1e-6)


# --- the score


def made(width: int = 5, rows: int = 30) -> Examples:
    draw = np.random.default_rng(2)
    steps = np.rint(draw.uniform(-1, 1, (rows, width)) * 2**17)
    labels = draw.choice([-1.0, 1.0], rows)
    return make_examples(steps.astype(np.float32), 2.0**-18, labels, 2.0, np.arange(rows))


@pytest.mark.parametrize("clip", [0.02, 0.3, 100.0, None])
@pytest.mark.parametrize("network", [False, True])
def test_products_are_those_of_each_row_alone(network: bool, clip: float | None) -> None:
    """The query's own sum over one row, times the direction."""
    rows, draw = made(), np.random.default_rng(3)
    gradients_of: Any = RowGradients(dp.Logistic())
    if network:
        gradients_of = NetworkGradients.of(dp.Network(dp.Logistic(), hidden=3))
    size = gradients_of.network.size(5) if network else 5
    at, direction = draw.normal(size=size), draw.normal(size=size)
    query, bounds = ClippedSum(clip), [] if clip is not None else [0.07]
    gradients = gradients_of.run([rows, at], SeededStream(0))
    result = gradient_products(gradients, clip or 0.07, direction, relative=clip is None)
    for i in range(len(rows)):
        one = gradients_of.run([rows.only(np.array([i])), at], SeededStream(0))
        alone = query.run([one, *bounds], SeededStream(0)) @ direction
        assert result[i] == pytest.approx(alone, abs=3e-5 * max(1.0, clip or 0.0))


# --- learners


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sampling_rate": 0.1, "steps": 20},
        {"adaptive": dp.Clipping()},
        {"loss": dp.Network(dp.Logistic(), hidden=3)},
    ],
)
def test_learners_that_keep_their_promise_are_not_accused(more: Any) -> None:
    result = audit.planted(
        learner(**more), canaries(), data={"people": crowd()}, confidence=SURE, seed=1
    )
    assert result.verdict != "violation"
    assert result.epsilon == pytest.approx(0.5, rel=0.02)
    assert any("as private as they are" in note for note in result.notes)


def quieter(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    honest = dp.Gaussian.release

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / factor), value, stream)

    monkeypatch.setattr(dp.Gaussian, "release", release)


@pytest.mark.parametrize(
    "more", [{}, {"sampling_rate": 0.1, "steps": 40}, {"adaptive": dp.Clipping()}]
)
def test_a_learner_with_too_little_noise_is_detected(
    more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the plan declares is certified, what the code adds is twenty times less.

    Where rounds are sampled there are no other rows, whose sampling would hide the canaries.
    """
    plan = learner(**more)
    quieter(monkeypatch, 20)
    data = None if "rate" in more else {"people": crowd()}
    result = audit.planted(plan, canaries(), data=data, seed=1)
    assert result.verdict == "violation"
    assert result.epsilon_lower > 1.2 * result.epsilon


def test_less_noise_shows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries at right angles, sure of their side: m right guesses show the most there can be."""
    plan = learner()
    seen = [audit.planted(plan, canaries(), seed=1).witness.right]
    quieter(monkeypatch, 1000)
    result = audit.planted(plan, canaries(), seed=1)
    most = -np.log((0.001 / 3) ** (-1 / WIDTH) - 1)
    assert seen[0] < result.witness.right == WIDTH
    assert result.epsilon_lower == pytest.approx(most, rel=1e-2)


def test_a_score_of_ones_own_sees_what_is_released() -> None:
    shown = []

    def score(seen: audit.Seen) -> Any:
        shown.append(seen)
        return [seen["model"][name] for name in NAMES]

    plan = learner()
    result = audit.planted(plan, frame(np.eye(WIDTH), ["yes"] * WIDTH), score, seed=1)
    assert result.witness.tries == WIDTH
    (seen,) = shown
    assert set(seen.released) == {"model"}
    # the count and the moments, the rounds, the check's two differences and its rows, the model
    assert len(seen.transcript) == 2 + 10 + 3 + 1
    assert "array" not in repr(seen)


def test_units_of_several_rows_and_zeroed_ones_take_canaries() -> None:
    several = dp.dataset("people", columns=COLUMNS, unit="id", rows_per_unit=2)
    data = {"people": {**crowd(), "id": np.repeat(np.arange(200), 2)}}
    assert (
        audit.planted(learner(several), canaries(), data=data, confidence=SURE, seed=1).samples == 1
    )
    zeroed = dp.dataset("people", columns=COLUMNS, neighbors="zero_out", size=400 + WIDTH)
    result = audit.planted(
        learner(zeroed), canaries(), data={"people": crowd()}, confidence=SURE, seed=1
    )
    assert result.verdict != "violation"
    with pytest.raises(DataError, match="declares 656 units"):
        audit.planted(learner(zeroed), canaries(), data={"people": crowd(401)}, seed=1)


def test_each_canary_is_a_unit_behind_the_others() -> None:
    data = {"x": [1.0, 2.0, 3.0], "id": ["a", "b", "a"]}
    included = np.array([True, False, True])
    planted = Planted(data, {"x": [7.0, 8.0, 9.0]}, included)
    result = planted.open_rows({"x": "number"}, "id")
    assert result.columns["x"].tolist() == [1, 2, 3, 7, 9]
    assert result.units.tolist()[0] == result.units.tolist()[2]
    assert len(set(result.units.tolist())) == 4
    assert (
        Planted(data, {"x": [7.0, 8.0, 9.0]}, included, 5).open_rows({"x": "number"}, "id").size()
        == 5
    )


def test_what_the_theorem_does_not_cover_is_refused() -> None:
    exchanged = dp.dataset("people", columns=COLUMNS, neighbors="replace_one")
    with pytest.raises(DeclarationError, match="replace_one"):
        audit.planted(learner(exchanged), canaries())
    count = PEOPLE.count().release(dp.Gaussian(sigma=4))
    with pytest.raises(DeclarationError, match=r"plan\.with_delta\(1e-6\)"):
        audit.planted(dp.Pipeline(n=count), canaries())
    chosen = PEOPLE["y"].histogram().release(dp.TopK(k=1, scale=2.0))
    with pytest.raises(DeclarationError, match="give a score"):
        audit.planted(dp.Pipeline(n=chosen), canaries())
    free = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=dp.Free("b"))))
    with pytest.raises(DeclarationError, match="free"):
        audit.planted(free, canaries())
    with pytest.raises(DeclarationError, match="into"):
        audit.planted(learner(), canaries(), into="folk")
    strange = {**canaries(), "y": np.array(["perhaps"] * WIDTH)}
    with pytest.raises(DeclarationError):
        audit.planted(learner(), strange, seed=1)
    with pytest.raises(DomainError, match="canaries"):
        audit.planted(learner(), {name: column[:3] for name, column in canaries().items()})
    with pytest.raises(DomainError, match="shape"):
        audit.planted(learner(), canaries(), lambda seen: np.zeros(3), seed=1)


# --- canaries


def test_canaries_are_what_they_say() -> None:
    result = audit.corners(PEOPLE, 500, seed=0)
    assert set(result) == set(NAMES) | {"y"}
    x = np.stack([result[name] for name in NAMES], axis=1)
    assert set(np.unique(x)) == {-1.0, 1.0}
    assert abs(x.mean()) < 5.5 / np.sqrt(x.size)  # chance below 1e-7
    rows = {"x": np.arange(50), "y": np.array(["a", "b", "c", "a", "b"] * 10)}
    wrong = audit.mislabeled(rows, "y", ["a", "b", "c"], 50, seed=0)
    assert sorted(wrong["x"]) == list(range(50))
    assert (wrong["y"] != rows["y"][wrong["x"]]).all()
    assert set(wrong["y"]) == {"a", "b", "c"}
    for bad in (
        {"count": 51},
        {"values": ["a"]},
        {"values": ["a", "b"]},
        {"target": "z"},
    ):
        given = {"target": "y", "values": ["a", "b", "c"], "count": 5, **bad}
        with pytest.raises(DomainError):
            audit.mislabeled(rows, **given)
    with pytest.raises(DeclarationError, match="corners"):
        audit.corners(dp.dataset("p", columns={"x": None}), 5)


# --- teachers

PIXELS = [f"p{i}" for i in range(64)]
DIGITS = dp.dataset("people", columns={**dict.fromkeys(PIXELS, (0, 16)), "digit": list(range(10))})


def digits() -> tuple[dict[str, Any], dict[str, Any]]:
    """Real digits: private rows, and questions of digits from 4."""
    sets = pytest.importorskip("sklearn.datasets")
    x, y = sets.load_digits(return_X_y=True)
    targets = np.flatnonzero(y >= 4)[-100:]
    rest = np.setdiff1d(np.arange(len(y)), targets)

    def rows(index: Any) -> dict[str, Any]:
        return {**{name: x[index, i] for i, name in enumerate(PIXELS)}, "digit": y[index]}

    return rows(rest), rows(targets)


def voted(sigma: float, teachers: int) -> dp.Pipeline:
    nearest = "sklearn.neighbors:KNeighborsClassifier"
    taught = dp.pate.teachers(DIGITS, PIXELS, "digit", nearest, count=teachers, n_neighbors=1)
    votes = taught.votes(taught.points("pool", 100))
    return dp.Pipeline(labels=votes.release(dp.pate.GNMax(sigma=sigma))).with_delta(1e-6)


def wrongly(plan: dp.Pipeline, confidence: float = 0.95) -> audit.Audit:
    """Each canary is a question with a smaller digit; it shows where that is the answer."""
    private, targets = digits()
    wrong = np.random.default_rng(1).integers(0, targets["digit"])
    planted = {**targets, "digit": wrong}
    return audit.planted(
        plan,
        planted,
        lambda seen: seen["labels"] == wrong,
        data={"people": private, "pool": {name: targets[name] for name in PIXELS}},
        confidence=confidence,
        seed=2,
    )


@pytest.mark.parametrize(("sigma", "teachers"), [(50.0, 2), (2.0, 40)])
def test_teachers_that_keep_their_promise_are_not_accused(sigma: float, teachers: int) -> None:
    result = wrongly(voted(sigma, teachers), SURE)
    assert result.verdict != "violation"
    assert result.epsilon_lower < result.epsilon


def test_teachers_whose_votes_get_no_noise_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two teachers one has the canary and votes as it says; ties go to the smaller digit."""
    monkeypatch.setattr(gnmax, "noisy_counts", lambda counts, sigma, stream: counts)
    result = wrongly(voted(50.0, 2))
    assert result.verdict == "violation"
    assert result.witness.right >= 90


# --- columns and failures


def test_canaries_need_no_declared_column_of_units() -> None:
    """Canaries get identifiers of their own, and other units keep theirs as they are."""
    columns = {**COLUMNS, "id": None}
    table = dp.dataset("people", columns=columns, unit="id")
    data = {"people": {**crowd(), "id": np.arange(400)}}
    for given in (None, data):
        result = audit.planted(learner(table), canaries(), data=given, confidence=SURE, seed=1)
        assert result.verdict != "violation"
    some = np.array([True, False, True])
    planted = Planted({"id": np.array([2**60 + 1, 5])}, {"id": ["a", "b", "c"]}, some)
    assert planted.open_rows({"id": "value"}, "id").columns["id"].tolist() == [
        *(2**60 + 1, 5),
        *("a", "c"),
    ]


def test_what_fails_while_scores_are_made_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaks(*_: Any, **__: Any) -> Any:
        raise ValueError("the third person's income is 7231")

    monkeypatch.setattr(planted_canaries, "gradient_products", leaks)
    with pytest.raises(dp.RunError) as caught:
        audit.planted(learner(), canaries(), data={"people": crowd()}, seed=1)
    assert "7231" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_seed_is_an_integer(seed: Any) -> None:
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=1)))
    for audited in (
        lambda: audit.planted(learner(), canaries(), seed=seed),
        lambda: audit.corners(PEOPLE, 3, seed=seed),
        lambda: audit.one_run(lambda who: who, 20, 1.0, seed=seed),
        lambda: audit.pipeline(plan, samples=100, seed=seed),
        lambda: audit.mechanism(dp.Laplace(scale=1), (0.0, 1.0), samples=100, seed=seed),
    ):
        with pytest.raises(DomainError, match=r"\bseed\b"):
            audited()


@pytest.mark.parametrize("scores", [["a"] * 20, [1j] * 20, [[1], [1, 2]], [None] * 20])
def test_scores_are_real_numbers(scores: Any) -> None:
    with pytest.raises(DomainError, match=r"\b20\b"):
        audit.one_run(lambda _: scores, 20, 1.0, seed=1)


def test_what_is_planted_is_checked_first() -> None:
    with pytest.raises(DeclarationError, match="a Pipeline"):
        audit.planted(PEOPLE, canaries())  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"\bdata\b"):
        audit.planted(learner(), canaries(), data=[1])  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"\bscore\b"):
        audit.planted(learner(), canaries(), 3)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="into"):
        audit.planted(learner(), canaries(), into=["people"])  # type: ignore[arg-type]


# --- Difference scores: of plans without sums of clipped gradients ------------------------------


WIDE = [f"x{i}" for i in range(40)]


def told_apart(monkeypatch, learner, targets, epsilon):
    """Return the chance that a canary that is in has a larger score than one that is out."""
    found = []

    def watched(train, m, *args, **options):
        def scored(included):
            scores = np.asarray(train(included))
            found.append(float((scores[included][:, None] > scores[~included]).mean()))
            return scores

        return one_run(scored, m, *args, **options)

    monkeypatch.setattr(planted_canaries, "one_run", watched)
    domain = (-1, 1) if isinstance(targets[0], float) else ["no", "yes"]
    table = dp.dataset("people", columns={**dict.fromkeys(WIDE, (-1, 1)), "y": domain})
    generator = np.random.default_rng(7)
    others = {x: generator.uniform(-0.1, 0.1, size=300) for x in WIDE}
    others["y"] = [targets[i % 2] for i in range(300)]
    canaries = {x: np.where(np.arange(32) == i, 1.0, 0.0) for i, x in enumerate(WIDE)}
    canaries["y"] = [targets[i % 2] for i in range(32)]
    plan = dp.Pipeline(model=table.solve(learner, epsilon=epsilon, delta=1e-6)).with_delta(1e-6)
    result = dp.audit.planted(plan, canaries, data={"people": others}, seed=3)
    assert result.verdict != "violation"
    return found[0]


@pytest.mark.parametrize(
    ("learner", "targets", "epsilon", "least"),
    [
        (dp.SSP(WIDE, "y", norm=1.0), (-1.0, 1.0), 100.0, 0.9),
        (dp.AdaSSP(WIDE, "y", norm=1.0), (-1.0, 1.0), 100.0, 0.9),
        (dp.OutputPerturbation(WIDE, "y", ridge=1.0), ("no", "yes"), 200.0, 0.9),
        (dp.DPFTRL(WIDE, "y", epochs=1, learning_rate=4.0), ("no", "yes"), 100.0, 0.65),
    ],
    ids=["SSP", "AdaSSP", "output perturbation", "DP-FTRL"],
)
def test_default_scores_tell_canaries_apart(monkeypatch, learner, targets, epsilon, least):
    """Scores that knew nothing would be at 1/2, give or take 0.1 for 32 canaries."""
    assert told_apart(monkeypatch, learner, targets, epsilon) > least


@pytest.mark.parametrize("rounds", [True, False])
def test_it_tells_how_much_of_the_run_is_left(rounds: bool) -> None:
    """Of a descent its rounds; of sufficient statistics the values of each canary alone, too."""
    folk, told = dp.dataset("folk", columns={"x": (-1, 1), "y": (-1, 1)}), list[Any]()
    descent = dp.NoisyGradientDescent(["x"], "y", loss=dp.Squared(), steps=6, norm=1.0)
    learner = descent if rounds else dp.SSP(["x"], "y")
    plan = dp.Pipeline(m=folk.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    canaries = dp.audit.corners(folk, 20, seed=0)
    dp.audit.planted(plan, canaries, seed=1, progress=lambda *each: told.append(each))
    assert told[-1][0] == told[-1][1] >= (6 if rounds else 21)
    assert told[-1][2] == 0
