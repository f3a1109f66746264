"""Learners: each builds a subgraph of queries, mechanisms and post-processing over a table.

``table.solve(learner, epsilon=..., delta=...)`` gives one a budget of its own; without a budget its
noise is free, and the plan's calibration solves it with the rest. `adaptive_dp.learning.base` has
the protocol that all of them keep.
"""

from adaptive_dp.learning.adaops import OPS, AdaOPS, AdaptiveOutputPerturbation
from adaptive_dp.learning.additive import AdditiveModel
from adaptive_dp.learning.auto import Auto
from adaptive_dp.learning.base import Standardised
from adaptive_dp.learning.boosted_ssp import BoostedSSP
from adaptive_dp.learning.checks import clipped, generalization
from adaptive_dp.learning.descent import Clipping
from adaptive_dp.learning.finite_learner import ExponentialSampling, FiniteLearner, coefficient_grid
from adaptive_dp.learning.follow_the_leader import DPFTRL
from adaptive_dp.learning.margin_boosting import MarginBoosting
from adaptive_dp.learning.networks import network_scores, predict
from adaptive_dp.learning.noisy_gradient_descent import NoisyGradientDescent
from adaptive_dp.learning.noisy_sgd import NoisySGD
from adaptive_dp.learning.objective_perturbation import ObjectivePerturbation
from adaptive_dp.learning.output_perturbation import OutputPerturbation
from adaptive_dp.learning.phased import PhasedERM
from adaptive_dp.learning.ssp import SSP, AdaSSP
from adaptive_dp.learning.tuning import tune

__all__ = [
    "DPFTRL",
    "OPS",
    "SSP",
    "AdaOPS",
    "AdaSSP",
    "AdaptiveOutputPerturbation",
    "AdditiveModel",
    "Auto",
    "BoostedSSP",
    "Clipping",
    "ExponentialSampling",
    "FiniteLearner",
    "MarginBoosting",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PhasedERM",
    "Standardised",
    "clipped",
    "coefficient_grid",
    "generalization",
    "network_scores",
    "predict",
    "tune",
]
