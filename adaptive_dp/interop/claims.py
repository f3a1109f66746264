"""The claims of other libraries as releases of a plan, so that they are certified as any other.

`Traced` is a query whose sensitivity is 1 by convention: it stands for what another library
computed. `Claimed` is the mechanism that released it: its loss is the claim, taken as it is. Such a
plan can be certified, drawn and verified, and cannot be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

import attrs
from attrs import frozen

from accountants import (
    AccountingError,
    Composite,
    PrivacyLoss,
    Repeated,
    Sequential,
    Spend,
    Term,
    from_json,
    losses,
    terms,
    to_json,
)
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change, Neighbors, Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Table
from adaptive_dp.queries.table import dataset


@frozen
class Traced(Query):
    """What another library computed in a traced analysis.

    Its sensitivity is 1 by convention: `Claimed` states the loss of one unit's change, and not of a
    distance.

    Parameters
    ----------
    call
        The call, in words.
    rests_on
        What the claim needs, as a sentence.
    """

    kind: ClassVar[str] = "traced"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = Table

    call: str
    rests_on: str = ""

    def label(self) -> str:
        """Return the call."""
        return self.call

    def assumes(self) -> str:
        """Return what the claim needs."""
        return self.rests_on

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return 1, for one unit's change of any kind."""
        return 1.0

    def step(self, domain: Any) -> float:
        """Return 1."""
        return 1.0

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Raise, before any data are read: it was computed elsewhere."""
        raise RunError("a traced call was computed by another library, and cannot be run here")

    def run(self, inputs: Sequence[Any], stream: Stream) -> NoReturn:
        """Raise: it was computed elsewhere."""
        raise RunError("a traced call was computed by another library, and cannot be run here")


def certificate(
    loss: PrivacyLoss,
    call: str,
    *,
    assumes: Sequence[str],
    delta: float,
    neighbors: Neighbors = "add_remove",
) -> Certificate:
    """Return a certificate of what another library ran, by the tightest accountant of its loss.

    Parameters
    ----------
    loss
        Of one unit's change in all of it.
    call
        What was run, in words.
    assumes
        What the claim needs and nothing here has checked, as sentences without a full stop.
    delta
        At which epsilon is certified.
    neighbors
        The relation that the loss is of.
    """
    examples = dataset("examples", columns={}, neighbors=neighbors)
    query = PrivateQuery[Any](Traced(call, ". ".join(assumes)), (examples,))
    return Pipeline(model=query.release(claimed(loss))).with_delta(delta).certify()


def loss_of_term(term: Term) -> PrivacyLoss:
    """Return the loss of a term that one unit pays all of.

    Raises
    ------
    DeclarationError
        If it has parts of which a unit is in one alone.

    Examples
    --------
    >>> from accountants import Gaussian, Repeated, Sampled, Spend
    >>> steps = Repeated(Sampled(Spend(Gaussian(1.0)), 0.1), 100)
    >>> type(loss_of_term(steps)).__name__
    'Composite'
    """
    if isinstance(term, Spend):
        return term.loss
    if isinstance(term, Repeated):
        return Composite([(loss_of_term(term.part), term.times)])
    if isinstance(term, Sequential):
        return Composite([(loss_of_term(part), 1) for part in term.parts])
    if isinstance(term, terms.Sampled):
        return losses.Sampled(Composite([(loss_of_term(term.part), 1)]), term.rate)
    raise DeclarationError(
        f"a run of another library is read as steps on Poisson samples, and this one has "
        f"{type(term).__name__}: certify it by accountants.certify(from_dp_event(...), delta)"
    )


def claimed(loss: PrivacyLoss) -> Claimed:
    """Return a release at a loss that another library claims.

    Examples
    --------
    >>> import accountants
    >>> claimed(accountants.Pure(0.5)).loss(1.0)
    Pure(epsilon=0.5)
    """
    return Claimed(claim=to_json(Spend(loss)))


def _check_json(instance: Any, attribute: Any, value: Any) -> None:
    _loss_of(value)


@lru_cache(maxsize=256)
def _loss_of(text: str) -> PrivacyLoss:
    """Return the loss of a claim's JSON `str`."""
    try:
        term = from_json(text)
    except (AccountingError, TypeError) as error:
        raise DeclarationError(f"Claimed.claim is no term of a loss: {error}") from None
    if not isinstance(term, Spend):
        raise DeclarationError(
            f"Claimed.claim must be one loss, a Spend, got {type(term).__name__}"
        )
    return term.loss


class Claimed(Mechanism):
    """A release that another library made, at the loss that it claims; `claimed` returns one.

    Privacy: the claim, which is not checked here.

    Parameters
    ----------
    claim
        A JSON `str`: the claimed privacy loss of one unit's change, as ``accountants.to_json``
        writes a `Spend` of it.

    Notes
    -----
    Noise: drawn by the other library.

    References
    ----------
    The other library's documentation; the certificate's assumptions say what each claim needs.
    """

    theorem: ClassVar[str] = "a claim of another library (not checked here)"
    sampler: ClassVar[str] = "the other library's"
    rounds_outward: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    norm: ClassVar[float] = 1.0

    claim: str = attrs.field(validator=_check_json)

    def release(self, value: Any, stream: Stream) -> NoReturn:
        """Raise: it was released elsewhere."""
        raise RunError("a traced release was made by another library, and cannot be run here")

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the claim; refuse a distance of more than one unit's change."""
        if not distance <= 1:  # nor NaN
            raise DeclarationError(
                f"a claim is of one unit's change, a distance of 1 at most, got {distance!r}"
            )
        return _loss_of(self.claim)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the claim: nothing is rounded here."""
        return self.loss(distance)
