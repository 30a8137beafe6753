"""The decision: which backend has which clients of every service, as a value that any switch can compile."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.model.balancer import Backend, Balancer, BlockKey, DrainMode, Service, service_ids
from xenoovs.model.next_hop import NextHop, parse_next_hop
from xenoovs.model.remote import every_service
from xenoovs.partition.block import Assignment, Block, Piece, Table, reverse_bits, spread

# Blocks and their owners: which backend has which clients of one service, in canonical form.


Owner = str
"""The name of a backend, or `str(next_hop)` where no backend of the config has that next hop."""

IN_TURN = "\n"
"""Separates the owners of one block in the order in which they take over. No name of a backend contains it."""


def owners_of(row: Owner) -> tuple[Owner, ...]:
    """Return the owners in a row of `decide.successions`, or the one owner in a row of plain blocks."""
    return tuple(row.split(IN_TURN))


Row = tuple[Block, Owner]

Interval = tuple[int, int, Owner]
"""Start, size (a power of two that divides the start) and owner, in a space of `2**width` units."""

_NO_OWNER = ""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks and their owners. Clients in no block are dropped.

    The value is canonical: two `Blocks` that send every client to the same owner are equal. `rows`: blocks and their
    owners, sorted by depth and value, prefix-free and coalesced.
    """

    rows: tuple[Row, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[tuple[Block, Owner | None]]) -> Blocks:
        """Return the canonical form of blocks in any order. Where blocks overlap, the last one wins. `rows`: blocks and
        their owners; clients are dropped if the owner is None."""
        given = tuple(rows)
        width = max((block.depth for block, _ in given), default=0)
        space = Space(width)
        for block, owner in reversed(given):
            for start, size, held in tuple(space.parts(block.start(width), block.size(width))):
                if held is None:
                    space.put(start, size, owner or _NO_OWNER)
        return cls(_coalesced(width, (part for part in space if part[2] != _NO_OWNER)))

    @classmethod
    def of_assignment(cls, assignment: Assignment, owners: Iterable[Owner]) -> Blocks:
        """Return the blocks of an assignment; `owners`: the name of each backend index."""
        names = tuple(owners)
        return cls(_sorted((block, names[owner]) for block, owner in assignment.blocks))

    @property
    def depth(self) -> int:
        """Bits of the deepest block."""
        return max((block.depth for block, _ in self.rows), default=0)

    @property
    def owners(self) -> frozenset[Owner]:
        return frozenset([owner for _, owner in self.rows])

    @property
    def is_complete(self) -> bool:
        """Return whether every client is in a block."""
        width = self.depth
        return sum(block.size(width) for block, _ in self.rows) == 1 << width

    def shares(self) -> dict[Owner, Fraction]:
        """Return each owner's share of the clients, 0 < share <= 1."""
        width, units = self.depth, defaultdict[Owner, int](int)
        for block, owner in self.rows:
            units[owner] += block.size(width)
        return {owner: Fraction(count, 1 << width) for owner, count in units.items()}

    def assignment(self) -> tuple[Assignment, tuple[Owner | None, ...]]:
        """Return an assignment that covers all clients, and the owner of each index; None if its clients are
        dropped."""
        names: tuple[Owner | None, ...] = (*sorted(self.owners), None)
        numbers = {name: number for number, name in enumerate(names)}
        width = self.depth
        parts = Space(width, self.rows).parts(0, 1 << width)
        table = Table(width, (Piece(start, size, numbers[owner]) for start, size, owner in parts))
        table.coalesce_all()
        return table.assignment(len(names)), names

    def renamed(self, names: Mapping[Owner, Owner]) -> Blocks:
        """Return the same blocks with other names of owners; owners that `names` lacks keep theirs."""
        return Blocks.of((block, names.get(owner, owner)) for block, owner in self.rows) if names else self

    def over(self, below: Blocks) -> Blocks:
        """Return these blocks, and those of `below` where these have none."""
        return Blocks.of((*below.rows, *self.rows)) if self.rows else below

    def without(self, others: Blocks) -> Blocks:
        """Return the blocks that `others` lacks or has with another owner: `result.over(others)` equals these."""
        held = set(others.rows)
        return Blocks(tuple(row for row in self.rows if row not in held))

    def within(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, Block, Owner | None]]:
        """Yield each of `blocks` with its parts here and their owners; None if no block covers the part."""
        asked = tuple(blocks)
        width = max((self.depth, *(block.depth for block in asked)))
        space = Space(width, self.rows)
        for block in asked:
            for start, size, owner in space.parts(block.start(width), block.size(width)):
                yield block, block_at(start, size, width), owner


class Space:
    """Disjoint intervals of a space of `2**width` units and their owners."""

    def __init__(self, width: int, rows: Iterable[Row] = ()) -> None:
        """Raises ValueError for rows that overlap."""
        self.width = width
        intervals = sorted((block.start(width), block.size(width), owner) for block, owner in rows)
        if any(start + size > after for (start, size, _), (after, _, _) in pairwise(intervals)):
            raise ValueError("blocks overlap")
        self._held = {start: (size, owner) for start, size, owner in intervals}
        self._starts = [start for start, _, _ in intervals]

    def __iter__(self) -> Iterator[Interval]:
        return ((start, *self._held[start]) for start in self._starts)

    def put(self, start: int, size: int, owner: Owner) -> None:
        """Add an interval that is free."""
        self._held[start] = (size, owner)
        insort(self._starts, start)

    def parts(self, start: int, size: int) -> Iterator[tuple[int, int, Owner | None]]:
        """Yield the parts of an aligned interval, as aligned intervals, with their owners or None."""
        outer = size
        while outer <= 1 << self.width:
            found = self._held.get(start & -outer)
            if found is not None and found[0] >= outer:
                yield start, size, found[1]
                return
            outer *= 2
        index = bisect_left(self._starts, start)
        if index == len(self._starts) or self._starts[index] >= start + size:
            yield start, size, None
            return
        yield from self.parts(start, size // 2)
        yield from self.parts(start + size // 2, size // 2)


def block_at(start: int, size: int, width: int) -> Block:
    """Return the block of an aligned interval; the inverse of `Block.start` and `Block.size`."""
    depth = width + 1 - size.bit_length()
    return Block(reverse_bits(start >> (width - depth), depth), depth)


def _coalesced(width: int, intervals: Iterable[Interval]) -> tuple[Row, ...]:
    held = tuple(intervals)
    owners = tuple(dict.fromkeys(owner for _, _, owner in held))
    numbers = {owner: number for number, owner in enumerate(owners)}
    table = Table(width, (Piece(start, size, numbers[owner]) for start, size, owner in held))
    table.coalesce_all()
    return _sorted((block_at(piece.start, piece.size, width), owners[piece.owner]) for piece in table)


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row[0].depth, row[0].value)))


@dataclass(frozen=True, slots=True)
class ServiceDecision:
    """Which backend has which clients of one service. `home`: the blocks by weights; a backend that lost its weight
    while it served nothing keeps its blocks here. `active`: the blocks in use, where other backends have the blocks of
    ejected backends and a part of those in slow start. Where `home` has no block, `active` has none either."""

    key: BlockKey
    home: Blocks
    active: Blocks

    @property
    def displaced(self) -> frozenset[Owner]:
        """Return the owners that do not serve all of their home blocks now."""
        if self.home == self.active:
            return frozenset()
        owners = dict(self.home.rows)
        parts = self.active.within(owners)
        return frozenset(owners[block] for block, _, owner in parts if owner != owners[block])

    @property
    def ejected(self) -> frozenset[Owner]:
        """Return the owners that have home blocks and serve no clients now."""
        if self.home is self.active:
            return frozenset()
        return self.home.owners - self.active.owners


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend has which clients, for every service of a bridge. `services`: ids of services (32 bits) and their
    decisions, sorted by id. `version`: number of the change in a store of decisions; it is not compared."""

    services: tuple[tuple[int, ServiceDecision], ...] = ()
    version: int = field(default=0, compare=False)

    @classmethod
    def of(cls, services: Mapping[int, ServiceDecision], *, version: int = 0) -> Decision:
        return cls(tuple(sorted(services.items(), key=lambda pair: pair[0])), version)


# The transition: blocks of one switch that move to another backend and still have open connections.


class Phase(Enum):
    """SETTLING: new connections still go to the old backend. OPEN: they go to the new one."""

    SETTLING = "settling"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BlockMove:
    """One block that moves from `old` to its owner in the active assignment; open connections stay with `old`.
    `since_s`: when the move began, on the clock of the process that reads the switch. `phase`: OPEN if the block
    returned to `old` before it had moved."""

    block: Block
    old: Owner
    since_s: float
    phase: Phase


@dataclass(frozen=True, slots=True)
class Transition:
    """The moves of every service, by service id. Each switch has its own, as each has its own connections."""

    services: tuple[tuple[int, tuple[BlockMove, ...]], ...] = ()

    @classmethod
    def of(cls, services: Mapping[int, Iterable[BlockMove]]) -> Transition:
        """Return the canonical value: services without moves are left out."""
        moves = {i: tuple(sorted(of, key=lambda m: (m.block.depth, m.block.value))) for i, of in services.items()}
        return cls(tuple(sorted((i, of) for i, of in moves.items() if of)))


def split(active: Blocks, moves: Iterable[BlockMove]) -> Iterator[tuple[Block, Owner, BlockMove | None]]:
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


# What a decision has to meet: the config with the weights in use, and which backends may have clients now.


BackendName = tuple[str, str]
"""The name of a service and of one of its backends."""

Stored = Mapping[str, ServiceDecision]
"""Decisions of another process, by the names of services."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What config, health checks, operators and slow starts want of a bridge now.

    Attributes:
        balancer: The config with the weights in use; 0 for a backend that an operator drained.
        ejected: Names of the backends that get no clients, by the name of their service.
        ramps: Part of its clients (0 < part < 1) that each backend in a slow start has by now.
        placed: Which path has which blocks, by the name of the service of a remote; of one that is missing the
            blocks stay where they are.
        stored: What a store of decisions has for services of clients, by their names; for these nothing is decided.
        held: Names of the backends that are down and keep their clients, by service; they get none of others.
    """

    balancer: Balancer
    ejected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ramps: Mapping[BackendName, Fraction] = field(default_factory=dict)
    placed: Mapping[str, Blocks] = field(default_factory=dict)
    stored: Stored = field(default_factory=dict)
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)


def with_weights(balancer: Balancer, weights: Mapping[BackendName, Fraction]) -> Balancer:
    """Return the balancer with these weights; services without a change are the same objects."""
    if not weights:
        return balancer
    return replace(balancer, services=tuple(service_with_weights(service, weights) for service in balancer.services))


def service_with_weights(service: Service, weights: Mapping[BackendName, Fraction]) -> Service:
    """Return a service with these weights; the same object if none changes."""
    named = ((backend, weights.get((service.name, backend.name), backend.weight)) for backend in service.backends)
    backends = tuple(b if weight == b.weight else replace(b, weight=weight) for b, weight in named)
    return service if backends == service.backends else replace(service, backends=backends)


# Owners of blocks and the backends of a config: next hops, and names after a change of the config.


NextHops = Mapping[Owner, NextHop]


def next_hops(service: Service) -> dict[Owner, NextHop]:
    """Return the next hops of a service's backends, without the backends whose next hop is not known yet."""
    return {backend.name: backend.next_hop for backend in service.backends if backend.next_hop.is_known}


def next_hop_of(owner: Owner, hops: NextHops) -> NextHop | None:
    """Return the next hop of an owner; None if `hops` lacks the name."""
    found = hops.get(owner)
    if found is not None:
        return found
    try:
        return parse_next_hop(owner)
    except ValueError:
        return None


def owner_of(hop: NextHop, owners: Mapping[NextHop, Owner]) -> Owner:
    """Return the backend that has a next hop, or the next hop as text. `owners`: the inverse of `next_hops`."""
    owner = owners.get(hop)
    return str(hop) if owner is None else owner


def follow(
    decision: Decision, transition: Transition, *, before: Balancer, after: Balancer
) -> tuple[Decision, Transition]:
    """Return both with the names of owners in another config, so that blocks stay where they are.

    The next hop identifies a backend: exchanged names move no client. A backend given by its address is identified by
    the address. A backend with a new next hop stays the same if no other backend has its old next hop, and the service
    has no `drain: {mode: pin}`.
    """
    if before is after:
        return decision, transition
    configured = every_service(after)
    ids = service_ids(service.claim for service in configured)
    old = {service.claim: service for service in every_service(before)}
    # Mostly a service is the same object.
    names = {
        ids[service.claim]: _names(was, service)
        for service in configured
        if (was := old.get(service.claim)) is not None and was is not service
    }
    services = {i: _renamed(found, names.get(i, {})) for i, found in decision.services}
    moves = {
        i: tuple(replace(move, old=names.get(i, {}).get(move.old, move.old)) for move in found)
        for i, found in transition.services
    }
    return Decision.of(services, version=decision.version), Transition.of(moves)


def delivered(found: ServiceDecision, before: Service, after: Service) -> ServiceDecision:
    """Return the decision for a service, read from flows, with the names of another config: the next hop identifies a
    backend, or its address if no next hop is known."""
    old, new = ({one.name: _identity(one) for one in each.backends} for each in (before, after))
    owners = {identity: name for name, identity in new.items()}
    return _renamed(found, {name: owners.get(identity, identity) for name, identity in old.items()})


def _identity(backend: Backend) -> str:
    return str(backend.address if backend.follows or not backend.next_hop.is_known else backend.next_hop)


def _renamed(found: ServiceDecision, names: Mapping[Owner, Owner]) -> ServiceDecision:
    return replace(found, home=found.home.renamed(names), active=found.active.renamed(names)) if names else found


def _names(before: Service, after: Service) -> dict[Owner, Owner]:
    """Return the new names of the owners of one service whose names change."""
    old, new = next_hops(before), next_hops(after)
    owners = {hop: name for name, hop in new.items()}
    configured, is_pinned = {backend.name: backend for backend in after.backends}, after.drain.mode is DrainMode.PIN
    found = dict[Owner, Owner]()
    for backend in before.backends:
        hop = old.get(backend.name)
        if hop is None:
            continue
        heir = configured.get(backend.name)
        is_followed = heir is not None and backend.follows and heir.follows and backend.address == heir.address
        is_new = heir is not None and hop not in owners and new.get(backend.name) not in old.values() and not is_pinned
        if not (is_followed or is_new):
            found[backend.name] = owner_of(hop, owners)
    return {name: owner for name, owner in found.items() if name != owner}


# Two decisions compared: which share of the clients has another backend, by service and backend.


@dataclass(frozen=True, slots=True)
class Shift:
    """Clients that one decision gives to `old` and the other to `new`; None stands for no backend. 0 < share <= 1."""

    old: Owner | None
    new: Owner | None
    share: Fraction


@dataclass(frozen=True, slots=True)
class ServiceDifference:
    """One service in two decisions. A service that one of them lacks differs for all clients. `share`: part (0..1) of
    the clients that have different backends. `shifts`: the largest first."""

    service_id: int
    share: Fraction
    shifts: tuple[Shift, ...]


def compare(one: Decision, other: Decision) -> tuple[ServiceDifference, ...]:
    """Return the differences of the active assignments, for every service of either decision, by id."""
    before, after = dict(one.services), dict(other.services)
    return tuple(_service(i, before.get(i), after.get(i)) for i in sorted(before.keys() | after.keys()))


def moved(before: ServiceDecision, after: ServiceDecision) -> Fraction:
    """Return the share of the clients that had a backend and have another one."""
    found = shifts(before, after)
    return sum((shift.share for shift in found if shift.old is not None), Fraction(0))


def shifts(before: ServiceDecision, after: ServiceDecision) -> tuple[Shift, ...]:
    """Return which owner loses clients to which other, the largest share first. Each client counts once."""
    pairs = defaultdict[tuple[Owner | None, Owner | None], Fraction](Fraction)
    served = Fraction(0)
    lost, won = dict(before.active.shares()), dict(after.active.shares())
    for old, new, share in _common(before, after):
        pairs[old, new] += share
        lost[old] -= share
        won[new] -= share
        served += share
    pairs |= {(old, None): share for old, share in lost.items() if share}
    pairs |= {(None, new): share for new, share in won.items() if share}
    found = (Shift(old, new, share) for (old, new), share in pairs.items() if old != new)
    return tuple(sorted(found, key=lambda shift: (-shift.share, shift.old or "", shift.new or "")))


def _service(service_id: int, before: ServiceDecision | None, after: ServiceDecision | None) -> ServiceDifference:
    if before is not None and after is not None:
        found = shifts(before, after)
        return ServiceDifference(service_id, sum((shift.share for shift in found), Fraction(0)), found)
    only = before or after
    rows = () if only is None else sorted(only.active.shares().items())
    found = tuple(Shift(o, None, share) if before else Shift(None, o, share) for o, share in rows)
    return ServiceDifference(service_id, Fraction(1), tuple(sorted(found, key=lambda shift: -shift.share)))


def _common(before: ServiceDecision, after: ServiceDecision) -> Iterator[tuple[Owner, Owner, Fraction]]:
    """Yield old owner, new owner and share for each pair of blocks that have clients in common. Blocks under one mask
    are counted together, so that the work grows with blocks times masks."""
    if before.key.field is not after.key.field:
        # Different fields are independent of each other.
        for old, share in before.active.shares().items():
            for new, part in after.active.shares().items():
                yield old, new, share * part
        return
    old_masks, new_masks = _by_mask(before), _by_mask(after)
    for old_mask, mine in old_masks.items():
        for new_mask, theirs in new_masks.items():
            common, size = old_mask & new_mask, Fraction(1, 1 << (old_mask | new_mask).bit_count())
            there = defaultdict[int, Counter[Owner]](Counter)
            for value, owner in theirs:
                there[value & common][owner] += 1
            for value, owner in mine:
                for new, count in there.get(value & common, Counter[Owner]()).items():
                    yield owner, new, size * count


def _by_mask(service: ServiceDecision) -> dict[int, list[tuple[int, Owner]]]:
    found = defaultdict[int, list[tuple[int, Owner]]](list)
    for block, owner in service.active.rows:
        value, mask = spread(block, service.key.positions)
        found[mask].append((value, owner))
    return found


# A decision as JSON: what `xenoovs decision -o json` prints, and what files hold. `decision/document.py` reads it.


def decision_document(decision: Decision, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Return the document of a decision: `format` (1), `version` and `services`. A service has `id`, `key`, `home` and,
    where it differs from `home`, `active`. `names`: names of services by id, for people only."""
    services = [_document_of(i, service, (names or {}).get(i)) for i, service in decision.services]
    return {"format": 1, "version": decision.version, "services": services}


def _document_of(service_id: int, service: ServiceDecision, name: str | None) -> dict[str, Any]:
    key = service.key
    active = {} if service.active == service.home else {"active": _blocks_document(service.active)}
    return {
        "id": f"{service_id:#010x}",
        **({} if name is None else {"name": name}),
        "key": {
            "field": key.field.value,
            **({} if key.positions is None else {"positions": list(key.positions)}),
            **({} if key.width is None else {"width": key.width}),
        },
        "home": _blocks_document(service.home),
        **active,
    }


def _blocks_document(blocks: Blocks) -> dict[Owner, list[str]]:
    made: dict[Owner, list[str]] = {owner: [] for owner in sorted(blocks.owners)}
    for block, owner in blocks.rows:
        made[owner].append(f"{block.value:#x}/{block.depth}")
    return made
