"""The program: every flow that a balancer wants on its bridge, and what each of them stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xenoovs.compile.assign import ServiceAssignment, SourceRule, assign, assign_near
from xenoovs.compile.ids import service_ids
from xenoovs.compile.installed import installed_assignment
from xenoovs.compile.movement import blocks_by_service
from xenoovs.compile.stages.balance import block_flows
from xenoovs.compile.stages.classify import arp_flows, neighbour_discovery_flows, other_flows, service_flows
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_flow


@dataclass(frozen=True, slots=True)
class BlockFlow:
    """The flow of one block and the backend that it leads to."""

    flow: Flow
    rule: SourceRule
    backend: Backend


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """The flows of one service: `classify` finds its packets, `blocks` split them."""

    service: Service
    service_id: int
    assignment: ServiceAssignment
    classify: tuple[Flow, ...]
    blocks: tuple[BlockFlow, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """All flows of a balancer, no two with one key. `shared`: those that belong to no service."""

    services: tuple[ServiceProgram, ...]
    shared: tuple[Flow, ...]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """In the order of the config."""
        own = (
            flow for service in self.services for flow in (*service.classify, *(block.flow for block in service.blocks))
        )
        return (*self.shared, *own)


def compile_program(balancer: Balancer, *, installed: Iterable[Flow] = ()) -> Program:
    """Balancer to flows. With the flows that a switch has, blocks stay with their backends as far as the weights allow.

    Raises ToleranceUnreachable, BudgetUnreachable, CompileError.
    """
    ids = service_ids(service.claim for service in balancer.services)
    ingress = balancer.uplinks.ingress
    services = tuple(
        _compile_service(service, service_id=ids[service.claim], ingress=ingress) for service in balancer.services
    )
    shared = (*arp_flows(balancer), *neighbour_discovery_flows(balancer), *other_flows(balancer))
    return keep_installed(Program(services, shared), installed)


def keep_installed(program: Program, installed: Iterable[Flow]) -> Program:
    """The program with blocks near those of `installed`; services of which it has no flow stay as they are."""
    blocks = blocks_by_service(installed)
    if not blocks:
        return program
    services = (_keep_blocks(service, blocks.get(service.service_id, [])) for service in program.services)
    return replace(program, services=tuple(services))


def sorted_flows(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """As a person reads them and as packets meet them: by table, then by falling priority, then by text."""
    return tuple(sorted(flows, key=lambda flow: (flow.table, -flow.priority, render_flow(flow))))


def render_program(program: Program) -> str:
    """All flows as text, one a line, in the order of `sorted_flows`."""
    lines = sorted((flow.table, -flow.priority, render_flow(flow)) for flow in program.flows)
    return "".join(f"{line}\n" for _, _, line in lines)


def _compile_service(service: Service, *, service_id: int, ingress: tuple[str, ...]) -> ServiceProgram:
    assignment = assign(service)
    return ServiceProgram(
        service=service,
        service_id=service_id,
        assignment=assignment,
        classify=tuple(service_flows(service, service_id=service_id, ingress=ingress)),
        blocks=_blocks(service, assignment, service_id),
    )


def _keep_blocks(program: ServiceProgram, installed: list[Flow]) -> ServiceProgram:
    if not installed or {block.flow for block in program.blocks} == set(installed):
        return program
    service = program.service
    found = installed_assignment(installed, service.source_bits.positions)
    kept = assign_near(service, found) if found else None
    if kept is None:
        return program
    return replace(program, assignment=kept, blocks=_blocks(service, kept, program.service_id))


def _blocks(service: Service, assignment: ServiceAssignment, service_id: int) -> tuple[BlockFlow, ...]:
    flows = block_flows(service, assignment, service_id=service_id)
    return tuple(BlockFlow(flow, rule, service.backends[rule.owner]) for flow, rule in flows)
