"""Two decisions compared: which share of the clients has another backend, by service and backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.decision.blocks import Owner
from xenoovs.decision.decision import Decision, ServiceDecision
from xenoovs.partition.bits import spread


@dataclass(frozen=True, slots=True)
class Shift:
    """Clients that one decision gives to `old` and the other to `new`; None: to nobody. share: 0 < share <= 1."""

    old: Owner | None
    new: Owner | None
    share: Fraction


@dataclass(frozen=True, slots=True)
class ServiceDifference:
    """One service in two decisions; a service that one of them lacks differs for all clients.

    Attributes:
        share: Of the clients that have different backends, 0..1.
        shifts: The largest first.
    """

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
    """Return who loses clients to whom, the largest part first. Each client counts once, whatever bits choose."""
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
    """Yield old owner, new owner and share for the blocks of both that have clients in common.

    Blocks under one mask are counted together, so that the work grows with blocks times masks.
    """
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
