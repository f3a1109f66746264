"""Per-instance privacy: the loss of one record against the very data set it is in.

``(epsilon, delta)`` here hold for one pair, a data set Z and the same with or without one record
z, in both directions (Wang 2019, Def. 2.2). They are functions of Z, so they are private
themselves, and no guarantee for other data sets; the worst of them over all Z and z is one.
"""
