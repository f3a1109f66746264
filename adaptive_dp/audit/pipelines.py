"""Audits of a whole plan: many runs on neighbouring data sets, with all that each run releases.

The transcript of a run is every release in it, those of each round of a loop by themselves, and the
outputs that are not releases: what the certificate says an observer may see. Releases inside a
selection stay hidden, as in a run; the selected value is seen. A run that fails ends there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accountants import Guarantee
from accountants.errors import DomainError, integer
from accountants.numerics import Array
from accountants.secret import Secret
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.distinguishing import distinguish, draws
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
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.registry import Function, is_own
from adaptive_dp.graph.run import Run, bind_sources, rehearse
from adaptive_dp.graph.values import deep_copy
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream
from adaptive_dp.queries.source import Source


@frozen(eq=False)
class Transcripts:
    """A plan bound to one data set, to be run many times.

    Values that are not random, and depend on no loop, release or foreign code, are computed once;
    rows that no run reads after that are dropped. The library's additive noise on such values is
    drawn for many runs by one call, each release from a stream of its own.

    Parameters
    ----------
    structure
        The plan's.
    base
        A run that holds the values that are computed once.
    shown
        Names of the nodes in the transcript.
    numeric
        Whether the transcript consists of releases alone, so of numbers.
    drawn
        Nodes whose noise is drawn for many runs at once.
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
        # as before a run: what made-up rows can show to be wrong is shown before data are read
        rehearse(structure)
        base = Run(structure, 0)
        base.bind(bind_sources(structure, {name: Secret(each) for name, each in data.items()}))
        # as a run computes them: sums over the same rows in one pass
        base.compute(_fixed_nodes(structure, base))
        shown = tuple(node.name for node in structure if _is_shown(structure, node))
        releases = all(isinstance(structure.nodes[n].handle.operation, Release) for n in shown)
        drawn = tuple(node for node in structure if _is_additive(structure, node, base))
        # inputs of what is still to be computed by each run
        read = {n for node in structure if node.name not in base.secrets for n in node.inputs}
        for name in base.secrets.keys() - read:  # what no run reads again: rows, as a rule
            base.secrets[name] = Secret(None)
        return cls(structure, base, shown, releases, drawn)

    def one(self, seed: int | None, predrawn: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the transcript of one run; ``seed`` None takes the operating system's randomness.

        Parameters
        ----------
        seed
            Of the run.
        predrawn
            Noisy values of some releases by node name, which the run takes as they are.
        """
        run = RecordedRun(self.structure, seed, frozenset(self.shown), predrawn or {})
        self.begin(run)
        try:
            run.all()
        except RunError:
            # where a run fails is seen, as the length of the transcript; the message is not
            run.transcript.append("failed")
        return run.transcript

    def begin(self, run: Run) -> None:
        """Copy the values that are computed once into a run."""
        run.secrets.update(self.base.secrets)
        run.public_values.update(self.base.public_values)
        run.raw.update(self.base.raw)

    def sampler(self, width: int, made: Callable[[int], None] = lambda runs: None) -> Sampler:
        """Return the sampler; numeric transcripts are rows of ``width``, padded by infinity.

        It calls ``made`` with the number of runs that it has just made.
        """

        def one(seed: int | None, predrawn: Mapping[str, Any]) -> list[Any]:
            transcript = self.one(seed, predrawn)
            made(1)
            return transcript

        def sample(count: int, stream: Stream) -> Outcomes:
            predrawn = self._predraw(count, stream)
            # what cannot be drawn at once takes a run of the plan for each outcome
            if self.all_drawn:
                made(count)
                # a row for each run, in the transcript's order
                return np.hstack([predrawn[name].reshape(count, -1) for name in self.shown])
            runs = (
                one(seed, {name: values[i] for name, values in predrawn.items()})
                for i, seed in enumerate(run_seeds(stream, count))
            )
            if not self.numeric:
                return [tuple(transcript) for transcript in runs]
            # an infinity marks what a transcript that ended before does not have
            matrix = np.full((count, width), np.inf)
            for row, transcript in zip(matrix, runs, strict=True):
                numbers = flat_numbers(transcript)[:width]
                row[: len(numbers)] = numbers
            return matrix

        return sample

    @property
    def all_drawn(self) -> bool:
        """Whether all of the transcript is noise that is drawn for many runs at once."""
        return {node.name for node in self.drawn} == set(self.shown)

    def _predraw(self, count: int, stream: Stream) -> dict[str, Any]:
        """Return additive releases for so many runs, in their first axis."""
        # one seed for all releases of a batch; the node's key gives each a stream of its own
        (seed,) = run_seeds(stream, 1)
        releases = {}
        for node in self.drawn:
            value, operation = self._value(node), node.handle.operation
            assert isinstance(operation, Release)
            # the first axis counts runs, as `INDEPENDENT` mechanisms allow
            copies = np.broadcast_to(value, (count, *value.shape)).copy()
            source = SecureStream() if seed is None else SeededStream(seed, *node.key)
            releases[node.name] = np.asarray(operation.mechanism.release(copies, source))
        return releases

    def _value(self, node: Node) -> np.ndarray:
        query = self.structure.of(node.handle.inputs[0]).name
        return np.array(self.base.secrets[query].reveal(), dtype=np.float64)

    def log_ratio(self, other: Transcripts) -> LogRatio | None:
        """Return the log-likelihood ratio against other data, if known for all releases."""
        # known only where all of the transcript is additive noise on fixed values
        if not self.all_drawn:
            return None
        parts, start = [], 0
        nodes = {node.name: node for node in self.drawn}
        for name in self.shown:
            a, b = self._value(nodes[name]), other._value(nodes[name])
            operation = nodes[name].handle.operation
            assert isinstance(operation, Release)
            ratio = log_ratio(operation.mechanism, a, b)
            # one unknown law, and the ratio of the whole transcript is unknown
            if ratio is None or a.shape != b.shape:
                return None
            # the columns of this release among those of the transcript
            parts.append((slice(start, start + a.size), ratio))
            start += a.size

        def summed(outcomes: Outcomes) -> np.ndarray:
            rows = np.asarray(outcomes)
            # releases are independent given the data, so log-ratios add
            ratios = np.array([ratio(rows[:, where]) for where, ratio in parts])
            return np.asarray(ratios.sum(axis=0))

        return summed

    def width(self, runs: int = 5) -> int:
        """Return how many numbers a transcript has: the most of several runs."""
        return max(1, *(len(flat_numbers(self.one(seed))) for seed in range(runs)))


class RecordedRun(Run):
    """A run that records its transcript, in order."""

    def __init__(
        self,
        structure: Structure,
        seed: int | None,
        shown: frozenset[str],
        predrawn: Mapping[str, Any],
    ) -> None:
        super().__init__(structure, seed)
        # predrawn releases are taken as they are: the run draws nothing for them
        self.shown, self.predrawn = shown, predrawn
        self.transcript: list[Any] = []
        self._watcher: Callable[[Node, Run], None] | None = None

    def watch_releases(self, watcher: Callable[[Node, Run], None]) -> None:
        """Have ``watcher(node, run)`` called after each release."""
        self._watcher = watcher

    def compute_node(self, node: Node) -> None:
        """Compute a node's value, and record it if it is new and in the transcript."""
        # a node is recorded once, when it is first computed
        if node.name in self.public_values or node.name in self.secrets:
            return
        if node.name in self.predrawn:
            self._take(node)
        else:
            super().compute_node(node)
        if node.name in self.shown:
            is_release = isinstance(node.handle.operation, Release)
            self.transcript.append(
                # the number before it is presented, with all bits that were released
                self.raw[node.name] if is_release else deep_copy(self.public_values[node.name])
            )
            if is_release and self._watcher is not None:
                self._watcher(node, self)

    def _take(self, node: Node) -> None:
        operation = node.handle.operation
        assert isinstance(operation, Release)
        self.raw[node.name] = np.array(self.predrawn[node.name], dtype=np.float64)
        self.public_values[node.name] = operation.presented(
            node.handle.inputs[0], self.raw[node.name]
        )


def flat_numbers(transcript: list[Any]) -> np.ndarray:
    """Return the numbers of a transcript as one array; other values are left out."""
    parts = [np.ravel(each) for each in transcript if isinstance(each, np.ndarray)]
    return np.concatenate(parts) if parts else np.zeros(0)


def run_seeds(stream: Stream, count: int) -> list[int | None]:
    """Return a seed for each run from a seeded stream; None for secure randomness."""
    if isinstance(stream, SecureStream):
        return [None] * count
    return [int(word) for word in stream.words(count)]


def _fixed_nodes(structure: Structure, base: Run) -> list[Node]:
    """Return the nodes whose values are the same in each run, so that they are computed once.

    Parameters
    ----------
    structure
        The plan's.
    base
        A run to which data are bound.
    """
    fixed, available = list[Node](), base.public_values.keys() | base.secrets.keys()
    # in the plan's order, so that inputs come before what reads them
    for node in structure:
        if node.name not in available and available.issuperset(node.inputs) and _is_fixed(node):
            fixed.append(node)
            available.add(node.name)
    return fixed


def _is_fixed(node: Node) -> bool:
    """Return whether a node's value is the same in each run where those of its inputs are.

    Operations and functions that are not the library's may be random without declaring it.
    """
    operation = node.handle.operation
    # inside a loop the value changes from round to round; what is released is drawn, or follows
    drawn = node.loops or operation.random or isinstance(operation, Loop | Release)
    if drawn or node.handle.visibility == "released":
        return False
    is_foreign = any(isinstance(each, Function) for each in operation.parameters().values())
    return is_own(type(operation)) and not is_foreign


def _is_additive(structure: Structure, node: Node, base: Run) -> bool:
    """Return whether one call may draw many runs' releases: additive noise on a fixed value."""
    operation = node.handle.operation
    if node.loops or not isinstance(operation, Release):
        return False
    if type(operation.mechanism) not in INDEPENDENT or len(node.handle.inputs) != 1:
        return False
    query = structure.of(node.handle.inputs[0]).name
    return query in base.secrets and operation.mechanism.input_type is np.ndarray


def _is_shown(structure: Structure, node: Node) -> bool:
    loops = [structure.nodes[name].handle.operation for name in node.loops]
    operation = node.handle.operation
    # only the selected value of a selection is seen
    if any(isinstance(each, Select) for each in loops):
        return False
    if isinstance(operation, Release | Select):
        return True
    return bool(node.outputs) and node.handle.visibility == "released"


# -----------------------------------------------------------------------------
# The audit of a whole plan: choose pairs by a quick look, then `distinguish` them by new runs.


Data = Mapping[str, Any]
Pair = DataPair | tuple[Data, Data]
"""Two neighbouring data sets: from a gallery, or each as what ``plan.run(**data)`` takes."""

MOST_PROMISING = 3
"""How many pairs are audited for how far apart their runs are in a quick look."""

MOST_PARTING = 5
"""At most so many more are audited, in which releases move that move together in the others."""

Progress = Callable[[int, int, float], None]
"""``progress(done, total, seconds)``: runs that are made, of how many, and seconds left."""


class Counter:
    """Counts the runs of an audit, and tells how many there are still to be.

    Parameters
    ----------
    progress
        Whom it tells; None for nobody.
    clock
        Seconds, from any start.

    Examples
    --------
    >>> seconds = iter([0.0, 1.0, 2.0, 3.0])
    >>> counter = Counter(lambda *told: print(*told), clock=lambda: next(seconds))
    >>> counter.begin(300)
    >>> for _ in range(3):
    ...     counter.add(100)
    100 300 2.0
    200 300 1.0
    300 300 0.0
    """

    def __init__(
        self, progress: Progress | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._progress, self._clock = progress, clock
        self._done = self._total = 0
        self._started = self._told = 0.0

    def begin(self, total: int) -> None:
        """Start counting, up to ``total``."""
        self._total = total
        self._started = self._told = self._clock()

    def add(self, runs: int) -> None:
        """Count runs that were made since."""
        if self._progress is None:
            return
        self._done += runs
        now, last = self._clock(), self._done >= self._total
        if last or now - self._told >= 0.1:
            self._told = now
            left = (now - self._started) * (self._total - self._done) / self._done
            self._progress(self._done, self._total, left)


QUICK_LOOK = 1 << 20
"""The quick look's streams are different from those of the audit, whose draws choose nothing."""


def pipeline(
    plan: Pipeline,
    pairs: Pair | Sequence[Pair] | None = None,
    claim: Claimed | Claim | None = None,
    *,
    data: Data | None = None,
    samples: int = 20_000,
    confidence: float = 0.999,
    delta: float | None = None,
    seed: int | None = None,
    limit: int = 60,
    progress: Progress | None = None,
) -> Audit:
    """Audit a whole plan by all that its runs release on neighbouring data sets.

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
        Data into which the gallery's units are put, by the data sets' names. The result then
        depends on the data, so it is as private as they are. If only public data sets are named,
        they complete the gallery's own data.
    samples
        Runs on each data set of a pair, on average.
    confidence, seed
        As for `distinguish`.
    delta
        The delta at which the claim is tested; by default the audit chooses among certified points.
    limit
        How many pairs of each data set's gallery get a quick look.
    progress
        Called as ``progress(done, total, seconds)`` with the audit's runs that are made, how many
        there will be, and about how long the rest takes; at most ten times a second, and at the
        end. It changes nothing of the result.

    Returns
    -------
    Audit
        As `distinguish` returns it, with notes on the pairs.

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
    Clopper and Pearson 1934 (the bounds, on draws that chose nothing); the statements in terms of
    guesses are proven in `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    >>> dp.audit.pipeline(plan, samples=2_000, seed=0).verdict
    'consistent'
    """
    allowed_error(confidence)
    samples, limit = integer("samples", samples, least=100), integer("limit", limit)
    seed = check_seed(seed)
    if not isinstance(plan, Pipeline):
        raise DeclarationError(f"audit.pipeline needs a Pipeline, got {type(plan).__name__}")
    # public data sets complete the gallery, and make nothing private
    is_private = data is not None and not set(data) <= _source_names(plan, PublicSource)
    if data is not None and is_private:
        missing = {p.source.name for p in gallery(plan, limit=1)} - set(data)
        if missing:
            raise DataError(f"data is missing for {', '.join(sorted(missing))}")
    if data is not None:
        tables = _source_names(plan, Source)
        data = {name: FixedData(each) if name in tables else each for name, each in data.items()}
    # the claim is fixed before any pair is run
    tested_claim = _certified_claim(plan, delta) if claim is None else as_claim(claim, delta)
    from_gallery = pairs is None
    if pairs is None:
        chosen: list[Pair] = [*gallery(plan, limit=limit)]
    else:
        if data is not None:
            raise DeclarationError(
                "data is for the gallery's pairs, and pairs were given; put the data into the pairs"
            )
        chosen = [pairs] if isinstance(pairs, DataPair | tuple) else list(pairs)
    bound_pairs, refusals = [], []
    for each in chosen:
        try:
            bound_pairs.append(_bind_pair(plan, each, data))
        # the gallery may hold cells that a data set refuses; a pair that was given has to fit
        except DataError as error:
            if not from_gallery:
                raise
            refusals.append(str(error))
    if refusals and not bound_pairs:
        raise DataError(refusals[-1])
    if not bound_pairs:
        raise DomainError("an audit needs at least one pair of neighbouring data sets")
    compared = len(bound_pairs)
    # a quick look at all, so that the draws of the audit go to a few; its own draws are not reused
    if compared > MOST_PROMISING:
        # for all looks together about half of the runs of one audited pair; 8 to 40 for each
        runs = min(40, max(8, samples // (2 * compared)))
        looks = [
            _quick_look(one, two, runs, seed, i) for i, (_, one, two) in enumerate(bound_pairs)
        ]
        bound_pairs = [bound_pairs[i] for i in _promising(looks)]
    counter = Counter(progress)
    neighbors = [_neighbors(*each, counter.add) for each in bound_pairs]
    learn, tries = draws(neighbors, samples)
    counter.begin(2 * learn * len(neighbors) + tries)
    result = distinguish(
        neighbors,
        tested_claim,
        samples=samples,
        confidence=confidence,
        seed=seed,
        # gallery pairs are neighbours by construction; of given ones it is taken for granted
        assumptions=() if from_gallery else ("the given data sets are neighbours",),
    )
    notes = [f"{compared} pairs were looked at, {len(bound_pairs)} of them audited"]
    if refusals:
        notes.append(f"{len(refusals)} pairs of the gallery are refused as data")
    if is_private:
        notes.append("made with given data: this audit is as private as they are")
    return evolve(result, notes=(*result.notes, *notes))


def _certified_claim(plan: Pipeline, delta: float | None) -> Claim:
    """Return what is certified, at the plan's own delta (or the given one) and at others."""
    certificate = plan.certify(delta)
    if delta is not None or (certificate.delta == 0 and certificate.epsilon < math.inf):
        return as_claim(certificate)
    curve = as_claim(Guarantee(plan.term))
    # nothing finite is certified at the plan's delta: the claim is the curve at other deltas
    if math.isinf(certificate.epsilon):
        return evolve(curve, words="what is certified at each delta")
    certified = as_claim(certificate)
    # the certified point first, each point once
    points = dict.fromkeys((*certified.points, *curve.points))
    return Claim(certified.words + ", and what is certified at other deltas", tuple(points))


def _bind_pair(
    plan: Pipeline, pair: Pair, data: Data | None
) -> tuple[str, Transcripts, Transcripts]:
    first: Data
    second: Data
    if isinstance(pair, DataPair):
        given = data or {}
        # data that are public alone complete the pair, they do not replace its others
        if set(given) <= _source_names(plan, PublicSource):
            first, second = {**pair.first, **given}, {**pair.second, **given}
            words = pair.words
        else:
            first, second = mixed_data(pair, given)
            words = evolve(pair, others=()).words.removesuffix("no rows") + "the given data"
    else:
        if not (len(pair) == 2 and all(isinstance(each, Mapping) for each in pair)):
            raise DeclarationError(
                "a pair must be two mappings from data sets' names to data, such as "
                "({'people': frame}, {'people': neighbour})"
            )
        first, second = pair
        words = "the given pair"
    return words, Transcripts.of(plan, first), Transcripts.of(plan, second)


def _source_names(plan: Pipeline, kind: type[Source] | type[PublicSource]) -> set[str]:
    operations = [node.handle.operation for node in plan.structure]
    return {each.name for each in operations if isinstance(each, kind)}


@frozen(eq=False)
class _Look:
    """What a quick look at a pair shows.

    Parameters
    ----------
    distance
        How far apart runs on the two data sets are by equal noise, in standard deviations.
    moves
        How far each number of the transcript moves; none where the transcripts differ in length.
    spread
        The standard deviation of each number's noise.
    """

    distance: float
    moves: Array
    spread: Array


def _quick_look(
    first: Transcripts, second: Transcripts, runs: int, seed: int | None, place: int
) -> _Look:
    """Run both sides of a pair a few times.

    It only chooses pairs, by seeds drawn for this; the audit makes draws of its own.
    """
    seeds = [int(word) for word in stream(seed, QUICK_LOOK, place).words(runs)]
    # equal seeds give equal noise, so that differences show what the data changed
    transcripts = [[tuple(side.one(each)) for each in seeds] for side in (first, second)]
    a, b = (table(side) for side in transcripts)
    # transcripts of different shapes are told apart without statistics
    if a.numbers.shape != b.numbers.shape:
        return _Look(math.inf, np.zeros(0), np.zeros(0))
    moves = np.abs(a.numbers - b.numbers).mean(axis=0)
    # a column without noise has spread 0: any change of it then counts as huge
    spread = a.numbers.std(axis=0) + 1e-12 * (1 + np.abs(a.numbers).max(axis=0, initial=0.0))
    distance = np.hypot.reduce(moves / spread, initial=0.0) + np.mean(a.patterns != b.patterns)
    return _Look(float(distance), moves[:_MOST_MOVES], spread[:_MOST_MOVES])


_MOST_MOVES = 64
"""Pairs are chosen by the first numbers of a transcript, so many at most."""

_PARTED = 0.25
"""Two releases part in a pair where their moves differ by so much of the larger one."""


def _promising(looks: Sequence[_Look]) -> list[int]:
    """Return the pairs to audit: those farthest apart, and those in which releases part.

    What two releases share (the same noise, a reused seed, correlated streams) shows only where one
    moves more than the other, each in units of its own noise. So pairs are added, greedily, in
    which two releases part that move alike in all pairs before; each release parts from one that
    does not move, too.
    """
    order = sorted(range(len(looks)), key=lambda i: -looks[i].distance)
    chosen = order[:MOST_PROMISING]
    width = max(len(look.moves) for look in looks)
    # the noise of a few runs is known roughly; that of all looks together much better
    spreads = [look.spread for look in looks if len(look.spread) == width]
    spread = np.median(spreads, axis=0)

    def parted(look: _Look) -> Array:
        # the last column stands for what does not move
        moves = np.zeros(width + 1)
        if len(look.moves) == width:
            moves[:width] = look.moves / spread
        larger = np.maximum(moves[:, None], moves[None, :])
        # what moves by less than a hundredth of its noise is taken to stand still
        return np.asarray(
            (np.abs(moves[:, None] - moves[None, :]) > _PARTED * larger) & (larger > 0.01)
        )

    apart = np.any([parted(looks[i]) for i in chosen], axis=0)
    while len(chosen) < MOST_PROMISING + MOST_PARTING:
        rest = [i for i in order if i not in chosen]
        gains = [int(np.count_nonzero(parted(looks[i]) & ~apart)) for i in rest]
        if not any(gains):
            break
        # of equal gains the first: the one whose runs are farthest apart
        chosen.append(rest[int(np.argmax(gains))])
        apart |= parted(looks[chosen[-1]])
    return chosen


def _neighbors(
    words: str, first: Transcripts, second: Transcripts, made: Callable[[int], None]
) -> Neighbors:
    width = max(first.width(), second.width())
    one, two = first.sampler(width, made), second.sampler(width, made)
    return Neighbors(words, one, two, first.log_ratio(second))
