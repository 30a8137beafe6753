"""A checkpoint: the flows of a bridge at one moment, to which it can be rolled back, byte for byte."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from xenoovs.compile.pipeline import LEARNED, PROGRAM, Stage
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.compile.read import stage_number
from xenoovs.dataclass import dataclass
from xenoovs.errors import ReadBackDiffers
from xenoovs.openflow.flow import FOREIGN, Flow, service_of
from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The flows of xenoovs on a bridge at one moment, without those that Open vSwitch learned for connections."""

    bridge: str
    flows: tuple[Flow, ...]
    incarnation: str | None = None


def take_checkpoint(switch: Switch, bridge: str) -> Checkpoint:
    """Return the current flows. Raises SwitchError."""
    incarnation = switch.incarnation(bridge)
    return Checkpoint(bridge, tuple(seen.flow for seen in switch.dump_flows(bridge, only=PROGRAM)), incarnation)


def changed_services(before: Checkpoint, now: Checkpoint) -> frozenset[int]:
    """Return the ids of services whose flows differ. Flows that belong to no service have the id 0."""
    return frozenset(service_of(flow.cookie) for flow in {*before.flows} ^ {*now.flows})


def roll_back(switch: Switch, checkpoint: Checkpoint, *, services: Collection[int]) -> None:
    """Restore the flows of some services in one bundle, and read them back.

    Later changes of other services stay, such as a drain. If the bridge was recreated, as by a restart of ovs-vswitchd,
    the flows of all services are restored. Raises SwitchError, FlowConflict, ReadBackDiffers.
    """
    bridge = checkpoint.bridge
    if switch.incarnation(bridge) != checkpoint.incarnation:
        services = {*services, *(service_of(flow.cookie) for flow in checkpoint.flows)}
    learned, foreign = (
        tuple(seen.flow for seen in switch.dump_flows(bridge, only=only)) for only in (LEARNED, FOREIGN)
    )
    wanted = _of(services, checkpoint.flows)
    now = _of(services, (*take_checkpoint(switch, bridge).flows, *_obsolete(learned, checkpoint)))
    difference = plan(wanted, (*now, *foreign)).require_free()
    if difference.is_empty:
        return
    switch.apply(bridge, bundle_of(difference))
    wrong = plan(wanted, _of(services, take_checkpoint(switch, bridge).flows)).flow_mods
    if wrong:
        raise ReadBackDiffers(bridge=bridge, flows=wrong)


def _of(services: Collection[int], flows: Iterable[Flow]) -> tuple[Flow, ...]:
    return tuple(flow for flow in flows if service_of(flow.cookie) in services)


def _obsolete(learned: Iterable[Flow], checkpoint: Checkpoint) -> Iterator[Flow]:
    """Yield learned flows of services without a drain at the checkpoint. Draining services keep connections."""
    draining = {service_of(flow.cookie) for flow in checkpoint.flows if stage_number(flow) == Stage.DRAIN.value}
    return (flow for flow in learned if service_of(flow.cookie) not in draining)
