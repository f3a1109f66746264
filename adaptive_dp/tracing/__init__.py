"""What an analysis over other libraries spends, and what leaves it beside its releases.

``with dp.trace() as t:`` watches a block of code, `run` a script or a notebook. Both rewrite its
source, so that each operation is seen as it runs: which call read which data, what was released
under which claim, what was printed, plotted or stored as it is.

In this room: `rewrite` (the source), `recorder` (what happens), `libraries` (what is known of other
libraries), `plan` (claims as a plan), `report` (what was found), `runner` (scripts and notebooks).
"""

from adaptive_dp.tracing.report import Finding, Release, Trace, trace
from adaptive_dp.tracing.runner import run

__all__ = ["Finding", "Release", "Trace", "run", "trace"]
