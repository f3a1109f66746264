"""Plans that the tests share: between them every kind of node, and data that tries their bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import evolve
from objectives import Game

import adaptive_dp as dp
from adaptive_dp import erm
from adaptive_dp.erm import Logistic, Network, Weighted
from adaptive_dp.mechanisms.sparse_vector import online_answer, online_run


def add(*values: float) -> float:
    return float(sum(values))


def middle(pair: list[float]) -> float:
    return (pair[0] + pair[1]) / 2


def narrow(pair: list[float], below: float, total: float) -> list[float]:
    half = middle(pair)
    return [half, pair[1]] if below < total / 2 else [pair[0], half]


def people(neighbors: str = "add_remove", unit: str | None = "id", rows: int = 2) -> dp.Table:
    more: dict[str, Any] = {} if unit is None else {"unit": unit, "rows_per_unit": rows}
    columns = {"x": (-5, 10), "y": (0, 3), "free": (0, 1), "region": ["A", "B", "C"], "z": None}
    return dp.dataset("people", columns=columns, neighbors=neighbors, **more)


def linear_network() -> Any:
    import torch

    return torch.nn.Linear(4, 2)


def summed(outputs: Any, targets: Any) -> Any:
    return (outputs[:, 0] * targets).sum()


def descend(parameters: Any) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=0.5)


def network(
    *, one_round: bool = False, in_turn: bool = False, fixed_size: bool = False
) -> dp.Pipeline:
    """A network's training, or a round of its own loop, declared without PyTorch."""
    from adaptive_dp.graph.handles import Public, Released
    from adaptive_dp.graph.registry import Function
    from adaptive_dp.queries.domains import Tensors
    from adaptive_dp.torch.examples import NetworkRowsOf, NetworkTable
    from adaptive_dp.torch.loop import ParametersAt
    from adaptive_dp.torch.training import InitialState, TrainedNetwork, UnitGradientsOf

    image, dark = dp.tensor((4,), (0, 1)), [0, 1]
    table = dp.dataset("images", columns={"image": image, "dark": dark})
    if fixed_size:
        table = dp.dataset("images", columns=table.domain.columns, neighbors="replace_one", size=4)
    net, shapes = Function.of(linear_network), (("weight", (2, 4)), ("bias", (2,)))
    training = dp.torch.Training(
        linear_network, summed, descend, steps=3, sampling_rate=0.5, batch_size=2
    )
    if fixed_size:
        training = evolve(training, sampling="fixed_size", batch_size=None)
    reads = NetworkRowsOf(("image",), "dark", {"image": image, "dark": dark})
    goal = reads.columns["dark"]
    first = reads.columns["image"]
    assert isinstance(first, Tensors)
    gradients = UnitGradientsOf(net, Function.of(summed), shapes, {}, first, goal)
    if in_turn:
        training = evolve(training, noise="banded", steps=4, clipping=2.0, bands=1)
        ends = training.in_turn(gradients, NetworkTable(reads, (table,)), dp.public(2.0))
        last: Any = Released(TrainedNetwork(shapes, ("image",), "dark", reads.columns), ends)
        return dp.Pipeline(model=last).fix(sigma=1.0)
    if one_round:
        at: Any = Public(ParametersAt("ab" * 32))
        released = training.releases(gradients, NetworkTable(reads, (table,)), at, dp.public(1.0))
        return dp.Pipeline(**released).fix(sigma=1.0)
    start: Any = Released(InitialState(net, shapes), (dp.public(1.0),))
    state = dp.repeat(
        lambda state, rows: training.round(gradients, state, rows, dp.public(2.0)),
        3,
        NetworkTable(reads, (table,)),
        start=start,
    )
    model: Any = Released(TrainedNetwork(shapes, ("image",), "dark", reads.columns), (state,))
    return dp.Pipeline(model=model).fix(sigma=1.0)


def noisy(scale: Any = 2.0) -> dp.Laplace:
    return dp.Laplace(scale=scale)


def jax_start(key: Any) -> Any:
    import jax

    return 0.1 * jax.random.normal(key, (4, 2))


def jax_loss(w: Any, x: Any, y: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(x @ w, y)


def jax_descent() -> Any:
    import optax

    return optax.sgd(0.5)


def function_of_jax(*, in_turn: bool = False) -> dp.Pipeline:
    """The training of a function of JAX, declared without JAX."""
    from adaptive_dp.graph.handles import Released
    from adaptive_dp.graph.registry import Function
    from adaptive_dp.jax.training import FunctionGradientsOf, FunctionStart
    from adaptive_dp.queries.domains import Tensors
    from adaptive_dp.torch.examples import NetworkRowsOf, NetworkTable
    from adaptive_dp.torch.training import TrainedNetwork

    image, dark = dp.tensor((4,), (0, 1)), [0, 1]
    table = dp.dataset("images", columns={"image": image, "dark": dark})
    init, shapes = Function.of(jax_start), (("", (4, 2)),)
    training = dp.jax.Training(
        jax_loss, jax_start, jax_descent, steps=3, sampling_rate=0.5, batch_size=2
    )
    reads = NetworkRowsOf(("image",), "dark", {"image": image, "dark": dark})
    first = reads.columns["image"]
    assert isinstance(first, Tensors)
    of_rows = FunctionGradientsOf(
        init, Function.of(jax_loss), shapes, {}, first, reads.columns["dark"]
    )
    if in_turn:
        training = evolve(training, noise="banded", steps=4, clipping=2.0)
        ends = training.in_turn(of_rows, NetworkTable(reads, (table,)), dp.public(2.0))
        last: Any = Released(TrainedNetwork(shapes, ("image",), "dark", reads.columns), ends)
        return dp.Pipeline(model=last).fix(sigma=1.0)
    start: Any = Released(FunctionStart(init, shapes), (dp.public(1.0),))
    state = dp.repeat(
        lambda state, rows: training.round(of_rows, state, rows, dp.public(2.0)),
        3,
        NetworkTable(reads, (table,)),
        start=start,
    )
    model: Any = Released(TrainedNetwork(shapes, ("image",), "dark", reads.columns), (state,))
    return dp.Pipeline(model=model).fix(sigma=1.0)


def columns() -> dp.Pipeline:
    table = people()
    count = table.count().release(noisy())
    total = table["x"].sum().release(noisy(30), name="total")
    return dp.Pipeline(
        count=count,
        total=total,
        clipped=table["x"].clip(0, 1).sum().release(noisy(3)),
        mean=dp.post(add, total, dp.public(1.5), dp.parameter(total, "scale")),
        average=table["y"].mean().release(noisy(5)),
        regions=table["region"].histogram().release(dp.Gaussian(sigma=4.0)),
        bins=table["z"].histogram([0, 1, 2.5]).release(noisy(4)),
    )


def undeclared(neighbors: Any = "add_remove") -> dp.Pipeline:
    table = dp.dataset(
        "people", columns={"region": str}, unit="id", rows_per_unit=2, neighbors=neighbors
    )
    groups = table.group_by("region")
    count = groups.count()
    return dp.Pipeline(
        laplace=count.release(dp.ThresholdLaplace(scale=2, delta=1e-7)),
        gaussian=count.release(dp.ThresholdGaussian(sigma=3, delta=1e-7)),
        units=groups.count_distinct().release(dp.ThresholdLaplace(scale=2, delta=1e-7)),
        weighted=count.release(dp.WeightedGaussian(sigma=4, keys=2, delta=1e-7)),
        alone=dp.post(sorted, count.release(dp.PartitionSelection(epsilon=0.5, delta=1e-7))),
    )


def filters() -> dp.Pipeline:
    table = people("zero_out")
    count = table.count().release(noisy())
    return dp.Pipeline(
        grown=table.filter(table["x"] >= 1).count().release(noisy()),
        near=table.filter(table["region"].isin(["A", "B"])).count().release(noisy()),
        above=table.filter(table["z"] > count).count().release(noisy()),
        sampled=table.sample(0.1).count().release(noisy(1)),
    )


def expressions(neighbors: str = "add_remove") -> dp.Pipeline:
    table = people(neighbors)
    count = table.count().release(noisy())
    apart = (table["x"] > table["y"]) | ~(table["region"] == "A") & table["z"].is_present()
    wide = table.with_columns(ratio=table["x"] / (table["y"] + 1), large=table["x"] >= 5)
    between = (table["x"] > count) & (table["x"] < count)
    return dp.Pipeline(
        apart=table.filter(apart).count().release(noisy()),
        between=table.filter(between).count().release(noisy()),
        several=table.counts([apart, table["x"] > 1]).release(noisy(6)),
        squares=(table["x"] ** 2).fill(0).sum().release(noisy(100)),
        ratio=wide.filter(wide["ratio"] > 0).group_by("large").sum("ratio").release(noisy(9)),
        points=wide.vectors(["ratio", "y"]).sum().release(dp.Gaussian(sigma=5)),
        people=table.filter(table["x"] > 0).count_distinct().release(noisy(1)),
        joined=table.join(
            {"region": ["A", "B"], "size": [5, None], "coast": ["yes", "no"]}, on="region"
        )
        .group_by("coast")
        .sum("size")
        .release(noisy(9)),
    )


def partitions(neighbors: str = "add_remove") -> dp.Pipeline:
    table = people(neighbors)
    whole_units = table.partition("region", whole_units=True)
    return dp.Pipeline(
        spread={k: p.count().release(noisy()) for k, p in table.partition("region")},
        whole={k: p["x"].sum().release(noisy(9)) for k, p in whole_units},
        one=table.partition("x", edges=[0, 5, 10])["[5, 10]"].count().release(noisy()),
    )


def groups(neighbors: str = "add_remove") -> dp.Pipeline:
    table = people(neighbors)
    by_two = table.group_by("region", "x", edges={"x": [-5, 0, 10]})
    return dp.Pipeline(
        bounded=table.group_by("region", max_groups=2, max_rows=1).count().release(noisy()),
        table=table.crosstab("region", "x", noisy(), edges={"x": [-5, 0, 10]}, margins=True),
        counts=by_two.count().release(noisy()),
        sums=by_two.sum(["x", "y"]).release(noisy(30)),
        means=table.group_by("region").average("y", dp.Gaussian(sigma=4)),
        inside=table.partition("region")["A"].group_by("z", keys=[0, 1]).count().release(noisy()),
        most=table.group_by("region", keys=["A", "C"]).count().release(dp.NoisyMax(scale=3)),
    )


def vectors() -> dp.Pipeline:
    table = people("replace_one", unit=None)
    points = table.vectors(["x", "y"], scale=True, intercept=True)
    short = table.vectors(["x", "y"]).clip(norm=2)
    return dp.Pipeline(
        gram=points.gram().release(dp.Gaussian(sigma=5)),
        least=points.smallest_eigenvalue().release(noisy(9)),
        short=short.sum().release(dp.Gaussian(sigma=5)),
        products=points.times(table["x"], scale=True).sum().release(dp.Gaussian(sigma=9)),
    )


def choices() -> dp.Pipeline:
    table = people()
    regions = table["region"].histogram()
    several = table.counts([table["x"] >= 1, table["region"].isin(["A", "B"]), table["y"] < 2])
    gaussian = dp.GaussianSparseVector(9.0, 12.0, threshold=4, queries=3)
    begun = online_run(table.count(), bound=9.0, monotone=True, scale=5.0, threshold=4)
    return dp.Pipeline(
        counts=several.release(noisy(6)),
        mode=regions.release(dp.Exponential(scale=2.0)),
        bin=table["z"].histogram([0, 1, 2.5]).release(dp.PermuteAndFlip(scale=2.0)),
        most=several.release(dp.NoisyMax(scale=3.0, noise="laplace")),
        above=several.release(dp.SparseVector(scale=5.0, threshold=4, count=2, monotone=True)),
        numbers=several.release(dp.SparseVector(scale=5.0, threshold=4, numeric=8.0)),
        gaussian=several.release(gaussian),
        asked=online_answer(begun, table.count(), 2.0, None),
        leads=several.release(dp.SparseVectorWithGap(scale=5.0, threshold=4, monotone=True)),
        between=several.release(dp.BetweenThresholds(5.0, lower=0, upper=300, failure=1e-7)),
        joint=regions.release(dp.JointTopK(k=2, scale=4.0)),
    )


def loops() -> dp.Pipeline:
    table = people()
    total = table.count().release(noisy())

    def halve(bounds: dp.Released[Any]) -> dp.Released[Any]:
        below = table.filter(table["x"] <= dp.post(middle, bounds)).count()
        return dp.post(narrow, bounds, below.release(noisy(4)), total)

    def twice(bounds: dp.Released[Any]) -> dp.Released[Any]:
        return dp.repeat(halve, 2, start=bounds)

    def tried(limit: dp.Released[Any]) -> tuple[dp.Released[Any], dp.Released[Any]]:
        below = table.filter(table["x"] <= limit).count().release(noisy(20))
        return dp.post(add, below, total), below

    return dp.Pipeline(
        median=dp.repeat(halve, 3, start=[0.0, 10.0]),
        nested=dp.repeat(twice, 2, start=[0, 10]),
        best=dp.select(tried, [0.0, 5.0], stopping=0.5),
    )


def free() -> dp.Pipeline:
    table = people()
    total = table["x"].sum().release(dp.Laplace(scale=dp.Free("b", weight=20)))
    count = table.count().release(dp.Laplace(scale=dp.Free("b")))
    return dp.Pipeline(mean=dp.group("ratio", dp.post(add, total, count), table), count=count)


def learner() -> dp.Pipeline:
    solver = dp.AdaSSP(features=["x"], target="y")
    return dp.Pipeline(theta=people().solve(solver, epsilon=1.0, delta=1e-6))


def tuned() -> dp.Pipeline:
    learner = dp.SSP(["x"], "y")
    best = dp.tune(people(), learner, {"norm": [1.0, 1.2]}, epsilon=1.0, delta=1e-6, runs=3)
    return dp.Pipeline(best=best).with_delta(1e-6)


def regressions() -> dp.Pipeline:
    table = people(rows=1)
    learners: dict[str, Any] = {
        "bounded": dp.AdaptiveOutputPerturbation(["x"], "y"),
        "adapted": dp.AdaOPS(["x"], "y"),
        "proposed": dp.AdaOPS(["x"], "y", ridge=9.0, gamma=0.5),
        "truncated": dp.OPS(["x"], "y"),
        "perturbed": dp.OutputPerturbation(["x"], "y", ridge=30.0),
        "chosen": dp.FiniteLearner(["x"], "y", [(-1, 1), (0, 1), (1, 1)], norm=1.2),
    }
    fits = {name: table.solve(s, epsilon=1.0, delta=1e-7) for name, s in learners.items()}
    return dp.Pipeline(**fits)


def statistics() -> dp.Pipeline:
    table = people()
    return dp.Pipeline(
        plain=table.solve(dp.SSP(["x"], "y"), epsilon=1.0, delta=1e-7),
        pure=table.solve(dp.SSP(["x"], "y", norm=1.2, pure=True), epsilon=1.0, delta=0),
        coded=table.solve(dp.SSP(["x", "region"], "y"), epsilon=1.0, delta=1e-7),
        boosted=table.solve(dp.BoostedSSP(["x"], "y"), epsilon=1.0, delta=1e-7),
        additive=table.solve(dp.AdditiveModel(["x"], "region", steps=2), epsilon=1.0, delta=1e-7),
        pairs=table.solve(
            dp.AdditiveModel(["x", "y"], "region", steps=1, pairs=1), epsilon=1.0, delta=1e-7
        ),
    )


def clusters() -> dp.Pipeline:
    """Clusters, of a number that is chosen and of a fixed one."""
    table = people()
    chosen = dp.statistics.KMeans(["x", "y"], clusters=[2, 3], rounds=1)
    medians = dp.statistics.KMedians(["x"], clusters=1, rounds=1)
    return dp.Pipeline(
        chosen=table.solve(chosen, epsilon=1.0, delta=1e-7),
        medians=table.solve(medians, epsilon=1.0, delta=1e-7),
    )


def unbounded() -> dp.Pipeline:
    """Means, a covariance, a deep point and a deep model."""
    table = people()
    pca = dp.statistics.PCA(["x", "y"], components=2, rounds=2)
    return dp.Pipeline(
        mean=table.solve(dp.statistics.Mean(["x"]), epsilon=1.0, delta=1e-7),
        means=table.solve(dp.statistics.Mean(["x", "y"]), epsilon=1.0, delta=1e-7),
        own=table.solve(dp.statistics.Mean(["x", "y"], correlated=True), epsilon=1.0, delta=1e-7),
        pca=table.solve(pca, epsilon=1.0, delta=1e-7),
        deep=table.solve(dp.statistics.TukeyMedian(["x", "y"], 5), epsilon=1.0, delta=0),
        line=table.solve(dp.statistics.TukeyEM(["x"], "y", models=8), epsilon=1.0, delta=1e-7),
        shaped=table.solve(dp.statistics.AffineInvariantMean(["x", "y"]), epsilon=1.0, delta=1e-7),
    )


def margins() -> dp.Pipeline:
    """Boosting whose steps follow margins."""
    two = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "z": ["a", "b"]}, unit="id", rows_per_unit=3
    )
    boosted = dp.MarginBoosting(["x", "y"], "z", rounds=2)
    return dp.Pipeline(model=two.solve(boosted, epsilon=1.0, delta=1e-7))


def synthetic() -> dp.Pipeline:
    """A model of tables, each round of which chooses one."""
    two = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "z": ["a", "b"]}, unit="id", rows_per_unit=3
    )
    edges = {"x": [-5, 0, 10], "y": [0, 1, 3]}
    model = dp.synthesize(two, "all 2-way", edges=edges, rounds=2, epsilon=1.0, delta=1e-7)
    return dp.Pipeline(model=model)


def centred(rows: Any) -> float:
    """A public test: 0 where the mean of x is far from 2.5."""
    return float(abs(rows["x"].mean() - 2.5) < 1)


def inferences(neighbors: str = "add_remove") -> dp.Pipeline:
    table = people(neighbors, rows=1)
    two, noise = ["A", "B"], dp.Laplace(scale=8)
    return dp.Pipeline(
        share=dp.statistics.proportion(table, table["x"] > 1, 0.4, mechanism=noise),
        exact=table.count().release(dp.statistics.Tulap(scale=2)),
        ranks=dp.statistics.mann_whitney(table, "x", "region", two, mechanism=noise),
        groups=dp.statistics.kruskal_wallis(table, "z", "region", mechanism=noise),
        signs=dp.statistics.signed_rank(table, "x", mechanism=noise),
        table=dp.statistics.goodness_of_fit(table, "region", mechanism=noise),
        means=dp.statistics.mean_difference(table, "x", "region", two, mechanism=noise),
        fit=dp.statistics.coefficients(table, ["x"], "y", mechanism=dp.Gaussian(sigma=9)),
        any=dp.statistics.any_test(table, ["x", "region"], centred, parts=3, mechanism=noise),
    )


def documents() -> dp.Pipeline:
    papers = dp.dataset(
        "people", columns={"region": ["A", "B", "C"], "y": (0, 3)}, unit="id", rows_per_unit=3
    )
    noise = dp.Gaussian(sigma=4)
    return dp.Pipeline(found=dp.statistics.topics(papers, "region", 2, counts="y", mechanism=noise))


def errors() -> dp.Pipeline:
    table = people(rows=1)
    rule = {"intercept": 0.5, "x": -0.1}
    table = table.with_columns(ill=table["y"] > 1)
    counted = dp.statistics.group_errors(
        rule, table, "region", target="ill", features=["x"], mechanism=dp.Laplace(scale=2)
    )
    price = dp.statistics.auction(table, "x", [1, 2, 4], mechanism=dp.Exponential(scale=8))
    return dp.Pipeline(errors=counted, price=price)


def quantiles(neighbors: str = "add_remove") -> dp.Pipeline:
    table = people(neighbors)
    noise = dp.QuantileExponential(scale=3.0)
    return dp.Pipeline(
        quartiles=table["x"].quantiles([0.75, 0.25, 0.5], noise),
        least=table["y"].min(step=1).release(noise),
        middle=table["x"].median(interval=0.9).release(noise),
        spread=table["y"].std(dp.Gaussian(sigma=9.0)),
        related=table.correlation(["x", "y"], dp.Gaussian(sigma=9.0)),
        shares=table["x"].cdf([0, 2, 4], dp.Laplace(scale=4.0)),
    )


def constants() -> dp.Pipeline:
    """Constants and columns that look like a document's own words."""
    count = people().count().release(noisy())
    odd = dp.post(
        add,
        count,
        bounds=[0, 1],
        free="b",
        function="os:system",
        mechanism={"bounds": [1]},
        float=1,
    )
    words = {
        "free": (0, 1),
        "function": ["a"],
        "mechanism": None,
        "bounds": (0, 2),
        "float": (0, 1),
    }
    table = dp.dataset("words", columns=words)
    lone = dp.dataset("lone", columns={"bounds": (0, 1)})
    return dp.Pipeline(
        odd=odd,
        nan=dp.post(add, count, dp.public([float("nan"), float("inf"), -float("inf"), None, "t"])),
        table=table["bounds"].sum().release(noisy()),
        lone=lone["bounds"].sum().release(noisy()),
    )


def largest(values: np.ndarray) -> float:
    return float(values[-1]) if len(values) else -5.0


def jump(values: np.ndarray, distance: int) -> float:
    """The most that `largest` moves: to the upper bound, or down by the values beside it."""
    inside = np.concatenate([np.full(distance + 2, -5.0), values])
    return float(max(10 - inside[-1 - distance], inside[-1] - inside[-2 - distance]))


def spread(values: np.ndarray) -> float:
    return float(values[-1] - values[0]) if len(values) else 0.0


def instances() -> dp.Pipeline:
    table = people("replace_one", unit=None)
    x, region = table["x"], table["region"]
    filled = x.fill(0)
    test, low = dp.ProposeTestRelease(epsilon=1.0, delta=1e-7, bound=2.0), x.quantile(0.1)
    return dp.Pipeline(
        median=x.median().release(dp.SmoothStudent(epsilon=1.0)),
        low=low.release(dp.SmoothCauchy(epsilon=0.5)),
        part=table.partition("region")["A"]["x"].median().release(dp.SmoothCauchy(epsilon=0.5)),
        high=x.quantile(0.9).release(dp.SmoothLaplace(epsilon=1.0, delta=1e-7)),
        trimmed=filled.trimmed_mean(0.1).release(dp.SmoothLaplaceLogNormal(epsilon=0.5)),
        variance=filled.local_variance().release(
            dp.ReleasedSensitivity(epsilon=1.0, delta=1e-7, slope=0.1, logarithmic=False)
        ),
        largest=filled.instance(largest, jump, range=(-5, 10)).release(test),
        tried=filled.brute_force(spread, [-5, 0, 10], range=(0, 15), radius=4).release(
            dp.SmoothCauchy(epsilon=0.5)
        ),
        chosen=filled.brute_force(spread, [-5, 10], candidates=[0.0, 15.0], radius=5).release(
            dp.DistanceToInstability(epsilon=1.0, delta=1e-7)
        ),
        mode=region.mode().release(dp.DistanceToInstability(epsilon=1.0, delta=1e-7)),
        bin=x.mode([-5, 0, 10]).release(dp.DistanceToInstability(epsilon=1.0, delta=1e-7)),
    )


def learning() -> dp.Pipeline:
    table = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "region": ["A", "B", "C"], "z": ["a", "b"]}
    )
    examples = table.examples(["x", "region"], "z", norm=1.5)

    def step(theta: dp.Released[Any], examples: Any) -> dp.Released[Any]:
        rows = examples.sample(0.5).gradients(Logistic(), at=theta)
        clip = rows.short(dp.public(0.3)).release(noisy(4))
        total = rows.sum(clip=clip).release(dp.Gaussian(sigma=3.0))
        fixed = rows.sum(clip=0.7).release(dp.Gaussian(sigma=3.0))
        return dp.post(moved, theta, total, fixed)

    network = Network(Logistic(), hidden=2, activation="relu")
    each = examples.gradients(network, at=dp.public([0.1] * network.size(5)))
    phased = dp.PhasedERM(["x"], "z", phases=2, rounds=3)
    learner = dp.ObjectivePerturbation(["x"], "region", norm=1.0)
    descent = dp.NoisyGradientDescent(["x"], "y", loss=dp.Squared(), steps=2)
    corrected = dp.NoisySGD(["x"], "z", steps=4, sampling_rate=0.5, reference=2)
    pure = dp.ObjectivePerturbation(["x", "region"], "z", ridge=0.01)
    scaled = table.rescale(["x"], table["x"].bounds(dp.Laplace(scale=4.0)))
    heavy = table.examples(["x"], "z", norm=1.0, weight="y", class_weights=[0.5, 1.0])
    weighted = heavy.gradients(Weighted(Logistic()), at=dp.public([0.1, 0.2]))
    return dp.Pipeline(
        theta=dp.repeat(step, 3, examples, start=[0.0] * 5),
        hidden=each.sum(clip=0.5).release(dp.Gaussian(sigma=2.0)),
        phased=table.solve(phased, epsilon=1.0, delta=1e-7),
        regions=table.solve(learner, epsilon=1.0, delta=1e-7),
        descent=table.solve(descent, epsilon=1.0, delta=1e-7),
        corrected=table.solve(corrected, epsilon=1.0, delta=1e-7),
        pure=table.solve(pure, epsilon=1.0, delta=0.0),
        loss=heavy.loss(Weighted(Logistic()), dp.public([0.1, 0.2]), width=2.0).release(noisy(2)),
        weight=heavy.weight().release(noisy(2)),
        rescaled=scaled["x"].sum().release(noisy(2)),
        weighted=weighted.sum(clip=0.5).release(dp.Gaussian(sigma=2.0)),
    )


def streams() -> dp.Pipeline:
    table = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "region": ["A", "B", "C"], "z": ["a", "b"]}
    )
    query = table.examples(["x", "region"], "z").stream(Logistic(), clip=0.5)
    step = [table.count().release(noisy(1))]
    tree = dp.FollowTheLeader(sigma=3.0, batches=3, epochs=2, factorization="tree")
    return dp.Pipeline(
        tree=query.release(tree, given=step),
        banded=query.release(dp.FollowTheLeader(sigma=3.0, batches=3), given=[dp.public(0.1)]),
        learned=table.solve(dp.DPFTRL(["x"], "z", steps=4), epsilon=1.0, delta=1e-7),
    )


def minimizers() -> dp.Pipeline:
    table = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "region": ["A", "B", "C"], "z": ["a", "b"]}
    )
    examples = table.examples(["x", "region"], "z", norm=1.5)
    noise = dp.Gaussian(sigma=3.0)
    ridge = dp.post(abs, table.count().release(noisy()))
    kinds: dict[str, Any] = {
        "plain": {"ridge": 9.0, "optimizer": nowhere},
        "followed": {"ridge": ridge, "radius": 2.0},
        "tilted": {"ridge": 0.5, "radius": 1.0, "tilt": 2.0, "rows": 9},
        "attacked": {"ridge": 9.0, "adversary": 0.1, "tolerance": 0.01},
    }
    fits = {k: examples.minimizer(Logistic(), **v).release(noise) for k, v in kinds.items()}
    learner = dp.OutputPerturbation(["x", "region"], "z", noise="norm")
    fits["learned"] = table.solve(learner, epsilon=1.0)
    constants = {"slope": 1.5, "shift": 1.0, "strong_concavity": 1.0}
    game = examples.saddle_point(
        erm.Game(tied, **constants), ridge=3.0, tolerance=0.01, optimizer=nowhere
    )
    played = dp.OutputPerturbation(["x", "region"], "z", game=erm.Game(tied, **constants))
    fits["played"] = table.solve(played, epsilon=1.0, delta=1e-6)
    start = dp.public([0.0] * 5)
    bound = {"failure": 1e-8, "reach": 1.001}
    least = examples.least_curvature(Logistic(), start).release(dp.LowerBound(5.0, **bound))
    most = examples.gradient_norm(Logistic(), start, ridge=9.0)
    given = [start, least, most.release(dp.UpperBound(5.0, **bound))]
    follows = dp.instance.PerturbedMinimizer(mu=0.3, ridge=9.0, of="Logistic()")
    fits["following"] = examples.as_query().release(follows, given=given)
    return dp.Pipeline(**fits, game=game.release(noise))


def tied(x: np.ndarray, y: np.ndarray, ridge: float) -> Game:
    """A game that is bilinear but for the squares of both players."""
    return Game(np.ones((x.shape[1], 1)), x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


def nowhere(objective: Any) -> np.ndarray:
    """An optimizer that has found nothing."""
    return np.full(objective.width, np.nan)


def pate() -> dp.Pipeline:
    table = dp.dataset(
        "people", columns={"x": (-5, 10), "y": (0, 3), "region": ["A", "B", "C"], "z": ["a", "b"]}
    )
    naive = "sklearn.naive_bayes:GaussianNB"
    taught = dp.pate.teachers(table, ["x", "y"], "z", naive, count=5, norm=1.5, var_smoothing=0.1)
    local = dp.pate.teachers(table, ["x"], "z", naive, by="region")
    pool = taught.points("pool", 4)
    votes = taught.votes(pool)
    outside = dp.pate.ballots("votes", teachers=20, questions=4, classes=3)
    sure = dp.public([[0.1, 0.1, 0.8], [0.5, 0.5, 0], [0.3, 0.3, 0.4], [1, 0, 0]])
    interactive = dp.pate.InteractiveGNMax(5, 9.0, 6.0, confidence=0.7)
    return dp.Pipeline(
        gaussian=votes.release(dp.pate.GNMax(sigma=9.0)),
        again=taught.votes(dp.post(turned, pool), size=4).release(dp.pate.LNMax(scale=9.0)),
        local=local.votes(local.points("others", 2)).release(dp.pate.LNMax(scale=30.0)),
        confident=outside.release(dp.pate.ConfidentGNMax(12, 9.0, 6.0, answers=2)),
        interactive=outside.release(interactive, given=[sure]),
        passed=(check := outside.release(dp.pate.VoteCheck(12, 9.0))),
        answered=outside.release(dp.pate.PassedGNMax(6.0, most=2), given=[check]),
        stable=outside.release(dp.pate.StableVotes(epsilon=1.0, failure=1e-7, failures=2)),
    )


def turned(points: np.ndarray) -> np.ndarray:
    return points[::-1]


def pate_spent() -> dp.Pipeline:
    votes = dp.pate.ballots("votes", teachers=20, questions=4, classes=3)
    checked = dp.pate.ConfidentGNMax(12, 9.0, 6.0)
    bound = dp.pate.sanitized(votes, dp.pate.GNMax(sigma=9.0), order=4.0, sigma=8.0, failure=0.01)
    tested = dp.pate.TestedGNMax(sigma=6.0, order=3.0, budget=0.2, epsilon=1.0, failure=1e-7)
    return dp.Pipeline(
        bound=bound,
        epsilon=dp.pate.sanitized_epsilon(bound, delta=1e-6),
        checked=dp.pate.sanitized(votes, checked, order=3.0, sigma=9.0, beta=0.01, spread=4.0),
        tested=votes.release(tested),
    )


def pate_student() -> dp.Pipeline:
    table = dp.dataset("people", columns={"x": (-5, 10), "z": ["a", "b"]})
    naive = "sklearn.naive_bayes:GaussianNB"
    taught = dp.pate.teachers(table, ["x"], "z", naive, count=5)
    pool = taught.points("pool", 12)
    vote = dp.pate.GNMax(sigma=9.0)
    some = dp.pate.passive(taught, pool, vote, size=4, seed=1)
    chosen = dp.pate.active(
        taught, pool, vote, naive, rounds=2, batch=3, noisiest=math.inf, var_smoothing=0.1
    )
    return dp.Pipeline(
        some=dp.pate.student(pool, some, naive, var_smoothing=0.1),
        chosen=dp.pate.student(
            pool, chosen, "sklearn.semi_supervised:LabelSpreading", unlabeled=True
        ),
    )


def plurality() -> dp.Pipeline:
    votes = dp.pate.ballots("votes", teachers=3, questions=2, classes=2, neighbors="replace_one")
    return dp.Pipeline(most=votes.release(dp.pate.Plurality()))


def moved(theta: Any, total: Any, fixed: Any) -> list[float]:
    return [float(v) for v in np.asarray(theta) - 0.01 * np.asarray(total) + 0 * np.asarray(fixed)]


PLANS: dict[str, Callable[[], dp.Pipeline]] = {
    "columns": columns,
    "filters": filters,
    "expressions": expressions,
    "expressions exchanged": lambda: expressions("replace_one"),
    "partitions": partitions,
    "exchanged": lambda: partitions("replace_one"),
    "groups": groups,
    "groups exchanged": lambda: groups("replace_one"),
    "undeclared keys": undeclared,
    "undeclared keys exchanged": lambda: undeclared("replace_one"),
    "vectors": vectors,
    "choices": choices,
    "loops": loops,
    "free": free,
    "learner": learner,
    "tuned": tuned,
    "regressions": regressions,
    "statistics": statistics,
    "clusters": clusters,
    "unbounded": unbounded,
    "margins": margins,
    "synthetic": synthetic,
    "tests": inferences,
    "documents": documents,
    "errors": errors,
    "tests exchanged": lambda: inferences("replace_one"),
    "quantiles": quantiles,
    "quantiles exchanged": lambda: quantiles("replace_one"),
    "constants": constants,
    "instances": instances,
    "learning": learning,
    "minimizers": minimizers,
    "streams": streams,
    "pate": pate,
    "pate_spent": pate_spent,
    "plurality": plurality,
    "pate_student": pate_student,
}


@functools.cache
def built(name: str) -> dp.Pipeline:
    """One of them, built once."""
    return PLANS[name]()


@functools.cache
def certificate(name: str) -> dp.Certificate:
    """The certificate of one of them at 1e-6, made once."""
    return built(name).certify(1e-6)


def data(seed: int, units: int = 12, rows: int = 3, fixed: bool = False) -> dict[str, np.ndarray]:
    """People with up to `rows` rows each, and values far outside of their bounds, or none."""
    draw = np.random.default_rng(seed)
    odd = np.array([-1e9, -5, -1, 0, 0.5, 1, 5, 9.99, 10, 1e300, np.inf, -np.inf, np.nan])
    counts = np.ones(units, int) if fixed else draw.integers(1, rows + 1, units)
    size = int(counts.sum())
    return {
        "id": np.repeat(np.arange(units), counts),
        "x": draw.choice(odd, size),
        "y": draw.choice(odd, size),
        "free": draw.choice(odd, size),
        "z": draw.choice(odd, size),
        "region": draw.choice(np.array(["A", "B", "C", "elsewhere"]), size),
    }


def neighbour(table: dict[str, np.ndarray], neighbors: str, seed: int) -> dict[str, np.ndarray]:
    """The same people but one: gone, or exchanged for another."""
    keep = table["id"] != table["id"][0]
    rest = {k: v[keep] for k, v in table.items()}
    if neighbors != "replace_one":
        return rest
    other = data(seed, units=1, fixed=len(set(table["id"])) == len(table["id"]))
    return {k: np.concatenate([other[k], rest[k]]) for k in table}
