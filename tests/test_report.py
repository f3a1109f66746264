from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import mpmath
import networkx as nx
import numpy as np
import pandas as pd
import pytest

import adaptive_dp as dp
from adaptive_dp.graph import outputs
from adaptive_dp.graph.certificate import ROOM
from adaptive_dp.graph.certificate import table as text_table
from adaptive_dp.graph.values import plain
from adaptive_dp.reports import wording
from adaptive_dp.reports.markdown import markdown
from adaptive_dp.reports.page import report

HOSTILE = "<script>alert(1)</script>\"] | 'x' & <img src=x onerror=y> `code` *b*"
VOID = {"meta", "input"}


def entry(name: str, share: float | None, **more: Any) -> dict[str, Any]:
    plain = {
        "node": name,
        "query": "count",
        "of": "people",
        "mechanism": "Laplace",
        "parameters": {"scale": 5.0},
        "norm": 1,
        "distance": 5.0,
        "loss": {"kind": "Laplace", "parameters": {"epsilon": 1.0}},
        "theorem": "Laplace mechanism",
        "source": "Dwork et al. 2006",
        "sampler": "discrete Laplace",
        "conversions": {"concentrated": "epsilon squared over two"},
        "times": 1,
        "region": [],
        "share": share,
        "in_worst_world": True,
    }
    return {**plain, **more}


def accountant(name: str, lower: Any, upper: Any, theorem: str, reason: str = "") -> dict[str, Any]:
    bounds = {"lower": lower, "upper": upper, "applies": lower is not None, "world": []}
    return {"name": name, "theorem": theorem, "reason": reason, **bounds}


def certificate(**more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "format": "adaptive-dp/certificate/2",
        "claim": {"epsilon": 2.000000001, "delta": 1e-06, "accountant": "renyi"},
        "protects": [
            {
                "data": "people",
                "neighbors": "add_remove",
                "unit": "zper",
                "rows_per_unit": 5,
                "size": None,
            },
            {
                "data": "sites",
                "neighbors": "replace_one",
                "unit": None,
                "rows_per_unit": 1,
                "size": 120,
            },
        ],
        "fingerprint": "sha256:abc",
        "plan": {"nodes": ["count"]},
        "nodes": [
            entry("count", 0.21),
            entry("poor", 0.0345678, region=["health = poor"], times=3, in_worst_world=False),
        ],
        "accountants": [
            accountant("gaussian", None, None, "", "no mu"),
            accountant("basic", 0.5, 2.5000001, "sum"),
            accountant("renyi", 0.5, 2.0, "Mironov"),
            accountant("zcdp", 0.5, {"float": "inf"}, "Bun"),
        ],
        "worlds": {"count": 4, "exact": True, "worst": ["health = poor"]},
        "assumptions": ["The clock is not observed."],
        "randomness": {"source": "operating system", "release": True, "samplers": ["exact"]},
        "versions": {"adaptive-dp": "0.1.0", "python": "3.11.7"},
    }
    return {**plain, **more}


def graph() -> nx.DiGraph[str]:
    drawn: nx.DiGraph[str] = nx.DiGraph()
    drawn.add_node("people", kind="dataset", label="people", visibility="private")
    drawn.add_node("count", kind="release", label="noisy count", visibility="released", share=0.2)
    drawn.add_edge("people", "count")
    return drawn


class Page(HTMLParser):
    """Checks that tags are balanced, and keeps the tags and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)


def hostile(value: Any) -> Any:
    """Replace every string of a certificate that may be any by one that tries to break out."""
    if isinstance(value, dict):
        fixed = ("format", "neighbors")
        return {key: item if key in fixed else hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) and value != "inf" else value


def test_page_says_what_the_certificate_says() -> None:
    page = Page(
        report(certificate(), graph(), {"count": {"value": 5571.25, "low": 5557.4, "high": 5585.1}})
    )
    for words in (
        "ε = 2.000000001",
        "δ = 10⁻⁶",
        "δ = 1e-06",
        "Tightest accountant: renyi.",
        "each zper of people (at most 5 rows each)",
        "adding or removing one zper (add_remove)",
        "replacing one row (replace_one). The number of rows, 120, is public.",
        "noisy count",
        "5,571 (5,557 to 5,585)",
        "renyi tightest",
        "does not apply: no mu",
        "2.5001",  # an upper bound is never rounded down
        "∞",
        "Laplace(scale=5) × 3",
        "5 in L1",
        "Laplace(epsilon=1)",
        "loss: Dwork et al. 2006",
        "concentrated: epsilon squared over two",
        "where: health = poor",
        "sampler: discrete Laplace",
        "3.46%",
        "Worst world: health = poor.",
        "The clock is not observed.",
        "Source: operating system.",
        "adaptive-dp 0.1.0",
        "sha256:abc",
        '"format": "adaptive-dp/certificate/2"',
    ):
        assert words in page.text
    assert "Not for release" not in page.text


def test_page_is_self_contained() -> None:
    text = report(certificate(), graph())
    page = Page(text)
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'; script-src 'sha256-" in text
    assert "unsafe" not in text
    assert not {"link", "img", "iframe", "object", "form", "base"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert not {"src", "style", "onerror", "onclick"} & {name for name, _ in page.attributes}
    links = [value or "" for name, value in page.attributes if name == "href"]
    assert all(value.startswith("#") for value in links)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in links} <= set(ids)
    assert text == report(certificate(), graph())


def test_page_escapes_everything() -> None:
    drawn = graph()
    drawn.nodes["count"]["label"] = HOSTILE
    values = {HOSTILE: {"value": {HOSTILE: HOSTILE}, "low": None}}
    audit = {"epsilon_lower": 0.5, "delta": 1e-6, "verdict": HOSTILE, "notes": [HOSTILE]}
    text = report(hostile(certificate()), drawn, values, audit=audit)
    page = Page(text)
    assert text.count("<script") == text.count("</script") == 1
    assert "<img" not in text
    assert HOSTILE in page.text
    assert not {"onerror"} & {name for name, _ in page.attributes}


def test_hostile_names_in_plots_are_escaped() -> None:
    names = {f"{HOSTILE}{i}": float(i) for i in range(4)}
    odd = certificate(nodes=[entry(HOSTILE, 0.5), entry("$x^2$", 0.5)])
    odd["accountants"][1]["name"] = HOSTILE
    text = report(odd, None, {"v": {"value": names, "low": 1.0, "high": 2.0}})
    drawings = re.findall(r'<svg class="plot".*?</svg>', text, flags=re.DOTALL)
    assert len(drawings) == 3  # of the values, the accountants and the shares
    for drawing in drawings:
        words = " ".join(ElementTree.fromstring(drawing).itertext())
        assert "<script>" in words  # as text
    assert "$x^2$" in "".join(drawings)  # no formula
    assert text.count("<script") == 1
    assert "<img" not in text


def test_plots_fit_the_policy_of_the_page() -> None:
    values = {"v": {"value": [1.0, 2.0, 3.0], "low": [0.0, 1.0, 2.0], "high": [2.0, 3.0, 4.0]}}
    text = report(certificate(), graph(), values)
    assert text == report(certificate(), graph(), values)  # no time, no random names
    drawings = re.findall(r'<svg class="plot".*?</svg>', text, flags=re.DOTALL)
    assert len(drawings) == 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.get("role") == "img"
        assert [each.tag for each in root][:2] == ["title", "desc"]
        assert root.get("aria-labelledby") == " ".join(str(each.get("id")) for each in root[:2])
        for element in root.iter():
            assert not {"style", "src", "onload"} & set(element.attrib)
            assert element.tag not in ("style", "script", "metadata", "image")
            assert str(element.get("href", "#")).startswith("#")
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_without_jinja_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "import adaptive_dp as dp\n"
        "n = dp.dataset('people', columns={}).count().release(dp.Laplace(scale=2))\n"
        "paper = dp.Pipeline(n=n).certify()\n"
        "print(dp.markdown(paper)[:21])\n"
        "try: dp.report(paper)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "# Privacy certificate" in process.stdout
    assert "AccountingError" in process.stdout
    assert "adaptive-dp[report]" in process.stdout


def test_no_bound_is_shown_too_low() -> None:
    loss = {"kind": "Gaussian", "parameters": {"mu": 0.1234501}}
    session = {
        "steps": ["a"],
        "accounting_units": ["mu^2"],
        "delta_reserve": 0.0,
        "theorem": "f",
        "delta_floor": 0.0,
        "ledger": {"head": "0" * 64, "entries": 2},
        "spent": [0.1234501],
        "remaining": [0.5678999],
        "odometer": {"epsilon": 0.4323701, "theorem": "t"},
    }
    odd = certificate(nodes=[entry("a", 1.0, loss=loss, distance=5.0000001)], session=session)
    for text in (report(odd), markdown(odd)):
        for words in ("Gaussian(mu=0.12346)", "5.0001 in L1", "ε = 0.43238"):
            assert words in text
        assert "0.12346 spent, 0.56789 left" in text


def test_simulation_has_a_banner() -> None:
    seeded = certificate(randomness={"source": "seed 1", "release": False, "samplers": []})
    assert '<p class="banner" role="alert">Not for release: seeded simulation</p>' in report(seeded)
    assert "NOT FOR RELEASE: SEEDED SIMULATION" in markdown(seeded)


@pytest.mark.parametrize("write", [report, markdown])
def test_what_is_not_a_certificate_is_refused(write: Any) -> None:
    for odd in ({}, {"claim": {"epsilon": 1.0, "delta": 0.0}}, certificate(extra=1)):
        with pytest.raises(dp.DocumentError):
            write(odd)


@pytest.mark.parametrize("write", [report, markdown])
def test_an_infinite_claim_can_be_read(write: Any) -> None:
    claim = {"epsilon": {"float": "inf"}, "delta": 0.0, "accountant": "basic"}
    assert "∞" in write(certificate(claim=claim, nodes=[], accountants=[], protects=[]))


def test_many_releases_are_folded() -> None:
    text = report(certificate(nodes=[entry(f"n{i}", 1 / 500) for i in range(500)]))
    page = Page(text)
    assert "460 more releases" in page.text
    # the largest 39 are drawn; the other 461 of 1/500 each are one bar
    assert "461 others" in page.text
    assert "92.2%" in page.text
    assert all(f"n{i} " in page.text for i in range(500))


def test_values_of_every_shape() -> None:
    values = {
        "vector": {"value": [1.0, 2.0], "low": [0.5, 1.75], "high": [1.5, 2.5]},
        "matrix": {"value": [[1.0, 2.0], [3.0, 4.0]], "low": 0.5, "high": 4.5},
        "names": {
            "value": {"good": 1.0, "all": [2.0]},
            "low": {"good": -8.0, "all": [-6.0]},
            "high": {"good": 10.0, "all": [10.0]},
        },
        "long": {"value": list(range(5000)), "low": None},
        "wide": {"value": [[0.0] * 40] * 30, "low": None},
        "ragged": {"value": [[1.0], [2.0, 3.0]], "low": None},
        "many": {"value": {f"k{i}": float(i) for i in range(20)}, "low": None},
        "empty": {"value": [], "low": None},
        "text": {"value": "yes", "low": None},
    }
    page = Page(report(certificate(), None, values))
    for words in (
        "[ 1.00 (0.50 to 1.50) , 2.00 (1.75 to 2.50) ]",
        "4.0 (0.5 to 4.5)",
        "1.0 (-8.0 to 10.0)",
        "[ 2.0 (-6.0 to 10.0) ]",
        "[]",
        "yes",
    ):
        assert words in page.text
    for words in ("all 5,000 entries", "and 3,000 more", "30 × 40 matrix", "all 20 values", "k19"):
        assert words in page.text


def test_arrays_are_values_too() -> None:
    numpy = pytest.importorskip("numpy")
    page = Page(
        report(
            certificate(),
            None,
            {"v": {"value": numpy.arange(3.0), "low": numpy.float64(-2), "high": 4}},
        )
    )
    assert "[ 0.0 (-2.0 to 4.0) , 1.0 (-2.0 to 4.0) , 2.0 (-2.0 to 4.0) ]" in page.text


def test_markdown_has_sound_tables() -> None:
    for paper in (certificate(), hostile(certificate())):
        text = markdown(paper)
        assert text == markdown(paper)
        assert "<script" not in text
        assert "<img" not in text
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(cells) == 1
    text = markdown(certificate())
    assert "**ε = 2.000000001, δ = 1e-06**" in text
    assert "| renyi | 0.5 | 2 | Mironov | tightest |" in text
    assert "| gaussian | — | — | — | does not apply: no mu |" in text
    assert "| count | count | Laplace(scale=5) | 1 | 5 in L1 | Laplace(epsilon=1) |" in text
    assert "- Worst world: health = poor." in text


HIDING = "safe\u202egnp.exe\nnext"
SHOWN = r"safe\u202egnp.exe\nnext"


def test_hidden_characters_are_shown() -> None:
    odd = certificate(nodes=[entry(HIDING, 1.0)], assumptions=[HIDING])
    odd["protects"][0]["data"] = HIDING
    for text in (report(odd, None, {HIDING: {"value": HIDING, "low": None}}), markdown(odd)):
        assert "\u202e" not in text
        assert SHOWN.replace("\\", "\\\\") in text or SHOWN in text
    assert SHOWN in text_table(["name"], [[HIDING]])


def test_a_release_without_a_share_is_listed() -> None:
    text = report(certificate(nodes=[entry("all", 1.0), entry("nothing", 0.0)]))
    row = text.partition("<strong>nothing</strong>")[2].partition("</tr>")[0]
    assert re.findall(r'data-label="share">([^<\s]+)', row) == ["0%"]


def test_one_row_is_no_rows() -> None:
    plan = plan_of(lambda n: n, unit="id")
    one = plan.certify()
    for text in (report(one), markdown(one)):
        assert "(at most 1 row each)" in text
    assert "with at most 1 row of 'people'" in str(one)


def test_a_plan_that_has_not_run_is_not_said_to_have() -> None:
    plan = plan_of(lambda n: n)
    for text in (report(plan.certify(), plan.graph), markdown(plan.certify())):
        assert "Fit for release" not in text
        assert "If the plan is run: noise from the operating system." in text
    result = plan.run(people={"id": [1]})
    assert "Fit for release: yes." in report(result.certificate, plan.graph, result)
    seeded = plan.simulate(seed=3, people={"id": [1]})
    assert "Not for release" in report(seeded.certificate, plan.graph, seeded)


def test_certificates_and_their_documents_are_the_same() -> None:
    paper = plan_of(lambda n: n).certify()
    assert report(paper) == report(paper.to_document())
    assert markdown(paper) == markdown(paper.to_document())


def test_the_plan_says_a_kind_once() -> None:
    people = dp.dataset("people", columns={"region": ["A", "B"]})
    text = str(
        dp.Pipeline(
            count=people.count().release(dp.Laplace(scale=1)),
            bars=people["region"].histogram().release(dp.Laplace(scale=1)),
        )
    )
    assert "count: count" not in text
    assert "histogram: histogram" not in text
    assert "histogram of 2 bins" in text


def test_text_tables_stay_within_a_line() -> None:
    long = "x" * 150
    people = dp.dataset("people", columns={"region": ["A", "B"]})
    count = people.count().release(dp.Laplace(scale=1))
    plan = dp.Pipeline(**{long: count, f"{long}2": dp.post(lambda n: (n, long), count)})
    result = plan.simulate(seed=1, people={"region": ["A"]})
    for text in (plan, plan.certify(), result):
        assert max(map(len, str(text).splitlines())) <= ROOM
    assert "xx[0] " in str(result).replace("x2", "xx")  # the end of a name tells it apart


def plan_of(function: Any, unit: str | None = None) -> dp.Pipeline:
    people = dp.dataset("people", columns={}, unit=unit)
    count = people.count().release(dp.Laplace(scale=1))
    return dp.Pipeline(count=count, made=dp.post(function, count))


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def circle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


ODD: dict[str, Any] = {
    "tuple": (1.0, 2.0),
    "set": {1, 2},
    "series": pd.Series([1.0, 2.0], index=["a", "a"]),
    "frame": pd.DataFrame({"a": [1.0, 2.0]}),
    "empty": [],
    "nothing": {},
    "none": None,
    "strings": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "complexes": np.array([1j]),
    "huge": 10**400,
    "enormous": 10**5000,
    "complex": 1 + 2j,
    "decimal": Decimal("1.50"),
    "date": np.datetime64("2020-01-01"),
    "long double": np.longdouble(1),
    "masked": np.ma.masked_array([1, 2], mask=[False, True]),
    "records": np.zeros(2, dtype=[("a", "f8")]),
    "function": print,
    "broken": Broken(),
    "circle": circle(),
    "ragged": [[1.0], [2.0, 3.0], "x"],
    "surrogate": "\ud800",
    "mixed": {1: "one", "1": "text", (1, 2): {"deep": [np.float32(1)]}},
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ODD)
def test_no_value_is_lost_in_showing_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "DRAWS", 199)  # fewer would be of another kind
    plan = plan_of(lambda n: ODD[name])
    result = plan.simulate(seed=1, people={"a": [1]})
    assert type(result["made"]) is type(ODD[name])
    assert "made" in str(result)
    assert "made" in result._repr_html_()
    assert "epsilon &lt;= 1" in result._repr_html_()
    report(result.certificate, plan.graph, result).encode("utf-8")
    json.dumps(plain(dict(result)), allow_nan=False)


def test_plain_values_keep_what_can_be_represented() -> None:
    assert plain(ODD["frame"]) == {"a": {"0": 1.0, "1": 2.0}}
    assert plain(ODD["series"]) == [1.0, 2.0]
    assert plain(ODD["set"]) == [1, 2]
    assert plain(ODD["decimal"]) == "1.50"
    assert plain(ODD["masked"]) == [1, None]
    assert plain(ODD["mixed"]) == {"1": "one", "'1'": "text", "(1, 2)": {"deep": [1.0]}}
    assert int(plain(ODD["huge"])) == 10**400
    assert int(plain(ODD["enormous"]), 16) == 10**5000
    assert plain(ODD["broken"]) == "<Broken>"


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.1, 1.0, 2.0, 5.0, 19.9])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-6, 0.01, 0.3])
def test_what_an_attacker_gains_is_never_too_low(epsilon, delta):
    """Against the randomized response that is worst at (epsilon, delta), with 60 digits."""
    with mpmath.workdps(60):
        e, d = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta)
        first = [d, (1 - d) * e / (1 + e), (1 - d) / (1 + e), mpmath.mpf(0)]
        truth = sum(abs(p - q) for p, q in zip(first, first[::-1], strict=True)) / 2
        claimed = dp.Certificate.from_document(
            certificate(claim={"epsilon": epsilon, "delta": delta, "accountant": "renyi"})
        )
        gain = wording.advantage(claimed)
        assert truth <= gain <= truth + mpmath.mpf(1e-14)
        assert e <= mpmath.mpf(wording.odds(epsilon).replace(",", "")) <= e * 1.001
        if delta:
            assert 1 / mpmath.mpf(wording.chance(delta)[5:].replace(",", "")) >= mpmath.mpf(
                repr(delta)
            )
        said = " ".join(wording.statement(claimed, gain))
        right, *_ = re.findall(r"right at most ([\d.]+)% of the time, where", said)
        assert (1 + truth) / 2 * 100 <= mpmath.mpf(right)


def test_no_odds_are_written_that_are_too_low():
    assert wording.odds(20.5) == "a billion"  # exp(20.5) = 7.998e8
    assert wording.odds(800.0) == "more than a billion"
    assert wording.chance(1e-40) == "1 in 10^40"


PEOPLE = dp.dataset("people", columns={"town": ["A", "B"], "year": [1, 2, 3]})


def test_a_description_changes_nothing_of_what_is_certified():
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=2)))
    before = plan.certify()
    after = before.described(title="Census", purpose=HOSTILE, date="2026-05-04")
    assert before.description is None
    assert after.claim == before.claim
    assert dp.verify(after).holds
    assert dp.Certificate.from_json(after.to_json()) == after
    page = report(after, plan)
    assert "<h1>Census</h1>" in page
    assert "2026-05-04" in page
    assert "<script>alert" not in page
    for name, value in {"date": 2026, "titel": "x"}.items():
        with pytest.raises(dp.DeclarationError, match=name):
            before.described(**{name: value})


def test_a_claim_that_fails_is_not_stated():
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=2)))
    document = plan.certify().to_document()
    assert "gains at most this" in report(document)
    document["claim"]["epsilon"] = 0.1
    assert "gains at most this" not in report(document)


def test_cross_tables_and_bins_keep_their_labels():
    table = PEOPLE.crosstab("town", "year", dp.Laplace(scale=1), margins=True)
    plan = dp.Pipeline(table=table, towns=PEOPLE["town"].histogram().release(dp.Laplace(scale=1)))
    result = plan.simulate(seed=1, people={"town": ["A", "B"] * 30, "year": [1, 2, 3] * 20})
    page = report(result.certificate, plan, result)
    for cell in ('<th scope="col">3</th>', '<th scope="col">all</th>', '<th scope="row">B</th>'):
        assert cell in page
    assert "<td>A</td>" in page  # of the histogram
    assert "Of a run of this plan, not of these values" in page
    keys = result["table"].columns()
    assert list(zip(keys["town"], keys["year"], strict=True))[-4:] == [
        ("all", 1),
        ("all", 2),
        ("all", 3),
        ("all", "all"),
    ]
    assert "table[all, all]" in str(result)


def test_quantiles_and_shares_are_drawn_as_curves():
    people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
    by_town = people.group_by("town").quantiles("age", [0.5, 0.25], dp.QuantileExponential())
    shares = people["age"].cdf([0, 50, 100], dp.Laplace())
    plan = dp.Pipeline(by_town=by_town, shares=shares).calibrate(epsilon=2.0)
    data = {"age": np.linspace(0, 100, 1000), "town": ["A", "B"] * 500}
    result = plan.simulate(seed=1, people=data)
    assert list(result.entries["by_town"]) == ["A, 0.5", "A, 0.25", "B, 0.5", "B, 0.25"]
    assert list(result.entries["shares"]) == ["0", "50", "100"]
    assert report(result.certificate, plan.graph, result).count("Shares of rows") == 2
