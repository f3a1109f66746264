"""Handles of examples and of their gradients: the methods that users chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import Examples
from adaptive_dp.erm import Game, Loss, Network, Objective, Saddle, check_game
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.handles import (
    Handle,
    Private,
    PrivateQuery,
    Released,
    private_path,
    unaliased,
)
from adaptive_dp.graph.registry import Function
from adaptive_dp.queries.examples import (
    ExactExamples,
    Phase,
    Phases,
    SampleExamples,
    TotalWeight,
)
from adaptive_dp.queries.gradients import (
    ClippedSum,
    GradientNorm,
    GradientStream,
    LeastCurvature,
    NetworkGradients,
    RowGradients,
    ShortGradients,
    ShortLessLong,
    SquaredNorms,
    TotalLoss,
)
from adaptive_dp.queries.minimizer import Minimizer, SaddlePoint, made_up_rows
from adaptive_dp.queries.moments import ExampleMoments

Array = NDArray[np.float64]


@frozen(eq=False, repr=False)
class LabeledRows(Private[Examples]):
    """A handle of private rows, each with features and a label: what learners read.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> rows = people.examples(["age"], "ill", norm=1.0)
    >>> slope = rows.gradients(dp.Logistic(), at=dp.public([0.0, 0.0])).sum(clip=0.5)
    >>> plan = dp.Pipeline(slope=slope.release(dp.Gaussian(sigma=5)))
    >>> plan.certify(delta=1e-6).epsilon < 1
    True
    """

    def sample(self, rate: float) -> LabeledRows:
        """Return a Poisson sample: each unit enters with probability ``rate``.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> people.examples(["age"], "ill").sample(0.01)
        <private sample 0.01>
        """
        return LabeledRows(SampleExamples(rate), (self,))

    def phases(self, shares: Sequence[float]) -> list[LabeledRows]:
        """Return disjoint parts at random: each unit goes into one of them by its own draw.

        Parameters
        ----------
        shares
            Each part's probability; they add up to 1.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> people.examples(["age"], "ill").phases([0.75, 0.25])
        [<private phase 1>, <private phase 2>]
        """
        # one node draws all parts, so that they are disjoint
        node: Private[Any] = Private(Phases(shares), (self,))
        return [LabeledRows(Phase(i), (node,)) for i in range(len(shares))]

    def second_moments(self) -> PrivateQuery[Array]:
        """Return the matrix ``sum w x x'`` of the rows' features, w their weights or 1.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> moments = rows.second_moments().release(dp.Gaussian(sigma=10))
        >>> dp.Pipeline(moments=moments).certify(delta=1e-6).epsilon < 1
        True
        """
        return PrivateQuery(ExampleMoments(), (self,))

    def weight(self) -> PrivateQuery[float]:
        """Return the sum of the rows' weights, each in [0, 1].

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0, class_weights=[0.1, 1.0])
        >>> total = rows.weight().release(dp.Laplace(scale=2))
        >>> dp.Pipeline(total=total).certify()
        <certificate epsilon=0.5 delta=0 by basic>
        """
        return PrivateQuery(TotalWeight(), (self,))

    def loss(self, loss: Loss, at: Released[Any], *, width: float = 1.0) -> PrivateQuery[float]:
        """Return the sum of the rows' losses at released parameters, in units of ``width``.

        Parameters
        ----------
        loss
            For example `adaptive_dp.erm.ZeroOne`, whose sum is the number of errors.
        at
            The parameters, as of `gradients`.
        width
            To which larger losses are clipped.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> from adaptive_dp.erm import ZeroOne
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> errors = rows.loss(ZeroOne(), at=dp.public([-0.5, 1.0])).release(dp.Laplace(scale=2))
        >>> dp.Pipeline(errors=errors).certify()
        <certificate epsilon=0.5 delta=0 by basic>
        """
        return PrivateQuery(TotalLoss(loss, width), (self, open_handle("loss: at", at)))

    def stream(self, loss: Loss, *, clip: float = 1.0) -> PrivateQuery[Array]:
        """Return sums of clipped gradients at parameters chosen later, for `FollowTheLeader`.

        Parameters
        ----------
        loss
            For example ``dp.Logistic()``.
        clip
            The norm to which longer gradients are scaled down.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> stream = people.examples(["age"], "ill", norm=1.0).stream(dp.Logistic())
        >>> leader = dp.FollowTheLeader(sigma=10.0, batches=20)
        >>> trained = stream.release(leader, given=[dp.public(0.1)])  # how far a step goes
        >>> dp.Pipeline(trained=trained).certify(delta=1e-6).epsilon < 1
        True
        """
        if not isinstance(loss, Loss):
            raise DeclarationError(f"stream needs a Loss such as Logistic(), got {loss!r}")
        return PrivateQuery(GradientStream(loss, clip), (self,))

    def as_query(self, *, against: int | None = None) -> PrivateQuery[Array]:
        """Return the examples as a query, for mechanisms that read them: `PerturbedObjective`.

        Parameters
        ----------
        against
            A class: its label becomes 1, all others -1 (one against the rest).

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> noise = dp.PurePerturbedObjective(shift=0.75, ridge=1.0, blur=1e4, of="Logistic()")
        >>> fit = people.examples(["age"], "ill", norm=1.0).as_query().release(noise)
        >>> dp.Pipeline(fit=fit).certify()
        <certificate epsilon=0.973344 delta=0 by basic>
        """
        return PrivateQuery(ExactExamples(against), (self,))

    def gradients(self, loss: Loss | Network, at: Released[Any]) -> Gradients:
        """Return the gradient of each row's loss at released parameters.

        Parameters
        ----------
        loss
            For example ``dp.Logistic()``, or ``dp.Network(dp.Multinomial(10), hidden=128)``.
        at
            The parameters: of a linear model k times p numbers, k scores of p features; of a
            network ``network.size(p)`` numbers, W1 and then W2, row by row.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> rows.gradients(dp.Logistic(), at=dp.public([0.0, 0.0]))
        <private gradients of Logistic>
        >>> rows.gradients(dp.Logistic(), at=0.0)
        Traceback (most recent call last):
            ...
        adaptive_dp.graph.errors.DeclarationError: gradients: at must be a released handle, got 0.0;
        a constant is dp.public(value)
        """
        inputs = (self, open_handle("gradients: at", at))
        if isinstance(loss, Network):
            return Gradients(NetworkGradients.of(loss), inputs)
        if not isinstance(loss, Loss):
            raise DeclarationError(
                f"gradients needs a Loss such as Logistic(), or a Network, got {loss!r}"
            )
        return Gradients(RowGradients(loss), inputs)

    def least_curvature(self, loss: Loss, at: Released[Any]) -> PrivateQuery[float]:
        """Return the least eigenvalue of the sum of second derivatives at released parameters.

        In units of what one row adds at most.

        Parameters
        ----------
        loss
            Of one score, such as ``dp.Logistic()``.
        at
            The parameters, of rows as they are.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> least = rows.least_curvature(dp.Logistic(), at=dp.public([0.0, 0.0]))
        >>> bound = least.release(dp.LowerBound(sigma=5.0, failure=1e-7, reach=1.001))
        >>> dp.Pipeline(bound=bound).certify(delta=1e-6).epsilon < 1
        True
        """
        return PrivateQuery(LeastCurvature(loss), (self, open_handle("least_curvature: at", at)))

    def gradient_norm(
        self, loss: Loss, at: Released[Any], *, ridge: float = 0.0
    ) -> PrivateQuery[float]:
        """Return the norm of the gradient of the losses and ``ridge / 2 |w|^2``, at parameters.

        In units of what one row adds at most.

        Parameters
        ----------
        loss
            Of one score, such as ``dp.Logistic()``.
        at
            The parameters, of rows as they are.
        ridge
            For rows of norm at most 1.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> norm = rows.gradient_norm(dp.Logistic(), at=dp.public([0.0, 0.0]), ridge=1.0)
        >>> bound = norm.release(dp.UpperBound(sigma=5.0, failure=1e-7, reach=1.001))
        >>> dp.Pipeline(bound=bound).certify(delta=1e-6).epsilon < 1
        True
        """
        query = GradientNorm(loss, ridge)
        return PrivateQuery(query, (self, open_handle("gradient_norm: at", at)))

    def minimizer(
        self,
        loss: Loss,
        *,
        ridge: float | Released[float],
        radius: float | None = None,
        tolerance: float = 1e-3,
        tilt: float | None = None,
        rows: int = 1,
        adversary: float | None = None,
        optimizer: Callable[[Objective], Any] | None = None,
    ) -> PrivateQuery[Array]:
        """Return the minimizer of the sum of losses and ``ridge / 2 |w|^2``.

        With a released ridge it is ``ridge`` times the minimizer, whose sensitivity does not depend
        on the ridge.

        Parameters
        ----------
        loss
            With a bounded slope (within the radius, if there is one) and second derivative.
        ridge
            In units of the sum; every parameter is penalised, the intercept's included.
        radius
            Of the l2 ball of parameters; None for no bound.
        tolerance
            The proven distance to the minimizer, as a share of how far one row can move it.
        tilt, rows
            The tilt of a tilted risk (`adaptive_dp.erm.Tilted`), and its least number of rows.
        adversary
            The l2 distance by which an adversary may move each row.
        optimizer
            A user's own function from an `adaptive_dp.erm.Objective` to a point.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> query = people.examples(["age"], "ill", norm=1.0).minimizer(dp.Logistic(), ridge=50.0)
        >>> plan = dp.Pipeline(model=query.release(dp.Gaussian(sigma=0.1)))
        >>> plan.certify(delta=1e-6).epsilon < 1  # a row moves it by 1/50
        True
        """
        # a private handle counts too: `open_handle` below refuses it
        is_released = isinstance(ridge, Handle)
        query = Minimizer(
            loss,
            None if is_released else ridge,
            radius,
            tolerance,
            tilt,
            rows,
            adversary,
            None if optimizer is None else Function.of(optimizer),
        )
        released = (open_handle("minimizer: ridge", ridge),) if is_released else ()
        return PrivateQuery(query, (self, *released))

    def saddle_point(
        self,
        game: Game,
        *,
        ridge: float | Released[float],
        tolerance: float = 1e-3,
        optimizer: Callable[[Saddle], Any] | None = None,
    ) -> PrivateQuery[Array]:
        """Return the learner's parameters at the saddle point of a game of your own.

        With a released ridge they are multiplied by the game's slope over what a row moves them,
        so that their sensitivity does not depend on the ridge.

        Parameters
        ----------
        game
            A function that builds it from rows, labels and a ridge, and what is declared of it. It
            is tried on four rows made up, and refused where it is not so there.
        ridge
            Its strong convexity, in units of the sum of the rows' terms.
        tolerance
            The proven distance to the solution, as a share of how far one row can move it: a gap of
            ``ridge / 2`` times its square. The noise is for two such distances more.
        optimizer
            A user's own function from the `adaptive_dp.erm.Saddle` to (x, y).

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> def saddle(x, y, ridge):
        ...     ...  # returns an `adaptive_dp.erm.Saddle`
        >>> game = dp.erm.Game(saddle, slope=1.0)
        >>> people.examples(["age"], "ill", norm=1.0).saddle_point(game, ridge=50.0)
        Traceback (most recent call last):
            ...
        adaptive_dp.graph.errors.DeclarationError: saddle_point of function: on up to four rows made
        up it failed with AttributeError: 'NoneType' object has no attribute 'against'
        """
        is_released = isinstance(ridge, Handle)
        x, labels = made_up_rows(self.domain)
        # of a released ridge two, as a game might read none
        square = self.domain.radius**2
        trials: Any = (square, 64 * square) if is_released else (ridge,)
        if not isinstance(game, Game):
            raise DeclarationError(f"saddle_point needs an adaptive_dp.erm.Game, got {game!r}")
        function = Function.of(game.saddle)
        try:
            width = min(check_game(game, x, labels, trial) for trial in trials)
        except Exception as error:  # whatever a user's function may raise; no data are in it
            text = str(error)
            if not isinstance(error, ValueError):
                text = f"on up to four rows made up it failed with {type(error).__name__}: {text}"
            raise DeclarationError(f"saddle_point of {function.label}: {text}") from error
        query = SaddlePoint(
            function,
            width,
            game.slope,
            game.shift,
            game.strong_concavity,
            None if is_released else ridge,
            tolerance,
            None if optimizer is None else Function.of(optimizer),
        )
        released = (open_handle("saddle_point: ridge", ridge),) if is_released else ()
        return PrivateQuery(query, (self, *released))


@frozen(eq=False, repr=False)
class Gradients(Private[Any]):
    """A handle of private gradients, one of each row; they are computed when summed, never stored.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> rows = people.examples(["age"], "ill", norm=1.0)
    >>> def step(at, slope):
    ...     return [a - 0.01 * float(s) for a, s in zip(at, slope)]
    >>> def descend(at):
    ...     slope = rows.gradients(dp.Logistic(), at=at).sum(clip=0.5).release(dp.Gaussian(sigma=5))
    ...     return dp.post(step, at, slope)
    >>> plan = dp.Pipeline(model=dp.repeat(descend, 4, start=[0.0, 0.0]))
    >>> plan.certify(delta=1e-6)
    <certificate epsilon=0.834118 delta=1e-06 by gaussian>
    """

    def sum(self, *, clip: float | Released[float]) -> PrivateQuery[Array]:
        """Return the sum of the gradients, each scaled down to norm ``clip`` where it is longer.

        Parameters
        ----------
        clip
            A number, or a released one, which may change from round to round: then the sum is in
            units of it, and a row adds at most a vector of norm 1.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> gradients = rows.gradients(dp.Logistic(), at=dp.public([0.0, 0.0]))
        >>> gradients.sum(clip=0.5)
        <private sum clipped to 0.5>
        >>> gradients.sum(clip=dp.public(0.5))
        <private sum clipped to a released norm>
        """
        # a released norm is an input of the node, a constant one of its parameters
        if isinstance(clip, Handle):
            return PrivateQuery(ClippedSum(), (self, open_handle("sum: clip", clip)))
        return PrivateQuery(ClippedSum(clip), (self,))

    def short(self, bound: Released[float]) -> PrivateQuery[float]:
        """Return the number of gradients with a norm of at most ``bound``, a released number.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> gradients = rows.gradients(dp.Logistic(), at=dp.public([0.0, 0.0]))
        >>> short = gradients.short(dp.public(0.4)).release(dp.Laplace(scale=2))
        >>> dp.Pipeline(short=short).certify()
        <certificate epsilon=0.500001 delta=0 by basic>
        """
        return PrivateQuery(ShortGradients(), (self, open_handle("short: bound", bound)))

    def short_less_long(self, bound: Released[float]) -> PrivateQuery[float]:
        """Return the number of gradients with a norm of at most ``bound``, less all others'.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> gradients = rows.gradients(dp.Logistic(), at=dp.public([1e4, 0.0]))
        >>> excess = gradients.short_less_long(dp.public(0.4)).release(dp.Laplace(scale=2))
        >>> plan = dp.Pipeline(excess=excess)
        >>> plan.certify()
        <certificate epsilon=0.500001 delta=0 by basic>
        >>> rows = {"age": [30.0] * 400, "ill": ["yes"] * 300 + ["no"] * 100}
        >>> abs(plan.simulate(seed=1, people=rows)["excess"] - 200) < 50
        True
        """
        return PrivateQuery(ShortLessLong(), (self, open_handle("short_less_long: bound", bound)))

    def squares(self, *, clip: float | Released[float]) -> PrivateQuery[float]:
        """Return the sum of the gradients' squared norms over ``clip^2``, each at most 1.

        The clip may be a released number.

        For linear models only: the last bits of a network's norms may depend on other rows.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> rows = people.examples(["age"], "ill", norm=1.0)
        >>> gradients = rows.gradients(dp.Logistic(), at=dp.public([0.0, 0.0]))
        >>> squares = gradients.squares(clip=0.5).release(dp.Laplace(scale=2))
        >>> dp.Pipeline(squares=squares).certify()
        <certificate epsilon=0.500001 delta=0 by basic>
        """
        if not isinstance(unaliased(self).operation, RowGradients):
            raise DeclarationError(
                "squares is defined for linear models' gradients, not for a network's"
            )
        if isinstance(clip, Handle):
            return PrivateQuery(SquaredNorms(), (self, open_handle("squares: clip", clip)))
        return PrivateQuery(SquaredNorms(clip), (self,))


def open_handle(what: str, handle: Any) -> Handle:
    """Return a handle that is released or public; refuse anything else.

    Raises
    ------
    DeclarationError
        If it is not a handle.
    LeakError
        If it is private.
    """
    if not isinstance(handle, Handle):
        raise DeclarationError(
            f"{what} must be a released handle, got {handle!r}; a constant is dp.public(value)"
        )
    if handle.visibility == "private":
        raise LeakError(f"{what} is private: {private_path(handle)}; release it first")
    return handle
