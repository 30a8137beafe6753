"""One round: what the bridge has against what it should have, and the bundle between them. Level-triggered.

Nothing is done because something happened; it is done because the flows differ. So a round that was missed, or made
twice, does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.agent.drains import Drains, Look
from xenoovs.agent.links import no_ports
from xenoovs.agent.ports import Ports
from xenoovs.agent.renaming import moved_to, renames
from xenoovs.agent.watch import Known
from xenoovs.compile.draining import Draining, leftover
from xenoovs.compile.learned import split_learned
from xenoovs.compile.movement import blocks_by_service, pieces, planned_by_service, shares
from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Outages, Program, compile_program
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.errors import BundleRejected, ChangesHeld, ReadBackDiffers
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.parse import parse_dump
from xenoovs.openflow.recognise import recognise
from xenoovs.openflow.render import render_flow
from xenoovs.partition.ease import STEPS
from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did. `foreign`: our flows that somebody else had changed; `lost`: the bridge had been made anew.

    drains: those that go on. next_s: the seconds after which they want another round; None: nothing does.
    """

    difference: Plan
    services: tuple[ServiceChange, ...] = ()
    foreign: int = 0
    lost: bool = False
    drains: tuple[Draining, ...] = ()
    next_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Last:
    """What the last round left on the bridge. `dump`: as it was read back then, to know in no time that all is well.

    target: what is to come of `program` once all drains are over; the same where there is none.
    """

    balancer: Balancer
    out: Outages
    target: Program
    program: Program
    texts: Mapping[str, Flow]
    dump: str
    incarnation: str | None


class Reconciler:
    """Keeps one bridge as it should be. Its calls block; one at a time."""

    def __init__(self, switch: Switch, *, resolve: Callable[[Balancer], Balancer] | None = None) -> None:
        """`resolve`: puts in the MACs of backends that are given by their address alone."""
        self._resolve = resolve or (lambda balancer: balancer)
        self._switch = switch
        self._last: _Last | None = None
        self._ports = Ports(switch)
        self._drains = Drains(switch, describe=self._ports.describe)
        self.is_held = False
        """Whether changes are only counted: a round that would make one raises ChangesHeld."""
        self.timed: list[Callable[[str, float], None]] = []
        """Called with `plan` or `apply` and how many seconds that took, in the thread of the round."""

    @property
    def program(self) -> Program | None:
        """What the last round left on the bridge."""
        return None if self._last is None else self._last.program

    @property
    def switch(self) -> Switch:
        return self._switch

    def ports_down(self, bridge: str) -> frozenset[str]:
        """The ports without link, by a way to the switch that tells of them at once; none where it does not."""
        return no_ports(bridge)

    def forget(self) -> None:
        """Take what is on the bridge at the next round as it is found, as after a restart."""
        self._last = None

    def is_lost(self, bridge: str) -> bool:
        """Whether the bridge is not the one of the last round. Costs microseconds. Raises BridgeMissing."""
        last = self._last_of(bridge)
        return last is not None and self._switch.incarnation(bridge) != last.incarnation

    def known(self, balancer: Balancer) -> Known:
        """Which backends have clients on the bridge, and how many, or are remembered to be out. Raises SwitchError."""
        balancer = self._resolve(balancer)
        flows = tuple(seen.flow for seen in parse_dump(self._switch.dump_flow_text(balancer.uplinks.bridge)))
        ids = {s.service.name: s.service_id for s in compile_program(balancer).services}
        blocks, planned = blocks_by_service(flows), planned_by_service(flows)
        found: dict[tuple[str, str], Fraction] = {}
        for service in balancer.services:
            having, waiting = (shares(pieces(of.get(ids[service.name], ()))) for of in (blocks, planned))
            for backend in service.backends:
                hop = backend.next_hop
                if hop in having or hop in waiting:
                    found[service.name, backend.name] = _part_held(having.get(hop), waiting.get(hop))
        return found

    def round(self, balancer: Balancer, out: Outages, *, now_s: float) -> Round:
        """Make the bridge right. `now_s`: any clock that never goes back, to know since when an old backend rests.

        Raises SwitchError, FlowTaken, CompileError, ToleranceUnreachable, ChangesHeld.
        """
        begun_s = time.perf_counter()
        balancer = self._resolve(balancer)
        bridge = balancer.uplinks.bridge
        last = self._last_of(bridge)
        incarnation = self._switch.incarnation(bridge)
        dump, learned = split_learned(self._switch.dump_flow_text(bridge))
        lost = last is not None and incarnation != last.incarnation
        is_known = last is not None and (last.balancer, last.out, last.dump) == (balancer, out, dump)
        if last is not None and is_known and last.program is last.target and not learned:
            self._last = replace(last, incarnation=incarnation)
            self._time("plan", begun_s)
            return Round(Plan((), (), (), len(last.texts)), lost=lost)
        target = self._target(balancer, out, dump)
        names = renames(balancer if last is None else last.balancer, balancer)
        known = None if last is None or lost else tuple(names.of_flows(last.texts.values()))
        program, drains = self._drains.program(target, Look(bridge, out, known, now_s))
        same = last is not None and program == last.program
        texts = last.texts if last is not None and same else {render_flow(flow): flow for flow in program.flows}
        seen = recognise(dump, texts)
        there = (flow for text, flow in texts.items() if text not in seen.missing)
        connections = tuple(each.flow for each in parse_dump(learned))
        rest = {*leftover(program, connections, out=out), *filter(names.is_left, connections)}
        observed = [*there, *seen.others, *rest]
        foreign = 0 if last is None or lost else _differences(dump, last.texts)
        done = Round(plan(texts.values(), observed), (), foreign, lost, *drains)
        begun_s = self._time("plan", begun_s)
        if not done.difference.is_empty:
            done = self._change(balancer, program, observed, done)
            dump, _ = split_learned(self._switch.dump_flow_text(bridge))
            if _differences(dump, texts):
                raise ReadBackDiffers(bridge=bridge, flows=done.difference.flow_mods)
            self._time("apply", begun_s)
        self._last = _Last(balancer, out, target, program, texts, dump, incarnation)
        return done

    def _time(self, step: str, begun_s: float) -> float:
        """Tell how long it took; when it ended."""
        now_s = time.perf_counter()
        for listener in self.timed:
            listener(step, now_s - begun_s)
        return now_s

    def _last_of(self, bridge: str) -> _Last | None:
        """What the last round left, if it was on this bridge."""
        last = self._last
        return last if last is not None and last.balancer.uplinks.bridge == bridge else None

    def _target(self, balancer: Balancer, out: Outages, dump: str) -> Program:
        """What this agent made last goes before what is found: others may have changed that, or lost it."""
        last = self._last_of(balancer.uplinks.bridge)
        if last is not None:
            if (last.balancer, last.out) == (balancer, out):
                return last.target
            if last.out == out and (moved := moved_to(last.target, last.balancer, balancer)) is not None:
                return moved
            names = renames(last.balancer, balancer)
            return compile_program(balancer, installed=names.of_flows(last.target.flows), out=out)
        return compile_program(balancer, installed=(seen.flow for seen in parse_dump(dump)), out=out)

    def _change(self, balancer: Balancer, program: Program, observed: list[Flow], done: Round) -> Round:
        bridge = balancer.uplinks.bridge
        self._ports.require(balancer.uplinks, balancer.ports)
        foreign = (seen.flow for seen in self._switch.dump_foreign_flows(bridge))
        difference = plan(program.flows, (*observed, *foreign))
        if self.is_held and not difference.is_empty:
            raise ChangesHeld(flow_mods=difference.flow_mods)
        try:
            self._switch.apply(bridge, bundle_of(difference))
        except BundleRejected:
            # A port that has gone meanwhile is told better by the database.
            self._ports.require_now(balancer.uplinks, balancer.ports)
            raise
        changes = tuple(change for change in summarise(program, observed) if change.fate.value != "same")
        return replace(done, difference=difference, services=changes)


def _part_held(has: Fraction | None, gets_back: Fraction | None) -> Fraction:
    """The part (0..1) of its clients that a backend has, in whole steps of a slow start, of which it has made one."""
    if has is None or gets_back is None:
        return Fraction(0 if has is None else 1)
    return Fraction(min(max(int(has * STEPS / gets_back), 1), STEPS), STEPS)


def _differences(dump: str, texts: Mapping[str, Flow]) -> int:
    """How many flows would have to be added, changed or removed for the dump to hold exactly `texts`."""
    seen = recognise(dump, texts)
    return plan(seen.missing.values(), seen.others).flow_mods
