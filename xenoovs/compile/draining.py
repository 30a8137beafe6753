"""Drains as they go on: what the switch says of them, since when old backends rest, and what is left over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from xenoovs.compile.drain import SETTLE_S
from xenoovs.compile.holding import Area, Holding, holdings_of, is_learned
from xenoovs.compile.key import key_bits
from xenoovs.compile.movement import stage_number
from xenoovs.compile.next_hop import hop_of
from xenoovs.compile.overlaps import Overlaps
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Outages, Program, ServiceProgram
from xenoovs.datapath.megaflow import MAX_IDLE_S
from xenoovs.model.next_hop import NextHop, mac_and_port
from xenoovs.model.service import Protocol
from xenoovs.openflow.cookie import service_of
from xenoovs.openflow.flow import Flow, ObservedFlow


@dataclass(frozen=True, slots=True)
class Draining:
    """The blocks of one service that move.

    ways:        from which backend to which, by name, sorted; a MAC where there is none. Both are the same for blocks
                 that have come back before they had left: some connections were opened elsewhere meanwhile.
    left_s:      until the last of them has moved, at the latest.
    is_settling: whether there are some whose new connections still stay with `old`.
    settles_s:   until these go to `new`, if somebody goes on with the drain; no longer than `left_s`.
    connections: how many have been opened to `new` since, and are known one by one.
    entries:     an estimate: no more hardware entries than that are taken beside one for each block.
    """

    service: str
    ways: tuple[tuple[str, str], ...]
    blocks: int
    left_s: float
    is_settling: bool = False
    settles_s: float = 0.0
    connections: int = 0
    entries: int = 0

    @property
    def old(self) -> tuple[str, ...]:
        """Who keeps open connections, sorted."""
        return tuple(sorted({old for old, _ in self.ways}))

    @property
    def new(self) -> tuple[str, ...]:
        """Who gets the clients, sorted."""
        return tuple(sorted({new for _, new in self.ways}))


@dataclass(frozen=True, slots=True)
class Rests:
    """Since when the old backend of each block has got nothing: packets until then, and the time."""

    since: Mapping[Area, tuple[int, float]] = field(default_factory=dict)

    def after(self, observed: Iterable[ObservedFlow], *, now_s: float) -> Rests:
        """After another look at the switch."""
        pinned = [each for held in holdings_of(observed).values() for each in held if each.is_pinned]
        return Rests({each.area: self._since(each, now_s) for each in pinned})

    def resting(self, program: Program, *, now_s: float) -> frozenset[Area]:
        """The blocks that have nothing left to wait for."""
        rest_s = {s.service_id: s.service.drain.rest_ms / 1000 for s in program.services}
        known = ((area, since_s) for area, (_, since_s) in self.since.items() if area[0] in rest_s)
        return frozenset(area for area, since_s in known if now_s - since_s >= rest_s[area[0]])

    def _since(self, held: Holding, now_s: float) -> tuple[int, float]:
        packets, since_s = self.since.get(held.area, (-1, now_s))
        return (packets, since_s) if packets == held.old_packets else (held.old_packets, now_s)


def drains_of(
    program: Program, observed: Iterable[ObservedFlow], *, settle_s: float = SETTLE_S, idle_s: float = MAX_IDLE_S
) -> tuple[Draining, ...]:
    """The drains of a program on a switch, in the order of its services. `observed`: what the switch has now.

    `settle_s`: how long blocks settle there. `idle_s`: how long megaflows stay after their last packet.
    """
    seen = tuple(observed)
    ages = {each.area: each.age_s for held in holdings_of(seen).values() for each in held if each.is_pinned}
    learned = tuple(each.flow for each in seen if is_learned(each.flow))
    return tuple(
        replace(
            _draining(service, ages, settle_s),
            connections=_connections(service, learned),
            entries=_entries(service, seen, idle_s),
        )
        for service in program.services
        if service.pins
    )


def leftover(program: Program, learned: Iterable[Flow], *, out: Outages) -> tuple[Flow, ...]:
    """Learned flows that have to go: of services without a drain, and to backends that do not serve."""
    drained = {service.service_id: _dead(service, out) for service in program.services if service.pins}
    return tuple(flow for flow in learned if _is_left(flow, drained))


def _is_left(flow: Flow, drained: Mapping[int, Collection[NextHop | None]]) -> bool:
    service = service_of(flow.cookie)
    return service not in drained or hop_of(flow.actions) in drained[service]


def _dead(service: ServiceProgram, out: Outages) -> set[NextHop | None]:
    names = out.get(service.service.name, frozenset())
    return {b.next_hop for b in service.service.backends if b.name in names}


def _draining(service: ServiceProgram, ages: Mapping[Area, float], settle_s: float) -> Draining:
    names = {b.next_hop: b.name for b in service.service.backends}

    def name(hop: NextHop) -> str:
        return names.get(hop) or mac_and_port(hop)[0]

    timeout_s = service.service.drain.timeout_ms / 1000
    begun = [ages.get((service.service_id, pin.rule.value, pin.rule.mask), 0.0) for pin in service.pins]
    settling = [age_s for age_s, pin in zip(begun, service.pins, strict=True) if pin.is_settling]
    left_s = max(0.0, timeout_s - min(begun))
    return Draining(
        service.service.name,
        ways=tuple(sorted({(name(pin.old), name(pin.new)) for pin in service.pins})),
        blocks=len(service.pins),
        left_s=left_s,
        is_settling=bool(settling),
        settles_s=min(left_s, max(0.0, settle_s - min(settling, default=settle_s))),
    )


def _connections(service: ServiceProgram, learned: Iterable[Flow]) -> int:
    """How many of the moving blocks' learned connections are with the new backend of their block."""
    pins = Overlaps((pin.rule.value, pin.rule.mask, pin) for pin in service.pins)
    mine = (flow for flow in learned if service_of(flow.cookie) == service.service_id)
    return sum(any(pin.new == hop_of(flow.actions) for pin in pins.meeting(*key_bits(flow))) for flow in mine)


def _entries(service: ServiceProgram, seen: Iterable[ObservedFlow], idle_s: float) -> int:
    """As many as packets come to the moving blocks while an entry lives: each connection that has one sent one."""
    if service.service.claim.protocol not in (None, Protocol.TCP):
        return 0
    pins = Overlaps((pin.rule.value, pin.rule.mask, pin) for pin in service.pins)
    rates = (
        each.packets / each.duration_s
        for each in seen
        if stage_number(each.flow) == Stage.BALANCE.value
        and each.duration_s
        and service_of(each.flow.cookie) == service.service_id
        and pins.meeting(*key_bits(each.flow))
    )
    return ceil(sum(rates) * idle_s)
