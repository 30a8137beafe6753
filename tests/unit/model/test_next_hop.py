"""Claims and their ids, ports, next hops: their text, their order, and what paths of a tunnel come to."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.tunnels import PORTS, REMOTE, TUNNEL, tunnelled
from tests.unit.balancer import backends, balancer, claim, service
from xenoovs.compile.encoding import deliver, hop_of
from xenoovs.decision.decision import Blocks
from xenoovs.model.address import Family, Mac, PortRange
from xenoovs.model.balancer import (
    MAX_KEY_BITS,
    Claim,
    Protocol,
    Service,
    claim_text,
    merge_ports,
    service_ids,
)
from xenoovs.model.next_hop import (
    MAX_VLAN,
    NO_TAG,
    UNKNOWN_MAC,
    Direct,
    NextHop,
    SourcePort,
    ToAddress,
    Unchanged,
    mac_and_port,
    parse_next_hop,
    vlan_of,
    with_mac,
)
from xenoovs.model.packet import Packet, claims
from xenoovs.model.remote import every_service, unknown_paths, with_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, Discover, HostTunnel, Paths, PathSelector, Remote
from xenoovs.partition.block import MAX_WIDTH
from xenoovs.partition.solve import partition

HOP = Direct(Mac(0x02005E100002), "p1")
"""A new kind of next hop is written here and nowhere else."""


TUNNELED = "02:00:5e:10:00:02/192.168.77.11/5001"
WHATS = ("02:00:5e:10:00:02", "unchanged", "02:00:5e:10:00:02>10.3.20.11", "02:00:5e:10:00:02>10.3.20.11:65535")
TAGS = {"": None, "+untagged": NO_TAG, "+vlan1": 1, "+vlan4094": MAX_VLAN}
OTHER_TEXTS = ("50001@p+1", "192.168.201.1@p+1", f"{TUNNELED}@gnv0", f"{TUNNELED}@gnv0-c0a84d0b")
TEXTS = {f"{what}{tag}@p+1": vlan for what in WHATS for tag, vlan in TAGS.items()}


@pytest.mark.parametrize(("text", "vlan"), [*TEXTS.items(), *dict.fromkeys(OTHER_TEXTS).items()])
def test_a_next_hop_and_its_vlan_are_read_back_from_text_and_actions(text: str, vlan: int | None) -> None:
    hop = parse_next_hop(text)
    assert (str(hop), vlan_of(hop)) == (text, vlan)
    assert hop_of(deliver(hop, None)) == hop_of(deliver(hop, Mac(9))) == hop


@pytest.mark.parametrize(
    "text",
    [
        *("", "p1", "p0", "@p1", "02:00:5e:10:00:02", "02:00:5e:10:00:02@", "2:0:5e:10:0:2@p1"),
        *("02:00:5e:10:00:02/192.0.2.1/x@p1", "65536@p0", "007@p0", "1.2.3@p0", "٣@p0"),
        *(f"02:00:5e:10:00:02+{tag}@p1" for tag in ("", "vlan", "vlan0", "vlan05", "vlan4095", "vlan-1", "tagged")),
        *(f"02:00:5e:10:00:02>10.3.20.{end}@p1" for end in ("256", "11:", "11:0", "11:080", "11:65536")),
        *("02:00:5e:10:00:02>@p1", "02:00:5e:10:00:02:02@p1", " 02:00:5e:10:00:02@p1", "02:00:5e:10:00:02\n@p1"),
        *("02-00-5e-10-00-02@p1", "٠٢:00:5e:10:00:02@p1", "02005e100002@p1"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|Expected 4 octets|not permitted|cannot be empty"):
        parse_next_hop(text)


def test_a_mac_that_is_found_changes_nothing_else() -> None:
    assert with_mac(Direct(UNKNOWN_MAC, "p1"), HOP.mac) == HOP
    assert mac_and_port(HOP) == ("02:00:5e:10:00:02", "p1")


def _service(tunnel: HostTunnel) -> Service:
    (service,) = every_service(tunnelled(tunnel))
    return service


def _hops(paths: Paths, remote: Remote = REMOTE) -> dict[str, NextHop]:
    service = _service(replace(TUNNEL, paths=paths, remotes=(remote,)))
    return {backend.name: backend.next_hop for backend in service.backends}


def test_a_remote_claims_the_packets_that_the_host_sends_it_and_overlaps_no_service_of_clients() -> None:
    claim = _service(TUNNEL).claim
    assert (claim.in_port, claim.vips, claim.ports) == ("pf0hpf", (REMOTE.address,), (PortRange(4789, 4789),))
    assert claim.overlaps(claim)
    of_clients = replace(claim, in_port=None)
    assert not claim.overlaps(of_clients)
    assert claim_text(claim) != claim_text(of_clients)


ALIAS = IPv4Address("192.168.201.1")
PATHS: dict[str, tuple[Paths, dict[str, NextHop]]] = {
    "source ports leave by the uplink": (
        Paths(PathSelector.SOURCE_PORT, 2, Discover.LIST, (50_001, 50_002)),
        {"p1": SourcePort(50_001, "p0"), "p2": SourcePort(50_002, "p0")},
    ),
    "uplinks have the names of the ports": (
        Paths(PathSelector.UPLINK, 2, uplinks=("p0", "p1")),
        {"p0": Unchanged("p0"), "p1": Unchanged("p1")},
    ),
    "the address and its aliases": (
        Paths(PathSelector.ADDRESS),
        {"p1": ToAddress(REMOTE.address, "p0"), "p2": ToAddress(ALIAS, "p0")},
    ),
}


@pytest.mark.parametrize(("paths", "hops"), PATHS.values(), ids=PATHS)
def test_paths_and_their_names(paths: Paths, hops: dict[str, NextHop]) -> None:
    assert _hops(paths, replace(REMOTE, aliases=(ALIAS,))) == hops


def test_paths_that_are_still_to_be_found_have_no_weight() -> None:
    balancer = tunnelled(replace(TUNNEL, paths=Paths(PathSelector.SOURCE_PORT, 2, Discover.TTL)))
    (service,) = every_service(balancer)
    assert unknown_paths(balancer) == (("rack7", "b"),)
    assert set(service.weights) == {0}
    known = with_source_ports(balancer, {("rack7", "b"): (50_003, 50_004)})
    (service,) = every_service(known)
    assert not unknown_paths(known)
    assert [str(backend.next_hop) for backend in service.backends] == ["50003@p0", "50004@p0"]


def test_without_discovery_the_ports_are_any_distinct_ones_and_always_the_same() -> None:
    hops = _hops(Paths(PathSelector.SOURCE_PORT, 64, Discover.NONE))
    ports = [hop.source_port for hop in hops.values() if isinstance(hop, SourcePort)]
    assert len(set(ports)) == 64
    assert all(port in DYNAMIC_PORTS for port in ports)
    assert hops == _hops(Paths(PathSelector.SOURCE_PORT, 64, Discover.NONE))
    other = replace(REMOTE, address=IPv4Address("192.168.200.9"))
    assert hops != _hops(Paths(PathSelector.SOURCE_PORT, 64, Discover.NONE), other)


@pytest.mark.parametrize(("count", "blocks"), [(1, 16), (2, 64), (3, 16), (5, 256), (13, 64), (16, 256)])
def test_paths_get_equal_shares_of_the_blocks(count: int, blocks: int) -> None:
    service = _service(replace(TUNNEL, paths=Paths(PathSelector.SOURCE_PORT, count, Discover.NONE), blocks=blocks))
    found = partition(service.weights, tolerance=service.tolerance, max_width=service.key.max_width).assignment
    shares = Blocks.of_assignment(found, (backend.name for backend in service.backends)).shares()
    assert len(shares) == count
    assert set(shares.values()) <= {Fraction(blocks // count, blocks), Fraction(-(-blocks // count), blocks)}


def test_ports_that_a_config_lists_replace_those_that_were_found() -> None:
    """After a reload from `discover: ttl` to `ports` those of the config had no effect until the agent's restart."""
    balancer = with_source_ports(tunnelled(), {("rack7", "b"): (60_001, 60_002, 60_003, 60_004)})
    (service,) = every_service(balancer)
    assert [backend.next_hop for backend in service.backends] == [SourcePort(port, "p0") for port in PORTS]


VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")


def test_merged_ports() -> None:
    for ranges, merged in (
        ([], []),
        ([(53, 53), (53, 53)], [(53, 53)]),
        ([(8001, 8001), (8000, 8000)], [(8000, 8001)]),
        ([(1, 10), (3, 4), (20, 30)], [(1, 10), (20, 30)]),
        ([(1, 10), (5, 20), (22, 22)], [(1, 20), (22, 22)]),
        ([(0, 0), (65535, 65535)], [(0, 0), (65535, 65535)]),
    ):
        assert merge_ports(PortRange(*pair) for pair in ranges) == tuple(PortRange(*pair) for pair in merged)


def test_the_partition_has_as_many_bits() -> None:
    assert MAX_KEY_BITS == MAX_WIDTH


def id_of(claimed: Claim) -> int:
    return service_ids([claimed])[claimed]


def test_ids_are_these_for_ever() -> None:
    """A changed hash would rewrite every flow of every bridge on the next apply."""
    assert id_of(claim()) == 0xF11F9601
    assert id_of(claim(VIP, VIP6, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)])) == 0x2D29B906


def test_the_same_packets_are_the_same_id() -> None:
    """Their order does not matter either (tests/property/test_compile_program.py)."""
    one, other = (claim(VIP, protocol=Protocol.TCP, ports=ports) for ports in ([(80, 81)], [(81, 81), (80, 80)]))
    assert id_of(one) == id_of(other)
    assert id_of(claim(VIP)) == id_of(Claim(frozenset(Family), (VIP,)))


def test_a_collision_takes_the_next_id_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        def digest(self) -> bytes:
            return b"\xff\xff\xff\xff"

    monkeypatch.setattr("hashlib.blake2s", lambda *_, **__: Constant())
    claims = [claim(IPv4Address(i)) for i in (1, 2, 3)]
    found = service_ids(claims)
    assert service_ids(reversed(claims)) == found
    # After the last number comes 1: 0 means no service.
    assert sorted(found.values()) == [1, 2, 0xFFFFFFFF]


def test_egress_ports_start_with_the_default_and_every_port_is_named_once() -> None:
    away = [*backends(1, egress="z"), *backends(1, egress="p1"), *backends(1, egress="a")]
    made = balancer(replace(service(claim()), backends=tuple(away)), ingress=("p0", "p2"))
    assert (made.egress_ports, made.ports) == (("p1", "a", "z"), ("p0", "p2", "p1", "a", "z"))


CLIENT, CLIENT6 = IPv4Address("198.51.100.7"), IPv6Address("2001:db8:c::7")


@pytest.mark.parametrize(("icmp_type", "claimed"), [(128, True), (132, True), (133, False), (137, False), (138, True)])
def test_neighbour_discovery_belongs_to_no_service(icmp_type: int, *, claimed: bool) -> None:
    packet = Packet("p0", CLIENT6, VIP6, 58, icmp_type, 0)
    assert claims(Claim(frozenset({Family.IPV6})), packet) is claimed
    assert claims(claim(VIP6, protocol=Protocol.ICMP), packet) is claimed
