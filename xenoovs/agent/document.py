"""A snapshot as names and numbers for JSON, and back: what `GET /v1/status` answers, and what `xenoovs top` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
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
        snapshot: Snapshot = _reader(Snapshot)(document)
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
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type from its JSON. Raises KeyError, TypeError, ValueError, AttributeError."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        inner = _reader(next(arg for arg in get_args(kind) if arg is not NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _reader(get_args(kind)[0])
        return lambda value: tuple(map(item, value))
    if origin is not None:
        name_of, item_of = map(_reader, get_args(kind))
        return lambda value: {name_of(name): item_of(item) for name, item in value.items()}
    if is_dataclass(kind):
        return _builder(kind)
    if kind is Fraction:
        return lambda value: Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    return _as_it_is if kind in (object, bool, int, str) else kind


def _builder(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    known = [
        (field.name, _reader(hints[field.name]), field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    ]

    def build(value: Any) -> Any:
        missing = [name for name, _, is_needed in known if is_needed and name not in value]
        if missing:
            raise KeyError(missing[0])
        return kind(**{name: read(value[name]) for name, read, _ in known if name in value})

    return build


def _as_it_is(value: Any) -> Any:
    return value
