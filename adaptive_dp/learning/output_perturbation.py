"""Output perturbation: a certified minimizer, with noise at its worst-case sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from attrs import field, frozen
from attrs.validators import instance_of, optional

from adaptive_dp.erm import (
    Game,
    Logistic,
    Loss,
    Multinomial,
    Squared,
    saddle_sensitivity,
)
from adaptive_dp.erm.sets import Ball
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, parameter, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.outputs import estimates
from adaptive_dp.learning.base import (
    WEIGHED,
    LearnerBudget,
    Linear,
    Model,
    WeightedLearner,
    checked_parameters,
    linear,
    optional_budget,
    penalized,
    query_sensitivity,
    regression,
    within,
)
from adaptive_dp.mechanisms.additive import Gaussian, Laplace, Norm
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.minimizer import SaddlePoint, released_ridge
from adaptive_dp.queries.moments import LEAST, MOST, ConstrainedCoefficients
from adaptive_dp.queries.table import Table

COUNT = 0.01
"""The share of the cost (of mu^2, or of epsilon) that the number of rows is released with."""

TYPICAL = 5.0
"""The norm of parameters, for rows of norm at most 1, at which the default ridge is at its best."""


@frozen
class OutputPerturbation(WeightedLearner[Model]):
    """A linear model: the minimizer of its losses and a ridge, with noise on the coefficients.

    One row that comes or goes moves the minimizer of ``sum of losses + ridge / 2 |w|^2`` by at most
    ``L / ridge`` in l2 norm, L the loss's Lipschitz constant for rows of norm at most 1, whatever
    the data; two are exchanged for twice that. The noise is Gaussian (epsilon and delta), or has
    the density ``exp(-epsilon |z| / Delta)``: pure epsilon, and in d dimensions a norm of law
    Gamma(d, Delta / epsilon). The noise is not
    truncated: cut off at a ball it would reveal on which side the minimizer was. Projection onto
    the ball comes afterwards.

    Log odds without a tilt, an adversary, a radius or an optimizer are checked in the end, as those
    of `NoisyGradientDescent`, which nearly always is more accurate. This is for problems without
    another private learner: tilted and adversarial risks, games, a user's optimizer, delta = 0.

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories.
    target
        A column of two categories, of several, or with bounds, as the loss reads.
    loss
        By default ``Logistic()`` for two categories, ``Multinomial`` for several, ``Squared()`` for
        bounds. It must be convex and smooth.
    ridge
        For rows of norm at most 1, in [2^-9, 2^40]; it penalises the intercept as well. The noise
        falls in it, the bias rises. By default it follows a released number of rows
        (`balanced_ridge`).
    radius
        The largest norm of coefficients that there may be, of columns on [-1, 1]; by default 1
        where the loss has an unbounded slope, none elsewhere.
    noise
        ``"gaussian"`` or ``"norm"``.
    tilt, rows
        A tilted risk of at least so many rows; its ridge is in units of the mean loss, and must be
        given, as must a radius. See `adaptive_dp.erm.Tilted`.
    adversary
        How far an adversary may move each row, as a share of the largest norm of a row.
    game
        In the place of a loss: a game of your own, ``min_x max_y f(x, y)``, its x the coefficients
        (of several classes, class by class). Its labels are -1 and 1 for two categories, 0, 1, ...
        for several, and in [-1, 1] for bounds.
    optimizer
        A function of the user's from an `adaptive_dp.erm.Objective` to a point, or from a game's
        `adaptive_dp.erm.Saddle` to both players'. What it returns is proven to be near the
        solution, or the library's own is used.
    norm
        To which longer rows are clipped: by default 1 where the target is a class and of a game,
        none where it is a number.
    class_weight, sample_weight
        As of `adaptive_dp.learning.base.WeightedLearner`: what rows weigh.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1; Lowy and Razaviyayn 2021, Algorithm 1; the
    proofs are in `adaptive_dp.queries.minimizer`.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.OutputPerturbation(["age"], "ill", ridge=2.0)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by ...>
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [20, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """

    loss: Loss | None = None
    # in [2^-9, 2^40], the limits of `adaptive_dp.queries.moments`
    ridge: float | None = field(default=None, validator=optional(within(LEAST, MOST)))
    radius: float | None = field(default=None, validator=optional(within(1e-3, 1e3)))
    noise: Literal["gaussian", "norm"] = "gaussian"
    tilt: float | None = None
    rows: int = 1
    adversary: float | None = None
    game: Game | None = field(default=None, validator=optional(instance_of(Game)))
    optimizer: Callable[[Any], Any] | None = None
    norm: float | None = None
    free: str = "sigma"

    title: ClassVar[str] = "output perturbation"
    calibrated: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if self.noise not in ("gaussian", "norm"):
            raise DeclarationError(
                f"OutputPerturbation.noise must be 'gaussian' or 'norm', got {self.noise!r}"
            )
        # a tilted risk has no default for either: its ridge is in units of the mean loss
        if self.tilt is not None and not (self.ridge is not None and self.radius is not None):
            raise DeclarationError(
                "OutputPerturbation with a tilt needs a ridge, in units of the mean loss, and a "
                "radius"
            )
        others = ("loss", "radius", "tilt", "adversary")
        given = [name for name in others if getattr(self, name) is not None]
        if self.game is not None and (given or self.is_weighted):
            raise DeclarationError(
                "OutputPerturbation of a game has its loss, set and adversary, and takes no "
                f"weights: leave out {', '.join(given) or 'class_weight and sample_weight'}"
            )

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget; delta may be left out where the noise is pure."""
        # the norm mechanism is pure: a delta would be paid for nothing
        if self.noise == "norm" and epsilon is not None and delta is None:
            delta = 0.0
        return optional_budget("OutputPerturbation", epsilon, delta)

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        if self.game is not None:
            return self._played(table, self.game)
        loss = self.loss if self.loss is not None else default_loss(table, self.target)
        # no radius where the Lipschitz constant is finite without one; the sensitivity is L / ridge
        radius = self.radius
        # squared losses have a slope that grows with w: only in a ball is it bounded
        if radius is None and math.isinf(loss.constants().lipschitz):
            radius = 1.0
        extensions = (self.tilt, self.adversary, self.optimizer)
        if self.is_weighted and self.adversary is not None:
            raise DeclarationError(
                "OutputPerturbation against an adversary takes no weights: leave out class_weight "
                "and sample_weight"
            )
        numbers = all(isinstance(table.domain.find(f), Interval) for f in self.features)
        # exact second moments suffice for squared losses with a public ridge and no extension
        is_plain = extensions == (None,) * 3 and not self.is_weighted
        if isinstance(loss, Squared) and self.ridge and numbers and is_plain:
            assert radius is not None
            return self._from_moments(table, self.ridge, radius)
        loss = self.weighed(loss)
        weights = self.weights(table, partial(self._class_noise, table))
        problem = linear(table, self.features, self.target, loss, self.norm, weights=weights)
        # smoothness may depend on the largest score, |w| |x| <= radius * R
        largest_score = math.inf if radius is None else radius * problem.radius
        # of several scores, the second derivative by them has a trace of at most 1
        bend = loss.constants(largest_score).smoothness if loss.outputs == 1 else 1.0
        query = partial(
            problem.rows.minimizer,
            loss,
            radius=radius,
            tilt=self.tilt,
            rows=self.rows,
            # declared as a share of the largest norm of a row, needed in the rows' own units
            adversary=None if self.adversary is None else self.adversary * problem.radius,
            optimizer=self.optimizer,
        )
        ridge = self._ridge(table, problem, query, loss.outputs, bend)
        theta = self._release(query(ridge=ridge), table)
        # with a released ridge the query's value is ridge times the minimizer: `divide_by_ridge`
        if isinstance(ridge, Released):
            theta = post(divide_by_ridge, theta, ridge)
        if radius is not None:
            # projection is post-processing: truncated noise would not be that of the proof
            return problem.model(post(project_onto_ball, theta, radius=radius))
        if extensions == (None,) * 3:
            pure = self.noise == "norm"
            own = problem, loss, self.target, theta, self.free, budget
            theta = checked_parameters(*own, pure=pure)
        return problem.model(theta)

    def _played(self, table: Table, game: Game) -> Released[Model]:
        """Return the model of a game: its learner's coefficients."""
        loss = default_loss(table, self.target)
        norm = 1.0 if self.norm is None else self.norm
        problem = linear(table, self.features, self.target, loss, norm)
        query = partial(problem.rows.saddle_point, game, optimizer=self.optimizer)
        # as of a logistic loss whose rows have gradients of that norm
        bend = game.slope / (4 * problem.radius)
        ridge = self._ridge(table, problem, query, loss.outputs, bend)
        declared = {
            "slope": game.slope,
            "shift": game.shift,
            "strong_concavity": game.strong_concavity,
        }
        if isinstance(ridge, Released):
            ridge = post(ridge_of_game, ridge, radius=problem.radius, **declared)
        asked = query(ridge=ridge)
        width = problem.width * loss.outputs
        assert isinstance(asked.operation, SaddlePoint)
        if asked.operation.width != width:
            raise DeclarationError(
                f"OutputPerturbation of a game returns {width} coefficients for "
                f"{problem.width - 1} features and an intercept, and the game's learner has "
                f"{asked.operation.width}; release examples.saddle_point(...) for another model"
            )
        theta = self._release(asked, table)
        if isinstance(ridge, Released):
            theta = post(times_movement, theta, ridge, **declared)
        return problem.model(theta)

    def _from_moments(self, table: Table, ridge: float, radius: float) -> Released[Any]:
        """Return the model of squared losses, which need only the exact second moments."""
        rows = regression(table, self.features, self.target, self.norm)
        # parameters of rows of norm R are 1/R as large: the ball's radius is scaled with the rows
        query = rows.query(ConstrainedCoefficients(ridge, rows.radius * radius))
        theta = self._release(query, table)
        return rows.coefficients(post(project_onto_ball, theta, radius=rows.radius * radius))

    def _release(self, query: PrivateQuery[Any], table: Table) -> Released[Any]:
        """Release a minimizer with free noise proportional to its l2 sensitivity."""
        # weights are proportional to sensitivities, so that several learners share one multiplier
        free = Free(self.free, weight=query_sensitivity(query, table))
        noise: Mechanism
        noise = Norm(scale=free, p=2) if self.noise == "norm" else Gaussian(sigma=free)
        return query.release(noise, name="coefficients")

    def _class_noise(self, table: Table, query: PrivateQuery[Any]) -> Mechanism:
        """Return the noise of the number of each class's rows, `WEIGHED` of the cost."""
        pure = self.noise == "norm"
        share = (1 - WEIGHED) / WEIGHED
        sensitivity = query_sensitivity(query, table, 1 if pure else 2)
        if pure:
            return Laplace(scale=Free(self.free, weight=share * sensitivity))
        return Gaussian(sigma=Free(self.free, weight=math.sqrt(share) * sensitivity))

    def _ridge(
        self, table: Table, problem: Linear, query: Callable[..., Any], outputs: int, bend: float
    ) -> float | Released[float]:
        """Return the ridge for rows as they are, or one that follows their released number.

        Parameters
        ----------
        query
            A function of a ridge that returns what will be released.
        outputs, bend
            How many scores there are, and the trace of a row's second derivative by them.
        """
        # losses' second derivatives grow as the square of the rows' norm, and the ridge with them
        scale = problem.radius**2
        if self.ridge is not None:
            return self.ridge * scale
        # a unit may own several rows: the count moves by as many
        pure, rows = self.noise == "norm", max(1, change_at(table).rows)
        # the count has COUNT of the cost: epsilons add up, and so do squares of mu
        weight = (1 - COUNT) / COUNT if pure else math.sqrt((1 - COUNT) / COUNT)
        free = Free(self.free, weight=weight * rows)
        mechanism = Laplace(scale=free) if pure else Gaussian(sigma=free)
        rows_count = problem.rows.weight() if self.is_weighted else table.count()
        number = rows_count.release(mechanism, name="number_of_rows")
        noise = parameter(number, "scale" if pure else "sigma")
        # the count stands for the ridge: `balanced_ridge` is computed from the count, publicly;
        # the noise of ridge times the minimizer, as a multiple of the count's
        ratio = query_sensitivity(query(ridge=number), table) / (weight * rows)
        width = problem.width * outputs
        # a coordinate of the norm mechanism's noise has deviation scale sqrt(d + 1)
        spread = ratio * math.sqrt(width + 1) if pure else ratio
        return post(balanced_ridge, number, noise, spread=spread, bend=bend, radius=problem.radius)


def default_loss(table: Table, target: str) -> Loss:
    """Return the default loss of a target: by its declaration, categories or bounds."""
    goal = table.domain.find(target)
    if isinstance(goal, Categories):
        return Logistic() if len(goal.values) == 2 else Multinomial(len(goal.values))
    return Squared()


def balanced_ridge(
    number: float, noise: float, *, spread: float, bend: float, radius: float
) -> float:
    """Return the ridge at which the noise's harm and the bias are least together.

    For n rows of norm at most R: parameters of norm `TYPICAL` / R cost a bias of
    ``ridge TYPICAL^2 / (2 R^2)``, and isotropic noise of deviation s on each of ``ridge`` times the
    parameters costs ``n b R^2 s^2 / (2 ridge^2)`` in the sum of losses, b the trace of a row's
    second derivative by its scores. Their sum is least where
    ``ridge^3 = 2 n b R^4 s^2 / TYPICAL^2``. Own derivation; no guarantee of privacy depends on it.

    Parameters
    ----------
    number, noise
        The released number of rows, and its noise.
    spread
        s, as a multiple of that noise.
    bend, radius
        b and R.
    """
    # a count below its own noise says little: twice the noise is the least that is believed
    n = min(max(float(number), 2 * float(noise), 1.0), 1e100)
    # the caps keep the product below finite where a count or noise is extreme
    s = min(spread * float(noise), 1e50)
    # the cube root of the docstring; rounding to an admissible ridge is done by `released_ridge`
    return released_ridge(math.cbrt(2 * n * bend * radius**4 * s * s / TYPICAL**2), radius)


def divide_by_ridge(scaled: Any, ridge: float) -> Any:
    """Return parameters from the released value, which is ``ridge`` times them."""
    # division by a released number is post-processing
    return np.asarray(scaled) / float(ridge)


def ridge_of_game(
    ridge: float, *, slope: float, shift: float, strong_concavity: float | None, radius: float
) -> float:
    """Return the ridge at which a row moves a game's learner by ``slope / ridge``.

    With that movement G, strong concavity nu and shift M, `adaptive_dp.erm.saddle_sensitivity`
    solved for it is ``slope / G + M^2 / (4 nu G^2)``.

    Examples
    --------
    >>> from adaptive_dp.erm import saddle_sensitivity
    >>> ridge = ridge_of_game(20.0, slope=1.0, shift=2.0, strong_concavity=5.0, radius=1.0)
    >>> round(ridge), round(1 / saddle_sensitivity(1.0, 2.0, ridge, 5.0), 6)
    (100, 20.0)
    """
    pulled = shift * float(ridge) / slope
    return released_ridge(float(ridge) + pulled * pulled / (4 * (strong_concavity or 1.0)), radius)


def times_movement(
    theta: Any, ridge: float, *, slope: float, shift: float, strong_concavity: float | None
) -> Any:
    """Return a game's parameters from the released value, ``slope`` over what a row moves them."""
    moves = saddle_sensitivity(slope, shift, float(ridge), strong_concavity or 1.0)
    return np.asarray(theta) * (moves / slope)


@estimates(penalized)
def project_onto_ball(theta: Any, *, radius: float) -> Any:
    """Return the nearest point of the ball of a radius around 0."""
    return Ball(radius).project(np.asarray(theta, dtype=np.float64))
