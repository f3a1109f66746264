"""Modules named diffprivlib with its signatures, for where it is not installed.

The trace knows other libraries by the names of their functions; so the notebooks of
`traced_notebooks` can be read without the library itself. The noise is made up. Where diffprivlib
is installed, the tests use it.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np

SOURCES = {
    "accountant": """
class BudgetAccountant:
    _default = None

    def __init__(self, epsilon=float("inf"), delta=1.0, slack=0.0, spent_budget=None):
        self.epsilon, self.delta, self.spent_budget = epsilon, delta, list(spent_budget or [])

    def spend(self, epsilon, delta):
        self.spent_budget.append((epsilon, delta))

    def total(self):
        return sum(e for e, _ in self.spent_budget), 0.0

    def remaining(self):
        return self.epsilon - self.total()[0], self.delta

    def set_default(self):
        BudgetAccountant._default = self
        return self
""",
    "tools": """
import numpy as np
from diffprivlib.accountant import BudgetAccountant

def _spend(epsilon, accountant):
    accountant = accountant or BudgetAccountant._default
    if accountant is not None:
        accountant.spend(epsilon, 0)

def mean(array, epsilon=1.0, bounds=None, axis=None, random_state=None, accountant=None):
    _spend(epsilon, accountant)
    return np.float64(np.mean(np.asarray(array, dtype=float)) + 0.25)

def sum(array, epsilon=1.0, bounds=None, axis=None, random_state=None, accountant=None):
    _spend(epsilon, accountant)
    return np.float64(np.sum(np.asarray(array, dtype=float)) + 0.25)

def var(array, epsilon=1.0, bounds=None, axis=None, random_state=None, accountant=None):
    _spend(epsilon, accountant)
    return np.float64(np.var(np.asarray(array, dtype=float)) + 0.25)

def median(array, epsilon=1.0, bounds=None, axis=None, random_state=None, accountant=None):
    _spend(epsilon, accountant)
    return np.float64(np.median(np.asarray(array, dtype=float)) + 0.25)

def histogram(sample, epsilon=1.0, bins=10, range=None, weights=None, density=None,
              random_state=None, accountant=None):
    _spend(epsilon, accountant)
    counts, edges = np.histogram(np.asarray(sample, dtype=float), bins=bins, range=range)
    return counts + 1, edges
""",
    "mechanisms": """
class Laplace:
    def __init__(self, *, epsilon, delta=0.0, sensitivity, random_state=None):
        self.epsilon, self.delta, self.sensitivity = epsilon, delta, sensitivity

    def randomise(self, value):
        return float(value) + 0.25

class Geometric(Laplace):
    def randomise(self, value):
        return int(value) + 1

class Binary:
    def __init__(self, *, epsilon, value0, value1, random_state=None):
        self.epsilon, self.delta = epsilon, 0.0

    def randomise(self, value):
        return value

class Exponential:
    pass
""",
    "models": """
import numpy as np

class GaussianNB:
    def __init__(self, *, epsilon=1.0, bounds=None, accountant=None):
        self.epsilon, self.bounds, self.accountant = epsilon, bounds, accountant

    def fit(self, X, y, sample_weight=None):
        self.class_prior_ = np.array([0.5, 0.5])
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def score(self, X, y):
        return float(np.mean(self.predict(X) == np.asarray(y)))
""",
}


def install() -> None:
    """Put the modules in place, where the library is not installed."""
    if "diffprivlib" not in sys.modules and importlib.util.find_spec("diffprivlib") is None:
        top: Any = types.ModuleType("diffprivlib")
        sys.modules["diffprivlib"] = top
        for name, source in SOURCES.items():
            module = types.ModuleType(f"diffprivlib.{name}")
            sys.modules[f"diffprivlib.{name}"] = module
            setattr(top, name, module)
            # in place of an installed file: what it computes is a library's
            exec(compile(source, f"<diffprivlib.{name}>", "exec"), module.__dict__)
        top.BudgetAccountant = top.accountant.BudgetAccountant


def remove() -> None:
    """Take the made-up modules away, and any default budget of the real ones."""
    module = sys.modules.get("diffprivlib")
    if module is not None and getattr(module, "__file__", None) is None:
        for name in [each for each in sys.modules if each.partition(".")[0] == "diffprivlib"]:
            del sys.modules[name]
    elif module is not None:
        module.accountant.BudgetAccountant._default = None


def people(rows: int = 400) -> str:
    """A table of made-up people, as CSV."""
    rng = np.random.default_rng(25)
    lines = ["age,income,region,answer"]
    for _ in range(rows):
        age, income = rng.integers(18, 90), 1000 * rng.integers(10, 200) + rng.integers(0, 1000)
        lines.append(f"{age},{income},{'NS'[rng.integers(2)]},{rng.integers(2)}")
    return "\n".join(lines) + "\n"
