"""Agents choose paths through a fabric of Linux routers: what dies, what comes back, and what must not move.

Paths are selected by source port, by address, or by uplink.

The margin is far above any queue, so that a busy machine makes no path congested: only dead paths lose blocks.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import finish, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import fabric_fixture
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.errors import AgentMissing
from xenoovs.lab.fabric.plan import BRIDGE, FabricShape
from xenoovs.lab.fabric.status import restore, silence
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.lab import FabricLab
from xenoovs.lab.private_ovs import start_vswitchd_again
from xenoovs.switch.process import run

pytestmark = pytest.mark.timeout(900)

REMOTE, PATHS = "fabric/hostb1", 4
ALIASES = tuple(f"10.2.20{number}.2" for number in range(1, PATHS))


class PathAgent:
    """An agent as a process of its own, outside of the namespaces of the lab. `directory`: has its config."""

    def __init__(self, lab: FabricLab, dpu: str, directory: Path) -> None:
        self.lab, self.dpu = lab, dpu
        self.config, self.control = directory / f"{dpu}.yaml", directory / f"{dpu}.sock"
        self.client = Client(self.control)

    def start(self) -> None:
        self.process = start("agent", self.config, "--control", self.control, env=self.lab.ovs(self.dpu).env)

    def end(self, signal_number: int = signal.SIGTERM) -> None:
        self.process.send_signal(signal_number)
        finish(self.process)

    def remote(self) -> dict[str, Any]:
        """What the agent says of the remote; without paths while it does not answer or knows none."""
        try:
            found: list[dict[str, Any]] = self.client.ask("paths")["remotes"]
        except AgentMissing:
            return {"paths": []}
        return found[0] if found else {"paths": []}

    def states(self) -> list[str]:
        return [path["state"] for path in self.remote()["paths"]]

    def blocks(self) -> list[int]:
        return [path["blocks"] for path in self.remote()["paths"]]

    def ofctl(self, command: str, *words: str) -> str:
        ovs = self.lab.ovs(self.dpu)
        bridge = f"unix:{ovs.directory / BRIDGE}.mgmt"
        return ofctl(ovs, "-O", "OpenFlow14", "--names", "--no-stats", command, bridge, *words)

    def block_flows(self) -> list[str]:
        """The flows of the blocks of the remote, without counters."""
        return sorted(line.strip() for line in self.ofctl("dump-flows", "table=1").splitlines() if "udp_src" in line)

    def wait_until_good(self, paths: int = PATHS) -> None:
        def is_good() -> bool:
            assert self.process.poll() is None, finish(self.process).err
            return self.states() == ["good"] * paths

        eventually(is_good, f"{paths} good paths at {self.dpu}")


lab = fabric_fixture("paths", FabricShape(paths=PATHS))


@pytest.fixture
def begin(lab: FabricLab, tmp_path: Path) -> Iterator[Callable[..., PathAgent]]:
    """Start the agent of a DPU with another config: texts, or keys of lines, and what replaces them. Bridges begin
    empty."""
    begun = list[PathAgent]()

    def with_config(dpu: str, *changes: tuple[str, str]) -> PathAgent:
        agent, text = PathAgent(lab, dpu, tmp_path), lab.config(dpu).read_text()
        for old, new in (("margin:", "    margin: 1000ms"), *changes):
            assert old in text
            text = text.replace(line_of(old, text) if old.endswith(":") else old, new)
        agent.config.write_text(text)
        agent.ofctl("del-flows")
        agent.start()
        begun.append(agent)
        return agent

    try:
        yield with_config
    finally:
        for agent in begun:
            agent.end()


def line_of(key: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(key))


@pytest.fixture
def near(begin: Callable[..., PathAgent]) -> PathAgent:
    """The agent at one end, once all of its paths are good. There is one at the other end."""
    begin("dpub1")
    agent = begin("dpua1")
    agent.wait_until_good()
    # On a busy machine a path may have failed before.
    eventually(lambda: agent.blocks() == [16, 16, 16, 16] and len(agent.block_flows()) == 4, "all blocks at home")
    return agent


@contextmanager
def dead_path(agent: PathAgent, paths: int = PATHS) -> Iterator[None]:
    """A spine swallows everything until the end of the `with`: one that is not on all ways back."""
    for spine in agent.lab.fabric.spines:
        silence(agent.lab, spine)
        try:
            eventually(
                lambda: {"failed", "unknown"} & {*agent.states()} != set(), "a failed path, or none that answers"
            )
            if "failed" in agent.states():
                yield
                return
        finally:
            restore(agent.lab, (spine,))
        agent.wait_until_good(paths)
    pytest.fail("each spine is on all ways back")


def test_one_port_of_each_path_is_found_and_has_a_quarter_of_the_blocks(near: PathAgent) -> None:
    spines = {path["hops"].split(",")[1] for path in near.remote()["paths"]}
    assert len(spines) == PATHS
    # The other agent may have begun so late that another way back was tried.
    eventually(lambda: (now := near.remote())["tos"] == now["tos_sent"], "answers by the way that is asked for")
    assert near.remote()["tos"] in (0x20, 0x24, 0x2C, 0x34)


def test_exactly_the_blocks_of_a_dead_path_leave_and_the_same_come_back(near: PathAgent) -> None:
    """Open vSwitch restarts meanwhile."""
    before = near.block_flows()
    with dead_path(near):
        eventually(lambda: near.blocks().count(0) == 1, "an empty path")
        (dead,) = (path["port"] for path in near.remote()["paths"] if path["state"] == "failed")
        blocks = near.blocks()
        assert sum(blocks) == 64
        assert near.remote()["moves"]["failed"] == 16
        port = f"set_field:{dead}->"
        eventually(lambda: not any(port in flow for flow in near.block_flows()), "flows without it")
        without, ovs = near.block_flows(), near.lab.ovs(near.dpu)
        kill_and_wait([ovs.pids()[0]])
        start_vswitchd_again(ovs)
        eventually(lambda: near.block_flows() == without, "the same flows again")
        eventually(lambda: near.states().count("good") == 3, "answers again")
        assert near.blocks() == blocks
    near.wait_until_good()
    eventually(lambda: near.blocks() == [16, 16, 16, 16], "all blocks at home")
    eventually(lambda: near.block_flows() == before, "the same flows as before")
    assert near.remote()["moves"]["restored"] == 16


def test_a_killed_agent_leaves_the_flows_and_the_next_one_moves_nothing_and_obeys_its_pin(near: PathAgent) -> None:
    ports = [path["port"] for path in near.remote()["paths"]]
    try:
        near.client.ask("paths/pin", {"remote": REMOTE, "path": "p3"})
        # The agent shows a move before the switch has it.
        eventually(lambda: near.blocks() == [0, 0, 64, 0] and len(near.block_flows()) == 1, "all blocks on p3")
        before = near.block_flows()
        near.end(signal.SIGKILL)
        assert near.block_flows() == before
        near.start()
        near.wait_until_good()
        assert [path["port"] for path in near.remote()["paths"]] == ports
        assert (near.blocks(), near.block_flows()) == ([0, 0, 64, 0], before)
        assert sum(near.remote()["moves"].values()) == 0
    finally:
        near.client.ask("paths/pin", {"remote": REMOTE})
    eventually(lambda: near.blocks() == [16, 16, 16, 16], "all blocks at home")


def on(lab: FabricLab, machine: str, *argv: str) -> None:
    run(["ip", "netns", "exec", lab.fabric.namespace(machine), *argv])


def spine_of(lab: FabricLab, number: int) -> tuple[str, str]:
    """The address of a spine at the first leaf, and the leaf's device towards it."""
    ports = lab.fabric.ports_of("leafa")
    return next((there.ip, here.interface) for here, there in ports if there.machine == f"spine{number}")


def test_paths_by_address_are_probed_and_a_dead_one_loses_its_blocks(
    lab: FabricLab, begin: Callable[..., PathAgent]
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
        begin("dpub1", (local, f"{local}    aliases: [{', '.join(ALIASES)}]\n"))
        remote = f"address: {host.ip}"
        near = begin(
            "dpua1",
            ("paths:", "    paths: {by: address}"),
            (remote, f"{remote}, aliases: [{', '.join(ALIASES)}]"),
        )
        near.wait_until_good()
        assert sum(near.blocks()) == 64
        with dead_path(near):
            eventually(lambda: near.blocks().count(0) == 1, "an empty path")
            assert near.blocks().index(0) == near.states().index("failed")
    finally:
        for address in (host.ip, *ALIASES):
            on(lab, "leafa", "ip", "route", "del", f"{address}/32")


def test_paths_by_uplink_are_probed_and_a_dead_one_loses_its_blocks(
    lab: FabricLab, begin: Callable[..., PathAgent]
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
        begin("dpub1")
        near = begin(
            "dpua1",
            ("paths:", "    paths: {by: uplink, uplinks: [p0, p1]}"),
            ("ingress: [p0]", "ingress: [p0, p1]"),
            ("egress: pf0hpf", "egress: pf0hpf, other_traffic: normal"),
        )
        near.wait_until_good(2)
        assert near.blocks() == [32, 32]
        with dead_path(near, 2):
            eventually(lambda: sorted(near.blocks()) == [0, 64], "all blocks on one uplink")
        eventually(lambda: near.blocks() == [32, 32], "all blocks at home")
    finally:
        ovs.vsctl("del-port", BRIDGE, "p1")
        for number in (1, 2):
            on(lab, "leafa", "ip", "rule", "del", "lookup", str(100 + number))
            on(lab, "leafa", "ip", "route", "flush", "table", str(100 + number))
        on(lab, "leafa", "ip", "link", "del", "up1")


def test_the_gateway_is_learned_from_packets_of_the_host(lab: FabricLab, begin: Callable[..., PathAgent]) -> None:
    begin("dpub1")
    near = begin("dpua1", (f', gateway: "{lab.fabric.senders[0].gateway.mac}"', ""))
    problem = "the MAC of the next hop is not known"
    eventually(lambda: problem in near.remote().get("problem", ""), "an agent that waits for a packet")
    send = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 7))"

    def is_learned() -> bool:
        # A slow agent may listen only after the first packets.
        on(lab, "hosta1", sys.executable, "-c", send, lab.fabric.receiver.overlay_ip)
        return problem not in near.remote().get("problem", "")

    eventually(is_learned, "the MAC of the next hop")
    near.wait_until_good()
