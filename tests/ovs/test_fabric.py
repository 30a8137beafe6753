"""A fabric of Linux routers: agents choose paths by source port, by address, or by uplink; machines can be entered.

The margin is far above any queue, so that a busy machine makes no path congested, and answers may be two seconds late,
so that it loses none of those that come: only dead paths lose blocks.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, finish, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import fabric_fixture
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.errors import AgentMissing, LabError
from xenoovs.lab.fabric.status import fabric_machines, restore, silence, state_of
from xenoovs.lab.fabric_topology import BRIDGE, SOURCE_PORTS, FabricShape
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.lab import FabricLab, open_lab
from xenoovs.lab.private_ovs import start_vswitchd_again
from xenoovs.measure.bed import replace_flows
from xenoovs.measure.fabric_bed import open_fabric_bed
from xenoovs.switch.process import run

pytestmark = pytest.mark.timeout(900)

REMOTE, PATHS = "fabric/hostb1", 4
PATIENT = ("margin:", "    margin: 1000ms"), ("probe: {", "probe: {timeout: 2s, ")
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


lab = fabric_fixture("fabric", FabricShape(paths=PATHS, senders=2))


@pytest.fixture
def begin(lab: FabricLab, tmp_path: Path) -> Iterator[Callable[..., PathAgent]]:
    """Start the agent of a DPU with another config: texts, or keys of lines, and what replaces them. Bridges begin
    empty."""
    begun = list[PathAgent]()

    def with_config(dpu: str, *changes: tuple[str, str]) -> PathAgent:
        agent, text = PathAgent(lab, dpu, tmp_path), lab.config(dpu).read_text()
        for old, new in (*PATIENT, *changes):
            lines = [line for line in text.splitlines() if line.strip().startswith(old)] if old.endswith(":") else [old]
            assert lines[0] in text
            text = text.replace(lines[0], new)
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


PLAIN = "in_port=p0 actions=output:pf0hpf\nin_port=pf0hpf actions=output:p0\n"


def test_flows_of_a_host_are_spread_over_all_spines_and_use_the_source_ports(lab: FabricLab) -> None:
    fabric = lab.fabric
    before = {spine: _forwarded(lab, spine) for spine in fabric.spines}

    def seen() -> list[int]:
        return [_forwarded(lab, spine) - before[spine] for spine in fabric.spines]

    with open_fabric_bed(lab.name) as bed:
        for pair in bed.pairs:
            replace_flows(pair.dpu, fabric.bridge, PLAIN)
        host, receiver = lab.fabric.namespace("hosta2"), fabric.receiver.overlay_ip

        def have_left() -> bool:
            # Queues drop a part of a burst, such as those of packets that wait for ARP.
            with in_namespace(host, lambda: socket.socket(type=socket.SOCK_DGRAM)) as sock:
                for number in range(300):
                    sock.sendto(b"x", (receiver, 10_000 + number))
            return sum(seen()) >= 300

        eventually(have_left, "300 packets have left")
        flows = bed.senders[1].dpu.run("ovs-appctl", "dpctl/dump-flows", "-m").stdout
    # The host has 64 source ports; nothing is answered, as no program listens there (ICMP errors are inside too).
    assert min(seen()) > 0
    first, last = SOURCE_PORTS
    ports = {int(port) for port in re.findall(r"in_port\(pf0hpf\).*udp\(src=(\d+)", flows)}
    assert ports
    assert all(first <= port <= last for port in ports)


def _forwarded(lab: FabricLab, spine: str) -> int:
    """Packets that a spine has sent to the second leaf."""
    text = run(["ip", "-n", lab.fabric.namespace(spine), "-s", "-j", "link", "show", "leafb"]).stdout
    return int(json.loads(text)[0]["stats64"]["tx"]["packets"])


def test_a_spine_fails_and_recovers(lab: FabricLab) -> None:
    assert state_of(fabric_machines(lab)) == "up"
    silence(lab, "spine2")
    states = {machine.name: machine.state for machine in fabric_machines(lab)}
    assert [name for name, state in states.items() if state != "up"] == ["spine2"]
    assert state_of(fabric_machines(lab)) == "failing"
    assert restore(lab, lab.fabric.spines) == ("spine2",)
    assert state_of(fabric_machines(lab)) == "up"
    with pytest.raises(LabError, match="has no spine 'spine9'; it has spine1, spine2, spine3, spine4"):
        silence(lab, "spine9")


def test_a_command_on_a_dpu_uses_its_switch(lab: FabricLab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [_said(lab, site.dpu, "ovs-vsctl", "get", "bridge", "ovsbr1", "datapath-id") for site in lab.fabric.sites]
    assert len(set(seen)) == 3
    # What a shell names for its own commands is another Open vSwitch.
    monkeypatch.setenv("XENOOVS_LAB", "another")
    monkeypatch.setenv("XENOOVS_CONFIG", "/another.yaml")
    assert _said(lab, "hosta1", "sh", "-c", "echo $XENOOVS_LAB$XENOOVS_CONFIG") == ""
    shown = json.loads(_said(lab, lab.fabric.sites[0].dpu, sys.executable, "-m", "xenoovs", "validate", "-o", "json"))
    assert shown["valid"]
    assert _said(lab, "hosta2", "ip", "-br", "address", "show", "vxlan0").split()[2] == "192.168.233.2/24"


def _said(lab: FabricLab, machine: str, *argv: str) -> str:
    said = finish(start("lab", "exec", "--lab", lab.name, "--on", machine, "--", *argv))
    assert said.status == 0, said.err
    return said.out.strip()


def test_commands_say_what_a_fabric_is_and_has(lab: FabricLab, xenoovs: CommandLine) -> None:
    with pytest.raises(LabError, match="is a fabric with 3 switches"):
        open_lab(lab.name)
    said = xenoovs("lab", "status", "--lab", lab.name, "-o", "json")
    assert said.status == 0, said.err
    machines = [machine["name"] for machine in json.loads(said.out)["machines"]]
    assert machines[:5] == ["hosta1", "dpua1", "hosta2", "dpua2", "leafa"]
    said = xenoovs("lab", "exec", "--lab", lab.name, "--on", "dpua7", "--", "true")
    assert (said.status, said.out) == (1, "")
    assert "has no machine 'dpua7'" in said.err
    said = xenoovs("lab", "fail", "spine1", "--how", "link", "--lab", lab.name)
    assert "a spine of a fabric fails as `--how silent`" in said.err
