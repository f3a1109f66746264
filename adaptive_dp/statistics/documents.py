"""Topics of documents by moments: which words occur together, without reading any document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray
from scipy import sparse

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.scan import RowFunction
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import PrivateQuery, Released, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.outputs import released_ends
from adaptive_dp.graph.values import as_int, strings
from adaptive_dp.mechanisms import Gaussian
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.table import Table
from adaptive_dp.queries.transforms import category_index
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats
from adaptive_dp.statistics.ranks import Cells

Integers = NDArray[np.int64]

LONGEST = 1000
"""Words of a document that count; of longer ones each word's number is scaled down."""
PAIR_BITS = 32
"""Pairs of words are counted in units of 2^-32 of a document."""
DIRECTION_BITS = 10
"""Directions are multiples of 2^-10; their triples of 2^-30."""
MOST_WORDS = 2_000
MOST_TOPICS = 20


# -----------------------------------------------------------------------------
# Sums over documents, each a unit.


class DocumentQuery(Query):
    """Base of the queries of word counts by document.

    A document is a unit: its rows are its words (or have a number of times each), or it has one
    row with a column of numbers for each word. What a document adds depends on its own rows alone,
    and is of length 1 at most however long it is, so that sensitivities do not depend on how many
    rows it has.
    """

    input_type: ClassVar[type] = domains.Table
    rounds_outward: ClassVar[bool] = True

    words: tuple[str, ...]
    counts: str | None
    declared: Mapping[str, domains.Column]

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns, and that a document is a unit."""
        table: domains.Table = inputs[0]
        for name in (*self.words, *([] if self.counts is None else [self.counts])):
            domains.check_declared(table, name, self.declared)
        if self._by_rows:
            if table.unit is None:
                raise DeclarationError(
                    "rows of words need the column of their document: declare unit='document' and "
                    "rows_per_unit=, the most rows of one"
                )
            if self.counts is not None:
                table.interval(self.counts)
        else:
            for name in self.words:
                table.interval(name)
            if self.counts is not None:
                raise DeclarationError(
                    "counts= belongs to a column of words with categories; columns of numbers are "
                    "counts themselves"
                )
        if not (2 <= len(self.vocabulary) <= MOST_WORDS):
            raise DeclarationError(
                f"topics need 2 to {MOST_WORDS:,} declared words, got {len(self.vocabulary)}"
            )
        return table

    @property
    def _by_rows(self) -> bool:
        return len(self.words) == 1 and isinstance(self.declared.get(self.words[0]), Categories)

    @property
    def vocabulary(self) -> tuple[Any, ...]:
        """The words."""
        column = self.declared.get(self.words[0]) if self.words else None
        return tuple(column.values) if isinstance(column, Categories) else self.words

    def documents(self, rows: Rows) -> sparse.csr_array:
        """Return how often each document has each word, at most `LONGEST` in all: (n, words)."""
        units, width = rows.units, len(self.vocabulary)
        size = int(units.max(initial=-1)) + 1
        if self._by_rows:
            name, keys = self.words[0], self.vocabulary
            code = rows.values(WordIndex(name, keys)).astype(np.int64)
            times = np.ones(len(code)) if self.counts is None else self._times(rows, self.counts)
            known = code >= 0
            entries: Any = times[known], (units[known], code[known])
        else:
            columns = [self._times(rows, name) for name in self.words]
            place = np.repeat(units, width), np.tile(np.arange(width), len(units))
            entries = np.stack(columns, axis=1).ravel(), place
        found = sparse.coo_array(entries, shape=(size, width)).tocsr()  # equal places are added
        # whole numbers below 2^53 / 2^20: exact in any order
        length = np.asarray(found.sum(axis=1)).ravel()
        shrink = np.minimum(1.0, LONGEST / np.maximum(length, 1.0))
        # each document by itself; rounded down, so that there are at most `LONGEST` words
        scaled = np.floor(found.data * np.repeat(shrink, np.diff(found.indptr)))
        return sparse.csr_array(
            (scaled.astype(np.int64), found.indices, found.indptr), shape=found.shape
        )

    def _times(self, rows: Rows, name: str) -> Floats:
        """Return whole numbers from 0 to the column's bound; a missing one is 0."""
        column = self.declared[name]
        assert isinstance(column, Interval)
        most = min(max(0.0, column.upper), 1e6)
        values = np.nan_to_num(rows.values(Cells(name)), nan=0.0, posinf=most, neginf=0.0)
        return np.asarray(np.clip(np.floor(values), 0.0, most))


@frozen
class WordIndex(RowFunction):
    """The position of each row's word; -1 for any other."""

    of: str
    keys: tuple[Any, ...]

    def __call__(self, columns: Columns) -> Floats:
        """Return the positions."""
        return category_index(columns[self.of], self.keys).astype(np.float64)


@frozen
class WordPairs(DocumentQuery):
    r"""How often two words of a document are these two, summed over documents.

    Of a document with the counts c of l >= 2 words, ``(c c' - diag c) / (l (l - 1))`` is the law of
    two of its words. Of this matrix the diagonal and twice the entries above it are taken:
    nonnegative numbers that sum to 1.

    *Sensitivity*. A document that appears, vanishes or is zeroed moves the value by a vector of
    nonnegative numbers of sum at most 1: 1 in every norm. One that is exchanged, by the difference
    of two such: 2 in l1, sqrt(2) in l2, 1 in the maximum norm. All are attained, however many rows
    a document has.

    *Rounding*. ``2^32 / (l (l - 1))`` is rounded down, and sums of integers are exact; totals are
    clamped at 2^53 of these units.

    Parameters
    ----------
    words
        One column of words with categories, or several columns of counts.
    counts
        Beside one column of words, how often: a column with bounds; None for once a row.
    declared
        The columns' declarations.
    """

    kind: ClassVar[str] = "word_pairs"
    column_fields: ClassVar[tuple[str, ...]] = ("words", "counts")

    words: tuple[str, ...] = field(converter=strings)
    counts: str | None
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)

    def label(self) -> str:
        """Return the query."""
        return f"pairs of {len(self.vocabulary)} words"

    def dimension(self, domain: domains.Table) -> int:
        """Return the number of pairs."""
        return len(self.vocabulary) * (len(self.vocabulary) + 1) // 2

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        if not change.replaced:
            return 1.0
        exchanged: dict[float, float] = {1: 2.0, 2: math.nextafter(math.sqrt(2), 2)}
        return exchanged.get(norm, 1.0)

    def step(self, domain: domains.Table) -> float:
        """Return 2^-32."""
        return 2.0**-PAIR_BITS

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sums, shape (pairs,)."""
        found = self.documents(inputs[0])
        length = np.asarray(found.sum(axis=1)).ravel()
        pairs = np.maximum(length * (length - 1), 1)
        weight = np.where(length >= 2, 2**PAIR_BITS // pairs, 0)
        # of a document below 2^32 in each entry: sums of 2^31 documents are below 2^63
        weighted = sparse.csr_array(
            (found.data * np.repeat(weight, np.diff(found.indptr)), found.indices, found.indptr),
            shape=found.shape,
        )
        total = (found.T @ weighted).toarray()
        total[np.diag_indices(len(total))] -= np.asarray(weighted.sum(axis=0)).ravel()
        rows, columns = np.triu_indices(len(total))
        upper = total[rows, columns] * np.where(rows == columns, 1, 2)
        return np.asarray(np.minimum(upper, 2**53) * 2.0**-PAIR_BITS)

    def present(self, value: Any) -> Floats:
        """Return the symmetric matrix."""
        width = (math.isqrt(8 * len(value) + 1) - 1) // 2
        rows, columns = np.triu_indices(width)
        matrix = np.zeros((width, width))
        matrix[rows, columns] = np.asarray(value) / np.where(rows == columns, 1.0, 2.0)
        matrix[columns, rows] = matrix[rows, columns]
        return matrix


@frozen
class WordTriples(DocumentQuery):
    r"""The law of three words of a document, seen along released directions, over documents.

    A released matrix has a row of k numbers w_v, at most 1 long, for each word v. Of a document
    with l >= 3 words the value has ``mean w_u o w_v o w_x`` over all ordered triples of different
    words u, v, x of it: a symmetric tensor, of which the entries ``i <= j <= m`` are taken, times
    the root of how often each occurs, so that lengths are kept.

    *Sensitivity*: a local one that a release bounds. Of the k^3 numbers the length is a convex
    combination of ``|w_u| |w_v| |w_x| <= 1``: so a document that appears moves the value by at most
    1 in l2, and one that is exchanged by at most 2, whatever is released; without directions the
    tensor of all words would have the same sensitivity and words^3 entries of noise. In l1 it is
    sqrt(dimension) times that. What the directions are scaled by is public, and multiplies the
    noise: no delta is paid for it, since they are released, and not only a bound of them.

    *Rounding*. Directions are rounded toward 0 to multiples of 2^-10, of rows that are no longer
    than 1. A document's tensor is an exact integer ratio, rounded toward 0; sums are exact, and
    clamped at 2^53 units of 2^-30.

    Parameters
    ----------
    words, counts, declared
        As of `WordPairs`.
    topics
        k.
    """

    kind: ClassVar[str] = "word_triples"
    column_fields: ClassVar[tuple[str, ...]] = ("words", "counts")
    max_released_inputs: ClassVar[int] = 1

    words: tuple[str, ...] = field(converter=strings)
    counts: str | None
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)
    topics: int

    def label(self) -> str:
        """Return the query."""
        return f"triples of words along {self.topics} directions"

    def dimension(self, domain: domains.Table) -> int:
        """Return the number of entries."""
        return math.comb(self.topics + 2, 3)

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        longest = 2.0 if change.replaced else 1.0
        if norm != 1:
            return longest
        return longest * math.sqrt(math.comb(self.topics + 2, 3)) * (1 + 2.0**-50)

    def step(self, domain: domains.Table) -> float:
        """Return 2^-30."""
        return 2.0 ** (-3 * DIRECTION_BITS)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sums, shape (entries,)."""
        found = self.documents(inputs[0])
        k = self.topics
        w = integer_directions(np.asarray(inputs[1], dtype=np.float64), len(self.vocabulary), k)
        squares = np.einsum("vi,vj->vij", w, w).reshape(len(w), -1)
        cubes = np.einsum("vi,vj,vm->vijm", w, w, w).reshape(len(w), -1)
        i, j, m = _triples(k)
        # roots of 1, 3 and 6 in units of 2^-8, rounded down
        often = np.array([math.isqrt(n << 16) for n in _multiplicity(k)], dtype=np.int64)
        total = np.zeros(len(i), dtype=np.int64)
        for start in range(0, found.shape[0], 1024):
            block = found[start : start + 1024]
            length = np.asarray(block.sum(axis=1)).ravel()
            a = block @ w  # at most 2^20 in size, since there are at most 2^10 words
            b = (block @ squares).reshape(-1, k, k)  # 2^30
            c = (block @ cubes).reshape(-1, k, k, k)  # 2^40
            # all triples less those with a repeated word: below 2^60 + 3 2^50 + 2 2^40 in size
            ordered = (
                a[:, i] * a[:, j] * a[:, m]
                - (b[:, i, j] * a[:, m] + b[:, i, m] * a[:, j] + b[:, j, m] * a[:, i])
                + 2 * c[:, i, j, m]
            )
            count = np.maximum(length * (length - 1) * (length - 2), 1)[:, None]
            mean = np.sign(ordered) * (np.abs(ordered) // count)  # toward 0
            scaled = np.sign(mean) * (np.abs(mean) * often >> 8)
            total += scaled[length >= 3].sum(axis=0)
        return np.asarray(np.clip(total, -(2**53), 2**53) * self.step(None))  # type: ignore[arg-type]

    def present(self, value: Any) -> Floats:
        """Return the symmetric tensor, shape (k, k, k)."""
        k = self.topics
        i, j, m = _triples(k)
        entries = np.asarray(value) / np.sqrt(_multiplicity(k))
        tensor = np.zeros((k, k, k))
        for x, y, z in ((i, j, m), (i, m, j), (j, i, m), (j, m, i), (m, i, j), (m, j, i)):
            tensor[x, y, z] = entries
        return tensor


def _triples(k: int) -> tuple[Integers, Integers, Integers]:
    """Return the indices ``i <= j <= m`` below k."""
    found = np.array(
        [(i, j, m) for i in range(k) for j in range(i, k) for m in range(j, k)], dtype=np.int64
    )
    return found[:, 0], found[:, 1], found[:, 2]


def _multiplicity(k: int) -> list[int]:
    """Return how often each entry of `_triples` occurs in a tensor."""
    i, j, m = _triples(k)
    kinds = np.array([6, 3, 1])
    return [int(kinds[int(x == y) + int(y == z)]) for x, y, z in zip(i, j, m, strict=True)]


def integer_directions(directions: Floats, words: int, topics: int) -> Integers:
    """Return directions in units of 2^-10, none longer than 1 whatever was released."""
    found = np.zeros((words, topics))
    rows, columns = min(words, directions.shape[0]), min(topics, directions.shape[1])
    found[:rows, :columns] = np.nan_to_num(directions[:rows, :columns], posinf=0.0, neginf=0.0)
    unit = 2**DIRECTION_BITS
    steps = np.trunc(np.clip(found, -1, 1) * unit).astype(np.int64)
    # squares are exact integers; the longer ones are shortened, and rounded toward 0
    length = (steps * steps).sum(axis=1)
    for v in np.flatnonzero(length > unit * unit):
        root = math.isqrt(int(length[v])) + 1
        steps[v] = np.sign(steps[v]) * (np.abs(steps[v]) * unit // root)
    return np.asarray(steps)


# -----------------------------------------------------------------------------
# From moments to topics.


def topics(
    table: Table,
    words: str | Sequence[str],
    count: int,
    *,
    counts: str | None = None,
    concentration: float = 0.0,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, Any]]:
    r"""Find the topics of documents by the moments of their words: spectral topic recovery.

    Two releases, each of sums over documents to which one adds a vector of length 1 at most,
    however long it is. The law of pairs of words has the topics' span; it is released, and of
    it directions in which it is the identity (whitening). Triples of words are then summed *along
    these released directions*: k^3 / 6 numbers in place of words^3 / 6, with noise in proportion to
    the released scale of the directions, a private bound of what a document moves. The
    eigenvectors of that tensor are the topics.

    Parameters
    ----------
    table
        Documents are units. Rows of words: ``unit="document", rows_per_unit=...``, each row with a
        word. Or a row for each document, with a column of counts for each word.
    words
        The column of words, with categories, which are the vocabulary; or the columns of counts.
    count
        k, the number of topics, from 2 to 20.
    counts
        Beside a column of words, how often the document has it: a column with bounds.
    concentration
        alpha_0: 0 where a document is of one topic; above 0 where its topics are mixed by a
        Dirichlet law of that sum (latent Dirichlet allocation).
    mechanism
        ``dp.Gaussian()``, the default, which needs a delta; or ``dp.Laplace()``, with more noise. A
        fixed noise is that of a query of sensitivity 1.

    Returns
    -------
    Released
        A mapping: ``"weights"``, shape (k,), the largest first, and ``"topics"``, shape (k, words):
        the law of words of each, in the order of the vocabulary.

    Notes
    -----
    The topics must be linearly independent, and k known. Noise of the pairs must be small beside
    their k-th eigenvalue: some ten thousand documents for some thirty words and three topics.

    References
    ----------
    Anandkumar, Foster, Hsu, Kakade and Liu 2012, Algorithm 1; Anandkumar, Ge, Hsu, Kakade and
    Telgarsky 2014, Theorems 3.1 and 3.5 (moments), Algorithm 1 (tensor power method). Park,
    Foulds, Chaudhuri and Welling 2017 add noise to whitened moments, by a local sensitivity.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> names = ["goal", "team", "vote", "law"]
    >>> papers = dp.dataset("papers", columns={name: (0, 50) for name in names})
    >>> found = dp.statistics.topics(papers, names, 2)
    >>> plan = dp.Pipeline(found=found).calibrate(epsilon=1.0, delta=1e-6)
    >>> rng = np.random.default_rng(1)
    >>> sport, politics = [0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.4, 0.5]
    >>> drawn = [rng.multinomial(20, sport if i % 3 else politics) for i in range(6_000)]
    >>> data = dict(zip(names, np.transpose(drawn)))
    >>> found = plan.simulate(seed=1, papers=data)["found"]
    >>> np.round(found["weights"], 1), np.round(found["topics"], 1) + 0.0
    (array([0.7, 0.3]), array([[0.6, 0.3, 0.1, 0. ],
           [0. , 0. , 0.4, 0.5]]))
    """
    names = (words,) if isinstance(words, str) else strings(words)
    k = as_int(count)
    if k is None or not (2 <= k <= MOST_TOPICS):
        raise DeclarationError(f"topics needs a count of 2 to {MOST_TOPICS} topics, got {count!r}")
    if not (isinstance(concentration, int | float) and 0 <= concentration <= 1e3):
        raise DeclarationError(
            f"concentration must be a number from 0 to 1,000, got {concentration!r}"
        )
    if not names:
        raise DeclarationError("topics needs a column of words, or columns of counts; got none")
    read = (*names, *([] if counts is None else [counts]))
    declared = {name: table.domain.find(name) for name in read}
    noise = nulls.known_noise("topics", mechanism, Gaussian())
    asked: PrivateQuery[Any] = PrivateQuery(WordPairs(names, counts, declared), (table,))
    query = asked.operation
    assert isinstance(query, WordPairs)
    if k > len(query.vocabulary):
        raise DeclarationError(
            f"there are no more topics than words: {k} topics of {len(query.vocabulary)} words"
        )
    pairs = asked.release(nulls.weighted_noise(asked, noise, 1.0), name="pairs")
    settings = {"count": k, "concentration": float(concentration)}
    directions = post(whitening, pairs, **settings)
    along: PrivateQuery[Any] = PrivateQuery(
        WordTriples(names, counts, declared, k), (table, directions)
    )
    triples = along.release(nulls.weighted_noise(along, noise, 1.0), name="triples")
    return group("topics", post(recovered_topics, pairs, triples, **settings), table)


def _whitened(
    pairs: Floats, count: int, concentration: float
) -> tuple[Floats, float, Floats, float]:
    """Return directions in [-1, 1], their scale, the shares of words, and the number of documents.

    Of ``M_2 = E[x_1 x_2'] - (a / (a + 1)) m m'`` with eigenvalues l and vectors U, the directions
    are ``U l^{-1/2}``, over the largest row's length.
    """
    documents = max(1.0, float(pairs.sum()))
    law = pairs / documents
    shares = law.sum(axis=0)
    second = law - concentration / (concentration + 1) * np.outer(shares, shares)
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    values, vectors = values[-count:][::-1], vectors[:, -count:][:, ::-1]
    # below a thousandth of the largest it is noise, and would only magnify it
    values = np.maximum(values, max(float(values[0]), 1e-12) * 1e-3)
    # signs are arbitrary: the largest entry of each is positive
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), range(count)])
    directions = vectors / np.sqrt(values)
    scale = float(np.sqrt((directions**2).sum(axis=1).max()))
    return directions / scale, scale, shares, documents


def whitening(pairs: Floats, *, count: int, concentration: float) -> Floats:
    """Return the directions in which released pairs of words are the identity, at most 1 long."""
    return _whitened(np.asarray(pairs), count, concentration)[0]


def _no_ends(inputs: list[Any], level: float, sampling: bool, **_: Any) -> Any:
    raise NoIntervalError("eigenvectors of noisy moments have no simple law")


@released_ends(_no_ends)
def recovered_topics(
    pairs: Floats, triples: Floats, *, count: int, concentration: float
) -> dict[str, Any]:
    """Return the weights and topics of `topics` from released pairs and triples."""
    directions, scale, shares, documents = _whitened(np.asarray(pairs), count, concentration)
    words, a = len(shares), concentration
    # as the query rounded them
    w = integer_directions(directions, words, count) * 2.0**-DIRECTION_BITS * scale
    third = np.asarray(triples) * scale**3 / documents
    # the moments of the law of topics (Anandkumar et al. 2014, Theorem 3.5); for a = 0 as they are
    law = np.asarray(pairs) / documents
    mean, second = w.T @ shares, w.T @ law @ w
    cross = sum(np.einsum(place, second, mean) for place in ("ij,m->ijm", "im,j->ijm", "jm,i->ijm"))
    third = third - a / (a + 2) * cross
    third = third + 2 * a * a / ((a + 1) * (a + 2)) * np.einsum("i,j,m->ijm", mean, mean, mean)
    values, vectors = tensor_eigenvectors(third, count)
    back = np.linalg.pinv(w.T)
    found = (a + 2) / 2 * values[:, None] * (back @ vectors.T).T
    found = np.maximum(found, 0.0)
    found = found / np.maximum(found.sum(axis=1, keepdims=True), 1e-12)
    weights = 1 / np.maximum(values, 1e-6) ** 2
    weights = weights / weights.sum()
    order = np.argsort(-weights, kind="stable")
    return {"weights": weights[order], "topics": found[order]}


STARTS, STEPS = 30, 60
"""Starts and steps of the tensor power method."""


def tensor_eigenvectors(tensor: Floats, count: int) -> tuple[Floats, Floats]:
    """Return eigenvalues and orthonormal-like eigenvectors of a symmetric tensor, by deflation.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade and Telgarsky 2014, Algorithm 1.
    """
    generator = np.random.default_rng(0)
    values, vectors = [], []
    for _ in range(count):
        best, value = np.zeros(count), -math.inf
        for _ in range(STARTS):
            v = generator.standard_normal(count)
            for _ in range(STEPS):
                v = np.einsum("ijm,j,m->i", tensor, v, v)
                v = v / max(float(np.linalg.norm(v)), 1e-300)
            found = float(np.einsum("ijm,i,j,m->", tensor, v, v, v))
            if found > value:
                best, value = v, found
        values.append(max(value, 1e-6))
        vectors.append(best)
        tensor = tensor - value * np.einsum("i,j,m->ijm", best, best, best)
    return np.array(values), np.array(vectors)
