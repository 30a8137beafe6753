"""The static verdict: will the NIC forward the packets of this flow, this megaflow, this program?

Says what Open vSwitch and the kernel's traffic control can do with it. The NIC's driver has the last word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from xenoovs.compile.offloadable.datapath_seen import seen_in_megaflow
from xenoovs.compile.offloadable.groups import Group
from xenoovs.compile.offloadable.openflow_actions import ActionReader
from xenoovs.compile.offloadable.openflow_match import matched, width
from xenoovs.compile.offloadable.row import Offload, Profile, Row, Topic, Version
from xenoovs.compile.offloadable.seen import Seen, combinations, without_repetition
from xenoovs.compile.offloadable.table import TOPIC_OF, TOPICS
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.openflow.action import SetField
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow

NO_GROUPS: Mapping[int, Group] = MappingProxyType({})
_ORDER = MappingProxyType({topic.name: number for number, topic in enumerate(TOPICS)})


@dataclass(frozen=True, slots=True)
class Offloadability:
    """What the table says about one part of a flow. `evidence`: that part as it is written."""

    topic: Topic
    row: Row
    evidence: str

    @property
    def offload(self) -> Offload:
        return self.row.offload


def check_flow(
    flow: Flow, profile: Profile, version: Version, *, groups: Mapping[int, Group] = NO_GROUPS
) -> tuple[Offloadability, ...]:
    """All that the table says about an OpenFlow flow, the worst first. `groups`: those of the bridge, by number.

    A flow that only goes on to another table is judged by what it matches: megaflows that pass it match that too.
    """
    return judge(seen_in_flows((flow,), groups=groups), profile, version)


def check_megaflow(
    megaflow: Megaflow, profile: Profile, version: Version, *, internal: Collection[str] = ()
) -> tuple[Offloadability, ...]:
    """All that the table says about a megaflow, the worst first. `internal`: ports that are the bridge's own."""
    return judge(without_repetition(seen_in_megaflow(megaflow, internal=internal)), profile, version)


def overall(found: Iterable[Offloadability]) -> Offload:
    """The worst; HW where nothing was said."""
    return max((each.offload for each in found), key=lambda offload: offload.badness, default=Offload.HW)


def judge(seen: Iterable[Seen], profile: Profile, version: Version) -> tuple[Offloadability, ...]:
    """What the table says about each topic that was seen, the worst first; nothing where it has no row."""
    found = (
        Offloadability(TOPIC_OF[each.topic], row, each.evidence)
        for each in seen
        if (row := TOPIC_OF[each.topic].row(profile, version)) is not None
    )
    return tuple(sorted(found, key=lambda each: (-each.offload.badness, _ORDER[each.topic.name])))


def seen_in_flows(path: Iterable[Flow], *, groups: Mapping[int, Group] = NO_GROUPS) -> tuple[Seen, ...]:
    """What the flows that one packet meets match and do together; each topic once."""
    flows = tuple(path)
    found, outputs, actions = list[Seen](), 0, 0
    for flow in flows:
        reader = ActionReader(protocol=_protocol(flow), groups=groups)
        found += matched(flow.match)
        found += reader.read(flow.actions) if flow.actions else (Seen("drop", "drop"),)
        outputs, actions = outputs + reader.outputs, actions + reader.count
    written = (action.field for flow in flows for action in flow.actions if isinstance(action, SetField))
    size = width((flow.match for flow in flows), written=written)
    return without_repetition((*found, *combinations(found, outputs=outputs, actions=actions), *size.seen()))


def _protocol(flow: Flow) -> int | None:
    condition = flow.match.get(Field.NW_PROTO)
    return None if condition is None else condition.value
