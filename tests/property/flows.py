"""Strategies: every flow that xenoovs can build and Open vSwitch takes; prerequisites as in ovs-fields(7)."""

from __future__ import annotations

from collections.abc import Sequence

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


def values_of(field: Field) -> st.SearchStrategy[int]:
    """Values of a field, with many short, long and odd ones."""
    width = field.width
    shapes = (st.integers(0, field.all_ones), st.integers(0, 255), st.just(field.all_ones))
    shifted = st.tuples(st.integers(0, field.all_ones), st.integers(0, width)).map(lambda v: v[0] >> v[1])
    return st.one_of(*shapes, shifted)


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


@st.composite
def masked(draw: st.DrawFn, field: Field) -> Masked:
    mask = draw(masks_of(field))
    return Masked(field, draw(values_of(field)) & mask, mask)


@st.composite
def some_masked(draw: st.DrawFn, fields: Sequence[Field]) -> list[Masked]:
    """Conditions on some of the fields, each at most once."""
    return [draw(masked(field)) for field in fields if draw(st.booleans())]


@st.composite
def matches(draw: st.DrawFn, ports: Sequence[str] = PORTS) -> Match:
    """Matches of the five shapes of packets that xenoovs distinguishes."""
    conditions = draw(some_masked(_REGISTERS)) + draw(some_masked(_ETHERNET))
    shape = draw(st.sampled_from((_any_packet, _other_packet, _arp_packet, _ipv4_packet, _ipv6_packet)))
    in_port = draw(st.none() | st.sampled_from((*ports, LOCAL)))
    return match_of(conditions + draw(shape()), in_port=in_port)


@st.composite
def flows(draw: st.DrawFn, ports: Sequence[str] = PORTS) -> Flow:
    match = draw(matches(ports))
    priority = draw(st.integers(0, MAX_PRIORITY) | st.just(0x8000))
    key = FlowKey(draw(st.integers(0, HIGHEST_TABLE) | st.just(0)), priority, match)
    cookie = draw(st.integers(0, (1 << 64) - 1) | st.just(0))
    return Flow(key, cookie, tuple(draw(st.lists(actions(match, ports), max_size=4))))


@st.composite
def actions(draw: st.DrawFn, match: Match, ports: Sequence[str]) -> Action:
    """One action whose prerequisites `match` grants."""
    writable = _writable(match)
    field = draw(st.sampled_from(writable))
    settable = draw(st.sampled_from([other for other in writable if other.width <= 64]))
    # Fields of unlike width: the low bits of the wider one.
    target = draw(st.sampled_from(writable))
    choices: tuple[st.SearchStrategy[Action], ...] = (
        st.sampled_from((*ports, LOCAL)).map(Output),
        st.sampled_from((OutputInPort(), Normal(), Move(field, target))),
        values_of(settable).map(lambda value: SetField(settable, value)),
        st.integers(0, HIGHEST_TABLE).map(Resubmit),
    )
    drawn: Action = draw(st.one_of(*choices, *_learning(match)))
    return drawn


@st.composite
def learns(draw: st.DrawFn, dl_type: int) -> Learn:
    """What a flow for TCP can learn."""
    known = (*(_IPV4 if dl_type == ETH_IPV4 else _IPV6), *_PORTS, Field.REG0)
    loads = [SetField(field, draw(values_of(field))) for field in _ETHERNET if draw(st.booleans())]
    return Learn(
        table=draw(st.integers(0, HIGHEST_TABLE)),
        priority=draw(st.integers(0, MAX_PRIORITY - 1).filter(lambda priority: priority != 0x8000)),
        cookie=draw(st.integers(1, (1 << 64) - 1)),
        idle_timeout_s=draw(st.integers(1, 65535)),
        limit=draw(st.integers(1, (1 << 32) - 1)),
        dl_type=dl_type,
        nw_proto=_TCP,
        same=tuple(draw(st.lists(st.sampled_from(known), min_size=1, unique=True))),
        writes=tuple(loads),
        output=draw(st.sampled_from((Field.REG0, Field.REG1))),
    )


def _learning(match: Match) -> tuple[st.SearchStrategy[Action], ...]:
    ether, proto = match.get(Field.DL_TYPE), match.get(Field.NW_PROTO)
    is_tcp = ether is not None and ether.value in (ETH_IPV4, ETH_IPV6) and proto is not None and proto.value == _TCP
    return (learns(ether.value),) if ether is not None and is_tcp else ()


def _writable(match: Match) -> list[Field]:
    fields = [*_REGISTERS, *_ETHERNET]
    ether, proto = match.get(Field.DL_TYPE), match.get(Field.NW_PROTO)
    if ether is not None:
        fields += {ETH_IPV4: _IPV4, ETH_IPV6: _IPV6, ETH_ARP: (*_ARP, Field.ARP_OP)}.get(ether.value, ())
    if proto is not None and proto.value == _TCP:
        fields += _PORTS
    return fields


def _any_packet() -> st.SearchStrategy[list[Masked]]:
    return st.just([])


def _other_packet() -> st.SearchStrategy[list[Masked]]:
    return _OTHER_TYPES.map(lambda value: [exact(Field.DL_TYPE, value)])


@st.composite
def _arp_packet(draw: st.DrawFn) -> list[Masked]:
    operation = [exact(Field.ARP_OP, draw(st.integers(1, 255)))] if draw(st.booleans()) else []
    return [exact(Field.DL_TYPE, ETH_ARP), *operation, *draw(some_masked(_ARP))]


@st.composite
def _ipv4_packet(draw: st.DrawFn) -> list[Masked]:
    return [exact(Field.DL_TYPE, ETH_IPV4), *draw(some_masked(_IPV4)), *draw(_tos()), *draw(_transport(icmp=1))]


@st.composite
def _ipv6_packet(draw: st.DrawFn) -> list[Masked]:
    return [exact(Field.DL_TYPE, ETH_IPV6), *draw(some_masked(_IPV6)), *draw(_tos()), *draw(_transport(icmp=58))]


def _tos() -> st.SearchStrategy[list[Masked]]:
    codepoints = st.integers(0, 63).map(lambda codepoint: [exact(Field.NW_TOS, codepoint << 2)])
    return st.just([]) | codepoints


@st.composite
def _transport(draw: st.DrawFn, *, icmp: int) -> list[Masked]:
    proto = draw(st.none() | st.sampled_from((*_WITH_PORTS, icmp)) | st.integers(0, 255))
    if proto is None:
        return []
    conditions = [exact(Field.NW_PROTO, proto)]
    if proto in _WITH_PORTS:
        conditions += draw(some_masked(_PORTS))
        if proto == _TCP and draw(st.booleans()):
            mask = draw(st.integers(1, Field.TCP_FLAGS.all_ones - 1))
            conditions.append(Masked(Field.TCP_FLAGS, draw(st.integers(0, mask)) & mask, mask))
    elif proto == icmp:
        kinds = [field for field in (Field.ICMP_TYPE, Field.ICMP_CODE) if draw(st.booleans())]
        conditions += [exact(field, draw(st.integers(0, 255))) for field in kinds]
    return conditions
