"""Flows that xenoovs encodes are what Open vSwitch then dumps, byte for byte; what it lists decodes to the same.

Other messages are as `ovs-ofctl ofp-parse` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.golden.cases import CASES, WITH_ORIGINAL, balancer_of, file_of
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.ways import Record, Way, live_switch, running_server
from tests.patience import PATIENCE_S
from tests.property.flows import PORTS, actions, flows
from tests.property.wire_messages import OFPORTS
from tests.strategies import share
from xenoovs.compile.tunnel_ports import wanted_ports
from xenoovs.judge.trace import parse_trace, render_packet
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import (
    FOREIGN,
    OWNER,
    Bundle,
    Command,
    CookieMask,
    Field,
    Flow,
    FlowMod,
    ObservedFlow,
    SetField,
)
from xenoovs.openflow.text import parse_dump, parse_flow, render_bundle, render_flow
from xenoovs.openflow.wire.frame import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ERROR,
    EXPERIMENTER,
    NICIRA,
    decode_error,
    error_name,
    message,
)
from xenoovs.openflow.wire.message import encode_bundle, encode_discard, encode_packet_out
from xenoovs.switch.api import Switch
from xenoovs.switch.openflow import Connection, connected, decode_flows, request_flows, send_bundle
from xenoovs.switch.process import run

_ALL = (CookieMask(0, 0),)


@pytest.fixture(scope="module")
def many_ports(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """A bridge with every port that the cases and the strategies name."""
    tunnels = {port.name for case in CASES for port in wanted_ports(balancer_of(case))}
    with dummy_ovs.bridge("ovsbrwire", ports=(*PORTS, *sorted(tunnels))) as made:
        yield made


@pytest.fixture
def dpu(many_ports: DummyBridge) -> DummyBridge:
    """The same, without a flow."""
    many_ports.ofctl("del-flows")
    return many_ports


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_installed_and_dumped(dpu: DummyBridge, case: str) -> None:
    """By ovs-ofctl, whose OpenFlow 1.4 writes actions in other words (set_field for mod_dl_dst), and by our bytes."""
    text = file_of(case, "program.txt").read_text()
    wanted = {parse_flow(line) for line in text.splitlines()}
    dpu.add_flows(text)
    assert in_our_order(dpu.dump_flows()) == text.splitlines()
    assert {parse_flow(line) for line in dpu.dump_flows(version="OpenFlow14")} == wanted
    dpu.ofctl("del-flows")
    with connection(dpu) as peer:
        send(peer, adds([*wanted]))
        assert in_our_order(dpu.dump_flows()) == text.splitlines()
        assert {seen.flow for seen in listed(peer)} == wanted


@pytest.mark.parametrize("case", WITH_ORIGINAL)
def test_original(dpu: DummyBridge, case: str) -> None:
    """Also after it has been through our parser."""
    lines = file_of(case, "original.txt").read_text().splitlines()
    dpu.add_flows("".join(f"{render_flow(parse_flow(line))}\n" for line in lines))
    assert in_our_order(dpu.dump_flows()) == lines


def in_our_order(lines: list[str]) -> list[str]:
    """By table, falling priority and text, as program.txt is."""
    return sorted(lines, key=lambda line: (parse_flow(line).table, -parse_flow(line).priority, line))


@share(0.4)
@given(wanted=st.lists(flows(), min_size=1, max_size=30, unique_by=lambda flow: flow.key))
def test_any_flow_is_installed_and_dumped(many_ports: DummyBridge, wanted: list[Flow]) -> None:
    many_ports.ofctl("del-flows")
    text = sorted(map(render_flow, wanted))
    many_ports.add_flows(render_bundle(adds(wanted)))
    assert sorted(many_ports.dump_flows()) == text
    for version in ("OpenFlow10", "OpenFlow14"):
        observed = parse_dump(many_ports.ofctl("dump-flows", version=version))
        assert {seen.flow for seen in observed} == set(wanted)
    many_ports.ofctl("del-flows")
    with connection(many_ports) as peer:
        send(peer, adds(wanted))
        assert sorted(many_ports.dump_flows()) == text
        by_wire, by_text = (
            sorted(render_flow(seen.flow) for seen in found)
            for found in (listed(peer), parse_dump(many_ports.ofctl("dump-flows")))
        )
        assert by_wire == by_text
        send(peer, Bundle(tuple(FlowMod(Command.DELETE, flow) for flow in wanted)))
        assert many_ports.dump_flows() == []


@pytest.mark.parametrize(
    "conditions",
    [
        *("dl_vlan=5", "dl_vlan=5,dl_vlan_pcp=3", "tun_id=0x5", "tun_id=0/0x4", "reg7=0x1/0xf", "ct_mark=0x7"),
        *("ip,nw_tos=184", "ip,nw_ecn=2", "ipv6,nw_ttl=64", "icmp6,icmp_type=135,nd_target=fd00::1"),
        *("icmp6,icmp_type=135,nd_target=fd00::/8", "icmp6,icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:01"),
        *("in_port=99", "ct_zone=5", "conj_id=7", "dl_vlan=0", "vlan_tci=0x1000/0x1000", "vlan_tci=0x1004/0x100c"),
    ],
)
def test_common_conditions_of_others_are_told_in_words(dpu: DummyBridge, conditions: str) -> None:
    """Ports that are gone stand by their numbers."""
    dpu.add_flows(f"priority=5,{conditions} actions=output:98\n")
    with connection(dpu) as peer:
        (by_wire,) = listed(peer)
        assert by_wire.flow == parse_flow(dpu.dump_flows()[0])
        send(peer, Bundle((FlowMod(Command.DELETE, by_wire.flow),)))
    assert dpu.dump_flows() == []


@pytest.mark.parametrize(
    "flow",
    [
        *("tcp,tcp_flags=syn actions=drop", "ct_state=+trk+est,ip actions=drop", "ip,nw_frag=later actions=drop"),
        *("vlan_tci=0x0000/0x1fff actions=drop", "tun_src=10.0.0.1 actions=drop"),
        *("ip actions=ct(commit,zone=5)", "ip actions=dec_ttl,output:2", "actions=push_vlan:0x8100,output:2"),
        *("actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])", "actions=clear_actions"),
        *("udp actions=load:0x35->NXM_OF_UDP_DST[]", "actions=load:0x1->NXM_NX_REG0[0..3]"),
        *(
            "ip actions=write_actions(output:2),goto_table:4",
            "actions=write_metadata:0x1",
            "actions=set_field:1/1->reg0",
        ),
        "actions=controller(max_len=128,reason=invalid_ttl),output:1",
        "ip actions=clone(output:1),note:00.01.02,output:2",
        "idle_timeout=60,hard_timeout=90,send_flow_rem,importance=7,cookie=0x7,ip actions=drop",
    ],
)
def test_what_is_not_known_goes_back_as_it_came(dpu: DummyBridge, flow: str) -> None:
    dpu.add_flows(f"priority=5,{flow}\n")
    before = dpu.dump_flows(version="OpenFlow14")
    with connection(dpu) as peer:
        (seen,) = listed(peer)
        dpu.ofctl("del-flows")
        send(peer, adds([seen.flow]))
    assert dpu.dump_flows(version="OpenFlow14") == before


def adds(wanted: list[Flow]) -> Bundle:
    return Bundle(tuple(FlowMod(Command.ADD, flow) for flow in wanted))


def connection(bridge: DummyBridge) -> AbstractContextManager[Connection]:
    return connected(live_switch(bridge.ovs).endpoint, bridge.name)


def send(peer: Connection, bundle: Bundle) -> None:
    send_bundle(peer, bundle, ofports=peer.numbers)


def listed(peer: Connection) -> tuple[ObservedFlow, ...]:
    return decode_flows(request_flows(peer, _ALL), peer.names)


_FOUR, _SIX = ("198.51.100.7", "192.0.2.10"), ("2001:db8::7", "2001:db8::10")


def test_bug_icmpv6_and_rare_protocols_could_not_be_traced(dpu: DummyBridge) -> None:
    """A real ofproto/trace reads every packet that is asked about, and takes it for the packet that was meant."""
    for (source, destination), protocol, l4, condition in (
        (_FOUR, 17, (4000, 53), "udp,tp_dst=53"),
        (_FOUR, 132, (4000, 53), "sctp,tp_dst=53"),
        (_FOUR, 1, (8, 0), "icmp,icmp_type=8"),
        (_FOUR, 47, (0, 0), "ip,nw_proto=47"),
        (_FOUR, 58, (0, 0), "ip,nw_proto=58"),
        (_SIX, 6, (4000, 80), "tcp6,tp_dst=80"),
        (_SIX, 58, (128, 0), "icmp6,icmpv6_type=128"),
        (_SIX, 1, (0, 0), "ipv6,nw_proto=1"),
        (_SIX, 89, (0, 0), "ipv6,nw_proto=89"),
    ):
        dpu.ofctl("del-flows")
        dpu.add_flows(f"priority=9,{condition} actions=output:p1\n")
        packet = Packet("p0", ip_address(source), ip_address(destination), protocol, *l4)
        assert parse_trace(dpu.trace(render_packet(packet))).ports == ("p1",), condition


def test_a_bundle_can_be_dropped(dpu: DummyBridge) -> None:
    with connection(dpu) as peer:
        first = peer.take_xids(5)
        bundle = adds([parse_flow("priority=1,ip actions=drop")])
        *parts, commit = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=peer.numbers)
        barrier = message(BARRIER_REQUEST, xid=first + 4)
        peer.send(b"".join((*parts, encode_discard(first, first + 3), commit, barrier)))
        *_, refused = iter(partial(peer.receive, timeout_s=PATIENCE_S), message(BARRIER_REPLY, xid=first + 4))
    assert decode_error(refused).name == "OFPBFC_BAD_ID"
    assert dpu.dump_flows() == []


_PRINTED_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5").ljust(60, b"\0")


def test_errors_have_the_names_of_open_vswitch(tmp_path: Path) -> None:
    """All but three that Open vSwitch does not tell apart from others (13,2 to 13,4: bad properties)."""
    codes = [(kind, code) for kind in range(18) for code in range(17) if error_name(kind, code).startswith("OFP")]
    names = {error_name(*each): pack("!HH", *each) for each in codes if each not in ((13, 2), (13, 3), (13, 4))}
    for code in (2, 3, 4, 11, 12, 15):
        names[error_name(EXPERIMENTER, code, vendor=NICIRA)] = pack("!HHI", EXPERIMENTER, code, NICIRA)
    printed = _printed([message(ERROR, body, xid=1) for body in names.values()], tmp_path / "messages")
    assert [name for name, text in zip(names, printed, strict=True) if name not in text] == []


@share(0.3)
@given(wanted=st.lists(flows(), min_size=1, max_size=20))
def test_packets_go_out_by_any_actions(tmp_path_factory: pytest.TempPathFactory, wanted: list[Flow]) -> None:
    # A packet that is sent out has no match, so no protocol whose ports an action could write.
    portless = [flow for flow in wanted if not _writes_ports(flow)]
    sent = [encode_packet_out(flow.actions, _PRINTED_FRAME, OFPORTS, xid=1) for flow in portless]
    printed = _printed(sent, tmp_path_factory.mktemp("wire") / "messages")
    assert len(printed) == len(sent)
    assert [text for text in printed if "***" in text] == []


def _writes_ports(flow: Flow) -> bool:
    return any(isinstance(action, SetField) and action.field in (Field.TP_SRC, Field.TP_DST) for action in flow.actions)


def _printed(messages: Sequence[bytes], path: Path) -> list[str]:
    """What ovs-ofctl prints of each; it writes `***` where it cannot decode."""
    path.write_bytes(b"".join(messages))
    text = run(["ovs-ofctl", "ofp-parse", str(path)], timeout_s=20).stdout
    return re.split(r"^(?=OFP[A-Z]+_)", text, flags=re.MULTILINE)[1:]


# The switch in memory and both ways to a real one end in the same tables after the same bundles (law 6).


_FEW_PORTS = ("p0", "p1")


@st.composite
def bundles(draw: st.DrawFn) -> list[Bundle]:
    """Bundles that meet the same few keys again and again."""
    keys = draw(st.lists(flows(_FEW_PORTS).map(lambda flow: flow.key), min_size=1, max_size=4, unique=True))
    cookies = st.sampled_from((OWNER << 48 | 1, OWNER << 48 | 2, 5))
    contents = actions(None, None, _FEW_PORTS, most=2).map(tuple)
    flow = st.builds(Flow, st.sampled_from(keys), cookies, contents)
    mods = st.builds(FlowMod, st.sampled_from(Command), flow)
    return draw(st.lists(st.lists(mods, max_size=6).map(tuple).map(Bundle), min_size=1, max_size=4))


@pytest.fixture
def controller(dpu: DummyBridge) -> Iterator[Switch]:
    with running_server(Record()) as server:
        yield Way(server).switch(dpu.ovs)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sent=bundles())
def test_all_end_in_the_same_tables(dpu: DummyBridge, controller: Switch, sent: list[Bundle]) -> None:
    live, fake = live_switch(dpu.ovs), FakeSwitch(fake_bridge(dpu.name, _FEW_PORTS))
    tables = []
    for switch in (live, controller, fake):
        dpu.ofctl("del-flows")
        for bundle in sent:
            switch.apply(dpu.name, bundle)
        # Each way is read by itself and, where there is another, by that one too.
        readers = (fake,) if switch is fake else (live, controller)
        tables += [{seen.flow for seen in reader.dump_flows(dpu.name)} for reader in readers]
        tables += [{seen.flow for seen in reader.dump_flows(dpu.name, only=FOREIGN)} for reader in readers]
        counts = {reader.count_flows(dpu.name, only=FOREIGN) for reader in readers}
        assert counts == {len(tables[-1])}
    assert tables[0] == tables[1] == tables[4] == tables[5] == tables[8]
    assert tables[2] == tables[3] == tables[6] == tables[7] == tables[9]
