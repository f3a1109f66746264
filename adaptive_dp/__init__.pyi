"""What is offered, and where it lies: type checkers and the package itself read it here."""

from accountants.errors import BudgetError as BudgetError
from accountants.errors import InapplicableError as InapplicableError
from adaptive_dp import audit as audit
from adaptive_dp import pate as pate
from adaptive_dp import plot as plot
from adaptive_dp import risk as risk
from adaptive_dp import testing as testing
from adaptive_dp.graph.certificate import Certificate as Certificate
from adaptive_dp.graph.document import load as load
from adaptive_dp.graph.errors import CalibrationError as CalibrationError
from adaptive_dp.graph.errors import DataError as DataError
from adaptive_dp.graph.errors import DeclarationError as DeclarationError
from adaptive_dp.graph.errors import DocumentError as DocumentError
from adaptive_dp.graph.errors import LeakError as LeakError
from adaptive_dp.graph.errors import LedgerError as LedgerError
from adaptive_dp.graph.errors import NeighborError as NeighborError
from adaptive_dp.graph.errors import PlanError as PlanError
from adaptive_dp.graph.errors import PluginError as PluginError
from adaptive_dp.graph.errors import RunError as RunError
from adaptive_dp.graph.free import Free as Free
from adaptive_dp.graph.group import group as group
from adaptive_dp.graph.handles import Handle as Handle
from adaptive_dp.graph.handles import Private as Private
from adaptive_dp.graph.handles import Public as Public
from adaptive_dp.graph.handles import Released as Released
from adaptive_dp.graph.handles import parameter as parameter
from adaptive_dp.graph.handles import post as post
from adaptive_dp.graph.handles import public as public
from adaptive_dp.graph.interrupt import Interrupted as Interrupted
from adaptive_dp.graph.mechanism import Mechanism as Mechanism
from adaptive_dp.graph.mechanism import budget_parameter as budget_parameter
from adaptive_dp.graph.mechanism import noise_parameter as noise_parameter
from adaptive_dp.graph.operation import Operation as Operation
from adaptive_dp.graph.operation import Query as Query
from adaptive_dp.graph.pipeline import Pipeline as Pipeline
from adaptive_dp.graph.repeat import repeat as repeat
from adaptive_dp.graph.run import Result as Result
from adaptive_dp.graph.secret import Secret as Secret
from adaptive_dp.graph.select import select as select
from adaptive_dp.graph.stability import Choice as Choice
from adaptive_dp.graph.stability import Stability as Stability
from adaptive_dp.graph.verify import Verdict as Verdict
from adaptive_dp.instance.perturbed_coefficients import (
    PerturbedCoefficients as PerturbedCoefficients,
)
from adaptive_dp.instance.posterior_sample import PosteriorSample as PosteriorSample
from adaptive_dp.instance.truncated_posterior import TruncatedPosterior as TruncatedPosterior
from adaptive_dp.primitives import DiscreteGaussian as DiscreteGaussian
from adaptive_dp.primitives import DiscreteLaplace as DiscreteLaplace
from adaptive_dp.primitives import DistanceToInstability as DistanceToInstability
from adaptive_dp.primitives import Exponential as Exponential
from adaptive_dp.primitives import Gaussian as Gaussian
from adaptive_dp.primitives import GaussianSparseVector as GaussianSparseVector
from adaptive_dp.primitives import Laplace as Laplace
from adaptive_dp.primitives import LowerBound as LowerBound
from adaptive_dp.primitives import NoisyMax as NoisyMax
from adaptive_dp.primitives import Norm as Norm
from adaptive_dp.primitives import PermuteAndFlip as PermuteAndFlip
from adaptive_dp.primitives import ProposeTestRelease as ProposeTestRelease
from adaptive_dp.primitives import QuantileExponential as QuantileExponential
from adaptive_dp.primitives import ReleasedSensitivity as ReleasedSensitivity
from adaptive_dp.primitives import SmoothCauchy as SmoothCauchy
from adaptive_dp.primitives import SmoothLaplace as SmoothLaplace
from adaptive_dp.primitives import SmoothLaplaceLogNormal as SmoothLaplaceLogNormal
from adaptive_dp.primitives import SmoothStudent as SmoothStudent
from adaptive_dp.primitives import SparseVector as SparseVector
from adaptive_dp.primitives import UpperBound as UpperBound
from adaptive_dp.primitives.follow_the_leader import FollowTheLeader as FollowTheLeader
from adaptive_dp.primitives.objective_perturbation import PerturbedObjective as PerturbedObjective
from adaptive_dp.primitives.objective_perturbation import (
    PurePerturbedObjective as PurePerturbedObjective,
)
from adaptive_dp.primitives.suitable import suitable as suitable
from adaptive_dp.problems import Absolute as Absolute
from adaptive_dp.problems import Hinge as Hinge
from adaptive_dp.problems import Huber as Huber
from adaptive_dp.problems import HuberHinge as HuberHinge
from adaptive_dp.problems import Logistic as Logistic
from adaptive_dp.problems import Loss as Loss
from adaptive_dp.problems import Multinomial as Multinomial
from adaptive_dp.problems import Network as Network
from adaptive_dp.problems import Poisson as Poisson
from adaptive_dp.problems import SmoothedHinge as SmoothedHinge
from adaptive_dp.problems import Squared as Squared
from adaptive_dp.queries import Column as Column
from adaptive_dp.queries import Table as Table
from adaptive_dp.queries import Vectors as Vectors
from adaptive_dp.queries import dataset as dataset
from adaptive_dp.reports import markdown as markdown
from adaptive_dp.reports import report as report
from adaptive_dp.rows import Files as Files
from adaptive_dp.session import Budget as Budget
from adaptive_dp.session import Forecast as Forecast
from adaptive_dp.session import Part as Part
from adaptive_dp.session import Session as Session
from adaptive_dp.session.certificate import verify as verify
from adaptive_dp.solvers import DPFTRL as DPFTRL
from adaptive_dp.solvers import OPS as OPS
from adaptive_dp.solvers import SSP as SSP
from adaptive_dp.solvers import AdaOPS as AdaOPS
from adaptive_dp.solvers import AdaptiveOutputPerturbation as AdaptiveOutputPerturbation
from adaptive_dp.solvers import AdaSSP as AdaSSP
from adaptive_dp.solvers import BoostedSSP as BoostedSSP
from adaptive_dp.solvers import Clipping as Clipping
from adaptive_dp.solvers import FiniteLearner as FiniteLearner
from adaptive_dp.solvers import NoisyGradientDescent as NoisyGradientDescent
from adaptive_dp.solvers import NoisySGD as NoisySGD
from adaptive_dp.solvers import ObjectivePerturbation as ObjectivePerturbation
from adaptive_dp.solvers import OutputPerturbation as OutputPerturbation
from adaptive_dp.solvers import PhasedERM as PhasedERM
from adaptive_dp.solvers import coefficient_grid as coefficient_grid
from adaptive_dp.solvers import network_scores as network_scores
from adaptive_dp.solvers import predict as predict

__version__: str
__all__: list[str]
