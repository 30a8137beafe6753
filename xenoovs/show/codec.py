"""Writes and reads records as JSON, and makes their JSON schemas. All answers of the control API have this form."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from xenoovs.display import as_plain
from xenoovs.errors import ParseError
from xenoovs.show.column import fields_of

T = TypeVar("T")
Schema = dict[str, Any]
REFERENCE = "#/components/schemas/{}"
"""How a schema refers to that of a class, in an OpenAPI document."""
_PRIMITIVES: Mapping[object, tuple[str, tuple[type, ...]]] = {
    str: ("string", (str,)),
    int: ("integer", (int,)),
    float: ("number", (float, int)),
    bool: ("boolean", (bool,)),
}


def _encoded(value: object) -> object:
    if (columns := fields_of(type(value))) is None:
        return _keyed(value) if isinstance(value, Mapping) else as_plain(value)
    found = {each.name: getattr(value, each.name) for each in columns}
    return {name: _keyed(one) if isinstance(one, Mapping) else one for name, one in found.items()}


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
        made: T = _form(kind).read(document)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ParseError(text=str(document)[:80], offset=0, expected=f"{what} ({reason})") from None
    return made


class _Form(NamedTuple):
    """How JSON has a type. `read`: returns a value, or raises ValueError. `kinds`: types of JSON values that are values
    already."""

    read: Callable[[Any], Any]
    schema: Schema
    kinds: tuple[type, ...] = ()


@cache
def _form(kind: Any) -> _Form:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _PRIMITIVES:
        name, kinds = _PRIMITIVES[kind]
        return _Form(partial(_of, kinds), {"type": name}, kinds)
    if kind is Fraction:
        return _Form(lambda value: Fraction(value).limit_denominator(1_000_000), {"type": "number"})
    if origin in (Union, types.UnionType):
        one = _form(next(part for part in parts if part is not types.NoneType))
        kinds = (*one.kinds, types.NoneType) if one.kinds else ()
        schema = {"anyOf": [one.schema, {"type": "null"}]}
        return _Form(lambda value: None if value is None else one.read(value), schema, kinds)
    if origin is tuple:
        read, schema, _ = _form(parts[0])
        return _Form(lambda value: tuple(map(read, _of((list,), value))), {"items": schema, "type": "array"})
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        key, item = map(_form, parts)
        names = {} if key.schema == {"type": "string"} else {"propertyNames": key.schema}
        return _Form(
            lambda value: {key.read(name): item.read(each) for name, each in _of((dict,), value).items()},
            {"additionalProperties": item.schema or True, **names, "type": "object"},
        )
    if _is_named(kind):
        return _Form(
            kind if issubclass(kind, Enum) else _record_reader(kind), {"$ref": REFERENCE.format(kind.__name__)}
        )
    return _Form(lambda value: value, {})


def _is_named(kind: Any) -> bool:
    """Return whether a type has a schema of its own name: records and enums."""
    return fields_of(kind) is not None or (inspect.isclass(kind) and issubclass(kind, Enum))


def _of(kinds: tuple[type, ...], value: Any) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{value!r} is no {kinds[0].__name__}")
    return value


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    # The forms are made at the first read, as a record may contain records of its own type.
    forms: list[tuple[str, Callable[[Any], Any], Schema, tuple[type, ...]]] = []

    def read(value: Any) -> Any:
        if not forms:
            forms.extend((name, *_form(one)) for name, one in _types(kind).items())
        _of((dict,), value)
        found = {}
        for name, convert, _, kinds in forms:
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


def schemas(*kinds: type) -> dict[str, Schema]:
    """Return the JSON schemas of records, and of the records and enums in them, by class name."""
    found: dict[str, Schema] = {}
    left = [*kinds]
    while left:
        kind: Any = left.pop()
        if kind.__name__ in found:
            continue
        schema: Schema = {"description": " ".join((kind.__doc__ or "").split())}
        if issubclass(kind, Enum):
            schema |= {"enum": [each.value for each in kind], "type": "string"}
        else:
            docs = {each.name: each.doc for each in fields_of(kind) or ()}
            properties = {
                name: {**_form(one).schema, **({"description": docs[name]} if docs[name] else {})}
                for name, one in _types(kind).items()
            }
            schema |= {"properties": properties, "required": [*properties], "type": "object"}
            left += [part for one in _types(kind).values() for part in _named_in(one)]
        found[kind.__name__] = schema
    return found


def _named_in(kind: Any) -> Iterator[type]:
    if _is_named(kind):
        yield kind
    for part in get_args(kind):
        yield from _named_in(part)
