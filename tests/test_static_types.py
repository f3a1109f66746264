"""What a type checker says to a user: leaks are errors, and what is right passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="needs mypy (the test extra), which checks a user's snippets")

HEAD = """
import accountants
import adaptive_dp as dp

people = dp.dataset("people", columns={"age": (0, 100)})
total = people["age"].sum()
released = total.release(dp.Laplace(scale=2.0))

def half(value: float) -> float:
    return value / 2

def needs(value: dp.Released[float]) -> None: ...

class Mine(dp.Mechanism):
    norm = 1
    scale: float = dp.noise_parameter("b")

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)
"""

RIGHT = (
    "needs(released)",
    "needs(dp.post(half, released))",
    "needs(dp.public(3.0))",
    "needs(dp.parameter(released, 'scale'))",
    "dp.Pipeline(mean=dp.post(half, released)).certify()",
    "total.release(Mine(scale=2.0))",
    "needs(total.release())",
    "needs(people['age'].average())",
    "total.release(Mine(scale=dp.Free('b')))",
    "dp.Laplace(scale=dp.Free('b', weight=100))",
    "dp.Gaussian(sigma=dp.Free('s'))",
    "def step(state: dp.Released[float]) -> dp.Released[float]:\n"
    "    return dp.post(half, state)\n"
    "needs(dp.repeat(step, 3, start=1.0))",
)

WRONG = {
    "dp.post(half, total)": 'expected "Released[Any]"',
    "dp.post(half, people)": 'expected "Released[Any]"',
    "dp.post(half, people['age'])": 'expected "Released[Any]"',
    "needs(total)": 'expected "Released[float]"',
    "needs(people)": 'expected "Released[float]"',
    "needs(dp.public('text'))": 'expected "float"',
    "dp.parameter(total, 'scale')": 'expected "Released[Any]"',
    "released.release(dp.Laplace(scale=1.0))": 'has no attribute "release"',
    "people.release(dp.Laplace(scale=1.0))": 'has no attribute "release"',
    "total.release(2.0)": 'expected "Mechanism | None"',
    "Mine(scale='x')": 'expected "float"',
    "Mine(sigma=1.0)": "Unexpected keyword argument",
    "dp.Laplace(scale=1.0).scale = 0.0": "read-only",
    "dp.repeat(lambda state: total, 3, start=1.0)": "expected",
}


CONFIGURED = """
[mypy]
strict = True
mypy_path = {root}

[mypy-adaptive_dp.*,accountants.*]
ignore_errors = True
"""
"""The library is read as an installed package is: for its types alone."""


def test_leaks_are_errors_and_what_is_right_passes(tmp_path: Path) -> None:
    """All snippets in one run of the checker, which takes longest to read the library.

    In a process of its own: what it has read would stay in this one.
    """
    text = CONFIGURED.format(root=Path(__file__).parent.parent)
    (tmp_path / "mypy.ini").write_text(text, "utf-8")
    files = {}
    for number, snippet in enumerate([*RIGHT, *WRONG]):
        files[snippet] = tmp_path / f"snippet_{number}.py"
        files[snippet].write_text(HEAD + snippet + "\n", "utf-8")
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--follow-imports=silent"]
    options += ["--no-incremental", "--cache-dir", "/dev/null", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files.values())]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert not ran.stderr, ran.stderr
    messages = dict.fromkeys(files, "")
    for line in ran.stdout.splitlines():
        name = Path(line.partition(":")[0]).name
        (snippet,) = (snippet for snippet, file in files.items() if file.name == name)
        messages[snippet] += line + "\n"
    for snippet in RIGHT:
        assert messages[snippet] == "", (snippet, messages[snippet])
    for snippet, error in WRONG.items():
        assert error in messages[snippet], (snippet, messages[snippet])
        assert ": error: " in messages[snippet], (snippet, messages[snippet])
