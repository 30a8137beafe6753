"""An agent without its event loop on a switch in memory, with a clock that is turned by hand."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from ipaddress import IPv4Address

from tests.driven_agent import DrivenAgent
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.switch_model import apply_bundle, table_of
from tests.unit import balancer as small
from xenoovs.agent.overrides import OverrideAction, OverrideRequest, merge, require_possible, with_requests
from xenoovs.agent.state import Runtime, with_overrides
from xenoovs.compile.read import is_of_drain
from xenoovs.decision.ejection import Ejected, Ramps
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import CompileError, RequestRefused, XenoovsError
from xenoovs.model.balancer import AT_ONCE, AllDown, Balancer, Drain, DrainMode, Health, ProbeKind, Protocol
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_dump
from xenoovs.show.snapshot import Override

RESYNC_S, RETRY_S = 10.0, 0.5
FOREIGN = [
    each.flow
    for each in parse_dump(
        " cookie=0x5, table=0, priority=5000,arp actions=NORMAL\n cookie=0x0, table=1, priority=7,udp actions=drop\n"
    )
]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the services of a world have in common."""

    max_down: Fraction
    on_all_down: AllDown
    ramp_ms: int | None
    is_pinning: bool

    def balancer(self, *weights: tuple[int, ...]) -> Balancer:
        """One service for each tuple; backend number i is the same machine in all of them."""
        health = Health(
            ProbeKind.ICMP,
            jitter=Fraction(0),
            fall=2,
            ramp_ms=self.ramp_ms,
            max_down=self.max_down,
            on_all_down=self.on_all_down,
        )
        drain = Drain(DrainMode.PIN, timeout_ms=6000, idle_timeout_ms=3000) if self.is_pinning else AT_ONCE
        made = []
        for number, of_one in enumerate(weights):
            claim = small.claim(protocol=Protocol.TCP, ports=[(80 + number, 80 + number)])
            plain = small.service(claim, *of_one, name=f"s{number}")
            backends = tuple(replace(b, address=IPv4Address(int(b.name[1:]) + 1)) for b in plain.backends)
            made.append(replace(plain, backends=backends, health=health, drain=drain))
        return small.balancer(*made)


class AgentWorld:
    """`settled`: the flows when all was well last; None: config or overrides have changed since."""

    def __init__(self, balancer: Balancer) -> None:
        self.switch = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))
        self.switch.install("ovsbr1", FOREIGN)
        self.balancer, self.overrides = balancer, tuple[Override, ...]()
        self.dead: set[int] = set()
        self.now = 0.0
        self.settled: set[Flow] | None = None
        self.out: Ejected = {}
        self.start_agent()

    def now_s(self) -> float:
        return self.now

    def start_agent(self) -> None:
        """As after a kill: only the config, the overrides and the flows of the switch are known."""
        self.engine, self.next_s, self.wanted, self.urgent = Engine(self.switch), self.now, True, False
        self.agent = DrivenAgent(self.balancer, self.now_s)
        self.ramps: Ramps = {}
        self.has_round = False
        self.follow()

    def follow(self) -> None:
        """As Reloader.follow and follow_if_blind."""
        self.is_blind, known = True, dict[tuple[str, str], Fraction]()
        with suppress(XenoovsError):
            known = dict(self.engine.known(with_overrides(self.balancer, self.overrides)))
            self.is_blind = False
        self.agent.follow(self.balancer, self.overrides, known)

    def run(self, seconds: float) -> None:
        """Let time pass: probes at their times, and rounds whenever there is a reason for one."""
        end = self.now + seconds
        while self.now < end:
            due_s = self.agent.queue.next_due_s
            moment = min(end, self.now + 0.25, end if due_s is None else max(due_s, self.now + 0.01))
            self.switch.age("ovsbr1", moment - self.now)
            self.now = moment
            self.tick()

    def tick(self) -> None:
        for check in self.agent.take_due():
            ok = int(check.address) - 1 not in self.dead
            change = self.agent.record(check, ok=ok, sent_s=self.now)
            self.wanted = self.urgent = self.wanted or change is not None
        if not self.agent.state.tracker.is_settled:
            return
        is_reason = self.wanted or self.agent.state.ramps(self.now) != self.ramps or self.engine.is_lost("ovsbr1")
        if is_reason or self.now >= self.next_s:
            self.round()

    def round(self) -> Change | None:
        """None: it failed, and the bridge has the flows of before or of after."""
        before = self.ours()
        if self.is_blind:
            self.follow()
        desired = self.agent.desired()
        self.ramps, self.wanted, self.out = desired.ramps, False, desired.ejected
        urgent, self.urgent = self.urgent, False
        try:
            self.engine.count_drains(now_s=self.now)
            done = self.engine.round(desired, now_s=self.now, urgent=urgent)
        except XenoovsError:
            self.next_s, self.wanted = self.now + RETRY_S, True
            lost = len(self.switch.applied) and self.ours() != before
            assert not lost or self.has_applied(before)
            return None
        self.has_round = True
        self.next_s = self.now + (RESYNC_S if done.next_s is None else done.next_s)
        program = self.engine.program
        assert program is not None
        # An urgent round relies on unchanged flows; the next one compares.
        assert urgent or self.ours() == set(program.flows)
        return done

    def has_applied(self, before: set[Flow]) -> bool:
        """Whether the bridge has its previous flows and the last bundle, whole."""
        _, bundle = self.switch.applied[-1]
        return set(apply_bundle(table_of(before), bundle).values()) == self.ours()

    def set_weight(self, service: int, backend: int, weight: int | None) -> None:
        """As an operator does; what is refused changes nothing."""
        tracker = self.agent.state.tracker
        try:
            action = OverrideAction.RESET if weight is None else OverrideAction.WEIGHT
            found = self.requested(action, service, backend, Fraction(weight or 0)).overrides
            require_possible(tracker, self.balancer, found, instead_of=self.overrides)
        except XenoovsError:
            return
        if found != self.overrides:
            self.settled = None
        self.overrides, self.wanted = found, True
        self.agent.store.dispatch(Runtime(found))

    def set_maintenance(self, service: int, backend: int, *, is_on: bool) -> None:
        """As an operator does. It moves clients for a time alone: `settled` stays, unless a weight ends with it."""
        with suppress(RequestRefused):
            found = self.requested(OverrideAction.MAINTENANCE if is_on else OverrideAction.RESET, service, backend)
            ended = {*self.overrides} - {*found.overrides} if not is_on else set()
            if any(each.weight != each.configured for each in ended):
                self.settled = None
            self.overrides, self.wanted = found.overrides, True
            self.agent.store.dispatch(found)

    def requested(self, action: OverrideAction, service: int, backend: int, weight: Fraction = Fraction(0)) -> Runtime:
        asked, balancer = OverrideRequest(action, f"b{backend}", f"s{service}", weight), self.balancer
        runtime = Runtime(self.overrides)
        return with_requests(runtime, balancer, [asked], resolved=balancer, utc_s=0.0, now_s=0.0)[0]

    def end_maintenance(self) -> None:
        for each in self.overrides:
            if each.is_maintenance:
                self.set_maintenance(int(each.service[1:]), int(each.backend[1:]), is_on=False)

    def reload(self, balancer: Balancer) -> None:
        """Another config, with what is left of the overrides."""
        remaining = merge(self.overrides, balancer, old=self.balancer).remaining
        try:
            require_possible(self.agent.state.tracker, balancer, remaining)
        except CompileError:
            remaining = ()
        if balancer != self.balancer or remaining != self.overrides:
            self.settled = None
        self.balancer, self.overrides, self.wanted = balancer, remaining, True
        self.follow()

    def ours(self) -> set[Flow]:
        return {flow for flow in self.everything() if flow not in FOREIGN}

    def everything(self) -> list[Flow]:
        return [seen.flow for seen in self.switch.all_flows("ovsbr1").values()]

    def held(self) -> set[tuple[str, str]]:
        """Service and backend of each backend that is down and still has clients."""
        return {(service, name) for service, names in self.agent.state.held.items() for name in names}

    def is_calm(self) -> bool:
        """All backends answer and have all of their clients, and nothing waits."""
        return not (
            self.dead
            or self.ramps
            or self.wanted
            or any(self.out.values())
            or any(map(is_of_drain, self.ours()))
            or self.agent.state.ramps(self.now)
        )
