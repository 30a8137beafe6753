"""The plan: the flows that differ from the switch, the bundle that changes them, and the effect on services."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from fractions import Fraction
from itertools import chain
from operator import attrgetter

from xenoovs.compile.encoding import hop_of
from xenoovs.compile.pipeline import TO_DRAIN, Stage
from xenoovs.compile.program import Program, ServiceProgram, sorted_flows
from xenoovs.compile.read import is_block, stage_number
from xenoovs.compile.returns import return_flows
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.decide import lone_port, tolerance_of
from xenoovs.decision.decision import Decision, ServiceDecision, moved, next_hop_of
from xenoovs.errors import FlowConflict
from xenoovs.model.next_hop import NextHop, is_tunneled
from xenoovs.model.tunnel import ECN_CODE_POINTS
from xenoovs.openflow.flow import Bundle, Command, Field, Flow, FlowMod, is_ours, service_of
from xenoovs.openflow.text import render_flow
from xenoovs.partition.solve import Window, windows


@dataclass(frozen=True, slots=True)
class FlowChange:
    """A flow that keeps its key and gets other actions, another cookie or other options."""

    before: Flow
    after: Flow


@dataclass(frozen=True, slots=True)
class Plan:
    """The flows of xenoovs to add, change and remove. `blocked`: foreign flows that have the key of a desired flow."""

    added: tuple[Flow, ...]
    changed: tuple[FlowChange, ...]
    removed: tuple[Flow, ...]
    unchanged: int
    blocked: tuple[Flow, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.removed)

    @property
    def flow_mods(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)

    def require_free(self) -> Plan:
        """Return the plan. Raises FlowConflict if a foreign flow has the key of a desired one."""
        if self.blocked:
            raise FlowConflict(flow=render_flow(self.blocked[0]))
        return self

    def flow_mods_by_service(self) -> Counter[int]:
        """Return the number of flow-mods by service id; id 0 for flows of no service."""
        flows = chain(self.added, (change.after for change in self.changed), self.removed)
        return Counter(service_of(flow.cookie) for flow in flows)


def plan(desired: Iterable[Flow], observed: Iterable[Flow], *, untouched: int = 0) -> Plan:
    """Return the difference, in the order of `desired`. Both hold each flow key at most once.

    Foreign flows among `observed` stay as they are; a desired flow with the key of one of them is blocked. `untouched`:
    number of other flows that are already as desired.
    """
    have = {flow.key: flow for flow in observed}
    added, changed, blocked, unchanged = list[Flow](), list[FlowChange](), list[Flow](), untouched
    for flow in desired:
        before = have.pop(flow.key, None)
        if before is None:
            added.append(flow)
        elif before == flow:
            unchanged += 1
        elif not is_ours(before.cookie):
            blocked.append(before)
        else:
            changed.append(FlowChange(before, flow))
    removed = sorted_flows(flow for flow in have.values() if is_ours(flow.cookie))
    return Plan(tuple(added), tuple(changed), removed, unchanged, tuple(blocked))


def bundle_of(difference: Plan) -> Bundle:
    """Return the flow-mods of a plan: adds, then changes, then deletes, so that no packet is lost or reaches a third
    backend.

    Adds go from the last table to the first, so that no packet is sent to blocks that are not there yet, and within a
    table from the highest priority to the lowest. Deletes go in the reverse order.
    """
    path = attrgetter("key.table", "key.priority")
    adds = (FlowMod(Command.ADD, flow) for flow in sorted(difference.added, key=path, reverse=True))
    changes = (FlowMod(_command(change), change.after) for change in difference.changed)
    deletes = (FlowMod(Command.DELETE, flow) for flow in sorted(difference.removed, key=path))
    both = (flow for change in difference.changed for flow in (change.before, change.after))
    has_groups = any(flow.failover for flow in chain(difference.added, both, difference.removed))
    return Bundle((*adds, *changes, *deletes), has_groups)


def _command(change: FlowChange) -> Command:
    # A modify keeps counters and megaflow but cannot give a new cookie or timeout (OpenFlow 1.4.0, 6.4); an add
    # replaces the flow. A drain target is always replaced, because the age of its flow is the age of the drain.
    before, after = change.before, change.after
    if after.table == Stage.DRAIN_TARGET.table:
        return Command.ADD
    only_actions = (before.cookie, before.options) == (after.cookie, after.options)
    return Command.MODIFY if only_actions else Command.ADD


# How many entries of the NIC's table a service takes once all its blocks have seen traffic.


def hardware_entries(service: ServiceProgram) -> int:
    """Return the megaflows of a service: its flows in `classify` times its blocks.

    Every ingress port, VIP and port mask is matched exactly, so each multiplies the blocks, as does each part of a
    prefix that longer VIPs cut out. It counts one client-side MAC (`rewrite_source_mac` needs as many again for each
    further one) and, where a service takes any IPv6 protocol but not neighbour discovery, one IP protocol. Where paths
    rewrite the source port, each port of the host is one megaflow, because Open vSwitch matches what an action writes
    (xlate_sub_field() and OFPACT_SET_L4_SRC_PORT in ofproto/ofproto-dpif-xlate.c).
    """
    ports = service.service.rewritten_ports
    if ports is not None:
        return service.ways * len(ports)
    return service.ways * len(service.rows.rows) + return_entries(service)


def most_entries(service: ServiceProgram) -> int:
    """Return the same for packets with every ECN code point, each of which is a megaflow behind a tunnel."""
    if not any(is_tunneled(backend.next_hop) for backend in service.service.backends):
        return hardware_entries(service)
    behind = sum(is_tunneled(hop) for block in service.blocks if (hop := hop_of(block.flow.actions)) is not None)
    return hardware_entries(service) + behind * service.ways * (ECN_CODE_POINTS - 1)


def return_entries(service: ServiceProgram) -> int:
    """Return the megaflows for packets that backends with clients send back, to which NAT gives the VIP."""
    if not service.returns:
        return 0
    hops, own = {service.hop(owner) for owner in service.decision.active.owners}, {flow.key for flow in service.returns}
    flows = return_flows(service.service, hops, service_id=service.service_id, port="")
    return len(own.intersection(flow.key for flow in flows))


def installed_entries(ways: Counter[int | None], blocks: Iterable[Flow]) -> int:
    """Return the same for installed flows. `ways`: of `ways_by_service`; `blocks`: the flows that split its clients."""
    by_type = Counter(_dl_type(flow) for flow in blocks)
    return sum(count * by_type[dl_type] for dl_type, count in ways.items())


def ways_by_service(flows: Iterable[Flow]) -> dict[int, Counter[int | None]]:
    """Return how many flows of `classify` lead to each service, by its id, for each dl_type."""
    found: dict[int, Counter[int | None]] = {}
    for flow in flows:
        if (service_id := service_of(flow.cookie)) and stage_number(flow) == Stage.CLASSIFY.value:
            found.setdefault(service_id, Counter())[_dl_type(flow)] += 1
    return found


def _dl_type(flow: Flow) -> int | None:
    condition = flow.match.get(Field.DL_TYPE)
    return None if condition is None else condition.value


# What a plan means for the services: shares before and after, clients that move, hardware entries.


class ChangeKind(Enum):
    """The effect of a plan on a service."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class BackendShare:
    """One backend's share of the clients before and after. `target`: by weight; None if it is not in the config."""

    name: str
    hop: NextHop | None
    target: Fraction | None
    before: Fraction
    after: Fraction
    is_backup: bool = False


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """The effect of a plan on one service.

    Attributes:
        moved: Share of its clients that get another backend.
        hardware_entries: After the change, for packets without ECN.
        most_entries: After the change, for packets with every ECN code point.
        least_moved: The share that any change to these weights, within the tolerance, would move.
        ejected: Names of the backends that get no clients, whatever their weight.
        lone_port: With failover in the switch: the port that all backends are behind, so that there is none.
    """

    name: str
    service_id: int
    kind: ChangeKind
    backends: tuple[BackendShare, ...]
    moved: Fraction
    blocks_before: int
    blocks_after: int
    hardware_entries_before: int
    hardware_entries: int
    most_entries: int
    least_moved: Fraction = Fraction(0)
    ejected: tuple[str, ...] = ()
    lone_port: str | None = None


def summarise(
    program: Program, before: Decision, observed: Iterable[Flow], *, same: Collection[int] = ()
) -> Iterator[ServiceChange]:
    """Yield the services of the config in its order, then those that disappear. `before`: the decision in `observed`.
    `observed`: the flows of the bridge, without `same`, the ids of services that do not differ."""
    seen = tuple(observed)
    balance = defaultdict[int, list[Flow]](list)
    for flow in _settled(seen):
        balance[service_of(flow.cookie)].append(flow)
    ways, decided = ways_by_service(seen), dict(before.services)
    for made in program.services:
        if (i := made.service_id) not in same:
            yield _of_config(made, decided.get(i), frozenset(balance[i]), ways.get(i, Counter()))
    for i in sorted(decided.keys() - {made.service_id for made in program.services}):
        yield _removed(i, decided[i], frozenset(balance[i]), ways.get(i, Counter()))


def _of_config(
    made: ServiceProgram, was: ServiceDecision | None, before: frozenset[Flow], ways: Counter[int | None]
) -> ServiceChange:
    """Return the change of a service. `was`, `before`, `ways`: its decision, the flows that choose backends once drains
    are over, and `ways_by_service`, on the bridge."""
    blocks = frozenset(_settled(made.flows))
    same = blocks == before
    is_served = was is not None and was.active.rows and not same
    return ServiceChange(
        name=made.service.name,
        service_id=made.service_id,
        kind=ChangeKind.SAME if same else ChangeKind.CHANGED if before else ChangeKind.NEW,
        backends=_backend_shares(made, {} if was is None else was.active.shares()),
        moved=moved(was, made.decision) if was is not None and is_served else Fraction(0),
        blocks_before=len(before),
        blocks_after=len(blocks),
        hardware_entries_before=installed_entries(ways, before),
        hardware_entries=hardware_entries(made),
        most_entries=most_entries(made),
        least_moved=_least_moved(made, was) if was is not None and is_served else Fraction(0),
        ejected=tuple(one.name for one in made.service.backends if one.weight and one.name in made.decision.ejected),
        lone_port=None if made.watch is None else lone_port(made.service),
    )


def _settled(flows: Iterable[Flow]) -> Iterator[Flow]:
    """Yield the flows that choose backends once drains are over."""
    every = tuple(flows)
    later = {flow.match: flow.actions for flow in every if stage_number(flow) == Stage.DRAIN_TARGET.value}
    for flow in every:
        if is_block(flow):
            yield replace(flow, actions=later.get(flow.match, ())) if flow.actions == TO_DRAIN else flow


def _least_moved(made: ServiceProgram, was: ServiceDecision) -> Fraction:
    """Return the lower bound: the larger of surplus and deficit. Clients that nobody serves do not move."""
    shares, width = was.active.shares(), max(was.active.depth, made.decision.active.depth)
    held = [int(shares.get(backend.name, Fraction(0)) * (1 << width)) for backend in made.service.backends]
    unserved = (1 << width) - int(sum(shares.values(), Fraction(0)) * (1 << width))
    bounds = list(zip(held, _windows(made, width), strict=True))
    gone = (1 << width) - sum(held) - unserved
    over = gone + sum(max(0, units - hi) for units, (_, hi) in bounds)
    missing = sum(max(0, lo - units) for units, (lo, _) in bounds) - unserved
    return Fraction(max(over, missing, 0), 1 << width)


def _windows(made: ServiceProgram, width: int) -> list[Window]:
    """Return the units that each backend may have, widened to its units after the change."""
    ejected, after = made.decision.ejected, [int(share * (1 << width)) for share in made.shares]
    pairs = zip(made.service.backends, made.service.weights, strict=True)
    weights = [0 if backend.name in ejected else weight for backend, weight in pairs]
    if not any(weights):
        return [Window(units, units) for units in after]
    allowed = windows(weights, width, tolerance_of(made.service))
    return [Window(min(lo, units), max(hi, units)) for (lo, hi), units in zip(allowed, after, strict=True)]


def _backend_shares(made: ServiceProgram, before: dict[str, Fraction]) -> tuple[BackendShare, ...]:
    backends = made.service.backends
    rows = [
        BackendShare(one.name, one.next_hop, target, before.get(one.name, Fraction(0)), share, one.is_backup)
        for one, target, share in zip(backends, made.service.target_shares, made.shares, strict=True)
    ]
    others = before.keys() - {one.name for one in backends}
    return (*rows, *(_not_configured(owner, before[owner]) for owner in sorted(others)))


def _removed(
    service_id: int, was: ServiceDecision, before: frozenset[Flow], ways: Counter[int | None]
) -> ServiceChange:
    return ServiceChange(
        name=f"id {service_id:#x}",
        service_id=service_id,
        kind=ChangeKind.REMOVED,
        backends=tuple(_not_configured(owner, share) for owner, share in sorted(was.active.shares().items())),
        moved=Fraction(0),
        blocks_before=len(before),
        blocks_after=0,
        hardware_entries_before=installed_entries(ways, before),
        hardware_entries=0,
        most_entries=0,
    )


def _not_configured(owner: str, share: Fraction) -> BackendShare:
    hop = next_hop_of(owner, {})
    return BackendShare(owner if hop is None else "(not in the config)", hop, None, share, Fraction(0))
