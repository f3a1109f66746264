"""Plots: of what is promised, what it is spent on, what it buys, and the result of an audit.

Needs matplotlib: ``pip install "adaptive-dp[report]"``. Each function draws into ``ax``, or into a
new figure outside pyplot's global state, and returns the axes; `save` writes the figure to a file.
Curves differ in their dashes too, so that a print in black and white can be read. The HTML page
embeds the same figures.

What is promised
    `privacy_profile` (delta against epsilon) and `tradeoff` (errors of membership tests) of plans,
    certificates, losses and terms, by one or several accountants.
What it is spent on
    `shares` of a certificate's releases; `budget`: a session, step by step.
What it buys
    `utility` against epsilon, of your own measurements or of those that `simulated` makes.
What is lost in truth
    `per_instance`: revealed losses of each record; `audit`: the lower bound beside the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accountants import Accountant, InapplicableError, PrivacyLoss, Spend, Term, plot
from accountants.guarantee import Guarantee
from accountants.numerics import Array, shown
from accountants.plot import COLOURS, DASHES, INK, framed, save
from accountants.secret import Secret
from adaptive_dp.audit.result import Audit
from adaptive_dp.graph.certificate import Certificate, ReleaseRow
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.plan import Pipeline, check_accountants
from adaptive_dp.graph.run import Result, simulations
from adaptive_dp.graph.values import as_int, cut, number, positive, visible
from adaptive_dp.session import Session

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "audit",
    "budget",
    "per_instance",
    "privacy_profile",
    "save",
    "shares",
    "simulated",
    "tradeoff",
    "utility",
]


def __dir__() -> list[str]:
    """Return what is public, for tab completion."""
    return __all__


GREY = "#777777"
AUDIT_COLOURS = {"claimed": COLOURS[0], "shown: at least": COLOURS[1]}

# --- What is promised ---

Subject = Pipeline | Certificate | PrivacyLoss | Term
Subjects = Subject | Mapping[str, Subject]
"""A plan, a plan's certificate, a loss or a term; or several by the names to show."""

NO_CURVE = (
    "a session has no curve: its parameters were chosen as it ran, and its filter proves one "
    "(epsilon, delta) alone; draw plot.budget(session)"
)


def privacy_profile(
    what: Subjects,
    *,
    accountants: Sequence[Accountant[Any]] | None = None,
    least: float = 1e-12,
    points: int = 160,
    allow: Collection[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw delta against epsilon (in nats), and return the axes.

    The line is what holds; a band below it reaches to what no proof can go below.

    Parameters
    ----------
    what
        A plan, its certificate, a loss or a term; or a mapping of names to several.
    accountants
        A curve for each of them that has a bound; by default the tight one alone.
    least
        The delta at the lower edge.
    points
        Of each curve.
    allow
        Modules from which a certificate's own mechanisms may be imported.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If there is no curve of it, as of a session, or a parameter is still free.
    InapplicableError
        If no accountant has a bound.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import accountants
    >>> from adaptive_dp import plot
    >>> axes = plot.privacy_profile({"mu = 1": accountants.Gaussian(1.0)}, points=5)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('epsilon (nats)', 'delta (probability)')
    """
    return plot.profile(_guarantees(what, accountants, allow), least=least, points=points, ax=ax)


def tradeoff(
    what: Subjects,
    *,
    accountants: Sequence[Accountant[Any]] | None = None,
    points: int = 160,
    allow: Collection[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the least false-negative rate of a membership test against its false-positive rate.

    The line is what holds for every test; the nearer to "tossing a coin", the more private.

    Parameters
    ----------
    what, accountants, allow, ax
        As for `privacy_profile`.
    points
        Of each curve.

    Raises
    ------
    DeclarationError, InapplicableError, AccountingError
        As `privacy_profile`.

    Examples
    --------
    >>> import accountants
    >>> from adaptive_dp import plot
    >>> axes = plot.tradeoff({"mu = 1": accountants.Gaussian(1.0)}, points=5)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('false-positive rate', 'false-negative rate')
    """
    return plot.tradeoff(_guarantees(what, accountants, allow), points=points, ax=ax)


def _guarantees(
    what: Subjects, accountants: Sequence[Accountant[Any]] | None, allow: Collection[str]
) -> dict[str, Guarantee]:
    """Return a guarantee for each subject, and for each accountant that applies to it."""
    many = what if isinstance(what, Mapping) else {"": what}
    guarantees: dict[str, Guarantee] = {}
    reasons: list[str] = []
    for name, each in many.items():
        term = _term(each, allow)
        if accountants is None:
            guarantees[str(name)] = Guarantee(term)
            continue
        for accountant in check_accountants(accountants):
            try:
                title = ", ".join(filter(None, (str(name), accountant.name)))
                guarantees[title] = Guarantee(term, accountant)
            except InapplicableError as error:
                reasons.append(str(error))
    if not guarantees:
        raise InapplicableError("; ".join(reasons) or "there is nothing to draw")
    return guarantees


def _term(subject: Subject, allow: Collection[str]) -> Term:
    match subject:
        case Certificate():
            if subject.session is not None:
                raise DeclarationError(NO_CURVE)
            return load(subject.plan, allow=allow).term
        case Pipeline():
            if subject.adaptive:
                raise DeclarationError(NO_CURVE)
            return subject.term
        case PrivacyLoss():
            return Spend(subject)
        case Term():
            return subject
    raise DeclarationError(
        "a curve is drawn of a plan, a certificate, a loss or a term, or of a mapping of names to "
        f"them; got {type(subject).__name__}"
    )


# --- What it is spent on ---

NAME_LENGTH = 40
"""Characters of a release's name that are shown."""

NAMED_STEPS = 12
"""So many steps of a session are named on the axis; more are numbered."""


def shares(certificate: Certificate, *, most: int = 15, ax: Axes | None = None) -> Axes:
    """Draw each release's share of the budget, the largest on top, and return the axes.

    Shares are in the accounting unit of the tightest accountant. Those in its worst world sum to 1;
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
    of = certificate.accountant if certificate.session is None else "of what was spent"
    drawn = _largest(certificate.nodes, most)[::-1]
    axes = framed(ax, "What the budget is spent on", f"share ({name_on_axis(of)})", "")
    for row, (_, share, touched) in enumerate(drawn):
        fill, hatch = (COLOURS[0], "") if touched else ("white", "////")
        axes.barh(row, share, height=0.6, color=fill, edgecolor=COLOURS[0], hatch=hatch)
        label = f"{share:.1%}" + ("" if touched else " elsewhere")
        write_beside(axes, label, (share, row), (5, 0), va="center", color=INK)
    name_rows(axes, [name for name, _, _ in drawn])
    widest = max((share for _, share, _ in drawn), default=0.0)
    axes.set_xlim(0, 1.3 * widest or 1.0)
    return axes


def name_on_axis(name: str, length: int | None = None) -> str:
    """Return a name as it is, cut to a length: no line breaks, and no formulas."""
    name = visible(name)
    return (name if length is None else cut(name, length)).replace("$", r"\$")


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a plot of bars, without lines across."""
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False, axis="y")


def write_beside(
    axes: Axes, label: str, point: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """Write beside a point of a plot, at an offset in typographic points."""
    axes.annotate(label, point, offset, textcoords="offset points", **style)


def _largest(rows: Iterable[ReleaseRow], most: int) -> list[tuple[str, float, bool]]:
    """Return the largest shares by name, those of the worst world first; the rest as one bar."""
    bars = [(name_on_axis(row.node, NAME_LENGTH), row.share, row.in_worst_world) for row in rows]
    bars.sort(key=lambda bar: (not bar[2], -bar[1]))
    if len(bars) <= most:
        return bars
    shown_bars, rest = bars[: most - 1], bars[most - 1 :]
    inside = [share for _, share, touched in rest if touched]
    outside = len(rest) - len(inside)
    if inside:
        shown_bars.append((f"{len(inside)} others", math.fsum(inside), True))
    if outside:
        shown_bars.append((f"{outside} of other parts", 0.0, False))
    return shown_bars


def budget(session: Session, *, ax: Axes | None = None) -> Axes:
    """Draw what a session has spent after each step, as shares of its budget; return the axes.

    The filter's line decides which step is refused: at 1 nothing is left. The odometer's is the
    epsilon of what was released so far, which holds whenever the analyst stops; it may be above
    the filter's share, since to be read off at any time costs something, and is never above 1.

    Parameters
    ----------
    session
        With or without a ledger; not closed.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If it is no session, or has run nothing yet.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> people = dp.dataset("people", columns={})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    ...     axes = plot.budget(session)
    >>> axes.get_ylabel()
    'share of the budget'
    """
    if not isinstance(session, Session):
        raise DeclarationError(f"a budget is that of a Session, got {type(session).__name__}")
    readings = session.history()
    if not readings:
        raise DeclarationError("the session has run nothing yet; run a step first")
    budgeted = session.budget.epsilon
    title = f"Budget: epsilon {_up(budgeted)}, delta {_up(session.budget.delta)}"
    spent = [reading.share for reading in readings]
    read = [reading.epsilon / budgeted for reading in readings]
    last = shown(readings[-1].epsilon, upward=True, digits=3)
    lines = {
        f"{session.accountant} filter, {spent[-1]:.1%}": spent,
        f"odometer, epsilon {last} of {_up(budgeted)}": read,
    }
    return spent_steps(title, [reading.step for reading in readings], lines, ax=ax)


def spent_steps(
    title: str,
    names: Sequence[str],
    lines: Mapping[str, Sequence[float]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw what was spent after each step, as shares of a budget, a line for each way to count.

    Parameters
    ----------
    title
        Over the plot.
    names
        Of the steps.
    lines
        The shares after each step, by what the legend says.
    """
    axes = framed(ax, title, "", "share of the budget")
    steps = range(len(names) + 1)
    for i, (text, shares) in enumerate(lines.items()):
        axes.plot(
            steps,
            [0.0, *shares],
            color=COLOURS[i],
            linestyle=DASHES[i],
            marker="os"[i],
            markersize=4,
            drawstyle="steps-post",
            label=text,
        )
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylim(0, 1.35 * max(1.0, *(max(shares) for shares in lines.values())))
    if len(names) <= NAMED_STEPS:
        shown_names = [name_on_axis(name, 20) for name in names]
        axes.set_xticks(steps, ["start", *shown_names], rotation=30, ha="right")
    else:
        axes.set_xlabel("steps", color=INK)
    axes.legend(frameon=False, loc="upper left")
    return axes


def _up(value: float) -> str:
    return shown(value, upward=True)


# --- What it buys ---

Measured = Mapping[float, ArrayLike]
"""Measurements, one or several, by the epsilon at which they were made."""

MARKS = "osD^vPX"


def utility(
    measured: Measured | Mapping[str, Measured],
    *,
    label: str = "error",
    baseline: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measurements against epsilon: their means, and standard errors of these as bars.

    Bars say how far the mean of so few runs may be off, not how much a single run varies; one
    measurement alone has none.

    Parameters
    ----------
    measured
        Measurements by epsilon (in nats), yours or those of `simulated`; or such mappings by name.
    label
        What was measured, with its unit.
    baseline
        What is reached without privacy, drawn as a line.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If an epsilon is not positive and finite, or a measurement no finite number.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> from adaptive_dp import plot
    >>> axes = plot.utility({0.1: [9.0, 11.0], 1.0: [1.0, 1.2], 10.0: 0.1}, label="error (years)")
    >>> [round(float(y), 3) for y in axes.lines[0].get_ydata()]
    [10.0, 1.1, 0.1]
    """
    named = bool(measured) and all(isinstance(key, str) for key in measured)
    curves: Mapping[Any, Any] = measured if named else {"": measured}
    axes = framed(ax, "Utility", "epsilon (nats)", f"{label}: mean, and its standard error")
    for i, (name, curve) in enumerate(curves.items()):
        x, mean, error = _points(curve)
        axes.errorbar(
            x,
            mean,
            np.where(np.isnan(error), 0.0, error),  # no bar where there was one measurement
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKS[i % len(MARKS)],
            capsize=3,
            linewidth=1.6,
            label=name or "_",
        )
    if baseline is not None:
        axes.axhline(baseline, color=INK, linewidth=1, label="without privacy")
    if named or baseline is not None:
        axes.legend(frameon=False)
    axes.set_xscale("log")
    return axes


def _points(curve: Any) -> tuple[Array, Array, Array]:
    """Return epsilons in order, with the mean at each and its standard error."""
    if not isinstance(curve, Mapping) or not curve:
        raise DeclarationError(
            "measurements must be a mapping of epsilons to numbers, such as {0.1: [9, 11], 1: "
            f"[2, 3]}}, got {type(curve).__name__}"
        )
    measured = []
    for epsilon, values in curve.items():
        is_number = isinstance(epsilon, int | float | np.number) and not isinstance(epsilon, bool)
        if not is_number or not 0 < float(epsilon) < math.inf:
            raise DeclarationError(f"epsilon must be a positive finite number, got {epsilon!r}")
        outcomes = np.asarray(values)
        if (
            outcomes.dtype.kind not in "biuf"
            or not outcomes.size
            or not np.isfinite(outcomes).all()
        ):
            raise DeclarationError(
                f"the measurements at epsilon = {epsilon:g} must be finite numbers, at least one"
            )
        runs = outcomes.astype(np.float64).ravel()
        several = len(runs) > 1
        error = float(runs.std(ddof=1)) / math.sqrt(len(runs)) if several else math.nan
        measured.append((float(epsilon), float(runs.mean()), error))
    points = np.array(sorted(measured))
    return points[:, 0], points[:, 1], points[:, 2]


def simulated(
    plan: Pipeline | Callable[[float], Pipeline],
    epsilons: Iterable[float],
    score: Callable[[Result], float],
    *,
    data: Mapping[str, Any],
    delta: float = 0.0,
    runs: int = 20,
    seed: int = 0,
) -> dict[float, Array]:
    """Return the scores of simulated runs at each epsilon, for `utility` to draw.

    Runs have seeded noise and are no releases: neither are their scores. On private data a score
    is as private as the data are; choose an epsilon on public or made-up data.

    Parameters
    ----------
    plan
        With free noise, calibrated to each epsilon; or a function of epsilon that returns a plan
        to simulate as it is.
    epsilons
        In nats, each once.
    score
        What to measure of a result (which comes without intervals): a number, such as
        an error.
    data
        The data sets by their names.
    delta
        To which the plan is calibrated.
    runs
        At each epsilon.
    seed
        Of the first run; the others follow, the same at each epsilon.

    Returns
    -------
    dict
        Shape (runs,) for each epsilon.

    Raises
    ------
    DeclarationError
        If an argument does not fit, or the function returns no plan.
    PlanError
        As `Pipeline.calibrate` and `Pipeline.simulate`.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=dp.Free("b"))))
    >>> made_up = {"people": {"age": [30.0] * 500}}
    >>> errors = plot.simulated(plan, [0.1, 1.0], lambda r: abs(r["n"] - 500), data=made_up)
    >>> bool(errors[0.1].mean() > errors[1.0].mean())
    True
    """
    many, first = as_int(runs), as_int(seed)
    if many is None or many < 1:
        raise DeclarationError(f"runs must be an int of at least 1, got {runs!r}")
    if first is None or first < 0:
        raise DeclarationError(f"seed must be an int of at least 0, got {seed!r}")
    scores_at: dict[float, Array] = {}
    for each in epsilons:
        epsilon = number(each)
        if not positive(epsilon) or epsilon in scores_at:
            raise DeclarationError(f"epsilons must be positive and differ, got {each!r}")
        made = _calibrated(plan, epsilon, delta)
        secrets = {name: Secret(value) for name, value in data.items()}
        results = simulations(made, secrets, range(first, first + many))
        scores = [score(result) for result in results]
        scores_at[epsilon] = np.array([float(value) for value in scores])
    return scores_at


def _calibrated(plan: Any, epsilon: float, delta: float) -> Pipeline:
    if isinstance(plan, Pipeline):
        return plan.calibrate(epsilon=epsilon, delta=delta)
    made = plan(epsilon)
    if not isinstance(made, Pipeline):
        raise DeclarationError(
            f"the function of epsilon must return a Pipeline, got {type(made).__name__}"
        )
    return made


# --- What is lost in truth ---


def per_instance(
    losses: ArrayLike,
    *,
    worst: float | None = None,
    title: str = "Loss of each record",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many records lose how much, on a logarithmic axis, and return the axes.

    Per-instance losses are functions of the private data, and so is a picture of them: whoever
    shows it publishes them without any guarantee. So they are taken revealed alone.

    Parameters
    ----------
    losses
        Epsilons (in nats), one for each record: what ``.reveal()`` returned. How many are 0 or
        infinite is written beside the bars.
    worst
        The epsilon of the worst case, drawn as a line.
    title
        Over the picture.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DataError
        If the losses are still private, or not numbers of at least 0.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> from adaptive_dp import plot
    >>> axes = plot.per_instance([0.1, 0.1, 0.5], worst=1.0)
    >>> print(axes.get_xlabel())
    epsilon (nats)
    private: a function of these data
    """
    if isinstance(losses, Secret):
        raise DataError("these losses are private; pass losses.reveal() to show them")
    values = np.asarray(losses)
    if values.dtype.kind not in "biuf" or not np.all(values >= 0):
        raise DataError("losses must be numbers of at least 0, in nats")
    every = values.astype(np.float64).ravel()
    seen = every[(every > 0) & np.isfinite(every)]
    axes = framed(ax, title, "epsilon (nats)", "records")
    if len(seen):
        low, high = float(seen.min()), float(seen.max())
        edges = np.geomspace(low, max(high, low * 1.01), min(40, 5 + len(seen) // 5))
        # geomspace rounds: without this the extremes could fall outside of all bins
        edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
        axes.hist(seen, bins=list(edges), color=COLOURS[0], edgecolor="white")
    if worst is not None:
        axes.axvline(worst, color=COLOURS[1], linestyle="--", linewidth=1.8)
        write_beside(
            axes,
            f"worst case {worst:.3g}",
            (worst, 0.98),
            (-6, 0),
            xycoords=axes.get_xaxis_transform(),
            ha="right",
            va="top",
            color=COLOURS[1],
            fontweight="bold",
        )
    axes.set_xscale("log")
    zero, infinite = int(np.sum(every == 0)), int(np.sum(np.isinf(every)))
    beside = [f"{zero} at 0"] if zero else []
    beside += [f"{infinite} without a bound"] if infinite else []
    note = "; ".join(["private: a function of these data", *beside])
    axes.set_xlabel(f"epsilon (nats)\n{note}")
    return axes


def audit(result: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw what is claimed, what was shown, and what would have been detected; return the axes.

    Parameters
    ----------
    result
        What `adaptive_dp.audit.pipeline`, `mechanism` or another audit returned.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If it is no audit.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> result = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=1_000, seed=1)
    >>> plot.audit(result).get_xlabel()
    'epsilon (nats) at delta 0, confidence 0.999'
    """
    if not isinstance(result, Audit):
        raise DeclarationError(
            f"an audit's result is needed, such as plan.audit(), got {type(result).__name__}"
        )
    rows = [
        ("shown: at least", result.epsilon_lower, False),
        ("claimed", result.epsilon, True),
        ("would be detected", result.power, True),
    ]
    scale = f"epsilon (nats) at delta {result.delta:g}, confidence {result.confidence:g}"
    return audit_bars(rows, result.verdict, scale, ax=ax)


def audit_bars(
    rows: Sequence[tuple[str, float, bool]], title: str, scale: str, *, ax: Axes | None = None
) -> Axes:
    """Draw the epsilons of an audit as bars, those that are infinite left out.

    Parameters
    ----------
    rows
        A name, an epsilon, and whether it is rounded up where it is written; from bottom to top.
        A dotted line marks the one called "claimed".
    title, scale
        Over the plot, and of its axis.
    """
    axes = plot.figure(6.4, 2.6).add_subplot() if ax is None else ax
    framed(axes, name_on_axis(title), scale, "")
    drawn = [row for row in rows if math.isfinite(row[1])]
    for row, (name, value, upward) in enumerate(drawn):
        color = AUDIT_COLOURS.get(name, GREY)
        axes.plot([0, value], [row, row], color=color, linewidth=6, solid_capstyle="butt")
        label = shown(value, upward=upward, digits=4)
        write_beside(axes, label, (value, row), (7, 0), va="center", color=color)
    for name, value, _ in drawn:
        if name == "claimed":
            axes.axvline(value, color=AUDIT_COLOURS[name], linewidth=1, linestyle=":")
    name_rows(axes, [name for name, _, _ in drawn])
    axes.set_ylim(-0.6, len(drawn) - 0.4)
    axes.set_xlim(0, 1.15 * max((value for _, value, _ in drawn), default=0.0) or 1.0)
    return axes
