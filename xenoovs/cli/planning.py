"""The wiring of plan and apply: config and switch in, difference out; and the read-back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Program, compile_program, keep_installed
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.openflow.cookie import service_of
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
    """What a bridge shall have, and the difference to what it has.

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

    def services(self) -> Iterator[ServiceChange]:
        """What the change means for each service that differs."""
        same = {service.service_id for service in self.program.services} - self.touched
        return summarise(self.program, self.observed, same=same)

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.difference)


def plan_change(balancer: Balancer, switch: Switch, *, rebalance: bool = False) -> PlannedChange:
    """Read the bridge and compare. Blocks stay where they are as far as the weights allow; `rebalance`: fewest blocks.

    Raises SwitchError, PortsMissing before anything else is looked at, and FlowTaken rather than to replace a flow of
    somebody else.
    """
    bridge = balancer.uplinks.bridge
    with ThreadPoolExecutor(max_workers=1) as reader:
        # The switch answers while the program is compiled.
        reading = reader.submit(_read, switch, bridge, balancer.ports)
        program = compile_program(balancer)
        known = by_text(program.flows)
        seen = recognise(reading.result(), known)
    touched = frozenset(service_of(flow.cookie) for flow in (*seen.missing.values(), *seen.others))
    there = [flow for text, flow in known.items() if service_of(flow.cookie) in touched and text not in seen.missing]
    observed = [*there, *seen.others]
    near = program if rebalance else keep_installed(program, observed)
    if near is not program:
        rest = {text: flow for text, flow in known.items() if service_of(flow.cookie) not in touched}
        known = rest | by_text(flow for flow in near.flows if service_of(flow.cookie) in touched)
        program = near
    difference = _compare(program, observed, touched, switch=switch, bridge=bridge)
    return PlannedChange(bridge, program, known, difference, touched, tuple(observed))


def read_back(change: PlannedChange, switch: Switch) -> int:
    """How many flows of the services that were changed are not as they should be now."""
    if len(change.touched) > _DUMPS_BY_SERVICE:
        seen = recognise(switch.dump_flow_text(change.bridge), change.texts)
    else:
        dumps = (switch.dump_flow_text(change.bridge, service_id=service) for service in sorted(change.touched))
        wanted = {text: flow for text, flow in change.texts.items() if service_of(flow.cookie) in change.touched}
        seen = recognise("\n".join(dumps), wanted)
    return plan(seen.missing.values(), seen.others).flow_mods


def compile_near(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Program:
    """The program that `apply` would leave on a bridge with these flows."""
    return compile_program(balancer, installed=(seen.flow for seen in observed))


def by_text(flows: Iterable[Flow]) -> dict[str, Flow]:
    """Flows by the text that a dump shows for them."""
    return {render_flow(flow): flow for flow in flows}


def _read(switch: Switch, bridge: str, ports: Iterable[str]) -> str:
    require_ports(switch, bridge, ports)
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
