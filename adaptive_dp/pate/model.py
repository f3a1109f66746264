"""Teachers' models: what may be one, and training them without output and with seeded generators.

The output of a model in training may depend on private rows. So warnings, log records and the
output of Python code are dropped while any model is trained or predicts, in all threads of the
process; in a worker process the output of compiled code too. (In the process of the run itself the
output of compiled code, such as liblinear's with ``verbose=1``, is not dropped.)
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
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import document_value
from adaptive_dp.graph.registry import Function, find_attribute
from adaptive_dp.pate.ballots import class_positions

# guards _USERS and _CLEANUP, which all threads of the process share
_LOCK = threading.Lock()
# reentrant: `seeded` blocks may be nested in one thread
_GENERATOR_LOCK = threading.RLock()
# one entry for each thread inside `quiet`; _CLEANUP restores what the first of them changed
_USERS: list[None] = []
_CLEANUP = contextlib.ExitStack()


class NullOutput(io.TextIOBase):
    """An output stream of str that drops what is written."""

    def write(self, text: str) -> int:
        """Return the length of the dropped str."""
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True


@contextlib.contextmanager
def quiet(run: int) -> Iterator[None]:
    """Drop output, warnings and log records; the last of several threads to leave restores them.

    Parameters
    ----------
    run
        The process id of the run.
    """
    with _LOCK:
        # the first to enter silences for all
        if not _USERS:
            _silence(run)
        _USERS.append(None)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        with _LOCK:
            _USERS.pop()
            # the last to leave restores for all
            if not _USERS:
                _CLEANUP.close()


def _silence(run: int) -> None:
    _CLEANUP.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    nowhere: Any = NullOutput()
    _CLEANUP.enter_context(contextlib.redirect_stdout(nowhere))
    _CLEANUP.enter_context(contextlib.redirect_stderr(nowhere))
    # logging has one level for the process, so the one before is put back
    _CLEANUP.callback(logging.disable, logging.root.manager.disable)
    logging.disable(logging.CRITICAL)
    # in a worker process the output of compiled code can be dropped too
    if os.getpid() != run:
        _close_outputs()
    with contextlib.suppress(ImportError):  # it arrives with scikit-learn
        from threadpoolctl import threadpool_limits

        # sums may round otherwise with another number of threads, and small ones wait for them
        _CLEANUP.enter_context(threadpool_limits(1))


def _reset_after_fork() -> None:
    """Reset the state in a forked worker: it stays silent, and closes its own outputs."""
    global _LOCK, _GENERATOR_LOCK  # another thread of the parent may have held them
    _LOCK, _GENERATOR_LOCK = threading.Lock(), threading.RLock()
    # the parent's threads do not exist here, and what they would restore is the parent's
    _USERS.clear()
    _CLEANUP.pop_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _close_outputs() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    _CLEANUP.callback(os.close, null)
    # standard output and standard error, for code that writes to descriptors
    for output in (1, 2):
        with contextlib.suppress(OSError):  # there may be none
            duplicate = os.dup(output)
            # called in reverse order: the descriptor is restored from its duplicate, then that is
            # closed
            _CLEANUP.callback(os.close, duplicate)
            _CLEANUP.callback(os.dup2, duplicate, output)
            os.dup2(null, output)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that all of a process share, and restore their states.

    Else a model that draws from them would depend on what was trained before it, or is trained at
    the same time by another thread: so threads take turns.
    """
    with _GENERATOR_LOCK, contextlib.ExitStack() as undo:
        # states are saved before seeding, and come back also where training fails
        undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        undo.callback(random.setstate, random.getstate())
        # NumPy's seeds have 32 bits
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        torch: Any = sys.modules.get("torch")
        if torch is not None:  # its generators start with the same known seed in each process
            undo.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        yield


# -----------------------------------------------------------------------------
# A teacher: a classifier with the interface of scikit-learn, or a function that trains one.


Predict = Callable[[NDArray[np.float64]], Any]
Points = NDArray[np.float64]
FAILURES = (Exception, SystemExit)
"""The errors of training on public rows that are reported."""

FUNCTION_REMEDY = (
    "write a function of (x, y, seed) that makes, fits and returns it, at the top level of a "
    "module, and pass that"
)


def describe_model(
    model: Any, parameters: Mapping[str, Any] | None = None
) -> tuple[Function, dict[str, Any]]:
    """Return the function that makes a model, and its keyword arguments.

    Parameters
    ----------
    model
        As `adaptive_dp.pate.teachers` takes it.
    parameters
        Keyword arguments beside those of an instance, which they replace.

    Raises
    ------
    DeclarationError
        If it is not one of the forms that `adaptive_dp.pate.teachers` takes.
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
    # a class, or a function that trains and returns a model
    if inspect.isclass(model) or inspect.isroutine(model):
        return Function.of(model), dict(parameters or {})
    # an instance: its class and parameters, not what it has learned
    fits = callable(getattr(model, "fit", None))
    if fits and callable(getattr(model, "get_params", None)):
        return Function.of(type(model)), {**_instance_parameters(model), **(parameters or {})}
    raise DeclarationError(
        f"a teacher's model must be a classifier with fit and predict (its class, an instance that "
        f"has get_params, or 'module:name'), or a function of (x, y, seed) that returns one of x; "
        f"got {type(model).__name__ if fits else repr(model)[:80]}"
        + (", whose parameters cannot be asked for: pass its class" if fits else "")
    )


def _import_model(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise DeclarationError(
            f"the model {path!r} cannot be imported ({error}); write it as 'module:name', and "
            "install its package"
        ) from None
    model = find_attribute(module, name) if name else None
    if model is None:
        raise DeclarationError(
            f"the model {path!r} does not exist: module {module!r} has no {name!r}; write it as "
            "'module:name'"
        )
    return model


def _instance_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of an instance that differ from the defaults."""
    # nested estimators stay as they are, and are refused below
    kind, values = type(model), model.get_params(deep=False)
    try:
        defaults = kind().get_params(deep=False)
    except TypeError:  # some have to be given
        defaults = {}
    changed = {
        k: v for k, v in values.items() if k not in defaults or not _equal_values(v, defaults[k])
    }
    return check_settings(changed, kind.__name__)


def _equal_values(a: Any, b: Any) -> bool:
    # by repr: == is False for NaN, and not a single bool for arrays
    return a is b or (type(a) is type(b) and repr(a) == repr(b))


def check_settings(values: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return a model's parameters as numbers, str, lists and mappings of these.

    Raises
    ------
    DeclarationError
        If one is of another type, such as an estimator or a generator of random numbers.
    """
    checked = {}
    for name, value in values.items():
        try:
            checked[str(name)] = document_value(value, f"parameter {name} of {of}")
        except DeclarationError as error:
            raise DeclarationError(
                f"{error}: a plan is stored as a document, which cannot contain it. To train a "
                f"model with it (such as a pipeline), {FUNCTION_REMEDY}"
            ) from None
    return checked


def settings_parameter(of: str) -> Any:
    """Declare the field of a model's keyword arguments; ``of`` is whose they are."""
    return field(factory=dict, converter=lambda values: check_settings(values, of))


def made_up_rows(classes: int, width: int) -> tuple[Points, NDArray[np.int64]]:
    """Return made-up examples of all classes to rehearse models on: x (n, p) and y (n,)."""
    # features of any bounds have such values, but those of none above 0; some models need them
    x = np.random.default_rng(0).uniform(0, 1, (max(200, 20 * classes), width))
    # each class in turn, so that a model sees all of them
    return x, np.arange(len(x)) % classes


def fit_model(
    make: Callable[..., Any],
    parameters: Mapping[str, Any],
    x: Points,
    y: NDArray[np.int64],
    seed: int,
) -> Predict:
    """Return a function that predicts class positions, trained on x (n, p) and y (n,)."""
    kind: Any = make
    with seeded(seed):
        # a function: it makes, fits and returns the model by itself
        if not inspect.isclass(make):
            model = kind(x, y, seed, **parameters)
            return model if callable(model) else model.predict  # type: ignore[no-any-return]
        classifier, state = kind(**parameters), {"random_state": seed % 2**31}  # C's int
        # a seed that the user has set stays
        if "random_state" in parameters:
            pass
        # scikit-learn's interface shows whether there is a random_state; else the signature does
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
    except (TypeError, ValueError):  # compiled classes may have no signature
        return False


def predictions(predict: Predict, points: Points) -> NDArray[Any]:
    """Return a model's predictions for points of shape (m, p); a column as shape (m,)."""
    votes = np.asarray(predict(points))
    # some classifiers return a column
    return votes[:, 0] if votes.ndim == 2 and votes.shape[1] == 1 else votes


def predicted_positions(votes: NDArray[Any], size: int, classes: int) -> NDArray[np.int64] | None:
    """Return predictions as positions of classes, or None where they cannot be."""
    # of another shape or type no class positions can be read
    if votes.shape != (size,) or votes.dtype.kind not in "biufUSO":
        return None
    try:
        return class_positions(votes, classes)
    except (TypeError, ValueError):  # str that are not numbers
        return None


@frozen(eq=False, repr=False)
class Model:
    """A trained teacher; it always has a vote.

    Parameters
    ----------
    classes
        How many there are.
    predict
        The trained prediction function; None where it always votes for one class.
    always
        The position of that class.
    seed
        Of the random numbers that its predictions draw.
    """

    classes: int
    predict: Predict | None = None
    always: int = 0
    seed: int = 0

    def __repr__(self) -> str:
        return "<private teacher>"

    def votes(self, points: Points) -> NDArray[np.int64]:
        """Return votes on points of shape (m, p): positions of classes, shape (m,)."""
        # made before the model is called, which may fail in any way
        fallback = np.full(len(points), self.always, dtype=np.int64)
        if self.predict is None:
            return fallback
        try:
            with seeded(self.seed):
                votes = predictions(self.predict, points)
            positions = predicted_positions(votes, len(points), self.classes)
        # the user's interruption alone ends the run
        except KeyboardInterrupt:
            raise
        except BaseException:  # a failing teacher still votes, so that failures are not observable
            return fallback
        return fallback if positions is None else positions


def train_model(
    make: Callable[..., Any],
    parameters: Mapping[str, Any],
    x: Points,
    y: NDArray[np.int64],
    seed: int,
    classes: int,
) -> Model:
    """Return a teacher trained on rows: a constant where they have one class, or training fails."""
    # most classifiers refuse rows of one class
    labels = np.unique(y)
    if len(labels) < 2:
        return Model(classes, None, int(labels[0]) if len(labels) else 0)
    try:
        return Model(classes, fit_model(make, parameters, x, y, seed), 0, seed)
    except KeyboardInterrupt:
        raise
    # a failure depends on private rows: it becomes a constant vote, and is not reported
    except BaseException:
        return Model(classes)
