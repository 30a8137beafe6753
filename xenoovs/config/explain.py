"""Every key of the config, from its JSON Schema: what `xenoovs explain` and the reference show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from xenoovs.config.schema import json_schema


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key.

    Attributes:
        path: Where it is written: `health.max_down`, `services.backends.mac`.
        kind: What may be written, in words.
        default: As YAML has it; empty: none.
        section: Name of the mapping that is its value, or each item of it; empty: the value is no mapping.
    """

    path: str
    kind: str
    meaning: str
    default: str = ""
    is_required: bool = False
    examples: tuple[object, ...] = ()
    section: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class ConfigSection:
    """A mapping of the config. name: as in the reference; `file` is the whole file."""

    name: str
    meaning: str
    keys: tuple[ConfigKey, ...]


@cache
def sections() -> tuple[ConfigSection, ...]:
    """Return all sections, the whole file first, then from the outside in."""
    schema = json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    inner = [_section(_section_name(name), definition) for name, definition in reversed(definitions.items())]
    return (_section("file", schema), *inner)


@cache
def all_keys() -> tuple[ConfigKey, ...]:
    """Return every key by its full path, each before those inside it."""
    by_name = {section.name: section for section in sections()}
    return tuple(_below("", by_name["file"], by_name))


def _below(prefix: str, section: ConfigSection, by_name: dict[str, ConfigSection]) -> Iterator[ConfigKey]:
    for key in section.keys:
        path = f"{prefix}{key.name}"
        meaning = key.meaning or (by_name[key.section].meaning if key.section else "")
        yield ConfigKey(path, key.kind, meaning, key.default, key.is_required, key.examples, key.section)
        if key.section:
            yield from _below(f"{path}.", by_name[key.section], by_name)


def _section(name: str, definition: dict[str, Any]) -> ConfigSection:
    # Of the file: what the first one has to have.
    required = definition.get("required") or definition.get("then", {}).get("required", [])
    keys = (
        ConfigKey(
            key,
            kind_of(value),
            value.get("description", ""),
            _default(value.get("default")),
            key in required,
            tuple(value.get("examples", ())),
            _section_of(value),
        )
        for key, value in definition["properties"].items()
    )
    return ConfigSection(name, definition.get("description", ""), tuple(keys))


def _section_name(definition: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", definition.removesuffix("Config")).lower()


def _section_of(value: dict[str, Any]) -> str:
    reference = value.get("$ref") or value.get("items", {}).get("$ref", "")
    return _section_name(reference.rpartition("/")[2])


def kind_of(value: dict[str, Any]) -> str:
    """Return what a schema allows, in words."""
    if "$ref" in value:
        return _section_of(value)
    if "x-kind" in value:
        return str(value["x-kind"])
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(kind_of(choice) for choice in value["anyOf"]))
    if "enum" in value:
        return ", ".join(map(str, value["enum"]))
    if "const" in value:
        return str(value["const"])
    if "format" in value:
        return str(value["format"])
    if value.get("type") == "array":
        return f"list of {kind_of(value['items'])}"
    bounds = [str(value[bound]) for bound in ("minimum", "exclusiveMinimum", "maximum") if bound in value]
    return f"{value.get('type', 'value')}{' ' + '..'.join(bounds) if bounds else ''}"


def _default(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
