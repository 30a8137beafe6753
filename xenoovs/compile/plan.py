"""The plan: what differs between the flows wanted and those that the switch has, and the bundle that makes it so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from xenoovs.compile.pipeline import Stage
from xenoovs.errors import FlowTaken
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.cookie import is_ours, service_of
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_flow


@dataclass(frozen=True, slots=True)
class Change:
    """A flow that stays where it is and does something else."""

    before: Flow
    after: Flow


@dataclass(frozen=True, slots=True)
class Plan:
    """Flows to add, change and remove, all of them ours; `unchanged`: how many stay as they are.

    blocked: flows of others that have the key of a desired flow, which therefore cannot be there.
    """

    added: tuple[Flow, ...]
    changed: tuple[Change, ...]
    removed: tuple[Flow, ...]
    unchanged: int
    blocked: tuple[Flow, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.removed)

    @property
    def flow_mods(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)

    def require_free(self) -> Plan:
        """Return the plan. Raises FlowTaken where a flow of others is in the place of a desired one."""
        if self.blocked:
            raise FlowTaken(flow=render_flow(self.blocked[0]))
        return self

    def flow_mods_by_service(self) -> Counter[int]:
        """By service id; 0: of no service."""
        flows = chain(self.added, (change.after for change in self.changed), self.removed)
        return Counter(service_of(flow.cookie) for flow in flows)


def plan(desired: Iterable[Flow], observed: Iterable[Flow], *, untouched: int = 0) -> Plan:
    """Return the difference, in the order of `desired`. Both hold each flow key at most once.

    Flows of others among `observed` stay as they are; a desired flow with the key of one of them is blocked.

    Args:
        untouched: How many flows besides these are known to be as they should.
    """
    have = {flow.key: flow for flow in observed}
    added, changed, blocked, unchanged = list[Flow](), list[Change](), list[Flow](), untouched
    for flow in desired:
        before = have.pop(flow.key, None)
        if before is None:
            added.append(flow)
        elif before == flow:
            unchanged += 1
        elif not is_ours(before.cookie):
            blocked.append(before)
        else:
            changed.append(Change(before, flow))
    removed = sorted((flow for flow in have.values() if is_ours(flow.cookie)), key=_order)
    return Plan(tuple(added), tuple(changed), tuple(removed), unchanged, tuple(blocked))


def bundle_of(difference: Plan) -> Bundle:
    """The flow-mods of a plan: adds, then changes, then deletes; no packet meets a hole or a third backend.

    Adds go from the last table to the first: no packet is sent to blocks that are not there yet. In a table they go by
    falling priority: of overlapping rules the one that decides comes before those that it shall override. Deletes go
    the other way round.
    """
    adds = (FlowMod(Command.ADD, flow) for flow in sorted(difference.added, key=_before))
    changes = (FlowMod(_command(change), change.after) for change in difference.changed)
    deletes = (FlowMod(Command.DELETE, flow) for flow in sorted(difference.removed, key=_after))
    return Bundle((*adds, *changes, *deletes))


def _before(flow: Flow) -> tuple[int, int]:
    return -flow.table, -flow.priority


def _after(flow: Flow) -> tuple[int, int]:
    return flow.table, flow.priority


def _order(flow: Flow) -> tuple[int, int, str]:
    return flow.table, -flow.priority, render_flow(flow)


def _command(change: Change) -> Command:
    # A modify keeps counters and megaflow but cannot give a new cookie or timeout (OpenFlow 1.4.0, 6.4); an add
    # replaces the flow. That of a block that moves elsewhere is replaced, because its age is that of the drain.
    before, after = change.before, change.after
    if after.table == Stage.NEXT.table:
        return Command.ADD
    only_actions = (before.cookie, before.options) == (after.cookie, after.options)
    return Command.MODIFY if only_actions else Command.ADD
