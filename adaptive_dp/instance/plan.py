"""The loss of each unit of a data set by a plan, and the composition of losses of one record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accountants.definitions import renyi_to_epsilon
from accountants.errors import DomainError, probability
from accountants.numerics import Array, up
from accountants.secret import Secret
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.graph.compile import distance
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.nodes import ReleaseNode
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import bind_source, run_guarded
from adaptive_dp.instance.ridge import posterior_epsilon
from adaptive_dp.mechanisms import Gaussian, Laplace
from adaptive_dp.noise.stream import SecureStream
from adaptive_dp.queries.moments import Gram

# -----------------------------------------------------------------------------
# Composition of one record's losses: the loss of a pair adds up, mechanism by mechanism.
#
# For one pair of data sets (Z, Z without z), adaptively chosen mechanisms compose as they do in the
# worst case (Wang 2019, Lemma 2.4; Feldman and Zrnic 2021, Thm 3.1), whose proofs fix the pair:
#
# * epsilons of pure losses add, and so do epsilons and deltas;
# * Renyi divergences add at every order;
# * Gaussian losses add by the squares of mu, exactly.
#
# Later mechanisms must have the same bound on this pair whatever the earlier ones released.


ORDERS: Array = 1 + np.geomspace(1e-2, 1e4, 80)
"""The Renyi orders at which records' curves are evaluated; each proves its own epsilon."""


def gaussian_epsilons(mus: ArrayLike, delta: float) -> Array:
    """Return the exact epsilon at ``delta`` of every mu (Balle and Wang 2018, Thm 8), rounded up.

    A Gaussian is the pair of leverage 0 of `adaptive_dp.instance.ridge`.

    Examples
    --------
    >>> gaussian_epsilons([0.1, 0.5], delta=1e-6).round(1).tolist()
    [0.4, 2.3]
    """
    return posterior_epsilon(delta, 0.0, _nonnegative(mus))


def composed_mus(mus: Sequence[ArrayLike]) -> Array:
    """Return ``sqrt(sum mu^2)`` for every record (Dong, Roth and Su 2022, Cor. 2), rounded up.

    Examples
    --------
    Two mechanisms, two records:

    >>> composed_mus([[0.3, 0.0], [0.4, 0.1]]).round(6).tolist()
    [0.5, 0.1]
    """
    total: Array = np.zeros(())
    for mu in mus:
        total = np.hypot(total, _nonnegative(mu))
    return np.where(total > 0, up(total, 4 * len(mus)), total)


def renyi_epsilons(divergences: ArrayLike, orders: Array, delta: float) -> Array:
    """Return the least epsilon at ``delta`` that any order proves, for every record.

    Parameters
    ----------
    divergences
        Sums of Renyi divergences, a row for each record and a column for each order; each at
        least that of either direction.
    orders
        Above 1.
    delta
        In [0, 1]; nothing finite is proven at 0.

    Examples
    --------
    >>> orders = np.array([2.0, 8.0, 32.0])
    >>> epsilons = renyi_epsilons(0.02 * orders[None, :], orders, delta=1e-6)
    >>> (np.ceil(1_000 * epsilons) / 1_000).tolist()
    [0.943]
    """
    delta = probability("delta", delta)
    curves = _nonnegative(divergences)
    if delta in (0.0, 1.0):
        return np.full(curves.shape[:-1], np.inf if delta == 0 else 0.0)
    with np.errstate(over="ignore"):
        least: Array = renyi_to_epsilon(curves, orders, delta).min(axis=-1)
    return np.maximum(least, 0.0)


def laplace_renyi(orders: Array, pure: ArrayLike) -> Array:
    """Return the Renyi divergences of Laplace losses of pure epsilons t, a column for each order.

    ``log(a/(2a-1) e^((a-1)t) + (a-1)/(2a-1) e^(-a t)) / (a-1)`` (Mironov 2017, Prop. 6), and never
    above ``min(t, a t^2 / 2)``, which holds for every pure loss.
    """
    a, t = np.asarray(orders, dtype=np.float64), _nonnegative(pure)[..., None]
    with np.errstate(all="ignore"):
        grow, fall = np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t
        log_moment = np.logaddexp(grow, fall)
        # 1e-15 of the terms is more than their rounding
        log_moment = log_moment + 1e-15 * (1 + np.abs(grow) + np.abs(fall))
        laplace = log_moment / (a - 1)
        pure_bound = up(np.minimum(t, a * t * t / 2))
        return np.minimum(np.where(np.isnan(laplace), np.inf, up(laplace)), pure_bound)


def _nonnegative(values: ArrayLike) -> Array:
    """Return losses as float64, or refuse negative ones and NaN."""
    losses = np.asarray(values, dtype=np.float64)
    if not np.all(losses >= 0):
        raise DomainError("losses of records must be non-negative numbers, and not NaN")
    return losses


# -----------------------------------------------------------------------------
# Per-instance losses of a plan.
#
# Each release adds noise to a sum over units. With or without one unit the sum moves by what that
# unit contributes, after every bound, filter and partition on the way; so its loss is that of the
# mechanism at the length of its own contribution, never above the certified one. A unit is charged
# by the parts that its rows are in, and by nothing else.


_QUERIES = ("count", "sum", "vector_sum", "histogram", "gram", "group_count", "group_sum")
_ROWS = ("dataset", "bound", "filter", "where", "partition", "part")
_STEPS = (*_ROWS, "group_by", "column", "clip", "vectors", "norm_clip", "times")


def per_instance(plan: Pipeline, /, **data: Any) -> Secret[Array]:
    """Return the epsilon that the plan costs each unit of the data, at the plan's delta.

    Exact where all noise is Gaussian; otherwise the least of Renyi composition, of the sum of the
    Laplace losses beside the exact Gaussian, and of the plan's certificate. The plan must release
    counts, sums, sums of vectors, histograms or second moments of one data set by `Gaussian` or
    `Laplace`, under add/remove or zero-out neighbours, without samples, repeats and released
    values in its queries.

    Parameters
    ----------
    plan
        With a delta: ``plan.with_delta(1e-6)``, unless all noise is Laplace.
    data
        The data set by its name, as for `Pipeline.run`.

    Returns
    -------
    Secret
        One number for each unit, in the order in which they first appear in the data;
        ``.reveal()`` shows them, which releases them unprotected.

    Raises
    ------
    DeclarationError
        If the plan releases anything else, which the message names.
    DataError
        If the data does not fit its declaration.

    References
    ----------
    Wang 2019, Def. 2.2; Feldman and Zrnic 2021, sec. 4 (norms of one's own contributions).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=200)))
    >>> losses = per_instance(plan, people={"age": [0.0, 20.0, 100.0]})
    >>> losses, losses.reveal().round(6).tolist()
    (<private>, [0.0, 0.1, 0.5])
    """
    paths = plan.structure.releases
    for path in paths:
        _check(path)
    names = {path.source.name for path in paths}
    if len(names) != 1 or set(data) != names:
        raise DataError(
            f"per_instance reads one data set, here {sorted(names)}, got {sorted(data)}; pass it "
            "by its name, such as per_instance(plan, people=frame)"
        )
    # from here on no frame of a traceback holds the data
    secret_data = Secret(next(iter(data.values())))
    del data
    certified = plan.certify().epsilon  # holds for every unit, so it is an upper bound too
    rows = bind_source(paths[0].source, secret_data)
    if not isinstance(rows.reveal(), MemoryRows):
        raise DataError("per_instance reads data in memory: arrays, a mapping of columns, a frame")
    # an error in it shows no data
    epsilons = run_guarded("per_instance", lambda: _epsilons(paths, rows.reveal(), plan.delta))
    return Secret(np.minimum(epsilons, certified))


def _check(path: ReleaseNode) -> None:
    """Raise unless the loss of the release is that of a unit's own contribution."""
    where, query = path.name, path.steps[-1]
    if path.source.neighbors == "replace_one":
        raise DeclarationError(
            f"{where}: under replace_one a record's loss depends on what replaces it; declare the "
            "data set with neighbors='add_remove'"
        )
    for node in path.steps:
        supported = _QUERIES if node is query else _STEPS
        if node.handle.operation.kind not in supported or len(node.handle.inputs) > 1:
            raise DeclarationError(
                f"{where}: {node.name!r} ({node.handle.operation.kind}) has no per-instance loss "
                f"here; supported are {', '.join(_QUERIES)} of rows that depend on no sample, "
                "repeat or released value"
            )
    if type(path.mechanism) not in (Gaussian, Laplace) or len(path.handle.inputs) > 1:
        raise DeclarationError(
            f"{where}: {type(path.mechanism).__name__} has no per-instance loss here; release "
            "with Gaussian or Laplace"
        )
    if path.mechanism.free():
        raise DeclarationError(f"{where}: its noise is still free; call plan.calibrate(...) first")


def _epsilons(paths: Sequence[ReleaseNode], rows: MemoryRows, delta: float) -> Array:
    """Return each unit's epsilon, in the order of the units' first rows."""
    lengths = np.array([_contributions(paths, unit) for unit in _units(rows)])
    lengths = lengths.reshape(-1, len(paths)).T  # a row for each release, without units too
    mus: list[Array] = [np.zeros(lengths.shape[1])]
    pures: list[Array] = [np.zeros(lengths.shape[1])]
    for path, release_lengths in zip(paths, lengths, strict=True):
        sensitivity = distance(path.steps, path.mechanism.norm)
        losses = mus if isinstance(path.mechanism, Gaussian) else pures
        # no contribution is longer than the certified sensitivity, whatever rounding says
        losses.append(
            np.array([_cost(path, min(v, sensitivity)) for v in release_lengths.tolist()])
        )
    return np.where(lengths.any(axis=0), _composed(mus, pures, delta), 0.0)


def _cost(path: ReleaseNode, length: float) -> float:
    """Return the mu, or the pure epsilon, of a release at a unit's contribution of this length.

    The mechanism's rounding is included, but for a unit that contributes nothing.
    """
    query = path.query
    assert isinstance(query.operation, Query)
    shape = query.operation.dimension(query.domain), query.operation.step(query.domain)
    loss = path.mechanism.cost(up(length, 8), *shape)
    value = loss.mu() if isinstance(path.mechanism, Gaussian) else loss.pure()
    if length == 0:
        return 0.0
    return math.inf if value is None else up(value, 2)


def _composed(mus: list[Array], pures: list[Array], delta: float) -> Array:
    """Return the least epsilon that is proven of these Gaussian and pure (Laplace) losses."""
    mu, pure = composed_mus(mus), up(sum(pures[1:], pures[0]), 2 * len(pures))
    # the Gaussian total is exact; pure losses add to it by basic composition
    basic = up(gaussian_epsilons(mu, delta) + pure)
    if delta == 0 or not pure.any():
        return basic
    curves = up(ORDERS * mu[:, None] * mu[:, None] / 2)  # a Gaussian's: alpha mu^2 / 2
    curves = up(sum((laplace_renyi(ORDERS, t) for t in pures), curves), 2 * len(pures))
    return np.minimum(basic, renyi_epsilons(curves, ORDERS, delta))


def _units(rows: MemoryRows) -> Iterator[MemoryRows]:
    """Return the rows of each unit, units in the order of their first row."""
    codes, first, inverse = np.unique(rows.units, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.r_[0, np.cumsum(np.bincount(inverse, minlength=len(codes)))]
    for unit in np.argsort(first):
        own = order[ends[unit] : ends[unit + 1]]
        yield MemoryRows({name: v[own] for name, v in rows.columns.items()}, rows.units[own])


def _contributions(paths: Sequence[ReleaseNode], rows: MemoryRows) -> list[float]:
    """Return the length of one unit's contribution to each release, in its mechanism's norm."""
    values: dict[str, Any] = {}
    stream, lengths = SecureStream(), []
    for path in paths:
        value: Any = rows
        for node in path.steps[1:]:
            if node.name not in values:
                values[node.name] = node.handle.operation.run([value], stream)
            value = values[node.name]
        vector = np.atleast_1d(np.asarray(value, dtype=np.float64))
        # divided by the largest entry first, since squares would overflow
        largest = float(np.abs(vector).max(initial=0.0))
        length = largest * float(np.linalg.norm(vector / (largest or 1.0), path.mechanism.norm))
        rounded_up = up(length, len(vector) + 4)
        query = path.query.operation
        # the rounding of second moments may move each entry between two data sets by at most
        # 2^-20.5 R^2 (see `Gram`); the other sums are exact
        if isinstance(query, Gram):
            rounded_up += 2.0**-20 * query.radius**2 * len(vector)
        lengths.append(rounded_up if length > 0 else 0.0)
    return lengths
