"""Logical flows of OVN, as `ovn-sbctl --uuid lflow-list` prints them (cmd_lflow_list() of utilities/ovn-sbctl.c)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DATAPATH = re.compile(r'Datapath: (?:"([^"]*)"|([0-9a-f-]{36})).*\bPipeline: (ingress|egress)', re.ASCII)
_FLOW = re.compile(
    r"\s*uuid=0x([0-9a-f]{8}), table=([0-9]{1,3})\s*\(([^()]*)\), priority=([0-9]{1,5})\s*, "
    r"match=\((.*?)\), action=\((.*)\)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class LogicalFlow:
    """One logical flow (ovn-sb(5), table Logical_Flow).

    Attributes:
        cookie: the first 32 bits of its UUID, which are the cookie of the OpenFlow flows that it becomes
            (ovn-architecture(7)).
        datapath: name of the logical switch or router; the first one, if several share the flow.
        pipeline: `ingress` or `egress`.
        table: of the logical pipeline.
        stage: name of the table, such as `ls_in_acl`.
    """

    cookie: int
    datapath: str
    pipeline: str
    table: int
    stage: str
    priority: int
    match: str
    actions: str


def parse_logical_flows(text: str) -> dict[int, LogicalFlow]:
    """Return the logical flows by cookie. Lines of another form are skipped."""
    found = dict[int, LogicalFlow]()
    datapath = pipeline = ""
    for line in text.splitlines():
        if head := _DATAPATH.match(line):
            datapath, pipeline = head[1] or head[2] or "", head[3]
        elif flow := _FLOW.fullmatch(line):
            cookie = int(flow[1], 16)
            numbers = int(flow[2]), flow[3].strip(), int(flow[4])
            found.setdefault(cookie, LogicalFlow(cookie, datapath, pipeline, *numbers, flow[5], flow[6]))
    return found
