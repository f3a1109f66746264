"""Saddle points: games of a learner against an adversary, solved to a proven distance."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from attrs import Attribute, field, frozen
from numpy.typing import NDArray

from adaptive_dp.erm.objective import (
    Derived,
    Floats,
    NotReached,
    Objective,
    Solution,
    begin_search,
    check_arguments,
    from_gap,
    stationary,
)
from adaptive_dp.erm.optimizers import accelerated, minimize
from adaptive_dp.erm.sets import Simplex

# -----------------------------------------------------------------------------
# The game of a learner x against an adversary y.


class Saddle(Protocol):
    """The protocol of games ``min_x max_y f(x, y)`` over a product of closed convex sets.

    f must be strongly convex in x and *concave* in y: for example weights of groups,
    ``f(x, y) = sum of y_k F_k(x)``, or penalised ones. The shift of a row within a ball is not
    concave for a linear model (its loss is convex in the shift); there the worst shift has a closed
    form, and the worst loss is an objective of its own (`Adversarial`).
    """

    @property
    def adversary(self) -> int:
        """The number of the adversary's parameters."""
        ...

    @property
    def smoothness(self) -> float:
        """A Lipschitz constant of f's gradient in x and y together."""
        ...

    def against(self, y: Floats) -> Objective:
        """Return ``f(., y)`` as an objective, whose constants hold for every y.

        What depends on y only may be left out.
        """
        ...

    def ascent(self, x: Floats, y: Floats) -> Floats:
        """Return the gradient of f by y at (x, y)."""
        ...

    def project(self, y: Floats) -> Floats:
        """Return a point exactly in the adversary's set, the nearest one up to rounding."""
        ...

    def rise(self, x: Floats, y: Floats) -> float:
        """Return an upper bound of ``max f(x, .) - f(x, y)``, rounding included."""
        ...


def _number(instance: object, attribute: Attribute[float], value: float) -> None:
    least = 1e-12 if attribute.name != "shift" else 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1e12:
        raise ValueError(f"Game.{attribute.name} must be in [{least:g}, 1e12], got {value!r}")


@frozen
class Game:
    """A game of your own for each data set, with what its author declares of it.

    The game is ``ridge / 2 |x|^2``, a term without data, and one for each row, which reads that row
    alone: no mean of all rows, and not how many there are. It is convex in x and concave in y, over
    sets that no row changes. An adversary may have parameters for each row, in a set of their own,
    which only that row's term reads: how far a row can be moved, say. They cost nothing. What all
    terms may read is shared: weights of groups, say. It must be strongly concave, and costs by how
    far a row's term can pull it. In y what is shared comes first, then what rows have, in their
    order.

    Parameters
    ----------
    saddle
        A function from rows, shape (n, p), each of norm at most R, their labels, shape (n,), and a
        ridge, to a `Saddle`. It is called for no rows at all too.
    slope
        L, the largest norm of the gradient of a row's term by x, for every row, x and y.
    shift
        M, the largest norm of that by the part of y that rows share; 0 where they share none.
    strong_concavity
        nu, of the game without any row, in that part; None where they share none.

    See Also
    --------
    check_game : Whether a game is so on rows made up.

    Examples
    --------
    >>> def saddle(x, y, ridge):
    ...     ...  # returns an `adaptive_dp.erm.Saddle`
    >>> round(Game(saddle, slope=1.0).moves(ridge=50.0), 6)  # how far one row moves x
    0.02
    """

    saddle: Callable[[Floats, Floats, float], Saddle]
    slope: float = field(validator=_number)
    shift: float = field(default=0.0, validator=_number)
    strong_concavity: float | None = field(default=None)

    @strong_concavity.validator
    def _needed(self, attribute: Attribute[float], value: float | None) -> None:
        """Refuse a shared adversary whose strong concavity is not known."""
        if value is not None:
            _number(self, attribute, value)
        elif self.shift:
            raise ValueError(
                "Game.strong_concavity must be given where shift is above 0: one row may turn an "
                "adversary that rows share from one corner to another, and the learner with it. "
                "Add a square of the adversary's parameters to the game"
            )

    def moves(self, ridge: float) -> float:
        """Return the most by which a row that comes or goes moves the learner, in l2."""
        return saddle_sensitivity(self.slope, self.shift, ridge, self.strong_concavity or 1.0)


def weights(y: Floats) -> Floats:
    """Return the projection of y on the unit simplex, rounded to a sum of exactly 1.

    The projection is rounded down to multiples of ``2^-50``, and its largest takes the remainder:
    all these numbers, and every sum of them, are floats. The proof of a solution needs weights that
    are exactly in the adversary's set.

    Examples
    --------
    >>> weights(np.array([1.0, 0.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """
    steps = np.floor(Simplex().project(y) * 2.0**50).astype(np.int64)
    steps[np.argmax(steps)] += 2**50 - int(steps.sum())
    return np.asarray(steps * 2.0**-50)


@frozen(eq=False)
class Near(Derived[Objective]):
    """The objective of a proximal point method's round, ``F(w) + weight |w - center|^2``.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> near = Near(problem, center=np.zeros(2), weight=1.0)
    >>> round(near.strong_convexity, 6)
    2.5
    """

    center: Floats
    weight: float

    @property
    def strong_convexity(self) -> float:
        """The strong convexity of both terms."""
        return self.problem.strong_convexity + 2 * self.weight

    @property
    def smoothness(self) -> float:
        """The smoothness of both terms."""
        return self.problem.smoothness + 2 * self.weight

    @property
    def lipschitz(self) -> float:
        """Infinite: the set may be unbounded."""
        return np.inf

    def value(self, w: Floats) -> float:
        """Return the sum of both terms."""
        return self.problem.value(w) + self.weight * float(np.sum((w - self.center) ** 2))

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient of both terms."""
        return self.problem.gradient(w) + 2 * self.weight * (w - self.center)

    def rounding(self, w: Floats) -> float:
        """Return the problem's rounding with that of three more operations."""
        norms = float(np.linalg.norm(w) + np.linalg.norm(self.center))
        slope = float(np.linalg.norm(self.problem.gradient(w)))
        # a difference, a product and a sum, each off by a relative 2^-53; 2^-50 covers all
        return self.problem.rounding(w) + 2.0**-50 * (2 * self.weight * norms + slope)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the chosen parts' gradients with their share of the new term."""
        share = 2 * self.weight * len(chosen) / self.parts
        return self.problem.part(chosen, w) + share * (w - self.center)


# -----------------------------------------------------------------------------
# Saddle points: Minimax-APPA, with a proof from the primal-dual gap.
#
# **Proof of a solution.** Let ``Phi(x) = max_y f(x, y)``, mu-strongly convex as every f(., y) is,
# and x* its minimizer over C. For any y of the adversary's set and any point q of C at which the
# residual of f(., y) is r (`objective.py`: ``<g, q - x> <= r |q - x|`` for x in C),
# ``mu |q - x*| <= sqrt(r^2 + 2 mu rise)``, where ``rise >= Phi(q) - f(q, y)``.
#
# *Proof.* ``Phi(x*) >= min_x f(x, y) >= f(q, y) - max_d (r d - mu d^2 / 2) = f(q, y) - r^2/(2mu)``.
# So ``mu/2 |q - x*|^2 <= Phi(q) - Phi(x*) <= rise + r^2 / (2 mu)``. QED
#
# Rounding: a computed projection that is ``e`` away from q moves f(., y) and Phi by at most ``L e``
# each, and the point itself by e. The residual holds at q, as `objective.py` proves.


def minimax(
    saddle: Saddle, tolerance: float, *, start: Floats | None = None, rounds: int = 2000
) -> tuple[Solution, Floats]:
    """Return the learner's solution of ``min_x max_y f(x, y)`` and the adversary's answer.

    Outside, an accelerated proximal point method on x: each round solves the game with ``l |x -
    c|^2`` added, l the smoothness of f, and extrapolates its center c. Inside, accelerated ascent
    on y, with the best x against each y by accelerated descent. As f may be merely concave in y the
    ascent uses restarts in the place of a fixed momentum. A round is solved to a hundredth of the
    last known gap (own choice; the proof at the end rests on no rate).

    Parameters
    ----------
    saddle
        The game; strongly convex and smooth in x, concave and smooth in y.
    tolerance
        Of the residual: ``|x - x*| <= tolerance / mu``, x* the minimizer of ``max_y f(., y)``.
    start
        Where x begins; the origin if not given.
    rounds
        The most rounds, and the most ascent steps of each.

    Raises
    ------
    NotReached
        If no solution within the tolerance was proven in these rounds. The message holds no data.

    References
    ----------
    Lin, Jin and Jordan 2020, Algorithm 4 (Minimax-APPA).
    """
    y = saddle.project(np.zeros(saddle.adversary))
    learner = saddle.against(y)
    check_arguments(learner, strong_convexity=True, tolerance=tolerance, rounds=rounds)
    mu, smoothness = learner.strong_convexity, saddle.smoothness
    root = 2 * math.sqrt(max(1.0, smoothness / mu))
    _, last = begin_search(learner, start)
    center = last
    solution = certify_saddle(saddle, last, y)
    for _ in range(rounds):
        if solution.residual <= tolerance:
            return solution, y
        accuracy = max(tolerance, 0.1 * min(solution.residual, 1e300)) ** 2 / (20 * mu)
        x, y, gradients = _round(saddle, center, last, y, accuracy, rounds)
        center = x + (root - 1) / (root + 1) * (x - last)
        last = x
        solution = certify_saddle(saddle, x, y, solution.gradients + gradients)
    raise NotReached(
        f"no saddle point within the tolerance {tolerance} was proven; allow more rounds, or "
        "choose a tolerance above the rounding of the gradient"
    )


def dual_ascent(saddle: Saddle, tolerance: float, *, rounds: int = 300) -> tuple[Solution, Floats]:
    """Return the learner's best x against the adversary's y, by accelerated ascent on y alone.

    The dual function ``min_x f(x, .)`` is concave and smooth where f is strongly convex in x; its
    gradient is that of f by y at the best x, which `minimize` finds. The step is as long as
    gradients that were seen allow, far longer than the game's smoothness proves (own choice). Where
    `Solution.residual` is above the tolerance no solution was found.

    Parameters
    ----------
    saddle, tolerance
        As of `minimax`.
    rounds
        The most steps.

    References
    ----------
    Beck and Teboulle 2009 (steps with momentum); O'Donoghue and Candes 2015 (restarts).
    """
    y = saddle.project(np.zeros(saddle.adversary))
    ahead, age, bend = y, 1.0, saddle.smoothness / 16
    first = minimize(saddle.against(y), tolerance / 4)
    x, gradients = first.w, first.gradients
    solution = certify_saddle(saddle, x, y, gradients)
    slope = saddle.ascent(x, y)
    for _ in range(rounds):
        if solution.residual <= tolerance:
            break
        while True:
            following = saddle.project(ahead + slope / bend)
            best = minimize(saddle.against(following), tolerance / 4, start=x)
            next_slope, gradients = saddle.ascent(best.w, following), gradients + best.gradients
            step = float(np.linalg.norm(following - ahead))
            # the dual's gradient has changed by no more than a step of this length allows
            if not float(np.linalg.norm(next_slope - slope)) > bend * step * 1.001 + 1e-12:
                break
            bend *= 2
        solution = certify_saddle(saddle, best.w, following, gradients)
        x, opposite = best.w, float((ahead - following) @ (following - y)) > 0
        last, age = (1.0, 1.0) if opposite else (age, (1 + math.sqrt(1 + 4 * age**2)) / 2)
        if not opposite:  # in the adversary's set: outside of it f may not be defined
            ahead = saddle.project(following + (last - 1) / age * (following - y))
        else:
            ahead = following
        y, slope, bend = following, next_slope, 0.9 * bend
        if ahead is not following:
            best = minimize(saddle.against(ahead), tolerance / 4, start=x)
            slope, gradients = saddle.ascent(best.w, ahead), gradients + best.gradients
    return solution, y


def solve_saddle(saddle: Saddle, tolerance: float, *, rounds: int = 2000) -> Solution:
    """Return the learner's solution of a game, by whichever method proves one.

    Parameters
    ----------
    saddle, tolerance, rounds
        As of `minimax`, which is tried where `dual_ascent` has not come to a proof.

    Raises
    ------
    NotReached
        If neither has. The message holds no data.
    """
    with contextlib.suppress(NotReached, ValueError):  # or a search that left the finite numbers
        solution, _ = dual_ascent(saddle, tolerance)
        if solution.residual <= tolerance:
            return solution
    return minimax(saddle, tolerance, rounds=rounds)[0]


# -----------------------------------------------------------------------------
# How far one row moves the learner's part of a saddle point.
#
# **Theorem.** Let f be mu-strongly convex in x and nu-strongly concave in y over closed convex
# sets, and f + g convex-concave, with ``|grad_x g| <= L`` and ``|grad_y g| <= M`` there. The
# learner's parts of their saddle points are at most ``(L + sqrt(L^2 + M^2 mu / nu)) / (2 mu)``
# apart.
#
# *Proof.* Let T = (grad_x f, -grad_y f) and G the same of g; z = (x, y) and z' the saddle points,
# (a, b) the distances of their parts. As z and z' solve their variational inequalities,
# ``<T(z), z' - z> >= 0`` and ``<T(z') + G(z'), z - z'> >= 0``. Their sum and strong monotonicity:
# ``mu a^2 + nu b^2 <= <T(z') - T(z), z' - z> <= -<G(z'), z' - z> <= L a + M b``. That is a disc in
# ``(sqrt(mu) a, sqrt(nu) b)`` with 0 on its border and ``(L / sqrt(mu), M / sqrt(nu)) / 2`` as its
# center; its largest first coordinate is that of the center and the radius together. QED
#
# Subgradients do as well as gradients: the operator of a convex-concave function is monotone.
# Bilinear games attain it. Without strong concavity (nu = 0) no such bound holds: one row may turn
# the adversary from one corner to another, and the learner moves with it.
#
# **A row's own adversary** costs nothing. Let the term be ``g(x, y, v)``, v in a compact convex set
# of which only this row reads, g concave in (y, v). Then ``max_v g`` is convex in x and concave in
# y, with slopes of at most L and M as every ``g(., ., v)`` has them, and the saddle's x is that of
# the game in which it stands for g. With nothing shared M is 0, the bound ``L / mu``, and nu is not
# needed: it is the minimizer's (`adaptive_dp.queries.minimizer`) for the sum of ``max_v g``.


def saddle_sensitivity(
    slope: float, shift: float, strong_convexity: float, strong_concavity: float
) -> float:
    """Return the most by which a term that comes or goes moves the learner's x of a saddle point.

    Parameters
    ----------
    slope, shift
        The largest norms of the term's gradients: by x, and by y (0 if y is not in it).
    strong_convexity, strong_concavity
        Of the game without the term, by x and by y.

    References
    ----------
    Own derivation, which the file has; it is ``slope / strong_convexity`` for a shift of 0, as of a
    minimizer (Lowy and Razaviyayn 2021, Lemma B.2).

    Examples
    --------
    >>> round(saddle_sensitivity(1.0, 0.0, 2.0, 1.0), 6)
    0.5
    >>> round(saddle_sensitivity(1.0, 1.0, 2.0, 1.0), 6)
    0.683013
    """
    # each square root and quotient is off by a relative 2^-53 at most; 2^-48 covers them
    ratio = math.sqrt(strong_convexity) / math.sqrt(strong_concavity)
    both = slope + math.hypot(slope, shift * ratio)
    return both / (2 * strong_convexity) * (1 + 2.0**-48)


CHECKS = 20
"""The pairs of points at which a game is compared with what is declared of it."""


def check_game(game: Game, x: Floats, labels: Floats, ridge: float) -> int:
    """Return the number of the learner's parameters; refuse a game that is not as it is declared.

    On no rows, one, all but one, and all: the sizes, the convexity and concavity with the
    gradients that it states, between points drawn at random, how far a row bends it, that this is
    the same beside other rows as alone, and that `solve_saddle` proves a solution. What passes may
    still be wrong elsewhere: it is no proof.

    Parameters
    ----------
    game
        What is declared.
    x, labels
        Rows made up, a few. The errors may show them, so they must not be private.
    ridge
        For these rows.

    Raises
    ------
    ValueError
        If the game is not as declared, in these points; an exception of its own goes through.

    Examples
    --------
    >>> def saddle(x, y, ridge):
    ...     raise TypeError("not written yet")
    >>> check_game(Game(saddle, slope=1.0), np.eye(2), np.ones(2), 1.0)
    Traceback (most recent call last):
        ...
    TypeError: not written yet
    """
    if not 0 < ridge < math.inf:
        raise ValueError(f"a game needs a finite ridge above 0, got {ridge!r}")

    def of(rows: NDArray[np.int64]) -> Saddle:
        return game.saddle(x[rows], labels[rows], ridge)  # copies: a function may change them

    draw, every = np.random.default_rng(0), np.arange(len(x))
    none, full, alone = of(every[:0]), of(every), [of(every[i : i + 1]) for i in every]
    less = [of(np.delete(every, i)) for i in every]
    none_against = none.against(none.project(np.zeros(none.adversary)))
    width, shared = none_against.width, none.adversary
    own = [each.adversary - shared for each in alone]
    if min(own) < 0 or full.adversary != shared + sum(own):
        raise ValueError(
            f"the game is not as declared: its adversary has {shared} parameters without rows, "
            f"{full.adversary} with {len(x)} rows made up, and with each of them alone "
            f"{', '.join(str(each) for each in own)} more"
        )
    places = [shared + np.arange(sum(own[:i]), sum(own[: i + 1])) for i in every]
    nu = (game.strong_concavity or 0.0) if game.shift else 0.0
    for after, size in ((none, 0), (alone[0], 1), (full, len(x))):
        for trial in range(CHECKS):
            scale = 10.0 ** draw.uniform(-2, 1)
            y, other, point = (scale * draw.normal(size=after.adversary) for _ in "123")
            y, other = after.project(y), after.project(other)
            start, end = scale * draw.normal(size=width), scale * draw.normal(size=width)
            w, far = (after.against(y).project(v) for v in (start, end))
            # both proofs are over one set, which no row and no y changes
            held = np.array([each.project(start) for each in (none_against, after.against(other))])
            wrong = "the learner's set depends on the rows or on y"
            if np.abs(held - w).max() <= 1e-9 * (1 + np.abs(start).max()):
                wrong = _differs(after, width, shared, (ridge, nu), (w, far), (y, other))
            i = trial % size if size else 0
            if size and not wrong:
                before = less[i] if size > 1 else none
                wrong = _bends(game, (none, before, after, alone[i]), places[i], w, point)
            if wrong:
                raise ValueError(f"the game is not as declared, on {size} rows made up: {wrong}")
    moves = game.moves(ridge)
    try:
        with np.errstate(all="ignore"):  # a search that diverges ends without a proof
            ends = [
                solve_saddle(each, 1e-2 * ridge * moves, rounds=500).w for each in (less[-1], full)
            ]
    except NotReached:
        raise ValueError(
            f"no solution of the game was proven on {len(x)} rows made up: its smoothness may be "
            "too small, its rounding too large, or its adversary's rise too far above the truth"
        ) from None
    moved = float(np.linalg.norm(ends[1] - ends[0]))
    if not moved <= moves * 1.021:
        raise ValueError(
            f"the game is not as declared: a row made up moves the learner by {moved:g}, which by "
            f"its slope, shift and strong concavity is at most {moves:g}"
        )
    return width


def _differs(
    saddle: Saddle,
    width: int,
    shared: int,
    curvatures: tuple[float, float],
    learners: tuple[Floats, Floats],
    adversaries: tuple[Floats, Floats],
) -> str:
    """Return in what a game differs from what is declared between two points, or nothing."""
    (w, far), (y, other), (mu, nu) = learners, adversaries, curvatures
    against = saddle.against(y)
    slope, ascent = np.asarray(against.gradient(w)), np.asarray(saddle.ascent(w, y))
    for what, found, wanted in (
        ("the learner's width", (against.width,), (width,)),
        ("the shape of the gradient by x", slope.shape, (width,)),
        ("the shape of the gradient by y", ascent.shape, (saddle.adversary,)),
    ):
        if found != wanted:
            return f"{what} is {found}, and must be {wanted}"
    if not against.strong_convexity >= mu * (1 - 1e-12):
        return (
            f"its strong convexity is {against.strong_convexity:g}, and must be at least the ridge "
            f"that the function is given, {mu:g}"
        )
    if not 0 < saddle.smoothness < math.inf:
        return f"its smoothness is {saddle.smoothness:g}, and must be positive and finite"
    here, there, answer = against.value(w), against.value(far), np.asarray(saddle.ascent(w, other))
    if not np.isfinite([here, there, *slope, *ascent, *answer, against.rounding(w)]).all():
        return "a value, a gradient or its rounding is not finite"
    slack = 1e-9 * (abs(here) + abs(there))
    # strong convexity: above the tangent, by mu / 2 |.|^2
    square = mu / 2 * float(np.sum((far - w) ** 2))
    if there - here - float(slope @ (far - w)) < square * (1 - 1e-9) - slack:
        return "in x it is not as convex as the ridge, or its gradient is another one"
    ends = np.asarray(against.gradient(far))
    for bend, apart in ((ends - slope, far - w), (answer - ascent, other - y)):
        least = float(np.linalg.norm(bend) - 1e-9 * np.linalg.norm([*slope, *ascent, *ends]))
        if not least <= saddle.smoothness * float(np.linalg.norm(apart)):
            return f"its smoothness is {saddle.smoothness:g}, which is too small"
    # strong concavity, by gradients alone: `against` may leave out what depends on y only
    move = other - y
    longest = float(np.linalg.norm(ascent) + np.linalg.norm(answer)) * float(np.linalg.norm(move))
    # what rows have of their own comes after what they share, and need not be strongly concave
    square = float(move[:shared] @ move[:shared])
    if float((answer - ascent) @ move) > 1e-9 * longest - nu * square * (1 - 1e-9):
        return "in y it is not as concave as declared"
    # f(w, other) - f(w, y) is at least the slope at its end
    if saddle.rise(w, y) < float(answer @ move) - 1e-9 * longest:
        return "its rise is below what another y brings"
    return ""


def _bends(
    game: Game,
    games: tuple[Saddle, Saddle, Saddle, Saddle],
    place: NDArray[np.int64],
    w: Floats,
    point: Floats,
) -> str:
    """Return in what a row changes the rest of a game, beyond what is declared, or nothing.

    Parameters
    ----------
    games
        Of no rows, of some, of those and one more, and of that one alone.
    place
        Where the one's own parameters are among the adversary's.
    w, point
        The learner's point, and one for all of the adversary's parameters, to be projected.
    """
    none, before, after, alone = games
    shared = none.adversary
    y = after.project(point)
    at = (y[:shared], np.delete(y, place), y, np.concatenate([y[:shared], y[place]]))
    ends = before.project(np.delete(point, place)), alone.project(at[3])
    if any(np.abs(a - b).max(initial=0.0) > 1e-9 for a, b in zip(ends, at[1::2], strict=True)):
        return (
            "which y there may be of what rows share, or of one row, depends on the number of rows "
            "or on the others' y (what is shared comes first, then what each row has, in order)"
        )
    pairs = list(zip(games, at, strict=True))
    slopes = [np.asarray(each.against(its).gradient(w)) for each, its in pairs]
    ascents = [np.asarray(each.ascent(w, its)) for each, its in pairs]
    slope, pull = slopes[2] - slopes[1], np.delete(ascents[2], place) - ascents[1]
    length = float(np.linalg.norm(slope))
    if not length <= game.slope * (1 + 1e-6):
        return f"a row's gradient by x has norm {length:g}, and its slope is {game.slope:g}"
    # of other rows' own parameters there is nothing to pull
    length = float(np.linalg.norm(pull))
    if not length <= game.shift * (1 + 1e-6) + 1e-9:
        return f"a row's gradient by y has norm {length:g}, and its shift is {game.shift:g}"
    # a term that is the row's own is the same beside others as alone
    by_y = np.concatenate([pull[:shared], ascents[2][place], pull[shared:]])
    lone = np.concatenate([ascents[3][:shared] - ascents[0], ascents[3][shared:]])
    lone = np.pad(lone, (0, len(by_y) - len(lone)))  # it pulls at nothing that others have
    for here, there, terms in ((slope, slopes[3] - slopes[0], slopes), (by_y, lone, ascents)):
        size = sum(float(np.linalg.norm(each)) for each in terms)
        if not np.linalg.norm(here - there) <= 1e-7 * (1e-3 + size):
            return (
                "a row's term reads other rows, or how many there are, as its gradient beside them "
                "is another one than alone. Give a sum of terms, one for each row"
            )
    return ""


def certify_saddle(saddle: Saddle, x: Floats, y: Floats, gradients: int = 0) -> Solution:
    """Return a point near x with a proven residual for the game; y is in the adversary's set."""
    learner = saddle.against(y)
    # y of another shape may be broadcast, to what is not in the adversary's set
    shapes = np.shape(x) == (learner.width,) and np.shape(y) == (saddle.adversary,)
    if not shapes or not np.isfinite(x).all() or not np.isfinite(y).all():
        return Solution(x, math.inf, gradients)
    proof = stationary(learner, x, gradients, saddle.smoothness)
    gap = saddle.rise(proof.w, y)
    projection_error = learner.projection_error(proof.w)
    if projection_error:  # f(., y) and Phi each move by at most L e
        gap += 2 * learner.lipschitz * projection_error
    # sqrt(r^2 + 2 mu rise), rounded up; and the point itself is e away
    combined = math.hypot(proof.residual, from_gap(gap, learner.strong_convexity)) * (1 + 2.0**-50)
    residual = combined + learner.strong_convexity * projection_error
    return Solution(proof.w, residual if residual < math.inf else math.inf, proof.gradients)


def _round(
    saddle: Saddle, center: Floats, x: Floats, y: Floats, accuracy: float, steps: int
) -> tuple[Floats, Floats, int]:
    """Return x, y of the game with the proximal term, to a gap of ``accuracy``, and the count."""
    momentum_y, age, gradients = y, 1.0, 0
    # Danskin's theorem: the best x is Lipschitz in y, with constant smooth / (2 smooth + mu) < 1/2
    eta = 1 / (1.5 * saddle.smoothness)
    near = Near(saddle.against(y), center, saddle.smoothness)
    exact = 0.1 * math.sqrt(2 * near.strong_convexity * accuracy)
    for _ in range(steps):
        for_y = Near(saddle.against(y), center, saddle.smoothness)
        best = accelerated(for_y, tolerance=exact, steps=1000, start=x)
        gradients += best.gradients
        x = best.w
        if best.residual**2 / (2 * for_y.strong_convexity) + saddle.rise(x, y) <= accuracy:
            break
        if momentum_y is not y:
            for_momentum = Near(saddle.against(momentum_y), center, saddle.smoothness)
            best = accelerated(for_momentum, tolerance=exact, steps=1000, start=x)
            gradients += best.gradients
        next_y = saddle.project(momentum_y + eta * saddle.ascent(best.w, momentum_y))
        # restart where the last step and the momentum have opposite directions, as in `accelerated`
        opposite = float((momentum_y - next_y) @ (next_y - y)) > 0
        last, age = (1.0, 1.0) if opposite else (age, (1 + math.sqrt(1 + 4 * age**2)) / 2)
        momentum_y = next_y if opposite else next_y + (last - 1) / age * (next_y - y)
        y = next_y
    return x, y, gradients
