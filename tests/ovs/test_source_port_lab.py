"""Real packets of one client to services by source port: all backends get some, as their weights say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compiled import compiled
from tests.ovs.lab_support import running_lab, set_flows
from xenoovs.lab.lab import Lab
from xenoovs.lab.traffic import Load, send
from xenoovs.model.balancer import Protocol
from xenoovs.model.load import parse_config
from xenoovs.openflow.text import render_flow_to_send

pytestmark = pytest.mark.ovs

BACKENDS = """
    match: {field: source_port, bits: 3}
    backends:
      - {name: most, mac: "02:00:5e:10:00:02", weight: 3}
      - {name: rest, mac: "02:00:5e:10:00:03", weight: 1}
"""
CONFIG = f"""
version: 1
switch: {{ingress: [p0], egress: p1}}
services:
  - name: udp
    vip: [10.3.10.45, "2001:db8:10::45"]
    protocol: udp
    ports: [443]
    vip_mac: "02:00:5e:10:00:01"
{BACKENDS}
  - name: tcp
    vip: [10.3.10.45, "2001:db8:10::45"]
    protocol: tcp
    ports: [443]
    vip_mac: "02:00:5e:10:00:01"
{BACKENDS}
"""
BALANCER = parse_config(CONFIG, file="c.yaml")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab("port", BALANCER, tmp_path_factory.mktemp("lab")) as made:
        set_flows(made, *map(render_flow_to_send, compiled(BALANCER).flows))
        yield made


@pytest.mark.parametrize("protocol", [Protocol.UDP, Protocol.TCP])
def test_connections_of_one_client_are_spread_by_weight(lab: Lab, protocol: Protocol) -> None:
    """TCP as Linux opens it: from even ports."""
    report = send(lab, BALANCER, load=Load(clients=1, packets=2000, protocol=protocol))
    (traffic,) = report.services
    assert (traffic.sent, traffic.lost, report.duplicates, report.failures) == (2000, 0, 0, ())
    assert {answer.backend for answer in traffic.answers} == {"most", "rest"}
    shares = {backend.name: float(backend.share or 0) for backend in traffic.backends}
    assert shares["most"] == pytest.approx(0.75, abs=0.06), "six standard deviations of 2,000 ports by chance"
