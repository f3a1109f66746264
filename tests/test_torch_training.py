"""Networks of PyTorch in plans: what a unit adds, what is refused, and what is learned."""

from __future__ import annotations

import functools
import gc
import itertools
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from plans import network

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SecureStream, SeededStream
from adaptive_dp.torch import examples
from adaptive_dp.torch.examples import NetworkRowsOf, NetworkTable
from adaptive_dp.torch.networks import build

torch: Any = pytest.importorskip("torch")

PIXELS = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]})


def linear() -> Any:
    return torch.nn.Linear(4, 2)


def deep() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.1)


def training(net: Any = linear, loss: Any = None, optimizer: Any = sgd, **options: Any) -> Any:
    options = {"steps": 3, "sampling_rate": 0.5, "batch_size": 2, **options}
    return dp.torch.Training(net, loss or torch.nn.CrossEntropyLoss(), optimizer, **options)


def plan_of(learner: Any, table: Any = PIXELS, sigma: float = 1.0) -> dp.Pipeline:
    return dp.Pipeline(model=table.solve(learner)).fix(sigma=sigma).with_delta(1e-5)


ONE = Change(replaced=False, rows=1, fixed=False, both=1)
"""One unit appears or vanishes."""


def rows_of(n: int, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"image": draw.random((n, 4)), "y": draw.integers(2, size=n)}


# --- several processes


def of_two_processes() -> dp.Pipeline:
    table = dp.dataset("images", columns=PIXELS.domain.columns, unit="who", rows_per_unit=3)
    learner = training(deep, clipping=dp.Clipping(), by_layer=True, physical_batch=8)
    return plan_of(learner, table)


def second_process(path: str) -> None:
    torch.distributed.init_process_group("gloo", f"file://{path}", world_size=2, rank=1)
    with dp.torch.shared(of_two_processes()) as lead:
        assert not lead
    torch.distributed.barrier()  # both are done: a group that one leaves early ends the other
    torch.distributed.destroy_process_group()


def test_two_processes_add_up_what_one_does_with_the_same_noise_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; the second process has no data, and none of the randomness.

    A failure of the first one leaves no other waiting, and a plan of another network runs alone.
    """
    from adaptive_dp.torch import processes

    plan, path = of_two_processes(), str(tmp_path / "group")
    with pytest.raises(dp.RunError, match="init_process_group"), dp.torch.shared(plan):
        pass
    rows = {**rows_of(40), "who": np.arange(40) // 2}
    alone = plan.simulate(seed=5, images=rows)["model"]["parameters"]
    context = torch.multiprocessing.get_context("spawn")
    other = context.Process(target=second_process, args=(path,), daemon=True)
    other.start()
    torch.distributed.init_process_group("gloo", f"file://{path}", world_size=2, rank=0)
    try:
        with dp.torch.shared(plan) as lead:
            assert lead
            with monkeypatch.context() as broken:
                broken.setattr(processes, "_sum", lambda *_: 1 / 0)
                with pytest.raises(dp.RunError, match="withheld"):
                    plan.simulate(seed=5, images=rows)
            own = plan_of(training(linear, steps=1)).simulate(seed=5, images=rows_of(9))
            assert own["model"]["parameters"].size == 10
            together = plan.simulate(seed=5, images=rows)["model"]["parameters"]
        assert np.array_equal(alone, together)
        assert plan.certify().epsilon == of_two_processes().certify().epsilon
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()
        other.join(300)
    assert other.exitcode == 0


# --- what a unit adds


def test_a_unit_moves_the_sum_by_the_threshold_at_most_whatever_its_rows() -> None:
    """All pairs of tables of up to three units, a unit of any of these rows more or less.

    One has a row without an image, and one without a declared target.
    """
    columns = {"image": dp.tensor((4,), (0, 1)), "y": [0, 1]}
    table = dp.dataset("images", columns=columns, unit="id", rows_per_unit=9)
    reads, gradients = training(deep).operations(table.domain)
    module = build(gradients.net)
    theta = np.concatenate([p.detach().reshape(-1).numpy() for p in module.parameters()]) * 9
    draw = np.random.default_rng(1)
    choices = [(), ((0, 1),), ((1, 0), (2, 1)), ((0, 0),) * 5 + ((1, 1),), ((3, 0), (1, 2))]
    cells = draw.random((4, 4)) * np.array([[1], [0.01], [1], [1]])
    cells[3] = np.nan

    @functools.cache
    def sums(*units: Any) -> tuple[Any, float, int]:
        pairs = [(name, *row) for name, rows in enumerate(units) for row in rows]
        data = {
            "image": np.array([cells[i] for _, i, _ in pairs]).reshape(-1, 4),
            "y": [y for _, _, y in pairs],
            "id": [f"u{name}" for name, _, _ in pairs],
        }
        bound = table.inputs[0].operation.bind(data)
        value = gradients.run([reads.run([bound], None), theta], None)
        (exact, step), short = value.clipped_sum(0.3, relative=True), value.short(0.3)
        return [int(v) for v in exact], step, short

    def moved(a: Any, b: Any) -> None:
        (first, step, short), (second, _, other) = sums(*a), sums(*b)
        square = sum((x - y) ** 2 for x, y in zip(first, second, strict=True))
        assert square <= int(1 / step) ** 2  # in whole numbers: exact
        assert abs(short - other) <= 1
        # what a unit adds is the same to the bit, whoever else is there
        alone = [sums(unit)[0] for unit in a]
        assert first == [sum(column) for column in zip(*alone, strict=True)]

    for first, second in itertools.product(choices, repeat=2):
        moved([first, second], [first, ()])
    moved([choices[2], choices[3], choices[4]], [choices[2], (), choices[4]])
    # a unit of several rows is longer than the threshold, and is clipped as a whole
    whole = sums(choices[3])
    assert sum(v**2 for v in whole[0]) * whole[1] ** 2 == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(("neighbors", "distance"), [("add_remove", 1.0), ("replace_one", 2.0)])
def test_the_certificate_counts_a_unit_as_one_vector(neighbors: Any, distance: float) -> None:
    table = dp.dataset(
        "images",
        columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]},
        neighbors=neighbors,
        unit="id",
        rows_per_unit=7,
    )
    certificate = plan_of(training(sampling_rate=1, clipping=0.1), table).certify()
    (row,) = certificate.nodes
    assert row.distance == pytest.approx(distance, rel=1e-6)
    assert row.distance >= distance


def test_the_certificate_is_the_accountants_answer_for_the_sampled_gaussian() -> None:
    plan = plan_of(training(steps=50, sampling_rate=0.01, clipping=1.0))
    sampled = accountants.Sampled(accountants.Spend(accountants.Gaussian(mu=1.0)), 0.01)
    answers = accountants.certify(accountants.Repeated(sampled, 50), delta=1e-5)
    alone = accountants.tightest(answers).bounds.upper
    assert plan.certify().epsilon == pytest.approx(alone, rel=1e-5)
    assert plan.certify().epsilon >= alone * (1 - 1e-9)


def wide() -> Any:
    return torch.nn.Linear(4, 400)


def first_pixel(outputs: Any, targets: Any) -> Any:
    """A loss whose gradient does not depend on the parameters."""
    return outputs.sum() * (1.0 + targets.sum())


def plain_sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize(
    ("noise", "bands", "share"),
    [
        ("banded", None, 0.0),
        ("banded", 2, 0.0),
        ("tree", None, 0.0),
        ("buffered", None, 0.0),
        ("banded", 2, 0.3),  # of a threshold that adapts
    ],
)
def test_the_law_of_correlated_noise_is_that_of_the_factorization(
    noise: Any, bands: Any, share: float
) -> None:
    """The last parameters are ``-(A X + B Z) 1`` exactly: mean and variance of 2,000 numbers.

    The gradient does not depend on the parameters, and steps of SGD of rate 1 add up to the last
    prefix sum; a false alarm at 6.5 standard deviations has a probability below 1e-9.
    """
    from adaptive_dp.mechanisms.follow_the_leader import FACTORIZATIONS

    sigma, shares = 0.25, []
    options = {"steps": 12, "sampling_rate": 0.25, "batch_size": 1, "first_threshold": 0.02}
    clipping = dp.Clipping(share=share) if share else 2.0
    options |= {"noise": noise, "bands": bands, "clipping": clipping}
    learner = training(wide, first_pixel, plain_sgd, **options)
    plan = dp.Pipeline(model=PIXELS.solve(learner)).fix(sigma=sigma).with_delta(1e-5)
    matrices = FACTORIZATIONS[noise](4, 3, bands)
    # B's last row, by its definition: C' solves C' b = 1 (banded), or the tree's estimates
    size = 64
    run, drawn = matrices.start(size), iter(np.eye(size, dtype=np.int64))
    for _ in range(12):
        row = run.push(np.zeros(size, dtype=np.int64), lambda: next(drawn))
    deviation = sigma * matrices.sensitivity() * float(np.linalg.norm(row * 2.0**matrices.bits))
    deviation /= np.sqrt(1 - share)  # what the number of short gradients costs, the sum does not
    start = np.asarray(build(learner.net).state_dict()["weight"]).reshape(-1)
    start = np.concatenate([start, np.asarray(build(learner.net).state_dict()["bias"])])
    rows = {"image": np.array([[0.5, 0.25, 0.0, 1.0]]), "y": [1]}
    for data in ({"image": np.zeros((0, 4)), "y": []}, rows):
        moved = np.asarray(plan.simulate(seed=3, images=data)["model"]["parameters"]) - start
        # of the row, in one of the batches: in each of three epochs a vector of norm 1 by its clip
        gradient = np.concatenate([np.tile(np.array(rows["image"][0]), 400), np.ones(400)])
        unit = gradient / np.linalg.norm(gradient)
        shares.append(float(moved @ unit))
        rest = moved - shares[-1] * unit
        number = len(rest) - 1
        assert abs((rest**2).sum() / deviation**2 - number) < 6.5 * np.sqrt(2 * number)
    assert abs(shares[0]) < 6.5 * deviation
    assert abs(shares[1] + 3) < 6.5 * deviation


def test_correlated_noise_is_charged_as_the_theorems_say() -> None:
    from accountants.losses.tree import allocated_matrix_factorization, participation_sensitivity
    from adaptive_dp.mechanisms.follow_the_leader import Banded

    options = {"steps": 12, "sampling_rate": 0.25, "batch_size": 1, "clipping": 2.0}
    exchanged = dp.dataset("images", columns=PIXELS.domain.columns, neighbors="replace_one", size=9)
    for bands in (None, 2):
        encoder = accountants.Toeplitz(Banded(4, 3, bands).coefficients() / 2.0**12, 12)
        s = participation_sensitivity(encoder, 3, 4)
        learner = training(noise="banded", bands=bands, **options)
        # add/remove: random batches that nobody sees
        term = allocated_matrix_factorization(encoder, s, 4)
        found = accountants.measure(term, accountants.Distribution(), delta=1e-5).bounds.upper
        assert found <= plan_of(learner).certify().epsilon <= found * (1 + 1e-4)
        # exchanged units: twice the distance, without amplification
        found = accountants.Gaussian(2.0).epsilon_at(1e-5).upper
        certified = plan_of(learner, exchanged).certify().epsilon
        assert found <= certified <= found * (1 + 1e-4)
    # by buffers: one Gaussian release, and what rounding rows to steps of 2^-24 may add
    certified = plan_of(training(noise="buffered", **options)).certify().epsilon
    found = accountants.Gaussian(1.0).epsilon_at(1e-5).upper
    assert found <= certified <= found * (1 + 1e-4)


def test_batches_in_turn_are_of_whole_units_each_by_a_uniform_draw() -> None:
    """Chi square of 2 degrees of freedom above 40 has a probability of 2e-9."""
    table = dp.dataset("images", columns=PIXELS.domain.columns, unit="who", rows_per_unit=2)
    rows = {**rows_of(6000), "who": np.repeat(np.arange(3000), 2)}
    reads = NetworkRowsOf(("image",), "y", PIXELS.domain.columns, by_unit=True)
    every = reads.run([table.inputs[0].operation.bind(rows)], SeededStream(0))
    parts = every.split(3, SeededStream(4))
    assert sorted(np.concatenate([p.index for p in parts])) == list(range(6000))
    assert all(len(p.index) == 2 * p.count for p in parts)
    assert sum((p.count - 1000) ** 2 / 1000 for p in parts) < 40


def test_a_threshold_that_adapts_goes_with_correlated_noise() -> None:
    """At the same cost; a unit adds at most one step's length; of no noise it is the plain one."""
    clipping = dp.Clipping(quantile=0.6, rate=0.5, share=0.1)
    options = {"steps": 6, "sampling_rate": 0.5, "batch_size": 8, "noise": "banded"}
    learner = training(clipping=clipping, **options)
    exchanged = dp.dataset("images", columns=PIXELS.domain.columns, neighbors="replace_one", size=9)
    for table in (PIXELS, exchanged):
        certified = plan_of(learner, table).certify().epsilon
        fixed = plan_of(training(clipping=1.0, **options), table).certify().epsilon
        assert certified == pytest.approx(fixed, rel=1e-6)
    # one unit less, at any threshold: in exact integers
    reads, gradients = learner.operations(PIXELS.domain)
    (last,) = learner.in_turn(gradients, NetworkTable(reads, (PIXELS,)), dp.public(8.0))
    stream, whole = last.inputs[0].operation, rows_of(9)

    def sums(rows: Any) -> Any:
        table = PIXELS.operation.bind(rows)
        return stream.run([gradients.run([reads.run([table], None)], None)], None)

    more, less = sums(whole), sums({k: v[:8] for k, v in whole.items()})
    size = more.shape[0] - 1

    def square(threshold: float) -> int:
        at = np.append(np.linspace(-1, 1, size), threshold)
        change = [int(v) for v in more.at(at) - less.at(at)]
        assert change[-1] in (0, stream.short)
        return sum(v * v for v in change)

    norm = 100 * np.sqrt(square(100.0) - stream.short**2) / 2**24
    moved = [square(c) for c in (0.01, 0.1, norm * 0.9999, norm * 1.0001, norm * 2)]
    bound = stream.sensitivity(gradients.domain([reads.domain([PIXELS.domain])]), ONE, 2) * 2**24
    assert 0.999 * bound**2 < max(moved) == moved[3] <= bound**2
    # one batch and next to no noise: descent with the threshold of independent noise
    halved = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    options = {**options, "sampling_rate": 1.0, "schedule": halved}
    one, plain = (
        plan_of(training(clipping=clipping, **{**options, "noise": noise}), sigma=1e-6)
        for noise in ("banded", "independent")
    )
    one, plain = (p.simulate(seed=1, images=rows_of(8))["model"] for p in (one, plain))
    assert one["threshold"] == pytest.approx(plain["threshold"], rel=1e-3) != 1.0
    np.testing.assert_allclose(one["parameters"], plain["parameters"], atol=1e-3)
    text = dp.Pipeline(model=PIXELS.solve(learner)).fix(sigma=1.0).to_json()
    assert dp.load(text).certify(delta=1e-5).epsilon == plan_of(learner).certify().epsilon


@pytest.mark.parametrize("per_sample", [False, True])
def test_automatic_clipping_costs_what_a_threshold_does_and_learns(per_sample: bool) -> None:
    automatic = dp.torch.AutomaticClipping(0.05, per_sample=per_sample)
    draw = np.random.default_rng(1)
    x = draw.random((1000, 4))
    rows = {"image": x, "y": (x[:, 0] > x[:, 1]).astype(int)}
    fast = functools.partial(torch.optim.SGD, lr=2.0)
    options = {"optimizer": fast, "steps": 15, "sampling_rate": 0.2, "batch_size": 200}
    learner = training(clipping=automatic, by_layer=True, **options)
    plan = plan_of(learner)
    assert plan.certify().epsilon == plan_of(training(clipping=1.0, **options)).certify().epsilon
    model = plan.simulate(seed=2, images=rows)["model"]
    assert (dp.torch.predict(model, linear, x) == rows["y"]).mean() > 0.85
    assert model["threshold"] == 0.05
    with pytest.raises(dp.DeclarationError, match="gamma"):
        dp.torch.AutomaticClipping(-1.0)
    with pytest.raises(TypeError, match="by_layer"):
        training(by_layer=1)


def test_correlated_noise_learns_and_refuses_what_it_cannot_hold() -> None:
    draw = np.random.default_rng(1)
    x = draw.random((1500, 4))
    rows = {"image": x, "y": (x[:, 0] > x[:, 1]).astype(int)}
    fast = functools.partial(torch.optim.SGD, lr=4.0, momentum=0.5)
    options = {"steps": 20, "sampling_rate": 0.1, "clipping": 1.0, "batch_size": 150}
    learner = training(optimizer=fast, noise="banded", bands=4, **options)
    plan = dp.Pipeline(model=PIXELS.solve(learner)).calibrate(epsilon=2.0, delta=1e-5)
    model = plan.simulate(seed=2, images=rows)["model"]
    assert (dp.torch.predict(model, linear, x) == rows["y"]).mean() > 0.85
    for wrong, match in [
        ({"sampling_rate": 0.3}, "number"),
        ({"steps": 25}, "multiple"),
        ({"noise": "white"}, "one of"),
        ({"noise": "tree", "bands": 2}, "bands"),
    ]:
        with pytest.raises(dp.DeclarationError, match=match):
            training(**{**options, "noise": "banded", **wrong})


# --- what is learned


def falling(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.25)


@pytest.mark.parametrize(("optimizer", "schedule"), [(sgd, falling), (adam, None)])
def test_without_noise_it_is_the_descent_of_pytorch(optimizer: Any, schedule: Any) -> None:
    """A loop of PyTorch's own: each row's gradient by itself, clipped, added, divided."""
    data, steps, threshold = rows_of(20), 6, 0.05
    learner = training(
        *(deep, None, optimizer),
        **{"steps": steps, "sampling_rate": 1, "clipping": threshold, "batch_size": 13},
        schedule=schedule,
    )
    model = plan_of(learner, sigma=1e-9).simulate(seed=1, images=data)["model"]
    module = build(learner.net)
    parameters = list(module.parameters())
    made, loss = optimizer(parameters), torch.nn.CrossEntropyLoss()
    scheduler = schedule and schedule(made)
    x, y = torch.tensor(data["image"], dtype=torch.float32), torch.tensor(data["y"])
    for _ in range(steps):
        total = [torch.zeros_like(p) for p in parameters]
        for i in range(20):
            grads = torch.autograd.grad(loss(module(x[i : i + 1]), y[i : i + 1]), parameters)
            norm = torch.sqrt(sum((g**2).sum() for g in grads))
            for sum_, g in zip(total, grads, strict=True):
                sum_ += g / max(norm, threshold)
        for p, g in zip(parameters, total, strict=True):
            p.grad = g / 13
        made.step()
        if scheduler:
            scheduler.step()
    expected = np.concatenate([p.detach().reshape(-1).numpy() for p in parameters])
    np.testing.assert_allclose(model["parameters"], expected, atol=2e-4)
    assert model["names"][0] == "0.weight"
    assert model["shapes"][0] == [3, 4]


def test_a_schedule_goes_on_from_a_checkpoint() -> None:
    rows = rows_of(8)
    options = {"steps": 5, "sampling_rate": 1, "batch_size": 8, "clipping": 0.1}
    learner = training(schedule=falling, **options)
    with dp.Session(budget=dp.Budget(1e30, 1e-5), seed=1, images=rows) as session:
        first = dp.torch.Loop(session, PIXELS, learner, sigma=1e-9)
        for done in first:
            if done.number == 3:
                checkpoint = first.state_dict()
        again = dp.torch.Loop(session, PIXELS, learner, sigma=1e-9)
        again.load_state_dict(checkpoint)
        list(again)
    ends = [loop.model["parameters"] for loop in (first, again)]
    np.testing.assert_allclose(*ends, atol=1e-5)
    with pytest.raises(dp.DeclarationError, match="schedule"):
        PIXELS.solve(training(schedule=lambda o: None))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    with pytest.raises(dp.DeclarationError, match="metrics"):
        PIXELS.solve(training(schedule=plateau))
    with pytest.raises(dp.DeclarationError, match="optax"):
        dp.jax.Training(falling, falling, falling, steps=3, sampling_rate=0.5, schedule=falling)


def test_each_sampling_rate_of_a_schedule_is_charged() -> None:
    rates = [0.1] * 4 + [0.2] * 3 + [0.1] * 2
    options = {"steps": 9, "clipping": 1.0, "batch_size": 10}
    plan = plan_of(training(sampling_rate=rates, **options))
    one = accountants.Spend(accountants.Gaussian(mu=1.0))
    sampled = [accountants.Sampled(one, rate) for rate in (0.1, 0.2)]
    term = accountants.Sequential(
        [accountants.Repeated(part, times) for part, times in zip(sampled, (6, 3), strict=True)]
    )
    found = accountants.measure(term, accountants.Distribution(), delta=1e-5).bounds.upper
    assert found * (1 - 1e-9) <= plan.certify().epsilon <= found * (1 + 1e-5)
    by_step = training(sampling_rate=lambda step: rates[step], **options)
    assert by_step.phases == ((0.1, 4), (0.2, 3), (0.1, 2))
    assert plan_of(by_step).fingerprint == plan.fingerprint
    # the number of units is released once, and a round divides by its own share of it
    options["batch_size"] = None
    released = plan_of(training(sampling_rate=rates, **options))
    assert [*released.certify().shares].count("Training.number_of_units") == 1
    assert np.isfinite(released.simulate(seed=1, images=rows_of(50))["model"]["parameters"]).all()
    with dp.Session(budget=dp.Budget(1e6, 1e-5), seed=1, images=rows_of(40)) as session:
        loop = dp.torch.Loop(session, PIXELS, by_step, sigma=1.0)
        costs = [loop.plan().with_delta(1e-5).certify().epsilon for _ in loop]
    assert len({round(cost, 9) for cost in costs[:3]}) == 1
    assert costs[4] > costs[0] == costs[8]
    for wrong, match in [([0.1] * 3, "each of 9"), (2.0, "from 1e-12"), ([0.1, 0.0] * 5, "each")]:
        with pytest.raises(dp.DeclarationError, match=match):
            training(sampling_rate=wrong, **options)
    with pytest.raises(dp.DeclarationError, match="changes"):
        training(sampling_rate=lambda t: 0.1 + t / 1000, **{**options, "steps": 100})


def test_adam_is_freed_of_the_noises_variance() -> None:
    """With no noise it is Adam; the deviation that it is told is that of the gradient."""
    weights = [torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    pair = dp.torch.adam_bc([weights[0]], lr=0.1), torch.optim.Adam([weights[1]], lr=0.1)
    for step in range(4):
        for weight, made in zip(weights, pair, strict=True):
            weight.grad = torch.tensor([0.3, 1e-3 * step])
            made.step()
    torch.testing.assert_close(weights[0], weights[1])
    # a gradient of 0.1 and noise of deviation 1: after many steps the second moment is 0.01
    weight = torch.nn.Parameter(torch.zeros(2000))
    made = dp.torch.adam_bc([weight], lr=1.0)
    made.noise_deviation = 0.2
    draw = torch.Generator().manual_seed(0)
    for _ in range(3000):
        weight.grad = 0.1 + 0.2 * torch.randn(2000, generator=draw)
        made.step()
    state = made.state[weight]
    square = state["exp_avg_sq"] / (1 - 0.999 ** float(state["step"]))
    assert abs(float(square.mean()) - 0.04 - 0.01) < 1e-3
    seen: list[float] = []

    class Telling(torch.optim.SGD):
        noise_deviation = 0.0

        def step(self, closure: Any = None) -> None:
            seen.append(self.noise_deviation)
            super().step()

    def telling(parameters: Any) -> Any:
        return Telling(parameters, lr=0.1)

    clipping = dp.Clipping(quantile=0.5, share=0.19)
    learner = training(optimizer=telling, clipping=clipping, batch_size=4)
    plan_of(learner, sigma=2.0).simulate(seed=1, images=rows_of(9))
    assert seen[-3:] == [pytest.approx(2.0 / 0.9 / 4)] * 3
    with dp.Session(budget=dp.Budget(1e6, 1e-5), seed=1, images=rows_of(9)) as session:
        dp.torch.Loop(session, PIXELS, learner, sigma=2.0).step()
    assert seen[-1] == pytest.approx(2.0 / 0.9 / 4)


def test_the_threshold_follows_the_quantile_and_the_step_does_not_shrink_with_it() -> None:
    clipping = dp.Clipping(quantile=0.5, rate=0.5)
    data = rows_of(40)
    high = training(sampling_rate=1, steps=20, clipping=clipping, batch_size=40)
    found = plan_of(high, sigma=1e-6).simulate(seed=1, images=data)["model"]
    # the median norm of gradients at the end, by PyTorch
    module = dp.torch.module(found, linear)
    norms = []
    for x, y in zip(data["image"], data["y"], strict=True):
        loss = torch.nn.functional.cross_entropy(
            module(torch.tensor(x, dtype=torch.float32)[None]), torch.tensor([y])
        )
        grads = torch.autograd.grad(loss, list(module.parameters()))
        norms.append(float(torch.sqrt(sum((g**2).sum() for g in grads))))
    assert found["threshold"] == pytest.approx(float(np.median(norms)), rel=0.3)
    # from a threshold a tenth as large, gradients are longer than it all along: same steps
    small = [
        plan_of(training(sampling_rate=1, clipping=c, batch_size=40), sigma=1e-9).simulate(
            seed=1, images=data
        )["model"]["parameters"]
        for c in (1e-3, 1e-4)
    ]
    np.testing.assert_allclose(small[0], small[1], atol=1e-4)
    assert np.abs(small[0] - plan_start()).max() > 0.1


def plan_start() -> Any:
    learner = training()
    module = build(learner.net)
    return np.concatenate([p.detach().reshape(-1).numpy() for p in module.parameters()])


def test_digits() -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 1, 8, 8)
    table = dp.dataset("d", columns={"image": dp.tensor((1, 8, 8), (0, 16)), "digit": range(10)})

    def net() -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), Scaled(), torch.nn.Linear(64, 10))

    learner = training(
        net,
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        steps=40,
        sampling_rate=0.25,
        batch_size=350,
        clipping=dp.Clipping(quantile=0.5),
    )
    plan = dp.Pipeline(model=table.solve(learner)).calibrate(epsilon=3, delta=1e-5)
    assert plan.certify().epsilon <= 3
    result = plan.run(d={"image": x[:1400], "digit": y[:1400]})
    found = dp.torch.predict(result["model"], net, x[1400:])
    # 0.84 in ten runs, at least 0.81
    assert (found == y[1400:]).mean() > 0.75


class Scaled(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x / 16


def test_a_threshold_of_any_rate_stays_within_its_limits() -> None:
    """Of a document: the run would end in an overflow, with rounds spent."""
    from adaptive_dp.torch.training import next_threshold

    state = {"first_threshold": 1.0, "threshold": 1.0}
    found = [next_threshold(state, 2.0, 0.5, rate) for rate in (-1000.0, 1e299)]
    assert found == [1 / next_threshold(state, 2.0, 0.5, 1000.0), found[1]]
    assert 0 < found[1] < 1 < found[0]


# --- the ten gaps of other libraries: of each the tests that hold it shut here
#
# a row of NaN, inf or 1e30      test_rows_that_are_not_finite_count_as_zero, and of that name in
#                                test_torch_gradients.py (each engine), test_jax_training.py
# charge not tied to rows        test_what_is_charged_is_what_is_drawn; test_torch_fixed_size.py,
#                                test_a_round_reads_exactly_so_many_units_and_divides_by_them
# seeds, noise used again        test_nothing_comes_from_the_global_generator;
#                                test_jax_training.py, test_seeds_are_those_of_simulations_alone
# checkpoints                    test_a_checkpoint_holds_no_ledger_and_no_noise_is_used_twice;
#                                test_jax_training.py, ..._resumes_without_a_second_spend
# empty and variable batches     test_empty_samples_and_empty_data_are_ordinary;
#                                test_jax_training.py, test_no_rows_and_one_program_for_all_sizes
# physical batches               test_any_physical_batch_gives_the_same_sum
# layers that mix rows           test_networks_that_are_refused; test_torch_gradients.py,
#                                test_modules_that_have_no_gradient_of_a_row_are_refused, tied
#                                weights and parameters outside of layers in NETS
# several processes              test_two_processes_add_up_what_one_does_with_the_same_noise_once
# precision                      test_torch_gradients.py, test_no_share_is_longer_than_the_threshold
#                                and ..._half_precision...; test_jax_training.py, of that name
# thresholds that adapt,         test_the_threshold_follows_the_quantile_and_the_step_does_not_...,
# correlated noise, units        test_the_law_of_correlated_noise_is_that_of_the_factorization,
#                                test_the_certificate_counts_a_unit_as_one_vector;
#                                test_torch_fixed_size.py, ..._is_charged_for_both_of_its_releases


def test_rows_that_are_not_finite_count_as_zero() -> None:
    """One NaN row makes all parameters NaN in Opacus 1.6; here it adds nothing."""
    from adaptive_dp.torch.gradients import ClippedSums

    module = deep()
    sums = ClippedSums(
        module, torch.nn.CrossEntropyLoss(), torch.rand(3, 4), torch.tensor([0, 1, 0])
    )
    theta = np.concatenate([p.detach().reshape(-1).numpy() for p in module.parameters()])
    x = torch.rand(7, 4)
    good, _ = sums(theta, x[:3], torch.tensor([0, 1, 1]), threshold=1e-3)
    x[3], x[4, 0], x[5, 2], x[6] = np.nan, np.inf, -np.inf, torch.finfo(torch.float32).max
    y = torch.tensor([0, 1, 1, 0, 1, 0, 1])
    total, _ = sums(theta, x, y, threshold=1e-3)
    bounded = (total - good) * sums.step
    assert np.linalg.norm(bounded) <= 1 + 1e-9  # the largest float is a row as others
    nans, _ = sums(theta, torch.cat([x[:3], x[3:6]]), y[:6], threshold=1e-3)
    np.testing.assert_array_equal(nans, good)
    data = rows_of(30)
    data["image"][:3] = np.array([np.nan, np.inf, 1e30])[:, None]
    model = plan_of(training(deep, clipping=1.0)).simulate(seed=1, images=data)["model"]
    assert np.isfinite(model["parameters"]).all()


def test_what_is_charged_is_what_is_drawn() -> None:
    """The library draws the sample: no loader can hand over other rows than were charged."""
    table = PIXELS
    reads = NetworkRowsOf(("image",), "y", table.domain.columns)
    assert reads.domain([table.domain]).shape == (4,)
    rows = reads.run([table.operation.bind(rows_of(2_000))], None)
    sizes = [len(rows.sample(0.1, SecureStream()).index) for _ in range(200)]
    # 200 binomials of mean 200 and deviation 13.4: six deviations of their mean
    assert abs(np.mean(sizes) - 200) < 6 * 13.42 / 200**0.5
    assert 9 < np.std(sizes) < 19
    assert min(sizes) < 190 < 210 < max(sizes)


def test_nothing_comes_from_the_global_generator() -> None:
    data = rows_of(30)
    plan = plan_of(training(deep))
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        before = torch.get_rng_state()
        models.append(plan.run(images=data)["model"]["parameters"])
        assert torch.equal(before, torch.get_rng_state())
    assert np.abs(models[0] - models[1]).max() > 1e-3
    same = [plan.simulate(seed=5, images=data)["model"]["parameters"] for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_empty_samples_and_empty_data_are_ordinary() -> None:
    """Of a threshold that adapts too: with empty rounds it falls or rises by its noise alone."""
    for clipping in (1.0, dp.Clipping(quantile=0.5)):
        rare = plan_of(training(sampling_rate=1e-3, steps=5, clipping=clipping))
        for n in (1, 0):
            model = rare.simulate(seed=1, images=rows_of(n))["model"]
            assert np.isfinite(model["parameters"]).all()
            first = training(clipping=clipping).threshold
            assert first / 100 <= model["threshold"] <= first * 100
            assert (model["threshold"] != first) == isinstance(clipping, dp.Clipping)
    with dp.Session(budget=dp.Budget(1.0, 1e-5), seed=1, images=rows_of(0)) as session:
        learner = training(sampling_rate=1e-3, steps=3, clipping=dp.Clipping(), batch_size=1)
        shares = [done.share for done in dp.torch.Loop(session, PIXELS, learner, sigma=3.0)]
        assert len(shares) == 3
        assert np.isfinite(shares).all()


@pytest.mark.parametrize(("net", "sizes"), [("in_double", [1, 3, 64]), ("deep", [32, 64, 96])])
def test_any_physical_batch_gives_the_same_sum(net: str, sizes: list[int]) -> None:
    """Bit for bit, as units' shares are integers, and each is a function of its own rows."""
    reads, gradients = training(globals()[net]).operations(PIXELS.domain)
    bound = PIXELS.operation.bind(rows_of(100))
    theta = np.linspace(-1, 1, sum(np.prod(shape, dtype=int) for _, shape in gradients.shapes))
    found = []
    for size in (*sizes, None):
        own = evolve(gradients, physical_batch=size)
        value = own.run([reads.run([bound], None), theta], SecureStream())
        found.append((value.clipped_sum(0.9, relative=True)[0].tolist(), value.short(0.9)))
    assert [each == found[0] for each in found] == [True] * 4
    assert 0 < found[0][1] < 100


def test_places_in_batches_come_from_the_runs_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run secure, of a simulation its seed's, also where all rows are read."""
    from adaptive_dp.torch.gradients import ClippedSums

    drawn: list[Any] = []

    def recorded(self: Any, *inputs: Any, stream: Any, **options: Any) -> Any:
        drawn.append((type(stream), stream.words(1)[0]))
        return whole(self, *inputs, stream=stream, **options)

    whole = ClippedSums.__call__
    plan = plan_of(training(sampling_rate=1, steps=2))
    _, gradients = training(sampling_rate=1, steps=2).operations(PIXELS.domain)
    assert gradients.expected == 2
    assert training(batch_size=None).operations(PIXELS.domain)[1].expected is None
    monkeypatch.setattr(ClippedSums, "__call__", recorded)
    for _ in range(2):
        plan.simulate(seed=4, images=rows_of(5))
    first, second = drawn[:2], drawn[2:]
    assert first == second
    assert first[0][1] != first[1][1]  # of another round
    assert {kind for kind, _ in first} == {SeededStream}
    drawn.clear()
    plan.run(images=rows_of(5))
    assert [kind for kind, _ in drawn] == [SecureStream] * 2
    text = "\n".join(plan.certify().assumptions)
    assert "a function of that row and of that slot alone" in text


class Centred(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x - x.mean(0))


def with_batch_norm() -> Any:
    return torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def with_dropout() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))


def frozen_all() -> Any:
    return torch.nn.Linear(4, 2).requires_grad_(False)


def by_numpy() -> Any:
    module = torch.nn.Linear(4, 2)
    with torch.no_grad():
        module.weight += float(np.random.default_rng().random())
    return module


@pytest.mark.parametrize(
    ("net", "match"),
    [
        (Centred, "Centred mixes rows|mix"),
        (with_batch_norm, "0 .BatchNorm1d.*keeps statistics"),
        (with_dropout, "at random: 1 .Dropout"),
        (frozen_all, "no parameter"),
        (by_numpy, "another network each time"),
        (lambda: 3, "must return a torch.nn.Module"),
        (lambda: torch.nn.Linear(5, 2), "made-up rows of shape"),
        (lambda: torch.nn.Linear(4, 2).half(), "float32"),
        (lambda: torch.nn.Linear(4, 1), "out of bounds"),
        (lambda: torch.nn.Linear(4, 2, device="meta"), "another device"),
    ],
)
def test_networks_that_are_refused(net: Any, match: str) -> None:
    with pytest.raises(dp.DeclarationError, match=match):
        PIXELS.solve(training(net))


def in_eval_mode() -> Any:
    module = with_batch_norm()
    module[0].eval()
    module[0].requires_grad_(False)
    return module


def test_a_frozen_norm_in_eval_mode_and_frozen_layers_are_allowed() -> None:
    model = plan_of(training(in_eval_mode)).simulate(seed=1, images=rows_of(9))["model"]
    assert model["names"] == ["1.weight", "1.bias"]


def in_double() -> Any:
    return torch.nn.Linear(4, 2).double()


def in_groups(parameters: Any) -> Any:
    return torch.optim.Adam([{"params": parameters[1:], "lr": 0.0}, {"params": parameters[:1]}])


def test_other_precisions_and_groups_of_parameters() -> None:
    learner = training(in_double, optimizer=in_groups, sampling_rate=1)
    model = plan_of(learner).simulate(seed=1, images=rows_of(9))["model"]
    assert np.asarray(model["parameters"]).dtype == np.float64
    moved = np.asarray(model["parameters"]) != np.concatenate(
        [p.detach().reshape(-1).numpy() for p in build(learner.net).parameters()]
    )
    assert moved.tolist() == [True] * 8 + [False] * 2


def test_a_network_that_is_built_already_is_refused() -> None:
    with pytest.raises(dp.DeclarationError, match="built already"):
        training(torch.nn.Linear(4, 2))
    weighted = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
    with pytest.raises(dp.DeclarationError, match="holds weight"):
        PIXELS.solve(training(loss=weighted))
    with pytest.raises(dp.DeclarationError, match="optimizer"):
        PIXELS.solve(training(optimizer=lambda p: 3))
    with pytest.raises(dp.DeclarationError, match=r"lambda p: torch.*SGD that is made already"):
        training(optimizer=torch.optim.SGD(linear().parameters(), lr=0.5))
    with pytest.raises(dp.DeclarationError, match="cannot step"):
        PIXELS.solve(training(optimizer=torch.optim.LBFGS))


class Focal(torch.nn.Module):
    def __init__(self, gamma: float = 2.0, share: float = 1.0) -> None:
        super().__init__()
        self.gamma, self.weight = gamma, share

    def forward(self, outputs: Any, targets: Any) -> Any:
        entropy = torch.nn.functional.cross_entropy(outputs, targets)
        return entropy * self.weight * (1 - torch.exp(-entropy)) ** self.gamma


def test_a_losss_settings_are_in_the_document_or_it_is_refused() -> None:
    for loss, settings in (
        (Focal(5.0), {"gamma": 5.0}),
        (torch.nn.KLDivLoss(log_target=True, reduction="sum"), {"log_target", "reduction"}),
        (torch.nn.MSELoss(reduction="sum"), {"reduction": "sum"}),
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), {"label_smoothing": 0.1}),
        (torch.nn.CrossEntropyLoss(), {}),
    ):
        found = training(loss=loss).named_loss[1]
        assert found == settings or set(found) == settings
    for loss in (Focal(share=3.0), Focal(gamma=[1])):  # type: ignore[arg-type]
        with pytest.raises(dp.DeclarationError, match="cannot hold"):
            PIXELS.solve(training(loss=loss))


def test_the_ends_of_whole_numbers_are_tried_before_a_run() -> None:
    """A token that the embedding lacks would fail where a private row has it, after the charge."""
    columns = {"image": dp.tensor((3,), (0, 100), whole=True), "y": [0, 1]}
    words = dp.dataset("words", columns=columns)

    def net(count: int) -> Any:
        layers = torch.nn.Embedding(count, 2), torch.nn.Flatten(), torch.nn.Linear(6, 2)
        return torch.nn.Sequential(*layers)

    words.solve(training(lambda: net(101)))
    with pytest.raises(dp.DeclarationError, match="index out of range"):
        words.solve(training(lambda: net(100)))


def test_modes_of_pytorch_around_a_run_change_nothing() -> None:
    data = rows_of(20)

    def result() -> Any:
        plan = plan_of(training(lambda: deep()))  # declared anew in each mode
        return plan.simulate(seed=1, images=data)["model"]["parameters"]

    right = result()
    for mode in (
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.inference_mode(),
        torch.no_grad(),
    ):
        with mode:
            np.testing.assert_array_equal(result(), right)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"steps": 0}, "steps"),
        ({"clipping": -1.0}, "clipping"),
        ({"batch_size": 0}, "batch_size"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"physical_batch": 0}, "physical_batch"),
    ],
)
def test_options_that_are_refused(options: Any, match: str) -> None:
    with pytest.raises(dp.DeclarationError, match=match):
        training(**options)


# --- rows


def unlike(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1)


def test_arrays_maps_tensors_and_data_sets_are_the_same_rows(tmp_path: Any) -> None:
    data = rows_of(12)
    data["image"] = data["image"].astype(np.float32)
    np.save(tmp_path / "x.npy", data["image"])
    mapped = {**data, "image": np.load(tmp_path / "x.npy", mmap_mode="r")}
    tensors = {"image": torch.tensor(data["image"]), "y": data["y"]}
    pairs = dp.torch.MapStyle(
        torch.utils.data.TensorDataset(tensors["image"], torch.tensor(data["y"])), ["image", "y"]
    )
    lists = {"image": list(data["image"]), "y": data["y"].tolist()}
    plan = plan_of(training())
    first, *others = (
        plan.simulate(seed=2, images=each)["model"]["parameters"]
        for each in (data, mapped, tensors, pairs, lists)
    )
    for other in others:
        np.testing.assert_array_equal(first, other)
    wrong = {**data, "image": data["image"].reshape(12, 2, 2)}
    with pytest.raises(dp.DataError, match=r"each row must have the shape \(4,\)"):
        plan.run(images=wrong)
    with pytest.raises(dp.DataError, match="arrays and memory maps"):
        plan.run(images="x.csv")
    for given in (pairs.dataset, torch.utils.data.DataLoader(pairs.dataset)):
        with pytest.raises(dp.DataError, match=r"dp.torch.MapStyle"):
            plan.run(images=given)


def test_columns_of_numbers_and_categories_are_inputs() -> None:
    columns = {"age": (0, 100), "town": ["A", "B"], "income": (0, 10)}
    people = dp.dataset("people", columns=columns)
    learner = training(
        lambda: torch.nn.Linear(3, 1),
        torch.nn.MSELoss(),
        target="income",
        steps=80,
        sampling_rate=1,
        batch_size=200,
        clipping=10.0,
        optimizer=unlike,
    )
    draw = np.random.default_rng(0)
    age, town = draw.uniform(0, 100, 200), draw.choice(["A", "B"], 200)
    data = {"age": age, "town": town, "income": age / 20 + 2 * (town == "B")}
    model = plan_of(learner, people, sigma=1e-6).simulate(seed=1, people=data)["model"]
    assert model["inputs"]["town"] == {"categories": ["A", "B"]}
    net = lambda: torch.nn.Linear(3, 1)  # noqa: E731
    found = dp.torch.predict(model, net, {"age": [20.0, 60.0], "town": ["A", "B"]})
    assert found == pytest.approx([1.0, 5.0], abs=1.5)
    undecided = {"image": dp.tensor((4,), (0, 1)), "y": [0, 1], "z": [0, 1]}
    with pytest.raises(dp.DeclarationError, match="which is the target"):
        dp.dataset("images", columns=undecided).solve(training())


# --- documents


def test_documents_name_the_network_and_its_shape() -> None:
    declared = network()
    plan = dp.load(declared.to_json(), allow=["plans"]).with_delta(1e-5)
    assert plan.fingerprint == declared.with_delta(1e-5).fingerprint
    data = {"image": rows_of(6)["image"], "dark": [0, 1] * 3}
    model = plan.simulate(seed=1, images=data)["model"]
    assert model["shapes"] == [[2, 4], [2]]
    text = declared.to_json().replace('"shapes":[["weight",[2,4]]', '"shapes":[["weight",[3,4]]')
    text = text if text != declared.to_json() else declared.to_json().replace("[2, 4]", "[3, 4]")
    other = dp.load(text, allow=["plans"]).with_delta(1e-5)
    assert other.fingerprint != plan.fingerprint
    with pytest.raises(dp.RunError, match="other parameters than the plan declares"):
        other.run(images=data)
    with pytest.raises(dp.DeclarationError, match="allow"):
        dp.load(declared.to_json()).with_delta(1e-5).run(images=data)
    for numbers in ("[-2,-4]", f"[{2**33},{2**31}]"):  # int64 has 2^64 as 0
        wrong = text.replace("[3,4]", numbers).replace("[3, 4]", numbers)
        with pytest.raises(dp.DocumentError, match=r"numbers of at least 0|at most"):
            dp.load(wrong, allow=["plans"])


def test_a_trained_network_is_a_module_again() -> None:
    model = plan_of(training(deep)).simulate(seed=1, images=rows_of(9))["model"]
    made = dp.torch.module(model, deep)
    assert not made.training
    flat = np.concatenate([p.detach().reshape(-1).numpy() for p in made.parameters()])
    np.testing.assert_array_equal(flat, model["parameters"])
    with pytest.raises(dp.DeclarationError, match="other parameters"):
        dp.torch.module(model, linear)
    with pytest.raises(dp.DeclarationError, match="released"):
        dp.torch.module({"intercept": 1.0}, linear)  # type: ignore[arg-type]


def test_an_audit_tells_a_claim_that_does_not_hold_from_one_that_does() -> None:
    learner = training(steps=1, sampling_rate=1, clipping=0.05)
    plan = plan_of(learner, sigma=0.5)
    pair = next(p for p in dp.audit.gallery(plan) if "highest" in p.title)
    options: Any = {"samples": 150, "seed": 1}
    held = dp.audit.pipeline(plan, pair, **options)
    wrong = dp.audit.pipeline(plan, pair, (0.2, 1e-5), **options)
    assert held.verdict in ("consistent", "underpowered")
    assert wrong.verdict == "violation"
    canaries = dp.audit.corners(PIXELS, 3, seed=0)
    assert canaries["image"].shape == (3, 4)
    assert set(np.unique(canaries["image"])) == {0.0, 1.0}


# --- audits by one run

CANARIES = 100


class WithCanaries(torch.nn.Module):
    """A network, and a layer of its own for canaries, whose values follow the row's own."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.own = deep(), torch.nn.Linear(CANARIES, 1, bias=False)

    def forward(self, row: Any) -> Any:
        canary = row[:, 4:]
        ordinary = (canary == 0).all(dim=1, keepdim=True)
        return torch.cat([self.net(row[:, :4]) * ordinary, self.own(canary)], dim=1)


def loss_with_canaries(outputs: Any, target: Any) -> Any:
    rows = torch.nn.functional.cross_entropy(outputs[:, :-1], target, reduction="none")
    return (rows + outputs[:, -1]).mean()


DIRECTIONS = dp.audit.gradient_canaries(CANARIES, CANARIES, seed=0)
PLANTED = {
    "row": np.concatenate([np.zeros((CANARIES, 4)), DIRECTIONS], axis=1),
    "y": np.zeros(CANARIES, dtype=int),
}
WIDE = dp.dataset("images", columns={"row": dp.tensor((4 + CANARIES,), (-1, 1)), "y": [0, 1]})


def wide_training(steps: int = 10, rate: float = 1.0) -> Any:
    return training(
        WithCanaries,
        loss_with_canaries,
        lambda p: torch.optim.SGD(p, lr=0.1),
        steps=steps,
        sampling_rate=rate,
        batch_size=50 * rate,
        clipping=1.0,
    )


def ordinary_rows(n: int) -> dict[str, Any]:
    rows = rows_of(n)
    return {"row": np.concatenate([rows["image"], np.zeros((n, CANARIES))], axis=1), "y": rows["y"]}


def released_sums(seen: Any) -> Any:
    """Return scores of the canaries' part of the sums."""
    sums = [each[-CANARIES:] for each in seen.transcript if np.size(each) > CANARIES]
    return dp.audit.gradient_scores(sums, DIRECTIONS)


def less_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    release = dp.Gaussian.release
    monkeypatch.setattr(
        dp.Gaussian,
        "release",
        lambda self, value, stream: release(dp.Gaussian(sigma=self.sigma / factor), value, stream),
    )


@pytest.mark.parametrize("own_score", [True, False])
def test_gradient_canaries_show_a_noise_that_is_too_small(
    monkeypatch: pytest.MonkeyPatch, own_score: bool
) -> None:
    """By the canaries' part of the released sums, and by the scores of planted itself."""
    plan = plan_of(wide_training(5), WIDE, sigma=10.0).with_delta(1e-6)

    options: Any = {"data": {"images": ordinary_rows(10)}, "seed": 1}
    scored = released_sums if own_score else None
    assert dp.audit.planted(plan, PLANTED, scored, **options).verdict != "violation"
    less_noise(monkeypatch, 20.0)
    assert dp.audit.planted(plan, PLANTED, scored, **options).verdict == "violation"


def test_products_of_clipped_gradients_are_those_of_each_row_alone() -> None:
    reads, gradients = training(deep).operations(PIXELS.domain)
    data = rows_of(7)
    data["image"][3] = np.nan
    theta = np.linspace(-2, 2, sum(np.prod(shape, dtype=int) for _, shape in gradients.shapes))
    direction = np.random.default_rng(1).normal(size=theta.size)

    def of(chosen: Any) -> Any:
        rows = PIXELS.operation.bind({k: v[chosen] for k, v in data.items()})
        return gradients.run([reads.run([rows], None), theta], None)

    for threshold in (0.05, 3.0):
        found = of(slice(None)).products(threshold, direction)
        for i in range(7):
            exact, step = of([i]).clipped_sum(threshold, relative=True)
            assert found[i] == pytest.approx(exact @ direction * step, abs=1e-4)


def test_a_loop_in_a_session_is_audited_as_any_training_function() -> None:
    """By its last parameters alone: their distance from the first, over the learning rate."""
    spent: list[float] = []

    def train(rows: Any) -> Any:
        with dp.Session(budget=dp.Budget(9.0, 1e-6), seed=1, images=rows) as session:
            loop = dp.torch.Loop(session, WIDE, wide_training(4), sigma=2.0)
            first = loop.model["parameters"][-CANARIES:]
            assert len(list(loop)) == 4
            spent.append(session.epsilon)
            return (first - loop.model["parameters"][-CANARIES:]) * 50 / 0.1

    def audited(claim: float) -> Any:
        return dp.audit.training(
            train,
            PLANTED,
            (claim, 1e-6),
            lambda moved: dp.audit.gradient_scores(moved, DIRECTIONS),
            rows=ordinary_rows(10),
            seed=2,
        )

    held = audited(7.0)
    assert spent[0] <= 7.0
    assert held.verdict in ("consistent", "underpowered")
    assert audited(0.1).verdict in ("violation", "suspected")


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_librarys_training_is_not_accused(rate: float) -> None:
    """Of twenty audits at 1e-3 two or more would be flagged with a chance of 2e-4."""
    plan = plan_of(wide_training(10, rate), WIDE, sigma=3.0).with_delta(1e-6)
    found = [dp.audit.planted(plan, PLANTED, released_sums, seed=seed) for seed in range(20)]
    assert sum(each.verdict in ("suspected", "violation") for each in found) <= 1


class Stopping(torch.optim.SGD):
    """An optimizer at whose third step of a run someone presses Ctrl-C."""

    taken = -10

    def step(self, closure: Any = None) -> Any:
        Stopping.taken += 1
        if Stopping.taken == 3:
            raise KeyboardInterrupt
        return super().step(closure)


def test_an_interrupted_run_is_certified_for_its_complete_rounds() -> None:
    learner = training(
        optimizer=lambda p: Stopping(p, lr=0.5), steps=9, sampling_rate=1, clipping=1.0
    )
    plan = plan_of(learner)
    Stopping.taken = -1  # a step along zeros, when the run is rehearsed
    with pytest.raises(dp.Interrupted) as stopped:
        plan.simulate(seed=1, images=rows_of(9))
    result = stopped.value.result
    assert result is not None
    (row,) = result.certificate.nodes
    assert row.times == 2
    assert np.isfinite(result["model"]["parameters"]).all()


# --- a loop of one's own


def loop_of(session: Any, sigma: float = 2.0, **options: Any) -> Any:
    return dp.torch.Loop(session, PIXELS, training(**{"steps": 50, **options}), sigma=sigma)


def test_a_loop_stops_before_its_budget_is_passed_and_is_certified_for_what_ran() -> None:
    data = rows_of(20)
    with dp.Session(budget=dp.Budget(3.0, 1e-5), seed=1, images=data) as session:
        loop = loop_of(session, sampling_rate=0.3)
        done = [each.number for each in loop]
        assert done == list(range(1, len(done) + 1))
        assert 1 < len(done) < 50
        assert session.epsilon <= 3
        before = session.spent
        with pytest.raises(dp.BudgetError):
            loop.step()
        assert session.spent == before
        assert loop.number == len(done)  # the refusal changed nothing
        certificate = session.certificate()
        assert certificate.epsilon <= 3
        # a release of gradients and a count for each round
        assert len(certificate.nodes) == 2 * len(done)
    assert dp.torch.predict(loop.model, linear, data["image"]).shape == (20,)
    assert not loop.module().training


def test_a_loop_reads_rows_once_and_other_rows_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    read = NetworkRowsOf._read
    monkeypatch.setattr(
        NetworkRowsOf, "_read", lambda self, rows: reads.append(rows) or read(self, rows)
    )
    learner = training(steps=5)
    for rows in (rows_of(20), rows_of(20, seed=1)):
        with dp.Session(budget=dp.Budget(9.0, 1e-5), seed=1, images=rows) as session:
            assert len([*dp.torch.Loop(session, PIXELS, learner, sigma=2.0)]) == 5
    assert len(reads) == 2
    del reads[:], session
    gc.collect()
    assert not examples._READ  # with the session its rows are gone


def test_a_loop_is_the_training_of_a_plan() -> None:
    data = rows_of(20)
    learner = training(deep, optimizer=adam, steps=4, sampling_rate=1, batch_size=20)
    planned = plan_of(learner, sigma=1e-9).simulate(seed=1, images=data)["model"]
    with dp.Session(budget=dp.Budget(1e13, 1e-5), accountant="gaussian", images=data) as session:
        loop = dp.torch.Loop(session, PIXELS, learner, sigma=1e-6)
        assert [each.number for each in loop] == [1, 2, 3, 4]
    np.testing.assert_allclose(loop.model["parameters"], planned["parameters"], atol=1e-3)
    assert loop.threshold == pytest.approx(planned["threshold"], rel=1e-3)


def test_an_interrupted_round_leaves_the_rounds_before() -> None:
    with dp.Session(budget=dp.Budget(9.0, 1e-5), seed=1, images=rows_of(9)) as session:
        loop = loop_of(session)

        def stopped() -> None:
            for each in loop:
                if each.number == 3:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert len(session.certificate().nodes) == 6


def test_a_checkpoint_holds_no_ledger_and_no_noise_is_used_twice(tmp_path: Any) -> None:
    data, path = rows_of(20), tmp_path / "run.db"
    terms: Any = {"budget": dp.Budget(90.0, 1e-5), "accountant": "renyi", "images": data}
    file = tmp_path / "checkpoint.pt"
    with dp.Session(**terms, ledger=path, create=True) as session:
        loop = loop_of(session, optimizer=adam)
        for each in loop:
            if each.number == 2:
                torch.save(loop.state_dict(), file)
            if each.number == 4:
                break
        spent, fourth = session.spent, loop.model["parameters"]
    checkpoint = torch.load(file, weights_only=True)
    assert sorted(checkpoint) == ["first_threshold", "memory", "parameters", "round", "threshold"]
    with dp.Session(**terms, ledger=path) as session:
        # rounds that the ledger has, asked for the same: the recorded releases, at no cost
        loop = loop_of(session, optimizer=adam)
        loop.load_state_dict(checkpoint)
        loop.step(), loop.step()
        np.testing.assert_array_equal(loop.model["parameters"], fourth)
        assert session.spent == spent
        loop.step()
        once = session.spent.costs
        # from the older checkpoint with another threshold: charged, with fresh noise
        other = loop_of(session, optimizer=adam)
        other.load_state_dict({**checkpoint, "threshold": 0.5})
        other.step()
        assert session.spent.costs[-1] > once[-1]
    # what would fail after the charge is refused before
    for wrong in ({"threshold": np.nan}, {"round": -1}, {"memory": None}):
        with pytest.raises(dp.DeclarationError, match="a checkpoint's"):
            other.load_state_dict({**checkpoint, **wrong})
    with pytest.raises(dp.DeclarationError, match="checkpoint"):
        other.load_state_dict({"parameters": 3})
    with pytest.raises(dp.DeclarationError, match="other parameters"):
        other.load_state_dict({**checkpoint, "parameters": checkpoint["parameters"][:3]})


def test_a_loop_may_change_its_noise_and_rate_and_not_its_network() -> None:
    terms: Any = {"budget": dp.Budget(9.0, 1e-5), "accountant": "renyi", "images": rows_of(20)}
    with dp.Session(**terms, seed=1) as session:
        loop = loop_of(session)
        loop.step()
        first = session.spent.costs[-1]
        loop.sigma, loop.training = 4.0, training(sampling_rate=0.1, steps=9)
        loop.step()
        assert session.spent.costs[-1] - first < first / 4
        with pytest.raises(dp.DeclarationError, match="keeps its network"):
            loop.training = training(deep)
        with pytest.raises(dp.DeclarationError, match="sigma"):
            loop.sigma = 0
        with pytest.raises(dp.DeclarationError, match="batch_size"):
            loop_of(session, batch_size=None)
        step = loop.plan().with_delta(1e-5)
    with pytest.raises(dp.RunError, match="not in this process"):
        step.run(images=rows_of(3))
    assert dp.load(step.to_json(), allow=[__name__]).fingerprint == step.fingerprint
