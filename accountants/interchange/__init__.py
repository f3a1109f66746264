"""Terms to and from the ``DpEvent`` of Google's dp-accounting, so that either can check the other.

An event fixes a mechanism, not who its neighbours are; there an accountant is told. Here the
relation is told to the conversion, and the term that results holds for it:

=================  ==============================  ==========================================
``neighbors``      dp-accounting                   a unit
=================  ==============================  ==========================================
``"add_remove"``   ``ADD_OR_REMOVE_ONE``           is present or absent
``"zero_out"``     ``REPLACE_SPECIAL``             is exchanged for a record that adds nothing
``"replace_one"``  ``REPLACE_ONE``                 is exchanged for any other
=================  ==============================  ==========================================

A multiplier is the noise's scale for records of norm 1. Under ``replace_one`` a record's norm
counts twice, since what it added may turn into its opposite: so dp-accounting's PLD accountant
has it. Its Renyi accountant charges a Gaussian, Laplace or fixed-size sampled event the same under
each relation: there a multiplier must be of the norm of a change.

==================================  ==================================================  ========
event                               term                                                relation
==================================  ==================================================  ========
NoOp, NonPrivate                    nothing; a loss with failure 1                      any
Gaussian, Laplace, DiscreteLaplace  the loss of that name                               any
RandomizedResponse                  ``Pure`` (2 buckets), ``RandomizedResponse``        replace
ZCDp with xi = 0                    ``ZeroConcentrated``                                any
Composed, SelfComposed              ``Sequential``, ``Repeated``                        any
PoissonSampled                      ``Sampled``, under replace_one ``ReplacedSample``   any
SampledWithoutReplacement           ``Subset``                                          replace
MixtureOfGaussians, of one shift    ``Sampled`` Gaussian                                not it
SingleEpochTreeAggregation          Gaussians, one a level                              zero out
RepeatAndSelect                     ``PrivateSelection``, ``PoissonSelection``          any
==================================  ==================================================  ========

Numbers are rounded outward, so a term sent there and back is the same to a few units in the
last place, and never cheaper. What has no equal on the other side is refused by name.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from accountants.errors import DomainError
from accountants.interchange.events import read_event
from accountants.interchange.terms import written_term
from accountants.terms import Term

Neighbors = Literal["add_remove", "zero_out", "replace_one"]


def from_dp_event(event: Any, *, neighbors: Neighbors = "add_remove") -> Term:
    """Return the term of an event, whose losses are exactly the event's but for rounding.

    Parameters
    ----------
    event
        A ``dp_accounting.DpEvent``; that package need not be imported for it.
    neighbors
        The relation that the term shall hold for (see the module's docstring).

    Raises
    ------
    InapplicableError
        Where an event, which the message names, has no equal term under this relation.
    DomainError
        Where the event's own numbers make no sense.

    Examples
    --------
    >>> import dp_accounting
    >>> event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0))
    >>> from_dp_event(dp_accounting.SelfComposedDpEvent(event, 1000))
    Repeated(part=Sampled(part=Spend(loss=Gaussian(mu=0.5), name=''), rate=0.01), times=1000)
    """
    _known(neighbors)
    return read_event(event, neighbors)


def to_dp_event(term: Term, *, neighbors: Neighbors = "add_remove") -> Any:
    """Return the ``DpEvent`` of a term, exactly the same losses but for rounding.

    Parameters
    ----------
    term
        Without parallel choices: an event has one unit's losses, not the worst of several.
    neighbors
        The relation that the term's losses hold for, and that the accountant which receives
        the event must be made with.

    Raises
    ------
    InapplicableError
        Where a loss, which the message names, has no equal event under this relation.
    ImportError
        Where dp-accounting is not installed.

    Examples
    --------
    >>> from accountants import Gaussian, Repeated, Spend
    >>> to_dp_event(Repeated(Spend(Gaussian(mu=0.5)), 10))
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), count=10)
    """
    _known(neighbors)
    return written_term(term, neighbors)


def _known(neighbors: str) -> None:
    if neighbors not in get_args(Neighbors):
        raise DomainError(f"neighbors must be one of {get_args(Neighbors)}, got {neighbors!r}")
