"""Traffic by the counters of flows: packets and bytes of each backend, and differences between switch and config."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.compile.drains import Draining, Times, drains_of
from xenoovs.compile.encoding import hop_of
from xenoovs.compile.pipeline import TO_DRAIN
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.compile.read import is_in_drain_table, is_learned
from xenoovs.model.balancer import Backend
from xenoovs.openflow.flow import FlowKey, ObservedFlow, service_of


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
    """All backends in the order of the config. `missing`: flows not there as wanted; `foreign`: ours, but unasked.

    drains: those that go on.
    """

    backends: tuple[BackendTraffic, ...]
    missing: int
    foreign: int
    drains: tuple[Draining, ...] = ()

    @property
    def is_as_configured(self) -> bool:
        return self.missing == 0 and self.foreign == 0


def traffic_report(program: Program, observed: Iterable[ObservedFlow]) -> TrafficReport:
    """Compare the flows of the config with those of the switch."""
    each_seen = tuple(observed)
    seen = {flow.flow.key: flow for flow in each_seen}
    wanted = {flow.key: flow for flow in program.flows}
    missing = missing_flows(program, each_seen)
    foreign = sum(key not in wanted and not is_learned(each.flow) for key, each in seen.items())
    rows = tuple(row for service in program.services for row in _service_rows(service, seen))
    return TrafficReport(rows, missing, foreign, drains_of(program, each_seen, Times()))


def missing_flows(program: Program, observed: Iterable[ObservedFlow]) -> int:
    """Return how many flows of the program are missing on the switch or have other actions there."""
    seen = {each.flow.key: each.flow for each in observed}
    return sum(seen.get(flow.key) != flow for flow in program.flows)


def _service_rows(service: ServiceProgram, seen: dict[FlowKey, ObservedFlow]) -> list[BackendTraffic]:
    installed = defaultdict[Backend, list[ObservedFlow]](list)
    for block in service.blocks:
        found = seen.get(block.flow.key)
        if found is not None and found.flow == block.flow:
            installed[block.backend].append(found)
    counted = _counted(service, seen, installed)
    weight = sum(service.service.weights, Fraction(0))
    packets = sum(flow.packets for flows in counted.values() for flow in flows)
    return [
        BackendTraffic(
            service=service.service.name,
            backend=backend.name,
            wanted=backend.weight / weight,
            space=share,
            blocks=len(installed[backend]),
            packets=sum(flow.packets for flow in counted[backend]),
            bytes=sum(flow.bytes for flow in counted[backend]),
            seen=Fraction(sum(flow.packets for flow in counted[backend]), packets) if packets else None,
        )
        for backend, share in zip(service.service.backends, service.shares, strict=True)
    ]


def _counted(
    service: ServiceProgram, seen: dict[FlowKey, ObservedFlow], installed: Mapping[Backend, list[ObservedFlow]]
) -> Mapping[Backend, list[ObservedFlow]]:
    """Return the flows that count each backend's traffic; for a moving block the flows of its connections."""
    found = defaultdict[Backend, list[ObservedFlow]](list)
    for backend, flows in installed.items():
        found[backend] += [each for each in flows if each.flow.actions != TO_DRAIN]
    if service.moves:
        hops = {backend.next_hop: backend for backend in service.service.backends}
        for each in seen.values():
            is_mine = service_of(each.flow.cookie) == service.service_id and is_in_drain_table(each.flow)
            if is_mine and (hop := hop_of(each.flow.actions)) in hops:
                found[hops[hop]].append(each)
    return found
