"""What the hardware is expected to hold: for each block, whose packets, from whom, to which MAC and port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xenoovs.compile.movement import is_pinned
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.model.service import Strategy
from xenoovs.openflow.action import Output, SetField
from xenoovs.openflow.field import ETH_IPV6, Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """One block of one backend. `eth_type`: 0x0800 or 0x86dd. `source`: on nw_src or ipv6_src, mask 0 for everybody.

    dl_dst, egress: what its packets leave with, and where; None: the flow does not say.
    others:  further destinations, MAC and port, that are right while the block moves.
    classes: how many megaflows its packets make by each entry, from one client-side MAC.
    """

    service: str
    backend: str
    flow: Flow
    eth_type: int
    source: Masked
    dl_dst: int | None
    egress: str | None
    classes: int = 1
    others: tuple[tuple[int, str], ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a drain keeps its open connections where they are; each has a megaflow of its own then."""
        return bool(self.others)


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
    blocks = tuple(_blocks(service))
    if service.service.strategy is Strategy.LPM:
        blocks = with_classes(blocks)
    return ExpectedService(
        name=service.service.name,
        entries=tuple(flow.match for flow in service.classify),
        blocks=blocks,
        priority=min(flow.priority for flow in service.classify),
    )


def _blocks(service: ServiceProgram) -> Iterator[ExpectedBlock]:
    # Connections that were opened during a drain may be with any backend that the block was to go to.
    others = {(backend.mac.value, backend.egress) for backend in service.service.backends}
    others |= {(pin.old.mac, pin.old.port) for pin in service.pins}
    for block in service.blocks:
        eth_type = eth_type_of(block.flow.match)
        field = Field.IPV6_SRC if eth_type == ETH_IPV6 else Field.NW_SRC
        is_moving = is_pinned(block.flow)
        actions = block.flow.actions
        yield ExpectedBlock(
            service=service.service.name,
            backend=block.backend.name,
            flow=block.flow,
            eth_type=eth_type,
            source=block.flow.match.get(field) or Masked(field, 0, 0),
            dl_dst=next((a.value for a in actions if isinstance(a, SetField) and a.field is Field.DL_DST), None),
            egress=next((a.port for a in actions if isinstance(a, Output)), None),
            others=tuple(sorted(others)) if is_moving else (),
        )


def with_classes(blocks: tuple[ExpectedBlock, ...]) -> tuple[ExpectedBlock, ...]:
    """Overlapping blocks of strategy lpm, each with its classes: values of all bits that any of them looks at.

    A packet is compared with the longest masks first, so that its megaflow matches the bits of the longest one.
    """
    depth = max(block.source.mask.bit_count() for block in blocks)
    classes = {(b.eth_type, b.source.mask, b.source.value): 1 << depth - b.source.mask.bit_count() for b in blocks}
    total = dict(classes)
    masks = sorted({(eth_type, mask) for eth_type, mask, _ in classes}, key=lambda item: -item[1].bit_count())
    for eth_type, mask, value in total:
        shorter = (m for family, m in masks if family == eth_type and m != mask and m & mask == m)
        around = next((key for m in shorter if (key := (eth_type, m, value & m)) in total), None)
        if around is not None:
            classes[around] -= total[eth_type, mask, value]
    return tuple(replace(b, classes=classes[b.eth_type, b.source.mask, b.source.value]) for b in blocks)


def eth_type_of(match: Match) -> int:
    """The EtherType that a match asks for, 0 for any."""
    found = match.get(Field.DL_TYPE)
    return 0 if found is None else found.value
