"""Errors of smartnoise-synth's AIM, MST and MWEM on the tables `benchmarks.synthesis` exports.

    python -m benchmarks.synthesis --export FOLDER
    timeout 600 python public_smartnoise.py FOLDER/small.npz mst 1.0 --seed 0

It runs in an environment of its own, of smartnoise-synth 1.0.8 with mbi 1.1.0, and imports nothing
of this project. Prints a line of JSON: the average total variation distance of as many rows as
there are, with the same formula and over the same tables as ours, and the seconds of processor time
of fitting and of rows. AIM is asked for all tables of three columns; MST and MWEM choose themselves
what to measure, MWEM with pure epsilon.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import numpy as np
import pandas as pd

DELTA = 1e-9


def main() -> None:
    """Run one synthesizer, and print how far its rows are off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path)
    parser.add_argument("mechanism", choices=["aim", "mst", "mwem"])
    parser.add_argument("epsilon", type=float)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    loaded = np.load(options.tables)
    codes, sizes = loaded["codes"], [int(size) for size in loaded["sizes"]]
    tables = [tuple(map(int, table)) for table in loaded["tables"]]
    np.random.seed(options.seed)  # noqa: NPY002 (it is what these mechanisms draw from)
    start = time.process_time()
    synthesizer = made(options)
    names = [f"c{i}" for i in range(len(sizes))]
    frame = pd.DataFrame(codes, columns=names)
    synthesizer.fit(frame, categorical_columns=names)
    fitted = time.process_time()
    rows = pd.DataFrame(synthesizer.sample(len(codes))).to_numpy().astype(np.int64)
    end = time.process_time()
    apart = [tables_apart(codes, rows, sizes, table) for table in tables]
    found = {"set": options.tables.stem, "mechanism": options.mechanism}
    found |= {"epsilon": options.epsilon, "seed": options.seed, "rows": float(np.mean(apart))}
    print(json.dumps({**found, "fit": fitted - start, "sample": end - fitted}), flush=True)


def made(options: Any) -> Any:
    """Return the synthesizer."""
    if options.mechanism == "aim":
        from snsynth.aim import AIMSynthesizer

        return AIMSynthesizer(epsilon=options.epsilon, delta=DELTA, degree=3)
    if options.mechanism == "mst":
        from snsynth.mst import MSTSynthesizer

        return MSTSynthesizer(epsilon=options.epsilon, delta=DELTA)
    from snsynth.mwem import MWEMSynthesizer

    return MWEMSynthesizer(epsilon=options.epsilon)


def tables_apart(codes: Any, rows: Any, sizes: list[int], table: tuple[int, ...]) -> float:
    """Return the total variation distance of a table of rows from that of others."""
    shape = tuple(sizes[i] for i in table)
    shares = []
    for each in (codes, rows):
        index = np.ravel_multi_index([each[:, i] for i in table], shape)
        shares.append(np.bincount(index, minlength=int(np.prod(shape))) / len(each))
    return float(np.abs(shares[0] - shares[1]).sum()) / 2


if __name__ == "__main__":
    main()
