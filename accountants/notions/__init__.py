"""What a guarantee is, and the proven conversions between the notions.

One file a notion: its definition, how a loss's own functional or a conversion gives it,
and how it becomes an (epsilon, delta).
"""
