"""Ranges of ports as masked values, since a flow matches a port under a mask and not between bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xenoovs.model.service import PortRange, merge_ports

PORT_BITS = 16


@dataclass(frozen=True, slots=True, order=True)
class PortMask:
    """All ports whose first `bits` bits (0..16) are those of `value`."""

    value: int
    bits: int

    @property
    def mask(self) -> int:
        return 0xFFFF & ~((1 << (PORT_BITS - self.bits)) - 1)


def port_masks(ranges: Iterable[PortRange]) -> tuple[PortMask, ...]:
    """The fewest prefixes that cover the ranges exactly, none of them twice; none for no range."""
    return tuple(sorted(mask for ports in merge_ports(ranges) for mask in _cover(ports.first, ports.last)))


def _cover(first: int, last: int) -> Iterator[PortMask]:
    while first <= last:
        aligned = (first & -first).bit_length() - 1 if first else PORT_BITS
        size_bits = min(aligned, (last - first + 1).bit_length() - 1)
        yield PortMask(first, PORT_BITS - size_bits)
        first += 1 << size_bits
