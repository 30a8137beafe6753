"""`xenoovs measure paths --list`: a file with the paths through the bridges of this host, to fill in."""

from __future__ import annotations

from collections.abc import Collection

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Device
from xenoovs.errors import MeasureError, first_names
from xenoovs.measure.bed_paths import kind_of
from xenoovs.paths.enumerate import DUPLEX, BridgePort, ListedPath, listed_paths, paths_file, used_resources
from xenoovs.paths.plan import PathKind
from xenoovs.switch.host_facts import check_reachable, gather
from xenoovs.terminal.options import OutputFormat
from xenoovs.terminal.output import echo
from xenoovs.terminal.reach import connect


def list_paths(db: str | None, uplinks: Collection[str], output: OutputFormat) -> None:
    """Print the file of the paths of a host. Raises MeasureError, SwitchError."""
    bridges = _bridges(db, uplinks)
    output.show(lambda: _document(listed_paths(bridges)), lambda: echo("\n".join(paths_file(bridges))))


def _bridges(db: str | None, uplinks: Collection[str]) -> list[list[BridgePort]]:
    """Return the ports of each bridge."""
    endpoint = connect(db, None).endpoint
    check_reachable(endpoint)
    facts = gather(endpoint)
    if isinstance(facts.database, Unknown):
        raise MeasureError(f"the ports of the bridges cannot be listed: {facts.database.reason}")
    if isinstance(facts.devices, Unknown):
        raise MeasureError(f"the ports of the bridges cannot be listed: {facts.devices.reason}")
    # A bridge has a port of its own name, behind which is this host.
    names = [[port.name for port in bridge.ports if port.name != bridge.name] for bridge in facts.database.bridges]
    every = [name for ports in names for name in ports]
    if unknown := sorted(set(uplinks) - set(every)):
        raise MeasureError(f"no bridge has a port {unknown[0]}; there are {first_names(every)}")
    devices = facts.devices
    bridges = [[_bridge_port(devices[name], uplinks) for name in ports if name in devices] for ports in names]
    if not any(port.kind is PathKind.WIRE for ports in bridges for port in ports):
        raise MeasureError(f"no port of a bridge is an uplink of a NIC; name one with --uplink: {first_names(every)}")
    return bridges


def _bridge_port(device: Device, uplinks: Collection[str]) -> BridgePort:
    """Return what is behind a port; without an eSwitch only software serves it."""
    if device.is_uplink or device.name in uplinks:
        return BridgePort(device.name, PathKind.WIRE, is_offloadable=device.is_uplink)
    kind = kind_of(device)
    return BridgePort(device.name, kind or PathKind.SOFTWARE, is_offloadable=kind is not None)


def _document(paths: tuple[ListedPath, ...]) -> dict[str, object]:
    """Return the same file as JSON: `null` is to be filled in."""
    return {
        "version": 1,
        "unit": "Mpps",
        "resources": [
            {"name": name, "capacity": None, **({"duplex": True} if name == DUPLEX else {})}
            for name in used_resources(paths)
        ],
        "paths": [
            {
                "name": path.name,
                "kind": path.kind.value,
                "capacity": None,
                "uses": [
                    {"resource": resource, **({"direction": "in"} if resource == DUPLEX else {})}
                    for resource in path.resources
                ],
            }
            for path in paths
        ],
    }
