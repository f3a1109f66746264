"""Proofs for every length: against lower bounds at short lengths; forged proofs; refusals."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import prove_programs as programs
import pytest
from prove_programs import sparse_vector

from adaptive_dp import prove
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import search
from adaptive_dp.prove.compare import compare
from adaptive_dp.prove.mechanism import ProvedProgram
from adaptive_dp.prove.verdicts import adjacency


def above(answers: Any, noise: Any) -> Any:
    threshold = noise.laplace(2, "threshold")
    for i, answer in enumerate(answers):
        if answer + noise.laplace(4, "query") >= threshold:
            return i
    return None


def largest(scale: float, kind: str = "laplace", *, raw: bool = False) -> Callable[..., Any]:
    def largest(answers: Any, noise: Any) -> Any:
        best, at = None, None
        for i, answer in enumerate(answers):
            value = answer + getattr(noise, kind)(scale, "query")
            if best is None or value > best:
                best, at = answer if raw else value, i
        return at

    return largest


def two_largest(scale: float) -> Callable[..., Any]:
    def two_largest(answers: Any, noise: Any) -> Any:
        best, second, at, then = None, None, None, None
        for i, answer in enumerate(answers):
            value = answer + noise.laplace(scale)
            if best is None or value > best:
                best, second, at, then = value, best, i, at
            elif second is None or value > second:
                second, then = value, i
        return at, then

    return two_largest


def block_sums(scale: float) -> Callable[..., Any]:
    def block_sums(answers: Any, noise: Any) -> Any:
        blocks: Any = 0
        running: Any = 0
        inside: Any = 0
        size, out = 0, []
        for answer in answers:
            inside, size = inside + answer, size + 1
            if size == 3:
                blocks = blocks + inside + noise.laplace(scale)
                running, inside, size = blocks, 0, 0
            else:
                running = running + answer + noise.laplace(scale)
            out.append(running)
        return out

    return block_sums


def total(answers: Any, noise: Any) -> Any:
    found = 0
    for answer in answers:
        found = found + answer
    return found + noise.laplace(1)


def histogram(answers: Any, noise: Any) -> Any:
    out = []
    for answer in answers:
        out.append(answer + noise.laplace(1))
    return out


def prefix_sums(answers: Any, noise: Any) -> Any:
    found, out = 0, []
    for answer in answers:
        found = found + answer
        out.append(found + noise.laplace(1))
    return out


def alternating(answers: Any, noise: Any) -> Any:
    """The second of two answers in turn is released: the state of the loop is a bool."""
    out, second = [], False
    for answer in answers:
        if second:
            out.append(answer + noise.laplace(1))
        second = not second
    else:
        out.append("end")
    return out, second


def first_of_two(answers: Any, noise: Any) -> Any:
    """The position of the first answer above a threshold, or of the last one."""
    threshold, at = 3 + noise.laplace(2), None
    for i, answer in enumerate(answers):
        at = i
        if answer + noise.laplace(4) >= threshold:
            break
    return at


RIGHT = [
    (above, "each", 1),
    (sparse_vector(2, 8, 2), "each", 1),
    (sparse_vector(3, 6, numeric=3), "each", 1),
    (sparse_vector(gap=True), "each", 1),
    (sparse_vector(4, 8, 2, fresh=4), "each", 1),
    (sparse_vector(2, 2), "together", 1),
    (programs.adaptive_sparse_vector(8), "each", 1),
    (programs.outside_band(4), "each", 1),
    (first_of_two, "each", 1),
    (largest(2), "each", 1),
    (largest(2, "exponential"), "each", 1),
    (largest(2, "geometric"), "each", 1),
    (largest(1), "together", 1),
    (largest(1), "one", 1),
    (total, "one", 1),
    (histogram, "one", 1),
    (alternating, "one", 1),
    (block_sums(2), "one", 1),
]


@pytest.mark.parametrize(
    ("program", "neighbors", "epsilon"),
    RIGHT,
    ids=[f"{program.__name__}, {neighbors}" for program, neighbors, _ in RIGHT],
)
def test_right_programs_are_proved_for_every_length(
    program: Callable[..., Any], neighbors: str, epsilon: float
) -> None:
    verdict = prove.prove(program, answers="every", neighbors=neighbors)
    assert isinstance(verdict, prove.Proved), str(verdict)
    assert (verdict.answers, verdict.least) == (None, epsilon)
    assert verdict.tight or program is not above
    assert "for every length" in str(verdict)
    document = json.loads(json.dumps(verdict.document))
    assert checker.check(document) == epsilon
    compare(program, document, trials=70)
    # another theorem, at a length: it cannot be below
    at_three = search(prove.unroll(program, 3), adjacency(neighbors, 3))
    assert at_three.lower is not None
    assert at_three.lower <= epsilon


@pytest.mark.parametrize(
    ("program", "neighbors", "answers"),
    [
        (sparse_vector(2, 2), "each", 4),
        (sparse_vector(2, 4, None), "each", 5),
        (programs.between, "each", 5),
        (largest(1), "each", 2),
        (largest(2, raw=True), "each", 4),
        (prefix_sums, "one", 2),
        (programs.first_crossing, "each", 4),
        (sparse_vector(2, 4, 2, gap=True), "each", 5),
        (two_largest(1), "each", 2),
    ],
)  # fmt: skip
def test_wrong_programs_are_refuted_at_a_length(
    program: Callable[..., Any], neighbors: str, answers: int
) -> None:
    verdict = prove.prove(program, answers="every", neighbors=neighbors, epsilon=1)
    assert isinstance(verdict, prove.Refuted), str(verdict)
    assert verdict.answers == answers


def test_two_kept_positions_are_proved_for_every_length() -> None:
    """The noisy two largest: each of both pays for its own move and for that of the others."""
    verdict = prove.prove(two_largest(4), answers="every")
    assert isinstance(verdict, prove.Proved), str(verdict)
    assert verdict.least == 1
    # another theorem, at a length: it is attained from four answers on
    assert search(prove.unroll(programs.noisy_top(2, 4), 4), adjacency("each", 4)).lower == 1
    assert "in the turn of the second position that is returned" in str(verdict)
    document = json.loads(json.dumps(verdict.document))
    assert checker.check(document) == 1
    compare(two_largest(4), document, trials=35)

    def refusal(change: Callable[[dict[str, Any]], None]) -> str:
        forged = copy.deepcopy(document)
        change(forged)
        with pytest.raises(prove.ProofError) as caught:
            checker.check(forged)
        return str(caught.value)

    both = next(
        state
        for state in document["loop"]["states"]
        if -1 < state.find("position:guess") < state.find("position:second")
    )
    other = both.replace("position:second", "position:other")

    def one_of_both(forged: dict[str, Any]) -> None:
        del forged["cases"][2]

    def swapped(forged: dict[str, Any]) -> None:
        node = forged["loop"]["states"][other]["finish"][0]
        found = node["returns"]
        node["returns"] = (
            found.replace("position:guess", "position:x")
            .replace("position:other", "position:guess")
            .replace("position:x", "position:other")
        )
        assert node["returns"] != found

    def twice(forged: dict[str, Any]) -> None:
        # the first position twice, by whatever name: then no guess of two would ever be right
        pair = re.compile(r"'(position:\w+)', '(position:\w+)'")
        for trees in forged["loop"]["states"].values():
            node = trees["finish"][0]
            node["returns"] = pair.sub(r"'\1', '\1'", node["returns"])

    def less(forged: dict[str, Any]) -> None:
        forged["epsilon"] = "9/10"
        for case in forged["cases"]:
            for place in case["places"]:
                place["left"] = str(Fraction(place["left"]) * Fraction(9, 10))

    assert "is missing" in refusal(one_of_both)
    assert "depends on a position" in refusal(swapped)
    assert "kept twice" in refusal(twice)
    assert "costs more" in refusal(less)


def test_what_is_true_of_few_answers_is_not_said_of_all() -> None:
    """Thresholds drawn again at full scale: 1 up to 8 answers, 1.25 at 10, 1.5 from 12 on."""
    program = sparse_vector(2, 8, 2, fresh=2)
    assert isinstance(prove.prove(program, answers=8, epsilon=1), prove.Proved)
    wrong = prove.prove(program, answers="every", epsilon=1)
    assert isinstance(wrong, prove.Refuted)
    assert wrong.answers == 10
    every = prove.prove(program, answers="every")
    assert isinstance(every, prove.Proved)
    assert every.least == Fraction(3, 2)


def test_no_finite_loss_is_no_proof() -> None:
    verdict = prove.prove(prefix_sums, answers="every", neighbors="one")
    assert isinstance(verdict, prove.Undecided)
    assert verdict.upper == float("inf")


def test_integers_of_a_loop_do_not_move_by_fractions() -> None:
    def halves(answers: Any, noise: Any) -> Any:
        found = 0
        for answer in answers:
            found = found + answer / 2
        return found + noise.geometric(1)

    verdict = prove.prove(halves, answers="every", neighbors="one", epsilon=9)
    assert not isinstance(verdict, prove.Proved)

    def whole(answers: Any, noise: Any) -> Any:
        found = 0
        for answer in answers:
            found = found + 2 * answer
        return found + noise.geometric(1)

    right = prove.prove(whole, answers="every", neighbors="one")
    assert isinstance(right, prove.Proved)
    assert right.least == 2
    text = json.dumps(right.document)
    half = json.loads(text.replace('"q0": "2"', '"q0": "1/2"'))
    with pytest.raises(prove.ProofError, match="the numbers of a state are integers"):
        checker.check(half)


def test_a_mechanism_of_a_plan_is_for_a_number_of_answers() -> None:
    verdict = prove.prove(above, answers="every")
    assert isinstance(verdict, prove.Proved)
    with pytest.raises(DeclarationError, match="proved for every number of answers"):
        ProvedProgram(scale=1.0, proof=json.dumps(verdict.document))


def test_radii_scale_the_loss_for_every_length() -> None:
    verdict = prove.prove(above, answers="every", radius=0.5)
    assert isinstance(verdict, prove.Proved)
    assert (verdict.least, verdict.formula) == (Fraction(1, 2), "0.5/b_threshold + 1/b_query")


# --- scales


@pytest.mark.parametrize("answers", ["every", 5])
def test_scales_are_those_of_least_noise(answers: int | str) -> None:
    """Lyu, Su and Li 2017: of one comparison the ratio is the cube root of 2."""

    def make(threshold: float, query: float) -> Callable[..., Any]:
        return sparse_vector(threshold, query)

    found = prove.calibrate(make, {"threshold": 1, "query": 1}, epsilon=0.5, answers=answers)
    ratio = found.scales["query"] / found.scales["threshold"]
    assert ratio == pytest.approx(2 ** (1 / 3), rel=1e-6)
    assert Fraction(1, 2) * (1 - Fraction(1, 10**12)) < found.proof.least <= Fraction(1, 2)
    assert checker.check(found.proof.document) == found.proof.least
    # in proportion to the noise that counts
    other = prove.calibrate(make, {"threshold": 8, "query": 1}, epsilon=0.5, answers=answers)
    ratio = other.scales["query"] / other.scales["threshold"]
    assert ratio == pytest.approx(16 ** (1 / 3), rel=1e-6)


def test_scales_of_several_moves() -> None:
    """Of two rows, each answered once, no noise but its own counts."""

    def make(one: float, other: float) -> Callable[..., Any]:
        def both(answers: Any, noise: Any) -> Any:
            return answers[0] + noise.laplace(one, "one"), answers[1] + noise.laplace(
                other, "other"
            )

        return both

    found = prove.calibrate(make, {"one": 5, "other": 1}, epsilon=2, answers=2, neighbors="one")
    assert found.scales == pytest.approx({"one": 0.5, "other": 0.5}, rel=1e-6)

    def unnamed(one: float) -> Callable[..., Any]:
        return lambda answers, noise: answers[0] + noise.laplace(one)

    with pytest.raises(DeclarationError, match="by other names"):
        prove.calibrate(unnamed, {"one": 1}, epsilon=1, answers=1)
    with pytest.raises(DeclarationError, match="positive weight"):
        prove.calibrate(unnamed, {"one": 0}, epsilon=1, answers=1)
    with pytest.raises(DeclarationError, match="no proof"):
        prove.calibrate(lambda one: prefix_sums, {"one": 1}, epsilon=1, answers="every")


# --- random programs


def random_loop(rng: random.Random) -> Callable[..., Any]:
    """Return a loop with parts of those of the literature, right or wrong."""
    first = rng.choice([1, 2, 4])
    query = rng.choice([None, 1, 2, 4])
    again = rng.choice([None, None, 2, 4])
    numbers = rng.choice([None, None, 2])
    what = rng.choice(["bool", "gap", "position", "noisy", "none"])
    count = rng.choice([1, 2])
    strict, carry, factor = rng.random() < 0.5, rng.random() < 0.2, rng.choice([1, 1, 1, 2])
    kind = rng.choice(["laplace", "laplace", "exponential"])
    keep_best = rng.random() < 0.3

    def random_loop(answers: Any, noise: Any) -> Any:
        threshold: Any = noise.laplace(first)
        found, carried, out = 0, 0, []
        for i, answer in enumerate(answers):
            seen = carried + factor * answer
            if query is not None:
                seen = seen + getattr(noise, kind)(query)
            if (seen > threshold) if strict else (seen >= threshold):
                found += 1
                if what == "bool":
                    out.append(True)
                elif what == "gap":
                    out.append(seen - threshold)
                elif what == "position":
                    out.append(i)
                elif what == "noisy":
                    out.append(answer + noise.laplace(numbers or 4))
                if again is not None:
                    threshold = noise.laplace(again)
                elif keep_best:
                    threshold = seen
                if found == count:
                    return out
            elif what != "none":
                out.append(False)
            if carry:
                carried = carried + answer
        return out

    return random_loop


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 200))]
)
def test_proofs_of_random_loops_are_above_what_lengths_show(seed: int) -> None:
    """A proof for every length is never below the lower bound at 1 to 4 answers."""
    rng = random.Random(seed)
    program, neighbors = random_loop(rng), rng.choice(["each", "one", "together"])
    verdict = prove.prove(program, answers="every", neighbors=neighbors)
    if not isinstance(verdict, prove.Proved):
        return
    compare(program, verdict.document, trials=70, seed=seed)
    for n in (1, 2, 3, 4):
        lower = search(prove.unroll(program, n), adjacency(neighbors, n)).lower
        assert lower is not None
        assert lower <= verdict.least
    assert verdict.least > 0


# --- programs that a reader of their source may misread

FAR = 10**6  # farther than plain numbers are tried: what happens there is seen by reading alone
secret = 0  # a name of the module that programs below have as their own


def hidden(answers: Any, noise: Any) -> Any:
    """The noise of the threshold is released: the loss grows with the number of answers."""
    _paths = [bool(noise.laplace(1) > 0) for _ in range(4)]  # so many: no length is looked at
    threshold = FAR + noise.laplace(2)
    secret = threshold
    for answer in answers:
        if answer + noise.laplace(4) >= threshold:
            break
    else:
        secret = 0
    return secret


def hidden_return(answers: Any, noise: Any) -> Any:
    _paths = [bool(noise.laplace(1) > 0) for _ in range(4)]
    threshold = FAR + noise.laplace(2)
    secret = threshold
    for answer in answers:
        if answer + noise.laplace(4) >= threshold:
            break
    else:
        return 0
    return secret


box = [0, 1]


def own_box(answers: Any, noise: Any) -> Any:
    box, out = [0, 10**-6], []
    for box[0] in answers:
        out.append(box[0] + noise.laplace(box[1] if box[0] > FAR else 1))
    return out


def longer(answers: Any) -> Any:
    """What `enumerate` is not, for more answers than are tried."""
    return [(i, x * len(answers) if len(answers) > 6 else x) for i, x in enumerate(answers)]


def own_enumerate(answers: Any, noise: Any) -> Any:
    enumerate, out = longer, []
    for _, answer in enumerate(answers):
        out.append(answer + noise.laplace(1))
    return out


def ninth(answers: Any, noise: Any) -> Any:
    for i, answer in enumerate(answers):
        if len(repr(i)) == 2:  # a position of two digits
            return answer
    return 0


def is_true(answers: Any, noise: Any) -> Any:
    for answer in answers:
        far = answer > FAR
        if far is True:
            return 1
    return 0


def taken(answers: Any, noise: Any) -> Any:
    ADP_end = longer
    for answer in answers:
        return ADP_end((answer + noise.laplace(1),))


def groups(answers: Any, noise: Any) -> Any:
    for answer in answers:
        try:
            last = answer + noise.laplace(1)
        except* ValueError:
            last = None
    return last


@pytest.mark.parametrize("program", [hidden, hidden_return])
def test_a_variable_of_the_function_is_none_of_the_modules(program: Callable[..., Any]) -> None:
    verdict = prove.prove(program, answers="every")
    assert not isinstance(verdict, prove.Proved)


def test_a_list_whose_part_is_the_loops_variable_is_kept() -> None:
    verdict = prove.prove(own_box, answers="every", neighbors="one")
    assert not isinstance(verdict, prove.Proved) or verdict.least >= 10**6


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (own_enumerate, "needs one loop"),
        (ninth, "a computation with a position"),
        (is_true, "is True"),
        (taken, "names that begin with ADP_ are taken"),
        (groups, "try in a proof"),
    ],
)
def test_what_would_be_misread_is_refused(program: Callable[..., Any], words: str) -> None:
    assert words in refused(program)


def test_what_is_bound_before_a_loop_is_there_after_a_break() -> None:
    def early(answers: Any, noise: Any) -> Any:
        low, high, threshold = 1, 2, noise.laplace(2)
        for answer in answers:
            if answer + noise.laplace(4) >= threshold:
                break
        else:
            return low
        return high

    verdict = prove.prove(early, answers="every")
    assert isinstance(verdict, prove.Proved)
    assert verdict.least == 1


def test_one_radius_of_integers() -> None:
    with pytest.raises(DeclarationError, match="radius=1"):
        prove.prove(largest(2, "geometric"), answers="every", radius=2)


# --- forged proofs


def paths_of(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in items:
        found.append((*at, key))
        if isinstance(each, dict | list):
            found += paths_of(each, (*at, key))
    return found


@pytest.mark.parametrize("program", [above, largest(2), largest(2, "exponential")])
def test_no_change_of_a_proof_proves_less_than_what_is_tight(program: Callable[..., Any]) -> None:
    verdict = prove.prove(program, answers="every")
    assert isinstance(verdict, prove.Proved)
    assert verdict.tight
    rng = random.Random(program.__name__)
    document = json.loads(json.dumps(verdict.document))
    document["epsilon"] = "9/10"
    with pytest.raises(prove.ProofError):
        checker.check(document)
    cases = paths_of(document["cases"])
    for _ in range(80):
        forged = copy.deepcopy(document)
        for case in forged["cases"]:
            for place in case["places"]:  # what is left is as little as is claimed
                place["left"] = str(Fraction(place["left"]) * Fraction(9, 10))
        for _ in range(rng.choice([1, 1, 2, 3])):
            *way, last = rng.choice(cases)
            parent = forged["cases"]
            try:
                for key in way:
                    parent = parent[key]
                old = parent[last]
            except (KeyError, IndexError, TypeError):
                continue
            if isinstance(old, bool):
                parent[last] = not old
            elif isinstance(old, int):
                parent[last] = rng.randrange(-1, 6)
            elif isinstance(old, str):
                parent[last] = rng.choice(["0", "1", "-1", "1/2", "2", "b", "a", "-", "start"])
            elif isinstance(parent, list):
                del parent[last]
            else:
                parent[last] = rng.choice([None, [], {}, old])
        with pytest.raises(prove.ProofError):
            checker.check(forged)


def forged(program: Callable[..., Any], change: Callable[[dict[str, Any]], None]) -> str:
    verdict = prove.prove(program, answers="every")
    assert isinstance(verdict, prove.Proved)
    document = json.loads(json.dumps(verdict.document))
    change(document)
    with pytest.raises(prove.ProofError) as caught:
        checker.check(document)
    return str(caught.value)


def test_forged_proofs_for_every_length_are_refused() -> None:
    def scales(document: dict[str, Any]) -> None:
        text = json.dumps(document["loop"]).replace('"scale": "4"', '"scale": "2"')
        document["loop"] = json.loads(text)

    assert "costs more" in forged(above, scales)

    def guess_left_out(document: dict[str, Any]) -> None:
        del document["cases"][1]

    assert "is missing" in forged(largest(2), guess_left_out)

    def a_rule_of_its_own_noise(document: dict[str, Any]) -> None:
        document["cases"][0]["places"][0]["turns"][0]["ways"][0]["noise"] = [{"v0": "-1"}]

    assert "not known before" in forged(above, a_rule_of_its_own_noise)

    def a_turn_that_knows(document: dict[str, Any]) -> None:
        states = document["loop"]["states"]
        state = next(name for name in states if "position:guess" in name)
        states[state]["finish"][0]["returns"] = "('return', None, )"

    assert "depends on a position" in forged(largest(2), a_turn_that_knows)

    def together(document: dict[str, Any]) -> None:
        document["neighbors"] = "together"

    assert "is missing" in forged(above, together)

    def a_position_of_nowhere(document: dict[str, Any]) -> None:
        text = json.dumps(document["loop"]).replace("position:now", "position:other")
        document["loop"] = json.loads(text)

    assert "position that was not kept" in forged(above, a_position_of_nowhere)

    def a_position_of_no_turn(document: dict[str, Any]) -> None:
        for trees in document["loop"]["states"].values():
            for node in trees["finish"]:
                if "returns" in node:
                    node["returns"] = node["returns"].replace("None", "'position:now'")

    assert "position of no turn" in forged(above, a_position_of_no_turn)

    def without_end(document: dict[str, Any]) -> None:
        for trees in document["loop"]["states"].values():
            trees["finish"][0] = {"returns": "('next', (...,), [])", "forms": [{"q1": "1"}]}

    assert "a finish returns" in forged(above, without_end)

    def exponential(document: dict[str, Any]) -> None:
        text = json.dumps(document["loop"]).replace('"laplace"', '"exponential"')
        document["loop"] = json.loads(text)

    document = prove.prove(largest(2), answers="every", neighbors="together")
    assert isinstance(document, prove.Proved)  # down, the noise moves by -d, which is not below 0
    down = json.loads(json.dumps(document.document))
    exponential(down)
    with pytest.raises(prove.ProofError):  # and it is not shown that it is not
        checker.check(down)


# --- what is not followed


def refused(program: Callable[..., Any]) -> str:
    with pytest.raises(prove.ProgramError) as caught:
        prove.prove(program, answers="every")
    return str(caught.value)


def test_refusals_say_what_to_write() -> None:
    def by_index(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(1)

    def two_loops(answers: Any, noise: Any) -> Any:
        out = []
        for answer in answers:
            out.append(answer + noise.laplace(9))
        for answer in answers:
            out.append(answer + noise.laplace(9))
        return out

    def by_length(answers: Any, noise: Any) -> Any:
        size = len(answers)
        out = []
        for answer in answers:
            out.append(answer + noise.laplace(size))
        return out

    def reads_output(answers: Any, noise: Any) -> Any:
        out: list[Any] = []
        seen = []
        for answer in answers:
            seen.append(answer + noise.laplace(1))
            if len(seen) > 3:
                out.append(1)
        return out

    def cleared(answers: Any, noise: Any) -> Any:
        out = []
        for answer in answers:
            out = []
            out.append(answer + noise.laplace(1))
        return out

    def counts(answers: Any, noise: Any) -> Any:
        count = 0
        for answer in answers:
            if answer + noise.laplace(1) > 0:
                count += 1
        return count

    def parity(answers: Any, noise: Any) -> Any:
        out = []
        for i, answer in enumerate(answers):
            if i % 2:
                out.append(answer + noise.laplace(1))
        return out

    def aliases(answers: Any, noise: Any) -> Any:
        kept = [0]
        same = kept
        for answer in answers:
            kept[0] = answer
        return same[0] + noise.laplace(1)

    def keeps_lists(answers: Any, noise: Any) -> Any:
        kept = None
        for answer in answers:
            kept = {"x": answer}
        return kept["x"] + noise.laplace(1) if kept else None

    def tries(answers: Any, noise: Any) -> Any:
        for answer in answers:
            try:
                last = answer + noise.laplace(1)
            except ValueError:
                last = None
        return last

    def three(answers: Any, noise: Any, extra: int = 1) -> Any:
        for answer in answers:
            return answer + noise.laplace(extra)

    def takes_noise(answers: Any, noise: Any) -> Any:
        noise = noise.laplace(1)
        for answer in answers:
            return answer + noise

    def three_positions(answers: Any, noise: Any) -> Any:
        first, second, third = None, None, None
        for i, answer in enumerate(answers):
            if answer + noise.laplace(1) > 0:
                first, second, third = i, first, second
        return first, second, third

    def one_twice(answers: Any, noise: Any) -> Any:
        first, same = None, None
        for i, answer in enumerate(answers):
            if answer + noise.laplace(1) > 0:
                first = i
                same = first
        return first, same

    assert "needs one loop `for answer in answers:`" in refused(by_index)
    assert "it has 2" in refused(two_loops)
    assert "is used outside of" in refused(by_length)
    assert "seen grows with the answers, and is read" in refused(reads_output)
    assert "only appended to" in refused(cleared)
    assert "a count without a bound" in refused(counts)
    assert "a computation with a position" in refused(parity)
    assert "one list under two names" in refused(aliases)
    assert "a dict that is kept between turns" in refused(keeps_lists)
    assert "try in a proof for every length" in refused(tries)
    assert "its arguments must be (answers, noise)" in refused(three)
    assert "it assigns to noise" in refused(takes_noise)
    assert "more than two positions that are kept" in refused(three_positions)
    assert "one position under two names" in refused(one_twice)
    assert "write it as a function with def" in refused(lambda answers, noise: 1)
    line = parity.__code__.co_firstlineno + 3
    assert f"line {line} of parity" in refused(parity)


def test_a_source_that_is_not_the_functions_is_refused() -> None:
    names: dict[str, Any] = {}
    exec(
        "def unseen(answers, noise):\n    for x in answers:\n        return x + noise.laplace(1)\n",
        names,
    )
    assert "its source is not found" in refused(names["unseen"])
    other = copy.copy(above.__code__)
    changed = type(above)(other.replace(co_consts=(None, 2, "threshold", 3, "query")), globals())
    assert "its source has changed" in refused(changed)
