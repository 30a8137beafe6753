"""The assignment of a service that a switch has now, read back from its flows: the switch is the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xenoovs.compile.key import block_of
from xenoovs.compile.movement import Piece, pieces
from xenoovs.model.block_key import BlockKey
from xenoovs.model.next_hop import NextHop
from xenoovs.model.service import Service
from xenoovs.openflow.flow import Flow
from xenoovs.partition import table
from xenoovs.partition.block import MAX_WIDTH, Assignment, Block


@dataclass(frozen=True, slots=True)
class InstalledAssignment:
    """Owner i of the assignment sends its clients to `hops[i]`; None: nobody serves them."""

    assignment: Assignment
    hops: tuple[NextHop | None, ...]

    def same_owners(self, service: Service) -> list[int | None]:
        """For each owner here the index of the backend with its next hop; None: there is none."""
        backends = reversed(tuple(enumerate(service.backends)))
        first = {backend.next_hop: index for index, backend in backends}
        return [None if hop is None else first.get(hop) for hop in self.hops]

    def owners_for(self, service: Service) -> list[int | None]:
        """For each owner here the index of the backend that it is in the config; None: it is gone.

        Where next hops are gone and backends have nothing yet, the largest take over from each other: a backend
        with a new MAC keeps its blocks.
        """
        found = self.same_owners(service)
        spaces = self.assignment.spaces()
        gone = [i for i, owner in enumerate(found) if owner is None and self.hops[i] is not None]
        idle = [i for i, weight in enumerate(service.weights) if weight and i not in found]
        gone.sort(key=lambda i: -spaces[i])
        idle.sort(key=lambda i: -service.weights[i])
        for old, heir in zip(gone, idle, strict=False):
            found[old] = heir
        return found


def installed_assignment(
    flows: Iterable[Flow], key: BlockKey, *, planned: Iterable[Flow] = ()
) -> InstalledAssignment | None:
    """What the block flows of one service say; None where they are not blocks of this key.

    `planned`: flows that go before the others, the memory of backends that are out: the result is then the plan.
    """
    parts, remembered = pieces(flows), pieces(planned)
    try:
        blocks = [block_of(part.value, part.mask, key) for part in (*parts, *remembered)]
    except ValueError:
        return None
    width = max((block.depth for block in blocks), default=0)
    if not blocks or width > MAX_WIDTH:
        return None
    hops = _distinct((*parts, *remembered))
    number = {hop: index for index, hop in enumerate(hops)}
    owners = (number[part.hop] for part in (*parts, *remembered))
    intervals = [_interval(block, owner, width) for block, owner in zip(blocks, owners, strict=True)]
    held = table.Table(width, intervals[: len(parts)])
    for gap in _gaps(held):
        held.put(table.Piece(*gap, number[None]))
    if remembered:
        held = _laid_over(held, table.Table(width, intervals[len(parts) :]))
    held.coalesce_all()
    return InstalledAssignment(held.assignment(len(hops)), hops)


def _laid_over(below: table.Table, above: table.Table) -> table.Table:
    """`above`, and `below` where it has nothing."""
    shown = [piece for gap in _gaps(above) for piece in below.within(*gap)]
    return table.Table(below.width, (*above, *shown))


def _distinct(parts: Iterable[Piece]) -> tuple[NextHop | None, ...]:
    return (*dict.fromkeys(part.hop for part in parts if part.hop is not None), None)


def _interval(block: Block, owner: int, width: int) -> table.Piece:
    return table.Piece(block.start(width), block.size(width), owner)


def _gaps(held: table.Table) -> Iterator[tuple[int, int]]:
    """Start and size of aligned intervals that fill what no piece covers: somebody has deleted a flow of ours."""
    position = 0
    for start, size in [*((piece.start, piece.size) for piece in held), (1 << held.width, 0)]:
        while position < start:
            aligned = position & -position or 1 << held.width
            room = 1 << ((start - position).bit_length() - 1)
            yield position, min(aligned, room)
            position += min(aligned, room)
        position = start + size
