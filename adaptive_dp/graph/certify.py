"""Building a certificate: every accountant's bound, a row for each release, and what all rests on.

The last of the four forms of a release (handle, node, term, certificate row; see
`adaptive_dp.graph.compile`). `certificate` is the way through: the plan is compiled into one term
for each data set; the worlds (branches of parallel composition) of their sequential composition are
measured by each accountant; the least upper bound of epsilon is the claim.
"""

from __future__ import annotations

import math
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import (
    Distribution,
    EntryPoint,
    PackageNotFoundError,
    distributions,
    entry_points,
    version,
)
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import scipy
from attrs import evolve

import accountants
from accountants import Accountant, Answer, DomainError, InapplicableError, PrivacyLoss, Worlds
from accountants.accountant import checked_accountant
from accountants.certification import Answers
from accountants.document import LOSSES, place_of
from accountants.loss import parameters
from accountants.numerics import COSTS, shown
from accountants.terms import Term, containing
from accountants.world import World
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.certificate import (
    AccountantRow,
    AccountantRows,
    Certificate,
    Claim,
    Kind,
    LossRow,
    Place,
    PlanDocument,
    Protected,
    Randomness,
    ReleaseRow,
    ReleaseRows,
    ThirdParty,
    WorldsRow,
)
from adaptive_dp.graph.compile import SEVERAL, regions
from adaptive_dp.graph.errors import DeclarationError, PluginError
from adaptive_dp.graph.handles import (
    BoundOperation,
    PartOperation,
    SourceOperation,
    part_title,
)
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, ReleaseNode, Structure, collection_paused
from adaptive_dp.graph.registry import MECHANISMS, is_own
from adaptive_dp.graph.values import fields_of

# -----------------------------------------------------------------------------
# Plug-ins: what other distributions publish by entry points, listed without importing any of it.
#
# A distribution publishes a plug-in by a line of its metadata, here in its pyproject.toml::
#
#     [project.entry-points."adaptive_dp.accountants"]
#     tightest = "their_package.tightest:Tightest"
#
# Nothing is registered at run time, and importing the library imports no plug-in: `entries` reads
# metadata, `resolved` imports one. Names of the library's own cannot be taken.


PREFIX = "adaptive_dp."
KINDS = ("mechanisms", "accountants", "losses", "queries", "solvers")
"""The kinds of plug-ins; the group of entry points is ``adaptive_dp.`` and the kind."""

OURS: Mapping[str, Accountant[Any]] = {each.name: each for each in accountants.ACCOUNTANTS}


def entries(kind: str) -> list[EntryPoint]:
    """Return the plug-ins of a kind, ordered by name."""
    # a distribution that is twice on the path publishes each entry point once
    unique = {
        (e.name, e.value, _distribution_title(e)): e for e in entry_points(group=PREFIX + kind)
    }
    return [unique[key] for key in sorted(unique)]


def _distribution_title(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"


def titled(entry: EntryPoint) -> str:
    """Return a plug-in's name with its distribution, for messages."""
    return (
        f"the plug-in {entry.name!r} of {_distribution_title(entry)} ({entry.group}: {entry.value})"
    )


def publisher(module: str) -> Distribution | None:
    """Return the distribution that publishes a plug-in from a module."""
    for kind in KINDS:
        for entry in entry_points(group=PREFIX + kind):
            if entry.module == module and entry.dist is not None:
                return entry.dist
    return None


def usable(
    entry: EntryPoint, builtin: Collection[str], published: Collection[EntryPoint]
) -> PluginError | None:
    """Return why a plug-in's name cannot be used: it is the library's, or two plug-ins have it."""
    # case-insensitive: readers would confuse names that differ in case alone
    name = entry.name.casefold()
    if name in {each.casefold() for each in builtin}:
        return PluginError(
            f"{titled(entry)} is not used: {entry.name!r} is a name of the library's own, which "
            "no plug-in can take; publish it under another"
        )
    others = [each for each in published if each.name.casefold() == name and each is not entry]
    if others:
        return PluginError(
            f"{titled(entry)} is not used: {titled(others[0])} has the same name; "
            "uninstall one of them"
        )
    return None


def resolved(entry: EntryPoint) -> Any:
    """Return what an entry point names, imported.

    Raises
    ------
    PluginError
        Whatever its code raises; with the plug-in's name and distribution.
    """
    try:
        return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # their code may raise anything, SystemExit too
        raise PluginError(
            f"{titled(entry)} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def accountant(entry: EntryPoint) -> Accountant[Any]:
    """Return the accountant that an entry point names: an instance, or a class without parameters.

    Raises
    ------
    PluginError
        If it is not an accountant, or calls itself by another name.
    """
    instance = resolved(entry)
    if isinstance(instance, type):
        try:
            instance = instance()
        except Exception as error:
            raise PluginError(
                f"{titled(entry)} cannot be made without arguments ({type(error).__name__}: "
                f"{error}); publish an instance"
            ) from error
    try:
        checked_accountant(instance)
    except DomainError as error:
        raise PluginError(f"{titled(entry)}: {error}") from None
    # verification looks an accountant up by the name that stands in the certificate
    if instance.name != entry.name:
        raise PluginError(
            f"{titled(entry)} calls itself {instance.name!r} in certificates; a certificate is "
            "verified by that name, so publish it under the same"
        )
    return instance  # type: ignore[no-any-return]


def allowed_accountant(name: str, allow: Collection[str]) -> Accountant[Any] | PluginError:
    """Return a published accountant if its module is allowed, else the error that says why not."""
    published = entries("accountants")
    matches = [entry for entry in published if entry.name == name]
    if not matches:
        return PluginError(
            f"the accountant {name!r} is unknown: the library has none of that name, and no "
            "installed distribution publishes it, so that its bound cannot be recomputed"
        )
    entry = matches[0]
    # a taken name is refused before the module is imported
    problem = usable(entry, OURS, published)
    if problem is not None:
        return problem
    # importing runs a third party's code: only where the reader has said so
    if entry.module not in allow:
        return PluginError(
            f"{titled(entry)} is not part of the library; importing it runs its module's code. If "
            f"you trust it, allow it: allow=[{entry.module!r}], or --allow {entry.module} on the "
            "command line"
        )
    try:
        return accountant(entry)
    except PluginError as error:
        return error


# -----------------------------------------------------------------------------
# Third-party code: the installed distribution that each class of a certificate comes from.
#
# A certificate's proof rests on the code of every mechanism, loss, query and accountant in it. The
# library's are tested against independent truths; for others a certificate names the distribution
# and its version, so that a reader can decide whether to trust them, and `verify` can compare.


def label(cls: type, taken: Collection[str]) -> str:
    """Return a class's name; with its module where it is a third party's and the name is taken.

    Parameters
    ----------
    taken
        The names of the library's own classes of this sort.
    """
    return place_of(cls) if cls.__name__ in taken and not is_own(cls) else cls.__name__


def origin(module: str) -> tuple[str | None, str | None]:
    """Return the name and version of the distribution that contains a module, or None.

    It is the one whose record lists the imported file; where there is none (an editable install),
    the one that publishes the module as a plug-in.
    """
    # a file that no installed record lists may still belong to a published plug-in
    distribution = _distribution_of(module) or publisher(module)
    return (distribution.name, distribution.version) if distribution else (None, None)


def _distribution_of(module: str) -> Distribution | None:
    """Return the distribution beside a module's package whose record lists the module's file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return None
    # parts of the dotted name above the module's file, one more for a package's __init__
    path, above = Path(file), module.count(".") + (Path(file).stem == "__init__")
    if above >= len(path.parents):
        return None
    folder = path.parents[above]
    # the path as it begins a line of RECORD, followed by its hash
    line = path.relative_to(folder).as_posix() + ","
    for each in distributions(path=[str(folder)]):
        record = each.read_text("RECORD") or ""
        if record.startswith(line) or f"\n{line}" in record:
            return each
    return None


def third_party(
    structure: Structure,
    mechanisms: Collection[type[Mechanism]],
    losses: Iterable[PrivacyLoss],
    accountants: Iterable[Accountant[Any]],
) -> tuple[ThirdParty, ...]:
    """Return a row for each class on which a certificate rests and that is not the library's.

    Parameters
    ----------
    structure
        Of the plan, whose operations count.
    mechanisms
        The classes of the mechanisms.
    losses, accountants
        All that the certificate rests on.
    """
    operations = set(map(type, structure.operations))
    kinds: dict[Kind, set[type]] = {
        "accountant": {type(each) for each in accountants},
        "loss": set(_loss_classes(losses)),
        "mechanism": set(mechanisms),
        "query": operations,
    }
    rows = [
        ThirdParty(kind, place_of(cls), *origin(cls.__module__))
        for kind, classes in kinds.items()
        for cls in classes
        if not is_own(cls)
    ]
    # what a mechanism computes its loss by is named too: the claim rests on that code
    names = {(each, name) for each in mechanisms for name in each.libraries}
    rows += [ThirdParty("library", place_of(c), *installed(n)) for c, n in names]
    return tuple(sorted(rows, key=lambda row: list(map(str, attrs.astuple(row)))))


def installed(name: str) -> tuple[str, str | None]:
    """Return a distribution's name and the version that is installed; None where it is not."""
    distribution = next(iter(distributions(name=name)), None)
    return name, distribution.version if distribution is not None else None


def _loss_classes(losses: Iterable[Any]) -> Iterator[type]:
    """Yield the classes of losses, and of those that they are made of."""
    # an explicit queue, since losses may be nested deep
    queue = list(losses)
    while queue:
        value = queue.pop()
        if isinstance(value, tuple | list | frozenset | set):
            queue += value
        elif isinstance(value, PrivacyLoss):
            yield type(value)
            if attrs.has(type(value)):
                queue += [getattr(value, f.name) for f in fields_of(type(value))]


# -----------------------------------------------------------------------------
# Assumptions: what a certificate's claim rests on that no program can check.


ASSUMPTIONS = (
    "It covers one run of the plan: each further run on the same data costs as much again.",
    "The declared bounds, categories, sizes, filters and noise were chosen without looking at "
    "the private data, and the types of the data's columns depend on no one's values.",
    "Nothing about the data leaves by another way than the plan's releases: functions of "
    "released values reach no private data, and running times and memory are not observed.",
)


def assumptions(
    structure: Structure, releases: Iterable[ReleaseNode], samplers: Sequence[str]
) -> list[str]:
    """Return the assumptions as sentences: those of every plan, then those of this one.

    Parameters
    ----------
    structure
        Of the plan.
    releases
        Its releases; of those that are alike one is enough.
    samplers
        How their noise is drawn.
    """
    sentences = list(ASSUMPTIONS)
    for operation in structure.operations:
        if isinstance(operation, SourceOperation):
            sentences += _source_assumptions(operation)
    # each node once, as releases share most of their steps
    steps = {id(step): step.handle.operation for release in releases for step in release.steps}
    sentences += sorted({operation.assumes() for operation in steps.values()} - {""})
    mechanisms = {type(release.mechanism) for release in releases}
    foreign = [m.__name__ for m in mechanisms if not is_own(m)]
    if foreign:
        sentences.append(
            f"The losses that {', '.join(sorted(set(foreign)))} declare are true of what they "
            "release (mechanisms from outside of the library)."
        )
    libraries = sorted({name for m in mechanisms for name in m.libraries})
    if libraries:
        sentences.append(
            f"What {', '.join(libraries)} computes of losses, and draws as noise, is right (from "
            "outside of the library)."
        )
    if any("float64" in sampler for sampler in samplers):
        sentences.append(
            "Noise is drawn in float64: the theorems hold for real numbers, and the lowest bits of "
            "a released number may tell more than they promise."
        )
    return sentences


def _source_assumptions(source: SourceOperation) -> Iterator[str]:
    if source.unit is not None:
        yield (
            f"In {source.name!r} all rows of whom to protect carry the same {source.unit!r}, no "
            "two of them share one, and this column itself is not released. Rows without one are "
            "not used."
        )
    if source.neighbors != "add_remove":
        yield f"The number of units of {source.name!r} is public."


# -----------------------------------------------------------------------------
# Each release's row in the certificate: what it is, what it costs, and its share.


def rows(
    structure: Structure,
    losses: Mapping[int, tuple[PrivacyLoss, int]],
    best: Answer,
    delta: float,
    answers: Mapping[str, Answer],
    term: Term,
) -> ReleaseRows:
    """Return a row for each release; shares are those of ``best``, in its worst world.

    Parameters
    ----------
    structure
        Of the plan.
    losses
        What `adaptive_dp.graph.compile.release_loss` returns, by the number of releases that are
        alike (`adaptive_dp.graph.nodes.Merged.alike`).
    best
        The answer of the tightest accountant.
    delta
        The delta of the claim.
    answers
        Those of all accountants that were asked, by name.
    term
        Of the plan.
    """
    alike, parts = structure.alike, structure.parts

    def made() -> Iterator[tuple[ReleaseRow, list[Place]]]:
        costs = _costs(losses, best, delta)
        in_named, in_worst = _in_worst_worlds(structure, term, best, delta)
        # shares are of the worst world: what a unit in it does not touch is not in the total, and
        # of parts that are equal one is
        counts = Counter([alike[rank] for rank in structure.release_ranks if in_named(parts[rank])])
        total = math.fsum(costs[number] * times for number, times in counts.items())
        conversions = _conversions({loss for loss, _ in losses.values()}, answers)
        shared: dict[tuple[int, bool], ReleaseRow] = {}
        around: dict[int, tuple[str, ...]] = {}
        for rank in structure.release_ranks:
            release, number = structure.node(rank), alike[rank]
            assert isinstance(release, ReleaseNode)
            # the regions around a release, in which its loss is repeated, sampled or parted, are
            # those around what it asks about, if no loop is around it
            place = rank if release.loops else structure.of(release.query.inputs[0]).rank
            region = around.get(place)
            if region is None:
                region = around[place] = tuple(regions(release))
            key = number, in_worst(parts[rank])
            row = shared.get(key)
            if row is None:
                loss, times = losses[number]
                query, data_path = _query_shown(release)
                row = shared[key] = ReleaseRow(
                    node=release.name,
                    query=query,
                    of=data_path,
                    times=times,
                    region=region,
                    share=costs[number] / total if total > 0 else 0.0,
                    in_worst_world=key[1],
                    **_equal_rows(release, loss, conversions[loss], _loss_row(loss)),
                )
            yield row, [(release.name, region)]

    return ReleaseRows.later(collection_paused()(lambda: list(made())))


InPart = Callable[[int | None], bool]
"""Whether a part, by its rank, and those around it, lie in certain worlds; None is no part."""

MOST_TIES = 64
"""So many different parts are measured for whether their worlds are as bad as the worst."""

TIED = 1e-6
"""Bounds that differ by less than this share are taken as equal."""


def _in_worst_worlds(
    structure: Structure, term: Term, best: Answer, delta: float
) -> tuple[InPart, InPart]:
    """Return whether a part lies in the world that is named as the worst, and whether in any worst.

    Of worlds with equal bounds one is named. What lies in another of them may not add any loss
    either, so it must not be taken for something whose noise could be less.
    """
    labels, handles = _parts_named(best.world), structure.merged.handles
    named = _inside_of(structure, lambda part: part_title(handles[part]) in labels, labels)
    if not labels or best.bounds is None:
        return named, named
    inside = compiler.Contents.of(structure)
    # parts of one partition in which alike releases are made are equal: one is asked for all
    equals: dict[tuple[int, int], list[int]] = {}
    for partitions in inside.partitions.values():
        for partition, parts in partitions.items():
            for part in parts:
                equals.setdefault((partition, inside.signature[part]), []).append(part)
    measured: dict[tuple[int, int], bool] = {}

    def tied(part: int) -> bool:
        group = structure.merged.reads[part][0], inside.signature[part]
        if group not in measured:
            # past the most that are measured a part counts as tied: nothing is said of it
            measured[group] = (
                any(named(each) for each in equals[group])
                or len(measured) >= MOST_TIES
                or _is_tied(term, part_title(handles[equals[group][0]]), best, delta)
            )
        return measured[group]

    return named, _inside_of(structure, tied, labels)


def _inside_of(
    structure: Structure, accepts: Callable[[int], bool], labels: Collection[str]
) -> InPart:
    known: dict[int | None, bool] = {None: True}

    def inside(part: int | None) -> bool:
        if part not in known:
            assert part is not None
            outer = structure.parts[structure.merged.reads[part][0]]
            known[part] = inside(outer) and (SEVERAL in labels or accepts(part))
        return known[part]

    return inside


def _is_tied(term: Term, title: str, best: Answer, delta: float) -> bool:
    """Return whether a world in which a unit lies in a part has a bound as large as the worst."""
    assert best.bounds is not None
    largest = 0.0
    for restricted in containing(term, title):
        bounds = accountants.measure(restricted, best.accountant, delta=delta).bounds
        if bounds is None:
            return True  # nothing is known of it
        largest = max(largest, bounds.upper)
    return largest >= best.bounds.upper * (1 - TIED)


def _equal_rows(
    release: ReleaseNode, loss: PrivacyLoss, conversions: Mapping[str, str], shown_loss: LossRow
) -> dict[str, Any]:
    """Return the fields that the rows of equal releases share: the mechanism and what it costs."""
    mechanism = release.mechanism
    return {
        "mechanism": label(type(mechanism), MECHANISMS),
        "parameters": _parameters_written(release),
        "norm": float(mechanism.norm),
        "distance": float(compiler.release_distance(release)),
        "loss": shown_loss,
        "theorem": _theorem(mechanism),
        "source": loss.theorem,
        "sampler": mechanism.sampler,
        "conversions": conversions,
    }


def _theorem(mechanism: Mechanism) -> str:
    """Return what a mechanism's loss rests on: of one that is not the library's, that it is stated.

    That of a function is proved; its own class says so (`Mechanism.from_function`).
    """
    if is_own(type(mechanism)):
        return mechanism.theorem
    return f"stated: {mechanism.theorem}" if mechanism.theorem else "stated by its class"


def _loss_row(loss: PrivacyLoss) -> LossRow:
    return LossRow(
        label(type(loss), LOSSES),
        {name: _parameter_shown(value) for name, value in parameters(loss).items()},
    )


def _parameters_written(release: ReleaseNode) -> dict[str, Any]:
    """Return the parameters of a release's mechanism, as they stand in its plan's document."""
    written = release.written["mechanism"]
    return {name: written[name] for name in release.mechanism.parameters()}


def _parameter_shown(value: Any) -> str | int | float:
    """Return a loss's parameter for people: of losses with their counts, each loss."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, float):
        return float(value)  # a rational is read as the float above it
    if isinstance(value, int | str):
        return value
    if isinstance(value, tuple) and all(isinstance(v, tuple) and len(v) == 2 for v in value):
        return ", ".join(_loss_shown(loss) + (f" x {n}" if n > 1 else "") for loss, n in value)
    return str(value)


def _loss_shown(loss: PrivacyLoss) -> str:
    shown_parameters = ", ".join(
        f"{k} {_number(k, v)}" if isinstance(v, float) else f"{k} {v}"
        for k, v in parameters(loss).items()
    )
    return f"{type(loss).__name__} {shown_parameters}"


def _number(name: str, value: float) -> str:
    return shown(value, upward=True) if name in COSTS else f"{value:.6g}"


def _costs(
    losses: Mapping[int, tuple[PrivacyLoss, int]], best: Answer, delta: float
) -> dict[int, float]:
    """Return each release's cost in the accountant's unit; 0 where it has no finite one."""
    # the cost of a loss at the state to which all losses composed
    function = best.accountant.cost_function(best.state, delta)

    def cost(loss: PrivacyLoss) -> float:
        try:
            return function(loss)
        except InapplicableError:  # of a session that adds up in several units: not in this one
            return math.inf

    # each loss once, however many releases have it
    costs = {loss: cost(loss) for loss in dict.fromkeys(loss for loss, _ in losses.values())}
    # an infinite cost has no share; 0 keeps the sum of the others meaningful
    finite = {loss: value if math.isfinite(value) else 0.0 for loss, value in costs.items()}
    return {number: finite[loss] * times for number, (loss, times) in losses.items()}


def _parts_named(world: World) -> set[str]:
    """Return the titles of the parts that a world names, without the rows that lie in each."""
    # a world that splits a unit's rows says how many lie in each part
    rowless = {re.sub(r" \(\d+ rows\)$", "", label) for label in world.labels}
    return rowless | set(world.labels)


def _query_shown(release: ReleaseNode) -> tuple[str, str]:
    """Return what is asked, and of what; the latter once for all parts of a partition."""
    computed = release.structure.computed
    operations = [step.handle.operation for step in release.steps[:-1]]
    operations = [each for each in operations if not isinstance(each, Loop | PartOperation)]
    key = ("path", *map(id, operations))
    data_path = computed.get(key)
    if data_path is None:
        data_path = computed[key] = " > ".join([each.label() for each in operations])
    return release.query.operation.label(), data_path


def _conversions(
    losses: set[PrivacyLoss], answers: Mapping[str, Answer]
) -> dict[PrivacyLoss, dict[str, str]]:
    by_type: dict[type, dict[str, str]] = {}
    result = {}
    for loss in losses:
        if type(loss) not in by_type:
            # the theorem depends on the class of the loss alone
            by_type[type(loss)] = {
                name: answer.accountant.conversion(loss)
                for name, answer in answers.items()
                if answer.bounds is not None
            }
        result[loss] = by_type[type(loss)]
    return result


# -----------------------------------------------------------------------------
# The way through: compile, measure, claim.


SYSTEM = "the operating system"
"""The source of the noise of a plan that is run, not simulated."""


FIXED = (  # the reason why an accountant of fixed losses has no bound for a session
    "its bound holds for losses that were fixed before the analysis; these were chosen as it ran, "
    "which a filter or an odometer covers"
)


def certificate(
    structure: Structure,
    plan: Callable[[], dict[str, Any]],
    fingerprint: str,
    delta: float,
    chosen: Sequence[accountants.Accountant[Any]],
    *,
    seed: int | None = None,
    adaptive: bool = False,
    claim: Claim | None = None,
) -> Certificate:
    """Return the certificate of a compiled plan at ``delta``.

    Parameters
    ----------
    structure, plan, fingerprint
        The nodes of the plan, what returns its document, and its digest.
    delta
        In [0, 1).
    chosen
        The accountants to ask.
    seed
        Of a simulation; None for noise from the operating system.
    adaptive
        Whether losses were chosen as the analysis ran: accountants whose bounds need losses that
        were fixed before do not apply then.
    claim
        Replaces that of the tightest accountant, where what is claimed rests on more than the
        plan: on the filter of a session.

    Raises
    ------
    InapplicableError
        If no accountant that was asked has a bound, and no ``claim`` is given.
    DeclarationError
        If a third party's accountant is refuted by the lower bounds of the library's.
    """
    # of releases that are alike one stands for all
    releases = compiler.representatives(structure)
    terms = compiler.terms(releases)
    # one expansion into worlds is shared by all accountants
    term = accountants.Sequential([each for _, each in terms])
    worlds = accountants.worlds(term)
    answers: Mapping[str, Answer] = Answers(worlds, chosen, delta)
    if adaptive:
        answers = {
            a.name: answers[a.name]
            if _holds_adaptively(worlds, a)
            else Answer(a, None, worlds.alternatives[0], reason=FIXED)
            for a in chosen
        }
    _check_upper_bounds(answers, chosen, worlds, delta)
    # a session's claim is its filter's: it stands where no accountant has a bound
    if claim is not None and not any(answer.bounds for answer in answers.values()):
        best = accountants.measure(worlds, accountants.Basic(), delta=delta)  # for shares alone
    else:
        if adaptive:  # refused if all that were asked bound only losses that were fixed before
            _check_adaptive(answers.values())
        best = accountants.tightest(answers)
    losses = {structure.alike[each.rank]: compiler.release_loss(each) for each in releases}
    samplers = sorted({each.mechanism.sampler for each in releases} - {""})
    return Certificate(
        claim=_claim(best, delta) if claim is None else claim,
        protects=tuple(_protects(structure, source) for source, _ in terms),
        fingerprint=fingerprint,
        plan=PlanDocument(plan),
        nodes=rows(structure, losses, best, delta, answers, term),
        # those that are not needed for the claim are asked when their rows are looked at
        accountants=AccountantRows(lambda: map(_accountant_row, answers.values())),
        worlds=WorldsRow(len(worlds.alternatives), worlds.exact, best.world.labels),
        assumptions=(*assumptions(structure, releases, samplers), *_accountant_assumptions(chosen)),
        randomness=randomness(seed, samplers),
        versions=dict(_versions()),
        third_party=third_party(
            structure,
            {type(release.mechanism) for release in releases},
            {loss for loss, _ in losses.values()},
            chosen,
        ),
    )


def randomness(seed: int | None, samplers: Sequence[str]) -> Randomness:
    """Return where the noise of a run comes from; with a seed it must not be released."""
    source = SYSTEM if seed is None else f"seed {seed}"
    return Randomness(source, seed is None, tuple(samplers))


def stamped(certificate: Certificate, seed: int | None) -> Certificate:
    """Return the certificate of a run of the same plan, with where its noise comes from."""
    return evolve(certificate, randomness=randomness(seed, certificate.randomness.samplers))


def _check_adaptive(answers: Collection[Answer]) -> None:
    """Refuse a session's plan if no accountant has a bound for adaptively chosen losses.

    Raises
    ------
    InapplicableError
        If all that were asked need losses that were fixed before.
    """
    if answers and all(answer.reason == FIXED for answer in answers):
        names = ", ".join(answer.accountant.name for answer in answers)
        raise InapplicableError(
            f"these steps were chosen as a session ran, and the accountants ({names}) bound losses "
            "that were fixed before; the session's filter covers them: session.certificate() is "
            "what it promises, session.epsilon what was spent so far"
        )


def _check_upper_bounds(
    answers: Mapping[str, Answer],
    chosen: Sequence[Accountant[Any]],
    worlds: Worlds,
    delta: float,
) -> None:
    """Refuse a third party's accountant whose upper bound is below a proven lower bound.

    The library's accountants bracket the tight epsilon: no valid upper bound is below their lower
    ends.

    Raises
    ------
    DeclarationError
        With both numbers.
    """
    # only third parties are checked: tests compare the library's own brackets with other truths
    if all(is_own(type(each)) for each in chosen):
        return
    answered = [a for a in answers.values() if a.bounds is not None]
    others = [a for a in answered if not is_own(type(a.accountant))]
    ours = [a.bounds for a in answered if a.bounds is not None and is_own(type(a.accountant))]
    # the library's accountants were not asked for by the caller: ask them now, for lower bounds
    if not ours:
        own = (accountants.measure(worlds, each, delta=delta) for each in accountants.ACCOUNTANTS)
        ours = [answer.bounds for answer in own if answer.bounds is not None]
    # the library's lower bounds are proven: a valid upper bound is not below the largest
    floor = max((bounds.lower for bounds in ours), default=0.0)
    for answer in others:
        name, bounds = answer.accountant.name, answer.bounds
        assert bounds is not None
        if not bounds.upper >= floor:  # NaN is refused too
            raise DeclarationError(
                f"the accountant {name!r} finds epsilon <= {bounds.upper!r} at delta = {delta:g}, "
                f"but these releases are proven to lose at least {floor!r}: it under-reports, and "
                "is not certified"
            )


def _holds_adaptively(worlds: Worlds, accountant: accountants.Accountant[Any]) -> bool:
    """Return whether an accountant's bound holds for losses that were chosen adaptively.

    A sum of pure epsilons does: the accountant must have a bound at delta = 0. How a positive delta
    is split among losses, or what their masses of delta leave of it, must not depend on what was
    released.
    """
    if not accountant.adaptive:
        return False
    # finite at delta 0: a sum of pure epsilons, which holds however losses are chosen
    bounds = accountants.measure(worlds, accountant, delta=0.0).bounds
    return bounds is not None and math.isfinite(bounds.upper)


def _accountant_assumptions(chosen: Sequence[accountants.Accountant[Any]]) -> list[str]:
    """Return the assumptions on third-party accountants."""
    names = sorted(each.name for each in chosen if not is_own(type(each)))
    if not names:
        return []
    many = "s" if len(names) > 1 else ""
    return [
        f"The bounds of the accountant{many} {', '.join(names)} hold (from outside of the library)."
    ]


def _claim(best: Answer, delta: float) -> Claim:
    assert best.bounds is not None
    return Claim(best.bounds.upper, float(delta), best.accountant.name)


def _accountant_row(answer: Answer) -> AccountantRow:
    bounds = answer.bounds
    return AccountantRow(
        name=answer.accountant.name,
        theorem=answer.accountant.theorem,
        applies=bounds is not None,
        reason=answer.reason,
        lower=None if bounds is None else float(bounds.lower),
        upper=None if bounds is None else bounds.upper,
        world=answer.world.labels,
    )


def _protects(structure: Structure, node: Node) -> Protected:
    source = node.handle.operation
    assert isinstance(source, SourceOperation)
    pairs = zip(structure.merged.order, structure.operations, strict=True)
    # the bounds on the rows of a unit along this data set's own paths
    bounds = [
        operation.rows
        for rank, operation in pairs
        if isinstance(operation, BoundOperation)
        and structure.lineage(structure.node(rank))[0] is node
    ]
    return Protected(
        data=source.name,
        neighbors=source.neighbors,
        unit=source.unit,
        rows_per_unit=max(bounds, default=1),
        size=source.size,
    )


@cache  # reading a distribution's metadata takes as long as all accountants do
def _versions() -> Mapping[str, str]:
    try:
        own = version("adaptive-dp")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "adaptive-dp": own,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
