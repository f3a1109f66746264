"""What a node does: a frozen value, apart from its place in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data.scan import RowSum, total_of
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.values import fields_of
from adaptive_dp.noise.stream import Stream

if TYPE_CHECKING:
    from adaptive_dp.graph.handles import Handle

# -----------------------------------------------------------------------------
# What may change at a point of the graph when one unit of the data does.


Neighbors = Literal["add_remove", "replace_one", "zero_out"]
NEIGHBORS: tuple[Neighbors, ...] = ("add_remove", "replace_one", "zero_out")


UNBOUNDED = -1
"""Rows of a unit where nothing bounds them; no query may be released there."""


@frozen
class Change:
    """The difference between neighbouring data sets, as it arrives at a node.

    Parameters
    ----------
    replaced
        True: one unit's rows are exchanged for other rows. False: one unit's rows are
        present in one data set, and absent (or zeroed) in the other.
    rows
        The most rows that a unit has here.
    fixed
        True where a unit has exactly ``rows`` rows, in both data sets; False where it may
        have fewer, or none.
    both
        The most rows that a unit has here in the two data sets together; by default twice
        ``rows`` where it is exchanged. Less in a part of a partition, where it has a rows in one
        data set and b in the other: ``rows = max(a, b)``, ``both = a + b``.
    """

    replaced: bool
    rows: int
    fixed: bool
    both: int = field()

    @both.default
    def _both(self) -> int:
        return 2 * self.rows if self.replaced else self.rows

    @property
    def one_sided(self) -> Change:
        """The change where the unit appears or vanishes, with as many rows."""
        return Change(False, self.rows, False)


# -----------------------------------------------------------------------------
# What a node does: a frozen value, apart from its place in the graph.
#
# A node is an operation and its inputs. Private operations have exactly one private input,
# their first; others are released or public values on which they depend. An operation is
#
# * a *transform* (a private input's domain, change and value become its own),
# * a *query* (a `Query`: private value with a sensitivity), or
# * a step whose value is not private: a release, a post-processing, a public value.


Visibility = Literal["private", "released", "public"]
Contributions = tuple[NDArray[np.int64], NDArray[np.float64]]


_NONE: frozenset[Any] = frozenset()
"""One for all handles: Python makes a new empty set each time."""


class Operation:
    """Base of every operation; subclasses are frozen attrs classes, compared by value.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> young = people.filter(people["age"] < 18)
    >>> isinstance(young.operation, dp.Operation), young.operation.kind
    (True, 'filter')
    >>> young.operation.label(), young.operation.is_rowwise
    ('age < 18', True)
    """

    kind: ClassVar[str]
    visibility: ClassVar[Visibility] = "private"
    random: ClassVar[bool] = False
    """True where two nodes with equal operation and inputs are still two nodes."""

    draws: ClassVar[bool] = False
    """True where the value's law is that of a fixed one, and its computation draws: the node is
    given a stream of its own, as random ones are, and two equal nodes are one."""

    input_type: ClassVar[type | None] = None
    """The domain that the first input must have; None where any will do."""

    is_rowwise: ClassVar[bool] = False
    """True where what becomes of a unit's rows depends on those rows and on the plan, and on no
    other row: a unit that is left out then changes nothing for others."""

    max_released_inputs: ClassVar[int] = 0
    """How many released inputs a private operation may read beside its private one."""

    column_fields: ClassVar[tuple[str, ...] | None] = None
    """The parameters that name the columns which the operation reads of its rows, beside those that
    its inputs read. Where its own class does not say it, all columns are read: a class that derives
    from another may read more than that."""

    is_computed: ClassVar[bool] = False
    """True where the value is computed from rows, as it is for every query: what reads it reads no
    rows itself."""

    makes_rows: ClassVar[bool] = False
    """True where rows are made anew, since all of a unit's must be there at once: a pass reads them
    by themselves."""

    alias: ClassVar[bool] = False
    """True where a handle is not a node of its own: it stands for its first input."""

    def states(self, handle: Handle) -> frozenset[Handle]:
        """Return the states of loops on which a handle of this operation depends."""
        states = [each.states for each in handle.inputs if each.states]
        return states[0].union(*states[1:]) if states else _NONE

    def body(self) -> tuple[Handle, ...]:
        """Return the state and the result of a loop's body; nothing for other operations."""
        return ()

    def label(self) -> str:
        """Return a short str for tables and drawings."""
        return self.kind

    def detail(self) -> str:
        """Return the parameters as a short str, or an empty one."""
        return ""

    def text(self) -> str:
        """Return the label and the detail; the detail alone where it begins with the label."""
        label, detail = self.label(), self.detail()
        return detail if detail.startswith(label) else f"{label} {detail}".rstrip()

    def assumes(self) -> str:
        """Return a sentence for certificates: what its proof needs that no program can check."""
        return ""

    def parameters(self) -> dict[str, Any]:
        """Return the operation's own parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    def admit(self, inputs: Sequence[Any]) -> None:
        """Refuse a first input whose domain is not of `input_type`."""
        domain = inputs[0] if inputs else None
        if self.input_type is not None and not isinstance(domain, self.input_type):
            wanted, got = self.input_type.__name__.lower(), type(domain).__name__.lower()
            raise DeclarationError(
                f"a {self.kind} reads {wanted}, but its input is "
                f"{'missing' if domain is None else got}"
            )

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return what is known of the value, from the domains of the inputs.

        Raises
        ------
        DeclarationError
            If the operation cannot follow its inputs.
        """
        return None

    def change(self, change: Change) -> Change:
        """Return how a change of the private input arrives at the output (stability)."""
        return change

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Try, before a run reads any data, what may fail for reasons that are not the data's.

        What fails in `run` of a private operation is withheld; what fails here is shown.

        Parameters
        ----------
        inputs
            The inputs' domains.

        Raises
        ------
        RunError
            If the operation cannot work.
        """

    def columns_read(self) -> frozenset[str] | None:
        """Return the columns that the operation itself reads of its rows; None for all."""
        fields = vars(type(self)).get("column_fields")
        if fields is None:
            return None
        names: set[str] = set()
        for field_name in fields:
            value = getattr(self, field_name)
            names.update([value] if isinstance(value, str) else value or ())
        return frozenset(names)

    def computed_columns(self) -> Mapping[str, frozenset[str]]:
        """Return the columns that the operation adds to its rows, each with those it is made of.

        They are computed when something reads them, and then the columns that they are made of are
        read in their place.
        """
        return {}

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum over rows that the value is, for an operation whose value is one.

        An operation that defines it needs no `run`. Such sums over the same data are computed
        together, in one pass.

        Parameters
        ----------
        inputs
            The values of the inputs, as for `run`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run")

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the value."""
        return total_of(self.row_sum(inputs))

    def observed(
        self, inputs: Sequence[Any], stream: Stream, rounds: Callable[[int], Iterable[int]]
    ) -> Any:
        """Return the value, as `run` does, and show the progress.

        Parameters
        ----------
        inputs, stream
            As of `run`.
        rounds
            ``rounds(n)`` yields 0, ..., n - 1 and shows a bar; n must be public.
        """
        return self.run(inputs, stream)


class Query(Operation):
    """A private value with a sensitivity: what a mechanism releases.

    Examples
    --------
    How many ages are whole tens, as they are where people guess them:

    >>> import numpy as np, adaptive_dp as dp
    >>> from attrs import frozen
    >>> from adaptive_dp.graph.handles import PrivateQuery
    >>> @frozen
    ... class Heaped(dp.Query):
    ...     kind = "heaped"
    ...
    ...     def sensitivity(self, domain, change, norm):
    ...         return float(change.rows)  # each row counts 1 at most
    ...
    ...     def step(self, domain):
    ...         return 1.0
    ...
    ...     def run(self, inputs, stream):
    ...         tens = inputs[0].total(lambda columns: np.array([np.sum(columns["age"] % 10 == 0)]))
    ...         return float(tens[0])
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> heaped = PrivateQuery(Heaped(), (people,)).release(dp.DiscreteLaplace(scale=2))
    >>> plan = dp.Pipeline(heaped=heaped)
    >>> plan.certify()
    <certificate epsilon=0.5 delta=0 by basic>
    >>> round(plan.simulate(seed=1, people={"age": [20, 33, 40, 40, 51] * 100})["heaped"], -2)
    300.0
    """

    is_computed: ClassVar[bool] = True
    output_type: ClassVar[type] = np.ndarray
    """The type of its value: numbers, or something that only some mechanisms read."""

    rounds_outward: ClassVar[bool] = False
    """True where `sensitivity` is exact, or rounded up by itself."""

    disjoint: ClassVar[bool] = False
    """True where a row is counted in one entry of the value at most, by 1."""

    assumption: ClassVar[str] = ""
    """A sentence for certificates, where its sensitivity rests on what no program can check."""

    def assumes(self) -> str:
        """Return `assumption`."""
        return self.assumption

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return the most that one unit's change moves the value, in the l_``norm`` norm.

        Parameters
        ----------
        domain
            The domain of the query's input.
        change
            The change as it arrives at the query's input.
        norm
            1, 2 or infinity; 0 counts the rows that change.
        """
        raise NotImplementedError

    def span(self, domain: Any, change: Change) -> float:
        """Return the most by which one unit's change moves two coordinates apart.

        Twice what one coordinate moves will always do; where all move the same way (monotone, as
        counts do when a unit appears), once is enough. What chooses among scores is charged by it.
        """
        return 2 * self.sensitivity(domain, change, math.inf)

    def rises(self, domain: Any) -> bool:
        """Return whether a unit that appears lowers no coordinate, whatever its rows are.

        Different queries that rise, of the same rows, move the same way (monotone).
        """
        return False

    def dimension(self, domain: Any) -> int:
        """Return the number of coordinates of the value; 1 for a scalar."""
        return 1

    def coordinates_moved(self, domain: Any, change: Change) -> int:
        """Return the most coordinates that one unit's change moves; all of them, by default.

        What rounding a value before noise is added costs grows with their number: see
        `Mechanism.rounds_coordinates`.
        """
        return self.dimension(domain)

    def step(self, domain: Any) -> float:
        """Return a number whose integer multiples all coordinates are, as a float, exactly.

        It must hold whatever the data; 0 where no such number is known.
        """
        return 0.0

    def contributions(self, value: Any) -> Contributions:
        """Return how far the query's value would move, in l2, if a row were left out.

        Defined where the value is a sum over rows: what a row adds depends on that row and on the
        plan alone, whatever the other rows are.

        Parameters
        ----------
        value
            The value of the query's input.

        Returns
        -------
        units, norms
            Shape (rows,): the unit of each row, and a bound for the value as `run` computes it,
            rounding included; exactly 0 only where nothing at all would change.
        """
        raise NotImplementedError(f"{type(self).__name__} is not a sum over rows")

    def sampled(self, domain: Any, values: Any, normals: Any) -> Any:
        """Return plausible values of the population of which the rows are a random sample.

        Parameters
        ----------
        domain
            Of the query's input.
        values
            Plausible values of the query, shape (draws, ...).
        normals
            Standard normal numbers, of the same shape.

        Raises
        ------
        NoIntervalError
            If values alone do not tell how they vary from sample to sample, as by default.
        """
        raise NoIntervalError(f"values of a {self.kind} alone do not tell how they vary")

    def present(self, value: Any) -> Any:
        """Return a released value in the form that its reader expects (post-processing)."""
        return value

    def candidate(self, index: int) -> Any:
        """Return what a mechanism chose, by its index among the value's coordinates."""
        return index

    def key_names(self, domain: Any) -> tuple[str, ...]:
        """Return what the parts of an entry's key are called, as columns of a table are."""
        return ("key",)

    def entries(self, domain: Any) -> Sequence[Any] | None:
        """Return what the value's entries stand for where the query's input says it.

        None where `candidate` does.
        """
        return None
