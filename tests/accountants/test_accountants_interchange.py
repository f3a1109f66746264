"""Events of dp-accounting: what each becomes, what comes back, what is refused."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Composite,
    DomainError,
    Envelope,
    Gaussian,
    GaussianMixture,
    Grouped,
    InapplicableError,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
)
from accountants import losses as families
from accountants.interchange import _READERS, _UNREADABLE, from_dp_event, to_dp_event
from accountants.losses.discrete import DiscreteLaplace, RandomizedResponse
from accountants.losses.given import ZeroConcentrated
from accountants.losses.sampling import FixedSize
from accountants.losses.sampling import ReplacedSample as ReplacedSampleLoss
from accountants.losses.selection import PoissonSelection, PrivateSelection
from accountants.terms import Allocated, ReplacedSample, Subset

dp = pytest.importorskip("dp_accounting.dp_event")

NOTHING = Sequential(())
OPEN = Spend(Approximate(epsilon=0.0, delta=1.0))

EXACT = [  # event, relation, term; numbers that floats divide exactly
    (dp.NoOpDpEvent(), "add_remove", NOTHING),
    (dp.NonPrivateDpEvent(), "add_remove", OPEN),
    (dp.GaussianDpEvent(2.0), "add_remove", Spend(Gaussian(0.5))),
    (dp.GaussianDpEvent(2.0), "zero_out", Spend(Gaussian(0.5))),
    (dp.GaussianDpEvent(2.0), "replace_one", Spend(Gaussian(1.0))),
    (dp.LaplaceDpEvent(4.0), "add_remove", Spend(Laplace(0.25))),
    (dp.LaplaceDpEvent(4.0), "replace_one", Spend(Laplace(0.5))),
    (
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 7),
        "add_remove",
        Repeated(Spend(Gaussian(0.5)), 7),
    ),
    (
        dp.ComposedDpEvent([dp.GaussianDpEvent(2.0), dp.LaplaceDpEvent(4.0)]),
        "add_remove",
        Sequential([Spend(Gaussian(0.5)), Spend(Laplace(0.25))]),
    ),
    (dp.DiscreteLaplaceDpEvent(0.5, 3), "zero_out", Spend(DiscreteLaplace(2.0, 3))),
    (dp.DiscreteLaplaceDpEvent(0.5, 3), "replace_one", Spend(DiscreteLaplace(2.0, 6))),
    (dp.ZCDpEvent(0.3), "add_remove", Spend(ZeroConcentrated(0.3))),
    (
        dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(0.5)),
        "replace_one",
        ReplacedSample(Spend(Gaussian(2.0)), 0.01),
    ),
    (
        dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(0.5)),
        "replace_one",
        Subset(Spend(Gaussian(4.0)), size=10, of=100),
    ),
    (
        dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(0.5), 4.0, math.inf),
        "add_remove",
        Spend(PoissonSelection(Composite({Gaussian(2.0): 1}), 4.0)),
    ),
    (
        dp.PoissonSampledDpEvent(0.01, dp.ComposedDpEvent([dp.GaussianDpEvent(0.5)])),
        "zero_out",
        Sampled(Sequential([Spend(Gaussian(2.0))]), 0.01),
    ),
]


@pytest.mark.parametrize(("event", "neighbors", "term"), EXACT)
def test_there_and_back_exactly(event, neighbors, term):
    assert from_dp_event(event, neighbors=neighbors) == term
    assert to_dp_event(term, neighbors=neighbors) == event


ONE_WAY = [
    (dp.GaussianDpEvent(0.0), "add_remove", OPEN),
    (dp.GaussianDpEvent(math.inf), "add_remove", Spend(Gaussian(0.0))),
    (dp.GaussianDpEvent(5e-324), "add_remove", OPEN),
    (dp.LaplaceDpEvent(0.0), "add_remove", OPEN),
    (dp.RandomizedResponseDpEvent(1.0, 9), "replace_one", NOTHING),
    (dp.RandomizedResponseDpEvent(0.0, 1), "replace_one", NOTHING),
    (dp.RandomizedResponseDpEvent(0.0, 2), "replace_one", OPEN),
    (dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 0), "add_remove", None),
    (dp.DiscreteLaplaceDpEvent(0.0, 3), "add_remove", NOTHING),
    (dp.DiscreteLaplaceDpEvent(1.0, 0), "add_remove", NOTHING),
    (
        dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(2.0), 1.0, 1.0),
        "add_remove",
        Spend(Gaussian(0.5)),
    ),
    # a binary tree of 4 leaves is 3 deep
    (
        dp.SingleEpochTreeAggregationDpEvent(2.0, [1, 4, 3]),
        "zero_out",
        Repeated(Spend(Gaussian(0.5)), 3),
    ),
    (
        dp.SingleEpochTreeAggregationDpEvent(2.0, 1),
        "zero_out",
        Repeated(Spend(Gaussian(0.5)), 1),
    ),
    (dp.SingleEpochTreeAggregationDpEvent(2.0, 0), "zero_out", NOTHING),
    (
        dp.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.75, 0.25]),
        "add_remove",
        Sampled(Spend(Gaussian(0.5)), 0.25),
    ),
    (dp.MixtureOfGaussiansDpEvent(2.0, [0.0], [1.0]), "add_remove", NOTHING),
]


@pytest.mark.parametrize(("event", "neighbors", "term"), ONE_WAY)
def test_what_an_event_means(event, neighbors, term):
    expected = Repeated(Spend(Gaussian(1.0)), 0) if term is None else term
    assert from_dp_event(event, neighbors=neighbors) == expected


REFUSED = [
    (dp.UnsupportedDpEvent(), "add_remove"),
    (dp.SampledWithReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)), "add_remove"),
    (dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)), "add_remove"),
    (dp.ZCDpEvent(0.1, 0.2), "add_remove"),
    (dp.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0), "add_remove"),
    (dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(1.0), 1e250, 1.0), "add_remove"),
    (dp.RandomizedResponseDpEvent(0.5, 2), "add_remove"),
    (dp.SingleEpochTreeAggregationDpEvent(1.0, 4), "add_remove"),
    (dp.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.5, 0.25, 0.25]), "replace_one"),
]


def test_every_event_of_the_installed_release_is_read_or_refused_with_a_reason():
    classes = {
        name
        for name, value in vars(dp).items()
        if isinstance(value, type) and issubclass(value, dp.DpEvent)
    }
    assert len(classes) >= 18
    assert classes == {*_READERS, *_UNREADABLE}
    shown = {type(event).__name__ for event, *_ in (*EXACT, *ONE_WAY, *REFUSED)}
    assert shown == classes - {"DpEvent"}
    for event in (dp.UnsupportedDpEvent(), dp.DpEvent()):
        with pytest.raises(InapplicableError, match="says"):
            from_dp_event(event)


def test_mixtures_of_several_shifts_come_and_go():
    event = dp.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 4.0], [0.5, 0.25, 0.25])
    for neighbors in ("add_remove", "zero_out"):
        term = from_dp_event(event, neighbors=neighbors)
        assert term == Spend(GaussianMixture([0.5, 2.0], [0.25, 0.25]))
        again = to_dp_event(term, neighbors=neighbors)
        assert again.sensitivities == [0.0, 0.5, 2.0]
        assert again.sampling_probs == [0.5, 0.25, 0.25]
        assert from_dp_event(again, neighbors=neighbors) == term
    with pytest.raises(InapplicableError, match="GaussianMixture"):
        to_dp_event(term, neighbors="replace_one")


def test_a_sample_of_a_sample_is_read_under_replace_one():
    event = dp.PoissonSampledDpEvent(0.1, dp.PoissonSampledDpEvent(0.25, dp.LaplaceDpEvent(1.0)))
    term = from_dp_event(event, neighbors="replace_one")
    assert term == ReplacedSample(Sampled(Spend(Laplace(1.0)), 0.25), 0.1)


@pytest.mark.parametrize(("event", "neighbors"), REFUSED)
def test_what_has_no_equal_term_is_refused_by_name(event, neighbors):
    nested = dp.SelfComposedDpEvent(dp.ComposedDpEvent([dp.NoOpDpEvent(), event]), 3)
    with pytest.raises(InapplicableError, match=type(event).__name__):
        from_dp_event(nested, neighbors=neighbors)


@pytest.mark.parametrize(
    ("event", "neighbors"),
    [
        ("GaussianDpEvent", "add_remove"),
        (dp.GaussianDpEvent(-1.0), "add_remove"),
        (dp.GaussianDpEvent(math.nan), "add_remove"),
        (dp.GaussianDpEvent(1.0), "replace-one"),
        (dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)), "add_remove"),
        (dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), -1), "add_remove"),
        (dp.MixtureOfGaussiansDpEvent(1.0, [-1.0], [1.0]), "add_remove"),
        (dp.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.7, 0.7]), "add_remove"),
        (dp.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.1]), "add_remove"),
        (dp.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [1.0]), "add_remove"),
        (dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(1.0), 0.5, 1.0), "add_remove"),
        (dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(1.0), 2.0, -1.0), "add_remove"),
    ],
)
def test_events_that_make_no_sense(event, neighbors):
    with pytest.raises(DomainError):
        from_dp_event(event, neighbors=neighbors)


@pytest.mark.parametrize(
    ("term", "neighbors"),
    [
        (Spend(Approximate(1.0, 1e-6)), "replace_one"),
        (Spend(Pure(1.0)), "add_remove"),
        (Spend(Envelope((Gaussian(1.0), Laplace(1.0)))), "add_remove"),
        (Sampled(Spend(Gaussian(1.0)), 0.1), "replace_one"),
        (Parallel([Spend(Gaussian(1.0)), Spend(Laplace(1.0))]), "add_remove"),
        (Grouped(Spend(Pure(1.0)), 2), "replace_one"),
        (Spend(DiscreteLaplace(2.0, 3)), "replace_one"),
        (Spend(RandomizedResponse(1.0, 3)), "zero_out"),
        (ReplacedSample(Spend(Gaussian(1.0)), 0.1), "add_remove"),
        (Subset(Spend(Gaussian(1.0)), 1, 10), "zero_out"),
        (Allocated(Spend(Gaussian(1.0)), 10), "add_remove"),
        (Spend(ReplacedSampleLoss(Composite({Gaussian(1.0): 1}), 0.1)), "add_remove"),
        (Spend(PrivateSelection(Gaussian(1.0), -0.5, 0.1)), "add_remove"),
    ],
)
def test_what_has_no_equal_event_is_refused(term, neighbors):
    with pytest.raises(InapplicableError):
        to_dp_event(term, neighbors=neighbors)


def test_losses_that_hold_others():
    body = Composite({Gaussian(0.5): 2, Laplace(0.25): 1})
    inner = dp.ComposedDpEvent(
        [dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 2), dp.LaplaceDpEvent(4.0)]
    )
    assert to_dp_event(Spend(body)) == inner
    assert to_dp_event(Spend(families.Sampled(body, 0.1))) == dp.PoissonSampledDpEvent(0.1, inner)
    grouped = to_dp_event(Grouped(Spend(Gaussian(0.5)), 4))
    assert grouped == to_dp_event(Spend(Gaussian(0.5).grouped(4)))
    exchanged = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))
    loss = ReplacedSampleLoss(Composite({Gaussian(0.5): 1}), 0.1)
    assert to_dp_event(Spend(loss), neighbors="replace_one") == exchanged
    subset = dp.SampledWithoutReplacementDpEvent(9, 3, dp.GaussianDpEvent(2.0))
    loss = FixedSize(Composite({Gaussian(1.0): 1}), size=3, of=9)
    assert to_dp_event(Spend(loss), neighbors="replace_one") == subset
    assert to_dp_event(Parallel([Spend(Gaussian(0.5))])) == dp.GaussianDpEvent(2.0)
    assert to_dp_event(Repeated(Spend(Gaussian(0.5)), 0)) == dp.NoOpDpEvent()
    assert to_dp_event(Spend(Gaussian(0.0))) == dp.NoOpDpEvent()
    assert to_dp_event(Spend(Pure(0.0))) == dp.NoOpDpEvent()


multipliers = st.floats(1e-300, 1e300, allow_subnormal=False)


@examples(200)
@given(multipliers, st.sampled_from(["add_remove", "zero_out", "replace_one"]))
def test_numbers_are_rounded_outward(noise, neighbors):
    """The exact ratio is never below the event's, nor the event's noise above the term's."""
    shift = 2 if neighbors == "replace_one" else 1
    for kind in (dp.GaussianDpEvent, dp.LaplaceDpEvent):
        term = from_dp_event(kind(noise), neighbors=neighbors)
        loss = term.loss
        ratio = loss.mu() if isinstance(loss, Gaussian) else loss.pure()
        assert Fraction(ratio) * Fraction(noise) >= shift
        assert ratio * noise <= shift * (1 + 1e-15)
        returned = to_dp_event(term, neighbors=neighbors)
        assert type(returned) is kind
        assert Fraction(ratio) * Fraction(returned.noise_multiplier) <= shift
        assert returned.noise_multiplier >= noise * (1 - 1e-15)


@examples(200)
@given(st.floats(1e-12, 1 - 1e-9), st.integers(2, 40))
def test_randomized_response_is_rounded_outward(noise, buckets):
    event = dp.RandomizedResponseDpEvent(noise, buckets)
    term = from_dp_event(event, neighbors="replace_one")
    exact = mp.log1p(buckets * (1 - mp.mpf(noise)) / mp.mpf(noise))
    assert exact <= term.loss.pure() <= exact * (1 + mp.mpf("1e-14"))
    returned = to_dp_event(term, neighbors="replace_one")
    assert noise * (1 - 1e-13 * (1 + exact)) <= returned.noise_parameter <= noise
    assert returned.num_buckets == buckets


@examples(100)
@given(st.floats(1.01, 1e6), st.sampled_from([0.0, 0.5, 1.0, 2.0, 10.0]))
def test_a_selection_has_at_least_as_many_runs(mean, shape):
    event = dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(2.0), mean, shape)
    loss = from_dp_event(event).loss
    gamma = mp.mpf(loss.stopping)
    if shape == 0:
        runs = (1 - gamma) / (-gamma * mp.log(gamma))
    else:
        runs = shape * (1 - gamma) / (gamma * (1 - gamma**shape))
    assert mean <= runs <= mean * (1 + 1e-11)
    returned = to_dp_event(Spend(loss))
    assert returned.event == dp.GaussianDpEvent(2.0)
    assert mean <= returned.mean <= mean * (1 + 1e-11)
    assert returned.shape == shape


terms = st.recursive(
    st.one_of(
        st.floats(1e-3, 10.0).map(lambda x: Spend(Gaussian(x))),
        st.floats(1e-3, 10.0).map(lambda x: Spend(Laplace(x))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(Sequential),
        st.tuples(inner, st.integers(2, 99)).map(lambda x: Repeated(*x)),
        st.tuples(inner, st.floats(0, 1)).map(lambda x: Sampled(*x)),
    ),
    max_leaves=6,
)


@examples(60)
@given(terms)
def test_terms_keep_their_shape(term):
    """There and back: the same term, each number at most a few units dearer."""
    returned = from_dp_event(to_dp_event(term))
    _same(term, returned)


def _same(term, returned):
    assert type(term) is type(returned)
    match term:
        case Spend(loss=loss):
            assert returned.loss.dominates(loss)
            before, after = (x.mu() or x.pure() for x in (loss, returned.loss))
            assert before <= after <= before * (1 + 1e-15)
        case Sequential(parts=parts):
            for one, other in zip(parts, returned.parts, strict=True):
                _same(one, other)
        case Repeated(part=part, times=times):
            assert returned.times == times
            _same(part, returned.part)
        case Sampled(part=part, rate=rate):
            assert returned.rate == rate
            _same(part, returned.part)


def test_without_dp_accounting_the_remedy_is_named(monkeypatch):
    def missing(name, *rest):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match="interchange"):
        to_dp_event(Spend(Gaussian(1.0)))
    assert from_dp_event(dp.GaussianDpEvent(2.0)) == Spend(Gaussian(0.5))  # needs none


def test_the_package_imports_without_it():
    code = "import sys, accountants.interchange; assert 'dp_accounting' not in sys.modules"
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", code], check=True)
