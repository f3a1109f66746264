"""Privacy losses: one file a family, each with its functionals, theorem and source."""

from accountants.losses.approximate import Approximate
from accountants.losses.composite import Composite
from accountants.losses.envelope import Envelope
from accountants.losses.gaussian import Gaussian
from accountants.losses.laplace import Laplace
from accountants.losses.pure import Pure
from accountants.losses.sampled import Sampled

__all__ = ["Approximate", "Composite", "Envelope", "Gaussian", "Laplace", "Pure", "Sampled"]
