"""Terms: how the costs of mechanisms combine, as a small immutable algebra.

First *negative binomial stopping*, the random number of runs of a private selection:
``P(K = k)`` is proportional to ``(1 - gamma)^k (eta)_k / k!`` for k >= 1; for eta = 0 to
``(1 - gamma)^k / k``: geometric for eta = 1, logarithmic for eta = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from attrs import evolve, field, frozen

from accountants.errors import DomainError, checked, integer, positive, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import up


def stopping_shape(value: float) -> float:
    """Return eta as a float, or raise `DomainError` unless it is above -1 and at most 1e6."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not -1 < number <= 1e6:
        raise DomainError(
            "a selection's shape must be a number above -1 and at most 1e6 (1 is geometric, 0 "
            f"logarithmic), got {value!r}"
        )
    return number


def stopping_rate(value: float) -> float:
    """Return gamma as a float, or raise `DomainError` unless it is in [1e-100, 1)."""
    number = positive("a selection's stopping", value)
    if not 1e-100 <= number < 1:
        raise DomainError(
            f"a selection's stopping must be at least 1e-100 and below 1, got {value!r}; a "
            "single run costs its own loss"
        )
    return number


def expected_runs(eta: float, gamma: float) -> float:
    """Return ``E K = eta (1 - gamma) / (gamma (1 - gamma^eta))``, its limit at 0, rounded up."""
    log_gamma = math.log(gamma)
    x = eta * log_gamma
    ratio = x / math.expm1(x) if x else 1.0
    mean = (1 - gamma) / (gamma * -log_gamma) * ratio
    return max(1.0, up(mean, 64 + 4 * max(x, 0.0)))


# -----------------------------------------------------------------------------
# How costs combine: a small immutable algebra.
#
# A *term* says what one unit can touch. Its leaves are losses.
#
# =================================  =====================================================
# ``Spend(loss, name)``              one mechanism, by the name of its node
# ``Sequential(parts)``              all of them touch the unit
# ``Parallel(choices, name)``        one of the choices touches it, which one is unknown
# ``Repeated(part, times)``          the part, ``times`` times
# ``Sampled(part, rate)``            the part, on a Poisson sample of the units
# ``ReplacedSample(part, rate)``     the same, where neighbours exchange one unit's value
# ``Subset(part, size, of)``         the part, on a set of ``size`` units out of ``of``
# ``Allocated(part, steps, times)``  the part, ``steps`` times, each unit in ``times`` of them
# ``Grouped(part, size)``            the part, for a group of ``size`` units
# =================================  =====================================================
#
# Shuffled local reports are a leaf (`accountants.losses.shuffling`). Each sampling scheme is
# proven for one neighbour relation, which its term names, and reads the losses of its part as a
# loss for the relation that it names there: no loss knows what it was declared for.


class Term:
    """Base of the terms: an immutable expression of which losses can touch one unit, and how.

    An accountant says what a term costs (`accountants.measure`, `accountants.certify`); it holds no
    data and draws no noise.

    Examples
    --------
    >>> from accountants import Gaussian, Laplace, certify, tightest
    >>> training = Repeated(Sampled(Spend(Gaussian(mu=1.0)), rate=0.01), 1000)
    >>> term = Sequential([Spend(Laplace(epsilon=0.1)), training])
    >>> print(tightest(certify(term, delta=1e-6)).bounds)
    [2.16328, 2.16329]
    """

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
    """One mechanism, run once on the unit's data.

    Parameters
    ----------
    loss
        What the mechanism costs.
    name
        The node of a plan that it belongs to; only for reports and `pruned`.

    Examples
    --------
    >>> from accountants import Basic, Laplace, measure
    >>> measure(Spend(Laplace(epsilon=0.5)), Basic(), delta=0.0).bounds.upper
    0.5
    """

    loss: PrivacyLoss = field()
    name: str = field(default="")

    @loss.validator
    def _is_loss(self, _: object, loss: PrivacyLoss) -> None:
        if not isinstance(loss, PrivacyLoss):
            raise DomainError(f"Spend needs a PrivacyLoss, got {loss!r}")

    @name.validator
    def _is_text(self, _: object, name: str) -> None:
        if not isinstance(name, str):
            raise DomainError(f"Spend.name must be a str, got {name!r}")


@frozen
class Sequential(Term):
    """Several parts, each of which touches the unit: sequential composition.

    Parameters
    ----------
    parts
        Terms, in any order (costs do not depend on it); empty for nothing.

    Examples
    --------
    >>> from accountants import Basic, Laplace, measure
    >>> both = Sequential([Spend(Laplace(epsilon=0.5)), Spend(Laplace(epsilon=0.25))])
    >>> measure(both, Basic(), delta=0.0).bounds.upper
    0.75
    """

    parts: tuple[Term, ...] = field(converter=_terms)


def _labels(value: Iterable[str | Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, Iterable):
        raise DomainError(
            f"Parallel.labels must be str, or several of them for each choice, got {value!r}"
        )
    return tuple(_label(label) for label in value)


def _label(value: str | Iterable[str]) -> tuple[str, ...]:
    parts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(part, str) for part in parts):
        raise DomainError(f"a label of Parallel must be a str or several, got {value!r}")
    return parts


@frozen
class Parallel(Term):
    """Several choices of which each unit touches exactly one: parallel composition.

    An accountant certifies the maximum over the choices (`accountants.world`).

    Parameters
    ----------
    choices
        At least one.
    labels
        A name for each choice, such as ``"region = A"``, or several; empty for no names.

    Examples
    --------
    >>> from accountants import Basic, Laplace, measure
    >>> towns = Parallel(
    ...     [Spend(Laplace(epsilon=0.5)), Spend(Laplace(epsilon=0.25))], ["town = A", "town = B"]
    ... )
    >>> answer = measure(towns, Basic(), delta=0.0)
    >>> answer.bounds.upper, answer.world.labels
    (0.5, ('town = A',))
    """

    choices: tuple[Term, ...] = field(converter=_terms)
    labels: tuple[tuple[str, ...], ...] = field(default=(), converter=_labels)

    def __attrs_post_init__(self) -> None:
        if not self.choices or len(self.labels) not in (0, len(self.choices)):
            raise DomainError(
                f"Parallel needs at least one choice and a label for each or none, got "
                f"{len(self.choices)} choices and {len(self.labels)} labels"
            )


@frozen
class _OnePart(Term):
    """Base of the terms that change how one part is run."""

    part: Term = field(converter=_term)


@frozen
class Repeated(_OnePart):
    """One part, run a fixed number of times; later runs may use earlier outcomes.

    The noise of each run is independent of the others'.

    Parameters
    ----------
    part
        What is repeated.
    times
        How often, at least 0.

    Examples
    --------
    >>> from accountants import Gaussian, GaussianDP, measure
    >>> rounds = Repeated(Spend(Gaussian(mu=0.1)), 100)
    >>> print(measure(rounds, GaussianDP(), delta=1e-6).bounds)
    [4.88655, 4.88656]
    >>> print(measure(Spend(Gaussian(mu=1.0)), GaussianDP(), delta=1e-6).bounds)
    [4.88655, 4.88656]
    """

    times: int = field(validator=checked(integer, least=0))


@frozen
class Sampled(_OnePart):
    """One part, run on a Poisson sample: each unit enters with probability ``rate``, independently.

    Neighbours differ in one unit that is present or absent (add/remove, zero-out).

    Parameters
    ----------
    part
        What runs on the sample; its losses are those of a unit that is in it.
    rate
        In [0, 1].

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 8 (any loss); Mironov, Talwar and Zhang 2019, Thm 5
    (Gaussian noise).

    Examples
    --------
    >>> from accountants import Basic, Laplace, measure
    >>> print(measure(Spend(Laplace(epsilon=1.0)), Basic(), delta=0.0).bounds)
    [0.999999, 1]
    >>> print(measure(Sampled(Spend(Laplace(epsilon=1.0)), rate=0.1), Basic(), delta=0.0).bounds)
    [0.158565, 0.158566]
    """

    rate: float = field(validator=checked(probability))


@frozen
class ReplacedSample(_OnePart):
    """One part, run on a Poisson sample, for neighbours that replace a unit (replace-one).

    The part's losses are still those of a unit that is present or absent: a sum of vectors of
    norm 1 with noise sigma is ``Gaussian(mu=1 / sigma)``, and costs as two units where both are
    in the sample. A Gaussian loss must be one of additive Gaussian noise; a `Parallel` inside needs
    such losses alone, since a unit of one choice may be replaced by one of another.

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 2 (any loss); Lebeda, Regehr, Kamath and Steinke 2024
    (Gaussian noise).

    Examples
    --------
    >>> from accountants import Distribution, Gaussian, measure
    >>> noisy = Spend(Gaussian(mu=0.5))
    >>> print(measure(Sampled(noisy, rate=0.1), Distribution(), delta=1e-6).bounds)
    [0.490919, 0.49092]
    >>> print(measure(ReplacedSample(noisy, rate=0.1), Distribution(), delta=1e-6).bounds)
    [0.585705, 0.585706]
    """

    rate: float = field(validator=checked(probability))


@frozen
class Subset(_OnePart):
    """One part, run on ``size`` of ``of`` units drawn without replacement (replace-one).

    The part's losses are those of replacing one unit: a sum of vectors of norm 1 with noise
    sigma is ``Gaussian(mu=2 / sigma)``.

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 9; Zhu, Dong and Wang 2022, Prop. 30.

    Examples
    --------
    >>> from accountants import Gaussian, Renyi, measure
    >>> batches = Repeated(Subset(Spend(Gaussian(mu=2 / 4)), size=100, of=1000), 10)
    >>> print(measure(batches, Renyi(), delta=1e-6).bounds)
    [0.490919, 1.12217]
    """

    size: int = field(validator=checked(integer, least=0))
    of: int = field(validator=checked(integer))

    def __attrs_post_init__(self) -> None:
        if self.size > self.of:
            raise DomainError(
                f"Subset.size must be at most Subset.of, got {self.size} of {self.of}"
            )


@frozen
class Allocated(_OnePart):
    """``steps`` runs of the part, each unit in ``times`` of them, drawn uniformly (add/remove).

    With ``times`` 1 these are balls and bins. The part's losses are those of a unit that is
    present or absent. An epoch is one such term; `Repeated` repeats it, with a new allocation.

    References
    ----------
    Feldman and Shenfeld 2025 and 2026 (random allocation); Chua et al. 2024 (balls and bins).

    Examples
    --------
    >>> from accountants import Gaussian, Renyi, measure
    >>> epoch = Allocated(Spend(Gaussian(mu=0.5)), steps=10)  # each unit in one of ten batches
    >>> print(measure(epoch, Renyi(), delta=1e-6).bounds)
    [0, 0.851729]
    >>> print(measure(Spend(Gaussian(mu=0.5)), Renyi(), delta=1e-6).bounds)
    [2.25408, 2.4191]
    """

    steps: int = field(validator=checked(integer))
    times: int = field(default=1, validator=checked(integer))

    def __attrs_post_init__(self) -> None:
        if self.times > self.steps:
            raise DomainError(
                f"Allocated.times must be at most Allocated.steps, got {self.times} of {self.steps}"
            )


@frozen
class Selected(_OnePart):
    """The best of a random number of runs of the part; nothing of the others is released.

    The number of runs is truncated negative binomial with ``shape`` and ``stopping`` (see
    `accountants.PrivateSelection`), independent of all else, and stays unseen.

    References
    ----------
    Liu and Talwar 2019, Thm 3.2 (geometric); Papernot and Steinke 2022, Thm 2.

    Examples
    --------
    >>> from accountants import Basic, Pure, measure
    >>> tuned = Selected(Spend(Pure(epsilon=0.1)), shape=1.0, stopping=0.05)  # of twenty runs or so
    >>> print(measure(tuned, Basic(), delta=0.0).bounds)
    [0, 0.300001]
    """

    shape: float = field(converter=stopping_shape)
    stopping: float = field(converter=stopping_rate)


@frozen
class Grouped(_OnePart):
    """One part, for neighbours that differ in ``size`` units: group privacy.

    Of a sampled part (`Sampled`) the group's units are present or absent together, such as a family
    that joins: what is bounded is not that some leave as others join. That is
    `accountants.GaussianMixture.of_sample`, for Gaussian noise; of a part whose units are replaced
    (`ReplacedSample`) all units of the group are.

    Parameters
    ----------
    part
        A term for neighbours that differ in one unit.
    size
        At least 1.

    References
    ----------
    By each loss: Dwork and Roth 2014, Thm 2.2 (pure); Vadhan 2017, Lemma 2.2 (epsilon and delta);
    shifts of additive noise add; sampled Gaussian noise by `accountants.GaussianMixture`.

    Examples
    --------
    >>> from accountants import Basic, Laplace, measure
    >>> family = Grouped(Spend(Laplace(epsilon=0.5)), size=4)
    >>> print(measure(family, Basic(), delta=0.0).bounds)
    [1.99999, 2]
    """

    size: int = field(validator=checked(integer))


def pruned(term: Term, only: Callable[[str], bool]) -> Term:
    """Return the term with only the spends whose names satisfy ``only``."""
    match term:
        case Spend(name=name):
            return term if only(name) else Sequential(())
        case Sequential(parts=parts):
            return Sequential([pruned(part, only) for part in parts])
        case Parallel(choices=choices, labels=labels):
            return Parallel([pruned(choice, only) for choice in choices], labels)
        case _OnePart(part=part):
            return evolve(term, part=pruned(part, only))
    raise TypeError(f"unknown term {type(term).__name__}")


def containing(term: Term, label: str) -> Iterator[Term]:
    """Yield the term with one `Parallel` restricted to its choices of a label, for each of them.

    The worlds of all that are yielded are those in which the unit lies in a choice of that label.
    """
    match term:
        case Sequential(parts=parts):
            for i, part in enumerate(parts):
                for inner in containing(part, label):
                    yield Sequential((*parts[:i], inner, *parts[i + 1 :]))
        case Parallel(choices=choices, labels=labels):
            kept = [i for i, named in enumerate(labels) if label in named]
            if kept:
                yield Parallel([choices[i] for i in kept], [labels[i] for i in kept])
            for i, choice in enumerate(choices):
                for inner in containing(choice, label):
                    yield Parallel([inner], labels[i : i + 1])
        case _OnePart(part=part):
            for inner in containing(part, label):
                yield evolve(term, part=inner)
