"""Audits of trainings: canaries' gradients and scores, broken loops found, sound ones not accused.

The loops are written out in NumPy, as a foreign library would have them: what is claimed of each is
what an accountant says of Poisson samples, clipped rows and noise on the sum.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import accountants
from accountants.errors import DomainError
from adaptive_dp import audit

Rows = dict[str, Any]
DELTA = 1e-6
FEATURES, LONG = 8, 20.0


@functools.cache
def claimed(sigma: float, rate: float, steps: int) -> tuple[float, float]:
    spend: Any = accountants.Spend(accountants.Gaussian(mu=1 / sigma))
    step = spend if rate == 1 else accountants.Sampled(spend, rate)
    answers = accountants.certify(accountants.Repeated(step, steps), delta=DELTA)
    return accountants.tightest(answers).bounds.upper, DELTA


# --- a loop of another library, of logistic regression: a network's last layer


def descend(
    rows: Rows,
    rng: np.random.Generator,
    *,
    sigma: float,
    rate: float,
    steps: int,
    expected: float,
    bug: str = "",
) -> list[Any]:
    """Return the noisy sums of clipped gradients; the threshold is 1."""
    x, y = rows["x"], rows["y"]
    n, d = x.shape
    theta, released = np.zeros(d), []
    first = rng.normal(0, sigma, d)
    size = loader_batch(rate, expected)
    batches = -(-n // size)
    for step in range(steps):
        batch: Any = np.flatnonzero(rng.random(n) < rate) if rate < 1 else slice(n)
        if bug == "unshuffled":
            batch = slice(step % batches * size, (step % batches + 1) * size)
        inputs = x[batch]
        slopes = 1 / (1 + np.exp(-inputs @ theta)) - y[batch]
        lengths = np.abs(slopes) * np.linalg.norm(inputs, axis=1)
        noise = rng.normal(0, sigma / np.sqrt(2) if bug == "one of two workers" else sigma, d)
        if bug == "a reused seed":
            noise = first
        if bug == "clipping after averaging":
            mean = slopes @ inputs / max(1, len(inputs))
            total = expected * mean / max(1.0, float(np.linalg.norm(mean)))
        else:
            total = (slopes / np.maximum(lengths, 1)) @ inputs
        released.append(total + noise)
        theta = theta - 0.5 * released[-1] / expected
    return released


def loader_batch(rate: float, expected: float) -> int:
    """Return the batch size with which a loader has 1 / rate batches, the last a smaller one."""
    return round(expected / (1 - rate / 2))


@functools.cache
def planted_rows(canaries: int, others: int) -> tuple[Any, Rows, Rows]:
    """Return gradients, the canaries that have them, and ordinary rows.

    Canary i alone has a number in column i, and its gradient is along that column: it is longer
    than 1 while the label is not predicted, so that it is clipped to 1.
    """
    draw = np.random.default_rng(0)
    own = audit.gradient_canaries(canaries, canaries, seed=0)
    gradients = np.concatenate([np.zeros((canaries, FEATURES)), own], axis=1)
    planted = {"x": LONG * np.abs(gradients), "y": (gradients.sum(axis=1) < 0) * 1.0}
    x = draw.uniform(-1, 1, (others, FEATURES))
    rest = np.concatenate([x, np.zeros((others, canaries))], axis=1)
    return gradients, planted, {"x": rest, "y": (x[:, 0] > 0) * 1.0}


def audited(
    bug: str, sigma: float, rate: float, steps: int, canaries: int, others: int, seed: int = 0
) -> audit.Audit:
    """Audit the loop by the score that shows the bug best."""
    gradients, planted, rest = planted_rows(canaries, others)
    rng = np.random.default_rng(100 + seed)
    expected = rate * (others + canaries / 2)
    in_step: Any = rate
    if "unshuffled" in bug:
        in_step = audit.unshuffled(others, canaries, loader_batch(rate, expected), steps)

    def train(rows: Rows) -> Any:
        options: dict[str, Any] = {"sigma": sigma, "rate": rate, "steps": steps}
        # "sound, by the score of ..." is the sound loop
        return descend(rows, rng, expected=expected, bug=bug, **options)

    def score(released: Any) -> Any:
        if "seed" in bug:
            return audit.change_scores(released, gradients)
        return audit.gradient_scores(released, gradients, rate=in_step, noise=sigma)

    return audit.training(train, planted, claimed(sigma, rate, steps), score, rows=rest, seed=seed)


SETTINGS: dict[str, tuple[float, float, int, int, int]] = {
    # sigma, rate, steps, canaries, other rows
    "unshuffled": (2.0, 0.1, 100, 500, 2_000),
    "one of two workers": (20**0.5 / 2, 1.0, 20, 500, 100),
    "a reused seed": (2.0, 0.1, 20, 500, 100),
    "clipping after averaging": (2.0, 0.1, 20, 1_000, 100),
}
VERDICTS = {
    "unshuffled": "suspected",
    "one of two workers": "suspected",
    "a reused seed": "violation",
    "clipping after averaging": "violation",
}


@pytest.mark.parametrize("bug", SETTINGS)
def test_broken_loops_are_found_and_the_sound_one_is_not_accused(bug: str) -> None:
    """At the sizes of docs/auditing.md; of the sound loop, by the very score that finds the bug.

    A sound loop is suspected with a probability of 1e-3 at most, and accused with as much.
    """
    found = audited(bug, *SETTINGS[bug])
    assert found.verdict == VERDICTS[bug]
    sound = audited(f"sound, by the score of {bug}", *SETTINGS[bug])
    assert sound.verdict in ("consistent", "underpowered")


@pytest.mark.slow
@pytest.mark.parametrize("bug", SETTINGS)
def test_broken_loops_are_found_each_time(bug: str) -> None:
    """Twenty audits each; of eighty of the sound loop at 1e-3 three or more have chance 1e-4."""
    found = [audited(bug, *SETTINGS[bug], seed=seed) for seed in range(20)]
    assert sum(each.verdict in ("suspected", "violation") for each in found) >= 19
    sound = [audited(f"sound, by {bug}", *SETTINGS[bug], seed=seed) for seed in range(20)]
    assert sum(each.verdict in ("suspected", "violation") for each in sound) <= 1


# --- a hidden layer, whose last layer is not clipped

WIDTH, HIDDEN, INPUTS = 200, 512, 64


def perceptron(
    rows: Rows, rng: np.random.Generator, *, sigma: float, steps: int, whole: bool
) -> list[Any]:
    """Return the noisy sums of gradients of both layers; ``whole`` clips them as one vector."""
    theta, released = start(), []
    x, y = rows["x"], rows["y"]
    for _ in range(steps):
        first, second = layers(theta, x, y)
        squares = (first**2).sum(axis=1) * (x**2).sum(axis=1)
        squares_last = (second**2).sum(axis=1)
        scale = 1 / np.maximum(1, np.sqrt(squares + (squares_last if whole else 0)))
        last = second * scale[:, None] if whole else second
        total = np.concatenate([((first * scale[:, None]).T @ x).ravel(), last.sum(axis=0)])
        released.append(total + rng.normal(0, sigma, total.size))
        theta = theta - 1e-5 * released[-1] / 150
    return released


def start() -> Any:
    draw = np.random.default_rng(3)
    return np.concatenate([draw.normal(0, 1, HIDDEN * INPUTS), draw.normal(0, 0.005, HIDDEN)])


def layers(theta: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the slopes by the first layer's values and the last layer."""
    hidden = np.maximum(x @ theta[: HIDDEN * INPUTS].reshape(HIDDEN, INPUTS).T, 0)
    last = theta[HIDDEN * INPUTS :]
    slopes = 1 / (1 + np.exp(-hidden @ last)) - y
    return slopes[:, None] * last * (hidden > 0), slopes[:, None] * hidden


@pytest.mark.parametrize("whole", [True, False])
def test_a_last_layer_that_is_not_clipped_is_found(whole: bool) -> None:
    """Rows with a wrong label, scored by the last layer's part of the released sums."""
    draw, sigma, steps = np.random.default_rng(5), 10.0, 20
    x = draw.choice([-1.0, 1.0], (WIDTH + 50, INPUTS))
    rows = {"x": x, "y": (x[:, 0] > 0) * 1.0}
    rest = {name: column[:50] for name, column in rows.items()}
    planted = {name: column[50:] for name, column in rows.items()}
    planted = audit.mislabeled(planted, "y", [0.0, 1.0], WIDTH, seed=0)
    second, others = (layers(start(), each["x"], each["y"])[1] for each in (planted, rest))
    rng = np.random.default_rng(6)

    def score(released: Any) -> Any:
        last = [each[-HIDDEN:] for each in released]
        return audit.gradient_scores(last, second, noise=sigma, others=others.sum(axis=0))

    found = audit.training(
        lambda given: perceptron(given, rng, sigma=sigma, steps=steps, whole=whole),
        planted,
        claimed(sigma, 1.0, steps),
        score,
        rows=rest,
        seed=0,
    )
    assert (found.verdict == "violation") == (not whole)
    assert whole == (found.verdict in ("consistent", "underpowered"))


@pytest.mark.parametrize("realised", [True, False])
def test_a_mean_over_the_realised_batch_is_found_by_few_rows(realised: bool) -> None:
    """The noise's size shows how many rows there are: five, or four; their gradients are zero."""
    rng, size, sigma = np.random.default_rng(2), 400, 4.0

    def step(rows: Any) -> float:
        slopes = np.asarray(rows)
        noisy = slopes.sum() + rng.normal(0, sigma, size)
        return float(np.mean((noisy / (len(rows) if realised else 5)) ** 2))

    found = audit.callable(step, np.zeros(5), claimed(sigma, 1.0, 1), samples=500)
    assert (found.verdict == "violation") == realised


# --- canaries and scores


def test_gradient_canaries_are_orthogonal_and_of_one_length() -> None:
    gradients = audit.gradient_canaries(30, 40, norm=2.5, seed=1)
    np.testing.assert_array_equal(gradients @ gradients.T, 6.25 * np.eye(30))
    assert len(set(np.sign(gradients.sum(axis=1)))) == 2
    with pytest.raises(DomainError, match="41 canaries and 40 axes"):
        audit.gradient_canaries(41, 40)
    with pytest.raises(DomainError, match="norm"):
        audit.gradient_canaries(3, 40, norm=0.0)


@pytest.mark.parametrize("changing", [False, True])
def test_scores_are_the_linear_estimate_of_least_error(changing: bool) -> None:
    """Of Gaussian bits it is the conditional mean: the covariances' product, written out."""
    draw, m, d, total, noise = np.random.default_rng(0), 4, 3, 5, 0.7
    gradients = draw.normal(size=(total, m, d) if changing else (m, d))
    rates, others = draw.random((m, total)), draw.normal(size=(total, d))
    released = draw.normal(size=(total, d))
    found = audit.gradient_scores(released, gradients, rate=rates, others=others, noise=noise)
    of_step = np.broadcast_to(gradients, (total, m, d))
    effects = np.concatenate([rates[:, [t]] * of_step[t] for t in range(total)], axis=1)
    mean = (others + np.einsum("mt,tmd->td", rates, of_step) / 2).ravel()
    spread = effects.T @ effects / 4 + noise**2 * np.eye(total * d)
    expected = effects / 4 @ np.linalg.solve(spread, released.ravel() - mean)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_the_batches_of_a_loader_that_does_not_shuffle() -> None:
    """Against the loader itself, for a thousand draws of the bits of few canaries."""
    draw, n, m, size, steps = np.random.default_rng(1), 7, 5, 3, 11
    seen, present = np.zeros((m, steps)), np.zeros(m)
    for _ in range(3_000):
        bits = draw.random(m) < 0.5
        order = [*range(-n, 0), *np.flatnonzero(bits)]
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        present += bits
        for t in range(steps):
            for each in batches[t % len(batches)]:
                if each >= 0:
                    seen[each, t] += 1
    # 200 draws of its own: an error of 0.2 is beyond five deviations
    assert np.abs(audit.unshuffled(n, m, size, steps) - seen / present[:, None]).max() < 0.25


def test_what_does_not_fit_is_refused() -> None:
    gradients = audit.gradient_canaries(20, 20, seed=0)
    with pytest.raises(DomainError, match="steps, parameters"):
        audit.gradient_scores(np.zeros((3, 19)), gradients)
    with pytest.raises(DomainError, match="rate must be"):
        audit.gradient_scores(np.zeros((3, 20)), gradients, rate=np.zeros((20, 4)))
    with pytest.raises(DomainError, match="arrays of numbers"):
        audit.gradient_scores([[1.0], [1.0, 2.0]], gradients)
    with pytest.raises(DomainError, match="two steps"):
        audit.change_scores(np.zeros((1, 20)), gradients)
    not_finite = audit.gradient_scores(np.full((2, 20), np.nan), gradients)
    assert np.isfinite(not_finite).all()

    def run(canaries: Any, rows: Any = None, score: Any = lambda _: np.zeros(20)) -> Any:
        return audit.training(lambda given: given, canaries, (1.0, 1e-6), score, rows=rows, seed=0)

    with pytest.raises(DomainError, match="one length"):
        run({"x": np.zeros(20), "y": np.zeros(19)})
    with pytest.raises(DomainError, match="canaries' columns"):
        run({"x": np.zeros(20)}, {"z": np.zeros(3)})
    with pytest.raises(DomainError, match="canaries' columns"):
        run({"x": np.zeros((20, 2))}, {"x": np.zeros((3, 4))})
    with pytest.raises(DomainError, match=r"\b20\b"):
        run({"x": np.zeros(20)}, score=lambda _: np.zeros(3))
    assert any("as private" in note for note in run({"x": np.zeros(20)}, {"x": np.ones(3)}).notes)
