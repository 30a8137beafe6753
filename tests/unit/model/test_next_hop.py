"""Next hops: their text, their order, and which modules may read their parts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

import pytest

from xenoovs.compile.encoding import deliver, hop_of
from xenoovs.decision.decision import Blocks
from xenoovs.model.address import Mac, PortRange
from xenoovs.model.balancer import Balancer, OtherTraffic, Service, Uplinks, service_ids
from xenoovs.model.next_hop import (
    MAX_VLAN,
    NO_TAG,
    UNKNOWN_MAC,
    Direct,
    NextHop,
    SourcePort,
    ToAddress,
    Translated,
    Unchanged,
    mac_and_port,
    parse_next_hop,
    vlan_of,
    with_mac,
)
from xenoovs.model.remote import every_service, unknown_paths, with_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, Discover, HostTunnel, PathProbe, Paths, PathSelector, Remote
from xenoovs.partition.solve import partition

HOP = Direct(Mac(0x02005E100002), "p1")
"""A new kind of next hop is written here and nowhere else."""


@pytest.mark.parametrize("what", ["02:00:5e:10:00:02", "unchanged", "02:00:5e:10:00:02>10.3.20.11:80"])
@pytest.mark.parametrize(("tag", "vlan"), [("", None), ("+untagged", NO_TAG), ("+vlan1", 1), ("+vlan4094", MAX_VLAN)])
def test_the_vlan_of_a_hop_is_read_back_from_its_text(what: str, tag: str, vlan: int | None) -> None:
    hop = parse_next_hop(f"{what}{tag}@p+1")
    assert (str(hop), vlan_of(hop)) == (f"{what}{tag}@p+1", vlan)
    assert hop_of(deliver(hop, None)) == hop


@pytest.mark.parametrize("port", ["p1", "0", "pf0hpf", "en3f0pf0sf0.5@p0"])
def test_it_is_read_back_from_its_text(port: str) -> None:
    hop = Direct(HOP.mac, port)
    assert str(hop) == f"02:00:5e:10:00:02@{port}"
    assert parse_next_hop(str(hop)) == hop


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p1",
        "@p1",
        "02:00:5e:10:00:02",
        "02:00:5e:10:00:02@",
        "2:0:5e:10:0:2@p1",
        "02:00:5e:10:00:02/192.0.2.1/x@p1",
        *(f"02:00:5e:10:00:02+{tag}@p1" for tag in ("", "vlan", "vlan0", "vlan05", "vlan4095", "vlan-1", "tagged")),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_next_hop(text)


@pytest.mark.parametrize("text", ["10.3.20.11", "10.3.20.11:8080", "10.3.20.11:65535"])
def test_a_server_behind_nat_is_read_back_from_its_text(text: str) -> None:
    written = f"02:00:5e:10:00:02>{text}@p1"
    hop = parse_next_hop(written)
    assert isinstance(hop, Translated)
    assert (str(hop), hop.endpoint) == (written, text)


@pytest.mark.parametrize(
    "text", ["10.3.20.256", "", "10.3.20.11:", "10.3.20.11:0", "10.3.20.11:080", "10.3.20.11:65536"]
)
def test_other_servers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_next_hop(f"02:00:5e:10:00:02>{text}@p1")


def test_next_hops_are_in_the_order_of_their_macs() -> None:
    first, second, third = (Direct(Mac(mac), port) for mac, port in ((1, "p1"), (1, "p2"), (2, "p0")))
    assert sorted([third, second, first]) == [first, second, third]


def test_a_mac_that_is_found_changes_nothing_else() -> None:
    assert with_mac(Direct(UNKNOWN_MAC, "p1"), HOP.mac) == HOP
    assert mac_and_port(HOP) == ("02:00:5e:10:00:02", "p1")


UPLINKS = Uplinks("ovsbr1", ("p0",), "pf0hpf", OtherTraffic.PASSTHROUGH)
REMOTE = Remote("b", IPv4Address("192.168.200.1"))
TUNNEL = HostTunnel(
    "rack7",
    IPv4Address("192.168.200.2"),
    "pf0hpf",
    (REMOTE,),
    Paths(PathSelector.SOURCE_PORT, 2, Discover.LIST, (50_001, 50_002)),
    PathProbe("xoar0"),
)


def _balancer(tunnel: HostTunnel = TUNNEL) -> Balancer:
    return Balancer(UPLINKS, (), tunnels=(tunnel,))


def _service(tunnel: HostTunnel) -> Service:
    (service,) = every_service(_balancer(tunnel))
    return service


def _hops(paths: Paths, remote: Remote = REMOTE) -> dict[str, NextHop]:
    service = _service(replace(TUNNEL, paths=paths, remotes=(remote,)))
    return {backend.name: backend.next_hop for backend in service.backends}


def test_a_remote_claims_the_packets_that_the_host_sends_it() -> None:
    claim = _service(TUNNEL).claim
    assert (claim.in_port, claim.vips, claim.ports) == ("pf0hpf", (REMOTE.address,), (PortRange(4789, 4789),))


def test_a_service_of_clients_does_not_overlap_a_remote() -> None:
    claim = _service(TUNNEL).claim
    assert claim.overlaps(claim)
    assert not claim.overlaps(replace(claim, in_port=None))
    assert len(set(service_ids((claim, replace(claim, in_port=None))).values())) == 2


def test_paths_by_source_port_leave_by_the_uplink() -> None:
    hops = _hops(Paths(PathSelector.SOURCE_PORT, 2, Discover.LIST, (50_001, 50_002)))
    assert hops == {"p1": SourcePort(50_001, "p0"), "p2": SourcePort(50_002, "p0")}


def test_paths_by_uplink_have_the_names_of_the_ports() -> None:
    hops = _hops(Paths(PathSelector.UPLINK, 2, uplinks=("p0", "p1")))
    assert hops == {"p0": Unchanged("p0"), "p1": Unchanged("p1")}


def test_paths_by_address_lead_to_the_address_and_the_aliases_of_the_remote() -> None:
    alias = IPv4Address("192.168.201.1")
    hops = _hops(Paths(PathSelector.ADDRESS), replace(REMOTE, aliases=(alias,)))
    assert hops == {"p1": ToAddress(REMOTE.address, "p0"), "p2": ToAddress(alias, "p0")}


def test_paths_that_are_still_to_be_found_have_no_weight() -> None:
    balancer = _balancer(replace(TUNNEL, paths=Paths(PathSelector.SOURCE_PORT, 2, Discover.TTL)))
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


@pytest.mark.parametrize("text", ["65536@p0", "007@p0", "1.2.3@p0", "p0", "٣@p0"])
def test_other_text_is_no_next_hop(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_next_hop(text)


def test_ports_that_a_config_lists_replace_those_that_were_found() -> None:
    """After a reload from `discover: ttl` to `ports` those of the config had no effect until the agent's restart."""
    balancer = with_source_ports(_balancer(), {("rack7", "b"): (60_001, 60_002)})
    (service,) = every_service(balancer)
    assert [backend.next_hop for backend in service.backends] == [SourcePort(50_001, "p0"), SourcePort(50_002, "p0")]
