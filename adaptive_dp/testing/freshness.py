"""Where a release's randomness comes from: the stream, all of it, and nothing that is kept."""

from __future__ import annotations

import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

MOST = 2000
SECRET = 1_234_567.890_625

Making = Callable[[Mechanism], Callable[[Stream], Any]]
"""Of a mechanism, the release of one ordinary value from a stream."""


def freshness_problems(mechanism: Mechanism, making: Making, notes: list[str]) -> Iterator[str]:
    """Yield a sentence for each way in which noise repeats, or something is kept."""
    release = making(mechanism)
    drawn = [_key(release(SeededStream(7, k))) for k in range(300)]
    if drawn != [_key(release(SeededStream(7, k))) for k in range(300)]:
        yield "equal seeded streams give different releases: not all randomness is the stream's"
        return
    count = _enough(drawn)
    if count is None:
        notes.append("the outcomes vary too little to tell fresh noise from repeated noise")
        return

    def draws(of: Mechanism = mechanism) -> list[bytes]:
        made = making(of)
        return [_key(made(SecureStream())) for _ in range(count)]

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
    first = _key(release(np.zeros(shape), SeededStream(5)))
    release(secret, SeededStream(6))
    shown = f"{mechanism!r} {mechanism} {vars(type(mechanism))!r} {_inside(mechanism)!r}"
    if _key(release(np.zeros(shape), SeededStream(5))) != first:
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


def _key(outcome: Any) -> bytes:
    return np.asarray(outcome, dtype=np.float64).tobytes()
