"""An objective that counts the gradients of parts that are asked of it."""

from __future__ import annotations

import numpy as np
from attrs import define
from numpy.typing import NDArray

from adaptive_dp.optimizers.objective import Floats, Objective


@define
class Counted:
    """Gradients of an objective, counted; a full gradient counts as one of every part."""

    objective: Objective
    gradients: int = 0

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient at w."""
        self.gradients += self.objective.parts
        return self.objective.gradient(w)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' gradients at w."""
        self.gradients += len(chosen)
        return self.objective.part(chosen, w)


def start_at(objective: Objective, start: Floats | None) -> Floats:
    """Return the point of the set that is nearest to ``start`` (to the origin, if not given)."""
    if start is None:
        start = np.zeros(objective.width)
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (objective.width,) or not np.isfinite(start).all():
        raise ValueError(
            f"start must be {objective.width} finite numbers; leave it out to begin at 0"
        )
    return objective.project(start)


def refuse_unless_smooth(objective: Objective) -> None:
    """Raise where an optimizer needs a Lipschitz gradient and the objective has none."""
    if not 0 < objective.smooth < np.inf:
        raise ValueError(
            f"the objective's `smooth` must be positive and finite, got {objective.smooth}; "
            "use `subgradient` where the loss has kinks"
        )


def refuse_unless_strong(objective: Objective) -> None:
    """Raise where an optimizer needs strong convexity and the objective has none."""
    if not 0 < objective.strong < np.inf:
        raise ValueError(
            f"the objective's `strong` must be positive, got {objective.strong}; add a ridge"
        )


def refuse_unless_positive(name: str, value: float) -> None:
    """Raise where a parameter of an optimizer is not a positive number."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
