"""The transition: blocks of one switch that are on their way to another backend, with connections still open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from xenoovs.decision.blocks import Blocks, Owner, Space, block_at
from xenoovs.partition.block import Block


class Phase(Enum):
    """SETTLING: new connections still go to the old backend. OPEN: they go to the new one."""

    SETTLING = "settling"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Move:
    """One block that leaves `old`, which keeps the open connections, for its owner in the active assignment.

    Attributes:
        since_s: When the move began, in seconds of the clock of whoever reads the switch.
        phase: Of a block that came back to `old` before it had moved: OPEN.
    """

    block: Block
    old: Owner
    since_s: float
    phase: Phase


@dataclass(frozen=True, slots=True)
class Transition:
    """The moves of every service, by service id. Local to one switch, because connections are."""

    services: tuple[tuple[int, tuple[Move, ...]], ...] = ()

    @classmethod
    def of(cls, services: Mapping[int, Iterable[Move]]) -> Transition:
        """Return the canonical value: services without moves are left out."""
        moves = {i: tuple(sorted(of, key=lambda m: (m.block.depth, m.block.value))) for i, of in services.items()}
        return cls(tuple(sorted((i, of) for i, of in moves.items() if of)))

    def moves(self, service_id: int) -> tuple[Move, ...]:
        return dict(self.services).get(service_id, ())


def split(active: Blocks, moves: Iterable[Move]) -> Iterator[tuple[Block, Owner, Move | None]]:
    """Yield the active blocks cut so that every move has blocks of its own, each with its owner and its move."""
    moving = {str(number): move for number, move in enumerate(moves)}
    if not moving:
        yield from ((block, owner, None) for block, owner in active.rows)
        return
    width = max(active.depth, *(move.block.depth for move in moving.values()))
    space = Space(width, ((move.block, number) for number, move in moving.items()))
    for block, owner in active.rows:
        for start, size, number in space.parts(block.start(width), block.size(width)):
            yield block_at(start, size, width), owner, None if number is None else moving[number]
