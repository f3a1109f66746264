"""Which classes of accountants, losses and terms are this package's, and where each is defined.

The tables are the one place that knows which module defines a class. A class belongs to the
package if it is the very object that a table names: the name of its module proves nothing, since
any module may call itself ``accountants.extra``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

ACCOUNTANTS: Mapping[str, str] = {
    "advanced": "accountants.advanced:Advanced",
    "basic": "accountants.basic:Basic",
    "concentrated": "accountants.concentrated:Concentrated",
    "data-dependent renyi": "accountants.data_dependent:DataDependentRenyi",
    "distribution": "accountants.distribution:Distribution",
    "gaussian": "accountants.gaussian:GaussianDP",
    "renyi": "accountants.renyi:Renyi",
}
"""Accountants by the names under which certificates report their bounds."""

LOSSES: Mapping[str, str] = {
    "Allocated": "accountants.losses.allocated:Allocated",
    "Approximate": "accountants.losses.approximate:Approximate",
    "BoundedRange": "accountants.losses.bounded_range:BoundedRange",
    "Composite": "accountants.losses.composite:Composite",
    "Curved": "accountants.losses.curved:Curved",
    "DataDependent": "accountants.data_dependent:DataDependent",
    "DiscreteGaussian": "accountants.losses.discrete_gaussian:DiscreteGaussian",
    "DiscreteLaplace": "accountants.losses.discrete_laplace:DiscreteLaplace",
    "Envelope": "accountants.losses.envelope:Envelope",
    "ExponentialNoisyMax": "accountants.losses.noisy_max:ExponentialNoisyMax",
    "FixedSize": "accountants.losses.fixed_size:FixedSize",
    "Gaussian": "accountants.losses.gaussian:Gaussian",
    "GaussianBound": "accountants.losses.given_gaussian:GaussianBound",
    "GaussianSparseVector": "accountants.losses.sparse_vector_gaussian:GaussianSparseVector",
    "GumbelNoisyMax": "accountants.losses.noisy_max:GumbelNoisyMax",
    "Laplace": "accountants.losses.laplace:Laplace",
    "LaplaceNoisyMax": "accountants.losses.noisy_max:LaplaceNoisyMax",
    "Mixed": "accountants.losses.joint_convexity:Mixed",
    "ObjectivePerturbation": "accountants.losses.objective_perturbation:ObjectivePerturbation",
    "PermuteAndFlip": "accountants.losses.permute_and_flip:PermuteAndFlip",
    "PoissonSelection": "accountants.losses.private_selection:PoissonSelection",
    "PrivacyProfile": "accountants.losses.given_profile:PrivacyProfile",
    "PrivateSelection": "accountants.losses.private_selection:PrivateSelection",
    "Pure": "accountants.losses.pure:Pure",
    "PureBound": "accountants.losses.derived_pair:PureBound",
    "RandomizedResponse": "accountants.losses.randomized_response:RandomizedResponse",
    "RenyiCurve": "accountants.losses.given_curve:RenyiCurve",
    "ReplacedSample": "accountants.losses.replaced_sample:ReplacedSample",
    "Sampled": "accountants.losses.sampled:Sampled",
    "Shuffled": "accountants.losses.shuffled:Shuffled",
    "SmoothSanitization": "accountants.losses.smooth_gaussian:SmoothSanitization",
    "SparseVector": "accountants.losses.sparse_vector:SparseVector",
    "Tested": "accountants.losses.tested:Tested",
    "TradeOff": "accountants.losses.given_profile:TradeOff",
    "ZeroConcentrated": "accountants.losses.given_curve:ZeroConcentrated",
}
"""Losses by the names of their classes."""

TERMS: Mapping[str, str] = {
    "Allocated": "accountants.terms:Allocated",
    "Grouped": "accountants.terms:Grouped",
    "Parallel": "accountants.terms:Parallel",
    "Repeated": "accountants.terms:Repeated",
    "ReplacedSample": "accountants.terms:ReplacedSample",
    "Sampled": "accountants.terms:Sampled",
    "Selected": "accountants.terms:Selected",
    "Sequential": "accountants.terms:Sequential",
    "Spend": "accountants.terms:Spend",
    "Subset": "accountants.terms:Subset",
}
"""Terms by the names of their classes."""


def locate(place: str) -> Any:
    """Return the object at ``module:qualified.name``, importing the module if need be.

    Raises
    ------
    ImportError, AttributeError
        If there is no such module or object.
    """
    module, _, name = place.partition(":")
    found = sys.modules.get(module) or import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def place_of(thing: Any) -> str:
    """Return ``module:qualified.name`` of a class or a function, as it describes itself."""
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"


def names(thing: Any, places: frozenset[str]) -> bool:
    """Return whether a class or a function is the very object that stands at one of the places."""
    place = place_of(thing)
    return place in places and locate(place) is thing


PLACES = frozenset([*ACCOUNTANTS.values(), *LOSSES.values(), *TERMS.values()])


def is_own(thing: Any) -> bool:
    """Return whether a class is an accountant, a loss or a term of this package.

    Examples
    --------
    >>> from accountants import Basic
    >>> class Cheap(Basic): ...
    >>> is_own(Basic), is_own(Cheap)
    (True, False)
    """
    return names(thing, PLACES)
