"""Pictures: of what is promised, what it is spent on, what it buys, and what an audit found.

Needs matplotlib: ``pip install "adaptive-dp[plot]"``. Each function draws into ``ax``, or into a
new figure that no global state knows, and returns the axes; `save` writes the figure into a file.
Curves differ in their dashes too, so that a print in black and white can be read.

What is promised
    `privacy_profile` (delta against epsilon) and `tradeoff` (errors of membership tests) of plans,
    certificates, losses and terms, by one or several accountants.
What it is spent on
    `shares` of a certificate's releases; `budget`: a session, step by step.
What it buys
    `utility` against epsilon, of your own measurements or of those that `simulated` makes.
What is lost in truth
    `per_instance`: revealed losses of each record; `audit`: the lower bound beside the claim.
"""

from accountants.plot import save
from adaptive_dp.plot.audit import audit
from adaptive_dp.plot.budget import budget
from adaptive_dp.plot.per_instance import per_instance
from adaptive_dp.plot.privacy_profile import privacy_profile
from adaptive_dp.plot.shares import shares
from adaptive_dp.plot.simulated import simulated
from adaptive_dp.plot.tradeoff import tradeoff
from adaptive_dp.plot.utility import utility

__all__ = [
    "audit",
    "budget",
    "per_instance",
    "privacy_profile",
    "save",
    "shares",
    "simulated",
    "tradeoff",
    "utility",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
