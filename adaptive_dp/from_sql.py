"""SQL as one more way to declare: a SELECT becomes the releases that the methods would make.

Nothing is executed as SQL. The statement is parsed by sqlglot, and every part of it that has a
method here is written with that method: the plan, its document and its certificate are those of the
methods. What has none is refused with its place, so that a statement says neither less nor more
than what is released.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from attrs import evolve, frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.mechanisms.selection import QuantileExponential
from adaptive_dp.queries.aggregates import Aggregate
from adaptive_dp.queries.domains import Categories, ColumnOf, Strings
from adaptive_dp.queries.expressions import Condition
from adaptive_dp.queries.sums import bounded, scale_noise
from adaptive_dp.queries.table import Column, Table, where

LONGEST = 50_000
"""The largest number of characters of a statement."""


def sql(
    query: str, table: Table, *, mechanism: Mechanism | None = None
) -> dict[str, Released[Any]]:
    """Return the releases that a SELECT asks for, by name, for ``dp.Pipeline(**dp.sql(...))``.

    The same releases as by the methods of `Table`, `Column` and `Groups`, so at the same cost.

    Parameters
    ----------
    query
        ``SELECT aggregates FROM table [WHERE condition] [GROUP BY columns]``. Aggregates, named by
        ``AS``: ``COUNT(*)``, ``COUNT(column)`` (of the rows that have a value),
        ``COUNT(DISTINCT unit)``, ``COUNT_IF(condition)``, ``SUM``, ``AVG``, ``VARIANCE``,
        ``STDDEV``, ``MEDIAN``, ``QUANTILE(column, q)``, ``PERCENTILE_CONT(q) WITHIN GROUP (ORDER
        BY column)``, ``MIN`` and ``MAX`` (quantiles near the ends). They are of columns and
        arithmetic, ``CASE``, ``COALESCE(column, constant)``, ``LEAST(GREATEST(column, low),
        high)``, which clips. Conditions: comparisons, ``AND``, ``OR``, ``NOT``, ``IN``,
        ``BETWEEN``, ``IS NULL``. Groups are by columns with declared categories, or by what the
        SELECT names: a condition, such as ``age >= 65 AS old``, or ``COALESCE`` of categories.
    table
        The table that ``FROM`` names.
    mechanism
        Releases counts, and with noise in proportion to the largest bound the sums; None for the
        defaults of both, whose noise ``Pipeline.calibrate`` chooses. Quantiles are released by
        ``QuantileExponential()``.

    Raises
    ------
    DeclarationError
        If a part of the statement has no method here: with its line and column, the reason, and
        what to write.

    Notes
    -----
    ``COUNT(*)`` and several averages share one released count. Differences from a database: a
    quantile is a value's rank and is not interpolated, variances have n in the denominator, and
    ``/`` of integers does not round.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> columns = {"health": ["good", "poor"], "age": (0, 100), "visits": (0, 20)}
    >>> people = dp.dataset("people", columns=columns)
    >>> answers = dp.sql(
    ...     '''SELECT health, COUNT(*) AS n, AVG(visits) AS visits
    ...        FROM people WHERE age >= 18 GROUP BY health''', people)
    >>> plan = dp.Pipeline(**answers)
    >>> adults = people.filter(people["age"] >= 18).group_by("health")
    >>> same = dp.Pipeline(**adults.agg(n=dp.count(), visits=dp.average("visits")))
    >>> plan.fingerprint == same.fingerprint
    True
    >>> dp.sql("SELECT health FROM people ORDER BY age", people)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DeclarationError: SQL 1:36: ORDER BY is not expressible here; ...
    """
    if not isinstance(table, Table):
        raise DeclarationError(
            f"dp.sql needs the table that FROM names, dp.sql(query, people), got "
            f"{type(table).__name__}"
        )
    if not isinstance(query, str) or len(query) > LONGEST:
        raise DeclarationError(
            f"dp.sql needs a statement as a str of at most {LONGEST:,} characters, got "
            f"{type(query).__name__}"
        )
    try:
        return _Reader(query, table, (table.domain.name,), mechanism).outputs(_parsed(query))
    except RecursionError:
        raise DeclarationError("SQL 1:1: the statement is nested too deep") from None


def _parsed(query: str) -> Any:
    """Return the statement's tree."""
    try:
        import sqlglot
    except ImportError:
        raise DeclarationError("dp.sql needs sqlglot; install adaptive-dp[sql]") from None
    from sqlglot.errors import SqlglotError

    try:
        statements = [each for each in sqlglot.parse(query) if each is not None]
    except SqlglotError as error:
        first = (getattr(error, "errors", None) or [{}])[0]
        place = f" {first['line']}:{first['col']}" if first.get("line") else ""
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        raise DeclarationError(
            f"SQL{place}: this is not SQL{near}: {first.get('description', 'it cannot be parsed')}"
        ) from None
    if len(statements) != 1 or type(statements[0]).__name__ != "Select":
        raise DeclarationError(
            "SQL 1:1: dp.sql takes one SELECT statement, such as SELECT COUNT(*) FROM people; for "
            "several, or a UNION, call it once for each"
        )
    return statements[0]


_CLAUSES = {
    "joins": (
        "JOIN",
        "join a public table by people.join(public, on='town') and pass that; private tables are "
        "not joined",
    ),
    "having": ("HAVING", "a group's values are private: release all groups and choose afterwards"),
    "order": ("ORDER BY", "sort what is released"),
    "limit": ("LIMIT", "release all groups and choose afterwards"),
    "offset": ("OFFSET", "release all groups and choose afterwards"),
    "distinct": ("SELECT DISTINCT", "GROUP BY a column with declared categories"),
    "with_": ("WITH", "write its conditions into WHERE, or pass people.filter(...) as the table"),
    "windows": ("WINDOW", "release aggregates by GROUP BY"),
    "qualify": ("QUALIFY", "release aggregates by GROUP BY"),
    "laterals": ("LATERAL", "pass a table that has the columns: people.with_columns(...)"),
    "sample": ("TABLESAMPLE", "pass people.sample(rate) as the table"),
    "expressions": ("a list", "give it one argument"),
    "order by": ("ORDER BY", "sort what is released"),
    "cube": ("CUBE", "ask once for each grouping, or people.crosstab(..., margins=True)"),
    "rollup": ("ROLLUP", "ask once for each grouping, or people.crosstab(..., margins=True)"),
    "grouping_sets": ("GROUPING SETS", "ask once for each grouping"),
    "query": ("a subquery", "write a list of values, or compare with a released value by methods"),
}
"""Clauses without a method here, by sqlglot's name: how SQL calls them, and what to do."""

_KINDS = {
    "Subquery": ("a subquery", "pass people.filter(...) as the table"),
    "Window": ("a window function", "release aggregates by GROUP BY"),
    "Filter": ("FILTER", "write COUNT_IF(condition), or CASE WHEN condition THEN x ELSE 0 END"),
    "Star": ("*", "name aggregates such as COUNT(*) and AVG(visits)"),
    "Like": ("LIKE", "list the values: town IN ('A', 'B')"),
    "Cast": ("CAST", "declare the column's type or bounds in dp.dataset"),
    "Distinct": ("DISTINCT of what is no unit", "GROUP BY a column with declared categories"),
    "Null": ("NULL as a value", "use IS NULL, COALESCE(column, constant), or a number"),
    "Mod": ("%", "GROUP BY declared categories, or add the column to the data"),
}
"""Expressions without a method here, by sqlglot's name."""

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "LT": operator.lt,
    "LTE": operator.le,
    "GT": operator.gt,
    "GTE": operator.ge,
}
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Pow": operator.pow,
}
_FUNCTIONS = {"Abs": "abs", "Sqrt": "sqrt", "Ln": "log", "Exp": "exp"}

_AGGREGATES = {
    "Count": "count",
    "CountIf": "count_if",
    "Sum": "sum",
    "Avg": "avg",
    "Variance": "variance",
    "VariancePop": "variance",
    "Stddev": "stddev",
    "StddevPop": "stddev",
    "StddevSamp": "stddev",
    "Median": "median",
    "Quantile": "quantile",
    "ApproxQuantile": "quantile",
    "PercentileCont": "quantile",
    "PercentileDisc": "quantile",
    "WithinGroup": "quantile",
    "Min": "min",
    "Max": "max",
}
"""sqlglot's names of aggregates, and what an output is called by default."""


def _kind(node: Any) -> str:
    return type(node).__name__


@frozen
class _Asked:
    """An aggregate that a statement asks for."""

    node: Any
    kind: str
    value: Any = None
    """A column, or a condition."""
    order: float | None = None
    """Of a quantile."""


@frozen
class _Reader:
    """A statement, and the table whose columns its names are."""

    text: str
    table: Table
    names: tuple[str, ...]
    mechanism: Mechanism | None

    # -----------------------------------------------------------------------------
    # Refusals, each with its place.

    def place(self, node: Any) -> str:
        """Return the line and column of a part: of the first word in it that has a place."""
        while node is not None:
            starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
            if starts:
                before = self.text[: min(starts)]
                return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
            node = node.parent
        return "1:1"

    def refuse(self, node: Any, reason: str) -> NoReturn:
        raise DeclarationError(f"SQL {self.place(node)}: {reason}")

    def refuse_kind(self, node: Any, expected: str) -> NoReturn:
        if _kind(node) in _KINDS:
            called, remedy = _KINDS[_kind(node)]
            self.refuse(node, f"{called} is not expressible here; {remedy}")
        self.refuse(node, f"expected {expected}, got {node.sql()[:60]}")

    def only(self, node: Any, *allowed: str) -> None:
        """Refuse a clause of a part that has no method here: nothing is passed over."""
        for name, value in node.args.items():
            if name not in allowed and value is not None and value is not False and value != []:
                called, remedy = _CLAUSES.get(name, (name.strip("_").upper(), "leave it out"))
                first = value[0] if isinstance(value, list) else value
                place = first if hasattr(first, "walk") else node
                self.refuse(place, f"{called} is not expressible here; {remedy}")

    @contextmanager
    def at(self, node: Any) -> Iterator[None]:
        """Say where in the statement it is what a method refuses."""
        try:
            yield
        except DeclarationError as error:
            if str(error).startswith("SQL "):
                raise
            self.refuse(node, str(error))

    # -----------------------------------------------------------------------------
    # Numbers and conditions.

    def column(self, node: Any) -> Column[Any]:
        """Return a column of the table."""
        self.only(node, "this", "table")
        qualifier = node.args.get("table")
        if qualifier is not None and qualifier.name not in self.names:
            self.refuse(node, f"there is no table {qualifier.name!r}; it is {self.names[-1]!r}")
        if _kind(node.this) != "Identifier":
            self.refuse_kind(node.this, "a column")
        name, columns = node.name, self.table.domain.columns
        if name not in columns and not node.this.args.get("quoted"):
            # names without quotation marks are the same in upper and lower case
            alike = [each for each in columns if each.casefold() == name.casefold()]
            name = alike[0] if len(alike) == 1 else name
        with self.at(node):
            return self.table[name]

    def constant(self, node: Any) -> Any:
        """Return a constant; None for what is none."""
        kind = _kind(node)
        if kind == "Paren":
            return self.constant(node.this)
        if kind == "Boolean":
            return bool(node.this)
        if kind == "Neg":
            inner = self.constant(node.this)
            return -inner if isinstance(inner, int | float) else None
        if kind != "Literal":
            return None
        if node.is_string:
            return str(node.this)
        try:
            return int(node.this) if re.fullmatch(r"\d+", node.this) else float(node.this)
        except ValueError:
            self.refuse(node, f"{node.this[:40]!r} is not a number")

    def value(self, node: Any) -> Any:
        """Return a column, computed or not, or a constant."""
        constant, kind = self.constant(node), _kind(node)
        if constant is not None:
            return constant
        with self.at(node):
            if kind == "Column":
                return self.column(node)
            if kind == "Paren":
                return self.value(node.this)
            if kind in _ARITHMETIC:
                self.only(node, "this", "expression", "typed", "safe")
                return self.arithmetic(node)
            if kind == "Neg":
                return -self.number(node.this)
            if kind in _FUNCTIONS:
                self.only(node, "this")
                return getattr(self.number(node.this), _FUNCTIONS[kind])()
            if kind == "Coalesce":
                self.only(node, "this", "expressions")
                if len(node.expressions) != 1:
                    self.refuse(node, "COALESCE takes a column and a constant")
                return self.number(node.this).fill(self.constant(node.expressions[0]))
            if kind in ("Least", "Greatest"):
                return self.clipped(node)
            if kind == "Case":
                return self.case(node)
        self.refuse_kind(node, "a column, a number, or what is computed of them")

    def arithmetic(self, node: Any) -> Any:
        """Return what is computed of a column, or of two constants."""
        left, right = self.value(node.this), self.value(node.expression)
        if not isinstance(left, Column) and not isinstance(right, Column):
            are_numbers = all(isinstance(each, int | float) for each in (left, right))
            if not are_numbers or _kind(node) == "Pow" or (_kind(node) == "Div" and right == 0):
                self.refuse(node, f"write the number that {node.sql()[:60]} is")
        return _ARITHMETIC[_kind(node)](left, right)

    def number(self, node: Any) -> Column[Any]:
        """Return a column, computed or not."""
        result = self.value(node)
        if not isinstance(result, Column):
            self.refuse(node, f"expected a column, got the constant {result!r}")
        return result

    def clipped(self, node: Any) -> Column[Any]:
        """Return ``LEAST(GREATEST(column, low), high)``: the column clipped."""
        inner = node.this
        for each in (node, inner):
            if _kind(each) in ("Least", "Greatest"):
                self.only(each, "this", "expressions", "ignore_nulls")
        pair = {_kind(node), _kind(inner)} == {"Least", "Greatest"}
        if pair and len(node.expressions) == 1 == len(inner.expressions):
            limits = {_kind(each): self.constant(each.expressions[0]) for each in (node, inner)}
            if None not in limits.values():
                return self.number(inner.this).clip(limits["Greatest"], limits["Least"])
        self.refuse(node, "to clip a column write LEAST(GREATEST(column, low), high)")

    def case(self, node: Any) -> Any:
        """Return ``CASE`` as ``dp.where``, from the last branch to the first."""
        self.only(node, "this", "ifs", "default")
        default = node.args.get("default")
        if default is None:
            self.refuse(node, "CASE without ELSE is missing there; write ELSE 0, or use WHERE")
        result = self.value(default)
        for branch in reversed(node.args["ifs"]):
            if node.this is None:
                met = self.condition(branch.this)
            else:  # CASE x WHEN 1 THEN ...
                met = self.compared(branch, operator.eq, node.this, branch.this)
            # an unknown condition is passed over, where `where` alone would be missing
            true = where(met, 1, 0).fill(0) == 1
            result = where(true, self.value(branch.args["true"]), result)
        return result

    def compared(self, node: Any, test: Callable[[Any, Any], Any], a: Any, b: Any) -> Condition:
        left, right = self.value(a), self.value(b)
        if not isinstance(left, Column) and not isinstance(right, Column):
            self.refuse(node, "a condition must read a column")
        with self.at(node):
            result: Condition = test(left, right)
            return result

    def condition(self, node: Any) -> Condition:
        """Return a condition on the table's rows."""
        kind = _kind(node)
        with self.at(node):
            if kind == "Paren":
                return self.condition(node.this)
            if kind == "Not":
                return ~self.condition(node.this)
            if kind in ("And", "Or"):
                left, right = self.condition(node.this), self.condition(node.expression)
                return left & right if kind == "And" else left | right
            if kind in _COMPARISONS:
                return self.compared(node, _COMPARISONS[kind], node.this, node.expression)
            if kind == "Between":
                self.only(node, "this", "low", "high")
                low = self.compared(node, operator.ge, node.this, node.args["low"])
                return low & self.compared(node, operator.le, node.this, node.args["high"])
            if kind == "In":
                self.only(node, "this", "expressions")
                values = [self.constant(each) for each in node.expressions]
                if None in values:
                    self.refuse(node, "IN takes a list of constants, such as ('A', 'B')")
                return self.number(node.this).isin(values)
            if kind == "Is" and _kind(node.expression) == "Null":
                return ~self.number(node.this).is_present()
            if kind == "Column":
                column = self.column(node)
                if column.domain.column == Categories((False, True)):
                    return column == True  # noqa: E712
                self.refuse(node, f"{node.name} is not declared bool; compare it with a value")
        self.refuse_kind(node, "a condition such as age >= 18")

    # -----------------------------------------------------------------------------
    # The statement.

    def outputs(self, select: Any) -> dict[str, Released[Any]]:
        """Return the releases that a SELECT asks for."""
        self.only(select, "expressions", "from_", "where", "group")
        reader = self.of_from(select)
        condition = select.args.get("where")
        if condition is not None:
            with reader.at(condition):
                kept = reader.table.filter(reader.condition(condition.this))
            reader = evolve(reader, table=kept)
        reader, keys, conditions = reader.grouped(select)
        asked: dict[str, _Asked] = {}
        for item in select.expressions:
            node = item.unalias()
            if node in conditions or (
                _kind(node) == "Column" and _name_of(reader.column(node)) in keys
            ):
                continue
            aggregate = reader.aggregate(node)
            name = item.alias or reader.default_name(aggregate)
            if name in asked:
                reader.refuse(item, f"two results are called {name!r}; name one by AS")
            asked[name] = aggregate
        if not asked:
            reader.refuse(select, "nothing is released; SELECT an aggregate such as COUNT(*)")
        return reader.by_group(asked, keys) if keys else reader.of_table(asked)

    def of_from(self, select: Any) -> _Reader:
        """Check what FROM names; take its alias."""
        source = select.args.get("from_")
        if source is None:
            self.refuse(select, f"there is no FROM; write FROM {self.names[0]}")
        self.only(source, "this")
        if _kind(source.this) != "Table":
            self.refuse_kind(source.this, f"FROM {self.names[0]}")
        self.only(source.this, "this", "alias")
        if source.this.name.casefold() != self.names[0].casefold():
            self.refuse(
                source.this,
                f"FROM {source.this.name} is not the given table, which is {self.names[0]!r}",
            )
        alias = source.this.alias
        if alias:
            self.only(source.this.args["alias"], "this")
        return evolve(self, names=(*self.names, source.this.name, *([alias] if alias else [])))

    def grouped(self, select: Any) -> tuple[_Reader, list[str], list[Any]]:
        """Return the columns to group by, and the expressions that some of them are."""
        group = select.args.get("group")
        if group is None:
            return self, [], []
        self.only(group, "expressions")
        named = {item.alias: item.unalias() for item in select.expressions if item.alias}
        reader, keys, conditions = self, list[str](), list[Any]()
        for each in group.expressions:
            node, name = each, each.name
            if _kind(each) == "Literal" and not each.is_string:
                place = self.constant(each)
                if not (isinstance(place, int) and 1 <= place <= len(select.expressions)):
                    self.refuse(each, f"there is no column {each.name} in the SELECT")
                item = select.expressions[place - 1]
                node, name = item.unalias(), item.alias_or_name
            elif _kind(each) == "Column" and name not in self.table.domain.columns:
                node = named.get(name, each)
            if _kind(node) == "Column":
                name = _name_of(self.column(node))
                if isinstance(self.table.domain.find(name), Strings):
                    self.refuse(
                        node,
                        f"{name!r} declares no categories, so its keys are private too; declare "
                        f"them, or use {self.names[0]}.group_by({name!r}).count()",
                    )
            elif name and name not in self.table.domain.columns:
                with self.at(node):
                    made: Any = self.value if _kind(node) == "Coalesce" else self.condition
                    reader = evolve(reader, table=reader.table.with_columns(**{name: made(node)}))
                if not isinstance(reader.table.domain.find(name), Categories):
                    self.refuse(node, f"{name!r} has no categories to group by")
                conditions.append(node)
            else:
                self.refuse(
                    node,
                    "groups are by columns with declared categories, or by a condition or COALESCE "
                    "that the SELECT names: SELECT age >= 65 AS old, COUNT(*) ... GROUP BY old",
                )
            keys.append(name)
        return reader, keys, conditions

    def aggregate(self, node: Any) -> _Asked:
        """Return what an aggregate asks for."""
        sql_kind = _kind(node)
        kind = _AGGREGATES.get(sql_kind)
        if kind is None:
            if sql_kind in _KINDS or any(_kind(each) in _AGGREGATES for each in node.walk()):
                self.refuse_kind(node, "an aggregate (compute with released ones by dp.post)")
            self.refuse(
                node,
                f"the rows' own values are private: aggregate {node.sql()[:60]}, or GROUP BY it",
            )
        if sql_kind == "WithinGroup":  # PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY column)
            self.only(node, "this", "expression")
            order, inner = node.expression, node.this
            if _AGGREGATES.get(_kind(inner)) != "quantile" or len(order.expressions) != 1:
                self.refuse_kind(node, "PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY column)")
            self.only(order.expressions[0], "this", "nulls_first")
            return self.quantile(node, order.expressions[0].this, inner.this)
        if kind == "quantile":
            self.only(node, "this", "quantile", "expression")
            return self.quantile(node, node.this, node.args.get("quantile") or node.expression)
        self.only(node, "this", "big_int")
        inner = node.this
        if kind == "count" and _kind(inner) == "Star":
            self.only(inner)
            return _Asked(node, "count")
        if kind == "count" and _kind(inner) == "Distinct":
            self.only(inner, "expressions")
            unit = self.table.domain.unit
            if len(inner.expressions) != 1 or inner.expressions[0].name != unit:
                self.refuse(
                    inner,
                    "COUNT(DISTINCT ...) counts units: "
                    + (f"write COUNT(DISTINCT {unit})" if unit else "each row is one, COUNT(*)"),
                )
            return _Asked(node, "count_distinct")
        if kind == "count_if":
            return _Asked(node, kind, self.condition(inner))
        column = self.number(inner)
        if kind == "count":
            return _Asked(node, "count_present", column)
        return _Asked(node, kind, column)

    def quantile(self, node: Any, column: Any, order: Any) -> _Asked:
        share = self.constant(order) if order is not None else None
        if isinstance(share, bool) or not isinstance(share, int | float):
            self.refuse(node, "a quantile needs its order, a number such as 0.5")
        return _Asked(node, "quantile", self.number(column), share)

    def default_name(self, asked: _Asked) -> str:
        """Return what an output is called that has no name."""
        word = _AGGREGATES[_kind(asked.node)]
        word = "count_distinct" if asked.kind == "count_distinct" else word
        own = _name_of(asked.value) if isinstance(asked.value, Column) else ""
        return f"{word}_{own}" if own else word

    def of_table(self, asked: Mapping[str, _Asked]) -> dict[str, Released[Any]]:
        """Return the aggregates of the whole table; one count serves all that need it."""
        table, noise = self.table, self.mechanism
        kinds = [each.kind for each in asked.values()]
        shared = "count" in kinds or kinds.count("avg") > 1
        counted = table.count().release(noise) if shared else None
        result: dict[str, Released[Any]] = {}
        for name, each in asked.items():
            column = each.value
            with self.at(each.node):
                if each.kind == "count":
                    assert counted is not None
                    result[name] = counted
                elif each.kind == "count_present":
                    result[name] = table.filter(column.is_present()).count().release(noise)
                elif each.kind == "count_if":
                    result[name] = table.filter(column).count().release(noise)
                elif each.kind == "count_distinct":
                    result[name] = table.count_distinct().release(noise)
                elif each.kind == "sum":
                    largest = bounded(column.domain).largest or 1.0
                    result[name] = column.sum().release(scale_noise(noise, largest))
                elif each.kind == "avg":
                    result[name] = column.average(noise, count=counted)
                elif each.kind == "variance":
                    result[name] = column.variance(noise)
                elif each.kind == "stddev":
                    result[name] = column.std(noise)
                else:
                    result[name] = _ordered(column, each).release(QuantileExponential())
        return result

    def by_group(self, asked: Mapping[str, _Asked], keys: list[str]) -> dict[str, Released[Any]]:
        """Return the aggregates of each group."""
        table, named, columns = self.table, dict[str, Aggregate](), dict[str, str]()
        for name, each in asked.items():
            if isinstance(each.value, Column) and each.kind in ("sum", "avg", "quantile", "median"):
                own = _name_of(each.value)
                if not own:  # a computed column needs a name that the table does not have
                    own = name
                    while own in table.domain.columns:
                        own += "_"
                    with self.at(each.node):
                        table = table.with_columns(**{own: each.value})
                columns[name] = own
        for name, each in asked.items():
            if each.kind in ("count", "sum", "avg"):
                word = {"avg": "average"}.get(each.kind, each.kind)
                named[name] = Aggregate(word, columns.get(name, ""))  # type: ignore[arg-type]
        first = next(iter(asked.values())).node
        with self.at(first):
            groups = table.group_by(*keys)
            result = dict(groups.agg(self.mechanism, **named))
        for name, each in asked.items():
            with self.at(each.node):
                if each.kind == "count_distinct":
                    # one row of a unit in each group: its rows are the units
                    units = table.group_by(*keys, max_rows=1).count()
                    result[name] = units.release(self.mechanism)
                elif each.kind in ("count_present", "count_if"):
                    condition = each.value if each.kind == "count_if" else each.value.is_present()
                    some = table.filter(condition).group_by(*keys).count()
                    result[name] = some.release(self.mechanism)
                elif each.kind in ("median", "quantile"):
                    share = 0.5 if each.order is None else each.order
                    own = columns[name]
                    result[name] = groups.quantiles(own, [share], QuantileExponential())
                elif name not in named:
                    self.refuse(
                        each.node,
                        f"{each.kind.upper()} by group has no method; ask for it in each part of "
                        f"people.partition({keys[0]!r})",
                    )
        return {name: result[name] for name in asked}


def _ordered(column: Any, asked: _Asked) -> Any:
    if asked.kind == "quantile":
        return column.quantile(asked.order)
    return {"median": column.median, "min": column.min, "max": column.max}[asked.kind]()


def _name_of(column: Column[Any]) -> str:
    """Return the name of a column of the table; an empty str of a computed one."""
    operation = column.operation
    return operation.name if isinstance(operation, ColumnOf) else ""
