"""Differentially private analyses as graphs: declared, certified, run and audited.

Declare
    `dataset` and what hangs on it (`Table`, `Column`, `Vectors`): transforms, and queries such as
    ``people["income"].sum()``. A query is private until its ``.release(mechanism)``, with
    a mechanism (`Laplace` and all the others listed in the reference) or a `Mechanism` of your own,
    whose noise may be `Free`. `post`, `parameter`, `public`, `repeat`, `select` and `group` build
    on what is released; `AdaSSP` is a learner for ``people.solve(...)``.
Certify, run, look
    `Pipeline` is what hangs above the outputs that are wanted: ``calibrate``, ``certify``, ``run``,
    ``simulate``, ``diff``, ``svg``, ``to_json``. `report` and `markdown` write a `Certificate` for
    people; `verify` recomputes one; `load` reads a plan document.
Audit
    `audit.mechanism` runs a mechanism on neighbouring values, and bounds what it leaks from below.
Errors
    What was given, what was expected, how to fix it. All are a `PlanError`, but for the two of
    accountants: `BudgetError` (it does not fit) and `InapplicableError` (no accountant has it).

>>> import adaptive_dp as dp
>>> people = dp.dataset("people", columns={"income": (0, 200_000)}, unit="id", rows_per_unit=5)
>>> count = people.count().release(dp.Laplace(scale=dp.Free("b")))
>>> total = people["income"].sum().release(dp.Laplace(scale=dp.Free("b", weight=200_000)))
>>> plan = dp.Pipeline(count=count, total=total).calibrate(epsilon=1.0)
>>> plan.certify().epsilon <= 1.0
True
"""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from accountants.errors import BudgetError, InapplicableError
from adaptive_dp import audit, pate
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import (
    CalibrationError,
    DataError,
    DeclarationError,
    DocumentError,
    LeakError,
    LedgerError,
    NeighborError,
    PlanError,
    RunError,
)
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import Handle, Private, Public, Released, parameter, post, public
from adaptive_dp.graph.interrupt import Interrupted
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.graph.operation import Operation, Query
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.repeat import repeat
from adaptive_dp.graph.run import Result
from adaptive_dp.graph.secret import Secret
from adaptive_dp.graph.select import select
from adaptive_dp.graph.stability import Choice, Stability
from adaptive_dp.graph.verify import Verdict
from adaptive_dp.instance.perturbed_coefficients import PerturbedCoefficients
from adaptive_dp.instance.posterior_sample import PosteriorSample
from adaptive_dp.instance.truncated_posterior import TruncatedPosterior
from adaptive_dp.primitives import (
    DiscreteGaussian,
    DiscreteLaplace,
    DistanceToInstability,
    Exponential,
    Gaussian,
    GaussianSparseVector,
    Laplace,
    LowerBound,
    NoisyMax,
    Norm,
    PermuteAndFlip,
    ProposeTestRelease,
    QuantileExponential,
    ReleasedSensitivity,
    SmoothCauchy,
    SmoothLaplace,
    SmoothLaplaceLogNormal,
    SmoothStudent,
    SparseVector,
    UpperBound,
)
from adaptive_dp.primitives.follow_the_leader import FollowTheLeader
from adaptive_dp.primitives.objective_perturbation import (
    PerturbedObjective,
    PurePerturbedObjective,
)
from adaptive_dp.primitives.suitable import suitable
from adaptive_dp.problems import (
    Absolute,
    Hinge,
    Huber,
    HuberHinge,
    Logistic,
    Loss,
    Multinomial,
    Network,
    Poisson,
    SmoothedHinge,
    Squared,
)
from adaptive_dp.queries import Column, Table, Vectors, dataset
from adaptive_dp.report import markdown, report
from adaptive_dp.rows import Files
from adaptive_dp.session import Budget, Forecast, Part, Session
from adaptive_dp.session.certificate import verify
from adaptive_dp.solvers import (
    DPFTRL,
    OPS,
    SSP,
    AdaOPS,
    AdaptiveOutputPerturbation,
    AdaSSP,
    BoostedSSP,
    Clipping,
    FiniteLearner,
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PhasedERM,
    coefficient_grid,
    network_scores,
    predict,
)

try:
    __version__ = _version("adaptive-dp")
except _NotInstalled:  # read from its folder
    __version__ = "unknown"

__all__ = [
    "DPFTRL",
    "OPS",
    "SSP",
    "Absolute",
    "AdaOPS",
    "AdaSSP",
    "AdaptiveOutputPerturbation",
    "BoostedSSP",
    "Budget",
    "BudgetError",
    "CalibrationError",
    "Certificate",
    "Choice",
    "Clipping",
    "Column",
    "DataError",
    "DeclarationError",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistanceToInstability",
    "DocumentError",
    "Exponential",
    "Files",
    "FiniteLearner",
    "FollowTheLeader",
    "Forecast",
    "Free",
    "Gaussian",
    "GaussianSparseVector",
    "Handle",
    "Hinge",
    "Huber",
    "HuberHinge",
    "InapplicableError",
    "Interrupted",
    "Laplace",
    "LeakError",
    "LedgerError",
    "Logistic",
    "Loss",
    "LowerBound",
    "Mechanism",
    "Multinomial",
    "NeighborError",
    "Network",
    "NoisyGradientDescent",
    "NoisyMax",
    "NoisySGD",
    "Norm",
    "ObjectivePerturbation",
    "Operation",
    "OutputPerturbation",
    "Part",
    "PermuteAndFlip",
    "PerturbedCoefficients",
    "PerturbedObjective",
    "PhasedERM",
    "Pipeline",
    "PlanError",
    "Poisson",
    "PosteriorSample",
    "Private",
    "ProposeTestRelease",
    "Public",
    "PurePerturbedObjective",
    "QuantileExponential",
    "Query",
    "Released",
    "ReleasedSensitivity",
    "Result",
    "RunError",
    "Secret",
    "Session",
    "SmoothCauchy",
    "SmoothLaplace",
    "SmoothLaplaceLogNormal",
    "SmoothStudent",
    "SmoothedHinge",
    "SparseVector",
    "Squared",
    "Stability",
    "Table",
    "TruncatedPosterior",
    "UpperBound",
    "Vectors",
    "Verdict",
    "audit",
    "budget_parameter",
    "coefficient_grid",
    "dataset",
    "group",
    "load",
    "markdown",
    "network_scores",
    "noise_parameter",
    "parameter",
    "pate",
    "post",
    "predict",
    "public",
    "repeat",
    "report",
    "select",
    "suitable",
    "verify",
]


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
