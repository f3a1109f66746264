"""Recomputing a certificate from its document alone."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from accountants import ACCOUNTANTS, AccountingError
from accountants.rounding import shown
from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.certify import SECURE, certificate
from adaptive_dp.graph.document import load, to_document
from adaptive_dp.graph.errors import DocumentError, PlanError, PluginError
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.origins import Row, said
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.plugins import OURS, allowed_accountant
from adaptive_dp.graph.table import protects
from adaptive_dp.graph.visible import visible

TOLERANCE = 1e-9
"""Room for the rounding of other versions of NumPy and SciPy."""


@frozen
class Verdict:
    """What a recomputation found.

    Parameters
    ----------
    holds
        Whether the claimed epsilon is at least what was found (to a relative 1e-9, room for
        other versions' rounding) and the document describes the plan that it names.
    claimed, found
        Epsilon as claimed, and as recomputed, at the claimed delta.
    reasons
        Why it does not hold; empty where it does.
    delta
        The delta of the claim.
    protects
        Whom the plan protects, a text for each data set, as recomputed.
    release
        Whether it is of a run with secure noise (or of a plan that has not run), fit for release;
        False for a simulation.
    notes
        What the claim rests on that is not of the library, with whose it is: its theorems were
        computed again, not checked.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> certificate = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2))).certify()
    >>> certificate.document["claim"]["epsilon"] = 0.1  # a forger's
    >>> verdict = dp.verify(certificate)
    >>> verdict.holds, round(verdict.found, 6)
    (False, 0.5)
    >>> print(verdict.reasons[0])
    the claim is epsilon = 0.1, the plan's is 0.5
    """

    holds: bool
    claimed: float
    found: float
    reasons: tuple[str, ...]
    delta: float
    protects: tuple[str, ...]
    release: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.holds:
            return visible("does not hold: " + "; ".join(self.reasons))
        claimed, found, delta = (_up(x) for x in (self.claimed, self.found, self.delta))
        lines = [f"holds: epsilon <= {claimed}, recomputed {found}, at delta = {delta}"]
        lines += [visible(f"protects {line}") for line in self.protects]
        lines += map(visible, self.notes)
        return "\n".join(lines if self.release else [*lines, "NOT FOR RELEASE"])


def _up(bound: float) -> str:
    return shown(bound, upward=True, digits=9)


def verify(certificate: Certificate, *, allow: Collection[str] = ()) -> Verdict:
    """Return whether a certificate's claim follows from the plan that it carries.

    Parameters
    ----------
    certificate
        As read from its JSON.
    allow
        Modules from which the plan's own mechanisms may be imported.

    Raises
    ------
    DeclarationError
        If it is no `Certificate`, or ``allow`` no list of module names.
    DocumentError
        If it is not of the form of a certificate, or its plan cannot be read or certified.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> certificate = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2))).certify()
    >>> print(verify(dp.Certificate.from_json(certificate.to_json())))
    holds: epsilon <= 0.5..., recomputed 0.5..., at delta = 0
    protects one row of 'people', added or removed
    """
    require(
        isinstance(certificate, Certificate),
        f"verify needs a Certificate, got {type(certificate).__name__}; read its text with "
        "Certificate.from_json(text)",
    )
    modules = permitted(allow)
    document = certificate.document
    formed(document)
    return compared(document, load(document["plan"], allow=modules), allow=modules)


def compared(
    document: Mapping[str, Any],
    plan: Pipeline,
    *,
    allow: Collection[str] = (),
    adaptive: bool = False,
) -> Verdict:
    """Return whether a certificate of the right form says what is recomputed from its plan.

    An accountant that is not of the library is asked again if it is published as a plug-in and its
    module is allowed; else the certificate does not hold, whatever the others find. With
    ``adaptive`` it is a session's: its claim is a filter's, which is not looked at here.
    """
    claim = Certificate(dict(document))
    named = [row["name"] for row in document["accountants"]]
    foreign = {n: allowed_accountant(n, allow) for n in map(str, named) if n not in OURS}
    plugged = [found for found in foreign.values() if not isinstance(found, PluginError)]
    chosen = [*(a for a in ACCOUNTANTS if a.name in named), *plugged] or ACCOUNTANTS
    try:
        again = certificate(
            plan.structure,
            to_document(plan),
            plan.fingerprint,
            claim.delta,
            chosen,
            adaptive=adaptive,
            claim=document["claim"] if adaptive else None,
        ).document
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"certificate.plan cannot be certified: {error}") from None
    found = Certificate(again).epsilon
    reasons = [str(error) for error in foreign.values() if isinstance(error, PluginError)]
    if not adaptive and not covers(claim.epsilon, found):
        reasons.append(f"the claim is epsilon = {claim.epsilon:.9g}, the plan's is {found}")
    if plan.fingerprint != document["fingerprint"]:
        reasons.append("the fingerprint is not that of the plan")
    reasons += _accountants(document, again, adaptive)
    for part in ("protects", "nodes", "worlds", "assumptions"):
        if not _same(again[part], document[part]):
            reasons.append(f"the entry {part!r} is not what the plan says")
    reasons += _randomness(document["randomness"], again["randomness"])
    rests: list[Row] = again.get("third_party", [])
    reasons += _third_party(document.get("third_party", []), rests)
    return Verdict(
        not reasons,
        claim.epsilon,
        found,
        tuple(reasons),
        claim.delta,
        tuple(protects(row) for row in again["protects"]),
        document["randomness"]["release"] is True,
        tuple(_notes(document.get("third_party", []), rests)),
    )


def _accountants(
    claimed: Mapping[str, Any], again: Mapping[str, Any], adaptive: bool
) -> Iterator[str]:
    """Yield what the accountants' rows claim and the recomputation does not find."""
    known = {row["name"]: row for row in again["accountants"]}
    names = [row["name"] for row in claimed["accountants"]]
    for row in claimed["accountants"]:
        other = known.get(row["name"]) if isinstance(row["name"], str) else None
        if other is None or names.count(row["name"]) > 1:
            yield f"the accountant {row['name']!r} is unknown, or listed twice"
            continue
        for field in ("applies", "theorem", "reason", "world"):
            if not _same(row[field], other[field]):
                yield f"the {row['name']} accountant's {field!r} is not what is recomputed"
        if not other["applies"]:
            if (row["lower"], row["upper"]) != (None, None):
                yield f"the {row['name']} accountant has no bounds, since it does not apply"
        elif not covers(row["upper"], other["upper"]):
            yield f"the {row['name']} accountant finds {other['upper']}, not {row['upper']!r}"
        elif not covers(other["lower"], row["lower"]):
            found, claim = other["lower"], row["lower"]
            yield f"the {row['name']} accountant's lower end is {found}, not {claim!r}"
    if adaptive:
        return
    claim = claimed["claim"]
    other = known.get(claim["accountant"]) if isinstance(claim["accountant"], str) else None
    if claim["accountant"] not in names:
        yield "the accountant of the claim is not among those listed"
    elif other is not None and not covers(claim["epsilon"], other["upper"]):
        yield (
            f"the accountant of the claim, {claim['accountant']}, finds {other['upper']}, not "
            f"{claim['epsilon']}"
        )


def _third_party(claimed: Sequence[Row], again: Sequence[Row]) -> Iterator[str]:
    """Yield what a certificate says of code from elsewhere, and is not so; versions may differ."""
    known, told = ({_unversioned(row) for row in rows} for rows in (again, claimed))
    for row in again:
        if _unversioned(row) not in told:
            yield f"it rests on {said(row)}, and does not say so"
    if told - known:
        yield "the entry 'third_party' names what it does not rest on"


def _notes(claimed: Sequence[Row], again: Sequence[Row]) -> Iterator[str]:
    """Yield whose code was trusted, and where another version of it made the certificate."""
    made = {_unversioned(row): row["version"] for row in claimed}
    for row in again:
        version = made.get(_unversioned(row), row["version"])
        other = f"; the certificate was made with {version}" if version != row["version"] else ""
        yield f"trusts {said(row)}{other}"


def _unversioned(row: Row) -> tuple[str | None, ...]:
    return row["kind"], row["class"], row["distribution"]


def _randomness(claimed: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a certificate says of its noise and cannot be."""
    if claimed["samplers"] != again["samplers"]:
        yield "the samplers are not those of the plan's mechanisms"
    source = claimed["source"]
    simulated = isinstance(source, str) and re.fullmatch(r"seed [0-9]+", source) is not None
    if source != SECURE["source"] and not simulated:
        yield f"noise comes from {SECURE['source']} or from a seed, not from {source!r}"
    elif claimed["release"] is not (not simulated):
        yield f"with noise from {source} it cannot be that release is {claimed['release']!r}"


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers but for rounding; true is no number."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (one, other)]
    if all(numbers):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    return type(one) is type(other) and bool(one == other)


def covers(above: Any, below: Any) -> bool:
    """Whether one bound is at least another, with room for rounding; False for no number."""
    if isinstance(above, bool) or isinstance(below, bool):
        return False
    try:
        return float(above) * (1 + TOLERANCE) >= float(below)
    except (TypeError, ValueError):
        return False
