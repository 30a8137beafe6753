"""Who goes where: the shares of the address space that flows give to destinations, and how much of it moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.compile.matching import SOURCE_FIELD
from xenoovs.compile.pipeline import Stage
from xenoovs.openflow.action import Output, SetField
from xenoovs.openflow.cookie import decode_cookie
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """Where a block sends its clients: Ethernet address and port name."""

    mac: int
    port: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the address space under one mask that goes to one place (None: dropped, or foreign actions)."""

    value: int
    mask: int
    destination: Destination | None

    @property
    def size(self) -> Fraction:
        return Fraction(1, 1 << self.mask.bit_count())


def blocks_by_service(flows: Iterable[Flow]) -> dict[int, list[Flow]]:
    """The flows that balance, by service id; all others are left out."""
    found = defaultdict[int, list[Flow]](list)
    for flow in flows:
        cookie = decode_cookie(flow.cookie)
        if cookie is not None and cookie.service and cookie.stage >= Stage.BALANCE.value:
            found[cookie.service].append(flow)
    return dict(found)


def pieces(flows: Iterable[Flow]) -> tuple[Piece, ...]:
    """Disjoint pieces of the address space of one service; of two IP families the first stands for both."""
    by_family = defaultdict[int, list[Flow]](list)
    for flow in flows:
        dl_type = flow.match.get(Field.DL_TYPE)
        if dl_type is not None:
            by_family[dl_type.value].append(flow)
    first = by_family[min(by_family)] if by_family else []
    rules = sorted(((flow.priority, *_source(flow), _destination(flow)) for flow in first), key=lambda r: -r[0])
    made = tuple(Piece(value, mask, destination) for _, value, mask, destination in rules)
    return made if sum(piece.size for piece in made) <= 1 else _resolve_overlaps(made)


def shares(parts: Iterable[Piece]) -> Mapping[Destination, Fraction]:
    """The share of the address space that each destination gets."""
    found = defaultdict[Destination, Fraction](Fraction)
    for piece in parts:
        if piece.destination is not None:
            found[piece.destination] += piece.size
    return dict(found)


def moved(before: Iterable[Piece], after: Iterable[Piece]) -> Fraction:
    """The share of the address space that had a destination and gets another one. Both sets are disjoint."""
    old, new = _by_mask(before), _by_mask(after)
    stays = sum(
        (
            _overlap(mine, theirs, old_mask, new_mask)
            for old_mask, mine in old.items()
            for new_mask, theirs in new.items()
        ),
        Fraction(0),
    )
    return sum((piece.size for group in old.values() for piece in group), Fraction(0)) - stays


def _overlap(old: list[Piece], new: list[Piece], old_mask: int, new_mask: int) -> Fraction:
    common = old_mask & new_mask
    index = defaultdict[int, list[Piece]](list)
    for piece in old:
        index[piece.value & common].append(piece)
    same = sum(
        mine.destination == theirs.destination for theirs in new for mine in index.get(theirs.value & common, ())
    )
    return Fraction(same, 1 << (old_mask | new_mask).bit_count())


def _by_mask(parts: Iterable[Piece]) -> dict[int, list[Piece]]:
    found = defaultdict[int, list[Piece]](list)
    for piece in parts:
        found[piece.mask].append(piece)
    return dict(found)


def _resolve_overlaps(rules: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Rules by falling priority to disjoint units of all bits that any of them looks at (at most 16: 65,536 units)."""
    everything = 0
    for rule in rules:
        everything |= rule.mask
    found: list[Piece] = []
    unit = 0
    while True:
        owner = next((rule for rule in rules if unit & rule.mask == rule.value), None)
        if owner is not None:
            found.append(Piece(unit, everything, owner.destination))
        # The next number among those whose bits lie in the mask; 0 again after the last.
        unit = (unit - everything) & everything
        if unit == 0:
            return tuple(found)


def _source(flow: Flow) -> tuple[int, int]:
    for field in SOURCE_FIELD.values():
        masked = flow.match.get(field)
        if masked is not None:
            return masked.value, masked.mask
    return 0, 0


def _destination(flow: Flow) -> Destination | None:
    mac, port = None, None
    for action in flow.actions:
        match action:
            case SetField(Field.DL_DST, value):
                mac = value
            case Output(name):
                port = name
            case _:
                pass
    return None if mac is None or port is None else Destination(mac, port)
