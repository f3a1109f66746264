"""Teachers saved in a folder: what is reused, what is refused, and what a stopped run loses."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from teacher_models import slow

import adaptive_dp as dp
from adaptive_dp.graph.errors import DataError
from adaptive_dp.pate.saved_teachers import open_folder

COLUMNS: dict[str, Any] = {"x": (0, 1), "y": ["a", "b", "c"]}
DATA = {"x": np.linspace(0, 1, 60), "y": np.array(["a", "b", "c"] * 20)}
POOL = {"x": np.linspace(0, 1, 40)}
TEACHERS = 6

SCRIPT = """
import signal, sys, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background ignores
sys.path.insert(0, {tests!r})
import adaptive_dp as dp
from test_saved_teachers import DATA, POOL, plan
with dp.pate.saved({folder!r}):
    print(plan({log!r}, {pause}).run(people=DATA, pool=POOL)["labels"].tolist())
"""


def plan(log: Path | str = "", pause: float = 0.0, **more: Any) -> dp.Pipeline:
    people = dp.dataset(more.pop("name", "people"), columns=COLUMNS)
    model: dict[str, Any] = {"model": slow, "log": str(log), "pause": pause, "count": TEACHERS}
    teachers = dp.pate.teachers(people, ["x"], "y", **{**model, **more})
    # noise so small that answers are the plurality's, but for ties, which each seed splits alike
    labels = teachers.votes(teachers.points("pool", 40)).release(dp.pate.GNMax(sigma=1e-3))
    return dp.Pipeline(labels=labels).with_delta(1e-6)


def trained(log: Path) -> int:
    return len(log.read_text().split()) if log.exists() else 0


def teachers_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.teacher")}


def simulated(made: dp.Pipeline, data: Any = DATA, seed: int = 1) -> list[int]:
    return made.simulate(seed=seed, people=data, pool=POOL)["labels"].tolist()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a given key, of a split in which each teacher sees two classes."""
    return keyed(tmp_path / "keyed", 0)


def keyed(path: Path, first: int) -> Path:
    path.mkdir(mode=0o700)
    path.joinpath("key").touch(mode=0o600)
    path.joinpath("key").write_bytes(bytes(range(first, first + 32)))
    return path


def test_a_second_run_trains_no_teacher(folder: Path, log: Path) -> None:
    alone = simulated(plan(log))
    # the split depends on the plan, which names the log; who gets rows of one class trains nothing
    each = trained(log)
    assert 0 < each <= TEACHERS
    with dp.pate.saved(folder):
        assert simulated(plan(log)) == alone
        assert trained(log) == 2 * each
        assert simulated(plan(log)) == alone  # and the seed of a simulation splits as ever
        assert trained(log) == 2 * each
    assert simulated(plan(log)) == alone  # nothing outlives the block
    assert trained(log) == 3 * each


def test_a_run_splits_as_the_last_one_did(folder: Path, log: Path) -> None:
    with dp.pate.saved(folder):
        plan(log).run(people=DATA, pool=POOL)
        plan(log).run(people=DATA, pool=POOL)
    assert trained(log) == TEACHERS
    other = keyed(folder.with_name("other"), 1)
    with dp.pate.saved(other):
        plan(log).run(people=DATA, pool=POOL)
    assert trained(log) == 2 * TEACHERS
    assert not teachers_in(folder).keys() & teachers_in(other).keys()


def test_a_new_folder_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = {open_folder(tmp_path / name / "below").key for name in ("a", "b")}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {32}
    assert open_folder(tmp_path / "a" / "below").key in keys


def test_units_keep_their_teachers_where_others_are_filtered(folder: Path) -> None:
    """A unit's word is that of its number in the data set, whatever else is left out."""
    saved = open_folder(folder)
    words = saved.stream("split").words(60)
    assert (saved.stream("split").words(7) == words[:7]).all()
    assert (saved.stream("seeds").words(60) != words).all()
    # 60 draws of 2^64 values: two are equal with probability 1e-16
    assert len(set(words.tolist())) == 60
    table = dp.dataset("people", columns=COLUMNS)
    half = dp.pate.teachers(table.filter(table["x"] >= 0.5), ["x"], "y", slow, count=TEACHERS)
    everyone = dp.pate.teachers(table, ["x"], "y", slow, count=TEACHERS)
    result = {}
    for name, made in (("half", half), ("whole", everyone)):
        sizes = dp.Pipeline(
            v=made.votes(made.points("pool", 40)).release(dp.pate.GNMax(sigma=1e-3))
        ).with_delta(1e-6)
        with dp.pate.saved(folder):
            sizes.run(people=DATA, pool=POOL)
        models = [pickle.loads(c[32:]) for c in teachers_in(folder).values()]
        result[name] = sorted(m.predict.rows for m in models if m.predict is not None)
    owners = (words.astype(object) * TEACHERS) >> 64  # the cuts are multiples of 2^64 / 6

    def sizes_of(units: range) -> list[int]:
        return [int((owners[units.start : units.stop] == t).sum()) for t in range(TEACHERS)]

    assert result["half"] == sorted(sizes_of(range(30, 60)))
    assert result["whole"] == sorted(sizes_of(range(30, 60)) + sizes_of(range(60)))


def test_what_has_changed_is_trained_anew(folder: Path, log: Path) -> None:
    with dp.pate.saved(folder):
        simulated(plan(log))
        for i, made in enumerate((plan(log, pause=1e-9), plan(log, count=5))):
            before = trained(log)
            simulated(made)
            assert trained(log) == before + (TEACHERS, 5)[i]
        one = {**DATA, "x": np.where(np.arange(60) == 17, 0.0, DATA["x"])}
        before = trained(log)
        simulated(plan(log), one)  # one row's cell: its teacher alone
        assert trained(log) == before + 1
        simulated(plan(log), seed=2)
        assert trained(log) == before + 1 + TEACHERS


def test_what_was_tampered_with_is_trained_anew(folder: Path, log: Path) -> None:
    with dp.pate.saved(folder):
        alone = simulated(plan(log))
        for damage in ("bit", "short", "empty", "swap", "code"):
            files = sorted(folder.glob("*.teacher"))
            assert len(files) == TEACHERS
            content = files[0].read_bytes()
            wrong = {
                "bit": content[:-1] + bytes([content[-1] ^ 1]),
                "short": content[:-5],
                "empty": b"",
                "swap": files[1].read_bytes(),
                "code": content[:32] + pickle.dumps(Trap(str(folder / "sprung"))),
            }[damage]
            files[0].write_bytes(wrong)
            before = trained(log)
            assert simulated(plan(log)) == alone
            assert trained(log) == before + 1
            assert files[0].read_bytes() == content
        assert not (folder / "sprung").exists()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def test_only_its_owner_can_read_it(folder: Path, log: Path) -> None:
    folder = folder.with_name("new")
    mask = os.umask(0)
    try:
        with dp.pate.saved(folder):
            simulated(plan(log))
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert len(modes) == TEACHERS + 2
    key = (folder / "key").read_bytes()
    assert repr(open_folder(folder)).find(repr(key)) < 0
    assert not any(key in content for content in teachers_in(folder).values())


@pytest.mark.parametrize("changed", ["folder", "key", "short", "file"])
def test_folders_that_are_refused(changed: str, folder: Path) -> None:
    with dp.pate.saved(folder):
        pass
    if changed == "folder":
        folder.chmod(0o750)
    elif changed == "key":
        (folder / "key").chmod(0o644)
    elif changed == "short":
        (folder / "key").write_bytes(b"12")
    else:
        shutil.rmtree(folder)
        folder.write_text("")
    with pytest.raises(DataError, match="folder"), dp.pate.saved(folder):
        pass


def test_a_folder_is_for_one_data_set(folder: Path, log: Path) -> None:
    with dp.pate.saved(folder):
        simulated(plan(log))
        with pytest.raises(DataError, match="'people'"):
            plan(log, name="patients").run(patients=DATA, pool=POOL)


def test_a_folder_is_for_one_kind_of_unit(folder: Path, log: Path) -> None:
    """One word must not decide of a row in one run, and of a person in the next."""
    table = dp.dataset("people", columns=COLUMNS, unit="id", rows_per_unit=2)
    made = dp.pate.teachers(table, ["x"], "y", slow, count=TEACHERS)
    labels = made.votes(made.points("pool", 40)).release(dp.pate.GNMax(sigma=1e-3))
    by_person = dp.Pipeline(labels=labels).with_delta(1e-6)
    with dp.pate.saved(folder):
        simulated(plan(log))
        with pytest.raises(DataError, match="'people, units by id'"):
            by_person.run(people={**DATA, "id": np.arange(60) // 2}, pool=POOL)


def test_functions_inside_functions_are_saved_or_not(folder: Path) -> None:
    generator = (i for i in range(3))  # nothing pickles one
    with dp.pate.saved(folder):
        for held in (None, generator):
            simulated(
                plan(model=lambda x, y, s, held=held, **_: lambda at: (at[:, 0] * 0, held)[0])
            )


def killed(folder: Path, log: Path, sign: int) -> int:
    """Stop a run after two teachers, and return how many it had started to train."""
    text = SCRIPT.format(
        tests=str(Path(__file__).parent), folder=str(folder), log=str(log), pause=0.3
    )
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 120
    while len(teachers_in(folder)) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(sign)
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert ("Interrupted" in error) == (sign == signal.SIGINT)
    return trained(log)


@pytest.mark.parametrize(
    "sign", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_a_stopped_run_goes_on(sign: int, folder: Path, log: Path) -> None:
    trained_before = killed(folder, log, sign)
    there = teachers_in(folder)
    assert 2 <= len(there) < TEACHERS
    assert trained_before <= len(there) + 1  # the one in flight
    with dp.pate.saved(folder):
        resumed = plan(log, 0.3).run(people=DATA, pool=POOL)["labels"].tolist()
    assert trained(log) <= trained_before + TEACHERS - len(there)
    assert there.items() <= teachers_in(folder).items()
    assert not list(folder.glob("*.part"))

    # as an uninterrupted run with the same key
    uninterrupted = keyed(folder.with_name("whole"), 0)
    with dp.pate.saved(uninterrupted):
        other = plan(log, 0.3).run(people=DATA, pool=POOL)["labels"].tolist()
    assert teachers_in(uninterrupted) == teachers_in(folder)
    votes = [
        pickle.loads(c[32:]).votes(np.zeros((1, 1)))[0] for c in teachers_in(uninterrupted).values()
    ]
    tally = np.bincount(votes, minlength=3)
    if (tally == tally.max()).sum() == 1:
        assert resumed == other
