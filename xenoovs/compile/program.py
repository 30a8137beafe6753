"""The program: every flow that a balancer wants on its bridge, and what each of them stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.compile.assign import BlockRule, ServiceAssignment, assign, assign_near, assign_without, parts_held
from xenoovs.compile.ids import service_ids
from xenoovs.compile.installed import installed_assignment
from xenoovs.compile.movement import blocks_by_service, pieces, planned_by_service
from xenoovs.compile.stages.balance import block_flows, planned_flows
from xenoovs.compile.stages.classify import arp_flows, neighbour_discovery_flows, other_flows, service_flows
from xenoovs.compile.stages.pin import Pin, pin_flows
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_flow

Outages = Mapping[str, frozenset[str]]
"""The names of the backends that get no clients, by the name of their service."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The flows of one service on a switch: those that balance, and those that remember blocks of backends out."""

    blocks: tuple[Flow, ...]
    planned: tuple[Flow, ...]

    def out_of(self, service: Service) -> frozenset[int]:
        """Indices of the backends that these flows remember to be out."""
        hops = {piece.hop for piece in pieces(self.planned)}
        return frozenset(
            index for index, backend in enumerate(service.backends) if backend.weight and backend.next_hop in hops
        )


@dataclass(frozen=True, slots=True)
class BlockFlow:
    """The flow of one block and the backend that it leads to."""

    flow: Flow
    rule: BlockRule
    backend: Backend


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """The flows of one service: `classify` finds its packets, `blocks` split them.

    out:     indices of the backends that are out.
    planned: what remembers the blocks that they, and those that start slowly, get back; no packet meets these flows.
    pins:    which of the blocks are on their way (`xenoovs.compile.drain`).
    """

    service: Service
    service_id: int
    assignment: ServiceAssignment
    classify: tuple[Flow, ...]
    blocks: tuple[BlockFlow, ...]
    out: frozenset[int] = frozenset()
    planned: tuple[Flow, ...] = ()
    pins: tuple[Pin, ...] = ()

    @property
    def flows(self) -> tuple[Flow, ...]:
        return (*self.classify, *(block.flow for block in self.blocks), *self.planned, *self.pin_flows)

    @property
    def pin_flows(self) -> tuple[Flow, ...]:
        """The flows of blocks that are on their way, and what remembers where they go."""
        pins = (pin_flows(self.service, pin, service_id=self.service_id) for pin in self.pins)
        return tuple(flow for flows in pins for flow in flows)


@dataclass(frozen=True, slots=True)
class Program:
    """All flows of a balancer, no two with one key. `shared`: those that belong to no service."""

    services: tuple[ServiceProgram, ...]
    shared: tuple[Flow, ...]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """In the order of the config."""
        return (*self.shared, *(flow for service in self.services for flow in service.flows))


def compile_program(balancer: Balancer, *, installed: Iterable[Flow] = (), out: Outages | None = None) -> Program:
    """Balancer to flows. With the flows that a switch has, blocks stay with their backends as far as the weights allow.

    `out`: as in `keep_installed`.

    Raises ToleranceUnreachable, BudgetUnreachable, CompileError.
    """
    ids = service_ids(service.claim for service in balancer.services)
    ingress = balancer.uplinks.ingress
    services = tuple(
        _compile_service(service, service_id=ids[service.claim], ingress=ingress) for service in balancer.services
    )
    shared = (*arp_flows(balancer), *neighbour_discovery_flows(balancer), *other_flows(balancer))
    return keep_installed(Program(services, shared), installed, out=out)


def keep_installed(program: Program, installed: Iterable[Flow], *, out: Outages | None = None) -> Program:
    """The program with blocks near those of `installed`; services of which it has no flow stay as they are.

    `out`: which backends get no clients, and all others do; None: those that the switch remembers to be out.
    """
    flows = tuple(installed)
    blocks, planned = blocks_by_service(flows), planned_by_service(flows)
    if not blocks and not planned and not out and not _is_easing(program):
        return program
    services = (
        _keep_blocks(
            service,
            Installed(tuple(blocks.get(service.service_id, ())), tuple(planned.get(service.service_id, ()))),
            None if out is None else out.get(service.service.name, frozenset()),
        )
        for service in program.services
    )
    return replace(program, services=tuple(services))


def sorted_flows(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """As a person reads them and as packets meet them: by table, then by falling priority, then by text."""
    return tuple(sorted(flows, key=lambda flow: (flow.table, -flow.priority, render_flow(flow))))


def _compile_service(service: Service, *, service_id: int, ingress: tuple[str, ...]) -> ServiceProgram:
    assignment = assign(service)
    return ServiceProgram(
        service=service,
        service_id=service_id,
        assignment=assignment,
        classify=tuple(service_flows(service, service_id=service_id, ingress=ingress)),
        blocks=_blocks(service, assignment, service_id),
    )


def _keep_blocks(program: ServiceProgram, installed: Installed, names: frozenset[str] | None) -> ServiceProgram:
    service = program.service
    waiting = installed.out_of(service) if names is None else _indices(service, names)
    is_as_compiled = {block.flow for block in program.blocks} == set(installed.blocks) and not installed.planned
    plan = program.assignment if is_as_compiled else _plan(program, installed)
    in_use = installed_assignment(installed.blocks, service.key)
    parts = _ramps(service, but=waiting)
    if names is None and in_use is not None:
        parts |= parts_held(service, plan, in_use, out=waiting)
    live = assign_without(service, plan, live=in_use, out=waiting - parts.keys(), parts=parts)
    if live is program.assignment:
        return program
    service_id = program.service_id
    planned = tuple(planned_flows(service, plan, service_id=service_id, out=waiting | parts.keys()))
    blocks = _blocks(service, live, service_id)
    return replace(program, assignment=live, blocks=blocks, out=waiting - parts.keys(), planned=planned)


def _plan(program: ServiceProgram, installed: Installed) -> ServiceAssignment:
    """The assignment for all backends."""
    service = program.service
    found = installed_assignment(installed.blocks, service.key, planned=installed.planned)
    kept = assign_near(service, found) if found else None
    return kept or program.assignment


def _is_easing(program: Program) -> bool:
    return any(backend.ramp < 1 for service in program.services for backend in service.service.backends)


def _ramps(service: Service, *, but: frozenset[int]) -> dict[int, Fraction]:
    """The parts of backends that start slowly, by index; none when nobody could have the rest. `but`: who is out."""
    serving = [i for i, backend in enumerate(service.backends) if backend.weight and i not in but]
    parts = {i: service.backends[i].ramp for i in serving if service.backends[i].ramp < 1}
    return parts if len(parts) < len(serving) else {}


def _indices(service: Service, names: frozenset[str]) -> frozenset[int]:
    return frozenset(
        index for index, backend in enumerate(service.backends) if backend.weight and backend.name in names
    )


def _blocks(service: Service, assignment: ServiceAssignment, service_id: int) -> tuple[BlockFlow, ...]:
    flows = block_flows(service, assignment, service_id=service_id)
    return tuple(BlockFlow(flow, rule, service.backends[rule.owner]) for flow, rule in flows)
