"""How many examples hypothesis draws, and whether they are the same in every run.

- ``ci``, the default: the same examples in every run and on every machine, so that a change that
  breaks a law is the only reason for a failure. Hypothesis uses it where the variable CI is set,
  too, and so does everyone else: a suite that fails by chance is soon ignored.
- ``nightly``, of ``make slow``: fresh examples, ten times as many. A failure prints a blob for
  ``@reproduce_failure``; the cure comes with an ``@example`` or a test of its own.

Another profile is chosen by ``pytest --hypothesis-profile=nightly``.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""The examples of a test that names no number, in the profile ``ci``."""

settings.register_profile(
    "ci", max_examples=USUAL, derandomize=True, deadline=None, database=None, print_blob=True
)
settings.register_profile(
    "nightly",
    max_examples=10 * USUAL,
    derandomize=False,
    deadline=None,
    database=None,
    print_blob=True,
)


def examples(count: int, *, nightly: int | None = None) -> settings:
    """Return settings with ``count`` examples in the profile ``ci``, ``nightly`` in a nightly one.

    Without ``nightly`` the count grows as the profiles do. The current profile is read when the
    decorated test is defined, which is after pytest has loaded the one that its command line names.
    """
    share = settings.default.max_examples / USUAL
    if nightly is not None and share > 1:
        return settings(max_examples=nightly)
    return settings(max_examples=max(1, round(count * share)))
