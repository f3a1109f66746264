"""Work grows linearly: counted in what is visited and made, never in seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import adaptive_dp as dp
from adaptive_dp.queries import table as tables


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """Count the calls of a function from here on."""
    calls: Counter[str] = Counter()
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_partition_makes_a_part_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    people = dp.dataset("people", columns={"key": list(range(10_000))})
    made = counted(monkeypatch, tables, "Part")
    parts = people.partition("key")
    assert len(parts) == 10_000
    assert made["Part"] == 0
    # one handle of each part, however it is reached: two would be two nodes to a reader
    seventh = parts[7]
    assert seventh is parts[7] is dict(zip(range(8), (t for _, t in parts), strict=False))[7]
    assert made["Part"] == 8
    assert [key for key, _ in parts] == list(range(10_000))
    assert made["Part"] == 10_000
    assert len(repr(parts)) < 1_000
    with pytest.raises(dp.DeclarationError, match="9900 more"):
        parts[-1]


def test_declaring_keys_does_not_compare_each_with_all() -> None:
    class Key(str):
        """A str that counts how often it is compared."""

        comparisons = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Key.comparisons += 1
            return str.__eq__(self, other)

    keys = [Key(f"key {i}") for i in range(2_000)]
    people = dp.dataset("people", columns={"key": keys})
    assert len(people.partition("key", keys=[str(key) for key in keys])) == 2_000
    assert Key.comparisons < 10 * 2_000
    # what is no category is still found, whatever its type
    for strange in ("key 2000", 3, (1,)):
        with pytest.raises(dp.DeclarationError):
            people.partition("key", keys=["key 1", strange])


def test_shares_are_computed_without_a_regular_expression_for_each_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certified(count: int) -> int:
        columns = {f"c{i}": ["a", "b"] for i in range(count)}
        people = dp.dataset("people", columns=columns)
        outputs = {
            name: {
                key: part.count().release(dp.Laplace(scale=1 + (key == "b")))
                for key, part in people.partition(name)
            }
            for name in columns
        }
        plan = dp.Pipeline(**outputs)
        with monkeypatch.context() as patch:
            calls = counted(patch, re, "sub")
            certificate = plan.certify()
        assert [row.in_worst_world for row in certificate.nodes] == [
            row.node.endswith(".a") for row in certificate.nodes
        ]
        return calls["sub"]

    few, many = certified(5), certified(20)
    assert many - few <= 15  # one for each part that the worst world names
