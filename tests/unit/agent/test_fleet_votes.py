"""Probes and votes of a DPU in a fleet: it follows the store and moves no client by itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from xenoovs.agent.fleet_checks import SELF_CHECK_MS, FleetWatches, fleet_checks
from xenoovs.agent.fleet_votes import FleetVoter
from xenoovs.agent.probe.target import ProbeResult
from xenoovs.agent.state import AgentState, ConfigFollowed, ProbeAt, Probed, Tick, WatchesChanged, after, step
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState
from xenoovs.model.load import parse_config
from xenoovs.store.view import FleetView, Watch

TARGETS = ["192.0.2.1/tcp/80", "192.0.2.2/tcp/80"]
BALANCER = parse_config(
    """\
version: 1
switch: {bridge: br0, ingress: [p0], egress: p1}
health: {probe: tcp, port: 80}
services:
  - name: web
    vip: 203.0.113.1
    protocol: tcp
    ports: [80]
    backends:
      - {name: b1, mac: 02:00:5e:10:00:01, address: 192.0.2.1, weight: 1}
      - {name: b2, mac: 02:00:5e:10:00:02, address: 192.0.2.2, weight: 1}
""",
    file="x",
)
STORED = {"web": decide(Decision(), DesiredState(BALANCER)).services[0][1]}
FAILED = ProbeResult(ok=False, latency_s=0.1, reason="no answer")


def view(*, witness_of: int = 1, down: tuple[int, ...] = ()) -> FleetView:
    """A view in which d1 is a witness of the first targets."""
    watches = {
        target: Watch(target, frozenset(["d1"] if n < witness_of else ["d2"]), n in down, 0, 5)
        for n, target in enumerate(TARGETS)
    }
    return FleetView("test", 1, 5, 1, 0, watches=watches)


def following(seen: FleetView) -> AgentState:
    state = AgentState(BALANCER, BALANCER)
    watched = WatchesChanged(FleetWatches.of(seen, "d1"))
    return after(state, watched, ConfigFollowed(BALANCER, stored=STORED), now_s=0)


def test_checks_that_were_made_one_after_the_other_are_those_of_the_last_state() -> None:
    """They stay where nothing changes, as most generations change none of thousands."""
    state, (service,) = following(view()), BALANCER.services
    lighter = replace(service, backends=(replace(service.backends[0], weight=Fraction(9)), service.backends[1]))
    other = replace(service, name="other", claim=replace(service.claim, ports=()))
    moved = replace(service, backends=(service.backends[0], replace(service.backends[1], address=IPv4Address(1))))
    for services in (
        (lighter,),
        (lighter, other),
        (moved, other),
        (moved,),
        (replace(moved, health=None),),
        (service,),
    ):
        for seen in (view(), view(witness_of=2), view(down=(0,))):
            watches, balancer = FleetWatches.of(seen, "d1"), replace(BALANCER, services=services)
            state = after(state, WatchesChanged(watches), ConfigFollowed(balancer, stored=STORED), now_s=0)
            assert state.tracker.checks == fleet_checks(balancer, watches)
            followed = after(state, WatchesChanged(watches), ConfigFollowed(balancer, stored=STORED), now_s=0)
            assert followed.tracker.checks is state.tracker.checks
            assert set(state.tracker.health) == set(state.tracker.checks.backends)


def failing(state: AgentState, backend: str, *, times: int) -> AgentState:
    check = state.tracker.checks.by_backend["web", backend]
    return after(state, *[Probed(check, FAILED, 0.0)] * times, now_s=1)


def test_a_witness_probes_at_the_interval_of_the_service_and_others_seldom() -> None:
    state = following(view())
    checks = state.tracker.checks.by_backend
    assert checks["web", "b1"].health.interval_ms == 1000
    assert checks["web", "b2"].health.interval_ms == checks["web", "b2"].health.fast_interval_ms == SELF_CHECK_MS
    assert state.is_settled
    assert not state.tracker.is_settled

    state, effects = step(state, WatchesChanged(FleetWatches.of(view(witness_of=2), "d1")), 1.0)
    assert state.tracker.checks.by_backend["web", "b2"].health.interval_ms == 1000
    # The first one is unchanged.
    assert [each.check.health.interval_ms for each in effects if isinstance(each, ProbeAt)] == [1000]


def test_it_votes_on_its_own_targets_and_moves_no_client() -> None:
    state, voter = following(view()), FleetVoter()
    assert voter.down(state) == frozenset()
    state = failing(failing(state, "b1", times=3), "b2", times=3)
    assert voter.down(state) == {TARGETS[0]}
    state = after(state, Tick(), now_s=2)
    assert state.ejected == {}
    assert state.ramps(2) == {}
    # Ejections of the fleet are shown, whatever this DPU votes.
    other = decide(Decision(), DesiredState(BALANCER, {"web": frozenset({"b2"})})).services[0][1]
    state = after(state, ConfigFollowed(BALANCER, stored={"web": other}), Tick(), now_s=3)
    assert state.ejected == {"web": frozenset({"b2"})}


def test_a_new_witness_votes_as_the_fleet_until_it_has_probed() -> None:
    state, voter = following(view(witness_of=2, down=(1,))), FleetVoter()
    assert voter.down(state) == {TARGETS[1]}
    answered = replace(FAILED, ok=True, reason="answered")
    check = state.tracker.checks.by_backend["web", "b2"]
    once = after(state, Probed(check, answered, 0.0), now_s=1)
    assert voter.down(once) == {TARGETS[1]}
    twice = after(once, Probed(check, answered, 0.0), now_s=1)
    assert voter.down(twice) == frozenset()
