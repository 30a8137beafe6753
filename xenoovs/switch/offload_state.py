"""Whether the ovs-vswitchd that runs offloads, and for which ports: by asking it, and by its log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from xenoovs.datapath.host import OffloadHistory, OffloadState, Seen, Unknown
from xenoovs.errors import ParseError

_BEGUN = re.compile(
    r"\|INFO\|(?:netdev: Flow API Enabled(?:, using [0-9]+ threads?)?|Flow HW offload is enabled)$", re.MULTILINE
)
_PORT = re.compile(r"\|INFO\|bridge \S+: added interface \S+ on port ", re.MULTILINE)
"""The first comes after offload has begun, where it was set at the start (bridge_run of vswitchd/bridge.c)."""
_POLICY = re.compile(r"\|INFO\|tc: Using policy '([a-z_]+)'$", re.MULTILINE)
_ASSIGNED = re.compile(r"\|INFO\|(\S+): Assigned flow API '([^']+)'\.?$", re.MULTILINE)
_FAILED = re.compile(
    r"\|(?:INFO|WARN|ERR)\|((?:init: failed to get ifindex for|failed adding ingress qdisc required for offloading on) "
    r"([^\s:]+): .*)$",
    re.MULTILINE,
)
"""Messages of lib/netdev-offload.c, netdev-offload-tc.c and tc.c up to 3.6; of dpif-offload.c and dpif-offload-tc.c as
of 3.7."""

_FIRST = re.compile(r"^[^|\n]*\|00001\|[^|()\n]+\|", re.MULTILINE)
"""Messages are numbered from the start of each thread (lib/vlog.c); other threads than the first say which they are,
as `dpif(handler2)`."""

_LIMIT = re.compile(r"\(limit ([0-9]+)\)")
_COUNTED = re.compile(r"^\s*offloaded flows\s*:", re.MULTILINE)


def parse_history(log: str) -> OffloadHistory:
    """What the log says since the last start that it shows. Any text is a log."""
    starts = [found.start() for found in _FIRST.finditer(log)]
    since = log[starts[-1] :] if starts else log
    begun, port = _BEGUN.search(since), _PORT.search(since)
    policies = _POLICY.findall(since)
    return OffloadHistory(
        has_begun=begun is not None,
        is_late=begun is not None and port is not None and port.start() < begun.start(),
        tc_policy=policies[-1] if policies else None,
        providers=dict(_ASSIGNED.findall(since)),
        failures={port: text for text, port in _FAILED.findall(since)},
        is_whole=bool(starts),
    )


def parse_flow_limit(upcall_show: str) -> Seen[int]:
    """The least limit of all datapaths in the answer of `upcall/show`."""
    found = [int(limit) for limit in _LIMIT.findall(upcall_show)]
    return min(found) if found else Unknown("`ovs-appctl upcall/show` tells no limit")


def parse_offload_show(text: str) -> tuple[bool, dict[str, str]]:
    """`ovs-appctl --format json dpif/offload/show` (3.7): is it on, and port -> provider. Raises ParseError."""
    expected = "the object of `dpif/offload/show`"
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(text=text, offset=error.pos, expected=expected) from None
    enabled = document.get("enabled") if isinstance(document, dict) else None
    if not isinstance(enabled, bool):
        raise ParseError(text=text, offset=0, expected=expected)
    datapaths = (value for value in document.values() if isinstance(value, dict))
    return enabled, {port: name for datapath in datapaths for name, port in _ports(datapath)}


def _ports(datapath: Mapping[str, Any]) -> list[tuple[str, str]]:
    providers = datapath.get("providers")
    rows = providers.items() if isinstance(providers, dict) else ()
    return [(name, port) for name, row in rows if isinstance(row, dict) for port in row.get("ports") or {}]


def judge_offload(*, upcall_show: str, statistics: Seen[str], history: Seen[OffloadHistory]) -> Seen[OffloadState]:
    """On or off up to 3.6, where nothing says so directly.

    upcall_show: counts offloaded flows as soon as a port has a provider that can count (dpif_get_n_offloaded_flows).
    statistics:  the answer of `dpctl/offload-stats-show`, which the userspace datapath refuses with EINVAL while
                 offload is off (lib/dpif-netdev.c).
    """
    if _COUNTED.search(upcall_show):
        return OffloadState(is_on=True, evidence="`upcall/show` counts offloaded flows")
    if not isinstance(statistics, Unknown):
        return OffloadState(is_on=True, evidence="`dpctl/offload-stats-show` counts offloads")
    if "(Invalid argument)" in statistics.reason:
        return OffloadState(is_on=False, evidence="`dpctl/offload-stats-show` is refused")
    if not isinstance(history, Unknown) and (history.has_begun or history.is_whole):
        evidence = "the log says that it began" if history.has_begun else "nothing of it in the log since the start"
        return OffloadState(is_on=history.has_begun, evidence=evidence)
    reason = history.reason if isinstance(history, Unknown) else "its log does not reach back to its start"
    return Unknown(f"ovs-vswitchd does not tell, and {reason}")
