"""What commands say of paths of tunnels on a real Open vSwitch.

Where packets leave, as what, and at what cost is in flows/, whose cases test_simulate_megaflows.py sends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Command, CommandLine
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import send
from tests.tunnels import LOCAL, PORTS, REMOTE
from xenoovs.model.packet import Packet

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: pf0hpf}
services: []
tunnels:
  - name: rack7
    local: 192.168.200.2
    host_port: pf0hpf
    source_ports: 49152-49215
    remotes: [{name: b, address: 192.168.200.1}]
    paths: {by: source_port, ports: [50001, 50002, 50003, 50004]}
    probe: {port: xoar0}
"""


@pytest.fixture
def case() -> str:
    """A case of flows/ with the ports of the configs here, and none that is a tunnel itself."""
    return "tunnel-source-port"


@pytest.fixture
def bridge(dpu: DummyBridge) -> DummyBridge:
    return dpu


def of_host(source_port: int) -> Packet:
    return Packet("pf0hpf", LOCAL, REMOTE.address, 17, source_port, 4789)


def test_commands_serve_a_bridge_that_has_tunnels_and_no_service(
    on_bridge: Command, dpu: DummyBridge, config: Path, as_recorded: Callable[[str, str], None]
) -> None:
    planned = on_bridge("plan", config)
    assert (planned.status, planned.err) == (2, "")
    as_recorded("tunnels-plan", planned.out)
    assert on_bridge("apply", config, "--yes").status == 0
    assert on_bridge("plan", config).status == 0
    as_recorded("tunnels-status", on_bridge("status", config).out)
    assert on_bridge("remove", config, "--yes").status == 0
    assert dpu.dump_flows() == []


def test_a_config_without_source_ports_keeps_those_of_the_flows(
    on_bridge: Command, dpu: DummyBridge, config: Path
) -> None:
    """Where there are none yet, no path is known, and the host's packets are other traffic."""
    unknown = CONFIG.replace("ports: [50001, 50002, 50003, 50004]", "discover: ttl")
    config.write_text(unknown)
    assert on_bridge("apply", config, "--yes").status == 0
    send(dpu, [of_host(40_000)])
    (left,) = dpu.sent("p0")
    assert int.from_bytes(left[34:36], "big") == 40_000
    config.write_text(CONFIG)
    assert on_bridge("apply", config, "--yes").status == 0
    before = [line for line in dpu.dump_flows() if "mod_tp_src:5" in line]
    config.write_text(unknown)
    assert on_bridge("apply", config, "--yes").status == 0
    assert [line for line in dpu.dump_flows() if "mod_tp_src:5" in line] == before != []


def test_every_megaflow_of_a_source_port_belongs_to_its_block_and_probes_are_not_counted(
    xenoovs: CommandLine, on_bridge: Command, dpu: DummyBridge, config: Path, as_recorded: Callable[[str, str], None]
) -> None:
    assert on_bridge("apply", config, "--yes").status == 0
    dpu.settle(removed_s=0)
    send(dpu, [of_host(port) for port in range(49_152, 49_216)])
    send(dpu, [Packet("xoar0", LOCAL, REMOTE.address, 17, port, 4789, tos=0x20) for port in PORTS])
    send(dpu, [Packet("p0", REMOTE.address, LOCAL, 17, port, 4789, tos=0x20) for port in PORTS])
    found = json.loads(on_bridge("verify-offload", config, "-o", "json").out)
    blocks = found["blocks_total"]
    assert (blocks["megaflows"], blocks["predicted_megaflows"]) == (64, 64)
    assert {row["backend"]: row["megaflows"] for row in found["backends"]} == dict.fromkeys(
        ("p1", "p2", "p3", "p4"), 16
    )
    assert not found["answers"]
    as_recorded("tunnels-lint", xenoovs("lint", config).out)
