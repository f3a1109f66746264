"""Statistics without bounds, clusters and tests, each a subgraph of queries and mechanisms.

For ``table.solve(...)``: `Mean`, `Covariance` and `PCA` of columns without declared bounds,
`AffineInvariantMean`, `KMeans`, `KMedians`, `TukeyMedian`, `TukeyEM`. Tests with p-values and
intervals are functions of a table: `proportion`, `mann_whitney`, `independence`, `coefficients` and
others; `any_test` makes a private test of any public one.
"""

from adaptive_dp.statistics.auction import auction
from adaptive_dp.statistics.batches import TukeyEM
from adaptive_dp.statistics.clustering import KMeans, KMedians, labels
from adaptive_dp.statistics.depth import AffineInvariantMean, TukeyMedian
from adaptive_dp.statistics.differences import anova, mean_difference
from adaptive_dp.statistics.documents import topics
from adaptive_dp.statistics.fairness import group_errors
from adaptive_dp.statistics.means import PCA, Covariance, Mean
from adaptive_dp.statistics.proportions import Tulap, proportion
from adaptive_dp.statistics.ranks import kruskal_wallis, mann_whitney, signed_rank
from adaptive_dp.statistics.regression import coefficients
from adaptive_dp.statistics.subsamples import any_test
from adaptive_dp.statistics.tables import goodness_of_fit, independence

__all__ = [
    "PCA",
    "AffineInvariantMean",
    "Covariance",
    "KMeans",
    "KMedians",
    "Mean",
    "TukeyEM",
    "TukeyMedian",
    "Tulap",
    "anova",
    "any_test",
    "auction",
    "coefficients",
    "goodness_of_fit",
    "group_errors",
    "independence",
    "kruskal_wallis",
    "labels",
    "mann_whitney",
    "mean_difference",
    "proportion",
    "signed_rank",
    "topics",
]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
