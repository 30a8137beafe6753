"""A snapshot as names and numbers for JSON, and back: what `GET /v1/status` answers, and what `xenoovs top` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from xenoovs.agent.snapshot import Snapshot
from xenoovs.errors import ParseError

_LARGEST_DENOMINATOR = 1_000_000


def to_document(snapshot: Snapshot) -> dict[str, Any]:
    """Every field under its name; an enum as its value, a fraction as a number."""
    document: dict[str, Any] = plain(snapshot)
    return document


def from_document(document: object) -> Snapshot:
    """The snapshot again. Unknown names are left out: the agent may be newer. Raises ParseError."""
    try:
        snapshot: Snapshot = _typed(document, Snapshot)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(text=str(document)[:80], offset=0, expected=f"the status of an agent ({error})") from None
    return snapshot


def plain(value: object) -> Any:
    """Any value of ours as JSON has it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: plain(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(item) for item in value]
    return str(value)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _shape(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind))


def _typed(value: Any, kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return None if value is None else _typed(value, next(arg for arg in get_args(kind) if arg is not NoneType))
    if origin is tuple:
        return tuple(_typed(item, get_args(kind)[0]) for item in value)
    if origin is not None:
        names, items = get_args(kind)
        return {_typed(key, names): _typed(item, items) for key, item in value.items()}
    if is_dataclass(kind):
        return _built(value, kind)
    if kind is Fraction:
        return Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    return value if kind in (object, bool, int, str) else kind(value)


def _built(value: Any, kind: Any) -> Any:
    found = {}
    for field, hint in _shape(kind):
        if field.name in value:
            found[field.name] = _typed(value[field.name], hint)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise KeyError(field.name)
    return kind(**found)
