"""Statistics without bounds, clusters and tests, each a subgraph of queries and mechanisms."""
