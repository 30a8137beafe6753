"""The table, fourth part: where a flow sends the packet."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    ASK_DOCA,
    DOCA_CT,
    DPDK_ACTIONS,
    KERNEL_CT,
    NOT_AN_RTE_ACTION,
    TC_ACTIONS,
    TC_CT,
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

HW, DEPENDS, PARTIAL, TC_SW, SW = Offload.HW, Offload.DEPENDS, Offload.PARTIAL, Offload.TC_SW, Offload.SW
_NO_ACTION = "unsupported put action type"
_TO_CPU = "every packet passes the CPU"

OUTPUT_TOPICS: tuple[Topic, ...] = (
    Topic(
        "output",
        Kind.ACTION,
        "Send out of a port",
        everywhere("both ports must belong to one eSwitch", TC_ACTIONS, DPDK_ACTIONS),
        "ip actions=output:p1",
    ),
    Topic(
        "drop",
        Kind.ACTION,
        "Drop",
        everywhere("dropped in the NIC", TC_ACTIONS, DPDK_ACTIONS),
        "ip actions=drop",
    ),
    Topic(
        "output-in-port",
        Kind.ACTION,
        "Send back where the packet came from",
        (
            tc(DEPENDS, "translated; the NIC's driver must allow hairpin", TC_ACTIONS),
            doca(DEPENDS, ASK_DOCA),
            dpdk(DEPENDS, "the NIC's driver must allow hairpin", DPDK_ACTIONS),
        ),
        "ip actions=IN_PORT",
    ),
    Topic(
        "output-local",
        Kind.ACTION,
        "Send to the bridge's own port (LOCAL)",
        (
            tc(TC_SW, "the bridge's port is a device of the host; drivers refuse to send there", TC_ACTIONS),
            doca(SW, "ports of the bridge itself are not offloaded"),
            dpdk(
                PARTIAL,
                f"the bridge's port is a device of the host: {NOT_AN_RTE_ACTION}",
                DPDK_ACTIONS,
                message="Output to port",
            ),
        ),
        "ip actions=LOCAL",
    ),
    Topic(
        "normal",
        Kind.ACTION,
        "Forward as a learning switch (NORMAL, FLOOD, ALL)",
        (
            tc(
                DEPENDS,
                "in hardware to a MAC that was learnt, an entry for each pair of MACs; what is flooded also goes to "
                "the bridge's own port, which drivers refuse",
                XLATE,
            ),
            doca(
                DEPENDS,
                "in hardware to a MAC that was learnt; what is flooded has several outputs, which it refuses",
                XLATE,
            ),
            dpdk(DEPENDS, "in hardware to a MAC that was learnt, not where it is flooded", XLATE),
        ),
        "ip actions=NORMAL",
    ),
    Topic(
        "controller",
        Kind.ACTION,
        "Send to a controller",
        (
            tc(SW, f"{_TO_CPU} (userspace action)", TC_ACTIONS, message=f"{_NO_ACTION}: 2"),
            doca(SW, _TO_CPU),
            not_an_rte_action(),
        ),
        "ip actions=CONTROLLER:65535",
    ),
    Topic(
        "slow-path",
        Kind.ACTION,
        "Handled by ovs-vswitchd itself (slow path)",
        (
            tc(SW, f"{_TO_CPU} (userspace action)", TC_ACTIONS, message=f"{_NO_ACTION}: 2"),
            doca(SW, _TO_CPU),
            not_an_rte_action(),
        ),
    ),
    Topic(
        "learn",
        Kind.ACTION,
        "Learn flows from packets",
        (
            tc(
                DEPENDS,
                "vanishes when translated, but what it copies is matched whole; the flows that it makes decide",
                XLATE,
            ),
            doca(
                DEPENDS,
                "vanishes when translated, but what it copies is matched whole; the flows that it makes decide",
                XLATE,
            ),
            dpdk(
                DEPENDS,
                "vanishes when translated, but what it copies is matched whole; the flows that it makes decide",
                XLATE,
            ),
        ),
        "ip actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:p1",
    ),
    Topic(
        "sample",
        Kind.ACTION,
        "Sample packets (sample)",
        (
            tc(
                DEPENDS,
                "vanishes where the bridge has no exporter (sFlow, IPFIX); else sampled packets pass the CPU",
                XLATE,
            ),
            doca(DEPENDS, "vanishes where the bridge has no exporter (sFlow, IPFIX)", XLATE),
            dpdk(DEPENDS, "vanishes where the bridge has no exporter (sFlow, IPFIX)", XLATE),
        ),
        "ip actions=sample(probability=65535,collector_set_id=1,obs_domain_id=1,obs_point_id=1),output:p1",
    ),
    Topic(
        "sampled",
        Kind.ACTION,
        "The datapath samples packets for sFlow or IPFIX",
        (
            tc(SW, "remove the bridge's sFlow, IPFIX or NetFlow", TC_ACTIONS, message=f"{_NO_ACTION}: 6"),
            doca(SW, "not among what OVS-DOCA offloads"),
            not_an_rte_action(),
        ),
    ),
    Topic(
        "truncate",
        Kind.ACTION,
        "Send a shortened copy (max_len)",
        (
            tc(SW, "TC has no such action", TC_ACTIONS, message=f"{_NO_ACTION}: 13"),
            doca(SW, "not among what OVS-DOCA offloads"),
            not_an_rte_action(),
        ),
        "ip actions=output(port=p1,max_len=100)",
    ),
    Topic(
        "meter",
        Kind.ACTION,
        "Limit the rate (meter)",
        (
            tc(SW, "use Open vSwitch 3.0", TC_ACTIONS, span=(None, (2, 17)), message=f"{_NO_ACTION}: 19"),
            tc(HW, "act_police; the first packet of a megaflow passes it by", TC_ACTIONS, span=((3, 0), None)),
            doca(HW, "meters of one band"),
            not_an_rte_action(),
        ),
        "ip actions=meter:1,output:p1",
    ),
    Topic(
        "check-pkt-len",
        Kind.ACTION,
        "Tell long packets from short ones (check_pkt_larger)",
        (
            tc(SW, "use Open vSwitch 3.0", TC_ACTIONS, span=(None, (2, 17)), message=f"{_NO_ACTION}: 21"),
            tc(HW, "act_police with an MTU; the driver decides", TC_ACTIONS, span=((3, 0), None)),
            doca(SW, "not among what OVS-DOCA offloads"),
            not_an_rte_action(),
        ),
        "ip actions=check_pkt_larger(1500)->NXM_NX_REG0[0],resubmit(,1)",
    ),
    Topic(
        "clone",
        Kind.ACTION,
        "Work on a copy (clone)",
        (
            tc(DEPENDS, "often vanishes; TC has no clone action", TC_ACTIONS, message=f"{_NO_ACTION}: 20"),
            doca(DEPENDS, "often vanishes; OVS-DOCA has no clone action"),
            dpdk(DEPENDS, "a clone at the end that encapsulates is offloaded, no other", DPDK_ACTIONS),
        ),
        "ip actions=clone(mod_dl_dst:02:00:5e:10:00:02,output:p1)",
    ),
    Topic(
        "ct-action",
        Kind.ACTION,
        "Track connections (ct)",
        (tc(DEPENDS, KERNEL_CT, TC_CT), doca(DEPENDS, DOCA_CT), not_an_rte_action()),
        "tcp actions=ct(commit,zone=1,table=1)",
    ),
    Topic(
        "ct-helper",
        Kind.ACTION,
        "Track connections with a helper (alg)",
        (
            tc(
                DEPENDS,
                "the helper is left out by TC without a word, so that it does nothing",
                TC_CT,
                span=(None, (3, 0)),
            ),
            tc(SW, "TC has no helpers", TC_CT, span=((3, 1), None)),
            doca(DEPENDS, ASK_DOCA),
            not_an_rte_action(),
        ),
        "tcp actions=ct(commit,zone=1,alg=ftp),output:p1",
    ),
    Topic(
        "ct-clear",
        Kind.ACTION,
        "Forget the connection (ct_clear)",
        (tc(DEPENDS, KERNEL_CT, TC_CT), doca(DEPENDS, DOCA_CT), not_an_rte_action()),
        "tcp actions=ct_clear,output:p1",
    ),
    Topic(
        "unknown-action",
        Kind.ACTION,
        "An action that xenoovs does not know",
        (
            tc(
                DEPENDS,
                "trace a packet with `ovs-appctl ofproto/trace` and look at the datapath actions",
                TC_ACTIONS,
                message=_NO_ACTION,
            ),
            doca(DEPENDS, ASK_DOCA),
            dpdk(
                DEPENDS, "trace a packet with `ovs-appctl ofproto/trace` and look at the datapath actions", DPDK_ACTIONS
            ),
        ),
        "ip actions=some_new_action(5),output:p1",
    ),
)
