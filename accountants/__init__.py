"""The mathematics of composition: losses, terms, worlds and accountants.

Complete alone: it knows no data, no randomness and no graph.

>>> from accountants import Gaussian, Repeated, Spend, certify, tightest
>>> answers = certify(Repeated(Spend(Gaussian(mu=1 / 10)), 100), delta=1e-5)
>>> round(tightest(answers).bounds.upper, 6)
4.377178
"""

from accountants.accountant import Accountant
from accountants.advanced import Advanced
from accountants.basic import Basic
from accountants.bounds import Bounds
from accountants.certify import ACCOUNTANTS, Answer, certify, measure, price, tightest
from accountants.concentrated import Concentrated
from accountants.errors import AccountingError, DomainError, InapplicableError
from accountants.gaussian import GaussianDP
from accountants.loss import PrivacyLoss
from accountants.losses import Approximate, Composite, Envelope, Gaussian, Laplace, Pure
from accountants.renyi import Renyi
from accountants.terms import Grouped, Parallel, Repeated, Sampled, Sequential, Spend, Term
from accountants.worlds import World, Worlds, worlds

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "AccountingError",
    "Advanced",
    "Answer",
    "Approximate",
    "Basic",
    "Bounds",
    "Composite",
    "Concentrated",
    "DomainError",
    "Envelope",
    "Gaussian",
    "GaussianDP",
    "Grouped",
    "InapplicableError",
    "Laplace",
    "Parallel",
    "PrivacyLoss",
    "Pure",
    "Renyi",
    "Repeated",
    "Sampled",
    "Sequential",
    "Spend",
    "Term",
    "World",
    "Worlds",
    "certify",
    "measure",
    "price",
    "tightest",
    "worlds",
]
