"""Keyed sampling: the law of one stream, and the same sample wherever rows are."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.data import sampling
from adaptive_dp.data.sampling import (
    Interval,
    KeyedSample,
    cut_intervals,
    new_children,
    poisson_sample,
    rate_interval,
    words,
)
from adaptive_dp.noise import SecureStream, SeededStream
from adaptive_dp.noise.stream import Keyed


@pytest.fixture
def small(monkeypatch):
    """Children for more than 5 units, each of 4."""
    monkeypatch.setattr(sampling, "LOCAL_UNITS", 5)
    monkeypatch.setattr(sampling, "CHILD_UNITS", 4)


def starts(sizes):
    return tuple(itertools.accumulate(sizes, initial=0))


@pytest.mark.parametrize(
    "sizes", [[23], [1] * 23, [4, 4, 4, 4, 4, 3], [0, 3, 0, 1, 9, 10, 0], [5, 18]]
)
def test_any_partitioning_has_the_words_of_memory(small, sizes):
    """Of a seeded stream; the child and the place of each unit are written out here."""
    count = sum(sizes)
    by_hand = [
        child.words(4)[i] for child in SeededStream(3).children(math.ceil(count / 4))
        for i in range(4)
    ][:count]  # fmt: skip
    assert words(SeededStream(3), count).tolist() == by_hand
    expected = [w < 0.3 * 2**64 for w in by_hand]
    assert poisson_sample(SeededStream(3), 0.3, count).tolist() == expected
    sample = KeyedSample(rate_interval(0.3), starts(sizes), 4, new_children(SeededStream(3), count))
    parts = [pickle.loads(pickle.dumps(sample.of_part(i))).selected() for i in range(len(sizes))]
    assert [len(each) for each in parts] == sizes
    assert np.concatenate(parts).tolist() == expected


def test_few_units_have_the_streams_own_words(small):
    assert words(SeededStream(1), 5).tolist() == SeededStream(1).words(5).tolist()
    assert (
        poisson_sample(SeededStream(1), 0.5, 5).tolist()
        == SeededStream(1).bernoulli(0.5, 5).tolist()
    )
    assert poisson_sample(SeededStream(1), 1.0, 9).all()


def test_intervals_cut_words_apart():
    cuts = [2**62, 2**62, 2**63 + 1]
    intervals = cut_intervals(cuts)
    edges = np.array([0, 2**62 - 1, 2**62, 2**63, 2**63 + 1, 2**64 - 1], dtype=np.uint64)
    inside = np.stack([each.has(edges) for each in intervals])
    assert inside.sum(axis=0).tolist() == [1] * 6
    assert inside.argmax(axis=0).tolist() == [0, 0, 2, 2, 3, 3]
    assert rate_interval(1e-30) == Interval(0, 0)
    assert not rate_interval(1e-30).has(edges).any()
    assert rate_interval(1.0).has(edges).all()


def test_keystreams_are_what_they_are_said_to_be():
    """AES by single blocks, one for each counter; SHAKE256 by its published first bytes."""
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key = bytes(range(32))
    block = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.ECB()).encryptor()
    expected = b"".join(block.update(i.to_bytes(16, "big")) for i in range(3))
    words = Keyed(key, "aes").words(6)
    assert words.tolist() == np.frombuffer(expected, "<u8").tolist()
    # NIST's SHAKE256 of the empty message begins so
    empty = Keyed(b"", "shake").words(1)[0]
    assert int(empty).to_bytes(8, "little").hex() == "46b9dd2b0ba88d13"


@pytest.mark.parametrize("cipher", ["aes", "shake", "philox"])
def test_a_key_always_gives_the_same_words_and_more_of_them_go_on(cipher):
    one = Keyed(os.urandom(32), cipher)
    assert one.words(50)[:20].tolist() == pickle.loads(pickle.dumps(one)).words(20).tolist()
    assert one.words(50).tolist() != Keyed(os.urandom(32), cipher).words(50).tolist()
    assert one.key.hex() not in repr(one)
    assert len(one.words(0)) == 0


@pytest.mark.parametrize("source", [SecureStream(), SeededStream(5)])
def test_no_words_come_twice(source):
    """Neither among the children of one event, nor in the next, nor in the stream after them."""
    children = [*source.children(9), *source.children(9)]
    drawn = [*np.concatenate([each.words(100) for each in children]), *source.words(1000)]
    keys = [int(w) for each in children for w in np.frombuffer(each.key, "<u8")]
    seen = [int(w) for w in drawn] + keys
    assert len(set(seen)) == len(seen)  # by chance, 2800^2 / 2^65: less than 1e-12


def test_what_is_sent_says_nothing_of_other_units(small):
    """A secure stream that is pickled carries no state; a part gets the keys of its own units."""
    assert pickle.dumps(SecureStream()) == pickle.dumps(SecureStream())
    assert len(pickle.dumps(SecureStream())) < 100
    with pytest.raises(TypeError):
        pickle.dumps(SeededStream(1))
    sample = KeyedSample(
        rate_interval(0.5), starts([6, 6, 12]), 4, new_children(SecureStream(), 24)
    )
    sent = pickle.dumps(sample.of_part(1))
    assert [each.key in sent for each in sample.children] == [False, True, True, *[False] * 3]
    assert [len(sample.of_part(i).children) for i in range(3)] == [2, 2, 3]


def test_another_process_finds_the_same_words():
    made = SecureStream().children(1)[0]
    code = "import pickle,sys; print(pickle.load(sys.stdin.buffer).words(5000).sum())"
    got = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(made), capture_output=True, check=True
    )
    assert int(got.stdout) == int(made.words(5000).sum())


@pytest.mark.parametrize("source", [SecureStream(), SeededStream(11)])
def test_the_law_is_that_of_independent_bernoulli_trials(small, source):
    """Sizes of the sample and of each part, and every pair of units, in parts and across them.

    By chance fail 4 chi-squares with some 1e-10 each, and 253 correlations with 2e-7 in all:
    of 2000 products of variance 1 and size at most 2.34 a mean is off by 7 / sqrt(2000) with
    ``2 exp(-49 / (2 (1 + 2.34 * 7 / (3 sqrt(2000)))))``, 7e-10 (Bernstein).
    """
    sizes, rate, times = [3, 6, 14], 0.3, 2000
    drawn = np.empty((times, 23), dtype=np.bool_)
    for t in range(times):
        sample = KeyedSample(rate_interval(rate), starts(sizes), 4, new_children(source, 23))
        drawn[t] = np.concatenate([sample.of_part(i).selected() for i in range(3)])
    ends = starts(sizes)
    groups = [drawn, *(drawn[:, i:j] for i, j in itertools.pairwise(ends))]
    for group in groups:
        size = group.shape[1]
        law = stats.binom.pmf(np.arange(size + 1), size, rate) * times
        seen = np.bincount(group.sum(axis=1), minlength=size + 1)
        usual = law >= 10  # rarer counts are one cell
        cells = [
            *zip(seen[usual], law[usual], strict=True),
            (seen[~usual].sum(), law[~usual].sum()),
        ]
        cells = [(a, b) for a, b in cells if b > 1]
        square = sum((a - b) ** 2 / b for a, b in cells)
        assert stats.chi2.sf(square, len(cells) - 1) > 1e-10
    z = (drawn - rate) / math.sqrt(rate * (1 - rate))
    pairs = (z.T @ z / math.sqrt(times))[np.triu_indices(23, 1)]
    assert np.abs(pairs).max() < 7
