"""The findings of an offload check: blocks, anomalies, and the conclusion for the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ipsec import Cleartext, EncapsulationUse
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.tc import ForeignRule, TcFilter
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.display import percent
from xenoovs.errors import ParseError, counted, first_names
from xenoovs.evidence.samples import NO_GROWTH, Growth, PortFinding
from xenoovs.judge.expected import ExpectedBlock, ExpectedService, OutsideKind, match_text
from xenoovs.openflow.flow import Flow, Match
from xenoovs.openflow.text import render_match

_LISTED = 3


class Conclusion(IntEnum):
    """The exit status. Blocks without a megaflow do not count: they have had no traffic."""

    IN_HARDWARE = 0
    CHECK_FAILED = 1
    NOT_ALL_IN_HARDWARE = 2
    NOTHING_SEEN = 3


def conclude(is_met: object) -> Conclusion:
    """Return the conclusion about megaflows that were seen."""
    return Conclusion.IN_HARDWARE if is_met else Conclusion.NOT_ALL_IN_HARDWARE


class Anomaly(Enum):
    """A property that a megaflow of a block should not have, whatever its verdict.

    MISDELIVERED:  packets leave with another MAC or by another port than the block's flow says.
    DROPPED:       packets of the block leave by no port.
    SLOW_PATH:     ovs-vswitchd handles each packet (`userspace(...)`).
    NOT_IN_HW:     the dump says offloaded:yes, the tc filter says not_in_hw.
    WITHOUT_FILTER: the dump says dp:tc, but no tc filter has the megaflow's cookie.
    UNWILDCARDED:  its mask has bits that none of our flows matches: a foreign flow un-wildcarded them.
    DRAINED:       it belongs to a block that moves: one connection, whose packets stay with their backend.
    WITHOUT_PACKETS: it is in hardware without a counted packet: it is new, or the NIC does not use it.
    EXPIRING:      its last packet was almost max-idle ago; it will expire soon.
    """

    MISDELIVERED = "misdelivered"
    DROPPED = "dropped"
    SLOW_PATH = "slow_path"
    NOT_IN_HW = "not_in_hw"
    WITHOUT_FILTER = "without_filter"
    UNWILDCARDED = "unwildcarded"
    DRAINED = "drained"
    WITHOUT_PACKETS = "without_packets"
    EXPIRING = "expiring"

    # Enum hashes its name in Python at each lookup; members are singletons, so identity serves.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class MegaflowState:
    """Where one megaflow runs and what it counted.

    Attributes:
        hw_packets: packets that the NIC forwarded, by the counters of the tc filter if it has any.
        growth: packets since the previous sample, or all if the megaflow is newer; None if there was one sample.
        is_counted: False if the tc filter has no hardware counter; `hw_packets` is then that of the dump.
        reason: why it is not in hardware, if the megaflow itself does not show it.
        is_new: whether its tc filter was installed a moment ago, so that packets may not be counted yet.
        block: to which its packets belong; None if it was not located, or is outside all blocks.
        outside: its `OutsideTraffic.key`; None likewise, or if it is in a block.
    """

    megaflow: Megaflow
    verdict: Verdict
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    anomalies: tuple[Anomaly, ...] = ()
    growth: Growth | None = None
    is_counted: bool = True
    reason: str = ""
    is_new: bool = False
    tc: TcFilter | None = None
    block: ExpectedBlock | None = None
    outside: OutsideKey | None = None

    @property
    def text(self) -> str:
        """Its service and backend, match and actions, as one line."""
        whose = f"{self.block.service} {self.block.backend}" if self.block else ""
        return f"{whose}: {match_text(self.megaflow)} -> {','.join(self.megaflow.actions)}"


@dataclass(slots=True, kw_only=True)
class Counts:
    """What some megaflows counted, in all and in the NIC; `growth`: between two samples."""

    megaflows: int = 0
    packets: int = 0
    bytes: int = 0
    hw_packets: int = 0
    hw_bytes: int = 0
    growth: Growth = NO_GROWTH

    def add(self, state: MegaflowState) -> None:
        self.megaflows += 1
        self.packets += state.packets
        self.bytes += state.bytes
        self.hw_packets += state.hw_packets
        self.hw_bytes += state.hw_bytes
        if state.growth is not None:
            self.growth += state.growth


def summed(parts: Iterable[Counts]) -> dict[str, Any]:
    """Return the sums of some Counts, as arguments for Counts of another kind."""
    listed = tuple(parts)
    names = ("megaflows", "packets", "bytes", "hw_packets", "hw_bytes")
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in listed) for name in names}
    return sums | {"growth": sum((each.growth for each in listed), NO_GROWTH)}


@dataclass(frozen=True, slots=True)
class Unwildcarding:
    """Megaflows of one service that match bits which none of our flows matches. `flows`: the foreign flows that do;
    empty if none does now, or before they are attributed; None if no flows were read. `added`: fields of which our
    flows match no bit at all. `bridge`: of the flows. `why` tells these two of one megaflow."""

    service: str
    fields: tuple[tuple[str, int], ...]
    megaflows: int = 1
    in_port: str | None = None
    flows: tuple[Flow, ...] | None = ()
    added: frozenset[str] = frozenset()
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class OverriddenBlocks:
    """Megaflows outside all blocks that hold packets of blocks and deliver them elsewhere, or drop them.

    Other packets of `blocks` may have other megaflows. `packets` may include packets for other destinations.
    """

    service: str
    blocks: tuple[ExpectedBlock, ...]
    megaflows: int
    packets: int
    match: Match
    actions: str
    flows: tuple[Flow, ...] = ()

    @property
    def is_drop(self) -> bool:
        """Whether the packets are dropped, as by a blocklist."""
        return self.actions == "drop"


@dataclass(slots=True)
class BlockOffload(Counts):
    """One block as the datapath shows it. `verdict`: the worst of its megaflows; ABSENT if it has none; UNCONFIRMED
    also if the NIC has held its megaflows of one port for some seconds without a counted packet. `entries_seen`:
    indices of the service's entries that classified its packets."""

    block: ExpectedBlock
    verdict: Verdict = Verdict.ABSENT
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    entries_seen: set[int] = field(default_factory=set)

    @property
    def misdelivered(self) -> int:
        """Number of megaflows whose packets are dropped, or leave otherwise than by the block's flow."""
        return self.anomalies[Anomaly.MISDELIVERED] + self.anomalies[Anomaly.DROPPED]


@dataclass(frozen=True, slots=True)
class UnprovenBlock:
    """A block in the NIC without a counted packet. `of_packets`: packets that were counted for all clients of its
    service and IP family."""

    block: ExpectedBlock
    of_packets: int

    @property
    def expected(self) -> int:
        """Number of packets expected for its share of the clients."""
        return round(self.block.share * self.of_packets)

    def __str__(self) -> str:
        expected = f"about {self.expected} of {self.of_packets} expected for {percent(self.block.share)} of the clients"
        return f"{self.block.service} {self.block.backend} {render_match(self.block.flow.match)}: no packet; {expected}"


OutsideKey = tuple[OutsideKind, str, tuple[str, ...]]
"""Kind of traffic outside all blocks, its ingress port, and the services whose answers it may carry."""


@dataclass(slots=True)
class OutsideTraffic(Counts):
    """Megaflows outside all blocks that share these attributes and a verdict. `reason`: empty if the dump shows none.

    `in_port`: empty for kinds that are not judged, and ABSENT answers. `services`: those whose answers they may carry.
    """

    kind: OutsideKind
    in_port: str
    services: tuple[str, ...]
    verdict: Verdict
    reason: str

    @property
    def key(self) -> OutsideKey:
        """The key of a row of a report: everything but verdict and reason."""
        return self.kind, self.in_port, self.services


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFindings:
    """Findings about any dump.

    Attributes:
        read: number of megaflows in the dump, also of those that are not in these findings.
        unparsed_more: number of unreadable lines beyond those in `unparsed`.
        unjudged: number of megaflows in a dump made without `-m`, which hides where they run.
        uncounted: number of megaflows whose tc filter has no hardware counter.
        is_filtered: whether the findings may lack megaflows in software, by a filter or an unreadable line.
        ports: packets that ports gave to the CPU between two samples; empty if there was one sample.
        tunnels: tunnels whose packets bypass the kernel's IPsec.
        cleartext: tunnels that should be encrypted, by a policy or by the config, and are not.
        remarks: what could not be read, and what explains the findings.
    """

    read: int = 0
    unparsed: tuple[ParseError, ...] = ()
    unparsed_more: int = 0
    unjudged: int = 0
    uncounted: int = 0
    is_filtered: bool = False
    ports: tuple[PortFinding, ...] = ()
    has_growth: bool = False
    tunnels: tuple[EncapsulationUse, ...] = ()
    cleartext: tuple[Cleartext, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[Counts, ...]:
        """Everything that the NIC should forward."""
        raise NotImplementedError

    @property
    def is_unparsed(self) -> bool:
        """Whether the dump has lines, but no megaflow among them."""
        return bool(self.unparsed) and not self.read

    @property
    def is_contradicted(self) -> bool:
        """Whether a port gave the CPU more packets than megaflows explain."""
        return any(port.is_contradicted for port in self.ports)

    @property
    def hw_share(self) -> float | None:
        """Share of the packets of `counted` that the NIC forwarded (0-1); None before the first packet."""
        packets = sum(each.packets for each in self.counted)
        return sum(each.hw_packets for each in self.counted) / packets if packets else None

    @property
    def growth(self) -> Growth:
        """Packets of `counted` between two samples."""
        return sum((each.growth for each in self.counted), NO_GROWTH)

    @property
    def judged_share(self) -> float | None:
        """The share that is compared with the required one: of the growth if there is any, else `hw_share`."""
        growth = self.growth
        return growth.hw_packets / growth.packets if growth.packets else self.hw_share


@dataclass(frozen=True, slots=True)
class PreemptingRule:
    """A rule of another program, before those of Open vSwitch on a port. `blocks`: those whose packets it may match."""

    device: str
    pref: int
    rule: ForeignRule
    blocks: tuple[ExpectedBlock, ...]
    in_hw: bool

    @property
    def is_effective(self) -> bool:
        """Whether it takes packets: it has counted some, or is in the NIC, where packets of the blocks meet it."""
        return self.in_hw or self.rule.packets > 0

    @property
    def name(self) -> str:
        match = f" {self.rule.match}" if self.rule.match else ""
        return f"pref {self.pref} {self.rule.kind}{match} -> {self.rule.actions}"

    def describe(self) -> str:
        """Return in words which blocks it meets, and how many packets it took."""
        services = first_names(tuple(dict.fromkeys(block.service for block in self.blocks)), most=_LISTED)
        backends = first_names(tuple(dict.fromkeys(block.backend for block in self.blocks)), most=_LISTED)
        took = f"it took {counted(self.rule.packets, 'packet')}"
        meets = f"meets {counted(len(self.blocks), 'block')}"
        where = "in the NIC" if self.in_hw else "in software"
        return f"{self.name} ({where}) {meets} of {services} ({backends}) before Open vSwitch does; {took}"


@dataclass(frozen=True, slots=True)
class OffloadFindings(DumpFindings):
    """All findings about one program. `examples`: the first few megaflows with each anomaly. `overrides`: blocks that
    foreign flows override; such megaflows are not in `outside`. `listed`: every judged megaflow, if the check lists
    them. `unanswered`: services with requests, but without a megaflow that carries answers. `cpu_ports`: tunnel ports
    whose packets the CPU encrypts, by the config. `origins`: the flows behind anomalous megaflows, by ufid. `expired`:
    why there is no megaflow although the flows counted packets; empty if they counted none."""

    services: tuple[ExpectedService, ...]
    blocks: tuple[BlockOffload, ...]
    outside: tuple[OutsideTraffic, ...]
    unwildcardings: tuple[Unwildcarding, ...] = ()
    examples: Mapping[Anomaly, tuple[MegaflowState, ...]] = field(default_factory=dict, hash=False)
    overrides: tuple[OverriddenBlocks, ...] = ()
    listed: tuple[MegaflowState, ...] = ()
    unanswered: tuple[str, ...] = ()
    preempting: tuple[PreemptingRule, ...] = ()
    cpu_ports: frozenset[str] = frozenset()
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    expired: str = ""

    def is_of_cpu(self, block: BlockOffload) -> bool:
        """Return whether a block is in software because its tunnel is encrypted by the CPU."""
        ports = (hop.port for hop in block.block.hops)
        return block.verdict in (Verdict.TC_SW, Verdict.SW) and all(port in self.cpu_ports for port in ports)

    @property
    def nic_blocks(self) -> tuple[BlockOffload, ...]:
        """The blocks that the NIC should forward."""
        return tuple(each for each in self.blocks if not self.is_of_cpu(each)) if self.cpu_ports else self.blocks

    @property
    def cpu_blocks(self) -> int:
        """Number of blocks that the CPU forwards because it encrypts their tunnel."""
        return len(self.blocks) - len(self.nic_blocks)

    @property
    def is_left_to_cpu(self) -> bool:
        """Whether the CPU encrypts the tunnels of all blocks with traffic, so that none of them is in hardware."""
        return bool(self.cpu_blocks) and all(each.verdict is Verdict.ABSENT for each in self.nic_blocks)

    @property
    def conclusion(self) -> Conclusion:
        """Whether all blocks with traffic are in hardware, or where they belong (`is_left_to_cpu`)."""
        if self.cleartext:
            return Conclusion.NOT_ALL_IN_HARDWARE
        seen = [block for block in self.nic_blocks if block.verdict is not Verdict.ABSENT]
        if self.unjudged or self.is_unparsed:
            return Conclusion.CHECK_FAILED
        if self.is_overridden or self.is_preempted or any(block.misdelivered for block in self.blocks):
            return Conclusion.NOT_ALL_IN_HARDWARE
        if not seen:
            return Conclusion.IN_HARDWARE if self.cpu_blocks else Conclusion.NOTHING_SEEN
        if any(block.verdict.is_software for block in seen):
            return Conclusion.NOT_ALL_IN_HARDWARE
        # Without a packet to prove it, offloaded:yes is no success.
        is_proven = all(block.verdict is Verdict.HW for block in seen) and any(block.packets for block in seen)
        return Conclusion.IN_HARDWARE if is_proven and not self.is_filtered else Conclusion.NOTHING_SEEN

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Return whether blocks and answers are in hardware: all, or the share `required` (0-1) of their packets.

        No share is valid if a port contradicts the megaflows.
        """
        conclusion = self.conclusion
        if self.cleartext or self.is_overridden or self.is_preempted or conclusion is Conclusion.CHECK_FAILED:
            return conclusion
        if self.is_contradicted:
            return Conclusion.NOT_ALL_IN_HARDWARE
        is_seen = any(block.verdict is not Verdict.ABSENT for block in self.blocks)
        if required is None:
            if is_seen and OutsideKind.ANSWERS in self.software_kinds:
                return Conclusion.NOT_ALL_IN_HARDWARE
            is_unconfirmed = any(each.verdict is Verdict.UNCONFIRMED for each in self.nic_answers)
            return Conclusion.NOTHING_SEEN if is_unconfirmed and conclusion is Conclusion.IN_HARDWARE else conclusion
        share = self.judged_share
        if share is None or not any(block.packets for block in self.blocks):
            return conclusion if share is None and self.cpu_blocks else Conclusion.NOTHING_SEEN
        is_reached = share >= required and not any(block.misdelivered for block in self.blocks)
        if is_reached and (self.is_filtered or self.uncounted or share - self._unproven_share < required):
            return Conclusion.NOTHING_SEEN
        return conclude(is_reached)

    @property
    def unproven(self) -> tuple[UnprovenBlock, ...]:
        """The blocks that the NIC has held for some seconds without a counted packet."""
        packets = Counter[tuple[str, int]]()
        for each in self.blocks:
            packets[each.block.service, each.block.eth_type] += each.packets
        return tuple(
            UnprovenBlock(each.block, packets[each.block.service, each.block.eth_type])
            for each in self.nic_blocks
            if each.verdict is Verdict.UNCONFIRMED and not each.packets
        )

    @property
    def _unproven_share(self) -> float:
        """Share of all packets that may belong to unproven blocks, whichever megaflow counted them (0-1)."""
        packets = sum(each.packets for each in self.counted)
        return sum(each.expected for each in self.unproven) / packets if packets else 0.0

    @property
    def counted(self) -> tuple[BlockOffload | OutsideTraffic, ...]:
        """Blocks and answers that the NIC should forward."""
        return (*self.nic_blocks, *self.nic_answers)

    @property
    def nic_answers(self) -> tuple[OutsideTraffic, ...]:
        """The answers that the NIC should forward."""
        answers = (each for each in self.outside if each.kind is OutsideKind.ANSWERS)
        return tuple(each for each in answers if not self._is_answer_to_cpu(each))

    def _is_answer_to_cpu(self, answer: OutsideTraffic) -> bool:
        """Return whether answers come through tunnels, and the CPU decrypts the tunnels of all their services."""
        if not self.cpu_ports or not is_tunnel_device(answer.in_port):
            return False
        blocks = (block.block for block in self.blocks if block.block.service in answer.services)
        return all(hop.port in self.cpu_ports for block in blocks for hop in block.hops)

    @property
    def is_preempted(self) -> bool:
        """Whether a rule of another program takes packets of blocks before Open vSwitch sees them."""
        return any(rule.is_effective for rule in self.preempting)

    @property
    def is_overridden(self) -> bool:
        """Whether packets of a block are delivered elsewhere. Dropping some is a legitimate use of foreign flows."""
        return any(not override.is_drop for override in self.overrides)

    @property
    def absent(self) -> int:
        """Number of blocks without a megaflow."""
        return sum(block.verdict is Verdict.ABSENT for block in self.blocks)

    @property
    def judged_outside(self) -> tuple[OutsideTraffic, ...]:
        """Answers and other traffic that should be in hardware."""
        return tuple(each for each in self.outside if each.kind.is_judged)

    @property
    def judged(self) -> tuple[BlockOffload | OutsideTraffic, ...]:
        """Everything that should be in hardware."""
        return (*self.blocks, *self.judged_outside)

    @property
    def software_kinds(self) -> frozenset[OutsideKind]:
        """The kinds of traffic outside all blocks with megaflows that should be in hardware and are not."""
        traffic = (each for each in self.judged_outside if not self._is_answer_to_cpu(each))
        return frozenset(each.kind for each in traffic if each.verdict.is_software)


def unanswered(blocks: Iterable[BlockOffload], outside: Iterable[OutsideTraffic]) -> tuple[str, ...]:
    """Return the services whose blocks had traffic, but no megaflow carries answers."""
    answered = {name for each in outside if each.kind is OutsideKind.ANSWERS for name in each.services}
    seen = dict.fromkeys(block.block.service for block in blocks if block.megaflows and block.block.has_answers)
    return tuple(name for name in seen if name not in answered)


def carry_over(earlier: OffloadFindings, later: OffloadFindings) -> OffloadFindings:
    """Return `later` plus the blocks, answers and other traffic with megaflows only in `earlier`, of one program."""
    pairs = tuple(zip(earlier.blocks, later.blocks, strict=True))
    blocks = tuple(before if now.verdict is Verdict.ABSENT else now for before, now in pairs)
    present = {each.key for each in later.outside}
    outside = (*later.outside, *(each for each in earlier.judged_outside if each.key not in present))
    gone = {id(before.block) for before, now in pairs if now.verdict is Verdict.ABSENT}
    listed = (each for each in earlier.listed if id(each.block) in gone or each.outside not in (None, *present))
    return replace(
        later,
        blocks=blocks,
        outside=outside,
        listed=(*later.listed, *listed),
        unanswered=unanswered(blocks, outside),
        read=earlier.read + later.read,
        cleartext=later.cleartext or earlier.cleartext,
    )


def of_services(findings: OffloadFindings, services: Container[str]) -> OffloadFindings:
    """Return the findings about some services and their answers."""
    return replace(
        findings,
        services=tuple(service for service in findings.services if service.name in services),
        blocks=tuple(block for block in findings.blocks if block.block.service in services),
        outside=tuple(each for each in findings.outside if any(name in services for name in each.services)),
        listed=tuple(each for each in findings.listed if _is_of(each, services)),
        unanswered=tuple(name for name in findings.unanswered if name in services),
        unwildcardings=tuple(each for each in findings.unwildcardings if each.service in services),
        overrides=tuple(each for each in findings.overrides if each.service in services),
        preempting=tuple(rule for rule in findings.preempting if any(b.service in services for b in rule.blocks)),
        examples={
            anomaly: tuple(each for each in found if _is_of(each, services))
            for anomaly, found in findings.examples.items()
        },
    )


def with_verdicts(findings: OffloadFindings, verdicts: Container[Verdict]) -> OffloadFindings:
    """Return the findings with some verdicts."""
    blocks = {id(block.block): block for block in findings.blocks if block.verdict in verdicts}
    listed = (
        each
        for each in findings.listed
        if (each.verdict in verdicts if each.block is None else id(each.block) in blocks)
    )
    return replace(
        findings,
        blocks=tuple(blocks.values()),
        outside=tuple(each for each in findings.outside if each.verdict in verdicts),
        listed=tuple(listed),
        unanswered=findings.unanswered if Verdict.ABSENT in verdicts else (),
    )


def _is_of(state: MegaflowState, services: Container[str]) -> bool:
    if state.block is not None:
        return state.block.service in services
    return state.outside is not None and any(name in services for name in state.outside[2])
