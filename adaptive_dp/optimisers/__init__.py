"""Minimisers of convex functions that say how near to the minimum they came.

`minimise` picks a method; each method is a function in the file of its name. All of them end with
the same proof (`certify`), which looks at the point alone and not at how it was found.
"""

from adaptive_dp.optimisers.accelerated import accelerated
from adaptive_dp.optimisers.certificate import certify
from adaptive_dp.optimisers.gradient_descent import averaged_descent, gradient_descent
from adaptive_dp.optimisers.katyusha import katyusha
from adaptive_dp.optimisers.lbfgs import lbfgs
from adaptive_dp.optimisers.minimax import certify_saddle, minimax
from adaptive_dp.optimisers.minimise import minimise
from adaptive_dp.optimisers.newton import newton
from adaptive_dp.optimisers.objective import Curved, Gapped, NotReached, Objective, Solution
from adaptive_dp.optimisers.saddle import Near, Saddle, weights
from adaptive_dp.optimisers.sets import Ball, Box, Ellipsoid, Everywhere, Set, Simplex
from adaptive_dp.optimisers.subgradient import subgradient
from adaptive_dp.optimisers.svrg import svrg

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
    "minimise",
    "newton",
    "subgradient",
    "svrg",
    "weights",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
