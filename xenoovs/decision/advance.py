"""Drains: which blocks leave open connections at the old backend, and for how long.

A block begins to move when its owner in the active assignment changes. First it settles: new connections go to the old
backend until Open vSwitch has revalidated all megaflows. Then it is open: new connections go to the new backend. The
move ends when its time is over, or when the old backend gets no more packets of the block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from xenoovs.dataclass import dataclass, field
from xenoovs.decision.decision import (
    BlockMove,
    Blocks,
    Decision,
    DesiredState,
    Owner,
    Phase,
    Space,
    Transition,
    block_at,
    next_hop_of,
    next_hops,
    split,
)
from xenoovs.model.balancer import DrainMode, Protocol, Service, service_ids
from xenoovs.model.remote import every_service
from xenoovs.partition.block import Block

BlockId = tuple[int, Block]
"""A service id and one of its blocks."""

ServiceMove = tuple[int, BlockMove]
"""A service id and a move of one of its blocks."""

SETTLE_S = 2.0
"""Least time that a block settles: four times max-revalidator, which is 500 ms unless it is set
(ovs-vswitchd.conf.db(5)). On a slow switch revalidation takes longer, so time alone does not prove it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What drains depend on besides the decision. `ports`: names of the ports of the bridge; a drain ends when the port
    of its old backend is gone. `quiet`: blocks whose old backend gets no more packets. `settle_s`: least time that a
    block settles; if None, drains do not advance. `revalidated`: moves that were in the switch before Open vSwitch
    revalidated all megaflows; all moves if None."""

    now_s: float
    ports: Collection[str]
    quiet: Collection[BlockId] = field(default_factory=frozenset)
    settle_s: float | None = SETTLE_S
    revalidated: Collection[ServiceMove] | None = None


def settle_s(max_revalidator_ms: int | None) -> float:
    """Return the least time that blocks settle with this max-revalidator; None if it is not set or not known."""
    return max(SETTLE_S, SETTLE_S * (max_revalidator_ms or 0) / 500)


def advance(
    before: tuple[Decision, Transition], decision: Decision, desired: DesiredState, progress: Progress
) -> Transition:
    """Return the moves that lead from the present state of a switch to `decision`. `before`: the decision that the
    switch serves, and its moves under way. `desired`: what `decision` was made for, with the services that drain and
    the backends that serve."""
    old, transition = before
    served, moving, targets = dict(old.services), dict(transition.services), dict(decision.services)
    ids = service_ids(service.claim for service in every_service(desired.balancer))
    found = dict[int, tuple[BlockMove, ...]]()
    for service in desired.balancer.services:
        service_id = ids[service.claim]
        was, target = served.get(service_id), targets[service_id]
        if service.drain.mode is DrainMode.PIN and was is not None and was.key.agrees(target.key):
            drain = _Drain(service, service_id, desired, progress)
            found[service_id] = tuple(drain.moves(was.active, moving.get(service_id, ()), target.active))
    return Transition.of(found)


class _Drain:
    """The moves of one service."""

    def __init__(self, service: Service, service_id: int, desired: DesiredState, progress: Progress) -> None:
        self._drain, self._id, self._progress = service.drain, service_id, progress
        self._learns = service.claim.protocol in (None, Protocol.TCP)
        self._ejected = desired.ejected.get(service.name, frozenset())
        self._hops = next_hops(service)

    def moves(self, served: Blocks, moving: Iterable[BlockMove], target: Blocks) -> Iterator[BlockMove]:
        """Yield the moves that lead a switch from `served` to `target`."""
        held = list(split(served, moving))
        width = max((block.depth for block, _, _ in held), default=0)
        width = max(width, target.depth)
        space = Space(width, ((block, str(number)) for number, (block, _, _) in enumerate(held)))
        for block, new in target.rows:
            if self._is_usable(new):
                for start, size, number in space.parts(block.start(width), block.size(width)):
                    if number is not None:
                        yield from self._move(block_at(start, size, width), new, *held[int(number)])

    def _move(self, part: Block, new: Owner, block: Block, owner: Owner, move: BlockMove | None) -> Iterator[BlockMove]:
        """Yield the move of a part of a block to `new`, if it needs one. `owner`: has the block now, on which `move` is
        under way."""
        old = self._old(new, block, owner, move)
        if old is None:
            return
        goes_on = (block, owner) == (part, new)
        since_s = move.since_s if move is not None and goes_on else self._progress.now_s
        # A block that came back need not settle: its new connections went there all the time.
        is_open = old == new or self._is_open(owner, move)
        yield BlockMove(part, old, since_s, Phase.OPEN if is_open else Phase.SETTLING)

    def _old(self, new: Owner, block: Block, owner: Owner, move: BlockMove | None) -> Owner | None:
        """Return the owner of the open connections of a block that moves to `new`; None if it moves at once."""
        # Without a move the owner has them, otherwise those since the begin of the move.
        latest = self._serving(owner)
        if move is None:
            return None if latest == new else latest
        old = self._serving(move.old)
        is_over = self._age_s(move) >= self._drain.timeout_ms / 1000
        is_over = is_over or (self._id, block) in self._progress.quiet
        if owner == new:
            return None if is_over else old
        # A second move before the end of the first. Connections to the first target were learned one by one.
        return (None if latest == new else latest) if is_over or old is None else old

    def _is_open(self, owner: Owner, move: BlockMove | None) -> bool:
        if not self._learns:
            return True
        settle_s, revalidated = self._progress.settle_s, self._progress.revalidated
        if move is None or move.old == owner:
            # A block that came back is open, but perhaps it had not settled before.
            return False
        if move.phase is Phase.OPEN:
            return True
        is_seen = revalidated is None or (self._id, move) in revalidated
        return is_seen and settle_s is not None and self._age_s(move) >= settle_s

    def _age_s(self, move: BlockMove) -> float:
        return self._progress.now_s - move.since_s

    def _serving(self, owner: Owner) -> Owner | None:
        return owner if self._is_usable(owner) and owner not in self._ejected else None

    def _is_usable(self, owner: Owner) -> bool:
        """Return whether the switch has the ports that lead to an owner."""
        hop = next_hop_of(owner, self._hops)
        return hop is not None and hop.port in self._progress.ports
