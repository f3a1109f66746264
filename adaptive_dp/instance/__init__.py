"""Per-instance privacy: the loss of one record against the very data set it is in.

``(epsilon, delta)`` here hold for one pair, a data set Z and the same with or without one record
z, in both directions (Wang 2019, Def. 2.2). They are functions of Z, so they are private
themselves, and no guarantee for other data sets; the worst of them over all Z and z is one.

Records of real data
    `per_instance` for a plan; `posterior_epsilons`, `output_mus`, `output_epsilons`,
    `minimizer_mus`, `objective_losses`, `clipped_sum_mus` for learners. Each returns a `Secret`.
    `stability_identity`, how a minimizer moves when a record is added.
The worst case, from bounds of a data set
    `RidgeBounds`, `worst_epsilon`, `worst_profile`, `largest_gamma`, `worst_output_mu`,
    `minimizer_sensitivity`.
From per-instance to differential privacy
    `InstanceMechanism` and `InstanceGaussian`, the contracts of mechanisms that follow released
    bounds; `PerturbedMinimizer`, `SensitivityBound`, `PerturbedValue`, `with_gaussian_noise`.
Composition
    `composed_mus`, `gaussian_epsilons`, `renyi_epsilons`.
Plot
    `adaptive_dp.reports.plot.per_instance`.
"""

from adaptive_dp.instance.following import (
    InstanceGaussian,
    InstanceMechanism,
    PerturbedValue,
    SensitivityBound,
    with_gaussian_noise,
)
from adaptive_dp.instance.minimizers import (
    PerturbedMinimizer,
    StabilityIdentity,
    minimizer_mus,
    minimizer_sensitivity,
    stability_identity,
)
from adaptive_dp.instance.plan import composed_mus, gaussian_epsilons, per_instance, renyi_epsilons
from adaptive_dp.instance.records import (
    RidgeBounds,
    clipped_sum_mus,
    largest_gamma,
    objective_losses,
    output_epsilons,
    output_mus,
    posterior_epsilons,
    worst_epsilon,
    worst_output_mu,
    worst_profile,
)

__all__ = [
    "InstanceGaussian",
    "InstanceMechanism",
    "PerturbedMinimizer",
    "PerturbedValue",
    "RidgeBounds",
    "SensitivityBound",
    "StabilityIdentity",
    "clipped_sum_mus",
    "composed_mus",
    "gaussian_epsilons",
    "largest_gamma",
    "minimizer_mus",
    "minimizer_sensitivity",
    "objective_losses",
    "output_epsilons",
    "output_mus",
    "per_instance",
    "posterior_epsilons",
    "renyi_epsilons",
    "stability_identity",
    "with_gaussian_noise",
    "worst_epsilon",
    "worst_output_mu",
    "worst_profile",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
