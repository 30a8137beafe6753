"""Runs every file of this directory: events at their times, and what must be true then.

Keys of a step: `dies`, `answers`, `restart_agent`, `restart_switch`, `delete_flows`, `weights` (null: the config lacks
the backend), `overrides` (what operators have set: `weight`, 0 without it, `maintenance`, and `for_s`), `unlinked` (the
ports without link from now on), `foreign_flow` (in place of all flows of others; empty: none), `jump` (the clock leaps
to this time), `busy` (whether old backends get packets in a drain), `replies` (of the agents of servers, from now on)
happen; `timed` (overrides that will end), `out`, `rounds` (that changed flows), `moved`, `moved_in_all` and `shares`
(percent), `logged` (how each line begins that was logged since the last step), `foreign`, `probes`, `drains` (blocks
that move), `settling` (those of them whose new connections still stay), `heard` (the ports whose other traffic goes
on), `died` (dead ports and when they died), `same_flows_as_at_first` must be true. With `own_ports` each backend has a
port of its own: b0 has p1. `backups`: the backends that are backups. `switch`: further keys of the config's `switch`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.driven_agent import DrivenAgent
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.agent.health import AdvertisedChange, HealthChange
from xenoovs.agent.report import Report
from xenoovs.agent.state import BridgePorts, RoundFacts, Runtime
from xenoovs.compile.pipeline import OTHER_PRIORITY, Stage
from xenoovs.compile.read import learns, read
from xenoovs.datapath.database import PortState
from xenoovs.decision.decision import Phase
from xenoovs.decision.ejection import Ramps
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.log import LOGGER, facts_of, render_facts
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import FOREIGN, Bundle, Command, Flow, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.show.snapshot import Override

SCENARIOS = sorted(Path(__file__).parent.glob("*.yaml"))
TICK_S, RESYNC_S = Fraction(1, 100), 10


def config_of(scenario: Mapping[str, Any], weights: list[int | None]) -> Balancer:
    backends = [
        {"name": f"b{i}", "mac": f"02:00:00:00:00:0{i + 1}", "weight": weight, "address": f"192.0.2.{i + 1}"}
        | ({"egress": f"p{i + 1}"} if scenario.get("own_ports") else {})
        | ({"backup": True} if f"b{i}" in scenario.get("backups", ()) else {})
        for i, weight in enumerate(weights)
        if weight is not None
    ]
    switch = {"bridge": "ovsbr1", "ingress": ["p0"], "egress": "p1", **scenario.get("switch", {})}
    health = {"jitter": "0%", **scenario["health"]}
    service = {"name": "web", "health": health, "drain": scenario.get("drain", {}), "backends": backends}
    service |= {"agent_check": scenario["agent_check"]} if "agent_check" in scenario else {}
    document = {"version": 1, "switch": switch, "services": [service]}
    return parse_config(yaml.safe_dump(document), file="scenario.yaml")


class World:
    """A switch, an agent without its event loop, and backends that answer or not."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.switch = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1", "p2"]))
        self.dead: set[str] = set(scenario.get("dead", []))
        self.replies: dict[str, str] = {}
        self.balancer = config_of(scenario, scenario["weights"])
        self.now = Fraction(0)
        self.rounds: list[Change] = []
        self.is_advertised = False
        self.probes = self.foreign = 0
        self.busy = False
        self.first_flows: set[Flow] = set()
        self.start_agent()
        self.link()

    def link(self, unlinked: Collection[str] = ()) -> None:
        names = ("p0", "p1", "p2")
        ports = {name: PortState(name, n, link_up=name not in unlinked) for n, name in enumerate(names, 1)}
        self.agent.store.dispatch(BridgePorts({"ovsbr1": ports}))

    def start_agent(self) -> None:
        self.engine, self.next_sync = Engine(self.switch), self.now
        self.agent = DrivenAgent(self.balancer, self.now_s)
        self.report, self.facts = Report(), RoundFacts()
        self.agent.store.subscribe(HealthChange, self.report.health)
        self.agent.store.subscribe(AdvertisedChange, self.advertised)
        self.ramps: Ramps = {}
        self.agent.follow(self.balancer, (), self.engine.known(self.balancer))

    def advertised(self, _: AdvertisedChange) -> None:
        self.is_advertised = True

    def now_s(self) -> float:
        return float(self.now)

    def flows(self) -> set[Flow]:
        return {seen.flow for seen in self.switch.dump_flows("ovsbr1")}

    def tick(self) -> None:
        died = False
        for check in self.agent.take_due():
            self.probes += 1
            name = f"b{int(check.address) % 256 - 1}"
            reply = self.replies.get(name, "up") if check.min_change is not None else ""
            outcome = self.agent.record(check, ok=name not in self.dead, sent_s=float(self.now), reply=reply)
            died = died or outcome is not None
        changed = died or self.is_advertised or self.agent.state.ramps(float(self.now)) != self.ramps
        if changed or self.now >= self.next_sync or self.engine.is_lost("ovsbr1"):
            self.round(urgent=died)

    def round(self, *, urgent: bool = False) -> None:
        self.is_advertised = False
        desired = self.agent.desired()
        self.ramps = desired.ramps
        self.engine.count_drains(now_s=float(self.now))
        done = self.engine.round(desired, now_s=float(self.now), urgent=urgent)
        self.report.held_backends(desired.held)
        self.facts = self.report.succeeded(self.facts, done, bridge="ovsbr1", config="", now_s=float(self.now))
        self.foreign += done.foreign
        if not done.difference.is_empty:
            self.rounds.append(done)
        self.first_flows = self.first_flows or self.flows()
        self.next_sync = self.now + (RESYNC_S if done.next_s is None else Fraction(done.next_s))

    def run_until(self, moment: Fraction, *, jump: bool) -> None:
        if jump:
            self.now = moment
            self.tick()
        while self.now < moment:
            self.tick()
            self.now += TICK_S
            if self.scenario.get("drain"):
                self.switch.age("ovsbr1", float(TICK_S))
                self.count()

    def count(self) -> None:
        stays = [flow.key for flow in self.flows() if flow.table == Stage.DRAIN.table and not learns(flow)]
        self.switch.count("ovsbr1", dict.fromkeys(stays if self.busy else (), 1))

    def happen(self, step: Mapping[str, Any]) -> None:
        self.dead |= set(step.get("dies", []))
        self.dead -= set(step.get("answers", []))
        self.busy = step.get("busy", self.busy)
        self.replies |= step.get("replies", {})
        if step.get("restart_agent"):
            self.start_agent()
        if step.get("restart_switch"):
            self.switch.restart("ovsbr1")
        for flow in sorted(self.flows(), key=str)[: step.get("delete_flows", 0)]:
            self.switch.remove_flow("ovsbr1", flow.key)
        if "foreign_flow" in step:
            for seen in self.switch.dump_flows("ovsbr1", only=FOREIGN):
                self.switch.remove_flow("ovsbr1", seen.flow.key)
            texts = filter(None, [step["foreign_flow"]])
            self.switch.apply("ovsbr1", Bundle(tuple(FlowMod(Command.ADD, parse_flow(text)) for text in texts)))
        if "unlinked" in step:
            self.link(step["unlinked"])
            self.round(urgent=True)
        if "overrides" in step:
            self.agent.store.dispatch(Runtime(tuple(self.overrides(step["overrides"]))))
            self.round()
        if "weights" in step:
            self.balancer = config_of(self.scenario, step["weights"])
            self.agent.follow(self.balancer, (), self.engine.known(self.balancer))
            self.round()

    def overrides(self, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[Override]:
        now_s = float(self.now)
        for name, each in wanted.items():
            end_s = now_s + each["for_s"] if "for_s" in each else None
            away = each.get("maintenance", False)
            yield Override("web", name, Fraction(each.get("weight", 0)), now_s, until_s=end_s, is_maintenance=away)

    def seen(self) -> dict[str, object]:
        """All values that a step can check."""
        (service,) = self.balancer.services
        decision, transition = read(self.switch.dump_flows("ovsbr1"), self.balancer)
        held = {name: share for _, found in decision.services for name, share in found.active.shares().items()}
        moving = [move for _, moves in transition.services for move in moves]
        (change,) = tuple(self.rounds[-1].services()) or (None,)
        return {
            "drains": len(moving),
            "settling": sum(move.phase is Phase.SETTLING for move in moving),
            "timed": [each.backend for each in self.agent.state.runtime.overrides if each.until_s is not None],
            "out": sorted(self.agent.state.ejected.get("web", ())),
            "rounds": len(self.rounds),
            "moved": None if change is None else float(change.moved * 100),
            "moved_in_all": float(self.facts.moved.get("web", 0) * 100),
            "shares": [float(held.get(b.name, 0) * 100) for b in service.backends],
            "foreign": self.foreign,
            "probes": self.probes,
            "heard": sorted(flow.match.in_port or "" for flow in self.flows() if flow.priority == OTHER_PRIORITY),
            "died": dict(self.agent.state.dead_since_s),
            "same_flows_as_at_first": self.flows() == self.first_flows,
        }


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    scenario = yaml.safe_load(path.read_text())
    world = World(scenario)
    for step in scenario["steps"]:
        world.run_until(Fraction(str(step["at"])), jump=bool(step.get("jump")))
        world.happen(step)
        seen = world.seen()
        records = [record for record in caplog.records if record.name == LOGGER]
        lines = [f"{record.message} {render_facts(facts_of(record))}" for record in records]
        caplog.clear()
        logged = step.get("logged", lines)
        found = [line[: len(one)] for line, one in zip_longest(lines, logged, fillvalue="")]
        assert found == logged, (f"at {step['at']}", lines)
        expected = {key: value for key, value in step.items() if key in seen and key != "weights"}
        assert {key: seen[key] for key in expected} == expected, f"at {step['at']}"
        silent = {f"b{i}" for i, share in enumerate(world.seen()["shares"]) if not share}  # type: ignore[arg-type, var-annotated]
        assert silent >= set(step.get("out", [])), f"at {step['at']}"
