"""Layers: every import goes down, none runs in a circle, and packages stay small."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("accountants", "adaptive_dp")

GROUND = {"accountants", "data", "erm", "extensions", "noise"}
GRAPH = {"accountants", "data", "extensions", "graph", "noise"}
BELOW_LEARNERS = {"queries", "mechanisms", "erm", *GRAPH}
MAY_IMPORT: dict[str, set[str]] = {
    "accountants": set(),
    "data": set(),
    "noise": set(),
    "erm": set(),
    "extensions": set(),
    "risk": {"accountants"},
    "graph": {"accountants", "data", "extensions", "noise"},
    "queries": {"erm", *GRAPH},
    "mechanisms": {"erm", *GRAPH},
    "interop": {"queries", *GRAPH},
    "instance": BELOW_LEARNERS,
    "session": GRAPH,
    "audit": BELOW_LEARNERS,
    "pate": BELOW_LEARNERS,
    "prove": GRAPH,
    "learning": {"instance", *BELOW_LEARNERS},
    "statistics": {"instance", "learning", "pate", *BELOW_LEARNERS},
    "synthesis": {"learning", *BELOW_LEARNERS},
    "reports": {"session", "audit", "instance", *GRAPH},
    "torch": {"learning", *BELOW_LEARNERS},
    "jax": {"learning", "torch", *BELOW_LEARNERS},
    "tracing": {"reports", "queries", "interop", *GRAPH},
}
"""The rooms that each room may import, beside itself; a room that is not named is on top."""
TOP = {
    "adaptive_dp",
    "__main__",
    "cli",
    "demo",
    "from_sql",
    "names",
    "plugins",
    "schemas",
    "sklearn",
    "testing",
}

MOST_FILES = 330
"""Product files in all: more capability should not need many more of them."""
MOST_IN_A_ROOM = {
    "accountants": 30,
    "accountants/losses": 21,
    "adaptive_dp/learning": 20,
    "adaptive_dp/queries": 22,
}
"""Files in one folder, 18 where none is said: a newcomer reads their names in one look. The ground
of `accountants` has a file for each accountant, contract and engine, `learning` one for each family
of learners."""


def modules() -> dict[str, Path]:
    paths = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


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


def last_name(function: ast.expr) -> str:
    """`f` of `a.b.f`; nothing of a function that has no name."""
    return str(getattr(function, "attr", getattr(function, "id", "")))


def imported(module: str, node: ast.AST) -> Iterator[str]:
    """The modules of ours that one statement or call loads (a name may be a module)."""
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
    elif isinstance(node, ast.Call) and last_name(node.func).endswith("import_module"):
        # by importlib too: of a name that is put together, its beginning says which room it is in
        for part in ast.walk(node.args[0]):
            if isinstance(part, ast.Constant) and own(str(part.value)):
                yield str(part.value).rstrip(".")


def statements(tree: ast.AST, *, nested: bool) -> Iterator[ast.AST]:
    """Every node; without `nested` those statements alone that run when the module is imported."""
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
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        for target in imported(module, node)
    ]


def test_the_walk_sees_imports_at_every_depth() -> None:
    """Nested, top-level and importlib's imports are all seen, on a module written here."""
    text = "import accountants\nif TYPE_CHECKING:\n    import adaptive_dp.data\n"
    text += "def f():\n    from adaptive_dp.graph import errors\n"
    text += "    importlib.import_module('adaptive_dp.session')\n"
    tree = ast.parse(text)

    def imported_by(nested: bool) -> set[str]:
        nodes = statements(tree, nested=nested)
        return {name for node in nodes for name in imported("m", node)}

    everything = {"accountants", "adaptive_dp.data", "adaptive_dp.graph.errors"}
    assert imported_by(nested=True) == {*everything, "adaptive_dp.session"}
    assert imported_by(nested=False) == {"accountants"}


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_imports_go_down(name: str) -> None:
    wrong = [
        f"{module} imports {target}"
        for module, target in edges(nested=True)
        if room(module) == name and room(target) not in {name, *MAY_IMPORT[name]}
    ]
    assert not wrong, "\n".join(wrong)


def test_the_floors_are_floors() -> None:
    """Among the rooms, what one may import never leads back to it."""
    floors = nx.DiGraph((above, below) for above in MAY_IMPORT for below in MAY_IMPORT[above])
    assert nx.is_directed_acyclic_graph(floors)
    assert all(not MAY_IMPORT[name] for name in GROUND)


def test_every_room_stands_on_a_floor() -> None:
    """A new room must be given its floor here, or be one of those on top."""
    rooms = {room(module) for module in MODULES}
    assert rooms == {*MAY_IMPORT, *TOP} & rooms | {*MAY_IMPORT}


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


def test_the_second_opinion_shares_no_code() -> None:
    """`accountants.independent` imports itself alone of ours, and nothing else imports it below."""
    own_room = "accountants.independent"
    shared = [
        (module, target)
        for module, target in edges(nested=True)
        if module.startswith(own_room) and not target.startswith(own_room)
    ]
    assert not shared
    readers = {m for m, t in edges(nested=True) if t.startswith(own_room) and m in MODULES}
    assert {m for m in readers if not m.startswith(own_room)} <= {"adaptive_dp.cli.commands"}


def test_rooms_are_small() -> None:
    """At most so many files in all, and in one folder."""
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in MODULES.values())
    assert len(MODULES) <= MOST_FILES
    assert {name: n for name, n in folders.items() if n > MOST_IN_A_ROOM.get(name, 18)} == {}


def test_no_file_is_read_by_one_sibling_alone_without_a_name() -> None:
    """A file that only one other file of its room reads is an engine or a thing to be named.

    The helper of one caller lies in the caller's file.
    """
    readers: dict[str, set[str]] = {}
    for module, target in edges(nested=True):
        readers.setdefault(target, set()).add(module)
    lonely = {
        name
        for name in MODULES
        if len(only := readers.get(name, set())) == 1
        and MODULES[next(iter(only))].parent == MODULES[name].parent
        and MODULES[next(iter(only))].name != "__init__.py"
    }
    assert lonely <= NAMED


NAMED = {
    # an accountant each, one sampled mechanism's loss, and the engines of distributions
    *(f"accountants.{name}" for name in ("advanced", "basic", "concentrated", "gaussian")),
    "accountants.losses.cut_sample",
    "accountants.losses.sampled_gaussian",
    "accountants.distribution.convolution",
    "accountants.distribution.tilting",
    # a command each
    "adaptive_dp.cli.budget",
    "adaptive_dp.cli.ledgers",
    # where rows are, who computes on them, and the engine of that
    *(f"adaptive_dp.data.{name}" for name in ("csv_files", "parquet_files", "local")),
    "adaptive_dp.data.dask_engine",
    "adaptive_dp.data.scheduler",
    # what an owner writes and checks, joins with public tables, and queries of a group
    "adaptive_dp.queries.schema",
    "adaptive_dp.queries.aggregates",
    "adaptive_dp.queries.check",
    "adaptive_dp.queries.joins",
    "adaptive_dp.queries.order_statistics",
    # the laws of programs: exact integrals, and all cases of a finite domain
    "adaptive_dp.prove.finite",
    "adaptive_dp.prove.laws",
    # proofs for every length: a loop taken apart
    "adaptive_dp.prove.cells",
    "adaptive_dp.prove.every",
    "adaptive_dp.prove.loops",
    # how rows are drawn of a model
    "adaptive_dp.synthesis.rows",
    # what networks are made of, and the sums of their gradients
    "adaptive_dp.jax.gradients",
    "adaptive_dp.torch.gradients",
    "adaptive_dp.torch.networks",
    # a part of the page each
    *(f"adaptive_dp.reports.{name}" for name in ("charts", "diagram", "what_if")),
    # claims as a plan, which users read of a trace
    "adaptive_dp.interop.claims",
    # a database each
    "adaptive_dp.session.postgres",
    "adaptive_dp.session.sqlite",
}
"""Files with one reader in their room, which are an engine or a thing that a user can name."""
