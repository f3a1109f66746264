"""What a plan's answers lose on the data at hand: a private number, for who may see the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accountants import DataDependent, DataDependentRenyi, PrivacyLoss, Secret
from accountants.errors import probability
from adaptive_dp.graph.charge import Charge, regions, releases
from adaptive_dp.graph.compile import distance, paid
from adaptive_dp.graph.convert import whole
from adaptive_dp.graph.errors import RunError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.run import private_values
from adaptive_dp.pate.ballots import BallotsDomain, VoteCounts
from adaptive_dp.pate.bounds import Bounded, fixed_questions, table, votes_of


def private_epsilon(
    plan: Pipeline, /, *, delta: float, seed: int | None = None, **data: Any
) -> Secret[float]:
    """Return the epsilon at delta that a plan costs on the data at hand: itself private.

    It composes Renyi curves: of each aggregator that has one (`GNMax`, ...) that of the very votes,
    of all else, and where it is less, the worst case. The votes are those of ``plan.simulate`` with
    the same seed; without one, teachers are split and trained anew.

    **It is no guarantee, and must not be published**: it is a function of the data, and tells of
    them; and it bounds one direction, ``P(S) <= e^eps P'(S) + delta`` with P the law on the data at
    hand, P' on a neighbour's. What may be published is `adaptive_dp.pate.sanitized`.

    Parameters
    ----------
    plan
        Its votes must be on points that depend on no released value. No loops, samples or parts.
    delta
        From 0 to 1.
    seed
        As of `Pipeline.simulate`; None for teachers drawn by the operating system's randomness.
    data
        As for `Pipeline.run`.

    Returns
    -------
    accountants.Secret
        ``<private>``; ``.reveal()`` shows it, which releases it unprotected.

    Raises
    ------
    DeclarationError
        If the plan is one that it cannot treat, which the message names.
    DataError
        If the data does not fit its declaration.

    References
    ----------
    Papernot et al. 2017 and 2018 (data-dependent accounting), each direction by itself.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=3)
    >>> plan = dp.Pipeline(labels=votes.release(dp.pate.GNMax(sigma=40.0)))
    >>> agreed = {"counts": np.tile([248, 1, 1], (100, 1))}
    >>> epsilon = private_epsilon(plan, delta=1e-6, seed=1, votes=agreed)
    >>> epsilon, epsilon.reveal() < plan.certify(delta=1e-6).epsilon
    (<private>, True)
    """
    probability("delta", delta)
    number = whole(seed)
    require(
        seed is None or (number is not None and number >= 0),
        f"private_epsilon's seed must be a whole number of at least 0, got {seed!r}",
    )
    charges = releases(plan.structure)
    for charge in charges:
        _refuse(charge)
    wanted = {c.chain[-1].name: c for c in charges if _own(c)}
    hidden = {name: Secret(value) for name, value in data.items()}  # for tracebacks
    del data
    votes = private_values(plan, hidden, number, set(wanted))
    accountant = DataDependentRenyi()
    state = accountant.start()
    for charge in charges:
        worst, _ = paid([charge])[charge.node.name]
        loss: PrivacyLoss = worst
        if _own(charge):
            loss = DataDependent(worst, Secret(_curve(charge, votes[charge.chain[-1].name])))
        state = accountant.compose(state, loss)
    return _guarded(lambda: accountant.private_epsilon(state, delta))


def _refuse(charge: Charge) -> None:
    """Raise unless a release is one whose losses add up to what the plan loses."""
    around = regions(charge)
    require(
        not around,
        f"{charge.node.name}: private_epsilon treats no loops, samples and parts, here "
        f"{', '.join(around)}; ask it of a plan without them",
    )
    require(
        not charge.mechanism.free(),
        f"{charge.node.name}: its noise is still free; call plan.calibrate(...) first",
    )
    require(
        not _own(charge) or fixed_questions(charge.chain[-1].handle),
        f"{charge.node.name}: its questions depend on released values (points chosen by earlier "
        "answers); on other answers others would have been asked, so that what these votes lose "
        "bounds nothing; ask on points that are fixed beforehand",
    )


def _own(charge: Charge) -> bool:
    """Whether a release is an aggregator's of which more is proven than the worst case.

    That is where one teacher changes; of more the worst case is charged.
    """
    mechanism = charge.mechanism
    known = isinstance(mechanism, Bounded) and mechanism.reads is VoteCounts
    return known and distance(charge, 0) <= 1


def _curve(charge: Charge, votes: Secret[Any]) -> Callable[[Any], Any]:
    domain: BallotsDomain = charge.chain[-1].handle.domain
    own = votes_of(charge.mechanism, domain)
    return lambda orders: own.curve(table(votes.reveal().counts), orders)


def _guarded(compute: Callable[[], Secret[float]]) -> Secret[float]:
    stopped = False
    try:
        with np.errstate(all="ignore"):  # a warning would tell of the data
            return compute()
    except KeyboardInterrupt:
        stopped = True
    except BaseException:
        pass
    if stopped:  # outside of the handler, so that no traceback holds the data
        raise KeyboardInterrupt
    raise RunError("private_epsilon failed; the cause is withheld, since it may carry private data")
