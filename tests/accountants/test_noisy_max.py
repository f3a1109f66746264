"""Report noisy max and permute-and-flip: exact laws on small vectors of scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pairs_truth as pairs
import pytest

from accountants import testing
from accountants.errors import DomainError
from accountants.losses.pure import Pure
from accountants.losses.selection import (
    BoundedRange,
    ExponentialNoisyMax,
    GumbelNoisyMax,
    LaplaceNoisyMax,
    PermuteAndFlip,
    report_noisy_max,
)

Scores = Sequence[float]


def gumbel(scores: Scores, c: float) -> list[float]:
    weights = [math.exp(c * (q - max(scores))) for q in scores]
    return [weight / sum(weights) for weight in weights]


def exponential(scores: Scores, c: float) -> list[float]:
    """``a_r int_0^1 prod_{j != r} (1 - a_j u) du`` with ``a_j = e^{-c (max q - q_j)}``."""
    a = [math.exp(c * (q - max(scores))) for q in scores]
    result = []
    for r, own in enumerate(a):
        product = [1.0]
        for other in (x for j, x in enumerate(a) if j != r):
            shifted = [0.0, *(-other * x for x in product)]
            product = [x + y for x, y in zip([*product, 0.0], shifted, strict=True)]
        result.append(own * sum(x / (i + 1) for i, x in enumerate(product)))
    return result


def laplace(scores: Scores, c: float) -> list[float]:
    """By quadrature between the scores, where the integrand is smooth."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    ends = [min(scores) - 40 / c, *sorted(set(scores)), max(scores) + 40 / c]
    cuts = np.concatenate(
        [np.linspace(a, b, 2 + int((b - a) * c / 5))[:-1] for a, b in itertools.pairwise(ends)]
    )
    cuts = np.append(cuts, ends[-1])
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    y = (middle[:, None] + half[:, None] * nodes).ravel()
    share = (half[:, None] * weights).ravel()
    tails = [np.exp(-c * np.abs(y - q)) / 2 for q in scores]
    below = [np.where(y < q, t, 1 - t) for q, t in zip(scores, tails, strict=True)]
    return [
        float(np.prod([c * tails[r], *(x for j, x in enumerate(below) if j != r)], axis=0) @ share)
        for r in range(len(scores))
    ]


def permute_and_flip(scores: Scores, c: float) -> list[float]:
    """The algorithm itself, over every order of the candidates."""
    result = [0.0] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        left = 1.0 / math.factorial(len(scores))
        for r in order:
            heads = math.exp(c * (scores[r] - max(scores)))
            result[r] += left * heads
            left *= 1 - heads
    return result


LAWS: dict[str, Callable[[Scores, float], list[float]]] = {
    "gumbel": gumbel,
    "laplace": laplace,
    "exponential": exponential,
}


def neighbours(monotone: bool, values: Scores, count: int):  # type: ignore[no-untyped-def]
    """Pairs of score vectors that differ by at most 1 in each; the lowest score is 0."""
    steps = (0.0, 0.5, 1.0) if monotone else (-1.0, 0.0, 1.0)
    for scores in itertools.product(values, repeat=count):
        if min(scores) == 0:
            for move in itertools.product(steps, repeat=count):
                yield scores, [q + x for q, x in zip(scores, move, strict=True)]


def log_ratios(law: Callable[[Scores, float], list[float]], pair, c: float) -> list[float]:  # type: ignore[no-untyped-def]
    return [math.log(p / q) for p, q in zip(law(pair[0], c), law(pair[1], c), strict=True)]


def test_laws_are_laws_and_permute_and_flip_is_exponential_noise() -> None:
    for scores in ((0.0, 0.0, 0.0), (0.0, 1.0, 3.0), (0.0, 2.5, 2.5, 0.1)):
        for law in (*LAWS.values(), permute_and_flip):
            assert sum(law(scores, 0.7)) == pytest.approx(1, abs=1e-12)
        assert permute_and_flip(scores, 0.7) == pytest.approx(exponential(scores, 0.7), rel=1e-12)


def test_laws_against_draws() -> None:
    """False alarm below 1e-8: six standard errors on nine shares."""
    draw, scores, draws = np.random.default_rng(9), np.array([0.0, 1.0, 1.5]), 200_000
    noises = {
        "gumbel": draw.gumbel(size=(draws, 3)),
        "laplace": draw.laplace(size=(draws, 3)),
        "exponential": draw.exponential(size=(draws, 3)),
    }
    for name, noise in noises.items():
        share = np.bincount(np.argmax(scores + noise, axis=1), minlength=3) / draws
        exact = np.array(LAWS[name](scores.tolist(), 1.0))
        assert np.all(np.abs(share - exact) <= 6 * np.sqrt(exact / draws))


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("noise", list(LAWS))
def test_epsilon_holds_for_all_small_score_vectors(noise: str, monotone: bool) -> None:
    scale = 1.25
    loss = report_noisy_max(scale, 1.0, noise=noise, monotone=monotone)
    values = (0.0, 1.0, 8.0) if noise == "laplace" else (0.0, 0.5, 1.0, 2.0, 20.0)
    largest = 0.0
    for count in (2, 3) if noise == "laplace" else (2, 3, 4):
        few = values if count < 4 else (0.0, 2.0, 20.0)
        for pair in neighbours(monotone, few, count):
            ratios = log_ratios(LAWS[noise], pair, 1 / scale)
            assert max(map(abs, ratios)) <= loss.pure() + 1e-9
            largest = max(largest, *map(abs, ratios))
            if noise == "gumbel":
                assert max(ratios) - min(ratios) <= loss.pure() + 1e-12
    assert largest >= 0.85 * loss.pure()  # nor is it far below


def test_the_exponential_noise_has_no_bounded_range() -> None:
    c, epsilon = 0.5, 1.0
    ratios = log_ratios(permute_and_flip, ((0.0, 0.0), (1.0, -1.0)), c)
    span = max(ratios) - min(ratios)
    assert span == pytest.approx(epsilon + math.log(2 - math.exp(-epsilon)), rel=1e-12)
    assert span > 1.4 * epsilon
    rows = [
        (mp.log(truth.real(p) / truth.real(q)), truth.real(p), truth.real(q))
        for p, q in zip(
            permute_and_flip((0.0, 0.0), c), permute_and_flip((1.0, -1.0), c), strict=True
        )
    ]
    worst = max(
        pairs.hockey([(-x, q, p) for x, p, q in rows], at)
        - truth.real(BoundedRange(epsilon).profile(at).upper)
        for at in (0.0, 0.2, 0.3)
    )
    assert worst > 0  # declared as bounded range, its privacy would be overstated


@pytest.mark.parametrize("noise", list(LAWS))
def test_each_loss_dominates_its_laws_in_both_directions(noise: str) -> None:
    loss = report_noisy_max(2.0, noise=noise)
    pair = loss.pair()
    assert pair is not None
    at = np.linspace(-1.1, 1.1, 12).tolist()
    for scores, changed in itertools.islice(neighbours(False, (0.0, 1.0, 3.0), 2), 0, 45):
        laws = [[truth.real(x) for x in LAWS[noise](s, 0.5)] for s in (scores, changed)]
        laws = [[x / mp.fsum(law) for x in law] for law in laws]
        rows = [(mp.log(p / q), p, q) for p, q in zip(*laws, strict=True)]
        slack = mp.mpf("1e-12")
        for direction, law in ((pair, rows), (pair.reversed(), [(-x, q, p) for x, p, q in rows])):
            _, upper = direction.profile(np.array(at))
            for epsilon, bound in zip(at, upper, strict=True):
                assert pairs.hockey(law, epsilon) <= bound + slack


def test_which_loss_each_noise_has() -> None:
    assert report_noisy_max(2.0) == GumbelNoisyMax(1.0)
    assert report_noisy_max(2.0, 3.0, monotone=True) == GumbelNoisyMax(1.5)
    assert report_noisy_max(4.0, noise="laplace") == LaplaceNoisyMax(0.5)
    assert report_noisy_max(4.0, noise="exponential") == ExponentialNoisyMax(0.5)
    assert isinstance(GumbelNoisyMax(1.0), BoundedRange)
    assert isinstance(LaplaceNoisyMax(1.0), Pure)
    assert GumbelNoisyMax(1.0) != BoundedRange(1.0)
    assert truth.real(report_noisy_max(3.0).pure()) >= mp.mpf(2) / 3
    assert report_noisy_max(1.0, 0.0).pure() == 0


@pytest.mark.parametrize(
    "loss",
    [GumbelNoisyMax(0.7), LaplaceNoisyMax(0.7), ExponentialNoisyMax(0.7), PermuteAndFlip(0.7)],
)
def test_the_kit_finds_nothing(loss: BoundedRange | Pure) -> None:
    testing.check(loss, others=[loss.grouped(3)])
    assert loss.grouped(3).dominates(loss)
    assert "max" in loss.theorem or "permute" in loss.theorem


@pytest.mark.parametrize(
    "bad",
    [
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": 1.0, "sensitivity": -1.0},
        {"scale": 1.0, "noise": "normal"},
        {"scale": 1.0, "monotone": 1},
        {"scale": 5e-324, "sensitivity": 1e300},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(DomainError):
        report_noisy_max(**bad)  # type: ignore[arg-type]
