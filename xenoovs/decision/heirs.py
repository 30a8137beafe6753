"""Failover by whole blocks, as a switch does it alone: a block goes to the first live backend of an order of its own.

An order depends on home blocks, weights and ports only, never on who is down. So it does not matter in which order
backends go down and come back, or who noticed: the switch by its groups, or a decision a moment later.

What dies is mostly a port. The first backends of an order are behind different ports, and each is chosen so that the
shares come as near to the weights as whole blocks allow, with all ports of those before it dead. Behind them are the
other backends, then the backups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from hashlib import blake2b
from heapq import heapify, heapreplace
from math import log

from xenoovs.decision.decision import IN_TURN, Blocks, Owner, ServiceDecision
from xenoovs.model.balancer import Service
from xenoovs.partition.block import Block
from xenoovs.partition.solve import whole_weights

Weights = Mapping[Owner, Fraction]


class Orders:
    """The orders of the home blocks of one service, made as far as they are asked for."""

    def __init__(self, service: Service, home: Blocks) -> None:
        pairs = zip(service.backends, service.weights, strict=True)
        self._weights = {backend.name: weight for backend, weight in pairs if weight}
        backups = service.backups
        spare = () if backups is None else zip(backups.backends, backups.weights, strict=True)
        self._spare = {backend.name: weight for backend, weight in spare if weight}
        self._ports = {backend.name: backend.next_hop.port for backend in service.backends}
        self._sizes = {block: block.size(home.depth) for block, _ in home.rows}
        self._orders = {block: [owner] for block, owner in home.rows}
        self._behind = {block: frozenset([self.port(owner)]) for block, owner in home.rows}
        self._backups: dict[Block, Owner] | None = None

    def port(self, owner: Owner) -> str:
        """Return the port of a backend; of an owner that the config lacks, one that no other has."""
        return self._ports.get(owner, f"port of {owner}")

    def behind(self, port: str) -> frozenset[Owner]:
        return frozenset(name for name, of_backend in self._ports.items() if of_backend == port)

    def first(self, block: Block, down: Collection[Owner], closed: Collection[Owner] = ()) -> Owner | None:
        """Return the first of a block's order that is not down; one of `closed` only if nobody else is left."""
        left = None
        for owner in self._order(block):
            if owner not in down:
                # Its own clients stay with a closed backend.
                if owner not in closed or owner == self._orders[block][0]:
                    return owner
                left = left or owner
        return left

    def _order(self, block: Block) -> Iterator[Owner]:
        order, position = self._orders[block], 0
        while position < len(order) or self._lengthen(self._behind[block]):
            yield order[position]
            position += 1
        yield from _shuffled(block, {name: w for name, w in self._weights.items() if name not in order})
        if self._spare:
            if self._backups is None:
                self._backups = dict(_dealt(self._sizes, self._spare, {}))
            first = self._backups[block]
            yield first
            yield from _shuffled(block, {name: w for name, w in self._spare.items() if name != first})

    def _lengthen(self, dead: frozenset[str]) -> bool:
        """Add the next backend to each order whose backends so far are behind all of these ports and no other."""
        weights = {name: weight for name, weight in self._weights.items() if self.port(name) not in dead}
        if not weights:
            return False
        held = dict.fromkeys(weights, 0)
        waiting = dict[Block, int]()
        for block, order in self._orders.items():
            while self._behind[block] < dead:
                self._lengthen(self._behind[block])
            if self._behind[block] == dead:
                waiting[block] = self._sizes[block]
            elif (owner := next(name for name in order if self.port(name) not in dead)) in held:
                held[owner] += self._sizes[block]
        for block, owner in _dealt(waiting, weights, held):
            self._orders[block].append(owner)
            self._behind[block] |= {self.port(owner)}
        return True


def _dealt(sizes: Mapping[Block, int], weights: Weights, held: Mapping[Owner, int]) -> Iterator[tuple[Block, Owner]]:
    """Give each block, the largest first, to the backend that has least of its share; `held`: units it has already."""
    names, whole = tuple(weights), whole_weights(tuple(weights.values()))
    units, total = sum(sizes.values()) + sum(held.values()), sum(whole)
    queue = [
        (held.get(name, 0) * total - units * weight, index)
        for index, (name, weight) in enumerate(zip(names, whole, strict=True))
    ]
    heapify(queue)
    for block in sorted(sizes, key=lambda block: (-sizes[block], block.depth, block.value)):
        surplus, index = queue[0]
        heapreplace(queue, (surplus + sizes[block] * total, index))
        yield block, names[index]


def _shuffled(block: Block, weights: Weights) -> list[Owner]:
    """Return backends by weighted rendezvous hashing (Schindelhauer and Schomaker, SPAA 2005)."""

    def score(name: Owner) -> float:
        digest = blake2b(f"{block.depth} {block.value} {name}".encode(), digest_size=6).digest()
        return -log((int.from_bytes(digest, "big") + 1) / (1 << 48)) / float(weights[name])

    return sorted(weights, key=score)


def served(
    service: Service,
    home: Blocks,
    before: ServiceDecision | None,
    down: Collection[Owner],
    closed: Collection[Owner],
) -> Blocks:
    """Return the home blocks, those of backends that are down with the first live backend of their orders.

    A block that another backend serves stays there while no backend has come back since, also if `home` has changed.
    """
    orders = Orders(service, home)
    away = [block for block, owner in home.rows if owner in down]
    others = dict[Block, set[Owner]]()
    if before is not None and before.displaced <= set(down):
        for block, _, owner in before.active.within(away):
            others.setdefault(block, set()).update(() if owner is None else (owner,))
    usable = {backend.name for backend in service.backends if backend.weight} - {*down, *closed}

    def owner_of(block: Block, owner: Owner) -> Owner | None:
        if owner not in down:
            return owner
        serving = others.get(block, set()) - {owner}
        return serving.pop() if len(serving) == 1 and serving <= usable else orders.first(block, down, closed)

    return Blocks.of((block, owner_of(block, owner)) for block, owner in home.rows)


def successions(
    service: Service, found: ServiceDecision, *, depth: int, ejected: Collection[Owner], closed: Collection[Owner]
) -> Blocks:
    """Return the active blocks, each with its owner and those who get it when the ports of all before them are dead.

    Args:
        depth: How many they are at most.
        ejected: Backends that get no clients now. Those that the decision shows to be are added.
    """
    orders = Orders(service, found.home)
    out = {*ejected, *found.ejected}
    ramps = found.displaced - out
    serving = {backend.name for backend, weight in zip(service.backends, service.weights, strict=True) if weight}

    def succession(block: Block, owner: Owner) -> Iterator[Owner]:
        gone = set(out)
        heir: Owner | None = owner
        for _ in range(depth):
            if heir is None:
                return
            yield heir
            gone |= orders.behind(orders.port(heir)) | {heir}
            # Where all that serve would start slowly, none does.
            slow = ramps - gone
            heir = orders.first(block, gone if slow >= serving - gone else gone | slow, closed)

    rows = ((block, part, owner) for block, part, owner in found.active.within(block for block, _ in found.home.rows))
    return Blocks.of((part, IN_TURN.join(succession(block, owner))) for block, part, owner in rows if owner is not None)


def lone_port(service: Service) -> str | None:
    """Return the port that all backends are behind, so that nobody could take over; None: they have several."""
    ports = {backend.next_hop.port for backend in service.backends if backend.weight}
    return ports.pop() if len(ports) == 1 else None
