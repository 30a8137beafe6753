"""The protocol keywords of ovs-ofctl(8): `udp` stands for dl_type=0x0800,nw_proto=17."""

from __future__ import annotations

from xenoovs.openflow.field import ETH_ARP, ETH_IPV4, ETH_IPV6

PROTOCOL_KEYWORDS: dict[str, tuple[int, int | None]] = {
    "ip": (ETH_IPV4, None),
    "icmp": (ETH_IPV4, 1),
    "tcp": (ETH_IPV4, 6),
    "udp": (ETH_IPV4, 17),
    "sctp": (ETH_IPV4, 132),
    "ipv6": (ETH_IPV6, None),
    "icmp6": (ETH_IPV6, 58),
    "tcp6": (ETH_IPV6, 6),
    "udp6": (ETH_IPV6, 17),
    "sctp6": (ETH_IPV6, 132),
    "arp": (ETH_ARP, None),
    "rarp": (0x8035, None),
    "mpls": (0x8847, None),
    "mplsm": (0x8848, None),
}
"""Keyword -> (EtherType, IP protocol or None). `ip` is IPv4 alone (ovs-fields(7), "Prerequisites")."""

KEYWORD_OF = {meaning: keyword for keyword, meaning in PROTOCOL_KEYWORDS.items()}
