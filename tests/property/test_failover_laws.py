"""Failover in the switch: what groups do alone is what the decision does a moment later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.strategies import balancers, with_backends
from tests.unit.balancer import balancer as small_balancer
from tests.unit.balancer import claim
from xenoovs.compile.encoding import block_of, hop_of
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, compile_program
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import BackendName, Blocks, Decision, DesiredState, Owner, next_hops
from xenoovs.decision.ejection import with_dead_ports
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Backend, Balancer, Failover, Service, service_ids
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import alternatives, output_ports
from xenoovs.partition.block import Block


@st.composite
def in_switch(draw: st.DrawFn) -> Balancer:
    made = draw(balancers(most=2).filter(lambda made: made.services))
    uplinks = replace(made.uplinks, failover=Failover.IN_SWITCH, depth=draw(st.integers(2, 4)))
    return replace(made, uplinks=uplinks)


@st.composite
def states(draw: st.DrawFn, balancer: Balancer) -> DesiredState:
    """What probes, operators and slow starts want: some backends ejected, some held, some in a slow start."""
    ejected, held = dict[str, frozenset[str]](), dict[str, frozenset[str]]()
    ramps = dict[BackendName, Fraction]()
    for service in balancer.services:
        names = [backend.name for backend in service.backends]
        ejected[service.name] = draw(st.frozensets(st.sampled_from(names), max_size=len(names) - 1))
        left = sorted(set(names) - ejected[service.name])
        held[service.name] = draw(st.frozensets(st.sampled_from(left), max_size=1))
        for name in draw(st.frozensets(st.sampled_from(left), max_size=1)) - held[service.name]:
            ramps[service.name, name] = Fraction(draw(st.integers(1, 9)), 10)
    return DesiredState(balancer, ejected=ejected, held=held, ramps=ramps)


Moment = tuple[DesiredState, Decision, frozenset[str]]


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    """A state that came after another one, its decision, and ports that die now: fewer than a group has next hops."""
    balancer = draw(in_switch())
    decision, desired = Decision(), DesiredState(balancer)
    for state in (desired, draw(states(balancer)), draw(states(balancer))):
        desired, decision = state, decide(decision, state)
    ports = sorted({hop.port for service in balancer.services for hop in next_hops(service).values()})
    return desired, decision, draw(st.frozensets(st.sampled_from(ports), max_size=balancer.uplinks.buckets - 1))


def moment_of(
    backends: tuple[Backend, ...], *, ejected: Collection[str], ramps: Collection[str] = (), dead: str
) -> Moment:
    """A moment after a first decision in which all backends were up."""
    made = small_balancer(Service("s", claim(), backends))
    made = replace(made, uplinks=replace(made.uplinks, failover=Failover.IN_SWITCH, depth=4))
    parts = {("s", name): Fraction(1, 10) for name in ramps}
    desired = DesiredState(made, ejected={"s": frozenset(ejected)}, ramps=parts)
    return desired, decide(decide(Decision(), DesiredState(made)), desired), frozenset({dead})


def backend(name: str, port: str, *, is_backup: bool = False) -> Backend:
    return Backend(name, Direct(Mac(int.from_bytes(name.encode(), "big")), port), Fraction(1), is_backup=is_backup)


_A_BACKUP_RETURNS = moment_of(
    (backend("b0", "p1"), backend("b1", "p1", is_backup=True), backend("b2", "p2", is_backup=True)),
    ejected={"b0"},
    dead="p1",
)
_ANOTHER_BACKUP_RETURNS = (*_A_BACKUP_RETURNS[:2], frozenset({"p2"}))
_A_SLOW_START_HAS_NO_BLOCK_YET = moment_of(
    (backend("b0", "p1"), backend("b1", "p2")), ejected=(), ramps={"b0"}, dead="p2"
)


def compiled(desired: DesiredState, decision: Decision) -> Program:
    return compile_program(desired.balancer, decision, desired=desired)


def clients(program: Program, dead: Collection[str] = ()) -> dict[str, Blocks]:
    """Return where a switch with these flows sends the clients of each service while these ports are dead."""
    found = dict[str, Blocks]()
    for made in program.services:
        rows = list[tuple[Block, Owner | None]]()
        for each in made.blocks:
            live = (done for done in alternatives(each.flow.actions) if not set(output_ports(done)) & set(dead))
            hop = next((hop_of(done) for done in live), None)
            rows.append(
                (block_of(each.rule.value, each.rule.mask, made.service.key), None if hop is None else str(hop))
            )
        found[made.service.name] = Blocks.of(rows)
    return found


def after(desired: DesiredState, dead: Collection[str]) -> DesiredState:
    """Return what an agent wants that has noticed dead ports."""
    return replace(desired, ejected=with_dead_ports(desired.ejected, desired.balancer.services, dead))


@given(moments())
@example(_A_SLOW_START_HAS_NO_BLOCK_YET)
def test_the_switch_does_what_the_decision_does_a_moment_later(moment: Moment) -> None:
    desired, decision, dead = moment
    later = after(desired, dead)
    alone = clients(compiled(desired, decision), dead)
    decided = clients(compiled(later, decide(decision, later)))
    for service in desired.balancer.services:
        behind = {name for name, hop in next_hops(service).items() if hop.port in dead}
        serving = {backend.name for backend in service.backends if backend.weight} - behind
        # Where nobody would be left the agent ejects nobody.
        if serving - desired.ejected.get(service.name, frozenset()):
            assert alone[service.name] == decided[service.name]


@given(moments())
@example(_A_BACKUP_RETURNS)
@example(_ANOTHER_BACKUP_RETURNS)
def test_clients_return_with_the_port(moment: Moment) -> None:
    desired, decision, dead = moment
    desired = replace(desired, held={})
    decision = decide(Decision(), desired)
    assert decide(decide(decision, after(desired, dead)), desired) == decision


@given(in_switch())
def test_groups_take_no_entries_of_the_hardware(balancer: Balancer) -> None:
    desired = DesiredState(balancer)
    plain = replace(balancer, uplinks=replace(balancer.uplinks, failover=None))
    decision = decide(Decision(), desired)
    assert decision == decide(Decision(), DesiredState(plain))
    with_groups, without = compiled(desired, decision), compile_program(plain, decision)
    assert list(map(hardware_entries, with_groups.services)) == list(map(hardware_entries, without.services))
    assert [flow.key for flow in with_groups.flows] == [flow.key for flow in without.flows]
    for made in with_groups.services:
        ports = {hop.port for hop in next_hops(made.service).values()}
        assert all(len(set(output_ports(each.flow.actions))) <= len(ports) for each in made.blocks)
        if len(ports) == 1:
            assert all(len(alternatives(each.flow.actions)) == 1 for each in made.blocks)


def drained(desired: DesiredState, name: BackendName) -> DesiredState:
    """Return what is wanted when this backend has no weight any more."""

    def without_weight(service: Service, backend: Backend) -> Backend:
        return replace(backend, weight=Fraction(0)) if (service.name, backend.name) == name else backend

    return replace(desired, balancer=with_backends(desired.balancer, without_weight))


@given(moments(), st.data())
def test_neither_the_drain_of_a_backend_behind_a_dead_port_nor_its_reset_moves_a_client(
    moment: Moment, data: st.DataObject
) -> None:
    """Of an idle backup neither: it has no clients. Without a weight of any other backend, backups share the clients by
    their weights from then on, which whole blocks did not allow before."""
    desired, decision, dead = moment
    later = replace(after(desired, dead), ramps={})
    decision = decide(decision, later)
    owners, ids = dict(decision.services), service_ids(service.claim for service in later.balancer.services)
    idle = [
        (service.name, each.name)
        for service in later.balancer.services
        for each in service.backends
        if each.weight and (serving := owners[ids[service.claim]].active.owners) and each.name not in serving
        if any(other.weight and not other.is_backup for other in service.backends if other is not each)
    ]
    assume(idle)
    name = data.draw(st.sampled_from(idle))
    during = drained(later, name)
    found = decide(decision, during)
    assert [each.active for _, each in found.services] == [each.active for _, each in decision.services]
    assert decide(found, later) == decision
