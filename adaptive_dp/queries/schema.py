"""Schemas: what the data's owner writes of a table, for tables of many columns.

A schema is a JSON or TOML file, a mapping of the same form, or the types of an empty Parquet file.
It is written by the owner and never computed from the data: bounds and categories that depend on
rows would reveal something about them, which no certificate would account for.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import translate
from pathlib import Path
from typing import Any

from attrs import frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Strings,
    column,
    dates,
    of_document,
)

OPTIONS = ("name", "neighbors", "unit", "rows_per_unit", "size")
"""What a schema may declare besides its columns: arguments of `dataset`."""

FIELDS = (*OPTIONS, "columns", "bounds", "categories")


@frozen
class Schema:
    """What a schema says.

    Parameters
    ----------
    place
        The name of the schema in messages.
    columns
        The declaration of each column.
    options
        The other arguments of `dataset` that the schema declares.
    """

    place: str
    columns: dict[str, Column]
    options: dict[str, Any]


def read_schema(
    schema: Any,
    bounds: Mapping[str, Any] | None,
    categories: Mapping[str, Any] | None,
    unit: str | None,
) -> Schema:
    """Return what a schema says, its patterns resolved.

    Parameters
    ----------
    schema
        A path, a mapping, or a schema of PyArrow.
    bounds, categories
        Further bounds and categories by name or pattern; None for none.
    unit
        The column that identifies units, where the schema has none; no pattern matches it.

    Raises
    ------
    DeclarationError
        If the schema is not of this form; the message says where, and what is allowed.
    """
    place, types, content = "the schema", dict[str, str | None](), schema
    if isinstance(schema, str | os.PathLike):
        place, content = Path(schema).name, _content(Path(schema))
    if type(content).__module__.partition(".")[0] == "pyarrow" and hasattr(content, "types"):
        kinds = map(_kind, content.types)
        # columns of other types, such as dates and lists, cannot be declared
        types = {k: kind for k, kind in zip(content.names, kinds, strict=True) if kind}
        _refuse_repeated(place, content.names)
        content = {"columns": list(types)}
    if not isinstance(content, Mapping):
        raise DeclarationError(
            f"{place}: a schema is a mapping with the fields {', '.join(FIELDS)}, got "
            f"{type(content).__name__}"
        )
    unknown = [field for field in content if field not in FIELDS]
    if unknown:
        raise DeclarationError(
            f"{place}: unknown field {unknown[0]!r}; a schema has {', '.join(FIELDS)}"
        )
    options = {key: content[key] for key in OPTIONS if key in content}
    columns = _columns(place, content.get("columns"))
    rules = _Rules(place, columns, types, options.get("unit", unit))
    for field, argument in (("bounds", bounds), ("categories", categories)):
        for where, patterns in ((f"{place}: {field}", content.get(field)), (field, argument)):
            if patterns is not None:
                rules.add(where, field, patterns)
    return Schema(place, rules.declared(), options)


def _content(path: Path) -> Any:
    """Return what a file says: a mapping, or a schema of PyArrow."""
    if not path.is_file():
        raise DeclarationError(f"there is no schema {path}")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _arrow_schema(path)
    if suffix not in (".json", ".toml"):
        raise DeclarationError(
            f"{path.name}: a schema ends in .json or .toml, or is an empty file .parquet"
        )
    try:
        text = path.read_text("utf-8")
        if suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=lambda pairs: _mapping(path.name, pairs))
    except DeclarationError:
        raise
    except ValueError as error:  # what is not UTF-8, JSON or TOML; it says the line
        raise DeclarationError(f"{path.name} is not {suffix[1:].upper()}: {error}") from None


def _arrow_schema(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise DeclarationError("to read Parquet install adaptive-dp[arrow]") from None
    try:
        metadata = pq.read_metadata(path)
    except Exception:
        metadata = None
    if metadata is None:
        raise DeclarationError(f"{path.name} is not a Parquet file")
    if metadata.num_rows:
        raise DeclarationError(
            f"{path.name} has rows, and a schema is not read off the data: write an empty file of "
            "the same types, pyarrow.parquet.write_table(schema.empty_table(), 'schema.parquet')"
        )
    return metadata.schema.to_arrow_schema()


def _kind(type_: Any) -> str | None:
    """Return what columns of an Arrow type hold; None for a type that no column is read from."""
    import pyarrow.types as of

    if of.is_dictionary(type_):
        type_ = type_.value_type
    if of.is_boolean(type_) or of.is_integer(type_) or of.is_floating(type_):
        return "numbers"
    is_str = of.is_string(type_) or of.is_large_string(type_) or of.is_string_view(type_)
    return "strings" if is_str else None


def _mapping(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json keeps the last of two equal names, and reports nothing
    _refuse_repeated(place, [name for name, _ in pairs])
    return dict(pairs)


def _refuse_repeated(place: str, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DeclarationError(f"{place}: {name!r} is there twice; leave one out")
        seen.add(name)


def _columns(place: str, content: Any) -> dict[str, Any]:
    """Return the columns' declarations; None where there is none."""
    if isinstance(content, list | tuple) and all(isinstance(each, str) for each in content):
        _refuse_repeated(f"{place}: columns", content)
        return dict.fromkeys(content)
    if isinstance(content, Mapping):
        return {
            name: _declaration(f"{place}: columns", name, each) for name, each in content.items()
        }
    raise DeclarationError(
        f"{place}: columns must be a list of names, or a mapping of names to declarations such as "
        f'{{"age": {{"bounds": [0, 100]}}}}, got {type(content).__name__}'
    )


def _declaration(place: str, name: Any, content: Any) -> Column:
    if not (isinstance(name, str) and name):
        raise DeclarationError(f"{place}: a column's name must be a nonempty str, got {name!r}")
    if content is None or content == {}:  # TOML has no null
        return None
    if (
        isinstance(content, Mapping)
        and len(content) == 1
        and set(content) <= {"bounds", "dates", "categories", "type"}
    ):
        ((field, value),) = content.items()
        return _declared(f"{place}.{name}", name, field, value)
    raise DeclarationError(
        f'{place}.{name}: a column is {{"bounds": [low, high]}}, {{"categories": [...]}}, '
        f'{{"dates": [first, last]}}, {{"type": "str"}} or null (in TOML {{}}), got {content!r}'
    )


def _declared(place: str, name: str, field: str, value: Any) -> Column:
    if field == "type":
        if value not in ("str", "bool"):
            raise DeclarationError(f"{place}: a column's type is 'str' or 'bool', got {value!r}")
        return column(name, of_document({"type": value}))
    if not isinstance(value, list | tuple):
        raise DeclarationError(f"{place}: {field} must be a list, got {value!r}")
    if field in ("bounds", "dates") and len(value) != 2:
        kind = "numbers" if field == "bounds" else "dates"
        raise DeclarationError(f"{place}: {field} must be a pair of {kind}, got {value!r}")
    try:
        if field == "dates":
            return dates(*value)
        return column(name, tuple(value) if field == "bounds" else list(value))
    except DeclarationError as error:
        raise DeclarationError(f"{place}: {error}") from None


class _Rules:
    """Bounds and categories by name or pattern, and the columns that they are for.

    A name takes precedence over a pattern; two patterns that match one column are refused.
    """

    def __init__(
        self, place: str, columns: dict[str, Column], types: Mapping[str, str | None], unit: Any
    ) -> None:
        self._place, self._columns, self._types, self._unit = place, columns, types, unit
        # by column: the place of its declaration in the schema, and the declaration
        self._named: dict[str, tuple[str, Column]] = {}
        self._matched: dict[str, tuple[str, Column]] = {}

    def add(self, place: str, field: str, rules: Any) -> None:
        """Take rules of one kind."""
        if not isinstance(rules, Mapping):
            raise DeclarationError(
                f"{place} must be a mapping of names or patterns such as 'x_*', got "
                f"{type(rules).__name__}"
            )
        for pattern, value in rules.items():
            where = f"{place}.{pattern}"
            names, earlier = self._names(where, pattern)
            declared = _declared(where, str(pattern), field, value)
            for name in names:
                if name in earlier:
                    raise DeclarationError(
                        f"{where}: column {name!r} is declared by {earlier[name][0]} too; leave "
                        "one out, or write the column's name"
                    )
                self._check_type(where, name, declared)
                earlier[name] = where, declared

    def _names(self, where: str, pattern: Any) -> tuple[list[str], dict[str, tuple[str, Column]]]:
        if pattern in self._columns:  # a name, even if it has a pattern's characters
            return [pattern], self._named
        compiled = re.compile(translate(str(pattern)))
        names = [each for each in self._columns if compiled.match(each) and each != self._unit]
        if not names:
            first = ", ".join(map(repr, list(self._columns)[:5])) or "none"
            raise DeclarationError(
                f"{where}: no column is called so, or matches it; the first columns are {first}"
            )
        return names, self._matched

    def _check_type(self, where: str, name: str, declared: Column) -> None:
        kind = self._types.get(name)
        if kind is None:
            return
        are_strings = isinstance(declared, Categories) and all(
            isinstance(v, str) for v in declared.values
        )
        if (kind == "strings") != are_strings:
            hint = "categories that are str" if kind == "strings" else "bounds, or such categories"
            raise DeclarationError(
                f"{where}: column {name!r} has {kind} in {self._place}; give it {hint}"
            )

    def declared(self) -> dict[str, Column]:
        """Return each column's declaration."""
        result = dict(self._columns)
        for name, (_, declared) in self._matched.items():
            # what is declared by name takes precedence over patterns
            result[name] = declared if result[name] is None else result[name]
        for name, kind in self._types.items():
            if kind == "strings" and name != self._unit and name not in self._named:
                # strings whose categories nobody declares are still strings
                result[name] = Strings() if result[name] is None else result[name]
        for name, (where, declared) in self._named.items():
            if self._columns[name] is not None:
                raise DeclarationError(
                    f"{where}: column {name!r} is declared among the columns already; leave one out"
                )
            result[name] = declared
        return result
