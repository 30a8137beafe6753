"""Next hops: their text, their order, and which modules may read their parts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

import pytest

from tests.tunnels import PORTS, REMOTE, TUNNEL, tunnelled
from xenoovs.compile.encoding import deliver, hop_of
from xenoovs.decision.decision import Blocks
from xenoovs.model.address import Mac, PortRange
from xenoovs.model.balancer import Service, claim_text
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
from xenoovs.model.remote import every_service, unknown_paths, with_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, Discover, HostTunnel, Paths, PathSelector, Remote
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


_ALIAS = IPv4Address("192.168.201.1")


@pytest.mark.parametrize(
    ("paths", "hops"),
    [
        (
            Paths(PathSelector.SOURCE_PORT, 2, Discover.LIST, (50_001, 50_002)),
            {"p1": SourcePort(50_001, "p0"), "p2": SourcePort(50_002, "p0")},
        ),
        (Paths(PathSelector.UPLINK, 2, uplinks=("p0", "p1")), {"p0": Unchanged("p0"), "p1": Unchanged("p1")}),
        (Paths(PathSelector.ADDRESS), {"p1": ToAddress(REMOTE.address, "p0"), "p2": ToAddress(_ALIAS, "p0")}),
    ],
    ids=["source ports leave by the uplink", "uplinks have the names of the ports", "the address and its aliases"],
)
def test_paths_and_their_names(paths: Paths, hops: dict[str, NextHop]) -> None:
    assert _hops(paths, replace(REMOTE, aliases=(_ALIAS,))) == hops


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
