"""Where health checks of services with NAT go."""

from __future__ import annotations

import pytest

from xenoovs.agent.health import checks_of
from xenoovs.agent.probe.target import IcmpTarget, TcpTarget
from xenoovs.model.load import parse_config

CONFIG = """\
version: 1
switch: {ingress: [p0], egress: p1}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    mode: nat
    health: {probe: PROBE}
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, address: 10.3.20.11, port: 8080, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, address: 10.3.20.12, port: 8081, weight: 1}
      - {name: six, mac: 02:00:5e:10:00:04, address: 10.3.20.13, weight: 1}
"""


def targets(probe: str) -> dict[str, object]:
    balancer = parse_config(CONFIG.replace("PROBE", probe), file="c.yaml")
    return {backend: check.target for (_, backend), check in checks_of(balancer, ()).by_backend.items()}


@pytest.mark.parametrize(("probe", "ports"), [("tcp", [8080, 8081, 80]), ("tcp, port: 7", [7, 7, 7])])
def test_each_backend_is_tried_where_it_serves(probe: str, ports: list[int]) -> None:
    found = targets(probe)
    assert [target.port for target in found.values() if isinstance(target, TcpTarget)] == ports


def test_a_probe_without_a_port_has_none() -> None:
    assert all(isinstance(target, IcmpTarget) for target in targets("icmp").values())
