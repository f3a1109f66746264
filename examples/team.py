"""Two analysts, one budget, one cluster: each asks until their common ledger refuses.

    python examples/team.py                                           # all on this machine
    python examples/team.py postgresql://HOST/DATABASE dask://HOST:PORT     # or on a team's

The ledger may be in ADAPTIVE_DP_LEDGER too. If there is none, a PostgreSQL server is started for
it; without such a program, or without psycopg, it is a SQLite file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from distributed import LocalCluster
from pyarrow.csv import read_csv
from pyarrow.parquet import write_table

import adaptive_dp as dp
from adaptive_dp.cli.main import main as command
from adaptive_dp.demo import DATA

COLUMNS = {"age": (0, 70), "visits": (0, 20)}
people = dp.dataset("people", columns=COLUMNS, unit="person", rows_per_unit=5)
TERMS = {"budget": dp.Budget(epsilon=1.0, delta=1e-6), "accountant": "gaussian"}


def ada(answers):  # in which half of the range is the median age? and in which half of that?
    low, high = answers[-1] if answers else (0.0, 70.0)
    sides = people["age"].histogram([0, (low + high) / 2, 70]).release(dp.Gaussian(sigma=100))
    return dp.post(larger, sides, low=low, high=high)


def larger(sides, *, low, high):
    return (low, (low + high) / 2) if sides[0] > sides[1] else ((low + high) / 2, high)


def ben(answers):  # how many visits a year? and with half the noise?
    return people["visits"].average(dp.Gaussian(sigma=200 / 2 ** len(answers)))


def analyst(question, ledger, rows):
    answers, name = [], question.__name__
    with dp.Session(**TERMS, ledger=ledger, people=rows) as session:
        try:
            while True:
                answers.append(session.run(question(answers), name=name))
        except dp.BudgetError as no:
            return f"{name}: {len(answers)} answers, at last {np.round(answers[-1], 3)}\n{no}\n"


def started(folder, until):  # a server of our own, that only this machine's users can reach
    initdb = next(Path("/usr/lib/postgresql").glob("*/bin/initdb"), shutil.which("initdb"))
    if initdb is None or find_spec("psycopg") is None:
        return f"{folder}/ledger.db"
    user = "nobody" if os.geteuid() == 0 else None  # the server does not run as root
    shutil.chown(folder, user or os.geteuid())

    def call(program, *options):
        program = Path(initdb).resolve().with_name(program)
        given = {"check": True, "user": user, "cwd": folder, "stdout": subprocess.DEVNULL}
        subprocess.run([program, "-D", f"{folder}/server", *options], **given)

    call("initdb", "--auth=trust", "--username=team", "--no-sync")
    call("pg_ctl", "start", "-l", "log", "-o", f"-k {folder} -c listen_addresses=")
    until.callback(call, "pg_ctl", "stop", "-m", "fast")
    return f"postgresql://team@/postgres?host={folder}"


if __name__ == "__main__":
    ledger, cluster, *_ = [*sys.argv[1:], *[None] * 2]
    with ExitStack() as until:
        folder = until.enter_context(tempfile.TemporaryDirectory())
        ledger = ledger or os.environ.get("ADAPTIVE_DP_LEDGER")
        if (
            ledger is None
        ):  # a new one; one that was given is there, with what is left of its budget
            ledger = started(folder, until)
            dp.Session(**TERMS, ledger=ledger, create=True).close()
        if cluster is None:
            local = until.enter_context(LocalCluster(n_workers=2, dashboard_address=":0"))
            cluster = local.scheduler_address.replace("tcp", "dask")
        write_table(read_csv(DATA), f"{folder}/people.parquet", row_group_size=4_000)
        rows = dp.Files(f"{folder}/people.parquet", cluster)
        print(f"one budget in {ledger}\none cluster at {cluster}\n")
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            print(*pool.map(analyst, (ada, ben), [ledger] * 2, [rows] * 2), sep="\n")
        command(["ledger", "show", ledger])
        with dp.Session(**TERMS, ledger=ledger, people=rows) as session:
            paper = session.certificate()
        print(f"\ncertified: epsilon {paper.epsilon}; verify says {dp.verify(paper).holds}")
