"""What un-wildcards bits of a megaflow: one cause per test (lib/classifier.h, "Staged lookup", "Prefix tracking")."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from tests.predicted import predict_megaflows
from xenoovs.model.address import Mac
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field
from xenoovs.openflow.text import parse_flow
from xenoovs.simulate.classifier import PREFIX_FIELDS_2_X, PREFIX_FIELDS_3_5
from xenoovs.simulate.headers import Segment, segment_of, slot_of
from xenoovs.simulate.megaflows import PredictedMegaflow, pipeline_of

PACKET = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 17, 4000, 53)
PACKET6 = Packet("p0", IPv6Address("2001:db8::7"), IPv6Address("2001:db8::45"), 17, 4000, 53)
BLOCK = "priority=100,ip,nw_src=0.0.0.1/0.0.0.1 actions=output:p1"


def _predict(
    *texts: str, packet: Packet = PACKET, prefix_fields: tuple[Field, ...] = PREFIX_FIELDS_2_X
) -> PredictedMegaflow:
    flows = [parse_flow(text) for text in texts]
    return pipeline_of(flows, prefix_fields=prefix_fields).predict(packet)[0]


def _masks(*texts: str) -> dict[str, int]:
    return {name: field.mask for name, field in _predict(*texts).fields().items() if name != "dl_type"}


def test_a_block_alone_is_its_megaflow() -> None:
    assert _masks(BLOCK) == {"nw_src": 1}


def test_rewriting_the_destination_matches_it() -> None:
    masks = _masks("priority=1,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1")
    assert masks == {"dl_dst": (1 << 48) - 1}
    written = _predict("priority=1,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1")
    assert written.actions == ("set(eth(dst=0a:00:00:00:00:01))", "p1")


def test_a_packet_with_the_right_mac_is_not_rewritten() -> None:
    packet = Packet(PACKET.in_port, PACKET.source, PACKET.destination, 17, dl_dst=Mac(0x0A0000000001))
    megaflow = _predict("priority=1,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1", packet=packet)
    assert megaflow.actions == ("p1",)


def test_a_longer_mask_of_higher_priority_is_visited_first_and_unwildcards_bits() -> None:
    assert _masks(BLOCK, "priority=200,ip,nw_src=0.0.0.0/0.0.0.15 actions=drop") == {"nw_src": 15}


def test_a_longer_mask_of_lower_priority_is_never_reached() -> None:
    assert _masks(BLOCK, "priority=50,ip,nw_src=0.0.0.0/0.0.0.15 actions=drop") == {"nw_src": 1}


def test_a_subtable_that_fails_in_the_first_stage_adds_nothing() -> None:
    assert _masks(BLOCK, "priority=200,ip,reg0=0x5,nw_src=0.0.0.0/0.0.0.15 actions=drop") == {"nw_src": 1}
    assert _masks(BLOCK, "priority=200,ip,in_port=p9,nw_src=0.0.0.0/0.0.0.15 actions=drop") == {"nw_src": 1}


def test_a_subtable_that_fails_at_the_addresses_adds_no_ports() -> None:
    masks = _masks(BLOCK, "priority=200,tcp,tp_dst=22 actions=drop")
    assert masks == {"nw_src": 1, "nw_proto": 0xFF}


def test_missed_ports_unwildcard_only_distinguishing_bits() -> None:
    masks = _masks(BLOCK, "priority=200,udp,tp_dst=22 actions=drop")
    # 53 is 0b110101, 22 is 0b010110: they part at the bit of value 32.
    assert masks == {"nw_src": 1, "nw_proto": 0xFF, "tp_dst": 0xFFE0}


def test_a_prefix_of_higher_priority_adds_the_bits_that_rule_it_out() -> None:
    masks = _masks(BLOCK, "priority=200,ip,nw_src=203.0.113.9 actions=drop")
    # 198 is 0b11000110, 203 is 0b11001011: they part at the fifth bit.
    assert masks == {"nw_src": 0xF8000001}


def test_prefix_fields_of_ipv6_are_a_matter_of_the_version() -> None:
    flows = ("priority=200,ipv6,ipv6_src=fd00::/8 actions=drop", "priority=100,ipv6 actions=output:p1")
    old = _predict(*flows, packet=PACKET6).fields()["ipv6_src"].mask
    new = _predict(*flows, packet=PACKET6, prefix_fields=PREFIX_FIELDS_3_5).fields()["ipv6_src"].mask
    assert (old >> 120, new >> 120) == (0xFF, 0x80)


def test_normal_matches_both_macs_and_leaves_the_port_open() -> None:
    megaflow = _predict("priority=1 actions=NORMAL")
    assert {"dl_src", "dl_dst"} <= megaflow.fields().keys()
    assert megaflow.actions == ()


def test_megaflows_are_a_set_and_sorted() -> None:
    flows = [parse_flow(BLOCK), parse_flow("priority=100,ip,nw_src=0.0.0.0/0.0.0.1 actions=drop")]
    packets = [Packet("p0", IPv4Address(i), PACKET.destination, 17) for i in range(10)]
    forwards, backwards = predict_megaflows(flows, packets), predict_megaflows(flows, reversed(packets))
    assert forwards == backwards
    assert [megaflow.actions for megaflow in forwards] == [("drop",), ("p1",)]


def test_every_field_lies_in_the_stage_of_its_layer() -> None:
    stages = {field.ovs_name: segment_of(slot_of(field)) for field in Field}
    assert {name for name, stage in stages.items() if stage is Segment.L4} == {
        "arp_sha", "arp_tha", "tp_src", "tp_dst", "icmp_type", "icmp_code",
    }  # fmt: skip
    assert {name for name, stage in stages.items() if stage is Segment.L2} == {"dl_src", "dl_dst", "dl_type"}
    metadata = {name for name, stage in stages.items() if stage is Segment.METADATA}
    registers = {"pkt_mark", "reg0", "reg1", "reg2", "reg3", "metadata"}
    assert metadata == {*registers, "tun_id", "tun_src", "tun_dst"}
