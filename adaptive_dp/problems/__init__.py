"""What a learner minimizes: losses of linear models, with the constants that proofs need."""

from adaptive_dp.problems.absolute import Absolute
from adaptive_dp.problems.adversarial import Adversarial
from adaptive_dp.problems.convexity import Witness, refute_convexity
from adaptive_dp.problems.generalised import GeneralizedLinear, GeneralizedLinearCount
from adaptive_dp.problems.hinge import Hinge
from adaptive_dp.problems.huber import Huber
from adaptive_dp.problems.huber_hinge import HuberHinge
from adaptive_dp.problems.logistic import Logistic
from adaptive_dp.problems.loss import Constants, Loss
from adaptive_dp.problems.multinomial import Multinomial
from adaptive_dp.problems.network import Network
from adaptive_dp.problems.poisson import Poisson
from adaptive_dp.problems.problem import Problem
from adaptive_dp.problems.regulariser import L1, Ridge
from adaptive_dp.problems.smoothed_hinge import SmoothedHinge
from adaptive_dp.problems.squared import Squared
from adaptive_dp.problems.tilted import Tilted
from adaptive_dp.problems.zero_one import ZeroOne

__all__ = [
    "L1",
    "Absolute",
    "Adversarial",
    "Constants",
    "GeneralizedLinear",
    "GeneralizedLinearCount",
    "Hinge",
    "Huber",
    "HuberHinge",
    "Logistic",
    "Loss",
    "Multinomial",
    "Network",
    "Poisson",
    "Problem",
    "Ridge",
    "SmoothedHinge",
    "Squared",
    "Tilted",
    "Witness",
    "ZeroOne",
    "refute_convexity",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
