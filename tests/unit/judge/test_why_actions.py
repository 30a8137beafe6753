"""Keys and actions of a megaflow as a reason, alone and confirmed by the log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.judged import assert_shown
from tests.unit.judge.why_cases import UFID, case, host, megaflow, shown
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.tc import DriverAnswer
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import Case, UnwildcardedBits, shape_of
from xenoovs.judge.why.flows import action_reasons, unwildcarded_reasons
from xenoovs.judge.why.reason import Cause, Likelihood
from xenoovs.openflow.text import parse_flow

TRUNCATED = "2026-11-21T04:33:58.590Z|00007|netdev_offload_tc(handler2)|DBG|unsupported put action type: 13"
FAILED = "2026-11-21T04:33:58.590Z|00008|dpif_netlink(handler2)|DBG|failed to offload flow: Operation not supported: p0"


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (megaflow("dp:ovs", "userspace(pid=4294967295,slow_path(controller))"), Cause.SLOW_PATH),
        (megaflow("dp:ovs", "trunc(100),p1"), Cause.UNSUPPORTED_ACTION),
        (megaflow("dp:ovs", "hash(l4(0)),recirc(0x3)"), Cause.UNSUPPORTED_ACTION),
        (megaflow("dp:ovs", "set(sctp(dst=80)),p1"), Cause.UNSUPPORTED_ACTION),
        (megaflow("dp:ovs", "p1", keys="dp_hash(0xb/0xf)"), Cause.UNSUPPORTED_MATCH),
        # The bridge itself is no port of the NIC, so the rule stays in traffic control.
        (megaflow("dp:tc", "ovsbr1"), Cause.EGRESS_NOT_ON_ESWITCH),
    ],
)
def test_keys_and_actions_that_keep_every_such_megaflow_out(found: Megaflow, cause: Cause) -> None:
    reason = next(iter(action_reasons(case(found))))
    assert (reason.cause, reason.likelihood) == (cause, Likelihood.CERTAIN)


def test_recirculation_depends() -> None:
    reasons = list(action_reasons(case(megaflow("dp:ovs", "ct(commit),recirc(0x1)"))))
    assert {reason.likelihood for reason in reasons} == {Likelihood.LIKELY}
    assert Cause.RECIRCULATION in {reason.cause for reason in reasons}


def test_what_can_be_offloaded_is_no_reason() -> None:
    assert list(action_reasons(case(megaflow("dp:ovs")))) == []
    assert list(action_reasons(case(megaflow("dp:tc")))) == []


def test_the_log_makes_a_reason_sure_and_is_its_evidence() -> None:
    evidence = Evidence(host(), logs=(f"{TRUNCATED}\n{FAILED}\n",))
    reasons = list(action_reasons(case(megaflow("dp:ovs", "trunc(100),p1"), evidence=evidence)))
    assert [reason.likelihood for reason in reasons] == [Likelihood.CONFIRMED]
    assert TRUNCATED in reasons[0].evidence


def test_a_line_without_a_pattern_is_quoted() -> None:
    failed = FAILED.replace("Operation not supported", "Invalid argument")
    evidence = Evidence(host(), logs=(failed,))
    (reason,) = action_reasons(case(megaflow("dp:ovs"), evidence=evidence))
    assert (reason.cause, reason.likelihood) == (Cause.REFUSED_BY_KERNEL, Likelihood.LIKELY)
    assert reason.text.endswith("failed to offload flow: Invalid argument: p0")


def test_what_traffic_control_has_open_vswitch_did_not_refuse() -> None:
    evidence = Evidence(host(), logs=(FAILED,))
    assert list(action_reasons(case(megaflow("dp:tc"), evidence=evidence))) == []


@pytest.mark.parametrize(
    ("config", "likelihood"),
    [(None, Likelihood.LIKELY), ({"hw-offload-ct-size": "250000"}, Likelihood.CERTAIN), ({}, Likelihood.CERTAIN)],
)
def test_a_hash_of_a_dump_of_doca_by_its_setting(config: dict[str, str] | None, likelihood: Likelihood) -> None:
    """It was judged as DPDK's: only another megaflow of the dump shows OVS-DOCA."""
    found = megaflow("offloaded:partial, dp:ovs", "hash(l4(0)),p1")
    evidence = Evidence(layers=frozenset(("offloaded", "doca")))
    if config is not None:
        evidence = replace(evidence, host=host(config=config, datapath="netdev", port_type="dpdk"))
    (reason,) = action_reasons(replace(case(found), evidence=evidence))
    assert (reason.cause, reason.likelihood) == (Cause.UNSUPPORTED_ACTION, likelihood)
    assert "hw-offload-ct-size" in reason.text


def test_a_hash_is_no_reason_where_doca_offloads_it() -> None:
    seen = host(config={"hw-offload-ct-size": "0"}, datapath="netdev", port_type="doca")
    assert list(action_reasons(case(megaflow("offloaded:partial, dp:ovs", "hash(l4(0)),p1"), seen=seen))) == []


def test_partly_offloaded_by_dpdk() -> None:
    seen = host(datapath="netdev", port_type="dpdk")
    found = megaflow("offloaded:partial, dp:ovs", "hash(l4(0)),recirc(0x3)")
    assert Cause.UNSUPPORTED_ACTION in {reason.cause for reason in action_reasons(case(found, seen=seen))}


TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
BY_TOS = UnwildcardedBits("ovsbr1", (("nw_tos", 0xFC),), frozenset(("nw_tos",)), (TOS,))
MARK = parse_flow("table=1, priority=3000,ip,pkt_mark=0x1/0x1 actions=drop")
BY_MARK = UnwildcardedBits("ovsbr1", (("pkt_mark", 1),), frozenset(("pkt_mark",)), (MARK,))
PREFIX = parse_flow("priority=3000,ip,nw_src=203.0.113.0/24 actions=drop")
BY_PREFIX = UnwildcardedBits("ovsbr1", (("nw_src", 0xFFFFFF00),), frozenset(), (PREFIX,))


def _widened(bits: UnwildcardedBits, found: Megaflow | None = None, *, evidence: Evidence | None = None) -> Case:
    return replace(case(found, evidence=evidence), unwildcarded=bits)


def _answered(bits: UnwildcardedBits, answer: DriverAnswer) -> Case:
    return _widened(bits, evidence=Evidence(host(), driver={UFID: answer}))


REFUSED = DriverAnswer(95, "Operation not supported", "unsupported match key")
FULL = DriverAnswer(28, "No space left on device", "rule table is full")
HELD = Evidence(host(), in_hardware=frozenset((shape_of(megaflow()),)))
BY_FLOWS = {
    "a key that the driver may refuse": (_answered(BY_TOS, REFUSED), "unwildcarded, likely: ..."),
    "a full table": (_answered(BY_TOS, FULL), "unwildcarded, possible: ..."),
    "further bits of a key of ours": (_answered(BY_PREFIX, REFUSED), "unwildcarded, possible: ..."),
    "a rule that the driver accepts": (_answered(BY_TOS, DriverAnswer(None)), ""),
    "a key that the NIC holds costs entries alone": (
        _widened(BY_TOS, evidence=HELD),
        "unwildcarded, possible: ...more entries...",
    ),
    "no such flow": (
        _widened(replace(BY_TOS, flows=())),
        "unwildcarded, ...from before a change...] -> ovs-appctl revalidator/purge",
    ),
    "flows that were not read": (
        _widened(replace(BY_TOS, flows=None)),
        "unwildcarded, ...flows that were not read...--from-flows FLOWS...",
    ),
    "a key that Open vSwitch does not offload": (
        _widened(BY_MARK, megaflow("dp:ovs", keys="skb_mark(0/0x1)")),
        "unwildcarded, certain: ...which is not offloaded (...table=1,priority=3000,pkt_mark=0x1/0x1,ip...",
    ),
}


@pytest.mark.parametrize(("found", "wanted"), BY_FLOWS.values(), ids=BY_FLOWS)
def test_bits_that_foreign_flows_unwildcard(found: Case, wanted: str) -> None:
    reasons = list(unwildcarded_reasons(found))
    assert_shown(shown(reasons), wanted)
    assert "certain" not in wanted or reasons[0].source is not None


def test_the_reason_has_the_bits_the_flow_and_the_fix() -> None:
    (reason,) = unwildcarded_reasons(_widened(BY_TOS))
    assert (reason.likelihood, "a foreign flow un-wildcards nw_tos 0xfc" in reason.text) == (Likelihood.LIKELY, True)
    assert reason.evidence == ("foreign flow on ovsbr1: priority=3000,udp,nw_tos=32 actions=drop",)
    show, owner, delete, again = reason.fix
    assert show == "ovs-ofctl --names dump-flows ovsbr1 table=0,udp,nw_tos=32"
    assert "ask the flow's owner first" in owner
    assert delete == "ovs-ofctl --strict del-flows ovsbr1 table=0,priority=3000,udp,nw_tos=32"
    assert again == "ovs-appctl revalidator/purge"


def test_of_many_flows_the_first_are_listed_and_the_rest_counted() -> None:
    many = tuple(parse_flow(f"priority={priority},udp,nw_tos=32 actions=drop") for priority in range(3000, 3010))
    (reason,) = unwildcarded_reasons(_widened(replace(BY_TOS, flows=many)))
    assert (len(reason.evidence), reason.evidence[-1]) == (4, "and 7 more flows that match these bits")
    assert sum("del-flows" in command for command in reason.fix) == 3


GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
FLOW = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_src=198.18.0.64 actions=push_vlan:0x8100,output:p1"
LINE = (
    "ufid:11111111-0000-4000-8000-000000000001, recirc_id(0),in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
    "ipv4(src=198.18.0.64,dst=10.3.10.45,proto=17,frag=no),udp(dst=53), packets:6, bytes:600, used:0.3s, dp:tc, "
    "actions:push_vlan(vid=5,pcp=0),p1\n"
)


def test_the_flow_that_takes_packets_of_a_block_is_named(tmp_path: Path, xenoovs: CommandLine) -> None:
    """It printed "no traffic yet", although verify-offload named the flow."""
    (tmp_path / "dump").write_text(LINE)
    (tmp_path / "flows").write_text(f" cookie=0x1, {FLOW}\n")
    options = ("--from-dump", tmp_path / "dump", "--from-flows", tmp_path / "flows", "--service", "dns", "-o", "json")
    result = xenoovs("why", GOLDEN / "dns.yaml", *options)
    (row,) = json.loads(result.out)["megaflows"]
    first = row["reasons"][0]
    assert (result.status, first["cause"]) == (2, "overridden")
    assert "packets of 1 block of dns match this megaflow" in first["text"]
    assert first["evidence"][0].startswith("foreign flow: cookie=0x1, priority=3000")


def test_samples_of_the_bridge_come_with_the_command_that_ends_them() -> None:
    sampled = megaflow("dp:ovs", "sample(sample=10.0%,actions(userspace(pid=1,sFlow(vid=0)))),p1")
    bridge = BridgeState("ovsbr1", (PortState("p0"),), exporters=("sflow", "netflow"))
    seen = replace(host(), database=Database({"hw-offload": "true"}, (bridge,)))
    (reason,) = (one for one in action_reasons(case(sampled, seen=seen)) if one.cause is Cause.UNSUPPORTED_ACTION)
    assert reason.fix == ("ovs-vsctl clear Bridge ovsbr1 sflow", "ovs-appctl revalidator/purge")


def test_a_wide_flow_overrides_all_blocks(tmp_path: Path, xenoovs: CommandLine) -> None:
    (tmp_path / "dump").write_text(LINE.replace("src=198.18.0.64,", "src=0.0.0.0/0.0.0.0,"))
    result = xenoovs("why", GOLDEN / "dns.yaml", "--from-dump", tmp_path / "dump")
    assert (result.status, "packets of 7 blocks of dns match this megaflow" in result.out) == (2, True)
