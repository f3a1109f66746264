"""Programs whose answers have finitely many values: their laws, exactly, by running all cases.

A program that draws by `Noise.flip` alone, with rational probabilities, returns each output with a
rational probability. It is run on plain numbers, once for each sequence of flips that can occur, at
all answers of the domain. So it may do with them what Python can: compare for equality, look up,
round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.checker import exponential_exceeds
from adaptive_dp.prove.program import MOST_PATHS, ProgramError, check_closed, is_float

MOST_ANSWERS = 2**12
"""More vectors of answers than this are not tried."""


class _OtherNoise(BaseException):
    """The program draws noise that is not a flip."""


class _Flips:
    """Noise that follows a sequence of flips, and says which ones it leaves open."""

    def __init__(self, decided: Sequence[bool], name: str) -> None:
        self.decided, self.taken = decided, list[tuple[bool, Fraction]]()
        self.name = name

    def flip(self, chance: float) -> bool:
        """Return what the sequence says; True beyond its end."""
        exact = chance if isinstance(chance, int | float | Fraction) else math.nan
        if isinstance(chance, bool) or not 0 <= exact <= 1:
            raise ProgramError(f"{self.name}: noise.flip needs a probability, got {chance!r}")
        # 0.1 is meant as a tenth
        p = Fraction(repr(float(chance))) if isinstance(chance, float) else Fraction(chance)
        if len(self.taken) > 1000:
            raise ProgramError(
                f"{self.name}: more than 1000 flips in one run: write for _ in range(k)"
            )
        at = len(self.taken)
        value = self.decided[at] if at < len(self.decided) else p > 0
        self.taken.append((value, p))
        return value

    def __getattr__(self, name: str) -> NoReturn:
        raise _OtherNoise(name)


def exact_law(
    function: Callable[..., Any], answers: Sequence[Fraction]
) -> dict[str, Fraction] | None:
    """Return the probabilities of what a function returns at answers; None if not by flips alone.

    Outputs are named by their repr.

    Raises
    ------
    ProgramError
        If it has too many flips, or does not do the same when it runs again.
    """
    name = getattr(function, "__name__", "the function")
    pending: list[tuple[bool, ...]] = [()]
    law: dict[str, Fraction] = {}
    runs = 0
    while pending:
        decided = pending.pop()
        runs += 1
        if runs > MOST_PATHS:
            raise ProgramError(f"{name} has more than {MOST_PATHS} sequences of flips")
        noise = _Flips(decided, name)
        given = np.empty(len(answers), dtype=object)
        given[:] = [int(x) if x.denominator == 1 else x for x in answers]
        try:
            returned = function(given, noise)
        except _OtherNoise:
            return None
        except ProgramError:
            raise
        except Exception as error:
            if runs == 1 and not noise.taken:
                return None
            raise ProgramError(
                f"{name}: {type(error).__name__} at some answers: an error is an output that shows "
                "data; write the branch out"
            ) from None
        if runs == 1 and not noise.taken and not decided:
            return None  # no noise at all: it is followed on unknowns
        chance = Fraction(1)
        for i, (value, p) in enumerate(noise.taken):
            chance *= p if value else 1 - p
            if i >= len(decided) and value and p < 1:
                pending.append((*(taken for taken, _ in noise.taken[:i]), False))
        key = repr(_constant(returned, name))
        law[key] = law.get(key, Fraction(0)) + chance
    if sum(law.values()) != 1:
        raise ProgramError(
            f"{name} did not do the same when it ran again: it depends on more than its arguments"
        )
    return {output: chance for output, chance in law.items() if chance}


def _constant(value: Any, name: str) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return type(value)(_constant(each, name) for each in value)
    if isinstance(value, Fraction):
        if not is_float(value):
            raise ProgramError(
                f"{name} returns {value}, which no float is: return an int or a float"
            )
        return float(value)
    if value is None or type(value) in (bool, int, str) or isinstance(value, float):
        return value
    raise ProgramError(
        f"{name} returns a {type(value).__name__}: return numbers, bool, str, None, and tuples and "
        "lists of them"
    )


def table(
    function: Callable[..., Any], answers: int, domain: Sequence[float]
) -> dict[tuple[Fraction, ...], dict[str, Fraction]]:
    """Return the law at all vectors of answers from a domain.

    Raises
    ------
    DeclarationError
        If there are too many, or the program draws other noise than flips.
    """
    check_closed(function)
    if isinstance(answers, bool) or not isinstance(answers, int) or answers < 1:
        raise DeclarationError(f"answers must be a positive int, got {answers!r}")
    values = sorted({Fraction(x) for x in domain})
    if len(values) < 2 or len(values) ** answers > MOST_ANSWERS:
        raise DeclarationError(
            f"{len(values)} values of {answers} answers: a domain has at least 2 values, and at "
            f"most {MOST_ANSWERS} vectors of answers are tried"
        )
    laws: dict[tuple[Fraction, ...], dict[str, Fraction]] = {}
    for at in itertools.product(values, repeat=answers):
        law = exact_law(function, at)
        if law is None and not laws:
            law = exact_law(lambda q, noise: (noise.flip(1), function(q, noise))[1], at)
        if law is None:
            name = getattr(function, "__name__", "the function")
            raise ProgramError(
                f"{name} with a domain draws noise that is not noise.flip, or fails: leave the "
                "domain out, and it is proved for all real answers"
            )
        laws[at] = law
    return laws


def least_exponent(ratio: Fraction) -> Fraction:
    """Return a short fraction that is an epsilon for a ratio: its logarithm, rounded up."""
    guess = math.log(ratio.numerator) - math.log(ratio.denominator)
    steps = math.ceil(guess * 10**9)
    while not exponential_exceeds(Fraction(steps, 10**9), ratio):
        steps += 1
    return Fraction(steps, 10**9)
