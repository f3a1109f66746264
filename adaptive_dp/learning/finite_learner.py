"""A learner that chooses among finitely many linear models: private for any bounded loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants.numerics import up
from adaptive_dp.erm.loss import Loss
from adaptive_dp.erm.losses import text
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, group, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.values import texts, whole
from adaptive_dp.learning.base import Coefficients, columns, in_units
from adaptive_dp.mechanisms.selection import Exponential, PermuteAndFlip
from adaptive_dp.queries.candidate_losses import (
    MOST,
    CandidateLosses,
    Candidates,
    _candidates,
    loss_of,
)
from adaptive_dp.queries.domains import finite_float
from adaptive_dp.queries.table import Table

MECHANISMS: dict[str, type[Exponential] | type[PermuteAndFlip]] = {
    "permute_and_flip": PermuteAndFlip,
    "exponential": Exponential,
}


def _loss(value: Any) -> Any:
    return text(value) if isinstance(value, Loss) else value


@frozen
class FiniteLearner:
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
    is neither. Its work is bounded by the number of candidates, where that of rejection hangs on
    the data. What it costs is utility, and that is bounded: with spacing h, a loss that is
    L-Lipschitz in z and rows of norm R, some candidate is within ``n L R h sqrt(p) / 2`` of the
    best in the box. At ``h = b / (n L R)`` that is ``b sqrt(p) / 2``, and m is at most
    ``(2 + side of the box / h)^p``: the continuous mechanism's ``p b`` becomes ``b log(m)``, and
    so p times a logarithm. A grid of k points an axis has k^p candidates, too many for more axes.

    *Markov chains* are no substitute. After finitely many steps their law is another, and what a
    diagnostic says of it is no theorem: see `accountants.with_total_variation`.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds. For a loss of signs, values above their middle are 1, others -1.
    candidates
        Shape (m, 1 + features): parameters for the scaled features, the intercept's first.
    loss
        A `Loss` of one score, or its text, such as ``"ZeroOne()"``.
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

    features: tuple[str, ...] = field(converter=texts)
    target: str
    candidates: Candidates = field(converter=_candidates, repr=lambda v: f"<{len(v)}>")
    loss: str = field(default="ZeroOne()", converter=_loss)
    norm: float | None = None
    width: float | None = None
    mechanism: str = "permute_and_flip"
    free: str = "b"

    def __attrs_post_init__(self) -> None:
        columns("FiniteLearner", self.features, self.target)
        if not (len(self.candidates) > 0):
            raise DeclarationError("FiniteLearner needs at least one candidate")
        if self.mechanism not in MECHANISMS:
            raise DeclarationError(
                f"FiniteLearner.mechanism must be one of {', '.join(MECHANISMS)}, got "
                f"{self.mechanism!r}"
            )
        loss_of(self.loss)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first.

        Of a loss of signs they give the score, whose sign is the class.
        """
        if epsilon is not None and not (1e-9 <= epsilon <= 1e9):
            raise DeclarationError(
                f"FiniteLearner needs an epsilon in [1e-9, 1e9], or none to leave b free, got "
                f"{epsilon!r}"
            )
        bounds = [table.domain.interval(name) for name in self.features]
        goal = table.domain.interval(self.target)
        vectors = table.vectors(self.features, scale=True, intercept=True)
        if self.norm is not None:
            vectors = vectors.clip(norm=self.norm)
        radius = vectors.domain.radius
        width = self._width(radius) if self.width is None else finite_float("a width", self.width)
        query = CandidateLosses(self.candidates, self.loss, self.target, goal, radius, width)
        scores: PrivateQuery[Any] = PrivateQuery(query, (vectors,))
        span = query.span(vectors.domain, change_at(table))
        # room for the rounding of the scale and of the accountants
        scale = Free(self.free, weight=span) if epsilon is None else up(span / epsilon, 64)
        choice: Mechanism = MECHANISMS[self.mechanism](scale=scale)
        signs = loss_of(self.loss).labels == "sign"
        result = post(
            coefficients,
            scores.release(choice, name="candidate"),
            names=list(self.features),
            bounds=[[b.lower, b.upper] for b in bounds],
            goal=[-1.0, 1.0] if signs else [goal.lower, goal.upper],
        )
        return group("FiniteLearner", result, table)

    def _width(self, radius: float) -> float:
        """Return the least of two bounds of a regret: the loss's range, and its slope's."""
        points = np.array(self.candidates)
        reach = radius * float(np.sqrt((points**2).sum(axis=1)).max()) * (1 + 1e-9)
        known = loss_of(self.loss).constants(reach)
        sides = points.max(axis=0) - points.min(axis=0)
        slope = known.lipschitz * radius * math.sqrt(float(sides @ sides)) if sides.any() else 0.0
        width = min(known.highest - known.lowest, slope) * (1 + 1e-9)
        if not (width < math.inf):
            raise DeclarationError(
                f"nothing bounds how far one row's {self.loss} differs between candidates; give "
                "FiniteLearner a width, to which that is clipped"
            )
        return max(width, 1e-90)


def coefficients(
    theta: Sequence[float],
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
) -> Coefficients:
    """Return a candidate in the data's units."""
    return in_units(np.array(theta), names=names, bounds=bounds, goal=goal)


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
    counts = [whole(count) for count in points]
    if not (len(sides) == len(counts) > 0 and all(len(pair) == 2 for pair in sides)):
        raise DeclarationError(
            "coefficient_grid needs a pair of bounds and a number of points for each coefficient"
        )
    good = [count for count in counts if count is not None and 1 <= count <= MOST]
    if not (len(good) == len(counts) and math.prod(good) <= MOST):
        raise DeclarationError(
            f"a grid needs 1 to {MOST} points in all, got {list(points)!r}, whose product it is"
        )
    axes = [
        np.linspace(low, high, count) if count > 1 else [(low + high) / 2]
        for (low, high), count in zip(sides, good, strict=True)
    ]
    return tuple(tuple(float(v) for v in point) for point in itertools.product(*axes))


def excess(count: int, beta: float, scale: float) -> float:
    """Return ``b log(m / beta)``, which the chosen score misses the best by at most.

    But for a probability of beta. Each mechanism takes a candidate that is x short of the best with
    probability at most ``e^{-x/b}``: `Exponential` since the best has weight 1 in the normaliser,
    `PermuteAndFlip` since that candidate's coin must come up. There are fewer than m of them.

    Parameters
    ----------
    count
        m, the number of candidates.
    beta
        In (0, 1).
    scale
        b, in units of the loss.
    """
    _checked(count, beta=beta)
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
    _checked(count, alpha=alpha, beta=beta)
    if not (0 < epsilon < math.inf):
        raise DeclarationError(f"epsilon must be positive, got {epsilon!r}")
    budget = epsilon / 2 if exchange else epsilon
    if not agnostic:
        return math.ceil(math.log(count / beta) / (alpha * -math.expm1(-budget)))
    choice = 2 * math.log(2 * count / beta) / (budget * alpha)
    return math.ceil(max(choice, 8 * math.log(4 * count / beta) / alpha**2))


def _checked(count: int, **chances: float) -> None:
    if not ((whole(count) or 0) > 0):
        raise DeclarationError(f"the number of candidates must be positive, got {count!r}")
    for name, value in chances.items():
        if not (0 < value < 1):
            raise DeclarationError(f"{name} must be inside (0, 1), got {value!r}")
