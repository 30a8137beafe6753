"""Lines of a dump that differ in ufid, counters and the client alone: judged once, then only counted.

A large dump is mostly that, since clients differ in little else. What such a line has in common with an earlier one is
compared as text, so that nothing of it is parsed again. The address tells the block, or the bits of the port that
choose blocks, in which alike lines agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from xenoovs.compile.key import key_field
from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue, parse_value
from xenoovs.model.address import Family
from xenoovs.model.block_key import KeyField
from xenoovs.verify.check import Check, IgnoredTally, Judged, Shared, Taker
from xenoovs.verify.expected import ExpectedBlock
from xenoovs.verify.join import Place
from xenoovs.verify.verdict import Verdict, verdict_of

_WIDTHS = {"ipv4(": 32, "ipv6(": 128}
_FIELDS = {family.bits: key_field(KeyField.SOURCE_ADDRESS, family).ovs_name for family in Family}
_UFID = re.compile(r"ufid:[^, ]+, ", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F]*[.:][0-9a-fA-F.:]*", re.ASCII)
"""Not a bare number: in `5/99` the 99 is a mask, in `0.0.0.5/99` a prefix length, so the two are not alike."""
_COUNTERS = re.compile(
    r", packets:([0-9]{1,20}), bytes:([0-9]{1,20}), used:(?:never|([0-9]{1,12}\.[0-9]{1,6})s)", re.ASCII
)

_MAC = re.compile(r"(?<=eth\(src=)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?=[,/])", re.ASCII)
_PORT = re.compile(r"(?<=(?:tcp|udp)\(src=)(?:[1-5]?[0-9]{1,4}|6[0-4][0-9]{3})(?=[,/])", re.ASCII)
_INDIFFERENT_FIELDS = ("dl_src", "tp_src")
"""Clients differ in these too where some flow makes megaflows of single connections; ports of 65000 and more are read
one by one."""

_MOST_SHAPES = 4096
_REST = 65_536
"""For so many lines none is looked for where of those before not even every other one was like an earlier one."""

_ANY = MaskedValue(0, 0)

_Key = tuple[str, str, str]
"""What stands before the address, between it and the counters, and behind them."""

_Lookups = tuple[tuple[int, dict[int, ExpectedBlock]], ...]


class _Parts(NamedTuple):
    """Where a line has its keys, the source address, its end, and its counters."""

    begin: int
    start: int
    end: int
    counters: re.Match[str]
    address: str


@dataclass(frozen=True, slots=True)
class _Shape:
    """What lines of one key share. `ignored`: where no block is possible; `judged`: by id of the block.

    taker: where such lines are of no block and may take packets of some; `mask`: of the source.
    """

    width: int
    mask: int
    lookups: _Lookups
    verdict: Verdict
    ignored: IgnoredTally | None
    taker: Taker | None
    judged: dict[int, Judged] = field(default_factory=dict)


class AlikeLines:
    """Counts lines whose like it was shown before."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.shapes: dict[_Key, _Shape] = {}
        # A filter of traffic control tells each megaflow apart by its ufid.
        self.is_usable = check.around.filters is None and not check.index.looks_at(_FIELDS.values())
        self._met = self._resting = 0
        port_bits = check.index.bits_of("tp_src")
        self._key_of = _key_of if check.index.looks_at(_INDIFFERENT_FIELDS) else partial(_general_key_of, port_bits)

    def add(self, line: str) -> bool:
        """Count a line; False: its like was never seen, or it is to be looked at itself."""
        if self._resting:
            self._resting -= 1
            return False
        parts = _split(line) if self.shapes else None
        shape = self.shapes.get(self._key_of(line, parts)) if parts else None
        if parts is None or shape is None:
            return False
        self._met += 1
        packets, size, used = parts.counters.groups()
        try:
            value = parse_value(parts.address, shape.width)
        except ValueError:
            return False
        used_s = float(used) if used else None
        if shape.ignored is not None:
            shape.ignored.add(int(packets), shape.verdict)
            return True
        if shape.taker is not None:
            self._take(shape, shape.taker, value, packets=int(packets), used_s=used_s)
            return True
        for mask, blocks in shape.lookups:
            block = blocks.get(value & mask)
            if block is not None:
                judged = shape.judged.get(id(block))
                return judged is not None and self.check.count_alike(judged, int(packets), int(size), used_s=used_s)
        return False

    def _take(self, shape: _Shape, taker: Taker, value: int, *, packets: int, used_s: float | None) -> None:
        fields = taker.fields
        if shape.mask:
            fields = {**fields, _FIELDS[shape.width]: MaskedValue(value & shape.mask, shape.mask)}
        self.check.take(taker, fields, packets=packets, used_s=used_s)

    def learn(self, line: str, megaflow: Megaflow, shared: Shared | None) -> None:
        """Remember how a line was judged that was parsed and counted."""
        if self._resting:
            return
        verdict = verdict_of(megaflow)
        parts = _split(line) if self.is_usable and shared is not None and verdict is not None else None
        if parts is None or shared is None or verdict is None:
            return
        before, behind, _ = key = self._key_of(line, parts)
        if sum((before + behind).count(name) for name in _WIDTHS) != 1:
            return
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= _MOST_SHAPES:
                # Where lines are all different, looking for alike ones costs more than it saves.
                self._resting, self._met = (0 if self._met > _MOST_SHAPES else _REST), 0
                self.shapes.clear()
            width = _WIDTHS[before[-len("ipv4(src=") :][:5]]
            shape = self.shapes[key] = self._shape(megaflow, width, verdict, shared)
        if isinstance(shared, Judged):
            shape.judged[id(shared.tally.block)] = shared

    def _shape(self, megaflow: Megaflow, width: int, verdict: Verdict, shared: Shared) -> _Shape:
        fields = match_of(megaflow)
        name = _FIELDS[width]
        source = fields.pop(name, _ANY)
        places = tuple(self.check.index.places(megaflow.in_port, fields))
        lookups = tuple(_lookups(places, name, {**fields, name: source}))
        ignored = shared if isinstance(shared, IgnoredTally) and not lookups else None
        taker = shared if isinstance(shared, Taker) and not lookups else None
        # Behind several entries the first may have no block for an address that the second has.
        return _Shape(width, source.mask, lookups if len(places) == 1 else (), verdict, ignored, taker)


def _lookups(
    places: Iterable[Place], name: str, fields: Mapping[str, MaskedValue]
) -> Iterator[tuple[int, dict[int, ExpectedBlock]]]:
    """Yield the masks under which an address tells the block; mask 0 where the bits of the port have told it."""
    for place in places:
        for looked_at, mask, blocks in place.sources.by_mask:
            found = fields.get(looked_at, _ANY)
            if found.mask & mask != mask:
                continue
            if looked_at == name:
                yield mask, blocks
            elif (block := blocks.get(found.value & mask)) is not None:
                yield 0, {0: block}


def _split(line: str) -> _Parts | None:
    """None: a line of another form."""
    start = line.find("ipv4(src=")
    if start < 0:
        start = line.find("ipv6(src=")
    if start < 0:
        return None
    start += len("ipv4(src=")
    address = _ADDRESS.match(line, start)
    counters = _COUNTERS.match(line, line.find(", packets:", start))
    if address is None or counters is None:
        return None
    ufid = _UFID.match(line)
    return _Parts(ufid.end() if ufid else 0, start, address.end(), counters, address[0])


def _key_of(line: str, parts: _Parts) -> _Key:
    counters = parts.counters
    return line[parts.begin : parts.start], line[parts.end : counters.start()], line[counters.end() :]


def _general_key_of(port_bits: int, line: str, parts: _Parts) -> _Key:
    """Without values that no entry and no block looks at: such lines are judged alike, whoever sent the packets."""
    before, behind, after = _key_of(line, parts)
    port = (lambda found: str(int(found[0]) & port_bits)) if port_bits else ""
    return _MAC.sub("", before, count=1), _PORT.sub(port, behind, count=1), after
