"""Keys and actions of a megaflow as a reason, alone and confirmed by the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.why_cases import case, host, megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.flows import action_reasons
from xenoovs.judge.why.reason import Cause, Likelihood, Reason

TRUNCATED = "2026-11-21T04:33:58.590Z|00007|netdev_offload_tc(handler2)|DBG|unsupported put action type: 13"
FAILED = "2026-11-21T04:33:58.590Z|00008|dpif_netlink(handler2)|DBG|failed to offload flow: Operation not supported: p0"


def _first(layer: str, actions: str, *, keys: str = "dp_hash(0/0)") -> Reason:
    return next(iter(action_reasons(case(megaflow(layer, actions, keys=keys)))))


@pytest.mark.parametrize(
    ("actions", "cause"),
    [
        ("userspace(pid=4294967295,slow_path(controller))", Cause.SLOW_PATH),
        ("trunc(100),p1", Cause.UNSUPPORTED_ACTION),
        ("hash(l4(0)),recirc(0x3)", Cause.UNSUPPORTED_ACTION),
        ("set(sctp(dst=80)),p1", Cause.UNSUPPORTED_ACTION),
    ],
)
def test_what_open_vswitch_does_not_translate(actions: str, cause: Cause) -> None:
    reason = _first("dp:ovs", actions)
    assert (reason.cause, reason.likelihood) == (cause, Likelihood.CERTAIN)


def test_a_key_that_no_nic_matches() -> None:
    assert _first("dp:ovs", "p1", keys="dp_hash(0xb/0xf)").cause is Cause.UNSUPPORTED_MATCH


def test_recirculation_depends() -> None:
    reasons = list(action_reasons(case(megaflow("dp:ovs", "ct(commit),recirc(0x1)"))))
    assert {reason.likelihood for reason in reasons} == {Likelihood.LIKELY}
    assert Cause.RECIRCULATION in {reason.cause for reason in reasons}


def test_output_to_the_bridge_itself_explains_a_rule_that_stays_in_traffic_control() -> None:
    reason = _first("dp:tc", "ovsbr1")
    assert (reason.cause, reason.likelihood) == (Cause.EGRESS_NOT_ON_ESWITCH, Likelihood.CERTAIN)


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
