"""Pure functions of JAX in certified plans: parameters trained, released, and used.

The extra ``adaptive-dp[jax]`` brings JAX and optax, which are imported when a function is first
compiled: a plan's document is read, certified and verified without them. `Training` is a learner
for ``images.solve(...)``, `Loop` takes its rounds one by one in a session; `parameters`, `outputs`
and `predict` use what was released.
"""

from adaptive_dp.jax.training import Loop, Training, outputs, parameters, predict

__all__ = ["Loop", "Training", "outputs", "parameters", "predict"]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
