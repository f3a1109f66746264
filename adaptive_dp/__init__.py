"""Differentially private analyses as graphs: declared, certified, run and audited.

Declare
    `dataset` and what is derived from it (`Table`, `Column`, `Vectors`): transforms, and queries
    such as ``people["income"].sum()``. A query is private until its ``.release(mechanism)``, with a
    mechanism (`Laplace` and all the others listed in the reference) or a `Mechanism` of your own,
    whose noise may be `Free`. `post`, `parameter`, `public`, `repeat`, `select` and `group` build
    on what is released; `AdaSSP` is a learner for ``people.solve(...)``.
Certify, run, look
    `Pipeline` holds the wanted outputs with all that they need: ``calibrate``, ``certify``,
    ``run``, ``simulate``, ``diff``, ``svg``, ``to_json``. `report` and `markdown` write a
    `Certificate` for people; `verify` recomputes one; `load` reads a plan document.
Audit
    `audit.mechanism` runs a mechanism on neighbouring values, and bounds what it leaks from below.
Errors
    What was given, what was expected, how to fix it. All are a `PlanError`, but for the two of
    accountants: `BudgetError` (a step does not fit) and `InapplicableError` (no
    accountant has a bound).

>>> import adaptive_dp as dp
>>> people = dp.dataset("people", columns={"income": (0, 200_000)}, unit="id", rows_per_unit=5)
>>> count = people.count().release(dp.Laplace(scale=dp.Free("b")))
>>> total = people["income"].sum().release(dp.Laplace(scale=dp.Free("b", weight=200_000)))
>>> plan = dp.Pipeline(count=count, total=total).calibrate(epsilon=1.0)
>>> plan.certify().epsilon <= 1.0
True
"""

from typing import Any as _Any

from accountants.later import attach as _attach
from adaptive_dp.extensions import provide as _provide

_find, __dir__ = _attach(__name__, __file__)
__all__ = __dir__()


def __getattr__(name: str) -> _Any:
    return _version() if name == "__version__" else _find(name)


def _names() -> _Any:
    from adaptive_dp.names import FUNCTIONS, MECHANISMS, OPERATIONS

    return FUNCTIONS, OPERATIONS, MECHANISMS


def _audit() -> _Any:
    from adaptive_dp.audit import pipeline

    return pipeline


def _readers() -> _Any:
    from adaptive_dp.mechanisms.advice import readers

    return readers


def _svg() -> _Any:
    from adaptive_dp.reports.drawing import svg

    return svg


def _mermaid() -> _Any:
    from adaptive_dp.reports.drawing import mermaid

    return mermaid


def _audit_plot() -> _Any:
    from adaptive_dp.reports.plot import audit

    return audit


def _default() -> _Any:
    from adaptive_dp.mechanisms.advice import default

    return default


def _laplace() -> _Any:
    from adaptive_dp.mechanisms.additive import Laplace

    return Laplace


def _from_function() -> _Any:
    from adaptive_dp.prove.mechanism import from_function

    return from_function


def _online_run() -> _Any:
    from adaptive_dp.mechanisms.sparse_vector import online_run

    return online_run


def _online_answer() -> _Any:
    from adaptive_dp.mechanisms.sparse_vector import online_answer

    return online_answer


# what lower rooms call of higher ones, imported at the first call
_provide("names", _names)
_provide("report.svg", _svg)
_provide("report.mermaid", _mermaid)
_provide("report.plot.audit", _audit_plot)
_provide("audit.pipeline", _audit)
_provide("primitives.readers", _readers)
_provide("mechanisms.default", _default)
_provide("mechanisms.laplace", _laplace)
_provide("prove.from_function", _from_function)
_provide("sparse_vector.run", _online_run)
_provide("sparse_vector.answer", _online_answer)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # here: it takes long to import

    try:
        return version("adaptive-dp")
    except PackageNotFoundError:  # read from its folder
        return "unknown"
