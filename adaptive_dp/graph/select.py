"""Private selection: the best of a random number of runs of a subgraph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, TypeVarTuple

from attrs import field, frozen

from accountants import Selected, Term
from accountants.runs import expected_runs, stopping_rate, stopping_shape
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.fresh import fresh
from adaptive_dp.graph.handles import Handle, Released, path, post, public
from adaptive_dp.graph.loop import (
    Loop,
    State,
    fresh_in_each_round,
    frontier,
    own_handles,
)
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.scored import scored
from adaptive_dp.noise.stream import Stream

T = TypeVar("T")
Own = TypeVarTuple("Own")


def _shape(value: Any) -> float:
    return _checked(stopping_shape, value)


def _stopping(value: Any) -> float:
    return _checked(stopping_rate, value)


def _checked(check: Callable[[Any], float], value: Any) -> float:
    try:
        return check(value)
    except ValueError as error:
        raise DeclarationError(str(error)) from None


@frozen(eq=False)
class Select(Loop):
    """K rounds of a body, each with a candidate drawn at random; the best round is released.

    K is truncated negative binomial (`accountants.runs`), drawn from probabilities of 60 digits
    and 192 random bits: its law is off by less than 1e-50 in total variation.

    Parameters
    ----------
    shape, stopping
        eta and gamma of the law of K.
    """

    kind: ClassVar[str] = "select"

    shape: float = field(converter=_shape)
    stopping: float = field(converter=_stopping)

    def label(self) -> str:
        """Return the expected number of runs."""
        return f"best of about {expected_runs(self.shape, self.stopping):.4g} runs"

    def rounds(self) -> int:
        """Return the expected number of runs."""
        return math.ceil(expected_runs(self.shape, self.stopping) * (1 - 1e-9))

    def term(self, body: Term) -> Term:
        """Return the body, selected."""
        return Selected(body, self.shape, self.stopping)

    def draw(self, stream: Stream) -> int:
        """Return K, by inversion: ``p_{k+1} = p_k (1 - gamma) (k + eta) / (k + 1)``."""
        high, middle, low = stream.words(3).tolist()
        with localcontext(Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            left = (Decimal(high << 128 | middle << 64 | low) + Decimal("0.5")) / 2**192
            eta, gamma = Decimal(self.shape), Decimal(self.stopping)
            chance = _first(eta, gamma)
            count = 1
            while left > chance:
                left -= chance
                chance *= (1 - gamma) * (count + eta) / (count + 1)
                count += 1
        return count

    def candidate(self, candidates: Sequence[Any], stream: Stream) -> Any:
        """Return one of the candidates, each as likely (to 2^-57 for fewer than 100)."""
        if not isinstance(candidates, Sequence) or isinstance(candidates, str) or not candidates:
            raise RunError(
                "a selection needs a list of at least one candidate, got a "
                f"{type(candidates).__name__}; nothing was released"
            )
        (word,) = stream.words(1).tolist()
        return fresh(candidates[word * len(candidates) >> 64])

    def better(self, best: Any, candidate: Any, found: dict[str, Any]) -> dict[str, Any]:
        """Return the better of two rounds; of equal ones the first, as good as a random one.

        Rounds are independent and alike, so which of equal ones stands first is random.
        """
        if not isinstance(found, dict) or not {"score", "value"} <= set(found):
            raise RunError(
                "a selection's body must return a mapping with 'value' and 'score', as dp.select "
                "writes it; nothing was released"
            )
        score = _number(found["score"])
        this = {"candidate": candidate, "score": score, "value": found["value"]}
        return this if best is None or score > best["score"] else best


@lru_cache(maxsize=64)  # every draw begins with it, at the same precision
def _first(eta: Decimal, gamma: Decimal) -> Decimal:
    """Return P(K = 1); ``e^x - 1`` loses as many digits as x has zeros in front."""
    if eta == 0:
        return (1 - gamma) / -gamma.ln()
    with localcontext() as context:
        x = -eta * gamma.ln()
        context.prec += max(0, -x.adjusted())
        grown = (-eta * gamma.ln()).exp() - 1
    return (1 - gamma) * eta / grown


def _number(score: Any) -> float:
    """Return a released score; what is no number is the worst."""
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        return -math.inf
    return -math.inf if math.isnan(number) else number


def select(
    body: Callable[[Released[Any], *Own], tuple[Released[T], Released[float]]],
    candidates: Sequence[Any],
    *tables: *Own,
    stopping: float,
    shape: float = 1.0,
) -> Released[dict[str, Any]]:
    """Return the best run of ``body`` over candidates drawn at random: tuning, paid for.

    It costs about three times one run for pure epsilon (``2 + shape`` times), and much less in
    Renyi terms, however many the candidates are (Liu and Talwar 2019, Thm 3.2; Papernot and
    Steinke 2022, Thm 2). How often it runs must stay unseen: hide its running time.

    Parameters
    ----------
    body
        Takes the handle of a candidate, and the body's own handle of each of ``tables``, and
        returns two released handles: the value and its score, larger is better. It is called once,
        to learn the subgraph. What depends on its arguments is fresh in every run; all else is
        shared by all runs.
    candidates
        Public values: numbers, texts, lists or mappings.
    tables
        Private tables, columns or queries: releases and samples that the body makes of its own
        handles of them are fresh in every run, whether or not they read the candidate.
    stopping
        gamma, in (0, 1): with shape 1 the chance to stop after each run, 1/gamma runs on average.
    shape
        eta: 1 is geometric, 0 logarithmic.

    Raises
    ------
    LeakError
        If the value or the score is private.
    DeclarationError
        If the body makes a release or a sample that depends on none of its arguments, as
        `adaptive_dp.graph.repeat.repeat` does.

    Returns
    -------
    Released
        A mapping of the best run's ``candidate``, ``score`` and ``value``.

    Examples
    --------
    The age under which most nearly 500 people are, of three:

    >>> import adaptive_dp as dp
    >>> def closeness(count, *, goal):
    ...     return -abs(count - goal)
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> def tried(limit):
    ...     near = people.filter(people["age"] <= limit).count().release(dp.Laplace(scale=20))
    ...     return near, dp.post(closeness, near, goal=500)
    >>> plan = dp.Pipeline(best=dp.select(tried, [30, 40, 50], stopping=0.1))
    >>> plan.certify()
    <certificate epsilon=0.150001 delta=0 by basic>
    >>> best = plan.simulate(seed=1, people={"age": [25] * 100 + [35] * 400 + [45] * 500})["best"]
    >>> sorted(best), best["candidate"] in [30, 40, 50]
    (['candidate', 'score', 'value'], True)
    """
    require(callable(body), f"select needs a function of a candidate, got {body!r}")
    require(
        isinstance(candidates, Sequence) and not isinstance(candidates, str) and bool(candidates),
        f"select needs a list of at least one candidate, got {candidates!r}",
    )
    start = public(list(candidates))
    state: Released[Any] = Released(State())
    Select(shape, stopping, state=state, result=state)  # refuses both before the body is built
    found = body(state, *own_handles("select", tables, state))
    if not (isinstance(found, tuple) and len(found) == 2):
        raise DeclarationError(
            "select: the body must return two released handles, the value and its score, got "
            f"{type(found).__name__}"
        )
    for what, handle in zip(("value", "score"), found, strict=True):
        require(isinstance(handle, Handle), f"select: the {what} must be a released handle")
        require(
            handle.color != "private",
            f"select: the {what} is private: {path(handle)}; release it first",
        )
    result = post(scored, *found)
    fresh_in_each_round("select", state, result)
    operation = Select(shape, stopping, state=state, result=result)
    return Released(operation, (start, *frontier(operation)))
