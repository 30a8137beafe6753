"""A bridge for one test on the NIC's ports, packets through it, and what must agree.

These are packets that came out, packets that the CPU saw, the counters of the driver, and our report.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tests.hardware.options import Options, Place
from tests.nic.guest.frames import Kind
from tests.nic.guest.wire import Wire
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.cli.main import run as run_xenoovs
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid
from xenoovs.switch.process import Completed, run, try_run
from xenoovs.switch.tc import dump_filters

# Clients are of RFC 2544's range, addresses of services of RFC 5737's: no other host on the cable has them.
CLIENTS = tuple(f"198.18.{(37 * i) % 251}.{64 + i}" for i in range(64))
VIP = "198.51.100.45"
MACS = {"one": "02:00:5e:10:00:02", "two": "02:00:5e:10:00:03", "three": "02:00:5e:10:00:04"}
NEW_MAC = "02:00:5e:10:00:05"
_WEIGHTS = {"one": 50, "two": 30, "three": 20}
# More than a revalidator's round (500 ms) after drivers have fetched their counters (mlx5: once a second).
_COUNTERS_S = 3.0
_OWNER = "xenoovs-hardware-test"
_SETTLE_TIMEOUT_S = 600.0
_DEFAULT_MAX_IDLE_MS = 10_000
_ETH_P_IP = 0x0800
# linux/if_packet.h
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a packet came from, where it was sent, and the destination MAC that it had."""

    source: str
    destination: str
    mac: str


class Socket(Wire):
    """Sends and receives frames at a device. It receives those for other MACs too, as long as it is open."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.netns, place.interface)
        index = in_namespace(place.netns, lambda: socket.if_nametoindex(place.interface))
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)

    def take(self) -> Counter[Seen]:
        """IPv4 packets that have come in since the last call."""
        frames = (frame for frame in self.receive() if frame[12:14] == _ETH_P_IP.to_bytes(2, "big"))
        return Counter(
            Seen(str(IPv4Address(frame[26:30])), str(IPv4Address(frame[30:34])), frame[:6].hex(":")) for frame in frames
        )


def gather(sockets: Sequence[Socket], *, quiet_s: float = 1.0, limit_s: float = 30.0) -> list[Counter[Seen]]:
    """What each socket has seen since its last `take`, once nothing of IPv4 came for `quiet_s`, or after `limit_s`."""
    found = [Counter[Seen]() for _ in sockets]
    begun = last = time.monotonic()
    while time.monotonic() - last < quiet_s and time.monotonic() - begun < limit_s:
        for counted, listener in zip(found, sockets, strict=True):
            new = listener.take()
            counted.update(new)
            last = time.monotonic() if new else last
        time.sleep(0.02)
    return found


@dataclass(frozen=True, slots=True)
class Burst:
    """Packets that were sent, those that came out at the server's end, and those that the CPU saw at p0."""

    sent: int
    delivered: Counter[Seen]
    woken: Counter[Seen]


@dataclass(frozen=True, slots=True)
class Look:
    """The report of xenoovs (`verify-offload -o json`), and the filters of traffic control at p0 for the service."""

    exit_code: int
    report: Any
    filters: tuple[TcFilter, ...]

    @property
    def nic_packets(self) -> int:
        """Packets of the service that traffic control has from the driver."""
        return sum(entry.counters.hw_packets or 0 for entry in self.filters if entry.counters)


def assert_all_in_hardware(before: Look, burst: Burst, after: Look) -> None:
    """All packets arrived, the CPU received none, and xenoovs reports exactly these numbers."""
    assert burst.delivered.total() == burst.sent
    assert burst.woken == Counter()
    assert (after.exit_code, verdicts(after) - {"ABSENT"}) == (0, {"HW"})
    assert [entry.in_hw for entry in after.filters] == [True] * len(after.filters)
    assert after.nic_packets - before.nic_packets == burst.sent
    total = after.report["blocks_total"]
    assert total["hw_packets"] - before.report["blocks_total"]["hw_packets"] == burst.sent
    assert total["sw_packets"] == before.report["blocks_total"]["sw_packets"]
    for name, mac in MACS.items():
        arrived = sum(count for seen, count in burst.delivered.items() if seen.mac == mac)
        assert packets(after)[name] - packets(before)[name] == arrived


def verdicts(found: Look) -> set[str]:
    """Of all blocks."""
    return {block["verdict"] for block in found.report["blocks"]}


def packets(found: Look) -> dict[str, int]:
    """By backend."""
    return {row["backend"]: row["packets"] for row in found.report["backends"]}


class Rig:
    """Made by `running_rig`."""

    def __init__(self, options: Options, directory: Path, sockets: Sequence[Socket]) -> None:
        self.options = options
        self._config = directory / "service.yaml"
        self._client, self._server, self._cpu = sockets

    def apply(self, macs: dict[str, str]) -> None:
        """`xenoovs apply`: one service, and three backends with these MACs."""
        named = [f"{{name: {name}, mac: {mac}, weight: {_WEIGHTS[name]}}}" for name, mac in macs.items()]
        ports = f"bridge: {self.options.bridge}, ingress: [{self.options.p0}], egress: {self.options.p1}"
        service = f"{{name: dns, vip: {VIP}, protocol: udp, ports: [53], backends: [{', '.join(named)}]}}"
        self._config.write_text(f"version: 1\nswitch: {{{ports}, other_traffic: drop}}\nservices: [{service}]\n")
        done = self.xenoovs("apply", str(self._config), "--yes")
        assert done.exit_code == 0, done.stderr

    def add_others(self, *flows: str, group: str | None = None) -> None:
        """Add foreign flows to the bridge; `{p0}` and `{p1}` in them are the ports."""
        ofctl, bridge = ["ovs-ofctl", "-O", "OpenFlow14"], self.options.bridge
        names = {"p0": self.options.p0, "p1": self.options.p1}
        if group:
            run([*ofctl, "add-group", bridge, group.format(**names)])
        run([*ofctl, "--bundle", "add-flows", bridge, "-"], stdin="\n".join(flow.format(**names) for flow in flows))

    def send(self, sources: Sequence[str] = CLIENTS, *, each: int = 10, to: str = VIP) -> Burst:
        """Send `each` packets of every source at the client's end, and count them at the others."""
        for late in (self._server, self._cpu):
            late.take()
        frames = [Kind(destination=to).frame(source) for source in sources] * each
        self._client.send(frames)
        found = gather((self._server, self._cpu))
        server, cpu = (Counter({seen: n for seen, n in all_.items() if seen.destination == to}) for all_ in found)
        return Burst(len(frames), server, cpu)

    def prime(self, sources: Sequence[str] = CLIENTS, *, to: str = VIP) -> None:
        """Send one packet of each, which is in software as every first one; wait until the megaflows stand."""
        self.send(sources, each=1, to=to)
        deadline, before = time.monotonic() + _SETTLE_TIMEOUT_S, -1
        while (now := len(self.megaflows(to))) != before or now == 0:
            assert time.monotonic() < deadline, f"the megaflows to {to} are not stable: {now} at last"
            before = now
            time.sleep(1.0)

    def look(self) -> Look:
        """Return the reports of every tool, after counters had time to arrive."""
        time.sleep(_COUNTERS_S)
        result = self.xenoovs("verify-offload", str(self._config), "--output", "json")
        assert result.exit_code in (0, 2, 3), result.stderr
        cookies = {cookie_of_ufid(megaflow.ufid or "") for megaflow in self.megaflows(VIP)}
        filters = dump_filters([self.options.p0]).filters
        return Look(result.exit_code, json.loads(result.stdout), tuple(f for f in filters if f.cookie in cookies))

    def wait_until_idle(self) -> None:
        """Wait until the megaflows have idled out: after max-idle, which is a second with --change-settings."""
        setting = ["Open_vSwitch", ".", "other_config:max-idle"]
        max_idle_ms = run(["ovs-vsctl", "--if-exists", "get", *setting]).stdout.strip().strip('"')
        deadline = time.monotonic() + int(max_idle_ms or _DEFAULT_MAX_IDLE_MS) / 1000 + _SETTLE_TIMEOUT_S
        if self.options.change_settings:
            run(["ovs-vsctl", "set", *setting[:2], f"{setting[2]}=1000"])
        try:
            while left := len(self.megaflows(VIP)):
                assert time.monotonic() < deadline, f"{left} megaflows to {VIP} do not idle out"
                time.sleep(1.0)
        finally:
            if self.options.change_settings and max_idle_ms:
                run(["ovs-vsctl", "set", *setting[:2], f"{setting[2]}={max_idle_ms}"])
            elif self.options.change_settings:
                run(["ovs-vsctl", "remove", *setting[:2], "other_config", "max-idle"])

    def bridge_report(self) -> Any:
        """`xenoovs verify-offload --bridge`: all megaflows by port and verdict."""
        return json.loads(self.xenoovs("verify-offload", "--bridge", self.options.bridge, "--output", "json").stdout)

    def megaflows(self, destination: str) -> list[Megaflow]:
        """Those for exactly this address."""
        dump = run(["ovs-appctl", "dpctl/dump-flows", "-m"]).stdout
        return [found for found in parse_dump(dump) if f"dst={destination}" in (found.key("ipv4") or "").split(",")]

    def xenoovs(self, *arguments: str) -> Completed:
        """Run the command line in this process: on a slow machine another takes longer to start than to run."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = run_xenoovs(list(arguments))
        return Completed(("xenoovs", *arguments), status, out.getvalue(), err.getvalue())


@contextmanager
def running_rig(options: Options, directory: Path) -> Iterator[Rig]:
    """Add a bridge, and remove it at the end, when the ports have the same qdiscs as before."""
    places = (options.client, options.server, Place(options.p0))
    had = {port: _has_ingress(port) for port in options.ports}
    try:
        added = [word for port in options.ports for word in ("--", "add-port", options.bridge, port)]
        own = ["--", "br-set-external-id", options.bridge, _OWNER, str(os.getpid())]
        secure = ["--", "set", "bridge", options.bridge, "fail_mode=secure"]
        run(["ovs-vsctl", "--timeout=60", "add-br", options.bridge, *own, *secure, *added], timeout_s=90.0)
        with closing(Socket(places[0])) as a, closing(Socket(places[1])) as b, closing(Socket(places[2])) as c:
            rig = Rig(options, directory, (a, b, c))
            rig.apply(MACS)
            yield rig
    finally:
        _remove_own_bridge(options.bridge)
        for port in options.ports:
            _put_ingress_back(port, had=had[port])


def _remove_own_bridge(bridge: str) -> None:
    # Another program may have made a bridge of this name a moment before; then this one was never made.
    if try_run(["ovs-vsctl", "--timeout=10", "br-get-external-id", bridge, _OWNER]).stdout.strip() == str(os.getpid()):
        run(["ovs-vsctl", "--timeout=60", "del-br", bridge], timeout_s=90.0)


def _has_ingress(port: str) -> bool:
    return "qdisc ingress" in run(["tc", "qdisc", "show", "dev", port]).stdout


def _put_ingress_back(port: str, *, had: bool) -> None:
    if _has_ingress(port) != had:
        run(["tc", "qdisc", "add" if had else "del", "dev", port, "ingress"])
