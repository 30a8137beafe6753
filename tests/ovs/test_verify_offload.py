"""verify on a real switch: what it says before and after traffic, and that its counts are those of the packets sent."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from tests.judged import check_offload
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, predicted_shape, send
from tests.predicted import predict_megaflows
from tests.unit.judge.programs import two_services
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion
from xenoovs.model.packet import Packet

pytestmark = pytest.mark.ovs

CLIENTS = [IPv4Address(0xC6336400 + i) for i in range(40)]
VIPS = {"dns": IPv4Address("10.3.10.45"), "web": IPv4Address("10.3.10.46")}


def _packets(*services: str) -> list[Packet]:
    return [Packet("p0", client, VIPS[service], 17, 4000, 53) for service in services for client in CLIENTS]


def test_nothing_is_seen_before_traffic(bridge: DummyBridge) -> None:
    install(bridge, two_services().flows)
    bridge.settle(removed_s=0)
    findings = check_offload(expected_services(two_services()), scan_dump(bridge.megaflows()))
    assert findings.conclusion is Conclusion.NOTHING_SEEN


def test_a_software_datapath_is_never_called_hardware(bridge: DummyBridge) -> None:
    program = two_services()
    install(bridge, program.flows)
    bridge.settle(removed_s=0)
    send(bridge, _packets("dns", "dns", "web"))
    lines = bridge.megaflows()

    findings = check_offload(expected_services(program), scan_dump(lines))
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE
    assert {found.verdict for found in findings.blocks} == {Verdict.SW}
    # The packet that makes the switch install a megaflow is not counted by it.
    counted = {name: sum(f.packets for f in findings.blocks if f.block.service == name) for name in VIPS}
    assert counted == {"dns": 80 - 2, "web": 40 - 2}
    assert [found.misdelivered for found in findings.blocks] == [0, 0, 0, 0]
    assert (findings.outside, findings.unparsed) == ((), ())

    as_by_a_nic = [line.replace("dp:ovs", "offloaded:yes, dp:tc") for line in lines]
    judged = check_offload(expected_services(program), scan_dump(as_by_a_nic))
    assert judged.conclusion is Conclusion.IN_HARDWARE


def test_a_compiled_program_has_the_predicted_megaflows(bridge: DummyBridge) -> None:
    program, packets = two_services(), _packets("dns", "web")
    install(bridge, program.flows)
    bridge.settle(removed_s=0)
    send(bridge, packets)
    predicted = predict_megaflows(program.flows, packets)
    assert len(predicted) == sum(len(service.blocks) for service in program.services)
    assert observed_shapes(bridge) == {predicted_shape(megaflow) for megaflow in predicted}
