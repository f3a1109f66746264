"""The attacks of this library's own suite, tried on other libraries too.

    PYTHON benchmarks/attacks.py run LIBRARY >FILE   # a line of JSON for each attack
    python benchmarks/attacks.py table FILE ...      # the table of docs/security.md

LIBRARY is one of adaptive_dp, opendp, diffprivlib, tumult; PYTHON an interpreter that has it, and
what adaptive_dp needs (numpy, scipy, attrs, networkx), since its auditor is used on all of them:
``pip install opendp diffprivlib 'scikit-learn<1.7' numpy scipy attrs networkx`` in one environment,
``pip install tmlt.analytics attrs networkx`` in another (Java 17 beside it). Set PYTHONPATH to the
root of the repository.

Each attack is a process of its own, ended after `LIMIT` seconds. What is printed was seen: "falls"
where the attack succeeded, "holds" where it was tried and did not, "refuses" where the library does
not do what was asked; an attack on what a library does not have is not run, and has a dash.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import copy
import json
import math
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

LIMIT = 900
SECRET = 271828.25
SIGMA = 3.7304
"""Of a Gaussian at (1, 1e-5), sensitivity 1 (Balle and Wang 2018), rounded down: no more noise."""

Spend = Callable[[float], None]
"""Spends an epsilon by a count; raises where it is refused."""


class Library:
    """What the attacks need of a library; what it does not have is None."""

    title = ""
    draws = 20_000
    few = 60
    laplace: Any = None  # (value, scale) -> a release of a number, sensitivity 1
    gaussian: Any = None  # the same at (1, 1e-5)
    of_epsilon: Any = None  # epsilon -> a mechanism, or an error
    mechanism: Any = None  # () -> (an object that can be copied, the release of 0 by it)
    total: Any = None  # (cells, low, high, epsilon) -> a noisy sum
    unbounded: Any = None  # (cells) -> a noisy sum without bounds
    session: Any = None  # (cells, epsilon) -> (an object, Spend)
    ledger: Any = None  # (cells, epsilon, path, create) -> (an object, Spend), kept in a file
    choose: Any = None  # (scores) -> the index that the exponential mechanism chooses, epsilon 1
    seeded: Any = None  # () -> two releases under one seed of the library's own, and what it says
    forge: Any = None  # () -> whether a forged certificate is believed


class AdaptiveDP(Library):
    """This library."""

    title = "adaptive_dp"

    def __init__(self) -> None:
        import adaptive_dp as dp
        from adaptive_dp.noise.stream import SecureStream

        self.dp, self.stream = dp, SecureStream()
        self.table = dp.dataset("t", columns={"x": (0, 1e6)})

    def _release(self, mechanism: Any, value: float) -> float:
        return float(mechanism.release(np.array(float(value)), self.stream))

    def laplace(self, value: float, scale: float = 1.0) -> float:
        return self._release(self.dp.Laplace(scale=scale), value)

    def gaussian(self, value: float) -> float:
        return self._release(self.dp.Gaussian(sigma=SIGMA), value)

    def of_epsilon(self, epsilon: float) -> Any:
        count = self.table.count().release(self.dp.Laplace(scale=self.dp.Free("b")))
        return self.dp.Pipeline(n=count).calibrate(epsilon=epsilon)

    def mechanism(self) -> Any:
        laplace = self.dp.Laplace(scale=1.0)
        plan = self.dp.Pipeline(n=self.table.count().release(laplace))
        return laplace, lambda _: plan.run(t={"x": []})["n"]

    def total(self, cells: Any, low: float, high: float, epsilon: float) -> float:
        table = self.dp.dataset("t", columns={"x": (low, high)})
        noise = self.dp.Laplace(scale=max(abs(low), abs(high)) / epsilon)
        plan = self.dp.Pipeline(s=table["x"].sum().release(noise))
        return float(plan.run(t={"x": cells})["s"])

    def unbounded(self, cells: Any) -> Any:
        table = self.dp.dataset("t", columns={"x": float})
        plan = self.dp.Pipeline(s=table["x"].sum().release(self.dp.Laplace(scale=1.0)))
        return plan.run(t={"x": cells})["s"]

    def _session(self, cells: Any, epsilon: float, **more: Any) -> Any:
        session = self.dp.Session(budget=self.dp.Budget(epsilon), t={"x": cells}, **more)

        def spend(part: float) -> None:
            seen = self.table.filter(self.table["x"] > random.random()).count()
            session.run(seen.release(self.dp.Laplace(scale=round(1 / part))))

        return session, spend

    def session(self, cells: Any, epsilon: float) -> Any:
        return self._session(cells, epsilon, accountant="basic")

    def ledger(self, cells: Any, epsilon: float, path: str, create: bool) -> Any:
        return self._session(cells, epsilon, accountant="basic", ledger=path, create=create)

    def choose(self, scores: Any) -> int:
        return int(self.dp.Exponential(scale=1.0).release(np.array(scores), self.stream))

    def seeded(self) -> Any:
        def run() -> Any:
            budget = self.dp.Budget(1.0)
            with self.dp.Session(budget=budget, t={"x": [1.0]}, seed=1) as session:
                out = session.run(self.table.count().release(self.dp.Laplace(scale=10)))
                return float(out), str(session.certificate())

        (one, said), (two, _) = run(), run()
        marked = "simulat" in said.lower() or "seed" in said.lower()
        return one, two, "the certificate says that it is a simulation" if marked else ""

    def forge(self) -> bool:
        plan = self.dp.Pipeline(n=self.table.count().release(self.dp.Laplace(scale=0.1)))
        cheap = self.dp.Pipeline(n=self.table.count().release(self.dp.Laplace(scale=10.0)))
        forged = json.loads(plan.certify().to_json())
        forged["claim"] = json.loads(cheap.certify().to_json())["claim"]
        try:
            return bool(self.dp.verify(self.dp.Certificate.from_json(json.dumps(forged))).holds)
        except Exception:
            return False


class OpenDP(Library):
    """OpenDP: the context's compositor, and single measurements."""

    title = "OpenDP"

    def __init__(self) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib", "honest-but-curious")
        self.dp = dp
        self.number = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        self.made: dict[Any, Any] = {}

    def laplace(self, value: float, scale: float = 1.0) -> float:
        if scale not in self.made:
            self.made[scale] = self.dp.m.make_laplace(*self.number, scale=scale)
        return float(self.made[scale](float(value)))

    def gaussian(self, value: float) -> float:
        if "gaussian" not in self.made:
            self.made["gaussian"] = self.dp.m.make_gaussian(*self.number, scale=SIGMA)
        return float(self.made["gaussian"](float(value)))

    def of_epsilon(self, epsilon: float) -> Any:
        return self.dp.m.make_laplace(*self.number, scale=1 / epsilon if epsilon else math.inf)

    def mechanism(self) -> Any:
        made = self.dp.m.make_laplace(*self.number, scale=1.0)
        return made, lambda each: each(0.0)

    def _context(self, cells: Any, epsilon: float, kind: type, split: int | None) -> Any:
        size = len(cells) if kind is float else None
        return self.dp.Context.compositor(
            data=cells,
            privacy_unit=self.dp.unit_of(contributions=2 if kind is float else 1),
            privacy_loss=self.dp.loss_of(epsilon=epsilon),
            domain=self.dp.vector_domain(
                self.dp.atom_domain(T=kind, **({"nan": False} if kind is float else {})), size=size
            ),
            **({"split_evenly_over": split} if split else {}),
        )

    def total(self, cells: Any, low: float, high: float, epsilon: float) -> float:
        kind = int if all(isinstance(c, int) for c in cells) else float
        context = self._context(cells, epsilon, kind, 1)
        bounds = (kind(low), kind(high))
        return float(context.query().clamp(bounds).sum().laplace().release())

    def unbounded(self, cells: Any) -> Any:
        return self._context(cells, 1.0, float, 1).query().sum().laplace().release()

    def session(self, cells: Any, epsilon: float) -> Any:
        context = self._context([int(c) for c in cells], epsilon, int, None)
        return context, lambda part: context.query(epsilon=part).count().laplace().release()

    def choose(self, scores: Any) -> int:
        if "max" not in self.made:
            domain = self.dp.vector_domain(self.dp.atom_domain(T=float, nan=False))
            self.made["max"] = self.dp.m.make_noisy_max(
                domain, self.dp.linf_distance(T=float), self.dp.max_divergence(), scale=1.0
            )
        return int(self.made["max"](scores))


class Diffprivlib(Library):
    """diffprivlib: mechanisms, tools and the budget accountant."""

    title = "diffprivlib"

    def __init__(self) -> None:
        from diffprivlib import BudgetAccountant, mechanisms, tools

        self.mechanisms, self.tools, self.accountant = mechanisms, tools, BudgetAccountant

    def laplace(self, value: float, scale: float = 1.0) -> float:
        # the scale is of the sensitivity; epsilon is 1
        return self.mechanisms.Laplace(epsilon=1.0, sensitivity=scale).randomise(float(value))

    def gaussian(self, value: float) -> float:
        return self.mechanisms.GaussianAnalytic(epsilon=1.0, delta=1e-5, sensitivity=1.0).randomise(
            float(value)
        )

    def of_epsilon(self, epsilon: float) -> Any:
        return self.mechanisms.Laplace(epsilon=epsilon, sensitivity=1.0).randomise(0.0)

    def mechanism(self) -> Any:
        return self.mechanisms.Laplace(epsilon=1.0, sensitivity=1.0), lambda m: m.randomise(0.0)

    def total(self, cells: Any, low: float, high: float, epsilon: float) -> float:
        return float(self.tools.sum(cells, epsilon=epsilon, bounds=(low, high)))

    def unbounded(self, cells: Any) -> Any:
        return self.tools.sum(cells, epsilon=1.0)

    def session(self, cells: Any, epsilon: float) -> Any:
        budget = self.accountant(epsilon=epsilon)
        return budget, lambda part: self.tools.histogram(
            cells, epsilon=part, bins=1, range=(0, 1e6), accountant=budget
        )

    def choose(self, scores: Any) -> int:
        made = self.mechanisms.Exponential(epsilon=1.0, sensitivity=1.0, utility=list(scores))
        return int(made.randomise())

    def seeded(self) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            one, two = (
                self.tools.sum([1.0], epsilon=1.0, bounds=(0, 1), random_state=1) for _ in range(2)
            )
        return one, two, "with a warning" if said else ""


class Tumult(Library):
    """Tumult: sessions of tmlt.analytics, mechanisms of tmlt.core."""

    title = "Tumult"
    few = 4

    def __init__(self) -> None:
        from tmlt.core.domains.numpy_domains import NumpyFloatDomain
        from tmlt.core.measurements.noise_mechanisms import AddGaussianNoise, AddLaplaceNoise

        self.domain, self.lap, self.gau = NumpyFloatDomain(), AddLaplaceNoise, AddGaussianNoise
        self.spark: Any = None

    def laplace(self, value: float, scale: float = 1.0) -> float:
        return float(self.lap(input_domain=self.domain, scale=_exact(scale))(np.float64(value)))

    def gaussian(self, value: float) -> float:
        made = self.gau(input_domain=self.domain, sigma_squared=_exact(SIGMA**2))
        return float(made(np.float64(value)))

    def of_epsilon(self, epsilon: float) -> Any:
        from tmlt.analytics import PureDPBudget

        return PureDPBudget(epsilon)

    def mechanism(self) -> Any:
        return self.lap(input_domain=self.domain, scale=1), lambda m: m(np.float64(0.0))

    def _open(self, cells: Any, epsilon: float) -> Any:
        import pandas as pd
        from pyspark.sql import SparkSession
        from tmlt.analytics import AddOneRow, PureDPBudget, Session

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if self.spark is None:
            built = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
            self.spark = built.config("spark.sql.shuffle.partitions", 1).getOrCreate()
            self.spark.sparkContext.setLogLevel("OFF")
        frame = self.spark.createDataFrame(pd.DataFrame({"x": cells}))
        return Session.from_dataframe(
            PureDPBudget(epsilon), "t", frame, protected_change=AddOneRow()
        )

    def total(self, cells: Any, low: float, high: float, epsilon: float) -> float:
        from tmlt.analytics import PureDPBudget, QueryBuilder

        query = QueryBuilder("t").sum("x", low, high)
        (row,) = self._open(cells, epsilon).evaluate(query, PureDPBudget(epsilon)).collect()
        return float(row[0])

    def unbounded(self, cells: Any) -> Any:
        from tmlt.analytics import QueryBuilder

        return QueryBuilder("t").sum("x")  # type: ignore[call-arg]

    def session(self, cells: Any, epsilon: float) -> Any:
        from tmlt.analytics import PureDPBudget, QueryBuilder

        session = self._open(cells, epsilon)

        def spend(part: float) -> None:
            budget = PureDPBudget(part)
            session.evaluate(QueryBuilder("t").count(), budget).collect()

        return session, spend


def _exact(number: float) -> Any:
    """Return a decimal as Tumult's exact numbers want it."""
    import sympy

    return sympy.Rational(repr(number)) if math.isfinite(number) else number


LIBRARIES: dict[str, type[Library]] = {
    "adaptive_dp": AdaptiveDP,
    "opendp": OpenDP,
    "diffprivlib": Diffprivlib,
    "tumult": Tumult,
}

# -----------------------------------------------------------------------------
# Attacks. Each returns what was seen, or None where there is nothing to attack.

Seen = str | None


def falls(condition: bool, how: str = "", otherwise: str = "") -> str:
    """Return the word of an attack that succeeded or not, and what was seen."""
    word, more = ("falls", how) if condition else ("holds", otherwise)
    return f"{word}: {more}" if more else word


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return the result of a call and the exception that it raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(), None
    except Exception as error:
        return None, error


def _bits(release: Callable[[float], float], draws: int, claim: Any) -> Seen:
    from adaptive_dp import audit
    from adaptive_dp.testing.checks import low_bits

    def sampler(value: float) -> Any:
        return lambda count, _: low_bits(np.array([[release(value)] for _ in range(count)]))

    # of the values, the last alone has bits below those of a sum with it
    sides = [audit.Neighbors(f"0 against {v:g}", sampler(0.0), sampler(v)) for v in (1.0, 1 / 3)]
    found = audit.distinguish(sides, claim, samples=draws, confidence=1 - 1e-6)
    shown = f"epsilon {found.epsilon_lower:.1f} shown of 1 claimed"
    return falls(found.verdict == "violation", shown)


def laplace_bits(library: Any) -> Seen:
    """Low bits of Laplace noise (Mironov 2012), epsilon 1."""
    return _bits(library.laplace, library.draws, 1.0)


def gaussian_bits(library: Any) -> Seen:
    """Low bits of Gaussian noise, (1, 1e-5)."""
    return _bits(library.gaussian, library.draws, (1.0, 1e-5))


def absorbed(library: Any) -> Seen:
    """Noise of scale 1 beside a value of 2^53."""
    values = {library.laplace(2.0**53) for _ in range(60)}
    return falls(len(values) == 1, "every release is the value")


def large_sum(library: Any) -> Seen:
    """A sum with bounds 2^52 and 2^52 + 1 (Casacuberta and others 2022)."""
    cells = [2.0**52, 2.0**52 + 1] * 5
    seen = {library.total(cells, 2.0**52, 2.0**52 + 1, 1.0) for _ in range(library.few)}
    return falls(len(seen) < min(4, library.few - 1), f"{len(seen)} values in {library.few} runs")


def order(library: Any) -> Seen:
    """A sum of floats in another order, epsilon 1e12."""
    cells = [1e16, 1.0, -1e16, 3.0, 0.1] * 9
    rng = random.Random(1)
    runs = []
    for _ in range(min(library.few, 12)):
        rng.shuffle(cells)
        runs.append(library.total(list(cells), -1e16, 1e16, 1e12))
    # 12 draws of Laplace noise of scale 2e4 stay within 40 scales but once in 1e15 times
    spread = max(runs) - min(runs)
    return falls(spread > 80 * 2e4, f"sums {spread:.3g} apart beside noise of 1e4")


def overflow(library: Any) -> Seen:
    """A sum of integers beyond 2^63, epsilon 100."""
    cells, top = [2**62] * 3, 2**62
    runs = [library.total(cells, 0, top, 100.0) for _ in range(3)]
    wrapped = all(abs(each - 3.0 * top) > top for each in runs)
    return falls(wrapped, "it wraps around", "saturated or exact")


def _odd_cell(library: Any, cell: float) -> Seen:
    runs = [library.total([0.5] * 30 + [cell], 0.0, 1.0, 1.0) for _ in range(min(library.few, 9))]
    broken = not all(map(math.isfinite, runs))
    return falls(broken, f"the release is {runs[0]}")


def nan_row(library: Any) -> Seen:
    """One row with NaN."""
    return _odd_cell(library, math.nan)


def inf_row(library: Any) -> Seen:
    """One row with infinity."""
    return _odd_cell(library, math.inf)


def negative_zero(library: Any) -> Seen:
    """A sum of -0.0 against one of 0.0: the sign of a released zero, epsilon 1e6."""
    signs = [
        {math.copysign(1.0, v) for v in runs if v == 0}
        for runs in (
            [library.total([zero] * 3, -1.0, 1.0, 1e6) for _ in range(min(library.few, 30))]
            for zero in (0.0, -0.0)
        )
    ]
    return falls(bool(signs[0] and signs[1] and signs[0] != signs[1]), "the sign tells")


def odd_epsilon(library: Any) -> Seen:
    """An epsilon of NaN, of 0, of -1."""
    taken = []
    for epsilon in (math.nan, 0.0, -1.0):
        _, error = attempt(lambda e=epsilon: library.of_epsilon(e))  # type: ignore[misc]
        if error is None:
            taken.append(f"{epsilon:g}")
    return falls(bool(taken), f"takes {' and '.join(taken)}", "all refused")


def extreme(library: Any) -> Seen:
    """A value and a scale of 1.7e308: an end within 25 seconds."""
    begun = time.monotonic()
    value, error = attempt(lambda: library.laplace(1.7e308, 1.7e308))
    seconds = time.monotonic() - begun
    if error is not None and seconds < 25:
        return f"refuses: {type(error).__name__}"
    bad = seconds > 25 or math.isnan(value)
    return falls(bad, f"{value} in {seconds:.0f} s")


def global_seed(library: Any) -> Seen:
    """Global seeds of NumPy and of Python."""
    runs = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - what must not matter
        random.seed(0)
        runs.append([library.laplace(0.0) for _ in range(8)])
    return falls(runs[0] == runs[1], "the same noise")


def own_seed(library: Any) -> Seen:
    """One seed given to two releases of real data."""
    one, two, said = library.seeded()
    return falls(
        one == two and not said, "the same noise", f"the same noise; {said}" if said else ""
    )


def forked(library: Any) -> Seen:
    """Noise in two forked processes and their parent."""
    from adaptive_dp.testing.checks import in_a_child

    library.laplace(0.0)
    runs = [in_a_child(lambda: [library.laplace(0.0) for _ in range(20)]) for _ in range(2)]
    runs.append([library.laplace(0.0) for _ in range(20)])
    alike = max(len(set(a) & set(b)) for a, b in ((runs[0], runs[1]), (runs[0], runs[2])))
    return falls(alike > 2, f"{alike} of 20 draws are equal")


def copied(library: Any) -> Seen:
    """Noise of a copied or pickled mechanism."""
    made, release = library.mechanism()
    same, refused = False, 0
    for copier in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        again, error = attempt(lambda c=copier: c(made))  # type: ignore[misc]
        refused += error is not None
        if error is None:
            same |= [release(made) for _ in range(8)] == [release(again) for _ in range(8)]
    return "refuses: no copy" if refused == 2 else falls(same, "the same noise")


def shown(library: Any) -> Seen:
    """Data in what a session shows: repr, str, its public attributes, pickle."""
    held, spend = library.session([SECRET] * 5, 1.0)
    spend(0.5)
    texts = {"repr": repr(held), "str": str(held)}
    for name in ("queryable", "__dict__", "accountant"):
        texts[name] = repr(getattr(held, name, ""))
    inner = getattr(held, "queryable", None) or getattr(held, "_queryable", None)
    texts["the queryable's vars"] = repr(vars(inner)) if hasattr(inner, "__dict__") else ""
    texts["the queryable's document"] = repr(getattr(inner, "__opendp_dict__", ""))
    pickled, _ = attempt(lambda: pickle.dumps(held))
    texts["pickle"] = repr(pickled)
    where = [name for name, text in texts.items() if "271828" in text]
    return falls(bool(where), f"in {', '.join(where)}")


def echoed(library: Any) -> Seen:
    """A cell of text among numbers, in the message of an error."""
    value, error = attempt(lambda: library.total([0.5, "271828-Ada", 0.5], 0.0, 1.0, 1.0))
    if error is None:
        return f"holds: releases {value is not None and 'a number'}"
    chain, told = error, False
    while chain is not None:
        told |= "271828" in str(chain)
        chain = chain.__cause__ or chain.__context__  # type: ignore[assignment]
    return falls(told, "the message has the cell", type(error).__name__)


class Sly(float):
    """A number that answers no question without telling what it is."""

    def _tell(self, *_: Any) -> Any:
        raise ValueError(f"I am {float.__repr__(self)}")

    __repr__ = __str__ = __float__ = __eq__ = __lt__ = __le__ = __gt__ = _tell
    __ge__ = __hash__ = __int__ = __add__ = __radd__ = __round__ = _tell


def subclass(library: Any) -> Seen:
    """A number of a subclass whose methods raise what they hold."""
    _, error = attempt(lambda: library.total([0.5] * 5 + [Sly(SECRET)], 0.0, 1.0, 1.0))
    if error is None:
        return "holds: read as a number, or as missing"
    return falls("271828" in str(error), "the message has the cell", type(error).__name__)


def neighbours(library: Any) -> Seen:
    """A sum of one integer of [10, 11], against that of none: a row added, epsilon 1."""
    from adaptive_dp import audit

    one, two = [10, 11], [10]
    calls = 400
    found = audit.callable(
        lambda cells: library.total(cells, 10, 11, 1.0),
        one,
        1.0,
        pairs=[(one, two)],
        samples=calls,
        confidence=1 - 1e-6,
    )
    return falls(found.verdict == "violation", f"epsilon {found.epsilon_lower:.1f} shown")


def _granted(spend: Spend, part: float, tries: int) -> int:
    return sum(attempt(lambda: spend(part))[1] is None for _ in range(tries))


def drift(library: Any) -> Seen:
    """Fourteen tenths asked of a budget of 1."""
    _, spend = library.session([1.0] * 9, 1.0)
    granted = _granted(spend, 0.1, 14)
    return falls(granted > 10, f"{granted} granted", f"{granted} granted")


def threads(library: Any) -> Seen:
    """Forty threads that ask for a tenth each."""
    _, spend = library.session([1.0] * 9, 1.0)
    granted: list[int] = []
    start = threading.Barrier(40)

    def ask() -> None:
        start.wait()
        granted.append(_granted(spend, 0.1, 1))

    workers = [threading.Thread(target=ask) for _ in range(40)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    sys.setswitchinterval(switch)
    return falls(sum(granted) > 10, f"{sum(granted)} granted", f"{sum(granted)} granted")


def forked_budget(library: Any) -> Seen:
    """Two forked processes that spend the same budget."""
    from adaptive_dp.testing.checks import in_a_child

    with tempfile.TemporaryDirectory() as folder:
        _, spend = _kept(library, f"{folder}/a.db", True)
        granted = [in_a_child(lambda: _granted(spend, 0.1, 12)) for _ in range(2)]
        total = sum(g or 0 for g in granted)
    return falls(total > 10, f"{total} granted of 10", f"{total} granted of 10")


def _kept(library: Any, path: str, create: bool) -> Any:
    """Return a session whose budget is kept, where the library keeps one, or one in memory."""
    if library.ledger is not None:
        return library.ledger([1.0] * 9, 1.0, path, create)
    return library.session([1.0] * 9, 1.0)


def twice(library: Any) -> Seen:
    """A budget of 1 made twice for the same data."""
    with tempfile.TemporaryDirectory() as folder:
        total = 0
        for create in (True, False):
            _, spend = _kept(library, f"{folder}/a.db", create)
            total += _granted(spend, 0.5, 3)
    return falls(total > 2, f"{total} of 2 halves granted", f"{total} of 2 halves granted")


def hard_link(library: Any) -> Seen:
    """A ledger's file opened by another name."""
    with tempfile.TemporaryDirectory() as folder:
        _, spend = library.ledger([1.0] * 9, 1.0, f"{folder}/a.db", True)
        total = _granted(spend, 0.5, 1)
        os.link(f"{folder}/a.db", f"{folder}/b.db")
        opened, error = attempt(lambda: library.ledger([1.0] * 9, 1.0, f"{folder}/b.db", False))
        total += _granted(opened[1], 0.5, 3) if error is None else 0
        total += _granted(spend, 0.5, 3)
    return falls(total > 2, f"{total} of 2 halves granted", f"{total} of 2 halves granted")


def missing_ledger(library: Any) -> Seen:
    """A ledger's path that is mistyped."""
    with tempfile.TemporaryDirectory() as folder:
        library.ledger([1.0] * 9, 1.0, f"{folder}/a.db", True)
        _, error = attempt(lambda: library.ledger([1.0] * 9, 1.0, f"{folder}/b.db", False))
    return falls(error is None, "a fresh budget", type(error).__name__ if error else "")


def no_bounds(library: Any) -> Seen:
    """A sum of a column without bounds."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            library.unbounded([1.0, 2.0, 900.0])
        except Exception as error:
            return f"refuses: {type(error).__name__}"
    warned = ", with a warning" if said else ""
    return f"falls: the data's bounds are used{warned}"


def ties(library: Any) -> Seen:
    """Two candidates of equal score: which is chosen, of 4,000 times."""
    first = sum(library.choose([1.0, 1.0]) == 0 for _ in range(4_000))
    # five standard deviations: one in 1.7 million
    return falls(abs(first - 2_000) > 5 * math.sqrt(1_000), f"the first {first} times")


def forged(library: Any) -> Seen:
    """A certificate with the claim of a cheaper plan."""
    return falls(library.forge(), "believed")


ATTACKS: dict[str, tuple[str, Callable[[Any], Seen]]] = {
    "laplace": ("low bits of Laplace noise", laplace_bits),
    "gaussian": ("low bits of Gaussian noise", gaussian_bits),
    "laplace ": ("noise beside a value of 2^53", absorbed),
    "total": ("a sum with bounds near 2^52", large_sum),
    "total ": ("a sum of floats in another order", order),
    "total  ": ("a sum of integers beyond 2^63", overflow),
    "total   ": ("one row with NaN", nan_row),
    "total    ": ("one row with infinity", inf_row),
    "total     ": ("negative zero", negative_zero),
    "total      ": ("a row added, bounds [10, 11]", neighbours),
    "unbounded": ("a sum without bounds", no_bounds),
    "choose": ("candidates that tie", ties),
    "of_epsilon": ("an epsilon of NaN, 0 or -1", odd_epsilon),
    "laplace  ": ("value and scale 1.7e308", extreme),
    "laplace   ": ("global seeds", global_seed),
    "seeded": ("one seed for two releases", own_seed),
    "laplace    ": ("noise after a fork", forked),
    "mechanism": ("noise of a copy", copied),
    "session": ("data in what a session shows", shown),
    "total       ": ("a cell of text in an error", echoed),
    "total        ": ("a number whose methods raise", subclass),
    "session ": ("fourteen tenths of a budget", drift),
    "session  ": ("forty threads, one budget", threads),
    "session   ": ("two forks, one budget", forked_budget),
    "session    ": ("a budget made twice", twice),
    "ledger": ("a hard link of the ledger", hard_link),
    "ledger ": ("a mistyped ledger", missing_ledger),
    "forge": ("a forged certificate", forged),
}
"""By what each needs of a library: its title and function."""

SLOW = {"tumult": {"a row added, bounds [10, 11]": "not run: 5 s a release"}}


def run(name: str) -> None:
    """Print a line for each attack on a library."""
    for need, (title, attack) in ATTACKS.items():
        if getattr(LIBRARIES[name], need.strip()) is None:
            seen = "-"
        elif title in SLOW.get(name, {}):
            seen = SLOW[name][title]
        else:
            command = [sys.executable, __file__, "one", name, attack.__name__]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=LIMIT, check=False
                )
                lines = [e for e in done.stdout.splitlines() if e.startswith("SEEN ")]
                last = (done.stderr.strip().splitlines() or ["no output"])[-1]
                seen = lines[-1][5:] if lines else f"error: {last[:150]}"
            except subprocess.TimeoutExpired:
                seen = f"falls: no end in {LIMIT} s" if attack is extreme else "not run: too slow"
        print(json.dumps({"library": name, "attack": title, "seen": seen}), flush=True)


def one(name: str, attack: str) -> None:
    """Try one attack in this process."""
    warnings.simplefilter("ignore")
    library = LIBRARIES[name]()
    try:
        seen = globals()[attack](library)
    except Exception as error:
        # what was asked for is not done: an error is visible, and no number is released
        seen = f"refuses: {type(error).__name__}"
        print(f"{error}"[:2000], file=sys.stderr)
    print(f"SEEN {seen}", flush=True)
    os._exit(0)  # neither Spark nor threads hold the process


def table(files: list[str]) -> None:
    """Print the table of what was seen."""
    seen = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            row = json.loads(line)
            seen[row["attack"], row["library"]] = row["seen"]
    names = [n for n in LIBRARIES if any(library == n for _, library in seen)]
    print("| attack | " + " | ".join(LIBRARIES[n].title for n in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for title, _ in ATTACKS.values():
        cells = (seen.get((title, n), "-") for n in names)
        print(f"| {title} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "run":
        run(rest[0])
    elif verb == "one":
        one(*rest)
    else:
        table(rest)
