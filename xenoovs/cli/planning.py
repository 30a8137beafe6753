"""The wiring of plan and apply: config and switch in, difference out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.switch.api import require_ports

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.bundle import Bundle
    from xenoovs.openflow.flow import ObservedFlow
    from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a bridge has, what it shall have, and the difference."""

    bridge: str
    program: Program
    difference: Plan
    services: tuple[ServiceChange, ...]

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.difference)


def plan_change(balancer: Balancer, switch: Switch, *, rebalance: bool = False) -> PlannedChange:
    """Read the bridge and compare. Blocks stay where they are as far as the weights allow; `rebalance`: fewest blocks.

    Raises SwitchError, PortsMissing before anything else is looked at, and FlowTaken rather than to replace a flow of
    somebody else.
    """
    bridge = balancer.uplinks.bridge
    require_ports(switch, bridge, balancer.ports)
    observed = [seen.flow for seen in switch.dump_flows(bridge)]
    program = compile_program(balancer, installed=() if rebalance else observed)
    difference = plan(program.flows, observed)
    if difference.added and switch.count_foreign_flows(bridge):
        foreign = (seen.flow for seen in switch.dump_foreign_flows(bridge))
        difference = plan(program.flows, (*observed, *foreign))
    return PlannedChange(bridge, program, difference, summarise(program, observed))


def compile_near(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Program:
    """The program that `apply` would leave on a bridge with these flows."""
    return compile_program(balancer, installed=(seen.flow for seen in observed))
