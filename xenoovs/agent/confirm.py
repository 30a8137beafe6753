"""Going back: the flows that a bridge had before a change, put back as they were, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.compile.plan import bundle_of, plan
from xenoovs.errors import ReadBackDiffers
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.parse import parse_dump
from xenoovs.openflow.render import render_flow
from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class Before:
    """Our flows of a bridge at one moment. Those of others are neither kept nor ever put back."""

    bridge: str
    flows: tuple[Flow, ...]


def take_flows(switch: Switch, bridge: str) -> Before:
    """What to go back to. Raises SwitchError."""
    return Before(bridge, tuple(seen.flow for seen in parse_dump(switch.dump_flow_text(bridge))))


def render_before(before: Before) -> str:
    """As text, one flow a line, for a file."""
    return "".join(f"{line}\n" for line in sorted(map(render_flow, before.flows)))


def roll_back(switch: Switch, before: Before) -> int:
    """Make our flows exactly those again, in one bundle, and read them back. How many flow-mods it took.

    Raises SwitchError, FlowTaken.
    """
    now = (seen.flow for seen in parse_dump(switch.dump_flow_text(before.bridge)))
    foreign = (seen.flow for seen in switch.dump_foreign_flows(before.bridge))
    difference = plan(before.flows, (*now, *foreign))
    if difference.is_empty:
        return 0
    switch.apply(before.bridge, bundle_of(difference))
    after = take_flows(switch, before.bridge)
    wrong = plan(before.flows, after.flows).flow_mods
    if wrong:
        raise ReadBackDiffers(bridge=before.bridge, flows=wrong)
    return difference.flow_mods
