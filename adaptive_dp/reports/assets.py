"""The page's style sheet and script, and the policy that lets these two run and nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from adaptive_dp.graph.draw.style import STYLE


@cache
def style() -> str:
    """Return the style sheet, with that of drawings."""
    return _read("page.css") + STYLE


@cache
def script() -> str:
    """Return the script."""
    return _read("page.js")


@cache
def policy() -> str:
    """Return the content security policy: no network at all, and these two by their digests."""
    return (
        f"default-src 'none'; script-src '{_digest(script())}'; style-src '{_digest(style())}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return files("adaptive_dp.reports").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(found).decode()
