"""An interrupted run returns what was released, under a certificate of just that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.run import Interrupted

STOP: dict[str, int] = {"at": 0, "calls": 0}


def add(total: float, count: float) -> float:
    """Post-processing inside the loop, at whose n-th call somebody presses a key."""
    STOP["calls"] += 1
    if STOP["calls"] == STOP["at"]:
        raise KeyboardInterrupt
    return float(total) + float(count)


def double(value: float) -> float:
    return 2 * float(value)


def plan() -> dp.Pipeline:
    table = dp.dataset("people", columns={"x": (0, 1)})
    first = table.count().release(dp.Gaussian(sigma=5.0))

    def step(state: dp.Released[Any], table: dp.Table) -> dp.Released[Any]:
        return dp.post(add, state, table["x"].sum().release(dp.Gaussian(sigma=3.0)))

    total = dp.repeat(step, 10, table, start=0.0)
    last = table.count().release(dp.Gaussian(sigma=7.0))
    return dp.Pipeline(
        first=first, total=dp.post(double, total), both=dp.post(add_all, total, last)
    ).with_delta(1e-6)


def add_all(*values: float) -> float:
    return float(np.sum([float(v) for v in values]))


DATA = {"people": {"x": np.linspace(0, 1, 50)}}


def stopped(at: int, **more: Any) -> Interrupted:
    STOP.update(at=at, calls=0)
    with pytest.raises(Interrupted) as caught:
        plan().simulate(seed=3, **more, **DATA)
    STOP.update(at=0)
    return caught.value


def test_complete_rounds_are_returned_and_certified() -> None:
    partial = stopped(5).result
    assert partial is not None
    # what the first pass computed is released before the loop begins
    assert set(partial) == {"first", "total", "both"}
    STOP.update(at=0)
    complete = plan().simulate(seed=3, **DATA)
    assert partial.certificate.epsilon < complete.certificate.epsilon
    table = dp.dataset("people", columns={"x": (0, 1)})

    def step(state: dp.Released[Any], table: dp.Table) -> dp.Released[Any]:
        return dp.post(add, state, table["x"].sum().release(dp.Gaussian(sigma=3.0)))

    total = dp.repeat(step, 4, table, start=0.0)
    four: dict[str, Any] = {
        "first": table.count().release(dp.Gaussian(sigma=5.0)),
        "total": dp.post(double, total),
        "both": dp.post(add_all, total, table.count().release(dp.Gaussian(sigma=7.0))),
    }
    expected = dp.Pipeline(**four).certify(1e-6)
    assert partial.certificate.epsilon == expected.epsilon
    assert dp.verify(partial.certificate)
    assert not partial.certificate.randomness.release


def test_nothing_released_is_nothing_spent() -> None:
    table = dp.dataset("people", columns={"x": (0, 1)})

    def step(state: dp.Released[Any], table: dp.Table) -> dp.Released[Any]:
        return dp.post(add, state, table["x"].sum().release(dp.Gaussian(sigma=3.0)))

    STOP.update(at=1, calls=0)
    with pytest.raises(Interrupted) as caught:
        dp.Pipeline(a=dp.repeat(step, 5, table, start=0.0)).with_delta(1e-6).simulate(
            seed=1, **DATA
        )
    STOP.update(at=0)
    assert caught.value.result is None


def test_an_interrupted_run_is_a_keyboard_interrupt_without_data() -> None:
    caught = stopped(3)
    assert isinstance(caught, KeyboardInterrupt)
    frames = []
    trace = caught.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "_round" not in frames
    assert caught.__cause__ is None
    assert caught.__context__ is None


def test_progress_says_rounds_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    STOP.update(at=0)
    one = plan().simulate(seed=3, **DATA)
    other = plan().simulate(seed=3, progress=True, **DATA)
    assert one["total"] == other["total"]
    assert capsys.readouterr().out == ""


def test_a_calibrated_copy_is_another_release() -> None:
    # what one released must not be shown under the other's certificate
    table = dp.dataset("people", columns={"x": (0, 1)})
    free = table.count().release(dp.Gaussian(sigma=dp.Free("s")))
    noisy = dp.Pipeline(n=free).with_delta(1e-6).fix(s=1e6).outputs[0][1]
    clear = dp.Pipeline(n=free).with_delta(1e-6).fix(s=1e-3).outputs[0][1]
    late = table.count().release(dp.Gaussian(sigma=1e3))
    STOP.update(at=1, calls=0)
    with pytest.raises(Interrupted) as caught:
        dp.Pipeline(
            late=dp.post(add_all, dp.post(add, clear, clear), late), noisy=noisy
        ).with_delta(1e-6).simulate(seed=5, **DATA)
    STOP.update(at=0)
    assert caught.value.result is None


def test_a_loop_reads_a_release_and_its_calibrated_copy() -> None:
    table = dp.dataset("people", columns={"x": (0, 1)})
    free = table.count().release(dp.Gaussian(sigma=dp.Free("s")))
    pair = [dp.Pipeline(n=free).fix(s=s).outputs[0][1] for s in (1.0, 2.0)]
    total = dp.repeat(lambda state: dp.post(add_all, state, *pair), 2, start=0.0)
    assert {id(h) for h in pair} <= {id(h) for h in total.inputs}
