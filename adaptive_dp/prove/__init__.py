"""Proofs and counterexamples: a mechanism is a plain Python function, and its loss a theorem.

`prove` executes the function on unknown answers and unknown noise, and proves its claim, refutes it
with two neighbours' answers, or says what keeps it open.
"""

from adaptive_dp.prove.checker import ProofError, check
from adaptive_dp.prove.concentrated import LargestDelta, concentrated, largest_delta
from adaptive_dp.prove.likelihood import delta, log_ratio, probability
from adaptive_dp.prove.program import Noise, ProgramError, unroll
from adaptive_dp.prove.scales import Calibrated, calibrate
from adaptive_dp.prove.verdicts import Proved, Refuted, Undecided, prove

__all__ = [
    "Calibrated",
    "LargestDelta",
    "Noise",
    "ProgramError",
    "ProofError",
    "Proved",
    "Refuted",
    "Undecided",
    "calibrate",
    "check",
    "concentrated",
    "delta",
    "largest_delta",
    "log_ratio",
    "probability",
    "prove",
    "unroll",
]
