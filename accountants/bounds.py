"""The answer of every accountant: a bracket around the tight value."""

from __future__ import annotations

import math

from attrs import field, frozen

from accountants.errors import DomainError
from accountants.numerics import shown


@frozen
class Bounds:
    """A proven bracket ``lower <= truth <= upper``.

    The truth is the tight epsilon (or delta) of the composition of the declared
    losses; a mechanism that does not attain its declared loss may lie below.

    Parameters
    ----------
    lower, upper
        In nats for an epsilon, a probability for a delta. ``upper`` may be infinite.

    Examples
    --------
    >>> from accountants import Laplace, Renyi, Repeated, Spend, measure
    >>> bounds = measure(Repeated(Spend(Laplace(epsilon=0.1)), 100), Renyi(), delta=1e-6).bounds
    >>> bounds.lower < bounds.upper
    True
    >>> print(bounds)  # the lower end rounded down, the upper end up
    [0.0999979, 4.98418]
    >>> Bounds(2.0, 1.0)
    Traceback (most recent call last):
        ...
    accountants.errors.DomainError: bounds must satisfy lower <= upper, got 2.0 and 1.0
    """

    lower: float
    upper: float = field()

    @upper.validator
    def _ordered(self, _: object, upper: float) -> None:
        if math.isnan(self.lower) or math.isnan(upper) or self.lower > upper:
            raise DomainError(f"bounds must satisfy lower <= upper, got {self.lower} and {upper}")

    def __str__(self) -> str:
        return f"[{shown(self.lower, upward=False)}, {shown(self.upper, upward=True)}]"
