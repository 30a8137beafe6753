"""The table judges a flow as it judges what a real Open vSwitch translates it to.

Each example of an action is installed, a packet traced, and the megaflow and the datapath actions that ofproto/trace
prints are judged on their own. Where the table answered that it depends, the switch decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.judged import check_flow
from tests.ovs.dummy import DummyBridge, DummyOvs
from xenoovs.compile.offloadable.check import judge, overall
from xenoovs.compile.offloadable.megaflow_topics import megaflow_topics
from xenoovs.compile.offloadable.openflow_topics import TopicUse, each_topic_once, match_topics, parse_groups
from xenoovs.compile.offloadable.table import EXAMPLE_GROUPS, TOPICS, Offload, Profile, Topic, TopicKind
from xenoovs.datapath.megaflow import Key, Megaflow
from xenoovs.datapath.parse import split_actions
from xenoovs.openflow.text import parse_flow

_BRIDGE = "ovsbroffload"
_PORTS = ("p0", "p1", "pf0hpf", *(f"p{number}" for number in range(2, 18)))
_PACKETS = {
    "icmp6": "icmp6,ipv6_src=2001:db8::7,ipv6_dst=2001:db8::10,icmpv6_type=136,nd_target=2001:db8::10,nw_ttl=255",
    "icmp": "icmp,nw_src=192.0.2.1,nw_dst=192.0.2.10,icmp_type=8,nw_ttl=64",
    "ipv6": "udp6,ipv6_src=2001:db8::7,ipv6_dst=2001:db8::10,udp_dst=53,nw_ttl=64",
    "sctp": "sctp,nw_src=192.0.2.1,nw_dst=192.0.2.10,sctp_dst=53,nw_ttl=64",
    "tcp": "tcp,nw_src=192.0.2.1,nw_dst=192.0.2.10,tcp_dst=53,nw_ttl=64",
    "arp": "arp,arp_op=1,arp_spa=192.0.2.1,arp_tpa=192.0.2.10",
    "udp": "udp,nw_src=192.0.2.1,nw_dst=192.0.2.10,udp_dst=53,nw_ttl=64",
    "ip": "udp,nw_src=192.0.2.1,nw_dst=192.0.2.10,udp_dst=53,nw_ttl=64",
}
_NOT_TRACED = frozenset(
    # Unknown to the switch, too; an unknown group; options and ports of tunnels that this bridge lacks; what the dummy
    # datapath cannot encapsulate; packets that the trace does not make (fragments), or that the match does not meet.
    ("unknown-action", "group", "set-tunnel", "set-tunnel-options", "nsh-action", "set-port-of-fragment", "wide-match")
)
TRACED = [
    t for t in TOPICS if t.example and t.kind in (TopicKind.ACTION, TopicKind.COMBINATION) and t.name not in _NOT_TRACED
]


@pytest.fixture(scope="module")
def offload_bridge(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge(_BRIDGE, ports=_PORTS) as made:
        made.ofctl("add-groups", "-", stdin=EXAMPLE_GROUPS, version="OpenFlow15")
        made.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
        yield made


@pytest.mark.parametrize("topic", TRACED, ids=lambda topic: topic.name)
def test_a_flow_is_judged_as_what_it_becomes(offload_bridge: DummyBridge, topic: Topic) -> None:
    example = topic.example or ""
    offload_bridge.ofctl("del-flows")
    offload_bridge.ofctl("add-flow", example, version="OpenFlow15")
    packet = _PACKETS[re.split("[, ]", example)[0]]
    answer = offload_bridge.trace(f"in_port=p0,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,{packet}")
    became = overall(judge(_seen(answer), Profile.TC, (3, 1)))
    said = overall(check_flow(parse_flow(example), Profile.TC, (3, 1), groups=parse_groups(EXAMPLE_GROUPS)))
    assert said in (became, Offload.DEPENDS), answer


def _seen(answer: str) -> tuple[TopicUse, ...]:
    """Megaflow and datapath actions of a trace, as topics."""
    conditions, actions = (
        re.search(rf"^{head}: (.*)$", answer, re.MULTILINE) for head in ("Megaflow", "Datapath actions")
    )
    assert conditions
    assert actions
    flow = parse_flow(f"{conditions[1]} actions=drop")
    megaflow = Megaflow(None, (Key("in_port", "p0"),), 0, 0, None, None, None, None, split_actions(actions[1]))
    done = megaflow_topics(megaflow, internal_ports=(_BRIDGE,))
    slow = (TopicUse("slow-path", "slow path"),) if "slow path" in answer else ()
    return each_topic_once((*match_topics(flow.match), *done, *slow))
