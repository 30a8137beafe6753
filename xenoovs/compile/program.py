"""The program: every flow that a decision needs on its bridge, table by table, and the meaning of each."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain, product
from operator import itemgetter

from xenoovs.compile.encoding import (
    BlockRule,
    block_conditions,
    deliver,
    destination_is,
    family_is,
    in_prefix,
    port_masks,
    rewrites,
    rule_of,
    vlan_is,
)
from xenoovs.compile.pipeline import (
    NEIGHBOUR_DISCOVERY_PRIORITY,
    OTHER_PRIORITY,
    OUTPUT_PORT,
    PATH_NUMBER,
    SERVICE_ID,
    SWAPPED_ADDRESS,
    TO_DRAIN,
    DrainPriority,
    Stage,
    arp_priority,
    block_priority,
    cookie_of,
    drain_priority,
    service_priority,
)
from xenoovs.compile.read import drain_ports, read, with_paths
from xenoovs.compile.returns import return_flows, tunnel_flows, tunnel_return_flows
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.advance import Progress, advance
from xenoovs.decision.decide import decide, successions, undisturbed
from xenoovs.decision.decision import (
    BlockMove,
    Blocks,
    Decision,
    DesiredState,
    NextHops,
    Owner,
    Phase,
    ServiceDecision,
    Transition,
    next_hop_of,
    next_hops,
    owners_of,
    split,
)
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, IPNetwork, Mac, Vip, family_of, merge_ports, prefix_of
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, Protocol, Service, service_ids
from xenoovs.model.next_hop import NextHop, SourcePort, with_mac
from xenoovs.model.packet import NEIGHBOUR_DISCOVERY
from xenoovs.model.remote import any_source_ports, every_service, remotes_of, unknown_paths, with_source_ports
from xenoovs.openflow.flow import (
    ETH_ARP,
    TCP,
    TCP_ACK,
    TCP_SYN,
    Action,
    Failover,
    Field,
    Flow,
    FlowKey,
    Learn,
    Masked,
    Match,
    Move,
    Normal,
    ObservedFlow,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
    exact,
    match_of,
)
from xenoovs.openflow.text import render_flow

# The first stage: which service a packet belongs to; ARP for a VIP; the policy for all other traffic.


_TABLE = Stage.CLASSIFY.table
_ARP_REQUEST, _ARP_REPLY = 1, 2
"""RFC 826, ar$op."""


def service_flows(service: Service, *, service_id: int, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield one flow for each ingress port, VIP and port mask, which writes the service id and goes on to `balance`.
    `ingress`: ports of the bridge, for services whose claim names no port."""
    actions = (SetField(SERVICE_ID, service_id), Resubmit(Stage.BALANCE.table))
    cookie, entered = cookie_of(Stage.CLASSIFY, service_id), service.claim.in_port
    for in_port, (conditions, priority) in product(
        ingress if entered is None else (entered,), _conditions(service.claim)
    ):
        yield Flow(FlowKey(_TABLE, priority, match_of(conditions, in_port=in_port)), cookie, actions)


def arp_flows(balancer: Balancer) -> Iterator[Flow]:
    """Yield flows that answer ARP requests for the IPv4 VIPs with the VIP's MAC, inside the switch (RFC 826).

    Services can share a VIP (DNS over UDP and over TCP), so an answer belongs to none of them. It has the tag of the
    request. Flows answer for every address of a prefix, even its first and its last, as the service gets packets to
    them too. Raises CompileError: Two services give one VIP two MACs.
    """
    macs = sorted(_vip_macs(balancer.services).items(), key=lambda item: (item[0][0] or 0, prefix_of(item[0][1])))
    for in_port, ((vlan, vip), mac) in product(balancer.uplinks.ingress, macs):
        ether = (exact(Field.DL_TYPE, ETH_ARP), *vlan_is(vlan))
        conditions = (*ether, exact(Field.ARP_OP, _ARP_REQUEST), in_prefix(Field.ARP_TPA, vip))
        key = FlowKey(_TABLE, arp_priority(vip, vlan), match_of(conditions, in_port=in_port))
        yield Flow(key, cookie_of(Stage.CLASSIFY), _arp_reply(mac, vip))


def neighbour_discovery_flows(balancer: Balancer) -> Iterator[Flow]:
    """Yield flows that keep neighbour discovery (RFC 4861) out of services that take every IPv6 packet."""
    claims = (each.claim for each in balancer.services if each.claim.protocol in (None, Protocol.ICMP))
    if not any(Family.IPV6 in claim.served_families for claim in claims):
        return
    for in_port, icmp_type in product(balancer.uplinks.ingress, NEIGHBOUR_DISCOVERY):
        conditions = (
            family_is(Family.IPV6),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV6)),
            exact(Field.ICMP_TYPE, icmp_type),
        )
        key = FlowKey(_TABLE, NEIGHBOUR_DISCOVERY_PRIORITY, match_of(conditions, in_port=in_port))
        # With `other_traffic: leave` foreign flows decide, but this flow is above them: NORMAL comes closest.
        actions = _other_actions(balancer, in_port)
        yield Flow(key, cookie_of(Stage.CLASSIFY), (Normal(),) if actions is None else actions)


def other_flows(balancer: Balancer) -> Iterator[Flow]:
    """Yield the flows for packets of no service, one for each port of the balancer."""
    tunnels = frozenset(balancer.tunnel_ports)
    for port in balancer.ports:
        actions = _other_actions(balancer, port, is_tunnel=port in tunnels)
        if actions is not None:
            key = FlowKey(_TABLE, OTHER_PRIORITY, Match(in_port=port))
            yield Flow(key, cookie_of(Stage.CLASSIFY), actions)


def _other_actions(balancer: Balancer, in_port: str, *, is_tunnel: bool = False) -> tuple[Action, ...] | None:
    uplinks = balancer.uplinks
    if is_tunnel and uplinks.other_traffic is not OtherTraffic.LEAVE:
        # Any host that reaches our end of a tunnel could send packets into the network behind the bridge.
        return ()
    match uplinks.other_traffic:
        case OtherTraffic.PASSTHROUGH:
            return (Output(uplinks.egress if in_port in uplinks.ingress else uplinks.ingress[0]),)
        case OtherTraffic.NORMAL:
            return (Normal(),)
        case OtherTraffic.DROP:
            return ()
        case OtherTraffic.LEAVE:
            return None


def _conditions(claim: Claim) -> Iterator[tuple[tuple[Masked, ...], int]]:
    """Yield the conditions of each flow of a claim, and its priority."""
    masks: tuple[Masked | None, ...] = port_masks(Field.TP_DST, claim.ports) or (None,)
    for family in claim.served_families:
        first = [family_is(family), *vlan_is(claim.vlan)]
        if claim.protocol is not None:
            first.append(exact(Field.NW_PROTO, claim.protocol.number(family)))
        vips: tuple[Vip | None, ...] = claim.vips_of(family) or (None,)
        for vip, ports in product(vips, masks):
            to = () if vip is None else (destination_is(vip),)
            last, port_bits = ((), 0) if ports is None else ((ports,), ports.mask.bit_count())
            yield (*first, *to, *last), service_priority(claim, vip, port_bits=port_bits)


def _vip_macs(services: Iterable[Service]) -> dict[tuple[int | None, Vip], Mac]:
    """Return the MACs by VLAN, as `Claim.vlan`, and VIP."""
    found: dict[tuple[int | None, Vip], Mac] = {}
    for service in services:
        mac = service.vip_mac
        if mac is None:
            continue
        for vip in service.claim.vips_of(Family.IPV4):
            other = found.setdefault((service.claim.vlan, vip), mac)
            if other != mac:
                reason = f"{mac} cannot answer for {vip}, for which {other} answers; write one vip_mac for one address"
                raise CompileError(service=service.name, reason=reason)
    return found


def _arp_reply(mac: Mac, vip: Vip) -> tuple[Action, ...]:
    is_prefix = isinstance(vip, IPNetwork)
    wanted: Action = (
        Move(SWAPPED_ADDRESS, Field.ARP_SPA) if is_prefix else SetField(Field.ARP_SPA, int(prefix_of(vip)[0]))
    )
    return (
        *((Move(Field.ARP_TPA, SWAPPED_ADDRESS),) if is_prefix else ()),
        Move(Field.DL_SRC, Field.DL_DST),
        SetField(Field.DL_SRC, mac.value),
        SetField(Field.ARP_OP, _ARP_REPLY),
        Move(Field.ARP_SHA, Field.ARP_THA),
        SetField(Field.ARP_SHA, mac.value),
        Move(Field.ARP_SPA, Field.ARP_TPA),
        wanted,
        OutputInPort(),
    )


# The stage that balances: the service's id and the masked key, and nothing else, choose the backend.


BlockActions = tuple[BlockRule, tuple[Action, ...]]


def block_flows(
    service: Service, rules: Iterable[BlockActions], *, service_id: int, stage: Stage = Stage.BALANCE
) -> Iterator[Flow]:
    """Yield one flow for each IP family of the service and each rule, in this order, in the table of `stage`."""
    cookie, table = cookie_of(stage, service_id), stage.table
    given, mine = tuple(rules), exact(SERVICE_ID, service_id)
    for family in service.claim.served_families:
        for rule, actions in given:
            # Not `match_of`: a register is before all other fields.
            match = Match(masked=(mine, *block_conditions(service, family, rule, actions)))
            yield Flow(FlowKey(table, block_priority(rule.depth), match), cookie, actions)


# The stage of blocks that move: open connections stay with the old backend, new ones go to the new one.
#
# A packet that opens a TCP connection goes to the new backend and makes Open vSwitch learn a flow for all others of
# that connection; TCP packets of any other connection go to the old one, as do all other protocols. While a block
# settles, connections that open are learned too, but stay with the old backend. docs/adr/0008 says why, and why the
# flow for open connections copies fields onto themselves.


MAX_LEARNED = 65_536
"""Most connections of one service that are learned during a drain, also in a flood of SYNs. Further connections go to
the old backend after their first packet."""

_LONGEST_S = 65_535
_SPARE_S = 60
"""A connection that is silent during a whole drain is still known at its end."""

_OPENS = Masked(Field.TCP_FLAGS, TCP_SYN, TCP_SYN | TCP_ACK)


def drain_flows(
    made: ServiceProgram, rule: BlockRule, owner: Owner, move: BlockMove, ofports: Mapping[str, int]
) -> Iterator[Flow]:
    """Yield the flows in `drain` of one block that moves to `owner`, and its flow in `drain_target`, for each IP
    family."""
    service, mine = made.service, exact(SERVICE_ID, made.service_id)
    old, new = made.hop(move.old), made.hop(owner)
    # While earlier megaflows may still exist, new connections go to the old backend.
    opens = old if move.phase is Phase.SETTLING else new
    goes: tuple[Action, ...] = deliver(new, service.source_mac)
    stays: tuple[Action, ...] = deliver(old, service.source_mac)
    if made.watch is not None and old.port != new.port:
        # If the port of the old backend goes down, the switch sends all to the new one.
        stays = _actions((deliver(old, service.source_mac), deliver(new, service.source_mac)))
    for family in service.claim.served_families:
        target = match_of((mine, *block_conditions(service, family, rule, goes)))
        key = FlowKey(Stage.DRAIN_TARGET.table, block_priority(rule.depth), target)
        yield Flow(key, cookie_of(Stage.DRAIN_TARGET, made.service_id), goes)
        for kind, conditions, actions in _kinds(made, family, stays, opens, ofports.get(opens.port, 0)):
            block = (mine, *block_conditions(service, family, rule, actions))
            # A key may ask for the protocol too.
            match = match_of(dict.fromkeys((*block, *conditions)))
            key = FlowKey(Stage.DRAIN.table, drain_priority(kind, rule.depth), match)
            yield Flow(key, cookie_of(Stage.DRAIN, made.service_id), actions)


_Kind = tuple[DrainPriority, tuple[Masked, ...], tuple[Action, ...]]


def _kinds(
    made: ServiceProgram, family: Family, stays: tuple[Action, ...], opens: NextHop, port_number: int
) -> Iterator[_Kind]:
    """Yield the flows of a moving block. `stays`: the actions for open connections. `opens`: gets new connections,
    through the port with this number."""
    service, tcp = made.service, exact(Field.NW_PROTO, TCP)
    if service.claim.protocol in (None, Protocol.TCP):
        first = SetField(OUTPUT_PORT, port_number), _learn(made, family, opens)
        yield DrainPriority.NEW_CONNECTION, (tcp, _OPENS), (*first, *deliver(opens, service.source_mac))
        # Without the copies one wide megaflow would take the first packets of new connections too, until Open vSwitch
        # sees that their flows were learned: a field that an action reads is matched as a whole.
        copies = (Move(field, field) for field in _connection(family))
        yield DrainPriority.OPEN_CONNECTION, (tcp,), (*copies, *stays)
    if service.claim.protocol is not Protocol.TCP:
        yield DrainPriority.REST, (), stays


def _learn(made: ServiceProgram, family: Family, opens: NextHop) -> Learn:
    return Learn(
        table=Stage.LEARNED.table,
        priority=drain_priority(DrainPriority.LEARNED),
        cookie=cookie_of(Stage.LEARNED, made.service_id),
        idle_timeout_s=min(_LONGEST_S, -(-made.service.drain.timeout_ms // 1000) + _SPARE_S),
        limit=MAX_LEARNED,
        dl_type=family_is(family).value,
        nw_proto=TCP,
        same=(SERVICE_ID, *_connection(family)),
        writes=rewrites(opens, made.service.source_mac),
        output=OUTPUT_PORT,
    )


def _connection(family: Family) -> tuple[Field, ...]:
    is_ipv4 = family is Family.IPV4
    addresses = (Field.NW_SRC, Field.NW_DST) if is_ipv4 else (Field.IPV6_SRC, Field.IPV6_DST)
    return *addresses, Field.TP_SRC, Field.TP_DST


@dataclass(frozen=True, slots=True)
class BlockFlow:
    """The flow of one block and the backend that owns it. `move` is None unless the block moves."""

    flow: Flow
    rule: BlockRule
    backend: Backend
    move: BlockMove | None = None


@dataclass(frozen=True, slots=True)
class PortWatch:
    """Which backends get clients when ports go down: at most `depth` in a row, none of `ejected`, those of `held` last.
    `slow`: backends in a slow start, maybe without clients yet."""

    depth: int
    ejected: frozenset[str]
    held: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """The flows of one service.

    Attributes:
        decision: What the flows encode; `moves`: blocks on their way.
        leaving: Next hops of no backend, to which clients or open connections go all the same.
        classify: Flows that find the packets of the service.
        home: Flows that store the home blocks of backends that do not serve all of theirs.
        drain: Flows for packets of moving blocks, and those that store their new owners.
        returns: Flows for what its backends send back, where it is not from the VIP.
        watch: What the switch moves by itself; None: nothing.
        rows: The blocks as they are once drains are over; the owner is one of `decision.decide.successions`.
        splits: How many more ways packets have to it than flows in `classify`, as longer VIPs are in its prefixes.
    """

    service: Service
    service_id: int
    decision: ServiceDecision
    moves: tuple[BlockMove, ...]
    classify: tuple[Flow, ...]
    blocks: tuple[BlockFlow, ...]
    leaving: tuple[NextHop, ...] = ()
    home: tuple[Flow, ...] = ()
    drain: tuple[Flow, ...] = ()
    returns: tuple[Flow, ...] = ()
    watch: PortWatch | None = None
    rows: Blocks = Blocks()
    splits: int = 0

    @property
    def flows(self) -> tuple[Flow, ...]:
        return (*self.classify, *(each.flow for each in self.blocks), *self.home, *self.drain, *self.returns)

    @property
    def ways(self) -> int:
        """Return the number of megaflows of each block."""
        return len(self.classify) + self.splits

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Return each backend's share of the clients, in the order of the config."""
        shares = self.decision.active.shares()
        return tuple(shares.get(backend.name, Fraction(0)) for backend in self.service.backends)

    def hop(self, owner: str) -> NextHop:
        """Return the next hop of an owner of blocks. Raises CompileError for a name that the config lacks."""
        return _hop(self.service, owner, next_hops(self.service))


@dataclass(frozen=True, slots=True)
class Program:
    """All flows of a decision, no two with the same key. `shared`: flows of no service. `balancer`: the config, with
    the next hops that only the decision and the transition still need."""

    services: tuple[ServiceProgram, ...]
    shared: tuple[Flow, ...]
    balancer: Balancer

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Return all flows in the order of the config."""
        return (*self.shared, *(flow for service in self.services for flow in service.flows))

    @property
    def decision(self) -> Decision:
        return Decision.of({made.service_id: made.decision for made in self.services})


def compile_program(
    balancer: Balancer,
    decision: Decision,
    transition: Transition | None = None,
    *,
    ofports: Mapping[str, int] | None = None,
    before: Program | None = None,
    used: Collection[tuple[int, NextHop | None]] = (),
    desired: DesiredState | None = None,
) -> Program:
    """Return the flows that encode a decision and a transition on the bridge of a config.

    Args:
        decision: With every service of the config.
        transition: Blocks on their way; None if there are none.
        ofports: OpenFlow port numbers by name, which connections of moving blocks learn.
        before: A program; services that are the same in it are taken from there.
        used: Service ids and next hops of open connections, where `before` is not what the bridge has.
        desired: What the decision was made for: who must not get the clients of a dead port; None: known by nothing.

    Raises:
        CompileError: An owner of blocks has no next hop, or two services answer ARP for one VIP with two MACs.
    """
    configured = every_service(balancer)
    ids = service_ids(service.claim for service in configured)
    decided, moving = dict(decision.services), dict((transition or Transition()).services)
    known = {} if before is None else {made.service_id: made for made in before.services}
    services = list[ServiceProgram]()
    for service in configured:
        service_id = ids[service.claim]
        decided_now, moves = decided[service_id], moving.get(service_id, ())
        made = was = known.get(service_id)
        watch = _watch(service, balancer, desired)
        if made is None or (made.service, made.decision, made.moves, made.watch) != (
            service,
            decided_now,
            moves,
            watch,
        ):
            found = service_flows(service, service_id=service_id, ingress=balancer.uplinks.ingress)
            # While no path to a remote is known, its packets are other traffic. Clients of a service would be dropped.
            classify = () if service.is_remote and not decided_now.active.rows else tuple(found)
            rows = decided_now.active
            if watch is not None:
                out = watch.ejected | (decided_now.ejected - watch.slow)
                rows = successions(service, decided_now, depth=watch.depth, out=out, closed=watch.held)
            bare = ServiceProgram(service, service_id, decided_now, moves, classify, (), watch=watch, rows=rows)
            bare = replace(bare, leaving=tuple(_leaving(bare, was, ofports or {}, used)))
            made = _with_blocks(bare, ofports or {})
        services.append(made)
    services = with_splits(_with_returns(services, port=balancer.uplinks.ingress[0]))
    balancer = replace(balancer, leaving=tuple(dict.fromkeys(hop for made in services for hop in made.leaving)))
    shared = (
        *arp_flows(balancer),
        *neighbour_discovery_flows(balancer),
        *tunnel_flows(balancer),
        *tunnel_return_flows(balancer, {made.service.claim: made.leaving for made in services}),
        *other_flows(balancer),
    )
    return Program(tuple(services), shared, balancer)


def _watch(service: Service, balancer: Balancer, desired: DesiredState | None) -> PortWatch | None:
    depth = balancer.uplinks.buckets
    if not depth or service.is_remote:
        return None
    unknown = frozenset(backend.name for backend in service.backends if not backend.next_hop.is_known)
    if desired is None:
        return PortWatch(depth, unknown)
    nobody = frozenset[str]()
    slow = frozenset(name for of, name in desired.ramps if of == service.name)
    ejected, held = (found.get(service.name, nobody) for found in (desired.ejected, desired.held))
    return PortWatch(depth, unknown | ejected, held, slow)


def sorted_flows(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """Return flows in the order in which packets meet them: by table, then falling priority, then text."""
    return tuple(sorted(flows, key=lambda flow: (flow.table, -flow.priority, render_flow(flow))))


def _with_blocks(bare: ServiceProgram, ofports: Mapping[str, int]) -> ServiceProgram:
    """Return the program of a service with the flows of its blocks."""
    service, service_id, decided = bare.service, bare.service_id, bare.decision
    backends = {backend.name: backend for backend in service.backends}
    hops, in_turn = next_hops(service), {row: owners_of(row) for row in bare.rows.owners}
    owners = {*chain.from_iterable(in_turn.values()), *decided.home.owners}
    delivered = {owner: deliver(_hop(service, owner, hops), service.source_mac) for owner in owners}
    done = {row: _actions(tuple(delivered[owner] for owner in each)) for row, each in in_turn.items()}
    cut = [(rule_of(block, service.key), row, move) for block, row, move in split(bare.rows, bare.moves)]
    cut.sort(key=lambda row: row[0])
    rules: list[BlockActions] = [(rule, done[row] if move is None else TO_DRAIN) for rule, row, move in cut]
    rows = [(rule, in_turn[row][0], move) for rule, row, move in cut]
    flows = block_flows(service, rules, service_id=service_id)
    targets = [
        (rule, backends.get(owner) or Backend(owner, bare.hop(owner), Fraction(0)), move)
        for _ in service.claim.served_families
        for rule, owner, move in rows
    ]
    # Of a remote all: the source ports of paths without blocks are written nowhere else.
    displaced = decided.home.owners if service.is_remote else decided.displaced
    numbered = {owner: (*_path_number(service, owner), *delivered[owner]) for owner in displaced}
    away = ((rule_of(b, service.key), numbered[owner]) for b, owner in decided.home.rows if owner in displaced)
    home = sorted(away, key=lambda row: row[0])
    drains = (drain_flows(bare, rule, owner, move, ofports) for rule, owner, move in rows if move is not None)
    return replace(
        bare,
        blocks=tuple(BlockFlow(flow, *target) for flow, target in zip(flows, targets, strict=True)),
        home=tuple(block_flows(service, home, service_id=service_id, stage=Stage.HOME)),
        drain=tuple(chain.from_iterable(drains)),
    )


def _actions(ways: tuple[tuple[SetField | Output, ...], ...]) -> tuple[Action, ...]:
    """Return the actions that send packets the first of these ways whose port is live."""
    return ways[0] if len(ways) == 1 else (Failover(ways),)


def _with_returns(services: list[ServiceProgram], *, port: str) -> list[ServiceProgram]:
    """Return the programs with the flows for packets that backends send back through this port. A backend has them
    while it is in the config, and then as long as moving blocks leave connections at it."""
    found = list[dict[FlowKey, Flow]]()
    for made in services:
        configured = (backend.next_hop for backend in made.service.backends)
        flows = return_flows(made.service, configured, service_id=made.service_id, port=port)
        found.append({flow.key: flow for flow in flows})
    taken = {key for own in found for key in own}
    for made, own in zip(services, found, strict=True):
        for flow in return_flows(made.service, made.leaving, service_id=made.service_id, port=port):
            # The server may be of another service by now.
            if flow.key not in taken:
                own[flow.key] = flow
                taken.add(flow.key)
    return [
        made if made.returns == (every := tuple(own.values())) else replace(made, returns=every)
        for made, own in zip(services, found, strict=True)
    ]


_Prefix = tuple[int, int]
"""Its first address and its length."""


def with_splits(services: list[ServiceProgram]) -> list[ServiceProgram]:
    """Return the programs with the number of megaflows that nested prefixes cost.

    Open vSwitch matches as many bits of a destination as distinguish it from all longer VIPs (`trie_lookup()` of
    lib/classifier.c). Packets that a longer VIP leaves to the service count once, for one protocol and one port. VIPs
    in other VLANs, and remotes, matter only where a longer VIP in the same VLAN is looked up (`check_tries()`). A
    service of every VLAN counts for one VLAN in which there is no other service.
    """
    if not any(isinstance(vip, IPNetwork) for made in services for vip in made.service.claim.vips):
        return services
    takers = defaultdict[tuple[int | None, Family], list[tuple[_Prefix, Claim]]](list)
    known = defaultdict[Family, set[_Prefix]](set)
    for made in services:
        claim = made.service.claim
        for vip in claim.vips:
            first, length = prefix_of(vip)
            known[family_of(vip)].add((int(first), length))
            if not made.service.is_remote:
                takers[claim.vlan, family_of(vip)].append(((int(first), length), claim))
    ordered = {family: sorted(prefixes) for family, prefixes in known.items()}
    for found_of in takers.values():
        found_of.sort(key=itemgetter(0))
    deepest = {key: max(length for (_, length), _ in found_of) for key, found_of in takers.items()}
    found = list[ServiceProgram]()
    for made in services:
        claim, regions = made.service.claim, 0
        for vip in claim.vips:
            key = claim.vlan, family_of(vip)
            if isinstance(vip, IPNetwork) and vip.prefixlen < deepest[key]:
                regions += _regions(claim, vip, ordered[key[1]], takers[key], deepest[key]) - 1
        splits = regions * len(made.classify) // max(1, len(claim.vips))
        found.append(made if made.splits == splits else replace(made, splits=splits))
    return found


def _regions(
    claim: Claim, net: IPNetwork, known: list[_Prefix], takers: list[tuple[_Prefix, Claim]], deepest: int
) -> int:
    """Return the number of prefixes under which packets of a claim to a prefix are matched; 1 if it is only its own.
    `known`: VIPs of all services, sorted. `takers`: VIPs in the same VLAN, with their claims, up to `deepest` bits."""
    width, first = net.max_prefixlen, int(net.network_address)
    bounds = (first, 0), (first + net.num_addresses, 0)
    (start, end), (one, last) = (
        [bisect_left(known, bound) for bound in bounds],
        [bisect_left(takers, bound, key=itemgetter(0)) for bound in bounds],
    )
    inside = defaultdict[tuple[int, int], list[Claim]](list)
    for (value, length), taker in takers[one:last]:
        if length > net.prefixlen:
            inside[length, value >> width - length].append(taker)
    nodes = {
        (n, value >> width - n)
        for value, length in known[start:end]
        for n in range(net.prefixlen, min(length, deepest) + 1)
    }
    top = net.prefixlen, first >> width - net.prefixlen
    regions, left = 0, [(*top, list[Claim]())]
    while left:
        length, value, taken = left.pop()
        taken = [*taken, *inside.get((length, value), ())]
        below = [(length + 1, value << 1 | bit) for bit in (0, 1)]
        if not _covers(taken, claim):
            is_cut = any(node in nodes for node in below)
            left += [(*node, taken) for node in below if is_cut]
            regions += not is_cut
    return regions


def _covers(claims: Iterable[Claim], claim: Claim) -> bool:
    """Return whether claims for the same destinations leave no packets to this one."""
    same = [other.ports for other in claims if other.protocol in (None, claim.protocol)]
    taken = merge_ports(ports for listed in same for ports in listed)
    return () in same or (claim.ports != () and merge_ports((*taken, *claim.ports)) == taken)


def broken_returns(program: Program) -> tuple[tuple[str, Owner, str], ...]:
    """Return backends that answer for another service while they have connections: old service, name, new service."""
    taken = {flow.key: made for made in program.services for flow in made.returns}
    found = dict.fromkeys(
        (made.service.name, owner, other.service.name)
        for made in program.services
        for owner in _unconfigured(made)
        for flow in return_flows(made.service, (made.hop(owner),), service_id=made.service_id, port="")
        if (other := taken.get(flow.key)) is not None and other is not made
    )
    return tuple(found)


def _unconfigured(made: ServiceProgram) -> list[Owner]:
    """Return the owners that are not in the config but still get packets of clients, sorted."""
    names = {backend.name for backend in made.service.backends}
    owners = [owner for _, owner in made.decision.active.rows] + [move.old for move in made.moves]
    return sorted({owner for owner in owners if owner not in names})


def _leaving(
    made: ServiceProgram,
    was: ServiceProgram | None,
    ofports: Mapping[str, int],
    used: Collection[tuple[int, NextHop | None]],
) -> Iterator[NextHop]:
    """Yield the next hops of a service that are not in the config. `was`: the service before; `used`: further ones."""
    found = dict.fromkeys(made.hop(owner) for owner in _unconfigured(made))
    if made.moves:
        # No move names a backend that got connections only since the drain began: they were learned one by one.
        now = (hop for service_id, hop in used if hop is not None and service_id == made.service_id)
        before = (*now, *((*(backend.next_hop for backend in was.service.backends), *was.leaving) if was else ()))
        found |= dict.fromkeys(hop for hop in before if hop.is_known and hop.port in ofports)
    configured = {backend.next_hop for backend in made.service.backends} if found else set()
    return (hop for hop in found if hop not in configured)


def _path_number(service: Service, owner: Owner) -> tuple[SetField, ...]:
    """Return the action that stores the number of a path by source port."""
    for number, backend in enumerate(service.backends, start=1):
        if backend.name == owner and isinstance(backend.next_hop, SourcePort):
            return (SetField(PATH_NUMBER, number),)
    return ()


def _hop(service: Service, owner: Owner, hops: NextHops) -> NextHop:
    found = next_hop_of(owner, hops)
    if found is None:
        raise CompileError(service=service.name, reason=f"no backend {owner} with a MAC, but clients for it")
    return found


# A config to a program in one call: on a bridge without flows, or on one that has some.


_PLACEHOLDER = 0x02FFFF000000
"""The first of the locally administered MACs of backends whose MAC is not known."""


def compile_config(balancer: Balancer) -> Program:
    """Return the program with the fewest blocks, without a switch or a network.

    It has placeholders for unknown MACs of backends and unknown source ports of paths: blocks and hardware entries
    depend on neither. Raises ToleranceUnreachable, BudgetUnreachable, CompileError.
    """
    known = replace(balancer, services=tuple(map(_with_placeholders, balancer.services)))
    unknown = frozenset(unknown_paths(known))
    remotes = {(tunnel.name, remote.name): (tunnel, remote) for tunnel, remote, _ in remotes_of(known)}
    known = with_source_ports(known, {name: any_source_ports(*remotes[name]) for name in unknown})
    return compile_program(known, decide(Decision(), DesiredState(known)), desired=DesiredState(known))


def _with_placeholders(service: Service) -> Service:
    found = (
        backend
        if backend.next_hop.is_known
        else replace(backend, next_hop=with_mac(backend.next_hop, Mac(placeholder)))
        for placeholder, backend in enumerate(service.backends, _PLACEHOLDER)
    )
    return replace(service, backends=tuple(found))


def compile_onto(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Program:
    """Return the program that `apply` would leave on a bridge with these flows, without progress of drains under way.
    Raises what `compile_config` raises."""
    seen = tuple(observed)
    balancer = with_paths(balancer, seen)
    before = read(seen, balancer)
    desired = undisturbed(before[0], DesiredState(balancer))
    decision = decide(before[0], desired)
    ports = drain_ports(seen)
    transition = advance(before, decision, desired, Progress(now_s=0.0, ports=ports, settle_s=None))
    return compile_program(balancer, decision, transition, ofports=ports, desired=desired)
