"""Enumerates the paths through a bridge, as a file for the planner to which measured capacities are to be added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xenoovs.paths.plan import PathKind

_RESOURCES = {
    "nic-cores": "the NIC's packet processing, shared by all paths in hardware",
    "pcie-switch": "PCIe to the host and to the Arm cores",
    "arm-cores": "software on the DPU",
}


@dataclass(frozen=True, slots=True)
class BridgePort:
    """A port of a bridge, and what is behind it. `is_offloadable`: the NIC itself can forward to it."""

    name: str
    kind: PathKind
    is_offloadable: bool = True


def paths_file(ports: Iterable[BridgePort]) -> Iterator[str]:
    """Yield the lines of a file with each path from an uplink to another port, in hardware and in software.

    Capacities are left empty: the planner names the line of each that is still to be measured.
    """
    known = sorted(ports, key=lambda port: port.name)
    paths = list(_paths(known))
    used = {resource for _, _, uses in paths for resource in uses}
    yield "# Add the measured capacities, in one unit; latency_us and cpu of a path, if you rank by them."
    yield "# Remove the paths and resources that you do not use."
    yield "version: 1"
    yield "unit: Mpps"
    yield "resources:"
    for name in _RESOURCES:
        if name in used:
            duplex = ", duplex: true" if name == "pcie-switch" else ""
            yield f"  - {{name: {name}, capacity: {duplex}}}  # {_RESOURCES[name]}"
    yield "paths:"
    for name, kind, uses in paths:
        shown = ", ".join(
            f"{{resource: {resource}, direction: in}}" if resource == "pcie-switch" else f"{{resource: {resource}}}"
            for resource in uses
        )
        yield f"  - {{name: {name}, kind: {kind.value}, capacity: , uses: [{shown}]}}"


def _paths(ports: list[BridgePort]) -> Iterator[tuple[str, PathKind, tuple[str, ...]]]:
    """Yield name, kind and resources of each path from an uplink."""
    for uplink in (port for port in ports if port.kind is PathKind.WIRE):
        for port in ports:
            # From wire to wire in both directions; also back to the uplink where there is only one.
            if port is uplink and sum(other.kind is PathKind.WIRE for other in ports) > 1:
                continue
            name = f"{uplink.name}-{port.name}"
            if uplink.is_offloadable and port.is_offloadable:
                pcie = ("pcie-switch",) if port.kind in (PathKind.HOST, PathKind.SOC) else ()
                yield name, port.kind, ("nic-cores", *pcie)
                name += "-software"
            yield name, PathKind.SOFTWARE, ("arm-cores",)
