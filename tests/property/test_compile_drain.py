"""Law 1 while blocks move: open connections stay, new ones go on, and afterwards the plain program is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled, draining, observed
from tests.property.decisions import OFPORTS
from tests.strategies import backends_of, balancers, block_keys, claimed_packets, share
from tests.switch_model import Table, apply_bundle, table_of
from xenoovs.compile.drain_progress import leftover
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.compile.program import Program
from xenoovs.compile.read import is_learned, read
from xenoovs.decision.advance import SETTLE_S, BlockId, Progress
from xenoovs.judge.simulate.walk import Headers, tables_of, walk
from xenoovs.model.balancer import Balancer, Drain, DrainMode, Failover, Protocol, Service
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Flow, ObservedFlow, Output

NAMES = {str(number): port for port, number in OFPORTS.items()}
PIN = Drain(DrainMode.PIN)
TCP, SYN = 6, 0x002
OPENED = (5000, 6000)
"""Source ports of connections that open meanwhile."""

Place = tuple[int, int, str | None]
"""MACs and port with which a packet leaves."""


@dataclass
class Switch:
    """A flow table that learns."""

    table: Table

    def send(self, packet: Packet | Headers) -> Place:
        outcome = walk(tables_of(self.table.values()), packet)
        learned = (named(flow) for flow in outcome.learned if flow.key not in self.table)
        self.table = {**self.table, **table_of(learned)}
        (copy,) = outcome.copies
        return copy.dl_src, copy.dl_dst, copy.port

    def begin(self, target: Program) -> Program:
        """Move to it as far as the beginning of a drain."""
        return self._go(target, progress())

    def move(self, target: Program) -> Program:
        """Move to it until new connections go to new backends."""
        self.begin(target)
        return self._go(target, progress(settle_s=0.0))

    def _go(self, target: Program, at: Progress) -> Program:
        seen, decision = self.observed(), target.decision
        program = draining(target.balancer, seen, at, ofports=OFPORTS, decision=decision)
        learned = [flow for flow in self.table.values() if is_learned(flow)]
        left = leftover(program, learned, {})
        ours = [flow for flow in self.table.values() if not is_learned(flow)]
        self.table = apply_bundle(self.table, bundle_of(plan(program.flows, [*ours, *left])))
        return program

    def observed(self) -> tuple[ObservedFlow, ...]:
        return observed(self.table.values())

    def end_drains(self, target: Program) -> Program:
        _, transition = read(self.observed(), target.balancer)
        moving = {(service_id, move.block) for service_id, moves in transition.services for move in moves}
        return self._go(target, progress(quiet=frozenset(moving)))


def progress(*, quiet: frozenset[BlockId] = frozenset(), settle_s: float = SETTLE_S) -> Progress:
    return Progress(0.0, OFPORTS.keys(), quiet, settle_s)


def named(flow: Flow) -> Flow:
    """A dump shows ports by name."""
    actions = (Output(NAMES[a.port]) if isinstance(a, Output) else a for a in flow.actions)
    return replace(flow, actions=tuple(actions))


@st.composite
def pinning(draw: st.DrawFn) -> Balancer:
    balancer = draw(balancers(most=2).filter(lambda balancer: balancer.services))
    services = tuple(replace(s, drain=PIN) for s in balancer.services)
    if draw(st.booleans()):
        claim = replace(services[0].claim, protocol=Protocol.TCP, ports=())
        services = (replace(services[0], claim=claim, key=draw(block_keys(claim))),)
    uplinks = replace(balancer.uplinks, failover=draw(st.sampled_from([None, Failover.IN_SWITCH])))
    return replace(balancer, uplinks=uplinks, services=services)


@st.composite
def with_other_backends(draw: st.DrawFn, balancer: Balancer) -> Balancer:
    def edited(service: Service) -> Service:
        return replace(service, backends=draw(backends_of())) if draw(st.booleans()) else service

    return replace(balancer, services=tuple(map(edited, balancer.services)))


Case = tuple[list[Program], list[Packet]]


@st.composite
def changes(draw: st.DrawFn) -> Case:
    """Three programs, each made from the one before, and packets of services."""
    balancer = draw(pinning())
    targets = [compiled(balancer)]
    for _ in range(2):
        balancer = draw(with_other_backends(balancer))
        targets.append(compiled(balancer, installed=targets[-1].flows))
    claims = [service.claim for service in balancer.services]
    some = st.sampled_from(claims).flatmap(lambda claim: claimed_packets(claim, balancer.uplinks))
    others = some.filter(lambda packet: packet.sport not in OPENED)
    return targets, draw(st.lists(others, min_size=1, max_size=6))


def where(program: Program, packets: Iterable[Packet]) -> list[Place]:
    switch = Switch(table_of(program.flows))
    return [switch.send(packet) for packet in packets]


def opening(packets: Iterable[Packet], *, port: int) -> list[Packet]:
    """The first packets of other connections of the same clients; protocols without connections as they are."""
    return [replace(packet, sport=port, tcp_flags=SYN) if packet.protocol == TCP else packet for packet in packets]


def later(packets: Iterable[Packet]) -> list[Packet]:
    return [replace(packet, tcp_flags=0x010) for packet in packets]


@share(0.4)
@given(changes())
def test_open_connections_stay_and_new_ones_move_and_the_plain_program_is_left(case: Case) -> None:
    """Connections that open while a block settles stay too, also if their first packet is repeated."""
    (before, after, _), packets = case
    switch = Switch(table_of(before.flows))
    early, openings = opening(packets, port=6000), opening(packets, port=5000)
    old, stay, new = where(before, packets), where(before, early), where(after, openings)
    began = switch.begin(after)
    assert switch.begin(after) == began
    assert switch.table == table_of(began.flows)
    assert [switch.send(packet) for packet in early] == stay
    moving = switch.move(after)
    assert switch.move(after) == moving
    assert [switch.send(packet) for packet in packets] == old
    assert [switch.send(packet) for packet in early] == stay
    assert [switch.send(packet) for packet in later(early)] == stay
    expected = [n if p.protocol == TCP else o for p, o, n in zip(packets, old, new, strict=True)]
    assert [switch.send(packet) for packet in openings] == expected
    assert [switch.send(packet) for packet in later(openings)] == expected
    assert [switch.send(packet) for packet in packets] == old
    assert switch.end_drains(after) == after
    assert switch.table == table_of(after.flows)


@share(0.4)
@given(changes())
def test_what_servers_of_open_connections_send_back_arrives(case: Case) -> None:
    """Also by a port that no backend of the config has any more."""
    (before, after, _), packets = case
    moving = Switch(table_of(before.flows)).move(after)
    for packet, (_, _, port) in zip(packets, where(before, packets), strict=True):
        assert port is not None
        answer = replace(packet, source=packet.destination, destination=packet.source, in_port=port)
        assert sent(moving, answer) == sent(before, answer)


def sent(program: Program, packet: Packet) -> list[Place]:
    """Return the copies of a packet, also if there are none."""
    return [(copy.dl_src, copy.dl_dst, copy.port) for copy in walk(tables_of(program.flows), packet).copies]


@share(0.4)
@given(changes())
def test_a_second_change_breaks_no_connection_of_the_first(case: Case) -> None:
    (before, middle, after), packets = case
    tcp = [packet for packet in packets if packet.protocol == TCP]
    switch = Switch(table_of(before.flows))
    switch.move(middle)
    first = opening(tcp, port=5000)
    had = [switch.send(packet) for packet in first]
    switch.move(after)
    assert [switch.send(packet) for packet in tcp] == where(before, tcp)
    assert [switch.send(packet) for packet in later(first)] == had
    second = opening(tcp, port=6000)
    assert [switch.send(packet) for packet in second] == where(after, second)
    switch.end_drains(after)
    assert switch.table == table_of(after.flows)


@share(0.4)
@given(changes())
def test_an_agent_that_starts_in_a_drain_reaches_the_same_end(case: Case) -> None:
    """With only the flows of the switch, the owner of each client afterwards is the same."""
    (before, after, _), packets = case
    switch = Switch(table_of(before.flows))
    moving = switch.move(after)
    again = compiled(after.balancer, installed=moving.flows)
    assert where(again, packets) == where(after, packets)
    switch.move(again)
    switch.end_drains(again)
    assert switch.table == table_of(again.flows)
