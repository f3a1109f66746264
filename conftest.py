"""Examples in docstrings that need an optional library are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [
    f"adaptive_dp/{room}/*.py"
    for room, needed in {"torch": ["torch"], "jax": ["jax", "optax"]}.items()
    if not all(find_spec(each) for each in needed)
]
