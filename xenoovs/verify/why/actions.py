"""Reasons that lie in the megaflow itself: keys and actions that Open vSwitch does not give to the hardware.

Kernel: lib/netdev-offload-tc.c (netdev_tc_flow_put) of 3.1. DPDK: lib/netdev-offload-dpdk.c and
Documentation/howto/dpdk.rst, "Flow Hardware Offload".
"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.verify.verdict import Verdict
from xenoovs.verify.why.case import Case
from xenoovs.verify.why.contents import is_fragment, kinds_of, listed, matches_key, set_fields
from xenoovs.verify.why.notes import MAX_TC_ACTIONS
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

_KERNEL_ACTIONS = {
    "userspace": (Cause.SLOW_PATH, "every packet goes through ovs-vswitchd (controller, learning or slow path)"),
    "sample": (Cause.UNSUPPORTED_ACTION, "packets are sampled (sFlow, IPFIX or a sample action)"),
    "hash": (Cause.UNSUPPORTED_ACTION, "a select group hashes each packet in software (dp_hash)"),
    "trunc": (Cause.UNSUPPORTED_ACTION, "output with max_len cuts packets"),
    "clone": (Cause.UNSUPPORTED_ACTION, "clone is not offloaded"),
    "push_eth": (Cause.UNSUPPORTED_ACTION, "packets get a new Ethernet header (a layer-3 tunnel)"),
    "pop_eth": (Cause.UNSUPPORTED_ACTION, "packets lose their Ethernet header (a layer-3 tunnel)"),
    "push_nsh": (Cause.UNSUPPORTED_ACTION, "NSH is not offloaded"),
    "pop_nsh": (Cause.UNSUPPORTED_ACTION, "NSH is not offloaded"),
}
_KERNEL_KEYS = {
    "dp_hash": "it matches the hash that a select group computed in software",
    "skb_mark": "it matches pkt_mark",
    "skb_priority": "it matches skb_priority",
}
_KERNEL_SETS = frozenset(("eth", "ipv4", "ipv6", "tcp", "udp", "tunnel", "mpls"))
_DPDK_SETS = frozenset(("eth", "ipv4", "ipv6", "tcp", "udp"))
_DPDK_ACTIONS = frozenset(("output", "drop", "set", "push_vlan", "pop_vlan", "tnl_push", "clone"))


def action_reasons(case: Case) -> Iterator[Reason]:
    """Reasons for layers that Open vSwitch itself chose; a rule that traffic control has was translated."""
    if case.verdict is Verdict.PARTIAL or (not case.is_kernel and _is_dpdk(case)):
        yield from _dpdk(case)
    elif case.verdict is Verdict.SW and case.is_kernel:
        yield from _kernel_actions(case)
        yield from _kernel_keys(case)
        yield from _recirculation(case)


def _kernel_actions(case: Case) -> Iterator[Reason]:
    seen = (_actions(case),)
    for kind in sorted(kinds_of(case.megaflow) & _KERNEL_ACTIONS.keys()):
        cause, text = _KERNEL_ACTIONS[kind]
        yield Reason(cause, Likelihood.CERTAIN, text, seen)
    unknown = set_fields(case.megaflow) - _KERNEL_SETS
    if unknown:
        text = f"traffic control cannot write {listed(unknown)}"
        yield Reason(Cause.UNSUPPORTED_ACTION, Likelihood.CERTAIN, text, seen)
    if len(case.megaflow.actions) > MAX_TC_ACTIONS:
        text = f"a rule of traffic control has at most {MAX_TC_ACTIONS} actions, this one {len(case.megaflow.actions)}"
        yield Reason(Cause.UNSUPPORTED_ACTION, Likelihood.CERTAIN, text, seen)


def _kernel_keys(case: Case) -> Iterator[Reason]:
    for name, text in _KERNEL_KEYS.items():
        if matches_key(case.megaflow, name):
            seen = f"{name}({case.megaflow.key(name)})"
            yield Reason(Cause.UNSUPPORTED_MATCH, Likelihood.CERTAIN, f"{text}, which is not offloaded", (seen,))
    if is_fragment(case.megaflow) and case.megaflow.key("ipv6") is not None:
        seen = f"ipv6({case.megaflow.key('ipv6')})"
        yield Reason(Cause.UNSUPPORTED_MATCH, Likelihood.LIKELY, "IPv6 fragments are not offloaded", (seen,))


def _recirculation(case: Case) -> Iterator[Reason]:
    if case.megaflow.recirc_id == 0 and "recirc" not in kinds_of(case.megaflow):
        return
    text = "packets pass twice (connection tracking or a group), for which the kernel needs CONFIG_NET_TC_SKB_EXT"
    yield Reason(
        Cause.RECIRCULATION,
        Likelihood.LIKELY,
        f"{text} and every step before must be in hardware too",
        (f"recirc_id({case.megaflow.key('recirc_id')})", _actions(case)),
        ("grep CONFIG_NET_TC_SKB_EXT /boot/config-$(uname -r)",),
    )


def _dpdk(case: Case) -> Iterator[Reason]:
    kinds = kinds_of(case.megaflow) - _DPDK_ACTIONS
    fields = set_fields(case.megaflow) - _DPDK_SETS
    if kinds or fields:
        text = f"DPDK cannot give {listed(kinds | fields)} to the NIC"
        yield Reason(Cause.UNSUPPORTED_ACTION, Likelihood.CERTAIN, text, (_actions(case),))


def _is_dpdk(case: Case) -> bool:
    port = case.interface
    return port is not None and port.type == "dpdk"


def _actions(case: Case) -> str:
    return f"actions:{','.join(case.megaflow.actions)}"
