"""What un-wildcards bits of a megaflow: one cause per test (lib/classifier.h, "Staged lookup", "Prefix tracking")."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arp import arp_request
from tests.predicted import predict_megaflows
from xenoovs.errors import SimulateError
from xenoovs.judge.simulate.classifier import PREFIX_FIELDS_2_X, PREFIX_FIELDS_3_5, PrefixTrie
from xenoovs.judge.simulate.headers import Segment, segment_of, slot_of
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of
from xenoovs.judge.simulate.walk import Copy, FlowTables, tables_of
from xenoovs.model.address import Mac
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import ETH_ARP, Field
from xenoovs.openflow.text import parse_flow

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


def _tables(*texts: str) -> FlowTables:
    return tables_of(parse_flow(text) for text in texts)


def _sent(*texts: str) -> list[tuple[str | None, str]]:
    return [(copy.port, str(Mac(copy.dl_dst))) for copy in _tables(*texts).run(PACKET).copies]


def test_a_service_sends_by_register_and_masked_source() -> None:
    copies = _sent(
        "table=0, priority=10,udp,in_port=p0,nw_dst=10.3.10.45,tp_dst=53 actions=load:0x1->NXM_NX_REG0[],resubmit(,1)",
        "table=1, priority=999,ip,reg0=0x2,nw_src=0.0.0.1/0.0.0.1 actions=output:p9",
        "table=1, priority=999,ip,reg0=0x1,nw_src=0.0.0.1/0.0.0.1 actions=mod_dl_dst:0a:00:00:00:00:01,output:p1",
        "table=1, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1 actions=mod_dl_dst:0a:00:00:00:00:02,output:p1",
    )
    assert copies == [("p1", "0a:00:00:00:00:01")]


def test_the_flows_met_are_in_order() -> None:
    outcome = _tables("priority=5,ip actions=resubmit(,1)", "table=1, priority=7 actions=drop").run(PACKET)
    assert [(flow.table, flow.priority) for flow in outcome.flows] == [(0, 5), (1, 7)]
    assert outcome.copies == ()


def test_the_higher_priority_wins_and_a_miss_drops() -> None:
    assert _sent("priority=1 actions=output:p1", "priority=2,udp actions=output:p2")[0][0] == "p2"
    assert _sent("priority=2,tcp actions=output:p2") == []


def test_a_packet_returns_to_its_port_by_in_port_alone() -> None:
    assert _sent("priority=1 actions=output:p0") == []
    assert _sent("priority=1 actions=IN_PORT")[0][0] == "p0"


def test_copies_have_the_headers_at_their_output() -> None:
    flow = "priority=1 actions=output:p1,mod_dl_dst:0a:00:00:00:00:01,output:p2,NORMAL"
    before, after = str(PACKET.dl_dst), "0a:00:00:00:00:01"
    assert _sent(flow) == [("p1", before), ("p2", after), (None, after)]


def test_fields_that_the_packet_lacks_are_not_set() -> None:
    (copy,) = _tables("priority=1 actions=load:0x1->NXM_OF_ARP_SPA[],output:p1").run(PACKET).copies
    assert copy.headers.get(Field.NW_SRC) == int(PACKET.source)


def test_an_endless_loop_of_tables_drops() -> None:
    assert _sent("priority=1 actions=resubmit(,0)") == []


def test_arp_for_the_vip_is_answered() -> None:
    flow = (
        "priority=9,arp,in_port=p0,arp_tpa=10.3.10.45,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
        "mod_dl_src:c4:70:bd:a0:56:ac,load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],"
        "load:0xc470bda056ac->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
        "load:0xa030a2d->NXM_OF_ARP_SPA[],IN_PORT"
    )
    (copy,) = _tables(flow).run(arp_request("p0", sender_mac=0x02AA, sender=0xC6336407, target=0x0A030A2D)).copies
    assert (copy.port, copy.dl_dst, copy.dl_src) == ("p0", 0x02AA, 0xC470BDA056AC)
    assert _arp(copy) == (ETH_ARP, 2, 0x0A030A2D, 0xC6336407, 0xC470BDA056AC, 0x02AA)


def _arp(copy: Copy) -> tuple[int, ...]:
    fields = (Field.DL_TYPE, Field.ARP_OP, Field.ARP_SPA, Field.ARP_TPA, Field.ARP_SHA, Field.ARP_THA)
    return tuple(map(copy.headers.get, fields))


@pytest.mark.parametrize("flow", ["priority=1 actions=dec_ttl,output:p1", "priority=1,ct_state=+new actions=output:p1"])
def test_an_unknown_field_or_action_is_refused_with_its_flow(flow: str) -> None:
    with pytest.raises(SimulateError) as caught:
        _tables(flow).run(PACKET)
    assert caught.value.flow == "table 0, priority 1"


WIDTH = 5
_PREFIXES = st.lists(st.tuples(st.integers(0, 31), st.integers(1, WIDTH)), max_size=6)


def _trie(prefixes: list[tuple[int, int]]) -> PrefixTrie:
    trie = PrefixTrie(WIDTH)
    for value, length in prefixes:
        trie.insert(value, length)
    return trie


def test_one_prefix_is_distinguished_by_the_first_different_bit() -> None:
    trie = PrefixTrie(32)
    trie.insert(0x0A030A2D, 32)
    assert trie.bits_needed(0x8A030A2D) == 1
    assert trie.bits_needed(0x0A030A2C) == 32
    assert trie.has_prefix(0x0A030A2D, 32)


def test_a_leaf_that_matches_asks_for_no_further_bit() -> None:
    trie = PrefixTrie(32)
    trie.insert(0x0A000000, 8)
    assert trie.bits_needed(0x0A123456) == 8


@given(_PREFIXES)
def test_values_equal_in_the_needed_bits_have_the_same_prefixes(prefixes: list[tuple[int, int]]) -> None:
    trie = _trie(prefixes)
    for value in range(1 << WIDTH):
        shift = WIDTH - trie.bits_needed(value)
        alike = [other for other in range(1 << WIDTH) if other >> shift == value >> shift]
        for length in range(1, WIDTH + 1):
            assert {trie.has_prefix(other, length) for other in alike} == {trie.has_prefix(value, length)}
