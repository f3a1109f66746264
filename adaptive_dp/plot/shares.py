"""What a plan's budget is spent on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from accountants.plot import COLOURS, INK, framed
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.visible import cut, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 40
"""Letters of a release's name."""


def shares(certificate: Certificate, *, most: int = 15, ax: Axes | None = None) -> Axes:
    """Draw each release's share of the budget, the largest on top, and return the axes.

    Shares are in the currency of the tightest accountant. Those in its worst world sum to 1;
    releases that touch other units only (parts of a partition that the worst world is not in) are
    hatched: they cost that unit nothing.

    Parameters
    ----------
    certificate
        Of a plan or a session.
    most
        So many bars; what is left is one bar of its own.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If it is no certificate, or ``most`` not a positive number.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(age=people["age"].average(dp.Laplace())).calibrate(epsilon=1.0)
    >>> [round(float(bar.get_width()), 6) for bar in plot.shares(plan.certify()).patches]
    [0.5, 0.5]
    """
    if not isinstance(certificate, Certificate):
        raise DeclarationError(
            f"shares are those of a certificate, got {type(certificate).__name__}; pass "
            "plan.certify() or result.certificate"
        )
    if most < 1:
        raise DeclarationError(f"most must be at least 1, got {most!r}")
    bars = _bars(certificate, most)[::-1]
    of = certificate.accountant if certificate.session is None else "of what was spent"
    axes = framed(ax, "What the budget is spent on", f"share ({of})", "")
    widest = max((share for _, share, _ in bars), default=0.0)
    for row, (_, share, touched) in enumerate(bars):
        fill, hatch = (COLOURS[0], "") if touched else ("white", "////")
        axes.barh(row, share, height=0.6, color=fill, edgecolor=COLOURS[0], hatch=hatch)
        text = f"{share:.1%}" + ("" if touched else " elsewhere")
        axes.annotate(
            text, (share, row), (5, 0), textcoords="offset points", va="center", color=INK
        )
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.3 * widest or 1.0)
    return axes


def _name(node: str) -> str:
    """Return a release's name as it is: no line breaks, and no formulas."""
    return cut(visible(node), LONGEST).replace("$", r"\$")


def _bars(certificate: Certificate, most: int) -> list[tuple[str, float, bool]]:
    """Return names, shares, and whether the worst world is touched; what is too much as one."""
    known = [(_name(row.node), row.share, row.in_worst_world) for row in certificate.nodes]
    known.sort(key=lambda bar: (not bar[2], -bar[1]))
    if len(known) <= most:
        return known
    kept, rest = known[: most - 1], known[most - 1 :]
    inside = [share for _, share, touched in rest if touched]
    outside = len(rest) - len(inside)
    if inside:
        kept.append((f"{len(inside)} others", math.fsum(inside), True))
    if outside:
        kept.append((f"{outside} of other parts", 0.0, False))
    return kept
