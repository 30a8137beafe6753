"""The form of a mapping in a config, made of the part of the model that it becomes: reads it, writes it, describes it.

A form is made when a file first has its mapping.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property
from inspect import cleandoc
from typing import Any, TypeVar

from xenoovs.dataclass import MISSING, dataclass, dataclass_transform, field, fields, replace
from xenoovs.errors import did_you_mean
from xenoovs.model.values import MAX_ITEMS, Remark, Value, choice, repeated, show

T = TypeVar("T")


@dataclass(slots=True)
class Key:
    """How a field of the model is written in a config: the form of the file is made of it. The docstring of the model
    has its meaning, for `explain`, the JSON Schema and the reference: a line `field: text`.

    `parser`: reads the value: a `Parser`, a list of `model.form`, an enumeration of words, or the class that a mapping
    becomes. `name`: of the key; empty for that of the field, without the unit `_ms` or `_us`. `default`: what stands
    for a key that is left out; MISSING if it is required. `elsewhere`: why this file may not have the key, which others
    have. `may_be_default`: whether a required key may be in `defaults`, so that editors do not ask for it. `is_unsaid`:
    whether it is left out of what we write at its default, as most have no such thing. `field`: of the model; set by
    the form, with what reads and writes it."""

    parser: Any
    examples: tuple[object, ...]
    default: Any
    name: str = ""
    elsewhere: str = ""
    may_be_default: bool = False
    is_unsaid: bool = False
    field: str = ""
    parse: Callable[[object], Any] = str
    write: Callable[[Any], Any] = str


def entry(
    parser: Any,
    *examples: object,
    default: Any = MISSING,
    factory: Any = MISSING,
    kw_only: Any = MISSING,
    absent: Any = MISSING,
    **more: Any,
) -> Any:
    """Return a field that is a key of a config. `absent`: what stands for a key that is left out, where the field has
    no default. `more`: as of `Key`."""
    usual = absent if absent is not MISSING else default if factory is MISSING else factory()
    metadata = {"key": Key(parser, examples, usual, **more)}
    return field(default=default, default_factory=factory, kw_only=kw_only, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(entry, field))
def keyed(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a frozen dataclass with slots of a class whose fields are keys."""
    return dataclass(frozen=True, slots=True, kw_only=kw_only)


class Mistakes(ValueError):
    """What is wrong inside of a mapping or a list; paths count from there."""

    def __init__(self, remarks: list[Remark]) -> None:
        super().__init__()
        self.remarks = remarks


def _inside(step: str | int, error: ValueError) -> list[Remark]:
    """Return the mistakes of a value, as those of the mapping or list that has it at `step`."""
    if isinstance(error, Mistakes):
        return [replace(remark, path=(step, *remark.path)) for remark in error.remarks]
    return [Remark((step,), str(error))]


class Form:
    """What a mapping may have. Costs nothing until it is used.

    `model`: what it becomes; the fields with a `Key` are its keys. `is_partial`: its keys may all be left out, and
    those that are there are all that is read. `without`: keys of the model that it lacks. `more`: keys that it has
    besides, by field. `elsewhere`: keys that only other files have, each with what to write instead.
    """

    def __init__(
        self,
        model: type[Any],
        *,
        name: str = "",
        meaning: str = "",
        is_partial: bool = False,
        without: Iterable[str] = (),
        more: dict[str, Key] | None = None,
        elsewhere: dict[str, str] | None = None,
    ) -> None:
        self.model, self.is_partial = model, is_partial
        self.name = f"{name or model.__name__.removesuffix('Form')}Config"
        self._meaning = meaning
        self._without, self._more, self._elsewhere = without, more or {}, elsewhere or {}

    @cached_property
    def keys(self) -> dict[str, Key]:
        """The keys by name."""
        found = {each.name: each.metadata["key"] for each in fields(self.model) if "key" in each.metadata} | self._more
        for name, key in found.items():
            reader = reader_of(key.parser)
            key.field, key.parse, key.write = name, reader.parse, reader.write
            key.name = key.name or name.removesuffix("_ms").removesuffix("_us")
        return {key.name: key for key in found.values() if key.name not in self._without}

    @cached_property
    def refused(self) -> dict[str, str]:
        """The keys that only other files have, each with what to write instead."""
        return {key.name: key.elsewhere for key in self.keys.values() if key.elsewhere} | self._elsewhere

    @cached_property
    def _known(self) -> dict[str, Key]:
        return {name: key for name, key in self.keys.items() if name not in self.refused}

    @cached_property
    def _required(self) -> dict[str, Key]:
        return {name: key for name, key in self.keys.items() if key.default is MISSING and not self.is_partial}

    @cached_property
    def _absent(self) -> dict[str, Any]:
        """What fields have whose key is left out, where the model does not say it."""
        given = {each.name for each in fields(self.model) if each.default is MISSING is each.default_factory}
        found = () if self.is_partial else self.keys.values()
        return {key.field: key.default for key in found if key.field in given and key.default is not MISSING}

    def parse(self, tree: object) -> Any:
        """Return what a mapping means: the model, or of a partial form a mapping of its fields. Raises Mistakes: all
        that are in it."""
        if not isinstance(tree, dict):
            raise Mistakes(
                [Remark((), f"{show(tree)} is not a mapping; write keys and values here: {', '.join(self._known)}")]
            )
        values, known = dict(self._absent), self._known
        wrong: list[Remark] = []
        for name, value in tree.items():
            if (key := known.get(name)) is None:
                wrong.append(Remark((name,), self._unknown(name), at_key=True))
                continue
            try:
                values[key.field] = key.parse(value)
            except ValueError as error:
                wrong += _inside(name, error)
        missing = [key for key in self._required if key not in tree]
        wrong += [Remark((key,), f"this key is required; add `{key}:` here") for key in missing]
        if wrong:
            raise Mistakes(wrong)
        return values if self.is_partial else self.model(**values)

    def _unknown(self, key: str) -> str:
        if key in self.refused:
            return self.refused[key]
        guess = did_you_mean(key, self._known, "did you mean {}?")
        return f"unknown key; {guess or 'known keys: ' + ', '.join(self._known)}"

    def write(self, part: object, **others: object) -> Any:
        """Return the tree of a model, without keys that have no value. `others`: fields that `part` lacks or has in
        another form."""
        tree: dict[str, Value] = {}
        for name, key in self._known.items():
            value = others.pop(key.field) if key.field in others else getattr(part, key.field, None)
            if value is not None and not (key.is_unsaid and value == key.default):
                written = key.write(value)
                if written is not None and written != [] and written != {}:
                    tree[name] = written
        if others:
            raise TypeError(f"{self.name} has no {', '.join(others)}")
        return tree

    def describe(self, described: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema of the form; add those of the forms inside of it to `described`, by name."""
        own, *of_keys = re.split(r"\n(?=\w+: )", cleandoc(self.model.__doc__ or ""))
        meanings = {field: " ".join(text.split()) for field, _, text in (each.partition(": ") for each in of_keys)}
        keys = {name: self._describe(key, meanings.get(key.field), described) for name, key in self.keys.items()}
        required = [name for name, key in self._required.items() if not key.may_be_default]
        form: dict[str, Any] = {
            "additionalProperties": False,
            "description": self._meaning or own.rstrip(),
            "properties": keys,
        }
        return {**form, **({"required": required} if required else {}), "type": "object"}

    def _describe(self, key: Key, meaning: str | None, described: dict[str, Any]) -> dict[str, Any]:
        schema = dict(schema_of(key.parser, described))
        if meaning:
            schema["description"] = meaning
        if key.examples:
            schema["examples"] = list(key.examples)
        # What `defaults` lack has no value there.
        is_open = self.is_partial and (key.examples or self._without)
        if "$ref" not in schema and key.default is not MISSING and not is_open:
            default = key.write(key.default)
            if default is not None and default != []:
                schema["default"] = default
        return dict(sorted(schema.items()))


@cache
def form_of(model: type[Any], *, is_partial: bool = False) -> Form:
    """Return the form of a part of the model. As `Form`."""
    return Form(model, is_partial=is_partial)


def reader_of(parser: Any) -> Any:
    """Return what reads, writes and describes what the parser of a `Key` reads: of a part of the model its form."""
    if isinstance(parser, type):
        return choice(parser) if issubclass(parser, Enum) else form_of(parser)  # type: ignore[arg-type]
    return parser


def read(form: Any, tree: Value) -> tuple[Any, list[Remark]]:
    """Return what a tree means; None, with the mistakes, if it has not this form. form: also a parser of a `Key`."""
    try:
        return reader_of(form).parse(tree), []
    except ValueError as error:
        return None, error.remarks if isinstance(error, Mistakes) else [Remark((), str(error))]


def schema_of(parser: Any, described: dict[str, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema of what a parser reads. described: as of `Form.describe`."""
    form = reader_of(parser)
    if isinstance(form, Form):
        if form.name not in described:
            described[form.name] = {}
            described[form.name] = form.describe(described)
        return {"$ref": f"#/$defs/{form.name}"}
    if hasattr(form, "describe"):
        return form.describe(described)  # type: ignore[no-any-return]
    schema: Mapping[str, Any] = form.schema
    return schema


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of values or mappings. `item`: what reads one. `may_be_one`: whether a list of one may be written as its
    only item. `kind`: what the reference calls it; empty: as its items. `is_set`: whether each may be there once."""

    item: Any
    least: int = 0
    most: int = MAX_ITEMS
    may_be_one: bool = False
    kind: str = ""
    is_set: bool = False

    def parse(self, tree: object) -> tuple[Any, ...]:
        """Return the items. Raises Mistakes with all that are wrong."""
        if self.may_be_one and tree in (None, []):
            empty = "an empty list" if tree == [] else show(tree)
            raise ValueError(f"{empty} says nothing; write a value or, where the key is optional, leave it out")
        if not self.may_be_one and not isinstance(tree, list):
            raise ValueError(f"{show(tree)} is not a list; write items that start with a dash")
        items = tree if isinstance(tree, list) else [tree]
        if len(items) < self.least:
            raise ValueError(f"{show(items) if items else 'the list is empty'}; write at least {self.least}")
        if len(items) > self.most:
            raise ValueError(f"{len(items)} items are more than the {self.most} that are supported; split them")
        parse, found, wrong = reader_of(self.item).parse, list[Any](), list[Remark]()
        for index, item in enumerate(items):
            try:
                found.append(parse(item))
            except ValueError as error:
                wrong += _inside(index, error)
        if self.is_set and not wrong:
            wrong = [Remark((index,), f"{found[index]} is there twice; remove one") for index, _ in repeated(found)]
        if wrong:
            raise Mistakes(wrong)
        return tuple(found)

    def write(self, items: Iterable[object]) -> Value:
        return [*map(reader_of(self.item).write, items)]

    def describe(self, described: dict[str, Any]) -> dict[str, Any]:
        item = dict(schema_of(self.item, described))
        if self.may_be_one:
            kind = {"x-kind": self.kind} if self.kind else {}
            return {"anyOf": [item, {"items": item, "maxItems": self.most, "minItems": 1, "type": "array"}], **kind}
        bounds = {"maxItems": self.most, **({"minItems": self.least} if self.least else {})}
        return dict(sorted({"items": item, "type": "array", **bounds}.items()))
