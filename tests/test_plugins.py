"""Plug-ins of other distributions: loaded, named, trusted by permission, never as our own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp import plugins
from adaptive_dp.cli.main import main
from adaptive_dp.schemas import certificate_schema

GOOD = '''
import accountants, adaptive_dp as dp
from accountants import Bounds
from attrs import frozen

@frozen
class Loss(accountants.PrivacyLoss):
    """Costs its epsilon."""
    theorem = "by hand"
    epsilon: float
    def pure(self): return self.epsilon

class Noisy(dp.Mechanism):
    """Adds noise."""
    width: float = dp.noise_parameter("w")
    theorem = "their own proof"
    def release(self, value, stream): return value + stream.laplace(self.width, value.shape)
    def loss(self, distance): return Loss(distance / self.width)

class Plain(Noisy):
    """With a loss of the library's, which ledgers can write."""
    def loss(self, distance): return accountants.Pure(distance / self.width)

class Laplace(Noisy):
    """Called as one of the library's."""

@frozen
class Scaled:
    """Basic composition, times a factor."""
    name: str = "loose"
    factor: float = 1.25
    theorem = "basic composition, and some more"
    adaptive = False
    inner = accountants.Basic()
    def start(self): return self.inner.start()
    def compose(self, state, loss, times=1): return self.inner.compose(state, loss, times)
    def epsilon(self, state, delta):
        return Bounds(0.0, self.inner.epsilon(state, delta).upper * self.factor)
    def delta(self, state, epsilon): return self.inner.delta(state, epsilon)
    def cost_function(self, state, delta): return self.inner.cost_function(state, delta)
    def conversion(self, loss): return self.inner.conversion(loss)

LIAR = Scaled("liar", 0.5)
RENYI = Scaled("renyi")
OTHER = Scaled("another")

def mean(column): return column.mean()
'''
ENTRIES = """
[adaptive_dp.mechanisms]
Noisy = their_parts.good:Noisy
Plain = their_parts.good:Plain
laplace = their_parts.good:Laplace
Broken = their_parts.broken:Broken
Quits = their_parts.quits:Quits
Missing = their_parts.good:Missing
Wrong = their_parts.good:Loss
Twice = their_parts.good:Noisy

[adaptive_dp.accountants]
loose = their_parts.good:Scaled
liar = their_parts.good:LIAR
renyi = their_parts.good:RENYI
misnamed = their_parts.good:OTHER
function = their_parts.good:mean

[adaptive_dp.losses]
Loss = their_parts.good:Loss

[adaptive_dp.queries]
their_mean = their_parts.good:mean

[adaptive_dp.solvers]
none = their_parts.good:Noisy
"""
SECOND = "[adaptive_dp.mechanisms]\nTwice = their_parts.good:Noisy\n"


def install(folder: Path, name: str, version: str, entries: str, files: dict[str, str]) -> None:
    """Install a distribution as an installer leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    files = {
        **files,
        f"{info.name}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info.name}/entry_points.txt": entries,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    record = "".join(f"{path},,\n" for path in [*files, f"{info.name}/RECORD"])
    (info / "RECORD").write_text(record, encoding="utf-8")


def forget() -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "their_parts"]:
        del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files = {
        "their_parts/__init__.py": "",
        "their_parts/good.py": GOOD,
        "their_parts/broken.py": "import a_module_that_nobody_has",
        "their_parts/quits.py": "raise SystemExit(0)",
    }
    install(tmp_path, "their-parts", "1.2", ENTRIES, files)
    install(tmp_path, "second-parts", "0.1", SECOND, {})
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def plan(mechanism: Any) -> dp.Pipeline:
    people = dp.dataset("people", columns={"x": (0, 1)})
    return dp.Pipeline(n=people.count().release(mechanism), m=people["x"].sum().release(mechanism))


def checked(document: dict[str, Any], *allow: str) -> dp.Verdict:
    return dp.verify(dp.Certificate.from_json(json.dumps(document)), allow=allow)


THEIRS = {
    ("mechanism", "their_parts.good:Noisy", "their-parts", "1.2"),
    ("loss", "their_parts.good:Loss", "their-parts", "1.2"),
}


def rows(document: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {
        tuple(row[k] for k in ("kind", "code", "distribution", "version"))
        for row in document["third_party"]
    }


class TestFinding:
    def test_nothing_is_imported_to_find_them(self, site: Path) -> None:
        code = (
            "import sys, adaptive_dp as dp; from adaptive_dp.graph.certify import entries;"
            "print([e.name for e in entries('losses')], 'their_parts' in sys.modules)"
        )
        path = {"PYTHONPATH": f"{site}:{Path(dp.__file__).parent.parent}"}
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=path, check=True
        )
        assert ran.stdout == "['Loss'] False\n"

    def test_each_is_listed_with_whose_it_is(self, site: Path) -> None:
        every = {one.name: one for one in plugins.listed("mechanisms") if one.name != "Twice"}
        assert every["Laplace"].distribution == "adaptive-dp"
        assert "Prop. 1" in every["Laplace"].theorem
        assert attrs.astuple(every["Noisy"]) == (
            "mechanisms", "Noisy", "their-parts", "1.2", "their own proof", "",
        )  # fmt: skip
        (loss,) = [one for one in plugins.listed("losses") if one.distribution == "their-parts"]
        assert (loss.name, loss.theorem) == ("Loss", "by hand")

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("Broken", "ModuleNotFoundError"),
            ("Quits", "SystemExit"),
            ("Missing", "AttributeError"),
            ("Wrong", "must be a Mechanism"),
            ("laplace", "a name of the library's own"),
            ("Twice", "has the same name"),
        ],
    )
    def test_what_cannot_be_used_is_named_and_alone(self, site: Path, name: str, why: str) -> None:
        problems = {o.name: o.problem for o in plugins.listed("mechanisms")}
        assert why in problems[name]
        assert problems["Noisy"] == problems["Laplace"] == ""
        with pytest.raises(dp.PluginError, match=rf"'{name}'.*(0\.1|1\.2)"):
            plugins.load("mechanisms", name)

    def test_loading(self, site: Path) -> None:
        assert plugins.load("mechanisms", "Noisy").__module__ == "their_parts.good"
        assert plugins.load("mechanisms", "Laplace") is dp.Laplace
        assert plugins.load("accountants", "renyi") == accountants.Renyi()
        assert plugins.load("accountants", "loose").name == "loose"
        assert plugins.load("queries", "their_mean").__name__ == "mean"
        for name, why in (("misnamed", "misnamed"), ("function", "function")):
            with pytest.raises(dp.PluginError, match=why):
                plugins.load("accountants", name)
        with pytest.raises(dp.PluginError, match="build"):
            plugins.load("solvers", "none")
        with pytest.raises(dp.DeclarationError, match="'Nobody'"):
            plugins.load("mechanisms", "Nobody")
        with pytest.raises(dp.DeclarationError, match="'things'"):
            plugins.listed("things")

    def test_the_command(self, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["list", "mechanisms"]) == 0
        text = capsys.readouterr().out
        assert "Noisy" in text
        assert "their-parts 1.2" in text
        assert "BROKEN: the plug-in 'Broken' of their-parts 1.2" in text
        assert main(["list", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert list(document) == ["mechanisms", "accountants", "losses", "queries", "solvers"]
        assert {"basic", "loose"} <= {one["name"] for one in document["accountants"]}
        assert "AdaOPS" in {one["name"] for one in document["solvers"]}


class TestMechanisms:
    def test_a_certificate_names_whose_code_it_trusts(self, site: Path) -> None:
        certificate = plan(plugins.load("mechanisms", "Noisy")(width=4)).certify()
        document = certificate.to_document()
        assert rows(document) == THEIRS
        assert certificate.epsilon == pytest.approx(0.5)
        jsonschema.Draft202012Validator(certificate_schema()).validate(document)
        assert "trusts the mechanism their_parts.good:Noisy of their-parts 1.2" in str(certificate)
        with pytest.raises(dp.DocumentError, match="mechanism"):
            checked(document)
        verdict = checked(document, "their_parts.good")
        assert verdict.holds
        assert any("the loss their_parts.good:Loss of their-parts 1.2" in n for n in verdict.notes)

    def test_plans_of_the_librarys_own_parts_name_no_third_party(self) -> None:
        certificate = plan(dp.Laplace(scale=4)).certify()
        assert certificate.third_party == ()
        assert dp.verify(certificate).notes == ()

    @pytest.mark.parametrize("lie", ["none", "fewer", "other", "more"])
    def test_a_certificate_that_does_not_say_so_fails(self, site: Path, lie: str) -> None:
        document = plan(plugins.load("mechanisms", "Noisy")(width=4)).certify().to_document()
        if lie == "none":
            del document["third_party"]
        elif lie == "fewer":
            document["third_party"].pop()
        elif lie == "other":
            document["third_party"][0]["distribution"] = "scipy"
        else:
            document["third_party"].append({**document["third_party"][0], "code": "a:B"})
        verdict = checked(document, "their_parts.good")
        assert not verdict.holds
        wrong = [row for row in verdict.fields if not row.holds]
        assert {row.place for row in wrong} == {"third_party"}

    def test_another_version_is_noted(self, site: Path) -> None:
        document = plan(plugins.load("mechanisms", "Noisy")(width=4)).certify().to_document()
        for row in document["third_party"]:
            row["version"] = "1.1"
        verdict = checked(document, "their_parts.good")
        assert verdict.holds
        assert all("was made with 1.1" in note for note in verdict.notes)

    @pytest.mark.parametrize("wrong", [{}, [{}], "x", [{"kind": 1}]])
    def test_other_forms_are_refused(self, wrong: Any) -> None:
        document = plan(dp.Laplace(scale=4)).certify().to_document()
        with pytest.raises(dp.DocumentError, match="third_party"):
            checked({**document, "third_party": wrong})

    def test_a_class_called_like_one_of_ours_is_shown_in_full(self, site: Path) -> None:
        cls = plugins.load("mechanisms", "Noisy")
        theirs = sys.modules[cls.__module__].Laplace
        (row, _) = plan(theirs(width=4)).certify().nodes
        assert row.mechanism == "their_parts.good:Laplace"
        assert plan(cls(width=4)).certify().nodes[0].mechanism == "Noisy"

    def test_code_of_no_distribution_is_said_to_be(self) -> None:
        class Mine(dp.Mechanism):
            width: float = dp.noise_parameter("w")

            def release(self, value: Any, stream: Any) -> Any:
                return value + stream.laplace(self.width, value.shape)

            def loss(self, distance: float) -> accountants.PrivacyLoss:
                return accountants.Pure(distance / self.width)

        certificate = plan(Mine(width=4)).certify()
        ((kind, _, distribution, version),) = rows(certificate.to_document())
        assert (kind, distribution, version) == ("mechanism", None, None)
        assert "of no installed distribution" in " ".join(str(certificate).split())

    def test_in_a_session(self, site: Path) -> None:
        people = dp.dataset("people", columns={})
        mechanism = plugins.load("mechanisms", "Plain")(width=4)
        with dp.Session(budget=dp.Budget(1.0), accountant="basic", people={"x": [1, 2]}) as session:
            session.run(people.count().release(mechanism))
            document = json.loads(session.certificate().to_json())
        assert rows(document) == {("mechanism", "their_parts.good:Plain", "their-parts", "1.2")}
        assert checked(document, "their_parts.good").holds
        del document["third_party"]
        assert not checked(document, "their_parts.good").holds


class TestAccountants:
    def certified(self, name: str = "loose", *more: Any) -> dict[str, Any]:
        chosen = [plugins.load("accountants", name), *more]
        text = plan(dp.Laplace(scale=4)).certify(accountants=chosen).to_json()
        return json.loads(text)  # type: ignore[no-any-return]

    def test_by_permission_it_is_computed_again(self, site: Path) -> None:
        document = self.certified()
        assert document["claim"]["epsilon"] == pytest.approx(0.5 * 1.25)
        row = ("accountant", "their_parts.good:Scaled", "their-parts", "1.2")
        assert rows(document) == {row}
        assert any("loose hold (from outside" in text for text in document["assumptions"])
        verdict = checked(document, "their_parts.good")
        assert verdict.holds
        assert verdict.notes == (
            "trusts the accountant their_parts.good:Scaled of their-parts 1.2",
        )
        document["claim"]["epsilon"] *= 0.9
        assert not checked(document, "their_parts.good").holds

    def test_without_permission_nothing_of_it_holds_and_nothing_is_imported(
        self, site: Path
    ) -> None:
        for document in (self.certified(), self.certified("loose", accountants.Basic())):
            forget()
            verdict = checked(document)
            assert not verdict.holds
            assert any("allow=['their_parts.good']" in reason for reason in verdict.reasons)
            assert "their_parts" not in sys.modules

    def test_where_it_is_not_installed_nothing_of_it_holds(
        self, site: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = self.certified("loose", accountants.Basic())
        monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(site)])
        verdict = checked(document, "their_parts.good")
        assert not verdict.holds
        assert any("no installed distribution publishes it" in r for r in verdict.reasons)

    def test_one_that_under_reports_is_refused(self, site: Path) -> None:
        """Two Laplace releases of epsilon 1/4 lose 1/2; half of that is below our floor."""
        for more in ((), (accountants.Distribution(),)):
            with pytest.raises(dp.DeclarationError, match="under-reports"):
                self.certified("liar", *more)

    def test_names_of_ours_are_ours(self, site: Path) -> None:
        loose = plugins.load("accountants", "loose")
        for name in ("renyi", "distribution"):
            with pytest.raises(dp.DeclarationError):
                plan(dp.Laplace(scale=4)).certify(accountants=[attrs.evolve(loose, name=name)])
        with pytest.raises(dp.DeclarationError, match="'loose'"):
            plan(dp.Laplace(scale=4)).certify(accountants=[loose, loose])

    def test_the_command_says_whom_it_trusts(
        self, site: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = site / "certificate.json"
        file.write_text(json.dumps(self.certified()), encoding="utf-8")
        assert main(["verify", str(file)]) == 1
        assert "allow" in capsys.readouterr().out
        assert main(["verify", str(file), "--allow", "their_parts.good"]) == 0
        assert "trusts the accountant" in capsys.readouterr().out
        assert main(["verify", str(file), "--allow", "their_parts.good", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["notes"]) == 1


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hatchling") is None, reason="builds a distribution with hatchling")
def test_a_distribution_that_pip_installs(tmp_path: Path) -> None:
    """As people do it: a pyproject.toml, built and installed, then listed and certified."""
    (tmp_path / "src" / "tiny_plug").mkdir(parents=True)
    (tmp_path / "src" / "tiny_plug" / "__init__.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "src" / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tiny-plug"\nversion = "3.0"\n'
        '[project.entry-points."adaptive_dp.mechanisms"]\nTiny = "tiny_plug:Noisy"\n',
        encoding="utf-8",
    )
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    more = ["--no-index", "--disable-pip-version-check", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, *more, str(tmp_path / "src")], check=True, capture_output=True)
    code = (
        "import adaptive_dp as dp; from adaptive_dp import plugins\n"
        "Tiny = plugins.load('mechanisms', 'Tiny'); people = dp.dataset('people', columns={})\n"
        "plan = dp.Pipeline(n=people.count().release(Tiny(width=2)))\n"
        "print([row.distribution + row.version for row in "
        "plan.certify().third_party])"
    )
    path = {"PYTHONPATH": f"{tmp_path / 'site'}:{Path(dp.__file__).parent.parent}"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=path, check=True
    )
    assert ran.stdout == "['tiny-plug3.0', 'tiny-plug3.0']\n"
