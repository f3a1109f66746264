"""Runs of a plan on made-up data, many times, with all that each of them releases.

The transcript of a run is every release in it, each round of a loop for itself, then the outputs
that are no release: what an onlooker may see by the certificate. Releases inside of a selection
stay hidden, as in a run; what it chose is seen. A run that fails shows where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accountants import Guarantee
from accountants.errors import DomainError, whole
from accountants.secret import Secret
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.distinguishing import distinguish
from adaptive_dp.audit.mechanisms import INDEPENDENT, log_ratio
from adaptive_dp.audit.neighbors import (
    FixedData,
    LogRatio,
    Neighbors,
    Outcomes,
    Sampler,
    check_seed,
    stream,
)
from adaptive_dp.audit.pairs import DataPair, gallery, mixed_data
from adaptive_dp.audit.result import Audit
from adaptive_dp.audit.scores import table
from adaptive_dp.graph.errors import DataError, DeclarationError, RunError
from adaptive_dp.graph.handles import PublicSource, Release
from adaptive_dp.graph.loops import Loop, Select
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.registry import Function, is_own
from adaptive_dp.graph.run import Run, bind_sources, rehearse
from adaptive_dp.graph.values import fresh
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream
from adaptive_dp.queries.source import Source


@frozen(eq=False)
class Transcripts:
    """A plan bound to one data set, to be run again and again.

    What is not random and comes from no loop, release or foreign code is computed once; rows that
    no run reads after that are let go. The library's additive noises on such values are drawn for
    many runs by one call, each release from a stream of its own.
    """

    structure: Structure
    base: Run
    shown: tuple[str, ...]
    numeric: bool
    drawn: tuple[Node, ...]

    @classmethod
    def of(cls, plan: Pipeline, data: Mapping[str, Any]) -> Transcripts:
        """Bind data to a plan.

        Raises
        ------
        DataError
            If the data does not fit.
        """
        structure = plan.structure
        rehearse(structure)
        base = Run(structure, 0)
        base.bind(bind_sources(structure, {name: Secret(each) for name, each in data.items()}))
        for node in structure:
            if _is_fixed(node, base):
                base.value(node)
        shown = tuple(node.name for node in structure if _is_shown(structure, node))
        releases = all(isinstance(structure.nodes[n].handle.operation, Release) for n in shown)
        drawn = tuple(node for node in structure if _is_additive(structure, node, base))
        read = {n for node in structure if node.name not in base.secrets for n in node.inputs}
        for name in base.secrets.keys() - read:  # what no run reads again: rows, as a rule
            base.secrets[name] = Secret(None)
        return cls(structure, base, shown, releases, drawn)

    def one(self, seed: int | None, given: Mapping[str, Any] | None = None) -> list[Any]:
        """Return what one run shows; ``seed`` None takes the operating system's randomness.

        What some releases give may be drawn already.
        """
        run = RecordedRun(self.structure, seed, frozenset(self.shown), given or {})
        self.begin(run)
        try:
            run.all()
        except RunError:
            run.told.append("failed")
        return run.told

    def begin(self, run: Run) -> None:
        """Give a run what is computed once."""
        run.secrets.update(self.base.secrets)
        run.opened.update(self.base.opened)
        run.raw.update(self.base.raw)

    def sampler(self, width: int) -> Sampler:
        """Return the sampler; of numbers alone, rows of ``width`` where they end or fail early."""
        apart = {node.name for node in self.drawn} != set(self.shown)

        def sample(count: int, stream: Stream) -> Outcomes:
            ahead = self._ahead(count, stream)
            if not apart:
                return np.hstack([ahead[name].reshape(count, -1) for name in self.shown])
            runs = (
                self.one(each, {name: many[i] for name, many in ahead.items()})
                for i, each in enumerate(run_seeds(stream, count))
            )
            if not self.numeric:
                return [tuple(told) for told in runs]
            found = np.full((count, width), np.inf)
            for row, told in zip(found, runs, strict=True):
                numbers = flat_numbers(told)[:width]
                row[: len(numbers)] = numbers
            return found

        return sample

    def _ahead(self, count: int, stream: Stream) -> dict[str, Any]:
        """Return additive releases for so many runs, in their first axis."""
        (seed,) = run_seeds(stream, 1)
        found = {}
        for node in self.drawn:
            value, operation = self._value(node), node.handle.operation
            assert isinstance(operation, Release)
            many = np.broadcast_to(value, (count, *value.shape)).copy()
            source = SecureStream() if seed is None else SeededStream(seed, *node.key)
            found[node.name] = np.asarray(operation.mechanism.release(many, source))
        return found

    def _value(self, node: Node) -> np.ndarray:
        query = self.structure.of(node.handle.inputs[0]).name
        return np.array(self.base.secrets[query].reveal(), dtype=np.float64)

    def log_ratio(self, other: Transcripts) -> LogRatio | None:
        """Return the log-likelihood ratio against the other side, where all of it is known."""
        if {node.name for node in self.drawn} != set(self.shown):
            return None
        parts, at = [], 0
        mine = {node.name: node for node in self.drawn}
        for name in self.shown:
            a, b = self._value(mine[name]), other._value(mine[name])
            operation = mine[name].handle.operation
            assert isinstance(operation, Release)
            ratio = log_ratio(operation.mechanism, a, b)
            if ratio is None or a.shape != b.shape:
                return None
            parts.append((slice(at, at + a.size), ratio))
            at += a.size

        def added(outcomes: Outcomes) -> np.ndarray:
            rows = np.asarray(outcomes)
            each = np.array([ratio(rows[:, where]) for where, ratio in parts])
            return np.asarray(each.sum(axis=0))

        return added

    def width(self, runs: int = 5) -> int:
        """Return how many numbers a run shows: the most of some, for one may end early."""
        return max(1, *(len(flat_numbers(self.one(seed))) for seed in range(runs)))


class RecordedRun(Run):
    """A run that remembers what it shows, in order."""

    def __init__(
        self,
        structure: Structure,
        seed: int | None,
        shown: frozenset[str],
        given: Mapping[str, Any],
    ) -> None:
        super().__init__(structure, seed)
        self.shown, self.given = shown, given
        self.told: list[Any] = []
        self._watcher: Callable[[Node, Run], None] | None = None

    def watch_releases(self, watcher: Callable[[Node, Run], None]) -> None:
        """Have ``watcher(node, run)`` called after each release."""
        self._watcher = watcher

    def value(self, node: Node) -> None:
        """Compute a node's value, and note it if it is new and shown."""
        if node.name in self.opened or node.name in self.secrets:
            return
        if node.name in self.given:
            self._take(node)
        else:
            super().value(node)
        if node.name in self.shown:
            raw = isinstance(node.handle.operation, Release)
            self.told.append(self.raw[node.name] if raw else fresh(self.opened[node.name]))
            if raw and self._watcher is not None:
                self._watcher(node, self)

    def _take(self, node: Node) -> None:
        operation, query = node.handle.operation, node.handle.inputs[0].operation
        assert isinstance(operation, Release)
        assert isinstance(query, Query)
        self.raw[node.name] = np.array(self.given[node.name], dtype=np.float64)
        self.opened[node.name] = operation.presented(query, self.raw[node.name])


def flat_numbers(told: list[Any]) -> np.ndarray:
    """Return the numbers of a transcript in a row; other values are left out."""
    parts = [np.ravel(each) for each in told if isinstance(each, np.ndarray)]
    return np.concatenate(parts) if parts else np.zeros(0)


def run_seeds(stream: Stream, count: int) -> list[int | None]:
    """Return a seed for each run, from a seeded stream; None where randomness is real."""
    if isinstance(stream, SecureStream):
        return [None] * count
    return [int(word) for word in stream.words(count)]


def _is_fixed(node: Node, base: Run) -> bool:
    """Say whether a node's value is the same in each run, so that it is computed once.

    Foreign operations and functions may be random without saying so.
    """
    operation = node.handle.operation
    if node.loops or operation.random or isinstance(operation, Loop | Release):
        return False
    if (
        node.handle.visibility == "released"
        or node.name in base.opened
        or node.name in base.secrets
    ):
        return False
    foreign = any(isinstance(each, Function) for each in operation.parameters().values())
    there = [name in base.opened or name in base.secrets for name in node.inputs]
    return is_own(type(operation)) and not foreign and all(there)


def _is_additive(structure: Structure, node: Node, base: Run) -> bool:
    """Say whether many runs' releases may be drawn together: additive noise on what is fixed."""
    operation = node.handle.operation
    if node.loops or not isinstance(operation, Release):
        return False
    if type(operation.mechanism) not in INDEPENDENT or len(node.handle.inputs) != 1:
        return False
    query = structure.of(node.handle.inputs[0]).name
    return query in base.secrets and operation.mechanism.input_type is np.ndarray


def _is_shown(structure: Structure, node: Node) -> bool:
    around = [structure.nodes[name].handle.operation for name in node.loops]
    operation = node.handle.operation
    if any(isinstance(each, Select) for each in around):
        return False
    if isinstance(operation, Release | Select):
        return True
    return bool(node.outputs) and node.handle.visibility == "released"


# -----------------------------------------------------------------------------
# The audit of a whole plan, from the data to all that it releases.


Data = Mapping[str, Any]
Pair = DataPair | tuple[Data, Data]
"""Two neighbouring data sets: from a gallery, or each as what ``plan.run(**data)`` takes."""

AUDITED_PAIRS = 3
"""So many pairs of a gallery are audited, the most promising of a quick look."""

QUICK_LOOK = 1 << 20
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
    `adaptive_dp.audit.confidence` and `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    >>> dp.audit.pipeline(plan, samples=2_000, seed=0).verdict
    'consistent'
    """
    allowed_error(confidence)
    samples, limit = whole("samples", samples, least=100), whole("limit", limit)
    seed = check_seed(seed)
    if not isinstance(plan, Pipeline):
        raise DeclarationError(f"an audit is of a Pipeline, got {type(plan).__name__}")
    private = data is not None and not set(data) <= _public_names(plan)
    if data is not None and private:
        missing = {p.source.name for p in gallery(plan, limit=1)} - set(data)
        if missing:
            raise DataError(f"data is missing for {', '.join(sorted(missing))}")
    if data is not None:
        tables = _source_names(plan, Source)
        data = {name: FixedData(each) if name in tables else each for name, each in data.items()}
    held = _certified_claim(plan, delta) if claim is None else as_claim(claim, delta)
    made = pairs is None
    if pairs is None:
        chosen: list[Pair] = [*gallery(plan, limit=limit)]
    else:
        if data is not None:
            raise DeclarationError(
                "data are for pairs of the gallery; put them into the given pairs"
            )
        chosen = [pairs] if isinstance(pairs, DataPair | tuple) else list(pairs)
    bound, refused, why = [], 0, "an audit needs at least one pair of neighbouring data sets"
    for each in chosen:
        try:
            bound.append(_bind_pair(plan, each, data))
        except DataError as error:
            if not made:
                raise
            refused, why = refused + 1, str(error)
    if refused and not bound:
        raise DataError(why)
    if not bound:
        raise DomainError(why)
    looked = len(bound)
    if looked > AUDITED_PAIRS:
        runs = min(40, max(8, samples // (2 * looked)))
        sizes = [_quick_distance(one, two, runs, seed, i) for i, (_, one, two) in enumerate(bound)]
        order = sorted(range(looked), key=lambda i: -sizes[i])
        bound = [bound[i] for i in order[:AUDITED_PAIRS]]
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


def _certified_claim(plan: Pipeline, delta: float | None) -> Claim:
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


def _bind_pair(
    plan: Pipeline, pair: Pair, data: Data | None
) -> tuple[str, Transcripts, Transcripts]:
    if isinstance(pair, DataPair):
        alone = data is None or set(data) <= _public_names(plan)
        one, two = _pair_data(pair, data or {}, alone)
        bare = evolve(pair, others=()).words.removesuffix("no rows")
        words = pair.words if alone else f"{bare}the given data"
    else:
        if not (len(pair) == 2 and all(isinstance(each, Mapping) for each in pair)):
            raise DeclarationError(
                "a pair must be two mappings from data sets' names to data, such as "
                "({'people': frame}, {'people': neighbour})"
            )
        one, two = pair
        words = "the given pair"
    return words, Transcripts.of(plan, one), Transcripts.of(plan, two)


def _pair_data(pair: DataPair, data: Data, alone: bool) -> tuple[Data, Data]:
    return ({**pair.first, **data}, {**pair.second, **data}) if alone else mixed_data(pair, data)


def _public_names(plan: Pipeline) -> set[str]:
    """Return the names of the plan's public data sets."""
    return _source_names(plan, PublicSource)


def _source_names(plan: Pipeline, kind: type[Source] | type[PublicSource]) -> set[str]:
    operations = [node.handle.operation for node in plan.structure]
    return {each.name for each in operations if isinstance(each, kind)}


def _quick_distance(
    one: Transcripts, two: Transcripts, runs: int, seed: int | None, place: int
) -> float:
    """Return how far apart runs on both sides are by the same noise, in standard deviations.

    For choosing pairs only: the noise is that of fixed seeds, drawn for this.
    """
    drawn = (SecureStream() if seed is None else stream(seed, QUICK_LOOK, place)).words(runs)
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
