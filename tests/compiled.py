"""A config to a program as the engine does it, without a switch: read, decide, advance, compile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.read import read
from xenoovs.decision.advance import Progress, advance
from xenoovs.decision.decide import decide, undisturbed
from xenoovs.decision.decision import BackendName, BlockMove, Decision, DesiredState, ServiceDecision
from xenoovs.model.balancer import Balancer, OtherTraffic, Uplinks
from xenoovs.openflow.flow import Flow, ObservedFlow

Ejected = Mapping[str, frozenset[str]]
"""The names of the backends that get no clients, by the name of their service."""


def compiled(
    balancer: Balancer,
    *,
    installed: Iterable[Flow] = (),
    ejected: Ejected | None = None,
    ramps: Mapping[BackendName, Fraction] | None = None,
) -> Program:
    """Return the program near the installed flows. Neither `ejected` nor `ramps`: those that the flows show."""
    decision, _ = _decided(balancer, observed(installed), ejected, ramps)
    return compile_program(balancer, decision)


def draining(
    balancer: Balancer,
    seen: Iterable[ObservedFlow],
    progress: Progress,
    *,
    ofports: Mapping[str, int],
    decision: Decision | None = None,
) -> Program:
    """Return the program for now on a switch with these flows. `decision`: what was decided already."""
    flows = tuple(seen)
    decided, desired = _decided(balancer, flows, None, None)
    target = decision or decided
    transition = advance(read(flows, balancer, now_s=progress.now_s), target, desired, progress)
    return compile_program(balancer, target, transition, ofports=ofports)


def observed(flows: Iterable[Flow], *, packets: int = 0, age_s: float = 0.0) -> tuple[ObservedFlow, ...]:
    return tuple(ObservedFlow(flow, packets, 0, age_s) for flow in flows)


def decided(flows: Iterable[Flow], balancer: Balancer) -> dict[int, ServiceDecision]:
    """Return the owners of clients in the flows of a switch, by service id."""
    return dict(read(observed(flows), balancer)[0].services)


def only(decision: Decision) -> ServiceDecision:
    """Return the decision for the only service."""
    ((_, found),) = decision.services
    return found


def moves_of(seen: Iterable[ObservedFlow]) -> tuple[tuple[int, BlockMove], ...]:
    """Return the moving blocks on a switch, each with its service id. No config is needed."""
    empty = Balancer(Uplinks("", (), "", OtherTraffic.LEAVE), ())
    _, transition = read(seen, empty)
    return tuple((service_id, move) for service_id, moves in transition.services for move in moves)


def _decided(
    balancer: Balancer,
    seen: Iterable[ObservedFlow],
    ejected: Ejected | None,
    ramps: Mapping[BackendName, Fraction] | None,
) -> tuple[Decision, DesiredState]:
    before, _ = read(seen, balancer)
    if ejected is None and ramps is None:
        desired = undisturbed(before, DesiredState(balancer))
    else:
        desired = DesiredState(balancer, ejected or {}, ramps or {})
    return decide(before, desired), desired
