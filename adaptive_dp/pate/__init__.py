"""Private aggregation of teacher ensembles: split, teach, vote, learn.

Teachers are trained on disjoint groups of people (`teachers`), vote on public rows, and an
aggregator (`GNMax` and the others) releases answers. A student learns from public rows and answers
alone.
"""

from adaptive_dp.pate.aggregators import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    PassedGNMax,
    Plurality,
    StableVotes,
    VoteCheck,
    confident_answers,
)
from adaptive_dp.pate.ballots import Ballots, BallotsSource, VoteCounts, ballots
from adaptive_dp.pate.ensembles import Teachers, teachers
from adaptive_dp.pate.questions import active, passive
from adaptive_dp.pate.sanitization import Sanitized, sanitized, sanitized_epsilon
from adaptive_dp.pate.saved_teachers import saved
from adaptive_dp.pate.students import Student, student
from adaptive_dp.pate.vote_divergence import Spending, TestedGNMax, private_epsilon, spent

__all__ = [
    "Ballots",
    "BallotsSource",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "PassedGNMax",
    "Plurality",
    "Sanitized",
    "Spending",
    "StableVotes",
    "Student",
    "Teachers",
    "TestedGNMax",
    "VoteCheck",
    "VoteCounts",
    "active",
    "ballots",
    "confident_answers",
    "passive",
    "private_epsilon",
    "sanitized",
    "sanitized_epsilon",
    "saved",
    "spent",
    "student",
    "teachers",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion: not the files that it lies in."""
    return __all__
