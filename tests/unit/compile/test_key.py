"""The balancing key in OpenFlow's fields, and how lists and logs of clients spread over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, ip_address

import pytest

from tests.unit import balancer as small
from tests.unit.balancer import claim, program, service
from xenoovs.compile.clients import Spread, check_spread, parse_clients
from xenoovs.compile.encoding import (
    arrives,
    block_conditions,
    hop_of,
    rule_of,
)
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import BlockKey, KeyField, Protocol, Service
from xenoovs.model.next_hop import (
    Direct,
    NextHop,
    SourcePort,
    ToAddress,
    Translated,
    Tunneled,
    Unchanged,
)
from xenoovs.openflow.flow import Field
from xenoovs.openflow.text import parse_flow
from xenoovs.partition.block import Block

UDP = small.claim(protocol=Protocol.UDP)
SOURCE = KeyField.SOURCE_ADDRESS


@pytest.mark.parametrize("protocol", [None, Protocol.ICMP])
def test_packets_without_ports_have_no_source_port(protocol: Protocol | None) -> None:
    of_port = replace(small.service(replace(UDP, protocol=protocol), 1, 1), key=BlockKey(KeyField.SOURCE_PORT))
    with pytest.raises(CompileError, match="a source port needs a protocol with ports"):
        block_conditions(of_port, Family.IPV4, rule_of(Block(1, 2), of_port.key))


HOP, SAME = Direct(Mac(2), "p1"), Unchanged("p1")
REMOTE = IPv4Address("192.168.77.11")
SHARED, OWN = Tunneled(Mac(2), "gnv0", REMOTE, 5001), Tunneled(Mac(2), "gnv0-c0a84d0b", REMOTE, 5001)
SERVER = Translated(Mac(2), "p1", IPv4Address("10.3.20.11"), 8080)
SAME_PORT = Translated(Mac(2), "p1", IPv4Address("10.3.20.11"))
BY_PORT, BY_ADDRESS = SourcePort(50_001, "p1"), ToAddress(IPv4Address("192.168.201.1"), "p1")


def fields(**values: int) -> Callable[[Field], int]:
    """Fields of a packet; those that are not given are 7."""
    return lambda field: values.get(field.ovs_name, 7)


@pytest.mark.parametrize(
    "text",
    [
        *("drop", "NORMAL", "mod_dl_dst:00:00:00:00:00:02", "resubmit(,2)"),
        # A tunnel without a server or a remote.
        *(
            "load:0x1389->NXM_NX_TUN_ID[],output:gnv0",
            "mod_dl_dst:00:00:00:00:00:02,load:5->NXM_NX_TUN_ID[],output:gnv0",
        ),
    ],
)
def test_other_actions_deliver_to_no_next_hop(text: str) -> None:
    assert hop_of(parse_flow(f"actions={text}").actions) is None


ADDRESS = {"nw_dst": int(BY_ADDRESS.address)}
TUNNEL = {"dl_dst": 2, "tun_id": 5001, "tun_dst": int(REMOTE)}
NAT = {"dl_dst": 2, "nw_dst": int(SERVER.address), "tp_dst": 8080}


@pytest.mark.parametrize(
    ("hop", "port", "sent", "original", "is_there"),
    [
        (HOP, "p1", {"dl_dst": 2}, {}, True),
        (HOP, "p9", {"dl_dst": 2}, {}, False),
        (HOP, "p1", {"dl_dst": 3}, {}, False),
        (HOP, None, {"dl_dst": 2}, {}, False),
        (HOP, "p1", NAT, {}, False),
        # Unchanged: with the MAC that it had.
        (SAME, "p1", {"dl_dst": 5}, {"dl_dst": 5}, True),
        (SAME, "p1", {"dl_dst": 2}, {"dl_dst": 5}, False),
        (SAME, "p2", {"dl_dst": 5}, {"dl_dst": 5}, False),
        (SAME, "p1", ADDRESS, {}, False),
        (BY_PORT, "p1", {"tp_src": 50_001}, {}, True),
        (BY_PORT, "p1", {"tp_src": 50_002}, {}, False),
        (BY_ADDRESS, "p1", ADDRESS, {}, True),
        (BY_ADDRESS, "p1", {}, {}, False),
        # A tunnel by remote and key, and a port of its own by its name.
        (SHARED, "gnv0", TUNNEL, {}, True),
        (SHARED, "gnv0", TUNNEL | {"tun_dst": int(REMOTE) + 1}, {}, False),
        (SHARED, "gnv0", TUNNEL | {"tun_id": 7}, {}, False),
        (OWN, "gnv0-c0a84d0b", TUNNEL | {"tun_dst": 7}, {}, True),
        # A server behind NAT by MAC, address and port.
        (SERVER, "p1", NAT, {}, True),
        *((SERVER, "p1", NAT | {name: 9}, {}, False) for name in NAT),
        (SAME_PORT, "p1", NAT, {}, False),
        (SAME_PORT, "p1", NAT, {"tp_dst": 8080}, True),
    ],
)
def test_what_identifies_a_packet_that_arrives(
    hop: NextHop, port: str | None, sent: dict[str, int], original: dict[str, int], is_there: bool
) -> None:
    assert arrives(hop, port=port, sent=fields(**sent), original=fields(**original)) is is_there


THREE = service(claim(), 2, 1, 1)


def spread_of(made: Service, family: Family, load: Mapping[int, int]) -> Spread:
    (only,) = program(made).services
    return check_spread(only, family, load)


def test_clients_that_cover_the_space_get_the_shares_of_the_space() -> None:
    spread = spread_of(THREE, Family.IPV4, dict.fromkeys(range(1 << 16), 3))
    assert [backend.load for backend in spread.backends] == [backend.space for backend in spread.backends]
    assert [backend.wanted for backend in spread.backends] == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    assert spread.load == 3 << 16
    assert spread.is_by_chance


def test_the_bits_of_the_config_are_judged() -> None:
    chosen = replace(THREE, key=BlockKey(positions=(8, 9, 10)))
    spread = spread_of(chosen, Family.IPV4, {n << 8: 1 for n in range(8)})
    assert spread.positions == (8, 9)
    assert spread.bits.depths[-1].selected == 0


def test_better_bits_are_suggested_and_never_ones_that_no_flow_can_match() -> None:
    gateways = {n << 112 | 1 << 64 | (n % 64) << 16: 1 for n in range(4096)}
    spread = spread_of(THREE, Family.IPV6, gateways)
    assert spread.suggestion is not None
    assert all(position < 112 for position in spread.suggestion.positions)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("203.0.113.9", 1),
        ("203.0.113.9 12", 12),
        ("203.0.113.9,12", 12),
        ("203.0.113.9\t12\n", 12),
        ("     12 203.0.113.9", 12),
        ('203.0.113.9 - - [21/Nov/2026] "GET / HTTP/1.1" 200', 1),
        ("203.0.113.9 7 # resolver", 7),
        ("203.0.113.9 0", 1),
        ("", 0),
        ("  \n", 0),
        ("# 203.0.113.9", 0),
    ],
)
def test_lines_that_name_a_client_or_none(line: str, count: int) -> None:
    clients = parse_clients([line])
    assert (clients.load, clients.unread) == ({ip_address("203.0.113.9"): count} if count else {}, ())


@pytest.mark.parametrize("line", ["garbage", "12", "203.0.113", "203.0.113.9.1 5", "-3 203.0.113.9", "12 twelve"])
def test_lines_that_name_no_client_are_reported_with_their_number(line: str) -> None:
    (error,) = parse_clients(["::1", line]).unread
    assert error.line == 2


def test_many_unread_lines_are_counted_and_only_the_first_stored() -> None:
    clients = parse_clients(["x"] * 1000)
    assert (len(clients.unread), clients.unread_lines) == (100, 1000)


def test_the_same_client_adds_up_and_families_are_apart() -> None:
    clients = parse_clients(["10.0.0.1 2", "10.0.0.1", "::2 5"])
    assert (clients.of(Family.IPV4), clients.of(Family.IPV6)) == ({0x0A000001: 3}, {2: 5})
