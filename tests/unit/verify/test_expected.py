"""How many megaflows each block makes: the sum is what the compiler predicts for the NIC."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from tests.unit.balancer import claim, program, service
from xenoovs.compile.hardware import hardware_entries
from xenoovs.model.service import Protocol, Strategy
from xenoovs.verify.expected import expected_services
from xenoovs.verify.offload import check_offload
from xenoovs.verify.report import service_rows

VIPS = (ip_address("10.3.10.45"), ip_address("2001:db8::45"))


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("weights", [(1, 1), (5, 3, 2), (128, 64, 32, 16, 8, 4, 2, 1, 1)])
def test_classes_of_all_blocks_by_all_entries_are_the_hardware_entries(
    strategy: Strategy, weights: tuple[int, ...]
) -> None:
    wanted = service(claim(*VIPS, protocol=Protocol.UDP, ports=[(53, 53), (80, 81)]), *weights)
    compiled = program(replace(wanted, strategy=strategy))
    (row,) = service_rows(check_offload(expected_services(compiled), []))
    assert (row.predicted, row.predicted_all) == (0, hardware_entries(compiled.services[0]))


def test_classes_of_overlapping_blocks_are_what_deeper_ones_leave() -> None:
    compiled = program(replace(service(claim(*VIPS[:1]), 5, 3, 2), strategy=Strategy.LPM))
    (found,) = expected_services(compiled)
    depth = max(block.source.mask.bit_count() for block in found.blocks)
    owners = [
        max((b for b in found.blocks if value & b.source.mask == b.source.value), key=lambda b: b.source.mask)
        for value in _class_values(found.blocks[0].source.mask | max(b.source.mask for b in found.blocks), depth)
    ]
    assert [block.classes for block in found.blocks] == [owners.count(block) for block in found.blocks]


def _class_values(mask: int, depth: int) -> list[int]:
    assert mask.bit_count() == depth
    positions = [position for position in range(32) if mask >> position & 1]
    return [sum((number >> i & 1) << position for i, position in enumerate(positions)) for number in range(1 << depth)]
