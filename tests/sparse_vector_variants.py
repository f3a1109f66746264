"""The six sparse vectors that Lyu, Su and Li 2017 compare: two are private, four are not.

Each is written as it was published, for queries that move by at most 1, and claims ``epsilon``.
They take values in order, a threshold, the number of positives after which to stop (where the
variant knows of one), and ``laplace(scale)``, which draws noise. An answer is True, False, or, in
Algorithm 3, a number. For audits to refute; never to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Noise = Callable[[float], float]


def algorithm_1(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Lyu, Su and Li's own: private.

    One noise on the threshold; on each query 2c times that of its half of the budget.
    """
    answers: list[bool | float] = []
    bar = laplace(2 / epsilon)
    for value in values:
        answers.append(value + laplace(4 * count / epsilon) >= threshold + bar)
        if sum(answers) == count:
            break
    return answers


def algorithm_2(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Dwork and Roth 2014: private, with c times more noise on the threshold than it takes.

    The threshold's noise is drawn anew after each positive answer.
    """
    answers: list[bool | float] = []
    bar = laplace(2 * count / epsilon)
    for value in values:
        answers.append(value + laplace(4 * count / epsilon) >= threshold + bar)
        if answers[-1]:
            bar = laplace(2 * count / epsilon)
        if sum(answers) == count:
            break
    return answers


def algorithm_3(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Roth's lecture notes of 2011: not private at any epsilon.

    It releases the very noisy value that it compared. Such a number bounds the threshold's noise
    from above, and all answers below then tell of their values without its cover.
    """
    answers: list[bool | float] = []
    bar, left = laplace(2 / epsilon), count
    for value in values:
        noisy = value + laplace(2 * count / epsilon)
        above = noisy >= threshold + bar
        answers.append(noisy if above else False)
        left -= above
        if not left:
            break
    return answers


def algorithm_4(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Lee and Clifton 2014: ``(1 + 6c)/4`` times its epsilon, not epsilon.

    The queries' noise is that of one positive answer, however many there may be.
    """
    answers: list[bool | float] = []
    bar = laplace(4 / epsilon)
    for value in values:
        answers.append(value + laplace(4 / (3 * epsilon)) >= threshold + bar)
        if sum(answers) == count:
            break
    return answers


def algorithm_5(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Stoddard, Chen and Machanavajjhala 2014: not private at any epsilon.

    There is no noise on the queries, and no end: answers may be impossible on one side only.
    """
    bar = laplace(2 / epsilon)
    return [value >= threshold + bar for value in values]


def algorithm_6(
    values: Sequence[float], threshold: float, epsilon: float, count: int, laplace: Noise
) -> list[bool | float]:
    """Chen, Xiao, Zhang and Xu 2015: not private at any epsilon.

    The queries' noise is that of one answer, and any number of positive answers is given.
    """
    bar = laplace(2 / epsilon)
    return [value + laplace(2 / epsilon) >= threshold + bar for value in values]
