"""Peers in a process of their own, which `classification.py` and `solvers.py` start.

    PYTHON benchmarks/peers.py learn Opacus FILE --epsilon 0.1 1 --delta 1e-5 --seeds 3
    PYTHON benchmarks/peers.py time FILE --outputs 10 --hidden 128 --batches 58 --clip 1

PYTHON is an interpreter that has the peers, which may need other versions of dependencies: in an
environment of its own, ``pip install 'scikit-learn<1.6' diffprivlib==0.6.6 opacus``. FILE is an npz
of rows of norm 1 that start with a constant (x), and integer labels from 0 (y); to learn, of
held-out ones too (test_x, test_y).

``learn`` prints JSON for each epsilon and seed: the held-out accuracy, the epsilon and delta that
the peer's own accountant says were spent, and the seconds of a fit. ``time`` prints JSON when it is
ready, and then for each line that it reads the seconds of an epoch of Opacus: for ``loader`` with
its loader, which gathers row by row, for ``index`` with its samples gathered by index. If a peer
is missing, a message says so and the status is 3.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Fitted = tuple[Callable[[Any], Any], float | None, float | None]
"""A classifier, and the epsilon and delta that it spent, None without privacy."""

Fit = Callable[[Any, Any, float, float, int], Fitted]
"""From x, y, epsilon, delta and a seed."""

EPOCHS, BATCHES, CLIP, STEP, MOMENTUM = 10, 50, 0.5, 2.0, 0.9
"""Opacus' settings, the same for all data and budgets: those of NoisySGD in ``adaptive_dp``."""


def main() -> None:
    """Run the command; end with status 3 where the peer cannot be imported."""
    warnings.simplefilter("ignore")
    options = arguments()
    try:
        {"learn": learn, "time": measure}[options.what](options)
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(3)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="what", required=True)
    learner = kinds.add_parser("learn")
    learner.add_argument("peer", choices=list(PEERS))
    learner.add_argument("file", type=Path)
    learner.add_argument("--epsilon", nargs="+", type=float, required=True)
    learner.add_argument("--delta", type=float, required=True)
    learner.add_argument("--seeds", type=int, default=1)
    timer = kinds.add_parser("time")
    timer.add_argument("file", type=Path)
    timer.add_argument("--outputs", type=int, required=True)
    timer.add_argument("--hidden", nargs="*", type=int, default=[])
    timer.add_argument("--mode", choices=["hooks", "ghost"], default="hooks")
    timer.add_argument("--batches", type=int, required=True)
    timer.add_argument("--clip", type=float, required=True)
    return parser.parse_args()


def say(**facts: Any) -> None:
    """Print a line of JSON."""
    print(json.dumps(facts), flush=True)


# Accuracy


def learn(options: argparse.Namespace) -> None:
    """Print what a peer reaches by epsilon and seed."""
    with np.load(options.file) as data:
        x, y, test_x, test_y = (data[name] for name in ("x", "y", "test_x", "test_y"))
    for epsilon in options.epsilon:
        for seed in range(options.seeds):
            start = time.perf_counter()
            classify, spent, delta = PEERS[options.peer](x, y, epsilon, options.delta, seed)
            seconds = time.perf_counter() - start
            accuracy = float(np.mean(classify(test_x) == test_y))
            say(
                requested=epsilon,
                seed=seed,
                accuracy=accuracy,
                epsilon=spent,
                delta=delta,
                seconds=seconds,
            )


def not_private(x: Any, y: Any, epsilon: float, delta: float, seed: int) -> Fitted:
    """Return scikit-learn's logistic regression, hardly regularised, which spends no budget."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e3, max_iter=300).fit(x.astype(float), y)
    return model.predict, None, None


def diffprivlib(x: Any, y: Any, epsilon: float, delta: float, seed: int) -> Fitted:
    """Return diffprivlib's, with pure epsilon; rows bring their constant."""
    from diffprivlib.models import LogisticRegression

    options: dict[str, Any] = {"data_norm": 1.0, "fit_intercept": False, "max_iter": 1000}
    model = LogisticRegression(epsilon=epsilon, random_state=seed, **options).fit(x, y)
    return model.predict, epsilon, 0.0


def opacus(x: Any, y: Any, epsilon: float, delta: float, seed: int) -> Fitted:
    """Return a linear model by Opacus' DP-SGD, with the epsilon of its PRV accountant."""
    import torch
    from opacus.accountants.utils import get_noise_multiplier

    torch.manual_seed(seed)
    classes = int(y.max()) + 1
    outputs = classes if classes > 2 else 1
    # closer than its own 0.01, which costs accuracy at small epsilon
    close = {"epsilon_tolerance": epsilon / 1000, "eps_error": epsilon / 100}
    noise = get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=1 / BATCHES,
        steps=EPOCHS * BATCHES,
        accountant="prv",
        **close,
    )
    run = Training(x, y, outputs, [], "hooks", BATCHES, CLIP, noise, STEP, MOMENTUM)
    for _ in range(EPOCHS):
        run.epoch(run.indexed())
    spent = run.engine.accountant.get_epsilon(delta, eps_error=epsilon / 100)

    def classify(rows: Any) -> Any:
        with torch.no_grad():
            scores = run.model(torch.from_numpy(rows).float()).numpy()
        return (scores[:, 0] > 0).astype(int) if outputs == 1 else scores.argmax(axis=1)

    return classify, float(spent), delta


PEERS: dict[str, Fit] = {
    "not private": not_private,
    "diffprivlib": diffprivlib,
    "Opacus": opacus,
}


# Opacus


class Training:
    """Opacus' DP-SGD of linear layers with ReLU between, without a bias in the first."""

    def __init__(
        self,
        x: Any,
        y: Any,
        outputs: int,
        hidden: list[int],
        mode: str,
        batches: int,
        clip: float,
        noise: float,
        step: float,
        momentum: float = 0.0,
    ) -> None:
        import torch
        from opacus import PrivacyEngine

        torch.set_num_threads(1)
        nn, sizes = torch.nn, [x.shape[1], *hidden, outputs]
        pairs = itertools.pairwise(sizes)
        layers = [m for i, (a, b) in enumerate(pairs) for m in (nn.ReLU(), nn.Linear(a, b, i > 0))]
        model = nn.Sequential(*layers[1:])
        if not hidden:  # from zero, as convex learners do
            nn.init.zeros_(layers[-1].weight)
        loss = nn.CrossEntropyLoss() if outputs > 1 else nn.BCEWithLogitsLoss()
        labels = torch.from_numpy(y).long() if outputs > 1 else torch.from_numpy(y).float()[:, None]
        self.data = torch.from_numpy(x).float(), labels
        rows = torch.utils.data.TensorDataset(*self.data)
        self.engine = PrivacyEngine(accountant="prv")
        private = self.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=step, momentum=momentum),
            criterion=loss,
            data_loader=torch.utils.data.DataLoader(rows, batch_size=-(-len(x) // batches)),
            noise_multiplier=noise,
            max_grad_norm=clip,
            grad_sample_mode=mode,
        )
        self.model, self.optimizer = private[:2]
        self.loss, self.loader = private[2:] if mode == "ghost" else (loss, private[2])
        if len(self.loader) != batches:
            raise ValueError(f"An epoch of {batches} batches was asked for, not {len(self.loader)}")

    def indexed(self) -> Iterator[Any]:
        """Yield an epoch of Opacus' Poisson samples, gathered by index."""
        for rows in self.loader.batch_sampler:
            yield tuple(part[rows] for part in self.data)

    def epoch(self, batches: Any) -> None:
        """Take a step for each batch."""
        for rows, labels in batches:
            self.optimizer.zero_grad()
            self.loss(self.model(rows), labels).backward()
            self.optimizer.step()


# Speed


def measure(options: argparse.Namespace) -> None:
    """Print that it is ready; then, for each line that comes, the seconds of an epoch."""
    with np.load(options.file) as data:
        x, y = data["x"], data["y"]
    outputs = options.outputs if options.outputs > 2 else 1
    settings = options.hidden, options.mode, options.batches, options.clip
    run = Training(x, y, outputs, *settings, noise=1.0, step=0.1)
    say(ready=True)
    for line in sys.stdin:
        start = time.perf_counter()
        run.epoch(run.loader if line.strip() == "loader" else run.indexed())
        say(seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
