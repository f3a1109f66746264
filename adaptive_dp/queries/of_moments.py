"""What is released of exact second moments: the matrix, the vector, the least eigenvalue.

All three read one transform (`adaptive_dp.queries.moments.MomentsOf`), so the rows are passed over
once. In it ``|x| <= 1`` and ``|y| <= 1`` hold exactly, row by row, and sums are whole numbers; what
is given is clamped to the sums of 2^30 of the longest rows (which moves no two of them apart), and
then rounded to floats. Each sensitivity is that of whole numbers, a little enlarged for that
rounding, which the docstrings bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from adaptive_dp.data.linear_systems import BITS
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.gram import MOST, pack, packed_sensitivity, unpack
from adaptive_dp.queries.moments import MomentsDomain
from adaptive_dp.queries.stacked_moments import value_of


@frozen
class GramOfMoments(Query):
    """``sum x x'``, packed so that its l2 norm is Frobenius'.

    The sensitivity is that of `adaptive_dp.queries.gram.Gram` for R = 1, times ``1 + d 2^-20``.
    Rounding (of the clamped number, and of its product with sqrt 2) moves each of the
    ``d (d + 1) / 2`` entries by at most 2^-21.5, so between two data sets their l2 norm by
    ``2^-20.5 d``, and their l1 norm by ``2^-21.5 d (d + 1)``: less than ``d 2^-20`` times the least
    sensitivity, which is 1 in l2 and ``1 + (d - 1) / sqrt 2`` in l1.
    """

    kind: ClassVar[str] = "gram_of_moments"
    reads: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "second moments"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        return packed_sensitivity(1.0, domain.width, change, norm) * (1 + domain.width * 2.0**-20)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        return pack(value_of(np.asarray(inputs[0])[:-1, :-1], 2 * BITS))


@frozen
class CrossOfMoments(Query):
    """``sum x y``.

    A row gives a vector of norm at most 1, hence of l1 norm at most ``sqrt(d)``; an exchange moves
    the sum by two of them (own proof: the triangle inequality). Rounding moves each entry by at
    most 2^-23, between two data sets by ``2^-22 sqrt(d)`` in l2 and ``2^-22 d`` in l1: less than
    ``d 2^-20`` times either.
    """

    kind: ClassVar[str] = "cross_of_moments"
    reads: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "moments with the target"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of features."""
        return domain.width

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        d = domain.width
        return change.both * (math.sqrt(d) if norm == 1 else 1.0) * (1 + d * 2.0**-20)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the vector, shape (d,)."""
        return value_of(np.asarray(inputs[0])[:-1, -1], 2 * BITS)


@frozen
class EigenvalueOfMoments(Query):
    """The least eigenvalue of ``X'X``, in floats.

    As `adaptive_dp.queries.gram.SmallestEigenvalue` for R = 1: what is given is
    ``min(lambda, max(0, 2^30 - trace))``. By Weyl's inequality the eigenvalue moves by at most r
    for a unit of up to r rows, exchanged or not, and so does the trace, whose terms are not
    negative.
    Where it is the eigenvalue, the matrix's entries are at most 2^30: between two data sets their
    rounding and LAPACK's move it by at most ``2^-17.9 d``, for which the sensitivity is
    ``r (1 + d 2^-17)``.

    `adaptive_dp.queries.moments.LeastEigenvalue` is nearer, and takes decimals of 120 digits: at
    a hundred coefficients half a second, where this takes a millisecond.

    References
    ----------
    Wang 2018, Algorithm 2 (AdaSSP), line 1.
    """

    kind: ClassVar[str] = "eigenvalue_of_moments"
    reads: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "smallest eigenvalue"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (one number: any norm)."""
        return change.rows * (1 + domain.width * 2.0**-17)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        matrix = np.asarray(inputs[0])[:-1, :-1]
        left = float(max(0, (MOST << 2 * BITS) - sum(matrix.diagonal()))) * 2.0 ** (-2 * BITS)
        if left == 0:
            return 0.0
        least = float(np.linalg.eigvalsh(value_of(matrix, 2 * BITS))[0])
        return min(max(0.0, least), left)
