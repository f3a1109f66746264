"""Statistics without bounds, clusters and tests, each a subgraph of queries and mechanisms."""

from adaptive_dp.statistics.clustering import KMeans, KMedians, labels
from adaptive_dp.statistics.depth import TukeyMedian
from adaptive_dp.statistics.means import PCA, Covariance, Mean

__all__ = ["PCA", "Covariance", "KMeans", "KMedians", "Mean", "TukeyMedian", "labels"]
