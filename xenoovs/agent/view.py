"""From what the parts of the agent know to the services and backends of a snapshot. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from xenoovs.agent.desired import Names, Ramps
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import BackendState, BackendView, BlockView, Override, ServiceView
from xenoovs.compile.assign import ServiceAssignment
from xenoovs.compile.hardware import hardware_entries
from xenoovs.compile.program import Outages, Program, ServiceProgram
from xenoovs.model.address import Mac
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service
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
    findings = None if seen.offload is None else seen.offload.findings
    offload = _by_place(() if findings is None else findings.blocks)
    desired = {service.name: service for service in seen.desired.services}
    return tuple(
        _service(seen, service, _Parts(desired[service.name], programs.get(service.name), offload))
        for service in seen.config.services
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """Of one service: as desired, and on the bridge. Of all: blocks by service."""

    desired: Service
    program: ServiceProgram | None
    offload: Mapping[str, Mapping[_Place, list[BlockOffload]]]


def _service(seen: Seen, service: Service, parts: _Parts) -> ServiceView:
    desired, program, offload = parts.desired, parts.program, parts.offload.get(service.name)
    rows = offload or {}
    whole = _whole(desired, program, rows)
    return ServiceView(
        name=service.name,
        service_id=0 if program is None else program.service_id,
        vips=tuple(str(vip) for vip in service.claim.vips),
        backends=tuple(
            _backend(seen, (service.name, backend.name), _InUse(backend, used, whole))
            for backend, used in zip(service.backends, desired.backends, strict=True)
        ),
        blocks=() if program is None else tuple(_blocks(program, rows)),
        megaflows_predicted=None if program is None else hardware_entries(program),
        megaflows_seen=None if offload is None else sum(b.megaflows for blocks in rows.values() for b in blocks),
        clients_moved=seen.moved.get(service.name, 0.0),
        draining=0 if program is None else len(program.pins),
    )


@dataclass(frozen=True, slots=True)
class _Whole:
    """What all backends of a service are compared with; by name of the backend.

    weight: of all with the weights in use; settled: of those that are in no slow start. eased: share, 0..1, that those
    in one have by now. installed: share of the address space, 0..1. flows: blocks on the bridge. macs: on the bridge.
    """

    weight: float
    settled: float
    eased: float
    installed: Mapping[str, float]
    flows: Mapping[str, int]
    blocks: Mapping[str, list[BlockOffload]]
    macs: Mapping[str, Mac]

    def share(self, backend: Backend) -> float:
        """0..1, what a backend is to have now: in a slow start a part of its own, the rest of which others have."""
        if backend.ramp < 1 and self.settled:
            return float(backend.weight * backend.ramp) / self.weight
        if self.settled:
            return float(backend.weight) / self.settled * (1 - self.eased)
        return float(backend.weight) / self.weight if self.weight else 0.0


def _whole(desired: Service, program: ServiceProgram | None, rows: Mapping[_Place, list[BlockOffload]]) -> _Whole:
    installed, flows, blocks = (
        defaultdict[str, float](float),
        Counter[str](),
        defaultdict[str, list[BlockOffload]](list),
    )
    if program is not None:
        parts = 1 << program.assignment.width
        for backend, units in zip(program.service.backends, program.assignment.units, strict=True):
            installed[backend.name] += units / parts
        flows.update(block.backend.name for block in program.blocks)
    for listed in rows.values():
        for found in listed:
            blocks[found.block.backend].append(found)
    weight = float(sum(desired.weights, Fraction(0)))
    slow = [backend for backend in desired.backends if backend.ramp < 1]
    eased = sum(float(backend.weight * backend.ramp) for backend in slow) / weight if weight else 0.0
    settled = weight - sum(float(backend.weight) for backend in slow)
    macs = {} if program is None else {backend.name: backend.mac for backend in program.service.backends}
    return _Whole(weight, settled, eased, installed, flows, blocks, macs)


@dataclass(frozen=True, slots=True)
class _InUse:
    """One backend: as configured, as desired, and its service."""

    configured: Backend
    used: Backend
    whole: _Whole


def _backend(seen: Seen, names: Names, backend: _InUse) -> BackendView:
    name, whole = backend.used.name, backend.whole
    health = seen.health.get(names)
    override = next((o for o in seen.overrides if (o.service, o.backend) == names), None)
    is_drained = override is not None and not override.weight
    ramp = seen.ramps.get(names)
    weight = float(backend.used.weight * backend.used.ramp)
    return BackendView(
        name=name,
        mac=str(whole.macs.get(name, backend.used.mac)),
        egress=backend.used.egress,
        address=None if backend.used.address is None else str(backend.used.address),
        state=_state(health, is_drained=is_drained),
        is_out=name in seen.out.get(names[0], ()),
        weight=float(backend.configured.weight),
        weight_in_use=weight,
        share_wanted=whole.share(backend.used),
        share_installed=whole.installed.get(name, 0.0),
        flows=whole.flows.get(name, 0),
        blocks=_verdicts(whole.blocks.get(name, ())),
        traffic=None if seen.offload is None else seen.offload.traffic.get(names),
        counted=None if seen.offload is None else seen.offload.counted.get(names),
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
    names = [backend.name for backend in program.service.backends]
    parts = 1 << program.assignment.width
    for start, size, value, mask, owner in sorted(_places(program.service, program.assignment)):
        seen = [block.verdict for block in offload.get((value, mask), ())]
        worst = max(seen, key=lambda verdict: verdict.badness) if seen else None
        yield BlockView(value, mask, start / parts, -size / parts, names[owner], worst)


def _places(service: Service, assignment: ServiceAssignment) -> Iterator[tuple[int, int, int, int, int]]:
    """Start, negative size (so that a block sorts before those within it), value, mask and owner of each rule.

    Start and size in the smallest parts of the address space that there are.
    """
    for rule in assignment.rules:
        block = unspread(rule.value, rule.mask, service.source_bits.positions)
        size = 1 << assignment.width - block.depth
        yield block.start(assignment.width), -size, rule.value, rule.mask, rule.owner


def _by_place(blocks: Iterable[BlockOffload]) -> dict[str, dict[_Place, list[BlockOffload]]]:
    found = defaultdict[str, dict[_Place, list[BlockOffload]]](dict)
    for block in blocks:
        source = block.block.source
        found[block.block.service].setdefault((source.value, source.mask), []).append(block)
    return dict(found)
