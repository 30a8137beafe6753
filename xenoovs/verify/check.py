"""The offload check: every megaflow of a dump is judged against what a program expects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from xenoovs.compile.encoding import key_field
from xenoovs.datapath.megaflow import MAX_IDLE_S, MaskedValue, Megaflow, Verdict, match_of, parse_value, verdict_of
from xenoovs.datapath.parse import read_line
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid
from xenoovs.errors import ParseError
from xenoovs.model.address import Family
from xenoovs.model.balancer import KeyField
from xenoovs.openflow.flow import Field, Masked
from xenoovs.openflow.flow import match_of as match_of_conditions
from xenoovs.openflow.text import render_match
from xenoovs.verify.expected import ExpectedBlock, ExpectedService, Place, delivers, index_blocks, is_slow, is_untold
from xenoovs.verify.findings import BlockOffload, Ignored, Instance, Oddity, OffloadFindings, Reason, reason_of
from xenoovs.verify.foreign import OwnMask, TakenCounter, WideningCounter, WideningKey

# Lines of a dump that could not be read: the first ones, and how many there are.


MOST_LISTED = 100


@dataclass(slots=True)
class TornLines:
    """`more`: beyond those that are listed."""

    listed: list[ParseError] = field(default_factory=list)
    more: int = 0

    def add(self, error: ParseError) -> None:
        """One more."""
        if len(self.listed) < MOST_LISTED:
            self.listed.append(error)
        else:
            self.more += 1


# Where one megaflow runs and what it counted: the word of the dump, held against the filter of traffic control.


@dataclass(frozen=True, slots=True)
class Seen:
    """hw_packets, hw_bytes: what the NIC forwarded, by the filter's own counters where it has them."""

    verdict: Verdict
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    oddities: tuple[Oddity, ...] = ()


def seen_of(megaflow: Megaflow, filters: Mapping[str, TcFilter] | None) -> Seen | None:
    """None: the dump was made without `-m`. `filters`: by cookie; None: traffic control was not read."""
    verdict = verdict_of(megaflow)
    if verdict is None:
        return None
    if filters is None or megaflow.layer != "tc":
        return _by_dump(megaflow, verdict)
    cookie = cookie_of_ufid(megaflow.ufid) if megaflow.ufid else None
    found = filters.get(cookie) if cookie else None
    if found is None:
        return _by_dump(megaflow, verdict, Oddity.WITHOUT_FILTER)
    if verdict is Verdict.HW and found.in_hw is False:
        return _by_dump(megaflow, Verdict.TC_SW, Oddity.CONTRADICTED)
    odd = (Oddity.UNCONFIRMED,) if verdict is Verdict.HW and found.in_hw is None else ()
    counters = found.counters
    if counters is None or odd:
        return _by_dump(megaflow, verdict, *odd)
    return Seen(verdict, counters.packets, counters.bytes, counters.hw_packets, counters.hw_bytes)


def _by_dump(megaflow: Megaflow, verdict: Verdict, *oddities: Oddity) -> Seen:
    packets, size = megaflow.packets, megaflow.bytes
    if verdict is Verdict.HW:
        return Seen(verdict, packets, size, packets, size, oddities)
    return Seen(verdict, packets, size, 0, 0, oddities)


_NEARLY = 0.8
"""Of max-idle: what is left is less than the 2 s by which the counters of hardware may lag (offloaded-stats-delay)."""

_MAX_INSTANCES = 5

_BY_NAME = {field.ovs_name: field for field in Field}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the dump; each may be left out.

    filters:  filters of traffic control by cookie; None: not read.
    own_mask: field -> mask that a megaflow would have with our flows alone; None: what its block needs at least.
    internal_ports: names of bridges and of their internal ports.
    """

    filters: Mapping[str, TcFilter] | None = None
    own_mask: OwnMask | None = None
    internal_ports: Set[str] = frozenset()
    max_idle_s: float = MAX_IDLE_S


@dataclass(slots=True)
class Tally:
    """The counters of one block."""

    block: ExpectedBlock
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    packets: int = 0
    bytes: int = 0
    hw_packets: int = 0
    hw_bytes: int = 0
    oddities: Counter[Oddity] = field(default_factory=Counter)
    entries: set[int] = field(default_factory=set)

    def add(self, seen: Seen, entry: int) -> None:
        self.verdicts[seen.verdict] += 1
        self.packets += seen.packets
        self.bytes += seen.bytes
        self.hw_packets += seen.hw_packets
        self.hw_bytes += seen.hw_bytes
        self.entries.add(entry)

    def add_alike(self, verdict: Verdict, packets: int, size: int) -> None:
        """One more of a verdict and an entry that were added before."""
        self.verdicts[verdict] += 1
        self.packets += packets
        self.bytes += size
        if verdict is Verdict.HW:
            self.hw_packets += packets
            self.hw_bytes += size

    def result(self) -> BlockOffload:
        worst = max(self.verdicts, key=lambda verdict: verdict.badness, default=Verdict.ABSENT)
        return BlockOffload(
            self.block,
            worst,
            tuple((verdict, self.verdicts[verdict]) for verdict in Verdict if self.verdicts[verdict]),
            packets=self.packets,
            bytes=self.bytes,
            hw_packets=self.hw_packets,
            hw_bytes=self.hw_bytes,
            oddities=tuple((oddity, self.oddities[oddity]) for oddity in Oddity if self.oddities[oddity]),
            entries_seen=frozenset(self.entries),
        )


@dataclass(slots=True)
class IgnoredTally:
    """The counters of megaflows of no block that share a reason."""

    megaflows: int = 0
    packets: int = 0
    in_hardware: int = 0

    def add(self, packets: int, verdict: Verdict) -> None:
        self.megaflows += 1
        self.packets += packets
        self.in_hardware += verdict is Verdict.HW


@dataclass(frozen=True, slots=True)
class Judged:
    """What a megaflow shares with all others of its block that have the same mask, actions and layer."""

    tally: Tally
    entry: int
    verdict: Verdict
    oddities: tuple[Oddity, ...]
    widening: WideningKey | None


@dataclass(frozen=True, slots=True)
class Taker:
    """What a megaflow that may take packets of blocks shares with those that differ in its source alone.

    megaflow: the first of them, with its `fields`. ignored: where it counts if it takes none.
    """

    megaflow: Megaflow
    fields: Mapping[str, MaskedValue]
    places: tuple[Place, ...]
    verdict: Verdict
    ignored: IgnoredTally


Shared: TypeAlias = Judged | IgnoredTally | Taker


class Check:
    """Takes megaflows one by one; `findings` at the end."""

    def __init__(self, services: tuple[ExpectedService, ...], around: Surroundings) -> None:
        self.services, self.around = services, around
        self.index = index_blocks(services)
        self.tallies = {id(block): Tally(block) for service in services for block in service.blocks}
        self.ignored = {reason: IgnoredTally() for reason in Reason}
        self.torn = TornLines()
        self.unjudged = 0
        self.widened = WideningCounter(around.own_mask)
        self.taken = TakenCounter(self.index)
        self._expiring_s = _NEARLY * around.max_idle_s
        self._instances: dict[Oddity, list[Instance]] = {oddity: [] for oddity in Oddity}

    def add(self, megaflow: Megaflow) -> Shared | None:
        """Count a megaflow. Returns what alike ones share, None where there is no telling."""
        seen = seen_of(megaflow, self.around.filters)
        if seen is None:
            self.unjudged += 1
            return None
        fields = match_of(megaflow)
        found = self.index.locate(megaflow.in_port, fields)
        if found is None:
            return self._ignore(megaflow, seen, fields)
        judged = self._judge(megaflow, seen, fields, *found)
        for oddity in self.count(judged, seen, megaflow.used_s):
            if len(self._instances[oddity]) < _MAX_INSTANCES:
                self._instances[oddity].append(_instance(oddity, megaflow, fields, found[1]))
        return judged

    def _ignore(self, megaflow: Megaflow, seen: Seen, fields: Mapping[str, MaskedValue]) -> Shared:
        reason = reason_of(megaflow, self.around.internal_ports, fields)
        places = self.taken.places(megaflow, fields, reason)
        if not places:
            self.ignored[reason].add(megaflow.packets, seen.verdict)
            return self.ignored[reason]
        taker = Taker(megaflow, fields, places, seen.verdict, self.ignored[reason])
        self.take(taker, fields, packets=megaflow.packets, used_s=megaflow.used_s)
        return taker

    def take(self, taker: Taker, fields: Mapping[str, MaskedValue], *, packets: int, used_s: float | None) -> None:
        """Count one more megaflow like `taker`, which has these fields."""
        # What is gone soon may be what was, before the flows were changed.
        is_recent = used_s is None or used_s < self._expiring_s
        if not (is_recent and self.taken.add(taker.megaflow, fields, taker.places, packets=packets)):
            taker.ignored.add(packets, taker.verdict)

    def count(self, judged: Judged, seen: Seen, used_s: float | None) -> tuple[Oddity, ...]:
        """Add the counters of one more megaflow, and return its oddities."""
        oddities = self._oddities(judged, seen.packets, used_s)
        judged.tally.add(seen, judged.entry)
        self._count_odd(judged, oddities)
        return oddities

    def count_alike(self, judged: Judged, packets: int, size: int, *, used_s: float | None) -> bool:
        """Count one more megaflow like `judged`, by the counters of the dump.

        False, and nothing is counted: it has an oddity that too few instances are kept of, so it is to be looked at.
        """
        oddities = self._oddities(judged, packets, used_s)
        if oddities:
            if any(len(self._instances[oddity]) < _MAX_INSTANCES for oddity in oddities):
                return False
            self._count_odd(judged, oddities)
        judged.tally.add_alike(judged.verdict, packets, size)
        return True

    def _oddities(self, judged: Judged, packets: int, used_s: float | None) -> tuple[Oddity, ...]:
        oddities = judged.oddities
        if not packets and judged.verdict is Verdict.HW:
            oddities = (*oddities, Oddity.WITHOUT_PACKETS)
        if used_s is not None and used_s >= self._expiring_s:
            oddities = (*oddities, Oddity.EXPIRING)
        return oddities

    def _count_odd(self, judged: Judged, oddities: tuple[Oddity, ...]) -> None:
        if judged.widening is not None:
            self.widened.counts[judged.widening] += 1
        for oddity in oddities:
            judged.tally.oddities[oddity] += 1

    def _judge(
        self, megaflow: Megaflow, seen: Seen, fields: Mapping[str, MaskedValue], place: Place, block: ExpectedBlock
    ) -> Judged:
        oddities = list(seen.oddities)
        if is_slow(megaflow.actions):
            oddities.append(Oddity.SLOW_PATH)
        elif not is_untold(megaflow.actions) and not delivers(megaflow, fields, block):
            oddities.append(Oddity.MISDELIVERED)
        if block.is_moving:
            oddities.append(Oddity.DRAINED)
        widening = self.widened.key_of(megaflow, fields, place, block)
        if widening is not None:
            oddities.append(Oddity.WIDENED)
        return Judged(self.tallies[id(block)], place.entry, seen.verdict, tuple(oddities), widening)

    def findings(self) -> OffloadFindings:
        """Everything counted so far."""
        return OffloadFindings(
            services=self.services,
            blocks=tuple(tally.result() for tally in self.tallies.values()),
            ignored=tuple(
                Ignored(reason, tally.megaflows, tally.packets, tally.in_hardware)
                for reason, tally in self.ignored.items()
                if tally.megaflows
            ),
            torn=tuple(self.torn.listed),
            torn_more=self.torn.more,
            unjudged=self.unjudged,
            widenings=self.widened.result(),
            taken=self.taken.result(),
            instances=tuple(instance for listed in self._instances.values() for instance in listed),
        )


def _instance(oddity: Oddity, megaflow: Megaflow, fields: Mapping[str, MaskedValue], block: ExpectedBlock) -> Instance:
    known = (Masked(_BY_NAME[name], found.value, found.mask) for name, found in fields.items() if name in _BY_NAME)
    match = render_match(match_of_conditions(known, in_port=megaflow.in_port))
    return Instance(oddity, block.service, block.backend, megaflow.ufid, match, ",".join(megaflow.actions))


# Lines of a dump that differ in ufid, counters and the client alone: judged once, then only counted.
#
# A large dump is mostly that, since clients differ in little else. What such a line has in common with an earlier one
# is compared as text, so that nothing of it is parsed again. The address tells the block, or the bits of the port that
# choose blocks, in which alike lines agree.


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


# Whether the NIC forwards each block: a dump of megaflows judged against what a program expects.
#
# Packets, not bytes, compare between layers: software traffic control leaves 14 bytes of each frame out of its count.


def check_offload(
    services: Iterable[ExpectedService],
    megaflows: Iterable[Megaflow | ParseError],
    *,
    surroundings: Surroundings | None = None,
) -> OffloadFindings:
    """Judge megaflows, as `datapath.parse.scan_dump` reads them, against the expected services. Never raises."""
    check = Check(tuple(services), surroundings or Surroundings())
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            check.torn.add(megaflow)
        else:
            check.add(megaflow)
    return check.findings()


def check_dump(
    services: Iterable[ExpectedService], lines: Iterable[str], *, surroundings: Surroundings | None = None
) -> OffloadFindings:
    """As `check_offload` of `scan_dump(lines)`, several times faster: alike lines are judged once. Never raises."""
    check = Check(tuple(services), surroundings or Surroundings())
    alike = AlikeLines(check)
    for number, line in enumerate(lines, start=1):
        if alike.add(line):
            continue
        megaflow = read_line(line, number=number)
        if isinstance(megaflow, ParseError):
            check.torn.add(megaflow)
        elif megaflow is not None:
            alike.learn(line, megaflow, check.add(megaflow))
    return check.findings()
