"""Statistics without bounds, clusters and tests, each a subgraph of queries and mechanisms."""

from adaptive_dp.statistics.clustering import KMeans, KMedians, labels

__all__ = ["KMeans", "KMedians", "labels"]
