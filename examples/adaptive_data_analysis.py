"""A holdout that is looked at again and again fits the analyst's noise; a private one does not.

Rows of pure noise: 240 features that have nothing to do with the label, 2,000 rows to train on and
2,000 to hold out. The analyst keeps the features on whose sign both sets agree, lets them vote, and
reports the accuracy of the vote on the holdout. The truth is 50%.

``--plot FILE`` draws the three curves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import adaptive_dp as dp

ROWS, FEATURES, STEPS = 2_000, 240, (5, 15, 31, 61, 111)
FEATURE_NAMES = [f"z{i}" for i in range(FEATURES)]

# z_i is 1 where feature i, as it is, predicts the row's label, and -1 where it does not
TABLE = dp.dataset(
    "holdout",
    columns=dict.fromkeys(FEATURE_NAMES, (-1, 1)),
    neighbors="replace_one",
    size=ROWS,
)

Signs = list[tuple[int, int]]
"""Features that vote, each with the sign by which it does, the strongest first."""


def draw(seed: int) -> NDArray[np.int64]:
    """Return rows of noise, shape (rows, features)."""
    return np.random.default_rng(seed).choice([-1, 1], (ROWS, FEATURES))


def chosen(train: NDArray[Any], answers: NDArray[Any]) -> Signs:
    """Return the features whose shares agree on both sets about the sign, strongest first."""
    shares = (train > 0).mean(axis=0)
    same = [i for i in range(FEATURES) if (shares[i] > 0.5) == (answers[i] > 0.5)]
    same.sort(key=lambda i: -abs(answers[i] - 0.5))
    return [(i, 1 if answers[i] > 0.5 else -1) for i in same]


def total(columns: list[Any]) -> Any:
    """Return a sum of columns, added in pairs: a deep expression would be refused."""
    while len(columns) > 1:
        pairs = zip(columns[::2], columns[1::2], strict=False)
        columns = [a + b for a, b in pairs] + columns[len(columns) & ~1 :]
    return columns[0]


def accuracy(rows: NDArray[Any], signs: Signs) -> float:
    """Return the share of rows that the vote predicts."""
    return float((sum(s * rows[:, i] for i, s in signs) > 0).mean())


def curve(train: NDArray[Any], ask: Callable[[Signs, float], float]) -> tuple[list[float], Signs]:
    """Return what the analyst reports for each number of votes.

    Parameters
    ----------
    train
        The analyst's own rows.
    ask
        The holdout: from features that vote, and the accuracy on the analyst's rows, to what it
        tells of the accuracy.
    """
    each = [[(i, 1)] for i in range(FEATURES)]
    signs = chosen(train, np.array([ask(vote, accuracy(train, vote)) for vote in each]))
    return [ask(signs[:k], accuracy(train, signs[:k])) for k in STEPS], signs


def question(signs: Signs) -> Any:
    """Return the query of how many rows a vote predicts."""
    sides = [
        total([TABLE[FEATURE_NAMES[i]] for i, sign in signs if sign == side]) if found else 0
        for side in (1, -1)
        for found in [any(sign == side for _, sign in signs)]
    ]
    return TABLE.filter(sides[0] - sides[1] > 0).count()


def run(seed: int = 1) -> dict[str, Any]:
    """Return the reported and the true accuracies for each number of votes, and the bound."""
    train, held, fresh = draw(seed), draw(seed + 1), draw(seed + 2)
    reported, signs = curve(train, lambda vote, guess: accuracy(held, vote))
    columns = dict(zip(FEATURE_NAMES, held.T.astype(float), strict=True))
    with dp.Session(budget=dp.Budget(2.0), seed=seed, holdout=columns) as session:
        holdout = session.holdout(0.065 * ROWS, changes=5, share=1.0)

        def ask(vote: Signs, guess: float) -> float:
            answer = holdout.ask(question(vote), guess * ROWS)
            return float("nan") if answer is None else answer / ROWS

        private, its_signs = curve(train, ask)
        general = session.generalization(beta=0.05)
        spent = session.spent.costs[0]
    return {
        "plain": reported,
        "plain, truth": [accuracy(fresh, signs[:k]) for k in STEPS],
        "private": private,
        "private, truth": [accuracy(fresh, its_signs[:k]) for k in STEPS],
        "questions": FEATURES + len(STEPS),
        "changes": 5 - holdout.changes,
        "spent": spent,
        "gap": general.gap,
    }


def main() -> None:
    """Print the table, and draw it where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot")
    found = run()
    print("votes   plain holdout  (truth)   private holdout  (truth)")
    for row in zip(
        STEPS,
        *(found[k] for k in ("plain", "plain, truth", "private", "private, truth")),
        strict=True,
    ):
        print("{:5}   {:13.3f}  ({:.3f})   {:15.3f}  ({:.3f})".format(*row))
    print(
        f"{found['questions']} questions: {found['changes']} guesses were answered, the others "
        f"confirmed; epsilon {found['spent']:.2f}"
    )
    path = parser.parse_args().plot
    if path:
        draw_curves(found, path)


def draw_curves(found: dict[str, Any], path: str) -> None:
    """Draw what both holdouts report against the number of votes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(STEPS, found["plain"], "o-", color="#b5452c", label="plain holdout")
    axes.plot(STEPS, found["private"], "s-", color="#2c6e8f", label="session.holdout")
    axes.plot(STEPS, found["plain, truth"], ":", color="#b5452c", label="truth, on fresh rows")
    axes.plot(STEPS, found["private, truth"], ":", color="#2c6e8f")
    axes.axhline(0.5, color="0.7", linewidth=0.8, zorder=0)
    axes.set(xlabel="features that vote", ylabel="reported accuracy", ylim=(0.45, 0.65))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
