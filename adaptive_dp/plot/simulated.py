"""Measurements of a plan at several epsilons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from accountants.rounding import Array
from accountants.secret import Secret
from adaptive_dp.graph.convert import number, positive, whole
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.run import Result, simulations


def simulated(
    plan: Pipeline | Callable[[float], Pipeline],
    epsilons: Iterable[float],
    score: Callable[[Result], float],
    *,
    data: Mapping[str, Any],
    delta: float = 0.0,
    runs: int = 20,
    seed: int = 0,
) -> dict[float, Array]:
    """Return the scores of simulated runs at each epsilon, for `utility` to draw.

    Runs have seeded noise and are no releases: neither are their scores. On private data a score
    is as private as the data are; choose an epsilon on public or made-up data.

    Parameters
    ----------
    plan
        With free noise, calibrated to each epsilon; or a function of epsilon that returns a plan
        to simulate as it is.
    epsilons
        In nats, each once.
    score
        What to measure of a result (which comes without its expected noise): a number, such as
        an error.
    data
        The data sets by their names.
    delta
        To which the plan is calibrated.
    runs
        At each epsilon.
    seed
        Of the first run; the others follow, the same at each epsilon.

    Returns
    -------
    dict
        Shape (runs,) for each epsilon.

    Raises
    ------
    DeclarationError
        If an argument does not fit, or the function returns no plan.
    PlanError
        As `Pipeline.calibrate` and `Pipeline.simulate`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=dp.Free("b"))))
    >>> made_up = {"people": {"age": [30.0] * 500}}
    >>> found = plot.simulated(plan, [0.1, 1.0], lambda r: abs(r["n"] - 500), data=made_up)
    >>> bool(found[0.1].mean() > found[1.0].mean())
    True
    """
    many, first = whole(runs), whole(seed)
    if many is None or many < 1:
        raise DeclarationError(f"runs must be a whole number of at least 1, got {runs!r}")
    if first is None or first < 0:
        raise DeclarationError(f"seed must be a whole number of at least 0, got {seed!r}")
    found: dict[float, Array] = {}
    for each in epsilons:
        epsilon = number(each)
        if not positive(epsilon) or epsilon in found:
            raise DeclarationError(f"epsilons must be positive and differ, got {each!r}")
        made = _plan(plan, epsilon, delta)
        held = {name: Secret(value) for name, value in data.items()}
        results = simulations(made, held, range(first, first + many))
        scores = [score(result) for result in results]
        found[epsilon] = np.array([float(value) for value in scores])
    return found


def _plan(plan: Any, epsilon: float, delta: float) -> Pipeline:
    if isinstance(plan, Pipeline):
        return plan.calibrate(epsilon=epsilon, delta=delta)
    made = plan(epsilon)
    if not isinstance(made, Pipeline):
        raise DeclarationError(
            f"the function of epsilon must return a Pipeline, got {type(made).__name__}"
        )
    return made
