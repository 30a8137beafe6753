"""Backends of one service fail and recover at any time: which are ejected, which are held, and for how long."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from tests.driven_agent import DrivenAgent
from tests.strategies import share
from tests.unit import balancer as small
from xenoovs.agent.health import Check, checks_of
from xenoovs.decision.ejection import max_ejected
from xenoovs.model.balancer import AllDown, Health, ProbeKind

TICK_S, INTERVAL_S, TIMEOUT_S = 0.125, 1.0, 0.5
healths = st.builds(
    Health,
    st.just(ProbeKind.ICMP),
    jitter=st.just(Fraction(0)),
    fall=st.integers(1, 3),
    rise=st.integers(1, 2),
    max_down=st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    on_all_down=st.just(AllDown.KEEP),
)


class World:
    """Failing probes last until their timeout. `free_s`: since when max_down allows an ejection; None: it does not."""

    def __init__(self, backends: int, health: Health) -> None:
        plain = small.service(small.claim(), *[1] * backends, name="web")
        made = tuple(replace(b, address=IPv4Address(0xC0000200 + i)) for i, b in enumerate(plain.backends))
        service = replace(plain, backends=made, health=health)
        balancer = small.balancer(service)
        self.health, self.most, self.now = health, max_ejected(backends, health), 0.0
        self.agent = DrivenAgent(balancer, self.now_s)
        self.agent.follow(balancer)
        self.names = {check: name for check, ((_, name),) in checks_of(balancer, ()).backends.items()}
        self.dead: frozenset[str] = frozenset()
        self.waiting: list[tuple[float, float, Check]] = []
        self.failed: dict[str, list[float]] = {name: [] for name in self.names.values()}
        self.out, self.held = frozenset[str](), frozenset[str]()
        self.free_s: float | None = 0.0
        self.dead_s = dict[str, float]()

    def now_s(self) -> float:
        return self.now

    def tick(self) -> None:
        for each in [each for each in self.waiting if each[0] <= self.now]:
            self.waiting.remove(each)
            self.result(each[2], ok=False, sent_s=each[1])
        for check in self.agent.take_due():
            if self.names[check] in self.dead:
                self.waiting.append((self.now + TIMEOUT_S, self.now, check))
            else:
                self.result(check, ok=True, sent_s=self.now)
        self.now += TICK_S

    def result(self, check: Check, *, ok: bool, sent_s: float) -> None:
        failed = self.failed[self.names[check]]
        failed[:] = [] if ok else [*failed, sent_s]
        if self.agent.record(check, ok=ok, sent_s=sent_s) is not None:
            self.round()

    def round(self) -> None:
        """What may have changed since the last one."""
        out, down = self.agent.desired().ejected.get("web", frozenset()), self.agent.down("web")
        assert out <= down
        assert len(out) <= self.most
        for name in self.held & out:
            fresh = [sent_s for sent_s in self.failed[name] if self.free_s is not None and sent_s >= self.free_s]
            assert len(fresh) >= self.health.fall, name
        is_free = len(out) < self.most
        self.free_s = None if not is_free else self.now if self.free_s is None else self.free_s
        self.out, self.held = out, down - out

    def all_dead_are_out(self) -> None:
        """A dead backend is ejected in bounded time, unless max_down is reached."""
        bound_s = self.health.fall * INTERVAL_S + TIMEOUT_S + TICK_S
        if self.free_s is not None:
            for name, since_s in self.dead_s.items():
                assert self.now - max(since_s, self.free_s) <= bound_s or name in self.out, name

    def run(self, dead: frozenset[str], ticks: int) -> None:
        self.dead_s = {name: self.dead_s.get(name, self.now) for name in dead}
        self.dead = dead
        for _ in range(ticks):
            self.tick()
            self.all_dead_are_out()


@share(0.8)
@given(st.integers(2, 5), healths, st.data())
def test_held_backends_are_ejected_only_for_new_failures_and_in_time(
    backends: int, health: Health, data: st.DataObject
) -> None:
    world = World(backends, health)
    names = st.frozensets(st.sampled_from(sorted(world.failed)))
    for dead, ticks in data.draw(st.lists(st.tuples(names, st.integers(1, 60)), max_size=8)):
        world.run(dead, ticks)
