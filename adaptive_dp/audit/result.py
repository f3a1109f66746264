"""The result of an audit: lower bounds, the event that shows them, and the audit's power."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from attrs import asdict, field, frozen

from accountants.document import write_float
from accountants.errors import nonnegative
from accountants.guarantee import Points, implied, largest_probability
from accountants.numerics import shown
from adaptive_dp.audit.confidence import Band, Corner
from adaptive_dp.extensions import provided

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "adaptive-dp/audit/1"

Outcome = Literal["violation", "suspected", "consistent", "underpowered"]
"""The claim is refuted ("violation"), of one run under assumptions that the result states
("suspected"); not refuted by an audit that would have refuted a much larger epsilon ("consistent");
or the audit was too weak to tell ("underpowered")."""


POWER_HOLDS = "with probability 0.9, if it shows in this event on this pair"
"""What the power of an audit is limited to: a leak that no pair shows has none."""


def false_alarms(confidence: float) -> str:
    """Return in words how often an audit refutes a claim that holds.

    Examples
    --------
    >>> false_alarms(0.999)
    'of 1,000 audits of claims that hold, at most 1 refutes one on average'
    """
    # in exact decimals: 1 - 0.999 is above 0.001 in floats
    rate = 1 - Decimal(repr(confidence))
    audits = max(1, int(1 / rate))
    return f"of {audits:,} audits of claims that hold, at most 1 refutes one on average"


@frozen
class Witness:
    """The event on which the bounds of an audit rest, and how often guesses by it were right.

    Parameters
    ----------
    pair
        The two data sets, in words.
    event
        The outcomes by which the auditor guesses, in words.
    right, wrong, tries
        Numbers of test runs: on how many the auditor guessed the data set, chosen by a fair random
        bit, right and wrong, and how many there were; on the others no guess was made. Of an audit
        by one run, numbers of canaries.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> audit = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> audit.witness.pair, audit.witness.right > audit.witness.wrong
    ('0.0 against 1.0', True)
    """

    pair: str
    event: str
    right: int
    wrong: int
    tries: int


@frozen
class ProfilePoint:
    """A point of the privacy profile: the delta that was shown, and the one claimed, at an epsilon.

    Parameters
    ----------
    epsilon
        In nats.
    shown
        A lower bound of delta. Those at all epsilon hold together with the audit's confidence.
    claimed
        The upper bound of delta that follows from the claim.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> audit = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> [point.shown <= point.claimed for point in audit.profile([0.0, 0.5, 1.0])]
    [True, True, True]
    """

    epsilon: float
    shown: float
    claimed: float


@frozen
class TradeoffPoint:
    """A point of the trade-off curve: how often guesses by one threshold are right and wrong.

    Parameters
    ----------
    guess, threshold
        "first" where the score is at least the threshold, "second" where it is below.
    wrong, right
        An upper bound of the probability of the guess on the other data set, and a lower bound of
        its probability on its own. The bounds of all thresholds hold together with the audit's
        confidence.
    claimed
        The largest probability that the claim allows, on one data set, for an event of probability
        ``wrong`` on the other: where ``right`` is larger, the claim is refuted.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> audit = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> all(point.right <= point.claimed for point in audit.tradeoff())
    True
    """

    guess: Literal["first", "second"]
    threshold: float
    wrong: float
    right: float
    claimed: float


@frozen(repr=False)
class Audit:
    """The result of an audit: lower bounds on what a mechanism leaks. It never proves privacy.

    Parameters
    ----------
    claim
        The claim as a sentence.
    epsilon, delta
        The point of the claim that was tested; epsilon in nats. Of a curve, the point that the
        learning draws chose.
    epsilon_lower
        With the confidence, the true epsilon at ``delta`` is at least this; in nats.
    delta_lower
        With the confidence, the true delta at ``epsilon`` is at least this.
    mu_lower
        With the confidence, the mechanism is mu-GDP for no smaller mu; of an audit by one run only
        if the canaries are independent of each other. It decides a verdict "suspected" alone.
    confidence
        Over all pairs, the probability that a true claim is not refuted; that the lower bound of
        epsilon holds, and that of mu, each by itself; and that the lower bound of delta and all
        points of `profile` and `tradeoff` hold together.
    samples
        Runs on each data set of each pair, on average; 1 of an audit by one run.
    pairs
        All pairs tried, in words.
    witness
        The event on which the bounds rest.
    verdict
        "violation" where the claim is refuted with the confidence; "suspected" where one run does
        so if canaries are independent and the trade-off is Gaussian; "underpowered" where even an
        epsilon of twice the claimed one (and one more) would have been missed; else "consistent".
    power
        The least true epsilon at ``delta`` that this event on this pair, with as many samples,
        would have shown to exceed the claim with probability 0.9; infinite where there is none. It
        says nothing of leaks that show on other pairs, or in other events.
    assumptions
        Premises of the bounds that the audit could not check.
    notes
        Other remarks.
    seconds
        The time it took.
    seed
        The seed of its randomness; None where that was the operating system's.
    tried
        What `witness` counts: "runs", or "canaries" of one run.
    claimed
        All points (epsilon, delta) of the claim.
    band
        How many of the test runs score at least each threshold; None for an audit by one run.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> audit = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=10_000, seed=1)
    >>> audit.verdict, 0.5 < audit.epsilon_lower <= audit.epsilon
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
        raise TypeError("an audit has no truth value; use its verdict")

    def tradeoff(self) -> tuple[TradeoffPoint, ...]:
        """Return bounds of the trade-off curve: a point for each threshold and each guess.

        Where the lower bound ``right`` is above ``claimed``, the claim is refuted.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> audit = dp.audit.mechanism(
        ...     dp.Laplace(scale=1), (0.0, 1.0), 1.0, samples=10_000, seed=1
        ... )
        >>> all(each.right <= each.claimed for each in audit.tradeoff())
        True
        """
        return tuple(
            TradeoffPoint(
                each.guess,
                each.threshold,
                each.wrong,
                each.right,
                largest_probability(self.claimed, each.wrong),
            )
            for each in self._corners()
        )

    def profile(self, epsilons: Sequence[float] | None = None) -> tuple[ProfilePoint, ...]:
        """Return lower bounds of the privacy profile: delta at each epsilon.

        Parameters
        ----------
        epsilons
            In nats, at least 0; by default 41 from 0 to somewhat above what was claimed and shown,
            and the one that was tested.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> audit = dp.audit.mechanism(
        ...     dp.Laplace(scale=1), (0.0, 1.0), 1.0, samples=10_000, seed=1
        ... )
        >>> [round(each.claimed, 2) for each in audit.profile([0.0, 0.5, 1.0])]
        [0.46, 0.29, 0.0]
        >>> all(each.shown <= each.claimed for each in audit.profile())
        True
        """
        corners = self._corners()
        chosen = self._epsilons() if epsilons is None else epsilons
        points = [nonnegative("epsilon", each) for each in chosen]
        return tuple(
            ProfilePoint(e, self._delta(e, corners), implied(self.claimed, e)) for e in points
        )

    def _corners(self) -> tuple[Corner, ...]:
        return () if self.band is None else self.band.corners()

    def _epsilons(self) -> list[float]:
        # somewhat beyond both, so that a curve shows where the two meet
        highest = max(self.epsilon, self.epsilon_lower, 0.1) * 1.25
        return sorted({*(highest * k / 40 for k in range(41)), self.epsilon})

    def _delta(self, epsilon: float, corners: tuple[Corner, ...]) -> float:
        """Return the larger of the band's and the event's lower bounds of delta."""
        # the best of the corners: all of them hold together
        largest = max((each.delta(epsilon) for each in corners), default=0.0)
        # the privacy profile falls in epsilon: a lower bound at one epsilon holds at smaller ones
        if epsilon <= self.epsilon:
            largest = max(largest, self.delta_lower)
        # epsilon at `delta` is above this one: so delta at this one is above `delta`
        return max(largest, self.delta) if epsilon < self.epsilon_lower else largest

    def document(self) -> dict[str, Any]:
        """Return all fields, the trade-off and the profile as JSON values.

        Floats are written by `accountants.document.write_float`: infinity is ``{"float": "inf"}``.
        """
        fields: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        fields["tradeoff"] = [asdict(point) for point in self.tradeoff()]
        fields["profile"] = [asdict(point) for point in self.profile()]
        return {
            name: write_float(value) if isinstance(value, float) else value
            for name, value in fields.items()
        }

    def to_json(self) -> str:
        """Return the document as a JSON str."""
        return json.dumps(self.document(), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines that `__str__` shows: pairs of a name and a str."""
        witness = self.witness
        is_repeated = self.tried == "runs"
        # each bound is rounded so that it stays one: lower ones down, claims and power up
        mu = shown(self.mu_lower, upward=False)
        epsilon, delta = (shown(bound, upward=True) for bound in (self.epsilon, self.delta))
        count = f"{self.samples} of each of {len(self.pairs)} pair(s)"
        rows = [
            ("verdict", self.verdict),
            ("claim", self.claim),
            ("tested at", f"epsilon {epsilon}, delta {delta}"),
            ("epsilon is at least", shown(self.epsilon_lower, upward=False)),
            ("delta is at least", shown(self.delta_lower, upward=False)),
            (
                "mu is at least",
                mu if is_repeated else f"{mu}, if canaries are independent of each other",
            ),
            ("confidence", f"{self.confidence:g}: {false_alarms(self.confidence)}"),
            ("would have found", f"epsilon {shown(self.power, upward=True)}, {POWER_HOLDS}"),
            ("pair", witness.pair),
            ("event", witness.event),
            (
                "guesses",
                f"{witness.right} right, {witness.wrong} wrong, of {witness.tries} {self.tried}",
            ),
            ("runs on each data set", count) if is_repeated else ("runs", "1"),
        ]
        rows += [("assumes", each) for each in self.assumptions]
        rows += [("note", each) for each in self.notes]
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)

    def __repr__(self) -> str:
        return (
            f"<audit {self.verdict}: epsilon at least {shown(self.epsilon_lower, upward=False)} "
            f"at delta {self.delta:g}, claimed {self.epsilon:.6g}>"
        )

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{cells}</table>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the claimed epsilon, its lower bound, and the least that would have been audit.

        Needs matplotlib: ``pip install "adaptive-dp[report]"``.
        """
        axes: Axes = provided("report.plot.audit")(self, ax=ax)
        return axes
