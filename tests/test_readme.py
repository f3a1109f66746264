"""The code in the README and the examples runs as it is written."""

import json
import re
import runpy
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from shell import own_modules, shelled

import accountants
import adaptive_dp as dp

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("index", range(len(blocks("python"))))
def test_readme_python_runs(index, capsys):
    exec(
        compile(blocks("python")[index], f"README.md block {index}", "exec"), {"__name__": "readme"}
    )
    capsys.readouterr()


PLAN = """
import adaptive_dp as dp

people = dp.dataset("people", columns={"age": (0, 100)})
plan = dp.Pipeline(n=people.count().release(dp.Laplace(%s)))
"""
SYNTHETIC = """
import adaptive_dp as dp
people = dp.dataset("people", columns={"age": (0, 100)})
model = dp.synthesize(people, "all 1-way", edges={"age": [0, 18, 65, 100]})
plan = dp.Pipeline(model=model).calibrate(epsilon=1.0, delta=1e-6)
"""
INSTEAD = {
    "certify plan.py --epsilon": "certify free.py --epsilon",
    "synthesize plan.py": "synthesize synthetic.py",
}


def test_readme_commands_run(tmp_path, monkeypatch):
    """With a plan, the same with free noise, and the ledger of a session of a reader's own."""
    monkeypatch.chdir(tmp_path)
    Path("plan.py").write_text(PLAN % "scale=5")
    Path("free.py").write_text(PLAN % "")
    Path("people.csv").write_text("age\n30\n40\n")
    Path("synthetic.py").write_text(SYNTHETIC)
    Path("mechanism.py").write_text("def f(answers, noise): return answers[0] + noise.laplace(5)")
    cell = {"cell_type": "code", "source": "print(1)", "metadata": {}, "outputs": []}
    Path("notebook.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4, "metadata": {}}))
    people = dp.dataset("people", columns={"age": (0, 100)})
    with dp.Session(
        budget=dp.Budget(1.0), ledger="survey.db", create=True, people="people.csv"
    ) as session:
        session.run(people.count().release(dp.Laplace(scale=5)), name="number of people")
    with own_modules():
        output = "".join(shelled(block, INSTEAD) for block in blocks("sh"))
    assert "number of people" in output
    assert len(blocks("sh")) == 3


def test_readme_example_prints_what_it_shows(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example, output = re.search(
        r"```python\n(.*?)```\n+```text\n(.*?)```", text, flags=re.DOTALL
    ).groups()
    assert example == blocks("python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(path, capsys, monkeypatch):
    text = path.read_text(encoding="utf-8")
    for each in ("sklearn", "distributed", "pyarrow"):
        if re.search(rf"(import|from) {each}\b", text):
            pytest.importorskip(each)
    monkeypatch.delenv("ADAPTIVE_DP_LEDGER", raising=False)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    says = {"team.py": "verify says True"}.get(path.name, "epsilon")
    assert says in capsys.readouterr().out


def test_every_example_is_listed():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}
    assert set(re.findall(r"\(\.\./examples/([\w.]+)\)", page)) == files


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "docs/reference.md",
        "docs/architecture.md",
        "docs/learning.md",
        "docs/learning/measured.md",
    ],
)
def test_files_that_are_named_exist(file):
    path = ROOT / file
    for name in re.findall(r"\]\(([\w./-]+?)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / name).exists(), name


def test_readme_document_is_a_plan():
    (text,) = blocks("toml")
    plan = dp.load(text)
    assert plan.certify().epsilon == pytest.approx(2)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint


def test_reference_names_everything_public():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.]+)`", text))
    assert {f"dp.{name}" for name in dp.__all__} <= named
    assert {f"accountants.{name}" for name in accountants.__all__} <= named
    for name in named - {"adaptive_dp", "dp", "accountants", "adaptive_dp.schemas"}:
        package, _, rest = name.partition(".")
        if package in ("dp", "accountants"):
            public, _, inner = rest.partition(".")
            module = {"dp": dp, "accountants": accountants}[package]
            assert public in module.__all__, name
            assert not inner or hasattr(getattr(module, public), inner), name
    methods = re.findall(r"`(Pipeline|Table|Groups|Column|Vectors)\.(\w+)`", text)
    assert all(hasattr(getattr(dp, owner), method) for owner, method in methods)
    public = {name for name in vars(dp.Pipeline) if not name.startswith("_")} - {"of", "delta"}
    assert public <= {method for owner, method in methods if owner == "Pipeline"}


def test_the_public_surface_is_what_dir_shows():
    shown = {name for name in dir(dp) if not name.startswith("__")}
    assert shown == set(dp.__all__)
    assert dp.__version__ == version("adaptive-dp")
    assert all(hasattr(dp, name) for name in dp.__all__)


def test_readme_says_what_becomes_of_odd_data():
    """A missing value is left out, what is in no category is in no part, no id is no row."""
    people = dp.dataset(
        "people",
        columns={"age": (10, 90), "region": ["A", "B"]},
        unit="id",
        rows_per_unit=1,
    )
    exact = dp.Laplace(scale=1e-9)
    plan = dp.Pipeline(
        count=people.count().release(exact),
        total=people["age"].sum().release(exact),
        filled=people["age"].fill(20).sum().release(exact),
        old=people.filter(people["age"] > 80).count().release(exact),
        others=people.filter(~(people["age"] > 80)).count().release(exact),
        missing=people.filter(~people["age"].is_present()).count().release(exact),
        average=people["age"].average(exact),
        regions={k: part.count().release(exact) for k, part in people.partition("region")},
    )
    data = {
        "id": [1, 2, 3, 3, None],
        "age": [None, 500, "x", 70, 70],
        "region": ["A", "elsewhere", "B", "A", "A"],
    }
    result = plan.simulate(seed=1, people=data)
    assert result["count"] == pytest.approx(3, abs=1e-3)
    # the first of person 3's two rows is used: a person's rows are read in their order
    total = {name: round(float(result[name]), 3) for name in ("total", "filled", "average")}
    assert total == {"total": 90, "filled": 130, "average": 90}
    assert [round(result[name]) for name in ("old", "others", "missing")] == [1, 0, 2]
    assert sum(result["regions"].values()) == pytest.approx(2, abs=1e-3)
