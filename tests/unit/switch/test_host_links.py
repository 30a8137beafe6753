"""Devices, qdiscs, neighbours and addresses as iproute2 6.1 prints them (recorded on Debian 12, kernel 6.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xenoovs.datapath.host import Neighbour
from xenoovs.errors import ParseError
from xenoovs.switch.devices import parse_addresses, parse_ingress, parse_links, parse_macs, parse_neighbours

LINKS = """\
[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"qdisc":"noqueue",
"operstate":"UNKNOWN","linkmode":"DEFAULT","group":"default","txqlen":1000,"link_type":"loopback",
"address":"00:00:00:00:00:00","broadcast":"00:00:00:00:00:00","promiscuity":0,"min_mtu":0,"max_mtu":0},
{"ifindex":2,"ifname":"p0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"qdisc":"fq_codel",
"master":"ovs-system","operstate":"UNKNOWN","linkmode":"DEFAULT","group":"default","txqlen":1000,
"link_type":"ether","address":"2a:cd:7a:e9:1c:a2","broadcast":"ff:ff:ff:ff:ff:ff","promiscuity":1,
"min_mtu":68,"max_mtu":65535,"linkinfo":{"info_slave_kind":"openvswitch"},"phys_switch_id":"65737769746368"},
{"ifindex":4,"ifname":"eth0","flags":["BROADCAST","MULTICAST"],"mtu":1400,"qdisc":"pfifo_fast",
"operstate":"DOWN","link_type":"ether","address":"02:fc:00:00:00:01","broadcast":"ff:ff:ff:ff:ff:ff",
"parentbus":"virtio","parentdev":"virtio2"}]"""

QDISCS = """\
[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{}},
{"kind":"fq_codel","handle":"0:","dev":"p0","root":true,"refcnt":2,"options":{"limit":10240,"ecn":true}},
{"kind":"ingress","handle":"ffff:","dev":"p0","parent":"ffff:fff1","options":{}},
{"kind":"clsact","handle":"ffff:","dev":"ovsbr1","parent":"ffff:fff1","options":{}}]"""

NEIGHBOURS = """\
[{"dst":"192.0.2.1","dev":"eth0","lladdr":"02:FC:00:00:00:05","state":["STALE"]},
{"dst":"fd00::1","dev":"eth0","state":["FAILED"]},
{"dst":"192.0.2.9","dev":"eth0","lladdr":"02:fc:00:00:00:09","state":["FAILED"]}]"""

LOOPBACK = """\
[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"addr_info":[{"family":"inet",
"local":"10.3.10.45","prefixlen":32,"scope":"global","label":"lo"},{"family":"inet6","local":"::1",
"prefixlen":128}]}]"""


def test_links() -> None:
    devices = parse_links(LINKS)
    assert list(devices) == ["lo", "p0", "eth0"]
    p0 = devices["p0"]
    assert (p0.is_up, p0.mtu) == (True, 1500)
    assert (p0.switch_id, p0.port_name, p0.master) == ("65737769746368", None, "ovs-system")


def test_a_device_that_is_down() -> None:
    assert not parse_links(LINKS)["eth0"].is_up


def test_only_a_pci_device_is_one() -> None:
    assert parse_links(LINKS)["eth0"].pci is None
    assert parse_links(LINKS.replace("virtio2", "0000:03:00.1"))["eth0"].pci == "0000:03:00.1"


def test_ingress_qdiscs() -> None:
    assert parse_ingress(QDISCS) == {"p0", "ovsbr1"}


def test_neighbours_that_have_answered() -> None:
    assert parse_neighbours(NEIGHBOURS) == (Neighbour("192.0.2.1", "02:fc:00:00:00:05", "eth0"),)


def test_addresses() -> None:
    assert parse_addresses(LOOPBACK) == ("10.3.10.45", "::1")


def test_macs_of_ethernet_devices() -> None:
    assert parse_macs(LINKS) == ("2a:cd:7a:e9:1c:a2", "02:fc:00:00:00:01")


@pytest.mark.parametrize("parse", [parse_ingress, parse_neighbours, parse_addresses])
def test_no_entries_are_printed_as_nothing(parse: Callable[[str], object]) -> None:
    assert not parse("")


@pytest.mark.parametrize("parse", [parse_links, parse_ingress, parse_neighbours, parse_addresses, parse_macs])
@pytest.mark.parametrize("text", ["[", "{}", "[1]", "qdisc ingress ffff: dev p0"])
def test_other_text_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize(
    "missing", ['"ifname":"p0",', '"mtu":1500,', '"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],']
)
def test_a_link_without_what_every_link_has_is_refused(missing: str) -> None:
    with pytest.raises(ParseError):
        parse_links(LINKS.replace(missing, ""))
