"""A real OVN with two chassis, each in a network namespace with an Open vSwitch of its own, and a machine on each."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.ovn_daemons import (
    chassis_keys,
    nbctl,
    start_controller,
    start_databases,
    stop_controller,
    stop_databases,
)
from tests.ovs.dummy import ofctl
from tests.patience import eventually
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.process import run, try_run

_SLOW_S = 120.0
VIP = "10.0.0.100"

_ANSWER = """
import socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("", 8080))
print("ready", flush=True)
while True:
    data, client = listener.recvfrom(100)
    listener.sendto(data, client)
"""
_ASK = """
import socket, sys
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(30)
asker.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    asker.send(b"hello")
    assert asker.recv(100) == b"hello"
"""


@dataclass(frozen=True, slots=True)
class Chassis:
    """One chassis with one machine.

    Attributes:
        name: `hv1` or `hv2`.
        netns: where its Open vSwitch is.
        machine: namespace of the machine, whose port on br-int is `vm1` or `vm2`.
        underlay: address of the tunnels.
        address: of the machine.
    """

    name: str
    netns: str
    machine: str
    underlay: str
    address: str
    ovs: PrivateOvs

    @property
    def port(self) -> str:
        return f"vm{self.name[-1]}"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:00:0{self.name[-1]}"

    def start_controller(self) -> None:
        """Start ovn-controller."""
        start_controller(self.ovs, netns=self.netns)

    def stop_controller(self) -> None:
        """Kill ovn-controller, as a crash does."""
        stop_controller(self.ovs)

    def flows(self) -> list[str]:
        """Return all flows of br-int."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        text = ofctl(self.ovs, "-O", "OpenFlow15", "--no-stats", "dump-flows", target)
        return [line.strip() for line in text.splitlines() if "actions=" in line]

    def add_flow(self, flow: str) -> None:
        """Install a flow on br-int, as another program would."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        ofctl(self.ovs, "-O", "OpenFlow15", "add-flow", target, flow)

    def ask(self, address: str, port: int, *, times: int) -> bool:
        """Return whether a UDP server answers the machine so many times in turn."""
        inside = ["ip", "netns", "exec", self.machine, "python3", "-I", "-c", _ASK]
        return try_run([*inside, address, str(port), str(times)], timeout_s=_SLOW_S).exit_code == 0


@dataclass(frozen=True, slots=True)
class Ovn:
    """The databases of OVN, and both chassis."""

    directory: Path
    chassis: tuple[Chassis, Chassis]

    def nbctl(self, *arguments: str) -> str:
        """Run ovn-nbctl(8), and wait until both chassis have the result."""
        return nbctl(self.directory, arguments)


@contextmanager
def two_chassis() -> Iterator[Ovn]:
    """OVN with a logical switch, two machines that reach each other, and a load balancer for VIP, within a `with`."""
    if shutil.which("ovn-controller") is None or shutil.which("ovn-northd") is None:
        pytest.fail("this test needs OVN: run scripts/setup-ovn")
    top = Path(mkdtemp(prefix="xenoovs-ovn-"))
    names = [f"xoovn{os.getpid() % 100000}{end}" for end in ("h1", "h2", "m1", "m2")]
    server = None
    started = list[Chassis]()
    try:
        start_databases(top)
        for name in names:
            run(["ip", "netns", "add", name])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
        run(["ip", "-n", names[0], "link", "add", "ul0", "type", "veth", "peer", "name", "ul0", "netns", names[1]])
        for i in (0, 1):
            ovs = start_private_ovs(top / f"hv{i + 1}", datapath=Datapath.USERSPACE, netns=names[i])
            found = Chassis(f"hv{i + 1}", names[i], names[i + 2], f"192.0.2.{i + 1}", f"10.0.0.{i + 1}", ovs)
            started.append(found)
            _set_up(found, top)
        ovn = Ovn(top, (started[0], started[1]))
        _build_switch(ovn)
        server = _serve(started[1])
        yield ovn
    finally:
        if server is not None:
            os.kill(server, signal.SIGKILL)
        for each in started:
            each.stop_controller()
            stop_private_ovs(each.ovs)
        stop_databases(top)
        for name in names:
            try_run(["ip", "netns", "delete", name])
        shutil.rmtree(top, ignore_errors=True)


def _set_up(chassis: Chassis, top: Path) -> None:
    """Give a chassis its underlay, its keys for OVN, and its machine."""
    vsctl = chassis.ovs.vsctl
    pairs = chassis_keys(chassis.name, top=top, underlay=chassis.underlay)
    pairs.append("external_ids:ovn-bridge-datapath-type=netdev")
    vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000", *pairs)
    for bridge, mode in (("br-ul", "standalone"), ("br-int", "secure")):
        vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", f"fail_mode={mode}")
    vsctl("add-port", "br-ul", "ul0")
    inside = ["ip", "-n", chassis.netns]
    run([*inside, "address", "add", f"{chassis.underlay}/24", "dev", "br-ul"])
    for device in ("ul0", "br-ul"):
        run([*inside, "link", "set", device, "up"])
    peer = ["type", "veth", "peer", "name", "eth0", "netns", chassis.machine]
    run([*inside, "link", "add", chassis.port, *peer])
    run([*inside, "link", "set", chassis.port, "up"])
    machine = ["ip", "-n", chassis.machine]
    run([*machine, "link", "set", "eth0", "address", chassis.mac, "up"])
    run([*machine, "address", "add", f"{chassis.address}/24", "dev", "eth0"])
    # Without a router nothing answers ARP for the VIP.
    run([*machine, "neighbour", "add", VIP, "lladdr", "02:00:00:00:00:02", "dev", "eth0"])
    # The userspace datapath does not complete checksums that a veth leaves to hardware.
    run(["ip", "netns", "exec", chassis.machine, "ethtool", "-K", "eth0", "tx", "off"])
    iface = f"external_ids:iface-id=sw0-{chassis.port}"
    vsctl("add-port", "br-int", chassis.port, "--", "set", "Interface", chassis.port, iface)
    chassis.start_controller()


def _build_switch(ovn: Ovn) -> None:
    words = ["ls-add", "sw0"]
    for each in ovn.chassis:
        port = f"sw0-{each.port}"
        words += ["--", "lsp-add", "sw0", port, "--", "lsp-set-addresses", port, f"{each.mac} {each.address}"]
    ovn.nbctl(*words)
    for each in ovn.chassis:
        eventually(lambda each=each: _is_installed(each), f"{each.port} is installed by OVN")  # type: ignore[misc]


def _is_installed(chassis: Chassis) -> bool:
    said = chassis.ovs.vsctl("--if-exists", "get", "Interface", chassis.port, "external_ids:ovn-installed")
    return "true" in said


def _serve(chassis: Chassis) -> int:
    import subprocess

    argv = ["ip", "netns", "exec", chassis.machine, "python3", "-I", "-c", _ANSWER]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process.pid
