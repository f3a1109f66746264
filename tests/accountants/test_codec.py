"""The codec: exact, of one spelling, and particular about what it reads."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from accountants.document import Codec, loads


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


@frozen
class Span:
    document_key: ClassVar[str] = "span"
    low: float
    high: float


@frozen
class Names:
    document_key: ClassVar[str] = "names"
    values: tuple[str, ...]


@frozen
class Inner:
    x: float
    times: int = 1


@frozen
class Outer:
    _hidden: float
    inner: Inner
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    either: Span | Names | None = None
    maybe: float | None = None
    side: Side = Side.LEFT
    word: Literal["a", "b"] = "a"
    share: Fraction = Fraction(1)
    more: Mapping[str, Any] = field(factory=dict)
    made: int = field(init=False, default=3)


CODEC = Codec(ValueError)
values = st.builds(
    Outer,
    st.floats(),
    st.builds(Inner, st.floats(), st.integers()),
    st.lists(st.builds(Inner, st.floats()), max_size=2).map(tuple),
    st.tuples(st.integers(), st.text()),
    st.none() | st.builds(Span, st.floats(), st.floats()) | st.builds(Names, st.just(("a",))),
    st.none() | st.floats(),
    st.sampled_from(Side),
    st.sampled_from(["a", "b"]),
    st.fractions(),
    st.dictionaries(st.text(min_size=6), st.floats() | st.booleans() | st.none() | st.text()),
)


def bits(value: Any) -> Any:
    """A value with its floats as their bits, so that NaN is equal to itself and -0 is not 0."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack(">d", value))
    if isinstance(value, Outer | Inner | Span | Names):
        return type(value), [bits(getattr(value, name)) for name in value.__slots__[:-1]]
    if isinstance(value, tuple | list):
        return [bits(each) for each in value]
    if isinstance(value, Mapping):
        return {key: bits(each) for key, each in value.items()}
    return value


@given(values)
def test_what_is_written_is_read_bit_for_bit(value: Outer) -> None:
    text = json.dumps(CODEC.write(value, "it"), allow_nan=False)
    assert bits(CODEC.read(Outer, loads(text), "it")) == bits(value)


def test_the_form() -> None:
    value = Outer(math.inf, Inner(0.1), either=Span(-math.inf, 1.0), share=Fraction(1, 3))
    assert CODEC.write(value, "it") == {
        "hidden": {"float": "inf"},
        "inner": {"x": 0.1, "times": 1},
        "many": [],
        "pair": [0, ""],
        "either": {"span": [{"float": "-inf"}, 1.0]},
        "maybe": None,
        "side": "left",
        "word": "a",
        "share": {"fraction": "1/3"},
        "more": {},
    }
    assert CODEC.write([np.float64(0.5), np.int64(2), np.True_], "it") == [0.5, 2, True]
    with pytest.raises(ValueError, match=r"it\.a"):
        CODEC.write({"a": object()}, "it")


GOOD: dict[str, Any] = {"hidden": 1.0, "inner": {"x": 1}}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"unknown": 1}, "it"),
        ({"made": 4}, "it"),
        ({"inner": {}}, "it.inner"),
        ({"inner": 3}, "it.inner"),
        ({"inner": {"x": "1"}}, "it.inner.x"),
        ({"inner": {"x": True}}, "it.inner.x"),
        ({"inner": {"x": "inf"}}, "it.inner.x"),
        ({"inner": {"x": {"float": "Infinity"}}}, "it.inner.x.float"),
        ({"inner": {"x": 1.0, "times": 1.0}}, "it.inner.times"),
        ({"many": [{"x": 1.0}, {"y": 1.0}]}, r"it.many\[1\]"),
        ({"pair": [1]}, "it.pair"),
        ({"pair": [1, 2]}, r"it.pair\[1\]"),
        ({"either": [0, 1]}, "it.either"),
        ({"either": {"span": [0]}}, "it.either"),
        ({"either": {"span": [0, 1], "names": []}}, "it.either"),
        ({"maybe": "x"}, "it.maybe"),
        ({"side": "up"}, "it.side"),
        ({"word": "c"}, "it.word"),
        ({"share": {"fraction": "1/0"}}, "it.share.fraction"),
        ({"more": []}, "it.more"),
        ({"more": {"b": {"float": "1"}}}, "it.more.b.float"),
    ],
)
def test_what_is_not_of_the_form_is_refused_with_its_place(change: Any, place: str) -> None:
    CODEC.read(Outer, GOOD, "it")
    with pytest.raises(ValueError, match=f"^{place}[ :]"):
        CODEC.read(Outer, GOOD | change, "it")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[NaN]", "[Infinity]", "[-Infinity]", "{"])
def test_json_of_two_meanings_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        loads(text)
