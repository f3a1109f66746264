"""The floors of the house: every import goes down, and none runs in a circle."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("accountants", "adaptive_dp")

MAY_IMPORT = {
    "accountants": set(),
    "data": set(),
    "noise": set(),
    "problems": {"optimizers"},
    "optimizers": set(),
    "risk": {"accountants"},
    "extensions": set(),
    "graph": {"extensions", "data", "noise", "accountants"},
    "queries": {"problems", "optimizers", "graph", "rows", "noise", "accountants"},
    "primitives": {"problems", "optimizers", "graph", "rows", "noise", "accountants"},
    "report": {"session", "audit", "graph", "rows", "noise", "accountants"},
    "session": {"graph", "noise", "accountants"},
    "audit": {"extensions", "queries", "primitives", "graph", "data", "noise", "accountants"},
    "interop": {"graph", "noise", "accountants"},
    "instance": {
        "queries",
        "primitives",
        "problems",
        "optimizers",
        "graph",
        "data",
        "noise",
        "accountants",
    },
    "schemas": {"graph", "accountants"},
    "pate": {"queries", "primitives", "graph", "data", "noise", "accountants"},
    "solvers": {
        "instance",
        "queries",
        "primitives",
        "problems",
        "optimizers",
        "graph",
        "data",
        "noise",
        "accountants",
    },
}
"""The rooms that each room may import, beside itself; a room that is not named is on top."""
TOP = {
    "testing",
    "adaptive_dp",
    "__main__",
    "cli",
    "plugins",
    "demo",
    "sklearn",
}


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def room(module: str) -> str:
    """`data` for adaptive_dp.data.memory, `accountants` for its modules, `adaptive_dp` itself."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package if package == "adaptive_dp" else package


def own(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def imported(module: str, node: ast.AST) -> Iterator[str]:
    """The modules of ours that one import statement loads (a name may be a module)."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if own(alias.name))
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module} has a relative import"
        if node.module and own(node.module):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            inner = [name for name in names if name in MODULES]
            yield from inner
            if len(inner) < len(names):
                yield node.module
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        # an import in disguise: of a name that stands there
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        yield from (name for name in names if own(str(name)))


def statements(tree: ast.AST, *, nested: bool) -> Iterator[ast.AST]:
    """Every statement; without `nested` those alone that run when the module is imported."""
    if nested:
        yield from ast.walk(tree)
        return
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from statements(node, nested=nested)


@functools.cache
def edges(*, nested: bool) -> list[tuple[str, str]]:
    return [
        (module, target)
        for module, tree in trees().items()
        for node in statements(tree, nested=nested)
        for target in imported(module, node)
    ]


def test_the_walk_sees_imports_at_every_depth() -> None:
    """Nested and top-level imports are both seen, on a module of known content."""
    text = "import accountants\nif TYPE_CHECKING:\n    import adaptive_dp.data\n"
    text += "def f():\n    from adaptive_dp.graph import free\n"
    text += "    importlib.import_module('adaptive_dp.audit')\n"
    tree = ast.parse(text)

    def found(nested: bool) -> set[str]:
        nodes = statements(tree, nested=nested)
        return {name for node in nodes for name in imported("m", node)}

    inside = {"adaptive_dp.data", "adaptive_dp.graph.free", "adaptive_dp.audit"}
    assert found(nested=True) == {"accountants"} | inside
    assert found(nested=False) == {"accountants"}


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_imports_go_down(name: str) -> None:
    wrong = [
        f"{module} imports {target}"
        for module, target in edges(nested=True)
        if room(module) == name and room(target) not in {name, *MAY_IMPORT[name]}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_stands_on_a_floor() -> None:
    """A new room must be given its floor here, or be one of those on top."""
    rooms = {room(module) for module in MODULES}
    assert rooms - set(MAY_IMPORT) <= TOP
    assert {"accountants", "data", "noise", "graph", "queries", "primitives"} <= rooms


def test_nothing_below_the_top_imports_the_top() -> None:
    """Only what is on top itself may import the command line, the demo or the package's face."""
    wrong = [(m, t) for m, t in edges(nested=True) if room(t) in TOP and room(m) not in TOP]
    assert not wrong


def test_no_circle() -> None:
    """At module level no import chain comes back (a package's face counts as a module)."""
    graph = nx.DiGraph(edges(nested=False))
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert not circles
    assert not list(nx.selfloop_edges(graph))


def test_imports_stand_at_the_top() -> None:
    """Our own modules are imported inside of functions only where it is worth the time."""
    late = set(edges(nested=True)) - set(edges(nested=False))
    typing_only = {
        (module, target)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
        for target in imported(module, inner)
    }
    slow = {  # Dask is an extra; the demo calibrates when it is imported; others are seldom needed
        ("adaptive_dp", "adaptive_dp.audit"),
        ("adaptive_dp", "adaptive_dp.report.drawing"),
        ("adaptive_dp", "adaptive_dp.report.mermaid"),
        ("adaptive_dp", "adaptive_dp.report.plot"),
        ("adaptive_dp", "adaptive_dp.primitives.suitable"),
        ("adaptive_dp.rows.opening", "adaptive_dp.rows.cluster"),
        ("adaptive_dp.rows.opening", "adaptive_dp.rows.dask_data"),
        ("adaptive_dp.commands", "adaptive_dp.demo.plan"),
        ("adaptive_dp.audit.result", "adaptive_dp.audit.plot"),
        ("accountants.distribution", "accountants.lattices.lattice"),
        ("accountants.losses.composite", "accountants.losses.derived_pair"),
        ("accountants.losses.envelope", "accountants.losses.derived_pair"),
        ("accountants.losses.sampled", "accountants.losses.sampled_pair"),
    }
    assert late - typing_only <= slow
