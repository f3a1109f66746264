"""Topics of documents: the moments by brute force, what one document moves, and toy topics."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.data import read_rows
from adaptive_dp.graph.handles import change_at
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.domains import column
from adaptive_dp.statistics import documents
from adaptive_dp.statistics.documents import WordPairs, WordTriples, recovered_topics, whitening

WORDS = ("a", "b", "c")
BY_ROWS = {"word": column("word", list(WORDS)), "times": column("times", (0, 4))}
BY_COLUMNS = {name: column(name, (0, 9)) for name in WORDS}
W = np.array([[1.0, 0.0], [-0.6, 0.8], [0.3, -0.4]])


def pairs_of(papers):
    """The matrix of pairs, from papers as mappings of words to counts."""
    query = WordPairs(WORDS, None, BY_COLUMNS)
    data = {name: [paper[name] for paper in papers] for name in WORDS}
    rows = read_rows(data, dict.fromkeys(WORDS, "number"), None)
    value = query.run([rows], SeededStream(0))
    return value, query.present(value)


def triples_of(papers, directions=W):
    query = WordTriples(WORDS, None, BY_COLUMNS, directions.shape[1])
    data = {name: [paper[name] for paper in papers] for name in WORDS}
    rows = read_rows(data, dict.fromkeys(WORDS, "number"), None)
    value = query.run([rows, directions], SeededStream(0))
    return value, query.present(value)


def paper(*counts):
    return dict(zip(WORDS, counts, strict=True))


def test_moments_are_means_over_ordered_words():
    papers = [paper(2, 1, 0), paper(1, 1, 3), paper(0, 0, 2), paper(1, 0, 0), paper(0, 0, 0)]
    second, third = np.zeros((3, 3)), np.zeros((2, 2, 2))
    w = documents.integer_directions(W, 3, 2) / 1024
    for each in papers:
        said = [i for i, name in enumerate(WORDS) for _ in range(each[name])]
        two = list(itertools.permutations(said, 2))
        for i, j in two:
            second[i, j] += 1 / len(two)
        three = list(itertools.permutations(said, 3))
        for i, j, m in three:
            third += np.einsum("i,j,m->ijm", w[i], w[j], w[m]) / len(three)
    assert pairs_of(papers)[1] == pytest.approx(second, abs=1e-8)
    assert triples_of(papers)[1] == pytest.approx(third, abs=1e-6 + 0.01)  # roots in 2^-8
    # the law of pairs sums to the number of documents of two words and more
    assert pairs_of(papers)[0].sum() == pytest.approx(3, abs=1e-8)


def declared(query, relation, **more):
    table = dp.dataset("t", columns=dict.fromkeys(WORDS, (0, 9)), neighbors=relation, **more)
    return [query.sensitivity(table.domain, change_at(table), norm) for norm in (1, 2, math.inf)]


def norms(value):
    return [np.abs(value).sum(), np.linalg.norm(value), np.abs(value).max()]


def test_no_document_moves_moments_by_more_than_declared():
    universe = [paper(*c) for c in itertools.product(range(4), repeat=3)]
    universe += [paper(9, 9, 9), paper(9, 0, 0)]
    directions = [W, W * 10, np.full((3, 2), np.nan), np.eye(3)[:, :2], np.array([[0.6, 0.8]] * 3)]
    pair_values = [pairs_of([each])[0] for each in universe]
    three = [[triples_of([each], d)[0] for each in universe] for d in directions]
    of_pairs = WordPairs(WORDS, None, BY_COLUMNS)
    of_triples = WordTriples(WORDS, None, BY_COLUMNS, 2)
    for query, alone in ((of_pairs, [pair_values]), (of_triples, three)):
        appears = [declared(query, relation) for relation in ("add_remove", "zero_out")]
        exchanged = declared(query, "replace_one")
        attained = np.zeros(2)
        for values in alone:
            for i, value in enumerate(values):
                for most in appears:
                    assert (np.array(norms(value)) <= most).all()
                attained[0] = max(attained[0], norms(value)[1])
                for other in values[: i + 1]:
                    assert (np.array(norms(value - other)) <= exchanged).all()
                    attained[1] = max(attained[1], norms(value - other)[1])
        assert attained[0] > 0.99
        assert attained[1] > 0.99 * exchanged[1]
    # a document of many rows is one unit
    assert declared(of_pairs, "add_remove", unit="id", rows_per_unit=50) == [1.0, 1.0, 1.0]


def test_sums_are_exact_so_that_others_do_not_matter():
    rng = np.random.default_rng(3)
    many = [paper(*rng.integers(0, 6, 3)) for _ in range(400)]
    one = paper(3, 2, 1)
    for values in (pairs_of, triples_of):
        difference = values([*many, one])[0] - values(many)[0]
        assert np.array_equal(difference, values([one])[0])  # to the last bit


def test_rows_of_words_with_counts_are_columns_of_counts():
    papers = [paper(2, 1, 0), paper(1, 1, 3), paper(0, 0, 2)]
    rows = [(i, w, each[w]) for i, each in enumerate(papers) for w in WORDS]
    rows += [(0, "unknown", 4), (1, "a", math.nan), (2, "b", -3)]
    data = {n: [row[k] for row in rows] for k, n in enumerate(("id", "word", "times"))}
    read = read_rows(data, {"word": "text", "times": "number"}, "id")
    query = WordPairs(("word",), "times", BY_ROWS)
    assert np.array_equal(query.run([read], SeededStream(0)), pairs_of(papers)[0])
    once = [(i, w) for i, each in enumerate(papers) for w in WORDS for _ in range(each[w])]
    data = {n: [row[k] for row in once] for k, n in enumerate(("id", "word"))}
    read = read_rows(data, {"word": "text"}, "id")
    query = WordPairs(("word",), None, {"word": BY_ROWS["word"]})
    assert np.array_equal(query.run([read], SeededStream(0)), pairs_of(papers)[0])


def test_a_long_document_counts_once():
    long = dict.fromkeys(WORDS, 10**6)
    declared = {name: column(name, (0, 1e9)) for name in WORDS}
    rows = read_rows({n: [v] for n, v in long.items()}, dict.fromkeys(WORDS, "number"), None)
    value = WordPairs(WORDS, None, declared).run([rows], SeededStream(0))
    assert 0.99 < value.sum() <= 1
    value = WordTriples(WORDS, None, declared, 2).run([rows, W * 0 + [0.6, 0.8]], SeededStream(0))
    assert 0.98 < np.linalg.norm(value) <= 1


@pytest.mark.parametrize("concentration", [0.0, 0.5, 3.0])
def test_topics_follow_from_exact_moments(concentration):
    """Of a population, by the formulas of its law: a mixture, or Dirichlet laws of topics."""
    rng = np.random.default_rng(7)
    k, words = 3, 12
    topics = rng.dirichlet(np.full(words, 0.3), k)
    weights = np.array([0.5, 0.3, 0.2])
    n = 1e6
    if concentration == 0:
        second = np.einsum("i,iu,iv->uv", weights, topics, topics)
        of_topics = np.zeros((k, k, k))
        for i in range(k):
            of_topics[i, i, i] = weights[i]
    else:
        a = concentration * weights

        # moments of Dirichlet laws: products of rising factorials
        def moment(*powers):
            top = math.prod(math.prod(a[i] + j for j in range(p)) for i, p in enumerate(powers))
            return top / math.prod(concentration + j for j in range(sum(powers)))

        unit = np.eye(k, dtype=int)
        two = np.array([[moment(*(unit[i] + unit[j])) for j in range(k)] for i in range(k)])
        second = topics.T @ two @ topics
        of_topics = np.array(
            [
                [[moment(*(unit[i] + unit[j] + unit[m])) for m in range(k)] for j in range(k)]
                for i in range(k)
            ]
        )
    constants = {"count": k, "concentration": concentration}
    w = documents.integer_directions(whitening(n * second, **constants), words, k) / 1024
    along = topics @ w
    third = n * np.einsum("ijm,ia,jb,mc->abc", of_topics, along, along, along)
    found = recovered_topics(n * second, third, **constants)
    assert found["weights"] == pytest.approx(weights, abs=0.02)
    assert found["topics"] == pytest.approx(topics, abs=0.01)


def toy(relation="add_remove", n=12_000, seed=1):
    rng = np.random.default_rng(seed)
    names = [f"w{i}" for i in range(15)]
    topics = np.zeros((3, 15))
    for i in range(3):
        topics[i, 5 * i : 5 * i + 5] = 0.17
        topics[i] += 0.01
    topics /= topics.sum(axis=1, keepdims=True)
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    drawn = np.array([rng.multinomial(30, topics[i]) for i in kind])
    size = {} if relation == "add_remove" else {"size": n}
    columns = dict.fromkeys(names, (0, 30))
    table = dp.dataset("papers", columns=columns, neighbors=relation, **size)
    return table, names, dict(zip(names, drawn.T, strict=True)), topics


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_toy_topics_are_recovered_at_epsilon_one(relation):
    table, names, data, topics = toy(relation)
    plan = dp.Pipeline(found=dp.statistics.topics(table, names, 3))
    plan = plan.calibrate(epsilon=1.0, delta=1e-6)
    assert 0.99 < plan.certify().epsilon <= 1
    result = plan.simulate(seed=2, papers=data)
    found = result["found"]
    assert found["weights"] == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    assert np.abs(np.asarray(found["topics"]) - topics).sum(axis=1).max() < 0.2
    assert "no simple law" in str(result)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda t: dp.statistics.topics(t, "word", 2), "unit='document'"),
        (lambda t: dp.statistics.topics(t, ["x", "y"], 2, counts="x"), "counts="),
        (lambda t: dp.statistics.topics(t, ["x", "y"], 3), "no more topics than words"),
        (lambda t: dp.statistics.topics(t, ["x", "y"], 1), "got 1"),
        (lambda t: dp.statistics.topics(t, ["x", "y"], 2, concentration=-1), "got -1"),
        (lambda t: dp.statistics.topics(t, [], 2), "got none"),
        (lambda t: dp.statistics.topics(t, ["x", "word"], 2), "'word'"),
        (lambda t: dp.statistics.topics(t, "nothing", 2), "'nothing'"),
    ],
)
def test_what_has_no_topics_is_refused(make, match):
    columns = {"x": (0, 5), "y": (0, 5), "word": list(WORDS)}
    with pytest.raises(dp.DeclarationError, match=match):
        make(dp.dataset("t", columns=columns))
