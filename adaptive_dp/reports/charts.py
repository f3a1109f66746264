"""Plots as SVG elements for the page: the figures of `adaptive_dp.reports.plot`, and a few more.

matplotlib draws each figure; `embedded` makes its SVG fit a page with a strict style policy: inline
styles become attributes, colors become the page's own (light and dark), names of elements become
unique, and nothing in it depends on the time or the machine. Text stays text, in the page's font.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from accountants import Bounds, Guarantee, plot
from accountants.guarantee import largest_probability
from accountants.plot import COLOURS, INK
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.outputs import Entries
from adaptive_dp.graph.values import cut, visible
from adaptive_dp.reports import plot as plots
from adaptive_dp.reports.drawing import serialized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 5.6, 3.9  # inches; a page shows 72 units for each
LEAST_RATE = 1e-7  # the least rate on the axes of an audit's trade-off

PAGE_COLOURS = {
    COLOURS[0].lower(): "var(--plot-1)",
    COLOURS[1].lower(): "var(--plot-2)",
    INK.lower(): "var(--soft)",
    "#000000": "var(--ink)",
    "#dddddd": "var(--line)",
    "#777777": "var(--soft)",
    "#999999": "var(--soft)",
    "#ffffff": "var(--card)",
}
"""The page's own names for the colors of the figures, which it sets for light and for dark."""


def embedded(axes: Axes, name: str, title: str, text: str) -> str:
    """Return the figure of the axes as an SVG element for a page.

    Parameters
    ----------
    axes
        Their own title is left out: the page has headings.
    name
        Of this figure on the page; no two may share one.
    title, text
        What screen readers say: what it is, and what it shows.

    Returns
    -------
    str
        The same for equal figures, to the byte; an XML serializer has escaped what is in it.
    """
    from matplotlib import rc_context

    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.set_title("", loc="left")
    # Ids are hashes with this salt; text is not turned into outlines; a path is not simplified,
    # which could move a bound to its wrong side.
    fixed: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "path.simplify": False}
    file = io.BytesIO()
    with rc_context(fixed), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # glyphs that matplotlib's own font lacks
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if _tag(child) in ("metadata", "style"):
                parent.remove(child)
    links = re.findall(r'(?:href="#|url\(#)([^")]+)', ElementTree.tostring(root, "unicode"))
    ids = {each: f"{name}-{index}" for index, each in enumerate(dict.fromkeys(links))}
    for element in root.iter():
        _adapt(element, ids)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {"class": "plot", "viewBox": box, "role": "img", "stroke-linejoin": "round"}
    root.set("fill", PAGE_COLOURS["#000000"])  # matplotlib leaves black out, the default of SVG
    for kind, content in (("desc", text), ("title", title)):
        described = Element(kind, {"id": f"{name}-{kind}"})
        described.text = visible(content)
        root.insert(0, described)
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    return serialized(root)


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _adapt(element: Element, ids: Mapping[str, str]) -> None:
    """Turn an element's inline style into attributes, and make its id and links the page's own."""
    element.tag = _tag(element)
    element.tail = None
    if element.text is not None and not element.text.strip():
        element.text = None
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for declaration in attributes.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # matplotlib before 3.10 writes all in one
            attributes |= _font(value)
        elif key and key != "font-family":  # that of the page
            attributes[key] = value
    element.attrib.clear()
    for key, value in attributes.items():
        if key == "id":
            if value in ids:
                element.set(key, ids[value])
        elif key == "href":
            element.set(key, f"#{ids[value[1:]]}")
        elif key in ("d", "x", "y", "width", "height", "transform"):
            # hundredths of a unit: finer than any line, and the same on every machine
            element.set(key, re.sub(r"-?\d+\.\d{3,}", _hundredths, " ".join(value.split())))
        else:
            linked = re.sub(r"url\(#([^)]+)\)", lambda link: f"url(#{ids[link[1]]})", value)
            element.set(key, PAGE_COLOURS.get(linked.lower(), linked))


def _hundredths(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _font(value: str) -> dict[str, str]:
    size = re.search(r"([\d.]+)px", value)
    weight = re.search(r"\b(bold|[1-9]00)\b", value)
    attributes = {"font-size": f"{size[1]}px"} if size else {}
    return attributes | ({"font-weight": weight[1]} if weight else {})


def _axes(height: float = HEIGHT) -> Axes:
    return plot.figure(WIDTH, height).add_subplot()


def _row_axes(rows: int) -> Axes:
    """Return axes that are as high as rows of text ask for."""
    return _axes(0.75 + 0.28 * rows)


# --- The figures of the page ---


def profile(
    guarantee: Guarantee,
    least: float,
    largest_epsilon: float,
    mark: tuple[float, float, str] | None,
) -> str:
    """Draw a privacy profile, with the point that is claimed and what to write beside it."""
    axes = plot.profile(
        guarantee, least=least, largest_epsilon=largest_epsilon, points=161, ax=_axes()
    )
    if mark:
        epsilon, delta, label = mark
        axes.plot(epsilon, max(delta, least), "o", color=COLOURS[0], clip_on=False)
        right = epsilon > 0.5 * axes.get_xlim()[1]
        plots.write_beside(
            axes,
            label,
            (epsilon, max(delta, least)),
            (-8, -14) if right else (8, 8),
            ha="right" if right else "left",
            fontweight="bold",
            color="#000000",
        )
    text = "An upper bound of delta falls as epsilon grows; the table below has its values."
    return embedded(axes, "plot-profile", "Privacy profile", text)


def tradeoff(guarantee: Guarantee) -> str:
    """Draw the trade-off of membership tests."""
    axes = plot.tradeoff(guarantee, points=180, ax=_axes())
    text = (
        "The least false-negative rate falls as the false-positive rate grows; the table below has "
        "its values."
    )
    return embedded(axes, "plot-tradeoff", "Trade-off of membership tests", text)


def accountants(bounds: Mapping[str, Bounds]) -> str:
    """Draw the brackets of the accountants; nothing where none is finite."""
    finite = {name: each for name, each in bounds.items() if math.isfinite(each.upper)}
    if not finite:
        return ""
    axes = plot.brackets(finite, ax=_axes(0.85 + 0.42 * len(finite)))
    text = "From the lower to the upper bound of each accountant; the table has the numbers."
    return embedded(axes, "plot-accountants", "Epsilon by each accountant", text)


def shares(certificate: Certificate, most: int) -> str:
    """Draw the largest shares of the budget."""
    rows = min(len(certificate.nodes), most)
    axes = plots.shares(certificate, most=most, ax=_row_axes(rows))
    text = "The share of each release, the largest on top; the table of releases has the numbers."
    return embedded(axes, "plot-shares", "Shares of the privacy budget", text)


def steps(names: Sequence[str], shares_spent: Sequence[float], label: str) -> str:
    """Draw what a session has spent after each step, as shares of its budget."""
    axes = plots.spent_steps("", names, {label: shares_spent}, ax=_axes())
    text = "The share of the budget that is spent after each step; the table has the numbers."
    return embedded(axes, "plot-steps", "Budget spent by each step", text)


def audit(rows: Sequence[tuple[str, float, bool]], verdict: str, scale: str) -> str:
    """Draw what an audit showed beside what is claimed."""
    text = "From what an attack has shown to what is claimed; the table has the numbers."
    return embedded(
        plots.audit_bars(rows, verdict, scale, ax=_axes(2.2)),
        "plot-audit",
        "Audit beside the claim",
        text,
    )


def audit_tradeoff(
    thresholds: Sequence[Mapping[str, Any]], claimed: Sequence[Sequence[float]]
) -> str:
    """Draw how well an audit told two sides apart, on logarithmic axes, beside what is claimed.

    Both axes are logarithmic, so that both tails are seen: a guess of either side is a point, and
    both sides share one claim, which is the same both ways.

    Parameters
    ----------
    thresholds
        Mappings with ``guess`` ("first" or "second"), ``wrong``, ``right`` and ``claimed``.
    claimed
        The points (epsilon, delta) of the claim.

    Returns
    -------
    str
        Empty where there is nothing to draw.
    """
    seen = [each for each in thresholds if each["right"] > 0]
    if not seen or not claimed:
        return ""
    points = tuple((float(epsilon), float(delta)) for epsilon, delta in claimed)
    lowest = max(LEAST_RATE, min(min(each["wrong"], each["right"]) for each in seen))
    least = min(0.1, 10.0 ** math.floor(math.log10(lowest)))
    grid = [least ** (1 - k / 80) for k in range(81)]
    allowed = [largest_probability(points, x) for x in grid]
    axes = plot.framed(_axes(), "", "wrong guesses, at most", "right guesses, at least")
    axes.plot(grid, allowed, color=COLOURS[0], linewidth=1.8, label="claimed, at most")
    axes.fill_between(grid, allowed, 1.0, color=COLOURS[1], alpha=0.12, linewidth=0)
    for side, marker in (("first", "o"), ("second", "s")):
        for beyond in (False, True):
            chosen = [
                each
                for each in seen
                if (each["guess"] == side) and (each["right"] > each["claimed"]) == beyond
            ]
            label = f"shown, by guesses of the {side}{', beyond the claim' * beyond}"
            if chosen:
                axes.plot(
                    [max(each["wrong"], least) for each in chosen],
                    [max(each["right"], least) for each in chosen],
                    marker,
                    color=COLOURS[1],
                    markersize=5,
                    fillstyle="full" if beyond else "none",
                    clip_on=False,
                    label=label,
                )
    axes.set(xscale="log", yscale="log", xlim=(least, 1.0), ylim=(least, 1.0))
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    above = sum(each["right"] > each["claimed"] for each in seen)
    text = (
        "Across: how often a guess is made where it is wrong, at most. Up: how often it is made "
        "where it is right, at least. All points hold together with the confidence of the audit. "
        "The line is the most that the claim allows; a point above it refutes the claim. It goes "
        f"beyond the claim at {above} of {len(seen)} thresholds."
    )
    title = "How well the two sides were told apart"
    return embedded(axes, "plot-audit-tradeoff", title, text)


# --- Released values ---

MOST = 24
"""Numbers are drawn if there are no more than these."""
CURVES = ("quantile", "below")
"""What the entries of a curve are called: orders of quantiles, or ends of cumulative shares."""


def released(
    value: Any,
    low: Any,
    high: Any,
    name: str,
    labels: Sequence[Any] | None = None,
    names: Sequence[str] = (),
) -> str:
    """Draw released numbers with their intervals: bars, curves, or coefficients.

    Cross-tables are not drawn: the page writes them in shades.

    Parameters
    ----------
    value, low, high
        Numbers, and the ends of the interval of each, or None.
    name
        Of this figure on the page.
    labels, names
        What the numbers are of, and what these are called, where that is known.

    Returns
    -------
    str
        Empty where there is nothing to draw.
    """
    if names and names[-1] in CURVES and isinstance(labels, Entries):
        return _curves(value, low, high, name, labels)
    items = list(_numbers(value, low, high, labels))
    if not 2 <= len(items) <= MOST or None in items:
        return ""
    # the intercept of a model is on a scale of its own; it stands in the table
    drawn = [item for item in items if item is not None]
    if isinstance(value, Mapping) and len(drawn) > 2:
        drawn = [item for item in drawn if item[0] != "intercept"]
    ends = [0.0, *(each for item in drawn for each in item[1:] if each is not None)]
    if not 0 < max(ends) - min(ends) < math.inf:
        return ""
    axes = plot.framed(_row_axes(len(drawn)), "", "", "")
    rows = range(len(drawn))
    as_bars = isinstance(value, list)
    if as_bars:
        axes.barh(rows, [item[1] for item in drawn], 0.62, color=COLOURS[0], alpha=0.35)
    for row, (_, middle, lower, upper) in enumerate(drawn):
        if lower is not None and upper is not None:
            # an interval need not hold the value: of a function that shrinks, it may be beside it
            axes.errorbar(
                middle,
                row,
                xerr=[[max(0.0, middle - lower)], [max(0.0, upper - middle)]],
                fmt="none" if as_bars else "o",
                color=COLOURS[0],
                capsize=3,
                markersize=5,
            )
        elif not as_bars:
            axes.plot(middle, row, "o", color=COLOURS[0], markersize=5)
    written = [cut(visible(item[0]), 18, end=True).replace("$", r"\$") for item in drawn]
    plots.name_rows(axes, written)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.axvline(0.0, color="#999999", linewidth=1)
    _few_ticks(axes)
    text = f"{len(drawn)} released numbers, each with its 95% interval where it has one."
    return embedded(axes, name, "Released numbers", text)


def compared(numbers: Sequence[Sequence[float]], labels: Sequence[str], name: str) -> str:
    """Draw released counts as bars with their intervals, and those of synthetic rows as points.

    Parameters
    ----------
    numbers
        Released counts, the ends of their intervals, and the counts of rows.
    labels
        What is counted.
    name
        Of this figure on the page.
    """
    if not 2 <= len(labels) <= MOST:
        return ""
    counts, low, high, made = numbers
    axes = plot.framed(_row_axes(len(labels)), "", "", "")
    rows = range(len(labels))
    axes.barh(rows, counts, 0.62, color=COLOURS[0], alpha=0.35)
    for row, (middle, least, most) in enumerate(zip(counts, low, high, strict=True)):
        sides = [[max(0.0, middle - least)], [max(0.0, most - middle)]]
        axes.errorbar(middle, row, xerr=sides, fmt="none", color=COLOURS[0], capsize=3)
    axes.plot(made, list(rows), "o", color=COLOURS[1], markersize=5, fillstyle="none")
    written = [cut(visible(each), 18, end=True).replace("$", r"\$") for each in labels]
    plots.name_rows(axes, written)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    _few_ticks(axes)
    text = "Bars: released counts with 95% intervals. Circles: counts of synthetic rows."
    return embedded(axes, name, "Released counts and synthetic rows", text)


def _curves(value: Any, low: Any, high: Any, name: str, labels: Entries) -> str:
    """Draw shares of rows against numbers: a curve of quantiles for each group, or of one cdf."""
    is_matrix = isinstance(value, list) and bool(value) and all(map(is_flat, value))
    rows = value if is_matrix else [value]
    lows, highs = (end if is_matrix else [end] for end in (low, high))
    if not all(map(is_flat, rows)) or sum(map(len, rows)) != len(labels) or len(rows) > len(LINES):
        return ""
    if not all(_is_number(each) for row in rows for each in row):
        return ""
    axes = plot.framed(_axes(3.2), "", "", "share of rows")
    place = 0
    for index, row in enumerate(rows):
        keys = [labels.candidates[place + i] for i in range(len(row))]
        place += len(row)
        label = ", ".join(map(str, keys[0][:-1])) if isinstance(keys[0], tuple) else None
        last = [float(key[-1] if isinstance(key, tuple) else key) for key in keys]
        color = COLOURS[index % 2]
        drawn: dict[str, Any] = {"marker": "o", "markersize": 5, "clip_on": False, "label": label}
        drawn |= {"color": color, "linestyle": LINES[index]}
        if labels.names[-1] == "quantile":
            # sorted by their orders: a curve is drawn from left to right
            pairs = sorted(zip(last, map(float, row), strict=True))
            orders, numbers = [a for a, _ in pairs], [b for _, b in pairs]
            axes.plot(numbers, orders, **drawn)
            continue
        axes.plot(last, row, **drawn)
        if is_flat(lows[index]) and is_flat(highs[index]):
            axes.fill_between(last, lows[index], highs[index], color=color, alpha=0.25)
    axes.set_ylim(0, 1)
    _few_ticks(axes)
    if is_matrix:
        axes.legend(frameon=False, fontsize=8, loc="best")
    text = "The share of rows at or below each number; the table has the numbers."
    return embedded(axes, name, "Shares of rows", text)


LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (8, 3)))
"""The styles of lines: so many groups are told apart."""


def _few_ticks(axes: Axes) -> None:
    """Leave room between the numbers of the axis, which a page may show at half of their size."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))


def is_flat(value: Any) -> TypeGuard[list[Any]]:
    """Whether a value is a list of no lists or mappings."""
    return (
        isinstance(value, list)
        and bool(value)
        and not any(isinstance(item, list | Mapping) for item in value)
    )


Numbers = tuple[str, float, float | None, float | None]
"""A name, a number, and the ends of its interval."""


def _numbers(
    value: Any, low: Any, high: Any, labels: Sequence[Any] | None
) -> Iterator[Numbers | None]:
    """Yield names, numbers and the ends of their intervals; None for what is not a number."""
    if isinstance(value, Mapping):
        names, middles = list(map(str, value)), list(value.values())
        ends = [[e.get(k) if isinstance(e, Mapping) else e for k in value] for e in (low, high)]
    elif isinstance(value, list):
        fits = isinstance(labels, Sequence) and len(labels) == len(value)
        shown = labels if fits and labels is not None else range(len(value))
        names, middles = [str(shown[i]) for i in range(min(len(value), MOST + 1))], value
        ends = [e if isinstance(e, list) else [e] * len(value) for e in (low, high)]
    else:
        return
    if any(len(each) != len(middles) for each in ends):
        return
    for name, middle, *pair in list(zip(names, middles, *ends, strict=False))[: MOST + 1]:
        if not _is_number(middle):
            yield None
        elif all(map(_is_number, pair)):
            yield name, float(middle), float(pair[0]), float(pair[1])
        else:
            yield name, float(middle), None, None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < 1e300
