"""The checks of the test kit: promises, parameters, outcomes, freshness, sensitivities."""

from __future__ import annotations

import math
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import frozen

from accountants import Guarantee, PrivacyLoss, Spend
from accountants.errors import AccountingError, InapplicableError
from accountants.numerics import Array, up
from accountants.testing import check as check_loss
from adaptive_dp.audit import Neighbors, distinguish
from adaptive_dp.audit.mechanisms import Values
from adaptive_dp.audit.mechanisms import mechanism as audit_mechanism
from adaptive_dp.audit.neighbors import query_value, release_of
from adaptive_dp.audit.pairs import DataPair, gallery, search
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.compile import releases
from adaptive_dp.graph.errors import DeclarationError, PlanError, RunError
from adaptive_dp.graph.handles import Handle, conforming, shape_of
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import evolved, fields_of
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

# -----------------------------------------------------------------------------
# What the test kit found.


@frozen
class Finding:
    """One way in which a mechanism or a query breaks its contract.

    Parameters
    ----------
    check
        Which check found it.
    words
        What was found, and on what.
    """

    check: str
    words: str

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


@frozen(repr=False)
class Report:
    """What was checked, and what was found. No finding is no proof.

    Parameters
    ----------
    subject
        What was examined.
    findings
        All of them; none where everything held.
    checked
        The checks that were made.
    notes
        What could not be checked, and why; and what else was seen.
    """

    subject: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.subject}: {len(self.findings)} finding(s) in {', '.join(self.checked)}"
        lines = [head, *(f"- {found}" for found in self.findings)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<examined {self.subject}: {len(self.findings)} finding(s)>"


# -----------------------------------------------------------------------------
# A mechanism's declared loss: its own laws, and those that bind it at different distances.


DELTAS = (0.0, 1e-9, 1e-5, 1e-2)


def loss_of(mechanism: Mechanism, distance: float) -> PrivacyLoss:
    """Return the declared loss; of a mechanism that looks at spans, at the widest."""
    if mechanism.uses_span:
        return mechanism.loss(distance, 2 * distance)  # type: ignore[call-arg]
    return mechanism.loss(distance)


def loss_problems(mechanism: Mechanism, distance: float) -> Iterator[str]:
    """Yield a sentence for each law that the loss breaks."""
    whole = mechanism.norm == 0
    scales = [1, 2, 3] if whole else [distance, 2 * distance, 4 * distance, 8 * distance]
    try:
        losses = [loss_of(mechanism, scale) for scale in scales]
    except Exception as error:
        yield f"loss({distance:g}) raises {type(error).__name__}: {error}"
        return
    for scale, loss in zip(scales[:2], losses, strict=False):
        try:
            check_loss(loss)
        except AssertionError as error:
            yield f"loss({scale:g}): {error}"
    for k in range(1, len(losses)):
        for delta in DELTAS:
            small, large = _bounds(losses[k - 1], delta), _bounds(losses[k], delta)
            if large[1] < small[0] * (1 - 1e-9):
                yield (
                    f"the loss falls with the distance: at delta {delta:g} epsilon is at most "
                    f"{large[1]:.6g} at {scales[k]:g}, and at least {small[0]:.6g} at "
                    f"{scales[k - 1]:g}"
                )
    yield from _groups(losses, [1, 2, 3] if whole else [1, 2, 4, 8])
    yield from _nowhere(mechanism)


def _bounds(loss: PrivacyLoss, delta: float) -> tuple[float, float]:
    found = Guarantee(Spend(loss)).epsilon(delta)
    return found.lower, found.upper


def _groups(losses: list[PrivacyLoss], sizes: list[int]) -> Iterator[str]:
    """A group of k at distance d each is at distance kd: its loss is at most the group's bound."""
    for k, size in enumerate(sizes[1:], start=1):
        try:
            group = losses[0].grouped(size)
        except InapplicableError:
            return
        for delta in DELTAS:
            most, needed = _bounds(group, delta)[1], _bounds(losses[k], delta)[0]
            if needed > most * (1 + 1e-9):
                yield (
                    f"at {size} times the distance the loss needs epsilon {needed:.6g} at delta "
                    f"{delta:g}, and a group of {size} has at most {most:.6g}"
                )


def _nowhere(mechanism: Mechanism) -> Iterator[str]:
    """A value that does not move loses nothing but the delta floor."""
    try:
        loss = loss_of(mechanism, 0)
    except Exception as error:
        yield f"loss(0) raises {type(error).__name__}; a query may have sensitivity 0"
        return
    lower = _bounds(loss, loss.delta_floor())[0] if loss.delta_floor() < 1 else 0.0
    if lower > 1e-9 and mechanism.norm != 0:
        yield f"loss(0) needs epsilon {lower:.6g}, though equal values cannot be told apart"


def calibration_problems(mechanism: Mechanism, query: Handle) -> Iterator[str]:
    """Yield where a calibrated plan does not keep its target."""
    roles = [
        f.name for f in fields_of(type(mechanism)) if f.metadata.get("role") in ("noise", "budget")
    ]
    for epsilon, delta in ((0.5, 1e-6), (3.0, 1e-3)):
        for name in roles:
            free = evolved(mechanism, **{name: Free("free")})
            try:
                plan = Pipeline(out=query.release(free)).calibrate(epsilon, delta)  # type: ignore[attr-defined]
                found = plan.certify().epsilon
            except (AccountingError, PlanError):
                continue  # not every promise can be kept by one parameter alone
            except Exception as error:
                yield f"calibrating {name} raises {type(error).__name__}: {error}"
                continue
            if not found <= epsilon or math.isnan(found):
                yield f"calibrated for epsilon {epsilon:g} by {name}, it certifies {found:.9g}"


# -----------------------------------------------------------------------------
# Bad parameters are refused by a typed error, or what they make works.


REFUSED: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, 0, 0.0, -0.0, -1, -5e-324, True, "1", None, [1.0], 1j, np.nan
)  # fmt: skip
"""No scale and no budget is any of these."""

EXTREME = (5e-324, 2.3e-308, 1e-160, 1e-9, 1e9, 1e160, 1.7e308)

TYPED = (DeclarationError, RunError, AccountingError)


def parameter_problems(
    mechanism: Mechanism, distance: float, release: Callable[[Mechanism, Any], Any]
) -> Iterator[str]:
    """Yield a sentence for each parameter that is neither refused nor of use.

    ``release`` releases an ordinary value by a mechanism that it is given, from a stream.
    """
    for each in fields_of(type(mechanism)):
        if each.metadata.get("role") not in ("noise", "budget"):
            continue
        for bad in REFUSED:
            if bad is None and each.default is None:  # a parameter that may be left out
                continue
            try:
                evolved(mechanism, **{each.name: bad})
            except (*TYPED, TypeError, ValueError):
                continue
            except Exception as error:
                yield f"{each.name}={bad!r} raises {type(error).__name__}, no typed error"
                continue
            yield f"{each.name}={bad!r} is accepted"
        for extreme in EXTREME:
            for words in _extreme(mechanism, each.name, extreme, distance, release):
                yield f"{each.name}={extreme!r} {words}"


def _extreme(
    mechanism: Mechanism,
    name: str,
    extreme: float,
    distance: float,
    release: Callable[[Mechanism, Any], Any],
) -> Iterator[str]:
    try:
        odd = evolved(mechanism, **{name: extreme})
    except TYPED:
        return
    except Exception as error:
        yield f"raises {type(error).__name__}, no typed error"
        return
    try:
        loss = loss_of(odd, distance)
        for kind in ("pure", "rho", "mu", "delta_floor"):
            known = getattr(loss, kind)()
            if known is not None and not known >= 0:
                yield f"promises {kind} = {known}"
    except TYPED:
        pass
    except Exception as error:
        yield f"makes the loss raise {type(error).__name__}: {error}"
    try:
        with np.errstate(all="ignore"):
            release(odd, SeededStream(0))
    except TYPED:
        return
    except Exception as error:
        yield f"makes the release raise {type(error).__name__}, no typed error"


# -----------------------------------------------------------------------------
# What a release lets out beside its value: low bits, absorbed noise, failures, shapes.


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
    ordinary = {_bytes(release(np.zeros(shape), SeededStream(0, k))) for k in range(40)}
    edge = 2.0 ** (52 + math.floor(math.log2(distance))) if distance > 0 else 2.0**52
    for large in (edge, -edge):
        value = np.full(shape, large)
        try:
            seen = {_bytes(release(value.copy(), SeededStream(0, k))) for k in range(40)}
        except Exception as error:
            yield f"a value of {large:g} makes it raise {type(error).__name__}, which tells of it"
            continue
        if seen == {_bytes(value)} and len(ordinary) > 1:
            yield f"beside a value of {large:g} the noise is absorbed: every output is the value"


def _bytes(outcome: Any) -> Any:
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


# -----------------------------------------------------------------------------
# Where a release's randomness comes from: the stream, all of it, and nothing that is kept.


MOST = 2000
SECRET = 1_234_567.890_625

Making = Callable[[Mechanism], Callable[[Stream], Any]]
"""Of a mechanism, the release of one ordinary value from a stream."""


def freshness_problems(mechanism: Mechanism, making: Making, notes: list[str]) -> Iterator[str]:
    """Yield a sentence for each way in which noise repeats, or something is kept."""
    release = making(mechanism)
    drawn = [_float_bytes(release(SeededStream(7, k))) for k in range(300)]
    if drawn != [_float_bytes(release(SeededStream(7, k))) for k in range(300)]:
        yield "equal seeded streams give different releases: not all randomness is the stream's"
        return
    count = _enough(drawn)
    if count is None:
        notes.append("the outcomes vary too little to tell fresh noise from repeated noise")
        return

    def draws(of: Mechanism = mechanism) -> list[bytes]:
        made = making(of)
        return [_float_bytes(made(SecureStream())) for _ in range(count)]

    seen = [_globally_seeded(draws), _globally_seeded(draws)]
    if seen[0] == seen[1]:
        yield "global seeds (numpy.random, random) decide the noise"
    try:
        copy = pickle.loads(pickle.dumps(mechanism))
    except Exception as error:
        notes.append(
            f"no pickled copy was tried: {type(error).__name__} (is its class a local one?)"
        )
    else:
        if copy != mechanism:
            yield "its pickled copy is not equal to it"
        if draws(copy) == draws():
            yield "a pickled copy repeats its noise"
    if hasattr(os, "fork"):
        children = [in_a_child(draws) for _ in range(2)]
        if None in children:
            notes.append("no forked child answered")
        elif children[0] == children[1] or draws() in children:
            yield "forked processes draw equal noise"


def _globally_seeded(draws: Callable[[], list[bytes]]) -> list[bytes]:
    states = np.random.get_state(), random.getstate()  # noqa: NPY002 - what must not matter
    try:
        np.random.seed(0)  # noqa: NPY002 - what must not matter
        random.seed(0)
        return draws()
    finally:
        np.random.set_state(states[0])  # noqa: NPY002 - what must not matter
        random.setstate(states[1])


def kept_problems(
    mechanism: Mechanism, release: Callable[[Any, Stream], Any], shape: tuple[int, ...]
) -> Iterator[str]:
    """Yield where a mechanism keeps what it released, or remembers earlier releases."""
    secret = np.full(shape, SECRET)
    before = _inside(mechanism)
    first = _float_bytes(release(np.zeros(shape), SeededStream(5)))
    release(secret, SeededStream(6))
    shown = f"{mechanism!r} {mechanism} {vars(type(mechanism))!r} {_inside(mechanism)!r}"
    if _float_bytes(release(np.zeros(shape), SeededStream(5))) != first:
        yield "a release hangs on what was released before"
    if _inside(mechanism) != before:
        yield "releasing changes the mechanism"
    if repr(SECRET)[:9] in shown:
        yield "the mechanism shows the value that it released"


def _inside(mechanism: Mechanism) -> str:
    return repr(sorted((k, repr(v)) for k, v in vars(mechanism).items()))


def _enough(drawn: list[bytes]) -> int | None:
    """Return so many draws that two lists agree by chance with probability below 1e-9."""
    counts = np.unique(np.array([hash(d) for d in drawn]), return_counts=True)[1]
    same = float(((counts / len(drawn)) ** 2).sum())
    for count in (8, 30, 100, 300, MOST):
        if count * np.log(min(1.0, same + 0.02)) < np.log(1e-9):
            return count
    return None


def in_a_child(act: Callable[[], Any]) -> Any:
    """Return what a forked process makes of it, which can be pickled; None where it fails."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, of which the child uses none
        child = os.fork()
    if child == 0:
        try:
            os.close(ours)
            with os.fdopen(theirs, "wb") as out:
                out.write(pickle.dumps(act()))
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return pickle.loads(text) if text else None


def _float_bytes(outcome: Any) -> bytes:
    return np.asarray(outcome, dtype=np.float64).tobytes()


# -----------------------------------------------------------------------------
# A query's declared sensitivity, by search: no two neighbours may be farther apart.


NORMS = (1, 2, math.inf)


def declared(plan: Pipeline, query: Handle) -> dict[float, float]:
    """Return what a query declares to move by, in each norm in which it says so."""
    release, _ = release_of(plan, query)
    name = plan.structure.of(release).name
    path = next(c for c in releases(plan.structure) if c.node.name == name)
    found = {}
    for norm in NORMS:
        try:
            found[norm] = compiler.distance(path, norm)
        except (DeclarationError, AccountingError, NotImplementedError):
            continue
    return found


def sensitivity_problems(
    plan: Pipeline, query: Handle, *, limit: int, rounds: int, seed: int
) -> Iterator[str]:
    """Yield a sentence for each declaration of a query that some pair of neighbours breaks."""
    claims, operation = declared(plan, query), query.operation
    assert isinstance(operation, Query)
    for norm, most in claims.items():
        if not 0 <= most < math.inf:
            yield f"the declared sensitivity in l{norm:g} is {most}, not a finite number"
            return
    broken: dict[str, tuple[float, str]] = {}

    def look(pair: DataPair) -> float:
        found, ratio = _moved(plan, query, pair, claims)
        for kind, words in found.items():
            if kind not in broken or ratio > broken[kind][0]:
                broken[kind] = ratio, f"{words}; {pair.words}"
        return ratio

    for pair in gallery(plan, limit=limit):
        look(pair)
    search(plan, look, rounds=rounds, limit=8, seed=seed)
    yield from (words for _, words in broken.values())


def _moved(
    plan: Pipeline, query: Handle, pair: DataPair, claims: dict[float, float]
) -> tuple[dict[str, str], float]:
    """Return what a pair breaks, and the largest move as a share of the declared one."""
    sides: list[Any] = []
    for data in (pair.first, pair.second):
        try:
            sides.append(np.asarray(query_value(plan, query, data), dtype=np.float64))
        except Exception as error:
            return {"raises": f"the query raises {type(error).__name__} on data it should read"}, 0
    one, two = sides
    if one.shape != two.shape:
        return {"shape": f"the value's shape hangs on the data: {one.shape}, {two.shape}"}, 0
    if not (np.all(np.isfinite(one)) and np.all(np.isfinite(two))):
        return {"finite": "the query's value is not finite"}, 0
    return _held(query, one, two, claims)


def _held(
    query: Handle, one: Array, two: Array, claims: dict[float, float]
) -> tuple[dict[str, str], float]:
    found, ratio, operation = {}, 0.0, query.operation
    assert isinstance(operation, Query)
    pairs = list(zip(one.ravel().tolist(), two.ravel().tolist(), strict=True))
    move = [Fraction(a) - Fraction(b) for a, b in pairs]
    rounding = sum((Fraction(math.ulp(v)) / 2 for pair in pairs for v in pair), Fraction(0))
    for norm, most in claims.items():
        limit = Fraction(up(most, 8)) + rounding
        size = _norm(move, norm)
        if size > (limit**2 if norm == 2 else limit):
            seen = math.sqrt(size) if norm == 2 else float(size)
            found[f"l{norm:g}"] = (
                f"the value moves by {seen:.9g} in l{norm:g}, and {most:.9g} is declared"
            )
        if most > 0:
            ratio = max(ratio, float(size) / (most * most if norm == 2 else most))
    dimension = operation.dimension(query.inputs[0].domain)
    if one.size != dimension:
        found["dimension"] = f"the value has {one.size} coordinates, {dimension} are declared"
    step = operation.step(query.inputs[0].domain)
    if step and any(Fraction(v) % Fraction(step) for pair in pairs for v in pair):
        found["step"] = f"a coordinate is no multiple of the declared step {step:g}"
    return found, ratio


def _norm(move: list[Fraction], norm: float) -> Fraction:
    """Return the exact norm; of the Euclidean one its square."""
    if norm == 1:
        return sum(map(abs, move), Fraction(0))
    if norm == 2:
        return sum((d * d for d in move), Fraction(0))
    return max(map(abs, move), default=Fraction(0))
