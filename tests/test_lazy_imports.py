"""Public names of the packages are imported on first use, under every name."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import accountants
import accountants.losses
import adaptive_dp

BOTH = [accountants, accountants.losses, adaptive_dp]


@pytest.mark.parametrize("package", BOTH, ids=lambda p: p.__name__)
def test_each_name_of_the_stub_is_there(package):
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname for node in imports for alias in node.names]
    assert sorted(names) == sorted(set(names)) == list(package.__all__) == dir(package)
    for node in imports:
        for alias in node.names:
            here = getattr(package, alias.asname)
            if node.module == package.__name__:
                assert here is importlib.import_module(f"{node.module}.{alias.name}")
            else:
                holder = importlib.import_module(node.module)
                assert here is getattr(holder, alias.name)


@pytest.mark.parametrize("package", BOTH, ids=lambda p: p.__name__)
def test_no_module_hides_a_name(package):
    """A module that was imported would be found in place of a function of its name."""
    folder = Path(package.__file__).parent
    inside = {p.stem for p in folder.glob("*.py")} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    rooms = {"audit", "instance", "pate", "erm", "risk", "statistics", "testing", "tracing"}
    rooms |= {"interop", "jax", "prove", "synthesis", "torch"}
    modules = rooms if package is adaptive_dp else set()
    assert inside & set(package.__all__) == modules


@pytest.mark.parametrize("package", BOTH, ids=lambda p: p.__name__)
def test_other_names_are_refused(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'x'"):
        package.x  # noqa: B018


def test_importing_the_packages_imports_nothing_else():
    code = (
        "import sys, accountants, adaptive_dp\n"
        "heavy = {'numpy', 'scipy', 'networkx', 'attrs', 'adaptive_dp.graph'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


def test_names_that_are_not_imported_yet_are_reserved():
    code = (
        "import adaptive_dp as dp\n"
        "from adaptive_dp.graph.certify import label\n"
        "from adaptive_dp.graph.registry import MECHANISMS\n"
        "class Exponential(dp.Mechanism):\n"
        "    pass\n"
        "print(label(Exponential, MECHANISMS))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "__main__:Exponential"


@pytest.mark.parametrize("room", ["audit", "erm", "instance", "pate", "plot", "risk"])
def test_a_room_shows_what_is_public_and_no_files(room):
    package = getattr(adaptive_dp, room)
    assert dir(package) == sorted(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)
