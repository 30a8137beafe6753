"""The program: every flow that a balancer wants on its bridge, and what each of them stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    blocks = blocks_by_service(installed)
    compiled = (_Compiler(balancer.uplinks.ingress, service, ids[service.claim]) for service in balancer.services)
    services = tuple(compiler.near(blocks.get(compiler.service_id, [])) for compiler in compiled)
    return Program(services, (*arp_flows(balancer), *neighbour_discovery_flows(balancer), *other_flows(balancer)))


def sorted_flows(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """As a person reads them and as packets meet them: by table, then by falling priority, then by text."""
    return tuple(sorted(flows, key=lambda flow: (flow.table, -flow.priority, render_flow(flow))))


def render_program(program: Program) -> str:
    """All flows as text, one a line, in the order of `sorted_flows`."""
    lines = sorted((flow.table, -flow.priority, render_flow(flow)) for flow in program.flows)
    return "".join(f"{line}\n" for _, _, line in lines)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Compiles one service."""

    ingress: tuple[str, ...]
    service: Service
    service_id: int

    def near(self, installed: list[Flow]) -> ServiceProgram:
        """Near what is installed; where that is nothing, or nothing of use, the fewest blocks."""
        fresh = self._with(assign(self.service))
        if not installed or {block.flow for block in fresh.blocks} == set(installed):
            return fresh
        found = installed_assignment(installed, self.service.source_bits.positions)
        kept = assign_near(self.service, found) if found else None
        return self._with(kept) if kept else fresh

    def _with(self, assignment: ServiceAssignment) -> ServiceProgram:
        flows = block_flows(self.service, assignment, service_id=self.service_id)
        return ServiceProgram(
            service=self.service,
            service_id=self.service_id,
            assignment=assignment,
            classify=tuple(service_flows(self.service, service_id=self.service_id, ingress=self.ingress)),
            blocks=tuple(BlockFlow(flow, rule, self.service.backends[rule.owner]) for flow, rule in flows),
        )
