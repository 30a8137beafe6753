"""Lines of a dump that differ in ufid, counters and source address alone: judged once, then only counted.

A large dump is mostly that, since clients differ in little else. What such a line has in common with an earlier one is
compared as text, so that nothing of it is parsed again; the address tells the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import parse_value
from xenoovs.verify.check import Check, IgnoredTally, Judged
from xenoovs.verify.expected import ExpectedBlock
from xenoovs.verify.verdict import Verdict, verdict_of

_WIDTHS = {"ipv4(": 32, "ipv6(": 128}
_FIELDS = {32: "nw_src", 128: "ipv6_src"}
_UFID = re.compile(r"ufid:[^, ]+, ", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F]*[.:][0-9a-fA-F.:]*", re.ASCII)
"""Not a bare number: in `5/99` the 99 is a mask, in `0.0.0.5/99` a prefix length, so the two are not alike."""
_COUNTERS = re.compile(
    r", packets:([0-9]{1,20}), bytes:([0-9]{1,20}), used:(?:never|([0-9]{1,12}\.[0-9]{1,6})s)", re.ASCII
)

_Key = tuple[str, str, str]
"""What stands before the address, between it and the counters, and behind them."""

_Lookups = tuple[tuple[int, dict[int, ExpectedBlock]], ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What lines of one key share. `ignored`: where no block is possible; `judged`: by id of the block."""

    width: int
    lookups: _Lookups
    verdict: Verdict
    ignored: IgnoredTally | None
    judged: dict[int, Judged] = field(default_factory=dict)


class AlikeLines:
    """Counts lines whose like it was shown before."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.shapes: dict[_Key, _Shape] = {}
        # A filter of traffic control tells each megaflow apart by its ufid.
        self.is_usable = check.around.filters is None and not check.index.looks_at(_FIELDS.values())

    def add(self, line: str) -> bool:
        """Count a line; False: its like was never seen, or it is to be looked at itself."""
        parts = _split(line)
        shape = self.shapes.get(parts[0]) if parts else None
        if parts is None or shape is None:
            return False
        _, address, counters = parts
        packets, size, used = counters.groups()
        try:
            value = parse_value(address, shape.width)
        except ValueError:
            return False
        if shape.ignored is not None:
            shape.ignored.add(int(packets), shape.verdict)
            return True
        for mask, blocks in shape.lookups:
            block = blocks.get(value & mask)
            if block is not None:
                judged = shape.judged.get(id(block))
                return judged is not None and self.check.count_alike(
                    judged, int(packets), int(size), used_s=float(used) if used else None
                )
        return False

    def learn(self, line: str, megaflow: Megaflow, judged: Judged | IgnoredTally | None) -> None:
        """Remember how a line was judged that was parsed and counted."""
        verdict = verdict_of(megaflow)
        if not self.is_usable or judged is None or verdict is None:
            return
        parts = _split(line)
        if parts is None:
            return
        before, behind, _ = key = parts[0]
        if sum((before + behind).count(name) for name in _WIDTHS) != 1:
            return
        shape = self.shapes.get(key)
        if shape is None:
            width = _WIDTHS[before[-len("ipv4(src=") :][:5]]
            shape = self.shapes[key] = self._shape(megaflow, width, verdict, judged)
        if isinstance(judged, Judged):
            shape.judged[id(judged.tally.block)] = judged

    def _shape(self, megaflow: Megaflow, width: int, verdict: Verdict, judged: Judged | IgnoredTally) -> _Shape:
        fields = match_of(megaflow)
        name = _FIELDS[width]
        source = fields.pop(name, None)
        places = tuple(self.check.index.places(megaflow.in_port, fields))
        lookups = tuple(
            (mask, blocks)
            for place in places[:1]
            for looked_at, mask, blocks in place.sources.by_mask
            if mask == 0 or (looked_at == name and source is not None and source.mask & mask == mask)
        )
        # Behind several entries the first may have no block for an address that the second has.
        ignored = judged if isinstance(judged, IgnoredTally) and not places else None
        return _Shape(width, lookups if len(places) == 1 else (), verdict, ignored)


def _split(line: str) -> tuple[_Key, str, re.Match[str]] | None:
    """The key, the address and the counters of a line; None: a line of another form."""
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
    key = line[ufid.end() if ufid else 0 : start], line[address.end() : counters.start()], line[counters.end() :]
    return key, address[0], counters
