"""The emulated NIC as the guest handles it: its module, its wire ends, its own account of what it does."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.nic.guest.frames import GENEVE_PORT, LOCAL, REMOTE_MACS, REMOTES, UPLINK_MAC
from tests.nic.guest.wire import Wire
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.switch.process import run

PORTS = ("p0", "p1", "pf0hpf")
WIRE_NETNS = "wire"

_DEBUGFS = Path("/sys/kernel/debug/eswitch")
_PARAMETERS = Path("/sys/module/eswitch/parameters")
_RMMOD_S = 300.0


def load_nic(module: str) -> dict[str, Wire]:
    """Load the module and plug in the wire ends, in a namespace of their own; one Wire a port, by the port's name."""
    run(["insmod", module, f"ports={','.join(PORTS)}"])
    run(["ip", "netns", "add", WIRE_NETNS])
    for port in PORTS:
        run(["ip", "link", "set", port, "up"])
        plug_in(f"{port}-w")
    return {port: Wire(WIRE_NETNS, f"{port}-w") for port in PORTS}


def unload_nic(wires: Mapping[str, Wire]) -> None:
    """As if it had never been there; no bridge may have its ports any more."""
    for wire in wires.values():
        wire.close()
    remove_module()
    run(["ip", "netns", "delete", WIRE_NETNS])


def remove_module() -> None:
    """Run rmmod. Raises SystemExit when it hangs, so that the part fails and the next ones get a new machine.

    A module that still holds a device or a route lets rmmod wait in the kernel, where no signal ends it. So nothing
    waits for it, as `run` would.
    """
    process = subprocess.Popen(["rmmod", "eswitch"], stderr=subprocess.PIPE, text=True)
    try:
        _, errors = process.communicate(timeout=_RMMOD_S)
    except subprocess.TimeoutExpired:
        log = run(["dmesg"]).stdout.splitlines()[-10:]
        raise SystemExit("\n".join([f"rmmod eswitch has not ended within {_RMMOD_S:g} s; dmesg:", *log])) from None
    if process.returncode != 0:
        raise RuntimeError(f"rmmod eswitch: {errors.strip()}")


def plug_in(device: str) -> None:
    """Move a device to the wire ends' namespace and set it up."""
    run(["ip", "link", "set", device, "netns", WIRE_NETNS])
    set_up_silent(device)


def set_up_silent(device: str, *, netns: str = WIRE_NETNS) -> None:
    """Set a device of a namespace up; without IPv6 it sends nothing by itself."""
    quiet = f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
    run(["ip", "netns", "exec", netns, "tee", quiet], stdin="1")
    run(["ip", "-n", netns, "link", "set", device, "up"])


def add_veth(port: str) -> Wire:
    """A port that is not on the NIC: a veth pair whose far end is plugged in beside the NIC's wire ends."""
    run(["ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}-w"])
    run(["ip", "link", "set", port, "up"])
    plug_in(f"{port}-w")
    return Wire(WIRE_NETNS, f"{port}-w")


def remove_veth(port: str) -> None:
    """Remove what `add_veth` has made."""
    run(["ip", "link", "delete", port])


UPLINK = "p1"
"""The port by which tunnels leave."""


def set_up_uplink() -> None:
    """Give the uplink our end's addresses, and the MAC addresses of the remotes."""
    known = (
        f"neigh replace {REMOTES[kind]} lladdr {mac} dev {UPLINK} nud permanent" for kind, mac in REMOTE_MACS.items()
    )
    ip_batch(f"link set {UPLINK} address {UPLINK_MAC}", f"addr replace {LOCAL}/24 dev {UPLINK}", *known)


def clear_uplink() -> None:
    """Remove what `set_up_uplink` has added, and what a scenario has added to it."""
    ip_batch(f"addr flush dev {UPLINK}", f"neigh flush dev {UPLINK} nud permanent")


@contextmanager
def host_beyond(address: str) -> Iterator[None]:
    """In the block, a host with this address answers ARP at the wire end of the uplink, and discards what it gets."""
    wire = f"{UPLINK}-w"
    ip_batch(f"addr add {address}/24 dev {wire}", netns=WIRE_NETNS)
    with in_namespace(WIRE_NETNS, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as host:
        # Nobody reads it. Without it the host would send ICMP errors.
        host.bind((address, GENEVE_PORT))
        yield
    ip_batch(f"addr flush dev {wire}", netns=WIRE_NETNS)


def ip_batch(*lines: str, netns: str = "") -> None:
    """Run commands of ip(8) in one process."""
    run(["ip", *(["-n", netns] if netns else []), "-batch", "-"], stdin="".join(f"{line}\n" for line in lines))


def rules() -> str:
    """The rule table as text; `tests/nic/truth.py` parses it."""
    return (_DEBUGFS / "rules").read_text()


def port_counters() -> str:
    """The counters of the ports as text; `tests/nic/truth.py` parses it."""
    return (_DEBUGFS / "ports").read_text()


_FAULTS = {
    "skip": "0",
    "bypass": "N",
    "recount": "N",
    "stale": "N",
    "head_start": "0",
    "coarse": "0",
    "install_ms": "0",
}
"""Parameters of the module that make the NIC fail or its driver lie, and their values without a fault."""
_LIMITS = {
    "max_rules": "4096",
    "max_prio": "65535",
    "buckets": "0",
    "prefix_masks": "N",
    "tcp_flags": "Y",
    "ip_key": "Y",
    "vlan": "Y",
    "xfrm_aware": "Y",
}


def limit(**parameters: object) -> None:
    """Set parameters of the module (`modinfo -p eswitch.ko`). The rules that the NIC has stay, also beyond a limit."""
    for name, value in parameters.items():
        (_PARAMETERS / name).write_text(f"{value}\n")


def unlimit() -> None:
    """Remove all limits and faults."""
    limit(**_LIMITS, **_FAULTS)


def set_faults(faults: Mapping[str, str]) -> None:
    """Set these faults, and end all others."""
    limit(**{**_FAULTS, **faults})


_without_offload: set[str] = set()
"""Ports whose feature was turned off."""


def set_hw_tc_offload(port: str, state: str) -> None:
    """`ethtool -K PORT hw-tc-offload STATE`; state is `on` or `off`."""
    run(["ethtool", "-K", port, "hw-tc-offload", state])
    (_without_offload.add if state == "off" else _without_offload.discard)(port)


def offload_everywhere() -> None:
    """Turn hw-tc-offload of all ports on, as it is in a new module."""
    for port in sorted(_without_offload):
        set_hw_tc_offload(port, "on")
