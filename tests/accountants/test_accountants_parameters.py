"""What lies outside its domain is refused, with the value in the message."""

from __future__ import annotations

import math
import traceback
import types
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accountants import (
    ACCOUNTANTS,
    Accountant,
    Approximate,
    Basic,
    Bounds,
    Composite,
    DataDependentRenyi,
    Distribution,
    DomainError,
    Envelope,
    Gaussian,
    Grouped,
    Guarantee,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    calibrate,
    certify,
    measure,
    tightest,
    worlds,
)
from accountants import losses as families
from accountants.accountant import SumAccountant, checked_accountant
from accountants.errors import integer, positive
from accountants.loss import parameters
from accountants.losses.laplace import LaplacePair
from accountants.numerics import Array, ceiling, down, flooring, up
from accountants.pair import Pair

ONE = Spend(Gaussian(1.0))
NUMBERS = [math.nan, math.inf, -math.inf, -1.0, -1e-300, "1", b"1", True, None, [1.0], 10**400, 1j]
SHARES = [*NUMBERS, 1.0000001, 2]
COUNTS = [math.nan, math.inf, -1, 1.5, 2.0, "3", True, None]


def test_numbers_of_thousands_of_digits_are_refused_by_name() -> None:
    """They are less than any float, or no integers, and Python prints none of their digits."""
    for check, value in ((positive, Fraction(1, 10**5000)), (integer, Fraction(1, 10**5000))):
        with pytest.raises(DomainError, match="thousands of digits"):
            check("x", value)


def refused(make: Callable[[Any], object], value: object) -> None:
    with pytest.raises(DomainError) as caught:
        make(value)
    assert repr(value)[:40] in str(caught.value)


@pytest.mark.parametrize("value", NUMBERS, ids=lambda v: repr(v)[:12])
def test_numbers(value: object) -> None:
    for make in (Gaussian, Laplace, Pure, lambda v: Approximate(v, 0.0)):
        refused(make, value)
    refused(lambda v: measure(ONE, Basic(), epsilon=v), value) if value is not None else None


@pytest.mark.parametrize("value", SHARES, ids=lambda v: repr(v)[:12])
def test_shares(value: object) -> None:
    refused(lambda v: Approximate(1.0, v), value)
    refused(lambda v: Sampled(ONE, v), value)
    refused(lambda v: families.Sampled(Composite({Gaussian(1.0): 1}), v), value)
    if value is not None:
        refused(lambda v: measure(ONE, Basic(), delta=v), value)
    for accountant in ACCOUNTANTS:
        state = accountant.compose(accountant.start(), Gaussian(1.0))
        refused(lambda v, a=accountant, s=state: a.epsilon(s, v), value)
    for accountant in ACCOUNTANTS:
        state = accountant.compose(accountant.start(), Gaussian(1.0))
        if value not in (1.0000001, 2):
            refused(lambda v, a=accountant, s=state: a.delta(s, v), value)


@pytest.mark.parametrize("value", COUNTS, ids=repr)
def test_counts(value: object) -> None:
    refused(lambda v: Repeated(ONE, v), value)
    refused(lambda v: Grouped(ONE, v), value)
    refused(lambda v: Composite([(Pure(1.0), v)]), value)
    for accountant in ACCOUNTANTS:
        refused(lambda v, a=accountant: a.compose(a.start(), Pure(1.0), v), value)
    for loss in (Gaussian(1.0), Laplace(1.0), Approximate(1.0, 0.1)):
        refused(loss.grouped, value)


@pytest.mark.parametrize("value", ["x", 1.0, None, Gaussian(1.0), object])
def test_terms_are_made_of_terms(value: object) -> None:
    for make in (
        lambda v: Sequential([v]),
        lambda v: Parallel([ONE, v]),
        lambda v: Repeated(v, 2),
        lambda v: Sampled(v, 0.5),
        lambda v: Grouped(v, 2),
        worlds,
        lambda v: certify(v, 1e-6),
    ):
        refused(make, value)
    if not isinstance(value, PrivacyLoss):
        refused(Spend, value)
        refused(lambda v: Envelope((v,)), value)
        refused(lambda v: Composite([(v, 1)]), value)
        refused(lambda v: families.Sampled(v, 0.5), value)


def test_grouped_zero_and_empty() -> None:
    refused(lambda v: Grouped(ONE, v), 0)
    refused(Sequential, 3)
    refused(Envelope, ())
    with pytest.raises(DomainError):
        Parallel([])
    with pytest.raises(DomainError, match="label"):
        Parallel([ONE, ONE], labels=["a"])
    with pytest.raises(DomainError, match="lower <= upper"):
        Bounds(2.0, 1.0)
    with pytest.raises(DomainError, match="nan"):
        Bounds(math.nan, 1.0)
    with pytest.raises(TypeError):
        measure(ONE, Basic())
    with pytest.raises(TypeError):
        measure(ONE, Basic(), delta=0.1, epsilon=1.0)


def test_numbers_of_other_types_are_taken() -> None:
    assert Gaussian(np.float32(0.5)).mu() == 0.5
    assert Pure(Fraction(1, 4)).pure() == 0.25
    assert Repeated(ONE, np.int64(3)).times == 3
    assert parameters(Gaussian(0.5)) == {"mu": 0.5}
    assert parameters(PrivacyLoss()) == {}


def test_numbers_that_no_float_equals_are_refused() -> None:
    # the nearest float of a third is below it: taking that would claim too little
    assert float(Fraction(1, 3)) < Fraction(1, 3)
    for value in (Fraction(1, 3), Decimal("0.3"), 2**53 + 1):
        refused(Gaussian, value)
        refused(families.DiscreteGaussian, value)
        refused(lambda v: Sampled(ONE, v), value)
    # a pure epsilon is a cost, which goes up
    assert Fraction(float.__float__(Pure(Fraction(1, 3)).epsilon)) > Fraction(1, 3)
    assert Pure(Decimal("0.25")).pure() == 0.25


class Unknown(PrivacyLoss):
    """A loss that declares nothing."""


def test_what_cannot_be_bounded_raises() -> None:
    answers = certify(Spend(Unknown()), 1e-6)
    assert all(a.bounds is None and "Unknown" in a.reason for a in answers.values())
    with pytest.raises(InapplicableError, match="Unknown"):
        tightest(answers)
    with pytest.raises(InapplicableError):
        Unknown().grouped(2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 800.0, 1e150, 1e300])
def test_absurd_sizes_answer_without_a_warning(size: float) -> None:
    for loss in (Gaussian(size), Laplace(size), Pure(size), Approximate(size, 1e-9)):
        for answer in certify(
            Sequential([Repeated(Spend(loss), 3), Spend(Pure(1.0))]), 1e-6
        ).values():
            assert answer.bounds is not None
            assert answer.bounds.upper >= 1 - 1e-4
            if size >= 1e150 and isinstance(loss, Gaussian):
                assert math.isinf(answer.bounds.upper) or answer.bounds.upper > 1e299


def test_many_repetitions_are_quick_and_finite() -> None:
    """Counts far beyond any array: the atoms near the mean are enough."""
    for spec in ([(1e-5, 10**9)], [(1e-5, 10**9), (0.1, 1)], [(1e-6, 10**12)]):
        term = Sequential([Repeated(Spend(Pure(e)), n) for e, n in spec])
        for answer in certify(term, 1e-6).values():
            assert answer.bounds is not None
            assert 0 < answer.bounds.upper < math.inf


def test_rounding_moves_outward() -> None:
    third = Fraction(1, 3)
    assert flooring(third) < third < ceiling(third)
    assert Fraction(ceiling(third)) - Fraction(flooring(third)) < Fraction(1, 2**53)
    huge = Fraction(10) ** 400
    assert ceiling(huge) == math.inf
    assert flooring(-huge) == -math.inf
    assert 0 < flooring(huge) < math.inf
    assert -math.inf < ceiling(-huge) < 0
    for x in (1.0, -1.0, 1e300, 1e-310, 0.0):
        assert down(x) < x < up(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Parallel([ONE], labels=5),
        lambda: Parallel([ONE], labels=[5]),
        lambda: Parallel([ONE], labels=[[5]]),
        lambda: Composite(5),
        lambda: Composite([5]),
        lambda: Composite([(ONE.loss,)]),
        lambda: Envelope(5),
        lambda: Grouped(ONE, 10**400),
        lambda: Repeated(ONE, 10**5000),
        lambda: Gaussian(10**5000),
        lambda: Pure(1.0).grouped(10**400),
        lambda: Basic().compose(Basic().start(), Pure(1.0), 10**400),
    ],
)
def test_what_is_no_term_is_refused_by_type(make: Callable[[], object]) -> None:
    with pytest.raises(DomainError):
        make()


class Wild(PrivacyLoss):
    """A Gaussian pair that is as good as no privacy."""

    is_gaussian_pair = True

    def mu(self) -> float:
        return math.inf


@pytest.mark.filterwarnings("error")
def test_infinite_losses_have_infinite_answers() -> None:
    for accountant in ACCOUNTANTS:
        for loss in (Wild(), Gaussian(1e200)):
            for term in (Spend(loss), Sampled(Spend(loss), 0.5), Parallel([Spend(loss), ONE])):
                bounds = measure(term, accountant, delta=1e-6).bounds
                assert bounds is None or bounds.upper == math.inf


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "size",
    [
        5e-324,
        pytest.param(710.0, marks=pytest.mark.slow),
        pytest.param(1e155, marks=pytest.mark.slow),
        1.7e308,
    ],
)
def test_absurd_sizes_in_every_term_answer_without_a_warning(size: float) -> None:
    for kind in (Gaussian, Laplace, Pure, lambda s: Approximate(s, 5e-324)):
        leaf = Spend(kind(size))
        for term in (
            Repeated(leaf, 3),
            Repeated(leaf, 10**300),
            Sampled(leaf, 5e-324),
            Sampled(leaf, 1 - 1e-16),
            Sampled(Sequential([leaf, Spend(Laplace(1.0))]), 0.3),
            Sequential([Parallel([leaf, Spend(Laplace(1.0))]), leaf]),
        ):
            for accountant in ACCOUNTANTS:
                for given in ({"delta": 5e-324}, {"delta": 1e-6}, {"epsilon": 1e300}):
                    measure(term, accountant, **given)


def test_prices_refuse_what_is_no_delta_and_may_be_infinite() -> None:
    for accountant in ACCOUNTANTS:
        state = accountant.compose(accountant.start(), Pure(1.0))
        refused(lambda v, a=accountant, s=state: a.cost_function(s, v), math.nan)
    gaussian = ACCOUNTANTS[-1]
    assert gaussian.cost_function(gaussian.start(), 1e-6)(Gaussian(1e160)) == math.inf


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_delta_one_always_holds_and_nothing_costs_nothing(accountant: Any) -> None:
    for term in (Spend(Approximate(1.0, 1.0)), Spend(Gaussian(1.0)), Spend(Gaussian(1e200))):
        assert measure(term, accountant, delta=1.0).bounds == Bounds(0.0, 0.0)
    for term in (
        Sampled(Sequential([]), 0.3),
        Spend(families.Sampled(Composite(()), 0.3)),
        Spend(Composite(())),
        Spend(Gaussian(0.0)),
        Spend(Laplace(0.0)),
    ):
        assert measure(term, accountant, delta=0.0).bounds == Bounds(0.0, 0.0)


class Own:
    """An accountant of one's own, all that the contract asks: the sum of pure epsilons."""

    name = "own"
    theorem = "basic composition"
    adaptive = True

    def start(self) -> float:
        return 0.0

    def compose(self, state: float, loss: PrivacyLoss, times: int = 1) -> float:
        return up(state + times * (loss.pure() or 0.0))

    def epsilon(self, state: float, delta: float) -> Bounds:
        return Bounds(0.0, state)

    def delta(self, state: float, epsilon: float) -> Bounds:
        return Bounds(0.0, 0.0 if epsilon >= state else 1.0)

    def cost_function(self, state: float, delta: float) -> Callable[[PrivacyLoss], float]:
        return lambda loss: loss.pure() or 0.0

    def conversion(self, loss: PrivacyLoss) -> str:
        return "its pure epsilon"


MEMBERS = (
    ("name", "it has no name, which must be a str"),
    ("theorem", "it has no theorem, which must be a str"),
    ("adaptive", "it has no adaptive, which must be a bool"),
    ("start", r"it has no method start\(self\) -> 'S'"),
    ("compose", r"it has no method compose\(self, state: 'S', loss: 'PrivacyLoss', times: 'int'"),
    ("epsilon", r"it has no method epsilon\(self, state: 'S', delta: 'float'\) -> 'Bounds'"),
    ("delta", r"it has no method delta\(self, state: 'S', epsilon: 'float'\) -> 'Bounds'"),
    ("cost_function", r"it has no method cost_function\(self, state: 'S', delta: 'float'\)"),
    ("conversion", r"it has no method conversion\(self, loss: 'PrivacyLoss'\) -> 'str'"),
)


@pytest.mark.parametrize("inherits", [False, True])
@pytest.mark.parametrize(("member", "message"), MEMBERS, ids=lambda given: given[:12])
def test_an_accountant_that_lacks_a_member_is_refused_before_it_is_asked(
    member: str, message: str, *, inherits: bool
) -> None:
    members = {name: value for name, value in vars(Own).items() if name != member}
    bases = (Accountant,) if inherits else ()  # of the protocol a stub would be inherited
    lacking: Any = types.new_class("Lacking", bases, exec_body=lambda space: space.update(members))
    with pytest.raises(DomainError, match=message):
        measure(Spend(Pure(0.25)), lacking(), delta=1e-6)
    with pytest.raises(DomainError, match="Lacking is not complete"):
        certify(Spend(Pure(0.25)), 1e-6, [Basic(), lacking()])
    with pytest.raises(DomainError, match=message):
        Guarantee(Spend(Pure(0.25)), lacking())
    with pytest.raises(DomainError, match=message):
        calibrate(lambda b: Spend(Laplace(1 / b)), epsilon=1.0, delta=0.0, accountant=lacking())


class Unnamed:
    """Its instances have a name, or none."""

    name: str

    def __init__(self, name: str | None) -> None:
        if name is not None:
            self.name = name


def test_each_instance_of_an_accountant_is_looked_at() -> None:
    """A class that was complete once may make an instance that is not."""
    members = {name: value for name, value in vars(Own).items() if name != "name"}
    kind: Any = types.new_class(
        "Lacking", (Unnamed,), exec_body=lambda space: space.update(members)
    )
    answers = certify(Spend(Pure(0.25)), 1e-6, [kind("of its own")])
    assert answers["of its own"].bounds is not None
    for wrong, message in (
        (None, "it has no name"),
        (["a"], r"its name must be a str, got \['a'\]"),
    ):
        with pytest.raises(DomainError, match=message):
            certify(Spend(Pure(0.25)), 1e-6, [kind(wrong)])


@pytest.mark.parametrize("answer", [0.5, (0.0, 0.5), None])
def test_an_accountant_that_answers_without_bounds_is_refused(answer: Any) -> None:
    class Bare(Own):
        def epsilon(self, state: float, delta: float) -> Bounds:
            return answer  # type: ignore[no-any-return]

    class Half(Own):
        def delta(self, state: float, epsilon: float) -> Bounds:
            return answer  # type: ignore[no-any-return]

    term = Spend(Pure(0.25))
    for ask in (
        lambda: measure(term, Bare(), delta=1e-6),
        lambda: [*certify(term, 1e-6, [Basic(), Bare()]).values()],
        lambda: Guarantee(term, Bare()),
        lambda: measure(term, Half(), epsilon=0.1),
        lambda: Guarantee(term, Half()).advantage(),
        lambda: Guarantee(term, Half()).tradeoff(np.array([0.1])),
    ):
        with pytest.raises(
            DomainError, match=r"must return accountants\.Bounds\(lower, upper\), got"
        ):
            ask()


def test_an_accountant_whose_method_takes_other_arguments_is_refused() -> None:
    class Turned(Own):
        def compose(self, state: float, loss: PrivacyLoss) -> float:  # type: ignore[override]
            return state

    class Half(SumAccountant):
        name, theorem, adaptive = "half", "none", False

        def cost_function(self, state: Any, delta: float) -> Callable[[PrivacyLoss], float]:
            return lambda loss: 0.0

        def conversion(self, loss: PrivacyLoss) -> str:
            return "nothing"

    with pytest.raises(DomainError, match="its compose must be a method compose"):
        measure(Spend(Pure(0.25)), Turned(), delta=1e-6)
    with pytest.raises(DomainError, match=r"no method cost\(.*no method converted\("):
        measure(Spend(Pure(0.25)), Half(), delta=1e-6)  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"write Basic\(\)"):
        measure(Spend(Pure(0.25)), Basic, delta=1e-6)  # type: ignore[arg-type]
    answer = measure(Repeated(Spend(Pure(0.25)), 3), Own(), delta=1e-6)
    assert answer.bounds is not None
    assert answer.bounds.upper == pytest.approx(0.75)


def test_every_accountant_of_the_library_is_complete() -> None:
    for accountant in (*ACCOUNTANTS, DataDependentRenyi()):
        checked_accountant(accountant)


class Borrowed(Pair):
    """A Laplace pair behind an author's own code, which divides by zero."""

    def __init__(self, wrong: str) -> None:
        self.inner, self.wrong = LaplacePair(0.5), wrong

    def _asked(self, name: str, *values: Any) -> Any:
        return getattr(self.inner, name)(*values) if name != self.wrong else 1 / 0

    def is_tight(self) -> bool:
        return True

    def top(self) -> float:
        return 0.5

    def bottom(self) -> float:
        return -0.5

    def above(self, loss: Array) -> tuple[Array, Array]:
        return self._asked("above", loss)  # type: ignore[no-any-return]

    def below(self, loss: Array) -> tuple[Array, Array]:
        return self._asked("below", loss)  # type: ignore[no-any-return]

    def log_moment(self, z: Any) -> Any:
        return self._asked("log_moment", z)


class Lent(PrivacyLoss):
    def __init__(self, wrong: str) -> None:
        self.lent = Borrowed(wrong)

    def pair(self) -> Pair:
        return self.lent


@pytest.mark.parametrize("wrong", ["log_moment"])
@pytest.mark.parametrize("at", [{"delta": 1e-6}, {"epsilon": 1.0}])
def test_an_authors_division_by_zero_is_not_taken_for_an_overflow(
    wrong: str, at: dict[str, float]
) -> None:
    for term in (
        Repeated(Spend(Lent(wrong)), 7),
        Sequential([Repeated(Spend(Lent(wrong)), 7), Spend(Gaussian(0.3))]),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            measure(term, Distribution(), **at)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "_asked"
    unharmed = measure(Repeated(Spend(Lent("")), 7), Distribution(), delta=1e-6).bounds
    plain = measure(Repeated(Spend(Laplace(0.5)), 7), Distribution(), delta=1e-6).bounds
    assert unharmed is not None
    assert plain is not None
    assert unharmed.lower <= plain.upper
    assert plain.lower <= unharmed.upper
