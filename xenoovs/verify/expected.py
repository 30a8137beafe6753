"""What the hardware is expected to hold: for each block, whose packets, from whom, to which MAC and port."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.openflow.action import Output, SetField
from xenoovs.openflow.field import ETH_IPV6, Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """One block of one backend. `eth_type`: 0x0800 or 0x86dd. `source`: on nw_src or ipv6_src, mask 0 for everybody.

    dl_dst, egress: what its packets leave with, and where; None: the flow does not say.
    """

    service: str
    backend: str
    flow: Flow
    eth_type: int
    source: Masked
    dl_dst: int | None
    egress: str | None


@dataclass(frozen=True, slots=True)
class ExpectedService:
    """`entries`: the matches that packets of the service enter by, each on one port of the bridge."""

    name: str
    entries: tuple[Match, ...]
    blocks: tuple[ExpectedBlock, ...]


def expected_services(program: Program) -> tuple[ExpectedService, ...]:
    """The services of a compiled program, in its order."""
    return tuple(map(_expected_service, program.services))


def _expected_service(service: ServiceProgram) -> ExpectedService:
    entries = tuple(flow.match for flow in service.classify)
    return ExpectedService(service.service.name, entries, tuple(_blocks(service.service.name, service.blocks)))


def _blocks(service: str, blocks: Iterable[BlockFlow]) -> Iterable[ExpectedBlock]:
    for block in blocks:
        eth_type = block.flow.match.get(Field.DL_TYPE)
        is_ipv6 = eth_type is not None and eth_type.value == ETH_IPV6
        field = Field.IPV6_SRC if is_ipv6 else Field.NW_SRC
        actions = block.flow.actions
        yield ExpectedBlock(
            service=service,
            backend=block.backend.name,
            flow=block.flow,
            eth_type=0 if eth_type is None else eth_type.value,
            source=block.flow.match.get(field) or Masked(field, 0, 0),
            dl_dst=next((a.value for a in actions if isinstance(a, SetField) and a.field is Field.DL_DST), None),
            egress=next((a.port for a in actions if isinstance(a, Output)), None),
        )
