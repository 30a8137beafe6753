"""Which blocks keep their open connections, with whom, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import balancer as small
from xenoovs.compile.drain import SETTLE_S, Situation, settle_s, with_drains
from xenoovs.compile.draining import Draining, Rests, drains_of
from xenoovs.compile.offloadable.cost import Cost, check_cost
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Program, compile_program
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer
from xenoovs.model.block_key import BlockKey
from xenoovs.model.drain import AT_ONCE, Drain, DrainMode
from xenoovs.model.next_hop import Direct, NextHop
from xenoovs.model.service import Protocol
from xenoovs.openflow.flow import ObservedFlow

PORTS = {"p0": 1, "p1": 2}
B0, B1, B2 = (Direct(Mac(0x0A0000000000 + number), "p1") for number in range(3))
PIN = Drain(DrainMode.PIN, timeout_ms=60_000, rest_ms=10_000)


def pinning(*weights: int, drain: Drain = PIN, protocol: Protocol | None = Protocol.TCP) -> Balancer:
    return small.balancer(replace(small.service(small.claim(protocol=protocol), *weights), drain=drain))


def seen(program: Program, *, age_s: float = 0.0, packets: int = 0) -> list[ObservedFlow]:
    return [ObservedFlow(flow, packets, 0, age_s) for flow in program.flows]


def moving(before: Program, balancer: Balancer, situation: Situation | None = None, *, age_s: float = 0.0) -> Program:
    target = compile_program(balancer, installed=before.flows)
    return with_drains(target, seen(before, age_s=age_s), situation or Situation(PORTS))


def pins(program: Program) -> list[tuple[NextHop, NextHop]]:
    return [(pin.old, pin.new) for service in program.services for pin in service.pins]


@pytest.fixture
def halves() -> Program:
    """Two backends, each with half of the clients."""
    return compile_program(pinning(1, 1, 0))


@pytest.fixture
def drained(halves: Program) -> Program:
    """All go to b0; b1 keeps what is open."""
    return moving(halves, pinning(1, 0, 0))


def test_clients_that_leave_a_backend_are_kept(drained: Program) -> None:
    assert pins(drained) == [(B1, B0)]


def test_mode_none_moves_at_once(halves: Program) -> None:
    balancer = pinning(1, 0, 0, drain=AT_ONCE)
    target = compile_program(balancer, installed=halves.flows)
    assert with_drains(target, seen(halves), Situation(PORTS)) is target


def test_nothing_is_kept_with_the_dead(halves: Program, drained: Program) -> None:
    dead = Situation(PORTS, out={"s": frozenset({"b1"})})
    assert pins(moving(halves, pinning(1, 0, 0), dead)) == []
    assert pins(moving(drained, pinning(1, 0, 0), dead)) == []


def test_nothing_is_kept_behind_a_port_that_is_gone(halves: Program) -> None:
    assert pins(moving(halves, pinning(1, 0, 0), Situation({"p0": 1}))) == []


@pytest.mark.parametrize(("age_s", "kept"), [(59.9, 1), (60.0, 0)])
def test_the_timeout(drained: Program, age_s: float, kept: int) -> None:
    assert len(pins(moving(drained, pinning(1, 0, 0), age_s=age_s))) == kept


def test_a_backend_that_rests(drained: Program) -> None:
    (pin,) = drained.services[0].pins
    area = drained.services[0].service_id, pin.rule.value, pin.rule.mask
    assert pins(moving(drained, pinning(1, 0, 0), Situation(PORTS, resting=frozenset({area})))) == []


def test_a_second_change_keeps_the_first_backend(drained: Program) -> None:
    assert pins(moving(drained, pinning(0, 0, 1))) == [(B0, B2), (B1, B2)]


def test_a_second_change_after_the_time_is_over_keeps_the_second_backend(drained: Program) -> None:
    assert pins(moving(drained, pinning(0, 0, 1), age_s=60)) == [(B0, B2), (B0, B2)]


def test_when_the_first_backend_dies_the_second_change_keeps_the_second(drained: Program) -> None:
    dead = Situation(PORTS, out={"s": frozenset({"b1"})})
    assert pins(moving(drained, pinning(0, 0, 1), dead)) == [(B0, B2), (B0, B2)]


def opens(program: Program) -> list[NextHop]:
    return [pin.opens for service in program.services for pin in service.pins]


@pytest.mark.parametrize(("age_s", "gets_new"), [(SETTLE_S - 0.1, B1), (SETTLE_S, B0)])
def test_new_connections_stay_until_a_block_has_settled(drained: Program, age_s: float, gets_new: NextHop) -> None:
    assert opens(moving(drained, pinning(1, 0, 0), age_s=age_s)) == [gets_new]


def test_a_block_that_has_settled_does_not_settle_again(drained: Program) -> None:
    """Its flows say so, whatever happened to the flow whose age tells since when."""
    on = moving(drained, pinning(1, 0, 0), age_s=SETTLE_S)
    assert opens(moving(on, pinning(1, 0, 0), age_s=0.0)) == [B0]
    assert pins(moving(on, pinning(0, 0, 1))) == [(B0, B2), (B1, B2)]
    assert opens(moving(on, pinning(0, 0, 1))) == [B0, B2]


def test_who_only_looks_finds_new_connections_where_they_are(drained: Program) -> None:
    looks = Situation(PORTS, settle_s=None)
    assert moving(drained, pinning(1, 0, 0), looks, age_s=30.0).flows == drained.flows


def test_udp_has_nothing_to_settle() -> None:
    before = compile_program(pinning(1, 1, protocol=Protocol.UDP))
    after = moving(before, pinning(1, 0, protocol=Protocol.UDP))
    assert not any(pin.is_settling for service in after.services for pin in service.pins)


@pytest.mark.parametrize(("timeout_ms", "settles_s"), [(60_000, 1.5), (1_000, 0.5)])
def test_when_new_connections_go_on_is_told(timeout_ms: int, settles_s: float) -> None:
    drain = replace(PIN, timeout_ms=timeout_ms)
    after = moving(compile_program(pinning(1, 1, drain=drain)), pinning(1, 0, drain=drain))
    (told,) = drains_of(after, seen(after, age_s=0.5))
    assert told.settles_s == settles_s


@pytest.mark.parametrize(("max_revalidator_ms", "seconds"), [(None, 2.0), (100, 2.0), (500, 2.0), (1500, 6.0)])
def test_blocks_settle_as_long_as_megaflows_may_go_unseen(max_revalidator_ms: int | None, seconds: float) -> None:
    assert settle_s(max_revalidator_ms) == seconds


def stages_of_pin(program: Program) -> list[int]:
    return sorted(flow.priority for flow in program.flows if flow.table == Stage.PIN.table)


@pytest.mark.parametrize(
    ("protocol", "priorities"),
    [
        (Protocol.TCP, [199, 299]),
        (Protocol.UDP, [99]),
        (Protocol.SCTP, [99]),
        (Protocol.ICMP, [99]),
        (None, [99, 199, 299]),
    ],
)
def test_flows_of_each_protocol(protocol: Protocol | None, priorities: list[int]) -> None:
    before = compile_program(pinning(1, 1, protocol=protocol))
    assert stages_of_pin(moving(before, pinning(1, 0, protocol=protocol))) == priorities


def test_a_backend_rests_when_its_counters_do(drained: Program) -> None:
    rests = Rests().after(seen(drained), now_s=100)
    rests = rests.after(seen(drained, packets=5), now_s=105)
    assert not rests.resting(drained, now_s=114.9)
    rests = rests.after(seen(drained, packets=5), now_s=115)
    assert len(rests.resting(drained, now_s=115)) == 1


def test_what_is_told(drained: Program) -> None:
    on = moving(drained, pinning(1, 0, 0), age_s=20.0)
    (told,) = drains_of(on, seen(on, age_s=20.0, packets=4))
    assert told == Draining("s", (("b1", "b0"),), blocks=1, left_s=40.0, connections=0, entries=2)


def test_entries_that_live_longer_are_more(drained: Program) -> None:
    on = moving(drained, pinning(1, 0, 0), age_s=20.0)
    (told,) = drains_of(on, seen(on, age_s=20.0, packets=4), idle_s=300.0)
    assert told.entries == 60


def test_udp_takes_no_entry_for_a_connection() -> None:
    before = compile_program(pinning(1, 1, protocol=Protocol.UDP))
    after = moving(before, pinning(1, 0, protocol=Protocol.UDP))
    (told,) = drains_of(after, seen(after, age_s=1.0, packets=1000))
    assert told.entries == 0


def test_lint_tells_what_it_costs(halves: Program) -> None:
    assert [finding.cost for finding in check_cost(halves)] == [Cost.DRAIN]
    assert check_cost(compile_program(pinning(1, 1, protocol=Protocol.UDP))) == ()


def test_blocks_of_other_bits_move_at_once(halves: Program) -> None:
    (service,) = pinning(1, 0, 0).services
    balancer = small.balancer(replace(service, key=BlockKey(positions=(7, 6, 5, 4, 3, 2, 1, 0))))
    assert pins(moving(halves, balancer)) == []
