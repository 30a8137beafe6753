"""A snapshot as names and numbers for JSON, and back: what `GET /v1/status` answers, and what `xenoovs top` reads."""

from __future__ import annotations

import json
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
    document: dict[str, Any] = json.loads(to_json(snapshot))
    return document


def from_document(document: object) -> Snapshot:
    """The snapshot again. Unknown names are left out: the agent may be newer. Raises ParseError."""
    try:
        snapshot: Snapshot = _reader(Snapshot)(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(text=str(document)[:80], offset=0, expected=f"the status of an agent ({error})") from None
    return snapshot


def to_json(value: object) -> str:
    """The text of any value of ours. With thousands of backends a third of the time that `to_document` would take."""
    return json.dumps(value, separators=(",", ":"), default=shallow)


def shallow(value: Any) -> Any:
    """One value as JSON has it, for `default` of json.dumps; what is in it comes by itself."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if is_dataclass(value):
        kind: Any = type(value)
        names, by_enum = _names(kind)
        found = {name: getattr(value, name) for name in names}
        for name in by_enum:
            found[name] = {key.value: item for key, item in found[name].items()}
        return found
    return str(value)


@cache
def _names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a dataclass, and those of them that are mappings whose keys are enums."""
    hints = get_type_hints(kind)
    return tuple(field.name for field in fields(kind)), tuple(name for name, of in hints.items() if _is_by_enum(of))


def _is_by_enum(hint: Any) -> bool:
    key = get_args(hint)[0] if get_origin(hint) is Mapping else None
    return isinstance(key, type) and issubclass(key, Enum)


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
