"""Other libraries in plans and certificates: each file is of the library that it is named after.

`adaptive_dp.interop.opendp`
    Measurements of OpenDP as mechanisms (extra `opendp`).
`adaptive_dp.interop.opacus`, `adaptive_dp.interop.jax_privacy`
    Certificates of trainings that these libraries ran; neither is needed for that.
`accountants.to_dp_event`, `accountants.from_dp_event`
    Terms to and from the events of dp-accounting (extra `interchange`).
`adaptive_dp.sklearn`
    Learners as scikit-learn's estimators (extra `sklearn`).
Data
    A run reads tables of pandas, polars and PyArrow as they are (extra `frames`).
"""

from adaptive_dp.interop import jax_privacy, opacus

__all__ = ["jax_privacy", "opacus"]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
