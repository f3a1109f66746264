"""The data-dependent loss of answers: a private number, and a private test that it is small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants import (
    AccountingError,
    Composite,
    DataDependent,
    DataDependentRenyi,
    GaussianVotes,
    PrivacyLoss,
    Pure,
    Secret,
    Tested,
)
from accountants import Gaussian as GaussianLoss
from accountants.definitions import renyi_divergence
from accountants.errors import probability
from accountants.losses.votes import Votes
from accountants.numerics import up
from adaptive_dp.graph.compile import distance, regions, release_losses
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, PrivateQuery, Release, unaliased
from adaptive_dp.graph.loops import Loop, State, upward
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.graph.nodes import ReleaseNode
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import private_values, run_guarded
from adaptive_dp.graph.values import POSITIVE, number, positive
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.mechanisms.propose_test_release import is_far
from adaptive_dp.mechanisms.smooth_sensitivity import (
    charged_epsilon,
    delta_parameter,
    grid_step,
    noise_epsilon,
)
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.aggregators import (
    NO_NUMBER,
    GNMax,
    argmax_mu,
    changed_teachers,
    noisy_argmax,
)
from adaptive_dp.pate.ballots import Ballots, BallotsDomain, VoteCounts, check_int

# -----------------------------------------------------------------------------
# The data-dependent loss of an aggregator: `accountants.losses.votes` of its parameters.


@runtime_checkable
class Bounded(Protocol):
    """An aggregator with a proven data-dependent bound of its loss."""

    def votes(self, teachers: int, classes: int) -> Votes:
        """Return the loss of one question, as a function of its counts.

        Of what `release` draws, rounding included, where one teacher changes.
        """
        ...


def votes_loss(mechanism: Mechanism, domain: BallotsDomain) -> Votes:
    """Return the data-dependent loss of an aggregator's answers, as a function of counts.

    Raises
    ------
    DeclarationError
        If none is proven, or its parameters are free, or too large.
    """
    name = type(mechanism).__name__
    if mechanism.free():
        raise DeclarationError(
            f"{name} has free parameters, on which its loss on the votes at hand depends; "
            "calibrate the labels first, and pass the aggregator with its numbers"
        )
    if not isinstance(mechanism, Bounded):
        raise DeclarationError(
            f"{name} has no proven data-dependent loss; use an aggregator such as dp.pate.GNMax"
        )
    try:
        # one class counts as two, as in `with_two_classes`
        return mechanism.votes(domain.teachers, max(2, domain.classes))
    except AccountingError as error:
        raise DeclarationError(f"{name}: {error}") from None


def with_two_classes(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return counts of shape (questions, classes), a single class with a second one of no votes.

    The bounds are proven for two classes or more; one class is post-processing of such an answer.
    """
    return np.pad(counts, ((0, 0), (0, 1))) if counts.shape[1] == 1 else counts


def fixed_questions(handle: Handle) -> bool:
    """Return whether the private value of a handle depends on no released value.

    If it does, other answers would have led to other questions, so the loss of these questions on
    these votes does not bound the loss of the adaptive analysis.
    """
    # `meant` resolves the copy of a table inside a loop to the table, the same in each round
    ancestors = upward([unaliased(handle)], lambda h: [unaliased(each) for each in h.inputs])
    # a release, a loop or a loop's state anywhere above makes the questions adaptive
    return not any(isinstance(each.operation, Release | Loop | State) for each in ancestors)


def is_order(value: Any) -> bool:
    """Return whether a value is a Renyi order above 1 and at most 10^6."""
    return is_number(value) and 1 < value <= 1e6


# -----------------------------------------------------------------------------
# A bound of the Renyi divergence on the votes at hand, as a private query with smooth sensitivity.


@frozen(eq=False, repr=False)
class Spending:
    """A private number f in [0, worst] with its smooth sensitivity.

    Parameters
    ----------
    votes, counts, order
        f is the bound ``votes.both(counts, order)``.
    worst
        The worst-case divergence over all data sets; it does not depend on the votes.

    Examples
    --------
    >>> from accountants import GaussianVotes
    >>> votes = GaussianVotes(sigma=40.0, classes=3, teachers=250)
    >>> clear = Spending(votes, np.array([[240, 5, 5]]), order=20.0, worst=1.0)
    >>> close = Spending(votes, np.array([[100, 90, 60]]), order=20.0, worst=1.0)
    >>> close
    <private spending>
    >>> clear.smooth(beta=0.01)[0] < close.smooth(beta=0.01)[0] <= 1.0
    True
    """

    votes: Votes
    counts: NDArray[np.int64]
    order: float
    worst: float

    def __repr__(self) -> str:
        return "<private spending>"

    def smooth(self, beta: float) -> tuple[float, float]:
        """Return f, and a beta-smooth sensitivity S of it that is never 0.

        For all neighbours, ``|f - f'| <= S`` and ``S <= e^beta S'`` (Nissim, Raskhodnikova and
        Smith 2007, Def. 2.1). Both survive a minimum with the worst case (a constant), and the
        addition of a constant (`least`). The relative error of rounding is at most 2^-50.
        """
        bound, scale = self.votes.smooth(self.counts, self.order, beta)  # type: ignore[attr-defined]
        # a bound that could not be computed is replaced by the worst case, which always holds
        bound, scale = (float(np.nan_to_num(v, nan=self.worst)) for v in (bound, scale))
        # S stays beta-smooth under a minimum with a constant, and a sum with one
        return min(bound, self.worst), min(scale, self.worst) + self.least

    @property
    def least(self) -> float:
        """The smallest S: one step of the grid on which f is released."""
        return grid_step(0.0, self.worst)


@frozen
class Spent(Query):
    """The Renyi divergence of answering all questions: a bound of it on the votes at hand.

    With M the answers of ``mechanism`` to all questions, f(D) is at least ``D_a(M(D) || M(D'))``
    and ``D_a(M(D') || M(D))`` at ``a = order``, for every D' in which one teacher votes otherwise.
    It is private as it stands: `adaptive_dp.pate.Sanitized` releases it.

    Parameters
    ----------
    mechanism
        The aggregator, with its numbers.
    order
        a, above 1; chosen without looking at the votes.
    """

    kind: ClassVar[str] = "spent_votes"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BallotsDomain
    output_type: ClassVar[type] = Spending

    mechanism: Mechanism
    order: float = field(
        converter=number,
        validator=checked(
            is_order,
            "a number above 1, at most 1e6",
            "; near 1 + sqrt(2 log(1/delta) / divergence) is good",
        ),
    )

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise DeclarationError(
                "spent needs an aggregator such as dp.pate.GNMax(sigma=40), got "
                f"{type(self.mechanism).__name__}"
            )

    def label(self) -> str:
        """Return what is bounded."""
        return "divergence of the answers"

    def detail(self) -> str:
        """Return of which aggregator, at which order."""
        return f"{self.mechanism} at order {self.order:g}"

    def domain(self, inputs: Sequence[Any]) -> BallotsDomain:
        """Return the size of the ballots."""
        ballots: BallotsDomain = inputs[0]
        self._votes(ballots)
        # 0 leaves no grid to release on, infinity no bound
        if not (0 < self.worst(ballots) < math.inf):
            raise DeclarationError(
                f"{self.mechanism} has no finite divergence at order {self.order:g} in the worst "
                "case, so nothing bounds it; take a lower order"
            )
        return ballots

    def _votes(self, ballots: BallotsDomain) -> Votes:
        votes = votes_loss(self.mechanism, ballots)
        if not callable(getattr(votes, "smooth", None)):
            raise DeclarationError(
                f"nothing is proven of how {type(self.mechanism).__name__}'s divergence moves "
                "between data sets, in both directions; use an aggregator such as dp.pate.GNMax"
            )
        return votes

    def worst(self, ballots: BallotsDomain) -> float:
        """Return the divergence on every data set, of all questions: a public number."""
        # step 1: counts of votes are integers
        loss = self.mechanism.cost(1.0, ballots.questions, 1.0)
        return float(renyi_divergence(loss, np.array([float(self.order)]))[0])

    def sensitivity(self, domain: BallotsDomain, change: Change, norm: float) -> float:
        """Return 1, the teacher that changes; refuse more of them, and any norm but 0."""
        if norm != 0:
            raise DeclarationError(
                "the sensitivity of the loss on votes is the number of teachers that change, not a "
                f"distance: release it with dp.pate.Sanitized, whose norm is 0, got norm {norm!r}"
            )
        # the data-dependent bounds are proven for one changed teacher
        if not (change.rows <= 1):
            raise DeclarationError(
                f"one unit may change {change.rows} teachers here, and the loss on the votes at "
                "hand is proven where it changes one; split units among teachers at random "
                "(count=...)"
            )
        return 1.0

    def run(self, inputs: Sequence[Any], stream: Stream) -> Spending:
        """Return the private number."""
        votes: VoteCounts = inputs[0]
        questions, classes = votes.counts.shape
        ballots = BallotsDomain(votes.teachers, questions, classes)
        return Spending(
            self._votes(ballots),
            with_two_classes(votes.counts),
            float(self.order),
            self.worst(ballots),
        )


def spent(ballots: Ballots, mechanism: Mechanism, *, order: float) -> PrivateQuery[Any]:
    """Return the loss of the aggregator's answers to all questions on these votes, as a query.

    It is a bound of the Renyi divergence at ``order``, private itself: `adaptive_dp.pate.sanitized`
    publishes it.

    Parameters
    ----------
    ballots
        The votes.
    mechanism
        The aggregator, with its numbers.
    order
        Above 1.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=10)
    >>> spent(votes, dp.pate.GNMax(sigma=40.0), order=20.0)
    <private divergence of the answers GNMax(sigma=40) at order 20>
    """
    return PrivateQuery(Spent(mechanism, order), (ballots,))


# -----------------------------------------------------------------------------
# The data-dependent epsilon of a plan: a private number, for those who may see the data.


def private_epsilon(
    plan: Pipeline, /, *, delta: float, seed: int | None = None, **data: Any
) -> Secret[float]:
    """Return the data-dependent epsilon at delta of a plan on the data at hand: itself private.

    It composes Renyi curves: for aggregators with a data-dependent bound (`GNMax`, ...) the curve
    of these votes, or the worst case where that is less; for all other releases the worst case. It
    is never above the epsilon of the plan's certificate at this delta.
    The votes are those of ``plan.simulate`` with the same seed; without one, teachers are split and
    trained anew.

    **It is not a guarantee, and must not be published**: it is a function of the private data; and
    it bounds one direction, ``P(S) <= e^eps P'(S) + delta`` with P the law on the data at
    hand, P' on a neighbour's. What may be published is `adaptive_dp.pate.sanitized`.

    Parameters
    ----------
    plan
        Its votes must be on points that depend on no released value. No loops, samples or parts.
    delta
        From 0 to 1.
    seed
        As of `Pipeline.simulate`; None for teachers drawn by the operating system's randomness.
    data
        As for `Pipeline.run`.

    Returns
    -------
    accountants.Secret
        ``<private>``; ``.reveal()`` shows it, which releases it unprotected.

    Raises
    ------
    DeclarationError
        If the plan is one that it cannot treat, which the message names.
    DataError
        If the data does not fit its declaration.

    References
    ----------
    Papernot et al. 2017 (LNMax); Papernot et al. 2018, Thm 6 (GNMax); each direction by itself.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=3)
    >>> plan = dp.Pipeline(labels=votes.release(dp.pate.GNMax(sigma=40.0)))
    >>> agreed = {"counts": np.tile([248, 1, 1], (100, 1))}
    >>> epsilon = private_epsilon(plan, delta=1e-6, seed=1, votes=agreed)
    >>> epsilon, epsilon.reveal() < plan.certify(delta=1e-6).epsilon
    (<private>, True)
    """
    probability("delta", delta)
    if seed is not None:
        seed = check_int("private_epsilon's seed", seed, 0, math.inf)
    paths = plan.structure.releases
    # all releases are checked before any data are read
    for path in paths:
        _check_release(path)
    # the nodes whose votes are needed, for releases with a data-dependent bound
    vote_nodes = {path.steps[-1].name for path in paths if _has_vote_bound(path)}
    hidden_data = {name: Secret(value) for name, value in data.items()}  # for tracebacks
    del data
    # teachers are trained once, as a simulation with this seed would
    votes = private_values(plan, hidden_data, seed, vote_nodes)
    accountant = DataDependentRenyi()
    state = accountant.start()
    for path in paths:
        # the worst case, for accounting in the plan; the private curve comes beside it
        worst, _ = release_losses([path])[path.name]
        loss: PrivacyLoss = worst
        if _has_vote_bound(path):
            loss = DataDependent(worst, Secret(_private_curve(path, votes[path.steps[-1].name])))
        state = accountant.compose(state, loss)
    certified = plan.certify(delta).epsilon  # public, and of both directions
    epsilon = run_guarded("private_epsilon", lambda: accountant.private_epsilon(state, delta))
    return epsilon.map(lambda of_these_votes: min(of_these_votes, certified))


def _check_release(path: ReleaseNode) -> None:
    """Raise unless the data-dependent losses of such releases compose to the plan's."""
    loops = regions(path)
    if loops:
        raise DeclarationError(
            f"{path.name}: private_epsilon treats no loops, samples and parts, here "
            f"{', '.join(loops)}; ask it of a plan without them"
        )
    if path.mechanism.free():
        raise DeclarationError(
            f"{path.name}: its noise is still free; call plan.calibrate(...) first"
        )
    if _has_vote_bound(path) and not fixed_questions(path.query):
        raise DeclarationError(
            f"{path.name}: its questions depend on released values (points chosen by "
            "earlier answers); other answers would have led to other questions, so that the loss "
            "on these votes is no bound; ask on points that are fixed beforehand"
        )


def _has_vote_bound(path: ReleaseNode) -> bool:
    """Return whether a release is by an aggregator with a data-dependent bound.

    It is proven where one teacher changes; where more do, the worst case is charged.
    """
    mechanism = path.mechanism
    # an aggregator reads vote counts; other mechanisms may have a method of the same name
    is_bounded = isinstance(mechanism, Bounded) and mechanism.input_type is VoteCounts
    return is_bounded and distance(path.steps, 0) <= 1


def _private_curve(path: ReleaseNode, votes: Secret[Any]) -> Callable[[Any], Any]:
    domain: BallotsDomain = path.query.domain
    votes_bound = votes_loss(path.mechanism, domain)
    # votes are revealed only while the curve is computed
    return lambda orders: votes_bound.curve(with_two_classes(votes.reveal().counts), orders)


# -----------------------------------------------------------------------------
# GNMax after a private test: propose-test-release on the data-dependent loss.


LEAST_SIGMA, MOST_SIGMA = 1e-9, 1e12
"""The range of sigma, in votes, for which data-dependent bounds are proven."""


_check_order = checked(
    is_order, "a number above 1, at most 1e6", "; it is declared, not calibrated"
)
_check_budget = checked(
    positive,
    f"a {POSITIVE}",
    "; it is a Renyi divergence, declared without looking at the votes",
)


class TestedGNMax(Mechanism):
    """Answer all questions by `GNMax` if a private test finds their loss small, else none.

    Let b(D) be the bound, in both directions, of the Renyi divergence at ``order`` of the answers
    to all questions on the votes D (`accountants.GaussianVotes.both`), and d(D) the smallest number
    of teachers whose votes must change to bring it above ``budget``. The votes pass if
    ``d + N > T``, N with masses proportional to ``e^{-epsilon |k|}``, T the least with
    ``P(N > T) <= failure``. Then all questions are answered, else none: NaN. Unlike what
    `sanitized` publishes, this is a guarantee for all data sets.

    Proof. If the budget holds at D or at D', it bounds the divergences of the pair in both
    directions, and the test, of sensitivity 1 in d, adds a pure epsilon. If it is exceeded at both,
    both d are 0, and each passes with the same probability, at most ``failure``. See
    `accountants.Tested`.

    Parameters
    ----------
    sigma
        The noise of the answers, in votes.
    order, budget
        The largest Renyi divergence of the answers, in nats, and its order; chosen without looking
        at the votes.
    epsilon, failure
        The privacy parameter of the test, and the delta mass of passing wrongly.

    References
    ----------
    Redberg, Zhu and Wang 2023 (generalised propose-test-release); Dwork and Lei 2009; own proof.

    Examples
    --------
    >>> mechanism = TestedGNMax(sigma=40.0, order=20.0, budget=0.1, epsilon=0.2, failure=1e-6)
    >>> mechanism.cost(1.0, 1000, 1.0).renyi(np.array([20.0])).round(4)
    array([0.2685])
    """

    __test__: ClassVar[bool] = False
    """Tells pytest that this class is not a test."""

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    no_interval: ClassVar[str] = NO_NUMBER
    theorem: ClassVar[str] = (
        "generalised propose-test-release: Redberg, Zhu & Wang 2023; Papernot et al. 2018, Thm 6"
    )
    sampler: ClassVar[str] = (
        "two-sided geometric on whole numbers; Gaussian, exact, rounded to a power-of-two step"
    )

    sigma: float = noise_parameter("sigma")
    order: float = field(converter=number, validator=_check_order, metadata={"symbol": "order"})
    budget: float = field(converter=number, validator=_check_budget, metadata={"symbol": "budget"})
    epsilon: float = budget_parameter("epsilon")
    failure: float = delta_parameter()

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, or NaN for all questions."""
        # the bound is for two classes at least, the answers are of the counts as they are
        counts = with_two_classes(value.counts)
        distance = 0  # outside the proven range the test must fail: d = 0
        if LEAST_SIGMA <= self.sigma <= MOST_SIGMA:
            votes = GaussianVotes(self.sigma, counts.shape[1], value.teachers)
            distance = votes.distance(counts, float(self.order), self.budget)
        # the test on d has noise of its own, drawn before that of the answers
        if is_far(distance, noise_epsilon(self.epsilon), self.failure, stream):
            return noisy_argmax(value.counts, self.sigma, stream)
        # the same output for all questions, so that nothing but the failed test is seen
        return np.full(len(counts), math.nan)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 1.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of the test and ``dimension`` questions.

        The budget bounds the answers where one teacher changes; where more do, the worst case is
        charged, and the test by group privacy.
        """
        times = changed_teachers(distance)
        if times == 0:
            return Pure(0.0)
        # m questions of one mu each, without looking at votes; rounded up
        worst = GaussianLoss(up(argmax_mu(distance, self.sigma) * math.sqrt(dimension), 4))
        # the test has sensitivity 1 in d for each teacher: t epsilon by group privacy
        test = up(charged_epsilon(self.epsilon) * times, 1)
        # the budget bounds nothing where several teachers change
        if times > 1:
            return Composite({Pure(test): 1, worst: 1})
        return Tested(test, self.failure, float(self.order), self.budget, worst)

    def premises(self, release: Any) -> None:
        """Refuse more teachers, or classes, than the bounds are proven for."""
        domain = release.inputs[0].domain
        if isinstance(domain, BallotsDomain):
            # the numbers of teachers and classes are what is checked here, so any sigma will do
            votes_loss(GNMax(1.0), domain)
