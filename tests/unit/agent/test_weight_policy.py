"""A weight policy is one function from probe results to weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from tests.unit import balancer as small
from xenoovs.agent.health import Signal
from xenoovs.agent.probe.target import ProbeResult
from xenoovs.agent.state import AgentState, ConfigFollowed, Probed, Tick, advertised_weights, after, desired_state
from xenoovs.compile.program import compile_config
from xenoovs.model.balancer import Health, ProbeKind, Service
from xenoovs.show.agent import Override

PLAIN = small.service(small.claim(), 2, 1, 1, name="web")
BACKENDS = tuple(replace(b, address=IPv4Address(i + 1)) for i, b in enumerate(PLAIN.backends))
BALANCER = small.balancer(replace(PLAIN, backends=BACKENDS, health=Health(ProbeKind.ICMP, max_down=Fraction(1))))
FOLLOWED = ConfigFollowed(BALANCER, (Override("web", "b1", Fraction(2), 0.0, Fraction(1)),))
LATENCIES_S = {"b0": 0.004, "b1": 0.001}


def by_latency(service: Service, signals: Mapping[str, Signal]) -> Mapping[str, Fraction]:
    """A backend that answers twice as slowly as the fastest gets half of its weight."""
    smoothed = {name: signal.smoothed_s for name, signal in signals.items() if signal.smoothed_s is not None}
    least_s = min(smoothed.values(), default=0.0)
    parts = {name: Fraction(least_s / smoothed_s) for name, smoothed_s in smoothed.items()}
    return {b.name: b.weight * parts.get(b.name, 1) for b in service.backends}


def measured(state: AgentState) -> AgentState:
    """Two of three backends have answered."""
    checks = state.tracker.checks.by_backend
    results = (
        Probed(checks["web", name], ProbeResult(ok=True, latency_s=latency_s, reason="answered"), sent_s=0.0)
        for name, latency_s in LATENCIES_S.items()
    )
    return after(state, *results, Tick(), now_s=1.0)


def weights(*numbers: Fraction | int) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, numbers))


def test_the_default_policy_takes_the_weights_of_config_and_operators() -> None:
    state = measured(after(AgentState(BALANCER, BALANCER), FOLLOWED, now_s=0.0))
    (service,) = desired_state(state, 1.0).balancer.services
    assert service.weights == weights(2, 2, 1)
    assert advertised_weights(service, {}) == {"b0": 2, "b1": 2, "b2": 1}


def test_a_policy_by_latency_moves_the_weights() -> None:
    state = after(AgentState(BALANCER, BALANCER, policy=by_latency), FOLLOWED, now_s=0.0)
    assert desired_state(state, 0.0).balancer.services[0].weights == weights(2, 2, 1)
    desired = desired_state(measured(state), 1.0)
    assert desired.balancer.services[0].weights == weights(Fraction(1, 2), 2, 1)
    (made,) = compile_config(desired.balancer).services
    first, second, third = made.shares
    assert first < third < second
