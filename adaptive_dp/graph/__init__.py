"""The graph: handles, nodes, and what can be done with a whole plan."""
