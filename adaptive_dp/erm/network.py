"""A network of two layers: what it computes, and how its parameters lie in one vector."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import numpy as np
from attrs import field, frozen
from attrs.validators import instance_of
from numpy.typing import NDArray

from adaptive_dp.erm.loss import Floats, Labels, Loss

Activation = Literal["tanh", "relu"]


@frozen
class Network:
    """A network of one hidden layer: the risk ``loss(W2 (1, a(W1 x)), y)``, summed over rows.

    It is not convex, so no bound of this package that needs convexity (a minimizer, its
    sensitivity) applies: privacy comes from clipping each row's gradient (`adaptive_dp.NoisySGD`).
    The hidden units' bias is the intercept feature of the rows; the scores' bias is the 1 in front
    of the hidden units.

    Parameters
    ----------
    loss
        Of the scores and the label, such as ``Multinomial(10)``.
    hidden
        The number of hidden units, h.
    activation
        a: ``"tanh"``, or ``"relu"`` (slope 0 at 0).

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic
    >>> Network(Logistic(), hidden=3).size(2)
    10
    """

    loss: Loss = field(validator=instance_of(Loss))
    hidden: int = field()
    activation: Activation = "tanh"
    convex: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        hidden = self.hidden
        if isinstance(hidden, bool) or not isinstance(hidden, int) or not 1 <= hidden <= 2**16:
            raise ValueError(f"Network.hidden must be an int from 1 to 2^16, got {hidden!r}")
        if self.activation not in get_args(Activation):
            raise ValueError(
                f"Network.activation must be 'tanh' or 'relu', got {self.activation!r}"
            )

    @property
    def labels(self) -> Labels:
        """The kind of labels that the loss reads."""
        return self.loss.labels

    @property
    def outputs(self) -> int:
        """The number of scores, k."""
        return self.loss.outputs

    def size(self, width: int) -> int:
        """Return the number of parameters for rows of ``width`` features."""
        # W1 is (h, p); W2 is (k, h + 1), with the bias first
        return self.hidden * width + self.outputs * (self.hidden + 1)

    def layers(self, w: Floats, width: int) -> tuple[Floats, Floats]:
        """Return W1 of shape (h, p) and W2 of shape (k, h + 1), views of a flat w."""
        if w.shape != (self.size(width),):
            raise ValueError(
                f"Network wants parameters of shape ({self.size(width)},), got {w.shape}"
            )
        # the flat vector holds W1 row by row, and then W2
        first = self.hidden * width
        return w[:first].reshape(self.hidden, width), w[first:].reshape(self.outputs, -1)

    def activate(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a(values), elementwise."""
        return np.asarray(np.tanh(values) if self.activation == "tanh" else np.maximum(values, 0.0))

    def activation_slope(self, values: Floats) -> Floats:
        """Return the derivative of a where a(z) is ``values``: ``1 - values^2`` for tanh."""
        if self.activation == "relu":
            return (values > 0).astype(np.float64)
        return np.asarray(1.0 - values * values)

    def scores(self, w: Floats, x: Floats) -> Floats:
        """Return the scores of rows of shape (n, p), shape (k, n)."""
        first, second = self.layers(w, x.shape[1])
        # column 0 of W2 is the bias: the weight of the 1 in front of the hidden units
        return np.asarray(second[:, 1:] @ self.activate(first @ x.T) + second[:, :1])

    def value(self, w: Floats, x: Floats, y: Floats) -> float:
        """Return the sum of the rows' losses."""
        return float(self.loss.value(self.scores(w, x), y).sum())

    def gradient(self, w: Floats, x: Floats, y: Floats) -> Floats:
        """Return the gradient of `value` by w, in its order: backpropagation in float64.

        The sums of a private learner (`adaptive_dp.NoisySGD`) are of each row's gradient in whole
        steps, so that they are exact in any order of the rows: where nothing is clipped they
        differ from this by up to about 2^-16 of the clipping bound a row, far below their noise.
        """
        first, second = self.layers(w, x.shape[1])
        hidden = self.activate(first @ x.T)
        slopes = self.loss.slope(second[:, 1:] @ hidden + second[:, :1], y)
        # by W2, whose column 0 is that of the 1; then back through the activation to W1
        by_second = np.column_stack([slopes.sum(axis=1), slopes @ hidden.T])
        by_first = ((second[:, 1:].T @ slopes) * self.activation_slope(hidden)) @ x
        return np.concatenate([by_first.ravel(), by_second.ravel()])
