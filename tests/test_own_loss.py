"""A user's own loss: named, clipped like any other, and named in the certificate."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from attrs import frozen

import adaptive_dp as dp
from adaptive_dp.erm import losses as names

TABLE = dp.dataset("t", columns={"x": (-1.0, 1.0), "s": ["N", "P"]})


@frozen
class Savage(dp.Loss):
    """``1 / (1 + e^{s y z})^2``: bounded and not convex."""

    labels: ClassVar[str] = "sign"  # type: ignore[assignment]
    steepness: float = 1.0

    def slope(self, z: Any, y: Any) -> Any:
        p = 1 / (1 + np.exp(self.steepness * y * z))
        return -2 * self.steepness * y * p**2 * (1 - p)


@frozen
class Proven(dp.Logistic):
    """Declares all that objective perturbation needs; none of it is checked."""


@frozen
class Mixing(Savage):
    def slope(self, z: Any, y: Any) -> Any:
        return super().slope(z - z.mean(), y)


@frozen
class Flat(Savage):
    def slope(self, z: Any, y: Any) -> Any:
        return super().slope(z, y)[0]


@frozen
class Later(Savage):
    def slope(self, z: Any, y: Any) -> Any:
        slopes = super().slope(z, y)
        return slopes if z.shape[1] < 100 else slopes[0]


def plan(loss: dp.Loss, learner: Any = dp.NoisyGradientDescent) -> dp.Pipeline:
    made = TABLE.solve(learner(["x"], "s", loss=loss, steps=20))
    return dp.Pipeline(m=made).calibrate(epsilon=4.0, delta=1e-5)


def data(count: int = 3000) -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(-1, 1, count)
    return {"x": x, "s": np.where(x > 0.2, "P", "N")}


@pytest.mark.parametrize("learner", [dp.NoisyGradientDescent, dp.DPFTRL])
def test_it_learns_and_the_certificate_says_what_it_trusts(learner: Any) -> None:
    made = plan(Savage(steepness=2.0), learner)
    result = made.simulate(seed=1, t=data())
    model = result["m"]
    assert -model["intercept"] / model["x"] == pytest.approx(0.2, abs=0.15)
    trusted = [s for s in result.certificate.assumptions if "Savage" in s]
    assert len(trusted) == 1
    assert "by itself" in trusted[0]
    shipped = plan(dp.Logistic(), learner).certify()
    assert not [s for s in shipped.assumptions if "by itself" in s]
    assert shipped.epsilon == pytest.approx(result.certificate.epsilon)


def test_documents_name_it_and_bring_nothing() -> None:
    made = plan(Savage(steepness=2.0))
    text = made.to_json()
    assert f"{__name__}:Savage(steepness=2.0)" in text
    again = dp.load(text, allow=["adaptive_dp"])
    assert again.fingerprint == made.fingerprint
    assert dp.verify(made.certify())
    for name in ("no_such_module", "os", "antigravity"):
        other = text.replace(f"{__name__}:Savage", f"{name}:Savage")
        with pytest.raises(dp.PlanError, match=f"import {name}"):
            dp.load(other)


def test_what_is_no_loss_of_rows_is_refused() -> None:
    for loss in (Mixing(), Flat()):
        with pytest.raises(dp.DeclarationError):
            plan(loss)
    with pytest.raises(dp.RunError):
        plan(Later()).simulate(seed=0, t=data())


def test_what_needs_a_loss_to_be_true_takes_none_from_outside() -> None:
    with pytest.raises(ValueError, match="losses"):
        names.read(names.loss_string(Savage()))
    own = Proven()
    with pytest.raises(dp.DeclarationError, match="losses"):
        TABLE.solve(dp.ObjectivePerturbation(["x"], "s", loss=own), epsilon=1.0, delta=1e-5)
    with pytest.raises(dp.DeclarationError, match="losses"):
        TABLE.solve(dp.OutputPerturbation(["x"], "s", loss=own), epsilon=1.0, delta=1e-5)


def test_loss_strings_are_read_back() -> None:
    for loss in (Savage(steepness=0.25), dp.Huber(0.5), dp.Logistic()):
        assert names.read_any(names.loss_string(loss)) == loss
    for odd in (
        "x:y",
        "a b:Savage()",
        ":Savage()",
        f"{__name__}:Savage(1.0)",
        "m:__import__('os')",
    ):
        with pytest.raises(ValueError, match=re.escape(repr(odd))):
            names.read_any(odd)
    assert math.isfinite(Savage().steepness)
