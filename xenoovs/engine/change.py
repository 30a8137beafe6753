"""A change of a bridge: its flows now, its target, and the step from one to the other. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from ipaddress import IPv4Address

from xenoovs.compile.drain_progress import Draining
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.plan import ChangeKind, Plan, ServiceChange, bundle_of, plan, summarise
from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.read import read
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ovn import OvnUse
from xenoovs.decision.advance import BlockId, Progress, ServiceMove, advance, settle_s
from xenoovs.decision.decide import decide, undisturbed
from xenoovs.decision.decision import BackendName, Decision, DesiredState, Phase, Transition, follow, next_hops
from xenoovs.display import percent
from xenoovs.errors import BridgeChanged, counted, first_names, worded
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import NextHop, remote_of_port
from xenoovs.model.remote import every_service
from xenoovs.model.tunnel import remote_end_of
from xenoovs.openflow.flow import (
    Bundle,
    Field,
    Flow,
    ObservedFlow,
    Output,
    SetField,
    alternatives,
    output_ports,
    service_of,
)
from xenoovs.openflow.group import with_groups
from xenoovs.openflow.text import parse_dump, recognise, render_flow
from xenoovs.switch.api import PortCheck

Texts = Mapping[int, Mapping[str, Flow]]
"""Flows by their text in a dump, by service id; id 0 for flows of no service."""


Ends = frozenset[tuple[str, IPv4Address]]
"""Tunnel ends: port of the bridge and address of the remote."""

_MEMORY = frozenset((Stage.HOME.table, Stage.DRAIN_TARGET.table))
"""Tables that no packet visits."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot be made right now. `backends`: those that get no clients because of it."""

    text: str
    backends: tuple[BackendName, ...] = ()

    @property
    def brief(self) -> str:
        """Return the text without its explanation."""
        return re.split(r" \(|[;:,] ", self.text, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a bridge, at every level. `desired`: what the decision meets, with unreachable backends among the
    ejected. `without`: ports that no flow can name; `texts` has no flows that would name them. `unsent`: tunnel ends to
    which packets would leave unencrypted; `texts` has no flows that would send there. A stored decision may still give
    them clients, whose packets are dropped."""

    desired: DesiredState
    decision: Decision
    transition: Transition
    program: Program
    texts: Texts
    without: frozenset[str] = frozenset()
    unsent: Ends = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """The flows of a bridge, its target, and the difference.

    Attributes:
        asked: The state that was asked for; `target.desired` may eject more.
        touched: Ids of the services that differ; 0 for the flows of no service.
        before: The decision in the flows of these now; `observed`: the flows.
        drains: Drains that begin or go on; `next_s`: seconds until they need another round, None if they need none.
        settled: Blocks whose new connections go to their new backends from this change on.
        foreign: How many flows of xenoovs were changed by other programs.
        names: Names of services that the config lacks, where they are known, by id.
        ovn: How OVN uses the bridge; None if it does not.
        unchecked: Tunnel ports whose destination could not be read.
        unread_policies: Why the IPsec policies could not be read; empty if they were, or if no tunnel needs them.
        dump: The text of all flows of the bridge; empty if they were not read.
        incarnation: As of `Switch`.
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
    settled: frozenset[BlockId] = frozenset()
    problems: tuple[Problem, ...] = ()
    foreign: int = 0
    lost: bool = False
    ovn: OvnUse | None = None
    unchecked: tuple[str, ...] = ()
    unread_policies: str = ""
    dump: str = ""
    incarnation: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        return self.target.program

    def done(self, dump: str) -> Change:
        """Return the change after it was made and the bridge has these flows: only its problems are left."""
        nothing = Plan((), (), (), sum(map(len, self.target.texts.values())))
        left = Change(self.bridge, self.asked, self.target, nothing, frozenset(), Decision(), (), dump=dump)
        return replace(left, problems=self.problems, incarnation=self.incarnation)

    def is_met(self, desired: DesiredState, dump: str) -> bool:
        """Return whether nothing is left to do, and a bridge with these flows is as desired."""
        is_settled = not (self.problems or self.target.transition.services)
        return is_settled and bool(dump) and (self.dump, self.asked) == (dump, desired)

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.difference)

    @property
    def new(self) -> frozenset[int]:
        """Return the ids of the services of which the bridge has no flows yet."""
        present = by_service(self.observed)
        return frozenset(made.service_id for made in self.program.services) & self.touched - present

    def services(self, *, but: frozenset[int] = frozenset()) -> Iterator[ServiceChange]:
        """Yield what the change means for each service that differs, except the ids in `but`."""
        same = {made.service_id for made in self.program.services} - (self.touched - but)
        for each in summarise(self.program, self.before, self.observed, same=same):
            is_named = each.kind is ChangeKind.REMOVED and each.service_id in self.names
            yield replace(each, name=self.names[each.service_id]) if is_named else each


# The effect of a change in names and numbers, for plans and for the history.


_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What a change does to a bridge: services by name, and numbers of flows. `moved`: services whose clients move,
    with the share of these clients, the largest first. `shared`: flows to add, change or remove that belong to no
    service. `groups`: how many there are `before` and `after`, and to `add` and `remove`; none is ever changed."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[tuple[str, Fraction], ...]
    shared: int
    flows_before: int
    flows_after: int
    groups: Mapping[str, int]

    def headline(self, paint: Callable[[str, str], str] = lambda text, _sign: text) -> str:
        """Return which services a change adds, changes and removes, in words. `paint`: colours a part by its sign."""
        kinds = (("added", "+", self.added), ("changed", "~", self.changed), ("removed", "-", self.removed))
        parts = [(how, sign, names) for how, sign, names in kinds if names]
        words = []
        for number, (how, sign, names) in enumerate(parts):
            count = counted(len(names), "service") if number == 0 else str(len(names))
            words.append(paint(f"{count} {how} ({first_names(names, most=_NAMES_SHOWN)})", sign))
        if not words:
            shared = counted(self.shared, "flow")
            return f"no service changes; {shared} of other traffic and ARP {worded(self.shared, 'does', 'do')}"
        return ", ".join(words)

    @property
    def moved_text(self) -> str:
        """Return the share of clients that get another backend, by service."""
        return first_names([f"{percent(share)} of {name}" for name, share in self.moved], most=_NAMES_SHOWN) or "none"

    @property
    def document(self) -> dict[str, object]:
        return {
            "added": list(self.added),
            "changed": list(self.changed),
            "removed": list(self.removed),
            "clients_moved": [{"service": name, "clients": float(share)} for name, share in self.moved],
            "flows_of_no_service": self.shared,
            "flows_before": self.flows_before,
            "flows_after": self.flows_after,
            "groups": self.groups,
        }


def summary_of(change: Change) -> Summary:
    """Return the effect of a change. There may be many new services: only their names are needed."""
    difference, flow_mods = change.difference, change.difference.flow_mods_by_service()
    new = change.new
    names = {ChangeKind.NEW: [each.service.name for each in change.program.services if each.service_id in new]}
    moved = list[tuple[str, Fraction]]()
    for service in change.services(but=new):
        if service.kind is not ChangeKind.SAME or flow_mods[service.service_id]:
            names.setdefault(service.kind, []).append(service.name)
        if service.moved:
            moved.append((service.name, service.moved))
    same = difference.unchanged + len(difference.changed)
    return Summary(
        added=tuple(names[ChangeKind.NEW]),
        changed=(*names.get(ChangeKind.CHANGED, ()), *names.get(ChangeKind.SAME, ())),
        removed=tuple(names.get(ChangeKind.REMOVED, ())),
        moved=tuple(sorted(moved, key=lambda each: -each[1])),
        shared=flow_mods[0],
        flows_before=same + len(difference.removed),
        flows_after=same + len(difference.added),
        groups=_groups(change),
    )


def _groups(change: Change) -> dict[str, int]:
    """Return how many groups the flows of the bridge need before and after a change."""
    difference = change.difference
    old = [*(each.before for each in difference.changed), *difference.removed]
    new = [*difference.added, *(each.after for each in difference.changed)]
    if not (change.program.balancer.uplinks.buckets or any(flow.failover for flow in old)):
        return dict.fromkeys(("before", "after", "add", "remove"), 0)
    wanted, keys = flattened(change.target.texts).values(), {flow.key for flow in new}
    sides = (*(flow for flow in wanted if flow.key not in keys), *old), wanted
    before, after = ({(each.failover, each.protocol) for each in with_groups(flows)[0]} for flows in sides)
    return {"before": len(before), "after": len(after), "add": len(after - before), "remove": len(before - after)}


def texts_of(
    program: Program, *, without: frozenset[str], unsent: Ends = frozenset(), like: Target | None = None
) -> dict[int, Mapping[str, Flow]]:
    """Return the flows of a program by service and text. `like`: takes services that are the same from this program."""
    is_like = like is not None and (like.without, like.unsent) == (without, unsent)
    known = {made.service_id: made for made in like.program.services} if like is not None and is_like else {}
    texts: dict[int, Mapping[str, Flow]] = {0: _by_text(program.shared, without, unsent)}
    for made in program.services:
        same = like is not None and known.get(made.service_id) is made
        texts[made.service_id] = like.texts[made.service_id] if like and same else _by_text(made.flows, without, unsent)
    return texts


def flattened(texts: Texts) -> dict[str, Flow]:
    return {text: flow for of_service in texts.values() for text, flow in of_service.items()}


def by_service(flows: Iterable[Flow]) -> frozenset[int]:
    """Return the ids of the services that flows belong to."""
    return frozenset(service_of(flow.cookie) for flow in flows)


def reachable(desired: DesiredState, ports: PortCheck) -> tuple[DesiredState, tuple[Problem, ...]]:
    """Return the desired state without the backends that packets cannot or must not reach, and the problems to
    report."""
    texts: dict[object, str] = {name: f"port {name} {reason}" for name, reason in sorted(ports.reasons.items())}
    for end, reason in sorted(ports.unencrypted.items()):
        texts[end] = f"packets to {end[1]} would leave unencrypted, although a policy of IPsec covers them {reason}"
    why = "a userspace datapath bypasses it" if ports.is_userspace else "no policy covers them"
    for end in sorted(ports.uncovered):
        texts[end] = (
            f"packets to {end[1]} would leave unencrypted: the config wants IPsec, and {why}; see `xenoovs doctor`"
        )
    if not texts:
        return desired, ()
    ejected, behind = dict(desired.ejected), dict[object, list[BackendName]]()
    for service in every_service(desired.balancer):
        for name, hop in next_hops(service).items():
            far = remote_end_of(hop, desired.balancer.switch_tunnels)
            ways: set[object] = {hop.port} if far is None else {hop.port, (far.port, far.remote)}
            for obstacle in ways & texts.keys():
                behind.setdefault(obstacle, []).append((service.name, name))
                ejected[service.name] = ejected.get(service.name, frozenset()) | {name}
    problems = tuple(_problem(text, tuple(behind.get(obstacle, ()))) for obstacle, text in texts.items())
    return replace(desired, ejected=ejected), problems


def blocked(flows: Iterable[Flow]) -> tuple[Problem, ...]:
    """Return the problems of foreign flows that have the table, priority and match of flows of xenoovs."""
    return tuple(
        Problem(f"a foreign flow has the same table, priority and match as one of xenoovs: {render_flow(flow)}")
        for flow in flows
    )


def _problem(text: str, backends: tuple[BackendName, ...]) -> Problem:
    names = ", ".join("/".join(name) for name in backends)
    return Problem(text + (f"; no clients for {names}" if names else ""), backends)


def _by_text(flows: Iterable[Flow], without: frozenset[str], unsent: Ends) -> dict[str, Flow]:
    if without:
        flows = (flow for flow in flows if not _names(flow) & without)
    if unsent:
        flows = (flow for flow in flows if flow.key.table in _MEMORY or unsent.isdisjoint(_destinations(flow)))
    return {render_flow(flow): flow for flow in flows}


def _destinations(flow: Flow) -> Iterator[tuple[str, IPv4Address]]:
    """Yield the tunnel ends that a flow sends to."""
    for done in alternatives(flow.actions):
        written = None
        for action in done:
            if isinstance(action, SetField) and action.field is Field.TUN_DST:
                written = IPv4Address(action.value)
            elif isinstance(action, Output):
                remote = written or remote_of_port(action.port)
                if remote is not None:
                    yield action.port, remote


def _names(flow: Flow) -> set[str | None]:
    return {flow.match.in_port, *output_ports(flow.actions)}


# One step of the engine, without any I/O: from what a bridge has and what is desired to what it is to have.


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a change is planned.

    Attributes:
        rebalance: Lay blocks out with the fewest flows, wherever clients are now.
        drain: Let services drain as their config says; False: all clients move at once.
        partial: Leave out what cannot be made right and report it; False: raise an error for it.
        as_found: Keep the ejections and slow starts that the bridge shows, for callers without health checks.
        decision: The decision that the bridge is to have, made earlier for the same config; None: decide now. Only
            what ports make impossible is decided again, and `as_found` is what this decision shows.
    """

    rebalance: bool = False
    drain: bool = True
    partial: bool = False
    as_found: bool = False
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The flows of a bridge compared with the expected ones.

    Attributes:
        missing: Texts of expected flows that are not there.
        touched: Ids of the services that differ; `flows`: what these have.
        foreign: How many flow-mods would lead back to the guess.
        aged: The same flows with their ages; without memory, drains are read from them.
        learned: Service ids and next hops of connections that were opened during drains; likewise.
    """

    guess: Target
    missing: frozenset[str] = frozenset()
    touched: frozenset[int] = frozenset()
    flows: tuple[Flow, ...] = ()
    foreign: int = 0
    aged: tuple[ObservedFlow, ...] = ()
    learned: frozenset[tuple[int, NextHop | None]] = frozenset()

    @property
    def seen(self) -> tuple[ObservedFlow, ...]:
        return self.aged or tuple(ObservedFlow(flow, 0, 0, 0.0) for flow in self.flows)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The inputs of a step besides flows and the desired state.

    Attributes:
        now_s: The time on a clock that never goes back.
        quiet: Blocks whose old backend gets no packets any more.
        revalidated: As of `Progress`.
        remembers: Whether the guess is what this engine left on the bridge, and goes before what is found there.
        lost: Whether the bridge was recreated since.
    """

    now_s: float
    ports: PortCheck
    quiet: frozenset[BlockId] = field(default_factory=frozenset)
    revalidated: frozenset[ServiceMove] | None = None
    remembers: bool = False
    lost: bool = False


def fresh(desired: DesiredState) -> Target:
    """Return the target of a bridge without flows: the fewest blocks, all backends in service. Raises
    ToleranceUnreachable, BudgetUnreachable, CompileError."""
    undisturbed = DesiredState(desired.balancer, stored=desired.stored)
    decision = decide(Decision(), undisturbed)
    program = compile_program(desired.balancer, decision, desired=undisturbed)
    return Target(undisturbed, decision, Transition(), program, texts_of(program, without=frozenset()))


def compare(dump: str, guess: Target) -> Comparison:
    """Compare a dump without counters with the flows that were expected. Raises ParseError."""
    known = flattened(guess.texts)
    seen = recognise(dump, known)
    touched = by_service((*seen.missing.values(), *seen.others))
    there = (flow for i in sorted(touched) for text, flow in guess.texts.get(i, {}).items() if text not in seen.missing)
    foreign = plan(seen.missing.values(), seen.others).flow_mods
    return Comparison(guess, frozenset(seen.missing), touched, (*there, *seen.others), foreign)


def step(desired: DesiredState, found: Comparison, options: PlanOptions, at: Circumstances) -> Change:
    """Return the change that leads from the flows of a bridge to the desired state. Raises ToleranceUnreachable,
    BudgetUnreachable, CompileError."""
    on_bridge = read(found.seen, desired.balancer, now_s=at.now_s)
    before = _remembered(desired.balancer, found, at) if at.remembers else _read(on_bridge, found)
    if options.as_found:
        desired = undisturbed(options.decision or before[0], desired)
    wanted, problems = reachable(desired, at.ports) if options.partial else (desired, ())
    previous = options.decision or (Decision() if options.rebalance else before[0])
    met = desired if options.decision else _met(before[0], found, at)
    served = before if at.remembers else (_served(before[0], on_bridge[0], found), before[1])
    target = _target(decide(previous, wanted, met=met), wanted, served, found, options, at)
    changed = found.touched | _differing(found.guess, target)
    expected = (flow for i in sorted(changed - found.touched) for flow in found.guess.texts.get(i, {}).values())
    observed = (*found.flows, *expected)
    untouched = sum(len(texts) for i, texts in target.texts.items() if i not in changed)
    # Nobody has changed flows whose port is gone: a dump has its number. Behind `in_port`, their keys differ.
    gone = target.without - found.guess.without
    guessed = [found.guess.texts.get(i, {}) for i in found.touched] if gone else []
    lost = [flow for texts in guessed for text, flow in texts.items() if text in found.missing and _names(flow) & gone]
    reverted = max(0, found.foreign - len(lost) - sum(flow.match.in_port in gone for flow in lost))
    decided = {i: service for i, service in before[0].services if i in changed - found.touched}
    return Change(
        bridge=desired.balancer.uplinks.bridge,
        asked=desired,
        target=target,
        difference=plan(_wanted(target, changed), observed, untouched=untouched),
        touched=changed,
        before=Decision.of(decided | dict(on_bridge[0].services)),
        observed=observed,
        settled=_settling(before[1]) - _settling(target.transition) if options.drain else frozenset(),
        problems=problems,
        foreign=reverted if at.remembers and not at.lost else 0,
        lost=at.lost,
        names={made.service_id: made.service.name for made in found.guess.program.services},
    )


def beside(change: Change, foreign: Iterable[Flow]) -> Change:
    """Return the change on a bridge that has foreign flows too: those that conflict stay."""
    wanted = _wanted(change.target, change.touched)
    untouched = sum(len(texts) for i, texts in change.target.texts.items() if i not in change.touched)
    return replace(change, difference=plan(wanted, (*change.observed, *foreign), untouched=untouched))


def settling_moves(transition: Transition) -> frozenset[ServiceMove]:
    """Return the moves whose new connections still go to the old backend."""
    return frozenset((i, move) for i, moves in transition.services for move in moves if move.phase is Phase.SETTLING)


def _settling(transition: Transition) -> frozenset[BlockId]:
    return frozenset((i, move.block) for i, move in settling_moves(transition))


def _remembered(balancer: Balancer, found: Comparison, at: Circumstances) -> tuple[Decision, Transition]:
    """Return the last decision under the names of this config, and the moves under way."""
    guess = found.guess
    transition = Transition() if at.lost else guess.transition
    return follow(guess.decision, transition, before=guess.desired.balancer, after=balancer)


def _read(on_bridge: tuple[Decision, Transition], found: Comparison) -> tuple[Decision, Transition]:
    """Return the decision and the moves in the flows; untouched services, and those without flows, are as guessed."""
    read_back = dict(on_bridge[0].services)
    guessed = {i: service for i, service in found.guess.decision.services if i not in found.touched & read_back.keys()}
    return Decision.of(read_back | guessed), on_bridge[1]


def _served(before: Decision, on_bridge: Decision, found: Comparison) -> Decision:
    """Return the part of a decision that a bridge serves. A service without flows has no open connections."""
    there = dict(on_bridge.services)
    return Decision.of({i: each for i, each in before.services if i in there or i not in found.touched})


def _met(before: Decision, found: Comparison, at: Circumstances) -> DesiredState:
    """Return what the previous decision meets. Without memory, nothing is known of services that differ."""
    desired, guessed = found.guess.desired, dict(found.guess.decision.services)
    if at.remembers:
        return desired
    same = {i for i, service in before.services if guessed.get(i) is service}
    services = tuple(made.service for made in found.guess.program.services if made.service_id in same)
    return replace(desired, balancer=replace(desired.balancer, services=services))


def _target(
    decision: Decision,
    desired: DesiredState,
    before: tuple[Decision, Transition],
    found: Comparison,
    options: PlanOptions,
    at: Circumstances,
) -> Target:
    state, transition = at.ports.state, Transition()
    if options.drain:
        least_s = settle_s(state.max_revalidator_ms)
        progress = Progress(at.now_s, state.ofports.keys(), at.quiet, least_s, at.revalidated)
        transition = advance(before, decision, desired, progress)
    ofports, guess = state.ofports, found.guess
    program = compile_program(
        desired.balancer,
        decision,
        transition,
        ofports=ofports,
        before=guess.program,
        used=found.learned,
        desired=desired,
    )
    without, unsent = frozenset[str](), Ends()
    if options.partial:
        without, unsent = frozenset(at.ports.reasons), Ends({*at.ports.unencrypted, *at.ports.uncovered})
    texts = texts_of(program, without=without, unsent=unsent, like=guess)
    return Target(desired, decision, transition, program, texts, without, unsent)


def _differing(guess: Target, target: Target) -> frozenset[int]:
    """Return the ids of the services whose flows differ between the guess and the target."""
    return frozenset(
        i
        for i in guess.texts.keys() | target.texts.keys()
        if (old := guess.texts.get(i)) is not (new := target.texts.get(i)) and old != new
    )


def _wanted(target: Target, services: frozenset[int]) -> list[Flow]:
    return [flow for i, texts in target.texts.items() if i in services for flow in texts.values()]


# Whether the bridge still has the flows for which a change was planned.


def require_unchanged(change: Change, before: str, *, since: str, again: str) -> None:
    """Raise BridgeChanged if the flows for which the change was planned differ from those in the dump `before`.
    `since`: what happened when it had those, for the message. `again`: the command that plans again."""
    # Most often the texts are equal, which is faster to find out.
    if before == change.dump or lines_of(before) == lines_of(change.dump):
        return
    old, new = ({seen.flow.key: seen.flow for seen in parse_dump(text)} for text in (before, change.dump))
    differing = [old.get(key) or new[key] for key in {**old, **new} if old.get(key) != new.get(key)]
    if not differing:
        return
    names = {made.service_id: made.service.name for made in change.program.services}
    services = [_service_name(flow, {**change.names, **names}) for flow in differing]
    raise BridgeChanged(
        bridge=change.bridge,
        since=since,
        services={name: services.count(name) for name in sorted(set(services))},
        example=render_flow(replace(differing[0], cookie=0)),
        again=again,
    )


def _service_name(flow: Flow, names: dict[int, str]) -> str:
    service_id = service_of(flow.cookie)
    return names.get(service_id, f"id {service_id:#x}") if service_id else "no service"


def lines_of(dump: str) -> set[str]:
    return {line.strip() for line in dump.splitlines() if "actions=" in line}
