"""The static verdict: will the NIC forward the packets of this flow, this megaflow, this program?

It covers what Open vSwitch and the kernel's traffic control can do with them. The NIC's driver may still refuse.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from xenoovs.compile.offloadable.openflow_topics import (
    ActionReader,
    OpenFlowGroup,
    TopicUse,
    combinations,
    each_topic_once,
    match_bytes,
    match_topics,
    protocol_of,
)
from xenoovs.compile.offloadable.table import TOPIC_OF, TOPICS, Offload, Profile, TableRow, Topic, Version
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.dataclass import dataclass
from xenoovs.errors import counted, worded
from xenoovs.openflow.flow import (
    ETH_ARP,
    LOCAL,
    Action,
    Failover,
    Field,
    Flow,
    Masked,
    Output,
    SetField,
    alternatives,
    is_ours,
    output_ports,
)
from xenoovs.regex import ASCII, regex

if TYPE_CHECKING:
    from xenoovs.datapath.megaflow import Megaflow

NO_GROUPS: Mapping[int, OpenFlowGroup] = MappingProxyType({})
_ORDER = MappingProxyType({topic.name: number for number, topic in enumerate(TOPICS)})


@dataclass(frozen=True, slots=True)
class Offloadability:
    """The verdict of the table on one part of a flow. `evidence`: the text of that part."""

    topic: Topic
    row: TableRow
    evidence: str

    @property
    def offload(self) -> Offload:
        return self.row.offload


def check_megaflow(
    megaflow: Megaflow, profile: Profile, version: Version, *, internal_ports: Collection[str] = ()
) -> tuple[Offloadability, ...]:
    """Return all verdicts of the table on a megaflow, the worst first. `internal_ports`: ports of type internal."""
    from xenoovs.compile.offloadable.megaflow_topics import megaflow_topics

    return judge(each_topic_once(megaflow_topics(megaflow, internal_ports=internal_ports)), profile, version)


def overall(results: Sequence[Offloadability]) -> Offload:
    """Return the worst verdict; HW if there is none. `results`: the worst first."""
    return results[0].offload if results else Offload.HW


def judge(uses: Iterable[TopicUse], profile: Profile, version: Version) -> tuple[Offloadability, ...]:
    """Return the verdict of the table on each topic, the worst first, without topics that have no row."""
    results = (
        Offloadability(TOPIC_OF[use.topic], row, use.evidence)
        for use in uses
        if (row := TOPIC_OF[use.topic].row(profile, version)) is not None
    )
    return tuple(sorted(results, key=lambda result: (-result.offload.badness, _ORDER[result.topic.name])))


def flow_topics(path: Iterable[Flow], *, groups: Mapping[int, OpenFlowGroup] = NO_GROUPS) -> tuple[TopicUse, ...]:
    """Return the topics of the flows that one packet meets, each topic once."""
    flows = tuple(path)
    uses, outputs, actions = list[TopicUse](), 0, 0
    for flow in flows:
        reader = ActionReader(protocol=protocol_of(flow.match), groups=groups)
        uses += match_topics(flow.match)
        uses += reader.read(flow.actions) if flow.actions else (TopicUse("drop", "drop"),)
        outputs, actions = outputs + reader.outputs, actions + reader.count
    done = (action for flow in flows for actions in alternatives(flow.actions) for action in actions)
    written = (action.field for action in done if isinstance(action, SetField))
    size = match_bytes((flow.match for flow in flows), written=written)
    return each_topic_once((*uses, *combinations(uses, outputs=outputs, actions=actions, match_bytes=size)))


class FlowRole(Enum):
    """The purpose of a flow.

    RETURN:      makes packets of the VIP out of what a backend sends.
    RESOLUTION:  ARP and neighbour discovery, a few packets a minute, in software by design.
    TAGGED_DROP: drops packets with a VLAN tag; packets of other flows have none, so it costs them nothing.
    """

    CLASSIFY = "classify"
    BLOCK = "block"
    RETURN = "return"
    OTHER = "other traffic"
    RESOLUTION = "address resolution"
    TAGGED_DROP = "dropped tagged packets"

    @property
    def carries_traffic(self) -> bool:
        """Whether packets of clients depend on the verdict."""
        return self not in (FlowRole.RESOLUTION, FlowRole.TAGGED_DROP)


@dataclass(frozen=True, slots=True)
class JudgedFlow:
    """One flow of a program. `service` is None for flows of no service. `results`: the worst first."""

    flow: Flow
    service: str | None
    role: FlowRole
    results: tuple[Offloadability, ...]

    @property
    def offload(self) -> Offload:
        return overall(self.results)


@dataclass(frozen=True, slots=True)
class ProgramOffload:
    """All flows of a program in its order, judged. `encrypted`: tunnel ports whose packets the CPU encrypts."""

    flows: tuple[JudgedFlow, ...]
    encrypted: frozenset[str] = frozenset()

    @property
    def to_encrypt(self) -> tuple[JudgedFlow, ...]:
        """Return the flows that the NIC could take if the CPU did not encrypt, and so encapsulate, their packets."""
        others = {*self.in_software, *self.undetermined}
        named = (each for each in self.flows if self.encrypted.intersection(output_ports(each.flow.actions)))
        return tuple(each for each in named if each not in others)

    @property
    def in_software(self) -> tuple[JudgedFlow, ...]:
        """Return the flows that carry traffic of clients and that the CPU certainly forwards."""
        return tuple(each for each in self.flows if each.offload.is_software and each.role.carries_traffic)

    @property
    def undetermined(self) -> tuple[JudgedFlow, ...]:
        """Return the flows that carry traffic of clients and whose verdict is DEPENDS."""
        return tuple(each for each in self.flows if each.offload is Offload.DEPENDS and each.role.carries_traffic)


def check_program(
    program: Program, *, profile: Profile, version: Version, encrypted: frozenset[str] = frozenset()
) -> ProgramOffload:
    """Judge every flow. A block is judged together with the classify flows of its service, as they make one megaflow.
    Flows that differ only in values are judged once; the evidence is that of the first one."""
    judge_path = _PathJudge(profile, version)
    judged = [JudgedFlow(flow, None, _role(flow), judge_path({_shape(flow): flow})) for flow in program.shared]
    for service in program.services:
        judged += _service(service, judge_path)
    return ProgramOffload(tuple(judged), encrypted)


def check_flows(
    flows: Iterable[Flow], *, profile: Profile, version: Version, groups: Mapping[int, OpenFlowGroup] = NO_GROUPS
) -> ProgramOffload:
    """Judge the flows of a dump, each on its own. `groups`: groups of the bridge, by number."""
    return ProgramOffload(
        tuple(
            JudgedFlow(
                flow,
                None,
                _role(flow) if is_ours(flow.cookie) else _foreign_role(flow),
                judge(flow_topics((flow,), groups=groups), profile, version),
            )
            for flow in flows
        )
    )


class _PathJudge:
    """Judges the flows that one packet matches, and each shape of them once."""

    def __init__(self, profile: Profile, version: Version) -> None:
        self._profile, self._version = profile, version
        self._results: dict[tuple[_Shape, ...], tuple[Offloadability, ...]] = {}

    def __call__(self, path: Mapping[_Shape, Flow]) -> tuple[Offloadability, ...]:
        shapes = tuple(path)
        if shapes not in self._results:
            self._results[shapes] = judge(flow_topics(path.values()), self._profile, self._version)
        return self._results[shapes]


def _service(service: ServiceProgram, judge_path: _PathJudge) -> Iterator[JudgedFlow]:
    name = service.service.name
    entries = defaultdict[Masked | None, dict[_Shape, Flow]](dict)
    for flow in service.classify:
        entry = {_shape(flow): flow}
        entries[_family(flow)] |= entry
        yield JudgedFlow(flow, name, FlowRole.CLASSIFY, judge_path(entry))
    for flow in service.returns:
        yield JudgedFlow(flow, name, FlowRole.RETURN, judge_path({_shape(flow): flow}))
    for block in service.blocks:
        path = entries[_family(block.flow)] | {_shape(block.flow): block.flow}
        yield JudgedFlow(block.flow, name, FlowRole.BLOCK, judge_path(path))


def _family(flow: Flow) -> Masked | None:
    return flow.match.get(Field.DL_TYPE)


_Shape = tuple[object, ...]
_VALUE_MATTERS = frozenset((Field.DL_TYPE, Field.NW_PROTO, Field.PKT_MARK))


def _shape(flow: Flow) -> _Shape:
    """Return the part of a flow that decides its verdict: all but the values of most fields."""
    matched = tuple(
        (masked.field, masked.value if masked.field in _VALUE_MATTERS else None, masked.is_exact)
        for masked in flow.match.masked
    )
    return (matched, flow.match.foreign, tuple(map(_action_shape, flow.actions)))


def _action_shape(action: Action) -> object:
    match action:
        case Output(port):
            return port == LOCAL
        case SetField(field, _):
            return field
        case Failover(buckets):
            return tuple(tuple(map(_action_shape, bucket)) for bucket in buckets)
        case _:
            return action


def _role(flow: Flow) -> FlowRole:
    dl_type = flow.match.get(Field.DL_TYPE)
    is_arp = dl_type is not None and dl_type.value == ETH_ARP
    return FlowRole.RESOLUTION if is_arp or flow.match.get(Field.ICMP_TYPE) is not None else FlowRole.OTHER


_TAG = regex(r"(?:dl_vlan_pcp|vlan_vid|vlan_pcp|vlan_tci(?==0x1))=", ASCII)
"""Only packets with a VLAN tag match these (ovs-fields(7)), as they match `Field.VLAN` with 0x1000."""


def _foreign_role(flow: Flow) -> FlowRole:
    tag = flow.match.get(Field.VLAN)
    is_tagged = (tag is not None and bool(tag.value)) or any(map(_TAG.match, flow.match.foreign))
    is_drop = not flow.actions and is_tagged
    return FlowRole.TAGGED_DROP if is_drop else FlowRole.OTHER


@dataclass(frozen=True, slots=True)
class FlowReason:
    """One row of the table that applies to `count` flows of one service. `flow`, `result`: of the first flow."""

    service: str | None
    is_resolution: bool
    result: Offloadability
    flow: Flow
    count: int


def reasons(judged: Iterable[JudgedFlow], *, at_least: Offload = Offload.DEPENDS) -> tuple[FlowReason, ...]:
    """Return the rows that apply and are as bad as `at_least` or worse, the worst first, address resolution last. Flows
    for address resolution count only if they are certainly in software."""
    first: dict[tuple[str | None, bool, str], tuple[JudgedFlow, Offloadability]] = {}
    counts = Counter[tuple[str | None, bool, str]]()
    for each in judged:
        is_resolution = each.role is FlowRole.RESOLUTION
        for result in each.results:
            if result.offload.badness >= at_least.badness and (result.offload.is_software or not is_resolution):
                key = (each.service, is_resolution, result.topic.name)
                first.setdefault(key, (each, result))
                counts[key] += 1
    gathered = [FlowReason(key[0], key[1], result, each.flow, counts[key]) for key, (each, result) in first.items()]
    return tuple(sorted(gathered, key=lambda reason: (reason.is_resolution, -reason.result.offload.badness)))


def count_by_service(result: ProgramOffload) -> dict[str | None, dict[Offload, int]]:
    """Count the flows of each service by verdict, in the order of the program; those to encrypt are TC_SW. The key is
    None for flows of no service."""
    found: dict[str | None, dict[Offload, int]] = {}
    to_encrypt = {*result.to_encrypt}
    for each in result.flows:
        of_service = found.setdefault(each.service, dict.fromkeys(Offload, 0))
        of_service[Offload.TC_SW if each in to_encrypt else each.offload] += 1
    return found


def describe(result: ProgramOffload) -> str:
    """Return one sentence on the flows that carry traffic."""
    carrying = sum(each.role.carries_traffic for each in result.flows)
    software, depends = result.in_software, result.undetermined
    encrypted = len(result.to_encrypt)
    hardware = carrying - len(software) - len(depends) - encrypted
    part = f"{hardware} of " if hardware < carrying else worded(carrying, "", "all ")
    parts = [f"the NIC can take {part}{counted(carrying, 'flow')}"]
    if depends:
        parts.append(f"for {len(depends)} it depends ({_worst_topic(depends)})")
    if software:
        parts.append(
            f"{len(software)} {worded(len(software), 'stays', 'stay')} with the CPU ({_worst_topic(software)})"
        )
    if encrypted:
        stay, its = worded(encrypted, "stays", "stay"), worded(encrypted, "its", "their")
        parts.append(f"{encrypted} {stay} with the CPU, which encrypts {its} tunnel")
    return "; ".join(parts)


def _worst_topic(judged: Iterable[JudgedFlow]) -> str:
    return reasons(judged)[0].result.topic.what
