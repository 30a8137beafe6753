"""Decode flows into the decision and the transition that they encode: the inverse of `program`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from xenoovs.compile.encoding import block_of, hop_of, infer_key, key_bits
from xenoovs.compile.pipeline import NESTED_RULES, OUTPUT_PORT, PATH_NUMBER, TO_DRAIN, Stage
from xenoovs.decision.decision import (
    BlockMove,
    Blocks,
    Decision,
    Owner,
    Phase,
    ServiceDecision,
    Transition,
    next_hops,
    owner_of,
)
from xenoovs.model.balancer import Balancer, BlockKey, Protocol, Service, service_ids
from xenoovs.model.next_hop import NextHop, SourcePort
from xenoovs.model.remote import every_service, remotes_of, unknown_paths, with_source_ports
from xenoovs.openflow.flow import Field, Flow, Learn, ObservedFlow, Output, SetField, service_of, stage_of
from xenoovs.partition.block import MAX_WIDTH, Block

_STAGES: dict[int | None, Stage] = {
    stage.value: stage for stage in (Stage.BALANCE, Stage.DRAIN, Stage.HOME, Stage.DRAIN_TARGET)
} | {NESTED_RULES: Stage.BALANCE}


def read(observed: Iterable[ObservedFlow], balancer: Balancer, *, now_s: float = 0.0) -> tuple[Decision, Transition]:
    """Return decision and transition in the flows of a switch: `read(compile(decision, transition)) == (decision,
    transition)`.

    Clients whose flows another program changed or deleted have no owner. Foreign flows, and flows that are no blocks,
    are ignored. A service that is not in the config has next hops as owners. `now_s`: the time from which ages are
    counted, on the clock of the transition.
    """
    configured = every_service(balancer)
    ids = service_ids(service.claim for service in configured)
    services = {ids[service.claim]: service for service in configured}
    decided, moving = dict[int, ServiceDecision](), dict[int, tuple[BlockMove, ...]]()
    for service_id, stages in _by_service(observed).items():
        reader = _Reader(stages, services.get(service_id), now_s)
        found = reader.decision()
        if found is not None:
            decided[service_id], moving[service_id] = found, tuple(reader.moves())
    return Decision.of(decided), Transition.of(moving)


def with_paths(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Balancer:
    """Return the balancer with the source ports of paths from the flows, where the config lacks them."""
    unknown = frozenset(unknown_paths(balancer))
    if not unknown:
        return balancer
    remotes = {(tunnel.name, remote.name): service for tunnel, remote, service in remotes_of(balancer)}
    ids, flows = service_ids(service.claim for service in every_service(balancer)), _by_service(observed)
    found = {name: _source_ports(flows[ids[remotes[name].claim]][Stage.HOME], remotes[name]) for name in unknown}
    return with_source_ports(balancer, {name: ports for name, ports in found.items() if ports})


def _source_ports(home: Iterable[ObservedFlow], service: Service) -> tuple[int, ...]:
    """Return the source port of each path, 0 where no flow has it; empty if no flow has any."""
    ports = dict[int, int]()
    for each in home:
        hop, actions = hop_of(each.flow.actions), each.flow.actions
        numbers = [action.value for action in actions if isinstance(action, SetField) and action.field is PATH_NUMBER]
        if isinstance(hop, SourcePort) and numbers:
            ports[numbers[0]] = hop.source_port
    found = tuple(ports.get(number, 0) for number in range(1, len(service.backends) + 1))
    return found if any(found) else ()


def stage_number(flow: Flow) -> int | None:
    """Return the stage in the cookie; None for a foreign flow."""
    return stage_of(flow.cookie)


def is_block(flow: Flow) -> bool:
    """Return whether the flow chooses the backend of some clients."""
    return stage_number(flow) in (Stage.BALANCE.value, NESTED_RULES)


def is_learned(flow: Flow) -> bool:
    """Return whether Open vSwitch added the flow itself for a connection."""
    return stage_number(flow) == Stage.LEARNED.value


def is_in_drain_table(flow: Flow) -> bool:
    """Return whether packets of moving blocks pass the flow."""
    return stage_number(flow) in (Stage.DRAIN.value, Stage.LEARNED.value)


def is_of_drain(flow: Flow) -> bool:
    """Return whether the flow exists because blocks move."""
    return stage_number(flow) in (Stage.DRAIN.value, Stage.DRAIN_TARGET.value, Stage.LEARNED.value)


def learns(flow: Flow) -> bool:
    """Return whether packets of a flow make Open vSwitch add one for their connection."""
    return any(isinstance(action, Learn) for action in flow.actions)


def drain_ports(observed: Iterable[ObservedFlow]) -> Mapping[str, int]:
    """Return the ports in flows of drains, with their OpenFlow numbers; 0 where no flow has the number."""
    found: dict[str, int] = {}
    for each in observed:
        if stage_number(each.flow) in (Stage.DRAIN.value, Stage.DRAIN_TARGET.value):
            actions = each.flow.actions
            numbers = [a.value for a in actions if isinstance(a, SetField) and a.field is OUTPUT_PORT]
            for name in (action.port for action in actions if isinstance(action, Output)):
                found[name] = numbers[0] if numbers else found.get(name, 0)
    return found


class _Reader:
    """The flows of one service."""

    def __init__(self, stages: Mapping[Stage, list[ObservedFlow]], service: Service | None, now_s: float) -> None:
        self._now_s = now_s
        self._learns = service is None or service.claim.protocol in (None, Protocol.TCP)
        self._key = _key_of((each.flow for stage in stages.values() for each in stage), service)
        hops = {} if service is None else next_hops(service)
        self._owners: Mapping[NextHop, Owner] = {hop: name for name, hop in hops.items()}
        self._stages = stages
        self._found, self._later = self._blocks(Stage.BALANCE), self._blocks(Stage.DRAIN_TARGET)

    def decision(self) -> ServiceDecision | None:
        """Return the decision; None if no flow is a block."""
        home = self._blocks(Stage.HOME)
        if not self._found and not home:
            return None
        active = Blocks.of((block, self._owner(self._new(block))) for block in self._found)
        remembered = Blocks.of((block, self._owner(_hop(seen))) for block, seen in home.items())
        return ServiceDecision(self._key, remembered.over(active), active)

    def moves(self) -> Iterator[BlockMove]:
        """Yield the moving blocks whose old owner is known."""
        opens, stays = self._blocks(Stage.DRAIN, learning=True), self._blocks(Stage.DRAIN, learning=False)
        for part, block in self._visible() if self._later else ():
            later, to, old = self._later.get(block), _hop(self._later.get(block)), _hop(stays.get(block))
            if self._found[block].flow.actions != TO_DRAIN or later is None or to is None or old is None:
                continue
            is_open = _hop(opens[block]) == to if block in opens else not self._learns
            since_s = self._now_s - later.duration_s
            phase = Phase.OPEN if is_open else Phase.SETTLING
            yield BlockMove(part, owner_of(old, self._owners), since_s, phase)

    def _visible(self) -> Iterator[tuple[Block, Block]]:
        """Yield the parts of blocks that no other block hides, each with its block."""
        found = tuple(self._found)
        numbered = Blocks.of((block, str(number)) for number, block in enumerate(found))
        return ((part, found[int(number)]) for part, number in numbered.rows)

    def _new(self, block: Block) -> NextHop | None:
        """Return the next hop that gets the clients of a block once drains are over."""
        seen = self._found[block]
        return _hop(seen if seen.flow.actions != TO_DRAIN else self._later.get(block))

    def _owner(self, hop: NextHop | None) -> Owner | None:
        return None if hop is None else owner_of(hop, self._owners)

    def _blocks(self, stage: Stage, *, learning: bool | None = None) -> dict[Block, ObservedFlow]:
        """Return the flows of a stage that are blocks of the key, by rising precedence. `learning`: only those that
        learn, or only those that do not. Both IP families have the same blocks. Where they differ, because another
        program changed one, IPv4 wins."""
        found = dict[Block, ObservedFlow]()
        flows = (each for each in self._stages.get(stage, ()) if learning in (None, learns(each.flow)))
        for each in sorted(flows, key=lambda each: (-_family(each.flow), each.flow.priority)):
            if (block := _block(*key_bits(each.flow), self._key)) is not None:
                found.pop(block, None)
                found[block] = each
        return found


def _hop(seen: ObservedFlow | None) -> NextHop | None:
    return None if seen is None else hop_of(seen.flow.actions)


def _key_of(flows: Iterable[Flow], service: Service | None) -> BlockKey:
    """Return the key that flows use: that of the service, or another one of an earlier config."""
    masks = Counter(key_bits(flow)[1] for flow in flows)
    used = infer_key(mask for mask in masks if mask.bit_count() <= MAX_WIDTH)
    if service is None:
        return used
    return max((service.key, used), key=lambda key: sum(n for mask, n in masks.items() if _block(0, mask, key)))


def _block(value: int, mask: int, key: BlockKey) -> Block | None:
    """Return the block of key bits; None if it does not fit this key, or has more bits than any block."""
    try:
        return block_of(value, mask, key) if mask.bit_count() <= MAX_WIDTH else None
    except ValueError:
        return None


def _by_service(observed: Iterable[ObservedFlow]) -> dict[int, dict[Stage, list[ObservedFlow]]]:
    found = defaultdict[int, dict[Stage, list[ObservedFlow]]](lambda: defaultdict(list))
    for each in observed:
        service_id, stage = service_of(each.flow.cookie), _STAGES.get(stage_number(each.flow))
        if service_id and stage is not None:
            found[service_id][stage].append(each)
    return found


def _family(flow: Flow) -> int:
    dl_type = flow.match.get(Field.DL_TYPE)
    return 0 if dl_type is None else dl_type.value
