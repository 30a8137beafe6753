"""Matches as bytes, both ways (OpenFlow 1.4.0, 7.2.2): OXM and NXM headers, known and foreign conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from struct import Struct

from xenoovs.dataclass import dataclass
from xenoovs.errors import NotEncodable
from xenoovs.openflow.flow import ETH_IPV4, ETH_IPV6, Field, Masked, Match, match_of
from xenoovs.openflow.text import parse_mask, parse_value, render_hex, render_ipv6, render_mac, render_mask
from xenoovs.openflow.wire.frame import ONF, U32, Reader, port_name, port_number

# Headers of match fields: class and number of each field, in OXM and in NXM.
#
# Sources: OpenFlow 1.4.0, 7.2.2.2 (layout) and 7.2.2.7 (fields of class 0x8000); include/openvswitch/meta-flow.h of
# Open vSwitch (classes 0x0000 and 0x0001, and which fields may be masked: unlike in the specification, ports may).
# Written are those that Open vSwitch itself writes for OpenFlow 1.4: OXM where it exists, else NXM. Read are both.


OXM, NXM_OF, NXM_NX = 0x8000, 0x0000, 0x0001
"""oxm_class: OFPXMC_OPENFLOW_BASIC, and the two of Nicira."""

EXPERIMENTER_CLASS = 0xFFFF
"""OFPXMC_EXPERIMENTER."""

HAS_MASK = 0x100
"""The bit oxm_hasmask of a header."""


def header(oxm_class: int, number: int, *, width: int) -> int:
    """Return the 32 bits in front of a value of `width` bits without a mask."""
    return oxm_class << 16 | number << 9 | (width + 7) // 8


def masked_header(plain: int) -> int:
    """Return the header of the same field with a mask behind the value, which doubles the length."""
    return plain & ~0xFF | HAS_MASK | 2 * (plain & 0xFF)


def size_of(field: Field) -> int:
    """Return the number of bytes of a value; 12 bits take two."""
    return (field.width + 7) // 8


IN_PORT = header(OXM, 0, width=32)

_PLAIN = {
    Field.PKT_MARK: (NXM_NX, 33),
    Field.REG0: (NXM_NX, 0),
    Field.REG1: (NXM_NX, 1),
    Field.REG2: (NXM_NX, 2),
    Field.REG3: (NXM_NX, 3),
    Field.TUN_ID: (OXM, 38),
    Field.TUN_SRC: (NXM_NX, 31),
    Field.TUN_DST: (NXM_NX, 32),
    Field.METADATA: (OXM, 2),
    Field.VLAN: (OXM, 6),
    Field.DL_DST: (OXM, 3),
    Field.DL_SRC: (OXM, 4),
    Field.DL_TYPE: (OXM, 5),
    Field.NW_PROTO: (OXM, 10),
    Field.NW_SRC: (OXM, 11),
    Field.NW_DST: (OXM, 12),
    Field.NW_TOS: (OXM, 8),
    Field.ARP_OP: (OXM, 21),
    Field.ARP_SPA: (OXM, 22),
    Field.ARP_TPA: (OXM, 23),
    Field.ARP_SHA: (OXM, 24),
    Field.ARP_THA: (OXM, 25),
    Field.IPV6_SRC: (OXM, 26),
    Field.IPV6_DST: (OXM, 27),
    Field.TCP_FLAGS: (NXM_NX, 34),
}
"""Fields that have one number in OpenFlow 1.4. The addresses of a tunnel have none of class 0x8000 (MFF_TUN_SRC and
MFF_TUN_DST in meta-flow.h of Open vSwitch)."""

_PORTS = {6: (13, 14), 17: (15, 16), 132: (17, 18)}
"""IP protocol -> numbers of the source and the destination port: TCP, UDP, SCTP."""

_ICMP = {(ETH_IPV4, 1): (19, 20), (ETH_IPV6, 58): (29, 30)}
"""EtherType and IP protocol -> numbers of the type and the code."""

_NXM = {
    Field.TUN_ID: (NXM_NX, 16),
    Field.VLAN: (NXM_OF, 4),
    Field.DL_DST: (NXM_OF, 1),
    Field.DL_SRC: (NXM_OF, 2),
    Field.DL_TYPE: (NXM_OF, 3),
    Field.NW_PROTO: (NXM_OF, 6),
    Field.NW_SRC: (NXM_OF, 7),
    Field.NW_DST: (NXM_OF, 8),
    Field.TP_SRC: (NXM_OF, 9),
    Field.TP_DST: (NXM_OF, 10),
    Field.ICMP_TYPE: (NXM_OF, 13),
    Field.ICMP_CODE: (NXM_OF, 14),
    Field.ARP_OP: (NXM_OF, 15),
    Field.ARP_SPA: (NXM_OF, 16),
    Field.ARP_TPA: (NXM_OF, 17),
    Field.ARP_SHA: (NXM_NX, 17),
    Field.ARP_THA: (NXM_NX, 18),
    Field.IPV6_SRC: (NXM_NX, 19),
    Field.IPV6_DST: (NXM_NX, 20),
}
"""Fields that have other numbers in the actions of Nicira than in matches; `Field.nxm` has their names."""

_NXM_ONLY_READ = ((Field.TP_SRC, 11), (Field.TP_DST, 12))
"""Ports of UDP in class NXM_OF."""
_NXM_NX_ONLY_READ = ((Field.ICMP_TYPE, 21), (Field.ICMP_CODE, 22))
"""Type and code of ICMPv6 in class NXM_NX."""


def _by_protocol() -> dict[tuple[Field, int | None, int], int]:
    ports: dict[tuple[Field, int | None, int], int] = {
        (field, None, protocol): header(OXM, numbers[index], width=16)
        for protocol, numbers in _PORTS.items()
        for index, field in enumerate((Field.TP_SRC, Field.TP_DST))
    }
    icmp: dict[tuple[Field, int | None, int], int] = {
        (field, ether, protocol): header(OXM, numbers[index], width=8)
        for (ether, protocol), numbers in _ICMP.items()
        for index, field in enumerate((Field.ICMP_TYPE, Field.ICMP_CODE))
    }
    return {**ports, **icmp}


HEADERS = {field: header(*place, width=field.width) for field, place in _PLAIN.items()}
"""Field -> header in a match, for fields that have one number whatever the packet is."""

_BY_PROTOCOL = _by_protocol()

_VLAN = frozenset((Field.VLAN,))
"""In actions it has another number, of all 16 bits of the tag: that of matches would need a packet with a tag."""
_IN_ACTIONS = {field: head for field, head in HEADERS.items() if field not in {Field.NW_TOS, *_VLAN}}
"""No action of xenoovs writes the type of service."""

ACTION_HEADERS = {**_IN_ACTIONS, **{field: header(*place, width=field.width) for field, place in _NXM.items()}}
"""Field -> header in the actions NXAST_REG_LOAD and NXAST_REG_MOVE."""


def match_header(field: Field, *, ether: int | None, protocol: int | None) -> int | None:
    """Return the header of a field in a match of exactly these dl_type and nw_proto; None without such a field."""
    if (plain := HEADERS.get(field)) is not None:
        return plain
    if protocol is None:
        return None
    return _BY_PROTOCOL.get((field, ether if field in (Field.ICMP_TYPE, Field.ICMP_CODE) else None, protocol))


def _fields() -> dict[int, Field]:
    known = {plain >> 9: field for field, plain in ACTION_HEADERS.items() if field not in _VLAN}
    known |= {plain >> 9: field for field, plain in HEADERS.items()}
    known |= {plain >> 9: field for (field, _, _), plain in _BY_PROTOCOL.items()}
    known |= {header(NXM_OF, number, width=16) >> 9: field for field, number in _NXM_ONLY_READ}
    known |= {header(NXM_NX, number, width=8) >> 9: field for field, number in _NXM_NX_ONLY_READ}
    return known


FIELD_OF = _fields()
"""Class and number (a header without its last 9 bits) -> field."""

ACTION_FIELD_OF = {plain >> 9: field for heads in (_IN_ACTIONS, ACTION_HEADERS) for field, plain in heads.items()}
"""Likewise for actions, in which a port of UDP is another field than a port of TCP."""

_PORT_FIELDS = {head >> 9: field for (field, ether, _), head in _BY_PROTOCOL.items() if ether is None}

SET_FIELD_OF = {number: field for number, field in {**ACTION_FIELD_OF, **_PORT_FIELDS}.items() if field not in _VLAN}
"""Likewise for OFPAT_SET_FIELD, which sets whole fields, and ports of whichever protocol the flow matches."""

PROTOCOL_OF = {head >> 9: protocol for (_, ether, protocol), head in _BY_PROTOCOL.items() if ether is None}
"""Class and number of a port -> IP protocol."""


def whole_field(head: int) -> Field | None:
    """Return the field that an action names by a header without a mask; None if unknown, or another length."""
    field = ACTION_FIELD_OF.get(head >> 9)
    return field if field is not None and head & 0x1FF == size_of(field) else None


_UNUSED_BITS = {Field.NW_TOS: 2}
"""OpenFlow 1.4 matches the codepoint (OFPXMT_OFB_IP_DSCP), ovs-ofctl and `Field` the whole byte."""
_LAST_DSCP = b"\x3f"


ONF_TCP_FLAGS = EXPERIMENTER_CLASS << 16 | 42 << 9
"""How Open vSwitch writes tcp_flags for OpenFlow 1.3 and 1.4 (ONFOXM_ET_TCP_FLAGS): the vendor's number, then the
value; the length counts both."""


# Conditions that xenoovs never writes: common ones as text of ovs-fields(7), all others as `oxm:` and hex.
#
# Numbers: OpenFlow 1.4.0, 7.2.2.7, and include/openvswitch/meta-flow.h of Open vSwitch.


_RAW = "oxm:"
_IPV6_BYTES = 16

_parse_number, _parse_mac = partial(parse_value, Field.METADATA), partial(parse_value, Field.DL_SRC)
"""Of the widest numbers that any field has here, and of MACs."""


@dataclass(frozen=True, slots=True)
class _OxmField:
    """A foreign field by its name in ovs-ofctl(8). `parse` inverts `render`; raises ValueError."""

    name: str
    header: int
    render: Callable[[int], str]
    parse: Callable[[str], int]

    @property
    def size(self) -> int:
        return self.header & 0xFF


def foreign_condition(condition: bytes) -> str:
    """Return the text of one condition, header and value, of a field that is not in `Field`."""
    number, value = int.from_bytes(condition[:4], "big"), condition[4:]
    kind = _BY_NUMBER.get(number >> 9)
    if kind is not None:
        if number == kind.header and len(value) == kind.size:
            text = f"{kind.name}={kind.render(int.from_bytes(value, 'big'))}"
        else:
            text = _masked_text(kind, number, value)
        # Only text that gives the same bytes again.
        if text and _parse_known(text) == condition:
            return text
    return f"{_RAW}{condition.hex()}"


def foreign_oxm(text: str) -> bytes:
    """Invert `foreign_condition`. Raises NotEncodable for a condition that is only known as text."""
    if text.startswith(_RAW):
        try:
            return bytes.fromhex(text.removeprefix(_RAW))
        except ValueError:
            raise NotEncodable(part=text, reason="it is not hexadecimal") from None
    condition = _parse_known(text)
    if condition is None:
        raise NotEncodable(part=text, reason="xenoovs does not know its bytes")
    return condition


def _masked_text(kind: _OxmField, number: int, value: bytes) -> str:
    if number != masked_header(kind.header) or len(value) != 2 * kind.size:
        return ""
    head, mask = value[: kind.size], int.from_bytes(value[kind.size :], "big")
    shown = render_mask(Field.IPV6_SRC, mask) if kind.size == _IPV6_BYTES else kind.render(mask)
    return f"{kind.name}={kind.render(int.from_bytes(head, 'big'))}/{shown}"


def _parse_known(text: str) -> bytes | None:
    name, _, rest = text.partition("=")
    kind = _BY_NAME.get(name)
    if kind is None:
        return None
    value, is_masked, mask = rest.partition("/")
    try:
        packed = kind.parse(value).to_bytes(kind.size, "big")
        if not is_masked:
            return U32.pack(kind.header) + packed
        bits = parse_mask(Field.IPV6_SRC, mask) if kind.size == _IPV6_BYTES else kind.parse(mask)
        return U32.pack(kind.header | HAS_MASK)[:3] + bytes((2 * kind.size,)) + packed + bits.to_bytes(kind.size, "big")
    except (ValueError, OverflowError):
        return None


def _decimal(name: str, place: tuple[int, int], width: int) -> _OxmField:
    return _OxmField(name, header(*place, width=width), str, _parse_number)


def _hex(name: str, place: tuple[int, int], width: int) -> _OxmField:
    return _OxmField(name, header(*place, width=width), render_hex, _parse_number)


_KINDS = (
    _decimal("dl_vlan_pcp", (OXM, 7), 8),
    # The specification counts in codepoints, ovs-ofctl in the whole byte, whose last two bits are ECN.
    _OxmField("nw_tos", header(OXM, 8, width=8), lambda v: str(v << 2), lambda text: _parse_number(text) >> 2),
    _decimal("nw_ecn", (OXM, 9), 8),
    _decimal("nw_ttl", (NXM_NX, 29), 8),
    _OxmField("nd_target", header(OXM, 31, width=128), render_ipv6, partial(parse_value, Field.IPV6_SRC)),
    _OxmField("nd_sll", header(OXM, 32, width=48), render_mac, _parse_mac),
    _OxmField("nd_tll", header(OXM, 33, width=48), render_mac, _parse_mac),
    _decimal("conj_id", (NXM_NX, 37), 32),
    _decimal("ct_zone", (NXM_NX, 106), 16),
    _hex("ct_mark", (NXM_NX, 107), 32),
    *(_hex(f"reg{number}", (NXM_NX, number), 32) for number in range(4, 16)),
)
_BY_NUMBER = {kind.header >> 9: kind for kind in _KINDS}
_BY_NAME = {kind.name: kind for kind in _KINDS}


_MATCH = Struct("!HH")
_OXM_MATCH = 1
"""enum ofp_match_type: OFPMT_OXM."""
_PORT_CONDITION = Struct("!II")

_ONF = U32.pack(ONF)
_NOTHING = Match()


def encode_match(match: Match, ofports: Mapping[str, int]) -> bytes:
    """Return a match with its header and padding. Raises NotEncodable.

    Every field follows its prerequisites (7.2.2.6), for `Field` is ordered so.
    """
    encoded: list[bytes] = []
    ether = protocol = None
    if match.in_port is not None:
        encoded.append(_PORT_CONDITION.pack(IN_PORT, port_number(match.in_port, ofports)))
    for masked in match.masked:
        if masked.field is Field.DL_TYPE:
            ether = masked.value
        elif masked.field is Field.NW_PROTO:
            protocol = masked.value
        encoded.append(_encode_condition(masked, ether, protocol))
    conditions = b"".join((*encoded, *map(foreign_oxm, match.foreign)))
    size = _MATCH.size + len(conditions)
    return _MATCH.pack(_OXM_MATCH, size) + conditions + bytes(-size % 8)


def decode_match(body: Reader, names: Mapping[int, str]) -> Match:
    """Return the next match, and skip its padding. Raises WireError."""
    start = body.offset
    kind, size = body.unpack(_MATCH, "a match")
    if kind != _OXM_MATCH or not _MATCH.size <= size <= body.end - start:
        body.offset = start
        raise body.error("a match of type OXM and its length")
    conditions = body.part(size - _MATCH.size, "conditions")
    body.take(-size % 8, "the padding of a match")
    return decode_conditions(conditions, names)


def decode_conditions(body: Reader, names: Mapping[int, str]) -> Match:
    """Return all conditions up to the end of `body`. Raises WireError."""
    if not body.left:
        return _NOTHING
    data, offset, end = body.data, body.offset, body.end
    in_port, known, foreign = None, list[Masked](), list[str]()
    while offset < end:
        next_offset = offset + 4 + data[offset + 3] if offset + 4 <= end else end + 1
        if next_offset > end:
            body.offset = offset
            raise body.error("a condition and its whole value")
        condition = data[offset:next_offset]
        if (masked := _decode_masked(condition)) is not None:
            known.append(masked)
        elif int.from_bytes(condition[:4], "big") == IN_PORT and in_port is None:
            in_port = port_name(int.from_bytes(condition[4:], "big"), names)
        else:
            foreign.append(foreign_condition(condition))
        offset = next_offset
    try:
        return match_of(known, in_port=in_port, foreign=foreign)
    except ValueError as error:
        raise body.error(f"conditions of a flow ({error})") from None


@lru_cache(maxsize=65536)
def _encode_condition(masked: Masked, ether: int | None, protocol: int | None) -> bytes:
    size, header = size_of(masked.field), match_header(masked.field, ether=ether, protocol=protocol)
    if header is None:
        raise NotEncodable(part=masked.field.ovs_name, reason="dl_type and nw_proto do not say what it is in")
    if masked.is_exact:
        return U32.pack(header) + (masked.value >> _UNUSED_BITS.get(masked.field, 0)).to_bytes(size, "big")
    return U32.pack(masked_header(header)) + masked.value.to_bytes(size, "big") + masked.mask.to_bytes(size, "big")


@lru_cache(maxsize=65536)
def _decode_masked(condition: bytes) -> Masked | None:
    """Return a condition on a known field; None for any other, also for one with another length."""
    header = int.from_bytes(condition[:4], "big")
    if header >> 9 == ONF_TCP_FLAGS >> 9 and condition[4:8] == _ONF:
        header, condition = header & HAS_MASK | HEADERS[Field.TCP_FLAGS], condition[4:]
    field = FIELD_OF.get(header >> 9)
    if field is None:
        return None
    size = size_of(field)
    value, mask = condition[4 : 4 + size], condition[4 + size :]
    if field in _UNUSED_BITS and (header & HAS_MASK or value > _LAST_DSCP):
        return None
    if len(condition) == 4 + size and not header & HAS_MASK:
        return Masked(field, int.from_bytes(value, "big") << _UNUSED_BITS.get(field, 0), field.all_ones)
    if len(condition) == 4 + 2 * size and header & HAS_MASK:
        return Masked(field, int.from_bytes(value, "big"), int.from_bytes(mask, "big"))
    return None
