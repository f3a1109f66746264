"""Which solver is expected to be best: a rule of public facts alone, and its reason in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptive_dp import solvers

SOLVERS: dict[str, Any] = {
    "adaops": solvers.AdaOPS,
    "adassp": solvers.AdaSSP,
    "boosted_ssp": solvers.BoostedSSP,
    "noisy_gradient_descent": solvers.NoisyGradientDescent,
    "noisy_sgd": solvers.NoisySGD,
    "objective_perturbation": solvers.ObjectivePerturbation,
    "ops": solvers.OPS,
    "ssp": solvers.SSP,
}
"""Learners by the names that ``solver`` takes."""

REGRESSORS = (
    "boosted_ssp",
    "ssp",
    "adassp",
    "adaops",
    "ops",
    "noisy_gradient_descent",
    "noisy_sgd",
)
DESCENTS = ("noisy_gradient_descent", "noisy_sgd")

Rule = dict[str, str]
"""Solvers, the best first, each with its reason."""

REGRESSION: Rule = {
    "boosted_ssp": "steps on clipped gradients, scaled by a noisy second-moment matrix, did about "
    "as well as the better of ssp and noisy_gradient_descent, or better, in most of 39 trials "
    "of 506 to 45,730 rows with 5 to 32 features",
}
PURE_REGRESSION: Rule = {
    "ssp": "delta is 0, and Laplace noise on the moments is pure",
}
FEW_CLASSES: Rule = {
    "objective_perturbation": "of up to three classes, noise added once to a smooth objective did "
    "about as well as noisy gradients or better, and needs no step size",
    "noisy_gradient_descent": "rounds over all rows suit a convex smooth loss",
}
STRONG = 0.75
"""The epsilon below which two classes are learned by noisy gradients."""

TWO_CLASSES: Rule = {
    "noisy_gradient_descent": "below epsilon 0.75, noisy gradients of all rows were more accurate "
    "on Adult: they stop before the noise is fitted",
}
MANY_CLASSES: Rule = {
    "noisy_gradient_descent": "of more than three classes, noisy gradients of all classes together "
    "did better in trials than a budget that classes share",
}
PURE_CLASSES: Rule = {"objective_perturbation": "delta is 0, and noise in the objective is pure"}


def regression(solver: Any, delta: float) -> tuple[str, str]:
    """Return the solver for a target of numbers, and why."""
    return _chosen(solver, PURE_REGRESSION if delta == 0 else REGRESSION, REGRESSORS)


def classification(
    solver: Any, epsilon: float, delta: float, classes: int, allowed: Sequence[str]
) -> tuple[str, str]:
    """Return the solver for so many classes, of those that can minimize the loss, and why."""
    rule = PURE_CLASSES if delta == 0 else FEW_CLASSES if classes <= 3 else MANY_CLASSES
    if delta > 0 and classes == 2 and epsilon < STRONG:
        rule = TWO_CLASSES
    return _chosen(solver, rule, allowed)


def _chosen(solver: Any, rule: Rule, allowed: Sequence[str]) -> tuple[str, str]:
    if solver in allowed:
        return solver, f"{solver}: asked for by name"
    if solver != "auto":
        raise ValueError(f"solver must be 'auto' or one of {', '.join(allowed)}; got {solver!r}")
    for name, reason in rule.items():
        if name in allowed:
            return name, f"{name}: {reason}"
    raise ValueError(f"none of {', '.join(allowed)} works at delta=0; pass a delta such as 1e-6")
