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
    """Judge every flow. A block is judged with the matches by which its packets enter, as they make one megaflow."""
    judged = [JudgedFlow(flow, None, _role(flow), _judge((flow,), profile, version)) for flow in program.shared]
    for service in program.services:
        judged += _service(service, profile, version)
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


def _service(service: ServiceProgram, profile: Profile, version: Version) -> Iterator[JudgedFlow]:
    name = service.service.name
    for flow in service.classify:
        yield JudgedFlow(flow, name, Role.CLASSIFY, _judge((flow,), profile, version))
    entries = {family: _unlike(flows) for family, flows in _by_family(service.classify)}
    for block in service.blocks:
        path = (*entries.get(_family(block.flow), ()), block.flow)
        yield JudgedFlow(block.flow, name, Role.BLOCK, _judge(path, profile, version))


def _judge(path: Iterable[Flow], profile: Profile, version: Version) -> tuple[Offloadability, ...]:
    return judge(seen_in_flows(path), profile, version)


def _by_family(flows: Iterable[Flow]) -> Iterator[tuple[Masked | None, tuple[Flow, ...]]]:
    ordered = sorted(flows, key=lambda flow: repr(_family(flow)))
    return ((family, tuple(group)) for family, group in groupby(ordered, key=_family))


def _family(flow: Flow) -> Masked | None:
    return flow.match.get(Field.DL_TYPE)


def _unlike(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """One flow of each shape: those that match the same fields in the same way are judged alike."""
    shapes = {tuple((masked.field, masked.is_exact) for masked in flow.match.masked): flow for flow in flows}
    return tuple(shapes.values())


def _role(flow: Flow) -> Role:
    dl_type = flow.match.get(Field.DL_TYPE)
    is_arp = dl_type is not None and dl_type.value == ETH_ARP
    return Role.PLUMBING if is_arp or flow.match.get(Field.ICMP_TYPE) is not None else Role.OTHER
