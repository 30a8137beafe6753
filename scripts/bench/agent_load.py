"""What the agent costs with 1,600 backends that 1,000 services of 16 share."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from scripts.bench.apply import fresh_bridge
from scripts.bench.measure import XENOOVS, Row
from scripts.bench.namespace import namespace
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs

_SERVICES, _BACKENDS, _SERVERS = 1000, 16, 1600
_FIRST = IPv4Address("198.18.0.1")
_MEASURED_S = 60.0
_PATIENCE_S = 120.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def rows() -> Iterator[Row]:
    """CPU of a core over a minute, after the first flows are installed and all backends were probed."""
    with tempfile.TemporaryDirectory() as name, namespace("route add local 198.18.0.0/15 dev lo") as inside:
        directory = Path(name)
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        try:
            os.environ.update(ovs.env)
            asking = _cost(ovs, inside, _shared_config(directory / "shared.yaml"))
            yield Row(f"agent, {_SERVERS} ICMP probes a second: CPU of a core", 100 * asking.cpu, "%", 160.0)
            yield Row("  memory", asking.mib, "MiB")
        finally:
            stop_private_ovs(ovs)


@dataclass(frozen=True, slots=True)
class _Cost:
    """cpu: seconds of CPU a second; mib: resident at the end."""

    cpu: float
    mib: float


def _cost(ovs: PrivateOvs, inside: Sequence[str], config: Path) -> _Cost:
    fresh_bridge(ovs)
    argv = [*inside, XENOOVS, "agent", str(config), "--db", ovs.db]
    null = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=null, stdout=null, stderr=null) as agent:
        try:
            _wait_for_flows(ovs)
            time.sleep(15)
            before_s, begun_s = cpu_s(agent.pid), time.monotonic()
            time.sleep(_MEASURED_S)
            used_s, taken_s = cpu_s(agent.pid) - before_s, time.monotonic() - begun_s
            return _Cost(used_s / taken_s, _resident_mib(agent.pid))
        finally:
            agent.terminate()


def _wait_for_flows(ovs: PrivateOvs) -> None:
    begun_s = time.monotonic()
    while time.monotonic() < begun_s + _PATIENCE_S:
        argv = ["ovs-ofctl", "dump-aggregate", f"unix:{ovs.directory / 'ovsbr1.mgmt'}"]
        output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        if int(output.rsplit("flow_count=", 1)[1]) >= _SERVICES * _BACKENDS:
            return
        time.sleep(1)
    raise RuntimeError(f"the agent has not installed its flows within {_PATIENCE_S:g} s")


def cpu_s(pid: int) -> float:
    """Of the process and the children that it has waited for (proc(5), /proc/pid/stat fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) * _TICK_S


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _shared_config(path: Path) -> Path:
    """Every service has 16 of the 1,600 servers: one probe for one server, however many services use it."""
    lines = ["version: 1", "switch: {bridge: ovsbr1, ingress: [p0], egress: p1}"]
    lines += ["health: {probe: icmp, interval: 1s, timeout: 500ms}", "services:"]
    for i in range(_SERVICES):
        lines += [f"  - name: service-{i}", f"    vip: 10.{i >> 8}.{i & 255}.1", "    protocol: udp", "    ports: [53]"]
        lines += ["    backends:"]
        for number in ((i * _BACKENDS + j) % _SERVERS for j in range(_BACKENDS)):
            mac = f"02:00:5e:00:{number >> 8:02x}:{number & 255:02x}"
            lines.append(f"      - {{name: s{number}, mac: {mac}, weight: 1, address: {_FIRST + number}}}")
    path.write_text("\n".join(lines) + "\n")
    return path
