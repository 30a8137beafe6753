"""Masks in the middle of an IPv6 address reach a real switch, and what could not is refused before."""

from __future__ import annotations

import pytest

from tests.ovs.dummy import DummyBridge
from xenoovs.errors import CommandFailed, ConfigError
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow, render_bundle, render_flow, render_flow_to_send

pytestmark = pytest.mark.ovs

FLOWS = tuple(
    parse_flow(f"priority={priority},ipv6,ipv6_src={source} actions=output:p1")
    for priority, source in enumerate(
        ("0:4::/0:4:0:1000::", "0:0:1::/0:0:1::", "0:1::/0:8001::", "::2/::3", "2001:db8::/32", "::/0:0:0:1::"), start=1
    )
)


def test_bug_ovs_ofctl_took_a_mask_that_starts_with_zero_for_a_prefix_length(bridge: DummyBridge) -> None:
    bridge.add_flows(render_bundle(Bundle(tuple(FlowMod(Command.ADD, flow) for flow in FLOWS))))
    assert sorted(bridge.dump_flows()) == sorted(map(render_flow, FLOWS))
    bridge.add_flows(render_bundle(Bundle(tuple(FlowMod(Command.DELETE, flow) for flow in FLOWS))))
    assert bridge.dump_flows() == []


def test_bug_the_compiled_text_was_not_what_add_flows_takes(bridge: DummyBridge) -> None:
    bridge.add_flows("".join(f"{render_flow_to_send(flow)}\n" for flow in FLOWS))
    assert sorted(bridge.dump_flows()) == sorted(map(render_flow, FLOWS))


def test_bug_the_dump_of_ovs_ofctl_is_not_what_it_reads(bridge: DummyBridge) -> None:
    with pytest.raises(CommandFailed):
        bridge.add_flows("".join(f"{render_flow(flow)}\n" for flow in FLOWS))


def test_bug_bits_of_the_first_group_were_refused_by_the_switch_only(bridge: DummyBridge) -> None:
    flow = parse_flow("ipv6,ipv6_src=4000::/4000:: actions=output:p1")
    with pytest.raises(CommandFailed):
        bridge.add_flows(render_bundle(Bundle((FlowMod(Command.ADD, flow),))))
    config = (
        "version: 1\nswitch: {ingress: [p0], egress: p1}\nservices:\n- name: web\n  vip: 2001:db8::10\n"
        "  match: {bits: [126]}\n  backends:\n  - {name: a, mac: '02:00:00:00:00:01', weight: 1}\n"
        "  - {name: b, mac: '02:00:00:00:00:02', weight: 1}\n"
    )
    with pytest.raises(ConfigError, match="one of the first 16 of an IPv6 address"):
        parse_config(config.encode(), file="my.yaml")
    assert parse_config(config.replace("126", "111").encode(), file="my.yaml").services
