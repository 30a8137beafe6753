"""What a plan means for the services: shares before and after, clients that move, hardware entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from xenoovs.compile.hardware import hardware_entries, installed_entries, ways_by_service
from xenoovs.compile.installed import InstalledAssignment, installed_assignment
from xenoovs.compile.movement import Piece, blocks_by_service, moved, pieces, shares
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.flow import Flow
from xenoovs.partition.windows import Window, windows


class Fate(Enum):
    """What happens to a service."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class BackendShare:
    """One backend before and after, as shares of the key space. `wanted`: by weight; None: not in the config."""

    name: str
    hop: NextHop
    wanted: Fraction | None
    before: Fraction
    after: Fraction


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """One service. `moved`: share of its clients that get another backend; `hardware_entries`: after the change.

    least_moved: the share that any change to these weights, within the tolerance, would move.
    out:         the names of the backends that get no clients, whatever their weight.
    """

    name: str
    service_id: int
    fate: Fate
    backends: tuple[BackendShare, ...]
    moved: Fraction
    blocks_before: int
    blocks_after: int
    hardware_entries_before: int
    hardware_entries: int
    least_moved: Fraction = Fraction(0)
    out: tuple[str, ...] = ()


def summarise(program: Program, observed: Iterable[Flow], *, same: Collection[int] = ()) -> Iterator[ServiceChange]:
    """The services of the config in its order, then those that disappear; each when it is asked for.

    `same`: ids of services that are known to be as they should be; they are left out.
    """
    seen = tuple(observed)
    installed, ways = blocks_by_service(seen), ways_by_service(seen)
    for service in program.services:
        if service.service_id not in same:
            blocks = installed.get(service.service_id, [])
            yield _of_config(service, blocks, _entries(ways, service.service_id, blocks))
    wanted = {service.service_id for service in program.services}
    for service_id, flows in sorted(installed.items()):
        if service_id not in wanted:
            yield _removed(service_id, flows, _entries(ways, service_id, flows))


def _entries(ways: Mapping[int, Counter[int | None]], service_id: int, blocks: list[Flow]) -> int:
    return installed_entries(ways[service_id], blocks) if blocks and service_id in ways else 0


def _of_config(service: ServiceProgram, installed: list[Flow], entries: int) -> ServiceChange:
    desired = blocks_by_service(service.flows).get(service.service_id, [])
    same = set(desired) == set(installed)
    before = pieces(installed)
    return ServiceChange(
        name=service.service.name,
        service_id=service.service_id,
        fate=Fate.SAME if same else Fate.CHANGED if installed else Fate.NEW,
        backends=_backend_shares(service, shares(before), _desired_shares(service)),
        moved=moved(before, pieces(desired)) if before and not same else Fraction(0),
        blocks_before=len(installed),
        blocks_after=len(desired),
        hardware_entries_before=entries,
        hardware_entries=hardware_entries(service),
        least_moved=_least_moved(service, installed) if before and not same else Fraction(0),
        out=tuple(service.service.backends[index].name for index in sorted(service.out)),
    )


def _least_moved(service: ServiceProgram, installed: list[Flow]) -> Fraction:
    """Lower bound: what some have too much has to go, and what others miss has to come, less what nobody has."""
    found = installed_assignment(installed, service.service.key)
    if found is None:
        return Fraction(0)
    width = max(found.assignment.width, service.assignment.width)
    held, unserved = _held(found, service, width)
    bounds = list(zip(held, _windows(service, width), strict=True))
    gone = (1 << width) - sum(held) - unserved
    over = gone + sum(max(0, units - hi) for units, (_, hi) in bounds)
    missing = sum(max(0, lo - units) for units, (lo, _) in bounds) - unserved
    return Fraction(max(over, missing, 0), 1 << width)


def _held(found: InstalledAssignment, service: ServiceProgram, width: int) -> tuple[list[int], int]:
    """Units of each backend of the config, and units that go nowhere."""
    held, unserved = [0] * len(service.service.backends), 0
    scale = 1 << (width - found.assignment.width)
    owners = found.same_owners(service.service)
    for units, owner, hop in zip(found.assignment.spaces(), owners, found.hops, strict=True):
        if owner is not None:
            held[owner] += units * scale
        elif hop is None:
            unserved += units * scale
    return held, unserved


def _windows(service: ServiceProgram, width: int) -> list[Window]:
    """The units that each backend may have; what it has after the change is among them, whatever it took."""
    weights = [0 if index in service.out else weight for index, weight in enumerate(service.service.weights)]
    after = [units << (width - service.assignment.width) for units in service.assignment.units]
    if not any(weights):
        return [Window(0, 0) for _ in weights]
    allowed = windows(weights, width, service.assignment.tolerance)
    return [Window(min(lo, units), max(hi, units)) for (lo, hi), units in zip(allowed, after, strict=True)]


def _desired_shares(service: ServiceProgram) -> dict[NextHop, Fraction]:
    backends = zip(service.service.backends, service.assignment.shares, strict=True)
    return {backend.next_hop: share for backend, share in backends}


def _backend_shares(
    service: ServiceProgram, before: Mapping[NextHop, Fraction], after: Mapping[NextHop, Fraction]
) -> tuple[BackendShare, ...]:
    total = sum(service.service.weights, Fraction(0))
    configured = {b.next_hop: b for b in service.service.backends}
    rows = [
        BackendShare(b.name, hop, b.weight / total, before.get(hop, Fraction(0)), after.get(hop, Fraction(0)))
        for hop, b in configured.items()
    ]
    strangers = [_stranger(hop, share) for hop, share in sorted(before.items()) if hop not in configured]
    return (*rows, *strangers)


def _removed(service_id: int, flows: list[Flow], entries: int) -> ServiceChange:
    before: tuple[Piece, ...] = pieces(flows)
    return ServiceChange(
        name=f"id {service_id:#x}",
        service_id=service_id,
        fate=Fate.REMOVED,
        backends=tuple(_stranger(hop, share) for hop, share in sorted(shares(before).items())),
        moved=Fraction(0),
        blocks_before=len(flows),
        blocks_after=0,
        hardware_entries_before=entries,
        hardware_entries=0,
    )


def _stranger(hop: NextHop, share: Fraction) -> BackendShare:
    return BackendShare("(not in the config)", hop, None, share, Fraction(0))
