"""The table, third part: what a flow does with the packet."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    ASK_DOCA,
    DPDK_ACTIONS,
    DPDK_SET,
    NOT_AN_RTE_ACTION,
    TC_ACTIONS,
    TC_SET,
    TC_TUNNEL,
    XLATE,
    Kind,
    Offload,
    Topic,
    doca,
    dpdk,
    everywhere,
    not_an_rte_action,
    tc,
)

HW, DEPENDS, PARTIAL, SW = Offload.HW, Offload.DEPENDS, Offload.PARTIAL, Offload.SW
_NO_SET = "unsupported set action type: "
_DPDK_NO_SET = "Unsupported set action type"
_DOCA_SETS = "OVS-DOCA sets Ethernet, IP, TCP and UDP fields alone"


def _set(name: str, what: str, example: str, *, text: str) -> Topic:
    """A header field that every profile can write."""
    return Topic(name, Kind.ACTION, what, everywhere(text, TC_SET, DPDK_SET), example)


def _no_set(name: str, what: str, example: str, *, text: str, message: str) -> Topic:
    """A field that no profile can write; `message`: with the number that lib/odp-netlink.h gives the header."""
    rows = (
        tc(SW, text, TC_SET, message=message),
        doca(SW, _DOCA_SETS),
        dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_SET, message=_DPDK_NO_SET),
    )
    return Topic(name, Kind.ACTION, what, rows, example)


SET_TOPICS: tuple[Topic, ...] = (
    _set(
        "set-ethernet",
        "Write MAC addresses",
        "ip actions=mod_dl_dst:02:00:5e:10:00:02,output:p1",
        text="the old address is matched whole: an entry for each MAC that packets come with "
        "(mod_dl_dst: those of the router; mod_dl_src: those of the clients)",
    ),
    _set(
        "set-ip",
        "Write IPv4 addresses",
        "ip actions=mod_nw_dst:192.0.2.20,output:p1",
        text="the old address is matched whole: an entry for each",
    ),
    Topic(
        "set-ipv6",
        Kind.ACTION,
        "Write IPv6 addresses",
        (
            tc(HW, "the old address is matched whole: an entry for each", TC_SET),
            doca(HW, "the old address is matched whole: an entry for each"),
            dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_SET, span=(None, (2, 13)), message=_DPDK_NO_SET),
            dpdk(HW, "the old address is matched whole: an entry for each", DPDK_SET, span=((2, 14), None)),
        ),
        "ipv6 actions=set_field:2001:db8::20->ipv6_dst,output:p1",
    ),
    _set(
        "set-ttl",
        "Write or count down the TTL",
        "ip actions=dec_ttl,output:p1",
        text="an entry for each TTL that packets come with, and for each IP protocol",
    ),
    Topic(
        "set-tos",
        Kind.ACTION,
        "Write DSCP or ECN",
        (
            tc(HW, "written by pedit", TC_SET),
            doca(HW, "DSCP is among what OVS-DOCA writes"),
            dpdk(PARTIAL, "rte_flow's actions here know addresses and TTL alone", DPDK_SET, message="IPv4 set action"),
        ),
        "ip actions=mod_nw_tos:32,output:p1",
    ),
    _set(
        "set-l4-port",
        "Write TCP or UDP ports",
        "udp actions=mod_tp_dst:5353,output:p1",
        text="the old port is matched whole: an entry for each",
    ),
    _no_set(
        "set-sctp-port",
        "Write SCTP ports",
        "sctp actions=mod_tp_dst:5000,output:p1",
        text="pedit cannot mend the checksum of SCTP; keep the port of the service and of the backend equal",
        message=f"{_NO_SET}17",
    ),
    _no_set(
        "set-icmp",
        "Write type or code of ICMP",
        "icmp actions=load:0->NXM_OF_ICMP_TYPE[],output:p1",
        text="written by ovs-vswitchd itself (slow path): every packet passes the CPU",
        message=f"{_NO_SET}11",
    ),
    _no_set(
        "set-arp",
        "Write fields of ARP, or answer it",
        "arp,arp_op=1 actions=load:0x2->NXM_OF_ARP_OP[],IN_PORT",
        text="ovs-vswitchd itself answers ARP (slow path); that is a packet for each neighbour now and then",
        message=f"{_NO_SET}13",
    ),
    _no_set(
        "set-nd",
        "Write fields of neighbour discovery, or answer it",
        "icmp6,icmp_type=136,icmp_code=0 actions=set_field:02:00:00:00:00:01->nd_tll,IN_PORT",
        text="answers to neighbour discovery are made by ovs-vswitchd itself (slow path); they are few",
        message=f"{_NO_SET}14",
    ),
    _no_set(
        "set-ipv6-label",
        "Write the flow label of IPv6",
        "ipv6 actions=load:0x1->NXM_NX_IPV6_LABEL[],output:p1",
        text="not among what pedit writes here",
        message="unsupported sub attribute of set action type",
    ),
    _no_set(
        "set-pkt-mark",
        "Write the packet mark",
        "ip actions=load:0x1->NXM_NX_PKT_MARK[],output:p1",
        text="the mark belongs to the host's socket buffer; the NIC has none",
        message=f"{_NO_SET}15",
    ),
    _no_set(
        "set-queue",
        "Choose a queue (set_queue, enqueue)",
        "ip actions=set_queue:1,output:p1",
        text="the queue belongs to the host's socket buffer; use a meter, or the NIC's own rate limits",
        message=f"{_NO_SET}2",
    ),
)

HEADER_ACTION_TOPICS: tuple[Topic, ...] = (
    Topic(
        "vlan-action",
        Kind.ACTION,
        "Push, pop or write a VLAN tag",
        (
            tc(HW, "act_vlan; the driver decides", TC_ACTIONS),
            doca(HW, "one tag"),
            dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, span=(None, (2, 13)), message="Unsupported action type"),
            dpdk(HW, "of_push_vlan, of_pop_vlan", DPDK_ACTIONS, span=((2, 14), None)),
        ),
        "ip actions=mod_vlan_vid:5,output:p1",
    ),
    Topic(
        "mpls-action",
        Kind.ACTION,
        "Push, pop or write an MPLS label",
        (
            tc(HW, "act_mpls; the driver decides", TC_ACTIONS),
            doca(SW, "MPLS is not among what OVS-DOCA offloads"),
            not_an_rte_action(),
        ),
        "ip actions=push_mpls:0x8847,output:p1",
    ),
    Topic(
        "nsh-action",
        Kind.ACTION,
        "Add or take off NSH or Ethernet headers (encap, decap)",
        (
            tc(SW, "TC has no such action", TC_ACTIONS, message="unsupported put action type: 17"),
            doca(SW, "NSH is not among what OVS-DOCA offloads"),
            not_an_rte_action(),
        ),
        "ip actions=encap(nsh(md_type=1)),output:p1",
    ),
    Topic(
        "set-tunnel",
        Kind.ACTION,
        "Send by a tunnel, with its id and addresses",
        (
            tc(HW, "act_tunnel_key; the driver decides", TC_TUNNEL),
            doca(HW, "encapsulated in the NIC"),
            dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, span=(None, (2, 13)), message="Unsupported action type"),
            dpdk(HW, "the whole outer header is pushed (raw_encap)", DPDK_ACTIONS, span=((2, 14), None)),
        ),
        "ip actions=load:0x5->NXM_NX_TUN_ID[],output:vxlan0",
    ),
    Topic(
        "set-tunnel-options",
        Kind.ACTION,
        "Write options of a tunnel (tun_metadata)",
        (
            tc(HW, "Geneve options are handed on", TC_TUNNEL),
            doca(DEPENDS, "one Geneve option is offloaded"),
            dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, span=(None, (2, 13)), message="Unsupported action type"),
            dpdk(HW, "the whole outer header is pushed (raw_encap)", DPDK_ACTIONS, span=((2, 14), None)),
        ),
        "ip actions=load:0x5->NXM_NX_TUN_METADATA0[],output:geneve0",
    ),
    Topic(
        "set-tunnel-tp-src",
        Kind.ACTION,
        "Write the source port of a tunnel's outer header",
        (
            tc(
                DEPENDS, "left out by TC without a word, so that the NIC picks the port", TC_TUNNEL, span=(None, (3, 2))
            ),
            tc(
                SW,
                "TC has no such attribute",
                TC_TUNNEL,
                span=((3, 3), None),
                message="unsupported tunnel key attribute",
            ),
            doca(DEPENDS, ASK_DOCA),
        ),
    ),
    Topic(
        "tunnel-pop",
        Kind.ACTION,
        "Take off the outer header of a tunnel in the userspace datapath",
        (
            doca(HW, "decapsulated in the NIC"),
            dpdk(PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, span=(None, (2, 15)), message="Unsupported action type"),
            dpdk(
                DEPENDS,
                "needs an Open vSwitch that was built with DPDK's experimental API",
                DPDK_ACTIONS,
                span=((2, 16), None),
            ),
        ),
    ),
    Topic(
        "pipeline-action",
        Kind.ACTION,
        "Registers, metadata, resubmit, goto_table, conjunction, note, stack",
        everywhere("vanishes when the flow is translated; megaflows do not know it", XLATE, XLATE),
        "ip actions=load:0x5->NXM_NX_REG0[],resubmit(,1)",
    ),
)
