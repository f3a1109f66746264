"""How costs combine: a small immutable algebra.

Nouns. A *term* says what one unit can touch. Its leaves are losses.

=================================  =====================================================
``Spend(loss, name)``              one mechanism, by the name of its node
``Sequential(parts)``              all of them touch the unit
``Parallel(choices, name)``        one of the choices touches it, which one is unknown
``Repeated(part, times)``          the part, ``times`` times
``Sampled(part, rate)``            the part, on a Poisson sample of the units
``Grouped(part, size)``            the part, for a group of ``size`` units
=================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import field, frozen

from accountants.errors import DomainError, probability, whole
from accountants.loss import PrivacyLoss


class Term:
    """Base of the terms."""

    __slots__ = ()


def _term(part: Term) -> Term:
    if not isinstance(part, Term):
        raise DomainError(f"a term is made of terms, got {part!r}; wrap a loss in Spend")
    return part


def _terms(parts: Iterable[Term]) -> tuple[Term, ...]:
    if not isinstance(parts, Iterable):
        raise DomainError(f"a term's parts are an iterable of terms, got {parts!r}")
    return tuple(_term(part) for part in parts)


@frozen
class Spend(Term):
    """One mechanism's loss; ``name`` is the node that pays it."""

    loss: PrivacyLoss = field()
    name: str = ""

    @loss.validator
    def _is_loss(self, _: object, loss: PrivacyLoss) -> None:
        if not isinstance(loss, PrivacyLoss):
            raise DomainError(f"Spend needs a PrivacyLoss, got {loss!r}")


@frozen
class Sequential(Term):
    """Every part touches the unit."""

    parts: tuple[Term, ...] = field(converter=_terms)


def _labels(value: Iterable[str | Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, Iterable):
        raise DomainError(f"Parallel.labels must be texts or several for each, got {value!r}")
    return tuple(_label(label) for label in value)


def _label(value: str | Iterable[str]) -> tuple[str, ...]:
    parts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(part, str) for part in parts):
        raise DomainError(f"a label of Parallel must be a text or several, got {value!r}")
    return parts


@frozen
class Parallel(Term):
    """Exactly one of the choices touches the unit; the worst one is what certifies.

    Parameters
    ----------
    choices
        At least one.
    labels
        A name for each choice, such as ``"region = A"``, or several; empty for no names.
    """

    choices: tuple[Term, ...] = field(converter=_terms)
    labels: tuple[tuple[str, ...], ...] = field(default=(), converter=_labels)

    def __attrs_post_init__(self) -> None:
        if not self.choices or len(self.labels) not in (0, len(self.choices)):
            raise DomainError(
                f"Parallel needs at least one choice and a label for each or none, got "
                f"{len(self.choices)} choices and {len(self.labels)} labels"
            )


def _times(value: int) -> int:
    return whole("Repeated.times", value, least=0)


@frozen
class Repeated(Term):
    """The part, ``times`` times, each with fresh noise; it may read the earlier outcomes."""

    part: Term = field(converter=_term)
    times: int = field(converter=_times)


def _rate(value: float) -> float:
    return probability("Sampled.rate", value)


@frozen
class Sampled(Term):
    """The part, on a sample that each unit enters with probability ``rate``, independently."""

    part: Term = field(converter=_term)
    rate: float = field(converter=_rate)


def _size(value: int) -> int:
    return whole("Grouped.size", value)


@frozen
class Grouped(Term):
    """The part, for neighbours that differ in ``size`` units."""

    part: Term = field(converter=_term)
    size: int = field(converter=_size)


def pruned(term: Term, only: Callable[[str], bool]) -> Term:
    """Return the term without the spends whose names ``only`` refuses."""
    match term:
        case Spend(name=name):
            return term if only(name) else Sequential(())
        case Sequential(parts=parts):
            return Sequential([pruned(part, only) for part in parts])
        case Parallel(choices=choices, labels=labels):
            return Parallel([pruned(choice, only) for choice in choices], labels)
        case Repeated(part=part, times=times):
            return Repeated(pruned(part, only), times)
        case Sampled(part=part, rate=rate):
            return Sampled(pruned(part, only), rate)
        case Grouped(part=part, size=size):
            return Grouped(pruned(part, only), size)
    raise TypeError(f"unknown term {type(term).__name__}")
