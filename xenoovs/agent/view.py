"""From what the parts of the agent know to the services and backends of a snapshot. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from xenoovs.agent.desired import Names, Ramps
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import BackendState, BackendView, BlockView, Override, ServiceView
from xenoovs.compile.assign import ServiceAssignment
from xenoovs.compile.hardware import hardware_entries
from xenoovs.compile.movement import stage_number
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Outages, Program, ServiceProgram
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service
from xenoovs.openflow.cookie import service_of
from xenoovs.partition.bits import unspread
from xenoovs.verify.findings import BlockOffload
from xenoovs.verify.verdict import Verdict

_Place = tuple[int, int]
"""Value and mask of a block."""


@dataclass(frozen=True, slots=True)
class HealthView:
    """What the probes say of one backend. `since_s`: UTC, when `is_up` became what it is."""

    is_up: bool
    since_s: float | None
    reason: str = ""
    latency_s: float | None = None
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot is made of. All by names of the config.

    config:  as the file says; desired: with the weights in use. program: what the last round left; None: none yet.
    offload: the last look at the hardware. moved: share of clients moved so far, by service.
    """

    config: Balancer
    desired: Balancer
    program: Program | None = None
    out: Outages = field(default_factory=dict)
    health: Mapping[Names, HealthView] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    ramps: Ramps = field(default_factory=dict)
    offload: Sighting | None = None
    moved: Mapping[str, float] = field(default_factory=dict)


def service_views(seen: Seen) -> tuple[ServiceView, ...]:
    """The services of the config, in its order."""
    programs = {} if seen.program is None else {made.service.name: made for made in seen.program.services}
    offload = _by_place(() if seen.offload is None else seen.offload.findings.blocks)
    draining = _pins_by_service(seen.program)
    desired = {service.name: service for service in seen.desired.services}
    return tuple(
        _service(seen, service, desired[service.name], programs.get(service.name), offload.get(service.name), draining)
        for service in seen.config.services
    )


def _service(
    seen: Seen,
    service: Service,
    desired: Service,
    program: ServiceProgram | None,
    offload: Mapping[_Place, list[BlockOffload]] | None,
    draining: Mapping[int, int],
) -> ServiceView:
    rows = offload or {}
    blocks = () if program is None else tuple(_blocks(program, rows))
    return ServiceView(
        name=service.name,
        service_id=0 if program is None else program.service_id,
        vips=tuple(str(vip) for vip in service.claim.vips),
        backends=tuple(
            _backend(seen, service, _InUse(backend, used, desired, program), rows if offload is not None else None)
            for backend, used in zip(service.backends, desired.backends, strict=True)
        ),
        blocks=blocks,
        megaflows_predicted=None if program is None else hardware_entries(program),
        megaflows_seen=None if offload is None else sum(b.megaflows for blocks in rows.values() for b in blocks),
        clients_moved=seen.moved.get(service.name, 0.0),
        draining=0 if program is None else draining.get(program.service_id, 0),
    )


@dataclass(frozen=True, slots=True)
class _InUse:
    """One backend: as configured, as desired, in the service with the weights in use, and on the bridge."""

    configured: Backend
    used: Backend
    desired: Service
    program: ServiceProgram | None

    @property
    def share_wanted(self) -> float:
        total = sum(self.desired.weights, Fraction(0))
        return float(self.used.weight / total) if total else 0.0

    @property
    def share_installed(self) -> float:
        if self.program is None:
            return 0.0
        shares = zip(self.program.service.backends, self.program.assignment.shares, strict=True)
        return float(sum((share for backend, share in shares if backend.name == self.used.name), Fraction(0)))

    @property
    def flows(self) -> int:
        blocks = () if self.program is None else self.program.blocks
        return sum(block.backend.name == self.used.name for block in blocks)


def _backend(
    seen: Seen, service: Service, backend: _InUse, offload: Mapping[_Place, list[BlockOffload]] | None
) -> BackendView:
    names = (service.name, backend.used.name)
    health = seen.health.get(names)
    override = next((o for o in seen.overrides if (o.service, o.backend) == names), None)
    is_drained = override is not None and not override.weight
    mine = [b for blocks in (offload or {}).values() for b in blocks if b.block.backend == backend.used.name]
    ramp = seen.ramps.get(names)
    return BackendView(
        name=backend.used.name,
        mac=str(backend.used.mac),
        egress=backend.used.egress,
        address=None if backend.used.address is None else str(backend.used.address),
        state=_state(health, is_drained=is_drained),
        is_out=backend.used.name in seen.out.get(service.name, ()),
        weight=float(backend.configured.weight),
        weight_in_use=float(backend.used.weight),
        share_wanted=backend.share_wanted,
        share_installed=backend.share_installed,
        flows=backend.flows,
        blocks=_verdicts(mine),
        traffic=None if seen.offload is None else seen.offload.traffic.get(names),
        rate=None if seen.offload is None else seen.offload.rates.get(names),
        ramp=None if ramp is None else float(ramp),
        since_s=override.since_s if override is not None and is_drained else None if health is None else health.since_s,
        reason="" if health is None else health.reason,
        probe_latency_s=None if health is None else health.latency_s,
        transitions=0 if health is None else health.transitions,
    )


def _state(health: HealthView | None, *, is_drained: bool) -> BackendState:
    if is_drained:
        return BackendState.DRAINED
    if health is None:
        return BackendState.UNCHECKED
    return BackendState.UP if health.is_up else BackendState.DOWN


def _verdicts(blocks: Iterable[BlockOffload]) -> Mapping[Verdict, int]:
    found = defaultdict[Verdict, int](int)
    for block in blocks:
        found[block.verdict] += 1
    return dict(found)


def _blocks(program: ServiceProgram, offload: Mapping[_Place, list[BlockOffload]]) -> Iterator[BlockView]:
    for start, size, value, mask, owner in sorted(_places(program.service, program.assignment)):
        seen = [block.verdict for block in offload.get((value, mask), ())]
        worst = max(seen, key=lambda verdict: verdict.badness) if seen else None
        yield BlockView(value, mask, float(start), float(-size), program.service.backends[owner].name, worst)


def _places(service: Service, assignment: ServiceAssignment) -> Iterator[tuple[Fraction, Fraction, int, int, int]]:
    """Start, negative size (so that a block sorts before those within it), value, mask and owner of each rule."""
    for rule in assignment.rules:
        block = unspread(rule.value, rule.mask, service.source_bits.positions)
        start = Fraction(block.start(assignment.width), 1 << assignment.width)
        yield start, -Fraction(1, 1 << block.depth), rule.value, rule.mask, rule.owner


def _by_place(blocks: Iterable[BlockOffload]) -> dict[str, dict[_Place, list[BlockOffload]]]:
    found = defaultdict[str, dict[_Place, list[BlockOffload]]](dict)
    for block in blocks:
        source = block.block.source
        found[block.block.service].setdefault((source.value, source.mask), []).append(block)
    return dict(found)


def _pins_by_service(program: Program | None) -> Mapping[int, int]:
    found = defaultdict[int, int](int)
    for flow in () if program is None else program.flows:
        if stage_number(flow) == Stage.PIN.value:
            found[service_of(flow.cookie)] += 1
    return dict(found)
