"""The progress of drains by the counters of a switch: time left, quiet blocks, and the cost in hardware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import ceil

from xenoovs.compile.encoding import block_of, hop_of, key_bits
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.compile.read import is_in_drain_table, is_learned, learns, stage_number
from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import MAX_IDLE_S
from xenoovs.decision.advance import SETTLE_S, BlockId
from xenoovs.decision.decision import Phase, Space
from xenoovs.model.balancer import Protocol
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.flow import Flow, ObservedFlow, service_of
from xenoovs.partition.block import MAX_WIDTH


@dataclass(frozen=True, slots=True)
class Draining:
    """The moving blocks of one service.

    Attributes:
        ways: Pairs of old and new owner, sorted. Both are the same for blocks that came back before they had moved:
            some connections were opened elsewhere meanwhile.
        left_s: Until the last of them has moved, at the latest.
        is_settling: Whether new connections of some of them still go to the old backend.
        settles_s: Until all new connections go to the new backends; no longer than `left_s`.
        connections: How many connections were opened to new backends since.
        entries: Estimate of the hardware entries that connections take beside one for each block.
    """

    service: str
    ways: tuple[tuple[str, str], ...]
    blocks: int
    left_s: float
    is_settling: bool = False
    settles_s: float = 0.0
    connections: int = 0
    entries: int = 0

    @property
    def old(self) -> tuple[str, ...]:
        """The owners that have the open connections, sorted."""
        return tuple(sorted({old for old, _ in self.ways}))

    @property
    def new(self) -> tuple[str, ...]:
        """The owners that get the clients, sorted."""
        return tuple(sorted({new for _, new in self.ways}))


@dataclass(frozen=True, slots=True)
class Quiet:
    """Packets for the old backend of each moving block, and since when there are no more, up to `until_s`."""

    since: Mapping[BlockId, tuple[int, float]] = field(default_factory=dict)
    until_s: float = 0.0

    def after(self, packets: Mapping[BlockId, int], *, asked_s: float, read_s: float) -> Quiet:
        """Return the state after a count of `old_packets`. `packets`: all packets until `asked_s`, and some of those
        until `read_s`. On a busy switch seconds are between these."""
        found = {}
        for block, count in packets.items():
            before, since_s = self.since.get(block, (-1, read_s))
            found[block] = (count, since_s if count == before else read_s)
        return Quiet(found, asked_s)

    def blocks(self, program: Program) -> frozenset[BlockId]:
        """Return the blocks that have been quiet for the time that their service requires."""
        rest_s = {made.service_id: made.service.drain.idle_timeout_ms / 1000 for made in program.services}
        known = ((block, since_s) for block, (_, since_s) in self.since.items() if block[0] in rest_s)
        return frozenset(block for block, since_s in known if self.until_s - since_s >= rest_s[block[0]])


def drains_of(
    program: Program,
    observed: Iterable[ObservedFlow],
    *,
    now_s: float = 0.0,
    least_settle_s: float = SETTLE_S,
    idle_s: float = MAX_IDLE_S,
    opened: Mapping[int, int] | None = None,
) -> tuple[Draining, ...]:
    """Return the drains of a program, in the order of its services. `observed`: flows of the switch with counters.
    `now_s`: on the clock of the moves. `least_settle_s`: the time that blocks settle. `idle_s`: how long megaflows stay
    after their last packet. `opened`: an earlier result of `opened_connections`; None to count now."""
    if not any(made.moves for made in program.services):
        return ()
    seen = tuple(observed)
    counted = opened_connections(program, (each.flow for each in seen)) if opened is None else opened
    blocks = defaultdict[int, list[ObservedFlow]](list)
    for each in seen:
        if stage_number(each.flow) == Stage.BALANCE.value:
            blocks[service_of(each.flow.cookie)].append(each)
    return tuple(
        _draining(
            made,
            blocks[made.service_id],
            counted.get(made.service_id, 0),
            now_s=now_s,
            least_settle_s=least_settle_s,
            idle_s=idle_s,
        )
        for made in program.services
        if made.moves
    )


def opened_connections(program: Program, flows: Iterable[Flow]) -> dict[int, int]:
    """Return the number of learned connections of moving blocks to the new backends, by service id."""
    moving = {made.service_id: _Moving(made) for made in program.services if made.moves}
    found = dict.fromkeys(moving, 0)
    for flow in flows:
        service_id = service_of(flow.cookie)
        if service_id in moving and is_learned(flow):
            block = moving[service_id].at(flow)
            found[service_id] += block is not None and moving[service_id].is_to_new(flow, block)
    return found


def old_packets(program: Program, observed: Iterable[ObservedFlow]) -> dict[BlockId, int]:
    """Return how many packets of each moving block went elsewhere than to its new backend since the move began."""
    found = dict[BlockId, int]()
    services = {made.service_id: _Moving(made) for made in program.services if made.moves}
    for each in observed:
        service_id = service_of(each.flow.cookie)
        if service_id not in services or not is_in_drain_table(each.flow):
            continue
        moving = services[service_id]
        block = moving.at(each.flow)
        if block is not None and block.move is not None:
            key = service_id, block.move.block
            is_old = not (moving.is_to_new(each.flow, block) if is_learned(each.flow) else learns(each.flow))
            found[key] = found.get(key, 0) + each.packets * is_old
    return found


def leftover(program: Program, learned: Iterable[Flow], dead: Mapping[int, frozenset[NextHop]]) -> tuple[Flow, ...]:
    """Return the learned flows to delete: of services without a drain, and to next hops that are `dead`."""
    draining = {made.service_id for made in program.services if made.moves}
    found = ((service_of(flow.cookie), flow) for flow in learned)
    return tuple(flow for i, flow in found if i not in draining or hop_of(flow.actions) in dead.get(i, frozenset()))


class _Moving:
    """The moving blocks of one service, found by the flows of their packets."""

    def __init__(self, made: ServiceProgram) -> None:
        self._made = made
        self._by_mask = defaultdict[int, dict[int, BlockFlow]](dict)
        for block in made.blocks:
            if block.move is not None:
                self._by_mask[block.rule.mask][block.rule.value] = block

    def at(self, flow: Flow) -> BlockFlow | None:
        """Return the block whose packets match a flow."""
        value, mask = key_bits(flow)
        found = (at.get(value & known) for known, at in self._by_mask.items() if not known & ~mask)
        return next((block for block in found if block is not None), None)

    def is_to_new(self, flow: Flow, block: BlockFlow) -> bool:
        return hop_of(flow.actions) == self._made.hop(block.backend.name)


def _draining(
    made: ServiceProgram,
    blocks: Iterable[ObservedFlow],
    connections: int,
    *,
    now_s: float,
    least_settle_s: float,
    idle_s: float,
) -> Draining:
    begun = [now_s - move.since_s for move in made.moves]
    settling = [now_s - move.since_s for move in made.moves if move.phase is Phase.SETTLING]
    left_s = max(0.0, made.service.drain.timeout_ms / 1000 - min(begun))
    return Draining(
        made.service.name,
        ways=tuple(sorted({(b.move.old, b.backend.name) for b in made.blocks if b.move is not None})),
        blocks=len(made.moves),
        left_s=left_s,
        is_settling=bool(settling),
        settles_s=min(left_s, max(0.0, least_settle_s - min(settling, default=least_settle_s))),
        connections=connections,
        entries=ceil(sum(_rates(made, blocks)) * idle_s),
    )


def _rates(made: ServiceProgram, blocks: Iterable[ObservedFlow]) -> Iterator[float]:
    """Yield the packets per second of blocks that are in moving ones. Each connection with an entry has sent one."""
    if made.service.claim.protocol not in (None, Protocol.TCP):
        return
    moving = Space(MAX_WIDTH, ((move.block, "moving") for move in made.moves))
    for each in blocks:
        if not each.duration_s:
            continue
        try:
            block = block_of(*key_bits(each.flow), made.service.key)
        except ValueError:
            continue
        if any(owner for _, _, owner in moving.parts(block.start(MAX_WIDTH), block.size(MAX_WIDTH))):
            yield each.packets / each.duration_s
