"""The audit on the command line, and in reports."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import attrs
import broken_mechanisms
import pytest

import adaptive_dp as dp
from adaptive_dp import audit
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import FAILS, UNUSABLE
from adaptive_dp.reports.charts import audit_tradeoff
from adaptive_dp.reports.markdown import markdown
from adaptive_dp.reports.page import report

HONEST = """
import adaptive_dp as dp
people = dp.dataset("people", columns={"age": (0, 100)})
plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
"""
BROKEN = """
import accountants
import adaptive_dp as dp

class Half(dp.Mechanism):
    scale: float = dp.noise_parameter("b")

    def release(self, value, stream):
        return value + stream.laplace(self.scale / 4, value.shape)

    def loss(self, distance):
        return accountants.Laplace(distance / self.scale)

people = dp.dataset("people", columns={"age": (0, 100)})
plan = dp.Pipeline(n=people.count().release(Half(scale=1)))
"""


@pytest.fixture(name="plan")
def honest(tmp_path: Path) -> Path:
    path = tmp_path / f"audited_{tmp_path.name}.py"
    path.write_text(HONEST)
    return path


def test_a_plan_is_audited(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    options = ["--samples", "1000", "--seed", "1", "--html", str(page)]
    assert main(["audit", str(plan), *options]) == 0
    assert "epsilon is at least" in capsys.readouterr().out
    assert "empirical lower bound" in page.read_text("utf-8")
    assert main(["audit", str(plan), "--json", "--samples", "1000", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["claim"].startswith("certified")


def test_data_are_read(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "people.csv"
    table.write_text("age\n1\n2\n")
    options = ["--samples", "500", "--seed", "1", "--data", f"people={table}"]
    assert main(["audit", str(plan), *options]) == 0
    assert "as private as" in capsys.readouterr().out
    assert main(["audit", str(plan), "--data", f"others={table}"]) == UNUSABLE


def test_a_broken_plan_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    assert main(["audit", str(path), "--samples", "1500", "--seed", "1"]) == FAILS
    assert "violation" in capsys.readouterr().out


def test_strict_accepts_nothing_but_consistent(tmp_path: Path) -> None:
    """An audit that was too weak, and a warning of the static one, fail where CI asks for it."""
    path = tmp_path / "weak.py"
    path.write_text(HONEST.replace("scale=1", "scale=0.05"))
    options = [str(path), "--samples", "200", "--seed", "1"]
    assert main(["audit", *options]) == 0
    assert main(["audit", *options, "--strict"]) == FAILS
    assert main(["audit", str(path), "--static"]) == 0
    assert main(["audit", str(path), "--static", "--strict"]) == FAILS  # epsilon is 20


def test_a_static_audit_runs_nothing(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(plan), "--static"]) == 0
    assert main(["audit", str(plan), "--static", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["findings"] == []


def test_reports_show_both_bounds() -> None:
    people = dp.dataset("people", columns={"age": (0, 100)})
    plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    result = audit.pipeline(plan, samples=500, seed=1)
    paper = plan.certify()
    for text in (markdown(paper, result), report(paper, audit=result.document())):
        assert "certified upper bound" in text
        assert "empirical lower bound" in text
        assert "with confidence 0.999" in text
    assert "empirical" not in markdown(paper)


def test_the_confidence_is_an_option(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", str(plan), "--samples", "400", "--confidence", "0.999", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == 0.999


def test_reports_draw_the_audit_with_the_claim() -> None:
    """The drawing is one well-formed element with a title, a text and a table of its numbers."""
    result = audit.mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), 1.0, samples=5_000, seed=1)
    document = result.document()
    drawn = audit_tradeoff(document["tradeoff"], document["claimed"])
    root = ElementTree.fromstring(drawn)
    assert [each.tag for each in root][:2] == ["title", "desc"]
    beyond = sum(each.right > each.claimed for each in result.tradeoff())
    shown = [each for each in result.tradeoff() if each.right > 0]
    assert beyond > 0
    assert f"beyond the claim at {beyond} of {len(shown)} thresholds" in (root[1].text or "")
    filled = [each for each in root.iter("use") if each.get("fill") == "var(--plot-2)"]
    points = [each for each in filled if each.get("fill-opacity") is None]  # not the shaded part
    names = [text for text in root.itertext() if "beyond the claim" in text]
    assert len(points) == beyond + len(names) - 1  # each kind once more in the legend
    people = dp.dataset("people", columns={"age": (0, 100)})
    plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
    page = report(plan.certify(), audit=result)
    assert drawn in page
    assert "the drawing as a table" in page
    assert "right by the claim, at most" in page


def test_thresholds_are_held_to_the_least_that_both_points_allow() -> None:
    """For two points of a claim, at the corners of a small audit."""
    points = ((0.5, 0.1), (1.0, 1e-3))
    claim = audit.Claim("two points", points)
    result = audit.distinguish(broken_mechanisms.response(0.3), claim, samples=500, seed=1)
    for each in result.tradeoff():
        allowed = [1.0]
        for epsilon, delta in points:
            grows = math.exp(epsilon)
            allowed += [grows * each.wrong + delta, 1 - (1 - delta - each.wrong) / grows]
        assert min(allowed) == pytest.approx(each.claimed, rel=1e-9)


def test_an_audit_without_thresholds_is_not_drawn() -> None:
    assert audit_tradeoff([], []) == ""
    assert audit_tradeoff([], [[1.0, 0.0]]) == ""


@pytest.mark.parametrize("looped", [False, True])
def test_an_audit_tells_how_many_runs_are_left(looped: bool) -> None:
    people = dp.dataset("people", columns={"age": (0, 100)})
    if looped:  # another sample in each run: a run of the plan for each outcome
        people = people.sample(0.5)
    plan, told = dp.Pipeline(n=people.count().release(dp.Laplace(1))), []
    watched = plan.audit(samples=500, seed=1, progress=lambda *each: told.append(each))
    assert attrs.evolve(watched, seconds=0) == attrs.evolve(
        plan.audit(samples=500, seed=1), seconds=0
    )
    done, totals, left = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {done[-1]}
    assert done[-1] >= 2 * 500
    assert left[-1] == 0
    assert min(left) >= 0


def test_a_terminal_shows_the_runs(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["audit", str(plan), "--samples", "1000", "--seed", "1"]
    assert main(command) == 0
    assert "runs, about" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(command) == 0
    lines = capsys.readouterr().err.split("\r")
    assert any(line.strip().endswith("runs, about 0 s left") for line in lines)
    # nothing of it stays
    assert not lines[-2].strip()
    assert lines[-1] == ""
