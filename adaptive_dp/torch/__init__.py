"""Networks of PyTorch in certified plans: trained, released, and used.

The extra ``adaptive-dp[torch]`` brings PyTorch, which is imported when a network is first built: a
plan's document is read, certified and verified without it. `Training` is a learner for
``images.solve(...)``, `Loop` takes its rounds one by one in a session; `module`, `outputs` and
`predict` use what was released; `MapStyle` reads a data set with an index.
"""

import os

from adaptive_dp.torch.examples import MapStyle
from adaptive_dp.torch.loop import Loop, Round
from adaptive_dp.torch.optimizers import adam_bc
from adaptive_dp.torch.processes import shared
from adaptive_dp.torch.training import (
    AutomaticClipping,
    NetworkParameters,
    Training,
    module,
    outputs,
    predict,
)

# MKL reads this at its first product: results that do not depend on a row's place in a batch. Where
# products came before, places are drawn at random (`adaptive_dp.torch.gradients`).
os.environ.setdefault("MKL_CBWR", "AUTO")

__all__ = [
    "AutomaticClipping",
    "Loop",
    "MapStyle",
    "NetworkParameters",
    "Round",
    "Training",
    "adam_bc",
    "module",
    "outputs",
    "predict",
    "shared",
]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
