"""Programs proved and refuted: against truths by hand, integrals, exact laws; forged proofs."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import mpmath
import numpy as np
import prove_programs as programs
import pytest
from prove_programs import RIGHT, WRONG, Case
from scipy import stats
from scipy.integrate import quad

import adaptive_dp as dp
from accountants import Guarantee, Laplace, Sequential, Spend
from accountants.losses.gaussian import GaussianBound
from adaptive_dp import prove
from adaptive_dp.cli.main import main
from adaptive_dp.noise import SeededStream
from adaptive_dp.pate import LNMax
from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import Group, groups_of
from adaptive_dp.prove.compare import compare
from adaptive_dp.prove.exact import Inequality, contradiction, maximize
from adaptive_dp.prove.laws import NoLaw, bounds, law
from adaptive_dp.prove.mechanism import ProvedProgram
from adaptive_dp.prove.program import Draw, Leaf, Program
from adaptive_dp.prove.program import Test as Branch
from adaptive_dp.prove.verdicts import claim_of


def cases(rows: list[Case]) -> list[Any]:
    return [
        pytest.param(row, id=row.name, marks=pytest.mark.slow if row.slow else ()) for row in rows
    ]


def proof_of(program: Callable[..., Any], answers: int, **rest: Any) -> prove.Proved:
    verdict = prove.prove(program, answers=answers, **rest)
    assert isinstance(verdict, prove.Proved), str(verdict)
    return verdict


# --- the programs of the literature


@pytest.mark.parametrize("case", cases(RIGHT))
def test_right_programs_are_proved_tightly(case: Case) -> None:
    verdict = proof_of(case.program, case.answers, epsilon=case.claim, neighbors=case.neighbors)
    if not isinstance(case.tight, str):
        assert verdict.least == Fraction(case.tight)
        assert verdict.tight
    document = json.loads(json.dumps(verdict.document))
    assert checker.check(document) == verdict.epsilon
    compare(case.program, document)
    assert f"for {case.answers} answer" in str(verdict)
    assert "every length" not in str(verdict)


@pytest.mark.parametrize("case", cases(WRONG))
def test_wrong_programs_are_refuted(case: Case) -> None:
    verdict = prove.prove(
        case.program, answers=case.answers, epsilon=case.claim, neighbors=case.neighbors
    )
    assert isinstance(verdict, prove.Refuted), str(verdict)
    if case.tight is None:
        assert math.isinf(verdict.lower) or math.isinf(verdict.loss) or case.name == "branch on raw"
    elif not isinstance(case.tight, str):
        assert max(verdict.lower, verdict.loss) <= float(case.tight) + 1e-12
    # the printed line computes the loss again
    names = {"prove": prove, verdict.name: case.program}
    assert eval(verdict.line, names) == pytest.approx(verdict.loss)
    assert verdict.loss > case.claim
    # they are neighbours
    moves = [abs(a - b) for a, b in zip(verdict.at, verdict.neighbor, strict=True)]
    assert max(moves) <= 1
    if case.neighbors == "one":
        assert sum(moves) <= 1


def test_truth_depends_on_the_number_of_answers() -> None:
    """Thresholds drawn again at full scale keep the claim when short, and break it when long."""
    program = programs.sparse_vector(2, 4 * 2, 2, fresh=2)
    assert isinstance(prove.prove(program, answers=3, epsilon=1), prove.Proved)
    long = prove.prove(program, answers=12, epsilon=1)
    assert isinstance(long, prove.Refuted)
    assert long.lower == 1.5


def test_a_loose_claim_says_what_would_do() -> None:
    verdict = proof_of(programs.noisy_max(2), 3, epsilon=1.5)
    assert (verdict.epsilon, verdict.least, verdict.tight) == (Fraction(3, 2), 1, True)
    assert "= 1; no smaller epsilon holds" in str(verdict)
    assert "1/b_threshold + 2/b_query" in str(proof_of(programs.sparse_vector(), 6, epsilon=1))


# --- proved epsilons against integrals that know nothing of the search


def laplace_cdf(x: float, scale: float) -> float:
    return float(stats.laplace.cdf(x, scale=scale))


def largest_loss(law_at: Callable[[tuple[float, ...]], np.ndarray], answers: int) -> float:
    """Return the largest log ratio of the outputs' probabilities on a grid of answers."""
    grid = list(itertools.product((-4.0, -1.0, 0.0, 2.0), repeat=answers))
    laws = {}
    worst = 0.0
    for point in grid:
        for move in itertools.product((-1.0, 0.0, 1.0), repeat=answers):
            other = tuple(a + b for a, b in zip(point, move, strict=True))
            for each in (point, other):
                if each not in laws:
                    laws[each] = law_at(each)
            worst = max(worst, float(np.max(np.abs(np.log(laws[point] / laws[other])))))
    return worst


def test_noisy_max_by_quadrature() -> None:
    """P(i) is the integral of a density and the others' distribution functions."""

    def law_at(q: tuple[float, ...]) -> np.ndarray:
        x = np.linspace(-60, 60, 24001)
        density = [stats.laplace.pdf(x - a, scale=2) for a in q]
        below = [stats.laplace.cdf(x - a, scale=2) for a in q]
        return np.array(
            [
                np.trapezoid(density[i] * np.prod([b for j, b in enumerate(below) if j != i], 0), x)
                for i in range(len(q))
            ]
        )

    found = largest_loss(law_at, 2)
    proved = float(proof_of(programs.noisy_max(2), 2).least)
    assert 0.8 * proved < found <= proved + 1e-6


def test_sparse_vector_by_quadrature() -> None:
    def law_at(q: tuple[float, ...]) -> np.ndarray:
        def hit(i: int, rho: float) -> float:
            return 1 - laplace_cdf(rho - q[i], 4)

        def density(i: int, rho: float) -> float:
            chance = math.exp(-abs(rho) / 2) / 4
            for j in range(min(i, 2)):
                chance *= 1 - hit(j, rho)
            return chance * (hit(i, rho) if i < 2 else 1)

        return np.array(
            [
                quad(lambda r, i=i: density(i, r), -60, 60, limit=300, points=[0, *q])[0]
                for i in range(3)
            ]
        )

    grid = [(0.0, 0.0), (3.0, -2.0), (-4.0, 1.0)]
    proved = float(proof_of(programs.sparse_vector(), 2).least)
    # the laws themselves, by exact sums of exponentials
    program = prove.unroll(programs.sparse_vector(), 2)
    by_output = {group.leaf.skeleton: group for group in groups_of(program)}
    for q in grid:
        numbers = law_at(q)
        for i, output in enumerate(("[True]", "[False, True]", "[False, False]")):
            low, high = bounds(law(by_output[output], [Fraction(x) for x in q], []), 40)
            assert float(low) == pytest.approx(numbers[i], rel=1e-6)
            assert high - low < Fraction(1, 10**30)
        for move in itertools.product((-1.0, 1.0), repeat=2):
            other = law_at((q[0] + move[0], q[1] + move[1]))
            assert np.max(np.abs(np.log(numbers / other))) <= proved + 1e-6


@pytest.mark.parametrize(
    "program",
    [
        programs.noisy_max(2),
        programs.noisy_max_exponential(2),
        programs.between,
        programs.sparse_vector(4, 8, 2, fresh=4),
        programs.outside_band(3),
        programs.noisy_top(2, 4),
    ],
    ids=lambda p: p.__name__,
)
def test_laws_add_up_to_one(program: Callable[..., Any]) -> None:
    """Exactly, at any answers: no path is lost, and no group counts twice."""
    for answers in ([0, 0, 0], [3, -1, Fraction(1, 2)]):
        total: dict[Fraction, Fraction] = {}
        for group in groups_of(prove.unroll(program, 3)):
            for exponent, factor in law(group, answers, []).items():
                total[exponent] = total.get(exponent, Fraction(0)) + factor
        assert {s: c for s, c in total.items() if c} == {Fraction(0): Fraction(1)}


def path_law(program: Program, answers: Any, output: Any) -> tuple[Fraction, Fraction]:
    """Return bounds of an output's probability, path by path, without groups."""
    low = high = Fraction(0)
    for path in program.paths():
        if path.leaf.skeleton != repr(output):
            continue
        group = Group((path.number,), path.draws, path.leaf, path.conditions)
        below, above = bounds(law(group, answers, []), 60)
        low, high = low + below, high + above
    return low, high


def edited(rng: random.Random) -> tuple[Callable[..., Any], int]:
    """Return a program with random edits: scales halved, noise dropped, thresholds reused, ..."""
    kind = rng.choice(["sparse", "sparse", "sparse", "max", "top", "band"])
    half = rng.choice([1, 1, 0.5, 0.75])
    if kind == "max":
        return rng.choice(
            [programs.noisy_max(2 * half), programs.noisy_max_exponential(2 * half)]
        ), 3
    if kind == "top":
        return programs.noisy_top(2, 4 * half), 3
    if kind == "band":
        return programs.outside_band(4 * half), 2
    return (
        programs.sparse_vector(
            rng.choice([2, 2, 4, 1, None]),
            rng.choice([4, 8, 2, 3]),
            rng.choice([1, 1, 2, None]),
            fresh=rng.choice([None, None, 2, 4]),
        ),
        rng.choice([3, 4, 5]),
    )


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(s, marks=pytest.mark.slow) for s in range(30, 150))]
)
def test_no_proof_of_an_edited_program_is_refuted(seed: int) -> None:
    """What is proved is not exceeded by exact probabilities; what is refuted is."""
    rng = random.Random(seed)
    function, answers = edited(rng)
    verdict = prove.prove(function, answers=answers, epsilon=1)
    program = prove.unroll(function, answers)
    if isinstance(verdict, prove.Refuted):
        if not math.isinf(verdict.loss):
            one, other = (
                path_law(program, x, verdict.output) for x in (verdict.at, verdict.neighbor)
            )
            assert math.log(one[0] / other[1]) > 1
        return
    assert isinstance(verdict, prove.Proved), str(verdict)
    compare(function, verdict.document, trials=10, seed=seed)
    outputs = sorted({path.leaf.skeleton for path in program.paths()})
    worst = [each["answers"] for g in verdict.document["groups"] for each in g["moves"]]
    for _ in range(6):
        at = [Fraction(rng.randrange(-6, 7)) for _ in range(answers)]
        move = [Fraction(x) for x in rng.choice(worst)]
        neighbor = [a + d for a, d in zip(at, move, strict=True)]
        output = eval(rng.choice(outputs))
        one, other = (path_law(program, x, output) for x in (at, neighbor))
        if one[0] > 0 and other[0] > 0:
            assert abs(math.log(one[0] / other[0])) <= 1 + 1e-12


def random_program(rng: random.Random) -> Callable[..., Any]:
    """Return a program of up to three draws and three tests of random sums, with random outputs."""
    kinds = tuple(rng.choice(["laplace", "laplace", "exponential"]) for _ in range(3))
    scales = tuple(rng.choice([1, 2, 4]) for _ in range(3))

    def form(draws: int) -> tuple[tuple[int, ...], int]:
        factors = [rng.choice([-1, 0, 0, 1, 1]) for _ in range(2)]
        factors += [rng.choice([-1, 0, 1, 1]) for _ in range(draws)]
        return tuple(factors), rng.choice([0, 0, 0, 1, -1, 2])

    def node(draws: int, depth: int) -> tuple[Any, ...]:
        chance = rng.random()
        if draws < 3 and (chance < 0.5 or draws == 0):
            return ("draw", draws, node(draws + 1, depth))
        if depth < 3 and chance < 0.85:
            strict = rng.random() < 0.5
            return ("test", form(draws), strict, node(draws, depth + 1), node(draws, depth + 1))
        return ("leaf", rng.choice([0, 1]), form(draws) if rng.random() < 0.25 else None)

    tree = node(0, 0)

    def random_(answers: Any, noise: Any) -> Any:
        values, at = list(answers), tree

        def of(form: Any) -> Any:
            return sum((a * x for a, x in zip(form[0], values, strict=True) if a), form[1])

        while at[0] != "leaf":
            if at[0] == "draw":
                values.append(getattr(noise, kinds[at[1]])(scales[at[1]]))
                at = at[2]
            else:
                value = of(at[1])
                at = at[3] if (value > 0 if at[2] else value >= 0) else at[4]
        return at[1] if at[2] is None else (at[1], of(at[2]))

    return random_


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(s, marks=pytest.mark.slow) for s in range(30, 600))]
)
def test_random_programs(seed: int) -> None:
    """No verdict on a random program contradicts exact probabilities, path by path."""
    rng = random.Random(seed)
    function = random_program(rng)
    neighbors = rng.choice(["each", "one", "together"])
    claim = rng.choice([None, 0.5, 1, 2])
    verdict = prove.prove(function, answers=2, neighbors=neighbors, epsilon=claim)
    program = prove.unroll(function, 2)
    if isinstance(verdict, prove.Refuted):
        moves = [b - a for a, b in zip(verdict.at, verdict.neighbor, strict=True)]
        assert max(map(abs, moves)) <= 1
        if math.isfinite(verdict.loss):
            names = {"prove": prove, verdict.name: function}
            assert eval(verdict.line, names) == pytest.approx(verdict.loss)
            if not isinstance(verdict.output, tuple):
                try:
                    one, other = (
                        path_law(program, x, verdict.output) for x in (verdict.at, verdict.neighbor)
                    )
                except NoLaw:
                    return
                assert math.log(one[0] / other[1]) > float(verdict.epsilon)
        return
    if not isinstance(verdict, prove.Proved):
        return
    for _ in range(15):
        at = [Fraction(rng.randrange(-12, 13), 2) for _ in range(2)]
        move = {
            "each": [Fraction(rng.randrange(-2, 3), 2) for _ in range(2)],
            "one": rng.choice([[1, 0], [0, 1], [-1, 0], [0, Fraction(1, 2)]]),
            "together": [rng.choice([-1, 1]) * Fraction(rng.randrange(0, 3), 2)] * 2,
        }[neighbors]
        neighbor = [a + d for a, d in zip(at, move, strict=True)]
        for output in (0, 1):
            try:
                one, other = (path_law(program, x, output) for x in (at, neighbor))
            except NoLaw:
                continue
            if one[0] > 0:
                assert other[0] > 0
                assert abs(math.log(one[0] / other[0])) <= float(verdict.least) + 1e-12


# --- exact arithmetic


def test_the_simplex_method_against_scipy() -> None:
    from scipy.optimize import linprog

    rng = random.Random(5)
    for _ in range(60):
        n, m = rng.randrange(1, 6), rng.randrange(1, 7)
        rows = [[rng.randrange(-3, 4) for _ in range(n)] for _ in range(m)]
        objective = [rng.randrange(-3, 4) for _ in range(n)]
        limits = [rng.randrange(0, 5) for _ in range(m)]
        found = maximize(objective, rows, limits)
        other = linprog([-c for c in objective], A_ub=rows, b_ub=limits)
        if found.value is None:
            assert other.status in (2, 3, 4)  # unbounded, as presolve may say
            # a direction without end
            assert all(x >= 0 for x in found.x)
            assert all(sum(a * x for a, x in zip(r, found.x, strict=True)) <= 0 for r in rows)
        else:
            assert float(found.value) == pytest.approx(-other.fun, abs=1e-9)
            # the multipliers prove it
            assert sum(y * b for y, b in zip(found.duals, limits, strict=True)) == found.value
            assert all(y >= 0 for y in found.duals)


def test_contradictions_against_enumeration() -> None:
    """On random systems in two variables: a contradiction adds up, and none is missed."""
    rng = random.Random(3)
    grid = [Fraction(i, 2) for i in range(-12, 13)]
    for _ in range(100):
        system = [
            Inequality(
                {
                    k: Fraction(v)
                    for k, v in {
                        "x": rng.randrange(-2, 3),
                        "y": rng.randrange(-2, 3),
                        "1": rng.randrange(-4, 5),
                    }.items()
                    if v
                },
                rng.random() < 0.5,
            )
            for _ in range(rng.randrange(2, 6))
        ]
        why = contradiction(system)
        written = [(dict(each.form), each.strict) for each in system]
        if why is not None:
            assert checker.contradict(written, {str(i): str(v) for i, v in why.items()})
        holds = any(
            all(
                (v := each.form.get("x", 0) * x + each.form.get("y", 0) * y + each.form.get("1", 0))
                > 0
                or (v == 0 and not each.strict)
                for each in system
            )
            for x in grid
            for y in grid
        )
        assert not (holds and why is not None)


# --- proofs that are forged


def forge(document: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    forged = copy.deepcopy(document)
    change(forged)
    return forged


def none_is_accepted(
    document: dict[str, Any], changes: Sequence[Callable[[dict[str, Any]], None]]
) -> None:
    for i, change in enumerate(changes):
        try:
            checker.check(forge(document, change))
        except checker.ProofError:
            continue
        pytest.fail(f"forgery {i} was accepted")


def _set(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def test_forged_proofs_are_refused() -> None:
    good = proof_of(programs.noisy_max(2), 3, epsilon=1).document
    good = json.loads(json.dumps(good))
    assert checker.check(good) == 1
    many = next(i for i, g in enumerate(good["groups"]) if len(g["ends"]) > 1)
    one = next(i for i, g in enumerate(good["groups"]) if len(g["ends"]) == 1)
    tests = [i for i, node in enumerate(good["program"]) if "test" in node]
    forgeries = [
        _set(["epsilon"], "1/2"),  # less than it costs
        _set(["program", 0, "scale"], "1"),  # less noise
        _set(["program", 0, "scale"], "0"),
        _set(["program", 0, "scale"], "-2"),
        _set(["program", 0, "draw"], "gaussian"),  # another kind
        _set(["program", 0, "draw"], "exponential"),
        _set(["program", 0, "draw"], "none"),
        _set(["neighbors"], "all"),
        _set(["radii"], ["2", "1", "1"]),  # larger moves
        _set(["radii"], ["1", "1"]),
        _set(["radii"], ["-1", "1", "1"]),
        _set(["answers"], 4),
        lambda d: d["groups"].pop(),  # paths that are nowhere
        lambda d: d["groups"].append(d["groups"][0]),  # and twice
        lambda d: d["groups"][one]["ends"].append(d["groups"][many]["ends"][0]),
        _set(["groups", many, "region"], []),  # all of the space
        _set(["groups", many, "cover"], []),
        _set(["groups", many, "inside"], [[{}, {}], [{}, {}]]),
        lambda d: d["groups"][many]["region"].pop(),
        lambda d: d["groups"][many]["region"].reverse(),
        lambda d: d["groups"][one]["moves"].pop(),  # a corner is missing
        _set(["groups", one, "moves", 0, "noise"], {}),  # nothing moves
        _set(["groups", one, "moves", 0, "noise"], {"7": "2"}),
        _set(["program", tests[0], "no"], None),  # a branch is dropped
        _set(["program", tests[0], "yes"], 0),  # a circle
        # two ways to one end, of which one would not be looked at
        _set(["program", tests[0], "yes"], good["program"][tests[0]]["no"]),
        _set(["epsilon"], "1e400000000"),
        _set(["epsilon"], 1.0),
        _set(["program", tests[0], "yes"], 10**9),
        lambda d: d["program"][tests[0]]["test"][0].update({"v9": "1"}),
        lambda d: d["program"][tests[0]].update({"no": None, "why": {"0": "-1"}}),
        lambda d: d["program"].clear(),
        lambda d: d.pop("groups"),
        _set(["joined"], [{"groups": [0]}]),
    ]
    none_is_accepted(good, forgeries)


def test_paths_of_other_scales_are_not_one_group() -> None:
    """The false proof of a first version: a branch on a raw answer, joined over its scales."""
    program = prove.unroll(programs.branch_on_raw, 1)
    assert len(groups_of(program)) == 2
    verdict = prove.prove(programs.branch_on_raw, answers=1, epsilon=10)
    assert not isinstance(verdict, prove.Proved)
    right = proof_of(lambda q, noise: q[0] + noise.laplace(1), 1).document
    # written by hand: both ends in one group, with the region of all answers
    nodes = [
        {"test": [{"q0": "1"}, True], "yes": 1, "no": 3},
        {"draw": "laplace", "scale": "1", "name": "", "then": 2},
        {"returns": "...", "forms": [{"q0": "1", "v0": "1"}]},
        {"draw": "laplace", "scale": "2", "name": "", "then": 4},
        {"returns": "...", "forms": [{"q0": "1", "v0": "1"}]},
    ]
    moves = [{"answers": [d], "noise": {"0": str(-int(d))}} for d in ("1", "-1")]
    group = {"ends": [2, 4], "region": [], "inside": [[], []], "cover": [{}, {}], "moves": moves}
    forged = {**right, "program": nodes, "groups": [group], "joined": []}
    with pytest.raises(checker.ProofError, match="same noise"):
        checker.check(forged)
    with pytest.raises(checker.ProofError):  # and each by itself leaves its half
        checker.check(
            {**forged, "groups": [{"ends": [2], "moves": moves}, {"ends": [4], "moves": moves}]}
        )
    same = copy.deepcopy(forged)
    same["program"][3]["scale"] = "1"
    assert checker.check(same) == 1  # with one scale it is a proof


def test_forged_joins_are_refused() -> None:
    """A draw that takes up the difference: of too little, of another law, of part of the output."""
    good = json.loads(json.dumps(proof_of(programs.noised_maximum(1), 2).document))
    assert checker.check(good) == 1
    assert good["joined"]
    for change in [
        _set(["epsilon"], "1/2"),
        _set(["program", 1, "scale"], "1/2"),
        _set(["program", 1, "draw"], "exponential"),
        _set(["joined", 0, "pairs"], []),
        _set(["joined", 0, "pairs", 0], {}),
        _set(["joined", 0, "solved"], []),
        _set(["joined", 0, "solved"], [1]),
        _set(["joined", 0, "positive"], [True]),
        _set(["joined", 0, "groups"], [0]),
        _set(["joined", 0, "cover"], {"why": {}}),
        _set(["joined", 0, "cover", "without"], []),
        _set(["joined"], []),
    ]:
        with pytest.raises(checker.ProofError):
            checker.check(forge(good, change))


def test_random_changes_of_a_proof_prove_nothing_wrong() -> None:
    """Any number in a proof changed: it is refused, or what it still proves is true."""
    rng = random.Random(11)
    for program, answers in ((programs.sparse_vector(), 3), (programs.noisy_max_gap(2), 3)):
        good = json.loads(json.dumps(proof_of(program, answers, epsilon=1).document))
        for _ in range(150):
            forged = copy.deepcopy(good)
            at: Any = forged
            while isinstance(at, dict | list) and at:
                key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
                parent, at = at, at[key]
            parent[key] = rng.choice(["0", "1", "-1", "2", "1/2", None, True, 3])
            try:
                epsilon = checker.check(forged)
            except checker.ProofError:
                continue
            assert forged["neighbors"] != good["neighbors"] or epsilon >= Fraction(1, 2)
            if forged["program"] == good["program"]:
                assert epsilon >= 1 or forged["neighbors"] != good["neighbors"]
                continue
            # another program is proved: by exact probabilities, path by path
            program = tree(forged)
            outputs = sorted({path.leaf.skeleton for path in program.paths()} - {"..."})
            for _ in range(10):
                at = [Fraction(rng.randrange(-4, 5)) for _ in range(answers)]
                neighbor = [x + rng.choice([-1, 0, 1]) for x in at]
                output = eval(rng.choice(outputs))
                if ... in (output if isinstance(output, tuple | list) else [output]):
                    continue
                one, other = (path_law(program, x, output) for x in (at, neighbor))
                if one[0] > 0 and other[0] > 0:
                    assert abs(math.log(one[0] / other[0])) <= float(epsilon) + 1e-12


def tree(document: dict[str, Any]) -> Program:
    """Return the program in a document."""
    nodes = document["program"]

    def node(at: Any, draws: int) -> Any:
        if at is None:
            return None
        each = nodes[at]
        if "returns" in each:
            return Leaf(each["returns"], tuple(map(checker.read_form, each["forms"])))
        if "draw" in each:
            scale = Fraction(each["scale"])
            return Draw(draws, each["draw"], scale, "", node(each["then"], draws + 1))
        form, strict = checker.read_condition(each["test"])
        branches = (node(each[branch], draws) for branch in ("yes", "no"))
        return Branch(Inequality(form, strict), *branches)

    return Program("forged", document["answers"], node(0, 0))


# --- what cannot be followed


def refused(program: Callable[..., Any], *, answers: int = 2) -> str:
    with pytest.raises(prove.ProgramError) as caught:
        prove.unroll(program, answers)
    return str(caught.value)


class State:
    runs = 0


kept: list[Any] = []
COUNTER = State()


def test_refusals_name_the_line_and_the_remedy() -> None:
    def truth(answers: Any, noise: Any) -> Any:
        x = answers[0] + noise.laplace(1)
        if x:
            return 1
        return 0

    start = truth.__code__.co_firstlineno
    assert f"line {start + 2} of truth: the truth of an unknown number" in refused(truth)

    def looped(answers: Any, noise: Any) -> Any:
        k = 0
        while noise.laplace(1) < 3:
            k += 1
        return k

    assert f"line {looped.__code__.co_firstlineno + 2} of looped" in refused(looped)
    assert "for _ in range(k)" in refused(looped)

    def recursive(answers: Any, noise: Any) -> Any:
        def again(k: int) -> Any:
            return again(k + 1)

        return again(0)

    assert "calls itself" in refused(recursive)
    for program, words in {
        (lambda q, noise: float(q[0]) + noise.laplace(1)): "float()",
        (lambda q, noise: int(q[0])): "release it, and round",
        (lambda q, noise: int(q[0])): r"math.floor(x) or round(x)",
        (lambda q, noise: round(q[0] + noise.laplace(1))): "release it, and round",
        (lambda q, noise: math.trunc(q[0])): "math.floor(x) or math.ceil(x)",
        (lambda q, noise: round(q[0], 1.5)): "digits",
        (lambda q, noise: math.floor(q[0] + noise.laplace(1))): "release it, and round",
        (lambda q, noise: [1, 2][q[0]]): "as an index",
        (lambda q, noise: list(range(q[0]))): "as an index",
        (lambda q, noise: q[0] == q[1]): "write >= or <=",
        (lambda q, noise: q[0] != q[1]): "write >= or <=",
        (lambda q, noise: q[0] in [1, 2]): "write >= or <=",
        (lambda q, noise: q[0] * q[1]): "product of two unknown",
        (lambda q, noise: 1 / q[0]): "quotient by an unknown",
        (lambda q, noise: q[0] / 0): "quotient by 0",
        (lambda q, noise: q[0] ** 2): "not linear",
        (lambda q, noise: q[0] % 2): "not linear",
        (lambda q, noise: np.exp(q[0])): "sums",
        (lambda q, noise: np.exp(q)): "not linear",
        (lambda q, noise: np.round(q)): "round",
        (lambda q, noise: q.astype(float)): "float()",
        (lambda q, noise: noise.laplace(q[0])): "one scale",
        (lambda q, noise: noise.laplace(0)): "positive number",
        (lambda q, noise: noise.laplace(-1)): "positive number",
        (lambda q, noise: noise.laplace(float("nan"))): "nan",
        (lambda q, noise: noise.laplace("1")): "positive number",
        (lambda q, noise: noise.laplace(True)): "positive number",
        (lambda q, noise: noise.laplace(1, size=-1)): "non-negative",
        (lambda q, noise: noise.cauchy(1)): "no kind of noise",
        (lambda q, noise: noise.flip(0.5)): "domain=(0, 1)",
        (lambda q, noise: q[0] > float("inf")): "inf",
        (lambda q, noise: f"{q[0]}"): "in a text",
        (lambda q, noise: str(q[0])): "in a text",
        (lambda q, noise: {"a": q[0]}): "returns a dict",
        (lambda q, noise: {1, 2}): "returns a set",
        (lambda q, noise: float("nan")): "NaN",
        (lambda q, noise: q[5]): "IndexError",
        (lambda q, noise: [][0]): "IndexError",
        (lambda q, noise: 1 / 0): "ZeroDivisionError",
        (lambda q, noise: hash(q[0])): "TypeError",
        (lambda q, noise: (yield q[0])): "generator",
    }.items():
        assert words in refused(program), words


def test_state_outside_of_the_function_is_refused() -> None:
    kept.clear()

    def keeps(answers: Any, noise: Any) -> Any:
        kept.append(answers[0])
        return kept[0] + noise.laplace(1)

    assert "'kept' from outside" in refused(keeps)

    def counts(answers: Any, noise: Any) -> Any:
        setattr(COUNTER, "runs", COUNTER.runs + 1)  # noqa: B010
        x = answers[0] + noise.laplace(1)
        return x > COUNTER.runs

    assert "did not do the same" in refused(counts)

    def draws_more(answers: Any, noise: Any) -> Any:
        setattr(COUNTER, "runs", COUNTER.runs + 1)  # noqa: B010
        return answers[0] + noise.laplace(1 + COUNTER.runs % 2)

    assert "did not do the same" in refused(draws_more)

    holder = State()

    def holds(answers: Any, noise: Any) -> Any:
        x = getattr(holder, "x", answers[0])
        setattr(holder, "x", answers[0])  # noqa: B010
        return x + noise.laplace(1)

    assert "keeps state between its runs" in refused(holds)

    def sets(answers: Any, noise: Any) -> Any:
        COUNTER.runs += 1  # one run in a million may be another
        return answers[0] + noise.laplace(1 if COUNTER.runs % 10**6 else 1e-9)

    assert "assigns to the attribute 'runs'" in refused(sets)

    def plain(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(1)

    @functools.wraps(plain)
    def wraps(answers: Any, noise: Any) -> Any:
        kept.append(1)
        return plain(answers, noise) if len(kept) % 10**6 else answers[0]

    assert "'kept' from outside" in refused(wraps)

    inside, ticks = ([],), iter(range(10**9))

    def appends(answers: Any, noise: Any) -> Any:
        inside[0].append(1)
        return answers[0] + noise.laplace(1 if len(inside[0]) % 10**6 else 1e-9)

    assert "'inside' from outside" in refused(appends)

    def counts_on(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(1 if next(ticks) < 10**6 else 1e-9)

    assert "'ticks' from outside" in refused(counts_on)

    def randomly(answers: Any, noise: Any) -> Any:
        return random.random() + noise.laplace(1)

    assert "'random'" in refused(randomly)

    def timed(answers: Any, noise: Any) -> Any:
        return time.time() + noise.laplace(1)

    assert "'time'" in refused(timed)

    def numpy_random(answers: Any, noise: Any) -> Any:
        return np.random.default_rng().normal() + noise.laplace(1)

    assert "did not do the same" in refused(numpy_random)
    assert f"line {numpy_random.__code__.co_firstlineno} of" in refused(numpy_random)

    total = 0

    def assigns(answers: Any, noise: Any) -> Any:
        nonlocal total
        total += 1
        return noise.laplace(1)

    assert "assigns to 'total'" in refused(assigns)

    def default(answers: Any, noise: Any, memory: list[Any] = []) -> Any:  # noqa: B006
        return noise.laplace(1)

    assert "default argument" in refused(default)


FAR = 10**6  # farther than plain numbers are tried: what happens there is seen by reading alone


def test_what_is_near_as_a_float_is_not_the_same_output() -> None:
    def near(answers: Any, noise: Any) -> Any:
        return Fraction(10**17 + 1) if answers[0] > FAR else Fraction(10**17)

    assert "which no float is" in refused(near)

    def flipped(answers: Any, noise: Any) -> Any:
        return Fraction(10**17) + answers[0] * noise.flip(0.5)

    with pytest.raises(prove.ProgramError, match="which no float is"):
        prove.prove(flipped, answers=1, domain=(0, 1))


def test_an_unknown_is_not_taken_for_a_constant() -> None:
    def is_true(answers: Any, noise: Any) -> Any:
        return 1 if (answers[0] > FAR) is True else 0

    assert "`is True`" in refused(is_true)

    def shows(answers: Any, noise: Any) -> Any:
        return repr(answers[0]) if answers[0] + noise.laplace(1) > FAR else ""

    assert "in a text" in refused(shows)

    def shows_condition(answers: Any, noise: Any) -> Any:
        return repr(answers[0] > 0) if answers[0] + noise.laplace(1) > FAR else ""

    assert "in a text" in refused(shows_condition)


def test_a_claim_may_be_a_number_of_numpy() -> None:
    def noisy(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(10)

    verdict = prove.prove(noisy, answers=1, epsilon=np.float64(0.1))
    assert isinstance(verdict, prove.Proved)
    assert verdict.epsilon == Fraction(1, 10)


def test_a_refusal_that_is_caught_stays_a_refusal() -> None:
    def swallows(answers: Any, noise: Any) -> Any:
        try:
            return float(answers[0])
        except Exception:
            return noise.laplace(1)

    assert "float()" in refused(swallows)

    def swallows_later(answers: Any, noise: Any) -> Any:
        try:
            if answers[0]:
                return 1
        except BaseException:
            pass
        return 0

    assert "truth" in refused(swallows_later)


def test_what_can_be_followed_is() -> None:
    """Helpers, comprehensions, NumPy's sums and sorts, early returns, conditional noise."""

    def everything(answers: Any, noise: Any) -> Any:
        noisy = answers + noise.laplace(3, size=len(answers))
        order = np.argsort(noisy, kind="stable")
        middle = noisy[order[len(order) // 2]]
        spread = np.max(noisy) - np.min(noisy)
        if (middle > 1) & (spread < 4):
            return "near", int(order[0])
        if not middle > 2 or abs(noisy[0]) >= 3:
            extra = noise.exponential(1)
            return "far", extra > 1
        return "else", bool(np.any(noisy > 5)), sum(x > 0 for x in noisy)

    program = prove.unroll(everything, 2)
    assert len(program.paths()) > 20
    # the tree against the function, run on plain numbers
    verdict = prove.prove(everything, answers=2, epsilon=5)
    assert isinstance(verdict, prove.Proved)
    compare(everything, verdict.document, trials=200)


def test_a_wrong_tree_is_seen_on_plain_numbers() -> None:
    verdict = proof_of(programs.noisy_max(2), 2)
    with pytest.raises(checker.ProofError, match="returns something else"):
        compare(lambda q, noise: 1 - programs.noisy_max(2)(q, noise), verdict.document)
    with pytest.raises(checker.ProofError, match="other noise"):
        compare(programs.noisy_max(3), verdict.document)


def test_declarations_are_checked() -> None:
    program = programs.noisy_max(2)
    with pytest.raises(dp.DeclarationError, match="positive int"):
        prove.prove(program, answers=0)
    with pytest.raises(dp.DeclarationError, match="epsilon"):
        prove.prove(program, answers=2, epsilon=-1)
    with pytest.raises(dp.DeclarationError, match="epsilon"):
        prove.prove(program, answers=2, epsilon=math.nan)
    with pytest.raises(dp.DeclarationError, match="adjacency"):
        prove.prove(program, answers=2, neighbors="some")
    with pytest.raises(dp.DeclarationError, match="radii"):
        prove.prove(program, answers=2, radius=[1])
    with pytest.raises(dp.DeclarationError, match=r"f\(answers, noise\)"):
        prove.prove(3, answers=2)  # type: ignore[arg-type]
    with pytest.raises(prove.ProgramError, match="not Gaussian"):
        prove.concentrated(program, answers=2)
    with pytest.raises(dp.DeclarationError, match="radius=1"):
        prove.prove(lambda q, noise: q[0] + noise.geometric(1), answers=1, radius=0.5)
    for boxes in ([], [[(0, 1)]], [[(1, 0), 1]], [[(0, 1, 2), 1]], [[math.nan, 1]]):
        with pytest.raises(dp.DeclarationError, match=r"box|pair|finite"):
            prove.prove(program, answers=2, neighbors=boxes)
    with pytest.raises(dp.DeclarationError, match="pair"):
        prove.prove(program, answers=2, neighbors="together", radius=[(0, 1), 1])
    for kind in ("domain", "boxes"):
        with pytest.raises(dp.DeclarationError, match="list of boxes"):
            prove.prove(program, answers=2, neighbors=kind)
    with pytest.raises(prove.ProgramError, match=r"noise\.flip"):
        prove.prove(program, answers=2, domain=(0, 1))
    with pytest.raises(dp.DeclarationError, match="domain"):
        prove.prove(respond, answers=2, domain=(0,))
    with pytest.raises(prove.ProgramError, match="paths"):
        prove.unroll(program, 12, most_paths=100)


tell = isinstance


def test_a_function_that_tells_unknowns_from_numbers_is_refused() -> None:
    def pretends(answers: Any, noise: Any) -> Any:
        drawn = noise.laplace(1)
        return answers[0] + (0 if isinstance(answers[0], Fraction) else drawn)

    assert "uses isinstance, which may tell an unknown number" in refused(pretends)
    # an int or a float is told from unknowns and from the fractions that are tried as well
    floats = lambda q, noise: q[0] if type(q[0]) is float else noise.laplace(1)  # noqa: E731
    assert "uses type" in refused(floats)
    assert "uses tell" in refused(lambda q, noise: q[0] if tell(q[0], float) else noise.laplace(1))
    assert "class" in refused(lambda q, noise: q[0].__class__ is float)
    assert ".hex of an unknown" in refused(lambda q, noise: getattr(q[0], "hex", None) is None)

    def matched(answers: Any, noise: Any) -> Any:
        match answers[0]:
            case float():
                return answers[0]
        return noise.laplace(1)

    assert "asks for the class" in refused(matched)

    def fails(answers: Any, noise: Any) -> Any:  # an attribute that unknown numbers alone have
        return answers[0]._form and noise.laplace(1)

    with pytest.raises(prove.ProgramError, match="something else with plain numbers"):
        prove.prove(fails, answers=1)


def test_exponentials_near_a_ratio() -> None:
    """Against the exponential of mpmath, at 400 digits: never wrong, and exact but for 1e-90."""
    with mpmath.workdps(400):
        for epsilon in (0, Fraction(1, 10**9), Fraction(1, 3), 1, 7, Fraction(1001, 3), 1000, 5000):
            x = mpmath.exp(mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator)
            scale = 10**150
            below = Fraction(int(x * scale), scale)
            assert below <= 1 or not checker.exponential_exceeds(Fraction(epsilon), below + 1)
            assert not checker.exponential_exceeds(Fraction(epsilon), below + Fraction(1, scale))
            assert checker.exponential_exceeds(Fraction(epsilon), below * (1 - Fraction(1, 10**90)))
    # a ratio of 10^400: its logarithm is above 900, more than the terms of the series
    chance = Fraction(1, 10**400)

    def rare(answers: Any, noise: Any) -> Any:
        return noise.flip(chance if answers[0] else 1 - chance)

    assert float(proof_of(rare, 1, domain=(0, 1)).least) == pytest.approx(400 * math.log(10))
    assert isinstance(prove.prove(rare, answers=1, domain=(0, 1), epsilon=1000), prove.Proved)
    assert isinstance(prove.prove(rare, answers=1, domain=(0, 1), epsilon=921), prove.Refuted)
    # log 3, cut and rounded up at 120 digits: neither is proved, nor is the true one called wrong
    with mpmath.workdps(150):
        exact = Fraction(int(mpmath.log(3) * 10**120), 10**120)
    assert isinstance(prove.prove(respond, answers=1, domain=(0, 1), epsilon=exact), prove.Refuted)
    near = prove.prove(respond, answers=1, domain=(0, 1), epsilon=exact + Fraction(1, 10**120))
    assert isinstance(near, prove.Undecided)


def test_a_claim_above_what_joined_groups_cost() -> None:
    verdict = proof_of(programs.noised_maximum(1), 3, epsilon=2.5)
    assert (verdict.epsilon, verdict.least) == (Fraction(5, 2), 1)


def test_radii_scale_the_loss() -> None:
    program = programs.histogram(1)
    assert proof_of(program, 2, neighbors="each", radius=[1, 3]).least == 4
    assert proof_of(program, 2, neighbors="one", radius=[1, 3]).least == 3
    assert proof_of(programs.noised_maximum(1), 2, radius=0.5).least == Fraction(1, 2)


def half_moves(low: float, high: float) -> list[Fraction]:
    """Return the multiples of 1/2 between two numbers."""
    return [Fraction(k, 2) for k in range(math.ceil(2 * low), math.floor(2 * high) + 1)]


@pytest.mark.parametrize(
    "boxes",
    [
        [[(0, 1), (0, 1), (0, 1)]],
        [[(0, 1), (-1, 0), (-0.5, 0.5)]],
        [[(0, 1), (0, 1), 0], [(0, 1), 0, (0, 1)]],
        [[(0.5, 1), (-2, -1), 1]],
    ],
)
def test_boxes_of_moves_by_enumeration(boxes: list[list[Any]]) -> None:
    """Exact losses at all moves of a grid in the boxes: none is above what is proved."""
    ends = [[each if isinstance(each, tuple) else (-each, each) for each in box] for box in boxes]
    moves = {move for box in ends for move in itertools.product(*(half_moves(*e) for e in box))}
    # a sum: the density's ratio far away; a histogram: the l1 norm of the move
    total = float(max(abs(sum(move)) for move in moves)) / 2
    assert float(proof_of(programs.partial_sum(2), 3, neighbors=boxes).least) == total
    each = float(max(sum(map(abs, move)) for move in moves)) / 2
    assert float(proof_of(programs.histogram(2), 3, neighbors=boxes).least) == each
    # of a noisy maximum the winner moves against the others: by the difference of the moves
    verdict = proof_of(programs.noisy_max(2), 3, neighbors=boxes)
    worst = max(max(move) - min(move) for move in moves)
    assert verdict.tight
    assert float(verdict.least) <= float(worst) / 2
    if len(boxes) == 1 and boxes[0][2] == (0, 1):
        same = proof_of(programs.noisy_max(2), 3, neighbors="together")
        assert verdict.least == same.least == Fraction(1, 2)
    # what one draw takes up: the raw maximum moves no more than an answer does
    joined = proof_of(programs.noised_maximum(1), 3, neighbors=boxes)
    assert joined.least <= max(abs(x) for move in moves for x in move)
    if boxes[0][0] == (0, 1):
        assert isinstance(
            prove.prove(programs.histogram(2), answers=3, neighbors=boxes, epsilon=each * 0.9),
            prove.Refuted,
        )


def test_one_sided_radii_are_boxes() -> None:
    program = programs.noisy_max(2)
    up = proof_of(program, 3, radius=[(0, 1)] * 3)
    assert up.least == Fraction(1, 2)
    assert "in [0, 1] x [0, 1] x [0, 1]" in str(up)
    # of one answer that moves both neighbours are the first in turn
    one = proof_of(program, 3, neighbors="one", radius=[(0, 1), (-2, 0), (-1, 1)])
    assert one.neighbors.radii == (1, 2, 1)
    assert one.least == proof_of(program, 3, neighbors="one", radius=[1, 2, 1]).least
    # a box in one direction alone is no relation of neighbours
    forged = forge(dict(up.document), _set(["boxes", 0, 0], ["0", "2"]))
    with pytest.raises(checker.ProofError, match="corner"):
        checker.check(forged)
    for change in (_set(["boxes"], []), _set(["boxes", 0], []), _set(["neighbors"], "any")):
        with pytest.raises(checker.ProofError):
            checker.check(forge(dict(up.document), change))


# --- what jumps with the answers


def count_above(answers: Any, noise: Any) -> Any:
    return sum(1 for x in answers if x > 0) + noise.laplace(2)


def test_a_count_of_raw_answers_by_enumeration() -> None:
    """How many answers are above 0 jumps: by one for each that moves, however little."""
    assert proof_of(count_above, 3).least == Fraction(3, 2)
    assert proof_of(count_above, 2, neighbors="one").least == Fraction(1, 2)
    assert proof_of(count_above, 2, neighbors="together").least == 1
    # one up and one down: what one adds the other takes away
    assert proof_of(count_above, 2, radius=[(0, 1), (-1, 0)]).least == Fraction(1, 2)
    wrong = prove.prove(count_above, answers=2, epsilon=0.9)
    assert isinstance(wrong, prove.Refuted)
    assert wrong.loss == 1
    # at half a move it may cost as much as at a whole one
    made: Any = dp.Mechanism.from_function(count_above, answers=2)
    assert made.loss(0.1).pure() == pytest.approx(1)
    assert made.loss(1.5).pure() == pytest.approx(2)
    one: Any = dp.Mechanism.from_function(count_above, answers=1, neighbors="one")
    assert one.cost(1.0000001, 1, 1.0).pure() == pytest.approx(0.5)
    people = dp.dataset("people", columns={"x": (0.0, 0.5)})
    with pytest.raises(dp.DeclarationError, match="jumps"):
        dp.Pipeline(x=people["x"].sum().release(one)).certify()
    # a clamped sum does not jump: of less than a move it costs less
    smooth: Any = dp.Mechanism.from_function(programs.clamped_sum(2), answers=1)
    assert smooth.loss(0.1).pure() == pytest.approx(0.05)

    document = dict(proof_of(count_above, 1).document)
    for change in (
        _set(["joined", 0, "steps"], False),
        _set(["joined", 0, "epsilon"], "1/4"),
        lambda d: d["joined"][0]["pairs"].pop(),
    ):
        with pytest.raises(checker.ProofError):
            checker.check(forge(document, change))

    def jumps_within(answers: Any, noise: Any) -> Any:
        # two values of the draw give one number: not one to one
        v = noise.laplace(2)
        return answers[0] + v if v > 0 else answers[0] + v + 1

    found = prove.prove(jumps_within, answers=1, epsilon=1)
    assert not isinstance(found, prove.Proved) or found.least >= Fraction(1, 2)


# --- programs that were tried as a user who wants to be misled would


def tried(rows: dict[str, tuple[Callable[..., Any], int, str, float, float | None]]) -> list[Any]:
    return [pytest.param(*row, id=name) for name, row in rows.items()]


def second_place(q: Any, noise: Any) -> Any:
    v = [x + noise.laplace(4) for x in q]
    return sorted(range(len(v)), key=v.__getitem__)[-2]


def ranking(q: Any, noise: Any) -> Any:
    v = [x + noise.laplace(3) for x in q]
    return sorted(range(len(v)), key=v.__getitem__)


def leaks_threshold(q: Any, noise: Any) -> Any:
    rho = noise.laplace(2)
    for i, x in enumerate(q):
        if x + noise.laplace(4) >= rho:
            return i, rho
    return -1


def leaks_fraction(q: Any, noise: Any) -> Any:
    whole = math.floor(q[0])
    return whole + noise.laplace(1), q[0] - whole > 0.5


def scale_of_branch(q: Any, noise: Any) -> Any:
    return q[0] + (noise.laplace(1) if q[0] > 0 else noise.laplace(2))


def clipped_release(q: Any, noise: Any) -> Any:
    y = q[0] + noise.laplace(1)
    return y if y > 2 else None


def opposite(q: Any, noise: Any) -> Any:
    v = noise.laplace(1)
    return q[0] + v, q[1] - v


def without_least(q: Any, noise: Any) -> Any:
    return int(np.argmax(q - min(q))) if noise.laplace(1) > 0 else -1


@pytest.mark.parametrize(
    ("program", "answers", "neighbors", "claim", "tight"),
    tried(
        {
            # epsilon by hand; None: no finite one, or above the claim
            "noisy minimum": (
                lambda q, noise: int(np.argmin(q + noise.laplace(2, size=len(q)))),
                4,
                "each",
                1,
                1,
            ),
            "second place": (second_place, 3, "each", 1, 1 / 2),
            "ranking of three": (ranking, 3, "each", 1, 2 / 3),
            "leaked threshold, four": (leaks_threshold, 4, "each", 1, 1),
            "leaked threshold, five": (leaks_threshold, 5, "each", 1, None),
            "two exponentials": (
                lambda q, noise: q[0] + noise.exponential(1) - noise.exponential(1),
                1,
                "each",
                1,
                1,
            ),
            "one exponential": (lambda q, noise: q[0] + noise.exponential(1), 1, "each", 9, None),
            "mean": (lambda q, noise: q.mean() + noise.laplace(1), 4, "one", 0.25, 0.25),
            "bits": (lambda q, noise: [x + noise.laplace(1) > 0 for x in q], 3, "one", 1, 1),
            "all bits": (
                lambda q, noise: [x + noise.laplace(2) > 0 for x in q],
                3,
                "each",
                1,
                None,
            ),
            "size of noise": (lambda q, noise: abs(q[0] + noise.laplace(1)), 1, "each", 1, 1),
            "no less than 0": (lambda q, noise: max(q[0], 0) + noise.laplace(2), 1, "each", 1, 0.5),
            "difference": (lambda q, noise: q[0] - q[1] + noise.laplace(2), 2, "together", 1, 0.5),
            "released if large": (clipped_release, 1, "each", 1, 1),
            "one draw, two signs": (opposite, 2, "each", 100, None),
            "less the least": (without_least, 3, "each", 100, None),
            "scale of a branch": (scale_of_branch, 1, "each", 1, None),
            "the rest": (leaks_fraction, 1, "each", 50, None),
            "of a floor": (lambda q, noise: q[0] // 2 + noise.laplace(1), 1, "each", 1, 1),
            "slices": (lambda q, noise: np.sum(q[1:]) + noise.laplace(2), 3, "each", 1, 1),
            "where": (
                lambda q, noise: np.where(q + noise.laplace(3, size=3) > 0, 1, 0),
                3,
                "each",
                1,
                1,
            ),
        }
    ),
)
def test_what_a_hostile_user_wrote(
    program: Callable[..., Any], answers: int, neighbors: str, claim: float, tight: float | None
) -> None:
    verdict = prove.prove(program, answers=answers, neighbors=neighbors, epsilon=claim)
    if tight is None:
        assert isinstance(verdict, prove.Refuted), str(verdict)
        if not math.isnan(verdict.loss):
            again = prove.log_ratio(program, verdict.at, verdict.neighbor, verdict.output)
            assert again == verdict.loss > claim
    else:
        assert isinstance(verdict, prove.Proved), str(verdict)
        assert float(verdict.least) == pytest.approx(tight, rel=1e-12)


# --- rounding of answers


@pytest.mark.parametrize("radius", [Fraction(1, 2), 1, Fraction(3, 2), 2, 3], ids=str)
@pytest.mark.parametrize("step", [1, Fraction(2, 3)], ids=str)
@pytest.mark.parametrize("rounding", [round, math.floor, math.ceil])
def test_rounded_answers_by_enumeration(rounding: Any, step: Any, radius: Any) -> None:
    """The largest change of a rounded number, over a grid of numbers and of moves."""

    def rounded(answers: Any, noise: Any) -> Any:
        return rounding(answers[0] / step) * step + noise.laplace(4)

    tiny = Fraction(1, 64)
    grid = [Fraction(k, 4) + end for k in range(-16, 17) for end in (-tiny, 0, tiny)]
    moves = [radius * Fraction(k, 8) for k in range(9)]
    worst = max(
        abs(rounding((x + d) / step) - rounding(x / step)) * step for x in grid for d in moves
    )
    verdict = proof_of(rounded, 1, radius=radius)
    assert verdict.least == worst / 4
    assert verdict.tight
    short = prove.prove(rounded, answers=1, radius=radius, epsilon=worst / 4 * Fraction(99, 100))
    assert isinstance(short, prove.Refuted)
    at, neighbor = short.at[0], short.neighbor[0]
    assert abs(at - neighbor) <= radius
    # two Laplace densities, by hand
    means = [rounding(x / step) * step for x in (at, neighbor)]
    loss = (abs(short.output - means[1]) - abs(short.output - means[0])) / 4
    assert short.loss == pytest.approx(float(loss))
    assert short.loss > float(short.epsilon)


def rounded_max(step: Fraction | int) -> Callable[..., Any]:
    def rounded_max(answers: Any, noise: Any) -> Any:
        noisy = [round(x / step) * step + noise.laplace(2) for x in answers]
        return max(range(len(noisy)), key=noisy.__getitem__)

    return rounded_max


def rounded_threshold(answers: Any, noise: Any) -> Any:
    rho = noise.geometric(2)
    for i, x in enumerate(answers):
        if math.floor(x) + noise.geometric(4) >= rho:
            return i
    return None


def test_selection_from_rounded_answers() -> None:
    # halves to even: two answers that move by 1 move apart by 4; on a lattice by a step more, and
    # where 1 is an even number of steps by none
    assert proof_of(rounded_max(1), 3).least == 2
    assert proof_of(rounded_max(Fraction(1, 5)), 3).least == Fraction(6, 5)
    assert proof_of(rounded_max(Fraction(1, 1024)), 3).least == 1
    wrong = prove.prove(rounded_max(1), answers=3, epsilon=1.9)
    assert isinstance(wrong, prove.Refuted)
    laws = [
        float(prove.probability(rounded_max(1), x, wrong.output)[0])
        for x in (wrong.at, wrong.neighbor)
    ]
    assert math.log(laws[0] / laws[1]) == pytest.approx(wrong.loss)
    assert wrong.loss > 1.9
    # answers that are any numbers, and geometric noise; floor moves by 1 as its number does
    threshold = proof_of(rounded_threshold, 3, epsilon=1)
    assert "integers" not in str(threshold)
    assert threshold.least == Fraction(3, 4)
    # a boundary that rounding crosses without noise
    raw = prove.prove(lambda q, noise: round(q[0]) > 3, answers=1, epsilon=50)
    assert isinstance(raw, prove.Refuted)
    assert math.isinf(raw.loss)
    # one answer moves, and both of what is rounded of it
    both = proof_of(
        lambda q, noise: [math.floor(q[0]) + noise.laplace(1), round(q[0], 1) + noise.laplace(1)],
        2,
        neighbors="one",
    )
    assert both.least == 2
    normal = prove.concentrated(lambda q, noise: round(q[0]) + noise.gaussian(2), answers=1)
    assert isinstance(normal, prove.Proved)
    assert normal.least == Fraction(2**2, 2 * 2**2)
    with pytest.raises(prove.ProgramError, match="number of answers"):
        prove.prove(rounded_threshold, answers="every", epsilon=0.1)


def two_floors(answers: Any, noise: Any) -> Any:
    """The floor of 2 x, written as two, and 2 x taken away: 0 for moves of 3/2, not for 3/4."""
    x = answers[0]
    return math.floor(x) + math.floor(x + Fraction(1, 2)) - 2 * x + noise.laplace(1)


def remainder(answers: Any, noise: Any) -> Any:
    """Minus the remainder of 3: of integers it moves by 2 at most."""
    return math.floor(answers[0] / 3) * 3 - answers[0] + noise.geometric(1)


def test_counterexamples_of_rounded_answers_are_neighbours() -> None:
    """Half of a move is no move of a box without 0, nor of integers: nothing is refuted by it."""
    for claim in (0.1, 0.4):  # it is 0-DP, as the loss at 3/2 from anywhere shows
        verdict = prove.prove(two_floors, answers=1, epsilon=claim, neighbors=[[(1.5, 1.5)]])
        assert not isinstance(verdict, prove.Refuted)
    # 1 to 2 each, 2 to 4 together, less 3
    assert proof_of(two_floors, 1, neighbors=[[(1.5, 1.5)]]).least == 1
    assert not isinstance(prove.prove(remainder, answers=1, epsilon=2), prove.Refuted)
    wrong = prove.prove(remainder, answers=1, epsilon=1.9)
    assert isinstance(wrong, prove.Refuted)
    assert wrong.loss == pytest.approx(2, abs=1e-9)
    # the line has the answers as they are: a digit less is another rounded number
    wrong = prove.prove(
        lambda q, noise: math.floor(q[0]) - q[0] + noise.laplace(1),
        answers=1,
        epsilon=0.4,
        neighbors=[[(1.5, 1.5)]],
    )
    assert isinstance(wrong, prove.Refuted)
    written = re.findall(r"\(-?[0-9.]+,\)", wrong.line)
    assert len(written) == 2
    assert [eval(each) for each in written] == [wrong.at, wrong.neighbor]


def test_a_constant_may_be_whole_noise_of_another_path() -> None:
    """Who sees a 0 does not see the path: about .49 is lost, and 0.6 was called refuted."""

    def hidden(answers: Any, noise: Any) -> Any:
        if min(answers[0], 0) + noise.laplace(1) > 0:
            return 0
        return noise.geometric(1)

    def real(answers: Any, noise: Any) -> Any:
        if answers[0] + noise.laplace(1) > 0:
            return 0
        return noise.laplace(1)

    for claim in (0.6, 0.9):
        assert isinstance(prove.prove(hidden, answers=1, epsilon=claim), prove.Undecided)
    # a number that has a density is no constant: it is told apart
    assert isinstance(prove.prove(real, answers=1, epsilon=0.9), prove.Refuted)
    assert proof_of(real, 1).least == 1

    def either(answers: Any, noise: Any) -> Any:
        if answers[0] + noise.geometric(1) > 0:
            return 0
        return noise.geometric(1)

    # of a 0: (1 + P(geometric = 0) P(0 or less)...) at both, summed over both paths
    ratio = math.exp(-1)
    mass = (1 - ratio) / (1 + ratio)
    one, other = (tail + (1 - tail) * mass for tail in (ratio / (1 + ratio), 1 / (1 + ratio)))
    assert prove.log_ratio(either, [1], [0], 0) == pytest.approx(math.log(other / one), abs=1e-9)


def test_forged_rounding_is_refused() -> None:
    document = dict(proof_of(rounded_max(1), 2).document)
    for change in (
        _set(["rounded", 0, "kind"], "trunc"),
        _set(["rounded", 0, "form"], {"q0": "3"}),
        _set(["rounded", 0, "form"], {"q7": "1"}),
        _set(["rounded", 0, "form"], {"v0": "1"}),
        _set(["rounded"], []),
        _set(["radii", 0], "3"),
    ):
        with pytest.raises(checker.ProofError):
            checker.check(forge(document, change))


def test_rounded_answers_in_a_plan() -> None:
    def tenths(answers: Any, noise: Any) -> Any:
        return [round(x * 10) / 10 + noise.laplace(1) for x in answers]

    made = dp.Mechanism.from_function(tenths, answers=1, scale=2.0)
    # (10 + 1) / 10 for a move of 1 or less; above it, as for a second move
    assert made.loss(1.0).pure() == pytest.approx(1.0 / 2)
    odd = dp.Mechanism.from_function(
        lambda q, noise: round(q[0] * 9) / 9 + noise.laplace(1), answers=1
    )
    assert odd.loss(0.25).pure() == pytest.approx(10 / 9)
    assert odd.loss(1.5).pure() == pytest.approx(20 / 9)
    values = [made.release(np.array([0.26]), SeededStream(i)).item() for i in range(400)]
    # the mean of 400 draws of deviation sqrt(8), around 0.3
    assert abs(np.mean(values) - 0.3) < 6 * math.sqrt(8 / 400)
    one = dp.Mechanism.from_function(tenths, answers=1, neighbors="one")
    people = dp.dataset("people", columns={"x": (0.0, 0.5)})
    assert dp.Pipeline(x=people["x"].sum().release(made)).certify().epsilon > 0
    with pytest.raises(dp.DeclarationError, match="rounds answers, or jumps"):
        dp.Pipeline(x=people["x"].sum().release(one)).certify()
    counts = dp.Mechanism.from_function(tenths, answers=3, neighbors="one")
    assert histogram_plan(counts).certify().epsilon == pytest.approx(1)
    boxes = prove.prove(tenths, answers=1, radius=[(0, 1)])
    assert isinstance(boxes, prove.Proved)
    with pytest.raises(dp.DeclarationError, match="other radii"):
        type(made)(proof=json.dumps(boxes.document), scale=1.0)


# --- finite domains, integers, Gaussian noise


def respond(answers: Any, noise: Any) -> Any:
    return [bool(x) == noise.flip(0.75) for x in answers]


def subsampled(answers: Any, noise: Any) -> Any:
    """Half of the answers are asked; the others are coins."""
    return [bool(x) == noise.flip(0.75) if noise.flip(0.5) else noise.flip(0.5) for x in answers]


def always_true(answers: Any, noise: Any) -> Any:
    return True if noise.flip(0.5) else answers[0] == 1


def sums_of_all(answers: Any, noise: Any) -> Any:
    return round(sum(answers)) if noise.flip(0.1) else noise.flip(0.5)


@pytest.mark.parametrize(
    ("program", "ratio"), [(respond, Fraction(3)), (subsampled, Fraction(5, 3))]
)
def test_randomized_response_by_all_laws(program: Callable[..., Any], ratio: Fraction) -> None:
    """An answer is told right with 3/4: log 3; with 5/8 where half are asked: log 5/3."""
    verdict = proof_of(program, 2, domain=(0, 1))
    # the least, to nine digits above
    assert 0 <= float(verdict.least) - math.log(ratio) <= 2e-9
    document = json.loads(json.dumps(verdict.document))
    assert checker.check(document) == verdict.epsilon
    wrong = prove.prove(program, answers=2, domain=(0, 1), epsilon=math.log(ratio) - 1e-6)
    assert isinstance(wrong, prove.Refuted)
    assert wrong.loss == pytest.approx(math.log(ratio))
    assert eval(wrong.line, {"prove": prove, wrong.name: program}) == pytest.approx(wrong.loss)
    for change in (
        _set(["epsilon"], str(verdict.epsilon - Fraction(1, 10**6))),
        _set(["laws", 0, "outputs", "[True, True]"], "0"),
        lambda d: d["laws"].pop(),
        lambda d: d["laws"][0]["outputs"].pop("[True, True]"),
        _set(["answers"], 3),
        _set(["epsilon"], "-1"),
    ):
        with pytest.raises(checker.ProofError):
            checker.check(forge(document, change))


def test_wrong_responses_are_refuted() -> None:
    verdict = prove.prove(always_true, answers=1, domain=(0, 1), epsilon=1)
    assert isinstance(verdict, prove.Refuted)
    assert math.isinf(verdict.loss)
    assert isinstance(prove.prove(sums_of_all, answers=3, domain=(0, 1), epsilon=5), prove.Refuted)

    def endless(answers: Any, noise: Any) -> Any:
        while noise.flip(0.5):
            pass

    with pytest.raises(prove.ProgramError, match="1000 flips"):
        prove.prove(endless, answers=1, domain=(0, 1))


def geometric_max(scale: float, strict: bool) -> Callable[..., Any]:
    def geometric_max(answers: Any, noise: Any) -> Any:
        best, at = answers[0] + noise.geometric(scale), 0
        for i in range(1, len(answers)):
            value = answers[i] + noise.geometric(scale)
            if value > best if strict else value >= best:
                best, at = value, i
        return at

    return geometric_max


def geometric_threshold(answers: Any, noise: Any) -> Any:
    rho = noise.geometric(2)
    for i, x in enumerate(answers):
        if x + noise.geometric(4) >= rho:
            return i
    return None


@pytest.mark.parametrize(
    ("program", "draws", "strict"),
    [
        (geometric_max(2, True), (2, 2), True),
        (geometric_max(2, False), (2, 2), False),
        (geometric_threshold, (2, 4, 4), False),
    ],
    ids=["strict", "ties", "threshold"],
)
def test_integers_by_enumeration(
    program: Callable[..., Any], draws: tuple[int, ...], strict: bool
) -> None:
    """Every draw of up to 60 is enumerated: what lies beyond has mass below 1e-6."""
    proved = float(proof_of(program, 2, epsilon=1).least)
    assert proved == (1 if len(draws) == 2 else 0.5)
    reach = np.arange(-60, 61)
    masses = [np.exp(-np.abs(reach) / b) for b in draws]
    masses = [m / m.sum() for m in masses]

    v = [reach.reshape([-1 if j == i else 1 for j in range(len(draws))]) for i in range(len(draws))]
    weight = masses[0].reshape(-1, *[1] * (len(draws) - 1))
    for i in range(1, len(draws)):
        weight = weight * masses[i].reshape([-1 if j == i else 1 for j in range(len(draws))])

    @functools.cache
    def law_at(q: tuple[float, ...]) -> np.ndarray:
        if len(draws) == 3:
            hits = [q[i] + v[i + 1] >= v[0] for i in range(2)]
            events = [hits[0], ~hits[0] & hits[1], ~hits[0] & ~hits[1]]
        else:
            lead = v[1] + q[1] - v[0] - q[0]
            second = lead > 0 if strict else lead >= 0
            events = [~second, second]
        return np.array([(weight * event).sum() for event in events])

    found = 0.0
    for q in ((0.0, 0.0), (3.0, -2.0), (-8.0, 0.0)):
        for move in itertools.product((-1.0, 0.0, 1.0), repeat=2):
            one, other = law_at(q), law_at((q[0] + move[0], q[1] + move[1]))
            found = max(found, float(np.max(np.abs(np.log(one / other)))))
    assert 0.7 * proved < found <= proved + 1e-6


def test_integers_do_not_move_by_fractions() -> None:
    verdict = prove.prove(lambda q, noise: q[0] / 2 + noise.geometric(1), answers=1, epsilon=9)
    assert not isinstance(verdict, prove.Proved)
    assert isinstance(prove.prove(geometric_max(1, True), answers=3, epsilon=1), prove.Refuted)
    good = json.loads(json.dumps(proof_of(geometric_max(2, True), 2, epsilon=1).document))
    half = next(i for i, g in enumerate(good["groups"]) if g["moves"][0]["noise"])
    (draw,) = good["groups"][half]["moves"][0]["noise"]
    with pytest.raises(checker.ProofError, match="integers"):
        checker.check(forge(good, _set(["groups", half, "moves", 0, "noise", draw], "5/2")))


def gaussian_threshold(answers: Any, noise: Any) -> Any:
    rho = noise.laplace(1)
    for i, x in enumerate(answers):
        if x + noise.gaussian(2) >= rho:
            return i
    return None


def gaussian_then_test(answers: Any, noise: Any) -> Any:
    first = answers[0] + noise.gaussian(2)
    return first, answers[1] + noise.exponential(1) > first


def test_laws_of_integers_beside_real_noise() -> None:
    """A two-sided geometric and a Laplace number: sums by hand, term by term."""

    def both(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.geometric(2) > answers[1] + noise.laplace(3)

    def tied(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.geometric(2) > 1, answers[1] + noise.laplace(3)

    r = math.exp(-0.5)
    masses = {k: (1 - r) / (1 + r) * r ** abs(k) for k in range(-200, 201)}

    def below(x: float) -> float:
        return math.exp(x / 3) / 2 if x < 0 else 1 - math.exp(-x / 3) / 2

    for at in ((0, 0), (2, 1), (-3, 1)):
        exact = sum(mass * below(at[0] + k - at[1]) for k, mass in masses.items())
        low, high = prove.probability(both, at, True)
        assert low <= exact * (1 + 1e-12)
        assert high >= exact * (1 - 1e-12)
        assert high - low < Fraction(1, 10)
        exact = sum(mass for k, mass in masses.items() if at[0] + k > 1)  # a tie is not above
        exact *= math.exp(-abs(2 - at[1]) / 3) / 6
        low, high = prove.probability(tied, at, (True, 2))
        assert float(low) == pytest.approx(exact, rel=1e-12)
        assert float(high) == pytest.approx(exact, rel=1e-12)
    verdict = prove.prove(tied, answers=2, neighbors="one", epsilon=0.4)
    assert isinstance(verdict, prove.Refuted)
    assert 0.4 < verdict.loss <= 0.5
    assert prove.log_ratio(tied, verdict.at, verdict.neighbor, verdict.output) == verdict.loss


@pytest.mark.slow
def test_a_density_that_jumps_refutes_nothing_at_the_jump() -> None:
    """One geometric noise covers the move, whatever real noise is beside it: 1/2, as proved.

    At whole outputs each tie ``l == 0`` or ``l == 2`` is of a path that has no probability, so that
    the sum of densities there is less than on either side.
    """

    def split(answers: Any, noise: Any) -> Any:
        apart, test, moved = noise.laplace(1), noise.laplace(1), noise.geometric(2)
        if answers[0] + test <= 0:
            return answers[0] + apart + moved
        if apart < 0 or 0 < apart < 2 or apart > 2:
            return answers[0] + apart + moved
        return 7

    verdict = prove.prove(split, answers=1, neighbors="each", epsilon=0.55)
    assert not isinstance(verdict, prove.Refuted), str(verdict)


def test_losses_are_the_floats_next_to_them() -> None:
    """Far from 0 the two probabilities have hundreds of digits."""

    def value(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(1), answers[1] + noise.laplace(1)

    for far in (0, 100, 4096):
        assert prove.log_ratio(value, [far, far], [far + 1, far + 1], (0, 0)) == 2.0


def test_a_function_is_compared_at_ties() -> None:
    def strict(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(2) > 0

    def ties(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(2) >= 0

    compare(strict, proof_of(strict, 1, neighbors="each").document)
    with pytest.raises(prove.ProofError, match="something else"):
        compare(ties, proof_of(strict, 1, neighbors="each").document)


def test_probabilities_are_enclosed() -> None:
    """Gaussian noise, geometric noise and mixtures: against SciPy's laws and enumeration."""

    def holds(found: tuple[Fraction, Fraction], truth: float, width: float) -> None:
        assert float(found[0]) <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= float(found[1])
        assert float(found[1]) - float(found[0]) <= width * truth

    laplace, normal = stats.laplace(scale=1), stats.norm(scale=2)
    for q in ((0.0, 0.0), (-9.0, 3.0)):
        one = quad(lambda r, q=q: laplace.pdf(r) * normal.sf(r - q[0]), -30, 30, points=[0])[0]
        none = quad(
            lambda r, q=q: laplace.pdf(r) * normal.cdf(r - q[0]) * normal.cdf(r - q[1]),
            -30, 30, points=[0], limit=200,
        )[0]  # fmt: skip
        holds(prove.probability(gaussian_threshold, q, 0), one, 0.2)
        holds(prove.probability(gaussian_threshold, q, None), none, 0.2)
    joint = normal.pdf(3 - 1) * stats.expon.sf(3 - 2)
    holds(prove.probability(gaussian_then_test, [1, 2], (3, True)), joint, 0.2)
    reach = np.arange(-200, 201)
    mass = np.exp(-np.abs(reach) / 2)
    mass /= mass.sum()
    both = mass[:, None] * mass[None, :]
    lead = reach[None, :] - reach[:, None] - 7
    holds(prove.probability(geometric_max(2, True), [7, 0], 1), both[lead > 0].sum(), 1e-9)
    holds(prove.probability(geometric_max(2, False), [7, 0], 1), both[lead >= 0].sum(), 1e-9)


def two_tests(answers: Any, noise: Any) -> Any:
    rho = noise.laplace(1)
    return answers[0] + noise.gaussian(1) > rho, answers[1] + noise.gaussian(2) > 0


def test_delta_is_enclosed() -> None:
    """Between two vectors of answers, with Laplace and Gaussian noise, against quadrature."""
    laplace, normal, wide = stats.laplace(scale=1), stats.norm(), stats.norm(scale=2)

    def law_at(q: tuple[float, float]) -> np.ndarray:
        first = quad(lambda r: laplace.pdf(r) * normal.sf(r - q[0]), -40, 40, points=[0])[0]
        second = wide.sf(-q[1])
        return np.outer([first, 1 - first], [second, 1 - second]).ravel()

    one, other = law_at((0.0, 0.0)), law_at((1.0, -1.0))
    for epsilon in (0.2, 3.0):
        truth = max(
            np.maximum(0, one - math.exp(epsilon) * other).sum(),
            np.maximum(0, other - math.exp(epsilon) * one).sum(),
        )
        low, high = prove.delta(two_tests, (0, 0), (1, -1), epsilon)
        assert float(low) <= truth + 1e-9
        assert truth - 1e-9 <= float(high)
        assert float(high) - float(low) < 0.06
    with pytest.raises(dp.DeclarationError, match="returns numbers"):
        prove.delta(gaussian_then_test, (0, 0), (1, 1), 1)
    with pytest.raises(dp.DeclarationError, match="at least 0"):
        prove.delta(two_tests, (0, 0), (1, 1), -1)


def normal_delta(mu: float, epsilon: float) -> float:
    """The delta of Gaussian noise, for any real epsilon (Balle and Wang 2018)."""
    cdf = stats.norm.cdf
    return float(cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu))


def mixture_delta(
    one: dict[Any, float], other: dict[Any, float], mus: dict[Any, float], epsilon: float
) -> float:
    """The delta of outcomes, some of which have a number with Gaussian noise beside them."""
    total = 0.0
    for outcome, p in one.items():
        q, mu = other[outcome], mus.get(outcome, 0.0)
        if mu:
            total += p * normal_delta(mu, epsilon - math.log(p / q))
        else:
            total += max(0.0, p - math.exp(epsilon) * q)
    return total


def sum_beside_test(answers: Any, noise: Any) -> Any:
    return answers[0] + noise.laplace(2) > 3, answers[1] + noise.gaussian(4)


def released_if_far(answers: Any, noise: Any) -> Any:
    if answers[0] + noise.laplace(1) > 5:
        return answers[1] + noise.gaussian(3)
    return None


def vector_and_sum(answers: Any, noise: Any) -> Any:
    rho = noise.laplace(2)
    for i, x in enumerate(answers):
        if x + noise.laplace(4) >= rho:
            return i, x + noise.gaussian(5)
    return None


@pytest.mark.parametrize("epsilon", [0.1, 1.2, pytest.param(0.5, marks=pytest.mark.slow)])
def test_the_largest_delta_of_mixed_programs(epsilon: float) -> None:
    """Exact deltas on grids of answers lie below the upper end, and one is at least the lower."""
    tail = stats.laplace.sf

    def tests(q: tuple[float, ...]) -> dict[Any, float]:
        return {True: float(tail(3 - q[0], scale=2)), False: float(1 - tail(3 - q[0], scale=2))}

    def release(q: tuple[float, ...]) -> dict[Any, float]:
        return {"number": float(tail(5 - q[0])), None: float(1 - tail(5 - q[0]))}

    quiet = programs.sparse_vector(2, 4)
    outcomes = [[True], [False, True], [False, False]]

    def vector(q: tuple[float, ...]) -> dict[Any, float]:
        return {
            len(o) if o[-1] else None: float(prove.probability(quiet, q, o)[0]) for o in outcomes
        }

    for program, law_at, mus, grid in (
        (sum_beside_test, tests, {True: 1 / 4, False: 1 / 4}, range(-4, 9)),
        (released_if_far, release, {"number": 1 / 3}, range(-2, 12)),
        (vector_and_sum, vector, {1: 1 / 5, 2: 1 / 5}, (-6, 0, 6)),
    ):
        if program is vector_and_sum and epsilon != 0.5:
            continue
        found = prove.largest_delta(program, answers=2, epsilon=epsilon)
        deltas = []
        for q in itertools.product(grid, (-6, 0, 6) if program is vector_and_sum else (0,)):
            one = law_at(q)
            for d in itertools.product((1, -1), repeat=2):
                other = law_at((q[0] + d[0], q[1] + d[1]))
                deltas += [
                    mixture_delta(one, other, mus, epsilon),
                    mixture_delta(other, one, mus, epsilon),
                ]
        assert max(deltas) <= found.high + 1e-12
        assert found.low <= found.high
        assert found.at is not None
        assert found.neighbor is not None
        # what the two vectors need, exactly; and the best of the grid is hardly more
        one, other = (law_at(tuple(map(float, q))) for q in (found.at, found.neighbor))
        its = {o: mu * abs(float(found.at[1] - found.neighbor[1])) for o, mu in mus.items()}
        if program is not vector_and_sum:
            exact = max(mixture_delta(*each, its, epsilon) for each in ((one, other), (other, one)))
            assert exact * 0.999 - 1e-9 <= found.low <= exact + 1e-12
        assert found.low >= max(deltas) * (0.9 if program is vector_and_sum else 0.99)
        if program is sum_beside_test:  # one test of Laplace noise is less than randomized response
            assert max(deltas) > found.high * 0.8


def test_the_delta_of_a_composition() -> None:
    """The checker's own sums: against integrals, the normal law of another library, and a PLD."""
    for x in (Fraction(0), Fraction(1, 3), Fraction(-7, 2), Fraction(-12), Fraction(5)):
        low, high = (Fraction(end, checker.UNIT) for end in checker.normal(x))
        assert low < high < low + Fraction(1, 10**100)
        with mpmath.workdps(40):
            assert abs(mpmath.mpf(low.numerator) / low.denominator - mpmath.ncdf(float(x))) < 1e-16
    assert checker.normal(Fraction(-37)) == (0, 1)
    for x in (0.25, -3.5, 40.0, -500.0):
        low, high = checker.exponential(Fraction(x))
        with mpmath.workdps(400):
            assert (
                mpmath.mpf(low) / checker.UNIT <= mpmath.exp(x) <= mpmath.mpf(high) / checker.UNIT
            )
    # randomized response beside a normal number; and by the accountants' own bounds
    p = math.e / (1 + math.e)
    truth = mixture_delta({0: p, 1: 1 - p}, {0: 1 - p, 1: p}, {0: 0.5, 1: 0.5}, 0.7)
    found = checker.largest_delta([(Fraction(1), 1)], Fraction(1, 2), Fraction(7, 10))
    assert float(found) == pytest.approx(truth, rel=1e-12)
    losses = [Laplace(0.5), Laplace(1 / 3), GaussianBound(2.0)]  # of shifts over scales
    bound = Guarantee(Sequential([Spend(each) for each in losses])).delta(0.6)
    cells = [(Fraction(1, 2), 60), (Fraction(1, 3), 40)]
    found = checker.largest_delta(cells, Fraction(2), Fraction(3, 5))
    assert bound.lower is None or float(found) >= bound.lower
    assert float(found) == pytest.approx(bound.upper, rel=1e-3)


def test_a_claim_of_geometric_noise_is_of_integers() -> None:
    """Of other numbers it says nothing: their fractions are seen in what is returned."""

    def counted(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.geometric(2), answers[1] + noise.gaussian(3)

    found = prove.largest_delta(counted, answers=2, epsilon=0.5)
    assert "Its answers are integers, as geometric noise is." in str(found)
    assert "for 2 answers in integers, where" in claim_of(found.document, Fraction(1, 2))
    pure = prove.prove(counted_alone, answers=1)
    assert "for 1 answer in integers, where" in claim_of(pure.document, Fraction(1, 2))
    alone = prove.largest_delta(normal_of, answers=2, epsilon=0.5)
    assert "integers" not in claim_of(alone.document, Fraction(1, 2)) + str(alone)


@pytest.mark.parametrize("absent", [False, True])
def test_a_region_reaches_no_noise_of_another_kind(absent: bool) -> None:
    """Where v1 < 0 one path draws it as exponential noise: v0, which decides, would move for free.

    At answers of -10 and -9 the output 20 has densities whose ratio is e^2, of which e is claimed.
    """
    nodes = [
        {"draw": "laplace", "scale": "1", "then": 1},
        {"test": [{"q0": "1", "v0": "1"}, True], "yes": 2, "no": 8},
        {"draw": "laplace", "scale": "1", "then": 3},
        {"test": [{"v1": "-1"}, True], "yes": 4, "no": 12},
        {"draw": "laplace", "scale": "1", "then": 5},
        {"test": [{"v1": "1", "1": "3"}, True], "yes": 6, "no": 7},
        {"returns": "...", "forms": [{"q0": "1", "v2": "1"}]},
        {"returns": "...", "forms": [{"q0": "1", "v2": "1"}]},
        {"draw": "exponential", "scale": "1", "then": 9},
        {"test": [{"v1": "1"}, False], "yes": 10, "no": None, "why": {"0": "1", "2": "1"}}
        if absent
        else {"test": [{"v1": "1", "1": "-5"}, False], "yes": 10, "no": 11},
        {"returns": "'exponential'", "forms": []},
        {"returns": "'exponential, small'", "forms": []},
        {"returns": "'not below 0'", "forms": []},
    ]
    each = [{"answers": [a], "noise": {"0": s}} for a, s in (("1", "-1"), ("-1", "1"))]
    both = {
        "ends": [6, 7],
        "region": [[{"v1": "-1"}, True]],  # and nothing of v0
        "inside": [[{"1": "1", "3": "1"}], [{"1": "1", "3": "1"}]],
        "cover": [{}, {}, {}, {"0": "1", "2": "1"}, {}, {}]
        + [{"0": "1", "1": "1"}] * (1 if absent else 2),
        "moves": [{**move, "noise": {"2": move["noise"]["0"]}} for move in each],
    }
    document = {
        "format": checker.FORMAT,
        "answers": 1,
        "neighbors": "each",
        "radii": ["1"],
        "epsilon": "1",
        "program": nodes,
        "groups": [
            both,
            *({"ends": [i], "moves": each} for i in ((10, 12) if absent else (10, 11, 12))),
        ],
    }
    with pytest.raises(checker.ProofError, match="a region reaches exponential noise"):
        checker.check(document)


def noise_of_two_kinds(answers: Any, noise: Any) -> Any:
    for i, x in enumerate(answers):
        if x + noise.laplace(1) > 0:
            if noise.laplace(1) < 0:
                return i
            return "none"
        elif noise.exponential(1) < 0:
            return "never"
    return None


def test_runs_that_draw_other_noise_are_told_apart_before_it() -> None:
    """A true proof for every length stays one; its ways are told apart by what is drawn first."""
    proved = prove.prove(noise_of_two_kinds, answers="every", neighbors="one")
    assert isinstance(proved, prove.Proved)
    assert proved.least == 1


def test_documents_that_would_take_for_ever_are_refused() -> None:
    """Moves of integers that no document lists, and what is no document at all."""

    def counted(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.geometric(2), answers[1] + noise.gaussian(3)

    document = json.loads(json.dumps(prove.largest_delta(counted, answers=2, epsilon=0.5).document))
    with pytest.raises(checker.ProofError, match="fewer moves of integers"):
        checker.check(forge(document, _set(["radii"], [str(10**12), "1"])))
    for odd in (None, [], "proof"):
        with pytest.raises(checker.ProofError, match="a document with names"):
            checker.check(odd)  # type: ignore[arg-type]
    # draws that do not move have no part in the sum of losses
    still = [(Fraction(0), 39)] * 10**4
    moved = [(Fraction(1), 20)]
    found = checker.largest_delta([*moved, *still], Fraction(0), Fraction(1, 2))
    assert found == checker.largest_delta(moved, Fraction(0), Fraction(1, 2))


def test_the_lower_end_of_a_delta_is_of_integers() -> None:
    """Also on paths without geometric noise answers are integers: no fractions are looked at."""

    def mixed(answers: Any, noise: Any) -> Any:
        if 3 * answers[0] + noise.laplace(3) > 1:
            return 1
        return 2 if 2 * answers[0] + noise.geometric(2) > 3 else 3

    def law_at(a: int) -> list[float]:
        first = stats.laplace(scale=3).sf(1 - 3 * a)
        second = (1 - first) * stats.dlaplace(1 / 2).sf(3 - 2 * a)
        return [first, second, 1 - first - second]

    pairs = [(a, a + d) for a in range(-9, 10) for d in (-2, -1, 1, 2)]
    truth = max(
        sum(max(p - math.exp(0.1) * q, 0) for p, q in zip(law_at(a), law_at(b), strict=True))
        for a, b in pairs
    )
    found = prove.largest_delta(mixed, answers=1, epsilon=0.1, radius=2)
    assert found.low <= truth * (1 + 1e-9) <= found.high
    assert found.low >= 0.9 * truth


def counted_alone(answers: Any, noise: Any) -> Any:
    return answers[0] + noise.geometric(2)


def _other_key(document: dict[str, Any], key: str) -> None:
    """Write the draws that move by other texts of their numbers, and that none of them moves."""
    document["losses"] = [["0", 1] for _ in document["losses"]]
    for row in document["moves"]:
        row["noise"] = [[{key.format(i): s for i, s in row["noise"][0][0].items()}]]


def test_forged_proofs_of_a_delta_are_refused() -> None:
    """Each way to claim less: a smaller delta, other neighbours, noise, paths, moves, cells."""
    everything = json.loads(
        json.dumps(prove.largest_delta(released_if_far, answers=2, epsilon=0.5).document)
    )
    alone = json.loads(json.dumps(prove.largest_delta(two_of, answers=2, epsilon=0.5).document))
    few = [(Fraction(shift), 20) for shift, _ in alone["losses"]]  # cells: a quicker check
    alone["losses"] = [[str(shift), 20] for shift, _ in few]
    alone["delta"] = str(checker.largest_delta(few, Fraction(0), Fraction(1, 2)))
    assert checker.check(everything) == checker.check(alone) == Fraction(1, 2)
    assert not everything["alone"]
    assert alone["alone"]
    normal = next(i for i, n in enumerate(everything["program"]) if n.get("draw") == "gaussian")
    first = everything["moves"][0]
    both = [
        _set(["delta"], "0.01"),
        _set(["epsilon"], "2/5"),  # at which delta is larger
        _set(["mu"], "-1"),
        _set(["radii"], ["2", "1"]),
        _set(["radii"], ["1"]),
        _set(["neighbors"], "all"),
        lambda d: d["groups"].pop(),
        lambda d: d["groups"].append(d["groups"][0]),
        lambda d: d["moves"].pop(),
        _set(["moves"], []),
        _set(["moves", 0, "noise"], []),
        lambda d: d["moves"][0]["noise"][0].pop(),
        lambda d: d["moves"][0]["noise"][0].append({}),
        _set(["program", 0, "scale"], "1/2"),  # less noise
        _set(["losses", 0, 0], "1/4"),
        _set(["losses", 0, 0], "-1"),
        _set(["losses", 0, 1], 0),
        _set(["losses", 0, 1], 10**9),
        _set(["losses"], []),
        lambda d: d["losses"].append(["0", 1]),
        lambda d: d.pop("alone"),
        lambda d: d.update(loop={}),  # which would be read as a claim for every length
        lambda d: d.update(rho="1/8"),
        lambda d: d.update({"alone": not d["alone"]}),
    ]
    mixed = [
        _set(["mu"], "1/4"),
        _set(["program", normal, "scale"], "2"),
        _set(["program", normal, "draw"], "laplace"),
        _set(["moves", 0, "gaussian"], []),  # what is returned moves
        _set(["moves", 0, "gaussian", 0, 2], "0"),
        _set(["moves", 0, "gaussian", 0, 1], "6"),  # of a draw that there is not
        lambda d: d["moves"][0]["gaussian"].append(d["moves"][0]["gaussian"][0]),
        lambda d: d["moves"][0].update(noise=[[{}, {}] for _ in d["groups"]]),
        lambda d: d["moves"][0]["noise"].reverse(),
        lambda d: d["moves"][0]["noise"][1].reverse(),
        _set(["losses", 0, 1], 50),  # a pure loss is one of randomized response
    ]
    single = [functools.partial(_other_key, key=key) for key in ("0{}", " {}", "+{}", "0_{}")]
    for good, changes in ((everything, [*both, *mixed]), (alone, [*both, *single])):
        none_is_accepted(good, changes)
    assert first["gaussian"]
    # fewer cells are a coarser bound, which holds where the document says so
    coarse = {**alone, "losses": [[shift, 1] for shift, _ in alone["losses"]]}
    with pytest.raises(checker.ProofError, match="delta is too small"):
        checker.check(coarse)
    assert checker.check({**coarse, "delta": "0.2"}) == Fraction(1, 2)
    with pytest.raises(dp.DeclarationError, match="one epsilon and delta"):
        ProvedProgram(1.0, json.dumps(everything))


def test_random_changes_of_a_proof_of_a_delta_claim_no_less() -> None:
    """Whatever is accepted of the same program and claim has a delta that two vectors need."""
    found = prove.largest_delta(released_if_far, answers=2, epsilon=0.5)
    good = json.loads(json.dumps(found.document))
    chosen = random.Random(7)
    values = ["0", "1", "-1", "1/2", "2", "1/3", 0, 1, 2, True, None, {}, [], "laplace", "each"]
    accepted = 0
    for _ in range(300):
        forged = copy.deepcopy(good)
        for _ in range(chosen.choice([1, 1, 2])):
            at: Any = forged
            while True:
                key = chosen.choice(list(at) if isinstance(at, dict) else list(range(len(at))))
                if not (isinstance(at[key], dict | list) and at[key]) or chosen.random() < 0.1:
                    break
                at = at[key]
            at[key] = chosen.choice(values)
        try:
            checker.check(forged)
        except checker.ProofError:
            continue
        same = all(forged[k] == good[k] for k in ("program", "neighbors", "radii", "epsilon"))
        if same and "delta" in forged and "rho" not in forged:
            accepted += 1
            assert Fraction(forged["delta"]) >= Fraction(found.low)
    assert accepted > 2


def test_a_claimed_delta() -> None:
    """Proved, refuted by two neighbours, or open between the two."""
    least = prove.largest_delta(released_if_far, answers=2, epsilon=0.5)
    assert least.holds
    found = prove.largest_delta(released_if_far, answers=2, epsilon=0.5, delta=0.1)
    assert found.holds is False
    between = (least.delta + Fraction(least.low)) / 2
    for claim, holds, word in (
        (Fraction(3, 10), True, "PROVED"),
        (found.claim, False, "REFUTED"),
        (between, None, "UNDECIDED"),
        (None, True, "PROVED"),
    ):
        claimed = attrs.evolve(least, claim=claim)
        assert claimed.holds is holds
        assert str(claimed).startswith(word)
    with pytest.raises(dp.DeclarationError, match="delta must be"):
        prove.largest_delta(released_if_far, answers=2, epsilon=0.5, delta=math.nan)


def test_the_largest_delta_does_not_see_the_path() -> None:
    """Two scales by a hidden test: the lower end is below a sum over the released number's law."""

    def hidden(answers: Any, noise: Any) -> Any:
        if answers[0] + noise.laplace(1) > 1:
            return answers[1] + noise.gaussian(1)
        return answers[1] + noise.gaussian(2)

    found = prove.largest_delta(hidden, answers=2, epsilon=3, neighbors=[[(-2, -1.5), (1, 1.5)]])
    assert found.at is not None
    assert found.neighbor is not None
    y, step = np.linspace(-30, 30, 60001, retstep=True)

    def density(at: Any) -> Any:
        first, second = map(float, at)
        passed = math.exp(first - 1) / 2 if first < 1 else 1 - math.exp(1 - first) / 2
        parts = ((passed, 1), (1 - passed, 2))
        return sum(
            p * np.exp(-((y - second) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
            for p, s in parts
        )

    one, other = density(found.at), density(found.neighbor)
    exact = max(
        float(np.maximum(a - math.e**3 * b, 0).sum() * step)
        for a, b in ((one, other), (other, one))
    )
    assert found.low <= exact + 1e-6
    assert exact <= found.high


def test_the_largest_delta_of_one_kind_of_noise() -> None:
    """Gaussian noise alone exactly; two Laplace draws by quadrature; and what is refused."""
    one = prove.largest_delta(normal_of, answers=2, epsilon=0.5, neighbors="one")
    truth = normal_delta(1 / 3, 0.5)
    assert one.low <= truth <= one.high
    assert one.high == pytest.approx(truth, abs=1e-9)
    assert one.low == pytest.approx(truth, rel=1e-6)
    # two numbers that both move by 1, of scale 3: the sum of two losses in -1/3 to 1/3
    pair = prove.largest_delta(two_of, answers=2, epsilon=0.5)

    def inner(x: float) -> float:  # of one coordinate at x, the other's delta
        mine = (abs(x - 1) - abs(x)) / 3
        left = 0.5 - mine
        if left >= 1 / 3:
            return 0.0
        if left <= -1 / 3:
            return 1 - math.exp(left)
        return 1 - math.exp((left - 1 / 3) / 2)  # (Dwork and Roth 2014: the Laplace profile)

    truth, _ = quad(lambda x: stats.laplace.pdf(x, scale=3) * inner(x), -60, 60, points=[0, 1])
    assert pair.low <= truth + 1e-9
    assert pair.high >= truth - 1e-9
    assert pair.high == pytest.approx(truth, rel=1e-4)
    assert pair.low > truth * 0.98  # of cells of what is returned
    # of two numbers with Gaussian noise the bound is a half-space, and nothing is lost
    both = prove.largest_delta(normal_of, answers=2, epsilon=0.5)
    assert both.low == pytest.approx(normal_delta(math.sqrt(2) / 3, 0.5), rel=1e-6)
    assert both.low <= both.high
    assert "0.666" in str(pair)

    def two_sides(answers: Any, noise: Any) -> Any:
        v = noise.gaussian(1)
        return answers[0] + v > 0, answers[0] - v > 0

    with pytest.raises(dp.DeclarationError, match="answer the neighbours' moves"):
        prove.largest_delta(two_sides, answers=1, epsilon=1)
    with pytest.raises(dp.DeclarationError, match="at least 0"):
        prove.largest_delta(two_of, answers=2, epsilon=-1)


def half_of_it(answers: Any, noise: Any) -> Any:
    return answers[0] / 2 + noise.geometric(1)


def integers_and_sum(answers: Any, noise: Any) -> Any:
    return [x + noise.geometric(2) for x in answers], answers.sum() + noise.geometric(2)


def in_a_circle(answers: Any, noise: Any) -> Any:
    a, b, c = (answers[i] + noise.gaussian(1) for i in range(3))
    return a > b, b > c, a > c


def normal_sign(answers: Any, noise: Any) -> Any:
    return answers[0] + noise.gaussian(2) > 0


@pytest.mark.parametrize(
    ("program", "answers", "neighbors", "claim"),
    [
        (geometric_max(1, True), 3, "each", 1),
        (geometric_threshold, 2, "each", 0.4),
        (integers_and_sum, 2, "one", 0.99),
        (half_of_it, 1, "each", 9),
        (normal_sign, 1, "each", 1),
        (normal_sign, 1, "each", None),
        (gaussian_threshold, 2, "each", 1),
        (in_a_circle, 3, "each", 0.4),
    ],
)
def test_refutations_with_other_noise_have_a_line(
    program: Callable[..., Any], answers: int, neighbors: str, claim: float | None
) -> None:
    verdict = prove.prove(program, answers=answers, neighbors=neighbors, epsilon=claim)
    assert isinstance(verdict, prove.Refuted), str(verdict)
    assert verdict.loss > verdict.epsilon
    assert eval(verdict.line, {"prove": prove, verdict.name: program}) == verdict.loss
    one, other = (
        prove.probability(program, at, verdict.output) for at in (verdict.at, verdict.neighbor)
    )
    assert one[0] > math.exp(verdict.epsilon) * other[1]
    assert math.isinf(verdict.lower) or verdict.lower <= 2


def gaussian_histogram(answers: Any, noise: Any) -> Any:
    return answers + noise.gaussian(2, size=len(answers))


def test_gaussian_noise_is_concentrated() -> None:
    """A vector with noise of sigma 2: rho = 1/8 for one answer, n/8 for each."""
    one = prove.concentrated(gaussian_histogram, answers=3, neighbors="one")
    each = prove.concentrated(gaussian_histogram, answers=3)
    assert isinstance(one, prove.Proved)
    assert isinstance(each, prove.Proved)
    assert (one.least, each.least) == (Fraction(1, 8), Fraction(3, 8))
    assert one.tight
    assert "zCDP" in str(one)
    # a comparison of released numbers costs nothing; of two draws it is bounded
    released = prove.concentrated(
        lambda q, noise: (lambda y: (y[0], y[1], y[0] > y[1]))(gaussian_histogram(q, noise)),
        answers=2,
    )
    assert isinstance(released, prove.Proved)
    assert released.least == Fraction(1, 4)
    assert isinstance(prove.concentrated(gaussian_histogram, answers=3, rho=0.3), prove.Undecided)
    document = json.loads(json.dumps(one.document))
    for change in (
        _set(["rho"], "1/9"),
        _set(["program", 0, "scale"], "1"),
        _set(["program", 0, "draw"], "laplace"),
        _set(["moves", 0, "noise"], {}),
        lambda d: d["moves"].pop(),
        _set(["neighbors"], "each"),
    ):
        with pytest.raises(checker.ProofError):
            checker.check(forge(document, change))
    # pure epsilon: none, unless the noise decides nothing
    refuted = prove.prove(gaussian_histogram, answers=1, epsilon=100)
    assert isinstance(refuted, prove.Refuted)
    assert math.isinf(refuted.lower)


# --- the library's own mechanisms, as programs


def two_of(answers: Any, noise: Any) -> Any:
    return [answers[0] + noise.laplace(3), answers[1] + noise.laplace(3)]


def integers_of(answers: Any, noise: Any) -> Any:
    return answers + noise.geometric(3, size=len(answers))


def normal_of(answers: Any, noise: Any) -> Any:
    return answers + noise.gaussian(3, size=len(answers))


@pytest.mark.parametrize(
    ("program", "answers", "neighbors", "loss"),
    [
        (two_of, 2, "one", lambda: dp.Laplace(scale=3).loss(1)),
        (integers_of, 2, "one", lambda: dp.DiscreteLaplace(scale=3).loss(1)),
        (programs.noisy_max(3), 3, "each", lambda: dp.NoisyMax(scale=3).loss(1, span=2)),
        (programs.noisy_max(3), 3, "together", lambda: dp.NoisyMax(scale=3).loss(1, span=1)),
        (
            programs.noisy_max_exponential(3),
            3,
            "each",
            lambda: dp.NoisyMax(scale=3, noise="exponential").loss(1, span=2),
        ),
        (
            programs.noisy_max_exponential(3),
            3,
            "each",
            lambda: dp.PermuteAndFlip(scale=3).loss(1, span=2),
        ),
        (
            programs.noisy_max_gap(3),
            3,
            "each",
            lambda: dp.NoisyMaxWithGap(scale=3).loss(1, span=2),
        ),
    ],
    ids=["laplace", "discrete", "max", "max of counts", "exponential", "permute and flip", "gap"],
)
def test_the_librarys_mechanisms_are_proved(
    program: Callable[..., Any], answers: int, neighbors: str, loss: Callable[[], Any]
) -> None:
    """Their stated pure epsilons are what is proved of them, written as programs."""
    proved = proof_of(program, answers, neighbors=neighbors)
    assert loss().pure() == pytest.approx(float(proved.least))


def test_the_librarys_vote_is_proved() -> None:
    """`LNMax`: a changed teacher takes a vote from one class and gives it to another."""
    boxes = [
        [(0, 1) if k == i else (-1, 0) if k == j else 0 for k in range(3)]
        for i, j in itertools.combinations(range(3), 2)
    ]
    proved = proof_of(programs.noisy_max(3), 3, neighbors=boxes)
    assert proved.tight
    assert LNMax(scale=3.0).loss(1).pure() == pytest.approx(float(proved.least))


@pytest.mark.parametrize("failure", [0.05, 0.2])
def test_the_librarys_two_thresholds_are_not_refuted(failure: float) -> None:
    """`BetweenThresholds`, whose loss is no pure one: exact deltas, at the stated epsilon."""
    mechanism = dp.BetweenThresholds(scale=2.0, lower=0, upper=24, failure=failure)

    def between(answers: Any, noise: Any) -> Any:
        rho, out = noise.laplace(mechanism.scale), []
        for x in answers:
            noisy = x + noise.laplace(mechanism.query_scale())
            if noisy < mechanism.lower + rho:
                out.append(-1)
            elif noisy >= mechanism.upper - rho:
                out.append(1)
            else:
                return [*out, 0]
        return out

    stated: Any = mechanism.loss(1.0)
    assert 0 < stated.epsilon < 10
    largest = 0.0
    for at, neighbor in (
        ((0, 24), (1, 23)),
        ((0, 0), (-1, 1)),
        ((12, 12), (13, 11)),
        ((25,), (24,)),
    ):
        low, high = prove.delta(between, at, neighbor, stated.epsilon)
        largest = max(largest, float(high))
        assert low <= high
    assert largest <= failure


def program_of(mechanism: dp.SparseVector) -> Callable[..., Any]:
    """Return what `SparseVector` does to values, as a program."""
    return programs.sparse_vector(
        mechanism.scale, mechanism.query_scale(), mechanism.count, numeric=mechanism.numeric
    )


def gap_program_of(mechanism: dp.SparseVectorWithGap) -> Callable[..., Any]:
    """Return what `SparseVectorWithGap` does to values, as a program."""
    scale, query, count = mechanism.scale, mechanism.query_scale(), mechanism.count
    margin = Fraction(2 * math.sqrt(2) * 2 * query) if mechanism.adaptive else None

    def leads(answers: Any, noise: Any) -> Any:
        threshold = noise.laplace(scale)
        left, out = 2 * count, []
        for answer in answers:
            lead = None
            if margin is not None:
                far = answer + noise.laplace(2 * query) - threshold
                if far >= margin:
                    lead = far
                    left -= 1
            if lead is None and left >= 2:
                near = answer + noise.laplace(query) - threshold
                if near >= 0:
                    lead = near
                    left -= 2
            out.append(lead)
            if left == 0:
                break
        return out

    return leads


@pytest.mark.parametrize("neighbors", ["each", "together"])
@pytest.mark.parametrize(
    "mechanism",
    [
        dp.SparseVector(scale=3.0, threshold=0),
        pytest.param(dp.SparseVector(scale=3.0, threshold=0, count=3), marks=pytest.mark.slow),
        dp.SparseVector(scale=3.0, threshold=0, count=2, monotone=True),
        dp.SparseVector(scale=3.0, threshold=0, count=2, numeric=5.0),
        dp.SparseVector(scale=3.0, threshold=0, count=2, numeric=9.0),
        dp.SparseVector(scale=9.0, threshold=0, numeric=3.0),
        dp.SparseVectorWithGap(scale=3.0, threshold=0, adaptive=False, count=2),
        dp.SparseVectorWithGap(scale=3.0, threshold=0),
        pytest.param(
            dp.SparseVectorWithGap(scale=3.0, threshold=0, count=2), marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_the_librarys_sparse_vectors_are_proved(mechanism: Any, neighbors: str) -> None:
    """For every number of values, with the stated epsilon; of the simplest no smaller one holds."""
    gap = isinstance(mechanism, dp.SparseVectorWithGap)
    program = gap_program_of(mechanism) if gap else program_of(mechanism)
    verdict = prove.prove(program, answers="every", neighbors=neighbors)
    assert isinstance(verdict, prove.Proved), str(verdict)
    stated = mechanism.loss(1, span=2 if neighbors == "each" else 1).pure()
    assert verdict.least <= Fraction(stated)
    assert float(verdict.least) == pytest.approx(stated, rel=1e-12)
    assert verdict.tight or mechanism.count > 1 or gap


@pytest.mark.parametrize(("scale", "numeric"), [(3.0, 5.0), (9.0, 3.0)])
def test_sparse_vector_of_moves_that_are_one_apart_is_proved(scale: float, numeric: float) -> None:
    """The loss of monotone values is that of all moves that are at most 1 apart, of any signs."""
    mechanism = dp.SparseVector(scale, threshold=0, count=2, numeric=numeric)
    boxes = [[(Fraction(m, 2), Fraction(m, 2) + 1)] * 4 for m in (-2, -1, 0)]
    verdict = prove.prove(program_of(mechanism), answers=4, neighbors=boxes)
    assert isinstance(verdict, prove.Proved)
    stated = mechanism.loss(1, span=1).pure()
    assert 0.8 * stated < verdict.least <= stated


def test_the_librarys_gaussian_noise_is_proved() -> None:
    proved = prove.concentrated(normal_of, answers=2, neighbors="one")
    assert isinstance(proved, prove.Proved)
    assert dp.Gaussian(sigma=3).loss(1).rho() == pytest.approx(float(proved.least))


# --- in plans


def histogram_plan(mechanism: dp.Mechanism) -> dp.Pipeline:
    people = dp.dataset("people", columns={"region": ["A", "B", "C"]})
    return dp.Pipeline(x=people["region"].histogram().release(mechanism))


def test_a_proved_function_in_a_plan() -> None:
    mechanism = dp.Mechanism.from_function(programs.sparse_vector(), answers=3, scale=dp.Free("b"))
    plan = histogram_plan(mechanism).calibrate(epsilon=0.5)
    certificate = plan.certify()
    assert certificate.epsilon == pytest.approx(0.5, rel=1e-9)
    assert certificate.nodes[0].theorem.startswith("proved")
    assert "proved of this program" in dp.markdown(certificate)

    class Claimed(dp.Mechanism):
        def release(self, value: Any, stream: Any) -> Any:
            return value

        def loss(self, distance: float) -> Any:
            return mechanism.fixed(1.0).loss(distance)

    assert histogram_plan(Claimed()).certify().nodes[0].theorem == "stated by its class"
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    assert dp.verify(certificate).holds
    result = again.simulate(people={"region": ["A"] * 40}, seed=1)["x"]
    assert result[0] == 1
    assert np.isnan(result[1:]).all()


def test_a_certificate_with_a_forged_proof_is_refused() -> None:
    plan = histogram_plan(dp.Mechanism.from_function(programs.noisy_max(2), answers=3, scale=1.0))
    text = plan.certify().to_json()
    assert dp.verify(dp.Certificate.from_json(text)).holds
    # the scale in the proof's program, in the plan that the certificate carries
    forged = text.replace('\\"scale\\":\\"2\\"', '\\"scale\\":\\"1\\"')
    assert forged != text
    with pytest.raises(dp.DocumentError, match="does not hold"):
        dp.verify(dp.Certificate.from_json(forged))


def test_a_mechanism_needs_a_proof_and_its_number_of_answers() -> None:
    with pytest.raises(dp.DeclarationError, match="REFUTED"):
        dp.Mechanism.from_function(programs.noisy_max(1), answers=3, epsilon=1)
    with pytest.raises(dp.DeclarationError, match="from_function"):
        histogram_plan(dp.Mechanism.from_function(programs.noisy_max(2), answers=2))
    with pytest.raises(dp.DeclarationError, match="returns more than numbers"):
        dp.Mechanism.from_function(programs.adaptive_sparse_vector(8), answers=1)
    with pytest.raises(dp.DeclarationError, match="not JSON"):
        type(dp.Mechanism.from_function(programs.noisy_max(2), answers=2))(scale=1.0, proof="{")


def test_the_loss_follows_distance_scale_and_span() -> None:
    made = dp.Mechanism.from_function
    each = made(programs.noisy_max(2), answers=3, scale=4.0)
    assert each.norm == math.inf
    assert each.loss(3).pure() == pytest.approx(3 / 4)
    together: Any = made(programs.noisy_max(2), answers=3, neighbors="together")
    assert together.uses_span
    assert together.loss(1.0, span=1.0).pure() == pytest.approx(1 / 2)
    # where answers may move apart, by the span
    assert together.loss(1.0, span=2.0).pure() == pytest.approx(1)
    assert made(programs.histogram(1), answers=2, neighbors="one").norm == 1
    # Gaussian noise: the loss of the library's own
    gaussian = made(gaussian_histogram, answers=2, neighbors="one", scale=3.0)
    assert gaussian.loss(2.0).rho() == pytest.approx((2 / 6) ** 2 / 2)


@pytest.mark.parametrize(
    ("program", "answers"),
    [
        (programs.sparse_vector(), [1.0, 0.0, -1.0]),
        (programs.noisy_max_exponential(2), [0.5, 0.0, 1.0]),
        (programs.outside_band(4), [2.0, -1.0]),
    ],
    ids=["sparse vector", "exponential", "band"],
)
def test_a_release_has_the_exact_law(program: Callable[..., Any], answers: list[float]) -> None:
    """Counts of 1500 releases against exact probabilities: chi-square, false alarm below 1e-7."""
    mechanism = dp.Mechanism.from_function(program, answers=len(answers), scale=1.5)
    stream = SeededStream(7)
    counts = Counter(
        repr(mechanism.release(np.array(answers), stream).tolist()) for _ in range(1500)
    )
    scaled = [Fraction(x) / Fraction(1.5) for x in answers]
    # at noise of 1.5 times the scale: that of the answers over 1.5 where thresholds are 0
    tree = prove.unroll(program, len(answers))
    if program.__name__ == "outside_band":  # whose width is 3: by scales of 1.5
        mechanism = dp.Mechanism.from_function(program, answers=len(answers), scale=1.0)
        counts = Counter(
            repr(mechanism.release(np.array(answers), stream).tolist()) for _ in range(1500)
        )
        scaled = [Fraction(x) for x in answers]
    expected: Counter[str] = Counter()
    for group in groups_of(tree):
        value = eval(group.leaf.skeleton)
        parts = value if isinstance(value, list) else [value]
        numbers = [math.nan if v is None else float(v) for v in parts]
        numbers += [math.nan] * ((len(answers) if isinstance(value, list) else 1) - len(numbers))
        key = repr(numbers if isinstance(value, list) else numbers[0])
        expected[key] += float(bounds(law(group, scaled, []), 40)[0])
    assert set(counts) <= set(expected)
    statistic = sum((counts[k] - 1500 * p) ** 2 / (1500 * p) for k, p in expected.items())
    assert statistic < stats.chi2.isf(1e-7, len(expected) - 1)


def test_geometric_noise_needs_counts() -> None:
    def noisy(answers: Any, noise: Any) -> Any:
        return answers + noise.geometric(1, size=len(answers))

    made = dp.Mechanism.from_function(noisy, answers=3, neighbors="one", scale=2.0)
    values = histogram_plan(made).simulate(people={"region": ["A"] * 9}, seed=3)["x"]
    assert (values == np.round(values)).all()
    people = dp.dataset("people", columns={"x": (0.0, 0.5)})
    single = dp.Mechanism.from_function(noisy, answers=1, scale=2.0)
    with pytest.raises(dp.DeclarationError, match="integers"):
        dp.Pipeline(x=people["x"].sum().release(single)).certify()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_mechanisms.py"
    file.write_text(
        "def above(answers, noise):\n"
        "    threshold = noise.laplace(2)\n"
        "    return [x + noise.laplace(4) >= threshold for x in answers]\n"
        "def wrong(answers, noise):\n"
        "    return float(answers[0])\n"
        "def first(answers, noise):\n"
        "    threshold = noise.laplace(2)\n"
        "    for i, x in enumerate(answers):\n"
        "        if x + noise.laplace(4) >= threshold:\n"
        "            return i\n"
        "def both(answers, noise):\n"
        "    return answers[0] + noise.laplace(2) > 3, answers[1] + noise.gaussian(4)\n"
    )
    proof = tmp_path / "proof.json"
    assert main(["prove", f"{file}:above", "--answers", "2", "--epsilon", "1",
                 "--proof", str(proof)]) == 0  # fmt: skip
    assert "PROVED: above is 1-DP for 2 answers" in capsys.readouterr().out
    assert main(["verify", str(proof)]) == 0
    said = capsys.readouterr().out
    assert "holds: above, as the program in the proof, is 1-DP for 2 answers" in said
    assert "where every answer moves by at most 1" in said
    assert main(["prove", f"{file}:first", "--answers", "every", "--epsilon", "1",
                 "--proof", str(proof)]) == 0  # fmt: skip
    assert "PROVED: first is 1-DP for every length" in capsys.readouterr().out
    assert main(["verify", str(proof)]) == 0
    assert "is 1-DP for every length, where every answer" in capsys.readouterr().out
    other = tmp_path / "delta.json"
    for delta, code, verdict in (("0.06", 0, "Proved"), ("1e-6", 1, "Refuted")):
        assert main(["prove", f"{file}:both", "--answers", "2", "--epsilon", "0.5", "--delta",
                     delta, "--json", "--proof", str(other)]) == code  # fmt: skip
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict
    assert main(["verify", str(other)]) == 0
    assert "both, as the program in the proof, is (1/2, 0.0536" in capsys.readouterr().out
    other.write_text(re.sub('"delta": "[0-9.]*', '"delta": "0.01', other.read_text()))
    assert main(["verify", str(other)]) == 1
    assert "delta is too small" in capsys.readouterr().err
    assert main(["prove", f"{file}:both", "--answers", "2", "--delta", "0.1"]) == 2
    assert "--delta goes with --epsilon" in capsys.readouterr().err
    # a proof of zCDP is no proof of a pure epsilon
    gaussian = prove.concentrated(lambda q, noise: q[0] + noise.gaussian(1), answers=1)
    assert isinstance(gaussian, prove.Proved)
    (zcdp := tmp_path / "zcdp.json").write_text(json.dumps(gaussian.document))
    assert main(["verify", str(zcdp)]) == 0
    assert "is 1/2-zCDP for 1 answer" in capsys.readouterr().out
    assert main(["prove", f"{file}:first", "--answers", "all"]) == 2
    proof.write_text(proof.read_text().replace('"scale": "4"', '"scale": "1"'))
    assert main(["verify", str(proof)]) == 1
    assert main(["prove", f"{file}:above", "--answers", "3", "--epsilon", "0.1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "Refuted"
    assert main(["prove", f"{file}:wrong", "--answers", "1"]) == 2
    assert "line 5 of wrong: float()" in capsys.readouterr().err
    assert main(["prove", f"{file}:none", "--answers", "1"]) == 2


def test_released_numbers_lie_on_a_lattice() -> None:
    mechanism = dp.Mechanism.from_function(programs.histogram(1), answers=2, neighbors="one")
    values = mechanism.release(np.array([0.1, 1e300]), SeededStream(1))
    step = 2.0**-26
    assert values[0] == round(values[0] / step) * step
    assert values[1] == pytest.approx(1e300)
    ends = mechanism.release(np.array([math.inf, math.nan]), SeededStream(1))
    assert np.isfinite(ends).all()
