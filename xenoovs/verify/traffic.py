"""What the counters of the flows say: packets and bytes of each backend, and where switch and config differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.model.backend import Backend
from xenoovs.openflow.flow import FlowKey, ObservedFlow


@dataclass(frozen=True, slots=True)
class BackendTraffic:
    """One backend of one service. Shares are 0..1; `seen` is None before the first packet of the service.

    wanted: by weight. space: of the address space. blocks: those of the config that are installed with this backend.
    packets, bytes: since the flows were installed, as OpenFlow counts them (with the Ethernet header).
    """

    service: str
    backend: str
    wanted: Fraction
    space: Fraction
    blocks: int
    packets: int
    bytes: int
    seen: Fraction | None


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """All backends in the order of the config. `missing`: flows not there as wanted; `foreign`: ours, but unasked."""

    backends: tuple[BackendTraffic, ...]
    missing: int
    foreign: int

    @property
    def is_as_configured(self) -> bool:
        return self.missing == 0 and self.foreign == 0


def traffic_report(program: Program, observed: Iterable[ObservedFlow]) -> TrafficReport:
    """Join the flows of the config with those of the switch."""
    seen = {flow.flow.key: flow for flow in observed}
    wanted = {flow.key: flow for flow in program.flows}
    missing = sum(key not in seen or seen[key].flow != flow for key, flow in wanted.items())
    foreign = sum(key not in wanted for key in seen)
    rows = tuple(row for service in program.services for row in _service_rows(service, seen))
    return TrafficReport(rows, missing, foreign)


def _service_rows(service: ServiceProgram, seen: dict[FlowKey, ObservedFlow]) -> list[BackendTraffic]:
    installed = defaultdict[Backend, list[ObservedFlow]](list)
    for block in service.blocks:
        found = seen.get(block.flow.key)
        if found is not None and found.flow == block.flow:
            installed[block.backend].append(found)
    weight = sum(service.service.weights, Fraction(0))
    packets = sum(flow.packets for flows in installed.values() for flow in flows)
    return [
        BackendTraffic(
            service=service.service.name,
            backend=backend.name,
            wanted=backend.weight / weight,
            space=share,
            blocks=len(installed[backend]),
            packets=sum(flow.packets for flow in installed[backend]),
            bytes=sum(flow.bytes for flow in installed[backend]),
            seen=Fraction(sum(flow.packets for flow in installed[backend]), packets) if packets else None,
        )
        for backend, share in zip(service.service.backends, service.assignment.shares, strict=True)
    ]
