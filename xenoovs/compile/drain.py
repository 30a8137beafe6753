"""From what a switch has to a program without cutting connections: which blocks stay in `pin`, and how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from xenoovs.compile.assign import BlockRule
from xenoovs.compile.holding import Area, Holding, holdings_of
from xenoovs.compile.key import bits_of, block_of
from xenoovs.compile.next_hop import output_port
from xenoovs.compile.overlaps import Overlaps
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import BlockFlow, Outages, Program, ServiceProgram
from xenoovs.compile.stages.balance import block_flows
from xenoovs.compile.stages.pin import Pin
from xenoovs.model.drain import DrainMode
from xenoovs.model.next_hop import NextHop
from xenoovs.model.service import Protocol, Service
from xenoovs.openflow.action import Resubmit
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.partition.block import Block

_ROUNDS = 4
SETTLE_S = _ROUNDS * 0.5
"""Until Open vSwitch has certainly looked at all megaflows again: four times max-revalidator, 500 ms unless it is set
(ovs-vswitchd.conf.db(5))."""


def settle_s(max_revalidator_ms: int | None) -> float:
    """How long blocks settle where max-revalidator is so; None: not set, or not known."""
    return max(SETTLE_S, _ROUNDS * (max_revalidator_ms or 0) / 1000)


@dataclass(frozen=True, slots=True)
class Situation:
    """What drains depend on besides the flows.

    ports:    OpenFlow port numbers of the bridge by name. Nothing is kept at a port that is not there.
    out:      backends that do not serve: nothing is kept with them either.
    resting:  blocks whose old backend gets nothing any more.
    settle_s: the age of a drain at which new connections go to the new backends. None: it is not to go on, and they
              go where they do now.
    """

    ports: Mapping[str, int]
    out: Outages = field(default_factory=dict)
    resting: frozenset[Area] = field(default_factory=frozenset)
    settle_s: float | None = SETTLE_S


def with_drains(program: Program, observed: Iterable[ObservedFlow], situation: Situation) -> Program:
    """The program for now: blocks that leave a backend that serves, or have left it just now, are in `pin`.

    `observed`: what the switch has. The result is `program` itself where nothing is to be kept.
    """
    if not any(_is_pinning(service.service) for service in program.services):
        return program
    held = holdings_of(observed)
    services = tuple(
        _Service(service, held.get(service.service_id, ()), situation).program()
        if _is_pinning(service.service)
        else service
        for service in program.services
    )
    return replace(program, services=services) if any(service.pins for service in services) else program


def _is_pinning(service: Service) -> bool:
    return service.drain.mode is DrainMode.PIN


@dataclass(frozen=True, slots=True)
class _Stay:
    """Connections under a mask that stay with `old`. has_settled: each of them has megaflows of its own already."""

    value: int
    mask: int
    old: NextHop
    has_settled: bool

    def meets(self, rule: BlockRule) -> bool:
        return not (self.value ^ rule.value) & self.mask & rule.mask


class _Service:
    """The drain of one service."""

    def __init__(self, program: ServiceProgram, held: tuple[Holding, ...], situation: Situation) -> None:
        self._program, self._situation = program, situation
        self._held = Overlaps((*each.area[1:], each) for each in held if self._is_block(each))
        self._settled = {each.area[1:]: each.new for each in held if not each.is_pinned}
        self._hops = [backend.next_hop for backend in program.service.backends]
        out = situation.out.get(program.service.name, frozenset())
        self._dead = {
            backend.next_hop
            for index, backend in enumerate(program.service.backends)
            if index in program.out or backend.name in out
        }

    def program(self) -> ServiceProgram:
        rules, pins = list[BlockRule](), list[Pin]()
        for rule in self._program.assignment.rules:
            new = self._hops[rule.owner]
            for part, stay in self._parts(rule, new):
                rules.append(part)
                if stay is not None:
                    pins.append(self._pin(part, stay, new))
        if not pins:
            return self._program
        return replace(self._program, blocks=tuple(self._blocks(rules, pins)), pins=tuple(pins))

    def _pin(self, rule: BlockRule, stay: _Stay, new: NextHop) -> Pin:
        is_settling = self._program.service.claim.protocol in (None, Protocol.TCP) and not stay.has_settled
        opens = stay.old if is_settling else new
        return Pin(rule, stay.old, new, self._situation.ports[output_port(opens)], is_settling)

    def _parts(self, rule: BlockRule, new: NextHop) -> Iterator[tuple[BlockRule, _Stay | None]]:
        """The rule in parts, each with who keeps its open connections; None: nobody is left to."""
        if self._settled.get((rule.value, rule.mask)) == new or not self._has_ports(new):
            return iter(((rule, None),))
        met = self._held.meeting(rule.value, rule.mask)
        stays = [
            _Stay(*each.area[1:], old, self._has_settled(each))
            for each in met
            if (old := self._keeper(each, new)) is not None
        ]
        return self._split(rule, stays)

    def _split(self, rule: BlockRule, stays: Iterable[_Stay]) -> Iterator[tuple[BlockRule, _Stay | None]]:
        inside = [stay for stay in stays if stay.meets(rule)]
        around = next((stay for stay in inside if not stay.mask & ~rule.mask), None)
        if not inside or around is not None:
            yield rule, around
            return
        _, mask = bits_of(Block(0, rule.depth + 1), self._program.service.key)
        for side in (0, mask & ~rule.mask):
            half = BlockRule(rule.depth + 1, rule.value | side, mask, rule.owner)
            yield from self._split(half, inside)

    def _keeper(self, held: Holding, new: NextHop) -> NextHop | None:
        """Who keeps the open connections of a block that now goes to `new`; None: it moves at once."""
        old = self._alive(held.old)
        if not held.is_pinned:
            return None if old == new else old
        drain = self._program.service.drain
        is_over = held.age_s >= drain.timeout_ms / 1000 or held.area in self._situation.resting
        if held.new == new:
            return None if is_over else old
        # It moves again before it has arrived. Connections to where it was going are known one by one.
        second = self._alive(held.new)
        return (None if second == new else second) if is_over or old is None else old

    def _has_settled(self, held: Holding) -> bool:
        settle_s = self._situation.settle_s
        return held.is_pinned and (held.has_settled or (settle_s is not None and held.age_s >= settle_s))

    def _alive(self, hop: NextHop | None) -> NextHop | None:
        return None if hop is None or hop in self._dead or not self._has_ports(hop) else hop

    def _has_ports(self, hop: NextHop) -> bool:
        return self._situation.ports.keys() >= set(hop.ports)

    def _is_block(self, held: Holding) -> bool:
        """Whether it is a block of the key that the service uses now; others move at once."""
        _, value, mask = held.area
        try:
            block_of(value, mask, self._program.service.key)
        except ValueError:
            return False
        return True

    def _blocks(self, rules: list[BlockRule], pins: list[Pin]) -> Iterator[BlockFlow]:
        service, pinned = self._program.service, {pin.rule for pin in pins}
        assignment = replace(self._program.assignment, rules=tuple(sorted(rules)))
        for flow, rule in block_flows(service, assignment, service_id=self._program.service_id):
            on = replace(flow, actions=(Resubmit(Stage.PIN.table),)) if rule in pinned else flow
            yield BlockFlow(on, rule, service.backends[rule.owner])
