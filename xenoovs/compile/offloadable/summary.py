"""Judgements of many flows, gathered into what a person wants to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.compile.offloadable.check import Offloadability
from xenoovs.compile.offloadable.program import JudgedFlow, ProgramOffload, Role
from xenoovs.compile.offloadable.row import Offload
from xenoovs.errors.words import counted, worded
from xenoovs.openflow.flow import Flow


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
