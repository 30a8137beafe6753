"""Names of header fields, in each of the spellings of Open vSwitch, to what they are about (ovs-fields(7))."""

from __future__ import annotations

import re
from functools import lru_cache

_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"reg\d+|x+reg\d+|pkt_reg\d+|metadata|conj_id|actset_output|in_port(_oxm)?|phy_port", "pipeline"),
    (r"recirc_id", "recirculation"),
    (r"pkt_mark", "mark"),
    (r"skb_priority", "priority"),
    (r"dp_hash", "dp-hash"),
    (r"packet_type", "packet-type"),
    (r"(dl|eth)_(src|dst)|eth|dl_type|eth_type", "ethernet"),
    (r"dl_vlan|dl_vlan_pcp|vlan_(tci|vid|pcp)\d?", "vlan"),
    (r"mpls_\w+", "mpls"),
    (r"(nw|ip|ipv4)_(src|dst)", "ipv4"),
    (r"ipv6_(src|dst)", "ipv6"),
    (r"ipv6_label", "label"),
    (r"(nw|ip)_(tos|ecn|dscp)(_shifted)?|dscp", "tos"),
    (r"(nw|ip)_ttl", "ttl"),
    (r"(nw|ip)_frag", "fragment"),
    (r"(nw|ip)_proto", "protocol"),
    (r"tcp_flags", "tcp-flags"),
    (r"(tp|tcp|udp)_(src|dst)", "port"),
    (r"sctp_(src|dst)", "sctp-port"),
    (r"(icmp|icmpv4)_(type|code)", "icmp"),
    (r"icmpv6_(type|code)", "icmpv6"),
    (r"nd_\w+", "nd"),
    (r"arp_\w+", "arp"),
    (r"ct_(state|zone|mark|label)", "ct"),
    (r"ct_(nw|ipv6|tp)_\w+", "ct-tuple"),
    (r"tun_metadata\d+", "tunnel-options"),
    (r"tun_flags", "tunnel-flags"),
    (r"(tun|tunnel)(6)?_\w+", "tunnel"),
    (r"nsh_\w+", "nsh"),
)
"""Of several that fit, the first counts."""

_COMPILED = tuple((re.compile(pattern), family) for pattern, family in _FAMILIES)
_PREFIX = re.compile(r"(nxm_of_|nxm_nx_|nxm_nxm_|oxm_of_|nxoxm_et_|nxoxm_nsh_|erxoxm_)")

MATCHED = {
    "pipeline": "pipeline-field",
    "recirculation": "recirculated",
    "mark": "pkt-mark",
    "priority": "skb-priority",
    "dp-hash": "dp-hash",
    "packet-type": "packet-type",
    "ethernet": "header",
    "vlan": "vlan",
    "mpls": "mpls",
    "ipv4": "header",
    "ipv6": "ipv6",
    "label": "ipv6-label",
    "tos": "ip-tos",
    "ttl": "ip-ttl",
    "fragment": "fragment",
    "protocol": "header",
    "tcp-flags": "tcp-flags",
    "port": "header",
    "sctp-port": "header",
    "icmp": "icmp",
    "icmpv6": "icmpv6",
    "nd": "nd",
    "arp": "arp",
    "ct": "ct",
    "ct-tuple": "ct-tuple",
    "tunnel": "tunnel",
    "tunnel-options": "tunnel-options",
    "tunnel-flags": "tunnel-flags",
    "nsh": "nsh",
}
"""Family -> topic where it is matched."""

WRITTEN = {
    "pipeline": "pipeline-action",
    "recirculation": "pipeline-action",
    "mark": "set-pkt-mark",
    "priority": "set-queue",
    "ethernet": "set-ethernet",
    "vlan": "vlan-action",
    "mpls": "mpls-action",
    "ipv4": "set-ip",
    "ipv6": "set-ipv6",
    "label": "set-ipv6-label",
    "tos": "set-tos",
    "ttl": "set-ttl",
    "port": "set-l4-port",
    "sctp-port": "set-sctp-port",
    "icmp": "set-icmp",
    "icmpv6": "set-icmp",
    "nd": "set-nd",
    "arp": "set-arp",
    "tunnel": "set-tunnel",
    "tunnel-options": "set-tunnel-options",
    "tunnel-flags": "set-tunnel",
    "nsh": "nsh-action",
}
"""Family -> topic where it is written."""


@lru_cache(maxsize=1024)
def family_of(name: str) -> str | None:
    """The family of a field: `nw_src`, `NXM_OF_IP_SRC[]`, `tun_id`; None for a name that is not known."""
    plain = _PREFIX.sub("", name.partition("[")[0].lower(), count=1)
    return next((family for pattern, family in _COMPILED if pattern.fullmatch(plain)), None)
