"""The flows and groups of a config in each design of `measure compare designs`.

All designs share the first table and the next hops. They differ in how a backend is chosen, and where that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import NamedTuple

from xenoovs.compile.encoding import block_conditions, deliver, destination_is, family_is, rule_of
from xenoovs.compile.pipeline import BLOCK_PRIORITY, GENERATION, SERVICE_ID, SERVICE_PRIORITY, Stage, block_priority
from xenoovs.compile.program import ServiceProgram, compile_config
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.decision import Blocks, Owner
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.model.balancer import Balancer, Protocol, Service, Uplinks
from xenoovs.openflow.flow import (
    Action,
    Field,
    Flow,
    FlowKey,
    Foreign,
    Masked,
    Output,
    Resubmit,
    SetField,
    encode_cookie,
    exact,
    match_of,
    service_of,
    stage_of,
)
from xenoovs.openflow.text import render_actions, render_flow
from xenoovs.partition.block import Block
from xenoovs.partition.solve import whole_weights


class Design(Enum):
    """A way to split the clients of a service over its backends with Open vSwitch. The value is the name for users."""

    MASKED = "masked"
    LONG_FIRST = "masked_long_first"
    LONGEST_MATCH = "longest_match"
    DP_HASH = "dp_hash"
    HASH_SOURCE = "hash_source"
    LEARN = "learn"
    CONNTRACK = "conntrack"
    IPVS = "ipvs"
    """The balancer of Linux; Open vSwitch only sends it the packets (compare.py)."""


OPENFLOW_DESIGNS = tuple(design for design in Design if design is not Design.IPVS)
"""Designs that are flows of `design_program`."""

DESIGN_GENERATION = GENERATION ^ 0xFF
"""In the cookies of the other designs. `xenoovs apply` replaces flows of another generation, so it removes the flows
that a killed experiment left on a bridge."""

CONNTRACK_ZONE = 0x786F
"""The zone of an experiment's connections (ovs-fields(7), ct_zone)."""

_CONNECTIONS, _TRACKED, _DELIVERY, _ANSWERS = 10, 11, 12, 13
"""Tables of the other designs, which differ from those of the compiled program."""

_BACKEND = Field.REG1
"""The number of the chosen backend, which `_DELIVERY` matches."""

_FOUND, _LEARNED = 100, 200
"""Priorities in these tables. Learned flows are above the flow with the group that learns them."""

_LEARNED_IDLE_S = 60
_MAX_GROUP_WEIGHT = 0xFFFF
"""Weights of buckets have 16 bits (struct ofp15_bucket_prop_weight of include/openflow/openflow-1.5.h)."""


@dataclass(frozen=True, slots=True)
class DesignProgram:
    """The flows and groups of one design. `groups`: in the format of `ovs-ofctl add-groups`."""

    design: Design
    groups: tuple[str, ...]
    flows: tuple[Flow, ...]

    @property
    def text(self) -> str:
        """Return the flows in the format of `ovs-ofctl add-flows`."""
        return "".join(f"{render_flow(flow)}\n" for flow in self.flows)


def design_program(balancer: Balancer, design: Design) -> DesignProgram:
    """Return the flows and groups of a config in one design.

    Raises ToleranceUnreachable, BudgetUnreachable if no blocks fit the config, and CompileError if NAT needs a
    backend's address that is not in the config.
    """
    program = compile_config(balancer)
    if design is Design.MASKED:
        return DesignProgram(design, (), program.flows)
    build: Mapping[Design, Callable[[int, ServiceProgram], _Part]] = {
        Design.LONG_FIRST: _long_first,
        Design.LONGEST_MATCH: _longest_match,
        Design.DP_HASH: partial(_group, method=_DP_HASH),
        Design.HASH_SOURCE: partial(_group, method=_HASH_SOURCE),
        Design.LEARN: _learn,
        Design.CONNTRACK: partial(_nat, uplinks=balancer.uplinks),
    }
    parts = [build[design](number, service) for number, service in enumerate(program.services, start=1)]
    flows = (*program.shared, *(flow for part in parts for flow in part.flows))
    return DesignProgram(design, tuple(group for part in parts for group in part.groups), tuple(map(marked, flows)))


class _Part(NamedTuple):
    flows: tuple[Flow, ...]
    groups: tuple[str, ...] = ()


def marked(flow: Flow) -> Flow:
    """Return the flow with a cookie of DESIGN_GENERATION."""
    stage = stage_of(flow.cookie) or 0
    return replace(flow, cookie=encode_cookie(DESIGN_GENERATION, stage, service_of(flow.cookie)))


# Masked matches in other orders.


def _long_first(_number: int, program: ServiceProgram) -> _Part:
    """Return the same blocks with the priorities reversed."""
    flows = (row.flow for row in program.blocks)
    keys = ((flow, replace(flow.key, priority=2 * BLOCK_PRIORITY - flow.priority)) for flow in flows)
    return _Part((*program.classify, *(replace(flow, key=key) for flow, key in keys)))


def _longest_match(_number: int, program: ServiceProgram) -> _Part:
    """Return nested rules, as few as possible; the longest match wins."""
    service, mine = program.service, exact(SERVICE_ID, program.service_id)
    flows = []
    for family in service.claim.served_families:
        for block, owner in nested_rules(program.decision.active):
            match = match_of((mine, *block_conditions(service, family, rule_of(block, service.key))))
            key = FlowKey(Stage.BALANCE.table, 2 * BLOCK_PRIORITY - block_priority(block.depth), match)
            flows.append(Flow(key, program.blocks[0].flow.cookie, deliver(program.hop(owner), service.source_mac)))
    return _Part((*program.classify, *flows))


def nested_rules(blocks: Blocks) -> tuple[tuple[Block, Owner], ...]:
    """Return the fewest longest-match rules that send every client to the same backend as `blocks`.

    The algorithm is from Draves, King, Venkatachary and Zill: Constructing Optimal IP Routing Tables (INFOCOM 1999).
    """
    owners, chosen = dict(blocks.rows), list[tuple[Block, Owner]]()
    rank = {owner: number for number, owner in enumerate(dict.fromkeys(owner for _, owner in blocks.rows))}

    def halves(block: Block) -> tuple[Block, Block]:
        return Block(block.value, block.depth + 1), Block(block.value | 1 << block.depth, block.depth + 1)

    def candidates(block: Block) -> frozenset[Owner]:
        if block in owners:
            return frozenset((owners[block],))
        one, other = map(candidates, halves(block))
        return one & other or one | other

    def choose(block: Block, inherited: Owner | None) -> None:
        possible = candidates(block)
        if inherited not in possible:
            inherited = min(possible, key=rank.__getitem__)
            chosen.append((block, inherited))
        if block not in owners:
            for half in halves(block):
                choose(half, inherited)

    choose(Block(0, 0), None)
    return tuple(chosen)


# Select groups: Open vSwitch hashes each packet.

# Explicit for old versions. Before 2.17 the default of a group with more than 64 values is a hash of exact headers
# (commit 4490792dd). The default of others is a symmetric hash, which changes when the connection tracker translates
# the packet; before 2.16, a userspace datapath then translates it again, to another backend (commit 1e19f9aa2).
_DP_HASH = ",selection_method=dp_hash"
_HASH_SOURCE = ",selection_method=hash,fields(ip_src,ipv6_src)"


def _group(number: int, program: ServiceProgram, *, method: str) -> _Part:
    buckets = {name: render_actions(_hop(program, name)) for name in bucket_weights(program.service)}
    flows = tuple(replace(flow, actions=(Foreign(f"group:{number}"),)) for flow in program.classify)
    return _Part(flows, (_render_group(number, program, method, buckets),))


def bucket_weights(service: Service) -> dict[str, int]:
    """Return the backends that get clients, with whole weights that fit into a bucket."""
    names = (backend.name for backend in service.backends)
    weights = {name: weight for name, weight in zip(names, whole_weights(service.weights), strict=True) if weight}
    divisor = -(-max(weights.values()) // _MAX_GROUP_WEIGHT)
    return {name: max(1, weight // divisor) for name, weight in weights.items()}


def _render_group(number: int, program: ServiceProgram, method: str, buckets: Mapping[str, str]) -> str:
    weights = bucket_weights(program.service)
    rendered = (f"bucket=weight:{weights[name]},actions={actions}" for name, actions in buckets.items())
    return f"group_id={number},type=select{method},{','.join(rendered)}"


# Connections are stored: in flows that Open vSwitch learns, or in its connection tracker.

_ADDRESS_FIELDS = {
    Family.IPV4: {"ip_src": "NXM_OF_IP_SRC", "ip_dst": "NXM_OF_IP_DST"},
    Family.IPV6: {"ipv6_src": "NXM_NX_IPV6_SRC", "ipv6_dst": "NXM_NX_IPV6_DST"},
}
_PORT_FIELDS: Mapping[Protocol | None, dict[str, str]] = {
    Protocol.TCP: {"tcp_src": "NXM_OF_TCP_SRC", "tcp_dst": "NXM_OF_TCP_DST"},
    Protocol.UDP: {"udp_src": "NXM_OF_UDP_SRC", "udp_dst": "NXM_OF_UDP_DST"},
    Protocol.SCTP: {"sctp_src": "OXM_OF_SCTP_SRC", "sctp_dst": "OXM_OF_SCTP_DST"},
}


def _learn(number: int, program: ServiceProgram) -> _Part:
    """Return the design that hashes the first packet of a connection and learns a flow for the others.

    A learned flow only writes the number of the backend into a register; the flow of the first table then resubmits to
    `_DELIVERY`. For the first packet the bucket resubmits itself, as registers that it writes are lost after it.
    """
    service, mine = program.service, exact(SERVICE_ID, program.service_id)
    actions = (SetField(SERVICE_ID, program.service_id), Resubmit(_CONNECTIONS), Resubmit(_DELIVERY))
    flows, groups = [replace(flow, actions=actions) for flow in program.classify], []
    for group, family in _family_groups(number, service):
        fields = _ADDRESS_FIELDS[family] | _PORT_FIELDS.get(service.claim.protocol, {})
        buckets = {}
        for at, name in enumerate(bucket_weights(service), start=1):
            backend = f"load:{at:#x}->{_BACKEND.nxm}[]"
            learned = _learned(program, family, (*(f"{field}[]" for field in fields.values()), backend))
            buckets[name] = f"{learned},{backend},resubmit(,{_DELIVERY})"
            flows.append(_flow(program, _DELIVERY, (mine, exact(_BACKEND, at), family_is(family)), _hop(program, name)))
        groups.append(_render_group(group, program, f",selection_method=hash,fields({','.join(fields)})", buckets))
        flows.append(_flow(program, _CONNECTIONS, (mine, family_is(family)), (Foreign(f"group:{group}"),)))
    return _Part(tuple(flows), tuple(groups))


def _learned(program: ServiceProgram, family: Family, words: Iterable[str]) -> str:
    """Return the action that learns the flow of a connection. `words`: The fields that it matches and writes."""
    protocol = program.service.claim.protocol
    first = (
        f"table={_CONNECTIONS}",
        f"priority={_LEARNED}",
        f"idle_timeout={_LEARNED_IDLE_S}",
        f"cookie={encode_cookie(DESIGN_GENERATION, _CONNECTIONS, program.service_id):#x}",
        f"reg0={program.service_id:#x}",
        f"eth_type={family_is(family).value:#x}",
        "NXM_OF_IP_PROTO[]" if protocol is None else f"nw_proto={protocol.number(family)}",
    )
    return f"learn({','.join((*first, *words))})"


def _hop(program: ServiceProgram, backend: str) -> tuple[Action, ...]:
    return deliver(program.hop(backend), program.service.source_mac)


def _flow(
    program: ServiceProgram, table: int, conditions: Iterable[Masked], actions: tuple[Action, ...], *foreign: str
) -> Flow:
    key = FlowKey(table, _FOUND, match_of(conditions, foreign=foreign))
    return Flow(key, program.classify[0].cookie, actions)


def _family_groups(number: int, service: Service) -> Iterator[tuple[int, Family]]:
    """Yield the group number of each IP version of a service."""
    for at, family in enumerate(service.claim.served_families):
        yield len(Family) * number + at, family


def _nat(number: int, program: ServiceProgram, *, uplinks: Uplinks) -> _Part:
    """Return the design that hashes the first packet; the connection tracker translates its destination, as in OVN.

    Answers that return through the bridge get the VIP as their source.
    """
    service, mine, tracked = program.service, exact(SERVICE_ID, program.service_id), f"zone={CONNTRACK_ZONE}"
    track = (SetField(SERVICE_ID, program.service_id), Foreign(f"ct(table={_TRACKED},{tracked},nat)"))
    flows, groups = [replace(flow, actions=track) for flow in program.classify], []
    for group, family in _family_groups(number, service):
        found = {name: _address_of(service, name, family) for name in bucket_weights(service)}
        nat = {
            name: f"ct(commit,table={_DELIVERY},{tracked},nat(dst={_written(address)}))"
            for name, address in found.items()
        }
        groups.append(_render_group(group, program, _DP_HASH, nat))
        first = (mine, family_is(family))
        flows.append(_flow(program, _TRACKED, first, (Foreign(f"group:{group}"),), "ct_state=+new+trk"))
        flows.append(_flow(program, _TRACKED, first, (Resubmit(_DELIVERY),), "ct_state=+est+trk"))
        for name, address in found.items():
            conditions = (*first, destination_is(address))
            flows.append(_flow(program, _DELIVERY, conditions, _hop(program, name)))
        flows.extend(_answers(program, family, found.values(), uplinks))
    return _Part(tuple(flows), tuple(groups))


def _answers(
    program: ServiceProgram, family: Family, addresses: Iterable[IPAddress], uplinks: Uplinks
) -> Iterator[Flow]:
    """Yield the flows for answers from these addresses."""
    cookie, source = program.classify[0].cookie, Field.NW_SRC if family is Family.IPV4 else Field.IPV6_SRC
    untranslate = (Foreign(f"ct(table={_ANSWERS},zone={CONNTRACK_ZONE},nat)"),)
    ports = {program.hop(name).port for name in bucket_weights(program.service)} - set(uplinks.ingress)
    for port in sorted(ports):
        match = match_of((family_is(family),), in_port=port)
        yield Flow(FlowKey(_ANSWERS, _FOUND, match), cookie, (Output(uplinks.ingress[0]),))
        for address in dict.fromkeys(addresses):
            match = match_of((family_is(family), exact(source, int(address))), in_port=port)
            yield Flow(FlowKey(Stage.CLASSIFY.table, SERVICE_PRIORITY, match), cookie, untranslate)


def _address_of(service: Service, name: str, family: Family) -> IPAddress:
    for backend in service.backends:
        if backend.name == name and backend.address is not None and family_of(backend.address) is family:
            return backend.address
    version = "IPv4" if family is Family.IPV4 else "IPv6"
    raise CompileError(
        service=service.name, reason=f"NAT needs an {version} address of {name}; add `address` to that backend"
    )


def _written(address: IPAddress) -> str:
    return f"[{address}]" if address.version == 6 else str(address)
