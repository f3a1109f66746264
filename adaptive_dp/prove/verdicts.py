"""What is shown of a program's claim: a proof, a counterexample, or what keeps it open."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import field, frozen

from accountants.numerics import shown, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import (
    INTEGERS,
    Adjacency,
    Aligned,
    Bounds,
    Box,
    Group,
    Joined,
    Why,
    conditions_of,
    corners_of,
    in_integers,
    search,
)
from adaptive_dp.prove.cells import Enclosed
from adaptive_dp.prove.compare import compare
from adaptive_dp.prove.every import (
    START,
    Case,
    Pair,
    Place,
    Turn,
    cases_of,
    endings_of,
    worst_corner,
)
from adaptive_dp.prove.every import in_integers as whole
from adaptive_dp.prove.exact import Form, Inequality, shown_form, shown_number, value_of
from adaptive_dp.prove.finite import least_exponent, table
from adaptive_dp.prove.laws import NoLaw, interior
from adaptive_dp.prove.laws import exceeds as sum_exceeds
from adaptive_dp.prove.likelihood import exceeds, law_of, plain, ratio_of, returning
from adaptive_dp.prove.loops import NOW, Ending, Loop, looped, places, text_of
from adaptive_dp.prove.program import (
    Draw,
    Leaf,
    Node,
    Program,
    ProgramError,
    Test,
    is_float,
    unroll,
)

LADDER = (*range(9), 12, 16, 24, 32, 48, 64, 256, 1024, 4096)
"""How many times the worst move the answers of a counterexample are from where they start."""

RELATIONS = {
    "domain": "one answer takes another value of the domain",
    "each": "every answer moves by at most 1",
    "one": "one answer moves by at most 1",
    "together": "all answers move by at most 1, all up or all down",
    "boxes": "the answers' move, or its negative, is in",
}


@frozen
class Proved:
    """A proof that a program is epsilon-DP, for one number of answers or for every one.

    Parameters
    ----------
    name
        Of the function.
    answers
        For how many answers; None for every number of them.
    neighbors
        How they may differ.
    epsilon
        What is proved: the claim, or the least that was found where none was claimed.
    least
        The cost of the worst move: it would do in place of epsilon.
    tight
        Whether no epsilon below `least` holds.
    formula
        The loss by the scales of the noise.
    document
        The proof, as JSON can hold it; see `adaptive_dp.prove.checker.check`.
    words
        The proof in words, for people.
    measure
        What ``epsilon`` is: ``"epsilon"``, or ``"rho"`` of zCDP.
    costs
        What the worst moves cost, by the scales of the noise: how much noise moves, over b.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> proof = prove.prove(lambda answers, noise: answers.sum() + noise.laplace(4), answers=2)
    >>> type(proof).__name__, proof.least, proof.formula, proof.tight
    ('Proved', Fraction(1, 2), '2/4', True)
    >>> prove.check(proof.document)
    Fraction(1, 2)
    """

    name: str
    answers: int | None
    neighbors: Adjacency
    epsilon: Fraction
    least: Fraction
    tight: bool
    formula: str
    document: Mapping[str, Any] = field(repr=False, eq=False)
    words: tuple[str, ...] = field(repr=False, eq=False)
    measure: str = "epsilon"
    costs: tuple[Mapping[str, Fraction], ...] = field(default=(), repr=False, eq=False)

    def __str__(self) -> str:
        what = "DP" if self.measure == "epsilon" else "zCDP"
        head = (
            f"PROVED: {self.name} is {above_words(self.epsilon)}-{what} for "
            f"{count_words(self.answers)}, where {relation_words(self.neighbors)}."
        )
        least = above_words(self.least)
        tail = "The worst move costs " + " = ".join(dict.fromkeys([self.formula, least]))
        tail += f"; no smaller {self.measure} holds." if self.tight else "; less may hold."
        return "\n".join([head, tail, *self.words])


@frozen
class Refuted:
    """A counterexample to a claim.

    Parameters
    ----------
    name, epsilon
        The function, and the claim that is wrong.
    at, neighbor
        Two neighbours' answers.
    output
        What the function may return at the first.
    loss
        The logarithm of the ratio of the probabilities (densities, where numbers are released) of
        the output: above epsilon, by proven bounds. Infinite where the second cannot return it; NaN
        where it has no closed form here, and the lower bound is what refutes the claim.
    lower
        No epsilon below this holds for any answers; infinite where none does.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def total(answers, noise):
    ...     return answers.sum() + noise.laplace(4)
    >>> wrong = prove.prove(total, answers=2, epsilon=0.3)
    >>> wrong.loss, wrong.line
    (0.5, 'prove.log_ratio(total, (0, 0), (-1, -1), 0)')
    >>> prove.log_ratio(total, (0, 0), (1, 1), 0)
    0.5
    """

    name: str
    answers: int
    neighbors: Adjacency
    epsilon: Fraction
    at: tuple[Fraction, ...]
    neighbor: tuple[Fraction, ...]
    output: Any
    loss: float
    lower: float

    @property
    def line(self) -> str:
        """A line of Python that computes the loss again."""
        return (
            f"prove.log_ratio({self.name}, {_literals(self.at)}, {_literals(self.neighbor)}, "
            f"{plain(self.output)!r})"
        )

    def __str__(self) -> str:
        loss = "no finite loss" if math.isinf(self.loss) else f"a loss of {self.loss:.9g}"
        if math.isnan(self.loss):
            loss = "the loss of steps like this one tends to more than the claim"
        lines = [
            f"REFUTED: {self.name} is not {shown_number(self.epsilon)}-DP for "
            f"{count_words(self.answers)}, where {relation_words(self.neighbors)}.",
            f"Answers {_literals(self.at)} and {_literals(self.neighbor)}, output "
            f"{plain(self.output)!r}: {loss}.",
        ]
        if math.isinf(self.loss):
            lines.append("The output is possible at the first and impossible at the second.")
        if math.isinf(self.lower):
            lines.append("No finite epsilon holds.")
        elif self.lower > float(self.epsilon):
            lines.append(f"No epsilon below {self.lower:.9g} holds for all answers.")
        return "\n".join(lines if math.isnan(self.loss) else [*lines, self.line])


@frozen
class Undecided:
    """Neither a proof nor a counterexample: the claim lies between what is known.

    Parameters
    ----------
    lower
        No epsilon below this holds.
    upper
        This epsilon holds; infinite where no bound was found.
    reason
        What keeps it open.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def clamped(answers, noise):
    ...     return min(max(answers[0], 0), 3) + noise.geometric(1)
    >>> open_ = prove.prove(clamped, answers=1, epsilon=1)
    >>> type(open_).__name__, open_.lower, open_.upper
    ('Undecided', 0.0, inf)
    """

    name: str
    answers: int | None
    neighbors: Adjacency
    epsilon: Fraction | None
    lower: float
    upper: float
    reason: str

    def __str__(self) -> str:
        claim = "" if self.epsilon is None else f" at epsilon = {shown_number(self.epsilon)}"
        upper = "no bound above" if math.isinf(self.upper) else f"{self.upper:.9g} holds"
        return (
            f"UNDECIDED: {self.name}{claim} for {count_words(self.answers)}, where "
            f"{relation_words(self.neighbors)}.\nNo epsilon below {self.lower:.9g} holds; {upper}."
            f"\n{self.reason}"
        )


Result = Proved | Refuted | Undecided
Neighbors = str | Sequence[Sequence[Any]]
"""A relation's name, or boxes of moves."""
Radius = float | Fraction | Sequence[Any]
"""How far answers move: of all, or of each, or between which two numbers."""


def prove(
    function: Callable[..., Any],
    *,
    answers: int | str,
    epsilon: float | Fraction | None = None,
    neighbors: Neighbors = "each",
    radius: Radius = 1,
    domain: Sequence[float] | None = None,
) -> Result:
    """Prove or refute that a mechanism, a plain Python function, is epsilon-DP.

    Parameters
    ----------
    function
        ``f(answers, noise)``: an array of the query answers, and what draws noise (see
        `adaptive_dp.prove.Noise`). It returns numbers, bool, str, None, or tuples and lists.
    answers
        For how many answers it is proved: nothing is said of other numbers of them. Or ``"every"``:
        for every number of them, where the function is one loop over its answers, with a state of
        bounded size (`adaptive_dp.prove.loops` says what is followed).
    epsilon
        The claim; None for the least that is found.
    neighbors
        ``"each"``: every answer moves by at most the radius; ``"one"``: one answer moves, or
        several within an l1 ball (where the function rounds answers, or what it releases jumps with
        them, one alone: many small moves would each move a rounded number by 1; and one alone with
        geometric noise and a radius above 1); ``"together"``:
        all move up, or all down. Or a list of boxes, each with a pair (low, high) for each answer,
        or a number r for (-r, r): they differ by a
        move in one of the boxes, in either direction.
    radius
        A number, or one for each answer; or for some answers a pair (low, high), between which they
        move from one of two neighbours to the other: ``(0, 1)`` of a count of rows that are added.
    domain
        The values that an answer can have, for a program that draws by `Noise.flip` alone, such as
        randomized response: all answers are tried, and neighbours differ in one of them. By default
        answers are any real numbers.

    Returns
    -------
    Proved, Refuted or Undecided
        With what was shown; print it.

    Raises
    ------
    ProgramError
        If the function cannot be followed: the line, and what to write instead.

    Notes
    -----
    Proofs are about real numbers: the function with exact arithmetic, answers that are any real
    numbers, and real-valued noise. That is what `Mechanism.from_function` runs.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def above(answers, noise):
    ...     threshold = noise.laplace(2, "threshold")
    ...     for i, answer in enumerate(answers):
    ...         if answer + noise.laplace(4, "query") >= threshold:
    ...             return i
    ...     return None
    >>> print(prove.prove(above, answers=5, epsilon=1))
    PROVED: above is 1-DP for 5 answers, where every answer moves by at most 1.
    The worst move costs 1/b_threshold + 2/b_query = 1; no smaller epsilon holds...
    >>> print(prove.prove(above, answers=5, epsilon=0.9))
    REFUTED: above is not 0.9-DP for 5 answers, where every answer moves by at most 1...
    """
    claim = None if epsilon is None else claimed_number("epsilon", epsilon)
    if answers == "every":
        if (
            domain is not None
            or not isinstance(radius, int | float | Fraction)
            or not isinstance(neighbors, str)
        ):
            raise DeclarationError(
                "for every number of answers there is no domain, and one radius for all of them"
            )
        return _every(function, claim, neighbors, radius)
    if not isinstance(answers, int):
        raise DeclarationError(f"answers must be a positive int or 'every', got {answers!r}")
    if domain is not None:
        return _finite(function, answers, claim, domain)
    program = unroll(function, answers)
    relation = adjacency(neighbors, answers, radius)
    bounds = search(program, relation, claim)
    if claim is None:
        # where no finite epsilon holds, a large one is refuted
        open_ = bounds.lower is None or (program.rounded and bounds.upper is None)
        claim = LARGE if open_ else bounds.upper
    if bounds.upper is not None and claim is not None and bounds.upper <= claim:
        proof = _proved(program, relation, claim, bounds)
        _same_on_numbers(function, proof)
        return proof
    refuted: Refuted | None = None
    if claim is not None:
        if bounds.lower is None or bounds.lower > claim:
            for size in (claim,) if epsilon is not None else (claim, Fraction(10), Fraction(2)):
                refuted = _refuted(program, relation, size, bounds)
                if refuted is not None and not math.isnan(refuted.loss):
                    break
        refuted = refuted or _hunted(program, relation, claim, bounds)
    return refuted or _undecided(program, relation, claim, bounds)


def _same_on_numbers(function: Callable[..., Any], proof: Proved) -> None:
    """Refuse a function that does something else on plain numbers than on unknowns.

    Raises
    ------
    ProgramError
        If it does, at some random numbers.
    """
    try:
        compare(function, proof.document, trials=7)
    except checker.ProofError as error:
        raise ProgramError(
            f"{proof.name} does something else with plain numbers than with unknown ones: {error}"
        ) from None


def adjacency(kind: Neighbors, answers: int, radius: Radius = 1) -> Adjacency:
    """Return the relation of neighbours, with a radius for each answer."""
    if not isinstance(kind, str):
        if radius != 1 or not isinstance(kind, list | tuple) or not kind:
            raise DeclarationError(
                "neighbors is a name, or a list of boxes, which have the radii in them"
            )
        return _boxes([[_ends(each) for each in box] for box in kind], answers)
    if kind in ("domain", "boxes"):
        raise DeclarationError(
            f"adjacency must be each, one, together or a list of boxes, got {kind!r}"
        )
    each = [radius] * answers if isinstance(radius, int | float | Fraction) else list(radius)
    if len(each) != answers:
        raise DeclarationError(f"{len(each)} radii for {answers} answers; give one for each")
    ends = [_ends(r) for r in each]
    if all(low == -high for low, high in ends):
        return Adjacency(kind, tuple(high for _, high in ends))
    if kind == "one":  # one of two neighbours is the other moved up, whatever they are called
        return Adjacency(kind, tuple(max(-low, high) for low, high in ends))
    if kind != "each":
        raise DeclarationError(
            f"a pair (low, high) as a radius belongs to neighbors='each' or 'one', got {kind!r}"
        )
    return _boxes([ends], answers)


def _ends(radius: Any) -> tuple[Fraction, Fraction]:
    """Return between which numbers an answer moves."""
    pair = radius if isinstance(radius, list | tuple) else (radius, radius)
    if not all(isinstance(r, int | float | Fraction) and math.isfinite(r) for r in pair):
        raise DeclarationError("a radius must be a finite number, or a pair of them")
    ends = [Fraction(r) for r in pair]
    if len(ends) != 2 or (pair is radius and ends[0] > ends[1]):
        raise DeclarationError("a pair as a radius is (low, high), low at most high")
    if pair is not radius and ends[0] < 0:
        raise DeclarationError("no radius of an adjacency is negative")
    return ends[0] if pair is radius else -ends[0], ends[1]


def _boxes(boxes: Sequence[Sequence[tuple[Fraction, Fraction]]], answers: int) -> Adjacency:
    if any(len(box) != answers for box in boxes):
        raise DeclarationError(
            f"a box of moves has a pair (low, high) for each of {answers} answers"
        )
    radii = tuple(max(max(-low, high) for low, high in ends) for ends in zip(*boxes, strict=True))
    return Adjacency("boxes", radii, tuple(map(tuple, boxes)))


def claimed_number(name: str, value: Any) -> Fraction:
    """Return a number of a claim, as it is written: 0.1 is a tenth.

    Raises
    ------
    DeclarationError
        If it is not a finite number of at least 0.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | Fraction)
        or not math.isfinite(value)
        or value < 0
    ):
        raise DeclarationError(f"{name} must be a finite number of at least 0, got {value!r}")
    # the float nearest to a tenth is above it or below
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


# -----------------------------------------------------------------------------
# Finite domains: all laws, exactly.


def _finite(
    function: Callable[..., Any], answers: int, claim: Fraction | None, domain: Sequence[float]
) -> Result:
    """Return what the laws at all answers show."""
    laws = table(function, answers, domain)
    name = getattr(function, "__name__", "the function")
    relation = Adjacency("domain", (Fraction(1),) * answers)
    largest, worst = Fraction(1), None
    for at, one in laws.items():
        for i, value in itertools.product(range(answers), {v for point in laws for v in point}):
            neighbor = (*at[:i], value, *at[i + 1 :])
            other = laws[neighbor]
            for output, chance in one.items():
                if output not in other:
                    return _refuted_finite(name, relation, claim, at, neighbor, output, None)
                if chance / other[output] > largest:
                    largest, worst = chance / other[output], (at, neighbor, output)
    epsilon = least_exponent(largest) if claim is None else claim
    if checker.exponential_exceeds(epsilon, largest):
        document = {
            "format": checker.FORMAT,
            "name": name,
            "answers": answers,
            "neighbors": "domain",
            "epsilon": str(epsilon),
            "laws": [
                {"answers": [str(x) for x in at], "outputs": {o: str(p) for o, p in law.items()}}
                for at, law in laws.items()
            ],
        }
        checker.check(document)
        return Proved(
            name,
            answers,
            relation,
            epsilon,
            min(epsilon, least_exponent(largest)),
            True,
            f"log({shown_number(largest)})",
            document,
            (f"all {len(laws)} laws were computed exactly.",),
        )
    assert worst is not None
    if sum_exceeds({Fraction(0): largest}, {Fraction(0): Fraction(1)}, epsilon) is not True:
        near = math.log(largest.numerator) - math.log(largest.denominator)
        reason = "The largest ratio is too near to e^epsilon to be told from it."
        return Undecided(name, answers, relation, claim, near, near, reason)
    return _refuted_finite(name, relation, claim, *worst, largest)


def _refuted_finite(
    name: str,
    relation: Adjacency,
    claim: Fraction | None,
    at: tuple[Fraction, ...],
    neighbor: tuple[Fraction, ...],
    output: str,
    ratio: Fraction | None,
) -> Refuted:
    loss = math.inf
    if ratio is not None:
        loss = math.log(ratio.numerator) - math.log(ratio.denominator)
    claimed = Fraction(0) if claim is None else claim
    returned = ast.literal_eval(output)
    return Refuted(name, len(at), relation, claimed, at, neighbor, returned, loss, loss)


# -----------------------------------------------------------------------------
# Proofs.


def _proved(program: Program, relation: Adjacency, claim: Fraction, bounds: Bounds) -> Proved:
    assert bounds.upper is not None
    document = _document(program, relation, claim, bounds)
    # the search has no part in whether it is a proof
    checker.check(document)
    return Proved(
        program.name,
        program.answers,
        relation,
        claim,
        bounds.upper,
        bounds.lower == bounds.upper or _attained(program, relation, bounds),
        formula(bounds),
        document,
        tuple(_words(program, bounds)),
        costs=worst_costs(bounds),
    )


def _document(
    program: Program, relation: Adjacency, epsilon: Fraction, bounds: Bounds
) -> dict[str, Any]:
    return {
        "format": checker.FORMAT,
        "name": program.name,
        "answers": program.answers,
        **relation_of(program, relation),
        "epsilon": str(epsilon),
        **groups_written(program, bounds.groups),
        "joined": [_joined(each) for each in bounds.joined],
    }


def groups_written(program: Program, groups: Sequence[Group]) -> dict[str, Any]:
    """Return what a document says of the tree, and of the groups of its paths."""
    nodes, ends = nodes_of(program)
    return {"program": nodes, "groups": [_group(group, ends) for group in groups]}


def relation_of(program: Program, relation: Adjacency) -> dict[str, Any]:
    """Return what a document says of neighbours, and of what is rounded."""
    written: dict[str, Any] = {
        "neighbors": relation.kind,
        "radii": [str(r) for r in relation.radii],
    }
    if relation.boxes:
        written["boxes"] = [[[str(low), str(high)] for low, high in box] for box in relation.boxes]
    if program.rounded:
        written["rounded"] = [
            {"kind": each.kind, "form": _form(each.form)} for each in program.rounded
        ]
    return written


def nodes_of(program: Program) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Return the tree as a list, root first, and where the path of each number ends in it."""
    nodes: list[dict[str, Any]] = []
    ends: dict[int, int] = {}
    stack: list[tuple[Node, dict[str, Any], str]] = [(program.root, {}, "")]
    while stack:
        node, parent, slot = stack.pop()
        if slot:
            parent[slot] = len(nodes)
        written: dict[str, Any]
        if isinstance(node, Leaf):
            written = {"returns": node.skeleton, "forms": [_form(form) for form in node.forms]}
            ends[len(ends)] = len(nodes)
        elif isinstance(node, Draw):
            written = {"draw": node.kind, "scale": str(node.scale), "name": node.name, "then": None}
            stack.append((node.then, written, "then"))
        else:
            assert isinstance(node, Test)
            written = {"test": _inequality(node.condition), "yes": None, "no": None}
            if node.why is not None:
                written["why"] = _why(node.why)
            for slot_, branch in (("no", node.no), ("yes", node.yes)):
                if branch is not None:
                    stack.append((branch, written, slot_))
        nodes.append(written)
    return nodes, ends


def needs_integers(group: Group, answers: int) -> bool:
    """Whether answers, and not what is rounded of them, are compared with geometric noise."""
    raw = {f"q{i}" for i in range(answers)}
    rows = [*(each.form for each in group.region), *group.leaf.forms]
    return in_integers(group.draws) and any(raw & row.keys() for row in rows)


def _group(group: Group, ends: Mapping[int, int]) -> dict[str, Any]:
    written: dict[str, Any] = {"ends": [ends[number] for number in group.paths]}
    if len(group.paths) > 1:
        written["region"] = [_inequality(each) for each in group.region]
        written["inside"] = [[_why(why) for why in whys] for whys in group.inside]
        written["cover"] = [_why(why) for why in group.cover]
    written["moves"] = [
        {
            "answers": [str(d) for d in each.move],
            "noise": {str(i): str(s) for i, s in (each.shifts or {}).items()},
        }
        for each in group.moves
    ]
    return written


def _joined(joined: Joined) -> dict[str, Any]:
    def cover(each: Any) -> dict[str, Any]:
        if "why" in each:
            return {"why": _why(each["why"])}
        return {"by": each["by"], "without": list(map(cover, each["without"]))}

    return {
        "groups": list(joined.groups),
        "solved": list(joined.solved),
        "positive": list(joined.positive),
        "bounds": [[_why(why) for why in whys] for whys in joined.bounds],
        "epsilon": str(joined.epsilon),
        "steps": joined.steps,
        "pairs": [_why(why) for why in joined.pairs],
        "cover": cover(joined.cover),
    }


def _form(form: Form) -> dict[str, str]:
    return {name: str(value) for name, value in sorted(form.items())}


def _inequality(inequality: Inequality) -> list[Any]:
    return [_form(inequality.form), inequality.strict]


def _why(why: Why) -> dict[str, str]:
    return {str(i): str(value) for i, value in why.items()}


# -----------------------------------------------------------------------------
# For every length.

SHORT, LONG = (1, 2, 4), (5, 6, 8, 10, 12)
"""The numbers of answers at which a claim for every number of them is looked at: before the search
for a proof, and after one that has failed."""
FEW_CORNERS = 1500
"""How many corners of all groups are looked at there."""
FEW_PATHS, FEW, FEW_JOINED = 100, 40, 12
"""How many paths are looked at there: for a counterexample, for whether a proof is tight, and where
some paths return the same, or numbers."""


def _every(
    function: Callable[..., Any], claim: Fraction | None, neighbors: str, radius: float | Fraction
) -> Result:
    """Prove a program for every number of answers, or refute it for some."""
    relation = adjacency(neighbors, 1, radius)
    size = relation.radii[0]
    refusal: ProgramError | None = None
    loop: Loop | None = None
    try:
        loop = looped(function)
    except ProgramError as error:
        refusal = error  # a few answers may refute it all the same
    if loop is not None and size != 1 and whole(loop):
        raise DeclarationError(INTEGERS)
    lower, wrong = _at_lengths(function, SHORT, neighbors, size, claim)
    if wrong is not None:
        return wrong
    enough = None if lower is None or not size else lower / size
    cases = None if loop is None or lower is None else cases_of(loop, neighbors, enough)
    least = None if cases is None else size * max(case.epsilon() for case in cases)
    if cases and loop is not None and least is not None and (claim is None or least <= claim):
        if lower is not None and lower < least:  # whether it is attained at more answers
            longer, _ = _at_lengths(function, LONG, neighbors, size, None, least, FEW)
            lower = None if longer is None else max(lower, longer)
        # both bounds are theorems
        assert lower is not None
        assert lower <= least
        return _proved_for_every(function, loop, relation, cases, claim, least, lower)
    if claim is not None:
        longer, wrong = _at_lengths(function, LONG, neighbors, size, claim)
        if wrong is not None:
            return wrong
        lower = None if longer is None or lower is None else max(lower, longer)
    if refusal is not None:
        raise refusal
    return Undecided(
        str(getattr(function, "__name__", "the function")),
        None,
        relation,
        claim,
        math.inf if lower is None else float(lower),
        math.inf if least is None else float(least),
        "no rule was found by which noise moves in each turn, with bounded differences between "
        "turns: prove it for a number of answers"
        if least is None
        else "the rules by which noise moves that were found cost more than the claim.",
    )


def _at_lengths(
    function: Callable[..., Any],
    lengths: Sequence[int],
    neighbors: str,
    radius: Fraction,
    claim: Fraction | None,
    enough: Fraction | None = None,
    most_paths: int = FEW_PATHS,
) -> tuple[Fraction | None, Refuted | None]:
    """Return a lower bound of the loss (None: it is infinite), and a counterexample to a claim."""
    lower: Fraction | None = Fraction(0)
    for n in lengths:
        if lower is not None and lower == enough:
            break
        try:
            program = unroll(function, n, most_paths=most_paths)
        except ProgramError:
            continue  # too many paths, or a program that needs more answers
        paths = program.paths()
        alone = len({path.leaf.skeleton for path in paths}) == len(paths)
        if not alone and len(paths) > FEW_JOINED:
            continue
        relation = adjacency(neighbors, n, radius)
        if corners_of(program, relation) > FEW_CORNERS:
            continue
        bounds = search(program, relation, claim)
        lower = None if lower is None or bounds.lower is None else max(lower, bounds.lower)
        if lower is None or (claim is not None and lower > claim):
            return lower, _refuted(program, relation, LARGE if claim is None else claim, bounds)
    return lower, None


def _proved_for_every(
    function: Callable[..., Any],
    loop: Loop,
    relation: Adjacency,
    cases: Sequence[Case],
    claim: Fraction | None,
    least: Fraction,
    lower: Fraction,
) -> Proved:
    epsilon = least if claim is None else claim
    document = {
        "format": checker.FORMAT,
        "name": loop.name,
        "answers": "every",
        "neighbors": relation.kind,
        "radii": [str(r) for r in relation.radii],
        "epsilon": str(epsilon),
        "loop": {
            "start": nodes_of(loop.start.tree)[0],
            "states": {
                state: {
                    "step": nodes_of(loop.steps[state].tree)[0],
                    "finish": nodes_of(loop.finishes[state].tree)[0],
                }
                for state in loop.steps
            },
        },
        "cases": [_case(case) for case in cases],
    }
    # the search has no part in whether it is a proof
    checker.check(document)
    worst = max(cases, key=lambda case: case.epsilon())
    turns = _worst_turns(loop, worst)
    costs: dict[str, Fraction] = {}
    for ways, pair in turns:
        for label, value in _turn_costs(ways, pair, worst).items():
            costs[label] = costs.get(label, Fraction(0)) + value * relation.radii[0]
    proof = Proved(
        loop.name,
        None,
        relation,
        epsilon,
        least,
        lower == least,
        " + ".join(_over(value, label) for label, value in costs.items()) or "0",
        document,
        tuple(_words_for_every(loop, cases)),
        costs=(costs,),
    )
    _same_on_numbers(function, proof)
    return proof


def _case(case: Case) -> dict[str, Any]:
    every = list(case.left)
    first = case.start()
    every.remove(first)
    every.insert(0, first)
    at = {place: i for i, place in enumerate(every)}
    turns: dict[Place, list[dict[str, Any]]] = {place: [] for place in every}
    for (place, turn), pairs in case.graph.turns.items():
        width = case.graph.widths[place, turn]
        rows = [pairs[i : i + width] for i in range(0, len(pairs), width)]
        ways = [_row([pair for pair in row if pair is not None], at) for row in rows]
        turns[place].append(
            {"which": turn.which, "know": turn.know, "move": turn.move, "ways": ways}
        )
    return {
        "low": str(case.low),
        "high": str(case.high),
        "guess": case.guess,
        "places": [
            {
                "kept": place.kept,
                "moved": place.moved,
                "one": "" if place.one == START else place.one,
                "other": "" if place.other == START else place.other,
                "box": [None if ends is None else list(map(str, ends)) for ends in place.box],
                "left": str(case.left[place]),
                "turns": turns[place],
            }
            for place in every
        ],
    }


def _row(row: Sequence[Pair], at: Mapping[Place, int]) -> dict[str, Any] | None:
    """Return what is shown of one way of the first run: None if it has no part in the proof."""
    if not row:
        return None
    pairs: list[dict[str, Any]] = []
    for pair in row:
        if pair.why is not None:
            pairs.append({"why": _why(pair.why)})
        else:
            after = None if pair.after is None else at[pair.after]
            support, bounds = (list(map(_why, whys)) for whys in (pair.support, pair.bounds))
            pairs.append({"support": support, "after": after, "bounds": bounds})
    return {"noise": [_form(shift) for shift in row[0].shifts], "pairs": pairs}


Ways = tuple[Place, Turn, Ending]


def _ways(loop: Loop, case: Case, place: Place, turn: Turn) -> Iterator[tuple[Ways, Pair]]:
    """Yield each end of the first run with what is shown of it, where both runs may take theirs."""
    if place.one == START:
        piece = loop.start
    else:
        piece = (loop.steps if turn.which == "step" else loop.finishes)[place.one]
    for i, pair in enumerate(case.graph.turns[place, turn]):
        if pair is not None and pair.why is None:
            yield (place, turn, piece.endings[i // case.graph.widths[place, turn]]), pair


def _turn_costs(ways: Ways, pair: Pair, case: Case) -> dict[str, Fraction]:
    """Return the cost of a turn by the scales' names, at its worst corner."""
    place, turn, ending = ways
    moves = turn.move and turn.which == "step"
    _, sizes = worst_corner(pair.shifts, ending.way.draws, place, moves, case.low, case.high) or (
        Fraction(0),
        (),
    )
    costs: dict[str, Fraction] = {}
    for draw, size in zip(ending.way.draws, sizes, strict=False):
        if size:
            costs[_label(draw)] = costs.get(_label(draw), Fraction(0)) + size
    return costs


def _worst_turns(loop: Loop, case: Case) -> list[tuple[Ways, Pair]]:
    """Return the turns that cost something on the way on which all of epsilon is spent."""
    place: Place | None = case.start()
    found: list[tuple[Ways, Pair]] = []
    seen: set[Place] = set()
    left = case.left
    while place is not None and left[place] > 0:
        seen.add(place)
        step = next(
            (
                each
                for where, turn in case.graph.turns
                if where == place
                for each in _ways(loop, case, where, turn)
                if each[1].cost + (Fraction(0) if each[1].after is None else left[each[1].after])
                == left[place]
                and (each[1].cost > 0 or (each[1].after is not None and each[1].after not in seen))
            ),
            None,
        )
        if step is None:
            return []
        if step[1].cost > 0:
            found.append(step)
        place = step[1].after
    return found


def _words_for_every(loop: Loop, cases: Sequence[Case]) -> Iterator[str]:
    """Yield the proof in words: the rules by which noise moves, and what stays between turns."""
    if any(in_integers(ending.way.draws) for ending in endings_of(loop)):
        yield "Its answers are integers, as geometric noise is."
    yield "t is how far answers move at most, and d how far the turn's own answer does."
    lines: dict[str, None] = {}
    for case in cases:
        side = {(0, 1): "Up: ", (-1, 0): "Down: "}.get((int(case.low), int(case.high)), "")
        for place, turn in case.graph.turns:
            for ways, pair in _ways(loop, case, place, turn):
                if any(pair.shifts):
                    lines.setdefault(side + _rule_words(loop, ways, pair, case))
        for place in case.left:
            bounds = _box_words(loop, place)
            if bounds:
                lines.setdefault(f"{side}between turns{_phase(place)}, {bounds}.")
    yield from lines


def _phase(place: Place) -> str:
    words = {"b": "before", "a": "after"}
    parts = []
    if place.kept in words:
        parts.append(f"{words[place.kept]} the position that is returned")
    elif place.kept != "-":
        first, second = (words[each] for each in place.kept)
        parts.append(f"{first} the first position that is returned, {second} the second one")
    if place.moved in words:
        parts.append(f"{words[place.moved]} the answer that moves")
    return (" " + " and ".join(parts)) if parts else ""


def _rule_words(loop: Loop, ways: Ways, pair: Pair, case: Case) -> str:
    place, turn, ending = ways
    names = _number_names(loop, place.one)
    moves = ", ".join(
        f"v{draw.index} ({draw.kind} {_label(draw)}) by {_shown_shift(shift, names)}"
        for draw, shift in zip(ending.way.draws, pair.shifts, strict=True)
        if shift
    )
    costs = " + ".join(_over(v, label) for label, v in _turn_costs(ways, pair, case).items())
    kind, *rest = ast.literal_eval(ending.symbol)
    where = {"start": "at the start", "finish": "at the end"}.get(turn.which, "")
    if not where:
        where = "in the turn of the position that is returned" if turn.know else "in a turn"
        if len(place.kept) == 2 and turn.know:
            which = ("first", "second")[turn.know - 1]
            where = f"in the turn of the {which} position that is returned"
        if kind == "return":
            where += f" that returns {_released(rest[0])}"
        elif rest[0] and rest[0][0]:
            where += f" that releases {', '.join(map(_released, rest[0][0]))}"
    return f"{where}, move {moves}; cost {costs or '0'} times t."


def _released(value: Any) -> str:
    text = text_of(value)
    return text.replace(f"'{NOW}'", "the position").replace("...", "a number")


def _number_names(loop: Loop, state: str) -> list[str]:
    """Return names for the unknown numbers of a state."""
    names: list[str] = []
    if state != START:
        for name, value in zip(loop.variables, ast.literal_eval(state), strict=True):
            count = places(text_of(value))
            names += [name] if value is ... else [f"{name}[{i}]" for i in range(count)]
    return names


def _shown_shift(shift: Form, names: Sequence[str]) -> str:
    by = {f"e{j + 1}": f"(what {name} has moved by)" for j, name in enumerate(names)}
    return shown_form({by.get(name, name): value for name, value in shift.items()})


def _box_words(loop: Loop, place: Place) -> str:
    parts = []
    for name, ends in zip(_number_names(loop, place.one), place.box, strict=False):
        if ends is None or not any(ends):
            continue
        low, high = (shown_form({"t": end} if end else {}) for end in ends)
        parts.append(f"{name} has moved by {low if low == high else f'{low} to {high}'}")
    return ", ".join(parts)


# -----------------------------------------------------------------------------
# In words.


def _label(draw: Draw) -> str:
    return f"b_{draw.name}" if draw.name else shown_number(draw.scale)


def _cost_by_scale(group: Group, aligned: Aligned) -> dict[str, Fraction]:
    costs: dict[str, Fraction] = {}
    draws = {draw.index: draw for draw in group.draws}
    for index, shift in (aligned.shifts or {}).items():
        label = _label(draws[index])
        costs[label] = costs.get(label, Fraction(0)) + abs(shift)
    return costs


def worst_costs(bounds: Bounds) -> tuple[dict[str, Fraction], ...]:
    """Return what the worst moves cost, by the scales."""
    worst: list[dict[str, Fraction]] = []
    for group in _translated(bounds):
        for aligned in group.moves:
            costs = _cost_by_scale(group, aligned)
            if aligned.cost == bounds.upper and costs not in worst:
                worst.append(costs)
    for joined in bounds.joined:
        draws = {draw.index: draw for draw in bounds.groups[joined.groups[0]].draws}
        draw = draws[joined.solved[0]]
        alone = len({draws[k].scale for k in joined.solved}) == 1
        costs = {_label(draw): joined.epsilon * draw.scale} if alone else {"1": joined.epsilon}
        if joined.epsilon == bounds.upper and costs not in worst:
            worst.append(costs)
    return tuple(costs for costs in worst if costs)


def formula(bounds: Bounds) -> str:
    """Return the loss by the scales: the cost of the worst moves, such as ``1/b_t + 2/b_q``."""
    texts = [
        " + ".join(f"{_over(value, label)}" for label, value in costs.items())
        for costs in worst_costs(bounds)[:3]
    ]
    return " = ".join(texts) or "0"


def _over(value: Fraction, label: str) -> str:
    size = shown_number(value)
    return (
        f"{size if '/' not in size else f'({size})'}/{label if '/' not in label else f'({label})'}"
    )


def _translated(bounds: Bounds) -> list[Group]:
    """Return the groups that are answered by moves: those that are not joined."""
    joined = {i for each in bounds.joined for i in each.groups}
    return [group for i, group in enumerate(bounds.groups) if i not in joined]


def _words(program: Program, bounds: Bounds) -> Iterator[str]:
    """Yield the proof in words: for each output, its worst corner."""
    if any(needs_integers(group, program.answers) for group in bounds.groups):
        yield "Its answers are integers, as geometric noise is."
    for i, each in enumerate(program.rounded):
        kind = {"even": "rounded, halves to even"}.get(each.kind, each.kind)
        yield f"q{program.answers + i} is {shown_form(each.form)}, {kind}."
    for joined in bounds.joined:
        members = [bounds.groups[i] for i in joined.groups]
        draws = {draw.index: draw for draw in members[0].draws}
        names = ", ".join(f"v{k} ({draws[k].kind} {_label(draws[k])})" for k in joined.solved)
        yield (
            f"returns {members[0].leaf.skeleton}, {len(members)} groups of paths: with answers, "
            f"the other draws and what is returned fixed, {names} is known; between neighbours it "
            f"moves at a cost of at most {shown_number(joined.epsilon)}."
        )
    for group in sorted(_translated(bounds), key=lambda g: -(g.cost() or 0)):
        worst = max(group.moves, key=lambda each: each.cost or 0, default=None)
        if worst is None:
            yield f"returns {group.leaf.skeleton}: depends on no answer."
            continue
        draws = {draw.index: draw for draw in group.draws}
        moves = [
            f"{'v' + str(i)} ({draws[i].kind} {_label(draws[i])}) by {shown_number(s)}"
            for i, s in sorted((worst.shifts or {}).items())
        ]
        costs = [_over(value, label) for label, value in _cost_by_scale(group, worst).items()]
        forms = ", ".join(map(shown_form, group.leaf.forms))
        where = f" ({forms})" if forms else ""
        many = f", {len(group.paths)} paths in one convex region" if len(group.paths) > 1 else ""
        yield (
            f"returns {group.leaf.skeleton}{where}{many}: when the answers move by "
            f"{_numbers(worst.move)}, move {', '.join(moves) or 'no noise'}; cost "
            f"{' + '.join(costs) or '0'} = {shown_number(worst.cost or 0)}."
        )


def _numbers(values: Sequence[Fraction]) -> str:
    return (
        "("
        + "".join(f"{shown_number(v)}, " for v in values)[
            : None if len(values) == 1 else -2
        ].strip()
        + ")"
    )


def _literals(values: Sequence[Fraction]) -> str:
    """Return numbers as Python reads them, exactly: of a rounded answer the last digit counts."""

    def text(value: Fraction) -> str:
        if value.denominator == 1:
            return str(value.numerator)
        return repr(float(value)) if is_float(value) else repr(value)

    return f"({', '.join(map(text, values))}{',' if len(values) == 1 else ''})"


def above_words(value: Fraction) -> str:
    """Return a bound for people, rounded up where it is cut."""
    text = shown_number(value)
    return text if Fraction(text) == value else shown(up(float(value)), upward=True)


def count_words(answers: int | None) -> str:
    """Return for how many answers something is shown, in words."""
    if answers is None:
        return "every length"
    return "1 answer" if answers == 1 else f"{answers} answers"


def claim_of(document: Mapping[str, Any], proved: Fraction) -> str:
    """Return what a checked document says in words: of what, for which answers and neighbours."""
    what = "zCDP" if "rho" in document else "DP"
    every = what == "DP" and "loop" in document and document["neighbors"] != "domain"
    count = None if every else int(document["answers"])
    radii = tuple(map(Fraction, document.get("radii", ["1"])))
    boxes = tuple(
        tuple((Fraction(low), Fraction(high)) for low, high in box)
        for box in document.get("boxes", [])
    )
    near = relation_words(Adjacency(str(document["neighbors"]), radii, boxes))
    claim = str(proved)
    if "delta" in document:
        claim = f"({proved}, {above_words(Fraction(document['delta']))})"
    answers = f"{count_words(count)}{' in integers' if _of_integers(document, count) else ''}"
    return f"is {claim}-{what} for {answers}, where {near}"


def _of_integers(document: Mapping[str, Any], count: int | None) -> bool:
    """Whether a checked document is of answers that are integers, as `needs_integers` says."""
    if document["neighbors"] == "domain":  # it says which values answers have
        return False
    if count is None:
        loop = document["loop"]
        trees = [
            loop["start"],
            *(tree for each in loop["states"].values() for tree in each.values()),
        ]
        return any(node.get("draw") == "geometric" for tree in trees for node in tree)
    nodes = document["program"]
    rows = [node["test"][0] for node in nodes if "test" in node]
    rows += [form for node in nodes for form in node.get("forms", [])]
    raw = {f"q{i}" for i in range(count)}
    drawn = any(node.get("draw") == "geometric" for node in nodes)
    return drawn and any(raw & row.keys() for row in rows)


def relation_words(relation: Adjacency) -> str:
    """Return how neighbours' answers differ, in words."""
    text = RELATIONS[relation.kind]
    if relation.kind == "boxes":
        return f"{text} {' or '.join(map(_box, relation.boxes))}"
    radii = set(relation.radii)
    if radii == {Fraction(1)}:
        return text
    if len(radii) == 1:
        return text.replace("at most 1", f"at most {shown_number(next(iter(radii)))}")
    return text.replace("at most 1", f"at most {_numbers(relation.radii)}")


def _box(box: Box) -> str:
    return " x ".join(f"[{shown_number(low)}, {shown_number(high)}]" for low, high in box)


# -----------------------------------------------------------------------------
# Counterexamples.


def _same_output(groups: Sequence[Group], skeleton: str) -> list[Group]:
    return [group for group in groups if group.leaf.skeleton == skeleton]


def _refuted(
    program: Program, relation: Adjacency, claim: Fraction, bounds: Bounds
) -> Refuted | None:
    """Walk along the worst move until two neighbours' answers show the loss."""
    worst = bounds.worst
    assert worst is not None
    members = _same_output(bounds.groups, worst.groups[0].leaf.skeleton)
    zero = {f"q{i}": Fraction(0) for i in range(program.answers)}
    for group in worst.groups:
        conditions = conditions_of(group)
        point = interior(conditions, zero) or interior(conditions, {})
        if point is None:
            continue
        if in_integers(group.draws):
            point = {name: Fraction(round(x)) for name, x in point.items()}
        start = [point.get(f"q{i}", Fraction(0)) for i in range(program.answers)]
        returned = [value_of(form, point) for form in group.leaf.forms]
        for times in LADDER:
            # along M x + j d: with x = 0 the last step is the M-th
            for j in (times,) if not any(worst.x) else sorted({0, times // 2, max(times - 1, 0)}):
                at, neighbor = (
                    tuple(
                        a + times * x + k * d
                        for a, x, d in zip(start, worst.x, worst.move, strict=True)
                    )
                    for k in (j, j + 1)
                )
                try:
                    found = _shown(
                        program, relation, claim, bounds, members, at, neighbor, returned
                    )
                except NoLaw:
                    return _by_theorem(program, relation, claim, bounds, start, returned)
                if found is not None:
                    return found
    return None


def _by_theorem(
    program: Program,
    relation: Adjacency,
    claim: Fraction,
    bounds: Bounds,
    start: Sequence[Fraction],
    returned: Sequence[Fraction],
) -> Refuted:
    """Return the refutation of the lower bound alone: its law has no closed form here."""
    worst = bounds.worst
    assert worst is not None
    far = LADDER[-1]
    at, neighbor = (
        tuple(a + far * x + k * d for a, x, d in zip(start, worst.x, worst.move, strict=True))
        for k in (far, far + 1)
    )
    output = _output(worst.groups[0].leaf.skeleton, returned)
    return _counterexample(program, relation, claim, bounds, at, neighbor, output, math.nan)


def _counterexample(
    program: Program,
    relation: Adjacency,
    claim: Fraction,
    bounds: Bounds,
    at: tuple[Fraction, ...],
    neighbor: tuple[Fraction, ...],
    output: Any,
    loss: float,
) -> Refuted:
    lower = math.inf if bounds.lower is None else float(bounds.lower)
    return Refuted(
        program.name, program.answers, relation, claim, at, neighbor, output, loss, lower
    )


def _shown(
    program: Program,
    relation: Adjacency,
    claim: Fraction,
    bounds: Bounds,
    members: Sequence[Group],
    at: tuple[Fraction, ...],
    neighbor: tuple[Fraction, ...],
    returned: Sequence[Fraction],
) -> Refuted | None:
    """Return the counterexample of two answers and an output, if it is one."""
    output = _output(members[0].leaf.skeleton, returned)
    # also of paths that write it differently: whoever sees an output does not see the path
    both = returning(bounds.groups, output)
    one = law_of(both, program.extended(at))
    if not one:
        return None
    other = law_of(both, program.extended(neighbor))
    if not exceeds(one, other, claim):
        return None
    loss = ratio_of(one, other) if other else math.inf
    shifted = list(_shifted(members[0], returned))
    if not shifted:
        return _counterexample(program, relation, claim, bounds, at, neighbor, output, loss)
    # where a density jumps, its value at one point says nothing: it is of no event
    for values in shifted:
        near = _output(members[0].leaf.skeleton, values)
        both = returning(bounds.groups, near)
        one, other = (law_of(both, program.extended(where)) for where in (at, neighbor))
        if one and exceeds(one, other, claim):
            there = ratio_of(one, other) if other else math.inf
            if loss > there + 1e-3:
                output, loss = near, there
            return _counterexample(program, relation, claim, bounds, at, neighbor, output, loss)
    return None


def _shifted(group: Group, returned: Sequence[Fraction]) -> Iterator[list[Fraction]]:
    """Yield outputs next to one that has a density, as if each real draw were a little off."""
    real = [draw.index for draw in group.draws if draw.kind != "geometric"]
    for size in (Fraction(1, 2**20), Fraction(-1, 2**20), Fraction(1, 2**44), Fraction(-1, 2**44)):
        # odd and different: no two draws that were compared, or fixed, tie again
        off = {f"v{i}": (2 * k + 3) * size for k, i in enumerate(real)}
        moves = [
            sum((c * off[n] for n, c in form.items() if n in off), Fraction(0))
            for form in group.leaf.forms
        ]
        if not any(moves):
            return
        yield [x + move for x, move in zip(returned, moves, strict=True)]


LARGE = Fraction(100)
"""The epsilon that is refuted where none was claimed and none is finite."""
MOST_TRIED, MOST_ENCLOSED = 200, 24
"""So many pairs of answers are tried with an output whose groups leave a claim open; and where
probabilities are enclosed only."""


Candidate = tuple[list[Group], tuple[Fraction, ...], tuple[Fraction, ...], list[Fraction]]


def _hunted(
    program: Program, relation: Adjacency, claim: Fraction, bounds: Bounds
) -> Refuted | None:
    """Try points of each open group, the worst moves and far outputs: each exactly."""
    joined = {i for each in bounds.joined for i in each.groups}
    open_ = [
        group
        for i, group in enumerate(bounds.groups)
        if i not in joined and ((cost := group.cost()) is None or cost > claim)
    ]
    tried = 0
    for members, at, neighbor, values in _pairs(program, relation, bounds, open_):
        tried += any(draw.kind in ("geometric", "gaussian") for draw in members[0].draws)
        if tried > MOST_ENCLOSED:
            return None
        try:
            found = _shown(program, relation, claim, bounds, members, at, neighbor, values)
        except NoLaw:
            return None
        if found is not None:
            return found
    return None


def _attained(program: Program, relation: Adjacency, bounds: Bounds) -> bool:
    """Whether two answers and an output lose all of the upper bound, exactly."""
    assert bounds.upper is not None
    open_ = [bounds.groups[i] for each in bounds.joined for i in each.groups]
    if program.rounded:  # a density far away may lose all of it
        open_ = [group for group in bounds.groups if group.leaf.forms]
    for members, at, neighbor, values in _pairs(program, relation, bounds, open_):
        try:
            one, other = (
                law_of([(group, values) for group in members], program.extended(where))
                for where in (at, neighbor)
            )
        except NoLaw:
            return False
        if isinstance(one, Enclosed) or isinstance(other, Enclosed):
            return False
        if one and one == {s + bounds.upper: c for s, c in other.items()}:
            return True
    return False


def _pairs(
    program: Program, relation: Adjacency, bounds: Bounds, groups: Sequence[Group]
) -> Iterator[Candidate]:
    most = MOST_TRIED * (10 if program.rounded else 1)
    return itertools.islice(_all_pairs(program, relation, bounds, groups), most)


def _all_pairs(
    program: Program, relation: Adjacency, bounds: Bounds, groups: Sequence[Group]
) -> Iterator[Candidate]:
    both = [frozenset({1, -1})] * program.answers
    moves = list(itertools.islice(relation.corners(both), 64))
    if program.rounded:  # half of a move rounds to another number, and leaves another rest
        halves = [m for move in moves[:32] for m in (move, tuple(x / 2 for x in move))]
        moves = [move for move in halves if _allowed(relation, move)]
    # of the whole program: where one path has geometric noise, answers are integers on all of them
    integers = any(needs_integers(each, program.answers) for each in bounds.groups)
    if integers:
        moves = [move for move in moves if all(x.denominator == 1 for x in move)]
    for group in groups:
        members = _same_output(bounds.groups, group.leaf.skeleton)
        for start, returned in starts_of(program, group):
            if integers:
                start = tuple(Fraction(round(x)) for x in start)
            far = [Fraction(0)] + [Fraction(m * side) for m in (1, 4, 16, 64) for side in (1, -1)]
            for shift in far if returned else far[:1]:
                values = [value + shift for value in returned]
                for move in moves:
                    points = _edges(program, start, move, integers) if program.rounded else (start,)
                    for point in points:
                        neighbor = tuple(x + d for x, d in zip(point, move, strict=True))
                        for pair in ((point, neighbor), (neighbor, point)):
                            yield members, pair[0], pair[1], values


def _allowed(relation: Adjacency, move: tuple[Fraction, ...]) -> bool:
    """Whether neighbours' answers move so: in a box without 0, half of a move may not be one."""
    return any(
        all(low <= x <= high for x, (low, high) in zip(move, box, strict=True))
        for box in relation.moves()
    )


def _edges(
    program: Program,
    start: tuple[Fraction, ...],
    move: tuple[Fraction, ...],
    integers: bool,
) -> Iterator[tuple[Fraction, ...]]:
    """Yield answers from which what is rounded moves the most, near a start and far away."""
    tiny = Fraction(1, 2**20)
    whole = 2 * math.lcm(*(v.denominator for each in program.rounded for v in each.form.values()))
    for times in (0, 4, -4, 32, -32, 256, -256):
        # what is rounded moves by an even number there, which keeps halves as they are
        point = [x + times * whole * d for x, d in zip(start, move, strict=False)]
        fixed: set[str] = set()
        for i, each in enumerate(program.rounded):
            free = [name for name in each.form if name != "1" and name not in fixed]
            free = [name for name in free if int(name[1:]) < program.answers]
            change = value_of(each.form, {f"q{j}": d for j, d in enumerate(move)})
            fixed |= each.form.keys()
            if not free:
                continue
            up_edge, down_edge = {
                "even": (Fraction(1, 2), Fraction(3, 2)),
                "floor": (1 - tiny, Fraction(0)),
                "ceil": (Fraction(0), tiny),
            }[each.kind]
            edge = up_edge if change >= 0 else down_edge
            near = start[program.answers + i] + times * whole * change
            here = {f"q{j}": x for j, x in enumerate(program.extended(point))}
            target = edge + 2 * math.floor((near - edge) / 2)
            point[int(free[0][1:])] += (target - value_of(each.form, here)) / each.form[free[0]]
        if not integers or all(x.denominator == 1 for x in point):
            yield tuple(point)


def starts_of(
    program: Program, group: Group
) -> Iterator[tuple[tuple[Fraction, ...], list[Fraction]]]:
    """Yield answers inside a group and at a corner of it, with what is returned there."""
    for margin in (1, 0):
        point = interior(conditions_of(group), {}, margin)
        if point is not None:
            if needs_integers(group, program.answers):
                point = {name: Fraction(round(x)) for name, x in point.items()}
            start = tuple(point.get(f"q{i}", Fraction(0)) for i in range(program.width))
            yield start, [value_of(form, point) for form in group.leaf.forms]


def _output(skeleton: str, returned: Sequence[Fraction]) -> Any:
    numbers = iter(returned)

    def filled(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(map(filled, x))
        return next(numbers) if x is ... else x

    return filled(ast.literal_eval(skeleton))


# -----------------------------------------------------------------------------
# What is open.


def _undecided(
    program: Program, relation: Adjacency, claim: Fraction | None, bounds: Bounds
) -> Undecided:
    open_ = next(
        (g for g in bounds.groups if g.cost() is None or (claim is not None and g.cost() > claim)),  # type: ignore[operator]
        None,
    )
    reason = "no counterexample was found along the worst move"
    if open_ is not None:
        stuck = next((a for a in open_.moves if a.cost is None), None)
        forms = ", ".join(map(shown_form, open_.leaf.forms))
        reason = (
            f"Open: the paths that return {open_.leaf.skeleton}{f' ({forms})' if forms else ''}"
            + (
                f" have no answer in the noise when the answers move by {_numbers(stuck.move)}, "
                "and others return the same."
                if stuck is not None
                else " cost more than the claim, and others return the same."
            )
        )
    return Undecided(
        program.name,
        program.answers,
        relation,
        claim,
        math.inf if bounds.lower is None else float(bounds.lower),
        math.inf if bounds.upper is None else float(bounds.upper),
        reason,
    )
