"""Plans beside DuckDB, Polars, pandas and NumPy: process time and bytes read for equal integers.

    python -m benchmarks.scan
    python -m benchmarks.scan --rows 100000000 --file-rows 100000000 --columns 20 --keys 1000
    python -m benchmarks.scan engines --rows 1000000 10000000
    python -m benchmarks.scan --peers PYTHON

Without more it ends in about two minutes on two cores: 10^7 rows in memory (``--rows``), and files
of 10^6 rows (``--file-rows``), one of them with 200 columns (``--columns``). It prints one table, a
line a question: seconds of user and system time, of the process and of those that it started; the
ratio to what the question is judged by, and the limit; bytes read over the bytes of the needed
columns' chunks in the file (Polars maps files into memory, so that nothing is counted); and whether
all gave the same integers. Plans release them with noise so small that it is 0.

``engines`` compares ``--systems`` by one kind of query after the other over one Parquet file, with
the memory that each takes. NaN and nulls are left out of sums.

PYTHON is an interpreter with OpenDP's Polars and Tumult, which pin other versions of dependencies:
in an environment of its own, ``pip install 'opendp[polars]' tmlt.analytics``. They release sums
with noise, so that only their time can be compared; a missing one has a line that says so.

Each measurement is a process of its own, forked; the least of up to three runs after a first one
counts. Linux only.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

# a folder of modules with names such as `noise`, where this file is run as a script
sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import gc
import hashlib
import json
import math
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

GROUP = 2**17
"""Rows of a row group."""

BATCH = 2**16
CATEGORIES = ["excellent", "good", "fair", "poor"]
BINS = 10
Answer = Any
"""Integers, shape (cells, numbers)."""


# Questions, and how each system answers them


@dataclass(frozen=True)
class Question:
    """Count rows and sum columns, by cell.

    Parameters
    ----------
    sums
        Columns, clipped to ``bounds`` and rounded half to even to steps.
    count
        Whether rows are counted.
    by
        The column of keys: ``"key"`` (integers from 0), ``"category"`` (of `CATEGORIES`), or
        ``"x"``, in `BINS` equal bins of [0, 100]; None for one cell.
    keys
        How many keys there are.
    above
        Only rows whose ``x`` is at least this.
    first
        Only so many rows of each ``key``, the first ones of the file.
    """

    sums: tuple[str, ...] = ()
    count: bool = False
    by: str | None = None
    keys: int = 0
    above: float | None = None
    first: int | None = None
    bounds: tuple[float, float] = (0.0, 100.0)

    @property
    def cells(self) -> int:
        sizes = {None: 1, "category": len(CATEGORIES), "x": BINS}
        return sizes.get(self.by, self.keys)

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        filtered = ["x"] if self.above is not None else []
        filtered += ["key"] if self.first is not None else []
        return list(dict.fromkeys([*self.sums, *([self.by] if self.by else []), *filtered]))

    @property
    def unit(self) -> float:
        """The step: the largest power of two with at least 2^22 of them in the largest bound."""
        return math.ldexp(1.0, math.frexp(max(map(abs, self.bounds)))[1] - 23)

    @property
    def steps(self) -> tuple[int, int]:
        """The bounds in steps, inside of them."""
        lower, upper = (Fraction(each) / Fraction(self.unit) for each in self.bounds)
        return math.ceil(lower), math.floor(upper)

    @property
    def zero(self) -> int:
        """The steps of what is not a number: it is left out of a sum."""
        return 0

    def answer(self, index: Any, numbers: Sequence[Any]) -> Answer:
        """Return the numbers by cell, from those of some cells."""
        result = np.zeros((self.cells, len(numbers)), dtype=np.int64)
        place = {name: i for i, name in enumerate(CATEGORIES)}
        if self.by == "category":
            index = [place.get(name, -1) for name in index]
        # the key of no row is NaN in a column of floats
        labels = np.asarray(index, dtype=np.float64)
        inside = (labels >= 0) & (labels < self.cells)
        for j, each in enumerate(numbers):
            result[labels[inside].astype(np.int64), j] = np.asarray(each)[inside]
        return result


Data = Path | Mapping[str, Any]
"""A Parquet file, or arrays in memory."""

Prepared = Callable[[], Answer]
"""What a system does, made ready beforehand."""


def duckdb_answers(question: Question, data: Data) -> Prepared:
    """Return what DuckDB does, in SQL."""
    import duckdb

    connection = duckdb.connect()
    if isinstance(data, Path):
        rows = f"read_parquet('{data}')"
    else:
        rows = "rows"
        connection.register(rows, frame(data))
    if question.first is not None:
        nth = "row_number() over (partition by key order by file_row_number)"
        numbered = f"read_parquet('{data}', file_row_number=true)"
        ordered = f"select *, {nth} as nth from {numbered} where key is not null"
        rows = f"({ordered}) where nth <= {question.first}"
    low, high = question.steps
    terms = ["count(*)"] if question.count else []
    for name in question.sums:
        value = f"cast({name} as double)"
        # `round` rounds halves away from 0; `least` and `greatest` leave nulls out, and order NaN
        # above all: one clipping after the rounding is enough, for numbers
        clipped = f"greatest({low}, least({high}, round_even({value} / {question.unit!r}, 0)))"
        missing = f"{value} is null or isnan({value})"
        steps = f"case when {missing} then {question.zero} else {clipped} end"
        terms.append(f"sum(cast({steps} as bigint))")
    bins = f"case when x between 0 and 100 then least({BINS - 1}, floor(x / {100 // BINS})) end"
    by = bins if question.by == "x" else question.by
    # NaN is above all
    where = f"where x >= {question.above} and not isnan(x)" if question.above is not None else ""
    grouped = f"group by {by}" if by else ""
    query = f"select {', '.join([by or '0', *terms])} from {rows} {where} {grouped}"

    def run() -> Answer:
        columns = list(connection.execute(query).fetchnumpy().values())
        plain = [np.ma.filled(c, -1) if np.ma.isMaskedArray(c) else c for c in columns]
        if question.by == "category":
            plain[0] = [str(name) for name in plain[0]]
        return question.answer(plain[0], plain[1:])

    return run


def polars_answers(question: Question, data: Data) -> Prepared:
    """Return what Polars does, lazily."""
    import polars as pl

    def run() -> Answer:
        rows = pl.scan_parquet(data) if isinstance(data, Path) else held.lazy()
        if question.above is not None:
            # NaN is above all
            rows = rows.filter((pl.col("x") >= question.above) & pl.col("x").is_not_nan())
        if question.first is not None:
            rows = rows.filter(pl.col("key").is_not_null())
            rows = rows.filter(pl.int_range(pl.len()).over("key") < question.first)
        low, high = question.steps
        terms = [pl.len()] if question.count else []
        for name in question.sums:
            steps = (pl.col(name).cast(pl.Float64) / question.unit).round(0, mode="half_to_even")
            steps = steps.clip(low, high).fill_nan(question.zero).fill_null(question.zero)
            # below 2^23 in size, so that 2^40 rows fit: larger sums would wrap silently
            terms.append(steps.cast(pl.Int64).sum().alias(f"sum {name}"))
        if question.by is None:
            collected = rows.select(terms).collect()
            return question.answer([0], [collected[c].to_numpy() for c in collected.columns])
        by = pl.col(question.by)
        if question.by == "x":
            inside = by.is_between(0, 100)
            by = pl.when(inside).then((by / (100 // BINS)).floor().clip(0, BINS - 1))
        collected = rows.group_by(by.alias("cell")).agg(terms).collect()
        index = (
            collected["cell"].to_list()
            if question.by == "category"
            else collected["cell"].to_numpy()
        )
        return question.answer(index, [collected[c].to_numpy() for c in collected.columns[1:]])

    if not isinstance(data, Path):
        columns = dict(data)
        if "category" in columns:
            columns["category"] = frame({"category": columns["category"]})["category"]
        held = pl.DataFrame(columns)
    return run


def pandas_answers(question: Question, data: Data) -> Prepared:
    """Return what pandas does."""
    import pandas as pd

    held = None if isinstance(data, Path) else frame(data)

    def run() -> Answer:
        rows = pd.read_parquet(data, columns=question.columns) if held is None else held
        if question.above is not None:
            rows = rows[rows["x"] >= question.above]
        if question.first is not None:
            rows = rows[rows["key"].notna()]
            rows = rows[rows.groupby("key").cumcount() < question.first]
        frame = pd.DataFrame({"rows": 1}, index=rows.index) if not question.sums else None
        steps = {name: in_steps(question, numbers_of(rows[name])) for name in question.sums}
        frame = pd.DataFrame(steps, index=rows.index) if frame is None else frame
        names = list(steps)
        if question.by is None:
            size = [[len(rows)]] if question.count else []
            return question.answer([0], [*size, *([frame[name].sum()] for name in names)])
        cell = rows[question.by]
        if question.by == "x":
            cell = pd.Series(binned(numbers_of(cell)), index=rows.index)
        grouped = frame.groupby(cell, observed=True)
        size = grouped.size()
        sums = [grouped[name].sum() for name in names]
        counts = [size] if question.count else []
        return question.answer(size.index, [each.to_numpy() for each in [*counts, *sums]])

    return run


def numpy_answers(question: Question, data: Data) -> Prepared:
    """Return what NumPy does with Arrow's batches, on one thread; with arrays, what is bare.

    In memory these are not the same integers, but what they are judged by: clipping and adding, or
    `bincount` of codes that exist.
    """
    if not isinstance(data, Path):
        if question.by == "category":
            return lambda: np.bincount(data["category"], minlength=len(CATEGORIES))
        return lambda: np.clip(data["x"], *question.bounds).sum()
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = pa.array(CATEGORIES)
    sums = len(question.sums) + question.count

    def codes(column: Any) -> Any:
        if question.by == "x":
            return binned(floats(column))
        if question.by == "category":
            if pa.types.is_dictionary(column.type):
                place = pc.index_in(column.dictionary, names)
                column = pc.take(place, column.indices)
            else:
                column = pc.index_in(column, names)
        index = np.asarray(pc.fill_null(column, -1).to_numpy(zero_copy_only=False))
        return np.where((index >= 0) & (index < question.cells), index, -1)

    def first(keys: Any) -> Any:
        """Return which rows are the first of their key, in order, and have one."""
        valid = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        own = np.asarray(pc.drop_null(keys).to_numpy(zero_copy_only=False))
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        new = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        nth = np.arange(len(own)) - np.repeat(new, np.diff(np.append(new, len(own))))
        keep = np.zeros(len(keys), dtype=np.bool_)
        keep[valid[order]] = nth < question.first
        return keep

    def run() -> Answer:
        total = np.zeros((question.cells, sums), dtype=np.int64)
        read = ["category"] if question.by == "category" else None
        with pq.ParquetFile(data, read_dictionary=read) as file:
            if not question.columns:
                total += file.metadata.num_rows
                return total
            if question.first is not None:  # a bit a row is kept, as rows of a unit are anywhere
                firsts = first(file.read(["key"]).column("key").combine_chunks())
            at = 0
            for group in range(file.num_row_groups):
                batches = file.iter_batches(
                    BATCH, row_groups=[group], columns=question.columns, use_threads=False
                )
                for batch in batches:
                    keep: Any = slice(None)
                    if question.above is not None:
                        keep = np.flatnonzero(floats(batch.column("x")) >= question.above)
                    if question.first is not None:
                        keep = np.flatnonzero(firsts[at : at + batch.num_rows])
                        at += batch.num_rows
                    add(total, batch, keep)
        return total

    def add(total: Any, batch: Any, keep: Any) -> None:
        steps = [in_steps(question, floats(batch.column(n))[keep]) for n in question.sums]
        if question.by is None:
            counted = batch.num_rows if isinstance(keep, slice) else len(keep)
            total[0] += [*([counted] if question.count else []), *(int(s.sum()) for s in steps)]
            return
        cell = codes(batch.column(question.by))[keep] + 1
        for j, weights in enumerate([*([None] if question.count else []), *steps]):
            # exact in floats: a batch adds less than 2^53
            if question.cells > 8 * BATCH:
                inside = cell > 0
                added = 1 if weights is None else weights[inside].astype(np.int64)
                np.add.at(total[:, j], cell[inside] - 1, added)
            else:
                counts = np.bincount(cell, weights, minlength=question.cells + 1)[1:]
                total[:, j] += counts.astype(np.int64)

    return run


def plan_answers(question: Question, data: Data) -> Prepared:
    """Return what a plan of this library does; None where it cannot say it."""
    import adaptive_dp as dp

    columns: dict[str, Any] = dict.fromkeys(question.columns, question.bounds)
    columns |= {"category": CATEGORIES, "key": range(question.keys)}
    wanted = question.columns or ["x"]
    declared = {name: columns.get(name, question.bounds) for name in wanted}
    if question.by == "key":
        declared["key"] = list(range(question.keys))
    if isinstance(data, Path):
        # a file's columns are all declared, as its owner would: what is not asked is not read
        declared = {**declared_columns(data, question), **declared}
    units: dict[str, Any] = {}
    if question.first is not None:
        units = {"unit": "key", "rows_per_unit": question.first}
        declared.pop("key", None)
    people = dp.dataset("people", columns=declared, **units)
    rows = people if question.above is None else people.filter(people["x"] >= question.above)
    keys: Sequence[Any] = CATEGORIES if question.by == "category" else range(question.keys)
    nothing, unit = dp.Laplace(scale=1 / 64), question.unit
    small = dp.Laplace(scale=unit / 64)
    outputs: dict[str, Any] = {}
    if question.by is None:
        if question.count:
            outputs["count"] = rows.count().release(nothing)
        outputs |= {name: rows[name].sum().release(small) for name in question.sums}
    elif question.by == "key" and hasattr(rows, "group_by"):
        groups = rows.group_by("key")
        if question.count:
            outputs["count"] = groups.count().release(nothing)
        outputs |= {name: groups.sum(name).release(small) for name in question.sums}
    elif question.sums:
        if question.cells > 1000 or question.by == "x":
            raise NotImplementedError("not there")
        parts = list(rows.partition(question.by))
        outputs["count"] = {k: part.count().release(nothing) for k, part in parts}
        for name in question.sums:
            outputs[name] = {k: part[name].sum().release(small) for k, part in parts}
    elif question.by == "x":
        edges = np.linspace(0, 100, BINS + 1)
        outputs["count"] = rows["x"].histogram(edges).release(nothing)
    else:
        outputs["count"] = rows[question.by].histogram().release(nothing)
    plan = dp.Pipeline(**outputs)
    held = data if isinstance(data, Path) else {name: data[name] for name in wanted}
    if not isinstance(data, Path) and "category" in held:
        held = frame(held)

    def integers(name: str, value: Any) -> Any:
        numbers = np.atleast_1d(value)
        if isinstance(value, Mapping):  # in the order of its names, not of the keys
            named = {str(key): number for key, number in value.items()}
            numbers = np.array([named[str(key)] for key in keys])
        return np.rint(numbers / (1 if name == "count" else unit)).astype(np.int64)

    def run() -> Answer:
        result = plan.simulate(seed=0, people=held)
        return np.stack([integers(name, result[name]) for name in outputs], axis=1)

    return run


SYSTEMS: dict[str, Callable[[Question, Data], Prepared]] = {
    "plan": plan_answers,
    "NumPy": numpy_answers,
    "DuckDB": duckdb_answers,
    "Polars": polars_answers,
    "pandas": pandas_answers,
}


def frame(data: Mapping[str, Any]) -> Any:
    """Return arrays as a frame of pandas, codes of categories as such."""
    import pandas as pd

    columns = dict(data)
    if "category" in columns:
        columns["category"] = pd.Categorical.from_codes(columns["category"], CATEGORIES)
    return pd.DataFrame(columns, copy=False)


def floats(column: Any) -> Any:
    """Return a column of Arrow as floats, gaps as NaN."""
    import pyarrow as pa

    numbers = column if pa.types.is_float64(column.type) else column.cast(pa.float64(), safe=False)
    return numbers.to_numpy(zero_copy_only=False)


def numbers_of(column: Any) -> Any:
    """Return a column of pandas as floats."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def in_steps(question: Question, values: Any) -> Any:
    """Return values clipped and rounded, as floats."""
    with np.errstate(over="ignore"):
        steps = values / question.unit
    np.rint(steps, out=steps)
    np.clip(steps, *question.steps, out=steps)
    np.copyto(steps, question.zero, where=np.isnan(steps))
    return steps


def binned(values: Any) -> Any:
    """Return the bins of values, -1 for none; the last is closed."""
    with np.errstate(invalid="ignore"):
        index = np.minimum(np.floor(values / (100 // BINS)), BINS - 1)
        return np.where((values >= 0) & (values <= 100), index, -1.0).astype(np.int64)


def declared_columns(path: Path, question: Question) -> dict[str, Any]:
    """Return declarations of all numeric columns of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    return {each.name: question.bounds for each in schema if pa.types.is_float64(each.type)}


# Measuring


@dataclass
class Measured:
    """What was measured; ``problem`` says why nothing was."""

    cpu: float = math.nan
    wall: float = math.nan
    read: int = 0
    peak: float = math.nan
    answer: str = ""
    problem: str = ""
    numbers: list[float] = field(default_factory=list)


def measured(
    prepare: Callable[[], Prepared], warm: Callable[[], Prepared] | None = None, times: int = 3
) -> Measured:
    """Return what a function takes, in a process of its own, where ``warm`` has run before."""
    receiver, sender = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(target=_child, args=(prepare, warm, times, sender))
    child.start()
    sender.close()
    try:
        result: Measured = receiver.recv()
    except EOFError:
        result = Measured(problem="ended without an answer, perhaps for lack of memory")
    child.join()
    return result


def _child(
    prepare: Callable[[], Prepared], warm: Callable[[], Prepared] | None, times: int, sender: Any
) -> None:
    try:
        if warm is not None:  # what is imported late is in memory before
            warm()()
        run = prepare()
        gc.collect()
        before = status("self", "VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
        runs = [cost(run)]
        # what others hold in memory for this one counts in full
        others = sum(status(each, "VmHWM") for each in descendants())
        peak = status("self", "VmHWM") - before + others
        # the first run imports what is imported late: it counts alone where it takes a minute
        while (len(runs) == 1 and runs[0].wall < 60) or (
            len(runs) <= times and sum(each.wall for each in runs) < 5
        ):
            runs.append(cost(run))
        result = min(runs[1:] or runs, key=lambda each: each.cpu)
        result.peak = peak
    except (ImportError, NotImplementedError) as error:
        result = Measured(problem=str(error))
    sender.send(result)
    sender.close()


def cost(run: Callable[[], Any]) -> Measured:
    """Return what one run takes."""
    wall, cpu, read = time.perf_counter(), used(), bytes_read()
    answer = run()
    measurement = Measured(used() - cpu, time.perf_counter() - wall, bytes_read() - read)
    array = np.ascontiguousarray(answer)
    measurement.answer = hashlib.sha256(array.astype(np.int64).tobytes()).hexdigest()
    measurement.numbers = [float(each) for each in array.ravel()[:16]]
    return measurement


def descendants(process: str = "self") -> list[str]:
    """Return the processes that one has started, and those that they have started."""
    processes = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            own = file.read_text().split()
        except OSError:  # it has ended
            continue
        processes += [each for i in own for each in (i, *descendants(i))]
    return processes


def used() -> float:
    """Return the user and system time of this process and of its descendants, in seconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for process in descendants():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))  # its own, and of those that it has waited for
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + ticks / os.sysconf("SC_CLK_TCK")


def bytes_read() -> int:
    """Return how many bytes this process and its descendants have read, from whatever cache."""
    total = 0
    for process in ("self", *descendants()):
        try:
            lines = Path(f"/proc/{process}/io").read_text().splitlines()
        except OSError:
            continue
        total += int(next(line.split()[1] for line in lines if line.startswith("rchar")))
    return total


def status(process: str, what: str) -> float:
    """Return a line of a process's status, in MiB."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(what)), 0.0)


# Data


def in_child(work: Callable[..., Any], *given: Any) -> None:
    """Do something in a process of its own, so that this one never starts a thread."""
    child = get_context("fork").Process(target=work, args=given)
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{work.__name__} failed")


def write(path: Path, rows: int, make: Callable[[Any, int, int], Mapping[str, Any]]) -> None:
    """Write a Parquet file in row groups, from a seed for each; one that was kept is left."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists():
        return
    writer, part = None, path.with_suffix(".part")  # what is cut short is not taken for a file
    for start in range(0, rows, GROUP):
        size = min(GROUP, rows - start)
        table = pa.table(dict(make(np.random.default_rng(start), start, size)))
        string_columns = [c.name for c in table.schema if pa.types.is_dictionary(c.type)]
        if writer is None:
            writer = pq.ParquetWriter(
                part, table.schema, compression="none", use_dictionary=string_columns or False
            )
        writer.write_table(table, row_group_size=GROUP)
    assert writer is not None
    writer.close()
    part.rename(path)


def values(generator: Any, size: int) -> Any:
    return generator.normal(50, 40, size)


def wide_columns(columns: int) -> Callable[[Any, int, int], Mapping[str, Any]]:
    """Return what makes a file of so many columns of floats."""
    return lambda generator, start, size: {
        f"c{i}": 160 * generator.random(size) - 30 for i in range(columns)
    }


def mixed_columns(keys: int) -> Callable[[Any, int, int], Mapping[str, Any]]:
    """Return what makes a file of floats, integer keys, a dictionary of str."""

    def make(generator: Any, start: int, size: int) -> Mapping[str, Any]:
        import pyarrow as pa

        codes = pa.array(generator.integers(0, len(CATEGORIES), size, dtype=np.int8))
        return {
            **{name: values(generator, size) for name in ("x", *(f"c{i}" for i in range(10)))},
            "key": generator.integers(0, keys, size),
            "category": pa.DictionaryArray.from_arrays(codes, CATEGORIES),
        }

    return make


def taken(data: Mapping[str, Any], generator: Any, start: int, size: int) -> Mapping[str, Any]:
    """Return the rows of arrays, to write them as they are."""
    return {name: array[start : start + size] for name, array in data.items()}


def demo_columns(generator: Any, start: int, size: int) -> Mapping[str, Any]:
    """Return person-years as the demo declares them, four a person, and up to seven."""
    import pyarrow as pa

    tops = {"age": 70, "female": 2, "education": 25, "family_size": 12, "income": 25_000}
    tops |= {"chronic": 60, "coinsurance": 100, "visits": 25, "spending": 2_500}
    codes = pa.array(generator.integers(0, len(CATEGORIES), size, dtype=np.int8))
    row = np.arange(start, start + size)
    return {
        "person": row // 28 * 7 + np.minimum(row % 28 // 3, 6),  # 3, 3, 3, 3, 3, 3, 10 rows
        **{name: np.floor(generator.random(size) * top) for name, top in tops.items()},
        "health": pa.DictionaryArray.from_arrays(codes, CATEGORIES),
    }


def chunk_bytes(path: Path, columns: Iterable[str]) -> int:
    """Return the bytes of columns in a Parquet file."""
    import pyarrow.parquet as pq

    wanted = set(columns)
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
    return sum(c.total_compressed_size for c in chunks if c.path_in_schema in wanted)


# The demo, AdaSSP, and a run of ten rows


def demo_plan(path: Path) -> Prepared:
    """Return five questions to the demo's table; the first seven numbers are counts and sums."""
    import adaptive_dp as dp
    from adaptive_dp.demo.plan import people

    def noise(bound: float) -> dp.Laplace:
        return dp.Laplace(scale=dp.Free("b", weight=bound))

    features = ["age", "female", "education", "family_size", "income", "chronic", "coinsurance"]
    years = people.count().release(noise(1))
    parts = people.partition("health", whole_units=True)
    # no cell is missing: what fills it is not used, and the count is that of all rows
    income, spending = people["income"].fill(0), people["spending"].fill(0)
    plan = dp.Pipeline(
        person_years=years,
        by_health={health: part.count().release(noise(1)) for health, part in parts},
        mean_income=income.average(noise(1), count=years),
        mean_spending=spending.average(noise(1), count=years),
        visits=people.solve(dp.AdaSSP(features=features, target="visits", weight=0.5)),
    ).calibrate(epsilon=2.0, delta=1e-6)

    def run() -> Answer:
        result = plan.simulate(seed=0, people=path)
        years = result["person_years"]
        means = [result[name] * years for name in ("mean_income", "mean_spending")]
        return np.array([years, *means, *(result["by_health"][name] for name in CATEGORIES)])

    return run


def demo_query(path: Path) -> Prepared:
    """Return DuckDB's query for the numbers of the demo: five rows a person, X'X and X'y."""
    import duckdb

    features = {"age": (0, 70), "female": (0, 1), "education": (0, 25), "family_size": (1, 12)}
    features |= {"income": (0, 20_000), "chronic": (0, 60), "coinsurance": (0, 100)}
    scaled = [
        f"(2 * greatest({a}, least({b}, {name})) - {a + b}) / {b - a}"
        for name, (a, b) in features.items()
    ]
    x = ["1.0", *scaled]
    y = "greatest(0, least(20, visits)) / 10 - 1"
    pairs = [f"sum(x{i} * x{j})" for i in range(len(x)) for j in range(i + 1)]
    pairs += [f"sum(x{i} * y)" for i in range(len(x))]
    place = " ".join(f"when '{name}' then {i}" for i, name in enumerate(CATEGORIES))
    unit = {"income": 2.0**-8, "spending": 2.0**-12}
    sums = [
        f"sum(cast(greatest(0, least({top}, round_even({name} / {unit[name]}, 0))) as bigint))"
        for name, top in (("income", 20_000 * 2**8), ("spending", 2_000 * 2**12))
    ]
    counts = [f"count(*) filter (part = {i} and first = {i})" for i in range(len(CATEGORIES))]
    query = f"""
        with ordered as (
            select *, row_number() over (partition by person order by file_row_number) as nth
            from read_parquet('{path}', file_row_number=true)
        ), bounded as (
            select *, case health {place} end as part from ordered where nth <= 5
        ), ready as (
            select *, min(part) over (partition by person) as first,
            {", ".join(f"{each} as x{i}" for i, each in enumerate(x))}, {y} as y from bounded
        ) select count(*), {", ".join(sums + counts + pairs)} from ready"""
    connection = duckdb.connect()

    def run() -> Answer:
        (row,) = connection.execute(query).fetchall()
        return np.array([row[0], row[1] * 2.0**-8, row[2] * 2.0**-12, *row[3:7]])

    return run


def ten_rows() -> Callable[[], Prepared]:
    """Return what runs a count of ten rows a hundred times."""

    def prepare() -> Prepared:
        import adaptive_dp as dp

        people = dp.dataset("people", columns={"x": (0, 100)})
        plan = dp.Pipeline(count=people.count().release(dp.Laplace(scale=1)))
        data = {"x": [float(i) for i in range(10)]}

        def run() -> Any:
            for _ in range(100):
                plan.run(people=data)
            return [0]

        return run

    return prepare


# OpenDP and Tumult, in their own interpreter


def opendp_answers(question: Question, path: Path) -> Prepared:
    """Return what OpenDP's Polars does, which casts bounded floats and adds noise."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    rows = pl.scan_parquet(path)
    count = len(question.sums)
    by = [question.by] if question.by else []
    keys = pl.LazyFrame({question.by: list(range(question.keys))}) if question.by else None
    most = {"max_length": 10**9, "max_groups": max(1, question.keys)}

    def run() -> Answer:
        context = dp.Context.compositor(
            data=rows,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=1.0),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=by, **most)],
        )
        terms = [pl.col(n).fill_nan(0).fill_null(0).dp.sum(question.bounds) for n in question.sums]
        terms = [dp.len(), *terms] if question.count else terms
        query = context.query()
        query = query.group_by(by).agg(terms).with_keys(keys) if by else query.select(terms)
        frame = query.release().collect()
        assert frame.width >= count
        return [0]

    return run


def tumult_answers(question: Question, path: Path) -> Prepared:
    """Return what Tumult does on Spark, on this machine's cores."""
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    rows = spark.read.parquet(str(path))
    session = Session.from_dataframe(
        PureDPBudget(float("inf")), "people", rows, protected_change=AddOneRow()
    )

    def run() -> Answer:
        query: Any = QueryBuilder("people").select(question.columns).replace_null_and_nan()
        if question.by:
            query = query.groupby(KeySet.from_dict({question.by: list(range(question.keys))}))
        queries = [query.count()] if question.count else []
        queries += [query.sum(name, *question.bounds) for name in question.sums]
        for each in queries:
            session.evaluate(each, PureDPBudget(1)).collect()
        return [0]

    return run


PEERS = {"OpenDP": opendp_answers, "Tumult": tumult_answers}


def peer(python: str, name: str, question: Question, path: Path) -> Measured:
    """Return what a peer takes, in its own interpreter."""
    given = json.dumps([name, str(path), vars(question)])
    command = [python, os.path.abspath(__file__), "peer", "--question", given]
    # Spark starts workers of this interpreter, and writes into its folder
    options: dict[str, Any] = {"env": {**os.environ, "PYSPARK_PYTHON": python}, "cwd": path.parent}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    except subprocess.TimeoutExpired:
        return Measured(problem="more than ten minutes")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        messages = done.stderr.strip().splitlines() or ["nothing"]
        return Measured(problem=messages[-1][:80])
    return Measured(**json.loads(lines[-1]))


def answer_as_peer(text: str) -> None:
    """Print what a question takes, in JSON."""
    name, path, given = json.loads(text)
    given["sums"], given["bounds"] = tuple(given["sums"]), tuple(given["bounds"])
    run = PEERS[name](Question(**given), Path(path))
    runs = [cost(run)]
    if runs[0].wall < 60:
        runs.append(cost(run))
    print(json.dumps(vars(runs[-1])), flush=True)


# Tables


class Table:
    """Lines of cells, printed with columns of equal width as they come."""

    def __init__(self, *heads: str, first: int = 26, width: int = 9) -> None:
        self.widths = [first, *(max(width, len(head)) for head in heads[1:])]
        self.line(heads)
        print("|" + "|".join("-" * (width + 2) for width in self.widths) + "|", flush=True)

    def line(self, cells: Sequence[Any]) -> None:
        padded = [str(cell).ljust(width) for cell, width in zip(cells, self.widths, strict=True)]
        print("| " + " | ".join(padded) + " |", flush=True)


def seconds(result: Measured | None) -> str:
    if result is None or result.problem:
        return "-"
    return f"{result.cpu:.3f}" if result.cpu < 10 else f"{result.cpu:.1f}"


def load() -> str:
    one, five, fifteen = os.getloadavg()
    return f"load {one:.1f}, {five:.1f}, {fifteen:.1f} on {os.cpu_count()} cores"


HEADS = ("question", "rows", "plan", "NumPy", "DuckDB", "Polars", "pandas", "OpenDP", "Tumult")
MORE = ("ratio to", "ratio", "limit", "read plan", "read DuckDB", "integers")


def judged(options: argparse.Namespace, folder: Path) -> None:
    """Print the table of the questions by which scans are judged."""
    print(f"Seconds of process time; {load()}", flush=True)
    table, notes = Table(*HEADS, *MORE), []

    def line(
        name: str,
        rows: int,
        results: Mapping[str, Measured],
        references: Sequence[str],
        limit: float,
        **more: Any,
    ) -> None:
        plan = results.get("plan", Measured(problem="not there"))
        least = min(
            (s for s in references if s in results and not results[s].problem),
            key=lambda system: results[system].cpu,
            default="-",
        )
        for system, each in results.items():
            if each.problem:
                notes.append(f"{name}: {system}: {each.problem}")
        ratio = "-" if least == "-" or plan.problem else f"{plan.cpu / results[least].cpu:.2f}"
        read = [
            f"{results[s].read / more['needed']:.2f}"
            if more.get("needed") and s in results and not results[s].problem
            else "-"
            for s in ("plan", "DuckDB")
        ]
        cells = [seconds(results.get(system)) for system in HEADS[2:]]
        if plan.problem:
            cells[0] = "not there"
        table.line([name, f"{rows:.0e}", *cells, least, ratio, limit, *read, more.get("same", "-")])

    def ask(
        name: str,
        rows: int,
        question: Question,
        data: Data,
        references: Sequence[str],
        limit: float,
    ) -> None:
        systems = [s for s in SYSTEMS if s != "NumPy" or isinstance(data, Path) or s in references]
        results = {s: measured(partial(SYSTEMS[s], question, data)) for s in systems}
        # the bare NumPy in memory computes no integers
        exact = [s for s in systems if s != "NumPy" or isinstance(data, Path)]
        if options.peers and question.sums and question.cells <= 1000:
            path = data if isinstance(data, Path) else folder / "peers.parquet"
            if not isinstance(data, Path):
                in_child(write, path, rows, partial(taken, data))
            results |= {s: peer(options.peers, s, question, path) for s in PEERS}
        answers = {results[s].answer for s in exact if not results[s].problem}
        needed = chunk_bytes(data, question.columns) if isinstance(data, Path) else 0
        same = "the same" if len(answers) == 1 else "DIFFER"
        line(name, rows, results, references, limit, needed=needed, same=same)

    def discard(path: Path) -> None:
        if not options.keep:
            path.unlink()

    engines, rows, size = ("DuckDB", "Polars"), options.file_rows, options.rows[0]
    if "wide" in options.only:
        wide = folder / f"wide-{rows}-{options.columns}.parquet"
        in_child(write, wide, rows, wide_columns(options.columns))
        for count in (2, 20):
            if count <= options.columns:
                declared = Question(tuple(f"c{i}" for i in range(count)))
                name = f"{count} sums of {options.columns} columns"
                ask(name, rows, declared, wide, engines, 3)
        discard(wide)
    generator, held = np.random.default_rng(0), dict[str, Any]()
    if "memory" in options.only:
        held = {
            "x": values(generator, size),
            "category": generator.integers(0, len(CATEGORIES), size, dtype=np.int8),
        }
        ask("count in memory", size, Question(count=True), held, ("NumPy",), 2)
        ask("sum in memory", size, Question(("x",)), held, ("NumPy",), 2)
        declared = Question(count=True, by="category")
        ask("histogram in memory", size, declared, held, ("NumPy",), 1.5)
        held.clear()
    if "groups" in options.only:
        x = values(generator, size)
        for keys in options.keys:
            held = {"key": generator.integers(0, keys, size), "x": x}
            declared = Question(("x",), count=True, by="key", keys=keys)
            ask(f"count, sum by {keys:.0e} keys", size, declared, held, ("pandas", "Polars"), 3)
        held.clear()
    if "demo" in options.only:
        path = folder / f"demo-{rows}.parquet"
        in_child(write, path, rows, demo_columns)
        measurements = {"plan": measured(lambda: demo_plan(path))}
        measurements["DuckDB"] = measured(lambda: demo_query(path))
        line("the demo's plan", rows, measurements, ("DuckDB",), 1.5, same=near(measurements))
        discard(path)
    if "adassp" in options.only:
        from benchmarks import scale

        parts = folder / f"adassp-{rows}"
        if not parts.exists():
            in_child(scale.make, folder / "made", rows)
            (folder / "made").rename(parts)
        measurements = {
            "plan": measured(lambda: adassp(parts)),
            "NumPy": measured(lambda: lambda: scale.scan(parts, os.cpu_count() or 1)),
        }
        line("AdaSSP of 20 columns", rows, measurements, ("NumPy",), 1.2)
    if "fixed" in options.only:
        ten = measured(ten_rows())
        print(f"a run of a count of ten rows: {ten.cpu * 10:.2f} ms of process time (limit 2)")
    for note in dict.fromkeys(notes):
        print(note)
    print(load())


def adassp(folder: Path) -> Prepared:
    """Return AdaSSP at epsilon 1, by threads as the bare scan."""
    from benchmarks import scale

    plan = scale.plan()
    return lambda: list(scale.adassp(folder, plan, "threads").values())


def near(results: Mapping[str, Measured]) -> str:
    """Return whether the demo's numbers are those of the query, up to the noise.

    Laplace noise of budget 2 over five rows a person has scales below 50 of a row's bound; 3,000 of
    them are exceeded with probability exp(-60).
    """
    if any(each.problem for each in results.values()):
        return "-"
    plan, query = (results[s].numbers[:7] for s in ("plan", "DuckDB"))
    bounds = [1, 20_000, 2_000, 1, 1, 1, 1]
    close = [abs(a - b) <= 3000 * c for a, b, c in zip(plan, query, bounds, strict=True)]
    return "near" if all(close) else "DIFFER"


KINDS: dict[str, Question] = {
    "count": Question(count=True),
    "sum": Question(("x",)),
    "ten sums": Question(tuple(f"c{i}" for i in range(10))),
    "count, sum, filtered": Question(("c0",), count=True, above=60.0),
    "histogram, 4 categories": Question(count=True, by="category"),
    "histogram, 10 bins": Question(count=True, by="x"),
    "count, sum by category": Question(("x",), count=True, by="category"),
    "count, sum by 1e3 keys": Question(("x",), count=True, by="key", keys=10**3),
    "count, sum by 1e5 keys": Question(("x",), count=True, by="key", keys=10**5),
    "5 rows of each unit": Question(("x",), count=True, first=5, keys=10**6),
}
"""One query of each kind."""


def engines(options: argparse.Namespace, folder: Path) -> None:
    """Print the table that compares engines, a kind of query a line: seconds and peak MiB."""
    print(f"Process time in s, elapsed s, MiB at the peak; {load()}", flush=True)
    systems = options.systems
    table, notes = Table("query", "rows", *systems, "integers", width=22), []
    for rows in options.rows:
        path, few, made = folder / "mixed.parquet", folder / "few.parquet", 0
        for name, question in KINDS.items():
            keys = max(10**3, question.keys)
            if keys != made:
                in_child(write, path, rows, mixed_columns(keys))
                in_child(write, few, 1000, mixed_columns(keys))
                made = keys
            results = {
                s: measured(partial(SYSTEMS[s], question, path), partial(SYSTEMS[s], question, few))
                for s in systems
            }
            for system, each in results.items():
                if each.problem:
                    notes.append(f"{name}: {system}: {each.problem}")
            cells = [
                "-" if f.problem else f"{f.cpu:.3f}, {f.wall:.3f}, {f.peak:.0f}"
                for f in results.values()
            ]
            answers = {each.answer for each in results.values() if not each.problem}
            same = "the same" if len(answers) == 1 else "DIFFER"
            table.line([name, f"{rows:.0e}", *cells, same])
    for note in dict.fromkeys(notes):
        print(note)
    print(load())


CELLS = ("wide", "memory", "groups", "demo", "adassp", "fixed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", default="judged", choices=["judged", "engines", "peer"])
    parser.add_argument("--rows", nargs="+", type=int, default=[10**7], help="in memory; engines")
    parser.add_argument("--file-rows", type=int, default=10**6)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--keys", nargs="+", type=int, default=[10**3, 10**5, 10**6])
    parser.add_argument("--only", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=["plan", "NumPy", "DuckDB", "Polars"]
    )
    parser.add_argument("--peers", help="an interpreter that has OpenDP and Tumult")
    parser.add_argument("--folder", type=Path, help="for the data, which are deleted")
    parser.add_argument(
        "--keep", action="store_true", help="keep the files of --folder, and read those kept there"
    )
    parser.add_argument("--question", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "peer":
        answer_as_peer(options.question)
        return
    if options.keep:
        if options.what != "judged" or options.folder is None:
            parser.error("--keep needs --folder, and is for what is judged")
        judged(options, options.folder)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        {"judged": judged, "engines": engines}[options.what](options, Path(folder))


if __name__ == "__main__":
    main()
