"""Which bits of a packet choose its block, and so its backend. Values only."""

from __future__ import annotations

from enum import Enum

from xenoovs.dataclass import dataclass
from xenoovs.model.address import Family

MAX_KEY_BITS = 16
"""The largest depth of blocks: 65,536 blocks."""


class KeyField(Enum):
    """The part of a packet that holds the bits."""

    SOURCE_ADDRESS = "source_address"
    SOURCE_PORT = "source_port"

    @property
    def label(self) -> str:
        """Return its name in messages."""
        return "address" if self is KeyField.SOURCE_ADDRESS else "source port"

    @property
    def needs_ports(self) -> bool:
        """Return whether only packets of a protocol with ports have it."""
        return self is KeyField.SOURCE_PORT

    def width(self, family: Family) -> int:
        """Return how many bits it has."""
        return family.bits if self is KeyField.SOURCE_ADDRESS else 16


@dataclass(frozen=True, slots=True)
class BlockKey:
    """The bits that split the clients of a service. `field`: the part of the packet with these bits. `positions`: bit
    numbers, 0 the lowest bit of the field, in the order in which blocks use them; None for 0, 1, 2, ... `width`: most
    bits to use, 0..16; None for 16. As few are used as the fewest blocks need."""

    field: KeyField = KeyField.SOURCE_ADDRESS
    positions: tuple[int, ...] | None = None
    width: int | None = None

    @property
    def max_width(self) -> int:
        """Return the largest depth of a block."""
        listed = MAX_KEY_BITS if self.positions is None else len(self.positions)
        return listed if self.width is None else min(self.width, listed)

    def agrees(self, other: BlockKey) -> bool:
        """Return whether every block has the same clients under both keys."""
        return (self.field, self.positions) == (other.field, other.positions)


LOW_SOURCE_BITS = BlockKey()
"""The key of a service without `match`."""
