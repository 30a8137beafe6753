"""Writes and reads records as JSON, and makes their JSON schemas. All answers of the control API have this form."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from xenoovs.display import as_plain
from xenoovs.errors import ParseError
from xenoovs.show.column import fields_of

T = TypeVar("T")
Schema = dict[str, Any]
_PRIMITIVES: Mapping[object, tuple[str, tuple[type, ...]]] = {
    str: ("string", (str,)),
    int: ("integer", (int,)),
    float: ("number", (float, int)),
    bool: ("boolean", (bool,)),
}
_UNIONS = (Union, types.UnionType)


def _encoded(value: object) -> object:
    if (columns := fields_of(type(value))) is None:
        return _keyed(value) if isinstance(value, Mapping) else as_plain(value)
    found = {each.name: getattr(value, each.name) for each in columns}
    return {name: _keyed(one) if isinstance(one, Mapping) else one for name, one in found.items()}


def _is_mapping(origin: Any) -> bool:
    return inspect.isclass(origin) and issubclass(origin, Mapping)


def _keyed(value: Mapping[Any, object]) -> dict[object, object]:
    return {key.value if isinstance(key, Enum) else as_plain(key): one for key, one in value.items()}


def to_json(value: object) -> str:
    return json.dumps(value, default=_encoded, separators=(",", ":"))


def to_document(value: object) -> Any:
    """Return a record in the form in which `json.loads` returns its JSON."""
    return json.loads(to_json(value))


# Reading.


def parse(kind: type[T], document: object, what: str) -> T:
    """Read a record from its JSON. Unknown keys are ignored, as the agent may be newer. `what`: names the record in the
    error. Raises ParseError."""
    try:
        made: T = _reader(kind)(document)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ParseError(text=str(document)[:80], offset=0, expected=f"{what} ({reason})") from None
    return made


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that reads a value of this type from JSON; it raises ValueError."""
    origin, parts = get_origin(kind), get_args(kind)
    if kinds := _plain_kinds(kind):
        return partial(_of, kinds)
    if kind is Fraction:
        return lambda value: Fraction(value).limit_denominator(1_000_000)
    if origin in _UNIONS:
        read = _reader(next(part for part in parts if part is not type(None)))
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        read = _reader(parts[0])
        return lambda value: tuple(map(read, _of((list,), value)))
    if _is_mapping(origin):
        keys, values = map(_reader, parts)
        return lambda value: {keys(key): values(one) for key, one in _of((dict,), value).items()}
    if fields_of(kind) is not None:
        return _record_reader(kind)
    return kind if inspect.isclass(kind) and issubclass(kind, Enum) else lambda value: value


def _plain_kinds(kind: Any) -> tuple[type, ...]:
    """Return the types that a value of this type has in JSON; empty if the value must be converted."""
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind][1]
    if get_origin(kind) in _UNIONS:
        found = [(type(None),) if part is type(None) else _plain_kinds(part) for part in get_args(kind)]
        return tuple(one for each in found for one in each) if all(found) else ()
    return ()


def _of(kinds: tuple[type, ...], value: Any) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{value!r} is no {kinds[0].__name__}")
    return value


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    # The readers are made at the first read, as a record may contain records of its own type.
    readers: list[tuple[str, tuple[type, ...], Callable[[Any], Any]]] = []

    def read(value: Any) -> Any:
        if not readers:
            readers.extend((name, _plain_kinds(one), _reader(one)) for name, one in _types(kind).items())
        _of((dict,), value)
        found = {}
        for name, kinds, convert in readers:
            if name in value:
                one = value[name]
                # Most values need no call.
                found[name] = one if type(one) in kinds else convert(one)
        return kind(**found)

    return read


@cache
def _types(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a record, by name."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields_of(kind) or ()}


def read_request(kind: type[T], document: Mapping[str, object], *, ignores_others: bool = False) -> T:
    """Read a request with the parsers of its columns. Raises ValueError, also for missing and for unknown keys."""
    names = {each.name: each for each in fields_of(kind) or ()}
    hint = f"the keys are {', '.join(names)}" if names else "it has no keys"
    found = {}
    for name, each in names.items():
        if name not in document:
            if name in _required(kind):  # type: ignore[arg-type]
                raise ValueError(f"{name} is missing; {hint}")
            continue
        try:
            found[name] = each.parser(document[name]) if each.parser else document[name]
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    for name in () if ignores_others else document.keys() - names.keys():
        raise ValueError(f"{name[:63]!r} is not a key here; {hint}")
    return kind(**found)


@cache
def _required(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING)


# The schema.


def schemas(reference: str, *kinds: type) -> dict[str, Schema]:
    """Return the JSON schemas of records and of the records in them, by class name. `reference`: how one refers to
    another, with `{model}` for its name."""
    found: dict[str, Schema] = {}
    for kind in kinds:
        _schema(kind, reference, found)
    return found


def request_schema(kind: Any) -> Schema:
    """Return the JSON schema of a record that `read_request` reads."""
    defaults = {each.name: {"default": each.default} for each in fields(kind) if each.default not in (MISSING, None)}
    properties = {
        one.name: {**(one.parser.schema if one.parser else {}), **defaults.get(one.name, {}), "description": one.doc}
        for one in fields_of(kind) or ()
    }
    required = {"required": [*_required(kind)]} if _required(kind) else {}
    form = {"properties": properties, **required, "type": "object"}
    return {"additionalProperties": False, "description": kind.__doc__, **form}


def _schema(kind: Any, reference: str, found: dict[str, Schema]) -> Schema:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _PRIMITIVES:
        return {"type": _PRIMITIVES[kind][0]}
    if kind is Fraction:
        return {"type": "number"}
    if origin in _UNIONS:
        return {"anyOf": [_schema(part, reference, found) for part in parts if part is not type(None)] + [_NULL]}
    if origin is tuple:
        return {"items": _schema(parts[0], reference, found), "type": "array"}
    if _is_mapping(origin):
        keys, values = (_schema(part, reference, found) for part in parts)
        names = {} if keys == {"type": "string"} else {"propertyNames": keys}
        return {"additionalProperties": values or True, **names, "type": "object"}
    if not inspect.isclass(kind) or kind is object:
        return {}
    if kind.__name__ not in found:
        found[kind.__name__] = {}
        found[kind.__name__] = _named(kind, reference, found)
    return {"$ref": reference.format(model=kind.__name__)}


_NULL = {"type": "null"}


def _named(kind: Any, reference: str, found: dict[str, Schema]) -> Schema:
    text = " ".join((kind.__doc__ or "").split())
    if issubclass(kind, Enum):
        return {"description": text, "enum": [each.value for each in kind], "type": "string"}
    docs = {each.name: each.doc for each in fields_of(kind) or ()}
    properties = {
        name: {**_schema(one, reference, found), **({"description": docs[name]} if docs[name] else {})}
        for name, one in _types(kind).items()
    }
    return {"description": text, "properties": properties, "required": [*properties], "type": "object"}
