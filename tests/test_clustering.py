"""Private k-means: what is released of clusters, what that costs, and what it finds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, change_at, public
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.statistics import clustering
from adaptive_dp.statistics.clustering import BIN, BINS, COUNT, ClusterSums, Silhouettes

STREAM = SeededStream(0)
NAN = math.nan
NAMES = ["u", "v"]
COLUMNS = {"u": (-1, 1), "v": (-1, 1)}
RADIUS = math.sqrt(2)
CENTERS = [[[0.0, 0.0]], [[-0.5, -0.5], [0.5, 0.5]], [[1.0, 1.0], [NAN, 0.0], [-9.0, 3.0]]]


def value(query: Any, rows: Any, released: Any) -> np.ndarray:
    """The query's private value, of rows of shape (n, 2)."""
    table = dp.dataset("t", columns=COLUMNS)
    points = table.vectors(NAMES)
    handle: Any = PrivateQuery(query, (points, public(0)))
    data = np.asarray(rows, dtype=np.float64).reshape(-1, 2)
    bound = table.operation.bind(dict(zip(NAMES, data.T, strict=True)))
    return query.run([handle.inputs[0].operation.run([bound], STREAM), released], STREAM)


def sums(rows: Any, centers: Any, radius: float) -> np.ndarray:
    query = ClusterSums(dp.dataset("t", columns=COLUMNS).vectors(NAMES).domain.radius, 2, 3)
    return value(query, rows, {"centers": np.array(centers), "radius": radius})


class TestSums:
    def test_against_plain_floats(self) -> None:
        rng = np.random.default_rng(1)
        rows, centers, radius = rng.uniform(-1, 1, (3000, 2)), rng.uniform(-1, 1, (3, 2)), 0.3
        found = sums(rows, centers, radius)
        distances = np.sqrt(((rows[:, None] - centers) ** 2).sum(axis=2))
        own = distances.argmin(axis=1)
        for j in range(3):
            offsets = rows[own == j] - centers[j]
            lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
            assert abs(found[j] - COUNT * len(offsets)) < 3  # ties within a step
            wanted = (offsets / np.maximum(lengths, radius)).sum(axis=0)
            assert found[3 + 2 * j : 5 + 2 * j] == pytest.approx(wanted, abs=0.05)
        edges = np.array([RADIUS * 2 ** (-i / 2) for i in range(BINS - 1, 0, -1)])
        bins = np.bincount(np.searchsorted(edges, distances.min(axis=1)), minlength=BINS)
        assert found[9:] == pytest.approx(BIN * bins, abs=1)

    def test_a_row_adds_the_same_beside_whatever_others(self) -> None:
        rng = np.random.default_rng(2)
        rows = rng.uniform(-1, 1, (9001, 2))
        rows[:100] = np.round(rows[:100])  # ties
        total = sums(rows, CENTERS[1], 0.2)
        assert np.array_equal(total, sums(rows[rng.permutation(9001)], CENTERS[1], 0.2))
        cuts = [0, 1, 7, 4100, 9001]
        parts = [sums(rows[i:j], CENTERS[1], 0.2) for i, j in itertools.pairwise(cuts)]
        assert np.array_equal(total, np.sum(parts, axis=0))

    def test_odd_releases_and_no_rows(self) -> None:
        rows = [[0.3, -0.2], [1, 1], [math.inf, NAN]]
        for radius in (NAN, math.inf, -1.0, 0.0, 1e300):
            for centers in ([[NAN, NAN]], [[math.inf, 0]], [[1e300, -1e300]], np.zeros((0, 2))):
                assert np.isfinite(sums(rows, centers, radius)).all()
        assert not sums(np.zeros((0, 2)), CENTERS[1], 1.0).any()


UNIVERSE = [(-1, -1), (1, 1), (1, -1), (0.5, 0.5), (0, 0), (0.1, -0.2)]


def neighbours(relation: str, rows: int) -> list[tuple[list[Any], list[Any]]]:
    """All pairs of one unit's rows, at most so many: in one data set and in its neighbour."""
    units = [
        list(unit)
        for size in range(rows + 1)
        for unit in itertools.combinations_with_replacement(UNIVERSE, size)
    ]
    if relation != "replace_one":
        return [(unit, []) for unit in units]
    return list(itertools.combinations(units, 2))


class TestSensitivity:
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    @pytest.mark.parametrize("rows", [1, 2])
    def test_brute_force_over_all_neighbours(self, relation: Any, rows: int) -> None:
        """Never exceeded, in any norm; attained in l2, up to the rounding of rows to steps."""
        extra: Any = {"unit": "id", "rows_per_unit": rows} if rows > 1 else {}
        table = dp.dataset("t", columns=COLUMNS, neighbors=relation, **extra)
        change, ball = change_at(table), table.vectors(NAMES).domain
        worst = dict.fromkeys((1, 2, math.inf), 0.0)
        query = ClusterSums(ball.radius, 2, 3)
        # each row's own sums: totals are sums of these (`TestSums`)
        for centers in CENTERS:
            for radius in (0.01, 1.0):
                one = {each: sums([each], centers, radius) for each in UNIVERSE}
                for first, second in neighbours(relation, rows):
                    moved = sum(one[each] for each in first) - sum(one[each] for each in second)
                    for norm in worst:
                        size = float(np.linalg.norm(np.atleast_1d(moved), norm))
                        worst[norm] = max(worst[norm], size)
        for norm, found in worst.items():
            assert found <= query.sensitivity(ball, change, norm) * (1 + 1e-12)
        assert worst[2] >= query.sensitivity(ball, change, 2) * (1 - 1e-4)
        assert worst[math.inf] >= query.sensitivity(ball, change, math.inf) * 0.7

    def test_one_cluster_and_uneven_numbers_of_rows(self) -> None:
        """The three cases of the proof against a search over what rows can add."""
        corners = [
            np.concatenate([COUNT * np.eye(2)[j], *(w * np.eye(2)[j]), BIN * np.eye(3)[b]])
            for j in range(2)
            for b in range(3)
            for w in (np.array([[1.0], [0]]), np.array([[-1.0], [0]]), np.array([[0], [1.0]]))
        ]
        for clusters in (1, 2):
            own = [v for v in corners if clusters == 2 or v[0] > 0]
            for a, b in [(1, 0), (1, 1), (2, 1), (3, 3), (5, 1)]:
                change = dp.graph.operation.Change(b > 0, a, False, a + b)  # type: ignore[attr-defined]
                bound = ClusterSums(RADIUS, 2, clusters).sensitivity(None, change, 2)
                found = max(
                    float(np.linalg.norm(i * v - j * w))
                    for v in own
                    for w in own
                    for i in range(a + 1)
                    for j in range(b + 1)
                )
                assert found == pytest.approx(bound, rel=1e-12)

    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_the_exact_loss_of_the_choice(self, relation: str) -> None:
        """Permute-and-flip's law in closed form, on crowds and all neighbours: within its claim."""
        sets = [np.array(CENTERS[1]), np.array([[-1.0, -1], [1, -1], [1, 1]])]
        query = Silhouettes(RADIUS, 2, 2, 3)
        own = {each: value(query, [each], sets) for each in UNIVERSE}
        for each in own.values():
            assert ((each >= 0) & (each <= 1)).all()
        change = dp.graph.operation.Change(relation == "replace_one", 1, False)  # type: ignore[attr-defined]
        span, scale, worst = query.span(None, change), 2.0, 0.0
        for crowd in ([], [(1, 1)] * 9, [(-1, -1)] * 5 + [(0, 0)] * 4):
            base = sum((own[each] for each in crowd), np.zeros(2))
            for first, second in neighbours(relation, 1):
                laws = [
                    flip_law(base + sum((own[each] for each in unit), np.zeros(2)), scale)
                    for unit in (first, second)
                ]
                worst = max(worst, float(np.abs(laws[0] - laws[1]).max()))
        assert 0.1 < worst <= span / scale + 1e-12


def flip_law(scores: np.ndarray, scale: float) -> np.ndarray:
    """The log-probabilities of permute-and-flip for two candidates, over both orders."""
    heads = np.exp((scores - scores.max()) / scale)
    law = [heads[i] / 2 + (1 - heads[1 - i]) * heads[i] / 2 for i in range(2)]
    return np.log(np.array(law) / sum(law))


def mixture(clusters: int, width: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, (clusters, width))
    noise = 0.05 * rng.standard_normal((rows, width))
    return np.clip(centers[rng.integers(0, clusters, rows)] + noise, -1, 1), centers


def cost(rows: np.ndarray, centers: Any, power: float = 2.0) -> float:
    distances = np.sqrt(((rows[:, None] - np.asarray(centers)) ** 2).sum(axis=2)).min(axis=1)
    return float((distances**power).sum())


def solved(learner: Any, rows: np.ndarray, epsilon: float, seed: int = 1, **extra: Any) -> Any:
    names = [f"x{i}" for i in range(rows.shape[1])]
    table = dp.dataset("t", columns=dict.fromkeys(names, (-1, 1)), **extra)
    plan = dp.Pipeline(found=table.solve(learner(names), epsilon=epsilon, delta=1e-6))
    data = dict(zip(names, rows.T, strict=True))
    return plan.with_delta(1e-6).simulate(seed=seed, t=data)["found"]


class TestLearners:
    @pytest.mark.parametrize("width", [2, 10])
    def test_a_separated_mixture_is_recovered(self, width: int) -> None:
        rows, centers = mixture(8, width, 10_000, 3)
        found = solved(lambda names: dp.statistics.KMeans(names, clusters=8), rows, 1.0)
        assert cost(rows, found["centers"]) < 1.02 * cost(rows, centers)
        assert found["counts"].sum() == pytest.approx(10_000, abs=6 * 8 * found["count_noise"])
        own = clustering.labels(found, dict(zip(found["features"], rows.T, strict=True)))
        for j, count in enumerate(found["counts"]):
            assert abs(count - (own == j).sum()) < 6 * found["count_noise"] + 100

    def test_the_number_of_clusters_is_chosen(self) -> None:
        rows, _ = mixture(5, 3, 10_000, 4)
        found = solved(lambda names: dp.statistics.KMeans(names, clusters=[2, 3, 5, 9]), rows, 2.0)
        assert len(found["centers"]) == 5

    def test_medians_are_moved_less_by_far_rows(self) -> None:
        rng = np.random.default_rng(5)
        rows = np.concatenate(
            [
                rng.normal(-0.5, 0.02, (4000, 2)),
                rng.normal(0.5, 0.02, (4000, 2)),
                rng.uniform(-1, 1, (2000, 2)),
            ]
        )
        costs = {}
        for learner in (dp.statistics.KMeans, dp.statistics.KMedians):
            found = solved(lambda n, kind=learner: kind(n, clusters=2, rounds=8), rows, 4.0)
            costs[learner] = cost(rows, found["centers"], 1.0)
        best = cost(rows, [[-0.5, -0.5], [0.5, 0.5]], 1.0)
        assert costs[dp.statistics.KMedians] < 1.01 * best < costs[dp.statistics.KMeans]

    @pytest.mark.parametrize("rows", [0, 1, 30])
    def test_few_rows(self, rows: int) -> None:
        data, _ = mixture(2, 2, rows, 6)
        for clusters in (3, [2, 4]):
            found = solved(
                lambda names, k=clusters: dp.statistics.KMeans(names, clusters=k), data, 0.1
            )
            assert len(found["centers"]) in (2, 3, 4)
            assert (np.abs(found["centers"]) <= 1).all()

    @pytest.mark.parametrize("clusters", [3, [2, 4]])
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
    def test_it_costs_what_it_was_given(self, clusters: Any, relation: Any) -> None:
        table = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=3, neighbors=relation)
        learner = dp.statistics.KMeans(NAMES, clusters=clusters)
        plan = dp.Pipeline(found=table.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
        least = 0.9999 if clusters == 3 else 0.9
        assert least < plan.certify().epsilon <= 1.0
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
        free = dp.Pipeline(found=table.solve(learner)).calibrate(epsilon=1.0, delta=1e-6)
        assert free.certify().epsilon <= 1.0

    def test_a_session_pays_for_the_rounds_that_it_runs(self) -> None:
        """All rounds are the plan's; of a session, those that ran; noise of rounds may differ."""
        table = dp.dataset("t", columns={"x": (0, 100)})
        kmeans = dp.statistics.KMeans(["x"], clusters=2, rounds=6)
        plan = dp.Pipeline(last=kmeans.in_rounds(table, epsilon=1.0, delta=1e-6)[-1])
        assert 0.9999 < plan.with_delta(1e-6).certify().epsilon <= 1.0
        rows = {"x": np.repeat([20.0, 70.0], 5_000)}
        rounds, budget = kmeans.in_rounds(table), dp.Budget(1.0, 1e-6)
        with dp.Session(budget=budget, accountant="gaussian", seed=1, t=rows) as session:
            whole = session.remaining.costs[0]
            first = session.run(rounds[0], share=0.5)
            assert session.remaining.costs[0] == pytest.approx(0.5 * whole, rel=1e-6)
            assert first["moved"] < 0.01  # at rest
            again = session.run(rounds[1], share=0.4)  # the rest in one round of less noise
            assert session.remaining.costs[0] == pytest.approx(0.1 * whole, rel=1e-6)
        # a round of 0.4 beside the first, a seventh of its step: the levels have six such shares
        assert first["count_noise"] / again["count_noise"] == pytest.approx(6.6**0.5, rel=1e-3)
        assert sorted(again["centers"].round(1).ravel().tolist()) == [20.0, 70.0]

    def test_rows_with_missing_values_are_left_out(self) -> None:
        rows, _ = mixture(2, 2, 4000, 7)
        holes = np.concatenate([rows, np.full((3000, 2), NAN)])
        found = solved(lambda names: dp.statistics.KMeans(names, clusters=2), holes, 4.0)
        assert found["counts"].sum() == pytest.approx(4000, abs=100)
        with pytest.raises(ValueError, match="missing"):
            clustering.labels(found, {"x0": [NAN], "x1": [0.0]})

    def test_what_is_refused(self) -> None:
        table = dp.dataset("t", columns={**COLUMNS, "free": None})
        kmeans = dp.statistics.KMeans
        for features, clusters, rounds in [
            ([], 2, 4),
            (NAMES, 0, 4),
            (NAMES, 5000, 4),
            (NAMES, "3", 4),
            (NAMES, [1, 3], 4),
            (NAMES, [3, 3], 4),
            (NAMES, 2, 0),
        ]:
            with pytest.raises(DeclarationError):
                kmeans(features, clusters=clusters, rounds=rounds)
        with pytest.raises(DeclarationError, match="delta"):
            table.solve(kmeans(NAMES, clusters=2), epsilon=1.0)
        with pytest.raises(DeclarationError, match="delta < 1"):
            table.solve(kmeans(NAMES, clusters=2), epsilon=1.0, delta=0.0)
        with pytest.raises(DeclarationError, match="free"):
            table.solve(kmeans(["free"], clusters=2), epsilon=1.0, delta=1e-6)
        many = [f"x{i}" for i in range(4097)]
        wide = dp.dataset("t", columns=dict.fromkeys(many, (0, 1)))
        with pytest.raises(DeclarationError, match="4096"):
            wide.solve(kmeans(many, clusters=2), epsilon=1.0, delta=1e-6)


class TestPostProcessing:
    def test_the_nearest_histogram(self) -> None:
        """Against a search over a grid of histograms."""
        counts, total = np.array([4.0, -1.0, 2.5]), 6.0
        grid = np.arange(0, 6.01, 0.1)
        best = min(
            ((a, b, total - a - b) for a in grid for b in grid if a + b <= total),
            key=lambda h: float(np.square(np.array(h) - counts).sum()),
        )
        shares = clustering.histogram_shares(counts, total)
        assert shares == pytest.approx(np.array(best) / total, abs=0.02)

    @pytest.mark.parametrize("medians", [False, True])
    def test_centers_of_weighted_points(self, medians: bool) -> None:
        """Against all partitions of few points on a line into two clusters."""
        rng = np.random.default_rng(8)
        points, weights = np.sort(rng.uniform(size=7)), rng.uniform(0.1, 1, 7)

        def least(i: int, j: int) -> float:
            x, w = points[i:j], weights[i:j]
            if medians:
                return min(float(w @ np.abs(x - c)) for c in x)
            return float(w @ (x - w @ x / w.sum()) ** 2)

        best = min(least(0, cut) + least(cut, 7) for cut in range(1, 7))
        found = clustering.weighted_centers(points[:, None], weights, 2, rng, medians=medians)
        lengths = np.abs(points[:, None] - found[:, 0]).min(axis=1)
        reached = float(weights @ (lengths if medians else lengths**2))
        assert reached <= best * (1.05 if medians else 1 + 1e-9)
