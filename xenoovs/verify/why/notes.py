"""The texts that ovs-vswitchd logs as reasons, where it writes them, and the megaflows that each can be about.

Compared with the sources of 2.17, 3.1, 3.6 and 3.7. Files and functions are in the table of what can be offloaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from xenoovs.compile.offloadable.sources import (
    DPDK_ACTIONS,
    DPDK_OUTPUT,
    DPDK_PARTIAL,
    NETLINK_NAK,
    TC_ACTIONS,
    TC_INIT,
    TC_KEY,
    TC_MASKED_SET,
    TC_PUT,
    TC_REPLACE,
    TC_TUNNEL,
)
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.verify.why.contents import OVS_ACTIONS, is_fragment, kinds_of, matches_key, set_fields
from xenoovs.verify.why.reason import Cause

_KEYS = {"pkt_mark": "skb_mark", "actset_output": "in_port", "conj_id": "recirc_id"}
"""Names of `struct flow` that a dump calls otherwise."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text and what it tells.

    source:      where Open vSwitch writes it.
    applies:     whether a megaflow is of the kind that it names; None: it names none.
    is_fleeting: it is about a megaflow only where a failure follows at once, as other requests are refused too.
    """

    pattern: re.Pattern[str]
    cause: Cause
    source: str
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


def _has_lses(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return "lse1=" in (megaflow.key("mpls") or "")


def _is_no_frame(megaflow: Megaflow, _found: re.Match[str]) -> bool:
    return megaflow.key("eth") is None


_Applies = Callable[[Megaflow, re.Match[str]], bool]


def _note(pattern: str, cause: Cause, source: str, applies: _Applies | None = None) -> Note:
    return Note(re.compile(pattern, re.ASCII), cause, source, applies)


NOTES = (
    _note(r"unsupported put action type: (?P<number>[0-9]+)", Cause.UNSUPPORTED_ACTION, TC_ACTIONS, _has_action),
    _note(r"offloading attribute (?P<key>[\w\[\]]+) isn't supported", Cause.UNSUPPORTED_MATCH, TC_KEY, _has_key),
    _note(r"offloading of IPv6 fragments isn't supported", Cause.UNSUPPORTED_MATCH, TC_KEY, _is_ipv6_fragment),
    _note(r"offloading multiple mpls_lses isn't supported", Cause.UNSUPPORTED_MATCH, TC_KEY, _has_lses),
    _note(r"offloading of non-ethernet packets isn't supported", Cause.UNSUPPORTED_MATCH, TC_KEY, _is_no_frame),
    _note(r"offloading isn't supported, unknown attribute", Cause.UNSUPPORTED_MATCH, TC_KEY),
    _note(r"unsupported (?:sub attribute of )?set action type", Cause.UNSUPPORTED_ACTION, TC_MASKED_SET, _has_set),
    _note(
        r"set action type [0-9]+ not supported on fragments",
        Cause.UNSUPPORTED_ACTION,
        TC_MASKED_SET,
        _sets_in_fragments,
    ),
    _note(r"unsupported tunnel key attribute", Cause.UNSUPPORTED_ACTION, TC_TUNNEL, _has_set),
    _note(r"Can only support [0-9]+ actions", Cause.UNSUPPORTED_ACTION, TC_ACTIONS, _is_long),
    _note(r"recirc_id sharing not supported", Cause.RECIRCULATION, TC_PUT, _recirculates),
    _note(r"recirc_id [0-9]+ exceeds the chain id upper limit", Cause.RECIRCULATION, TC_PUT, _recirculates),
    _note(r"match for chain [0-9]+ failed due to non-existing goto chain", Cause.RECIRCULATION, TC_PUT, _recirculates),
    _note(r"Can't find ifindex for output port (?P<egress>\S+),", Cause.EGRESS_ELSEWHERE, TC_ACTIONS, _goes_to),
    _note(r"Can't find offloaded netdev for output port", Cause.EGRESS_ELSEWHERE, TC_ACTIONS),
    _note(r"Flow API provider mismatch between ingress", Cause.EGRESS_ELSEWHERE, TC_ACTIONS),
    _note(r"couldn't get tc prio: No space left on device", Cause.TABLE_FULL, TC_PUT),
    # Up to 3.1 no port is named: then it says nothing of any.
    _note(r"failed adding ingress qdisc required for offloading on (?P<port>\S+):", Cause.NO_INGRESS_QDISC, TC_INIT),
    _note(r"Kernel flower acknowledgment does not match request", Cause.REFUSED_BY_KERNEL, TC_REPLACE),
    _note(r"Output to port '(?P<egress>[^']+)' cannot be offloaded", Cause.EGRESS_ELSEWHERE, DPDK_OUTPUT, _goes_to),
    _note(r"Unsupported action type [0-9]+", Cause.UNSUPPORTED_ACTION, DPDK_ACTIONS),
    _note(r"Partial mask is not supported", Cause.UNSUPPORTED_ACTION, DPDK_PARTIAL, _has_set),
    # The extended acknowledgement of the kernel.
    Note(re.compile(r"received NAK error=[0-9]+ - "), Cause.REFUSED_BY_DRIVER, NETLINK_NAK, is_fleeting=True),
)
