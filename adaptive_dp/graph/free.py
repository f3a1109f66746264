"""A parameter left free, for `Pipeline.calibrate` to choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.errors import DeclarationError

if TYPE_CHECKING:
    from typing import Self

    class _Number(float):
        def __new__(cls, name: str = "noise", weight: float | None = 1.0) -> Self: ...

else:
    _Number = object


@frozen(order=False)
class Free(_Number):
    """A noise (or budget) parameter that calibration solves.

    Every free parameter of a plan is ``multiplier * weight`` with one multiplier for the
    whole graph (``weight / multiplier`` for a budget parameter, which costs more as it
    grows), so weights say how the budget is shared.

    Type checkers see a subclass of float, so that ``Laplace(scale=Free("b"))`` fits a parameter
    annotated as ``float``. At run time it is no number: whoever computes with one that has not
    been calibrated gets a TypeError.

    Parameters
    ----------
    name
        Parameters of one name belong together; `Pipeline.fix` sets them by it.
    weight
        Positive. None stands for the query's sensitivity, which takes its place when the query is
        released: releases of one kind of noise then cost the same. It is what mechanisms have by
        default: ``dp.Laplace()`` is ``dp.Laplace(scale=dp.Free("noise", weight=None))``.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> count = people.count().release(dp.Laplace(scale=dp.Free("b")))
    >>> total = people["age"].sum().release(dp.Laplace(scale=dp.Free("b", weight=100)))
    >>> plan = dp.Pipeline(count=count, total=total)
    >>> plan.free
    {'b': [1.0, 100]}
    >>> print(plan.calibrate(epsilon=1.0))
    node           color     what                                           reads
    -------------  --------  ---------------------------------------------  -------------
    people         private   dataset: people, add/remove, protects one row
    count (count)  private   count                                          people
    count          released  Laplace(scale=2)                               count (count)
    age            private   column: age                                    people
    sum            private   sum in [0, 100]                                age
    total          released  Laplace(scale=200)                             sum
    """

    name: str = field(default="noise")
    weight: float | None = field(default=1.0, converter=number)

    @name.validator
    def _named(self, _: object, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"Free needs a name, got {name!r}; write Free('b')")

    @weight.validator
    def _positive(self, _: object, weight: float | None) -> None:
        if weight is not None and not positive(weight):
            raise DeclarationError(
                f"Free({self.name!r}).weight must be a {POSITIVE}, got {weight!r}"
            )

    @property
    def factor(self) -> float:
        """The weight as a number: 1 before a release has put its query's sensitivity there."""
        return 1.0 if self.weight is None else self.weight

    def __str__(self) -> str:
        return self.name if self.weight in (1, None) else f"{self.weight:g} {self.name}"


IN_PROPORTION = Free(weight=None)
"""Noise in proportion to the query's sensitivity, left for calibration."""
