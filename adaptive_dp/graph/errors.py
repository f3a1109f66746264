"""Typed errors. Messages name the place, the value, the rule and the cure; none carries data."""

from __future__ import annotations


class PlanError(Exception):
    """Base of every error that a plan raises on purpose."""


class DeclarationError(PlanError, ValueError):
    """Something was declared outside its domain, found when it was declared."""


class LeakError(DeclarationError):
    """A private value would leave the plan."""


class NeighborError(DeclarationError):
    """Neighbour relations are mixed, or a transform has no proof under this one."""


class DocumentError(PlanError, ValueError):
    """A plan or certificate document is not of the declared form."""


class DataError(PlanError, ValueError):
    """Data does not fit its declaration; the message depends on the schema only."""


class CalibrationError(PlanError, ValueError):
    """No value of the free parameters meets the target."""


class LedgerError(PlanError):
    """A ledger cannot be used: it is of another budget, damaged, or not to be written."""


class PluginError(PlanError):
    """A plug-in of another distribution cannot be used; others are not affected."""


class RunError(PlanError, RuntimeError):
    """A step failed on private data; its cause is withheld, since it may carry data."""
