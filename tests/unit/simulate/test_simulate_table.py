"""One packet through the tables: priorities, registers, rewriting, ports, and the edges of OpenFlow."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from tests.arp import arp_request
from xenoovs.errors import SimulateError
from xenoovs.model.address import Mac
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import ETH_ARP, Field
from xenoovs.openflow.text import parse_flow
from xenoovs.simulate.walk import Copy, FlowTables, tables_of

PACKET = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 17, 4000, 53)


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
