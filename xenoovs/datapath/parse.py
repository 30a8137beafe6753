"""Parses dumps of `ovs-appctl dpctl/dump-flows`: OVS 2.13 to 4.0, every layer, with or without `-m`.

Keys and statistics may come in any order, as it depends on version and layer. `Megaflow.extra` has what has no field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from xenoovs.datapath.megaflow import (
    NO_VALUES,
    Key,
    KeyTextError,
    Megaflow,
    Offloaded,
    fields_of,
    parse_number,
    split_keys,
)
from xenoovs.datapath.outer import check_action, parse_outer
from xenoovs.errors import ParseError, counted
from xenoovs.regex import ASCII, regex

# Wrapped lines, as from a mail or a ticket, are joined again. Open vSwitch writes blanks only behind the ufid and
# between the items after the keys, so the beginning of the next line shows what was at the break.


_HEADER = "flow-dump from "
_KEYS = ("recirc_id(", "tunnel(", "in_port(", "skb_priority(", "ct_state(", "eth(")
"""Beginnings of a line without a ufid (odp_flow_format of lib/odp-util.c; the first key depends on the version)."""
_ITEM = regex(r"(?:packets|bytes|used|flags|offloaded|dp|actions|dp-[a-z-]+):")
_ONLY_UFID = regex(r"ufid:[0-9a-f-]+,")

_LONGEST = 1 << 16
"""Characters. Longer lines are not joined any further."""


def rejoin_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a dump with wrapped ones joined. Empty lines replace joined ones, so line numbers stay."""
    held: str | None = None
    joined = 0
    for raw in lines:
        line = raw.strip()
        if held is not None and line and len(held) < _LONGEST and not _starts(line, held):
            held = _join(held, line)
            joined += 1
            continue
        if held is not None:
            yield held
            yield from [""] * joined
        held, joined = line, 0
        if not line or line.startswith(_HEADER):
            yield line
            held = None
    if held is not None:
        yield held
        yield from [""] * joined


def _starts(line: str, held: str) -> bool:
    """Return whether a line begins a new item instead of continuing `held`."""
    if line.startswith(("ufid:", _HEADER)) or not held.startswith(("ufid:", *_KEYS)):
        return True
    # Keys occur in actions too, as in set(eth(...)), where a parenthesis is open.
    return "actions:" in held and line.startswith(_KEYS) and held.count("(") == held.count(")")


def _join(left: str, right: str) -> str:
    is_item = left.endswith(",") and (_ITEM.match(right) or _ONLY_UFID.fullmatch(left))
    return f"{left} {right}" if is_item else f"{left}{right}"


_NAME = regex(r"[A-Za-z][A-Za-z0-9_-]*", ASCII)
_REMARK = regex(r", (dp-[a-z0-9-]+):", ASCII)
_NEXT = regex(r"ufid:[0-9a-f]{8}-| actions:", ASCII)
_COUNT = regex(r"[0-9]{1,20}", ASCII)
_USED = regex(r"(-?[0-9]{1,12}\.[0-9]{1,6})s", ASCII)
_BREAK = regex(r", |(?<=[0-9]),(?=used:)", ASCII)
"""Between statistics; Open vSwitch of a vendor omits the blank in `dpe_bytes:510,used:1.0s`."""
_USUAL = regex(
    r"(?:ufid:([^, ]+), )?([a-z_]+\([^ ]*), packets:([0-9]{1,20}), bytes:([0-9]{1,20}), used:([^, ]+)"
    r"(?:, flags:([^, ]+))?(?:, offloaded:(yes|partial))?(?:, dp:([^, ]+))?,",
    ASCII,
)

_LONG = 4096
"""Characters. Longer text is not cached, as it would fill the memory."""

_OFFLOADED = {"yes": Offloaded.YES, "partial": Offloaded.PARTIAL}


class _ValueTextError(Exception):
    """The statistic `name` is missing, or its value is not as expected."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"expected {expected}")
        self.name = name
        self.expected = expected


def parse_dump(text: str | Iterable[str]) -> Iterator[Megaflow]:
    """Yield the megaflows of a dump (text or lines), in order. Raises ParseError with line and column."""
    for found in scan_dump(text):
        if isinstance(found, ParseError):
            raise found
        yield found


def scan_dump(text: str | Iterable[str]) -> Iterator[Megaflow | ParseError]:
    """Do as `parse_dump`, but yield the error of an unreadable line, as when flows changed, in its place."""
    lines = text.split("\n") if isinstance(text, str) else text
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if line and (not line.startswith(_HEADER) or " actions:" in line):
            try:
                yield parse_megaflow(line, number=number)
            except ParseError as error:
                yield error


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
    """Return a megaflow; statistics without a field go to `extra`, in order. Raises _ValueTextError."""
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
    """Parse a line in the usual order of Open vSwitch; None for another order, which is parsed item by item."""
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
    """Return the actions and the remarks behind them. Raises KeyTextError for incomplete actions.

    A line that is cut off, or two lines without their line break, must not pass for one that sends packets elsewhere.
    A megaflow without actions has `drop` (format_odp_actions of lib/odp-util.c).
    """
    glued = _NEXT.search(text)
    if glued is not None:
        raise KeyTextError(glued.start(), "the end of the line before another megaflow")
    actions, *remarks = _REMARK.split(text)
    parts = split_actions(actions)
    if "" in parts or actions.count("(") != actions.count(")"):
        raise KeyTextError(len(actions), "the rest of the actions")
    if "tunnel(" in actions or "tnl_" in actions:
        _check_tunnels(parts)
    return parts, tuple(zip(remarks[::2], remarks[1::2], strict=True))


def _check_tunnels(actions: tuple[str, ...]) -> None:
    offset = 0
    for action in actions:
        try:
            check_action(action)
        except KeyTextError as error:
            raise KeyTextError(offset + error.offset, error.expected) from None
        offset += len(action) + 1


def split_actions(text: str) -> tuple[str, ...]:
    """Split actions at commas outside parentheses."""
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
    """Return the keys and the statistics before the actions, which are separated by comma and blank."""
    statistics: dict[str, str] = {}
    keys: tuple[Key, ...] | None = None
    start = offset = 0
    for item in _BREAK.split(head):
        offset = head.index(item, start)
        start = offset + len(item)
        name, is_statistic, value = item.partition(":")
        if not (is_statistic and _NAME.fullmatch(name)):
            if keys is not None:
                raise KeyTextError(offset, "a statistic of the form name:value")
            keys = _parse_keys(item, offset)
        elif name in statistics:
            raise KeyTextError(offset, f"'{name}' only once")
        else:
            statistics[name] = value
    if keys is None:
        raise KeyTextError(0, "the keys that the flow matches")
    return keys, statistics


def _parse_keys(text: str, offset: int) -> tuple[Key, ...]:
    flat = text[:-1].split("),")
    # Without nesting, every part has one parenthesis. Parts recur from line to line, so the cache reads each once.
    if text.endswith(")") and text.count("(") == len(flat) and text.count(")") == len(flat):
        with suppress(ValueError):
            return tuple(map(_flat_key if len(text) <= _LONG else _flat_key.__wrapped__, flat))
    try:
        keys, start = list[Key](), 0
        for key in split_keys(text):
            start += len(key.name) + 1
            keys.append(_key_at(start, key))
            start += len(key.inner) + 2
    except KeyTextError as error:
        raise KeyTextError(offset + error.offset, error.expected) from None
    return tuple(keys)


def _key_at(offset: int, key: Key) -> Key:
    """Return a key with its fields. `offset`: of the text inside."""
    try:
        return _key(key.name, key.inner)
    except KeyTextError as error:
        raise KeyTextError(offset + error.offset, error.expected) from None
    except ValueError as error:
        raise KeyTextError(offset, str(error)) from None


@lru_cache(maxsize=65536)
def _flat_key(text: str) -> Key:
    """Parse `name(inner` without nesting."""
    name, _, inner = text.partition("(")
    if not (name.isascii() and name.isidentifier()):
        raise ValueError("a key of the form name(...)")
    return _key(name, inner)


def _key(name: str, inner: str) -> Key:
    """Return a key. Raises ValueError for a bad number or address."""
    if name == "encap":
        # Its keys stay text; parsing them once validates them.
        for key in split_keys(inner):
            _key(key.name, key.inner)
        return Key(name, inner)
    if name == "tunnel":
        # It stays text too: `parse_outer` has read it, and caches it.
        parse_outer(inner)
        return Key(name, inner, {})
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


# Newer forks add `dp-offload-info:` and the like; `dp-extra-info:` is about miniflows, not about offload.
_REASON = regex(r", dp-(?!extra)[a-z-]+-info:(.+)$")
_PMD = regex(r"flow-dump from pmd on cpu core: ([0-9]{1,9})", ASCII)
_TAG = regex(r"\bvlan\((vid=([0-9]{1,4})[^)]*)\)", ASCII)
"""Open vSwitch prints this for a rule of traffic control that matches the EtherType of the tag alone (lib/tc.c)."""
_TWO_TAGS = regex(r"encap\(eth_type\(0x(?:8100|88a8)\b")
_VENDOR = ", dpe_packets:"
_MAX_REASONS_SHOWN = 5
_MAX_COUNTED = 1000


MAYBE_FILTERED = (
    "every megaflow of this dump is offloaded; if it was made with type=offloaded or a filter, it lacks "
    "megaflows in software: make it with `ovs-appctl dpctl/dump-flows -m`"
)


@dataclass(slots=True)
class Hints:
    """Collects remarks from lines on their way to the parser. `cores`: CPU cores of the PMD threads in the dump.
    `has_vendor_counters`: whether a vendor's Open vSwitch added counters of its own. `tags`: what megaflows of tagged
    packets match of the tag, as text, with the number of megaflows, but for the `vlans` of services. `double_tagged`:
    megaflows of frames with two tags."""

    megaflows: int = 0
    offloaded: int = 0
    cores: list[int] = field(default_factory=list)
    dummies: int = 0
    has_vendor_counters: bool = False
    tags: dict[str, int] = field(default_factory=dict)
    double_tagged: int = 0
    vlans: frozenset[int] = frozenset()
    reasons: Counter[str] = field(default_factory=Counter)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if " actions:" in line or ",actions:" in line:
                self.megaflows += 1
                self.offloaded += ", offloaded:yes" in line
                self.dummies += ", dp:dummy" in line
                self.has_vendor_counters = self.has_vendor_counters or _VENDOR in line
                if "encap(" in line and _TWO_TAGS.search(line):
                    self.double_tagged += 1
                elif "vlan(vid=" in line and (found := _TAG.search(line)) and len(self.tags) < _MAX_COUNTED:
                    tag = "any VLAN" if found[1] == NO_VALUES and ", dp:tc," in line else found[1]
                    if int(found[2]) not in self.vlans:
                        self.tags[tag] = self.tags.get(tag, 0) + 1
                reason = _REASON.search(line.rstrip()) if ", dp-" in line else None
                if reason and (reason[1] in self.reasons or len(self.reasons) < _MAX_COUNTED):
                    self.reasons[reason[1]] += 1
            elif (found := _PMD.match(line)) and len(self.cores) < _MAX_COUNTED:
                self.cores.append(int(found[1]))
            yield line

    def is_filtered(self, *, is_complete: bool) -> bool:
        """Return whether the dump may lack megaflows in software. `is_complete`: its command line left out none."""
        return not is_complete and 0 < self.megaflows == self.offloaded

    def reason_summary(self) -> Iterator[str]:
        """Yield the dump's own reasons for megaflows that are not offloaded, the most frequent first."""
        for reason, megaflows in self.reasons.most_common(_MAX_REASONS_SHOWN):
            yield f"reported by Open vSwitch for {counted(megaflows, 'megaflow')}: {reason}"

    def remarks(self, *, is_filtered: bool) -> Iterator[str]:
        """Yield remarks, the most important first. `is_filtered`: the dump may lack megaflows in software."""
        if is_filtered:
            yield MAYBE_FILTERED
        if self.dummies:
            yield (
                f"{counted(self.dummies, 'megaflow')} of the dummy offload provider, which simulates a NIC in tests of "
                "Open vSwitch: counted as SW"
            )
        if self.has_vendor_counters:
            yield (
                "dpe_packets and dpe_bytes are counters of a vendor's Open vSwitch, which no public source describes; "
                "verdicts rely on packets and offloaded alone"
            )
        if self.double_tagged:
            yield (
                f"{counted(self.double_tagged, 'megaflow')} of frames with two tags (IEEE 802.1ad), which are not "
                "supported; with `vlan-limit` 1 they are other traffic"
            )
        if self.tags:
            tagged, shown = sum(self.tags.values()), "; ".join(list(self.tags)[:_MAX_REASONS_SHOWN])
            yield (
                f"{counted(tagged, 'megaflow')} of tagged packets ({shown}): beside untagged packets each of these "
                "tags takes hardware entries of its own, and drivers that match no tags refuse them"
            )
        if len(self.cores) > 1:
            yield f"the dump has {len(self.cores)} PMD threads, each with its own copy of a megaflow"
