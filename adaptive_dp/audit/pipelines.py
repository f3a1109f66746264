"""The audit of a whole plan, from the data to all that it releases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from accountants import Guarantee
from accountants.errors import DomainError, whole
from adaptive_dp.audit.beside import beside
from adaptive_dp.audit.claims import Claim, Claimed, allowed
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.distinguishing import distinguish
from adaptive_dp.audit.features import table
from adaptive_dp.audit.given import Given
from adaptive_dp.audit.pairs import DataPair, gallery
from adaptive_dp.audit.result import Audit
from adaptive_dp.audit.sides import Neighbors, checked, stream
from adaptive_dp.audit.transcripts import Transcripts
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.roles import PublicSource
from adaptive_dp.noise.stream import SecureStream
from adaptive_dp.queries.source import Source

Data = Mapping[str, Any]
Pair = DataPair | tuple[Data, Data]
"""Two neighbouring data sets: from a gallery, or each as what ``plan.run(**data)`` takes."""

KEPT = 3
"""So many pairs of a gallery are audited, the most promising of a quick look."""

SCREEN = 1 << 20
"""Streams of the quick look are apart from those of the audit."""


def pipeline(
    plan: Pipeline,
    pairs: Pair | Sequence[Pair] | None = None,
    claim: Claimed | Claim | None = None,
    *,
    data: Data | None = None,
    samples: int = 20_000,
    confidence: float = 0.95,
    delta: float | None = None,
    seed: int | None = None,
    limit: int = 40,
) -> Audit:
    """Audit a plan end to end, by all that its runs release on neighbouring data sets.

    Parameters
    ----------
    plan
        Without free parameters.
    pairs
        One pair or several, each a `DataPair` or two mappings from the data sets' names to data,
        which must be neighbours. By default those of `gallery` that look the most promising.
    claim
        By default what the accountants certify: at the plan's delta and, where that is not 0 with
        a finite epsilon, at larger ones, of which the audit chooses one.
    data
        Data among which the gallery's units are put, by the data sets' names. What the audit says
        then depends on the data, so it is as private as the data are. Of public data sets alone:
        they stand beside the gallery's own.
    samples
        Runs on each side of a pair, on average.
    confidence, seed
        As for `distinguish`.
    delta
        Where the claim is tested; by default the audit chooses, from certified points alone.
    limit
        So many pairs of each data set's gallery are looked at.

    Raises
    ------
    DeclarationError
        If a parameter is free, or no pair can be made or bound.
    DataError
        If a given pair does not fit the plan.
    DomainError
        As for `distinguish`.

    References
    ----------
    Clopper and Pearson 1934, of guesses on draws that chose nothing; see the docstrings of
    `adaptive_dp.audit.bounds` and `adaptive_dp.audit.band`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    >>> dp.audit.pipeline(plan, samples=2_000, seed=0).verdict
    'consistent'
    """
    allowed(confidence)
    samples, limit = whole("samples", samples, least=100), whole("limit", limit)
    seed = checked(seed)
    require(isinstance(plan, Pipeline), f"an audit is of a Pipeline, got {type(plan).__name__}")
    private = data is not None and not set(data) <= _public(plan)
    if data is not None and private:
        missing = {p.source.name for p in gallery(plan, limit=1)} - set(data)
        if missing:
            raise DataError(f"data is missing for {', '.join(sorted(missing))}")
    if data is not None:
        tables = _names(plan, Source)
        data = {name: Given(each) if name in tables else each for name, each in data.items()}
    held = _claim(plan, delta) if claim is None else as_claim(claim, delta)
    made = pairs is None
    if pairs is None:
        chosen: list[Pair] = [*gallery(plan, limit=limit)]
    else:
        require(data is None, "data are for pairs of the gallery; put them into the given pairs")
        chosen = [pairs] if isinstance(pairs, DataPair | tuple) else list(pairs)
    bound, refused, why = [], 0, "an audit needs at least one pair of neighbouring data sets"
    for each in chosen:
        try:
            bound.append(_bound(plan, each, data))
        except DataError as error:
            if not made:
                raise
            refused, why = refused + 1, str(error)
    if refused and not bound:
        raise DataError(why)
    if not bound:
        raise DomainError(why)
    looked = len(bound)
    if looked > KEPT:
        runs = min(40, max(8, samples // (2 * looked)))
        sizes = [_promise(one, two, runs, seed, i) for i, (_, one, two) in enumerate(bound)]
        order = sorted(range(looked), key=lambda i: -sizes[i])
        bound = [bound[i] for i in order[:KEPT]]
    found = distinguish(
        [_neighbors(*each) for each in bound],
        held,
        samples=samples,
        confidence=confidence,
        seed=seed,
        assumptions=() if made else ("the given data sets are neighbours",),
    )
    notes = [f"{looked} pairs were looked at, {len(bound)} of them audited"]
    if refused:
        notes.append(f"{refused} pairs of the gallery are refused as data")
    if private:
        notes.append("made with given data: this audit is as private as they are")
    return evolve(found, notes=(*found.notes, *notes))


def _claim(plan: Pipeline, delta: float | None) -> Claim:
    """Return what is certified, at the plan's own delta (or the given one) and at others."""
    paper = plan.certify(delta)
    if delta is not None or (paper.delta == 0 and paper.epsilon < math.inf):
        return as_claim(paper)
    curve = as_claim(Guarantee(plan.term))
    if math.isinf(paper.epsilon):
        return evolve(curve, words="what is certified at each delta")
    own = as_claim(paper)
    points = dict.fromkeys((*own.points, *curve.points))
    return Claim(own.words + ", and what is certified at other deltas", tuple(points))


def _bound(plan: Pipeline, pair: Pair, data: Data | None) -> tuple[str, Transcripts, Transcripts]:
    if isinstance(pair, DataPair):
        alone = data is None or set(data) <= _public(plan)
        one, two = _sides(pair, data or {}, alone)
        bare = evolve(pair, others=()).words.removesuffix("no rows")
        words = pair.words if alone else f"{bare}the given data"
    else:
        require(
            len(pair) == 2 and all(isinstance(each, Mapping) for each in pair),
            "a pair must be two mappings from data sets' names to data, such as "
            "({'people': frame}, {'people': neighbour})",
        )
        one, two = pair
        words = "the given pair"
    return words, Transcripts.of(plan, one), Transcripts.of(plan, two)


def _sides(pair: DataPair, data: Data, alone: bool) -> tuple[Data, Data]:
    return ({**pair.first, **data}, {**pair.second, **data}) if alone else beside(pair, data)


def _public(plan: Pipeline) -> set[str]:
    """Return the names of the plan's public data sets."""
    return _names(plan, PublicSource)


def _names(plan: Pipeline, kind: type[Source] | type[PublicSource]) -> set[str]:
    operations = [node.handle.operation for node in plan.structure]
    return {each.name for each in operations if isinstance(each, kind)}


def _promise(one: Transcripts, two: Transcripts, runs: int, seed: int | None, place: int) -> float:
    """Return how far apart runs on both sides are by the same noise, in standard deviations.

    For choosing pairs only: the noise is that of fixed seeds, drawn for this.
    """
    drawn = (SecureStream() if seed is None else stream(seed, SCREEN, place)).words(runs)
    tried = [int(word) for word in drawn]
    sides = [[tuple(side.one(each)) for each in tried] for side in (one, two)]
    a, b = (table(side) for side in sides)
    if a.numbers.shape != b.numbers.shape:
        return math.inf
    moves = np.abs(a.numbers - b.numbers).mean(axis=0)
    spread = a.numbers.std(axis=0) + 1e-12 * (1 + np.abs(a.numbers).max(axis=0, initial=0.0))
    return float(np.hypot.reduce(moves / spread, initial=0.0) + np.mean(a.patterns != b.patterns))


def _neighbors(words: str, one: Transcripts, two: Transcripts) -> Neighbors:
    width = max(one.width(), two.width())
    return Neighbors(words, one.sampler(width), two.sampler(width), one.log_ratio(two))
