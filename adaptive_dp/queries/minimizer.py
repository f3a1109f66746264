"""The minimizer of an empirical risk, with the most that one row can move it.

*Theorem.* Let F and F + g be convex on a closed convex set C, F mu-strongly convex, and every
subgradient of g on C at most G long. Their minimizers w and v over C are at most ``G / mu`` apart.

*Proof.* As w is optimal for F there is a subgradient a of F at w with ``<a, v - w> >= 0``; as v is
optimal for F + g there are subgradients b of F and h of g at v with ``<b + h, w - v> >= 0``. Strong
monotonicity, then these two, then Cauchy-Schwarz:
``mu |v - w|^2 <= <b - a, v - w> <= <b, v - w> <= <h, w - v> <= G |v - w|``. QED

For a *sum* of rows' losses and ``ridge / 2 |w|^2`` (mu = ridge) and a row that comes or goes, g or
-g is its loss, of Lipschitz constant L on C: F is taken to be the sum without it, which has the
ridge. The ridge is the same in both and adds nothing to G. A row that is exchanged is one that
goes and one that comes: ``2 L / ridge``, and so on for the rows of a unit. No smoothness is used,
nor that C is all of R^p. (Lowy and Razaviyayn 2021, Lemma B.2; Chaudhuri, Monteleoni and Sarwate
2011, Lemma 7, for differentiable losses. The mean's ``2 L / (mu n)`` is this one with ``mu n`` for
mu.)

*What is computed* is a point for which a residual of at most ``t L`` was proven on all of the data,
rounding included (`adaptive_dp.erm.objective`), t a public number fixed beforehand. So it
is at most ``t L / ridge`` from the minimizer, and two such points are ``2 t L / ridge`` farther
apart than the minimizers are. How it was found does not matter: a point that somebody else's
optimizer found is as good, if it passes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Examples, grid
from adaptive_dp.erm import Adversarial, Loss, Problem, Tilted, certify, minimize
from adaptive_dp.erm import losses as names
from adaptive_dp.erm.tilted import moved_by
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.registry import Function
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Floats, finite_float
from adaptive_dp.queries.examples import ExamplesDomain
from adaptive_dp.queries.gradients import loss_of

FINE = 24
"""Coordinates are whole steps of at least 2^-25 of what one row moves."""

LEAST, MOST = 2.0**-20, 2.0**40
"""Ridges there may be, for rows of norm at most 1."""

KINK = 1e-3
"""How far an adversary's kink at 0 is rounded off, for rows of norm at most 1."""


def _loss(value: Any) -> str:
    if not isinstance(value, str | Loss):
        raise DeclarationError(f"a loss such as dp.Logistic() is needed, got {value!r}")
    return names.text(value) if isinstance(value, Loss) else str(value)


def _optional_float(value: Any) -> float | None:
    return (
        None
        if value is None
        else finite_float("a minimizer's ridge, radius, tilt or adversary", value)
    )


@frozen
class Minimizer(Query):
    """The minimizer of the rows' losses and ``ridge / 2 |w|^2``, all parameters penalised.

    The intercept is penalised as well: without, nothing is strongly convex, and one row may move
    it as far as one likes. Rows are as the examples have them.

    Parameters
    ----------
    loss
        With a second derivative that is bounded, and a slope that is, within the radius if one is
        given.
    ridge
        In units of the sum of losses. None if it is a released number that stands beside the
        examples: then the value is ``ridge`` times the minimizer, which one row moves by L.
    radius
        Of the l2 ball of the parameters; None for no bound.
    tolerance
        t above, as a share of what one row moves the minimizer.
    tilt
        t > 0 minimizes ``log(mean e^{t f_i}) / t`` and the ridge, which is then in units of a
        mean; see `adaptive_dp.erm.Tilted`, where the sensitivity is proven. Needs a radius.
    rows
        N, for a tilted risk: fewer rows are filled up to N with rows of zeros. Then no data set is
        smaller, and a row that comes takes the place of one of those, so that the bound at size N
        holds for all data and every neighbour relation: a exchanged for b rows move it by at
        most max(a, b) times it.
    adversary
        rho: each row's loss is the largest at any row within an l2 distance of rho. Its kink at
        w = 0 is rounded off (`Adversarial.smoothing`), which moves no constant that counts here.
    optimizer
        A function from an `Objective` to a point, tried first. It sees private data: what it does
        besides is on whoever wrote it. Whatever it returns or raises, what is released is proven.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011; Lowy and Razaviyayn 2021, Algorithm 1.
    """

    kind: ClassVar[str] = "minimizer"
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1
    assumption: ClassVar[str] = (
        "The search for each minimizer ends within its tolerance on the data set and on its "
        "neighbours; where it does not, the run fails, and that it failed is not protected."
    )

    loss: str = field(converter=_loss)
    ridge: float | None = field(default=None, converter=_optional_float)
    radius: float | None = field(default=None, converter=_optional_float)
    tolerance: float = 1e-3
    tilt: float | None = field(default=None, converter=_optional_float)
    rows: int = 1
    adversary: float | None = field(default=None, converter=_optional_float)
    optimizer: Function | None = None

    def label(self) -> str:
        """Return whose minimizer it is."""
        kind = "tilted " if self.tilt is not None else ""
        kind = "adversarial " if self.adversary is not None else kind
        return f"minimizer of {kind}{self.loss.removesuffix('()')}"

    def detail(self) -> str:
        """Return ridge and radius."""
        ridge = "released ridge" if self.ridge is None else f"ridge {self.ridge:g}"
        return ridge if self.radius is None else f"{ridge}, norm {self.radius:g}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples'; refuse what the theorem does not cover."""
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
                "norm "
                f"of a row), got {self.ridge!r}; without one the minimizer may move without bound"
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
            raise DeclarationError(f"rows must be a whole number from 1 to 2^24, got {self.rows!r}")
        if self.tilt is not None and not (1e-9 <= self.tilt <= 1e9 and self.radius is not None):
            raise DeclarationError(
                "a tilt must be in [1e-9, 1e9], with a radius that bounds the loss; got "
                f"{self.tilt!r}"
            )
        if not loss.convex:
            raise DeclarationError(f"{self.loss} is not convex; FiniteLearner chooses by any loss")
        one = self._one_row(domain.width, domain.radius)
        if not (one.row_lipschitz <= 1e100 and one.constants.smoothness <= 1e100):
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
        """Return the most by which one row that comes or goes moves the exact value, in l2."""
        return self._moves(self._one_row(domain.width, domain.radius), self.ridge or 1.0)

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step in which parameters are given."""
        return grid.step(self.moves(domain), FINE)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return what a unit's rows move, the tolerance on both sides, and the rounding.

        Of a tilted risk exchanged rows count once, of a sum twice. Each coordinate is rounded
        to whole steps, and before where it is multiplied by a released ridge (by a step at most,
        since it has no more than 2^53 of them).
        """
        times = change.both if self.tilt is None else change.rows
        size, each = self.dimension(domain), self.moves(domain)
        apart = each * (times + 2 * self.tolerance) * (1 + 1e-12)
        if math.isinf(norm):
            return (apart + 3 * self.step(domain)) * (1 + 1e-12)
        if norm not in (1, 2):
            raise DeclarationError(f"minimizers have sensitivities in l1, l2 and l_inf, not {norm}")
        roots = math.sqrt(size)
        total = apart + 3 * self.step(domain) * roots
        return total * (roots if norm == 1 else 1.0) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the parameters, k times p of them, row by row.

        Raises
        ------
        NotReached
            Where no point within the tolerance was found; the run fails then.
        """
        rows: Examples = inputs[0].in_memory()
        ridge = released_ridge(inputs[1], rows.radius) if self.ridge is None else self.ridge
        with np.errstate(all="ignore"):  # a warning would tell of the data
            moves = self._moves(self._one_row(rows.width, rows.radius), ridge)
            share = self.tolerance * (1 - 1e-12) * moves
            found = self._search(rows, ridge, share * (1.0 if self.ridge is None else ridge))
        step = grid.step(moves, FINE)
        steps = np.rint((found * ridge if self.ridge is None else found) / step)
        # clamped where floats hold every step: it moves no two values apart
        return np.asarray(np.clip(steps, -grid.EXACT, grid.EXACT) * step)

    def objective(self, rows: Examples, ridge: float) -> Problem | Tilted | Adversarial:
        """Return what is minimized; it has arrays of its own."""
        loss = names.read(self.loss)
        x, y = rows.steps.astype(np.float64) * rows.unit, _admissible(loss, rows.labels)
        if self.tilt is not None and len(y) < self.rows:
            missing = self.rows - len(y)
            x = np.concatenate([x, np.zeros((missing, x.shape[1]))])
            y = np.concatenate([y, _admissible(loss, np.zeros(missing))])
        plain = Problem(x, y, loss, row_norm=rows.radius, ridge=ridge, radius=self.radius)
        if self.tilt is not None:
            return Tilted(plain, self.tilt)
        return plain if self.adversary is None else self._against(plain)

    def _search(self, rows: Examples, ridge: float, tolerance: float) -> Floats:
        """Return a proven point: of the given optimizer, or where it has none, of our own.

        That optimizer gets an objective of its own, since it might change the arrays of one. Of our
        own the last is accelerated descent, which halves what is left in about ``sqrt(k)`` steps (k
        the condition number) and gets some hundred times as many.
        """
        objective = self.objective(rows, ridge)
        if self.optimizer is not None:
            with contextlib.suppress(Exception):  # that it failed would tell of the data
                theirs = self.optimizer.resolve()(self.objective(rows, ridge))
                proven = certify(objective, np.array(theirs, dtype=np.float64))
                if proven.residual <= tolerance:
                    return proven.w
        slow = math.sqrt(max(1.0, objective.smooth / objective.strong))
        return minimize(objective, tolerance, steps=1000 + min(10**7, math.ceil(100 * slow))).w

    def _one_row(self, width: int, radius: float) -> Problem | Adversarial:
        """Return the objective of one row of zeros: constants of a row are those of every row."""
        loss = names.read(self.loss)
        x, y = np.zeros((1, width)), _admissible(loss, np.zeros(1))
        plain = Problem(x, y, loss, row_norm=radius, ridge=1.0, radius=self.radius)
        return plain if self.adversary is None else self._against(plain)

    def _against(self, plain: Problem) -> Adversarial:
        assert self.adversary is not None
        return Adversarial(plain, self.adversary, smoothing=KINK / plain.row_norm)

    def _moves(self, one: Problem | Adversarial, ridge: float) -> float:
        """Return `moves`, from an objective's constants for one row."""
        lower = 1.0 if self.ridge is None else math.nextafter(ridge, 0.0)
        if self.tilt is None:
            return one.row_lipschitz / lower * (1 + 1e-12)
        c = one.constants
        return moved_by(one.row_lipschitz, c.highest - c.lowest, self.tilt, lower, self.rows)


def released_ridge(value: Any, radius: float) -> float:
    """Return a released ridge as one that is allowed, whatever noise has made of it."""
    found = float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
    scale = radius * radius
    return min(max(found, LEAST * scale), MOST * scale) if found == found else scale


def _admissible(loss: Loss, y: Floats) -> Floats:
    """Return labels that the loss reads: each by itself brought into its range."""
    clean = np.nan_to_num(y, nan=0.0)
    if loss.labels == "sign":
        return np.where(clean > 0, 1.0, -1.0)
    if loss.labels == "class":
        return np.clip(np.rint(clean), 0.0, loss.outputs - 1.0)
    if loss.labels == "count":
        return np.clip(clean, 0.0, getattr(loss, "most", 0.0))
    return np.clip(clean, -1.0, 1.0)
