"""What a release lets out beside its value: low bits, absorbed noise, failures, shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from accountants import PrivacyLoss
from accountants.rounding import Array
from adaptive_dp.audit import Neighbors, distinguish
from adaptive_dp.audit.mechanisms import Values
from adaptive_dp.audit.mechanisms import mechanism as audit_mechanism
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.steps import conforming, shape_of
from adaptive_dp.noise.stream import SeededStream, Stream

Releasing = Callable[[Any, Stream], Any]
"""Releases a value from a stream."""

CONFIDENCE = 1 - 1e-7
"""Of each audit: a sound mechanism is accused with a probability below 1e-6."""


def audit_problems(
    mechanism: Mechanism,
    pairs: Sequence[Values],
    claim: PrivacyLoss,
    given: Sequence[Any],
    samples: int,
    seed: int,
) -> Iterator[str]:
    """Yield what an audit of the release refutes."""
    found = audit_mechanism(
        mechanism,
        list(pairs),
        claim,
        samples=samples,
        confidence=CONFIDENCE,
        seed=seed,
        given=given,
    )
    if found.verdict == "violation":
        yield (
            f"epsilon at delta {found.delta:g} is at least {found.epsilon_lower:.4g}, and "
            f"{found.epsilon:.4g} is declared: {found.witness.pair}, {found.witness.event}"
        )


def low_bits(outcomes: Array) -> Array:
    """Return of each coordinate the place of its lowest bit and of its highest.

    Of outcomes of shape (count, n) an array of shape (count, 2n).

    The set of floats that a sum ``value + noise`` can reach hangs on the value (Mironov 2012): the
    lowest bit shows it, and where the noise is small the highest shows how small.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(outcomes), outcomes, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.where(whole > 0, np.log2(np.maximum(whole & -whole, 1)) + exponent - 53, 9999.0)
    highest = np.where(whole > 0, exponent, 9999).astype(np.float64)
    return np.concatenate([lowest, highest], axis=1)


def bit_problems(
    release: Releasing, pairs: Sequence[Values], claim: PrivacyLoss, samples: int, seed: int
) -> Iterator[str]:
    """Yield where the lowest bits of outputs tell values apart better than the loss allows."""

    def sampler(value: Any) -> Callable[[int, Stream], Any]:
        def sample(count: int, stream: Stream) -> Any:
            found = [np.ravel(release(value, stream)) for _ in range(count)]
            return low_bits(np.array(found, dtype=np.float64))

        return sample

    sides = [Neighbors(f"{a!r} against {b!r}", sampler(a), sampler(b)) for a, b in pairs]
    found = distinguish(sides, claim, samples=samples, confidence=CONFIDENCE, seed=seed)
    if found.verdict == "violation":
        yield (
            f"the lowest bits of outputs show epsilon {found.epsilon_lower:.4g} at delta "
            f"{found.delta:g}, and {found.epsilon:.4g} is declared: {found.witness.pair}; release "
            "whole multiples of a step, as the library's own noise does"
        )


def absorbed(release: Releasing, shape: tuple[int, ...], distance: float) -> Iterator[str]:
    """Yield where noise is lost beside the largest values that neighbours can tell apart.

    Past ``2^52`` times the distance floats lie farther apart than neighbours do, so that values
    which are within the distance are equal.
    """
    ordinary = {_key(release(np.zeros(shape), SeededStream(0, k))) for k in range(40)}
    edge = 2.0 ** (52 + math.floor(math.log2(distance))) if distance > 0 else 2.0**52
    for large in (edge, -edge):
        value = np.full(shape, large)
        try:
            seen = {_key(release(value.copy(), SeededStream(0, k))) for k in range(40)}
        except Exception as error:
            yield f"a value of {large:g} makes it raise {type(error).__name__}, which tells of it"
            continue
        if seen == {_key(value)} and len(ordinary) > 1:
            yield f"beside a value of {large:g} the noise is absorbed: every output is the value"


def _key(outcome: Any) -> Any:
    return np.asarray(outcome).tobytes()


def odd_values(release: Releasing, shape: tuple[int, ...]) -> Iterator[str]:
    """Yield where NaN or infinity among the values shows in what is released."""
    ordinary = [release(np.zeros(shape), SeededStream(0, k)) for k in range(60)]
    for odd in (math.nan, math.inf, -math.inf):
        value = np.zeros(shape)
        value[(0,) * len(shape)] = odd
        try:
            with np.errstate(all="ignore"):
                outputs = [release(value.copy(), SeededStream(0, k)) for k in range(20)]
        except Exception as error:
            yield f"a value of {odd} makes it raise {type(error).__name__}, which tells of it"
            continue
        usual = all(np.all(np.isfinite(o)) for o in ordinary)  # else NaN is an outcome like others
        if usual and not any(np.all(np.isfinite(o)) for o in outputs):
            yield f"a value of {odd} is released as {outputs[0]!r}, which tells of it"


def shape_problems(
    mechanism: Mechanism, release: Releasing, values: Sequence[Any]
) -> Iterator[str]:
    """Yield where what is released is not what `Mechanism.release` promises."""
    for value in values:
        wanted = mechanism.shape(shape_of(value))
        got = release(value, SeededStream(0))
        if conforming(got, wanted) is None:
            yield (
                f"release returns {type(got).__name__} of shape {np.shape(got)} for a value of "
                f"shape {shape_of(value)}, not real numbers of shape {wanted}"
            )
