"""Typed errors of the accountants."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any


class AccountingError(Exception):
    """Base of every error that this package raises on purpose.

    Examples
    --------
    >>> import accountants
    >>> try:
    ...     accountants.Laplace(epsilon=-1)
    ... except accountants.AccountingError as error:
    ...     print(error)
    Laplace.epsilon must be a non-negative finite number, got -1
    """


class DomainError(AccountingError, ValueError):
    """A parameter lies outside its domain; the message carries value, rule and remedy.

    Examples
    --------
    >>> import accountants
    >>> accountants.Gaussian(mu=-1)
    Traceback (most recent call last):
        ...
    accountants.errors.DomainError: Gaussian.mu must be a non-negative finite number, got -1
    """


class InapplicableError(AccountingError):
    """An accountant has no proven bound for a loss, so it raises and does not estimate.

    Examples
    --------
    >>> import accountants
    >>> accountants.filter_for("distribution", 1.0, 1e-6)
    Traceback (most recent call last):
        ...
    accountants.errors.InapplicableError: the accountant 'distribution' has no filter: for privacy
    loss distributions and trade-off functions the natural one is false when parameters are chosen
    adaptively (Tran, Koskela, Raisa and Honkela 2026), and for others none is proven; the
    accounting units with a theorem are best, basic, advanced, concentrated, renyi, gaussian
    """


Explain = Callable[[], tuple[str, int, object]]
"""Returns what a `BudgetError` says: its message, how often the request fits, and what would."""


class BudgetError(AccountingError):
    """A request does not fit into what remains of a budget; nothing was spent.

    Parameters
    ----------
    message
        What was asked, what remains, and what would fit.
    request
        The loss that was asked for.
    times
        How often.
    fitting
        How often it would fit.
    largest
        The largest loss of the same family that would fit ``times`` times; None where there
        is none, or the family has no scale.

    Examples
    --------
    >>> from accountants import Laplace, PureFilter
    >>> budget = PureFilter(1.0)
    >>> state = budget.spend(budget.start(), Laplace(epsilon=0.8))
    >>> budget.spend(state, Laplace(epsilon=0.4))
    Traceback (most recent call last):
        ...
    accountants.errors.BudgetError: not enough of the budget is left for Laplace(epsilon=0.4):
    what fits is epsilon 0.199999, 2.00001 times the noise (pure filter: it asks for epsilon 0.4
    of 0.199999 left)
    """

    def __init__(
        self,
        message: str,
        request: object = None,
        times: int = 1,
        fitting: int = 0,
        largest: object = None,
    ) -> None:
        super().__init__(message, request, times, fitting, largest)
        self.request, self.times = request, times
        self._explain: Explain | None = None

    @classmethod
    def explained(cls, explain: Explain, request: object, times: int) -> BudgetError:
        """Return an error whose message, `fitting` and `largest` are computed when first asked for.

        To refuse takes one comparison, and to find the largest loss that fits a search.

        Parameters
        ----------
        explain
            Returns the three, of values that do not change.
        request, times
            The loss that was asked for, and how often.
        """
        error = cls("", request, times)
        error._explain = explain
        return error

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The parameters, in their order."""
        if self._explain is not None:
            message, fitting, largest = self._explain()
            super().__init__(message, self.request, self.times, fitting, largest)
            self._explain = None
        return super().args

    @property
    def fitting(self) -> int:
        """How often it would fit."""
        return int(self.args[3])

    @property
    def largest(self) -> Any:
        """The largest loss of the same family that would fit ``times`` times, or None."""
        return self.args[4]

    def __str__(self) -> str:
        return str(self.args[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.args!r}"

    def __reduce__(self) -> Any:
        return type(self), self.args


def passed_through_an_author(error: Exception) -> bool:
    """Return whether an error came out of code that is neither this package's nor a library's.

    A computation that leaves the range of floats has no bound, which is no fault; a division by
    zero in an author's own loss or pair is the author's to see. Refusals are neither.
    """
    trace = None if isinstance(error, AccountingError) else error.__traceback__
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _NO_AUTHORS:
            return True
        trace = trace.tb_next
    return False


_NO_AUTHORS = sys.stdlib_module_names | {"accountants", "adaptive_dp", "numpy", "scipy"}

LARGEST_COUNT = 10**300
"""No count above this: as a float it, and small multiples of it, must be finite."""


def nonnegative(what: str, value: float, *, finite: bool = True) -> float:
    """Return ``value`` as a float, or raise `DomainError` unless it is at least 0."""
    return _number(what, value, 0.0, strict=False, finite=finite)


def positive(what: str, value: float) -> float:
    """Return ``value`` as a float, or raise `DomainError` unless it is positive and finite."""
    return _number(what, value, 0.0, strict=True, finite=True)


def probability(what: str, value: float, *, below_one: bool = False) -> float:
    """Return ``value`` as a float, or raise `DomainError` unless it is a probability."""
    number = _number(what, value, 0.0, strict=False, finite=True)
    if number > 1 or (below_one and number == 1):
        rule = "at least 0 and below 1" if below_one else "between 0 and 1"
        raise DomainError(f"{what} must be {rule}, got {_said(value)}")
    return number


def integer(what: str, value: int, least: int = 1) -> int:
    """Return ``value`` as an int, or raise `DomainError` unless it is an integer >= least."""
    rule = f"{what} must be an integer of at least {least}"
    if isinstance(value, bool) or (not isinstance(value, int) and not hasattr(value, "__index__")):
        raise DomainError(f"{rule}, got {_said(value)}")
    number = value.__index__()
    if number < least:
        raise DomainError(f"{rule}, got {_said(value)}")
    if number > LARGEST_COUNT:
        raise DomainError(f"{rule} and at most 10**300, got {_said(value)}")
    return number


def checked(check: Callable[..., Any], **options: Any) -> Callable[[Any, Any, Any], None]:
    """Return an attrs validator that stores what ``check`` makes of a field's value.

    A validator and not a converter, because attrs tells a validator whose field it is: the message
    of a refusal names class and field.

    Parameters
    ----------
    check
        `nonnegative`, `positive`, `probability` or `integer`.
    **options
        Further arguments of the check, such as ``least=0``.
    """

    def validate(instance: Any, attribute: Any, value: Any) -> None:
        name = f"{type(instance).__name__}.{attribute.name}"
        assign(instance, **{attribute.name: check(name, value, **options)})

    return validate


def assign(instance: object, **values: object) -> None:
    """Set fields of an instance that is frozen, while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _said(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python prints no integer of more than some thousand digits
        return "a number of thousands of digits"


def _number(what: str, value: float, least: float, *, strict: bool, finite: bool) -> float:
    rule = ("a positive" if strict else "a non-negative") + (
        " finite number" if finite else " number"
    )
    if isinstance(value, bool | str | bytes | bytearray):
        raise DomainError(f"{what} must be {rule}, got {_said(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise DomainError(f"{what} must be {rule}, got {_said(value)}") from None
    bad = math.isnan(number) or number < least or (strict and number == least)
    if bad or (finite and math.isinf(number)):
        raise DomainError(f"{what} must be {rule}, got {_said(value)}")
    if not isinstance(value, float) and number != value:
        # the nearest float may lie on the side of less loss: which side that is, the caller knows
        raise DomainError(
            f"{what} must be a number that a float holds exactly, got {_said(value)}, of which the "
            f"nearest float is {number!r}: give that float, or the next one towards more loss"
        )
    return number
