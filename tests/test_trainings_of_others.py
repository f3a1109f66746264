"""Certificates of what Opacus and jax-privacy ran: against the accountants, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from accountants import Gaussian, Repeated, Sampled, Spend, certify, tightest

HISTORY = [(0.75195, 1 / 938, 9_380)]


def engine(history: Any = HISTORY, **more: Any) -> Any:
    return SimpleNamespace(accountant=SimpleNamespace(history=history), **more)


def loader(
    sampler: str, rate: float | None = None, *, inner: bool = False, steps: int = 10, **more: Any
) -> Any:
    """A loader whose batches a sampler of that name draws."""
    own = type(sampler, (), more)()
    batches = type("BatchSampler", (), {"sampler": own})() if inner else own

    class Loader:
        batch_sampler = batches
        sample_rate = rate

        def __len__(self) -> int:
            return steps

    return Loader()


def ghost_clipped(torch: Any, own: Any, *, rows: int, batch_size: int) -> Any:
    """What an engine of Opacus makes for ghost clipping of a linear model, on rows of zeros."""
    net = torch.nn.Linear(3, 2)
    zeros = torch.zeros(rows, 3), torch.zeros(rows, dtype=torch.int64)
    data = torch.utils.data.TensorDataset(*zeros)
    return own.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch_size),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        criterion=torch.nn.CrossEntropyLoss(),
    )


class TestOpacus:
    def test_the_claim_is_the_accountants_own(self) -> None:
        paper = dp.interop.opacus.certificate(engine(), delta=1e-5)
        rate = 17_887 / 2**24  # 1 / 938, rounded up to a coin of 24 bits
        steps = Repeated(Sampled(Spend(Gaussian(mu=1 / 0.75195)), rate), 9_380)
        assert paper.epsilon == pytest.approx(tightest(certify(steps, 1e-5)).bounds.upper, rel=1e-7)
        # the figure of Opacus' own example on MNIST, ten epochs
        assert paper.epsilon == pytest.approx(0.98707, rel=1e-4)
        assert str(dp.verify(paper)).startswith("holds")

    def test_parts_of_the_history_add_up(self) -> None:
        history = [(1.0, 0.1, 100), (2.0, 0.1, 50), (1.0, 1.0, 3), (1.0, 0.1, 0)]
        paper = dp.interop.opacus.certificate(engine(history), delta=1e-6)
        one = dp.interop.opacus.certificate(engine(history[:1]), delta=1e-6)
        assert paper.epsilon > one.epsilon

    def test_a_loader_of_poisson_samples_is_checked(self) -> None:
        good = loader("UniformWithReplacementSampler", 1 / 938)
        paper = dp.interop.opacus.certificate(engine(), delta=1e-5, data_loader=good)
        assert any("this loader alone" in each for each in paper.assumptions)
        wrong = loader("UniformWithReplacementSampler", 0.5)
        with pytest.raises(dp.DeclarationError, match="samples at the rate"):
            dp.interop.opacus.certificate(engine(), delta=1e-5, data_loader=wrong)

    def test_passes_pay_without_amplification(self) -> None:
        """A shuffled loader: a step for each pass that was begun, not of a Poisson sample."""
        shuffled = loader("RandomSampler", inner=True, steps=938)
        paper = dp.interop.opacus.certificate(engine(), delta=1e-5, data_loader=shuffled)
        ten = Repeated(Spend(Gaussian(mu=1 / 0.75195)), 10)
        assert paper.epsilon == pytest.approx(tightest(certify(ten, 1e-5)).bounds.upper, rel=1e-7)
        assert {each.neighbors for each in paper.protects} == {"zero_out"}
        begun = engine([(1.0, 0.1, 11)])
        two = dp.interop.opacus.certificate(
            begun, delta=1e-5, data_loader=loader("SequentialSampler", inner=True)
        )
        assert two.epsilon == pytest.approx(
            tightest(certify(Repeated(Spend(Gaussian(1.0)), 2), 1e-5)).bounds.upper, rel=1e-7
        )

    @pytest.mark.parametrize(
        ("history", "words"),
        [([], "recorded no step"), ([(0.0, 0.1, 5)], "step without noise")],
    )
    def test_refusals(self, history: Any, words: str) -> None:
        with pytest.raises(dp.DeclarationError, match=words):
            dp.interop.opacus.certificate(engine(history), delta=1e-5)

    def test_other_loaders_and_optimizers_are_refused(self) -> None:
        with pytest.raises(dp.DeclarationError, match="WeightedRandomSampler"):
            dp.interop.opacus.certificate(
                engine(), delta=1e-5, data_loader=loader("WeightedRandomSampler", inner=True)
            )
        less = SimpleNamespace(noise_multiplier=0.5)
        with pytest.raises(dp.DeclarationError, match="below one that was recorded"):
            dp.interop.opacus.certificate(engine(), delta=1e-5, optimizer=less)

    @pytest.mark.parametrize("kind", ["ExponentialNoise", "StepNoise", "LambdaNoise"])
    def test_falling_noise_is_that_of_its_scheduler(self, kind: str) -> None:
        """Each step at its own noise, and none without a schedule."""
        values = [2.0, 2.0, 1.0, 1.0, 0.5] if kind == "StepNoise" else [2.0, 1.0, 0.5]
        own = {
            "ExponentialNoise": {"gamma": 0.5},
            "StepNoise": {"gamma": 0.5, "step_size": 2},
            "LambdaNoise": {"noise_lambda": lambda t: 0.5**t, "base_noise_multiplier": 2.0},
        }[kind]
        optimizer = SimpleNamespace(noise_multiplier=0.5)
        more = {"optimizer": optimizer, "last_epoch": len(values) - 1}
        scheduler = type(kind, (), own | more)()
        if kind == "LambdaNoise":
            scheduler.noise_lambda = own["noise_lambda"]
        history = [(2.0, 1.0, 10), (1.0, 1.0, 10)]
        given = {"delta": 1e-5, "optimizer": optimizer}
        certificate = dp.interop.opacus.certificate
        paper = certificate(engine(history), noise_scheduler=scheduler, **given)
        # of all rows: one Gaussian, of the root of the sum of squares
        right = Gaussian(math.sqrt(10 / 4 + 10)).epsilon_at(1e-5).upper
        assert paper.epsilon == pytest.approx(right, rel=1e-6)
        with pytest.raises(dp.DeclarationError, match="noise_scheduler="):
            certificate(engine(history), **given)
        for wrong, words in (
            ([(2.0, 1.0, 10), (0.7, 1.0, 10)], "has not set"),
            ([(1.0, 1.0, 10), (2.0, 1.0, 10)], "has not set|last noise"),
        ):
            with pytest.raises(dp.DeclarationError, match=words):
                certificate(engine(wrong), noise_scheduler=scheduler, **given)
        other = {**given, "optimizer": SimpleNamespace(noise_multiplier=0.5)}
        with pytest.raises(dp.DeclarationError, match="another optimizer"):
            certificate(engine(history), noise_scheduler=scheduler, **other)
        for unknown in (SimpleNamespace(), type("OwnNoise", (), own | more)()):
            with pytest.raises(dp.DeclarationError, match="known"):
                certificate(engine(history), noise_scheduler=unknown, **given)

    @pytest.mark.parametrize(
        "settings",
        [
            {"step_size": 0},
            {"gamma": "a half"},
            {"gamma": 1e300},
            {"gamma": math.nan},
            {"optimizer": SimpleNamespace()},
        ],
    )
    def test_settings_of_a_scheduler_that_give_no_noise(self, settings: dict[str, Any]) -> None:
        one = {"optimizer": SimpleNamespace(noise_multiplier=1.0), "last_epoch": 9}
        scheduler = type("StepNoise", (), {**one, "step_size": 1, "gamma": 1.0, **settings})()
        with pytest.raises(dp.DeclarationError, match="scheduler"):
            dp.interop.opacus.certificate(engine(), delta=1e-5, noise_scheduler=scheduler)

    @pytest.mark.filterwarnings("ignore")
    def test_a_real_scheduler(self) -> None:
        schedulers = pytest.importorskip("opacus.schedulers")
        for make in (
            lambda o: schedulers.ExponentialNoise(o, gamma=0.9),
            lambda o: schedulers.StepNoise(o, step_size=2, gamma=0.7),
            lambda o: schedulers.LambdaNoise(o, noise_lambda=lambda t: 1 / (1 + t)),
            # of a training that went on from a checkpoint
            lambda o: schedulers.ExponentialNoise(o, gamma=0.9, last_epoch=3),
            lambda o: schedulers.StepNoise(o, step_size=2, gamma=0.7, last_epoch=4),
            lambda o: schedulers.LambdaNoise(o, noise_lambda=lambda t: 1 / (1 + t), last_epoch=3),
        ):
            optimizer = SimpleNamespace(noise_multiplier=1.5)
            scheduler, history = make(optimizer), []
            for _ in range(5):
                history.append((optimizer.noise_multiplier, 1.0, 3))
                scheduler.step()
            paper = dp.interop.opacus.certificate(
                engine(history), delta=1e-5, optimizer=optimizer, noise_scheduler=scheduler
            )
            alike = dp.interop.opacus.certificate(engine(history), delta=1e-5)
            assert paper.epsilon == alike.epsilon

    def test_what_is_not_checked_is_listed(self) -> None:
        words = " ".join(dp.interop.opacus.certificate(engine(), delta=1e-5).assumptions)
        for each in ("poisson_sampling=False", "checkpoint", "NaN", "one example", "secure_mode"):
            assert each in words
        generator = SimpleNamespace(initial_seed=lambda: 1234)
        optimizer = SimpleNamespace(noise_multiplier=1.0, generator=generator)
        paper = dp.interop.opacus.certificate(engine(), delta=1e-5, optimizer=optimizer)
        assert any("optimizer.generator" in each for each in paper.assumptions)
        # a certificate is published, and whoever has the seed has the noise
        assert "1234" not in paper.to_json()

    def test_accumulated_batches_are_counted(self) -> None:
        """A step of 5 batches is recorded at 5 times the rate; 20 of them are ten passes of 10."""
        shuffled = loader("RandomSampler", inner=True, steps=10)
        paper = dp.interop.opacus.certificate(
            engine([(1.0, 5 * (1 / 10), 20)]), delta=1e-5, data_loader=shuffled
        )
        ten = Repeated(Spend(Gaussian(mu=1.0)), 10)
        assert paper.epsilon == pytest.approx(tightest(certify(ten, 1e-5)).bounds.upper, rel=1e-7)
        uneven = [(1.0, 0.4, 2), (1.0, 0.2, 1)] * 10
        same = dp.interop.opacus.certificate(engine(uneven), delta=1e-5, data_loader=shuffled)
        assert same.epsilon == pytest.approx(paper.epsilon, rel=1e-12)
        for history, words in (([(1.0, 0.4, 5)], "from two passes"), ([(1.0, 0.07, 5)], "number")):
            with pytest.raises(dp.DeclarationError, match=words):
                dp.interop.opacus.certificate(engine(history), delta=1e-5, data_loader=shuffled)

    def test_samplers_that_draw_twice_are_refused(self) -> None:
        for more in ({"replacement": True}, {"num_samples": 20, "data_source": range(10)}):
            with pytest.raises(dp.DeclarationError, match="twice in a pass"):
                dp.interop.opacus.certificate(
                    engine([(1.0, 0.1, 10)]),
                    delta=1e-5,
                    data_loader=loader("RandomSampler", inner=True, **more),
                )
        odd = loader("RandomSampler", inner=True)
        odd.batch_sampler.__class__.__name__ = "Overlapping"
        with pytest.raises(dp.DeclarationError, match="Overlapping of RandomSampler"):
            dp.interop.opacus.certificate(engine([(1.0, 0.1, 9)]), delta=1e-5, data_loader=odd)

    def test_adaptive_clipping_is_refused(self) -> None:
        adaptive = type("AdaClipDPOptimizer", (), {"noise_multiplier": 1.0})()
        with pytest.raises(dp.DeclarationError, match="adaptive clipping"):
            dp.interop.opacus.certificate(engine(), delta=1e-5, optimizer=adaptive)

    @pytest.mark.filterwarnings("ignore")
    def test_adaptive_ghost_clipping_is_refused_by_its_engine(self) -> None:
        """Its optimizer has no name of its own; the recorded noise leaves out the count's share."""
        utils = pytest.importorskip("opacus.utils.adaptive_clipping.adaptive_clipping_utils")
        torch = pytest.importorskip("torch")
        own = utils.PrivacyEngineAdaptiveClipping()
        model, optimizer, loss, batches = ghost_clipped(torch, own, rows=400, batch_size=100)
        loss.criterion.reduction = "none"
        size = 0
        for x, y in batches:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            size = len(x)
        # a count moves by 1 with a deviation of size / 20: more than the recorded mu of 1 in all
        left = optimizer._adjusted_noise_multiplier
        assert math.hypot(1 / left, 20 / size) > 1.01
        assert own.accountant.history[0][0] == 1.0
        recorded = engine(own.accountant.history)
        for given, more in ((own, {}), (recorded, {"optimizer": optimizer})):
            with pytest.raises(dp.DeclarationError, match="adaptive clipping"):
                dp.interop.opacus.certificate(given, delta=1e-5, **more)
        from adaptive_dp.interop import opacus as reader

        assert reader.steps_of(own) is None

    def test_clipping_that_nobody_has_looked_at_is_listed(self) -> None:
        """``clipping="adaptive"`` is known by the optimizer alone; ghost clipping has two norms."""

        def words(**more: Any) -> str:
            paper = dp.interop.opacus.certificate(engine(), delta=1e-5, **more)
            return " ".join(paper.assumptions)

        plain = type("DPOptimizer", (), {"noise_multiplier": 1.0})()
        ghost = type("DPOptimizerFastGradientClipping", (), {"noise_multiplier": 1.0})()
        assert "clipping was not adaptive" in words()
        assert "clipping was not adaptive" not in words(optimizer=plain)
        for each in (words(), words(optimizer=plain), words(optimizer=ghost)):
            assert "clipped to the norm that its step's noise was scaled by" in each
            assert "all steps on these data" in each
            assert "the loss lets an example" in each
        assert "GradClipScheduler" in words(optimizer=ghost)
        passes = loader("RandomSampler", inner=True, steps=938)
        assert "signal_skip_step" in words(data_loader=passes)

    @pytest.mark.filterwarnings("ignore")
    def test_ghost_clipping_keeps_its_norm_where_a_scheduler_lowers_the_noise(self) -> None:
        """That this is so is why the norms are an assumption: 10 times less noise, same record."""
        opacus = pytest.importorskip("opacus")
        torch, schedulers = pytest.importorskip("torch"), pytest.importorskip("opacus.schedulers")
        own = opacus.PrivacyEngine()
        model, optimizer, _, _ = ghost_clipped(torch, own, rows=100, batch_size=10)
        schedulers.ExponentialGradClip(optimizer, gamma=0.1).step()
        assert (model.max_grad_norm, optimizer.noise_multiplier) == (1.0, 1.0)
        assert optimizer.max_grad_norm == pytest.approx(0.1)

    def test_steps_of_more_than_a_pass_are_refused(self) -> None:
        """Two passes in a step: an example is in it twice, whatever the loader."""
        with pytest.raises(dp.DeclarationError, match="more than one pass"):
            dp.interop.opacus.certificate(engine([(1.0, 2.0, 1)]), delta=1e-5)
        from adaptive_dp.interop import opacus as reader

        assert reader.steps_of(engine([(1.0, 2.0, 1)])) is None

    def test_the_rate_is_that_of_coins_of_24_bits(self) -> None:
        """``torch.rand(n) < rate``: of 2^24 floats, those below; at a tiny rate one of them."""
        paper = dp.interop.opacus.certificate(engine([(1.0, 1e-9, 10**6)]), delta=1e-9)
        steps = Repeated(Sampled(Spend(Gaussian(mu=1.0)), 2.0**-24), 10**6)
        assert paper.epsilon == pytest.approx(tightest(certify(steps, 1e-9)).bounds.upper, rel=1e-6)

    @pytest.mark.filterwarnings("ignore")
    def test_a_rate_that_opacus_records_rounded_up_is_that_of_its_loader(self) -> None:
        """Of 93 batches ``int(1 / (1 / 93))`` is 92, and by it a step is charged: slightly more."""
        opacus, torch = pytest.importorskip("opacus"), pytest.importorskip("torch")
        net, own = torch.nn.Linear(3, 2), opacus.PrivacyEngine()
        data = torch.utils.data.TensorDataset(torch.zeros(186, 3), torch.zeros(186).long())
        model, optimizer, batches = own.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=2),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for (x, y), _ in zip(batches, range(3), strict=False):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert batches.sample_rate < own.accountant.history[0][1]
        paper = dp.interop.opacus.certificate(own, delta=1e-5, data_loader=batches)
        less = Repeated(Sampled(Spend(Gaussian(mu=1.0)), 1 / 93), own.accountant.history[0][2])
        assert paper.epsilon > tightest(certify(less, 1e-5)).bounds.upper
        batches.sample_rate *= 1.02  # above what was recorded
        with pytest.raises(dp.DeclarationError, match="samples at the rate"):
            dp.interop.opacus.certificate(own, delta=1e-5, data_loader=batches)

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("ghost", [False, True])
    @pytest.mark.parametrize("poisson", [True, False])
    def test_parts_of_a_batch_are_one_step(self, poisson: bool, ghost: bool) -> None:
        """A real engine in a ``BatchMemoryManager``, whose own loader is not that of the steps."""
        opacus, torch = pytest.importorskip("opacus"), pytest.importorskip("torch")
        memory = pytest.importorskip("opacus.utils.batch_memory_manager")
        net, own = torch.nn.Linear(3, 2), opacus.PrivacyEngine()
        data = torch.utils.data.TensorDataset(
            torch.zeros(100, 3), torch.zeros(100, dtype=torch.int64)
        )
        loss = torch.nn.CrossEntropyLoss()
        model, optimizer, *rest, batches = own.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=20, shuffle=True),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
            **({"grad_sample_mode": "ghost", "criterion": loss} if ghost else {}),
        )
        loss = rest[0] if rest else loss
        parts = memory.BatchMemoryManager(
            data_loader=batches, max_physical_batch_size=6, optimizer=optimizer
        )
        with parts as small:
            for _ in range(2):
                for x, y in small:
                    optimizer.zero_grad()
                    loss(model(x), y).backward()
                    optimizer.step()
        paper = dp.interop.opacus.certificate(
            own, delta=1e-5, data_loader=batches, optimizer=optimizer
        )
        one = Spend(Gaussian(mu=1.0))
        q = math.ceil(np.float32(0.2) * 2**24) / 2**24
        term = Repeated(Sampled(one, q), 10) if poisson else Repeated(one, 2)
        right = tightest(certify(term, 1e-5)).bounds.upper
        assert paper.epsilon == pytest.approx(right, rel=1e-6)
        with pytest.raises(dp.DeclarationError, match=r"that make_private returned|is known"):
            dp.interop.opacus.certificate(own, delta=1e-5, data_loader=small)

    @pytest.mark.filterwarnings("ignore")
    def test_a_real_engine(self) -> None:
        opacus = pytest.importorskip("opacus")
        torch = pytest.importorskip("torch")
        for poisson in (True, False):
            net = torch.nn.Linear(3, 2)
            data = torch.utils.data.TensorDataset(
                torch.zeros(100, 3), torch.zeros(100, dtype=torch.int64)
            )
            own = opacus.PrivacyEngine()
            model, optimizer, batches = own.make_private(
                module=net,
                optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
                data_loader=torch.utils.data.DataLoader(data, batch_size=10, shuffle=True),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                poisson_sampling=poisson,
            )
            for x, y in batches:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            paper = dp.interop.opacus.certificate(
                own, delta=1e-5, data_loader=batches, optimizer=optimizer
            )
            if poisson:
                assert paper.epsilon <= own.get_epsilon(1e-5)
            else:  # a pass without amplification: above what Opacus computes
                assert paper.epsilon > 1.3 * own.get_epsilon(1e-5)


def cyclic(name: str = "CyclicPoissonSampling", **more: Any) -> Any:
    """One sample of a tenth, as jax-privacy's strategy says it."""
    given = {"sampling_prob": 0.1, "iterations": 1, "cycle_length": 1}
    return type(name, (), given | more)()


class TestJaxPrivacy:
    def test_an_event_of_steps(self) -> None:
        events = pytest.importorskip("dp_accounting")
        step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.1))
        plan = SimpleNamespace(dp_event=events.SelfComposedDpEvent(step, 2_000))
        added = dp.interop.jax_privacy.certificate(plan, delta=1e-5, neighbors="add_remove")
        term = Repeated(Sampled(Spend(Gaussian(mu=1 / 1.1)), 0.01), 2_000)
        assert added.epsilon == pytest.approx(tightest(certify(term, 1e-5)).bounds.upper, rel=1e-7)
        zeroed = dp.interop.jax_privacy.certificate(plan, delta=1e-5)
        assert {each.neighbors for each in zeroed.protects} == {"zero_out"}
        assert str(dp.verify(zeroed)).startswith("holds")

    def test_equal_groups_are_not_for_added_examples(self) -> None:
        """One more example moves others between groups of equal size; jax-privacy refuses too."""
        events = pytest.importorskip("dp_accounting")
        step = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))

        def plan(partition: str, groups: int, truncated: int | None = None) -> Any:
            strategy = cyclic(
                partition_type=SimpleNamespace(name=partition),
                cycle_length=groups,
                truncated_batch_size=truncated,
            )
            return SimpleNamespace(dp_event=step, batch_selection_strategy=strategy)

        for refused in (plan("EQUAL_SPLIT", 4), plan("INDEPENDENT", 1, 5)):
            with pytest.raises(dp.DeclarationError, match="moves others"):
                dp.interop.jax_privacy.certificate(refused, delta=1e-5, neighbors="add_remove")
            paper = dp.interop.jax_privacy.certificate(refused, delta=1e-5)
            assert {each.neighbors for each in paper.protects} == {"zero_out"}
        for good in (plan("EQUAL_SPLIT", 1), plan("INDEPENDENT", 4)):
            paper = dp.interop.jax_privacy.certificate(good, delta=1e-5)
            assert {each.neighbors for each in paper.protects} == {"add_remove"}

    def test_batches_that_are_not_the_events_are_refused(self) -> None:
        """A plan that is put together by hand may have any batches beside any event."""
        events = pytest.importorskip("dp_accounting")
        step = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))
        event = events.SelfComposedDpEvent(step, 100)

        def certified(**more: Any) -> Any:
            plan = SimpleNamespace(dp_event=event, batch_selection_strategy=cyclic(**more))
            return dp.interop.jax_privacy.certificate(plan, delta=1e-5)

        whole = certified(iterations=100).epsilon
        assert certified(iterations=400, cycle_length=4).epsilon == whole
        for more, words in (
            ({"name": "FixedBatchSampling"}, "drawn by FixedBatchSampling"),
            ({"name": "BallsInBinsSampling"}, "drawn by BallsInBins"),
            ({"iterations": 101}, "101 samples"),
            ({"iterations": 401, "cycle_length": 4}, "101 samples"),
            ({"sampling_prob": 0.2}, "at the rate 0.2"),
        ):
            with pytest.raises(dp.DeclarationError, match=words):
                certified(**more)

    def test_refusals(self) -> None:
        events = pytest.importorskip("dp_accounting")
        with pytest.raises(dp.DeclarationError, match="has a dp_event"):
            dp.interop.jax_privacy.certificate(SimpleNamespace(), delta=1e-5)
        for event in (
            events.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0),
            events.SampledWithReplacementDpEvent(100, 10, events.GaussianDpEvent(1.0)),
        ):
            with pytest.raises(dp.DeclarationError, match="nothing can be certified"):
                dp.interop.jax_privacy.certificate(SimpleNamespace(dp_event=event), delta=1e-5)
        odd = events.SampledWithoutReplacementDpEvent(100, 10, events.GaussianDpEvent(1.0))
        with pytest.raises(dp.DeclarationError, match="Poisson samples"):
            dp.interop.jax_privacy.certificate(
                SimpleNamespace(dp_event=odd), delta=1e-5, neighbors="replace_one"
            )

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("bands", [1, 4])
    def test_a_real_plan(self, bands: int) -> None:
        plans = pytest.importorskip("jax_privacy.experimental.execution_plan")
        config = plans.BandMFExecutionPlanConfig.default(
            num_bands=bands,
            iterations=100,
            strategy_optimization_steps=5,
            noise_multiplier=1.0,
            epsilon=None,
            delta=None,
            sampling_prob=0.1,
        )
        paper = dp.interop.jax_privacy.certificate(config.plan, delta=1e-5)
        term = Repeated(Sampled(Spend(Gaussian(1.0)), 0.1), 100 // bands)
        assert paper.epsilon == pytest.approx(tightest(certify(term, 1e-5)).bounds.upper, rel=1e-6)


# --- real loops, audited by canaries along axes of their own

AUDITED = {"sigma": 2.0, "rate": 0.1, "steps": 60, "canaries": 400, "others": 1_200}


def canary_rows() -> tuple[Any, Any, Any]:
    """Return gradients, canaries that have them, and ordinary rows: one layer, whose output is x w.

    The loss is the output, so that a row's gradient is the row itself, whatever the parameters.
    """
    m, n = AUDITED["canaries"], AUDITED["others"]
    own = dp.audit.gradient_canaries(m, m, seed=0)
    rest = 0.1 * np.random.default_rng(0).normal(size=(n, m)) / m**0.5
    return own, {"x": own.astype(np.float32)}, {"x": rest.astype(np.float32)}


def verdict(train: Any, in_step: Any, claim: tuple[float, float]) -> str:
    gradients, canaries, rest = canary_rows()

    def score(released: Any) -> Any:
        sigma = float(AUDITED["sigma"])
        return dp.audit.gradient_scores(released, gradients, rate=in_step, noise=sigma)

    return dp.audit.training(train, canaries, claim, score, rows=rest, seed=3).verdict


def claim_of_samples() -> tuple[float, float]:
    sampled = Sampled(Spend(Gaussian(mu=1 / AUDITED["sigma"])), AUDITED["rate"])
    return tightest(certify(Repeated(sampled, AUDITED["steps"]), 1e-6)).bounds.upper, 1e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("poisson", [True, False])
def test_a_real_loop_of_opacus_is_audited(poisson: bool) -> None:
    """Of a loader that does not shuffle Opacus claims what Poisson samples cost: it is found.

    The sound loop is suspected with a probability of 1e-3 at most, by the generator's one seed.
    """
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    # ten batches in a pass, with about half of the canaries
    size = round((AUDITED["others"] + AUDITED["canaries"] / 2) / 9.5)

    def train(rows: Any) -> Any:
        data = torch.utils.data.TensorDataset(torch.as_tensor(rows["x"]))
        batches = torch.utils.data.DataLoader(data, batch_size=size)
        net = torch.nn.Linear(AUDITED["canaries"], 1, bias=False)
        engine = opacus.PrivacyEngine()
        model, optimizer, batches = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=batches,
            noise_multiplier=AUDITED["sigma"],
            max_grad_norm=1.0,
            poisson_sampling=poisson,
        )
        released: list[Any] = []
        while len(released) < AUDITED["steps"]:
            for (x,) in batches:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                mean = net.weight.grad.reshape(-1).double().numpy()
                released.append(mean * optimizer.expected_batch_size)
        assert engine.accountant.history[0][:2] == (AUDITED["sigma"], 1 / len(batches))
        return released[: AUDITED["steps"]]

    in_step: Any = AUDITED["rate"]
    if not poisson:
        counts = AUDITED["others"], AUDITED["canaries"]
        in_step = dp.audit.unshuffled(*counts, size, AUDITED["steps"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = verdict(train, in_step, claim_of_samples())
    assert found in (("consistent", "underpowered") if poisson else ("suspected", "violation"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noisy", [True, False])
def test_a_real_loop_of_jax_privacy_is_audited(noisy: bool) -> None:
    """Its clipping and noise on its Poisson batches; with noise on one of sixteen workers alone."""
    jax, clipping = pytest.importorskip("jax"), pytest.importorskip("jax_privacy.clipping")
    adding = pytest.importorskip("jax_privacy.noise_addition")
    batches = pytest.importorskip("jax_privacy.batch_selection")
    deviation = AUDITED["sigma"] / (1 if noisy else 4)

    def train(rows: Any) -> Any:
        x = rows["x"]
        gradient = clipping.clipped_grad(
            lambda w, batch: (batch @ w).mean(), l2_clip_norm=1.0, microbatch_size=1
        )
        compiled = jax.jit(gradient)
        private = adding.gaussian_privatizer(stddev=deviation, prng_key=7)
        w, state, released = np.zeros(AUDITED["canaries"], np.float32), None, []
        state = private.init(w)
        sampler = batches.CyclicPoissonSampling(AUDITED["rate"], AUDITED["steps"])
        for index in sampler.batch_iterator(len(x), rng=7):
            # padded with rows of zeros, which add nothing: one program for all samples
            batch = np.zeros((256, x.shape[1]), np.float32)
            batch[: len(index)] = x[index]
            total, state = private.update(compiled(w, batch), state)
            released.append(np.asarray(total, dtype=np.float64))
        return released

    found = verdict(train, AUDITED["rate"], claim_of_samples())
    assert found in (("consistent", "underpowered") if noisy else ("suspected", "violation"))
