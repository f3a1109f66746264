"""Loops of networks with correlated noise: one release, taken in rounds; losses by the round."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import RunError
from adaptive_dp.mechanisms.follow_the_leader import FollowTheLeaderRound, FollowTheLeaderRun
from adaptive_dp.noise.stream import SecureStream, SeededStream
from adaptive_dp.session.recompute import recomputed

torch: Any = pytest.importorskip("torch")

PIXELS = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]})
RESERVED = dp.Budget(30.0, 1e-5, delta_reserve=1e-50)
"""The amplified loss of banded noise has a delta floor of 1e-200."""


def linear() -> Any:
    return torch.nn.Linear(4, 2)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def training(loss: Any = None, optimizer: Any = sgd, **options: Any) -> Any:
    options = {
        **{"steps": 6, "sampling_rate": 0.5, "batch_size": 10, "clipping": 1.0, "noise": "banded"},
        **options,
    }
    return dp.torch.Training(linear, loss or torch.nn.CrossEntropyLoss(), optimizer, **options)


def rows_of(n: int, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"image": draw.random((n, 4)), "y": draw.integers(2, size=n)}


def session_of(seed: int | None = 1, budget: Any = RESERVED, **more: Any) -> Any:
    return dp.Session(budget=budget, images=rows_of(20), seed=seed, **more)


def loop_of(session: Any, sigma: float = 2.0, name: str = "", **options: Any) -> Any:
    return dp.torch.Loop(session, PIXELS, training(**options), sigma=sigma, name=name)


def planned(learner: Any, sigma: float = 2.0) -> Any:
    return dp.Pipeline(model=PIXELS.solve(learner)).fix(sigma=sigma).with_delta(1e-5)


KINDS = [
    {"noise": "banded", "clipping": 0.7},
    {"noise": "banded", "bands": 1},
    {"noise": "buffered", "clipping": dp.Clipping(quantile=0.5)},
    {"noise": "tree", "by_layer": True, "clipping": dp.torch.AutomaticClipping()},
]


@pytest.mark.parametrize("options", KINDS)
def test_a_loop_costs_what_the_plan_costs_and_at_its_first_round(options: Any) -> None:
    with session_of() as session:
        loop = loop_of(session, **options)
        assert loop.plan().with_delta(1e-5).certify().epsilon == (
            planned(training(**options)).certify().epsilon
        )
        loop.step()
        spent = session.spent
        assert spent.costs[-1] > 0
        assert [done.number for done in loop] == [2, 3, 4, 5, 6]
        assert session.spent == spent
        certificate = session.certificate()
        assert len(certificate.nodes) == 7
        assert dp.verify(certificate).holds
        assert [*loop] == []


@pytest.mark.parametrize("options", KINDS)
def test_rounds_are_those_of_the_plan(options: Any) -> None:
    """By the same words, from the first to the last parameters: to the bit."""
    learner = training(**options, optimizer=lambda p: torch.optim.Adam(p, lr=0.1))
    reads, gradients = learner.operations(PIXELS.domain)
    query, mechanism = learner.stream_of(gradients, PIXELS.domain)
    fixed = mechanism.fixed(2.0)
    rows = reads.run([PIXELS.operation.bind(rows_of(20))], None)
    value = query.run([gradients.run([rows], SecureStream())], SecureStream())
    whole = fixed.release(value, SeededStream(7), 10.0)[1]

    hidden = FollowTheLeaderRun(**fixed.parameters()).begin(SeededStream(7))

    class Direct:
        """A session that hands a round's sum to the hidden rounds, without the ledger."""

        def run(self, plan: Any, *, name: str = "") -> Any:
            from adaptive_dp.torch.loop import _HELD

            if name == "all rounds":
                return {}
            (theta,) = _HELD.values()
            return {"gradients": hidden.added(value, theta)}

    loop = dp.torch.Loop(Direct(), PIXELS, learner, sigma=2.0)
    thresholds = [done.threshold for done in loop]
    theta = loop.model["parameters"].astype(np.float64)
    np.testing.assert_array_equal(theta, whole[: len(theta)])
    assert (len(set(thresholds)) > 1) == isinstance(learner.clipping, dp.Clipping)
    if len(whole) > len(theta):
        assert loop.threshold == whole[-1]


@pytest.mark.parametrize("noise", ["banded", "buffered", "tree"])
def test_without_noise_it_is_the_descent_on_batches_that_stay(noise: str) -> None:
    """With one batch it is the loop with independent noise; with two, each unit is in one."""
    options = {"sampling_rate": 1.0, "steps": 5, "batch_size": 20}
    ends = []
    for kind in (noise, "independent"):
        with session_of(budget=dp.Budget(1e30, 1e-5, delta_reserve=1e-50)) as session:
            loop = loop_of(session, 1e-6, noise=kind, **options)
            assert len([*loop]) == 5
            ends.append(loop.model["parameters"])
    np.testing.assert_allclose(*ends, atol=1e-4)
    still = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.0), "steps": 6}
    with session_of(budget=dp.Budget(1e30, 1e-5, delta_reserve=1e-50)) as session:
        loop = loop_of(session, 1e-6, noise=noise, **still)
        sums: list[Any] = []
        take = session.run
        session.run = lambda plan, name="": sums.append(take(plan, name=name)) or sums[-1]
        assert len([*loop]) == 6
        sums = [each["gradients"] for each in sums if "gradients" in each]
    for k in (0, 1):  # the batch comes again in each epoch
        np.testing.assert_allclose(sums[k], sums[k + 2], atol=1e-3)
        np.testing.assert_allclose(sums[k], sums[k + 4], atol=1e-3)
    assert np.abs(sums[0] - sums[1]).max() > 0.05


class Wide:
    """The network's class, whose parameters are 10,000: a law by one loop."""

    def __new__(cls) -> Any:
        return torch.nn.Linear(4_999, 2)


@pytest.mark.parametrize("bands", [1, 4])
def test_the_noise_of_a_loop_has_the_covariance_of_the_factorization(bands: int) -> None:
    """Of no rows: what rounds release is noise alone, whose prefix sums have covariance B B'.

    C by its definition, in floats. Each of 36 means of 10,000 products, within six deviations.
    """
    table = dp.dataset("images", columns={"image": dp.tensor((4_999,), (0, 1)), "y": [0, 1]})
    learner = dp.torch.Training(
        Wide,
        torch.nn.CrossEntropyLoss(),
        sgd,
        **{"steps": 8, "sampling_rate": 0.25, "batch_size": 10, "clipping": 1.0},
        noise="banded",
        bands=bands,
    )
    rows = {"image": np.zeros((0, 4_999)), "y": np.zeros(0, dtype=int)}
    found: list[Any] = []
    with dp.Session(budget=RESERVED, seed=3, images=rows) as session:
        take = session.run
        session.run = lambda plan, name="": found.append(take(plan, name=name)) or found[-1]
        assert len([*dp.torch.Loop(session, table, learner, sigma=1.5)]) == 8
    noise = np.cumsum([each["gradients"] for each in found if "gradients" in each], axis=0)
    c = np.array([1, 1 / 2, 3 / 8, 5 / 16])[:bands]
    encoder = sum(np.diag(np.full(8 - j, v), -j) for j, v in enumerate(c))
    # a unit is in two rounds, four apart: its columns do not overlap
    sigma = 1.5 * math.sqrt(2) * np.linalg.norm(c)
    b = np.tri(8) @ np.linalg.inv(encoder)
    expected = sigma**2 * b @ b.T
    count = noise.shape[1]
    assert count == 10_000
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    # coefficients are rounded to 2^-12
    assert (np.abs(noise @ noise.T / count - expected) < 6 * spread + 1e-3 * expected).all()


def test_what_a_loop_asked_before_is_free_and_anything_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    terms: Any = {"seed": None, "ledger": path}
    with session_of(**terms, create=True) as session:
        loop = loop_of(session)
        for done in loop:
            if done.number == 2:
                checkpoint = loop.state_dict()
            if done.number == 4:
                break
        spent, fourth, head = session.spent, loop.model["parameters"], session.head
        assert sorted(checkpoint) == [
            *("first_threshold", "memory", "parameters", "round", "threshold")
        ]
        again = loop_of(session)
        again.load_state_dict(checkpoint)
        again.step(), again.step()
        np.testing.assert_array_equal(again.model["parameters"], fourth)
        assert session.head == head
        # the run is one, whichever loop goes on with it
        again.step()
        with pytest.raises(RunError, match="next round of this training is 6"):
            after(session, checkpoint, 0.1)
        assert session.spent == spent
    with session_of(**terms) as session:
        loop = loop_of(session)
        for _ in range(5):  # recorded
            loop.step()
        head = session.head
        with pytest.raises(RunError, match="not in this process"):
            loop.step()
        assert (session.head, session.spent) == (head, spent)
        # a new training, from the parameters that were reached, and charged
        new = loop_of(session, name="second")
        new.load_state_dict(loop.state_dict())
        with pytest.raises(RunError, match="next round of this training is 1"):
            new.step()
        assert session.head == head
        new = loop_of(session, name="second")
        new.load_state_dict({**loop.state_dict(), "round": 0})
        new.step()
        assert session.spent.costs[-1] == pytest.approx(2 * spent.costs[-1])
        assert recomputed(session._ledger.entries()).reasons == ()


def after(session: Any, checkpoint: Any, moved: float) -> Any:
    loop = loop_of(session)
    loop.load_state_dict({**checkpoint, "parameters": checkpoint["parameters"] + moved})
    return loop.step()


def test_noise_rate_steps_and_threshold_are_settled_and_the_rest_is_not() -> None:
    with session_of() as session:
        loop = loop_of(session)
        loop.sigma, loop.training = 3.0, training(steps=8)  # nothing is paid for yet
        loop.step()
        spent = session.spent
        for options in (
            *({"sampling_rate": 0.25}, {"steps": 6}, {"clipping": 0.5}, {"noise": "tree"}),
            *({"noise": "independent"}, {"bands": 1}, {"clipping": dp.Clipping()}),
        ):
            with pytest.raises(dp.DeclarationError, match="settled"):
                loop.training = training(**{"steps": 8, **options})
        with pytest.raises(dp.DeclarationError, match="settled"):
            loop.sigma = 4.0
        loop.sigma = 3.0
        adam = lambda p: torch.optim.Adam(p, lr=0.01)  # noqa: E731
        loop.training = training(smooth, adam, steps=8, by_layer=True, physical_batch=4)
        loop.load_state_dict({**loop.state_dict(), "memory": []})
        loop.step()
        loop.step(torch.nn.CrossEntropyLoss())
        assert session.spent == spent
        assert dp.verify(session.certificate()).holds
        loop.load_state_dict({**loop.state_dict(), "threshold": 0.5})
        with pytest.raises(dp.DeclarationError, match="all rounds of correlated"):
            loop.step()
        independent = loop_of(session, noise="independent")
        independent.step()
        with pytest.raises(dp.DeclarationError, match="settled"):
            independent.training = training()


def test_a_budget_that_does_not_allow_the_whole_is_an_error_and_not_an_end() -> None:
    with session_of(budget=dp.Budget(0.1, 1e-5, delta_reserve=1e-50)) as session:
        loop = loop_of(session)
        with pytest.raises(dp.BudgetError):
            next(iter(loop))
        assert loop.number == 0
        assert session.spent.costs[-1] == 0
        loop.sigma = 200.0  # a smaller request may follow
        loop.step()
    with session_of(budget=dp.Budget(1.0, 1e-5)) as session:
        loop = loop_of(session)
        with pytest.raises(dp.InapplicableError, match="delta_reserve"):
            loop.step()


def test_an_interrupted_round_is_taken_again_at_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_dp.torch.training import NetworkSums

    with session_of() as session:
        loop, real = loop_of(session), NetworkSums.at
        loop.step()
        spent = session.spent
        monkeypatch.setattr(NetworkSums, "at", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            loop.step()
        monkeypatch.setattr(NetworkSums, "at", real)
        with pytest.raises(RunError, match="as it was"):
            loop.step(smooth)
        assert [done.number for done in loop] == [2, 3, 4, 5, 6]
        assert session.spent == spent
        rows = session.certificate().nodes
        assert [row.theorem for row in rows].count(FollowTheLeaderRound.theorem) == 6


def test_exchanged_units_and_units_of_several_rows() -> None:
    exchanged = dp.dataset(
        "images", columns=PIXELS.domain.columns, neighbors="replace_one", size=20
    )
    of_units = dp.dataset("images", columns=PIXELS.domain.columns, unit="who", rows_per_unit=3)
    for table, rows in (
        (exchanged, rows_of(20)),
        (of_units, {**rows_of(20), "who": np.arange(20) // 2}),
    ):
        learner = training()
        plan = dp.Pipeline(model=table.solve(learner)).fix(sigma=4.0).with_delta(1e-5)
        with dp.Session(budget=RESERVED, seed=1, images=rows) as session:
            loop = dp.torch.Loop(session, table, learner, sigma=4.0)
            assert loop.plan().with_delta(1e-5).certify().epsilon == plan.certify().epsilon
            assert len([*loop]) == 6
            assert dp.verify(session.certificate()).holds


# --- A round's own loss ------------------------------------------------------------------------


def smooth(outputs: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(outputs, targets, label_smoothing=0.5)


def failing(outputs: Any, targets: Any) -> Any:
    return outputs


@pytest.mark.parametrize("noise", ["independent", "buffered"])
def test_a_round_of_another_loss_is_the_descent_along_it(noise: str) -> None:
    options = {"sampling_rate": 1.0, "steps": 3, "batch_size": 20, "clipping": 10.0}
    losses = [None, smooth, None]
    with session_of(budget=dp.Budget(1e30, 1e-5, delta_reserve=1e-50)) as session:
        loop = loop_of(session, 1e-7, noise=noise, **options)
        for loss in losses:
            with pytest.raises(dp.DeclarationError, match="number"):
                loop.step(failing)  # nothing is spent, and no round is taken
            loop.step(loss)
        assert loop.number == 3
        assert len(session._spends) == 3 + (noise == "buffered")
    module = linear_start()
    made = sgd(module.parameters())
    x, y = torch.tensor(rows_of(20)["image"], dtype=torch.float32), torch.tensor(rows_of(20)["y"])
    for loss in losses:
        made.zero_grad()
        # the sum is in units of the threshold
        value = (loss or torch.nn.functional.cross_entropy)(module(x), y) / 10.0
        value.backward()
        made.step()
    expected = np.concatenate([p.detach().reshape(-1).numpy() for p in module.parameters()])
    np.testing.assert_allclose(loop.model["parameters"], expected, atol=1e-3)


def linear_start() -> Any:
    from adaptive_dp.torch.networks import build

    return build(training().net)
