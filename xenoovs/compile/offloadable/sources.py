"""Where the rows come from, and how they are written down."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import Offload, Profile, Row, Version

_TC = "lib/netdev-offload-tc.c (3.7: lib/dpif-offload-tc-netdev.c), "
TC_KEY = f"{_TC}test_key_and_mask()"
TC_PUT = f"{_TC}netdev_tc_flow_put() (3.7: tc_netdev_flow_put())"
TC_ACTIONS = f"{_TC}netdev_tc_parse_nl_actions()"
TC_SET = f"{_TC}set_flower_map, parse_put_flow_set_masked_action()"
TC_TUNNEL = f"{_TC}parse_put_flow_set_action()"
TC_CT = f"{_TC}parse_put_flow_ct_action(), parse_match_ct_state_to_flower()"
TC_MASKED_SET = f"{_TC}parse_put_flow_set_masked_action()"
TC_INIT = f"{_TC}netdev_tc_init_flow_api() (3.7: tc_netdev_init())"
TC_REPLACE = "lib/tc.c, tc_replace_flower()"
TC_FAILED = "lib/dpif-netlink.c, parse_flow_put() (3.7: lib/dpif-offload-tc.c, tc_parse_flow_put())"
NETLINK_NAK = "lib/netlink-socket.c, nl_sock_transact_multiple__()"
_DPDK = "lib/netdev-offload-dpdk.c (3.7: lib/dpif-offload-dpdk-netdev.c), "
DPDK_MATCH = f"{_DPDK}parse_flow_match()"
DPDK_ACTIONS = f"{_DPDK}parse_flow_actions()"
DPDK_OUTPUT = f"{_DPDK}add_output_action()"
DPDK_PARTIAL = f"{_DPDK}add_set_flow_action__()"
DPDK_SET = f"{_DPDK}parse_set_actions()"
DOCA = "NVIDIA DOCA documentation, OpenvSwitch Offload, OVS-DOCA"
XLATE = "ofproto/ofproto-dpif-xlate.c, do_xlate_actions()"

KERNEL_CT = "the kernel needs CONFIG_NET_TC_SKB_EXT and act_ct, and the NIC's driver connection tracking"
DOCA_CT = "connection tracking is offloaded up to hw-offload-ct-size connections (0: none)"
DOCA_DP_HASH = "offloaded with other_config:hw-offload-ct-size=0 alone (connection tracking then is not)"
ASK_DOCA = "NVIDIA's documentation does not say; send a packet and read dp-offload-info in `dpctl/dump-flows -m`"
NOT_IN_RTE = "the flow's match has no form in rte_flow here, so that it is not offered to the NIC at all"
NOT_AN_RTE_ACTION = "the action has no form in rte_flow here: the NIC only marks the packet, and the CPU acts"


def tc(
    offload: Offload,
    text: str,
    source: str,
    *,
    span: tuple[Version | None, Version | None] = (None, None),
    message: str | None = None,
) -> Row:
    """A row of profile tc; `span`: first and last version."""
    return Row(Profile.TC, offload, text, source, span[0], span[1], message)


def dpdk(
    offload: Offload,
    text: str,
    source: str = DPDK_MATCH,
    *,
    span: tuple[Version | None, Version | None] = (None, None),
    message: str | None = None,
) -> Row:
    """A row of profile dpdk; `span`: first and last version."""
    return Row(Profile.DPDK, offload, text, source, span[0], span[1], message)


def doca(offload: Offload, text: str, source: str = DOCA, *, message: str | None = None) -> Row:
    """A row of profile doca, for all versions."""
    return Row(Profile.DOCA, offload, text, source, message=message)


def not_in_rte() -> Row:
    """Profile dpdk does not know the match."""
    return dpdk(Offload.SW, NOT_IN_RTE, DPDK_MATCH, message="matches of ufid")


def not_an_rte_action() -> Row:
    """Profile dpdk does not know the action."""
    return dpdk(Offload.PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, message="Unsupported action type")


def everywhere(text: str, tc_source: str, dpdk_source: str) -> tuple[Row, ...]:
    """Hardware in every profile and version."""
    return (tc(Offload.HW, text, tc_source), doca(Offload.HW, text), dpdk(Offload.HW, text, dpdk_source))
