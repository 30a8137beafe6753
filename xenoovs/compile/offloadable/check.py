"""The static verdict: will the NIC forward the packets of this flow, this megaflow, this program?

Says what Open vSwitch and the kernel's traffic control can do with it. The NIC's driver has the last word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from types import MappingProxyType

from xenoovs.compile.offloadable.datapath_seen import seen_in_megaflow
from xenoovs.compile.offloadable.openflow_seen import (
    ActionReader,
    Group,
    Seen,
    combinations,
    matched,
    width,
    without_repetition,
)
from xenoovs.compile.offloadable.row import Offload, Profile, Row, Topic, Version
from xenoovs.compile.offloadable.topics_action import HEADER_ACTION_TOPICS, SET_TOPICS
from xenoovs.compile.offloadable.topics_forward import OUTPUT_TOPICS
from xenoovs.compile.offloadable.topics_group import COMBINATION_TOPICS, GROUP_TOPICS
from xenoovs.compile.offloadable.topics_match import HEADER_TOPICS
from xenoovs.compile.offloadable.topics_place import PLACE_TOPICS
from xenoovs.compile.offloadable.topics_state import STATE_TOPICS
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.errors import counted, worded
from xenoovs.openflow.flow import ETH_ARP, LOCAL, Action, Field, Flow, Masked, Output, SetField, is_ours

# The whole table: what of a flow can be offloaded, by profile and version of Open vSwitch.


TOPICS: tuple[Topic, ...] = (
    *HEADER_TOPICS,
    *STATE_TOPICS,
    *OUTPUT_TOPICS,
    *GROUP_TOPICS,
    *SET_TOPICS,
    *HEADER_ACTION_TOPICS,
    *COMBINATION_TOPICS,
    *PLACE_TOPICS,
)

TOPIC_OF = MappingProxyType({topic.name: topic for topic in TOPICS})
"""Topics by name."""


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


# The static verdict on a whole program: of each flow, what the datapath will see of it.


class Role(Enum):
    """What a flow is for. PLUMBING: ARP and neighbour discovery, a few packets a minute, in software by design."""

    CLASSIFY = "classify"
    BLOCK = "block"
    OTHER = "other traffic"
    PLUMBING = "plumbing"


@dataclass(frozen=True, slots=True)
class JudgedFlow:
    """One flow of a program. `service`: None for flows of no service. `found`: the worst first."""

    flow: Flow
    service: str | None
    role: Role
    found: tuple[Offloadability, ...]

    @property
    def offload(self) -> Offload:
        return overall(self.found)


@dataclass(frozen=True, slots=True)
class ProgramOffload:
    """All flows of a program in its order, judged."""

    flows: tuple[JudgedFlow, ...]

    @property
    def lost(self) -> tuple[JudgedFlow, ...]:
        """Flows that carry traffic of clients and are sure to be forwarded by the CPU."""
        return tuple(each for each in self.flows if each.offload.is_lost and each.role is not Role.PLUMBING)

    @property
    def open(self) -> tuple[JudgedFlow, ...]:
        """Flows of which it depends on something else."""
        return tuple(each for each in self.flows if each.offload is Offload.DEPENDS and each.role is not Role.PLUMBING)


def check_program(program: Program, *, profile: Profile, version: Version) -> ProgramOffload:
    """Judge every flow. A block is judged with the matches by which its packets enter, as they make one megaflow.

    Flows that differ in values alone are judged once; the evidence is that of the first of them.
    """
    judge_path = _Judge(profile, version)
    judged = [JudgedFlow(flow, None, _role(flow), judge_path((flow,))) for flow in program.shared]
    for service in program.services:
        judged += _service(service, judge_path)
    return ProgramOffload(tuple(judged))


def check_flows(
    flows: Iterable[Flow], *, profile: Profile, version: Version, groups: Mapping[int, Group] = NO_GROUPS
) -> ProgramOffload:
    """Judge the flows of a dump, each on its own. `groups`: those of the bridge, by number."""
    return ProgramOffload(
        tuple(
            JudgedFlow(
                flow,
                None,
                _role(flow) if is_ours(flow.cookie) else Role.OTHER,
                judge(seen_in_flows((flow,), groups=groups), profile, version),
            )
            for flow in flows
        )
    )


class _Judge:
    """Judges the flows that one packet meets, each kind of way once."""

    def __init__(self, profile: Profile, version: Version) -> None:
        self._profile, self._version = profile, version
        self._known: dict[tuple[_Shape, ...], tuple[Offloadability, ...]] = {}

    def __call__(self, path: tuple[Flow, ...]) -> tuple[Offloadability, ...]:
        shape = tuple(map(_shape, path))
        if shape not in self._known:
            self._known[shape] = judge(seen_in_flows(path), self._profile, self._version)
        return self._known[shape]


def _service(service: ServiceProgram, judge_path: _Judge) -> Iterator[JudgedFlow]:
    name = service.service.name
    for flow in service.classify:
        yield JudgedFlow(flow, name, Role.CLASSIFY, judge_path((flow,)))
    entries = {family: _unlike(flows) for family, flows in _by_family(service.classify)}
    for block in service.blocks:
        path = (*entries.get(_family(block.flow), ()), block.flow)
        yield JudgedFlow(block.flow, name, Role.BLOCK, judge_path(path))


def _by_family(flows: Iterable[Flow]) -> Iterator[tuple[Masked | None, tuple[Flow, ...]]]:
    ordered = sorted(flows, key=lambda flow: repr(_family(flow)))
    return ((family, tuple(group)) for family, group in groupby(ordered, key=_family))


def _family(flow: Flow) -> Masked | None:
    return flow.match.get(Field.DL_TYPE)


def _unlike(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """One flow of each shape."""
    return tuple({_shape(flow): flow for flow in flows}.values())


_Shape = tuple[object, ...]
_TOLD_BY_VALUE = frozenset((Field.DL_TYPE, Field.NW_PROTO, Field.PKT_MARK))


def _shape(flow: Flow) -> _Shape:
    """What two flows have in common that are judged alike: all but the values of most fields."""
    matched = tuple(
        (masked.field, masked.value if masked.field in _TOLD_BY_VALUE else None, masked.is_exact)
        for masked in flow.match.masked
    )
    return (matched, flow.match.foreign, tuple(map(_action_shape, flow.actions)))


def _action_shape(action: Action) -> object:
    match action:
        case Output(port):
            return port == LOCAL
        case SetField(field, _):
            return field
        case _:
            return action


def _role(flow: Flow) -> Role:
    dl_type = flow.match.get(Field.DL_TYPE)
    is_arp = dl_type is not None and dl_type.value == ETH_ARP
    return Role.PLUMBING if is_arp or flow.match.get(Field.ICMP_TYPE) is not None else Role.OTHER


# Judgements of many flows, gathered into what a person wants to read.


@dataclass(frozen=True, slots=True)
class Reason:
    """One row of the table that applies to flows of one service. `flow`, `found`: the first of `count` of them."""

    service: str | None
    is_plumbing: bool
    found: Offloadability
    flow: Flow
    count: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Flows of one service by verdict; `service` None: those of no service."""

    service: str | None
    by_offload: tuple[tuple[Offload, int], ...]

    @property
    def flows(self) -> int:
        return sum(count for _, count in self.by_offload)


def reasons(judged: Iterable[JudgedFlow], *, least: Offload = Offload.DEPENDS) -> tuple[Reason, ...]:
    """The rows that apply and are as bad as `least` or worse, the worst first, traffic before plumbing.

    Of plumbing only what is sure to be in software.
    """
    first: dict[tuple[str | None, bool, str], tuple[JudgedFlow, Offloadability]] = {}
    counts: dict[tuple[str | None, bool, str], int] = {}
    for each in judged:
        for found in each.found:
            if found.offload.badness >= least.badness and (found.offload.is_lost or each.role is not Role.PLUMBING):
                key = (each.service, each.role is Role.PLUMBING, found.topic.name)
                first.setdefault(key, (each, found))
                counts[key] = counts.get(key, 0) + 1
    gathered = [Reason(key[0], key[1], found, each.flow, counts[key]) for key, (each, found) in first.items()]
    return tuple(sorted(gathered, key=lambda reason: (reason.is_plumbing, -reason.found.offload.badness)))


def count_by_service(judged: Iterable[JudgedFlow]) -> tuple[Counts, ...]:
    """How many flows of each service have which verdict, in the order of the program."""
    found: dict[str | None, dict[Offload, int]] = {}
    for each in judged:
        of_service = found.setdefault(each.service, dict.fromkeys(Offload, 0))
        of_service[each.offload] += 1
    return tuple(Counts(service, tuple(counts.items())) for service, counts in found.items())


def describe(result: ProgramOffload) -> str:
    """One sentence on the flows that carry traffic."""
    carrying = sum(each.role is not Role.PLUMBING for each in result.flows)
    lost, depends = result.lost, result.open
    taken = carrying - len(lost) - len(depends)
    part = f"{taken} of " if taken < carrying else worded(carrying, "", "all ")
    told = [f"the NIC can take {part}{counted(carrying, 'flow')}"]
    if depends:
        told.append(f"for {len(depends)} it depends ({_first(depends)})")
    if lost:
        told.append(f"{len(lost)} {worded(len(lost), 'stays', 'stay')} with the CPU ({_first(lost)})")
    return "; ".join(told)


def _first(judged: Iterable[JudgedFlow]) -> str:
    return reasons(judged)[0].found.topic.what
