"""The checks of the test kit, which `adaptive_dp.testing.examine` makes.

Each check is a generator of sentences, one for each problem, and of none where the contract holds.
"""

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
from adaptive_dp.graph.errors import DeclarationError, PlanError, RunError
from adaptive_dp.graph.handles import Handle, change_at, conforming, shape_of
from adaptive_dp.graph.mechanism import Free, Mechanism, UnitsByKey
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import evolved, fields_of
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

# -----------------------------------------------------------------------------
# Findings and reports.


@frozen
class Finding:
    """One way in which a mechanism or a query breaks its contract.

    Parameters
    ----------
    check
        The name of the check.
    words
        What is wrong, with the values that show it.
    """

    check: str
    words: str

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


@frozen(repr=False)
class Report:
    """The checks that were made, and their findings. Without findings, nothing is proven.

    Parameters
    ----------
    subject
        The mechanism and the query that were examined, as a `str`.
    findings
        All problems; empty where every check passed.
    checked
        The names of the checks that were made.
    notes
        What could not be checked, and why.
    """

    subject: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.subject}: {len(self.findings)} finding(s) in {', '.join(self.checked)}"
        lines = [head, *(f"- {finding}" for finding in self.findings)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<examined {self.subject}: {len(self.findings)} finding(s)>"


# -----------------------------------------------------------------------------
# A mechanism's declared loss: its own laws, and those that relate different distances.


DELTAS = (0.0, 1e-9, 1e-5, 1e-2)


def loss_of(mechanism: Mechanism, distance: float) -> PrivacyLoss:
    """Return the declared loss; of a mechanism that uses the span, at the widest, 2 distance."""
    if mechanism.uses_span:
        return mechanism.loss(distance, 2 * distance)  # type: ignore[call-arg]
    return mechanism.loss(distance)


def loss_problems(mechanism: Mechanism, distance: float) -> Iterator[str]:
    """Yield a sentence for each law that the loss breaks."""
    counts_rows = mechanism.norm == 0
    scales = [1, 2, 3] if counts_rows else [distance, 2 * distance, 4 * distance, 8 * distance]
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
            small, large = _epsilon_bounds(losses[k - 1], delta), _epsilon_bounds(losses[k], delta)
            if large[1] < small[0] * (1 - 1e-9):
                yield (
                    f"the loss falls with the distance: at delta {delta:g} epsilon is at most "
                    f"{large[1]:.6g} at {scales[k]:g}, and at least {small[0]:.6g} at "
                    f"{scales[k - 1]:g}"
                )
    yield from _group_problems(losses, [1, 2, 3] if counts_rows else [1, 2, 4, 8])
    yield from _zero_distance_problems(mechanism)


def _epsilon_bounds(loss: PrivacyLoss, delta: float) -> tuple[float, float]:
    """Return a lower and an upper bound of a loss's epsilon at delta."""
    bounds = Guarantee(Spend(loss)).epsilon(delta)
    return bounds.lower, bounds.upper


def _group_problems(losses: list[PrivacyLoss], sizes: list[int]) -> Iterator[str]:
    """Yield where the loss at k times a distance exceeds the group privacy of k such distances.

    Values at distance kd are the ends of a chain of k pairs at distance d each.
    """
    for k, size in enumerate(sizes[1:], start=1):
        try:
            group = losses[0].grouped(size)
        except InapplicableError:
            return
        for delta in DELTAS:
            allowed, needed = _epsilon_bounds(group, delta)[1], _epsilon_bounds(losses[k], delta)[0]
            if needed > allowed * (1 + 1e-9):
                yield (
                    f"at {size} times the distance the loss needs epsilon {needed:.6g} at delta "
                    f"{delta:g}, and a group of {size} has at most {allowed:.6g}"
                )


def _zero_distance_problems(mechanism: Mechanism) -> Iterator[str]:
    """Yield where equal values lose more than the delta that no epsilon removes."""
    try:
        loss = loss_of(mechanism, 0)
    except Exception as error:
        yield f"loss(0) raises {type(error).__name__}; a query may have sensitivity 0"
        return
    lower = _epsilon_bounds(loss, loss.delta_floor())[0] if loss.delta_floor() < 1 else 0.0
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
                certified = plan.certify().epsilon
            except (AccountingError, PlanError):
                continue  # not every promise can be kept by one parameter alone
            except Exception as error:
                yield f"calibrating {name} raises {type(error).__name__}: {error}"
                continue
            if not certified <= epsilon or math.isnan(certified):
                yield f"calibrated for epsilon {epsilon:g} by {name}, it certifies {certified:.9g}"


# -----------------------------------------------------------------------------
# Parameters: bad ones are refused by a typed error, extreme ones are refused or work.


REFUSED: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, 0, 0.0, -0.0, -1, -5e-324, True, "1", None, [1.0], 1j, np.nan
)  # fmt: skip
"""Values that no noise scale and no budget may have."""

EXTREME = (5e-324, 2.3e-308, 1e-160, 1e-9, 1e9, 1e160, 1.7e308)
"""Positive floats at which computations underflow or overflow."""

TYPED = (DeclarationError, RunError, AccountingError)
"""The errors by which a parameter may be refused."""


def parameter_problems(
    mechanism: Mechanism, distance: float, release: Callable[[Mechanism, Any], Any]
) -> Iterator[str]:
    """Yield a sentence for each bad parameter that is accepted, and each extreme one that breaks.

    ``release`` releases an ordinary value by the mechanism and from the stream that it is given.
    """
    for field in fields_of(type(mechanism)):
        if field.metadata.get("role") not in ("noise", "budget"):
            continue
        for bad in REFUSED:
            if bad is None and field.default is None:  # an optional parameter
                continue
            try:
                evolved(mechanism, **{field.name: bad})
            except (*TYPED, TypeError, ValueError):
                continue
            except Exception as error:
                yield f"{field.name}={bad!r} raises {type(error).__name__}, not a typed error"
                continue
            yield f"{field.name}={bad!r} is accepted"
        for extreme in EXTREME:
            for problem in _extreme_problems(mechanism, field.name, extreme, distance, release):
                yield f"{field.name}={extreme!r} {problem}"


def _extreme_problems(
    mechanism: Mechanism,
    name: str,
    extreme: float,
    distance: float,
    release: Callable[[Mechanism, Any], Any],
) -> Iterator[str]:
    """Yield what goes wrong with one parameter at an extreme value."""
    try:
        changed = evolved(mechanism, **{name: extreme})
    except TYPED:
        return
    except Exception as error:
        yield f"raises {type(error).__name__}, not a typed error"
        return
    try:
        loss = loss_of(changed, distance)
        for functional in ("pure", "rho", "mu", "delta_floor"):
            number = getattr(loss, functional)()
            if number is not None and not number >= 0:
                yield f"promises {functional} = {number}"
    except TYPED:
        pass
    except Exception as error:
        yield f"makes the loss raise {type(error).__name__}: {error}"
    try:
        with np.errstate(all="ignore"):
            release(changed, SeededStream(0))
    except TYPED:
        return
    except Exception as error:
        yield f"makes the release raise {type(error).__name__}, not a typed error"


# -----------------------------------------------------------------------------
# What a release reveals beside its value: low bits, absorbed noise, failures, shapes.


Releasing = Callable[[Any, Stream], Any]
"""Releases a value from a stream."""

CONFIDENCE = 1 - 1e-7
"""The confidence of each audit; over all of them a sound mechanism fails with less than 1e-6."""


def audit_problems(
    mechanism: Mechanism,
    pairs: Sequence[Values],
    claim: PrivacyLoss,
    given: Sequence[Any],
    samples: int,
    seed: int,
) -> Iterator[str]:
    """Yield what an audit of the release refutes."""
    audit = audit_mechanism(
        mechanism,
        list(pairs),
        claim,
        samples=samples,
        confidence=CONFIDENCE,
        seed=seed,
        given=given,
    )
    if audit.verdict == "violation":
        yield (
            f"epsilon at delta {audit.delta:g} is at least {audit.epsilon_lower:.4g}, and "
            f"{audit.epsilon:.4g} is declared: {audit.witness.pair}, {audit.witness.event}"
        )


def by_key(outcome: Any, keys: Sequence[str]) -> Array:
    """Return what was released of each key: its number, 1 for a key without one, 0 for none."""
    if isinstance(outcome, dict):
        return np.array([float(outcome.get(key, 0.0)) for key in keys])
    return np.array([float(key in outcome) for key in keys])


def low_bits(outcomes: Array) -> Array:
    """Return the positions of each coordinate's lowest and highest bit, shape (count, 2n).

    Parameters
    ----------
    outcomes
        Of shape (count, n).

    Notes
    -----
    The set of floats that a sum ``value + noise`` can reach depends on the value (Mironov 2012):
    the lowest bit shows it, and where the noise is small the highest shows how small.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(outcomes), outcomes, 0.0))
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    # digits & -digits is the lowest set bit; 9999 stands for the bits of 0
    lowest = np.where(digits > 0, np.log2(np.maximum(digits & -digits, 1)) + exponent - 53, 9999.0)
    highest = np.where(digits > 0, exponent, 9999).astype(np.float64)
    return np.concatenate([lowest, highest], axis=1)


def bit_problems(
    release: Releasing, pairs: Sequence[Values], claim: PrivacyLoss, samples: int, seed: int
) -> Iterator[str]:
    """Yield where the lowest bits of outputs tell values apart better than the loss allows."""
    keys = sorted(
        {key for pair in pairs for v in pair if isinstance(v, UnitsByKey) for key in v.keys}
    )

    def numbers(outcome: Any) -> Array:
        return by_key(outcome, keys) if isinstance(outcome, dict | list) else np.ravel(outcome)

    def sampler(value: Any) -> Callable[[int, Stream], Any]:
        def sample(count: int, stream: Stream) -> Any:
            outcomes = [numbers(release(value, stream)) for _ in range(count)]
            return low_bits(np.array(outcomes, dtype=np.float64))

        return sample

    sides = [Neighbors(f"{a!r} against {b!r}", sampler(a), sampler(b)) for a, b in pairs]
    audit = distinguish(sides, claim, samples=samples, confidence=CONFIDENCE, seed=seed)
    if audit.verdict == "violation":
        yield (
            f"the lowest bits of outputs show epsilon {audit.epsilon_lower:.4g} at delta "
            f"{audit.delta:g}, and {audit.epsilon:.4g} is declared: {audit.witness.pair}; release "
            "integer multiples of a step, as the library's own noise does"
        )


def absorption_problems(
    release: Releasing, shape: tuple[int, ...], distance: float
) -> Iterator[str]:
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
            yield f"a value of {large:g} makes it raise {type(error).__name__}, which reveals it"
            continue
        # with other values the outputs vary: the noise was there, and is lost
        if seen == {_bytes(value)} and len(ordinary) > 1:
            yield f"beside a value of {large:g} the noise is absorbed: every output is the value"


def _bytes(outcome: Any) -> Any:
    return np.asarray(outcome).tobytes()


def nonfinite_problems(release: Releasing, shape: tuple[int, ...]) -> Iterator[str]:
    """Yield where NaN or infinity among the values shows in what is released."""
    ordinary = [release(np.zeros(shape), SeededStream(0, k)) for k in range(60)]
    usually_finite = all(np.all(np.isfinite(o)) for o in ordinary)
    for bad in (math.nan, math.inf, -math.inf):
        value = np.zeros(shape)
        value[(0,) * len(shape)] = bad
        try:
            with np.errstate(all="ignore"):
                outputs = [release(value.copy(), SeededStream(0, k)) for k in range(20)]
        except Exception as error:
            yield f"a value of {bad} makes it raise {type(error).__name__}, which reveals it"
            continue
        # where NaN is an outcome for ordinary values too, it does not reveal this one
        if usually_finite and not any(np.all(np.isfinite(o)) for o in outputs):
            yield f"a value of {bad} is released as {outputs[0]!r}, which reveals it"


def shape_problems(
    mechanism: Mechanism, release: Releasing, values: Sequence[Any]
) -> Iterator[str]:
    """Yield where what is released is not what `Mechanism.release` promises."""
    for value in values:
        expected = mechanism.shape(shape_of(value))
        outcome = release(value, SeededStream(0))
        if conforming(outcome, expected) is None:
            yield (
                f"release returns {type(outcome).__name__} of shape {np.shape(outcome)} for a "
                f"value of shape {shape_of(value)}, not real numbers of shape {expected}"
            )


# -----------------------------------------------------------------------------
# Freshness: all randomness comes from the stream, and a mechanism keeps nothing.


MAX_DRAWS = 2000
SECRET = 1_234_567.890_625
"""A value that must not appear in what a mechanism shows after its release."""

ReleaseFunction = Callable[[Mechanism], Callable[[Stream], Any]]
"""From a mechanism to the release of one ordinary value, as a function of the stream."""


def freshness_problems(
    mechanism: Mechanism, release_function: ReleaseFunction, notes: list[str]
) -> Iterator[str]:
    """Yield a sentence for each way in which noise repeats."""
    release = release_function(mechanism)
    outcomes = [_float_bytes(release(SeededStream(7, k))) for k in range(300)]
    if outcomes != [_float_bytes(release(SeededStream(7, k))) for k in range(300)]:
        yield "equal seeded streams give different releases: not all randomness is the stream's"
        return
    count = _draws_to_tell_apart(outcomes)
    if count is None:
        notes.append("the outcomes vary too little to tell fresh noise from repeated noise")
        return

    def draws(of: Mechanism = mechanism) -> list[bytes]:
        release = release_function(of)
        return [_float_bytes(release(SecureStream())) for _ in range(count)]

    if _globally_seeded(draws) == _globally_seeded(draws):
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
    """Return draws under fixed global seeds, whose states are restored afterwards."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002 - what must not matter
    try:
        np.random.seed(0)  # noqa: NPY002 - what must not matter
        random.seed(0)
        return draws()
    finally:
        np.random.set_state(states[0])  # noqa: NPY002 - what must not matter
        random.setstate(states[1])


def retention_problems(
    mechanism: Mechanism, release: Callable[[Any, Stream], Any], shape: tuple[int, ...]
) -> Iterator[str]:
    """Yield where a mechanism keeps values, or a release depends on earlier ones."""
    secret = np.full(shape, SECRET)
    state = _state(mechanism)
    first = _float_bytes(release(np.zeros(shape), SeededStream(5)))
    release(secret, SeededStream(6))
    shown = f"{mechanism!r} {mechanism} {vars(type(mechanism))!r} {_state(mechanism)!r}"
    if _float_bytes(release(np.zeros(shape), SeededStream(5))) != first:
        yield "a release depends on what was released before"
    if _state(mechanism) != state:
        yield "releasing changes the mechanism"
    if repr(SECRET)[:9] in shown:
        yield "the mechanism shows the value that it released"


def _state(mechanism: Mechanism) -> str:
    """Return all attributes of a mechanism as one `str`."""
    return repr(sorted((k, repr(v)) for k, v in vars(mechanism).items()))


def _draws_to_tell_apart(outcomes: list[bytes]) -> int | None:
    """Return for how many draws two lists agree by chance with probability below 1e-9."""
    counts = np.unique(np.array([hash(o) for o in outcomes]), return_counts=True)[1]
    # the probability that two draws agree, from the frequencies, with 0.02 for their error
    same = float(((counts / len(outcomes)) ** 2).sum())
    for count in (8, 30, 100, 300, MAX_DRAWS):
        if count * np.log(min(1.0, same + 0.02)) < np.log(1e-9):
            return count
    return None


def in_a_child(act: Callable[[], Any]) -> Any:
    """Return the result of ``act()`` in a forked process, which must pickle; None if it fails."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, of which the child uses none
        child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            with os.fdopen(write_end, "wb") as out:
                out.write(pickle.dumps(act()))
        finally:
            os._exit(0)
    # the write end is closed here first: the read would otherwise never see the end of the data
    os.close(write_end)
    with os.fdopen(read_end, "rb") as results:
        pickled = results.read()
    os.waitpid(child, 0)
    return pickle.loads(pickled) if pickled else None


def _float_bytes(outcome: Any) -> bytes:
    if isinstance(outcome, dict | list):  # keys, with their numbers or alone
        return repr(outcome).encode()
    return np.asarray(outcome, dtype=np.float64).tobytes()


# -----------------------------------------------------------------------------
# A query's declared sensitivity, by search: no two neighbours may be farther apart.


NORMS = (1, 2, math.inf)


def declared_sensitivities(plan: Pipeline, query: Handle) -> dict[float, float]:
    """Return a query's declared sensitivity in each norm in which it declares one.

    In a Poisson sample of units that are exchanged it is that of one which is there or is not: the
    one and the other in its place are up to twice as far apart.
    """
    release, _ = release_of(plan, query)
    name = plan.structure.of(release).name
    path = next(c for c in plan.structure.releases if c.name == name)
    exchanged = path.source.initial().replaced
    sides = 2.0 if exchanged and not change_at(query.inputs[0]).replaced else 1.0
    sensitivities = {}
    for norm in NORMS:
        try:
            sensitivities[norm] = sides * compiler.distance(path.steps, norm)
        except (DeclarationError, AccountingError, NotImplementedError):
            continue
    return sensitivities


def sensitivity_problems(
    plan: Pipeline, query: Handle, *, limit: int, rounds: int, seed: int
) -> Iterator[str]:
    """Yield a sentence for each declaration of a query that some pair of neighbours breaks."""
    declared, operation = declared_sensitivities(plan, query), query.operation
    assert isinstance(operation, Query)
    for norm, sensitivity in declared.items():
        if not 0 <= sensitivity < math.inf:
            yield f"the declared sensitivity in l{norm:g} is {sensitivity}, not a finite number"
            return
    worst: dict[
        str, tuple[float, str]
    ] = {}  # for each kind of problem, the pair that shows it best

    def ratio_of(pair: DataPair) -> float:
        problems, ratio = _pair_problems(plan, query, pair, declared)
        for kind, words in problems.items():
            if kind not in worst or ratio > worst[kind][0]:
                worst[kind] = ratio, f"{words}; {pair.words}"
        return ratio

    for pair in gallery(plan, limit=limit):
        ratio_of(pair)
    search(plan, ratio_of, rounds=rounds, limit=8, seed=seed)
    yield from (words for _, words in worst.values())


def _pair_problems(
    plan: Pipeline, query: Handle, pair: DataPair, declared: dict[float, float]
) -> tuple[dict[str, str], float]:
    """Return what a pair of neighbours breaks, and the largest move over the declared one."""
    values: list[Any] = []
    for data in (pair.first, pair.second):
        try:
            value = query_value(plan, query, data)
            is_map = isinstance(value, UnitsByKey)
            values.append(value if is_map else np.asarray(value, dtype=np.float64))
        except Exception as error:
            return {"raises": f"the query raises {type(error).__name__} on data it should read"}, 0
    one, two = values
    if isinstance(one, UnitsByKey):
        # a key that a data set does not have counts 0 there
        counts = [dict(zip(v.keys, map(int, v.counts()), strict=True)) for v in values]
        keys = sorted(set().union(*counts))
        return _moved(by_key(counts[0], keys), by_key(counts[1], keys), declared)
    if one.shape != two.shape:
        return {"shape": f"the value's shape depends on the data: {one.shape}, {two.shape}"}, 0
    if not (np.all(np.isfinite(one)) and np.all(np.isfinite(two))):
        return {"finite": "the query's value is not finite"}, 0
    return _value_problems(query, one, two, declared)


def _value_problems(
    query: Handle, one: Array, two: Array, declared: dict[float, float]
) -> tuple[dict[str, str], float]:
    """Return what two values of neighbours break, and the largest move over the declared one."""
    problems, ratio = _moved(one, two, declared)
    operation = query.operation
    assert isinstance(operation, Query)
    pairs = list(zip(one.ravel().tolist(), two.ravel().tolist(), strict=True))
    dimension = operation.dimension(query.inputs[0].domain)
    if one.size != dimension:
        problems["dimension"] = f"the value has {one.size} coordinates, {dimension} are declared"
    step = operation.step(query.inputs[0].domain)
    if step and any(Fraction(v) % Fraction(step) for pair in pairs for v in pair):
        problems["step"] = f"a coordinate is not a multiple of the declared step {step:g}"
    return problems, ratio


def _moved(one: Array, two: Array, declared: dict[float, float]) -> tuple[dict[str, str], float]:
    """Return in which norms two values move by more than is declared, and the largest ratio."""
    problems: dict[str, str] = {}
    ratio = 0.0
    pairs = list(zip(one.ravel().tolist(), two.ravel().tolist(), strict=True))
    # moves are compared exactly; each value may be rounded by half of its last bit
    move = [Fraction(a) - Fraction(b) for a, b in pairs]
    rounding = sum((Fraction(math.ulp(v)) / 2 for pair in pairs for v in pair), Fraction(0))
    for norm, sensitivity in declared.items():
        limit = Fraction(up(sensitivity, 8)) + rounding
        size = _norm(move, norm)
        if size > (limit**2 if norm == 2 else limit):
            measured = math.sqrt(size) if norm == 2 else float(size)
            problems[f"l{norm:g}"] = (
                f"the value moves by {measured:.9g} in l{norm:g}, and {sensitivity:.9g} is declared"
            )
        if sensitivity > 0:
            bound = sensitivity * sensitivity if norm == 2 else sensitivity
            ratio = max(ratio, float(size) / bound)
    return problems, ratio


def _norm(move: list[Fraction], norm: float) -> Fraction:
    """Return the exact norm of a vector; for norm 2 its square."""
    if norm == 1:
        return sum(map(abs, move), Fraction(0))
    if norm == 2:
        return sum((d * d for d in move), Fraction(0))
    return max(map(abs, move), default=Fraction(0))
