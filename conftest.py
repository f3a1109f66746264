"""Examples in docstrings that need an optional library are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["adaptive_dp/torch/*.py"]
