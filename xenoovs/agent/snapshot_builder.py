"""Builds the snapshots of a running agent from its state, its program and the last offload sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType

from xenoovs.agent.bridge_watch import moved_by_switch
from xenoovs.agent.health import HealthTracker
from xenoovs.agent.report import LastChange
from xenoovs.agent.state import AgentState
from xenoovs.compile.encoding import block_of, key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.dataclass import replace
from xenoovs.datapath.database import live_ports
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ramps
from xenoovs.judge.findings import BlockOffload, OffloadFindings
from xenoovs.model.balancer import Service
from xenoovs.model.next_hop import l4_port_of, mac_and_port
from xenoovs.show.snapshot import (
    AgentView,
    BackendState,
    BackendView,
    BlockView,
    LazySnapshot,
    ServiceView,
    Snapshot,
    SwitchMove,
)

Sampled = Mapping[BackendName, list[BlockOffload]]
"""The blocks of each backend in an offload sample."""


def lazy_snapshot(
    frame: Snapshot,
    state: AgentState,
    program: Program | None,
    changes: Mapping[BackendName, LastChange],
    *,
    now_s: float,
    command_options: str,
) -> LazySnapshot:
    """Return a snapshot that any thread can complete. `frame`: all of it that is not made from the program and from the
    state of backends. `now_s`: when that was made, on the agent's clock."""
    utc_offset_s = frame.now_s - now_s

    @cache
    def sampled() -> Sampled:
        return {} if state.offload.findings is None else sampled_blocks(state.offload.findings)

    def snapshot() -> Snapshot:
        return replace(
            frame,
            services=service_views(state, program, sampled(), state.ramps(now_s), changes, utc_offset_s=utc_offset_s),
            flows=0 if program is None else len(program.flows),
            moved_by_switch=() if program is None else _moved(state, program, utc_offset_s),
            overrides=tuple(
                one if one.until_s is None else replace(one, until_s=one.until_s + utc_offset_s)
                for one in state.runtime.overrides
            ),
        )

    return LazySnapshot(snapshot, lambda service: blocks_of(program, sampled(), service), command_options)


def _moved(state: AgentState, program: Program, utc_offset_s: float) -> tuple[SwitchMove, ...]:
    """Return the moves that groups of the switch make because ports are dead; empty if the ports are not known."""
    uplinks = program.balancer.uplinks
    ports = state.ports.of(uplinks.bridge) if uplinks.buckets else None
    if ports is None:
        return ()
    live, since_s = live_ports(ports.values()) - state.ports_down, partial(_dead_since_s, state, utc_offset_s)
    return tuple(moved_by_switch(program, live, since_s))


def _dead_since_s(state: AgentState, utc_offset_s: float, ports: Collection[str]) -> float | None:
    """Return when the last of these dead ports went down, UTC; None if that is not known."""
    died = [at for port in ports if (at := state.dead_since_s.get(port)) is not None]
    return max(died) + utc_offset_s if died and len(died) == len(ports) else None


def sampled_blocks(findings: OffloadFindings) -> Sampled:
    found = defaultdict[BackendName, list[BlockOffload]](list)
    for each in findings.blocks:
        found[each.block.service, each.block.backend].append(each)
    return found


# Services and backends.


def service_views(
    state: AgentState,
    program: Program | None = None,
    blocks: Sampled = MappingProxyType({}),
    ramps: Ramps = MappingProxyType({}),
    changes: Mapping[BackendName, LastChange] = MappingProxyType({}),
    *,
    utc_offset_s: float = 0.0,
) -> tuple[ServiceView, ...]:
    """Return the services of the config, in its order. `program`: on the bridge. `utc_offset_s`: UTC minus the agent's
    clock."""
    views = []
    overrides, dead_ports = state.runtime.by_name, state.dead_ports
    unreachable = state.round.unreachable
    installed = {made.service.name: made for made in (() if program is None else program.services)}

    def backends(configured: Service, in_use: Service, made: ServiceProgram | None) -> Iterator[BackendView]:
        there = {} if made is None else {each.name: each for each in made.service.backends}
        shares = {} if made is None else dict(zip(there, made.shares, strict=True))
        flows = Counter(block.backend.name for block in (() if made is None else made.blocks))
        targets = target_shares(in_use, ramps)
        for used, target, one in zip(in_use.backends, targets, configured.backends, strict=True):
            name, port = (configured.name, used.name), used.next_hop.port
            override, is_dead = overrides.get(name), port in dead_ports
            check = state.tracker.checks.by_backend.get(name)
            health = None if check is None else state.tracker.health[check]
            probe = None if health is None else health.last
            if override is not None and (override.is_maintenance or not override.weight):
                shown = BackendState.MAINTENANCE if override.is_maintenance else BackendState.DRAINED
                since_s: float | None = override.since_s
            elif is_dead:
                shown, since_s = BackendState.DOWN, _dead_since_s(state, utc_offset_s, [port])
            elif health is None or probe is None:
                shown, since_s = BackendState.UNCHECKED, None
            else:
                shown = BackendState.UP if health.is_up else BackendState.DOWN
                since_s = health.since_s + utc_offset_s
            reason = state.why_dead(port) if is_dead else "" if probe is None else probe.reason
            ramp, change = ramps.get(name), changes.get(name)
            yield BackendView(
                name=used.name,
                mac=mac_and_port(there.get(used.name, used).next_hop)[0],
                egress=mac_and_port(used.next_hop)[1],
                address=None if used.address is None else str(used.address),
                state=shown,
                is_ejected=name in unreachable or used.name in state.ejected.get(configured.name, ()),
                weight=float(one.weight),
                weight_in_use=float(used.weight if ramp is None else used.weight * ramp),
                target_share=target,
                share=float(shares.get(used.name, 0)),
                flows=flows[used.name],
                blocks=Counter(each.verdict for each in blocks.get(name, ())),
                traffic=state.offload.traffic.get(name),
                rate=state.offload.rates.get(name),
                ramp=None if ramp is None else float(ramp),
                since_s=since_s,
                # It may have clients, but gets none.
                reason=unreachable.get(name, reason),
                probe_latency_s=None if probe is None else probe.latency_s,
                transitions=0 if health is None or probe is None else health.transitions,
                counted=state.offload.counted.get(name),
                is_backup=used.is_backup,
                changes=0 if change is None else change.number,
                last_change="" if change is None else change.reason,
                last_change_s=None if change is None else change.time_s,
                agent=_advertised(state.tracker, name),
                l4_port=l4_port_of(used.next_hop),
            )

    for configured, in_use in zip(state.balancer.services, state.in_use.services, strict=True):
        name, made = configured.name, installed.get(configured.name)
        seen = [one.megaflows for used in in_use.backends for one in blocks.get((name, used.name), ())]
        views.append(
            ServiceView(
                name=name,
                service_id=0 if made is None else made.service_id,
                vips=tuple(map(str, configured.claim.vips)),
                backends=tuple(backends(configured, in_use, made)),
                megaflows_predicted=None if made is None else hardware_entries(made),
                megaflows_seen=sum(seen) if seen else None,
                clients_moved=state.round.moved.get(name, 0.0),
                draining=0 if made is None else len(made.moves),
                agents_refused=state.refused.get(name, ""),
            )
        )
    return tuple(views)


def _advertised(tracker: HealthTracker, name: BackendName) -> AgentView | None:
    """Return what the agent of a backend's server advertises."""
    advertised = tracker.advertised_by(name)
    if advertised is None:
        return None
    health = tracker.health[tracker.checks.agent_of[name]]
    problem = "" if health.is_up or health.last is None else health.last.reason
    return AgentView(advertised.state, float(advertised.part), advertised.is_away, advertised.reply, problem)


def target_shares(service: Service, ramps: Ramps) -> tuple[float, ...]:
    """Return the share of the clients that each backend should have now. Backends in a slow start have a part of their
    share, and the others have the rest."""
    weights, whole = service.weights, float(sum(service.weights))
    parts = [ramps.get((service.name, backend.name)) for backend in service.backends]
    slow = [(float(weight), float(part)) for weight, part in zip(weights, parts, strict=True) if part is not None]
    settled = whole - sum(weight for weight, _ in slow)
    if not settled or not whole:
        return tuple(float(weight) / whole if whole else 0.0 for weight in weights)
    rest = 1 - sum(weight * part for weight, part in slow) / whole
    return tuple(
        float(weight) / settled * rest if part is None else float(weight * part) / whole
        for weight, part in zip(weights, parts, strict=True)
    )


# Blocks.


def blocks_of(program: Program | None, sampled: Sampled, service: str) -> tuple[BlockView, ...]:
    """Return the blocks of a service, by its name, with their verdicts; empty if the bridge does not have it."""
    made = (one for one in (() if program is None else program.services) if one.service.name == service)
    found = (one for names, some in sampled.items() if names[0] == service for one in some)
    return next((block_views(one, found) for one in made), ())


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """Return the blocks of a service in the order of the key space, with the verdicts of an offload sample."""
    service = program.service
    # A block has a verdict for each entry of its service; the worst comes last.
    by_badness = sorted(found, key=lambda each: each.verdict.badness)
    worst = {(each.block.key.value, each.block.key.mask): each.verdict for each in by_badness}
    width = max((block.rule.depth for block in program.blocks), default=0)
    views = []
    for block in {block.rule: block for block in program.blocks}.values():
        part = block_of(block.rule.value, block.rule.mask, service.key)
        start, size = (in_parts / (1 << width) for in_parts in (part.start(width), part.size(width)))
        own = key_match(service.key.field, service.claim.served_families[0], block.rule.value, block.rule.mask)
        verdict, name = worst.get((own.value, own.mask)), own.field.ovs_name
        views.append(BlockView(own.value, own.mask, start, size, block.backend.name, name, verdict))
    return tuple(sorted(views, key=lambda view: view.start))
