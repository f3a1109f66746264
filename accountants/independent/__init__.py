"""A second opinion of an epsilon: computed again in ball arithmetic, by other algorithms.

What a term costs is worked out from its document alone (`accountants.to_json`): nothing here
imports the rest of `accountants`, and a test says so. All numbers are balls of `python-flint` (the
extra ``check``), whose radii hold every error of rounding, cutting and integration.

>>> from accountants import Gaussian, Repeated, Spend, to_json
>>> document = to_json(Repeated(Spend(Gaussian(mu=0.1)), 100))
>>> check(document, epsilon=4.8866, delta=1e-6).verdict
'confirmed'
>>> check(document, epsilon=4.8865, delta=1e-6).verdict
'refuted'
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import evolve, frozen

try:
    from flint import arb, ctx
except ImportError as error:  # pragma: no cover - a message for a person
    raise ImportError(
        "a second opinion needs python-flint: pip install 'adaptive-dp[check]'"
    ) from error

from accountants.independent.composition import (
    CHORDS,
    Value,
    delta_at,
    lower_on_lattice,
    upper_on_lattice,
)
from accountants.independent.document import LOSSES, TERMS, Malformed, NotCovered, World
from accountants.independent.document import read as _read
from accountants.independent.document import worlds as _worlds
from accountants.independent.losses import Known, known, renyi_delta
from accountants.independent.pairs import (
    ONE,
    ZERO,
    Bound,
    Pair,
    exact,
    gaussian_profile,
    positive,
    response_at,
)

__all__ = ["COVERED", "LIMITS", "Malformed", "NotCovered", "Opinion", "check"]

COVERED: tuple[str, ...] = (*sorted(LOSSES), *sorted(set(TERMS) - set(LOSSES)))
"""The kinds of losses and terms for which there is a theorem here, within the limits that are named
where they are reached."""

LIMITS: Mapping[str, str] = {
    "Allocated": "of few losses exactly; of others by the bound of a step that every unit is in: "
    "what amplification gains is not confirmed",
    "BoundedRange": "one alone by its profile, several by a pair that none attains; what the best "
    "of them, chosen as one goes, lack of that is not confirmed",
    "Envelope": "one loss at a time by all that is known of its members, several by chords of the "
    "largest of their profiles",
    "GaussianMixture": "one alone by its profile, several by chords; none in a sample",
    "GaussianSparseVector": "by the bound of Zhu and Wang 2020; what the accountants' own bound "
    "gains is not confirmed",
    "PrivacyProfile": "given for each direction, by what holds both ways",
    "Shuffled": "of more than 151 randomized responses by clones; what their answers gain is not "
    "confirmed, nor lower ends of more than two answers",
}
"""Kinds of which only a part of the true claims can be confirmed."""

TOLERANCE = 1e-9
"""A claim is confirmed where its epsilon, larger by this share, holds."""

_PRECISION = 160


@frozen
class Opinion:
    """What an independent computation says of one claim.

    Parameters
    ----------
    verdict
        ``"confirmed"``: delta at the claimed epsilon is at most the claimed delta, proven.
        ``"refuted"``: some mechanism with these losses has a larger one, proven.
        ``"undecided"``: delta is in an interval around the claimed one.
        ``"not covered"``: there is no theorem for it here; `reason` names what.
    epsilon, delta
        The claim.
    lower, upper
        Delta at the claimed epsilon is between them, the smaller rounded down, the larger up.
    method
        How the deciding number was found.
    worlds
        How many worlds a unit may be in.
    reason
        Of a claim that is not confirmed.

    Examples
    --------
    >>> from accountants import Pure, Spend, to_json
    >>> print(check(to_json(Spend(Pure(epsilon=1.0))), epsilon=0.9, delta=0.0))
    refuted: delta at epsilon 0.9 is at least 0.0695694, and 0 is claimed (the pair's own profile)
    """

    verdict: str
    epsilon: float
    delta: float
    lower: float = 0.0
    upper: float = 1.0
    method: str = ""
    worlds: int = 0
    reason: str = ""

    def __str__(self) -> str:
        claim = f"epsilon {self.epsilon:.6g}"
        if self.verdict == "confirmed":
            return f"confirmed: delta at {claim} is at most {self.delta:.6g} ({self.method})"
        if self.verdict == "refuted":
            return (
                f"refuted: delta at {claim} is at least {self.lower:.6g}, and {self.delta:.6g} is "
                f"claimed ({self.method})"
            )
        if self.verdict == "undecided":
            return (
                f"undecided: delta at {claim} is in [{self.lower:.6g}, {self.upper:.6g}], and "
                f"{self.delta:.6g} is claimed ({self.method})"
            )
        return f"not covered: {self.reason}"


def check(document: str | Mapping[str, Any], *, epsilon: float, delta: float) -> Opinion:
    """Return whether a term is (epsilon, delta)-DP, by a computation that shares no code with it.

    Parameters
    ----------
    document
        A term as JSON (`accountants.to_json`), or what that text holds.
    epsilon, delta
        The claim: an upper bound of epsilon at this delta.

    Raises
    ------
    Malformed
        If the document is not that of a term.

    Examples
    --------
    >>> from accountants import Laplace, Sequential, Spend, to_json
    >>> two = to_json(Sequential([Spend(Laplace(epsilon=0.5)), Spend(Laplace(epsilon=0.25))]))
    >>> check(two, epsilon=0.75, delta=0.0).verdict
    'confirmed'
    """
    read = json.loads(document) if isinstance(document, str) else document
    # sums that are cut where they are next to nothing are cut further out for less
    smaller = max(0, -math.frexp(delta)[1] - 60) if delta > 0 else 0
    with ctx.workprec(_PRECISION + smaller):
        try:
            every = _worlds(_read(read))
            found = [_of_world(world, epsilon, delta) for world in every]
        except NotCovered as refusal:
            return Opinion("not covered", epsilon, delta, reason=str(refusal))
    order = ("refuted", "not covered", "undecided", "confirmed")
    worst = min(found, key=lambda each: (order.index(each.verdict), -each.lower))
    return Opinion(
        worst.verdict,
        epsilon,
        delta,
        max(each.lower for each in found),
        max(each.upper for each in found),
        worst.method,
        len(every),
        worst.reason,
    )


def _of_world(world: World, epsilon: float, delta: float) -> Opinion:
    """Return the opinion of one multiset of losses."""
    if delta >= 1 or epsilon == math.inf or math.isnan(epsilon):
        return Opinion("confirmed", epsilon, delta, 0.0, 1.0, "every mechanism")
    if not world:
        return Opinion("confirmed", epsilon, delta, 0.0, 0.0, "nothing is released")
    try:
        losses = [(known(loss), times) for loss, times in world]
    except NotCovered as refusal:
        return Opinion("not covered", epsilon, delta, reason=str(refusal))
    case = _Case(losses, exact(delta))
    at = exact(epsilon)
    low = case.truth(at)
    # the lower end alone refutes
    if low is not None and low.delta.lower() > case.delta:
        return _opinion("refuted", epsilon, delta, low.delta, low)
    near = exact(Fraction(epsilon) * (1 + Fraction(TOLERANCE)))
    high: Value | None = None
    for route in case.routes(low):
        for where in (at, near):
            value = route(where)
            if value is None:
                break
            if high is None or value.delta.upper() < high.delta.upper():
                high = value
            if value.delta.upper() <= case.delta:
                below = None if low is None else low.delta
                if below is not None and below.lower() > value.delta.upper():
                    # from the one epsilon to the other delta may fall by e^near - e^at, no more
                    below = below - (where.exp() - at.exp())
                return _opinion("confirmed", epsilon, delta, below, value)
    if low is not None and low.method == CHORDS and case.attained:
        # chords alone were found, of which nothing is below
        least = case.least(at)
        if least.delta.lower() > case.delta:
            return _opinion("refuted", epsilon, delta, least.delta, evolve(least, delta=low.delta))
        if least.delta.lower() > low.delta.lower():
            low = evolve(low, delta=least.delta)
    if high is None:
        return Opinion(
            "not covered", epsilon, delta, reason="no theorem bounds these losses together"
        )
    return _opinion("undecided", epsilon, delta, None if low is None else low.delta, high)


def _opinion(verdict: str, epsilon: float, delta: float, low: arb | None, high: Value) -> Opinion:
    lower, upper = 0.0 if low is None else max(0.0, _down(low)), min(1.0, _up(high.delta))
    if not lower <= upper:
        raise ArithmeticError(
            f"the second opinion contradicts itself: delta at epsilon {epsilon!r} is at least "
            f"{lower!r} and, by {high.method}, at most {upper!r}; nothing follows, please report it"
        )
    return Opinion(verdict, epsilon, delta, lower, upper, high.method)


def _down(value: arb) -> float:
    return math.nextafter(float(value.lower()), -math.inf)


def _up(value: arb) -> float:
    return math.nextafter(float(value.upper()), math.inf)


Route = Callable[[arb], Value | None]


@frozen(eq=False)
class _Case:
    """One multiset of losses, and the delta that is claimed."""

    losses: Sequence[tuple[Known, int]]
    delta: arb

    @property
    def scale(self) -> float:
        """About how large a delta is looked for."""
        return max(float(self.delta), 1e-300) if self.delta > 0 else 1e-40

    def floor(self, losses: Sequence[tuple[Known, int]]) -> arb:
        """Return the probability that any of the losses fails."""
        holds = ONE
        for each, times in losses:
            holds *= (1 - each.floor) ** times
        return 1 - holds

    def composed(
        self, losses: Sequence[tuple[Known, int]], epsilon: arb, *, closely: bool = False
    ) -> Value:
        """Return delta of the pairs together, of the costlier direction, with their floors."""
        floor = self.floor(losses)
        pairs = [(each.pair, times) for each, times in losses if each.pair is not None]
        value = delta_at(pairs, epsilon, self.scale, closely=closely)
        if any(pair.reverse() is not pair for pair, _ in pairs):
            back = [(pair.reverse(), n) for pair, n in pairs]
            other = delta_at(back, epsilon, self.scale, closely=closely)
            if not other.delta <= value.delta:
                method = value.method if value.method == CHORDS else other.method
                value = Value(value.delta.max(other.delta), method)
        return Value(floor + (1 - floor) * value.delta, value.method)

    @property
    def attained(self) -> list[tuple[Known, int]]:
        """Return those of the losses that some mechanism has, or what it has of them."""
        whole = [
            (each if each.attained else Known(pair=each.witness, attained=True), n)
            for each, n in self.losses
        ]
        return [(each, n) for each, n in whole if each.pair is not None]

    def truth(self, epsilon: arb) -> Value | None:
        """Return delta of what some mechanism attains; of a part of the losses, a lower bound."""
        each, times = self.losses[0]
        if len(self.losses) == times == 1 and each.alone:
            return self.composed(self.losses, epsilon)
        if all(each.attained for each, _ in self.losses):
            return self.composed(self.losses, epsilon)
        value = self.composed(self.attained, epsilon, closely=True) if self.attained else None
        some = [(each, n) for each, n in self.losses if each.attained]
        if some and value is not None and value.method == CHORDS:
            # of those alone whose pair is attained as it is, more may be known
            return self.composed(some, epsilon, closely=True)
        return value

    def least(self, epsilon: arb) -> Value:
        """Return a lower bound of delta of the same, by losses rounded down."""
        floor, best = self.floor(self.attained), ZERO
        pairs = [(each.pair, n) for each, n in self.attained if each.pair is not None]
        for way in (pairs, [(pair.reverse(), n) for pair, n in pairs]):
            found = lower_on_lattice(way, epsilon, self.scale)
            best = best if found is None else best.max(found)
        return Value(floor + (1 - floor) * best, "losses rounded down to a lattice")

    def routes(self, low: Value | None) -> list[Route]:
        """Return the ways to an upper bound of delta, the quick ones first."""
        ways: list[Route] = []
        if low is not None and all(each.attained for each, _ in self.losses):
            at_claim = [low]
            ways.append(lambda e: at_claim.pop() if at_claim else self.composed(self.losses, e))
            return [*ways, self.pure]
        pairs: list[Route] = []
        if all(each.pair is not None for each, _ in self.losses):
            pairs = [lambda e: self.composed(self.losses, e), self.chords]
        ways += [self.pure, self.single]
        if len(self.losses) == self.losses[0][1] == 1:
            # its own profile is quick, and its curve may be of integrals
            ways, pairs = [*ways, *pairs[:1]], pairs[1:]
        return [*ways, self.renyi, self.gaussian, *pairs, self.advanced]

    def chords(self, epsilon: arb) -> Value | None:
        """Return what chords of a bound of the profile prove: they may be below the bound."""
        pairs = [(each.pair, n) for each, n in self.losses if each.pair is not None]
        if not any(isinstance(pair, Bound) for pair, _ in pairs):
            return None
        first = pairs[0][0]
        if len(pairs) == pairs[0][1] == 1 and isinstance(first, Bound) and first.convex:
            return None
        floor = self.floor(self.losses)
        value = upper_on_lattice(pairs, epsilon, self.scale)
        if any(pair.reverse() is not pair for pair, _ in pairs):
            # the costlier direction: a bound of a profile holds for both
            other = upper_on_lattice(
                [(pair.reverse(), n) for pair, n in pairs], epsilon, self.scale
            )
            value = value.max(other)
        return Value(floor + (1 - floor) * value, "chords of the profiles")

    def pure(self, epsilon: arb) -> Value | None:
        """Return the floors, where the pure epsilons add up to no more (Dwork and Roth 2014)."""
        total = ZERO
        for each, times in self.losses:
            if each.pure is None:
                return None
            total += each.pure * times
        return (
            Value(self.floor(self.losses), "the sum of pure epsilons") if total <= epsilon else None
        )

    def single(self, epsilon: arb) -> Value | None:
        """Return what a loss alone knows of itself."""
        each, times = self.losses[0]
        if len(self.losses) > 1 or times > 1 or each.profile is None:
            return None
        return Value(each.profile(epsilon), "the loss's own profile")

    def renyi(self, epsilon: arb) -> Value | None:
        """Return what the sum of Renyi curves proves (Mironov 2017; Canonne et al. 2020)."""
        curves = [(each.curve(), times) for each, times in self.losses]
        if any(curve is None for curve, _ in curves):
            return None

        def total(order: arb) -> arb:
            return sum((curve(order) * n for curve, n in curves if curve is not None), ZERO)

        floor = self.floor(self.losses)
        value = floor + (1 - floor) * renyi_delta(total, epsilon)
        return Value(value, "Renyi divergences")

    def gaussian(self, epsilon: arb) -> Value | None:
        """Return what the squares of mu prove (Dong, Roth and Su 2022, Cor. 2)."""
        square = ZERO
        for each, times in self.losses:
            mu = each.best_mu()
            if mu is None:
                return None
            square += mu**2 * times
        floor = self.floor(self.losses)
        value = gaussian_profile(square.sqrt(), epsilon)
        return Value(floor + (1 - floor) * value, "Gaussian DP")

    def advanced(self, epsilon: arb) -> Value | None:
        """Return the optimal composition of (epsilon_i, delta_i) (Murtagh and Vadhan 2016)."""
        floor, pairs = self.floor(self.losses), list[tuple[Pair, int]]()
        unbounded = sum(n for each, n in self.losses if each.pure is None)
        for each, times in self.losses:
            if each.pure is not None:
                pairs.append((response_at(each.pure), times))
                continue
            if each.pair is None:
                return None
            share = positive(self.delta - floor) / (2 * unbounded)
            eps = _root(each.pair, share)
            if eps is None:
                return None
            floor += share * times
            pairs.append((response_at(eps), times))
        value = delta_at(pairs, epsilon, self.scale)
        return Value(floor + (1 - floor) * value.delta, "optimal composition")


def _root(pair: Pair, share: arb) -> arb | None:
    """Return an epsilon at which a pair's delta is at most a share; None where none is in reach."""
    sides = [pair] if pair.reverse() is pair else [pair, pair.reverse()]

    def holds(epsilon: arb) -> bool:
        return all(bool(side.profile(epsilon).upper() <= share) for side in sides)

    low, high = 0.0, 1.0
    while not holds(arb(high)):
        low, high = high, 2 * high
        if high > 1e4:
            return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(arb(middle)) else (middle, high)
    return arb(high)
