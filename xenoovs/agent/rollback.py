"""Going back: the flows that a bridge had before a change, put back as they were, byte for byte."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from xenoovs.compile.pipeline import LEARNED, PROGRAM, Stage
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.compile.read import stage_number
from xenoovs.errors import ReadBackDiffers
from xenoovs.openflow.flow import FOREIGN, Flow, service_of
from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class Before:
    """Our flows of a bridge at one moment, without those that Open vSwitch learned for connections.

    Those of others are neither kept nor ever put back.
    """

    bridge: str
    flows: tuple[Flow, ...]


def take_flows(switch: Switch, bridge: str) -> Before:
    """What to go back to. Raises SwitchError."""
    return Before(bridge, tuple(seen.flow for seen in switch.dump_flows(bridge, only=PROGRAM)))


def touched(before: Before, after: Before) -> frozenset[int]:
    """The services, by id, whose flows differ; 0 stands for the flows of no service."""
    return frozenset(service_of(flow.cookie) for flow in {*before.flows} ^ {*after.flows})


def roll_back(switch: Switch, before: Before, *, services: Collection[int]) -> int:
    """Make our flows of `services` exactly those again, in one bundle, and read them back. How many flow-mods it took.

    What others have done to other services meanwhile, a drain for instance, goes on. Raises SwitchError, FlowTaken.
    """
    learned, foreign = (
        tuple(seen.flow for seen in switch.dump_flows(before.bridge, only=only)) for only in (LEARNED, FOREIGN)
    )
    wanted = _of(services, before.flows)
    now = _of(services, (*take_flows(switch, before.bridge).flows, *_unwanted(learned, before)))
    difference = plan(wanted, (*now, *foreign)).require_free()
    if difference.is_empty:
        return 0
    switch.apply(before.bridge, bundle_of(difference))
    wrong = plan(wanted, _of(services, take_flows(switch, before.bridge).flows)).flow_mods
    if wrong:
        raise ReadBackDiffers(bridge=before.bridge, flows=wrong)
    return difference.flow_mods


def _of(services: Collection[int], flows: Iterable[Flow]) -> tuple[Flow, ...]:
    return tuple(flow for flow in flows if service_of(flow.cookie) in services)


def _unwanted(learned: Iterable[Flow], before: Before) -> Iterator[Flow]:
    """Learned flows of services that had no drain before; those of others keep their connections."""
    draining = {service_of(flow.cookie) for flow in before.flows if stage_number(flow) == Stage.DRAIN.value}
    return (flow for flow in learned if service_of(flow.cookie) not in draining)
