"""What an aggregator's answers lose on the votes at hand: from the aggregator to `accountants`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accountants import AccountingError
from accountants.losses.votes import Votes
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, meant
from adaptive_dp.graph.loop import Loop, State
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.traversal import upward
from adaptive_dp.pate.ballots import BallotsDomain


@runtime_checkable
class Bounded(Protocol):
    """An aggregator of which more is proven than its worst case."""

    def votes(self, teachers: int, classes: int) -> Votes:
        """Return the loss of one question, as a function of its counts.

        Of what `release` draws, rounding included, where one teacher changes.
        """
        ...


def votes_of(mechanism: Mechanism, domain: BallotsDomain) -> Votes:
    """Return what is proven of an aggregator's answers on given counts.

    Raises
    ------
    DeclarationError
        If nothing is, or its parameters are free, or too large.
    """
    name = type(mechanism).__name__
    require(
        not mechanism.free(),
        f"{name} has free parameters, and what it loses on the votes at hand depends on them; "
        "calibrate the labels first, and pass the aggregator with its numbers",
    )
    if not isinstance(mechanism, Bounded):
        raise DeclarationError(
            f"nothing is proven of what {name} loses on the votes at hand; use an aggregator such "
            "as dp.pate.GNMax"
        )
    try:
        return mechanism.votes(domain.teachers, max(2, domain.classes))
    except AccountingError as error:
        raise DeclarationError(f"{name}: {error}") from None


def table(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return counts of shape (questions, classes), with a class that nobody votes for beside one.

    What is proven is proven for two classes or more; that of one class is a function of it.
    """
    return np.pad(counts, ((0, 0), (0, 1))) if counts.shape[1] == 1 else counts


def fixed_questions(handle: Handle) -> bool:
    """Whether what a handle reads depends on no released value.

    Else the questions are those of one course of events among many, and what they lose on the data
    bounds nothing: with other answers others would have been asked.
    """
    # of a loop's own table it is the table that is read, in the same way in each round
    read = upward([meant(handle)], lambda h: [meant(each) for each in h.inputs])
    return not any(isinstance(each.operation, Release | Loop | State) for each in read)


def order_known(value: Any) -> bool:
    """Whether a value is an order at which divergences are taken: above 1, at most 10^6."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 1e6
