"""How far released answers may be from the population of which the rows are a random sample.

Rows that were drawn independently from a population P, and an analyst who asks the next query after
the answers before: on rows that are reused so, plain answers may fit the sample and not P. Answers
of a session cannot, by more than what follows from its epsilon and its noise alone.

**Theorem.** Let S be n independent rows of P, and let a session release pi from S, each value read
by the next step. For every n rows that differ in one, and every function f with values in [0, 1],
``E f(pi) <= E' e^{epsilon(pi)} f(pi) + delta``, where epsilon(pi) is what the odometer reads where
the session stops. Of the queries q_j(S), each the mean over the rows of a function with values in
[0, 1], let a_j, in [0, 1], be the released answers, with ``|a_j - q_j(S)| <= alpha_j`` for all j
but for a probability of beta_s. Then for all c > 0 and eta > 0, with a probability of at least
``1 - beta_s / c - delta / eta``,

``|a_j - q_j(P)| <= alpha_j + c + gamma``  for all j,
``gamma = (1 - sqrt(1 - t^2 - 2 t eta)) / t``, ``t = tanh(epsilon(pi) / 2)``

(1 where the root is of a negative number), which is ``tanh(epsilon / 4)`` where delta is 0; Jung et
al. have ``e^epsilon - 1``, about four times that.

*Proof.* Given pi, let S' be another sample from the posterior of S, so that (S', pi) has the law of
(S, pi) (Jung et al. 2020, Lemma 1). Let u_j be the mean of q_j(S') given pi, and m_j = q_j(P).

1. ``|a_j - u_j| <= E |a_j - q_j(S')| <= alpha_j + B``, B the posterior probability that some answer
   is farther off than its alpha. B has the mean beta_s, so it is above c with a probability of at
   most ``beta_s / c`` (Markov).
2. Let g be the largest ``|u_j - m_j|``; the query and, by ``1 - q``, the sign are functions of pi:
   call the query q, with u = m + g. Let A be the event that g > gamma, and write ``E_x`` for the
   mean over S whose i-th row is x. With x and x' independent draws of P, and averaged over i,

   ``E g 1_A = E_{x,x'} (E_x - E_x') q(x) 1_A = (1/2) E_{x,x'} (E_x - E_x') (q(x) - q(x')) 1_A``.

   Let h be the positive part of ``q(x) - q(x')``. As ``(1 + t) / (1 - t) = e^epsilon``, the
   assumption for ``f = (1 - t) h 1_A`` is ``(E_x - E_x') h 1_A <= (E_x + E_x') t h 1_A + delta``;
   so it is for the negative part, x and x' exchanged. Hence

   ``E g 1_A <= E_{x,x'} E_x t |q(x) - q(x')| 1_A + delta <= E t (m + u - 2 m u) 1_A + delta``,

   since ``|a - b| <= a (1 - b) + b (1 - a)``, and given pi, x is a row of the posterior and x' an
   independent one of P. At a given g the bracket is largest where m = (1 - g) / 2, and then
   ``(1 + g^2) / 2``. On A, where g > gamma, ``g - t (1 + g^2) / 2 > eta``: so
   ``eta P(A) <= delta``.

Where an exchange of rows is two steps of the neighbour relation (zeroed out, and back), epsilon is
twice the reading and delta ``(1 + e^{epsilon of the budget})`` times the budget's. Randomized
response of epsilon on one row attains ``tanh(epsilon / 4)``.

References
----------
Dwork, Feldman, Hardt, Pitassi, Reingold and Roth 2015 (the question, and Thresholdout); Jung,
Ligett, Neel, Roth, Sharifi-Malvajerdi and Shenfeld 2020, Thm 2 and Lemma 1 (the resampling lemma,
and step 1); step 2 is proven here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from attrs import frozen

from accountants.numerics import shown, up
from adaptive_dp.graph.certificate import table
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.nodes import ReleaseNode
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.session.certificate import paid_by_step


def gap_bound(epsilon: float, eta: float = 0.0) -> float:
    """Return gamma, by which posterior means of queries in [0, 1] may differ from the population's.

    Parameters
    ----------
    epsilon
        Of an exchange of one row, non-negative.
    eta
        delta over the probability with which the bound may fail.

    Examples
    --------
    >>> gap_bound(0.4) >= math.tanh(0.1), round(gap_bound(0.4), 6)
    (True, 0.099668)
    >>> gap_bound(0.4, eta=1.0)
    1.0
    """
    if not epsilon < 1400:
        return 1.0
    # tanh rounded up: gamma rises in t and in eta
    t = min(1.0, up(math.tanh(up(epsilon / 2)), 8))
    if t == 0:
        return up(eta, 4)  # the limit: g - eta <= 0
    inside = 1 - t * t - 2 * t * eta
    if inside < 0:
        return 1.0
    # (1 - r) / t = (t + 2 eta) / (1 + r), without cancellation; r rounded down
    root = max(0.0, math.sqrt(max(0.0, inside - 1e-15)) - 1e-15)
    return min(1.0, up((t + 2 * eta) / (1 + root), 16))


@frozen
class GeneralAnswer:
    """One answer, and how far it may be from the population's.

    Parameters
    ----------
    name
        Of the release in the session's plan.
    value
        The answer as a mean per row, in the column's units: a share of the rows for a count. None
        where it is not recorded.
    bound
        How far the population's mean may be from it, in the same units.
    """

    name: str
    value: float | None
    bound: float


@frozen
class Generalization:
    """What the answers of a session say of the population; `Session.generalization` returns it.

    Parameters
    ----------
    beta
        With a probability of at least ``1 - beta``, over the rows and the noise, all bounds hold.
    epsilon, delta
        Of the session so far, for the exchange of one row.
    gap
        What reusing the rows may add to each answer's error on the sample, as a share of the range
        of its query.
    answers
        Those that are means over rows.
    """

    beta: float
    epsilon: float
    delta: float
    gap: float
    answers: tuple[GeneralAnswer, ...]

    def __str__(self) -> str:
        lines = [
            f"with probability {1 - self.beta:g}, at epsilon {shown(self.epsilon, upward=True)}: "
            f"reusing rows adds at most {shown(self.gap, upward=True)} of a range"
        ]
        rows = [
            [a.name, "-" if a.value is None else f"{a.value:.4g}", f"{a.bound:.4g}"]
            for a in self.answers
        ]
        return "\n".join([*lines, "", table(["answer", "value", "population within"], rows)])


@frozen
class _Statement:
    """An answer and its error on the sample, in units of the range of one row's value.

    Parameters
    ----------
    name, value
        As of a `GeneralAnswer`, the value in units of the range.
    low, width
        The smallest value of a row, and the width of the range, in the column's units.
    error
        From the probability with which it may fail to the error on the sample.
    """

    name: str
    value: float | None
    low: float
    width: float
    error: Callable[[float], float]


def generalization_of(
    plan: Pipeline,
    value_of: Callable[[ReleaseNode], Any],
    beta: float,
    *,
    reading: float,
    promised: float,
    delta: float,
) -> Generalization:
    """Return what the answers of a plan's releases say of the population.

    Parameters
    ----------
    plan
        Of the session.
    value_of
        Returns the recorded value of a release; None where there is none.
    beta
        In (0, 1).
    reading, promised, delta
        The odometer's epsilon, and the budget.

    Raises
    ------
    DeclarationError
        If beta is no probability, or no release is a mean over a public number of single rows.
    """
    if not (isinstance(beta, int | float) and 0 < beta < 1):
        raise DeclarationError(f"beta must be a number in (0, 1), got {beta!r}")
    steps = {_exchange_steps(r) for r in plan.structure.releases}
    epsilon, delta = reading, delta
    if 2 in steps:  # two steps for an exchange, in some data set
        delta = up((1 + math.exp(promised)) * delta, 4) if promised < 700 else math.inf
        epsilon = 2 * reading
    statements = [
        (number, each)
        for number, release in enumerate(_releases(plan), 1)
        for each in _statements(release, value_of)
    ]
    if not statements:
        raise DeclarationError(
            "no answer of the session is a mean, a sum or a count over a public number of rows, "
            "each of its own unit; declare the data set with neighbors='replace_one' and size=..."
        )
    # half of beta for the failures of delta, where there is one
    share = 0.5 if delta > 0 else 0.0
    eta = up(delta / (share * beta), 4) if share else 0.0
    gamma = gap_bound(epsilon, eta)

    def errors(c: float) -> list[float]:
        # beta_s = c (1 - share) beta, shared between the releases by 1 / (j (j + 1)), whose sum is
        # at most 1: a release's part depends on its place alone
        failure = c * (1 - share) * beta * (1 - 1e-12)
        return [up(each.error(failure / (j * (j + 1)))) for j, each in statements]

    c = min(np.geomspace(1e-9, 0.5, 241).tolist(), key=lambda c: c + max(errors(c)))
    gap = up(c + gamma, 2)
    answers = []
    for (_, each), error in zip(statements, errors(c), strict=True):
        value = None if each.value is None else each.low + each.width * each.value
        answers.append(GeneralAnswer(each.name, value, min(1.0, up(error + gap)) * each.width))
    return Generalization(float(beta), float(epsilon), float(delta), gap, tuple(answers))


def _releases(plan: Pipeline) -> Iterator[ReleaseNode]:
    """Yield the releases by steps; in a step by digests, so that no later step changes a number.

    A release's number must be settled before its noise is drawn: it decides its share of beta.
    """
    for _, nodes, _ in paid_by_step(plan, plan.adaptive):
        for node in sorted(nodes, key=lambda node: node.digest):
            if isinstance(node, ReleaseNode):
                yield node


def _exchange_steps(release: ReleaseNode) -> int:
    """Return in how many steps of the neighbour relation one row becomes another."""
    return 1 if release.source.neighbors == "replace_one" else 2


def _row_range(release: ReleaseNode) -> tuple[float, float, int] | None:
    """Return the range of what one row adds, and the number of rows; None for other queries.

    The query is the sum, or the mean, over all rows of a public number, of a function of the row
    alone; one row is one unit.
    """
    source: Any = release.source
    query: Any = release.query.operation
    size = getattr(source, "size", None)
    rows = [step.handle.operation for step in release.steps[1:-1]]
    if size is None or source.initial().rows != 1 or release.loops:
        return None
    if not all(each.is_rowwise for each in rows):
        return None
    if query.kind == "count":
        return 0.0, 1.0, size
    bounds = getattr(query, "bounds", None)
    if bounds is None or query.kind not in ("mean", "sum"):
        return None
    if query.kind == "mean":  # divides by its own number of rows, which must be that of all
        return (bounds.lower, bounds.upper, size) if query.size == size else None
    # a row that is filtered out, or whose value is missing, adds 0
    return min(bounds.lower, 0.0), max(bounds.upper, 0.0), size


def _statements(
    release: ReleaseNode, value_of: Callable[[ReleaseNode], Any]
) -> Iterator[_Statement]:
    found = _row_range(release)
    query = release.query.operation
    if found is None or not isinstance(query, Query):
        return
    low, high, size = found
    width = high - low
    # of a sum, one row's share of the range is a size-th
    scale = width if query.kind == "mean" else width * size
    offset = low if query.kind == "mean" else low * size
    if not width > 0:
        return

    def share(value: float) -> float:
        return min(1.0, max(0.0, (value - offset) / scale))

    mechanism: Any = release.mechanism
    if mechanism.continues:
        begun: Any = release.handle.inputs[1].operation
        answer, around = value_of(release), mechanism.around
        # below: the number is within the threshold of what it was compared with, but for noise
        if around is None or answer is None or answer != 0:
            return
        bar = begun.mechanism.threshold if mechanism.threshold is None else mechanism.threshold
        noise = begun.mechanism.scale + begun.mechanism.query_scale()

        def distance(failure: float) -> float:
            # each of the two Laplace numbers is above b log(1 / failure) with half of it
            return float(up((bar - noise * math.log(failure)) / scale, 8))

        yield _Statement(release.name, share(around), low, width, distance)
        return
    dimension, step = query.dimension(release.query.inputs[0].domain), 0.0
    step = query.step(release.query.inputs[0].domain)
    if dimension != 1 or mechanism.error(0.9, 1, step) is None:
        return

    def error(failure: float) -> float:
        # a level that is next to 1 would be rounded to it
        level = 1 - max(failure, 1e-15)
        if failure < 1e-15:
            return math.inf
        return float(up(mechanism.error(level, 1, step) / scale, 8))

    value = value_of(release)
    yield _Statement(release.name, None if value is None else share(value), low, width, error)
