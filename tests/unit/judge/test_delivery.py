"""Actions work in their order: what leaves by a port leaves with the MAC that was written before."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import IN_HARDWARE, blocks, two_services
from xenoovs.datapath.megaflow import match_of
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.expected import (
    ExpectedBlock,
    OutsideKind,
    delivers,
    expected_services,
    is_undetermined,
    outside_kind_of,
)
from xenoovs.judge.findings import OffloadFindings
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Tunneled

SERVICES = expected_services(two_services())
BLOCK = next(block for block in blocks(two_services()) if block.backend == "b1")
GOOD, BAD = "set(eth(dst=02:00:00:00:00:01))", "set(eth(src=02:00:00:00:00:55,dst=02:00:00:00:00:77))"
HEAD = "recirc_id(0),in_port(p0),eth(dst={dst}),eth_type(0x0800),ipv4(dst=10.3.10.45,proto=17,frag=no)"


def _delivers(actions: str, *, dst: str = "c4:70:bd:a0:56:ac", block: ExpectedBlock = BLOCK) -> bool:
    line = f"{HEAD.format(dst=dst)}, packets:1, bytes:60, used:0.1s{IN_HARDWARE}, actions:{actions}"
    megaflow = parse_megaflow(line)
    return delivers(megaflow, match_of(megaflow), block)


@pytest.mark.parametrize(
    ("actions", "is_delivered"),
    [
        (f"{GOOD},p1", True),
        (f"p1,{GOOD},p9", False),
        (f"{GOOD},{BAD},p1", False),
        (f"{BAD},{GOOD},p1", True),
        (f"{BAD},p9,{GOOD},p1", True),
        (f"{GOOD},p1,{BAD},p9", True),
        (f"{BAD},p1,{GOOD},p1", True),
        (f"trunc(100),p9,{GOOD},p1", True),
        (f"{GOOD},p9", False),
        ("set(eth(src=02:00:00:00:00:55)),p1", False),
        (f"{GOOD},set(tunnel(tun_id=0x1,dst=192.0.2.1)),genev_sys_6081", True),
        ("p1", False),
        ("drop", False),
    ],
)
def test_in_their_order(actions: str, *, is_delivered: bool) -> None:
    assert _delivers(actions) == is_delivered


@pytest.mark.parametrize(("actions", "is_delivered"), [("p1", True), ("p9", False), (f"{BAD},p1", False)])
def test_a_packet_that_came_with_the_mac(actions: str, *, is_delivered: bool) -> None:
    assert _delivers(actions, dst="02:00:00:00:00:01") == is_delivered


def _check(actions: str) -> OffloadFindings:
    source = f"src={BLOCK.key.value:#x}".replace("src=0x", "src=0.0.0.") + "/0.0.0.15"
    keys = HEAD.format(dst="c4:70:bd:a0:56:ac").replace("ipv4(", f"ipv4({source},").replace("no)", "no),udp(dst=53)")
    megaflow = parse_megaflow(f"{keys}, packets:1, bytes:60, used:0.1s{IN_HARDWARE}, actions:{actions}")
    return check_offload(SERVICES, [megaflow])


@pytest.mark.parametrize(
    "actions",
    [
        "ct(zone=1),recirc(0x3)",
        "hash(l4(0)),recirc(0x3)",
        f"check_pkt_len(size=1500,gt(drop),le({GOOD},p1))",
        f"clone({GOOD},p1)",
    ],
)
def test_what_is_decided_later_is_not_called_misdelivered(actions: str) -> None:
    """A block whose packets pass connection tracking first was reported as sent elsewhere."""
    assert is_undetermined(parse_megaflow(f"in_port(p0), packets:1, bytes:1, used:never, actions:{actions}").actions)
    found = _check(actions)
    assert (sum(block.megaflows for block in found.blocks), sum(block.misdelivered for block in found.blocks)) == (1, 0)


@pytest.mark.parametrize(
    ("ct_state", "is_new"),
    [
        *((text, True) for text in ("0x21/0x21", "0x21/0x23", "0x21/0x3f", "0x21", "+new-est+trk")),
        *((text, False) for text in ("0x22/0x22", "0/0", "0x1/0x1", "0x20/0x21", "-new+est+trk")),
    ],
)
def test_the_first_packet_of_a_connection_under_any_mask(ct_state: str, *, is_new: bool) -> None:
    """Only the mask 0x21 was recognised, but ct_state(0x21/0x23) is the same packet."""
    keys = f"recirc_id(0x5),ct_state({ct_state}),in_port(p0),eth_type(0x0800),ipv4(frag=no)"
    line = f"{keys}, packets:1, bytes:60, used:0.1s, dp:ovs, actions:ct(commit),recirc(0x6)"
    assert (outside_kind_of(parse_megaflow(line), frozenset()) is OutsideKind.NEW_CONNECTION) == is_new


REMOTE = IPv4Address("192.168.77.11")
SENT = "set(tunnel(tun_id=0x1389,{},ttl=64,tp_dst=6081,flags(df|key))),set(eth(dst=02:00:00:00:00:01)),genev_sys_6081"
PUSHED = (
    "set(eth(dst=02:00:00:00:00:01)),tnl_push(tnl_port(genev_sys_6081),header(size=50,type=5,eth(dst=aa:55:aa:55:00:01,"
    "src=aa:55:aa:55:00:02,dl_type=0x0800),ipv4(src=192.168.77.1,dst={},proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,"
    "dst=6081,csum=0x0),geneve(vni=0x1389)),out_port(br-ul)),p1"
)

TO_SERVER = PUSHED.format("192.168.77.11")
WITH_LOCAL = SENT.format("src=192.168.77.1,dst=192.168.77.11")


@pytest.mark.parametrize("port", ["gnv0", "gnv0-c0a84d0b"])
@pytest.mark.parametrize(
    ("actions", "local", "is_delivered"),
    [
        (SENT.format("dst=192.168.77.11"), None, True),
        (WITH_LOCAL, None, True),
        (SENT.format("dst=192.168.77.12"), None, False),
        (SENT.format("dst=192.168.77.11").replace("0x1389", "0x138a"), None, False),
        (SENT.format("dst=192.168.77.11").replace("00:01", "00:02"), None, False),
        (TO_SERVER, None, True),
        (PUSHED.format("192.168.77.12"), None, False),
        (TO_SERVER.replace("geneve(vni=0x1389)", "vxlan(flags=0x8000000,vni=0x1389)"), None, True),
        (TO_SERVER.replace("geneve(vni=0x1389)", "gre((flags=0x2000,proto=0x6558),key=0x1)"), None, False),
        (TO_SERVER.replace("vni=0x1389", "vni=0x1388"), None, False),
        ("set(eth(dst=02:00:00:00:00:01)),p1", None, False),
        ("genev_sys_6081", None, False),
        # Bug: two tunnels with different local addresses were one. All shared ports of a type have one device in the
        # datapath; the outer source distinguishes their packets.
        (WITH_LOCAL, "192.168.77.1", True),
        (WITH_LOCAL, "192.168.77.2", False),
        (SENT.format("dst=192.168.77.11"), "192.168.77.2", True),
        (TO_SERVER, "192.168.77.1", True),
        (TO_SERVER, "192.168.77.2", False),
    ],
)
def test_behind_a_tunnel_by_the_ends_the_key_and_the_inner_mac(
    port: str, actions: str, local: str | None, *, is_delivered: bool
) -> None:
    locals_ = {} if local is None else {port: int(IPv4Address(local))}
    block = replace(BLOCK, hops=(Tunneled(Mac(0x020000000001), port, REMOTE, 5001),), locals=locals_)
    assert _delivers(actions, block=block) == is_delivered
