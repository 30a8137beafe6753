"""Nine backends, 2,000 random clients, on a real ovs-vswitchd (dummy datapath): how many entries a NIC would hold."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from scripts.bench.measure import Row
from tests.ovs.dummy import DummyOvs, running_dummy_ovs, udp_packet
from xenoovs.measure.charts import DESIGNS
from xenoovs.measure.design_flows import OPENFLOW_DESIGNS, Design, DesignProgram, design_program
from xenoovs.model.load import parse_config

_CLIENTS = 2000
_WEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1, 1)
_MACS = [f"02:00:00:00:00:{i:02x}" for i in range(1, len(_WEIGHTS) + 1)]
_CONFIG = "\n".join(
    [
        "version: 1",
        "switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: leave}",
        "services:",
        "  - name: nine",
        "    backends:",
        *(f"      - {{name: b{mac[-2:]}, mac: {mac}, weight: {w}}}" for mac, w in zip(_MACS, _WEIGHTS, strict=True)),
    ]
)


def rows() -> Iterator[Row]:
    """Megaflows of the same split in several designs, each on a fresh bridge, with the same packets."""
    balancer = parse_config(_CONFIG, file="nine backends")
    source = random.Random(1)
    packets = [udp_packet(str(IPv4Address(source.getrandbits(32)))) for _ in range(_CLIENTS)]
    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs:
        for design in _DESIGNS:
            bound = len(_WEIGHTS) if design is Design.MASKED else None
            count = _count(ovs, design_program(balancer, design), packets)
            yield Row(f"megaflows, 9 backends: {DESIGNS[design.value]}", count, "", bound)


# The connection tracker takes no packets without checksums, as these are.
_DESIGNS = [design for design in OPENFLOW_DESIGNS if design is not Design.CONNTRACK]


def _count(ovs: DummyOvs, program: DesignProgram, packets: list[str]) -> int:
    with ovs.bridge() as bridge:
        bridge.ofctl("add-groups", "-", stdin="\n".join(program.groups), version="OpenFlow15")
        bridge.add_flows(program.text)
        bridge.settle()
        bridge.send("p0", packets)
        ovs.ovs.appctl("revalidator/wait")
        return ovs.ovs.appctl("dpctl/dump-flows", "-m").count("eth_type(0x0800)")
