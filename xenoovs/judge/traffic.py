"""Traffic by the counters of flows: packets and bytes of each backend, and differences between switch and config."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from xenoovs.compile.drain_progress import Draining, drains_of
from xenoovs.compile.encoding import hop_of
from xenoovs.compile.pipeline import TO_DRAIN
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.compile.read import is_in_drain_table, is_learned
from xenoovs.dataclass import dataclass
from xenoovs.model.balancer import Backend
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.flow import Flow, FlowKey, ObservedFlow, service_of


@dataclass(frozen=True, slots=True)
class BackendTraffic:
    """One backend of one service. Shares are between 0 and 1; `share`: of the address space. `blocks`: number of blocks
    of the config that are installed. `bytes`: with the Ethernet header, as OpenFlow counts, since the flows were
    installed. `traffic_share`: share of the service's packets; None before the first one. `rate_pps`: packets per
    second; None after one read only, or if the counters were reset."""

    service: str
    backend: str
    target_share: Fraction
    share: Fraction
    blocks: int
    packets: int
    bytes: int
    traffic_share: Fraction | None
    rate_pps: float | None = None
    rate_bps: float | None = None


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """Traffic. `missing`: our flows that the switch lacks or has changed. `foreign`: those that the config lacks."""

    backends: tuple[BackendTraffic, ...]
    missing: int
    foreign: int
    drains: tuple[Draining, ...] = ()

    @property
    def is_as_configured(self) -> bool:
        return self.missing == 0 and self.foreign == 0


def traffic_report(program: Program, observed: Iterable[ObservedFlow]) -> TrafficReport:
    """Compare the flows of the config with those of the switch."""
    flows = tuple(observed)
    by_key = {flow.flow.key: flow for flow in flows}
    desired = {flow.key for flow in program.flows}
    foreign = sum(key not in desired and not is_learned(each.flow) for key, each in by_key.items())
    rows = tuple(row for service in program.services for row in _service_rows(service, by_key))
    return TrafficReport(rows, missing_flows(program, flows), foreign, drains_of(program, flows))


def missing_flows(program: Program, observed: Iterable[ObservedFlow]) -> int:
    """Return how many flows of the program are missing on the switch or have other actions there."""
    by_key = {each.flow.key: each.flow for each in observed}
    return sum(by_key.get(flow.key) != flow for flow in program.flows)


def _service_rows(service: ServiceProgram, observed: Mapping[FlowKey, ObservedFlow]) -> list[BackendTraffic]:
    installed = defaultdict[Backend, list[ObservedFlow]](list)
    for block in service.blocks:
        found = observed.get(block.flow.key)
        # The first next hop of a group identifies the backend: ports of the others may be gone.
        if found is not None and (found.flow == block.flow or _first(found.flow) == _first(block.flow) is not None):
            installed[block.backend].append(found)
    counted = _counted(service, observed, installed)
    packets = sum(flow.packets for flows in counted.values() for flow in flows)
    backends = service.service.backends
    return [
        BackendTraffic(
            service=service.service.name,
            backend=backend.name,
            target_share=target,
            share=share,
            blocks=len(installed[backend]),
            packets=sum(flow.packets for flow in counted[backend]),
            bytes=sum(flow.bytes for flow in counted[backend]),
            traffic_share=Fraction(sum(flow.packets for flow in counted[backend]), packets) if packets else None,
        )
        for backend, target, share in zip(backends, service.service.target_shares, service.shares, strict=True)
    ]


def _first(flow: Flow) -> NextHop | None:
    return None if flow.failover is None else hop_of(flow.failover.buckets[0])


def _counted(
    service: ServiceProgram, observed: Mapping[FlowKey, ObservedFlow], installed: Mapping[Backend, list[ObservedFlow]]
) -> Mapping[Backend, list[ObservedFlow]]:
    """Return the flows that count each backend's traffic; for a moving block the flows of its connections."""
    found = defaultdict[Backend, list[ObservedFlow]](list)
    for backend, flows in installed.items():
        found[backend] += [each for each in flows if each.flow.actions != TO_DRAIN]
    if service.moves:
        hops = {backend.next_hop: backend for backend in service.service.backends}
        for each in observed.values():
            is_mine = service_of(each.flow.cookie) == service.service_id and is_in_drain_table(each.flow)
            if is_mine and (hop := hop_of(each.flow.actions)) in hops:
                found[hops[hop]].append(each)
    return found
