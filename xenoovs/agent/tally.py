"""Counts of what is on the bridge, made once for a program, and of what a look found, made once for a look. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xenoovs.compile.hardware import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.decision.desired import BackendName
from xenoovs.model.next_hop import mac_and_port
from xenoovs.verify.findings import OffloadFindings
from xenoovs.verify.verdict import Verdict

V = TypeVar("V")
R = TypeVar("R")


class Kept(Generic[V, R]):
    """What was made of a value last, for as long as it is asked for that very value; from any thread."""

    def __init__(self, make: Callable[[V], R]) -> None:
        self._make = make
        self._last: tuple[V, R] | None = None

    def of(self, value: V) -> R:
        """Made now, or before."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._make(value)
        return last[1]


@dataclass(frozen=True, slots=True)
class Installed:
    """One service on the bridge. By name of the backend: `shares` of the address space, 0..1; `flows`: its blocks.

    megaflows: as many as it takes once all blocks have had traffic. draining: blocks that keep open connections.
    """

    service_id: int
    shares: Mapping[str, float]
    flows: Mapping[str, int]
    macs: Mapping[str, str]
    megaflows: int
    draining: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a look found. verdicts: how many blocks of a backend have which; megaflows: by service."""

    verdicts: Mapping[BackendName, Mapping[Verdict, int]] = field(default_factory=dict)
    megaflows: Mapping[str, int] = field(default_factory=dict)


def installed_of(program: Program) -> dict[str, Installed]:
    """By name of the service."""
    return {made.service.name: _installed(made) for made in program.services}


def found_of(findings: OffloadFindings) -> Found:
    verdicts, megaflows = defaultdict[BackendName, Counter[Verdict]](Counter), Counter[str]()
    for seen in findings.blocks:
        verdicts[seen.block.service, seen.block.backend][seen.verdict] += 1
        megaflows[seen.block.service] += seen.megaflows
    return Found({names: dict(counts) for names, counts in verdicts.items()}, dict(megaflows))


def _installed(made: ServiceProgram) -> Installed:
    backends = made.service.backends
    return Installed(
        service_id=made.service_id,
        shares={one.name: float(share) for one, share in zip(backends, made.shares, strict=True)},
        flows=Counter(block.backend.name for block in made.blocks),
        macs={backend.name: mac_and_port(backend.next_hop)[0] for backend in backends},
        megaflows=hardware_entries(made),
        draining=len(made.moves),
    )
