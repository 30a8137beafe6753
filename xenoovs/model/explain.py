"""Every key of the config, from its JSON Schema: what `xenoovs explain` and the reference show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from xenoovs.dataclass import dataclass, replace
from xenoovs.model.schema import json_schema


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `path`: where it is written: `health.max_down`, `services.backends.mac`. `kind`: what may be written, in
    words. `default`: as YAML has it; empty if none. `sections`: names of the mappings, one of which is its value or
    each item of it; none: the value is no mapping."""

    path: str
    kind: str
    meaning: str
    default: str = ""
    is_required: bool = False
    examples: tuple[object, ...] = ()
    sections: tuple[str, ...] = ()

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
        yield replace(key, path=path, meaning=key.meaning or " ".join(by_name[name].meaning for name in key.sections))
        inside = [each for name in key.sections for each in _below(f"{path}.", by_name[name], by_name)]
        yield from inside if len(key.sections) == 1 else _merged(inside, key.sections)


def _merged(keys: list[ConfigKey], forms: tuple[str, ...]) -> Iterator[ConfigKey]:
    """Yield each path once: a key that several forms have means what each of them says."""
    by_path: dict[str, list[ConfigKey]] = {}
    for key in keys:
        by_path.setdefault(key.path, []).append(key)
    for same in by_path.values():
        first = same[0]
        yield replace(
            first,
            kind=" or ".join(dict.fromkeys(key.kind for key in same)),
            meaning=" ".join(dict.fromkeys(key.meaning for key in same)),
            is_required=len(same) == len(forms) and all(key.is_required for key in same),
            examples=tuple(example for key in same for example in key.examples),
        )


def _section(name: str, definition: dict[str, Any]) -> ConfigSection:
    # Of the file: what the first one has to have.
    required = definition.get("required") or definition.get("then", {}).get("required", [])
    keys = []
    for key, value in definition["properties"].items():
        default, examples = value.get("default"), tuple(value.get("examples", ()))
        shown = "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
        meaning, is_required = value.get("description", ""), key in required
        keys.append(ConfigKey(key, kind_of(value), meaning, shown, is_required, examples, _sections_of(value)))
    return ConfigSection(name, definition.get("description", ""), tuple(keys))


def _section_name(definition: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", definition.removesuffix("Config")).lower()


def _sections_of(value: dict[str, Any]) -> tuple[str, ...]:
    item = value.get("items", value)
    references = (choice.get("$ref") for choice in item.get("oneOf", [item]))
    return tuple(_section_name(reference.rpartition("/")[2]) for reference in references if reference)


def kind_of(value: dict[str, Any]) -> str:
    """Return what a schema allows, in words."""
    if "$ref" in value or "oneOf" in value:
        return " or ".join(_sections_of(value))
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
