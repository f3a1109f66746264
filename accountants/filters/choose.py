"""The privacy filter that keeps a budget in an accountant's unit, where a theorem has one."""

from __future__ import annotations

from collections.abc import Callable

from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.filters.approximate import ApproximateFilter
from accountants.filters.best import BestFilter
from accountants.filters.concentrated import ConcentratedFilter
from accountants.filters.gaussian import GaussianFilter
from accountants.filters.pure import PureFilter
from accountants.filters.renyi import SomeOrderFilter
from accountants.filters.sums import SumFilter, checked_failures

_FILTERS: dict[str, Callable[[float, float, float], SumFilter]] = {
    "best": BestFilter,
    "basic": lambda epsilon, delta, failures: PureFilter(epsilon, delta),
    "advanced": ApproximateFilter,
    "concentrated": ConcentratedFilter.within,
    "renyi": lambda epsilon, delta, failures: SomeOrderFilter(epsilon, delta, failures=failures),
    "gaussian": GaussianFilter.within,
}


def filter_for(accountant: str, epsilon: float, delta: float, failures: float = 0.0) -> SumFilter:
    """Return the filter that keeps ``(epsilon, delta)`` in the accounting unit of an accountant.

    Parameters
    ----------
    accountant
        The accountant's name; ``"best"`` for whichever of three accounting units lasts longest.
    epsilon, delta
        The guarantee.
    failures
        The part of delta that is kept for what losses fail with (all of it under ``"basic"``).

    Raises
    ------
    InapplicableError
        Where no filter theorem holds. The natural filter of privacy loss distributions and
        trade-off curves, which composes what was spent and stops at the target, is false: a
        mechanism may be followed by another chosen by its outcome, each of the two paths
        within the target, and the whole outside of it.

    Examples
    --------
    >>> filter_for("gaussian", epsilon=1.0, delta=1e-6).name
    'gaussian'
    """
    if not isinstance(accountant, str):
        raise DomainError(f"filter_for needs an accountant's name, got {accountant!r}")
    epsilon, delta = nonnegative("epsilon", epsilon), probability("delta", delta)
    failures = checked_failures("filter", failures, delta)
    if accountant in _FILTERS:
        return _FILTERS[accountant](epsilon, delta, failures)
    raise InapplicableError(
        f"the accountant {accountant!r} has no filter: for privacy loss distributions and "
        "trade-off functions the natural one is false when parameters are chosen adaptively "
        "(Tran, Koskela, Raisa and Honkela 2026), and for others none is proven; the "
        f"accounting units with a theorem are {', '.join(_FILTERS)}"
    )
