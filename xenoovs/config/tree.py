"""The tree of plain values a YAML text says, and where each of them stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A YAML number that is not a short integer, kept as it was written: 0.5, 1e30, .inf, .nan."""

    text: str


Value = None | bool | int | Number | str | list["Value"] | dict[str, "Value"]

_SHOWN_CHARACTERS = 60


def render_path(path: Path) -> str:
    """`services[0].backends[1].weight`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return _shorten(text.removeprefix("."))


def show(value: object) -> str:
    """A value for a message, shortened: text in quotes, numbers as they were written."""
    match value:
        case None:
            return "an empty value"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case Number():
            return _shorten(value.text)
        case list():
            return f"a list of {len(value)} {'item' if len(value) == 1 else 'items'}"
        case dict():
            return f"a mapping of {len(value)} {'key' if len(value) == 1 else 'keys'}"
        case _:
            return repr(_shorten(str(value)))


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file; line and column count from 1."""

    line: int
    column: int


class Mark(Protocol):
    """A place as libyaml tells it; line and column count from 0."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where the value, and the key before it, of each path stand."""

    values: Mapping[Path, Mark]
    keys: Mapping[Path, Mark]

    def nearest(self, path: Path) -> Path:
        """`path`, or without an index that only our own reading added (`vip: x` is read as `vip: [x]`)."""
        return path[:-1] if path and isinstance(path[-1], int) and path not in self.values else path

    def of_value(self, path: Path) -> Place:
        """Of the value; of the nearest thing around it that is there, when it is missing."""
        while path and path not in self.values:
            path = path[:-1]
        return place_of(self.values[path]) if path in self.values else Place(1, 1)

    def of_key(self, path: Path) -> Place:
        return place_of(self.keys[path]) if path in self.keys else self.of_value(path)


def place_of(mark: Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)
