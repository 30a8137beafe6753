"""YAML text to a tree of plain values with places, from the events of libyaml.

PyYAML's own loaders are not used: four times slower on a large config, and they accept duplicate keys, aliases
(which can blow a small text up to any size) and YAML 1.1 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from xenoovs.config.scalar import parse_plain_scalar
from xenoovs.config.text import decode
from xenoovs.config.tree import Mark, Path, Places, Value, place_of, render_path, show
from xenoovs.config.yaml_errors import explain_yaml_error
from xenoovs.errors import ConfigError, Finding

MAX_DEPTH = 16
MAX_VALUES = 500_000
MAX_KEYS = 100
MAX_DUPLICATES = 100

# Asked for each of 100,000 events: the exact class is told ten times faster than by isinstance.
_Alias, _Scalar = yaml.AliasEvent, yaml.ScalarEvent
_SequenceStart, _SequenceEnd, _MappingEnd = yaml.SequenceStartEvent, yaml.SequenceEndEvent, yaml.MappingEndEvent

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. `findings`: mistakes that did not keep it from being read (duplicate keys)."""

    root: Value
    places: Places
    findings: tuple[Finding, ...]


def compose(text: str | bytes, *, file: str) -> Document:
    """Read one YAML document. Raises ConfigError for text that is not YAML or uses what a config may not use."""
    parser = _Loader(decode(text, file=file))
    try:
        return _Composer(parser.get_event, file).document()
    except yaml.YAMLError as error:
        raise ConfigError([explain_yaml_error(error, file=file)]) from None
    finally:
        parser.dispose()


@dataclass(slots=True)
class _Composer:
    next_event: Callable[[], Any]
    file: str
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    count: int = 0

    def document(self) -> Document:
        self.next_event()  # the start of the stream
        start = self.next_event()
        if isinstance(start, yaml.StreamEndEvent):
            self._stop(start, (), "the file is empty; start from a template with `xenoovs new`")
        root = self._value(self.next_event(), ())
        self.next_event()  # the end of the document
        after = self.next_event()
        if not isinstance(after, yaml.StreamEndEvent):
            self._stop(after, (), "a second YAML document starts here; keep one document in the file")
        return Document(root, Places(self.values, self.keys), tuple(self.findings))

    def _value(self, event: Any, path: Path) -> Value:
        self._refuse_excess(event, path, depth=len(path))
        self.values[path] = event.start_mark
        kind = type(event)
        if kind is _Alias:
            self._stop(event, path, f"aliases (*{_name(event)}) are not supported; write the value out")
        if event.anchor is not None or event.tag is not None:
            self._refuse_decoration(event, path)
        if kind is _Scalar:
            return parse_plain_scalar(event.value) if event.implicit[0] else str(event.value)
        return self._sequence(path) if kind is _SequenceStart else self._mapping(path)

    def _sequence(self, path: Path) -> list[Value]:
        items: list[Value] = []
        while type(event := self.next_event()) is not _SequenceEnd:
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        while type(event := self.next_event()) is not _MappingEnd:
            key = self._key(event, path)
            if len(pairs) >= MAX_KEYS:
                self._stop(event, path, f"one mapping holds more than {MAX_KEYS} keys; is this a xenoovs config?")
            child = (*path, key)
            if key not in pairs:
                self.keys[child] = event.start_mark
                pairs[key] = self._value(self.next_event(), child)
            else:
                self._duplicate(event, child)
        return pairs

    def _key(self, event: Any, path: Path) -> str:
        if type(event) is not _Scalar:
            self._stop(event, path, "a key must be a plain word, as in `name: value`")
        if event.anchor is not None or event.tag is not None:
            self._refuse_decoration(event, path)
        return str(event.value)

    def _duplicate(self, event: Any, path: Path) -> None:
        first = self.keys[path]
        self.findings.append(
            self._finding(event, path, f"the key stands here a second time, first in line {first.line + 1}; remove one")
        )
        if len(self.findings) >= MAX_DUPLICATES:
            raise ConfigError(self.findings)
        self._skip(path)

    def _skip(self, path: Path) -> None:
        """Past one value, without keeping anything of it."""
        depth = len(path)
        while True:
            event = self.next_event()
            self._refuse_excess(event, path, depth=depth)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth == len(path):
                return

    def _refuse_decoration(self, event: Any, path: Path) -> None:
        if event.anchor is not None:
            self._stop(
                event, path, f"anchors (&{_name(event)}) are not supported; write the value out where it is needed"
            )
        if event.tag is not None:
            self._stop(event, path, f"tags ({show(event.tag)}) are not supported; remove it")

    def _refuse_excess(self, event: Any, path: Path, *, depth: int) -> None:
        self.count += 1
        if depth > MAX_DEPTH:
            self._stop(event, path, f"lists and mappings are nested deeper than {MAX_DEPTH}; a config needs 5 levels")
        if self.count > MAX_VALUES:
            self._stop(event, path, f"the file holds more than {MAX_VALUES} values; split it over several bridges")

    def _stop(self, event: Any, path: Path, message: str) -> NoReturn:
        raise ConfigError([*self.findings, self._finding(event, path, message)])

    def _finding(self, event: Any, path: Path, message: str) -> Finding:
        place = place_of(event.start_mark)
        return Finding(self.file, place.line, place.column, render_path(path), message)


def _name(event: Any) -> str:
    return str(event.anchor)[:40]
