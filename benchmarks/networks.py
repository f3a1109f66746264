"""One private step of a network: time and memory, beside plain PyTorch and other libraries.

    PYTHON benchmarks/networks.py [--networks softmax mlp cnn] [--engines ours hooks ghost]

PYTHON has torch, and opacus, jax, optax and jax-privacy for their rows. Each engine and network is
a process of its own on one core, in which steps of the engine and plain steps take turns: the
table has the least processor time of a step in milliseconds, how many plain steps that is, and the
resident memory in MB that the first steps need above what was there before. A step sets gradients
to zero, computes, clips and adds them, and moves the parameters; no noise is drawn, since all would
draw the same. ``ours`` has physical batches of the size that `ClippedSums` chooses for the batch,
``ours whole`` of the batch. Engines whose library is missing are left out.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _name in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
# XLA has as many threads as cores; its flag for one thread chooses slower kernels as well
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
# in another thread a step's time is counted when that thread sleeps: too late for some steps
os.environ["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "false"

import argparse
import ctypes
import gc
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

NETWORKS = ("softmax", "mlp", "cnn", "transformer")
ENGINES = ("ours", "ours whole", "hooks", "ghost", "functorch", "vmap")
ENGINES += ("jax", "jax 1", "jax 16", "jax ours")
BATCHES = (64, 256)
WORDS, STEPS, WIDTH, HEADS, BLOCKS, CLASSES = 1000, 64, 64, 4, 2, 10
Step = Callable[[], object]


def main() -> None:
    """Print the table, or measure one engine where a parent process asks for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each cell")
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(*options.child, options.seconds)))
        return
    print("| network, batch | plain ms | " + " | ".join(options.engines) + " |")
    print("|---|---|" + "---|" * len(options.engines))
    for network in options.networks:
        found = {engine: child(engine, network, options.seconds) for engine in options.engines}
        for batch in map(str, BATCHES):
            plain = [cell[batch]["plain"] for cell in found.values() if cell]
            cells = [
                "{engine:.2f} ({times:.2f}x), {memory:.1f} MB{slots}".format(**cell[batch])
                if cell
                else "-"
                for cell in found.values()
            ]
            print(
                f"| {network} {batch} | {min(plain):.2f} | " + " | ".join(cells) + " |", flush=True
            )


def child(engine: str, network: str, seconds: float) -> dict[str, Any] | None:
    """Return the measurements of one engine, None where it fails."""
    command = [sys.executable, __file__, "--child", engine, network, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(engine, network, done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measure(engine: str, network: str, seconds: float) -> dict[str, Any]:
    """Return, by batch, times of steps that take turns, their ratio, and the memory."""
    found = {}
    make = jax_steps if engine.startswith("jax") else steps
    for run in make(engine, "softmax", 64)[:2]:
        run()  # so that code which is loaded at the first call does not count as memory
    for batch in BATCHES:
        step, plain, slots = make(engine, network, batch)
        memory = peak(step)
        times: dict[Step, list[float]] = {step: [], plain: []}
        end = time.monotonic() + seconds
        plain()
        while time.monotonic() < end or len(times[step]) < 5:
            for run, taken in times.items():
                start = time.process_time()
                run()
                taken.append(time.process_time() - start)
        mine, other = (min(taken) * 1e3 for taken in times.values())
        found[str(batch)] = {
            "engine": mine,
            "plain": other,
            "times": mine / other,
            "memory": memory,
            "slots": slots,
        }
    return found


def peak(step: Step) -> float:
    """Return the resident memory, in MB, that three steps need above the level before them."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    level = status("VmRSS")
    for _ in range(3):
        step()
    return max(0.0, status("VmHWM") - level) / 1024


def status(name: str) -> float:
    """Return a number of this process's status, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return float(line.split()[1])
    raise KeyError(name)


# --- PyTorch


def torch_network(name: str) -> tuple[Any, Any]:
    """Return a network, and a function that makes rows."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            n, t, d = x.shape
            q, k, v = (
                self.qkv(self.first(x)).view(n, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
            )
            weights = (q @ k.transpose(-1, -2) / math.sqrt(d // HEADS)).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, d))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(STEPS, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            places = torch.arange(x.shape[1]).repeat(len(x), 1)
            return self.head(self.norm(self.blocks(self.words(x) + self.places(places))).mean(1))

    torch.manual_seed(1)
    if name == "softmax":
        return nn.Linear(784, CLASSES), lambda n: torch.randn(n, 784)
    if name == "mlp":
        layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
        return nn.Sequential(*layers), lambda n: torch.randn(n, 784)
    if name == "cnn":
        layers = [nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1)]
        layers += [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
        layers += [nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, CLASSES)]
        return nn.Sequential(*layers), lambda n: torch.randn(n, 1, 28, 28)
    return Transformer(), lambda n: torch.randint(WORDS, (n, STEPS))


def steps(engine: str, network: str, batch: int) -> tuple[Step, Step, str]:
    """Return a step of an engine, a plain step, and words on the physical batch."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    loss = nn.CrossEntropyLoss()
    net, rows = torch_network(network)
    x, y = rows(batch), torch.randint(CLASSES, (batch,))
    bare, _ = torch_network(network)
    sgd = torch.optim.SGD(bare.parameters(), lr=0.01)

    def plain() -> None:
        sgd.zero_grad()
        loss(bare(x), y).backward()
        sgd.step()

    if engine.startswith("ours"):
        step, slots = our_step(net, loss, x, y, batch if "whole" in engine else None)
        return step, plain, slots
    if engine == "vmap":
        return vmap_step(net, loss, x, y), plain, ""

    from opacus import optimizers
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inner = torch.optim.SGD(net.parameters(), lr=0.01)
    shared = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
    if engine == "ghost":
        wrapped = GradSampleModuleFastGradientClipping(
            net, loss_reduction="mean", max_grad_norm=1.0, use_ghost_clipping=True
        )
        optimizer = optimizers.DPOptimizerFastGradientClipping(inner, **shared)
        criterion = DPLossFastGradientClipping(wrapped, optimizer, loss, "mean")
    else:
        wrapped = GradSampleModule(
            net, loss_reduction="mean", force_functorch=engine == "functorch"
        )
        optimizer, criterion = optimizers.DPOptimizer(inner, **shared), loss

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()

    return step, plain, ""


def our_step(net: Any, loss: Any, x: Any, y: Any, physical: int | None) -> tuple[Step, str]:
    """Return a step by `ClippedSums`."""
    import torch

    from adaptive_dp.torch.gradients import ClippedSums

    sums = ClippedSums(net, loss, x[:4], y[:4], physical_batch=physical, expected=len(x))
    theta = torch.cat([p.detach().flatten() for p in net.parameters()])

    def step() -> None:
        total, _ = sums(theta.numpy(), x, y, threshold=1.0)
        theta.sub_(torch.from_numpy(total), alpha=0.01 * sums.step / len(x))

    agree = "" if sums.slots_agree else ", slots differ"
    return step, f", {sums.physical_batch} slots{agree}"


def vmap_step(net: Any, loss: Any, x: Any, y: Any) -> Step:
    """Return a step by `torch.func`, as PyTorch's tutorial has it."""
    import torch
    from torch.func import functional_call, grad, vmap

    state = {name: p.detach() for name, p in net.named_parameters()}

    def row_loss(state: Any, row: Any, target: Any) -> Any:
        return loss(functional_call(net, state, (row[None],)), target[None])

    gradients = vmap(grad(row_loss), in_dims=(None, 0, 0))

    def step() -> None:
        rows = gradients(state, x, y)
        squares = sum(g.flatten(1).square().sum(1) for g in rows.values())
        factors = (1 / torch.sqrt(squares)).clamp(max=1.0)
        for name, g in rows.items():
            state[name] -= 0.01 / len(x) * torch.einsum("n,n...->...", factors, g)

    return step


# --- JAX


def jax_steps(engine: str, network: str, batch: int) -> tuple[Step, Step, str]:
    """Return a step of jax-privacy's clipped gradients, by its microbatches, and a plain step."""
    import jax
    import jax.numpy as jnp

    parameters, apply, rows = jax_network(network, jax, jnp)
    x = rows(batch)
    y = jnp.arange(batch) % CLASSES

    def loss(w: Any, x: Any, y: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(apply(w, x)), y[:, None], 1).mean()

    if engine == "jax ours":
        return our_jax_steps(loss, parameters, x, y)
    from jax_privacy import clipped_grad

    gradient = clipped_grad(
        loss,
        l2_clip_norm=1.0,
        batch_argnums=(1, 2),
        microbatch_size=int(engine.split()[1]) if " " in engine else None,
    )

    def moved(gradient: Any, scale: float) -> Any:
        return jax.jit(
            lambda w, x, y: jax.tree.map(lambda a, g: a - scale * g, w, gradient(w, x, y))
        )

    private, plain = moved(gradient, 0.01 / batch), moved(jax.grad(loss), 0.01)
    for run in (private, plain):  # compiled before anything is measured
        jax.block_until_ready(run(parameters, x, y))
    return (
        lambda: jax.block_until_ready(private(parameters, x, y)),
        lambda: jax.block_until_ready(plain(parameters, x, y)),
        "",
    )


def our_jax_steps(loss: Any, parameters: Any, x: Any, y: Any) -> tuple[Step, Step, str]:
    """Return a step of this library's exact sums of a function of JAX, and a plain step."""
    import jax
    import numpy as np
    from jax.flatten_util import ravel_pytree

    from adaptive_dp.jax.gradients import ClippedSums

    x, y = np.asarray(x), np.asarray(y)
    sums = ClippedSums(
        lambda w, x, y: loss(w, x[None], y[None]), parameters, x[:4], y[:4], expected=len(x)
    )
    theta, scale = np.asarray(ravel_pytree(parameters)[0]), 0.01 / len(x)

    def private() -> object:
        return theta - scale * (sums(theta, x, y, threshold=1.0)[0] * sums.step)

    plain = jax.jit(
        lambda w, x, y: jax.tree.map(lambda a, g: a - 0.01 * g, w, jax.grad(loss)(w, x, y))
    )
    for run in (private, lambda: plain(parameters, x, y)):
        jax.block_until_ready(run())
    return (
        private,
        lambda: jax.block_until_ready(plain(parameters, x, y)),
        f", {sums.physical_batch} slots",
    )


def jax_network(name: str, jax: Any, jnp: Any) -> tuple[Any, Any, Any]:
    """Return parameters, the function from them and rows to scores, and a maker of rows."""
    import numpy as np

    random = np.random.default_rng(1)

    def dense(p: int, d: int) -> Any:
        return {
            "w": jnp.array(random.normal(size=(p, d)) / math.sqrt(p), "float32"),
            "b": jnp.zeros(d),
        }

    def line(w: Any, x: Any) -> Any:
        return x @ w["w"] + w["b"]

    def floats(*shape: int) -> Any:
        return lambda n: jnp.array(random.normal(size=(n, *shape)), "float32")

    if name == "softmax":
        return dense(784, CLASSES), line, floats(784)
    if name == "mlp":
        layers = [dense(784, 256), dense(256, CLASSES)]
        return layers, lambda w, x: line(w[1], jax.nn.relu(line(w[0], x))), floats(784)
    if name == "cnn":
        one = {"w": jnp.array(random.normal(size=(16, 1, 8, 8)) / 8, "float32"), "b": jnp.zeros(16)}
        two = {
            "w": jnp.array(random.normal(size=(32, 16, 4, 4)) / 16, "float32"),
            "b": jnp.zeros(32),
        }

        def layer(w: Any, x: Any, padding: int) -> Any:
            pads = [(padding, padding)] * 2
            x = jax.lax.conv_general_dilated(x, w["w"], (2, 2), pads)
            x = jax.nn.relu(x + w["b"][:, None, None])
            window = ((1, 1, 2, 2), (1, 1, 1, 1), "VALID")
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window)

        def apply(w: Any, x: Any) -> Any:
            x = layer(w[1], layer(w[0], x, 3), 0).reshape(len(x), -1)
            return line(w[3], jax.nn.relu(line(w[2], x)))

        return [one, two, dense(512, 32), dense(32, CLASSES)], apply, floats(1, 28, 28)

    def norm(w: Any, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w["w"] + w["b"]

    def plain() -> Any:
        return {"w": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}

    def block(w: Any, x: Any) -> Any:
        n, t, d = x.shape
        q, k, v = (
            line(w["qkv"], norm(w["one"], x)).reshape(n, t, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        )
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / math.sqrt(d // HEADS))
        x = x + line(w["out"], (weights @ v).swapaxes(1, 2).reshape(n, t, d))
        return x + line(w["down"], jax.nn.gelu(line(w["up"], norm(w["two"], x))))

    def transformer(w: Any, x: Any) -> Any:
        x = w["words"][x] + w["places"]
        for inner in w["blocks"]:
            x = block(inner, x)
        return line(w["head"], norm(w["norm"], x).mean(1))

    blocks = [
        {
            "one": plain(),
            "two": plain(),
            "qkv": dense(WIDTH, 3 * WIDTH),
            "out": dense(WIDTH, WIDTH),
            "up": dense(WIDTH, 4 * WIDTH),
            "down": dense(4 * WIDTH, WIDTH),
        }
        for _ in range(BLOCKS)
    ]
    parameters = {
        "words": jnp.array(random.normal(size=(WORDS, WIDTH)), "float32"),
        "places": jnp.array(random.normal(size=(STEPS, WIDTH)), "float32"),
        "blocks": blocks,
        "norm": plain(),
        "head": dense(WIDTH, CLASSES),
    }
    return parameters, transformer, lambda n: jnp.array(random.integers(WORDS, size=(n, STEPS)))


if __name__ == "__main__":
    main()
