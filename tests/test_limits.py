"""Documents of strangers: each limit is a typed refusal, and none takes longer than a second."""

from __future__ import annotations

import gzip
import json
import math
import threading
import time

import pytest
from attrs import evolve

import adaptive_dp as dp
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import UNUSABLE
from adaptive_dp.data import csv_files
from adaptive_dp.graph import values

PEOPLE = dp.dataset("people", columns={"x": (0, 10)})
PLAN = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=2)))
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Of an interruption in a callback of the garbage collector Python says that it is ignored."""
PATIENCE = 3.0  # seconds: the machine of the tests may be slow


@pytest.fixture(autouse=True)
def _in_time():
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 3 * PATIENCE


def hard(count=400):
    """A plan of some kilobytes that keeps accountants busy for many seconds."""
    return dp.Pipeline(
        **{
            f"c{i}": PEOPLE.sample(1e-5 * (1 + i))
            .count()
            .release(dp.Gaussian(sigma=0.06 + i / 999))
            for i in range(count)
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "a." * 200_000 + "a = 1",
        "[" + "a." * 200_000 + "a]",
        "x = {" + "a." * 200_000 + "a = 1}",
        '"' + '"."'.join("a" * 100_000) + '" = 1',
    ],
    ids=["key", "table", "inline", "quoted"],
)
def test_long_dotted_keys_are_refused_before_they_are_parsed(text):
    begun = time.monotonic()
    with pytest.raises(dp.LimitError, match="nested deeper than 64"):
        dp.load(text)
    assert time.monotonic() - begun < PATIENCE


@pytest.mark.parametrize("text", ["a." * 200_000, "[ " * 200_000, "x = [" + "0.5, " * 60_000 + "]"])
def test_looking_for_keys_takes_linear_time(text):
    dp.Limits().check_text(text, "plan")


def test_documents_have_a_size(tmp_path):
    strict = dp.Limits(size=100)
    file = tmp_path / "plan.json"
    file.write_text(PLAN.to_json())
    certificate = PLAN.certify().to_json()
    for read in (
        lambda: dp.load(PLAN.to_json(), limits=strict),
        lambda: dp.load(file, limits=strict),
        lambda: dp.Certificate.from_json(certificate, limits=strict),
    ):
        with pytest.raises(dp.LimitError, match=r"Limits\.size"):
            read()
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:  # a hole in the file: nothing is written, nor read
        stream.truncate(2**34)
    with pytest.raises(dp.LimitError, match=r"Limits\.size"):
        dp.load(huge)


def test_plans_have_so_many_nodes():
    document = hard(5).to_document()
    assert dp.load(document, limits=dp.Limits(nodes=20)).fingerprint == hard(5).fingerprint
    with pytest.raises(dp.LimitError, match="16 nodes, and at most 15"):
        dp.load(document, limits=dp.Limits(nodes=15))
    body = dp.Pipeline(
        x=dp.repeat(
            lambda s, t: dp.post(max, s, t.count().release(dp.Laplace(scale=9))),
            2,
            PEOPLE,
            start=dp.public(0.0),
        )
    ).to_document()
    with pytest.raises(dp.LimitError, match="nodes"):
        dp.load(body, limits=dp.Limits(nodes=len(body["nodes"])))


def forged():
    """A certificate of a plan that takes minutes, its claim copied from another one."""
    easy = json.loads(PLAN.certify().to_json())
    easy["plan"] = hard().to_document() | {"delta": 1e-6}
    easy["claim"]["delta"] = 1e-6
    return dp.Certificate.from_json(json.dumps(easy))


def test_verification_ends_in_time():
    begun = time.monotonic()
    with pytest.raises(dp.LimitError, match=r"longer than 0\.3 seconds; see Limits\.seconds"):
        dp.verify(forged(), limits=dp.Limits(seconds=0.3))
    assert time.monotonic() - begun < PATIENCE
    # nothing is raised afterwards, and the next one is verified
    time.sleep(0.1)
    assert dp.verify(PLAN.certify(), limits=dp.Limits(seconds=60)).holds


def test_verification_ends_in_time_in_any_thread():
    found = []

    def verify():
        try:
            dp.verify(forged(), limits=dp.Limits(seconds=0.3))
        except dp.LimitError as error:
            found.append(str(error))

    thread = threading.Thread(target=verify)
    thread.start()
    thread.join(3 * PATIENCE)
    assert len(found) == 1


def test_an_interruption_that_is_swallowed_comes_again():
    class Slow:
        def __del__(self):
            time.sleep(0.3)  # it is raised in here, where Python only says so

    def forever():
        Slow()
        while True:
            pass

    with pytest.raises(dp.LimitError):
        dp.Limits(seconds=0.1).watched("x", forever)


def test_memory_is_watched():
    held = []

    def grow():
        while len(held) < 4000:
            held.append(bytearray(b"x") * 100_000)
            time.sleep(0.001)

    with pytest.raises(dp.LimitError, match=r"Limits\.memory"):
        dp.Limits(memory=5e7).watched("x", grow)
    held.clear()


def test_the_inner_of_two_limits_is_the_one_that_is_named():
    def forever():
        while True:
            pass

    for which, limits in {"inner": (60, 0.05), "outer": (0.05, 60)}.items():
        outer, inner = (dp.Limits(seconds=seconds) for seconds in limits)
        with pytest.raises(dp.LimitError, match=rf"{which}: .* 0\.05 seconds"):
            outer.watched("outer", lambda inner=inner: inner.watched("inner", forever))


def test_interruptions_without_a_pause_end_with_the_watch(monkeypatch):
    # a slow machine: the next one arrives while the last one rises, at every step of its way
    monkeypatch.setattr(values, "AGAIN", 0.0)

    def deep(levels):
        try:
            while not levels:
                pass
            deep(levels - 1)
        finally:
            sorted(range(100))

    for _ in range(10):
        with pytest.raises(dp.LimitError):
            dp.Limits(seconds=0.001).watched("x", lambda: deep(40))
        for _ in range(1000):  # nothing of it arrives here
            sorted(range(10))


@pytest.mark.parametrize("value", [0, -1, math.nan, "1", True, None])
@pytest.mark.parametrize("name", ["size", "nodes", "seconds", "memory"])
def test_limits_are_positive_numbers(name, value):
    with pytest.raises(dp.DeclarationError, match=rf"Limits\.{name}"):
        dp.Limits(**{name: value})
    assert evolve(dp.Limits(), **{name: math.inf})


@pytest.mark.parametrize("engine", [None, "auto"])
def test_a_compressed_file_expands_so_far(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(csv_files, "FREE_BYTES", 10_000)
    good, bomb = tmp_path / "good.csv.gz", tmp_path / "bomb.csv.gz"
    with gzip.open(good, "wt") as file:
        file.write("x\n" + "".join(f"{i * 7919 % 10_007 / 1001}\n" for i in range(3000)))
    with gzip.open(bomb, "wt") as file:
        file.write("x\n" + "1\n" * 300_000)
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=0.01)))
    bind = (lambda p: p) if engine is None else (lambda p: dp.Files(p))
    assert round(plan.simulate(seed=1, people=bind(good))["n"]) == 3000
    with pytest.raises(dp.DataError, match=r"bomb\.csv\.gz expands to more than 200 times"):
        plan.simulate(seed=1, people=bind(bomb))


def test_refused_spends_take_milliseconds():
    with dp.Session(budget=dp.Budget(1.0, 1e-6), seed=1, people={"x": [1.0] * 9}) as session:
        session.run(PEOPLE.count().release(dp.Laplace(scale=2)))
        begun = time.process_time()
        for i in range(50):
            some = PEOPLE.filter(PEOPLE["x"] > i / 10)
            with pytest.raises(dp.BudgetError):
                session.run(some.count().release(dp.Laplace(scale=0.1 + i / 1000)))
        assert time.process_time() - begun < 1.5


def test_a_certificate_is_verified_within_the_seconds_given(tmp_path, capsys):
    people, file = dp.dataset("people", columns={"x": (0, 1)}), tmp_path / "certificate.json"
    # hundreds of different Gaussians that see different samples: minutes of accounting
    releases = {
        f"n{i}": people.sample(1 / (i + 2)).count().release(dp.Gaussian(1 + i / 10_000))
        for i in range(300)
    }
    plan = dp.Pipeline(**releases)
    short = dp.Pipeline(n=people.count().release(dp.Gaussian(1))).certify(delta=1e-6)
    forged = evolve(short, plan=plan.to_document(), fingerprint=plan.fingerprint)
    file.write_text(forged.to_json())
    begun = time.monotonic()
    assert main(["verify", str(file), "--limit-seconds", "0.2"]) == UNUSABLE
    assert time.monotonic() - begun < 10
    assert "it took longer than 0.2 seconds" in capsys.readouterr().err
    assert main(["verify", str(file), "--limit-seconds", "-1"]) == UNUSABLE
    assert "must be a positive number" in capsys.readouterr().err
    file.write_text(short.to_json())
    assert main(["verify", str(file), "--limit-seconds", "60"]) == 0


def test_what_strangers_send_is_refused_within_a_second(tmp_path, capsys):
    strangers, slow = dp.Limits.strangers(), forged().to_json()
    size, many = " " * 10**6 + "{}", PLAN.to_document()
    many["nodes"] = list(many["nodes"]) * 5_000
    for call in (
        lambda: dp.verify(dp.Certificate.from_json(slow, limits=strangers), limits=strangers),
        lambda: dp.load(many, limits=strangers),
        lambda: dp.load(size, limits=strangers),
        lambda: dp.load("a." * 200_000 + "a = 1", limits=strangers),
    ):
        begun = time.monotonic()
        with pytest.raises(dp.LimitError):
            call()
        assert time.monotonic() - begun < PATIENCE  # of a machine that may be slow
    # the command, whatever the file is: a certificate, or something that is none
    file = tmp_path / "sent.json"
    for text, said in ((slow, "0.75 seconds"), (size, "characters"), ("a" * 5 * 10**6, "bytes")):
        file.write_text(text)
        assert main(["verify", str(file), "--stranger"]) == UNUSABLE
        assert said in capsys.readouterr().err
    file.write_text(PLAN.certify().to_json())
    assert main(["verify", str(file), "--stranger"]) == 0
