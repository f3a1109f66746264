"""What an audit found: a lower bound, its witness, and what the audit could have found."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from attrs import asdict, field, frozen

from accountants.errors import nonnegative
from accountants.guarantee import Points, implied, most
from accountants.numerics import shown
from adaptive_dp.audit.confidence import Band, Corner
from adaptive_dp.extensions import provided

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "adaptive-dp/audit/1"

Outcome = Literal["violation", "consistent", "underpowered"]
"""A claim is refuted; or not, by an audit that would have found worse; or by one too weak."""


@frozen
class Witness:
    """The event that tells the two sides apart the best.

    Parameters
    ----------
    pair
        The two data sets, in words.
    event
        The outcomes by which the auditor guesses, in words.
    right, wrong, tries
        How many of so many fresh runs, each of a side that a fair coin chose, the auditor guessed
        right, and wrong; on the others no guess was made. Of an audit by one run, how many of so
        many canaries.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> found = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> found.witness.pair, found.witness.right > found.witness.wrong
    ('0.0 against 1.0', True)
    """

    pair: str
    event: str
    right: int
    wrong: int
    tries: int


@frozen
class ProfilePoint:
    """One epsilon, with what was shown and what is claimed of delta.

    Parameters
    ----------
    epsilon
        In nats.
    shown
        A lower bound of delta. Those of all epsilon hold together with the audit's confidence.
    claimed
        At most this follows from the claim.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> found = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> [point.shown <= point.claimed for point in found.profile([0.0, 0.5, 1.0])]
    [True, True, True]
    """

    epsilon: float
    shown: float
    claimed: float


@frozen
class TradeoffPoint:
    """A threshold on the audit's score, as an event by which to guess a side.

    Parameters
    ----------
    guess, threshold
        "first" where the score is at least the threshold, "second" where it is below.
    wrong, right
        At most so often the guess is made on the other side, and at least so often on its own. The
        bounds of all thresholds hold together with the audit's confidence.
    claimed
        By the claim, what happens at most as often as ``wrong`` on one side happens at most so
        often on the other: where ``right`` is more, the claim is refuted.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> found = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> all(point.right <= point.claimed for point in found.tradeoff())
    True
    """

    guess: Literal["first", "second"]
    threshold: float
    wrong: float
    right: float
    claimed: float


@frozen(repr=False)
class Audit:
    """The result of an audit. It never says "private": only what was, or could have been, found.

    Parameters
    ----------
    claim
        What was claimed, in words.
    epsilon, delta
        The point of the claim that was tested; epsilon in nats. Of a curve, the learning draws
        chose it.
    epsilon_lower
        With the confidence, the true epsilon at ``delta`` is at least this; in nats.
    delta_lower
        With the confidence, the true delta at ``epsilon`` is at least this.
    mu_lower
        With the confidence, the mechanism is mu-GDP for no smaller mu; of an audit by one run only
        if the canaries are independent of each other. Never used in the verdict.
    confidence
        Over all pairs: that a claim that is kept is not refuted; of the lower bounds of epsilon and
        of mu, each by itself; and of that of delta and all points of `profile` and `tradeoff`,
        together.
    samples
        Runs on each side of each pair, on average; 1 of an audit by one run.
    pairs
        All pairs tried, in words.
    witness
        The event on which the bounds rest.
    verdict
        "violation" where the claim is refuted with the confidence; "underpowered" where even an
        epsilon of twice the claimed one (and one more) would have been missed; else "consistent".
    power
        The least epsilon at ``delta`` that this event, at so many samples, would have shown to
        exceed the claim with probability 0.9; infinite where none.
    assumptions
        What the audit took for granted.
    notes
        What else it saw.
    seconds
        The time it took.
    seed
        The seed of its randomness; None where that was the operating system's.
    tried
        What the tries are: "runs", or "canaries" of one run.
    claimed
        All points (epsilon, delta) of the claim.
    band
        How many of the fresh runs score at least each threshold; None of an audit by one run.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> found = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> found.verdict, 0.5 < found.epsilon_lower <= found.epsilon
    ('consistent', True)
    """

    claim: str
    epsilon: float
    delta: float
    epsilon_lower: float
    delta_lower: float
    mu_lower: float
    confidence: float
    samples: int
    pairs: tuple[str, ...]
    witness: Witness
    verdict: Outcome
    power: float
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, eq=False)
    seed: int | None = None
    tried: Literal["runs", "canaries"] = "runs"
    claimed: Points = ()
    band: Band | None = None

    def __bool__(self) -> bool:
        """Refuse: an audit is not a yes or no."""
        raise TypeError("an audit is no yes or no; look at its verdict")

    def tradeoff(self) -> tuple[TradeoffPoint, ...]:
        """Return what was shown of the trade-off: how often guesses are right, and how often wrong.

        A corner for each threshold of the band and each guess. Where one goes beyond what is
        claimed there, the verdict is a violation.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> found = dp.audit.mechanism(
        ...     dp.Laplace(scale=1), (0.0, 1.0), 1.0, samples=10_000, seed=1
        ... )
        >>> all(each.right <= each.claimed for each in found.tradeoff())
        True
        """
        return tuple(
            TradeoffPoint(
                each.guess, each.threshold, each.wrong, each.right, most(self.claimed, each.wrong)
            )
            for each in self._corners()
        )

    def profile(self, epsilons: Sequence[float] | None = None) -> tuple[ProfilePoint, ...]:
        """Return what was shown of the privacy profile: delta at each epsilon.

        Parameters
        ----------
        epsilons
            In nats, at least 0; by default 41 from 0 to somewhat above what was claimed and shown,
            and the one that was tested.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> found = dp.audit.mechanism(
        ...     dp.Laplace(scale=1), (0.0, 1.0), 1.0, samples=10_000, seed=1
        ... )
        >>> [round(each.claimed, 2) for each in found.profile([0.0, 0.5, 1.0])]
        [0.46, 0.29, 0.0]
        >>> all(each.shown <= each.claimed for each in found.profile())
        True
        """
        corners = self._corners()
        asked = self._epsilons() if epsilons is None else epsilons
        points = [nonnegative("epsilon", each) for each in asked]
        return tuple(
            ProfilePoint(e, self._delta(e, corners), implied(self.claimed, e)) for e in points
        )

    def _corners(self) -> tuple[Corner, ...]:
        return () if self.band is None else self.band.corners()

    def _epsilons(self) -> list[float]:
        highest = max(self.epsilon, self.epsilon_lower, 0.1) * 1.25
        return sorted({*(highest * k / 40 for k in range(41)), self.epsilon})

    def _delta(self, epsilon: float, corners: tuple[Corner, ...]) -> float:
        """Return the most that is shown: by the band, or by the event, for delta falls."""
        found = max((each.delta(epsilon) for each in corners), default=0.0)
        if epsilon <= self.epsilon:
            found = max(found, self.delta_lower)
        return max(found, self.delta) if epsilon < self.epsilon_lower else found

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values; infinity is the text "inf"."""
        found: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        found["tradeoff"] = [asdict(each) for each in self.tradeoff()]
        found["profile"] = [asdict(each) for each in self.profile()]
        return {
            name: "inf" if isinstance(value, float) and value == math.inf else value
            for name, value in found.items()
        }

    def to_json(self) -> str:
        """Return the JSON text."""
        return json.dumps(self.document(), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """Return what `__str__` shows: names and texts."""
        seen = self.witness
        many = self.tried == "runs"
        mu = shown(self.mu_lower, upward=False)
        epsilon, delta = (shown(bound, upward=True) for bound in (self.epsilon, self.delta))
        count = f"{self.samples} of each of {len(self.pairs)} pair(s)"
        rows = [
            ("verdict", self.verdict),
            ("claim", self.claim),
            ("tested at", f"epsilon {epsilon}, delta {delta}"),
            ("epsilon is at least", shown(self.epsilon_lower, upward=False)),
            ("delta is at least", shown(self.delta_lower, upward=False)),
            ("mu is at least", mu if many else f"{mu}, if canaries are independent of each other"),
            ("confidence", f"{self.confidence:g}"),
            ("would have found", f"epsilon {shown(self.power, upward=True)}, with probability 0.9"),
            ("pair", seen.pair),
            ("event", seen.event),
            ("guesses", f"{seen.right} right, {seen.wrong} wrong, of {seen.tries} {self.tried}"),
            ("runs on each side", count) if many else ("runs", "1"),
        ]
        rows += [("assumes", text) for text in self.assumptions]
        rows += [("note", text) for text in self.notes]
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)

    def __repr__(self) -> str:
        return (
            f"<audit {self.verdict}: epsilon at least {shown(self.epsilon_lower, upward=False)} "
            f"at delta {self.delta:g}, claimed {self.epsilon:.6g}>"
        )

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in self.rows()
        )
        return f"<table>{cells}</table>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what is claimed, what was shown, and what would have been found.

        Needs matplotlib: ``pip install "adaptive-dp[report]"``.
        """
        axes: Axes = provided("report.plot.audit")(self, ax=ax)
        return axes
