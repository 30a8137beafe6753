"""What un-wildcards bits of a megaflow: one cause per test (lib/classifier.h, "Staged lookup", "Prefix tracking")."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.errors import SimulateError
from xenoovs.judge.simulate.classifier import PrefixTrie, prefix_fields_of
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of
from xenoovs.judge.simulate.walk import FlowTables, Segment, segment_of, slot_of, tables_of
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field
from xenoovs.openflow.text import parse_flow

PACKET = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 17, 4000, 53)
PACKET6 = Packet("p0", IPv6Address("2001:db8::7"), IPv6Address("2001:db8::45"), 17, 4000, 53)
BLOCK = "priority=100,ip,nw_src=0.0.0.1/0.0.0.1 actions=output:p1"


def _predict(*texts: str, packet: Packet = PACKET, version: str | None = None) -> PredictedMegaflow:
    return pipeline_of(map(parse_flow, texts), prefix_fields=prefix_fields_of(version)).predict(packet)[0]


@pytest.mark.parametrize(
    ("flow", "masks"),
    [
        (None, {"nw_src": 1}),
        ("priority=200,ip,nw_src=0.0.0.0/0.0.0.15 actions=drop", {"nw_src": 15}),
        ("priority=50,ip,nw_src=0.0.0.0/0.0.0.15 actions=drop", {"nw_src": 1}),
        ("priority=200,ip,reg0=0x5,nw_src=0.0.0.0/0.0.0.15 actions=drop", {"nw_src": 1}),
        ("priority=200,ip,in_port=p9,nw_src=0.0.0.0/0.0.0.15 actions=drop", {"nw_src": 1}),
        ("priority=200,tcp,tp_dst=22 actions=drop", {"nw_src": 1, "nw_proto": 0xFF}),
        # 53 is 0b110101, 22 is 0b010110: they part at the bit of value 32.
        ("priority=200,udp,tp_dst=22 actions=drop", {"nw_src": 1, "nw_proto": 0xFF, "tp_dst": 0xFFE0}),
        # 198 is 0b11000110, 203 is 0b11001011: they part at the fifth bit.
        ("priority=200,ip,nw_src=203.0.113.9 actions=drop", {"nw_src": 0xF8000001}),
    ],
    ids=[
        "a block alone is its megaflow",
        "a longer mask of higher priority is visited first",
        "a longer mask of lower priority is never reached",
        "a register fails in the first stage",
        "so does the port",
        "what fails at the addresses adds no ports",
        "missed ports add the bits that differ",
        "a prefix adds the bits that rule it out",
    ],
)
def test_what_another_flow_adds_to_the_megaflow_of_a_block(flow: str | None, masks: dict[str, int]) -> None:
    fields = _predict(BLOCK, *filter(None, [flow])).fields()
    assert {name: field.mask for name, field in fields.items() if name != "dl_type"} == masks


def test_rewriting_the_destination_matches_it() -> None:
    written = _predict("priority=1,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1")
    masks = {name: field.mask for name, field in written.fields().items()}
    assert masks == {"dl_type": 0xFFFF, "dl_dst": (1 << 48) - 1}
    assert written.actions == ("set(eth(dst=0a:00:00:00:00:01))", "p1")


def test_prefix_fields_of_ipv6_are_a_matter_of_the_version() -> None:
    flows = ("priority=200,ipv6,ipv6_src=fd00::/8 actions=drop", "priority=100,ipv6 actions=output:p1")
    versions = ("2.15.0", "3.4.9+nvidia", "no version", None, "3.5.0", "4.0.0")
    masks = [_predict(*flows, packet=PACKET6, version=version).fields()["ipv6_src"].mask >> 120 for version in versions]
    assert masks == [0xFF, 0xFF, 0xFF, 0xFF, 0x80, 0x80]
    assert [len(prefix_fields_of(version)) for version in versions] == [2, 2, 2, 2, 4, 4]


def test_flags_beside_missed_ports_are_unwildcarded_too() -> None:
    """CVE-2023-5366: by a megaflow without them PSH would pass, which a flow is there to drop."""
    flags = "priority=200,tcp,tp_dst=53,tcp_flags=+psh actions=drop"
    predicted = _predict("priority=100,ip actions=output:p1", flags, packet=replace(PACKET, protocol=6)).fields()
    assert {name: field.mask for name, field in predicted.items()} == {
        "dl_type": 0xFFFF, "nw_proto": 0xFF, "tcp_flags": 0x008, "tp_dst": 0xFFFF,
    }  # fmt: skip


def test_normal_matches_both_macs_and_leaves_the_port_open() -> None:
    megaflow = _predict("priority=1 actions=NORMAL")
    assert {"dl_src", "dl_dst"} <= megaflow.fields().keys()
    assert megaflow.actions == ()


def test_every_field_lies_in_the_stage_of_its_layer() -> None:
    stages = {field.ovs_name: segment_of(slot_of(field)) for field in Field}
    assert {name for name, stage in stages.items() if stage is Segment.L4} == {
        "arp_sha", "arp_tha", "tcp_flags", "tp_src", "tp_dst", "icmp_type", "icmp_code",
    }  # fmt: skip
    assert {name for name, stage in stages.items() if stage is Segment.L2} == {"dl_vlan", "dl_src", "dl_dst", "dl_type"}
    metadata = {name for name, stage in stages.items() if stage is Segment.METADATA}
    registers = {"pkt_mark", "reg0", "reg1", "reg2", "reg3", "metadata"}
    assert metadata == {*registers, "tun_id", "tun_src", "tun_dst"}


def _tables(*texts: str) -> FlowTables:
    return tables_of(parse_flow(text) for text in texts)


def test_copies_of_a_packet() -> None:
    """It returns to its port by IN_PORT alone, an endless loop of tables drops it, and what it lacks is not set."""
    assert _tables("priority=1 actions=output:p0").run(PACKET).copies == ()
    assert [copy.port for copy in _tables("priority=1 actions=IN_PORT").run(PACKET).copies] == ["p0"]
    assert _tables("priority=1 actions=resubmit(,0)").run(PACKET).copies == ()
    (copy,) = _tables("priority=1 actions=load:0x1->NXM_OF_ARP_SPA[],output:p1").run(PACKET).copies
    assert copy.headers.get(Field.NW_SRC) == int(PACKET.source)


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


@given(_PREFIXES)
def test_values_equal_in_the_needed_bits_have_the_same_prefixes(prefixes: list[tuple[int, int]]) -> None:
    trie = _trie(prefixes)
    for value in range(1 << WIDTH):
        shift = WIDTH - trie.bits_needed(value)
        alike = [other for other in range(1 << WIDTH) if other >> shift == value >> shift]
        for length in range(1, WIDTH + 1):
            assert {trie.has_prefix(other, length) for other in alike} == {trie.has_prefix(value, length)}
