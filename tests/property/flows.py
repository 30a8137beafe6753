"""Strategies: every flow that xenoovs can build and Open vSwitch takes; prerequisites as in ovs-fields(7).

To make a strategy takes longer than to draw from it; those of each field are made once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from xenoovs.openflow.flow import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    LOCAL,
    MAX_PRIORITY,
    Action,
    Field,
    Flow,
    FlowKey,
    Learn,
    Masked,
    Match,
    Move,
    Normal,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
    exact,
    match_of,
)
from xenoovs.openflow.text import prefix_length

PORTS = ("p0", "p1", "pf0hpf", "p-1.x", "a_b", "a:b", "5", "é1", "en3f0pf0sf0", "xoar0")
"""Names that devices on a host can have (at most 15 bytes), and some that only the dummy datapath takes."""

HIGHEST_TABLE = 253
"""Table 254 is Open vSwitch's own (TBL_INTERNAL, ofproto/ofproto-dpif.h)."""

_TUNNEL = (Field.TUN_ID, Field.TUN_SRC, Field.TUN_DST)
_REGISTERS = (Field.PKT_MARK, Field.REG0, Field.REG1, Field.REG2, Field.REG3, *_TUNNEL, Field.METADATA)
_ETHERNET = (Field.VLAN, Field.DL_SRC, Field.DL_DST)
_ARP = (Field.ARP_SPA, Field.ARP_TPA, Field.ARP_SHA, Field.ARP_THA)
_IPV4 = (Field.NW_SRC, Field.NW_DST)
_IPV6 = (Field.IPV6_SRC, Field.IPV6_DST)
_PORTS = (Field.TP_SRC, Field.TP_DST)
_TCP = 6
_WITH_PORTS = (_TCP, 17, 132)
_KNOWN_TYPES = (ETH_IPV4, ETH_ARP, ETH_IPV6)
# Below 0x600 stand lengths (IEEE 802.3). RARP and both MPLS types have keywords of their own.
_OTHER_TYPES = st.integers(0x600, 0xFFFF).filter(lambda v: v not in _KNOWN_TYPES) | st.sampled_from(
    (0x8035, 0x8847, 0x8848)
)


@cache
def values_of(field: Field) -> st.SearchStrategy[int]:
    """Values of a field, with many short, long and odd ones."""
    width = field.width
    shapes = (st.integers(0, field.all_ones), st.integers(0, 255), st.just(field.all_ones))
    shifted = st.tuples(st.integers(0, field.all_ones), st.integers(0, width)).map(lambda v: v[0] >> v[1])
    return st.one_of(*shapes, shifted)


@cache
def masks_of(field: Field) -> st.SearchStrategy[int]:
    """Prefixes, suffixes (what blocks are), single runs and anything."""
    width, ones = field.width, field.all_ones
    prefix = st.integers(0, width).map(lambda n: ones >> n << n)
    suffix = st.integers(0, width).map(lambda n: ones >> n)
    run = st.tuples(st.integers(0, width), st.integers(0, width)).map(lambda n: ones >> n[0] << n[1] & ones)
    return st.one_of(prefix, suffix, run, values_of(field)).filter(lambda mask: _is_writable(field, mask))


def _is_writable(field: Field, mask: int) -> bool:
    # ovs-ofctl reads the first digits of 7fff:: as a prefix length and refuses the rest (ipv6_parse_masked_len() in
    # lib/packets.c): a mask of IPv6 that is no prefix must not start with a decimal digit other than a group of 0.
    return field.width != 128 or prefix_length(mask, 128) is not None or f"{mask >> 112:x}"[0] not in "123456789"


@cache
def masked(field: Field) -> st.SearchStrategy[Masked]:
    return st.tuples(values_of(field), masks_of(field)).map(lambda pair: Masked(field, pair[0] & pair[1], pair[1]))


@cache
def some_masked(fields: tuple[Field, ...]) -> st.SearchStrategy[list[Masked]]:
    """Conditions on some of the fields, each at most once."""
    return st.tuples(*(st.none() | masked(field) for field in fields)).map(
        lambda drawn: [condition for condition in drawn if condition is not None]
    )


_TABLES = st.integers(0, HIGHEST_TABLE)
_ANY_TABLE = _TABLES | st.just(0)
_PRIORITIES = st.integers(0, MAX_PRIORITY) | st.just(0x8000)
_COOKIES = st.integers(0, (1 << 64) - 1) | st.just(0)


@cache
def _of(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@st.composite
def matches(draw: st.DrawFn, ports: tuple[str, ...] = PORTS) -> Match:
    """Matches of the five shapes of packets that xenoovs distinguishes."""
    conditions = draw(some_masked(_REGISTERS)) + draw(some_masked(_ETHERNET))
    in_port = draw(_of((None, *ports, LOCAL)))
    return match_of(conditions + draw(_SHAPES), in_port=in_port)


@st.composite
def flows(draw: st.DrawFn, ports: tuple[str, ...] = PORTS) -> Flow:
    match = draw(matches(ports))
    key = FlowKey(draw(_ANY_TABLE), draw(_PRIORITIES), match)
    ether, proto = match.get(Field.DL_TYPE), match.get(Field.NW_PROTO)
    values = tuple(condition and condition.value for condition in (ether, proto))
    return Flow(key, draw(_COOKIES), tuple(draw(actions(*values, ports))))


@cache
def actions(
    ether: int | None, proto: int | None, ports: tuple[str, ...], most: int = 4
) -> st.SearchStrategy[list[Action]]:
    """Up to `most` actions whose prerequisites a match of one Ethernet type and protocol grants."""
    writable = _writable(ether, proto)
    settable = [field for field in writable if field.width <= 64]
    choices: tuple[st.SearchStrategy[Action], ...] = (
        st.sampled_from((*ports, LOCAL)).map(Output),
        st.sampled_from((OutputInPort(), Normal())),
        # Fields of unlike width: the low bits of the wider one.
        st.builds(Move, st.sampled_from(writable), st.sampled_from(writable)),
        st.sampled_from(settable).flatmap(lambda field: st.builds(SetField, st.just(field), values_of(field))),
        _TABLES.map(Resubmit),
    )
    learning = (learns(ether),) if ether in (ETH_IPV4, ETH_IPV6) and proto == _TCP else ()
    return st.lists(st.one_of(*choices, *learning), max_size=most)


@cache
def learns(dl_type: int) -> st.SearchStrategy[Learn]:
    """What a flow for TCP can learn."""
    known = (*(_IPV4 if dl_type == ETH_IPV4 else _IPV6), *_PORTS, Field.REG0)
    loads = st.tuples(*(st.none() | st.builds(SetField, st.just(field), values_of(field)) for field in _ETHERNET))
    return st.builds(
        Learn,
        table=_TABLES,
        priority=st.integers(0, MAX_PRIORITY - 1).filter(lambda priority: priority != 0x8000),
        cookie=st.integers(1, (1 << 64) - 1),
        idle_timeout_s=st.integers(1, 65535),
        limit=st.integers(1, (1 << 32) - 1),
        dl_type=st.just(dl_type),
        nw_proto=st.just(_TCP),
        same=st.lists(st.sampled_from(known), min_size=1, unique=True).map(tuple),
        writes=loads.map(lambda drawn: tuple(each for each in drawn if each)),
        output=st.sampled_from((Field.REG0, Field.REG1)),
    )


def _writable(ether: int | None, proto: int | None) -> list[Field]:
    fields = [*_REGISTERS, *_ETHERNET]
    if ether is not None:
        fields += {ETH_IPV4: _IPV4, ETH_IPV6: _IPV6, ETH_ARP: (*_ARP, Field.ARP_OP)}.get(ether, ())
    if proto == _TCP:
        fields += _PORTS
    return fields


_ANY_PACKET = st.just(list[Masked]())
_OTHER_PACKET = _OTHER_TYPES.map(lambda value: [exact(Field.DL_TYPE, value)])


def _maybe(field: Field, values: st.SearchStrategy[int]) -> st.SearchStrategy[list[Masked]]:
    return st.just(list[Masked]()) | values.map(lambda value: [exact(field, value)])


_BYTES = st.integers(0, 255)
_OPERATION = _maybe(Field.ARP_OP, st.integers(1, 255))
_TOS = _maybe(Field.NW_TOS, st.integers(0, 63).map(lambda codepoint: codepoint << 2))
_TYPE_AND_CODE = st.tuples(_maybe(Field.ICMP_TYPE, _BYTES), _maybe(Field.ICMP_CODE, _BYTES)).map(
    lambda drawn: drawn[0] + drawn[1]
)
_TCP_FLAGS = st.none() | st.tuples(
    st.integers(1, Field.TCP_FLAGS.all_ones - 1), st.integers(0, Field.TCP_FLAGS.all_ones)
).map(lambda drawn: Masked(Field.TCP_FLAGS, drawn[0] & drawn[1], drawn[0]))


@st.composite
def _arp_packet(draw: st.DrawFn) -> list[Masked]:
    return [exact(Field.DL_TYPE, ETH_ARP), *draw(_OPERATION), *draw(some_masked(_ARP))]


@st.composite
def _ip_packet(draw: st.DrawFn, dl_type: int, addresses: tuple[Field, ...], icmp: int) -> list[Masked]:
    found = [exact(Field.DL_TYPE, dl_type), *draw(some_masked(addresses)), *draw(_TOS)]
    proto = draw(_protocols(icmp))
    if proto is None:
        return found
    found.append(exact(Field.NW_PROTO, proto))
    if proto in _WITH_PORTS:
        found += draw(some_masked(_PORTS))
        if proto == _TCP and (flags := draw(_TCP_FLAGS)):
            found.append(flags)
    elif proto == icmp:
        found += draw(_TYPE_AND_CODE)
    return found


@cache
def _protocols(icmp: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.sampled_from((*_WITH_PORTS, icmp)) | _BYTES


_ARP_PACKET = _arp_packet()
_IPV4_PACKET = _ip_packet(ETH_IPV4, _IPV4, icmp=1)
_IPV6_PACKET = _ip_packet(ETH_IPV6, _IPV6, icmp=58)
_SHAPES = st.one_of(_ANY_PACKET, _OTHER_PACKET, _ARP_PACKET, _IPV4_PACKET, _IPV6_PACKET)
