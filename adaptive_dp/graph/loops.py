"""Subgraphs that run several times, or one of several: repeats, private selections, cases."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, TypeVarTuple

import attrs
from attrs import field, frozen

from accountants import Repeated, Selected, Term
from accountants.terms import expected_runs, stopping_rate, stopping_shape
from adaptive_dp.graph.errors import DeclarationError, LeakError, RunError
from adaptive_dp.graph.handles import Handle, Private, Released, post, private_path, public
from adaptive_dp.graph.operation import Operation, Query, Visibility
from adaptive_dp.graph.values import as_int, deep_copy, number
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# Traversal of a graph: up from its outputs, in topological order, by a fold, and rewriting it.
#
# All of it is iterative, since a sequence of steps may be longer than Python's stack is deep, and
# linear in the number of edges. What is traversed may be handles, nodes or their names: anything
# hashable, with a function that returns what each reads.


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def inputs(handle: Handle) -> tuple[Handle, ...]:
    """Return what a handle reads; a loop's body stays closed."""
    return handle.inputs


def inputs_and_bodies(handle: Handle) -> tuple[Handle, ...]:
    """Return what a handle reads, and of a loop its state and its body's result."""
    body = handle.operation.body()
    return (*handle.inputs, *body) if body else handle.inputs


def upward(roots: Iterable[K], before: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yield roots and all that they are computed from, each once, readers first (preorder)."""
    seen: set[K] = set()  # without it, paths that meet again would take exponential time
    # reversed, so that the first root is taken from the stack first
    stack = list(roots)[::-1]
    while stack:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield each
            stack.extend(reversed(tuple(before(each))))


def nearest(
    roots: Mapping[K, R], before: Callable[[K], Iterable[K]], merge: Callable[[R, R], R]
) -> dict[K, R]:
    """Return the value of the nearest root, for each thing that a root is computed from.

    Parameters
    ----------
    roots
        With their values; what is itself a root has its own.
    before
        What each thing reads.
    merge
        Returns the value where several are equally near.
    """
    values = dict(roots)
    steps = dict.fromkeys(roots, 0)
    queue = deque(roots)
    while queue:  # breadth first: all that is as near as this is merged before it is its turn
        each = queue.popleft()
        # equally near roots are merged; a farther one is ignored
        for other in before(each):
            if other not in values:
                values[other], steps[other] = values[each], steps[each] + 1
                queue.append(other)
            elif steps[other] == steps[each] + 1:
                # reached on a path of the same length
                values[other] = merge(values[other], values[each])
    return values


def ordered(roots: Iterable[K], before: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yield all that roots are computed from and roots themselves, each after what it reads.

    The order follows from the graph alone: that of the roots, and of each one's inputs (postorder).
    """
    entered: set[K] = set()
    done: set[K] = set()
    stack = list(roots)[::-1]
    while stack:
        each = stack[-1]
        if each not in entered:
            # it stays on the stack under what it reads, until all of that is done
            entered.add(each)
            stack.extend(reversed(tuple(before(each))))
            continue
        stack.pop()
        if each not in done:
            done.add(each)
            yield each


def folded(
    roots: Iterable[K], before: Callable[[K], Sequence[K]], make: Callable[[K, list[R]], R]
) -> dict[K, R]:
    """Return what ``make(each, values of what it reads)`` gives for roots and all above them."""
    values: dict[K, R] = {}
    for each in ordered(roots, before):
        values[each] = make(each, [values[other] for other in before(each)])
    return values


def ancestors(*roots: Handle, bodies: bool = False) -> Iterator[Handle]:
    """Yield handles and all that they are computed from; with ``bodies`` what loops do, too."""
    return upward(roots, inputs_and_bodies if bodies else inputs)


def rebuilt(handle: Handle, inputs: Sequence[Handle], operation: Operation | None = None) -> Handle:
    """Return the handle with other inputs, or another operation; itself where nothing changes."""
    operation = handle.operation if operation is None else operation
    same = operation is handle.operation and len(inputs) == len(handle.inputs)
    if same and all(a is b for a, b in zip(inputs, handle.inputs, strict=True)):
        return handle
    return attrs.evolve(handle, inputs=tuple(inputs), operation=operation)


def rewritten(
    roots: Collection[Handle],
    change: Callable[[Handle], Operation] = lambda handle: handle.operation,
    *,
    replacements: Mapping[Handle, Handle] | None = None,
    copied: Collection[Handle] = (),
) -> dict[Handle, Handle]:
    """Return for roots, and all above them, the handle that replaces each.

    A handle above which nothing changes, and that does not change itself, is replaced by itself.

    A loop whose body changes has a state of its own, so that it and what it was before are two
    loops, in one plan too.

    Parameters
    ----------
    roots
        The ends of the graph. Loops' bodies are rewritten, too.
    change
        Returns each handle's operation, the same object where it stays. It must not change the
        state and the result of a loop.
    replacements
        Handles with those that replace them; what is above the former is left out.
    copied
        Handles that are copied, even where nothing above them changes: equal nodes, not the same.
    """
    replacements = replacements or {}
    operations: dict[Handle, Operation] = {}

    def before(handle: Handle) -> tuple[Handle, ...]:
        return () if handle in replacements else inputs_and_bodies(handle)

    def changes(handle: Handle, above: list[bool]) -> bool:
        if handle in replacements:
            return replacements[handle] is not handle
        operations[handle] = change(handle)
        # anything above has changed, or the operation itself
        return any(above) or operations[handle] is not handle.operation or handle in copied

    # first pass: what changes at all; the second makes new handles only for that
    changed = folded(roots, before, changes)
    # states of loops that change: a loop's new body needs a state of its own
    renewed: set[Handle] = set()
    for handle in changed:
        if handle not in replacements and (body := handle.operation.body()):
            state, result = body
            if changed[result] or handle in copied:
                renewed.add(state)

    def rewrite(handle: Handle, above: list[Handle]) -> Handle:
        if handle in replacements:
            return replacements[handle]
        if handle in renewed:
            return attrs.evolve(handle)
        operation = operations[handle]
        if operation.body():
            *above, state, result = above
            if (state, result) != operation.body():
                loop: Any = operation
                operation = attrs.evolve(loop, state=state, result=result)
        new = rebuilt(handle, above, operation)
        # an equal handle, but another node, with noise of its own
        return attrs.evolve(handle) if new is handle and handle in copied else new

    return folded(roots, before, rewrite)


# -----------------------------------------------------------------------------
# Loops: what repeats and selections have in common, and which handles are inside.
#
# A handle is inside of a loop exactly if it depends on the loop's state, through its inputs; an
# inner loop through its start and through what its body reads. So scope follows from the graph
# alone: when a handle was made does not matter. A release that each round draws again without
# reading the state is made from the body's own handles (`in_each_round`), which depend on it.


H = TypeVar("H", bound=Handle)


@frozen(eq=False)
class State(Operation):
    """What the body reads in each round: a repeat's round before, a selection's candidate."""

    kind: ClassVar[str] = "state"
    visibility: ClassVar[Visibility] = "released"

    def states(self, handle: Handle) -> frozenset[Handle]:
        """Return the state itself."""
        return frozenset((handle,))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds the state in each round."""
        raise DeclarationError("the state of a loop exists only inside of its body")


@frozen
class RoundInput(Operation):
    """A private value as a loop's body reads it: its first input, unchanged.

    The second input is the loop's state, on which all depends that is computed from it. It is an
    alias, no node: digests, costs, drawings and documents know its first input alone.
    """

    kind: ClassVar[str] = "round input"
    column_fields: ClassVar[tuple[str, ...]] = ()
    alias: ClassVar[bool] = True
    is_rowwise: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 1

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the domain of the value."""
        return inputs[0]

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the value."""
        return inputs[0]


@frozen(eq=False)
class Loop(Operation):
    """Rounds of a body; the outer graph stays acyclic.

    Parameters
    ----------
    state
        The handle that changes from round to round, in the body. Handles that depend on it are
        inside the body and run (and are paid for) in each round.
    result
        What a round returns.
    """

    visibility: ClassVar[Visibility] = "released"
    random: ClassVar[bool] = True

    state: Handle = field(kw_only=True)
    result: Handle = field(kw_only=True)

    def states(self, handle: Handle) -> frozenset[Handle]:
        """Return the states of other loops on which the loop depends.

        The body's are among them: one that no loop around binds shows that a handle was read from
        outside of its body, which a plan refuses.
        """
        # the own state is bound inside; those of the loops around remain
        return super().states(handle) | (self.result.states - {self.state})

    def body(self) -> tuple[Handle, Handle]:
        """Return the state and the result."""
        return self.state, self.result

    def parameters(self) -> dict[str, Any]:
        """Return the operation's own parameters; the body is written on its own."""
        parameters = super().parameters()
        return {name: v for name, v in parameters.items() if name not in ("state", "result")}

    def rounds(self) -> int:
        """Return how many rounds there are, or may be expected."""
        raise NotImplementedError(f"{type(self).__name__} must define rounds")

    def term(self, body: Term) -> Term:
        """Return what the rounds cost, from what one costs."""
        raise NotImplementedError(f"{type(self).__name__} must define term")


def in_each_round(handle: H, state: Handle) -> H:
    """Return a private handle as the body of a loop reads it, which depends on the loop's state.

    Of a query it is the query's input, so that the query can be released.
    """
    if isinstance(handle.operation, Query):
        # the query reads the body's own handle of its table, so it is computed in each round
        private, *released = handle.inputs
        return attrs.evolve(handle, inputs=(in_each_round(private, state), *released))
    return attrs.evolve(handle, operation=RoundInput(), inputs=(handle, state))


def own_handles(kind: str, handles: Sequence[Any], state: Handle) -> list[Any]:
    """Return the body's own handles of those that a loop was given.

    Raises
    ------
    DeclarationError
        If one of them is not private.
    """
    for each in handles:
        if not isinstance(each, Handle) or each.visibility != "private":
            raise DeclarationError(
                f"{kind}: the body's own handles are of private tables, columns or queries, got "
                f"{each!r}; released values and constants can be read as they are"
            )
    return [in_each_round(each, state) for each in handles]


def refuse_shared_draws(kind: str, state: Handle, result: Handle) -> None:
    """Refuse a body that makes a release or a sample which is not inside of the loop.

    It would be drawn once and shared by all rounds, where its writer expects fresh noise in each.
    Only this check uses when a handle was made; scope does not depend on it.

    Raises
    ------
    DeclarationError
        With the handle.
    """

    def before(handle: Handle) -> tuple[Handle, ...]:
        # serials grow: what is older than the state was made outside of the body
        made = state in handle.states or handle.serial > state.serial
        return handle.inputs if made else ()  # above what is older all is older

    for handle in upward([result], before):
        outside = state not in handle.states
        # random and made in the body, but outside of the loop: it would be drawn once
        if outside and handle.operation.random and handle.serial > state.serial:
            raise DeclarationError(
                f"{kind}: the body makes {handle!r}, which depends on nothing that changes from "
                "round to round, so that all rounds would share it. For a fresh one in each, give "
                f"{kind} the table and make it from the body's own handle of it: "
                "dp.repeat(lambda state, people: ..., times, people, start=...); to share it, make "
                "it outside of the body"
            )


def frontier(operation: Loop) -> tuple[Handle, ...]:
    """Return the handles from outside that the body reads, in the order in which it reads them."""
    state = operation.state
    # nothing above a handle from outside is visited: such a handle does not depend on the state
    reached = upward([operation.result], lambda h: h.inputs if state in h.states else ())
    return tuple(handle for handle in reached if state not in handle.states)


# -----------------------------------------------------------------------------
# Repeats: a subgraph that runs several times, each with the released result of the time before.


T = TypeVar("T")
Own = TypeVarTuple("Own")


@frozen(eq=False)
class Repeat(Loop):
    """``times`` rounds of a body, each with the result of the round before.

    Parameters
    ----------
    times
        An int of at least 1.
    """

    kind: ClassVar[str] = "repeat"

    times: int = field(converter=number)

    @times.validator
    def _check_times(self, _: object, times: int) -> None:
        if not (as_int(times) is not None and 1 <= times <= 10**9):
            raise DeclarationError(
                f"repeat's times must be an int between 1 and 10^9, got {times!r}"
            )

    def label(self) -> str:
        """Return the number of rounds."""
        return f"repeat {self.times} times"

    def rounds(self) -> int:
        """Return the number of rounds."""
        return self.times

    def term(self, body: Term) -> Term:
        """Return the body's term, `times` times."""
        return Repeated(body, self.times)


def repeat(
    body: Callable[[Released[T], *Own], Released[T]],
    times: int,
    *tables: *Own,
    start: Released[T] | Any,
) -> Released[T]:
    """Return the result of ``times`` rounds of ``body``.

    Parameters
    ----------
    body
        Takes the handle of the round before, and the body's own handle of each of ``tables``, and
        returns this round's. It is called once, to learn the subgraph. What depends on its
        arguments is fresh in every round; all else is shared by all rounds.
    times
        How many rounds.
    tables
        Private tables, columns or queries: releases and samples that the body makes of its own
        handles of them are fresh in every round, whether or not they read the round before.
    start
        What the first round reads: a released handle, or a constant.

    Raises
    ------
    LeakError
        If the start, or what the body returns, is private.
    DeclarationError
        If the body makes a release or a sample that depends on none of its arguments: all rounds
        would share it. Make it from the body's own table, or outside of the body.

    Examples
    --------
    A noisy binary search for a median, with eight noisy counts:

    >>> import adaptive_dp as dp
    >>> def middle(bounds):
    ...     return sum(bounds) / 2
    >>> def narrow(bounds, below, total):
    ...     low, high = bounds
    ...     return [middle(bounds), high] if below < total / 2 else [low, middle(bounds)]
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> total = people.count().release(dp.Laplace(scale=4))
    >>> def halve(bounds):
    ...     below = people.filter(people["age"] <= dp.post(middle, bounds)).count()
    ...     return dp.post(narrow, bounds, below.release(dp.Laplace(scale=4)), total)
    >>> plan = dp.Pipeline(median=dp.repeat(halve, 8, start=[0.0, 100.0]))
    >>> plan.certify()
    <certificate epsilon=2.25 delta=0 by basic>
    >>> plan.simulate(seed=1, people={"age": [20] * 400 + [42] * 300 + [70] * 400})["median"]
    [41.796875, 42.1875]

    Five noisy counts, each with noise of its own:

    >>> def append(counts, count):
    ...     return [*counts, count]
    >>> def again(counts, people):
    ...     return dp.post(append, counts, people.count().release(dp.Laplace(scale=4)))
    >>> counts = dp.repeat(again, 5, people, start=[])
    >>> dp.Pipeline(counts=counts).certify()
    <certificate epsilon=1.25 delta=0 by basic>
    """
    if not callable(body):
        raise DeclarationError(
            f"repeat needs a function of the round before, such as lambda state: ..., got {body!r}"
        )
    initial = start if isinstance(start, Handle) else public(start)
    if initial.visibility == "private":
        raise LeakError(f"repeat: the start is private: {private_path(initial)}; release it first")
    state: Released[T] = Released(State())
    Repeat(times, state=state, result=state)  # refuses times before the body is built
    result = body(state, *own_handles("repeat", tables, state))
    if not isinstance(result, Handle):
        raise DeclarationError(
            f"repeat: the body must return a released handle, got {type(result).__name__}"
        )
    if result.visibility == "private":
        raise LeakError(
            f"repeat: the body returns a private value: {private_path(result)}; release it first"
        )
    refuse_shared_draws("repeat", state, result)
    operation = Repeat(times, state=state, result=result)
    return Released(operation, (initial, *frontier(operation)))


# -----------------------------------------------------------------------------
# The result of one run of a selection; documents name the function ``select.scored/1``.


def scored(value: Any, score: Any) -> dict[str, Any]:
    """Return a run's value with its score."""
    return {"value": value, "score": score}


# -----------------------------------------------------------------------------
# Private selection: the best of a random number of runs of a subgraph.


def _shape(value: Any) -> float:
    return _checked(stopping_shape, value)


def _stopping(value: Any) -> float:
    return _checked(stopping_rate, value)


def _checked(check: Callable[[Any], float], value: Any) -> float:
    try:
        return check(value)
    except ValueError as error:
        raise DeclarationError(str(error)) from None


@frozen(eq=False)
class Select(Loop):
    """K rounds of a body, each with a candidate drawn at random; the best round is released.

    K is truncated negative binomial (`accountants.terms`), drawn from probabilities of 60 digits
    and 192 random bits: its law is off by less than 1e-50 in total variation.

    Parameters
    ----------
    shape, stopping
        eta and gamma of the law of K.
    """

    kind: ClassVar[str] = "select"

    shape: float = field(converter=_shape)
    stopping: float = field(converter=_stopping)

    def label(self) -> str:
        """Return the expected number of runs."""
        return f"best of about {expected_runs(self.shape, self.stopping):.4g} runs"

    def rounds(self) -> int:
        """Return the expected number of runs."""
        # rounded up, except where rounding alone has lifted it above an integer
        return math.ceil(expected_runs(self.shape, self.stopping) * (1 - 1e-9))

    def term(self, body: Term) -> Term:
        """Return the term of the best of a random number of runs of the body."""
        return Selected(body, self.shape, self.stopping)

    def draw(self, stream: Stream) -> int:
        """Return K, by inversion: ``p_{k+1} = p_k (1 - gamma) (k + eta) / (k + 1)``."""
        high, middle, low = stream.words(3).tolist()
        # 60 digits: more than the 192 bits (58 digits) of the uniform draw
        with localcontext(Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            # the middle of one of 2^192 equal intervals: never 0, never 1
            remaining = (Decimal(high << 128 | middle << 64 | low) + Decimal("0.5")) / 2**192
            eta, gamma = Decimal(self.shape), Decimal(self.stopping)
            chance = _probability_of_one(eta, gamma)
            count = 1
            while remaining > chance:  # inversion: count the atoms below the uniform draw
                remaining -= chance
                chance *= (1 - gamma) * (count + eta) / (count + 1)
                count += 1
        return count

    def candidate(self, candidates: Sequence[Any], stream: Stream) -> Any:
        """Return one of the candidates, each as likely (to 2^-57 for fewer than 100)."""
        if not isinstance(candidates, Sequence) or isinstance(candidates, str) or not candidates:
            raise RunError(
                "a selection needs a list of at least one candidate, got a "
                f"{type(candidates).__name__}; nothing was released"
            )
        (word,) = stream.words(1).tolist()
        # the high word of word * n: each index has 2^64 / n words, up to one
        return deep_copy(candidates[word * len(candidates) >> 64])

    def better(self, best: Any, candidate: Any, released: dict[str, Any]) -> dict[str, Any]:
        """Return the better of two rounds; of equal ones the first, as good as a random one.

        Rounds are independent and identically distributed, so which of equal ones is first is
        random.
        """
        if not isinstance(released, dict) or not {"score", "value"} <= set(released):
            raise RunError(
                "a selection's body must return a mapping with 'value' and 'score', as dp.select "
                "writes it; nothing was released"
            )
        score = _score_of(released["score"])
        run = {"candidate": candidate, "score": score, "value": released["value"]}
        # strictly greater: of equal scores the first stays
        return run if best is None or score > best["score"] else best


@lru_cache(maxsize=64)  # every draw begins with it, at the same precision
def _probability_of_one(eta: Decimal, gamma: Decimal) -> Decimal:
    """Return P(K = 1), with extra digits for those that ``e^x - 1`` cancels near x = 0."""
    if eta == 0:
        return (1 - gamma) / -gamma.ln()
    with localcontext() as context:
        x = -eta * gamma.ln()
        # as many digits more as the subtraction of 1 cancels
        context.prec += max(0, -x.adjusted())
        grown = (-eta * gamma.ln()).exp() - 1
    # P(K = 1) = eta (1 - gamma) / (gamma^-eta - 1); the case eta = 0 is its limit
    return (1 - gamma) * eta / grown


def _score_of(score: Any) -> float:
    """Return a released score as a float; -infinity, the worst, for what is not a number."""
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        return -math.inf
    return -math.inf if math.isnan(number) else number


def select(
    body: Callable[[Released[Any], *Own], tuple[Released[T], Released[float]]],
    candidates: Sequence[Any],
    *tables: *Own,
    stopping: float,
    shape: float = 1.0,
) -> Released[dict[str, Any]]:
    """Return the best run of ``body`` over candidates drawn at random: tuning, paid for.

    It costs about three times one run for pure epsilon (``2 + shape`` times), and much less in
    Renyi terms, however many the candidates are (Liu and Talwar 2019, Thm 3.2; Papernot and
    Steinke 2022, Thm 2). How often it runs must stay unseen: hide its running time.

    Parameters
    ----------
    body
        Takes the handle of a candidate, and the body's own handle of each of ``tables``, and
        returns two released handles: the value and its score, larger is better. It is called once,
        to learn the subgraph. What depends on its arguments is fresh in every run; all else is
        shared by all runs.
    candidates
        Public values: numbers, str, lists or mappings.
    tables
        Private tables, columns or queries: releases and samples that the body makes of its own
        handles of them are fresh in every run, whether or not they read the candidate.
    stopping
        gamma, in (0, 1): with shape 1 the chance to stop after each run, 1/gamma runs on average.
    shape
        eta: 1 is geometric, 0 logarithmic.

    Raises
    ------
    LeakError
        If the value or the score is private.
    DeclarationError
        If the body makes a release or a sample that depends on none of its arguments, as
        `adaptive_dp.graph.loops.repeat` does.

    Returns
    -------
    Released
        A mapping of the best run's ``candidate``, ``score`` and ``value``.

    Examples
    --------
    The age under which most nearly 500 people are, of three:

    >>> import adaptive_dp as dp
    >>> def closeness(count, *, goal):
    ...     return -abs(count - goal)
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> def tried(limit):
    ...     near = people.filter(people["age"] <= limit).count().release(dp.Laplace(scale=20))
    ...     return near, dp.post(closeness, near, goal=500)
    >>> plan = dp.Pipeline(best=dp.select(tried, [30, 40, 50], stopping=0.1))
    >>> plan.certify()
    <certificate epsilon=0.150001 delta=0 by basic>
    >>> best = plan.simulate(seed=1, people={"age": [25] * 100 + [35] * 400 + [45] * 500})["best"]
    >>> sorted(best), best["candidate"] in [30, 40, 50]
    (['candidate', 'score', 'value'], True)
    """
    if not callable(body):
        raise DeclarationError(f"select needs a function of a candidate, got {body!r}")
    if not (
        isinstance(candidates, Sequence) and not isinstance(candidates, str) and bool(candidates)
    ):
        raise DeclarationError(f"select needs a list of at least one candidate, got {candidates!r}")
    start = public(list(candidates))
    state: Released[Any] = Released(State())
    Select(shape, stopping, state=state, result=state)  # refuses both before the body is built
    outputs = body(state, *own_handles("select", tables, state))
    if not (isinstance(outputs, tuple) and len(outputs) == 2):
        raise DeclarationError(
            "select: the body must return two released handles, the value and its score, got "
            f"{type(outputs).__name__}"
        )
    for what, handle in zip(("value", "score"), outputs, strict=True):
        if not isinstance(handle, Handle):
            raise DeclarationError(f"select: the {what} must be a released handle")
        if handle.visibility == "private":
            raise DeclarationError(
                f"select: the {what} is private: {private_path(handle)}; release it first"
            )
    result = post(scored, *outputs)
    refuse_shared_draws("select", state, result)
    operation = Select(shape, stopping, state=state, result=result)
    return Released(operation, (start, *frontier(operation)))


# -----------------------------------------------------------------------------
# Cases: one of several subgraphs, by the candidate that a run of a selection has drawn.


def taken(index: int, *results: Any) -> Any:
    """Return the result of the case that ran; documents name the function ``select.taken/1``."""
    return results[int(index)]


@frozen(eq=False)
class Case(Loop):
    """A body that runs once where a selection's candidate is its number, and else not at all.

    *Privacy.* The candidate is drawn without the data, and released with the run. So a run is a
    mixture of the cases whose part is known: for each order alpha, with M_i the i-th of m cases,

        E_{M'}[(M/M')^alpha] = (1/m) sum_i E_{M_i'}[(M_i/M_i')^alpha] <= max_i (the same),

    and in the same way the hockey-stick at every epsilon is at most the largest of the cases'. A
    run therefore costs what the envelope of its cases does (`accountants.Parallel` inside of
    `accountants.Selected`), not their sum. Where an index depends on data, the worst case may be
    another one for each of its values: such a graph is refused when it is compiled.

    Parameters
    ----------
    number
        The candidate at which it runs.
    """

    kind: ClassVar[str] = "case"

    number: int = field(converter=number)

    @number.validator
    def _check_number(self, _: object, value: int) -> None:
        if not (as_int(value) is not None and 0 <= value < 10**6):
            raise DeclarationError(f"a case's number must be an int from 0 on, got {value!r}")

    def label(self) -> str:
        """Return the number."""
        return f"case {self.number}"

    def rounds(self) -> int:
        """Return 1, the most that there are."""
        return 1

    def term(self, body: Term) -> Term:
        """Return the body's term."""
        return body

    def runs(self, candidate: Any) -> bool:
        """Return whether the body runs where this is the candidate."""
        return bool(candidate == self.number)


def one_of(
    bodies: Sequence[Callable[..., Released[Any]]], index: Released[int], *tables: Private[Any]
) -> Released[Any]:
    """Return the result of the body whose number is a selection's candidate.

    Parameters
    ----------
    bodies
        Functions of handles of their own of the tables.
    index
        The candidate, an int, in the body of `select`.
    """
    cases = []
    for place, body in enumerate(bodies):
        state: Released[Any] = Released(State())
        result = body(*own_handles("one_of", tables, state))
        operation = Case(place, state=state, result=result)
        cases.append(Released[Any](operation, (index, *frontier(operation))))
    return post(taken, index, *cases)
