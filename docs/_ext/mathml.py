"""Mathematics as MathML, written when the site is built: no script and no network to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

# Spellings that the converter lacks, in ones that it has.
SPELLINGS = {r"\tfrac": r"\frac", r"\square": "□", "'": "′"}


def mathml(text: str, display: str) -> str:
    """Return the MathML of a formula; ``display`` is "inline" or "block"."""
    for given, known in SPELLINGS.items():
        text = text.replace(given, known)
    found = convert(text, display=display)
    if "\\" in found:
        raise ValueError(f"the formula {text!r} has a command that latex2mathml does not know")
    return found


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node.astext(), "inline"))
    raise SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the renderer ``mathml``."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
