"""An additive model: one shape function for each feature, fitted by noisy steps on all bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from adaptive_dp.erm import Logistic, Multinomial
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Private, PrivateQuery, Released, parameter, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.learning.base import (
    SHALLOW,
    Array,
    ColumnLearner,
    LearnerBudget,
    check_share,
    gaussian_noise,
    odds_of_classes,
    steep,
    within,
)
from adaptive_dp.mechanisms.additive import checked, largest_mu
from adaptive_dp.queries.bins import (
    BinCounts,
    BinGradient,
    BinsOf,
    ShallowRows,
    bin_sizes,
    cell_edges,
    column_cells,
    places_between,
)
from adaptive_dp.queries.domains import Categories, Column, Interval
from adaptive_dp.queries.examples import declarations
from adaptive_dp.queries.table import Table, complete_rows

SHARE = 0.15
"""The share of mu^2 that the counts by cell are released with."""

BINS = 65
"""The most bins of a feature, one of them for what is missing."""

ABOVE = 1.0
"""A bin's count is at least this many standard deviations of its noise."""

MISSING = 3.0
"""A bin of what is missing is used from so many standard deviations of its noise on."""

LEAST = 16
"""The bins of a number that are not merged any further, whatever their counts."""

RATE = 0.1
"""The size of a step, for the diagonal of the matrix of second derivatives."""

MOMENTUM = 0.8
"""The share of the last step that is taken again."""

SMOOTH = 16.0
"""The weight of the differences of adjacent bins in a step, over a gradient's noise."""

RIDGE = 1.0
"""The weight of each bin's score in a step, over a gradient's noise."""

CURVATURE = 0.25
"""The largest second derivative of the logistic loss; of the multinomial it is twice that."""

# -----------------------------------------------------------------------------
# The bins: cells merged until each bin's count stands above the noise. All post-processing.


def layout(
    counts: Any, sigma: float, *, sizes: list[int], ordered: list[bool], most: int
) -> dict[str, Any]:
    """Return the bin of each cell, and the bins' counts.

    Parameters
    ----------
    counts
        The released counts by cell, shape (1 + cells,), that of all rows first.
    sigma
        Their noise.
    sizes
        The number of cells of each feature.
    ordered
        Whether adjacent cells of a feature are close to each other: whether it is a number.
    most
        The most bins of a feature.

    Returns
    -------
    dict
        ``bins``, the bin of each cell within its feature, shape (1 + cells,); ``rows``, the count
        of each bin, 0 of one that is not used, shape (1 + bins,); and ``joined``, 1 where a bin is
        followed by an adjacent one, else 0.
    """
    cells = np.asarray(counts, dtype=np.float64)
    bins, rows, joined = [np.zeros(1)], [cells[:1]], [np.zeros(1)]
    start = 1
    for size, is_ordered, width in zip(sizes, ordered, bin_sizes(sizes, most), strict=True):
        own = cells[start : start + size]
        merge = merged_in_order if is_ordered else merged_by_size
        # bin 0 is that of what is missing, whatever its count
        places = np.concatenate([[0], 1 + merge(own[1:], float(sigma), width - 1)])
        totals = np.bincount(places, own, minlength=width)
        members = np.bincount(places, minlength=width)
        used = members > 0
        if is_ordered:
            link = np.append(used[1:] & used[:-1], False)
            link[0] = False
            # numbers lean on their neighbours; a value that is perhaps never missing has none
            used[0] = totals[0] >= MISSING * float(sigma)
        else:
            link = np.zeros(width, dtype=np.bool_)
            used = totals >= ABOVE * float(sigma) * np.sqrt(members)
            used[0] &= totals[0] >= MISSING * float(sigma)
        bins.append(places.astype(np.float64))
        # a bin that is used has at least a row, so that 0 says that one is not
        rows.append(np.where(used, np.maximum(totals, 1.0), 0.0))
        joined.append(link)
        start += size
    rows[0] = np.maximum(rows[0], max(float(sigma), 1.0))
    return {
        "bins": np.concatenate(bins),
        "rows": np.concatenate(rows),
        "joined": np.concatenate(joined),
    }


def bins_of_cells(bins: dict[str, Any]) -> Any:
    """Return the bin of each cell within its feature."""
    return bins["bins"]


def merged_in_order(counts: Array, sigma: float, most: int) -> NDArray[np.int64]:
    """Return the bin of each cell, where only adjacent cells are merged."""
    totals, members = counts.tolist(), [1] * len(counts)
    while len(totals) > 1:
        excess = [c - ABOVE * sigma * m**0.5 for c, m in zip(totals, members, strict=True)]
        weakest = int(np.argmin(excess))
        if excess[weakest] >= 0 or len(totals) <= LEAST:
            if len(totals) <= most:
                break
            weakest = int(np.argmin(totals))
        # with the smaller of its neighbours
        around = [i for i in (weakest - 1, weakest + 1) if 0 <= i < len(totals)]
        other = min(around, key=lambda i: totals[i])
        first, second = sorted((weakest, other))
        totals[first : second + 1] = [totals[first] + totals[second]]
        members[first : second + 1] = [members[first] + members[second]]
    return np.repeat(np.arange(len(totals)), members)


def merged_by_size(counts: Array, sigma: float, most: int) -> NDArray[np.int64]:
    """Return the bin of each cell, where those of few rows share the last bin."""
    order = np.argsort(-counts, kind="stable")
    # one bin is left for all that are below the noise, or are too many
    large = [int(i) for i in order if counts[i] >= ABOVE * sigma]
    if len(large) < len(counts):
        large = large[: most - 1]
    large = large[:most]
    places = np.full(len(counts), len(large), dtype=np.int64)
    places[large] = np.arange(len(large))
    return places


# -----------------------------------------------------------------------------
# The steps: released sums in, scores out.


def initial_state(size: int) -> dict[str, Any]:
    """Return the state before the first step: scores, the last step, and the scores' mean."""
    zero = np.zeros(int(size))
    return {"scores": zero, "step": zero, "mean": zero, "round": 0}


def cell_scores(state: dict[str, Any], bins: dict[str, Any], *, sizes: list[int], most: int) -> Any:
    """Return the score of each cell, flat from shape (k, 1 + cells)."""
    scores = by_output(state["scores"], bins)
    return scores[:, coordinates(bins, sizes, most)].reshape(-1)


def by_output(values: Any, bins: dict[str, Any]) -> Array:
    """Return numbers by bin, one row for each of k scores."""
    return np.asarray(values, dtype=np.float64).reshape(-1, len(bins["rows"]))


def coordinates(bins: dict[str, Any], sizes: list[int], most: int) -> NDArray[np.int64]:
    """Return the coordinate of each cell's bin among all bins."""
    starts = np.cumsum([1, *bin_sizes(sizes, most)[:-1]])
    offsets = np.concatenate([[0], np.repeat(starts, sizes)])
    return np.asarray(offsets + np.asarray(bins["bins"]), dtype=np.int64)


def boosting_step(
    state: dict[str, Any], gradient: Any, sigma: float, bins: dict[str, Any], *, half: int
) -> dict[str, Any]:
    """Return the state after a step of all scores at once (post-processing).

    The step is ``u <- momentum u - rate (D + smooth L + ridge)^-1 g``, D the bins' counts times the
    loss's largest second derivative, L the Laplacian of the paths of adjacent bins.
    """
    g, noise = by_output(gradient, bins), float(sigma)
    rows, joined = np.asarray(bins["rows"]), np.asarray(bins["joined"])
    used = rows > 0
    curvature = CURVATURE * (1 if len(g) == 1 else 2)
    weight = SMOOTH * noise * joined
    diagonal = np.where(used, curvature * rows + RIDGE * noise, 1.0)
    diagonal[0] = curvature * rows[0]
    diagonal[1:] += weight[:-1]
    diagonal += weight
    above = np.concatenate([[0.0], -weight[:-1]])
    direction = solveh_banded(np.stack([above, diagonal]), np.where(used, g, 0.0).T).T
    step = MOMENTUM * by_output(state["step"], bins) - RATE * direction
    scores = by_output(state["scores"], bins) + step
    number = int(state["round"]) + 1
    mean = by_output(state["mean"], bins)
    # the running mean of the scores after the first half of the rounds
    mean = mean + (scores - mean) / (number - half) if number > half else scores
    return {"scores": scores, "step": step, "mean": mean, "round": number}


def mean_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state whose scores are the mean of the last half of the rounds, steepened."""
    return {"scores": steep(state["mean"])}


# -----------------------------------------------------------------------------
# The model: shape functions in the columns' own values.


def shape_functions(
    state: dict[str, Any],
    bins: dict[str, Any],
    *,
    features: dict[str, Any],
    classes: list[str],
    sizes: list[int],
    most: int,
) -> dict[str, Any]:
    """Return the model: an intercept, and the scores of each feature's bins or categories.

    Each shape is shifted so that its mean over rows is 0, and the intercept takes the shift.
    """
    scores = by_output(state["mean"], bins)
    rows = np.asarray(bins["rows"])
    places = coordinates(bins, sizes, most)
    intercept = scores[:, 0].copy()
    shapes: dict[str, Any] = {}
    start, begin = 1, 1
    for (name, document), size, width in zip(
        features.items(), sizes, bin_sizes(sizes, most), strict=True
    ):
        weights = rows[begin : begin + width]
        own = scores[:, begin : begin + width]
        mean = own @ weights / max(float(weights.sum()), 1.0)
        intercept += mean
        # a bin that is not used has the mean of the others
        centered = np.where(weights > 0, own - mean[:, None], 0.0)
        of_cell = places[start : start + size] - begin
        shapes[name] = _shape(document, centered, weights, of_cell)
        start, begin = start + size, begin + width
    if len(scores) == 1:
        return {"intercept": float(intercept[0]), "shapes": shapes}
    return {"intercept": intercept, "shapes": shapes, "classes": classes}


def _shape(document: Any, scores: Array, rows: Array, of_cell: NDArray[np.int64]) -> dict[str, Any]:
    """Return one feature's shape function."""

    def of(bin_numbers: NDArray[np.int64]) -> Any:
        # (m,) of one score, (m, k) of several
        chosen = scores[:, bin_numbers].T
        return chosen[:, 0] if len(scores) == 1 else chosen

    missing: Any = of(of_cell[:1])[0]
    if len(scores) == 1:
        missing = float(missing)
    cells = of_cell[1:]
    if "categories" in document:
        return {"categories": document["categories"], "scores": of(cells), "missing": missing}
    declared = Interval(*document["bounds"])
    # where the bin changes from one cell to the next
    first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    edges = np.concatenate([cell_edges(declared)[first], [declared.upper]])
    return {
        "edges": edges,
        "scores": of(cells[first]),
        "rows": rows[cells[first]],
        "missing": missing,
    }


def better_of_both(model: dict[str, Any], right: float, counts: Any, sigma: float) -> Any:
    """Return the model, or one that predicts the most frequent class for every row.

    Of the latter the intercept is the classes' log odds, and the shapes are so flat that no row's
    class differs: the order of the rows' scores stays the same.

    Parameters
    ----------
    model
        As `shape_functions` returns it.
    right, counts, sigma
        As of `odds_of_classes`.
    """
    constant = odds_of_classes(right, counts, sigma, len(model["shapes"]))
    if constant is None:
        return model
    log_odds, gap = constant
    several = "classes" in model
    sizes = [
        max(np.abs(np.asarray(shape[part])).max(initial=0.0) for part in ("scores", "missing"))
        for shape in model["shapes"].values()
    ]
    factor = min(1.0, 0.49 * gap / max(float(sum(sizes)), 1e-300))
    shapes = {
        name: {**shape, **{part: shape[part] * factor for part in ("scores", "missing")}}
        for name, shape in model["shapes"].items()
    }
    intercept = log_odds if several else float(log_odds[1] - log_odds[0])
    return {**model, "intercept": intercept, "shapes": shapes}


def additive_scores(model: Mapping[str, Any], data: Mapping[str, NDArray[Any]]) -> Array:
    """Return the scores of rows, shape (n,), or (n, k) of several classes.

    Parameters
    ----------
    model
        As `AdditiveModel` releases it.
    data
        The features' columns.
    """
    total: Any = np.asarray(model["intercept"], dtype=np.float64)
    for name, shape in model["shapes"].items():
        scores = np.asarray(shape["scores"], dtype=np.float64)
        # with that of what is missing in front, at place 0
        table = np.concatenate([[shape["missing"]], scores]).astype(np.float64)
        if "categories" in shape:
            places = column_cells(data[name], Categories(tuple(shape["categories"])))
        else:
            places = places_between(data[name], np.asarray(shape["edges"], dtype=np.float64))
        total = total + table[places]
    return np.asarray(total)


# -----------------------------------------------------------------------------
# The learner.


@frozen
class AdditiveModel(ColumnLearner[dict[str, Any]]):
    """Classification by a sum of shape functions, one of each feature, as a subgraph.

    The score of a row is ``intercept + f_1(x_1) + ... + f_d(x_d)``, each f_j a step function that
    can be plotted and edited: a generalised additive model, known as an explainable boosting
    machine where it is fitted by boosting. Of two classes it is the log odds of the second, of k
    classes there are k of each.

    Released are

    1. the numbers of rows in cells of all features at once, with 15 % of mu^2: 127 cells of a
       number, on a uniform and on a logarithmic scale, the declared categories, and a cell for what
       is missing, so that rows with missing features are learned from;
    2. `steps` times, with the rest: the gradient of the loss by the scores of all bins, and of the
       intercept: sums of the rows' slopes, clipped to `clip`.

    3. the rows whose class the scores predict, and the rows by class: where the first are not more
       than the most frequent class has, that class is the answer (`check_share` of mu^2, of which
       1. and 2. share the rest).

    What follows is post-processing. Cells are merged until each bin stands above its noise. Each
    step is scaled by the bins' counts and smoothed along the bins of a number in proportion to the
    noise, with momentum; the scores are the mean of the last half of the steps.

    Rows without a target are left out.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        A column of two or more categories.
    steps
        The number of rounds.
    clip
        To which a row's slope (of the logistic loss, at most 1; of several classes, the norm of
        its slopes, at most the root of 2) is shortened. With 1/2 the noise is half of what it would
        be; the class of the larger score stays the same.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Nori, Caruana, Bu, Shen and Kulkarni 2021 (DP-EBM): a private additive model, whose rounds go
    through the features one by one, and whose binning and fitting are composed by adding up
    epsilon. The cost is the Gaussian's own (Dong, Roth and Su 2022, Corollary 2). Bins, clip,
    smoothing and steps are our own; their constants were chosen on public data.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.AdditiveModel(["age"], "ill")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> 0.999 < plan.certify().epsilon <= 1
    True
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(abs(age - 50) < 20, "yes", "no")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [10, 50, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes', 'no']
    >>> shape = model["shapes"]["age"]  # plt.stairs(shape["scores"], shape["edges"])
    >>> len(shape["edges"]) - len(shape["scores"])
    1
    """

    steps: int = field(
        default=40,
        validator=checked(lambda v: type(v) is int and 1 <= v <= 10_000, "an int in [1, 10000]"),
    )
    clip: float = field(default=0.5, validator=within(1e-9, 1e9))
    free: str = "sigma"

    title: ClassVar[str] = "additive model"
    linear: ClassVar[bool] = False

    def complete(self, table: Table) -> Table:
        """Return the rows that have a target: what is missing of a feature is a bin of its own."""
        return complete_rows(table, (self.target,))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[dict[str, Any]]:
        """Return the intercept, and the shape functions by feature."""
        goal = table.domain.find(self.target)
        if not isinstance(goal, Categories):
            raise DeclarationError(
                f"AdditiveModel's target must have categories, but {self.target!r} is declared as "
                f"{goal}; for numbers use dp.BoostedSSP"
            )
        classes = len(goal.values)
        columns = declarations(table.domain, (*self.features, self.target))
        loss = Logistic() if classes == 2 else Multinomial(classes)
        operation = BinsOf(self.features, self.target, loss.labels, columns)
        rows: Private[Any] = Private(operation, (table,))
        sizes = list(rows.domain.sizes)
        # shares of mu^2: SHARE for the counts, (1 - SHARE) / steps for each step, 1 in all; the
        # factor keeps the sum of their squares below mu^2, rounding included
        mu = None
        if budget is not None:
            mu = largest_mu(budget.epsilon, budget.delta) * (1 - 1e-9)
        # the check of the model has a share of its own, a half for each of its counts
        check = check_share(budget, classes)

        def release(query: PrivateQuery[Any], share: float, name: str) -> Released[Any]:
            # a share of mu^2: sigma is sensitivity / (mu sqrt(share))
            noise = gaussian_noise(query, table, mu, free=self.free, share=share)
            return query.release(noise, name=name)

        grid = {"sizes": sizes, "most": BINS}
        counts = release(PrivateQuery(BinCounts(), (rows,)), SHARE * (1 - check), "counts")
        ordered = [isinstance(columns[name], Interval) for name in self.features]
        bins = post(layout, counts, parameter(counts, "sigma"), ordered=ordered, **grid)
        places = post(bins_of_cells, bins)

        def step(state: Released[Any]) -> Released[Any]:
            # the query is at released scores, by released bins: adaptive composition covers it
            scores = post(cell_scores, state, bins, **grid)
            query = BinGradient(loss, self.clip, BINS)
            asked: PrivateQuery[Any] = PrivateQuery(query, (rows, scores, places))
            gradient = release(asked, (1 - SHARE) * (1 - check) / self.steps, "gradient")
            noise = parameter(gradient, "sigma")
            return post(boosting_step, state, gradient, noise, bins, half=self.steps // 2)

        width = loss.outputs * (1 + sum(bin_sizes(sizes, BINS)))
        state = repeat(step, self.steps, start=post(initial_state, public(width)))
        model = post(
            shape_functions,
            state,
            bins,
            features={name: _document(columns[name]) for name in self.features},
            classes=[str(value) for value in goal.values],
            **grid,
        )
        learned = post(cell_scores, post(mean_state, state), bins, **grid)
        asked: PrivateQuery[Any] = PrivateQuery(ShallowRows(loss, SHALLOW), (rows, learned))
        right = release(asked, check / 2, "right")
        by_class = release(table[self.target].histogram(), check / 2, "classes")
        return post(better_of_both, model, right, by_class, parameter(by_class, "sigma"))


def _document(column: Column) -> dict[str, Any]:
    """Return a feature's declaration as a constant of post-processing."""
    if isinstance(column, Categories):
        return {"categories": list(column.values)}
    assert isinstance(column, Interval)
    return {"bounds": [column.lower, column.upper]}
