"""Backends that have another MAC or port than in the last round: their clients stay with them. Pure.

Flows know a backend by its MAC and port alone. Where two backends of one size change theirs between two rounds, nobody
could tell from the flows which blocks belong to whom: the last round knows it by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from xenoovs.compile.ids import service_ids
from xenoovs.compile.next_hop import hop_of, redirect
from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.compile.stages.balance import block_flows
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import NextHop, mac_of, with_mac
from xenoovs.model.service import Service
from xenoovs.openflow.cookie import service_of
from xenoovs.openflow.flow import Flow


@dataclass(frozen=True, slots=True)
class Renames:
    """By service id: next hops that backends had, and those that they have now; next hops that nobody has any more."""

    hops: Mapping[int, Mapping[NextHop, NextHop]]
    left: Mapping[int, frozenset[NextHop]]

    def of_flows(self, flows: Iterable[Flow]) -> Iterator[Flow]:
        """Flows as if the backends had had their new next hops all the time."""
        for flow in flows:
            hop = hop_of(flow.actions)
            new = None if hop is None else self.hops.get(service_of(flow.cookie), {}).get(hop)
            yield flow if new is None else replace(flow, actions=redirect(flow.actions, new))

    def is_left(self, flow: Flow) -> bool:
        """Whether a flow leads to a next hop that the backend has no longer."""
        return hop_of(flow.actions) in self.left.get(service_of(flow.cookie), ())


def renames(before: Balancer, after: Balancer) -> Renames:
    """Of backends that have the same name in both, in a service that claims the same packets.

    A backend that is found by its address is what answers there. One with a MAC of the config is known by that: names
    that are exchanged in the config move nobody, and only a place that is gone can have become one that is new.
    """
    if before == after:
        return Renames({}, {})
    ids, old = service_ids(s.claim for s in after.services), {s.claim: s for s in before.services}
    pairs = [(ids[s.claim], old[s.claim], s) for s in after.services if s.claim in old]
    hops = {number: _renames_of(one, other) for number, one, other in pairs}
    left = {n: frozenset(hops[n]) - {b.next_hop for b in service.backends} for n, _, service in pairs}
    return Renames(hops, left)


def moved_to(program: Program, before: Balancer, after: Balancer) -> Program | None:
    """The program of `before` for backends that have other MACs, every block as it is; None: more than MACs differs."""
    if _with_macs_of(after, before) != before:
        return None
    names = renames(before, after)
    services = zip(program.services, after.services, strict=True)
    return replace(program, services=tuple(_moved_to(old, new, names) for old, new in services))


def _moved_to(program: ServiceProgram, service: Service, names: Renames) -> ServiceProgram:
    flows = block_flows(service, program.assignment, service_id=program.service_id)
    blocks = tuple(BlockFlow(flow, rule, service.backends[rule.owner]) for flow, rule in flows)
    return replace(program, service=service, blocks=blocks, planned=tuple(names.of_flows(program.planned)))


def _with_macs_of(balancer: Balancer, other: Balancer) -> Balancer:
    """`balancer` with the MACs that backends found by their addresses have in `other`, one by one in their order."""
    services = tuple(
        replace(s, backends=tuple(map(_with_mac_of, s.backends, o.backends))) if _is_alike(s, o) else s
        for s, o in zip(balancer.services, other.services, strict=False)
    )
    return replace(balancer, services=(*services, *balancer.services[len(services) :]))


def _is_alike(service: Service, other: Service) -> bool:
    return len(service.backends) == len(other.backends)


def _with_mac_of(backend: Backend, other: Backend) -> Backend:
    return replace(backend, next_hop=with_mac(backend.next_hop, mac_of(other.next_hop))) if backend.follows else backend


def _renames_of(before: Service, after: Service) -> dict[NextHop, NextHop]:
    old, new = ({b.next_hop for b in service.backends} for service in (before, after))
    had = {backend.name: backend for backend in before.backends if backend.weight}
    found = {}
    for backend in after.backends:
        if (was := had.get(backend.name)) is None or was.next_hop == backend.next_hop:
            continue
        is_found = was.follows and backend.follows and was.address == backend.address
        if is_found or (was.next_hop not in new and backend.next_hop not in old):
            found[was.next_hop] = backend.next_hop
    return found
