"""The header and metadata fields that flows match and set. Names, widths and formats: ovs-fields(7)."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """How ovs-ofctl(8) writes a value of a field."""

    DECIMAL = "decimal"
    HEX = "hex"
    L4_PORT = "l4 port"
    MAC = "mac"
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    FLAGS = "flags"


class Field(Enum):
    """A field: name in ovs-ofctl, width in bits, format, NXM/OXM name. Listed in the order in which OVS prints them."""

    PKT_MARK = ("pkt_mark", 32, Format.HEX, "NXM_NX_PKT_MARK")
    REG0 = ("reg0", 32, Format.HEX, "NXM_NX_REG0")
    REG1 = ("reg1", 32, Format.HEX, "NXM_NX_REG1")
    REG2 = ("reg2", 32, Format.HEX, "NXM_NX_REG2")
    REG3 = ("reg3", 32, Format.HEX, "NXM_NX_REG3")
    METADATA = ("metadata", 64, Format.HEX, "OXM_OF_METADATA")
    DL_SRC = ("dl_src", 48, Format.MAC, "NXM_OF_ETH_SRC")
    DL_DST = ("dl_dst", 48, Format.MAC, "NXM_OF_ETH_DST")
    DL_TYPE = ("dl_type", 16, Format.HEX, "NXM_OF_ETH_TYPE")
    NW_SRC = ("nw_src", 32, Format.IPV4, "NXM_OF_IP_SRC")
    NW_DST = ("nw_dst", 32, Format.IPV4, "NXM_OF_IP_DST")
    IPV6_SRC = ("ipv6_src", 128, Format.IPV6, "NXM_NX_IPV6_SRC")
    IPV6_DST = ("ipv6_dst", 128, Format.IPV6, "NXM_NX_IPV6_DST")
    ARP_SPA = ("arp_spa", 32, Format.IPV4, "NXM_OF_ARP_SPA")
    ARP_TPA = ("arp_tpa", 32, Format.IPV4, "NXM_OF_ARP_TPA")
    NW_PROTO = ("nw_proto", 8, Format.DECIMAL, "NXM_OF_IP_PROTO")
    ARP_OP = ("arp_op", 16, Format.DECIMAL, "NXM_OF_ARP_OP")
    ARP_SHA = ("arp_sha", 48, Format.MAC, "NXM_NX_ARP_SHA")
    ARP_THA = ("arp_tha", 48, Format.MAC, "NXM_NX_ARP_THA")
    ICMP_TYPE = ("icmp_type", 8, Format.DECIMAL, "NXM_OF_ICMP_TYPE")
    ICMP_CODE = ("icmp_code", 8, Format.DECIMAL, "NXM_OF_ICMP_CODE")
    TP_SRC = ("tp_src", 16, Format.L4_PORT, "NXM_OF_TCP_SRC")
    TP_DST = ("tp_dst", 16, Format.L4_PORT, "NXM_OF_TCP_DST")
    TCP_FLAGS = ("tcp_flags", 12, Format.FLAGS, "NXM_NX_TCP_FLAGS")

    def __init__(self, ovs_name: str, width: int, form: Format, nxm: str) -> None:
        self.ovs_name = ovs_name
        self.width = width
        self.form = form
        self.nxm = nxm
        self.all_ones = (1 << width) - 1
        self.rank = len(type(self).__members__)

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves and is 10 times faster.
    __hash__ = object.__hash__


ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_IPV6 = 0x86DD
"""EtherTypes (IEEE 802 Numbers, IANA)."""

TCP = 6
"""Assigned Internet Protocol Numbers (IANA)."""

TCP_SYN, TCP_ACK = 0x002, 0x010
"""Flags of a TCP header (RFC 9293, 3.1)."""
