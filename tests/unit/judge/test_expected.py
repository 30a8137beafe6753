"""How many megaflows each block makes: the sum is what the compiler predicts for the NIC."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.judged import check_offload
from tests.unit.balancer import claim, program, service
from xenoovs.compile.plan import hardware_entries
from xenoovs.judge.expected import expected_services
from xenoovs.judge.report import service_rows
from xenoovs.model.balancer import Protocol

VIPS = (ip_address("10.3.10.45"), ip_address("2001:db8::45"))


@pytest.mark.parametrize("weights", [(1, 1), (5, 3, 2), (128, 64, 32, 16, 8, 4, 2, 1, 1)])
def test_all_blocks_by_all_entries_are_the_hardware_entries(weights: tuple[int, ...]) -> None:
    compiled = program(service(claim(*VIPS, protocol=Protocol.UDP, ports=[(53, 53), (80, 81)]), *weights))
    (row,) = service_rows(check_offload(expected_services(compiled), []))
    assert (row.predicted, row.predicted_all) == (0, hardware_entries(compiled.services[0]))
