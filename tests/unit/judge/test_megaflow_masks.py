"""What un-wildcards bits of a megaflow (lib/classifier.h, "Staged lookup", "Prefix tracking")."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
from xenoovs.errors import SimulateError
from xenoovs.judge.simulate.classifier import PrefixTrie, prefix_fields_of
from xenoovs.judge.simulate.megaflows import pipeline_of, predict
from xenoovs.judge.simulate.walk import FlowTables, Segment, segment_of, slot_of, tables_of, walk
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field
from xenoovs.openflow.text import parse_flow

PACKET = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 17, 4000, 53)
PACKET6 = Packet("p0", IPv6Address("2001:db8::7"), IPv6Address("2001:db8::45"), 17, 4000, 53)
BLOCK = "priority=100,ip,nw_src=0.0.0.1/0.0.0.1 actions=output:p1"


def _shown(*texts: str, packet: Packet = PACKET, version: str | None = None) -> str:
    """The masks of the megaflow of a packet, and its actions."""
    megaflow = predict(pipeline_of(map(parse_flow, texts), prefix_fields=prefix_fields_of(version)), packet)[0]
    masks = (f"{name}/{field.mask:#x}" for name, field in megaflow.fields().items())
    return f"{', '.join(masks)} -> {','.join(megaflow.actions) or 'unknown'}"


BESIDE_BLOCK = {
    "a longer mask of higher priority is visited first": "priority=200,ip,nw_src=0.0.0.0/0.0.0.15",
    "a longer mask of lower priority is never reached": "priority=50,ip,nw_src=0.0.0.0/0.0.0.15",
    "a register fails in the first stage": "priority=200,ip,reg0=0x5,nw_src=0.0.0.0/0.0.0.15",
    "so does the port": "priority=200,ip,in_port=p9,nw_src=0.0.0.0/0.0.0.15",
    "what fails at the addresses adds no ports": "priority=200,tcp,tp_dst=22",
    # 53 is 0b110101, 22 is 0b010110: they part at the bit of value 32.
    "missed ports add the bits that differ": "priority=200,udp,tp_dst=22",
    # 198 is 0b11000110, 203 is 0b11001011: they part at the fifth bit.
    "a prefix adds the bits that rule it out": "priority=200,ip,nw_src=203.0.113.9",
}
OF_IPV6 = ("priority=200,ipv6,ipv6_src=fd00::/8 actions=drop", "priority=100,ipv6 actions=output:p1")


def test_what_flows_add_to_a_megaflow(*, update_golden: bool) -> None:
    shown = {"a block alone is its megaflow": _shown(BLOCK)}
    shown |= {title: _shown(BLOCK, f"{flow} actions=drop") for title, flow in BESIDE_BLOCK.items()}
    shown["rewriting the destination matches it"] = _shown(
        "priority=1,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1"
    )
    for version in ("2.15.0", "3.4.9+nvidia", "no version", None, "3.5.0", "4.0.0"):
        fields = f" ({len(prefix_fields_of(version))} prefix fields)"
        shown[f"a prefix of IPv6, {version}"] = _shown(*OF_IPV6, packet=PACKET6, version=version) + fields
    # CVE-2023-5366: by a megaflow without them PSH would pass, which a flow is there to drop.
    flags = "priority=200,tcp,tp_dst=53,tcp_flags=+psh actions=drop"
    shown["flags beside missed ports"] = _shown(
        "priority=100,ip actions=output:p1", flags, packet=replace(PACKET, protocol=6)
    )
    shown["NORMAL matches both MACs and leaves the port open"] = _shown("priority=1 actions=NORMAL")
    for stage in Segment:
        names = (field.ovs_name for field in Field if segment_of(slot_of(field)) is stage)
        shown[f"fields of stage {stage.name}"] = ", ".join(sorted(names))
    assert_recorded("judged/masks.txt", shown, update=update_golden)


def _tables(*texts: str) -> FlowTables:
    return tables_of(parse_flow(text) for text in texts)


def test_copies_of_a_packet() -> None:
    """It returns to its port by IN_PORT alone, an endless loop of tables drops it, and what it lacks is not set."""
    assert walk(_tables("priority=1 actions=output:p0"), PACKET).copies == []
    assert [copy.port for copy in walk(_tables("priority=1 actions=IN_PORT"), PACKET).copies] == ["p0"]
    assert walk(_tables("priority=1 actions=resubmit(,0)"), PACKET).copies == []
    (copy,) = walk(_tables("priority=1 actions=load:0x1->NXM_OF_ARP_SPA[],output:p1"), PACKET).copies
    assert copy.headers.get(Field.NW_SRC) == int(PACKET.source)


@pytest.mark.parametrize("flow", ["priority=1 actions=dec_ttl,output:p1", "priority=1,ct_state=+new actions=output:p1"])
def test_an_unknown_field_or_action_is_refused_with_its_flow(flow: str) -> None:
    with pytest.raises(SimulateError) as caught:
        walk(_tables(flow), PACKET)
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
