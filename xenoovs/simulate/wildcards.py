"""The bits of a packet that decided over it: the mask that its megaflow gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xenoovs.openflow.field import Field


@dataclass(slots=True)
class Wildcards:
    """Slot -> bits looked at so far (`struct flow_wildcards`, include/openvswitch/flow.h)."""

    masks: dict[Field, int] = field(default_factory=dict)

    def add(self, slot: Field, mask: int) -> None:
        if mask:
            self.masks[slot] = self.masks.get(slot, 0) | mask

    def add_all(self, masks: Iterable[tuple[Field, int]]) -> None:
        for slot, mask in masks:
            self.add(slot, mask)

    def holds(self, slot: Field, mask: int) -> bool:
        """Whether all bits of `mask` were looked at already."""
        return self.masks.get(slot, 0) & mask == mask
