"""Audits: lower bounds, from runs, on what a mechanism really leaks.

A certificate bounds the loss from above by proof; an audit bounds it from below by experiment,
with a confidence. Where the lower bound exceeds what is claimed, the claim is refuted, and the
witness says how. Where it does not, nothing is proven.

`mechanism` audits one mechanism on pairs of values; `callable` any Python function of a data set,
such as one that calls another library; `distinguish` anything that can be run on two neighbouring
data sets (`Neighbors`); `pipeline` a whole plan, on pairs of data sets from a
`gallery`; `one_run` a long training by a single run with canaries, `planted` a whole plan by a run
with canaries among its rows (`corners`, `mislabeled`), `training` a training function, such as of
another library (`gradient_canaries`, `gradient_scores`). They return an `Audit`. `static` looks
through a plan without running it.
"""

from adaptive_dp.audit.canaries import corners, mislabeled, one_run
from adaptive_dp.audit.claims import Claim, Claimed, claim
from adaptive_dp.audit.distinguishing import distinguish
from adaptive_dp.audit.findings import Finding, StaticAudit, static
from adaptive_dp.audit.functions import callable
from adaptive_dp.audit.mechanisms import mechanism
from adaptive_dp.audit.neighbors import LogRatio, Neighbors, Outcomes, Sampler
from adaptive_dp.audit.networks import (
    change_scores,
    gradient_canaries,
    gradient_scores,
    training,
    unshuffled,
)
from adaptive_dp.audit.pairs import DataPair, gallery, search
from adaptive_dp.audit.pipelines import pipeline
from adaptive_dp.audit.planted_canaries import Score, Seen, planted
from adaptive_dp.audit.result import Audit, ProfilePoint, TradeoffPoint, Witness

__all__ = [
    "Audit",
    "Claim",
    "Claimed",
    "DataPair",
    "Finding",
    "LogRatio",
    "Neighbors",
    "Outcomes",
    "ProfilePoint",
    "Sampler",
    "Score",
    "Seen",
    "StaticAudit",
    "TradeoffPoint",
    "Witness",
    "callable",
    "change_scores",
    "claim",
    "corners",
    "distinguish",
    "gallery",
    "gradient_canaries",
    "gradient_scores",
    "mechanism",
    "mislabeled",
    "one_run",
    "pipeline",
    "planted",
    "search",
    "static",
    "training",
    "unshuffled",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
