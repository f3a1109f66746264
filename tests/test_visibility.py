"""What is private stays so: in reprs, logs, tracebacks, pickles and errors."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import traceback
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from plans import data, people

import accountants
import adaptive_dp as dp

SECRET = 271828.25
"""A number that is in the data and nowhere else."""


def frame() -> dict[str, np.ndarray]:
    return {"x": np.array([SECRET, 1.0]), "name": np.array([f"Ann{SECRET}", "Bob"])}


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 1e6), "name": None})


class TestSecret:
    def test_in_words(self) -> None:
        secret = dp.Secret(SECRET)
        assert repr(secret) == str(secret) == f"{secret}" == f"{secret:>9.2f}" == "<private>"
        assert "%s %r" % (secret, secret) == "<private> <private>"  # noqa: UP031
        assert repr([secret, {"a": secret}]) == "[<private>, {'a': <private>}]"
        assert "{}".format(secret) == "<private>"  # noqa: UP032

    def test_in_logs(self) -> None:
        stream = io.StringIO()
        log = logging.getLogger("test_visibility")
        log.addHandler(logging.StreamHandler(stream))
        log.warning("value %s %r", dp.Secret(SECRET), dp.Secret("Ann"))
        assert stream.getvalue() == "value <private> <private>\n"

    def test_in_tracebacks_with_locals(self) -> None:
        def fails(secret: dp.Secret[float]) -> None:
            raise ValueError(f"at {secret}")

        try:
            fails(dp.Secret(SECRET))
        except ValueError as error:
            text = "".join(
                traceback.TracebackException.from_exception(error, capture_locals=True).format()
            )
        assert "secret = <private>" in text
        assert str(SECRET) not in text.replace("SECRET", "")

    def test_no_copy_leaves(self) -> None:
        secret = dp.Secret(SECRET)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError):
                pickle.dumps(secret, protocol)
        for copier in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                copier(secret)
        with pytest.raises(TypeError):
            np.asarray(secret)
        for use in (bool, float, int, len, iter, vars):
            with pytest.raises(TypeError):
                use(secret)

    def test_handles_in_words(self) -> None:
        assert repr(table()["x"].sum()) == "<private sum in [0, 1e+06]>"
        assert repr(table().count().release(dp.Laplace(scale=1))) == "<released Laplace(scale=1)>"
        assert repr(table().partition("name", ["a"])) == "<private parts ['a']>"


class Loud(dp.Mechanism):
    """A mechanism that fails, in one of many ways, with what it knows in its message."""

    b: float = dp.noise_parameter("b")
    how: str = "value"

    def release(self, value: Any, stream: Any) -> Any:
        revealed = float(np.ravel(value)[0])
        if self.how == "chain":
            try:
                raise KeyError(revealed)
            except KeyError as inner:
                raise ValueError(f"saw {revealed}") from inner
        if self.how == "group":
            raise ExceptionGroup(f"saw {revealed}", [ValueError(revealed)])
        if self.how == "library":  # the library's own error, about a parameter made of the data
            return dp.Laplace(scale=-revealed).release(value, stream)
        if self.how == "exit":
            raise SystemExit(f"saw {revealed}")
        if self.how == "interrupt":
            raise KeyboardInterrupt(f"saw {revealed}")
        kinds = {"leak": dp.LeakError, "run": dp.RunError, "data": dp.DataError}
        kinds |= {"document": dp.DocumentError, "accounting": accountants.DomainError}
        raise kinds.get(self.how, ValueError)(f"saw {revealed}")  # type: ignore[operator]

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance / self.b)


def everything(error: BaseException) -> Iterator[str]:
    """All that a debugger, a log or a crash report could show of an error."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield repr(current.args) + repr(getattr(current, "__notes__", ""))
        queue += [current.__cause__, current.__context__]
        for frame, _ in traceback.walk_tb(current.__traceback__):
            if "/adaptive_dp/" in frame.f_code.co_filename:
                yield from locals_of(frame)


def locals_of(frame: types.FrameType) -> Iterator[str]:
    for name, value in frame.f_locals.items():
        yield f"{name} = {value!r}"
        if isinstance(value, dict):
            yield from map(repr, value.values())
        if hasattr(value, "__dict__") and type(value).__module__.startswith("adaptive_dp"):
            yield repr(vars(value))


def leaks(error: BaseException) -> list[str]:
    needles = (str(SECRET), "271829", "271828", "Ann")
    return [text for text in everything(error) if any(needle in text for needle in needles)]


@pytest.mark.parametrize(
    "how",
    ["value", "chain", "group", "library", "exit", "leak", "run", "data", "document", "accounting"],
)
def test_a_mechanism_that_raises_tells_nothing(how: str) -> None:
    plan = dp.Pipeline(s=table()["x"].sum().release(Loud(b=1.0, how=how)))
    with pytest.raises(dp.RunError, match="node 's'") as caught:
        plan.run(t=frame())
    assert leaks(caught.value) == []
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_interrupt_passes_and_tells_nothing() -> None:
    plan = dp.Pipeline(s=table()["x"].sum().release(Loud(b=1.0, how="interrupt")))
    with pytest.raises(KeyboardInterrupt) as caught:
        plan.run(t=frame())
    assert leaks(caught.value) == []
    assert caught.value.args == ()


def fails(*values: Any) -> float:
    raise ValueError(f"got {values} and {SECRET}")


def test_a_function_that_raises_tells_nothing() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    for function in (fails, lambda n: fails(n)):
        with pytest.raises(dp.RunError, match=r"node '.*'.*ValueError in fails, line") as caught:
            dp.Pipeline(s=dp.post(function, count)).run(t=frame())
        assert leaks(caught.value) == []
        assert caught.value.__context__ is None


class OwnQuery(dp.Query):
    kind = "own_query"


def test_rows_that_raise_tell_nothing() -> None:
    class Rows:
        def total(self, block: Any) -> Any:
            raise ValueError(f"row {SECRET}")

        where = bound = gather = sample = total

        def __repr__(self) -> str:
            return "<rows>"

    class Data:
        def open_rows(self, columns: Any, unit: Any) -> Rows:
            return Rows()

    plan = dp.Pipeline(n=table().count().release(dp.Laplace(scale=1.0)))
    with pytest.raises(dp.RunError) as caught:
        plan.run(t=Data())
    assert leaks(caught.value) == []


class Hostile:
    """Data that quotes itself when it is read."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"Ann {SECRET}")

    def __repr__(self) -> str:
        return f"Ann {SECRET}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": np.array([f"Ann{SECRET}"]), "name": np.array(["Ann"])},
        {"x": Hostile(), "name": np.array(["Ann"])},
        {"x": np.array([SECRET])},
        {"x": np.array([SECRET]), "name": np.array(["Ann", "Ann"])},
        Hostile(),
    ],
)
def test_data_that_cannot_be_read_tells_nothing(wrong: Any) -> None:
    plan = dp.Pipeline(s=table()["x"].sum().release(dp.Laplace(scale=1.0)))
    with pytest.raises(dp.DataError) as caught:
        plan.run(t=wrong)
    assert leaks(caught.value) == []
    assert caught.value.__context__ is None


def test_odd_values_raise_no_warning() -> None:
    """A warning about an overflow would tell of the data."""
    source = dp.dataset("t", columns={"x": (-1e60, 1e60), "y": (0, 1), "z": None})
    vectors = source.vectors(["x", "y"])
    plan = dp.Pipeline(
        a=vectors.clip(norm=1.0).sum().release(dp.Laplace(scale=1.0)),
        b=vectors.gram().release(dp.Laplace(scale=1.0)),
        c=vectors.times(source["x"]).sum().release(dp.Laplace(scale=1.0)),
        d=source.filter(source["z"] > 0)["x"].sum().release(dp.Laplace(scale=1.0)),
        e=source["z"].histogram([0, 1]).release(dp.Laplace(scale=1.0)),
    )
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = plan.simulate(seed=1, t={"x": odd, "y": odd, "z": odd})
    assert np.all(np.isfinite(seen["b"]))


def test_results_hold_nothing_private() -> None:
    plan = dp.Pipeline(n=table().count().release(dp.Laplace(scale=100.0)))
    result = plan.run(t=frame())
    again = pickle.loads(pickle.dumps(result))
    assert again["n"] == result["n"]
    for text in (str(result), repr(result), result.certificate.to_json(), repr(plan), str(plan)):
        assert str(SECRET) not in text
        assert "Ann" not in text


def test_a_failed_run_leaves_the_plan_as_it_was() -> None:
    plan = dp.Pipeline(s=table()["x"].sum().release(Loud(b=1.0)))
    before = plan.fingerprint, set(vars(plan))
    with pytest.raises(dp.RunError):
        plan.run(t=frame())
    assert plan.fingerprint == before[0]
    assert not leaks_of_object(plan)


def leaks_of_object(value: Any) -> bool:
    return str(SECRET) in repr(vars(value))


def test_a_private_value_is_no_argument() -> None:
    count = people().count().release(dp.Laplace(scale=1.0))
    with pytest.raises(dp.LeakError, match=r"argument 2.*people -> "):
        dp.post(max, count, people()["x"])
    assert set(dp.Pipeline(n=count).run(people=data(1))) == {"n"}
