"""The options of the operator, and every reason not to start, each in one sentence with the command that fixes it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from xenoovs.switch.process import run, try_run

_NEEDED = ("p0", "p1", "client-interface", "server-interface")
_LONGEST_NAME = 15  # IFNAMSIZ of linux/if.h less the closing zero


@dataclass(frozen=True, slots=True)
class Place:
    """A network device, and the namespace that it is in (ip-netns(8)); None: this one."""

    interface: str
    netns: str | None = None

    def ip(self, *arguments: str) -> list[str]:
        """An argument list for ip(8) in that namespace."""
        return ["ip", *(("-n", self.netns) if self.netns else ()), *arguments]


@dataclass(frozen=True, slots=True)
class Options:
    """The ports of the NIC's switch, what is at the far ends of their cables, and what may be done to the machine."""

    p0: str
    p1: str
    bridge: str
    client: Place
    server: Place
    change_settings: bool

    @property
    def ports(self) -> tuple[str, str]:
        """Where packets enter, and where they leave."""
        return self.p0, self.p1


def add_options(parser: pytest.Parser) -> None:
    """The options of the command line."""
    group = parser.getgroup("hardware", "tests on a real NIC (tests/hardware, only with -m hardware)")
    group.addoption("--p0", metavar="PORT", help="port of the NIC where clients come in; must be on no bridge")
    group.addoption("--p1", metavar="PORT", help="port of the NIC that leads to the backends; must be on no bridge")
    group.addoption("--bridge", default="xenoovs-test", metavar="NAME", help="bridge to make for the run (%(default)s)")
    for side, port in (("client", "p0"), ("server", "p1")):
        group.addoption(f"--{side}-interface", metavar="IF", help=f"device at the far end of the cable of {port}")
        group.addoption(f"--{side}-netns", metavar="NS", help="network namespace of that device; default: this one")
    group.addoption("--change-settings", action="store_true", help="also switch hw-tc-offload off, shorten max-idle")


def read_options(option: Callable[[str], object]) -> Options:
    """`option` gives the value of an option by name. Raises UsageError with the first reason not to begin."""
    values = {name: option(f"--{name}") for name in (*_NEEDED, "bridge", "client-netns", "server-netns")}
    missing = [f"--{name}" for name in _NEEDED if values[name] is None]
    if missing:
        given = "`pytest -m hardware tests/hardware --p0 PORT --p1 PORT --client-interface IF --server-interface IF`"
        raise pytest.UsageError(f"the hardware tests need {', '.join(missing)}: {given}")
    text = {name: str(value) for name, value in values.items() if value is not None}
    options = Options(
        p0=text["p0"],
        p1=text["p1"],
        bridge=text["bridge"],
        client=Place(text["client-interface"], text.get("client-netns")),
        server=Place(text["server-interface"], text.get("server-netns")),
        change_settings=bool(option("--change-settings")),
    )
    for reason in _reasons(options):
        raise pytest.UsageError(reason)
    return options


def _reasons(options: Options) -> Iterator[str]:
    if os.geteuid() != 0:
        yield "the hardware tests need root: they make a bridge and open packet sockets"
    if options.p0 == options.p1:
        yield f"--p0 and --p1 are both {options.p0}: name two ports of the NIC"
    if len(options.bridge) > _LONGEST_NAME:
        yield f"--bridge {options.bridge} has {len(options.bridge)} characters, Linux takes {_LONGEST_NAME}: shorten it"
    for place in (Place(options.p0), Place(options.p1), options.client, options.server):
        yield from _device(place)
    setting = ["ovs-vsctl", "--timeout=10", "--if-exists", "get", "Open_vSwitch", ".", "other_config:hw-offload"]
    if run(setting).stdout.strip().strip('"') != "true":
        fix = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true"
        yield f"hw-offload is off: run `{fix}`, and restart Open vSwitch"
    if try_run(["ovs-vsctl", "--timeout=10", "br-exists", options.bridge]).exit_code == 0:
        yield f"bridge {options.bridge} exists: name another by --bridge, or `ovs-vsctl del-br {options.bridge}`"
    for port in options.ports:
        yield from _port(port)


def _device(place: Place) -> Iterator[str]:
    where = f" in network namespace {place.netns}" if place.netns else ""
    shown = try_run(place.ip("-j", "link", "show", "dev", place.interface))
    if shown.exit_code != 0:
        yield f"there is no network device {place.interface}{where}: `ip link` lists those that are"
    elif "UP" not in json.loads(shown.stdout)[0]["flags"]:
        yield f"{place.interface}{where} is down: run `{' '.join(place.ip('link', 'set', place.interface, 'up'))}`"


def _port(port: str) -> Iterator[str]:
    bridge = try_run(["ovs-vsctl", "--timeout=10", "port-to-br", port])
    if bridge.exit_code == 0:
        on = bridge.stdout.strip()
        yield f"{port} is on bridge {on}, in use: free it by `ovs-vsctl del-port {on} {port}`, or name another port"
    if Path(f"/sys/class/net/{port}/master").exists():
        yield f"{port} belongs to a bond or bridge of Linux: free it by `ip link set {port} nomaster`"
    found = json.loads(run(["ip", "-j", "addr", "show", "dev", port]).stdout)[0]["addr_info"]
    addresses = [str(address["local"]) for address in found if address["scope"] == "global"]
    if addresses:
        yield f"{port} has the address {addresses[0]}: a bridge would cut this machine off from it; name another port"
    if "hw-tc-offload: on" not in run(["ethtool", "-k", port]).stdout:
        yield f"hw-tc-offload of {port} is not on: run `ethtool -K {port} hw-tc-offload on`"
    if try_run(["tc", "filter", "show", "dev", port, "ingress"]).stdout.strip():
        yield f"{port} has filters, which Open vSwitch would remove: see `tc filter show dev {port} ingress`"
