"""Plots: the data that they draw is right. How they look is not tested."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import accountants
import adaptive_dp as dp
from accountants.secret import Secret
from adaptive_dp import plot
from adaptive_dp.audit.result import Audit, Witness

pytest.importorskip("matplotlib")

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B"]})
DATA = {"age": np.full(300, 30.0), "region": np.array(["A"] * 300)}
GAUSSIAN = dp.Pipeline(n=PEOPLE.count().release(dp.Gaussian(sigma=2.0)))
LAPLACE = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=2.0)))


def line(axes: Any, i: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.asarray(v, dtype=float) for v in axes.lines[i].get_data())  # type: ignore[return-value]


def gaussian_delta(epsilon: np.ndarray, mu: float) -> np.ndarray:
    """Balle & Wang 2018, Thm 8, written anew."""
    left = norm.cdf(mu / 2 - epsilon / mu)
    return left - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


class TestCurves:
    def test_a_profile_is_the_closed_form(self) -> None:
        epsilon, delta = line(plot.privacy_profile(GAUSSIAN, least=1e-6, points=20))
        assert len(epsilon) >= 20
        # the released count is rounded to steps, which moves it by less than 1e-6
        np.testing.assert_allclose(delta, gaussian_delta(epsilon, 0.5), rtol=1e-4)
        assert np.all(delta >= gaussian_delta(epsilon, 0.5) * (1 - 1e-9))

    def test_a_laplace_profile(self) -> None:
        """``1 - e^((epsilon - 1/b)/2)``: Balle, Barthe & Gaboardi 2018, Thm 3."""
        epsilon, delta = line(plot.privacy_profile(accountants.Laplace(0.5), least=1e-3, points=9))
        inside = epsilon < 0.49
        np.testing.assert_allclose(
            delta[inside], 1 - np.exp((epsilon[inside] - 0.5) / 2), rtol=1e-6
        )

    def test_a_tradeoff_is_the_closed_form(self) -> None:
        axes = plot.tradeoff(accountants.Gaussian(mu=1.0), points=12)
        rates, missed = line(axes, 1)  # the first is the line of guessing
        truth = norm.cdf(norm.isf(rates) - 1.0)
        assert np.all(missed <= truth + 1e-12)
        np.testing.assert_allclose(missed, truth, atol=3e-4)

    def test_plans_certificates_losses_and_terms_are_one(self) -> None:
        pure = accountants.Laplace(0.5)
        many = {
            "plan": LAPLACE,
            "certificate": dp.Certificate.from_json(LAPLACE.certify().to_json()),
            "loss": pure,
            "term": accountants.Spend(pure),
        }
        axes = plot.privacy_profile(many, points=9)
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == list(many)
        curves = [line(axes, i)[1] for i in range(4)]
        for curve in curves[1:]:
            np.testing.assert_allclose(curve, curves[0], rtol=1e-12)
        assert len({each._unscaled_dash_pattern for each in axes.lines}) == 4

    def test_one_curve_for_each_accountant_that_applies(self) -> None:
        chosen = [accountants.Basic(), accountants.GaussianDP(), accountants.Distribution()]
        axes = plot.privacy_profile(LAPLACE, accountants=chosen, points=9)
        names = [each.get_label() for each in axes.lines]
        assert names[0] == "basic"
        assert names[-1] == "distribution"
        both = plot.privacy_profile({"a": LAPLACE, "b": GAUSSIAN}, accountants=chosen[::2])
        assert [each.get_label() for each in both.lines] == [
            "a, basic",
            "a, distribution",
            "b, basic",
            "b, distribution",
        ]

    def test_what_has_no_curve_is_refused(self) -> None:
        with pytest.raises(dp.DeclarationError):
            plot.privacy_profile("plan")  # type: ignore[arg-type]
        free = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=dp.Free("b"))))
        with pytest.raises(dp.PlanError, match="free"):
            plot.tradeoff(free)
        with pytest.raises(accountants.AccountingError):
            plot.tradeoff({})
        with dp.Session(budget=dp.Budget(1.0), seed=0, people=DATA) as session:
            session.run(PEOPLE.count().release(dp.Laplace(scale=5)))
            for wrong in (session.pipeline, session.certificate()):
                with pytest.raises(dp.DeclarationError, match=r"plot\.budget\(session\)"):
                    plot.privacy_profile(wrong)


class TestShares:
    def plan(self) -> dp.Pipeline:
        parts = dict(PEOPLE.partition("region"))
        return dp.Pipeline(
            **{"$n$": PEOPLE.count().release(dp.Laplace(scale=4))},
            big=parts["A"].count().release(dp.Laplace(scale=2), name="big"),
            small=parts["B"].count().release(dp.Laplace(scale=8), name="small"),
        )

    def test_bars_are_the_shares(self) -> None:
        axes = plot.shares(self.plan().certify())
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names == ["small", r"\$n\$", "big"]  # the largest on top
        widths = [bar.get_width() for bar in axes.patches]
        # basic: 1/4 and 1/2 make the worst world; 1/8 is elsewhere
        np.testing.assert_allclose(widths[1:], [1 / 3, 2 / 3], rtol=1e-6)
        assert axes.patches[0].get_hatch()
        assert not axes.patches[1].get_hatch()

    def test_what_is_too_much_is_one_bar(self) -> None:
        many = dp.Pipeline(
            **{f"n{i}": PEOPLE.count().release(dp.Laplace(scale=5), name=f"n{i}") for i in range(9)}
        )
        axes = plot.shares(many.certify(), most=4)
        assert [bar.get_width() for bar in axes.patches] == pytest.approx([6 / 9, *[1 / 9] * 3])
        assert axes.get_yticklabels()[0].get_text() == "6 others"
        with pytest.raises(dp.DeclarationError, match="most"):
            plot.shares(many.certify(), most=0)

    def test_of_a_certificate_alone(self) -> None:
        with pytest.raises(dp.DeclarationError, match=r"plan\.certify"):
            plot.shares(LAPLACE)  # type: ignore[arg-type]


class TestPerInstance:
    def test_private_losses_are_refused(self) -> None:
        with pytest.raises(dp.DataError, match="reveal"):
            plot.per_instance(Secret(np.ones(3)))

    def test_every_record_is_counted(self) -> None:
        losses = [0.1, 0.2, 0.2, 0.3, 0.0, math.inf]
        axes = plot.per_instance(losses, worst=1.0)
        assert sum(bar.get_height() for bar in axes.patches) == 4
        assert list(axes.lines[0].get_xdata()) == [1.0, 1.0]
        label = axes.get_xlabel()
        assert "private" in label
        assert "1 at 0" in label
        assert "1 without a bound" in label
        assert plot.per_instance([], ax=axes) is axes

    @pytest.mark.parametrize("wrong", [[-0.1], [math.nan], ["x"], [None]])
    def test_what_is_no_loss_is_refused(self, wrong: Any) -> None:
        with pytest.raises(dp.DataError):
            plot.per_instance(wrong)


class TestUtility:
    def test_means_and_their_errors(self) -> None:
        axes = plot.utility({10.0: 1.0, 0.1: [2.0, 4.0, 9.0]}, label="years", baseline=0.5)
        x, y = line(axes)
        assert list(x) == [0.1, 10.0]
        assert list(y) == [5.0, 1.0]
        (bars,) = axes.collections[0].get_segments()[:1]
        # by hand: deviations -3, -1, 4, so a variance of 13 and an error of sqrt(13/3)
        np.testing.assert_allclose(bars[:, 1], 5 + np.array([-1, 1]) * math.sqrt(13 / 3))
        assert "years" in axes.get_ylabel()
        assert axes.get_xscale() == "log"

    def test_several_are_distinguished_without_color(self) -> None:
        axes = plot.utility({"a": {1.0: 1.0}, "b": {1.0: 2.0}})
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["a", "b"]
        markers = {c.lines[0].get_marker() for c in axes.containers}
        assert len(markers) == 2

    @pytest.mark.parametrize(
        "wrong", [{}, {0.0: 1.0}, {math.inf: 1}, {1.0: []}, {1.0: [math.nan]}, {1.0: "x"}, {"a": 1}]
    )
    def test_what_is_no_measurement_is_refused(self, wrong: Any) -> None:
        with pytest.raises(dp.DeclarationError):
            plot.utility(wrong)

    def test_simulated_runs(self) -> None:
        """The mean of |Laplace(b)| is b, and b = 1 / epsilon; 60 runs are within 7 deviations."""
        free = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=dp.Free("b"))))

        def error(result: dp.Result) -> float:
            return abs(result["n"] - 300)

        given: dict[str, Any] = {"data": {"people": DATA}, "runs": 60, "seed": 5}
        simulated = plot.simulated(free, [0.5, 2.0], error, **given)
        for epsilon, scores in simulated.items():
            assert scores.shape == (60,)
            assert abs(scores.mean() - 1 / epsilon) < 7 / epsilon / math.sqrt(60)
        one = free.calibrate(0.5).simulate(seed=64, people=DATA)  # the last, by itself
        assert simulated[0.5][-1] == error(one)
        own = plot.simulated(lambda e: free.calibrate(e), [0.5], error, **given)
        np.testing.assert_array_equal(own[0.5], simulated[0.5])

    def test_simulated_refuses(self) -> None:
        given: dict[str, Any] = {"data": {"people": DATA}}
        for wrong in ({"runs": 0}, {"seed": -1}, {"runs": 1.5}):
            with pytest.raises(dp.DeclarationError, match=next(iter(wrong))):
                plot.simulated(LAPLACE, [1.0], float, **given, **wrong)  # type: ignore[arg-type]
        for epsilons in ([0.0], [1.0, 1.0], ["x"]):
            with pytest.raises(dp.DeclarationError, match="epsilons"):
                plot.simulated(lambda e: LAPLACE, epsilons, lambda r: 1.0, **given, runs=1)  # type: ignore[arg-type]
        with pytest.raises(dp.DeclarationError, match="Pipeline"):
            plot.simulated(lambda e: 3, [1.0], lambda r: 1.0, **given)  # type: ignore[arg-type,return-value]


class TestBudget:
    def test_steps_of_pure_losses_add_up(self) -> None:
        with dp.Session(budget=dp.Budget(1.0), accountant="basic", seed=0, people=DATA) as session:
            with pytest.raises(dp.DeclarationError):
                plot.budget(session)
            for scale in (10.0, 5.0, 4.0):
                session.run(PEOPLE.count().release(dp.Laplace(scale=scale)))
            axes = plot.budget(session)
            read = [reading.epsilon for reading in session.history()]
            assert read[-1] == session.epsilon
        for i in (0, 1):
            steps, spent = line(axes, i)
            assert list(steps) == [0, 1, 2, 3]
            np.testing.assert_allclose(spent, [0, 0.1, 0.3, 0.55], rtol=1e-9)
            assert np.all(spent[1:] >= np.array([0.1, 0.3, 0.55]) * (1 - 1e-15))

    def test_a_gaussian_filter_counts_squares(self) -> None:
        """Under Gaussian DP the share is of mu^2, the odometer's reading never falls."""
        with dp.Session(
            budget=dp.Budget(1.0, 1e-6), accountant="gaussian", seed=0, people=DATA
        ) as session:
            for sigma in (20.0, 20.0, 10.0):
                session.run(PEOPLE.count().release(dp.Gaussian(sigma=sigma)), name="n", again=False)
            shares = [r.share for r in session.history()]
            left = session.remaining.costs[0]
        assert len(shares) == 2  # the second was known
        assert shares[1] / shares[0] == pytest.approx(5.0, rel=1e-6)  # (1/400 + 1/100) / (1/400)
        assert (1 - shares[1]) / left == pytest.approx(shares[1] / (0.0125 + 0), rel=1e-3)

    def test_many_steps_are_numbered(self) -> None:
        with dp.Session(budget=dp.Budget(9.0), seed=0, people=DATA) as session:
            for i in range(14):
                session.run(PEOPLE.count().release(dp.Laplace(scale=20.0 + i)))
            axes = plot.budget(session)
        assert axes.get_xlabel() == "steps"

    def test_of_a_session_alone(self) -> None:
        with pytest.raises(dp.DeclarationError, match="Session"):
            plot.budget(LAPLACE)  # type: ignore[arg-type]


def one_audit() -> Audit:
    seen = Witness("a pair", "an event", 60, 40, 100)
    return Audit("a claim", 1.0, 0.0, 0.4, 0.0, 0.3, 0.95, 50, ("a pair",), seen, "consistent", 2.5)


def test_an_audit_is_drawn_with_its_claim() -> None:
    axes = plot.audit(one_audit())
    assert [line(axes, i)[0][1] for i in range(3)] == [0.4, 1.0, 2.5]
    with pytest.raises(dp.DeclarationError, match="audit"):
        plot.audit(LAPLACE)  # type: ignore[arg-type]


def test_nothing_is_global_and_axes_are_taken(tmp_path: Path) -> None:
    """No figure of pyplot's is made, and each function draws on the axes that it is given."""
    from matplotlib.figure import Figure

    def figures() -> list[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return [] if pyplot is None else pyplot.get_fignums()

    before = figures()  # of tests that drew with pyplot themselves
    with dp.Session(budget=dp.Budget(9.0), seed=0, people=DATA) as session:
        session.run(PEOPLE.count().release(dp.Laplace(scale=20.0)))
        for draw, value in (
            (plot.privacy_profile, LAPLACE),
            (plot.tradeoff, LAPLACE),
            (plot.shares, LAPLACE.certify()),
            (plot.per_instance, [0.1]),
            (plot.utility, {1.0: 2.0}),
            (plot.budget, session),
            (plot.audit, one_audit()),
        ):
            given = Figure().add_subplot()
            axes = draw(value, ax=given)  # type: ignore[operator]
            assert axes is given
            assert axes.get_title(loc="left")
            assert axes.get_xlabel() or draw is plot.budget
            file = tmp_path / "picture.png"
            plot.save(axes, file)
            assert file.stat().st_size > 1000
    assert figures() == before


def test_matplotlib_is_imported_when_something_is_drawn() -> None:
    code = (
        "import sys; from adaptive_dp import plot; assert 'matplotlib' not in sys.modules\n"
        "sys.modules['matplotlib.figure'] = None\n"
        "try: plot.utility({1.0: 2.0})\n"
        "except Exception as error: print(error)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert 'pip install "adaptive-dp[report]"' in process.stdout
