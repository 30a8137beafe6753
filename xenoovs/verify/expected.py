"""What the hardware is expected to hold: for each block, whose packets, from whom, to which MAC and port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xenoovs.compile.key import key_of
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """One block of one backend. `eth_type`: 0x0800 or 0x86dd. `key`: the bits that chose it, mask 0 for everybody.

    hops:      where its packets may go; one, unless the block moves.
    is_moving: whether a drain keeps its open connections where they are; each has a megaflow of its own then.
    """

    service: str
    backend: str
    flow: Flow
    eth_type: int
    key: Masked
    hops: tuple[NextHop, ...]
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedService:
    """`entries`: the matches that packets of the service enter by, each on one port of the bridge.

    priority: the lowest of the flows behind the entries.
    """

    name: str
    entries: tuple[Match, ...]
    blocks: tuple[ExpectedBlock, ...]
    priority: int = 0


def expected_services(program: Program) -> tuple[ExpectedService, ...]:
    """The services of a compiled program, in its order."""
    return tuple(map(_expected_service, program.services))


def _expected_service(service: ServiceProgram) -> ExpectedService:
    return ExpectedService(
        name=service.service.name,
        entries=tuple(flow.match for flow in service.classify),
        blocks=tuple(_blocks(service)),
        priority=min(flow.priority for flow in service.classify),
    )


def _blocks(service: ServiceProgram) -> Iterator[ExpectedBlock]:
    # Connections that were opened during a drain may be with any backend that the block was to go to.
    backends = {backend.next_hop for backend in service.service.backends}
    all_hops = tuple(sorted(backends | {service.hop(move.old) for move in service.moves}))
    for block in service.blocks:
        eth_type = eth_type_of(block.flow.match)
        yield ExpectedBlock(
            service=service.service.name,
            backend=block.backend.name,
            flow=block.flow,
            eth_type=eth_type,
            key=key_of(block.flow, service.service.key.field),
            hops=all_hops if block.move is not None else (block.backend.next_hop,),
            is_moving=block.move is not None,
        )


def eth_type_of(match: Match) -> int:
    """The EtherType that a match asks for, 0 for any."""
    found = match.get(Field.DL_TYPE)
    return 0 if found is None else found.value
