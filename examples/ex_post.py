"""What each person lost by the theta that was released: logistic regression, perturbed objective.

Redberg and Wang 2021: an ex-post loss is that of one outcome. It is a function of the private
data; made-up data may be shown.
"""

import math
import sys

import numpy as np
from scipy import optimize, special

from adaptive_dp.instance import objective_losses

N, D, RIDGE, SIGMA = 1000, 2, 1.0, 5.0


def made_up() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return records, labels, and the noise that perturbs the objective."""
    rng = np.random.default_rng(22)
    x = rng.normal(size=(N, D))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    y = np.sign(x @ np.array([3.0, -2.0]) + 0.3 * rng.normal(size=N))
    return x, y, rng.normal(size=D) * SIGMA


def minimiser(x: np.ndarray, y: np.ndarray, noise: np.ndarray) -> np.ndarray:
    def gradient(theta: np.ndarray) -> np.ndarray:
        return -x.T @ (y * special.expit(-y * (x @ theta))) + RIDGE * theta + noise

    return np.asarray(optimize.fsolve(gradient, np.zeros(D), xtol=1e-12))


def worst(noise: np.ndarray) -> float:
    """Return what any record of norm 1 could lose at this noise, by the ridge alone."""
    shift = 1 / (2 * SIGMA**2) + float(np.linalg.norm(noise)) / SIGMA**2
    return -math.log(1 - 0.25 / RIDGE) + shift


if __name__ == "__main__":
    x, y, noise = made_up()
    theta = minimiser(x, y, noise)
    found = objective_losses(x, y, theta, ridge=RIDGE, sigma=SIGMA)
    print("released theta:", theta.round(3), "losses of the records:", found)
    shown = found.reveal()
    print(
        f"ex-post epsilon: median {np.median(shown):.4f}, largest {shown.max():.3f}, "
        f"worst case at this outcome {worst(noise):.3f}"
    )
    if len(sys.argv) > 1:
        from adaptive_dp import plot

        axes = plot.per_instance(shown, worst=worst(noise), title="Ex-post losses")
        axes.figure.savefig(sys.argv[1], dpi=150)
