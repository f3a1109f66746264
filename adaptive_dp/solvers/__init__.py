"""Learners: each a subgraph of queries and primitives."""

from adaptive_dp.solvers.adaops import AdaOPS
from adaptive_dp.solvers.adaptive_output import AdaptiveOutputPerturbation
from adaptive_dp.solvers.adassp import AdaSSP
from adaptive_dp.solvers.boosted_ssp import BoostedSSP
from adaptive_dp.solvers.descent import Clipping
from adaptive_dp.solvers.finite_learner import FiniteLearner, coefficient_grid
from adaptive_dp.solvers.follow_the_leader import DPFTRL
from adaptive_dp.solvers.network import network_scores
from adaptive_dp.solvers.noisy_gradient_descent import NoisyGradientDescent
from adaptive_dp.solvers.noisy_sgd import NoisySGD
from adaptive_dp.solvers.objective_perturbation import ObjectivePerturbation
from adaptive_dp.solvers.ops import OPS
from adaptive_dp.solvers.output_perturbation import OutputPerturbation
from adaptive_dp.solvers.phased import PhasedERM
from adaptive_dp.solvers.prediction import predict
from adaptive_dp.solvers.ssp import SSP

__all__ = [
    "DPFTRL",
    "OPS",
    "SSP",
    "AdaOPS",
    "AdaSSP",
    "AdaptiveOutputPerturbation",
    "BoostedSSP",
    "Clipping",
    "FiniteLearner",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PhasedERM",
    "coefficient_grid",
    "network_scores",
    "predict",
]
