"""MACs of backends that are given by their address: found by the kernel, and followed, on a real network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, running
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S, eventually
from tests.probe_support import FAR_MAC, inside_ip, two_namespaces
from xenoovs.agent.neighbour import Neighbours, resolve_now
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import mac_of
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

OTHER_MAC = "02:00:5e:20:00:77"

CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
health: {{probe: icmp, netns: {near}, interface: n0}}
services:
  - name: web
    vip: 198.51.100.1
    backends:
      - {{name: far, weight: 1, address: {address}}}
      - {{name: other, mac: 02:00:00:00:00:09, weight: 1, address: 192.0.2.9}}
"""


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    with two_namespaces("neigh") as both:
        yield both


def balancer(near: str, address: str = "192.0.2.2") -> Balancer:
    return parse_config(CONFIG.format(near=near, address=address), file="c.yaml")


@pytest.mark.parametrize("address", ["192.0.2.2", "2001:db8::2"])
def test_found_by_either_family(namespaces: tuple[str, str], address: str) -> None:
    found = resolve_now(balancer(namespaces[0], address), timeout_s=PATIENCE_S)
    first, _ = found.services[0].backends
    assert str(mac_of(first.next_hop)) == FAR_MAC


def test_a_new_mac_takes_the_blocks_of_the_old_one(namespaces: tuple[str, str], bridge: DummyBridge) -> None:
    near, far = namespaces
    config, neighbours = balancer(near), Neighbours()
    switch = ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory))
    engine = Engine(switch, resolve=neighbours.resolve)
    neighbours.settle(config, timeout_s=PATIENCE_S)

    def flows() -> list[str]:
        return sorted(switch.dump_flow_text("ovsbr1").splitlines())

    engine.round(DesiredState(config), now_s=0.0)
    before = flows()
    assert FAR_MAC in "".join(before)
    inside_ip(far, "link", "set", "f0", "down")
    inside_ip(far, "link", "set", "f0", "address", OTHER_MAC)
    inside_ip(far, "link", "set", "f0", "up")
    inside_ip(near, "neigh", "flush", "dev", "n0")
    eventually(lambda: bool(neighbours.poll(config)), "the new MAC is seen")
    done = engine.round(DesiredState(config), now_s=0.0)
    assert flows() == [line.replace(FAR_MAC, OTHER_MAC) for line in before]
    assert done.difference.flow_mods == "".join(before).count(FAR_MAC)


def test_apply_without_an_agent(
    namespaces: tuple[str, str], bridge: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(near=namespaces[0], address="192.0.2.2"))
    assert xenoovs("apply", file, "--db", bridge.ovs.db, "--yes").status == 0
    assert FAR_MAC in "".join(bridge.dump_flows(version="OpenFlow14"))
    file.write_text(CONFIG.format(near=namespaces[0], address="192.0.2.50"))
    said = xenoovs("apply", file, "--db", bridge.ovs.db, "--yes")
    assert said.status == 1
    assert "no MAC is known for 192.0.2.50 (web/far)" in said.err


def test_backends_by_address_alone_are_taken_by_a_running_agent_when_they_come_to_the_network(
    namespaces: tuple[str, str], bridge: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """No backend of the config before had to be resolved."""
    by_address = CONFIG.format(near=namespaces[0], address="192.0.2.50").replace(", interface: n0", "")
    by_address = by_address[: by_address.index("      - {name: other")]
    file = tmp_path / "c.yaml"
    file.write_text(by_address.replace("far,", f"far, mac: {OTHER_MAC},"))
    with running("agent", file, "--db", bridge.ovs.db):
        eventually(lambda: OTHER_MAC in "".join(bridge.dump_flows(version="OpenFlow14")), "flows at first")
        file.write_text(by_address)
        said = "no MAC is known for 192.0.2.50 (web/far)"
        eventually(lambda: said in xenoovs("status", "--db", bridge.ovs.db).out, "the agent says so")
        inside_ip(namespaces[1], "addr", "add", "192.0.2.50/24", "dev", "f0")
        eventually(lambda: FAR_MAC in "".join(bridge.dump_flows(version="OpenFlow14")), "the MAC that was found")
