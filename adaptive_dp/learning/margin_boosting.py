"""Margin boosting: an additive model whose steps are paid for only while margins fail."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import field, frozen
from scipy.linalg import solveh_banded

from adaptive_dp.erm import Logistic, SmoothedHinge
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Private,
    PrivateQuery,
    Release,
    Released,
    change_at,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.loops import ancestors, repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning.additive import (
    ABOVE_STEPS,
    BINS,
    bins_of_cells,
    cell_scores,
    checked_shapes,
    column_document,
    groups_of_rows,
    layout,
    mean_state,
    no_start,
    shape_functions,
)
from adaptive_dp.learning.base import (
    Array,
    ColumnLearner,
    LearnerBudget,
    check_share,
    query_sensitivity,
    required_budget,
    within,
)
from adaptive_dp.mechanisms.additive import Gaussian, checked
from adaptive_dp.mechanisms.sparse_vector import SparseVector
from adaptive_dp.queries.bins import (
    BinCounts,
    BinGains,
    BinsOf,
    FeatureGradient,
    bin_sizes,
)
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.examples import declarations
from adaptive_dp.queries.table import Table, complete_rows

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS, TESTS = 0.1, 0.3
"""The shares of the noise's budget of the counts by cell and of all tests; steps have the rest."""

WIDTH = 2.0
"""The length of the loss's parabola: slopes shrink from a margin of -1 on, and are 0 from 1 on."""

GROUPS = 4
"""The groups of a feature's bins that a test reads: with fewer, chance adds up to less."""

LEVEL = 0.5
"""What a gain of one of d is above chance by, over the scale of its noise and ``log(1 + d)``."""

STEP = 0.6
"""The size of a step, over the one that the sums and the counts say."""

CURVATURE = 0.35
"""The second derivative of the loss that steps are scaled by: the largest is 1/2."""

SMOOTH = 16.0
"""The weight of the differences of adjacent bins in a step, over a gradient's noise."""

TEST = 1 + 2 ** (2 / 3)
"""What a test costs, over its sensitivity and its noise's scale: see `SparseVector`."""


def initial_state(size: int) -> dict[str, Any]:
    """Return the state before the first round: scores by bin, and whose turn it is."""
    zero = np.zeros(int(size))
    return {"scores": zero, "mean": zero, "turn": 0, "steps": 0, "met": 0}


def groups_of_bins(
    bins: dict[str, Any], *, sizes: list[int], ordered: list[bool], most: int
) -> dict[str, Any]:
    """Return the few groups of bins that a test reads, as of released counts.

    Returns
    -------
    dict
        ``"groups"``, the group of each cell within its feature, shape (1 + cells,): of numbers
        `GROUPS` of about as many rows, of categories the largest by themselves; and ``"chance"``,
        shape (d,), what the sums of a feature's groups would add up to if each row's slope were 1
        or -1 by chance: ``sqrt(2 / pi)`` times the sum of the roots of the groups' rows.
    """
    rows, places = np.asarray(bins["rows"]), np.asarray(bins["bins"], dtype=np.int64)
    groups, chance, first, begin = [np.zeros(1)], [], 1, 1
    for size, width, is_ordered in zip(sizes, bin_sizes(sizes, most), ordered, strict=True):
        own = rows[first : first + width]
        group = groups_of_rows(own, is_ordered, GROUPS)
        totals = np.bincount(group.astype(np.int64), own)
        chance.append(math.sqrt(2 / math.pi) * float(np.sqrt(totals).sum()))
        groups.append(group[places[begin : begin + size]])
        first, begin = first + width, begin + size
    return {"groups": np.concatenate(groups), "chance": np.array(chance)}


def groups_of_cells(groups: dict[str, Any]) -> Array:
    """Return the group of each cell within its feature."""
    return np.asarray(groups["groups"])


def gain_levels(
    state: dict[str, Any], groups: dict[str, Any], sigma: float, *, clip: float, ratio: float
) -> Array:
    """Return which gain of each feature is worth a step, shape (d,): more than chance and noise.

    Parameters
    ----------
    state, groups
        Of the round before, and of `groups_of_bins`.
    sigma, ratio
        The noise of the counts, and the scale of the noise on each gain over it.
    clip
        The largest slope.
    """
    chance = np.asarray(groups["chance"])
    if state["met"]:
        # beyond all gains: nothing more is asked
        return np.full(len(chance), 1e300)
    # of d noises the largest grows with log d
    return np.asarray(clip * chance + LEVEL * math.log1p(len(chance)) * ratio * float(sigma))


def turn(state: dict[str, Any]) -> int:
    """Return the number of the feature that is asked first."""
    return int(state["turn"])


def first_above(answers: Any, state: dict[str, Any]) -> int:
    """Return the number of the feature whose gain is above its level, or -1."""
    found = np.flatnonzero(np.asarray(answers) == 1)
    return (int(state["turn"]) + int(found[0])) % len(answers) if len(found) else -1


def margin_step(
    state: dict[str, Any],
    chosen: int,
    gradient: Any,
    sigma: float,
    bins: dict[str, Any],
    *,
    sizes: list[int],
    most: int,
) -> dict[str, Any]:
    """Return the state after a step of the chosen feature's scores (post-processing).

    It is ``- rate (D + smooth L)^-1 g``, D the bins' counts times the loss's second derivative and
    the noise, L the Laplacian of the path of adjacent bins. Without a feature margins are met, and
    the state stays.
    """
    if chosen < 0:
        return {**state, "met": 1}
    widths = bin_sizes(sizes, most)
    first, width, noise = 1 + sum(widths[:chosen]), widths[chosen], float(sigma)
    own = slice(first, first + width)
    rows, joined = np.asarray(bins["rows"])[own], np.asarray(bins["joined"])[own] > 0
    used = rows > 0
    g = np.where(used, np.asarray(gradient)[:width], 0.0)
    weight = SMOOTH * noise * joined
    # a category has no neighbour to lean on: its own noise counts twice
    ridge = noise if joined.any() else 2 * noise
    diagonal = np.where(used, CURVATURE * rows + ridge, 1.0) + weight
    diagonal[1:] += weight[:-1]
    above = np.concatenate([[0.0], -weight[:-1]])
    scores = np.array(state["scores"])
    scores[own] -= STEP * solveh_banded(np.stack([above, diagonal]), g)
    after = {"scores": scores, "mean": scores, "turn": (chosen + 1) % len(sizes)}
    return {**state, **after, "steps": int(state["steps"]) + 1}


def with_steps(model: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the model and how many steps were taken."""
    return {**model, "steps": int(state["steps"])}


def _noise_of_counts(model: Released[Any]) -> Any:
    """Return the noise that the counts by cell are released with in a model's subgraph."""
    return next(
        handle.operation.mechanism.sigma  # type: ignore[attr-defined]
        for handle in ancestors(model)
        if isinstance(handle.operation, Release)
        and isinstance(handle.inputs[0].operation, BinCounts)
    )


@frozen
class _Parts:
    """The subgraph of a fit: its start, what a round asks and does, and what is made of the end."""

    start: Released[dict[str, Any]]
    ask: Callable[[Released[Any]], Released[Any]]
    step: Callable[[Released[Any], Released[Any]], Released[Any]]
    model: Callable[[Released[Any]], Released[dict[str, Any]]]


@frozen
class MarginBoosting(ColumnLearner[dict[str, Any]]):
    """Two classes by a sum of shape functions, whose steps cost budget only where margins fail.

    The model is that of `AdditiveModel`. Its loss is `SmoothedHinge`, which is 0 from a margin
    ``m = y score`` of 1 on: such a row has no part in what follows. After the numbers of rows by
    cell, each of at most `rounds` rounds is

    1. a test: the features are asked one after the other, by sparse vector, whether the slopes of
       the rows in groups of their bins add up to more than chance and noise would (`BinGains`).
       All answers "below" and the first "above" are one release, however many features are asked
       (Lyu, Su and Li 2017);
    2. a step of the feature that was found: its gradient by bin, with Gaussian noise. A row adds to
       one bin, so it moves by `clip`, where `AdditiveModel` releases those of all features at
       once, at ``clip sqrt(d + 1)``. Features that tell nothing never cost a step.

    Where no feature is above, margins are met as far as can be told, and learning ends: in a
    `Session` (`run_in`) rounds that did not run cost nothing, and what was spent are the rounds
    whose margins failed and one test. A plan is certified at its worst case, all rounds: what was
    not needed reads no rows, and ``"steps"`` in the model says how many were.

    Then, as of `AdditiveModel`, is checked whether it is right more often than the most frequent
    class would be. Rows without a target are left out; a missing feature is a bin of its own.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        A column of two categories.
    rounds
        The most steps.
    clip
        To which a row's slope, of at most 1, is shortened.
    free
        Where no budget is given: the name of the free parameter.

    Notes
    -----
    All noise is solved together on the certificate of all rounds: a test is a pure epsilon, a step
    a Gaussian, and both are added up as distributions of the privacy loss. In a session the noise
    is solved on the sum that its filters keep (Renyi), so that all rounds fit into the budget.

    References
    ----------
    Dwork, Naor, Reingold, Rothblum and Vadhan 2009; Lyu, Su and Li 2017, Alg. 7, Thms 2 to 4 (the
    sparse vector). Hardt and Rothblum 2010: updates that only failed tests pay for. Bun, Carmosino
    and Sorrell 2020: private boosting with margins. Levels, steps and shares are our own, chosen on
    public data.

    See Also
    --------
    AdditiveModel : steps on all features at once, from a linear start: more accurate where rows
        are few, or nearly all features matter.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(abs(age - 50) < 20, "yes", "no")}
    >>> learner = dp.MarginBoosting(["age"], "ill")
    >>> with dp.Session(budget=dp.Budget(1.0, 1e-6), seed=1, people=rows) as session:
    ...     model = learner.run_in(session, people, epsilon=1.0, delta=1e-6)
    ...     spent = session.epsilon
    >>> model["steps"] < learner.rounds, spent < 1
    (True, True)
    >>> dp.predict(model, {"age": [10, 50, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes', 'no']
    """

    rounds: int = field(
        default=20,
        validator=checked(lambda v: type(v) is int and 1 <= v <= 10_000, "an int in [1, 10000]"),
    )
    clip: float = field(default=0.5, validator=within(1e-9, 1.0))
    free: str = "sigma"

    title: ClassVar[str] = "margin boosting"
    linear: ClassVar[bool] = False
    calibrated: ClassVar[bool] = True

    def complete(self, table: Table) -> Table:
        """Return the rows that have a target: what is missing of a feature is a bin of its own."""
        return complete_rows(table, (self.target,))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[dict[str, Any]]:
        """Return the intercept and the shape functions by feature."""
        parts = self._parts(table, budget, None)

        def body(state: Released[Any]) -> Released[Any]:
            return parts.step(state, parts.ask(state))

        return parts.model(repeat(body, self.rounds, start=parts.start))

    def run_in(self, session: Any, table: Table, *, epsilon: float, delta: float) -> dict[str, Any]:
        """Return the model, learned in a session that pays for the rounds that run and no others.

        Parameters
        ----------
        session
            A `Session` whose data have the table, or a part of one. Each test and each step is a
            step of it.
        table
            The rows to learn from.
        epsilon, delta
            What all rounds together may cost: the noise is what they determine, whatever happens.

        Returns
        -------
        dict
            The model, which is public.

        Raises
        ------
        BudgetError
            If the session's budget has less left than the next step costs; what ran is paid for.
        """
        budget = required_budget(type(self).__name__, epsilon, delta)
        rows = self.complete(table)
        # the least noise for which the session's own filter admits all rounds as one step
        free = self.learn(rows, budget)
        solved = session.solved(free, epsilon=epsilon, delta=delta)
        # a multiple of the weights, of which one release tells; 1e-12 covers its rounding
        noise = _noise_of_counts(solved) / _noise_of_counts(free).factor * (1 + 1e-12)
        parts = self._parts(rows, budget, noise)
        state = parts.start
        for _ in range(self.rounds):
            asked = parts.ask(state)
            # a released answer decides: whether the next step is run is public, and so is its cost
            if not np.any(np.asarray(session.run(asked)) == 1):
                break
            state = parts.step(state, asked)
            session.run(state)
        model: dict[str, Any] = session.run(parts.model(state))
        return model

    def _parts(self, table: Table, budget: LearnerBudget | None, noise: float | None) -> _Parts:
        """Return the subgraph in parts, with free noise, or with the given multiple of it."""
        goal = table.domain.find(self.target)
        if not (isinstance(goal, Categories) and len(goal.values) == 2):
            raise DeclarationError(
                f"MarginBoosting's target must have two categories, but {self.target!r} is "
                f"declared as {goal}; AdditiveModel learns several, and numbers"
            )
        columns = declarations(table.domain, (*self.features, self.target))
        loss = SmoothedHinge(WIDTH)
        rows: Private[Any] = Private(
            BinsOf(self.features, self.target, loss.labels, columns), (table,)
        )
        sizes = list(rows.domain.sizes)
        grid = {"sizes": sizes, "most": BINS}
        check = check_share(budget, 2)
        rest = 1 - check

        def scale(sensitivity: float, share: float) -> Any:
            # (sensitivity / sigma)^2 in proportion to the share
            weight = sensitivity / math.sqrt(share)
            return Free(self.free, weight=weight) if noise is None else noise * weight

        def release(query: PrivateQuery[Any], share: float, name: str) -> Released[Any]:
            sigma = scale(query_sensitivity(query, table), share)
            return query.release(Gaussian(sigma=sigma), name=name)

        counts_query: PrivateQuery[Any] = PrivateQuery(BinCounts(), (rows,))
        counts = release(counts_query, COUNTS * rest, "counts")
        sigma = parameter(counts, "sigma")
        ordered = [isinstance(columns[name], Interval) for name in self.features]
        bins = post(layout, counts, sigma, ordered=ordered, above=ABOVE_STEPS, **grid)
        places, start = post(bins_of_cells, bins), post(no_start, counts)
        groups = post(groups_of_bins, bins, ordered=ordered, **grid)
        of_cells = post(groups_of_cells, groups)

        def ask(state: Released[Any]) -> Released[Any]:
            # all that a query reads is released: adaptive composition covers it
            scores = post(cell_scores, state, bins, start, **grid)
            share = TESTS * rest / self.rounds
            gains = BinGains(loss, self.clip, 1 + GROUPS)
            moves = gains.sensitivity(rows.domain, change_at(table), math.inf)
            # a pure epsilon of TEST * moves / scale, which counts as the mu of a Gaussian's
            counted = query_sensitivity(counts_query, table) / math.sqrt(COUNTS * rest)
            weight = TEST * moves
            ratio = weight / math.sqrt(share) / counted * 2 ** (1 / 3)
            levels = post(gain_levels, state, groups, sigma, clip=self.clip, ratio=ratio)
            query: PrivateQuery[Any] = PrivateQuery(
                gains, (rows, scores, of_cells, levels, post(turn, state))
            )
            test = SparseVector(scale=scale(weight, share), threshold=0.0)
            return query.release(test, name="above")

        def step(state: Released[Any], answers: Released[Any]) -> Released[Any]:
            scores = post(cell_scores, state, bins, start, **grid)
            chosen = post(first_above, answers, state)
            query: PrivateQuery[Any] = PrivateQuery(
                FeatureGradient(loss, self.clip, BINS), (rows, scores, places, chosen)
            )
            share = (1 - COUNTS - TESTS) * rest / self.rounds
            gradient = release(query, share, "gradient")
            return post(
                margin_step, state, chosen, gradient, parameter(gradient, "sigma"), bins, **grid
            )

        def model(state: Released[Any]) -> Released[dict[str, Any]]:
            shaped = post(
                shape_functions,
                state,
                bins,
                start,
                counts,
                features={name: column_document(columns[name]) for name in self.features},
                classes=[str(v) for v in goal.values],
                goal=[0.0, 1.0],
                **grid,
            )
            learned = post(cell_scores, post(mean_state, state), bins, start, **grid)
            checked_model = checked_shapes(
                shaped, rows, Logistic(), learned, table, self.target, check, release
            )
            return post(with_steps, checked_model, state)

        initial = post(initial_state, public(1 + sum(bin_sizes(sizes, BINS))))
        return _Parts(initial, ask, step, model)
