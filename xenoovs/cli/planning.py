"""The wiring of plan and apply: config and switch in, difference out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xenoovs.compile.plan import Plan, bundle_of, plan
from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.switch.api import require_ports

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.bundle import Bundle
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


def plan_change(balancer: Balancer, switch: Switch) -> PlannedChange:
    """Read the bridge and compare. Raises SwitchError, and PortsMissing before anything else is looked at."""
    program = compile_program(balancer)
    bridge = balancer.uplinks.bridge
    require_ports(switch, bridge, balancer.ports)
    observed = [seen.flow for seen in switch.dump_flows(bridge)]
    return PlannedChange(bridge, program, plan(program.flows, observed), summarise(program, observed))
