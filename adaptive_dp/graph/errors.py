"""Typed errors. Messages name place, value, rule and remedy; none contains private data."""

from __future__ import annotations


class PlanError(Exception):
    """Base of every error that a plan raises on purpose.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> try:
    ...     dp.Laplace(scale=0)
    ... except dp.PlanError as error:
    ...     type(error).__name__
    'DeclarationError'
    """


class DeclarationError(PlanError, ValueError):
    """Something was declared outside its domain, found when it was declared.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.Laplace(scale=0)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DeclarationError: Laplace.scale must be a positive finite number
    below 1e300, got 0; pass Free('b') to have calibrate choose it
    """


class LeakError(DeclarationError):
    """A private value would leave the plan.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> dp.Pipeline(age=people["age"])
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LeakError: output 'age' is private: people -> age; ask something of it
    that can be released, such as .count() of a table or .sum() of a column
    """


class NeighborError(DeclarationError):
    """Neighbour relations are mixed, or nothing is proven of a transform under this one.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> ages = dp.dataset("people", columns={"age": (0, 100)})["age"]
    >>> sizes = dp.dataset("homes", columns={"size": (0, 900)}, neighbors="replace_one")["size"]
    >>> dp.Pipeline(age=ages.sum().release(dp.Laplace()), size=sizes.sum().release(dp.Laplace()))
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.NeighborError: the data sets 'people' (add_remove) and 'homes'
    (replace_one) have different neighbour relations; declare both with the same neighbors=...
    """


class DocumentError(PlanError, ValueError):
    """A plan or certificate document is not of the declared form.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.load('{"format": "a/shopping/list"}')
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DocumentError: plan: 'format' must be 'adaptive-dp/plan/2', got
    'a/shopping/list'
    """


class LimitError(DocumentError):
    """A document asks for more than its reader allows: see `Limits`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.load("a." * 100 + "a = 1")
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LimitError: plan: a key of 101 parts is nested deeper than 64; flatten
    it
    """


class DataError(PlanError, ValueError):
    """Data does not fit its declaration; the message depends on the schema only.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=200)))
    >>> plan.simulate(seed=1, people={"name": ["Ada", "Emmy"]})
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DataError: dataset 'people': the data has no column 'age'; each
    declared column must be there
    """


class CalibrationError(PlanError, ValueError):
    """No value of the free parameters meets the target.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> total = people["age"].sum().release(dp.Laplace())
    >>> plan = dp.Pipeline(count=people.count().release(dp.Laplace(scale=1)), total=total)
    >>> plan.calibrate(epsilon=0.5)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.CalibrationError: cannot meet epsilon=0.5, delta=0: no noise up to
    1e12 times the weights reaches epsilon <= 0.5: releases whose noise is fixed, or delta floors,
    already cost more; free more of them
    """


class NoIntervalError(PlanError, ValueError):
    """Released values alone do not tell how far an output may be off; the message says why.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(age=people["age"].median().release(dp.QuantileExponential(scale=2)))
    >>> result = plan.simulate(seed=1, people={"age": [30.0, 40.0] * 50})
    >>> result["age"].interval()
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.NoIntervalError: 'age' has no interval: its rank is known, not the
    values around it; declare it with interval=0.95, which releases two ends too
    """


class LedgerError(PlanError):
    """A ledger cannot be used: it is of another budget, damaged, or not to be written.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> rows = {"age": [30.0, 40.0]}
    >>> dp.Session(budget=dp.Budget(1.0), ledger="ftp://example.org/privacy.db", people=rows)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LedgerError: a ledger is the path of a file, or a URL such as
    postgresql://host/database; got 'ftp://example.org/privacy.db'
    """


class PluginError(PlanError):
    """A plug-in of another distribution cannot be used; others are not affected."""


class RunError(PlanError, RuntimeError):
    """A step failed on private data; its cause is withheld, since it may contain data.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> count = people.count().release(dp.Laplace(scale=2))
    >>> plan = dp.Pipeline(share=dp.post(lambda n: n / 0, count))
    >>> plan.simulate(seed=1, people={"id": [1, 2]})
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.RunError: node 'share' failed (ZeroDivisionError in <lambda>, line 1
    of ...); its message is withheld, since a function may hold more than released values. Nothing
    was released: call it on made-up values to find out.
    """
