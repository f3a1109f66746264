"""Rows on a Dask cluster, and in batches, give what rows in memory give, to the last bit."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import adaptive_dp as dp
from adaptive_dp.data import Files, SchemaError, csv_files, open_rows, read_rows, sampling
from adaptive_dp.data.engine import Checkpoint, Task, reading, resuming
from adaptive_dp.data.rows import BLOCK
from adaptive_dp.demo import DATA
from adaptive_dp.noise import SeededStream

COLUMNS = {"x": "number", "c": "text"}


@pytest.fixture(scope="module")
def cluster():
    """Start two workers, and a client that is the default."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def mortals():
    """Start two workers that may die; others come in their place."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def table(size, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(scale=3, size=size)
    x[generator.random(size) < 0.1] = np.nan
    who = [None if i == 0 else f"p{i}" for i in generator.integers(0, max(1, size // 3), size)]
    return pa.table(
        {
            "x": pa.array(x, from_pandas=True),
            "c": generator.choice(["a", "b", "é"], size),
            "id": pa.array(who, pa.string()),
        }
    )


def everything(rows):
    """Return what every operation gives."""
    part = lambda c: np.nan_to_num(np.floor(c["x"]), nan=-1.0).astype(np.int64)  # noqa: E731
    here = {
        "all": rows,
        "where": rows.where(lambda c: c["x"] > 0),
        "none": rows.where(lambda c: c["x"] > 1e9),
        "bound": rows.where(lambda c: c["c"] != "b").bound(2),
        "gather": rows.gather(part),
        "sample": rows.bound(3).sample(0.4, SeededStream(3)).where(lambda c: c["c"] == "a"),
    }
    result = {}
    for name, each in here.items():
        total = each.total(lambda c: np.array([len(c["x"]), (c["x"] > 1).sum()], dtype=np.int64))
        result[name] = [
            each.units.tolist(),
            each.size(),
            total.tolist(),
            repr(np.asarray(each.values(lambda c: c["x"])).tolist()),
            each.integer_rows(lambda c: np.stack([c["c"] == "a", c["c"] == "b"], axis=1)).tolist(),
            [each.strings(lambda c: c["c"])[0], each.strings(lambda c: c["c"])[1].tolist()],
        ]
    return result


@pytest.mark.parametrize(("size", "unit"), [(0, "id"), (57, "id"), (57, None)])
def test_every_operation_gives_what_it_gives_in_memory(tmp_path, cluster, unit, size):
    import dask.array as da
    import dask.dataframe as dd

    data = table(size)
    expected = everything(read_rows(data, COLUMNS, unit))
    pq.write_table(data.slice(0, size // 2), tmp_path / "1.parquet", row_group_size=9)
    frame = data.slice(size // 2).to_pandas()
    frame.to_csv(tmp_path / "2.csv", index=False)
    files = Files([tmp_path / "1.parquet", tmp_path / "2.csv"], cluster)
    assert everything(files.open_rows(COLUMNS, unit)) == expected
    distributed_frame = dd.from_pandas(data.to_pandas(), npartitions=4, sort=False)
    assert everything(open_rows(distributed_frame, COLUMNS, unit)) == expected
    columns = {name: np.array(data[name].to_pylist(), dtype=object) for name in ("c", "id")}
    columns["x"] = np.array([np.nan if x is None else x for x in data["x"].to_pylist()])
    split = {name: da.from_array(column, chunks=20) for name, column in columns.items()}
    records = np.rec.fromarrays(columns.values(), names=list(columns)).view(np.ndarray)
    shown = [
        [each.units.tolist(), repr(each.values(lambda c: c["x"]).tolist())]
        for data in (split, da.from_array(records, chunks=23))
        for each in [open_rows(data, COLUMNS, unit).where(lambda c: c["c"] != "b").bound(2)]
    ]
    assert shown == [[expected["bound"][0], expected["bound"][3]]] * 2


def test_integers_identify_on_a_cluster_as_in_memory(cluster):
    import dask.dataframe as dd

    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0, 8.0, 16.0], "id": [7, 3, 7, 2**60, 2**60 + 1]})
    rows = open_rows(dd.from_pandas(frame, npartitions=3, sort=False), {"x": "number"}, "id")
    table = read_rows(frame, {"x": "number"}, "id")
    assert rows.units.tolist() == table.units.tolist() == [0, 1, 0, 2, 3]


@pytest.mark.parametrize("needed", [{"x"}, set()])
@pytest.mark.parametrize("kind", ["frame", "arrays", "file"])
def test_workers_get_the_columns_that_are_needed(tmp_path, cluster, kind, needed):
    import dask.array as da
    import dask.dataframe as dd

    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": ["a", "b", "a"], "id": [7, 3, 7]})
    columns = {"x": "number", "y": "text"}
    pq.write_table(pa.table(frame), tmp_path / "t.parquet", row_group_size=2)
    data = {
        "frame": dd.from_pandas(frame, npartitions=2, sort=False),
        "arrays": {k: da.from_array(frame[k].to_numpy(), chunks=2) for k in frame},
        "file": Files(tmp_path / "t.parquet", cluster),
    }[kind]
    rows = open_rows(data, columns, "id", needed)
    assert set(rows.engine.columns) == needed
    assert rows.units.tolist() == [0, 1, 0]
    if kind != "file":
        parts = cluster.gather(list(rows.engine.sources))
        assert {name for part in parts for name in part} == needed | {"id"}
    for wrong in ({"x": "number", "y": "number"}, {"x": "number", "z": "text"}):
        with pytest.raises(SchemaError):
            open_rows(data, wrong, "id", needed)


def test_a_process_that_has_no_client_of_its_own_can_name_a_scheduler(tmp_path, cluster):
    """The other tests' client is the default of their process, so this one needs another."""
    pq.write_table(table(30), tmp_path / "t.parquet", row_group_size=10)
    address = "dask://" + cluster.scheduler.address.removeprefix("tcp://")
    code = "from sys import argv; from adaptive_dp import Files; files = Files(*argv[1:]);"
    code += "print(files.open_rows({'x': 'number'}, 'id').size())"
    command = [sys.executable, "-c", code, str(tmp_path / "t.parquet"), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    expected = read_rows(table(30), {"x": "number"}, "id").size()
    assert done.stdout == f"{expected}\n", done.stderr


def test_what_does_not_fit_is_refused(tmp_path, cluster, monkeypatch):
    import dask.array as da
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame({"x": ["82734615"]}), npartitions=1)
    for readings, match in (({"x": "number"}, "column 'x'"), ({"y": "number"}, "'y'")):
        with pytest.raises(SchemaError, match=match) as caught:
            open_rows(frame, readings, None)
        assert "82734615" not in str(caught.value)
    array = da.zeros((6, 2), chunks=3)
    for given, match in (
        (array, "'age'"),
        ({"x": array, "c": array[:, 0]}, "one-dimensional"),
        ({"x": array[:, 0], "c": array[:5, 1]}, "length"),
        ({"x": array[:, 0]}, "'c'"),
        ({"x": array[:, 0], "c": array[:, 1]}, "column 'c'"),
    ):
        with pytest.raises(SchemaError, match=match):
            open_rows(given, COLUMNS, None)
    pq.write_table(table(3), tmp_path / "t.parquet")
    monkeypatch.setattr("adaptive_dp.data.dask_engine.WAIT", 0.2)
    files = Files(tmp_path / "t.parquet", "dask://127.0.0.1:1")
    with pytest.raises(SchemaError):
        files.open_rows(COLUMNS, None)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_parts_without_rows_are_learned_from_too(tmp_path, cluster, ending):
    """And counted twice, so that they are cached."""
    columns = {"x": (0.0, 1.0), "c": ["a", "b"]}
    lengths = [0, 1, 0, 12]
    for i, length in enumerate(lengths):
        part = pd.DataFrame({"x": np.linspace(0, 1, length), "c": (["a", "b"] * length)[:length]})
        if ending == "csv":
            part.to_csv(tmp_path / f"{i}.csv", index=False)
        else:
            group = pa.table({"x": part["x"].to_numpy(), "c": pa.array(part["c"], pa.string())})
            with pq.ParquetWriter(tmp_path / f"{i}.parquet", group.schema) as file:
                file.write_table(group)  # a group of no rows, where there are none
    people = dp.dataset("people", columns=columns)
    gradients = people.examples(["x"], "c").gradients(dp.Logistic(), at=dp.public([0.1, 0.2]))
    plan = dp.Pipeline(
        slope=gradients.sum(clip=0.5).release(dp.Gaussian(2.0)),
        count=people.count().release(dp.Gaussian(2.0)),
        again=people.count().release(dp.Gaussian(3.0)),
    ).with_delta(1e-6)
    files = [tmp_path / f"{i}.{ending}" for i in range(len(lengths))]
    here, there = (
        plan.simulate(people=Files(files, engine), seed=1).released for engine in (None, cluster)
    )
    assert repr(here) == repr(there)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, BaseException])
@pytest.mark.parametrize("cached", [False, True])
def test_an_error_on_a_worker_tells_nothing(tmp_path, cluster, kind, cached):
    """Neither to whoever asked nor to the log of the worker, which goes on."""
    pq.write_table(table(30), tmp_path / "t.parquet", row_group_size=10)
    rows = Files(tmp_path / "t.parquet", cluster).open_rows(COLUMNS, None)
    if cached:
        assert len(rows.units) == 30
    workers = sorted(cluster.nthreads())

    def leak(columns):
        raise kind(f"canary {columns['x'][0]}")

    with pytest.raises(SchemaError) as caught:
        rows.total(leak)
    assert "canary" not in str(caught.value)
    logs = str(cluster.get_worker_logs()) + str(cluster.get_scheduler_logs())
    assert "canary" not in logs
    assert sorted(cluster.nthreads()) == workers


def test_totals_that_cannot_be_added_tell_nothing(tmp_path, cluster):
    """A worker writes to its log what it was given to add, and why that failed."""
    pq.write_table(pa.table({"x": np.arange(10.0)}), tmp_path / "t.parquet", row_group_size=4)
    rows = Files(tmp_path / "t.parquet", cluster).open_rows({"x": "number"}, None)
    with pytest.raises(SchemaError):
        rows.total(lambda c: np.full(max(1, len(c["x"])), 987654321, dtype=np.int64))
    logs = str(cluster.get_worker_logs()) + str(cluster.get_scheduler_logs())
    assert "987654321" not in logs
    assert "shape" not in logs


def test_a_part_that_could_not_be_read_is_read_again(tmp_path, cluster):
    """By whatever comes next, a look at each row too."""
    path, away = tmp_path / "t.parquet", tmp_path / "away"
    pq.write_table(pa.table({"x": np.arange(10.0)}), path, row_group_size=4)
    rows = Files(path, cluster).open_rows({"x": "number"}, None)
    assert len(rows.units) == 10
    path.rename(away)
    for _ in range(2):
        with pytest.raises(SchemaError):
            rows.values(lambda c: c["x"])
    away.rename(path)
    assert rows.values(lambda c: c["x"]).tolist() == list(range(10))


def test_a_pass_goes_on_where_it_was_interrupted(tmp_path, cluster):
    """Parts that are done are not done again; those that failed are read again."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(80.0)}), path, row_group_size=10)
    rows = Files(path, cluster).open_rows({"x": "number"}, None)

    def block(columns):
        x = columns["x"]
        if len(x):
            with open(tmp_path / "log", "a") as log:
                log.write(f"{int(x[0])}\n")
            if x[0] in (20, 50) and not (tmp_path / "mended").exists():
                raise OSError
        return np.array([x.sum()], dtype=np.int64)

    attempt = Checkpoint()
    for keep in range(2):
        with resuming(attempt), pytest.raises(SchemaError):
            rows.total(block)
        (tmp_path / "mended").touch()
        with resuming(attempt):
            assert rows.total(block).tolist() == [80 * 79 // 2]
        done = (tmp_path / "log").read_text().split()
        assert sorted(done) == sorted([*map(str, range(0, 80, 10)), "20", "50"])
        (tmp_path / "mended").unlink()
        (tmp_path / "log").unlink()
        if not keep:
            rows.total(lambda c: np.zeros(1, dtype=np.int64))


def made(size, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (3, size))
    y = np.clip(0.5 * x[0] - 0.2 * x[1] + generator.normal(0, 0.1, size), -1, 1)
    return {
        "a": x[0],
        "b": x[1],
        "k": np.array(["no", "yes"], dtype=object)[(x[0] + x[2] > 0).astype(int)],
        "y": y,
        "id": generator.integers(0, size // 2, size),
    }


def plan_of(name):
    bounds = {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "y": (-1.0, 1.0), "k": ["no", "yes"]}
    people = dp.dataset("people", columns=bounds, unit="id", rows_per_unit=2)
    count = people.count().release(dp.Laplace(scale=2.0))
    teachers = dp.pate.teachers(people, ["a", "b"], "k", "sklearn.naive_bayes:GaussianNB", count=5)
    votes = teachers.votes(dp.public([[0.1, 0.2], [0.9, -0.4], [-0.8, 0.3]]), size=3)
    parts = {
        k: p.sample(0.5).count().release(dp.Laplace(scale=3.0))
        for k, p in people.partition("k", whole_units=True)
    }
    single = dp.dataset("people", columns=bounds)
    sgd = dp.NoisyGradientDescent(features=["a", "b"], target="k", loss=dp.Logistic(), steps=5)
    batches = dp.NoisySGD(
        features=["a", "b"], target="k", loss=dp.Logistic(), sampling_rate=0.1, steps=5
    )
    budget = {"epsilon": 1.0, "delta": 1e-6}
    outputs = {
        "queries": lambda: {
            "count": count,
            "parts": parts,
            "median": people["y"].quantile(0.5).release(dp.QuantileExponential(1.0)),
            "gram": people.vectors(["a", "b"]).gram().release(dp.Gaussian(sigma=5.0)),
            "histogram": people["k"].histogram().release(dp.Laplace(scale=2.0)),
        },
        "adassp": lambda: {"t": single.solve(dp.AdaSSP(features=["a", "b"], target="y"), **budget)},
        "descent": lambda: {"t": single.solve(sgd, **budget)},
        "sgd": lambda: {"t": people.solve(batches, **budget)},
        "pate": lambda: {"v": votes.release(dp.pate.GNMax(2.0))},
    }
    return dp.Pipeline(**outputs[name]())


@pytest.mark.parametrize("name", ["queries", "adassp", "descent", "sgd", "pate"])
def test_seeded_results_are_the_same_everywhere(tmp_path, cluster, name):
    plan = plan_of(name).with_delta(1e-6)
    data = made(BLOCK + 900)
    expected = repr(dict(plan.simulate(seed=4, people=data)))
    frame = pa.table({k: v.tolist() for k, v in data.items()})
    for i, start in enumerate(range(0, len(frame), 2500)):
        pq.write_table(frame.slice(start, 2500), tmp_path / f"{i}.parquet", row_group_size=1300)
    pattern = str(tmp_path / "*.parquet")
    for given in (pattern, *(dp.Files(pattern, by) for by in ("threads", "processes", cluster))):
        assert repr(dict(plan.simulate(seed=4, people=given))) == expected
    address = "dask://" + cluster.scheduler.address.removeprefix("tcp://")
    clients = lambda dask_scheduler: len(dask_scheduler.clients)  # noqa: E731
    before = cluster.run_on_scheduler(clients)
    assert repr(dict(plan.simulate(seed=4, people=dp.Files(pattern, address)))) == expected
    end = time.monotonic() + 60
    while cluster.run_on_scheduler(clients) != before:  # no client of that address remains
        assert time.monotonic() < end


def learners(people, unit):
    """Return a plan of what learns from examples by sums, and of what reads each of them."""
    columns = {"features": ["a", "b"], "target": "k"}
    budget = {"epsilon": 1.0, "delta": 1e-6}
    rows = people.examples(["a", "b"], "k")
    at = dp.public([0.1, 0.2, 0.3])
    gradients = rows.gradients(dp.Logistic(), at)
    again = rows.sample(0.5).sample(0.5).gradients(dp.Logistic(), at)
    network = dp.Network(dp.Logistic(), hidden=3)
    clipping = dp.Clipping(quantile=0.7)
    singly = {
        "adaptive": people.solve(
            dp.NoisySGD(**columns, sampling_rate=0.2, steps=3, adaptive=clipping)
        ),
        "network": people.solve(dp.NoisySGD(**columns, loss=network, sampling_rate=0.2, steps=2)),
        "phased": people.solve(dp.PhasedERM(**columns, phases=2, rounds=1), **budget),
    }
    return dp.Pipeline(
        ftrl=people.solve(dp.DPFTRL(**columns, steps=3), **budget),
        additive=people.solve(dp.AdditiveModel(**columns, steps=3, pairs=1), **budget),
        margins=people.solve(dp.MarginBoosting(**columns, rounds=3), **budget),
        objective=people.solve(dp.ObjectivePerturbation(**columns, loss=dp.Logistic()), **budget),
        squares=gradients.squares(clip=0.4).release(dp.Laplace(scale=2.0)),
        short=gradients.short(dp.public(0.5)).release(dp.Laplace(scale=2.0)),
        twice=again.sum(clip=0.5).release(dp.Gaussian(dp.Free("sigma"))),
        **({} if unit else singly),
    )


@pytest.mark.parametrize("unit", [pytest.param(None, marks=pytest.mark.slow), "id"])
def test_learners_are_the_same_everywhere(tmp_path, cluster, monkeypatch, unit):
    """Trials drawn here and, where a row is a unit, by the parts; some rows are left out."""
    import dask.dataframe as dd

    monkeypatch.setattr(sampling, "LOCAL_UNITS", 1000)
    monkeypatch.setattr(sampling, "CHILD_UNITS", 512)
    bounds = {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "k": ["no", "yes"]}
    more = {"unit": "id", "rows_per_unit": 2} if unit else {}
    people = dp.dataset("people", columns=bounds, **more)
    plan = learners(people, unit).with_delta(1e-6).fix(sigma=1.0)
    data = made(2700)
    data["k"][5::11] = "perhaps"
    expected = repr(dict(plan.simulate(seed=6, people=data)))
    frame = pd.DataFrame(data)
    for i, (start, stop) in enumerate([(0, 100), (100, 1900), (1900, 2700)]):
        rest = pa.Table.from_pandas(frame[start:stop])
        pq.write_table(rest, tmp_path / f"{i}.parquet", row_group_size=901)
    frame.to_csv(tmp_path / "all.csv", index=False)
    pattern = str(tmp_path / "*.parquet")
    parted = dd.from_pandas(frame, npartitions=3, sort=False)
    others = [] if unit else [dp.Files(tmp_path / "all.csv")]
    everywhere = [dp.Files(pattern, by) for by in ("threads", "processes", cluster)]
    for given in (*everywhere, parted, *others):
        assert repr(dict(plan.simulate(seed=6, people=given))) == expected


def test_the_demo_is_the_same_everywhere(tmp_path, cluster, monkeypatch):
    from adaptive_dp.demo.plan import plan

    monkeypatch.setattr(csv_files, "PART_BYTES", 2**18)
    expected = repr(dict(plan.simulate(seed=1, people=DATA)))
    for by in ("threads", "processes", cluster):
        assert repr(dict(plan.simulate(seed=1, people=dp.Files(DATA, by)))) == expected


def test_a_lost_worker_counts_once(tmp_path, mortals):
    """One of two dies in the middle of a sum; its parts are read again by the other."""
    size, marker = 900, tmp_path / "died"
    pq.write_table(pa.table({"x": np.arange(size)}), tmp_path / "t.parquet", row_group_size=100)

    def block(columns):
        if len(columns["x"]) and columns["x"][0] == 500:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return np.array([columns["x"].sum(), len(columns["x"])], dtype=np.int64)

    rows = Files(tmp_path / "t.parquet", mortals).open_rows({"x": "number"}, None)
    everyone = lambda c: np.array([c["x"].sum(), len(c["x"])], dtype=np.int64)  # noqa: E731
    before = [rows.total(everyone).tolist() for _ in range(2)][1]  # all parts are kept now
    assert rows.total(block).tolist() == before == [size * (size - 1) // 2, size]
    assert marker.exists()
    assert rows.values(lambda c: c["x"]).tolist() == list(range(size))


def dying(tmp_path):
    """Return a loss that ends one worker's process in the middle of some round."""
    marker, rounds = tmp_path / "died", tmp_path / "rounds"
    here = os.getpid()

    class Dying(dp.Logistic):
        def slope(self, z, y):
            if os.getpid() != here and len(y):
                with rounds.open("a") as file:
                    file.write(".")
                if rounds.stat().st_size > 10:
                    try:
                        marker.touch(exist_ok=False)
                    except FileExistsError:
                        pass
                    else:
                        os._exit(1)
            return super().slope(z, y)

    return Dying, marker


def test_a_worker_that_is_lost_during_descent_changes_no_bit(tmp_path, mortals, monkeypatch):
    """Its parts are read and scaled again by the other, and pick the same sample."""
    monkeypatch.setattr(sampling, "LOCAL_UNITS", 500)
    monkeypatch.setattr(sampling, "CHILD_UNITS", 200)
    data = made(3000)
    frame = pa.table({k: v.tolist() for k, v in data.items()})
    pq.write_table(frame, tmp_path / "t.parquet", row_group_size=750)
    bounds = {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "k": ["no", "yes"]}
    people = dp.dataset("people", columns=bounds)
    sgd = dp.NoisySGD(["a", "b"], "k", sampling_rate=0.3, steps=6)
    plan = dp.Pipeline(t=people.solve(sgd)).with_delta(1e-6).fix(sigma=1.0)
    expected = repr(dict(plan.simulate(seed=2, people=data)))
    loss, marker = dying(tmp_path)
    monkeypatch.setattr("adaptive_dp.erm.losses.read_any", lambda _: loss())
    released = plan.simulate(seed=2, people=dp.Files(tmp_path / "t.parquet", mortals))
    assert marker.exists()
    assert repr(dict(released)) == expected


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """Return what holds the first that calls it with a name, until the test is over."""
    monkeypatch.setattr("adaptive_dp.data.scheduler.PATIENCE", 0.3)
    over = tmp_path / "over"

    def held(name):
        try:
            (tmp_path / name).touch(exist_ok=False)
        except FileExistsError:
            return
        end = time.monotonic() + 120
        while not over.exists() and time.monotonic() < end:
            time.sleep(0.05)

    yield held
    over.touch()


def test_parts_for_different_columns_take_no_more_memory_than_one_copy(tmp_path, cluster):
    path, names = tmp_path / "t.parquet", [f"x{i}" for i in range(6)]
    data = {name: np.arange(30.0) * i for i, name in enumerate(names)}
    pq.write_table(pa.table(data), path, row_group_size=10)
    rows = Files(path, cluster).open_rows(dict.fromkeys(names, "number"), None)
    root = rows.engine

    def total(pair):
        with reading(frozenset(pair)):
            totals = rows.total(lambda c: np.array([int(c[name].sum()) for name in pair]))
        assert totals.tolist() == [int(data[name].sum()) for name in pair]

    for _ in range(2):
        for pair in itertools.combinations(names, 2):
            for _ in range(3):
                total(pair)
            kept = [engine.columns for engine in root._narrowed.values() if engine._pinned]
            assert set(pair) in [set(columns) for columns in kept]
            assert sum(map(len, kept)) <= len(names)
    # parts that were kept with more columns serve
    total(["x5"])
    assert not any(set(engine.columns) == {"x5"} for engine in root._narrowed.values())
    for _ in range(2):
        rows.total(lambda c: np.array([len(c["x0"])]))
    assert root.only({"x1": "number"}) is root


@pytest.mark.parametrize("cached", [False, True])
def test_a_straggler_delays_no_one(tmp_path, cluster, stuck, cached):
    """Results are there while one of two workers is stuck, also in the passes that follow."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(80)}), path, row_group_size=10)

    def block(columns):
        if 30 in columns["x"]:
            stuck("part")
        return np.array([columns["x"].sum(), len(columns["x"])], dtype=np.int64)

    everyone = lambda c: np.array([len(c["x"])], dtype=np.int64)  # noqa: E731
    rows = Files(path, cluster).open_rows({"x": "number"}, None)
    if cached:
        assert [rows.total(everyone).tolist() for _ in range(2)] == [[80], [80]]
    for _ in range(3):
        assert rows.total(block).tolist() == [80 * 79 // 2, 80]
    assert rows.values(lambda c: c["x"]).tolist() == list(range(80))
    assert (tmp_path / "part").exists()
    assert not (tmp_path / "over").exists()


@pytest.mark.parametrize("rows_of_a_part", [40, 5])
def test_a_late_addition_delays_no_one(tmp_path, cluster, stuck, monkeypatch, rows_of_a_part):
    """Neither one in the middle of the tree nor the last."""
    monkeypatch.setattr("adaptive_dp.data.dask_engine.BRANCHES", 2)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(80)}), path, row_group_size=rows_of_a_part)
    engine = Files(path, cluster).open_rows({"x": "number"}, None).engine

    def work(chosen):
        return sum(int(rows.columns["x"].sum()) for rows in chosen)

    def add(a, b):
        stuck("addition")
        return a + b

    tasks = [Task(work)] * engine.count
    assert [engine.fold(tasks, add, {}) for _ in range(2)] == [80 * 79 // 2] * 2
    assert (tmp_path / "addition").exists()
    assert not (tmp_path / "over").exists()


def test_who_is_left_may_be_lost_too(tmp_path, mortals, stuck):
    """Of two workers one is stuck, the other dies; a third, in its place, does everything."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(80)}), path, row_group_size=10)

    def block(columns):
        if 30 in columns["x"]:
            stuck("part")
        if 50 in columns["x"] and (tmp_path / "part").exists():
            with suppress(FileExistsError):
                (tmp_path / "died").touch(exist_ok=False)
                os._exit(1)
        return np.array([columns["x"].sum(), len(columns["x"])], dtype=np.int64)

    rows = Files(path, mortals).open_rows({"x": "number"}, None)
    for _ in range(3):
        assert rows.total(block).tolist() == [80 * 79 // 2, 80]
    assert (tmp_path / "died").exists()
    assert not (tmp_path / "over").exists()


PLAN = """
import adaptive_dp as dp
people = dp.dataset("people", columns={"x": (-3, 3), "c": ["a", "b"]}, unit="id", rows_per_unit=2)
plan = dp.Pipeline(
    s=people["x"].sum().release(dp.Laplace(scale=1.0)),
    h=people["c"].histogram().release(dp.Laplace(scale=1.0)),
)
"""


def test_the_command_line_reads_patterns_here_and_on_a_cluster(tmp_path, cluster, capsys):
    import json

    from adaptive_dp.cli.main import main

    data = table(50)
    for i in range(3):
        pq.write_table(data.slice(20 * i, 20), tmp_path / f"part-{i}.parquet")
    pq.write_table(data, tmp_path / "whole.parquet")
    (tmp_path / "plan.py").write_text(PLAN)
    engine = "dask://" + cluster.scheduler.address.removeprefix("tcp://")
    pattern = f"people={tmp_path}/part-*.parquet"
    common = ["run", str(tmp_path / "plan.py"), "--simulate", "3", "--json", "--data"]
    outputs = []
    by = [[pattern, "--engine", each] for each in ("processes", "threads", engine)]
    for more in ([f"people={tmp_path}/whole.parquet"], [pattern], *by):
        assert main([*common, *more]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["values"])
    assert outputs == outputs[:1] * 5
    assert main([*common, pattern, "--engine", "ray://1.2.3.4"]) == 2
    assert "dask://HOST:PORT" in capsys.readouterr().err
