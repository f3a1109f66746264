"""Pictures of a guarantee: curves with what is not known of them as a band.

Needs matplotlib: ``pip install "adaptive-dp[report]"``. Every function draws into ``ax``, or into
a new figure, and returns the axes; ``ax.figure.savefig("file.png")`` writes it.

The line is the end of the bracket that holds for every mechanism with these losses; the band
reaches to the other end, below which no proof can go. Where there is no band to be seen, the
bound is tight. A curve is computed at some points and drawn as steps on the safe side between
them, so that no picture under-reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from accountants.certification import Answer
from accountants.errors import AccountingError, DomainError
from accountants.guarantee import Guarantee
from accountants.numerics import Array, Bounds, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Guarantees = Guarantee | Mapping[str, Guarantee]
"""One guarantee, or several by the names that the picture shows."""

Curve = tuple[Array, Array, Array]
"""Points, and the lower and upper bounds there."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's: told apart by all common kinds of color vision."""

DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (7, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 3)))
"""A line's dashes go with its color, so that curves are told apart without colors too."""

LABELLED = 3
"""So many curves are named on the line, and have bands; more are named in a legend."""

INK, _FAINT = "#333333", "#DDDDDD"


def profile(
    guarantees: Guarantees,
    *,
    least: float = 1e-12,
    points: int = 160,
    largest_epsilon: float = 0.0,
    ax: Axes | None = None,
) -> Axes:
    """Draw delta against epsilon, down to a least delta and at least up to ``largest_epsilon``."""
    curves = _named(guarantees)
    axes = framed(ax, "Privacy profile", "epsilon (nats)", "delta (probability)")
    # the widest curve sets the range, so that each comes down to `least`
    largest_epsilon = max(
        largest_epsilon, *(_epsilon_at_least_delta(each, least) for each in curves.values())
    )
    grid = np.linspace(0.0, largest_epsilon, points)

    def bounds(guarantee: Guarantee) -> Curve:
        lower, upper = guarantee.profile(grid)
        # Delta falls in epsilon, so a bound at one point holds, as an upper one, at all to its
        # right, and as a lower one at all to its left: running extremes are bounds too.
        upper = np.minimum.accumulate(upper)
        lower = np.minimum(np.maximum.accumulate(lower[::-1])[::-1], upper)
        # a logarithmic axis takes no zeros: drawn a little below its end, no further
        drawn = upper >= least / 100
        return grid[drawn], np.maximum(lower, least / 100)[drawn], upper[drawn]

    _draw(axes, curves, bounds)
    axes.set(yscale="log", xlim=(0, largest_epsilon), ylim=(least, 1))
    return axes


def epsilons(
    guarantees: Guarantees,
    *,
    deltas: tuple[float, float] = (1e-12, 1e-2),
    points: int = 30,
    ax: Axes | None = None,
) -> Axes:
    """Draw epsilon against delta, between two deltas."""
    axes = framed(ax, "Epsilon at each delta", "delta (probability)", "epsilon (nats)")
    # deltas are read over orders of magnitude, so the grid is geometric
    grid = np.geomspace(*deltas, points)
    axes.set(xscale="log", xlim=deltas)

    def bounds(guarantee: Guarantee) -> Curve:
        every = [guarantee.epsilon(float(delta)) for delta in grid]
        lower, upper = np.array([(each.lower, each.upper) for each in every]).T
        # an infinite epsilon has no place on the axis; the curve begins where it is finite
        finite = np.isfinite(upper)
        return grid[finite], lower[finite], upper[finite]

    _draw(axes, _named(guarantees), bounds)
    axes.set_ylim(bottom=0)
    return axes


def tradeoff(guarantees: Guarantees, *, points: int = 160, ax: Axes | None = None) -> Axes:
    """Draw the least false-negative rate of a membership test against its false-positive rate.

    Examples
    --------
    >>> from accountants import Gaussian, Spend
    >>> axes = tradeoff(Guarantee(Spend(Gaussian(mu=1.0))), points=5)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('false-positive rate', 'false-negative rate')
    """
    title = "Trade-off of membership tests"
    axes = framed(ax, title, "false-positive rate", "false-negative rate")
    # dense near a false-positive rate of 0, where attacks are judged
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 0.01, 20), np.linspace(0.015, 1.0, points)])
    # a test that ignores the outcome: both rates add up to 1
    axes.plot([0, 1], [1, 0], color=_FAINT, linewidth=1.2, zorder=1)
    axes.annotate(
        "tossing a coin", (0.12, 0.88), (6, 4), textcoords="offset points", color="#777777"
    )

    def bounds(guarantee: Guarantee) -> Curve:
        lower, upper = guarantee.tradeoff(grid, digits=2e-4)
        # The rate falls in the other one: running extremes are bounds, as in `profile`.
        lower = np.maximum.accumulate(lower[::-1])[::-1]
        return grid, lower, np.maximum(np.minimum.accumulate(upper), lower)

    # here the lower end is the promise: a test has at least this false-negative rate
    _draw(axes, _named(guarantees), bounds, "lower")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return axes


def accountants(
    answers: Mapping[str, Answer],
    *,
    title: str = "epsilon (nats)",
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the brackets of several accountants side by side, the tightest on top.

    Parameters
    ----------
    answers
        What `certify` returns.
    title
        The quantity, for the axis.
    logarithmic
        Whether the axis is; for deltas.
    """
    named = {name: answer.bounds for name, answer in answers.items() if answer.bounds}
    return brackets(named, title=title, logarithmic=logarithmic, ax=ax)


def brackets(
    bounds: Mapping[str, Bounds],
    *,
    title: str = "epsilon (nats)",
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw lower and upper bounds by name, the smallest upper one on top.

    Parameters
    ----------
    bounds
        By the name to show; those without a finite upper bound are left out.
    title, logarithmic
        As for `accountants`.

    Examples
    --------
    >>> brackets({"basic": Bounds(0.5, 2.0), "renyi": Bounds(0.5, 1.0)}).get_yticklabels()[1]
    Text(0, 1, 'renyi')
    """
    finite = [(name, each) for name, each in bounds.items() if each.upper < math.inf]
    # rows are drawn from the bottom, so the smallest upper bound comes last
    finite.sort(key=lambda item: item[1].upper, reverse=True)
    best = finite[-1][1].upper if finite else 1.0
    # on a linear axis a bound above four times the best would squeeze the others
    near = [b.upper for _, b in finite if logarithmic or b.upper <= 4 * best]
    least, edge = (best / 1e4, 1.0) if logarithmic else (0.0, 1.25 * max(near, default=1.0) or 1.0)
    axes = framed(ax, "Accountants side by side", title, "")
    axes.set(xscale="log" if logarithmic else "linear", xlim=(least or 0.0, edge))
    for row, (_, each) in enumerate(finite):
        _bracket(axes, row, each, least, edge, COLOURS[0] if row == len(finite) - 1 else "#777777")
    # one tick for each row, with the accountant's name
    axes.set_yticks(range(len(finite)), [name for name, _ in finite])
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(finite) - 0.4)
    return axes


def _bracket(axes: Axes, row: int, bounds: Bounds, left: float, edge: float, color: str) -> None:
    """Draw one accountant's bracket; one that ends beyond the edge points there."""
    # both ends clipped to the axis; the number beside the mark is not
    low, high = max(min(bounds.lower, edge), left), min(bounds.upper, edge)
    axes.plot([low, high], [row, row], color=color, linewidth=3, alpha=0.35)
    axes.plot(high, row, "o" if bounds.upper <= edge else ">", color=color, clip_on=False)
    # rounded up, so that the label under-reports no more than the bound does
    label = shown(bounds.upper, upward=True, digits=4)
    axes.annotate(label, (high, row), (0, 8), textcoords="offset points", ha="center", color=color)


def panels(count: int) -> list[Axes]:
    """Return the axes of a new figure with several panels beside each other."""
    one = figure(5.2 * count)
    return [one.add_subplot(1, count, i + 1) for i in range(count)]


def save(axes: Axes, path: str | PathLike[str]) -> None:
    """Write the figure of the axes into a file (.png, .svg or .pdf).

    Raises
    ------
    DomainError
        If matplotlib does not write files of that kind.

    Examples
    --------
    >>> import tempfile
    >>> from accountants import Gaussian, Spend
    >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
    ...     save(tradeoff(Guarantee(Spend(Gaussian(mu=1.0))), points=5), file.name)
    ...     file.read(4)[1:]
    b'PNG'
    """
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    try:
        # matplotlib reads the kind of file off the path
        drawing.savefig(path)
    except ValueError as error:
        raise DomainError(f"{path}: {error}") from None


def _named(guarantees: Guarantees) -> Mapping[str, Guarantee]:
    return {"": guarantees} if isinstance(guarantees, Guarantee) else guarantees


def _epsilon_at_least_delta(guarantee: Guarantee, least: float) -> float:
    """Return an epsilon at which the profile has come down to a least delta."""
    # the least delta may have no finite epsilon: larger ones are tried in turn
    for delta in (least, 1e-6, 1e-2, 0.5):
        value = guarantee.epsilon(delta).upper
        if 0 < value < math.inf:
            return value
    return 1.0


def framed(ax: Axes | None, title: str, x: str, y: str) -> Axes:
    """Return the axes, or those of a new figure, with a title, labels and a quiet frame."""
    ax = figure(6.4).add_subplot() if ax is None else ax
    ax.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold")
    ax.set_xlabel(x, color=INK)
    ax.set_ylabel(y, color=INK)
    ax.tick_params(colors=INK, length=3)
    ax.grid(visible=True, color=_FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#999999")
    return ax


def figure(width: float, height: float = 4.4) -> Figure:
    """Return a new figure, its sides in inches, which no global state knows.

    Raises
    ------
    AccountingError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise AccountingError('plots need matplotlib: pip install "adaptive-dp[report]"') from None
    # not through pyplot, which would keep every figure in a global list
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _draw(
    axes: Axes,
    curves: Mapping[str, Guarantee],
    bounds: Callable[[Guarantee], Curve],
    promise: Literal["lower", "upper"] = "upper",
) -> None:
    """Draw one curve for each guarantee; a few have bands and labels, many a legend."""
    few = len(curves) <= LABELLED
    for i, (name, guarantee) in enumerate(curves.items()):
        x, lower, upper = bounds(guarantee)
        line = upper if promise == "upper" else lower
        _curve(axes, x, (lower, upper) if few else (line, line), promise, i, name)
        if name and len(x) and few:
            _label(axes, name, x, line, i, len(curves))
    if not few:  # labels on many curves would hide each other
        axes.legend(frameon=False)


def _curve(
    axes: Axes,
    x: Array,
    bounds: tuple[Array, Array],
    promise: Literal["lower", "upper"],
    i: int,
    name: str,
) -> None:
    """Draw a decreasing curve, known at some points only, as steps that under-report nowhere.

    Between two points the upper bound at the left one holds, and the lower bound at the right one;
    ``promise`` is the end that is drawn as the line.
    """
    lower, upper = bounds
    color, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
    # two corners for each step: the curve decreases, so between x[i] and x[i+1]
    # it is at most upper[i] and at least lower[i+1]
    low, high = np.repeat(lower[1:], 2), np.repeat(upper[:-1], 2)
    axes.fill_between(np.repeat(x, 2)[1:-1], low, high, color=color, alpha=0.15, linewidth=0)
    axes.plot(
        x,
        upper if promise == "upper" else lower,
        color=color,
        linewidth=1.8,
        linestyle=dashes,
        label=name or "_",
        # post: the left point's value holds up to the next; pre: the right one's
        drawstyle="steps-post" if promise == "upper" else "steps-pre",
    )


def _label(axes: Axes, name: str, x: Array, y: Array, i: int, count: int) -> None:
    """Write a curve's name on it, each of a few at another part of the width."""
    # imported here: matplotlib is an extra
    from matplotlib.patheffects import withStroke

    # the part of the width at which curve i is named
    share = (i + 1) / (count + 1)
    # widths as seen on the axis, so logarithms where it is logarithmic
    scale = np.log(x) if axes.get_xscale() == "log" else x
    at = int(np.argmin(np.abs(scale - (scale[0] + share * (scale[-1] - scale[0])))))
    axes.annotate(
        # left-aligned in the left part, right-aligned in the right, to stay inside
        name,
        (x[at], y[at]),
        (4, 4) if share < 0.6 else (-8, -4),
        textcoords="offset points",
        color=COLOURS[i % len(COLOURS)],
        fontweight="bold",
        ha="left" if share < 0.6 else "right",
        va="bottom" if share < 0.6 else "top",
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )
