"""The mathematics of composition: losses, terms, worlds and accountants.

Complete alone: it knows no data, no randomness and no graph. What the commonest questions do not
need is imported when it is first asked for.

>>> from accountants import Gaussian, Repeated, Spend, certify, tightest
>>> answers = certify(Repeated(Spend(Gaussian(mu=1 / 10)), 100), delta=1e-5)
>>> round(tightest(answers).bounds.upper, 6)
4.377178
"""

from accountants.later import attach as _attach

__getattr__, __dir__ = _attach(__name__, __file__)
__all__ = __dir__()
