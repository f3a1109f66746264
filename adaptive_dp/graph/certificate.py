"""The certificate: what a plan promises, by which theorem, under which assumptions."""

from __future__ import annotations

import json
import math
from typing import Any

from attrs import frozen

from accountants import Bounds
from accountants.codec import loads
from accountants.rounding import shown
from adaptive_dp.graph.errors import DocumentError
from adaptive_dp.graph.table import certificate_html, certificate_text
from adaptive_dp.graph.untrusted import check_values

FORMAT = "adaptive-dp/certificate/2"
PLAN = "adaptive-dp/plan/"


@frozen(eq=False, repr=False)
class Certificate:
    """The claim of a plan with everything it rests on; `document` is all of it as JSON.

    Parameters
    ----------
    document
        Mapping of the form that the shipped schema describes.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
    >>> plan = dp.Pipeline(
    ...     count=people.count().release(dp.Gaussian(sigma=20)),
    ...     towns=people["town"].histogram().release(dp.Gaussian(sigma=10)),
    ... )
    >>> certificate = plan.certify(delta=1e-6)
    >>> certificate
    <certificate epsilon=0.447153 delta=1e-06 by gaussian>
    >>> round(certificate.bounds["gaussian"].upper, 4), certificate.shares
    (0.4472, {'count': 0.2, 'towns': 0.8})
    >>> Certificate.from_json(certificate.to_json()).epsilon == certificate.epsilon
    True
    """

    document: dict[str, Any]

    @property
    def epsilon(self) -> float:
        """The certified epsilon: the least upper bound of all accountants, in nats."""
        return _number(self.document["claim"]["epsilon"])

    @property
    def delta(self) -> float:
        """The delta at which epsilon is certified."""
        return float(self.document["claim"]["delta"])

    @property
    def accountant(self) -> str:
        """The name of the tightest accountant."""
        return str(self.document["claim"]["accountant"])

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Each accountant's bracket of epsilon, for those that apply."""
        return {
            row["name"]: Bounds(row["lower"], _number(row["upper"]))
            for row in self.document["accountants"]
            if row["applies"]
        }

    @property
    def shares(self) -> dict[str, float]:
        """Each release's share of the budget, in the tightest accountant's currency."""
        return {row["node"]: row["share"] for row in self.document["nodes"]}

    @property
    def worst_world(self) -> tuple[str, ...]:
        """Where the unit lies that can lose the most: one label for each partition."""
        return tuple(self.document["worlds"]["worst"])

    def to_json(self) -> str:
        """Return the canonical JSON text: sorted keys, no spaces that carry nothing."""
        return json.dumps(self.document, sort_keys=True, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Return the certificate of a JSON text.

        Raises
        ------
        DocumentError
            If the text is not a certificate.
        """
        try:
            document = loads(text)
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"not a certificate: {error}") from None
        formed(document)
        return cls(document)

    def __str__(self) -> str:
        return certificate_text(self.document)

    def __repr__(self) -> str:
        epsilon, delta = (shown(bound, upward=True) for bound in (self.epsilon, self.delta))
        return f"<certificate epsilon={epsilon} delta={delta} by {self.accountant}>"

    def _repr_html_(self) -> str:
        return certificate_html(self.document)


_FORM: dict[str, tuple[type, frozenset[str]]] = {
    "claim": (dict, frozenset({"epsilon", "delta", "accountant"})),
    "protects": (list, frozenset({"data", "neighbors", "unit", "rows_per_unit", "size"})),
    "fingerprint": (str, frozenset()),
    "plan": (dict, frozenset()),
    "nodes": (
        list,
        frozenset({"node", "query", "of", "mechanism", "parameters", "norm", "distance", "loss"})
        | {"theorem", "source", "sampler", "conversions", "times", "region", "share"}
        | {"in_worst_world"},
    ),
    "accountants": (
        list,
        frozenset({"name", "theorem", "applies", "reason", "lower", "upper", "world"}),
    ),
    "worlds": (dict, frozenset({"count", "exact", "worst"})),
    "assumptions": (list, frozenset()),
    "randomness": (dict, frozenset({"source", "release", "samplers"})),
    "versions": (dict, frozenset()),
}


_SESSION = frozenset(
    {"failures", "theorem", "steps", "currencies", "spent", "remaining", "failed", "odometer"}
    | {"ledger"}
)
"""What a session's certificate says beside; other certificates have no such section."""


def formed(document: dict[str, Any]) -> None:
    """Check that a certificate has the sections and fields that this module writes.

    Raises
    ------
    DocumentError
        If not, with the place.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        cure = "; a plan is read by dp.load(text)" if str(found).startswith(PLAN) else ""
        raise DocumentError(f"not a certificate: 'format' must be {FORMAT!r}, got {found!r}{cure}")
    check_values(document, "certificate")
    missing, unknown = (
        set(_FORM) - set(document),
        set(document) - set(_FORM) - {"format", "session", "third_party"},
    )
    if missing or unknown:
        raise DocumentError(
            f"not a certificate: it lacks {', '.join(sorted(missing)) or 'nothing'}, and has "
            f"unknown {', '.join(sorted(unknown)) or 'nothing'}"
        )
    for name, (kind, fields) in _FORM.items():
        section = document[name]
        if not isinstance(section, kind):
            raise DocumentError(f"certificate.{name} must be a {kind.__name__}")
        rows: list[Any] = section if isinstance(section, list) else [section]
        for row in rows if fields else ():
            if not isinstance(row, dict) or set(row) != fields:
                raise DocumentError(
                    f"certificate.{name} must have the fields {', '.join(sorted(fields))}"
                )
    if "session" in document:
        _session(document["session"])
    if "third_party" in document:
        _third_party(document["third_party"])
    claim = document["claim"]
    for value, where in ((claim["epsilon"], "epsilon"), (claim["delta"], "delta")):
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if not number and not (where == "epsilon" and value == "inf"):
            raise DocumentError(
                f"certificate.claim.{where} must be a number of at least 0, got {value!r}"
            )
    if claim["delta"] >= 1:
        raise DocumentError(f"certificate.claim.delta must be below 1, got {claim['delta']!r}")


def _session(section: Any) -> None:
    """Check the section of a session."""
    if not isinstance(section, dict) or set(section) != _SESSION:
        raise DocumentError(
            f"certificate.session must have the fields {', '.join(sorted(_SESSION))}"
        )
    for name, fields in (("odometer", {"epsilon", "theorem"}), ("ledger", {"head", "entries"})):
        if not isinstance(section[name], dict) or set(section[name]) != fields:
            raise DocumentError(
                f"certificate.session.{name} must have the fields {', '.join(sorted(fields))}"
            )
    for name in ("steps", "currencies", "spent", "remaining"):
        if not isinstance(section[name], list):
            raise DocumentError(f"certificate.session.{name} must be a list")


def _third_party(section: Any) -> None:
    """Check the rows of what is not the library's own."""
    fields = {"kind", "class", "distribution", "version"}
    rows: list[Any] = section if isinstance(section, list) else [None]
    if not rows or any(not isinstance(row, dict) or set(row) != fields for row in rows):
        raise DocumentError(
            f"certificate.third_party must be a list of the fields {', '.join(sorted(fields))}"
        )
    if any(not isinstance(v, str | None) for row in rows for v in row.values()):
        raise DocumentError("certificate.third_party must hold texts, or null")


def _number(value: Any) -> float:
    return math.inf if value == "inf" else float(value)
