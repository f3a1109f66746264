"""How often audits by one run flag broken descents, and correct ones.

    python -m benchmarks.audit_one_run

2,000 canaries of orthogonal gradients, for two descents: 20 steps of all rows with noise of four
clipping norms (epsilon 4.98 at delta 1e-5 for each canary), and 100 steps of Poisson samples of a
tenth with noise of one (epsilon 7.05). Beside each figure stands that of an independent prototype.
Then the library's own `NoisySGD`, its declared noise and less of it, by `audit.planted`. Counts are
of 25 repeats, or of 10, at confidence 0.95.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import frozen
from scipy.linalg import hadamard

import adaptive_dp as dp
from adaptive_dp import audit

CANARIES, REPEATS, PLANS = 2000, 25, 10


@frozen
class Descent:
    """Noise of ``sigma`` clipping norms, and the chance of a row to be in a step."""

    steps: int
    sigma: float
    rate: float
    claim: tuple[float, float]

    def train(
        self,
        rng: Any,
        *,
        noise: float = 1.0,
        length: float = 1.0,
        once: bool = False,
        shared: bool = False,
    ) -> Callable[[Any], Any]:
        """Return the sums of updates along the canaries' gradients, for who is in."""

        def train(included: Any) -> Any:
            m = len(included)
            size = (1 if once else self.steps, 1 if shared else m)
            drawn = rng.normal(0.0, noise * self.sigma, size).sum(axis=0)
            return length * included * rng.binomial(self.steps, self.rate, m) + drawn

        return train


DESCENTS = {
    "sigma 4, 20 steps, all rows (4.98)": Descent(20, 4.0, 1.0, (4.98, 1e-5)),
    "sigma 1, 100 steps, a tenth (7.05)": Descent(100, 1.0, 0.1, (7.05, 1e-5)),
}
BROKEN: dict[str, dict[str, Any]] = {
    "none": {},
    "half noise": {"noise": 0.5},
    "no clip (norm 3)": {"length": 3.0},
    "noise only once": {"once": True},
    "noise shared by coordinates": {"shared": True},
}
PROTOTYPE = {
    "sigma 4, 20 steps, all rows (4.98)": ["0, 1", "0, 25", "2, 25", "25, 25", "25, 25"],
    "sigma 1, 100 steps, a tenth (7.05)": ["0, 0", "0, 22", "0, 25", "0, 25", "0, 25"],
}
"""Flagged by the theorem, and by the reading as Gaussian DP."""


def flags(result: audit.Audit) -> tuple[bool, bool]:
    """Return whether an audit flags by the theorem, and by the reading as Gaussian DP."""
    limit = audit.canaries.gaussian_mu(result.epsilon, result.delta)
    return result.verdict == "violation", result.mu_lower > limit


def learners() -> None:
    """Print how often the library's NoisySGD is flagged, by the noise that it leaves out."""
    width = 512
    names = [f"x{i}" for i in range(width)]
    people = dp.dataset("people", columns={**dict.fromkeys(names, (-1, 1)), "y": ["no", "yes"]})
    x = hadamard(width).astype(float)
    canaries = {name: x[:, i] for i, name in enumerate(names)}
    canaries["y"] = np.where(np.arange(width) % 2, "yes", "no")
    honest = dp.Gaussian.release
    print(
        f"\n{'NoisySGD, epsilon 1':36s}" + "".join(f"{'1/' + str(k):>12s}" for k in (1, 2, 5, 20))
    )
    for title, rate, steps in (("20 steps, all rows", 1.0, 20), ("50 steps, a tenth", 0.1, 50)):
        learner = dp.NoisySGD(features=names, target="y", steps=steps, sampling_rate=rate)
        model = people.solve(learner, epsilon=1.0, delta=1e-5)
        plan = dp.Pipeline(model=model).with_delta(1e-5)
        cells = []
        for factor in (1, 2, 5, 20):

            def less(self: Any, value: Any, stream: Any, factor: int = factor) -> Any:
                return honest(dp.Gaussian(sigma=self.sigma / factor), value, stream)

            dp.Gaussian.release = less  # type: ignore[method-assign]
            try:
                seen = [flags(audit.planted(plan, canaries, seed=s)) for s in range(PLANS)]
            finally:
                dp.Gaussian.release = honest  # type: ignore[method-assign]
            cells.append("{}, {}".format(*np.sum(seen, axis=0)))
        print(f"{title:36s}" + "".join(f"{cell:>12s}" for cell in cells))


def main() -> None:
    """Print the tables: flagged by the theorem, by the reading as Gaussian DP."""
    rng = np.random.default_rng(1)
    for title, descent in DESCENTS.items():
        print(f"{title:36s}{'here':>12s}{'prototype':>12s}  (of {REPEATS})")
        for (name, broken), other in zip(BROKEN.items(), PROTOTYPE[title], strict=True):
            made = (descent.train(rng, **broken) for _ in range(REPEATS))
            seen = [
                flags(audit.one_run(train, CANARIES, descent.claim, seed=seed))
                for seed, train in enumerate(made)
            ]
            print(f"{name:36s}{'{}, {}'.format(*np.sum(seen, axis=0)):>12s}{other:>12s}")
    learners()


if __name__ == "__main__":
    main()
