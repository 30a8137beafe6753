"""The model in terms of OpenFlow: keys, addresses and ports as conditions, next hops as actions, both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address
from typing import NamedTuple

from xenoovs.errors import CompileError, assert_never
from xenoovs.model.address import Family, Mac, Vip, family_of, prefix_of
from xenoovs.model.balancer import BlockKey, KeyField, PortRange, Service, merge_ports
from xenoovs.model.next_hop import (
    Direct,
    NextHop,
    SourcePort,
    ToAddress,
    Translated,
    Tunneled,
    Unchanged,
    mac_of,
    remote_of_port,
    vlan_of,
)
from xenoovs.openflow.flow import (
    ETH_IPV4,
    ETH_IPV6,
    TAGGED,
    Action,
    Failover,
    Field,
    Flow,
    Masked,
    Output,
    SetField,
    alternatives,
    exact,
    match_of,
    tag_of,
)
from xenoovs.partition.block import Block, spread, unspread

# The conditions that stages share: an IP family, a protocol, an address, in OpenFlow's fields.


_DESTINATION = {Family.IPV4: Field.NW_DST, Family.IPV6: Field.IPV6_DST}
_SOURCE = {Family.IPV4: Field.NW_SRC, Family.IPV6: Field.IPV6_SRC}
_ETHER_TYPE = {Family.IPV4: ETH_IPV4, Family.IPV6: ETH_IPV6}


def family_is(family: Family) -> Masked:
    return exact(Field.DL_TYPE, _ETHER_TYPE[family])


def vlan_is(vlan: int | None) -> tuple[Masked, ...]:
    """Return the condition on the tag. If `vlan` is None, tagged frames of every VLAN and untagged frames match."""
    return () if vlan is None else (exact(Field.VLAN, tag_of(vlan)),)


def destination_is(vip: Vip) -> Masked:
    return in_prefix(_DESTINATION[family_of(vip)], vip)


def source_is(vip: Vip) -> Masked:
    return in_prefix(_SOURCE[family_of(vip)], vip)


def in_prefix(field: Field, vip: Vip) -> Masked:
    """Return the condition that an address field has an address of this VIP."""
    first, length = prefix_of(vip)
    return Masked(field, int(first), field.all_ones >> field.width - length << field.width - length)


# Ranges of ports as masked values, since a flow matches a port under a mask and not between bounds.


def port_masks(field: Field, ranges: Iterable[PortRange]) -> tuple[Masked, ...]:
    """Return the conditions on a field of a port that together are these ranges, as few as possible, by rising port."""
    return tuple(sorted(mask for ports in merge_ports(ranges) for mask in _cover(field, ports.first, ports.last)))


def _cover(field: Field, first: int, last: int) -> Iterator[Masked]:
    while first <= last:
        aligned = (first & -first).bit_length() - 1 if first else field.width
        size = 1 << min(aligned, (last - first + 1).bit_length() - 1)
        yield Masked(field, first, field.all_ones & -size)
        first += size


# The balancing key in OpenFlow's fields. No other module knows by which field of a flow a service splits its clients.
#
# Blocks are written as a value and a mask over *key bits*. Each key field has its own range of them, so that blocks of
# different fields are never confused. A new key field is a row in `_BITS` and in `_FIELDS`.


_BITS = {KeyField.SOURCE_ADDRESS: range(128), KeyField.SOURCE_PORT: range(128, 144)}
"""The key bits of each key field, its lowest bit first."""

_FIELDS = {KeyField.SOURCE_ADDRESS: _SOURCE, KeyField.SOURCE_PORT: dict.fromkeys(Family, Field.TP_SRC)}
"""The OpenFlow field of each key field, by IP version."""

_FIRST_BITS = {field: _BITS[key].start for key, fields in _FIELDS.items() for field in fields.values()}


class BlockRule(NamedTuple):
    """Packets whose key bits under `mask` equal `value`. `depth`: how many bits that are."""

    depth: int
    value: int
    mask: int


def rule_of(block: Block, key: BlockKey) -> BlockRule:
    """Return the masked match of a block."""
    return BlockRule(block.depth, *bits_of(block, key))


def infer_key(masks: Iterable[int]) -> BlockKey:
    """Return a key that nested masks of key bits fit, for a service that no config describes."""
    positions = dict[int, None]()
    for mask in sorted(set(masks), key=lambda mask: (mask.bit_count(), mask)):
        positions |= dict.fromkeys(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    found = (field for field, bits in _BITS.items() if any(bit in bits for bit in positions))
    field = next(found, KeyField.SOURCE_ADDRESS)
    bits = _BITS[field]
    return BlockKey(field, tuple(bit - bits.start for bit in positions if bit in bits))


def block_conditions(
    service: Service, family: Family, rule: BlockRule, actions: tuple[Action, ...] = ()
) -> tuple[Masked, ...]:
    """Return what the flows of a block match besides the id of the service, in the order of `Match.masked`. `actions`:
    of the flow. An action that writes a port needs a match of the protocol (ovs-actions(7), `mod_tp_dst`). All blocks
    of a service with NAT match it, so that a flow keeps its key while the block moves. Raises CompileError: packets may
    lack that field."""
    key, protocol = service.key.field, service.claim.protocol
    is_translated = service.nat is not None and protocol is not None and protocol.has_ports
    written = [each.field for done in alternatives(actions) for each in done if isinstance(each, SetField)]
    if not (key.needs_ports or is_translated or Field.TP_DST in written):
        return _conditions(key, family, None, rule)
    if protocol is None or not protocol.has_ports:
        what = f"a {key.label}" if key.needs_ports else "a port of a backend"
        raise CompileError(service=service.name, reason=f"{what} needs a protocol with ports; name one")
    return _conditions(key, family, protocol.number(family), rule)


@lru_cache(maxsize=65536)  # most services are cut into the same blocks
def _conditions(key: KeyField, family: Family, protocol: int | None, rule: BlockRule) -> tuple[Masked, ...]:
    first = () if protocol is None else (exact(Field.NW_PROTO, protocol),)
    return match_of((family_is(family), *first, key_match(key, family, rule.value, rule.mask))).masked


def key_match(key: KeyField, family: Family, value: int, mask: int) -> Masked:
    """Return the condition that a block's flow has for these key bits."""
    first = _BITS[key].start
    return Masked(_FIELDS[key][family], value >> first, mask >> first)


def key_of(flow: Flow, key: KeyField) -> Masked:
    """Return the match of a flow of one IP version on the key; mask 0 if it has none."""
    dl_type = flow.match.get(Field.DL_TYPE)
    field = _FIELDS[key][Family.IPV6 if dl_type is not None and dl_type.value == ETH_IPV6 else Family.IPV4]
    return flow.match.get(field) or Masked(field, 0, 0)


def key_bits(flow: Flow) -> tuple[int, int]:
    """Return the value and the mask of the key bits that a flow matches."""
    value = mask = 0
    for found in flow.match.masked:
        if (first := _FIRST_BITS.get(found.field)) is not None:
            value, mask = value | found.value << first, mask | found.mask << first
    return value, mask


def bits_of(block: Block, key: BlockKey) -> tuple[int, int]:
    """Return the value and the mask of a block in key bits."""
    value, mask = spread(block, key.positions)
    first = _BITS[key.field].start
    return value << first, mask << first


def block_of(value: int, mask: int, key: BlockKey) -> Block:
    """Return the block behind key bits: the inverse of `bits_of`. Raises ValueError if there is none."""
    first = _BITS[key.field].start
    if mask & (1 << first) - 1:
        raise ValueError(f"{value:#x}/{mask:#x} is not a block of {key.field.value}")
    return unspread(value >> first, mask >> first, key.positions)


# Next hops in OpenFlow's actions: the only translation, both ways.


WRITTEN = (Field.VLAN, Field.DL_DST, Field.TP_SRC, Field.NW_DST, Field.TP_DST, Field.TUN_ID, Field.TUN_DST)
"""The fields that distinguish next hops."""


def rewrites(hop: NextHop, source_mac: Mac | None) -> tuple[SetField, ...]:
    """Return the fields that are written into packets on their way to `hop`."""
    mac = mac_of(hop)
    path: tuple[SetField, ...] = ()
    match hop:
        case Direct() | Unchanged():
            pass
        case SourcePort(source_port, _):
            path = (SetField(Field.TP_SRC, source_port),)
        case ToAddress(address, _):
            path = (SetField(Field.NW_DST, int(address)),)
        case Tunneled(_, _, remote, key):
            path = (SetField(Field.TUN_ID, key),)
            # A port for one remote has the address in its options, and ignores what a flow says.
            path += () if hop.has_own_port else (SetField(Field.TUN_DST, int(remote)),)
        case Translated(_, _, address, l4_port):
            ports = () if l4_port is None else (SetField(Field.TP_DST, l4_port),)
            path = (SetField(Field.NW_DST, int(address)), *ports)
        case _:
            assert_never(hop)
    vlan = vlan_of(hop)
    path += () if vlan is None else (SetField(Field.VLAN, tag_of(vlan)),)
    path = path if mac is None else (SetField(Field.DL_DST, mac.value), *path)
    return path if source_mac is None else (SetField(Field.DL_SRC, source_mac.value), *path)


def leaves_with(hop: NextHop) -> tuple[SetField, ...]:
    """Return the fields of packets to `hop` when they leave: those that are written, and those that the port adds."""
    own = (SetField(Field.TUN_DST, int(hop.remote)),) if isinstance(hop, Tunneled) and hop.has_own_port else ()
    return (*rewrites(hop, None), *own)


def comes_from(hop: NextHop) -> tuple[str, tuple[Masked, ...]] | None:
    """Return the port and the fields by which packets of a backend behind a tunnel enter; None without a tunnel."""
    if not isinstance(hop, Tunneled):
        return None
    return hop.port, (exact(Field.TUN_ID, hop.key), exact(Field.TUN_SRC, int(hop.remote)))


def deliver(hop: NextHop, source_mac: Mac | None) -> tuple[SetField | Output, ...]:
    """Return the actions that send a packet to `hop`."""
    return (*rewrites(hop, source_mac), Output(hop.port))


def hop_of(actions: Iterable[Action]) -> NextHop | None:
    """Return the next hop to which actions send packets while all ports are live; None if none is known."""
    written, port = dict[Field, int](), None
    for action in actions:
        match action:
            case Failover(buckets):
                return hop_of(buckets[0])
            case SetField(field, value):
                written[field] = value
            case Output(name):
                port = name
            case _:
                pass
    if port is None:
        return None
    if (key := written.get(Field.TUN_ID)) is not None:
        return _tunneled(written, port, key)
    mac, address, tag = written.get(Field.DL_DST), written.get(Field.NW_DST), written.get(Field.VLAN)
    vlan = None if tag is None else tag & ~TAGGED
    if mac is not None and address is None:
        return Direct(Mac(mac), port, vlan)
    if mac is not None and address is not None:
        return Translated(Mac(mac), port, IPv4Address(address), written.get(Field.TP_DST), vlan)
    if (source_port := written.get(Field.TP_SRC)) is not None:
        return SourcePort(source_port, port)
    return Unchanged(port, vlan) if address is None else ToAddress(IPv4Address(address), port)


def _tunneled(written: Mapping[Field, int], port: str, key: int) -> Tunneled | None:
    mac, address = written.get(Field.DL_DST), written.get(Field.TUN_DST)
    remote = remote_of_port(port) if address is None else IPv4Address(address)
    return None if mac is None or remote is None else Tunneled(Mac(mac), port, remote, key)


def arrives(hop: NextHop, *, port: str | None, sent: Callable[[Field], int], original: Callable[[Field], int]) -> bool:
    """Return whether a packet that leaves through this port goes to `hop`. `sent`: returns a field of the packet that
    leaves; `original`: of the packet that entered."""
    written = {write.field: write.value for write in rewrites(hop, None)}
    return hop.port == port and all(sent(f) == written.get(f, original(f)) for f in WRITTEN)
