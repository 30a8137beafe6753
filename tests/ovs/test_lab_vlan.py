"""Tenants in VLANs: real packets of clients on a trunk, servers in VLANs of their own, and a controller-less switch."""

from __future__ import annotations

from pathlib import Path

from tests.ovs.lab_support import install, load_text, running_lab
from xenoovs.compile.program import compile_config
from xenoovs.datapath.parse import parse_dump
from xenoovs.judge.expected import expected_services, index_blocks
from xenoovs.lab.traffic import Load, send

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: passthrough}
services:
  - name: blue
    vlan: 100
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: same, mac: 02:00:00:00:0b:01, weight: 1}
      - {name: changed, mac: 02:00:00:00:0b:02, weight: 1, vlan: 300}
  - name: red
    vlan: 200
    vip: 10.3.10.46
    protocol: udp
    ports: [53]
    backends:
      - {name: removed, mac: 02:00:00:00:0b:03, weight: 1, vlan: untagged}
      - {name: same, mac: 02:00:00:00:0b:01, weight: 1}
  - name: plain
    vlan: untagged
    vip: [10.3.10.47, "2001:db8::47"]
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:03
    backends:
      - {name: added, mac: 02:00:00:00:0b:05, weight: 1, vlan: 300}
      - {name: none, mac: 02:00:00:00:0b:06, weight: 1}
  - name: web
    vlan: 100
    vip: 10.3.10.48
    protocol: tcp
    ports: [80]
    mode: nat
    backends:
      - {name: near, mac: 02:00:00:00:0b:07, address: 10.3.20.11, port: 8080, weight: 1}
      - {name: far, mac: 02:00:00:00:0b:08, address: 10.3.20.12, port: 8080, weight: 1, vlan: 300}
"""


def test_tags_are_kept_changed_removed_and_added(tmp_path: Path) -> None:
    """One MAC in two VLANs is two servers; each gets the clients of its own service alone."""
    balancer = load_text(CONFIG)
    with running_lab("vlan", balancer, tmp_path) as lab:
        install(lab, balancer)
        report = send(lab, balancer, load=Load(clients=64, packets=800))
        assert report.is_served
        assert [(s.service, s.lost, {b.name for b in s.backends if b.answered}) for s in report.services] == [
            ("blue", 0, {"same", "changed"}),
            ("red", 0, {"removed", "same"}),
            ("plain", 0, {"added", "none"}),
            ("web", 0, {"near", "far"}),
        ]
        index = index_blocks(expected_services(compile_config(balancer)))
        dump = lab.ovs.appctl("dpctl/dump-flows", "-m")
        found = [block for each in parse_dump(dump) if (block := index.find(each)) is not None]
        assert len(found) == len(set(found)) == sum(len(s.backends) for s in balancer.services) + 2
