"""Agents whose paths are selected by address or by uplink, or that learn the gateway.

As in test_paths_fabric.py, only dead paths lose blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ovs.lab_support import fabric_fixture
from tests.ovs.test_paths_fabric import PathAgent, dead_path
from tests.patience import eventually
from xenoovs.lab.fabric.plan import BRIDGE, FabricShape
from xenoovs.lab.lab import FabricLab
from xenoovs.switch.process import run

pytestmark = pytest.mark.timeout(900)

PATHS = 3
ALIASES = tuple(f"10.2.20{number}.2" for number in range(1, PATHS))


lab = fabric_fixture("selected", FabricShape(paths=PATHS))


@pytest.fixture
def start(lab: FabricLab, tmp_path: Path) -> Iterator[Callable[..., PathAgent]]:
    """Start the agent of a DPU with another config: pairs of texts that replace each other. Bridges begin empty."""
    begun = list[PathAgent]()

    def with_config(dpu: str, *changes: tuple[str, str]) -> PathAgent:
        agent = PathAgent(lab, dpu, tmp_path)
        text = agent.lab.config(dpu).read_text()
        margin = next(line for line in text.splitlines() if line.strip().startswith("margin:"))
        for old, new in ((margin, "    margin: 1000ms"), *changes):
            assert old in text
            text = text.replace(old, new)
        agent.config = tmp_path / f"{dpu}.yaml"
        agent.config.write_text(text)
        agent.ofctl("del-flows")
        begun.append(agent.start())
        return agent

    try:
        yield with_config
    finally:
        for agent in begun:
            agent.end()


def on(lab: FabricLab, machine: str, *argv: str) -> None:
    run(["ip", "netns", "exec", lab.fabric.namespace(machine), *argv])


def spine_of(lab: FabricLab, number: int) -> tuple[str, str]:
    """The address of a spine at the first leaf, and the leaf's device towards it."""
    ports = lab.fabric.ports_of("leafa")
    return next((there.ip, here.interface) for here, there in ports if there.machine == f"spine{number}")


def is_good(agent: PathAgent, paths: int) -> None:
    assert agent.process is not None
    eventually(lambda: agent.states() == ["good"] * paths, f"{paths} good paths: {agent.log.read_text()}")


def paths_line(lab: FabricLab) -> str:
    text = lab.config("dpua1").read_text()
    return next(line for line in text.splitlines() if line.strip().startswith("paths:"))


def test_paths_by_address_are_probed_and_a_dead_one_loses_its_blocks(
    lab: FabricLab, start: Callable[..., PathAgent]
) -> None:
    host, leaf_port = lab.fabric.receiver.port, lab.fabric.receiver.gateway.interface
    for number, address in enumerate((host.ip, *ALIASES), start=1):
        via, device = spine_of(lab, number)
        on(lab, "leafa", "ip", "route", "replace", f"{address}/32", "via", via, "dev", device)
    for alias in ALIASES:
        on(lab, "leafb", "ip", "route", "replace", f"{alias}/32", "dev", leaf_port)
        on(lab, "leafb", "ip", "neigh", "replace", alias, "lladdr", host.mac, "dev", leaf_port, "nud", "permanent")
    try:
        local = f"    local: {host.ip}\n"
        start("dpub1", (local, f"{local}    aliases: [{', '.join(ALIASES)}]\n"))
        remote = f"address: {host.ip}"
        near = start(
            "dpua1",
            (paths_line(lab), "    paths: {by: address}"),
            (remote, f"{remote}, aliases: [{', '.join(ALIASES)}]"),
        )
        is_good(near, PATHS)
        assert sum(near.blocks()) == 64
        with dead_path(near, lambda: is_good(near, PATHS)):
            eventually(lambda: near.blocks().count(0) == 1, "an empty path")
            assert near.blocks().index(0) == near.states().index("failed")
    finally:
        for address in (host.ip, *ALIASES):
            on(lab, "leafa", "ip", "route", "del", f"{address}/32")


def test_paths_by_uplink_are_probed_and_a_dead_one_loses_its_blocks(
    lab: FabricLab, start: Callable[..., PathAgent]
) -> None:
    gateway, ovs, namespace = lab.fabric.senders[0].gateway, lab.ovs("dpua1"), lab.fabric.namespace
    on(lab, "leafa", "ip", "link", "add", "up1", "type", "veth", "peer", "name", "p1", "netns", namespace("dpua1"))
    # One MAC for both gateways, as by VRRP: paths by uplink leave that of the host as it is.
    on(lab, "leafa", "ip", "link", "set", "up1", "address", gateway.mac, "up")
    on(lab, "dpua1", "ip", "link", "set", "p1", "up")
    for name, device in (("leafa", "up1"), ("dpua1", "p1")):
        on(lab, name, "ethtool", "-K", device, "rx", "off", "tx", "off")
    for number, device in enumerate((gateway.interface, "up1"), start=1):
        via, towards = spine_of(lab, number)
        on(lab, "leafa", "ip", "route", "add", "10.2.0.0/16", "via", via, "dev", towards, "table", str(100 + number))
        on(lab, "leafa", "ip", "rule", "add", "iif", device, "lookup", str(100 + number))
    ovs.vsctl("add-port", BRIDGE, "p1")
    try:
        start("dpub1")
        near = start(
            "dpua1",
            (paths_line(lab), "    paths: {by: uplink, uplinks: [p0, p1]}"),
            ("ingress: [p0]", "ingress: [p0, p1]"),
            ("egress: pf0hpf", "egress: pf0hpf, other_traffic: normal"),
        )
        is_good(near, 2)
        assert near.blocks() == [32, 32]
        with dead_path(near, lambda: is_good(near, 2)):
            eventually(lambda: sorted(near.blocks()) == [0, 64], "all blocks on one uplink")
        eventually(lambda: near.blocks() == [32, 32], "all blocks at home")
    finally:
        ovs.vsctl("del-port", BRIDGE, "p1")
        for number in (1, 2):
            on(lab, "leafa", "ip", "rule", "del", "lookup", str(100 + number))
            on(lab, "leafa", "ip", "route", "flush", "table", str(100 + number))
        on(lab, "leafa", "ip", "link", "del", "up1")


def test_the_gateway_is_learned_from_packets_of_the_host(lab: FabricLab, start: Callable[..., PathAgent]) -> None:
    start("dpub1")
    near = start("dpua1", (f', gateway: "{lab.fabric.senders[0].gateway.mac}"', ""))
    problem = "the MAC of the next hop is not known"
    eventually(lambda: problem in near.remote().get("problem", ""), "an agent that waits for a packet")
    send = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 7))"

    def is_learned() -> bool:
        # A slow agent may listen only after the first packets.
        on(lab, "hosta1", sys.executable, "-c", send, lab.fabric.receiver.overlay_ip)
        return problem not in near.remote().get("problem", "")

    eventually(is_learned, "the MAC of the next hop")
    is_good(near, PATHS)
