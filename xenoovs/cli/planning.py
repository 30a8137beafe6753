"""The wiring of plan and apply: config and switch in, difference out; and the read-back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xenoovs.agent.drains import Drains, Look
from xenoovs.compile.drain import Situation, with_drains
from xenoovs.compile.draining import Draining, leftover
from xenoovs.compile.holding import is_of_drain, ports_told
from xenoovs.compile.learned import split_learned
from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Program, compile_program, keep_installed
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.openflow.cookie import service_of
from xenoovs.openflow.parse import parse_dump
from xenoovs.openflow.recognise import recognise
from xenoovs.openflow.render import render_flow
from xenoovs.switch.api import require_ports

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.bundle import Bundle
    from xenoovs.openflow.flow import Flow, ObservedFlow
    from xenoovs.switch.api import Switch

_DUMPS_BY_SERVICE = 8
"""Up to so many services are read back one by one; for more, all flows at once."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a bridge shall have now, and the difference to what it has.

    drains: those that begin or go on with it; `look_again_s`: after how long to plan again because of them.
    texts: the flows of the program by the text that a dump shows for them.
    touched: ids of the services that differ; 0 for the flows of no service.
    observed: the flows that these have now.
    """

    bridge: str
    program: Program
    texts: Mapping[str, Flow]
    difference: Plan
    touched: frozenset[int]
    observed: tuple[Flow, ...]
    drains: tuple[Draining, ...] = ()
    look_again_s: float | None = None

    def services(self) -> Iterator[ServiceChange]:
        """What the change means for each service that differs."""
        same = {service.service_id for service in self.program.services} - self.touched
        return summarise(self.program, self.observed, same=same)

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.difference)


def plan_change(
    balancer: Balancer, switch: Switch, *, rebalance: bool = False, drains: Drains | None = None, now_s: float = 0.0
) -> PlannedChange:
    """Read the bridge and compare. Blocks stay where they are as far as the weights allow; `rebalance`: fewest blocks.

    `drains`: keeps open connections as services want it; None: all move at once. `now_s`: any clock that never goes
    back.

    Raises SwitchError, PortsMissing before anything else is looked at, and FlowTaken rather than to replace a flow of
    somebody else.
    """
    bridge = balancer.uplinks.bridge
    with ThreadPoolExecutor(max_workers=1) as reader:
        # The switch answers while the program is compiled.
        reading = reader.submit(_read, switch, balancer)
        program = compile_program(balancer)
        known = by_text(program.flows)
        dump, learned = split_learned(reading.result())
        seen = recognise(dump, known)
    connections = tuple(each.flow for each in parse_dump(learned))
    touched = frozenset(service_of(flow.cookie) for flow in (*seen.missing.values(), *seen.others, *connections))
    there = [flow for text, flow in known.items() if service_of(flow.cookie) in touched and text not in seen.missing]
    observed = [*there, *seen.others]
    near = program if rebalance else keep_installed(program, observed)
    found: tuple[tuple[Draining, ...], float | None] = ((), None)
    if drains is not None and touched:
        near, found = drains.program(near, Look(bridge, {}, None, now_s))
    if near is not program:
        rest = {text: flow for text, flow in known.items() if service_of(flow.cookie) not in touched}
        known = rest | by_text(flow for flow in near.flows if service_of(flow.cookie) in touched)
        program = near
    left = leftover(program, connections, out={})
    difference = _compare(program, [*observed, *left], touched, switch=switch, bridge=bridge)
    return PlannedChange(bridge, program, known, difference, touched, tuple(observed), *found)


def read_back(change: PlannedChange, switch: Switch) -> int:
    """How many flows of the services that were changed are not as they should be now."""
    if len(change.touched) > _DUMPS_BY_SERVICE:
        seen = recognise(split_learned(switch.dump_flow_text(change.bridge))[0], change.texts)
    else:
        dumps = (switch.dump_flow_text(change.bridge, service_id=service) for service in sorted(change.touched))
        wanted = {text: flow for text, flow in change.texts.items() if service_of(flow.cookie) in change.touched}
        seen = recognise(split_learned("\n".join(dumps))[0], wanted)
    return plan(seen.missing.values(), seen.others).flow_mods


def compile_near(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Program:
    """The program that `apply` would leave on a bridge with these flows; drains that are under way go on."""
    seen = tuple(observed)
    flows = tuple(each.flow for each in seen)
    program = compile_program(balancer, installed=flows)
    if not any(map(is_of_drain, flows)):
        return program
    return with_drains(program, seen, Situation(ports_told(flows), settle_s=None))


def by_text(flows: Iterable[Flow]) -> dict[str, Flow]:
    """Flows by the text that a dump shows for them."""
    return {render_flow(flow): flow for flow in flows}


def _read(switch: Switch, balancer: Balancer) -> str:
    bridge = balancer.uplinks.bridge
    require_ports(switch, bridge, balancer.ports, datapath_id=balancer.uplinks.datapath_id)
    return switch.dump_flow_text(bridge)


def _compare(program: Program, observed: list[Flow], touched: frozenset[int], *, switch: Switch, bridge: str) -> Plan:
    """The plan for the services that differ; the others count as unchanged."""
    flows = program.flows
    wanted = [flow for flow in flows if service_of(flow.cookie) in touched]
    untouched = len(flows) - len(wanted)
    difference = plan(wanted, observed, untouched=untouched)
    if difference.added and switch.count_foreign_flows(bridge):
        foreign = (seen.flow for seen in switch.dump_foreign_flows(bridge))
        difference = plan(wanted, (*observed, *foreign), untouched=untouched)
    return difference
