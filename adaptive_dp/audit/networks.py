"""Audits of network trainings, the library's own and foreign ones: canaries' gradients and scores.

A *gradient canary* is a row whose clipped gradient is a chosen vector, mostly one along an axis of
its own (a Dirac canary). Such rows exist for any network: give it a parameter vector w that no
other row reads, and add ``<w, v>`` to the loss of canary v, whose other loss is off; its gradient
then is v. Of a network whose first layer is linear, a column that is 0 in all other rows will do.

*Scores.* Let canary i have the clipped gradient ``g_it`` in step t, and be in the step with
probability ``q_it`` where it is in the data. Then ``r_t - others - sum_i q_it g_it / 2`` is about
``sum_i c_i q_it g_it`` and noise, c_i being 1/2 of a canary that is in and -1/2 of one that is
out. With D the matrix of the rows ``q_it g_it`` of all steps side by side and s the deviation of
the noise, the linear estimate of least mean square error of c is ``(D D' + 4 s^2)^-1 D (r - ...)``.

A score affects the power of an audit alone, never its validity, so long as it is computed of
released values and of what is fixed before the bits are drawn. Choose it before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import ArrayLike, NDArray

from accountants.errors import DomainError, integer, positive
from accountants.numerics import Array
from adaptive_dp.audit.canaries import one_run
from adaptive_dp.audit.claims import Claim, Claimed
from adaptive_dp.audit.neighbors import check_seed
from adaptive_dp.audit.result import Audit


def gradient_canaries(
    count: int, size: int, *, norm: float = 1.0, seed: int | None = None
) -> Array:
    """Return gradients for canaries, each along an axis of its own: Dirac canaries.

    Gradients of different canaries are at right angles, so that no canary hides another.

    Parameters
    ----------
    count
        m, the number of canaries.
    size
        d, the number of parameters that canaries may move; at least ``count``.
    norm
        The length of each: the clipping threshold, or more.
    seed
        Of the random axes and signs.

    Returns
    -------
    numpy.ndarray
        Shape (m, d): in each row one number, ``norm`` or ``-norm``, and zeros.

    Raises
    ------
    DomainError
        If there are more canaries than axes, or the norm is not positive.

    References
    ----------
    Nasr et al. 2023, "Tight auditing of differentially private machine learning", Section 4;
    Steinke, Nasr and Jagielski 2023, Section 6.

    Examples
    --------
    >>> gradients = gradient_canaries(3, 5, norm=2.0, seed=0)
    >>> np.count_nonzero(gradients, axis=1).tolist(), np.linalg.norm(gradients, axis=1).tolist()
    ([1, 1, 1], [2.0, 2.0, 2.0])
    """
    m, d = integer("count", count, least=1), integer("size", size, least=1)
    length = positive("norm", norm)
    if m > d:
        raise DomainError(
            f"canaries along axes of their own need size to be at least count, got {m} canaries "
            f"and {d} axes"
        )
    draw = np.random.default_rng(check_seed(seed))
    gradients = np.zeros((m, d))
    gradients[np.arange(m), draw.permutation(d)[:m]] = length * (2 * draw.integers(2, size=m) - 1)
    return gradients


def gradient_scores(
    released: ArrayLike,
    gradients: ArrayLike,
    *,
    rate: ArrayLike = 1.0,
    others: ArrayLike = 0.0,
    noise: float = 0.0,
) -> Array:
    """Return a score for each canary from the sums of gradients that a training has released.

    Parameters
    ----------
    released
        Noisy sums of clipped gradients, one of each step, shape (T, d); or one vector, shape (d,),
        such as the initial parameters less the last ones, over the learning rate.
    gradients
        The canaries' clipped gradients, shape (m, d), or at each step's parameters, (T, m, d).
    rate
        The probability that a canary that is in the data is in a step's sample: a number, or shape
        (m, T), such as `unshuffled` returns.
    others
        What the other rows are expected to add, shape (d,) or (T, d).
    noise
        The deviation of the noise in each coordinate of a sum. It matters where gradients are not
        at right angles.

    Returns
    -------
    numpy.ndarray
        Shape (m,), larger where a canary seems to be in; not finite numbers count as zero.

    Raises
    ------
    DomainError
        If shapes do not fit.

    Examples
    --------
    >>> gradients = gradient_canaries(4, 6, seed=0)
    >>> released = gradients[0] + gradients[2]
    >>> (gradient_scores(released, gradients) > 0).tolist()
    [True, False, True, False]
    """
    steps, each = _shaped(released, gradients)
    (count, m), d = each.shape[:2], steps.shape[1]
    total = len(steps)
    try:
        rates = np.broadcast_to(np.asarray(rate, dtype=np.float64), (m, total))
        expected = np.broadcast_to(np.asarray(others, dtype=np.float64), (total, d))
    except ValueError:
        raise DomainError(
            f"rate must be a number or of shape ({m}, {total}), and others of shape ({d},) or "
            f"({total}, {d}), got {np.shape(rate)} and {np.shape(others)}"
        ) from None
    products = np.zeros(m)
    for t in range(total):
        own = each[t % count]
        # r - others - sum_i q_i g_i / 2: what is left of the release under fair bits
        residual = np.nan_to_num(steps[t] - expected[t], posinf=0.0, neginf=0.0)
        products += rates[:, t] * (own @ (residual - rates[:, t] @ own / 2))
    if count == 1:
        gram = (rates @ rates.T) * (each[0] @ each[0].T)
    else:
        gram = sum((r[:, None] * r) * (g @ g.T) for r, g in zip(rates.T, each, strict=True))
    # a little is added, so that canaries that are never in a step have the score 0
    ridge = 4 * float(noise) ** 2 + 1e-9 * max(1e-300, float(np.trace(gram)) / m)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(m), products))


def change_scores(released: ArrayLike, gradients: ArrayLike) -> Array:
    """Return scores that show a noise which is the same in each step, as of a seed used again.

    The difference of two steps' sums then has no noise: along a canary's gradient it is zero, but
    for a canary that is in the sample of one of them. The score is the mean square of the
    differences of successive steps.

    Parameters
    ----------
    released, gradients
        As of `gradient_scores`, of at least two steps. Samples must differ from step to step, or
        gradients: equal sums show nothing.

    Returns
    -------
    numpy.ndarray
        Shape (m,).

    Examples
    --------
    >>> gradients = gradient_canaries(3, 3, seed=0)
    >>> noise = np.random.default_rng(0).normal(size=3)
    >>> samples = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]])  # only the second canary is in
    >>> (change_scores(samples @ gradients + noise, gradients) > 1e-9).tolist()
    [False, True, False]
    """
    steps, each = _shaped(released, gradients)
    if len(steps) < 2:
        raise DomainError("changes need the sums of at least two steps, got one")
    if len(each) == 1:
        moved = np.diff(steps, axis=0) @ each[0].T
    else:
        moved = np.einsum("td,tmd->tm", np.diff(steps, axis=0), each[1:])
    return np.asarray(np.mean(np.nan_to_num(moved, posinf=0.0, neginf=0.0) ** 2, axis=0))


def _shaped(released: ArrayLike, gradients: ArrayLike) -> tuple[Array, Array]:
    """Return releases of shape (T, d) and gradients of shape (1, m, d) or (T, m, d)."""
    try:
        steps = np.atleast_2d(np.asarray(released, dtype=np.float64))
        each = np.asarray(gradients, dtype=np.float64)
    except (TypeError, ValueError):
        raise DomainError("released and gradients must be arrays of numbers") from None
    each = each[None] if each.ndim == 2 else each
    if (
        steps.ndim != 2
        or each.ndim != 3
        or each.shape[2] != steps.shape[1]
        or len(each) not in (1, len(steps))
    ):
        raise DomainError(
            "released must have the shape (steps, parameters) and gradients (canaries, parameters) "
            f"or (steps, canaries, parameters), got {np.shape(released)} and {np.shape(gradients)}"
        )
    return steps, each


def unshuffled(rows: int, canaries: int, batch_size: int, steps: int) -> Array:
    """Return how probable a canary is in each batch of a loader that does not shuffle.

    Such a loader takes the rows in their order, ``batch_size`` at a time, from the first again
    after the last. Canaries come after the other rows; where one lies depends on how many of those
    before it are in: 200 draws of public bits decide.

    Parameters
    ----------
    rows, canaries
        How many rows there are beside the canaries, and m.
    batch_size, steps
        Of the loader, and T.

    Returns
    -------
    numpy.ndarray
        The ``rate`` of `gradient_scores`, shape (m, T).

    Examples
    --------
    >>> unshuffled(4, 2, batch_size=2, steps=6).round().tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]]
    """
    n, m = integer("rows", rows, least=0), integer("canaries", canaries, least=1)
    size, total = integer("batch_size", batch_size, least=1), integer("steps", steps, least=1)
    draw, draws = np.random.default_rng(0), 200
    seen, present = np.zeros((m, total)), np.zeros(m)
    for _ in range(draws):
        included = draw.random(m) < 0.5
        place = n + np.cumsum(included) - 1
        batches = -(-max(1, n + int(included.sum())) // size)
        present += included
        first = place // size
        for start in range(0, total, batches):
            step = start + first
            inside = included & (step < total)
            seen[inside, step[inside]] += 1
    return np.asarray(seen / np.maximum(present, 1)[:, None])


def training(
    train: Callable[[dict[str, NDArray[Any]]], Any],
    canaries: Mapping[str, Any],
    claim: Claimed | Claim,
    score: Callable[[Any], ArrayLike],
    *,
    rows: Mapping[str, Any] | None = None,
    confidence: float = 0.999,
    seed: int | None = None,
) -> Audit:
    """Audit a training function, of this library or another, by one run with canaries in its data.

    Parameters
    ----------
    train
        Called once, with columns: the other rows and, after them, the canaries that are in.
        Returns whatever is released, such as parameters or a list of noisy sums of gradients.
    canaries
        Columns of m rows, such as `mislabeled` returns, or rows with the gradients of
        `gradient_canaries`. Each is in with probability 1/2.
    claim
        (epsilon, delta), or a certificate, for the presence of one row.
    score
        A function of what ``train`` returned, that returns a number for each canary, shape (m,),
        larger where it seems to be in, such as `gradient_scores` or minus the loss of each. It may
        know all rows, and must not know which canaries are in.
    rows
        The other rows: columns of the same names.
    confidence, seed
        As of `one_run`. The randomness of ``train`` is its own.

    Returns
    -------
    Audit
        As `one_run` returns it: "violation" rests on its theorem, "suspected" on the reading as
        Gaussian DP.

    Raises
    ------
    DomainError
        If columns do not fit each other, there are fewer than 10 canaries, or scores have another
        shape.

    See Also
    --------
    planted : the same of a plan, whose certificate is the claim.
    callable : by many calls of a function on two data sets, for what few rows show.

    Examples
    --------
    Four steps whose noise is for a quarter of the gradients' length:

    >>> rng, gradients = np.random.default_rng(0), gradient_canaries(200, 200, seed=0)
    >>> def train(rows):
    ...     return [rows["gradient"].sum(axis=0) + rng.normal(0, 0.5, 200) for _ in range(4)]
    >>> found = training(
    ...     train, {"gradient": gradients}, (2.3, 1e-6),
    ...     lambda released: gradient_scores(released, gradients), seed=1,
    ... )
    >>> found.verdict
    'violation'
    """
    planted = {name: np.asarray(column) for name, column in canaries.items()}
    sizes = {len(column) if column.ndim else 0 for column in planted.values()}
    if len(sizes) != 1:
        raise DomainError("canaries must be columns of one length, got none or several lengths")
    (m,) = sizes
    others = {} if rows is None else {name: np.asarray(column) for name, column in rows.items()}
    if rows is not None and (
        set(others) != set(planted)
        or len({len(column) for column in others.values()}) != 1
        or any(others[name].shape[1:] != planted[name].shape[1:] for name in planted)
    ):
        raise DomainError(
            "rows must have the canaries' columns, of one length and with cells of one shape: "
            f"{sorted(planted)} are those of the canaries, got {sorted(others)}"
        )

    def scored(included: NDArray[np.bool_]) -> ArrayLike:
        present = {name: column[included] for name, column in planted.items()}
        if others:
            present = {name: np.concatenate([others[name], present[name]]) for name in present}
        return score(train(present))

    result = one_run(scored, m, claim, confidence=confidence, seed=seed)
    if rows is None:
        return result
    return evolve(result, notes=(*result.notes, "made with given rows: as private as they are"))
