"""Which blocks keep their open connections, with which backend, and for how long."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from tests.unit import balancer as small
from xenoovs.decision.advance import SETTLE_S, Progress, ServiceMove, advance, settle_s
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import BlockMove, Decision, DesiredState, Phase, Transition, split
from xenoovs.model.balancer import AT_ONCE, Balancer, BlockKey, Drain, DrainMode, Protocol

PORTS = ("p0", "p1")
PIN = Drain(DrainMode.PIN, timeout_ms=60_000, idle_timeout_ms=10_000)
DEAD = {"s": frozenset({"b1"})}

State = tuple[Decision, Transition]


def pinning(*weights: int, drain: Drain = PIN, protocol: Protocol | None = Protocol.TCP) -> Balancer:
    return small.balancer(replace(small.service(small.claim(protocol=protocol), *weights), drain=drain))


def go(
    before: State,
    balancer: Balancer,
    *,
    now_s: float = 0.0,
    ports: Collection[str] = PORTS,
    revalidated: Collection[ServiceMove] | None = None,
    ejected: Mapping[str, frozenset[str]] | None = None,
) -> State:
    desired = DesiredState(balancer, ejected or {})
    decision = decide(before[0], desired)
    return decision, advance(before, decision, desired, Progress(now_s, ports, (), SETTLE_S, revalidated))


def moves(state: State) -> list[BlockMove]:
    return [move for _, of in state[1].services for move in of]


def ways(state: State) -> list[tuple[str, str]]:
    """Old and new owner of each moving block."""
    return [
        (move.old, owner)
        for service_id, service in state[0].services
        for _, owner, move in split(service.active, dict(state[1].services).get(service_id, ()))
        if move is not None
    ]


def opens(state: State) -> list[str]:
    """The backend that gets new connections of each moving block."""
    pairs = zip(moves(state), ways(state), strict=True)
    return [old if move.phase is Phase.SETTLING else new for move, (old, new) in pairs]


@pytest.fixture
def halves() -> State:
    """Two backends, each with half of the clients."""
    return go((Decision(), Transition()), pinning(1, 1, 0))


@pytest.fixture
def drained(halves: State) -> State:
    """All clients go to b0; b1 keeps its open connections."""
    return go(halves, pinning(1, 0, 0))


OTHER_BITS = replace(pinning(1, 0, 0).services[0], key=BlockKey(positions=(7, 6, 5, 4, 3, 2, 1, 0)))


@pytest.mark.parametrize(
    ("changed", "ports"),
    [(pinning(1, 0, 0, drain=AT_ONCE), PORTS), (pinning(1, 0, 0), ("p0",)), (small.balancer(OTHER_BITS), PORTS)],
    ids=["mode none", "a port that is gone", "blocks of other bits"],
)
def test_what_moves_at_once(halves: State, changed: Balancer, ports: Collection[str]) -> None:
    assert ways(go(halves, changed, ports=ports)) == []


@pytest.mark.parametrize(("now_s", "ejected"), [(60.0, {}), (0.0, DEAD)], ids=["its time is over", "it is dead"])
def test_a_second_change_keeps_the_second_backend_where_the_first_keeps_nothing(
    drained: State, now_s: float, ejected: Mapping[str, frozenset[str]]
) -> None:
    assert ways(go(drained, pinning(0, 0, 1), now_s=now_s, ejected=ejected)) == [("b0", "b2"), ("b0", "b2")]


def test_clients_that_come_back_in_their_drain_need_not_settle(drained: State) -> None:
    """Connections opened to the other backend meanwhile stay there, so the drain of the block has not ended."""
    back = go(drained, pinning(1, 1, 0), now_s=0.5)
    assert ways(back) == [("b1", "b1")]
    assert [move.phase for move in moves(back)] == [Phase.OPEN]


@pytest.mark.parametrize(("now_s", "gets_new"), [(SETTLE_S - 0.1, "b1"), (SETTLE_S, "b0")])
def test_new_connections_stay_until_a_block_has_settled(drained: State, now_s: float, gets_new: str) -> None:
    assert opens(go(drained, pinning(1, 0, 0), now_s=now_s)) == [gets_new]


def test_new_connections_stay_until_megaflows_were_revalidated_however_long_it_takes(drained: State) -> None:
    """A move that began after the revalidation is not among the moves that it covers."""
    before, later = moves(drained), [replace(move, since_s=1.0) for move in moves(drained)]
    (service_id,) = dict(drained[1].services)
    for covered, gets_new in ((before, "b0"), (later, "b1"), ([], "b1")):
        of = frozenset((service_id, move) for move in covered)
        assert opens(go(drained, pinning(1, 0, 0), now_s=60 * SETTLE_S / 4, revalidated=of)) == [gets_new]


def test_a_block_that_has_settled_does_not_settle_again(drained: State) -> None:
    """Also when it goes on to a third backend, or the time of the clock goes back."""
    on = go(drained, pinning(1, 0, 0), now_s=SETTLE_S)
    assert opens(go(on, pinning(1, 0, 0), now_s=0.0)) == ["b0"]
    third = go(on, pinning(0, 0, 1))
    assert ways(third) == [("b0", "b2"), ("b1", "b2")]
    assert opens(third) == ["b0", "b2"]


@pytest.mark.parametrize(("now_s", "gets_new"), [(1.0, "b1"), (1.0 + SETTLE_S, "b0")])
def test_clients_that_came_back_before_they_had_settled_settle_in_the_next_drain(
    drained: State, now_s: float, gets_new: str
) -> None:
    """Else a megaflow from before both drains, made by the SYN of an open connection, would move this connection."""
    back = go(drained, pinning(1, 1, 0), now_s=0.5)
    again = go(back, pinning(1, 0, 0), now_s=1.0)
    assert ways(again) == [("b1", "b0")]
    assert opens(go(again, pinning(1, 0, 0), now_s=now_s)) == [gets_new]


def test_udp_has_nothing_to_settle() -> None:
    before = go((Decision(), Transition()), pinning(1, 1, protocol=Protocol.UDP))
    after = go(before, pinning(1, 0, protocol=Protocol.UDP))
    assert [move.phase for move in moves(after)] == [Phase.OPEN]


@pytest.mark.parametrize(("max_revalidator_ms", "seconds"), [(None, 2.0), (100, 2.0), (500, 2.0), (1500, 6.0)])
def test_blocks_settle_as_long_as_megaflows_may_be_out_of_date(max_revalidator_ms: int | None, seconds: float) -> None:
    assert settle_s(max_revalidator_ms) == seconds
