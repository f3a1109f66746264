"""`dp.suitable`: what it names can be released, what it leaves out cannot."""

from __future__ import annotations

import functools
import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from plans import PLANS, jump, largest
from test_sensitivity import QUERIES
from test_sensitivity import table as bounded

import adaptive_dp as dp
from adaptive_dp import mechanisms as primitives
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.mechanisms import advice as advice_module
from adaptive_dp.mechanisms.additive import ball_noise
from adaptive_dp.mechanisms.advice import KEYS, PURE, SCORES, TABLE, Row
from adaptive_dp.noise.stream import SeededStream

DOCS = Path(__file__).parent.parent / "docs"
VALUES: dict[str, Any] = {
    **{"scale": 50.0, "sigma": 50.0, "threshold_sigma": 50.0, "query_sigma": 60.0},
    **{"epsilon": 0.5, "delta": 1e-7, "failure": 1e-7, "reach": 1e4},
    **{"slope": 0.1, "bound": 2.0, "threshold": 3.0, "queries": 100, "keys": 3, "k": 2},
    **{"lower": -1e6, "upper": 1e6},
}


NEIGHBORS = (("add_remove", None), ("replace_one", 2), ("zero_out", 1))


def people() -> dp.Table:
    columns = {"x": (-5, 10), "y": (0, 3), "region": ["A", "B", "C"], "town": str}
    return dp.dataset("people", columns=columns, neighbors="replace_one")


def following() -> dict[str, PrivateQuery[Any]]:
    """Queries whose mechanisms follow the data."""
    x = people()["x"]
    filled = x.fill(0)
    return {
        "median": x.median(),
        "quantile": x.quantile(0.1),
        "trimmed mean": filled.trimmed_mean(0.1),
        "variance": filled.local_variance(),
        "own": filled.instance(largest, jump, range=(-5, 10)),
        "mode": people()["region"].mode(),
    }


def gallery() -> dict[str, PrivateQuery[Any]]:
    """Every query of the tests' plans, and of the tests of sensitivities."""
    handles: dict[str, PrivateQuery[Any]] = dict(following())
    for name, make in PLANS.items():
        for node in make().structure:
            for handle in node.handle.inputs:
                if isinstance(handle, PrivateQuery):
                    handles[f"{name}: {len(handles)}"] = handle
    for (name, entry), (relation, unit) in itertools.product(QUERIES.items(), NEIGHBORS):
        handles[f"{name}, {relation}, {unit}"] = entry[0](bounded(relation, unit))
    return handles


def made(row: Row) -> dp.Mechanism:
    """A mechanism with a value for every required parameter."""
    required = [f.name for f in row.mechanism.__attrs_attrs__ if f.name in VALUES]  # type: ignore[attr-defined]
    return row.mechanism(**{name: VALUES[name] for name in required})


def names(query: Any, **more: Any) -> list[str]:
    return [advice.mechanism.__name__ for advice in dp.suitable(query, **more)]


def senseless(row: Row, query: PrivateQuery[Any]) -> bool:
    """A choice of one candidate, and a bound of a vector: allowed, but of no use."""
    size = query.operation.dimension(query.inputs[0].domain)  # type: ignore[attr-defined]
    plain = row.mechanism.input_type is np.ndarray
    bound = row.mechanism in (dp.LowerBound, dp.UpperBound)
    return plain and ((row.mechanism.is_selection and size == 1) or (bound and size > 1))


def test_the_table_has_every_mechanism_once() -> None:
    assert sorted(row.mechanism.__name__ for row in TABLE) == sorted(primitives.__all__)
    assert all(row.theorem and not row.mechanism.released_inputs for row in TABLE)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are compared on few releases, where their order is not asked about."""
    monkeypatch.setattr(advice_module, "DRAWS", 3)


@pytest.mark.usefixtures("few")
def test_what_is_named_can_be_released_and_nothing_else() -> None:
    queries = gallery()
    seen: set[type] = set()
    assert len(queries) > 300
    for name, query in queries.items():
        own = [each for each in dp.suitable(query, delta=1e-6, rows=20) if each.query is query]
        listed = {advice.mechanism for advice in own}
        gives = query.operation.output_type  # type: ignore[attr-defined]
        bases = {row.mechanism.input_type for row in TABLE} - {np.ndarray}
        learner = gives is not np.ndarray and not issubclass(gives, tuple(bases))
        assert bool(listed) != learner, name
        released = {}
        for row in TABLE:
            if row.mechanism in listed:
                released[row.mechanism.__name__] = query.release(made(row))
            elif not senseless(row, query):
                with pytest.raises(dp.DeclarationError, match=r"reads|norm"):
                    assert dp.Pipeline(value=query.release(made(row))).term
        loops = ("loops", "learning", "statistics", "clusters", "tuned", "margins", "synthetic")
        if released and not name.startswith(loops) and not query.states:
            assert dp.Pipeline(**released).term is not None
        seen |= listed
    assert seen == {row.mechanism for row in TABLE}


@functools.cache
def all_kinds() -> list[tuple[PrivateQuery[Any], list[str]]]:
    """Queries of all kinds, with the mechanisms that are named for each at a delta."""
    table = people()
    queries = [*following().values(), table["x"].sum(), table["region"].histogram()]
    queries.append(table.group_by("town").count())
    return [(query, names(query, delta=1e-6)) for query in queries]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.mechanism.__name__)
def test_what_needs_a_delta_has_no_epsilon_without_one(row: Row) -> None:
    for query, named in all_kinds():
        if row.mechanism.__name__ in named:
            if query.operation.output_type is dp.Choice and row.family is SCORES:  # type: ignore[attr-defined]
                continue  # of its histogram, which is here too
            plan = dp.Pipeline(value=query.release(made(row)))
            assert plan.certify(1e-6).epsilon < math.inf
            pure = plan.certify(0.0).epsilon < math.inf
            assert pure == (row.promises == PURE)
            if row.family is KEYS:  # none is for it at delta 0
                with pytest.raises(dp.DeclarationError, match="delta"):
                    names(query)
            else:
                assert pure == (row.mechanism.__name__ in names(query))
            data = {"x": [0.0, 1.0, 2.0], "y": [1.0] * 3, "region": ["A", "B", "A"]}
            data["town"] = ["C", "C", "D"]
            plan.with_delta(1e-6).simulate(seed=1, people=data)
            return
    raise AssertionError("no query of the test is for it")


SEED = {
    "Smooth sensitivity": ("numerical", "not of high dimension", "smooth upper bound"),
    "Inverse sensitivity": ("numerical", "path length", "what few changed rows can reach"),
    "Distance to instability": (
        "arbitrary",
        "local sensitivity of 0 in a neighbourhood",
        "distance to instability",
    ),
    "Propose-test-release": (
        "numerical",
        "good guess of a stable bound of the local sensitivity",
        "distance to data of a larger local sensitivity",
    ),
    "Privately bounding the local sensitivity": (
        "numerical",
        "queries",
        "bound, and to release privately",
    ),
}
"""The methods with their two columns: what they apply to, and what must be efficient."""


def test_the_table_of_methods_is_in_it() -> None:
    following = [
        row for row in TABLE if row.mechanism.input_type in (dp.LocalSensitivity, dp.Choice)
    ]
    assert {row.family.name for row in following} == set(SEED)
    for row in following:
        kind, rest, efficient = SEED[row.family.name]
        assert row.family.applies.startswith(f"{kind} queries")
        assert rest in row.family.applies
        assert efficient in row.family.efficient
        assert "quick" in row.family.efficient
        assert (row.mechanism.input_type is dp.LocalSensitivity) == (kind == "numerical")


@pytest.mark.usefixtures("few")
def test_the_first_choice() -> None:
    query, table = following(), people()
    choices = ["PermuteAndFlip", "Exponential", "NoisyMax", "NoisyMaxWithGap", "TopK", "JointTopK"]
    assert names(query["mode"], delta=1e-6) == ["DistanceToInstability", *choices]
    assert names(query["mode"]) == choices
    assert names(query["own"], delta=1e-6, knows=["slope"])[0] == "ReleasedSensitivity"
    assert names(query["own"], delta=1e-6, knows="bound")[0] == "ProposeTestRelease"
    assert names(query["own"], delta=1e-6)[-2:] == ["ReleasedSensitivity", "ProposeTestRelease"]
    assert names(query["median"])[0] == "QuantileExponential"
    assert names(table.count())[0] == "DiscreteLaplace"
    assert names(table["x"].sum(), delta=1e-6)[0] == "Laplace"
    assert names(table["x"].sum(), knows=["threshold"])[0] == "SparseVector"
    several = table.counts([table["x"] >= i for i in range(40)])
    assert names(several, delta=1e-6)[0] == "DiscreteGaussian"
    chosen = [n for n in names(several) if getattr(dp, n).is_selection]
    assert chosen == choices


@pytest.mark.parametrize("name", ["median", "quantile", "own"])
def test_those_that_follow_the_data_stand_by_their_error(name: str) -> None:
    """Against errors of releases of our own, other draws on the same public data."""
    x = np.random.default_rng(3).normal(2, 2, 301).clip(-5, 10)
    data = {"x": x, "y": x, "region": ["A"] * 301, "town": ["t"] * 301}
    query, ordered = following()[name], np.sort(x)
    true = {"median": ordered[150], "quantile": ordered[30], "own": ordered[-1]}[name]
    errors = []
    for each in dp.suitable(query, delta=1e-6, people=data):
        if each.row.required_parameters:
            continue
        budgets = {"SmoothLaplace": {"epsilon": 1.0, "delta": 1e-6}, "QuantileExponential": {}}
        budgets["InverseSensitivity"] = {}
        budget = budgets.get(each.mechanism.__name__, {"epsilon": 1.0})
        mechanism = each.mechanism(**budget)
        plan = dp.Pipeline(**{f"v{i}": query.release(mechanism) for i in range(150)})
        if plan.free:
            one = dp.Pipeline(v=query.release(mechanism)).calibrate(1.0, 1e-6)
            plan = dp.Pipeline(
                **{f"v{i}": query.release(one.structure.releases[0].mechanism) for i in range(150)}
            )
        values = plan.with_delta(1e-6).simulate(seed=9, people=data).values()
        errors.append(float(np.quantile(np.abs(np.array(list(values)) - true), 0.9)))
    assert len(errors) == (5 if name == "own" else 6)
    # of 150 draws nine of ten are known to a quarter or so
    assert all(a < 1.5 * b for a, b in itertools.pairwise(errors)), errors
    assert errors[0] < 0.7 * errors[-1]


def test_a_query_that_waits_for_a_release_is_advised_by_the_table() -> None:
    table = people()
    limit = table["y"].sum().release(dp.Laplace(10.0))
    above = table.filter(table["x"] < limit)["x"].fill(0).instance(largest, jump, range=(-5, 10))
    assert {"SmoothCauchy", "SmoothStudent"} <= set(names(above))


def test_the_size_of_noise_is_that_of_a_calibrated_plan() -> None:
    """Gaussian noise is a little below its classical calibration, Laplace noise exact."""
    table = people()
    query, epsilon, delta = table.counts([table["x"] >= i for i in range(3)]), 0.5, 1e-6
    advised = {a.mechanism: float(re.findall(r"about ([\d.e+]+)/", a.why)[0])
            for a in dp.suitable(query, delta=delta) if a.row.factor}  # fmt: skip
    for mechanism, least in ((dp.Laplace, 0.999), (dp.Gaussian, 0.75)):
        plan = dp.Pipeline(v=query.release(mechanism(dp.Free("s")))).calibrate(epsilon, delta)
        (spent,) = [
            n.handle.operation for n in plan.structure if n.handle.operation.kind == "release"
        ]
        assert least < spent.mechanism.deviation() * epsilon / advised[mechanism] < 1.01  # type: ignore[attr-defined]
    draws = np.array([ball_noise(SeededStream(i), 2, 3) for i in range(4000)])
    sensitivity = math.sqrt(3)  # three counts, each by at most 1
    # the mean square of 12000 numbers is within 8 of its standard deviations
    assert math.sqrt((draws**2).mean()) * sensitivity == pytest.approx(advised[dp.Norm], rel=0.1)


@frozen
class Wide(dp.Query):
    """A number that one unit may move without bound."""

    kind = "wide"

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return math.inf


def test_what_cannot_be_said() -> None:
    table = people()
    assert dp.suitable(PrivateQuery(Wide(), (table.count().inputs[0],)), delta=1e-6) == []
    with pytest.raises(dp.DeclarationError, match=r"people\.count\(\)"):
        dp.suitable(table.count().release(dp.Laplace(1.0)))  # type: ignore[arg-type]
    with pytest.raises(dp.DeclarationError, match="got a ndarray"):  # not what is in it
        dp.suitable(np.array([7.0]))  # type: ignore[arg-type]
    with pytest.raises(dp.DeclarationError):
        dp.suitable(table.count(), knows=["sigma"])
    with pytest.raises(dp.DeclarationError, match="delta"):
        dp.suitable(table.count(), delta=1.0)


def test_it_can_be_called_in_the_body_of_a_loop() -> None:
    table, offered = people(), []

    def body(limit: dp.Released[Any]) -> dp.Released[Any]:
        below = table.filter(table["x"] <= limit).count()
        offered.append(names(below)[0])
        return below.release(dp.Laplace(scale=9.0))

    dp.repeat(body, 2, start=0.0)
    assert set(offered) == {"DiscreteLaplace"}


@pytest.mark.parametrize("size", [3, 40])
def test_of_two_noises_the_smaller_comes_first(size: int) -> None:
    """Where they differ: Laplace noise grows with d, Gaussian noise with its root."""
    table = people()
    query, sizes = table.counts([table["x"] >= i for i in range(size)]), {}
    for mechanism in (dp.Laplace, dp.Gaussian):
        plan = dp.Pipeline(v=query.release(mechanism(dp.Free("s")))).calibrate(0.5, 1e-6)
        ((_, handle),) = plan.outputs
        sizes[mechanism.__name__] = handle.operation.mechanism.deviation()  # type: ignore[attr-defined]
    order = [name for name in names(query, delta=1e-6) if name in sizes]
    assert order == sorted(sizes, key=sizes.__getitem__)


def lines(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


@pytest.mark.parametrize("page", ["mechanisms.md", "instance.md"])
def test_the_pages_show_the_table(page: str) -> None:
    """Each page has both tables, of all rows or of those that follow the data."""
    rows = [r for r in TABLE if page == "mechanisms.md" or r.mechanism.norm == 0]
    families = dict.fromkeys(row.family for row in rows)
    first = lines([[f.name, f.applies, f.efficient] for f in families])
    second = lines(
        [
            [f"`{r.mechanism.__name__}`", r.family.name, r.promises,
             ", ".join(f"`{n}`" for n in r.required_parameters) or "-", r.strength, r.drawback]
            for r in rows
        ]
    )  # fmt: skip
    text = (DOCS / page).read_text(encoding="utf-8")
    for expected in (first, second):
        assert f"---|\n{expected}\n\n" in text, expected


def test_what_is_released_already_or_needs_a_delta_says_so() -> None:
    table = dp.dataset("t", columns={"age": (0, 100), "word": str})
    for released in (table["age"].average(), table["age"].quantiles([0.5])):
        with pytest.raises(dp.DeclarationError, match="a release already"):
            dp.suitable(released)
    words = table.group_by("word").count()
    with pytest.raises(dp.DeclarationError, match="ThresholdLaplace"):
        dp.suitable(words)
    assert dp.suitable(words, delta=1e-6)
