"""Learners by the exponential mechanism: among finitely many models, or in a ball of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional

from accountants.numerics import down, up
from adaptive_dp.erm import Logistic
from adaptive_dp.erm.loss import Loss
from adaptive_dp.erm.losses import loss_string
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.values import as_int
from adaptive_dp.learning.base import (
    Coefficients,
    ColumnLearner,
    LearnerBudget,
    encoded_features,
    from_unit_interval,
    linear,
    pure_budget,
    query_sensitivity,
    within,
)
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.mechanisms.log_concave import LogConcaveSample, log_range
from adaptive_dp.mechanisms.objective_perturbation import check_loss
from adaptive_dp.mechanisms.selection import Exponential, PermuteAndFlip
from adaptive_dp.queries.candidate_losses import (
    MOST,
    CandidateLosses,
    Candidates,
    _candidates,
    loss_of,
)
from adaptive_dp.queries.domains import Categories, finite_float
from adaptive_dp.queries.table import Table, where

MECHANISMS: dict[str, type[Exponential] | type[PermuteAndFlip]] = {
    "permute_and_flip": PermuteAndFlip,
    "exponential": Exponential,
}


def _loss(value: Any) -> Any:
    """Return a loss as a plan writes it."""
    return loss_string(value) if isinstance(value, Loss) else value


@frozen
class FiniteLearner(ColumnLearner[Coefficients]):
    """One of finitely many linear models, chosen by its empirical risk: pure epsilon, any data.

    Features (and a target of numbers) are mapped from their declared bounds onto [-1, 1], an
    intercept put in front, rows clipped to ``norm``. The scores are the sums of `CandidateLosses`;
    the mechanism chooses one exactly, in rational arithmetic. The loss need be neither convex nor
    continuous, and a Lipschitz constant is of use but not needed.

    *Privacy.* Of scores no two of which one unit moves farther apart than s, ``b = s / epsilon``
    gives pure epsilon (`Exponential`, `PermuteAndFlip`). For one row s is `width` where it appears
    or is zeroed, and twice that where it is exchanged.

    *Utility.* With m candidates and the scale b, the chosen one's sum of losses exceeds the least
    by at least ``b log(m / beta)`` with probability at most beta, for any data (`excess`); how
    many rows make it *learn*: `sample_size`.

    *A continuous model of one or two coefficients* is a fine public grid of candidates
    (`coefficient_grid`), for any loss. The grid costs no privacy: the mechanism on it is private as
    it stands, not nearly so, and its draw is exact, where a density that is sampled through floats
    is neither. Its work is bounded by the number of candidates, where that of rejection depends
    on the data. What it costs is utility, and that is bounded: with spacing h, a loss that is
    L-Lipschitz in z and rows of norm R, some candidate is within ``n L R h sqrt(p) / 2`` of the
    best in the box. At ``h = b / (n L R)`` that is ``b sqrt(p) / 2``, and m is at most
    ``(2 + side of the box / h)^p``: the continuous mechanism's ``p b`` becomes ``b log(m)``, and
    so p times a logarithm. A grid of k points an axis has k^p candidates, too many for more axes.

    *Of more coefficients*, and a convex loss, `ExponentialSampling` draws from a ball. A Markov
    chain is no substitute where its distance from what it should draw from is not a theorem: what
    a diagnostic says of it is none (`accountants.with_total_variation`).

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories: each of those but the first is a
        feature, 1 where it is the row's and else 0.
    target
        A column with bounds, or of two categories, which are read as 0 and 1. For a loss of signs,
        values above the middle are 1, others -1.
    candidates
        Shape (m, 1 + features): parameters for the scaled features, the intercept's first.
    loss
        A `Loss` of one score, or its name as str, such as ``"ZeroOne()"``.
    norm
        By default the largest that the scaled features can have.
    width
        The most by which one row's losses at two candidates may differ; regrets of more are
        clipped. By default what the loss's constants allow on the candidates.
    mechanism
        ``"permute_and_flip"``, never worse by itself, or ``"exponential"``, which composes better.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith 2011, Thm 3.4 (the private learner of a
    finite class); McKenna and Sheldon 2020; Durfee and Rogers 2019 (the span in place of twice the
    sensitivity). The constants are derived here.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": (0, 1)})
    >>> grid = dp.coefficient_grid([(-1, 1), (1, 1)], [21, 1])
    >>> learner = dp.FiniteLearner(["age"], "ill", grid, loss="ZeroOne()")
    >>> plan = dp.Pipeline(threshold=people.solve(learner, epsilon=1.0))
    >>> 0.999 < plan.certify(delta=0.0).epsilon <= 1
    True
    """

    candidates: Candidates = field(converter=_candidates, repr=lambda v: f"<{len(v)}>")
    loss: str = field(default="ZeroOne()", converter=_loss)
    norm: float | None = None
    width: float | None = None
    mechanism: str = "permute_and_flip"
    free: str = "b"

    title: ClassVar[str] = "FiniteLearner"
    losses: ClassVar[tuple[type, ...]] = (str,)

    def __attrs_post_init__(self) -> None:
        if not (len(self.candidates) > 0):
            raise DeclarationError("FiniteLearner needs at least one candidate")
        if self.mechanism not in MECHANISMS:
            raise DeclarationError(
                f"FiniteLearner.mechanism must be one of {', '.join(MECHANISMS)}, got "
                f"{self.mechanism!r}"
            )
        # an unknown name or loss is refused here, not when data are read
        loss_of(self.loss)

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget: epsilon alone, for a pure mechanism."""
        return pure_budget("FiniteLearner", epsilon, (1e-9, 1e9))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first.

        Of a loss of signs they give the score, whose sign is the class.
        """
        table = self._numbered(table)
        # for a loss of signs too: its threshold is the middle of these bounds
        goal = table.domain.interval(self.target)
        vectors, names, bounds = encoded_features(table, self.features)
        if self.norm is not None:
            vectors = vectors.clip(norm=self.norm)
        radius = vectors.domain.radius
        width = self._width(radius) if self.width is None else finite_float("a width", self.width)
        # the regrets of one row are clipped to `width`, which bounds the sensitivity for any data
        query = CandidateLosses(self.candidates, self.loss, self.target, goal, radius, width)
        scores: PrivateQuery[Any] = PrivateQuery(query, (vectors,))
        # the span, not twice the sensitivity: the most by which two scores' moves differ
        span = query.span(vectors.domain, change_at(table))
        # b = span / epsilon, rounded up past the accountants' own rounding
        scale = Free(self.free, weight=span) if budget is None else up(span / budget.epsilon, 64)
        choice: Mechanism = MECHANISMS[self.mechanism](scale=scale)
        # a loss of signs reads labels -1 and 1, which are not mapped back to the target's bounds
        signs = loss_of(self.loss).labels == "sign"
        return post(
            coefficients,
            scores.release(choice, name="candidate"),
            names=list(names),
            bounds=bounds,
            goal=[-1.0, 1.0] if signs else [goal.lower, goal.upper],
        )

    def _numbered(self, table: Table) -> Table:
        """Return the table with two categories as 0 and 1; rows of other labels are left out."""
        goal = table.domain.find(self.target)
        if not isinstance(goal, Categories):
            return table
        if len(goal.values) != 2:
            raise DeclarationError(
                f"FiniteLearner learns two categories or a number; {self.target!r} is declared as "
                f"{goal}: learn one against the rest, of a column made by with_columns"
            )
        table = table.filter(table[self.target].isin(goal.values))
        return table.with_columns(
            **{self.target: where(table[self.target] == goal.values[1], 1, 0)}
        )

    def _width(self, radius: float) -> float:
        """Return the least of two bounds of a row's regret: its range, and L |x| |w - w'|."""
        points = np.array(self.candidates)
        # the largest score |w| |x|, rounded up past the float error of norm and square root
        largest_score = radius * float(np.sqrt((points**2).sum(axis=1)).max()) * (1 + 1e-9)
        limits = loss_of(self.loss).constants(largest_score)
        # two candidates are at most the diagonal of their box apart
        sides = points.max(axis=0) - points.min(axis=0)
        slope = limits.lipschitz * radius * math.sqrt(float(sides @ sides)) if sides.any() else 0.0
        # the range of a loss bounds any regret, L |x| |w - w'| that of Lipschitz ones
        width = min(limits.highest - limits.lowest, slope) * (1 + 1e-9)
        if not (width < math.inf):
            raise DeclarationError(
                f"nothing bounds how far one row's {self.loss} differs between candidates; give "
                "FiniteLearner a width, to which that is clipped"
            )
        # where all candidates agree the width is 0; a positive one keeps the scale positive
        return max(width, 1e-90)


TRIES = 4096.0
"""About how many proposals are made where the ridge is chosen here: their chance is 1 over it."""

ROWS = 5_000
"""The number of rows that the ridge is chosen for where it is not public."""


@frozen
class ExponentialSampling(ColumnLearner[Any]):
    """A linear model drawn from a ball, the more probable the smaller its loss: any convex loss.

    The exponential mechanism over parameters w with ``|w| <= radius``, of a density in proportion
    to ``exp(-epsilon / width sum_i f(x_i'w, y_i) - ridge/2 |w|^2)``, width the range of one row's
    losses in the ball: a sample of a tempered posterior. See `LogConcaveSample` for the proof of
    its privacy, and for the sampler, which is exact, or within a proven total variation.

    Where delta is 0 it draws until a proposal is accepted, which is pure epsilon. With a delta the
    number of proposals is bounded so that all may fail with a chance of ``delta / (1 + e^epsilon)``
    at most: the run time is bounded by what the rows are, and the certificate has that delta.

    Its error grows with the number of coefficients, where noise on an objective grows with its
    root: of more than a few, `ObjectivePerturbation` learns better. How long it takes depends on
    the rows.

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories.
    target
        A column of two categories, or with bounds, as the loss reads.
    loss
        Convex and smooth, of one score, such as ``Logistic()`` or ``Huber()``.
    radius
        Of the ball, for rows of norm at most 1.
    ridge
        The prior's precision; None for about 4,096 proposals with as many rows as are expected:
        ``h epsilon rows / (width (4096^(2/p) - 1))``, h the largest second derivative.
    rows
        How many rows are expected, if that may be known; else the table's public size or 5,000.
    norm
        To which longer rows are clipped: by default 1 where the target is a class.

    References
    ----------
    McSherry and Talwar 2007; Bassily, Smith and Thakurta 2014, Algorithm 2 and Thm 3.2 (its excess
    risk ``O(p L radius / (epsilon n))``, without a ridge).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.ExponentialSampling(["age"], "ill")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-9)).with_delta(1e-9)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-09 by basic>
    >>> age = np.linspace(0, 100, 3_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [20, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """

    loss: Loss = field(factory=Logistic)
    radius: float = field(default=5.0, validator=within(1e-3, 1e3))
    ridge: float | None = field(default=None, validator=optional(within(1e-6, 1e12)))
    rows: int | None = field(
        default=None,
        validator=optional(checked(lambda v: type(v) is int and v >= 1, "an int of at least 1")),
    )
    norm: float | None = None

    title: ClassVar[str] = "exponential sampling"

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget, which it needs; delta may be 0."""
        if epsilon is None or not (1e-9 <= epsilon <= 100) or not 0 <= (delta or 0.0) < 0.5:
            raise DeclarationError(
                "ExponentialSampling needs an epsilon in [1e-9, 100] and a delta in [0, 0.5), got "
                f"{epsilon!r} and {delta!r}"
            )
        return LearnerBudget(float(epsilon), float(delta or 0.0))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Any]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        assert budget is not None
        check_loss("ExponentialSampling", self.loss)
        problem = linear(table, self.features, self.target, self.loss, self.norm)
        query = problem.rows.as_query()
        changed = max(1, round(query_sensitivity(query, table, 0)))
        epsilon = down(budget.epsilon / changed, 64)
        of = loss_string(self.loss)
        _, width = log_range("ExponentialSampling", of, self.radius)
        grown = down(budget.delta / up(1 + math.exp(budget.epsilon), 64), 64)
        sampler = LogConcaveSample(
            epsilon=epsilon,
            ridge=self._ridge(table, epsilon / width, problem.width),
            radius=self.radius,
            of=of,
            failure=grown if grown > 1e-300 else 0.0,
        )
        return problem.model(query.release(sampler, name="coefficients"))

    def _ridge(self, table: Table, weight: float, width: int) -> float:
        """Return the ridge, by public numbers."""
        if self.ridge is not None:
            return self.ridge
        rows = self.rows or table.domain.size or ROWS
        smoothness = self.loss.constants(self.radius).smoothness
        return max(1e-3, smoothness * weight * rows / math.expm1(2 / width * math.log(TRIES)))


def coefficients(
    theta: Sequence[float],
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
) -> Coefficients:
    """Return a candidate's coefficients in data units."""
    return from_unit_interval(np.array(theta), names=names, bounds=bounds, goal=goal)


def coefficient_grid(bounds: Iterable[Sequence[float]], points: Sequence[int]) -> Candidates:
    """Return all combinations of evenly spaced values, as candidates of `FiniteLearner`.

    Parameters
    ----------
    bounds
        For each coefficient, the intercept's first, a pair of numbers.
    points
        For each how many values, the bounds among them; for one, their middle.

    Examples
    --------
    >>> coefficient_grid([(-1, 1), (2, 2)], [3, 1])
    ((-1.0, 2.0), (0.0, 2.0), (1.0, 2.0))
    """
    sides = [tuple(finite_float("a bound", v) for v in pair) for pair in bounds]
    counts = [as_int(count) for count in points]
    if not (len(sides) == len(counts) > 0 and all(len(pair) == 2 for pair in sides)):
        raise DeclarationError(
            "coefficient_grid needs a pair of bounds and a number of points for each coefficient"
        )
    valid = [count for count in counts if count is not None and 1 <= count <= MOST]
    if not (len(valid) == len(counts) and math.prod(valid) <= MOST):
        raise DeclarationError(
            f"a grid needs 1 to {MOST} points in all, got {list(points)!r}, whose product it is"
        )
    axes = [
        np.linspace(low, high, count) if count > 1 else [(low + high) / 2]
        for (low, high), count in zip(sides, valid, strict=True)
    ]
    return tuple(tuple(float(v) for v in point) for point in itertools.product(*axes))


def excess(count: int, beta: float, scale: float) -> float:
    """Return ``b log(m / beta)``: by how much the chosen score is at most worse than the best.

    This fails with probability at most beta. Each mechanism takes a candidate that is x short of
    the best with probability at most ``e^{-x/b}``: `Exponential` since the best has weight 1 in the
    normaliser, `PermuteAndFlip` since that candidate must be accepted. There are fewer than m of
    them.

    Parameters
    ----------
    count
        m, the number of candidates.
    beta
        In (0, 1).
    scale
        b, in units of the loss.
    """
    _check_counts(count, beta=beta)
    # union bound: m e^{-x/b} = beta at x = b log(m / beta)
    return scale * math.log(count / beta)


def sample_size(
    count: int,
    alpha: float,
    epsilon: float,
    *,
    beta: float = 0.05,
    exchange: bool = False,
    agnostic: bool = False,
) -> int:
    """Return how many independent rows make a private choice among m candidates learn.

    With at least so many, the chosen one's expected loss (in [0, 1], on the rows' distribution)
    exceeds the least by at most alpha, but for a probability of beta. It is linear in ``log m``.

    *Some candidate is never wrong* (loss 0 almost surely), the zero-one loss. At ``e = epsilon``,
    half of that for an exchange, a candidate with k errors is chosen with probability at most
    ``e^{-e k}`` (`excess`). If its expected loss is more than alpha, k is a binomial of more than
    that chance, and ``E e^{-e k} <= (1 - alpha (1 - e^{-e}))^n``, so that
    ``n = log(m / beta) / (alpha (1 - e^{-e}))`` will do: at most
    ``(1 + 1/e) log(m / beta) / alpha``.

    *Agnostic*, for any candidates and any loss in [0, 1]. Half of alpha and of beta for the choice:
    ``n >= 2 log(2 m / beta) / (e alpha)`` by `excess`. The rest for the difference between mean and
    expectation, at most ``alpha / 4`` for all candidates at once by Hoeffding's inequality where
    ``2 m e^{-n alpha^2 / 8} <= beta / 2``.

    Parameters
    ----------
    count
        m, the number of candidates.
    alpha, beta
        In (0, 1).
    epsilon
        The learner's budget.
    exchange
        Whether neighbours exchange a row, or one comes or goes.
    agnostic
        Whether nothing is known of the candidates.

    References
    ----------
    Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith 2011, Thm 3.4, of which these are explicit
    constants (own proof).

    Examples
    --------
    >>> sample_size(2**16, alpha=0.1, epsilon=1.0), sample_size(2**16, 0.1, 1.0, agnostic=True)
    (223, 12378)
    """
    _check_counts(count, alpha=alpha, beta=beta)
    if not (0 < epsilon < math.inf):
        raise DeclarationError(f"epsilon must be positive, got {epsilon!r}")
    rate = epsilon / 2 if exchange else epsilon
    if not agnostic:
        # (1 - alpha (1 - e^{-e}))^n m <= m e^{-n alpha (1 - e^{-e})} = beta
        return math.ceil(math.log(count / beta) / (alpha * -math.expm1(-rate)))
    # excess(m, beta / 2) <= n alpha / 2, and Hoeffding's 2 m e^{-n alpha^2 / 8} <= beta / 2
    choice = 2 * math.log(2 * count / beta) / (rate * alpha)
    return math.ceil(max(choice, 8 * math.log(4 * count / beta) / alpha**2))


def _check_counts(count: int, **chances: float) -> None:
    if not ((as_int(count) or 0) > 0):
        raise DeclarationError(f"the number of candidates must be positive, got {count!r}")
    for name, value in chances.items():
        if not (0 < value < 1):
            raise DeclarationError(f"{name} must be inside (0, 1), got {value!r}")
