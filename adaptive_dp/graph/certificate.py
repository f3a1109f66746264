"""Certificates: what a plan promises, by which theorem, under which assumptions."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import scipy
from attrs import frozen

import accountants
from accountants import (
    Answer,
    Bounds,
    Parallel,
    PrivacyLoss,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    World,
)
from accountants.loss import parameters
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.errors import DocumentError
from adaptive_dp.graph.wholesome import unique_json, wholesome
from adaptive_dp.graph.repeat import Repeat
from adaptive_dp.graph.structure import Node, Structure

FORMAT = "adaptive-dp/certificate/1"

ASSUMPTIONS = (
    "It covers one run of the plan: each further run on the same data costs as much again.",
    "The declared bounds, categories, sizes, filters and noise were chosen without looking at "
    "the private data.",
    "Nothing about the data leaves by another way than the plan's releases: functions of "
    "released values reach no private data, and running times and memory are not observed.",
)


@frozen(eq=False, repr=False)
class Certificate:
    """The claim of a plan with everything it rests on; `document` is all of it as JSON.

    Parameters
    ----------
    document
        Mapping of the form that the shipped schema describes.
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
            document = unique_json(text)
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"not a certificate: {error}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise DocumentError(f"not a certificate: 'format' must be {FORMAT!r}")
        formed(document)
        return cls(document)

    def __str__(self) -> str:
        from adaptive_dp.graph.table import certificate_text

        return certificate_text(self.document)

    def __repr__(self) -> str:
        return f"<certificate epsilon={self.epsilon:.6g} delta={self.delta:g} by {self.accountant}>"

    def _repr_html_(self) -> str:
        from adaptive_dp.graph.table import certificate_html

        return certificate_html(self.document)


_FORM: dict[str, tuple[type, frozenset[str]]] = {
    "claim": (dict, frozenset({"epsilon", "delta", "accountant"})),
    "protects": (list, frozenset({"data", "neighbors", "unit", "rows_per_unit", "size"})),
    "fingerprint": (str, frozenset()),
    "plan": (dict, frozenset()),
    "nodes": (
        list,
        frozenset(
            "node query of mechanism parameters norm distance loss theorem source sampler "
            "conversions times region share in_worst_world".split()
        ),
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


def formed(document: dict[str, Any]) -> None:
    """Check that a certificate has the sections and fields that this module writes.

    Raises
    ------
    DocumentError
        If not, with the place.
    """
    wholesome(document, "certificate")
    missing, unknown = set(_FORM) - set(document), set(document) - set(_FORM) - {"format"}
    if missing or unknown:
        raise DocumentError(
            f"not a certificate: it lacks {', '.join(sorted(missing)) or 'nothing'}, and has unknown "
            f"{', '.join(sorted(unknown)) or 'nothing'}"
        )
    for name, (kind, fields) in _FORM.items():
        section = document[name]
        if not isinstance(section, kind):
            raise DocumentError(f"certificate.{name} must be a {kind.__name__}")
        for row in (section if kind is list else [section]) if fields else ():
            if not isinstance(row, dict) or set(row) != fields:
                raise DocumentError(
                    f"certificate.{name} must have the fields {', '.join(sorted(fields))}"
                )
    claim = document["claim"]
    for value, where in ((claim["epsilon"], "epsilon"), (claim["delta"], "delta")):
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if not number and not (where == "epsilon" and value == "inf"):
            raise DocumentError(
                f"certificate.claim.{where} must be a number of at least 0, got {value!r}"
            )
    if claim["delta"] >= 1:
        raise DocumentError(f"certificate.claim.delta must be below 1, got {claim['delta']!r}")


def certificate(
    structure: Structure,
    plan: dict[str, Any],
    fingerprint: str,
    delta: float,
    chosen: Sequence[accountants.Accountant[Any]],
    randomness: dict[str, Any] | None = None,
) -> Certificate:
    """Return the certificate of a compiled plan at ``delta``."""
    term = compiler.term(structure)
    worlds = accountants.worlds(term)
    answers = {a.name: accountants.measure(worlds, a, delta=delta) for a in chosen}
    best = accountants.tightest(answers)
    assert best.bounds is not None
    charges = compiler.releases(structure)
    rows = _nodes(charges, term, best, delta, answers)
    samplers = sorted({row["sampler"] for row in rows if row["sampler"]})
    document = {
        "format": FORMAT,
        "claim": {
            "epsilon": _plain(best.bounds.upper),
            "delta": delta,
            "accountant": best.accountant.name,
        },
        "protects": [_protects(structure, name) for name, _ in compiler.terms(structure)],
        "fingerprint": fingerprint,
        "plan": plan,
        "nodes": rows,
        "accountants": [_accountant_row(answer) for answer in answers.values()],
        "worlds": {
            "count": len(worlds.alternatives),
            "exact": worlds.exact,
            "worst": list(best.world.labels),
        },
        "assumptions": _assumptions(structure, charges, samplers),
        "randomness": randomness
        or {"source": "the operating system", "release": True, "samplers": samplers},
        "versions": _versions(),
    }
    if randomness is not None:
        document["randomness"] = {**randomness, "samplers": samplers}
    return Certificate(document)


def _nodes(
    charges: Sequence[compiler.Charge],
    term: Term,
    best: Answer,
    delta: float,
    answers: dict[str, Answer],
) -> list[dict[str, Any]]:
    paid = compiler.paid(charges)
    price = best.accountant.price(best.state, delta)
    cache: dict[PrivacyLoss, float] = {}

    def cost(loss: PrivacyLoss) -> float:
        if loss not in cache:
            value = price(loss)
            cache[loss] = value if math.isfinite(value) else 0.0
        return cache[loss]

    costs = {name: cost(loss) * times for name, (loss, times) in paid.items()}
    labels = set(best.world.labels)
    regions = {charge.node.name: compiler.regions(charge) for charge in charges}
    parts = {name: [r for r in found if " = " in r] for name, found in regions.items()}
    worst = {name: _touched(found, labels) for name, found in parts.items()}
    total = math.fsum(costs[name] for name in costs if worst[name])
    conversions = _conversions({loss for loss, _ in paid.values()}, answers)
    rows = []
    for charge in charges:
        name = charge.node.name
        mechanism = charge.node.handle.operation.mechanism  # type: ignore[attr-defined]
        loss, times = paid[name]
        rows.append(
            {
                "node": name,
                "query": charge.chain[-1].handle.operation.label(),
                "of": _way(charge),
                "mechanism": type(mechanism).__name__,
                "parameters": encode(mechanism.parameters()),
                "norm": "inf" if math.isinf(mechanism.norm) else mechanism.norm,
                "distance": compiler.distance(charge, mechanism.norm),
                "loss": {"kind": type(loss).__name__} | _described(loss),
                "theorem": mechanism.theorem,
                "source": loss.theorem,
                "sampler": mechanism.sampler,
                "conversions": conversions[loss],
                "times": times,
                "region": regions[name],
                "share": costs[name] / total if total > 0 else 0.0,
                "in_worst_world": worst[name],
            }
        )
    return rows


def _touched(parts: Sequence[str], labels: set[str]) -> bool:
    """Whether the worst world lies in all parts around a node (labels may name several)."""
    named = {piece.split(" (")[0] for label in labels for piece in label.split(", ")}
    return all(part in labels or part in named for part in parts)


def _way(charge: compiler.Charge) -> str:
    steps = [n for n in charge.chain[:-1] if not isinstance(n.handle.operation, Repeat)]
    return " > ".join(
        n.handle.operation.label() for n in steps if n.handle.operation.kind not in ("part",)
    )


def _conversions(
    losses: set[PrivacyLoss], answers: dict[str, Answer]
) -> dict[PrivacyLoss, dict[str, str]]:
    by_type: dict[type, dict[str, str]] = {}
    result = {}
    for loss in losses:
        if type(loss) not in by_type:
            by_type[type(loss)] = {
                name: answer.accountant.conversion(loss)
                for name, answer in answers.items()
                if answer.bounds is not None
            }
        result[loss] = by_type[type(loss)]
    return result


def _described(loss: PrivacyLoss) -> dict[str, Any]:
    plain = {}
    for name, value in parameters(loss).items():
        plain[name] = value if isinstance(value, int | float | str) else str(value)
    return plain


def _accountant_row(answer: Answer) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": answer.accountant.name,
        "theorem": answer.accountant.theorem,
        "applies": answer.bounds is not None,
        "reason": answer.reason,
        "lower": None,
        "upper": None,
        "world": list(answer.world.labels),
    }
    if answer.bounds is not None:
        row |= {"lower": answer.bounds.lower, "upper": _plain(answer.bounds.upper)}
    return row


def _protects(structure: Structure, name: str) -> dict[str, Any]:
    source: Any = structure.nodes[name].handle.operation
    rows = [
        node.handle.operation.rows  # type: ignore[attr-defined]
        for node in structure
        if node.handle.operation.kind == "bound" and _root(structure, node).name == name
    ]
    return {
        "data": source.name,
        "neighbors": source.neighbors,
        "unit": source.unit,
        "rows_per_unit": max(rows, default=1),
        "size": source.size,
    }


def _root(structure: Structure, node: Node) -> Node:
    while node.handle.inputs:
        node = structure.of(node.handle.inputs[0])
    return node


def _assumptions(
    structure: Structure, charges: Sequence[compiler.Charge], samplers: Sequence[str]
) -> list[str]:
    found = list(ASSUMPTIONS)
    for node in structure:
        source: Any = node.handle.operation
        if source.kind == "dataset" and source.unit is not None:
            found.append(
                f"In {source.name!r} all rows of whom to protect carry the same {source.unit!r}, and "
                "this column itself is not released."
            )
        if source.kind == "dataset" and source.neighbors != "add_remove":
            found.append(f"The number of units of {source.name!r} is public.")
    own = sorted(
        {
            type(c.node.handle.operation.mechanism).__name__  # type: ignore[attr-defined]
            for c in charges
            if not type(c.node.handle.operation.mechanism).__module__.startswith("adaptive_dp.")  # type: ignore[attr-defined]
        }
    )
    if own:
        found.append(
            f"The losses that {', '.join(own)} declare are true of what they release (mechanisms "
            "from outside of the library)."
        )
    if any("float64" in sampler for sampler in samplers):
        found.append(
            "Noise is drawn in float64: the theorems hold for real numbers, and the lowest bits of "
            "a released number may tell more than they promise."
        )
    return found


def _versions() -> dict[str, str]:
    try:
        own = version("adaptive-dp")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "adaptive-dp": own,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _number(value: Any) -> float:
    return math.inf if value == "inf" else float(value)


__all__ = ["FORMAT", "Certificate", "World", "certificate"]
