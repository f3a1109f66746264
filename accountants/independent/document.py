"""The document of a term, read anew: nodes with a kind and fields, and the worlds they describe.

A document is what `accountants.to_json` writes. It is read here from the format alone: a node is an
object whose ``kind`` names it, and its other keys are its parameters. A parameter that is left out
has the default below.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from attrs import frozen


class NotCovered(Exception):
    """What this checker has no theorem for, by name."""


class Malformed(ValueError):
    """A document that does not have the form of a term."""


@frozen(cache_hash=True)
class Node:
    """A loss or a term: its kind, and its parameters by name."""

    kind: str
    fields: tuple[tuple[str, Any], ...]

    def __getitem__(self, name: str) -> Any:
        return dict(self.fields)[name]

    def having(self, **changes: Any) -> Node:
        """Return the node with other values of some parameters."""
        return Node(self.kind, tuple((dict(self.fields) | changes).items()))


NEEDED = object()
"""The default of a parameter that has none."""

LOSSES: Mapping[str, Mapping[str, Any]] = {
    "Allocated": {"body": NEEDED, "steps": NEEDED},
    "Approximate": {"epsilon": NEEDED, "delta": NEEDED},
    "BoundedRange": {"epsilon": NEEDED},
    "Composite": {"spends": NEEDED},
    "DiscreteGaussian": {"sigma": NEEDED, "sensitivity": 1},
    "DiscreteLaplace": {"scale": NEEDED, "sensitivity": 1},
    "Envelope": {"losses": NEEDED},
    "ExponentialNoisyMax": {"epsilon": NEEDED},
    "FiniteOutcomes": {"p": NEEDED, "q": NEEDED, "attained": True},
    "FixedSize": {"body": NEEDED, "size": NEEDED, "of": NEEDED},
    "Gaussian": {"mu": NEEDED},
    "GaussianBound": {"mu": NEEDED},
    "GaussianMixture": {
        "shifts": NEEDED,
        "probabilities": NEEDED,
        "opposite_shifts": (),
        "opposite_probabilities": (),
    },
    "GaussianSparseVector": {
        "threshold_noise": NEEDED,
        "query_noise": NEEDED,
        "queries": NEEDED,
        "hits": 1,
        "monotone": False,
    },
    "GumbelNoisyMax": {"epsilon": NEEDED},
    "Laplace": {"epsilon": NEEDED},
    "LaplaceNoisyMax": {"epsilon": NEEDED},
    "ObjectivePerturbation": {
        "mu": NEEDED,
        "determinant": NEEDED,
        "rows": 1,
        "search": 0.0,
        "classes": 1,
    },
    "PermuteAndFlip": {"epsilon": NEEDED},
    "PoissonSelection": {"base": NEEDED, "mean": NEEDED},
    "PrivacyProfile": {"points": NEEDED, "reverse": ()},
    "PrivateSelection": {"base": NEEDED, "shape": NEEDED, "stopping": NEEDED},
    "Pure": {"epsilon": NEEDED},
    "RandomizedResponse": {"epsilon": NEEDED, "categories": 2},
    "RenyiCurve": {"orders": NEEDED, "divergences": NEEDED},
    "ReplacedSample": {"body": NEEDED, "rate": NEEDED},
    "Sampled": {"body": NEEDED, "rate": NEEDED},
    "Shuffled": {"local": NEEDED, "reports": NEEDED},
    "SmoothSanitization": {"sigma": NEEDED, "beta": NEEDED},
    "SparseVector": {
        "threshold": NEEDED,
        "queries": NEEDED,
        "numbers": 0.0,
        "hits": 1,
        "monotone": False,
    },
    "StretchedShift": {"shift": NEEDED, "stretch": NEEDED},
    "Tested": {
        "epsilon": NEEDED,
        "delta": NEEDED,
        "order": NEEDED,
        "divergence": NEEDED,
        "worst": NEEDED,
    },
    "TradeOff": {"points": NEEDED},
    "TruncatedGaussian": {"mu": NEEDED, "bound": NEEDED},
    "TruncatedLaplace": {"epsilon": NEEDED, "bound": NEEDED},
    "ZeroConcentrated": {"rho": NEEDED},
}
"""The losses that are read, with their parameters' defaults."""

TERMS: Mapping[str, Mapping[str, Any]] = {
    "Allocated": {"part": NEEDED, "steps": NEEDED, "times": 1},
    "Grouped": {"part": NEEDED, "size": NEEDED},
    "Parallel": {"choices": NEEDED, "labels": ()},
    "Repeated": {"part": NEEDED, "times": NEEDED},
    "ReplacedSample": {"part": NEEDED, "rate": NEEDED},
    "Sampled": {"part": NEEDED, "rate": NEEDED},
    "Selected": {"part": NEEDED, "shape": NEEDED, "stopping": NEEDED},
    "Sequential": {"parts": NEEDED},
    "Spend": {"loss": NEEDED, "name": ""},
    "Subset": {"part": NEEDED, "size": NEEDED, "of": NEEDED},
}
"""The terms that are read, with their parameters' defaults."""

_TERM_FIELDS = {"part", "choices", "parts"}


def read(document: Any) -> Node:
    """Return the term of a document.

    Raises
    ------
    Malformed
        If it is none.
    NotCovered
        If a kind in it is not known here.
    """
    return _node(document, TERMS, "term")


def _node(value: Any, kinds: Mapping[str, Mapping[str, Any]], what: str) -> Node:
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise Malformed(f"a {what} is an object with the key 'kind'")
    kind = value["kind"]
    if kind not in kinds:
        raise NotCovered(f"no {what} of kind {kind} is known here")
    known = kinds[kind]
    unknown = set(value) - {"kind", *known}
    missing = {name for name, default in known.items() if default is NEEDED} - set(value)
    if unknown or missing:
        raise Malformed(f"{kind} has unknown fields {sorted(unknown)} or lacks {sorted(missing)}")
    given = {name: value.get(name, default) for name, default in known.items()}
    return Node(kind, tuple((name, _value(each, name)) for name, each in given.items()))


_FRACTION = "-?[0-9]{1,4000}(/(?!0+$)[0-9]{1,4000})?"
"""A rational: no exponent, few digits, and no denominator of 0."""


def _value(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"float"}:
            known = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
            if str(value["float"]) not in known:
                raise Malformed(f"{name} is no float such as 'inf'")
            return known[str(value["float"])]
        if set(value) == {"fraction"}:
            # no exponents, and few digits: a hostile number must not cost a power of ten
            if not re.fullmatch(_FRACTION, text := str(value["fraction"])):
                raise Malformed(f"{name} is no fraction such as '1/3'")
            return Fraction(text)
        return _node(value, TERMS if name in _TERM_FIELDS else LOSSES, name)
    if isinstance(value, list | tuple):
        return tuple(_value(each, name) for each in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise Malformed(f"{name} has a value of type {type(value).__name__}")


# -----------------------------------------------------------------------------
# Worlds: what one unit may touch. It lies in one choice of each Parallel, and which one is unknown.

MOST_WORLDS = 4096
"""A term of more worlds than this is not covered."""

World = tuple[tuple[Node, int], ...]
"""Losses with the times that each is paid, by one unit."""


def worlds(term: Node) -> list[World]:
    """Return all worlds of a term, equal ones once.

    Raises
    ------
    NotCovered
        If there are more than `MOST_WORLDS`.
    """
    match term.kind:
        case "Spend":
            return [_merged([(term["loss"], 1)])]
        case "Sequential":
            return _products([worlds(part) for part in term["parts"]])
        case "Parallel":
            return _distinct(world for choice in term["choices"] for world in worlds(choice))
        case "Repeated":
            inner, times = worlds(term["part"]), term["times"]
            if times == 0:
                return [()]
            # the choice in a later run may depend on the outcome of an earlier one
            one = inner[0] if len(inner) == 1 or times == 1 else ((_envelope(inner), 1),)
            every = inner if times == 1 else [one]
            return [tuple((loss, n * times) for loss, n in world) for world in every]
        case "Sampled" | "ReplacedSample":
            rate = term["rate"]
            return _bodies(
                worlds(term["part"]), lambda b: Node(term.kind, (("body", b), ("rate", rate)))
            )
        case "Subset":
            size = (("size", term["size"]), ("of", term["of"]))
            return _bodies(worlds(term["part"]), lambda b: Node("FixedSize", (("body", b), *size)))
        case "Allocated":
            steps, times = term["steps"] // term["times"], term["times"]
            inner = _one(worlds(term["part"]))
            every = _bodies(inner, lambda b: Node("Allocated", (("body", b), ("steps", steps))))
            return [tuple((loss, n * times) for loss, n in world) for world in every]
        case "Selected":
            law = (("shape", term["shape"]), ("stopping", term["stopping"]))
            return _bodies(
                _one(worlds(term["part"])), lambda b: Node("PrivateSelection", (("base", b), *law))
            )
        case "Grouped":
            return _groups(worlds(term["part"]), term["size"], _in_parts(term["part"]))
    raise NotCovered(f"no term of kind {term.kind} is known here")


def _composite(world: World) -> Node:
    return Node("Composite", (("spends", world),))


def _envelope(every: list[World]) -> Node:
    return Node("Envelope", (("losses", tuple(map(_composite, every))),))


def _one(every: list[World]) -> list[World]:
    return every if len(every) == 1 else [((_envelope(every), 1),)]


def _bodies(every: list[World], make: Any) -> list[World]:
    return _distinct(((make(_composite(world)), 1),) if world else () for world in every)


def _in_parts(term: Any) -> bool:
    """Whether two units may meet different mechanisms in a term."""
    if not isinstance(term, Node):
        return isinstance(term, tuple) and any(map(_in_parts, term))
    if term.kind == "Parallel" and len(term["choices"]) > 1:
        return True
    return any(_in_parts(value) for _, value in term.fields)


_ALONE = {
    "GaussianSparseVector",
    "ObjectivePerturbation",
    "PoissonSelection",
    "PrivateSelection",
}
"""Whose groups are known where all of their units meet one and the same mechanism."""


def _groups(every: list[World], size: int, apart: bool) -> list[World]:
    if size == 1:
        return every
    if apart:
        for world in every:
            for loss, _ in world:
                if loss.kind in _ALONE:
                    raise NotCovered(f"a group of {loss.kind} in several choices of a Parallel")
    # the members of a group may lie in several worlds, so that all of them are paid: no mechanism
    # costs as much, unless there is one world
    kind, together = "Group", every[0]
    if len(every) > 1:
        kind, together = "GroupBound", _merged(spend for one in every for spend in one)
    return [_merged((Node(kind, (("loss", a), ("size", size))), n) for a, n in together)]


def _merged(spends: Iterable[tuple[Node, int]]) -> World:
    total: Counter[Node] = Counter()
    for loss, times in spends:
        if loss.kind == "Composite":
            for inner, count in _merged(loss["spends"]):
                total[inner] += times * count
        elif times:
            total[loss] += times
    return tuple(total.items())


def _products(factors: list[list[World]]) -> list[World]:
    every: list[World] = [()]
    for factor in factors:
        if len(every) * len(factor) > MOST_WORLDS:
            raise NotCovered(f"the term has more than {MOST_WORLDS} worlds")
        if len(factor) == 1 and len(every) == 1:
            every = [every[0] + factor[0]]
        else:
            every = [a + b for a in every for b in factor]
    return _distinct(_merged(world) for world in every)


def _distinct(every: Iterable[World]) -> list[World]:
    found: dict[frozenset[tuple[Node, int]], World] = {}
    for world in every:
        found.setdefault(frozenset(world), world)
        if len(found) > MOST_WORLDS:
            raise NotCovered(f"the term has more than {MOST_WORLDS} worlds")
    return list(found.values())
