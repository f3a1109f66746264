"""A checker of proofs, in exact fractions, which shares nothing with the search for them.

A proof is a document: the program as a decision tree, its paths in groups, and for each group and
each corner of the neighbours' moves how the draws move. What is checked is all that the theorem
needs, whoever wrote the document:

1. the tree is total: of each test both branches are there, or the multipliers that show that one
   cannot occur;
2. each path is in one group, and all paths of a group return the same and draw the same noise,
   with the same scales;
3. a group's region holds its paths, and the tree, walked within the region, ends in them alone: it
   is their union;
4. for each corner, the move of answers and draws leaves no inequality of the region falling, and
   each returned expression where it is; exponential noise does not move down, Gaussian noise
   not at all;
5. each move costs at most epsilon: the sum of sizes over scales.

Then translation maps each group at some answers into itself at the neighbours' answers, one to one,
at a cost of at most epsilon for the density: the theorem of `adaptive_dp.prove.alignment`. It needs
Python alone.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

FORMAT = "adaptive-dp/proof/1"

KINDS = ("laplace", "exponential", "gaussian", "geometric")

Form = dict[str, Fraction]
Condition = tuple[Form, bool]  # a form is above 0 (True), or at least 0 (False)
Drawn = tuple[str, Fraction]  # kind and scale
Part = tuple[list[Condition], tuple[Drawn, ...], str, tuple[Form, ...]]
Path = tuple[tuple[Drawn, ...], tuple[Condition, ...], str, tuple[Form, ...]]


class ProofError(ValueError):
    """A document that proves nothing: which step of it is wrong.

    Examples
    --------
    >>> check({"format": "a proof"})
    Traceback (most recent call last):
        ...
    adaptive_dp.prove.checker.ProofError: the format must be 'adaptive-dp/proof/1', got 'a proof'
    """


WRONG = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What reading a document that is not of its form may raise."""


def require(holds: bool, rule: str) -> None:
    """Raise `ProofError` where a rule does not hold."""
    if not holds:
        raise ProofError(rule)


def exact(written: Any) -> Fraction:
    """Return a fraction that a document writes as text, such as ``-3/2``, or an int."""
    short = isinstance(written, int) or (isinstance(written, str) and len(written) < 2000)
    require(short and "e" not in str(written).lower(), "a number is a short fraction")
    return Fraction(written)


def read_form(written: Mapping[str, str]) -> Form:
    """Return a form that a document writes with fractions as text."""
    return {str(name): exact(value) for name, value in written.items()}


def read_noise(written: Mapping[str, str], draws: Sequence[Drawn]) -> dict[int, Fraction]:
    """Return by how much each draw moves, which a document writes by the draws' numbers."""
    moves = {int(index): exact(shift) for index, shift in written.items()}
    # "0" and "00" are one draw: what is moved must be what is counted
    require(all(str(i) in written for i in moves), "a draw is written by its number")
    require(len(moves) == len(written), "a draw moves in one way")
    require(all(0 <= i < len(draws) for i in moves), "a move of noise that is not drawn")
    return moves


def read_condition(written: Sequence[Any]) -> Condition:
    """Return a condition, written as its form and whether it is strict."""
    form, strict = written
    require(isinstance(strict, bool), "a condition says true or false of being strict")
    return read_form(form), strict


def negated(condition: Condition) -> Condition:
    """Return what holds if and only if a condition does not."""
    form, strict = condition
    return {name: -value for name, value in form.items()}, not strict


def contradict(conditions: Sequence[Condition], multipliers: Mapping[str, str]) -> bool:
    """Whether multipliers, none negative, add conditions up to a number that cannot be so."""
    total: Form = {}
    strict = False
    for index, written in multipliers.items():
        factor = exact(written)
        if factor < 0 or not 0 <= int(index) < len(conditions):
            return False
        form, above = conditions[int(index)]
        strict = strict or (above and factor > 0)
        for name, value in form.items():
            total[name] = total.get(name, Fraction(0)) + factor * value
    constant = total.pop("1", Fraction(0))
    return not any(total.values()) and (constant < 0 or (constant == 0 and strict))


def places(returned: str) -> int:
    """Return how many numbers an output leaves open, written as ``...``."""
    stack, count = [ast.literal_eval(returned)], 0
    while stack:
        value = stack.pop()
        count += value is ...
        stack += value if isinstance(value, list | tuple) else []
    return count


def support(index: int, draw: Drawn) -> list[Condition]:
    """Return what holds of a draw by its kind."""
    return [({f"v{index}": Fraction(1)}, False)] if draw[0] == "exponential" else []


def supported(drawn: Drawn, noise: Sequence[Drawn], index: int) -> bool:
    """Whether what holds of a draw by its kind holds of another noise's draw of its number."""
    return not support(index, drawn) or index >= len(noise) or bool(support(index, noise[index]))


def walk(
    nodes: Sequence[Mapping[str, Any]],
    assumed: Sequence[Condition],
    excluded: Callable[[Mapping[str, Any], bool, list[Condition]], bool],
    noise: Sequence[Drawn] = (),
) -> Iterator[tuple[int, Path]]:
    """Yield the ends of a tree, with the paths to them, but what is excluded.

    Where it is walked with numbers that were drawn from ``noise``, they are of its kinds.
    """
    stack: list[tuple[int, tuple[Drawn, ...], tuple[Condition, ...]]] = [(0, (), ())]
    seen: set[int] = set()
    while stack:
        at, draws, conditions = stack.pop()
        require(0 <= at < len(nodes), "a node of the tree is missing")
        # two ways to one node would be two paths of which one is looked at
        require(at not in seen, "a node of the tree has two parents")
        seen.add(at)
        node = nodes[at]
        if "returns" in node:
            require(isinstance(node["returns"], str), "what is returned is written as text")
            forms = tuple(map(read_form, node["forms"]))
            require(places(node["returns"]) == len(forms), "a form for each place of an output")
            yield at, (draws, conditions, node["returns"], forms)
            continue
        require(node["then"] > at if "draw" in node else True, "the tree runs in a circle")
        if "draw" in node:
            drawn = (str(node["draw"]), exact(node["scale"]))
            require(drawn[0] in KINDS, "an unknown kind of noise")
            require(drawn[1] > 0, "a scale is positive")
            require(supported(drawn, noise, len(draws)), "a region reaches exponential noise")
            stack.append((node["then"], (*draws, drawn), conditions))
            continue
        test = read_condition(node["test"])
        known = {f"v{i}" for i in range(len(draws))}
        require(
            all(name[0] == "q" or name == "1" or name in known for name in test[0]),
            "a test of noise that was not drawn before it",
        )
        drawn_so_far = [s for i, d in enumerate(draws) for s in support(i, d)]
        follow = []
        for branch, condition in ((True, test), (False, negated(test))):
            before = [*assumed, *drawn_so_far, *conditions, condition]
            if not excluded(node, branch, before):
                child = node["yes" if branch else "no"]
                require(isinstance(child, int) and child > at, "a branch is missing")
                follow.append((child, draws, (*conditions, condition)))
        stack.extend(reversed(follow))


def impossible(node: Mapping[str, Any], branch: bool, conditions: list[Condition]) -> bool:
    """Whether a branch is absent, with the proof that it cannot occur."""
    absent: bool = node["yes" if branch else "no"] is None
    if absent:
        why = node.get("why") or {}
        require(contradict(conditions, why), "an absent branch is not shown to be impossible")
    return absent


Box = tuple[tuple[Fraction, Fraction], ...]
"""For each answer, between which numbers it moves."""

ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "even": round,
}


def most(kind: str, high: Fraction) -> Fraction:
    """Return how far up a rounded number moves at most, where the number does by up to high."""
    require(kind in ROUNDINGS, "an unknown kind of rounding")
    if kind != "even":  # floor(x + d) <= floor(x) + ceil(d), and ceil as well
        return Fraction(math.ceil(high))
    if high <= 0:  # it does not move against the number
        return Fraction(0)
    # within 1/2 of it before and after: by d + 1 at most; an even integer moves halves alike
    return high if high % 2 == 0 else Fraction(math.floor(high) + 1)


def boxes(document: Mapping[str, Any]) -> list[Box]:
    """Return boxes that have all moves of the answers, and of what is rounded of them."""
    kind, radii = document["neighbors"], [exact(r) for r in document["radii"]]
    require(document["answers"] == len(radii) > 0, "one radius for each answer")
    require(all(r >= 0 for r in radii), "no radius is negative")
    zero = Fraction(0)
    found: list[Box] = []
    if kind == "one":
        for i, r in enumerate(radii):
            for ends in ((zero, r), (-r, zero)):
                found.append(tuple(ends if j == i else (zero, zero) for j in range(len(radii))))
    elif kind == "together":
        found = [tuple((zero, r) for r in radii), tuple((-r, zero) for r in radii)]
    elif kind == "each":
        found = [tuple((-r, r) for r in radii)]
    else:
        require(kind == "boxes", "an unknown relation of neighbours")
        for written in document["boxes"]:
            box = tuple((exact(low), exact(high)) for low, high in written)
            require(len(box) == len(radii), "a box has ends for each answer")
            require(all(low <= high for low, high in box), "a box ends above where it begins")
            found.append(box)
        require(bool(found), "no box of moves")
        # neighbours have no order: both directions
        found += [tuple((-high, -low) for low, high in box) for box in found]
    for each in document.get("rounded", []):
        form = read_form(each["form"])
        width = len(found[0])
        require(form.keys() <= {"1", *(f"q{i}" for i in range(width))}, "rounded of answers alone")
        for k, box in enumerate(found):
            its = [[v * end for end in box[int(n[1:])]] for n, v in form.items() if n != "1"]
            low, high = sum(map(min, its), zero), sum(map(max, its), zero)
            ends = -most(each["kind"], -low), most(each["kind"], high)
            found[k] = (*box, ends)
    return found


def extended(document: Mapping[str, Any], answers: Sequence[Fraction]) -> list[Fraction]:
    """Return answers, and after them what is rounded of them."""
    values = list(answers)
    for each in document.get("rounded", []):
        form = read_form(each["form"])
        total = sum((v * values[int(n[1:])] for n, v in form.items() if n != "1"), form.get("1", 0))
        values.append(Fraction(ROUNDINGS[each["kind"]](Fraction(total))))
    return values


def corners(
    moves: Sequence[Box], rows: Sequence[Form], *, integers: bool = False
) -> Iterator[tuple[Fraction, ...]]:
    """Yield the moves of answers that a group must answer: of one-sided answers the worse side.

    Integers do not move by fractions: those between the ends are moves of their own. Where nothing
    moves, nothing needs to.
    """
    n = len(moves[0])
    signs = [
        {1 if row.get(f"q{i}", 0) > 0 else -1 for row in rows if row.get(f"q{i}")} for i in range(n)
    ]
    for box in moves:
        options: list[list[Fraction]] = []
        for (low, high), found in zip(box, signs, strict=True):
            sides = {low if sign > 0 else high for sign in found} or {Fraction(0)}
            if integers:
                require(all(side.denominator == 1 for side in sides), "integers move by integers")
                if len(found) == 2:
                    # a document lists each move: more than this is none that can be read
                    require(high - low <= 10**5, "fewer moves of integers")
                    sides = {Fraction(x) for x in range(int(low), int(high) + 1)}
            options.append(sorted(sides))
        yield from (move for move in itertools.product(*options) if any(move))


def check(document: Mapping[str, Any]) -> Fraction:
    """Check a proof, and return the epsilon that it proves.

    Parameters
    ----------
    document
        As `adaptive_dp.prove.Proved.document` writes it, or as JSON has read it.

    Returns
    -------
    Fraction
        The program in the document, with real-valued noise, is epsilon-DP for answers that are real
        numbers, under the relation of neighbours in the document. Of a document with ``rho`` it is
        rho-zCDP, and mu-GDP with mu^2 = 2 rho; of one with ``delta`` it is (epsilon, delta)-DP; of
        one with ``laws`` the answers have the values in it.

    Raises
    ------
    ProofError
        If it does not prove that.

    Examples
    --------
    >>> import json
    >>> from adaptive_dp import prove
    >>> def total(answers, noise):
    ...     return answers.sum() + noise.laplace(2)
    >>> written = json.dumps(prove.prove(total, answers=2, neighbors="one").document)
    >>> check(json.loads(written))
    Fraction(1, 2)
    >>> check(json.loads(written.replace('"scale": "2"', '"scale": "1"')))
    Traceback (most recent call last):
        ...
    adaptive_dp.prove.checker.ProofError: a move costs more than epsilon
    """
    require(isinstance(document, Mapping), "a proof is a document with names")
    if document.get("format") != FORMAT:
        raise ProofError(f"the format must be {FORMAT!r}, got {document.get('format')!r}")
    try:
        return _check(document)
    except WRONG as e:
        if isinstance(e, ProofError):
            raise
        raise ProofError(f"the document is not of its form: {type(e).__name__}: {e}") from None


def _check_concentrated(document: Mapping[str, Any]) -> Fraction:
    """Check that one move of Gaussian noise answers each corner, on all paths; return rho."""
    rho = exact(document["rho"])
    allowed = boxes(document)
    width = len(allowed[0])
    paths = dict(walk(document["program"], (), impossible))
    draws = next(iter(paths.values()))[0]
    rows: list[Form] = []
    for its_draws, conditions, _, forms in paths.values():
        require(its_draws == draws, "all paths draw the same noise")
        rows += [form for form, _ in conditions]
        rows += [*forms, *({n: -v for n, v in form.items()} for form in forms)]
    require(all(kind == "gaussian" for kind, _ in draws), "all noise is Gaussian")
    known = {"1", *(f"q{i}" for i in range(width)), *(f"v{i}" for i in range(len(draws)))}
    require(all(row.keys() <= known for row in rows), "an answer or a draw that there is not")
    table = {tuple(map(exact, each["answers"])): each["noise"] for each in document["moves"]}
    ends = [{f"q{i}": Fraction(s)} for i in range(width) for s in (1, -1)]
    for move in corners(allowed, ends):
        require(move in table, "a corner of the neighbours' moves is missing")
        moved = {f"q{i}": value for i, value in enumerate(move)}
        cost = Fraction(0)
        for index, shift in read_noise(table[move], draws).items():
            moved[f"v{index}"] = shift
            cost += shift**2 / (2 * draws[index][1] ** 2)
        require(cost <= rho, "a move costs more than rho")
        for row in rows:
            change = sum(v * moved.get(n, 0) for n, v in row.items() if n != "1")
            require(change >= 0, "a move leaves a path, or changes what is returned")
    return rho


def exponential_exceeds(epsilon: Fraction, ratio: Fraction) -> bool:
    """Whether a number that is below e^epsilon, for epsilon of at least 0, is at least a ratio.

    It is the power of a partial sum of the series, rounded down to 100 digits after the point.
    False says nothing of a ratio that is as near to e^epsilon as that.
    """
    times = max(1, math.ceil(epsilon))
    part = epsilon / times  # at most 1: of the series 75 terms leave less than 1e-100
    base = term = Fraction(1)
    for k in range(1, 75):
        term *= part / k
        term = Fraction(int(term * 10**120), 10**120)
        base += term
    power = Fraction(1)
    while times and power < ratio:
        if times % 2:
            power = Fraction(int(power * base * 10**100), 10**100)
        # at least 1: what comes after does not make the product smaller
        times, base = times // 2, Fraction(int(min(base, ratio) ** 2 * 10**100), 10**100)
    return power >= ratio


def _check_laws(document: Mapping[str, Any], epsilon: Fraction) -> Fraction:
    """Check the laws of a program whose answers have finitely many values."""
    laws: dict[tuple[Fraction, ...], dict[str, Fraction]] = {}
    for each in document["laws"]:
        law = {str(output): exact(chance) for output, chance in each["outputs"].items()}
        require(sum(law.values()) == 1, "the probabilities of a law add up to 1")
        require(all(chance > 0 for chance in law.values()), "a probability is positive")
        laws[tuple(map(exact, each["answers"]))] = law
    values = {value for at in laws for value in at}
    every = set(itertools.product(values, repeat=document["answers"]))
    require(set(laws) == every, "a law for all answers of the domain")
    largest = Fraction(1)
    for at, law in laws.items():
        for i, value in itertools.product(range(len(at)), values):
            other = laws[(*at[:i], value, *at[i + 1 :])]
            require(law.keys() == other.keys(), "what is possible depends on the answers")
            largest = max([largest, *(law[output] / other[output] for output in law)])
    require(exponential_exceeds(epsilon, largest), "a ratio is above e^epsilon")
    return epsilon


BITS = 512
"""Of the numbers from which a delta is enclosed: integers, times 2^-512, rounded outward."""
UNIT = 1 << BITS
MOST_LOSSES, LARGEST = 5000, Fraction(1000)
"""So many values of a loss are summed over, and so large one is at most: more is no short check."""

Ends = tuple[int, int]


def exponential(x: Fraction) -> Ends:
    """Return bounds of e^x, times 2^BITS.

    By the series, of x halved until it is at most 1/16, of which 120 terms leave less than the
    last bit; and squared as often.
    """
    if x < 0:
        low, high = exponential(-x)
        return UNIT * UNIT // high, -(-UNIT * UNIT // low)
    require(x <= LARGEST, "an exponent is at most 1000")
    halvings = math.ceil(x).bit_length() + 4
    part = (x.numerator << BITS) // (x.denominator << halvings)
    low = high = term = above = UNIT
    for k in range(1, 120):
        term, above = term * part // (k * UNIT), -(-above * (part + 1) // (k * UNIT))
        low, high = low + term, high + above
    high += 1
    for _ in range(halvings):
        low, high = low * low >> BITS, -(-high * high >> BITS)
    return low, high


@lru_cache(maxsize=1)
def _root() -> Ends:
    """Return bounds of sqrt(2 pi), times 2^BITS; pi by Machin's sum of two arctangents."""
    one = UNIT << 64

    def arctangent(n: int) -> int:  # of 1/n: fewer than 300 terms, each off by 1 at most
        return sum((-1) ** k * (one // ((2 * k + 1) * n ** (2 * k + 1))) for k in range(300))

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    low, high = (math.isqrt(2 * (pi + side * (1 << 14)) * one) >> 64 for side in (-1, 1))
    return low, high + 1


@lru_cache(maxsize=4096)
def normal(x: Fraction) -> Ends:
    """Return bounds of the probability that a standard normal number is at most x, times 2^BITS.

    Of t = -x > 0 it is 1/2 less the density times t + t^3/3 + t^5/15 + ...; beyond 36 below 2^-900.
    """
    if x > 0:
        low, high = normal(-x)
        return UNIT - high, UNIT - low
    t = -x
    if t > 36:
        return 0, 1
    square = t * t
    under = (square.numerator << BITS) // square.denominator
    over = under + 1
    term = low = (t.numerator << BITS) // t.denominator
    above = high = low + 1
    odd = 3
    while above > 2 or 2 * square > odd:
        term, above = term * under // (odd * UNIT), -(-above * over // (odd * UNIT))
        low, high = low + term, high + above
        odd += 2
    high += 4  # each term that is left is at most half of the one before it
    grown, root = exponential(square / 2), _root()
    half = UNIT >> 1
    below = half - -(-(high << 2 * BITS) // (grown[0] * root[0]))
    return max(below, 0), half - (low << 2 * BITS) // (grown[1] * root[1])


def largest_delta(
    losses: Sequence[tuple[Fraction, int]], mu: Fraction, epsilon: Fraction
) -> Fraction:
    r"""Return an upper bound of the delta of a composition, by sums over cells.

    **Theorem.** Laplace noise of scale 1, shifted by a, is at most as private as geometric noise
    with :math:`r = e^{-a/n}` that is shifted by n: losses :math:`a (1 - 2 i / n)`, i from 0 to n,
    with probabilities :math:`r^i (1 - r)/(1 + r)`, at both ends all that is beyond them:
    :math:`1/(1 + r)` and :math:`r^n/(1 + r)`. For delta at any epsilon is the mean of
    :math:`(1 - e^\epsilon s)_+` over P, convex in the ratio s = Q/P, which between 0 and a is
    :math:`e^{2 y - a}`; and on each cell :math:`[i a/n, (i + 1) a/n]` both P and Q keep their
    masses where all of P is moved to the two ends of the cell. With one cell it is randomized
    response, at most as private as which is each a-DP pair. Products of pairs that dominate
    dominate the composition (Zhu, Dong and Wang 2022, theorem 10), and

    .. math:: \delta(\epsilon) = \sum_l P(l) G(\epsilon - l), \quad
        G(x) = \Phi(\mu/2 - x/\mu) - e^x \Phi(-\mu/2 - x/\mu),

    where P is the law of the sum of the losses (Balle and Wang 2018, theorem 8, for all real x).

    Parameters
    ----------
    losses
        For each Laplace draw, how far it is shifted, over its scale, and the number n of cells; an
        a-DP mechanism has one cell.
    mu
        The shift of Gaussian noise over its standard deviation.
    epsilon
        Where.
    """
    law = {Fraction(0): UNIT}
    for shift, cells in losses:
        require(isinstance(cells, int) and cells > 0, "a number of cells is positive")
        require((cells + 1) * len(law) <= 40 * MOST_LOSSES, "fewer cells")
        require(0 <= shift <= LARGEST, "a shift is 0 to 1000 scales")
        if not shift:
            continue
        # all masses are rounded up, which makes delta larger
        low, high = exponential(-shift / cells)
        edge = -(-UNIT * UNIT // (UNIT + low))
        inner = -(-(UNIT - low) * UNIT // (UNIT + low))
        masses, power = [], UNIT
        for i in range(cells + 1):
            masses.append(-(-power * (edge if i in (0, cells) else inner) >> BITS))
            power = -(-power * high >> BITS)
        total: dict[Fraction, int] = {}
        for loss, chance in law.items():
            for i, mass in enumerate(masses):
                at = loss + shift - 2 * i * shift / cells
                total[at] = total.get(at, 0) + chance * mass
        law = {at: -(-mass >> BITS) for at, mass in total.items()}
        require(len(law) <= MOST_LOSSES, "fewer cells")  # of a sum there are no fewer
    delta = 0
    for loss, mass in law.items():
        x = epsilon - loss
        if mu:
            factor = exponential(x)[0] * normal(-mu / 2 - x / mu)[0] >> BITS
            part = normal(mu / 2 - x / mu)[1] - factor
        else:
            part = UNIT - exponential(x)[0]
        delta += -(-mass * max(part, 0) >> BITS)
    return min(Fraction(delta, UNIT), Fraction(1))


def _check_delta(document: Mapping[str, Any]) -> Fraction:
    """Check that moves of noise bound the loss by a composition, and its delta; return epsilon.

    For each corner d of the answers' moves one move s of all Gaussian draws is given, and either
    for each group moves of its other draws, by which it answers (d, s), and others by which it
    answers (-d, -s): a pure loss, composed with Gaussian noise. Or one move of all draws on all
    paths, of which each Laplace draw is shifted by a bounded number of scales. The theorem is in
    `adaptive_dp.prove.concentrated`.
    """
    epsilon, delta, mu = (exact(document[name]) for name in ("epsilon", "delta", "mu"))
    require(epsilon >= 0 and mu >= 0, "epsilon and mu are not negative")
    losses = [(exact(shift), cells) for shift, cells in document["losses"]]
    alone: bool = document["alone"]  # one move of all draws, or one for each group of paths
    allowed = boxes(document)
    parts = _parts(document, len(allowed[0]))
    every = [_rows(part) for part in parts]
    whole = any(kind == "geometric" for part in parts for kind, _ in part[1])
    if whole and document["neighbors"] == "one":
        radii = map(exact, document["radii"])
        require(all(r <= 1 for r in radii), "integers of an l1 ball move by 1, one of them")
    normals = {(i, d[1]) for part in parts for i, d in enumerate(part[1]) if d[0] == "gaussian"}
    if alone:
        draws = parts[0][1]
        require(all(part[1] == draws for part in parts), "all paths draw the same noise")
        kinds = {kind for kind, _ in draws}
        require(kinds <= {"laplace", "gaussian"}, "Laplace and Gaussian noise alone")
        shifted = [i for i, draw in enumerate(draws) if draw[0] == "laplace"]
        require(len(shifted) == len(losses), "a shift for each Laplace draw")
    else:
        require(len(losses) == 1 and losses[0][1] == 1, "one pure loss")
    table = {tuple(map(exact, each["answers"])): each for each in document["moves"]}
    ends = [{f"q{i}": Fraction(s)} for i in range(len(allowed[0])) for s in (1, -1)]
    for move in corners(allowed, ends, integers=whole):
        # a row is of a move and of its negative one: neighbours have no order
        back = tuple(-x for x in move)
        at = move if move in table else back
        require(at in table, "a corner of the neighbours' moves is missing")
        row = table[at]
        gaussian = {(int(i), exact(scale)): exact(s) for i, scale, s in row["gaussian"]}
        require(len(gaussian) == len(row["gaussian"]), "a Gaussian draw moves in one way")
        require(gaussian.keys() <= normals, "a move of noise that is not drawn")
        square = sum((s * s / scale**2 for (_, scale), s in gaussian.items()), Fraction(0))
        require(square <= mu * mu, "Gaussian noise moves by more than mu")
        noises = row["noise"]
        require(len(noises) == (1 if alone else len(parts)), "moves of noise for each group")
        if alone:
            moves = read_noise(noises[0][0], draws)
            for i, (shift, _) in zip(shifted, losses, strict=True):
                its = abs(moves.get(i, Fraction(0))) / draws[i][1]
                require(its <= shift, "Laplace noise moves by more than its shift")
        for number, (part, rows) in enumerate(zip(parts, every, strict=True)):
            # of one move of all draws the negative one undoes it
            for sign, noise in zip((1, -1), noises[0 if alone else number], strict=False):
                its_draws = part[1]
                moved = {
                    i: sign * gaussian.get((i, draw[1]), Fraction(0))
                    for i, draw in enumerate(its_draws)
                    if draw[0] == "gaussian"
                }
                cost = _cost(rows, its_draws, [sign * x for x in at], noise, moved)
                require(alone or cost <= losses[0][0], "a move costs more than the pure loss")
            count = len(noises[0 if alone else number])
            require(count == (1 if alone else 2), "a move and its negative one are answered")
    require(largest_delta(losses, mu, epsilon) <= delta, "delta is too small")
    return epsilon


def _check(document: Mapping[str, Any]) -> Fraction:
    if "delta" in document:
        # who reads a document tells from its keys what it claims
        require(not document.keys() & {"rho", "laws", "loop"}, "one claim in a document")
        return _check_delta(document)
    if "rho" in document:
        return _check_concentrated(document)
    epsilon = exact(document["epsilon"])
    require(epsilon >= 0, "epsilon is not negative")
    if document["neighbors"] == "domain":
        return _check_laws(document, epsilon)
    if "loop" in document:
        from adaptive_dp.prove.check_every import check_every

        return check_every(document)
    allowed = boxes(document)
    parts = _parts(document, len(allowed[0]))
    joined = {int(i) for each in document.get("joined", []) for i in each["groups"]}
    for number, (group, part) in enumerate(zip(document["groups"], parts, strict=True)):
        if number in joined:
            continue
        draws, rows = part[1], _rows(part)
        table = {tuple(map(exact, each["answers"])): each["noise"] for each in group["moves"]}
        whole = any(kind == "geometric" for kind, _ in draws)
        for move in corners(allowed, rows, integers=whole):
            require(move in table, "a corner of the neighbours' moves is missing")
            cost = _cost(rows, draws, move, table[move], {})
            require(cost <= epsilon, "a move costs more than epsilon")
    outputs = [part[2] for part in parts]
    for each in document.get("joined", []):
        members = [int(i) for i in each["groups"]]
        require(len({outputs[i] for i in members}) == 1, "joined groups return the same")
        # the density of an output is compared as a whole: all of it, or each group by itself
        all_of_it = [i for i, output in enumerate(outputs) if output == outputs[members[0]]]
        require(sorted(members) == all_of_it, "joined groups are all that return the same")
        its = exact(each["epsilon"])
        require(its <= epsilon, "joined groups cost more than epsilon")
        systems = spread(document, bool(each.get("steps")))
        _check_joined(each, [parts[i] for i in members], systems, its)
    return epsilon


def _parts(document: Mapping[str, Any], width: int) -> list[Part]:
    """Return the groups of a tree's paths, each path in one, with what holds of its region."""
    nodes = document["program"]
    paths = dict(walk(nodes, (), impossible))
    known = {"1", *(f"q{i}" for i in range(width))}
    for draws, conditions, _, forms in paths.values():
        drawn = {f"v{i}" for i in range(len(draws))}
        for form in (*(form for form, _ in conditions), *forms):
            require(form.keys() <= known | drawn, "an answer or a draw that there is not")
    grouped: list[int] = []
    parts: list[Part] = []
    for group in document["groups"]:
        ends = list(group["ends"])
        grouped += ends
        require(bool(ends) and all(end in paths for end in ends), "a group has paths of the tree")
        draws, conditions, returned, forms = paths[ends[0]]
        for end in ends[1:]:
            its_draws, _, its_returned, its_forms = paths[end]
            same = (its_draws, its_returned, its_forms) == (draws, returned, forms)
            require(same, "paths of a group return the same, with the same noise")
        held = [s for i, draw in enumerate(draws) for s in support(i, draw)]
        if len(ends) > 1:
            region = [read_condition(each) for each in group["region"]]
            _check_union(nodes, group, {end: paths[end] for end in ends}, held, region)
        else:
            region = list(conditions)
        parts.append(([*region, *held], draws, returned, forms))
    require(sorted(grouped) == sorted(paths), "each path is in one group")
    return parts


def _rows(part: Part) -> list[Form]:
    """Return what must not fall where a group moves into itself, and returns the same."""
    fixed = [each for form in part[3] for each in (form, {n: -v for n, v in form.items()})]
    return [*(form for form, _ in part[0]), *fixed]


def _cost(
    rows: Sequence[Form],
    draws: Sequence[Drawn],
    move: Sequence[Fraction],
    noise: Mapping[str, str],
    gaussian: Mapping[int, Fraction],
) -> Fraction:
    """Return the cost of a move of noise, which answers a move of the answers."""
    moved = {f"q{i}": value for i, value in enumerate(move)}
    moved |= {f"v{index}": value for index, value in gaussian.items()}
    cost = Fraction(0)
    for index, shift in read_noise(noise, draws).items():
        kind, scale = draws[index]
        require(kind != "gaussian" or shift == 0, "Gaussian noise has no finite epsilon")
        require(kind != "geometric" or shift.denominator == 1, "integers move by integers")
        if kind != "gaussian":
            moved[f"v{index}"] = shift
            cost += abs(shift) / scale
    for form in rows:
        change = sum(v * moved.get(n, 0) for n, v in form.items() if n != "1")
        require(change >= 0, "a move leaves its group, or changes what is returned")
    return cost


def _check_union(
    nodes: Sequence[Mapping[str, Any]],
    group: Mapping[str, Any],
    paths: Mapping[int, Path],
    held: list[Condition],
    region: list[Condition],
) -> None:
    """Check that a region is the union of paths."""
    for (_, conditions, _, _), whys in zip(paths.values(), group["inside"], strict=True):
        for inequality, why in zip(region, whys, strict=True):
            known = [*held, *conditions, negated(inequality)]
            require(contradict(known, why), "a path of a group is not in its region")
    whys = iter(group["cover"])

    def excluded(node: Mapping[str, Any], branch: bool, conditions: list[Condition]) -> bool:
        if node["yes" if branch else "no"] is None:
            return True  # it was shown before that it cannot occur at all
        why: Mapping[str, str] = next(whys, {})
        return bool(why) and contradict(conditions, why)

    # a region is of its group's draws: where they may be negative, no other path says they are not
    its_draws = next(iter(paths.values()))[0]
    for end, _ in walk(nodes, region, excluded, its_draws):
        require(end in paths, "a group's region holds a path that is not of the group")


def added(*forms: tuple[Fraction | int, Form]) -> Form:
    """Return a sum of forms times numbers."""
    total: Form = {}
    for factor, form in forms:
        for name, value in form.items():
            total[name] = total.get(name, Fraction(0)) + factor * value
    return {name: value for name, value in total.items() if value}


def replaced(form: Form, by: Mapping[str, Form]) -> Form:
    """Return a form with variables replaced by forms."""
    return added(*((v, by.get(name, {name: Fraction(1)})) for name, v in form.items()))


def spread(
    document: Mapping[str, Any], steps: bool
) -> list[tuple[dict[str, Form], list[Condition]]]:
    """Return the answers after a move of t times what neighbours allow, and what holds of moves.

    Of all moves together, or of each box by itself.
    """
    one = Fraction(1)
    kind, radii = document["neighbors"], [exact(r) for r in document["radii"]]
    if kind == "boxes" or document.get("rounded") or steps:
        found: list[tuple[dict[str, Form], list[Condition]]] = []
        for box in boxes(document):
            between: list[Condition] = [({"t": one}, False)]
            for i, (low, high) in enumerate(box):
                between.append((added((1, {f"d{i}": one}), (-low, {"t": one})), False))
                between.append((added((-1, {f"d{i}": one}), (high, {"t": one})), False))
            moved = {f"q{i}": {f"q{i}": one, f"d{i}": one} for i in range(len(box))}
            found.append((moved, between))
        return found
    time: Condition = ({"t": one}, False)
    if kind == "one":
        after = {f"q{i}": {f"q{i}": one, f"p{i}": one, f"m{i}": -one} for i in range(len(radii))}
        signs: list[Condition] = []
        for i, r in enumerate(radii):
            for side in "pm":
                signs.append(({f"{side}{i}": one}, False))
                if not r:
                    signs.append(({f"{side}{i}": -one}, False))
        room: Form = {"t": one}
        room |= {f"{s}{i}": -1 / r for i, r in enumerate(radii) if r for s in "pm"}
        return [(after, [time, *signs, (room, False)])]
    after = {f"q{i}": {f"q{i}": one, f"d{i}": one} for i in range(len(radii))}
    near = [time]
    for i, r in enumerate(radii):  # each within r t of 0
        near.append(({f"d{i}": one, "t": r}, False))
        near.append(({f"d{i}": -one, "t": r}, False))
    if kind == "together":  # and, in radii, within t of each other
        for i, r in enumerate(radii):
            for j, other in enumerate(radii):
                if i != j and r and other:
                    near.append(({f"d{i}": 1 / r, f"d{j}": -1 / other, "t": one}, False))
    return [(after, near)]


def _check_joined(
    written: Mapping[str, Any],
    parts: Sequence[Part],
    systems: Sequence[tuple[dict[str, Form], list[Condition]]],
    epsilon: Fraction,
) -> None:
    """Check that one draw takes up the difference of each expression; see `alignment.join`."""
    draws, forms = parts[0][1], parts[0][3]
    solved = [int(k) for k in written["solved"]]
    require(len(solved) == len(set(solved)) == len(forms) > 0, "a draw for each expression")
    require(all(kind != "geometric" for kind, _ in draws), "a boundary of integers is no null set")
    for _, its_draws, _, its_forms in parts:
        require(its_draws == draws, "joined groups draw the same noise, with the same scales")
        for j, k in enumerate(solved):
            require(draws[k][0] == "laplace", "the draw that takes up a difference is Laplace")
            for i, (form, first) in enumerate(zip(its_forms, forms, strict=True)):
                coefficient = form.get(f"v{k}", Fraction(0))
                require(coefficient == first.get(f"v{k}", 0), "it enters in one way")
                require(bool(coefficient) == (i == j), "it enters its own expression alone")
    whys = iter(written["pairs"])
    steps = bool(written.get("steps"))
    limits: list[tuple[Form, int]] = []  # what is not positive, and at which t
    for signs in itertools.product((1, -1), repeat=len(solved)):
        cost: Form = {"t": -epsilon}
        for k, sign in zip(solved, signs, strict=True):
            moved = {f"w{k}": Fraction(1), f"v{k}": Fraction(-1)}
            cost = added((1, cost), (sign / draws[k][1], moved))
        limits.append((cost, 1))
    if steps:  # between neighbours alone; and what is drawn is one number
        for k, sign in itertools.product(solved, (1, -1)):
            limits.append(({f"w{k}": Fraction(sign), f"v{k}": Fraction(-sign)}, 0))
    for answers, allowed in systems:
        after = answers | {f"v{k}": {f"w{k}": Fraction(1)} for k in solved}
        for one, other in itertools.product(parts, parts):
            # of t times neighbours' moves: closed, as a supremum may be
            system = [(form, strict and steps) for form, strict in one[0]]
            system += [(replaced(form, after), strict and steps) for form, strict in other[0]]
            for form, its in zip(one[3], other[3], strict=True):
                difference = added((1, form), (-1, replaced(its, after)))
                system += [(difference, False), (added((-1, difference)), False)]
            for limit, time in limits:
                at = {"t": Fraction(1), "1": Fraction(-time)}
                whole = [(at, False), (added((-1, at)), False)] if steps else []
                why: Mapping[str, str] = next(whys, {})
                every = [*system, *whole, *allowed, (limit, True)]
                require(contradict(every, why), "a draw moves by more than epsilon")
    positive = [bool(each) for each in written["positive"]]
    require(len(positive) == len(forms), "of each expression, whether it is positive")
    for part, its_whys in zip(parts, written["bounds"], strict=True):
        claims = [form for form, above in zip(part[3], positive, strict=True) if above]
        for form, why in zip(claims, its_whys, strict=True):
            claim = negated((form, False))
            require(contradict([*part[0], claim], why), "an expression may be negative")
    regions = []
    for conditions, _, _, its_forms in parts:
        by = {}
        for j, (k, form) in enumerate(zip(solved, its_forms, strict=True)):
            rest = {name: value for name, value in form.items() if name != f"v{k}"}
            by[f"v{k}"] = added((1 / form[f"v{k}"], added((1, {f"y{j}": Fraction(1)}), (-1, rest))))
        regions.append(
            [
                (replaced(form, by), strict and not any(name[0] == "v" for name in form))
                for form, strict in conditions
            ]
        )
    start = [({f"y{j}": Fraction(1)}, True) for j, above in enumerate(positive) if above]
    start += [s for i, draw in enumerate(draws) for s in support(i, draw)]
    pending = [(start, written["cover"])]
    while pending:
        assumed, cover = pending.pop()
        if "why" in cover:
            require(contradict(assumed, cover["why"]), "what is returned depends on the answers")
            continue
        for each, inner in zip(regions[cover["by"]], cover["without"], strict=True):
            pending.append(([*assumed, negated(each)], inner))
            assumed = [*assumed, each]
