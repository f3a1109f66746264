"""Empirical risk minimization: losses of linear models, and optimizers that prove their result.

Losses state the constants that proofs need. `minimize` picks an optimizer; each is a function. All
of them end with the same proof of suboptimality (`certify`), which depends on the point alone and
not on the search.
"""

from adaptive_dp.erm.adversarial import Adversarial
from adaptive_dp.erm.convexity import Witness, refute_convexity
from adaptive_dp.erm.loss import Constants, Loss, MarginLoss, margin_witness
from adaptive_dp.erm.losses import (
    Absolute,
    Extended,
    GeneralizedLinear,
    GeneralizedLinearCount,
    Hinge,
    Huber,
    HuberHinge,
    Logistic,
    Multinomial,
    Poisson,
    SmoothedHinge,
    Squared,
    Weighted,
    ZeroOne,
)
from adaptive_dp.erm.minimax import (
    Game,
    Near,
    Saddle,
    certify_saddle,
    check_game,
    dual_ascent,
    minimax,
    saddle_sensitivity,
    solve_saddle,
    weights,
)
from adaptive_dp.erm.network import Network
from adaptive_dp.erm.objective import Curved, Gapped, NotReached, Objective, Solution, certify
from adaptive_dp.erm.optimizers import (
    accelerated,
    averaged_descent,
    gradient_descent,
    lbfgs,
    minimize,
    newton,
    subgradient,
)
from adaptive_dp.erm.problem import L1, Mean, Problem, Ridge
from adaptive_dp.erm.sets import Ball, Box, Ellipsoid, Everywhere, Set, Simplex
from adaptive_dp.erm.stochastic import katyusha, svrg
from adaptive_dp.erm.tilted import Tilted

__all__ = [
    "L1",
    "Absolute",
    "Adversarial",
    "Ball",
    "Box",
    "Constants",
    "Curved",
    "Ellipsoid",
    "Everywhere",
    "Extended",
    "Game",
    "Gapped",
    "GeneralizedLinear",
    "GeneralizedLinearCount",
    "Hinge",
    "Huber",
    "HuberHinge",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Mean",
    "Multinomial",
    "Near",
    "Network",
    "NotReached",
    "Objective",
    "Poisson",
    "Problem",
    "Ridge",
    "Saddle",
    "Set",
    "Simplex",
    "SmoothedHinge",
    "Solution",
    "Squared",
    "Tilted",
    "Weighted",
    "Witness",
    "ZeroOne",
    "accelerated",
    "averaged_descent",
    "certify",
    "certify_saddle",
    "check_game",
    "dual_ascent",
    "gradient_descent",
    "katyusha",
    "lbfgs",
    "margin_witness",
    "minimax",
    "minimize",
    "newton",
    "refute_convexity",
    "saddle_sensitivity",
    "solve_saddle",
    "subgradient",
    "svrg",
    "weights",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
