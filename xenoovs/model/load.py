"""Reads a config, with the files that it includes, as a Balancer, or reports every mistake in it at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from xenoovs.dataclass import dataclass, field, uncollected
from xenoovs.errors import ConfigError, ConfigUnreadable, FileUnusable, Finding, counted, first_names
from xenoovs.model.balancer import Balancer
from xenoovs.model.form import read
from xenoovs.model.include import (
    MAX_FILES,
    MAX_NESTING,
    MAX_SIZE_BYTES,
    ConfigPart,
    ConfigSources,
    JoinedConfig,
    included_paths,
    reason_of,
    services_of,
    with_defaults,
)
from xenoovs.model.values import (
    OTHER,
    KeyPath,
    Positions,
    Remark,
    Value,
    parse_plain_scalar,
    position_of,
    render_path,
    show,
    weight,
)
from xenoovs.regex import regex

# Bytes to text that may be YAML: size, UTF-8, and the characters YAML allows.


# YAML 1.2.2, section 5.1 (c-printable), less the Unicode line breaks that libyaml takes for line ends and YAML 1.2 does
# not (section 5.4), and less the byte order mark.
_NOT_ALLOWED = regex("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


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


def compose(text: str | bytes, *, file: str, count: int = 0) -> ConfigPart:
    """Read one YAML document. `count`: how many values other files of the config have. Raises ConfigError for text that
    is not YAML or uses what a config may not use."""
    decoded = decode(text, file=file)
    parser = _Loader(decoded)
    try:
        composer = _Composer(parser.get_event, file, count)
        root = composer.document()
    except yaml.YAMLError as error:
        raise ConfigError([explain_yaml_error(error, file=file)]) from None
    finally:
        parser.dispose()
    places = cache(lambda: _positions(decoded))
    return ConfigPart(file, root, places, tuple(composer.findings), composer.count)


def _positions(text: str) -> Positions:
    """Return where the values of a text stand that was composed without a mistake. It is read again for that, as most
    texts have no mistake."""
    values, keys = dict[KeyPath, yaml.Mark](), dict[KeyPath, yaml.Mark]()
    left: list[tuple[KeyPath, Any]] = [((), yaml.compose(text, Loader=_Loader))]
    while left:
        path, node = left.pop()
        values[path] = node.start_mark
        if isinstance(node, yaml.SequenceNode):
            left += [((*path, index), item) for index, item in enumerate(node.value)]
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            child = (*path, key.value)
            if child not in keys:
                keys[child] = key.start_mark
                left.append((child, value))
    return Positions(values, keys)


_NOT_BOTH = regex(r"[\\\t\r\n]")
"""What JSON and YAML read differently: escapes, and space that indents."""


def compose_json(text: str, *, file: str) -> Value:
    """Return what `compose` returns for a text that is also JSON, ten times as fast; None if it is YAML only. Raises
    ConfigError for text that YAML cannot hold."""
    decode(text, file=file)
    if _NOT_BOTH.search(text):
        return None
    try:
        return json.loads(  # type: ignore[no-any-return]
            text,
            object_pairs_hook=_mapping_of,
            parse_int=parse_plain_scalar,
            parse_float=parse_plain_scalar,
            parse_constant=_no_json,
        )
    except (ValueError, RecursionError):
        return None


def _mapping_of(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    mapping = dict(pairs)
    return mapping if len(mapping) == len(pairs) <= MAX_KEYS else _no_json("")


def _no_json(_text: str) -> NoReturn:
    raise ValueError


@dataclass(slots=True)
class _Composer:
    next_event: Callable[[], Any]
    file: str
    count: int
    path: list[str | int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def document(self) -> Value:
        self.next_event()  # the start of the stream
        start = self.next_event()
        if isinstance(start, yaml.StreamEndEvent):
            self._stop(start, "the file is empty; start from a template with `xenoovs new`")
        root = self._value(self.next_event())
        self.next_event()  # the end of the document
        after = self.next_event()
        if not isinstance(after, yaml.StreamEndEvent):
            self._stop(after, "a second YAML document starts here; keep one document in the file")
        return root

    def _value(self, event: Any) -> Value:
        self.count += 1
        # Of an alias the anchor is its name.
        if self.count > MAX_VALUES or len(self.path) > MAX_DEPTH or event.anchor is not None or event.tag is not None:
            self._refuse(event)
        if type(event) is _Scalar:
            return parse_plain_scalar(event.value) if event.implicit[0] else event.value
        self.path.append(0)
        found = self._sequence() if type(event) is _SequenceStart else self._mapping()
        self.path.pop()
        return found

    def _sequence(self) -> list[Value]:
        items: list[Value] = []
        while type(event := self.next_event()) is not _SequenceEnd:
            self.path[-1] = len(items)
            items.append(self._value(event))
        return items

    def _mapping(self) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        keys: dict[str, Any] = {}
        while type(event := self.next_event()) is not _MappingEnd:
            if type(event) is not _Scalar or event.anchor is not None or event.tag is not None or len(keys) >= MAX_KEYS:
                self._refuse_key(event)
            key = self.path[-1] = event.value
            first = keys.setdefault(key, event)
            if first is event:
                pairs[key] = self._value(self.next_event())
            else:
                self._duplicate(event, first.start_mark)
        return pairs

    def _refuse(self, event: Any) -> None:
        name = str(event.anchor)[:40]
        if len(self.path) > MAX_DEPTH:
            self._stop(event, f"lists and mappings are nested deeper than {MAX_DEPTH}; a config needs 5 levels")
        if self.count > MAX_VALUES:
            self._stop(event, f"the config holds more than {MAX_VALUES} values; split it over several bridges")
        if type(event) is _Alias:
            self._stop(event, f"aliases (*{name}) are not supported; write the value out")
        if event.anchor is not None:
            self._stop(event, f"anchors (&{name}) are not supported; write the value out where it is needed")
        if event.tag is not None:
            self._stop(event, f"tags ({show(event.tag)}) are not supported; remove it")

    def _refuse_key(self, event: Any) -> None:
        self.path.pop()  # the key before it
        if type(event) is not _Scalar:
            self._stop(event, "a key must be a plain word, as in `name: value`")
        self._refuse(event)
        self._stop(event, f"one mapping holds more than {MAX_KEYS} keys; is this a xenoovs config?")

    def _duplicate(self, event: Any, first: yaml.Mark) -> None:
        message = f"the key stands here a second time, first in line {first.line + 1}; remove one"
        self.findings.append(self._finding(event, message))
        if len(self.findings) >= MAX_DUPLICATES:
            raise ConfigError(self.findings)
        # Its value is read as another one, and forgotten.
        self._value(self.next_event())

    def _stop(self, event: Any, message: str) -> NoReturn:
        raise ConfigError([*self.findings, self._finding(event, message)])

    def _finding(self, event: Any, message: str) -> Finding:
        return Finding(self.file, *position_of(event.start_mark), render_path(tuple(self.path)), message)


MAX_FINDINGS = 100
MAX_REMARKS = 1_000

Weights = dict[str, Value]
"""By name of backend, as a file has them."""


M = TypeVar("M")


def load_config(path: Path, *, for_lab: bool = False) -> Balancer:
    """Read a config file, and those that it includes. As parse_config. Raises ConfigUnreadable, or ConfigError with all
    findings."""
    return parse_config(read_config(path), file=str(path), sources=ConfigSources(path), for_lab=for_lab)


def read_config(path: Path) -> bytes:
    """Return the start of a file, as much of it as a config may have and a byte more. Raises ConfigUnreadable."""
    try:
        # A pipe too: `xenoovs validate <(make-config)`.
        with path.open("rb") as stream:
            return stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigUnreadable(file=str(path), reason=reason_of(error)) from None


def parse_config(
    text: str | bytes, *, file: str, sources: ConfigSources | None = None, for_lab: bool = False
) -> Balancer:
    """Read a config. `file`: its name in messages. `sources`: reads what it includes; None if it must not include
    anything. `for_lab`: whether health checks need neither addresses of backends nor a device, which a lab has by
    itself. Raises ConfigError: with all findings."""
    return check_config(join_config(text, file=file, sources=sources), for_lab=for_lab)


@uncollected()
def join_config(text: str | bytes, *, file: str, sources: ConfigSources | None = None) -> JoinedConfig:
    """Return the tree of a config, unchecked. As parse_config."""
    return _Joiner(sources or ConfigSources(None), compose(text, file=file)).join()


@uncollected()
def check_config(joined: JoinedConfig, *, for_lab: bool = False, groups: Sequence[frozenset[str]] = ()) -> Balancer:
    """Return the model of a config. `for_lab`, and raises, as parse_config; `groups`: as `claims.check_between`."""
    # Only commands that read a config need the forms, and the rules between values.
    from xenoovs.model.check import check_parts
    from xenoovs.model.schema import FILE, INCLUDED, build_balancer

    config, mistakes = read(FILE, joined.root)
    balancer = None if config is None else build_balancer(config)
    remarks = [remark for remark in mistakes if not joined.is_default(remark.path)]
    if balancer is not None:
        remarks = list(check_parts(config, balancer, for_lab=for_lab, groups=groups))
    findings = {*joined.findings, *_findings(remarks[:MAX_REMARKS], joined)}
    for part in joined.included:
        root = part.root
        if isinstance(root, dict) and isinstance(root.get("services"), list):
            # They are checked with those of the other files.
            root = {**root, "services": []}
        mistakes = read(INCLUDED, root)[1]
        findings.update(part.finding(each.path, each.message, at_key=each.at_key) for each in mistakes[:MAX_REMARKS])
    if findings or balancer is None:
        raise ConfigError(_capped(findings, omitted=max(len(remarks) - MAX_REMARKS, 0)))
    return balancer


def load_form(path: Path, form: type[M], check: Callable[[M], Iterable[Remark]] = lambda _values: ()) -> M:
    """Read another YAML or JSON file than a config, with line and column of every mistake. `form`: what it has to be:
    the fields with a `Key`. `check`: returns the mistakes between values that have the right form. Raises FileUnusable:
    it cannot be read; ConfigError: with all findings."""
    try:
        data = ConfigSources(path).read(path)
    except ConfigUnreadable as error:
        raise FileUnusable(file=str(path), reason=f"it cannot be read: {error.reason}") from None
    part = compose(data, file=str(path))
    values: M | None
    values, remarks = read(form, part.root)
    remarks = remarks if values is None else list(check(values))
    findings = {*part.findings, *(part.finding(each.path, each.message, at_key=each.at_key) for each in remarks)}
    if values is None or findings:
        raise ConfigError(_capped(findings, omitted=0))
    return values


class _Joiner:
    """Reads the included files, depth first."""

    def __init__(self, sources: ConfigSources, main: ConfigPart) -> None:
        self._sources = sources
        self._joined = JoinedConfig(main.root, main, findings=[*main.findings])
        self._services: list[Value] = []
        self._seen: dict[Path, str] = {}
        self._weights: dict[Path, Weights | None] = {}
        self._values = main.count

    def join(self) -> JoinedConfig:
        main, root, path = self._joined.main, self._joined.root, self._sources.main
        if isinstance(root, dict):
            chain = () if path is None else (path.resolve(),)
            self._seen |= dict.fromkeys(chain, main.file)
            self._add(main, root, {}, chain)
            if isinstance(root.get("services"), list) or ("services" not in root and "include" in root):
                self._joined.root = {**root, "services": self._services}
        return self._joined

    def _add(self, part: ConfigPart, root: dict[str, Value], outer: Value, chain: tuple[Path, ...]) -> None:
        defaults = with_defaults(root.get("defaults", {}), outer)
        for index, service in enumerate(services_of(root, defaults)):
            self._services.append(self._weighted(part, index, service))
            self._joined.origins.append((part, index))
        for path, text in included_paths(root):
            if self._sources.main is None:
                self._refuse(part, path, "a config that is no file includes none; name the config by its path")
                continue
            # Relative to the file that names it; a path that is absolute stays so.
            found = Path(part.file).parent / text
            for file in self._files(part, path, found):
                self._include(part, path, file, defaults, chain)

    def _weighted(self, part: ConfigPart, index: int, service: Value) -> Value:
        """Return a service with the weights of the file that its `weights` names. A backend that this file lacks needs
        a weight of its own."""
        backends = service.get("backends") if isinstance(service, dict) else None
        if not isinstance(service, dict) or "weights" not in service or not isinstance(backends, list):
            return service
        path, named = ("services", index), service["weights"]
        file = named.get("from") if isinstance(named, dict) else None
        weights = self._named_weights(part, (*path, "weights", "from"), file) if isinstance(file, str) else None
        if weights is None:
            # That no backend has a weight follows from the one mistake.
            return {
                **service,
                "backends": [{**each, "weight": 1} if isinstance(each, dict) else each for each in backends],
            }
        weighted, unused = list[Value](), {name for name, value in weights.items() if value != 0}
        for number, backend in enumerate(backends):
            here = (*path, "backends", number)
            has_own = (*here, "weight") in part.places.values
            name = backend.get("name") if isinstance(backend, dict) else None
            if isinstance(backend, dict) and isinstance(name, str) and (name in weights or not has_own):
                if has_own:
                    self._refuse(part, (*here, "weight"), f"{file} has a weight of {name} too; remove one of them")
                elif name not in weights:
                    lacking = f"{name} has no weight in {file}, which has {first_names(sorted(weights))}"
                    self._refuse(part, here, f"{lacking}; add `weight:` here or there")
                unused.discard(name)
                weighted.append({**backend, "weight": weights.get(name, 1)})
            else:
                weighted.append(backend)
        for name in sorted(unused):
            message = f"{file} has a weight of {name}, which is no backend here; add it, or give it the weight 0 there"
            self._refuse(part, (*path, "weights", "from"), message)
        return {**service, "backends": weighted}

    def _named_weights(self, part: ConfigPart, path: KeyPath, name: str) -> Weights | None:
        """Return the weights of a file; None if there is a mistake, which is reported."""
        if self._sources.main is None:
            self._refuse(part, path, "a config that is no file takes no weights from one; name the config by its path")
            return None
        file = Path(part.file).parent / name
        if file not in self._weights:
            found = None if "\0" in name else self._read(part, path, file)
            self._weights[file] = None if found is None else self._checked_weights(found)
        return self._weights[file]

    def _checked_weights(self, inner: ConfigPart) -> Weights | None:
        """Return the weights by name of backend; of other keys the file may have any."""
        listed = inner.root.get("weights") if isinstance(inner.root, dict) else None
        if not isinstance(listed, dict) or not listed:
            self._refuse(inner, ("weights",), 'it has no weights; write such as {"weights": {"fips2": 3, "fips3": 1}}')
            return None
        weights = Weights()
        for name, value in listed.items():
            try:
                weight(value)
                weights[name] = value
            except ValueError as error:
                self._refuse(inner, ("weights", name), str(error))
                weights[name] = 1
        return weights

    def _files(self, part: ConfigPart, path: KeyPath, found: Path) -> list[Path]:
        try:
            return self._sources.files_in(found) if found.is_dir() else [found]
        except ConfigUnreadable as error:
            self._refuse(part, path, f"{error.file} cannot be read: {error.reason}")
            return []

    def _include(self, part: ConfigPart, path: KeyPath, file: Path, defaults: Value, chain: tuple[Path, ...]) -> None:
        real = file.resolve()
        if real in chain:
            self._refuse(part, path, f"{file} includes itself, directly or through other files; remove it here")
        elif real in self._seen:
            self._refuse(part, path, f"{file} is included already, by {self._seen[real]}; remove one")
        elif len(chain) > MAX_NESTING:
            self._refuse(part, path, f"files are included more than {MAX_NESTING} deep; include {file} further up")
        elif len(self._seen) > MAX_FILES:
            self._refuse(part, path, f"more than {MAX_FILES} files are included; join some of them")
        else:
            self._seen[real] = part.file
            if (inner := self._read(part, path, file)) is not None:
                self._joined.included.append(inner)
                if isinstance(inner.root, dict):
                    self._add(inner, inner.root, defaults, (*chain, real))

    def _read(self, part: ConfigPart, path: KeyPath, file: Path) -> ConfigPart | None:
        """Return another file, which `part` names at `path`; None if there is a mistake, which is reported."""
        try:
            found = compose(self._sources.read(file), file=str(file), count=self._values)
        except ConfigUnreadable as error:
            self._refuse(part, path, f"{file} cannot be read: {error.reason}")
        except ConfigError as error:
            self._joined.findings.extend(error.findings)
        else:
            self._values = found.count
            self._joined.findings.extend(found.findings)
            return found
        return None

    def _refuse(self, part: ConfigPart, path: KeyPath, message: str) -> None:
        self._joined.findings.append(part.finding(path, message))


def _findings(remarks: Iterable[Remark], joined: JoinedConfig) -> Iterable[Finding]:
    for remark in remarks:
        part, path = joined.locate(remark.path)
        other = "" if remark.other is None else joined.render(remark.other, beside=part)
        yield part.finding(path, remark.message.replace(OTHER, other), at_key=remark.at_key)


def _capped(findings: Iterable[Finding], *, omitted: int) -> list[Finding]:
    """Return the first findings of the file; a wrong file would otherwise fill the screen."""
    ordered = sorted(findings)
    shown, rest = ordered[:MAX_FINDINGS], ordered[MAX_FINDINGS:]
    if not rest:
        return shown
    more = f"and {counted(len(rest) + omitted, 'more mistake')}, the next one here; correct those above first"
    return [*shown, Finding(rest[0].file, rest[0].line, rest[0].column, "", more)]
