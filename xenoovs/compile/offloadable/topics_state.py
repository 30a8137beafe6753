"""The table, second part: what a flow matches beside the packet's headers."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    ASK_DOCA,
    DOCA_CT,
    DOCA_DP_HASH,
    KERNEL_CT,
    NOT_IN_RTE,
    TC_CT,
    TC_KEY,
    TC_PUT,
    TC_TUNNEL,
    XLATE,
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
_UNKNOWN = "offloading isn't supported, unknown attribute"


def _refused(name: str, what: str, attribute: str, example: str | None = None, *, dead: bool = True) -> Topic:
    """A key of the datapath that no NIC can know, with the word that Open vSwitch has for it in its log."""
    text = f"{attribute} is a mark of the host's own, which no NIC can see"
    other = doca(SW, text) if dead else doca(DEPENDS, ASK_DOCA)
    message = f"offloading attribute {attribute} isn't supported"
    return Topic(name, Kind.MATCH, what, (tc(SW, text, TC_KEY, message=message), other, not_in_rte()), example)


STATE_TOPICS: tuple[Topic, ...] = (
    Topic(
        "pipeline-field",
        Kind.MATCH,
        "Registers, metadata, conjunctions and the action set",
        everywhere("vanishes when the flow is translated; megaflows do not know it", XLATE, XLATE),
        "ip,reg0=0x1 actions=output:p1",
    ),
    _refused("pkt-mark", "The packet mark", "pkt_mark", "ip,pkt_mark=0x1 actions=output:p1"),
    Topic(
        "no-pkt-mark",
        Kind.MATCH,
        "Packets without a mark (matched by whatever writes the mark)",
        (tc(HW, "left out, because packets in the NIC have none", TC_PUT), doca(DEPENDS, ASK_DOCA), not_in_rte()),
        "ip,pkt_mark=0 actions=output:p1",
    ),
    _refused("skb-priority", "The priority of the socket buffer (a queue)", "skb_priority"),
    _refused("nw-tos-not-ip", "DSCP where there is no IP header", "nw_tos", dead=False),
    _refused("frozen-conj-id", "A conjunction behind recirculation", "conj_id", dead=False),
    _refused("frozen-action-set", "An action set behind recirculation", "actset_output", dead=False),
    _refused("frozen-registers", "Registers behind recirculation", "regs[", dead=False),
    _refused("frozen-metadata", "Metadata behind recirculation", "metadata", dead=False),
    Topic(
        "dp-hash",
        Kind.MATCH,
        "The datapath's hash of the packet",
        (
            tc(
                SW,
                "flower has no such key; split clients by masked addresses instead",
                TC_KEY,
                message="offloading attribute dp_hash isn't supported",
            ),
            doca(DEPENDS, DOCA_DP_HASH),
            not_in_rte(),
        ),
        "ip,dp_hash=0x1/0xf actions=output:p1",
    ),
    Topic(
        "packet-type",
        Kind.MATCH,
        "Packets without an Ethernet header",
        (
            tc(
                SW,
                "flower takes Ethernet packets alone",
                TC_KEY,
                message="offloading attribute packet_type isn't supported",
            ),
            doca(SW, "OVS-DOCA takes Ethernet packets alone"),
            dpdk(SW, f"rules start with an Ethernet header: {NOT_IN_RTE}"),
        ),
        "packet_type=(1,0x800) actions=output:p1",
    ),
    Topic(
        "not-ethernet-ii",
        Kind.MATCH,
        "Frames without an EtherType (802.2 LLC, such as spanning tree)",
        (
            tc(
                SW,
                "flower matches by EtherType",
                TC_KEY,
                message="offloading of non-ethernet packets isn't supported",
            ),
            doca(DEPENDS, ASK_DOCA),
            dpdk(DEPENDS, "left to the NIC's driver"),
        ),
        "dl_type=0x05ff actions=output:p1",
    ),
    Topic(
        "ct",
        Kind.MATCH,
        "State, zone, mark or label of the connection",
        (tc(DEPENDS, KERNEL_CT, TC_CT), doca(DEPENDS, DOCA_CT), not_in_rte()),
        "tcp,ct_state=+est+trk actions=output:p1",
    ),
    Topic(
        "ct-reply-invalid",
        Kind.MATCH,
        "Connections that are invalid, or packets in reply direction",
        (
            tc(
                SW, "use Open vSwitch 2.16, or match +new and +est alone", TC_CT, span=(None, (2, 15)), message=_UNKNOWN
            ),
            tc(DEPENDS, KERNEL_CT, TC_CT, span=((2, 16), None)),
            doca(DEPENDS, DOCA_CT),
            not_in_rte(),
        ),
        "tcp,ct_state=+rpl+trk actions=output:p1",
    ),
    Topic(
        "ct-nat",
        Kind.MATCH,
        "Whether the connection's addresses are translated (snat, dnat)",
        (tc(SW, "flower has no such state", TC_CT, message=_UNKNOWN), doca(DEPENDS, DOCA_CT), not_in_rte()),
        "tcp,ct_state=+dnat+trk actions=output:p1",
    ),
    Topic(
        "ct-tuple",
        Kind.MATCH,
        "The connection's original addresses and ports",
        (tc(SW, "flower has no such key", TC_KEY, message=_UNKNOWN), doca(DEPENDS, ASK_DOCA), not_in_rte()),
        "tcp,ct_state=+trk,ct_nw_src=192.0.2.1 actions=output:p1",
    ),
    Topic(
        "tunnel",
        Kind.MATCH,
        "Id and addresses of the tunnel that the packet came by",
        (
            tc(HW, "the rule stands on the tunnel's device; the driver offloads it by the uplink below", TC_PUT),
            doca(HW, "decapsulated in the NIC"),
            dpdk(SW, NOT_IN_RTE, span=(None, (2, 15)), message="matches of ufid"),
            dpdk(
                DEPENDS,
                "decapsulation needs an Open vSwitch that was built with DPDK's experimental API",
                span=((2, 16), None),
            ),
        ),
        "ip,tun_id=0x5 actions=output:p1",
    ),
    Topic(
        "tunnel-options",
        Kind.MATCH,
        "Options of the tunnel (tun_metadata)",
        (
            tc(HW, "Geneve options are copied with their masks", TC_PUT),
            doca(DEPENDS, "one Geneve option is offloaded"),
            not_in_rte(),
        ),
        "ip,tun_metadata0=0x5 actions=output:p1",
    ),
    Topic(
        "tunnel-flags",
        Kind.MATCH,
        "Flags of the tunnel",
        (
            tc(SW, "use Open vSwitch 3.5", TC_KEY, span=(None, (3, 4)), message=_UNKNOWN),
            tc(
                DEPENDS,
                "the kernel must know flower's tunnel flags (TCA_FLOWER_KEY_ENC_FLAGS)",
                TC_TUNNEL,
                span=((3, 5), None),
            ),
            doca(DEPENDS, ASK_DOCA),
            not_in_rte(),
        ),
        "ip,tun_flags=+oam actions=output:p1",
    ),
    Topic(
        "recirculated",
        Kind.MATCH,
        "Packets that went through the datapath before (recirculation), or will again",
        (
            tc(
                DEPENDS,
                f"chains of rules: {KERNEL_CT}",
                TC_PUT,
                span=(None, (3, 5)),
                message="recirc_id sharing not supported",
            ),
            tc(
                DEPENDS,
                f"chains of rules: {KERNEL_CT}; and the rule that leads here must be in TC itself",
                TC_PUT,
                span=((3, 6), None),
                message="recirc_id sharing not supported",
            ),
            doca(DEPENDS, f"{DOCA_CT}; each step takes an entry of its own"),
            dpdk(SW, f"only packets fresh from a port: {NOT_IN_RTE}"),
        ),
        "recirc_id=0x3,ip actions=output:p1",
    ),
    Topic(
        "unknown-match",
        Kind.MATCH,
        "A condition that xenoovs does not know",
        (
            tc(DEPENDS, "trace a packet with `ovs-appctl ofproto/trace` and look at the megaflow", TC_KEY),
            doca(DEPENDS, ASK_DOCA),
            dpdk(DEPENDS, "trace a packet with `ovs-appctl ofproto/trace` and look at the megaflow"),
        ),
        "some_new_field=0x5 actions=output:p1",
    ),
)
