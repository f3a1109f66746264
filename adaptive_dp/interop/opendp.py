"""Measurements of OpenDP as mechanisms.

>>> import opendp.prelude as odp                                             # doctest: +SKIP
>>> space = odp.atom_domain(T=float, nan=False), odp.absolute_distance(T=float)  # doctest: +SKIP
>>> noisy = from_opendp(odp.m.make_laplace(*space, scale=2.0))               # doctest: +SKIP
>>> people.count().release(noisy)                                            # doctest: +SKIP

A measurement's loss is the answer of OpenDP's privacy map: a bound for inputs at most a given
distance apart in the measurement's metric. So a measurement fits where its metric is one of
*values* (``AbsoluteDistance``, ``L1Distance``, ``L2Distance``): the query bounds that distance
between neighbouring data sets, under whatever relation they are declared with. Measurements on data
sets (``SymmetricDistance``, ``ChangeOneDistance``) bring a neighbour relation and a sensitivity of
their own, which nothing here could check against the plan's: they are refused. So is a domain that
does not hold every value that a query can have (bounds, missing values, 32-bit numbers).

====================================  =======================================  ==================
output measure                        the map returns                          loss
====================================  =======================================  ==================
``MaxDivergence``                     epsilon                                  ``Pure``
``ZeroConcentratedDivergence``        rho: D_alpha <= rho alpha for all alpha  ``ZeroConcentrated``
``Approximate(MaxDivergence)``        (epsilon, delta)                         ``Approximate``
====================================  =======================================  ==================

The proof is OpenDP's and is not checked here: certificates name the version that computed it.
OpenDP draws its own noise, from the operating system: the seed of a simulation does not reach it.
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
    mod = _opendp_mod()
    _check_measurement(measurement)
    try:
        text = mod.serialize(measurement)
    except Exception as error:
        raise DeclarationError(
            f"the measurement cannot be written as JSON, which plans need ({type(error).__name__}: "
            f"{error}); build it by OpenDP's own constructors"
        ) from None
    return OpenDP(measurement=text)


def _check_json(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str):
        raise DeclarationError(f"OpenDP.measurement must be JSON, got {type(value).__name__}")
    _check_measurement(_deserialized(value))


class OpenDP(Mechanism):
    """A measurement of the OpenDP library as a mechanism; `from_opendp` returns one.

    Privacy: the measurement's own privacy map.

    Parameters
    ----------
    measurement
        A JSON `str`, as ``opendp.mod.serialize`` writes it.

    Notes
    -----
    Noise: drawn by OpenDP, from the operating system; simulations do not seed it.

    References
    ----------
    The OpenDP Library's proofs of its constructors (Gaboardi, Hay and Vadhan 2020).
    """

    theorem: ClassVar[str] = "the privacy map of an OpenDP measurement (not checked here)"
    sampler: ClassVar[str] = "OpenDP's, from the operating system, not seeded by simulations"
    libraries: ClassVar[tuple[str, ...]] = ("opendp",)

    measurement: str = attrs.field(validator=_check_json)

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm in which distances are taken: the metric's."""
        return _NORMS[_metric_of(_deserialized(self.measurement))[0]]

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the measurement of the value, in its shape; the noise is OpenDP's own.

        Integers beyond 64 bits are clamped: a failure there would reveal the data, and clamping
        brings no two values further apart.
        """
        measurement = _deserialized(self.measurement)
        if _number_type(measurement) == "i64":
            argument: list[Any] = [min(max(int(v), _LEAST), _MOST) for v in value.ravel()]
        else:
            argument = [float(v) for v in value.ravel()]
        # the domain is one number or a vector; `release` gives it the flat list in either case
        released = measurement(argument if _is_vector(measurement) else argument[0])
        return np.asarray(released, dtype=np.float64).reshape(value.shape)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the privacy map's loss at a distance in the metric's norm."""
        measurement = _deserialized(self.measurement)
        bound: float = distance
        if _metric_of(measurement)[1] != "f64":
            # integers are an integer apart in l1, so at most the distance rounded down
            bound = math.floor(distance) if self.norm == 1 else math.ceil(distance)
        try:
            answer = measurement.map(bound)
        except Exception as error:
            raise DeclarationError(
                f"OpenDP's privacy map has no answer at distance {distance!r} "
                f"({type(error).__name__})"
            ) from None
        measure = str(measurement.output_measure)
        # an approximate measure answers (epsilon, delta), any other one number
        parts = answer if measure == "Approximate(MaxDivergence)" else (answer,)
        numbers = [float(part) for part in parts]
        # NaN fails the comparison too, and is refused with what is negative or infinite
        if not (all(part >= 0 for part in numbers) and numbers[0] < math.inf):
            raise DeclarationError(
                f"OpenDP's privacy map promises nothing at distance {distance!r}: it returns "
                f"{answer!r}"
            )
        if measure == "ZeroConcentratedDivergence":
            return ZeroConcentrated(numbers[0])
        return Pure(numbers[0]) if len(numbers) == 1 else Approximate(*numbers)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss for a query, or refuse one whose values the domain does not hold."""
        measurement = _deserialized(self.measurement)
        domain = str(measurement.input_domain)
        size = re.search(r"size=(\d+)", domain)
        if not _is_vector(measurement) and dimension != 1:
            raise DeclarationError(
                f"the measurement reads one number ({domain}), and the query's value has "
                f"{dimension}; use vector_domain"
            )
        # a domain of a fixed size names it; any other holds vectors of every size
        if size is not None and int(size[1]) != dimension:
            raise DeclarationError(
                f"the measurement reads {domain}, and the query's value has {dimension} numbers"
            )
        # integers only if the values' step is a whole number of ones
        if _number_type(measurement) != "f64" and not (step >= 1 and step == math.floor(step)):
            raise DeclarationError(
                f"the measurement reads integers ({domain}), and the query's values may be others; "
                "use a domain of f64"
            )
        return self.loss(distance)


def _opendp_mod() -> Any:
    try:
        return importlib.import_module("opendp.mod")
    except ImportError:
        raise DeclarationError(
            'measurements of OpenDP need it: pip install "adaptive-dp[opendp]"'
        ) from None


@lru_cache(maxsize=64)
def _deserialized(text: str) -> Any:
    """Return the measurement of a JSON `str`, built by OpenDP's constructors alone."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DeclarationError(f"OpenDP.measurement is not JSON: {error}") from None
    mod = _opendp_mod()
    # deserialising calls what the document names: only constructors of OpenDP's own may be
    for name in _called_functions(document):
        if not _is_constructor(*name.split(".", 1)):
            raise DeclarationError(
                f"OpenDP.measurement calls opendp.{name}, which is not a constructor of OpenDP's"
            )
    try:
        return mod.deserialize(text)
    except Exception as error:
        raise DeclarationError(
            f"OpenDP cannot make the measurement ({type(error).__name__}: {error}); perhaps it "
            'needs opendp.prelude.enable_features("contrib") first'
        ) from None


def _is_constructor(module: str, function: str) -> bool:
    """Return whether an OpenDP module has a function, and it constructs something."""
    if module == "core":
        return _SPACE.fullmatch(function) is not None
    if function.startswith("_"):
        return False
    # in other modules only what makes a transformation, a measurement or a combinator
    if module not in SPACES and not (module in MODULES and function.startswith("make_")):
        return False
    return function in getattr(importlib.import_module(f"opendp.{module}"), "__all__", ())


def _called_functions(value: Any) -> Iterator[str]:
    """Yield ``module.function`` for each call of a document; refuse other special keys."""
    if isinstance(value, list):
        for item in value:
            yield from _called_functions(item)
    elif isinstance(value, dict):
        if "__function__" in value:
            yield f"{value.get('__module__')}.{value['__function__']}"
        # an unknown special key could ask OpenDP for something that is not foreseen here
        known = {"__function__", "__module__", "__kwargs__", "__version__", "__tuple__"}
        unknown = [key for key in value if key.startswith("__") and key not in known]
        if unknown:
            raise DeclarationError(
                f"OpenDP.measurement has {', '.join(unknown)}, which no plan can hold"
            )
        for item in value.values():
            yield from _called_functions(item)


def _check_measurement(measurement: Any) -> None:
    """Refuse a measurement whose domain, metric or measure does not fit a plan's queries."""
    if type(measurement).__name__ != "Measurement":
        raise DeclarationError(
            f"OpenDP.measurement must be a Measurement, got {type(measurement).__name__}"
        )
    domain, metric, measure = map(
        str, (measurement.input_domain, measurement.input_metric, measurement.output_measure)
    )
    if _METRIC.fullmatch(metric) is None:
        raise DeclarationError(
            f"the measurement's metric must be AbsoluteDistance, L1Distance or L2Distance, got "
            f"{metric}; where that is one of data sets, chain no transformation before the noise: "
            "the query is this library's"
        )
    matched = _DOMAIN.fullmatch(domain)
    if not (matched is not None and _number_type(measurement) in ("f64", "i64")):
        raise DeclarationError(
            "the measurement's domain must be all f64 without NaN, or all i64, got "
            f"{domain}; use atom_domain(T=float, nan=False) or atom_domain(T='i64'), without "
            "bounds, or a vector_domain of them"
        )
    scalar = metric.startswith("Absolute")
    # a scalar metric belongs to a domain of single numbers, and a vector's norm to vectors
    if scalar == _is_vector(measurement):
        raise DeclarationError(f"the metric {metric} does not measure the domain {domain}")
    remedy = "; fix its delta by combinators.make_fix_delta" if "Smoothed" in measure else ""
    if measure not in _MEASURES:
        raise DeclarationError(
            f"the output measure must be one of {', '.join(_MEASURES)}, got {measure}{remedy}"
        )
    size = re.search(r"size=(\d+)", domain)
    # one trial at zero, which is no data: does it release numbers in the shape that it reads?
    zeros = np.zeros(() if scalar else (int(size[1]) if size else 2,))
    number = int if _number_type(measurement) == "i64" else float
    released = measurement(number(0) if scalar else [number(0)] * zeros.size)
    fits = np.shape(released) == zeros.shape and np.asarray(released).dtype.kind in "biuf"
    if not fits:
        raise DeclarationError(
            f"the measurement must release numbers of the shape that it reads, {zeros.shape}, and "
            f"releases a {type(released).__name__} of shape {np.shape(released)}"
        )


def _number_type(measurement: Any) -> str:
    """Return ``"f64"`` or another name of the input numbers' type; empty for other domains."""
    matched = _DOMAIN.fullmatch(str(measurement.input_domain))
    return (matched[1] or matched[2]) if matched else ""


def _is_vector(measurement: Any) -> bool:
    return str(measurement.input_domain).startswith("VectorDomain")


def _metric_of(measurement: Any) -> tuple[str, str]:
    """Return the name of the input metric, and of the numbers' type in which it is measured."""
    matched = _METRIC.fullmatch(str(measurement.input_metric))
    assert matched is not None  # checked when it was declared
    return matched[1], matched[2]
