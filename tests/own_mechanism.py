"""A user's own mechanism, in a file of its own."""

import accountants
import adaptive_dp as dp


class Noisy(dp.Mechanism):
    width: float = dp.noise_parameter("w")
    theorem = "by hand: the triangle inequality"

    def release(self, value, stream):  # type: ignore[no-untyped-def]
        return value + stream.laplace(self.width, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance / self.width)
