"""Training that Opacus ran, certified: its steps by our accountants, and what nothing checked."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from accountants import Composite, Gaussian, PrivacyLoss
from accountants.losses import Sampled
from accountants.numerics import ceiling
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Neighbors
from adaptive_dp.interop import claims

POISSON = ("UniformWithReplacementSampler", "DistributedUniformWithReplacementSampler")
"""Opacus' samplers that take each example by a coin of its own, whatever their names say."""

PASSES = ("RandomSampler", "SequentialSampler")
"""PyTorch's samplers of one pass over all examples, each of which is in one batch."""

COINS = 2**24
"""The coin of an example is one of so many 32-bit floats in [0, 1)."""


def steps_of(engine: Any, *, rounds: float = 1.0) -> PrivacyLoss | None:
    """Return the loss of all steps that an Opacus engine's accountant has recorded.

    None where it has recorded none, one without noise or one at a rate above 1, or where its
    clipping adapts: then nothing is claimed.

    Parameters
    ----------
    engine
        A ``PrivacyEngine``, or anything with ``accountant.history``: a list of noise multiplier,
        sampling rate and number of steps.
    rounds
        By how much a unit's change moves a step, in units of the clipping norm.
    """
    spends: list[tuple[PrivacyLoss, int]] = []
    for multiplier, rate, steps in [] if adapts(engine) else _history(engine):
        noise = _noise(multiplier, rounds)
        if noise is None or not 0 <= float(rate) <= 1:
            return None
        q = _rate(rate)
        loss: PrivacyLoss = noise if q >= 1 else Sampled(Composite([(noise, 1)]), q)
        spends.append((loss, int(steps)))
    return Composite(spends) if spends else None


def _history(engine: Any) -> list[tuple[Any, Any, int]]:
    history = getattr(getattr(engine, "accountant", None), "history", None) or ()
    return [(z, q, int(steps)) for z, q, steps in history if steps]


def _rate(rate: Any) -> float:
    """Return the chance that a coin of Opacus' sampler takes an example: the rate, rounded up.

    It is ``torch.rand(...) < rate``, where the former is a multiple of 2^-24 and the latter is
    rounded to 32 bits: ``ceil(2^24 rate) / 2^24``, of the rate as it was rounded.
    """
    q = float(rate)
    largest = max(q, float(np.float32(q)))
    return min(1.0, math.ceil(Fraction(largest) * COINS) / COINS)


def _noise(multiplier: Any, moved: float) -> Gaussian | None:
    z = float(multiplier)
    # the shift over the noise, rounded up: a smaller one would claim too little
    return Gaussian(mu=ceiling(Fraction(moved) / Fraction(z))) if 0 < z < math.inf else None


def certificate(
    privacy_engine: Any,
    *,
    delta: float,
    data_loader: Any = None,
    optimizer: Any = None,
    noise_scheduler: Any = None,
) -> Certificate:
    """Return a certificate of a model that Opacus trained: of the steps that it has recorded.

    The noise multipliers, rates and numbers of steps are those of the engine's accountant; epsilon
    is by the accountants of this library. Opacus computes as if each batch were a Poisson sample,
    whatever the loader draws. Given the loader that was used this is looked at:

    - a loader that ``make_private`` returned draws Poisson samples, at its ``sample_rate``, which
      must be the one that was recorded;
    - a loader of passes (``poisson_sampling=False``, or PyTorch's own, shuffled or not) has each
      example in one batch of a pass. There the sample amplifies nothing: a pass costs one step
      without sampling, for examples that are zeroed out (Dwork and Roth 2014, Section 3.5, on
      batches that are disjoint), and so it is certified. Steps that accumulated several batches are
      counted by these, and must lie within a pass;
    - any other is refused, also one of PyTorch's own that draws an example twice
      (``RandomSampler(replacement=True)``).

    Adaptive clipping (``clipping="adaptive"``, or the engine ``PrivacyEngineAdaptiveClipping`` of
    ghost clipping) is refused: Opacus releases there the number of unclipped examples without
    centring it, and divides it by the number of examples in the batch, which is private; the
    multiplier that it records is for neither (1.6). Of ``clipping="adaptive"`` the optimizer tells.

    What none of this can see is listed among the certificate's assumptions.

    Parameters
    ----------
    privacy_engine
        The ``opacus.PrivacyEngine`` after the training.
    delta
        At which epsilon is certified.
    data_loader
        The loader that the training read, as ``make_private`` returned it.
    optimizer
        The optimizer that ``make_private`` returned: its noise is compared with what was recorded,
        and it shows whether clipping was adaptive.
    noise_scheduler
        The scheduler of ``opacus.schedulers`` that changed this optimizer's noise, if one did: each
        recorded noise must be one that it had set, in its order, and each step is certified at its
        own. Noise that fell without one is refused.

    Raises
    ------
    DeclarationError
        If no step with noise was recorded, or one of more than all batches of a pass; if clipping
        was adaptive; or if the loader or the optimizer is not what the recorded steps are of.

    See Also
    --------
    adaptive_dp.interop.jax_privacy.certificate : The same of a plan of jax-privacy.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> engine = SimpleNamespace(accountant=SimpleNamespace(history=[(1.1, 0.01, 2000)]))
    >>> paper = certificate(engine, delta=1e-5)
    >>> paper
    <certificate epsilon=2.15974 delta=1e-05 by distribution>
    >>> len(paper.assumptions) > 3
    True
    """
    history = _history(privacy_engine)
    if not history:
        raise DeclarationError(
            "the engine has recorded no step: pass the PrivacyEngine whose make_private was used, "
            "after the training"
        )
    _check_clipping(privacy_engine, optimizer)
    most = max(float(q) for _, q, _ in history)
    if not most <= 1:
        raise DeclarationError(
            f"a step was recorded at the rate {most!r}: it accumulated batches of more than one "
            "pass, so that an example may be in it more than once"
        )
    assumes = _sampling(data_loader, history)
    relation: Neighbors = "add_remove"
    passes = None if data_loader is None else _passes(data_loader, history)
    if passes is None:
        loss = steps_of(privacy_engine)
    else:
        # batches of a pass are disjoint: an example is in one of them, and pays for one step
        noise = _noise(min(float(z) for z, _, _ in history), 1.0)
        loss, relation = None if noise is None else Composite([(noise, passes)]), "zero_out"
    if loss is None:
        raise DeclarationError(
            "a step without noise was recorded (noise_multiplier=0): nothing can be certified of it"
        )
    _check_optimizer(optimizer, history, noise_scheduler)
    steps = sum(each for _, _, each in history)
    return claims.certificate(
        loss,
        f"{steps:,} steps of training by Opacus",
        assumes=[*assumes, *_beside(privacy_engine, optimizer)],
        delta=delta,
        neighbors=relation,
    )


def _sampler(loader: Any) -> str:
    """Return the name of what draws a loader's batches; of what is not known, of all of it."""
    batches = getattr(loader, "batch_sampler", None)
    inner, outer = getattr(batches, "sampler", None), type(batches).__name__
    if inner is None:
        return outer
    name = type(inner).__name__
    # a BatchSampler divides what another sampler orders; Opacus' memory manager a Poisson sample
    if (outer, name in PASSES) == ("BatchSampler", True):
        twice = getattr(inner, "replacement", False)
        data, drawn = getattr(inner, "data_source", None), getattr(inner, "num_samples", 0)
        if twice or (data is not None and drawn > len(data)):
            return f"{name}, with examples that are drawn twice in a pass,"
        return name
    if (outer, name in POISSON) == ("BatchSplittingSampler", True):
        return name
    return f"{outer} of {name}"


def _sampling(loader: Any, history: list[tuple[Any, Any, int]]) -> list[str]:
    if loader is None:
        return [
            "each step's batch was a Poisson sample at the rate that was recorded: Opacus records "
            "the same for loaders that draw others (poisson_sampling=False), up to six times too "
            "low; pass data_loader= to have this looked at"
        ]
    name = _sampler(loader)
    if name in POISSON:
        rates = {float(q) for _, q, _ in history}
        rate = float(getattr(loader, "sample_rate", math.nan))
        # of 93 batches Opacus samples at 1 / 93, and records one over int(1 / (1 / 93)), 92
        recorded = {rate, 1 / max(1, len(loader))}
        if not (rates <= recorded and min(rates) >= rate):
            raise DeclarationError(
                f"the loader samples at the rate {rate!r}, and steps were recorded at "
                f"{sorted(rates)}: pass the loader that make_private returned for this training"
            )
        return [f"the training read batches of this loader alone ({name}), one for each step"]
    if name in PASSES:
        return [
            f"the training read passes of this loader ({name}), each example in one batch of a "
            "pass, each to its end before the next was begun",
            "no batch was left out of the steps that were recorded: signal_skip_step was called "
            "by nothing but a BatchMemoryManager",
        ]
    raise DeclarationError(
        f"a loader whose batches are drawn by {name} is neither Opacus' Poisson sampler nor one of "
        "passes: nothing is known of what its steps cost"
    )


def _passes(loader: Any, history: list[tuple[Any, Any, int]]) -> int | None:
    """Return how many passes were begun; None for a Poisson sampler.

    The recorded rate is that of one batch times the number of batches that a step accumulated. A
    step that goes on in the next pass may have an example twice, and is refused.
    """
    if _sampler(loader) in POISSON:
        return None
    batches, read = max(1, len(loader)), 0
    for _, rate, steps in history:
        each = round(float(rate) * batches)
        if each < 1 or not math.isclose(each, float(rate) * batches, rel_tol=1e-6):
            raise DeclarationError(
                f"the loader has {batches} batches in a pass, and a step was recorded at the rate "
                f"{float(rate)!r}, which is no number of them: pass the loader that make_private "
                "returned for this training"
            )
        # where all steps end with a pass none goes on; else each is looked at
        looked = 0 if each == 1 or (batches % each == 0 and read % each == 0) else steps
        for i in range(looked):
            if (read + i * each) % batches + each > batches:
                raise DeclarationError(
                    f"a step accumulated {each} batches, from two passes of {batches}: an example "
                    "may be in both, and moves the step by twice as much"
                )
        read += steps * each
    return -(-read // batches)


def adapts(engine: Any, optimizer: Any = None) -> bool:
    """Return whether clipping is seen to be adaptive, by the engine or by the optimizer."""
    kinds = [each.__name__ for each in (*type(engine).__mro__, *type(optimizer).__mro__)]
    named = any("AdaClip" in each or "AdaptiveClipping" in each for each in kinds)
    # the noise that is left for the sum where a part of the recorded is the count's
    return named or hasattr(optimizer, "_adjusted_noise_multiplier")


def _check_clipping(engine: Any, optimizer: Any) -> None:
    if adapts(engine, optimizer):
        raise DeclarationError(
            "nothing can be certified of adaptive clipping by Opacus: the number of unclipped "
            "examples moves by 1 and not by 1/2 as its recorded noise multiplier takes for "
            "granted, and it is divided by the number of examples in the batch, which is private"
        )


def _check_optimizer(
    optimizer: Any, history: list[tuple[Any, Any, int]], scheduler: Any = None
) -> None:
    if scheduler is not None:
        _check_scheduler(optimizer, history, scheduler)
        return
    noise = getattr(optimizer, "noise_multiplier", None)
    if noise is not None and float(noise) < max(float(z) for z, _, _ in history):
        raise DeclarationError(
            f"the optimizer's noise multiplier is {float(noise)!r}, below one that was recorded: "
            "pass the optimizer that make_private returned for this training, and the "
            "noise_scheduler= that changed its noise, if one did"
        )


def _check_scheduler(optimizer: Any, history: list[tuple[Any, Any, int]], scheduler: Any) -> None:
    """Refuse noise that is not what a scheduler has set, from its first epoch to its last.

    Opacus records the optimizer's multiplier in the step that adds the noise, so that each recorded
    step has its own; what is compared is whether the optimizer is the one that was recorded.
    """
    held, epochs = getattr(scheduler, "optimizer", None), getattr(scheduler, "last_epoch", None)
    if held is None or not isinstance(epochs, int) or epochs < 0:
        raise DeclarationError(
            "noise_scheduler must be one of opacus.schedulers, got a "
            f"{type(scheduler).__name__}: of no other is it known what noise it sets"
        )
    if optimizer is not None and held is not optimizer:
        raise DeclarationError("the noise scheduler is of another optimizer than was given")
    try:
        now = float(held.noise_multiplier)
        values = _scheduled(scheduler, float(history[0][0]), epochs, now)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise DeclarationError(
            f"the noise scheduler's settings give no noise of each epoch: {error!r}"
        ) from None
    if not math.isclose(values[-1], now, rel_tol=1e-9):
        raise DeclarationError(
            f"the scheduler's last noise multiplier is {values[-1]!r}, and its optimizer has "
            f"{now!r}, from whichever epoch the steps were recorded: something else has changed it"
        )
    at = 0
    for noise, _, _ in history:
        while at < len(values) and not math.isclose(values[at], float(noise), rel_tol=1e-9):
            at += 1
        if at == len(values):
            raise DeclarationError(
                f"a step was recorded with the noise multiplier {float(noise)!r}, which the "
                "scheduler has not set in that place: pass the scheduler of this training"
            )


def _scheduled(scheduler: Any, first: float, epochs: int, now: float) -> list[float]:
    """Return the noise that a scheduler has set in each epoch, beginning with the recorded one.

    A scheduler that went on from a checkpoint (``last_epoch=`` where it was made) multiplies the
    noise of then: the first epoch is the earliest from which it has come to the noise of now.
    """
    kind = type(scheduler).__name__
    if kind == "LambdaNoise":
        base = float(scheduler.base_noise_multiplier)
        return [base * float(scheduler.noise_lambda(epoch)) for epoch in range(epochs + 1)]
    each = {"ExponentialNoise": 1, "StepNoise": getattr(scheduler, "step_size", None)}.get(kind)
    if each is None:
        raise DeclarationError(
            f"nothing is known of what noise a {kind} sets: ExponentialNoise, LambdaNoise and "
            "StepNoise of opacus.schedulers are read"
        )
    gamma = float(scheduler.gamma)
    starts = range(0, epochs + 1, each)
    falls = (s for s in starts if math.isclose(first * gamma ** ((epochs - s) // each), now))
    start = next(falls, 0)
    return [first * gamma ** ((epoch - start) // each) for epoch in range(start, epochs + 1)]


def _beside(engine: Any, optimizer: Any) -> list[str]:
    secure = bool(getattr(engine, "secure_mode", False))
    generator = getattr(optimizer, "generator", None)
    seed = "torch.manual_seed, or the generator that was given, was not set to what others know"
    if generator is not None:
        # the seed itself is the noise, and a certificate is published
        seed = "nobody knows the seed of the noise's generator (optimizer.generator)"
    floats = "" if secure else ", and the low bits of its floats tell nothing (secure_mode=False)"
    ghost = any("FastGradientClipping" in each.__name__ for each in type(optimizer).__mro__)
    found = [
        f"noise is Gaussian and independent in each step{floats}",
        seed,
        "each example's gradient was clipped to the norm that its step's noise was scaled by"
        + (
            ": ghost clipping reads max_grad_norm of the module and its noise that of the "
            "optimizer, and a GradClipScheduler changes the latter alone"
            if ghost
            else ""
        ),
        "all steps on these data are in this engine's record",
        "each person has one example",
        "what left the training is the noisy sums alone: no loss or accuracy of private examples",
        "neither a layer nor the loss lets an example change another's gradient; Opacus refuses "
        "batch norm, and not what a module or a loss computes over the batch by itself",
        "no example's loss or gradient was infinite or NaN: Opacus adds such a one as it is",
        "no step was run twice from an older checkpoint: the steps after it are recorded once",
    ]
    if optimizer is None:
        found.append(
            "clipping was not adaptive: what Opacus records of that leaves out the count of "
            "unclipped examples; pass optimizer= to have this looked at"
        )
    if "Distributed" in type(optimizer).__name__:
        found.append("workers drew their samples from generators with different seeds")
    return found
