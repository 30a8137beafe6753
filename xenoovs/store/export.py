"""The export of a fleet's store to a file: all data that would be lost with its servers.

It has no roll-out, so a restore brings back the config in use. It has no reports of DPUs, which report again anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from xenoovs.display import unique_keys
from xenoovs.errors import ExportMalformed, StoreMalformed
from xenoovs.store.rows import (
    FLEET,
    FORBIDDEN,
    INTENTS,
    OVERRIDES,
    WRITER_TABLES,
    Row,
    StoreDatabase,
    StoreTable,
    plain_row,
    schema_text,
)
from xenoovs.store.view import FORMAT, FleetView, IntentState, StoredService

# What the columns of a schema accept (ovsdb-server(7), RFC 7047, 3.2), for rows that come from files as plain JSON.


_MAX_SHOWN = 60


@lru_cache(maxsize=2)
def declared_columns(database: StoreDatabase) -> Mapping[str, Mapping[str, Any]]:
    """Return the types of the columns of each table (RFC 7047, 3.2, <type>)."""
    tables = json.loads(schema_text(database))["tables"]
    return {table: {name: each["type"] for name, each in body["columns"].items()} for table, body in tables.items()}


def row_of(given: object, table: str, columns: tuple[str, ...], *, where: str) -> Row:
    """Return the row of plain JSON, with exactly these columns. `where`: its name in messages. Raises ValueError if it
    is no such row; the message begins with the place."""
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
    """Return a column's value from plain JSON, where a list is a set. Raises ValueError if it is not of the type."""
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
        if FORBIDDEN.search(given):
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
"""The largest integer that every JSON reader represents exactly (RFC 8259, 6)."""
_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": ("whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# The file.


MAX_SIZE_BYTES = 256 * 1024 * 1024
"""A thousand services with 16 blocks each take 2 MB, and 20 configs of them 6 MB."""

_FORM = 2
"""Form 1 has no history."""
_MARK = "xenoovs_fleet"
"""The key with the form of the file."""
_FLEET_COLUMNS = ("name", "format", "generation", "intent")
_TABLES = {name: WRITER_TABLES[name] for name in ("services", "dpus", "overrides", "intents", "watches", "actions")}
_LATER: Mapping[str, Mapping[str, object]] = {INTENTS.name: {"is_paused": False}, OVERRIDES.name: {"until_ms": 0}}
"""Columns that files of 1.0.0 lack, by table, with their values."""
_NEEDS = "write the file again with `xenoovs fleet export`, or take an earlier one"


def export_text(view: FleetView) -> str:
    """Return a view as the JSON text that `parse_export` reads. Equal views have equal texts."""
    document: dict[str, object] = {_MARK: _FORM, "fleet": {column: getattr(view, column) for column in _FLEET_COLUMNS}}
    for name, table in _TABLES.items():
        values = getattr(view, name)
        document[name] = [plain_row(table.row(values[key])) for key in sorted(values)]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def parse_export(data: bytes, *, file: str) -> FleetView:
    """Return the view that was exported. `file`: its name in messages. Raises ExportMalformed, with the place, if it is
    no export, is of a newer version, or is damaged."""
    try:
        return _view(_document(data))
    except (ValueError, StoreMalformed) as error:
        raise ExportMalformed(file=file, reason=str(error)) from None


def _document(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"it is larger than {MAX_SIZE_BYTES // 2**20} MiB")
    try:
        document = json.loads(data.decode(), object_pairs_hook=unique_keys, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}; {_NEEDS}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8; {_NEEDS}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict) or _MARK not in document:
        raise ValueError(f"it has no {_MARK}; name a file of `xenoovs fleet export`")
    if document[_MARK] == 1 and not isinstance(document[_MARK], bool):
        document |= {_MARK: _FORM, "actions": []}
    if document[_MARK] != _FORM:
        raise ValueError(f"it has form {document[_MARK]!r:.40}, and this version reads {_FORM}; update xenoovs")
    for key in (_MARK, "fleet", *_TABLES):
        if key not in document:
            raise ValueError(f"{key} is missing; {_NEEDS}")
    if unknown := sorted(document.keys() - {_MARK, "fleet", *_TABLES}):
        raise ValueError(f"{unknown[0]!r:.40} is no part of an export; {_NEEDS}")
    return document


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no number of JSON")


def _view(document: Mapping[str, Any]) -> FleetView:
    fleet = row_of(document["fleet"], FLEET, _FLEET_COLUMNS, where="fleet")
    if fleet["format"] > FORMAT:
        raise ValueError(f"fleet.format: readers must know {fleet['format']}, and this version knows {FORMAT}")
    values = {name: _values(document[name], table, name) for name, table in _TABLES.items()}
    claims = dict[str, list[StoredService]]()
    for service in values["services"].values():
        others = claims.setdefault(service.claim, [])
        for other in others:
            if not service.groups or other.is_for(service.groups):
                raise ValueError(f"services: {service.name} and {other.name} have one claim, {service.claim}")
        others.append(service)
    current = [number for number, each in values["intents"].items() if each.state is IntentState.CURRENT]
    if current != ([fleet["intent"]] if fleet["intent"] else []):
        raise ValueError(f"fleet.intent is {fleet['intent']}, and the intents that are current: {current or 'none'}")
    return FleetView(**{**fleet, **values, "ack": 0})


def _values(listed: object, table: StoreTable[Any], name: str) -> dict[Any, Any]:
    if not isinstance(listed, list):
        raise ValueError(f"{name} is no list")
    found, later = dict[Any, Any](), _LATER.get(table.name, {})
    for index, each in enumerate(listed):
        where = f"{name}[{index}]"
        given = {**later, **each} if isinstance(each, dict) else each
        row = row_of(given, table.name, table.columns, where=where)
        key = table.key(row)
        if key in found:
            raise ValueError(f"{where}: there is one of this name already")
        try:
            found[key] = table.value(row)
        except StoreMalformed as error:
            raise ValueError(f"{where}.{error.column}: {error.reason}") from None
    return found
