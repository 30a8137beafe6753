"""Ranges of L4 ports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports first..last, both included, 0..65535."""

    first: int
    last: int

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def overlaps(self, other: PortRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def merge_ports(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """Return the same ports in the fewest ranges, sorted: ranges that overlap or touch become one."""
    merged: list[PortRange] = []
    for ports in sorted(ranges):
        if merged and ports.first <= merged[-1].last + 1:
            merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, ports.last))
        else:
            merged.append(ports)
    return tuple(merged)
