"""Sparse vector in a session: questions that earlier answers choose, paid for by those "above"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adaptive_dp.extensions import provided
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.values import as_int
from adaptive_dp.session.budget import PartPath, StepLimit

if TYPE_CHECKING:
    from adaptive_dp.session.session import Session


class OnlineSparseVector:
    """Which numbers lie above a threshold, asked one after the other; paid for by those that do.

    `Session.above_threshold` makes one. Each question may depend on all that was released before.
    A *run* of `adaptive_dp.mechanisms.sparse_vector.SparseVectorRun` answers questions until one
    is "above" (``together``: until all tops are): its threshold has one noise, which nobody sees,
    and it is one spend, made before its first question. Answers "below" cost nothing, and a run
    that was not needed is not paid for.

    Attributes
    ----------
    name
        As in the ledger.
    tops
        How many more answers "above" there may be.
    answered
        How many there were.

    Notes
    -----
    The noise of a run is in this process alone. Where the process ends, what its run has cost is
    lost, and its noise too: a session on the same ledger reads the answers that were recorded, by
    equal questions in the same order, and begins another run, which it pays for, at the first
    question that has no answer yet.
    """

    def __init__(
        self,
        session: Session,
        part: PartPath,
        *,
        threshold: float,
        name: str,
        tops: int = 1,
        share: float | None = None,
        scale: float | None = None,
        sensitivity: float | None = None,
        monotone: bool = False,
        together: bool = False,
    ) -> None:
        count = as_int(tops)
        if count is None or count < 1:
            raise DeclarationError(f"tops must be an int of at least 1, got {tops!r}")
        if (share is None) == (scale is None):
            raise DeclarationError(
                "above_threshold needs either share=, of the budget for all tops together, or "
                f"scale=, of the threshold's noise; got share={share!r}, scale={scale!r}"
            )
        if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
            raise DeclarationError(f"share must be a number in (0, 1], got {share!r}")
        for what, flag in (("monotone", monotone), ("together", together)):
            if not isinstance(flag, bool):
                raise DeclarationError(f"{what} must be True or False, got {flag!r}")
        self.name, self.tops, self.answered = name, count, 0
        self._session, self._part = session, part
        # of one top
        self._share = None if share is None else share / count
        self._bound, self._monotone, self._together = sensitivity, monotone, together
        self._parameters = {
            "threshold": threshold,
            "scale": Free("noise") if scale is None else scale,
        }
        # the number of the present run, and its release, once a question has begun it
        self._number, self._asked = 0, 0
        self._begun: Any = None
        self._limit = StepLimit(None, None, None)
        self._closed = False

    def __enter__(self) -> OnlineSparseVector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer no more: the noise of the present run is dropped."""
        self._closed = True
        if self._begun is not None:
            self._session._drop_run(self._begun)

    def __repr__(self) -> str:
        return f"<sparse vector {self.name!r}, {self.tops} left>"

    def ask(
        self,
        query: PrivateQuery[Any],
        *,
        threshold: float | None = None,
        around: float | None = None,
    ) -> bool | None:
        """Return whether the query's number, with noise, is above the threshold; None at the end.

        The same question is answered once: asked again in a run, it has the recorded answer.

        Parameters
        ----------
        query
            One number of the rows, such as ``people.filter(...).count()``.
        threshold
            For this question alone; a public number, which may depend on all that was released.
        around
            A public number: asked is whether the query lies at least the threshold away from it.

        Raises
        ------
        BudgetError
            If another top is to be paid for and does not fit; nothing is spent.
        DeclarationError
            If the query may move farther than the run's sensitivity, or cannot be asked in it.
        LedgerError, DataError, RunError
            As `Session.run`.
        """
        if self._closed:
            raise DeclarationError(f"the sparse vector {self.name!r} is closed; open another one")
        session, part = self._session, self._part
        while self.tops:
            begun = self._run(query)
            asked = provided("sparse_vector.answer")(begun, query, threshold, around)
            new = not session._forecast(begun, self._limit, False, part).already_paid
            # read where it is recorded; else paid for, and its noise is in this process
            session._run(begun, self._limit, f"{self.name}, run {self._number + 1}", False, part)
            if new or session._has_run(begun) or self._recorded(asked):
                name = f"{self.name}, question {self._asked + 1}"
                answer = float(session._run(asked, StepLimit(None, None, None), name, False, part))
                if not math.isnan(answer):
                    self._asked += 1
                    self.answered += int(answer)
                    if answer == 1:
                        self.tops -= 1
                        if not self._together:
                            self._next()
                    return answer == 1
            # a run of a process that has ended, or one whose answer "above" was interrupted
            self._next()
        return None

    def _recorded(self, asked: Any) -> bool:
        forecast = self._session._forecast(asked, StepLimit(None, None, None), False, self._part)
        return forecast.already_paid

    def _run(self, query: Any) -> Any:
        """Return the release that begins the present run, about the data set of the question."""
        if self._begun is None:
            count = self.tops if self._together else 1
            self._limit = StepLimit(None, None, self._share and self._share * count)
            self._begun = provided("sparse_vector.run")(
                query,
                bound=self._bound,
                monotone=self._monotone,
                run=f"{self.name}/{self._number}",
                count=count,
                **self._parameters,
            )
            # all runs are for numbers that move as far as those of the first
            self._bound = self._begun.inputs[0].operation.bound
        return self._begun

    def _next(self) -> None:
        if self._begun is not None:
            self._session._drop_run(self._begun)
        self._number, self._begun = self._number + 1, None


class Holdout:
    """Rows that confirm guesses, and answer those that do not fit; `Session.holdout` makes one.

    Notes
    -----
    It is a sparse vector on the distances from the guesses, and an answer with Laplace noise of its
    own after each distance that is above the threshold: ordinary steps of the session, which its
    filter adds up. `Session.generalization` says how far guesses and answers may be from the
    population.
    """

    def __init__(
        self,
        session: Session,
        *,
        threshold: float,
        changes: int,
        share: float,
        sensitivity: float | None,
        name: str,
    ) -> None:
        if not (isinstance(share, int | float) and 0 < share <= 1):
            raise DeclarationError(f"share must be a number in (0, 1], got {share!r}")
        self._above = OnlineSparseVector(
            session,
            (),
            threshold=threshold,
            tops=changes,
            share=share / 2,
            scale=None,
            sensitivity=sensitivity,
            monotone=False,
            together=False,
            name=name,
        )
        self._session, self._share = session, share / 2 / self._above.tops
        self._answers = self._above.tops

    @property
    def name(self) -> str:
        """As in the ledger."""
        return self._above.name

    @property
    def changes(self) -> int:
        """How many more guesses may be answered in place of confirmed."""
        return self._answers

    def __repr__(self) -> str:
        return f"<holdout {self.name!r}, {self.changes} changes left>"

    def ask(self, query: PrivateQuery[Any], guess: float) -> float | None:
        """Return the guess where it is near the query on the holdout, else the query with noise.

        None where no more guesses can be answered.

        Parameters
        ----------
        query
            One number of the rows, such as a mean.
        guess
            A public number, in the query's units; it may depend on all that was released.

        Raises
        ------
        BudgetError, DeclarationError, LedgerError, DataError, RunError
            As `OnlineSparseVector.ask`.
        """
        if not self._answers:
            return None
        off = self._above.ask(query, around=guess)
        if not off:
            return None if off is None else float(guess)
        self._answers -= 1
        answer = query.release(provided("mechanisms.laplace")())
        name = f"{self.name}, answer {self._above.answered}"
        limit = StepLimit(None, None, self._share)
        return float(self._session._run(answer, limit, name, False, ()))
