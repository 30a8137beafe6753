"""Gathers the facts of a host. A fact that cannot be read is Unknown, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import W_OK, access

from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import Device, Eswitch, Feature, HostFacts
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.errors import SwitchError, SwitchUnreachable
from xenoovs.switch.devices import (
    HW_TC_OFFLOAD,
    LINKS,
    NEIGHBOURS,
    PORTS,
    QDISCS,
    device_pci,
    parse_feature,
    parse_ingress,
    parse_links,
    parse_neighbours,
    parse_subfunctions,
    read_eswitch,
    read_kernel,
)
from xenoovs.switch.endpoint import Endpoint, ask_database, ask_vswitchd
from xenoovs.switch.netns import Netns
from xenoovs.switch.ovsdb import read_database
from xenoovs.switch.process import missing_programs
from xenoovs.switch.tape import is_replaying
from xenoovs.switch.tc import read_rules
from xenoovs.switch.undo_journal import OFFLOAD, TRIAL, VLOG, UndoJournal
from xenoovs.switch.vswitchd import ELSEWHERE, netns_of, read_daemon, read_learned

_PROGRAMS = ("ovs-vswitchd", "ovs-vsctl")
_LEFTOVERS = {
    VLOG: "log levels of ovs-vswitchd, raised by a `why` that was killed",
    TRIAL: "a trial rule, added by a `why --probe-driver` that was killed",
    OFFLOAD: "other_config:hw-offload, changed by a `doctor --set` that was killed before its end",
}


def gather(endpoint: Endpoint, *, modules: Iterable[str] = ()) -> HostFacts:
    """Return all facts that can be read now. `modules`: modules of the kernel to check. Never raises."""
    # First, with a short time limit: every further request to a process that hangs would wait for a minute.
    silent = ask_vswitchd(endpoint)
    database, place = ask_database(endpoint) or _read_database(endpoint), netns_of(endpoint)
    daemon = silent or read_daemon(endpoint)
    facts = HostFacts(
        is_local=not isinstance(place, Unknown),
        database=database,
        daemon=daemon,
        devices=ELSEWHERE,
        kernel=ELSEWHERE,
        neighbours=ELSEWHERE,
        learned={} if isinstance(database, Unknown) or silent else read_learned(endpoint, database),
    )
    if isinstance(place, Unknown):
        return facts
    leftovers = (text for kind, text in _LEFTOVERS.items() if UndoJournal(endpoint.local_rundir, kind).is_abandoned)
    devices = read_devices(place, _ports(database))
    if silent is None:
        devices = _with_rules(endpoint, place, devices)
    return replace(
        facts,
        leftovers=tuple(leftovers),
        devices=devices,
        eswitches=() if isinstance(devices, Unknown) else _eswitches(place, devices.values(), _ports(database)),
        kernel=read_kernel(modules),
        neighbours=place.read(NEIGHBOURS, parse_neighbours),
    )


def check_reachable(endpoint: Endpoint) -> None:
    """Raise SwitchError if no fact can be read: no Open vSwitch, no permission, an unreachable remote one."""
    socket = None if endpoint.rundir is None else endpoint.rundir / "db.sock"
    if socket is None or endpoint.is_split or is_replaying():
        read_database(endpoint)
    elif not socket.exists() and len(missing_programs(_PROGRAMS)) == len(_PROGRAMS):
        raise SwitchError(
            f"there is no Open vSwitch on this host: neither its programs nor a database at {socket}; install it, on "
            "Debian with `apt-get install openvswitch-switch`, or name another with --db"
        )
    elif socket.exists() and not access(socket, W_OK):
        raise SwitchUnreachable(target=str(socket), reason="permission denied; run as root, e.g. with sudo")


def _read_database(endpoint: Endpoint) -> Fact[Database]:
    try:
        return read_database(endpoint)
    except SwitchError as error:
        return Unknown(str(error))


def read_devices(place: Netns, ports: Iterable[str]) -> Fact[Mapping[str, Device]]:
    """Return all devices by name, and for `ports` the facts of ethtool(8) and tc(8)."""
    found = place.read(LINKS, parse_links)
    if isinstance(found, Unknown):
        return found
    ingress = place.read(QDISCS, parse_ingress)
    functions = place.read(PORTS, parse_subfunctions)
    behind = {} if isinstance(functions, Unknown) else functions
    # Tunnels of one type share a device, which has another name than their ports.
    names = (*ports, *(name for name in found if is_tunnel_device(name)))
    more = (
        replace(_more(place, found[name], ingress), subfunction=behind.get(name))
        for name in dict.fromkeys(names)
        if name in found
    )
    return found | {device.name: device for device in more}


def _with_rules(endpoint: Endpoint, place: Netns, devices: Fact[Mapping[str, Device]]) -> Fact[Mapping[str, Device]]:
    if isinstance(devices, Unknown):
        return devices
    rules = read_rules(place, endpoint, [device.name for device in devices.values() if device.ingress is True])
    return {name: replace(device, rules=rules.get(name, device.rules)) for name, device in devices.items()}


def _more(place: Netns, device: Device, ingress: Fact[frozenset[str]]) -> Device:
    asked = place.read(("ethtool", "-k", device.name), _feature)
    more = replace(
        device, hw_tc_offload=asked, ingress=ingress if isinstance(ingress, Unknown) else device.name in ingress
    )
    if place.netns is not None:
        return more
    # Linux before 5.14 does not report it to ip(8); the files show the namespace of this process alone.
    return replace(more, pci=device.pci or device_pci(device.name))


def _feature(text: str) -> Fact[Feature]:
    return parse_feature(text, HW_TC_OFFLOAD) or Unknown(f"this kernel knows no {HW_TC_OFFLOAD}")


def _eswitches(place: Netns, devices: Iterable[Device], ports: Iterable[str]) -> tuple[Eswitch, ...]:
    names = frozenset(ports)
    functions = {device.pci for device in devices if device.name in names and device.pci is not None}
    return tuple(read_eswitch(place, pci) for pci in sorted(functions))


def _ports(database: Fact[Database]) -> tuple[str, ...]:
    """Return the names of all ports, so that no other names are asked for."""
    if isinstance(database, Unknown):
        return ()
    return tuple(port.name for bridge in database.bridges for port in bridge.ports)
