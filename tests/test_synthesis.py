"""Synthetic data: what rounds ask of rows, what the model makes of it, what all of it costs."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.cli.main import main
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import Private, PrivateQuery, change_at, public
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.domains import ColumnValues
from adaptive_dp.synthesis import Synthesizer, Synthetic, synthesizer
from adaptive_dp.synthesis.marginals import (
    CellOf,
    ChosenTable,
    Marginals,
    MarginalsOf,
    OneWayTables,
    TableCounts,
    TableErrors,
)
from adaptive_dp.synthesis.model import Model, nearest_counts, residual
from adaptive_dp.synthesis.rows import (
    cell_index,
    cell_steps,
    moved,
    rounded,
    sampled_codes,
    tree_codes,
)
from adaptive_dp.synthesis.synthesizer import initial_state, round_inputs, updated_state
from adaptive_dp.synthesis.workload import (
    Axis,
    document_of,
    layout,
    layout_of,
    subsets,
    tables_of,
    taken,
)

STREAM = SeededStream(0)
COLUMNS = {"a": ["x", "y"], "b": ["u", "v"], "n": (0.0, 10.0)}
EDGES = [None, None, (0.0, 2.0, 10.0)]
WANTED = ((0, 1), (1, 2))


def declared(relation: str = "add_remove", rows: int | None = None) -> dp.Table:
    unit: dict[str, Any] = {} if rows is None else {"unit": "id", "rows_per_unit": rows}
    return dp.dataset("t", columns=COLUMNS, neighbors=relation, **unit)


def operation(table: dp.Table, missing: bool = True, outside: bool = False) -> MarginalsOf:
    names = list(COLUMNS)
    columns = {name: table.domain.find(name) for name in names}
    wanted, weights = (WANTED, (1.0, 3.0))
    if outside:  # a pair that is not wanted, and may be chosen
        wanted, weights = (*WANTED, (0, 2)), (1.0, 3.0, 0.0)
    return MarginalsOf(names, columns, EDGES, [missing] * 3, wanted, weights, [None] * 3)


def marginals(rows: list[tuple[Any, ...]], outside: bool = False) -> Any:
    """The private tables of rows (a, b, n)."""
    table = dp.dataset("t", columns=COLUMNS)
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    bound = table.operation.bind({name: list(v) for name, v in zip(COLUMNS, columns, strict=True)})
    return operation(table, outside=outside).run([bound], STREAM)


class TestTables:
    def test_counts_are_those_of_a_plain_loop(self) -> None:
        rng = np.random.default_rng(1)
        values = ["x", "y", "z", None], ["u", "v"], [-5.0, 0.0, 1.9, 2.0, 10.0, 99.0, math.nan]
        rows = [tuple(v[rng.integers(len(v))] for v in values) for _ in range(5_000)]
        found = marginals(rows)
        cell = {
            0: lambda v: {"x": 0, "y": 1}.get(v, 2),
            1: lambda v: {"u": 0, "v": 1}[v],
            2: lambda v: 2 if math.isnan(v) else int(v >= 2.0),
        }
        assert found.layout.tables == ((0,), (1,), (2,), (0, 1), (1, 2))
        for i, table in enumerate(found.layout.tables):
            wanted = np.zeros((3, 3, 3))
            for row in rows:
                wanted[tuple(cell[k](row[k]) for k in range(3))] += 1
            drop = tuple(k for k in range(3) if k not in table)
            assert np.array_equal(found.layout.part(found.counts, i), wanted.sum(axis=drop))

    def test_tables_of_four_columns_are_sums_of_the_joint_table(self) -> None:
        draw = np.random.default_rng(2)
        sizes, codes = (2, 3, 2, 4), draw.integers(-1, 2, size=(500, 4))
        axes = tuple(
            CellOf(ColumnValues(f"c{i}"), Axis(f"c{i}", tuple(range(size)), None, False))
            for i, size in enumerate(sizes)
        )
        found = layout(sizes, ((0, 1, 2, 3), (0, 2, 3)), (1.0, 1.0))
        counts = TableCounts(axes, found)({f"c{i}": codes[:, i] for i in range(4)})
        for i, table in enumerate(found.tables):
            own = codes[:, list(table)]
            wanted = np.zeros([sizes[k] for k in table])
            np.add.at(wanted, tuple(own[(own >= 0).all(axis=1)].T), 1)
            assert np.array_equal(found.part(counts, i), wanted)

    def test_errors_are_the_same_in_pieces(self, monkeypatch: Any) -> None:
        found = marginals([("x", "u", 1.0)] * 9 + [("y", "v", 5.0)])
        released = {"answers": np.arange(20.0)[:17], "penalty": 0.3, "closed": [1]}
        whole = TableErrors().run([found, released], STREAM)
        monkeypatch.setattr("adaptive_dp.synthesis.marginals.AT_ONCE", 4)
        assert [each.stop - each.start for each in found.layout.pieces(4)] == [1, 1, 1, 1, 1]
        assert [each.stop - each.start for each in found.layout.pieces(9)] == [3, 1, 1]
        assert np.array_equal(TableErrors().run([found, released], STREAM), whole)

    def test_a_complete_column_has_no_cell_for_what_is_missing(self) -> None:
        table = dp.dataset("t", columns=COLUMNS).fill(a="x", b="u", n=0)
        sizes = [each.size for each in operation(table, missing=False).axes]
        assert sizes == [2, 2, 2]

    def test_nothing_private_is_shown(self) -> None:
        assert repr(marginals([("x", "u", 1.0)])) == "<private tables>"


UNIVERSE = [("x", "u", 1.0), ("y", "v", 5.0), ("x", "v", math.nan), (None, "u", 5.0)]
OTHERS = [[], [("x", "u", 1.0)], [("x", "v", 5.0), ("y", "v", 5.0)]]
RELEASED = [
    {"answers": np.zeros(99), "penalty": 0.0, "closed": []},
    {"answers": np.full(99, 1e9), "penalty": 3.3, "closed": [2]},
    {"answers": [0.7, 0.3, math.nan, math.inf, -2.0], "penalty": math.nan, "closed": [99, -1]},
    # above the counts in some cells, below in others: here what is claimed is attained
    {"answers": np.random.default_rng(1).choice([-9.0, 9.0], 36), "penalty": -1.0, "closed": []},
]


def worlds(relation: str, rows: int) -> list[tuple[list[Any], list[Any]]]:
    """All pairs of neighbouring data sets of a few others and a unit of up to so many rows."""
    units = [
        list(unit)
        for k in range(rows + 1)
        for unit in itertools.combinations_with_replacement(UNIVERSE, k)
    ]
    pairs = []
    for others in OTHERS:
        for first in units:
            for second in [[]] if relation == "add_remove" else units:
                pairs.append((others + first, others + second))
    return pairs


@pytest.mark.parametrize(
    ("relation", "rows"), [("add_remove", 2), ("replace_one", 1), ("replace_one", 2)]
)
def test_no_pair_of_neighbours_moves_a_query_by_more_than_it_says(relation: str, rows: int) -> None:
    table = declared(relation, None if rows == 1 else rows)
    handle: Any = Private(operation(table, outside=True), (table,))
    change, domain = change_at(table), handle.domain
    assert change.rows == rows
    assert domain.layout.outside == [(0, 2)]
    known: dict[tuple[str, int], Any] = {}

    def value(rows: list[Any], place: int) -> Any:
        key = repr(rows), place
        if key not in known:
            tables = marginals(rows, outside=True)
            for i, (query, released) in enumerate(queries):
                inputs = [] if released is None else [released]
                known[key[0], i] = query.run([tables, *inputs], STREAM)
        return known[key]

    queries: list[Any] = [
        (OneWayTables(), None),
        *[(ChosenTable(), v) for v in (0, 4, math.nan, 1e9, -3)],
    ]
    queries += [(TableErrors(), each) for each in RELEASED]
    largest: dict[tuple[str, float], float] = {}
    for first, second in worlds(relation, rows):
        for i, (query, _) in enumerate(queries):
            moved = value(first, i) - value(second, i)
            for norm in (1.0, 2.0, math.inf):
                size = float(np.linalg.norm(moved, norm))
                assert size <= query.sensitivity(domain, change, norm)
                key = type(query).__name__, norm
                largest[key] = max(largest.get(key, 0.0), size)
            if isinstance(query, TableErrors):
                apart = float(moved.max() - moved.min())
                assert apart <= query.span(domain, change)
                largest["span", 0] = max(largest.get(("span", 0), 0.0), apart)
    # what is claimed is attained, but for norms of scores that cannot all move at once
    for query in (OneWayTables(), ChosenTable()):
        for norm in (1.0, 2.0, math.inf):
            claimed = query.sensitivity(domain, change, norm)
            assert largest[type(query).__name__, norm] == pytest.approx(claimed)
    claimed = TableErrors().sensitivity(domain, change, math.inf)
    assert largest["TableErrors", math.inf] == pytest.approx(claimed)
    assert largest["span", 0] == pytest.approx(TableErrors().span(domain, change))


def test_scores_are_exact_and_those_of_the_formula() -> None:
    rows = [("x", "u", 1.0)] * 40 + [("y", "v", 5.0)] * 7
    found = marginals(rows)
    answers = np.random.default_rng(1).uniform(-3, 30, len(found.counts))
    scores = TableErrors().run([found, {"answers": answers, "penalty": 0.7, "closed": [1]}], STREAM)
    weights = found.layout.steps / 2**8
    for i in (0, 2, 3, 4):
        gap = np.abs(found.layout.part(found.counts, i) - found.layout.part(answers, i)).sum()
        wanted = weights[i] * (gap - 0.7 * found.layout.cells[i])
        assert scores[i] == pytest.approx(wanted, abs=0.1)
    assert scores[1] == scores.min() < -1e9
    assert np.array_equal(scores * 2**16, np.rint(scores * 2**16))


def test_weights_are_the_columns_shared_with_the_workload() -> None:
    found = layout((2, 2, 2), ((0, 1), (1, 2)), (1.0, 3.0))
    # overlaps of (0,), (1,), (2,), (0, 1), (1, 2): 1, 4, 3, 2 + 3, 1 + 6; and fourth roots
    wanted = (np.array([1, 4, 3, 5, 7]) / 7) ** 0.25
    assert found.steps / 2**8 == pytest.approx(wanted, abs=2**-9)


class TestModel:
    def test_exact_readings_of_all_parts_give_the_table_back(self) -> None:
        rng = np.random.default_rng(1)
        counts = rng.uniform(0, 9, (3, 2, 4))
        model = Model([3, 2, 4])
        model.read((0, 1, 2), counts, 1.0)
        assert np.allclose(model.estimate((0, 1, 2)), counts)
        assert np.allclose(model.estimate((0, 2)), counts.sum(axis=1))
        assert model.deviation((0, 1, 2)) == pytest.approx(1.0)
        assert model.deviation((0, 2)) == pytest.approx(math.sqrt(2))
        assert model.deviation(()) == pytest.approx(math.sqrt(24))

    def test_readings_are_combined_as_by_generalised_least_squares(self) -> None:
        """Against the normal equations of all cells of the joint table, pseudo-inverted."""
        rng = np.random.default_rng(2)
        sizes, readings = [2, 3, 2], [((0, 1), 2.0), ((1, 2), 0.5), ((1,), 1.0), ((0, 1), 1.0)]
        joint = rng.uniform(0, 9, sizes)
        model = Model(sizes)
        rows, values, weights = [], [], []
        for table, sigma in readings:
            drop = tuple(i for i in range(3) if i not in table)
            noisy = joint.sum(axis=drop) + sigma * rng.normal(size=joint.sum(axis=drop).shape)
            model.read(table, noisy, sigma)
            for cell in np.ndindex(*noisy.shape):
                one = np.zeros(sizes)
                place: list[Any] = [slice(None)] * 3
                for axis, i in zip(table, cell, strict=True):
                    place[axis] = i
                one[tuple(place)] = 1
                rows.append(one.ravel() / sigma)
                values.append(noisy[cell] / sigma)
                weights.append(sigma)
        solution, *_ = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)
        covariance = np.linalg.pinv(np.array(rows).T @ np.array(rows))
        for table, drop in (((0, 1), 2), ((1, 2), 0)):
            assert np.allclose(model.estimate(table), solution.reshape(sizes).sum(axis=drop))
            one = np.zeros(sizes)
            one[(0, 0, slice(None)) if drop == 2 else (slice(None), 0, 0)] = 1
            variance = one.ravel() @ covariance @ one.ravel()
            assert model.deviation(table) == pytest.approx(math.sqrt(variance))

    def test_residuals_sum_to_nothing_along_each_axis(self) -> None:
        counts = np.random.default_rng(3).uniform(size=(2, 3, 4))
        found = residual(counts, [0, 2])
        assert np.allclose(found.sum(axis=0), 0)
        assert np.allclose(found.sum(axis=1), 0)
        assert residual(counts, []) == pytest.approx(counts.sum())

    def test_the_nearest_counts_are_those_of_a_solver(self) -> None:
        from scipy.optimize import minimize

        values = np.array([3.0, -2.0, 0.5, 1.0])
        found = nearest_counts(values, 2.0)
        wanted = minimize(
            lambda x: ((x - values) ** 2).sum(),
            np.full(4, 0.5),
            bounds=[(0, None)] * 4,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 2},
        ).x
        assert found == pytest.approx(wanted, abs=1e-4)

    def test_the_tree_is_the_joint_law_summed(self) -> None:
        """On a tree of five columns every table of up to three is that of the whole product."""
        rng = np.random.default_rng(4)
        sizes, edges = [2, 3, 2, 3, 2], [(0, 1), (1, 2), (1, 3), (3, 4)]
        joint = np.ones(sizes)
        for a, b in edges:
            shape = [sizes[i] if i in (a, b) else 1 for i in range(5)]
            joint = joint * rng.uniform(0.1, 1, shape)
        joint = joint / joint.sum() * 1000
        model = Model(sizes)
        for i, j in edges:
            drop = tuple(k for k in range(5) if k not in (i, j))
            model.read((i, j), joint.sum(axis=drop), 1e-6)
        model.build_tree()
        assert sorted(model.edges) == edges
        for k in (1, 2, 3):
            for table in itertools.combinations(range(5), k):
                drop = tuple(i for i in range(5) if i not in table)
                assert np.allclose(model.answer(table), joint.sum(axis=drop), atol=1e-3)

    def test_what_is_not_read_has_the_largest_entropy(self) -> None:
        """With all pairs of three columns read, no interaction of three is left."""
        rng = np.random.default_rng(5)
        joint = rng.uniform(1, 9, (2, 2, 2))
        model = Model([2, 2, 2])
        for pair, drop in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0)):
            model.read(pair, joint.sum(axis=drop), 1e-6)
        model.build_tree()
        found = model.answer((0, 1, 2))
        for drop in range(3):
            assert np.allclose(found.sum(axis=drop), joint.sum(axis=drop), rtol=1e-3)
        logs = np.log(found)
        signs = np.array([1, -1])
        assert abs(np.einsum("abc,a,b,c", logs, signs, signs, signs)) < 1e-2

    def test_what_is_shrunk_is_by_the_formula(self) -> None:
        rng = np.random.default_rng(6)
        joint = rng.uniform(1, 9, (3, 4)) * 100
        model = Model([3, 4])
        model.read((0, 1), joint + rng.normal(0, 40, (3, 4)), 40.0)
        y = model.estimate((0, 1))
        alone = [nearest_counts(y.sum(axis=i), y.sum()) for i in (1, 0)]
        away = y - np.outer(*alone) / y.sum()
        away = away - away.mean(axis=0) - away.mean(axis=1, keepdims=True) + away.mean()
        guess = np.outer(*alone) / y.sum()
        # 6 dimensions in 12 cells: noise of half of 40^2 in each, and as much of the guess
        times = ((away**2).sum() - (2 * 3 - 2) * 40.0**2) / (guess.sum() / 2)
        kept = times * guess / (times * guess + 40.0**2 / 2)
        kept = np.maximum(kept, 1 - 9 * 40.0**2 / 2 / away**2)
        assert 0 < kept.min() < kept.max() < 0.99
        assert np.allclose(model.shrunk((0, 1)), guess + kept * away)

    def test_rows_drawn_from_the_guess_are_answered_better_than_with_one_share(self) -> None:
        """Counts vary as the guess does: most cells have few rows, and are hardly moved by noise.

        Means over 40 tables of 144 cells; beside what James and Stein's share of the whole is off.
        """
        rng, one, each = np.random.default_rng(9), 0.0, 0.0
        law = 0.6 ** np.add.outer(np.arange(12), np.arange(12))
        for _ in range(40):
            truth = rng.poisson(4_000 * law / law.sum()).astype(float)
            model = Model([12, 12])
            for column in (0, 1):
                model.read((column,), truth.sum(axis=1 - column), 0.1)
            model.read((0, 1), truth + rng.normal(0, 8, truth.shape), 8.0)
            guess = model._guess((0, 1))
            y = model.estimate((0, 1))
            away = model.means[0, 1] - residual(guess, [0, 1])
            share = max(0.0, 1 - 119 * 64 / (away**2).sum())
            one += np.abs(nearest_counts(y - (1 - share) * away, y.sum()) - truth).sum()
            each += np.abs(model.target((0, 1)) - truth).sum()
        assert each < 0.9 * one

    def test_a_reading_far_beyond_noise_is_believed_where_nothing_was_expected(self) -> None:
        truth = np.outer([9000.0, 900.0, 20.0], [9000.0, 900.0, 20.0]) / 9920
        truth[2, 2] = 400.0
        model = Model([3, 3])
        rng = np.random.default_rng(10)
        model.read((0, 1), truth + rng.normal(0, 10, (3, 3)), 10.0)
        assert abs(model.target((0, 1))[2, 2] - 400) < 60

    def test_a_table_of_no_news_is_nearer_to_the_truth(self) -> None:
        """Independent columns: the mean squared error is far below that of the counts as read.

        The two are means over 60 readings of 35 dimensions; twice is more than ten deviations.
        """
        rng, truth = np.random.default_rng(7), np.outer(np.arange(1, 9), np.arange(1, 7)) * 20.0
        read, shrunk = [], []
        for _ in range(60):
            model = Model([8, 6])
            model.read((0, 1), truth + rng.normal(0, 15, truth.shape), 15.0)
            read.append(((model.estimate((0, 1)) - truth) ** 2).sum())
            shrunk.append(((model.target((0, 1)) - truth) ** 2).sum())
        assert np.mean(shrunk) < np.mean(read) / 2


def data(n: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c = np.where(rng.random(n) < 0.8, b, rng.integers(0, 3, n))
    age = 20 * a + rng.uniform(0, 20, n)
    label = np.array(["p", "q", "r"])
    return {"a": label[a], "b": label[b], "c": label[c], "age": age}


PEOPLE = dp.dataset("people", columns={**{k: ["p", "q", "r"] for k in "abc"}, "age": (0, 60)})


class TestSynthesizer:
    @pytest.mark.parametrize("method", ["independent", "mst", "mwem", "aim"])
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    def test_the_whole_budget_is_used_and_no_more(self, method: str, relation: str) -> None:
        people = dp.dataset(
            "people", columns={k: ["p", "q", "r"] for k in "abc"}, neighbors=relation
        )
        model = dp.synthesize(people, "all 2-way", method=method, epsilon=1.0, delta=1e-6)
        certified = dp.Pipeline(model=model).certify(delta=1e-6).epsilon
        assert 0.995 < certified <= 1

    def test_units_of_several_rows_pay_for_all_of_them(self) -> None:
        sigmas = []
        for rows in (1, 4):
            people = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=rows)
            model = dp.synthesize(people, "all 2-way", epsilon=1.0, delta=1e-6)
            plan = dp.Pipeline(model=model)
            assert 0.995 < plan.certify(delta=1e-6).epsilon <= 1
            sigmas.append(
                next(
                    node.handle.operation.mechanism.sigma  # type: ignore[attr-defined]
                    for node in plan.structure
                    if node.name.endswith("columns")
                )
            )
        assert sigmas[1] == pytest.approx(4 * sigmas[0], rel=1e-3)

    def test_answers_are_near_and_nothing_costs_more_than_its_schedule(self) -> None:
        model = dp.synthesize(PEOPLE, edges={"age": [0, 20, 40, 60]}, epsilon=3.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        rows = data(20_000)
        released = plan.simulate(seed=1, people=rows)["model"]
        assert abs(released.total - 20_000) < 200
        true = np.zeros((3, 3))
        codes = [np.searchsorted(["p", "q", "r"], rows[k]) for k in "ac"]
        np.add.at(true, tuple(codes), 1)
        found = released.table(["a", "c"])
        assert found.shape == (4, 4)
        assert np.abs(found[:3, :3] - true).sum() / 2 / 20_000 < 0.03
        assert np.allclose(released.table(["c", "a"]), found.T)
        assert (released.table(["a", "b", "c"]) >= 0).all()
        assert released.labels("age") == ("[0, 20)", "[20, 40)", "[40, 60]", None)

    def test_a_plan_is_written_read_and_verified(self) -> None:
        model = dp.synthesize(PEOPLE, "all 2-way", rounds=2, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        document = plan.certify(delta=1e-6).to_json()
        assert str(dp.verify(dp.Certificate.from_json(document))).startswith("holds")
        first = plan.simulate(seed=3, people=data(500))["model"]
        second = again.simulate(seed=3, people=data(500))["model"]
        assert np.array_equal(first.table(["a", "b"]), second.table(["a", "b"]))
        copy = Synthetic(dict(first))
        assert np.array_equal(copy.table(["a", "b"]), first.table(["a", "b"]))

    def test_no_rows_at_all(self) -> None:
        model = dp.synthesize(PEOPLE, "all 2-way", rounds=2, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        empty = {"a": [], "b": [], "c": [], "age": np.zeros(0)}
        released = plan.simulate(seed=1, people=empty)["model"]
        assert np.isfinite(released.table(["a", "b", "c", "age"])).all()
        assert len(released.rows(5, seed=1)["a"]) == 5


def test_pairs_outside_of_a_workload_are_chosen_in_its_first_rounds_alone() -> None:
    """a follows b and c; no table has a and c, or b and c, together."""
    model = dp.synthesize(
        PEOPLE,
        [["a", "age"], ["b", "age"], ["c"]],
        edges={"age": [0, 20, 40, 60]},
        rounds=10,
        epsilon=9.0,
        delta=1e-6,
    )
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    found = plan.simulate(seed=1, people=data(5_000))["model"]
    asked = {(0, 3), (1, 3)}
    assert found.layout.workload[:3] == ((0, 3), (1, 3), (2,))
    outside = [
        place for place, table in enumerate(map(tuple, found["chosen"])) if table not in asked
    ]
    pairs = [place for place in outside if len(found["chosen"][place]) == 2]
    assert pairs
    assert len(found["chosen"]) == 10
    assert max(pairs) < 4  # rounds, as many as columns
    assert found.error(["a", "age"]) < 0.1


def test_bridges_are_no_larger_than_pairs_of_the_workload_and_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert synthesizer._bridges({(0, 1): 1.0, (2,): 1.0}, [3, 4, 5]) == {}
    assert synthesizer._bridges({(0, 1): 1.0, (2,): 1.0}, [3, 4, 2]) == {(0, 2): 0.0, (1, 2): 0.0}
    monkeypatch.setattr(synthesizer, "BRIDGES", 6)
    assert synthesizer._bridges({(0, 1): 1.0, (2,): 1.0}, [3, 4, 2]) == {(0, 2): 0.0}
    monkeypatch.setattr(synthesizer, "MOST_CELLS", 3 + 4 + 2 + 12 + 1)
    assert len(synthesizer._bridges({(0, 1): 1.0, (2,): 1.0}, [3, 4, 2])) == 0


def test_a_small_weight_is_no_pair_outside_of_a_workload() -> None:
    small = 2.0**-40
    workload = {("a", "b"): small, ("c", "age"): 1.0}
    model = dp.synthesize(PEOPLE, workload, rounds=1, epsilon=1.0, delta=1e-6)
    found = dp.Pipeline(model=model).with_delta(1e-6).simulate(seed=1, people=data(50))["model"]
    assert found.layout.wanted == [(0, 1), (2, 3)]
    # none has more cells than the largest pair of the workload
    assert set(found.layout.outside) == {(0, 2), (1, 2), (0, 3), (1, 3)}
    assert layout_of(document_of(found.layout)).outside == found.layout.outside
    with pytest.raises(DeclarationError, match="must be positive"):
        dp.synthesize(PEOPLE, {("a", "b"): 0.0, ("c", "age"): 1.0}, epsilon=1.0, delta=1e-6)
    with pytest.raises(DeclarationError, match="one at least positive"):
        layout((2, 2), ((0, 1),), (0.0,))


def test_no_rows_are_inside_of_their_interval() -> None:
    """The answer is a row at least, however little noise there is; none is inside too."""
    model = Synthetic(
        {
            "axes": [Axis("a", ("x", "y"), None, False).document()],
            "workload": "0",
            "weights": [],
            "means": [[[], -0.5], [[0], [0.1, -0.1]]],
            "precisions": [[[], 4.0], [[0], 8.0]],
            "edges": [],
            "impossible": [],
            "prior": None,
        }
    )
    low, high = model.summary(0.95)[1]["total"]
    assert model.total == 1.0
    assert (low, high) == (0.0, 1.0)
    for where in ({"a": "x"}, {"a": ["x", "y"]}):
        low, high = model.interval(where)
        assert low == 0.0
        assert model.count(where) <= high
        below, above = model.interval(where, given={})
        assert below <= model.share(where) <= above


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"workload": "all 9-way"}, "all 1-way"),
            ({"workload": [["a", "z"]]}, "'z'"),
            ({"workload": [["a", "a"]]}, "different columns"),
            ({"workload": []}, "a table at least"),
            ({"workload": {("a", "b"): -1}}, "positive"),
            ({"workload": 3}, "int"),
            ({"workload": [["a", "age"]], "cells": 20}, r"a, age: 68 cells.*edges="),
            ({"workload": "all 2-way", "cells": 2}, "at most 2 cells"),
            ({"edges": {"age": [0, 50]}}, "reach over"),
            ({"edges": {"a": [0, 50]}}, "no edges"),
            ({"edges": {"z": [0, 50]}}, "'z'"),
            ({"edges": {"age": [50, 0]}}, "increase"),
            ({"edges": {"age": "many"}}, "list of numbers"),
            ({"method": "gan"}, "independent, mst, mwem, aim"),
            ({"columns": ["a", "a"]}, "differ"),
            ({"columns": ["id"], "workload": "all 1-way"}, "'id'"),
        ],
    )
    def test_of_a_declaration(self, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(DeclarationError, match=words):
            dp.synthesize(PEOPLE, epsilon=1.0, delta=1e-6, **arguments)

    @pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 1e-6), (1.0, 0.0), (1.0, None)])
    def test_of_a_budget(self, epsilon: float, delta: float | None) -> None:
        with pytest.raises((DeclarationError, dp.CalibrationError), match=r"delta|epsilon"):
            dp.synthesize(PEOPLE, "all 2-way", epsilon=epsilon, delta=delta)

    def test_of_strings_that_are_not_known(self) -> None:
        people = dp.dataset("t", columns={"word": str, "a": ["x", "y"]})
        with pytest.raises(DeclarationError, match="private_keys="):
            dp.synthesize(people, [["word", "a"]], columns=["word", "a"], epsilon=1.0, delta=1e-6)

    def test_of_columns_that_are_left_out_is_said(self) -> None:
        columns = {"id": str, "word": str, "a": ["x", "y"]}
        people = dp.dataset("t", columns=columns, unit="id", rows_per_unit=2)
        with pytest.warns(UserWarning, match=r"no column 'word': neither.*private_keys="):
            dp.synthesize(people, "all 1-way")
        # no warning, which would be an error here, where the user says which are meant
        dp.synthesize(people, [["a"]])
        dp.synthesize(people, "all 1-way", columns=["a"])
        dp.synthesize(people, "all 1-way", private_keys={"word": 3})

    def test_of_a_domain_that_is_too_large_with_sizes(self) -> None:
        people = dp.dataset("t", columns={f"c{i}": list(range(20)) for i in range(60)})
        with pytest.raises(DeclarationError, match=r"34,220 tables.*cells.*fit"):
            dp.synthesize(people, "all 3-way", epsilon=1.0, delta=1e-6)

    def test_of_an_interval_that_is_not_known(self) -> None:
        model = dp.synthesize(PEOPLE, [["a", "b"]], rounds=1, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        result = plan.simulate(seed=1, people=data(100))
        with pytest.raises(NoIntervalError, match="interval"):
            raise result.intervals()["model"]
        with pytest.raises(DeclarationError, match="'c'"):
            result["model"].table(["a", "c"])

    def test_of_a_bound_of_what_could_not_be_chosen(self) -> None:
        """A tree compares pairs that would join it alone: no bound follows for a triple."""
        model = dp.synthesize(PEOPLE, method="mst", epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        found = plan.simulate(seed=1, people=data(1_000))["model"]
        with pytest.raises(NoIntervalError, match="last choice"):
            found.error(["a", "b", "c"])


def test_rounded_counts_keep_their_sum() -> None:
    draw = np.random.default_rng(1)
    for _ in range(50):
        goals = draw.dirichlet(np.full(7, 0.3))
        found = rounded(goals, 100, draw)
        assert found.sum() == 100
        assert (np.abs(found - 100 * goals) < 1 + 1e-9).all()


def test_rows_of_a_tree_have_its_pairs() -> None:
    rng = np.random.default_rng(1)
    joint = rng.dirichlet(np.ones(12)).reshape(3, 4) * 1000
    model = Model([3, 4, 2])
    model.read((0, 1), joint, 1e-6)
    model.read((2,), np.array([300.0, 700.0]), 1e-6)
    model.build_tree()
    codes = tree_codes(model, 1000, rng)
    found = np.zeros((3, 4))
    np.add.at(found, (codes[:, 0], codes[:, 1]), 1)
    assert np.abs(found - joint).max() < 2
    assert np.bincount(codes[:, 2]).tolist() == [300, 700]


def test_subsets_and_workloads() -> None:
    assert len(list(subsets((0, 1, 2)))) == 8
    found = tables_of("all 3-way", ["a", "b", "c", "d"], [2, 2, 2, 100], 100)
    assert list(found) == [(0, 1, 2)]
    found = tables_of({("b", "a"): 2.0, "c": 1.0}, ["a", "b", "c"], [2, 2, 2], 100)
    assert found == {(0, 1): 2.0, (2,): 1.0}
    for weights in ((1.0, 1.0), (1.0, 2.0)):
        both = layout((2, 3, 2), ((0, 2), (1,)), weights)
        assert layout_of(document_of(both)) is both


def test_the_change_of_a_unit_is_as_in_the_formulas() -> None:
    assert Change(True, 1, True).both == 2
    handle = PrivateQuery(ChosenTable(), (Private(operation(declared()), (declared(),)), public(0)))
    assert handle.operation.label() == "counts of the chosen table"
    assert Synthesizer().method == "aim"


def test_rows_are_near_to_every_table_that_was_read() -> None:
    """Of a triangle of pairs, which no tree has: the tree alone is far from one of them."""
    rng = np.random.default_rng(7)
    joint = rng.dirichlet(np.full(27, 0.4)).reshape(3, 3, 3) * 5000
    model = Model([3, 3, 3])
    for pair, drop in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0)):
        model.read(pair, joint.sum(axis=drop), 1e-3)
    model.build_tree()

    def gaps(codes: Any) -> list[float]:
        found = []
        for (i, j), drop in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0)):
            counts = np.zeros((3, 3))
            np.add.at(counts, (codes[:, i], codes[:, j]), 1)
            found.append(float(np.abs(counts / len(codes) - joint.sum(axis=drop) / 5000).sum() / 2))
        return found

    assert max(gaps(tree_codes(model, 2000, rng))) > 0.05
    codes = sampled_codes(model, 2000, rng)
    assert codes.shape == (2000, 3)
    assert max(gaps(codes)) < 0.01


def test_changed_values_bring_rows_nearer_and_leave_other_columns() -> None:
    """Counted anew: tables are as they should be but for what cannot be whole numbers."""
    rng = np.random.default_rng(3)
    sizes, tables = (3, 4, 2, 5), [(0, 1), (1, 2)]
    goals = [rng.multinomial(900, rng.dirichlet(np.ones(12))), np.zeros(8)]
    goals[1] = np.outer(goals[0].reshape(3, 4).sum(axis=0), [0.25, 0.75]).reshape(-1)
    rows = np.stack([rng.integers(size, size=900) for size in sizes], axis=1)

    def lacking(codes: Any) -> Any:
        parts = [cell_index(codes, table, sizes) for table in tables]
        own = [np.bincount(part, minlength=len(g)) for part, g in zip(parts, goals, strict=True)]
        return np.concatenate(goals) - np.concatenate(own)

    model = Model(sizes, impossible=[((2, 3), (np.array([1.0, 0.0]), np.eye(5)[0]))])
    rows[(rows[:, 2] == 0) & (rows[:, 3] == 0), 3] = 1
    before = np.abs(lacking(rows)).sum()
    made = rows.copy()
    for _ in range(20):
        made = moved(model, made, cell_steps(tables, sizes), lacking(made), rng)
    # changes of one value alone may end where two at once would be better
    assert np.abs(lacking(made)).sum() < 0.2 * before
    assert (made[:, 3] == rows[:, 3]).all()
    assert model.possible(made).all()


def test_values_of_rows_that_are_alike_keep_what_follows_from_a_neighbour() -> None:
    """A column that another one says exactly still does, whatever else is brought nearer."""
    rng = np.random.default_rng(4)
    rows = rng.integers(6, size=(2_000, 3))
    rows[:, 1] = rows[:, 0] // 2
    model = Model([6, 3, 6], edges=[(0, 1)])
    tables = [(0, 2), (1, 2)]
    goals = [rng.multinomial(2_000, rng.dirichlet(np.ones(size))) for size in (36, 18)]
    own = [np.bincount(cell_index(rows, table, model.sizes)) for table in tables]
    lacking = np.concatenate(goals) - np.concatenate(own)
    made = moved(model, rows.copy(), cell_steps(tables, model.sizes), lacking, rng, alike=True)
    assert (made[:, 1] == made[:, 0] // 2).all()
    after = [
        np.bincount(cell_index(made, t, model.sizes), minlength=len(g))
        for t, g in zip(tables, goals, strict=True)
    ]
    lack = np.concatenate(goals) - np.concatenate(after)
    assert np.abs(lack).sum() < 0.95 * np.abs(lacking).sum()


@pytest.mark.parametrize("method", ["aim", "independent"])
def test_rows_of_a_workload_of_many_tables_are_near_to_its_pairs(method: str) -> None:
    """Of 560 tables no row is fitted to each: pairs that were not read are nearer than by chance.

    Rows drawn from their law alone are off a pair of four cells, none of which has few rows, by
    about ``sum sqrt(2/pi p (1 - p) / n) / 2``.
    """
    names, rng = [f"c{i}" for i in range(16)], np.random.default_rng(2)
    people = dp.dataset("t", columns={name: [0, 1] for name in names})
    people = people.fill(**dict.fromkeys(names, 0))
    model = dp.synthesize(people, method=method, rounds=18, epsilon=2.0, delta=1e-6)
    rows = rng.integers(2, size=(1_000, 16))
    for i in range(1, 16):
        rows[:, i] = np.where(rng.random(1_000) < 0.4, rows[:, i - 1], rows[:, i])
    data = {name: rows[:, i] for i, name in enumerate(names)}
    found = dp.Pipeline(model=model).with_delta(1e-6).simulate(seed=1, t=data)["model"]
    made, n = found.rows(3_000, seed=1), 3_000
    off, chance = [], []
    for pair in itertools.combinations(range(16), 2):
        if found.is_measured([names[i] for i in pair]):
            continue
        a, b = (np.array(made[names[i]]) for i in pair)
        share = found.table([names[i] for i in pair]).reshape(-1) / found.total
        off.append(np.abs(np.bincount(a * 2 + b, minlength=4) / n - share).sum() / 2)
        chance.append(np.sqrt(2 / np.pi * share * (1 - share) / n).sum() / 2)
    assert len(off) > 50
    # of independent columns alone nothing was read that rows are fitted to
    assert np.mean(off) < (0.5 if method == "aim" else 1.2) * np.mean(chance)


def test_values_lie_in_their_bins_and_have_the_declared_types() -> None:
    model = dp.synthesize(
        PEOPLE, "all 2-way", edges={"age": [0, 18.5, 20, 60]}, epsilon=3, delta=1e-6
    )
    released = (
        dp.Pipeline(model=model).with_delta(1e-6).simulate(seed=1, people=data(3_000))["model"]
    )
    made = released.rows(2_000, seed=1, whole=["age"])
    assert set(made["a"]) <= {"p", "q", "r", None}
    ages = made["age"][~np.isnan(made["age"])]
    assert np.array_equal(ages, np.rint(ages))
    assert ages.min() >= 0
    assert ages.max() < 60
    share = np.mean((np.array(data(3_000)["age"]) >= 18.5) & (np.array(data(3_000)["age"]) < 20))
    assert np.mean(ages == 19) == pytest.approx(share, abs=0.03)
    again = released.rows(2_000, seed=1, whole=["age"])
    assert made["a"] == again["a"]
    with pytest.raises(DeclarationError, match="categories"):
        released.rows(5, whole=["a"])
    with pytest.raises(DeclarationError, match="at least 1"):
        released.rows(0)


@pytest.mark.parametrize("runs", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_intervals_cover_as_often_as_they_say(runs: int) -> None:
    """Over simulated runs: cells of measured tables near to 95%, bounds of all tables above."""
    rows, edges = data(2_000), {"age": [0, 20, 40, 60]}
    names = ["a", "b", "c", "age"]
    codes = [np.searchsorted(["p", "q", "r"], rows[k]) for k in "abc"]
    codes.append(np.minimum((rows["age"] // 20).astype(int), 2))
    true = {}
    for k in (1, 2, 3):
        for table in itertools.combinations(range(4), k):
            true[table] = np.zeros([4] * k)
            np.add.at(true[table], tuple(codes[i] for i in table), 1)
    model = dp.synthesize(PEOPLE, edges=edges, rounds=4, epsilon=1.0, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    inside, bounds, others = [], [], []
    for seed in range(runs):
        found = plan.simulate(seed=seed, people=rows)["model"]
        for table, counts in true.items():
            asked = [names[i] for i in table]
            low, high = found.interval(asked)
            covered = ((low <= counts) & (counts <= high)).mean()
            far = np.abs(found.table(asked) - counts).sum() / 2 / found.total
            if found.is_measured(asked):
                # answers are shrunk: an interval is widened to hold its own
                assert ((low <= found.table(asked)) & (found.table(asked) <= high)).all()
                # cells without rows have intervals that are cut off at 0
                inside.append(float(covered))
                bounds.append(far <= found.error(asked, 0.9))
            else:
                others.append(far <= found.error(asked, 0.9) and covered == 1)
                # errors of some cells are made up for by others: about half of all of them
                half = float((high - found.table(asked)).max())
                assert half < 0.75 * 2 * found.error(asked) * found.total
                where = {name: (0, 40) if name == "age" else ["p", "q"] for name in asked}
                least, most = found.interval(where)
                others.append(bool(least <= counts[np.ix_(*[[0, 1]] * len(asked))].sum() <= most))
    # some 15,000 cells of 30 runs: a run's mean is off by about 0.02, that of all by 0.004
    assert 0.93 < np.mean(inside) < 0.985
    assert len(bounds) > 5 * runs
    assert np.mean(bounds) > 0.95
    assert len(others) > runs
    assert np.mean(others) > 0.95


class Toy:
    """The synthesizer on two columns of two values, with every law in closed form."""

    def __init__(self, relation: str, epsilon: float, delta: float) -> None:
        people = dp.dataset("t", columns={"a": [0, 1], "b": [0, 1]}, neighbors=relation)
        people = people.fill(a=0, b=0)
        model = dp.synthesize(people, "all 2-way", rounds=3, epsilon=epsilon, delta=delta)
        self.plan = dp.Pipeline(model=model)
        mechanisms = {
            node.name.rpartition(".")[2]: node.handle.operation.mechanism  # type: ignore[attr-defined]
            for node in self.plan.structure
            if hasattr(node.handle.operation, "mechanism")
        }
        self.first = mechanisms["columns"].sigma
        self.scale, self.sigma = mechanisms["worst"].scale, mechanisms["table"].sigma
        self.penalty = min(0.5, 0.35 * epsilon**-0.25) * math.sqrt(2 / math.pi)
        self.found = layout((2, 2), ((0, 1),), (1.0,))
        self.tables = document_of(self.found)

    def counts(self, rows: list[tuple[int, int]]) -> Marginals:
        joint = np.zeros((2, 2), dtype=np.int64)
        for row in rows:
            joint[row] += 1
        parts = [joint.sum(axis=1), joint.sum(axis=0), joint.ravel()]
        return Marginals(np.concatenate(parts), self.found)

    def loss(self, first: Marginals, second: Marginals, draw: np.random.Generator) -> float:
        """The exact log-ratio of a whole transcript's densities, drawn under the first."""
        one, two = (np.asarray(OneWayTables().run([each], STREAM)) for each in (first, second))
        out = one + self.first * draw.normal(size=4)
        total = self._gaussian(out, one, two, self.first)
        state = initial_state(out, self.first, tables=self.tables, method="aim")
        for _ in range(3):
            reads = round_inputs(state, self.sigma, ratio=self.penalty)
            laws = []
            for each in (first, second):
                scores = np.asarray(TableErrors().run([each, reads], STREAM)) / self.scale
                laws.append(scores - scores.max() - math.log(np.exp(scores - scores.max()).sum()))
            chosen = int(draw.choice(3, p=np.exp(laws[0]) / np.exp(laws[0]).sum()))
            total += laws[0][chosen] - laws[1][chosen]
            one, two = (ChosenTable().run([each, chosen], STREAM) for each in (first, second))
            out = one + self.sigma * draw.normal(size=4)
            total += self._gaussian(out, one, two, self.sigma)
            state = updated_state(
                state,
                chosen,
                out,
                self.sigma,
                self.scale,
                tables=self.tables,
                method="aim",
                penalty=self.penalty,
            )
        return float(total)

    @staticmethod
    def _gaussian(out: Any, one: Any, two: Any, sigma: float) -> float:
        return float((((out - two) ** 2).sum() - ((out - one) ** 2).sum()) / (2 * sigma**2))


@pytest.mark.parametrize("draws", [80, pytest.param(4_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_exact_loss_of_the_loop_stays_within_its_certificate(relation: str, draws: int) -> None:
    """Every factor of a transcript's density is in closed form; transcripts are drawn.

    The mean of ``(1 - e^(epsilon - loss))_+`` over them is an unbiased estimate of delta at
    epsilon, for each of two neighbours and directions: none is above, by more than five standard
    errors (a false alarm has a probability below 1e-6), and the largest is near.
    """
    epsilon, delta = 0.8, 0.05
    toy, draw = Toy(relation, epsilon, delta), np.random.default_rng(5)
    certified = toy.plan.certify(delta=delta).epsilon
    assert 0.995 * epsilon < certified <= epsilon
    crowd = [(0, 0)] * 4 + [(1, 1)] * 3
    others: list[list[tuple[int, int]]] = [[(0, 1)], [(0, 0)]]
    without: list[list[tuple[int, int]]] = [[]] if relation == "add_remove" else [[(1, 0)]]
    means = []
    for own, other in itertools.product(others, without):
        pair = toy.counts(crowd + own), toy.counts(crowd + other)
        for first, second in (pair, pair[::-1]):
            losses = np.array([toy.loss(first, second, draw) for _ in range(draws)])
            shares = np.maximum(0.0, 1 - np.exp(certified - losses))
            error = float(shares.std() / math.sqrt(len(shares)))
            means.append(float(shares.mean()))
            assert shares.mean() <= delta + 5 * error
    assert max(means) > 0.3 * delta


def document(*, model: bool) -> str:
    people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
    made = dp.synthesize(people, "all 2-way", edges={"age": [0, 18, 65, 100]}, rounds=1)
    outputs = {"model": made} if model else {}
    plan = dp.Pipeline(count=people.count().release(dp.Gaussian()), **outputs)
    return plan.calibrate(epsilon=1.0, delta=1e-6).to_json()


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path: Any) -> Any:
        (tmp_path / "plan.json").write_text(document(model=True))
        lines = [f"{i % 100},{'AB'[i % 2]}" for i in range(1_000)]
        (tmp_path / "people.csv").write_text("\n".join(["age,town", *lines]) + "\n")
        return tmp_path

    def run(self, files: Any, *more: str) -> int:
        data = f"people={files / 'people.csv'}"
        out = str(files / "out.csv")
        return main(["synthesize", str(files / "plan.json"), "--data", data, "-o", out, *more])

    def test_rows_are_written_with_what_is_promised(self, files: Any, capsys: Any) -> None:
        paper = files / "certificate.json"
        assert self.run(files, "--rows", "200", "--whole", "age", "--certificate", str(paper)) == 0
        lines = (files / "out.csv").read_text().splitlines()
        assert lines[0] == "age,town"
        assert len(lines) == 201
        assert {line.partition(",")[2] for line in lines[1:]} <= {"A", "B", ""}
        assert all("." not in line for line in lines)
        assert "epsilon 1.000" in capsys.readouterr().out
        assert dp.verify(dp.Certificate.from_json(paper.read_text()))

    def test_rows_are_written_as_parquet(self, files: Any, capsys: Any) -> None:
        import pandas as pd

        to = files / "out.parquet"
        assert self.run(files, "--rows", "300", "--whole", "age", "-o", str(to)) == 0
        found = pd.read_parquet(to)
        assert list(found.columns) == ["age", "town"]
        assert len(found) == 300
        assert found["age"].dtype.kind in "if"  # whole, with nulls as NaN
        assert set(found["town"].dropna()) == {"A", "B"}

    def test_a_simulation_is_the_same_again(self, files: Any, capsys: Any) -> None:
        texts = []
        for _ in range(2):
            assert self.run(files, "--simulate", "3", "--json") == 0
            texts.append((files / "out.csv").read_text())
        assert texts[0] == texts[1]
        assert '"columns": ["age", "town"]' in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (["--rows", "0"], "at least one row"),
            (["--whole", "town"], "'town'"),
            (["--output", "count"], "has model"),
            (["--html", "/nowhere/page.html"], "nowhere"),
        ],
    )
    def test_refusals_spend_nothing(
        self, files: Any, capsys: Any, more: list[str], words: str
    ) -> None:
        assert self.run(files, *more) == 2
        assert words in capsys.readouterr().err
        assert not (files / "out.csv").exists()

    def test_whole_numbers_of_released_edges_and_no_keys(self, files: Any, capsys: Any) -> None:
        """A column of released keys is refused before the run, one of released edges is not."""
        people = dp.dataset("people", columns={"age": (0, 100), "town": str})
        model = dp.synthesize(
            people, "all 2-way", private_edges={"age": 4}, private_keys={"town": 2}, rounds=1
        )
        plan = dp.Pipeline(model=model).calibrate(epsilon=1.0, delta=1e-6)
        (files / "plan.json").write_text(plan.to_json())
        assert self.run(files, "--whole", "town") == 2
        assert "names a column of numbers" in capsys.readouterr().err
        assert self.run(files, "--whole", "age", "--rows", "9") == 0

    def test_a_plan_without_a_model(self, files: Any, capsys: Any) -> None:
        (files / "plan.json").write_text(document(model=False))
        assert self.run(files) == 2
        assert "this one has none" in capsys.readouterr().err


@pytest.mark.slow
def test_an_audit_with_a_planted_rare_row_finds_no_more_than_is_certified() -> None:
    """Runs with and without a row of a cell of its own: the answer in that cell tells them apart.

    The lower bound of epsilon by Clopper and Pearson fails with a probability below 1e-6.
    """
    from scipy.stats import beta

    epsilon, delta, runs = 4.0, 1e-3, 1_500
    people = dp.dataset("t", columns={"a": [0, 1, 2], "b": [0, 1, 2]}).fill(a=0, b=0)
    model = dp.synthesize(people, "all 2-way", rounds=2, epsilon=epsilon, delta=delta)
    plan = dp.Pipeline(model=model).with_delta(delta)
    crowd = {"a": [0] * 20 + [1] * 20, "b": [0] * 20 + [1] * 20}
    planted = {name: [*values, 2] for name, values in crowd.items()}

    def answers(rows: dict[str, Any], first: int) -> np.ndarray:
        seeds = range(first, first + runs)
        found = [plan.simulate(seed=seed, t=rows)["model"] for seed in seeds]
        return np.array(
            [
                each.model.estimate((0, 1) if each.is_measured(["a", "b"]) else (0,))[-1].sum()
                for each in found
            ]
        )

    without, planted_in = answers(crowd, 0), answers(planted, runs)
    bounds = []
    for threshold in np.quantile(np.concatenate([without, planted_in]), [0.25, 0.5, 0.75]):
        hits, false = int((planted_in > threshold).sum()), int((without > threshold).sum())
        low = beta.ppf(1e-7, hits, runs - hits + 1)
        high = beta.ppf(1 - 1e-7, false + 1, runs - false)
        bounds.append(math.log(max(low - delta, 1e-9) / high))
    assert max(bounds) <= plan.certify().epsilon
    assert max(bounds) > 0.3


def test_distances_are_those_of_rows_from_released_tables() -> None:
    model = dp.synthesize(PEOPLE, "all 2-way", edges={"age": [0, 30, 60]}, epsilon=3, delta=1e-6)
    found = dp.Pipeline(model=model).with_delta(1e-6).simulate(seed=1, people=data(2_000))["model"]
    rows = found.rows(4_000, seed=1)
    near = found.distances(rows)
    assert {len(names) for names in near} <= {1, 2}
    assert max(far for far, _ in near.values()) < 0.05
    flipped = {**rows, "a": rows["b"], "b": rows["a"]}
    rows["a"] = rows["a"][::-1]
    again = found.distances(rows)
    pairs = [names for names in near if len(names) == 2 and "a" in names]
    assert all(again[names][0] > 5 * near[names][0] for names in pairs)
    assert found.distances(flipped).keys() == near.keys()
    rows["a"] = ["zzz"] * 4_000  # in the cell of what is not declared
    assert all(far > 0.5 for names, (far, _) in found.distances(rows).items() if "a" in names)


# -----------------------------------------------------------------------------
# Conditions; what is known without the data; earlier and public models; private edges.

AGES = {"age": [0, 20, 40, 60]}


def released(rows: dict[str, Any], seed: int = 1, **arguments: Any) -> Synthetic:
    """A model of made-up rows, at an epsilon with little noise."""
    given: dict[str, Any] = {"workload": "all 2-way", "edges": AGES, "epsilon": 8.0, "delta": 1e-6}
    given |= arguments
    plan = dp.Pipeline(model=dp.synthesize(PEOPLE, **given)).with_delta(1e-6)
    found: Synthetic = plan.simulate(seed=seed, people=rows)["model"]
    return found


class TestConditions:
    def test_counts_are_those_of_the_table(self) -> None:
        found = released(data(5_000))
        table = found.table(["a", "age"])
        assert found.count({"a": "p"}) == pytest.approx(found.table(["a"])[0])
        some = found.count({"age": (20, 60), "a": ["p", "r"]})
        assert some == pytest.approx(table[[0, 2], 1:3].sum())
        assert found.count({"a": None}) == pytest.approx(found.table(["a"])[3])
        # half of a bin, and beyond the bounds
        half = found.count({"age": (10, 20)})
        assert half == pytest.approx(found.table(["age"])[0] / 2)
        assert found.count({"age": (-9, 20)}) == pytest.approx(found.table(["age"])[0])
        share = found.share({"b": "p"}, {"a": "p"})
        low, high = found.interval({"b": "p"}, given={"a": "p"})
        assert share == pytest.approx(found.count({"a": "p", "b": "p"}) / found.count({"a": "p"}))
        assert 0 <= low < share < high <= 1
        assert found.share({"a": "p"}) == pytest.approx(found.count({"a": "p"}) / found.total)
        low, high = found.interval({"a": "p"}, given={})
        assert low < found.share({"a": "p"}) < high

    def test_the_variance_of_a_sum_is_that_of_its_cells_covariance(self) -> None:
        """By the covariance matrix of least squares, from readings of overlapping tables."""
        sizes, readings = (3, 2, 2), {(0, 1): 2.0, (1, 2): 3.0, (0,): 1.0}
        model = Model(sizes)
        rows, weights = [], []
        cells = list(np.ndindex(*sizes))
        for table, sigma in readings.items():
            model.read(table, np.zeros([sizes[i] for i in table]), sigma)
            for own in np.ndindex(*[sizes[i] for i in table]):
                rows.append([float(tuple(c[i] for i in table) == own) for c in cells])
                weights.append(1 / sigma**2)
        design = np.array(rows)
        covariance = np.linalg.pinv(design.T @ np.diag(weights) @ design)
        wanted = np.array([[0.3, 1.0], [0.0, 1.0], [1.0, 0.0]])
        sums = np.array([wanted[c[0], c[1]] for c in cells])
        assert model.variance((0, 1), wanted) == pytest.approx(sums @ covariance @ sums)
        one = np.zeros((3, 2))
        one[1, 1] = 1
        assert model.variance((0, 1), one) == pytest.approx(model.deviation((0, 1)) ** 2)

    def test_intervals_hold_the_true_count(self) -> None:
        """100 runs; of 95% intervals fewer than 78 hold with a probability below 1e-6."""
        rows = data(800)
        where = {"a": "p", "age": (0, 30)}
        true = int(((rows["a"] == "p") & (rows["age"] < 30)).sum())
        share = true / int((rows["a"] == "p").sum())
        plan = dp.Pipeline(
            model=dp.synthesize(PEOPLE, [["a", "age"]], edges=AGES, epsilon=1.0, delta=1e-6)
        ).with_delta(1e-6)
        held = shares = 0
        for seed in range(100):
            found = plan.simulate(seed=seed, people=rows)["model"]
            low, high = found.interval(where)
            held += low <= true <= high
            least, most = found.interval({"age": (0, 30)}, given={"a": "p"})
            shares += least <= share <= most
        assert held >= 78
        assert shares >= 78

    @pytest.mark.parametrize(
        ("where", "words"),
        [
            ({}, "a mapping such as"),
            ({"a": "z"}, "has the categories"),
            ({"age": 3}, "is a range"),
            ({"age": (30, 20)}, "is a range"),
            ({"town": "A"}, "not of 'town'"),
        ],
    )
    def test_refusals(self, where: dict[str, Any], words: str) -> None:
        with pytest.raises(dp.DeclarationError, match=words):
            released(data(100)).count(where)
        with pytest.raises(dp.DeclarationError, match="leave it out of one"):
            released(data(100)).share({"a": "p"}, {"a": "q"})
        with pytest.raises(dp.DeclarationError, match="given is for the share"):
            released(data(100)).interval(["a"], given={"b": "q"})


@pytest.mark.parametrize("beyond", [(-5, 0), (20, 30), (200.0, math.inf)])
def test_a_range_beyond_the_edges_is_refused(beyond: Any) -> None:
    """Values there were counted in the bin next to them: an answer of 0 rows would be wrong."""
    column = Axis("age", None, (0.0, 10.0, 20.0), False)
    with pytest.raises(dp.DeclarationError, match="beyond its edges"):
        taken(column, beyond)
    assert taken(column, (15, 30)).any.tolist() == [0, 1]
    with pytest.raises(dp.DeclarationError, match="is a range"):
        taken(column, 5)


class TestItems:
    """Conditions as items of a workload: tables of their columns, with no more bins than that."""

    def test_ranges_are_edges_and_few_of_them(self) -> None:
        items = [({"age": (20, 40), "a": "p"}, 3.0), {"age": (30, 60)}, ["b"]]
        found = released(data(4_000), workload=items, edges={})
        assert found.columns == ("a", "b", "age")
        assert found.labels("age") == ("[0, 20)", "[20, 30)", "[30, 40)", "[40, 60]", None)
        weights = dict(zip(found.layout.workload, found.layout.weights, strict=True))
        assert (weights[0, 2], weights[2,], weights[1,]) == (3.0, 1.0, 1.0)
        rows = data(4_000)
        true = int(((rows["age"] >= 20) & (rows["age"] < 40) & (rows["a"] == "q")).sum())
        assert found.count({"age": (20, 40), "a": "q"}) == pytest.approx(true, abs=60)

    def test_a_conditional_is_the_table_of_both(self) -> None:
        items = [({"b": "p"}, {"age": (20, 40)}), [({"c": "p"}, {"a": "q"}), 2]]
        found = released(data(4_000), workload=items, edges={})
        own = dict(zip(found.layout.workload, found.layout.weights, strict=True))
        names = {tuple(found.columns[i] for i in table): w for table, w in own.items() if w >= 1}
        assert names == {("b", "age"): 1.0, ("a", "c"): 2.0}
        low, high = found.interval({"b": "p"}, given={"age": (20, 40)})
        assert low < high
        assert 0 <= found.share({"b": "p"}, given={"age": (20, 40)}) <= 1

    def test_other_items_keep_their_bins(self) -> None:
        plain = released(data(500), workload=[{"age": (25, 40)}, ["a", "age"]], edges={})
        assert len(plain.labels("age")) == 18 + 1  # 16 of equal width; 25 and 40 cut two of them
        given = released(data(500), workload=[{"age": (25, 60)}])
        assert given.labels("age") == ("[0, 20)", "[20, 25)", "[25, 40)", "[40, 60]", None)

    @pytest.mark.parametrize(
        ("items", "words"),
        [
            ([{"town": "A"}], "'town'"),
            ([{"a": "z"}], "has the categories"),
            ([{"age": (30, 20)}], "is a range"),
            ([{"age": (70, 90)}], "beyond its edges"),
            ([{}], "list of columns"),
            ([({"a": "p"}, {"a": "q"})], "different columns"),
            ([({"a": "p"}, -1)], "positive"),
            ([({"a": "p"}, {"b": "p"}, {"c": "p"})], "pair of conditions"),
        ],
    )
    def test_refusals(self, items: Any, words: str) -> None:
        with pytest.raises(dp.DeclarationError, match=words):
            dp.synthesize(PEOPLE, items, epsilon=1.0, delta=1e-6)

    def test_released_cells_know_no_ends_and_no_categories(self) -> None:
        words = "cells that are known"
        with pytest.raises(dp.DeclarationError, match=words):
            dp.synthesize(PEOPLE, [{"age": (25, 40)}], private_edges={"age": 4})
        never = [{"age": (25, 40)}]
        with pytest.raises(dp.DeclarationError, match=words):
            dp.synthesize(PEOPLE, "all 1-way", private_edges={"age": 4}, impossible=never)
        towns = dp.dataset("t", columns={"town": str, "a": ["p", "q"]})
        with pytest.raises(dp.DeclarationError, match=words):
            dp.synthesize(towns, [{"town": "A", "a": "p"}], private_keys={"town": 4})
        # what is missing is a cell in any case; ranges of other columns are edges
        wanted = [{"age": None, "a": "p"}, ["age"]]
        dp.synthesize(PEOPLE, wanted, private_edges={"age": 4}, rounds=1)


class TestImpossible:
    NEVER: ClassVar[list[dict[str, Any]]] = [
        {"a": "p", "b": ["q", "r"]},
        {"a": "q", "age": (0, 40)},
        {"a": None},
    ]

    def rows(self) -> dict[str, Any]:
        rows = data(4_000)
        kept = ~((rows["a"] == "p") & (rows["b"] != "p") | (rows["a"] == "q") & (rows["age"] < 40))
        return {name: column[kept] for name, column in rows.items()}

    @pytest.mark.parametrize("method", ["independent", "mst", "mwem", "aim"])
    def test_no_answer_and_no_row_is_there(self, method: str) -> None:
        rows = self.rows()
        found = released(
            rows, method=method, epsilon=1.0, impossible=self.NEVER, workload="all 3-way"
        )
        for columns in (["a", "b"], ["a", "b", "c"], ["a", "b", "age"], ["b", "a"]):
            table = found.table(columns)
            assert table.sum() == pytest.approx(found.total)
            assert (np.moveaxis(table, columns.index("a"), 0)[3] == 0).all()
            first = np.moveaxis(table, [columns.index("a"), columns.index("b")], [0, 1])
            assert (first[0, 1:3] == 0).all()
            assert found.interval({"a": "p", "b": ["q", "r"]}) == (0, 0)
        made = found.rows(3_000, seed=1)
        for a, b, age in zip(made["a"], made["b"], made["age"], strict=True):
            assert a is not None
            assert not (a == "p" and b in ("q", "r"))
            assert not (a == "q" and age < 40)

    def test_many_conditions_leave_rows(self) -> None:
        """Of 30 pairs, each of which 1/4 of the rows would be: (3/4)^30 of them are in none."""
        columns = {f"c{i}": ["p", "q"] for i in range(60)}
        people = dp.dataset("people", columns=columns)
        pairs = [(f"c{i}", f"c{i + 1}") for i in range(0, 60, 2)]
        never = [{a: "p", b: "p"} for a, b in pairs]
        model = dp.synthesize(people, "all 1-way", impossible=never, epsilon=9.0, delta=1e-6)
        draw = np.random.default_rng(1)
        rows = {}
        for a, b in pairs:  # of a pair p and q, q and p, or q and q
            kind = draw.integers(3, size=400)
            rows[a] = ["p" if k == 0 else "q" for k in kind]
            rows[b] = ["p" if k == 1 else "q" for k in kind]
        found = dp.Pipeline(m=model).with_delta(1e-6).simulate(seed=1, people=rows)["m"]
        made = found.rows(500, seed=2)
        assert len(made["c0"]) == 500
        for a, b in pairs:
            assert ("p", "p") not in set(zip(made[a], made[b], strict=True))

    def test_a_page_is_made_where_no_row_can_be(self) -> None:
        """Conditions that cover all rows: the page says so, and shows what is released."""
        people = dp.dataset("people", columns={"a": ["p", "q"], "b": ["p", "q"]})
        never = [{"a": "p", "b": value} for value in ("p", "q", None)]
        model = dp.synthesize(people, "all 2-way", impossible=never, epsilon=9.0, delta=1e-6)
        plan = dp.Pipeline(m=model).with_delta(1e-6)
        result = plan.simulate(seed=1, people={"a": ["p"] * 5_000, "b": ["p"] * 5_000})
        page = dp.report(plan.certify(), None, result)
        assert "rows could not be drawn" in page
        assert "declared impossible, but about" in page

    def test_a_declaration_that_the_counts_contradict_is_named(self) -> None:
        right = released(self.rows(), impossible=self.NEVER, workload="all 3-way")
        assert right.contradictions() == []
        (said,) = released(data(4_000), impossible=[{"a": "p", "b": "p"}]).contradictions()
        assert said.startswith("declared impossible, but about ")
        assert "(a: p; b: p)" in said

    def test_answers_are_nearer(self) -> None:
        """That one column follows from another is a list of what is impossible."""
        rows = data(4_000)
        rows["b"] = rows["a"]
        others: dict[str, list[Any]] = {"p": ["q", "r"], "q": ["p", "r"], "r": ["p", "q"]}
        follows = [{"a": a, "b": b} for a, bs in others.items() for b in (bs, None)]
        follows.append({"a": None})
        gaps = []
        for never in ([], follows):
            found = [released(rows, seed, epsilon=0.1, impossible=never) for seed in range(4)]
            true = np.zeros((4, 4))
            np.add.at(true, tuple(np.searchsorted(["p", "q", "r"], rows[k]) for k in "ab"), 1)
            gaps.append(np.mean([np.abs(each.table(["a", "b"]) - true).sum() for each in found]))
        assert gaps[1] < gaps[0]

    @pytest.mark.parametrize(
        ("never", "words"),
        [
            ({"a": "p"}, "is a list of conditions"),
            ([{"town": "A"}], "in no table"),
            ([{"age": (3, 9)}], "holds no whole bin"),
            ([{"a": ["p", "q", "r"]}, {"a": None}], "no cell of the table"),
            ([{}], "maps columns"),
        ],
    )
    def test_refusals(self, never: Any, words: str) -> None:
        with pytest.raises(dp.DeclarationError, match=words):
            dp.synthesize(PEOPLE, "all 1-way", edges=AGES, impossible=never)


class TestKnownModels:
    def test_earlier_readings_of_the_same_rows_are_combined(self) -> None:
        rows = data(2_000)
        first = released(rows, seed=1, epsilon=1.0)
        second = released(rows, seed=2, epsilon=1.0, start=first)
        alone = released(rows, seed=2, epsilon=1.0)
        assert set(first.model.means) <= set(second.model.means)
        # readings add up, however few of a part are new
        before, after = first.model.precisions, second.model.precisions
        assert all(after[part] >= before[part] for part in before)
        assert any(after[part] > 1.5 * before[part] for part in before)
        # the columns' own readings, by the inverse of their variances
        one, two = first.model.precisions[()], alone.model.precisions[()]
        assert second.model.precisions[()] >= one
        assert second.total == pytest.approx(
            (one * first.total + two * alone.total) / (one + two), rel=0.02
        )

    def test_a_prior_completes_what_was_not_measured(self) -> None:
        prior = released(data(20_000, seed=9), workload="all 3-way", rounds=12)
        rows = data(2_000)
        true = np.zeros((4, 4))
        np.add.at(true, tuple(np.searchsorted(["p", "q", "r"], rows[k]) for k in "ac"), 1)
        gaps, far = [], []
        for known in (None, prior):
            found = released(rows, epsilon=0.5, method="independent", prior=known)
            gaps.append(np.abs(found.table(["a", "c"]) - true).sum() / 4_000)
            assert found.table(["a", "c"]).sum(axis=1) == pytest.approx(found.table(["a"]), 1e-3)
            made = found.rows(2_000, seed=3)
            counts = np.zeros((4, 4))
            codes = [[["p", "q", "r", None].index(value) for value in made[k]] for k in "ac"]
            np.add.at(counts, tuple(codes), 1)
            far.append(np.abs(counts - true).sum() / 4_000)
        assert gaps[1] < 0.1 < gaps[0]
        assert far[1] < 0.15 < far[0]

    def test_a_plan_with_known_models_is_written_and_read(self) -> None:
        known = released(data(500))
        model = dp.synthesize(
            PEOPLE, "all 2-way", edges=AGES, prior=known, start=known, epsilon=1.0, delta=1e-6
        )
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        one, two = (each.simulate(seed=1, people=data(300))["model"] for each in (plan, again))
        assert np.array_equal(one.table(["a", "b"]), two.table(["a", "b"]))

    def test_refusals(self) -> None:
        other = dp.synthesize(PEOPLE, "all 1-way", edges={"age": 2}, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=other).with_delta(1e-6)
        known = plan.simulate(seed=1, people=data(50))["model"]
        with pytest.raises(dp.DeclarationError, match="the same columns"):
            dp.synthesize(PEOPLE, "all 2-way", edges=AGES, start=known)
        with pytest.raises(dp.DeclarationError, match="must be a model of tables"):
            dp.synthesize(PEOPLE, "all 2-way", edges=AGES, prior=[1, 2])
        # of the same plan too: its cells are not known when the other's are released
        handle = dp.synthesize(PEOPLE, "all 2-way", private_edges={"age": 4})
        with pytest.raises(dp.DeclarationError, match="not known before they are released"):
            dp.synthesize(PEOPLE, "all 2-way", private_edges={"age": 4}, start=handle)

    def test_released_edges_can_be_declared_and_started_from(self) -> None:
        first = dp.synthesize(
            PEOPLE, "all 2-way", private_edges={"age": 4}, epsilon=1.0, delta=1e-6
        )
        known = dp.Pipeline(m=first).with_delta(1e-6).simulate(seed=1, people=data(300))["m"]
        edges = {"age": known.axes[known.columns.index("age")].edges}
        for name in ("start", "prior"):
            later = dp.synthesize(
                PEOPLE, "all 2-way", edges=edges, epsilon=1.0, delta=1e-6, **{name: known}
            )
            found = dp.Pipeline(m=later).with_delta(1e-6).simulate(seed=2, people=data(300))["m"]
            assert found.labels("age") == known.labels("age")


class TestPrivateEdges:
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_bins_have_about_as_many_rows_and_the_budget_holds(self, relation: str) -> None:
        people = dp.dataset("people", columns={"x": (0, 1000), "a": ["p", "q"]}, neighbors=relation)
        model = dp.synthesize(people, "all 2-way", private_edges={"x": 8}, epsilon=2.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        assert 0.995 < plan.certify().epsilon / 2 <= 1
        rng = np.random.default_rng(1)
        values = rng.exponential(20, 8_000)
        rows = {"x": values, "a": np.where(rng.random(8_000) < 0.5, "p", "q")}
        found = plan.simulate(seed=1, people=rows)["model"]
        counts = found.table(["x"])[:-1]
        assert counts.min() > 700
        assert counts.max() < 1300
        edges = found.axes[0].edges
        assert edges is not None
        assert len(edges) == 9
        assert max(found.rows(100, seed=1)["x"]) <= 1000
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        assert str(dp.verify(plan.certify())).startswith("holds")

    def test_a_row_is_in_one_cell_at_edges_that_were_released(self) -> None:
        """Whatever was released: then `OneWayTables` and `ChosenTable` move as they say."""
        table = dp.dataset("t", columns=COLUMNS)
        columns = {name: table.domain.find(name) for name in COLUMNS}
        asked = MarginalsOf(
            list(COLUMNS), columns, [None] * 3, [True] * 3, WANTED, (1.0, 3.0), [None, None, 3]
        )
        found = layout_of(document_of(asked.layout))
        for edges in ([0, 2, 5, 10], [0, 0, 0, 0], [math.nan] * 4, [9, 1, 5, 3], []):
            for number in (-5.0, 0.0, 2.0, 9.0, math.nan):
                rows = {"a": ["x"], "b": ["v"], "n": [number]}
                counts = asked.run([table.operation.bind(rows), edges], STREAM).counts
                sums = np.add.reduceat(counts, found.starts[:-1])
                assert (sums == 1).all()

    def test_refusals(self) -> None:
        with pytest.raises(dp.DeclarationError, match="give one of them"):
            dp.synthesize(PEOPLE, "all 2-way", edges=AGES, private_edges={"age": 3})
        with pytest.raises(dp.DeclarationError, match="columns with bounds"):
            dp.synthesize(PEOPLE, "all 2-way", private_edges={"a": 3})
        with pytest.raises(dp.DeclarationError, match="number of bins"):
            dp.synthesize(PEOPLE, "all 2-way", private_edges={"age": 1})


class TestShown:
    def test_a_result_shows_the_columns_counts_with_intervals(self) -> None:
        model = dp.synthesize(PEOPLE, "all 2-way", edges=AGES, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        result = plan.simulate(seed=1, people=data(500))
        lines = str(result).splitlines()
        assert len(lines) < 25
        assert any(line.startswith("model.age[[20, 40)]") for line in lines)
        assert result.columns()["value"][0] == pytest.approx(result["model"].total)

    def test_the_page_compares_rows_with_released_counts(self) -> None:
        model = dp.synthesize(
            PEOPLE,
            "all 2-way",
            edges=AGES,
            impossible=[{"a": "p", "b": "p"}],
            epsilon=4.0,
            delta=1e-6,
        )
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        result = plan.simulate(seed=1, people=data(3_000))
        page = dp.report(plan.certify(), None, result)
        assert "Synthetic rows beside released counts" in page
        assert "rows were drawn of what was released" in page
        assert "declared impossible, but about" in page
        compared = result["model"].comparison()
        labels, counts, low, high, made = compared.columns["age"]
        assert labels == ["[0, 20)", "[20, 40)", "[40, 60]", "missing"]
        assert all(a <= b <= c for a, b, c in zip(low, counts, high, strict=True))
        assert sum(made) == pytest.approx(result["model"].total)
        assert {names for names, *_ in compared.tables} == set(
            result["model"].distances(result["model"].rows(100, seed=1))
        )
        # nobody lacks a value, which counts of noise alone cannot rule out
        assert "cells that may be empty" in page
        unsure = {names: (cells, made) for names, *_, cells, made in compared.tables}
        low, high = result["model"].interval(["a", "b"])
        cells, made = unsure["a", "b"]
        assert cells == ((low == 0) & (high > 0)).sum() >= 3
        assert 0 <= made <= 1


class TestPrivateKeys:
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_frequent_keys_are_cells_and_the_rest_one(self, relation: str) -> None:
        people = dp.dataset("people", columns={"town": str, "a": ["p", "q"]}, neighbors=relation)
        model = dp.synthesize(
            people, "all 2-way", private_keys={"town": 5}, epsilon=2.0, delta=1e-6
        )
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        assert 0.98 < plan.certify().epsilon / 2 <= 1
        names = ["Rome", "Oslo", "Bonn"]
        rows = {
            "town": [name for name in names for _ in range(2_000)] + [f"t{i}" for i in range(300)],
            "a": ["p"] * 4_000 + ["q"] * 2_300,
        }
        found = plan.simulate(seed=1, people=rows)["model"]
        axis = found.axes[found.columns.index("town")]
        assert set(axis.values) == {*names, None}
        assert found.count({"town": "Rome", "a": "p"}) == pytest.approx(2_000, abs=150)
        made = found.rows(3_000, seed=1)["town"]
        assert set(made) <= {*names, None}
        # cells that no key was found for, and that of all others, have words of their own
        words = list(found.summary(0.95)[2]["town"])
        assert set(words) == {*names, "no key 1", "no key 2", "all others"}
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        assert str(dp.verify(plan.certify())).startswith("holds")

    def test_refusals(self) -> None:
        with pytest.raises(dp.DeclarationError, match="declare no categories"):
            dp.synthesize(PEOPLE, "all 2-way", private_keys={"a": 3})
        people = dp.dataset("people", columns={"town": str, "a": ["p", "q"]})
        with pytest.raises(dp.DeclarationError, match="number of keys"):
            dp.synthesize(people, "all 2-way", private_keys={"town": 0})
