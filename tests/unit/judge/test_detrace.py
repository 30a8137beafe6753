"""Answers of ofproto/detrace, in the form of ofproto_rule_stats_ds() of ofproto/ofproto.c since Open vSwitch 3.4."""

from __future__ import annotations

from xenoovs.judge.trace import Origin, parse_detrace
from xenoovs.openflow.flow import is_ours

ANSWER = """ovsbr1
  cookie=0x786f0100deadbeef, duration=12s, n_packets=1, n_bytes=98, n_offload_packets=1, n_offload_bytes=98, priority=936,ip,in_port=1,nw_dst=10.3.10.45,actions=set_field:0x5->reg0,resubmit(,1)
  cookie=0x5678, table_id=1, duration=12s, n_packets=1, n_bytes=98, priority=10,ip,nw_src=0.0.0.0/0.0.0.1,actions=output:2
"""  # noqa: E501


def test_flows_have_cookie_table_and_text() -> None:
    ours, theirs = parse_detrace(ANSWER)
    assert (is_ours(ours.cookie), ours.table) == (True, 0)
    assert ours.text.startswith("priority=936,ip,in_port=1")
    assert theirs == Origin(0x5678, 1, "priority=10,ip,nw_src=0.0.0.0/0.0.0.1,actions=output:2")
    assert str(theirs).startswith("cookie=0x5678, table=1, priority=10")


def test_a_flow_without_cookie_and_with_the_default_priority_is_foreign() -> None:
    """ovs-vswitchd leaves out a cookie of 0, so the most common foreign flows were not named."""
    counters = "duration=4s, n_packets=1, n_bytes=98, n_offload_packets=0, n_offload_bytes=0, "
    (first, second) = parse_detrace(f"{counters}ip,nw_tos=184,actions=output:2\n{counters},actions=NORMAL\n")
    assert first == Origin(0, 0, "ip,nw_tos=184,actions=output:2")
    assert second == Origin(0, 0, "actions=NORMAL")
    assert not is_ours(first.cookie)


def test_errors_and_groups_are_skipped() -> None:
    text = "UFID was not found for system@ovs-system\ngroup_id=1,type=select,bucket=weight:1,actions=output:2\n"
    assert parse_detrace(text) == ()


def test_an_answer_without_flows_names_none() -> None:
    assert parse_detrace("Cache was not found\n") == parse_detrace("") == ()
