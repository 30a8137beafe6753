"""What the columns of a schema accept (ovsdb-server(7), RFC 7047, 3.2), for rows that come from files as plain JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from xenoovs.store.rows import Row, StoreDatabase, schema_text

_FORBIDDEN = re.compile("[\0\ud800-\udfff]")
_MAX_SHOWN = 60


@lru_cache(maxsize=2)
def declared_columns(database: StoreDatabase) -> Mapping[str, Mapping[str, Any]]:
    """Return the types of the columns of each table (RFC 7047, 3.2, <type>)."""
    tables = json.loads(schema_text(database))["tables"]
    return {table: {name: each["type"] for name, each in body["columns"].items()} for table, body in tables.items()}


def plain_row(row: Row) -> dict[str, Any]:
    """Return a row as plain JSON: sets are lists in order."""
    return {column: sorted(value) if isinstance(value, frozenset) else value for column, value in row.items()}


def row_of(given: object, table: str, columns: tuple[str, ...], *, where: str) -> Row:
    """Return the row of plain JSON, with exactly these columns.

    Args:
        table: Of the database of the fleet.
        where: What messages call it.

    Raises:
        ValueError: It is no such row; the message begins with the place.
    """
    if not isinstance(given, dict):
        raise ValueError(f"{where}: {_shown(given)} is no object")
    for name in (*columns, *given):
        if name not in given:
            raise ValueError(f"{where}: {name} is missing")
        if name not in columns:
            raise ValueError(f"{where}: {_shown(name)} is no column; it has {', '.join(columns)}")
    declared, row = declared_columns(StoreDatabase.FLEET)[table], dict[str, Any]()
    for name in columns:
        try:
            row[name] = column_value(given[name], declared[name])
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {error}") from None
    return row


def column_value(given: object, declared: Any) -> Any:
    """Return the value of a column from plain JSON: a list is a set. Raises ValueError: the type does not accept it."""
    if isinstance(declared, str) or "max" not in declared:
        return _atom(given, declared if isinstance(declared, str) else declared["key"])
    if "value" not in declared:
        if not isinstance(given, list):
            raise ValueError(f"{_shown(given)} is no list")
        return frozenset(_atom(each, declared["key"]) for each in given)
    if not isinstance(given, dict):
        raise ValueError(f"{_shown(given)} is no object")
    return {_atom(key, declared["key"]): _atom(value, declared["value"]) for key, value in given.items()}


def _atom(given: object, declared: Any) -> Any:
    base: Mapping[str, Any] = {"type": declared} if isinstance(declared, str) else declared
    kind, is_one = _KINDS[base["type"]]
    if not is_one(given):
        raise ValueError(f"{_shown(given)} is no {kind}")
    if isinstance(given, str):
        if _FORBIDDEN.search(given):
            raise ValueError(f"{_shown(given)} is text with a zero or half a character of UTF-16")
        _require_between(len(given), base.get("minLength", 0), base.get("maxLength", _MAX_LENGTH), "characters are")
    elif isinstance(given, int):
        _require_between(given, base.get("minInteger", -_MAX_INTEGER), base.get("maxInteger", _MAX_INTEGER), "is")
    if "enum" in base and given not in base["enum"][1]:
        raise ValueError(f"{_shown(given)} is none of {', '.join(base['enum'][1])}")
    return given


def _require_between(number: int, least: int, most: int, what: str) -> None:
    if not least <= number <= most:
        raise ValueError(f"{number} {what} not {least} to {most}")


_MAX_LENGTH = 1 << 26
_MAX_INTEGER = 1 << 53
"""The largest number that every reader of JSON has exactly (RFC 8259, 6)."""
_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": ("whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
