"""Samples of a fixed size, where PyTorch is not installed: the draw, documents, public numbers."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from plans import network

import adaptive_dp as dp
from adaptive_dp.data import sampling
from adaptive_dp.noise.stream import SecureStream, SeededStream

# --- the draw


class Words:
    """A source of the words that it is given."""

    def __init__(self, words: list[int]) -> None:
        self.left = words

    def words(self, count: int) -> Any:
        if len(self.left) < count:
            raise StopIteration
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_set_is_equally_likely_also_where_words_are_equal(size: int) -> None:
    """Of four units, all sequences of three different words: those that tie are drawn again."""
    found: Counter[tuple[int, ...]] = Counter()
    for words in itertools.product(range(3), repeat=4):
        try:
            chosen = sampling.fixed_size_sample(Words(list(words)), size, 4)  # type: ignore[arg-type]
        except StopIteration:
            continue
        found[tuple(np.flatnonzero(chosen))] += 1
    assert set(found) == set(itertools.combinations(range(4), size))
    assert len(set(found.values())) == 1


def test_sizes_at_the_ends_and_of_many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of many units come from children, each unit's from a place of its own."""
    stream = SecureStream()
    for size in (0, 5):
        assert sampling.fixed_size_sample(stream, size, 5).sum() == size
    monkeypatch.setattr(sampling, "LOCAL_UNITS", 10)
    monkeypatch.setattr(sampling, "CHILD_UNITS", 4)
    counts = np.zeros(11)
    for seed in range(2_000):
        chosen = sampling.fixed_size_sample(SeededStream(seed), 3, 11)
        assert chosen.sum() == 3
        counts += chosen
    # in a set with probability 3/11: chi square of 10 degrees of freedom, scaled; above 75 has a
    # probability below 1e-11
    expected = 2_000 * 3 / 11
    assert ((counts - expected) ** 2).sum() / expected / (8 / 11) * (10 / 11) < 75


# --- what is declared


def test_documents_and_certificates_of_fixed_sizes_round_trip() -> None:
    plan = network(fixed_size=True).with_delta(1e-5)
    again = dp.load(plan.to_json()).with_delta(1e-5)
    assert again.fingerprint == plan.fingerprint
    certificate = plan.certify()
    assert again.certify().to_json() == certificate.to_json()
    read = dp.Certificate.from_json(certificate.to_json())
    assert dp.verify(read).holds
    smaller = plan.to_document()
    (node,) = [n for n in of_kinds(smaller) if n["kind"] == "fixed_size_network_rows"]
    assert (node["size"], node["of"]) == (2, 4)
    for change in ({"of": 5}, {"size": 5}, {"size": 0}, {"size": True}, {"size": 1.5}):
        kept = dict(node)
        node.update(change)
        with pytest.raises(dp.DocumentError, match=r"declared|1 to all|must be"):
            dp.load(smaller)
        node.update(kept)
    # a smaller sample costs less, and its claim is not that of a larger one
    node["size"] = 1
    less = dp.load(smaller).with_delta(1e-5).certify()
    assert less.epsilon < certificate.epsilon
    forged = json.loads(less.to_json())
    (node,) = [n for n in of_kinds(forged) if n["kind"] == "fixed_size_network_rows"]
    node["size"] = 2
    assert not dp.verify(dp.Certificate.from_json(json.dumps(forged))).holds


def of_kinds(document: Any) -> Any:
    """Yield each node of a document."""
    if isinstance(document, dict):
        if "kind" in document:
            yield document
        document = list(document.values())
    if isinstance(document, list):
        for each in document:
            yield from of_kinds(each)


def test_filters_and_parts_leave_no_public_number() -> None:
    columns = {"x": (-1, 1), "y": [0, 1]}
    table = dp.dataset(
        "t", columns=columns, neighbors="replace_one", size=9, unit="u", rows_per_unit=3
    )
    assert (table.domain.size, table.domain.units) == (None, 9)
    kept = table.filter(table["x"] > 0)
    ((_, part), _) = table.partition("y", whole_units=True)
    for other in (kept, part):
        assert (other.domain.size, other.domain.units) == (None, None)
    with_column = table.with_columns(z=table["x"] * 2)
    assert with_column.domain.units == 9
