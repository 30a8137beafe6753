"""The decision: which backend has which clients of every service, as a value that any switch can be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xenoovs.decision.blocks import Blocks, Owner
from xenoovs.model.block_key import BlockKey


@dataclass(frozen=True, slots=True)
class ServiceDecision:
    """Which backend has which clients of one service.

    Attributes:
        key: The bits that choose.
        home: What the weights give. Where it has no block, `active` has none either.
        active: Who serves now. Blocks of ejected backends are with others, those of a slow start in part.
    """

    key: BlockKey
    home: Blocks
    active: Blocks

    @property
    def displaced(self) -> frozenset[Owner]:
        """Owners that do not serve all of their home blocks now."""
        if self.home == self.active:
            return frozenset()
        owners = dict(self.home.rows)
        parts = self.active.within(owners)
        return frozenset(owners[block] for block, _, owner in parts if owner != owners[block])

    @property
    def ejected(self) -> frozenset[Owner]:
        """Owners that have home blocks and serve no clients now."""
        return self.home.owners - self.active.owners


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend has which clients, for every service of a bridge.

    Attributes:
        services: Ids of services (32 bits) and what is decided for them, sorted by id.
        version: A store of decisions counts its changes here. No part of what is decided: versions are not compared.
    """

    services: tuple[tuple[int, ServiceDecision], ...] = ()
    version: int = field(default=0, compare=False)

    @classmethod
    def of(cls, services: Mapping[int, ServiceDecision], *, version: int = 0) -> Decision:
        return cls(tuple(sorted(services.items(), key=lambda pair: pair[0])), version)

    def service(self, service_id: int) -> ServiceDecision | None:
        return dict(self.services).get(service_id)
