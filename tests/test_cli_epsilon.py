"""The commands that need no plan: what they print, their JSON, their errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accountants import ACCOUNTANTS, Gaussian, GaussianDP, Laplace, Repeated, Spend, measure
from accountants.document import to_json
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import UNUSABLE

SGD = ["--sampling-rate", "0.004266666666666667", "--steps", "14063"]
NOISE = ["--noise-multiplier", "1.1"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return document


class TestQuestions:
    def test_private_training(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The truth is 2.38168972614 (to its last digit)."""
        document = parsed(capsys, "epsilon", *NOISE, *SGD, "--delta", "1e-5")
        assert set(document) == {"epsilon", "accountants", "delta"}
        assert set(document["epsilon"]) == {"lower", "upper"}
        assert set(document["accountants"]) == {each.name for each in ACCOUNTANTS}
        assert (
            document["epsilon"]["lower"] <= 2.38168972614 <= document["epsilon"]["upper"] <= 2.5967
        )
        for answer in document["accountants"].values():
            assert set(answer) in ({"lower", "upper"}, {"reason"})
        assert document["delta"] == 1e-5

    def test_the_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = printed(capsys, "epsilon", *NOISE, *SGD, "--delta", "1e-5")
        assert text.startswith("14063 releases: Gaussian noise of 1.1 times the l2 sensitivity, ")
        assert "concentrated  does not apply: " in text
        assert text.count("<- tightest") == 1
        assert "at delta = 1e-05" in text.splitlines()[-1]

    def test_gaussian_noise(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = parsed(
            capsys, "epsilon", "--noise-multiplier", "10", "--steps", "100", "--delta", "1e-5"
        )
        assert document["epsilon"]["lower"] <= 4.377178095681225 <= document["epsilon"]["upper"]
        assert document["epsilon"]["upper"] - document["epsilon"]["lower"] < 1e-9

    def test_laplace_noise(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = parsed(
            capsys, "epsilon", "--laplace-scale", "10", "--steps", "100", "--delta", "0"
        )
        assert 10 <= document["epsilon"]["upper"] < 10 + 1e-12
        document = parsed(
            capsys, "epsilon", "--laplace-scale", "10", "--steps", "100", "--delta", "1e-5"
        )
        assert (
            document["epsilon"]["lower"] <= 4.2203473250803 <= document["epsilon"]["upper"] < 4.31
        )

    def test_delta(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = parsed(capsys, "delta", "--noise-multiplier", "1", "--epsilon", "1")
        assert set(document) == {"delta", "accountants", "epsilon"}
        assert document["delta"]["lower"] <= 0.1269367375066439 <= document["delta"]["upper"]
        text = printed(capsys, "delta", "--noise-multiplier", "1", "--epsilon", "1")
        assert text.splitlines()[-1] == "delta <= 0.126937 at epsilon = 1.0 (not below 0.126936)"

    def test_what_has_no_bound(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = parsed(capsys, "epsilon", "--noise-multiplier", "1", "--delta", "0")
        assert document["epsilon"]["upper"] == "inf"
        text = printed(capsys, "epsilon", "--noise-multiplier", "1", "--delta", "0")
        assert text.splitlines()[-1] == "no epsilon is proven to hold at delta = 0.0"

    def test_a_term(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "term.json"
        path.write_text(to_json(Repeated(Spend(Laplace(epsilon=0.1)), 100)))
        document = parsed(capsys, "epsilon", "--term", str(path), "--delta", "1e-5")
        same = parsed(
            capsys, "epsilon", "--laplace-scale", "10", "--steps", "100", "--delta", "1e-5"
        )
        assert document == same
        assert f"the term of {path}" in printed(
            capsys, "epsilon", "--term", str(path), "--delta", "1e-5"
        )

    def test_a_picture(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("matplotlib")
        path = tmp_path / "picture.png"
        printed(capsys, "epsilon", "--laplace-scale", "1", "--delta", "1e-5", "--plot", str(path))
        assert path.read_bytes().startswith(b"\x89PNG")


class TestCalibrate:
    def test_the_noise_of_private_training(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The truth is 0.968427415596."""
        document = parsed(capsys, "calibrate", "--epsilon", "3", "--delta", "1e-5", *SGD)
        assert set(document) == {"noise_multiplier", "epsilon", "delta", "accountant"}
        assert 0.968427415595 < document["noise_multiplier"] < 0.968427416
        assert document["epsilon"]["upper"] <= 3
        noise = ["--noise-multiplier", repr(document["noise_multiplier"])]
        again = parsed(capsys, "epsilon", *noise, *SGD, "--delta", "1e-5")
        assert again["epsilon"]["upper"] <= 3

    def test_one_gaussian(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = printed(capsys, "calibrate", "--epsilon", "1", "--delta", "1e-5")
        first, second = text.splitlines()
        assert first.startswith("noise multiplier  3.730631")
        assert second.startswith("epsilon <= ")
        assert "at delta = 1e-05 (" in second

    def test_the_most_steps(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = parsed(
            capsys, "calibrate", "--epsilon", "1", "--delta", "1e-5", "--noise-multiplier", "10"
        )
        assert isinstance(document["steps"], int)
        more = Repeated(Spend(Gaussian(mu=0.1)), document["steps"] + 1)
        bounds = measure(more, GaussianDP(), delta=1e-5).bounds
        assert bounds is not None
        assert bounds.lower > 1 >= document["epsilon"]["upper"]


TERM = '{"kind": "Spend", "loss": {"kind": "Gaussian", "sigma": 1}}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epsilon", "--delta", "1e-5"], "one of --noise-multiplier, --laplace-scale, --term"),
        (["epsilon", *NOISE, "--laplace-scale", "1", "--delta", "0"], "got --noise-multiplier and"),
        (["epsilon", "--noise-multiplier", "0", "--delta", "0"], "--noise-multiplier must be"),
        (["epsilon", "--noise-multiplier", "nan", "--delta", "0"], "--noise-multiplier must be"),
        (["epsilon", "--laplace-scale", "-1", "--delta", "0"], "--laplace-scale must be"),
        (["epsilon", *NOISE, "--steps", "0", "--delta", "0.1"], "--steps must be"),
        (["epsilon", *NOISE, "--sampling-rate", "2", "--delta", "0.1"], "--sampling-rate must be"),
        (["epsilon", *NOISE, "--delta", "2"], "delta must be between 0 and 1"),
        (["delta", *NOISE, "--epsilon", "-1"], "epsilon must be"),
        (["epsilon", "--term", "TERM", "--delta", "0.1"], "unknown field 'sigma'; known are 'mu'"),
        (["epsilon", "--term", "TERM", "--steps", "3", "--delta", "0"], "--steps belongs to a"),
        (["epsilon", "--term", "nowhere.json", "--delta", "0.1"], "nowhere.json cannot be read"),
        (["epsilon", *NOISE, "--delta", "0", "--plot", "no/where.png"], "cannot be written"),
        (["epsilon", *NOISE, "--delta", "0.1", "--plot", "PLOT"], "xyz"),
        (["calibrate", "--epsilon", "0", "--delta", "0.1"], "epsilon must be a positive"),
        (["calibrate", "--epsilon", "1", "--delta", "0"], "no value between"),
        (["calibrate", "--epsilon", "1", "--delta", "0.1", "--steps", "0"], "--steps must be"),
        (["calibrate", "--epsilon", "1", "--delta", "0.1", *NOISE, *SGD], "what is left out"),
        (["calibrate", "--epsilon", "1", "--delta", "1e-5", "--noise-multiplier", "0.1"], "at 1, "),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "term.json").write_text(TERM)
    places = {"TERM": str(tmp_path / "term.json"), "PLOT": str(tmp_path / "picture.xyz")}
    given = [places.get(argument, argument) for argument in arguments]
    for extra in ([], ["--json"]):
        assert main(given + extra) == UNUSABLE
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("adaptive-dp: ")
        assert captured.err.count("\n") == 1
        assert message in captured.err


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plotted = ["--plot", str(tmp_path / "picture.png")]
    assert main(["epsilon", "--laplace-scale", "1", "--delta", "0.1", *plotted]) == UNUSABLE
    assert 'pip install "adaptive-dp[report]"' in capsys.readouterr().err


def test_from_a_shell() -> None:
    """No table library, and no plotting, for a question about noise."""
    text = (
        "import sys; from adaptive_dp.cli.main import main\n"
        "main(['epsilon', '--laplace-scale', '1', '--delta', '0'])\n"
        "print([m for m in ('pandas', 'polars', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
