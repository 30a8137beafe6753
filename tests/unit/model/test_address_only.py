"""Backends that are given by their address alone."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer, Sought, sought, with_macs
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import UNKNOWN_MAC, mac_of

CONFIG = """\
version: 1
switch: {{ingress: [p0], egress: p1}}
services:
  - name: web
    health: {health}
    backends:
      - {{name: a, weight: 1, address: 192.0.2.1}}
      - {{name: b, weight: 2, {b}}}
"""


def parsed(*, health: str = "{probe: icmp, interface: en0, netns: probes}") -> Balancer:
    b = "mac: 02:00:00:00:00:02, address: 192.0.2.2"
    return parse_config(CONFIG.format(b=b, health=health), file="c.yaml")


def test_what_is_sought_and_from_where() -> None:
    balancer = parsed()
    assert sought(balancer) == {Sought("probes", "en0", IPv4Address("192.0.2.1")): ("web/a",)}
    assert sought(parsed(health="{probe: icmp}")) == {Sought("", "", IPv4Address("192.0.2.1")): ("web/a",)}


def test_found_macs_are_set_and_backends_without_one_get_no_clients() -> None:
    balancer = parsed()
    (wanted,) = sought(balancer)
    found = with_macs(balancer, {wanted: Mac(7)}).services[0].backends
    assert [(mac_of(b.next_hop), int(b.weight)) for b in found] == [(Mac(7), 1), (Mac(0x020000000002), 2)]
    lost = with_macs(balancer, {}).services[0].backends
    assert [(mac_of(b.next_hop), int(b.weight)) for b in lost] == [(UNKNOWN_MAC, 0), (Mac(0x020000000002), 2)]


def test_it_is_written_as_it_was_read() -> None:
    text = render_config(parsed())
    assert "{name: a, weight: 1" in text
    assert parse_config(text, file="c.yaml") == parsed()


@pytest.mark.parametrize(
    ("b", "health", "message"),
    [
        ("egress: p1", "{}", "a backend needs `mac:`, or `address:` by which its MAC can be found"),
        ("address: 192.0.2.1", "{}", "192.0.2.1 is already backend a on port p1; write the address of this server"),
        ("mac: 02:00:00:00:00:02", "{probe: arp, interface: en0}", "probe arp asks whether a MAC answers; add `mac:`"),
    ],
)
def test_mistakes(b: str, health: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(CONFIG.format(b=b, health=health), file="c.yaml")
    assert message in str(caught.value)
