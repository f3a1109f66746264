"""One real private analysis, from the declaration to the report."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "randhie.csv.gz"
"""The data: see the README beside it."""
