"""The table, last part: ports, drivers and settings, which no flow shows but the log of Open vSwitch does."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    DPDK_ACTIONS,
    TC_ACTIONS,
    TC_FAILED,
    TC_INIT,
    TC_PUT,
    Kind,
    Offload,
    Topic,
    doca,
    dpdk,
    tc,
)

TC_SW, SW, PARTIAL = Offload.TC_SW, Offload.SW, Offload.PARTIAL

PLACE_TOPICS: tuple[Topic, ...] = (
    Topic(
        "other-provider",
        Kind.PLACE,
        "Ports that are offloaded in different ways (one by TC, one by DPDK)",
        (
            tc(
                SW,
                "put both ports into one datapath of one kind",
                TC_ACTIONS,
                span=((3, 0), None),
                message="Flow API provider mismatch",
            ),
            doca(SW, "ports of the bridge must be of the DPU's eSwitch"),
            dpdk(PARTIAL, "put both ports into one datapath of one kind", DPDK_ACTIONS, message="cannot be offloaded"),
        ),
    ),
    Topic(
        "no-ifindex",
        Kind.PLACE,
        "An output port that is no device of the kernel",
        (
            tc(
                SW,
                "TC can send to devices of the kernel alone",
                TC_ACTIONS,
                span=((3, 0), None),
                message="Can't find ifindex for output port",
            ),
        ),
    ),
    Topic(
        "output-not-offloaded",
        Kind.PLACE,
        "An output port for which offload could not be set up",
        (
            tc(
                SW,
                "see why in the log where the port was added",
                TC_ACTIONS,
                span=(None, (3, 6)),
                message="Can't find netdev for output port",
            ),
            tc(
                SW,
                "see why in the log where the port was added",
                TC_ACTIONS,
                span=((3, 7), None),
                message="Can't find offloaded netdev for output port",
            ),
        ),
    ),
    Topic(
        "other-eswitch",
        Kind.PLACE,
        "Ports of different eSwitches, or that no NIC has (veth, tap)",
        (
            tc(TC_SW, "translated, but the driver refuses; ports must have one phys_switch_id", TC_ACTIONS),
            doca(SW, "ports of the bridge must be of the DPU's eSwitch"),
        ),
    ),
    Topic(
        "chain-limit",
        Kind.PLACE,
        "Recirculation ids beyond the chains of TC",
        (
            tc(
                SW,
                "fewer steps of recirculation",
                TC_PUT,
                span=((3, 7), None),
                message="exceeds the chain id upper limit",
            ),
        ),
    ),
    Topic(
        "chain-parent",
        Kind.PLACE,
        "A step of recirculation whose first step is not in TC",
        (
            tc(
                SW,
                "look why the megaflow that recirculates to this one is in software",
                TC_PUT,
                span=((3, 6), None),
                message="failed due to non-existing goto chain action",
            ),
        ),
    ),
    Topic(
        "no-priority",
        Kind.PLACE,
        "No free preference in TC",
        (tc(SW, "remove rules of others from the ingress qdisc", TC_PUT, message="couldn't get tc prio"),),
    ),
    Topic(
        "no-qdisc",
        Kind.PLACE,
        "A port whose ingress qdisc is missing",
        (
            tc(
                SW,
                "see who removed it, then restart Open vSwitch",
                TC_INIT,
                message="failed adding ingress qdisc required for offloading",
            ),
        ),
    ),
    Topic(
        "kernel-refused",
        Kind.PLACE,
        "Refused by the kernel or, with tc-policy=skip_sw, by the driver",
        (
            tc(
                SW,
                "the line before it in the log says why, or the driver does",
                TC_FAILED,
                message="failed to offload flow",
            ),
        ),
    ),
    Topic(
        "driver-refused",
        Kind.PLACE,
        "Refused by the NIC's driver (unknown key, table full)",
        (
            tc(TC_SW, "with tc-policy=none nothing is logged; try the rule with skip_sw to hear the driver", TC_FAILED),
            doca(SW, "the reason stands in the log and in dp-offload-info"),
            dpdk(SW, "the reason stands in the log", DPDK_ACTIONS, message="rte_flow creation failed"),
        ),
    ),
)
