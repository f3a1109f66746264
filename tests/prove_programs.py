"""Mechanisms of the literature as plain Python functions, right and wrong ones, with their truth.

Each row: the function, how many answers, how neighbours differ, the claim, and the tight epsilon
(None: no finite one; a str: what is known of it). The truths were derived by hand, from the papers
that state or refute them (Dwork and Roth 2014; Lyu, Su and Li 2017; Ding et al. 2018 and 2019; Wang
et al. 2020), and not by the code under test.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    name: str
    program: Callable[..., Any]
    answers: int
    neighbors: str
    claim: float
    tight: Any  # Fraction-like, None for infinite, "at least x"
    slow: bool = False


# --- selection


def noisy_max(scale: float) -> Callable[..., Any]:
    def noisy_max(answers: Any, noise: Any) -> Any:
        best, at = answers[0] + noise.laplace(scale), 0
        for i in range(1, len(answers)):
            value = answers[i] + noise.laplace(scale)
            if value > best:
                best, at = value, i
        return at

    return noisy_max


def noisy_max_exponential(scale: float) -> Callable[..., Any]:
    def noisy_max_exponential(answers: Any, noise: Any) -> Any:
        noisy = [x + noise.exponential(scale) for x in answers]
        return max(range(len(noisy)), key=noisy.__getitem__)

    return noisy_max_exponential


def noisy_max_gap(scale: float) -> Callable[..., Any]:
    def noisy_max_gap(answers: Any, noise: Any) -> Any:
        noisy = [x + noise.laplace(scale) for x in answers]
        order = sorted(range(len(noisy)), key=noisy.__getitem__, reverse=True)
        return order[0], noisy[order[0]] - noisy[order[1]]

    return noisy_max_gap


def noisy_top(k: int, scale: float) -> Callable[..., Any]:
    def noisy_top(answers: Any, noise: Any) -> Any:
        noisy = answers + noise.laplace(scale, size=len(answers))
        order = sorted(range(len(noisy)), key=noisy.__getitem__, reverse=True)
        return order[:k]

    return noisy_top


def argmax_of_array(answers: Any, noise: Any) -> Any:
    return int(np.argmax(answers + noise.laplace(2, size=len(answers))))


def max_value(scale: float) -> Callable[..., Any]:
    def max_value(answers: Any, noise: Any) -> Any:
        return max(x + noise.laplace(scale) for x in answers)

    return max_value


def max_with_value(answers: Any, noise: Any) -> Any:
    noisy = [x + noise.laplace(2) for x in answers]
    at = max(range(len(noisy)), key=noisy.__getitem__)
    return at, noisy[at]  # the noise that chose it is released: n times the loss


def max_against_raw(answers: Any, noise: Any) -> Any:
    best, at = answers[0] + noise.laplace(2), 0
    for i in range(1, len(answers)):
        if answers[i] + noise.laplace(2) > best:
            best, at = answers[i], i  # without the noise
    return at


def raw_max(answers: Any, noise: Any) -> Any:
    return int(np.argmax(answers))


def noised_maximum(scale: float) -> Callable[..., Any]:
    def noised_maximum(answers: Any, noise: Any) -> Any:
        return max(answers) + noise.laplace(scale)

    return noised_maximum


# --- sparse vector


def sparse_vector(
    threshold: float | None = 2,
    query: float | None = 4,
    count: int | None = 1,
    *,
    gap: bool = False,
    numeric: float | None = None,
    reuse: bool = False,
    fresh: float | None = None,
) -> Callable[..., Any]:
    """Whether answers are above a noisy threshold, until some are; scales by name."""

    def sparse_vector(answers: Any, noise: Any) -> Any:
        rho: Any = 0 if threshold is None else noise.laplace(threshold, "threshold")
        found, out = 0, []
        for x in answers:
            noisy = x if query is None else x + noise.laplace(query, "query")
            if noisy >= rho:
                if gap:
                    out.append(noisy - rho)
                elif reuse:
                    out.append(noisy)
                elif numeric is not None:
                    out.append(x + noise.laplace(numeric, "number"))
                else:
                    out.append(True)
                found += 1
                if count is not None and found >= count:
                    break
                if fresh is not None:
                    rho = noise.laplace(fresh, "threshold")
            else:
                out.append(False)
        return out

    return sparse_vector


def adaptive_sparse_vector(top: float) -> Callable[..., Any]:
    """Answers far above cost little: a first look with more noise (Ding et al. 2019)."""

    def adaptive_sparse_vector(answers: Any, noise: Any) -> Any:
        rho = noise.laplace(2, "threshold")
        budget, out = Fraction(1, 2), []
        for x in answers:
            far = x + noise.laplace(top, "top") - rho
            if far >= 6:
                out.append(("far", far))
                budget -= Fraction(1, 4)
            else:
                near = x + noise.laplace(4, "query") - rho
                if near >= 0:
                    out.append(("near", near))
                    budget -= Fraction(1, 2)
                else:
                    out.append(("below", 0))
            if budget < Fraction(1, 2):
                break
        return out

    return adaptive_sparse_vector


def outside_band(query: float) -> Callable[..., Any]:
    """The first answer that is far from 0, on either side."""

    def outside_band(answers: Any, noise: Any) -> Any:
        width = 3 + noise.laplace(2, "width")
        for i, x in enumerate(answers):
            if abs(x + noise.laplace(query, "query")) >= width:
                return i
        return None

    return outside_band


def between(answers: Any, noise: Any) -> Any:
    """Two noisy thresholds: a pure epsilon grows with the number of answers."""
    low, high = noise.laplace(4), 2 + noise.laplace(4)
    out = []
    for x in answers:
        noisy = x + noise.laplace(4)
        if noisy < low:
            out.append("below")
        elif noisy > high:
            out.append("above")
        else:
            out.append("between")
            break
    return out


# --- sums


def partial_sum(scale: float) -> Callable[..., Any]:
    def partial_sum(answers: Any, noise: Any) -> Any:
        return answers.sum() + noise.laplace(scale)

    return partial_sum


def smart_sum(scale: float, block: int = 2) -> Callable[..., Any]:
    """All prefix sums, by blocks: an answer is in one block and in one running sum."""

    def smart_sum(answers: Any, noise: Any) -> Any:
        blocks: Any = 0
        running: Any = 0
        inside: Any = 0
        out = []
        for i, x in enumerate(answers):
            inside = inside + x
            if (i + 1) % block == 0:
                blocks = blocks + inside + noise.laplace(scale)
                running, inside = blocks, 0
            else:
                running = running + x + noise.laplace(scale)
            out.append(running)
        return out

    return smart_sum


def tree_sums(scale: float) -> Callable[..., Any]:
    def tree_sums(answers: Any, noise: Any) -> Any:
        level, out = list(answers), []
        while True:
            out.append([x + noise.laplace(scale) for x in level])
            if len(level) == 1:
                return out
            level = [level[i] + level[i + 1] for i in range(0, len(level), 2)]

    return tree_sums


def histogram(scale: float) -> Callable[..., Any]:
    def histogram(answers: Any, noise: Any) -> Any:
        return answers + noise.laplace(scale, size=len(answers))

    return histogram


def clamped_sum(scale: float, width: float = 1) -> Callable[..., Any]:
    def clamped_sum(answers: Any, noise: Any) -> Any:
        return sum(min(max(x, 0), width) for x in answers) + noise.laplace(scale)

    return clamped_sum


def first_crossing(answers: Any, noise: Any) -> Any:
    """When a running sum crosses a noisy threshold; fresh noise at each step."""
    rho, total = noise.laplace(2), 0
    for i, x in enumerate(answers):
        total = total + x
        if total + noise.laplace(4) >= rho:
            return i
    return None


# --- two steps


def twice(first: float, second: float) -> Callable[..., Any]:
    def twice(answers: Any, noise: Any) -> Any:
        return answers[0] + noise.laplace(first, "one"), answers[0] + noise.laplace(second, "two")

    return twice


def shared_noise(answers: Any, noise: Any) -> Any:
    drawn = noise.laplace(2)
    return [x + drawn for x in answers]


def own_threshold(answers: Any, noise: Any) -> Any:
    first = answers[0] + noise.laplace(2)
    return first, answers[1] + noise.laplace(2) > first


def raw_threshold(answers: Any, noise: Any) -> Any:
    return answers[1] + noise.laplace(2) > answers[0], noise.laplace(1) > 0


def own_raw_threshold(answers: Any, noise: Any) -> Any:
    first = answers[0] + noise.laplace(2)
    return first, answers[1] > first


def test_release(noisy: bool) -> Callable[..., Any]:
    """A distance is tested, and an answer released where it is large."""

    def test_release(answers: Any, noise: Any) -> Any:
        distance = answers[0] + noise.laplace(2) if noisy else answers[0]
        if distance > 5:
            return answers[1] + noise.laplace(2)
        return None

    return test_release


def branch_on_raw(answers: Any, noise: Any) -> Any:
    return answers[0] + (noise.laplace(1) if answers[0] > 0 else noise.laplace(2))


def branch_on_noisy(answers: Any, noise: Any) -> Any:
    """The scale follows a released number: right, with the larger loss."""
    first = answers[0] + noise.laplace(2)
    return first, answers[1] + noise.laplace(2 if first > 3 else 4)


def no_noise(answers: Any, noise: Any) -> Any:
    return answers[0], noise.laplace(1)


def unused_noise(answers: Any, noise: Any) -> Any:
    value = answers[0] + noise.laplace(1)
    return value - noise.laplace(1) + answers[0] - value > 0


def cancelled_noise(answers: Any, noise: Any) -> Any:
    drawn = noise.laplace(1)
    return answers[0] + drawn, drawn


def double_answer(answers: Any, noise: Any) -> Any:
    return 2 * answers[0] + noise.laplace(1)


def mutated(answers: Any, noise: Any) -> Any:
    """The array is changed in place: what was read before stays what it was."""
    first = answers[0]
    answers[0] = answers[0] * 3
    return first + noise.laplace(1)


def mutated_wrong(answers: Any, noise: Any) -> Any:
    answers *= 3
    return answers[0] + noise.laplace(1)


def constant(answers: Any, noise: Any) -> Any:
    return [1, None, "a # b ..."]


RIGHT = [
    Case("noisy_max", noisy_max(2), 5, "each", 1, 1),
    Case("noisy_max, together", noisy_max(1), 4, "together", 1, 1),
    Case("noisy_max, exponential", noisy_max_exponential(2), 4, "each", 1, 1),
    Case("noisy_max, gap", noisy_max_gap(2), 3, "each", 1, 1),
    Case("noisy_max, gap of four", noisy_max_gap(2), 4, "each", 1, 1),
    Case("noisy_max, top 2", noisy_top(2, 4), 4, "each", 1, 1),
    Case("noisy_max, numpy", argmax_of_array, 4, "each", 1, 1),
    Case("noised maximum", noised_maximum(1), 4, "each", 1, 1),
    Case("maximum of noised", max_value(3), 3, "each", 1, 1),
    Case("sparse vector", sparse_vector(), 6, "each", 1, 1),
    Case("sparse vector, count 2", sparse_vector(2, 8, 2), 8, "each", 1, 1),
    Case("sparse vector, together", sparse_vector(2, 2), 5, "together", 1, 1),
    Case("sparse vector, gap", sparse_vector(gap=True), 5, "each", 1, 1),
    Case("sparse vector, numeric", sparse_vector(3, 6, numeric=3), 5, "each", 1, 1),
    Case("sparse vector, fresh", sparse_vector(4, 8, 2, fresh=4), 8, "each", 1, 1),
    Case("sparse vector, adaptive", adaptive_sparse_vector(8), 3, "each", 1, 1),
    Case("outside band", outside_band(4), 3, "each", 1, "at most 1"),
    Case("partial sum", partial_sum(1), 6, "one", 1, 1),
    Case("smart sum", smart_sum(2), 6, "one", 1, 1),
    Case("tree of sums", tree_sums(3), 4, "one", 1, 1),
    Case("histogram", histogram(1), 5, "one", 1, 1),
    Case("histogram, each", histogram(3), 3, "each", 1, 1),
    Case("clamped sum", clamped_sum(1), 2, "one", 1, 1),
    Case("clamped sum of 3", clamped_sum(1), 3, "one", 1, 1, slow=True),
    Case("two steps", twice(2, 2), 1, "each", 1, 1),
    Case("own threshold", own_threshold, 2, "each", 1, 1),
    Case("test and release", test_release(True), 2, "each", 1, 1),
    Case("branch on noisy", branch_on_noisy, 2, "each", 1, "at most 1"),
    Case("mutated", mutated, 1, "each", 1, 1),
    Case("constant", constant, 2, "each", 0, 0),
]

WRONG = [
    Case("noisy_max, half", noisy_max(1), 4, "each", 1, 2),
    Case("noisy_max, together, half", noisy_max(0.5), 4, "together", 1, 2),
    Case("noisy_max, exponential, half", noisy_max_exponential(1), 4, "each", 1, 2),
    Case("noisy_max, gap, half", noisy_max_gap(1), 3, "each", 1, 2),
    Case("noisy_max, top 2, half", noisy_top(2, 2), 4, "each", 1, 2),
    Case("noisy_max, value", max_with_value, 3, "each", 1, 1.5),
    Case("noisy_max, against raw", max_against_raw, 3, "each", 1, "above 1"),
    Case("raw max", raw_max, 3, "each", 1, None),
    Case("noised maximum, half", noised_maximum(0.5), 3, "each", 1, 2),
    Case("maximum of noised, four", max_value(3), 4, "each", 1, 4 / 3),
    Case("sparse vector, half query", sparse_vector(2, 2), 6, "each", 1, 1.5),
    Case("sparse vector, no threshold noise", sparse_vector(None, 4), 5, "each", 1, 1.25),
    Case("sparse vector, no query noise", sparse_vector(2, None, None), 3, "each", 1, None),
    Case("sparse vector, no cutoff", sparse_vector(2, 4, None), 6, "each", 1, "above 1"),
    Case("sparse vector, off by one", sparse_vector(2, 4, 2), 5, "each", 1, "above 1"),
    Case("sparse vector, reused noise", sparse_vector(2, 4, reuse=True), 5, "each", 1, "above 1"),
    Case("sparse vector, numeric, half", sparse_vector(3, 6, numeric=1.5), 5, "each", 1, 4 / 3),
    Case("sparse vector, gap, half", sparse_vector(2, 2, gap=True), 5, "each", 1, 1.5),
    Case("sparse vector, adaptive, half", adaptive_sparse_vector(4), 3, "each", 0.9, "above 0.9"),
    Case("outside band, half", outside_band(2), 4, "each", 1, 1.5, slow=True),
    Case("between thresholds", between, 5, "each", 1, "above 1"),
    Case("partial sum, half", partial_sum(0.5), 3, "one", 1, 2),
    Case("smart sum, half", smart_sum(1), 4, "one", 1, 2),
    Case("tree of sums, two thirds", tree_sums(2), 4, "one", 1, 1.5),
    Case("histogram, each", histogram(1), 2, "each", 1, 2),
    Case("clamped sum, half", clamped_sum(0.5), 1, "one", 1, 2),
    Case("two steps, one half", twice(2, 1), 1, "each", 1, 1.5),
    Case("shared noise", shared_noise, 2, "each", 1, None),
    Case("raw threshold", own_raw_threshold, 2, "each", 1, None),
    Case("test and release, raw test", test_release(False), 2, "each", 1, None),
    Case("branch on raw", branch_on_raw, 1, "each", 1, None),
    Case("no noise", no_noise, 1, "each", 1, None),
    Case("cancelled noise", cancelled_noise, 1, "each", 1, None),
    Case("double answer", double_answer, 1, "each", 1, 2),
    Case("mutated", mutated_wrong, 1, "each", 1, 3),
    Case("first crossing", first_crossing, 3, "each", 1, "above 1"),
]
