"""The program: every flow that a decision needs on its bridge, and what each of them stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.compile.key import BlockRule, rule_of
from xenoovs.compile.next_hop import deliver, output_port
from xenoovs.compile.pipeline import TO_PIN, Stage
from xenoovs.compile.stages.balance import BlockActions, block_flows
from xenoovs.compile.stages.classify import arp_flows, neighbour_discovery_flows, other_flows, service_flows
from xenoovs.compile.stages.pin import Pin, pin_flows
from xenoovs.decision.blocks import Owner
from xenoovs.decision.decision import Decision, ServiceDecision
from xenoovs.decision.owners import NextHops, next_hop_of, next_hops
from xenoovs.decision.transition import Move, Phase, Transition, split
from xenoovs.errors import CompileError
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.ids import service_ids
from xenoovs.model.next_hop import NextHop
from xenoovs.model.service import Service
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_flow


@dataclass(frozen=True, slots=True)
class BlockFlow:
    """The flow of one block and the backend that owns it. `move`: None unless the block is on its way there."""

    flow: Flow
    rule: BlockRule
    backend: Backend
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """The flows of one service.

    Attributes:
        decision: What the flows encode; `moves`: blocks on their way.
        classify: Flows that find the packets of the service.
        blocks: Flows that split them.
        planned: Memory of the home blocks of backends that do not serve all of theirs; no packet meets these flows.
        pins: Flows for packets of moving blocks, and the memory of where those blocks go.
    """

    service: Service
    service_id: int
    decision: ServiceDecision
    moves: tuple[Move, ...]
    classify: tuple[Flow, ...]
    blocks: tuple[BlockFlow, ...]
    planned: tuple[Flow, ...] = ()
    pins: tuple[Flow, ...] = ()

    @property
    def flows(self) -> tuple[Flow, ...]:
        return (*self.classify, *(block.flow for block in self.blocks), *self.planned, *self.pins)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Each backend's share of the clients, in the order of the config."""
        shares = self.decision.active.shares()
        return tuple(shares.get(backend.name, Fraction(0)) for backend in self.service.backends)

    def hop(self, owner: str) -> NextHop:
        """Return the next hop of an owner of blocks. Raises CompileError for a name that the config lacks."""
        return _hop(self.service, owner, next_hops(self.service))


@dataclass(frozen=True, slots=True)
class Program:
    """All flows of a decision, no two with one key. `shared`: those that belong to no service."""

    services: tuple[ServiceProgram, ...]
    shared: tuple[Flow, ...]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """In the order of the config."""
        return (*self.shared, *(flow for service in self.services for flow in service.flows))

    @property
    def decision(self) -> Decision:
        return Decision.of({made.service_id: made.decision for made in self.services})


def compile_program(
    balancer: Balancer,
    decision: Decision,
    transition: Transition | None = None,
    *,
    ofports: Mapping[str, int] | None = None,
    before: Program | None = None,
) -> Program:
    """Return the flows that encode a decision and a transition on the bridge of a config.

    Args:
        balancer: The next hops of the backends, and what else the bridge does.
        decision: What to compile, with every service of the config.
        transition: Blocks on their way; None: there are none.
        ofports: OpenFlow port numbers by name, which connections of moving blocks learn.
        before: A program; services that are the same in it are taken from there.

    Raises:
        CompileError: An owner of blocks has no next hop, or two services answer ARP for one VIP with two MACs.
    """
    ids = service_ids(service.claim for service in balancer.services)
    decided, moving = dict(decision.services), dict((transition or Transition()).services)
    known = {} if before is None else {made.service_id: made for made in before.services}
    services = []
    for service in balancer.services:
        service_id = ids[service.claim]
        decided_now, moves, made = decided[service_id], moving.get(service_id, ()), known.get(service_id)
        if made is None or (made.service, made.decision, made.moves) != (service, decided_now, moves):
            classify = tuple(service_flows(service, service_id=service_id, ingress=balancer.uplinks.ingress))
            bare = ServiceProgram(service, service_id, decided_now, moves, classify, ())
            made = _with_blocks(bare, ofports or {})
        services.append(made)
    shared = (*arp_flows(balancer), *neighbour_discovery_flows(balancer), *other_flows(balancer))
    return Program(tuple(services), shared)


def sorted_flows(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """Return flows as a person reads them and as packets meet them: by table, then falling priority, then text."""
    return tuple(sorted(flows, key=lambda flow: (flow.table, -flow.priority, render_flow(flow))))


def _with_blocks(bare: ServiceProgram, ofports: Mapping[str, int]) -> ServiceProgram:
    """Return the program of a service with the flows of its blocks."""
    service, service_id, decided = bare.service, bare.service_id, bare.decision
    backends = {backend.name: backend for backend in service.backends}
    hops, owners = next_hops(service), decided.active.owners | decided.home.owners
    delivered = {owner: deliver(_hop(service, owner, hops), service.source_mac) for owner in owners}
    cut = split(decided.active, bare.moves)
    rows = sorted(((rule_of(block, service.key), owner, move) for block, owner, move in cut), key=lambda row: row[0])
    rules: list[BlockActions] = [(rule, delivered[owner] if move is None else TO_PIN) for rule, owner, move in rows]
    flows = block_flows(service, rules, service_id=service_id)
    targets = [
        (rule, backends.get(owner) or _unnamed(bare, owner), move)
        for _ in service.claim.served_families
        for rule, owner, move in rows
    ]
    displaced = decided.displaced
    away = ((rule_of(b, service.key), delivered[owner]) for b, owner in decided.home.rows if owner in displaced)
    home = sorted(away, key=lambda row: row[0])
    pins = [_pin(bare, rule, owner, move, ofports) for rule, owner, move in rows if move is not None]
    return replace(
        bare,
        blocks=tuple(BlockFlow(flow, *target) for flow, target in zip(flows, targets, strict=True)),
        planned=tuple(block_flows(service, home, service_id=service_id, stage=Stage.PLANNED)),
        pins=tuple(flow for pin in pins for flow in pin_flows(service, pin, service_id=service_id)),
    )


def _hop(service: Service, owner: Owner, hops: NextHops) -> NextHop:
    found = next_hop_of(owner, hops)
    if found is None:
        raise CompileError(service=service.name, reason=f"no backend {owner} with a MAC, but clients for it")
    return found


def _pin(program: ServiceProgram, rule: BlockRule, owner: Owner, move: Move, ofports: Mapping[str, int]) -> Pin:
    old, new, is_settling = program.hop(move.old), program.hop(owner), move.phase is Phase.SETTLING
    opens = output_port(old if is_settling else new)
    return Pin(rule, old, new, ofports.get(opens, 0), is_settling)


def _unnamed(program: ServiceProgram, owner: Owner) -> Backend:
    """Return a backend that the config lacks, with the name of its next hop."""
    return Backend(owner, program.hop(owner), Fraction(0))
