"""The plan: what differs between the flows wanted and those that the switch has, and the bundle that makes it so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.flow import Flow


@dataclass(frozen=True, slots=True)
class Change:
    """A flow that stays where it is and does something else."""

    before: Flow
    after: Flow


@dataclass(frozen=True, slots=True)
class Plan:
    """Flows to add, change and remove; `unchanged`: how many stay as they are."""

    added: tuple[Flow, ...]
    changed: tuple[Change, ...]
    removed: tuple[Flow, ...]
    unchanged: int

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.removed)

    @property
    def flow_mods(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)


def plan(desired: Iterable[Flow], observed: Iterable[Flow]) -> Plan:
    """The difference, in the order of `desired`. Both hold each flow key at most once."""
    have = {flow.key: flow for flow in observed}
    added, changed, unchanged = list[Flow](), list[Change](), 0
    for flow in desired:
        before = have.pop(flow.key, None)
        if before is None:
            added.append(flow)
        elif before == flow:
            unchanged += 1
        else:
            changed.append(Change(before, flow))
    return Plan(tuple(added), tuple(changed), tuple(have.values()), unchanged)


def bundle_of(difference: Plan) -> Bundle:
    """The flow-mods of a plan: adds, then changes, then deletes."""
    adds = (FlowMod(Command.ADD, flow) for flow in difference.added)
    changes = (FlowMod(_command(change), change.after) for change in difference.changed)
    deletes = (FlowMod(Command.DELETE, flow) for flow in difference.removed)
    return Bundle((*adds, *changes, *deletes))


def _command(change: Change) -> Command:
    # A modify keeps counters and megaflow but cannot give a new cookie (OpenFlow 1.4.0, 6.4); an add replaces the flow.
    return Command.MODIFY if change.before.cookie == change.after.cookie else Command.ADD
