"""Random plans: tables, filters, parts, samples, loops, selections and several mechanisms.

`plans` draws whole pipelines; the laws of `test_laws_graph` hold for each of them. ``DATA`` has
the rows that any of them reads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.handles import Private, PrivateQuery
from adaptive_dp.graph.loops import one_of
from adaptive_dp.mechanisms.sparse_vector import online_answer, online_run
from adaptive_dp.statistics.clustering import ClusterSums
from adaptive_dp.statistics.ranks import RankDifference
from adaptive_dp.synthesis.marginals import ChosenTable, MarginalsOf, OneWayTables, TableErrors

COLUMNS = {"x": (-1.0, 2.0), "r": ["A", "B", "C"], "s": ["a", "b"], "k": str}
DATA = {
    "x": [-1.0, 0.5, 2.0, 1.0],
    "r": ["A", "B", "A", "C"],
    "s": ["a", "b", "b", "a"],
    "k": ["one", "two", "one", "six"],
    "id": [1, 1, 1, 2],
}


class Response(dp.Mechanism):
    """A mechanism that is declared by its epsilon: it costs more as its parameter grows."""

    epsilon: float = dp.budget_parameter("epsilon")

    def release(self, value: Any, stream: Any) -> Any:
        return value + stream.laplace(1 / self.epsilon, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance * self.epsilon)


ADDITIVE = {
    "laplace": lambda v: dp.Laplace(scale=v),
    "gaussian": lambda v: dp.Gaussian(sigma=v),
    "response": lambda v: Response(epsilon=v),
}
"""Mechanisms that add noise to any query, by a name."""

COUNTING = {
    "discrete_laplace": lambda v: dp.DiscreteLaplace(scale=v),
    "discrete_gaussian": lambda v: dp.DiscreteGaussian(sigma=v),
    "tulap": lambda v: dp.statistics.Tulap(scale=v),
}
"""Those that add integers to counts."""

CHOOSING = {
    "exponential": lambda v: dp.Exponential(scale=v),
    "permute_and_flip": lambda v: dp.PermuteAndFlip(scale=v),
    "noisy_max": lambda v: dp.NoisyMax(scale=v),
    "gumbel": lambda v: dp.NoisyMax(scale=v, noise="gumbel"),
    "joint": lambda v: dp.JointTopK(k=2, scale=v),
    "gap": lambda v: dp.SparseVectorWithGap(scale=v, threshold=1.0),
}
"""Those that choose among bins."""

BOUNDED = {
    # thresholds so far apart that there is a promise at any scale below 20
    "between": lambda v: dp.BetweenThresholds(scale=v, lower=-600.0, upper=600.0, failure=1e-12),
}
"""Those that choose among bins with a delta of their own; noise that is free may be too much."""

KEYS = {
    "top_keys": lambda v: dp.TopKeys(scale=v, k=2, delta=1e-12),
}
"""Those that release keys which nobody declared."""

FOLLOWING = {"inverse": lambda v: dp.InverseSensitivity(scale=v)}
"""Those that follow the data."""

ASKING = {
    "sparse_vector": lambda v: {"scale": v, "threshold": 1.0, "run": "first", "count": 1},
}
"""Those that begin a run of sparse vector, by their parameters."""

PURE = ["laplace", "response", "discrete_laplace", "tulap", *CHOOSING, *ASKING, *FOLLOWING]
"""The names of those that have a pure epsilon, and so are certified at delta 0."""
KINDS = [*ADDITIVE, *COUNTING, *CHOOSING, *BOUNDED, *KEYS, *ASKING, *FOLLOWING]


def first(*values: Any) -> Any:
    return values[0]


def clusters(table: Any) -> Any:
    """Counts and offsets of rows near two released centres."""
    points = table.vectors(["x"])
    place = dp.public({"centers": [[0.0], [1.5]], "radius": 0.5})
    return PrivateQuery(ClusterSums(points.domain.radius, 1, 2), (points, place))


def tables(table: Any) -> Any:
    """The private counts of two columns, and of each by itself."""
    declared = {name: table.domain.find(name) for name in ("r", "s")}
    pair = MarginalsOf(
        ("r", "s"), declared, (None, None), (True, True), ((0, 1),), (1.0,), (None, None)
    )
    return Private(pair, (table,))


def binned(table: Any) -> Any:
    """The private counts of a column at edges that were released."""
    declared = {"x": table.domain.find("x")}
    counts = MarginalsOf(("x",), declared, (None,), (True,), ((0,),), (1.0,), (2,))
    return Private(counts, (table, dp.public([0.0, 1.0, 2.0])))


ANSWERS = {"answers": [1.5] * 24, "penalty": 0.25, "closed": [0]}


def forward(value: float, step: float) -> float:
    return value + step


def closeness(value: float) -> float:
    return -abs(value)


def counted(table: Any, mechanism: Any) -> Any:
    return table.count().release(mechanism)


@st.composite
def plans(draw: st.DrawFn, kinds: list[str] | None = None, *, free: bool = False) -> dp.Pipeline:
    """Draw a plan of the mechanisms that ``kinds`` names; ``free`` leaves noise to calibration.

    Where noise is free nothing else is fixed, so that every target can be met.
    """
    kinds = KINDS if kinds is None else kinds
    relation = draw(st.sampled_from(["add_remove", "replace_one", "zero_out"]))
    unit = draw(st.sampled_from([None, 2]))
    extra: dict[str, Any] = {} if unit is None else {"unit": "id", "rows_per_unit": unit}
    table = dp.dataset("t", columns=COLUMNS, neighbors=relation, **extra)

    def noise(among: dict[str, Any]) -> Any:
        kind = draw(st.sampled_from([kind for kind in kinds if kind in among]))
        weight = draw(st.sampled_from([1.0, 0.3, 7.0]))
        name = draw(st.sampled_from(["b", "c"]))
        return among[kind](dp.Free(name, weight) if free else weight)

    def released(at: Any, additive: Any = ADDITIVE) -> Any:
        queries = {
            "count": lambda: at.count().release(noise(additive)),
            "sum": lambda: at["x"].sum().release(noise(additive)),
            "histogram": lambda: at["s"].histogram().release(noise(additive)),
            "clusters": lambda: clusters(at).release(noise(additive)),
            "columns": lambda: PrivateQuery(OneWayTables(), (tables(at),)).release(noise(additive)),
            "chosen": lambda: PrivateQuery(ChosenTable(), (tables(at), dp.public(2))).release(
                noise(additive)
            ),
            "binned": lambda: PrivateQuery(OneWayTables(), (binned(at),)).release(noise(additive)),
            "vectors": lambda: at.vectors(["x"], intercept=True).sum().release(noise(additive)),
        }
        if relation != "zero_out":  # which ranks refuse
            ranks = PrivateQuery(RankDifference("x", "s", ("a", "b")), (at,))
            queries["ranks"] = lambda: ranks.release(noise(additive))
        if additive is not ADDITIVE:  # nothing is proven of other noise
            return queries[draw(st.sampled_from(sorted(queries)))]()
        if any(kind in COUNTING for kind in kinds):
            queries["whole"] = lambda: at.count().release(noise(COUNTING))
        if any(kind in CHOOSING for kind in kinds):
            worst = PrivateQuery(TableErrors(), (tables(at), dp.public(ANSWERS)))
            queries["worst"] = lambda: worst.release(noise(CHOOSING))
            queries["mode"] = lambda: at["r"].histogram().release(noise(CHOOSING))
        if not free and any(kind in BOUNDED for kind in kinds):
            queries["between"] = lambda: at["r"].histogram().release(noise(BOUNDED))
        if relation != "zero_out" and not free and any(kind in KEYS for kind in kinds):
            queries["keys"] = lambda: at.group_by("k").count().release(noise(KEYS))
        if relation != "zero_out" and any(kind in FOLLOWING for kind in kinds):
            column = at["x"].fill(0) if relation == "replace_one" else at["x"]
            queries["median"] = lambda: column.median().release(noise(FOLLOWING))
        return queries[draw(st.sampled_from(sorted(queries)))]()

    def number(at: Any) -> Any:
        return at.count().release(noise(ADDITIVE))

    def parts() -> Any:
        outputs = {}
        for key, part in table.partition("r"):
            if draw(st.booleans()):
                outputs[key] = released(part)
            elif draw(st.booleans()):  # parts of parts
                outputs[key] = {k: released(inner) for k, inner in part.partition("s")}
        return outputs or released(table)

    def filtered() -> Any:
        limit = draw(st.sampled_from([0.0, 1.0, None]))
        where = table["x"] <= (number(table) if limit is None else limit)
        return dp.post(first, released(table.filter(where)), number(table))

    def looped() -> Any:
        fixed = noise(ADDITIVE)

        def body(state: Any) -> Any:
            below = table.filter(table["x"] <= state)
            return dp.post(forward, state, below.count().release(fixed))

        return dp.repeat(body, draw(st.integers(1, 4)), start=0.0)

    def selected() -> Any:
        fixed = noise(ADDITIVE)

        def body(limit: Any) -> Any:
            below = table.filter(table["x"] <= limit).count().release(fixed)
            return below, dp.post(closeness, below)

        return dp.select(body, [0.0, 1.0], stopping=draw(st.sampled_from([0.1, 0.5])))

    def cased() -> Any:
        several = [noise(ADDITIVE) for _ in range(draw(st.integers(1, 3)))]

        def body(index: Any) -> Any:
            cases = [partial(counted, mechanism=each) for each in several]
            value = one_of(cases, index, table)
            return value, dp.post(closeness, value)

        places = list(range(len(several)))
        return dp.select(body, places, stopping=draw(st.sampled_from([0.1, 0.5])), shape=0.0)

    def asked() -> Any:
        monotone = draw(st.booleans())
        # a count moves by the rows of a unit: 2 at most
        begun = online_run(table.count(), bound=3.0, monotone=monotone, **noise(ASKING))
        below = table.filter(table["x"] <= draw(st.sampled_from([0.0, 1.0]))).count()
        around = None if monotone else draw(st.sampled_from([None, 2.0]))
        return {
            "all": online_answer(begun, table.count(), None, None),
            "below": online_answer(begun, below, 0.5, around),
        }

    shapes = {"parts": parts, "filtered": filtered, "looped": looped}
    proven = ADDITIVE if relation != "replace_one" else {"gaussian": ADDITIVE["gaussian"]}
    if any(kind in proven for kind in kinds):
        shapes["sampled"] = lambda: released(
            table.sample(draw(st.sampled_from([0.25, 0.01]))), proven
        )
    if any(kind in ASKING for kind in kinds):
        shapes["asked"] = asked
    if not free and relation != "replace_one":
        shapes["selected"] = selected
        shapes["cased"] = cased
    outputs = {"a": released(table)}
    for name in draw(st.lists(st.sampled_from(sorted(shapes)), max_size=3, unique=True)):
        outputs[name] = shapes[name]()
    return dp.Pipeline(**outputs)
