"""Sums of the rows' clipped gradients at released parameters: of linear models and networks.

No row's gradient is ever stored. A gradient is clipped by scaling the slopes that it is made of
(`LinearGradients.clipped_sum`, `LayerGradients.clipped_sum`), in integer steps, so that no row's
share is longer than the bound and the sum over rows is exact. That a row's share depends on that
row alone has a premise: a loss's slope, computed by NumPy's functions, does not depend on the row's
place in a block. It is tried once in each process, before data are read
(`adaptive_dp.data.grid.check_arithmetic`), and of a user's own loss by seven rows, to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.numerics import down
from adaptive_dp.data import AnyExamples, grid
from adaptive_dp.data.examples import (
    WEIGHT_BITS,
    Examples,
    exact_sum,
    scores_of,
    to_steps,
    weighted_sum,
)
from adaptive_dp.data.grid import exact_add
from adaptive_dp.data.linear_systems import least_eigenvalue_of, precise
from adaptive_dp.erm import Loss, Network, losses
from adaptive_dp.erm.losses import Weighted
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import AdaptiveSums
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Floats, finite_float
from adaptive_dp.queries.examples import ExamplesDomain, cuts

# -----------------------------------------------------------------------------
# Linear models: the gradient of a row's loss is ``a x'``, a the slope at the scores ``W x``. Its
# norm is ``|a| |x|``, so that clipping it scales a, and the sum of clipped gradients is one matrix
# product.


GRADIENT_STEP_BITS = 28
"""A sum of clipped gradients is given in steps of at least 2^-29 of the bound."""

SQUARES = 20
"""A row's squared norm is given in steps of 2^-20 of the bound's."""

SHORTEST = 2.0**-6
"""Slopes of rows shorter than this share of the radius are bounded as for a row of that norm."""

MAX_SLOPE = 1e140
"""Slopes are clipped to this, so that their squares are floats."""


@frozen
class GradientsDomain:
    """The domain of gradients: ``size`` numbers for each row of examples, or each unit of them."""

    size: int
    examples: Any


@frozen(eq=False, repr=False)
class LinearGradients:
    """The rows' gradients of a linear model's loss, computed when they are summed.

    Where examples are with the workers of a cluster, a copy of this with a worker's own examples
    computes its share of a sum there.

    Parameters
    ----------
    examples
        The rows and labels.
    loss
        Of one row.
    parameters, unit
        W of shape (k, p), integers in steps of ``unit``.
    """

    examples: AnyExamples
    loss: Loss
    parameters: Floats
    unit: float

    def slopes(self, where: slice, block: Floats) -> tuple[Floats, Floats]:
        """Return a block's slopes, shape (k, m), and upper bounds of its gradients' norms."""
        assert isinstance(self.examples, Examples)
        # of integers: exact, so a row's score depends on that row alone
        z = scores_of(self.parameters, block)
        z *= self.unit * self.examples.unit
        a, lengths = slopes_of(self.loss, z, self.examples.labels[where])
        return a, lengths * self.examples.norms[where]  # |a x'| = |a| |x|

    def clipped_sum(self, bound: float, *, relative: bool) -> tuple[Any, float]:
        """Return the exact sum of gradients clipped to ``bound``, in integer steps, and the step.

        The step is a power of two; with ``relative`` it is a share of ``bound``.
        """
        radius = self.examples.radius
        step = grid.step((1.0 if relative else bound) / (radius * SHORTEST), WEIGHT_BITS - 1)
        unit = step * bound if relative else step
        total = self.examples.total(lambda own: evolve(self, examples=own)._clipped(bound, unit))
        return total, step * self.examples.unit

    def _clipped(self, bound: float, unit: float) -> NDArray[Any]:
        outputs, examples = len(self.parameters), self.examples
        assert isinstance(examples, Examples)

        def weights(where: slice, block: Floats) -> Floats:
            a, lengths = self.slopes(where, block)
            return clipped_steps(a, lengths, examples.norms[where], bound, unit)

        return weighted_sum(examples, weights, outputs)

    def squares(self, bound: float) -> int:
        """Return the sum of `squared_norm_steps` over the rows."""
        return self._sum(lambda lengths: squared_norm_steps(lengths, bound))

    def short(self, bound: float) -> int:
        """Return how many gradients have a norm of at most ``bound``."""
        return self._sum(lambda lengths: int((lengths <= bound).sum()))

    def _sum(self, block: Callable[[Floats], int]) -> int:
        def work(own: Examples) -> int:
            local = evolve(self, examples=own)
            return sum(block(local.slopes(w, rows)[1]) for w, rows in own.blocks())

        return self.examples.total(work)


def slopes_of(loss: Loss, z: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return slopes at scores, shape (k, m), and upper bounds of their columns' norms."""
    a = np.asarray(loss.slope(z, labels), dtype=np.float64)
    if a.shape != z.shape:
        raise DeclarationError("a loss's slopes must have the shape of its scores")
    # NaN makes both comparisons false
    if not -MAX_SLOPE <= a.min(initial=0.0) <= a.max(initial=0.0) <= MAX_SLOPE:
        a = np.clip(np.nan_to_num(a, posinf=MAX_SLOPE, neginf=-MAX_SLOPE), -MAX_SLOPE, MAX_SLOPE)
    return a, np.abs(a[0]) if len(a) == 1 else column_norms(a)


def clipped_steps(
    a: Floats, lengths: Floats, norms: Floats | float, bound: float, unit: float
) -> Floats:
    """Return slopes in integer steps of ``unit``, gradients ``a x'`` clipped to norm ``bound``.

    Parameters
    ----------
    a
        Shape (k, m).
    lengths, norms
        Upper bounds of the gradients' norms, and those of their rows x.
    """
    # rounding k slopes moves a gradient by at most sqrt(k) / 2 steps times its row's norm
    rounding = norms * (unit * math.sqrt(len(a)) / 2)
    # |clipped| <= limit, so |rounded| <= limit + rounding <= bound
    limit = np.maximum(bound * (1 - 2.0**-40) - rounding, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = a * np.where(lengths > limit, limit / lengths, 1.0)  # the clipping
    a /= unit
    np.rint(a, out=a)
    return np.clip(a, -(2.0**WEIGHT_BITS), 2.0**WEIGHT_BITS, out=a)


def column_norms(values: Floats) -> Floats:
    """Return upper bounds of the columns' l2 norms, shape (m,) from (k, m), column by column."""
    lengths = np.sqrt(column_sums(values * values))
    short = np.flatnonzero(lengths < 1e-140)  # their squares may have underflowed
    if len(short):
        columns = values[:, short]
        top = np.abs(columns).max(axis=0)
        shares = columns / np.where(top > 0, top, 1.0)
        lengths[short] = top * np.sqrt(column_sums(shares * shares))
    # a computed sum of k squares is off by a relative (k + 1) 2^-53
    lengths *= 1 + max(2.0**-45, len(values) * 2.0**-52)
    return lengths


def column_sums(values: Floats) -> Floats:
    """Return the sum of each column, added in row order, shape (m,) from (k, m).

    `numpy.sum` chooses its order by the array's shape: the last bit of a row's norm would depend on
    how many other rows there are.
    """
    total: Floats = values[0].copy()
    for row in values[1:]:
        total += row
    return total


def loss_text(value: Any) -> str:
    """Return a loss as a str such as ``Logistic()``; a str is returned as it is."""
    if isinstance(value, Loss):
        return losses.loss_string(value)
    if not isinstance(value, str):
        raise DeclarationError(f"a loss such as dp.Logistic() is needed, got {value!r}")
    return str(value)


def loss_of(name: str, domain: ExamplesDomain, *, own: bool = True) -> Loss:
    """Return the loss that a str names; refuse one for labels of another kind.

    Parameters
    ----------
    name
        Such as ``Logistic()``, or ``module:Name()`` for a user's own loss.
    domain
        The examples'.
    own
        Whether a user's own loss is allowed: only where the proof needs nothing of it but that it
        treats each row by itself.

    Raises
    ------
    DeclarationError
        If the str does not name a loss, or its labels or classes are not the examples'.
    """
    try:
        loss = losses.read_any(name) if own else losses.read(name)
    except (ValueError, TypeError) as error:
        raise DeclarationError(str(error)) from None
    if loss.labels != domain.labels:
        raise DeclarationError(
            f"{name} reads labels of kind {loss.labels!r}, the examples have {domain.labels!r}"
        )
    if loss.weighted != domain.weighted:
        raise DeclarationError(
            f"{name} is {'' if loss.weighted else 'not '}for rows with weights, and the examples "
            f"have {'' if domain.weighted else 'no '}weights"
        )
    if domain.labels == "class" and loss.outputs != domain.classes:
        raise DeclarationError(
            f"{name} has {loss.outputs} classes, the examples have {domain.classes}"
        )
    if ":" in name:
        _refuse_mixed_rows(name, loss.loss if isinstance(loss, Weighted) else loss)
    return loss


def _refuse_mixed_rows(name: str, loss: Loss) -> None:
    """Refuse a user's own loss whose slopes of seven test scores mix rows or have another shape."""
    z = np.sin(np.arange(loss.outputs * 7.0)).reshape(loss.outputs, 7) * 3
    y = np.array([0.0, 1.0] * 4)[:7] if loss.labels == "class" else np.where(z[0] > 0, 1.0, -1.0)
    y = np.abs(y) if loss.labels == "count" else y
    try:
        with np.errstate(all="ignore"):
            together = np.asarray(loss.slope(z, y), dtype=np.float64)
            single = [np.asarray(loss.slope(z[:, i : i + 1], y[i : i + 1])) for i in range(7)]
        rowwise = together.shape == z.shape and np.allclose(
            together, np.concatenate(single, axis=1), rtol=1e-9, atol=1e-12, equal_nan=True
        )
    except Exception as error:
        raise DeclarationError(f"{name}: slope(z, y) fails on test scores: {error}") from None
    if not rowwise:
        raise DeclarationError(
            f"{name}: slope(z, y) must return the shape of z, (outputs, rows), and compute each "
            "column by itself"
        )


def loss_assumption(name: str) -> str:
    """Return what certificates assume of a user's own loss; empty for the library's losses."""
    if ":" not in name:
        return ""
    return (
        f"The slopes of {name} (a loss from outside of the library) are computed for each row by "
        "itself, the same wherever the row stands."
    )


@frozen
class RowGradients(Operation):
    """The gradient of each row's loss of a linear model, at released parameters of shape (k, p).

    Its inputs are the examples and the released parameters (flat or in their shape).
    """

    kind: ClassVar[str] = "row_gradients"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str = field(converter=loss_text)

    def label(self) -> str:
        """Return the loss."""
        return f"gradients of {self.loss.removesuffix('()')}"

    def assumes(self) -> str:
        """Return what is assumed of a user's own loss."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the number of parameters; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("gradients need examples and released parameters")
        loss = loss_of(self.loss, inputs[0])
        return GradientsDomain(loss.outputs * inputs[0].width, inputs[0])

    def run(self, inputs: Sequence[Any], stream: Stream) -> LinearGradients:
        """Return the gradients; nothing is computed yet."""
        examples, parameters = inputs
        loss = losses.read_any(self.loss)
        shape = (loss.outputs, examples.width)
        steps, unit = to_steps(np.asarray(parameters, dtype=np.float64).reshape(shape))
        return LinearGradients(examples, loss, steps, unit)


LOSS_STEPS = 20
"""A row's loss is summed in steps of 2^-20 of the width."""


@frozen
class TotalLoss(Query):
    """The sum of the rows' losses of a released linear model, each clipped to ``[0, width]``.

    In units of the width, so that a row adds between 0 and 1. *Sensitivity*, in any norm since it
    is one number: a unit of up to r rows moves the sum by at most r where it appears or vanishes,
    and where it is exchanged. It needs nothing of the loss but that it treats rows by themselves.

    Parameters
    ----------
    loss
        Of one row, as a str; also one that is not convex, such as ``ZeroOne()``.
    width
        To which larger losses are clipped.
    """

    kind: ClassVar[str] = "total_loss"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1
    rounds_outward: ClassVar[bool] = True

    loss: str = field(converter=loss_text)
    width: float = 1.0

    def label(self) -> str:
        """Return the loss and the width."""
        return f"{self.loss.removesuffix('()')} clipped to {self.width:g}"

    def assumes(self) -> str:
        """Return what is assumed of a user's own loss."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("a total loss needs examples and released parameters")
        loss_of(self.loss, inputs[0])
        if not (1e-100 <= finite_float("a loss's width", self.width) <= 1e100):
            raise DeclarationError(f"a loss's width must be positive, got {self.width!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return r."""
        return float(change.rows)

    def step(self, domain: ExamplesDomain) -> float:
        """Return 2^-20."""
        return 2.0**-LOSS_STEPS

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum in units of the width, exact."""
        examples, parameters = inputs
        loss = losses.read_any(self.loss)
        shape = (loss.outputs, examples.width)
        steps, unit = to_steps(np.asarray(parameters, dtype=np.float64).reshape(shape))
        work = partial(_loss_steps, loss=loss, parameters=steps, unit=unit, width=self.width)
        return float(math.ldexp(examples.total(work), -LOSS_STEPS))


def _loss_steps(
    examples: Examples, *, loss: Loss, parameters: Floats, unit: float, width: float
) -> int:
    """Return the sum of clipped losses in integer steps, each in [0, 2^20]."""
    total = 0
    for where, block in examples.blocks():
        # of integers: exact, so a row's score depends on that row alone
        z = scores_of(parameters, block)
        z *= unit * examples.unit
        with np.errstate(all="ignore"):  # a warning would depend on the data
            values = np.asarray(loss.value(z, examples.labels[where]), dtype=np.float64) / width
        # NaN counts as the most
        inside = np.clip(np.nan_to_num(values, nan=1.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
        total += int(np.rint(inside * 2.0**LOSS_STEPS).sum())
    return total


def _bound(value: Any) -> float | None:
    return None if value is None else finite_float("a gradient's clip", value)


@frozen
class ClippedSum(Query):
    """The sum of the rows' gradients, each scaled down to l2 norm ``clip`` where it is longer.

    *Sensitivity*, with B the bound and a unit of up to r rows (triangle inequality): ``r B`` in l2
    and the maximum norm where the unit appears or vanishes, ``(a + b) B`` where a rows are
    exchanged for b; ``sqrt(d)`` times that in l1. The exact sum is rounded to steps: half a step in
    each coordinate, for each of two data sets, adds a step in the maximum norm, ``sqrt(d)`` steps
    in l2 and d in l1.

    Parameters
    ----------
    clip
        B. Without it the bound is a released number, the second input; the value is then the sum
        in units of that bound, and B = 1.
    """

    kind: ClassVar[str] = "clipped_sum"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = GradientsDomain
    max_released_inputs: ClassVar[int] = 1

    clip: float | None = field(default=None, converter=_bound)

    def label(self) -> str:
        """Return the bound."""
        return "sum clipped to " + ("a released norm" if self.clip is None else f"{self.clip:g}")

    @property
    def bound(self) -> float:
        """B, the largest norm of a row's share."""
        return 1.0 if self.clip is None else self.clip

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients' domain; refuse two bounds, or none."""
        if (len(inputs) == 2) != (self.clip is None):
            raise DeclarationError(
                "gradients are clipped to a number, or to a released handle: one of them"
            )
        if not (1e-100 <= self.bound <= 1e100):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: GradientsDomain) -> int:
        """Return the number of parameters."""
        return domain.size

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return grid.step(self.bound, GRADIENT_STEP_BITS)

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factors 1 + 1e-12 round it up."""
        per_row = change.both * self.bound  # triangle inequality over a + b rows
        roots = math.sqrt(domain.size)
        if math.isinf(norm):
            return (per_row + self.step(domain)) * (1 + 1e-12)
        scale = roots if norm == 1 else 1.0  # |v|_1 <= sqrt(d) |v|_2
        if norm not in (1, 2):
            raise DeclarationError(
                f"clipped sums have sensitivities in l1, l2 and l_inf, not {norm}"
            )
        return (per_row * scale + self.step(domain) * roots * scale) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sum, shape (d,)."""
        relative = self.clip is None
        bound = released_bound(inputs[1]) if relative else self.bound
        exact, unit = inputs[0].clipped_sum(bound, relative=relative)
        step = grid.step(self.bound, GRADIENT_STEP_BITS)
        halvings = round(math.log2(step / unit))
        assert halvings > 0, "a row's steps are finer than the sum's"
        steps = (exact + (1 << (halvings - 1))) >> halvings  # rounded to nearest, in integers
        # clamped to integers that floats hold: 1-Lipschitz, so it moves no two sums apart
        inside = np.minimum(np.maximum(steps, -grid.EXACT), grid.EXACT)
        return np.asarray(inside.astype(np.float64).reshape(-1) * step)


# -----------------------------------------------------------------------------
# What a minimizer's neighbourhood is like, seen from a released point: curvature and gradient.
#
# Rows are divided by their radius, into the unit ball: integers n_i times s. A point of the rows as
# they are, rounded to steps, is ``theta``; in the unit ball it is ``w = theta unit / s``, so that
# both have the same scores, exactly.


EIGENVALUE_BITS = 16
"""A least curvature is rounded down to steps of 2^-16 of what one row adds at most."""

NORM_BITS = 20
"""A gradient's norm is rounded up to steps of 2^-20 of what one row moves it at most."""

NORM_SLACK = 2.0**-14
"""A relative bound of what rounding adds to the sensitivity of either."""

_CURVATURE_BITS = (6, 6, 6)
"""The bits of the parts of a row's weight; products of 64 rows stay below 2^52."""


def unit_scale(examples: AnyExamples) -> float:
    """Return a number s for which a row of n steps is ``s n``, of norm at most 1."""
    return down(examples.unit / examples.radius, 8)


def _smooth_loss(name: str, domain: ExamplesDomain) -> Loss:
    """Return a loss of one score with bounded slopes and second derivatives; refuse others."""
    loss = loss_of(name, domain, own=False)
    limits = loss.constants()
    if loss.outputs != 1 or not loss.convex or not 0 < limits.lipschitz < math.inf:
        raise DeclarationError(
            "a convex loss of one score with bounded slopes is needed, such as Logistic(), got "
            f"{name}"
        )
    if not 0 < limits.smoothness < math.inf:
        raise DeclarationError(
            f"{name} has no bounded second derivative; take a smoothed loss, such as Logistic()"
        )
    return loss


def _scores(examples: Examples, parameters: Floats, unit: float, block: Floats) -> Floats:
    """Return the scores of a block, shape (1, m): exact, so that each depends on its row alone."""
    z = parameters @ block.T
    z *= unit * examples.unit
    return z


@frozen
class LeastCurvature(Query):
    """The least eigenvalue of the sum of the rows' second derivatives at released parameters.

    ``lambda_min(sum_i f''(x_i'w) x_i x_i') / (b R^2)``, rounded down; b the loss's smoothness, R
    the rows' radius: at most what it says, since second derivatives are rounded down too.

    *Sensitivity*, one number and so in any norm. A row adds a positive semi-definite matrix of norm
    at most ``b R^2``, so by Weyl's inequality a unit of up to r rows that appears, vanishes or is
    exchanged moves the eigenvalue by at most r; a tie with a multiple of the step, 2^-16, may be
    rounded either way: ``r (1 + 2^-14)``.

    Parameters
    ----------
    loss
        Of one score, with a bounded second derivative, as a str.

    References
    ----------
    Wang 2018 and Redberg, Zhu and Wang 2023 release the Hessian's least eigenvalue. Its sensitivity
    is bounded at *fixed* parameters only, as here; at the minimizer, which moves, it is not.
    """

    kind: ClassVar[str] = "least_curvature"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str = field(converter=loss_text)

    def label(self) -> str:
        """Return the loss."""
        return f"least curvature of {self.loss.removesuffix('()')}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("a least curvature needs examples and released parameters")
        _smooth_loss(self.loss, inputs[0])
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return ``r (1 + 2^-14)``."""
        return change.rows * (1 + NORM_SLACK)

    @precise
    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue, in units of what a row adds at most."""
        examples, parameters = inputs
        steps, unit = to_steps(np.asarray(parameters, dtype=np.float64).reshape(1, -1))
        work = partial(_curvature_steps, loss=losses.read(self.loss), parameters=steps, unit=unit)
        total, d = examples.total(work), examples.width
        scale = Decimal(unit_scale(examples)) ** 2 / 2 ** sum(_CURVATURE_BITS)
        matrix = [[Decimal(int(v)) * scale for v in row] for row in total.reshape(d, d)]
        least = least_eigenvalue_of(matrix, EIGENVALUE_BITS)
        return min(least, 2**52) * 2.0**-EIGENVALUE_BITS


def _curvature_steps(
    examples: Examples, *, loss: Loss, parameters: Floats, unit: float
) -> NDArray[Any]:
    """Return ``sum a n n'`` of rows n in steps, ``a <= 2^18 f'' / b``, exactly, shape (d * d,)."""
    smoothness = loss.constants().smoothness

    def products() -> Iterator[tuple[Floats, int]]:
        for where, block in examples.blocks():
            labels = examples.labels[where]
            with np.errstate(all="ignore"):  # a warning would depend on the data
                bend = loss.second(_scores(examples, parameters, unit, block), labels)[0, 0]
                # 2^-40 is far more than the error of a second derivative: rounded down
                share = np.nan_to_num(bend / smoothness * (1 - 2.0**-40) - 2.0**-40)
            weights = np.floor(np.clip(share, 0.0, 1.0) * 2.0 ** sum(_CURVATURE_BITS))
            for start in range(0, len(block), 64):
                rows, rest = block[start : start + 64], weights[start : start + 64]
                for i in range(len(_CURVATURE_BITS)):
                    low = 2.0 ** sum(_CURVATURE_BITS[i + 1 :])
                    part = np.floor(rest / low)
                    rest = rest - part * low
                    # entries are integers up to 2^6 2^40 64 = 2^52
                    yield ((rows * part[:, None]).T @ rows).reshape(-1), i

    zeros: NDArray[Any] = np.zeros(examples.width**2, dtype=np.int64)
    totals = [zeros] * len(_CURVATURE_BITS)
    for part, i in products():
        totals[i] = exact_add(totals[i], part.astype(np.int64))
    shares = [2 ** sum(_CURVATURE_BITS[i + 1 :]) for i in range(len(_CURVATURE_BITS))]
    return sum((t.astype(object) * w for t, w in zip(totals, shares, strict=True)), 0 * zeros)


@frozen
class GradientNorm(Query):
    """The l2 norm of the gradient of a regularised sum of losses at released parameters.

    ``|sum_i f'(x_i'w) x_i / R + ridge w R| / L``, rounded up; rows are divided by their radius R, L
    is the loss's Lipschitz constant.

    *Sensitivity*, one number and so in any norm: each row that comes or goes moves the gradient by
    at most L, so a unit by a + b for a rows exchanged for b. An upper bound of the error of all
    slopes, 2^-43 for each row, is added, and the whole is rounded up to 2^-20: ``1 + 2^-14`` a row.

    Parameters
    ----------
    loss
        Of one score, with bounded slopes, as a str.
    ridge
        For rows of norm at most 1; may be 0.
    """

    kind: ClassVar[str] = "gradient_norm"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str = field(converter=loss_text)
    ridge: float = 0.0

    def label(self) -> str:
        """Return the loss."""
        return f"gradient norm of {self.loss.removesuffix('()')}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("a gradient norm needs examples and released parameters")
        _smooth_loss(self.loss, inputs[0])
        if not (0 <= finite_float("a ridge", self.ridge) <= 2.0**40):
            raise DeclarationError(f"a ridge must be in [0, 2^40], got {self.ridge!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return ``1 + 2^-14`` for each row added or removed: an exchange counts both."""
        return change.both * (1 + NORM_SLACK)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the norm, in units of what a row adds at most."""
        examples, parameters = inputs
        steps, unit = to_steps(np.asarray(parameters, dtype=np.float64).reshape(1, -1))
        loss = losses.read(self.loss)
        work = partial(_gradient_steps, loss=loss, parameters=steps, unit=unit)
        *parts, rows = (int(v) for v in examples.total(work))
        scale, limit = Fraction(unit_scale(examples)), Fraction(loss.constants().lipschitz)
        weight = scale / 2 ** (2 * WEIGHT_BITS)
        point = [Fraction(int(n)) * Fraction(unit) * Fraction(examples.unit) for n in steps[0]]
        ridge = Fraction(self.ridge) / scale / limit
        square = sum(
            ((n * weight + ridge * w) ** 2 for n, w in zip(parts, point, strict=True)), Fraction()
        )
        # the square root rounded up, and 2^-43 for the slopes of each row
        norm = math.isqrt(math.ceil(square * 4**NORM_BITS)) + 1 + (rows >> 22)
        return float(min(norm, 2**52)) * 2.0**-NORM_BITS


def _gradient_steps(
    examples: Examples, *, loss: Loss, parameters: Floats, unit: float
) -> NDArray[Any]:
    """Return ``sum a n`` of rows n in steps, a = slope / L in steps of 2^-44; then their number."""
    lipschitz = loss.constants().lipschitz

    def weights(where: slice, block: Floats) -> Floats:
        with np.errstate(all="ignore"):  # a warning would depend on the data
            slope = loss.slope(_scores(examples, parameters, unit, block), examples.labels[where])
            rest = np.clip(np.nan_to_num(slope[0] / lipschitz), -1.0, 1.0) * 2.0**WEIGHT_BITS
        first = np.rint(rest)
        return np.stack([first, np.rint((rest - first) * 2.0**WEIGHT_BITS)])

    high, low = weighted_sum(examples, weights, 2)
    total = high.astype(object) * 2**WEIGHT_BITS + low.astype(object)
    return np.append(total, len(examples))


def _squares_clip(value: Any) -> float | None:
    return None if value is None else finite_float("squares' clip", value)


@frozen
class SquaredNorms(Query):
    """The sum of ``min(1, |g|^2 / clip^2)`` over the rows' gradients g of a linear model.

    *Sensitivity*. Whatever the clip, a row's share is a number in [0, 1] that does not depend on
    other rows. So a unit with up to r rows adds between 0 and r: where it appears, vanishes or is
    exchanged the sum moves by at most r (own proof). Shares are integer multiples of 2^-20 and
    their sum, clamped to 2^32, is exact.

    Parameters
    ----------
    clip
        None where it is a released number, the second input.
    """

    kind: ClassVar[str] = "squared_norms"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = GradientsDomain
    max_released_inputs: ClassVar[int] = 1

    clip: float | None = field(default=None, converter=_squares_clip)

    def label(self) -> str:
        """Return the bound."""
        return "squared norms over " + (
            "a released one's" if self.clip is None else f"{self.clip:g}^2"
        )

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients' domain; refuse two clips, or none."""
        if (len(inputs) == 2) != (self.clip is None):
            raise DeclarationError(
                "norms are clipped to a number, or to a released handle: one of them"
            )
        if self.clip is not None and not (1e-100 <= self.clip <= 1e100):
            raise DeclarationError(f"squares' clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return 2.0**-SQUARES

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return r (one number: any norm)."""
        return float(change.rows)  # each row's share is in [0, 1]

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum; refuse gradients of networks, whose norms are not exact."""
        if not isinstance(inputs[0], LinearGradients):
            raise DeclarationError("squared norms are defined for linear models' gradients only")
        bound = released_bound(inputs[1]) if self.clip is None else self.clip
        return float(min(inputs[0].squares(bound), 2**52)) * 2.0**-SQUARES


def squared_norm_steps(lengths: Floats, bound: float) -> int:
    """Return the sum of ``min(1, (length / bound)^2)``, each rounded to steps of 2^-20."""
    with np.errstate(over="ignore"):
        share = np.minimum(lengths / bound, 1.0)
    return int(np.rint(share * share * 2.0**SQUARES).astype(np.int64).sum())


@frozen
class ShortGradients(Query):
    """The number of rows whose gradient has a norm of at most a released number, the second input.

    *Sensitivity*. A count: a unit of up to r rows that appears, vanishes or is exchanged moves it
    by at most r.
    """

    kind: ClassVar[str] = "short_gradients"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = GradientsDomain
    max_released_inputs: ClassVar[int] = 1

    def label(self) -> str:
        """Return the query."""
        return "count of short gradients"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients' domain; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("a count of short gradients needs a released bound")
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: GradientsDomain) -> float:
        """Return 1: it is a count."""
        return 1.0

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return r (one number: any norm)."""
        return float(change.rows)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the count."""
        return float(inputs[0].short(released_bound(inputs[1])))


@frozen
class ShortLessLong(ShortGradients):
    """The number of rows whose gradient has at most a released norm, less that of all others.

    It tells as much as a number of short gradients with half of the noise would, the number of rows
    being known: what is not short is long.

    *Sensitivity*. Each row adds 1 or -1. So a unit that appears or vanishes moves it by at most its
    number of rows; one that is exchanged, by that of both data sets together.
    """

    kind: ClassVar[str] = "short_less_long"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "short gradients less long ones"

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return the rows of a unit in both data sets together (one number: any norm)."""
        return float(change.both)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the difference."""
        # a norm that is no number is neither short nor long
        short = inputs[0].short(released_bound(inputs[1]))
        return float(2 * short - inputs[0].short(math.inf))


def released_bound(value: Any) -> float:
    """Return a released bound clamped to [1e-100, 1e100]; noise may make it NaN or negative."""
    bound = float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
    return min(max(bound, 1e-100), 1e100) if bound == bound else 1e-100


# -----------------------------------------------------------------------------
# Two-layer networks.
#
# A row's gradient by a layer's weights is an outer product of the backpropagated error and the
# layer's input, so that its norm is known without computing it (Goodfellow 2015), and the sum of
# clipped gradients is one more product of matrices (Lee and Kifer 2021). The layers' inputs, x of
# the row and u of its hidden units, are integer steps of an l2 norm of at most 2^20; W1, W2 and the
# loss's slopes s are integer steps too.
#
# **A row's share depends on that row alone.** ``W1 x``, ``W2 u`` and ``W2' s`` are sums of products
# of integers, with norms of at most 2^32 and 2^20: by Cauchy-Schwarz every partial sum's size is
# at most 2^52, in whatever order a matrix product adds, so it is exact. All else is done to each
# number by itself, or down a row's own column in a fixed order.
#
# **No share is longer than the bound.** In steps of the sum, B of them the bound, a row's gradient
# is ``g (r d x', s u')``, g a number of the row, r one of the parameters. With ``P = |(r |d| |x|,
# |s| |u|)|`` and ``g <= limit / P`` its norm is at most the limit. Rounding ``g r d`` and ``g s``
# to integers moves it by at most ``m = |(sqrt(h) |x|, sqrt(k) |u|)| / 2``, and the limit is
# ``B (1 - 2^-40) - m``, or 0. P is taken larger by more than its own rounding. (Own proof.)
#
# **Sums are exact.** A share's numbers are at most B, below 2^36, as are those of any of its parts;
# a block of 1024 adds up to less than 2^46, in whatever order, and blocks add up as integers.


SHARE = 35
"""A share is at most 2^(SHARE + 1) steps."""

LONG = 20
"""A layer's input has an l2 norm of at most 2^LONG steps, as have slopes."""


class Pass(NamedTuple):
    """A forward and backward pass over a block of n rows.

    Parameters
    ----------
    hidden
        u in steps, shape (h + 1, n).
    back
        d in steps, shape (h, n).
    slopes
        s in steps, shape (k, n).
    lengths
        P, upper bounds of the gradients' norms, shape (n,).
    exponents
        Of the step of each row's s, shape (n,).
    rounding
        m, what rounding to integers can move each row's gradient, shape (n,).
    """

    hidden: Floats
    back: Floats
    slopes: Floats
    lengths: Floats
    exponents: Any
    rounding: Floats


@frozen(eq=False, repr=False)
class LayerGradients:
    """The rows' gradients of a two-layer network, computed when they are summed.

    The sums are flat vectors, W1 and then W2, row by row. Where examples are with the workers of a
    cluster, a copy of this with a worker's own examples computes its share of a sum there.

    Parameters
    ----------
    examples
        The rows and labels.
    network
        Its layers' sizes, activation and loss.
    first, second, units
        W1 and W2, integers in steps of ``units``.
    """

    examples: AnyExamples
    network: Network
    first: Floats
    second: Floats
    units: tuple[float, float]
    hidden_unit: float = field(init=False)

    @hidden_unit.default
    def _hidden_unit(self) -> float:
        # |tanh| <= 1, and |relu(W1 x)| <= |W1 x| <= |W1|_F R; cut off, never rounded up
        largest = math.sqrt(self.network.hidden + 1)
        if self.network.activation == "relu":
            frobenius = math.sqrt(float((self.first**2).sum())) * self.units[0]
            largest = math.hypot(1.0, frobenius * self.examples.radius)
        return grid.step(largest * (1 + 1e-9), LONG - 1)

    @property
    def ratio(self) -> float:
        """The step of ``d x'`` by that of ``s u'``, r."""
        return self.units[1] * self.examples.unit / self.hidden_unit

    def passes(self) -> Iterator[tuple[Floats, Pass]]:
        """Yield each block's rows in steps, and its pass through the network."""
        assert isinstance(self.examples, Examples)
        for where, block in self.examples.blocks():
            with np.errstate(all="ignore"):
                yield block, self._pass(where, block)

    def _pass(self, where: slice, block: Floats) -> Pass:
        assert isinstance(self.examples, Examples)
        network, unit = self.network, self.hidden_unit
        x = self.examples.norms[where] / self.examples.unit
        u = np.empty((network.hidden + 1, len(block)))
        u[0] = 1.0
        z = self.first @ block.T
        z *= self.units[0] * self.examples.unit
        # float32 has more bits than hidden units keep, and its tanh takes a fifth of the time
        u[1:] = network.activate(z.astype(np.float32) if network.activation == "tanh" else z)
        u /= unit
        np.trunc(u, out=u)  # toward 0, so that |u| does not grow past 2^LONG steps
        scores = (self.second @ u) * (self.units[1] * unit)
        s, exponents = slope_steps(network.loss.slope(scores, self.examples.labels[where]))
        d = self.second[:, 1:].T @ s
        d *= network.activation_slope(np.multiply(u[1:], unit, out=z))
        u_norms = np.sqrt(column_sums(np.square(u)))
        d_norms = np.sqrt(column_sums(np.multiply(d, d, out=z)))
        # P = |(r |d| |x|, |s| |u|)|
        lengths = np.hypot(self.ratio * d_norms * x, np.sqrt(column_sums(np.square(s))) * u_norms)
        # adding h squares is off by h 2^-53, the rest by less than 2^-48
        lengths *= 1 + 2.0**-45 + network.hidden * 2.0**-52
        # m = |(sqrt(h) |x|, sqrt(k) |u|)| / 2
        rounding = np.sqrt(network.hidden * x * x + network.outputs * u_norms * u_norms)
        return Pass(u, d, s, lengths, exponents, rounding * ((1 + 2.0**-45) / 2))

    def clipped_sum(self, bound: float, *, relative: bool) -> tuple[Any, float]:
        """Return the exact sum of gradients clipped to ``bound``, in integer steps, and the step.

        The step is a power of two; with ``relative`` it is a share of ``bound``.
        """
        step = grid.step(1.0 if relative else bound, SHARE)
        steps = (1.0 if relative else bound) / step
        unclipped = self.hidden_unit / (step * bound if relative else step)
        total = self.examples.total(
            lambda own: evolve(self, examples=own)._clipped(steps, unclipped)
        )
        return total, step

    def _clipped(self, bound: float, unclipped: float) -> NDArray[Any]:
        """Return the sum, clipped to ``bound`` steps; ``unclipped`` is g without clipping."""

        def sums() -> Iterator[Floats]:
            flat = np.empty(self.first.size + self.second.size)
            first, second = self.network.layers(flat, self.examples.width)
            for block, p in self.passes():
                # |clipped| <= limit, so |rounded| <= limit + m <= B
                limit = np.maximum(bound * (1 - 2.0**-40) - p.rounding, 0.0)
                with np.errstate(all="ignore"):
                    # a P below 1e-30 may have underflowed: with this g the share is then 0
                    largest_g = limit / np.maximum(p.lengths, 1e-30)
                    g = np.minimum(np.ldexp(unclipped, p.exponents), largest_g)  # the clipping
                np.rint(np.multiply(p.back, g * self.ratio, out=p.back), out=p.back)
                np.rint(np.multiply(p.slopes, g, out=p.slopes), out=p.slopes)
                np.matmul(p.back, block, out=first)
                np.matmul(p.slopes, p.hidden.T, out=second)
                yield flat

        return exact_sum(sums(), self.first.size + self.second.size)

    def short(self, bound: float) -> int:
        """Return how many gradients have a norm of at most ``bound``."""
        return self.examples.total(lambda own: evolve(self, examples=own)._short(bound))

    def _short(self, bound: float) -> int:
        total = 0
        for _, p in self.passes():
            with np.errstate(all="ignore"):
                lengths = np.ldexp(p.lengths * self.hidden_unit, p.exponents)
            total += int((lengths <= bound).sum())
        return total


def slope_steps(values: Floats) -> tuple[Floats, Any]:
    """Return slopes of shape (k, m) as integer steps, and the exponent of each column's step.

    The norm of each column is at most 2^LONG steps; NaN counts as 0.
    """
    bits = LONG - math.ceil(math.log2(len(values)) / 2)
    clean = np.clip(np.nan_to_num(values, posinf=1e140, neginf=-1e140), -1e140, 1e140)
    exponents = np.frexp(np.abs(clean).max(axis=0))[1] - bits
    return np.rint(np.ldexp(clean, -exponents)), exponents


@frozen
class NetworkGradients(Operation):
    """The gradient of each row's loss by the released parameters of a two-layer network.

    Its inputs are the examples and the parameters, flat: see `adaptive_dp.erm.Network`.
    """

    kind: ClassVar[str] = "network_gradients"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str
    hidden: int
    activation: str

    @classmethod
    def of(cls, network: Network) -> NetworkGradients:
        """Return the operation of a network."""
        return cls(losses.loss_string(network.loss), network.hidden, network.activation)

    def label(self) -> str:
        """Return the hidden units and the loss."""
        return f"gradients of {self.hidden} hidden units, {self.loss.removesuffix('()')}"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the number of parameters; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("gradients need examples and released parameters")
        loss_of(self.loss, inputs[0], own=False)
        return GradientsDomain(self.network.size(inputs[0].width), inputs[0])

    @property
    def network(self) -> Network:
        """The network."""
        try:
            return Network(losses.read(self.loss), self.hidden, self.activation)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise DeclarationError(str(error)) from None

    def run(self, inputs: Sequence[Any], stream: Stream) -> LayerGradients:
        """Return the gradients; nothing is computed yet."""
        examples, parameters = inputs
        flat = np.asarray(parameters, dtype=np.float64).reshape(-1)
        first, second = self.network.layers(flat, examples.width)
        steps, unit = to_steps(first)
        # as one row: then its rows and its columns are no longer than the matrix
        back, back_unit = to_steps(second.reshape(1, -1))
        return LayerGradients(
            examples, self.network, steps, back.reshape(second.shape), (unit, back_unit)
        )


# -----------------------------------------------------------------------------
# Sums of clipped gradients at parameters that a mechanism chooses.
#
# A learner whose noise is correlated from round to round is one mechanism: it reads the sum of each
# batch at parameters that depend on what it has released of the batches before.


STREAM_STEP_BITS = 20
"""Sums are given in steps of at least 2^-21 of the bound, and at most 2^-20."""

MAX_STREAM_STEPS = 2**52
"""Sums are clamped to this many steps, which is 1-Lipschitz: no two sums move apart."""


@frozen(eq=False, repr=False)
class ClippedGradients(AdaptiveSums):
    """Sums of gradients, each scaled down to l2 norm ``clip`` where it is longer."""

    examples: AnyExamples
    loss: Loss
    clip: float

    def __repr__(self) -> str:
        return "<private gradients>"

    @property
    def shape(self) -> tuple[int]:
        """The number of parameters."""
        return (self.loss.outputs * self.examples.width,)

    @property
    def step(self) -> float:
        """The step of sums, a power of two."""
        return grid.step(self.clip, STREAM_STEP_BITS)

    def split(self, parts: int, stream: Stream) -> list[ClippedGradients]:
        """Return disjoint batches: each unit is in one of them, by its own uniform draw."""
        batches = self.examples.split(cuts([1 / parts] * parts), stream)
        return [ClippedGradients(batch, self.loss, self.clip) for batch in batches]

    def at(self, parameters: Floats) -> NDArray[np.int64]:
        """Return the sum at parameters, shape (d,), rounded to integer steps."""
        steps, unit = to_steps(parameters.reshape(self.loss.outputs, self.examples.width))
        gradients = LinearGradients(self.examples, self.loss, steps, unit)
        exact, finer = gradients.clipped_sum(self.clip, relative=False)
        halvings = round(math.log2(self.step / finer))
        assert halvings > 0, "a row's steps are finer than the sum's"
        rounded = (exact.reshape(-1) + (1 << (halvings - 1))) >> halvings
        return np.asarray(
            np.minimum(np.maximum(rounded, -MAX_STREAM_STEPS), MAX_STREAM_STEPS), dtype=np.int64
        )


def _clip(value: Any) -> float:
    return finite_float("a gradient's clip", value)


@frozen
class GradientStream(Query):
    """Sums of gradients clipped to ``clip``, at parameters that a mechanism chooses adaptively.

    *Sensitivity*, in l2 alone. A unit is in one batch, so it moves one sum, whatever the
    parameters: with up to r rows by ``r clip`` where it appears or vanishes, by ``(a + b) clip``
    where a rows are exchanged for b, and by the rounding of each coordinate to steps.

    Parameters
    ----------
    loss
        Of one row, as a str.
    clip
        The l2 norm to which longer gradients are scaled down.
    """

    kind: ClassVar[str] = "gradient_stream"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    output_type: ClassVar[type] = AdaptiveSums

    loss: str = field(converter=loss_text)
    clip: float = field(default=1.0, converter=_clip)

    def label(self) -> str:
        """Return the loss and the clip."""
        return f"gradients of {self.loss.removesuffix('()')} clipped to {self.clip:g}"

    def assumes(self) -> str:
        """Return what is assumed of a user's own loss."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; refuse a loss that reads other labels."""
        loss_of(self.loss, inputs[0])
        if not (1e-100 <= self.clip <= 1e100):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of parameters."""
        return loss_of(self.loss, domain).outputs * domain.width

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step in which sums are given."""
        return grid.step(self.clip, STREAM_STEP_BITS)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; refuse any norm but 2."""
        if norm != 2:
            raise DeclarationError(
                "a gradient_stream is a sum in each round, which moves in l2: release it with "
                f"FollowTheLeader, whose norm is 2, got norm {norm!r}"
            )
        # half a step in each coordinate, for each of two data sets
        rounding = self.step(domain) * math.sqrt(self.dimension(domain))
        return (change.both * self.clip + rounding) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> ClippedGradients:
        """Return the sums; nothing is computed yet."""
        return ClippedGradients(inputs[0], losses.read_any(self.loss), self.clip)
