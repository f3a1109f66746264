"""Audits by one run: canaries, and the theorem that bounds how many can be guessed.

Which rows are canaries affects the power of an audit, not its validity: best are rows whose
gradients are long and orthogonal to each other, or that change an answer by themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from accountants.errors import DomainError, integer
from accountants.numerics import Array
from adaptive_dp.audit import confidence as bounds
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.neighbors import check_seed, stream
from adaptive_dp.audit.result import Audit, Outcome, Witness
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.queries.domains import (
    Categories,
    Dates,
    Interval,
    Strings,
    Table,
    Tensors,
    as_date,
)

Canaries = dict[str, NDArray[Any]]


def corners(table: Handle, count: int, *, seed: int | None = None) -> Canaries:
    """Return canaries at random corners of a data set's declared domain; no data is read.

    A number is its lower or upper bound, a category any of the declared ones, with equal
    probabilities: with many numeric columns, gradients are then nearly orthogonal.

    Parameters
    ----------
    table
        A data set; all columns but the unit's have bounds or categories.
    count
        m, the number of rows.
    seed
        Of the random choices.

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
        raise DeclarationError(f"corners needs a data set (dp.dataset), got {table!r}")
    m, draw = integer("count", count, least=1), np.random.default_rng(check_seed(seed))
    columns = {}
    for name, column in domain.columns.items():
        # each canary gets a unit of its own when it is planted
        if name == domain.unit:
            continue
        if column is None or isinstance(column, Strings):
            raise DeclarationError(
                f"column {name!r} of {domain.name!r} has neither bounds nor categories, so it has "
                "no corners; declare them, or pass rows of your own as canaries"
            )
        values: Sequence[Any] = ()
        if isinstance(column, Dates):
            values = (as_date(column.lower), as_date(column.upper))
        elif isinstance(column, Interval):
            values = (column.lower, column.upper)
        elif isinstance(column, Categories):
            values = column.values
        elif isinstance(column, Tensors):
            # each number of a tensor at a bound of its own
            upper = draw.integers(2, size=(m, *column.shape)) == 1
            columns[name] = np.where(upper, column.upper, column.lower)
            continue
        # an independent corner for each canary and column
        columns[name] = np.asarray(values)[draw.integers(len(values), size=m)]
    return columns


def mislabeled(
    rows: Mapping[str, Any],
    target: str,
    values: Sequence[Any],
    count: int,
    *,
    seed: int | None = None,
) -> Canaries:
    """Return canaries that are copies of rows with a wrong label.

    For learners, copies of the data's own rows; for PATE, copies of the questions, so that the
    vote of one teacher changes.

    Parameters
    ----------
    rows
        Columns by name, each of shape (n,), including the label's.
    target
        The label's column.
    values
        All labels, at least two.
    count
        m, the number of canaries, copies of different rows in random order; at most n.
    seed
        Of the random choices.

    Returns
    -------
    dict
        Columns of shape (m,), by name.

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
    labels = list(values)
    size, m = len(columns[target]), integer("count", count, least=1)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise DomainError(f"values must be at least two different labels, got {len(labels)}")
    if m > size:
        raise DomainError(f"count must be at most the number of rows, {size}, got {m}")
    if not set(columns[target].tolist()) <= set(labels):
        raise DomainError(f"values must hold every label of the rows, got {len(labels)} values")
    draw = np.random.default_rng(check_seed(seed))
    # different rows, so that no two canaries share a gradient by being copies of one row
    chosen = draw.permutation(size)[:m]
    copies = {name: column[chosen] for name, column in columns.items()}
    # a step of 1 to k - 1 around the circle of k labels never returns to the right one
    steps = draw.integers(1, len(labels), size=m)
    position = {label: i for i, label in enumerate(labels)}
    pairs = zip(copies[target].tolist(), steps.tolist(), strict=True)
    wrong = [labels[(position[label] + step) % len(labels)] for label, step in pairs]
    return {**copies, target: np.asarray(wrong)}


# -----------------------------------------------------------------------------
# Audits by one run: many canaries, each included or not by a fair random bit of its own.
#
# The order of the protocol: the bits are drawn first; the mechanism runs once on the included
# canaries; a score for each canary is computed from the released values, without the bits; then the
# auditor guesses of each canary, or of those with the clearest scores, whether it was included. The
# bits are compared with the guesses last.
#
# *Theorem* (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", the
# main theorem and its algorithm). If the mechanism is (epsilon, delta)-DP for each canary, in or
# out, then of v right guesses out of r, among m canaries,
#
# ``P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i``, B ~ Bin(r, q),
#
# with ``q = 1 / (1 + e^-epsilon)``, whatever function of the released values guesses. For
# delta = 0, in short: given all that was released and the earlier canaries, the odds of each bit
# are at most e^epsilon, so the number of right guesses is stochastically below B.
#
# *Gaussian DP* takes more for granted: that pairs of a bit and a score are independent of each
# other. Given all scores, the bits then are independent, each with a conditional law that its own
# score alone decides; so whatever rule guesses by the scores, also one that is fitted to them, the
# number of right guesses is stochastically below that of the best rule, a sum of one Bernoulli
# variable for each canary, and under mu-GDP each of these has probability at most ``Phi(mu / 2)``
# (own proof). That a claim (epsilon, delta) is that of a mu takes the trade-off to be Gaussian. So
# where the theorem does not refute and this reading does, the verdict is "suspected": under the two
# premises a claim that holds is suspected with the probability that the confidence leaves.


Train = Callable[[NDArray[np.bool_]], ArrayLike]
"""``train(included)``: run once on the included canaries; return a score for each of all canaries.

Scores must be larger where a canary seems to be in.
"""

GUESSED_PARTS = (1.0, 0.5, 0.1)
"""Guesses are made for these fractions of the canaries, those with the clearest scores; the error
probability is divided among the fractions (union bound)."""

INDEPENDENCE = (
    "of the reading as Gaussian DP alone: canaries are independent, and the trade-off is Gaussian"
)
_MAX_EPSILON = 60.0
_SLACK = 1 + 1e-9


def guess_probability(
    right: int, guessed: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Return an upper bound of the probability of so many right guesses under (epsilon, delta)-DP.

    Parameters
    ----------
    right, guessed, canaries
        v, r and m: ints, ``0 <= right <= guessed <= canaries``.
    epsilon, delta
        The claim for each canary.

    Examples
    --------
    >>> guess_probability(2, 2, 2, epsilon=0.0, delta=0.0)
    0.25000000...
    """
    from scipy import stats  # here: it takes long to import

    if not 0 <= right <= guessed <= canaries:
        raise DomainError(
            f"guesses must be 0 <= right <= guessed <= canaries, got {right}, {guessed}, {canaries}"
        )
    q = 1 / (1 + math.exp(-epsilon))
    # P[B >= v], the survival function being that of B > v - 1
    bound = float(stats.binom.sf(right - 1, guessed, q))
    if delta > 0 and right > 0:
        # the theorem's second term: masses[i - 1] = P[B = v - i], so that the cumulative sum is
        # P[v > B >= v - i], and its largest mean over i is the maximum
        masses = stats.binom.pmf(np.arange(right - 1, -1, -1), guessed, q)
        rates = np.cumsum(masses) / np.arange(1, right + 1)
        bound += 2 * canaries * delta * float(rates.max())
    return min(1.0, bound * _SLACK)  # rounded up: the bound is an upper one


def least_epsilon(right: int, guessed: int, canaries: int, delta: float, share: float) -> float:
    """Return the epsilon below which so many right guesses have probability at most ``share``.

    By bisection; the lower end is returned, at which the guesses refute the claim. A mechanism with
    a smaller epsilon has this one too, so with confidence 1 - share the true epsilon is larger.
    """
    # not even epsilon 0 is refuted: the guesses show nothing
    if guess_probability(right, guessed, canaries, 0.0, delta) > share:
        return 0.0
    low, high = 0.0, _MAX_EPSILON
    if guess_probability(right, guessed, canaries, high, delta) <= share:
        return high
    # by bisection: low is refuted throughout, high is not
    while high - low > 1e-7:
        middle = (low + high) / 2
        refuted = guess_probability(right, guessed, canaries, middle, delta) <= share
        low, high = (middle, high) if refuted else (low, middle)
    return low


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which Gaussian DP gives (epsilon, delta) (Balle and Wang 2018)."""
    from scipy import optimize  # here: it takes long to import

    # Balle and Wang 2018, Thm 8: delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)
    def excess_delta(mu: float) -> float:
        # in logarithms, since e^eps alone may overflow where the product is small
        a, b = special.log_ndtr(mu / 2 - epsilon / mu), special.log_ndtr(-mu / 2 - epsilon / mu)
        return float(math.exp(a) - math.exp(epsilon + b)) - delta

    smallest = 1e-12
    # delta grows with mu, so no root is left to look for
    if excess_delta(smallest) >= 0:
        return smallest
    return float(
        optimize.brentq(excess_delta, smallest, 2 * math.sqrt(epsilon + 1) + 40, xtol=1e-12)
    )


def one_run(
    train: Train,
    canaries: int,
    claim: Claimed | Claim,
    *,
    confidence: float = 0.999,
    seed: int | None = None,
) -> Audit:
    """Audit a trained model, or anything that runs long, by a single run.

    Parameters
    ----------
    train
        Runs once on the included canaries, a bool array of shape (m,), and returns a score for each
        canary, shape (m,), such as the inner product of its gradient and the sum of all updates.
        Scores must be functions of released values, and know nothing else of who is included.
    canaries
        m, their number: a thousand can show an epsilon of at most about 5, whatever the truth.
    claim
        (epsilon, delta), or a certificate, for the presence of one canary.
    confidence
        Of the lower bound on epsilon, and by itself of that on mu.
    seed
        Of the random bits; by default the operating system's randomness.

    Returns
    -------
    Audit
        Its verdict "violation" rests on the theorem alone; "suspected" rests on the reading as
        Gaussian DP, which assumes more.

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
    started = time.perf_counter()
    m = integer("canaries", canaries, least=10)
    tested_claim = as_claim(claim)
    # the theorem bounds guesses at one point; choosing among several after the run would cost error
    if len(tested_claim.points) != 1:
        raise DomainError(
            f"one run tests one point, got {tested_claim.words}, which is a curve; claim (epsilon, "
            "delta) at a delta of it"
        )
    epsilon, delta = tested_claim.points[0]
    error, seed = allowed_error(confidence), check_seed(seed)
    # the bits come first, from a stream of their own; train gets a copy, so it cannot change them
    included = stream(seed, 0).bernoulli(0.5, m)
    scores = _check_scores(train(included.copy()), m)
    distances = scores - _midpoint(scores)
    # the only use of the bits: after all scores are fixed
    right = (distances > 0) == included
    # the clearest scores first; a stable order does not depend on the bits
    order = np.argsort(-np.abs(distances), kind="stable")
    share = error / len(GUESSED_PARTS)  # union bound: the best of the fractions is reported
    options = []
    for part in GUESSED_PARTS:
        guessed = max(1, round(part * m))
        hits = int(np.count_nonzero(right[order[:guessed]]))
        options.append((least_epsilon(hits, guessed, m, delta, share), hits, guessed))
    # the largest bound of the fractions, each of which holds with error `share`
    lower, hits, guessed = max(options)
    # a guess at every canary, so that the bound is that of a rule without abstentions
    mu = bounds.mu_of_all(int(np.count_nonzero(right)), m, error)
    power = _detectable_epsilon(m, epsilon, delta, share)
    # twice the claimed epsilon, and one more, must have been visible for "consistent"
    verdict: Outcome = "consistent" if power <= 2 * epsilon + 1 else "underpowered"
    # even if all guesses were right
    notes = [f"one run shows an epsilon of {least_epsilon(m, m, m, delta, share):.3g} at most"]
    if epsilon > 0 and 0 < delta < 1:
        limit = gaussian_mu(epsilon, delta)
        notes.append(f"as Gaussian DP: mu is at least {mu:.4g}, the claim is that of {limit:.4g}")
        if mu > limit:
            verdict = "suspected"
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
            f"the {guessed} canaries with the clearest scores: in where above the midpoint",
            hits,
            guessed - hits,
            m,
        ),
        verdict="violation" if lower > epsilon else verdict,
        power=power,
        assumptions=("the scores are made from released values alone", INDEPENDENCE),
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
        seed=seed,
        tried="canaries",
        claimed=tested_claim.points,
    )


def _check_scores(scores: ArrayLike, m: int) -> Array:
    """Return finite scores of shape (m,); NaN becomes the smallest."""
    rule = f"train must return {m} scores, real numbers"
    try:
        array = np.asarray(scores)
    except ValueError:
        raise DomainError(f"{rule}, got lists of different lengths") from None
    if array.shape != (m,):
        raise DomainError(f"{rule}, got an array of shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise DomainError(f"{rule}, got values of type {array.dtype}")
    # NaN says nothing of a canary's presence; huge scores must not overflow in sums
    numbers: Array = np.nan_to_num(array.astype(np.float64), nan=-1e300)
    return np.clip(numbers, -1e300, 1e300)


def _midpoint(scores: Array) -> float:
    """Return the midpoint between two clusters of scores (2-means); it may depend on all scores."""
    middle = float(np.median(scores))
    below = scores[scores < middle]
    if len(below) and not (scores > middle).any():  # most scores are equal, and the largest
        # then a mean of those above does not exist: start between the largest and the next below
        middle = middle / 2 + float(below.max()) / 2
    # Lloyd's iteration for two clusters; it ends early at a fixed point
    for _ in range(20):
        above = scores > middle
        if above.all() or not above.any():
            break
        # halved before the sum, which might overflow
        next_middle = float(scores[above].mean() / 2 + scores[~above].mean() / 2)
        if next_middle == middle:
            break
        middle = next_middle
    return middle


def _detectable_epsilon(m: int, claimed: float, delta: float, share: float) -> float:
    """Return the least epsilon of randomized response that guesses of all canaries would show.

    With probability 0.9; infinite where there is none up to `_MAX_EPSILON`.
    """
    from scipy import stats  # here: it takes long to import

    def exceeds_claim(value: float) -> bool:
        # the 0.1 quantile of right guesses: so many, or more, with probability 0.9
        hits = int(stats.binom.ppf(0.1, m, 1 / (1 + math.exp(-value))))
        return guess_probability(hits, m, m, claimed, delta) <= share

    return bounds.least_above(exceeds_claim, claimed, _MAX_EPSILON)
