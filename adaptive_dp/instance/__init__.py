"""Per-instance privacy: the loss of one record against the very data set it is in.

``(epsilon, delta)`` here hold for one pair, a data set Z and the same with or without one record
z, in both directions (Wang 2019, Def. 2.2). They are functions of Z, so they are private
themselves, and no guarantee for other data sets; the worst of them over all Z and z is one.

Records of real data
    `per_instance` for a plan; `posterior_epsilons`, `output_mus`, `output_epsilons`,
    `objective_losses`, `clipped_sum_mus` for learners. Each returns a `Secret`.
The worst case, from bounds of a data set
    `RidgeBounds`, `worst_epsilon`, `worst_profile`, `largest_gamma`, `worst_output_mu`.
Composition
    `composed_mus`, `gaussian_epsilons`, `renyi_epsilons`.
Plot
    `adaptive_dp.reports.plot.per_instance`.
"""

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
    "RidgeBounds",
    "clipped_sum_mus",
    "composed_mus",
    "gaussian_epsilons",
    "largest_gamma",
    "objective_losses",
    "output_epsilons",
    "output_mus",
    "per_instance",
    "posterior_epsilons",
    "renyi_epsilons",
    "worst_epsilon",
    "worst_output_mu",
    "worst_profile",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
