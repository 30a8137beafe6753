"""ARP for a VIP, simulated and by a real ovs-vswitchd: the same reply, the same megaflows."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from tests.arp import arp_request
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, predicted_shape
from tests.predicted import predict_megaflows
from xenoovs.judge.simulate.headers import Headers
from xenoovs.judge.simulate.walk import tables_of
from xenoovs.model.address import Mac
from xenoovs.openflow.flow import Field
from xenoovs.openflow.text import parse_flow

pytestmark = pytest.mark.ovs

VIP, OTHER = 0x0A030A2D, 0x0A030A70
FLOWS = [
    parse_flow(text)
    for text in (
        "priority=9,arp,in_port=p0,arp_tpa=10.3.10.45,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
        "mod_dl_src:c4:70:bd:a0:56:ac,load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],"
        "load:0xc470bda056ac->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
        "load:0xa030a2d->NXM_OF_ARP_SPA[],IN_PORT",
        "priority=5,ip,nw_dst=10.3.10.45 actions=output:p1",
        "priority=1,in_port=p0 actions=output:p1",
    )
]
REQUESTS = [
    arp_request("p0", sender_mac=0x0200000000A0 + i, sender=0xC6336400 + i, target=OTHER + i if i % 3 == 0 else VIP)
    for i in range(12)
]


def _text(request: Headers) -> str:
    mac, sender = Mac(request.get(Field.ARP_SHA)), IPv4Address(request.get(Field.ARP_SPA))
    target = IPv4Address(request.get(Field.ARP_TPA))
    return (
        f"in_port(1),packet_type(ns=0,id=0),eth(src={mac},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),"
        f"arp(sip={sender},tip={target},op=1,sha={mac},tha=00:00:00:00:00:00)"
    )


def _reply_fields(frame: bytes) -> tuple[int, ...]:
    """dl_dst, dl_src, then operation, sender and target of the ARP packet (RFC 826)."""
    cuts = ((0, 6), (6, 12), (20, 22), (22, 28), (28, 32), (32, 38), (38, 42))
    return tuple(int.from_bytes(frame[start:end], "big") for start, end in cuts)


def test_replies_and_megaflows_are_as_simulated(bridge: DummyBridge) -> None:
    install(bridge, FLOWS)
    bridge.settle(removed_s=0)
    bridge.send("p0", [_text(request) for request in REQUESTS])

    order = (Field.DL_DST, Field.DL_SRC, Field.ARP_OP, Field.ARP_SHA, Field.ARP_SPA, Field.ARP_THA, Field.ARP_TPA)
    copies = [copy for request in REQUESTS for copy in tables_of(FLOWS).run(request).copies]
    for port in ("p0", "p1"):
        simulated = [tuple(map(copy.headers.get, order)) for copy in copies if copy.port == port]
        assert list(map(_reply_fields, bridge.sent(port))) == simulated

    predicted = {predicted_shape(megaflow)[:2] for megaflow in predict_megaflows(FLOWS, REQUESTS)}
    assert {shape[:2] for shape in observed_shapes(bridge)} == predicted
