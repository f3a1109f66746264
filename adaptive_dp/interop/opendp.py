"""Measurements of OpenDP as mechanisms.

>>> import opendp.prelude as odp                                             # doctest: +SKIP
>>> space = odp.atom_domain(T=float, nan=False), odp.absolute_distance(T=float)  # doctest: +SKIP
>>> noisy = from_opendp(odp.m.make_laplace(*space, scale=2.0))               # doctest: +SKIP
>>> people.count().release(noisy)                                            # doctest: +SKIP

What is claimed of it is what OpenDP's privacy map says: a bound for inputs at most so far apart in
the measurement's metric. So a measurement fits where its metric is one of *values*
(``AbsoluteDistance``, ``L1Distance``, ``L2Distance``): the query bounds that distance between
neighbouring data sets, under whatever relation they are declared with. Measurements on data sets
(``SymmetricDistance``, ``ChangeOneDistance``) bring a neighbour relation and a sensitivity of their
own, which nothing here could check against the plan's: they are refused. So is a domain that does
not hold every value that a query can have (bounds, missing values, 32-bit numbers).

====================================  =======================================  ==================
output measure                        the map says                             loss
====================================  =======================================  ==================
``MaxDivergence``                     epsilon                                  ``Pure``
``ZeroConcentratedDivergence``        rho: D_alpha <= rho alpha for all alpha  ``ZeroConcentrated``
``Approximate(MaxDivergence)``        (epsilon, delta)                         ``Approximate``
====================================  =======================================  ==================

Its proof is OpenDP's, not checked here: certificates name the version that computed it. OpenDP
draws its own noise, from the operating system: the seed of a simulation does not reach it.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss, Pure, ZeroConcentrated
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.noise.stream import Stream

MODULES = frozenset({"measurements", "combinators", "transformations"})
SPACES = frozenset({"domains", "metrics", "measures"})
"""What a serialised measurement may be built by: constructors of OpenDP's own, and nothing else."""

_DOMAIN = re.compile(
    r"(?:AtomDomain\(T=(\w+)\)|VectorDomain\(AtomDomain\(T=(\w+)\)(, size=\d+)?\))"
)
_METRIC = re.compile(r"(AbsoluteDistance|L1Distance|L2Distance)\((\w+)\)")
_SPACE = re.compile(r"(?:transformation|measurement)_(?:input|output)_(?:domain|metric|measure)")
_MEASURES = ("MaxDivergence", "ZeroConcentratedDivergence", "Approximate(MaxDivergence)")
_LEAST, _MOST = -(2**63), 2**63 - 1
_NORMS = {"AbsoluteDistance": 1.0, "L1Distance": 1.0, "L2Distance": 2.0}


def from_opendp(measurement: Any) -> OpenDP:
    """Return a measurement of OpenDP as a mechanism.

    Parameters
    ----------
    measurement
        From a scalar or a vector of ``f64`` (without NaN) or ``i64``, with a metric of values.

    Raises
    ------
    DeclarationError
        If its domain, metric or measure does not fit, or it cannot be written as JSON (it has a
        function of the user's own).
    """
    mod = _mod()
    _checked(measurement)
    try:
        text = mod.serialize(measurement)
    except Exception as error:
        raise DeclarationError(
            f"the measurement cannot be written as JSON, which plans need ({type(error).__name__}: "
            f"{error}); build it by OpenDP's own constructors"
        ) from None
    return OpenDP(measurement=text)


def _fits(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str):
        raise DeclarationError(f"OpenDP.measurement must be JSON, got {type(value).__name__}")
    _checked(_made(value))


class OpenDP(Mechanism):
    """A measurement of OpenDP; made by `from_opendp`.

    Parameters
    ----------
    measurement
        As ``opendp.mod.serialize`` writes it.

    References
    ----------
    The OpenDP Library's proofs of its constructors (Gaboardi, Hay and Vadhan 2020).
    """

    theorem: ClassVar[str] = "the privacy map of an OpenDP measurement (not checked here)"
    sampler: ClassVar[str] = "OpenDP's, from the operating system, not seeded by simulations"
    libraries: ClassVar[tuple[str, ...]] = ("opendp",)

    measurement: str = attrs.field(validator=_fits)

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm in which distances are taken: the metric's."""
        return _NORMS[_metric(_made(self.measurement))[0]]

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return what the measurement says of the value; its noise is OpenDP's own.

        Whole numbers beyond 64 bits are moved to the nearest that has them: a failure there would
        tell the data, and to clamp brings no two values further apart.
        """
        found = _made(self.measurement)
        whole = _carrier(found) == "i64"
        listed = [min(max(int(v), _LEAST), _MOST) if whole else float(v) for v in value.ravel()]
        released = found(listed) if _vector(found) else found(listed[0])
        return np.asarray(released, dtype=np.float64).reshape(value.shape)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss that the privacy map says at a distance in the metric's norm.

        Whole numbers are a whole number apart in l1: at most the distance rounded down.
        """
        found = _made(self.measurement)
        apart: float = distance
        if _metric(found)[1] != "f64":
            apart = math.floor(distance) if self.norm == 1 else math.ceil(distance)
        try:
            said = found.map(apart)
        except Exception as error:
            raise DeclarationError(
                f"OpenDP's privacy map has no answer at distance {distance!r} "
                f"({type(error).__name__})"
            ) from None
        measure = str(found.output_measure)
        parts = said if measure == "Approximate(MaxDivergence)" else (said,)
        numbers = [float(part) for part in parts]
        if not (all(part >= 0 for part in numbers) and numbers[0] < math.inf):
            raise DeclarationError(
                f"OpenDP's privacy map promises nothing at distance {distance!r}: it says {said!r}"
            )
        if measure == "ZeroConcentratedDivergence":
            return ZeroConcentrated(numbers[0])
        return Pure(numbers[0]) if len(numbers) == 1 else Approximate(*numbers)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss for a query, or refuse one whose values the domain does not hold."""
        found = _made(self.measurement)
        domain = str(found.input_domain)
        size = re.search(r"size=(\d+)", domain)
        if not _vector(found) and dimension != 1:
            raise DeclarationError(
                f"the measurement reads one number ({domain}), and the query gives {dimension}; "
                "use vector_domain"
            )
        if size is not None and int(size[1]) != dimension:
            raise DeclarationError(
                f"the measurement reads {domain}, and the query gives {dimension} numbers"
            )
        if _carrier(found) != "f64" and not (step >= 1 and step == math.floor(step)):
            raise DeclarationError(
                f"the measurement reads whole numbers ({domain}), and the query's need not be; use "
                "a domain of f64"
            )
        return self.loss(distance)


def _mod() -> Any:
    try:
        return importlib.import_module("opendp.mod")
    except ImportError:
        raise DeclarationError(
            'measurements of OpenDP need it: pip install "adaptive-dp[opendp]"'
        ) from None


@lru_cache(maxsize=64)
def _made(text: str) -> Any:
    """Return the measurement of a JSON text, built by OpenDP's constructors alone."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DeclarationError(f"OpenDP.measurement is no JSON: {error}") from None
    mod = _mod()
    for name in _built(document):
        if not _constructs(*name.split(".", 1)):
            raise DeclarationError(
                f"OpenDP.measurement calls opendp.{name}, which is no constructor of OpenDP's"
            )
    try:
        return mod.deserialize(text)
    except Exception as error:
        raise DeclarationError(
            f"OpenDP cannot make the measurement ({type(error).__name__}: {error}); perhaps it "
            'needs opendp.prelude.enable_features("contrib") first'
        ) from None


def _constructs(module: str, function: str) -> bool:
    """Whether a function is among those that an OpenDP module offers to build things by."""
    if module == "core":
        return _SPACE.fullmatch(function) is not None
    if function.startswith("_"):
        return False
    if module not in SPACES and not (module in MODULES and function.startswith("make_")):
        return False
    return function in getattr(importlib.import_module(f"opendp.{module}"), "__all__", ())


def _built(value: Any) -> Iterator[str]:
    """Yield ``module.function`` of all that a document calls; refuse what calls anything else."""
    if isinstance(value, list):
        for item in value:
            yield from _built(item)
    elif isinstance(value, dict):
        if "__function__" in value:
            yield f"{value.get('__module__')}.{value['__function__']}"
        known = {"__function__", "__module__", "__kwargs__", "__version__", "__tuple__"}
        odd = [key for key in value if key.startswith("__") and key not in known]
        if odd:
            raise DeclarationError(
                f"OpenDP.measurement has {', '.join(odd)}, which no plan can hold"
            )
        for item in value.values():
            yield from _built(item)


def _checked(found: Any) -> None:
    """Refuse a measurement that does not read, or promise, what a plan can give and use."""
    if type(found).__name__ != "Measurement":
        raise DeclarationError(
            f"OpenDP.measurement must be a Measurement, got {type(found).__name__}"
        )
    domain, metric, measure = map(
        str, (found.input_domain, found.input_metric, found.output_measure)
    )
    if _METRIC.fullmatch(metric) is None:
        raise DeclarationError(
            f"a query's values are apart in AbsoluteDistance, L1Distance or L2Distance, and the "
            f"measurement's metric is {metric}; where that is one of data sets, chain no "
            "transformation before the noise: the query is this library's"
        )
    matched = _DOMAIN.fullmatch(domain)
    if not (matched is not None and _carrier(found) in ("f64", "i64")):
        raise DeclarationError(
            "a query's values are any f64 without NaN, or any i64, and the measurement's domain "
            f"is {domain}; use atom_domain(T=float, nan=False) or atom_domain(T='i64'), without "
            "bounds, or a vector_domain of them"
        )
    scalar = metric.startswith("Absolute")
    if scalar == _vector(found):
        raise DeclarationError(f"the metric {metric} does not measure the domain {domain}")
    cure = "; fix its delta by combinators.make_fix_delta" if "Smoothed" in measure else ""
    if measure not in _MEASURES:
        raise DeclarationError(
            f"the output measure must be one of {', '.join(_MEASURES)}, got {measure}{cure}"
        )
    size = re.search(r"size=(\d+)", domain)
    zeros = np.zeros(() if scalar else (int(size[1]) if size else 2,))
    number = int if _carrier(found) == "i64" else float
    released = found(number(0) if scalar else [number(0)] * zeros.size)
    fits = np.shape(released) == zeros.shape and np.asarray(released).dtype.kind in "biuf"
    if not fits:
        raise DeclarationError(
            f"the measurement must release numbers of the shape that it reads, {zeros.shape}, and "
            f"releases a {type(released).__name__} of shape {np.shape(released)}"
        )


def _carrier(found: Any) -> str:
    matched = _DOMAIN.fullmatch(str(found.input_domain))
    return (matched[1] or matched[2]) if matched else ""


def _vector(found: Any) -> bool:
    return str(found.input_domain).startswith("VectorDomain")


def _metric(found: Any) -> tuple[str, str]:
    matched = _METRIC.fullmatch(str(found.input_metric))
    assert matched is not None  # checked when it was declared
    return matched[1], matched[2]
