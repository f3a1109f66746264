"""Select, measure, fit: a model of a table's columns that answers all counts, and makes rows.

The counts of each column are released first. Each round then chooses the candidate table in which
the model's answers are worst, by the exponential mechanism; releases its counts with Gaussian
noise; and fits the model to what was released. What a round reads of the rounds before is released,
so that the noise of every round may be fixed in advance and all of it composes adaptively; the cost
of the whole is that of a fixed schedule, and the tightest accountant certifies it.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import (
    Private,
    PrivateQuery,
    Released,
    change_at,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.outputs import released_ends
from adaptive_dp.graph.values import strings
from adaptive_dp.learning.base import Learner, LearnerBudget, query_sensitivity
from adaptive_dp.mechanisms.additive import Gaussian, checked
from adaptive_dp.mechanisms.partition_selection import TopKeys
from adaptive_dp.mechanisms.selection import Exponential, QuantileExponential
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.order_statistics import CountsByCell, QuantileLevel, search_levels
from adaptive_dp.queries.sums import bounded
from adaptive_dp.queries.table import Table
from adaptive_dp.synthesis.marginals import (
    ChosenTable,
    MarginalsOf,
    OneWayTables,
    TableErrors,
    candidate_place,
    one_way_tables,
)
from adaptive_dp.synthesis.model import Model, boxes_of, model_of
from adaptive_dp.synthesis.result import Synthetic
from adaptive_dp.synthesis.workload import (
    MOST_CELLS,
    OUTSIDE,
    Axis,
    Columns,
    Layout,
    axes_of,
    axis,
    document_of,
    edges_with,
    impossible_boxes,
    items_of,
    layout,
    layout_of,
    released_edges,
    released_keys,
    subsets,
    tables_of,
    taken,
    with_released,
)

METHODS = ("independent", "mst", "mwem", "aim")

ONE_WAY = 0.06, -0.5, 0.1
"""The share of mu^2 of the counts of each column by itself: at epsilon 1; the power of epsilon that
it follows; the most. Where tables that are read are many, they say it as well."""

CHOICE = 0.03, -0.5, 0.1
"""The share of a round's mu^2 of the choice, beside the counts: at epsilon 1; the power of epsilon
that it follows; the most. Where noise is small, tables differ by more than the choice is off."""

TREE_SHARES = (1 / 3, 1 / 6)
"""The same for a tree, whose columns and pairs are as important (McKenna, Miklau and Sheldon
2021)."""

PENALTY = 0.35, -0.25, 0.5
"""What a candidate's error must be above, over what noise alone would add up to: at epsilon 1; the
power of epsilon that it follows; the most. Where noise is small, large tables pay sooner."""

ROUNDS = 3.0
"""Rounds for each column, at epsilon 1."""

GROWTH = 0.3
"""Rounds grow with this power of epsilon."""

REBUILD = 1.5
"""The tree is chosen anew when rounds are so many times those of the last time."""

BRIDGES = 2**22
"""The most cells of all pairs of columns together that no table of the workload has."""

EDGES = 0.05
"""The share of mu^2 of all private edges and keys together."""

KEYS_DELTA = 0.01
"""The share of delta with which a key shows that one unit alone has."""

KNOWN = (
    "start and prior must be models of the same columns in the same order, with the same "
    "categories, edges and missing cells: {}"
)

State = dict[str, Any]
"""``means`` and ``precisions``, the combined readings of residuals; ``edges`` of the tree;
``answers`` of all candidates; ``round``, and ``rebuild``, the one in which the tree is chosen anew;
``chosen`` and ``sigmas``, the tables that were read; ``closed``, the candidates that are not to be
chosen; and what the last choice says of all tables: ``before`` and ``level``."""


# -----------------------------------------------------------------------------
# Post-processing: the model after each reading.


def initial_state(
    counts: Any,
    sigma: float,
    *known: Any,
    tables: Mapping[str, Any],
    method: str,
    impossible: Sequence[Any] = (),
    axes: Sequence[Any] = (),
    given: Sequence[str] = (),
) -> State:
    """Return the state after the columns' own counts were read.

    Parameters
    ----------
    counts, sigma
        The counts, and the deviation of their noise.
    known
        Released models, as ``given`` names them: the ``"start"``, of the same rows; the
        ``"prior"``, of others.
    tables, method, impossible, axes
        Of the workload.
    """
    found = layout_of(tables)
    values, first = np.asarray(counts, dtype=np.float64), 0
    beside = dict(zip(given, known, strict=True))
    model = Model(found.sizes, impossible=boxes_of(impossible))
    if "prior" in beside:
        model.prior = _known_model(beside["prior"], axes)
    for table in one_way_tables(found):
        size = found.cells_of(table)
        model.read(table, values[first : first + size], float(sigma))
        first += size
    if "start" in beside:
        model.add(_known_model(beside["start"], axes))
        model.build_tree()
    state = {
        "impossible": list(impossible),
        "prior": None if model.prior is None else model.prior.document(),
        "round": 0,
        "rebuild": 1,
        "chosen": [],
        "sigmas": [],
        "one_way": float(sigma),
        "before": None,
        "level": math.inf,
        **_answered(model, found, None, None),
    }
    return {**state, "closed": _closed(model, found, method)}


def _model(state: State, found: Layout) -> Model:
    return Model(
        found.sizes,
        dict(state["means"]),
        dict(state["precisions"]),
        state["edges"],
        boxes_of(state["impossible"]),
        model_of(found.sizes, state["prior"]),
    )


def _known_model(released: Any, axes: Sequence[Any]) -> Model:
    """Return the readings of a released model, whose columns must have the same cells."""
    if _cells(released["axes"]) != _cells(axes):
        raise DeclarationError(KNOWN.format([each["name"] for each in axes]))
    found = model_of([axis(each).size for each in axes], released)
    assert found is not None
    return found


def _cells(axes: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what cells of axes are, whether they were declared or released before."""
    return [{**each, "released": None} for each in axes]


def _answered(
    model: Model, found: Layout, answers: NDArray[np.float32] | None, touched: Any
) -> dict[str, Any]:
    """Return a model's part of a state: its readings, and its answers of the touched candidates."""
    # a sum of errors is rounded to 2^-8 of a row, and half of the memory is for 10^7 cells
    values = np.zeros(int(found.starts[-1]), dtype=np.float32) if answers is None else answers
    again = range(len(found.tables)) if touched is None else np.flatnonzero(touched)
    for i in again:
        values[found.starts[i] : found.starts[i + 1]] = model.answer(found.tables[i]).reshape(-1)
    return {
        "means": model.means,
        "precisions": model.precisions,
        "edges": model.edges,
        "answers": values,
    }


def _closed(model: Model, found: Layout, method: str, *, over: bool = False) -> list[int]:
    """Return the candidates that a method does not choose: what would close a circle, of a tree.

    Pairs outside of the workload are closed when their rounds are over.
    """
    if method == "mwem":
        wanted = set(found.workload)
        return [i for i, table in enumerate(found.tables) if table not in wanted]
    if method == "aim" and over:
        return [found.place[table] for table in found.outside]
    if method != "mst":
        return []
    return [
        i
        for i, table in enumerate(found.tables)
        if len(table) != 2 or table[1] in model.ahead(table[0])
    ]


def round_inputs(state: State, sigma: float, *, ratio: float) -> dict[str, Any]:
    """Return what `TableErrors` reads of a state.

    Parameters
    ----------
    state
        Before the round.
    sigma
        The noise of the columns' own counts.
    ratio
        That of the round's counts, over it, times the penalty of a cell over its noise.
    """
    return {
        "answers": state["answers"],
        "penalty": ratio * float(sigma),
        "closed": state["closed"],
    }


def updated_state(
    state: State,
    chosen: int,
    counts: Any,
    sigma: float,
    scale: float,
    *,
    tables: Mapping[str, Any],
    method: str,
    penalty: float,
    bridging: int = 0,
) -> State:
    """Return the state after a round: the chosen table is read, and the answers that it changes.

    Parameters
    ----------
    state
        Before the round.
    chosen, counts
        The candidate's place, and its released counts.
    sigma, scale
        Of the noise of the counts, and of the choice.
    tables, method
        Of the workload.
    penalty
        By cell, over sigma.
    bridging
        In how many rounds pairs outside of the workload may be chosen.
    """
    found = layout_of(tables)
    model, place = _model(state, found), candidate_place(chosen, len(found.tables))
    table, rounds = found.tables[place], int(state["round"]) + 1
    own = np.asarray(counts, dtype=np.float64)[: found.cells_of(table)]
    before = np.asarray(state["answers"], dtype=np.float32)
    if method == "mst" and (len(table) != 2 or table[1] in model.ahead(table[0])):
        # all are closed: the tree is complete
        return {**state, "round": rounds}
    model.read(table, own, float(sigma))
    rebuild = int(state["rebuild"])
    if method == "mst":
        model.edges = [*model.edges, (table[0], table[1])]
    elif rounds >= rebuild:
        model.build_tree()
        rebuild = math.ceil(rounds * REBUILD)
    touched = None
    if method == "aim" or method == "mwem":
        # a table that shares one column alone with it hardly changes, until the tree does
        shared = found.members[:, list(table)].sum(axis=1)
        touched = None if rebuild > int(state["rebuild"]) else shared >= min(2, len(table))
    after = {
        **state,
        **_answered(model, found, before.copy(), touched),
        "round": rounds,
        "rebuild": rebuild,
        "chosen": [*state["chosen"], place],
        "sigmas": [*state["sigmas"], float(sigma)],
        "before": before,
        "last": {
            "place": place,
            "gaps": np.abs(own - before[found.starts[place] : found.starts[place + 1]]).sum(),
            "sigma": float(sigma),
            "scale": float(scale),
            "penalty": float(penalty),
            "closed": list(state["closed"]),
        },
    }
    over = rounds >= bridging
    return {**after, "closed": _closed(_model(after, found), found, method, over=over)}


def _no_ends(inputs: list[Any], level: float, sampling: bool, **_: Any) -> Any:
    raise NoIntervalError(
        "a model of tables has an interval for each table: call interval([...]) on it"
    )


@released_ends(_no_ends)
def finished(
    state: State,
    *released: Any,
    tables: Mapping[str, Any],
    axes: list[dict[str, Any]],
    method: str,
) -> Synthetic:
    """Return the model of the last round: all answers are computed anew, with the last tree.

    ``released`` are edges or keys, of each column whose cells are released, in order.
    """
    found, given = layout_of(tables), iter(released)
    axes = [
        each if each["released"] is None else with_released(axis(each), next(given)).document()
        for each in axes
    ]
    model = _model(state, found)
    if method in ("aim", "mwem"):
        model.build_tree()
    return Synthetic(
        {
            "axes": axes,
            "workload": tables["workload"],
            "weights": list(tables["weights"]),
            "means": [[list(table), value] for table, value in model.means.items()],
            "precisions": [[list(table), value] for table, value in model.precisions.items()],
            "edges": [list(pair) for pair in model.edges],
            "chosen": [list(found.tables[i]) for i in state["chosen"]],
            "sigmas": list(state["sigmas"]),
            "one_way": state["one_way"],
            "before": state["before"],
            "last": state.get("last"),
            "impossible": list(state["impossible"]),
            "prior": state["prior"],
        }
    )


# -----------------------------------------------------------------------------
# The synthesizer.


def _item(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return (value,) if isinstance(value, str) else tuple(value)


def _workload(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {
            (key,) if isinstance(key, str) else tuple(key): weight for key, weight in value.items()
        }
    try:
        return tuple(_item(each) for each in value)
    except TypeError:
        return value  # refused by `tables_of`, with the right words


def _conditions(value: Any) -> Any:
    # anything else is refused by `impossible_boxes`, with the right words
    return tuple(value) if isinstance(value, list | tuple) else value


@frozen
class Synthesizer(Learner[Synthetic]):
    """A model of a table's columns from which counts are answered, and synthetic rows drawn.

    After the counts of each column by itself, each of `rounds` rounds is

    1. a choice, by the exponential mechanism, of the candidate whose answers are worst
       (`TableErrors`): candidates are the tables of the workload, and those of some of their
       columns;
    2. its counts, with Gaussian noise (`ChosenTable`);
    3. a fit: all readings are combined, and other tables completed by the largest entropy
       (`adaptive_dp.synthesis.model`).

    Methods differ in what they choose among:

    ``"aim"``
        All candidates, by their error less half of what noise would add up to, weighted by the
        columns that they share with the workload: large tables are chosen where they pay. In the
        first rounds also pairs of columns that no table of the workload has together, and that are
        no larger than its largest pair: columns depend on each other by way of them.
    ``"mwem"``
        The tables of the workload alone, by their error alone.
    ``"mst"``
        Pairs that join two parts of a tree, until it spans all columns.
    ``"independent"``
        None: the counts of each column are all.

    *Cost.* Everything is released at noise that is fixed in advance, so that the sum is that of a
    schedule: `rounds` Gaussian releases and choices. One multiplier of it is solved for the budget,
    on the tightest accountant; what a choice costs is its bounded range.

    Parameters
    ----------
    columns
        The columns, with categories or bounds; None for all of the table that declare either.
    workload
        ``"all 3-way"`` (1 to 4): all tables of so many columns with at most ``cells`` cells; or a
        list of lists of columns; or a mapping from tuples of columns to weights. Items of a list
        may also be conditions, ``{"age": (30, 50), "town": "A"}``, or two of them for a
        conditional, ``({"ill": "yes"}, {"age": (30, 50)})``, of which the second is given; and any
        item may be in a pair with its weight. They stand for the table of their columns, in which
        the ends of ranges are edges: the only ones, where ``edges`` has none and no other item
        needs more.
    method
        See above.
    edges
        By column of numbers the edges of its bins, or their number: 16 of equal width between the
        declared bounds by default.
    private_edges
        By column of numbers how many bins it has, with about as many rows in each: their edges are
        released quantiles, for a twentieth of the budget in all.
    private_keys
        By column of str, which declares no categories, how many of its keys are released, the most
        frequent ones, for a twentieth of the budget in all; other keys are one cell with what is
        missing, and None in rows.
    impossible
        What is known to be so of no row, without looking at the data: a list of conditions such as
        ``{"age": (0, 15), "married": "yes"}``, by column a category, a list of them, or a range of
        numbers. Answers are 0 there, and no row is made.
    start
        A model of the *same* rows that was released before, whose readings are added to these. It
        has been paid for, and is of the same columns with the same cells.
    prior
        A model of *other* rows, released or of public ones (what `Pipeline.simulate` gives for
        them): what was not measured is completed from it, and fitted to what was.
    rounds
        How many tables are measured; None for three for each column at epsilon 1, somewhat more at
        larger ones.
    cells
        The most cells of a table.
    free
        Where no budget is given: the name of the free noise.

    Notes
    -----
    A missing value, and one that is not declared, is a cell of its own, unless the table's column
    is complete (`Table.fill`). Numbers beyond the outer edges count in the bin next to them.

    References
    ----------
    Hardt, Ligett and McSherry 2012 (MWEM); McKenna, Miklau and Sheldon 2021 (MST); McKenna,
    Mullins, Sheldon and Miklau 2022 (AIM). Noise that is fixed in advance, levels and the fit are
    our own: see `adaptive_dp.synthesis.model`.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"], "ill": ["no", "yes"]})
    >>> synthesizer = dp.synthesis.Synthesizer(workload="all 2-way", rounds=1)
    >>> plan = dp.Pipeline(model=people.solve(synthesizer, epsilon=1.0, delta=1e-6))
    >>> 0.995 < plan.certify(delta=1e-6).epsilon <= 1
    True
    >>> rows = {"town": ["A"] * 3000 + ["B"] * 1000, "ill": ["no", "no", "yes", "yes"] * 1000}
    >>> model = plan.with_delta(1e-6).simulate(seed=1, people=rows)["model"]
    >>> bool(abs(model.table(["town", "ill"])[0, 1] - 1500) < 100)
    True
    >>> sorted(model.rows(10, seed=2))
    ['ill', 'town']
    """

    columns: tuple[str, ...] | None = field(
        default=None, converter=attrs.converters.optional(strings)
    )
    workload: Any = field(default="all 3-way", converter=_workload)
    method: str = field(
        default="aim", validator=checked(lambda v: v in METHODS, f"one of {', '.join(METHODS)}")
    )
    edges: Mapping[str, Any] = field(factory=dict, converter=dict)
    private_edges: Mapping[str, Any] = field(factory=dict, converter=dict)
    private_keys: Mapping[str, Any] = field(factory=dict, converter=dict)
    impossible: tuple[Any, ...] = field(default=(), converter=_conditions)
    start: Any = None
    prior: Any = None
    rounds: int | None = field(
        default=None,
        validator=checked(
            lambda v: v is None or (type(v) is int and 1 <= v <= 10_000), "an int in [1, 10000]"
        ),
    )
    cells: int = field(
        default=10_000,
        validator=checked(lambda v: type(v) is int and 1 <= v <= 2**20, "an int in [1, 2^20]"),
    )
    free: str = "sigma"

    title: ClassVar[str] = "synthesis"
    calibrated: ClassVar[bool] = True

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Synthetic]:
        """Return the released model."""
        names = self._columns(table)
        workload, conditions, plain = items_of(self.workload)
        edges = edges_with(self.edges, conditions, plain, self.private_edges, table.domain)
        axes = axes_of(table.domain, names, edges, self.private_edges, self.private_keys)
        wanted = tables_of(workload, names, [each.size for each in axes], self.cells)
        for each in conditions:
            for name, condition in each.items():  # refused where it is not one
                taken(axes[names.index(name)], condition)
        used = sorted({i for places in wanted for i in places})
        if len(used) < len(names):  # columns in no table are not read
            named = {tuple(names[i] for i in places): w for places, w in wanted.items()}
            names = tuple(names[i] for i in used)
            axes = tuple(axes[i] for i in used)
            wanted = tables_of(named, names, [each.size for each in axes], self.cells)
        if self.method == "aim":
            wanted |= _bridges(wanted, [each.size for each in axes])
        found = layout(tuple(each.size for each in axes), tuple(wanted), tuple(wanted.values()))
        operation = MarginalsOf(
            names,
            {name: table.domain.find(name) for name in names},
            tuple(each.edges for each in axes),
            tuple(each.missing for each in axes),
            found.workload,
            found.weights,
            [each.released for each in axes],
        )
        impossible = impossible_boxes(self.impossible, axes)
        unread = Model(found.sizes, impossible=boxes_of(impossible))
        for places in found.tables if impossible else ():
            allowed = unread.allowed(places)
            if allowed is not None and not allowed.any():
                raise DeclarationError(
                    f"no cell of the table of {[names[i] for i in places]} is possible"
                )
        cells = self._released_cells(table, axes, budget)
        marginals: Private[Any] = Private(operation, (table, *cells))
        rounds = self._rounds(len(names), found, budget)
        tables, documents = document_of(found), [each.document() for each in axes]
        known = self._known(documents)
        one_way, choice = self._shares(budget)
        single: PrivateQuery[Any] = PrivateQuery(OneWayTables(), (marginals,))
        weight = query_sensitivity(single, table) / math.sqrt(one_way if rounds else 1.0)
        first = single.release(Gaussian(sigma=Free(self.free, weight=weight)), name="columns")
        noise = parameter(first, "sigma")
        penalty = self._penalty(budget) * math.sqrt(2 / math.pi)
        state: Released[State] = post(
            initial_state,
            first,
            noise,
            *known.values(),
            tables=tables,
            method=self.method,
            impossible=impossible,
            axes=documents if known else [],
            given=list(known),
        )
        if rounds:
            parts = (1 - one_way) / rounds, choice
            state = self._repeated(
                marginals, table, state, noise, found, rounds, weight, parts, penalty
            )
        return post(finished, state, *cells, tables=tables, axes=documents, method=self.method)

    def _known(self, axes: list[dict[str, Any]]) -> dict[str, Released[Any]]:
        """Return the start and the prior, as handles, by name."""
        found: dict[str, Released[Any]] = {}
        released = [each["name"] for each in axes if each["released"] is not None]
        if released and (self.start is not None or self.prior is not None):
            raise DeclarationError(
                f"start and prior are models of the same cells, and those of {released[0]!r} are "
                "not known before they are released: give edges or categories in place of "
                "private_edges and private_keys, such as those of the model itself"
            )
        for name, value in (("start", self.start), ("prior", self.prior)):
            if isinstance(value, Synthetic):
                given = {"axes": list(value["axes"]), **value.model.document()}
                _known_model(given, axes)  # as when a handle's value is there, but before the run
                found[name] = public(given)
            elif isinstance(value, Released):
                found[name] = value
            elif value is not None:
                raise DeclarationError(
                    f"{name} must be a model of tables, as dp.synthesize releases it, got "
                    f"{type(value).__name__}"
                )
        return found

    def _released_cells(
        self, table: Table, axes: Sequence[Axis], budget: LearnerBudget | None
    ) -> list[Released[Any]]:
        """Return edges between private quantiles, and private keys, of columns that have them."""
        wanted = [each for each in axes if each.released is not None]
        found: list[Released[Any]] = []
        for each in wanted:
            share, count = EDGES / len(wanted), int(each.released or 0)
            if each.name in self.private_keys:
                units = table.group_by(each.name).count()
                query = units.operation
                assert isinstance(query, Query)
                span = query.span(units.inputs[0].domain, change_at(table))
                # a bounded range of span / b counts as the mu of half of it, as in a round's choice
                scale = span / (2 * math.sqrt(share / count))
                known: dict[str, Any] = {}
                if budget is not None:
                    known["delta"] = budget.delta * KEYS_DELTA / len(wanted)
                keys = TopKeys(scale=Free(self.free, weight=scale), k=count, **known)
                found.append(post(released_keys, units.release(keys, name=each.name)))
                continue
            orders = [i / count for i in range(1, count)]
            levels = len(search_levels(orders))
            column, bounds = table[each.name], bounded(table[each.name].domain)
            counts: Private[Any] = Private(CountsByCell(bounds, None), (column,))
            span = QuantileLevel(orders, 0).span(counts.domain, change_at(table))
            scale = span / (2 * math.sqrt(share / levels))
            mechanism = QuantileExponential(scale=Free(self.free, weight=scale))
            values = column.quantiles(orders, mechanism)
            ends = {"lower": bounds.lower, "upper": bounds.upper}
            found.append(post(released_edges, values, **ends, count=count))
        return found

    def _repeated(
        self,
        marginals: Private[Any],
        table: Table,
        start: Released[State],
        noise: Released[float],
        found: Layout,
        rounds: int,
        weight: float,
        parts: tuple[float, float],
        penalty: float,
    ) -> Released[State]:
        """Return the state after all rounds, each of which has the same share of mu^2."""
        share, choice = parts  # of a round, and in it of the choice
        tables, change, free = document_of(found), change_at(table), self.free
        errors = TableErrors()
        span = errors.span(marginals.domain, change)
        # a bounded range of span / b counts as the mu of half of it
        scale = span / (2 * math.sqrt(share * choice))

        def body(state: Released[State]) -> Released[State]:
            measured = ChosenTable()
            moved = measured.sensitivity(marginals.domain, change, 2)
            sigma = moved / math.sqrt(share * (1 - choice))
            reads = post(round_inputs, state, noise, ratio=penalty * sigma / weight)
            scores: PrivateQuery[Any] = PrivateQuery(errors, (marginals, reads))
            chosen = scores.release(Exponential(scale=Free(free, weight=scale)), name="worst")
            query: PrivateQuery[Any] = PrivateQuery(measured, (marginals, chosen))
            counts = query.release(Gaussian(sigma=Free(free, weight=sigma)), name="table")
            return post(
                updated_state,
                state,
                chosen,
                counts,
                parameter(counts, "sigma"),
                parameter(chosen, "scale"),
                tables=tables,
                method=self.method,
                penalty=penalty,
                bridging=len(found.sizes),
            )

        return repeat(body, rounds, start=start)

    def _columns(self, table: Table) -> tuple[str, ...]:
        declared = table.domain.columns
        if self.columns is not None:
            if len(set(self.columns)) < len(self.columns):
                raise DeclarationError(f"columns must differ, got {list(self.columns)!r}")
            return self.columns
        found = tuple(
            name
            for name, column in declared.items()
            if isinstance(column, Categories | Interval) or name in self.private_keys
        )
        left = [name for name in declared if name not in found and name != table.domain.unit]
        # a workload that names its tables says itself which columns are meant
        if left and isinstance(self.workload, str):
            warnings.warn(
                f"synthetic rows will have no column {', '.join(map(repr, left))}: neither bounds "
                "nor categories are declared. Declare them, release the most frequent values of a "
                "column of str by private_keys={name: 20}, or name the columns that are wanted in "
                "columns=",
                stacklevel=2,
            )
        return found

    def _rounds(self, columns: int, found: Layout, budget: LearnerBudget | None) -> int:
        if self.method == "independent" or len(found.tables) == len(one_way_tables(found)):
            return 0
        if self.method == "mst":
            return columns - 1
        if self.rounds is not None:
            return self.rounds
        return max(1, round(ROUNDS * columns * math.pow(_epsilon(budget), GROWTH)))

    def _penalty(self, budget: LearnerBudget | None) -> float:
        return _followed(PENALTY, budget) if self.method == "aim" else 0.0

    def _shares(self, budget: LearnerBudget | None) -> tuple[float, float]:
        """Return the share of mu^2 of the columns' own counts, and that of a choice in a round."""
        if self.method == "mst":
            return TREE_SHARES
        return _followed(ONE_WAY, budget), _followed(CHOICE, budget)


def _followed(constants: tuple[float, float, float], budget: LearnerBudget | None) -> float:
    """Return a constant at epsilon 1 times a power of epsilon, but at most a third constant."""
    at_one, power, most = constants
    return min(at_one * math.pow(_epsilon(budget), power), most)


def _epsilon(budget: LearnerBudget | None) -> float:
    """Return the epsilon that rounds and penalties follow: 1 where it is not known."""
    return 1.0 if budget is None else min(max(budget.epsilon, 0.01), 100.0)


def _bridges(wanted: Mapping[Columns, float], sizes: Sequence[int]) -> dict[Columns, float]:
    """Return pairs of columns that no table has together, none larger than the tables' largest.

    Tables that share no column depend on each other by way of such pairs: with them the tree joins
    columns that are near, and what the workload asks of them follows. So a list of few tables of
    many columns is answered better. Of very many pairs the smallest are returned.
    """
    inside = {part for table in wanted for part in subsets(table)}
    parts = {part for part in inside if len(part) == 2}
    if not parts:
        return {}
    room = MOST_CELLS - sum(math.prod(sizes[i] for i in part) for part in inside)
    most = max(sizes[a] * sizes[b] for a, b in parts)
    used = sorted({i for table in wanted for i in table})
    pairs = [pair for pair in itertools.combinations(used, 2) if pair not in parts]
    small = sorted((sizes[a] * sizes[b], (a, b)) for a, b in pairs if sizes[a] * sizes[b] <= most)
    sums = itertools.accumulate(cells for cells, _ in small)
    room = min(room, BRIDGES)
    return {pair: OUTSIDE for (_, pair), held in zip(small, sums, strict=True) if held <= room}


def synthesize(
    table: Table,
    workload: Any = "all 3-way",
    *,
    method: str = "aim",
    columns: Sequence[str] | None = None,
    edges: Mapping[str, Any] | None = None,
    private_edges: Mapping[str, Any] | None = None,
    private_keys: Mapping[str, Any] | None = None,
    impossible: Sequence[Mapping[str, Any]] = (),
    start: Any = None,
    prior: Any = None,
    rounds: int | None = None,
    cells: int = 10_000,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Released[Synthetic]:
    """Return a released model of a table's columns: counts with bounds, and synthetic rows.

    It is ``table.solve(Synthesizer(...), epsilon=..., delta=...)``: parameters are those of
    `Synthesizer`. Without epsilon and delta its noise is left to the plan's calibration.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> columns = {"age": (0, 100), "town": ["A", "B"], "ill": ["no", "yes"]}
    >>> people = dp.dataset("people", columns=columns)
    >>> model = dp.synthesize(people, "all 2-way", edges={"age": [0, 18, 40, 65, 100]})
    >>> plan = dp.Pipeline(model=model).calibrate(epsilon=1.0, delta=1e-6)
    >>> rows = {"age": [15, 30, 50, 80] * 500, "town": ["A", "B"] * 1000}
    >>> rows["ill"] = ["no", "no", "no", "yes"] * 500
    >>> released = plan.simulate(seed=1, people=rows)["model"]
    >>> made = released.rows(1000, seed=2, whole=["age"])
    >>> old = [ill for age, ill in zip(made["age"], made["ill"]) if age >= 65]
    >>> old.count("yes") > 0.8 * len(old)
    True
    """
    synthesizer = Synthesizer(
        columns=columns,
        workload=workload,
        method=method,
        edges=edges or {},
        private_edges=private_edges or {},
        private_keys=private_keys or {},
        impossible=impossible,
        start=start,
        prior=prior,
        rounds=rounds,
        cells=cells,
    )
    return table.solve(synthesizer, epsilon=epsilon, delta=delta)
