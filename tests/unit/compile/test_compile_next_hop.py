"""Next hops in OpenFlow's actions, there and back."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from xenoovs.compile.encoding import arrives, deliver, hop_of
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import (
    Direct,
    NextHop,
    SourcePort,
    ToAddress,
    Translated,
    Tunneled,
    Unchanged,
    parse_next_hop,
)
from xenoovs.openflow.flow import Action, Field
from xenoovs.openflow.text import parse_flow, render_actions

HOP, SAME = Direct(Mac(2), "p1"), Unchanged("p1")
REMOTE = IPv4Address("192.168.77.11")
SHARED, OWN = Tunneled(Mac(2), "gnv0", REMOTE, 5001), Tunneled(Mac(2), "gnv0-c0a84d0b", REMOTE, 5001)
SERVER = Translated(Mac(2), "p1", IPv4Address("10.3.20.11"), 8080)
SAME_PORT = Translated(Mac(2), "p1", IPv4Address("10.3.20.11"))
BY_PORT, BY_ADDRESS = SourcePort(50_001, "p1"), ToAddress(IPv4Address("192.168.201.1"), "p1")

HOPS = [HOP, SAME, BY_PORT, BY_ADDRESS, SHARED, OWN, SERVER, SAME_PORT]


def fields(**values: int) -> Callable[[Field], int]:
    """Fields of a packet; those that are not given are 7."""
    return lambda field: values.get(field.ovs_name, 7)


def actions_of(text: str) -> tuple[Action, ...]:
    return parse_flow(f"actions={text}").actions


@pytest.mark.parametrize("hop", HOPS)
@pytest.mark.parametrize("source_mac", [None, Mac(9)])
def test_where_actions_deliver_is_read_out_of_them(hop: NextHop, source_mac: Mac | None) -> None:
    assert hop_of(deliver(hop, source_mac)) == hop


@pytest.mark.parametrize("hop", HOPS)
def test_a_next_hop_is_read_from_its_text(hop: NextHop) -> None:
    assert parse_next_hop(str(hop)) == hop


@pytest.mark.parametrize("text", ["drop", "NORMAL", "mod_dl_dst:00:00:00:00:00:02", "resubmit(,2)"])
def test_other_actions_deliver_to_no_next_hop(text: str) -> None:
    assert hop_of(actions_of(text)) is None


@pytest.mark.parametrize(("dl_dst", "port"), [(2, "p9"), (3, "p1"), (2, None)])
def test_a_packet_arrives_with_the_mac_by_the_port(dl_dst: int, port: str | None) -> None:
    assert arrives(HOP, port="p1", sent=fields(dl_dst=2), original=fields())
    assert not arrives(HOP, port=port, sent=fields(dl_dst=dl_dst), original=fields())


@pytest.mark.parametrize(("dl_dst", "port", "is_there"), [(5, "p1", True), (2, "p1", False), (5, "p2", False)])
def test_a_packet_arrives_unchanged_with_the_mac_that_it_had(dl_dst: int, port: str, *, is_there: bool) -> None:
    assert arrives(SAME, port=port, sent=fields(dl_dst=dl_dst), original=fields(dl_dst=5)) is is_there


def test_a_path_by_source_port_is_identified_by_the_port_and_one_by_address_by_the_destination() -> None:
    assert arrives(BY_PORT, port="p1", sent=fields(tp_src=50_001), original=fields())
    assert not arrives(BY_PORT, port="p1", sent=fields(tp_src=50_002), original=fields())
    address = int(IPv4Address("192.168.201.1"))
    assert arrives(BY_ADDRESS, port="p1", sent=fields(nw_dst=address), original=fields())
    assert not arrives(BY_ADDRESS, port="p1", sent=fields(), original=fields())
    assert not arrives(SAME, port="p1", sent=fields(nw_dst=address), original=fields())


def test_a_tunnel_is_identified_by_remote_and_key_and_a_port_of_its_own_by_its_name() -> None:
    sent = {"dl_dst": 2, "tun_id": 5001}
    assert arrives(SHARED, port="gnv0", sent=fields(**sent, tun_dst=int(REMOTE)), original=fields())
    assert not arrives(SHARED, port="gnv0", sent=fields(**sent, tun_dst=int(REMOTE) + 1), original=fields())
    assert not arrives(SHARED, port="gnv0", sent=fields(dl_dst=2, tun_dst=int(REMOTE)), original=fields())
    assert arrives(OWN, port="gnv0-c0a84d0b", sent=fields(**sent), original=fields())


def test_a_flow_to_a_port_of_one_remote_writes_no_address() -> None:
    key = "mod_dl_dst:00:00:00:00:00:02,load:0x1389->NXM_NX_TUN_ID[]"
    assert render_actions(deliver(SHARED, None)) == f"{key},load:0xc0a84d0b->NXM_NX_TUN_IPV4_DST[],output:gnv0"
    assert render_actions(deliver(OWN, None)) == f'{key},output:"gnv0-c0a84d0b"'


@pytest.mark.parametrize(
    "what", ["load:0x1389->NXM_NX_TUN_ID[]", "mod_dl_dst:00:00:00:00:00:02,load:5->NXM_NX_TUN_ID[]"]
)
def test_a_tunnel_without_a_server_or_a_remote_is_no_next_hop(what: str) -> None:
    assert hop_of(actions_of(f"{what},output:gnv0")) is None


def test_a_server_behind_nat_is_identified_by_mac_address_and_port() -> None:
    there = {"dl_dst": 2, "nw_dst": int(SERVER.address), "tp_dst": 8080}
    assert arrives(SERVER, port="p1", sent=fields(**there), original=fields())
    for name in there:
        assert not arrives(SERVER, port="p1", sent=fields(**there | {name: 9}), original=fields())
    assert not arrives(SAME_PORT, port="p1", sent=fields(**there), original=fields())
    assert arrives(SAME_PORT, port="p1", sent=fields(**there), original=fields(tp_dst=8080))
    assert not arrives(HOP, port="p1", sent=fields(**there), original=fields())
