"""Reads a config file as a Balancer, or reports every mistake in it at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from xenoovs.config.values import (
    KeyPath,
    Mark,
    Position,
    Positions,
    Remark,
    Value,
    parse_plain_scalar,
    position_of,
    render_path,
    show,
)
from xenoovs.errors import ConfigError, ConfigUnreadable, Finding, counted
from xenoovs.model.balancer import Balancer

# Bytes to text that may be YAML: size, UTF-8, and the characters YAML allows.


MAX_SIZE_BYTES = 32 * 1024 * 1024

# YAML 1.2.2, section 5.1 (c-printable), less the Unicode line breaks that libyaml takes for line ends and YAML 1.2 does
# not (section 5.4), and less the byte order mark.
_NOT_ALLOWED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def decode(text: str | bytes, *, file: str) -> str:
    """The text. Raises ConfigError with the place of the first thing that YAML text cannot hold."""
    if len(text) > MAX_SIZE_BYTES:
        _refuse("", file, f"the config is larger than {MAX_SIZE_BYTES // 2**20} MiB; is this the right file?")
    if isinstance(text, bytes):
        text = _decode_utf8(text, file)
    bad = _NOT_ALLOWED.search(text)
    if bad is None:
        return text
    before, code = text[: bad.start()], ord(bad.group())
    if code == 0xFEFF and not before:
        _refuse(before, file, "the file starts with a byte order mark (U+FEFF); save it as UTF-8 without BOM")
    return _refuse(before, file, f"the character U+{code:04X} is not allowed; is this a text file?")


def _decode_utf8(data: bytes, file: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        _refuse("", file, "the file is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        return _refuse(before, file, f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")


def _refuse(before: str, file: str, message: str) -> NoReturn:
    """`before`: the text up to the mistake."""
    *full_lines, last = re.split(r"\r\n|\r|\n", before)
    raise ConfigError([Finding(file, len(full_lines) + 1, len(last) + 1, "", message)])


# Errors of libyaml, with the cause and the remedy.


# (part of libyaml's problem text, what to do); libyaml 0.2.5, src/scanner.c and src/parser.c.
_REMEDIES = (
    ("cannot start any token", "indent with spaces, never tabs, and put text that starts with @ ` or % in quotes"),
    ("mapping values are not allowed", "put text with a colon and a space in quotes, and check the indentation above"),
    ("found unexpected ':'", "put text that ends in a colon, such as the address 2001:db8::, in quotes"),
    ("could not find expected ':'", "a key needs a colon and a space after it, as in `name: value`"),
    ("did not find expected key", "check the indentation, and the quotes and brackets above"),
    ("did not find expected '-' indicator", "list items that belong together start in one column"),
    ("did not find expected ',' or", "close the bracket, or put a comma between the items"),
    ("unexpected end of stream", "close the quotes that were opened above"),
    ("undefined alias", "aliases are not supported; write the value out"),
)


def explain_yaml_error(error: yaml.YAMLError, *, file: str) -> Finding:
    """Return one finding at the position that libyaml names."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    remedy = next((text for part, text in _REMEDIES if part in problem), "check the line and the one above it")
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Finding(file, line, column, "", f"not valid YAML: {problem}; {remedy}")


# YAML text to a tree of plain values with places, from the events of libyaml.
#
# PyYAML's own loaders are not used: four times slower on a large config, and they accept duplicate keys, aliases
# (which can blow a small text up to any size) and YAML 1.1 numbers.


MAX_DEPTH = 16
MAX_VALUES = 500_000
MAX_KEYS = 100
MAX_DUPLICATES = 100

# Compared for each of 100,000 events: comparing the exact class is ten times faster than isinstance.
_Alias, _Scalar = yaml.AliasEvent, yaml.ScalarEvent
_SequenceStart, _SequenceEnd, _MappingEnd = yaml.SequenceStartEvent, yaml.SequenceEndEvent, yaml.MappingEndEvent

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. `findings`: mistakes in spite of which it can be read (duplicate keys)."""

    root: Value
    places: Positions
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
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
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
        return Document(root, Positions(self.values, self.keys), tuple(self.findings))

    def _value(self, event: Any, path: KeyPath) -> Value:
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

    def _sequence(self, path: KeyPath) -> list[Value]:
        items: list[Value] = []
        while type(event := self.next_event()) is not _SequenceEnd:
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: KeyPath) -> dict[str, Value]:
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

    def _key(self, event: Any, path: KeyPath) -> str:
        if type(event) is not _Scalar:
            self._stop(event, path, "a key must be a plain word, as in `name: value`")
        if event.anchor is not None or event.tag is not None:
            self._refuse_decoration(event, path)
        return str(event.value)

    def _duplicate(self, event: Any, path: KeyPath) -> None:
        first = self.keys[path]
        self.findings.append(
            self._finding(event, path, f"the key stands here a second time, first in line {first.line + 1}; remove one")
        )
        if len(self.findings) >= MAX_DUPLICATES:
            raise ConfigError(self.findings)
        self._skip(path)

    def _skip(self, path: KeyPath) -> None:
        """Skip one value."""
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

    def _refuse_decoration(self, event: Any, path: KeyPath) -> None:
        if event.anchor is not None:
            self._stop(
                event, path, f"anchors (&{_name(event)}) are not supported; write the value out where it is needed"
            )
        if event.tag is not None:
            self._stop(event, path, f"tags ({show(event.tag)}) are not supported; remove it")

    def _refuse_excess(self, event: Any, path: KeyPath, *, depth: int) -> None:
        self.count += 1
        if depth > MAX_DEPTH:
            self._stop(event, path, f"lists and mappings are nested deeper than {MAX_DEPTH}; a config needs 5 levels")
        if self.count > MAX_VALUES:
            self._stop(event, path, f"the file holds more than {MAX_VALUES} values; split it over several bridges")

    def _stop(self, event: Any, path: KeyPath, message: str) -> NoReturn:
        raise ConfigError([*self.findings, self._finding(event, path, message)])

    def _finding(self, event: Any, path: KeyPath, message: str) -> Finding:
        place = position_of(event.start_mark)
        return Finding(self.file, place.line, place.column, render_path(path), message)


def _name(event: Any) -> str:
    return str(event.anchor)[:40]


MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Located:
    """A balancer with the place of each of its services, in their order, for messages of later stages."""

    balancer: Balancer
    file: str
    services: tuple[Position, ...]


def load_config(path: Path) -> Balancer:
    """Read a config file. Raises ConfigUnreadable, or ConfigError with all findings."""
    return load_located(path).balancer


def parse_config(text: str | bytes, *, file: str) -> Balancer:
    """Read a config; `file` is its name in messages. Raises ConfigError with all findings."""
    return parse_located(text, file=file).balancer


def load_located(path: Path) -> Located:
    """As load_config, with the places of services."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigUnreadable(file=str(path), reason=_reason(error)) from None
    return parse_located(data, file=str(path))


def parse_located(text: str | bytes, *, file: str) -> Located:
    """As parse_config, with the places of services."""
    document = compose(text, file=file)
    balancer = _balancer(document, file)
    places = tuple(document.places.of_value(("services", i)) for i in range(len(balancer.services)))
    return Located(balancer, file, places)


def _balancer(document: Document, file: str) -> Balancer:
    # pydantic takes a quarter of a second to import, and only commands that read a config need it.
    from xenoovs.config.build import build_balancer, check_structure
    from xenoovs.config.check import check_parts

    checked = check_structure(document.root)
    remarks = (*checked.remarks, *check_parts(checked))
    if remarks or document.findings or checked.switch is None:
        findings = {*document.findings, *_findings(remarks, document.places, file)}
        raise ConfigError(_capped(findings, omitted=checked.omitted))
    return build_balancer(checked.switch, checked.services, health=checked.health, drain=checked.drain)


def _findings(remarks: Iterable[Remark], places: Positions, file: str) -> Iterable[Finding]:
    for remark in remarks:
        path = places.nearest(remark.path)
        place = places.of_key(path) if remark.at_key else places.of_value(path)
        yield Finding(file, place.line, place.column, render_path(path), remark.message)


def _capped(findings: Iterable[Finding], *, omitted: int) -> list[Finding]:
    """Return the first findings of the file; a wrong file would otherwise fill the screen."""
    ordered = sorted(findings)
    shown, rest = ordered[:MAX_FINDINGS], ordered[MAX_FINDINGS:]
    if not rest:
        return shown
    more = f"and {counted(len(rest) + omitted, 'more mistake')}, the next one here; correct those above first"
    return [*shown, Finding(rest[0].file, rest[0].line, rest[0].column, "", more)]


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
