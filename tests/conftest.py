"""What all tests share: how doctests are collected, and how many examples hypothesis draws."""

from __future__ import annotations

import gc
import os
import sys

import profiles  # noqa: F401  (registers the profiles)
import pytest
from hypothesis import settings

from accountants import numerics

settings.load_profile("ci")  # unless --hypothesis-profile names another, which pytest loads later

# each worker and each interpreter that a test starts would compile everything anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# as `adaptive_dp.torch` sets it, before another test's product of matrices
os.environ.setdefault("MKL_CBWR", "AUTO")
sys.dont_write_bytecode = False


def _refuse(lower: float, upper: float) -> None:
    """Refuse ends that cross by more than rounding: one of two methods is wrong."""
    assert lower <= upper * (1 + 1e-9) + 1e-290, f"bounds contradict each other: [{lower}, {upper}]"


vars(numerics)["crossed"] = _refuse  # `numerics.crossed` says what it is for


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without figures, which take most of their time: of what a test asks the words alone."""
    from adaptive_dp.reports import charts, page

    monkeypatch.setattr(charts, "embedded", lambda *_: "")
    for section in ("_curves", "_what_if"):
        monkeypatch.setattr(page, section, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A doctest's own classes are a reader's, not of the module that it stands in."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            item.dtest.globs["__name__"] = "__main__"


def pytest_collection_finish() -> None:
    """Let the collector pass over what stays until the end: modules and some thousand tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # what tests make is small: it is looked at more seldom
