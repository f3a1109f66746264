"""What is offered, and where it lies: type checkers and the package itself read it here."""

from accountants.losses.allocation import Allocated as Allocated
from accountants.losses.allocation import Shuffled as Shuffled
from accountants.losses.composite import Composite as Composite
from accountants.losses.composite import Envelope as Envelope
from accountants.losses.composite import Tested as Tested
from accountants.losses.discrete import DiscreteGaussian as DiscreteGaussian
from accountants.losses.discrete import DiscreteLaplace as DiscreteLaplace
from accountants.losses.discrete import RandomizedResponse as RandomizedResponse
from accountants.losses.gaussian import Gaussian as Gaussian
from accountants.losses.gaussian import GaussianBound as GaussianBound
from accountants.losses.gaussian import Sanitization as Sanitization
from accountants.losses.gaussian import SmoothSanitization as SmoothSanitization
from accountants.losses.given import PrivacyProfile as PrivacyProfile
from accountants.losses.given import RenyiCurve as RenyiCurve
from accountants.losses.given import TradeOff as TradeOff
from accountants.losses.given import ZeroConcentrated as ZeroConcentrated
from accountants.losses.laplace import Laplace as Laplace
from accountants.losses.perturbation import ObjectivePerturbation as ObjectivePerturbation
from accountants.losses.pure import Approximate as Approximate
from accountants.losses.pure import Pure as Pure
from accountants.losses.pure import with_total_variation as with_total_variation
from accountants.losses.sampling import FixedSize as FixedSize
from accountants.losses.sampling import ReplacedSample as ReplacedSample
from accountants.losses.sampling import Sampled as Sampled
from accountants.losses.selection import BoundedRange as BoundedRange
from accountants.losses.selection import ExponentialNoisyMax as ExponentialNoisyMax
from accountants.losses.selection import GumbelNoisyMax as GumbelNoisyMax
from accountants.losses.selection import LaplaceNoisyMax as LaplaceNoisyMax
from accountants.losses.selection import PermuteAndFlip as PermuteAndFlip
from accountants.losses.selection import PoissonSelection as PoissonSelection
from accountants.losses.selection import PrivateSelection as PrivateSelection
from accountants.losses.selection import report_noisy_max as report_noisy_max
from accountants.losses.sparse_vector import GaussianSparseVector as GaussianSparseVector
from accountants.losses.sparse_vector import SparseVector as SparseVector
from accountants.losses.tree import column_sensitivity as column_sensitivity
from accountants.losses.tree import matrix_factorization as matrix_factorization
from accountants.losses.tree import participation_sensitivity as participation_sensitivity
from accountants.losses.tree import tree_aggregation as tree_aggregation
from accountants.losses.tree import tree_nodes as tree_nodes
from accountants.losses.votes import ConfidentVotes as ConfidentVotes
from accountants.losses.votes import GaussianVotes as GaussianVotes
from accountants.losses.votes import LaplaceVotes as LaplaceVotes
from accountants.losses.votes import noisy_argmax as noisy_argmax
from accountants.losses.votes import votes_curve as votes_curve

__all__: list[str]
