"""Regression by the depth of models of batches: no bounds, and no hyperparameters of noise."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.scan import RowFunction
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, group, post
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.values import as_int, number, strings
from adaptive_dp.mechanisms.propose_test_release import distance_threshold, is_far
from adaptive_dp.mechanisms.selection import uniform_below
from adaptive_dp.mechanisms.smooth_sensitivity import _ApproximateInstanceMechanism, noise_epsilon
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ensembles import aligned_copy
from adaptive_dp.pate.model import FAILURES, quiet
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Interval, numbers
from adaptive_dp.queries.examples import draw_parts
from adaptive_dp.queries.table import Table, complete_rows

MOST_MODELS = 5_000
"""Models, at most: the weights of their depths are integers of as many words."""

BITS = 40
"""Coefficients are multiples of 2^-40, between -2^40 and 2^40."""

TEST = 0.4
"""The share of epsilon of the test."""

SHALLOWEST = 6
"""The least depth of what is released is the number of models over this."""


@frozen
class Number(RowFunction):
    """A column of numbers, clipped to its bounds where it has any."""

    of: str
    bounds: Interval | None

    def __call__(self, columns: Columns) -> NDArray[np.float64]:
        """Return a number for each row."""
        values = numbers(columns[self.of])
        if self.bounds is None:
            return values
        return np.clip(values, self.bounds.lower, self.bounds.upper)


@frozen(eq=False, repr=False)
class Models:
    """Models of batches, by coefficient: each a sorted list of integers, in steps. Private."""

    columns: list[list[int]]

    def __repr__(self) -> str:
        return "<private models>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of coefficients."""
        return (len(self.columns),)


@frozen
class BatchModels(Query):
    """Least squares in each of several parts of the rows.

    Each unit is in one part, by a uniform draw of its own that no data affects; so one unit changes
    the rows of one part, and one model, whatever the relation and however many rows a unit has
    (`adaptive_dp.statistics.subsamples.Rejections` has the argument). In a part with fewer rows
    than coefficients it is the shortest of the least squares; where it fails all coefficients are
    0. Coefficients are rounded to multiples of 2^-40.

    Parameters
    ----------
    columns
        The features, then the target; with or without bounds.
    models
        How many parts.
    declared
        The columns' declarations: bounds, to which values are clipped, or None.
    """

    kind: ClassVar[str] = "batch_models"
    column_fields: ClassVar[tuple[str, ...]] = ("columns",)
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = domains.Table
    output_type: ClassVar[type] = Models
    random: ClassVar[bool] = True

    columns: tuple[str, ...] = field(converter=strings)
    models: int = field(converter=number)
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)

    def label(self) -> str:
        """Return the number of parts."""
        return f"least squares in {self.models} parts"

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns and the number of parts."""
        table: domains.Table = inputs[0]
        if as_int(self.models) is None or not 8 <= self.models <= MOST_MODELS:
            raise DeclarationError(
                f"TukeyEM needs an int of 8 to {MOST_MODELS:,} models, got {self.models!r}; of "
                "some 500 to 2,000 a test finds enough that agree"
            )
        if len(self.columns) < 2 or len(set(self.columns)) != len(self.columns):
            raise DeclarationError(
                "a regression needs different features, the target not among them, got "
                f"{list(self.columns)!r}"
            )
        for name in self.columns:
            if not (table.find(name) is None or isinstance(table.find(name), Interval)):
                raise DeclarationError(
                    f"TukeyEM reads columns of numbers, with bounds or None; {name!r} is another"
                )
            domains.check_declared(table, name, self.declared)
        return table

    def dimension(self, domain: domains.Table) -> int:
        """Return the number of coefficients."""
        return len(self.columns)

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return 1, the model that changes."""
        return 1.0

    def run(self, inputs: Sequence[Any], stream: Stream) -> Models:
        """Return the models."""
        rows: Rows = inputs[0]
        units = rows.units
        count = int(units.max(initial=-1)) + 1
        part_of_row = draw_parts(stream, [1 / self.models] * self.models, count)[units]
        order = np.argsort(part_of_row, kind="stable")
        ends = np.searchsorted(part_of_row[order], np.arange(self.models + 1))
        values = [rows.values(Number(name, self.declared[name]))[order] for name in self.columns]  # type: ignore[arg-type]
        table = np.stack([np.ones(len(order)), *values], axis=1)
        found: list[list[int]] = [[] for _ in self.columns]
        with quiet(os.getpid()):
            for i in range(self.models):
                # memory of its own, whose place does not depend on other parts
                for column, steps in zip(
                    found, least_squares(aligned_copy(table[ends[i] : ends[i + 1]])), strict=True
                ):
                    column.append(steps)
        return Models([sorted(column) for column in found])


def least_squares(rows: NDArray[np.float64]) -> list[int]:
    """Return the coefficients of the last column on the others, in steps; 0 where there are none.

    Values that are not finite give 0, since compiled code would print that there are any.

    >>> least_squares(np.array([[1.0, 0.0, 3.0], [1.0, 2.0, 4.0]])) == [3 << 40, 1 << 39]
    True
    """
    solved = np.zeros(rows.shape[1] - 1)
    if np.isfinite(rows).all():
        rows = np.clip(rows, -1e100, 1e100)  # the same for each row
        with contextlib.suppress(*FAILURES), np.errstate(all="ignore"):
            solved = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
    clipped = np.clip(np.nan_to_num(solved), -(2.0**BITS), 2.0**BITS)
    # a product with a power of two is exact
    return [round(float(each) * 2.0**BITS) for each in clipped]


# -----------------------------------------------------------------------------
# Depths, volumes, and the private test.
#
# Of m models the *depth* of a point is the least, over coefficients j, of the number of models
# whose j-th coefficient is at most the point's, and at least. Points of depth i or more are a box,
# whose sides are from the i-th least to the i-th largest coefficient; V_i is the number of lattice
# points in it, V_0 all of them. Where one model is exchanged each depth moves by at most 1, so
# ``V_{i+1}(D) <= V_i(D') <= V_{i-1}(D)``.
#
# M(D) is the exponential mechanism on the points of depth t or more, with weights ``q^depth``; Z is
# the sum of the weights. **Let E and F be neighbours. For all events S,**
#
# ``P_E(S) <= q^2 (1 + rho) P_F(S) + beta``,  ``rho = q^{t-1} V_{t-1}(E) / Z_E``,
# ``beta = q^t V_t(E) / Z_E``.
#
# For a point of depth at least t in E has depth below t in F only if it is t in E: these have mass
# at most beta. Of the others the ratio of weights is at most q, and ``Z_F <= q (Z_E + q^{t-1}
# V_{t-1}(E))``, as a point of F's box has depth t - 1 in E, and t in F, or at least t in E.
#
# *The test.* Within j exchanges of D, ``V_i(E) <= V_{i-j}(D)`` and ``Z_E >= q^{-j} S_{t+j}(D)``,
# with ``S_i(D)`` the sum of the weights of the points of depth i or more. So if
#
# ``q^{t+j} V_{t-j} <= delta S_{t+j}``  and  ``q^{t+j-1} V_{t-1-j} <= r S_{t+j}``  at j = k + 1,
#
# called C_k(D), then every E within k of D, with each of its neighbours F, which is within k + 1,
# has ``beta <= delta`` and ``rho <= r`` in both directions. And ``C_{k+1}(D)`` implies ``C_k(D')``:
# so the least k at which C_k fails moves by at most 1 between neighbours. It is 0 where C_0 fails.
#
# *Privacy.* Released is a draw of M(D) if that number passes `is_far` at e_1, else NaN. If C_0
# holds at D or at D', M(D) and M(D') are within ``(e_2, delta)``, ``q^2 (1 + r) <= e^{e_2}``, and
# the test within e_1: together ``(e_1 + e_2, delta)``. If it fails at both, both numbers are 0:
# each passes with the same probability, at most delta. (own proof, after Brown, Gaboardi, Smith,
# Ullman and Zakynthinou 2021 and Amin, Joseph, Ribero and Vassilvitskii 2023, whose bound of the
# distance has real volumes and an infinite one outside.)
#
# q and r are rational, so all of it is computed in integers: the test is decided, and the draw
# made, exactly.

Q_BITS = 30
"""q and r are multiples of 2^-30."""


@frozen(eq=False, repr=False)
class Depths:
    """Nested boxes of models by depth, with their numbers of points and the weights: private.

    Parameters
    ----------
    boxes
        Of depth i or more, from 0 on: for each coefficient the least and the largest integer.
    q
        q in steps of 2^-30.
    """

    boxes: list[list[tuple[int, int]]]
    q: int

    def __repr__(self) -> str:
        return "<private depths>"

    @classmethod
    def of(cls, models: Models, q: int, lowest: int, highest: int) -> Depths:
        """Return the boxes of models whose coefficients are in [lowest, highest]."""
        m = len(models.columns[0])
        boxes = [[(lowest, highest)] * len(models.columns)]
        for i in range(1, (m + 1) // 2 + 1):
            boxes.append([(column[i - 1], column[m - i]) for column in models.columns])
        return cls(boxes, q)

    def volumes(self) -> list[int]:
        """Return V_i, and 0 at the end, for the depth that no point has."""
        return [math.prod(high - low + 1 for low, high in box) for box in self.boxes] + [0]

    def weights(self) -> list[int]:
        """Return the weights of depths, all times 2^(30 depth) of the deepest."""
        deepest = len(self.boxes) - 1
        powers = list(accumulate([self.q] * deepest, lambda x, y: x * y, initial=1))
        return [power << (Q_BITS * (deepest - i)) for i, power in enumerate(powers)]

    def sums(self) -> list[int]:
        """Return ``S_i``, the sum of the weights of points of depth i or more."""
        volumes, weights = self.volumes(), self.weights()
        shells = [w * (volumes[i] - volumes[i + 1]) for i, w in enumerate(weights)]
        return list(accumulate(reversed(shells)))[::-1]

    def stable(self, t: int, delta: Fraction, r: int, most: int) -> int:
        """Return the least k at which C_k fails, or ``most`` where that is less."""
        volumes, weights, sums = self.volumes(), self.weights(), self.sums()
        for k in range(most):
            j = k + 1
            if t + j >= len(sums):
                return k
            inside = sums[t + j]
            beyond = weights[t + j] * volumes[max(t - j, 0)]
            further = weights[t + j - 1] * volumes[max(t - 1 - j, 0)]
            if beyond * delta.denominator > delta.numerator * inside:
                return k
            if further << Q_BITS > r * inside:
                return k
        return most

    def draw(self, t: int, stream: Stream) -> list[int]:
        """Return a point of depth t or more, with probability in proportion to its weight."""
        volumes, weights = self.volumes(), self.weights()
        left = uniform_below(self.sums()[t], stream)
        depth = t
        while left >= weights[depth] * (volumes[depth] - volumes[depth + 1]):
            left -= weights[depth] * (volumes[depth] - volumes[depth + 1])
            depth += 1
        box = self.boxes[depth]
        if depth + 1 == len(self.boxes):
            return [low + uniform_below(high - low + 1, stream) for low, high in box]
        return _between(box, self.boxes[depth + 1], stream)


def _between(
    outer: list[tuple[int, int]], inner: list[tuple[int, int]], stream: Stream
) -> list[int]:
    """Return a uniform point of one box outside of another that lies in it."""
    wide = [high - low + 1 for low, high in outer]
    narrow = [high - low + 1 for low, high in inner]
    # the first coordinate that is outside of the inner box, of so many points each
    shells = [
        math.prod(narrow[:j]) * (wide[j] - narrow[j]) * math.prod(wide[j + 1 :])
        for j in range(len(outer))
    ]
    left, first = uniform_below(sum(shells), stream), 0
    while left >= shells[first]:
        left -= shells[first]
        first += 1
    point = []
    for j, ((low, high), (inside, end)) in enumerate(zip(outer, inner, strict=True)):
        if j < first:
            point.append(inside + uniform_below(end - inside + 1, stream))
        elif j > first:
            point.append(low + uniform_below(high - low + 1, stream))
        else:
            drawn = low + uniform_below(wide[j] - narrow[j], stream)
            point.append(drawn if drawn < inside else drawn + narrow[j])
    return point


class DeepModel(_ApproximateInstanceMechanism):
    """Release a deep model among many, if a private test finds that they agree; else NaN.

    The exponential mechanism on the depths of points among models, on points whose depth is a sixth
    of their number or more: exact, in integers. The theorem and the test are in the comment of the
    module's second section.

    Privacy: (epsilon, delta) for one model that changes.

    Parameters
    ----------
    epsilon
        In nats, for one changed model; two fifths of it for the test.
    delta
        For one changed model, from 1e-60 to below 1.

    References
    ----------
    Brown, Gaboardi, Smith, Ullman and Zakynthinou 2021; Amin, Joseph, Ribero and Vassilvitskii
    2023, Algorithm 2; the bound is proven in this module.

    Examples
    --------
    >>> DeepModel(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    input_type: ClassVar[type] = Models
    no_interval: ClassVar[str] = "it is one of many models, whose spread stays private"
    theorem: ClassVar[str] = (
        "propose-test-release of deep models: after Amin, Joseph, Ribero & Vassilvitskii 2023; "
        "proven in adaptive_dp.statistics.batches"
    )
    sampler: ClassVar[str] = (
        "two-sided geometric on integers; exponential mechanism on a lattice, exact, by rational "
        "weights"
    )

    def release(self, value: Models, stream: Stream) -> NDArray[np.float64]:
        """Return the coefficients, or NaN for all of them."""
        epsilon = noise_epsilon(self.epsilon)
        first, q, r = split(epsilon)
        depths = Depths.of(value, q, -(1 << 2 * BITS), 1 << 2 * BITS)
        t = len(value.columns[0]) // SHALLOWEST
        # farther than this the test passes nearly always
        most = distance_threshold(first, self.delta) + math.ceil(100 / first)
        stable = depths.stable(t, Fraction(self.delta), r, most)
        if not is_far(stable, first, self.delta, stream):
            return np.full(len(value.columns), math.nan)
        # the steps are integers that are drawn exactly: rounding them to floats shows nothing more
        return np.array([each / 2**BITS for each in depths.draw(t, stream)])


def split(epsilon: float) -> tuple[float, int, int]:
    """Return e_1, and q and r in steps of 2^-30, with ``q^2 (1 + r) <= e^{e_2}``.

    >>> first, q, r = split(1.0)
    >>> first, 2 * math.log(q / 2**30) + math.log1p(r / 2**30) <= 0.6
    (0.4, True)
    """
    first = epsilon * TEST
    # e_1 + e_2 is at most epsilon, rounding included; a 1024th of e_2 for r
    second = (epsilon - first) * (1 - 1e-12)
    spare = second / 1024
    q = int(math.exp((second - spare) / 2) * (1 - 1e-12) * 2**Q_BITS)
    return first, max(q, 2**Q_BITS), int(math.expm1(spare) * (1 - 1e-9) * 2**Q_BITS)


@frozen
class TukeyEM:
    """Linear regression without bounds and without a clipping norm: a deep one of many models.

    The rows are split at random into ``models`` parts, each of which is fitted by least squares;
    released is a point that lies deep among the models, by the exponential mechanism, if a private
    test finds that they agree well enough for that to be private: else all coefficients are NaN. No
    column needs bounds, and no parameter of noise is chosen; but there must be rows for many
    models.

    Parameters
    ----------
    features, target
        Columns of numbers, with bounds (to which values are clipped) or None. Rows in which one is
        missing are left out.
    models
        How many. By default ``(400 + 40 features) / epsilon``, 1,000 where epsilon is free: a
        sixth and more above what the test passes at delta 1e-6 where models are normally
        distributed. The rows of a part should be some times the features.
    free
        Where no budget is given: the name of the free parameter.

    Returns
    -------
    dict
        The coefficient of ``"intercept"``, then of each feature, in the columns' units, to a
        resolution of 1e-12; NaN where the test fails.

    References
    ----------
    Amin, Joseph, Ribero and Vassilvitskii 2023 (Easy differentially private linear regression);
    Brown, Gaboardi, Smith, Ullman and Zakynthinou 2021.

    See Also
    --------
    adaptive_dp.AdaSSP : for columns with bounds, and fewer rows.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"size": None, "price": None})
    >>> line = people.solve(dp.statistics.TukeyEM(["size"], "price"), epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(line=line).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by basic>
    >>> rng = np.random.default_rng(1)
    >>> size = rng.gamma(4, 30, 20_000)
    >>> data = {"size": size, "price": 40 + 3 * size + rng.normal(0, 50, 20_000)}
    >>> found = plan.simulate(seed=1, people=data)["line"]
    >>> abs(found["intercept"] - 40) < 4, abs(found["size"] - 3) < 0.05
    (True, True)
    """

    features: tuple[str, ...] = field(converter=strings)
    target: str
    models: int | None = field(default=None, kw_only=True)
    free: str = field(default="epsilon", kw_only=True)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[dict[str, float]]:
        """Return the released coefficients."""
        if delta is None or not delta > 0:
            raise DeclarationError(
                "TukeyEM tests how well models agree, which needs a delta above 0, such as 1e-6, "
                f"got {delta!r}"
            )
        columns = (*self.features, self.target)
        models = self.models
        if models is None:
            enough = math.ceil((400 + 40 * len(self.features)) / (epsilon or 1.0))
            models = 1_000 if epsilon is None else min(max(enough, 8), MOST_MODELS)
        declared = {name: table.domain.find(name) for name in columns}
        query: PrivateQuery[Any] = PrivateQuery(
            BatchModels(columns, models, declared), (complete_rows(table, columns),)
        )
        budget: Any = Free(self.free) if epsilon is None else epsilon
        released = query.release(DeepModel(epsilon=budget, delta=delta), name="model")
        return group("TukeyEM", post(by_name, released, names=list(self.features)), table)


def by_name(model: NDArray[np.float64], *, names: list[str]) -> dict[str, float]:
    """Return coefficients by name, the intercept first."""
    return dict(zip(["intercept", *names], np.asarray(model).tolist(), strict=True))
