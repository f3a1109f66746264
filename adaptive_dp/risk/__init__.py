"""Accuracy of private learning: proved bounds of the excess risk, as functions.

The risk is the sum over records, ``Upper.mean`` divides by n. A `Setting` has what is known of the
problem before the data are read; every function takes one.

Which method, how many records, what epsilon
    `plan`, `smallest_n`, `smallest_epsilon`, `privacy_cost`, `constant`.
The methods' bounds (`Upper`)
    `output_perturbation` and its smooth and regularised kin, `exponential_mechanism`,
    `objective_perturbation`, `noisy_descent`, `smooth_descent`, `strong_descent`, `linear_descent`,
    `tilted_output_perturbation`; `adversarial` makes the setting of a robust problem, `quadratic`
    that of the hard instance.
The population's risk
    ``population=True`` where stability gives it, else `population`.
Lower bounds for every method (`Lower`), and rates known up to constants (`Rate`)
    `lower_bound`; `known_rates`; `table` has all kinds side by side, `markdown_table` writes it.
"""

from adaptive_dp.risk.descent import (
    PotentialTrace,
    descent_gap,
    linear_descent,
    noisy_descent,
    potential_trace,
    printed_rank_bound,
    smooth_descent,
    strong_descent,
)
from adaptive_dp.risk.lower import known_rates, lower_bound
from adaptive_dp.risk.output_perturbation import (
    adversarial,
    output_perturbation,
    population,
    quadratic,
    regularized_output_perturbation,
    sensitivity,
    smooth_output_perturbation,
    smooth_regularized_output_perturbation,
    stability,
    tilted_output_perturbation,
    tilted_sensitivity,
    uniform_gap,
)
from adaptive_dp.risk.perturbation import (
    exponential_mechanism,
    objective_noise,
    objective_perturbation,
)
from adaptive_dp.risk.planning import (
    PrivacyCost,
    constant,
    plan,
    privacy_cost,
    smallest_epsilon,
    smallest_n,
)
from adaptive_dp.risk.setting import Lower, Noise, Rate, Setting, Upper, printed_sigma, unit_noise
from adaptive_dp.risk.tables import Row, markdown_table, table, tables

__all__ = [
    "Lower",
    "Noise",
    "PotentialTrace",
    "PrivacyCost",
    "Rate",
    "Row",
    "Setting",
    "Upper",
    "adversarial",
    "constant",
    "descent_gap",
    "exponential_mechanism",
    "known_rates",
    "linear_descent",
    "lower_bound",
    "markdown_table",
    "noisy_descent",
    "objective_noise",
    "objective_perturbation",
    "output_perturbation",
    "plan",
    "population",
    "potential_trace",
    "printed_rank_bound",
    "printed_sigma",
    "privacy_cost",
    "quadratic",
    "regularized_output_perturbation",
    "sensitivity",
    "smallest_epsilon",
    "smallest_n",
    "smooth_descent",
    "smooth_output_perturbation",
    "smooth_regularized_output_perturbation",
    "stability",
    "strong_descent",
    "table",
    "tables",
    "tilted_output_perturbation",
    "tilted_sensitivity",
    "uniform_gap",
    "unit_noise",
]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
