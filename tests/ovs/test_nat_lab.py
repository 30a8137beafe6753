"""Real connections through NAT without state: what arrives is what was sent, both ways, with right checksums."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import lab_name
from xenoovs.compile.plan import hardware_entries
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.lab.private_ovs import LAB_MAX_IDLE_MS, Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Command, Flow, FlowMod
from xenoovs.openflow.text import render_flow_mod
from xenoovs.switch.process import run

PEER = Path(__file__).parent / "nat_peer.py"
SIZE = 600_000
VIP = "10.3.10.45"
ROUTER_MAC = "02:00:00:00:0a:01"

SERVICE = """
  - name: {protocol}
    vip: 10.3.10.45
    protocol: {protocol}
    ports: [80]
    vip_mac: "02:00:5e:10:00:01"
    mode: nat
    backends:
      - {{name: b1, mac: "02:00:00:00:0b:01", address: 10.3.20.11, port: 8080, egress: p1, weight: 3}}
      - {{name: b2, mac: "02:00:00:00:0b:02", address: 10.3.20.12, port: 8080, egress: p2, weight: 1}}
"""
CONFIG = "version: 1\nswitch: {ingress: [p0], egress: p1, other_traffic: drop}\nservices:" + "".join(
    SERVICE.format(protocol=protocol) for protocol in ("tcp", "udp")
)
CLIENTS = {"10.9.0.0": "b1", "10.9.0.1": "b1", "10.9.0.2": "b1", "10.9.0.3": "b2"}
"""Four clients, one of each class of the two low bits, and whose they are."""


@dataclass(frozen=True, slots=True)
class World:
    """Clients and two servers around one bridge, each in a namespace of its own."""

    ovs: PrivateOvs
    namespaces: Mapping[str, str]
    balancer: Balancer

    def install(self, flows: tuple[Flow, ...]) -> None:
        text = "".join(f"{render_flow_mod(FlowMod(Command.ADD, flow))}\n" for flow in flows)
        target = f"unix:{self.ovs.directory / 'ovsbr1.mgmt'}"
        ofctl(self.ovs, "-O", "OpenFlow14", "--bundle", "add-flows", target, "-", stdin=text)

    def at(self, name: str, *argv: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.namespaces[name], *argv]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wrong_checksums(self, name: str) -> dict[str, int]:
        """The packets that a machine dropped for their checksum (RFC 1213 and /proc/net/snmp)."""
        text = run(["ip", "netns", "exec", self.namespaces[name], "cat", "/proc/net/snmp"]).stdout
        found = dict[str, int]()
        lines = text.splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            counts = dict(zip(names.split(), values.split(), strict=True))
            found |= {f"{names.split(':')[0]}.{key}": int(counts[key]) for key in ("InCsumErrors",) if key in counts}
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with nat_world(parse_config(CONFIG, file="c.yaml"), tmp_path_factory.mktemp("nat")) as made:
        yield made


@contextmanager
def nat_world(balancer: Balancer, directory: Path) -> Iterator[World]:
    """Cables from the bridge to the clients' router (p0) and to two servers (p1, p2), whose default route it is."""
    namespaces = {name: f"xo-{lab_name('nat')}-{name}" for name in ("sw", "clients", "b1", "b2")}
    with ExitStack() as stack:
        for namespace in namespaces.values():
            run(["ip", "netns", "add", namespace])
            stack.callback(run, ["ip", "netns", "delete", namespace])
        _cable(namespaces, "p0", "clients", ROUTER_MAC)
        _cable(namespaces, "p1", "b1", "02:00:00:00:0b:01")
        _cable(namespaces, "p2", "b2", "02:00:00:00:0b:02")
        ip = ["ip", "-n", namespaces["clients"]]
        for client in CLIENTS:
            run([*ip, "address", "add", f"{client}/32", "dev", "eth0"])
        run([*ip, "route", "add", VIP, "dev", "eth0"])
        for number, name in enumerate(("b1", "b2"), start=11):
            ip = ["ip", "-n", namespaces[name]]
            run([*ip, "address", "add", f"10.3.20.{number}/24", "dev", "eth0"])
            run([*ip, "route", "add", "default", "via", "10.3.20.1"])
            run([*ip, "neighbour", "add", "10.3.20.1", "lladdr", ROUTER_MAC, "dev", "eth0"])
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.USERSPACE, netns=namespaces["sw"])
        stack.callback(stop_private_ovs, ovs)
        ovs.vsctl("set", "open_vswitch", ".", f"other_config:max-idle={LAB_MAX_IDLE_MS}")
        ovs.add_bridge("ovsbr1", ("p0", "p1", "p2"), datapath=Datapath.USERSPACE)
        world = World(ovs, namespaces, balancer)
        world.install(compiled(balancer).flows)
        yield world


def _cable(namespaces: Mapping[str, str], port: str, machine: str, mac: str) -> None:
    near, far = namespaces["sw"], namespaces[machine]
    run(["ip", "-n", near, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", far, "address", mac])
    run(["ip", "-n", near, "link", "set", port, "up"])
    for device in ("lo", "eth0"):
        run(["ip", "-n", far, "link", "set", device, "up"])
    # The userspace datapath sends a checksum as it finds it, and that of a veth may be left to the device.
    run(["ip", "netns", "exec", far, "ethtool", "-K", "eth0", "tx", "off"])


def exchange(world: World, protocol: str, *, size: int = SIZE) -> dict[str, dict[str, object]]:
    """What each client sent and got, by its address."""
    with ExitStack() as stack:
        for name in ("b1", "b2"):
            server = world.at(name, sys.executable, str(PEER), "serve", protocol, name)
            stack.callback(server.communicate)
            stack.callback(server.kill)
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
        found = {}
        for client in CLIENTS:
            process = world.at("clients", sys.executable, str(PEER), "ask", protocol, client, VIP, str(size))
            found[client] = json.loads(process.communicate(timeout=120)[0])
        return found


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_all_bytes_arrive_both_ways_and_checksums_are_right(world: World, protocol: str) -> None:
    before = {name: world.wrong_checksums(name) for name in world.namespaces}
    for client, answer in exchange(world, protocol).items():
        assert answer["peer"] == [VIP, 80], "the answer is from the VIP"
        assert (answer["backend"], answer["server_port"]) == (CLIENTS[client], 8080)
        assert answer["seen"] == client, "the server sees the client's own address"
        sent = hashlib.sha256(bytes(answer["pattern"]) * (SIZE // 250)).hexdigest()  # type: ignore[call-overload]
        assert answer["server_hash"] == answer["client_hash"] == sent
    assert {name: world.wrong_checksums(name) for name in world.namespaces} == before


def test_megaflows_are_one_a_block_and_protocol_and_one_a_backend_and_protocol_back(world: World) -> None:
    for protocol in ("tcp", "udp"):
        exchange(world, protocol, size=2500)
    lines = world.ovs.appctl("dpctl/dump-flows", "-m").splitlines()
    found = [parse_megaflow(line) for line in lines if "eth_type(0x0800)" in line]
    translated = [m for m in found if any(action.startswith("set(ipv4") for action in m.actions)]
    forward = [m for m in translated if m.in_port == "p0"]
    back = [m for m in translated if m.in_port in ("p1", "p2")]
    assert (len(forward), len(back)) == (6, 4), lines
    assert sum(map(hardware_entries, compiled(world.balancer).services)) == 10
