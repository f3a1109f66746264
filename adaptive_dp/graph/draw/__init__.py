"""Drawings of a privacy graph: a self-contained SVG, and Mermaid text.

Both take any acyclic ``networkx.DiGraph`` whose nodes carry ``kind``, ``label``, ``detail``,
``color`` ("private", "released" or "public"), ``group`` (names, outer to inner), ``outputs``
and perhaps ``share``; whatever is missing has a plain default (`box`). The words here:

* a *box* is what is drawn: one node, a closed group, or a fold of several nodes;
* a *vertex* is a box, or the bend where a long edge passes through a layer;
* a *layer* is a column of the drawing, a *block* a group with all that is in it.

`fold` makes a graph of boxes small enough to be read; `layers`, `order` and `place` find a place
for each (Sugiyama, Tagawa and Toda 1981); `marks` and `svg`, or `mermaid`, write it. Equal graphs
give equal text.
"""

from adaptive_dp.graph.draw.mermaid import mermaid
from adaptive_dp.graph.draw.svg import svg

__all__ = ["mermaid", "svg"]
