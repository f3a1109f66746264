"""The test kit: every loss of the package passes it, and broken ones do not."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from attrs import field, frozen

import accountants
from accountants import (
    Approximate,
    Bounds,
    Composite,
    Envelope,
    Gaussian,
    InapplicableError,
    Laplace,
    PrivacyLoss,
    Pure,
)
from accountants import losses as families
from accountants.finite import FinitePair
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair
from accountants.pair import Pair
from accountants.testing import check

EXAMPLES = {
    "Approximate": [
        Approximate(1.0, 1e-6),
        Approximate(0.0, 1.0),
        Approximate(0.0, 0.1),
        Approximate(30.0, 0.0),
    ],
    "Composite": [
        Composite({Gaussian(1.0): 2}),
        Composite({Gaussian(0.5): 2, Laplace(1.0): 3, Approximate(0.1, 1e-9): 1}),
        Composite({}),
    ],
    "Envelope": [Envelope((Gaussian(1.0), Laplace(2.0)))],
    "FiniteOutcomes": [
        PrivacyLoss.from_probabilities([0.75, 0.25], [0.25, 0.75]),
        PrivacyLoss.from_probabilities([0.1, 0.6, 0.3], [0.0, 0.5, 0.5]),
        PrivacyLoss.from_probabilities([0.5, 0.5], [0.5, 0.5]),
    ],
    "GaussianMixture": [families.GaussianMixture([0.5, 1.0, 1.5], [0.03, 3e-4, 1e-6])],
    "Gaussian": [Gaussian(1.0), Gaussian(1e-6), Gaussian(30.0), Gaussian(0.0)],
    "Laplace": [Laplace(1.0), Laplace(1e-8), Laplace(30.0), Laplace(0.0)],
    "Pure": [Pure(1.0), Pure(1e-9), Pure(30.0), Pure(0.0)],
    "Sampled": [
        families.Sampled(Composite({Gaussian(1.0): 1}), 0.1),
        families.Sampled(Composite({Pure(1.0): 1}), 0.01),
        families.Sampled(Composite({Laplace(1.0): 1, Gaussian(0.5): 2}), 0.5),
    ],
}


def examples(name: str) -> list[PrivacyLoss]:
    """Return a family's examples, or what its docstring makes."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    kind = getattr(families, name)
    names = {**vars(sys.modules[kind.__module__]), **vars(accountants), name: kind, "np": np}
    return [eval(call, names) for call in dict.fromkeys(_calls(name, kind.__doc__ or ""))]


def _calls(name: str, doc: str) -> Iterator[str]:
    """Yield each ``name(...)`` of a docstring's examples, up to its own closing bracket."""
    code = "\n".join(line.partition(">>> ")[2] for line in doc.splitlines())
    for match in re.finditer(rf"\b{name}\(", code):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        yield code[match.start() : end]


LOSSES = [
    name
    for name in families.__all__
    if isinstance(getattr(families, name), type)
    and issubclass(getattr(families, name), PrivacyLoss)
    and name != "EstimatedLoss"  # which proves nothing
]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_passes(name):
    losses = examples(name)
    assert losses, f"give {name} an example in EXAMPLES, or a doctest that makes one"
    for loss in losses:
        check(loss, others=[Gaussian(0.5), Laplace(0.5), Pure(0.5), Pure(3.0)])


# --- draws


def shifted(noise):
    return lambda rng, n: (noise(rng, n, 1.0), noise(rng, n, 0.0))


def response(epsilon):
    def draw(rng, n):
        odds = 1 / (1 + math.exp(-epsilon))
        return rng.random(n) < odds, rng.random(n) > odds

    return draw


def leak(epsilon, delta):
    def draw(rng, n):
        inner = response(epsilon)(rng, n)
        lost = rng.random((2, n)) < delta
        return np.where(lost[0], 2.0, inner[0]), np.where(lost[1], -2.0, inner[1])

    return draw


def sampled(mu, rate):
    def draw(rng, n):
        return rng.normal(size=n) + mu * (rng.random(n) < rate), rng.normal(size=n)

    return draw


def normal(mu):
    return lambda rng, n: (rng.normal(mu, 1, n), rng.normal(0, 1, n))


def laplace(epsilon):
    return lambda rng, n: (rng.laplace(epsilon, 1, n), rng.laplace(0, 1, n))


@pytest.mark.parametrize(
    ("loss", "sampler"),
    [
        (Gaussian(1.0), normal(1.0)),
        (Laplace(1.0), laplace(1.0)),
        (Pure(1.0), response(1.0)),
        (Approximate(1.0, 0.1), leak(1.0, 0.1)),
        (families.Sampled(Composite({Gaussian(2.0): 1}), 0.2), sampled(2.0, 0.2)),
    ],
)
def test_draws_of_what_is_sound_pass(loss, sampler):
    check(loss, sampler)


@pytest.mark.parametrize(
    ("loss", "sampler"),
    [
        (Gaussian(0.9), normal(1.0)),
        (Laplace(0.9), laplace(1.0)),
        (Pure(0.95), response(1.0)),
        (Approximate(1.0, 0.09), leak(1.0, 0.1)),
        (Envelope((Gaussian(0.9),)), normal(1.0)),  # without a profile: by its other notions
        (families.Sampled(Composite({Gaussian(2.0): 1}), 0.15), sampled(2.0, 0.2)),
    ],
)
def test_draws_that_a_loss_does_not_cover_are_detected(loss, sampler):
    with pytest.raises(AssertionError, match="draws"):
        check(loss, sampler)


def test_outcomes_with_a_log_ratio():
    """Two coordinates: a single number tells only through their sum."""

    def draw(rng, n):
        return rng.normal(1.0, 1, (n, 2)), rng.normal(0.0, 1, (n, 2))

    def log_ratio(outcomes):
        return outcomes.sum(axis=1) - 1.0

    check(Gaussian(math.sqrt(2)), draw, log_ratio=log_ratio)
    with pytest.raises(AssertionError, match=r"\nprofile "):
        check(Gaussian(1.3), draw, log_ratio=log_ratio)
    with pytest.raises(ValueError, match="log_ratio"):
        check(Gaussian(math.sqrt(2)), draw)


# --- broken losses


@frozen
class Broken(PrivacyLoss):
    """A Gaussian loss, with some functionals replaced."""

    mu_: float = 1.0
    changed: tuple = field(default=(), converter=lambda x: tuple(dict(x).items()))

    def _own(self, name, default, *rest):
        changed = dict(self.changed)
        return changed[name](*rest) if name in changed else default(*rest)

    def delta_floor(self):
        return self._own("delta_floor", lambda: 0.0)

    def pair(self):
        return self._own("pair", lambda: None)

    def pure(self):
        return self._own("pure", lambda: None)

    def renyi(self, orders):
        return self._own("renyi", Gaussian(self.mu_).renyi, orders)

    def rho(self):
        return self._own("rho", Gaussian(self.mu_).rho)

    def mu(self):
        return self._own("mu", Gaussian(self.mu_).mu)

    def profile(self, epsilon):
        return self._own("profile", Gaussian(self.mu_).profile, epsilon)

    def epsilon_at(self, delta):
        return self._own("epsilon_at", lambda delta: None, delta)

    def grouped(self, size):
        if "grouped" in dict(self.changed):
            return dict(self.changed)["grouped"](size)
        raise InapplicableError("no group privacy")

    def dominates(self, other):
        return self._own("dominates", lambda other: self == other, other)


def test_the_unbroken_one_passes():
    check(Broken(), others=[Gaussian(1.0)])
    check(Broken(changed={"pair": lambda: GaussianPair(1.0)}))


def less(share):
    """A Gaussian's profile of a smaller shift."""
    return Gaussian(share).profile


BROKEN = [
    ({"profile": less(0.99)}, "pair", {"pair": GaussianPair(1.0)}),
    ({"profile": less(0.9), "pair": lambda: GaussianPair(1.0)}, r"\nprofile ", {}),
    ({"profile": less(1.01)}, "profile", {}),
    ({"profile": lambda e: Bounds(-0.1, 0.5)}, "outside", {}),
    ({"profile": lambda e: Bounds(0.0, 0.1) if e < 1 else Bounds(0.2, 0.3)}, "rises", {}),
    ({"delta_floor": lambda: 0.3}, r"0\.3", {}),
    ({"delta_floor": lambda: 1.5}, "not a probability", {}),
    ({"rho": lambda: 0.49}, r"\nrho ", {"pair": GaussianPair(1.0)}),
    ({"rho": lambda: math.nan}, r"rho\(\)", {}),
    ({"rho": lambda: 0.2}, "rho", {}),
    ({"mu": lambda: 0.999}, "mu promises", {}),
    ({"pure": lambda: 3.0}, r"\npure ", {}),
    ({"renyi": lambda a: 0.499 * a}, r"\nrenyi ", {"pair": GaussianPair(1.0)}),
    ({"renyi": lambda a: 0.1 * a}, "renyi", {}),
    ({"renyi": lambda a: 1 / a}, "falls", {}),
    ({"renyi": lambda a: np.minimum(a, 2.2)}, "convex", {}),
    ({"renyi": lambda a: a[:-1]}, r"renyi\(\)", {}),
    ({"renyi": lambda a: -a}, r"renyi\(\)", {}),
    ({"epsilon_at": lambda delta: Bounds(0.0, 0.5)}, r"epsilon_at\(0\.001\)", {}),
    ({"epsilon_at": lambda delta: Bounds(9.0, 9.0)}, r"epsilon_at\(0\.001\)", {}),
    ({"grouped": lambda size: Broken(1.0 / size)}, "grouped\\(2\\)", {}),
    ({"dominates": lambda other: True}, "dominate", {"others": [Gaussian(1.1)]}),
    ({"dominates": lambda other: False}, "dominate", {}),
    ({"pair": lambda: GaussianPair(0.9)}, "pair", {}),
]


@pytest.mark.parametrize(("changed", "message", "options"), BROKEN)
def test_broken_losses_are_detected(changed, message, options):
    with pytest.raises(AssertionError, match=message):
        check(Broken(changed=changed), **options)


def test_a_profile_that_is_too_small_everywhere_is_detected_by_draws():
    """All functionals agree on a smaller shift: only the mechanism itself tells."""
    check(Broken(0.9))
    with pytest.raises(AssertionError, match="draws"):
        check(Broken(0.9), normal(1.0))


@frozen
class Mixed(Pair):
    """``(1-q) N(0, 1) + q N(mu, 1)`` against N(0, 1), by its tails alone."""

    mu: float
    rate: float

    def _outcome(self, loss):
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratio = np.expm1(loss) / self.rate
            inside = np.where(ratio > -1, np.log1p(np.maximum(ratio, -1)), -np.inf)
        return inside / self.mu + self.mu / 2

    def above(self, loss):
        from scipy.special import ndtr

        x = self._outcome(loss)
        q = ndtr(-x)
        return (1 - self.rate) * q + self.rate * ndtr(self.mu - x), q

    def below(self, loss):
        from scipy.special import ndtr

        x = self._outcome(loss)
        q = ndtr(x)
        return (1 - self.rate) * q + self.rate * ndtr(x - self.mu), q

    def bottom(self):
        return math.log1p(-self.rate) * (1 + 1e-15)


def test_a_renyi_curve_of_the_first_order_is_detected():
    """``a q^2 / (2 sigma^2)``, which a peer reports for the sampled Gaussian, is too small."""
    rate, mu = 256 / 60_000, 1 / 1.1

    def first_order(orders):
        return orders * rate**2 * mu**2 / 2

    nothing = {"profile": lambda e: None, "rho": lambda: None, "mu": lambda: None}
    with pytest.raises(AssertionError, match=r"\nrenyi .*D_"):
        check(Broken(changed={**nothing, "renyi": first_order}), pair=Mixed(mu, rate))
    true = families.Sampled(Composite({Gaussian(mu): 1}), rate)
    check(true, pair=Mixed(mu, rate))
    check(Broken(changed={**nothing, "renyi": true.renyi}), pair=Mixed(mu, rate))


def test_losses_that_are_equal_and_cost_unlike_are_detected():
    """Equal losses are merged, and the cost of one is cached for the other."""

    @frozen
    class Alike(Pure):
        more: float = field(default=0.0, eq=False)

        def pure(self):
            return self.epsilon + self.more

    assert Alike(1.0, 0.0) == Alike(1.0, 5.0)
    with pytest.raises(AssertionError):
        check(Alike(1.0, 0.0))


# --- broken pairs


@frozen
class BrokenPair(Pair):
    """A pair with some views replaced."""

    base: Pair
    changed: tuple = field(default=(), converter=lambda x: tuple(dict(x).items()))

    def _own(self, name, *rest):
        return dict(self.changed).get(name, getattr(self.base, name))(*rest)

    def tail_error(self):
        return self.base.tail_error()

    def above(self, loss):
        return self._own("above", loss)

    def below(self, loss):
        return self._own("below", loss)

    def top(self):
        return self._own("top")

    def bottom(self):
        return self._own("bottom")

    def spacing(self):
        return self._own("spacing")

    def log_moment(self, z):
        return self._own("log_moment", z)

    def decay(self, tilt, beyond):
        return self._own("decay", tilt, beyond)

    def reversed(self):
        return self._own("reversed") if "reversed" in dict(self.changed) else self


def moved(share):
    return lambda z: (share * z * (z + 1) / 2, 1e-12 * np.abs(z * (z + 1)))


normal_pair, laplace_pair = GaussianPair(1.0), LaplacePair(1.0)
lopsided = FinitePair([-0.5, 1.0], [0.3, 0.7], [0.3 * math.exp(0.5), 0.7 * math.exp(-1)])

BROKEN_PAIRS = [
    (normal_pair, {"log_moment": moved(1.001)}, "tails"),
    (normal_pair, {"log_moment": lambda z: moved(1.0)(-z)}, "not 0"),  # the wrong sign
    (normal_pair, {"log_moment": lambda z: moved(1.0)(z + 0.01)}, "not 0"),
    (normal_pair, {"log_moment": lambda z: moved(1 + 1e-3j)(z)}, "conjugate"),
    (normal_pair, {"above": lambda x: normal_pair.above(x + 0.01)}, "tails|mass|mirrored|< 1"),
    (normal_pair, {"above": lambda x: normal_pair.above(-x)}, "rises"),
    (normal_pair, {"above": lambda x: normal_pair.above(x)[::-1]}, "mass"),
    (normal_pair, {"above": lambda x: tuple(1.01 * y for y in normal_pair.above(x))}, "> 1|1\\]"),
    (normal_pair, {"decay": lambda c, t: -0.6 * t * t}, "decay"),
    (normal_pair, {"decay": lambda c, t: 0 * t + 0.1}, "positive"),
    (normal_pair, {"decay": lambda c, t: -1e-9 / t}, "rises"),
    (normal_pair, {"reversed": lambda: GaussianPair(2.0)}, "reversed|mirrored"),
    (laplace_pair, {"top": lambda: 0.9}, r"\btop\b"),
    (laplace_pair, {"bottom": lambda: -0.9}, "bottom"),
    (laplace_pair, {"bottom": lambda: 2.0}, r"\btop\b"),
    (laplace_pair, {"spacing": lambda: 0.7}, r"0\.7"),
    (lopsided, {}, "mirrored"),  # it is not its own reverse
]


@pytest.mark.parametrize(("base", "changed", "message"), BROKEN_PAIRS)
def test_broken_pairs_are_detected(base, changed, message):
    loss = Broken(changed={"pair": lambda: BrokenPair(base, changed)})
    with pytest.raises(AssertionError, match=message):
        check(loss)


@pytest.mark.parametrize("base", [normal_pair, laplace_pair])
def test_the_unbroken_pairs_pass(base):
    loss = Gaussian(1.0) if base is normal_pair else Laplace(1.0)
    nothing = {name: getattr(loss, name) for name in ("renyi", "rho", "mu", "profile", "pure")}
    check(Broken(changed={**nothing, "pair": lambda: BrokenPair(base)}))


def test_atoms_pass():
    q = [0.2, 0.5, 0.3]
    losses = [-1.0, -0.25]
    p = [q[0] * math.exp(losses[0]), q[1] * math.exp(losses[1])]
    last = math.log((1 - sum(p)) / q[2])
    pair = FinitePair([*losses, last], [*p, 1 - sum(p)], q, error=1e-14)
    nothing = {name: lambda *_: None for name in ("renyi", "rho", "mu", "profile")}
    check(Broken(changed={**nothing, "pair": lambda: pair}))


def test_every_finding_is_reported():
    with pytest.raises(AssertionError) as caught:
        check(Broken(changed={"rho": lambda: 0.2, "mu": lambda: 0.5}))
    text = str(caught.value)
    assert "rho" in text
    assert "mu promises" in text
    assert text.startswith("Broken(")
