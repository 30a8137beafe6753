"""The OpenFlow flows and the logical flows of OVN behind the links of a bridge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.logical_flow import LogicalFlow
from xenoovs.errors import CommandFailed, counted
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.southbound import read_logical_flows
from xenoovs.verify.links import MegaflowLink
from xenoovs.verify.trace import parse_visited

_MAX_TRACES = 100
_MAX_TRACING_S = 20.0


@dataclass(frozen=True, slots=True)
class NamedFlows:
    """Links with their flows.

    Attributes:
        logical: cookie -> logical flow of OVN.
    """

    links: tuple[MegaflowLink, ...]
    logical: Mapping[int, LogicalFlow]
    remarks: tuple[str, ...]


def name_flows(links: Sequence[MegaflowLink], state: BridgeState, endpoint: Endpoint) -> NamedFlows:
    """Trace the links that are judged, those in software first, and ask OVN about the cookies.

    At most 100 links and 20 s, as ovs-vswitchd traces in its main thread. Raises SwitchError.
    """
    judged = [number for number, link in enumerate(links) if link.is_judged]
    judged.sort(key=lambda number: -links[number].verdict.badness)
    found, remarks = list(links), list[str]()
    appctl, until = Appctl(endpoint), time.monotonic() + _MAX_TRACING_S
    traced = gone = 0
    for number in judged[:_MAX_TRACES]:
        if time.monotonic() > until:
            break
        key = ",".join(f"{key.name}({key.inner})" for key in links[number].megaflow.keys)
        try:
            text = appctl.trace_megaflow(key, datapath_type=state.datapath_type)
        except CommandFailed:
            gone += 1
        else:
            found[number] = replace(links[number], flows=parse_visited(text))
        traced += 1
    if gone:
        # It has ended meanwhile, or this version cannot trace its fields.
        remarks.append(f"ofproto/trace failed for {counted(gone, 'megaflow')}, so their flows are not named")
    if traced < len(judged):
        remarks.append(f"{counted(len(judged) - traced, 'more megaflow')} not traced; those in software were first")
    if state.ovn is None or not state.ovn.is_owner:
        return NamedFlows(tuple(found), {}, tuple(remarks))
    cookies = (flow.cookie for link in found for flow in link.flows if flow.bridge == state.name)
    logical = read_logical_flows(state.ovn.remote, cookies)
    if isinstance(logical, Unknown):
        return NamedFlows(tuple(found), {}, (*remarks, f"OVN's logical flows were not read: {logical.reason}"))
    return NamedFlows(tuple(found), logical, tuple(remarks))
