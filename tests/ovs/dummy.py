"""A real ovs-vswitchd with the dummy datapath for tests: bridges, packets in and out, flows and megaflows."""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.patience import eventually
from xenoovs.errors import CommandFailed
from xenoovs.judge.simulate.classifier import prefix_fields_of
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, start_vswitchd, stop_private_ovs
from xenoovs.openflow.flow import Field
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.process import run
from xenoovs.switch.stderr import has_lost_connection
from xenoovs.switch.vswitchd import parse_version

# What exceeds NETDEV_DUMMY_MAX_QUEUE = 100 waiting packets is dropped; each turn of ovs-vswitchd takes one of a port
# (lib/netdev-dummy.c).
_BURST = 100
# Removed rules stay visible to the classifier until their deferred deletion, which the first packets may still meet.
_DEFERRED_DELETION_S = 1.0


def ofctl(ovs: PrivateOvs, *words: str, stdin: str | None = None) -> str:
    """Return what ovs-ofctl(8) prints. One that got no turn for a second before its greeting runs again.

    By then ovs-vswitchd has closed the connection (run_CONNECTING of lib/rconn.c), and nothing was asked.
    """
    for is_last in (False, False, False, False, True):
        try:
            return run(["ovs-ofctl", *words], stdin=stdin, env=ovs.env, timeout_s=60).stdout
        except CommandFailed as failed:
            if is_last or not has_lost_connection(failed, is_change=True):
                raise
    raise AssertionError


@dataclass(frozen=True, slots=True)
class DummyBridge:
    """One bridge of a private OVS. Ports are dummy devices; OpenFlow port numbers count from 1 in their order."""

    ovs: PrivateOvs
    name: str
    ports: tuple[str, ...]

    @property
    def management(self) -> str:
        """The OpenFlow socket, as ovs-ofctl takes it."""
        return f"unix:{self.ovs.directory / self.name}.mgmt"

    @property
    def prefix_fields(self) -> tuple[Field, ...]:
        """Fields of which its classifier has prefix tries."""
        return prefix_fields_of(parse_version(self.ovs.appctl("version")))

    def ofctl(self, command: str, *arguments: str, stdin: str | None = None, version: str = "OpenFlow14") -> str:
        """`ovs-ofctl -O VERSION --names COMMAND BRIDGE ARGUMENTS`."""
        return ofctl(self.ovs, "-O", version, "--names", command, self.management, *arguments, stdin=stdin)

    def add_flows(self, text: str) -> None:
        """Install a flow file in one bundle, by ovs-ofctl itself."""
        ofctl(self.ovs, "-O", "OpenFlow14", "--bundle", "add-flows", self.management, "-", stdin=text)

    def dump_flows(self, *, version: str = "OpenFlow10") -> list[str]:
        """The flows without counters, one a line, in the order in which OVS lists them."""
        text = ofctl(self.ovs, "-O", version, "--names", "--no-stats", "dump-flows", self.management)
        return [line.strip() for line in text.splitlines() if "_FLOW reply" not in line]

    def ours(self) -> list[str]:
        """The flows of xenoovs."""
        return sorted(flow for flow in self.dump_flows() if flow.startswith("cookie=0x786f"))

    def send(self, port: str, packets: Sequence[str], *, length: int = 100) -> None:
        """Let packets of `length` bytes enter at `port`; each is a datapath key as text (`udp_packet` makes some)."""
        self.receive(port, [(packet, "--len", str(length)) for packet in packets])

    def receive(self, port: str, packets: Sequence[Sequence[str]]) -> None:
        """Let packets enter at `port`, each as the words that `netdev-dummy/receive` takes; all are through at the end.

        A packet is counted and forwarded within one turn of the thread that also answers ovs-appctl.
        """
        wanted = self._taken(port)
        for start in range(0, len(packets), _BURST):
            burst = packets[start : start + _BURST]
            wanted += len(burst)
            self.ovs.appctl("netdev-dummy/receive", port, *(word for packet in burst for word in packet))
            eventually(partial(self._has_taken, port, wanted), f"{wanted} packets taken from {port}")

    def _has_taken(self, port: str, wanted: int) -> bool:
        return self._taken(port) >= wanted

    def _taken(self, port: str) -> int:
        """How many packets have come in by a port, of whichever bridge."""
        text = self.ovs.appctl("dpctl/show", "-s")
        found = re.search(rf"^  port \d+: {re.escape(port)} .*\n +RX packets:(\d+)", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1])

    def sent(self, port: str) -> list[bytes]:
        """The Ethernet frames that have left by `port`, oldest first."""
        return list(_read_pcap(_pcap(self.ovs, port).read_bytes()))

    def settle(self, *, removed_s: float = _DEFERRED_DELETION_S) -> None:
        """Make megaflow counts mean something: wait out removed rules, forget all megaflows.

        `removed_s`: 0 where no flow was removed or replaced on this bridge.
        """
        time.sleep(removed_s)
        self.ovs.appctl("revalidator/purge")
        self.ovs.appctl("revalidator/wait")

    def megaflows(self) -> list[str]:
        """The lines of `dpctl/dump-flows -m` of packets that entered by a port of this bridge."""
        self.ovs.appctl("revalidator/wait")
        lines = self.ovs.appctl("dpctl/dump-flows", "-m").splitlines()
        return [line for line in lines if any(f"in_port({port})" in line for port in self.ports)]

    def trace(self, flow: str) -> str:
        """`ofproto/trace`, with port names in the answer."""
        return Appctl(find_endpoint(db=self.ovs.db, env={})).trace(self.name, flow)


@dataclass(frozen=True, slots=True)
class DummyOvs:
    """A private OVS with the dummy datapath."""

    ovs: PrivateOvs

    @contextmanager
    def bridge(self, name: str = "ovsbr1", ports: Sequence[str] = ("p0", "p1")) -> Iterator[DummyBridge]:
        """A bridge for the time of a `with`. No two bridges may hold ports of one name, as with real devices."""
        added = [word for i, port in enumerate(ports, 1) for word in _add_port(self.ovs, name, port, ofport=i)]
        kind = ["datapath_type=dummy", "fail_mode=secure"]
        self.ovs.vsctl("add-br", name, "--", "set", "bridge", name, *kind, *added)
        try:
            yield DummyBridge(self.ovs, name, tuple(ports))
        finally:
            # Without ovs-vswitchd nobody would ever confirm, and the wait would hide why the test failed.
            wait = [] if len(self.ovs.pids()) == 2 else ["--no-wait"]
            self.ovs.vsctl(*wait, "--if-exists", "del-br", name)
            # What an agent remembers of drains and weights, and the history, are for the next bridge of this name.
            for left in self.ovs.directory.glob(f"xenoovs/{name}.*"):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink(missing_ok=True)


@contextmanager
def running_dummy_ovs(directory: Path) -> Iterator[DummyOvs]:
    """A private OVS for the time of a `with`; megaflows stay for ten minutes. Fails the test where OVS is missing."""
    if shutil.which("ovs-vswitchd") is None:
        pytest.fail("this test needs ovs-vswitchd; on Debian: apt-get install openvswitch-switch")
    ovs = start_private_ovs(directory, datapath=Datapath.DUMMY)
    try:
        ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
        yield DummyOvs(ovs)
    finally:
        stop_private_ovs(ovs)


def start_dummy_as_system(ovs: PrivateOvs, netns: str) -> None:
    """Start ovs-vswitchd in a network namespace, with bridges of `datapath_type` system that no packet can pass."""
    here = ovs.directory
    files = [f"--pidfile={here}/ovs-vswitchd.pid", f"--log-file={here}/ovs-vswitchd.log", "-vconsole:off"]
    argv = ["ovs-vswitchd", ovs.db, "--enable-dummy=system", *files, "--detach", "--no-chdir"]
    run(["ip", "netns", "exec", netns, *argv], env=ovs.env)


def tc_module(ovs: PrivateOvs) -> str:
    """The module that logs why traffic control gets no rule: netdev_offload_tc, and dpif_offload_tc since 3.7."""
    names = {line.split()[0] for line in ovs.appctl("vlog/list").splitlines() if line.strip()}
    (name,) = names & {"netdev_offload_tc", "dpif_offload_tc"}
    return name


def lead_to_remotes(uplink: DummyBridge, number: int, neighbours: Sequence[int]) -> None:
    """Give a bridge the address 192.168.77.NUMBER, the route to its network, and the MACs of neighbours there."""
    uplink.ovs.vsctl("set", "bridge", uplink.name, f"other_config:hwaddr=aa:55:aa:55:00:{number:02x}")
    uplink.add_flows("priority=0,actions=NORMAL\n")
    uplink.ovs.appctl("netdev-dummy/ip4addr", uplink.name, f"192.168.77.{number}/24")
    uplink.ovs.appctl("ovs/route/add", "192.168.77.0/24", uplink.name)
    for other in neighbours:
        uplink.ovs.appctl("tnl/neigh/set", uplink.name, f"192.168.77.{other}", f"aa:55:aa:55:00:{other:02x}")


def udp_packet(
    source: str, *, destination: str = "10.3.10.45", mac: str = "c4:70:bd:a0:56:ac", ports: tuple[int, int] = (4000, 53)
) -> str:
    """The datapath key of an IPv4/UDP packet to the VIP, as `netdev-dummy/receive` and ovs-appctl(8) take it."""
    return (
        f"in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst={mac}),eth_type(0x0800),"
        f"ipv4(src={source},dst={destination},proto=17,tos=0,ttl=64,frag=no),udp(src={ports[0]},dst={ports[1]})"
    )


def _add_port(ovs: PrivateOvs, bridge: str, port: str, *, ofport: int) -> list[str]:
    pcap = _pcap(ovs, port)
    pcap.unlink(missing_ok=True)
    settings = ["type=dummy", f"ofport_request={ofport}", f"options:tx_pcap={pcap}"]
    return ["--", "add-port", bridge, port, "--", "set", "interface", port, *settings]


def _pcap(ovs: PrivateOvs, port: str) -> Path:
    return ovs.directory / f"{port.replace('/', '_')}.pcap"


def _read_pcap(data: bytes) -> Iterator[bytes]:
    # Global header of 24 bytes, then per frame a header of 16 whose third word is the length (pcap-savefile(5)).
    offset = 24
    while offset + 16 <= len(data):
        (size,) = struct.unpack_from("=I", data, offset + 8)
        yield data[offset + 16 : offset + 16 + size]
        offset += 16 + size


def kill_and_start_vswitchd(ovs: PrivateOvs) -> None:
    """The new one has the bridges of the database, and no flows."""
    assert kill_and_wait(ovs.pids()[:1])

    def is_started() -> bool:
        # The last thread of the one that was killed may hold the lock of the pid file for a moment.
        try:
            start_vswitchd(ovs, datapath=Datapath.DUMMY)
        except CommandFailed:
            return False
        return True

    eventually(is_started, "ovs-vswitchd starts")
