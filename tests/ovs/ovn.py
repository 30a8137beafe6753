"""A real OVN with two chassis, each in a network namespace with an Open vSwitch of its own, and a machine on each."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.patience import eventually
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.process import run, try_run

_SCHEMAS = Path("/usr/share/ovn")
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
asker.settimeout(2)
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
        here = self.ovs.directory
        options = [f"--pidfile={here}/ovn-controller.pid", f"--log-file={here}/ovn-controller.log", "-vconsole:off"]
        argv = ["ip", "netns", "exec", self.netns, "ovn-controller", self.ovs.db, *options, "--detach", "--no-chdir"]
        run(argv, env={**self.ovs.env, "OVN_RUNDIR": str(here)}, timeout_s=_SLOW_S)

    def stop_controller(self) -> None:
        """Kill ovn-controller, as a crash does."""
        _kill(self.ovs.directory / "ovn-controller.pid")

    def flows(self) -> list[str]:
        """Return all flows of br-int."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        argv = ["ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", target]
        return [line.strip() for line in run(argv, env=self.ovs.env).stdout.splitlines() if "actions=" in line]

    def add_flow(self, flow: str) -> None:
        """Install a flow on br-int, as another program would."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        run(["ovs-ofctl", "-O", "OpenFlow15", "add-flow", target, flow], env=self.ovs.env)

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
        argv = ["ovn-nbctl", f"--db=unix:{self.directory}/nb.sock", "--wait=hv", f"--timeout={int(_SLOW_S)}"]
        return run([*argv, *arguments], timeout_s=_SLOW_S + 5).stdout


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
        _start_databases(top)
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
        for daemon in ("ovn-northd", "ovsdb-server"):
            _kill(top / f"{daemon}.pid")
        for name in names:
            try_run(["ip", "netns", "delete", name])
        shutil.rmtree(top, ignore_errors=True)


def _start_databases(top: Path) -> None:
    for schema, database in (("ovn-nb", "nb"), ("ovn-sb", "sb")):
        run(["ovsdb-tool", "create", str(top / f"{database}.db"), str(_SCHEMAS / f"{schema}.ovsschema")])
    env = {"OVN_RUNDIR": str(top), "OVS_RUNDIR": str(top)}

    def options(daemon: str) -> list[str]:
        files = [f"--pidfile={top}/{daemon}.pid", f"--log-file={top}/{daemon}.log"]
        return [*files, f"--unixctl={top}/{daemon}.ctl", "-vconsole:off", "--detach", "--no-chdir"]

    remotes = [f"--remote=punix:{top}/nb.sock", f"--remote=punix:{top}/sb.sock"]
    run(["ovsdb-server", str(top / "nb.db"), str(top / "sb.db"), *remotes, *options("ovsdb-server")], env=env)
    databases = [f"--ovnnb-db=unix:{top}/nb.sock", f"--ovnsb-db=unix:{top}/sb.sock"]
    run(["ovn-northd", *databases, *options("ovn-northd")], env=env)


def _set_up(chassis: Chassis, top: Path) -> None:
    """Give a chassis its underlay, its keys for OVN, and its machine."""
    vsctl = chassis.ovs.vsctl
    ids = {
        "system-id": chassis.name,
        "ovn-remote": f"unix:{top}/sb.sock",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": chassis.underlay,
        "ovn-bridge-datapath-type": "netdev",
    }
    pairs = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
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


def _kill(pid_file: Path) -> None:
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGKILL)
        gone = Path(f"/proc/{pid}")
        eventually(lambda: not gone.exists(), f"{pid_file.stem} ends")
        pid_file.unlink(missing_ok=True)
