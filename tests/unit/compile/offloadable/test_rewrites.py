"""Flows written by hand that rewrite or reflect tunnel packets: each rule, and flows that keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tunnels import tunnelled
from xenoovs.compile.offloadable.rewrites import RewriteRule, check_rewrites, check_script
from xenoovs.compile.program import compile_config
from xenoovs.migrate.flows import script_flows
from xenoovs.openflow.text import parse_flow

RECEIVER = Path(__file__).parents[3] / "golden/imports/doca-ar-receiver.flows"
REFLECTOR = "udp,in_port=p0,nw_tos=32,tp_dst=4789 actions=mod_tp_src:4788,mod_tp_dst:4788,IN_PORT"


def rules(*lines: str) -> list[RewriteRule]:
    return [finding.rule for finding in check_rewrites(map(parse_flow, lines))]


def test_the_published_receiver_keeps_the_source_port_of_probes() -> None:
    (finding,) = check_rewrites(script_flows(RECEIVER.read_text()))
    assert finding.rule is RewriteRule.REFLECTED_PORT
    assert "mod_tp_src:4788" in finding.text


def test_what_the_compiler_makes_has_only_the_cost_of_rewriting_ports() -> None:
    found = check_rewrites(compile_config(tunnelled()).flows)
    assert {finding.rule for finding in found} == {RewriteRule.SOURCE_PORT}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["udp,tp_src=0x1/0x7,tp_dst=4789 actions=mod_tp_src:50001,output:p0"], [RewriteRule.SOURCE_PORT]),
        (["udp,tp_dst=4791 actions=mod_tp_src:50001,output:p0"], [RewriteRule.ROCE]),
        (["udp,tp_dst=4789 actions=set_field:0x5000/0xf000->udp_src,output:p0"], [RewriteRule.MASKED_PORT]),
        ([REFLECTOR.replace("udp,", "udp,nw_src=10.0.0.0/8,", 1)], [RewriteRule.REFLECTED_SOURCE]),
        ([REFLECTOR.replace("mod_tp_src:4788,", "")], [RewriteRule.REFLECTED_PORT]),
        ([REFLECTOR, "ip,in_port=p0 actions=mod_nw_tos:0,output:pf0hpf"], [RewriteRule.PROBE_TOS]),
        ([REFLECTOR], []),
        (["udp,tp_src=50000,tp_dst=4789 actions=mod_tp_src:50001,output:p0"], []),
        (["udp,tp_src=0x1/0x7,tp_dst=4789 actions=output:p1"], []),
        (["udp,tp_dst=4791 actions=output:p1"], []),
    ],
)
def test_each_rule_and_flows_that_keep_it(lines: list[str], found: list[RewriteRule]) -> None:
    assert rules(*lines) == found


def test_the_number_of_entries_is_that_of_the_source_ports_in_the_block() -> None:
    (finding,) = check_rewrites([parse_flow("udp,tp_src=0x1/0x7,tp_dst=4789 actions=mod_tp_src:50001,output:p0")])
    assert "up to 3529 of those that Linux uses" in finding.text


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            "ovs-appctl dpctl/dump-flows type=offloaded\n"
            "ovs-vsctl set Open_vSwitch . Other_config:hw-offload=true\n"
            "/etc/init.d/openvswitch-switch restart\n",
            [RewriteRule.DUMP_TOO_EARLY],
        ),
        ("ovs-vsctl set Open_vSwitch . other_config:hw-offload=true\n", [RewriteRule.NO_RESTART]),
        (
            "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true\nsystemctl restart openvswitch-switch\n"
            "ovs-appctl dpctl/dump-flows type=offloaded\n",
            [],
        ),
        ("# hw-offload=true is set elsewhere\nip link set p0 up\n", []),
    ],
)
def test_the_order_of_the_commands_of_a_script(script: str, found: list[RewriteRule]) -> None:
    assert [finding.rule for finding in check_script(script)] == found
