"""Audits of plans: broken plans are refuted, correct ones are not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accountants
import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import audit
from adaptive_dp.audit.pipelines import Transcripts
from adaptive_dp.data import MemoryRows, parquet_files, sources
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.operation import Query
from adaptive_dp.pate import Ballots, BallotsSource, GNMax

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "sex": ["f", "m"]})
PAIR: tuple[Any, Any] = (
    {"people": {"age": [50.0], "sex": ["f"]}},
    {"people": {"age": [], "sex": []}},
)


def caught(plan: dp.Pipeline, pairs: Any = None, **options: Any) -> bool:
    result = audit.pipeline(plan, pairs, **{"samples": 3_000, "seed": 5, **options})
    return result.verdict == "violation"


def count() -> Any:
    return PEOPLE.count()


def test_a_correct_plan_is_not_accused_and_the_bound_is_near() -> None:
    """Laplace noise on a count and a sum: epsilon is exactly 1 + 1 on the worst pair."""
    plan = dp.Pipeline(
        n=count().release(dp.Laplace(scale=1)),
        total=PEOPLE["age"].sum().release(dp.Laplace(scale=100)),
    )
    result = audit.pipeline(plan, samples=20_000, seed=3)
    assert result.verdict == "consistent"
    assert 1.8 < result.epsilon_lower <= 2.0001


class Peeking(dp.Mechanism):
    """It branches on the private value: noise for large counts alone."""

    scale: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        large = value >= 1
        return np.round(value + stream.laplace(self.scale, value.shape) * (1 if large else 0.1), 3)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


class Smuggler(dp.Mechanism):
    """It stores the private value where others can read it."""

    scale: float = dp.noise_parameter("b")
    values: ClassVar[list[float]] = []

    def release(self, value: Any, stream: Any) -> Any:
        self.values[:] = [float(value)]
        return np.round(value + stream.laplace(self.scale, value.shape), 3)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


def smuggled(noisy: float) -> float:
    """Choose a branch by the private value."""
    return 2.0 if Smuggler.values[0] > 0 else 1.0


class Twice(dp.Mechanism):
    """It answers twice with fresh noise, and pays for one."""

    scale: float = dp.noise_parameter("b")

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        return (2,)

    def release(self, value: Any, stream: Any) -> Any:
        return np.round(value + stream.laplace(self.scale, (2,)), 3)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


class SquaredSum(Query):
    """A sum of squares that declares the move of a sum."""

    kind: ClassVar[str] = "squared_sum_of_the_audits_tests"

    def __init__(self, declared: float) -> None:
        self.declared = declared

    def parameters(self) -> dict[str, Any]:
        return {"declared": self.declared}

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return self.declared

    def run(self, inputs: Any, stream: Any) -> Any:
        cells = np.asarray(inputs[0].of(inputs[0].rows.columns), dtype=np.float64)
        return np.array(np.sum(np.clip(np.nan_to_num(cells), 0, 100) ** 2))


class Reusing(dp.Mechanism):
    """Every release in the process has the same noise."""

    scale: float = dp.noise_parameter("b")
    noises: ClassVar[list[float]] = []

    def release(self, value: Any, stream: Any) -> Any:
        even = len(self.noises) % 2 == 0
        noise = stream.laplace(self.scale, ()) if even else self.noises[-1]
        self.noises.append(float(noise))
        return np.round(value + noise, 3)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


def test_a_branch_on_a_private_value_is_caught() -> None:
    assert caught(dp.Pipeline(n=count().release(Peeking(scale=2))), PAIR)


def test_a_value_smuggled_into_post_processing_is_caught() -> None:
    noisy = count().release(Smuggler(scale=2))
    assert caught(dp.Pipeline(branch=dp.post(smuggled, noisy)))


def test_a_double_spend_is_caught() -> None:
    assert caught(dp.Pipeline(n=count().release(Twice(scale=1))), PAIR)


@pytest.mark.parametrize(("declared", "wrong"), [(100.0, True), (10_000.0, False)])
def test_a_query_that_declares_too_small_a_sensitivity_is_caught(
    declared: float, wrong: bool
) -> None:
    """No data and no pair are given: the gallery has a unit at the bounds of the column."""
    query = PrivateQuery(SquaredSum(declared), (PEOPLE["age"],))
    plan = dp.Pipeline(squares=query.release(dp.Laplace(scale=declared)))
    result = plan.audit(samples=500, seed=2)
    assert (result.verdict == "violation") == wrong
    assert result.epsilon == pytest.approx(1.0)
    assert result.epsilon_lower > (3.0 if wrong else 0.3)


def test_noise_that_is_used_twice_is_caught_by_the_transcript_alone() -> None:
    """A final value has the right noise; the difference of two releases has none."""
    Reusing.noises.clear()
    a = count().release(Reusing(scale=5))
    b = PEOPLE.partition("sex")["f"].count().release(Reusing(scale=5))
    pair: Any = ({"people": {"age": [50.0], "sex": ["m"]}}, {"people": {"age": [], "sex": []}})
    assert caught(dp.Pipeline(a=a, b=b), pair)


class Correlated(dp.Mechanism):
    """Laplace noise that the next release repeats, by one of several mistakes."""

    scale: float = dp.noise_parameter("b")
    mistake: str = "shared"
    pool: ClassVar[list[float]] = []

    def release(self, value: Any, stream: Any) -> Any:
        return np.round(value + self.scale * self.unit(stream), 6)

    def unit(self, stream: Any) -> float:
        """Noise of scale 1 that two releases of one run share, but for a tenth if correlated."""
        if self.mistake == "one seed for all":  # of this run: the first draw is the seed
            if len(self.pool) % 2 == 0:
                self.pool.append(float(stream.words(1)[0]))
                return self.seeded(self.pool[-1])
            self.pool.append(0.0)
            return self.seeded(self.pool[-2])
        if len(self.pool) % 2 == 0:
            self.pool.append(float(stream.laplace(1.0, ())))
            return self.pool[-1]
        self.pool.append(0.0)
        again, fresh = self.pool[-2], float(stream.laplace(1.0, ()))
        if self.mistake == "correlated streams":
            return again if abs(fresh) < 2.3 else fresh  # nine times in ten
        return -again if self.mistake == "antithetic" else again

    def seeded(self, seed: float) -> float:
        return float(np.random.default_rng(int(seed) % 2**32).laplace())

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


WIDE = {"age": (0, 100), "sex": ["f", "m"], "income": (0, 1000.0)}
SWAPPED = dp.dataset("people", columns=WIDE, neighbors="replace_one", size=20)
MANY = dp.dataset("people", columns=WIDE, unit="id", rows_per_unit=3)


def two_of(table: Any, kind: str, mistake: str) -> dp.Pipeline:
    """Two releases that share noise: counts of conditions, sums, a sum among other releases."""
    old = table.filter(table["age"] >= 50).count()
    rich = table.filter(table["income"] > 300).count()

    def noisy(query: Any, scale: float) -> Any:
        return query.release(Correlated(scale=scale, mistake=mistake))

    if kind == "counts":
        return dp.Pipeline(a=noisy(old, 4), b=noisy(rich, 8))
    if kind == "sums":
        return dp.Pipeline(a=noisy(table["age"].sum(), 400), b=noisy(table["income"].sum(), 4000))
    sexes = table["sex"].histogram().release(dp.Laplace(scale=8))
    return dp.Pipeline(a=noisy(table["age"].sum(), 400), sexes=sexes, b=noisy(rich, 4))


MISTAKES = [
    ("counts", "shared"),
    ("sums", "one seed for all"),
    ("sums", "correlated streams"),
    ("among others", "antithetic"),
]
TABLES = [dp.dataset("people", columns=WIDE), SWAPPED, MANY]


# every mistake and every table in each run, all pairs of them in the slow one
@pytest.mark.parametrize(
    ("kind", "mistake", "table"),
    [
        pytest.param(
            *mistake, table, marks=[] if (i + j) % 3 == 0 else [pytest.mark.slow], id=f"{i}-{j}"
        )
        for i, mistake in enumerate(MISTAKES)
        for j, table in enumerate(TABLES)
    ],
)
def test_noise_that_two_releases_share_is_found_by_default(
    table: Any, kind: str, mistake: str
) -> None:
    """No pair is given: the audit takes some in which one moves and the other does not."""
    Correlated.pool.clear()
    result = two_of(table, kind, mistake).audit(samples=2_000, seed=1)
    assert result.verdict == "violation"


def test_power_is_claimed_for_the_pair_alone() -> None:
    text = str(dp.Pipeline(n=count().release(dp.Laplace(scale=1))).audit(samples=300, seed=1))
    assert "on this pair" in text
    assert "of 1,000 audits of claims that hold, at most 1 refutes one" in text


def test_rounds_of_a_loop_are_in_the_transcript() -> None:
    def body(state: Any, query: Any) -> Any:
        return query.release(dp.Laplace(scale=5))

    plan = dp.Pipeline(last=dp.repeat(body, 4, count(), start=0.0))
    transcript = Transcripts.of(plan, PAIR[0]).one(0)
    assert len(transcript) == 5
    assert transcript[3] == transcript[4]
    assert len({float(each) for each in transcript}) == 4


def test_runs_are_those_of_simulate() -> None:
    """With a seed, a run shows what `simulate` releases."""
    n = count().release(dp.Laplace(scale=3))
    plan = dp.Pipeline(n=n, s=PEOPLE["age"].sum().release(dp.Laplace(scale=50)))
    transcript = Transcripts.of(plan, PAIR[0]).one(11)
    assert [float(each) for each in transcript] == list(plan.simulate(seed=11, **PAIR[0]).values())


@pytest.mark.parametrize("sampled", [False, True])
def test_rows_that_no_run_reads_again_are_let_go(sampled: bool) -> None:
    """Eighty data sets are bound at a time: with their rows, given data would not fit."""
    table = PEOPLE.sample(0.5) if sampled else PEOPLE
    plan = dp.Pipeline(n=table.count().release(dp.Laplace(scale=1)))
    secrets = Transcripts.of(plan, PAIR[0]).base.secrets.values()
    assert any(isinstance(each.reveal(), MemoryRows) for each in secrets) == sampled


def test_given_data_are_mixed_with_the_unit() -> None:
    frame = {"age": [1.0, 2.0, 3.0], "sex": ["m", "m", "f"]}
    plan = dp.Pipeline(n=count().release(dp.Laplace(scale=1)))
    result = plan.audit(people=frame, samples=1_000, seed=1)
    assert any("as private as" in note for note in result.notes)
    assert result.epsilon_lower <= 1


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("large", [False, True])
def test_a_file_is_read_once_for_all_pairs(
    neighbors: Any, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those of arrays; a file that a plan reads in batches is read for each run."""
    frame = {"id": ["p", "q", "p", "r"], "age": [1.0, 2.0, 3.0, 4.5]}
    table, other = tmp_path / "people.csv", tmp_path / "visits.csv"
    table.write_text("id,age\np,1\nq,2\np,3\nr,4.5\n")
    other.write_text("hour\n3\n4\n")
    size = 3 if neighbors == "replace_one" else None
    people = dp.dataset(
        "people",
        columns={"age": (0, 9)},
        unit="id",
        rows_per_unit=2,
        neighbors=neighbors,
        size=size,
    )
    visits = dp.dataset("visits", columns={"hour": (0, 24)}, neighbors=neighbors, size=size and 2)
    plan = dp.Pipeline(
        age=people["age"].sum().release(dp.Laplace(scale=9)),
        hour=visits["hour"].sum().release(dp.Laplace(scale=24)),
    )
    reads = list[str]()
    read = sources.read_file

    def counted(path: Path, *rest: Any) -> Any:
        reads.append(path.name)
        return read(path, *rest)

    monkeypatch.setattr(sources, "read_file", counted)
    if large:
        monkeypatch.setattr(sources, "LARGE", 1)
    options: Any = {"samples": 200, "limit": 4, "seed": 1}
    from_files = audit.pipeline(plan, data={"people": table, "visits": str(other)}, **options)
    once = len(reads)
    arrays = {"people": frame, "visits": {"hour": [3.0, 4.0]}}
    given = audit.pipeline(plan, data=arrays, **options)
    assert len(reads) == once
    assert from_files == given
    assert (sorted(reads) == ["people.csv", "visits.csv"]) == (not large)


def test_pairs_and_data_are_checked() -> None:
    plan = dp.Pipeline(n=count().release(dp.Laplace(scale=1)))
    with pytest.raises(dp.DeclarationError):
        audit.pipeline(plan, (1, 2))  # type: ignore[arg-type]
    with pytest.raises(dp.DataError):
        audit.pipeline(plan, ({"other": {}}, PAIR[1]))
    with pytest.raises(dp.DataError):
        audit.pipeline(plan, data={"other": {}})
    free = dp.Pipeline(n=count().release(dp.Laplace(scale=dp.Free("b"))))
    with pytest.raises(dp.DeclarationError, match="free"):
        audit.pipeline(free)


def test_a_plan_without_epsilon_at_its_delta_is_held_to_its_curve() -> None:
    plan = dp.Pipeline(n=count().release(dp.Gaussian(sigma=1)))
    result = plan.audit(samples=3_000, seed=0)
    assert result.verdict != "violation"
    assert result.mu_lower > 0.8
    assert math.isfinite(result.epsilon)


def test_correct_plans_are_not_accused() -> None:
    """Thirty audits at the exact truth, each wrong with probability 0.001: P(> 3) < 3e-8.

    And thirty at 0.05: P(> 11) < 1e-7.
    """
    plan = dp.Pipeline(n=count().release(dp.Laplace(scale=1)))

    def wrong(**options: Any) -> int:
        return sum(caught(plan, PAIR, seed=seed, samples=1_000, **options) for seed in range(30))

    assert wrong() <= 3
    assert wrong(confidence=0.95) <= 11


@pytest.mark.parametrize(("sigma", "broken"), [(2.0, False), (0.5, True)])
def test_one_vote_at_a_tie_is_what_teachers_are_audited_by(sigma: float, broken: bool) -> None:
    """GNMax on two classes with five votes each: one vote moves the answer the most."""

    def plan(noise: float) -> dp.Pipeline:
        votes = Ballots(BallotsSource("votes", 10, 1, 2), ())
        answers = votes.release(GNMax(sigma=noise))
        return dp.Pipeline(answers=answers).with_delta(1e-3)

    tie, after = ({"votes": {"counts": [counts]}} for counts in ([5, 5], [6, 4]))
    claim = accountants.Gaussian(mu=np.sqrt(2) / 2)
    result = audit.pipeline(plan(sigma), (tie, after), claim, samples=2_000, seed=1)
    assert (result.verdict == "violation") == broken


@pytest.mark.parametrize("samples", [None, 1000.0, "1000", 99, True])
def test_numbers_of_runs_are_integers(samples: Any) -> None:
    plan = dp.Pipeline(n=count().release(dp.Laplace(scale=1)))
    with pytest.raises(DomainError, match="samples"):
        plan.audit(samples=samples, seed=1)
    with pytest.raises(DomainError, match=r"\blimit\b"):
        audit.pipeline(plan, limit=-1)
    with pytest.raises(dp.DeclarationError, match="PrivateQuery"):
        audit.pipeline(count())  # type: ignore[arg-type]


def test_given_data_that_do_not_fit_are_refused_by_what_is_wrong() -> None:
    people = dp.dataset("people", columns={"age": (0, 90)}, neighbors="zero_out", size=3)
    plan = dp.Pipeline(n=people["age"].sum().release(dp.Laplace(scale=90)))
    with pytest.raises(dp.DataError, match="size=3"):
        plan.audit(people={"age": [1.0, 2.0]}, samples=100, seed=1)
    with pytest.raises(dp.DataError):
        plan.audit(people={"age": [1.0, 2.0, 3.0]}, other=3, samples=100, seed=1)
    with pytest.raises(dp.DataError, match="'people'"):
        plan.audit(people="7231", samples=100, seed=1)


def test_only_public_data_are_given_with_the_gallery() -> None:
    people = dp.dataset("people", columns={"x": (-5, 5), "z": ["a", "b"]})
    naive = "sklearn.naive_bayes:GaussianNB"
    taught = dp.pate.teachers(people, ["x"], "z", naive, count=2, var_smoothing=0.1)
    votes = taught.votes(taught.points("pool", 1))
    plan = dp.Pipeline(answers=votes.release(dp.pate.GNMax(sigma=9.0))).with_delta(1e-3)
    result = audit.pipeline(plan, data={"pool": {"x": [0.5]}}, samples=100, limit=1, seed=1)
    assert result.verdict != "violation"
    assert not any("as private as" in note for note in result.notes)
    assert not result.witness.pair.endswith("given data")
    with pytest.raises(dp.DataError, match="pool"):
        plan.audit(samples=100, seed=1)


def test_sums_that_each_run_shares_are_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"age": np.arange(60.0), "sex": ["f", "m"] * 30})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=20)
    women = PEOPLE.filter(PEOPLE["sex"].isin(["f"]))
    noise = dp.Laplace(scale=1)
    plan = dp.Pipeline(
        n=PEOPLE.count().release(noise),
        total=women["age"].sum().release(noise),
        sexes=PEOPLE["sex"].histogram().release(noise),
    )
    reads: list[set[str]] = []
    blocks = parquet_files.RowGroup.blocks

    def recorded(self: Any, columns: Any) -> Any:
        reads.append(set(columns))
        return blocks(self, columns)

    with monkeypatch.context() as patch:
        patch.setattr(parquet_files.RowGroup, "blocks", recorded)
        batches = dp.Files(tmp_path / "p.parquet", "threads")
        transcripts = Transcripts.of(plan, {"people": batches})
        transcripts.one(1)
    assert reads == [{"age", "sex"}] * 3  # each of the three row groups once
    in_memory = Transcripts.of(plan, {"people": table})
    assert str(transcripts.one(7)) == str(in_memory.one(7))
