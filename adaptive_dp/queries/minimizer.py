"""The minimizer of an empirical risk, with a proven bound on how far one row moves it.

*Theorem.* Let F and F + g be convex on a closed convex set C, F mu-strongly convex, and every
subgradient of g on C at most G long. Their minimizers w and v over C are at most ``G / mu`` apart.

*Proof.* As w is optimal for F there is a subgradient a of F at w with ``<a, v - w> >= 0``; as v is
optimal for F + g there are subgradients b of F and h of g at v with ``<b + h, w - v> >= 0``. Strong
monotonicity, then these two, then Cauchy-Schwarz:
``mu |v - w|^2 <= <b - a, v - w> <= <b, v - w> <= <h, w - v> <= G |v - w|``. QED

For a *sum* of rows' losses and ``ridge / 2 |w|^2`` (mu = ridge) and a row added or removed, g or -g
is its loss, of Lipschitz constant L on C: F is taken to be the sum without it, which has the ridge.
The ridge is the same in both and adds nothing to G. A row that is exchanged is one removed and one
added: ``2 L / ridge``, and so on for the rows of a unit. No smoothness is used, nor that C is all
of R^p. (Lowy and Razaviyayn 2021, Lemma B.2; Chaudhuri, Monteleoni and Sarwate 2011, Lemma 7, for
differentiable losses. The mean's ``2 L / (mu n)`` is this one with ``mu n`` for mu.)

*What is computed* is a point for which a residual of at most ``t L`` was proven on all of the data,
rounding included (`adaptive_dp.erm.objective`), t a public number fixed beforehand. So it
is at most ``t L / ridge`` from the minimizer, and two such points are at most ``2 t L / ridge``
farther apart than the minimizers are. How the point was found does not matter: one that a user's
own optimizer returns is as good, if the residual is proven for it.

*Saddle points* of a user's game have a theorem of their own (`adaptive_dp.erm.minimax`), and the
same slack: a point with a proven gap of alpha is at most ``sqrt(2 alpha / mu)`` from the solution,
as the worst case ``max_y f(., y)`` is mu-strongly convex.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Examples, grid
from adaptive_dp.erm import (
    Adversarial,
    Game,
    Loss,
    NotReached,
    Problem,
    Saddle,
    Tilted,
    certify,
    certify_saddle,
    losses,
    minimize,
    solve_saddle,
)
from adaptive_dp.erm.losses import Weighted
from adaptive_dp.erm.tilted import tilted_sensitivity
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.registry import Function
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Floats, finite_float
from adaptive_dp.queries.examples import ExamplesDomain
from adaptive_dp.queries.gradients import loss_of, loss_text

FINE = 24
"""Coordinates are integer multiples of a step of at least 2^-25 of what one row moves them."""

LEAST, MOST = 2.0**-20, 2.0**40
"""The range of ridges, for rows of norm at most 1."""

KINK = 1e-3
"""The smoothing of an adversary's kink at 0 (`Adversarial.smoothing`), for rows of norm 1."""


def _optional_float(value: Any) -> float | None:
    return (
        None
        if value is None
        else finite_float("a minimizer's ridge, radius, tilt or adversary", value)
    )


@frozen
class Minimizer(Query):
    """The minimizer of the sum of the rows' losses and ``ridge / 2 |w|^2``.

    The intercept is penalised as well: otherwise the sum is not strongly convex, and one row could
    move it without bound.

    *Sensitivity* in l2, with ``G = L / ridge`` (the theorem of the module): a unit of up to r rows
    that *appears or vanishes* moves the minimizer by at most ``r G``; a rows *exchanged* for b by
    ``(a + b) G``. Of a tilted risk both are ``max(a, b)`` times the bound of
    `adaptive_dp.erm.Tilted`. The tolerance adds ``2 t G``, the rounding of coordinates to steps a
    few steps. In l1 it is ``sqrt(p)`` times as much.

    Parameters
    ----------
    loss
        With a bounded slope and second derivative (within the radius, if there is one), as a str.
    ridge
        In units of the sum of losses. None if it is a released number, the second input: then the
        value is ``ridge`` times the minimizer, which one row moves by L.
    radius
        Of the l2 ball of the parameters; None for no bound.
    tolerance
        t above, as a share of what one row moves the minimizer.
    tilt
        t > 0 minimizes ``log(mean e^{t f_i}) / t`` and the ridge, which is then in units of a
        mean; see `adaptive_dp.erm.Tilted`, where the sensitivity is proven. Needs a radius.
    rows
        N, for a tilted risk: smaller data sets are padded to N rows with rows of zeros. A row that
        appears then replaces one of those, so that the bound at size N holds for all data and
        every neighbour relation: a rows exchanged for b move it by at most max(a, b) times it.
    adversary
        rho: each row's loss is the largest at any row within an l2 distance of rho. Its kink at
        w = 0 is rounded off (`Adversarial.smoothing`), which moves no constant that counts here.
    optimizer
        A user's own function from an `Objective` to a point, tried first. It sees private data, and
        its side effects are its author's responsibility. What it returns is used only if its
        residual is proven; what it raises is ignored.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011; Lowy and Razaviyayn 2021, Algorithm 1.
    """

    kind: ClassVar[str] = "minimizer"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1
    assumption: ClassVar[str] = (
        "The search for each minimizer ends within its tolerance on the data set and on its "
        "neighbours; where it does not, the run fails, and that it failed is not protected."
    )

    loss: str = field(converter=loss_text)
    ridge: float | None = field(default=None, converter=_optional_float)
    radius: float | None = field(default=None, converter=_optional_float)
    tolerance: float = 1e-3
    tilt: float | None = field(default=None, converter=_optional_float)
    rows: int = 1
    adversary: float | None = field(default=None, converter=_optional_float)
    optimizer: Function | None = None

    def label(self) -> str:
        """Return the kind of risk and the loss."""
        kind = "tilted " if self.tilt is not None else ""
        kind = "adversarial " if self.adversary is not None else kind
        return f"minimizer of {kind}{self.loss.removesuffix('()')}"

    def detail(self) -> str:
        """Return ridge and radius."""
        ridge = "released ridge" if self.ridge is None else f"ridge {self.ridge:g}"
        return ridge if self.radius is None else f"{ridge}, norm {self.radius:g}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples' domain; refuse what the theorem does not cover."""
        domain: ExamplesDomain = inputs[0]
        if (len(inputs) == 2) != (self.ridge is None):
            raise DeclarationError(
                "a minimizer needs a ridge: a number, or a released handle; one of them"
            )
        loss = loss_of(self.loss, domain, own=False)
        if not (0 < finite_float("a tolerance", self.tolerance) <= 1):
            raise DeclarationError(
                f"a minimizer's tolerance must be in (0, 1], got {self.tolerance!r}"
            )
        scale = domain.radius**2
        if self.ridge is not None and not (LEAST * scale <= self.ridge <= MOST * scale):
            raise DeclarationError(
                f"a ridge must be in [2^-20, 2^40] times R^2 (R = {domain.radius:g}, the largest "
                f"norm of a row), got {self.ridge!r}; without one the minimizer may move "
                "without bound"
            )
        if self.radius is not None and not (1e-9 <= self.radius * domain.radius <= 1e9):
            raise DeclarationError(
                f"a minimizer's radius must be in [1e-9, 1e9] over R, got {self.radius!r}"
            )
        if self.tilt is not None and self.adversary is not None:
            raise DeclarationError("a minimizer is tilted, or against an adversary; not both")
        if self.adversary is not None and not (
            loss.monotone and 0 < self.adversary <= 1e6 * domain.radius
        ):
            raise DeclarationError(
                "an adversary needs a loss that falls with the margin, such as Logistic(), and a "
                f"distance above 0; got {self.loss} and {self.adversary!r}"
            )
        if not (isinstance(self.rows, int) and 1 <= self.rows <= 2**24):
            raise DeclarationError(f"rows must be an int from 1 to 2^24, got {self.rows!r}")
        if self.tilt is not None and not (1e-9 <= self.tilt <= 1e9 and self.radius is not None):
            raise DeclarationError(
                "a tilt must be in [1e-9, 1e9], with a radius that bounds the loss; got "
                f"{self.tilt!r}"
            )
        if not loss.convex:
            raise DeclarationError(f"{self.loss} is not convex; FiniteLearner chooses by any loss")
        # the slope and second derivative must be bounded at every parameter of the ball
        single = self._one_row(domain.width, domain.radius)
        if not (single.row_lipschitz <= 1e100 and single.constants.smoothness <= 1e100):
            raise DeclarationError(
                f"{self.loss} has no bounded slope and second derivative"
                + (" on all parameters: give a radius" if self.radius is None else "")
                + "; where a loss has kinks take a smoothed one, such as SmoothedHinge() or Huber()"
            )
        return domain

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of parameters."""
        return loss_of(self.loss, domain, own=False).outputs * domain.width

    def moves(self, domain: ExamplesDomain) -> float:
        """Return the most by which a row added or removed moves the exact value, in l2."""
        return self._moves(self._one_row(domain.width, domain.radius), self.ridge or 1.0)

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step to which coordinates are rounded."""
        return grid.step(self.moves(domain), FINE)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factors 1 + 1e-12 round it up.

        Rounding moves each coordinate by half a step for each of two data sets, and by up to a
        step before that where it is multiplied by a released ridge (it has at most 2^53 steps).
        """
        # of a tilted risk an exchanged row counts once, as rows replace rows of zeros
        times = change.both if self.tilt is None else change.rows
        size, row_movement = self.dimension(domain), self.moves(domain)
        # |v - w| <= G / mu for each row, and both points within t G / mu of their minimizers
        distance = row_movement * (times + 2 * self.tolerance) * (1 + 1e-12)
        if math.isinf(norm):
            return (distance + 3 * self.step(domain)) * (1 + 1e-12)
        if norm not in (1, 2):
            raise DeclarationError(f"minimizers have sensitivities in l1, l2 and l_inf, not {norm}")
        roots = math.sqrt(size)
        total = distance + 3 * self.step(domain) * roots
        # |v|_1 <= sqrt(p) |v|_2, and the last factor rounds up
        return total * (roots if norm == 1 else 1.0) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the parameters, k times p of them, row by row.

        Raises
        ------
        NotReached
            If no point within the tolerance was found; the run then fails.
        """
        rows: Examples = inputs[0].in_memory()
        ridge = released_ridge(inputs[1], rows.radius) if self.ridge is None else self.ridge
        with np.errstate(all="ignore"):  # a warning would depend on the data
            moves = self._moves(self._one_row(rows.width, rows.radius), ridge)
            # rounded down: the tolerance may only be too small
            share = self.tolerance * (1 - 1e-12) * moves
            w = self._search(rows, ridge, share * (1.0 if self.ridge is None else ridge))
        step = grid.step(moves, FINE)
        steps = np.rint((w * ridge if self.ridge is None else w) / step)
        # clamped to integers that floats hold: 1-Lipschitz, so it moves no two values apart
        return np.asarray(np.clip(steps, -grid.EXACT, grid.EXACT) * step)

    def objective(self, rows: Examples, ridge: float) -> Problem | Tilted | Adversarial:
        """Return the objective, with copies of the data: a user's optimizer may change them."""
        loss = losses.read(self.loss)
        x, y = rows.steps.astype(np.float64) * rows.unit, _admissible(loss, rows.labels)
        if self.tilt is not None and len(y) < self.rows:
            # rows of zeros up to N: the bound at size N then holds for every data set
            missing = self.rows - len(y)
            x = np.concatenate([x, np.zeros((missing, x.shape[1]))])
            y = np.concatenate([y, _admissible(loss, np.zeros(missing))])
        plain = Problem(x, y, loss, row_norm=rows.radius, ridge=ridge, radius=self.radius)
        if self.tilt is not None:
            return Tilted(plain, self.tilt)
        return plain if self.adversary is None else self._against(plain)

    def _search(self, rows: Examples, ridge: float, tolerance: float) -> Floats:
        """Return a proven point: the given optimizer's, or where that is not proven, our own.

        That optimizer gets an objective of its own, since it might change its arrays. The last of
        our own is accelerated descent, which halves the error in about ``sqrt(k)`` steps (k the
        condition number); it may take a hundred times as many.
        """
        objective = self.objective(rows, ridge)
        if self.optimizer is not None:
            with contextlib.suppress(Exception):  # a failure would reveal something about the data
                point = self.optimizer.resolve()(self.objective(rows, ridge))
                proven = certify(objective, np.array(point, dtype=np.float64))
                if proven.residual <= tolerance:
                    return proven.w
        root = math.sqrt(max(1.0, objective.smoothness / objective.strong_convexity))
        return minimize(objective, tolerance, steps=1000 + min(10**7, math.ceil(100 * root))).w

    def _one_row(self, width: int, radius: float) -> Problem | Adversarial:
        """Return the objective of one row of zeros: constants of a row are those of every row."""
        loss = losses.read(self.loss)
        x, y = np.zeros((1, width)), _admissible(loss, np.zeros(1))
        plain = Problem(x, y, loss, row_norm=radius, ridge=1.0, radius=self.radius)
        return plain if self.adversary is None else self._against(plain)

    def _against(self, plain: Problem) -> Adversarial:
        assert self.adversary is not None
        return Adversarial(plain, self.adversary, smoothing=KINK / plain.row_norm)

    def _moves(self, one: Problem | Adversarial, ridge: float) -> float:
        """Return the movement of `moves`, from the constants of a single row's objective."""
        # with a released ridge the value is ridge times the minimizer: one row moves it by L
        lower = 1.0 if self.ridge is None else math.nextafter(ridge, 0.0)
        if self.tilt is None:
            return one.row_lipschitz / lower * (1 + 1e-12)
        c = one.constants
        return tilted_sensitivity(
            one.row_lipschitz, c.highest - c.lowest, self.tilt, lower, self.rows
        )


def _constant(value: Any) -> float | None:
    return None if value is None else finite_float("a saddle point's constant", value)


@frozen
class SaddlePoint(Query):
    """The learner's x of ``min_x max_y f(x, y)``, a user's game, solved to a proven gap.

    *Sensitivity* in l2: a row that comes or goes moves the solution by at most G
    (`adaptive_dp.erm.saddle_sensitivity`), so that, as of a `Minimizer`, a rows exchanged for b
    move it by ``(a + b) G``. The gap is ``alpha = ridge / 2 (t G)^2``, t the tolerance, and adds
    ``2 sqrt(2 alpha / ridge) = 2 t G``, however the point was found.

    Parameters
    ----------
    game
        A function from rows, shape (n, p), their labels and a ridge to an `adaptive_dp.erm.Saddle`;
        it is called for no rows at all too. It sees private data, and what it does with them beside
        is its author's responsibility.
    width
        The number of the learner's parameters.
    slope, shift, strong_concavity
        As declared by an `adaptive_dp.erm.Game`, for every row that there may be.
    ridge
        The game's strong convexity. None if it is a released number, the second input: then the
        value is ``slope / G`` times the solution, which one row moves by ``slope``.
    tolerance
        t, as a share of what one row moves the solution.
    optimizer
        A user's own function from the `Saddle` to (x, y), tried first, as of a `Minimizer`: what it
        returns is used only if its gap is proven.

    References
    ----------
    Lowy and Razaviyayn 2021, Algorithm 6; the bound for a game whose adversary sees all rows at
    once is our own.
    """

    kind: ClassVar[str] = "saddle_point"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    game: Function
    width: int
    slope: float = field(converter=_constant)
    shift: float = field(default=0.0, converter=_constant)
    strong_concavity: float | None = field(default=None, converter=_constant)
    ridge: float | None = field(default=None, converter=_constant)
    tolerance: float = 1e-3
    optimizer: Function | None = None

    def label(self) -> str:
        """Return the game's name."""
        return f"saddle point of {self.game.label}"

    def detail(self) -> str:
        """Return the gap and the ridge."""
        if self.ridge is None:
            return f"released ridge, within {self.tolerance:g} of what a row moves it"
        return f"gap {self._gap:.3g}, ridge {self.ridge:g}"

    def assumes(self) -> str:
        """Return the sentence that names what the game's author declares, and the gap."""
        shared = (
            f", concave in the adversary; a row adds a convex-concave term that reads no other "
            f"row, with gradients of norm at most {self.slope:g}, and its adversary is its own"
            if not self.shift
            else f", {self.strong_concavity:g}-strongly concave in the adversary that rows share; "
            f"a row adds a convex-concave term that reads no other row, with gradients of norm at "
            f"most {self.slope:g} and {self.shift:g}"
        )
        gap = (
            f"the gap ridge / 2 ({self.tolerance:g} G)^2, G what one row moves the solution,"
            if self.ridge is None
            else f"the gap {self._gap:.3g}"
        )
        ridge = "a released ridge" if self.ridge is None else f"{self.ridge:g}"
        return (
            f"The game {self.game.label} is what its author declares: strongly convex in the "
            f"learner by {ridge}{shared}; no row changes the learner's set, or any adversary's but "
            "its own; its bounds of smoothness, rounding and the adversary's rise hold. The search "
            f"ends within {gap} on the data set and on its neighbours; where it does not, the run "
            "fails, and that it failed is not protected."
        )

    @property
    def _game(self) -> Game:
        """What is declared; raise ValueError for what the theorem does not cover."""
        return Game(self._built, self.slope, self.shift, self.strong_concavity)

    def _built(self, x: Floats, labels: Floats, ridge: float) -> Any:
        """Return the game of these rows."""
        return self.game.resolve()(x, labels, ridge)

    @property
    def _gap(self) -> float:
        """alpha, where the ridge is public."""
        assert self.ridge is not None
        return self.ridge / 2 * (self.tolerance * self._game.moves(self.ridge)) ** 2

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples' domain; refuse what the theorem does not cover."""
        domain: ExamplesDomain = inputs[0]
        try:
            _ = self._game
        except ValueError as error:
            raise DeclarationError(str(error)) from None
        if (len(inputs) == 2) != (self.ridge is None):
            raise DeclarationError(
                "a saddle point needs a ridge: a number, or a released handle; one of them"
            )
        scale = domain.radius**2
        if self.ridge is not None and not LEAST * scale <= self.ridge <= MOST * scale:
            raise DeclarationError(
                f"a ridge must be in [2^-20, 2^40] times R^2 (R = {domain.radius:g}, the largest "
                f"norm of a row), got {self.ridge!r}; without one the solution may move without "
                "bound"
            )
        # below, the search may come to the rounding of the game first, and try for hours
        if not 1e-6 <= finite_float("a saddle point's tolerance", self.tolerance) <= 1:
            raise DeclarationError(
                f"a saddle point's tolerance must be in [1e-6, 1], got {self.tolerance!r}"
            )
        if type(self.width) is not int or not 1 <= self.width <= 2**24:
            raise DeclarationError(
                f"a saddle point's width must be an int from 1 to 2^24, got {self.width!r}"
            )
        if domain.weighted:
            raise DeclarationError("a saddle point takes no weighted rows: leave out the weights")
        return domain

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of the learner's parameters."""
        return self.width

    def moves(self) -> float:
        """Return the most by which a row added or removed moves the exact value, in l2."""
        return self.slope if self.ridge is None else self._game.moves(self.ridge)

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step to which coordinates are rounded."""
        return grid.step(self.moves(), FINE)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring and the rounding, as `Minimizer.sensitivity`."""
        if norm not in (1, 2, math.inf):
            raise DeclarationError(
                f"saddle points have sensitivities in l1, l2 and l_inf, not {norm}"
            )
        distance = self.moves() * (change.both + 2 * self.tolerance) * (1 + 1e-12)
        if math.isinf(norm):
            return (distance + 3 * self.step(domain)) * (1 + 1e-12)
        roots = math.sqrt(self.width)
        total = distance + 3 * self.step(domain) * roots
        return total * (roots if norm == 1 else 1.0) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the learner's parameters.

        Raises
        ------
        NotReached
            If no point within the gap was found.
        RunError
            If the game fails, or is less convex, or of another size, than declared.
        """
        rows: Examples = inputs[0].in_memory()
        x = rows.steps.astype(np.float64) * rows.unit
        ridge = released_ridge(inputs[1], rows.radius) if self.ridge is None else self.ridge
        moves = self._game.moves(ridge)
        # |x - x*| <= tolerance / mu <= t G; rounded down
        tolerance = self.tolerance * moves * ridge * (1 - 1e-11)
        self.game.resolve()  # a function that cannot be imported says so
        w, failed = None, ""
        try:
            with np.errstate(all="ignore"):  # a warning would depend on the data
                game = self._built(x.copy(), rows.labels.astype(np.float64), ridge)
                learner = game.against(game.project(np.zeros(game.adversary)))
                # what rounding takes from the curvature, the tolerance's last factor gives back
                curved = learner.strong_convexity >= ridge * (1 - 1e-12)
                if curved and learner.width == self.width:
                    w = self._search(game, rows, x, ridge, tolerance)
        except NotReached:
            failed = "NotReached"
        except Exception as error:
            failed = type(error).__name__
        # raised here, as an exception of the game's own might hold data
        if failed == "NotReached":
            raise NotReached(f"no saddle point of {self.game.label} within the gap was proven")
        if failed:
            raise RunError(f"the game {self.game.label} failed with {failed}")
        if w is None or np.shape(w) != (self.width,) or not np.isfinite(w).all():
            raise RunError(
                f"the game {self.game.label} is not as declared: it must have {self.width} "
                "parameters and a strong convexity of at least the ridge"
            )
        step = self.step(inputs[0])
        # of one unit for all ridges, where the ridge is released
        steps = np.rint((w * (self.slope / moves) if self.ridge is None else w) / step)
        return np.asarray(np.clip(steps, -grid.EXACT, grid.EXACT) * step)

    def _search(
        self, game: Saddle, rows: Examples, x: Floats, ridge: float, tolerance: float
    ) -> Floats:
        """Return a proven point: the given optimizer's, or where that is not proven, our own."""
        if self.optimizer is not None:
            with contextlib.suppress(Exception):  # a failure would reveal something about the data
                # a game of its own, since it might change its arrays
                its = self._built(x.copy(), rows.labels.astype(np.float64), ridge)
                w, y = (np.array(v, dtype=np.float64) for v in self.optimizer.resolve()(its))
                proven = certify_saddle(game, w, game.project(y))
                if proven.residual <= tolerance and np.shape(proven.w) == (self.width,):
                    return proven.w
        return solve_saddle(game, tolerance).w


def made_up_rows(domain: ExamplesDomain) -> tuple[Floats, Floats]:
    """Return four rows of the domain's largest norm, and their labels, drawn without any data."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(4, domain.width))
    x *= domain.radius / np.linalg.norm(x, axis=1)[:, None]
    if domain.labels == "sign":
        return x, np.array([1.0, -1.0, -1.0, 1.0])
    if domain.labels == "class":
        return x, np.arange(4.0) % domain.classes
    return x, draw.uniform(0, domain.most, 4) if domain.labels == "count" else np.array(
        [1.0, -1.0, 0.25, -0.5]
    )


def released_ridge(value: Any, radius: float) -> float:
    """Return a released ridge clamped to the allowed range; NaN becomes R^2."""
    ridge = float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
    scale = radius * radius
    return min(max(ridge, LEAST * scale), MOST * scale) if ridge == ridge else scale


def _admissible(loss: Loss, y: Floats) -> Floats:
    """Return labels clipped, each by itself, to the range that the loss reads."""
    # row by row, from public constants of the loss: neighbours stay neighbours
    if isinstance(loss, Weighted):
        # rows that stand for none have the weight 0
        labels, weights = y.T if y.ndim == 2 else (y, np.zeros_like(y))
        weights = np.clip(np.nan_to_num(weights, nan=0.0), 0.0, 1.0)
        return np.stack([_admissible(loss.loss, labels), weights], axis=1)
    clean = np.nan_to_num(y, nan=0.0)
    if loss.labels == "sign":
        return np.where(clean > 0, 1.0, -1.0)
    if loss.labels == "class":
        return np.clip(np.rint(clean), 0.0, loss.outputs - 1.0)
    if loss.labels == "count":
        return np.clip(clean, 0.0, getattr(loss, "most", 0.0))
    return np.clip(clean, -1.0, 1.0)
