"""What a document may name of the library, and where each of it is defined.

Plans, certificates and ledgers name functions (``"adassp.ridge/1"``), operations (by `kind`) and
mechanisms (by class name). They never say which module defines them: the tables below do, and
nothing else does, so that code may move without a change of any stored fingerprint. What a name
stands for is imported when it is first asked for; a test compares the tables with the classes
and functions that the packages define.

A name never changes its meaning. The number after the slash of a function's name is its version:
where what it returns changes, it gets a new number, and the documents that name the old one are
refused.

A class or a function is the library's own if it is the very object that a table names (`is_own`).
The name of its module proves nothing: any module may call itself ``adaptive_dp.extra``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accountants import registry as accounting
from accountants.registry import locate, names, place_of

FUNCTIONS: Mapping[str, str] = {
    "adaops.inverse_temperature/1": "adaptive_dp.solvers.adaops:allowed_gamma",
    "adaops.ridge/1": "adaptive_dp.solvers.adaops:least_ridge",
    "adassp.ridge/1": "adaptive_dp.solvers.adassp:ridge",
    "boosted_ssp.clip_norm/1": "adaptive_dp.solvers.boosted_steps:clip_now",
    "boosted_ssp.coefficients/1": "adaptive_dp.solvers.boosted_steps:coefficients",
    "boosted_ssp.gradient_step/1": "adaptive_dp.solvers.boosted_steps:stepped",
    "boosted_ssp.initial_state/1": "adaptive_dp.solvers.boosted_steps:standing",
    "boosted_ssp.scaling/1": "adaptive_dp.solvers.boosted_steps:scaling",
    "boosted_ssp.shrinkage/1": "adaptive_dp.solvers.boosted_steps:shrunk",
    "demo.ratio/1": "adaptive_dp.demo.plan:ratio",
    "descent.adaptive_clipping_step/1": "adaptive_dp.solvers.descent:moved_and_clipped",
    "descent.clip_norm/1": "adaptive_dp.solvers.descent:norm_of",
    "descent.expected_rows/1": "adaptive_dp.solvers.descent:at_least",
    "descent.gradient_step/1": "adaptive_dp.solvers.descent:moved",
    "descent.initial_state/1": "adaptive_dp.solvers.descent:standing",
    "descent.initial_state_at/1": "adaptive_dp.solvers.descent:standing_at",
    "descent.mean_of_last/1": "adaptive_dp.solvers.descent:mean_of_last",
    "descent.parameters/1": "adaptive_dp.solvers.descent:parameters",
    "dpftrl.mean/1": "adaptive_dp.solvers.follow_the_leader:averaged",
    "dpftrl.step_size/1": "adaptive_dp.solvers.follow_the_leader:divided",
    "finite_learner.coefficients/1": "adaptive_dp.solvers.finite_learner:coefficients",
    "linear.coefficients/1": "adaptive_dp.solvers.linear:coefficients",
    "linear.predict/1": "adaptive_dp.solvers.prediction:predict",
    "mean.ratio/1": "adaptive_dp.queries.average:ratio",
    "network.initial_parameters/1": "adaptive_dp.solvers.network:first",
    "network.model/1": "adaptive_dp.solvers.network:described",
    "network.scores/1": "adaptive_dp.solvers.network:network_scores",
    "objective_perturbation.concatenate/1": "adaptive_dp.solvers.objective_perturbation:together",
    "output_perturbation.divide/1": "adaptive_dp.solvers.output_perturbation:over",
    "output_perturbation.projection/1": "adaptive_dp.solvers.output_perturbation:within",
    "output_perturbation.ridge/1": "adaptive_dp.solvers.output_perturbation:balanced",
    "pate.check_points/1": "adaptive_dp.pate.functions:checked_points",
    "pate.check_probabilities/1": "adaptive_dp.pate.functions:checked_probabilities",
    "pate.known_answers/1": "adaptive_dp.pate.functions:known",
    "pate.random_positions/1": "adaptive_dp.pate.functions:at_random",
    "pate.record_answers/1": "adaptive_dp.pate.functions:noted",
    "pate.select_points/1": "adaptive_dp.pate.functions:picked",
    "pate.spent_epsilon/1": "adaptive_dp.pate.functions:spent_epsilon",
    "pate.spent_upper_bound/1": "adaptive_dp.pate.functions:spent_upper",
    "pate.unasked/1": "adaptive_dp.pate.functions:unasked",
    "phased.gradient_step/1": "adaptive_dp.solvers.phased:descended",
    "phased.initial_state/1": "adaptive_dp.solvers.phased:begun",
    "phased.parameters/1": "adaptive_dp.solvers.phased:current",
    "phased.step_size/1": "adaptive_dp.solvers.phased:width",
    "phased.weighted_mean/1": "adaptive_dp.solvers.phased:ended",
    "regression.to_data_units/1": "adaptive_dp.solvers.regression:back",
    "select.scored/1": "adaptive_dp.graph.scored:scored",
    "ssp.coefficients/1": "adaptive_dp.solvers.ssp:solved",
}
"""Functions of released values that the library's plans call, as ``subject.what/version``."""

OPERATIONS: Mapping[str, str] = {
    "ballots": "adaptive_dp.pate.ballots:BallotsSource",
    "bound": "adaptive_dp.queries.source:BoundContributions",
    "candidate_losses": "adaptive_dp.queries.candidate_losses:CandidateLosses",
    "clip": "adaptive_dp.queries.columns:Clip",
    "clipped_sum": "adaptive_dp.queries.row_gradients:ClippedSum",
    "coefficient_norm": "adaptive_dp.queries.moments:CoefficientNorm",
    "column": "adaptive_dp.queries.columns:ColumnOf",
    "constrained_coefficients": (
        "adaptive_dp.queries.constrained_coefficients:ConstrainedCoefficients"
    ),
    "count": "adaptive_dp.queries.count:Count",
    "counts": "adaptive_dp.queries.counts:Counts",
    "cross_of_moments": "adaptive_dp.queries.of_moments:CrossOfMoments",
    "dataset": "adaptive_dp.queries.source:Source",
    "disagreement": "adaptive_dp.pate.active:Disagreement",
    "eigenvalue_of_moments": "adaptive_dp.queries.of_moments:EigenvalueOfMoments",
    "every_example": "adaptive_dp.queries.every_example:EveryExample",
    "exact_moments": "adaptive_dp.queries.moments:ExactMoments",
    "examples": "adaptive_dp.queries.examples:ExamplesOf",
    "filter": "adaptive_dp.queries.filter:Filter",
    "gradient_stream": "adaptive_dp.queries.gradient_stream:GradientStream",
    "gram": "adaptive_dp.queries.gram:Gram",
    "gram_of_moments": "adaptive_dp.queries.of_moments:GramOfMoments",
    "group": "adaptive_dp.graph.group:Group",
    "histogram": "adaptive_dp.queries.histogram:Histogram",
    "instance": "adaptive_dp.queries.own_instance:Instance",
    "least_eigenvalue": "adaptive_dp.queries.moments:LeastEigenvalue",
    "mean": "adaptive_dp.queries.mean:Mean",
    "minimizer": "adaptive_dp.queries.minimizer:Minimizer",
    "mode": "adaptive_dp.queries.mode:Mode",
    "moments": "adaptive_dp.queries.moments:MomentsOf",
    "network_gradients": "adaptive_dp.queries.network_gradients:NetworkGradients",
    "norm_clip": "adaptive_dp.queries.vectors:NormClip",
    "parameter": "adaptive_dp.graph.steps:Parameter",
    "part": "adaptive_dp.queries.partition:Part",
    "partition": "adaptive_dp.queries.partition:Partition",
    "phase": "adaptive_dp.queries.phases:Phase",
    "phases": "adaptive_dp.queries.phases:Phases",
    "points": "adaptive_dp.pate.points:Points",
    "post": "adaptive_dp.graph.steps:Post",
    "public": "adaptive_dp.graph.steps:Constant",
    "quantile": "adaptive_dp.queries.order:Quantile",
    "release": "adaptive_dp.graph.steps:Release",
    "repeat": "adaptive_dp.graph.repeat:Repeat",
    "round input": "adaptive_dp.graph.loop:RoundInput",
    "row_gradients": "adaptive_dp.queries.row_gradients:RowGradients",
    "sample": "adaptive_dp.queries.sample:Sample",
    "sample_examples": "adaptive_dp.queries.examples:SampleExamples",
    "select": "adaptive_dp.graph.select:Select",
    "short_gradients": "adaptive_dp.queries.row_gradients:ShortGradients",
    "smallest_eigenvalue": "adaptive_dp.queries.gram:SmallestEigenvalue",
    "spent_votes": "adaptive_dp.pate.spent:Spent",
    "squared_norms": "adaptive_dp.queries.row_gradients:SquaredNorms",
    "stacked_moments": "adaptive_dp.queries.stacked_moments:StackedMoments",
    "state": "adaptive_dp.graph.loop:State",
    "student": "adaptive_dp.pate.student:Learn",
    "sum": "adaptive_dp.queries.sum:Sum",
    "teachers": "adaptive_dp.pate.teachers:Teach",
    "times": "adaptive_dp.queries.vectors:Times",
    "trimmed_mean": "adaptive_dp.queries.trimmed_mean:TrimmedMean",
    "variance": "adaptive_dp.queries.variance:Variance",
    "vector_sum": "adaptive_dp.queries.sum:VectorSum",
    "vectors": "adaptive_dp.queries.vectors:VectorsOf",
    "vote_counts": "adaptive_dp.pate.ballots:Counted",
    "votes": "adaptive_dp.pate.ballots:Ask",
}
"""Operations by `kind`. A document never makes a ``state`` or a ``round input``:
a loop does."""

MECHANISMS: Mapping[str, str] = {
    "ConfidentGNMax": "adaptive_dp.pate.confident:ConfidentGNMax",
    "DiscreteGaussian": "adaptive_dp.primitives.discrete_gaussian:DiscreteGaussian",
    "DiscreteLaplace": "adaptive_dp.primitives.discrete_laplace:DiscreteLaplace",
    "DistanceToInstability": "adaptive_dp.primitives.distance_to_instability:DistanceToInstability",
    "Exponential": "adaptive_dp.primitives.exponential:Exponential",
    "FollowTheLeader": "adaptive_dp.primitives.follow_the_leader:FollowTheLeader",
    "GNMax": "adaptive_dp.pate.gnmax:GNMax",
    "Gaussian": "adaptive_dp.primitives.gaussian:Gaussian",
    "GaussianSparseVector": "adaptive_dp.primitives.sparse_vector_gaussian:GaussianSparseVector",
    "InteractiveGNMax": "adaptive_dp.pate.interactive:InteractiveGNMax",
    "LNMax": "adaptive_dp.pate.lnmax:LNMax",
    "Laplace": "adaptive_dp.primitives.laplace:Laplace",
    "LowerBound": "adaptive_dp.primitives.gaussian_bound:LowerBound",
    "NoisyMax": "adaptive_dp.primitives.noisy_max:NoisyMax",
    "Norm": "adaptive_dp.primitives.norm:Norm",
    "OpenDP": "adaptive_dp.interop.opendp:OpenDP",
    "PermuteAndFlip": "adaptive_dp.primitives.permute_and_flip:PermuteAndFlip",
    "PerturbedCoefficients": "adaptive_dp.instance.perturbed_coefficients:PerturbedCoefficients",
    "PerturbedObjective": "adaptive_dp.primitives.objective_perturbation:PerturbedObjective",
    "Plurality": "adaptive_dp.pate.plurality:Plurality",
    "PosteriorSample": "adaptive_dp.instance.posterior_sample:PosteriorSample",
    "ProposeTestRelease": "adaptive_dp.primitives.propose_test_release:ProposeTestRelease",
    "PurePerturbedObjective": (
        "adaptive_dp.primitives.objective_perturbation:PurePerturbedObjective"
    ),
    "QuantileExponential": "adaptive_dp.primitives.quantile:QuantileExponential",
    "ReleasedSensitivity": "adaptive_dp.primitives.released_sensitivity:ReleasedSensitivity",
    "Sanitized": "adaptive_dp.pate.sanitized:Sanitized",
    "SmoothCauchy": "adaptive_dp.primitives.cauchy:SmoothCauchy",
    "SmoothLaplace": "adaptive_dp.primitives.smooth_laplace:SmoothLaplace",
    "SmoothLaplaceLogNormal": "adaptive_dp.primitives.laplace_lognormal:SmoothLaplaceLogNormal",
    "SmoothStudent": "adaptive_dp.primitives.student:SmoothStudent",
    "SparseVector": "adaptive_dp.primitives.sparse_vector:SparseVector",
    "StableVotes": "adaptive_dp.pate.stable_votes:StableVotes",
    "TestedGNMax": "adaptive_dp.pate.tested:TestedGNMax",
    "TruncatedPosterior": "adaptive_dp.instance.truncated_posterior:TruncatedPosterior",
    "UpperBound": "adaptive_dp.primitives.gaussian_bound:UpperBound",
}
"""Mechanisms by class name."""

_FUNCTION_NAMES: Mapping[str, str] = {place: name for name, place in FUNCTIONS.items()}
_PLACES = frozenset([*FUNCTIONS.values(), *OPERATIONS.values(), *MECHANISMS.values()])


def is_own(thing: Any) -> bool:
    """Return whether a class or a function is the library's: the very object that a table names.

    Parameters
    ----------
    thing
        An operation's, a mechanism's, an accountant's, a loss's or a term's class, or a function
        that plans call.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> class Louder(dp.Laplace): ...
    >>> Louder.__module__, Louder.__qualname__ = dp.Laplace.__module__, dp.Laplace.__qualname__
    >>> is_own(dp.Laplace), is_own(Louder)
    (True, False)
    """
    return names(thing, _PLACES) or accounting.is_own(thing)


def function_name(function: Any) -> str | None:
    """Return the public name of one of the library's functions; None of any other.

    Examples
    --------
    >>> from adaptive_dp.solvers.adassp import ridge
    >>> function_name(ridge), function_name(max)
    ('adassp.ridge/1', None)
    """
    name = _FUNCTION_NAMES.get(place_of(function))
    return name if name is not None and locate(FUNCTIONS[name]) is function else None


def name_of(cls: Any, name: str) -> str:
    """Return how documents name a class: by ``name`` if it is the library's, else by its place.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> name_of(dp.Laplace, "Laplace"), name_of(int, "int")
    ('Laplace', 'builtins:int')
    """
    return name if is_own(cls) else place_of(cls)


def function(name: str) -> Callable[..., Any]:
    """Return the library's function of a public name, which must be one of `FUNCTIONS`."""
    found: Callable[..., Any] = locate(FUNCTIONS[name])
    return found


def operation(kind: str) -> Any:
    """Return the library's operation class of a kind; None if there is none."""
    return _find(OPERATIONS, kind)


def mechanism(name: str) -> Any:
    """Return the library's mechanism class of a name; None if there is none."""
    return _find(MECHANISMS, name)


def _find(table: Mapping[str, str], name: str) -> Any:
    place = table.get(name)
    return None if place is None else locate(place)
