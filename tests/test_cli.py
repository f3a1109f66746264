"""The command line: its exit codes, its JSON, and the files that it reads and writes."""

from __future__ import annotations

import gzip
import json
import os
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
from adaptive_dp import plugins
from adaptive_dp.cli.main import KINDS, main
from adaptive_dp.cli.output import BROKE, FAILS, UNUSABLE
from adaptive_dp.reports import page as pages
from adaptive_dp.schemas import certificate_schema, plan_schema

DONE = 0
SECRET = "SECRET7"
NAMES = ("cli_plan_one", "cli_plan_two", "cli_plan_wrong", "cli_own_mechanism")
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
                'format = "adaptive-dp/plan/2"\n'
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
        assert f"choose one with {plan}:plan" in capsys.readouterr().err
        assert main(["certify", f"{plan}:other"]) == DONE
        assert main(["certify", f"{plan}:nobody"]) == UNUSABLE
        assert "'nobody'" in capsys.readouterr().err

    def test_one_plan_of_two_names_is_one(self, files: Path) -> None:
        (files / "cli_plan_one.py").write_text(ONE + "\nagain = plan\n")
        assert main(["certify", str(files / "cli_plan_one.py")]) == DONE

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("none.json", None, "there is no plan file"),
            ("bad.json", "{", "bad.json: "),
            ("bad.json", "{", "neither JSON nor TOML"),
            ("bad.toml", "x =", "neither JSON nor TOML"),
            ("empty.json", "{}", "missing field"),
            ("binary.json", b"\xff\xfe\x00", "cannot be read as UTF-8"),
            ("cli_plan_wrong.py", "import", "cli_plan_wrong.py failed at line 1: SyntaxError: "),
            ("cli_plan_wrong.py", "x = 1\n1 / 0", "failed at line 2: ZeroDivisionError"),
            ("cli_plan_wrong.py", "raise SystemExit(0)", "failed at line 1: SystemExit"),
            ("cli_plan_wrong.py", "x = 1", "plan = dp.Pipeline(count=count)"),
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

    @pytest.mark.parametrize("beside_file", [True, False])
    def test_an_own_mechanism_is_in_the_files_folder_or_in_this_one(
        self,
        files: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        beside_file: bool,
    ) -> None:
        folder = files / "elsewhere"
        folder.mkdir()
        own = (Path(__file__).parent / "own_mechanism.py").read_text("utf-8")
        (files / "cli_own_mechanism.py").write_text(own)
        plan = "from cli_own_mechanism import Noisy\n" + ONE
        (files / "cli_plan_two.py").write_text(
            plan + "mine = dp.Pipeline(n=people.count().release(Noisy(width=2.0)))\n"
        )
        source = f"{files / 'cli_plan_two.py'}:mine"
        assert main(["show", source, "--json"]) == DONE
        place = files if beside_file else folder
        (place / "plan.json").write_text(out(capsys))
        assert main(["certify", source, "--json"]) == DONE
        (place / "paper.json").write_text(out(capsys))
        monkeypatch.chdir(folder if beside_file else files)
        for command, name in (("certify", "plan.json"), ("verify", "paper.json")):
            sys.path[:] = [entry for entry in sys.path if entry != str(files)]
            sys.modules.pop("cli_own_mechanism", None)
            assert main([command, str(place / name)]) == UNUSABLE
            assert "--allow cli_own_mechanism" in capsys.readouterr().err
            assert main([command, str(place / name), "--allow", "cli_own_mechanism"]) == DONE


FREE = ONE.replace("scale=1)", "scale=dp.Free('b'))").replace("scale=10)", "scale=dp.Free('c'))")


class TestBudget:
    def test_free_noise_is_calibrated_on_the_spot(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = files / "cli_plan_one.py"
        plan.write_text(FREE)
        for command in ("certify", "run"):
            assert main([command, str(plan)]) == UNUSABLE
            shown = capsys.readouterr().err
            assert "is free (b, c); pass --epsilon E" in shown
        assert main(["certify", str(plan), "--epsilon", "2", "--delta", "1e-6", "--json"]) == DONE
        claim = json.loads(out(capsys))["claim"]
        assert 1.99 < claim["epsilon"] <= 2
        assert claim["delta"] == 1e-6
        data = ["--data", f"people={files / 'people.csv'}"]
        assert main(["run", str(plan), *data, "--epsilon", "0.5", "--json"]) == DONE
        assert json.loads(out(capsys))["certificate"]["claim"]["epsilon"] <= 0.5
        assert main(["certify", str(plan), "--epsilon", "-1"]) == UNUSABLE

    def test_fixed_noise_is_not(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["certify", str(files / "cli_plan_one.py"), "--epsilon", "1"]) == UNUSABLE
        assert "is fixed; leave out --epsilon" in capsys.readouterr().err

    def test_a_run_at_a_delta(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data = ["--data", f"people={files / 'people.csv'}"]
        plan = str(files / "cli_plan_one.py")
        assert main(["run", plan, *data, "--delta", "1e-6", "--json"]) == DONE
        assert json.loads(out(capsys))["certificate"]["claim"]["delta"] == 1e-6
        assert main(["run", plan, *data, "--delta", "2", "--json"]) == UNUSABLE


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
        self, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for section in ("_curves", "_what_if"):  # which take seconds; the demo writes them
            monkeypatch.setattr(pages, section, lambda *_: None)
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
            ([], None, "the plan reads people; pass --data people=FILE"),
            (["people"], None, "--data needs NAME=FILE"),
            (["people=none.csv"], None, "there is no file"),
            (["other=people.csv"], None, "the plan has no data set 'other'"),
            (["people=people.csv", "people=people.csv"], None, "one data set twice"),
            (["people=new.txt"], SECRET, "ends in .csv, .csv.gz or .parquet"),
            (["people=new.csv"], "", "none of the columns"),
            (["people=new.csv"], f"{SECRET},age\n1,2\n", "no column 'region', 'id'"),
            (["people=new.csv"], "id,id\n1,2\n", "column names repeat"),
            (["people=new.csv.gz"], SECRET, "cannot be read as a CSV"),
            (
                ["people=new.csv.gz"],
                gzip.compress(b"id,age,region\n" * 50, mtime=0)[:-9],
                "cannot be read as a CSV",
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

    def test_strings_among_numbers_are_not_numbers(
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
        assert "ValueError in half" in shown.err
        assert SECRET not in shown.err
        assert shown.out == ""

    def test_a_function_that_is_not_there(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["show", str(files / "cli_plan_one.py"), "--json"])
        text = out(capsys).replace("cli_plan_one:half", "cli_plan_gone:half")
        (files / "plan.json").write_text(text)
        data = f"people={files / 'people.csv'}"
        arguments = ["run", str(files / "plan.json"), "--data", data]
        assert main(arguments) == UNUSABLE
        assert "--allow cli_plan_gone" in capsys.readouterr().err
        assert main([*arguments, "--allow", "cli_plan_gone"]) == BROKE
        assert "'cli_plan_gone'" in capsys.readouterr().err

    @pytest.mark.parametrize("option", ["--html", "--certificate"])
    def test_nothing_is_released_where_nothing_can_be_written(
        self, files: Path, monkeypatch: pytest.MonkeyPatch, option: str
    ) -> None:
        monkeypatch.setattr(dp.Laplace, "release", lambda *_: pytest.fail("released"))
        data = f"people={files / 'people.csv'}"
        for place in (files, files / "no" / "where"):
            arguments = ["run", str(files / "cli_plan_one.py"), "--data", data, option, str(place)]
            assert main(arguments) == UNUSABLE

    def test_the_unit_is_text_even_where_it_is_declared(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = ONE.replace('"age": (0, 100)', '"id": None, "age": (0, 100)')
        (files / "cli_plan_one.py").write_text(text.replace("scale=1)", "scale=1e-6)"))
        data = f"people={files / 'people.csv'}"
        arguments = ["run", str(files / "cli_plan_one.py"), "--data", data, "--simulate", "1"]
        assert main([*arguments, "--json"]) == DONE
        assert json.loads(out(capsys))["values"]["count"] == pytest.approx(3, abs=1e-3)

    @pytest.mark.parametrize(
        "value",
        [
            "(value, 1)",
            "{1, 2}",
            "[]",
            "__import__('pandas').DataFrame({'a': [value]})",
            "__import__('numpy').array(['a', 'b'])",
            "10 ** 400",
            "10 ** 5000",
            "value * 1j",
            "__import__('decimal').Decimal(1)",
            "__import__('numpy').datetime64('2020-01-01')",
            "print",
            "'\\ud800\\u202e'",
        ],
    )
    @pytest.mark.usefixtures("undrawn")  # figures know no values
    @pytest.mark.parametrize("options", [[], ["--json"]])
    def test_whatever_a_function_returns_is_printed_and_written(
        self,
        files: Path,
        capsys: pytest.CaptureFixture[str],
        value: str,
        options: list[str],
    ) -> None:
        (files / "cli_plan_one.py").write_text(ONE.replace("value / 2", value))
        page = files / "page.html"
        data = ["--data", f"people={files / 'people.csv'}", "--html", str(page)]
        assert main(["run", str(files / "cli_plan_one.py"), *data, *options]) == DONE
        shown = out(capsys)
        assert "half" in shown
        assert "half" in page.read_text("utf-8")
        if options:
            json.loads(shown, parse_constant=pytest.fail)

    @pytest.mark.parametrize("option", ["--html", "--certificate"])
    def test_values_are_printed_where_a_file_fails_after_the_release(
        self,
        files: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        option: str,
    ) -> None:
        for section in ("_curves", "_what_if"):  # which take seconds; another test writes them
            monkeypatch.setattr(pages, section, lambda *_: None)
        place = files / "there.out"
        written = Path.write_text

        def full(path: Path, *rest: Any, **more: Any) -> int:
            if path == place:
                raise OSError(28, "No space left on device")
            return written(path, *rest, **more)

        monkeypatch.setattr(Path, "write_text", full)
        data = f"people={files / 'people.csv'}"
        other = {"--html": "--certificate", "--certificate": "--html"}[option]
        arguments = ["run", str(files / "cli_plan_one.py"), "--data", data, option, str(place)]
        assert main([*arguments, other, str(files / "other.out")]) == BROKE
        shown = capsys.readouterr()
        assert "parts.A" in shown.out
        assert "there.out" in shown.err
        assert (files / "other.out").stat().st_size > 1000

    def test_a_defect_is_one_line_and_tells_no_data(
        self, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any, **__: Any) -> None:
            raise KeyError(SECRET)

        monkeypatch.setattr(dp.Pipeline, "run", broken)
        data = f"people={files / 'people.csv'}"
        assert main(["run", str(files / "cli_plan_one.py"), "--data", data]) == BROKE
        shown = capsys.readouterr()
        assert shown.err.splitlines()[-1].startswith("adaptive-dp: unexpected KeyError in test_cli")
        assert SECRET not in shown.err
        monkeypatch.setattr(dp.Pipeline, "certify", broken)
        assert main(["certify", str(files / "cli_plan_one.py")]) == BROKE
        assert SECRET in capsys.readouterr().err

    def test_a_reader_that_leaves_is_no_error(self, files: Path) -> None:
        paper = files / "paper.json"
        command = f"{sys.executable} -m adaptive_dp run cli_plan_one.py --data people=people.csv"
        shell = f"set -o pipefail; {command} --certificate {paper} | true"
        done = subprocess.run(
            ["bash", "-c", shell], capture_output=True, text=True, cwd=files, env=here()
        )
        assert done.returncode == DONE
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
        assert paper.stat().st_size > 1000

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    def test_files_are_written_where_nothing_can_be_printed(self, files: Path) -> None:
        command = f"{sys.executable} -m adaptive_dp run cli_plan_one.py --data people=people.csv"
        done = subprocess.run(
            ["bash", "-c", f"{command} --certificate paper.json > /dev/full"],
            capture_output=True,
            text=True,
            cwd=files,
            env=here(),
        )
        assert done.returncode == BROKE
        assert "the values could not be written" in done.stderr
        assert (files / "paper.json").stat().st_size > 1000


def here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


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
        assert set(json.loads(out(capsys))) == {"values", "low", "high", "certificate"}
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
        document = PLANS["columns"]().certify(1e-6).to_document()
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper)]) == DONE
        document["claim"]["epsilon"] *= 0.9
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper)]) == FAILS
        assert out(capsys).splitlines()[-1].startswith("does not hold: claim.epsilon: claimed ")
        assert main(["verify", str(paper), "--json"]) == FAILS
        assert json.loads(out(capsys))["holds"] is False
        paper.write_text("{}")
        assert main(["verify", str(paper)]) == UNUSABLE
        assert main(["verify", str(files / "none.json")]) == UNUSABLE
        assert main(["verify", str(files)]) == UNUSABLE

    def test_a_second_opinion(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It is printed below the verdict; a claim that it refutes fails."""
        pytest.importorskip("flint")
        paper = files / "paper.json"
        document = PLANS["columns"]().certify(1e-6).to_document()
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper), "--independent"]) == DONE
        assert out(capsys).splitlines()[-1].startswith("in ball arithmetic: confirmed: delta at ")
        document["claim"]["epsilon"] *= 0.9
        paper.write_text(json.dumps(document))
        assert main(["verify", str(paper), "--independent", "--json"]) == FAILS
        assert json.loads(out(capsys))["independent"]["verdict"] == "refuted"

    def test_errors_name_the_file(self, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (files / "paper.json").write_text("{}")
        assert main(["verify", str(files / "paper.json")]) == UNUSABLE
        assert "paper.json: not a certificate" in capsys.readouterr().err

    def test_says_whom_it_protects_at_which_delta(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        paper = files / "paper.json"
        paper.write_text(PLANS["columns"]().certify(1e-6).to_json())
        assert main(["verify", str(paper)]) == DONE
        shown = out(capsys)
        assert "at delta = 1e-06\nprotects one id with at most 2 rows of 'people'" in shown
        assert "NOT FOR RELEASE" not in shown
        people = dp.dataset("people", columns={})
        plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
        result = plan.simulate(seed=7, people={"a": [1]})
        paper.write_text(result.certificate.to_json())
        assert main(["verify", str(paper)]) == DONE
        assert "NOT FOR RELEASE (seed 7)" in out(capsys)
        assert main(["verify", str(paper), "--json"]) == DONE
        document = json.loads(out(capsys))
        assert document["release"] is False
        assert document["protects"] == ["one row of 'people', added or removed"]


class TestArguments:
    @pytest.mark.parametrize(
        "arguments", [[], ["unknown"], ["certify"], ["certify", "p", "--delta", "x"]]
    )
    def test_unusable(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == UNUSABLE

    def test_help_imports_nothing_but_arguments(self) -> None:
        code = (
            "import sys\n"
            "from adaptive_dp.cli.main import main\n"
            "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
            "print(*sys.modules, sep='\\n', file=sys.stderr)\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "COMMAND" in ran.stdout
        imported = set(ran.stderr.split())
        assert "adaptive_dp.cli.main" in imported
        assert not imported & {"numpy", "scipy", "networkx", "attrs", "attr"}
        ours = {
            name for name in imported if name.partition(".")[0] in ("adaptive_dp", "accountants")
        }
        assert ours == {
            "accountants",
            "accountants.later",
            "adaptive_dp",
            "adaptive_dp.cli",
            "adaptive_dp.cli.main",
            "adaptive_dp.extensions",
        }

    def test_list_knows_the_kinds_of_plugins(self) -> None:
        assert KINDS == plugins.KINDS

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--version"])
        assert caught.value.code == DONE
        assert out(capsys).strip() == f"adaptive-dp {dp.__version__}"

    def test_a_report_is_refused_before_it_is_made(
        self, files: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dp.Pipeline, "certify", lambda *_: pytest.fail("certified"))
        place = str(files / "no" / "where.html")
        assert main(["certify", str(files / "cli_plan_one.py"), "--html", place]) == UNUSABLE

    def test_a_page_that_cannot_be_made_is_refused_before_anything_is_spent(
        self,
        files: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        monkeypatch.setattr(dp.Pipeline, "run", lambda *_, **__: pytest.fail("it has run"))
        data = ["--data", f"people={files / 'people.csv'}", "--html", str(files / "page.html")]
        assert main(["run", str(files / "cli_plan_one.py"), *data]) == UNUSABLE
        assert "adaptive-dp[report]" in capsys.readouterr().err

    def test_codes_are_documented(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--help"])
        assert caught.value.code == DONE
        text = " ".join(out(capsys).split())
        assert (
            "0 done; 1 a certificate or a ledger does not hold, an audit refutes a plan, a "
            "function is not proved, epsilon is above --at-most, a ledger's budget refuses a "
            "run, two plans differ, or a strict trace found something; 2 unusable "
            "arguments" in text
        )
        assert (FAILS, UNUSABLE, BROKE) == (1, 2, 3)

    @pytest.mark.parametrize("delta", ["1", "-1", "nan"])
    def test_deltas(self, files: Path, capsys: pytest.CaptureFixture[str], delta: str) -> None:
        assert main(["certify", str(files / "cli_plan_one.py"), f"--delta={delta}"]) == UNUSABLE
        assert "delta must be" in capsys.readouterr().err


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Where the demo wrote its files, and what it printed: in a process of its own."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "adaptive_dp", "demo", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == DONE, done.stderr
    return folder, done.stdout, done.stderr


def test_the_demo_from_start_to_verdict(demo: tuple[Path, str, str]) -> None:
    folder, _, _ = demo
    paper, changed = folder / "demo-certificate.json", folder / "changed.json"
    certificate = json.loads(paper.read_text())
    jsonschema.Draft202012Validator(certificate_schema()).validate(certificate)
    assert certificate["claim"]["epsilon"] <= 2
    assert (folder / "demo-report.html").stat().st_size > 1000
    assert main(["verify", str(paper)]) == DONE
    changed.write_text(paper.read_text().replace('"rows": 5', '"rows": 1'))
    assert main(["verify", str(changed)]) == FAILS


def test_the_demo_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for section in ("_curves", "_what_if"):  # which take seconds; `demo` writes them
        monkeypatch.setattr(pages, section, lambda *_: None)
    assert main(["demo", "--out", str(tmp_path), "--json"]) == DONE
    result = json.loads(out(capsys))
    jsonschema.Draft202012Validator(certificate_schema()).validate(result["certificate"])
    assert np.isfinite(result["values"]["mean_income"])


def test_the_demo_answers_first_in_forty_lines(demo: tuple[Path, str, str]) -> None:
    _, printed, said_beside = demo
    lines = printed.splitlines()
    assert len(lines) + len(said_beside.splitlines()) <= 40
    assert lines[0].split() == ["output", "value", "95%", "interval"]
    assert "health_by_age[poor, [45, 70]]" in printed
    assert "spending_quartiles[0.25]" in printed
    (said,) = [line for line in lines if line.startswith("Promised to each person of people")]
    assert "(up to 5 rows)" in said
    assert "7.390-fold, but for a chance of 1 in 1,000,000" in said  # exp(2) = 7.38905...
    assert "accountant" not in printed


def test_run_prints_the_rest_where_it_is_asked_for(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", str(files / "cli_plan_one.py"), f"--data=people={files / 'people.csv'}"]
    assert main(command) == DONE
    short = out(capsys)
    assert "Promised to each id of people (up to 1 row)" in short
    assert "tightest" not in short
    assert main([*command, "--verbose"]) == DONE
    long = out(capsys)
    assert long.index("value") < long.index("Promised") < long.index("tightest")
    assert "visibility" in long


NOISY = """
import adaptive_dp as dp
people = dp.dataset("people", columns={{"age": (0, 100)}})
plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale={scale})))
"""


def test_a_claim_that_is_too_large_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For CI: the certificate is printed all the same."""
    path = tmp_path / "claimed_plan.py"
    path.write_text(NOISY.format(scale=2))
    assert main(["certify", str(path), "--at-most", "0.5"]) == DONE
    assert main(["certify", str(path), "--at-most", "0.49"]) == FAILS
    printed = capsys.readouterr()
    assert "epsilon 0.5 at delta 0 is above the 0.49" in printed.err
    assert "epsilon <= 0.5" in printed.out


def test_two_versions_of_a_plan_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, scale in (("old", 2), ("new", 1), ("same", 2)):
        paths.append(tmp_path / f"{name}_version.py")
        paths[-1].write_text(NOISY.format(scale=scale))
    old, new, same = map(str, paths)
    assert main(["diff", old, same]) == DONE
    assert "no node differs" in capsys.readouterr().out
    assert main(["diff", old, new]) == FAILS
    text = capsys.readouterr().out
    assert "Laplace(scale=2) -> release Laplace(scale=1)" in text
    assert "epsilon 0.5 at delta 0 -> epsilon 1 at delta 0" in text
    assert main(["diff", old, new, "--json", "--at-most", "0.9"]) == FAILS
    printed = capsys.readouterr()
    assert json.loads(printed.out)["epsilon"] == [0.5, 1.0]
    assert "above the 0.9" in printed.err
