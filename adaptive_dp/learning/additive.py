"""An additive model: one shape function for each feature, fitted by noisy steps on all bins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional
from numpy.typing import NDArray
from scipy.linalg import solveh_banded
from scipy.special import log_ndtr

from accountants import (
    BoundedRange,
    Distribution,
    Guarantee,
    Repeated,
    Sequential,
    Spend,
    Term,
    calibrate,
)
from accountants import Gaussian as GaussianLoss
from adaptive_dp.erm import Logistic, Loss, Multinomial, Squared
from adaptive_dp.graph.errors import DeclarationError
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
from adaptive_dp.learning.base import (
    SHALLOW,
    STEEP,
    Array,
    ColumnLearner,
    LearnerBudget,
    check_share,
    gaussian_noise,
    odds_of_classes,
    released_checks,
    steep,
    within,
)
from adaptive_dp.learning.boosted_ssp import BoostedSSP
from adaptive_dp.mechanisms.additive import checked, largest_mu
from adaptive_dp.mechanisms.selection import TopK
from adaptive_dp.queries.bins import (
    BinCounts,
    BinGains,
    BinGradient,
    BinPairs,
    BinsOf,
    ShallowLessSteep,
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

LINE = 0.45
"""The share of mu^2 of the linear start."""

ODDS = 2.5
"""The log odds over the linear start of two classes, which is fitted to -1 and 1."""

STEPS_NOISE = 0.42
"""The noise of all steps together over that of a count: ``sqrt(SHARE / (1 - SHARE))``."""

ABOVE_STEPS = 6 * STEPS_NOISE
"""A bin of a number has at least this many deviations of a cell's noise, where there is one score:
six of the noise of all steps together."""

SHARES_OF_PRIOR = np.array([1.0, 0.25, 0.06, 0.015, 0.004, 0.0005])
"""The shares of a shape's prior variance that `likeliest` chooses among."""

EASE = 0.7
"""The share of the last step that is taken again, where there is one score."""

VARIANCE = 0.2
"""The size of residuals of two classes, squared."""

ROUGH = 3.0
"""The variance of a shape between its ends, as a random walk over ranks, over that of its bins."""

PAIRS, PAIRED = 4, 2_500.0
"""The number of pairs of features, from so many rows times epsilon on (`strength`)."""

PAIR_SHARE = 0.15
"""The share of mu^2, without that of the check, that pairs have where there are any."""

CHOICE, TABLE_COUNTS = 0.2, 0.05
"""Their shares of it: of the choice among pairs, and of the counts by cell; steps have the rest."""

COARSE, FINE = 4, 8
"""The groups of a feature's bins in the tables that pairs are chosen by, and in those that stay."""

ROUNDS = 3
"""The number of steps of tables."""

STRONGEST = 24
"""Pairs are chosen among so many features, those whose shapes vary the most."""

ROWS = 5_000
"""The number of rows where it is not public: of most tables it is more."""


def strength(features: int, epsilon: float, rows: int | None) -> float:
    """Return rows times epsilon, over the root by which an additive model's noise grows."""
    return (rows or ROWS) * epsilon / math.sqrt((features + 1) / 11)


def paired(features: int, epsilon: float, rows: int | None, classes: int = 2) -> int:
    """Return for how many pairs of features rows and budget are enough, by public numbers alone.

    Of more than two classes as many more are needed, since each has a table of its own.

    Examples
    --------
    >>> [paired(10, epsilon, 5_000) for epsilon in (0.1, 1.0)]
    [0, 4]
    """
    enough = PAIRED * max(classes / 2, 1.0)
    return PAIRS if strength(features, epsilon, rows) >= enough else 0


# -----------------------------------------------------------------------------
# The bins: cells merged until each bin's count stands above the noise. All post-processing.


def layout(
    counts: Any,
    sigma: float,
    *,
    sizes: list[int],
    ordered: list[bool],
    most: int,
    above: float,
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
    above
        The least count of a number's bin, over ``sigma``; 0 for what `merged_in_order` does.

    Returns
    -------
    dict
        ``bins``, the bin of each cell within its feature, shape (1 + cells,); ``rows``, the count
        of each bin, 0 of one that is not used, shape (1 + bins,); ``joined``, where a bin is
        followed by an adjacent one, 1 over the share of its feature's rows between their middles,
        else 0; and ``level``, 1 over the number of a feature's joined bins, or 1.
    """
    cells = np.asarray(counts, dtype=np.float64)
    bins, rows, joined, level = [np.zeros(1)], [cells[:1]], [np.zeros(1)], [np.zeros(1)]
    start = 1
    for size, is_ordered, width in zip(sizes, ordered, bin_sizes(sizes, most), strict=True):
        own = cells[start : start + size]
        if is_ordered:
            merged = merged_in_order(own[1:], float(sigma), width - 1, above)
        else:
            merged = merged_by_size(own[1:], float(sigma), width - 1)
        # bin 0 is that of what is missing, whatever its count
        places = np.concatenate([[0], 1 + merged])
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
        filled = np.where(used, np.maximum(totals, 1.0), 0.0)
        rows.append(filled)
        between = (filled + np.append(filled[1:], 1.0)) / (2 * max(float(filled.sum()), 1.0))
        joined.append(np.where(link, 1 / np.maximum(between, 1e-6), 0.0))
        level.append(np.where(link.any(), 1 / (1.0 + link.sum()), np.ones(width)))
        start += size
    rows[0] = np.maximum(rows[0], max(float(sigma), 1.0))
    return {
        "bins": np.concatenate(bins),
        "rows": np.concatenate(rows),
        "joined": np.concatenate(joined),
        "level": np.concatenate(level),
    }


def bins_of_cells(bins: dict[str, Any]) -> Any:
    """Return the bin of each cell within its feature."""
    return bins["bins"]


def merged_in_order(
    counts: Array, sigma: float, most: int, above: float = 0.0
) -> NDArray[np.int64]:
    """Return the bin of each cell, where only adjacent cells are merged.

    Each bin's count is at least `ABOVE` deviations of its noise, while there are more than `LEAST`;
    with ``above`` also that many of a cell's, while there are more than two.
    """
    least = 2 if above else LEAST
    totals, members = counts.tolist(), [1] * len(counts)
    while len(totals) > 1:
        excess = [
            c - sigma * max(ABOVE * m**0.5, above) for c, m in zip(totals, members, strict=True)
        ]
        weakest = int(np.argmin(excess))
        if excess[weakest] >= 0 or len(totals) <= least:
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
    sizes = {"scale": 1.0, "spread": 0.0, "size": 1.0, "prior": 1.0, "known": 0.0}
    return {"scores": zero, "step": zero, "mean": zero, "seen": zero, "round": 0, **sizes}


def slopes_scale(state: dict[str, Any]) -> float:
    """Return what slopes are divided by before they are clipped to 1."""
    return float(state["scale"])


def no_start(counts: Any) -> Any:
    """Return scores by cell that are 0."""
    return np.zeros(len(np.asarray(counts)))


def linear_start(
    line: dict[str, Any],
    counts: Any,
    sigma: float,
    *,
    features: dict[str, Any],
    sizes: list[int],
    goal: list[float],
    odds: float,
) -> Any:
    """Return the score of each cell by a linear model: at the middle of a number's cell.

    A model of few rows may be noise alone. It is shrunk where rows are few for the noise, and where
    its values vary by more than targets that are uniform within their bounds.

    Parameters
    ----------
    line
        The coefficients in data units.
    counts, sigma
        The released counts by cell, shape (1 + cells,), and their noise.
    features
        Their declarations.
    sizes
        The numbers of cells.
    goal
        (middle, half) of the target's bounds, which are -1 and 1 for scores.
    odds
        By what scores are multiplied in the end.
    """
    cells, (middle, half) = np.asarray(counts, dtype=np.float64), goal
    scores, intercept, start = np.zeros(len(cells)), float(line["intercept"]) - middle, 1
    variance = 0.0
    for (name, document), size in zip(features.items(), sizes, strict=True):
        if name in line:
            edges = cell_edges(Interval(*document["bounds"]))
            at = edges[:-1] + np.diff(edges) / 2
            weights = np.maximum(cells[start + 1 : start + size], 0.0)
            # what is missing, the first cell, has the score of the mean
            mean = float(weights @ at) / total if (total := float(weights.sum())) > 0 else at.mean()
            intercept += float(line[name]) * mean
            values = float(line[name]) * (at - mean) / half
            scores[start + 1 : start + size] = values
            variance += float(weights @ values**2) / max(total, 1.0)
        start += size
    # a number of rows that noise explains is none; of two classes some are needed for the noise of
    # all steps, STEPS_NOISE of a count's; of a number coefficients are shrunk by their own noise
    surely = max(float(cells[0]) - float(sigma) ** 2 / max(float(cells[0]), 1e-300), 0.0)
    needed = (2.0 if odds == 1 else 10 * STEPS_NOISE) * float(sigma)
    trust = min(1.0, (surely / needed) ** 2)
    scores *= trust * min(1.0, (1 / 3 / max(variance, 1e-300)) ** 0.5)
    scores[0] = trust * min(max(intercept / half, -1.0), 1.0)
    return odds * scores


def cell_scores(
    state: dict[str, Any], bins: dict[str, Any], start: Any, *, sizes: list[int], most: int
) -> Any:
    """Return the score of each cell, flat from shape (k, 1 + cells)."""
    scores = by_output(state["scores"], bins)
    # of several classes each starts from 0
    return (scores[:, coordinates(bins, sizes, most)] + np.asarray(start)).reshape(-1)


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
    """Return the state after a step of several classes' scores (post-processing).

    The step is ``u <- momentum u - rate (D + smooth L + ridge)^-1 g``, D the bins' counts times the
    loss's largest second derivative, L the Laplacian of the paths of adjacent bins.
    """
    g, noise = by_output(gradient, bins), float(sigma)
    rows, joined = np.asarray(bins["rows"]), np.asarray(bins["joined"]) > 0
    used = rows > 0
    curvature = 2 * CURVATURE
    weight = SMOOTH * noise * joined
    diagonal = np.where(used, curvature * rows + RIDGE * noise, 1.0)
    diagonal[0] = curvature * rows[0]
    diagonal[1:] += weight[:-1]
    diagonal += weight
    above = np.concatenate([[0.0], -weight[:-1]])
    direction = solveh_banded(np.stack([above, diagonal]), np.where(used, g, 0.0).T).T
    step = MOMENTUM * by_output(state["step"], bins) - RATE * direction
    return moved(state, by_output(state["scores"], bins) + step, step, half)


def moved(state: dict[str, Any], scores: Array, step: Array, half: int) -> dict[str, Any]:
    """Return the state with new scores, and their running mean after the first half of rounds."""
    number = int(state["round"]) + 1
    mean = np.asarray(state["mean"]).reshape(scores.shape)
    mean = mean + (scores - mean) / (number - half) if number > half else scores
    return {**state, "scores": scores, "step": step, "mean": mean, "round": number}


def posterior_step(
    state: dict[str, Any],
    gradient: Any,
    sigma: float,
    bins: dict[str, Any],
    *,
    features: int,
    steps: int,
    clip: float,
    widths: list[int],
) -> dict[str, Any]:
    """Return the state after a step of one score (post-processing).

    A shape u of a feature is thought of as a random walk over the ranks of its bins (categories: as
    independent numbers) of precision Q, and a bin's sum of slopes g, over its count N times the
    loss's second derivative, ``D = h N``, as u's error there with variance ``V / D^2``, ``V = s^2 +
    r^2 N``: s is the noise of all steps together and r the size of residuals. The step is Newton's
    towards the posterior mean, ``- (D^2/V + Q)^-1 (D g/V + Q u)``, with momentum: where noise is
    all that there is, shapes stay 0.

    With ``n/s``, rows over noise, shapes may vary more, and the squared loss is clipped farther
    out. Of a number it may be less, as far as noise explains what bins say (`likeliest`).

    Parameters
    ----------
    features
        Their number.
    steps
        Of all rounds.
    clip
        Of the logistic loss's slopes; 0 for the squared loss, whose gradient has one coordinate
        more, the sum of the squares (`BinGradient`).
    widths
        The number of bins of each feature.
    """
    s, scale = float(sigma), float(state["scale"])
    rows, number = np.asarray(bins["rows"], dtype=np.float64), int(state["round"])
    given = np.asarray(gradient, dtype=np.float64)
    n, used, spread, move = float(rows[0]), rows > 0, 1.0, 0.0
    quality = n / (s / (clip or 1.0) / steps**0.5)
    # below twelve rows over noise little can be learned: what the prior says is kept
    # (and a number of rows that its own noise explains is none)
    surely = max(quality - 1 / (STEPS_NOISE**2 * quality), 0.0)
    trust = max(min(1.0, (surely / 12) ** 2), 1e-9)
    if clip:
        g, h, residual = given, CURVATURE, VARIANCE
    else:
        g, h = given[:-1] * scale, 1.0
        # the clip over the size of residuals, which a prior guess of three deviations steadies
        wide = min(max(0.5 * quality**0.25, 1.5), 6.0)
        square = max((float(given[-1]) + 3 * s / wide**2) / (n + 3 * s), 0.02)
        residual, spread = min(square, 1.0) * scale**2, float(state["spread"])
        if number == 0:
            # the mean at once; what it explains is no more a residual
            move = -float(g[0]) / (n + 3 * s) * trust
            spread = max(residual - (g[0] / n) ** 2, 0.02 * residual)
            g = g + rows * move
    loose = min(max(quality / 250, 0.1), 10.0)
    variance = spread / features * loose * trust
    # later steps average over most of the rounds: the mean of the last half has them all
    total = s * scale / (0.7 * steps) ** 0.5
    v, d = total**2 + residual * rows, h * rows
    joined = np.asarray(bins["joined"]) / ROUGH
    u, last = by_output(state["scores"], bins)[0], by_output(state["step"], bins)[0]
    seen, prior = np.asarray(state["seen"]), float(state["prior"])
    if not clip:
        # rounds weigh by their noise, which falls with the clip
        weight = 1 / max(s * scale, 1e-150) ** 2
        known = float(state["known"]) + weight
        seen = seen + (d * u - g - seen) * (weight / known)
        if number in (steps // 5, 2 * steps // 5):
            noise = 1 / known + residual * rows
            # the first round asked has the errors of counts in it the least
            prior = min(prior, likeliest(seen, noise, d, bins, variance, widths))
        # at most what a small budget says anyway: there evidence is too weak to say less
        variance *= max(prior, 0.1 / loose)

    # Q: numbers of a variance, and increments of one in proportion to the ranks between them
    diagonal = np.asarray(bins["level"]) + joined
    diagonal[1:] += joined[:-1]
    q = np.stack([np.concatenate([[0.0], -joined[:-1]]), diagonal]) / variance
    pull = q[1] * u + np.append(q[0, 1:] * u[1:], 0.0) + np.append(0.0, q[0, 1:] * u[:-1])
    # the intercept lies within bounds of a half width of 1, as far as is known without data
    q[1, 0] = (0.3 if clip else 10.0) / trust
    pull[0] = q[1, 0] * u[0]
    with_data = q + np.stack([np.zeros(len(rows)), np.where(used, d**2 / v, 0.0)])
    direction = solveh_banded(with_data, np.where(used, d * g / v, 0.0) + pull)
    direction[0] = 0.0 if move else direction[0]
    rate = min(0.3, 4 / 3 * (1 + EASE) / (features + 1))
    step = EASE * last - rate * direction
    scores = u + step
    scores[0] += move
    result = moved(state, scores[None], step[None], steps // 2)
    result["size"] = residual**0.5
    if not clip:
        # at most twice or half of what it was, and never beyond what the bounds allow
        factor = min(max(square**0.5 * wide, 0.5), 2.0)
        result |= {"scale": min(scale * factor, 2.0), "spread": spread}
        result |= {"seen": seen, "known": known, "prior": prior}
    return result


def likeliest(
    seen: Array, v: Array, d: Array, bins: dict[str, Any], variance: float, widths: list[int]
) -> float:
    """Return the share of a prior variance under which what the bins say is the most likely.

    A shape is thought of as Gaussian of the covariance ``t variance Q^-1``, and what its bins say
    as D times that and noise of variances V, of the sample and of the releases. t is one of
    `SHARES_OF_PRIOR`, the same for all features: where noise is all that there is, the least
    (empirical Bayes, Efron and Morris 1973).

    Parameters
    ----------
    seen, v, d
        The mean of ``D u - g`` over rounds, V and D, by bin, the intercept first.
    bins
        As of `layout`.
    variance
        Of a shape between its ends, at t = 1.
    widths
        The number of bins of each feature.
    """
    joined, level = np.asarray(bins["joined"]) / ROUGH, np.asarray(bins["level"])
    likelihoods, begin = np.zeros(len(SHARES_OF_PRIOR)), 1
    for width in widths:
        own = slice(begin, begin + width)
        begin += width
        beside = -np.diag(joined[own][:-1], 1)
        diagonal = np.diag(level[own] + joined[own] + np.append(0.0, joined[own][:-1]))
        spread = np.outer(d[own], d[own]) * np.linalg.inv(diagonal + beside + beside.T)
        # whitened by the noise: the eigenvalues serve all t
        root = v[own] ** -0.5
        values, basis = np.linalg.eigh(spread * np.outer(root, root) * variance)
        along = (basis.T @ (seen[own] * root)) ** 2
        total = 1 + np.outer(SHARES_OF_PRIOR, np.maximum(values, 0.0))
        likelihoods -= (np.log(total) + along / total).sum(axis=1) / 2
    return float(SHARES_OF_PRIOR[np.argmax(likelihoods)])


def mean_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state whose scores are the mean of the last half of the rounds."""
    return {"scores": state["mean"]}


# -----------------------------------------------------------------------------
# Pairs: tables by two features, chosen by how much is left in them. All post-processing.


def groups_of_bins(
    bins: dict[str, Any], *, sizes: list[int], ordered: list[bool], most: int, count: int
) -> Array:
    """Return the group of each cell within its feature, shape (1 + cells,), as of released counts.

    Of numbers there are `count` groups of about as many rows, of categories the largest by
    themselves, and the others are the last. Group 0 is that of what is missing.
    """
    rows, places = np.asarray(bins["rows"]), np.asarray(bins["bins"], dtype=np.int64)
    groups, first, begin = [np.zeros(1)], 1, 1
    for size, width, is_ordered in zip(sizes, bin_sizes(sizes, most), ordered, strict=True):
        group = groups_of_rows(rows[first : first + width], is_ordered, count)
        groups.append(group[places[begin : begin + size]])
        first, begin = first + width, begin + size
    return np.concatenate(groups)


def groups_of_rows(rows: Array, is_ordered: bool, count: int) -> Array:
    """Return the group of each bin of a feature, by the bins' rows, the first what is missing."""
    own, group = rows[1:], np.zeros(len(rows))
    if is_ordered:
        middles = (np.cumsum(own) - own / 2) / max(float(own.sum()), 1.0)
        rank = np.floor(middles * count)
    else:
        rank = np.argsort(np.argsort(-own, kind="stable"), kind="stable").astype(np.float64)
    group[1:] = 1 + np.minimum(rank, count - 1)
    return group


def rows_of_groups(groups: Any, counts: Any, sizes: list[int], width: int) -> list[Array]:
    """Return the rows of each feature's groups, by the released counts of their cells."""
    cells, found, begin = np.maximum(np.asarray(counts, dtype=np.float64), 0.0), [], 1
    for size in sizes:
        own = slice(begin, begin + size)
        rows = np.bincount(groups[own].astype(np.int64), cells[own], minlength=width)
        found.append(np.asarray(rows, dtype=np.float64))
        begin += size
    return found


def candidate_pairs(scores: Any, counts: Any, *, sizes: list[int]) -> Array:
    """Return pairs of features to choose from, shape (m, 2): of the strongest, all of them.

    Parameters
    ----------
    scores, counts
        By cell, released.
    sizes
        The numbers of cells.
    """
    weights = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    given, variances, begin = np.asarray(scores).reshape(-1, len(weights)), [], 1
    for size in sizes:
        own, w = given[:, begin : begin + size], weights[begin : begin + size] + 1e-9
        apart = own - np.average(own, axis=1, weights=w)[:, None]
        variances.append(float(np.average(apart**2, axis=1, weights=w).sum()))
        begin += size
    strongest = np.sort(np.argsort(-np.array(variances), kind="stable")[:STRONGEST])
    return np.array(list(itertools.combinations(strongest.tolist(), 2)), dtype=np.float64)


def table_bins(counts: Any, *, pairs: int, width: int) -> Array:
    """Return the bin of each cell where those of tables are bins of their own."""
    own = np.tile(np.arange(width**2, dtype=np.float64), pairs)
    return np.concatenate([np.zeros(len(np.asarray(counts))), own])


def table_scores(scores: Any, tables: dict[str, Any]) -> Any:
    """Return the scores by cell, flat from shape (k, cells), those of tables last."""
    of_tables = np.asarray(tables["scores"])
    own = np.asarray(scores).reshape(len(of_tables), -1)
    return np.concatenate([own, of_tables], axis=1).reshape(-1)


def initial_tables(pairs: int, *, width: int, outputs: int) -> dict[str, Any]:
    """Return the state before the first step of tables: scores of shape (k, cells)."""
    zero = np.zeros((outputs, int(pairs) * width**2))
    return {"scores": zero, "seen": zero, "round": 0}


def chance_levels(
    state: dict[str, Any],
    groups: Any,
    counts: Any,
    candidates: Any,
    *,
    sizes: list[int],
    clip: float,
    outputs: int,
) -> Array:
    """Return what the gain of each pair would be by chance, if its features were independent.

    Residuals of a size r add up to about ``sqrt(2 N / pi) r`` in a cell of N rows.
    """
    rows = rows_of_groups(groups, counts, sizes, COARSE + 1)
    size = outputs * spread_of_slopes(outputs) ** 0.5
    if not clip:
        size = float(state["size"]) / float(state["scale"])
    n = max(float(np.asarray(counts)[0]), 1.0)
    levels = []
    for first, second in np.asarray(candidates, dtype=np.int64):
        roots = np.sqrt(rows[first]).sum() * np.sqrt(rows[second]).sum() / n**0.5
        levels.append(math.sqrt(2 / math.pi) * size * roots)
    return np.array(levels)


def spread_of_slopes(outputs: int) -> float:
    """Return about how large the square of a slope is, by each of the scores."""
    return VARIANCE if outputs == 1 else 1 / outputs * (1 - 1 / outputs)


def chosen_pairs(choice: Any, candidates: Any) -> Any:
    """Return the pairs that were chosen, shape (k, 2)."""
    return np.asarray(candidates)[np.asarray(choice, dtype=np.int64)]


def table_rows(
    by_cell: Any, sigma: float, counts: Any, groups: Any, pairs: Any, *, sizes: list[int]
) -> Array:
    """Return about how many rows each cell of each table has, shape (k, cells), none below 1.

    Counts of cells are noisy, those of the features' groups hardly: a table's counts are shrunk
    towards what there would be if its features were independent, by the share of how far they lie
    from that which noise explains (Efron and Morris 1973). None is below its own error.

    Parameters
    ----------
    by_cell, sigma
        The rows by cell of all tables, and their noise.
    counts
        The rows by cell of the features.
    groups, pairs
        The group of each cell, and the tables' features.
    sizes
        The numbers of cells.
    """
    chosen = np.asarray(pairs, dtype=np.int64)
    rows, found = rows_of_groups(groups, counts, sizes, FINE + 1), []
    n = max(float(np.asarray(counts)[0]), 1.0)
    given = np.asarray(by_cell, dtype=np.float64).reshape(len(chosen), -1)
    for (first, second), own in zip(chosen, given, strict=True):
        alone = np.outer(rows[first], rows[second]).reshape(-1) / n
        apart = own - alone
        kept = max(0.0, 1 - float(sigma) ** 2 / max(float(np.mean(apart**2)), 1e-300))
        found.append(np.maximum(alone + kept * apart, max(kept**0.5 * float(sigma), 1.0)))
    return np.array(found)


def table_step(
    tables: dict[str, Any],
    gradient: Any,
    sigma: float,
    rows: Any,
    state: dict[str, Any],
    *,
    pairs: int,
    clip: float,
) -> dict[str, Any]:
    """Return the state after a step of the tables' scores (post-processing).

    A table's scores u are thought of as independent, of a variance tau. At the sums g of slopes,
    ``y = D u - g`` is D times a cell's score with the variance ``V = s^2 + r^2 N`` (as in
    `posterior_step`; s^2 of the mean of all rounds). tau is the excess of the squares of y over V,
    less half of its error, and at most what residuals leave. The step is towards the posterior mean
    ``tau D y / (tau D^2 + V)``: where noise is all that there is, tables stay 0.

    Parameters
    ----------
    gradient, sigma
        The sums by cell of all tables, and their noise, over the scale of residuals of a number.
    rows
        Of each cell, as of `table_rows`.
    state
        That of the shapes.
    clip
        Of the logistic loss's slopes; 0 of the squared loss.
    """
    scale = 1.0 if clip else float(state["scale"])
    number, before = int(tables["round"]) + 1, np.asarray(tables["scores"])
    outputs, n = len(before), np.asarray(rows)
    square = spread_of_slopes(outputs) if clip else float(state["size"]) ** 2
    h = CURVATURE if clip else 1.0
    # shape (k, pairs, cells)
    u = before.reshape(outputs, pairs, -1)
    d, g = h * n, np.asarray(gradient, dtype=np.float64).reshape(u.shape) * scale
    seen = np.asarray(tables["seen"]).reshape(u.shape)
    seen = seen + (d * u - g - seen) / number
    v = (float(sigma) * scale) ** 2 / number + square * n
    weights = (d / v) ** 2
    total = (weights * d**2).sum(axis=1)
    excess = (weights * (seen**2 - v)).sum(axis=2) / total
    error = np.sqrt(2 * total) / total
    tau = np.clip(excess - 0.5 * error, 0.0, square / h**2)[..., None]
    aim = tau * d * seen / (tau * d**2 + v)
    # tables of the same rows: steps of all of them at once are shortened
    scores = u + min(1.0, 1.2 / pairs**0.5) * (aim - u)
    after = {"scores": scores.reshape(before.shape), "seen": seen.reshape(before.shape)}
    return {**after, "round": number}


def with_pairs(
    model: dict[str, Any],
    tables: dict[str, Any],
    pairs: Any,
    groups: Any,
    *,
    features: dict[str, Any],
    sizes: list[int],
    half: float,
) -> dict[str, Any]:
    """Return the model with the tables of its pairs, in the columns' own values."""
    chosen = np.asarray(pairs, dtype=np.int64)
    by_class = half * np.asarray(tables["scores"])
    scores = by_class.reshape(len(by_class), len(chosen), FINE + 1, FINE + 1)
    names, starts = list(features), np.cumsum([1, *sizes[:-1]])
    found = []
    for number, places in enumerate(chosen.tolist()):
        axes, kept = [], []
        for place in places:
            document, start = features[names[place]], starts[place]
            group = np.asarray(groups, dtype=np.int64)[start + 1 : start + sizes[place]]
            if "categories" in document:
                axes.append({"categories": document["categories"]})
            else:
                declared = Interval(*document["bounds"])
                first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
                edges = np.concatenate([cell_edges(declared)[first], [declared.upper]])
                axes.append({"edges": edges})
                group = group[first]
            kept.append(np.concatenate([[0], group]))
        pair = {"features": [names[place] for place in places], "axes": axes}
        table = scores[:, number, kept[0][:, None], kept[1]]
        # (m, k) of one score, the scores of several classes last, as of shapes
        own = table[0] if len(table) == 1 else np.moveaxis(table, 0, -1)
        found.append({**pair, "scores": own})
    return {**model, "pairs": found}


# -----------------------------------------------------------------------------
# The model: shape functions in the columns' own values.


def shape_functions(
    state: dict[str, Any],
    bins: dict[str, Any],
    start: Any,
    counts: Any,
    *,
    features: dict[str, Any],
    classes: list[str],
    goal: list[float],
    sizes: list[int],
    most: int,
) -> dict[str, Any]:
    """Return the model: an intercept, and the scores of each feature's bins or categories.

    Each shape is shifted so that its mean over rows is 0, and the intercept takes the shift.
    """
    middle, half = goal
    scores, line = half * by_output(state["mean"], bins), half * np.asarray(start)
    rows, cells = np.asarray(bins["rows"]), np.asarray(counts, dtype=np.float64)
    places = coordinates(bins, sizes, most)
    intercept = scores[:, 0] + line[0] + middle
    shapes: dict[str, Any] = {}
    first, begin = 1, 1
    for (name, document), size, width in zip(
        features.items(), sizes, bin_sizes(sizes, most), strict=True
    ):
        weights = rows[begin : begin + width]
        own = scores[:, begin : begin + width]
        mean = own @ weights / max(float(weights.sum()), 1.0)
        intercept += mean
        # a bin that is not used has the mean of the others
        centered = np.where(weights > 0, own - mean[:, None], 0.0)
        of_cell, own_cells = places[first : first + size] - begin, slice(first, first + size)
        values = centered[:, of_cell] + line[own_cells]
        # steps of a shape are its bins, or its cells where a line runs through them
        steps = of_cell
        if np.any(line[own_cells]):
            steps, weights = np.arange(size), np.maximum(cells[own_cells], 0.0)
        shapes[name] = _shape(document, values, weights, steps)
        first, begin = first + size, begin + width
    if len(scores) == 1:
        return {"intercept": float(intercept[0]), "shapes": shapes}
    return {"intercept": intercept, "shapes": shapes, "classes": classes}


def _shape(document: Any, scores: Array, rows: Array, steps: NDArray[np.int64]) -> dict[str, Any]:
    """Return one feature's shape function, from its scores by cell, the first what is missing."""

    def of(cell_numbers: NDArray[np.int64]) -> Any:
        # (m,) of one score, (m, k) of several
        chosen = scores[:, 1:][:, cell_numbers].T
        return chosen[:, 0] if len(scores) == 1 else chosen

    missing: Any = float(scores[0, 0]) if len(scores) == 1 else scores[:, 0]
    cells = steps[1:]
    if "categories" in document:
        return {
            "categories": document["categories"],
            "scores": of(np.arange(len(cells))),
            "missing": missing,
        }
    declared = Interval(*document["bounds"])
    # where the bin changes from one cell to the next
    first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    edges = np.concatenate([cell_edges(declared)[first], [declared.upper]])
    return {
        "edges": edges,
        "scores": of(first),
        "rows": rows[cells[first]],
        "missing": missing,
    }


def checked_shapes(
    model: Released[dict[str, Any]],
    rows: Private[Any],
    loss: Loss,
    scores: Released[Any],
    table: Table,
    target: str,
    share: float,
    release: Callable[[PrivateQuery[Any], float, str], Released[Any]],
) -> Released[Any]:
    """Return the model, or the most frequent class where it knows no more.

    As of linear models (`adaptive_dp.learning.base.checked_classes`), on rows by cells.

    Parameters
    ----------
    model, rows, loss, scores
        The model, its rows, the loss of classes, and the released scores by cell.
    table, target
        The rows as they are, and their classes.
    share
        Of mu^2, for all that is released.
    release
        A function of a query, a share and a name.
    """
    query = ShallowLessSteep if loss.outputs == 1 else ShallowRows

    def right(at: Released[Any]) -> PrivateQuery[Any]:
        return PrivateQuery(query(loss, SHALLOW), (rows, at))

    def noisy(
        query: PrivateQuery[Any], name: str, part: float
    ) -> tuple[Released[Any], Released[float]]:
        released = release(query, part * share, name)
        return released, parameter(released, "sigma")

    # cells' scores scaled up: a row's slope then says whether its class is the predicted one; and
    # scores that predict the second class for every row: the first cell is the intercept
    learned, second = post(steep, scores), public([STEEP, *[0.0] * (rows.domain.cells - 1)])
    checks = released_checks(right, learned, second, table, target, noisy)
    return post(better_of_both, model, *checks)


def better_of_both(
    model: dict[str, Any],
    right: float,
    counts: Any,
    sigma: float,
    rows: float | None = None,
) -> Any:
    """Return the model, or one that predicts the most frequent class for every row.

    Of the latter the intercept is the classes' log odds, and the shapes are so flat that no row's
    class differs: the order of the rows' scores stays the same.

    Parameters
    ----------
    model
        As `shape_functions` returns it.
    right, counts, sigma, rows
        As of `odds_of_classes`.
    """
    constant = odds_of_classes(right, counts, sigma, len(model["shapes"]), rows)
    if constant is None:
        return model
    log_odds, gap = constant
    several = "classes" in model
    sizes = [
        max(np.abs(np.asarray(shape[part])).max(initial=0.0) for part in ("scores", "missing"))
        for shape in model["shapes"].values()
    ]
    tables = model.get("pairs", [])
    sizes += [np.abs(np.asarray(pair["scores"])).max(initial=0.0) for pair in tables]
    factor = min(1.0, 0.49 * gap / max(float(sum(sizes)), 1e-300))
    shapes = {
        name: {**shape, **{part: shape[part] * factor for part in ("scores", "missing")}}
        for name, shape in model["shapes"].items()
    }
    if tables:
        model = {**model, "pairs": [{**p, "scores": p["scores"] * factor} for p in tables]}
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
        total = total + table[_places(data[name], shape)]
    for pair in model.get("pairs", []):
        places = [_places(data[n], a) for n, a in zip(pair["features"], pair["axes"], strict=True)]
        total = total + np.asarray(pair["scores"], dtype=np.float64)[places[0], places[1]]
    return np.asarray(total)


def _places(values: NDArray[Any], axis: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the place of each value among categories or edges, from 1; 0 of what is missing."""
    if "categories" in axis:
        return column_cells(values, Categories(tuple(axis["categories"])))
    return places_between(values, np.asarray(axis["edges"], dtype=np.float64))


# -----------------------------------------------------------------------------
# The learner.


@frozen
class AdditiveModel(ColumnLearner[dict[str, Any]]):
    """A sum of shape functions, one of each feature, for classes or a number, as a subgraph.

    The score of a row is ``intercept + f_1(x_1) + ... + f_d(x_d)``, each f_j a step function that
    can be plotted and edited: a generalised additive model, known as an explainable boosting
    machine where it is fitted by boosting. Of a target with bounds it is the prediction, of two
    classes the log odds of the second, of k classes there are k of each.

    Released are

    1. for one score, with 45 % of mu^2: a linear model of the features with bounds (`BoostedSSP`;
       of two classes it is fitted to -1 and 1), which is the start. Few rows are enough for it;
    2. the numbers of rows in cells of all features at once, with 15 % of what is left: 127 cells of
       a number, on a uniform and on a logarithmic scale, the declared categories, and a cell for
       what is missing, so that rows with missing features are learned from;
    3. `steps` times, with the rest: the gradient of the loss by the scores of all bins, and of the
       intercept: sums of the rows' slopes, clipped to `clip`. Of a number, residuals are clipped to
       a multiple of their size, which the sum of their clipped squares, released with them,
       follows from step to step (`BinGradient`);
    4. of classes, how many rows have the class that the scores predict, and how many each class:
       where the first are not more than the most frequent class has, that class is the answer
       (`check_share` of mu^2, of which the others share the rest);
    5. where there are pairs, with 15 % of that, before 4.: which pairs of features have the most
       left in them, by the exponential mechanism on what the sums of slopes in a table of 5 x 5
       groups of their bins add up to (`BinGains`); the rows by cell of a table of 9 x 9 groups of
       each chosen pair; and three times the gradient by the cells of all these tables.

    What follows is post-processing. Cells are merged until each bin stands above its noise. Of one
    score each step goes towards the mean of shapes given the sums, noise being known (a Gaussian
    process, `posterior_step`): shapes that noise exceeds stay flat, so that nothing diverges where
    rows are few. Of several classes each step is scaled by the bins' counts and smoothed along the
    bins of a number in proportion to the noise. The scores are the mean of the last half of steps.

    Rows without a target are left out.

    Of pairs the model has ``"pairs"``, a list of tables: ``"features"`` are their names, ``"axes"``
    have the ``"edges"`` or ``"categories"`` of each, and ``"scores"`` are added to those of the
    shapes, shape (1 + m, 1 + k) (of several classes (1 + m, 1 + k, classes)), the first row and
    column of what is missing:
    ``plt.pcolormesh(edges_b, edges_a, scores[1:, 1:])``.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        A column with bounds, or of two or more categories.
    steps
        The number of rounds.
    clip
        Of classes, to which a row's slope (of the logistic loss, at most 1; of several classes, the
        norm of its slopes, at most the root of 2) is shortened. With 1/2 the noise is half of what
        it would be; the class of the larger score stays the same. Of a number it is not read.
    free
        Where no budget is given: the name of the free parameter.
    pairs
        How many pairs of features have a table of their own; None for four where the budget and
        the public number of rows are enough for it (`paired`; 5,000 rows where it is not public),
        and else none.

    References
    ----------
    Nori, Caruana, Bu, Shen and Kulkarni 2021 (DP-EBM): a private additive model, whose rounds go
    through the features one by one, and whose binning and fitting are composed by adding up
    epsilon. The cost is the Gaussian's own (Dong, Roth and Su 2022, Corollary 2). Bins, clip,
    smoothing, steps and pairs are our own; their constants were chosen on public data. Dong, Durfee
    and Rogers 2020: the cost of the choice.

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
    pairs: int | None = field(
        default=None,
        validator=optional(
            checked(lambda v: type(v) is int and 0 <= v <= 100, "an int in [0, 100]")
        ),
    )

    title: ClassVar[str] = "additive model"
    linear: ClassVar[bool] = False

    def complete(self, table: Table) -> Table:
        """Return the rows that have a target: what is missing of a feature is a bin of its own."""
        return complete_rows(table, (self.target,))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[dict[str, Any]]:
        """Return the intercept, and the shape functions by feature."""
        goal = table.domain.find(self.target)
        if not isinstance(goal, Categories | Interval):
            raise DeclarationError(
                f"AdditiveModel's target must have categories or bounds, but {self.target!r} is "
                f"declared as {goal}"
            )
        number = isinstance(goal, Interval)
        columns = declarations(table.domain, (*self.features, self.target))
        loss: Any = Squared()
        if isinstance(goal, Categories):
            classes = len(goal.values)
            loss = Logistic() if classes == 2 else Multinomial(classes)
        operation = BinsOf(self.features, self.target, loss.labels, columns)
        rows: Private[Any] = Private(operation, (table,))
        sizes = list(rows.domain.sizes)
        straight = [name for name in self.features if isinstance(columns[name], Interval)]
        one = loss.outputs == 1
        # of classes the check of the model has a share, a half for each of its counts
        check = check_share(budget, len(goal.values)) if isinstance(goal, Categories) else 0.0
        count = self._pairs(table, budget, loss.outputs)
        tables = PAIR_SHARE * (1 - check) if count else 0.0
        rest = 1 - check - tables
        # several classes, and categories alone, have no linear start
        line = LINE * rest if straight and one else 0.0
        # shares of mu^2: `check`, `tables` of pairs, `line` for the start, of the rest SHARE for
        # the counts, and the steps share what is left, 1 in all; the factor keeps the sum below
        # mu^2, rounding included
        mu = None
        if budget is not None:
            mu = _largest_mu(budget, self._chosen(count) * CHOICE * tables, count)

        def release(query: PrivateQuery[Any], share: float, name: str) -> Released[Any]:
            # a share of mu^2: sigma is sensitivity / (mu sqrt(share))
            noise = gaussian_noise(query, table, mu, free=self.free, share=share)
            return query.release(noise, name=name)

        def choose(query: PrivateQuery[Any], k: int, share: float, name: str) -> Released[Any]:
            operation = query.operation
            assert isinstance(operation, Query)
            span = operation.span(query.inputs[0].domain, change_at(table))
            # k choices; where it is small, the mu of a bounded range epsilon is sqrt(pi/8) epsilon
            scale: Any = Free(self.free, weight=math.sqrt(math.pi / 8 * k / share) * span)
            if mu is not None:
                scale = span / range_of_share(mu, share, k)
            return query.release(TopK(k=k, scale=scale), name=name)

        grid = {"sizes": sizes, "most": BINS}
        documents = {name: column_document(columns[name]) for name in self.features}
        counts = release(PrivateQuery(BinCounts(), (rows,)), SHARE * (rest - line), "counts")
        ordered = [isinstance(columns[name], Interval) for name in self.features]
        above = ABOVE_STEPS if one else 0.0
        sigma = parameter(counts, "sigma")
        bins = post(layout, counts, sigma, ordered=ordered, above=above, **grid)
        places = post(bins_of_cells, bins)
        middle, half = 0.0, 1.0
        if isinstance(goal, Interval):
            half = (goal.upper - goal.lower) / 2
            middle = goal.lower + half
        start = post(no_start, counts)
        if line:
            linear = BoostedSSP(tuple(straight), self.target, free=self.free)
            # by the rows that have all numbers; of two classes the target is -1 or 1
            model = linear.share_of(linear.complete(table), mu, line)
            units = {"goal": [middle, half if half > 0 else 1.0], "odds": 1.0 if number else ODDS}
            declared = {"features": documents, "sizes": sizes, **units}
            start = post(linear_start, model, counts, sigma, **declared)

        def step(state: Released[Any]) -> Released[Any]:
            # the query is at released scores, by released bins: adaptive composition covers it
            scores = post(cell_scores, state, bins, start, **grid)
            query = BinGradient(loss, 1.0 if number else self.clip, BINS, number)
            given = (post(slopes_scale, state),) if number else ()
            asked: PrivateQuery[Any] = PrivateQuery(query, (rows, scores, places, *given))
            share = (1 - SHARE) * (rest - line) / self.steps
            gradient = release(asked, share, "gradient")
            noise = parameter(gradient, "sigma")
            if one:
                clip = 0.0 if number else self.clip
                fixed = {"features": len(self.features), "steps": self.steps, "clip": clip}
                widths = bin_sizes(sizes, BINS)
                return post(posterior_step, state, gradient, noise, bins, **fixed, widths=widths)
            return post(boosting_step, state, gradient, noise, bins, half=self.steps // 2)

        width = loss.outputs * (1 + sum(bin_sizes(sizes, BINS)))
        state = repeat(step, self.steps, start=post(initial_state, public(width)))
        model = post(
            shape_functions,
            state,
            bins,
            start,
            counts,
            features=documents,
            classes=[str(v) for v in goal.values] if isinstance(goal, Categories) else [],
            goal=[middle, half],
            **grid,
        )
        learned = post(cell_scores, post(mean_state, state), bins, start, **grid)
        if count:
            fit = _Fit(rows, bins, learned, counts, state, release, choose)
            clip = 0.0 if number else self.clip
            both = _tables(fit, tables, count, ordered, loss, clip)
            named = {"features": documents, "sizes": sizes, "half": half}
            model = post(with_pairs, model, both.state, both.pairs, both.groups, **named)
            rows, learned = both.rows, both.learned
        if not check:
            return model
        return checked_shapes(model, rows, loss, learned, table, self.target, check, release)

    def _pairs(self, table: Table, budget: LearnerBudget | None, classes: int) -> int:
        """Return the number of pairs: that which was asked for, or by `paired`."""
        features = len(self.features)
        count = self.pairs
        if count is None:
            count = 0
            # without a budget nothing is known
            if budget is not None:
                # how many rows are complete is private: the public number is that of all rows
                known = [getattr(rows.domain, "size", None) for rows in (table, *table.inputs)]
                size = next((number for number in known if number), None)
                count = paired(features, budget.epsilon, size, classes)
        return min(count, features * (features - 1) // 2)

    def _chosen(self, count: int) -> bool:
        """Return whether so many pairs are chosen, and not all of them learned."""
        return 0 < count < _candidates(len(self.features))


def _candidates(features: int) -> int:
    """Return the number of pairs that are looked at: those of the strongest features."""
    strongest = min(features, STRONGEST)
    return strongest * (strongest - 1) // 2


def _largest_mu(budget: LearnerBudget, share: float, count: int) -> float:
    """Return the largest mu at which choices with a share of its square, and Gaussians, fit.

    The mu of a choice is an upper bound of what it costs, which may leave a part of a small or
    unusual budget: there the composition itself is solved.
    """
    epsilon, delta = budget.epsilon, budget.delta
    mu = largest_mu(epsilon, delta) * (1 - 1e-9)
    if not share:
        return mu

    def cost(mu: float) -> Term:
        gaussians = Spend(GaussianLoss(mu * math.sqrt(1 - share)))
        choice = Spend(BoundedRange(range_of_share(mu, share, count)))
        return Sequential([gaussians, Repeated(choice, count)])

    if Guarantee(cost(mu), [Distribution()]).epsilon(delta).upper > 0.9951 * epsilon:
        return mu
    fit = calibrate(
        cost,
        epsilon=epsilon,
        delta=delta,
        accountant=Distribution(),
        cost="increasing",
        start=mu,
        digits=1e-9,
    )
    # Gaussians that are composed one by one cost a little more than one of their mu
    return max(mu, float(fit.value) * (1 - 1e-7))


@frozen
class _Fit:
    """What was learned of the features one by one, and how more is released.

    Parameters
    ----------
    rows, bins, learned, counts, state
        The rows by cells; of released values the bins, the scores and the rows by cell, the state.
    release, choose
        Functions of a query, a share of mu^2 and a name, which release it; `choose` is also given
        how many of its values are chosen.
    """

    rows: Private[Any]
    bins: Released[Any]
    learned: Released[Any]
    counts: Released[Any]
    state: Released[Any]
    release: Callable[[PrivateQuery[Any], float, str], Released[Any]]
    choose: Callable[[PrivateQuery[Any], int, float, str], Released[Any]]


def range_of_share(mu: float, share: float, count: int) -> float:
    """Return the bounded range of each of some choices that have a share of mu^2 together.

    The mu of a bounded range epsilon is ``2 Phi^-1(1 / (1 + e^(-epsilon / 2)))`` (proven at
    `accountants.losses.selection.BoundedRange`), which is solved for epsilon and rounded down.

    Examples
    --------
    >>> from accountants.losses import BoundedRange
    >>> round(4 * BoundedRange(range_of_share(0.5, 0.1, 4)).mu() ** 2, 9)
    0.025
    """
    own = mu * math.sqrt(share / count)
    return 2 * float(log_ndtr(own / 2) - log_ndtr(-own / 2)) * (1 - 1e-9)


@frozen
class _Tables:
    """The released tables of pairs, and the rows with their cells in them."""

    rows: Private[Any]
    learned: Released[Any]
    state: Released[Any]
    pairs: Released[Any]
    groups: Released[Any]


def _tables(
    fit: _Fit, share: float, count: int, ordered: list[bool], loss: Loss, clip: float
) -> _Tables:
    """Return the tables of the pairs in which the most is left, a few of all.

    Parameters
    ----------
    fit
        What they add to.
    share, count
        Their share of mu^2, and their number.
    ordered
        Whether each feature is a number.
    loss, clip
        And to what its slopes are shortened; 0 for those over a released scale, to 1.
    """
    sizes, scaled = list(fit.rows.domain.sizes), not clip
    grid: dict[str, Any] = {"sizes": sizes, "ordered": ordered, "most": BINS}
    given = (post(slopes_scale, fit.state),) if scaled else ()
    most = _candidates(len(sizes))
    candidates = post(candidate_pairs, fit.learned, fit.counts, sizes=sizes)
    pairs, choice = candidates, 0.0
    # where all are learned nothing is chosen
    if most > count:
        choice = CHOICE
        coarse = post(groups_of_bins, fit.bins, count=COARSE, **grid)
        rows: Private[Any] = Private(BinPairs(COARSE, most), (fit.rows, coarse, candidates))
        zero = post(initial_tables, public(most), width=COARSE + 1, outputs=loss.outputs)
        at = post(table_scores, fit.learned, zero)
        places = post(table_bins, fit.counts, pairs=most, width=COARSE + 1)
        own = {"sizes": sizes, "clip": clip, "outputs": loss.outputs}
        levels = post(chance_levels, fit.state, coarse, fit.counts, candidates, **own)
        gains = BinGains(loss, clip or 1.0, (COARSE + 1) ** 2, scaled, most)
        asked: PrivateQuery[Any] = PrivateQuery(
            gains, (rows, at, places, levels, public(0), *given)
        )
        best = fit.choose(asked, count, choice * share, "pairs")
        pairs = post(chosen_pairs, best, candidates)
    groups = post(groups_of_bins, fit.bins, count=FINE, **grid)
    tabled: Private[Any] = Private(BinPairs(FINE, count), (fit.rows, groups, pairs))
    in_tables: PrivateQuery[Any] = PrivateQuery(BinCounts(count), (tabled,))
    by_cell = fit.release(in_tables, TABLE_COUNTS * share, "table_counts")
    noisy = by_cell, parameter(by_cell, "sigma")
    counted = post(table_rows, *noisy, fit.counts, groups, pairs, sizes=sizes)
    places = post(table_bins, fit.counts, pairs=count, width=FINE + 1)

    def step(tables: Released[Any]) -> Released[Any]:
        # all that a query reads is released: adaptive composition covers it
        at = post(table_scores, fit.learned, tables)
        query = BinGradient(loss, clip or 1.0, (FINE + 1) ** 2, scaled, count)
        asked: PrivateQuery[Any] = PrivateQuery(query, (tabled, at, places, *given))
        own = (1 - choice - TABLE_COUNTS) * share / ROUNDS
        gradient = fit.release(asked, own, "table_gradient")
        noise = parameter(gradient, "sigma")
        return post(table_step, tables, gradient, noise, counted, fit.state, pairs=count, clip=clip)

    start = post(initial_tables, public(count), width=FINE + 1, outputs=loss.outputs)
    state = repeat(step, ROUNDS, start=start)
    return _Tables(tabled, post(table_scores, fit.learned, state), state, pairs, groups)


def column_document(column: Column) -> dict[str, Any]:
    """Return a feature's declaration as a constant of post-processing."""
    if isinstance(column, Categories):
        return {"categories": list(column.values)}
    assert isinstance(column, Interval)
    return {"bounds": [column.lower, column.upper]}
