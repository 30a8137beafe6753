"""Prefixes as VIPs with real packets: every address is answered for and served, by the longest prefix that holds it."""

from __future__ import annotations

from tests.ovs.lab_support import install, lab_fixture, load_text
from xenoovs.lab.lab import Lab
from xenoovs.lab.traffic import Load, send
from xenoovs.switch.process import run

BALANCER = load_text("""
version: 1
switch: {ingress: [p0], egress: p1}
services:
  - name: wide
    vip: 10.3.0.0/16
    vip_mac: 02:00:5e:10:03:00
    backends:
      - {name: app1, mac: 02:00:5e:10:00:01, weight: 1}
      - {name: app2, mac: 02:00:5e:10:00:02, weight: 1}
  - name: long
    vip: [10.3.0.0/24, "2001:db8:10::/120"]
    vip_mac: 02:00:5e:10:03:0a
    protocol: udp
    ports: 53
    backends:
      - {name: ns1, mac: 02:00:5e:10:00:11, weight: 1}
      - {name: ns2, mac: 02:00:5e:10:00:12, weight: 1}
  - name: one
    vip: 10.3.0.53
    vip_mac: 02:00:5e:10:03:35
    protocol: udp
    ports: 53
    backends:
      - {name: only, mac: 02:00:5e:10:00:21, weight: 1}
""")


lab = lab_fixture("prefix", BALANCER, lambda made: install(made, BALANCER))


def test_each_address_is_answered_for_and_served_by_its_longest_prefix(lab: Lab) -> None:
    report = send(lab, BALANCER, load=Load(clients=40, packets=600))
    assert (report.duplicates, report.failures) == (0, ())
    answering = {each.service: {one.name for one in each.backends if one.answered} for each in report.services}
    assert answering == {"wide": {"app1", "app2"}, "long": {"ns1", "ns2"}, "one": {"only"}}
    assert [each.lost for each in report.services] == [0, 0, 0]
    clients = lab.topology.clients
    shown = run(["ip", "-n", clients.namespace, "neigh", "show", "dev", clients.interface]).stdout
    found = {words[0]: words[2] for line in shown.splitlines() if len(words := line.split()) > 2 and "." in words[0]}
    assert {address: mac for address, mac in found.items() if address.startswith("10.3.")} == {
        "10.3.1.0": "02:00:5e:10:03:00",
        "10.3.255.255": "02:00:5e:10:03:00",
        "10.3.0.0": "02:00:5e:10:03:0a",
        "10.3.0.1": "02:00:5e:10:03:0a",
        "10.3.0.255": "02:00:5e:10:03:0a",
        "10.3.0.53": "02:00:5e:10:03:35",
    }
