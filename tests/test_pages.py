"""The code in the pages of the documentation runs as it is written."""

import doctest
import io
import json
import linecache
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest
from shell import own_modules, shelled

from adaptive_dp.cli.main import main
from adaptive_dp.plugins import KINDS

PAGES = Path(__file__).parent.parent / "docs"


NEEDS = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs the sklearn extra")
OPTIONAL = (
    "sklearn",
    "dp_accounting",
    "pandas",
    "polars",
    "pyarrow",
    "opendp",
    "matplotlib",
    "distributed",
    "flint",
    "torch",
    "jax",
    "optax",
)
BLOCK = re.compile(
    r"^```(python|console|sh)\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
SAME = doctest.OutputChecker()


def pages() -> list[object]:
    """Return all pages that have a block to run; instance.md has a test of its own."""
    parameters = []
    for file in sorted(PAGES.rglob("*.md")):
        name = file.relative_to(PAGES).as_posix()
        text = file.read_text(encoding="utf-8")
        if name != "instance.md" and "_build" not in file.parts and BLOCK.search(text):
            missing = [
                each
                for each in OPTIONAL
                if find_spec(each) is None
                and (
                    re.search(rf"^(import|from) {each}\b", text, re.MULTILINE)
                    or (each in ("sklearn", "matplotlib") and each in text)
                    or (each == "distributed" and "--engine dask://" in text)
                )
            ]
            needs = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
            parameters.append(pytest.param(name, marks=needs))
    return parameters


def commanded(block: str) -> str:
    """Run the commands of a console block, and return it with what they print."""
    shown = []
    for line in block.splitlines():
        if line.startswith("$ "):
            shown.append(line + "\n")
            out, code = io.StringIO(), 0
            with redirect_stdout(out), redirect_stderr(out):
                try:
                    code = main(shlex.split(line.removeprefix("$ adaptive-dp "), comments=True))
                except SystemExit as stop:
                    code = stop.code
            shown.append(out.getvalue() + (f"exit code {code}\n" if code else ""))
    return "".join(shown)


@contextmanager
def scheduler(block: str) -> Iterator[str]:
    """Run a Dask cluster where a block asks for one, and return where it answers."""
    if "dask://" not in block:
        yield ""
        return
    from distributed import LocalCluster

    options = {"processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster:
        yield cluster.scheduler_address.removeprefix("tcp://")


@pytest.mark.parametrize("name", pages())
def test_every_block_runs(
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Python blocks run in order; a text block right after one is what it prints.

    One that begins with a comment such as ``# plan.py`` is written to that file as well. The
    commands of a console block print what follows them, where ``...`` stands for anything; those
    of a shell block succeed.
    """
    text = (PAGES / name).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": name.removesuffix(".md")}
    ran = ""
    for i, (language, block, expected) in enumerate(BLOCK.findall(text)):
        if language == "sh":
            with own_modules(), scheduler(block) as address:
                ran += shelled(block, {"HOST:8786": address})
            continue
        if language == "console":
            with own_modules():
                ran += (out := commanded(block))
            assert SAME.check_output(block, out, doctest.ELLIPSIS), (
                f"{name} block {i} prints:\n{out}"
            )
            continue
        if file := re.match(r"# (\w+\.py)\n", block):
            Path(file[1]).write_text(block, encoding="utf-8")
        # the source of a function in it is found, as in a notebook
        lines = block.splitlines(keepends=True)
        linecache.cache[f"{name} block {i}"] = (len(block), None, lines, f"{name} block {i}")
        exec(compile(block, f"{name} block {i}", "exec"), names)
        out = capsys.readouterr().out
        assert not expected or SAME.check_output(expected, out, doctest.ELLIPSIS), (
            f"{name} block {i} prints:\n{out}"
        )
        ran += out
    assert ran


def test_every_block_is_of_a_kind_that_is_run() -> None:
    """Of a plug-in's pyproject.toml that it names objects; `test_ledger_postgres` runs SQL."""
    kinds = {"python", "console", "sh", "text", "toml", "sql"}
    for file in PAGES.rglob("*.md"):
        if "_build" not in file.parts:
            blocks = re.findall(r"^```(\w+)\n(.*?)^```", file.read_text("utf-8"), re.DOTALL | re.M)
            assert {language for language, _ in blocks} <= kinds, file
            for language, block in blocks:
                assert block.strip(), (
                    f"{file}: a {language} block is empty, and compared with nothing"
                )
                if language == "toml":
                    points = tomllib.loads(block)["project"]["entry-points"]
                    assert set(points) <= {f"adaptive_dp.{kind}" for kind in KINDS}


@NEEDS
def test_the_notebook_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    file = PAGES.parent / "examples" / "data_dependent_pate.ipynb"
    names = {"__name__": "notebook"}
    book = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for i, cell in enumerate(code):
        exec(compile("".join(cell["source"]), f"cell {i}", "exec"), names)
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        assert capsys.readouterr().out == shown, f"cell {i}"
    assert len(code) > 3
