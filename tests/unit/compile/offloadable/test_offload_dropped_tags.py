"""Flows that drop tagged packets cost other packets nothing: OVN has one for each logical switch."""

from __future__ import annotations

import pytest

from xenoovs.compile.offloadable.check import FlowRole, check_flows, describe
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Profile
from xenoovs.openflow.text import parse_dump

_PLAIN = "priority=50,ip actions=output:p1"


@pytest.mark.parametrize(
    ("flow", "role"),
    [
        ("priority=100,metadata=0x1,vlan_tci=0x1000/0x1000 actions=drop", FlowRole.TAGGED_DROP),
        ("priority=100,dl_vlan=5 actions=drop", FlowRole.TAGGED_DROP),
        ("priority=100,dl_vlan=0xffff actions=drop", FlowRole.OTHER),
        ("priority=100,vlan_tci=0x0000/0x1000 actions=drop", FlowRole.OTHER),
        ("priority=100,vlan_tci=0x1000/0x1000 actions=output:p1", FlowRole.OTHER),
        ("priority=100,tp_dst=80,tcp actions=drop", FlowRole.OTHER),
    ],
)
def test_what_a_flow_is_for(flow: str, role: FlowRole) -> None:
    flows = [seen.flow for seen in parse_dump(f"{flow}\n{_PLAIN}\n")]
    judged = check_flows(flows, profile=Profile.TC, version=DEFAULT_VERSION)
    assert [each.role for each in judged.flows] == [role, FlowRole.OTHER]


def test_they_are_not_counted() -> None:
    text = f"priority=100,vlan_tci=0x1000/0x1000 actions=drop\n{_PLAIN}\n"
    judged = check_flows([seen.flow for seen in parse_dump(text)], profile=Profile.TC, version=DEFAULT_VERSION)
    assert describe(judged) == "the NIC can take the flow" or describe(judged).startswith("the NIC can take 1 flow")
    assert judged.in_software == ()
