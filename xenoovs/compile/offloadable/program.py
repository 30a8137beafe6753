"""The static verdict on a whole program: of each flow, what the datapath will see of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from xenoovs.compile.offloadable.check import NO_GROUPS, Offloadability, judge, overall, seen_in_flows
from xenoovs.compile.offloadable.groups import Group
from xenoovs.compile.offloadable.row import Offload, Profile, Version
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.openflow.action import LOCAL, Action, Output, SetField
from xenoovs.openflow.cookie import is_ours
from xenoovs.openflow.field import ETH_ARP, Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked


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
