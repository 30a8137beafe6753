"""From the packet that a backend no longer answers to other flows on the switch; and keepalived, asked the same way.

Both probe once a second and act on the third failure. keepalived has no switch to change: its time ends where it calls
its notify script (keepalived.conf(5), vrrp_script and notify_fault).
"""

from __future__ import annotations

import os
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.bench.apply import fresh_bridge
from scripts.bench.measure import XENOOVS, Row
from scripts.bench.namespace import namespace
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs

_INTERVAL_S, _TIMEOUT_S, _FALL = 1.0, 0.5, 3
_ROUNDS = 5
_PATIENCE_S = 30.0
_SERVERS = ("192.0.2.2", "192.0.2.3")
_DEVICE, _OWN = "vrrp", "198.51.100.1"
_PLACES = (
    *(f"addr add {address}/32 dev lo" for address in _SERVERS),
    f"link add {_DEVICE} type veth peer name unheard",
    f"addr add {_OWN}/24 dev {_DEVICE}",
    f"link set {_DEVICE} up",
    "link set unheard up",
)
"""The servers, and a device without a receiver of VRRP."""

_CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
health: {{probe: udp, port: {port}, send: ping, expect: ping, interval: 1s, fast_interval: 1s, timeout: 500ms, fall: 3}}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, weight: 1, address: 192.0.2.2}}
      - {{name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 192.0.2.3}}
"""

_KEEPALIVED = """\
global_defs {{
    script_user root
    enable_script_security
    vrrp_garp_master_repeat 1
}}
vrrp_script alive {{
    script "{check}"
    interval 1
    timeout 1
    fall 3
    rise 1
}}
vrrp_instance one {{
    state BACKUP
    interface {device}
    virtual_router_id 51
    unicast_src_ip {own}
    unicast_peer {{
        198.51.100.2
    }}
    advert_int 1
    virtual_ipaddress {{
        198.51.100.3/32
    }}
    track_script {{
        alive
    }}
    notify_fault "{notify}"
}}
"""


def rows() -> Iterator[Row]:
    """The worst of several deaths, beyond what the config itself asks to wait."""
    delays = _deaths_on_the_switch()
    budget_s = _FALL * _INTERVAL_S + _TIMEOUT_S
    yield Row("unanswered packet to flows changed, median", statistics.median(delays), "s")
    yield Row("  less the time-out of the last packet, median", statistics.median(delays) - _TIMEOUT_S, "s")
    yield Row("  the worst - (fall x interval + timeout)", max(delays) - budget_s, "s", 0.1)
    if shutil.which("keepalived") is None:
        print("keepalived is not here to compare with: apt-get install keepalived", file=sys.stderr)
        return
    median_s = statistics.median(_deaths_of_keepalived())
    yield Row("keepalived: failed check (at once) to notify script, median", median_s, "s")


# Answers every datagram with itself at two addresses; after a line on stdin the first falls silent and the time of the
# first packet that it leaves unanswered is printed.
_ANSWERS = """
import selectors, socket, sys, time
ready, is_silent, port = selectors.DefaultSelector(), False, 0
for address in sys.argv[1:]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    port = sock.getsockname()[1]
    ready.register(sock, selectors.EVENT_READ, address == sys.argv[1])
ready.register(sys.stdin, selectors.EVENT_READ)
print(port, flush=True)
while True:
    for key, _ in ready.select():
        if key.fileobj is sys.stdin:
            if not sys.stdin.readline():
                sys.exit()
            is_silent = True
            continue
        data, sender = key.fileobj.recvfrom(2048)
        if is_silent and key.data:
            print(time.monotonic(), flush=True)
        else:
            key.fileobj.sendto(data, sender)
"""


def _deaths_on_the_switch() -> list[float]:
    with tempfile.TemporaryDirectory() as name, namespace(*_PLACES) as inside:
        directory = Path(name)
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        try:
            os.environ.update(ovs.env)
            fresh_bridge(ovs)
            return [_death(ovs, inside, directory / "config.yaml") for _ in range(_ROUNDS)]
        finally:
            stop_private_ovs(ovs)


def _death(ovs: PrivateOvs, inside: Sequence[str], config: Path) -> float:
    with _process([*inside, sys.executable, "-c", _ANSWERS, *_SERVERS], stdout=subprocess.PIPE) as servers:
        if servers.stdin is None or servers.stdout is None:
            raise RuntimeError("the servers of the benchmark have no pipes")
        config.write_text(_CONFIG.format(port=int(servers.stdout.readline())))
        with _process([*inside, XENOOVS, "agent", str(config), "--db", ovs.db]):
            _until_flows_change(ovs, quiet_s=2.0)
            servers.stdin.write(b"die\n")
            servers.stdin.flush()
            changed_s = _until_flows_change(ovs)
            return changed_s - float(servers.stdout.readline())


def _until_flows_change(ovs: PrivateOvs, *, quiet_s: float | None = None) -> float:
    """Return when the switch next reports a changed flow; with `quiet_s`: the last before so long without one."""
    argv = ["ovs-ofctl", "monitor", f"unix:{ovs.directory / 'ovsbr1.mgmt'}", "watch:!initial"]
    with _process(argv, stderr=subprocess.PIPE) as monitor, selectors.DefaultSelector() as ready:
        if monitor.stderr is None:
            raise RuntimeError("ovs-ofctl monitor has no output")
        ready.register(monitor.stderr, selectors.EVENT_READ)
        seen_s: float | None = None
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + _PATIENCE_S:
            is_ready = ready.select(quiet_s if seen_s is not None else _PATIENCE_S)
            now_s = time.monotonic()
            if not is_ready and seen_s is not None:
                return seen_s
            if is_ready and b"event=" in os.read(monitor.stderr.fileno(), 1 << 16):
                seen_s = now_s
                if quiet_s is None:
                    return now_s
    raise RuntimeError(f"no flow changed within {_PATIENCE_S:g} s")


def _deaths_of_keepalived() -> list[float]:
    with tempfile.TemporaryDirectory() as name, namespace(*_PLACES) as inside:
        return [_death_of_keepalived(inside, Path(name)) for _ in range(_ROUNDS)]


def _death_of_keepalived(inside: Sequence[str], directory: Path) -> float:
    alive, checks, notified = directory / "alive", directory / "checks", directory / "notified"
    for file in (checks, notified):
        file.unlink(missing_ok=True)
    alive.touch()
    check = _script(directory / "check", f"test -e {alive} || {{ date +%s.%N >> {checks}; exit 1; }}")
    notify = _script(directory / "notify", f"date +%s.%N >> {notified}")
    config = directory / "keepalived.conf"
    config.write_text(_KEEPALIVED.format(check=check, notify=notify, device=_DEVICE, own=_OWN))
    pid = directory / "pid"
    argv = [
        "keepalived",
        "--dont-fork",
        "--vrrp",
        "--log-console",
        "-f",
        str(config),
        "-p",
        str(pid),
        "-r",
        f"{pid}.vrrp",
    ]
    with _process([*inside, *argv]):
        time.sleep(6 * _INTERVAL_S)
        notified.unlink(missing_ok=True)
        alive.unlink()
        begun_s = time.monotonic()
        while not notified.exists() or not notified.read_text().endswith("\n"):
            if time.monotonic() > begun_s + _PATIENCE_S:
                raise RuntimeError("keepalived did not call its notify script")
            time.sleep(0.01)
    return float(notified.read_text().split()[0]) - float(checks.read_text().split()[0])


def _script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o700)
    return path


@contextmanager
def _process(
    argv: list[str], *, stdout: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.terminate()
