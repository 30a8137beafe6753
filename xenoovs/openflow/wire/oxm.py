"""Headers of match fields: which field has which class and number, by OXM and by NXM.

Sources: OpenFlow 1.4.0, 7.2.2.2 (layout) and 7.2.2.7 (fields of class 0x8000); include/openvswitch/meta-flow.h of Open
vSwitch (classes 0x0000 and 0x0001, and which fields may be masked: unlike in the specification, ports may). Written are
those that Open vSwitch itself writes for OpenFlow 1.4: OXM where it exists, else NXM. Read are both.
"""

from __future__ import annotations

from xenoovs.openflow.field import ETH_IPV4, ETH_IPV6, Field

OXM, NXM_OF, NXM_NX = 0x8000, 0x0000, 0x0001
"""oxm_class: OFPXMC_OPENFLOW_BASIC, and the two of Nicira."""

EXPERIMENTER_CLASS = 0xFFFF
"""OFPXMC_EXPERIMENTER."""

HAS_MASK = 0x100
"""The bit oxm_hasmask of a header."""


def header(oxm_class: int, number: int, *, width: int) -> int:
    """The 32 bits in front of a value of `width` bits without a mask."""
    return oxm_class << 16 | number << 9 | (width + 7) // 8


def masked_header(plain: int) -> int:
    """The header of the same field with a mask behind the value, which doubles the length."""
    return plain & ~0xFF | HAS_MASK | 2 * (plain & 0xFF)


def size_of(field: Field) -> int:
    """Bytes of a value; those of 12 bits take two."""
    return (field.width + 7) // 8


IN_PORT = header(OXM, 0, width=32)

_PLAIN = {
    Field.PKT_MARK: (NXM_NX, 33),
    Field.REG0: (NXM_NX, 0),
    Field.REG1: (NXM_NX, 1),
    Field.REG2: (NXM_NX, 2),
    Field.REG3: (NXM_NX, 3),
    Field.METADATA: (OXM, 2),
    Field.DL_DST: (OXM, 3),
    Field.DL_SRC: (OXM, 4),
    Field.DL_TYPE: (OXM, 5),
    Field.NW_PROTO: (OXM, 10),
    Field.NW_SRC: (OXM, 11),
    Field.NW_DST: (OXM, 12),
    Field.ARP_OP: (OXM, 21),
    Field.ARP_SPA: (OXM, 22),
    Field.ARP_TPA: (OXM, 23),
    Field.ARP_SHA: (OXM, 24),
    Field.ARP_THA: (OXM, 25),
    Field.IPV6_SRC: (OXM, 26),
    Field.IPV6_DST: (OXM, 27),
    Field.TCP_FLAGS: (NXM_NX, 34),
}
"""Fields that have one number in OpenFlow 1.4."""

_PORTS = {6: (13, 14), 17: (15, 16), 132: (17, 18)}
"""IP protocol -> numbers of the source and the destination port: TCP, UDP, SCTP."""

_ICMP = {(ETH_IPV4, 1): (19, 20), (ETH_IPV6, 58): (29, 30)}
"""EtherType and IP protocol -> numbers of the type and the code."""

_NXM = {
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
"""Where the actions of Nicira name fields by other numbers than matches do; `Field.nxm` has the same as names."""

_NXM_ONLY_READ = ((Field.TP_SRC, 11), (Field.TP_DST, 12))
"""Ports of UDP in class NXM_OF."""
_NXM_NX_ONLY_READ = ((Field.ICMP_TYPE, 21), (Field.ICMP_CODE, 22))
"""Type and code of ICMPv6 in class NXM_NX."""


def _headers() -> dict[Field, int]:
    return {field: header(*place, width=field.width) for field, place in _PLAIN.items()}


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


HEADERS = _headers()
"""Field -> header in a match, for fields that have one number whatever the packet is."""

_BY_PROTOCOL = _by_protocol()

ACTION_HEADERS = {**HEADERS, **{field: header(*place, width=field.width) for field, place in _NXM.items()}}
"""Field -> header in the actions NXAST_REG_LOAD and NXAST_REG_MOVE."""


def match_header(field: Field, *, ether: int | None, protocol: int | None) -> int | None:
    """The header of a field in a match of these exact dl_type and nw_proto; None: they do not allow the field."""
    if (plain := HEADERS.get(field)) is not None:
        return plain
    if protocol is None:
        return None
    return _BY_PROTOCOL.get((field, ether if field in (Field.ICMP_TYPE, Field.ICMP_CODE) else None, protocol))


def _fields() -> dict[int, Field]:
    known = {plain >> 9: field for field, plain in ACTION_HEADERS.items()}
    known |= {plain >> 9: field for field, plain in HEADERS.items()}
    known |= {plain >> 9: field for (field, _, _), plain in _BY_PROTOCOL.items()}
    known |= {header(NXM_OF, number, width=16) >> 9: field for field, number in _NXM_ONLY_READ}
    known |= {header(NXM_NX, number, width=8) >> 9: field for field, number in _NXM_NX_ONLY_READ}
    return known


FIELD_OF = _fields()
"""Class and number (a header without its last 9 bits) -> field."""

ACTION_FIELD_OF = {plain >> 9: field for heads in (HEADERS, ACTION_HEADERS) for field, plain in heads.items()}
"""Likewise for what an action sets: there a port of UDP is another field than a port of TCP."""


def whole_field(head: int) -> Field | None:
    """The field that an action names by a header without a mask; None for one of others, or of another length."""
    field = ACTION_FIELD_OF.get(head >> 9)
    return field if field is not None and head & 0x1FF == size_of(field) else None


ONF_TCP_FLAGS = EXPERIMENTER_CLASS << 16 | 42 << 9
"""How Open vSwitch writes tcp_flags for OpenFlow 1.3 and 1.4 (ONFOXM_ET_TCP_FLAGS): the vendor's number, then the
value; the length counts both."""
