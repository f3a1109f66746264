"""Random losses and terms: every class of `accountants.losses`, every term of `accountants.terms`.

``LOSSES`` and ``TERMS`` hold one strategy for each class that a document can name, so that a law
which draws from `losses` or `terms` is a law of all of them; ``test_term_strategies`` keeps the
two complete. Parameters are those of mechanisms that people declare (an epsilon from 0.01 to 3),
not the extremes, which have tests of their own.
"""

from __future__ import annotations

from fractions import Fraction

import attrs
from hypothesis import strategies as st

from accountants import (
    AccountingError,
    Allocated,
    Grouped,
    Parallel,
    Repeated,
    ReplacedSample,
    Sampled,
    Selected,
    Sequential,
    Spend,
    Subset,
    Term,
)
from accountants import losses as families
from accountants.loss import PrivacyLoss, parameters

Losses = st.SearchStrategy[PrivacyLoss]

sizes = st.floats(0.01, 3.0)
small_deltas = st.floats(1e-12, 1e-7)
counts = st.integers(1, 4)
rates = st.one_of(st.floats(1e-6, 0.5), st.just(1.0))

plain_losses: Losses = st.one_of(
    sizes.map(families.Gaussian),
    sizes.map(families.Laplace),
    sizes.map(families.Pure),
    st.builds(families.Approximate, sizes, small_deltas),
)
"""Additive noise and guarantees: what bodies, envelopes and selections are made of."""

without_delta: Losses = st.one_of(
    sizes.map(families.Gaussian), sizes.map(families.Laplace), sizes.map(families.Pure)
)

composites: Losses = st.lists(st.tuples(plain_losses, counts), min_size=1, max_size=3).map(
    families.Composite
)
bodies: Losses = st.builds(lambda loss: families.Composite({loss: 1}), without_delta)


@st.composite
def _profiles(draw: st.DrawFn) -> PrivacyLoss:
    """Guarantees of one Gaussian, so that they are those of some mechanism."""
    loss = families.Gaussian(draw(sizes))
    epsilons = draw(st.lists(st.floats(0.0, 6.0), min_size=1, max_size=4, unique=True))
    points = [(e, min(1.0, loss.profile(e).upper)) for e in epsilons]
    return families.PrivacyProfile(points, reverse=draw(st.sampled_from([(), points[:1]])))


@st.composite
def _mixtures(draw: st.DrawFn) -> PrivacyLoss:
    sides = []
    for least in (1, 0):
        chances = draw(st.lists(st.floats(0.001, 0.3), min_size=least, max_size=3))
        first = draw(sizes)
        sides += [[first * (i + 1) for i in range(len(chances))], chances]
    return families.GaussianMixture(*sides)


@st.composite
def _outcomes(draw: st.DrawFn) -> PrivacyLoss:
    """A few outcomes, some of them perhaps impossible under one law."""
    size = draw(st.integers(2, 6))
    counts = st.lists(st.integers(0, 60), min_size=size, max_size=size).filter(any)
    p, q = draw(counts), draw(counts)
    return families.FiniteOutcomes(
        [Fraction(each, sum(p)) for each in p], [Fraction(each, sum(q)) for each in q]
    )


@st.composite
def _trade_offs(draw: st.DrawFn) -> PrivacyLoss:
    """Points on the trade-off of a randomized response, moved down."""
    p = draw(st.floats(0.05, 0.49))
    alphas = draw(st.lists(st.floats(1e-9, 0.3), min_size=1, max_size=3, unique=True))
    least = draw(st.floats(1e-9, 0.4 * p))
    return families.TradeOff([(a * p, max(least, 0.9 * (1 - p) * (1 - a))) for a in alphas])


@st.composite
def _renyi_curves(draw: st.DrawFn) -> PrivacyLoss:
    orders = sorted(draw(st.lists(st.floats(1.1, 200.0), min_size=1, max_size=6, unique=True)))
    rho = draw(st.floats(1e-4, 2.0))
    return families.RenyiCurve(orders, [rho * order for order in orders])


@st.composite
def _fixed_sizes(draw: st.DrawFn) -> PrivacyLoss:
    population = draw(st.integers(1, 1000))
    return families.FixedSize(draw(bodies), draw(st.integers(0, population)), population)


@st.composite
def _tested(draw: st.DrawFn) -> PrivacyLoss:
    order, worst = draw(st.floats(1.5, 60.0)), draw(without_delta)
    return families.Tested(
        draw(sizes), draw(small_deltas), order, draw(st.floats(0.001, 0.5)), worst
    )


_reports: Losses = st.one_of(
    sizes.map(families.Pure),
    sizes.map(families.Laplace),
    st.builds(families.RandomizedResponse, sizes, st.integers(2, 10)),
)

LOSSES: dict[str, Losses] = {
    "Allocated": st.builds(families.Allocated, bodies, st.integers(1, 30)),
    "Approximate": st.builds(families.Approximate, sizes, small_deltas),
    "BoundedRange": sizes.map(families.BoundedRange),
    "Composite": composites,
    "DiscreteGaussian": st.builds(families.DiscreteGaussian, st.floats(0.5, 30.0), counts),
    "DiscreteLaplace": st.builds(families.DiscreteLaplace, st.floats(0.5, 30.0), counts),
    "Envelope": st.lists(plain_losses, min_size=1, max_size=3).map(families.Envelope),
    "ExponentialNoisyMax": sizes.map(families.ExponentialNoisyMax),
    "FiniteOutcomes": _outcomes(),
    "FixedSize": _fixed_sizes(),
    "Gaussian": sizes.map(families.Gaussian),
    "GaussianBound": sizes.map(families.GaussianBound),
    "GaussianMixture": _mixtures(),
    "GaussianSparseVector": st.builds(
        families.GaussianSparseVector,
        st.floats(2.0, 20.0),
        st.floats(2.0, 20.0),
        st.integers(1, 20),
        st.integers(1, 2),
        st.booleans(),
    ),
    "GumbelNoisyMax": sizes.map(families.GumbelNoisyMax),
    "Laplace": sizes.map(families.Laplace),
    "LaplaceNoisyMax": sizes.map(families.LaplaceNoisyMax),
    "ObjectivePerturbation": st.builds(
        families.ObjectivePerturbation,
        sizes,
        st.floats(0.0, 1.0),
        st.integers(1, 3),
        st.just(0.0),
        st.integers(1, 4),
    ),
    "PermuteAndFlip": sizes.map(families.PermuteAndFlip),
    "PoissonSelection": st.builds(families.PoissonSelection, without_delta, st.floats(1.0, 50.0)),
    "PrivacyProfile": _profiles(),
    "PrivateSelection": st.builds(
        families.PrivateSelection, without_delta, st.floats(-0.5, 3.0), st.floats(0.02, 0.9)
    ),
    "Pure": sizes.map(families.Pure),
    "RandomizedResponse": st.builds(families.RandomizedResponse, sizes, st.integers(2, 10)),
    "RenyiCurve": _renyi_curves(),
    "ReplacedSample": st.builds(families.ReplacedSample, bodies, rates),
    "Sampled": st.builds(families.Sampled, bodies, rates),
    "Shuffled": st.builds(families.Shuffled, _reports, st.integers(10, 100_000)),
    "SmoothSanitization": st.builds(
        families.SmoothSanitization, st.floats(1.0, 30.0), st.floats(0.001, 0.1)
    ),
    "SparseVector": st.builds(
        families.SparseVector,
        sizes,
        sizes,
        st.one_of(st.just(0.0), sizes),
        st.integers(1, 3),
        st.booleans(),
    ),
    "Tested": _tested(),
    "TradeOff": _trade_offs(),
    "TruncatedGaussian": st.builds(families.TruncatedGaussian, sizes, st.floats(1.0, 40.0)),
    "TruncatedLaplace": st.builds(families.TruncatedLaplace, sizes, st.floats(1.0, 40.0)),
    "StretchedShift": st.builds(
        families.StretchedShift, shift=st.floats(1e-3, 2.0), stretch=st.floats(1e-4, 1.0)
    ),
    "ZeroConcentrated": st.floats(1e-4, 2.0).map(families.ZeroConcentrated),
}

losses: Losses = st.sampled_from(sorted(LOSSES)).flatmap(LOSSES.__getitem__)
"""A loss of any class; each class is as likely as any other."""

Terms = st.SearchStrategy[Term]


def _subsets(part: Term, population: int, share: float) -> Term:
    return Subset(part, int(share * population), population)


def _allocations(part: Term, steps: int, share: float) -> Term:
    return Allocated(part, steps, max(1, int(share * steps)))


def _names(inner: Terms) -> dict[str, Terms]:
    """Return a strategy for each kind of term but Spend, over terms that ``inner`` draws."""
    one_body = st.builds(Spend, without_delta)
    return {
        "Sequential": st.lists(inner, max_size=3).map(Sequential),
        "Parallel": st.lists(inner, min_size=1, max_size=3).map(Parallel),
        "Repeated": st.builds(Repeated, inner, st.integers(0, 4)),
        "Grouped": st.builds(Grouped, inner, st.integers(1, 3)),
        "Selected": st.builds(Selected, one_body, st.floats(-0.5, 3.0), st.floats(0.02, 0.9)),
        # what is sampled is a release: most accountants refuse other bodies
        "Sampled": st.builds(Sampled, one_body, rates),
        "ReplacedSample": st.builds(ReplacedSample, one_body, rates),
        "Subset": st.builds(_subsets, one_body, st.integers(1, 1000), st.floats(0.0, 1.0)),
        "Allocated": st.builds(_allocations, one_body, st.integers(1, 30), st.floats(0.0, 1.0)),
    }


def terms_over(leaves: Losses, *, most: int = 5) -> Terms:
    """Return a strategy of terms of all kinds over losses that ``leaves`` draws."""
    spends = st.builds(Spend, leaves)
    return st.recursive(
        spends,
        lambda inner: st.sampled_from(sorted(_names(inner))).flatmap(_names(inner).__getitem__),
        max_leaves=most,
    )


TERMS: dict[str, Terms] = {"Spend": st.builds(Spend, losses), **_names(st.builds(Spend, losses))}

terms: Terms = terms_over(losses)
"""A term of any kind over losses of any class."""

absurd: st.SearchStrategy[float] = st.one_of(
    st.floats(-300.0, 300.0).map(lambda power: 10.0**power),
    st.sampled_from([0.0, 5e-324, 1e-310, 1e-16, 1 - 2**-53, 1.0, 1 + 2**-52, 37.0, 600.0, 745.0]),
    st.sampled_from([1e149, 1e154, 1e155, 1.7e308]),
)
"""Numbers at which formulas leave the floats, and at which their branches meet."""

absurd_probabilities: st.SearchStrategy[float] = st.one_of(
    st.floats(-300.0, 0.0).map(lambda power: 10.0**power),
    st.floats(-16.0, 0.0).map(lambda power: 1 - 10.0**power),
    st.sampled_from([0.0, 5e-324, 1e-310, 0.5, 1 - 2**-53, 1.0]),
)


@st.composite
def absurd_losses(draw: st.DrawFn) -> PrivacyLoss:
    """A loss of any class, one of whose numbers may be absurd; what refuses it keeps its own."""
    loss = draw(losses)
    numbers = [name for name, value in parameters(loss).items() if isinstance(value, float)]
    counted = [name for name, value in parameters(loss).items() if type(value) is int]
    try:
        if numbers and draw(st.booleans()):
            name, value = draw(st.sampled_from(numbers)), draw(absurd | absurd_probabilities)
            return attrs.evolve(loss, **{name: value})  # type: ignore[misc, no-any-return]
        if counted and draw(st.booleans()):
            name, count = draw(st.sampled_from(counted)), draw(st.integers(0, 10**8))
            return attrs.evolve(loss, **{name: count})  # type: ignore[misc, no-any-return]
    except AccountingError:  # outside of the parameter's domain, or no group privacy
        pass
    return loss


@st.composite
def absurd_terms(draw: st.DrawFn) -> Term:
    """A term of any kind, over such losses, run up to 1e8 times."""
    spend = st.builds(Spend, absurd_losses())
    over = _names(spend)
    try:
        part = draw(over[draw(st.sampled_from(sorted(over)))] | spend)
        match draw(st.integers(0, 4)):
            case 0:
                return Repeated(part, draw(st.integers(0, 10**8)))
            case 1:
                return Sampled(part, draw(absurd_probabilities))
            case 2:
                return Sequential([part, draw(spend)])
    except AccountingError:  # as of the losses
        return draw(spend)
    return part
