"""The pair of a Poisson sample: ``(1-q) Q + q P`` against ``Q``, of the body's pair."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from attrs import frozen

from accountants.atoms import Atoms
from accountants.complexes import Complex
from accountants.losses.gaussian import GaussianPair
from accountants.losses.pure import ResponsePair
from accountants.losses.sampled_gaussian_moments import (
    sampled_gaussian_decay,
    sampled_gaussian_log_moment,
)
from accountants.losses.unattained import Unattained
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, down, up


def sampled_pair(body: Pair, rate: float) -> Pair:
    """Return ``(1-q) Q + q P`` against ``Q``; finitely many losses stay finitely many."""
    if rate == 0:
        return GaussianPair(0.0)
    if rate == 1:
        return body
    if isinstance(body, GaussianPair) and body.mu < 1e-100:
        return Unattained(body)  # sampling costs no more than none
    if isinstance(body, GaussianPair) and body.mu <= 1e3:
        return SampledGaussianPair(body, rate)
    if isinstance(body, ResponsePair) and body.top() < 600:
        body = body.atoms()
    if isinstance(body, Atoms) and body.top() < 600 and not body.loss_error:
        return _sampled_atoms(body, rate)
    return SampledPair(body, rate)


def _sampled_atoms(body: Atoms, rate: float) -> Pair:
    losses = [_mixture(loss, rate) for loss in body.losses]
    if any(low >= high for low, high in pairwise(losses)):
        return SampledPair(body, rate)  # too close to tell apart
    # P' = (1 - q) Q + q P, and the loss log(1 - q + q e^l)
    p = [(1 - rate) * b + rate * a for a, b in zip(body.p, body.q, strict=True)]
    error = body.error + 8 * UNIT * (1 + max(abs(body.bottom()), abs(body.top())))
    return Atoms(losses, p, body.q, error, body.exact, loss_error=16 * UNIT + body.loss_error)


@frozen
class SampledPair(Pair):
    """``(1-q) Q + q P`` against ``Q``: ``e^L' = 1 - q + q e^L``.

    ``L' > l`` exactly where ``L > log(1 + (e^l - 1) / q)``. That number, computed, is the right
    one for a loss within `accountants.pair.slip` of l.

    References
    ----------
    Zhu, Dong and Wang 2022, Thm 11.
    """

    body: Pair
    rate: float

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the body's tails at ``log(1 + (e^l - 1)/q)``, mixed."""
        return self._mixed(*self.body.above(self._inside(loss)))

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the body's tails at ``log(1 + (e^l - 1)/q)``, mixed."""
        return self._mixed(*self.body.below(self._inside(loss)))

    def _mixed(self, p: Array, q: Array) -> tuple[Array, Array]:
        return (1 - self.rate) * q + self.rate * p, q

    def _inside(self, loss: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = np.expm1(np.minimum(loss, 600)) / self.rate
            inner = np.where(ratio > -1, np.log1p(np.maximum(ratio, -1.0)), -np.inf)
            beyond = np.maximum(loss, 600) - math.log(self.rate)
        return np.where((loss < 600) & (ratio < np.inf), inner, beyond)

    def tail_error(self) -> float:
        """Return the body's and a few units."""
        return self.body.tail_error() + 8 * UNIT

    def attained(self) -> bool:
        """As the body."""
        return self.body.attained()

    def top(self) -> float:
        """Return ``log(1 + q (e^top - 1))``."""
        top = self.body.top()
        return top if top > 600 else min(top, up(_mixture(top, self.rate), 16))

    def bottom(self) -> float:
        """Return ``log(1 - q + q e^bottom)``."""
        return down(_mixture(self.body.bottom(), self.rate), 16)


@frozen
class SampledGaussianPair(SampledPair):
    """The sampled Gaussian, with moments by quadrature (`sampled_gaussian_moments`)."""

    body: GaussianPair
    rate: float

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{z+1}``."""
        return sampled_gaussian_log_moment(self.body.mu, self.rate, z + 1)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bounds from the density of the loss."""
        return sampled_gaussian_decay(self.body.mu, self.rate, tilt + 1, beyond)

    def mirrored_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{-z}``: next to z = 0 the error is relative to z."""
        return sampled_gaussian_log_moment(self.body.mu, self.rate, -z)

    def mirrored_decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bounds at ``R^-tilt``."""
        return sampled_gaussian_decay(self.body.mu, self.rate, -tilt, beyond)


def _mixture(loss: float, rate: float) -> float:
    """Return ``log(1 - q + q e^loss)``."""
    moved = rate * math.expm1(loss)
    return math.log1p(moved) if moved > -0.5 else math.log((1 - rate) + rate * math.exp(loss))
