"""What a certificate and an audit say, as plain strings: the sentences and rows of every report.

Nothing here is escaped: `adaptive_dp.reports.markdown` and `adaptive_dp.reports.page` escape for
their own language, each in one place. Bounds are rounded to the side on which they still hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

from attrs import evolve

from accountants.document import write_float
from accountants.numerics import COSTS, shown
from adaptive_dp.audit.result import POWER_HOLDS
from adaptive_dp.graph.certificate import Certificate, LossRow, Protected, ReleaseRow
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import cut

Document = Mapping[str, Any]
"""The JSON form of a certificate or of an audit."""


class WithDocument(Protocol):
    """What has a document, such as an `adaptive_dp.audit.Audit`."""

    def document(self) -> dict[str, Any]:
        """Return the document."""
        ...


Audited = WithDocument | Document
"""An audit, or its document."""

Table = tuple[list[str], list[list[str]]]
"""The titles of the columns, and the rows."""

BANNER = "Not for release: seeded simulation"
NONE = "—"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NEIGHBORS = {
    "add_remove": "adding or removing",
    "replace_one": "replacing",
    "zero_out": "blanking out",
}

# --- Numbers ---

INFINITY = write_float(math.inf)
"""Infinity as it stands in a document."""


def number(value: object) -> str:
    """Format a number with five significant digits; anything else by ``str``.

    Examples
    --------
    >>> number(1.23456789), number(None), number({"float": "inf"}), number(120_000)
    ('1.2346', '—', '∞', '120,000')
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if value in (math.inf, INFINITY):
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
    return "∞" if value in (math.inf, INFINITY) else NONE if value is None else str(value)


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


def named(items: object) -> str:
    """Write a mapping as ``name: value; name: value``."""
    if not isinstance(items, Mapping):
        return plain(items) if items else ""
    return "; ".join(
        f"{name}: {outward(value, upward=True) if name in COSTS else plain(value)}"
        for name, value in items.items()
    )


def plain(value: object) -> str:
    """Write any JSON value on one line, its numbers with five significant digits."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return "{" + named(value) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = ", …" if len(value) > 12 else ""
        return "[" + ", ".join(map(plain, value[:12])) + more + "]"
    return number(value)


# --- Certificates ---


def as_certificate(certificate: Certificate | Pipeline | Document) -> Certificate:
    """Return a certificate: that of a plan at its own delta, or read from its document.

    Raises
    ------
    DeclarationError
        If a plan has no finite epsilon at its delta.
    DocumentError
        If a document is not that of a certificate.
    """
    if isinstance(certificate, Certificate):
        return certificate
    if not isinstance(certificate, Pipeline):
        return Certificate.from_document(certificate)
    own = certificate.certify()
    if math.isinf(own.epsilon):
        raise DeclarationError(
            f"the plan has no finite epsilon at its delta {certificate.delta:g}; state another "
            "delta, such as plan.with_delta(1e-6)"
        )
    return own


def stamped(certificate: Certificate, of_run: Certificate) -> Certificate:
    """Return a certificate with the randomness of a run, if that was a simulation.

    The stamp of a simulation wins, whatever the certificate that is shown beside its values says.
    """
    return (
        evolve(certificate, randomness=of_run.randomness) if is_simulated(of_run) else certificate
    )


def is_simulated(certificate: Certificate) -> bool:
    """Say whether the certificate is of a seeded simulation, which must not be released."""
    return not certificate.randomness.release


def rounded_claim(certificate: Certificate) -> str:
    """Return epsilon with four significant digits, rounded up."""
    return digits4(certificate.epsilon) if certificate.epsilon < math.inf else "∞"


def tightest(certificate: Certificate) -> str:
    """Name the accountant of the claim."""
    if certificate.session is not None:
        return f"Kept by the {certificate.accountant} filter, whatever the steps were and will be."
    return f"Tightest accountant: {certificate.accountant}."


def chance(delta: float) -> str:
    """Write a delta as a chance, never too low.

    Examples
    --------
    >>> chance(1e-6), chance(3e-4)
    ('1 in 1,000,000', '1 in 3,333')
    """
    many = math.floor(1 / Fraction(repr(delta)))
    return f"1 in {many:,}" if many < 10**15 else f"1 in 10^{len(str(many)) - 1}"


def odds(epsilon: float) -> str:
    """Write by which factor odds change at most, ``exp(epsilon)``, with four digits, rounded up.

    Examples
    --------
    >>> odds(2.0), odds(1000.0)
    ('7.390', 'more than a billion')
    """
    if epsilon == 0:
        return "1.000"
    if epsilon > 20:
        return "more than a billion" if epsilon > 21 else "a billion"
    # exp is right to a unit or two in the last place: 8 of them are added before it is rounded
    return digits4(math.exp(epsilon) * (1 + 2**-50))


def digits4(value: float) -> str:
    """Write a positive upper bound with four digits, rounded up: ``2`` as ``2.000``."""
    text = shown(value, upward=True, digits=4)
    if "e" in text or not math.isfinite(value):
        return text
    places = max(0, 3 - math.floor(math.log10(float(text)))) if float(text) > 0 else 3
    return f"{float(text):,.{places}f}"


def advantage(certificate: Certificate) -> float:
    """Return the most that a test of membership gains by the claim alone, rounded up.

    The true-positive less the false-positive rate is at most ``(e^eps - 1 + 2 delta) / (e^eps +
    1)`` (Kairouz, Oh & Viswanath 2015, from the two extreme points of Theorem 2.1).
    """
    # tanh(eps / 2) + delta (1 - tanh(eps / 2)), which rises in tanh: a bound of it gives a bound
    gain = min(1.0, math.tanh(certificate.epsilon / 2) * (1 + 2**-50))
    return min(1.0, (gain + certificate.delta * (1 - gain)) * (1 + 2**-50))


ASKED = {
    "add_remove": "is in the data",
    "replace_one": "has these rows and not those",
    "zero_out": "has rows that are not blank",
}
"""What an attacker wants to know of a unit, by the neighbour relation."""


def promise(certificate: Certificate) -> list[str]:
    """Say in plain words what is promised to whom, a line for each data set.

    Odds change by at most ``exp(epsilon)`` but with probability delta: each pair of neighbours is
    told apart no better than the randomized response that tells all with probability delta, and
    else answers with these odds (Kairouz, Oh & Viswanath 2015).
    """
    epsilon, delta = certificate.epsilon, certificate.delta
    claim = f"epsilon {digits4(epsilon)}"
    claim += f", delta {shown(delta, upward=True, digits=4)}" if delta else ""
    if epsilon == math.inf:
        return ["Nothing is promised: no accountant bounds epsilon at this delta."]
    but = f", but for a chance of {chance(delta)}" if delta else ""
    start = "A run would promise" if is_simulated(certificate) else "Promised"
    lines = []
    for each in certificate.protects:
        unit, asked = each.unit or "row", ASKED.get(each.neighbors, "is in the data")
        lines.append(
            f"{start} to each {unit} of {each.data}{_at_most(each)}: these answers change "
            f"anyone's odds that the {unit} {asked} at most {odds(epsilon)}-fold{but} ({claim})."
        )
    return lines


def _at_most(item: Protected) -> str:
    if item.unit is None:
        return ""
    return f" (up to {number(item.rows_per_unit)} row{'s' * (item.rows_per_unit != 1)})"


def statement(certificate: Certificate, gain: float) -> list[str]:
    """Return what somebody who answers for the data can sign: what an attacker gains at most.

    Parameters
    ----------
    certificate
        What is claimed.
    gain
        An upper bound of the advantage of a test of membership.
    """
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon == math.inf:
        return ["This analysis promises nothing: no accountant bounds epsilon at this delta."]
    but = f", except with a chance of at most {chance(delta)} (δ = {power(delta)})" if delta else ""
    right = shown(min(1.0, math.nextafter((1 + gain) / 2, 2.0)) * 100, upward=True, digits=4)
    lines = []
    if is_simulated(certificate):
        lines.append("Of a run of this plan, not of these values, whose noise has a public seed:")
    for each in certificate.protects:
        unit, asked = each.unit or "row", ASKED.get(each.neighbors, "is in the data")
        lines.append(
            f"Random noise protects each {unit} of {each.data}{_at_most(each)}. An attacker who "
            f"sees all that this analysis releases, and has the rows of every other {unit}, gains "
            f"at most this: the odds that the {unit} {asked} change by a factor of at most "
            f"{odds(epsilon)} (ε ≤ {digits4(epsilon)}){but}. A guess at even odds is right at most "
            f"{right}% of the time, where tossing a "
            f"coin is right 50% of the time: an advantage of at most "
            f"{shown(gain, upward=True, digits=4)}."
        )
    lines.append(
        "This holds whatever the attacker knows or computes, now or later, under the assumptions "
        "listed on this page. It is about this analysis: what others release from the same data "
        "adds to it. What is true of people in general can still be learned."
    )
    return lines


DESCRIBED = {
    "purpose": "Purpose",
    "author": "Author",
    "source": "Source of the data",
    "date": "Date",
    "retention": "Retention",
}


def described(certificate: Certificate) -> list[tuple[str, str]]:
    """Return what the author says of the analysis, as titles and strings; what is empty is not."""
    given = certificate.description
    rows = [] if given is None else [(t, getattr(given, n)) for n, t in DESCRIBED.items()]
    return [row for row in rows if row[1]]


def protects(certificate: Certificate) -> list[str]:
    """Say whom the certificate protects, a sentence a data set."""
    return [_protects(item) for item in certificate.protects]


def _protects(item: Protected) -> str:
    unit = item.unit or "row"
    many = "row" if item.rows_per_unit == 1 else "rows"
    bounded = item.unit is not None
    most = f" (at most {number(item.rows_per_unit)} {many} each)" if bounded else ""
    # a relation that is not known is named as it is
    change = f"{NEIGHBORS.get(item.neighbors, item.neighbors)} one {unit}"
    size = item.size
    public = f" The number of rows, {number(size)}, is public." if size is not None else ""
    return (
        f"Protects each {unit} of {item.data}{most}: neighbouring data sets differ by "
        f"{change} ({item.neighbors}).{public}"
    )


def session(certificate: Certificate) -> list[str]:
    """Return what a session has spent of its budget; nothing of other certificates."""
    section = certificate.session
    if section is None:
        return []
    reading = outward(section.odometer.epsilon, upward=True)
    rows = list(zip(section.accounting_units, section.spent, section.remaining, strict=False))
    rows.sort(key=lambda row: not row[2] > 0)  # first the units in which budget is left
    costs = [
        f"{n}: {outward(s, upward=True)} spent, {outward(r, upward=False)} left"
        if math.isfinite(s)
        else f"{n}: not in use, since a step has no bound in it"
        for n, s, r in rows[:3]
    ]
    more = [f"and {len(rows) - 3} more accounting units"] if len(rows) > 3 else []
    total = f"Spent so far, wherever the analyst stops: ε = {reading}"
    if section.odometer.theorem == section.theorem:  # a filter of each record
        total = f"What each record has spent is private, and at most the whole: ε = {reading}"
    return [
        f"Steps: {len(section.steps)}.",
        f"Filter: {section.theorem}.",
        f"{total} ({section.odometer.theorem}).",
        "; ".join([*costs, *more]) + ".",
        f"Ledger: {number(section.ledger.entries)} entries, the last hash {section.ledger.head}.",
    ]


def accountants(certificate: Certificate) -> Table:
    """Return the table of accountants: those that apply, then those that do not, with why.

    Of a session, whose steps were chosen as it ran, only those that apply; few do, and its claim is
    its filter's.
    """
    head = ["accountant", "lower ε", "upper ε", "theorem", "remark"]
    listed = list(certificate.accountants)
    if certificate.session is not None:
        listed = [item for item in listed if item.applies]
    rows = []
    for item in sorted(listed, key=lambda item: not item.applies):
        remark = item.reason
        if not item.applies:
            remark = f"does not apply: {remark}" if remark else "does not apply"
        elif item.name == certificate.accountant:
            remark = f"tightest; {remark}" if remark else "tightest"
        bounds = [outward(item.lower, upward=False), outward(item.upper, upward=True)]
        rows.append([item.name, *bounds, item.theorem or NONE, remark])
    return head, rows


def nodes(certificate: Certificate) -> Table:
    """Return the table of releases, a row a node."""
    rows = [release(item) for item in certificate.nodes]
    return list(rows[0]) if rows else [], [list(row.values()) for row in rows]


def release(item: ReleaseRow) -> dict[str, str]:
    """Return what a certificate says of a release, by the titles of the table's columns."""
    return {
        "node": item.node,
        "query": item.query or NONE,
        "mechanism": mechanism(item),
        "times": number(item.times),
        "distance": distance(item),
        "loss": loss(item.loss),
        "theorem": item.theorem or NONE,
        "source": item.source or NONE,
        "conversions": named(item.conversions) or NONE,
        "share": percent(item.share),
        "in the worst world": number(item.in_worst_world),
        "region": ", ".join(item.region) or "everywhere",
        "sampler": item.sampler or NONE,
    }


def release_lines(item: ReleaseRow) -> list[tuple[str, str]]:
    """Return what there is to say of a release, as titles and strings."""
    row = release(item)
    again = f", {row['times']} times" if item.times != 1 else ""
    return [
        ("query", " > ".join(step for step in (item.of, item.query) if step) or NONE),
        ("mechanism", row["mechanism"] + again),
        ("sensitivity", row["distance"]),
        ("loss", row["loss"]),
        ("theorem", row["theorem"]),
        ("loss by", row["source"]),
        ("sampler", row["sampler"]),
        ("where", row["region"]),
        ("worst world", row["in the worst world"]),
    ]


def mechanism(item: ReleaseRow) -> str:
    """Write a node's mechanism with its parameters, as in ``Laplace(scale=5)``."""
    # a text such as a proof is in the plan; here its beginning
    inside = ", ".join(
        f"{name}={cut(value, 60) if isinstance(value, str) else plain(value)}"
        for name, value in item.parameters.items()
    )
    return f"{item.mechanism}({inside})"


def distance(item: ReleaseRow) -> str:
    """Write how far a neighbour can move the query, and in which norm."""
    return f"{outward(item.distance, upward=True)} in L{number(item.norm)}"


def loss(item: LossRow) -> str:
    """Write a loss by its kind and its parameters, those that are costs rounded up."""
    written = [
        f"{name}={outward(value, upward=True) if name in COSTS else plain(value)}"
        for name, value in item.parameters.items()
    ]
    return f"{item.kind}({', '.join(written)})"


def worlds(certificate: Certificate) -> list[str]:
    """Describe the worlds: how many, whether all were tried, and the one that costs most."""
    row = certificate.worlds
    worst = ", ".join(row.worst) or "the only one: no part is singled out"
    how = (
        "The maximum over them is exact."
        if row.exact
        else "They were too many to try one by one: the claim rests on a bound that holds in each."
    )
    equal = " Others are as bad." if certificate.ties else ""
    return [f"Worst world: {worst}.{equal}", f"Number of worlds: {number(row.count)}. {how}"]


def given(certificate: Certificate) -> tuple[str, Table]:
    """Say in a sentence what the analyst gave, and list it: those without a reason first."""
    values = sorted(certificate.given, key=lambda each: bool(each.because))
    unsaid = sum(not each.because for each in values)
    lead = (
        f"{len(values):,} values were given by the analyst, and {len(values) - unsaid:,} of them "
        "are public for the reason that the owner states. Others must not be chosen by looking at "
        "the data: edges, thresholds or candidates that fit them are a leak that no noise covers."
    )
    rows = [[each.place, each.value, each.because or UNSAID] for each in values]
    return lead, (["given", "value", "why it is public"], rows)


UNSAID = "given by the analyst; must not be chosen by looking at the data"
"""What stands in the place of a reason that nobody gave."""


def third_party(certificate: Certificate) -> list[str]:
    """Say whose code a certificate rests on, beside the library's."""
    return [f"It trusts {row}." for row in certificate.third_party]


def randomness(certificate: Certificate, *, ran: bool = False) -> list[str]:
    """Describe where the noise came from; a certificate alone cannot tell whether its plan ran."""
    row = certificate.randomness
    if is_simulated(certificate):
        lines = [f"Source: {row.source}.", f"{BANNER}."]
    elif ran:
        lines = [f"Source: {row.source}.", "Fit for release: yes."]
    else:
        lines = [f"If the plan is run: noise from {row.source}."]
        lines += ["A certificate does not say whether it was."]
    return lines + [f"Sampler: {item}" for item in row.samplers]


def versions(certificate: Certificate) -> Table:
    """Return the table of software versions."""
    return ["software", "version"], [[k, str(v)] for k, v in certificate.versions.items()]


# --- Audits ---


def audited(certificate: Certificate, audit: Audited) -> Table:
    """Return the table of an audit: the empirical lower bound beside the certified upper one."""
    document = audit if isinstance(audit, Mapping) else audit.document()
    epsilon, delta = rounded_claim(certificate), exact(certificate.delta)
    confidence = number(document.get("confidence"))
    witness = document.get("witness") or {}
    rows = [
        ["certified upper bound", f"ε ≤ {epsilon} at δ = {delta}"],
        [
            "empirical lower bound",
            f"ε ≥ {outward(document.get('epsilon_lower'), upward=False)} at δ = "
            f"{exact(document.get('delta'))}, with confidence {confidence}",
        ],
        ["verdict of the audit", str(document.get("verdict"))],
        ["tested claim", str(document.get("claim"))],
        [
            "would have been detected",
            f"ε = {outward(document.get('power'), upward=True)} {POWER_HOLDS}",
        ],
        ["pair", str(witness.get("pair") or NONE)],
        ["event", str(witness.get("event") or NONE)],
        [
            "guesses",
            f"{number(witness.get('right'))} right and {number(witness.get('wrong'))} wrong, of "
            f"{number(witness.get('tries'))} {document.get('tried') or 'runs'}",
        ],
    ]
    if _contradicted(certificate, document):
        said = "the lower bound is above the certificate: one of them is wrong, or of another plan"
        rows.insert(0, ["CONTRADICTION", said])
    rows += [["assumes", str(text)] for text in document.get("assumptions") or ()]
    rows += [["note", str(text)] for text in document.get("notes") or ()]
    return ["audit", "result"], rows


def _contradicted(certificate: Certificate, audit: Document) -> bool:
    """Whether an audit's lower bound is above a claim: at its delta, or at a larger one."""
    lower, at = audit.get("epsilon_lower"), audit.get("delta")
    if not isinstance(lower, int | float) or not isinstance(at, int | float):
        return False
    return lower > certificate.epsilon and at >= certificate.delta


def corners(audit: Document) -> Table:
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


def profile(audit: Document) -> Table:
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
