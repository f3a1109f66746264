"""Errors of a model by group, and an auction: counts, sensitivities, intervals, truthfulness."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.handles import change_at
from adaptive_dp.statistics import fairness, nulls
from adaptive_dp.statistics.auction import Revenue

S = dp.statistics
COLUMNS = {
    "x": (0.0, 1.0),
    "town": ["Ulm", "Bonn"],
    "g": ["a", "b", "c"],
    "y": ["no", "yes"],
    "z": ["u", "v", "w"],
}
RULE = {"intercept": -0.5, "x": 1.0, "town=Bonn": 0.25}


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(size=n),
        "town": rng.choice(["Ulm", "Bonn"], n),
        "g": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
        "y": rng.choice(["no", "yes"], n),
        "z": rng.choice(["u", "v", "w"], n),
    }


def bare(table, model, target="y", features=("x", "town")):
    """The counts themselves, by noise that rounds to nothing."""
    errors = S.group_errors(
        model,
        table,
        "g",
        target=target,
        features=features,
        mechanism=dp.DiscreteLaplace(scale=0.01),
    )
    return dp.Pipeline(errors=errors)


def test_rates_are_those_of_a_loop_over_rows():
    data = rows()
    table = dp.dataset("t", columns=COLUMNS)
    found = bare(table, RULE).simulate(seed=1, t=data)["errors"]
    for g in "abc":
        own = [i for i in range(400) if data["g"][i] == g]
        said = {i: -0.5 + data["x"][i] + 0.25 * (data["town"][i] == "Bonn") > 0 for i in own}
        true = {i: data["y"][i] == "yes" for i in own}
        wrong = sum(said[i] != true[i] for i in own)
        assert found["error"][g] == pytest.approx(wrong / len(own))
        no = [i for i in own if not true[i]]
        assert found["false_positive"][g] == pytest.approx(sum(said[i] for i in no) / len(no))
        yes = [i for i in own if true[i]]
        assert found["false_negative"][g] == pytest.approx(sum(not said[i] for i in yes) / len(yes))
        assert found["positive"][g] == pytest.approx(sum(said.values()) / len(own))
    rates = list(found["error"].values())
    assert found["largest_gap"]["error"] == pytest.approx(max(rates) - min(rates))


def test_models_of_several_classes_and_shapes_are_measured():
    data = rows()
    table = dp.dataset("t", columns=COLUMNS)
    by_class = {
        "u": {"intercept": 0.0, "x": 1.0},
        "v": {"intercept": 0.5, "x": 0.0},
        "w": {"intercept": -1.0, "x": 0.0},
    }
    found = bare(table, by_class, "z", ("x",)).simulate(seed=1, t=data)["errors"]
    said = np.where(data["x"] > 0.5, "u", "v")
    for g in "abc":
        own = data["g"] == g
        assert found["error"][g] == pytest.approx((said != data["z"])[own].mean())
    assert set(found) == {"error", "largest_gap"}
    # an additive model that a plan learns and measures, on parts of the rows of its own
    half = table.partition("town")
    model = half["Ulm"].solve(dp.AdditiveModel(["x"], "y", steps=5), epsilon=1.0, delta=1e-6)
    errors = S.group_errors(model, half["Bonn"], "g", target="y", features=["x"])
    plan = dp.Pipeline(errors=errors).calibrate(epsilon=1.0, delta=1e-6)
    assert plan.certify().epsilon <= 1
    assert set(plan.simulate(seed=1, t=data)["errors"]["error"]) == set("abc")


def test_a_rows_cell_does_not_depend_on_other_rows():
    """To the last bit: predictions at the boundary, in blocks of many sizes."""
    rng = np.random.default_rng(2)
    weights = {"intercept": -1.7, **{f"x{i}": float(rng.normal()) for i in range(7)}}
    values = {name: rng.uniform(size=5000) for name in weights if name != "intercept"}
    score = dp.predict(weights, values)
    weights["intercept"] -= float(np.sort(score)[2500])  # many rows are near 0 then
    declared = {name: dp.dataset("t", columns={name: (0, 1)}).domain.find(name) for name in values}
    more = dp.dataset("t", columns={"g": ["a"], "y": ["no", "yes"]}).domain.columns
    outcome = fairness.Outcome(weights, tuple(values), "y", "g", {**declared, **more})
    everyone = {**values, "g": np.full(5000, "a", object), "y": np.full(5000, "no", object)}
    whole = outcome(everyone)
    for start, stop in ((0, 1), (2, 3), (1, 8), (3, 777), (2499, 2502), (7, 5000)):
        part = {name: column[start:stop] for name, column in everyone.items()}
        assert np.array_equal(outcome(part), whole[start:stop])


def test_counts_cost_what_a_histogram_costs():
    for relation, epsilon in (("add_remove", 0.5), ("zero_out", 0.5), ("replace_one", 1.0)):
        table = dp.dataset("t", columns=COLUMNS, neighbors=relation)
        errors = S.group_errors(
            RULE, table, "g", target="y", features=["x", "town"],
            mechanism=dp.DiscreteLaplace(scale=2),
        )  # fmt: skip
        assert dp.Pipeline(errors=errors).certify().epsilon == pytest.approx(epsilon)


def test_the_plan_is_written_and_read():
    table = dp.dataset("t", columns=COLUMNS)
    plan = bare(table, RULE)
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    assert again.simulate(seed=3, t=rows())["errors"] == plan.simulate(seed=3, t=rows())["errors"]


def test_intervals_of_rates_and_of_the_gap_cover():
    rng = np.random.default_rng(6)
    sizes, rates, scale = np.array([300, 120, 40]), np.array([0.1, 0.15, 0.3]), 3.0
    groups, hits, gap_hits = ["a", "b", "c"], 0, 0
    times = 400
    for _ in range(times):
        counts = np.zeros((3, 2, 2))
        for g in range(3):
            # class and error are independent
            p = np.outer([0.6, 0.4], [1 - rates[g], rates[g]]).ravel()
            right_no, wrong_no, right_yes, wrong_yes = rng.multinomial(sizes[g], p)
            counts[g] = [[right_no, wrong_no], [wrong_yes, right_yes]]
        counts += nulls.draw_noise(rng, "discrete_laplace", scale, counts.shape)
        ends = fairness._error_ends(
            [counts, scale], 0.95, True, groups=groups, kind="discrete_laplace"
        )
        for name in ("error", "false_positive", "false_negative"):
            for g, group in enumerate(groups):
                hits += ends[name][group].low <= rates[g] <= ends[name][group].high
        gap_hits += ends["largest_gap"]["error"].low <= 0.2 <= ends["largest_gap"]["error"].high
    assert 0.93 < hits / (9 * times) < 0.985
    assert gap_hits / times > 0.95


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda t: S.group_errors({"weights": [1], "inputs": {}}, t, "g", target="y",
                                  features=["x"]), "network"),
        (lambda t: S.group_errors(RULE, t, "x", target="y", features=["x"]), "'x'"),
        (lambda t: S.group_errors(RULE, t, "g", target="x", features=["town"]), "'x'"),
        (lambda t: S.group_errors(RULE, t, "g", target="y", features=["y"]), "different"),
        (lambda t: S.group_errors(RULE, t, "g", target="y", features=[]), "got none"),
        (lambda t: S.auction(t, "x", [1.0]), "two prices"),
        (lambda t: S.auction(t, "x", [2.0, 1.0]), "ascending"),
        (lambda t: S.auction(t, "g", [1.0, 2.0]), "'g'"),
        (lambda t: S.auction(t, "x", [1.0, math.inf]), "inf"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(make, match):
    with pytest.raises(dp.DeclarationError, match=match):
        make(dp.dataset("t", columns=COLUMNS))


def test_a_network_of_a_plan_is_refused_before_it_is_paid_for():
    table = dp.dataset("t", columns=COLUMNS)
    learner = dp.NoisyGradientDescent(["x"], "y", dp.Network(dp.Logistic(), hidden=2), steps=2)
    model = table.solve(learner, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.DeclarationError, match="network"):
        S.group_errors(model, table, "g", target="y", features=["x"])


# -----------------------------------------------------------------------------
# The auction.


PRICES = (1.0, 2.0, 3.5)


def revenue(bids):
    return np.array([p * sum(b >= p for b in bids) for p in PRICES])


def law(bids, scale):
    """The law of the price, by the exponential mechanism's formula."""
    weights = np.exp((revenue(bids) - revenue(bids).max()) / scale)
    return weights / weights.sum()


BIDS = (0.0, 1.0, 2.0, 3.5)


def test_revenue_moves_by_the_highest_price_in_one_direction():
    query = Revenue(PRICES)
    for relation, exchanged in (("add_remove", False), ("zero_out", False), ("replace_one", True)):
        table = dp.dataset("t", columns={"x": None}, neighbors=relation)
        values = table["x"]
        change = change_at(table)
        bound = {norm: query.sensitivity(values.domain, change, norm) for norm in (1, 2, math.inf)}
        largest = dict.fromkeys((1, 2, math.inf, "span"), 0.0)
        for rest in itertools.product(BIDS, repeat=2):
            before = [revenue((*rest, b)) for b in BIDS]
            moved = [v - w for v in before for w in (before if exchanged else [revenue(rest)])]
            for move in moved:
                for norm in (1, 2, math.inf):
                    largest[norm] = max(largest[norm], float(np.linalg.norm(move, norm)))
                span = move.max() - move.min()
                largest["span"] = max(largest["span"], float(span))
        for norm in (1, 2, math.inf):
            assert largest[norm] <= bound[norm] <= largest[norm] * (1 + 1e-5)
        assert largest["span"] <= query.span(values.domain, change)


def test_no_lie_gains_more_than_the_bound_and_one_nearly_does():
    """All lies of one bidder, all values, all other bids, by the exact law of the price."""
    scale = 4.0
    table = dp.dataset("t", columns={"x": None}, neighbors="replace_one")
    price = S.auction(table, "x", PRICES, mechanism=dp.Exponential(scale=scale))
    epsilon = dp.Pipeline(price=price).certify().epsilon
    assert epsilon == pytest.approx(PRICES[-1] / scale, rel=1e-5)
    attained = 0.0
    crowds = [(b,) * n for n in (0, 1, 2, 5, 20) for b in BIDS]
    crowds += list(itertools.product(BIDS, repeat=3))
    for others in crowds:
        for value in (0.5, 1.0, 1.5, 2.0, 3.0, 3.5, 5.0):
            utility = np.maximum(value - np.array(PRICES), 0.0)
            honest = float(law((*others, value), scale) @ utility)
            for bid in BIDS:
                buys = np.array([bid >= p for p in PRICES])
                lying = float(law((*others, bid), scale) @ (buys * (value - np.array(PRICES))))
                gain = lying - honest
                spread = float(utility.max())
                assert gain <= math.expm1(epsilon) * honest + 1e-12
                assert gain <= math.expm1(epsilon) * spread + 1e-12
                if honest > 0:
                    attained = max(attained, gain / (math.expm1(epsilon) * honest))
    assert attained > 0.99


def test_the_price_is_drawn_by_that_law():
    table = dp.dataset("t", columns={"x": None})
    bids = [0.5, 1.0, 2.2, 3.5, None, 9.0]
    price = S.auction(table, "x", PRICES, mechanism=dp.Exponential(scale=4.0))
    plan = dp.Pipeline(price=price)
    expected = law([b for b in bids if b is not None], 4.0)
    found = [plan.simulate(seed=i, t={"x": bids})["price"] for i in range(300)]
    for p, share in zip(PRICES, expected, strict=True):
        assert abs(found.count(p) - 300 * share) < 5.4 * math.sqrt(300 * share * (1 - share))
