"""Recomputing what a certificate says, and comparing the two field by field.

The one procedure is `adaptive_dp.verify` (in `adaptive_dp.session.certificate`, since certificates
of sessions are recomputed with their filters): read the document, rebuild the plan in it, certify
this plan again, compare. Here is what does not depend on sessions: certifying again what a
certificate claims of its plan, the comparison, and its verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import field, frozen

from accountants import ACCOUNTANTS, Accountant, AccountingError
from accountants.document import short_repr as shortened
from accountants.numerics import shown
from adaptive_dp.graph.certificate import (
    LOWER,
    STATED,
    UPPER,
    AccountantRow,
    Certificate,
    Claim,
    ReleaseRows,
    ThirdParty,
)
from adaptive_dp.graph.certify import OURS, allowed_accountant, certificate
from adaptive_dp.graph.errors import DocumentError, PlanError, PluginError
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import cut, html_text, visible

TOLERANCE = 1e-9
"""Room for the rounding of other versions of NumPy and SciPy."""
MAX_WIDTH = 100
"""Values in reasons are cut to this many characters."""
MAX_NAMED = 12
"""At most this many fields that do not hold are named in the reasons of a verdict."""


@frozen
class Compared:
    """One field of a certificate: as claimed, and as recomputed.

    Parameters
    ----------
    place
        Where the field is, such as ``nodes[0].share``.
    claimed, recomputed
        Its value in the certificate, and as recomputed; None where there is none.
    holds
        Whether the claimed value is right: equal (numbers to a relative 1e-9), or on the
        pessimistic side where it is a bound.
    """

    place: str
    claimed: Any
    recomputed: Any
    holds: bool

    def __str__(self) -> str:
        claimed, recomputed = (_value_text(value) for value in (self.claimed, self.recomputed))
        return f"{self.place}: claimed {claimed}, recomputed {recomputed}"


@frozen
class Verdict:
    """The result of a recomputation.

    Parameters
    ----------
    claimed, recomputed
        Epsilon as claimed, and as recomputed, at the claimed delta; infinite where a session's
        steps do not bear out its claim.
    reasons
        Why the certificate does not hold; empty where it does.
    delta
        The delta of the claim.
    protects
        Whom the plan protects, a `str` for each data set, as recomputed.
    release
        Whether it is of a run with secure noise (or of a plan that has not run), fit for release;
        False for a simulation.
    notes
        Code of third parties that the claim depends on, with its distribution: its bounds were
        computed again, its theorems were not checked.
    fields
        Each field that was compared; what is said of many equal releases, once.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from attrs import evolve
    >>> people = dp.dataset("people", columns={})
    >>> certificate = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2))).certify()
    >>> forged = evolve(certificate, claim=evolve(certificate.claim, epsilon=0.1))
    >>> verdict = dp.verify(forged)
    >>> verdict.holds, round(verdict.recomputed, 6)
    (False, 0.5)
    >>> [row.place for row in verdict.fields if not row.holds]
    ['claim.epsilon']
    """

    claimed: float
    recomputed: float
    reasons: tuple[str, ...]
    delta: float
    protects: tuple[str, ...]
    release: bool
    notes: tuple[str, ...] = ()
    fields: tuple[Compared, ...] = field(default=(), repr=False)

    @property
    def holds(self) -> bool:
        """Whether the claim holds.

        The claimed epsilon is at least what was recomputed (to a relative 1e-9, for the rounding of
        other versions), and the certificate describes the plan that it names.
        """
        return not self.reasons

    def _repr_html_(self) -> str:
        return html_text(self)

    def __str__(self) -> str:
        if not self.holds:
            return visible("does not hold: " + "; ".join(self.reasons))
        bounds = (self.claimed, self.recomputed, self.delta)
        claimed, recomputed, delta = map(_rounded_up, bounds)
        lines = [f"holds: epsilon <= {claimed}, recomputed {recomputed}, at delta = {delta}"]
        lines += [visible(f"protects {line}") for line in self.protects]
        lines += map(visible, self.notes)
        return "\n".join(lines if self.release else [*lines, "NOT FOR RELEASE"])


def _rounded_up(bound: float) -> str:
    return shown(bound, upward=True, digits=9)


def recertified(
    claimed: Certificate,
    plan: Pipeline,
    *,
    allow: Collection[str] = (),
    claim: Claim | None = None,
) -> tuple[Certificate, list[str]]:
    """Return the certificate of a plan by the accountants, delta and seed of another one.

    An accountant that is not of the library computes again if it is published as a plug-in and its
    module is allowed.

    Parameters
    ----------
    claimed
        The certificate that names the accountants, the delta and the seed.
    plan
        The plan.
    allow
        Modules from which accountants may be imported.
    claim
        Of a session, whose losses were chosen as it ran: what its filter promises.

    Returns
    -------
    Certificate, list of str
        The certificate, and why accountants could not be asked: the claim does not hold then,
        whatever the others find.

    Raises
    ------
    DocumentError
        If the plan cannot be certified.
    """
    named = [row.name for row in claimed.accountants]
    # accountants of third parties are imported only from modules that the reader allows
    foreign = {name: allowed_accountant(name, allow) for name in named if name not in OURS}
    refused = [
        str(accountant) for accountant in foreign.values() if isinstance(accountant, PluginError)
    ]
    plugged = [
        accountant for accountant in foreign.values() if not isinstance(accountant, PluginError)
    ]
    chosen: list[Accountant[Any]] = [a for a in ACCOUNTANTS if a.name in named]
    # a bounded number of digits: a hostile certificate must not cost quadratic time in int()
    seed = re.fullmatch(r"seed ([0-9]{1,4000})", claimed.randomness.source)
    try:
        again = certificate(
            plan.structure,
            plan.to_document,
            plan.fingerprint,
            claimed.delta,
            # where none can be asked, the library's give an epsilon to compare with
            [*chosen, *plugged] or ACCOUNTANTS,
            # any other source than a seed is compared with the operating system
            seed=None if seed is None else int(seed[1]),
            adaptive=claim is not None,
            claim=claim,
        )
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"certificate.plan cannot be certified: {error}") from None
    return again, refused


def compared(claimed: Certificate, again: Certificate) -> Iterator[Compared]:
    """Yield each field of a certificate beside what was recomputed.

    Parameters
    ----------
    claimed
        The certificate, as read.
    again
        The same, recomputed from its plan.
    """
    expected = again.claim
    if claimed.session is None:
        # the claim may name another accountant than the tightest: compared with that one's epsilon
        for row in again.accountants:
            if row.name == claimed.accountant and row.upper is not None:
                expected = attrs.evolve(expected, epsilon=row.upper, accountant=row.name)
    for section in attrs.fields(Certificate):
        one, other = getattr(claimed, section.name), getattr(again, section.name)
        if section.name == "claim":
            yield from _fields("claim", one, expected, {})
        elif section.name == "accountants":
            yield from _accountants(one, other)
        elif section.name == "third_party":
            yield from _third_party(one, other)
        elif section.name == "nodes":
            yield from _releases(one, other)
        elif one is other:  # the plan that was certified again is the one that is claimed
            yield Compared(section.name, again.fingerprint, again.fingerprint, True)
        else:
            yield from _fields(section.name, one, other, section.metadata)


def verdict(
    claimed: Certificate,
    again: Certificate,
    fields: Iterable[Compared],
    reasons: Iterable[str],
) -> Verdict:
    """Return a comparison's result, with further reasons why the certificate does not hold."""
    # every field that does not hold is a reason, not only epsilon
    rows = tuple(fields)
    wrong = [str(row) for row in rows if not row.holds]
    more = [f"{len(wrong) - MAX_NAMED} more fields are wrong"] if len(wrong) > MAX_NAMED else []
    return Verdict(
        claimed.epsilon,
        again.epsilon,
        (*reasons, *wrong[:MAX_NAMED], *more),
        claimed.delta,
        tuple(map(str, again.protects)),
        claimed.randomness.release,
        tuple(_notes(claimed.third_party, again.third_party)),
        rows,
    )


def _fields(
    place: str, claimed: Any, recomputed: Any, rule: Mapping[Any, Any]
) -> Iterator[Compared]:
    """Yield the fields of two values, down to scalars; ``rule`` is how they are compared."""
    # its class says how a field is compared: UPPER, LOWER, STATED, or equal
    if attrs.has(type(claimed)) and type(claimed) is type(recomputed):
        for each in attrs.fields(type(claimed)):
            one, other = getattr(claimed, each.name), getattr(recomputed, each.name)
            yield from _fields(f"{place}.{each.name}", one, other, each.metadata)
    elif isinstance(claimed, Mapping) and isinstance(recomputed, Mapping) and rule != STATED:
        # the union of the keys: a missing field and an added one are both wrong
        for key in dict.fromkeys([*claimed, *recomputed]):
            inside = f"{place}.{key[:40]}"
            if key in claimed and key in recomputed:
                yield from _fields(inside, claimed[key], recomputed[key], rule)
            else:
                yield Compared(inside, claimed.get(key), recomputed.get(key), False)
    elif isinstance(claimed, tuple | list) and isinstance(recomputed, tuple | list):
        pairs = list(zip(claimed, recomputed, strict=False))
        for i, (one, other) in enumerate(pairs):
            yield from _fields(f"{place}[{i}]", one, other, rule)
        # entries that only one side has
        for i, one in enumerate(claimed[len(pairs) :], len(pairs)):
            yield Compared(f"{place}[{i}]", one, None, False)
        for i, other in enumerate(recomputed[len(pairs) :], len(pairs)):
            yield Compared(f"{place}[{i}]", None, other, False)
    else:
        yield Compared(place, claimed, recomputed, _holds(claimed, recomputed, rule))


def _holds(claimed: Any, recomputed: Any, rule: Mapping[Any, Any]) -> bool:
    """Whether a claimed scalar is right by the rule of its field; True is not a number."""
    if rule == STATED:
        return True
    # True == 1 in Python, and would pass as a number
    numbers = [
        isinstance(v, int | float) and not isinstance(v, bool) for v in (claimed, recomputed)
    ]
    if not all(numbers):
        return type(claimed) is type(recomputed) and bool(claimed == recomputed)
    # claiming more than is recomputed is safe for an upper bound, less is not; a lower bound
    # reversed
    if rule == UPPER:
        return covers(claimed, recomputed)
    if rule == LOWER:
        return covers(recomputed, claimed)
    return math.isclose(claimed, recomputed, rel_tol=TOLERANCE)


def covers(above: float, below: float) -> bool:
    """Whether one bound is at least another, with room for rounding."""
    return above * (1 + TOLERANCE) >= below


def _releases(claimed: ReleaseRows, recomputed: ReleaseRows) -> Iterator[Compared]:
    """Yield the fields of the releases' rows; those that equal releases share once."""
    lengths = [[len(places) for _, places in rows.runs] for rows in (claimed, recomputed)]
    if lengths[0] != lengths[1]:  # other rows are equal there: compared one by one
        yield from _fields("nodes", tuple(claimed), tuple(recomputed), {})
        return
    start = 0
    for (one, places), (other, others) in zip(claimed.runs, recomputed.runs, strict=True):
        yield from _fields(f"nodes[{start}]", one, other, {})
        for i in range(1, len(places)) if places != others else ():
            for name, is_, should in zip(("node", "region"), places[i], others[i], strict=True):
                if is_ != should:
                    yield from _fields(f"nodes[{start + i}].{name}", is_, should, {})
        start += len(places)


def _accountants(
    claimed: Sequence[AccountantRow], recomputed: Sequence[AccountantRow]
) -> Iterator[Compared]:
    """Yield the fields of the accountants' rows, in the order of the certificate."""
    expected = {row.name: row for row in recomputed}
    names = [row.name for row in claimed]
    for row in claimed:
        place = f"accountants[{shortened(row.name)}]"
        if row.name not in expected or names.count(row.name) > 1:  # unknown, or listed twice
            yield Compared(place, row.upper, None, False)
        else:
            yield from _fields(place, row, expected[row.name], {})
    for name in expected:
        if name not in names:
            yield Compared(f"accountants[{name!r}]", None, expected[name].upper, False)


def _third_party(
    claimed: tuple[ThirdParty, ...], again: tuple[ThirdParty, ...]
) -> Iterator[Compared]:
    """Yield what a certificate says of third parties' code, whatever the version."""
    recomputed, stated = (
        {_unversioned(row): str(row) for row in rows} for rows in (again, claimed)
    )
    for row in dict.fromkeys([*stated, *recomputed]):
        one, other = stated.get(row), recomputed.get(row)
        yield Compared("third_party", one, other, one is not None and other is not None)


def _notes(claimed: Iterable[ThirdParty], again: Iterable[ThirdParty]) -> Iterator[str]:
    """Yield whose code was trusted, and where another version of it made the certificate."""
    made = {_unversioned(row): row.version for row in claimed}
    for row in again:
        version = made.get(_unversioned(row), row.version)
        other = f"; the certificate was made with {version}" if version != row.version else ""
        yield f"trusts {row}{other}"


def _unversioned(row: ThirdParty) -> tuple[str, str, str | None]:
    return row.kind, row.code, row.distribution


def _value_text(value: Any) -> str:
    if value is None:
        return "absent"
    return f"{value:.9g}" if isinstance(value, float) else cut(repr(value), MAX_WIDTH)
