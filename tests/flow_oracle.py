"""Flows read without `compile.read`: the shares of the key space that next hops get, and how much of it moves.

A second reading of what flows mean, to check the one of the product against.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

from xenoovs.compile.encoding import hop_of, key_bits
from xenoovs.compile.pipeline import Stage
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.flow import Field, Flow, Resubmit, decode_cookie

_TO_DRAIN = (Resubmit(Stage.DRAIN.table),)
# Whatever else has a later number splits clients: overlapping rules of versions before decision 15 of docs/adr have 3.
_BESIDE = frozenset(stage.value for stage in (Stage.DRAIN, Stage.HOME, Stage.DRAIN_TARGET, Stage.LEARNED))


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of the key space under one mask that goes to one next hop (None: dropped, or foreign actions)."""

    value: int
    mask: int
    hop: NextHop | None

    @property
    def size(self) -> Fraction:
        return Fraction(1, 1 << self.mask.bit_count())

    def meets(self, other: Piece) -> bool:
        """Whether they have keys in common."""
        return not (self.value ^ other.value) & self.mask & other.mask


def blocks_by_service(flows: Iterable[Flow]) -> dict[int, list[Flow]]:
    """The flows that balance, by service id; all others are left out. Blocks in a drain: as they will be after it."""
    every = tuple(flows)
    return _by_service(flow for flow in _settled(every) if stage_number(flow) not in _BESIDE)


def homes_by_service(flows: Iterable[Flow]) -> dict[int, list[Flow]]:
    """The flows that store home blocks of backends that do not serve all of them now, by service id."""
    return _by_service(flow for flow in flows if stage_number(flow) == Stage.HOME.value)


def is_pinned(flow: Flow) -> bool:
    """Whether packets of a block go on to `pin`."""
    return flow.actions == _TO_DRAIN and flow.table == Stage.BALANCE.table


def _settled(flows: tuple[Flow, ...]) -> Iterator[Flow]:
    """Blocks in a drain as they will be; those without a stored home go nowhere."""
    later = {flow.match: flow.actions for flow in flows if stage_number(flow) == Stage.DRAIN_TARGET.value}
    return (replace(flow, actions=later.get(flow.match, ())) if is_pinned(flow) else flow for flow in flows)


def stage_number(flow: Flow) -> int | None:
    """The stage in the cookie; None for a flow of others."""
    cookie = decode_cookie(flow.cookie)
    return None if cookie is None else cookie.stage


def _by_service(flows: Iterable[Flow]) -> dict[int, list[Flow]]:
    found = defaultdict[int, list[Flow]](list)
    for flow in flows:
        cookie = decode_cookie(flow.cookie)
        if cookie is not None and cookie.service and cookie.stage >= Stage.BALANCE.value:
            found[cookie.service].append(flow)
    return dict(found)


def pieces(flows: Iterable[Flow]) -> tuple[Piece, ...]:
    """The pieces of the key space of one service, which are disjoint; of two IP families the first stands for both."""
    by_family = defaultdict[int, list[Flow]](list)
    for flow in flows:
        dl_type = flow.match.get(Field.DL_TYPE)
        if dl_type is not None:
            by_family[dl_type.value].append(flow)
    first = by_family[min(by_family)] if by_family else []
    ordered = sorted(first, key=lambda flow: -flow.priority)
    made = tuple(Piece(*key_bits(flow), hop_of(flow.actions)) for flow in ordered)
    assert not any(one.meets(other) for one, other in combinations(made, 2)), "blocks overlap"
    return made


def shares(parts: Iterable[Piece]) -> Mapping[NextHop, Fraction]:
    """The share of the key space that each next hop gets."""
    found = defaultdict[NextHop, Fraction](Fraction)
    for piece in parts:
        if piece.hop is not None:
            found[piece.hop] += piece.size
    return dict(found)


def moved(before: Iterable[Piece], after: Iterable[Piece]) -> Fraction:
    """The share of the key space that had a next hop and gets another one. Both sets are disjoint."""
    now = tuple(after)
    found = Fraction(0)
    for piece in before:
        if piece.hop is not None:
            same = (other for other in now if other.hop == piece.hop and other.meets(piece))
            found += piece.size - sum(Fraction(1, 1 << (piece.mask | other.mask).bit_count()) for other in same)
    return found
