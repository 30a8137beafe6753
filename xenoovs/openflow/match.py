"""What a flow matches: an ingress port and masked fields, in one canonical form: equal matches are equal values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from xenoovs.openflow.field import Field


@dataclass(frozen=True, slots=True)
class Masked:
    """`field & mask == value`. Integers, never network objects: 0.0.0.3 is a mask here, not a host mask."""

    field: Field
    value: int
    mask: int

    @property
    def is_exact(self) -> bool:
        return self.mask == self.field.all_ones


def exact(field: Field, value: int) -> Masked:
    """The whole field equals `value`."""
    return Masked(field, value, field.all_ones)


@dataclass(frozen=True, slots=True)
class Match:
    """All conditions of a flow; build it with `match_of`.

    in_port: name of the ingress port, None for any.
    masked:  conditions in the order of `Field`, one a field, none with mask 0, no value bit outside its mask.
    foreign: conditions that xenoovs does not know, as ovs-ofctl wrote them; kept so that nothing read is lost.
    """

    in_port: str | None = None
    masked: tuple[Masked, ...] = ()
    foreign: tuple[str, ...] = ()

    def get(self, field: Field) -> Masked | None:
        for masked in self.masked:
            if masked.field is field:
                return masked
        return None


def match_of(conditions: Iterable[Masked], *, in_port: str | None = None, foreign: Iterable[str] = ()) -> Match:
    """The canonical match of `conditions`: masks of 0 are dropped.

    Raises ValueError for a value outside its mask and for two conditions on one field.
    """
    kept = sorted([c for c in conditions if c.mask], key=_rank)
    before: Field | None = None
    for condition in kept:
        field, value, mask = condition.field, condition.value, condition.mask
        if value & ~mask or mask > field.all_ones:
            raise ValueError(f"{field.ovs_name}: value {value:#x} outside mask {mask:#x}")
        if field is before:
            raise ValueError(f"{field.ovs_name} is matched twice")
        before = field
    return Match(in_port, tuple(kept), tuple(sorted(foreign)))


_rank = attrgetter("field.rank")
