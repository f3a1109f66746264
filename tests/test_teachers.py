"""Teachers: who is in which, what they learn, with how many workers, and what they tell."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from scipy.stats import norm
from teacher_models import (
    SECRET,
    Nearest,
    dawdling,
    printing,
    seen,
    shared,
    torched,
)

import adaptive_dp as dp
from adaptive_dp.data import read_rows
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import change_at
from adaptive_dp.noise.stream import SeededStream, Stream
from adaptive_dp.pate.ensembles import Teachers
from adaptive_dp.pate.model import quiet

COLUMNS: dict[str, Any] = {"x": (0, 1), "z": (-1, 1), "y": ["a", "b", "c"], "site": list("ABCDE")}


def people(
    neighbors: str = "add_remove", each: int | None = 3, unit: str | None = "id"
) -> dp.Table:
    more: dict[str, Any] = {} if unit is None else {"unit": unit, "rows_per_unit": each}
    return dp.dataset("people", columns=COLUMNS, neighbors=neighbors, **more)


def frame(units: int = 40, rows_each: int = 3, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    size = units * rows_each
    y = draw.choice(["a", "b", "c"], size)
    return {
        "id": np.repeat(np.arange(units), rows_each),
        "x": (np.select([y == "a", y == "b"], [0.1, 0.5], 0.9) + draw.uniform(-0.1, 0.1, size)),
        "z": draw.uniform(-1, 1, size),
        "y": y,
        "site": draw.choice(list("ABCDE"), size),
    }


POOL = {"x": np.array([0, 0.1, 0.2, 0.45, 0.5, 0.55, 0.85, 0.9, 1]), "z": np.zeros(9)}


def taught(model: Any = seen, table: Any = None, **more: Any) -> Teachers:
    more = more if "by" in more else {"count": 4, **more}
    return dp.pate.teachers(people() if table is None else table, ["x", "z"], "y", model, **more)


def plan(teachers: Teachers, sigma: float = 1e-3) -> dp.Pipeline:
    labels = teachers.votes(teachers.points("pool", 9)).release(dp.pate.GNMax(sigma=sigma))
    return dp.Pipeline(labels=labels).with_delta(1e-6)


def simulated(teachers: Teachers, data: Any = None, **more: Any) -> list[int]:
    result = plan(teachers).simulate(seed=5, people=frame() if data is None else data, pool=POOL)
    return result["labels"].tolist()


@frozen(eq=False)
class Scripted(Stream):
    """Gives each unit the word that it has in every data set, then the teachers their seeds."""

    words_of: list[int]
    calls: list[int]

    def words(self, count: int) -> Any:
        self.calls.append(count)
        if len(self.calls) == 1 and self.words_of:
            assert count == len(self.words_of)
            return np.array(self.words_of, dtype=np.uint64)
        return np.arange(1, count + 1, dtype=np.uint64)


def ensemble(teachers: Teachers, data: dict[str, Any], words: list[int]) -> list[str]:
    """What each teacher was trained on; words are those of the units that have a usable row."""
    operation = teachers.operation
    reading = {"x": "number", "z": "number", "y": "text", "site": "text"}
    result = operation.run([read_rows(data, reading, "id")], Scripted(words, []))
    return [getattr(m.predict, "digest", f"constant {m.always}") for m in result.models]


def without(data: dict[str, Any], unit: int) -> dict[str, Any]:
    return {name: values[data["id"] != unit] for name, values in data.items()}


def exchanged(data: dict[str, Any], unit: int) -> dict[str, Any]:
    mine = data["id"] == unit
    other = frame(seed=99, rows_each=int(mine.sum()))
    return {n: np.where(mine, other[n], v) if n != "id" else v for n, v in data.items()}


def zeroed(data: dict[str, Any], unit: int) -> dict[str, Any]:
    mine = data["id"] == unit
    return {
        n: np.where(mine, "" if n in "ysite" else 0, v) if n != "id" else v for n, v in data.items()
    }


@pytest.mark.parametrize("unit", range(0, 40, 7))
def test_one_unit_touches_one_teacher(unit: int) -> None:
    data, teachers = frame(), taught(count=4)
    words = [int(w) for w in np.random.default_rng(1).integers(0, 2**64, 40, dtype=np.uint64)]
    before = ensemble(teachers, data, words)
    own = [w for i, w in enumerate(words) if i != unit]
    for neighbour, of in (
        (without(data, unit), own),
        (exchanged(data, unit), words),
        (zeroed(data, unit), own),
    ):
        after = ensemble(teachers, neighbour, of)
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert changed == [words[unit] * 4 >> 64]


def test_the_split_is_uniform() -> None:
    # 4000 units, 4 teachers: a count lies within 6 standard deviations but for 1e-8
    data = frame(4000, 1)
    teachers = taught(count=4)
    reading = {"x": "number", "z": "number", "y": "text", "site": "text"}
    made = teachers.operation.run([read_rows(data, reading, "id")], SeededStream(3))
    sizes = [m.predict.rows for m in made.models]
    assert sum(sizes) == 4000
    assert max(abs(s - 1000) for s in sizes) < 6 * np.sqrt(4000 * 3 / 16)


@pytest.mark.parametrize(
    ("neighbors", "each", "most"),
    [
        ("add_remove", 3, 3),
        ("replace_one", 3, 5),
        ("zero_out", 3, 3),
        ("replace_one", 2, 4),
        ("add_remove", 9, 5),
        ("replace_one", 1, 2),
    ],
)
def test_by_touches_as_many_as_it_says(neighbors: str, each: int, most: int) -> None:
    """5 hospitals: r rows lie with r of them at most, exchanged ones with 2 r, and there are 5."""
    teachers = taught(by="site", table=people(neighbors, each))
    data = frame(40, each)
    largest = 0
    before = ensemble(teachers, data, [])
    changes: dict[str, Callable[..., Any]] = {
        "add_remove": without,
        "replace_one": exchanged,
        "zero_out": zeroed,
    }
    for unit in range(40):
        after = ensemble(teachers, changes[neighbors](data, unit), [])
        largest = max(largest, sum(a != b for a, b in zip(before, after, strict=True)))
    assert largest <= most
    assert largest == most or each == 9  # nine draws of five need not show all

    result = plan(teachers, sigma=30.0).certify().epsilon
    mu = most * np.sqrt(2 * 9) / 30  # nine questions
    delta = norm.cdf(-result / mu + mu / 2) - np.exp(result) * norm.cdf(-result / mu - mu / 2)
    assert delta == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
def test_count_costs_one_teacher_however_many_rows(neighbors: str) -> None:
    mu = np.sqrt(2 * 9) / 30
    for table in (people(neighbors), people(neighbors, 50), people(neighbors, unit=None)):
        result = plan(taught(table=table), sigma=30.0).certify().epsilon
        delta = norm.cdf(-result / mu + mu / 2) - np.exp(result) * norm.cdf(-result / mu - mu / 2)
        assert delta == pytest.approx(1e-6, rel=1e-6)


def test_by_needs_a_bound_of_rows() -> None:
    with pytest.raises(DeclarationError):
        plan(taught(by="site", table=people(each=None)), 5.0).certify()


def test_filters_and_samples_upstream() -> None:
    table = people()
    epsilon = plan(taught(table=table), 5.0).certify().epsilon
    assert plan(taught(table=table.filter(table["x"] >= 0.2)), 5.0).certify().epsilon == epsilon
    sampled = plan(taught(table=table.sample(0.1)), 5.0)
    assert sampled.certify().epsilon < epsilon
    assert len(sampled.simulate(seed=1, people=frame(), pool=POOL)["labels"]) == 9


# -----------------------------------------------------------------------------
# Missing values: a teacher learns from rows that lack nothing, and one unit still touches one.


Row = tuple[float, float, str | None, str | None]
ROWS: list[Row] = [
    (0.2, 0.5, "a", "A"),
    (0.9, -0.5, "b", "B"),
    (np.nan, 0.5, "a", "A"),
    (0.2, np.nan, "b", "C"),
    (0.2, 0.5, None, "B"),
    (0.9, 0.5, "a", None),
]
"""Of x, z, y and site; the first two lack nothing, the last one a site alone."""
UNITS: list[tuple[Row, ...]] = [
    rows for size in range(3) for rows in itertools.combinations_with_replacement(ROWS, size)
]
"""All that a unit with at most two rows may have."""


def lacks_nothing(row: Row, by: str | None) -> bool:
    return not np.isnan(row[:2]).any() and None not in (row[2:] if by else row[2:3])


def of_units(units: Sequence[tuple[Row, ...]]) -> dict[str, Any]:
    rows = [(i, *row) for i, own in enumerate(units) for row in own]
    kinds = {"id": int, "x": float, "z": float, "y": object, "site": object}
    cells = zip(*rows, strict=True) if rows else [()] * 5
    return {n: np.array(c, kind) for (n, kind), c in zip(kinds.items(), cells, strict=True)}


def taught_with_gaps(
    teachers: Teachers, units: Sequence[tuple[Row, ...]], words: Sequence[int]
) -> list[str]:
    """What each teacher was trained on; a unit that has a row left has its own word."""
    by = teachers.operation.by  # type: ignore[attr-defined]
    own = [
        word
        for rows, word in zip(units, words, strict=True)
        if any(lacks_nothing(row, by) for row in rows)
    ]
    reading = {"x": "number", "z": "number", "y": "text", "site": "text"}
    kept = teachers.inputs[0].operation
    rows = kept.run([read_rows(of_units(units), reading, "id")], SeededStream(0))
    result = teachers.operation.run([rows], Scripted([] if by else own, [] if own else [0]))
    return [getattr(m.predict, "digest", f"constant {m.always}") for m in result.models]


@pytest.mark.parametrize("by", [None, "site"])
def test_one_unit_with_gaps_touches_as_many_teachers_as_it_says(by: str | None) -> None:
    """Every pair of data that differ in one unit: all that any of the three relations allows."""
    more: dict[str, Any] = {} if by is None else {"by": by}
    teachers = taught(table=people(each=2), **more)
    told = "x is present and z is present and y is present" + (" and site is present" if by else "")
    assert teachers.inputs[0].operation.label() == told
    appears, exchanged, zeroed = (
        change_at(taught(table=people(relation, 2), **more)).rows
        for relation in ("add_remove", "replace_one", "zero_out")
    )
    assert (appears, exchanged, zeroed) == ((1, 1, 1) if by is None else (2, 4, 2))
    # sites have rows of both classes anyway; of four teachers the last has those of two units alone
    always = [((0.2, 0.5, "a", s), (0.9, -0.5, "b", s)) for s in "ABC"]
    words = [3 << 62, 3 << 62, 0, 1 << 62, 2 << 62]
    learned_from: dict[Any, list[str]] = {}
    most = {"appears": 0, "exchanged": 0}
    for other in UNITS[::9]:
        learned = [taught_with_gaps(teachers, (own, other, *always), words) for own in UNITS]
        for own, got in zip(UNITS, learned, strict=True):
            whole = [tuple(r for r in rows if lacks_nothing(r, by)) for rows in (own, other)]
            # what is left out is as if it were not there
            key = tuple(whole)
            if key not in learned_from:
                learned_from[key] = taught_with_gaps(teachers, (*whole, *always), words)
            assert got == learned_from[key]
        for one, two in itertools.combinations(learned, 2):
            changed = [k for k, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
            assert by is not None or changed in ([], [3])
            how = "appears" if one is learned[0] else "exchanged"
            most[how] = max(most[how], len(changed))
    # of the few rows here an exchange moves at most two sites, and 2 + 2 are charged
    assert most["appears"] == appears == zeroed
    assert most["exchanged"] <= exchanged


def test_points_with_a_gap_are_refused_and_filled_features_need_no_filter() -> None:
    teachers = taught()
    gap = {**POOL, "x": np.where(POOL["x"] == 0.5, np.nan, POOL["x"])}
    with pytest.raises(dp.DataError, match="1 rows have no value in 'x'"):
        plan(teachers).simulate(seed=1, people=frame(), pool=gap)
    filled = taught(table=people().fill(x=0.5, z=0).filter(people()["y"].is_present()))
    assert "x is present" not in str(plan(filled))
    data = frame()
    data["x"] = np.where(data["x"] > 0.8, np.nan, data["x"])
    same = {**data, "x": np.where(np.isnan(data["x"]), 0.5, data["x"])}
    assert simulated(filled, data) == simulated(filled, same)
    there = ~np.isnan(data["x"])
    assert simulated(teachers, data) == simulated(teachers, {k: v[there] for k, v in data.items()})
    assert plan(filled, 5.0).certify().epsilon == plan(teachers, 5.0).certify().epsilon


@pytest.mark.parametrize("kind", ["int", "float", "text", "column"])
def test_positions_of_any_type(kind: str) -> None:
    expected = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert simulated(taught(Nearest, count=1, kind=kind)) == expected
    assert simulated(taught("teacher_models:Nearest", count=1, kind=kind)) == expected


@pytest.mark.parametrize(
    "fails",
    ["fit", "predict", "exit fit", "exit predict", "odd fit", "odd predict", "shape", "range"],
)
def test_a_teacher_that_fails_votes_for_the_first_class(
    fails: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # 120 rows and the rehearsal's 200: who has fewer than 60 fails
    assert simulated(taught(Nearest, count=3, fails=fails)) == [0] * 9
    assert capfd.readouterr() == ("", "")


def test_teachers_of_nothing_and_of_one_class() -> None:
    empty = {n: v[:0] for n, v in frame().items()}
    assert simulated(taught(Nearest), empty) == [0] * 9
    only = {n: v[frame()["y"] == "c"] for n, v in frame().items()}
    assert simulated(taught(Nearest, count=1), only) == [2] * 9
    assert simulated(taught(Nearest, count=1000), only) == [0] * 9  # most have no rows
    assert simulated(taught(by="site", model=Nearest), only) == [2] * 9


def test_an_interruption_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulated(taught(Nearest, count=3, fails="stop fit"))


def test_shared_generators_are_each_teachers_own() -> None:
    """What a model draws from the process's generators depends on no other teacher's rows."""
    import random

    data = frame()
    words = [0] * 20 + [2**63] * 20  # two teachers
    state = random.getstate()
    before = ensemble(taught(shared, count=2), data, words)
    after = ensemble(taught(shared, count=2), without(data, 0), words[1:])
    assert before[0] != after[0]
    assert before[1] == after[1]
    assert random.getstate() == state


class Torch:
    """The part of torch that is asked: a generator whose first state everyone knows."""

    def __init__(self) -> None:
        self.random, self.state = self, 0

    def manual_seed(self, seed: int) -> None:
        self.state = seed

    @contextlib.contextmanager
    def fork_rng(self) -> Iterator[None]:
        state = self.state
        yield
        self.state = state

    def rand(self) -> int:
        self.state = hash((self.state, "next"))
        return self.state


def test_torchs_generator_is_each_teachers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame()
    words = [0] * 20 + [2**63] * 20  # two teachers
    result = []
    for rows_of, mine in ((data, words), (without(data, 0), words[1:])):
        torch = Torch()
        monkeypatch.setitem(sys.modules, "torch", torch)
        result.append(ensemble(taught(torched, count=2), rows_of, mine))
        assert torch.state == 0
    assert result[0][0] != result[1][0]
    assert result[0][1] == result[1][1]


def test_threads_take_turns_with_shared_generators() -> None:
    joblib = pytest.importorskip("joblib")
    teachers, data = taught(dawdling, count=6), frame()
    words = [int(w) for w in np.random.default_rng(1).integers(0, 2**64, 40, dtype=np.uint64)]
    alone = ensemble(teachers, data, words)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert ensemble(teachers, data, words) == alone


@pytest.mark.slow
def test_forked_workers_close_their_outputs(capfd: pytest.CaptureFixture[str]) -> None:
    joblib = pytest.importorskip("joblib")
    words = [int(w) for w in np.random.default_rng(1).integers(0, 2**64, 40, dtype=np.uint64)]
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        ensemble(taught(printing), frame(), words)
    assert SECRET not in "".join(capfd.readouterr())


def test_a_model_that_needs_positive_features() -> None:
    bayes = pytest.importorskip("sklearn.naive_bayes")
    table = dp.dataset("people", columns={"x": (0, 1), "site": list("ABCDE"), "y": ["a", "b"]})
    teachers = dp.pate.teachers(table, ["x", "site"], "y", bayes.MultinomialNB, count=2)
    pool = teachers.points("pool", 9)
    labels = teachers.votes(pool).release(dp.pate.GNMax(sigma=1.0))
    student = dp.pate.student(pool, labels, bayes.MultinomialNB)
    data = {**POOL, "site": ["A"] * 9}
    result = dp.Pipeline(labels=labels, student=student).with_delta(1e-6)
    assert len(result.simulate(seed=5, people=frame(), pool=data)["labels"]) == 9


def test_equal_points_are_bound_once() -> None:
    teachers = taught(Nearest)
    labels = teachers.votes(teachers.points("pool", 9)).release(dp.pate.GNMax(sigma=1.0))
    student = dp.pate.student(teachers.points("pool", 9), labels, Nearest)
    both = dp.Pipeline(labels=labels, student=student).with_delta(1e-6)
    result = both.simulate(seed=5, people=frame(), pool=POOL)
    assert result["student"].answers == 9
    other = dp.pate.teachers(people(), ["x"], "y", Nearest, count=4).points("pool", 9)
    student = dp.pate.student(other, labels, Nearest)
    with pytest.raises(DeclarationError, match="'pool'"):
        dp.Pipeline(student=student).with_delta(1e-6).simulate(seed=5, people=frame(), pool=POOL)


def test_what_is_no_model() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    multi = pytest.importorskip("sklearn.multiclass")
    made = pytest.importorskip("sklearn.pipeline")
    logistic = linear.LogisticRegression(C=2.0)
    assert dict(taught(logistic).operation.settings) == {"C": 2.0}
    for wrong in (
        made.make_pipeline(logistic),
        multi.OneVsRestClassifier(logistic),
        linear.LogisticRegression(random_state=np.random.RandomState(0)),
    ):
        with pytest.raises(DeclarationError, match=r"\(x, y, seed\)"):
            taught(wrong)
    with pytest.raises(DeclarationError):
        taught(Nearest())
    with pytest.raises(DeclarationError):
        taught(Stream)
    for text in ("nowhere:Model", "teacher_models:Nobody", "teacher_models", ""):
        with pytest.raises(DeclarationError, match="module:name"):
            taught(text)
    with pytest.raises(RunError):
        simulated(taught(Nearest, at=1000, fails="fit"))
    with pytest.raises(RunError):
        simulated(taught(Nearest, at=1000, fails="exit fit"))
    with pytest.raises(RunError):
        simulated(taught(Nearest, at=1000, fails="shape"))


def pipeline(x: Any, y: Any, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(random_state=seed % 1000)).fit(x, y)


def test_a_function_may_return_an_estimator() -> None:
    pytest.importorskip("sklearn")
    assert simulated(taught(pipeline, count=1)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_nothing_private_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        simulated(taught("teacher_models:loud"))
        simulated(taught(linear.LogisticRegression, max_iter=1))  # ConvergenceWarning
        simulated(taught(linear.SGDClassifier, max_iter=1, verbose=2))  # prints
    assert not caught
    assert capfd.readouterr() == ("", "")
    print("heard")
    assert capfd.readouterr().out == "heard\n"


def test_silence_ends_with_the_last_thread(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = threading.Event(), threading.Event()

    def inside() -> None:
        with quiet(os.getpid()):
            first.set()
            second.wait(10)

    before = (sys.stdout, sys.stderr, list(warnings.filters))
    thread = threading.Thread(target=inside)
    with quiet(os.getpid()):
        thread.start()
        first.wait(10)
    print("dropped")
    second.set()
    thread.join()
    print("heard")
    assert capfd.readouterr().out == "heard\n"
    assert (sys.stdout, sys.stderr, list(warnings.filters)) == before


def test_a_bar_counts_teachers(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    teachers = plan(taught("teacher_models:loud"))
    result = teachers.simulate(seed=5, people=frame(), pool=POOL, progress=True)
    out, error = capfd.readouterr()
    assert result["labels"].tolist() == simulated(taught("teacher_models:loud"))
    assert out == ""
    assert SECRET not in error
    assert "teachers" in error


def test_without_rich_progress_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(DeclarationError):
        plan(taught()).simulate(seed=5, people=frame(), pool=POOL, progress=True)


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("multiprocessing", marks=pytest.mark.slow)]
)
def test_workers_change_nothing(backend: str) -> None:
    joblib = pytest.importorskip("joblib")
    teachers, data = taught(count=8), frame()
    words = [int(w) for w in np.random.default_rng(1).integers(0, 2**64, 40, dtype=np.uint64)]
    alone, labels = ensemble(teachers, data, words), simulated(teachers)
    with joblib.parallel_config(backend=backend, n_jobs=3):
        assert ensemble(teachers, data, words) == alone
        assert simulated(teachers) == labels


def test_processes_change_nothing_and_tell_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    joblib = pytest.importorskip("joblib")
    loud = taught("teacher_models:loud", count=6)
    here = {f"here {i}": i for i in range(3)}  # a function of this place, which pickle cannot write

    def local(x: Any, y: Any, seed: int) -> Any:
        return lambda at: np.full(len(at), (len(y) + len(here)) % 3)

    alone = simulated(loud), simulated(taught(local, count=5))
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert (simulated(loud), simulated(taught(local, count=5))) == alone
        with pytest.raises(RunError) as caught:  # a worker that is killed
            simulated(taught("teacher_models:loud", count=3, dies=True))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert SECRET not in "".join(capfd.readouterr())


def test_dask_changes_nothing() -> None:
    joblib = pytest.importorskip("joblib")
    distributed = pytest.importorskip("dask.distributed")
    alone = simulated(taught(count=6))
    client = distributed.Client(processes=False, n_workers=1, dashboard_address=None)
    with client, joblib.parallel_config(backend="dask"):
        assert simulated(taught(count=6)) == alone


def _not_a_number(x: Any, y: Any, seed: int) -> Any:
    return lambda points: np.full(len(points), np.nan)


def _one_class_too_many(x: Any, y: Any, seed: int) -> Any:
    return lambda points: np.full(len(points), 3)


@pytest.mark.parametrize("model", [_not_a_number, _one_class_too_many])
def test_votes_for_no_class_are_refused_on_made_up_rows(model: Any) -> None:
    """In a run they would count for the first class, in silence."""
    with pytest.raises(RunError, match=r"integers from 0 to 2, .* it predicted (nan|3)"):
        simulated(taught(model))
