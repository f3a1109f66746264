"""Private values that are no arrays: what some queries give and some mechanisms read."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Ranked(ABC):
    """A score on an interval, constant between the data's points: which number to choose.

    Its query's sensitivity in the maximum norm is the most that one unit's change moves the score
    of any point by.
    """

    @abstractmethod
    def steps(self) -> tuple[Floats, Floats]:
        """Return edges and scores.

        Edges, of shape (m + 1,), ascend from the declared lower bound to the declared upper one.
        The i-th of m scores is that of all points above edge i, up to and with edge i + 1; the
        first is that of the lower bound too, and of an interval without points none's.
        """
