"""Parts that are read by processes of this machine: how work is shared, and what a death loses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import types
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

import adaptive_dp as dp
from adaptive_dp.data import Files, SchemaError, open_rows, sources, workers
from adaptive_dp.data.workers import core_count, threads
from adaptive_dp.graph.errors import RunError

COLUMNS = {"x": "number"}
SUM = 40 * 39 // 2
HERE = os.getpid()


@pytest.fixture
def files(tmp_path):
    for i in range(2):
        x = np.arange(20.0 * i, 20.0 * i + 20)
        pq.write_table(pa.table({"x": x}), tmp_path / f"{i}.parquet", row_group_size=5)
    return Files(tmp_path / "*.parquet", "processes")


def as_integers(values):
    return np.array([int(values.sum())], dtype=np.int64)


def added(columns):
    return as_integers(columns["x"])


def test_parts_are_read_by_other_processes(files):
    rows = files.open_rows(COLUMNS, None)
    who = rows.values(lambda c: np.full(len(c["x"]), os.getpid()))
    assert HERE not in who
    assert rows.values(lambda c: np.full(len(c["x"]), float(os.getpid())))[0] in who  # kept
    assert rows.total(added).tolist() == [SUM]
    threads_of = lambda c: np.full(len(c["x"]), int(os.environ["OPENBLAS_NUM_THREADS"]))  # noqa: E731
    assert set(rows.values(threads_of)) == {1}


def test_a_process_that_dies_takes_nothing_with_it(files, tmp_path):
    marker = tmp_path / "died"

    def block(columns):
        if columns["x"].max(initial=0) == 24 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return as_integers(columns["x"])

    assert files.open_rows(COLUMNS, None).total(block).tolist() == [SUM]
    assert marker.exists()


def test_processes_that_died_in_between_are_replaced(files):
    rows = files.open_rows(COLUMNS, None)
    who = lambda c: np.full(len(c["x"]), float(os.getpid()))  # noqa: E731
    first = set(rows.values(who))
    for each in first:
        os.kill(int(each), signal.SIGKILL)
    time.sleep(0.5)
    assert not {*first, HERE} & set(rows.values(who))


def test_processes_that_die_one_after_the_other_are_given_up(files):
    def block(columns):
        if columns["x"].max(initial=0) == 24:
            os._exit(1)
        return as_integers(columns["x"])

    rows = files.open_rows(COLUMNS, None)
    with pytest.raises(SchemaError, match=r"died.*threads"):
        rows.total(block)
    assert rows.total(added).tolist() == [SUM]


def test_a_pool_that_another_pass_has_ended_is_no_death(files, tmp_path):
    started, go = tmp_path / "started", tmp_path / "go"

    def block(columns):
        started.touch()
        while not go.exists():
            time.sleep(0.01)
        return as_integers(columns["x"])

    rows, totals = files.open_rows(COLUMNS, None), []
    rows = evolve(rows, engine=evolve(rows.engine, workers=1))
    waiting = threading.Thread(target=lambda: totals.append(rows.total(block).tolist()))
    waiting.start()
    for _ in range(workers.TRIES):
        while not started.exists():
            time.sleep(0.01)
        started.unlink()
        workers._end_pool(1, workers._POOLS[HERE, 1])
    go.touch()
    waiting.join()
    assert totals == [[SUM]]


def test_what_cannot_be_sent_is_done_by_threads(files):
    lock, seen = threading.Lock(), set()

    def block(columns):
        with lock:
            seen.add(os.getpid())
        return as_integers(columns["x"])

    assert files.open_rows(COLUMNS, None).total(block).tolist() == [SUM]
    assert seen == {HERE}


def test_code_that_workers_cannot_import_is_run_here(files, monkeypatch):
    module = types.ModuleType("made_of_nothing")
    exec(
        "def block(columns):\n    return as_integers(columns['x'])",
        {"as_integers": as_integers},
        module.__dict__,
    )
    module.block.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert files.open_rows(COLUMNS, None).total(module.block).tolist() == [SUM]


def test_a_module_that_reads_when_it_is_imported_does_so_once(files, tmp_path, monkeypatch):
    """A process imports it for the code of the task, and would read, and release, once more."""
    (tmp_path / "reads.py").write_text(
        "import numpy as np\n"
        "from adaptive_dp.data import Files\n"
        "def block(columns):\n"
        "    return np.array([int(columns['x'].sum())])\n"
        f"rows = Files({str(tmp_path / '*.parquet')!r}, 'processes').open_rows({COLUMNS}, None)\n"
        "total = rows.total(block).tolist()\n"
        f"with open({str(tmp_path / 'read')!r}, 'a') as file:\n    file.write('once')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for count in [key[1] for key in workers._POOLS]:
        workers._end_pool(count, workers._POOLS.get((HERE, count)))  # none knows of the path
    assert __import__("reads").total == [SUM]
    assert (tmp_path / "read").read_text() == "once"
    sys.modules.pop("reads")


def test_no_data_are_opened_by_a_process_that_reads_for_another(files):
    paths = files.paths

    def block(columns):
        for data in ({"x": [1.0]}, Files(paths, "threads")):
            with pytest.raises(SchemaError):
                rows_of(data)
        return as_integers(columns["x"])

    assert files.open_rows(COLUMNS, None).total(block).tolist() == [SUM]


def rows_of(data):
    return (
        data.open_rows(COLUMNS, None) if isinstance(data, Files) else open_rows(data, COLUMNS, None)
    )


def test_without_a_working_directory_threads_read(files, tmp_path, monkeypatch):
    rows = files.open_rows(COLUMNS, None)
    rows.total(added)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert rows.total(added).tolist() == [SUM]


def test_cached_blocks_are_no_leak(files, recwarn):
    """A row group that is larger than the first is not: loky would warn, and start anew."""
    rows = files.open_rows(COLUMNS, None)
    rows.total(added)

    def block(columns):
        if not hasattr(np, "kept"):
            np.kept = np.ones(45_000_000)  # 360 MB
        return np.full(len(columns["x"]), float(os.getpid()))

    first = set(rows.values(block))
    time.sleep(1.1)
    assert set(rows.values(block)) <= first
    assert not recwarn.list
    workers._end_pool(core_count(), workers._POOLS.get((HERE, core_count())))


def test_relative_paths_follow_this_process(files, tmp_path, monkeypatch):
    files.open_rows(COLUMNS, None).total(added)
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"x": [7.0]}), other / "0.parquet")
    monkeypatch.chdir(other)
    assert Files(["0.parquet"], "processes").open_rows(COLUMNS, None).total(added).tolist() == [7]
    monkeypatch.chdir(tmp_path)
    rows = Files(["0.parquet", "1.parquet"], "processes").open_rows(COLUMNS, None)
    assert rows.total(added).tolist() == [SUM]


def test_ctrl_c_is_for_the_process_that_waits(files):
    def block(columns):
        blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # from the start
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        return np.full(len(columns["x"]), float(blocked and ignored))

    assert files.open_rows(COLUMNS, None).values(block).all()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_they_end_with_the_process_that_started_them(files, tmp_path):
    """Also one that has more to give than a pipe takes, or an error that it would print."""
    script = (
        "import os, pathlib, sys, time\n"
        "import numpy as np\n"
        "from adaptive_dp.data import Files\n"
        "def block(columns):\n"
        "    pathlib.Path(sys.argv[2]).touch()\n"
        "    while os.getppid() == parent:\n"
        "        time.sleep(0.01)\n"
        "    if columns['x'].min() == 0:\n"
        "        raise ValueError('canary')\n"
        "    return np.zeros(2**20)\n"
        "parent = os.getpid()\n"
        f"Files(sys.argv[1], 'processes').open_rows({COLUMNS}, None).values(block)\n"
    )
    command = [sys.executable, "-c", script, *files.paths, tmp_path / "started"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as parent:
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        parent.kill()
        output = parent.communicate(timeout=30)[1]  # until no process holds the pipe
    assert "canary" not in output


def test_an_interruption_waits_for_no_process(files, capfd):
    rows = files.open_rows(COLUMNS, None)
    rows.total(added)

    def sleeps(columns):
        time.sleep(100)
        return as_integers(columns["x"])

    here = threading.main_thread().ident
    timer = threading.Timer(1.0, signal.pthread_kill, [here, signal.SIGINT])
    # whoever started the tests may have it ignored, as shells do in the background
    before, start = signal.signal(signal.SIGINT, signal.default_int_handler), time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            rows.total(sleeps)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 60
    assert capfd.readouterr() == ("", "")
    assert rows.total(added).tolist() == [SUM]


class Held(Exception):
    """Cannot be sent."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class Odd(Exception):
    """Can be sent, but not be read."""

    def __init__(self, number, word):
        super().__init__(f"{number} {word}")


@pytest.mark.parametrize("kind", [ValueError, SystemExit, Held, Odd])
def test_an_error_there_is_what_it_would_be_here(files, capfd, kind):
    def leak(columns):
        words = f"{columns['x'].sum()}", "canary"
        raise kind(*words) if kind is Odd else kind(" ".join(words))

    for engine in ("threads", "processes"):
        with pytest.raises(kind, match=r"^10.0 canary$"):
            Files(files.paths, engine).open_rows(COLUMNS, None).total(leak)
    assert capfd.readouterr() == ("", "")
    assert files.open_rows(COLUMNS, None).total(added).tolist() == [SUM]


def test_a_damaged_file_is_refused_in_the_same_words(tmp_path, capfd):
    path, x = tmp_path / "t.parquet", np.random.default_rng(0).uniform(size=5000)
    pq.write_table(pa.table({"x": x}), path, compression="zstd")
    damaged = bytearray(path.read_bytes())
    damaged[4:2000] = b"\xff" * 1996
    path.write_bytes(damaged)
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan, messages = dp.Pipeline(n=people["x"].sum().release(dp.Laplace(scale=1.0))), []
    for engine in ("threads", "processes"):
        with pytest.raises(RunError) as caught:
            plan.simulate(seed=1, people=Files(path, engine))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert capfd.readouterr() == ("", "")


def test_files_that_change_are_refused(files, tmp_path):
    rows = files.open_rows(COLUMNS, None)
    pq.write_table(pa.table({"x": [1.0] * 20}), tmp_path / "1.parquet", row_group_size=5)
    with pytest.raises(SchemaError, match="changed"):
        rows.total(added)


def test_two_passes_at_once(files):
    rows = files.open_rows(COLUMNS, None)
    totals = []
    passes = [
        threading.Thread(target=lambda: totals.append(rows.total(added).tolist())) for _ in range(4)
    ]
    for each in passes:
        each.start()
    for each in passes:
        each.join()
    assert totals == [[SUM]] * 4


def test_who_reads_what(files, tmp_path, monkeypatch):
    def pool(paths):
        return Files(paths).open_rows(COLUMNS, None).engine.pool

    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    for paths in (files.paths, tmp_path / "a.csv"):
        assert pool(paths) is threads
    monkeypatch.setattr(sources, "PROCESSES_FROM", {".parquet": 100, ".csv": 3})
    for paths in (files.paths, tmp_path / "a.csv"):
        assert pool(paths) is workers.processes
        for attribute, value in (("core_count", lambda: 1), ("processes_available", lambda: False)):
            with monkeypatch.context() as patch:
                patch.setattr(sources, attribute, value)
                assert pool(paths) is threads


def test_a_fork_has_processes_of_its_own(files):
    rows = files.open_rows(COLUMNS, None)
    rows.total(added)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are threads: this is about them
        child = os.fork()
    if not child:
        os.write(writing, str(rows.total(added)[0]).encode())
        [pool] = [v for (pid, _), v in workers._POOLS.items() if pid == os.getpid()]
        pool.shutdown(kill_workers=True)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == str(SUM)
    assert os.waitpid(child, 0)[1] == 0
    assert rows.total(added).tolist() == [SUM]


def test_engines_that_are_none_are_refused_when_they_are_named(tmp_path):
    with pytest.raises(SchemaError, match=r"\"processes\".*got 'ray'"):
        Files("a.csv", "ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "joblib", None)
        with pytest.raises(SchemaError, match="joblib"):
            Files("a.csv", "processes")


def test_a_machine_that_starts_no_process_reads_by_threads(files, monkeypatch):
    def refuses(workers):
        raise OSError("no semaphores here")

    monkeypatch.setattr(workers, "_pool", refuses)
    rows = files.open_rows(COLUMNS, None)
    assert set(rows.values(lambda c: np.full(len(c["x"]), os.getpid()))) == {HERE}
