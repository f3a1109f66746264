"""Other libraries' parts in plans: each file needs the library that it is named after.

`adaptive_dp.interop.opendp`
    Measurements of OpenDP as mechanisms (extra `opendp`).
`accountants.to_dp_event`, `accountants.from_dp_event`
    Terms to and from the events of dp-accounting (extra `interchange`).
`adaptive_dp.sklearn`
    Learners as scikit-learn's estimators (extra `sklearn`).
Data
    A run reads tables of pandas, polars and PyArrow as they are (extra `frames`).
"""
