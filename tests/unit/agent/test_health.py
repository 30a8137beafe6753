"""Health: how many are ejected at once, slow starts, the probes that are made, and dead ports and remotes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from itertools import pairwise
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driven_agent import DrivenAgent
from tests.switch_tunnels import GENEVE, behind_tunnels
from tests.unit import balancer as small
from xenoovs.agent.bridge_watch import with_earlier_sessions
from xenoovs.agent.health import (
    BackendHealth,
    Checks,
    HealthChange,
    HealthTracker,
    checks_of,
    initial_health,
    with_result,
)
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.snapshot_builder import service_views
from xenoovs.agent.state import (
    AgentState,
    BridgePorts,
    ConfigFollowed,
    Probed,
    Tick,
    after,
    step,
)
from xenoovs.controller.server import port_states
from xenoovs.datapath.database import PortState
from xenoovs.decision.ejection import (
    Ejection,
    SlowStarts,
    decide_ejections,
    ramps,
    update_slow_starts,
    with_dead_ports,
)
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Backend, Balancer, Health, Initial, ProbeKind, Protocol, Service
from xenoovs.model.next_hop import Direct, Translated
from xenoovs.model.tunnel import Bfd, TunnelPorts
from xenoovs.openflow.wire.message import Port
from xenoovs.partition.change import STEPS

HEALTH = Health(ProbeKind.ICMP, fall=1, jitter=Fraction(0))
VIP = IPv4Address("192.0.2.1")


def service(name: str, *weights: int, port: int, health: Health | None = HEALTH) -> Service:
    made = small.service(small.claim(VIP, protocol=Protocol.TCP, ports=[(port, port)]), *weights, name=name)
    backends = tuple(replace(b, address=IPv4Address(0xC0000210 + i)) for i, b in enumerate(made.backends))
    return replace(made, backends=backends, health=health)


class Driven(DrivenAgent):
    """An agent at a time that the test sets."""

    def __init__(self, balancer: Balancer) -> None:
        self.now = 0.0
        super().__init__(balancer, lambda: self.now)
        self.follow(balancer)

    def due(self, now_s: float) -> list[Check]:
        self.now = now_s
        return self.take_due()

    def answer(self, check: Check, *, ok: bool, sent_s: float, now_s: float) -> HealthChange | None:
        self.now = now_s
        return self.record(check, ok=ok, sent_s=sent_s)


@pytest.mark.parametrize(
    ("second", "is_shared"),
    [(HEALTH, True), (replace(HEALTH, max_down=Fraction(1)), True), (replace(HEALTH, fall=2), False), (None, False)],
    ids=["the same", "another max_down", "another fall", "none"],
)
def test_services_with_the_same_settings_share_a_probe_and_its_result(
    second: Health | None, *, is_shared: bool
) -> None:
    one = Driven(small.balancer(service("a", 0, 1, port=80), service("b", 0, 1, port=81, health=second)))
    first, *others = one.due(0.0)
    assert len(others) == (second is not None and not is_shared)
    change = one.answer(first, ok=False, sent_s=0.0, now_s=0.1)
    assert change is not None
    assert change.backends == (("a", "b1"), *[("b", "b1")] * is_shared)


def crowd(backends: int, *, jitter: Fraction) -> Driven:
    return Driven(small.balancer(service("a", *[1] * backends, port=80, health=replace(HEALTH, jitter=jitter))))


def busiest(one: Driven, *, seconds: int, apart_ms: int = 10) -> int:
    """The most probes that are due within so many milliseconds, after the first ones."""
    counts = []
    for moment in range(0, 1000 * seconds, apart_ms):
        due = one.due(moment / 1000)
        for check in due:
            one.answer(check, ok=True, sent_s=moment / 1000, now_s=moment / 1000)
        counts.append(len(due))
    return max(counts[1000 // apart_ms :])


def test_probes_of_many_backends_do_not_go_in_bursts() -> None:
    assert busiest(crowd(500, jitter=Fraction(1, 10)), seconds=10) < 25
    assert busiest(crowd(50, jitter=Fraction(0)), seconds=10) == 50


def test_bug_backends_without_an_address_and_virtual_hosts_were_probed_in_one_burst() -> None:
    """The seed of a check had no MAC and no host: all jitter was equal, and a dictionary of checks one long chain."""
    by_mac = [Check(Health(ProbeKind.ARP, interface="en0"), VIP, Mac(number)) for number in range(100)]
    hosts = [replace(Health(ProbeKind.HTTP, 80), host=f"w{number}.example") for number in range(100)]
    assert len({check.seed for check in (*by_mac, *(Check(host, VIP) for host in hosts))}) == 200


def test_jitter_only_shortens_and_is_the_same_in_every_run() -> None:
    pauses = []
    for _ in range(2):
        one, asked = crowd(1, jitter=Fraction(1, 10)), []
        for _ in range(50):
            due_s = one.queue.next_due_s
            assert due_s is not None
            (check,) = one.due(due_s)
            one.answer(check, ok=True, sent_s=due_s, now_s=due_s)
            asked.append(due_s)
        pauses.append([round(later - earlier, 9) for earlier, later in pairwise(asked)])
    assert pauses[0] == pauses[1]
    assert len(set(pauses[0])) == 49
    assert 0.9 <= min(pauses[0][1:]) < 0.92
    assert 0.98 < max(pauses[0][1:]) <= 1.0


def test_more_than_a_hundred_new_backends_are_probed_a_hundred_at_a_time() -> None:
    one = crowd(250, jitter=Fraction(0))
    assert [len(one.due(moment)) for moment in (0.0, 0.05, 0.1, 0.2, 0.3)] == [100, 0, 100, 50, 0]


def test_a_probe_is_not_started_again_before_its_result_also_if_its_check_goes_and_returns() -> None:
    one, none = crowd(1, jitter=Fraction(0)), small.balancer(service("a", 1, port=80, health=None))
    (check,) = one.due(0.0)
    assert one.due(100.0) == []
    for balancer in (none, small.balancer(service("a", 1, port=80))):
        one.follow(balancer)
    one.answer(check, ok=True, sent_s=0.0, now_s=100.3)
    asked = 0
    for moment in range(1000, 1100):
        for due in one.due(moment / 10):
            asked += 1
            one.answer(due, ok=True, sent_s=moment / 10, now_s=moment / 10)
    assert asked == 10


TCP_HEALTH = Health(ProbeKind.TCP, 80, rise=2, fall=3)

healths = st.builds(
    lambda rise, fall, initial: replace(TCP_HEALTH, rise=rise, fall=fall, initial=initial),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(Initial),
)
results = st.lists(st.booleans(), max_size=40)


def result(*, ok: bool, latency_s: float = 0.0) -> ProbeResult:
    return ProbeResult(ok=ok, latency_s=latency_s, reason="")


def walk(health: Health, answers: list[bool], *, remembered_up: bool | None) -> list[BackendHealth]:
    check = Check(health, IPv4Address("192.0.2.1"))
    found = [initial_health(health, remembered_up=remembered_up, due_s=0.0, now_s=0.0)]
    for moment, ok in enumerate(answers, 1):
        found.append(with_result(found[-1], check, result(ok=ok), sent_s=float(moment), now_s=float(moment)))
    return found


@given(healths, st.booleans(), results)
def test_a_state_changes_after_enough_contradictions_in_a_row(
    health: Health, remembered_up: bool, answers: list[bool]
) -> None:
    states = walk(health, answers, remembered_up=remembered_up)
    for index, (before, now) in enumerate(itertools.pairwise(states), 1):
        needed = health.fall if before.is_up else health.rise
        last = answers[max(0, index - needed) : index]
        is_run = len(last) == needed and all(ok != before.is_up for ok in last)
        # The results in a row must belong to this state: earlier ones do not count again.
        is_run = is_run and index - needed >= before.since_s
        assert (now.is_up != before.is_up) == is_run
        assert now.since_s == (index if is_run else before.since_s)


@given(st.integers(1, 6), st.integers(1, 1000), st.integers(1, 1000))
def test_a_silent_backend_is_down_within_the_documented_time(fall: int, fast_ms: int, timeout_ms: int) -> None:
    """interval + (fall - 1) · pause + timeout; the pause is fast_interval, or the timeout where that is longer."""
    health = replace(
        TCP_HEALTH, fall=fall, jitter=Fraction(0), interval_ms=1000, fast_interval_ms=fast_ms, timeout_ms=timeout_ms
    )
    check = Check(health, IPv4Address("192.0.2.1"))
    # The backend fails right after it has answered, at 0.
    state = initial_health(health, remembered_up=True, due_s=0.0, now_s=0.0)
    state = with_result(state, check, result(ok=True), sent_s=0.0, now_s=0.0)
    now_s = 0.0
    while state.is_up:
        sent_s, now_s = state.due_s, state.due_s + timeout_ms / 1000
        state = with_result(state, check, result(ok=False), sent_s=sent_s, now_s=now_s)
    longest_ms = 1000 + (fall - 1) * max(fast_ms, timeout_ms) + timeout_ms
    assert abs(now_s - longest_ms / 1000) < 1e-6


@pytest.mark.parametrize(("others", "is_up"), [(Fraction(1, 2), True), (Fraction(0), False)])
def test_a_server_of_several_services_begins_up_only_if_all_of_them_used_it(others: Fraction, is_up: bool) -> None:
    check = Check(TCP_HEALTH, IPv4Address("192.0.2.1"))
    checks = Checks(backends={check: (("web", "a"), ("dns", "a"))})
    tracker = HealthTracker().with_checks(checks, {("web", "a"): Fraction(1, 2), ("dns", "a"): others}, 0.0)
    assert tracker.health[check].is_up is is_up


def test_a_held_backend_that_came_up_and_fails_anew_between_two_decisions_is_ejected() -> None:
    two = replace(small.service(small.claim(), 1, 1), health=replace(HEALTH, max_down=Fraction(1, 2)))
    both = decide_ejections(Ejection({"b0": 0.0, "b1": 0.0}), two, {}, now_s=0.0)
    assert (sorted(both.ejected), sorted(both.held)) == (["b0"], ["b1"])
    assert decide_ejections(both.with_down({"b1": 7.0}), two, {}, now_s=7.0).ejected == {"b1"}


@pytest.mark.parametrize(
    ("fallen", "dead", "ejected"),
    [
        ("", "", ""),
        ("", "p2", "bc"),
        ("", "p1", "a"),
        ("b", "p1", "ab"),
        ("a", "p2", "abc"),
        ("as", "p2", "as"),
        ("", "p1 p2", "abc"),
        ("", "p1 p2 p3", ""),
        ("s", "p1 p2", "s"),
        ("abc", "p1", "abc"),
        ("", "p9", ""),
    ],
)
def test_backends_behind_dead_ports_are_ejected_as_long_as_one_is_left(fallen: str, dead: str, ejected: str) -> None:
    """Also if that is a backup, unless it is down."""
    named = (("a", 1, "p1"), ("b", 1, "p2"), ("c", 1, "p2"), ("unused", 0, "p1"), ("s", 1, "p3"))
    backends = tuple(
        Backend(name, Direct(Mac(n), egress), Fraction(weight), is_backup=name == "s")
        for n, (name, weight, egress) in enumerate(named)
    )
    one = replace(small.service(small.claim(), name="web"), backends=backends)
    found = with_dead_ports({"web": frozenset(fallen)} if fallen else {}, [one], frozenset(dead.split()))
    assert found == ({"web": frozenset(ejected)} if ejected else {})


def test_a_backend_that_was_out_before_a_restart_starts_slowly_when_it_answers() -> None:
    """If the switch did not answer at first, the backend got all clients at once."""
    ramped = small.balancer(replace(small.service(small.claim(), 1, 1), health=Health(ProbeKind.ICMP, ramp_ms=7000)))
    known = {("s", "b0"): Fraction(1), ("s", "b1"): Fraction(0)}
    slow = update_slow_starts(SlowStarts(), ramped, {}, known=known, now_s=5)
    assert ramps(slow, ramped, now_s=5) == {("s", "b1"): Fraction(1, STEPS)}


def test_the_share_during_a_slow_start_is_one_that_blocks_can_give() -> None:
    one = small.balancer(small.service(small.claim(), 2, 1, 1))
    (service,) = service_views(AgentState(one, one), ramps={("s", "b1"): Fraction(1, 2)})
    shares = [backend.target_share for backend in service.backends]
    assert shares == pytest.approx([0.875 * 2 / 3, 0.125, 0.875 / 3])
    assert service.backends[1].weight_in_use == 0.5


@pytest.mark.parametrize(
    ("health", "ports"),
    [
        (Health(ProbeKind.TCP), [8080, 8081, 80]),
        (Health(ProbeKind.TCP, 7), [7, 7, 7]),
        (Health(ProbeKind.ICMP), [None] * 3),
    ],
    ids=["tcp", "tcp with a port", "icmp"],
)
def test_each_backend_is_tried_where_it_serves(health: Health, ports: list[int | None]) -> None:
    one = service("web", 1, 1, 1, port=80, health=health)
    hops = (Translated(Mac(n), "p1", IPv4Address(n), port) for n, port in enumerate((8080, 8081, None)))
    backends = tuple(replace(b, next_hop=hop) for b, hop in zip(one.backends, hops, strict=True))
    found = checks_of(small.balancer(replace(one, backends=backends)), ()).by_backend.values()
    assert [check.health.port for check in found] == ports


WATCHED = behind_tunnels(replace(GENEVE, ports=TunnelPorts.EACH, bfd=Bfd()))
FIRST, SECOND = sorted(WATCHED.bfd_ports)
UP = {"state": "up", "forwarding": "true", "flap_count": "1", "diagnostic": "No Diagnostic"}
GONE = {"state": "down", "forwarding": "false", "flap_count": "2", "diagnostic": "Control Detection Time Expired"}
NEVER = {"state": "down", "forwarding": "false", "flap_count": "0", "diagnostic": "No Diagnostic"}
FAR_END = UP | {"forwarding": "false", "flap_count": "2", "remote_diagnostic": "Concatenated Path Down"}


def ports(**status: dict[str, str]) -> dict[str, dict[str, PortState]]:
    named = {"first": FIRST, "second": SECOND}
    states = (PortState(named[name], 1, "geneve", bfd_status=found) for name, found in status.items())
    return {"ovsbr1": {state.name: state for state in states}}


def ejected(seen: BridgePorts, *, watched: bool = True) -> frozenset[str]:
    balancer = WATCHED if watched else behind_tunnels(replace(GENEVE, ports=TunnelPorts.EACH))
    state = after(AgentState(balancer, balancer), seen, Tick(), now_s=0.0)
    return state.ejected.get("web", frozenset())


@pytest.mark.parametrize(
    ("first", "second", "out"),
    [(UP, UP, ""), (GONE, UP, "b1"), (UP, FAR_END, "b2"), (NEVER, UP, ""), ({}, UP, ""), (GONE, GONE, "")],
    ids=["up", "gone", "the other end cannot forward", "never up", "no session", "all gone: the fault is here"],
)
def test_which_backends_are_left_for_a_config_with_bfd(first: dict[str, str], second: dict[str, str], out: str) -> None:
    seen = ports(first=first, second=second)
    assert ejected(BridgePorts(seen)) == ejected(BridgePorts(seen, "the database does not answer")) == {*out.split()}
    assert ejected(BridgePorts(seen), watched=False) == frozenset()


def test_a_dead_remote_stays_dead_when_open_vswitch_restarts() -> None:
    """Its new session was never up. One that is up counts again, and so does the next outage of it."""
    dead = ports(first=GONE, second=UP)
    restarted = with_earlier_sessions(dead, ports(first=NEVER, second=NEVER))
    assert ejected(BridgePorts(restarted)) == {"b1"}
    back = with_earlier_sessions(restarted, ports(first=UP, second=UP))
    assert ejected(BridgePorts(back)) == frozenset()
    assert with_earlier_sessions(back, dead) == dead


@pytest.mark.parametrize(("state", "out"), [(0b100, ""), (0b000, "b1"), (0b001, "b1")], ids=["live", "bfd", "link"])
def test_a_controller_knows_by_the_bit_that_groups_go_by(state: int, out: str) -> None:
    seen = port_states(Mock(ports=(Port(1, FIRST, 1, state=state), Port(2, SECOND, 2, state=0b100))))
    assert seen is not None
    assert ejected(BridgePorts({"ovsbr1": seen})) == {*out.split()}


def test_a_port_without_link_and_one_without_bfd_have_their_own_reasons() -> None:
    seen = BridgePorts(ports(first=GONE, second=UP))
    state = after(AgentState(WATCHED, WATCHED), seen, Tick(frozenset({SECOND})), now_s=0.0)
    assert [state.why_dead(port) for port in sorted(state.dead_ports)] == [
        f"BFD of port {FIRST} is down",
        f"port {SECOND} has no link",
    ]


def test_bug_a_probe_that_was_sent_into_a_dead_port_ejected_its_backend_once_more() -> None:
    """It failed when the port was live again, so that clients came back, left and came back."""
    (watched,) = WATCHED.services
    backends = tuple(replace(each, address=IPv4Address(n)) for n, each in enumerate(watched.backends, 0xC0000201))
    asked = replace(watched, health=Health(ProbeKind.TCP, 80, fall=1), backends=backends)
    balancer = replace(WATCHED, services=(asked,))
    dead, live = (BridgePorts(ports(first=first, second=UP)) for first in (GONE, UP))
    state = after(AgentState(balancer, balancer), ConfigFollowed(balancer), live, now_s=0)
    check = state.tracker.checks.by_backend["web", "b1"]
    ok, failed = (ProbeResult(ok=good, latency_s=0.1, reason="") for good in (True, False))
    state = after(state, Probed(check, ok, 0.0), dead, now_s=1.0)
    state = after(state, live, now_s=2.0)
    state, effects = step(state, Probed(check, failed, 1.5), 2.5)
    assert (effects, state.tracker.health[check].due_s) == ((check,), 2.5)
    assert after(state, Tick(), now_s=2.5).ejected == {}
    assert after(state, Probed(check, failed, 2.5), Tick(), now_s=3.0).ejected == {"web": {"b1"}}
