"""Whether the NIC forwards each block: a dump of megaflows judged against what a program expects.

Packets, not bytes, compare between layers: software traffic control leaves 14 bytes of each frame out of its count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.value import MaskedValue
from xenoovs.errors import ParseError
from xenoovs.openflow.field import Field
from xenoovs.openflow.match import Masked
from xenoovs.openflow.match import match_of as match_of_conditions
from xenoovs.openflow.render import render_match
from xenoovs.verify.crosscheck import Seen, seen_of
from xenoovs.verify.delivery import delivers, is_slow
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.findings import BlockOffload, Conclusion, Ignored, Instance, Oddity, OffloadFindings
from xenoovs.verify.ignore import Reason, reason_of
from xenoovs.verify.join import Place, index_blocks
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.widened import OwnMask, WideningCounter

__all__ = ["BlockOffload", "Conclusion", "OffloadFindings", "Reason", "Surroundings", "check_offload"]

MAX_IDLE_S = 10.0
"""How long a megaflow stays after its last packet where nothing else is set (ovs-vswitchd.conf.db(5), max-idle)."""

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


def check_offload(
    services: Iterable[ExpectedService],
    megaflows: Iterable[Megaflow | ParseError],
    *,
    surroundings: Surroundings | None = None,
) -> OffloadFindings:
    """Judge a dump, as `datapath.parse.scan_dump` reads it, against the expected services. Never raises."""
    expected = tuple(services)
    check = _Check(expected, surroundings or Surroundings())
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            check.torn.append(megaflow)
        else:
            check.add(megaflow)
    return check.findings()


class _Check:
    """One pass over a dump."""

    def __init__(self, services: tuple[ExpectedService, ...], around: Surroundings) -> None:
        self.services, self.around = services, around
        self.index = index_blocks(services)
        self.tallies = {id(block): _Tally(block) for service in services for block in service.blocks}
        self.torn: list[ParseError] = []
        self.unjudged = 0
        self.ignored = {reason: [0, 0, 0] for reason in Reason}
        self.instances: dict[Oddity, list[Instance]] = {oddity: [] for oddity in Oddity}
        self.widened = WideningCounter(around.own_mask)

    def add(self, megaflow: Megaflow) -> None:
        seen = seen_of(megaflow, self.around.filters)
        if seen is None:
            self.unjudged += 1
            return
        fields = match_of(megaflow)
        found = self.index.locate(megaflow.in_port, fields)
        if found is None:
            counts = self.ignored[reason_of(megaflow, self.around.internal_ports)]
            counts[0] += 1
            counts[1] += megaflow.packets
            counts[2] += seen.verdict is Verdict.HW
            return
        place, block = found
        tally = self.tallies[id(block)]
        tally.add(seen, place.entry)
        for oddity in self._oddities(megaflow, seen, fields, place, block):
            tally.oddities[oddity] += 1
            if len(self.instances[oddity]) < _MAX_INSTANCES:
                self.instances[oddity].append(_instance(oddity, megaflow, fields, block))

    def _oddities(
        self, megaflow: Megaflow, seen: Seen, fields: Mapping[str, MaskedValue], place: Place, block: ExpectedBlock
    ) -> list[Oddity]:
        found = list(seen.oddities)
        if is_slow(megaflow.actions):
            found.append(Oddity.SLOW_PATH)
        elif not delivers(megaflow, fields, block):
            found.append(Oddity.MISDELIVERED)
        if self.widened.add(megaflow, fields, place, block):
            found.append(Oddity.WIDENED)
        if seen.verdict is Verdict.HW and not seen.packets:
            found.append(Oddity.WITHOUT_PACKETS)
        if megaflow.used_s is not None and megaflow.used_s >= _NEARLY * self.around.max_idle_s:
            found.append(Oddity.EXPIRING)
        return found

    def findings(self) -> OffloadFindings:
        return OffloadFindings(
            services=self.services,
            blocks=tuple(tally.result() for tally in self.tallies.values()),
            ignored=tuple(Ignored(reason, *counts) for reason, counts in self.ignored.items() if counts[0]),
            torn=tuple(self.torn),
            unjudged=self.unjudged,
            widenings=self.widened.result(),
            instances=tuple(instance for listed in self.instances.values() for instance in listed),
        )


@dataclass(slots=True)
class _Tally:
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


def _instance(oddity: Oddity, megaflow: Megaflow, fields: Mapping[str, MaskedValue], block: ExpectedBlock) -> Instance:
    known = (Masked(_BY_NAME[name], found.value, found.mask) for name, found in fields.items() if name in _BY_NAME)
    match = render_match(match_of_conditions(known, in_port=megaflow.in_port))
    return Instance(oddity, block.service, block.backend, megaflow.ufid, match, ",".join(megaflow.actions))
