"""One pass over a dump: what is counted for each block, and what is odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.field import Field
from xenoovs.openflow.match import Masked
from xenoovs.openflow.match import match_of as match_of_conditions
from xenoovs.openflow.render import render_match
from xenoovs.verify.crosscheck import Seen, seen_of
from xenoovs.verify.delivery import delivers, is_slow, is_untold
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.findings import BlockOffload, Ignored, Instance, Oddity, OffloadFindings
from xenoovs.verify.ignore import Reason, reason_of
from xenoovs.verify.join import Place, index_blocks
from xenoovs.verify.taken import TakenCounter
from xenoovs.verify.torn import TornLines
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.widened import OwnMask, WideningCounter, WideningKey

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
