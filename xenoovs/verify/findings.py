"""What an offload check found: blocks, services, anomalies, and what follows for the exit status."""

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

# Megaflows that no offload check counts as a failure, and why.
#
# NVIDIA's own check of a host leaves out the same: ARP, neighbour discovery, multicast 33:33, ICMP errors, drops, the
# first packet of a tracked connection, and the bridge's own ports.


_DESTINATION_UNREACHABLE = {"icmp": 3, "icmpv6": 1}
"""RFC 792; RFC 4443, 3.1."""

_NEW_TRACKED = 0x21
"""ct_state +new+trk (ovs-fields(7)): the connection is not established yet, and what follows is another megaflow."""


class Reason(Enum):
    """Why a megaflow of no block is not judged. OTHER: it could be offloaded, but is of no service of the config."""

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
        return self not in (Reason.RECIRCULATED, Reason.OTHER)


def reason_of(megaflow: Megaflow, internal_ports: Set[str], fields: Mapping[str, MaskedValue] | None = None) -> Reason:
    """The first reason that applies. `internal_ports`: names of bridges and of their ports of type internal.

    fields: the match of the megaflow, where it is known already.
    """
    fields = match_of(megaflow) if fields is None else fields
    eth_type, icmp_type, destination = (fields.get(name) for name in ("dl_type", "icmp_type", "dl_dst"))
    if eth_type is not None and eth_type.value == ETH_ARP:
        return Reason.ARP
    if icmp_type is not None and icmp_type.mask:
        names = {key.name for key in megaflow.keys}
        if "icmpv6" in names and icmp_type.value in NEIGHBOUR_DISCOVERY:
            return Reason.NEIGHBOUR_DISCOVERY
        if any(name in names and icmp_type.value == code for name, code in _DESTINATION_UNREACHABLE.items()):
            return Reason.UNREACHABLE
    if destination and destination.mask >> 40 & 1 and destination.value >> 40 & 1:
        return Reason.MULTICAST
    return _by_actions(megaflow, internal_ports)


def _by_actions(megaflow: Megaflow, internal_ports: Set[str]) -> Reason:
    if megaflow.actions == ("drop",):
        return Reason.DROP
    if _is_new(megaflow.key("ct_state")):
        return Reason.NEW_CONNECTION
    if megaflow.in_port in internal_ports or not internal_ports.isdisjoint(megaflow.actions):
        return Reason.INTERNAL_PORT
    return Reason.RECIRCULATED if megaflow.recirc_id else Reason.OTHER


@lru_cache(maxsize=1024)
def _is_new(ct_state: str | None) -> bool:
    if ct_state is None:
        return False
    try:
        return read_masked(ct_state, 32).value & _NEW_TRACKED == _NEW_TRACKED
    except ValueError:
        # As without -m: `+new-est+trk`.
        return "+new" in ct_state and "+trk" in ct_state


class Conclusion(IntEnum):
    """The exit status. Blocks without a megaflow count neither way: they have had no traffic."""

    IN_HARDWARE = 0
    COULD_NOT_LOOK = 1
    NOT_ALL_IN_HARDWARE = 2
    NOTHING_SEEN = 3


def conclude(is_met: object) -> Conclusion:
    """What follows where something was seen, by the truth of `is_met`."""
    return Conclusion.IN_HARDWARE if is_met else Conclusion.NOT_ALL_IN_HARDWARE


class Oddity(Enum):
    """What a megaflow of a block should not be, whatever its verdict.

    MISDELIVERED:  packets leave with another MAC or by another port than the block's flow says.
    SLOW_PATH:     each packet passes ovs-vswitchd (`userspace(...)`).
    CONTRADICTED:  the dump says that it is in hardware, the filter of traffic control says that it is not.
    UNCONFIRMED:   the dump says that it is in hardware, its filter says neither: old kernels do that without a NIC.
    WITHOUT_FILTER: the dump says traffic control, but no filter there has its cookie.
    WIDENED:       its mask has bits that none of our flows looks at: a flow of somebody else made it narrower.
    DRAINED:       of a block that moves: one connection, whose packets stay with the backend that they have.
    WITHOUT_PACKETS: in hardware, and no packet was counted: it is new, or the NIC does not do what it was told.
    EXPIRING:      its last packet is almost max-idle ago; it will be gone soon.
    """

    MISDELIVERED = "misdelivered"
    SLOW_PATH = "slow_path"
    CONTRADICTED = "contradicted"
    UNCONFIRMED = "unconfirmed"
    WITHOUT_FILTER = "without_filter"
    WIDENED = "widened"
    DRAINED = "drained"
    WITHOUT_PACKETS = "without_packets"
    EXPIRING = "expiring"

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Instance:
    """One megaflow with an oddity. `match`: its masked fields in the words of ovs-fields(7)."""

    oddity: Oddity
    service: str
    backend: str
    ufid: str | None
    match: str
    actions: str


@dataclass(frozen=True, slots=True)
class Widening:
    """Megaflows of one service that are narrower than our flows make them.

    fields:  name of the field and the bits that nobody of ours looks at.
    in_port: where the first of them came in.
    flows:   the flows of others that look at such bits where these packets pass (`widened.name_foreign` finds them).
    """

    service: str
    fields: tuple[tuple[str, int], ...]
    megaflows: int
    in_port: str | None = None
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True, slots=True)
class Taking:
    """Megaflows of no block that hold packets of blocks of one service and deliver them elsewhere, or drop them.

    blocks:  those that lose packets; seen or not, since of other packets there may be megaflows of their own.
    packets: of these megaflows, which may hold packets of other destinations too.
    match:   the fields of the first of them. `actions`: of all of them.
    flows:   the flows of others that do it (`taken.name_takers` finds them).
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
        """Whether they go nowhere, as by a blocklist."""
        return self.actions == "drop"


@dataclass(frozen=True, slots=True)
class BlockOffload:
    """One block as the datapath shows it.

    verdict:       the worst of its megaflows; ABSENT: there is none.
    verdicts:      how many megaflows have which verdict.
    hw_packets:    of `packets`, those that the NIC forwarded; `hw_bytes` likewise.
    oddities:      how many megaflows have which oddity.
    entries_seen:  indices of the service's entries that its packets came by.
    """

    block: ExpectedBlock
    verdict: Verdict
    verdicts: tuple[tuple[Verdict, int], ...]
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    oddities: tuple[tuple[Oddity, int], ...] = ()
    entries_seen: frozenset[int] = frozenset()

    @property
    def megaflows(self) -> int:
        return sum(count for _, count in self.verdicts)

    def count(self, oddity: Oddity) -> int:
        return next((count for found, count in self.oddities if found is oddity), 0)

    @property
    def slow_path(self) -> int:
        """Megaflows whose packets go through ovs-vswitchd itself."""
        return self.count(Oddity.SLOW_PATH)

    @property
    def misdelivered(self) -> int:
        """Megaflows whose packets leave with another MAC or port than the block's flow says."""
        return self.count(Oddity.MISDELIVERED)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Megaflows of no block that share a reason, and how many of them are in hardware."""

    reason: Reason
    megaflows: int
    packets: int
    in_hardware: int


@dataclass(frozen=True, slots=True)
class OffloadFindings:
    """All blocks in the order of the program.

    ignored:   megaflows of no block, by reason.
    torn:      lines of the dump that could not be read, the first ones; torn_more: how many there are beyond.
    unjudged:  megaflows in a dump made without `-m`, which hides where they run and the names of their ports.
    widenings: which services have narrower megaflows than planned, and by whose flows.
    instances: the first few megaflows of each oddity.
    taken:     packets of blocks that others take elsewhere; such megaflows are not among `ignored`.
    is_filtered: the dump may lack what is not offloaded: all of it is, and blocks are missing.
    """

    services: tuple[ExpectedService, ...]
    blocks: tuple[BlockOffload, ...]
    ignored: tuple[Ignored, ...]
    torn: tuple[ParseError, ...]
    unjudged: int
    widenings: tuple[Widening, ...] = ()
    instances: tuple[Instance, ...] = ()
    taken: tuple[Taking, ...] = ()
    is_filtered: bool = False
    torn_more: int = 0

    @property
    def conclusion(self) -> Conclusion:
        seen = [block for block in self.blocks if block.verdict is not Verdict.ABSENT]
        if self.unjudged or self.is_unread:
            return Conclusion.COULD_NOT_LOOK
        if self.is_diverted:
            return Conclusion.NOT_ALL_IN_HARDWARE
        if not seen:
            return Conclusion.NOTHING_SEEN
        reached = conclude(all(block.verdict is Verdict.HW and not block.misdelivered for block in seen))
        # Offloaded by the word of Open vSwitch alone, with no packet to prove it, is no success yet.
        is_proven = any(block.packets for block in seen) and not self.is_filtered
        is_unproven = reached is Conclusion.IN_HARDWARE and not is_proven
        return Conclusion.NOTHING_SEEN if is_unproven else reached

    def conclusion_for(self, required: float | None) -> Conclusion:
        """As `conclusion`; with `required`, 0..1, what counts is the share of packets that the NIC forwards."""
        undecided = (Conclusion.COULD_NOT_LOOK, Conclusion.NOTHING_SEEN)
        if required is None or self.is_diverted or self.conclusion in undecided:
            return self.conclusion
        packets = sum(block.packets for block in self.blocks)
        if not packets:
            return Conclusion.NOTHING_SEEN
        in_hardware = sum(block.hw_packets for block in self.blocks)
        is_delivered = not any(block.misdelivered for block in self.blocks)
        return conclude(in_hardware >= required * packets and is_delivered)

    @property
    def is_diverted(self) -> bool:
        """Whether packets of a block go to somebody else. Dropping some is what people have flows above ours for."""
        return any(not taking.is_drop for taking in self.taken)

    @property
    def is_unread(self) -> bool:
        """Whether there was text, and not one megaflow in it."""
        is_any_read = self.ignored or self.taken or self.unjudged or any(block.megaflows for block in self.blocks)
        return bool(self.torn) and not is_any_read

    @property
    def absent(self) -> int:
        """Blocks that no megaflow was seen of."""
        return sum(block.verdict is Verdict.ABSENT for block in self.blocks)


def carry_over(earlier: OffloadFindings | None, later: OffloadFindings) -> OffloadFindings:
    """`later`, but blocks that are ABSENT there as `earlier` saw them: of several looks, the last that saw the block.

    Both must be of one program.
    """
    if earlier is None:
        return later
    pairs = zip(earlier.blocks, later.blocks, strict=True)
    blocks = tuple(before if now.verdict is Verdict.ABSENT else now for before, now in pairs)
    return replace(later, blocks=blocks)
