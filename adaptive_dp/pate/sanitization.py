"""Sanitised data-dependent loss: Gaussian noise at the smooth sensitivity of the Renyi bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import (
    Composite,
    PrivacyLoss,
    Pure,
    SmoothSanitization,
    Spend,
    certify,
    tightest,
)
from accountants import Gaussian as GaussianLoss
from accountants.definitions import renyi_total
from accountants.numerics import down, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, Post, Released, parameter, post
from adaptive_dp.graph.mechanism import Free, Mechanism, noise_parameter
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import number
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.noise import lattice
from adaptive_dp.noise.continuous import nearest, normal
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.aggregators import MAX_SIGMA, changed_teachers
from adaptive_dp.pate.ballots import Ballots, BallotsDomain, spent_epsilon, spent_upper_bound
from adaptive_dp.pate.vote_divergence import Spending, Spent, fixed_questions, spent

ROUNDING = 1e-12
"""An upper bound of the rounding errors of S, log S and their products, relative or absolute."""


_check_smoothness = checked(
    lambda v: is_number(v) and 1e-9 <= v <= 1,
    "a number from 1e-9 to 1",
    "; it is declared, not calibrated; use 0.2 / order, for example",
)


class Sanitized(Mechanism):
    r"""Release a private number with noise at its smooth sensitivity, and that sensitivity.

    With S a beta-smooth sensitivity of f, ``f + S sigma Z_1`` and ``log S + beta spread Z_2`` are
    released, Z_1 and Z_2 standard normal: both, since the error of the first cannot be bounded
    without S. ``log S`` changes by at most beta between neighbours (Def. 2.1), so the second is a
    Gaussian mechanism of mu 1 / spread; the loss of the first is a `SmoothSanitization`.

    *Floating point.* The noise is drawn exactly, bit by bit (`adaptive_dp.noise.continuous`), and
    the exact sum is rounded to a public grid and clipped to public bounds: post-processing of the
    two normal variables of the theorem, with S and f the computed floats. Their rounding errors are
    charged, as `ROUNDING` in beta and sigma.

    *Several teachers.* Along t steps ``|f - f'| <= S (1 + e^beta + ... + e^{(t-1) beta}) = S c``,
    and ``S <= e^{t beta} S'``: so ``c S`` is a ``t beta``-smooth sensitivity, and sigma is
    ``sigma / c`` of it.

    Parameters
    ----------
    sigma
        The noise's standard deviation in units of S.
    beta
        The smoothness; at order a the loss is finite below ``1 / (2 (a - 1))``.
    spread
        That of the second number, in units of beta.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, Def. 2.1; Papernot et al. 2018, appendix (sanitising, with
    another bound of the divergence); the loss is derived at `accountants.SmoothSanitization`.

    Examples
    --------
    >>> loss = Sanitized(sigma=10.0, beta=0.01, spread=8.0).loss(distance=1)
    >>> loss.renyi(np.array([4.0])).round(6)
    array([0.05296])
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Spending
    no_interval: ClassVar[str] = (
        "its noise follows the votes, so that how much noise there is must stay private"
    )
    selectable: ClassVar[bool] = False
    theorem: ClassVar[str] = (
        "Gaussian noise at smooth sensitivity: Nissim, Raskhodnikova & Smith 2007, Def. 2.1; "
        "Papernot et al. 2018 (sanitising)"
    )
    sampler: ClassVar[str] = "Gaussian, exact, rounded to public grids"

    sigma: float = noise_parameter("sigma")
    beta: float = field(converter=number, validator=_check_smoothness, metadata={"symbol": "beta"})
    spread: float = noise_parameter("spread")

    def release(self, value: Spending, stream: Stream) -> NDArray[np.float64]:
        """Return noisy f and noisy log S, on public grids inside public bounds; shape (2,)."""
        # f and a beta-smooth sensitivity of it, both private
        bound, smooth = value.smooth(self.beta)
        # grids depend on public numbers alone: the worst case, beta and the spread
        grid, log_grid = value.least, lattice.step(self.beta * self.spread)
        log_least, log_worst = math.log(value.least), math.log(value.worst + value.least)
        # the noise is exact, and the sum is rounded once to the grid
        bound_steps = nearest(bound, smooth * self.sigma, normal(stream), grid)
        log_steps = nearest(math.log(smooth), self.beta * self.spread, normal(stream), log_grid)
        # clipped to public bounds, which is post-processing
        bound_steps = min(max(bound_steps, 0), math.floor(value.worst / grid))
        log_steps = min(
            max(log_steps, math.floor(log_least / log_grid)), math.ceil(log_worst / log_grid)
        )
        return np.array([bound_steps * grid, log_steps * log_grid])

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return (2,)."""
        return (2,)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of both numbers where ``distance`` teachers change."""
        times = changed_teachers(distance)
        if times == 0:
            return Pure(0.0)
        for name in ("sigma", "spread"):
            if not (getattr(self, name) <= MAX_SIGMA):
                raise DeclarationError(
                    f"Sanitized.{name} must be at most 2^49, got {getattr(self, name):g}"
                )
        # several teachers: with c = (e^{t beta} - 1) / (e^beta - 1), c S is a (t beta)-smooth
        # sensitivity, and sigma relative to it is sigma / c, rounded down
        beta = up((self.beta + ROUNDING) * times, 4)
        if not (beta <= 300):
            raise DeclarationError(
                f"{times} teachers change, too many for Sanitized.beta = {self.beta:g}; use a "
                "smaller beta"
            )
        # rounded up, since sigma is divided by it: sigma may only be too small
        group_factor = up(math.expm1(beta) / math.expm1(self.beta), 8) if times > 1 else 1.0
        sigma = down(self.sigma * (1 - ROUNDING) / group_factor, 4)
        # log S changes by at most t beta, with noise beta spread: mu = t / spread, rounded up
        mu = up(beta / self.beta / self.spread, 8)
        return Composite({SmoothSanitization(sigma, beta): 1, GaussianLoss(mu): 1})

    def premises(self, release: Any) -> None:
        """Refuse questions that follow from answers: see `fixed_questions`."""
        # the bound would be that of other questions on the neighbour
        if not fixed_questions(release.inputs[0]):
            raise DeclarationError(
                "the questions depend on released values (points chosen by earlier answers, or a "
                "loop): other answers would have led to other questions, so that the loss on these "
                "votes is no bound; sanitise votes on points that are fixed beforehand"
            )


def sanitized(
    ballots: Ballots,
    mechanism: Mechanism,
    *,
    order: float,
    sigma: float | Free,
    beta: float | None = None,
    spread: float | Free | None = None,
    failure: float = 1e-3,
) -> Released[float]:
    r"""Return a published bound of the Renyi divergence of an aggregator's answers.

    Let M be the answers of ``mechanism`` to all questions of ``ballots``, D the votes at hand, and
    u the published number. Then ``D_a(M(D) || M(D')) <= u`` and ``D_a(M(D') || M(D)) <= u`` at
    ``a = order``, for every D' in which one teacher votes differently, except with probability
    ``failure`` over the noise in u. So u is about *these* data, with the teachers as they were
    split and trained, in both directions, and may be published: the cost of that, the loss of
    `Sanitized`, is in the plan's certificate. The certificate's own epsilon holds for all data
    sets: it is the worst case of the labels, plus the cost of publishing.

    Each bound may fail by itself: of k of them (of several rounds, aggregators or orders) one or
    another fails with probability up to ``k failure``, and so does the least of them. Inside
    `dp.select` the selected round's noise is not that of a single release, and its answers have the
    selection's loss: there neither this bound nor `sanitized_epsilon` holds.

    Parameters
    ----------
    ballots
        Votes on points that depend on no released value.
    mechanism
        The aggregator that releases the labels, with its numbers.
    order
        Above 1; chosen without looking at the votes.
    sigma, beta, spread
        Of `Sanitized`. By default ``beta = 0.2 / order`` and ``spread = sigma``.
    failure
        The probability with which the bound may be wrong (a failure probability, not a delta).

    Examples
    --------
    >>> from adaptive_dp.pate import Ballots, BallotsSource, GNMax
    >>> ballots = Ballots(BallotsSource("votes", teachers=250, questions=100, classes=10))
    >>> sanitized(ballots, GNMax(sigma=40.0), order=20.0, sigma=10.0)
    <released spent_upper_bound>
    """
    if not (is_number(failure) and 1e-300 <= failure < 1):
        raise DeclarationError(
            f"sanitized: failure must be a probability above 0, below 1, got {failure!r}"
        )
    # the bound is a private query of the same votes as the labels
    query = spent(ballots, mechanism, order=order)
    operation = query.operation
    assert isinstance(operation, Spent)
    beta = min(1.0, 0.2 / operation.order) if beta is None else beta
    spread = sigma if spread is None else spread
    # one release of two numbers, with a loss of its own in the certificate
    noisy = query.release(Sanitized(sigma=sigma, beta=beta, spread=spread))
    return post(
        # post-processing, with the parameters that the release gets by calibration
        spent_upper_bound,
        noisy,
        parameter(noisy, "sigma"),
        parameter(noisy, "beta"),
        parameter(noisy, "spread"),
        failure=failure,
        worst=operation.worst(query.domain),
    )


def sanitized_epsilon(
    bound: Released[float], *, delta: float, beside: Sequence[PrivacyLoss] = ()
) -> Released[float]:
    """Return the epsilon at delta that a published bound proves of these data, both ways.

    It covers the labels, the publishing of the bound, and the losses in ``beside``: ``P(S) <=
    e^epsilon P'(S) + delta`` for the data at hand and each neighbour, in both directions, except
    with the bound's failure probability. It is never above the worst case of these releases on all
    data sets, which is public. See `sanitized` for its limits.

    Parameters
    ----------
    bound
        What `sanitized` returned.
    delta
        Above 0, below 1.
    beside
        The worst-case losses of all other releases of the plan, such as
        ``dp.pate.GNMax(sigma=40).cost(1, 100, 1)``. Their delta masses are subtracted from delta.

    References
    ----------
    Mironov 2017, Prop. 1 (composition); Balle, Barthe, Gaboardi, Hsu and Sato 2020, Thm 21
    (conversion).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=1_000, questions=2_000, classes=3)
    >>> noise = dp.pate.GNMax(sigma=60.0)
    >>> bound = dp.pate.sanitized(votes, noise, order=20.0, sigma=10.0)
    >>> epsilon = sanitized_epsilon(bound, delta=1e-6)
    >>> plan = dp.Pipeline(labels=votes.release(noise), epsilon=epsilon).with_delta(1e-6)
    >>> agreed = {"counts": np.tile([980, 10, 10], (2_000, 1))}
    >>> release = plan.simulate(seed=1, votes=agreed)
    >>> bool(release["epsilon"] < release.certificate.epsilon / 4)
    True
    """
    operation = bound.operation if isinstance(bound, Handle) else None
    # by `sanitized` alone: the raw number of a release is below f as often as above
    is_bound = isinstance(operation, Post) and operation.function == Function.of(spent_upper_bound)
    # the input of the post-processing is the release by `Sanitized`
    noisy = bound.inputs[0] if is_bound and bound.inputs else None
    mechanism = noisy.domain if noisy is not None else None
    if noisy is None or not isinstance(mechanism, Sanitized):
        raise DeclarationError(
            f"sanitized_epsilon needs what sanitized(...) returned, got {bound!r}"
        )
    query = noisy.inputs[0].operation
    assert isinstance(query, Spent)
    if mechanism.free():
        raise DeclarationError(
            "sanitized_epsilon needs a release with its noise: sigma or spread is still free"
        )
    # one teacher changes, the case that the published bound is about
    losses = [mechanism.loss(1.0), *beside]
    for loss in beside:
        if not isinstance(loss, PrivacyLoss):
            raise DeclarationError(f"beside must be privacy losses, got {loss!r}")
    # delta masses of the other losses are subtracted, their sum rounded up: less delta is left
    delta_masses = up(math.fsum(loss.delta_floor() for loss in losses), 4)
    if not (is_number(delta) and 0 < delta < 1 and delta > delta_masses):
        raise DeclarationError(
            "sanitized_epsilon's delta must be above 0 and below 1, and above the sum of the "
            f"other releases' delta masses, {delta_masses:g}, got {delta!r}"
        )
    order = np.array([float(query.order)])
    ballots: BallotsDomain = noisy.inputs[0].domain
    labels = query.mechanism.cost(1.0, ballots.questions, 1.0)
    # Mironov 2017, Prop. 1: divergences at one order add
    other_divergence = float(renyi_total([(loss, 1) for loss in losses], order)[0])
    return post(
        spent_epsilon,
        bound,
        order=float(query.order),
        # rounded down: epsilon may only be too large
        delta=down(delta - delta_masses, 4),
        beside=other_divergence,
        # of the labels on every data set, with the same other releases
        worst=_worst_epsilon([labels, *losses], delta),
    )


def _worst_epsilon(losses: Sequence[PrivacyLoss], delta: float) -> float:
    """Return the epsilon at delta that holds on all data, by the tightest accountant."""
    term = Composite([(loss, 1) for loss in losses])
    bounds = tightest(certify(Spend(term), delta)).bounds
    assert bounds  # the tightest is one that applies
    return bounds.upper
