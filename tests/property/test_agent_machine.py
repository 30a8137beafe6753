"""Any event may happen to an agent at any time: invariants during it, and when all is well again."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.compiled import decided
from tests.property.agent_world import FOREIGN, AgentWorld, Rules
from tests.strategies import share
from xenoovs.agent.health import in_maintenance
from xenoovs.compile.pipeline import Stage
from xenoovs.decision.decision import Blocks
from xenoovs.errors import CommandTimeout, SwitchUnreachable
from xenoovs.model.balancer import AllDown, service_ids
from xenoovs.openflow.flow import Flow

RULES = st.builds(
    Rules,
    max_down=st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(3, 5), Fraction(1)]),
    on_all_down=st.sampled_from(AllDown),
    ramp_ms=st.sampled_from([None, 4000]),
    is_pinning=st.booleans(),
)
WEIGHTS = st.lists(st.integers(0, 4), min_size=2, max_size=4).filter(any).map(tuple)
SERVICES = st.lists(WEIGHTS, min_size=1, max_size=2)
MACHINES, SECONDS = st.integers(0, 3), st.sampled_from([0.3, 1.0, 2.5, 7.0])


class AgentMachine(RuleBasedStateMachine):
    world: AgentWorld
    chosen: Rules

    @initialize(rules=RULES, services=SERVICES)
    def begin(self, rules: Rules, services: list[tuple[int, ...]]) -> None:
        self.chosen = rules
        self.world = AgentWorld(rules.balancer(*services))
        self.world.run(1)

    @rule(machine=MACHINES, times=st.sampled_from((1, 1, 1, 2, 3, 5)), seconds=SECONDS)
    def dies_or_answers_and_flaps(self, machine: int, times: int, seconds: float) -> None:
        for _ in range(times):
            self.world.dead ^= {machine}
            self.world.run(seconds / times)

    @rule(services=SERVICES, seconds=SECONDS)
    def config_changes(self, services: list[tuple[int, ...]], seconds: float) -> None:
        self.world.reload(self.chosen.balancer(*services))
        self.world.run(seconds)

    @rule(service=st.integers(0, 1), machine=MACHINES, weight=st.none() | st.integers(0, 3), seconds=SECONDS)
    def operator_weighs(self, service: int, machine: int, weight: int | None, seconds: float) -> None:
        self.world.set_weight(service, machine, weight)
        self.world.run(seconds)

    @rule(service=st.integers(0, 1), machine=MACHINES, is_on=st.booleans(), seconds=SECONDS)
    def operator_maintains(self, service: int, machine: int, *, is_on: bool, seconds: float) -> None:
        self.world.set_maintenance(service, machine, is_on=is_on)
        self.world.run(seconds)

    @rule(seconds=SECONDS, is_silent=st.booleans())
    def agent_is_killed(self, seconds: float, *, is_silent: bool) -> None:
        """The agent restarts, possibly while the switch does not answer."""
        if is_silent:
            self.world.switch.fail_next(SwitchUnreachable(target="br", reason="it restarts"))
        self.world.start_agent()
        self.world.run(seconds)

    @precondition(lambda self: self.world.has_round)
    @rule(seconds=SECONDS)
    def switch_restarts(self, seconds: float) -> None:
        self.world.switch.restart("ovsbr1")
        self.world.switch.install("ovsbr1", FOREIGN)
        self.world.run(seconds)

    @precondition(lambda self: self.world.has_round)
    @rule(number=st.integers(0, 50))
    def another_program_deletes_a_flow(self, number: int) -> None:
        ours = sorted(self.world.ours(), key=str)
        self.world.switch.remove_flow("ovsbr1", ours[number % len(ours)].key)
        self.world.run(11)

    @rule(is_lost=st.booleans(), machine=MACHINES)
    def switch_fails_once(self, is_lost: bool, machine: int) -> None:
        if is_lost:
            self.world.switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
        else:
            self.world.switch.fail_next(SwitchUnreachable(target="br", reason="it restarts"))
        self.world.dead ^= {machine}
        self.world.run(4)

    @precondition(lambda self: self.world.settled is not None and self.world.is_calm())
    @rule(order=st.permutations(range(4)))
    def all_die_and_answer_within_a_second(self, order: list[int]) -> None:
        """A backend that was held keeps its clients."""
        self.world.dead.update(order)
        self.world.run(5)
        held = self.world.held()
        for number in range(20):
            self.world.dead.difference_update(order[: number + 1])
            self.world.run(0.25)
            assert not {(service, name) for service, out in self.world.out.items() for name in out} & held

    @rule()
    def all_is_well_again(self) -> None:
        """A backend that was out has exactly the clients of before, and all others still have theirs."""
        self.world.dead.clear()
        self.world.end_maintenance()
        self.world.run(40)
        assert self.world.is_calm()
        settled = self.world.settled
        assert settled in (None, self.world.ours())
        # Home blocks of a backend without a weight are shared out anew whenever another backend fails.
        has_idle = any(flow.table == Stage.HOME.table for flow in self.world.ours())
        self.world.settled = None if has_idle else self.world.ours()

    @invariant()
    def flows_of_others_are_as_they_were(self) -> None:
        assert [flow for flow in self.world.everything() if flow in FOREIGN] == FOREIGN

    @precondition(lambda self: self.world.has_round and not self.world.wanted)
    @invariant()
    def none_in_maintenance_has_clients(self) -> None:
        now = self._clients(self.world.ours())
        for name, away in in_maintenance(self.world.overrides).items():
            assert name not in now or not now[name].owners & away

    @precondition(lambda self: self.world.settled is not None and self.world.has_round and not self.world.wanted)
    @invariant()
    def backends_that_are_up_keep_their_clients(self) -> None:
        """Only clients of backends that are ejected or in slow start have moved since all was well."""
        assert self.world.settled is not None
        now, then = self._clients(self.world.ours()), self._clients(self.world.settled)
        for service, blocks in then.items():
            out = {*self.world.out.get(service, ()), *(name for of, name in self.world.ramps if of == service)}
            for block, owner in blocks.rows:
                assert owner in out or {held for _, _, held in now[service].within([block])} == {owner}

    def _clients(self, flows: Iterable[Flow]) -> dict[str, Blocks]:
        """Who has which clients, by service."""
        found, ids = decided(flows, self.world.balancer), service_ids(s.claim for s in self.world.balancer.services)
        return {s.name: found[ids[s.claim]].active for s in self.world.balancer.services if ids[s.claim] in found}


TestAgent = AgentMachine.TestCase
TestAgent.settings = settings(share(0.4), stateful_step_count=20)
