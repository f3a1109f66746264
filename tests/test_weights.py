"""Rows that weigh less than others: losses, sums, minimizers and learners with weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from scipy.optimize import minimize

import adaptive_dp as dp
from adaptive_dp.data import make_examples, read_rows
from adaptive_dp.erm import Huber, Logistic, Multinomial, Squared, Weighted, ZeroOne, losses
from adaptive_dp.erm import Problem as Risk
from adaptive_dp.graph.operation import Change
from adaptive_dp.learning.checks import risk_report
from adaptive_dp.mechanisms.objective_perturbation import Problem, minimizer
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.examples import TotalWeight
from adaptive_dp.queries.gradients import LinearGradients, TotalLoss
from adaptive_dp.queries.source import reading

COLUMNS = {"a": (-1, 1), "b": (-1, 1), "y": ["no", "yes"], "w": (0, 4)}


def rows(count: int = 400, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, size=(2, count))
    y = np.where(a - b / 2 + rng.logistic(size=count) * 0.2 > 0.3, "yes", "no")
    return {"a": a, "b": b, "y": y, "w": rng.choice([0.0, 1.0, 2.0, 4.0], count)}


def table(**options: Any) -> Any:
    return dp.dataset("people", columns=COLUMNS, **options)


def examples(columns: dict[str, Any], **options: Any) -> Any:
    """The rows of a plan's examples, as its queries read them."""
    handle = table().examples(["a", "b"], "y", norm=1.0, **options)
    declared = handle.inputs[0].domain.columns
    read = read_rows(columns, {name: reading(each) for name, each in declared.items()}, None)
    return handle.operation.run([read], SeededStream(1))


# --- the loss


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Squared(), Multinomial(3)])
def test_a_weighted_loss_is_the_loss_times_the_weight(loss: Any) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(loss.outputs, 50))
    y = {"sign": rng.choice([-1.0, 1.0], 50), "class": rng.integers(0, 3, 50).astype(float)}.get(
        loss.labels, rng.uniform(-1, 1, 50)
    )
    w = rng.uniform(size=50)
    weighted, both = Weighted(loss), np.stack([y, w], axis=1)
    assert np.allclose(weighted.value(z, both), w * loss.value(z, y), rtol=1e-15)
    assert np.allclose(weighted.slope(z, both), w * loss.slope(z, y), rtol=1e-15)
    assert np.allclose(weighted.second(z, both), w * loss.second(z, y), rtol=1e-15)
    limits, reach = weighted.constants(4.0), 4.0
    assert (np.linalg.norm(weighted.slope(z, both), axis=0) <= limits.lipschitz).all()
    assert limits.lowest <= weighted.value(z, both).min() <= limits.highest
    assert limits.curvature == 0.0
    assert weighted.rounding(reach).slope > loss.rounding(reach).slope
    assert losses.read(losses.loss_string(weighted)) == weighted


# --- what mechanisms read


def risk(x: Any, y: Any, w: Any, ridge: float) -> Any:
    """The minimizer of a weighted logistic risk, by SciPy."""

    def value(v: Any) -> float:
        return float((w * np.logaddexp(0, -y * (x @ v))).sum() + ridge / 2 * v @ v)

    return minimize(value, np.zeros(x.shape[1]), tol=1e-12).x


def test_minimizers_are_scipys() -> None:
    rng = np.random.default_rng(3)
    steps = np.rint(rng.uniform(-0.5, 0.5, size=(300, 3)) * 2**18).astype(np.float32)
    y, w = rng.choice([-1.0, 1.0], 300), rng.uniform(size=300)
    both = np.stack([y, w], axis=1)
    made = make_examples(steps, 2.0**-18, both, 1.0, np.arange(300))
    task = Problem(made, Weighted(Logistic()), 0.7, [Fraction(0)] * 3)
    x = steps.astype(float) * task.scale
    truth = risk(x, y, w, 0.7)
    assert [float(v) for v in minimizer(task, 1e-9)] == pytest.approx(truth, abs=1e-5)
    # a gradient that floats cannot prove: the same by decimals
    point = task.gradient(np.ones(3) * task.scale)
    exact = task.precise_gradient(point.point)
    assert np.linalg.norm(point.value - exact.value) <= point.error
    own = Risk(x, both, Weighted(Logistic()), row_norm=1.0, ridge=0.7)
    assert dp.erm.minimize(own, 1e-9).w == pytest.approx(truth, abs=1e-5)


def test_a_weight_of_two_is_two_rows() -> None:
    columns = rows()
    columns["w"] = np.tile([2.0, 4.0], 200)
    weighted = examples(columns, weight="w")
    assert weighted.labels[:, 1].tolist() == [0.5, 1.0] * 200
    twice = {name: np.repeat(v, np.tile([1, 2], 200)) for name, v in columns.items()}
    plain = examples(twice)
    query = table().examples(["a", "b"], "y", norm=1.0).minimizer(Logistic(), ridge=1.0)
    some = table().examples(["a", "b"], "y", norm=1.0, weight="w")
    half = some.minimizer(Weighted(Logistic()), ridge=0.5)
    a, b = (q.operation.run([r], SeededStream(1)) for q, r in ((query, plain), (half, weighted)))
    # 2 * (weighted sum + ridge / 4 |w|^2), to the tolerance of both searches
    assert a == pytest.approx(b, abs=4e-3)


def test_the_total_weight_moves_by_a_row_at_most() -> None:
    query = TotalWeight()
    columns = rows(40)
    of_classes = [0.3, 1.0]
    every = [
        query.run([examples(c, weight="w", class_weights=of_classes)], SeededStream(1))
        for c in (columns, *({n: np.delete(v, i) for n, v in columns.items()} for i in range(40)))
    ]
    w = np.where(columns["y"] == "yes", 1.0, 0.3) * columns["w"] / 4
    assert every[0] == pytest.approx(w.sum(), abs=40 * 2.0**-21)
    domain = table().examples(["a"], "y", weight="w").domain
    limit = query.sensitivity(domain, Change(False, 1, False), 1)
    assert 0.5 < max(every[0] - one for one in every[1:]) <= limit
    assert query.sensitivity(domain, Change(True, 3, False), 2) == 3


def test_no_gradient_is_longer_than_without_weights() -> None:
    columns = rows()
    plain, weighted = examples(columns), examples(columns, weight="w", class_weights=[0.2, 1.0])
    at = np.array([[3.0, -1.0, 2.0]])
    for where, block in plain.blocks():
        full = LinearGradients(plain, Logistic(), at, 1.0).slopes(where, block)[1]
        light = LinearGradients(weighted, Weighted(Logistic()), at, 1.0).slopes(where, block)[1]
        assert (light <= full).all()
        w = weighted.labels[where, 1]
        assert light == pytest.approx(full * w, rel=1e-12)


def test_the_rows_of_files_weigh_the_same(tmp_path: Any) -> None:
    columns = rows(300)
    path = tmp_path / "people.csv"
    lines = ["a,b,y,w", *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines))
    for learner in LEARNERS:
        plan = dp.Pipeline(m=table().solve(learner)).fix(sigma=1.0)
        here, there = (plan.simulate(seed=1, people=v)["m"] for v in (columns, path))
        assert here == there


# --- learners


FEATURES = ["a", "b"]
LEARNERS = [
    dp.ObjectivePerturbation(FEATURES, "y", class_weight="balanced", sample_weight="w"),
    dp.NoisyGradientDescent(FEATURES, "y", steps=5, class_weight={"no": 0.5}, sample_weight="w"),
    dp.OutputPerturbation(FEATURES, "y", class_weight="balanced"),
]


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        (dp.ObjectivePerturbation, {"rare": 50}),
        (dp.ObjectivePerturbation, "balanced"),
        (dp.NoisyGradientDescent, "balanced"),
    ],
    ids=["given", "balanced", "descent"],
)
def test_a_class_of_one_percent_is_predicted(kind: Any, weights: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, size=(2, 20_000))
    score = a + b + rng.logistic(size=20_000) * 0.1
    y = np.where(score > np.quantile(score, 0.99), "rare", "usual")
    people = dp.dataset("people", columns={"a": (-1, 1), "b": (-1, 1), "y": ["rare", "usual"]})
    found = []
    for each in (None, weights):
        learner = kind(FEATURES, "y", class_weight=each)
        plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6))
        plan = plan.with_delta(1e-6)
        assert 0.995 <= plan.certify().epsilon <= 1
        model = plan.simulate(seed=1, people={"a": a, "b": b, "y": y})["model"]
        guess = np.array(dp.predict(model, {"a": a, "b": b}, classes=["rare", "usual"]))
        shares = [(guess[y == label] == label).mean() for label in ("rare", "usual")]
        found.append(sum(shares) / 2)
    assert found[0] < 0.65 < 0.85 < found[1]


def test_balanced_classes_follow_released_counts() -> None:
    plan = dp.Pipeline(m=table().solve(LEARNERS[0], epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    assert "rows_of_each_class" in " ".join(plan.certify().shares)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    released = table().examples(["a"], "y", class_weights=dp.public([2.0, np.nan])).operation
    assert released.class_weights is None


def test_the_budget_is_spent_where_rows_are_exchanged() -> None:
    people = table(neighbors="replace_one", size=1000)
    learner = dp.OutputPerturbation(FEATURES, "y", noise="norm", class_weight="balanced")
    plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0))
    assert 0.995 <= plan.certify().epsilon <= 1


def test_several_classes_weigh_one_by_one() -> None:
    people = dp.dataset("people", columns={"a": (-1, 1), "k": ["r", "s", "t"]})
    learner = dp.ObjectivePerturbation(["a"], "k", class_weight={"t": 20})
    plan = dp.Pipeline(model=people.solve(learner)).fix(sigma=0.5)
    rng = np.random.default_rng(5)
    a = np.sort(rng.uniform(-1, 1, 4000))
    k = np.array(["r", "s"])[(a > 0).astype(int)]
    k[-60:] = "t"
    model = plan.simulate(seed=1, people={"a": a, "k": k})["model"]
    guess = np.array(dp.predict(model, {"a": a}))
    assert (guess[-60:] == "t").mean() > 0.9


def test_weights_that_say_nothing_are_refused() -> None:
    kind = dp.NoisyGradientDescent
    for wrong in ({"no": -1}, {"no": 0, "yes": 0}, {"no": np.inf}, "half", 3):
        with pytest.raises(dp.DeclarationError, match="class_weight"):
            kind(["a"], "y", class_weight=wrong)
    with pytest.raises(dp.DeclarationError, match="maybe"):
        table().solve(kind(["a"], "y", class_weight={"maybe": 2}), epsilon=1.0, delta=1e-6)
    number = evolve(dp.OutputPerturbation(["a"], "b"), class_weight="balanced")
    with pytest.raises(dp.DeclarationError, match="categories"):
        table().solve(number, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.DeclarationError, match="bounds"):
        table().solve(kind(["a"], "y", sample_weight="b"), epsilon=1.0, delta=1e-6)
    against = dp.OutputPerturbation(["a"], "y", adversary=0.1, class_weight="balanced")
    with pytest.raises(dp.DeclarationError, match="adversary"):
        table().solve(against, epsilon=1.0, delta=1e-6)
    some = table().examples(["a"], "y", weight="w", norm=1.0)
    at = dp.public([0.0, 0.0])
    with pytest.raises(dp.DeclarationError, match="weights"):
        dp.Pipeline(g=some.gradients(Logistic(), at=at).sum(clip=1.0).release(dp.Gaussian(1.0)))
    noise = dp.PurePerturbedObjective(shift=0.5, ridge=1.0, blur=1e4, of=Logistic())
    with pytest.raises(dp.DeclarationError, match="weights"):
        dp.Pipeline(g=some.as_query().release(noise))
    with pytest.raises(dp.DeclarationError, match="no weights"):
        table().examples(["a"], "y").weight().release(dp.Laplace(1.0))


# --- losses of released models


def test_a_total_loss_moves_by_a_row_at_most() -> None:
    columns = rows(40)
    for loss, width in ((ZeroOne(), 1.0), (Logistic(), 0.5)):
        query = TotalLoss(loss, width)
        theta = np.array([-0.2, 1.0, -0.7])
        every = [
            query.run([examples(c), theta], SeededStream(1))
            for c in (
                columns,
                *({n: np.delete(v, i) for n, v in columns.items()} for i in range(40)),
            )
        ]
        made = examples(columns)
        x, y = made.steps * made.unit, made.labels
        exact = loss.value((x @ theta)[None], y).clip(0, width) / width
        assert every[0] == pytest.approx(exact.sum(), abs=1e-3)
        domain = table().examples(["a"], "y").domain
        moves = [every[0] - one for one in every[1:]]
        assert 0.5 < max(moves) <= query.sensitivity(domain, Change(False, 1, False), 1)
        assert min(moves) >= 0


def test_the_gap_between_training_and_new_rows_is_reported() -> None:
    """Rows that say nothing: a model of 40 rows that knows each of them, and one of none."""
    names = [f"x{i}" for i in range(30)]
    columns = {**dict.fromkeys(names, (-1, 1)), "y": ["no", "yes"]}
    people, others = (dp.dataset(name, columns=columns) for name in ("people", "others"))
    rng = np.random.default_rng(0)

    def noise(count: int) -> dict[str, Any]:
        x = {name: rng.choice([-1.0, 1.0], count) for name in names}
        return {**x, "y": rng.choice(["no", "yes"], count)}

    few, many = noise(40), noise(20_000)
    x = np.column_stack([np.ones(40), *(few[name] for name in names)])
    fitted = np.linalg.lstsq(x, np.where(few["y"] == "yes", 1.0, -1.0), rcond=None)[0]
    known = dict(zip(["intercept", *names], fitted.tolist(), strict=True))
    about = {"features": names, "target": "y", "train": people, "held_out": others}
    report = dp.generalization(dp.public(known), ZeroOne(), **about)
    plan = dp.Pipeline(report=report).fix(b=0.5)
    # four releases at 2 each: one person may be in both data sets
    assert plan.certify().epsilon == pytest.approx(8.0, rel=1e-6)
    found = plan.simulate(seed=1, people=few, others=many)["report"]
    assert found["train"] < 0.2 < 0.45 < found["held_out"] < 0.55
    assert 0 < found["interval"][0] < found["gap"] < found["interval"][1]
    # a label that was not declared is no row: neither its loss nor its number counts
    strange = {name: np.concatenate([v, v]) for name, v in many.items()}
    strange["y"] = np.concatenate([many["y"], np.full(20_000, "perhaps")])
    again = plan.simulate(seed=1, people=few, others=strange)["report"]
    assert again["held_out"] == pytest.approx(found["held_out"])
    # predictions are those of the model in data units
    guess = dp.predict(known, many, classes=["no", "yes"])
    wrong = (guess != many["y"]).mean()
    assert found["held_out"] == pytest.approx(wrong, abs=0.002)
    # without a loss wrong predictions are counted
    plan = dp.Pipeline(report=dp.generalization(dp.public(known), **about)).fix(b=0.5)
    counted = plan.simulate(seed=1, people=few, others=many)["report"]
    assert counted["held_out"] == pytest.approx(wrong, abs=0.002)


@pytest.mark.parametrize("target", ["y", "z"])
def test_the_gap_of_an_additive_model_is_reported_without_a_loss(target: str) -> None:
    columns = {"x": (-1, 1), "y": ["no", "yes"], "z": (0, 2)}
    people, others = (dp.dataset(name, columns=columns) for name in ("people", "others"))
    x = np.linspace(-1, 1, 4_000)
    rows = {"x": x, "y": np.where(abs(x) > 0.5, "yes", "no"), "z": x**2}
    model = people.solve(dp.AdditiveModel(["x"], target, steps=5), epsilon=2.0, delta=1e-6)
    about: Any = {"features": ["x"], "target": target, "train": people, "held_out": others}
    # its scores are no coefficients: of a loss of these nothing can be said
    with pytest.raises(dp.DeclarationError, match="leave out the loss"):
        dp.generalization(model, ZeroOne(), **about)
    plan = dp.Pipeline(report=dp.generalization(model, **about), model=model).fix(b=0.5)
    found = plan.with_delta(1e-6).simulate(seed=1, people=rows, others=rows)
    classes = ["no", "yes"] if target == "y" else None
    guess = dp.predict(found["model"], {"x": x}, classes=classes)
    # z is 1 wide on either side of the middle of its bounds
    truth = guess != rows["y"] if target == "y" else np.minimum((guess - rows["z"]) ** 2, 0.25)
    assert found["report"]["held_out"] == pytest.approx(truth.mean(), abs=0.003)


def test_an_interval_of_the_gap_holds_as_often_as_it_says() -> None:
    """Risk 0.3 on 300 held-out rows, empirical risk 0.1 of 200; noise of scale 4."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(2000):
        new = rng.binomial(300, 0.3)
        noise = rng.laplace(scale=4.0, size=4)
        report = risk_report(
            20 + noise[0], 4.0, 200 + noise[1], 4.0, new + noise[2], 4.0, 300 + noise[3], 4.0,
            width=1.0, level=0.9,
        )  # fmt: skip
        low, high = report["interval"]
        missed += not low <= 0.2 <= high
    assert missed <= 200
    for nothing in ((0.0, 1.0, -5.0, 1.0), (3.0, 1.0, 0.0, 1.0)):
        low, high = risk_report(*nothing, *nothing, width=2.0, level=0.9)["interval"]
        assert -2 <= low <= high <= 2
