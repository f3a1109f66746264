"""The mathematics of composition: losses, terms, worlds and accountants.

Complete alone: it knows no data, no randomness and no graph. What the commonest questions do not
need is imported when it is first asked for.

>>> from accountants import Gaussian, Repeated, Spend, certify, tightest
>>> answers = certify(Repeated(Spend(Gaussian(mu=1 / 10)), 100), delta=1e-5)
>>> round(tightest(answers).bounds.upper, 6)
4.377178
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accountants.accountant import Accountant
from accountants.advanced import Advanced
from accountants.basic import Basic
from accountants.bounds import Bounds
from accountants.certification import ACCOUNTANTS, Answer, certify, measure, price, tightest
from accountants.concentrated import Concentrated
from accountants.distribution import Distribution
from accountants.errors import AccountingError, BudgetError, DomainError, InapplicableError
from accountants.gaussian import GaussianDP, central_limit_estimate
from accountants.loss import PrivacyLoss
from accountants.losses import Approximate, Composite, Envelope, Gaussian, Laplace, Pure
from accountants.pair import Pair
from accountants.renyi import Renyi
from accountants.terms import (
    Allocated,
    Grouped,
    Parallel,
    Repeated,
    ReplacedSample,
    Sampled,
    Selected,
    Sequential,
    Spend,
    Subset,
    Term,
)
from accountants.world import World, Worlds, worlds

if TYPE_CHECKING:
    from accountants.atoms import Atoms
    from accountants.calibration import Calibration, calibrate
    from accountants.data_dependent import DataDependent, DataDependentRenyi, Private
    from accountants.discretise import from_profile
    from accountants.document import from_json, to_json
    from accountants.filters import (
        ApproximateFilter,
        ConcentratedFilter,
        Filter,
        GaussianFilter,
        IndividualFilter,
        PureFilter,
        RenyiFilter,
        SomeOrderFilter,
        filter_for,
    )
    from accountants.interchange import from_dp_event, to_dp_event
    from accountants.losses import (
        BoundedRange,
        ConfidentVotes,
        DiscreteGaussian,
        DiscreteLaplace,
        ExponentialNoisyMax,
        GaussianBound,
        GaussianSparseVector,
        GaussianVotes,
        GumbelNoisyMax,
        LaplaceNoisyMax,
        LaplaceVotes,
        ObjectivePerturbation,
        PermuteAndFlip,
        PoissonSelection,
        PrivacyProfile,
        PrivateSelection,
        RandomizedResponse,
        RenyiCurve,
        Sanitisation,
        Shuffled,
        SmoothSanitisation,
        SparseVector,
        Tested,
        TradeOff,
        ZeroConcentrated,
        column_sensitivity,
        matrix_factorisation,
        noisy_argmax,
        participation_sensitivity,
        report_noisy_max,
        tree_aggregation,
        tree_nodes,
        votes_curve,
        with_total_variation,
    )
    from accountants.odometers import (
        ConcentratedOdometer,
        GaussianOdometer,
        PureOdometer,
        RenyiOdometer,
    )
    from accountants.reading import Guarantee
    from accountants.sharing import Division, scaled, share

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "AccountingError",
    "Advanced",
    "Allocated",
    "Answer",
    "Approximate",
    "ApproximateFilter",
    "Atoms",
    "Basic",
    "BoundedRange",
    "Bounds",
    "BudgetError",
    "Calibration",
    "Composite",
    "Concentrated",
    "ConcentratedFilter",
    "ConcentratedOdometer",
    "ConfidentVotes",
    "DataDependent",
    "DataDependentRenyi",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Distribution",
    "Division",
    "DomainError",
    "Envelope",
    "ExponentialNoisyMax",
    "Filter",
    "Gaussian",
    "GaussianBound",
    "GaussianDP",
    "GaussianFilter",
    "GaussianOdometer",
    "GaussianSparseVector",
    "GaussianVotes",
    "Grouped",
    "Guarantee",
    "GumbelNoisyMax",
    "InapplicableError",
    "IndividualFilter",
    "Laplace",
    "LaplaceNoisyMax",
    "LaplaceVotes",
    "ObjectivePerturbation",
    "Pair",
    "Parallel",
    "PermuteAndFlip",
    "PoissonSelection",
    "PrivacyLoss",
    "PrivacyProfile",
    "Private",
    "PrivateSelection",
    "Pure",
    "PureFilter",
    "PureOdometer",
    "RandomizedResponse",
    "Renyi",
    "RenyiCurve",
    "RenyiFilter",
    "RenyiOdometer",
    "Repeated",
    "ReplacedSample",
    "Sampled",
    "Sanitisation",
    "Selected",
    "Sequential",
    "Shuffled",
    "SmoothSanitisation",
    "SomeOrderFilter",
    "SparseVector",
    "Spend",
    "Subset",
    "Term",
    "Tested",
    "TradeOff",
    "World",
    "Worlds",
    "ZeroConcentrated",
    "calibrate",
    "central_limit_estimate",
    "certify",
    "column_sensitivity",
    "filter_for",
    "from_dp_event",
    "from_json",
    "from_profile",
    "matrix_factorisation",
    "measure",
    "noisy_argmax",
    "participation_sensitivity",
    "price",
    "report_noisy_max",
    "scaled",
    "share",
    "tightest",
    "to_dp_event",
    "to_json",
    "tree_aggregation",
    "tree_nodes",
    "votes_curve",
    "with_total_variation",
    "worlds",
]

_LATER = {
    "Atoms": "atoms",
    "Calibration": "calibration",
    "calibrate": "calibration",
    "DataDependent": "data_dependent",
    "DataDependentRenyi": "data_dependent",
    "Private": "data_dependent",
    "from_profile": "discretise",
    "from_json": "document",
    "to_json": "document",
    "ApproximateFilter": "filters",
    "ConcentratedFilter": "filters",
    "Filter": "filters",
    "GaussianFilter": "filters",
    "IndividualFilter": "filters",
    "PureFilter": "filters",
    "RenyiFilter": "filters",
    "SomeOrderFilter": "filters",
    "filter_for": "filters",
    "from_dp_event": "interchange",
    "to_dp_event": "interchange",
    "BoundedRange": "losses",
    "ConfidentVotes": "losses",
    "DiscreteGaussian": "losses",
    "DiscreteLaplace": "losses",
    "ExponentialNoisyMax": "losses",
    "GaussianBound": "losses",
    "GaussianSparseVector": "losses",
    "GaussianVotes": "losses",
    "GumbelNoisyMax": "losses",
    "LaplaceNoisyMax": "losses",
    "LaplaceVotes": "losses",
    "ObjectivePerturbation": "losses",
    "PermuteAndFlip": "losses",
    "PoissonSelection": "losses",
    "PrivacyProfile": "losses",
    "PrivateSelection": "losses",
    "RandomizedResponse": "losses",
    "RenyiCurve": "losses",
    "Sanitisation": "losses",
    "Shuffled": "losses",
    "SmoothSanitisation": "losses",
    "SparseVector": "losses",
    "Tested": "losses",
    "TradeOff": "losses",
    "ZeroConcentrated": "losses",
    "column_sensitivity": "losses",
    "matrix_factorisation": "losses",
    "noisy_argmax": "losses.noisy_argmax",
    "participation_sensitivity": "losses",
    "report_noisy_max": "losses",
    "tree_aggregation": "losses",
    "tree_nodes": "losses",
    "votes_curve": "losses",
    "with_total_variation": "losses",
    "ConcentratedOdometer": "odometers",
    "GaussianOdometer": "odometers",
    "PureOdometer": "odometers",
    "RenyiOdometer": "odometers",
    "Guarantee": "reading",
    "Division": "sharing",
    "scaled": "sharing",
    "share": "sharing",
}
"""What is imported when it is first asked for, by its file."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"accountants.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
