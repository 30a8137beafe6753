"""Bytes written by hand from the specification, because a codec with the same mistake both ways passes its own laws."""

from __future__ import annotations

import pytest

from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import encode_hello
from xenoovs.openflow.wire.message import Role, encode_bundle, encode_role_request

_PORTS = {"p0": 1, "p1": 2, "br0": 65534}

_FLOW_MOD = """
05 0e 0090 00000009
786f010100000005 0000000000000000
01 00 0000 0000 03e7 ffffffff ffffffff ffffffff 0000 0000
0001 0026
80000004 00000001
00010004 00000005
80000a02 0800
80001708 00000001 00000003
0000
0004 0038 00000000
0019 0010 80000606 020000000001 0000
0000 0010 00000002 0000 000000000000
ffff 0010 00002320 000e fff8 04 000000
"""


def test_a_flow_of_xenoovs() -> None:
    flow = parse_flow(
        "cookie=0x786f010100000005, table=1, priority=999,ip,reg0=0x5,in_port=p0,nw_src=0.0.0.1/0.0.0.3 "
        "actions=mod_dl_dst:02:00:00:00:00:01,output:p1,resubmit(,4)"
    )
    assert encode_flow_mod(FlowMod(Command.ADD, flow), xid=9, ofports=_PORTS) == bytes.fromhex(_FLOW_MOD)


@pytest.mark.parametrize(
    ("line", "conditions"),
    [
        ("udp,tp_dst=53", "80000a02 0800 80001401 11 80002002 0035"),
        ("tcp6,tp_src=0x10/0xfff0", "80000a02 86dd 80001401 06 80001b04 0010 fff0"),
        ("icmp6,icmp_type=135", "80000a02 86dd 80001401 3a 80003a01 87"),
        ("icmp,icmp_type=8", "80000a02 0800 80001401 01 80002601 08"),
        ("arp,arp_op=1,arp_tpa=10.0.0.1", "80000a02 0806 80002e04 0a000001 80002a02 0001"),
        ("in_port=LOCAL", "80000004 fffffffe"),
        ("in_port=br0", "80000004 fffffffe"),
        ("in_port=7", "80000004 00000007"),
        ("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00", "8000070c 010000000000 010000000000"),
        ("pkt_mark=0x1/0x1", "00014308 00000001 00000001"),
        ("metadata=0x5", "80000408 0000000000000005"),
    ],
)
def test_conditions(line: str, conditions: str) -> None:
    sent = encode_flow_mod(FlowMod(Command.DELETE, parse_flow(f"{line} actions=drop")), xid=0, ofports=_PORTS)
    size = int.from_bytes(sent[50:52], "big")
    assert sent[52 : 48 + size].hex() == conditions.replace(" ", "")


@pytest.mark.parametrize(
    ("action", "packed"),
    [
        ("load:0x5->NXM_NX_REG0[]", "ffff 0018 00002320 0007 001f 00010004 0000000000000005"),
        ("move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]", "ffff 0018 00002320 0006 0030 0000 0000 00000406 00000206"),
        ("IN_PORT", "0000 0010 fffffff8 0000 000000000000"),
        ("NORMAL", "0000 0010 fffffffa 0000 000000000000"),
        ("group:5", "0016 0008 00000005"),
        ("CONTROLLER:128", "0000 0010 fffffffd 0080 000000000000"),
        ("wire:0013000888470000", "0013 0008 8847 0000"),
    ],
)
def test_actions(action: str, packed: str) -> None:
    sent = encode_flow_mod(FlowMod(Command.ADD, parse_flow(f"actions={action}")), xid=0, ofports=_PORTS)
    assert sent[64:].hex() == packed.replace(" ", "")


def test_a_bundle_of_one() -> None:
    (opened, added, committed) = encode_bundle(
        Bundle((FlowMod(Command.DELETE, parse_flow("actions=drop")),)), bundle_id=7, first_xid=20, ofports={}
    )
    assert opened == bytes.fromhex("05210010 00000014 00000007 0000 0003")
    assert added[:16] == bytes.fromhex("05220048 00000015 00000007 0000 0003")
    assert added[16:24] == bytes.fromhex("050e0038 00000015")
    assert committed == bytes.fromhex("05210010 00000016 00000007 0004 0003")


def test_hello_and_role() -> None:
    assert encode_hello((4, 5), xid=1) == bytes.fromhex("05000010 00000001 00010008 00000030")
    assert encode_role_request(Role.MASTER, 3, xid=2) == bytes.fromhex(
        "05180018 00000002 00000002 00000000 0000000000000003"
    )
