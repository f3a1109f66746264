"""The commands that need no plan: epsilon, delta and calibrate, of a mechanism given by numbers.

Neighbours differ by one unit that is added or removed; with a sampling rate each step runs on a
Poisson sample of the units.
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from accountants import (
    ACCOUNTANTS,
    Answer,
    DomainError,
    Gaussian,
    Laplace,
    Repeated,
    Sampled,
    Spend,
    Term,
    measure,
    plot,
    tightest,
    worlds,
)
from accountants.calibration import Calibration, calibrate
from accountants.document import from_json
from accountants.errors import integer, positive, probability
from accountants.guarantee import Guarantee
from accountants.numerics import Bounds, ceiling, shown
from adaptive_dp.cli.output import say, writable
from adaptive_dp.cli.plan_files import content_of


def answer(options: Namespace) -> int:
    """Print every accountant's epsilon at a delta, or delta at an epsilon."""
    # before the computation, which may take long: a picture that cannot be written is refused now
    writable(options.plot)
    term, text = _described(options)
    asked = (
        {"delta": options.delta} if options.command == "epsilon" else {"epsilon": options.epsilon}
    )
    every = worlds(term)
    answers = {each.name: measure(every, each, **asked) for each in ACCOUNTANTS}
    best = tightest(answers)
    assert best.bounds is not None
    # every accountant bounds the same quantity, so the largest lower bound holds for it too
    lower = max(a.bounds.lower for a in answers.values() if a.bounds is not None)
    # lower bounds never above the answer, whichever accountants they come from
    bounds = Bounds(min(lower, best.bounds.upper), best.bounds.upper)
    if options.plot:
        _plot(options, term, answers)
    if options.json:
        every_one = {name: _document(a) for name, a in answers.items()}
        say(json.dumps({options.command: _ends(bounds), "accountants": every_one} | asked))
    else:
        say(_table(text, options.command, asked, answers, best, bounds))
    return 0


def solve(options: Namespace) -> int:
    """Print the least noise, or the most steps, within a budget."""
    steps = options.steps if options.steps is not None else 1
    noise_multiplier = options.noise_multiplier
    if noise_multiplier is not None and options.steps is not None:
        raise DomainError(
            "calibrate solves for what is left out: the noise multiplier, or --steps if "
            "--noise-multiplier is given; leave out one of the two"
        )
    target = {"epsilon": options.epsilon, "delta": options.delta}
    rate = options.sampling_rate
    # more steps cost more; more noise costs less
    if noise_multiplier is not None:
        name = "steps"
        calibration = calibrate(
            lambda n: _steps(_gaussian(noise_multiplier), rate, n),
            integer=True,
            cost="increasing",
            **target,
        )
    else:
        name = "noise_multiplier"
        calibration = calibrate(
            lambda z: _steps(_gaussian(z), rate, steps), cost="decreasing", **target
        )
    if options.json:
        rest = {"delta": calibration.delta, "accountant": calibration.accountant}
        say(json.dumps({name: calibration.value, "epsilon": _ends(calibration.epsilon)} | rest))
    else:
        say(_solution(name, calibration))
    return 0


def _solution(name: str, calibration: Calibration) -> str:
    what = {"steps": "steps", "noise_multiplier": "noise multiplier"}[name]
    # rounded up: the printed epsilon may only be too large
    upper = shown(calibration.epsilon.upper, upward=True, digits=12)
    return (
        f"{what}  {calibration.value!r}\n"
        f"epsilon <= {upper} at delta = {calibration.delta!r} ({calibration.accountant})"
    )


# --- the mechanism


def _described(options: Namespace) -> tuple[Term, str]:
    """Return the term that the arguments describe, and a description in words."""
    given = {
        "--noise-multiplier": options.noise_multiplier,
        "--laplace-scale": options.laplace_scale,
        "--term": options.term,
    }
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise DomainError(
            f"say what runs with one of {', '.join(given)}; got {' and '.join(named) or 'none'}"
        )
    # a term has its own steps and rates: a second number for either would be ignored
    if options.term is not None:
        for name, value in (("--steps", options.steps), ("--sampling-rate", options.sampling_rate)):
            if value is not None:
                raise DomainError(f"{name} belongs to a noise; put it into {options.term} instead")
        return _read(options.term), f"the term of {options.term}"
    steps, rate = options.steps if options.steps is not None else 1, options.sampling_rate
    if options.laplace_scale is not None:
        scale = options.laplace_scale
        loss, text = _laplace(scale), f"Laplace noise of scale {scale!r} times the l1 sensitivity"
    else:
        z = options.noise_multiplier
        loss, text = _gaussian(z), f"Gaussian noise of {z!r} times the l2 sensitivity"
    often = "one release" if steps == 1 else f"{steps} releases"
    sampled = "" if rate is None else f", each on a Poisson sample at rate {rate!r}"
    return _steps(loss, rate, steps), f"{often}: {text}{sampled}\none unit is added or removed"


def _gaussian(noise: float) -> Spend:
    """Return the loss of a noise multiplier, its inverse rounded up."""
    return Spend(Gaussian(mu=_inverse("--noise-multiplier", noise)))


def _laplace(scale: float) -> Spend:
    return Spend(Laplace(epsilon=_inverse("--laplace-scale", scale)))


def _inverse(what: str, value: float) -> float:
    # the float is taken as the rational number that it is, and the inverse rounded up: the loss may
    # only be too large
    return ceiling(1 / Fraction(positive(what, value)))


def _steps(part: Term, rate: float | None, steps: int) -> Term:
    integer("--steps", steps)
    if rate is not None:
        probability("--sampling-rate", rate)
    # sampling is inside, repetition outside: each step draws a sample of its own
    return Repeated(part if rate is None else Sampled(part, rate), steps)


def _read(path: Path) -> Term:
    text = content_of(path)
    try:
        return from_json(text)
    except DomainError as error:
        raise DomainError(f"{path}: {error}") from None


# --- what is printed


def _ends(bounds: Bounds) -> dict[str, float | str]:
    """Return both ends; an infinite one as a ``str``, since JSON has no such number."""
    return {
        "lower": bounds.lower,
        "upper": bounds.upper if math.isfinite(bounds.upper) else str(bounds.upper),
    }


def _document(answer: Answer) -> dict[str, Any]:
    return {"reason": answer.reason} if answer.bounds is None else dict(_ends(answer.bounds))


def _table(
    text: str,
    what: str,
    asked: Mapping[str, float],
    answers: Mapping[str, Answer],
    best: Answer,
    bounds: Bounds,
) -> str:
    (given, value), width = next(iter(asked.items())), max(map(len, answers))
    rows = [text, "", f"{'accountant':{width}}  at least      at most"]
    for name, each in answers.items():
        mark = "  <- tightest" if each is best else ""
        rows.append(f"{name:{width}}  {_row(each)}{mark}")
    # upper ends are rounded up, lower ends down: what is printed still contains the answer
    upper = shown(bounds.upper, upward=True)
    lower = shown(bounds.lower, upward=False)
    # infinity would be printed as a bound; the sentence says that there is none
    if math.isinf(bounds.upper):
        return "\n".join([*rows, "", f"no {what} is proven to hold at {given} = {value!r}"])
    rows += ["", f"{what} <= {upper} at {given} = {value!r} (not below {lower})"]
    return "\n".join(rows)


def _row(answer: Answer) -> str:
    if answer.bounds is None:
        return f"does not apply: {answer.reason}"
    lower, upper = answer.bounds.lower, answer.bounds.upper
    return f"{shown(lower, upward=False):12}  {shown(upper, upward=True):12}".rstrip()


def _plot(options: Namespace, term: Term, answers: Mapping[str, Answer]) -> None:
    """Write a picture: the accountants side by side, and the privacy profile."""
    unit = "epsilon (nats)" if options.command == "epsilon" else "delta (probability)"
    left, right = plot.panels(2)
    plot.accountants(answers, title=unit, logarithmic=options.command == "delta", ax=left)
    plot.profile(Guarantee(term), ax=right)
    plot.save(left, options.plot)
