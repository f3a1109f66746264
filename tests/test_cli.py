"""The command line: its exit codes, its JSON, and the files that it reads and writes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
from plans import PLANS

import adaptive_dp as dp
from adaptive_dp.cli import BROKE, FAILS, UNUSABLE, main
from adaptive_dp.schemas import certificate_schema, plan_schema

DONE = 0
SECRET = "SECRET7"
NAMES = ("cli_plan_one", "cli_plan_two", "cli_plan_wrong")
ROOT = Path(__file__).parent.parent

ONE = """
import adaptive_dp as dp

people = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B"]}, unit="id")


def half(value):
    return value / 2


count = people.count().release(dp.Laplace(scale=1))
total = people["age"].sum().release(dp.Laplace(scale=10))
parts = {k: p.count().release(dp.Laplace(scale=1)) for k, p in people.partition("region")}
plan = dp.Pipeline(count=count, half=dp.post(half, total), parts=parts)
"""
TWO = ONE + "\nother = dp.Pipeline(count=count)\n"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cli_plan_one.py").write_text(ONE)
    (tmp_path / "cli_plan_two.py").write_text(TWO)
    people = {"id": ["a", "a", "b", "c"], "age": [30.0, 40.0, 50.0, 500.0], "region": list("AABB")}
    pl.DataFrame(people).write_csv(tmp_path / "people.csv")
    with gzip.open(tmp_path / "people.csv.gz", "wt") as file:
        file.write((tmp_path / "people.csv").read_text())
    pl.DataFrame(people).write_parquet(tmp_path / "people.parquet")
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in NAMES:
        sys.modules.pop(name, None)


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


class TestPlans:
    @pytest.mark.parametrize("form", ["py", "py:plan", "json", "toml"])
    def test_every_form(self, files: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
        plan = files / "cli_plan_one.py"
        if form == "json":
            assert main(["show", str(plan), "--json"]) == DONE
            plan = files / "plan.json"
            plan.write_text(out(capsys))
        if form == "toml":
            plan = files / "plan.toml"
            plan.write_text(
                'format = "adaptive-dp/plan/1"\n'
                'nodes = [{ id = "people", kind = "dataset", name = "people", columns = {} },\n'
                '{ id = "count", kind = "count", inputs = ["people"] },\n'
                '{ id = "n", kind = "release", inputs = ["count"], '
                'mechanism = { mechanism = "Laplace", scale = 1 } }]\n'
                'outputs = [{ path = ["n"], node = "n" }]\n'
            )
        name = f"{plan}:plan" if form == "py:plan" else str(plan)
        assert main(["certify", name]) == DONE
        assert f"epsilon <= {1 if form == 'toml' else 12}" in out(capsys)

    def test_of_two_plans_one_is_chosen(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = str(files / "cli_plan_two.py")
        assert main(["certify", plan]) == UNUSABLE
        assert "choose one with" in capsys.readouterr().err
        assert main(["certify", f"{plan}:other"]) == DONE
        assert main(["certify", f"{plan}:nobody"]) == UNUSABLE

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("none.json", None, "there is no plan file"),
            ("bad.json", "{", "neither JSON nor TOML"),
            ("bad.toml", "x =", "neither JSON nor TOML"),
            ("empty.json", "{}", "missing field"),
            ("binary.json", b"\xff\xfe\x00", "cannot be read as UTF-8"),
            ("cli_plan_wrong.py", "import", "failed: SyntaxError"),
            ("cli_plan_wrong.py", "1 / 0", "failed: ZeroDivisionError"),
            ("cli_plan_wrong.py", "raise SystemExit(0)", "failed: SystemExit"),
            ("cli_plan_wrong.py", "x = 1", "must define one Pipeline"),
            ("cli_plan_wrong.py", "import adaptive_dp as d; d.Laplace(scale=-1)", "Laplace.scale"),
            ("json.py", ONE, "would hide the module 'json'"),
            ("wave.py", ONE, "would hide the module 'wave'"),
        ],
    )
    def test_what_is_no_plan(
        self,
        files: Path,
        capsys: pytest.CaptureFixture[str],
        name: str,
        text: str | bytes | None,
        message: str,
    ) -> None:
        if text is not None:
            (files / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        assert main(["certify", str(files / name)]) == UNUSABLE
        shown = capsys.readouterr()
        assert shown.err.startswith("adaptive-dp: ")
        assert message in shown.err
        assert shown.out == ""
        assert json.dumps({}) == "{}"

    def test_an_own_mechanism_is_allowed_by_name(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from own_mechanism import Noisy

        plan = dp.Pipeline(n=dp.dataset("t", columns={}).count().release(Noisy(width=1.0)))
        (files / "plan.json").write_text(plan.to_json())
        (files / "paper.json").write_text(plan.certify().to_json())
        for command, name in (("certify", "plan.json"), ("verify", "paper.json")):
            assert main([command, str(files / name)]) == UNUSABLE
            assert "--allow own_mechanism" in capsys.readouterr().err
            assert main([command, str(files / name), "--allow", "own_mechanism"]) == DONE


class TestRun:
    @pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
    def test_every_file(self, files: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
        plan, table = str(files / "cli_plan_one.py"), f"people={files / 'people'}.{ending}"
        arguments = ["run", plan, "--data", table, "--simulate", "3", "--json"]
        assert main(arguments) == DONE
        first = json.loads(out(capsys))
        assert first["values"]["count"] == pytest.approx(3, abs=15)
        assert first["values"]["parts"].keys() == {"A", "B"}
        assert first["certificate"]["randomness"]["release"] is False
        jsonschema.Draft202012Validator(certificate_schema()).validate(first["certificate"])

    def test_every_file_is_the_same_data(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seen = set()
        for ending in ("csv", "csv.gz", "parquet"):
            arguments = [
                str(files / "cli_plan_one.py"),
                "--data",
                f"people={files / 'people'}.{ending}",
            ]
            assert main(["run", *arguments, "--simulate", "3"]) == DONE
            seen.add(out(capsys))
        assert len(seen) == 1
        assert "NOT FOR RELEASE" in seen.pop()

    def test_a_release_writes_report_and_certificate(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = f"people={files / 'people.csv'}"
        page, paper = files / "page.html", files / "paper.json"
        arguments = ["run", str(files / "cli_plan_one.py"), "--data", data]
        assert main([*arguments, "--html", str(page), "--certificate", str(paper)]) == DONE
        assert "NOT FOR RELEASE" not in out(capsys)
        assert page.read_text("utf-8").startswith("<!")
        assert main(["verify", str(paper)]) == DONE
        assert out(capsys).startswith("holds: epsilon <= 12")

    @pytest.mark.parametrize(
        ("data", "content", "message"),
        [
            ([], None, "run was given []"),
            (["people"], None, "--data needs NAME=FILE"),
            (["people=none.csv"], None, "there is no file"),
            (["other=people.csv"], None, "the plan has no data set 'other'"),
            (["people=people.csv", "people=people.csv"], None, "one data set twice"),
            (["people=new.txt"], SECRET, "ends in .csv, .csv.gz or .parquet"),
            (["people=new.csv"], "", "no column"),
            (["people=new.csv"], f"{SECRET},age\n1,2\n", "no column 'region', 'id'"),
            (["people=new.csv"], "id,id\n1,2\n", "column names repeat"),
            (["people=new.csv"], b"id,age,region\n\xff\xfe,1,A\n", "not a UTF-8 CSV"),
            (["people=new.csv"], b'id,age,region\n"' + b"x" * 200_000, "not a UTF-8 CSV"),
            (["people=new.csv.gz"], SECRET, "not a UTF-8 CSV"),
            (
                ["people=new.csv.gz"],
                gzip.compress(b"id,age,region\n" * 50, mtime=0)[:-9],
                "not a UTF-8 CSV",
            ),
            (["people=new.parquet"], SECRET, "is not a Parquet file"),
            (
                ["people=new.parquet"],
                b"PAR1" + SECRET.encode() * 9 + b"PAR1",
                "is not a Parquet file",
            ),
        ],
    )
    def test_data_that_cannot_be_read(
        self,
        files: Path,
        capsys: pytest.CaptureFixture[str],
        data: list[str],
        content: Any,
        message: str,
    ) -> None:
        arguments = ["run", str(files / "cli_plan_one.py")]
        for text in data:
            name, equals, file = text.partition("=")
            arguments += ["--data", f"{name}={files / file}" if equals else name]
            if content is not None:
                (files / file).write_bytes(
                    content if isinstance(content, bytes) else content.encode()
                )
        assert main(arguments) == UNUSABLE
        shown = capsys.readouterr()
        assert message in shown.err
        assert SECRET not in shown.err + shown.out

    def test_texts_among_numbers_are_no_number(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (files / "new.csv").write_text(f"id,age,region\na,{SECRET},A\nb,,?\nc\n")
        plan, data = str(files / "cli_plan_one.py"), f"people={files / 'new.csv'}"
        assert main(["run", plan, "--data", data]) == DONE
        shown = capsys.readouterr()
        assert SECRET not in shown.err + shown.out

    def test_a_plan_that_fails_as_it_runs(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = ONE.replace("return value / 2", f"raise ValueError('{SECRET}', value)")
        (files / "cli_plan_one.py").write_text(text)
        data = f"people={files / 'people.csv'}"
        assert main(["run", str(files / "cli_plan_one.py"), "--data", data]) == BROKE
        shown = capsys.readouterr()
        assert "node 'half' failed (ValueError in half" in shown.err
        assert SECRET not in shown.err
        assert shown.out == ""

    def test_a_function_that_is_not_there(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["show", str(files / "cli_plan_one.py"), "--json"])
        text = out(capsys).replace("cli_plan_one:half", "cli_plan_gone:half")
        (files / "plan.json").write_text(text)
        data = f"people={files / 'people.csv'}"
        assert main(["run", str(files / "plan.json"), "--data", data]) == BROKE
        assert "module 'cli_plan_gone' cannot be imported" in capsys.readouterr().err

    @pytest.mark.parametrize("option", ["--html", "--certificate"])
    def test_nothing_is_released_where_nothing_can_be_written(
        self, files: Path, monkeypatch: pytest.MonkeyPatch, option: str
    ) -> None:
        monkeypatch.setattr(dp.Laplace, "release", lambda *_: pytest.fail("released"))
        data = f"people={files / 'people.csv'}"
        for place in (files, files / "no" / "where"):
            arguments = ["run", str(files / "cli_plan_one.py"), "--data", data, option, str(place)]
            assert main(arguments) == UNUSABLE


class TestShow:
    @pytest.mark.parametrize("form", ["table", "svg", "mermaid", "document"])
    def test_every_form(self, files: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
        assert main(["show", str(files / "cli_plan_one.py"), "--as", form]) == DONE
        text = out(capsys)
        begin = {"table": "node", "svg": "<svg", "mermaid": "", "document": "{"}[form]
        assert text.startswith(begin)
        assert "half" in text


class TestJson:
    def test_every_command(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        plan, data = str(files / "cli_plan_one.py"), f"people={files / 'people.csv'}"
        assert main(["certify", plan, "--json"]) == DONE
        text = out(capsys)
        jsonschema.Draft202012Validator(certificate_schema()).validate(json.loads(text))
        (files / "paper.json").write_text(text)
        assert main(["show", plan, "--json"]) == DONE
        jsonschema.Draft202012Validator(plan_schema()).validate(json.loads(out(capsys)))
        assert main(["show", plan, "--as", "svg", "--json"]) == DONE
        json.loads(out(capsys))
        assert main(["run", plan, "--data", data, "--json"]) == DONE
        assert set(json.loads(out(capsys))) == {"values", "noise", "certificate"}
        assert main(["verify", str(files / "paper.json"), "--json"]) == DONE
        assert json.loads(out(capsys))["holds"] is True

    def test_numbers_that_json_lacks(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = ONE.replace("return value / 2", "return [float('nan'), float('inf'), {1: None}]")
        (files / "cli_plan_one.py").write_text(text)
        data = f"people={files / 'people.csv'}"
        assert main(["run", str(files / "cli_plan_one.py"), "--data", data, "--json"]) == DONE
        assert json.loads(out(capsys), parse_constant=pytest.fail)["values"]["half"][:2] == [
            "nan",
            "inf",
        ]


class TestVerify:
    def test_codes(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        paper = files / "paper.json"
        document = PLANS["columns"]().certify(1e-6).document
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper)]) == DONE
        document["claim"]["epsilon"] *= 0.9
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper)]) == FAILS
        assert out(capsys).splitlines()[-1].startswith("does not hold: the claim is epsilon = ")
        assert main(["verify", str(paper), "--json"]) == FAILS
        assert json.loads(out(capsys))["holds"] is False
        paper.write_text("{}")
        assert main(["verify", str(paper)]) == UNUSABLE
        assert main(["verify", str(files / "none.json")]) == UNUSABLE
        assert main(["verify", str(files)]) == UNUSABLE


class TestArguments:
    @pytest.mark.parametrize(
        "arguments", [[], ["unknown"], ["certify"], ["certify", "p", "--delta", "x"]]
    )
    def test_unusable(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == UNUSABLE

    def test_codes_are_documented(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--help"])
        assert caught.value.code == DONE
        text = " ".join(out(capsys).split())
        assert (
            "0 done; 1 a certificate does not hold; 2 unusable arguments, plan or data; 3" in text
        )
        assert (FAILS, UNUSABLE, BROKE) == (1, 2, 3)

    @pytest.mark.parametrize("delta", ["1", "-1", "nan"])
    def test_deltas(self, files: Path, capsys: pytest.CaptureFixture[str], delta: str) -> None:
        assert main(["certify", str(files / "cli_plan_one.py"), f"--delta={delta}"]) == UNUSABLE
        assert "delta must be" in capsys.readouterr().err


def test_the_demo_from_start_to_verdict(tmp_path: Path) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "adaptive_dp", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    done = call("demo", "--out", str(tmp_path), "--json")
    assert done.returncode == DONE, done.stderr
    result = json.loads(done.stdout)
    jsonschema.Draft202012Validator(certificate_schema()).validate(result["certificate"])
    assert result["certificate"]["claim"]["epsilon"] <= 2
    assert np.isfinite(result["values"]["mean_income"])
    assert (tmp_path / "demo-report.html").stat().st_size > 1000
    paper = tmp_path / "demo-certificate.json"
    assert call("verify", str(paper)).returncode == DONE
    paper.write_text(paper.read_text().replace('"rows": 5', '"rows": 1'))
    assert call("verify", str(paper)).returncode == FAILS
