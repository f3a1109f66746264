"""The figures of the documentation: every table that a seed or a formula gives, from one command.

    python benchmarks/tables.py                  # prints the quick tables
    python benchmarks/tables.py NAME ...         # prints these, slow ones too
    python benchmarks/tables.py --check          # compares the quick ones with the pages
    python benchmarks/tables.py --check --slow   # compares all of them
    python benchmarks/tables.py --write NAME ... # writes them into the pages
    python benchmarks/tables.py --list           # says where every table with figures comes from

A table stands in its page between ``<!-- table NAME -->`` and ``<!-- end of table -->``, byte for
byte as its function returns it: ``--check`` exits with 1 where one differs, and shows how. A slow
table takes minutes. Figures that a machine, another library or downloaded data have a part in
cannot be regenerated so; `MEASURED` says by which command each of these tables was made.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom, norm

import accountants
import adaptive_dp as dp
from accountants.definitions import renyi_epsilon
from accountants.losses.composite import Composite
from accountants.losses.sampling import Sampled
from adaptive_dp.mechanisms.propose_test_release import distance_threshold
from adaptive_dp.session.budget import delta_shares
from adaptive_dp.statistics import depth
from benchmarks import designs, scale_model, tests


class Table(NamedTuple):
    """A table: the page that it stands in, the function that returns it, whether it is slow."""

    page: str
    function: Callable[[], str]
    slow: bool = False


# -----------------------------------------------------------------------------
# Tables that need no module of their own.


def steps_in_a_session() -> str:
    """Return how many equal steps the filters of a session admit at epsilon 1, delta 1e-6."""
    gaussian, laplace = accountants.Gaussian(mu=1 / 15), dp.Laplace(scale=5).loss(1.0)
    many = accountants.Gaussian(mu=1 / 100), dp.Laplace(scale=100).loss(1.0)
    steps = {
        "Gaussian, sigma 15": [gaussian],
        "Gaussian, sigma 100": [many[0]],
        "Laplace, scale 5": [laplace],
        "Laplace, scale 100": [many[1]],
        "Gaussian and Laplace by turns": list(many),
        "Gaussian, sigma 2, a sample of 1%": [
            Sampled(Composite({accountants.Gaussian(mu=1 / 2): 1}), 0.01)
        ],
    }
    names = ("best", "renyi", "gaussian", "basic")
    rows = []
    for what, losses in steps.items():
        row = [what]
        for name in names:
            delta, _ = delta_shares(name, dp.Budget(1.0, 1e-6))
            row.append(_steps(name, delta, losses))
        rows.append(row)
    return tests.markdown(["each step", *(f"`{name}`" for name in names)], rows)


def _steps(name: str, delta: float, losses: list[accountants.PrivacyLoss]) -> str:
    """Return how many of these losses in turn a filter admits; a dash where one has no price."""
    filter_ = accountants.filter_for(name, 1.0, delta)
    state, count = filter_.start(), 0
    try:
        if len(losses) == 1:
            return str(filter_.fitting(state, losses[0]))
        while filter_.admits(state, losses[count % len(losses)]):
            state = filter_.spend(state, losses[count % len(losses)])
            count += 1
    except dp.InapplicableError:
        return "-"
    return str(count)


def margins_of_stable_votes() -> str:
    """Return by how many votes a class must lead to be answered exactly, by two tests."""
    rows = []
    for epsilon in (0.5, 1.0, 4.0):
        for questions, failures in ((100, 1), (1000, 1), (1000, 7), (1000, 100)):
            row = [f"{epsilon:g}", f"{questions:,}", str(failures)]
            for least, fails in (
                _one_sided(epsilon, questions, failures),
                _sparse_vector(epsilon, questions, failures),
            ):
                for chance in (
                    lambda p: 1 - p,
                    lambda p: binom.cdf(failures - 1, questions, p),  # noqa: B023
                ):
                    # the least distance d of even odds, by bisection; a margin of 2 d + 1
                    low, high = 0, 2**16
                    while high - low > 1:
                        d = (low + high) // 2
                        odds = float(least @ chance(fails(d)))
                        low, high = (d, high) if odds < 0.5 else (low, d)
                    row.append(str(2 * high + 1))
            rows.append(row)
    names = ("one", "all", "one, sparse vector", "all, sparse vector")
    return tests.markdown(["epsilon", "questions", "failures", *names], rows)


_Law = tuple[NDArray[np.float64], Callable[[int], NDArray[np.float64]]]
"""The probabilities of a threshold's noise, and how likely a distance fails for each."""


def _one_sided(epsilon: float, questions: int, failures: int) -> _Law:
    """Return the law of `StableVotes`."""
    scale, wide, most = dp.pate.StableVotes(epsilon, 1e-6, failures).noise(questions)
    least = np.arange(1, most + 1)
    weight = np.exp((least - most) / scale)
    return weight / weight.sum(), lambda d: np.exp(-np.maximum(0, d - least + 1) / wide)


def _sparse_vector(epsilon: float, questions: int, failures: int) -> _Law:
    """Return the law of a sparse vector on distances with two-sided noise (Laplace)."""
    scale = (1 + np.cbrt(2 * failures) ** 2) / epsilon
    wide = scale * np.cbrt(2 * failures)
    threshold = wide * np.log(questions * wide**2 / (2 * (wide**2 - scale**2) * 1e-6))
    rho = np.linspace(-30, 30, 6001) * scale
    weight = np.exp(-np.abs(rho) / scale)

    def fails(d: int) -> NDArray[np.float64]:
        x = (threshold + rho - d) / wide
        half = np.exp(-np.abs(x)) / 2
        return np.where(x < 0, half, 1 - half)

    return weight / weight.sum(), fails


def gaussian_sparse_vector() -> str:
    """Return the Renyi curve of a Gaussian sparse vector over that of the worst streams found.

    And the least noise on the threshold, in sensitivities, of runs with one "above" at epsilon 1,
    delta 1e-6, by that curve and by its first bound (Zhu and Wang 2020): every question is charged
    the moment of its own noise. That on the questions is twice as large.
    """
    orders, rows = np.array([1.5, 4.0, 16.0, 32.0]), []
    for questions in (10, 100, 1000):
        row = [f"{questions:,}"]
        ratios = [
            accountants.GaussianSparseVector(noise, 2 * noise, questions).renyi(orders)
            / _worst_streams(noise, 2 * noise, questions, orders)
            for noise in (2.0, 10.0)
        ]
        row += [", ".join(f"{each[i]:.1f}" for each in ratios) for i in range(len(orders))]
        for runs in (1, 30):
            for curve in (_followed, _every_question):
                low, high = 1.0, 1024.0
                while high / low > 1.001:
                    noise = float(np.sqrt(low * high))
                    of = curve(noise, questions)
                    epsilon, _ = renyi_epsilon(lambda a: runs * of(a), 1e-6)  # noqa: B023
                    low, high = (low, noise) if epsilon <= 1 else (noise, high)
                row.append(f"{high:.3g}")
        rows.append(row)
    names = [f"order {order:g}" for order in orders]
    names += ["1 run", "1 run, before", "30 runs", "30 runs, before"]
    return tests.markdown(["questions", *names], rows)


def _followed(noise: float, questions: int) -> Callable[[NDArray[np.float64]], Any]:
    return accountants.GaussianSparseVector(noise, 2 * noise, questions).renyi


def _every_question(noise: float, questions: int) -> Callable[[NDArray[np.float64]], Any]:
    """Return a / (2 s_1^2), and log(K M) / (a - 1) with log M = a (a - 1) 2^2 / (2 s_2^2)."""
    return lambda a: a / (2 * noise**2) + (np.log(questions) / (a - 1) + 2 * a / (2 * noise) ** 2)


def _worst_streams(
    threshold_noise: float, noise: float, questions: int, orders: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the largest divergence of streams of one level, whose questions move in patterns.

    The laws are integrals over the threshold's noise, far into its tails: on a grid that ends where
    its density is small, the largest orders would be of the grid.
    """
    rho = np.linspace(-60 * threshold_noise, 60 * threshold_noise, 601)
    log_weight = norm.logpdf(rho, scale=threshold_noise) + np.log(rho[1] - rho[0])
    turns, place = np.resize([1, -1], questions), np.arange(questions)
    patterns = [
        np.ones(questions, dtype=int),
        turns,
        np.sort(turns)[::-1],
        np.where(place < 0.9 * questions, 1, -1),
        np.where(place < questions - 1, 1, -1),
    ]
    worst = np.zeros(len(orders))
    for level in noise * np.arange(-3, 7.5, 0.5):
        # the logarithms of the chances of "below" and "above" where a question moves by 0, 1, -1
        z = (rho - level - np.array([[0.0], [1.0], [-1.0]])) / noise
        below, above = log_ndtr(z), log_ndtr(-z)
        laws = []
        for moves in [np.zeros(questions, dtype=int), *patterns]:
            sums = np.cumsum(below[moves], axis=0)
            stops = sums - below[moves] + above[moves]
            laws.append(logsumexp(np.vstack([stops, sums[-1:]]) + log_weight, axis=1))
        for other in laws[1:]:
            for p, q in ((laws[0], other), (other, laws[0])):
                for i, a in enumerate(orders):
                    worst[i] = max(worst[i], logsumexp(a * p + (1 - a) * q) / (a - 1))
    return worst


def divergences_of_votes() -> str:
    """Return the divergences that are computed of votes at hand, over those of the exact law.

    For 250 teachers, by how many agree on one class while the others vote for all others alike; a
    check has a threshold of 200 and noise 120, all answers have noise 40. The exact law is an
    integral for each class, and the divergence the largest of all votes that may move.
    """
    rows = []
    for name, check in (("`GNMax`", None), ("`ConfidentGNMax`", (200.0, 120.0))):
        for classes in (2, 3, 10):
            for top in (240, 200, 150, -(-250 // classes)):
                counts = [top] + [(250 - top) // (classes - 1)] * (classes - 1)
                counts[-1] += 250 - sum(counts)
                votes: accountants.GaussianVotes | accountants.ConfidentVotes
                if check is None:
                    votes = accountants.GaussianVotes(40.0, classes, 250)
                else:
                    votes = accountants.ConfidentVotes(*check, 40.0, classes, 250)
                row, private = [name, str(classes), str(top)], 0.0
                for order in (2.0, 8.0, 32.0):
                    forth, back = _divergence_of_votes(counts, order, check)
                    private = max(private, float(votes.curve([counts], [order])[0]) / forth)
                    published = float(votes.both([counts], [order])[0]) / max(forth, back)
                    row.append(f"{published:.2f}")
                rows.append([*row, f"{private:.4f}"])
    names = ["aggregator", "classes", "agree", "order 2", "order 8", "order 32"]
    return tests.markdown([*names, "`private_epsilon`"], rows)


def _divergence_of_votes(
    counts: list[int], order: float, check: tuple[float, float] | None
) -> tuple[float, float]:
    """Return the largest divergence from a neighbour of these counts, and to one."""
    law, forth, back = _law_of_votes(counts, check), 0.0, 0.0
    moves = {}  # one of each kind
    for i, j in permutations(range(len(counts)), 2):
        moves[counts[i], counts[j]] = i, j
    for i, j in moves.values():
        if counts[i]:
            other = list(counts)
            other[i], other[j] = other[i] - 1, other[j] + 1
            near = _law_of_votes(other, check)
            forth = max(forth, logsumexp(order * law + (1 - order) * near) / (order - 1))
            back = max(back, logsumexp(order * near + (1 - order) * law) / (order - 1))
    return forth, back


def _law_of_votes(counts: list[int], check: tuple[float, float] | None) -> NDArray[np.float64]:
    """Return the logarithms of the chances of each class, and last that of no answer."""
    means = np.array(counts) / 40
    y = np.linspace(means.min() - 14, means.max() + 14, 3001)[:, None]
    below = log_ndtr(y - means)
    each = norm.logpdf(y - means) + below.sum(axis=1, keepdims=True) - below
    law = logsumexp(each, axis=0) + np.log(y[1] - y[0])
    law = np.asarray(law - logsumexp(law))
    if check is None:
        return law
    z = (max(counts) - check[0]) / check[1]
    return np.append(law + log_ndtr(z), log_ndtr(-z))


def draws_of_a_covariance() -> str:
    """Return how many normal draws could be released whose law has the rows' own covariance.

    At epsilon 1, delta 1e-6, behind the test of `AffineInvariantMean`, by its proof: the scatter
    of a neighbour is at most S, and lacks at most a share `a` of it, so that each draw costs
    `tilted(a, 0, order)`.
    """
    rows = []
    for size in (10_000, 30_000, 100_000, 300_000):
        row = [f"{size:,}"]
        for width in (2, 5, 10):
            tail, most = np.log(size), 0.0
            strict = int(size / (1 + width + 2 * np.sqrt(width * tail) + 2 * tail))
            for first, part in product((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), repeat=2):
                room = distance_threshold(first, 1e-6) + int(np.ceil(depth.SPARE / first))
                levels = int(part * (strict - 2 * room - 1))
                if levels >= 1:
                    q = 1 + room / levels
                    a = q / (strict - 2 * room - levels) * (1 + q / (size - 2 * room))
                    for order in np.geomspace(4, 200, 40):
                        log = np.log(1e-6 * order) / (order - 1)
                        left = 1 - first - np.log1p(-1 / order) + log
                        most = max(most, left / depth.tilted(a, 0.0, order))
            row.append(f"{float(f'{most:.2g}'):,.0f}")
        rows.append(row)
    return tests.markdown(["rows", "2 columns", "5 columns", "10 columns"], rows)


TABLES: dict[str, Table] = {
    "gaussian_sparse_vector": Table("docs/mechanisms.md", gaussian_sparse_vector, slow=True),
    "margins_of_stable_votes": Table("docs/pate.md", margins_of_stable_votes),
    "divergences_of_votes": Table("docs/pate.md", divergences_of_votes, slow=True),
    "draws_of_a_covariance": Table("docs/statistics/means.md", draws_of_a_covariance),
    "steps_in_a_session": Table("docs/sessions.md", steps_in_a_session),
    "cluster_model": Table("docs/scale.md", scale_model.table),
    "gain_from_lying": Table("docs/statistics/fairness.md", designs.gain_from_lying),
    "topics_by_documents": Table(
        "docs/statistics/topics.md", designs.topics_by_documents, slow=True
    ),
    "power_of_proportions": Table("docs/statistics/tests.md", tests.power_of_proportions),
    "power_in_parts": Table("docs/statistics/tests.md", tests.power_in_parts, slow=True),
    "power_of_ranks": Table("docs/statistics/tests.md", tests.power_of_ranks, slow=True),
    "power_of_anova": Table("docs/statistics/tests.md", tests.power_of_anova, slow=True),
    "power_of_chi_square": Table("docs/statistics/tests.md", tests.power_of_chi_square, slow=True),
    "power_of_tests_of_tests": Table(
        "docs/statistics/tests.md", tests.power_of_tests_of_tests, slow=True
    ),
    "power_of_groups": Table("docs/statistics/tests.md", tests.power_of_groups, slow=True),
    "sizes_of_tests": Table("docs/statistics/tests.md", tests.sizes, slow=True),
    "coverage_of_tests": Table("docs/statistics/tests.md", tests.coverage, slow=True),
}
"""Tables by name."""


class Measured(NamedTuple):
    """A table that cannot be regenerated byte for byte: its page, its header, how it was made."""

    page: str
    header: str
    command: str
    by: str


MEASURED: tuple[Measured, ...] = (
    Measured(
        "docs/accountants.md", "| what | how long | why |", "benchmarks/accounting.py", "seconds"
    ),
    Measured("docs/accountants.md", "| accountant | answer |", "benchmarks/peers.py", "peers"),
    Measured(
        "docs/accountants.md",
        "| class | epsilon: median, widest |",
        "benchmarks/accounting.py --sweep 8 --limit 5",
        "seconds",
    ),
    Measured(
        "docs/accountants.md",
        "| random questions |",
        "benchmarks/accounting.py --questions 10000 --limit .25 --seed 2, 11, 12, 21 to 27",
        "seconds",
    ),
    Measured(
        "docs/adaptive_data_analysis.md",
        "| votes |",
        "examples/adaptive_data_analysis.py",
        "a script of its own",
    ),
    Measured("docs/architecture.md", "| 10^7 rows |", "-m benchmarks.scan engines", "seconds"),
    Measured("docs/architecture.md", "| rows | plan |", "-m benchmarks.scan", "seconds"),
    Measured("docs/auditing.md", "| Mechanism (truth) |", "benchmarks/audit.py power", "seconds"),
    Measured("docs/auditing.md", "| broken |", "-m benchmarks.audit_one_run", "slow training"),
    Measured(
        "docs/auditing.md", "| noise, of what", "-m benchmarks.audit_one_run", "slow training"
    ),
    Measured(
        "docs/auditing.md", "| what is broken |", "tests/test_audit_networks.py", "slow training"
    ),
    Measured("docs/comparison.md", "| library |", "benchmarks/side_by_side/run.py", "peers"),
    Measured("docs/comparison.md", "| task |", "benchmarks/twenty_tasks.py", "peers"),
    Measured(
        "docs/comparison.md", "| bounds of the target |", "benchmarks/audit.py additive", "peers"
    ),
    Measured("docs/examples.md", "| script |", "examples/*.py", "seconds"),
    Measured(
        "docs/explanation/second_opinion.md",
        "| random questions |",
        "benchmarks/second_opinion.py 11200 --seed 22",
        "seconds",
    ),
    Measured("docs/howto/how_sure.md", "| output |", "benchmarks/coverage.py", "a summary"),
    Measured("docs/howto/how_sure.md", "| learner |", "benchmarks/coverage.py", "several runs"),
    Measured("docs/jax.md", "| network, batch |", "benchmarks/networks.py", "peers"),
    Measured(
        "docs/learning.md", "| held-out sets |", "benchmarks/regret.py measure --more", "data"
    ),
    Measured(
        "docs/learning/measured.md", "| sets, accuracy lost |", "benchmarks/regret.py table", "data"
    ),
    Measured(
        "docs/learning/measured.md",
        "| sets | rows to learn from |",
        "benchmarks/regret.py table",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| rows and epsilon |",
        "benchmarks/regret.py measure --cut",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| sets | epsilon | splits |",
        "benchmarks/regret.py table",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| learner, sets |",
        "benchmarks/regret.py measure --defaults --cut 300 --splits 8; below",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| learner | splits |",
        "benchmarks/regret.py measure --defaults --cut 3000",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| set, epsilon | `BoostedSSP` |",
        "benchmarks/regret.py measure",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| set, learner, epsilon |",
        "none: the page names no command",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| set | rows | features | not private |",
        "benchmarks/regression.py",
        "data",
    ),
    Measured("docs/learning/measured.md", "| set | trees", "benchmarks/private_trees.py", "data"),
    Measured(
        "docs/learning/measured.md",
        "| set | epsilon .5 | 8 |",
        "none: the page names no command",
        "data",
    ),
    Measured("docs/learning/measured.md", "| set |", "benchmarks/corpus.py, regret.py", "data"),
    Measured(
        "docs/learning/measured.md",
        "| set, splits |",
        "none: the page names no command",
        "data, peers",
    ),
    Measured(
        "docs/learning/measured.md",
        "| set, columns |",
        "benchmarks/regret.py measure --noise",
        "data",
    ),
    Measured(
        "docs/learning/measured.md", "| | epsilon |", "benchmarks/regret.py measure --tuned", "data"
    ),
    Measured(
        "docs/learning/measured.md",
        "| model of digits |",
        "none: the page names no command",
        "data",
    ),
    Measured(
        "docs/learning/measured.md", "| learning rate |", "none: the page names no command", "data"
    ),
    Measured(
        "docs/learning/measured.md",
        "| learner | epsilon .1 | .5 |",
        "benchmarks/classification.py",
        "data, peers",
    ),
    Measured(
        "docs/learning/measured.md",
        "| learner | epsilon .1 | 1 |",
        "benchmarks/regression.py",
        "data",
    ),
    Measured("docs/learning/measured.md", "| | as |", "benchmarks/competitors.py accuracy", "data"),
    Measured(
        "docs/learning/measured.md", "| | compas", "benchmarks/competitors.py accuracy", "data"
    ),
    Measured(
        "docs/learning/measured.md",
        "| excess risk",
        "benchmarks/competitors.py localised",
        "several runs",
    ),
    Measured(
        "docs/learning/measured.md",
        "| noise as printed",
        "benchmarks/competitors.py noise",
        "several runs",
    ),
    Measured(
        "docs/learning/measured.md", "| model |", "benchmarks/solvers.py --peers", "seconds, peers"
    ),
    Measured(
        "docs/learning/measured.md",
        "| EBM on |",
        "none: the page names no command",
        "peers",
    ),
    Measured("docs/learning/measured.md", "| of what |", "benchmarks/solvers.py", "seconds"),
    Measured(
        "docs/learning/measured.md",
        "| set, epsilon | better",
        "benchmarks/regression.py --cells",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| pendulum, epsilon |",
        "benchmarks/regression.py --published",
        "data",
    ),
    Measured(
        "docs/learning/measured.md",
        "| epsilon | the best sample",
        "benchmarks/regression.py --published",
        "data",
    ),
    Measured(
        "docs/learning/objective_perturbation.md",
        "| epsilon | .5 |",
        "benchmarks/regret.py measure --learners objective_perturbation; of digits none is named",
        "data",
    ),
    Measured("docs/mechanisms.md", "| counts |", "benchmarks/selection.py", "peers"),
    Measured(
        "docs/mechanisms.md", "| | `InverseSensitivity` |", "benchmarks/selection.py", "peers"
    ),
    Measured("docs/pate.md", "| epsilon |", "benchmarks/pate.py --queries", "data"),
    Measured(
        "docs/pate.md",
        "| set |",
        "benchmarks/pate.py --chosen digits --strength 1 --seeds 15; "
        "--chosen cancer --strength 10 --seeds 12",
        "slow training",
    ),
    Measured("docs/security.md", "| limit |", "none: the defaults of dp.Limits", "no run"),
    Measured("docs/scale.md", "| what |", "none: sizes that follow from the code", "no run"),
    Measured("docs/scale.md", "| | from the disk |", "benchmarks/scale.py", "seconds"),
    Measured("docs/scale.md", "| | `dp.Files` |", "-m benchmarks.scale bytes", "Linux, PyArrow"),
    Measured("docs/scale.md", "| | one worker, s |", "benchmarks/scale.py dask", "seconds"),
    Measured(
        "docs/statistics/clustering.md",
        "| rows | k | d | rounds |",
        "benchmarks/clustering.py --stopping",
        "peers",
    ),
    Measured(
        "docs/statistics/clustering.md", "| rows |", "benchmarks/clustering.py", "data, peers"
    ),
    Measured("docs/statistics/means.md", "| law |", "benchmarks/means.py", "several runs"),
    Measured("docs/statistics/means.md", "| rows |", "benchmarks/means.py", "several runs"),
    Measured("docs/statistics/means.md", "| axes |", "benchmarks/means.py", "several runs"),
    Measured("docs/synthesis.md", "| set, of what |", "-m benchmarks.synthesis", "data"),
    Measured("docs/synthesis.md", "| method, at epsilon 1 |", "-m benchmarks.synthesis", "data"),
    Measured(
        "docs/synthesis.md", "| rows, set |", "benchmarks/public_mst.py, one seed", "data, peers"
    ),
    Measured(
        "docs/synthesis.md",
        "| bike, epsilon |",
        "-m benchmarks.synthesis --numbers; benchmarks/public_mst.py",
        "data, peers",
    ),
    Measured("docs/synthesis.md", "| trained on |", "-m benchmarks.synthesis", "data"),
    Measured("docs/torch.md", "| network, batch |", "benchmarks/networks.py", "peers"),
    Measured("docs/torch.md", "| library | epsilon 1 |", "benchmarks/images.py", "data, peers"),
    Measured("docs/torch.md", "| scheme | neighbours |", "the page's own code below", "PyTorch"),
)
"""Tables of the machine, of peers, or of data that are downloaded: how each was made, and why it
cannot be made again byte for byte."""


# -----------------------------------------------------------------------------
# The pages.


END = "<!-- end of table -->"


def place(name: str) -> tuple[str, str, str]:
    """Return what a page has before a table, the table, and what it has after."""
    text = (ROOT / TABLES[name].page).read_text("utf-8")
    start = f"<!-- table {name} -->\n"
    if text.count(start) != 1:
        raise SystemExit(f"{TABLES[name].page} must have the line {start.strip()!r} once")
    before, _, rest = text.partition(start)
    # a blank line before and after the table, so that renderers see one
    table, end, after = rest.partition("\n\n" + END)
    if not end or "<!-- table " in table or not table.startswith("\n"):
        raise SystemExit(
            f"{TABLES[name].page}: the table {name!r} needs a blank line, the table, a blank line "
            f"and {END!r} after its marker"
        )
    return f"{before}{start}\n", table[1:], end + after


def difference(name: str) -> list[str]:
    """Return the lines by which a page's table differs from its function's; none where equal."""
    _, written, _ = place(name)
    made = TABLES[name].function()
    return list(
        difflib.unified_diff(
            written.split("\n"),
            made.split("\n"),
            f"{TABLES[name].page}: {name}",
            "made now",
            lineterm="",
        )
    )


def write(name: str) -> None:
    """Write a table into its page."""
    made = TABLES[name].function()  # first: a page may change while a slow one is made
    before, _, after = place(name)
    (ROOT / TABLES[name].page).write_text(f"{before}{made}{after}", "utf-8")


FIGURE = re.compile(r"[-~<>±]?\s*\.?\d")


def with_figures() -> Iterator[tuple[str, str, bool]]:
    """Yield each table of the pages of which a quarter of the cells are figures.

    Its page, its header, and whether it stands between markers.
    """
    for path in sorted((ROOT / "docs").rglob("*.md")):
        lines, fenced, marked = path.read_text("utf-8").split("\n"), False, False
        i = 0
        while i < len(lines):
            line = lines[i].strip()
            fenced ^= line.startswith("```")
            marked = (marked or line.startswith("<!-- table ")) and line != END
            ruled = i + 1 < len(lines) and re.fullmatch(r"\|[-:| ]+\|", lines[i + 1].strip())
            if fenced or not (line.startswith("|") and ruled):
                i += 1
                continue
            start, i = i, i + 2
            while i < len(lines) and lines[i].strip().startswith("|"):
                i += 1
            cells = [
                c.strip() for row in lines[start + 2 : i] for c in row.strip()[1:-1].split("|")
            ]
            if cells and sum(bool(FIGURE.match(c)) for c in cells) >= len(cells) / 4:
                yield str(path.relative_to(ROOT)), line, marked


def source(page: str, header: str) -> Measured | None:
    """Return how a table that is not regenerated was made; None where nobody says."""
    for each in MEASURED:
        if each.page == page and header.startswith(each.header):
            return each
    return None


def listed() -> Iterator[str]:
    """Yield a line for each table with figures: where it comes from."""
    for name, table in TABLES.items():
        yield f"{table.page}: {name}, made by this command{' (slow)' if table.slow else ''}"
    for page, header, marked in with_figures():
        if not marked:
            made = source(page, header)
            how = "NOBODY SAYS HOW" if made is None else f"measured, {made.command} ({made.by})"
            yield f"{page}: {header[:50]}: {how}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="some tables; slow ones too")
    parser.add_argument("--slow", action="store_true", help="slow tables too")
    parser.add_argument("--check", action="store_true", help="compare with the pages")
    parser.add_argument("--write", action="store_true", help="write into the pages")
    parser.add_argument("--list", action="store_true", help="where every table comes from")
    given = parser.parse_args()
    if given.list:
        print("\n".join(listed()))
        return
    unknown = [name for name in given.names if name not in TABLES]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    names = given.names or [n for n, table in TABLES.items() if given.slow or not table.slow]
    differ = False
    for name in names:
        if given.write:
            write(name)
            print(f"{TABLES[name].page}: {name}", flush=True)
        elif given.check:
            lines = difference(name)
            differ = differ or bool(lines)
            print(
                *(lines or [f"{TABLES[name].page}: {name} is as it was made"]), sep="\n", flush=True
            )
        else:
            print(f"## {name} ({TABLES[name].page})\n\n{TABLES[name].function()}\n", flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
