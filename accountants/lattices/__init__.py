"""Composition on a lattice of losses: where a contour integral does not converge."""
