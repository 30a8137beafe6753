"""Decide which backend gets which clients, and move as few clients as possible from the previous decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from heapq import heapify, heapreplace
from math import log

from xenoovs.decision.decision import IN_TURN, Blocks, Decision, DesiredState, Owner, ServiceDecision, Space, block_at
from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.model.balancer import Balancer, Churn, Service, service_ids
from xenoovs.model.remote import every_service
from xenoovs.partition.block import MAX_WIDTH, Assignment, Block
from xenoovs.partition.change import STEPS, Goal, failover, part_of, slow_start, start, update
from xenoovs.partition.solve import Partition, partition, whole_weights

_BLOCK_PRICE = {Churn.LEAST: Fraction(0), Churn.BALANCED: None, Churn.COMPACT: Fraction(1 << MAX_WIDTH)}
"""Units that may move to save one block (docs/adr/0016): none, the default of `Goal`, or all."""


def decide(previous: Decision, desired: DesiredState, *, met: DesiredState | None = None) -> Decision:
    """Return which backend gets which clients. Services without a previous decision get the fewest blocks.

    Args:
        previous: The decision in use; the result moves as few clients from it as the churn of a service allows.
        desired: What the result must meet. Its `stored` services are returned as they are.
        met: What `previous` was decided for, if known: services for which nothing differs stay untouched.

    Raises:
        ToleranceUnreachable: The bits of a key are too few for the weights.
        BudgetUnreachable: `max_flows` is below the number of backends with a weight.
    """
    before = dict(previous.services)
    configured = every_service(desired.balancer)
    ids = service_ids(service.claim for service in configured)
    same = set() if met is None else _unchanged(met, desired)
    services = {
        (i := ids[service.claim]): before[i]
        if service.name in same and i in before
        else _decide_service(service, before.get(i), desired)
        for service in configured
    }
    return Decision.of(services, version=previous.version)


def require_decidable(balancer: Balancer) -> None:
    """Check that flows can have the weights of every service, and those of its backups while no other backend serves.
    Raises ToleranceUnreachable, BudgetUnreachable: As `decide`."""
    others = {each.name: frozenset(b.name for b in each.backends if not b.is_backup) for each in balancer.services}
    decide(Decision(), DesiredState(balancer, ejected=others))


def undisturbed(previous: Decision, desired: DesiredState) -> DesiredState:
    """Return `desired` with the ejections, the held backends, and the slow starts that `previous` shows.

    For callers without health checks: a backend that an agent ejected stays ejected until the agent decides otherwise.
    Blocks of remotes do not move.
    """
    before = dict(previous.services)
    ids = service_ids(service.claim for service in desired.balancer.services)
    ejected, held = dict[str, frozenset[str]](), dict[str, frozenset[str]]()
    ramps = dict[tuple[str, str], Fraction]()
    for service in desired.balancer.services:
        found = before.get(ids[service.claim])
        if found is None:
            continue
        weighted = _weighted(service)
        displaced = {name: part for name in found.displaced & weighted if (part := _part(found, name)) < 1}
        ejected[service.name] = frozenset(name for name, part in displaced.items() if not part)
        if service.backups is not None and weighted <= ejected[service.name]:
            ejected[service.name] |= _weighted(service.backups) - found.active.owners
        ramps |= {(service.name, name): part for name, part in displaced.items() if part}
        if not ejected[service.name]:
            continue
        home, active = found.home.shares(), found.active.shares()
        same = frozenset(name for name in weighted if home.get(name) == active.get(name))
        # A backend that is up may have its own clients alone too: it is held only where the blocks say so.
        free = replace(desired, ejected=ejected, ramps=ramps)
        if same and _decide_service(service, found, free).active != found.active:
            held[service.name] = same
    return replace(desired, ejected=ejected, held=held, ramps=ramps)


def parts_served(found: ServiceDecision) -> dict[Owner, Fraction]:
    """Return the part (0..1) of its home blocks that each owner serves, in whole steps of a slow start."""
    whole = dict.fromkeys(found.home.owners | found.active.owners, Fraction(1))
    displaced = found.displaced
    return whole | {owner: _part(found, owner) for owner in displaced}


def tolerance_of(service: Service) -> Fraction:
    """Return the configured tolerance, or the one that the budget of flows needs."""
    return service.tolerance if service.max_flows is None else _fewest(service).tolerance


def goal_of(service: Service) -> Goal:
    """Return what a change of the service's blocks aims at."""
    price = _BLOCK_PRICE[service.churn]
    return Goal(service.weights, tolerance_of(service), service.key.max_width, price, service.max_flows)


def _unchanged(met: DesiredState, desired: DesiredState) -> set[str]:
    """Return the names of the services that are the same in both desired states."""
    before = {service.name: service for service in every_service(met.balancer)}
    easing = {names[0] for names, _ in {*met.ramps.items()} ^ {*desired.ramps.items()}}
    return {
        service.name
        for service in every_service(desired.balancer)
        if service.name not in easing
        and before.get(service.name) == service
        and met.ejected.get(service.name, frozenset()) == desired.ejected.get(service.name, frozenset())
        and met.held.get(service.name, frozenset()) == desired.held.get(service.name, frozenset())
        and met.placed.get(service.name) == desired.placed.get(service.name)
        and met.stored.get(service.name) == desired.stored.get(service.name)
    }


def _decide_service(service: Service, before: ServiceDecision | None, desired: DesiredState) -> ServiceDecision:
    if (stored := desired.stored.get(service.name)) is not None:
        return stored
    if before is not None and not before.key.agrees(service.key):
        before = None
    ejected = desired.ejected.get(service.name, frozenset())
    if service.is_remote:
        return _place(service, before, desired.placed.get(service.name), ejected)
    try:
        home = _home(service, before)
        held, ramps = desired.held.get(service.name, frozenset()), _ramps(service, desired, ejected)
        place = _active_whole if desired.balancer.uplinks.buckets else _active
        active = place(service, home, before, ejected, held, ramps)
    except ToleranceUnreachable as problem:
        raise problem.naming(f"{service.name}/{service.backends[problem.smallest].name}") from None
    except BudgetUnreachable as problem:
        raise problem.naming(service.name) from None
    return ServiceDecision(service.key, home, active)


def _place(
    service: Service, before: ServiceDecision | None, placed: Blocks | None, ejected: frozenset[str]
) -> ServiceDecision:
    """Return the blocks of a remote. Its paths have equal homes, and a block stays on its path while the path exists.
    Blocks of removed or ejected paths go to the paths that have the fewest; nothing else moves."""
    usable = [name for name in _names(service) if name in _weighted(service) - ejected]
    if not usable:
        return ServiceDecision(service.key, Blocks(), Blocks())
    home, width = _even_homes(service), service.key.max_width
    if placed is None and before is not None:
        placed = _inherited(service, before.active)
    if placed is None or placed.depth > width or not placed.owners & set(usable):
        placed = home
    units = [owner for _, size, owner in Space(width, placed.rows).parts(0, 1 << width) for _ in range(size)]
    held = Counter(owner for owner in units if owner in usable)
    for position, owner in enumerate(units):
        if owner not in usable:
            units[position] = heir = min(usable, key=lambda name: held[name])
            held[heir] += 1
    return ServiceDecision(
        service.key, home, Blocks.of((block_at(position, 1, width), owner) for position, owner in enumerate(units))
    )


def _even_homes(service: Service) -> Blocks:
    """Return equal shares in the order of the paths: so flows show which source port belongs to which path."""
    paths, width = [name for name in _names(service) if name in _weighted(service)], service.key.max_width
    return Blocks.of((block_at(unit, 1, width), paths[unit * len(paths) >> width]) for unit in range(1 << width))


def _inherited(service: Service, active: Blocks) -> Blocks:
    """Return the blocks under the present names of their paths."""
    old, owners = active.assignment()
    heirs = zip(owners, _heirs(service, old, owners), strict=True)
    names = _names(service)
    return active.renamed({owner: names[heir] for owner, heir in heirs if owner is not None and heir is not None})


def _names(service: Service) -> tuple[str, ...]:
    return tuple(backend.name for backend in service.backends)


def _home(service: Service, before: ServiceDecision | None) -> Blocks:
    """Return the blocks for the weights, near the previous ones. A backend that lost its weight while it served nothing
    keeps its home blocks as long as the others need no change."""
    if before is not None and _is_met_without_idle(service, before):
        return before.home
    names = tuple(backend.name for backend in service.backends)
    near = None if before is None or not before.home.rows else _near(service, before)
    return Blocks.of_assignment(near or _fewest(service).assignment, names)


def _is_met_without_idle(service: Service, before: ServiceDecision) -> bool:
    """Return whether idle backends have home blocks, and the other home blocks meet the other weights."""
    weights = {b.name: weight for b, weight in zip(service.backends, service.weights, strict=True)}
    weighted, shares = _weighted(service), before.home.shares()
    idle = before.ejected & weights.keys() - weighted
    is_whole = sum(shares.values()) == 1 and before.home.depth <= service.key.max_width
    if not idle or not weighted or not is_whole or shares.keys() - idle != weighted:
        return False
    total, tolerance = sum(weights[name] for name in weighted), tolerance_of(service)
    targets = {name: Fraction(weights[name]) / total for name in weighted}
    # The clients of the idle backends are added to the shares of the others: none may then have too many or too few.
    least = sum(max(shares[name], target * (1 - tolerance)) for name, target in targets.items())
    return least <= 1 and all(shares[name] <= target * (1 + tolerance) for name, target in targets.items())


def _near(service: Service, before: ServiceDecision) -> Assignment | None:
    """Return None if the key is too short for the previous blocks, or the result exceeds the budget of flows."""
    goal = goal_of(service)
    if max(before.home.depth, before.active.depth) > goal.max_width:
        return None
    old, names = before.home.assignment()
    heirs = dict(zip(names, _heirs(service, old, names), strict=True))
    leaving = {name for name, heir in heirs.items() if name is not None and (heir is None or not goal.weights[heir])}
    if leaving & before.displaced:
        old, names = _as_served(before, leaving, _weighted(service)).assignment()
    configured = dict(zip(names, _indices(service, names), strict=True))
    owners = [heirs.get(name, configured[name]) for name in names]
    begin = start(old, goal, owners=owners)
    if not begin.least_moved and _fits(held := begin.table.assignment(len(service.backends)), service):
        return held
    near = update(old, goal, owners=owners)
    return near if _fits(near, service) else None


def _as_served(before: ServiceDecision, leaving: Collection[Owner], weighted: Collection[Owner]) -> Blocks:
    """Return the home blocks. Blocks of leaving owners belong to the backends that serve their clients now."""
    staying = Blocks.of((block, owner) for block, owner in before.home.rows if owner not in leaving)
    serving = Blocks.of((block, owner) for block, owner in before.active.rows if owner in weighted)
    return staying.over(serving).over(before.home)


def _fits(blocks: Assignment, service: Service) -> bool:
    """Return whether the blocks are within the budget of flows, if there is one."""
    return service.max_flows is None or len(blocks.blocks) <= service.max_flows


def _heirs(service: Service, old: Assignment, names: tuple[Owner | None, ...]) -> list[int | None]:
    """Return the backend index of each old owner; None if it is gone. New backends take over the blocks of removed
    owners, the largest from the largest: a backend that got another next hop and another name keeps its blocks."""
    found = _indices(service, names)
    spaces = old.spaces()
    gone = [i for i, owner in enumerate(found) if owner is None and names[i] is not None]
    weights = service.weights
    idle = [i for i, weight in enumerate(weights) if weight and i not in found]
    gone.sort(key=lambda i: -spaces[i])
    idle.sort(key=lambda i: -weights[i])
    for left, heir in zip(gone, idle, strict=False):
        found[left] = heir
    return found


def _active(
    service: Service,
    home: Blocks,
    before: ServiceDecision | None,
    ejected: frozenset[str],
    held: frozenset[str],
    ramps: Mapping[str, Fraction],
) -> Blocks:
    """Return the assignment while `ejected` serve no clients and `ramps` serve a part; no other clients move.

    Backends of `held` serve their own clients only, unless all others are out. While no other backend serves, backups
    have all clients, by their weights.
    """
    names, weighted = tuple(backend.name for backend in service.backends), _weighted(service)
    serving = weighted - ejected
    if not serving:
        backups = service.backups
        if backups is None:
            return Blocks()
        return _active(backups, Blocks.of_assignment(_fewest(backups).assignment, names), before, ejected, held, {})
    ejected = ejected & weighted | home.owners - weighted
    if not ejected and not ramps:
        return home
    numbers = {name: number for number, name in enumerate(names)}
    whole = Assignment.of(home.depth, ((block, numbers[owner]) for block, owner in home.rows), len(names))
    goal = goal_of(service)
    down = {numbers[name] for name in (*ejected, *ramps)}
    closed = {numbers[name] for name in held & serving - ramps.keys()}
    # Clients that come back from backups, or go to them, go where they would go on a switch without a past.
    if before is None or before.active.depth > goal.max_width or not before.active.owners & serving:
        active = failover(whole, whole, goal=goal, down=down, closed=closed)
    else:
        last, owners = before.active.assignment()
        active = failover(whole, last, goal=goal, down=down, closed=closed, owners=_indices(service, owners))
    if ramps:
        parts = {numbers[name]: part for name, part in ramps.items()}
        active = slow_start(whole, active, parts=parts, max_width=goal.max_width)
    return Blocks.of_assignment(active, names)


def _active_whole(
    service: Service,
    home: Blocks,
    before: ServiceDecision | None,
    ejected: frozenset[str],
    held: frozenset[str],
    ramps: Mapping[str, Fraction],
) -> Blocks:
    """Return what `_active` returns, but move whole blocks only, as groups of the switch do."""
    if not home.rows:
        return _active(service, home, before, ejected, held, ramps)
    down = ejected | (home.owners - _weighted(service)) | ramps.keys()
    active = served(service, home, before, down, held - ramps.keys())
    if not ramps:
        return active
    names = tuple(dict.fromkeys((*_names(service), *home.owners)))
    numbers = {name: number for number, name in enumerate(names)}
    whole, below = (
        Assignment.of(blocks.depth, ((block, numbers[owner]) for block, owner in blocks.rows), len(names))
        for blocks in (home, active)
    )
    parts = {numbers[name]: part for name, part in ramps.items()}
    return Blocks.of_assignment(slow_start(whole, below, parts=parts, max_width=service.key.max_width), names)


def _ramps(service: Service, desired: DesiredState, ejected: frozenset[str]) -> dict[str, Fraction]:
    """Return the slow starts of a service; none if no other backend can serve the rest of the clients."""
    serving = _weighted(service) - ejected
    parts = {name: part for name in sorted(serving) if (part := desired.ramps.get((service.name, name), 1)) < 1}
    return {name: Fraction(part) for name, part in parts.items()} if len(parts) < len(serving) else {}


def _part(found: ServiceDecision, owner: Owner) -> Fraction:
    """Return the part of its home blocks that an owner serves: 0 if it serves none, else at least one step."""
    if owner not in found.active.owners:
        return Fraction(0)
    home, owners = found.home.assignment()
    active, serving = found.active.assignment()
    part = part_of(home, active, owners.index(owner), active_owner=serving.index(owner))
    return max(part, Fraction(1, STEPS))


def _indices(service: Service, owners: tuple[Owner | None, ...]) -> list[int | None]:
    numbers = {backend.name: number for number, backend in enumerate(service.backends)}
    return [None if owner is None else numbers.get(owner) for owner in owners]


def _weighted(service: Service) -> frozenset[str]:
    pairs = zip(service.backends, service.weights, strict=True)
    return frozenset(backend.name for backend, weight in pairs if weight)


def _fewest(service: Service) -> Partition:
    return partition(
        service.weights, tolerance=service.tolerance, max_width=service.key.max_width, max_flows=service.max_flows
    )


# Failover by whole blocks, as a switch does it alone: a block goes to the first live backend of an order of its own.
#
# An order depends on home blocks, weights and ports only, never on who is down. So it does not matter in which order
# backends go down and come back, or who noticed: the switch by its groups, or a decision a moment later.
#
# What dies is mostly a port. The first backends of an order are behind different ports, and each is chosen so that the
# shares come as near to the weights as whole blocks allow, with all ports of those before it dead. Behind them are the
# other backends, then the backups.


Weights = Mapping[Owner, Fraction]


class Orders:
    """The order of backends that take over each home block of one service, computed as far as needed."""

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
        """Return the port of a backend; a port that no other has for an owner that is not in the config."""
        return self._ports.get(owner, f"port of {owner}")

    def behind(self, port: str) -> frozenset[Owner]:
        return frozenset(name for name, of_backend in self._ports.items() if of_backend == port)

    def first(self, block: Block, down: Collection[Owner], closed: Collection[Owner] = ()) -> Owner | None:
        """Return the first backend of a block's order that is not down; one of `closed` only if all others are down."""
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
        """Add the next backend to each order whose backends are behind exactly these ports."""
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
    """Give each block, the largest first, to the backend that has the least of its share. `held`: units it has."""
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
    service: Service, home: Blocks, before: ServiceDecision | None, down: Collection[Owner], closed: Collection[Owner]
) -> Blocks:
    """Return the home blocks; blocks of backends that are down go to the first live backend of their orders. A block
    that another backend serves stays there until a backend comes back, even if `home` has changed. Backups have no home
    blocks that would show their return, so their first live one always serves."""
    orders = Orders(service, home)
    away = [block for block, owner in home.rows if owner in down]
    others = dict[Block, set[Owner]]()
    if before is not None and before.displaced <= set(down):
        for block, _, owner in before.active.within(away):
            others.setdefault(block, set()).update(() if owner is None else (owner,))
    usable = _weighted(service) - {*down, *closed}

    def owner_of(block: Block, owner: Owner) -> Owner | None:
        if owner not in down:
            return owner
        serving = others.get(block, set()) - {owner}
        return serving.pop() if len(serving) == 1 and serving <= usable else orders.first(block, down, closed)

    return Blocks.of((block, owner_of(block, owner)) for block, owner in home.rows)


def successions(
    service: Service, found: ServiceDecision, *, depth: int, out: Collection[Owner], closed: Collection[Owner]
) -> Blocks:
    """Return the active blocks, each with its owner and the owners that get it when all ports before theirs are dead.
    `depth`: most owners of a block. `out`: backends that get no clients."""
    orders = Orders(service, found.home)
    ramps = found.displaced - set(out)
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
    """Return the port if all backends are behind the same, so that none could take over; else None."""
    ports = {backend.next_hop.port for backend in service.backends if backend.weight}
    return ports.pop() if len(ports) == 1 else None
