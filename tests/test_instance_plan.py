"""What each unit loses by a plan, against the plan's own queries with the unit left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.instance import gaussian_epsilons, per_instance

FRAME = {
    "id": ["ann", "bob", "ann", "cat", "dan", "bob", "bob", "eve"],
    "age": [20.0, 50.0, 40.0, math.nan, 90.0, 1e308, 10.0, -5.0],
    "fee": [1.0, -1.0, 0.5, 0.25, -0.5, 0.0, 1.0, 3.0],
    "town": ["a", "b", "a", "a", "c", "b", "a", "nowhere"],
}


def declared(**more):
    columns = {"age": (0, 100), "fee": (-1, 1), "town": ["a", "b", "c"]}
    return dp.dataset("people", columns=columns, unit="id", rows_per_unit=2, **more)


def queries(people):
    vectors = people.vectors(["age", "fee"]).clip(norm=50)
    result = {
        "n": people.count(),
        "age": people["age"].sum(),
        "clipped": people["age"].clip(10, 30).sum(),
        "old": people.filter(people["age"] > 30).count(),
        "towns": people["town"].histogram(),
        "pairs": vectors.sum(),
        "products": vectors.times(people["fee"]).sum(),
        "gram": vectors.gram(),
    }
    result |= {f"in_{k}": part["fee"].sum() for k, part in people.partition("town")}
    whole_units = people.partition("town", whole_units=True)
    return result | {f"whole_{k}": part["fee"].sum() for k, part in whole_units}


class Quiet(dp.Mechanism):
    """Releases the query's own value."""

    norm = 2

    def release(self, value, stream):
        return value

    def loss(self, distance):
        return accountants.Pure(0.0)


def value(plan, frame):
    return np.atleast_1d(plan.simulate(seed=1, people=frame)["q"]).astype(float)


def without(frame, unit):
    keep = [i for i, u in enumerate(frame["id"]) if u != unit]
    return {name: [column[i] for i in keep] for name, column in frame.items()}


UNITS = ["ann", "bob", "cat", "dan", "eve"]


@pytest.mark.parametrize("name", queries(declared()))
def test_each_unit_is_charged_for_what_it_moves(name):
    """Both noises, against leaving the unit out of the data; never above the certificate."""
    query = queries(declared())[name]
    exact = dp.Pipeline(q=query.release(Quiet()))
    changes = [(value(exact, FRAME) - value(exact, without(FRAME, u))).ravel() for u in UNITS]
    if name == "gram":  # present() unpacks the triangle: its l2 norm is Frobenius'
        lengths = {2: [float(np.linalg.norm(m)) for m in changes]}
    else:
        lengths = {p: [float(np.linalg.norm(m, p)) for m in changes] for p in (1, 2)}
    for norm, own in lengths.items():
        noise = dp.Laplace(scale=40.0) if norm == 1 else dp.Gaussian(sigma=40.0)
        plan = dp.Pipeline(q=query.release(noise)).with_delta(1e-6 if norm == 2 else 0.0)
        result = per_instance(plan, people=FRAME).reveal()
        truth = np.array(own) / 40.0
        if norm == 2:
            truth = gaussian_epsilons(truth, 1e-6)
        assert (result >= truth * (1 - 1e-9)).all()
        # second moments leave room for the rounding of their totals
        assert result == pytest.approx(truth, rel=0.2 if name == "gram" else 1e-5, abs=1e-12)
        assert result.max() <= plan.certify().epsilon * (1 + 1e-9)
        assert len(result) == 5


def test_a_unit_pays_for_the_parts_it_is_in():
    people = declared()
    parts = people.partition("town")
    plan = dp.Pipeline(
        **{k: part.count().release(dp.Laplace(scale=1.0 + i)) for i, (k, part) in enumerate(parts)}
    )
    result = per_instance(plan, people=FRAME).reveal()
    # ann: twice in a; bob: twice in b (a third row is past the bound); eve is in none
    assert result == pytest.approx([2.0, 2 / 2, 1.0, 1 / 3, 0.0], rel=1e-12)
    assert result[4] == 0


def test_gaussians_compose_exactly_and_mixtures_soundly():
    people = dp.dataset("people", columns={"x": (0, 1)})
    frame = {"x": np.array([0.0, 0.5, 1.0])}
    total = people["x"].sum()
    plan = dp.Pipeline(a=total.release(dp.Gaussian(sigma=2)), b=total.release(dp.Gaussian(sigma=3)))
    result = per_instance(plan.with_delta(1e-5), people=frame).reveal()
    mus = np.array([0, 0.5, 1.0]) * math.hypot(1 / 2, 1 / 3)
    assert result == pytest.approx(gaussian_epsilons(mus, 1e-5), rel=1e-5)
    # Laplace beside Gaussian: above the distribution of the very composition, below the sums
    many = {f"l{i}": total.release(dp.Laplace(scale=4)) for i in range(20)}
    mixed = dp.Pipeline(g=total.release(dp.Gaussian(sigma=2)), **many).with_delta(1e-5)
    result = per_instance(mixed, people=frame).reveal()
    assert result[0] == 0
    assert result[2] <= mixed.certify().epsilon
    for i, own in ((1, 0.5), (2, 1.0)):
        spends = [accountants.Spend(accountants.Gaussian(mu=own / 2), "g")]
        spends += [accountants.Spend(accountants.Laplace(own / 4), f"l{j}") for j in range(20)]
        term = accountants.Sequential(spends)
        truth = accountants.measure(term, accountants.Distribution(), delta=1e-5).bounds
        assert truth.lower * (1 - 1e-9) <= result[i] <= 1.2 * truth.upper
        assert result[i] < 0.9 * (20 * own / 4 + float(gaussian_epsilons(own / 2, 1e-5)))


@pytest.mark.parametrize("mechanism", [dp.Gaussian(sigma=2.0**40), dp.Laplace(scale=2.0**40)])
def test_what_the_noises_rounding_moves_is_charged(mechanism):
    """Noise on a step of 2^14 rounds a count of one away, or up to one step."""
    people = dp.dataset("people", columns={})
    plan = dp.Pipeline(n=people.count().release(mechanism)).with_delta(1e-12)
    if isinstance(mechanism, dp.Laplace):
        plan = plan.with_delta(0.0)
    (result,) = per_instance(plan, people={"x": [1.0]}).reveal()
    assert result > 100 / 2.0**40 or isinstance(mechanism, dp.Gaussian)
    assert result == pytest.approx(plan.certify().epsilon, rel=1e-9)


def test_post_processing_changes_nothing():
    people = dp.dataset("people", columns={"x": (0, 1)})
    total = people["x"].sum().release(dp.Laplace(scale=2))
    plain = dp.Pipeline(t=total)
    more = dp.Pipeline(t=total, half=dp.post(lambda t: t / 2, total))
    frame = {"x": [0.25, 1.0]}
    result = [per_instance(plan, people=frame).reveal().tolist() for plan in (plain, more)]
    assert result[0] == result[1] == pytest.approx([0.125, 0.5])


def test_a_plan_without_units():
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    assert per_instance(plan, people={"x": []}).reveal().shape == (0,)


def refused():
    people = dp.dataset("people", columns={"x": (0, 1)})
    other = dp.dataset("others", columns={"x": (0, 1)}, neighbors="replace_one")
    noise, total = dp.Laplace(scale=1), people["x"].sum()
    first = total.release(noise)
    yield "replace_one", dp.Pipeline(q=other.count().release(noise))
    yield "mean", dp.Pipeline(q=people["x"].mean().release(noise))
    yield (
        "smallest_eigenvalue",
        dp.Pipeline(q=people.vectors(["x"]).smallest_eigenvalue().release(noise)),
    )
    yield "sample", dp.Pipeline(q=people.sample(0.5).count().release(noise))
    yield (
        "filter",
        dp.Pipeline(a=first, q=people.filter(people["x"] > first).count().release(noise)),
    )
    yield "Quiet", dp.Pipeline(q=total.release(Quiet()))
    yield r"plan\.calibrate", dp.Pipeline(q=total.release(dp.Laplace(scale=dp.Free("b"))))

    def step(state, total):
        return total.release(noise)

    yield "repeat", dp.Pipeline(q=dp.repeat(step, 3, total, start=0.0))


@pytest.mark.parametrize(("word", "plan"), list(refused()))
def test_what_has_no_instance_loss_here_is_refused_by_name(word, plan):
    name = "others" if word == "replace_one" else "people"
    with pytest.raises(dp.DeclarationError, match=word):
        per_instance(plan, **{name: {"x": [0.5]}})


def test_errors_tell_nothing_of_the_data():
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan = dp.Pipeline(q=people["x"].sum().release(dp.Laplace(scale=1)))
    with pytest.raises(dp.DataError, match="per_instance"):
        per_instance(plan, persons={"x": [0.5]})
    with pytest.raises(dp.DataError, match="'x'") as caught:
        per_instance(plan, people={"y": [0.123456]})
    assert "0.123456" not in str(caught.value)

    class Odd:
        def open_rows(self, columns, unit):
            raise ValueError("0.123456")

    with pytest.raises(dp.PlanError) as hidden:
        per_instance(plan, people=Odd())
    assert "0.123456" not in str(hidden.value)
    assert hidden.value.__cause__ is None
    assert hidden.value.__context__ is None
