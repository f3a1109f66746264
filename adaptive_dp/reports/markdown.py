"""A certificate as Markdown text, and the sentences and rows that every report shares.

A certificate is a JSON-like mapping. The functions here without an underscore turn its parts
into plain strings, unescaped; `markdown` and `adaptive_dp.reports.html.report` escape them for
their own language, each in one place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from accountants.rounding import COSTS, shown
from adaptive_dp.graph.certificate import Certificate, ThirdParty
from adaptive_dp.graph.visible import visible
from adaptive_dp.reports.checked import checked

__all__ = ["markdown"]

Document = Mapping[str, Any]


class WithDocument(Protocol):
    """What has a JSON-like form, such as an `adaptive_dp.audit.Audit`."""

    def document(self) -> dict[str, Any]:
        """Return the form."""
        ...


Audited = WithDocument | Document

BANNER = "Not for release: seeded simulation"
_INFINITE = (math.inf, {"float": "inf"})
NONE = "—"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NEIGHBORS = {
    "add_remove": "adding or removing",
    "replace_one": "replacing",
    "zero_out": "blanking out",
}


def markdown(
    certificate: Certificate | Document,
    audit: Audited | None = None,
    *,
    allow: Collection[str] = (),
) -> str:
    """Write a certificate as Markdown, with what recomputing its claim has found.

    Parameters
    ----------
    certificate : Certificate or mapping
        The certificate, or its document.
    audit : Audit or mapping, optional
        An audit of the plan, or its document: its lower bound is set beside the claim.
    allow : list of str
        Modules from which the plan's own mechanisms may be imported, to recompute the claim.

    Returns
    -------
    str
        Headings, tables and lists; whatever the certificate says is escaped.

    Examples
    --------
    >>> text = markdown({"claim": {"epsilon": 2.0, "delta": 1e-06, "accountant": "renyi"}})
    >>> print(text.splitlines()[2])
    **ε = 2.0, δ = 1e-06**
    """
    certificate = document(certificate)
    found = checked(certificate, allow=allow)
    blocks = ["# Privacy certificate"]
    if is_simulated(certificate):
        blocks.append(f"> **{BANNER.upper()}**")
    epsilon, delta = claim(certificate)
    blocks.append(f"**ε = {_inline(epsilon)}, δ = {_inline(delta)}**")
    blocks.append(_inline(tightest(certificate)))
    blocks.append(
        _inline(found.says) if found.holds is not False else f"> **{_inline(found.says)}**"
    )
    blocks.append(_list(protects(certificate)))
    if session(certificate):
        blocks += ["## Session", _list(session(certificate))]
    if audit is not None:
        blocks += ["## Audit", _table(*audited(certificate, audit))]
    head, rows = accountants(certificate)
    if rows or not session(certificate):
        blocks += ["## Accountants", _table(head, rows)]
    head, rows = nodes(certificate)
    blocks += ["## Releases", _table(head, rows)]
    blocks += ["## Worst world", _list(worlds(certificate))]
    blocks += ["## Assumptions", _list(assumptions(certificate))]
    if third_party(certificate):
        blocks += ["## Code from elsewhere", _list(third_party(certificate))]
    blocks += ["## Randomness", _list(randomness(certificate))]
    head, rows = versions(certificate)
    blocks += ["## Versions", _table(head, rows)]
    blocks += ["## Fingerprint", _inline(str(certificate.get("fingerprint") or NONE))]
    return "\n\n".join(block for block in blocks if block) + "\n"


# --- what a certificate says, as plain text ------------------------------------------------


def document(certificate: Certificate | Document) -> Document:
    """Return the document of a certificate, or of what is one already."""
    return certificate.to_document() if isinstance(certificate, Certificate) else certificate


def number(value: object) -> str:
    """Format a number with five significant digits; anything else as it reads.

    Examples
    --------
    >>> number(1.23456789), number(None), number(math.inf), number(120_000)
    ('1.2346', '—', '∞', '120,000')
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if value in _INFINITE:
        return "∞"
    if isinstance(value, float) and 1000 <= abs(value) < 1e15:
        text = f"{value:,.{max(0, 4 - math.floor(math.log10(abs(value))))}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def outward(bound: object, *, upward: bool) -> str:
    """Format a bound with five significant digits, never to the optimistic side.

    Examples
    --------
    >>> outward(1.000001, upward=True), outward(1.999999, upward=False)
    ('1.0001', '1.9999')
    """
    if not isinstance(bound, float) or not math.isfinite(bound):
        return number(bound)
    return shown(bound, upward=upward, digits=5)


def exact(value: object) -> str:
    """Format a number of the claim, in full."""
    return "∞" if value in _INFINITE else NONE if value is None else str(value)


def power(value: object) -> str:
    """Format a probability that is promised, never too low; a power of ten as such.

    Examples
    --------
    >>> power(1e-6), power(1.234501e-6), power(0.0), power(None)
    ('10⁻⁶', '1.2346e-06', '0', '—')
    """
    if isinstance(value, float) and 0 < value < 0.01:
        digits = f"{value:.0e}".partition("e")
        if digits[0] == "1" and float(f"{value:.0e}") == value:
            return "10" + str(int(digits[2])).translate(RAISED)
    return outward(value, upward=True)


def percent(share: object) -> str:
    """Format a share of the budget."""
    return f"{100 * share:.3g}%" if isinstance(share, int | float) else NONE


def part(certificate: Document, key: str) -> Mapping[str, Any]:
    """Return a part of the certificate that is a mapping; empty where there is none."""
    found = certificate.get(key)
    return found if isinstance(found, Mapping) else {}


def is_simulated(certificate: Document) -> bool:
    """Say whether the certificate is of a seeded simulation, which must not be released."""
    return part(certificate, "randomness").get("release") is False


def claim(certificate: Document) -> tuple[str, str]:
    """Return epsilon and delta in full."""
    stated = part(certificate, "claim")
    return exact(stated.get("epsilon")), exact(stated.get("delta"))


def session(certificate: Document) -> list[str]:
    """Return what a session has spent of its budget; nothing of other certificates."""
    found = part(certificate, "session")
    if not found:
        return []
    odometer, ledger = part(found, "odometer"), part(found, "ledger")
    reading = outward(odometer.get("epsilon"), upward=True)
    spent, left = list(found.get("spent") or ()), list(found.get("remaining") or ())
    names = [str(name) for name in found.get("currencies") or ()]
    rows = list(zip(names, spent, left, strict=False))
    rows.sort(key=lambda row: not _some(row[2]))  # a filter needs one currency that is left
    shown_rows = [
        f"{n}: {outward(s, upward=True)} spent, {outward(r, upward=False)} left"
        for n, s, r in rows[:3]
    ]
    more = [f"and {len(rows) - 3} more currencies"] if len(rows) > 3 else []
    whole = f"Spent so far, wherever the analyst stops: ε = {reading}"
    if odometer.get("theorem") == found.get("theorem"):  # a filter of each record
        whole = f"What each record has spent is private, and at most the whole: ε = {reading}"
    return [
        f"Steps: {len(found.get('steps') or ())}.",
        f"Filter: {found.get('theorem') or NONE}.",
        f"{whole} ({odometer.get('theorem') or NONE}).",
        "; ".join([*shown_rows, *more]) + ".",
        f"Ledger: {number(ledger.get('entries'))} entries, the last hash {ledger.get('head')}.",
    ]


def _some(left: object) -> bool:
    return isinstance(left, int | float) and left > 0


def rounded_claim(certificate: Document) -> str:
    """Return epsilon with six significant digits, rounded up."""
    value = part(certificate, "claim").get("epsilon")
    return shown(value, upward=True) if isinstance(value, float) else exact(value)


def tightest(certificate: Document) -> str:
    """Name the accountant of the claim."""
    if certificate.get("session"):
        return (
            f"Kept by the {part(certificate, 'claim').get('accountant') or NONE} filter, whatever "
            "the steps were and will be."
        )
    return f"Tightest accountant: {part(certificate, 'claim').get('accountant') or NONE}."


def protects(certificate: Document) -> list[str]:
    """Say whom the certificate protects, a sentence a data set."""
    return [_protects(item) for item in certificate.get("protects") or ()]


def _protects(item: Mapping[str, Any]) -> str:
    unit = str(item.get("unit") or "row")
    rows = item.get("rows_per_unit")
    many = "row" if rows == 1 else "rows"
    bounded = item.get("unit") is not None and rows is not None
    most = f" (at most {number(rows)} {many} each)" if bounded else ""
    relation = str(item.get("neighbors"))
    change = f"{NEIGHBORS[relation]} one {unit}" if relation in NEIGHBORS else relation
    size = item.get("size")
    known = f" The number of rows, {number(size)}, is public." if size is not None else ""
    return (
        f"Protects each {unit} of {item.get('data')}{most}: neighbouring data sets differ by "
        f"{change} ({relation}).{known}"
    )


def accountants(certificate: Document) -> tuple[list[str], list[list[str]]]:
    """Return the table of accountants: those that apply, then those that do not, with why.

    Of a session, whose steps were chosen as it ran, only those that apply; few do, and its claim is
    its filter's.
    """
    head = ["accountant", "lower ε", "upper ε", "theorem", "remark"]
    found: list[Mapping[str, Any]] = list(certificate.get("accountants") or ())
    best = part(certificate, "claim").get("accountant")
    rows = []
    if certificate.get("session"):
        found = [item for item in found if item.get("applies", True)]
    for item in sorted(found, key=lambda item: not item.get("applies", True)):
        remark = str(item.get("reason") or "")
        if not item.get("applies", True):
            remark = f"does not apply: {remark}" if remark else "does not apply"
        elif item.get("name") == best:
            remark = f"tightest; {remark}" if remark else "tightest"
        bounds = [
            outward(item.get("lower"), upward=False),
            outward(item.get("upper"), upward=True),
        ]
        rows.append([str(item.get("name")), *bounds, str(item.get("theorem") or NONE), remark])
    return head, rows


def audited(certificate: Document, audit: Audited) -> tuple[list[str], list[list[str]]]:
    """Return the table of an audit: the empirical lower bound beside the certified upper one."""
    found = audit if isinstance(audit, Mapping) else audit.document()
    epsilon, delta = rounded_claim(certificate), claim(certificate)[1]
    confidence = number(found.get("confidence"))
    witness = part(found, "witness")
    rows = [
        ["certified upper bound", f"ε ≤ {epsilon} at δ = {delta}"],
        [
            "empirical lower bound",
            f"ε ≥ {outward(found.get('epsilon_lower'), upward=False)} at δ = "
            f"{exact(found.get('delta'))}, with confidence {confidence}",
        ],
        ["verdict of the audit", str(found.get("verdict"))],
        ["tested claim", str(found.get("claim"))],
        [
            "would have been found",
            f"ε = {outward(found.get('power'), upward=True)} with probability 0.9",
        ],
        ["pair", str(witness.get("pair") or NONE)],
        ["event", str(witness.get("event") or NONE)],
        [
            "guesses",
            f"{number(witness.get('right'))} right and {number(witness.get('wrong'))} wrong, of "
            f"{number(witness.get('tries'))} {found.get('tried') or 'runs'}",
        ],
    ]
    if _contradicted(part(certificate, "claim"), found):
        said = "the lower bound is above the certificate: one of them is wrong, or of another plan"
        rows.insert(0, ["CONTRADICTION", said])
    rows += [["assumes", str(text)] for text in found.get("assumptions") or ()]
    rows += [["note", str(text)] for text in found.get("notes") or ()]
    return ["audit", "found"], rows


def _contradicted(claim: Mapping[str, Any], audit: Mapping[str, Any]) -> bool:
    """Whether an audit's lower bound is above a claim: at its delta, or at a larger one."""
    numbers: list[Any] = [audit.get("epsilon_lower"), claim.get("epsilon")]
    numbers += [audit.get("delta"), claim.get("delta")]
    if not all(isinstance(number, int | float) for number in numbers):
        return False
    lower, epsilon, at, delta = map(float, numbers)
    return lower > epsilon and at >= delta


def corners(audit: Document) -> tuple[list[str], list[list[str]]]:
    """Return the table of an audit's trade-off, a row a threshold."""
    rows = [
        [
            f"{each['guess']} where {'at least' if each['guess'] == 'first' else 'below'} "
            f"{number(each['threshold'])}",
            outward(each["wrong"], upward=True),
            outward(each["right"], upward=False),
            outward(each["claimed"], upward=True),
        ]
        for each in audit.get("tradeoff") or ()
    ]
    return ["guess", "wrong, at most", "right, at least", "right by the claim, at most"], rows


def profile(audit: Document) -> tuple[list[str], list[list[str]]]:
    """Return the table of an audit's privacy profile, a row an epsilon."""
    rows = [
        [
            number(each["epsilon"]),
            outward(each["shown"], upward=False),
            outward(each["claimed"], upward=True),
        ]
        for each in audit.get("profile") or ()
    ]
    return ["ε", "δ shown, at least", "δ claimed, at most"], rows


def nodes(certificate: Document) -> tuple[list[str], list[list[str]]]:
    """Return the table of releases, a row a node."""
    head = ["node", "query", "mechanism", "times", "distance", "loss", "theorem", "source"]
    head += ["conversions", "share", "in the worst world", "region", "sampler"]
    return head, [_node(item) for item in certificate.get("nodes") or ()]


def _node(item: Mapping[str, Any]) -> list[str]:
    return [
        str(item.get("node")),
        str(item.get("query") or NONE),
        mechanism(item),
        number(item.get("times", 1)),
        distance(item),
        loss(item.get("loss")),
        str(item.get("theorem") or NONE),
        str(item.get("source") or NONE),
        named(item.get("conversions")) or NONE,
        percent(item.get("share")),
        number(item.get("in_worst_world")),
        ", ".join(map(str, item.get("region") or ())) or "everywhere",
        str(item.get("sampler") or NONE),
    ]


def mechanism(item: Mapping[str, Any]) -> str:
    """Write a node's mechanism with its parameters, as in ``Laplace(scale=5)``."""
    values = item.get("parameters") or {}
    inside = ", ".join(f"{name}={plain(value)}" for name, value in values.items())
    return f"{item.get('mechanism')}({inside})"


def route(item: Mapping[str, Any]) -> str:
    """Write the way from the data to what is released."""
    steps = [str(item[key]) for key in ("of", "query") if item.get(key)]
    return " > ".join(steps) or NONE


def distance(item: Mapping[str, Any]) -> str:
    """Write how far a neighbour can move the query, and in which norm."""
    norm = item.get("norm")
    kind = f" in L{number(norm)}" if norm is not None else ""
    return f"{outward(item.get('distance'), upward=True)}{kind}"


def loss(item: object) -> str:
    """Write a loss by its kind and its parameters."""
    if not isinstance(item, Mapping):
        return plain(item)
    rest = item.get("parameters") or {}
    kind = str(item.get("kind") or "")
    written = [
        f"{k}={outward(v, upward=True) if k in COSTS else plain(v)}" for k, v in rest.items()
    ]
    return f"{kind}({', '.join(written)})" if kind else named(rest)


def named(items: object) -> str:
    """Write a mapping as ``name: value; name: value``."""
    if not isinstance(items, Mapping):
        return plain(items) if items else ""
    return "; ".join(
        f"{name}: {outward(value, upward=True) if name in COSTS else plain(value)}"
        for name, value in items.items()
    )


def plain(value: object) -> str:
    """Write any JSON-like value on one line, its numbers with five significant digits."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return "{" + named(value) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = ", …" if len(value) > 12 else ""
        return "[" + ", ".join(map(plain, value[:12])) + more + "]"
    return number(value)


def worlds(certificate: Document) -> list[str]:
    """Describe the worlds: how many, whether all were tried, and the one that costs most."""
    found = part(certificate, "worlds")
    if not found:
        return []
    worst = ", ".join(map(str, found.get("worst") or ())) or "the only one: no part is singled out"
    how = (
        "The maximum over them is exact."
        if found.get("exact")
        else "They were too many to try one by one: the claim rests on a bound that holds in each."
    )
    return [f"Worst world: {worst}.", f"Number of worlds: {number(found.get('count'))}. {how}"]


def assumptions(certificate: Document) -> list[str]:
    """Return what the claim takes for granted."""
    return [str(item) for item in certificate.get("assumptions") or ()]


def third_party(certificate: Document) -> list[str]:
    """Say whose code a certificate rests on, beside the library's."""
    rows = [row for row in certificate.get("third_party") or () if isinstance(row, Mapping)]
    keys = ("kind", "code", "distribution", "version")
    made = (ThirdParty(**{key: row.get(key) for key in keys}) for row in rows)  # type: ignore[arg-type]
    return [f"It trusts {row}." for row in made]


def randomness(certificate: Document, *, ran: bool = False) -> list[str]:
    """Describe where the noise came from; a certificate alone cannot tell whether its plan ran."""
    found = part(certificate, "randomness")
    source, release = found.get("source"), found.get("release")
    if release is False:
        lines = [f"Source: {source}."] if source else []
        lines.append(f"{BANNER}.")
    elif ran:
        lines = [f"Source: {source}."] if source else []
        lines += ["Fit for release: yes."] if release else []
    else:
        lines = [f"If the plan is run: noise from {source}."] if source else []
        lines += ["A certificate does not say whether it was."] if lines else []
    return lines + [f"Sampler: {item}" for item in found.get("samplers") or ()]


def versions(certificate: Document) -> tuple[list[str], list[list[str]]]:
    """Return the table of software versions."""
    found = part(certificate, "versions")
    return ["software", "version"], [[str(name), str(value)] for name, value in found.items()]


# --- Markdown ------------------------------------------------------------------------------


def _inline(text: str) -> str:
    """Escape a text for one line of Markdown, also inside a table."""
    line = visible(text)
    line = " ".join(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
    line = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", line)
    # no heading, rule or list begins
    line = re.sub(r"^([#=]|[-+](?=[ -]|$))", r"\\\1", line)
    return re.sub(r"^([0-9]+)([.)])(?= |$)", r"\1\\\2", line)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_inline(item)}" for item in items) or NONE


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return NONE
    lines = [head, ["---"] * len(head), *([_inline(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
