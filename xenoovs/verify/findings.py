"""The findings of an offload check: blocks, anomalies, and the conclusion for the exit status."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import lru_cache

from xenoovs.datapath.megaflow import MaskedValue, Megaflow, Verdict, match_of, read_masked
from xenoovs.errors import ParseError
from xenoovs.model.intent import NEIGHBOUR_DISCOVERY
from xenoovs.openflow.flow import ETH_ARP, Flow, Match
from xenoovs.verify.expected import ExpectedBlock, ExpectedService

_DESTINATION_UNREACHABLE = {"icmp": 3, "icmpv6": 1}
"""RFC 792; RFC 4443, 3.1."""

_NEW_TRACKED = 0x21
"""ct_state +new+trk (ovs-fields(7)): the connection is not established; its later packets have another megaflow."""


class IgnoreReason(Enum):
    """Why a megaflow outside all blocks is not judged. NVIDIA's own check of a host ignores the same.

    OTHER: it could be offloaded but belongs to no service of the config.
    """

    ARP = "arp"
    NEIGHBOUR_DISCOVERY = "neighbour discovery"
    MULTICAST = "multicast"
    UNREACHABLE = "icmp unreachable"
    DROP = "drop"
    NEW_CONNECTION = "first packet of a connection"
    INTERNAL_PORT = "internal port"
    RECIRCULATED = "recirculated"
    OTHER = "of no service"

    @property
    def is_expected(self) -> bool:
        """Whether such a megaflow belongs in software."""
        return self not in (IgnoreReason.RECIRCULATED, IgnoreReason.OTHER)


def ignore_reason_of(
    megaflow: Megaflow, internal_ports: Set[str], fields: Mapping[str, MaskedValue] | None = None
) -> IgnoreReason:
    """Return the first reason that applies.

    Args:
        megaflow: a megaflow outside all blocks.
        internal_ports: names of bridges and of their internal ports.
        fields: the match of the megaflow, if it is known already.
    """
    fields = match_of(megaflow) if fields is None else fields
    eth_type, icmp_type, destination = (fields.get(name) for name in ("dl_type", "icmp_type", "dl_dst"))
    if eth_type is not None and eth_type.value == ETH_ARP:
        return IgnoreReason.ARP
    if icmp_type is not None and icmp_type.mask:
        names = {key.name for key in megaflow.keys}
        if "icmpv6" in names and icmp_type.value in NEIGHBOUR_DISCOVERY:
            return IgnoreReason.NEIGHBOUR_DISCOVERY
        if any(name in names and icmp_type.value == code for name, code in _DESTINATION_UNREACHABLE.items()):
            return IgnoreReason.UNREACHABLE
    if destination and destination.mask >> 40 & 1 and destination.value >> 40 & 1:
        return IgnoreReason.MULTICAST
    if megaflow.actions == ("drop",):
        return IgnoreReason.DROP
    if _is_new_connection(megaflow.key("ct_state")):
        return IgnoreReason.NEW_CONNECTION
    if megaflow.in_port in internal_ports or not internal_ports.isdisjoint(megaflow.actions):
        return IgnoreReason.INTERNAL_PORT
    return IgnoreReason.RECIRCULATED if megaflow.recirc_id else IgnoreReason.OTHER


@lru_cache(maxsize=1024)
def _is_new_connection(ct_state: str | None) -> bool:
    if ct_state is None:
        return False
    try:
        return read_masked(ct_state, 32).value & _NEW_TRACKED == _NEW_TRACKED
    except ValueError:
        # As without -m: `+new-est+trk`.
        return "+new" in ct_state and "+trk" in ct_state


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
    """What a megaflow of a block should not be, whatever its verdict.

    MISDELIVERED:  packets leave with another MAC or by another port than the block's flow says.
    SLOW_PATH:     ovs-vswitchd handles each packet (`userspace(...)`).
    CONTRADICTED:  the dump says offloaded:yes, the tc filter says not_in_hw.
    UNCONFIRMED:   the dump says offloaded:yes, the tc filter says neither: old kernels do that without a NIC.
    WITHOUT_FILTER: the dump says dp:tc, but no tc filter has the megaflow's cookie.
    UNWILDCARDED:  its mask has bits that none of our flows matches: a foreign flow un-wildcarded them.
    DRAINED:       it belongs to a block that moves: one connection, whose packets stay with their backend.
    WITHOUT_PACKETS: it is in hardware without a counted packet: it is new, or the NIC does not use it.
    EXPIRING:      its last packet was almost max-idle ago; it will expire soon.
    """

    MISDELIVERED = "misdelivered"
    SLOW_PATH = "slow_path"
    CONTRADICTED = "contradicted"
    UNCONFIRMED = "unconfirmed"
    WITHOUT_FILTER = "without_filter"
    UNWILDCARDED = "unwildcarded"
    DRAINED = "drained"
    WITHOUT_PACKETS = "without_packets"
    EXPIRING = "expiring"

    # Enum hashes its name in Python at each lookup; members are singletons, so identity serves.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class AnomalousMegaflow:
    """One megaflow with an anomaly. `match`: its masked fields as ovs-ofctl writes them."""

    anomaly: Anomaly
    service: str
    backend: str
    ufid: str | None
    match: str
    actions: str


@dataclass(frozen=True, slots=True)
class Unwildcarding:
    """Megaflows of one service that match bits which none of our flows matches.

    Attributes:
        fields: name of the field and those bits.
        in_port: ingress port of the first of them.
        flows: the foreign flows that match these bits (`foreign.attribute` finds them).
    """

    service: str
    fields: tuple[tuple[str, int], ...]
    megaflows: int
    in_port: str | None = None
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True, slots=True)
class OverriddenBlocks:
    """Megaflows outside all blocks that hold packets of blocks and deliver them elsewhere, or drop them.

    Attributes:
        blocks: its blocks that lose packets. Other packets of them may have megaflows of their own.
        packets: packets of these megaflows, which may include packets for other destinations.
        match: the match of the first of them.
        actions: the actions of all of them.
        flows: the foreign flows that do it (`foreign.attribute` finds them).
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


@dataclass(frozen=True, slots=True)
class BlockOffload:
    """One block as the datapath shows it.

    Attributes:
        verdict: the worst of its megaflows; ABSENT: it has none.
        verdicts: number of megaflows by verdict.
        packets: packets of all its megaflows.
        hw_packets: packets that the NIC forwarded.
        anomalies: number of megaflows by anomaly.
        entries_seen: indices of the service's entries that classified its packets.
    """

    block: ExpectedBlock
    verdict: Verdict
    verdicts: tuple[tuple[Verdict, int], ...]
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    anomalies: tuple[tuple[Anomaly, int], ...] = ()
    entries_seen: frozenset[int] = frozenset()

    @property
    def megaflows(self) -> int:
        return sum(count for _, count in self.verdicts)

    def count(self, anomaly: Anomaly) -> int:
        """Return the number of megaflows with this anomaly."""
        return next((count for found, count in self.anomalies if found is anomaly), 0)

    @property
    def slow_path(self) -> int:
        """Number of megaflows whose packets ovs-vswitchd handles."""
        return self.count(Anomaly.SLOW_PATH)

    @property
    def misdelivered(self) -> int:
        """Number of megaflows whose packets leave with another MAC or port than the block's flow says."""
        return self.count(Anomaly.MISDELIVERED)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Megaflows outside all blocks that share a reason."""

    reason: IgnoreReason
    megaflows: int
    packets: int
    in_hardware: int


@dataclass(frozen=True, slots=True)
class OffloadFindings:
    """All findings about one program.

    Attributes:
        blocks: all blocks in the order of the program.
        ignored: megaflows outside all blocks, by reason.
        unparsed: lines of the dump that could not be read, the first ones.
        unjudged: number of megaflows in a dump made without `-m`, which hides where they run.
        unwildcardings: services whose megaflows are narrower than planned, and the flows behind it.
        examples: the first few megaflows with each anomaly.
        overrides: blocks that foreign flows override; such megaflows are not among `ignored`.
        is_filtered: the dump may lack megaflows in software: all of it is offloaded, and blocks are missing.
        unparsed_more: number of unreadable lines beyond those in `unparsed`.
    """

    services: tuple[ExpectedService, ...]
    blocks: tuple[BlockOffload, ...]
    ignored: tuple[Ignored, ...]
    unparsed: tuple[ParseError, ...]
    unjudged: int
    unwildcardings: tuple[Unwildcarding, ...] = ()
    examples: tuple[AnomalousMegaflow, ...] = ()
    overrides: tuple[OverriddenBlocks, ...] = ()
    is_filtered: bool = False
    unparsed_more: int = 0

    @property
    def conclusion(self) -> Conclusion:
        """Whether all blocks with traffic are in hardware."""
        seen = [block for block in self.blocks if block.verdict is not Verdict.ABSENT]
        if self.unjudged or self.is_unparsed:
            return Conclusion.CHECK_FAILED
        if self.is_overridden:
            return Conclusion.NOT_ALL_IN_HARDWARE
        if not seen:
            return Conclusion.NOTHING_SEEN
        conclusion = conclude(all(block.verdict is Verdict.HW and not block.misdelivered for block in seen))
        # Without a packet to prove it, offloaded:yes is no success.
        is_proven = any(block.packets for block in seen) and not self.is_filtered
        is_unproven = conclusion is Conclusion.IN_HARDWARE and not is_proven
        return Conclusion.NOTHING_SEEN if is_unproven else conclusion

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Return `conclusion`; with `required` (0-1), whether the NIC forwards that share of packets."""
        undecided = (Conclusion.CHECK_FAILED, Conclusion.NOTHING_SEEN)
        if required is None or self.is_overridden or self.conclusion in undecided:
            return self.conclusion
        packets = sum(block.packets for block in self.blocks)
        if not packets:
            return Conclusion.NOTHING_SEEN
        in_hardware = sum(block.hw_packets for block in self.blocks)
        is_delivered = not any(block.misdelivered for block in self.blocks)
        return conclude(in_hardware >= required * packets and is_delivered)

    @property
    def is_overridden(self) -> bool:
        """Whether packets of a block are delivered elsewhere. Dropping some is a legitimate use of foreign flows."""
        return any(not override.is_drop for override in self.overrides)

    @property
    def is_unparsed(self) -> bool:
        """Whether the dump has lines, but no megaflow among them."""
        is_any_read = self.ignored or self.overrides or self.unjudged or any(block.megaflows for block in self.blocks)
        return bool(self.unparsed) and not is_any_read

    @property
    def absent(self) -> int:
        """Number of blocks without a megaflow."""
        return sum(block.verdict is Verdict.ABSENT for block in self.blocks)


def carry_over(earlier: OffloadFindings | None, later: OffloadFindings) -> OffloadFindings:
    """Return `later` with its ABSENT blocks replaced by those of `earlier`. Both must be of one program."""
    if earlier is None:
        return later
    pairs = zip(earlier.blocks, later.blocks, strict=True)
    blocks = tuple(before if now.verdict is Verdict.ABSENT else now for before, now in pairs)
    return replace(later, blocks=blocks)
