"""Errors of the public AIM, MST and MWEM+PGM on the tables that ``benchmarks.synthesis`` exports.

    python -m benchmarks.synthesis --adult FOLDER --rand FILE --export FOLDER
    python public_mst.py REPOSITORY FOLDER/Adult.npz aim 1.0 --seed 0

It runs in an environment of its own: REPOSITORY is github.com/ryan112358/private-pgm at commit
01f02f1 (June 2024), the last one in NumPy, with numpy<2, scipy, pandas<3, networkx, matplotlib and
disjoint-set. Newer ones are in JAX, which compiles for each candidate table: AIM took more than
336 s for ten rounds.

Prints a line of JSON: the average total variation distance of the model's tables and of its rows,
over the same tables and with the same formula as ours, and the seconds of processor time. ``exact``
in place of a mechanism fits the model to exact counts of a chain of pairs, and says how far the
model is off these: what says that the fit itself works.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

DELTA = 1e-9


def main() -> None:
    """Run one mechanism, and print how far it is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("mechanism", choices=["exact", "aim", "mst", "mwem"])
    parser.add_argument("epsilon", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=float, default=80.0, help="AIM's max_model_size")
    parser.add_argument("--iterations", type=int, default=1000, help="of each fit but MST's")
    options = parser.parse_args()
    sys.path[:0] = [str(options.repository / each) for each in ("src", "mechanisms", "")]
    # of a package that is not on PyPI they use the identity alone; of autodp, nothing
    matrix = types.ModuleType("hdmm.matrix")
    matrix.Identity = sparse.eye  # type: ignore[attr-defined]
    other = types.ModuleType("autodp")
    other.privacy_calibrator = None  # type: ignore[attr-defined]
    sys.modules |= {"hdmm": types.ModuleType("hdmm"), "hdmm.matrix": matrix, "autodp": other}
    loaded = np.load(options.tables)
    codes, sizes = loaded["codes"], [int(size) for size in loaded["sizes"]]
    tables = [tuple(f"c{i}" for i in table) for table in loaded["tables"]]
    np.random.seed(options.seed)  # noqa: NPY002 (it is what these mechanisms draw from)
    from mbi import Dataset, Domain

    names = [f"c{i}" for i in range(len(sizes))]
    data = Dataset(pd.DataFrame(codes, columns=names), Domain(names, sizes))
    start = time.process_time()
    model, rows = fitted(options, data, tables)
    seconds = time.process_time() - start
    found = {"set": options.tables.stem, "seconds": seconds, **vars(options)}
    wanted = tables
    if options.mechanism == "exact":
        wanted = [tuple(names[i : i + 2]) for i in range(len(names) - 1)]
    for name, source in (("model", model), ("rows", rows)):
        if source is not None:
            found[name] = float(np.mean([apart(data, source, table) for table in wanted]))
    del found["repository"], found["tables"]
    print(json.dumps(found), flush=True)


def fitted(options: Any, data: Any, tables: list[tuple[str, ...]]) -> tuple[Any, Any]:
    """Return a model, if the mechanism gives one, and synthetic rows."""
    if options.mechanism == "exact":
        from mbi import FactoredInference

        names = data.domain.attrs
        read = []
        for pair in itertools.pairwise(names):
            counts = data.project(pair).datavector()
            read.append((sparse.eye(len(counts)), counts, 1.0, pair))
        model = FactoredInference(data.domain, iters=options.iterations).estimate(read)
        return model, model.synthetic_data()
    if options.mechanism == "aim":
        from aim import AIM

        found = AIM(
            options.epsilon,
            DELTA,
            prng=np.random,
            max_model_size=options.megabytes,
            max_iters=options.iterations,
        )
        return found.run(data, [(table, 1.0) for table in tables])
    if options.mechanism == "mst":
        from mst import MST

        return None, MST(data, options.epsilon, DELTA)
    module = __import__("mwem+pgm")
    iterations = options.iterations
    return None, module.mwem_pgm(
        data, options.epsilon, DELTA, workload=tables, pgm_iters=iterations
    )


def apart(data: Any, other: Any, table: tuple[str, ...]) -> float:
    """Return the total variation distance of a table's shares from the true ones."""
    true, own = (each.project(table).datavector() for each in (data, other))
    assert math.isclose(true.sum(), len(data.df))
    return float(np.abs(true / true.sum() - own / own.sum()).sum()) / 2


if __name__ == "__main__":
    main()
