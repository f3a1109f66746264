"""AdaSSP over more rows than memory holds, against a bare scan that computes X'X; and descent.

    python -m benchmarks.scale make --rows 10000000 --folder /data/big
    python -m benchmarks.scale scan --folder /data/big
    python -m benchmarks.scale adassp --folder /data/big --engine processes
    python -m benchmarks.scale dask --folder /data/big --workers 2
    python -m benchmarks.scale descent --folder /data/big --workers 2
    python -m benchmarks.scale bytes --folder /data/wide

``descent`` is noisy gradient descent of 20 steps on local Dask workers. Each is a process of its
own, so that its peak of resident memory is its own. ``scan`` reads the same files by PyArrow alone,
with as many threads, and computes X'X of the raw columns in float64. ``bytes`` makes a file of 200
columns and counts the bytes that a plan of some of them reads, on Linux, in units of what the file
stores of these.
Set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import adaptive_dp as dp
from benchmarks.scan import bytes_read

WIDTH = 20
NAMES = [f"x{i}" for i in range(WIDTH - 1)]
FILE = 5_000_000
GROUP = 2**19


def make(folder: Path, rows: int) -> None:
    """Write Parquet files of 20 columns of floats, without compression, 8 bytes a number."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, start in enumerate(range(0, rows, FILE)):
        count = min(FILE, rows - start)
        generator = np.random.default_rng(i)
        schema = pa.schema([(name, pa.float64()) for name in [*NAMES, "y"]])
        with pq.ParquetWriter(
            folder / f"part-{i:04}.parquet", schema, compression="none", use_dictionary=False
        ) as file:
            for at in range(0, count, GROUP):
                size = min(GROUP, count - at)
                x = generator.uniform(-1, 1, (len(NAMES), size))
                y = np.clip(0.3 * x[0] - 0.2 * x[1] + generator.normal(0, 0.2, size), -1, 1)
                file.write_table(pa.table([*x, y], schema=schema), row_group_size=GROUP)


def scan(folder: Path, workers: int) -> Any:
    """Return X'X of all columns."""
    groups = [
        (path, i)
        for path in sorted(folder.glob("part-*.parquet"))
        for i in range(pq.ParquetFile(path).num_row_groups)
    ]

    def one(group: tuple[Path, int]) -> Any:
        total = np.zeros((WIDTH, WIDTH))
        with pq.ParquetFile(group[0]) as file:
            for batch in file.iter_batches(2**16, row_groups=[group[1]], use_threads=False):
                x = np.stack([column.to_numpy() for column in batch.columns])
                total += x @ x.T
        return total

    with ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(one, groups))


def plan() -> dp.Pipeline:
    """Return the plan: AdaSSP at epsilon 1."""
    table = dp.dataset("people", columns=dict.fromkeys([*NAMES, "y"], (-1.0, 1.0)))
    theta = table.solve(dp.AdaSSP(features=NAMES, target="y"), epsilon=1.0, delta=1e-8)
    return dp.Pipeline(theta=theta).with_delta(1e-8)


def adassp(folder: Path, made: dp.Pipeline, engine: str) -> Any:
    """Return coefficients."""
    return made.simulate(seed=0, people=dp.Files(folder / "part-*.parquet", engine))["theta"]


def on_dask(folder: Path, workers: int) -> None:
    """Time the same plan on local workers of one thread each: first read, then in their memory."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        data, made = dp.Files(str(folder / "part-*.parquet"), client), plan()
        client.run(exec, "import adaptive_dp.data.dask_engine")
        timed(f"dask {workers}", lambda: made.simulate(seed=0, people=data))
        rows = data.open_rows(dict.fromkeys([*NAMES, "y"], "number"), None)

        def block(columns: Any) -> Any:
            x = np.stack([np.rint(columns[name] * 2.0**19) for name in [*NAMES, "y"]])
            return (x @ x.T).astype(np.int64).ravel()

        for _ in range(2):  # from the second pass on the workers keep their parts
            rows.total(block)
        timed(f"pinned {workers}", lambda: rows.total(block))


def descent(folder: Path, workers: int, steps: int = 20) -> None:
    """Time noisy gradient descent on local workers of one thread each; the peak is that of here."""
    from distributed import Client, LocalCluster

    table = dp.dataset("people", columns=dict.fromkeys([*NAMES, "y"], (-1.0, 1.0)))
    learner = dp.NoisyGradientDescent(features=NAMES, target="y", loss=dp.Huber(), steps=steps)
    theta = table.solve(learner, epsilon=1.0, delta=1e-8)
    made = dp.Pipeline(theta=theta).with_delta(1e-8)
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        data = dp.Files(str(folder / "part-*.parquet"), client)
        client.run(exec, "import adaptive_dp.data.dask_engine")
        timed("nothing", lambda: None)
        timed(f"descent {workers}", lambda: made.simulate(seed=0, people=data))


def read_bytes(folder: Path) -> None:
    """Print the table of bytes read, each in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path, names = folder / "wide.parquet", [f"x{i}" for i in range(200)]
    if not path.exists():
        cells = np.random.default_rng(0).integers(0, 1_000, (len(names), 500_000))
        pq.write_table(pa.table(list(cells), names=names), path, row_group_size=125_000)
    size = path.stat().st_size
    print(f"{size / 1e6:.0f} MB, metadata {pq.read_metadata(path).serialized_size / 1e3:.0f} kB")
    print("| | `dp.Files` | one file, in memory |\n|---|---|---|")
    context = get_context("spawn")
    for words, used in (("two sums of two columns", 2), ("twenty sums of twenty columns", 20)):
        cells_of = []
        for given in (dp.Files(path, "threads"), str(path)):
            # unbuffered: a queue of one number, from a process that has read nothing else before
            answers = context.SimpleQueue()
            child = context.Process(target=_read, args=(names, used, given, path, answers))
            child.start()
            cells_of.append(answers.get())
            child.join()
        print(f"| {words} |" + "".join(f" {c:.3f} |" for c in cells_of))


def _read(names: list[str], used: int, given: Any, path: Path, answers: Any) -> None:
    table = dp.dataset("t", columns=dict.fromkeys(names, (0, 1_000)))
    sums = {name: table[name].sum().release(dp.Laplace(scale=1e4)) for name in names[:used]}
    made = dp.Pipeline(**sums)
    # imports read files too: first the same with a file of its own, of one row
    one = path.with_name("one_row.parquet")
    pq.write_table(pa.table([[0]] * len(names), names=names), one)
    made.simulate(seed=0, t=dp.Files(one, "threads") if isinstance(given, dp.Files) else str(one))
    groups = pq.read_metadata(path)
    stored = sum(
        groups.row_group(i).column(j).total_compressed_size
        for i in range(groups.num_row_groups)
        for j in range(used)
    )
    before = bytes_read()
    made.simulate(seed=0, t=given)
    answers.put((bytes_read() - before) / stored)


def timed(title: str, run: Callable[[], Any]) -> None:
    """Print how long something takes, and peaks of resident memory, here and of processes."""
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    here, others = peak("self"), max(map(peak, children()), default=0.0)
    print(
        f"{title:10} {seconds:8.2f} s   peak {here:5.0f} MiB, elsewhere {others:5.0f} MiB",
        flush=True,
    )


def children() -> list[str]:
    """Return the processes that this one has started, on Linux."""
    return [
        i for file in Path("/proc/self/task").glob("*/children") for i in file.read_text().split()
    ]


def peak(process: str) -> float:
    """Return the most memory that a process had, in MiB, on Linux."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "scan", "adassp", "dask", "descent", "bytes"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=["threads", "processes"], default="processes")
    options = parser.parse_args()
    folder: Path = options.folder
    if options.what == "make":
        make(folder, options.rows)
    elif options.what == "scan":
        timed("scan", lambda: scan(folder, options.workers))
    elif options.what == "adassp":
        made = plan()
        timed(options.engine, lambda: adassp(folder, made, options.engine))
    elif options.what == "descent":
        descent(folder, options.workers)
    elif options.what == "bytes":
        read_bytes(folder)
    else:
        on_dask(folder, options.workers)


if __name__ == "__main__":
    main()
