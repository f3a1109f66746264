"""Minimizers of convex functions that say how near to the minimum they came.

`minimize` picks a method; each method is a function in the file of its name. All of them end with
the same proof (`certify`), which looks at the point alone and not at how it was found.
"""

from adaptive_dp.optimizers.accelerated import accelerated
from adaptive_dp.optimizers.certificate import certify
from adaptive_dp.optimizers.gradient_descent import averaged_descent, gradient_descent
from adaptive_dp.optimizers.katyusha import katyusha
from adaptive_dp.optimizers.lbfgs import lbfgs
from adaptive_dp.optimizers.minimax import certify_saddle, minimax
from adaptive_dp.optimizers.minimize import minimize
from adaptive_dp.optimizers.newton import newton
from adaptive_dp.optimizers.objective import Curved, Gapped, NotReached, Objective, Solution
from adaptive_dp.optimizers.saddle import Near, Saddle, weights
from adaptive_dp.optimizers.sets import Ball, Box, Ellipsoid, Everywhere, Set, Simplex
from adaptive_dp.optimizers.subgradient import subgradient
from adaptive_dp.optimizers.svrg import svrg

__all__ = [
    "Ball",
    "Box",
    "Curved",
    "Ellipsoid",
    "Everywhere",
    "Gapped",
    "Near",
    "NotReached",
    "Objective",
    "Saddle",
    "Set",
    "Simplex",
    "Solution",
    "accelerated",
    "averaged_descent",
    "certify",
    "certify_saddle",
    "gradient_descent",
    "katyusha",
    "lbfgs",
    "minimax",
    "minimize",
    "newton",
    "subgradient",
    "svrg",
    "weights",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
