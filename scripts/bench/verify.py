"""What `verify-offload` takes for 100 megaflows of a real ovs-vswitchd (dummy datapath), beside one plain dump."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.measure import XENOOVS, Row, process
from tests.ovs.dummy import running_dummy_ovs, udp_packet
from xenoovs.compile.program import compile_config
from xenoovs.model.load import parse_config
from xenoovs.openflow.text import render_flow

_CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: hundred
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    tolerance: 0.1%
    match: {bits: 9}
    max_flows: 200
    backends:
"""
_BLOCKS = 100
_RUNS = 15


def rows() -> Iterator[Row]:
    """Processor time of whole processes. Most of that of Python is to start and to import.

    The bound of ten dumps was given up (docs/adr/README.md, 31).
    """
    weights = [1] * (_BLOCKS - 1) + [512 - (_BLOCKS - 1)]
    backends = "".join(
        f"      - {{name: b{i}, mac: '02:00:5e:10:01:{i:02x}', weight: {weight}}}\n" for i, weight in enumerate(weights)
    )
    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs, ovs.bridge() as bridge:
        config = Path(name) / "hundred.yaml"
        config.write_text(_CONFIG + backends)
        program = compile_config(parse_config(config.read_bytes(), file=str(config)))
        bridge.add_flows("\n".join(map(render_flow, program.flows)))
        bridge.settle()
        bridge.send("p0", [udp_packet(f"10.0.{i >> 8}.{i & 255}") for i in range(512)])
        os.environ.update(ovs.ovs.env)
        found = ovs.ovs.appctl("dpctl/dump-flows", "-m").count("eth_type(0x0800)")
        yield Row("megaflows", found, "")
        dumped = process(["ovs-appctl", "dpctl/dump-flows", "-m"], runs=_RUNS)
        empty = process([sys.executable, "-c", "pass"], runs=_RUNS)
        helped = process([XENOOVS, "verify-offload", "--help"], runs=_RUNS)
        verified = process([XENOOVS, "verify-offload", str(config)], runs=_RUNS, expected=2)
        yield Row("ovs-appctl dpctl/dump-flows -m: time of a processor", dumped.cpu_s * 1000, "ms")
        yield Row("python -c pass: time of a processor", empty.cpu_s * 1000, "ms")
        yield Row("xenoovs verify-offload --help (imports of it): time of a processor", helped.cpu_s * 1000, "ms")
        yield Row("xenoovs verify-offload: time of a processor", verified.cpu_s * 1000, "ms")
        yield Row("  / dpctl/dump-flows -m", verified.cpu_s / dumped.cpu_s, "x", 120)
