"""Measurements of OpenDP in plans: what they promise, and what does not fit."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.interop.opendp import OpenDP, from_opendp

odp: Any = pytest.importorskip("opendp.prelude")
odp.enable_features("contrib")

PEOPLE = dp.dataset("people", columns={"x": (0, 10), "region": ["A", "B", "C"]})
DATA = {"x": np.linspace(0, 10, 500), "region": np.array(["A", "B"] * 250)}
F64, I64 = (odp.atom_domain(T=float, nan=False), odp.atom_domain(T="i64"))
NEAR = odp.absolute_distance(T=float)


def vectors(atom: Any = F64, **size: int) -> Any:
    return odp.vector_domain(atom, **size)


def laplace(scale: float = 2.0) -> Any:
    return odp.m.make_laplace(F64, NEAR, scale=scale)


def gaussian(scale: float = 4.0, **size: int) -> Any:
    return odp.m.make_gaussian(vectors(**size), odp.l2_distance(T=float), scale=scale)


def certified(query: Any, measurement: Any, delta: float = 0.0) -> dp.Certificate:
    return dp.Pipeline(n=query.release(from_opendp(measurement))).certify(delta)


class TestPromises:
    def test_a_laplace_measurement_costs_what_ours_does(self) -> None:
        certificate = certified(PEOPLE["x"].sum(), laplace(20.0))
        assert certificate.epsilon == pytest.approx(0.5, rel=1e-9)  # 10 / 20
        assert certificate.epsilon >= 0.5
        (row,) = certificate.third_party
        assert (row.kind, row.distribution) == ("library", "opendp")
        assert row.version == version("opendp")
        assert any("What opendp computes" in text for text in certificate.assumptions)

    def test_distances_are_those_of_the_relation(self) -> None:
        """A histogram's l2 distance is 1 where a row comes, sqrt(2) where it is exchanged."""
        for neighbors, square in (("add_remove", 1.0), ("replace_one", 2.0)):
            people = dp.dataset("people", columns={"region": ["A", "B"]}, neighbors=neighbors)  # type: ignore[arg-type]
            certificate = certified(people["region"].histogram(), gaussian(4.0), 1e-6)
            truth = dp.Pipeline(
                n=people["region"].histogram().release(dp.Gaussian(sigma=4.0))
            ).certify(1e-6, accountants=[accountants.Concentrated()])
            assert certificate.bounds["concentrated"].upper == pytest.approx(
                truth.epsilon, rel=1e-4
            )
            mechanism = from_opendp(gaussian(4.0))
            assert mechanism.norm == 2
            loss = mechanism.loss(math.sqrt(square))
            assert loss.rho() == pytest.approx(square / 32, rel=1e-12)
            assert loss.rho() >= square / 32 * (1 - 1e-15)

    def test_a_fixed_delta(self) -> None:
        fixed = odp.c.make_fix_delta(odp.c.make_zCDP_to_approxDP(gaussian(size=3)), 1e-6)
        loss = from_opendp(fixed).loss(1.0)
        assert isinstance(loss, accountants.Approximate)
        assert (loss.epsilon, loss.delta) == fixed.map(1.0)
        # never below the truth, Balle & Wang's Gaussian
        assert (
            loss.epsilon
            >= accountants.certify(accountants.Spend(accountants.Gaussian(0.25)), 1e-6)[
                "gaussian"
            ].bounds.lower
        )  # type: ignore[union-attr]

    def test_integers(self) -> None:
        counts = odp.m.make_laplace(vectors(I64), odp.l1_distance(T="i64"), scale=4.0)
        assert certified(PEOPLE["region"].histogram(), counts).epsilon == pytest.approx(0.25)
        mechanism = from_opendp(counts)
        assert mechanism.loss(1.5) == mechanism.loss(1.0)  # whole vectors are no 1.5 apart
        assert mechanism.loss(2.0) == accountants.Pure(0.5)

    def test_a_run(self) -> None:
        """500 rows, noise of scale 2: farther than 80 with probability e^-40."""
        plan = dp.Pipeline(
            n=PEOPLE.count().release(from_opendp(laplace())),
            bins=PEOPLE["region"].histogram().release(from_opendp(gaussian(size=3))),
        ).with_delta(1e-6)
        result = plan.run(people=DATA)
        assert abs(result["n"] - 500) < 80
        assert np.abs(result["bins"] - [250, 250, 0]).max() < 40
        assert result["n"] != 500

    def test_documents_by_permission(self) -> None:
        plan = dp.Pipeline(n=PEOPLE.count().release(from_opendp(laplace())))
        with pytest.raises(dp.DocumentError, match="allow"):
            dp.load(plan.to_json())
        assert dp.load(plan.to_json(), allow=["opendp"]).fingerprint == plan.fingerprint
        verdict = dp.verify(dp.Certificate.from_json(plan.certify().to_json()), allow=["opendp"])
        assert verdict.holds
        assert any("opendp" in note for note in verdict.notes)


def small() -> Any:
    return odp.m.make_laplace(
        vectors(odp.atom_domain(T="i32")), odp.l1_distance(T="i32"), scale=1.0
    )


def noisy_max() -> Any:
    return odp.m.make_noisy_max(
        vectors(), odp.linf_distance(T=float), odp.max_divergence(), scale=1.0
    )


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda: small(), "i64"),
            (lambda: odp.m.make_randomized_response_bool(0.6), "metric"),
            (lambda: odp.c.make_zCDP_to_approxDP(gaussian()), "make_fix_delta"),
            (lambda: odp.c.make_approximate(gaussian()), "measure"),
            (lambda: noisy_max(), "metric"),
            (lambda: 3, "Measurement"),
        ],
    )
    def test_measurements_that_do_not_fit(self, make: Any, why: str) -> None:
        with pytest.raises(dp.DeclarationError, match=why):
            from_opendp(make())

    def test_a_measurement_on_data_sets(self) -> None:
        rows = odp.vector_domain(odp.atom_domain(T=float, nan=False)), odp.symmetric_distance()
        counted = odp.t.make_count(*rows, TO="i64") >> odp.m.then_laplace(scale=1.0)
        with pytest.raises(dp.DeclarationError):
            from_opendp(counted)

    def test_a_function_of_ones_own(self) -> None:
        odp.enable_features("honest-but-curious")
        own = odp.m.make_user_measurement(
            F64, NEAR, odp.max_divergence(), lambda v: v, lambda d: 0.0, TO=float
        )
        with pytest.raises(dp.DeclarationError, match="JSON"):
            from_opendp(own)

    def test_queries_that_do_not_fit(self) -> None:
        integers = odp.m.make_laplace(I64, odp.absolute_distance(T="i64"), scale=4.0)
        for query, measurement, why in (
            (PEOPLE["x"].sum(), integers, "integers"),
            (PEOPLE["region"].histogram(), laplace(), "number"),
            (PEOPLE["region"].histogram(), gaussian(size=2), r"\b3\b"),
        ):
            with pytest.raises(dp.DeclarationError, match=why):
                certified(query, measurement, 1e-6)
        assert certified(PEOPLE.count(), integers).epsilon == pytest.approx(0.25)

    def test_documents_call_constructors_alone(self) -> None:
        good = json.loads(from_opendp(laplace()).measurement)
        for change in (
            {"__module__": "_lib", "__function__": "unwrap"},
            {"__module__": "measurements.os", "__function__": "make_x"},
            {"__function__": "importlib"},
            {"__module__": "domains", "__function__": "unwrap"},
            {"__module__": "domains", "__function__": "_domain_free"},
            {"__module__": 3},
            {"__expr__": "x"},
        ):
            with pytest.raises(dp.DeclarationError):
                OpenDP(measurement=json.dumps({**good, **change}))
        for wrong in ("{", 3, "[]"):
            with pytest.raises(dp.DeclarationError, match="measurement"):
                OpenDP(measurement=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_no_total_is_too_large_to_be_released(rows: int) -> None:
    """A failure where the total leaves 64 bits would tell whether one more row is there."""
    people = dp.dataset("people", columns={"x": (0, 2**61)})
    integers = odp.m.make_laplace(I64, odp.absolute_distance(T="i64"), scale=2.0)
    plan = dp.Pipeline(n=people["x"].sum().release(from_opendp(integers)))
    released = plan.simulate(seed=1, people={"x": [2.0**61] * rows})["n"]
    assert released == pytest.approx(min(rows * 2.0**61, 2.0**63), rel=1e-12)
