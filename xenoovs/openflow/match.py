"""What a flow matches: an ingress port and masked fields, in one canonical form: equal matches are equal values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
        return next((masked for masked in self.masked if masked.field is field), None)


def match_of(conditions: Iterable[Masked], *, in_port: str | None = None, foreign: Iterable[str] = ()) -> Match:
    """The canonical match of `conditions`: masks of 0 are dropped. Raises ValueError for a value outside its mask."""
    kept = tuple(sorted((c for c in conditions if c.mask), key=_rank))
    for condition in kept:
        if condition.value & ~condition.mask or condition.mask > condition.field.all_ones:
            raise ValueError(f"{condition.field.ovs_name}: value {condition.value:#x} outside mask {condition.mask:#x}")
    return Match(in_port, kept, tuple(sorted(foreign)))


def _rank(condition: Masked) -> int:
    return condition.field.rank
