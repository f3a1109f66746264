"""Training by a plan of jax-privacy, certified: its event by our accountants."""

from __future__ import annotations

import math
from typing import Any

from accountants import AccountingError, Repeated, Sampled, Term, from_dp_event
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Neighbors
from adaptive_dp.interop import claims


def certificate(
    execution_plan: Any, *, delta: float, neighbors: Neighbors | None = None
) -> Certificate:
    """Return a certificate of training by a ``DPExecutionPlan`` of jax-privacy.

    The plan says what its steps are as an event (``dp_event``), which is read by
    `accountants.from_dp_event`; epsilon is by the accountants of this library. Where the plan has a
    ``batch_selection_strategy`` it must be one of Poisson samples, of no higher rate and no more
    steps than the event has.

    Parameters
    ----------
    execution_plan
        What ``BandMFExecutionPlanConfig(...).plan`` is, or anything with ``dp_event``.
    delta
        At which epsilon is certified.
    neighbors
        The relation; None for what the plan's batches allow: ``"add_remove"`` where examples are
        divided into groups independently (``PartitionType.INDEPENDENT``), or there is one group
        alone of Poisson samples; else ``"zero_out"``. An example that is added to equal groups
        moves others between them, so that there ``"add_remove"`` is refused.

    Raises
    ------
    DeclarationError
        If there is no event, or it is not one of steps on Poisson samples, such as of batches that
        are cut off (``truncated_batch_size``) or of a fixed size; if the plan's batches are not
        those of its event; or the relation is one that they do not allow.

    References
    ----------
    Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, "(Amplified) banded matrix
    factorization", Thm 4: of b bands, a group's steps are as of ordinary training.

    See Also
    --------
    adaptive_dp.interop.opacus.certificate : The same of what Opacus ran.

    Examples
    --------
    >>> import dp_accounting
    >>> from types import SimpleNamespace
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    >>> event = dp_accounting.SelfComposedDpEvent(step, 2000)
    >>> certificate(SimpleNamespace(dp_event=event), delta=1e-5, neighbors="add_remove")
    <certificate epsilon=2.15973 delta=1e-05 by distribution>
    """
    event = getattr(execution_plan, "dp_event", None)
    if event is None:
        raise DeclarationError(
            "an execution plan of jax-privacy has a dp_event, and "
            f"{type(execution_plan).__name__} has none"
        )
    strategy = getattr(execution_plan, "batch_selection_strategy", None)
    allowed = _relation(strategy)
    relation = neighbors or allowed
    if strategy is not None and relation == "add_remove" and allowed != relation:
        raise DeclarationError(
            "the plan's batches are of groups of equal size, or cut off, so that an example that "
            "is added moves others: certify it for neighbors='zero_out', or use "
            "PartitionType.INDEPENDENT without truncated_batch_size"
        )
    try:
        term = from_dp_event(event, neighbors=relation)
    except AccountingError as error:
        raise DeclarationError(f"nothing can be certified of the plan's event: {error}") from None
    loss = claims.loss_of_term(term)
    if strategy is not None:
        _check_batches(strategy, term)
    return claims.certificate(
        loss,
        "training by a plan of jax-privacy",
        assumes=_assumes(strategy),
        delta=delta,
        neighbors=relation,
    )


def _check_batches(strategy: Any, term: Term) -> None:
    """Refuse batches that are not of the event: one put together by hand may have any others."""
    kind = type(strategy).__name__
    if kind != "CyclicPoissonSampling":
        raise DeclarationError(
            f"the plan's event is of Poisson samples, and its batches are drawn by {kind}: what "
            "they cost is not what the event says; use CyclicPoissonSampling"
        )
    part, steps = (term.part, term.times) if isinstance(term, Repeated) else (term, 1)
    rate = part.rate if isinstance(part, Sampled) else 1.0
    drawn = math.ceil(strategy.iterations / strategy.cycle_length)
    if not (strategy.sampling_prob <= rate and drawn <= steps):
        raise DeclarationError(
            f"the plan's batches are up to {drawn} samples of an example at the rate "
            f"{strategy.sampling_prob!r}, and its event is of {steps} at the rate {rate!r}"
        )


def _relation(strategy: Any) -> Neighbors:
    partition = getattr(getattr(strategy, "partition_type", None), "name", None)
    groups = getattr(strategy, "cycle_length", None)
    truncated = getattr(strategy, "truncated_batch_size", None) is not None
    independent = partition == "INDEPENDENT" or groups == 1
    return "add_remove" if independent and not truncated else "zero_out"


def _assumes(strategy: Any) -> list[str]:
    drawn = "the plan's batch_selection_strategy"
    if strategy is not None:
        drawn += f" ({type(strategy).__name__})"
    return [
        f"batches were those of {drawn}, one for each step, and no other rows were read",
        "clipped sums were those of the plan's clipped_grad, and nothing was done to them before "
        "the plan's noise was added",
        "noise was added as the event says; with column_normalize=True jax-privacy 2.0 scales it "
        "by the norm of the strategy that was given, which must be at least 1",
        "each state of the noise was used once: two trainings from one state have the same noise",
        "nobody knows the noise's seed, and the low bits of its floats tell nothing",
        "each person has one example",
        "what left the training is the noisy sums alone: no loss or accuracy of private examples",
        "norms were computed in 32 bits or more: in 16 bits small ones come out too small",
    ]
