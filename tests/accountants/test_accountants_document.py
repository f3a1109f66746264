"""A term's document gives back the term, exactly, and says what is wrong with one that does not."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    AccountingError,
    Approximate,
    Composite,
    DomainError,
    Envelope,
    Gaussian,
    Grouped,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    losses,
)
from accountants.document import from_document, from_json, kinds, to_document, to_json
from accountants.loss import PrivacyLoss
from accountants.losses import Sampled as SampledLoss

reals = st.floats(0, 1e300)
leaves = st.one_of(
    reals.map(Gaussian),
    reals.map(Laplace),
    reals.map(Pure),
    st.builds(Approximate, reals, st.floats(0, 1)),
)
composites = st.lists(st.tuples(leaves, st.integers(1, 10**40)), min_size=1).map(Composite)
known_losses = st.one_of(
    leaves,
    composites,
    st.lists(leaves, min_size=1, max_size=3).map(Envelope),
    st.builds(SampledLoss, composites, st.floats(0, 1)),
)
known_terms = st.recursive(
    st.builds(Spend, known_losses, st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(Sequential),
        st.lists(inner, min_size=1, max_size=3).map(Parallel),
        st.lists(inner, min_size=1, max_size=1).map(lambda c: Parallel(c, [("a = b", "c")])),
        st.builds(Repeated, inner, st.integers(0, 10**300)),
        st.builds(Sampled, inner, st.floats(0, 1)),
        st.builds(Grouped, inner, st.integers(1, 10**9)),
    ),
    max_leaves=6,
)


@examples(200)
@given(known_terms)
def test_round_trip(term: Term) -> None:
    text = to_json(term)
    assert from_json(text) == term
    assert to_json(from_json(text)) == text
    assert from_document(to_document(term)) == term


def test_the_form() -> None:
    term = Repeated(Sampled(Spend(Gaussian(mu=0.1), "step"), 0.01), 100)
    assert to_document(term) == {
        "kind": "Repeated",
        "part": {
            "kind": "Sampled",
            "part": {
                "kind": "Spend",
                "loss": {"kind": "Gaussian", "mu": 0.1},
                "name": "step",
            },
            "rate": 0.01,
        },
        "times": 100,
    }
    short = {"kind": "Spend", "loss": {"kind": "Gaussian", "mu": 1}}
    assert from_document(short) == Spend(Gaussian(mu=1.0))


def test_every_class_has_a_document() -> None:
    names = {"Spend", "Sequential", "Parallel", "Repeated", "Sampled", "Grouped"}
    assert set(kinds(Term)) == names | {"ReplacedSample", "Subset", "Allocated", "Selected"}
    assert {"Gaussian", "Laplace", "Pure", "Approximate", "Composite"} <= set(kinds(PrivacyLoss))
    for name, kind in kinds(PrivacyLoss).items():
        assert getattr(losses, name) is kind
        assert attrs.has(kind)
    for kind in (*kinds(Term).values(), *kinds(PrivacyLoss).values()):
        assert "kind" not in {f.alias or f.name for f in attrs.fields(kind)}


SPEND: dict[str, Any] = {"kind": "Spend", "loss": {"kind": "Gaussian", "mu": 1.0}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"kind": "Repeated", "part": SPEND, "times": 3, "tmies": 4},
            r"term \(Repeated\): unknown field 'tmies'; known are 'part', 'times'",
        ),
        ({"kind": "Repeated", "part": SPEND}, r"term \(Repeated\): missing field 'times'"),
        (
            {
                "kind": "Sequential",
                "parts": [SPEND, {"kind": "Spend", "loss": {"kind": "Gaussian"}}],
            },
            r"term \(Sequential\).parts\[1\] \(Spend\).loss \(Gaussian\): missing field 'mu'",
        ),
        (
            {"kind": "Spend", "loss": {"kind": "Gaussian", "sigma": 1.0}},
            r"term \(Spend\).loss \(Gaussian\): unknown field 'sigma'",
        ),
        (
            {"kind": "Spend", "loss": {"kind": "Gauss"}},
            "'Gauss'",
        ),
        ({"kind": "Gaussian", "mu": 1.0}, "no term is of kind 'Gaussian'"),
        ({"kind": ["Spend"]}, "no term is of kind"),
        ({"loss": 1}, "term: a term is an object with the key 'kind'"),
        ([SPEND], "term: a term is an object"),
        (None, "term: a term is an object"),
        ({"kind": "Spend", "loss": 3}, r"term \(Spend\).loss: a loss is an object"),
        (
            {"kind": "Spend", "loss": {"kind": "Gaussian", "mu": -1}},
            r"Gaussian.*Gaussian\.mu",
        ),
        ({"kind": "Spend", "loss": {"kind": "Gaussian", "mu": "1"}}, "mu must be float, got str"),
        ({"kind": "Spend", "loss": {"kind": "Gaussian", "mu": True}}, "mu must be float, got bool"),
        ({"kind": "Spend", "loss": {"kind": "Gaussian", "mu": [1]}}, "mu must be float, got list"),
        (
            {"kind": "Spend", "loss": {"kind": "Gaussian", "mu": {"fraction": "1/0"}}},
            "must be a fraction",
        ),
        ({"kind": "Sequential", "parts": 3}, r"term \(Sequential\).parts must be list, got int"),
    ],
)
def test_what_is_wrong_is_named(document: Any, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        from_document(document)
    with pytest.raises(DomainError, match=message):
        from_json(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nothing",
        '{"kind": "Spend", "loss": {"kind": "Gaussian", "mu": NaN}}',
        '{"kind": "Spend", "loss": {"kind": "Gaussian", "mu": Infinity}}',
        '{"kind": "Spend", "loss": {"kind": "Gaussian", "mu": 1, "mu": 2}}',
        '{"kind": "Spend", "loss": {"kind": "Gaussian", "mu": 1' + "0" * 5000 + "}}",
        '{"kind":"Repeated","times":1,"part":' * 5000 + "1" + "}" * 5000,
        '{"kind":"Repeated","times":1,"part":' * 300 + "1" + "}" * 300,
        "[" * 100000,
    ],
)
def test_unusable_documents(text: str) -> None:
    with pytest.raises(DomainError):
        from_json(text)


class Other(PrivacyLoss):
    """A loss that no document knows."""


def test_what_has_no_form() -> None:
    with pytest.raises(DomainError, match=r"term\.parts.*\[0\].*\.loss"):
        to_document(Sequential([Spend(Other())]))
    with pytest.raises(DomainError, match=r"\bSpend\b"):
        to_document(Gaussian(1.0))  # type: ignore[arg-type]


def test_infinities_and_fractions() -> None:
    with pytest.raises(AccountingError, match="finite"):
        from_document({"kind": "Spend", "loss": {"kind": "Gaussian", "mu": {"float": "inf"}}})
    half = {"kind": "Spend", "loss": {"kind": "Gaussian", "mu": {"fraction": "1/2"}}}
    assert from_document(half) == Spend(Gaussian(mu=float(Fraction(1, 2))))


def test_a_name_that_reads_like_a_number_stays_a_name() -> None:
    term = Parallel([Spend(Laplace(0.1), name="inf"), Spend(Laplace(0.2), "-inf")], ["inf", "b"])
    assert from_json(to_json(term)) == term
    with pytest.raises(DomainError, match=r"Spend\.name"):
        Spend(Laplace(0.1), name=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["1e99999999", "1/1e9", "1" * 5000, "1/" + "9" * 5000, "0.5", "x"])
def test_a_fraction_is_digits_and_not_too_many(text: str) -> None:
    """An exponent would be a power of ten to compute, of so many digits."""
    spend = {"kind": "Spend", "loss": {"kind": "Pure", "epsilon": {"fraction": text}}}
    with pytest.raises(AccountingError, match="must be a fraction such as '1/3'"):
        from_document(spend)
