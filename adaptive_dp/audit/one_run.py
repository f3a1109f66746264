"""Rows that stand out, for audits by one run: each is planted, or left out, by a coin of its own.

None of them changes what an audit may conclude. They change how much it finds: best are rows whose
gradients are long and at right angles to each other, or that move an answer by themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from accountants.errors import DomainError, whole
from accountants.numerics import Array
from adaptive_dp.audit import confidence as bounds
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.neighbors import check_seed, stream
from adaptive_dp.audit.result import Audit, Outcome, Witness
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.queries.domains import Categories, Interval, Table

Canaries = dict[str, NDArray[Any]]


def corners(table: Handle, count: int, *, seed: int | None = None) -> Canaries:
    """Return rows at random corners of what a data set declares; they know no data.

    A number is its lower or upper bound, a category any of the declared, each with equal chances:
    of many numbers, gradients then point in random directions, nearly at right angles.

    Parameters
    ----------
    table
        A data set, all of whose columns but the unit's have bounds or categories.
    count
        m, how many rows.
    seed
        Of the choices.

    Returns
    -------
    dict
        Columns of shape (m,), by name.

    Raises
    ------
    DeclarationError
        If a column has neither bounds nor categories.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 90), "region": ["A", "B"]})
    >>> {name: column.tolist() for name, column in corners(people, 3, seed=0).items()}
    {'age': [90.0, 90.0, 90.0], 'region': ['A', 'A', 'A']}
    """
    domain = table.domain
    if not isinstance(domain, Table):
        raise DeclarationError(f"corners are of a data set's rows, got {table!r}")
    m, draw = whole("count", count, least=1), np.random.default_rng(check_seed(seed))
    found = {}
    for name, declared in domain.columns.items():
        if name == domain.unit:
            continue
        if declared is None:
            raise DeclarationError(
                f"column {name!r} of {domain.name!r} has neither bounds nor categories, so it has "
                "no corners; declare them, or make canaries of your own"
            )
        values: Sequence[Any] = ()
        if isinstance(declared, Interval):
            values = (declared.lower, declared.upper)
        elif isinstance(declared, Categories):
            values = declared.values
        found[name] = np.asarray(values)[draw.integers(len(values), size=m)]
    return found


def mislabeled(
    rows: Mapping[str, Any],
    target: str,
    values: Sequence[Any],
    count: int,
    *,
    seed: int | None = None,
) -> Canaries:
    """Return copies of rows with a label that is not theirs.

    For learners, copies of the data's own rows; for teachers that vote, copies of the questions,
    where one teacher's vote is to be moved.

    Parameters
    ----------
    rows
        Columns by name, each of shape (n,), the label's among them.
    target
        The label's column.
    values
        The labels that there are, at least two.
    count
        m, how many: each of another row, in random order; at most n.
    seed
        Of the choices.

    Raises
    ------
    DomainError
        If there are fewer rows than asked for, or fewer than two labels.

    Examples
    --------
    >>> mislabeled({"x": [1, 2, 3], "y": ["a", "b", "a"]}, "y", ["a", "b"], 3, seed=0)["y"].size
    3
    """
    columns = {name: np.asarray(column) for name, column in rows.items()}
    if target not in columns:
        raise DomainError(f"the label {target!r} is not among the columns {sorted(columns)}")
    known = list(values)
    size, m = len(columns[target]), whole("count", count, least=1)
    if len(known) < 2 or len(set(known)) < len(known):
        raise DomainError(f"values must be at least two different labels, got {len(known)}")
    if m > size:
        raise DomainError(f"count must be at most the number of rows, {size}, got {m}")
    if not set(columns[target].tolist()) <= set(known):
        raise DomainError(f"values must hold every label of the rows, got {len(known)} values")
    draw = np.random.default_rng(check_seed(seed))
    which = draw.permutation(size)[:m]
    found = {name: column[which] for name, column in columns.items()}
    steps = draw.integers(1, len(known), size=m)
    place = {label: i for i, label in enumerate(known)}
    pairs = zip(found[target].tolist(), steps.tolist(), strict=True)
    wrong = [known[(place[label] + step) % len(known)] for label, step in pairs]
    return {**found, target: np.asarray(wrong)}


# -----------------------------------------------------------------------------
# Audits by one run: many canaries, each in the data or not by a fair coin of its own.
#
# The auditor guesses of each canary, or of some, whether it was in. If the mechanism is
# (epsilon, delta)-DP for each canary, in or out, of v right guesses of r, among m canaries,
#
# ``P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i``, B ~ Bin(r, q),
#
# with ``q = 1 / (1 + e^-epsilon)``, whatever function of the released values guesses (Steinke, Nasr
# and Jagielski 2023, "Privacy auditing with one (1) training run", the main theorem and its
# algorithm). For delta = 0, in short: given all that was released and the canaries before, each
# coin
# is known no better than with the odds e^epsilon, so right guesses are stochastically below B.
#
# *The reading as Gaussian DP* takes more for granted: that pairs of a coin and a score are
# independent of each other. Given all scores, coins then are independent, each known with a chance
# that its own score alone decides; so whatever rule guesses by the scores, also one that is fitted
# to
# them, right guesses are stochastically below the best rule's, one for each canary, and under mu-
# GDP
# these are Bernoulli with at most ``Phi(mu / 2)`` (own proof). That a claim (epsilon, delta) is
# that
# of a mu takes the trade-off to be Gaussian. It is evidence, and never makes a verdict.


Train = Callable[[NDArray[np.bool_]], ArrayLike]
"""``train(included)``: one run on the canaries that are in; a score for each, larger where in."""

GUESSED_PARTS = (1.0, 0.5, 0.1)
"""Guesses are made of all canaries, and of these parts with the clearest scores."""

INDEPENDENCE = (
    "of the reading as Gaussian DP alone: canaries are independent, and the trade-off is Gaussian"
)
_MAX_EPSILON = 60.0
_SLACK = 1 + 1e-9


def guess_probability(right: int, made: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound of the probability of so many right guesses under (epsilon, delta)-DP.

    Parameters
    ----------
    right, made, canaries
        v, r and m: whole numbers, ``0 <= right <= made <= canaries``.
    epsilon, delta
        The claim for each canary.

    Examples
    --------
    >>> chance(2, 2, 2, epsilon=0.0, delta=0.0)
    0.25000000...
    """
    from scipy import stats  # here: it takes long to import

    if not 0 <= right <= made <= canaries:
        raise DomainError(
            f"guesses must be 0 <= right <= made <= canaries, got {right}, {made}, {canaries}"
        )
    q = 1 / (1 + math.exp(-epsilon))
    found = float(stats.binom.sf(right - 1, made, q))
    if delta > 0 and right > 0:
        masses = stats.binom.pmf(np.arange(right - 1, -1, -1), made, q)
        rates = np.cumsum(masses) / np.arange(1, right + 1)
        found += 2 * canaries * delta * float(rates.max())
    return min(1.0, found * _SLACK)


def least_epsilon(right: int, made: int, canaries: int, delta: float, share: float) -> float:
    """Return the epsilon below which so many right guesses have a chance of at most ``share``."""
    if guess_probability(right, made, canaries, 0.0, delta) > share:
        return 0.0
    low, high = 0.0, _MAX_EPSILON
    if guess_probability(right, made, canaries, high, delta) <= share:
        return high
    while high - low > 1e-7:
        middle = (low + high) / 2
        refuted = guess_probability(right, made, canaries, middle, delta) <= share
        low, high = (middle, high) if refuted else (low, middle)
    return low


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which Gaussian DP gives (epsilon, delta) (Balle and Wang 2018)."""
    from scipy import optimize  # here: it takes long to import

    def over(mu: float) -> float:
        a, b = special.log_ndtr(mu / 2 - epsilon / mu), special.log_ndtr(-mu / 2 - epsilon / mu)
        return float(math.exp(a) - math.exp(epsilon + b)) - delta

    least = 1e-12
    if over(least) >= 0:
        return least
    return float(optimize.brentq(over, least, 2 * math.sqrt(epsilon + 1) + 40, xtol=1e-12))


def one_run(
    train: Train,
    canaries: int,
    claim: Claimed | Claim,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
) -> Audit:
    """Audit a trained model, or anything that runs long, by a single run.

    Parameters
    ----------
    train
        Runs once on the canaries that are in, and returns a score for each canary, shape (m,): such
        as the product of its gradient and the sum of all updates. The scores must come from what is
        released, and know nothing else of who is in.
    canaries
        m, how many: a thousand show an epsilon up to about 5, whatever the truth.
    claim
        (epsilon, delta), or a certificate, for one canary that is in or out.
    confidence
        Of the lower bound on epsilon.
    seed
        Of the coins; by default the operating system's randomness.

    Returns
    -------
    Audit
        Its verdict rests on the theorem above alone. `mu_lower` and a note on it assume more.

    Raises
    ------
    DomainError
        If a parameter is out of its domain, the claim is a curve, or scores have another shape.

    References
    ----------
    Steinke, Nasr and Jagielski 2023, the main theorem.

    Examples
    --------
    >>> def respond(included):  # randomized response with an epsilon of 4, and a claim of 1
    ...     rng = np.random.default_rng(0)
    ...     lies = rng.random(len(included)) < 1 / (1 + np.exp(4))
    ...     return included ^ lies
    >>> one_run(respond, 1000, (1.0, 0.0), seed=0).verdict
    'violation'
    """
    begun = time.perf_counter()
    m = whole("canaries", canaries, least=10)
    held = as_claim(claim)
    if len(held.points) != 1:
        raise DomainError(
            f"one run tests one point, got {held.words}, which is a curve; claim (epsilon, delta) "
            "at a delta of it"
        )
    epsilon, delta = held.points[0]
    error, seed = allowed_error(confidence), check_seed(seed)
    included = stream(seed, 0).bernoulli(0.5, m)
    scores = _check_scores(train(included.copy()), m)
    away = scores - _midpoint(scores)
    right = (away > 0) == included
    order = np.argsort(-np.abs(away), kind="stable")
    share = error / len(GUESSED_PARTS)
    tried = []
    for part in GUESSED_PARTS:
        made = max(1, round(part * m))
        hits = int(np.count_nonzero(right[order[:made]]))
        tried.append((least_epsilon(hits, made, m, delta, share), hits, made))
    lower, hits, made = max(tried)
    mu = bounds.mu_of_all(int(np.count_nonzero(right)), m, error)
    power = _detectable_epsilon(m, epsilon, delta, share)
    verdict: Outcome = "consistent" if power <= 2 * epsilon + 1 else "underpowered"
    notes = [f"one run shows an epsilon of {least_epsilon(m, m, m, delta, share):.3g} at most"]
    if epsilon > 0 and 0 < delta < 1:
        limit = gaussian_mu(epsilon, delta)
        word = "evidence against the claim, no proof" if mu > limit else "no evidence"
        notes.append(f"{word}: mu is at least {mu:.4g}, the claim would be that of {limit:.4g}")
    return Audit(
        claim=f"epsilon {epsilon:g} at delta {delta:g} for each canary",
        epsilon=epsilon,
        delta=delta,
        epsilon_lower=lower,
        delta_lower=0.0,
        mu_lower=mu,
        confidence=confidence,
        samples=1,
        pairs=(f"each of {m} canaries in or out",),
        witness=Witness(
            f"each of {m} canaries in or out",
            f"the {made} canaries with the clearest scores: in where above the middle",
            hits,
            made - hits,
            m,
        ),
        verdict="violation" if lower > epsilon else verdict,
        power=power,
        assumptions=("the scores are made from released values alone", INDEPENDENCE),
        notes=tuple(notes),
        seconds=time.perf_counter() - begun,
        seed=seed,
        tried="canaries",
        claimed=held.points,
    )


def _check_scores(scores: ArrayLike, m: int) -> Array:
    """Return scores that can be added up; NaN is the least."""
    rule, uneven = f"train must return {m} scores, real numbers", False
    try:
        found = np.asarray(scores)
    except ValueError:
        uneven = True
    if uneven:
        raise DomainError(f"{rule}, got lists of different lengths")
    if found.shape != (m,):
        raise DomainError(f"{rule}, got an array of shape {found.shape}")
    if found.dtype.kind not in "biuf":
        raise DomainError(f"{rule}, got values of type {found.dtype}")
    numbers: Array = np.nan_to_num(found.astype(np.float64), nan=-1e300)
    return np.clip(numbers, -1e300, 1e300)


def _midpoint(scores: Array) -> float:
    """Return the middle between two clusters of scores: where two means meet."""
    middle = float(np.median(scores))
    below = scores[scores < middle]
    if len(below) and not (scores > middle).any():  # most scores are equal, and the largest
        middle = middle / 2 + float(below.max()) / 2
    for _ in range(20):
        above = scores > middle
        if above.all() or not above.any():
            break
        again = float(scores[above].mean() / 2 + scores[~above].mean() / 2)
        if again == middle:
            break
        middle = again
    return middle


def _detectable_epsilon(m: int, claimed: float, delta: float, share: float) -> float:
    """Return the least epsilon of randomized responses that all guesses would mostly show."""
    from scipy import stats  # here: it takes long to import

    def shown(value: float) -> bool:
        hits = int(stats.binom.ppf(0.1, m, 1 / (1 + math.exp(-value))))
        return guess_probability(hits, m, m, claimed, delta) <= share

    low, high = claimed, _MAX_EPSILON
    if low >= high or not shown(high):
        return math.inf
    while high - low > 1e-4 * (1 + low):
        middle = (low + high) / 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high
