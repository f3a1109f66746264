"""The page in a real browser: its controls, its accessibility, and that it makes no requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import plans
import pytest
from browser import Browser, executable

import adaptive_dp as dp
from adaptive_dp.reports.page import report

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium")

HOSTILE = "</script><script>alert(1)</script><!--"


def plan() -> dp.Pipeline:
    """Return a plan with one group, and a name that tries to break out."""
    people = plans.people(rows=1)
    solver = dp.AdaSSP(features=["x"], target="y")
    return dp.Pipeline(
        theta=people.solve(solver, epsilon=1.0, delta=1e-6),
        count=people.count().release(dp.Laplace(scale=4)),
        **{HOSTILE: people["y"].sum().release(dp.Laplace(scale=9))},
    ).with_delta(1e-6)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    declared = plan()
    values = {
        "theta": {"value": [1.0, 2.0, 3.0], "low": [0.5, 1.5, 2.5], "high": [1.5, 2.5, 3.5]},
        "count": {"value": 7},
    }
    audit = {"epsilon_lower": 0.5, "delta": 1e-6, "confidence": 0.95, "verdict": "consistent"}
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(declared.certify(), declared, values, audit=audit), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def loaded(chromium: Browser, page: Path) -> Browser:
    chromium.look()
    chromium.open(page)
    return chromium


def troubles(browser: Browser) -> list[Any]:
    """Return what the browser complained of."""
    events = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    return [event for event in browser.events if event["method"] in events]


def test_the_page_makes_no_requests(loaded: Browser, page: Path) -> None:
    loaded.run("new Promise(done => setTimeout(done, 200))")
    requests = [
        e["params"]["request"]["url"]
        for e in loaded.events
        if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requests if not url.startswith("data:")] == [page.resolve().as_uri()]
    assert not troubles(loaded)
    sent = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    assert loaded.run(sent) == "refused"
    assert "Content Security Policy" in json.dumps(troubles(loaded))


def test_no_other_script_runs(loaded: Browser) -> None:
    script = """(() => { const s = document.createElement('script');
        s.textContent = 'window.ran = 1'; document.body.append(s); return window.ran })()"""
    assert loaded.run(script) is None
    assert loaded.run("document.scripts.length") == 3  # its own, its data, the one just refused


def test_a_box_shows_its_details(loaded: Browser) -> None:
    loaded.run("document.querySelector('.state:not([hidden]) a[aria-label*=\"count\"]').focus()")
    name = loaded.run("document.activeElement.getAttribute('aria-label')")
    loaded.press("Enter", 13)
    text = loaded.run("document.querySelector('.panel').innerText")
    assert name.partition(": ")[2].partition(",")[0] in text
    loaded.run(
        "[...document.querySelectorAll('.state:not([hidden]) a.box')]"
        ".find(a => a.getAttribute('aria-label').startsWith('release: count'))"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    text = loaded.run("document.querySelector('.panel').innerText")
    for word in ("Laplace(scale=4)", "sensitivity", "1 in L1", "Dwork", "of the budget", "reads"):
        assert word in text
    assert loaded.run("location.hash") == ""
    loaded.run("document.querySelector('.panel dd a').click()")
    assert "Laplace(scale=4)" not in loaded.run("document.querySelector('.panel').innerText")


def test_arrow_keys_go_from_box_to_box(loaded: Browser) -> None:
    stop = ".state:not([hidden]) [tabindex='0']"
    assert loaded.run(f'document.querySelectorAll("{stop}").length') == 1
    loaded.run(f'document.querySelector("{stop}").focus()')
    seen = [loaded.run("document.activeElement.getAttribute('aria-label')")]
    for _ in range(3):
        loaded.press("ArrowRight", 39)
        seen.append(loaded.run("document.activeElement.getAttribute('aria-label')"))
    assert len(set(seen)) == 4


def test_a_group_opens_and_closes_in_place(loaded: Browser) -> None:
    count = "document.querySelectorAll('.state:not([hidden]) a.box').length"
    closed = "document.querySelector('.state:not([hidden])').dataset.closed"
    loaded.run("document.querySelector('[data-do=close]').click()")
    few = loaded.run(count)
    assert loaded.run(closed) == '["AdaSSP"]'
    loaded.run("document.querySelector('.state:not([hidden]) [data-open]').focus()")
    loaded.press("Enter", 13)
    assert loaded.run(closed) == "[]"
    assert loaded.run(count) > few
    assert loaded.run("document.activeElement.dataset.close") == "AdaSSP"
    loaded.press("Enter", 13)
    assert loaded.run(closed) == '["AdaSSP"]'
    assert loaded.run("document.activeElement.dataset.open") == "AdaSSP"


def test_of_many_groups_one_opens_at_a_time(chromium: Browser, tmp_path: Path) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for i, group in enumerate([("A",), ("A", "B"), ("C",), ("D",)]):
        graph.add_node(f"n{i}", kind="count", label=f"n{i}", visibility="public", group=group)
    path = tmp_path / "groups.html"
    path.write_text(report(plan().certify(), graph), encoding="utf-8")
    chromium.look()
    chromium.open(path)
    chromium.run("document.querySelector('[data-do=close]').click()")
    closed = "document.querySelector('.state:not([hidden])').dataset.closed"
    for name, left in (("A", "BCD"), ("B", "CD"), ("D", "ABC")):
        chromium.run(f"document.querySelector('.state:not([hidden]) [data-open={name}]').focus()")
        chromium.press("Enter", 13)
        assert json.loads(chromium.run(closed)) == list(left)
    chromium.press("Enter", 13)
    assert json.loads(chromium.run(closed)) == list("ABCD")
    assert not troubles(chromium)


def test_the_drawing_zooms_and_moves(loaded: Browser) -> None:
    width = "document.querySelector('.state:not([hidden]) svg').getBoundingClientRect().width"
    before = loaded.run(width)
    for _ in range(4):
        loaded.run("document.querySelector('[data-do=in]').click()")
    assert loaded.run(width) == pytest.approx(before * 1.25**4, rel=0.02)
    loaded.run("document.querySelector('.view').scrollTo(0, 0)")
    loaded.run("document.querySelector('.view').scrollIntoView({behavior: 'instant'})")
    at = loaded.run(
        "(b => [b.x + b.width - 60, b.y + 30])"
        "(document.querySelector('.view').getBoundingClientRect())"
    )
    for kind, x in (("mousePressed", 0), ("mouseMoved", -80), ("mouseReleased", -80)):
        loaded.call(
            "Input.dispatchMouseEvent", type=kind, x=at[0] + x, y=at[1], button="left", buttons=1
        )
    assert loaded.run("document.querySelector('.view').scrollLeft") == pytest.approx(80, abs=2)
    loaded.run("document.querySelector('[data-do=fit]').click()")
    assert loaded.run("(v => v.scrollWidth - v.clientWidth)(document.querySelector('.view'))") <= 1


def test_sliders_show_what_was_computed(loaded: Browser) -> None:
    grid = json.loads(loaded.run("document.getElementById('what-if-data').textContent"))

    def answer() -> str:
        return loaded.run("document.getElementById('wi-answer').textContent")

    today = answer()
    loaded.run("document.getElementById('wi-noise').focus()")
    loaded.press("ArrowRight", 39)
    noisier = answer()
    assert float(noisier.split()[-1]) < float(today.split()[-1])
    loaded.run("document.getElementById('wi-noise').focus()")
    loaded.press("Home", 36)
    loaded.run("document.getElementById('wi-delta').focus()")
    loaded.press("End", 35)
    assert answer() == f"ε ≤ {grid['epsilons'][0][0][-1]}"
    loaded.run("""(s => { s.selectedIndex = 1; s.dispatchEvent(new Event('input')) })
        (document.getElementById('wi-what'))""")
    assert answer() == f"ε ≤ {grid['epsilons'][1][0][-1]}"


def test_the_certificate_can_be_taken_out_of_the_page(loaded: Browser) -> None:
    text = loaded.run("document.getElementById('certificate').textContent")
    assert json.loads(text) == json.loads(json.dumps(plan().certify().to_document()))
    assert dp.verify(dp.Certificate.from_json(text)).holds


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "light"),
        pytest.param(360, "dark", marks=pytest.mark.slow),
        pytest.param(1600, "light", marks=pytest.mark.slow),
        (1600, "dark"),
    ],
)
def test_everyone_can_use_it(chromium: Browser, page: Path, width: int, scheme: str) -> None:
    where = find_spec("axe_core_python")
    if where is None or where.origin is None:
        pytest.skip("needs axe-core-python")
    chromium.look(width, 900, scheme)
    chromium.open(page)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    chromium.run("document.querySelectorAll('details:not(.raw)').forEach(d => { d.open = true })")
    chromium.run(
        "document.querySelector('.state:not([hidden]) a.box').dispatchEvent("
        "new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    assert chromium.run("document.documentElement.scrollWidth") <= width
    chromium.run(Path(where.origin).with_name("axe.min.js").read_text(encoding="utf-8") + ";0")
    text = chromium.run(
        "axe.run(document).then(r => JSON.stringify([r.passes.map(p => p.id), "
        "r.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))])]))"
    )
    passed, violated = json.loads(text)
    assert violated == []
    assert {"color-contrast", "aria-required-attr", "label", "region"} <= set(passed)


def test_nothing_shifts_while_it_loads(loaded: Browser) -> None:
    script = """new Promise(done => { let sum = 0;
        new PerformanceObserver(l => l.getEntries().forEach(e => { sum += e.value }))
          .observe({type: 'layout-shift', buffered: true});
        setTimeout(() => done(sum), 300) })"""
    assert loaded.run(script) < 0.01


def test_it_prints_with_everything_open(loaded: Browser) -> None:
    assert loaded.pdf().startswith(b"%PDF")
    loaded.call("Emulation.setEmulatedMedia", media="print")
    visible = "(e => e.getClientRects().length > 0)"
    assert loaded.run(f"{visible}(document.querySelector('.state.all svg'))")
    assert not loaded.run(f"{visible}(document.querySelector('.sliders'))")
    assert not loaded.run(f"{visible}(document.querySelector('.tools'))")
    loaded.call("Emulation.setEmulatedMedia", media="")


def test_it_can_be_read_without_its_script(chromium: Browser, page: Path) -> None:
    chromium.look()
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(page)
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    visible = "(e => e.getClientRects().length > 0)"
    assert not chromium.run(f"{visible}(document.querySelector('.sliders'))")
    assert chromium.run(f"{visible}(document.querySelector('.state:not([hidden]) svg'))")
    assert chromium.run("document.querySelector('a.box').getAttribute('href')").startswith("#node-")
