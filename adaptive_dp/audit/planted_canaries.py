"""Audits of a whole plan by one run: canaries planted among the rows, and their gradient scores.

*Gradient scores.* At a round's released parameters canary i has the clipped gradient g_i. The round
releases ``r = sum over those sampled + noise``; its score is ``<g_i, r - q (B + S / 2)>`` with q
the sampling rate, B the sum of the other rows' clipped gradients and S that of all canaries: the
expected release where each canary is included by a fair random bit. With orthogonal gradients, all
rows in each round and Gaussian noise of one size, the score is proportional to the log-likelihood
ratio of in against out. It is a function of released values, the other rows and the canaries, never
of the bits. Scores of rounds are added.

*Difference scores*, of plans that release no sum of clipped gradients: sufficient statistics with
noise, or a perturbed minimizer. Of each release r outside of loops with additive noise of deviation
s, let q(B) be the query's value on the other rows, and d_i the difference that canary i alone makes
to it. Then ``r - q(B) - sum_i d_i / 2`` is ``sum_i c_i d_i`` and noise, c_i being 1/2 of a canary
that is in and -1/2 of one that is out: exactly of a sum over rows, of a minimizer to first order.
With D the matrix of all d_i, over s and those of all releases side by side, the scores are the
linear estimate of least mean square error of the c_i, ``(D D' + 4)^-1 D (r - ...)``. DP-FTRL's last
parameters are a sum of clipped gradients with noise, which are taken at its mean parameters.

The score affects the power of the audit alone, not its validity. Where rounds are samples, the
sampling of the other rows is noise as well: fewer other rows then give more power.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from accountants.numerics import Array
from adaptive_dp.audit.canaries import one_run
from adaptive_dp.audit.claims import allowed_error
from adaptive_dp.audit.neighbors import check_seed, stream
from adaptive_dp.audit.pairs import FixedSizeRows
from adaptive_dp.audit.pipelines import Counter, Progress, RecordedRun, Transcripts, run_seeds
from adaptive_dp.audit.result import Audit
from adaptive_dp.data import MemoryRows, Reading, Rows, cells, read_rows
from adaptive_dp.data.cells import columns_of
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.handles import (
    Handle,
    Release,
    SampleOperation,
    SourceOperation,
    lineage,
    unaliased,
)
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.mechanism import AdaptiveSums
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import Run, released_values, run_guarded
from adaptive_dp.mechanisms.follow_the_leader import FollowTheLeader
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.gradients import (
    ClippedSum,
    GradientStream,
    LayerGradients,
    LinearGradients,
    released_bound,
)
from adaptive_dp.queries.source import Source


@frozen(eq=False)
class GradientScores:
    """Gradient scores that are added up while a plan runs; called at each release.

    Parameters
    ----------
    structure
        The plan's.
    others, canaries
        Private values of the other rows, and of all canaries.
    sums
        Names of the releases of clipped sums.
    scores
        Shape (m,).
    """

    structure: Structure
    others: PrivateValues
    canaries: PrivateValues
    sums: frozenset[str]
    scores: Array

    @classmethod
    def of(
        cls,
        structure: Structure,
        shown: Collection[str],
        source: Source,
        others: Rows,
        canaries: Rows,
    ) -> GradientScores:
        """Return scores that are all 0; ``shown`` are the nodes in the plan's transcript.

        Raises
        ------
        DeclarationError
            If the plan releases no sum of clipped gradients of the data set.
        """
        # releases inside a selection are not seen, so no score may use them
        sums = frozenset(
            n.name for n in structure if n.name in shown and _is_clipped_sum(n, source)
        )
        if not sums:
            raise DeclarationError(
                f"the plan releases no sum of clipped gradients of {source.name!r}, by which "
                "canaries are scored by default; give a score, a function of what the run shows"
            )
        return cls(
            structure,
            PrivateValues(structure, others),
            PrivateValues(structure, canaries),
            sums,
            np.zeros(canaries.size()),
        )

    def __call__(self, node: Node, run: Run) -> None:
        """Add the scores of one release.

        Raises
        ------
        DeclarationError
            If the plan's own steps leave out some of the canaries.
        """
        if node.name not in self.sums:
            return
        query = node.handle.inputs[0]
        operation = query.operation
        assert isinstance(operation, ClippedSum)
        # a ClippedSum may read a released bound beside the gradients
        gradients, *bound_handles = query.inputs
        bounds = [run.public_values[self.structure.of(each).name] for each in bound_handles]
        # a bound that was released in this round, or the declared one
        bound = released_bound(bounds[0]) if bounds else operation.bound
        both_gradients = [side.value(gradients, run) for side in (self.others, self.canaries)]

        def round_scores() -> Array:
            other_sum, canary_sum = (
                operation.run([each, *bounds], SeededStream(0)) for each in both_gradients
            )
            # r - q (B + S / 2): what is left of the release after its expectation under fair bits
            residual = np.ravel(run.raw[node.name]) - _sampling_rate(gradients) * (
                other_sum + canary_sum / 2
            )
            return gradient_products(both_gradients[1], bound, residual, relative=bool(bounds))

        scores = run_guarded(node.name, round_scores)
        # rows that a step drops would shift the scores of those after them
        if scores.shape != self.scores.shape:
            raise DeclarationError(
                "some canaries are left out by the plan's own steps (a filter, a label that is no "
                "declared category, parts); plant rows that all go on, or give a score"
            )
        np.add(self.scores, scores, out=self.scores)


@frozen(eq=False)
class DifferenceScores:
    """Difference scores, added up while a plan runs; called at each release.

    Parameters
    ----------
    structure
        The plan's.
    rows
        From which canaries are in, the rows that the private data set reads.
    noisy
        Names of the releases that are scored.
    products, gram
        ``D (r - ...)`` and ``D D'`` of the releases so far, shapes (m,) and (m, m).
    counted
        Called with 1 after each value that is computed, to tell of the progress.
    """

    structure: Structure
    rows: Callable[[NDArray[np.bool_]], Any]
    noisy: frozenset[str]
    products: Array
    gram: Array
    counted: list[Callable[[int], None]] = field(factory=list)

    @property
    def scores(self) -> Array:
        """The estimates, shape (m,)."""
        # a bit of 1/2 or -1/2 has the variance 1/4
        identity = np.eye(len(self.products))
        return np.asarray(np.linalg.solve(self.gram + 4 * identity, self.products))

    @classmethod
    def of(
        cls,
        structure: Structure,
        shown: Collection[str],
        source: Source,
        rows: Callable[[NDArray[np.bool_]], Any],
        count: int,
    ) -> DifferenceScores:
        """Return scores that are all 0; ``shown`` are the nodes in the plan's transcript.

        Raises
        ------
        DeclarationError
            If the plan releases nothing of the data set by additive noise, outside of loops.
        """
        noisy = frozenset(
            n.name for n in structure if n.name in shown and _has_additive_noise(n, source)
        )
        if not noisy:
            raise DeclarationError(
                f"the plan releases no sum of clipped gradients of {source.name!r}, and no value "
                "of it with additive noise outside of loops, by which canaries are scored by "
                "default; give a score, a function of what the run shows"
            )
        return cls(structure, rows, noisy, np.zeros(count), np.zeros((count, count)))

    def __call__(self, node: Node, run: Run) -> None:
        """Add the scores of one release."""
        if node.name not in self.noisy:
            return
        query, count = node.handle.inputs[0], len(self.products)
        assert isinstance(node.handle.operation, Release)
        mechanism, raw = node.handle.operation.mechanism, run.raw[node.name]
        mean, move, deviation = raw, 1.0, mechanism.deviation()
        if isinstance(mechanism, FollowTheLeader):
            # theta_T is -step times the sum of all rounds' gradients; as if all were at the mean
            step = float(run.public_values[self.structure.of(node.handle.inputs[1]).name])
            (mean, raw), move = raw, -step * mechanism.epochs
            deviation = step * mechanism.sigma

        def value(included: NDArray[np.bool_]) -> Array:
            # of these rows at the values that this run has released, whatever its bits are
            found = PrivateValues(self.structure, self.rows(included)).value(query, run)
            for count_one in self.counted:
                count_one(1)
            if isinstance(found, AdaptiveSums):
                found = found.at(mean) * (move * found.step)
            return np.ravel(np.asarray(found, dtype=np.float64))

        without = value(np.zeros(count, dtype=np.bool_))
        differences = np.stack([value(np.arange(count) == i) - without for i in range(count)])
        differences = np.nan_to_num(differences, posinf=0.0, neginf=0.0)
        residual = np.ravel(raw) - without - differences.sum(axis=0) / 2
        # a value that is not finite, or as large, gives scores of 0: it costs power alone
        usable = np.isfinite(residual) & (np.abs(differences).max(axis=0) < 1e100)
        scaled = differences[:, usable] / (deviation or 1.0)
        np.add(self.products, scaled @ residual[usable] / (deviation or 1.0), out=self.products)
        np.add(self.gram, scaled @ scaled.T, out=self.gram)


def _has_additive_noise(node: Node, source: Source) -> bool:
    """Whether a node releases numbers of a data set with noise of a known deviation, once."""
    operation = node.handle.operation
    if not isinstance(operation, Release) or node.loops:
        return False
    query = unaliased(node.handle.inputs[0])
    kind = operation.mechanism
    is_additive = kind.input_type is np.ndarray and not kind.is_selection and kind.deviation()
    # a gradient_stream alone: of networks, the parameters follow by an optimizer
    is_whole = isinstance(query.operation, GradientStream) and not (kind.begins or kind.continues)
    known = bool(is_additive) or is_whole
    return known and source in [each.operation for each in lineage(query)]


@frozen(eq=False)
class PrivateValues:
    """Private values of a plan on given rows, with samples that contain every row.

    The canaries' scores need these at the run's released parameters, whatever its random bits are.

    Parameters
    ----------
    structure
        The plan's.
    rows
        What the private data set reads.
    computed
        Values that depend on no release, by node name.
    """

    structure: Structure
    rows: Any
    computed: dict[str, Any] = field(factory=dict)

    def value(self, handle: Handle, run: Run) -> Any:
        """Return a private value, at the values that the run has released so far."""
        handle, node = unaliased(handle), self.structure.of(handle)
        # what is released is taken from the run itself: the scores are at its parameters
        if handle.visibility != "private":
            return run.public_values[node.name]
        operation = handle.operation
        if isinstance(operation, SourceOperation):
            # the given rows take the place of the data set, whichever rows the run itself reads
            return self.rows
        if node.name in self.computed:
            return self.computed[node.name]
        inputs = [self.value(each, run) for each in handle.inputs]
        # every row is in, whatever the run has sampled: scores must not depend on it
        if isinstance(operation, SampleOperation):
            return inputs[0]
        if operation.random:
            raise DeclarationError(
                f"{node.name!r} treats units at random, so that canaries have no gradients of "
                "their own; give a score, a function of what the run shows"
            )
        value = run_guarded(node.name, lambda: operation.run(inputs, SeededStream(0)))
        # only what no release and no round changes can be stored
        if not node.loops and all(each.visibility == "private" for each in handle.inputs):
            self.computed[node.name] = value
        return value


def gradient_products(gradients: Any, bound: float, direction: Array, *, relative: bool) -> Array:
    """Return the inner product of each row's clipped gradient and a direction, shape (n,).

    Parameters
    ----------
    gradients
        `LinearGradients` or `LayerGradients`, or others that have a method ``products``, as those
        of a network of PyTorch.
    bound
        The norm to which gradients are clipped.
    direction
        Shape (d,).
    relative
        Whether gradients are then divided by the bound.
    """
    if hasattr(gradients, "products"):
        return np.asarray(gradients.products(bound, direction)) * (1.0 if relative else bound)
    product: Callable[..., Array] = (
        _linear_products if isinstance(gradients, LinearGradients) else _layered_products
    )
    with np.errstate(all="ignore"):
        # a gradient that is not finite gives the score 0: it costs power alone
        return np.nan_to_num(product(gradients, bound, direction, 1.0 if relative else bound))


def _linear_products(
    gradients: LinearGradients, bound: float, direction: Array, scale_bound: float
) -> Array:
    direction_steps = direction.reshape(gradients.parameters.shape) * gradients.examples.unit
    products = []
    for where, block in gradients.examples.in_memory().blocks():
        slopes, lengths = gradients.slopes(where, block)
        # clipping: rows longer than the bound are scaled down to it
        scale = (scale_bound / bound) * np.where(lengths > bound, bound / lengths, 1.0)
        products.append(((direction_steps @ block.T) * slopes).sum(axis=0) * scale)
    return np.concatenate(products) if products else np.zeros(0)


def _layered_products(
    gradients: LayerGradients, bound: float, direction: Array, scale_bound: float
) -> Array:
    first, second = gradients.network.layers(direction, gradients.examples.width)
    natural, products = gradients.hidden_unit * scale_bound / bound, []
    for block, layer_pass in gradients.passes():
        weights = np.minimum(
            np.ldexp(natural, layer_pass.exponents),
            scale_bound / np.maximum(layer_pass.lengths, 1e-30),
        )
        first_layer = ((first @ block.T) * layer_pass.back).sum(axis=0) * gradients.ratio
        products.append(
            weights * (first_layer + ((second @ layer_pass.hidden) * layer_pass.slopes).sum(axis=0))
        )
    return np.concatenate(products) if products else np.zeros(0)


def _is_clipped_sum(node: Node, source: Source) -> bool:
    handle = node.handle
    if not isinstance(handle.operation, Release):
        return False
    query = handle.inputs[0]
    if not isinstance(query.operation, ClippedSum):
        return False
    return source in [each.operation for each in lineage(query)]


def _sampling_rate(handle: Handle) -> float:
    """Return the probability that a unit is in the samples that gradients are computed from."""
    # independent samples of samples: the rates multiply
    rates = [h.operation.rate for h in lineage(handle) if isinstance(h.operation, SampleOperation)]
    return float(np.prod(rates))


# -----------------------------------------------------------------------------
# The protocol: random bits, one run of the plan as it is declared, scores of what it released.
#
# Each canary is a unit of one row, in or out by a fair random bit of its own. By the theorem of
# `adaptive_dp.audit.canaries` (Steinke, Nasr and Jagielski 2023) the claim must hold where one bit
# changes and nothing else does: where a unit is added or removed (``add_remove``), or zeroed out
# while the public number of units stays (``zero_out``). That is what the plan's certificate bounds
# of one unit. Under ``replace_one`` no unit is added or removed, and a certificate does not cover
# it: such plans are refused.
#
# Nothing outside the plan depends on how many canaries are in: a learner that divides by the number
# of rows has released it, with noise that its certificate counts. Whether an included canary is in
# a sampled round is decided by the plan's own sampling. Other data are the same whichever canaries
# are in, so a score may use them.


RUN_STREAM = 1
"""The stream of the run's seed; the bits have another, so that the run is independent of them."""


@frozen
class Seen:
    """All that one run releases.

    Parameters
    ----------
    released
        The outputs by name, as a run returns them.
    transcript
        Every release in order, those of each round of a loop by themselves, and other outputs.

    Examples
    --------
    >>> Seen(released={"n": 12.0}, transcript=(12.0,)).released["n"]
    12.0
    """

    released: Mapping[str, Any]
    transcript: tuple[Any, ...] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return an output."""
        return self.released[name]


Score = Callable[[Seen], ArrayLike]
"""``score(seen)``: a number for each canary, larger where it seems to be included."""


@frozen(eq=False, repr=False)
class Planted:
    """Data with the included canaries, each a unit of its own, after the other rows.

    Parameters
    ----------
    data
        The other rows, as a data set reads them; None for none.
    canaries
        A mapping of columns, a structured array or a frame, one row for each canary.
    included
        Which of them are in, shape (m,).
    size
        The public number of units, which counts excluded canaries too; None where it is private.
    """

    data: Any
    canaries: Any
    included: NDArray[np.bool_]
    size: int | None = None

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        # read with no column as that of units, so that each canary is a unit of its own
        added = read_rows(_with_unit_ids(self.canaries, columns, unit), columns, None).take(
            self.included
        )
        if self.data is None:
            joined, units = added.columns, np.arange(len(added.units), dtype=np.int64)
        else:
            rows = read_rows(self.data, columns, unit)
            # unit numbers that no other row has
            first_unit = int(rows.units.max(initial=-1)) + 1
            units = np.concatenate([rows.units, first_unit + np.arange(len(added.units))])
            joined = {
                name: _concatenate(rows.columns[name], added.columns[name])
                for name in added.columns
            }
        if self.size is None:
            return MemoryRows(joined, units)
        excluded = int(np.count_nonzero(~self.included))
        # excluded canaries count too: the public number does not show how many are in
        return FixedSizeRows(joined, units, len(np.unique(units)) + excluded)


def _with_unit_ids(canaries: Any, columns: Mapping[str, Reading], unit: str | None) -> Any:
    """Return canaries with a unit column where one is declared and they have none."""
    readings = {name: reading for name, reading in columns.items() if name != unit}
    if len(readings) == len(columns) or isinstance(canaries, str | os.PathLike):
        return canaries
    if unit in columns_of(canaries, [str(unit)]):
        return canaries
    count = len(read_rows(canaries, readings, None).units)
    names = [f"canary {i}" for i in range(count)]
    return {**columns_of(canaries, list(readings)), str(unit): names}


def _concatenate(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return two columns as one; of different types as objects, so that no cell is converted."""
    # a common type would turn numbers into str, and other cells would be read
    if first.dtype.kind != second.dtype.kind:
        first, second = (cells.objects(each.tolist()) for each in (first, second))
    return np.concatenate([first, second])


def planted(
    plan: Pipeline,
    canaries: Any,
    score: Score | None = None,
    *,
    data: Mapping[str, Any] | None = None,
    into: str | None = None,
    confidence: float = 0.999,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a plan, such as a learner's, by one run with canaries among its rows.

    Parameters
    ----------
    plan
        Without free parameters, at a delta at which its epsilon is finite. What is claimed is its
        certificate.
    canaries
        m rows of the data set, a mapping of columns or a frame: see `corners` and `mislabeled`.
        Each becomes a unit of its own; a unit's column is not needed.
    score
        A function of all that the run releases that returns a number for each canary, shape (m,),
        larger where it seems to be in; it may know all rows, and must not know which canaries are
        in. By default the gradient scores: inner products of each canary's clipped gradients and
        the plan's released sums of gradients, less what the other rows and half of the canaries
        would contribute, added over rounds. Of a plan without such sums, the difference scores: of
        values with additive noise, by what each canary alone changes in them, which computes them
        once for each canary.
    data
        The other data that the plan reads, by the data sets' names. The result is then as private
        as the data are. The canaries' data set may be left out: it then holds canaries alone.
    into
        The name of the data set that gets the canaries, where the plan reads several.
    confidence
        Of the lower bound on epsilon.
    seed
        For a reproducible audit; by default bits and noise are the operating system's.
    progress
        Called as ``progress(done, total, seconds)``: releases of the run, in all rounds, and the
        values that difference scores compute; how many there will be; and about the seconds left.

    Returns
    -------
    Audit
        As `one_run` returns it: the verdict rests on its theorem alone.

    Raises
    ------
    DeclarationError
        If neighbours exchange units (replace_one), no epsilon is certified, a parameter is free, or
        there is no default score.
    DataError
        If data do not fit their declaration.
    DomainError
        If there are fewer than 10 canaries, or scores have another shape.
    RunError
        If the run fails.

    References
    ----------
    Steinke, Nasr and Jagielski 2023, the main theorem.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (-1, 1), "y": ["no", "yes"]})
    >>> learner = dp.NoisySGD(features=["x"], target="y", steps=5, sampling_rate=1.0)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> canaries = dp.audit.corners(people, 50, seed=0)
    >>> dp.audit.planted(plan, canaries, seed=0).verdict != "violation"
    True
    """
    allowed_error(confidence)
    seed = check_seed(seed)
    if not isinstance(plan, Pipeline):
        raise DeclarationError(f"planted audits a Pipeline, got {type(plan).__name__}")
    if data is not None and not isinstance(data, Mapping):
        raise DeclarationError(
            f"data must be a mapping from data sets' names to data, got {type(data).__name__}"
        )
    if score is not None and not callable(score):
        raise DeclarationError(
            f"score must be a function of what the run shows, got {type(score).__name__}"
        )
    source = _canary_source(plan, into)
    if plan.free:
        raise DeclarationError(
            f"parameters are still free: {', '.join(sorted(plan.free))}; calibrate the plan first"
        )
    certificate = plan.certify()
    if not math.isfinite(certificate.epsilon):
        raise DeclarationError(
            f"no epsilon is certified at delta = {plan.delta:g}, so there is nothing to audit; "
            "choose a delta with plan.with_delta(1e-6)"
        )
    fixed_data = dict(data or {})
    # the rows that get canaries among them; other data sets are the same whichever are in
    others = fixed_data.pop(source.name, None)
    m = _count_canaries(canaries, source)
    _check_size(source, others, m)

    def train(included: NDArray[np.bool_]) -> ArrayLike:
        def bind_canaries(other_rows: Any, present: NDArray[np.bool_]) -> dict[str, Any]:
            return {**fixed_data, source.name: Planted(other_rows, canaries, present, source.size)}

        transcripts = Transcripts.of(plan, bind_canaries(others, included))
        # a stream apart from that of the bits
        (run_seed,) = run_seeds(stream(seed, RUN_STREAM), 1)
        run = RecordedRun(plan.structure, run_seed, frozenset(transcripts.shown), {})
        default_scores: GradientScores | DifferenceScores | None = None
        if score is None:
            none, every = np.zeros(m, dtype=np.bool_), np.ones(m, dtype=np.bool_)
            # gradients are needed of parts of the declared units, whose number need not fit
            unsized = evolve(source, size=None)
            if any(_is_clipped_sum(n, source) for n in plan.structure):
                default_scores = GradientScores.of(
                    plan.structure,
                    transcripts.shown,
                    source,
                    unsized.bind(Planted(others, canaries, none)),
                    unsized.bind(Planted(None, canaries, every)),
                )
            else:
                default_scores = DifferenceScores.of(
                    plan.structure,
                    transcripts.shown,
                    source,
                    lambda among: unsized.bind(Planted(others, canaries, among)),
                    m,
                )
        counter = Counter(progress)
        watchers = [each for each in (default_scores,) if each is not None]
        counter.begin(_releases(plan.structure, transcripts.shown, default_scores))

        def released(node: Node, seen: Run) -> None:
            for watcher in watchers:
                watcher(node, seen)
            counter.add(1)

        if isinstance(default_scores, DifferenceScores):
            default_scores.counted.append(counter.add)
        run.watch_releases(released)
        # values that do not depend on noise are computed once and copied into the run
        transcripts.begin(run)
        # one run, as the plan is declared: the bits decide nothing but which canaries are bound
        run.all()
        # scores are functions of releases, the other rows and all canaries, never of the bits
        if default_scores is not None:
            return default_scores.scores
        assert score is not None
        return score(Seen(released_values(plan, run), tuple(run.transcript)))

    result = one_run(train, m, certificate, confidence=confidence, seed=seed)
    notes = [f"a canary is a unit of {source.name!r} with one row ({source.neighbors})"]
    if data:
        notes.append("made with given data: this audit is as private as they are")
    return evolve(result, notes=(*result.notes, *notes))


def _releases(structure: Structure, shown: Collection[str], scores: Any) -> int:
    """Return how many releases a run has in all rounds, and values that scores compute of them."""
    total = 0
    for name in shown:
        node = structure.nodes[name]
        if isinstance(node.handle.operation, Release):
            loops = [structure.nodes[each].handle.operation for each in node.loops]
            total += math.prod(each.rounds() for each in loops if isinstance(each, Loop))
            if isinstance(scores, DifferenceScores) and name in scores.noisy:
                total += len(scores.products) + 1  # without any canary, and with each alone
    return total


def _count_canaries(canaries: Any, source: Source) -> int:
    """Return the number of canaries."""
    columns = {name: each for name, each in source.columns.items() if name != source.unit}
    # without the unit's column and the declared size: it is rows that are counted
    return evolve(source, unit=None, size=None, columns=columns).bind(canaries).size()


def _canary_source(plan: Pipeline, into: str | None) -> Source:
    """Return the data set that gets the canaries; refuse replace_one."""
    operations = [node.handle.operation for node in plan.structure]
    sources = {each.name: each for each in operations if isinstance(each, Source)}
    # the only data set, or the named one; compared, since `into` may be unhashable
    chosen = [each for name, each in sources.items() if into in (None, name)]
    if len(chosen) != 1:
        raise DeclarationError(
            f"into must name one of the plan's data sets of rows, {sorted(sources)}, got {into!r}"
        )
    (source,) = chosen
    if source.neighbors == "replace_one":
        raise DeclarationError(
            f"{source.name!r} has replace_one neighbours, of which a certificate promises nothing "
            "where a canary comes or goes; declare neighbors='add_remove' or 'zero_out'"
        )
    return source


def _check_size(source: Source, others: Any, canaries: int) -> None:
    if source.size is None:
        return
    rows = None if others is None else evolve(source, size=None).bind(others)
    units = canaries if rows is None else rows.size() + canaries
    # with the excluded canaries: they count among the declared units
    if units != source.size:
        raise DataError(
            f"{source.name!r} declares {source.size} units, but those of the data and the "
            "canaries, excluded ones too, are another number"
        )
