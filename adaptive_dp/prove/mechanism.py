"""A proved program as a mechanism of a plan: its proof is its parameter, and what it runs."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import PrivacyLoss
from accountants.losses.gaussian import GaussianBound
from accountants.losses.given import PureBound
from accountants.numerics import up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise import continuous, discrete_laplace, lattice
from adaptive_dp.noise.stream import Stream
from adaptive_dp.prove import checker
from adaptive_dp.prove.compare import compare
from adaptive_dp.prove.concentrated import concentrated
from adaptive_dp.prove.program import unroll
from adaptive_dp.prove.verdicts import Proved, prove

FAR = 1e300
"""Answers are clamped to this size: no two move further apart."""


def from_function(
    function: Callable[..., Any],
    *,
    answers: int,
    epsilon: float | None = None,
    rho: float | None = None,
    neighbors: str = "each",
    scale: Any = 1.0,
) -> ProvedProgram:
    """Return a plain Python function as a mechanism, with the loss that was proved of it.

    See `Mechanism.from_function`.
    """
    program = unroll(function, answers)
    kinds = {draw.kind for path in program.paths() for draw in path.draws}
    verdict = (
        concentrated(function, answers=answers, rho=rho, neighbors=neighbors)
        if kinds == {"gaussian"} and epsilon is None
        else prove(function, answers=answers, epsilon=epsilon, neighbors=neighbors)
    )
    if not isinstance(verdict, Proved):
        raise DeclarationError(f"no proof, so no mechanism: {verdict}")
    # the function itself, on plain fractions, beside the program that was proved
    compare(function, verdict.document)
    least = {"name": verdict.name, **verdict.document, verdict.measure: str(verdict.least)}
    return ProvedProgram(proof=json.dumps(least, separators=(",", ":")), scale=scale)


def _is_proof(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str):
        raise DeclarationError(f"ProvedProgram.proof must be JSON, got {type(value).__name__}")
    _opened(value)


@frozen
class _Opened:
    """A proof, checked and read.

    Parameters
    ----------
    epsilon
        What it proves, at the scales in it; rho where the noise is Gaussian.
    gaussian
        Whether it is.
    integers
        Whether noise is geometric, so that answers must be integers (or are rounded to some).
    rounded
        What is rounded of the answers; see `adaptive_dp.prove.checker.extended`.
    steps
        Whether a part of a neighbours' move may cost as much as all of it.
    answers, neighbors
        For which answers.
    nodes
        The program.
    width
        How many numbers are returned at most; None where always one, by itself.
    """

    name: str
    epsilon: Fraction
    gaussian: bool
    integers: bool
    rounded: tuple[Mapping[str, Any], ...]
    steps: bool
    answers: int
    neighbors: str
    nodes: tuple[Mapping[str, Any], ...]
    width: int | None


@lru_cache(maxsize=64)
def _opened(proof: str) -> _Opened:
    """Return a proof, once it has been checked.

    Raises
    ------
    DeclarationError
        If it proves nothing, or what the program returns is not flat.
    """
    try:
        document = json.loads(proof)
    except ValueError as error:
        raise DeclarationError(f"ProvedProgram.proof is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DeclarationError("ProvedProgram.proof is not a JSON object")
    try:
        epsilon = checker.check(document)
    except checker.ProofError as error:
        raise DeclarationError(f"ProvedProgram.proof does not hold: {error}") from None
    if "delta" in document:
        raise DeclarationError(
            f"{document['name']} was proved for one epsilon and delta, which say nothing of "
            "compositions: a mechanism of a plan needs a proof of epsilon or of rho"
        )
    if "laws" in document:
        raise DeclarationError(
            f"{document['name']} has a finite domain of answers: no query's values are declared to "
            "have one, so that it is no mechanism of a plan"
        )
    if "loop" in document:
        raise DeclarationError(
            f"{document['name']} was proved for every number of answers: a mechanism of a plan "
            "needs the proof for its own; write from_function(f, answers=5)"
        )
    if document["neighbors"] == "boxes" or any(Fraction(r) != 1 for r in document["radii"]):
        raise DeclarationError(
            "ProvedProgram.proof is of answers that move by other radii than 1; scale the answers, "
            "and prove it for radius=1"
        )
    values = [_value(node) for node in document["program"] if "returns" in node]
    flat = [value for value in values if isinstance(value, list | tuple)]
    parts = [part for value in values for part in (value if value in flat else [value])]
    if not all(
        part is ... or part is None or (isinstance(part, int | float) and abs(part) < FAR)
        for part in parts
    ):
        raise DeclarationError(
            f"{document['name']} returns more than numbers: a mechanism releases a number, a bool "
            "or None, or one list of them"
        )
    raw = {f"q{i}" for i in range(document["answers"])}
    rows = [form for node in document["program"] for form in node.get("forms", [])]
    rows += [node["test"][0] for node in document["program"] if "test" in node]
    geometric = any(node.get("draw") == "geometric" for node in document["program"])
    return _Opened(
        str(document["name"]),
        epsilon,
        "rho" in document,
        geometric and any(raw & row.keys() for row in rows),
        tuple(document.get("rounded", [])),
        bool(
            document.get("rounded") or any(each.get("steps") for each in document.get("joined", []))
        ),
        int(document["answers"]),
        str(document["neighbors"]),
        tuple(document["program"]),
        max((len(value) for value in flat), default=0) if flat else None,
    )


def _value(node: Mapping[str, Any]) -> Any:
    try:
        return ast.literal_eval(node["returns"])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise DeclarationError("ProvedProgram.proof returns what no program can") from None


class ProvedProgram(Mechanism):
    """A mechanism written as a Python function, whose loss is proved: `Mechanism.from_function`.

    Privacy: the proof in it, which is checked whenever the mechanism is made, also by a reader of a
    plan or of a certificate, in exact fractions and without what found it. At distance D, with
    noise of ``scale`` times what the program says, the loss is ``epsilon D / scale``: moves of the
    answers and of the draws are scaled together, and no condition of the proof depends on the
    scales. Where answers are rounded, or what is released jumps with them, D is rounded up (of
    integers, down): a way of so many neighbours. A float that may be a little above 1 counts as 2:
    declare bounds a little below.

    Parameters
    ----------
    scale
        By which the scale of all noise is multiplied.
    proof
        A JSON `str`: the program as a decision tree, and how its noise moves when answers move; see
        `adaptive_dp.prove.checker`.

    Notes
    -----
    Noise: what runs is the program of the proof. Its draws are exact real numbers, of which as many
    bits are drawn as the comparisons need, and comparisons are exact. A released number is
    rounded to a step of the lattice, after the fact. So the theorem holds of it as it stands, for
    all floats as answers.

    What is released are numbers: 0 and 1 for False and True, NaN for None; lists that are shorter
    than the longest are filled with NaN.

    References
    ----------
    Zhang and Kifer 2017 (randomness alignment); `adaptive_dp.prove.alignment` has the theorem.
    """

    theorem: ClassVar[str] = "proved of this program: its proof was checked (prove.alignment)"
    sampler: ClassVar[str] = "exact Laplace, exponential and normal numbers, discrete Laplace"
    no_interval: ClassVar[str] = "what a program returns need not be near its answers"

    scale: float = noise_parameter("b")
    proof: str = attrs.field(validator=_is_proof)

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm of the distance: l1 where one answer moves, else the largest coordinate."""
        return 1 if _opened(self.proof).neighbors == "one" else math.inf

    @property
    def uses_span(self) -> bool:  # type: ignore[override]
        """Whether answers move together in the proof: then the span counts as well."""
        return _opened(self.proof).neighbors == "together"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        scale = f"{self.scale:.6g}" if isinstance(self.scale, float) else str(self.scale)
        return f"ProvedProgram({_opened(self.proof).name}, scale={scale})"

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what is released: the longest list, or () of single numbers."""
        width = _opened(self.proof).width
        return () if width is None else (width,)

    def redrawn(self) -> bool:
        """Whether releasing once more shows how much noise there is: it does not."""
        return False

    def premises(self, release: Any) -> None:
        """Refuse a query with another number of answers than the proof is for."""
        opened = _opened(self.proof)
        query = release.inputs[0]
        count = query.operation.dimension(query.inputs[0].domain)
        if count != opened.answers:
            raise DeclarationError(
                f"{opened.name} was proved for {opened.answers} answers, the query has {count}: "
                f"write from_function({opened.name}, answers={count})"
            )
        step = query.operation.step(query.inputs[0].domain)
        whole = step >= 1 and step == math.floor(step)
        if opened.integers and not whole:
            raise DeclarationError(
                f"{opened.name} draws geometric noise, for answers that are integers, and the "
                "query's may be others: ask for counts, or write noise.laplace"
            )
        if opened.steps and opened.neighbors != "each" and not whole:
            # many small moves that add up to 1 would each move a rounded number by 1
            raise DeclarationError(
                f"{opened.name} rounds answers, or jumps with them, and neighbours' answers may "
                "move by fractions: prove it for neighbors='each', or ask for counts"
            )

    def release(self, value: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """Run the program of the proof, exactly."""
        opened = _opened(self.proof)
        plain = np.nan_to_num(np.reshape(value, -1), nan=0.0, posinf=FAR, neginf=-FAR)
        given = [Fraction(float(x)) for x in np.clip(plain, -FAR, FAR)]
        answers = checker.extended({"rounded": opened.rounded}, given)
        factor = Fraction(self.scale)
        draws: list[tuple[Fraction, continuous.Real | None]] = []
        at = 0
        while "returns" not in (node := opened.nodes[at]):
            if "draw" in node:
                kinds = {
                    "laplace": continuous.laplace,
                    "exponential": continuous.exponential,
                    "gaussian": continuous.normal,
                }
                size = Fraction(node["scale"]) * factor
                if node["draw"] == "geometric":
                    drawn = int(discrete_laplace(stream, float(size), 1)[0])
                    draws.append((Fraction(drawn), None))
                else:
                    draws.append((size, kinds[node["draw"]](stream)))
                at = node["then"]
                continue
            form, strict = node["test"]
            constant, terms = _exact(form, answers, draws)
            if terms:  # a sum of exactly 0 has probability 0
                holds = continuous.is_nonnegative_sum(constant, terms)
            else:
                holds = constant[0] > 0 if strict else constant[0] >= 0
            # a branch that cannot occur is not in the tree
            at = node["yes" if node["no"] is None or (holds and node["yes"] is not None) else "no"]
        numbers = iter([_rounded(*_exact(form, answers, draws)) for form in node["forms"]])
        returned = _value(node)
        parts = returned if isinstance(returned, list | tuple) else [returned]
        filled = [
            next(numbers) if part is ... else math.nan if part is None else float(part)
            for part in parts
        ]
        if opened.width is None:
            return np.asarray(filled[0], dtype=np.float64)
        return np.array(filled + [math.nan] * (opened.width - len(filled)), dtype=np.float64)

    def loss(self, distance: float, span: float = 0.0) -> PrivacyLoss:
        """Return the proved epsilon, times the distance, over the scale."""
        # where answers move together: within R of 0 and of each other are the means of moves that
        # are all up or all down, whose corners the proof answers
        moved = max(distance, span)
        opened = _opened(self.proof)
        if opened.steps:  # a small move may round to a whole one: so many moves of at most 1
            moved = float(math.ceil(moved))
        if opened.gaussian:  # by data processing it is Gaussian noise, shifted by mu
            mu = math.sqrt(2 * up(float(opened.epsilon)))
            return GaussianBound(up(mu * moved / self.scale, 12))
        return PureBound(up(up(float(opened.epsilon)) * moved / self.scale, 8))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss; integers move by integers, in the l1 and in the largest norm."""
        if _opened(self.proof).steps and step >= 1 and step == math.floor(step):
            distance = float(math.floor(distance))
        return self.loss(distance)


Exact = tuple[list[Any], list[tuple[Any, continuous.Real]]]


def _exact(
    form: Mapping[str, str],
    answers: list[Fraction],
    draws: list[tuple[Fraction, continuous.Real | None]],
) -> Exact:
    """Return a form as a number, and multiples of real draws."""
    constant = Fraction(0)
    terms: list[tuple[Any, continuous.Real]] = []
    for name, written in form.items():
        factor = Fraction(written)
        if name == "1":
            constant += factor
        elif name[0] == "q":
            constant += factor * answers[int(name[1:])]
        else:
            scale, real = draws[int(name[1:])]
            if real is None:
                constant += factor * scale
            elif factor:  # 0 of a real number has no bits to compare by
                terms.append((factor * scale, real))
    return [constant], terms


def _rounded(constant: list[Any], terms: list[tuple[Any, continuous.Real]]) -> float:
    """Return a released number, rounded to a step that depends on the noise's scale alone."""
    if not terms:
        return float(constant[0])
    unit = lattice.step(float(min(abs(factor) for factor, _ in terms)))
    exact = Fraction(unit) * continuous.nearest_sum(constant, terms, unit)
    return float(max(min(exact, Fraction(lattice.LARGEST)), -Fraction(lattice.LARGEST)))
