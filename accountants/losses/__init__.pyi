"""What is offered, and where it lies: type checkers and the package itself read it here."""

from accountants.losses.allocated import Allocated as Allocated
from accountants.losses.approximate import Approximate as Approximate
from accountants.losses.bounded_range import BoundedRange as BoundedRange
from accountants.losses.composite import Composite as Composite
from accountants.losses.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
from accountants.losses.discrete_laplace import DiscreteLaplace as DiscreteLaplace
from accountants.losses.envelope import Envelope as Envelope
from accountants.losses.fixed_size import FixedSize as FixedSize
from accountants.losses.gaussian import Gaussian as Gaussian
from accountants.losses.given_curve import RenyiCurve as RenyiCurve
from accountants.losses.given_curve import ZeroConcentrated as ZeroConcentrated
from accountants.losses.given_gaussian import GaussianBound as GaussianBound
from accountants.losses.given_profile import PrivacyProfile as PrivacyProfile
from accountants.losses.given_profile import TradeOff as TradeOff
from accountants.losses.laplace import Laplace as Laplace
from accountants.losses.noisy_max import ExponentialNoisyMax as ExponentialNoisyMax
from accountants.losses.noisy_max import GumbelNoisyMax as GumbelNoisyMax
from accountants.losses.noisy_max import LaplaceNoisyMax as LaplaceNoisyMax
from accountants.losses.noisy_max import report_noisy_max as report_noisy_max
from accountants.losses.objective_perturbation import ObjectivePerturbation as ObjectivePerturbation
from accountants.losses.permute_and_flip import PermuteAndFlip as PermuteAndFlip
from accountants.losses.private_selection import PoissonSelection as PoissonSelection
from accountants.losses.private_selection import PrivateSelection as PrivateSelection
from accountants.losses.pure import Pure as Pure
from accountants.losses.randomized_response import RandomizedResponse as RandomizedResponse
from accountants.losses.replaced_sample import ReplacedSample as ReplacedSample
from accountants.losses.sampled import Sampled as Sampled
from accountants.losses.shuffled import Shuffled as Shuffled
from accountants.losses.smooth_gaussian import Sanitization as Sanitization
from accountants.losses.smooth_gaussian import SmoothSanitization as SmoothSanitization
from accountants.losses.sparse_vector import SparseVector as SparseVector
from accountants.losses.sparse_vector_gaussian import GaussianSparseVector as GaussianSparseVector
from accountants.losses.tested import Tested as Tested
from accountants.losses.total_variation import with_total_variation as with_total_variation
from accountants.losses.tree import column_sensitivity as column_sensitivity
from accountants.losses.tree import matrix_factorization as matrix_factorization
from accountants.losses.tree import participation_sensitivity as participation_sensitivity
from accountants.losses.tree import tree_aggregation as tree_aggregation
from accountants.losses.tree import tree_nodes as tree_nodes
from accountants.losses.vote_bounds import noisy_argmax as noisy_argmax
from accountants.losses.votes import ConfidentVotes as ConfidentVotes
from accountants.losses.votes import GaussianVotes as GaussianVotes
from accountants.losses.votes import LaplaceVotes as LaplaceVotes
from accountants.losses.votes import votes_curve as votes_curve

__all__: list[str]
