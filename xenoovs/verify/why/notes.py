"""The texts that ovs-vswitchd logs as reasons, and the megaflows that each can be about.

lib/netdev-offload-tc.c, lib/netdev-offload-dpdk.c and lib/tc.c up to 3.6, lib/dpif-offload-tc-netdev.c and
lib/dpif-offload-dpdk-netdev.c from 3.7 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.verify.why.contents import OVS_ACTIONS, is_fragment, kinds_of, matches_key, set_fields
from xenoovs.verify.why.reason import Cause

_KEYS = {"pkt_mark": "skb_mark", "actset_output": "in_port", "conj_id": "recirc_id"}
"""Names of `struct flow` that a dump calls otherwise."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text and what it tells. `applies`: whether a megaflow is of the kind that it names; None: it names none.

    is_fleeting: it is about a megaflow only where a failure follows at once, as other requests are refused too.
    """

    pattern: re.Pattern[str]
    cause: Cause
    applies: Callable[[Megaflow, re.Match[str]], bool] | None = None
    is_fleeting: bool = False

    def fits(self, megaflow: Megaflow, message: str) -> bool:
        found = self.pattern.search(message)
        return found is not None and (self.applies is None or self.applies(megaflow, found))

    def port_of(self, message: str) -> str | None:
        """The ingress port, where the text itself names it."""
        found = self.pattern.search(message)
        return found.groupdict().get("port") if found is not None else None


def _has_action(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return OVS_ACTIONS.get(int(found["number"])) in kinds_of(megaflow)


def _has_key(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return matches_key(megaflow, _KEYS.get(found["key"], found["key"]))


def _has_set(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return bool(set_fields(megaflow))


def _sets_in_fragments(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return bool(set_fields(megaflow)) and is_fragment(megaflow)


def _is_long(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return len(megaflow.actions) > 1


def _is_ipv6_fragment(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return is_fragment(megaflow) and megaflow.key("ipv6") is not None


def _recirculates(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return megaflow.recirc_id != 0 or "recirc" in kinds_of(megaflow)


def _goes_to(megaflow: Megaflow, found: re.Match[str]) -> bool:
    return found["egress"] in megaflow.actions


def _note(pattern: str, cause: Cause, applies: Callable[[Megaflow, re.Match[str]], bool] | None = None) -> Note:
    return Note(re.compile(pattern, re.ASCII), cause, applies)


NOTES = (
    _note(r"unsupported put action type: (?P<number>[0-9]+)", Cause.UNSUPPORTED_ACTION, _has_action),
    _note(r"offloading attribute (?P<key>\w+) isn't supported", Cause.UNSUPPORTED_MATCH, _has_key),
    _note(r"offloading of IPv6 fragments isn't supported", Cause.UNSUPPORTED_MATCH, _is_ipv6_fragment),
    _note(r"unsupported (?:sub attribute of )?set action type", Cause.UNSUPPORTED_ACTION, _has_set),
    _note(r"set action type [0-9]+ not supported on fragments", Cause.UNSUPPORTED_ACTION, _sets_in_fragments),
    _note(r"unsupported tunnel key attribute", Cause.UNSUPPORTED_ACTION, _has_set),
    _note(r"Can only support [0-9]+ actions", Cause.UNSUPPORTED_ACTION, _is_long),
    _note(r"recirc_id sharing not supported", Cause.RECIRCULATION, _recirculates),
    _note(r"recirc_id [0-9]+ exceeds the chain id upper limit", Cause.RECIRCULATION, _recirculates),
    _note(r"match for chain [0-9]+ failed due to non-existing goto chain", Cause.RECIRCULATION, _recirculates),
    _note(r"Can't find ifindex for output port (?P<egress>\S+),", Cause.EGRESS_ELSEWHERE, _goes_to),
    _note(r"Can't find offloaded netdev for output port", Cause.EGRESS_ELSEWHERE),
    _note(r"Flow API provider mismatch between ingress", Cause.EGRESS_ELSEWHERE),
    _note(r"couldn't get tc prio: No space left on device", Cause.TABLE_FULL),
    _note(r"failed adding ingress qdisc required for offloading on (?P<port>\S+):", Cause.NO_INGRESS_QDISC),
    _note(r"Kernel flower acknowledgment does not match request", Cause.REFUSED_BY_KERNEL),
    _note(r"Output to port '(?P<egress>[^']+)' cannot be offloaded", Cause.EGRESS_ELSEWHERE, _goes_to),
    _note(r"Unsupported action type [0-9]+", Cause.UNSUPPORTED_ACTION),
    _note(r"Partial mask is not supported", Cause.UNSUPPORTED_ACTION, _has_set),
    # nl_sock_transact_multiple__ of lib/netlink-socket.c: the extended acknowledgement of the kernel.
    Note(re.compile(r"received NAK error=[0-9]+ - "), Cause.REFUSED_BY_DRIVER, is_fleeting=True),
)
