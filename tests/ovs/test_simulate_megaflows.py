"""The tuple-space model against a real ovs-vswitchd: the same megaflows, bit by bit, and the same packets out."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.simulated import Shape, install, observed_shapes, predicted_shape, send, trace_text
from tests.predicted import predict_megaflows
from tests.property.programs import random_packets, random_program
from xenoovs.judge.simulate.megaflows import pipeline_of
from xenoovs.judge.simulate.walk import tables_of
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field, Flow

pytestmark = pytest.mark.ovs


@pytest.fixture
def three_ports(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge(ports=("p0", "p1", "p2")) as made:
        yield made


@pytest.mark.parametrize("seed", range(16))
def test_megaflows_and_packets_are_as_predicted(three_ports: DummyBridge, seed: int) -> None:
    random = Random(seed)
    flows, packets = random_program(random), random_packets(random, count=200)
    install(three_ports, flows)
    three_ports.settle(removed_s=0)
    send(three_ports, packets)

    predicted = {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, packets)}
    assert _without_learned_ports(observed_shapes(three_ports), predicted) == predicted
    learned = {int(p.source) for p in packets if any(c.port is None for c in tables_of(flows).run(p).copies)}
    received = {copy for copy in _received(three_ports) if copy[1] not in learned}
    assert received == {copy for copy in _copies(flows, packets) if copy[1] not in learned}


@pytest.mark.parametrize("seed", range(200, 206))
def test_other_prefix_fields_are_predicted_too(three_ports: DummyBridge, seed: int) -> None:
    # As many as the database of 3.1 takes; the order counts.
    fields = (Field.NW_SRC, Field.IPV6_DST, Field.IPV6_SRC)
    for table in (0, 1):
        tracked = ["--id=@t", "create", "Flow_Table", f"name=t{table}", "prefixes=ip_src,ipv6_dst,ipv6_src"]
        three_ports.ovs.vsctl("--", *tracked, "--", "set", "Bridge", three_ports.name, f"flow_tables:{table}=@t")
    random = Random(seed)
    flows, packets = random_program(random), random_packets(random, count=200)
    install(three_ports, flows)
    three_ports.settle(removed_s=0)
    send(three_ports, packets)
    megaflows = predict_megaflows(flows, packets, prefix_fields=fields)
    predicted = {predicted_shape(megaflow) for megaflow in megaflows}
    assert _without_learned_ports(observed_shapes(three_ports), predicted) == predicted


@pytest.mark.parametrize("seed", range(100, 103))
def test_the_switch_itself_traces_the_packets_the_same_way(three_ports: DummyBridge, seed: int) -> None:
    random = Random(seed)
    flows = random_program(random)
    install(three_ports, flows)
    pipeline = pipeline_of(flows)
    for packet in random_packets(random, count=20):
        text = three_ports.trace(trace_text(packet))
        actions = text.split("Datapath actions: ")[1].splitlines()[0]
        predicted = ",".join(pipeline.predict(packet)[0].actions)
        assert predicted in ("", actions)


Copy = tuple[str, int, int, int]
"""Egress port, IP source, dl_dst, dl_src."""


def _copies(flows: list[Flow], packets: list[Packet]) -> set[Copy]:
    tables = tables_of(flows)
    return {
        (str(copy.port), int(packet.source), copy.dl_dst, copy.dl_src)
        for packet in packets
        for copy in tables.run(packet).copies
    }


def _received(bridge: DummyBridge) -> set[Copy]:
    return {(port, *_addresses(frame)) for port in bridge.ports for frame in bridge.sent(port)}


def _addresses(frame: bytes) -> tuple[int, int, int]:
    # Offsets: Ethernet header of 14 bytes (IEEE 802.3), source address at 12 (RFC 791) and at 8 (RFC 8200).
    source = frame[26:30] if frame[12:14] == b"\x08\x00" else frame[22:38]
    return int.from_bytes(source, "big"), int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big")


def _without_learned_ports(observed: set[Shape], predicted: set[Shape]) -> set[Shape]:
    """Megaflows whose port MAC learning chose are compared by their match alone."""
    learned = {(in_port, fields) for in_port, fields, actions in predicted if not actions}
    return {(port, fields, () if (port, fields) in learned else actions) for port, fields, actions in observed}
