"""The state of an agent is a value: the same events lead to the same state, whatever is queried between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import share
from tests.unit import balancer as small
from xenoovs.agent.health import in_maintenance
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.state import (
    AgentState,
    ConfigFollowed,
    Event,
    Probed,
    Runtime,
    Tick,
    after,
    desired_state,
    step,
)
from xenoovs.decision.ejection import max_ejected
from xenoovs.errors import CompileError
from xenoovs.model.balancer import AT_ONCE, AllDown, Balancer, Drain, DrainMode, Health, Initial, ProbeKind, Protocol
from xenoovs.show.snapshot import Override

FOREIGN = Check(Health(ProbeKind.ICMP), IPv4Address("198.51.100.1"))
PORTS = st.frozensets(st.sampled_from(["p1", "p2"]))
HEALTHS = st.builds(
    Health,
    st.just(ProbeKind.ICMP),
    fall=st.integers(1, 3),
    rise=st.integers(1, 2),
    initial=st.sampled_from(Initial),
    max_down=st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)]),
    on_all_down=st.sampled_from(AllDown),
    ramp_ms=st.sampled_from([None, 4000]),
)


@st.composite
def balancers(draw: st.DrawFn) -> Balancer:
    """Services that share machines: backend number i is the same one in all of them."""
    services = []
    for number in range(draw(st.integers(1, 2))):
        weights = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
        plain = small.service(
            small.claim(protocol=Protocol.TCP, ports=[(80 + number, 80 + number)]), *weights, name=f"s{number}"
        )
        backends = tuple(
            replace(b, address=IPv4Address(i + 1), next_hop=replace(b.next_hop, port=f"p{i % 2 + 1}"))
            for i, b in enumerate(plain.backends)
        )
        health, drain = draw(st.none() | HEALTHS), draw(st.sampled_from([AT_ONCE, Drain(DrainMode.PIN)]))
        services.append(replace(plain, backends=backends, health=health, drain=drain))
    return small.balancer(*services)


@st.composite
def next_events(draw: st.DrawFn, state: AgentState, now_s: float) -> Event:
    """Anything that may happen to this state; mostly results."""
    checks = tuple(state.tracker.checks.backends)
    kind = draw(st.sampled_from([*(["probed"] * 6 if checks else []), "tick", "tick", "tick", "runtime", "config"]))
    if kind == "probed":
        result = ProbeResult(ok=draw(st.integers(0, 2)) == 0, latency_s=draw(st.floats(0, 1)), reason="")
        return Probed(draw(st.sampled_from(checks)), result, sent_s=now_s - draw(st.sampled_from([0.0, 0.5])))
    if kind == "tick":
        return Tick(draw(PORTS))
    balancer = draw(balancers()) if kind == "config" else state.balancer
    names = [(service.name, backend.name) for service in balancer.services for backend in service.backends]
    weights = draw(st.dictionaries(st.sampled_from(names), st.integers(0, 2), max_size=2))
    ends, away = st.none() | st.just(now_s + 1), st.booleans()
    overrides = tuple(
        Override(*name, Fraction(weight), 0.0, until_s=draw(ends), is_maintenance=draw(away))
        for name, weight in sorted(weights.items())
    )
    if kind == "runtime":
        return Runtime(overrides, draw(st.booleans()))
    known = draw(st.dictionaries(st.sampled_from(names), st.sampled_from([Fraction(0), Fraction(3, 8), Fraction(1)])))
    return ConfigFollowed(balancer, overrides, known)


def history(data: st.DataObject) -> Iterator[tuple[AgentState, Event, float]]:
    """Events, each with the state before it and its time."""
    balancer, now_s = data.draw(balancers()), 0.0
    state = AgentState(balancer, balancer)
    event: Event = ConfigFollowed(balancer)
    for _ in range(data.draw(st.integers(1, 25))):
        yield state, event, now_s
        state, _ = step(state, event, now_s)
        now_s += data.draw(st.sampled_from([0.0, 0.1, 2.5]))
        event = data.draw(next_events(state, now_s))


def ask(state: AgentState, now_s: float) -> object:
    """Evaluate every query of a state."""
    tracker = state.tracker
    try:
        return desired_state(state, now_s), state.held, tracker.is_settled
    except CompileError as problem:
        return str(problem)


@share(0.4)
@given(st.data())
def test_the_same_events_lead_to_the_same_state_whatever_is_queried_between(data: st.DataObject) -> None:
    found = list(history(data))
    first, _, _ = found[0]
    plain = asked = first
    for _, event, now_s in found:
        other = data.draw(next_events(asked, now_s))
        answers = ask(asked, now_s)
        trial = after(asked, other, Tick(), now_s=now_s)
        assert ask(asked, now_s) == answers
        assert after(asked, other, Tick(), now_s=now_s) == trial
        once, effects = step(asked, event, now_s)
        assert step(asked, event, now_s) == (once, effects)
        plain, asked = after(plain, event, now_s=now_s), once
    assert plain == asked


@given(st.data())
def test_a_second_tick_and_results_of_checks_that_the_config_does_not_have_change_nothing(data: st.DataObject) -> None:
    """And a backend in maintenance is not probed."""
    for state, _, now_s in history(data):
        result = ProbeResult(ok=data.draw(st.booleans()), latency_s=0.0, reason="")
        assert step(state, Probed(FOREIGN, result, sent_s=now_s), now_s) == (state, ())
        once = after(state, Tick(), now_s=now_s)
        assert after(once, Tick(), now_s=now_s) == once
        out = in_maintenance(state.runtime.overrides)
        away = {(service, name) for service, names in out.items() for name in names}
        assert not away & {*state.tracker.checks.by_backend}


@given(st.data())
def test_ejected_backends_are_down_and_no_more_than_the_limit(data: st.DataObject) -> None:
    for state, event, now_s in history(data):
        if not isinstance(event, Tick):
            continue
        ticked = after(state, event, now_s=now_s)
        before, now = state.tracker.ejections, ticked.tracker.ejections
        for service in ticked.judged:
            if service.health is None or service.name not in now:
                continue
            ejection, weighted = now[service.name], {b.name for b in service.backends if b.weight}
            ejected, most = ejection.ejected & weighted, max_ejected(len(weighted), service.health)
            assert ejection.ejected <= frozenset(ejection.down)
            assert ejection.ejected | ejection.held.keys() == frozenset(ejection.down)
            if service.health.on_all_down is AllDown.DROP:
                assert len(ejected) <= most or ejected == weighted
                continue
            assert len(ejected) <= most
            # An ejected backend stays ejected while it is down, as far as the weights in use allow.
            earlier = before[service.name].ejected if service.name in before else frozenset()
            stay = earlier & frozenset(ejection.down) & weighted
            assert stay <= ejected or len(stay) > most


@given(st.data())
def test_what_is_over_ends_with_the_round_and_maintenance_has_no_clients(data: st.DataObject) -> None:
    for state, event, now_s in history(data):
        if not isinstance(event, Tick):
            continue
        now = after(state, event, now_s=now_s)
        assert not now.is_due(now_s)
        out = in_maintenance(now.runtime.overrides)
        assert all(names <= now.ejected[service] for service, names in out.items())
        unending = {replace(override, until_s=None) for override in state.runtime.overrides}
        assert set(now.runtime.overrides) <= {*state.runtime.overrides, *unending}
        # The end of an override leaves no service without a weight.
        try:
            desired_state(state, now_s)
        except CompileError:
            continue
        desired_state(now, now_s)
