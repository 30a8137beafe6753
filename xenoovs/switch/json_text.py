"""JSON as the tools of iproute2 and Open vSwitch print it, read strictly: other shapes are a ParseError."""

from __future__ import annotations

import json
from typing import Any

from xenoovs.errors import ParseError


def read_json(text: str, *, expected: str) -> Any:
    """Any JSON value; nothing at all is an empty list, as `ip -j` prints for no entries."""
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(text=text, offset=error.pos, expected=expected) from None


def rows_of(value: Any, *, expected: str) -> list[dict[str, Any]]:
    """A list of objects. Empty ones are left out: some versions of tc(8) and ip(8) print them for skipped entries."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise ParseError(text=json.dumps(value), offset=0, expected=expected)
    return [row for row in value if row]


def member(row: dict[str, Any], key: str, kind: type, *, expected: str) -> Any:
    """A member that must be there, of a type."""
    value = row.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ParseError(text=json.dumps(row), offset=0, expected=f"{key!r} in {expected}")
    return value
