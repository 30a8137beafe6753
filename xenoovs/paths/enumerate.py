"""Enumerates the paths through a bridge, as a file for the planner to which measured capacities are to be added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.dataclass import dataclass
from xenoovs.paths.plan import PathKind

DUPLEX = "pcie-switch"
"""The resource whose two directions have a capacity each."""

_RESOURCES = {
    "nic-cores": "the NIC's packet processing, shared by all paths in hardware",
    DUPLEX: "PCIe to the host and to the Arm cores",
    "arm-cores": "software on the DPU",
}


@dataclass(frozen=True, slots=True)
class BridgePort:
    """A port of a bridge, and what is behind it. `is_offloadable`: the NIC itself can forward to it."""

    name: str
    kind: PathKind
    is_offloadable: bool = True


@dataclass(frozen=True, slots=True)
class ListedPath:
    """A path from an uplink of a bridge to another port of it. `resources`: those that it uses, by name."""

    name: str
    kind: PathKind
    resources: tuple[str, ...]


def listed_paths(bridges: Iterable[Iterable[BridgePort]]) -> tuple[ListedPath, ...]:
    """Return each path from an uplink to another port of the same bridge, in hardware and in software."""
    found = list[ListedPath]()
    for ports in bridges:
        found += _paths(sorted(ports, key=lambda port: port.name))
    return tuple(found)


def paths_file(bridges: Iterable[Iterable[BridgePort]]) -> Iterator[str]:
    """Yield the lines of a file of paths through bridges. Capacities are empty: the planner names what to measure."""
    paths = listed_paths(bridges)
    yield "# Add the measured capacities, in one unit; latency_us and cpu of a path, if you rank by them."
    yield "# Remove the paths and resources that you do not use."
    yield "version: 1"
    yield "unit: Mpps"
    yield "resources:"
    for name in used_resources(paths):
        duplex = ", duplex: true" if name == DUPLEX else ""
        yield f"  - {{name: {name}, capacity: {duplex}}}  # {_RESOURCES[name]}"
    yield "paths:"
    for path in paths:
        shown = ", ".join(
            f"{{resource: {resource}, direction: in}}" if resource == DUPLEX else f"{{resource: {resource}}}"
            for resource in path.resources
        )
        yield f"  - {{name: {path.name}, kind: {path.kind.value}, capacity: , uses: [{shown}]}}"


def used_resources(paths: Iterable[ListedPath]) -> tuple[str, ...]:
    """Return the resources that the paths use, in the order of a packet's way."""
    used = {resource for path in paths for resource in path.resources}
    return tuple(name for name in _RESOURCES if name in used)


def _paths(ports: list[BridgePort]) -> Iterator[ListedPath]:
    uplinks = [port for port in ports if port.kind is PathKind.WIRE]
    for uplink in uplinks:
        for port in ports:
            # Back to the wire only where a NIC has one uplink: a port of a lab has no machine behind it twice.
            if port is uplink and (len(uplinks) > 1 or not uplink.is_offloadable):
                continue
            name = f"{uplink.name}-{port.name}"
            if uplink.is_offloadable and port.is_offloadable:
                pcie = (DUPLEX,) if port.kind in (PathKind.HOST, PathKind.SOC) else ()
                yield ListedPath(name, port.kind, ("nic-cores", *pcie))
                name += "-software"
            yield ListedPath(name, PathKind.SOFTWARE, ("arm-cores",))
