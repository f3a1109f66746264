"""Training in silence, with one thread each: what models print would tell of their rows.

Warnings, log records and what Python code prints are dropped while any model is trained or asked,
in all threads of the process; in a worker process also what compiled code prints. (What compiled
code prints in the process of the run itself, ``verbose=1`` of liblinear, say, is not.)
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import logging
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import plain
from adaptive_dp.graph.registry import Function, find_attribute
from adaptive_dp.pate.ballots import class_positions

_LOCK = threading.Lock()
_GENERATOR_LOCK = threading.RLock()
_USERS: list[None] = []
_CLEANUP = contextlib.ExitStack()


class NullOutput(io.TextIOBase):
    """Takes every text, and keeps none."""

    def write(self, text: str) -> int:
        """Return the length of what is dropped."""
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True


@contextlib.contextmanager
def quiet(run: int) -> Iterator[None]:
    """Drop what is printed, warned of and logged; the last of several threads to leave undoes it.

    Parameters
    ----------
    run
        The number of the process that the run is in.
    """
    with _LOCK:
        if not _USERS:
            _silence(run)
        _USERS.append(None)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        with _LOCK:
            _USERS.pop()
            if not _USERS:
                _CLEANUP.close()


def _silence(run: int) -> None:
    _CLEANUP.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    nowhere: Any = NullOutput()
    _CLEANUP.enter_context(contextlib.redirect_stdout(nowhere))
    _CLEANUP.enter_context(contextlib.redirect_stderr(nowhere))
    _CLEANUP.callback(logging.disable, logging.root.manager.disable)
    logging.disable(logging.CRITICAL)
    if os.getpid() != run:
        _close_outputs()
    with contextlib.suppress(ImportError):  # it arrives with scikit-learn
        from threadpoolctl import threadpool_limits

        # sums may round otherwise with another number of threads, and small ones wait for them
        _CLEANUP.enter_context(threadpool_limits(1))


def _reset_after_fork() -> None:
    """Leave a forked worker silent, as its parent was, and let it close its own outputs too."""
    global _LOCK, _GENERATOR_LOCK  # another thread of the parent may have held them
    _LOCK, _GENERATOR_LOCK = threading.Lock(), threading.RLock()
    _USERS.clear()
    _CLEANUP.pop_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _close_outputs() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    _CLEANUP.callback(os.close, null)
    for output in (1, 2):
        with contextlib.suppress(OSError):  # there may be none
            kept = os.dup(output)
            _CLEANUP.callback(os.close, kept)
            _CLEANUP.callback(os.dup2, kept, output)
            os.dup2(null, output)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that all of a process share, and put their states back.

    A model that draws from them would else hang on what was trained before it, or is trained at
    the same time by another thread: so threads take turns.
    """
    with _GENERATOR_LOCK, contextlib.ExitStack() as undo:
        undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        undo.callback(random.setstate, random.getstate())
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        torch: Any = sys.modules.get("torch")
        if torch is not None:  # its generators start with the same known seed in each process
            undo.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        yield


# -----------------------------------------------------------------------------
# What a teacher is: a classifier of scikit-learn's kind, or a function that makes one.


Predict = Callable[[NDArray[np.float64]], Any]
Points = NDArray[np.float64]
FAILURES = (Exception, SystemExit)
"""What training in the open may end with."""

FUNCTION_REMEDY = (
    "write a function of (x, y, seed) that makes, fits and returns it, at the top level of a "
    "module, and pass that"
)


def describe_model(model: Any) -> tuple[Function, dict[str, Any]]:
    """Return what makes a teacher's model, and the parameters that an instance has.

    Raises
    ------
    DeclarationError
        If it is none of what `adaptive_dp.pate.teachers` takes.
    """
    if isinstance(model, str):
        model = _import_model(model)
    if inspect.isclass(model):
        missing = [m for m in ("fit", "predict") if not callable(getattr(model, m, None))]
        if missing:
            raise DeclarationError(
                f"a teacher's model must have fit and predict; {model.__name__} has no "
                f"{' and no '.join(missing)}"
            )
        return Function.of(model), {}
    if inspect.isroutine(model):
        return Function.of(model), {}
    if callable(getattr(model, "fit", None)) and callable(getattr(model, "get_params", None)):
        return Function.of(type(model)), _instance_parameters(model)
    fits = callable(getattr(model, "fit", None))
    raise DeclarationError(
        f"a teacher's model must be a classifier with fit and predict (its class, an instance that "
        f"has get_params, or 'module:name'), or a function of (x, y, seed) that returns one of x; "
        f"got {type(model).__name__ if fits else repr(model)[:80]}"
        + (", whose parameters cannot be asked for: pass its class" if fits else "")
    )


def _import_model(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise DeclarationError(
            f"the model {text!r} cannot be imported ({error}); write it as 'module:name', and "
            "install its package"
        ) from None
    model = find_attribute(module, name) if name else None
    if model is None:
        raise DeclarationError(
            f"the model {text!r} is not there: module {module!r} has no {name!r}; write it as "
            "'module:name'"
        )
    return model


def _instance_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of an instance that are not those of a new one."""
    kind, own = type(model), model.get_params(deep=False)
    try:
        usual = kind().get_params(deep=False)
    except TypeError:  # some have to be given
        usual = {}
    taken = {k: v for k, v in own.items() if k not in usual or not _equal_values(v, usual[k])}
    return check_settings(taken, kind.__name__)


def _equal_values(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and repr(a) == repr(b))


def check_settings(values: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return a model's parameters as numbers, texts, lists and mappings of such.

    Raises
    ------
    DeclarationError
        If one is anything else, such as another estimator, or a generator of random numbers.
    """
    kept = {}
    for name, value in values.items():
        try:
            kept[str(name)] = plain(value, f"parameter {name} of {of}")
        except DeclarationError as error:
            raise DeclarationError(
                f"{error}: a plan is written down as a document, which cannot hold it. To train "
                f"one with it (a pipeline, say), {FUNCTION_REMEDY}"
            ) from None
    return kept


def fit_model(
    make: Callable[..., Any],
    parameters: Mapping[str, Any],
    x: Points,
    y: NDArray[np.int64],
    seed: int,
) -> Predict:
    """Return what predicts class positions, trained on x of shape (n, p) and y of shape (n,)."""
    kind: Any = make
    with seeded(seed):
        if not inspect.isclass(make):
            made = kind(x, y, seed, **parameters)
            return made if callable(made) else made.predict  # type: ignore[no-any-return]
        classifier, state = kind(**parameters), {"random_state": seed % 2**31}  # C's int
        if "random_state" in parameters:
            pass
        elif callable(getattr(make, "set_params", None)):
            if "random_state" in classifier.get_params(deep=False):
                classifier.set_params(**state)
        elif _accepts(make, "random_state"):
            classifier = kind(**parameters, **state)
        classifier.fit(x, y)  # some return nothing
        return classifier.predict  # type: ignore[no-any-return]


def _accepts(make: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(make).parameters
    except (TypeError, ValueError):  # compiled classes need not tell
        return False


def predictions(predict: Predict, points: Points) -> NDArray[Any]:
    """Return what a model predicts for points of shape (m, p); a column as shape (m,)."""
    votes = np.asarray(predict(points))
    return votes[:, 0] if votes.ndim == 2 and votes.shape[1] == 1 else votes


def predicted_positions(votes: NDArray[Any], size: int, classes: int) -> NDArray[np.int64] | None:
    """Return predictions as positions of classes, or None where they are no such array."""
    if votes.shape != (size,) or votes.dtype.kind not in "biufUSO":
        return None
    try:
        return class_positions(votes, classes)
    except (TypeError, ValueError):  # texts that are no numbers
        return None


@frozen(eq=False, repr=False)
class Model:
    """A trained teacher; it always has a vote.

    Parameters
    ----------
    classes
        How many there are.
    predict
        What it has learned; None where it votes for one class always.
    always
        That class.
    seed
        What randomness in its predictions is drawn from.
    """

    classes: int
    predict: Predict | None = None
    always: int = 0
    seed: int = 0

    def __repr__(self) -> str:
        return "<private teacher>"

    def votes(self, points: Points) -> NDArray[np.int64]:
        """Return votes on points of shape (m, p): positions of classes, shape (m,)."""
        fallback = np.full(len(points), self.always, dtype=np.int64)
        if self.predict is None:
            return fallback
        try:
            with seeded(self.seed):
                votes = predictions(self.predict, points)
            found = predicted_positions(votes, len(points), self.classes)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a teacher that fails still votes: nobody learns that it failed
            return fallback
        return fallback if found is None else found


def train_model(
    make: Callable[..., Any],
    parameters: Mapping[str, Any],
    x: Points,
    y: NDArray[np.int64],
    seed: int,
    classes: int,
) -> Model:
    """Return a teacher of the rows: a constant where they show one class, or training fails."""
    seen = np.unique(y)
    if len(seen) < 2:
        return Model(classes, None, int(seen[0]) if len(seen) else 0)
    try:
        return Model(classes, fit_model(make, parameters, x, y, seed), 0, seed)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return Model(classes)
