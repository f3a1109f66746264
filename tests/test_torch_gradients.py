"""Exact sums of clipped gradients of PyTorch modules, against automatic differentiation."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from adaptive_dp.graph.errors import DeclarationError  # noqa: E402
from adaptive_dp.noise.stream import SeededStream  # noqa: E402
from adaptive_dp.torch import gradients  # noqa: E402
from adaptive_dp.torch.gradients import ClippedSums  # noqa: E402

torch.set_num_threads(1)
FULL = int(1 / ClippedSums.step)


class Tokens(nn.Module):
    """An embedding, positions without an axis of rows, a dense layer over time, norms, a head."""

    def __init__(self, words: int = 20, width: int = 4, steps: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(steps, width)
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.head((x + self.inner(self.norm(x)).tanh()).mean(1))


class Wide(nn.Module):
    """Few time steps and wide layers: norms by inner products over time."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(40, 50)
        self.head = nn.Linear(50, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x).relu().sum(1))


class Tied(nn.Module):
    """One weight in two layers, and a parameter outside of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).tanh())[:, :3] * self.scale


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Any) -> Any:
        return self.layer(self.layer(x).tanh())[:, :3]


class Adapter(nn.Module):
    """A frozen layer and two small ones beside it, the second of which starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(5, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(5, 2, bias=False), nn.Linear(2, 3, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


class Recurrent(nn.Module):
    """Two biases have one gradient, which PyTorch keeps in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.memory(x)[0][:, -1])


class Gated(Recurrent):
    """Whose kernel vmap does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(3, 8, batch_first=True)  # type: ignore[assignment]


class Attentive(nn.Module):
    """Attention over the words' vectors, as its module computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        h = self.words(x)
        return self.head(self.attention(h, h, h, need_weights=False)[0].mean(1))


def floats(*shape: int) -> Callable[[int], Any]:
    return lambda n: torch.randn(n, *shape, generator=torch.Generator().manual_seed(n))


def tokens(n: int) -> Any:
    return torch.randint(20, (n, 3), generator=torch.Generator().manual_seed(n))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], set[str]]] = {
    "softmax": (lambda: nn.Linear(5, 3), floats(5), {"dense"}),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)),
        floats(5),
        {"dense"},
    ),
    "convolution": (convolution, floats(2, 6, 6), {"dense", "formed"}),
    "line": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(15, 3)),
        floats(2, 5),
        {"dense", "formed"},
    ),
    "tokens": (Tokens, tokens, {"dense", "formed", "lookup"}),
    "wide": (Wide, floats(2, 40), {"dense", "formed"}),
    "tied": (Tied, floats(5), {"vmap"}),
    "twice": (Twice, floats(5), {"vmap"}),
    "adapter": (Adapter, floats(5), {"dense"}),
}


OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], set[str]]] = {
    "attention": (Attentive, tokens, {"vmap"}),
    "recurrent": (Recurrent, floats(7, 3), {"vmap"}),
}


def make(name: str, dtype: Any = None, **options: Any) -> tuple[nn.Module, Any, ClippedSums]:
    build, rows, _ = (NETS | OTHERS)[name]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = build().to(dtype or torch.float32)
    options.setdefault("physical_batch", 32)
    sums = ClippedSums(net, nn.CrossEntropyLoss(), rows(4), labels(4), **options)
    return net, rows, sums


def labels(n: int) -> Any:
    return torch.arange(n) % 3


def flat(net: nn.Module) -> Any:
    return np.concatenate(
        [p.detach().double().numpy().ravel() for p in net.parameters() if p.requires_grad]
    )


def by_rows(net: nn.Module, x: Any, y: Any, loss: Any = None) -> Any:
    """Each row's gradient, by automatic differentiation in float64."""
    net = copy.deepcopy(net).double()
    x = x.double() if x.is_floating_point() else x
    own = [p for p in net.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        value = (loss or nn.CrossEntropyLoss())(net(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, own)]).numpy())
    return np.array(rows)


def clipped(rows: Any, threshold: float) -> Any:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1 / threshold, 1 / np.maximum(norms, 1e-300))


@pytest.mark.parametrize("name", NETS)
def test_sums_are_those_of_each_rows_own_gradient(name: str) -> None:
    """At a threshold that clips some rows and not others; and the engines are the ones meant."""
    net, rows, sums = make(name)
    assert set(sums.engines.values()) == NETS[name][2]
    assert sums.slots_agree
    x, y = rows(45), labels(45)
    right = by_rows(net, x, y)
    norms = np.linalg.norm(right, axis=1)
    threshold = float(np.median(norms)) * 1.0001
    total, short = sums(flat(net), x, y, threshold=threshold)
    assert total.dtype == np.int64
    assert np.abs(total * sums.step - clipped(right, threshold).sum(0)).max() < 45 * 2e-5
    assert short == int((norms <= threshold).sum())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["mlp", "wide", "tokens", "tied"])
def test_other_precisions(name: str, dtype: Any) -> None:
    """Gradients are what the precision gives; norms and sums do not lose more."""
    net, rows, sums = make(name, dtype)
    x, y = rows(9), labels(9)
    right = clipped(by_rows(net, x, y), 0.3)
    total, _ = sums(flat(net), x.to(dtype) if x.is_floating_point() else x, y, threshold=0.3)
    error = 0.3 if dtype == torch.bfloat16 else 9 * 2e-5
    assert np.abs(total * sums.step - right.sum(0)).max() < error
    assert np.abs(total * sums.step).max() > 0.1


class Mixed(nn.Module):
    """Parameters of float32, products of bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.first(x).tanh()).float()


def test_a_module_may_compute_in_half_precision() -> None:
    torch.manual_seed(5)
    net, x, y = Mixed(), floats(5)(9), labels(9)
    sums = ClippedSums(net, nn.CrossEntropyLoss(), x, y, physical_batch=32)
    right = clipped(by_rows(net, x, y), 0.01)
    for i in range(9):
        total, _ = sums(flat(net), x[i : i + 1], y[i : i + 1], threshold=0.01)
        assert exact_norm_is_at_most_one(total)
        assert np.abs(total * sums.step - right[i]).max() < 0.03


def exact_norm_is_at_most_one(share: Any) -> bool:
    return sum(int(v) ** 2 for v in share) <= FULL**2


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_share_is_longer_than_the_threshold(name: str, dtype: Any) -> None:
    """In exact integers, of single rows, ordinary and adversarial, and most are nearly as long."""
    net, rows, sums = make(name, dtype)
    x = rows(8).to(dtype) if rows(8).is_floating_point() else rows(8)
    theta = flat(net)
    if x.is_floating_point():
        scales = torch.tensor([1.0, 1e-30, 1e30, 1e-44, 1e15, 1e-8, 3e38, 1.0], dtype=dtype)
        x = x * scales.view(-1, *[1] * (x.ndim - 1))
        x[7] = 0.0
        x[7].view(-1)[0] = 1.0
    else:
        x[0] = 5  # one token again and again
    lengths = []
    for threshold in (1e-20, 1e-5, 0.3, 1e6):
        for size in (1.0, 30.0):
            for i in range(8):
                total, _ = sums(
                    theta * size, x[i : i + 1], labels(8)[i : i + 1], threshold=threshold
                )
                assert exact_norm_is_at_most_one(total)
                lengths.append(float(np.linalg.norm(total.astype(float))) * sums.step)
    assert np.isfinite(lengths).all()
    assert max(lengths) > 0.999


@pytest.mark.parametrize(("build", "engine"), [(Recurrent, "vmap"), (Gated, "alone")])
def test_gradients_in_one_tensor_are_added_once_each(build: Any, engine: str) -> None:
    """And where vmap knows no kernel, rows are computed one after the other."""
    torch.manual_seed(5)
    net, x, y = build(), floats(4, 3)(5), labels(5)
    sums = ClippedSums(net, nn.CrossEntropyLoss(), x, y, physical_batch=2)
    assert set(sums.engines.values()) == {engine}
    right = clipped(by_rows(net, x, y), 0.05)
    for i in range(5):
        total, _ = sums(flat(net), x[i : i + 1], y[i : i + 1], threshold=0.05)
        assert exact_norm_is_at_most_one(total)
        assert np.abs(total * sums.step - right[i]).max() < 1e-4


class _Penalty(nn.Module):
    """Whose gradient is its parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[0.3, 0.4, 1.2]]))

    def forward(self, x: Any) -> Any:
        return (self.w**2).sum() / 2 + 0 * x


def test_a_gradient_that_is_a_parameter_is_not_overwritten() -> None:
    x = torch.ones(4, 1)
    sums = ClippedSums(_Penalty(), lambda o, t: o.sum(), x, labels(4), physical_batch=1)
    total, _ = sums(flat(_Penalty()), x, labels(4), threshold=10.0)
    np.testing.assert_allclose(total * sums.step, 4 * np.array([0.03, 0.04, 0.12]), atol=1e-5)


class _Fixed(torch.autograd.Function):
    """Whose gradient is a buffer itself."""

    @staticmethod
    def forward(w: Any, x: Any, buffer: Any) -> Any:
        return (w * buffer).sum() + 0 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, slopes: Any) -> Any:
        return ctx.saved_tensors[0], None, None

    generate_vmap_rule = True


class _Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.3, 0.4, 1.2]))
        self.register_buffer("b", torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, x: Any) -> Any:
        return _Fixed.apply(self.w, x, self.b)


def test_a_gradient_that_is_a_buffer_is_not_overwritten() -> None:
    x = torch.ones(4, 1)
    sums = ClippedSums(_Buffered(), lambda o, t: o.sum(), x, labels(4), physical_batch=1)
    total, _ = sums(flat(_Buffered()), x, labels(4), threshold=10.0)
    np.testing.assert_allclose(total * sums.step, 4 * np.array([0.01, 0.02, 0.03]), atol=1e-5)


def shortened(rows: Any, rule: str, c: float, parts: list[slice]) -> Any:
    """The rules by their formulas, of each part by itself."""
    result, length = np.zeros_like(rows), 1 / math.sqrt(len(parts))
    for part in parts:
        norm = np.linalg.norm(rows[:, part], axis=1, keepdims=True)
        factor = {
            "flat": 1 / np.maximum(c, norm / length),
            "automatic": length / (norm + c),
            "per_sample": length / (norm + c / (norm + c)),
        }[rule]
        result[:, part] = rows[:, part] * factor
    return result


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("rule", ["flat", "automatic", "per_sample"])
@pytest.mark.parametrize("name", ["mlp", "convolution", "tied"])
def test_rules_and_layers(name: str, rule: str, by_layer: bool) -> None:
    """The formulas on each module's part; and no share is longer than 1, of rows of any size."""
    net, rows, sums = make(name)
    how: Any = {"rule": rule, "by_layer": by_layer}
    x, y, theta = rows(20), labels(20), flat(net)
    parts, start, seen = [], 0, {}
    for key, p in net.named_parameters():
        if p.requires_grad:
            owner = key.rpartition(".")[0] if by_layer else ""
            low = seen.setdefault(owner, start)
            start += p.numel()
            parts = [each for each in parts if each.start != low] + [slice(low, start)]
    right = by_rows(net, x, y)
    c = float(np.median(np.linalg.norm(right, axis=1)))
    total, short = sums(theta, x, y, threshold=c, **how)
    wanted = shortened(right, rule, c, parts)
    assert np.abs(total * sums.step - wanted.sum(0)).max() < 20 * 4e-5
    inside = [np.linalg.norm(right[:, p], axis=1) <= c / math.sqrt(len(parts)) for p in parts]
    assert short == int(np.all(inside, axis=0).sum())
    # what audits read is what is added
    along = np.random.default_rng(0).normal(size=sums.size)
    found = sums.products(theta, x[:3], y[:3], along, threshold=c, **how)
    np.testing.assert_allclose(found, wanted[:3] @ along, rtol=1e-3, atol=1e-4)
    scales = [1e-30, 1e-6, 1.0, 1e4, 1e30, math.nan]
    lengths = []
    for i, scale in enumerate(scales):
        for threshold in (1e-9, 1e3):
            share, _ = sums(theta, x[i : i + 1] * scale, y[i : i + 1], threshold=threshold, **how)
            assert exact_norm_is_at_most_one(share)
            lengths.append(float(np.linalg.norm(share.astype(float))) * sums.step)
    assert max(lengths) > 0.99
    assert lengths[-2:] == [0.0, 0.0]
    # of units, with their rows added first
    joint = make(name, by_unit=True)[2]
    total, _ = joint(theta, x, y, np.arange(20) // 2, threshold=c, **how)
    wanted = shortened(right.reshape(10, 2, -1).sum(1), rule, c, parts)
    assert np.abs(total * sums.step - wanted.sum(0)).max() < 10 * 4e-5


def test_a_module_without_numbers_or_without_room_adds_nothing() -> None:
    """Found by reading: by layer they crashed, and turned a gradient round, after the charge."""
    net = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3))
    x, y = floats(5)(8), labels(8)
    right = by_rows(net, x, y)
    net[0].register_module("empty", nn.Module())
    net[0].empty.register_parameter("none", nn.Parameter(torch.zeros(0)))
    sums = ClippedSums(net, nn.CrossEntropyLoss(), x, y)
    along = np.zeros(sums.size)
    along[:18] = 1.0
    wanted = shortened(right, "flat", 1e-3, [slice(0, 18), slice(18, None)])
    total, _ = sums(flat(net), x, y, threshold=1e-3, by_layer=True)
    assert np.abs(total * sums.step - wanted.sum(0)).max() < 8 * 4e-5
    found = sums.products(flat(net), x, y, along, threshold=1e-3, by_layer=True)
    np.testing.assert_allclose(found, wanted @ along, rtol=1e-3, atol=1e-4)
    # rounding of 2^42 / L numbers of one of L modules may fill its part
    sums._margins[0] = 0.9
    for rule in ("flat", "automatic", "per_sample"):
        share, _ = sums(flat(net), x, y, threshold=1e-3, by_layer=True, rule=rule)
        assert not share[:18].any()
        assert share[18:].any()


class Scaled(nn.Module):
    """A layer, and a parameter that is a number without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(5, 3), nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale


@pytest.mark.parametrize("by_unit", [False, True])
def test_a_parameter_may_be_a_number(by_unit: bool) -> None:
    net, x, y = Scaled(), floats(5)(6), labels(6)
    sums = ClippedSums(net, nn.CrossEntropyLoss(), x, y, by_unit=by_unit)
    units = np.arange(6) if by_unit else None
    total, _ = sums(flat(net), x, y, units, threshold=0.1, by_layer=True)
    names = [name for name, _ in net.named_parameters()]
    parts = [slice(0, 1), slice(1, None)] if names[0] == "scale" else [slice(0, 18), slice(18, 19)]
    wanted = shortened(by_rows(net, x, y), "flat", 0.1, parts)
    assert np.abs(total * sums.step - wanted.sum(0)).max() < 6 * 4e-5


def test_the_margin_is_what_the_proof_says() -> None:
    """A layer so wide that rounding its slopes alone could pass the bound: the factor allows it."""
    steps, width = 30, 20_000
    inputs = torch.ones(2, steps, 3, dtype=torch.float64)
    slopes = torch.full((2, steps, width), 0.50001 * 2.0**-18, dtype=torch.float64)
    part = gradients._Dense(slice(0, 3 * width), inputs, slopes)
    total = torch.zeros(3 * width, dtype=torch.float64)
    norms = torch.sqrt(part.squares)
    part.add((1 / norms).clamp(max=1.0 / float(part.scale[0])), total)
    moved = float(torch.linalg.vector_norm(total)) * 2.0**-36 / 2 - float(norms[0] / part.scale[0])
    margin = math.sqrt(steps * width) * 2.0**-18
    assert 0 < moved <= margin


@pytest.mark.parametrize("name", ["softmax", "convolution", "tokens", "wide", "tied", *OTHERS])
def test_a_row_more_adds_its_share_and_splits_add_up(name: str) -> None:
    """Leaving a row out changes the sum by a share, bit for bit; in any order, in any calls.

    So does another row in its place: what the others add does not move.
    """
    net, rows, sums = make(name)
    x, y, theta = rows(70), labels(70), flat(net)

    def total(index: Any, seed: int = 0) -> Any:
        index = torch.as_tensor(index, dtype=torch.long)
        return sums(theta, x[index], y[index], threshold=0.2, stream=SeededStream(seed))[0]

    everyone = np.arange(70)
    whole = total(everyone)
    assert np.array_equal(whole, total(everyone[::-1].copy(), 1))
    assert np.array_equal(whole, total(everyone[:13], 2) + total(everyone[13:], 3))
    for i in (0, 31, 69):
        rest, own = total(np.delete(everyone, i), 4), total([i], 5)
        assert np.array_equal(whole - rest, own)
        assert exact_norm_is_at_most_one(own)
        x[i] = rows(3)[2]
        assert np.array_equal(total(everyone, 6) - total([i], 7), rest)
        whole = total(everyone, 8)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30, 1e38, 1e-42])
@pytest.mark.parametrize("name", ["mlp", "convolution", "wide", "tied"])
def test_rows_that_are_not_finite_add_nothing(name: str, bad: float) -> None:
    """NaN and infinite rows add 0, huge and tiny ones a share; the others' shares do not move."""
    net, rows, sums = make(name)
    x, y, theta = rows(40), labels(40), flat(net)
    rest, short = sums(theta, x[1:], y[1:], threshold=0.5)
    x[0] = bad
    total, more = sums(theta, x, y, threshold=0.5)
    alone, one = sums(theta, x[:1], y[:1], threshold=0.5)
    assert np.array_equal(total, rest + alone)
    assert more == short + one
    assert exact_norm_is_at_most_one(alone)
    if not math.isfinite(bad):
        assert not alone.any()
        assert not one


def test_nothing_of_rows_stays_after_an_error() -> None:
    """The activations that hooks keep, and the sum so far."""
    net, rows, sums = make("softmax")
    with pytest.raises(IndexError):
        sums(flat(net), rows(9), torch.full((9,), 7), threshold=1.0)
    assert not sums._total.any()
    assert [(layer.read, layer.wrote) for layer in sums._layers or ()] == [(None, None)]


def test_a_loss_that_is_not_finite_counts_as_zero() -> None:
    """Its gradient may be finite."""

    def loss(outputs: Any, targets: Any) -> Any:
        bad = torch.where(targets == 2, math.inf, 0.0)
        return nn.functional.cross_entropy(outputs, targets) + bad.sum()

    net = nn.Linear(5, 3)
    sums = ClippedSums(net, loss, floats(5)(4), labels(4), physical_batch=32)
    x, y = floats(5)(9), labels(9)
    total, short = sums(flat(net), x, y, threshold=1.0)
    good, number = sums(flat(net), x[y != 2], y[y != 2], threshold=1.0)
    assert np.array_equal(total, good)
    assert short == number


@pytest.mark.parametrize("name", ["mlp", "tokens"])
def test_rows_of_a_unit_are_clipped_together(name: str) -> None:
    """Units of one row are rows; of several, their gradients are added first."""
    net, rows, sums = make(name, by_unit=True)
    x, y, theta = rows(40), labels(40), flat(net)
    units = np.random.default_rng(1).integers(0, 12, 40) * 1000
    units[:18] = 5000  # more rows than are computed together
    right = by_rows(net, x, y)
    joint = np.array([right[units == u].sum(0) for u in np.unique(units)])
    with pytest.raises(DeclarationError, match="by_unit"):
        make(name)[2](theta, x, y, units, threshold=2.0)
    total, short = sums(theta, x, y, units, threshold=2.0)
    assert np.abs(total * sums.step - clipped(joint, 2.0).sum(0)).max() < 40 * 2e-5
    assert short == int((np.linalg.norm(joint, axis=1) <= 2.0).sum())
    without = units != 3000
    less, _ = sums(theta, x[without], y[without], units[without], threshold=2.0)
    alone, _ = sums(
        theta, x[~without], y[~without], threshold=2.0, units=np.zeros((~without).sum())
    )
    assert np.array_equal(total - less, alone)
    assert exact_norm_is_at_most_one(alone)


@pytest.mark.parametrize("name", ["mlp", "convolution", "tokens"])
def test_no_share_of_a_unit_is_longer_than_the_threshold(name: str) -> None:
    """In exact integers, of units of 1 to 17 rows, also of such that under- or overflow."""
    net, rows, sums = make(name, by_unit=True)
    lengths = []
    for count in (1, 2, 3, 5, 9, 16, 17):
        for scale in (1.0, 1e-30, 1e37) if rows(1).is_floating_point() else (1,):
            x, y, units = rows(count) * scale, labels(count), np.zeros(count)
            total, _ = sums(flat(net), x, y, units, threshold=0.01)
            assert exact_norm_is_at_most_one(total)
            lengths.append(float(np.linalg.norm(total.astype(float))) * sums.step)
    assert max(lengths) > 0.99
    assert set(sums._together) == {1, 2, 4, 8, 16}


def test_a_unit_keeps_its_finite_rows() -> None:
    """One NaN row of a unit adds 0 to the unit."""
    net, rows, sums = make("mlp", by_unit=True)
    x, y, theta = rows(4), labels(4), flat(net)
    right, _ = sums(theta, x[1:], y[1:], np.zeros(3), threshold=0.5)
    x[0] = math.nan
    total, _ = sums(theta, x, y, np.zeros(4), threshold=0.5)
    assert np.abs((total - right) * sums.step).max() < 1e-9


def test_no_rows_at_all() -> None:
    """An empty sample is ordinary."""
    for units in (None, np.zeros(0)):
        net, rows, sums = make("mlp", by_unit=units is not None)
        total, short = sums(flat(net), rows(2)[:0], labels(0), units, threshold=1.0)
        assert total.shape == (sums.size,)
        assert not total.any()
        assert short == 0


def test_sums_beyond_float64_are_added_as_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sum when the float64 sums are emptied after each pass."""
    net, rows, sums = make("mlp")
    x, y, theta = rows(200), labels(200), flat(net)
    whole, _ = sums(theta, x, y, threshold=1.0)
    monkeypatch.setattr(gradients, "MOST_ROWS", 40)
    assert np.array_equal(whole, sums(theta, x, y, threshold=1.0)[0])


def test_the_module_and_the_generators_stay_as_they_were() -> None:
    """Modes, parameters, buffers, gradients, hooks; torch's, NumPy's and Python's random state."""
    net = nn.Sequential(
        nn.Linear(5, 4), nn.BatchNorm1d(4).eval(), nn.Dropout(0.5).eval(), nn.Linear(4, 3)
    )
    before = {k: v.clone() for k, v in net.state_dict().items()}
    modes = [m.training for m in net.modules()]
    state = torch.get_rng_state()
    numpy_state, python_state = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    sums = ClippedSums(net, nn.CrossEntropyLoss(), floats(5)(4), labels(4))
    sums(flat(net) + 1, floats(5)(9), labels(9), threshold=1.0)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert modes == [m.training for m in net.modules()]
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_hooks for m in net.modules())
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002
    assert python_state == random.getstate()


class Centred(nn.Module):
    """Centres on the batch's mean, which no list of layers knows."""

    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


class Between(nn.Module):
    """Mixes rows between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).softmax(0))


class Counting(nn.Module):
    """Keeps a mean of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: Any) -> Any:
        self.seen += x.detach().mean(0)
        return self.layer(x)


class Noisy(nn.Module):
    """Draws from NumPy's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) * (1 + np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Sequential(nn.Linear(5, 3), Centred()), r"1 \(Centred\) mixes rows"),
        (Between(), r"forward function of Between, before second \(Linear\), mixes"),
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "1.running_mean"),
        (
            nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            r"1 \(BatchNorm1d\) mixes rows",
        ),
        (nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), r"1 \(Dropout\) draws random numbers"),
        (Noisy(), "Noisy draws random numbers"),
        (Counting(), "seen is changed"),
        (nn.Linear(5, 3).requires_grad_(False), "requires_grad"),
        (nn.Linear(4, 3), "fails on the made-up rows"),
    ],
)
def test_modules_that_have_no_gradient_of_a_row_are_refused(net: nn.Module, words: str) -> None:
    """By the name of the layer where it begins."""
    with pytest.raises(DeclarationError, match=words):
        ClippedSums(net, nn.CrossEntropyLoss(), floats(5)(4), labels(4))


class _Wrong(nn.Linear):
    """Looks like a dense layer: its rows' gradients are not products of slopes and inputs."""

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight**3, self.bias)


class Pairs(nn.Module):
    """In a batch of more than four rows one slot gets some of another's values."""

    def __init__(self, source: int, target: int, share: float) -> None:
        super().__init__()
        self.source, self.target, self.share = source, target, share
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        if len(x) > max(4, self.source, self.target):
            part = torch.zeros(len(x), 1)
            part[self.target] = self.share
            x = x * (1 - part) + x[self.source] * part
        return self.head(x)


@pytest.mark.parametrize(
    ("source", "target"), [(5, 7), (7, 5), (0, 31), (31, 0), (16, 3), (3, 16), (5, 13)]
)
@pytest.mark.parametrize("physical_batch", [32, None])
def test_no_slot_reads_another(source: int, target: int, physical_batch: int | None) -> None:
    """Also where the two have the same made-up row: half of each is that row."""
    for share in (0.5, 1e-3):
        net = Pairs(source, target, share)
        with pytest.raises(DeclarationError, match="depends on the rows beside it"):
            ClippedSums(
                net,
                nn.CrossEntropyLoss(),
                floats(5)(4),
                labels(4),
                physical_batch=physical_batch,
                expected=20,
            )


def test_a_layer_that_computes_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted as a known kind, it fails the comparison with rows' own gradients."""
    monkeypatch.setitem(gradients._PARTS, gradients._kind(_Wrong(1, 1)), gradients._linear)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), _Wrong(4, 3))
    sums = ClippedSums(net, nn.CrossEntropyLoss(), floats(5)(4), labels(4), physical_batch=32)
    assert set(sums.engines.values()) == {"vmap"}
    x, y = floats(5)(9), labels(9)
    total, _ = sums(flat(net), x, y, threshold=0.3)
    assert np.abs(total * sums.step - clipped(by_rows(net, x, y), 0.3).sum(0)).max() < 2e-4


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mlp", "_Dense"),
        ("wide", "_Dense"),
        ("tokens", "_Formed"),
        ("convolution", "_Formed"),
        ("tokens", "_Lookup"),
    ],
)
def test_a_planted_wrong_norm_is_found(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares of norms that are halved in one kind of parts are not used."""
    kind = getattr(gradients, part)
    right = kind.__init__

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.squares = self.squares * 0.5

    monkeypatch.setattr(kind, "__init__", wrong)
    if part == "_Formed":  # of vmap's gradients too
        with pytest.raises(DeclarationError, match="do not add up"):
            make(name)
        return
    _, _, sums = make(name)
    assert set(sums.engines.values()) == {"vmap"}


@pytest.mark.parametrize(
    "loss",
    [
        nn.MSELoss(),
        nn.MSELoss(reduction="sum"),
        nn.functional.smooth_l1_loss,
        lambda outputs, targets: ((outputs - targets) ** 4).mean(),
    ],
)
def test_losses_of_other_kinds(loss: Any) -> None:
    """What a loss returns for a batch of one row is the row's loss."""
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    x, y = floats(5)(9), floats(2)(9)
    sums = ClippedSums(net, loss, x[:4], y[:4], physical_batch=32)
    total, _ = sums(flat(net), x, y, threshold=0.5)
    right = clipped(by_rows(net, x, y.double(), loss), 0.5).sum(0)
    assert np.abs(total * sums.step - right).max() < 2e-4


def test_losses_that_are_no_number_of_a_row_are_refused() -> None:
    """A loss of many numbers; one whose gradient depends on the number of rows is a row's own."""
    with pytest.raises(DeclarationError, match="one number"):
        ClippedSums(nn.Linear(5, 3), nn.MSELoss(reduction="none"), floats(5)(4), floats(3)(4))


def test_bad_calls_are_refused_without_data() -> None:
    """Shapes and thresholds; the message has no number of a row."""
    net, rows, sums = make("mlp")
    x, y, theta = rows(4), labels(4), flat(net)
    for arguments, options, words in (
        ((theta, x[:, :4], y), {"threshold": 1.0}, "shape"),
        ((theta, x, y[:3]), {"threshold": 1.0}, "same number"),
        ((theta[1:], x, y), {"threshold": 1.0}, "theta"),
        ((theta, x, y), {"threshold": math.nan}, "threshold"),
        ((theta, x, y), {"threshold": 0.0}, "threshold"),
    ):
        with pytest.raises(DeclarationError, match=words):
            sums(*arguments, **options)
    with pytest.raises(DeclarationError, match="physical batch"):
        make("mlp", physical_batch=0)


def test_slots_are_uniform_and_their_law_does_not_depend_on_who_is_there() -> None:
    """Each row's slot is uniform; of one row less, the others' places have the same law."""
    counts = np.zeros((2, 8, 8))
    for seed in range(2000):
        for k, n in enumerate((6, 5)):
            rows = gradients.placed(n, 4, SeededStream(seed, k), agree=True).reshape(-1)
            place = {int(row): slot for slot, row in enumerate(rows) if row >= 0}
            assert len(place) == n
            counts[k, place[0], place[1]] += 1
    # 56 pairs of places, each 2000/56 times: 5.5 standard deviations, false alarm below 1e-5
    for table in counts:
        off = table[~np.eye(8, dtype=bool)]
        assert np.abs(off - 2000 / 56).max() < 5.5 * math.sqrt(2000 / 56)
        assert not np.diag(table).any()


def test_slots_that_do_not_agree_are_drawn_for_each_row_by_itself() -> None:
    """All pairs of slots alike: the law of a row's slot is the same whoever else is there."""
    counts = np.zeros((2, 4, 4))
    for seed in range(2000):
        for k, n in enumerate((9, 8)):  # in passes of 4: 3 and 2, if they were full
            rows = gradients.placed(n, 4, SeededStream(seed, k), agree=False)
            place = {int(row): s for each in rows for s, row in enumerate(each) if row >= 0}
            assert sorted(place) == list(range(n))
            assert len(rows) == max(np.bincount(list(place.values())))
            counts[k, place[0], place[1]] += 1
    # 16 pairs, two of each: 5.5 standard deviations, false alarm below 2e-6
    assert np.abs(counts - 2000 / 16).max() < 5.5 * math.sqrt(2000 / 16)
    assert gradients.placed(0, 4, SeededStream(0), agree=False).shape == (1, 4)


def test_norms_of_half_precision_are_computed_wider() -> None:
    """Squares of a float16 norm of 500 are infinite; other libraries then clip to zero or NaN."""
    net = nn.Linear(5, 3).half()
    loss = lambda outputs, targets: (outputs * 250).sum()  # noqa: E731
    sums = ClippedSums(net, loss, floats(5)(4), floats(3)(4), physical_batch=32)
    x = torch.full((2, 5), 1.0)
    total, short = sums(flat(net), x, torch.zeros(2, 3), threshold=1.0)
    norm = 250 * math.sqrt(18)
    assert np.abs(total * sums.step - 2 * 250 / norm).max() < 1e-3
    assert short == 0
    assert sums(flat(net), x, torch.zeros(2, 3), threshold=norm * 1.001)[1] == 2


def test_a_physical_batch_is_chosen_for_the_expected_rows() -> None:
    """One whose slots agree, no larger than nearly every sample; sums are the same of any size."""
    net, rows, sums = make("mlp", physical_batch=None, expected=40)
    assert sums.slots_agree
    assert sums.physical_batch in (32, 64)
    x, y = rows(100), labels(100)
    _, _, other = make("mlp", physical_batch=96)
    assert other.slots_agree
    one, two = (s(flat(net), x, y, threshold=0.5)[0] for s in (sums, other))
    # kernels of other shapes may add in another order: float32's last bits
    assert np.abs((one - two) * sums.step).max() < 100 * 1e-5
    # the last pass has the smallest shape that holds it, whose results are the same bit for bit
    parts = [sums(flat(net), x[p], y[p], threshold=0.5)[0] for p in (slice(3), slice(3, 100))]
    assert np.array_equal(parts[0] + parts[1], one)


def test_slots_at_the_end_of_a_threads_share_do_not_agree() -> None:
    """There SiLU's last 16 numbers are computed by other code, as few rows show, and zeros never.

    The sum would change for more than one row where a row is added and the others move.
    """
    net = nn.Sequential(nn.Linear(8, 515), nn.SiLU(), nn.Linear(515, 3))
    made = torch.zeros(2, 8), labels(2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        own = [
            ClippedSums(net, nn.CrossEntropyLoss(), *made, physical_batch=slots)
            for slots in (64, 96)
        ]
    finally:
        torch.set_num_threads(threads)
    assert [each.slots_agree for each in own] == [True, False]
    # computed by the threads by which it was tried
    seen: list[int] = []
    own[0]._sum = lambda *_: seen.append(torch.get_num_threads())
    own[0](flat(net), floats(8)(3), labels(3), threshold=1.0)
    assert seen == [2]
    assert torch.get_num_threads() == threads


def test_a_sum_starts_at_zero_where_clearing_was_interrupted() -> None:
    net, rows, sums = make("mlp", physical_batch=32)
    x, y = rows(5), labels(5)
    right, _ = sums(flat(net), x, y, threshold=1.0)
    kept = sums._total

    class Interrupted:
        """A total whose clearing is interrupted, after the sum."""

        def __getattr__(self, name: str) -> Any:
            if name == "zero_":
                raise KeyboardInterrupt
            return getattr(kept, name)

        def __getitem__(self, key: Any) -> Any:
            return kept[key]

    sums._total = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        sums(flat(net), x, y, threshold=1.0)
    sums._total = kept
    assert kept.abs().sum() > 0
    assert np.array_equal(sums(flat(net), x, y, threshold=1.0)[0], right)


class Sized(nn.Module):
    """Computes in another way in large batches."""

    def forward(self, rows: Any) -> Any:
        return rows * (1.0001 if len(rows) > 40 else 1.0)


def test_shapes_in_which_results_differ_are_not_mixed() -> None:
    """A row's share would depend on how many rows there are."""
    build = lambda net: ClippedSums(  # noqa: E731
        net, nn.CrossEntropyLoss(), floats(500)(4), labels(4), expected=90
    )
    assert len(build(nn.Linear(500, 30))._sizes) > 1
    sizes = build(nn.Sequential(Sized(), nn.Linear(500, 30)))._sizes
    assert len({size > 40 for size in sizes}) == 1


@pytest.mark.parametrize("count", [0, 1, 32, 33, 97, 500])
def test_passes_hold_all_rows_and_no_pass_could_be_left_out(count: int) -> None:
    """All but the last have the largest size, and the last is the smallest that holds the rest."""
    sizes = [32, 64, 96]
    own = ClippedSums._passes(count, sizes)
    assert set(own[:-1]) <= {96}
    rest = count - sum(own[:-1])
    assert own[-1] == min(s for s in sizes if s >= rest)
    assert len(own) == 1 or rest > 0


def test_a_physical_batch_has_room_for_formed_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose rows' gradients are formed and large gets few slots."""
    monkeypatch.setattr(gradients, "MOST_NUMBERS", 100)
    _, _, sums = make("tied", physical_batch=None)
    assert sums.physical_batch == 100 // sums.size
    assert make("mlp", physical_batch=None)[2].physical_batch >= 32


def test_the_step_is_exact() -> None:
    """2^-36."""
    assert Fraction(ClippedSums.step) == Fraction(1, 2**36)
