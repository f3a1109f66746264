"""Functions of JAX in plans: exact sums of clipped gradients, what is refused, what is learned."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from plans import function_of_jax

import accountants
import adaptive_dp as dp
from adaptive_dp.noise.stream import SeededStream

jax: Any = pytest.importorskip("jax")
optax: Any = pytest.importorskip("optax")
jnp = jax.numpy

from adaptive_dp.jax.gradients import ClippedSums, _Book, wide  # noqa: E402
from adaptive_dp.torch.gradients import unit_batches  # noqa: E402

FULL = int(1 / ClippedSums.step)
PIXELS = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]})


def init(key: Any) -> Any:
    first, second = jax.random.split(key)
    return {
        "w": jax.random.normal(first, (4, 3)),
        "v": [jax.random.normal(second, (3, 2)), jnp.zeros(2)],
    }


def apply(tree: Any, x: Any) -> Any:
    v, b = tree["v"]
    return jnp.tanh(x @ tree["w"]) @ v + b


def loss(tree: Any, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(apply(tree, x), y)


def sgd() -> Any:
    return optax.sgd(0.5, momentum=0.9)


def training(function: Any = loss, start: Any = init, optimizer: Any = sgd, **options: Any) -> Any:
    options = {"steps": 3, "sampling_rate": 0.5, "batch_size": 2, **options}
    return dp.jax.Training(function, start, optimizer, **options)


def plan_of(learner: Any, table: Any = PIXELS, sigma: float = 1.0) -> dp.Pipeline:
    return dp.Pipeline(model=table.solve(learner)).fix(sigma=sigma).with_delta(1e-5)


def rows_of(n: int, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"image": draw.random((n, 4)), "y": draw.integers(2, size=n)}


SIZE = 20


@pytest.fixture(scope="module")
def sums() -> ClippedSums:
    data = rows_of(4, 9)
    tree = init(jax.random.key(0))
    return ClippedSums(loss, tree, data["image"].astype(np.float32), data["y"])


@pytest.fixture(scope="module")
def sums_of_units() -> ClippedSums:
    data = rows_of(4, 9)
    tree = init(jax.random.key(0))
    return ClippedSums(loss, tree, data["image"].astype(np.float32), data["y"], by_unit=True)


def drawn(n: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """Parameters and rows, some of whose gradients are short and some long."""
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 1, (n, 4)) * 10.0 ** draw.integers(-4, 3, (n, 1))
    theta = draw.normal(0, 1, SIZE).astype(np.float32)
    return theta, x.astype(np.float32), draw.integers(2, size=n)


def by_numpy(theta: Any, x: Any, y: int) -> Any:
    """A row's gradient in float64, by hand: no automatic differentiation, no JAX."""
    t = np.asarray(theta, np.float64)
    v, b, w = t[:6].reshape(3, 2), t[6:8], t[8:].reshape(4, 3)  # leaves by key: v, then w
    h = np.tanh(np.asarray(x, np.float64) @ w)
    scores = h @ v + b
    p = np.exp(scores - scores.max())
    slope = p / p.sum() - np.eye(2)[y]
    inner = (v @ slope) * (1 - h**2)
    parts = [np.outer(h, slope), slope, np.outer(np.asarray(x, np.float64), inner)]
    return np.concatenate([part.reshape(-1) for part in parts])


# --- sums


def test_sums_are_those_of_each_rows_own_gradient(sums: ClippedSums) -> None:
    theta, x, y = drawn(100)
    gradients = [by_numpy(theta, *row) for row in zip(x, y, strict=True)]
    norms = np.array([np.linalg.norm(g) for g in gradients])
    for threshold in (1e-3, float(np.median(norms)), 1e4):
        total, short = sums(theta, x, y, threshold=threshold)
        assert total.dtype == np.int64
        right = sum(g / max(n, threshold) for g, n in zip(gradients, norms, strict=True))
        # gradients themselves are float32
        np.testing.assert_allclose(total * sums.step, right, atol=2e-4)
        assert abs(short - (norms <= threshold).sum()) <= 1
    with wide()(True):
        tree = init(jax.random.key(0))
        double = jax.tree_util.tree_map(lambda v: v.astype(jnp.float64), tree)
        exact = ClippedSums(loss, double, x[:4].astype(np.float64), y[:4])
        total, _ = exact(theta.astype(np.float64), x.astype(np.float64), y, threshold=1e-3)
    right = sum(g / max(n, 1e-3) for g, n in zip(gradients, norms, strict=True))
    np.testing.assert_allclose(total * sums.step, right, atol=1e-8)


# --- random networks, beside derivatives by complex steps in NumPy


def random_network(seed: int) -> tuple[Any, Any, Any]:
    """Return a loss, its parameters, and the same loss of rows in NumPy, of complex numbers too.

    A recurrence over the row's 5 steps, a layer norm and dense layers, of drawn widths and orders.
    """
    draw = np.random.default_rng(seed)
    width, depth = int(draw.integers(2, 5)), int(draw.integers(1, 4))
    kinds = [("norm", "dense", "both")[draw.integers(3)] for _ in range(depth)]
    tree: dict[str, Any] = {
        "read": draw.normal(0, 0.7, (3, width)),
        "kept": draw.normal(0, 0.7, (width, width)),
        "last": draw.normal(0, 1, (width, 2)),
    }
    for k, kind in enumerate(kinds):
        if kind != "norm":
            tree[f"w{k}"], tree[f"b{k}"] = (
                draw.normal(0, 1, (width, width)),
                draw.normal(0, 1, width),
            )
        if kind != "dense":
            tree[f"scale{k}"], tree[f"shift{k}"] = (
                draw.normal(1, 1, width),
                draw.normal(0, 1, width),
            )

    def after(xp: Any, tree: Any, h: Any) -> Any:
        for k, kind in enumerate(kinds):
            if kind != "norm":
                h = xp.tanh(h @ tree[f"w{k}"] + tree[f"b{k}"])
            if kind != "dense":
                centred = h - h.mean()
                h = centred / xp.sqrt((centred * centred).mean() + 0.1)
                h = h * tree[f"scale{k}"] + tree[f"shift{k}"]
        return h @ tree["last"]

    def of_jax(tree: Any, x: Any, y: Any) -> Any:
        def step(h: Any, own: Any) -> Any:
            return jnp.tanh(own @ tree["read"] + h @ tree["kept"]), None

        h, _ = jax.lax.scan(step, jnp.zeros(width, x.dtype), x)
        return optax.softmax_cross_entropy_with_integer_labels(after(jnp, tree, h), y)

    def of_numpy(tree: Any, x: Any, y: int) -> Any:
        h: Any = np.zeros(width)
        for own in x:
            h = np.tanh(own @ tree["read"] + h @ tree["kept"])
        scores = after(np, tree, h)
        return np.log(np.exp(scores).sum()) - scores[y]

    return of_jax, tree, of_numpy


def by_complex_steps(function: Any, tree: Any, x: Any, y: int) -> Any:
    """A gradient in float64, exact to its last digits (Squire and Trapp 1998), by sorted keys."""
    found = []
    for name in sorted(tree):
        for place in np.ndindex(tree[name].shape):
            moved = tree[name].astype(complex)
            moved[place] += 1e-30j
            found.append(function({**tree, name: moved}, x, y).imag / 1e-30)
    return np.array(found)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
)
def test_sums_of_random_networks(seed: int) -> None:
    """Recurrences by `jax.lax.scan` and layer norms; and any order and split, in one size."""
    function, tree, reference = random_network(seed)
    draw = np.random.default_rng(seed + 100)
    x, y = draw.normal(0, 1, (11, 5, 3)), draw.integers(2, size=11)
    single = {name: value.astype(np.float32) for name, value in tree.items()}
    rows = x.astype(np.float32)
    tree = {name: value.astype(np.float64) for name, value in single.items()}
    sums = ClippedSums(function, single, rows[:4], y[:4], physical_batch=4)
    theta = np.concatenate([single[name].ravel() for name in sorted(single)])
    gradients = [by_complex_steps(reference, tree, *row) for row in zip(rows * 1.0, y, strict=True)]
    norms = np.linalg.norm(gradients, axis=1)
    threshold = float(np.median(norms))
    total, short = sums(theta, rows, y, threshold=threshold)
    right = sum(g / max(n, threshold) for g, n in zip(gradients, norms, strict=True))
    np.testing.assert_allclose(total * sums.step, right, atol=1e-4)
    assert abs(short - (norms <= threshold).sum()) <= 1
    apart = [sums(theta, rows[i : i + 1], y[i : i + 1], threshold=threshold)[0] for i in range(11)]
    assert np.array_equal(sum(apart), total)
    assert all(sum(int(v) ** 2 for v in each) <= FULL**2 for each in apart)


def test_a_slot_that_differs_for_some_rows_is_found(
    sums: ClippedSums, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most rows' results are equal in all slots; those of some differ in the last."""
    theta, exact = np.asarray(drawn(1)[0], np.float32), sums._results

    def uneven(theta: Any, x: Any, y: Any) -> Any:
        losses, rows = exact(theta, x, y)
        if x[-1, 0] > 2:
            rows[-1] *= 1 + 2.0**-20
        return losses, rows

    assert sums._agree(theta) == sums.slots_agree
    monkeypatch.setattr(sums, "_results", uneven)
    assert not sums._agree(theta)


def of_erf(w: Any, x: Any, y: Any) -> Any:
    h = jax.nn.gelu(x * w, approximate=False)
    return (h * h).sum() + h.sum()


def of_tanh(w: Any, x: Any, y: Any) -> Any:
    return -jax.nn.log_softmax(jnp.tanh(x @ w) @ w[:3])[0]


@pytest.mark.parametrize(
    ("function", "w", "slots"),
    [(of_erf, (3,), 16), (of_erf, (3,), 63), (of_tanh, (7, 3), 13), (of_tanh, (7, 3), 16)],
)
def test_slots_whose_rows_differ_are_found(function: Any, w: Any, slots: int) -> None:
    """Brute force, the same row in all slots: of some functions XLA computes the last otherwise."""
    draw = np.random.default_rng(2)
    theta = draw.normal(size=w).astype("f")
    x = draw.normal(size=(4, w[0])).astype("f")
    sums = ClippedSums(function, theta, x, x, physical_batch=slots)
    differ = 0
    for _ in range(300):
        row = (draw.normal(size=(1, w[0])) * 10.0 ** draw.uniform(-2, 1)).astype("f")
        rows = np.repeat(row, slots, axis=0)
        differ += not all(
            np.array_equal(each, np.repeat(each[:1], slots, axis=0))
            for each in sums._results(theta.reshape(-1), rows, rows)
        )
    assert differ < 3 or not sums.slots_agree


def test_no_share_is_longer_than_the_threshold(sums: ClippedSums) -> None:
    """In integers of any length, at thresholds and gradients of all sizes."""
    theta, x, y = drawn(24, 2)
    longest = 0
    for i, threshold in enumerate([1e-20, 1e-9, 1e-4, 1e-2, 1.0, 1e20] * 4):
        scaled = theta * np.float32(10.0 ** (i % 5 - 2))
        total, _ = sums(scaled, x[i : i + 1], y[i : i + 1], threshold=threshold)
        square = sum(int(v) ** 2 for v in total)
        assert square <= FULL**2
        longest = max(longest, square)
    assert math.isqrt(longest) >= FULL * (1 - 2.0**-17)


@pytest.mark.parametrize(
    ("rule", "by_layer"), [("automatic", False), ("per_sample", True), ("flat", True)]
)
def test_rules_and_layers(sums: ClippedSums, rule: str, by_layer: bool) -> None:
    """The formulas of each leaf, and no share is longer than 1."""
    theta, x, y = drawn(30, 6)
    parts = [slice(0, 6), slice(6, 8), slice(8, 20)] if by_layer else [slice(0, 20)]
    length, c, right = 1 / math.sqrt(len(parts)), 0.1, np.zeros(SIZE)
    for row in zip(x, y, strict=True):
        gradient = by_numpy(theta, *row)
        for part in parts:
            norm = np.linalg.norm(gradient[part])
            bound = {"automatic": norm + c, "per_sample": norm + c / (norm + c)}
            right[part] += gradient[part] * length / bound.get(rule, max(norm, c * length))
    total, _ = sums(theta, x, y, threshold=c, rule=rule, by_layer=by_layer)
    np.testing.assert_allclose(total * sums.step, right, atol=2e-4)
    for i, threshold in enumerate([1e-20, 1e-4, 1.0, 1e20]):
        share, _ = sums(
            theta, x[i:][:1], y[i:][:1], threshold=threshold, rule=rule, by_layer=by_layer
        )
        assert sum(int(v) ** 2 for v in share) <= FULL**2
    along = np.arange(SIZE) / 7
    found = sums.products(theta, x, y, along, threshold=c, rule=rule, by_layer=by_layer)
    np.testing.assert_allclose(found.sum(), right @ along, atol=2e-2)


def test_a_row_more_adds_its_share_and_splits_add_up(sums: ClippedSums) -> None:
    """Bit for bit: whoever else is there, and however rows are divided into batches."""
    theta, x, y = drawn(70, 3)
    whole, short = sums(theta, x, y, threshold=0.1, stream=SeededStream(1))
    again, _ = sums(theta, x[::-1], y[::-1], threshold=0.1, stream=SeededStream(2))
    np.testing.assert_array_equal(whole, again)
    shares = [sums(theta, x[i : i + 1], y[i : i + 1], threshold=0.1) for i in range(70)]
    np.testing.assert_array_equal(whole, sum(share for share, _ in shares))
    assert short == sum(count for _, count in shares)
    for i in (0, 33, 69):
        left, _ = sums(theta, np.delete(x, i, 0), np.delete(y, i), threshold=0.1)
        np.testing.assert_array_equal(whole - left, shares[i][0])


def dense(t: Any, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(jnp.tanh(x @ t["a"]) @ t["w"], y)


def convolution(t: Any, x: Any, y: Any) -> Any:
    h = jax.lax.conv_general_dilated(x.reshape(1, 1, 8, 8), t["k"], (2, 2), "SAME")
    return optax.softmax_cross_entropy_with_integer_labels(jnp.tanh(h).reshape(-1) @ t["w"], y)


def embedding(t: Any, x: Any, y: Any) -> Any:
    h = jnp.tanh(t["e"][x].mean(0))
    return optax.softmax_cross_entropy_with_integer_labels(h @ t["w"], y)


def attention(t: Any, x: Any, y: Any) -> Any:
    h = t["e"][x]
    h = jax.nn.softmax(h @ t["q"] @ (h @ t["k"]).T) @ h
    return optax.softmax_cross_entropy_with_integer_labels(h.mean(0) @ t["w"], y)


def memory(t: Any, x: Any, y: Any) -> Any:
    def step(state: Any, own: Any) -> Any:
        h, c = state
        i, f, o, g = jnp.split(own @ t["a"] + h @ t["h"], 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    (h, _), _ = jax.lax.scan(step, (jnp.zeros(6), jnp.zeros(6)), x.reshape(8, 8))
    return optax.softmax_cross_entropy_with_integer_labels(h @ t["w"], y)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (dense, {"a": (64, 20), "w": (20, 2)}),
        (convolution, {"k": (4, 1, 5, 5), "w": (64, 2)}),
        (embedding, {"e": (30, 12), "w": (12, 2)}),
        (attention, {"e": (30, 12), "q": (12, 12), "k": (12, 12), "w": (12, 2)}),
        (memory, {"a": (8, 24), "h": (6, 24), "w": (6, 2)}),
    ],
)
def test_one_row_more_or_another_moves_the_sum_by_its_share_alone(
    function: Any, shapes: Any
) -> None:
    """Bit for bit, of layers of all kinds: what the others add does not move."""
    draw = np.random.default_rng(5)
    tree = {name: draw.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    if "e" in tree:
        x = draw.integers(0, 30, (41, 9))
    else:
        x = (draw.normal(0, 1, (41, 64)) * 10.0 ** draw.integers(-3, 3, (41, 1))).astype(np.float32)
    y = draw.integers(2, size=41)
    sums = ClippedSums(function, tree, x[:4], y[:4], physical_batch=16)
    theta = np.concatenate([tree[name].ravel() for name in sorted(tree)])

    def total(x: Any, y: Any) -> Any:
        return sums(theta, x, y, threshold=0.3)[0]

    whole, last = total(x[:40], y[:40]), total(x[40:], y[40:])
    np.testing.assert_array_equal(whole, total(x[:13], y[:13]) + total(x[13:40], y[13:40]))
    for i in (0, 15, 39):
        rest = total(np.delete(x[:40], i, 0), np.delete(y[:40], i))
        own = total(x[i : i + 1], y[i : i + 1])
        np.testing.assert_array_equal(whole - rest, own)
        assert sum(int(v) ** 2 for v in own) <= FULL**2
        other, labels = x[:40].copy(), y[:40].copy()
        other[i], labels[i] = x[40], y[40]
        np.testing.assert_array_equal(total(other, labels) - last, rest)


def test_a_function_that_computes_in_half_precision_is_clipped_in_full() -> None:
    """Its slopes are coarse, and their norms are not: at a threshold below float16's numbers."""
    draw = np.random.default_rng(6)
    x, y = draw.normal(0, 1, (9, 4)).astype(np.float32), draw.integers(2, size=9)
    for kind in (jnp.float16, jnp.bfloat16):

        def half(tree: Any, x: Any, y: Any, kind: Any = kind) -> Any:
            w = tree["w"].astype(kind)
            return loss_of(x.astype(kind) @ w, y)

        def loss_of(scores: Any, y: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(scores, y).astype(jnp.float32)

        tree = {"w": draw.normal(0, 1, (4, 2)).astype(np.float32)}
        sums = ClippedSums(half, tree, x[:4], y[:4])
        for threshold in (1e-12, 1e-4):
            share, _ = sums(tree["w"].ravel(), x[:1], y[:1], threshold=threshold)
            square = sum(int(v) ** 2 for v in share)
            assert FULL**2 * 0.99 < square <= FULL**2


def test_rows_that_are_not_finite_add_nothing(
    sums: ClippedSums, sums_of_units: ClippedSums
) -> None:
    theta, x, y = drawn(5, 4)
    good = sums(theta, x[:2], y[:2], threshold=1e-3)
    x[2], x[3, 0], x[4, 1] = np.nan, np.inf, -np.inf
    with jax.debug_nans(True):  # an error would say that such a row is there
        found = sums(theta, x, y, threshold=1e-3)
        units = sums_of_units(theta, x, y, [0, 1, 0, 1, 2], threshold=1e-3)
    for total, short in (found, units):
        np.testing.assert_allclose(total * sums.step, good[0] * sums.step, atol=1e-4)
        assert short == good[1]
    np.testing.assert_array_equal(found[0], good[0])
    large, _ = sums(theta, np.float32([[3e38, -3e38, 3e38, 3e38]]), y[:1], threshold=1e-3)
    assert sum(int(v) ** 2 for v in large) <= FULL**2


def every_use(tree: Any, x: Any, y: Any) -> Any:
    """Matrices that are multiplied by one vector, in several ways, and others."""
    inner = jax.jit(lambda w, h: jax.nn.relu(h) @ w)
    h = jnp.tanh(x @ tree["before"])
    h = jnp.tanh(tree["after"] @ h)
    h = jnp.tanh(h @ tree["turned"].T)
    h = jnp.tanh(inner(tree["inside"], h))
    h = h + tree["twice"] @ jnp.tanh(h @ tree["twice"])
    h = h + (jnp.stack([h, 2 * h]) @ tree["steps"]).sum(0)
    h = h + h @ jax.lax.stop_gradient(tree["still"])
    h = h @ tree["decayed"]
    return (h[0] - y) ** 2 + (tree["decayed"] ** 2).sum()


def test_which_matrices_are_kept_and_their_gradients() -> None:
    """Against `jax.grad` of one row at a time, in float64."""
    draw = np.random.default_rng(3)
    shapes = {"before": (6, 5), "after": (3, 5), "turned": (4, 3), "inside": (4, 3)}
    shapes |= dict.fromkeys(["twice", "steps", "still"], (3, 3)) | {"decayed": (3, 3)}
    tree = {name: draw.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}
    x, y = draw.normal(0, 1, (40, 6)).astype(np.float32), draw.normal(0, 1, 40).astype(np.float32)
    x[0], x[1], x[2, 1:] = 0, 1e-44, 0  # zeros, denormals, one number
    sums = ClippedSums(every_use, tree, x[3:7], y[3:7], physical_batch=8)
    kept = {name for name, how in zip(sorted(shapes), sums.engines, strict=True) if how == "kept"}
    assert kept == {"before", "after", "turned", "inside"}
    theta = np.concatenate([tree[name].reshape(-1) for name in sorted(tree)])
    with wide()(True):
        double = {name: jnp.asarray(leaf, jnp.float64) for name, leaf in tree.items()}
        by_row = jax.jit(jax.grad(every_use))
        rows = [by_row(double, *map(np.float64, row)) for row in zip(x, y, strict=True)]
    flat = [np.concatenate([np.asarray(g[n]).reshape(-1) for n in sorted(g)]) for g in rows]
    right = sum(g / max(float(np.linalg.norm(g)), 2.0) for g in flat)
    total, short = sums(theta, x, y, threshold=2.0)
    np.testing.assert_allclose(total * sums.step, right, atol=2e-4)
    assert short == sum(np.linalg.norm(g) <= 2 for g in flat)
    along = np.arange(len(theta)) / 9
    found = sums.products(theta, x, y, along, threshold=2.0)
    np.testing.assert_allclose(found.sum(), right @ along, atol=1e-2)


def test_no_gradient_of_a_kept_matrix_is_formed() -> None:
    """Neither where the object is built, nor for an audit: of 64 slots that would be 17 MB."""
    x, tree = np.eye(4, 256, dtype=np.float32), {"w": np.ones((256, 256), np.float32)}
    tracemalloc.start()
    try:
        sums = ClippedSums(lambda t, x, y: ((x @ t["w"]) ** 2).sum(), tree, x, x, physical_batch=64)
        found = sums.products(np.ones(256**2), x, x, np.ones(256**2), threshold=1.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * 2**20
    np.testing.assert_allclose(found, 256**0.5, rtol=1e-6)


def test_where_jax_has_other_insides_all_gradients_are_formed(monkeypatch: Any) -> None:
    """Its parts that evaluate a jaxpr are not public: without them nothing is refused."""

    def gone(*_: Any) -> Any:
        raise AttributeError("no get_bind_params")

    monkeypatch.setattr(_Book, "_bound", gone)
    x = np.float32([[3, 4, 0], [0, 0.5, 1]])
    sums = ClippedSums(lambda w, x, y: ((x @ w) ** 2).sum(), np.eye(3, dtype=np.float32), x, x)
    assert sums.engines == ["formed"]
    total, short = sums(np.eye(3).reshape(-1), x[:1], x[:1], threshold=1.0)
    right = np.outer(x[0], x[0]).reshape(-1) / 25
    np.testing.assert_allclose(total * sums.step, right, atol=1e-7)
    assert short == 0


def test_rows_of_all_sizes(sums: ClippedSums) -> None:
    """Bit for bit, 1e30 and denormals are shares of their own, NaN and infinity are none."""
    theta, x, y = drawn(40, 8)
    others = sums(theta, x, y, threshold=1e-3)[0]
    for value in (1e30, -3e38, 1e-40, 1e-45, 0.0, np.nan, np.inf):
        row = np.float32([[value, 1, 0, value]])
        alone, _ = sums(theta, row, y[:1], threshold=1e-3)
        square = sum(int(v) ** 2 for v in alone)
        assert square <= FULL**2
        assert square > 0 or not np.isfinite(value) or abs(value) > 1
        whole, _ = sums(theta, np.vstack([x, row]), np.append(y, y[0]), threshold=1e-3)
        np.testing.assert_array_equal(whole, others + alone)


def test_rows_of_a_unit_are_clipped_together(sums_of_units: ClippedSums) -> None:
    sums = sums_of_units
    theta, x, y = drawn(90, 5)
    units = np.random.default_rng(0).integers(0, 40, 90)
    total, short = sums(theta, x, y, units, threshold=0.5)
    joint = [
        sum(by_numpy(theta, x[i], y[i]) for i in np.flatnonzero(units == u))
        for u in np.unique(units)
    ]
    norms = [float(np.linalg.norm(g)) for g in joint]
    right = sum(g / max(n, 0.5) for g, n in zip(joint, norms, strict=True))
    np.testing.assert_allclose(total * sums.step, right, atol=2e-4)
    assert short == sum(n <= 0.5 for n in norms)
    one = units == units[0]
    left, _ = sums(theta, x[~one], y[~one], units[~one], threshold=0.5)
    assert sum(int(v) ** 2 for v in total - left) <= FULL**2
    alone, _ = sums(theta, x[one], y[one], units[one], threshold=0.5)
    np.testing.assert_array_equal(total - left, alone)


def test_a_unit_of_one_row_adds_the_same_beside_others_of_several(
    sums_of_units: ClippedSums,
) -> None:
    theta, x, y = drawn(13, 7)
    alone = [sums_of_units(theta, x[i:][:1], y[i:][:1], [0], threshold=0.5)[0] for i in range(10)]
    units = [*range(10), 10, 10, 10]
    rest, _ = sums_of_units(theta, x[10:], y[10:], units[10:], threshold=0.5)
    whole, _ = sums_of_units(theta, x, y, units, threshold=0.5)
    np.testing.assert_array_equal(whole, sum(alone) + rest)


def test_no_rows_and_one_program_for_all_sizes(sums: ClippedSums) -> None:
    theta, x, y = drawn(70, 6)
    before = sums._rows._cache_size()
    total, short = sums(theta, x[:0], y[:0], threshold=1.0)
    assert (np.abs(total).max(), short) == (0, 0)
    for n in (1, 31, 32, 33, 70):
        sums(theta, x[:n], y[:n], threshold=1.0)
    assert sums._rows._cache_size() <= max(before, 1)
    for wrong in ((theta[:3], x, y), (theta, x[:, :3], y), (theta, x, y[:4])):
        with pytest.raises(dp.DeclarationError):
            sums(*wrong, threshold=1.0)
    with pytest.raises(dp.DeclarationError, match="threshold"):
        sums(theta, x, y, threshold=0.0)


# --- what is refused


def printing(tree: Any, x: Any, y: Any) -> Any:
    jax.debug.print("{}", x)
    return loss(tree, x, y)


def calling(tree: Any, x: Any, y: Any) -> Any:
    like = jax.ShapeDtypeStruct((4,), jnp.float32)
    seen = jax.pure_callback(lambda v: v, like, x, vmap_method="sequential")
    return loss(tree, x, y) + 0 * jax.lax.stop_gradient(seen).sum()


def drawing(tree: Any, x: Any, y: Any) -> Any:
    return loss(tree, x, y) * float(np.random.default_rng().random())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"function": lambda t, x, y: x}, "number"),
        ({"function": printing}, "prints"),
        ({"function": calling}, "calls Python"),
        ({"function": drawing}, "each time"),
        ({"function": lambda t, x, y: t["w"].sum() if x[0] > 0 else 0.0}, "made-up rows"),
        ({"start": lambda key: {"w": jnp.zeros(3, jnp.int32)}}, "float32"),
        ({"start": lambda key: {}}, "float32"),
        ({"start": lambda key: np.random.default_rng().random(3, np.float32)}, "each time"),
        ({"optimizer": lambda: 3}, "optax transformation"),
        ({"optimizer": optax.sgd(0.1)}, "names code"),
        ({"optimizer": optax.lbfgs}, "cannot step"),
        ({"steps": 0}, "steps"),
        ({"clipping": -1.0}, "clipping"),
    ],
)
def test_what_is_refused(options: Any, match: str) -> None:
    with pytest.raises(dp.DeclarationError, match=match):
        PIXELS.solve(training(**options))


# --- what is charged, and what is learned


def test_the_certificate_is_the_accountants_answer_for_the_sampled_gaussian() -> None:
    plan = plan_of(training(steps=50, sampling_rate=0.01, clipping=1.0))
    sampled = accountants.Sampled(accountants.Spend(accountants.Gaussian(mu=1.0)), 0.01)
    answers = accountants.certify(accountants.Repeated(sampled, 50), delta=1e-5)
    alone = accountants.tightest(answers).bounds.upper
    assert plan.certify().epsilon == pytest.approx(alone, rel=1e-5)
    assert plan.certify().epsilon >= alone * (1 - 1e-9)


def test_samples_of_a_fixed_size_and_of_exchanged_units() -> None:
    """Exactly so many rows, by which sums are divided: the mean of equal gradients, each round."""
    columns = {"x": (-1, 1), "y": [0, 1]}
    table = dp.dataset("t", columns=columns, neighbors="replace_one", size=8)
    found = []
    for more in ({"sampling": "fixed_size"}, {"batch_size": 4}):
        learner = dp.jax.Training(
            lambda w, x, y: (w * x).sum(),
            lambda key: jnp.zeros(1),
            lambda: optax.sgd(1.0),
            **{"steps": 3, "sampling_rate": 0.5, "clipping": 1.0, **more},
            features=["x"],
            target="y",
        )
        plan = dp.Pipeline(model=table.solve(learner)).fix(sigma=2.0).with_delta(1e-5)
        found.append(plan.certify().epsilon)
        if len(found) == 1:
            exact = dp.Pipeline(model=table.solve(learner)).fix(sigma=1e-7).with_delta(1e-5)
            model = exact.simulate(seed=1, t={"x": [0.25] * 8, "y": [0] * 8})["model"]
            assert float(model["parameters"][0]) == pytest.approx(-0.75, abs=1e-4)
    spends = [accountants.Spend(accountants.Gaussian(mu)) for mu in (1.0, 0.5)]
    terms = [accountants.Subset(spends[0], 4, 8), accountants.ReplacedSample(spends[1], 0.5)]
    for epsilon, term in zip(found, terms, strict=True):
        answers = accountants.certify(accountants.Repeated(term, 3), delta=1e-5)
        alone = accountants.tightest(answers).bounds.upper
        assert alone * (1 - 1e-9) <= epsilon <= alone * (1 + 1e-4)


def test_correlated_noise_is_that_of_torch_with_the_steps_of_optax() -> None:
    """Of next to no noise, and with one batch, it is the descent on all rows."""
    options = {"steps": 6, "sampling_rate": 0.5, "batch_size": 5, "clipping": 1.0}
    learner = training(noise="banded", **options)
    plan = plan_of(learner, sigma=1e-6)
    rows = rows_of(20, seed=4)
    model = plan.simulate(seed=1, images=rows)["model"]
    assert np.shape(model["parameters"]) == (SIZE,)
    one = plan_of(training(noise="banded", **{**options, "sampling_rate": 1.0}), sigma=1e-6)
    plain = plan_of(training(**{**options, "sampling_rate": 1.0}), sigma=1e-6)
    first, second = (p.simulate(seed=1, images=rows)["model"]["parameters"] for p in (one, plain))
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_a_loop_is_the_training_of_a_plan_and_resumes_without_a_second_spend() -> None:
    """Of next to no noise; what a checkpoint asks for again is shown again, at no cost."""
    options = {"steps": 5, "sampling_rate": 1.0, "batch_size": 12, "clipping": 0.5}
    learner, rows = training(optimizer=lambda: optax.adam(0.1), **options), rows_of(12)
    whole = plan_of(learner, sigma=1e-5).simulate(seed=1, images=rows)["model"]
    with dp.Session(budget=dp.Budget(1e12, 1e-5), seed=2, images=rows) as session:
        loop = dp.jax.Loop(session, PIXELS, learner, sigma=1e-5)
        for done in loop:
            if done.number == 3:
                checkpoint = loop.state_dict()
        spent = session.epsilon
        again = dp.jax.Loop(session, PIXELS, learner, sigma=1e-5)
        again.load_state_dict(checkpoint)
        again.step()
        assert again.number == 4
        assert session.epsilon == spent
        # another one than was recorded is another release: charged, with noise of its own
        changed = {**checkpoint, "parameters": checkpoint["parameters"] + np.float32(1)}
        again.load_state_dict(changed)
        again.step()
        assert session.epsilon > spent
        with pytest.raises(dp.DeclarationError, match="checkpoint"):
            again.load_state_dict({**checkpoint, "memory": None})
        with pytest.raises(dp.DeclarationError, match="parameters"):
            again.module()
    np.testing.assert_allclose(loop.model["parameters"], whole["parameters"], atol=1e-3)
    assert loop.parameters["w"].shape == (4, 3)


def test_a_loop_takes_the_rounds_of_correlated_noise_which_the_first_pays_for() -> None:
    """And a loss of a round's own."""
    options = {"steps": 4, "sampling_rate": 0.5, "batch_size": 6, "clipping": dp.Clipping()}
    learner = training(noise="buffered", **options)
    with dp.Session(budget=dp.Budget(20.0, 1e-5), seed=2, images=rows_of(12)) as session:
        loop = dp.jax.Loop(session, PIXELS, learner, sigma=2.0)
        assert loop.plan().with_delta(1e-5).certify().epsilon == (
            plan_of(learner, sigma=2.0).certify().epsilon
        )
        loop.step()
        spent, checkpoint = session.spent, loop.state_dict()
        loop.step(lambda parameters, x, y: 0.5 * learner.loss.resolve()(parameters, x, y))
        assert [done.number for done in loop] == [3, 4]
        assert session.spent == spent
        loop.load_state_dict({**checkpoint, "threshold": 0.1})
        with pytest.raises(dp.RunError, match="another"):
            loop.step()
        assert dp.verify(session.certificate()).holds


@pytest.mark.parametrize("optimizer", [sgd, lambda: optax.adam(0.1)])
def test_without_noise_it_is_the_descent_of_optax(optimizer: Any) -> None:
    """A loop of optax's own along gradients by hand: clipped, added, divided."""
    data, threshold = rows_of(20), 0.05
    learner = training(
        optimizer=optimizer, steps=6, sampling_rate=1, clipping=threshold, batch_size=13
    )
    model = plan_of(learner, sigma=1e-9).simulate(seed=1, images=data)["model"]
    tree = init(jax.random.key(20_150))
    theta, unravel = jax.flatten_util.ravel_pytree(tree)
    made = optimizer()
    state = made.init(tree)
    for _ in range(6):
        pairs = zip(data["image"], data["y"], strict=True)
        gradients = [by_numpy(theta, x, y) for x, y in pairs]
        mean = sum(g / max(np.linalg.norm(g), threshold) for g in gradients) / 13
        updates, state = made.update(unravel(jnp.asarray(mean, jnp.float32)), state, tree)
        tree = optax.apply_updates(tree, updates)
        theta, _ = jax.flatten_util.ravel_pytree(tree)
    np.testing.assert_allclose(model["parameters"], theta, atol=5e-4)
    assert model["names"] == ["['v'][0]", "['v'][1]", "['w']"]
    again = dp.jax.parameters(model, init)
    np.testing.assert_array_equal(np.asarray(again["w"]).reshape(-1), model["parameters"][8:])
    with pytest.raises(dp.DeclarationError, match="other parameters"):
        dp.jax.parameters(model, lambda key: jnp.zeros(20))
    with pytest.raises(dp.DeclarationError, match="released"):
        dp.jax.parameters({"intercept": 1.0}, init)  # type: ignore[typeddict-item]


def test_seeds_are_those_of_simulations_alone() -> None:
    data, plan = rows_of(30), plan_of(training())
    one, two = (plan.run(images=data)["model"]["parameters"] for _ in range(2))
    assert np.abs(one - two).max() > 1e-3
    same = [plan.simulate(seed=5, images=data)["model"]["parameters"] for _ in range(2)]
    np.testing.assert_array_equal(*same)
    rare = plan_of(training(sampling_rate=1e-3, steps=5, clipping=dp.Clipping()))
    for n in (1, 0):  # empty samples, and empty data, also of a threshold that adapts
        model = rare.simulate(seed=1, images=rows_of(n))["model"]
        assert np.isfinite([*model["parameters"], model["threshold"]]).all()


def test_units_and_numbers() -> None:
    columns = {"age": (0, 100), "town": ["A", "B"], "income": (0, 10)}
    people = dp.dataset("people", columns=columns, unit="id", rows_per_unit=2)
    learner = training(
        lambda w, x, y: ((x @ w[:-1] + w[-1] - y) ** 2).sum(),
        lambda key: jnp.zeros(4),
        lambda: optax.sgd(0.1),
        target="income",
        steps=80,
        sampling_rate=1,
        batch_size=100,
        clipping=10.0,
    )
    draw = np.random.default_rng(0)
    age, town = draw.uniform(0, 100, 200), draw.choice(["A", "B"], 200)
    data = {"age": age, "town": town, "income": age / 20 + 2 * (town == "B")}
    data["id"] = np.repeat(np.arange(100), 2)
    plan = plan_of(learner, people, sigma=1e-6)
    (row,) = plan.certify().nodes
    assert row.distance == pytest.approx(1.0, rel=1e-6)
    model = plan.simulate(seed=1, people=data)["model"]
    new = {"age": [20.0, 60.0], "town": ["A", "B"]}
    found = dp.jax.predict(model, lambda key: jnp.zeros(4), lambda w, x: x @ w[:-1] + w[-1], new)
    assert found == pytest.approx([1.0, 5.0], abs=1.5)


def test_digits() -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8)
    table = dp.dataset("d", columns={"image": dp.tensor((8, 8), (0, 16)), "digit": range(10)})

    def scores(w: Any, x: Any) -> Any:
        return x.reshape(-1) / 16 @ w

    learner = training(
        lambda w, x, y: optax.softmax_cross_entropy_with_integer_labels(scores(w, x), y),
        lambda key: jnp.zeros((64, 10)),
        lambda: optax.sgd(1.0),
        steps=40,
        sampling_rate=0.25,
        batch_size=350,
        clipping=dp.Clipping(quantile=0.5),
    )
    plan = dp.Pipeline(model=table.solve(learner)).calibrate(epsilon=3, delta=1e-5)
    assert plan.certify().epsilon <= 3
    model = plan.run(d={"image": x[:1400], "digit": y[:1400]})["model"]
    found = dp.jax.predict(model, lambda key: jnp.zeros((64, 10)), scores, x[1400:])
    assert (found == y[1400:]).mean() > 0.75


# --- documents


def test_documents_name_the_functions_and_the_shape() -> None:
    declared = function_of_jax()
    plan = dp.load(declared.to_json(), allow=["plans"]).with_delta(1e-5)
    assert plan.fingerprint == declared.with_delta(1e-5).fingerprint
    data = {"image": rows_of(6)["image"], "dark": [0, 1] * 3}
    model = plan.simulate(seed=1, images=data)["model"]
    assert model["shapes"] == [[4, 2]]
    text = declared.to_json()
    other = dp.load(text.replace("[4,2]", "[4,3]").replace("[4, 2]", "[4, 3]"), allow=["plans"])
    assert other.with_delta(1e-5).fingerprint != plan.fingerprint
    with pytest.raises(dp.RunError, match="other parameters than the plan declares"):
        other.with_delta(1e-5).run(images=data)
    with pytest.raises(dp.DeclarationError, match="allow"):
        dp.load(text).with_delta(1e-5).run(images=data)


def test_units_are_placed_by_themselves_where_slots_disagree() -> None:
    """Then no unit's slot depends on how many others there are: as many passes as it takes."""
    words = SeededStream(3)
    units = np.array([5, 5, 7, 9, 9, 9, 11])
    for agree in (True, False):
        rows = [
            int(r) for batch in unit_batches(units, 4, words, agree=agree) for p in batch for r in p
        ]
        assert sorted(row for row in rows if row >= 0) == list(range(len(units)))
    alone = [_slot_of(0, 1, seed) for seed in range(400)]
    many = [_slot_of(0, 9, seed) for seed in range(400)]
    assert min(np.bincount(alone, minlength=4)) > 50
    assert min(np.bincount(many, minlength=4)) > 50


def _slot_of(row: int, count: int, seed: int) -> int:
    for batch in unit_batches(np.arange(count), 4, SeededStream(seed), agree=False):
        for rows in batch:
            if row in rows:
                return int(np.flatnonzero(rows == row)[0])
    raise AssertionError
