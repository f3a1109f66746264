"""What a type checker says to a user: leaks are errors, and what is right passes."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip(
    "mypy.api", reason="needs mypy (the test extra), which checks a user's snippets"
)

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
    "total.release(2.0)": 'expected "Mechanism"',
    "Mine(scale='x')": 'expected "float"',
    "Mine(sigma=1.0)": "Unexpected keyword argument",
    "dp.Laplace(scale=1.0).scale = 0.0": "read-only",
    "dp.repeat(lambda state: total, 3, start=1.0)": "expected",
}


def test_leaks_are_errors_and_what_is_right_passes(tmp_path: Path) -> None:
    """All snippets in one run of the checker, which takes longest to read the library."""
    root = str(Path(__file__).parent.parent)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {root}\n", "utf-8")
    files = {}
    for number, snippet in enumerate([*RIGHT, *WRONG]):
        files[snippet] = tmp_path / f"snippet_{number}.py"
        files[snippet].write_text(HEAD + snippet + "\n", "utf-8")
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--follow-imports=silent"]
    cache = ["--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    out, problems, _ = api.run([*options, *cache, *map(str, files.values())])
    assert not problems, problems
    said = dict.fromkeys(files, "")
    for line in out.splitlines():
        name = Path(line.partition(":")[0]).name
        (snippet,) = (snippet for snippet, file in files.items() if file.name == name)
        said[snippet] += line + "\n"
    for snippet in RIGHT:
        assert said[snippet] == "", (snippet, said[snippet])
    for snippet, error in WRONG.items():
        assert error in said[snippet], (snippet, said[snippet])
        assert ": error: " in said[snippet], (snippet, said[snippet])
