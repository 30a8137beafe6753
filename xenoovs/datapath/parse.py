"""Dumps of `ovs-appctl dpctl/dump-flows` to megaflows: OVS 2.13 to 4.0, every layer, with or without `-m`.

One pass, line by line. The order of keys and statistics is free, as it differs between versions and layers; what has
no field is kept in `Megaflow.extra`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from xenoovs.datapath.match import fields_of
from xenoovs.datapath.megaflow import Key, KeyTextError, Megaflow, Offloaded, split_keys
from xenoovs.datapath.value import parse_number
from xenoovs.errors import ParseError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_REMARK = re.compile(r", (dp-[a-z0-9-]+):", re.ASCII)
_NEXT = re.compile(r"ufid:[0-9a-f]{8}-| actions:", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,20}", re.ASCII)
_USED = re.compile(r"(-?[0-9]{1,12}\.[0-9]{1,6})s", re.ASCII)
_USUAL = re.compile(
    r"(?:ufid:([^, ]+), )?([a-z_]+\([^ ]*), packets:([0-9]{1,20}), bytes:([0-9]{1,20}), used:([^, ]+)"
    r"(?:, flags:([^, ]+))?(?:, offloaded:(yes|partial))?(?:, dp:([^, ]+))?,",
    re.ASCII,
)
_HEADER = "flow-dump from "
"""What ovs-vswitchd writes above the flows of one thread of the userspace datapath (lib/dpctl.c)."""

_LONG = 4096
"""Characters. Longer text is rare, and is not kept to be found again: it would fill the memory."""

_OFFLOADED = {"yes": Offloaded.YES, "partial": Offloaded.PARTIAL}


class _ValueTextError(Exception):
    """The statistic `name` is missing, or its value is none of `expected`."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"expected {expected}")
        self.name = name
        self.expected = expected


def parse_dump(text: str | Iterable[str]) -> Iterator[Megaflow]:
    """All megaflows of a dump (the whole text, or its lines), in its order. Raises ParseError with line and column."""
    for found in scan_dump(text):
        if isinstance(found, ParseError):
            raise found
        yield found


def scan_dump(text: str | Iterable[str]) -> Iterator[Megaflow | ParseError]:
    """As `parse_dump`, but the error of a line that cannot be read (torn while flows changed) stands in its place."""
    lines = text.split("\n") if isinstance(text, str) else text
    for number, line in enumerate(lines, start=1):
        found = read_line(line, number=number)
        if found is not None:
            yield found


def read_line(line: str, *, number: int) -> Megaflow | ParseError | None:
    """One line of a dump or the error of a torn one; None: an empty line or a header."""
    line = line.strip()
    if not line or (line.startswith(_HEADER) and " actions:" not in line):
        return None
    try:
        return parse_megaflow(line, number=number)
    except ParseError as error:
        return error


def parse_megaflow(line: str, *, number: int | None = None) -> Megaflow:
    """One line of a dump. Raises ParseError with the column, and with the line where `number` is given."""
    head, found, tail = line.partition(" actions:")
    if not found:
        raise ParseError(text=line, offset=len(line), expected="' actions:'", line=number)
    try:
        actions, remarks = (_split_tail if len(tail) <= _LONG else _split_tail.__wrapped__)(tail)
    except KeyTextError as error:
        offset = len(head) + len(found) + error.offset
        raise ParseError(text=line, offset=offset, expected=error.expected, line=number) from None
    usual = _usual(head, actions, remarks)
    if usual is not None:
        return usual
    try:
        keys, statistics = _split_head(head.removesuffix(","))
        return _megaflow(keys, statistics, actions, remarks)
    except _ValueTextError as error:
        at = f", {head}".find(f", {error.name}:")
        raise ParseError(text=line, offset=len(head) if at < 0 else at, expected=error.expected, line=number) from None
    except KeyTextError as error:
        raise ParseError(text=line, offset=error.offset, expected=error.expected, line=number) from None


def _megaflow(
    keys: tuple[Key, ...], statistics: dict[str, str], actions: tuple[str, ...], remarks: tuple[tuple[str, str], ...]
) -> Megaflow:
    """Raises _ValueTextError. What has no field is kept, in its order."""
    return Megaflow(
        statistics.pop("ufid", None),
        keys,
        _count(statistics.pop("packets", None), "packets"),
        _count(statistics.pop("bytes", None), "bytes"),
        _used(statistics.pop("used", None)),
        statistics.pop("flags", None),
        _offloaded(statistics.pop("offloaded", None)),
        statistics.pop("dp", None),
        actions,
        (*statistics.items(), *remarks),
    )


def _usual(head: str, actions: tuple[str, ...], remarks: tuple[tuple[str, str], ...]) -> Megaflow | None:
    """A line in the order that Open vSwitch has used so far; None: another, to be read item by item."""
    found = _USUAL.fullmatch(head)
    if found is None:
        return None
    ufid, keys, packets, size, used, flags, offloaded, layer = found.groups()
    try:
        parsed = _parse_keys(keys, 0)
        used_s = _used(used)
    except (KeyTextError, _ValueTextError):
        return None
    known = None if offloaded is None else _OFFLOADED[offloaded]
    return Megaflow(ufid, parsed, int(packets), int(size), used_s, flags, known, layer, actions, remarks)


@lru_cache(maxsize=8192)
def _split_tail(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The actions and the remarks behind them. Raises KeyTextError for actions that end too early.

    A torn line must not be read as one that sends packets elsewhere, nor two that have lost the line break between
    them. No actions at all are written `drop` (format_odp_actions of lib/odp-util.c).
    """
    glued = _NEXT.search(text)
    if glued is not None:
        raise KeyTextError(glued.start(), "the end of the line before another megaflow")
    actions, *remarks = _REMARK.split(text)
    parts = split_actions(actions)
    if "" in parts or actions.count("(") != actions.count(")"):
        raise KeyTextError(len(actions), "the rest of the actions")
    return parts, tuple(zip(remarks[::2], remarks[1::2], strict=True))


def split_actions(text: str) -> tuple[str, ...]:
    """Actions, split at the commas that stand in no parenthesis."""
    if "(" not in text:
        return tuple(text.split(","))
    parts, depth, start = list[str](), 0, 0
    for i, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return (*parts, text[start:])


def _split_head(head: str) -> tuple[tuple[Key, ...], dict[str, str]]:
    """The keys and the statistics in front of the actions, which are divided by a comma and a blank."""
    statistics: dict[str, str] = {}
    keys: tuple[Key, ...] | None = None
    offset = 0
    for item in head.split(", "):
        name, is_statistic, value = item.partition(":")
        if not (is_statistic and _NAME.fullmatch(name)):
            if keys is not None:
                raise KeyTextError(offset, "a statistic of the form name:value")
            keys = _parse_keys(item, offset)
        elif name in statistics:
            raise KeyTextError(offset, f"'{name}' only once")
        else:
            statistics[name] = value
        offset += len(item) + 2
    if keys is None:
        raise KeyTextError(0, "the keys that the flow matches")
    return keys, statistics


def _parse_keys(text: str, offset: int) -> tuple[Key, ...]:
    flat = text[:-1].split("),")
    try:
        # Without nesting every part has one parenthesis, and parts recur from line to line: each is read once.
        if text.endswith(")") and text.count("(") == len(flat) and text.count(")") == len(flat):
            return tuple(map(_flat_key if len(text) <= _LONG else _flat_key.__wrapped__, flat))
        keys = tuple(_key(key.name, key.inner) for key in split_keys(text))
    except KeyTextError as error:
        raise KeyTextError(offset + error.offset, error.expected) from None
    except ValueError as error:
        raise KeyTextError(offset, str(error)) from None
    return keys


@lru_cache(maxsize=65536)
def _flat_key(text: str) -> Key:
    """`name(inner` with nothing nested."""
    name, _, inner = text.partition("(")
    if not (name.isascii() and name.isidentifier()):
        raise ValueError("a key of the form name(...)")
    return _key(name, inner)


def _key(name: str, inner: str) -> Key:
    """Raises ValueError where what should be a number or an address is none."""
    if name == "encap":
        # Its keys stay text; reading them once tells whether they can be read.
        for key in split_keys(inner):
            _key(key.name, key.inner)
        return Key(name, inner)
    if name == "recirc_id":
        parse_number(inner)
    return Key(name, inner, fields_of(name, inner))


def _count(text: str | None, name: str) -> int:
    if text is None or not _COUNT.fullmatch(text):
        raise _ValueTextError(name, f"'{name}:' and a number")
    return int(text)


@lru_cache(maxsize=16384)
def _used(text: str | None) -> float | None:
    if text == "never":
        return None
    found = _USED.fullmatch(text or "")
    if not found:
        raise _ValueTextError("used", "'used:never' or 'used:' and seconds")
    return float(found[1])


def _offloaded(text: str | None) -> Offloaded | None:
    if text is None:
        return None
    if text not in _OFFLOADED:
        raise _ValueTextError("offloaded", "'offloaded:yes' or 'offloaded:partial'")
    return _OFFLOADED[text]
