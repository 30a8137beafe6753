"""Programs and packets on their way to a real ovs-vswitchd, and its megaflows in the form of predicted ones."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ovs.dummy import DummyBridge
from tests.predicted import predict_megaflows
from xenoovs.datapath.megaflow import match_of
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.simulate.walk import Headers
from xenoovs.model.address import Family
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import TAGGED, Command, Field, Flow, FlowMod
from xenoovs.openflow.text import render_flow_mod

_L4_KEY = {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "icmpv6"}

Shape = tuple[str, tuple[tuple[str, int, int], ...], tuple[str, ...]]
"""Ingress port, (field, mask, value) of the match, actions."""


def packet_text(packet: Packet) -> str:
    """The packet as `netdev-dummy/receive` takes it."""
    family, kind = ("0x0800", "ipv4") if packet.family is Family.IPV4 else ("0x86dd", "ipv6")
    l4 = _L4_KEY[packet.protocol]
    names = ("type", "code") if l4.startswith("icmp") else ("src", "dst")
    life = f"tos={packet.tos},ttl=64" if kind == "ipv4" else f"tclass={packet.tos},hlimit=64"
    label = "" if kind == "ipv4" else "label=0,"
    inner = (
        f"eth_type({family}),"
        f"{kind}(src={packet.source},dst={packet.destination},{label}proto={packet.protocol},{life},frag=no),"
        f"{l4}({names[0]}={packet.sport},{names[1]}={packet.dport})"
    )
    tagged = f"eth_type(0x8100),vlan(vid={packet.vlan & ~TAGGED},pcp=0),encap({inner})" if packet.vlan else inner
    return f"in_port(1),packet_type(ns=0,id=0),eth(src={packet.dl_src},dst={packet.dl_dst}),{tagged}"


def install(bridge: DummyBridge, flows: Sequence[Flow]) -> None:
    bridge.add_flows("".join(f"{render_flow_mod(FlowMod(Command.ADD, flow))}\n" for flow in flows))


def send(bridge: DummyBridge, packets: Sequence[Packet]) -> None:
    for port in bridge.ports:
        bridge.send(port, [packet_text(packet) for packet in packets if packet.in_port == port])


def observed_shapes(bridge: DummyBridge) -> set[Shape]:
    """The megaflows of the switch; the actions of NORMAL, which depend on MAC learning, are not compared."""
    megaflows = [parse_megaflow(line) for line in bridge.megaflows()]
    return {
        (str(m.in_port), tuple(sorted((n, v.mask, v.value) for n, v in match_of(m).items())), m.actions)
        for m in megaflows
    }


def predicted_shapes(
    flows: Sequence[Flow], packets: Sequence[Packet | Headers], prefix_fields: Sequence[Field]
) -> set[Shape]:
    return {
        (
            megaflow.in_port,
            tuple(sorted((name, field.mask, field.value) for name, field in megaflow.fields().items())),
            megaflow.actions,
        )
        for megaflow in predict_megaflows(flows, packets, prefix_fields)
    }


def without_learned_ports(observed: set[Shape], predicted: set[Shape]) -> set[Shape]:
    """Megaflows whose port MAC learning chose are compared by their match alone."""
    learned = {(in_port, fields) for in_port, fields, actions in predicted if not actions}
    return {(port, fields, () if (port, fields) in learned else actions) for port, fields, actions in observed}


def send_as_predicted(
    bridge: DummyBridge, flows: Sequence[Flow], packets: Sequence[Packet], *, prefix_fields: Sequence[Field] = ()
) -> set[Shape]:
    """Install flows and send packets: the megaflows are those that are predicted. Return them."""
    install(bridge, flows)
    bridge.settle(removed_s=0)
    send(bridge, packets)
    predicted = predicted_shapes(flows, packets, prefix_fields or bridge.prefix_fields)
    assert without_learned_ports(observed_shapes(bridge), predicted) == predicted
    return predicted
