"""What a type checker says to a user: leaks are errors, and what is right passes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
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

Check = Callable[[str], tuple[str, int]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Check a snippet below `HEAD`; all of them share one cache."""
    folder = tmp_path_factory.mktemp("static")
    root = str(Path(__file__).parent.parent)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {root}\n", "utf-8")

    numbers = count()

    def run(snippet: str) -> tuple[str, int]:
        # a name of its own: the cache tells files apart by size and time alone
        file = folder / f"snippet_{next(numbers)}.py"
        file.write_text(HEAD + snippet + "\n", "utf-8")
        options = ["--config-file", str(folder / "mypy.ini"), "--follow-imports=silent"]
        cache = ["--cache-dir", str(folder / "cache"), "--no-error-summary"]
        out, problems, code = api.run([*options, *cache, str(file)])
        assert not problems, problems
        return out, code

    return run


@pytest.mark.parametrize(
    "snippet",
    [
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
    ],
)
def test_right(check: Check, snippet: str) -> None:
    assert check(snippet) == ("", 0)


@pytest.mark.parametrize(
    ("snippet", "said"),
    [
        ("dp.post(half, total)", 'expected "Released[Any]"'),
        ("dp.post(half, people)", 'expected "Released[Any]"'),
        ("dp.post(half, people['age'])", 'expected "Released[Any]"'),
        ("needs(total)", 'expected "Released[float]"'),
        ("needs(people)", 'expected "Released[float]"'),
        ("needs(dp.public('text'))", 'expected "float"'),
        ("dp.parameter(total, 'scale')", 'expected "Released[Any]"'),
        ("released.release(dp.Laplace(scale=1.0))", 'has no attribute "release"'),
        ("people.release(dp.Laplace(scale=1.0))", 'has no attribute "release"'),
        ("total.release(2.0)", 'expected "Mechanism"'),
        ("Mine(scale='x')", 'expected "float"'),
        ("Mine(sigma=1.0)", "Unexpected keyword argument"),
        ("dp.Laplace(scale=1.0).scale = 0.0", "read-only"),
        ("dp.repeat(lambda state: total, 3, start=1.0)", "expected"),
    ],
)
def test_wrong(check: Check, snippet: str, said: str) -> None:
    out, code = check(snippet)
    assert code == 1
    assert said in out
