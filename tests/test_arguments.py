"""Arguments of a wrong type are refused with a clear error; every kind of number is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from plans import columns, data

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.counts import Count

FRAME = {"x": np.arange(4.0), "r": np.array(list("AABB"))}


def table(name: str = "t", **more: Any) -> dp.Table:
    return dp.dataset(name, columns={"x": (0, 10), "r": ["A", "B"]}, **more)


def released(mechanism: dp.Mechanism | None = None, **more: Any) -> dp.Released[Any]:
    return table().count().release(mechanism or dp.Laplace(scale=1.0), **more)


def plan(mechanism: dp.Mechanism | None = None) -> dp.Pipeline:
    return dp.Pipeline(n=released(mechanism))


def free() -> dp.Pipeline:
    return plan(dp.Laplace(scale=dp.Free("b")))


def same(state: Any) -> Any:
    return state


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an accountant by name": (
        lambda: plan().certify(accountants=["renyi"]),  # type: ignore[list-item]
        r"accountants\.Renyi\(\).*'renyi'",
    ),
    "accountants in one text": (
        lambda: plan().certify(accountants="renyi"),  # type: ignore[arg-type]
        "'renyi'",
    ),
    "no accountants": (lambda: plan().certify(accountants=[]), "accountants"),
    "one accountant, no list": (
        lambda: plan().certify(accountants=accountants.Basic()),  # type: ignore[arg-type]
        r"expected a list",
    ),
    "what if, by name": (
        lambda: plan().measure("basic"),  # type: ignore[arg-type]
        "'basic'",
    ),
    "what if, a class": (
        lambda: plan().measure(accountants.Basic),  # type: ignore[arg-type]
        r"Basic\(\)",
    ),
    "calibrate on no accountants": (
        lambda: free().calibrate(epsilon=1.0, accountants=[]),
        "accountants",
    ),
    "calibrate for too much": (
        lambda: free().calibrate(epsilon=1e300),
        r"epsilon.*\b1e300\b.*1e\+300",
    ),
    "a difference to a str": (lambda: plan().diff("x"), r"diff.*\bstr\b"),  # type: ignore[arg-type]
    "verify a document": (
        lambda: dp.verify(plan().certify().to_document()),  # type: ignore[arg-type]
        r"Certificate.*\bdict\b.*Certificate\.from_json",
    ),
    "a repeat of no function": (
        lambda: dp.repeat(0, 3, start=1),  # type: ignore[arg-type]
        r"repeat.*\b0\b",
    ),
    "a repeat of a str of times": (
        lambda: dp.repeat(lambda s: pytest.fail("built"), "x", start=1),  # type: ignore[arg-type]
        "times.*'x'",
    ),
    "a parameter of a function's result": (
        lambda: dp.parameter(dp.post(same, released()), "scale"),
        r"\.release\(mechanism\)",
    ),
    "a parameter of a number": (
        lambda: dp.parameter(3, "scale"),  # type: ignore[arg-type]
        r"parameter.*\b3\b",
    ),
    "a parameter that is not there": (
        lambda: dp.parameter(released(), "sigma"),
        "Laplace.*'sigma'",
    ),
    "a release of another name than a str": (
        lambda: released(name=3),
        r"\b3\b",
    ),
    "a closed group that is not there": (
        lambda: plan().svg(closed=["unknown"]),
        "'unknown'",
    ),
    "closed groups in one text": (lambda: plan().svg(closed="AdaSSP"), r"expected a list"),
    "a simulation without a seed": (
        lambda: plan().simulate(seed=None, t=FRAME),  # type: ignore[arg-type]
        r"seed.*None.*\brun\b",
    ),
    "a seed between two": (
        lambda: plan().simulate(seed=1.0, t=FRAME),  # type: ignore[arg-type]
        r"\bseed\b",
    ),
    "a delta of 1": (lambda: plan().with_delta(1.0), r"\bdelta\b.*\b1\b"),
    "a mechanism without a release": (lambda: released(Lossy(b=1.0)), "Lossy.*release"),
    "a mechanism without a loss": (lambda: released(Costless(b=1.0)), "Costless.*loss"),
}


class Lossy(dp.Mechanism):
    b: float = dp.noise_parameter("b")

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance)


class Costless(dp.Mechanism):
    b: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        return value


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    wrong, message = REFUSED[name]
    with pytest.raises(dp.DeclarationError, match=message):
        wrong()


def test_groups_and_loops_can_be_closed() -> None:
    solved = dp.group("G", dp.post(same, released()), table())
    loop = dp.repeat(
        lambda s, t: dp.post(max, s, t.count().release(dp.Laplace(scale=1.0))), 2, table(), start=0
    )
    made = dp.Pipeline(a=solved, b=loop)
    names = {g for _, groups in made.graph.nodes(data="group") for g in groups}
    assert "G" in names
    assert len(names) == 2
    assert made.svg(closed=sorted(names))


NUMBERS = [np.int64(2), np.float32(2), np.float64(2), Fraction(2), np.uint8(2), 2, 2.0]


@pytest.mark.parametrize("two", NUMBERS, ids=lambda v: type(v).__name__)
def test_numbers_of_every_kind(two: Any) -> None:
    made = [
        plan(dp.Laplace(scale=two)),
        plan(dp.Laplace(scale=dp.Free("b", weight=two))).fix(b=1),
        free().fix(b=two),
        free().calibrate(epsilon=two, delta=two / 4e6),
    ]
    for one in made:
        assert 0.4999 <= one.certify(1e-6).epsilon <= 2
        text = one.to_json()
        assert dp.load(text).fingerprint == one.fingerprint
        (node,) = (n for n in json.loads(text)["nodes"] if n["kind"] == "release")
        assert type(node["mechanism"]["scale"]) in (int, float)
    assert made[-1].certify().epsilon == pytest.approx(2, rel=1e-6)
    assert type(dp.Laplace(scale=two).scale) in (int, float)
    assert type(dp.Free("b", weight=two).weight) in (int, float)


@pytest.mark.parametrize("three", [np.int64(3), np.uint8(3), 3])
def test_integers_of_every_kind(three: Any) -> None:
    loop = dp.repeat(
        lambda s, t: dp.post(max, s, t.count().release(dp.Laplace(scale=1.0))),
        three,
        table(),
        start=0,
    )
    made = dp.Pipeline(o=loop)
    assert made.certify().epsilon == pytest.approx(3)
    assert dp.load(made.to_json()).fingerprint == made.fingerprint
    seen = made.simulate(seed=three, t=FRAME)
    assert seen["o"] == made.simulate(seed=3, t=FRAME)["o"]
    assert seen.certificate.randomness.source == "seed 3"


@pytest.mark.parametrize("truth", [True, np.True_])
def test_a_truth_is_no_number(truth: Any) -> None:
    for wrong in (
        lambda: dp.Laplace(scale=truth),
        lambda: dp.Free("b", weight=truth),
        lambda: free().fix(b=truth),
        lambda: free().calibrate(epsilon=truth),
        lambda: dp.repeat(same, truth, start=0),
        lambda: plan().simulate(seed=truth, t=FRAME),
    ):
        with pytest.raises(dp.DeclarationError):
            wrong()


def test_gaussian_noise_at_delta_0_is_not_run() -> None:
    made = plan(dp.Gaussian(sigma=5.0))
    assert made.certify().epsilon == float("inf")
    assert made.simulate(seed=1, t=FRAME)["n"]
    with pytest.raises(dp.DeclarationError, match=r"with_delta\(1e-6\).*calibrate"):
        made.run(t={"x": pytest.fail})
    other = made.with_delta(1e-6)
    assert (made.delta, other.delta) == (0, 1e-6)
    assert other.fingerprint == made.fingerprint
    assert other.run(t=FRAME).certificate.epsilon == other.certify().epsilon < 2
    assert other.certify().delta == 1e-6
    assert dp.load(other.to_json()).delta == 1e-6


class Returning(dp.Mechanism):
    """Returns a given output, whatever the value."""

    b: float = dp.noise_parameter("b")
    what: str = "right"

    def release(self, value: Any, stream: Any) -> Any:
        wrong = {
            "none": None,
            "a str": "271828",
            "strings": np.full(value.shape, "271828"),
            "longer": np.zeros((*value.shape, 1)),
            "shorter": value[:1] if value.ndim else [value],
            "complex": value + 1j,
            "objects": np.full(value.shape, None),
            "ragged": [[1], [1, 2]],
            "data": np.zeros(int(value.sum())),
            "integers": value.astype(np.int64),
            "a list": value.tolist(),
            "truths": value > 0,
        }
        return wrong[self.what]

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance / self.b)


@pytest.mark.parametrize(
    "output",
    ["none", "a str", "strings", "longer", "shorter", "complex", "objects", "ragged", "data"],
)
def test_what_is_no_release_of_the_value_fails_the_run(output: str) -> None:
    query = table()["x"].histogram([0, 1, 2, 11])
    made = dp.Pipeline(h=query.release(Returning(b=1.0, what=output)))
    message = r"node 'h'.*(Returning\.release.*\(3,\)|failed)"
    with pytest.raises(dp.RunError, match=message) as caught:
        made.run(t=FRAME)
    assert caught.value.__context__ is None
    assert "271828" not in str(caught.value)
    if output == "data":  # as long as there are rows: what it returns for zeros is reported
        assert "(4,)" not in str(caught.value)
        assert "(0,)" in str(caught.value)


@pytest.mark.parametrize("output", ["integers", "a list", "truths"])
def test_real_numbers_of_the_values_shape_are_a_release(output: str) -> None:
    query = table()["x"].histogram([0, 1, 2, 11])
    seen = dp.Pipeline(h=query.release(Returning(b=1.0, what=output))).run(t=FRAME)["h"]
    assert seen.dtype == np.float64
    assert list(seen) == ([1, 1, 1] if output == "truths" else [1, 1, 2])


def test_a_data_set_is_the_same_in_every_round() -> None:
    bounded = table("inner", unit="id", rows_per_unit=1)

    def body(state: Any, inner: Any) -> Any:
        return dp.post(max, state, inner.count().release(dp.Laplace(scale=0.01)))

    with pytest.raises(dp.DeclarationError):  # declared in a body, it is no body's own
        dp.repeat(lambda s: body(s, table("inner", unit="id", rows_per_unit=1)), 3, start=0)
    made = dp.Pipeline(o=dp.repeat(body, 3, bounded, start=0), n=released())
    certificate = made.certify()
    assert certificate.epsilon == pytest.approx(301)
    frame = FRAME | {"id": np.arange(4)}
    assert made.simulate(seed=1, t=FRAME, inner=frame)["o"] == pytest.approx(4, abs=1)
    again = dp.load(made.to_json(), allow=["builtins"])
    assert again.fingerprint == made.fingerprint
    assert again.certify().epsilon == certificate.epsilon
    assert again.simulate(seed=1, t=FRAME, inner=frame)["o"] == pytest.approx(4, abs=1)
    twice = dp.repeat(lambda s, t: dp.repeat(body, 2, t, start=s), 2, bounded, start=0)
    nested = dp.Pipeline(o=twice)
    assert nested.certify().epsilon == pytest.approx(400)
    assert dp.load(nested.to_json()).fingerprint == nested.fingerprint


def test_data_sets_of_one_name_are_one_only_if_their_values_are_of_one_type() -> None:
    both = [dp.dataset("t", columns={"c": values}) for values in ([1], [True])]
    outputs = {
        str(i): t["c"].histogram().release(dp.Laplace(scale=1.0)) for i, t in enumerate(both)
    }
    with pytest.raises(dp.DeclarationError, match="'t'"):
        dp.Pipeline(**outputs)


def own(text: str) -> type[dp.Query]:
    @frozen
    class Own(Count):
        kind = "own_of_test_arguments"

        def run(self, inputs: Any, stream: Any) -> Any:
            return np.array(float(len(text)))

        def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
            return 1.0

    return Own


class Exact(Lossy):
    def release(self, value: Any, stream: Any) -> Any:
        return value


def test_own_operations_of_one_kind_and_equal_parameters_stay_two() -> None:
    from adaptive_dp.graph.handles import PrivateQuery

    source = table()
    handles = [PrivateQuery(own(t)(), (source,)).release(Exact(b=1.0)) for t in ("a", "abc")]
    made = dp.Pipeline(a=handles[0], b=handles[1])
    seen = made.simulate(seed=1, t=FRAME)
    assert (seen["a"], seen["b"]) == (1, 3)

    class Other(own("abc")):  # type: ignore[misc]
        pass

    one, two = (
        dp.Pipeline(a=PrivateQuery(cls(), (source,)).release(Exact(b=1.0))).fingerprint
        for cls in (own("a"), Other)
    )
    assert one != two


def test_an_interrupt_while_data_is_read_shows_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_dp.queries import source

    def rows(*args: Any, **kwargs: Any) -> Any:
        secret = "Ann 271828"
        raise KeyboardInterrupt(secret)

    monkeypatch.setattr(source, "open_rows", rows)
    with pytest.raises(KeyboardInterrupt) as caught:
        plan().run(t=FRAME)
    assert caught.value.args == ()
    assert caught.value.__context__ is None
    frames = caught.traceback
    assert not any("secret" in entry.frame.f_locals for entry in frames)
    inner = [e for e in frames if "adaptive_dp" in str(e.path)]
    assert not any(re.search("arange|ndarray|Rows", repr(e.frame.f_locals)) for e in inner)


def test_whatever_fails_in_an_interval_costs_the_interval_alone() -> None:
    calls: list[int] = []

    def odd(value: float) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return value
        raise SystemExit("enough")

    class Deviating(Exact):
        def error(self, level: float, dimension: int, step: float) -> float:
            raise OverflowError("too large")

    count = table().count()
    made = dp.Pipeline(
        huge=dp.post(lambda v: 10**400, released()),
        ragged=dp.post(lambda v: [[1], [1, 2]][: 1 + len(calls) % 2], released()),
        deviating=count.release(Deviating(b=1.0)),
        n=released(),
    )
    seen = made.run(t=FRAME)
    assert seen["huge"] == 10**400
    with pytest.raises(dp.NoIntervalError, match="OverflowError"):
        seen["deviating"].interval()
    assert "huge" in str(seen)
    assert seen["n"].interval().low < seen["n"]
    leaving = dp.Pipeline(o=dp.post(odd, released()), n=released()).run(t=FRAME)
    with pytest.raises(dp.NoIntervalError, match="fails on other noise"):
        leaving["o"].interval()
    assert set(leaving) == {"o", "n"}


def test_the_plans_that_tests_share_still_run() -> None:
    assert columns().with_delta(1e-6).run(people=data(1)).certificate.epsilon < 50
