"""Models for the tests of teachers: at the top level of a module, so that workers find them."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

SECRET = "rows-of-4711"


class Seen:
    """Remembers what it was trained on, as a digest, and votes for the commonest class."""

    def __init__(self, x: Any, y: Any, seed: int) -> None:
        assert x.ctypes.data % 64 == 0
        assert y.ctypes.data % 64 == 0
        self.digest = hashlib.sha256(x.tobytes() + y.tobytes() + str(seed).encode()).hexdigest()
        self.rows = len(x)
        self.most = int(np.bincount(y).argmax())

    def __call__(self, x: Any) -> Any:
        assert x.ctypes.data % 64 == 0
        return np.full(len(x), self.most)


def seen(x: Any, y: Any, seed: int) -> Seen:
    return Seen(x, y, seed)


def slow(x: Any, y: Any, seed: int, log: str = "", pause: float = 0.0) -> Seen:
    if log and seed:  # not the rehearsal, whose seed is 0
        time.sleep(pause)
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")
    return Seen(x, y, seed)


class Odd(BaseException):
    """What handlers of exceptions do not catch."""


class Nearest:
    """A classifier with fit and predict alone; what it answers can be of any type."""

    def __init__(self, kind: str = "int", fails: str = "", at: int = 60) -> None:
        self.kind, self.fails, self.at = kind, fails, at

    def fit(self, x: Any, y: Any) -> None:
        self.bad = len(y) < self.at  # the rehearsal has at least 40 rows
        self._fail("fit")
        self.classes = np.unique(y)
        self.means = np.array([x[y == c].mean(axis=0) for c in self.classes])

    def predict(self, x: Any) -> Any:
        self._fail("predict")
        gaps = ((x[:, None, :] - self.means[None]) ** 2).sum(axis=2)
        labels = self.classes[gaps.argmin(axis=1)]
        if self.bad and self.fails == "shape":
            return labels[:-1]
        if self.bad and self.fails == "range":
            return np.full(len(labels), 1e300)
        if self.kind == "column":
            return labels[:, None]
        return labels.astype({"int": np.int32, "float": np.float32, "text": str}[self.kind])

    def _fail(self, at: str) -> None:
        if self.bad and self.fails == at:
            raise ValueError(f"{SECRET} {self.fails}")
        if self.bad and self.fails == f"exit {at}":
            sys.exit(SECRET)
        if self.bad and self.fails == f"stop {at}":
            raise KeyboardInterrupt
        if self.bad and self.fails == f"odd {at}":
            raise Odd(SECRET)


def loud(x: Any, y: Any, seed: int, dies: bool = False) -> Any:
    """Tell of the rows in every way there is."""
    if seed == 0:
        return lambda at: np.zeros(len(at))
    print(SECRET)
    print(SECRET, file=sys.stderr)
    warnings.warn(SECRET, stacklevel=1)
    logging.getLogger("models").error(SECRET)
    if dies:
        os.write(2, SECRET.encode())
        os._exit(3)
    return Seen(x, y, seed)


def dawdling(x: Any, y: Any, seed: int) -> Any:
    """Draw now and then from what a process shares."""
    model, drawn = Seen(x, y, seed), []
    for _ in range(4):
        drawn.append(np.random.rand())  # noqa: NPY002
        time.sleep(1e-3 * (1 + len(y) % 5))
    model.digest += repr(drawn)
    return model


def printing(x: Any, y: Any, seed: int) -> Any:
    """Print from compiled code, but not in the rehearsal."""
    if seed:
        os.write(1, SECRET.encode())
        os.write(2, SECRET.encode())
    return Seen(x, y, seed)


def torched(x: Any, y: Any, seed: int) -> Any:
    """Draw from torch's generator, as often as there are rows."""
    model = Seen(x, y, seed)
    model.digest += repr([sys.modules["torch"].rand() for _ in y])
    return model


def shared(x: Any, y: Any, seed: int) -> Any:
    """Draw from the generators that a process shares, as often as there are rows."""
    import random

    drawn = [random.random() for _ in y] + list(np.random.rand(len(y)))  # noqa: NPY002
    model = Seen(x, y, seed)
    model.digest += repr(drawn)
    return model
