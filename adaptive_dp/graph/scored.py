"""What a selection's run is compared by; alone here, since plan documents name it."""

from __future__ import annotations

from typing import Any


def scored(value: Any, score: Any) -> dict[str, Any]:
    """Return a run's value with its score."""
    return {"value": value, "score": score}
