"""Whether the NIC forwards each block: a dump of megaflows judged against what a program expects.

Packets, not bytes, compare between layers: software traffic control leaves 14 bytes of each frame out of its count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import lru_cache

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.errors import ParseError
from xenoovs.model.intent import NEIGHBOUR_DISCOVERY
from xenoovs.openflow.field import ETH_ARP
from xenoovs.openflow.value import render_mac
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.join import index_blocks
from xenoovs.verify.verdict import Verdict, verdict_of


class Conclusion(IntEnum):
    """The exit status. Blocks without a megaflow count neither way: they have had no traffic."""

    IN_HARDWARE = 0
    COULD_NOT_LOOK = 1
    NOT_ALL_IN_HARDWARE = 2
    NOTHING_SEEN = 3


class Reason(Enum):
    """Why a megaflow of no block is not judged. All but OTHER are left out by NVIDIA's own offload checks as well."""

    ARP = "arp"
    NEIGHBOUR_DISCOVERY = "neighbour discovery"
    MULTICAST = "multicast"
    DROP = "drop"
    RECIRCULATED = "recirculated"
    OTHER = "of no service"


@dataclass(frozen=True, slots=True)
class BlockOffload:
    """One block as the datapath shows it.

    verdict:       the worst of its megaflows; ABSENT: there is none.
    verdicts:      how many megaflows have which verdict.
    hw_packets:    of `packets`, those of megaflows in hardware; `hw_bytes` likewise.
    slow_path:     megaflows whose packets go through ovs-vswitchd itself (`userspace(...)`).
    misdelivered:  megaflows whose packets leave with another MAC or port than the block's flow says.
    """

    block: ExpectedBlock
    verdict: Verdict
    verdicts: tuple[tuple[Verdict, int], ...]
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    slow_path: int
    misdelivered: int


@dataclass(frozen=True, slots=True)
class OffloadFindings:
    """All blocks in the order of the program. `ignored`: megaflows of no block, by reason. `torn`: lines not read.

    unjudged: megaflows in a dump made without `-m`, which hides where they run and the names of their ports.
    """

    blocks: tuple[BlockOffload, ...]
    ignored: tuple[tuple[Reason, int], ...]
    torn: tuple[ParseError, ...]
    unjudged: int

    @property
    def conclusion(self) -> Conclusion:
        seen = [block for block in self.blocks if block.verdict is not Verdict.ABSENT]
        if self.unjudged:
            return Conclusion.COULD_NOT_LOOK
        if not seen:
            return Conclusion.NOTHING_SEEN
        if all(block.verdict is Verdict.HW and not block.misdelivered for block in seen):
            return Conclusion.IN_HARDWARE
        return Conclusion.NOT_ALL_IN_HARDWARE


def check_offload(services: Iterable[ExpectedService], megaflows: Iterable[Megaflow | ParseError]) -> OffloadFindings:
    """Judge a dump, as `datapath.parse.scan_dump` reads it, against the expected services. Never raises."""
    expected = tuple(services)
    index = index_blocks(expected)
    tallies = {id(block): _Tally(block) for service in expected for block in service.blocks}
    ignored, torn, unjudged = Counter[Reason](), list[ParseError](), 0
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            torn.append(megaflow)
        elif (verdict := verdict_of(megaflow)) is None:
            unjudged += 1
        elif (block := index.find(megaflow)) is None:
            ignored[_reason(megaflow)] += 1
        else:
            tallies[id(block)].add(megaflow, verdict)
    reasons = tuple((reason, ignored[reason]) for reason in Reason if ignored[reason])
    return OffloadFindings(tuple(tally.result() for tally in tallies.values()), reasons, tuple(torn), unjudged)


@dataclass(slots=True)
class _Tally:
    block: ExpectedBlock
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    packets: int = 0
    bytes: int = 0
    hw_packets: int = 0
    hw_bytes: int = 0
    slow_path: int = 0
    misdelivered: int = 0

    def add(self, megaflow: Megaflow, verdict: Verdict) -> None:
        self.verdicts[verdict] += 1
        self.packets += megaflow.packets
        self.bytes += megaflow.bytes
        if verdict is Verdict.HW:
            self.hw_packets += megaflow.packets
            self.hw_bytes += megaflow.bytes
        is_slow = any(action.startswith("userspace(") for action in megaflow.actions)
        self.slow_path += is_slow
        self.misdelivered += not is_slow and not _delivers(megaflow, self.block)

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
            slow_path=self.slow_path,
            misdelivered=self.misdelivered,
        )


def _delivers(megaflow: Megaflow, block: ExpectedBlock) -> bool:
    """Whether packets leave as the block's flow says."""
    if not _leaves_by(megaflow.actions, block.egress):
        return False
    if block.dl_dst is None or _writes(megaflow.actions, block.dl_dst):
        return True
    # A packet that comes with the backend's MAC already is not rewritten.
    came_with = match_of(megaflow).get("dl_dst")
    return came_with is not None and came_with.value == block.dl_dst


@lru_cache(maxsize=4096)
def _leaves_by(actions: tuple[str, ...], egress: str | None) -> bool:
    """Whether the port is among the actions. Behind a tunnel it has a name that Open vSwitch chose."""
    is_tunnel = any(action.startswith(("set(tunnel(", "tnl_push(")) for action in actions)
    return egress is None or is_tunnel or egress in actions


@lru_cache(maxsize=4096)
def _writes(actions: tuple[str, ...], dl_dst: int) -> bool:
    destination = f"dst={render_mac(dl_dst)}"
    return any(action.startswith("set(eth(") and destination in action for action in actions)


def _reason(megaflow: Megaflow) -> Reason:
    fields = match_of(megaflow)
    icmp_type, destination = fields.get("icmp_type"), fields.get("dl_dst")
    if megaflow.eth_type == ETH_ARP:
        return Reason.ARP
    if any(key.name == "icmpv6" for key in megaflow.keys) and icmp_type and icmp_type.value in NEIGHBOUR_DISCOVERY:
        return Reason.NEIGHBOUR_DISCOVERY
    if destination and destination.mask >> 40 & 1 and destination.value >> 40 & 1:
        return Reason.MULTICAST
    if megaflow.actions == ("drop",):
        return Reason.DROP
    return Reason.RECIRCULATED if megaflow.recirc_id else Reason.OTHER
