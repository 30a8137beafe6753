"""The table, first part: what a flow matches in the packet's headers."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    ASK_DOCA,
    DPDK_MATCH,
    NOT_IN_RTE,
    TC_KEY,
    TC_PUT,
    Kind,
    Offload,
    Topic,
    doca,
    dpdk,
    everywhere,
    not_in_rte,
    tc,
)

HW, DEPENDS, SW = Offload.HW, Offload.DEPENDS, Offload.SW
_COPIED = "value and mask are copied as they are"
_UNKNOWN = "offloading isn't supported, unknown attribute"
_L4 = "L4 Protocol ("

HEADER_TOPICS: tuple[Topic, ...] = (
    Topic(
        "header",
        Kind.MATCH,
        "Ingress port, MAC addresses, EtherType, IPv4 addresses, IP protocol and ports",
        everywhere(_COPIED, TC_PUT, DPDK_MATCH),
        "udp,in_port=p0,dl_dst=02:00:00:00:00:01,nw_dst=192.0.2.10,tp_dst=53 actions=output:p1",
    ),
    Topic(
        "ipv6",
        Kind.MATCH,
        "IPv6",
        (
            tc(HW, _COPIED, TC_PUT),
            doca(HW, _COPIED),
            dpdk(SW, NOT_IN_RTE, span=(None, (2, 13)), message="matches of ufid"),
            dpdk(HW, _COPIED, span=((2, 14), None)),
        ),
        "udp6,ipv6_dst=2001:db8::10,tp_dst=53 actions=output:p1",
    ),
    Topic(
        "masked-address",
        Kind.MATCH,
        "Bits of an address under any mask (0.0.0.3)",
        everywhere(f"{_COPIED}, also where the mask is no prefix", TC_PUT, DPDK_MATCH),
        "ip,nw_src=0.0.0.1/0.0.0.3 actions=output:p1",
    ),
    Topic(
        "masked-port",
        Kind.MATCH,
        "Bits of a port under a mask",
        (
            tc(HW, _COPIED, TC_PUT),
            doca(HW, _COPIED),
            dpdk(SW, f"ports are matched whole or not at all: {NOT_IN_RTE}", span=(None, (2, 13))),
            dpdk(HW, _COPIED, span=((2, 14), None)),
        ),
        "udp,tp_dst=0x1f40/0xfffc actions=output:p1",
    ),
    Topic(
        "ip-tos",
        Kind.MATCH,
        "DSCP and ECN of IP",
        everywhere(_COPIED, TC_PUT, DPDK_MATCH),
        "ip,nw_tos=32 actions=output:p1",
    ),
    Topic(
        "ip-ttl",
        Kind.MATCH,
        "The TTL",
        everywhere(f"{_COPIED}; an entry for each TTL", TC_PUT, DPDK_MATCH),
        "ip,nw_ttl=64 actions=output:p1",
    ),
    Topic(
        "fragment",
        Kind.MATCH,
        "Fragments of IPv4",
        (
            tc(HW, "a flower flag tells fragments, and the first of them", TC_PUT),
            doca(SW, "fragments are not offloaded"),
            dpdk(SW, NOT_IN_RTE, span=(None, (2, 16)), message="matches of ufid"),
            dpdk(HW, "matched by the fragment offset", span=((2, 17), None)),
        ),
        "ip,nw_frag=later actions=output:p1",
    ),
    Topic(
        "fragment-ipv6",
        Kind.MATCH,
        "Fragments of IPv6",
        (
            tc(
                DEPENDS,
                "translated, but TC cannot see the protocol behind the fragment header",
                TC_PUT,
                span=(None, (2, 17)),
            ),
            tc(
                SW,
                "TC cannot see the protocol behind the fragment header",
                TC_KEY,
                span=((3, 0), None),
                message="offloading of IPv6 fragments isn't supported",
            ),
            doca(SW, "fragments are not offloaded"),
            dpdk(SW, NOT_IN_RTE, span=(None, (2, 16)), message="matches of ufid"),
            dpdk(HW, "matched by the fragment header", span=((2, 17), None)),
        ),
        "ipv6,nw_frag=later actions=output:p1",
    ),
    Topic(
        "tcp-flags",
        Kind.MATCH,
        "TCP flags",
        (tc(HW, _COPIED, TC_PUT), doca(DEPENDS, ASK_DOCA), dpdk(HW, _COPIED)),
        "tcp,tcp_flags=+syn-ack actions=output:p1",
    ),
    Topic(
        "icmp",
        Kind.MATCH,
        "Type and code of ICMP",
        (
            tc(
                SW,
                "match the protocol alone (`icmp`) or use Open vSwitch 2.16",
                TC_KEY,
                span=(None, (2, 15)),
                message="offloading attribute icmp_",
            ),
            tc(HW, _COPIED, TC_PUT, span=((2, 16), None)),
            doca(DEPENDS, ASK_DOCA),
            dpdk(HW, _COPIED),
        ),
        "icmp,icmp_type=8 actions=output:p1",
    ),
    Topic(
        "icmpv6",
        Kind.MATCH,
        "Type and code of ICMPv6",
        (
            tc(
                SW,
                "match the protocol alone (`icmp6`) or use Open vSwitch 2.16",
                TC_KEY,
                span=(None, (2, 15)),
                message="offloading attribute icmpv6_",
            ),
            tc(HW, _COPIED, TC_PUT, span=((2, 16), None)),
            doca(DEPENDS, ASK_DOCA),
            dpdk(SW, f"ICMPv6 is none of the protocols that it looks into: {NOT_IN_RTE}", message=_L4),
        ),
        "icmp6,icmp_type=128 actions=output:p1",
    ),
    Topic(
        "igmp",
        Kind.MATCH,
        "IGMP, by its protocol number",
        (tc(HW, _COPIED, TC_PUT), doca(SW, "IGMP is not offloaded"), dpdk(HW, _COPIED)),
        "ip,nw_proto=2 actions=output:p1",
    ),
    Topic(
        "igmp-type",
        Kind.MATCH,
        "Type and code of IGMP (multicast snooping matches them)",
        (
            tc(SW, "flower has no such key", TC_KEY, message="offloading attribute igmp_"),
            doca(SW, "IGMP is not offloaded"),
            dpdk(SW, NOT_IN_RTE, message=_L4),
        ),
    ),
    Topic(
        "nd",
        Kind.MATCH,
        "Targets and options of neighbour discovery",
        (tc(SW, "flower has no such key", TC_KEY, message=_UNKNOWN), doca(DEPENDS, ASK_DOCA), not_in_rte()),
        "icmp6,icmp_type=135,nd_target=2001:db8::10 actions=output:p1",
    ),
    Topic(
        "arp",
        Kind.MATCH,
        "Fields of ARP",
        (
            tc(
                SW,
                "match the EtherType alone (`arp`) or use Open vSwitch 2.14",
                TC_KEY,
                span=(None, (2, 13)),
                message=_UNKNOWN,
            ),
            tc(HW, _COPIED, TC_PUT, span=((2, 14), None)),
            doca(DEPENDS, ASK_DOCA),
            not_in_rte(),
        ),
        "arp,arp_tpa=192.0.2.10 actions=output:p1",
    ),
    Topic(
        "vlan",
        Kind.MATCH,
        "One VLAN tag, whole",
        everywhere(_COPIED, TC_PUT, DPDK_MATCH),
        "ip,dl_vlan=5 actions=output:p1",
    ),
    Topic(
        "vlan-masked",
        Kind.MATCH,
        "Bits of a VLAN tag under a mask, or any tag",
        (
            tc(SW, "match VLAN id or priority whole, one flow for each", TC_PUT),
            doca(DEPENDS, ASK_DOCA),
            dpdk(HW, _COPIED),
        ),
        "ip,vlan_tci=0x1004/0x100c actions=output:p1",
    ),
    Topic(
        "qinq",
        Kind.MATCH,
        "A second VLAN tag",
        (tc(HW, _COPIED, TC_PUT), doca(SW, "one VLAN tag is offloaded, not two"), not_in_rte()),
    ),
    Topic(
        "mpls",
        Kind.MATCH,
        "One MPLS label",
        (tc(HW, _COPIED, TC_PUT), doca(SW, "MPLS is not among what OVS-DOCA offloads"), not_in_rte()),
        "mpls,mpls_label=16 actions=output:p1",
    ),
    Topic(
        "mpls-stack",
        Kind.MATCH,
        "More than one MPLS label",
        (
            tc(
                SW,
                "flower matches the first label alone",
                TC_KEY,
                message="offloading multiple mpls_lses isn't supported",
            ),
            doca(SW, "MPLS is not among what OVS-DOCA offloads"),
            not_in_rte(),
        ),
    ),
    Topic(
        "ipv6-label",
        Kind.MATCH,
        "The flow label of IPv6",
        (tc(SW, "flower has no such key", TC_KEY, message=_UNKNOWN), doca(DEPENDS, ASK_DOCA), not_in_rte()),
        "ipv6,ipv6_label=0x5 actions=output:p1",
    ),
    Topic(
        "nsh",
        Kind.MATCH,
        "Network service headers",
        (
            tc(SW, "flower has no such key", TC_KEY, message=_UNKNOWN),
            doca(SW, "NSH is not among what OVS-DOCA offloads"),
            not_in_rte(),
        ),
        "dl_type=0x894f,nsh_spi=0x1 actions=output:p1",
    ),
)
