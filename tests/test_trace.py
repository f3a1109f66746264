"""The trace: planted mistakes in ten notebooks, all found, none invented; and what it claims."""

# ruff: noqa: E501
from __future__ import annotations

import ast
import builtins
import contextlib
import doctest
import io
import json
import math
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_diffprivlib
import pytest
import traced_notebooks

import accountants
import adaptive_dp as dp
from accountants import Approximate, Composite, Pure, ZeroConcentrated
from adaptive_dp.cli.main import main
from adaptive_dp.graph.errors import DeclarationError, DocumentError, RunError
from adaptive_dp.tracing import recorder, report, runner
from adaptive_dp.tracing.rewrite import rewritten
from adaptive_dp.tracing.runner import traced

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a table of people, and a library of privacy by name."""
    (tmp_path / "people.csv").write_text(fake_diffprivlib.people())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    fake_diffprivlib.install()
    yield tmp_path
    fake_diffprivlib.remove()
    assert not hasattr(builtins, "__traced__")


def notebook(folder: Path, sources: list[str], name: str = "analysis") -> Path:
    path = folder / f"{name}.ipynb"
    path.write_text(traced_notebooks.notebook(sources))
    return path


def quietly(path: Path) -> report.Trace:
    """A trace in this process, which prints nothing."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return traced(path)


def places(trace: report.Trace) -> set[tuple[int, int, str]]:
    return {(each.cell, each.line, each.kind) for each in trace.findings}


def script(folder: Path, text: str, name: str = "analysis.py") -> report.Trace:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    made = quietly(path)
    assert not made.failed, made.failed
    return made


# --- Ten notebooks ---

TRACED: dict[str, report.Trace] = {}


@pytest.mark.parametrize("name", sorted(traced_notebooks.NOTEBOOKS))
@pytest.mark.filterwarnings("ignore")
def test_every_planted_mistake_is_found_and_none_is_invented(people: Path, name: str) -> None:
    seen = quietly(notebook(people, traced_notebooks.cells(name), name))
    assert not seen.failed
    assert places(seen) == traced_notebooks.marks(name)
    assert seen.clean == name.startswith("right")
    # what it says quotes the source, and no value of the data
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(people / "people.csv")
    said = seen.to_json() + str(seen)
    for column in ("age", "income"):
        for value in (frame[column].mean(), frame[column].std(), frame["income"].max()):
            assert f"{value:.3f}"[:7] not in said
            assert repr(value) not in said


def test_the_notebooks_hold_every_kind_of_mistake() -> None:
    planted = [mark for name in traced_notebooks.NOTEBOOKS for mark in traced_notebooks.marks(name)]
    assert {kind for _, _, kind in planted} == set(report.TITLES)
    assert len(traced_notebooks.NOTEBOOKS) == 10
    assert len(planted) >= 25


# --- What is spent ---


def epsilon(trace: report.Trace) -> float:
    certificate = trace.certify()
    assert certificate is not None
    return certificate.epsilon


def test_losses_add_up(people: Path) -> None:
    seen = quietly(notebook(people, traced_notebooks.cells("right_survey")))
    # two means, a histogram, a mean of chosen rows, each of 0.5
    assert epsilon(seen) == 2.0
    assert seen.relation == "replace_one"
    plan = seen.plan()
    assert plan is not None
    assert dp.verify(plan.certify()).holds
    with pytest.raises(RunError, match="another library"):
        plan.simulate(seed=1, df={})


def test_parts_that_are_disjoint_by_construction_are_parallel(people: Path) -> None:
    head = """
        import pandas as pd
        from diffprivlib import mechanisms, tools
        df = pd.read_csv("people.csv")
        count = mechanisms.Laplace(epsilon=1.0, sensitivity=1)
    """
    # one column's values: a record that is exchanged leaves one part and enters another
    by_value = """
        for region in ["N", "S"]:
            count.randomise(int((df["region"] == region).sum()))
    """
    assert epsilon(script(people, head + by_value)) == 2.0
    by_rows = """
        answers = [count.randomise(float(a)) for a in df["answer"]]
    """
    assert epsilon(script(people, head + by_rows)) == 1.0
    # the same rows of another column are not another part; nor is a column that was changed between
    by_columns = """
        for name, column in df[["age", "income"]].items():
            tools.mean(column, epsilon=1.0, bounds=(0, 1))
        for column in df[["age", "income", "answer"]].to_numpy().T:
            tools.mean(column, epsilon=1.0, bounds=(0, 1))
    """
    assert epsilon(script(people, head + by_columns)) == 5.0
    changed = """
        for region in ["N", "S"]:
            count.randomise(int((df["region"] == region).sum()))
            df["region"] = "S"
    """
    assert epsilon(script(people, head + changed)) == 2.0
    one_person = """
        for value in df[["age", "income", "answer"]].iloc[0]:
            count.randomise(float(value))
    """
    assert epsilon(script(people, head + one_person)) == 3.0
    share = """
        for region in ["N", "S", "E"]:
            count.randomise(float((df["region"] == region).mean()))
    """
    # a mean over all rows follows all of them
    assert epsilon(script(people, head + share)) == 3.0


def test_groups_cost_one_part_and_their_keys_are_a_finding(people: Path) -> None:
    seen = script(
        people,
        """
        import pandas as pd
        from diffprivlib import tools
        df = pd.read_csv("people.csv")
        for region, part in df.groupby("region"):
            tools.mean(part["age"], epsilon=1.0, bounds=(18, 90))
        """,
    )
    assert {each.kind for each in seen.findings} == {"filter"}
    assert epsilon(seen) == 2.0
    assert "in parallel over the groups" in str(seen)


@pytest.mark.parametrize(
    "loss", [Pure(0.7), Approximate(0.5, 1e-7), Approximate(1.5, 0.01), ZeroConcentrated(0.1)]
)
def test_an_exchange_is_a_removal_and_an_addition(loss: accountants.PrivacyLoss) -> None:
    """Compared with group privacy of two, which accountants derive by themselves."""
    doubled = report._doubled(loss)
    assert doubled is not None
    group = accountants.Grouped(accountants.Spend(loss), 2)
    for delta in (0.05, 0.1, 0.3):
        ours = accountants.tightest(accountants.certify(accountants.Spend(doubled), delta))
        theirs = accountants.tightest(accountants.certify(group, delta))
        assert ours.bounds.upper >= theirs.bounds.lower * (1 - 1e-9)
    assert report._doubled(Composite([(loss, 2)])) is None


def test_a_loss_that_follows_the_data_is_not_said(people: Path) -> None:
    seen = script(
        people,
        """
        import pandas as pd
        from diffprivlib import tools
        df = pd.read_csv("people.csv")
        print(tools.mean(df["age"], epsilon=1 / df["age"].std(), bounds=(18, 90)))
        """,
    )
    assert [each.kind for each in seen.findings] == ["bounds"]
    assert [each.loss for each in seen.uncertified] == [None]
    assert seen.certify() is None
    assert "as private as they are" in str(seen)


def test_a_sensitivity_that_is_too_small(people: Path) -> None:
    text = """
        import pandas as pd
        from diffprivlib.mechanisms import Laplace
        df = pd.read_csv("people.csv")
        total = float(df["income"].clip(0, 1000).sum())
        print(Laplace(epsilon=1.0, sensitivity={}).randomise(total))
        """
    assert script(people, text.format(1000)).clean
    wrong = script(people, text.format(999))
    assert [each.kind for each in wrong.findings] == ["bounds"]
    assert "by up to 1000" in wrong.findings[0].words


def test_a_condition_on_public_or_released_values_is_no_filter(people: Path) -> None:
    seen = script(
        people,
        """
        import sys
        import pandas as pd
        from diffprivlib import tools
        df = pd.read_csv("people.csv")
        limits = [18, 40, 90]
        n = tools.mean(df["age"], epsilon=0.5, bounds=(18, 90))
        if len(limits) > 2 and limits[1] > 30 and n > 10:
            print(tools.mean(df[df["age"] > limits[1]]["age"], epsilon=0.5, bounds=(18, 90)))
        """,
    )
    assert seen.clean
    assert epsilon(seen) == 1.0
    leaks = script(
        people,
        """
        import sys
        import pandas as pd
        df = pd.read_csv("people.csv")
        sys.stdout.write(str(df["age"].median()))
        """,
    )
    assert [each.kind for each in leaks.findings] == ["mean"]


# --- Public data, and what the owner says ---


def test_the_owner_names_what_is_public_and_the_report_says_so(people: Path) -> None:
    seen = script(
        people,
        """
        import pandas as pd
        codes = pd.read_csv("people.csv")  # public: the register of regions
        low = codes["age"].min()
        print(codes.head())  # public: the register of regions
        print(low)
        """,
    )
    assert [each.line for each in seen.findings] == [6]
    assert sum("the register of regions" in each for each in seen.assumptions) == 2


# --- A block of code ---


def outer(frame: Any) -> Any:
    print("inside", frame["age"].max())
    return frame["age"].mean()


def test_a_block_in_a_function(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    from diffprivlib import tools

    table = pandas.read_csv(people / "people.csv")
    times = 1
    with dp.trace() as t:
        frame = t.private(table, "people")
        released = tools.mean(frame["age"], epsilon=0.5, bounds=(0, 100))
        times += 2
        products = [times * i for i in range(2)]
        print(released)
        average = outer(frame)
        print(average + 1)
        known = t.public(frame["age"].min(), "the age of consent")
        print(known)
    # the block has run once, and what it assigned is there, as it would be
    assert (times, products) == (3, [0, 3])
    assert type(average) is type(table["age"].mean())
    assert average == table["age"].mean()
    assert capsys.readouterr().out.count("inside") == 1
    assert [each.source for each in t.findings] == [
        'print("inside", frame["age"].max())',
        "print(average + 1)",
    ]
    assert t.data == (f"people ({Path(__file__).name}, line {t.findings[1].line - 6})",)
    assert "the age of consent" in str(t)
    assert repr(t) == "<trace: 2 findings>"


def test_a_block_that_fails_leaves_nothing_behind() -> None:
    before = sys.gettrace()
    with pytest.raises(KeyError), dp_trace():
        pass
    assert sys.gettrace() is before


@contextlib.contextmanager
def dp_trace() -> Iterator[Any]:
    with dp.trace() as t:
        t.private({"a": 1})["b"]
    yield t


def test_traces_are_not_nested() -> None:
    with pytest.raises(DeclarationError, match="nested"):
        _nested()
    with dp.trace() as t:  # the lock is free again
        value = 1
    assert t.clean
    assert value == 1


def _nested() -> None:
    with dp.trace():
        _inner()


def _inner() -> None:
    with dp.trace():
        pass


def _returns() -> int:
    with dp.trace():
        return 1


def test_a_block_that_leaves_is_refused() -> None:
    with pytest.raises(DeclarationError, match="leave by return"):
        _returns()
    space: dict[str, Any] = {"dp": dp}
    with pytest.raises(DeclarationError, match="source of this block"):
        exec("with dp.trace() as t:\n    x = 1\n", space)
    with dp.trace() as t:
        early = getattr(t, "findings", "none yet")
    assert early == "none yet"


# --- The rewritten code does what the code does ---

PROGRAM = """
import asyncio, functools, itertools, contextlib, collections, threading, re, math
from typing import NamedTuple, Protocol

def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner

class Point(NamedTuple):
    x: int
    y: int = 2

class A:
    __slots__ = ("__v",)
    def __init__(self, v): self.__v = v
    @property
    def v(self): return self.__v
    @classmethod
    def make(cls, v): return cls(v)
    @staticmethod
    def twice(v): return 2 * v
    def __add__(self, other): return A(self.__v + other.__v)
    def __iter__(self): yield from range(self.__v)
    def __enter__(self): return self
    def __exit__(self, *a): return False

class B(A):
    def __init__(self, v): super().__init__(v + 1)
    def __call__(self, *, k=1): return self.v * k

@deco
def gen(n):
    i = 0
    while (k := i) < n:
        if k == 3:
            i += 2
            continue
        yield k
        i += 1

async def co(x):
    await asyncio.sleep(0)
    return x + 1

assert list(gen(6)) == [0, 1, 2, 5], list(gen(6))
assert (A(1) + A.make(2)).v == 3 and A.twice(4) == 8 and list(A(3)) == [0, 1, 2]
b = B(4); assert b(k=2) == 10
assert asyncio.run(co(1)) == 2
p = Point(1); assert p.y == 2 and p._replace(x=5) == (5, 2)
with A(2) as a, contextlib.suppress(ZeroDivisionError):
    1 / 0
d = collections.defaultdict(list); d["a"].append(1); d["a"] += [2]; assert d == {"a": [1, 2]}
x = [1, 2, 3]; x[1:] = [5]; x[0] *= 7; del x[1]; assert x == [7]
first, *rest = range(5); assert rest == [1, 2, 3, 4]
(q, (r, s)), t = (1, (2, 3)), 4; assert (q, r, s, t) == (1, 2, 3, 4)
assert {k: v for k, v in zip("ab", [1, 2])} == {"a": 1, "b": 2}
assert [(i, j) for i in range(3) for j in range(i) if (i + j) % 2] == [(1, 0), (2, 1)]
assert 1 < 2 < 3 and not (1 < 2 > 3)
match p:
    case Point(x=1, y=yy): res = yy
    case _: res = None
assert res == 2
f = lambda *a, k=3, **kw: (a, k, kw); assert f(1, *[2], **{"z": 1}) == ((1, 2), 3, {"z": 1})
assert f"{math.pi:.{2}f} {'a'!r:>5} {p.x=}" == "3.14   'a' p.x=1", f"{math.pi:.{2}f} {'a'!r:>5} {p.x=}"
try:
    raise ValueError("x") from None
except ValueError as e:
    assert str(e) == "x"
else:
    raise AssertionError
finally:
    ok = True
def outer():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    inc(); return inc()
assert outer() == 2
g = (i * i for i in range(4)); assert sum(g) == 14
res = []
ts = [threading.Thread(target=lambda i=i: res.append(sum(range(i)))) for i in range(5)]
[t.start() for t in ts]; [t.join() for t in ts]; assert sorted(res) == [0, 0, 1, 3, 6]
assert sorted({"b": 1, "a": 2}.items(), key=lambda kv: kv[1]) == [("b", 1), ("a", 2)]
assert (lambda: (yield))().__class__.__name__ == "generator"
assert eval("1 + p.x") == 2 and "p" in globals() and "p" not in dir(A)
i = 10
def localsy(a):
    b = a
    return sorted(locals())
assert localsy(1) == ["a", "b"]
assert re.sub(r"(a)", lambda m: m.group(1).upper(), "bab") == "bAb"
print("all right", ok)
"""


def test_rewritten_code_does_the_same(people: Path) -> None:
    """A program of every construct, full of assertions of its own."""
    assert script(people, PROGRAM).clean


@pytest.mark.parametrize("name", ["statistics", "textwrap", "heapq", "fractions", "dataclasses"])
def test_modules_of_python_pass_their_doctests_when_rewritten(name: str) -> None:
    original = __import__(name)
    text = Path(original.__file__).read_text()
    watcher = recorder.Recorder()
    tree = rewritten(ast.parse(text), text, watcher.sites)
    module = types.ModuleType(name)
    module.__file__ = original.__file__
    recorder.install(watcher)
    try:
        watcher.watched.add(original.__file__)
        exec(compile(tree, original.__file__, "exec", dont_inherit=True), module.__dict__)
        ran = doctest.testmod(module, globs=module.__dict__ | {name: module})
    finally:
        recorder.remove()
    assert ran.failed == 0
    assert not watcher.sightings


# --- Files ---


def test_lines_of_ipython_are_left_out(people: Path) -> None:
    sources = [
        "%load_ext autoreload\n!ls\nx = 1\nx?",
        "%%bash\nrm -rf nothing",
        "%%time\ny = x + 1\nif y:\n    %matplotlib inline\nassert y == 2",
    ]
    seen = quietly(notebook(people, sources))
    assert seen.clean
    assert not seen.failed
    assert sum("IPython" in each for each in seen.unwatched) == 4
    assert sum("%%bash" in each for each in seen.unwatched) == 1


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("a.txt", "", ".py and .ipynb"), ("a.ipynb", "{}", "format 4"), ("a.ipynb", "[", "format 4")],
)
def test_other_files_are_refused(people: Path, name: str, text: str, says: str) -> None:
    (people / name).write_text(text)
    with pytest.raises(DocumentError, match=says):
        runner.run(people / name)


def test_an_analysis_that_fails_says_where_and_not_what(people: Path) -> None:
    path = notebook(people, ["x = 1", "y = 2\nraise ValueError('the secret')", "z = 3"])
    seen = quietly(path)
    assert seen.failed == "ValueError (cell 2, line 2)"
    assert "secret" not in seen.verdict + seen.failed
    (people / "broken.py").write_text("x = (1")
    assert quietly(people / "broken.py").failed.startswith("SyntaxError")


def test_the_command(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    (people / "leaks.py").write_text(
        "import pandas as pd\nprint(pd.read_csv('people.csv').age.mean())\n"
    )
    page = people / "page.html"
    assert main(["trace", "leaks.py", "--strict", "--html", str(page), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in document["found"]] == ["mean"]
    html = page.read_text("utf-8")
    assert html.index("The analysis is not certified") < html.index("leaks.py, line 2")
    assert "print(pd.read_csv" in html
    assert "Not watched" in html


def test_a_process_that_reports_nothing_is_an_error(people: Path) -> None:
    (people / "ends.py").write_text("import os\nos._exit(0)\n")
    with pytest.raises(RunError, match="nothing is known"):
        runner.run(people / "ends.py")


# --- Other libraries, where they are installed ---

OPENDP = [
    """
import opendp.prelude as dp
import pandas as pd
dp.enable_features("contrib")
df = pd.read_csv("people.csv")
ages = df["age"].astype(float).tolist()
""",
    """
space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
meas = space >> dp.t.then_clamp((18.0, 90.0)) >> dp.t.then_sum() >> dp.m.then_laplace(scale=90.0)
print("epsilon", meas.map(1))
print("sum", meas(ages))
""",
    """
context = dp.Context.compositor(
    data=ages, privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=2)
n = context.query().count().laplace().release()
print("n", n)
total = context.query().impute_constant(0.0).clamp((18.0, 90.0)).sum().laplace().release()
print("mean", total / max(n, 1))
""",
]
OPENDP_MISTAKES = [
    """
import opendp.prelude as dp
import numpy as np
dp.enable_features("contrib")
data = np.loadtxt("people.csv", delimiter=",", skiprows=1, usecols=(0, 1))
print(data[:3])  # mistake: raw
ages = data[:, 0].tolist()
""",
    """
lo, hi = min(ages), max(ages)
space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
trans = space >> dp.t.then_clamp((lo, hi)) >> dp.t.then_sum()  # mistake: bounds
print(trans(ages))  # mistake: mean
meas = trans >> dp.m.then_laplace(scale=100.0)
print(meas(ages))
""",
    """
def make():
    return dp.Context.compositor(data=ages, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=1)  # mistake: budget
a = make().query().count().laplace().release()
b = make().query().count().laplace().release()
print(a, b)
""",
    """
big = [x for x in ages if x > sum(ages) / len(ages)]
print(meas(big))  # mistake: filter
""",
]
OPACUS = [
    """
import torch, pandas as pd
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from opacus import PrivacyEngine
torch.manual_seed(0)
df = pd.read_csv("people.csv")
X = torch.tensor(df[["age", "income"]].values / [100, 200000], dtype=torch.float32)
y = torch.tensor(df["answer"].values, dtype=torch.float32)
loader = DataLoader(TensorDataset(X, y), batch_size=50)
""",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)
    def forward(self, x):
        return self.fc(x).squeeze(-1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0)
""",
    """
criterion = nn.BCEWithLogitsLoss()
for epoch in range(2):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: epsilon {engine.get_epsilon(1e-5):.2f}")
for name, p in model.named_parameters():
    print(name, p.detach().numpy())
torch.save(model.state_dict(), "model.pt")
""",
]
OPACUS_MISTAKES = [
    *OPACUS[:2],
    """
criterion = nn.BCEWithLogitsLoss()
total = 0.0
for xb, yb in loader:
    optimizer.zero_grad()
    loss = criterion(model(xb), yb)
    loss.backward()
    optimizer.step()
    total += loss.item()
    print("loss", loss.item())  # mistake: mean
print("mean loss", total / len(loader))  # mistake: mean
""",
    """
with torch.no_grad():
    accuracy = ((model(X) > 0) == (y > 0.5)).float().mean()
print("train accuracy", accuracy.item())  # mistake: mean
""",
    """
engine2 = PrivacyEngine()  # mistake: budget
m2 = Net()
o2 = torch.optim.SGD(m2.parameters(), lr=0.1)
m2, o2, l2 = engine2.make_private(module=m2, optimizer=o2, data_loader=DataLoader(TensorDataset(X, y), batch_size=50), noise_multiplier=1.0, max_grad_norm=1.0)
for xb, yb in l2:
    o2.zero_grad(); criterion(m2(xb), yb).backward(); o2.step()
""",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sources", [OPENDP, OPENDP_MISTAKES], ids=["right", "mistakes"])
def test_opendp(people: Path, sources: list[str]) -> None:
    pytest.importorskip("opendp")
    pytest.importorskip("pandas")
    seen = quietly(notebook(people, sources))
    assert not seen.failed
    assert places(seen) == traced_notebooks.marked(sources)
    if sources is OPENDP:
        # a sum at scale 90 of values up to 90, and a context of epsilon 1
        assert math.isclose(epsilon(seen), 2.0, rel_tol=1e-4)
        assert epsilon(seen) >= 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sources", [OPACUS, OPACUS_MISTAKES], ids=["right", "mistakes"])
def test_opacus(people: Path, sources: list[str]) -> None:
    pytest.importorskip("opacus")
    seen = quietly(notebook(people, sources))
    assert not seen.failed
    assert places(seen) == traced_notebooks.marked(sources)
    if sources is OPACUS:
        # 16 or more batches of 50 of 400 people; Opacus' own accountant is looser
        noise = accountants.Sampled(accountants.Spend(accountants.Gaussian(mu=1.0)), 1 / 8)
        truth = accountants.certify(accountants.Repeated(noise, 16), 1e-6)
        assert math.isclose(epsilon(seen), accountants.tightest(truth).bounds.upper, rel_tol=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_of_a_loader_that_draws_no_poisson_samples_nothing_is_claimed(people: Path) -> None:
    """Opacus counts its steps as Poisson samples all the same."""
    pytest.importorskip("opacus")
    other = "max_grad_norm=1.0, poisson_sampling=False"
    seen = quietly(notebook(people, [each.replace("max_grad_norm=1.0", other) for each in OPACUS]))
    assert not seen.failed
    assert seen.certify() is None
    assert "its loader draws others" in str(seen)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_of_adaptive_clipping_by_opacus_nothing_is_claimed(people: Path) -> None:
    """The noise that it records leaves out its count of unclipped examples."""
    pytest.importorskip("opacus")
    other = (
        'max_grad_norm=1.0, clipping="adaptive", target_unclipped_quantile=0.5, '
        "clipbound_learning_rate=0.2, max_clipbound=10.0, min_clipbound=0.01, unclipped_num_std=2.5"
    )
    seen = quietly(notebook(people, [each.replace("max_grad_norm=1.0", other) for each in OPACUS]))
    assert not seen.failed
    assert seen.certify() is None
    assert "count of unclipped examples" in str(seen)
