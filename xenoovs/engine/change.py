"""A change of a bridge: what it has, what it is to have, and the difference. Values and pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from xenoovs.compile.drains import Draining
from xenoovs.compile.plan import Plan, bundle_of
from xenoovs.compile.program import Program
from xenoovs.compile.summary import ServiceChange, summarise
from xenoovs.decision.decision import Decision
from xenoovs.decision.desired import BackendName, DesiredState
from xenoovs.decision.owners import next_hops
from xenoovs.decision.transition import Transition
from xenoovs.openflow.action import Output
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.cookie import service_of
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_flow

Texts = Mapping[int, Mapping[str, Flow]]
"""Flows by the text that a dump shows for them, by service id; 0: flows of no service."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be made right now while all else is. backends: those that get no clients because of it."""

    text: str
    backends: tuple[BackendName, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What a bridge is to have, at every level.

    Attributes:
        desired: What the decision meets; backends that cannot be reached are among the ejected.
        without: Ports that no flow can name; flows that would name them are left out of `texts`.
    """

    desired: DesiredState
    decision: Decision
    transition: Transition
    program: Program
    texts: Texts
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """What a bridge has, what it is to have, and the difference.

    Attributes:
        asked: What was to be met; `target.desired` may eject more.
        difference: What has to be sent.
        touched: Ids of the services that differ; 0 for the flows of no service.
        before: What the flows of these say now; `observed`: the flows.
        drains: Drains that begin or go on; `next_s`: after how many seconds they need another round, None: never.
        problems: What cannot be made right.
        foreign: How many of our flows others had changed.
        lost: Whether the bridge was recreated.
        dump: The text of all flows that the bridge has; empty where they were not read.
        incarnation: Of the bridge, as of `Switch`.
    """

    bridge: str
    asked: DesiredState
    target: Target
    difference: Plan
    touched: frozenset[int]
    before: Decision
    observed: tuple[Flow, ...]
    drains: tuple[Draining, ...] = ()
    next_s: float | None = None
    problems: tuple[Problem, ...] = ()
    foreign: int = 0
    lost: bool = False
    dump: str = ""
    incarnation: str | None = None

    @property
    def program(self) -> Program:
        return self.target.program

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.difference)

    def services(self) -> Iterator[ServiceChange]:
        """Yield what the change means for each service that differs."""
        same = {made.service_id for made in self.program.services} - self.touched
        return summarise(self.program, self.before, self.observed, same=same)


def texts_of(program: Program, *, without: frozenset[str], like: Target | None = None) -> dict[int, Mapping[str, Flow]]:
    """Return the flows of a program by service and text. `like`: services that are the same there are not rendered."""
    known = {made.service_id: made for made in like.program.services} if like and like.without == without else {}
    texts: dict[int, Mapping[str, Flow]] = {0: _by_text(program.shared, without)}
    for made in program.services:
        same = like is not None and known.get(made.service_id) is made
        texts[made.service_id] = like.texts[made.service_id] if like and same else _by_text(made.flows, without)
    return texts


def flattened(texts: Texts) -> dict[str, Flow]:
    return {text: flow for of_service in texts.values() for text, flow in of_service.items()}


def by_service(flows: Iterable[Flow]) -> frozenset[int]:
    """Return the ids of the services that flows belong to."""
    return frozenset(service_of(flow.cookie) for flow in flows)


def reachable(desired: DesiredState, reasons: Mapping[str, str]) -> tuple[DesiredState, tuple[Problem, ...]]:
    """Return the desired state without the backends behind ports that cannot be used, and what to report.

    Args:
        reasons: Ports that cannot be used, with the reason.
    """
    if not reasons:
        return desired, ()
    ejected, behind = dict(desired.ejected), dict[str, list[BackendName]]()
    for service in desired.balancer.services:
        for name, hop in next_hops(service).items():
            for port in set(hop.ports) & reasons.keys():
                behind.setdefault(port, []).append((service.name, name))
                ejected[service.name] = ejected.get(service.name, frozenset()) | {name}
    problems = tuple(_problem(port, reasons[port], tuple(behind.get(port, ()))) for port in sorted(reasons))
    return replace(desired, ejected=ejected), problems


def blocked(flows: Iterable[Flow]) -> tuple[Problem, ...]:
    """Return what to report of flows of others that are in the place of ours."""
    return tuple(Problem(f"a flow of others is in the place of one of ours: {render_flow(flow)}") for flow in flows)


def _problem(port: str, reason: str, backends: tuple[BackendName, ...]) -> Problem:
    names = ", ".join("/".join(name) for name in backends)
    return Problem(f"port {port} {reason}" + (f"; no clients for {names}" if names else ""), backends)


def _by_text(flows: Iterable[Flow], without: frozenset[str]) -> dict[str, Flow]:
    return {render_flow(flow): flow for flow in flows if not (without and _names(flow) & without)}


def _names(flow: Flow) -> set[str | None]:
    return {flow.match.in_port, *(action.port for action in flow.actions if isinstance(action, Output))}
